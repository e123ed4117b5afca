"""The parts of optimizers: what scales, adds to and averages gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import amdjax.numpy as jnp
from amdjax import random
from amdjax.core.array import Array
from amdjax.core.pytree import tree_leaves, tree_map, tree_structure, tree_unflatten
from amdjax.nn._arguments import widened
from amdjax.nn._random import checked_key
from amdjax.optim.base import (
    GradientTransformation,
    Params,
    Updates,
    check_not_negative,
    check_number,
    check_params,
    masked,
    no_state,
    squared_norm,
    stateless,
    transformation,
)
from amdjax.optim.moments import (
    average,
    cast_like,
    check_decays,
    count_of_updates,
    incremented,
    squared,
    unbiased,
    zeros_like,
)
from amdjax.optim.schedules import Schedule

__all__ = [
    "AddNoiseState", "EmaState", "ScaleByScheduleState", "TraceState", "WeightDecaySchedule",
    "ZeroNansState", "add_decayed_weights", "add_noise", "centralize", "ema", "scale",
    "scale_by_learning_rate", "scale_by_param_block_rms", "scale_by_schedule",
    "scale_by_trust_ratio", "trace", "zero_nans",
]  # fmt: skip


class TraceState(NamedTuple):
    """State of `trace`.

    Args:
      trace: the decaying sum of gradients, a tree of the parameters' form.
    """

    trace: Updates


class EmaState(NamedTuple):
    """State of `ema`.

    Args:
      ema: the decaying average, a tree of the parameters' form.
    """

    count: Array  # type: ignore[assignment]  # hides tuple.count, as in optax
    ema: Updates


class ScaleByScheduleState(NamedTuple):
    """State of `scale_by_schedule`."""

    count: Array  # type: ignore[assignment]


class WeightDecaySchedule(NamedTuple):
    """State of `add_decayed_weights` by a schedule."""

    count: Array  # type: ignore[assignment]


class AddNoiseState(NamedTuple):
    """State of `add_noise`.

    Args:
      rng_key: key of the noise to come.
    """

    count: Array  # type: ignore[assignment]
    rng_key: Array


class ZeroNansState(NamedTuple):
    """State of `zero_nans`.

    Args:
      found_nan: for each parameter, whether its last gradient held a NaN.
    """

    found_nan: Any


def scale(step_size: float | Array) -> GradientTransformation:
    """Multiply by a number.

    Args:
      step_size: the factor.

        >>> optim.scale(-2.0).update(jnp.array([1.0]), optim.EmptyState())[0]
        Array([-2.], dtype=float32)
    """
    check_number("scale", "step_size", step_size)
    return stateless(lambda grads, _: tree_map(lambda g: step_size * g, grads))


def scale_by_schedule(schedule: Schedule) -> GradientTransformation:
    """Multiply by a value that depends on the number of updates made so far.

    Args:
      schedule: `schedule(count) -> value`.

        >>> warmup = optim.scale_by_schedule(optim.linear_schedule(0.0, 1.0, 2))
        >>> update, state = warmup.update(jnp.array([4.0]), warmup.init(jnp.zeros(1)))
        >>> warmup.update(jnp.array([4.0]), state)[0]
        Array([2.], dtype=float32)
    """
    if not callable(schedule):
        raise TypeError(f"scale_by_schedule: schedule must be callable, got {schedule!r}.")

    def init(params: Params) -> ScaleByScheduleState:
        return ScaleByScheduleState(count_of_updates())

    def update(
        grads: Updates, state: ScaleByScheduleState, params: Params = None
    ) -> tuple[Updates, ScaleByScheduleState]:
        factor = jnp.asarray(schedule(state.count))
        scaled = tree_map(lambda g: factor.astype(jnp.asarray(g).dtype) * g, grads)
        return scaled, ScaleByScheduleState(incremented(state.count))

    return transformation(init, update)


def scale_by_learning_rate(
    learning_rate: float | Array | Schedule, *, flip_sign: bool = True
) -> GradientTransformation:
    """Multiply by a learning rate, negative so that the update goes downhill.

    Args:
      flip_sign: whether to multiply by its negative.

        >>> optim.scale_by_learning_rate(0.5).update(jnp.array([4.0]), optim.EmptyState())[0]
        Array([-2.], dtype=float32)
    """
    sign = -1 if flip_sign else 1
    if callable(learning_rate):
        return scale_by_schedule(lambda count: sign * learning_rate(count))
    check_not_negative("scale_by_learning_rate", learning_rate=learning_rate)
    return scale(sign * learning_rate)


def trace(
    decay: float, nesterov: bool = False, accumulator_dtype: Any = None
) -> GradientTransformation:
    """Momentum: a decaying sum of gradients.

    Args:
      decay: how much of the sum remains.
      nesterov: whether to look one step ahead (Sutskever et al., 2013).

        >>> momentum = optim.trace(0.9)
        >>> updates, state = momentum.update(jnp.ones(1), momentum.init(jnp.ones(1)))
        >>> momentum.update(jnp.ones(1), state)[0]
        Array([1.9], dtype=float32)
    """
    check_decays("trace", decay=decay)

    def init(params: Params) -> TraceState:
        return TraceState(zeros_like(params, accumulator_dtype))

    def update(
        grads: Updates, state: TraceState, params: Params = None
    ) -> tuple[Updates, TraceState]:
        add = lambda g, t: g + decay * t
        new = tree_map(add, grads, state.trace)
        updates = tree_map(add, grads, new) if nesterov else new
        return updates, TraceState(cast_like(new, state.trace))

    return transformation(init, update)


def ema(decay: float, debias: bool = True, accumulator_dtype: Any = None) -> GradientTransformation:
    """A decaying average of gradients in place of each.

    Args:
      decay: how much of the average remains.
      debias: whether it is freed of its start at zero.
      accumulator_dtype: dtype of the average; None means the parameters'.

        >>> mean = optim.ema(0.5)
        >>> updates, state = mean.update(jnp.array([3.0]), mean.init(jnp.ones(1)))
        >>> mean.update(jnp.array([6.0]), state)[0]
        Array([5.], dtype=float32)
    """
    check_decays("ema", decay=decay)

    def init(params: Params) -> EmaState:
        return EmaState(count_of_updates(), zeros_like(params, accumulator_dtype))

    def update(grads: Updates, state: EmaState, params: Params = None) -> tuple[Updates, EmaState]:
        new, count = average(decay, state.ema, grads), incremented(state.count)
        updates = unbiased(decay, count, new) if debias else new
        return updates, EmaState(count, cast_like(new, state.ema))

    return transformation(init, update)


def add_decayed_weights(
    weight_decay: float | Array | Schedule = 0.0,
    mask: Any | Callable[[Params], Any] | None = None,
) -> GradientTransformation:
    """Add `weight_decay * params` to the gradients.

    Args:
      weight_decay: how strong, a number or a schedule.

        >>> decay = optim.add_decayed_weights(0.1)
        >>> decay.update(jnp.array([0.0]), optim.EmptyState(), jnp.array([5.0]))[0]
        Array([0.5], dtype=float32)
    """
    scheduled = callable(weight_decay)
    if not scheduled:
        check_number("add_decayed_weights", "weight_decay", weight_decay)

    def init(params: Params) -> Any:
        return WeightDecaySchedule(count_of_updates()) if scheduled else no_state(params)

    def update(grads: Updates, state: Any, params: Params = None) -> tuple[Updates, Any]:
        check_params("add_decayed_weights", params)
        strength: Any = weight_decay
        if callable(weight_decay):
            strength, state = weight_decay(state.count), type(state)(incremented(state.count))
        return tree_map(lambda g, p: g + strength * p, grads, params), state

    decay = transformation(init, update)
    return decay if mask is None else masked(decay, mask)


def scale_by_trust_ratio(
    min_norm: float = 0.0, trust_coefficient: float = 1.0, eps: float = 0.0
) -> GradientTransformation:
    """Make each update's norm a share of its parameter's (You et al., 2020).

    Where either norm is zero the update stays.

    Args:
      min_norm: the least norm; smaller ones count as this.
      trust_coefficient: the share.
      eps: added to the norm of the update.

        >>> ratio = optim.scale_by_trust_ratio()
        >>> ratio.update(jnp.array([3.0, 4.0]), optim.EmptyState(), jnp.array([1.0, 0.0]))[0]
        Array([0.6, 0.8], dtype=float32)
    """
    name = "scale_by_trust_ratio"
    check_not_negative(name, min_norm=min_norm, eps=eps)
    check_number(name, "trust_coefficient", trust_coefficient)

    def scaled(grads: Updates, params: Params) -> Updates:
        check_params(name, params)

        def one(g: Any, p: Any) -> Array:
            norms = [jnp.maximum(jnp.sqrt(squared_norm(x)), min_norm) for x in (p, g)]
            ratio = trust_coefficient * norms[0] / (norms[1] + eps)
            ratio = jnp.where((norms[0] == 0) | (norms[1] == 0), 1, ratio)
            return g * ratio.astype(jnp.real(g).dtype)

        return tree_map(one, grads, params)

    return stateless(scaled)


def scale_by_param_block_rms(min_scale: float = 1e-3) -> GradientTransformation:
    """Multiply each update by the root mean square of its parameter.

    Args:
      min_scale: the least; smaller ones count as this.

        >>> rms = optim.scale_by_param_block_rms()
        >>> rms.update(jnp.array([1.0, 2.0]), optim.EmptyState(), jnp.array([3.0, 3.0]))[0]
        Array([3., 6.], dtype=float32)
    """
    check_not_negative("scale_by_param_block_rms", min_scale=min_scale)

    def scaled(grads: Updates, params: Params) -> Updates:
        check_params("scale_by_param_block_rms", params)

        def one(g: Any, p: Any) -> Array:
            size = jnp.sqrt(jnp.mean(squared(widened(jnp.asarray(p)))))
            return g * jnp.maximum(size, min_scale).astype(jnp.real(g).dtype)

        return tree_map(one, grads, params)

    return stateless(scaled)


def centralize() -> GradientTransformation:
    """Subtract from gradients of two and more axes their mean over all but the first.

    (Yong et al., 2020.)

    >>> optim.centralize().update(jnp.array([[1.0, 3.0]]), optim.EmptyState())[0]
    Array([[-1.,  1.]], dtype=float32)
    """

    def one(g: Any) -> Any:
        if jnp.ndim(g) < 2:
            return g
        return g - jnp.mean(g, tuple(range(1, jnp.ndim(g))), keepdims=True)

    return stateless(lambda grads, _: tree_map(one, grads))


def zero_nans() -> GradientTransformation:
    """Replace NaN by 0, and remember where there was one.

    >>> cleaned = optim.zero_nans()
    >>> cleaned.update(jnp.array([1.0, jnp.nan]), cleaned.init(jnp.zeros(2)))
    (Array([1., 0.], dtype=float32), ZeroNansState(found_nan=Array(True, dtype=bool)))
    """

    def init(params: Params) -> ZeroNansState:
        return ZeroNansState(tree_map(lambda p: jnp.zeros((), bool), params))

    def update(
        grads: Updates, state: ZeroNansState, params: Params = None
    ) -> tuple[Updates, ZeroNansState]:
        found = tree_map(lambda g: jnp.any(jnp.isnan(g)), grads)
        return tree_map(lambda g: jnp.where(jnp.isnan(g), 0, g), grads), ZeroNansState(found)

    return transformation(init, update)


def add_noise(eta: float, gamma: float, key: Any) -> GradientTransformation:
    """Add normal noise of variance `eta / count**gamma` (Neelakantan et al., 2015).

    Args:
      eta: variance at the first update.
      gamma: how fast it falls.
      key: key of the noise, or an integer seed.

        >>> noisy = optim.add_noise(0.0, 0.55, amdjax.random.key(0))
        >>> noisy.update(jnp.ones(2), noisy.init(jnp.ones(2)))[0]
        Array([1., 1.], dtype=float32)
    """
    check_number("add_noise", "eta", eta)
    check_number("add_noise", "gamma", gamma)

    def init(params: Params) -> AddNoiseState:
        first = random.key(key) if isinstance(key, int) else checked_key("add_noise", key)
        return AddNoiseState(count_of_updates(), first)

    def update(
        grads: Updates, state: AddNoiseState, params: Params = None
    ) -> tuple[Updates, AddNoiseState]:
        count = incremented(state.count)
        deviation = jnp.sqrt(eta / count.astype(jnp.float32) ** gamma)
        next_key, now = random.split(state.rng_key)
        leaves = tree_leaves(grads)
        noise = [
            random.normal(k, jnp.shape(g), jnp.asarray(g).dtype)
            for k, g in zip(random.split(now, len(leaves)), leaves)
        ]
        noisy = [g + deviation.astype(n.dtype) * n for g, n in zip(leaves, noise)]
        return tree_unflatten(tree_structure(grads), noisy), AddNoiseState(count, next_key)

    return transformation(init, update)
