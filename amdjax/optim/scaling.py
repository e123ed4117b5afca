"""The parts of optimizers: what scales and averages gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.pytree import tree_map
from amdjax.optim.base import (
    GradientTransformation,
    Params,
    Updates,
    check_number,
    masked,
    stateless,
    transformation,
)
from amdjax.optim.schedules import Schedule

__all__ = [
    "ScaleByAdamState", "ScaleByLionState", "ScaleByRmsState", "ScaleByScheduleState", "TraceState",
    "add_decayed_weights", "scale", "scale_by_adam", "scale_by_learning_rate", "scale_by_lion",
    "scale_by_rms", "scale_by_schedule", "trace",
]  # fmt: skip


class TraceState(NamedTuple):
    """State of `trace`.

    Args:
      trace: the decaying sum of gradients, a tree of the parameters' form.
    """

    trace: Updates


class ScaleByAdamState(NamedTuple):
    """State of `scale_by_adam`.

    Args:
      count: number of updates, int32.
      mu: mean of the gradients, a tree of the parameters' form.
      nu: mean of their squares, likewise.
    """

    count: Array  # type: ignore[assignment]  # hides tuple.count, as in optax
    mu: Updates
    nu: Updates


class ScaleByRmsState(NamedTuple):
    """State of `scale_by_rms`.

    Args:
      nu: mean of the squared gradients, a tree of the parameters' form.
      mu: mean of the gradients, likewise, if centered; else None.
    """

    nu: Updates
    mu: Updates


class ScaleByLionState(NamedTuple):
    """State of `scale_by_lion`.

    Args:
      mu: mean of the gradients, a tree of the parameters' form.
    """

    mu: Updates


class ScaleByScheduleState(NamedTuple):
    """State of `scale_by_schedule`.

    Args:
      count: number of updates, int32.
    """

    count: Array  # type: ignore[assignment]  # hides tuple.count, as in optax


def zeros_like(params: Params, dtype: Any = None) -> Updates:
    """A tree of zeros in the form of the parameters."""
    return tree_map(lambda p: jnp.zeros_like(p, dtype=dtype), params)


def _count() -> Array:
    return jnp.zeros((), jnp.int32)


def _average(decay: float, old: Updates, new: Updates, power: int = 1) -> Updates:
    def one(a: Any, g: Any) -> Array:
        g = g if power == 1 else jnp.real(g * jnp.conj(g))
        return (decay * a + (1 - decay) * g).astype(a.dtype)

    return tree_map(one, old, new)


def scale(step_size: float | Array) -> GradientTransformation:
    """Multiply by a number.

    Args:
      step_size: the factor.

        >>> from amdjax import optim
        >>> optim.scale(-2.0).update(jnp.array([1.0]), optim.EmptyState())[0]
        Array([-2.], dtype=float32)
    """
    check_number("scale", "step_size", step_size)
    return stateless(lambda grads, _: tree_map(lambda g: step_size * g, grads))


def scale_by_schedule(schedule: Schedule) -> GradientTransformation:
    """Multiply by a value that depends on the number of updates made so far.

    Args:
      schedule: `schedule(count) -> value`.

    Example:
      >>> from amdjax import optim
      >>> warmup = optim.scale_by_schedule(optim.linear_schedule(0.0, 1.0, 2))
      >>> update, state = warmup.update(jnp.array([4.0]), warmup.init(jnp.zeros(1)))
      >>> warmup.update(jnp.array([4.0]), state)[0]
      Array([2.], dtype=float32)
    """
    if not callable(schedule):
        raise TypeError(f"scale_by_schedule: schedule must be callable, got {schedule!r}.")

    def init(params: Params) -> ScaleByScheduleState:
        return ScaleByScheduleState(_count())

    def update(
        grads: Updates, state: ScaleByScheduleState, params: Params = None
    ) -> tuple[Updates, ScaleByScheduleState]:
        factor = jnp.asarray(schedule(state.count))
        scaled = tree_map(lambda g: factor.astype(jnp.asarray(g).dtype) * g, grads)
        return scaled, ScaleByScheduleState(state.count + 1)

    return transformation(init, update)


def scale_by_learning_rate(
    learning_rate: float | Array | Schedule, *, flip_sign: bool = True
) -> GradientTransformation:
    """Multiply by a learning rate, negative so that the update goes downhill.

    Args:
      learning_rate: a number, or a schedule.
      flip_sign: whether to multiply by its negative.

    Example:
      >>> from amdjax import optim
      >>> optim.scale_by_learning_rate(0.5).update(jnp.array([4.0]), optim.EmptyState())[0]
      Array([-2.], dtype=float32)
    """
    sign = -1 if flip_sign else 1
    if callable(learning_rate):
        return scale_by_schedule(lambda count: sign * learning_rate(count))
    check_number("scale_by_learning_rate", "learning_rate", learning_rate)
    if isinstance(learning_rate, (int, float)) and learning_rate < 0:
        raise ValueError(f"learning_rate must not be negative, got {learning_rate!r}.")
    return scale(sign * learning_rate)


def trace(
    decay: float, nesterov: bool = False, accumulator_dtype: Any = None
) -> GradientTransformation:
    """Momentum: a decaying sum of gradients.

    Args:
      decay: how much of the sum remains.
      nesterov: whether to look one step ahead (Sutskever et al., 2013).
      accumulator_dtype: dtype of the sum; None means the parameters'.

        >>> from amdjax import optim
        >>> momentum = optim.trace(0.9)
        >>> updates, state = momentum.update(jnp.ones(1), momentum.init(jnp.ones(1)))
        >>> momentum.update(jnp.ones(1), state)[0]
        Array([1.9], dtype=float32)
    """
    _check_decays("trace", decay=decay)

    def init(params: Params) -> TraceState:
        return TraceState(zeros_like(params, accumulator_dtype))

    def update(
        grads: Updates, state: TraceState, params: Params = None
    ) -> tuple[Updates, TraceState]:
        add = lambda g, t: g + decay * t
        new = tree_map(lambda g, t: add(g, t).astype(t.dtype), grads, state.trace)
        updates = tree_map(add, grads, new) if nesterov else new
        return updates, TraceState(new)

    return transformation(init, update)


def scale_by_adam(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """The mean gradient divided by the root of the mean square, both freed of their start at zero.

    As in Kingma & Ba (2015); with `nesterov`, Dozat (2016).

    Args:
      b1: how much of the mean remains.
      b2: how much of the mean square remains.
      eps: added to the root.
      eps_root: added to the mean square under the root.
      mu_dtype: dtype of the mean; None means the parameters'.
      nesterov: whether to look one step ahead.

    Example:
      >>> from amdjax import optim
      >>> adam = optim.scale_by_adam()
      >>> adam.update(jnp.array([5.0]), adam.init(jnp.zeros(1)))[0].round(3)
      Array([1.], dtype=float32)
    """
    _check_decays("adam", b1=b1, b2=b2)

    def init(params: Params) -> ScaleByAdamState:
        return ScaleByAdamState(_count(), zeros_like(params, mu_dtype), _squares_like(params))

    def update(
        grads: Updates, state: ScaleByAdamState, params: Params = None
    ) -> tuple[Updates, ScaleByAdamState]:
        count = state.count + 1
        mu = _average(b1, state.mu, grads)
        nu = _average(b2, state.nu, grads, power=2)
        mean = _unbiased(b1, count, mu)
        if nesterov:
            ahead, now = _unbiased(b1, count + 1, mu), _unbiased(b1, count, grads)
            mean = tree_map(lambda m, g: b1 * m + (1 - b1) * g, ahead, now)
        square = _unbiased(b2, count, nu)
        ratio = lambda m, v: m / (jnp.sqrt(v + eps_root) + eps)
        return tree_map(ratio, mean, square), ScaleByAdamState(count, mu, nu)

    return transformation(init, update)


def _squares_like(params: Params) -> Updates:
    return tree_map(lambda p: jnp.zeros_like(jnp.real(p)), params)


def _unbiased(decay: float, count: Array, average: Updates) -> Updates:
    factor = 1 - decay ** count.astype(jnp.float32)
    return tree_map(lambda a: a / factor.astype(jnp.real(a).dtype), average)


def _check_decays(name: str, **decays: Any) -> None:
    for argument, value in decays.items():
        check_number(name, argument, value)
        if isinstance(value, (int, float)) and not 0 <= value < 1:
            raise ValueError(f"{name}: {argument} must lie in [0, 1), got {value!r}.")


def scale_by_rms(
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    *,
    centered: bool = False,
) -> GradientTransformation:
    """Divide by the root of the mean square (Tieleman & Hinton, 2012).

    Args:
      decay: how much of the mean square remains.
      eps: added to it.
      initial_scale: the mean square at the start.
      eps_in_sqrt: whether `eps` is added before the root is taken, or after.
      centered: whether to subtract the squared mean (Graves, 2013).

    Example:
      >>> from amdjax import optim
      >>> rms = optim.scale_by_rms(decay=0.75)
      >>> rms.update(jnp.array([5.0]), rms.init(jnp.zeros(1)))[0].round(5)
      Array([2.], dtype=float32)
    """
    _check_decays("rmsprop", decay=decay)

    def init(params: Params) -> ScaleByRmsState:
        nu = tree_map(lambda z: z + initial_scale, _squares_like(params))
        return ScaleByRmsState(nu, zeros_like(params) if centered else None)

    def update(
        grads: Updates, state: ScaleByRmsState, params: Params = None
    ) -> tuple[Updates, ScaleByRmsState]:
        nu, mu, spread = _average(decay, state.nu, grads, power=2), None, None
        if centered:
            mu = _average(decay, state.mu, grads)
            spread = tree_map(lambda v, m: v - jnp.real(m * jnp.conj(m)), nu, mu)
        root = (
            (lambda v: lax.rsqrt(v + eps)) if eps_in_sqrt else (lambda v: 1 / (jnp.sqrt(v) + eps))
        )
        updates = tree_map(lambda g, v: g * root(v), grads, spread if centered else nu)
        return updates, ScaleByRmsState(nu, mu)

    return transformation(init, update)


def scale_by_lion(
    b1: float = 0.9, b2: float = 0.99, mu_dtype: Any = None
) -> GradientTransformation:
    """The sign of an average of the gradients (Chen et al., 2023).

    Args:
      b1: share of the mean in what the sign is taken of.
      b2: how much of the mean remains.
      mu_dtype: dtype of the mean; None means the parameters'.

    Example:
      >>> from amdjax import optim
      >>> lion = optim.scale_by_lion()
      >>> lion.update(jnp.array([5.0, -0.1]), lion.init(jnp.zeros(2)))[0]
      Array([ 1., -1.], dtype=float32)
    """
    _check_decays("lion", b1=b1, b2=b2)

    def init(params: Params) -> ScaleByLionState:
        return ScaleByLionState(zeros_like(params, mu_dtype))

    def update(
        grads: Updates, state: ScaleByLionState, params: Params = None
    ) -> tuple[Updates, ScaleByLionState]:
        updates = tree_map(lambda g, m: jnp.sign((1 - b1) * g + b1 * m), grads, state.mu)
        return updates, ScaleByLionState(_average(b2, state.mu, grads))

    return transformation(init, update)


def add_decayed_weights(
    weight_decay: float = 0.0, mask: Any | Callable[[Params], Any] | None = None
) -> GradientTransformation:
    """Add `weight_decay * params` to the gradients.

    Args:
      weight_decay: how strong.
      mask: which parameters decay, as for `masked`; None means all.

        >>> from amdjax import optim
        >>> decay = optim.add_decayed_weights(0.1)
        >>> decay.update(jnp.array([0.0]), optim.EmptyState(), jnp.array([5.0]))[0]
        Array([0.5], dtype=float32)
    """

    def decayed(grads: Updates, params: Params) -> Updates:
        if params is None:
            raise ValueError("update: params must be given, since weights decay.")
        return tree_map(lambda g, p: g + weight_decay * p, grads, params)

    decay = stateless(decayed)
    return decay if mask is None else masked(decay, mask)
