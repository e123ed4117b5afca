"""Steps of optimizers, which graphs of training hold (a preview of the standard)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax import numpy as jnp

from ..registry import rule

training = functools.partial(rule, domain="ai.onnx.preview.training")


def _each(
    step: Callable[..., tuple[Any, ...]], arrays: Sequence[Any], kinds: int
) -> tuple[Any, ...]:
    """A step for each of several arrays; values come first, then gradients, then the rest."""
    count = len(arrays) // kinds
    made = [step(*arrays[i::count]) for i in range(count)]
    return tuple(value for kind in zip(*made) for value in kind)


@training("Adagrad")
def adagrad(
    rate: Any, count: Any, *arrays: Any, decay_factor: float = 0.0, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Any, ...]:  # fmt: skip
    """A step divided by the root of all squared gradients so far (Duchi et al., 2011)."""
    rate = rate / (1 + count.astype(rate.dtype) * np.asarray(decay_factor, rate.dtype))

    def step(x: Any, gradient: Any, squares: Any) -> tuple[Any, ...]:
        gradient = np.asarray(norm_coefficient, x.dtype) * x + gradient
        squares = squares + gradient * gradient
        return x - rate * gradient / (jnp.sqrt(squares) + np.asarray(epsilon, x.dtype)), squares

    return _each(step, arrays, 3)


@training("Adam")
def adam(
    rate: Any, count: Any, *arrays: Any, alpha: float = 0.9, beta: float = 0.999,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> tuple[Any, ...]:  # fmt: skip
    """A step by means of gradients and of their squares (Kingma & Ba, 2015)."""
    times = count.astype(rate.dtype)
    a, b = np.asarray(alpha, rate.dtype), np.asarray(beta, rate.dtype)
    corrected = rate * jnp.sqrt(1 - b**times) / (1 - a ** jnp.maximum(times, 1))
    rate = jnp.where(count > 0, corrected, rate)

    def step(x: Any, gradient: Any, mean: Any, squares: Any) -> tuple[Any, ...]:
        gradient = np.asarray(norm_coefficient, x.dtype) * x + gradient
        mean = a * mean + (1 - a) * gradient
        squares = b * squares + (1 - b) * gradient * gradient
        x = x - rate * mean / (jnp.sqrt(squares) + np.asarray(epsilon, x.dtype))
        return np.asarray(1 - norm_coefficient_post, x.dtype) * x, mean, squares

    return _each(step, arrays, 4)


@training("Momentum")
def momentum(
    rate: Any, count: Any, *arrays: Any, alpha: float, beta: float, mode: str,
    norm_coefficient: float, node: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """A step along a sum of gradients, of which the older weigh less."""
    if mode not in ("standard", "nesterov"):
        raise node.error(f"mode must be standard or nesterov, got {mode!r}")

    def step(x: Any, gradient: Any, sums: Any) -> tuple[Any, ...]:
        a, b = np.asarray(alpha, x.dtype), np.asarray(beta, x.dtype)
        gradient = np.asarray(norm_coefficient, x.dtype) * x + gradient
        sums = a * sums + jnp.where(count > 0, b, np.ones((), x.dtype)) * gradient
        return x - rate * (gradient + a * sums if mode == "nesterov" else sums), sums

    return _each(step, arrays, 3)
