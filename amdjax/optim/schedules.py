"""Schedules: functions from the number of updates made so far to a learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.boundaries import api_boundary
from amdjax.optim.base import check_number

__all__ = [
    "Schedule", "constant_schedule", "cosine_decay_schedule", "exponential_decay", "join_schedules",
    "linear_schedule", "piecewise_constant_schedule", "polynomial_schedule",
    "warmup_constant_schedule", "warmup_cosine_decay_schedule",
]  # fmt: skip

Schedule = Callable[[Any], Any]
"""`schedule(count) -> value`; `count` is an integer scalar, traced or not."""


def _positive(name: str, **values: Any) -> None:
    for argument, value in values.items():
        check_number(name, argument, value)
        if not value > 0:
            raise ValueError(f"{name}: {argument} must be positive, got {value!r}.")


def _numbers(name: str, **values: Any) -> None:
    for argument, value in values.items():
        check_number(name, argument, value)


def constant_schedule(value: float) -> Schedule:
    """The same value always.

    Args:
      value: the value.

        >>> optim.constant_schedule(0.1)(1000)
        0.1
    """
    return lambda count: value


def polynomial_schedule(
    init_value: float,
    end_value: float,
    power: float,
    transition_steps: int,
    transition_begin: int = 0,
) -> Schedule:
    """From one value to another along a power of the remaining time.

    Args:
      init_value: value up to `transition_begin`.
      power: exponent; 1 is a straight line.

    Raises:
      ValueError: `transition_steps` is not positive.

        >>> optim.polynomial_schedule(1.0, 0.0, 2, 10)(5)
        Array(0.25, dtype=float32, weak_type=True)
    """
    _positive("polynomial_schedule", transition_steps=transition_steps)
    _numbers("polynomial_schedule", init_value=init_value, end_value=end_value, power=power)

    @api_boundary
    def schedule(count: Any) -> Array:
        done = jnp.clip(count - transition_begin, 0, transition_steps) / transition_steps
        return (init_value - end_value) * (1 - done) ** power + end_value

    return schedule


def linear_schedule(
    init_value: float, end_value: float, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """From one value to another in equal steps.

    Args:
      init_value: value up to `transition_begin`.

    Raises:
      ValueError: `transition_steps` is not positive.

        >>> optim.linear_schedule(0.0, 1.0, 4)(jnp.arange(6))
        Array([0.  , 0.25, 0.5 , 0.75, 1.  , 1.  ], dtype=float32)
    """
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def exponential_decay(
    init_value: float, transition_steps: int, decay_rate: float, transition_begin: int = 0,
    staircase: bool = False, end_value: float | None = None,
) -> Schedule:  # fmt: skip
    """`init_value * decay_rate ** (count / transition_steps)`.

    Args:
      init_value: value up to `transition_begin`.
      transition_steps: updates in which the value changes by the factor `decay_rate`.
      decay_rate: that factor.
      transition_begin: when the decay begins.
      staircase: whether the exponent is rounded down.
      end_value: value at which the decay stops: a lower bound if `decay_rate` is below 1, else an
        upper one.

    Raises:
      ValueError: `transition_steps` or `decay_rate` is not positive.

        >>> optim.exponential_decay(1.0, 10, 0.5)(jnp.array([0, 10, 20]))
        Array([1.  , 0.5 , 0.25], dtype=float32)
    """
    _positive("exponential_decay", transition_steps=transition_steps, decay_rate=decay_rate)
    _numbers("exponential_decay", init_value=init_value)

    @api_boundary
    def schedule(count: Any) -> Array:
        exponent = jnp.maximum(count - transition_begin, 0) / transition_steps
        exponent = jnp.floor(exponent) if staircase else exponent
        value = init_value * jnp.power(decay_rate, exponent)
        if end_value is None:
            return value
        return jnp.maximum(value, end_value) if decay_rate < 1 else jnp.minimum(value, end_value)

    return schedule


def cosine_decay_schedule(
    init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0
) -> Schedule:
    """Half a period of a cosine from `init_value` down (Loshchilov & Hutter, 2017).

    Args:
      decay_steps: length of the decay.
      alpha: share of `init_value` that remains in the end.
      exponent: power to which the decay is raised.

    Raises:
      ValueError: `decay_steps` is not positive.

        >>> optim.cosine_decay_schedule(1.0, 10)(jnp.array([0, 5, 10, 20])).round(6)
        Array([1. , 0.5, 0. , 0. ], dtype=float32)
    """
    _positive("cosine_decay_schedule", decay_steps=decay_steps)
    _numbers("cosine_decay_schedule", init_value=init_value, alpha=alpha, exponent=exponent)

    @api_boundary
    def schedule(count: Any) -> Array:
        done = jnp.clip(count, 0, decay_steps) / decay_steps
        decay = 0.5 * (1 + jnp.cos(math.pi * done))
        return init_value * ((1 - alpha) * decay**exponent + alpha)

    return schedule


def warmup_constant_schedule(init_value: float, peak_value: float, warmup_steps: int) -> Schedule:
    """A line up to `peak_value`, which then stays.

    Raises:
      ValueError: `warmup_steps` is not positive.

        >>> optim.warmup_constant_schedule(0.0, 1.0, 2)(jnp.array([0, 1, 2, 3]))
        Array([0. , 0.5, 1. , 1. ], dtype=float32)
    """
    return linear_schedule(init_value, peak_value, warmup_steps)


def warmup_cosine_decay_schedule(
    init_value: float, peak_value: float, warmup_steps: int, decay_steps: int,
    end_value: float = 0.0, exponent: float = 1.0,
) -> Schedule:  # fmt: skip
    """A line up to `peak_value`, then half a period of a cosine down.

    Args:
      decay_steps: length of rise and decay together.
      end_value: value in the end.
      exponent: power to which the decay is raised.

    Raises:
      ValueError: `warmup_steps` is not positive, or `decay_steps` not larger.

        >>> optim.warmup_cosine_decay_schedule(0.0, 1.0, 2, 6)(jnp.array([0, 1, 2, 4, 6])).round(6)
        Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    name = "warmup_cosine_decay_schedule"
    _numbers(name, init_value=init_value, peak_value=peak_value, end_value=end_value)
    _positive(name, warmup_steps=warmup_steps, decay_steps=decay_steps)
    if decay_steps <= warmup_steps:
        raise ValueError(
            f"{name}: decay_steps counts the warm-up too and must be larger "
            f"than warmup_steps={warmup_steps}, got {decay_steps!r}."
        )
    alpha = end_value / peak_value if peak_value else 0.0
    return join_schedules(
        [
            linear_schedule(init_value, peak_value, warmup_steps),
            cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent),
        ],
        [warmup_steps],
    )


def piecewise_constant_schedule(
    init_value: float, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """A value that is multiplied by a factor at each boundary.

    Args:
      boundaries_and_scales: for each boundary the factor that holds from there on.

    Raises:
      ValueError: a factor is negative.

        >>> optim.piecewise_constant_schedule(1.0, {2: 0.5, 4: 0.1})(jnp.array([0, 2, 3, 4]))
        Array([1.  , 0.5 , 0.5 , 0.05], dtype=float32, weak_type=True)
    """
    check_number("piecewise_constant_schedule", "init_value", init_value)
    steps = sorted((boundaries_and_scales or {}).items())
    if any(scale < 0 for _, scale in steps):
        raise ValueError(
            "piecewise_constant_schedule: boundaries_and_scales must not have negative factors, "
            f"got {boundaries_and_scales!r}."
        )

    @api_boundary
    def schedule(count: Any) -> Array:
        value = jnp.asarray(init_value)
        for boundary, scale in steps:
            value = value * jnp.where(count >= boundary, scale, 1.0)
        return value

    return schedule


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after another; each counts from its own beginning.

    Args:
      schedules: the schedules.
      boundaries: when each but the first begins.

    Raises:
      ValueError: there is not one boundary less than schedules.

        >>> flat, line = optim.constant_schedule(1.0), optim.linear_schedule(0, 1, 2)
        >>> optim.join_schedules([flat, line], [3])(jnp.arange(6))
        Array([1. , 1. , 1. , 0. , 0.5, 1. ], dtype=float32)
    """
    if len(boundaries) != len(schedules) - 1:
        raise ValueError(
            "join_schedules: boundaries must have one entry less than schedules, got "
            f"{len(boundaries)} and {len(schedules)}."
        )

    @api_boundary
    def schedule(count: Any) -> Array:
        value = schedules[0](count)
        for boundary, later in zip(boundaries, schedules[1:]):
            value = jnp.where(count < boundary, value, later(count - boundary))
        return value

    return schedule
