"""Parts of optimizers that scale each element by what its gradients have been."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.pytree import tree_map
from amdjax.optim.base import (
    GradientTransformation,
    Params,
    Updates,
    check_not_negative,
    check_number,
    check_params,
    transformation,
)
from amdjax.optim.moments import (
    average,
    cast_like,
    check_decays,
    count_of_updates,
    gained,
    incremented,
    squared,
    squares_like,
    unbiased,
    zeros_like,
)

__all__ = [
    "FactoredState", "ScaleByAdaDeltaState", "ScaleByAdamState", "ScaleByAmsgradState",
    "ScaleByLionState", "ScaleByRmsState", "ScaleByRssState", "scale_by_adadelta", "scale_by_adam",
    "scale_by_adamax", "scale_by_amsgrad", "scale_by_factored_rms", "scale_by_lion",
    "scale_by_radam", "scale_by_rms", "scale_by_rss",
]  # fmt: skip


class ScaleByAdamState(NamedTuple):
    """State of `scale_by_adam`, `scale_by_adamax` and `scale_by_radam`.

    Args:
      nu: mean of their squares, or the largest of late, likewise.
    """

    count: Array  # type: ignore[assignment]  # hides tuple.count, as in optax
    mu: Updates
    nu: Updates


class ScaleByAmsgradState(NamedTuple):
    """State of `scale_by_amsgrad`.

    Args:
      nu: mean of their squares, likewise.
      nu_max: the largest mean square there was, likewise.
    """

    count: Array  # type: ignore[assignment]
    mu: Updates
    nu: Updates
    nu_max: Updates


class ScaleByRmsState(NamedTuple):
    """State of `scale_by_rms`.

    Args:
      nu: mean of the squared gradients, a tree of the parameters' form.
      mu: mean of the gradients, likewise, if centered; else None.
      count: number of updates, int32, if the means are freed of their start; else None.
    """

    nu: Updates
    mu: Updates = None
    count: Any = None


class ScaleByRssState(NamedTuple):
    """State of `scale_by_rss`.

    Args:
      sum_of_squares: of the gradients, a tree of the parameters' form.
    """

    sum_of_squares: Updates


class ScaleByAdaDeltaState(NamedTuple):
    """State of `scale_by_adadelta`.

    Args:
      e_g: mean of the squared gradients, a tree of the parameters' form.
      e_x: mean of the squared updates, likewise.
    """

    e_g: Updates
    e_x: Updates


class ScaleByLionState(NamedTuple):
    """State of `scale_by_lion`."""

    mu: Updates


class FactoredState(NamedTuple):
    """State of `scale_by_factored_rms`.

    Args:
      v_row: means of squares over the longest axis, where there are such; else one zero.
      v_col: means of squares over the second longest axis, likewise.
      v: mean squares of what is not factored; else one zero.
    """

    count: Array  # type: ignore[assignment]
    v_row: Updates
    v_col: Updates
    v: Updates


def _quotient(mean: Updates, square: Updates, eps: Any, eps_root: Any) -> Updates:
    return tree_map(lambda m, v: m / (jnp.sqrt(v + eps_root) + eps), mean, square)


def _mean_ahead(b1: Any, count: Array, mu: Updates, grads: Updates, nesterov: bool) -> Updates:
    """The mean gradient, freed of its start; with `nesterov` as it will be one update later."""
    if not nesterov:
        return unbiased(b1, count, mu)
    ahead, now = unbiased(b1, incremented(count), mu), unbiased(b1, count, grads)
    return tree_map(lambda m, g: b1 * m + (1 - b1) * g, ahead, now)


def _by_moments(
    name: str, b1: float, b2: float, updates: Callable[[Array, Updates, Updates, Updates], Updates],
    mu_dtype: Any = None, second: Callable[[Updates, Updates], Updates] | None = None,
) -> GradientTransformation:  # fmt: skip
    """What makes updates of a count, two means (of gradients and of their squares) and gradients.

    `second` takes the place of the mean square: a function of what it was and of the gradients.
    """
    check_decays(name, b1=b1, b2=b2)

    def init(params: Params) -> ScaleByAdamState:
        mu, nu = zeros_like(params, mu_dtype), squares_like(params)
        return ScaleByAdamState(count_of_updates(), mu, nu)

    def update(
        grads: Updates, state: ScaleByAdamState, params: Params = None
    ) -> tuple[Updates, ScaleByAdamState]:
        count, mu = incremented(state.count), average(b1, state.mu, grads)
        nu = second(state.nu, grads) if second else average(b2, state.nu, grads, power=2)
        new = ScaleByAdamState(count, cast_like(mu, state.mu), cast_like(nu, state.nu))
        return updates(count, mu, nu, grads), new

    return transformation(init, update)


def scale_by_adam(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0,
    mu_dtype: Any = None, *, nesterov: bool = False, bias_correction: bool = True,
) -> GradientTransformation:  # fmt: skip
    """The mean gradient divided by the root of the mean square, both freed of their start at zero.

    As in Kingma & Ba (2015); with `nesterov`, Dozat (2016).

    Args:
      bias_correction: whether they are freed; without, there is no `nesterov`.

    Raises:
      ValueError: a share of what remains is not in [0, 1), or there is `nesterov` without
        `bias_correction`.

        >>> adam = optim.scale_by_adam()
        >>> adam.update(jnp.array([5.0]), adam.init(jnp.zeros(1)))[0].round(3)
        Array([1.], dtype=float32)
    """
    check_not_negative("adam", eps=eps, eps_root=eps_root)
    if nesterov and not bias_correction:
        raise ValueError("adam: nesterov=True needs bias_correction=True.")

    def updates(count: Array, mu: Updates, nu: Updates, grads: Updates) -> Updates:
        if not bias_correction:
            return _quotient(mu, nu, eps, eps_root)
        mean, square = _mean_ahead(b1, count, mu, grads, nesterov), unbiased(b2, count, nu)
        return _quotient(mean, square, eps, eps_root)

    return _by_moments("adam", b1, b2, updates, mu_dtype)


def scale_by_amsgrad(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0,
    mu_dtype: Any = None, bias_correction_mu: bool = True, bias_correction_nu: bool = True, *,
    correct_largest: bool = False,
) -> GradientTransformation:  # fmt: skip
    """As `scale_by_adam`, by the largest mean square there has been (Reddi et al., 2018).

    Args:
      bias_correction_mu: whether the mean is freed of its start at zero.
      bias_correction_nu: whether the mean square is.
      correct_largest: whether the largest of mean squares as they are is freed of their start, as
        in PyTorch and MIOpen, rather than the largest taken of freed ones, as in optax.

        >>> amsgrad = optim.scale_by_amsgrad()
        >>> amsgrad.update(jnp.array([5.0]), amsgrad.init(jnp.zeros(1)))[0].round(3)
        Array([1.], dtype=float32)
    """
    check_decays("amsgrad", b1=b1, b2=b2)
    check_not_negative("amsgrad", eps=eps, eps_root=eps_root)

    def init(params: Params) -> ScaleByAmsgradState:
        mu, nu, largest = zeros_like(params, mu_dtype), squares_like(params), squares_like(params)
        return ScaleByAmsgradState(count_of_updates(), mu, nu, largest)

    def update(
        grads: Updates, state: ScaleByAmsgradState, params: Params = None
    ) -> tuple[Updates, ScaleByAmsgradState]:
        count = incremented(state.count)
        mu, nu = average(b1, state.mu, grads), average(b2, state.nu, grads, power=2)
        mean = unbiased(b1, count, mu) if bias_correction_mu else mu
        freed = (lambda x: unbiased(b2, count, x)) if bias_correction_nu else (lambda x: x)
        largest = tree_map(jnp.maximum, state.nu_max, nu if correct_largest else freed(nu))
        kept = (cast_like(*pair) for pair in
                ((mu, state.mu), (nu, state.nu), (largest, state.nu_max)))  # fmt: skip
        by = freed(largest) if correct_largest else largest
        return _quotient(mean, by, eps, eps_root), ScaleByAmsgradState(count, *kept)

    return transformation(init, update)


def scale_by_adamax(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> GradientTransformation:
    """The mean gradient divided by the largest of late (Kingma & Ba, 2015, section 7.1).

    Args:
      b2: how much of the largest gradient remains.
      eps: added to the size of each gradient.

        >>> adamax = optim.scale_by_adamax()
        >>> adamax.update(jnp.array([5.0]), adamax.init(jnp.zeros(1)))[0].round(3)
        Array([1.], dtype=float32)
    """
    check_not_negative("adamax", eps=eps)

    def largest(nu: Updates, grads: Updates) -> Updates:
        return tree_map(lambda v, g: jnp.maximum(jnp.abs(g) + eps, b2 * v), nu, grads)

    def updates(count: Array, mu: Updates, nu: Updates, _: Updates) -> Updates:
        return tree_map(lambda m, v: m / v, unbiased(b1, count, mu), nu)

    return _by_moments("adamax", b1, b2, updates, second=largest)


def scale_by_radam(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, eps_root: float = 0.0,
    threshold: float = 5.0, *, nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """As `scale_by_adam`, less sure of the mean square while few gradients are known.

    (Liu et al., 2020.)

    >>> radam = optim.scale_by_radam()
    >>> radam.update(jnp.array([5.0]), radam.init(jnp.zeros(1)))[0].round(3)
    Array([5.], dtype=float32)
    """
    check_not_negative("radam", eps=eps, eps_root=eps_root)
    check_number("radam", "threshold", threshold)

    def updates(count: Array, mu: Updates, nu: Updates, grads: Updates) -> Updates:
        most, share = 2 / (1 - b2) - 1, gained(b2, count)
        freedom = most - 2 * count * (1 - share) / share
        sure = freedom >= threshold
        ratio = (freedom - 4) * (freedom - 2) * most / ((most - 4) * (most - 2) * freedom)
        rectifier = jnp.sqrt(jnp.where(sure, ratio, 1))
        mean, square = _mean_ahead(b1, count, mu, grads, nesterov), unbiased(b2, count, nu)
        divided = _quotient(mean, square, eps, eps_root)
        certain = lambda d, m: jnp.where(sure, rectifier.astype(d.dtype) * d, m)
        return tree_map(certain, divided, mean)

    return _by_moments("radam", b1, b2, updates)


def scale_by_rms(
    decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0, eps_in_sqrt: bool = True,
    bias_correction: bool = False, *, centered: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Divide by the root of the mean square (Tieleman & Hinton, 2012).

    >>> rms = optim.scale_by_rms(decay=0.75)
    >>> rms.update(jnp.array([5.0]), rms.init(jnp.zeros(1)))[0].round(5)
    Array([2.], dtype=float32)
    """
    check_decays("rmsprop", decay=decay)
    check_not_negative("rmsprop", eps=eps, initial_scale=initial_scale)

    def init(params: Params) -> ScaleByRmsState:
        nu = tree_map(lambda z: z + initial_scale, squares_like(params))
        mu = zeros_like(params) if centered else None
        return ScaleByRmsState(nu, mu, count_of_updates() if bias_correction else None)

    def update(
        grads: Updates, state: ScaleByRmsState, params: Params = None
    ) -> tuple[Updates, ScaleByRmsState]:
        count: Any = incremented(state.count) if bias_correction else None
        free = lambda x: unbiased(decay, count, x) if bias_correction else x
        nu, mu = average(decay, state.nu, grads, power=2), None
        spread = free(nu)
        if centered:
            mu = average(decay, state.mu, grads)
            # Rounding may leave less than nothing.
            spread = tree_map(lambda v, m: jnp.maximum(v - squared(m), 0), spread, free(mu))
            mu = cast_like(mu, state.mu)
        updates = tree_map(lambda g, v: g * _inverse_root(v, eps, eps_in_sqrt), grads, spread)
        return updates, ScaleByRmsState(cast_like(nu, state.nu), mu, count)

    return transformation(init, update)


def _inverse_root(x: Array, eps: Any, eps_in_sqrt: bool) -> Array:
    return lax.rsqrt(x + eps) if eps_in_sqrt else 1 / (jnp.sqrt(x) + eps)


def scale_by_rss(
    initial_accumulator_value: float = 0.1, eps: float = 1e-7, *, eps_in_sqrt: bool = True
) -> GradientTransformation:
    """Divide by the root of the sum of all squares (Duchi et al., 2011).

    >>> rss = optim.scale_by_rss(0.0)
    >>> rss.update(jnp.array([5.0]), rss.init(jnp.zeros(1)))[0].round(3)
    Array([1.], dtype=float32)
    """
    check_not_negative("adagrad", initial_accumulator_value=initial_accumulator_value, eps=eps)

    def init(params: Params) -> ScaleByRssState:
        return ScaleByRssState(
            tree_map(lambda z: z + initial_accumulator_value, squares_like(params))
        )

    def update(
        grads: Updates, state: ScaleByRssState, params: Params = None
    ) -> tuple[Updates, ScaleByRssState]:
        total = tree_map(lambda g, t: squared(g) + t, grads, state.sum_of_squares)

        def scaled(g: Array, t: Array) -> Array:
            return jnp.where(t > 0, _inverse_root(t, eps, eps_in_sqrt), 0) * g

        updates = tree_map(scaled, grads, total)
        return updates, ScaleByRssState(cast_like(total, state.sum_of_squares))

    return transformation(init, update)


def scale_by_adadelta(rho: float = 0.9, eps: float = 1e-6) -> GradientTransformation:
    """Multiply by the root mean square of updates over that of gradients (Zeiler, 2012).

    >>> adadelta = optim.scale_by_adadelta(0.75, 1e-2)
    >>> adadelta.update(jnp.array([2.0]), adadelta.init(jnp.zeros(1)))[0].round(3)
    Array([0.199], dtype=float32)
    """
    check_decays("adadelta", rho=rho)
    check_not_negative("adadelta", eps=eps)

    def init(params: Params) -> ScaleByAdaDeltaState:
        return ScaleByAdaDeltaState(squares_like(params), squares_like(params))

    def update(
        grads: Updates, state: ScaleByAdaDeltaState, params: Params = None
    ) -> tuple[Updates, ScaleByAdaDeltaState]:
        e_g = average(rho, state.e_g, grads, power=2)
        scaled = lambda g, new, old: jnp.sqrt(old + eps) / jnp.sqrt(new + eps) * g
        updates = tree_map(scaled, grads, e_g, state.e_x)
        e_x = average(rho, state.e_x, updates, power=2)
        kept = ScaleByAdaDeltaState(cast_like(e_g, state.e_g), cast_like(e_x, state.e_x))
        return updates, kept

    return transformation(init, update)


def scale_by_lion(
    b1: float = 0.9, b2: float = 0.99, mu_dtype: Any = None
) -> GradientTransformation:
    """The sign of an average of the gradients (Chen et al., 2023).

    Args:
      b1: share of the mean in what the sign is taken of.
      b2: how much of the mean remains.

        >>> lion = optim.scale_by_lion()
        >>> lion.update(jnp.array([5.0, -0.1]), lion.init(jnp.zeros(2)))[0]
        Array([ 1., -1.], dtype=float32)
    """
    check_decays("lion", b1=b1, b2=b2)

    def init(params: Params) -> ScaleByLionState:
        return ScaleByLionState(zeros_like(params, mu_dtype))

    def update(
        grads: Updates, state: ScaleByLionState, params: Params = None
    ) -> tuple[Updates, ScaleByLionState]:
        updates = tree_map(lambda g, m: jnp.sign((1 - b1) * g + b1 * m), grads, state.mu)
        mu = average(b2, state.mu, grads)
        return updates, ScaleByLionState(cast_like(mu, state.mu))

    return transformation(init, update)


def _growing_decay(count: Array, rate: Any) -> Array:
    return 1 - (count + 1).astype(jnp.float32) ** -rate


def scale_by_factored_rms(
    factored: bool = True,
    decay_rate: float = 0.8,
    step_offset: int = 0,
    min_dim_size_to_factor: int = 128,
    epsilon: float = 1e-30,
    decay_rate_fn: Callable[[Array, Any], Array] = _growing_decay,
) -> GradientTransformation:
    """Divide by the root of the mean square, of which only the means over two axes are kept.

    (Shazeer & Stern, 2018.) The squares of a matrix are taken for a product of one factor a row and
    one a column.

    Args:
      factored: whether to do so; else all mean squares are kept.
      step_offset: number of updates before the count of these, subtracted from it.
      min_dim_size_to_factor: how long the second longest axis must be.
      epsilon: added to squares.
      decay_rate_fn: `decay_rate_fn(count, decay_rate)`, another rule.

        >>> rms = optim.scale_by_factored_rms(min_dim_size_to_factor=2)
        >>> g = jnp.array([[1.0, 2.0], [2.0, 4.0]])
        >>> rms.update(g, rms.init(g), g)[0].round(3)
        Array([[1., 1.],
               [1., 1.]], dtype=float32)
    """
    name = "scale_by_factored_rms"
    check_number(name, "decay_rate", decay_rate)
    check_not_negative(name, epsilon=epsilon, min_dim_size_to_factor=min_dim_size_to_factor)

    def axes(shape: tuple[int, ...]) -> tuple[int, int] | None:
        """The second longest and the longest axis."""
        if not factored or len(shape) < 2:
            return None
        second, longest = (int(i) for i in np.argsort(shape, kind="stable")[-2:])
        return (second, longest) if shape[second] >= min_dim_size_to_factor else None

    def start(param: Any) -> tuple[Array, Array, Array]:
        param = jnp.real(param)
        none, pair = jnp.zeros(1, param.dtype), axes(param.shape)
        if pair is None:
            return none, none, jnp.zeros_like(param)
        without = lambda axis: jnp.zeros_like(lax.index_in_dim(param, 0, axis, keepdims=False))
        return without(pair[1]), without(pair[0]), none

    def init(params: Params) -> FactoredState:
        part = lambda i: tree_map(lambda p: start(p)[i], params)
        return FactoredState(count_of_updates(), part(0), part(1), part(2))

    def new_means(decay: Array, grad: Any, row: Array, col: Array, v: Array) -> tuple[Array, ...]:
        squares, pair = squared(grad) + epsilon, axes(grad.shape)
        mixed = lambda old, new: (decay * old + (1 - decay) * new).astype(old.dtype)
        if pair is None:
            return row, col, mixed(v, squares)
        second, longest = pair
        return mixed(row, jnp.mean(squares, longest)), mixed(col, jnp.mean(squares, second)), v

    def scaled(grad: Any, row: Array, col: Array, v: Array) -> Array:
        pair = axes(grad.shape)
        if pair is None:
            return grad * v**-0.5
        second, longest = pair
        over = row / jnp.mean(row, second - (second > longest), keepdims=True)
        rows, columns = jnp.expand_dims(over**-0.5, longest), jnp.expand_dims(col**-0.5, second)
        return grad * rows * columns

    def update(
        grads: Updates, state: FactoredState, params: Params = None
    ) -> tuple[Updates, FactoredState]:
        check_params("adafactor", params)
        decay = decay_rate_fn(state.count - step_offset, decay_rate)
        means = [
            tree_map(lambda *a: new_means(decay, *a)[i], grads, state.v_row, state.v_col, state.v)
            for i in range(3)
        ]
        return tree_map(scaled, grads, *means), FactoredState(incremented(state.count), *means)

    return transformation(init, update)
