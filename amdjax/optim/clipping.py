"""Bounds on gradients."""

from __future__ import annotations

from typing import Any

import amdjax.numpy as jnp
from amdjax.core.pytree import tree_map
from amdjax.nn._arguments import widened
from amdjax.optim.base import GradientTransformation, check_number, global_norm, stateless

__all__ = ["clip", "clip_by_block_rms", "clip_by_global_norm"]


def clip(max_delta: float) -> GradientTransformation:
    """Bring each element into `[-max_delta, max_delta]`.

    Args:
      max_delta: bound, positive.

    Raises:
      TypeError: `max_delta` is no number.
      ValueError: `max_delta` is not positive.

        >>> optim.clip(1.0).update(jnp.array([-3.0, 0.5]), optim.EmptyState())[0]
        Array([-1. ,  0.5], dtype=float32)
    """
    _check_bound("clip", "max_delta", max_delta)
    return stateless(lambda g, _: tree_map(lambda x: jnp.clip(x, -max_delta, max_delta), g))


def clip_by_global_norm(max_norm: float) -> GradientTransformation:
    """Shrink all gradients by one factor so that their common norm is at most `max_norm`.

    As in Pascanu et al. (2013).

    Args:
      max_norm: bound, positive.

    Raises:
      TypeError: `max_norm` is no number.
      ValueError: `max_norm` is not positive.

        >>> optim.clip_by_global_norm(1.0).update(jnp.array([3.0, 4.0]), optim.EmptyState())[0]
        Array([0.6, 0.8], dtype=float32)
    """
    _check_bound("clip_by_global_norm", "max_norm", max_norm)

    def shrink(grads: Any, _: Any) -> Any:
        norm = global_norm(grads)
        factor = jnp.where(norm < max_norm, 1.0, max_norm / norm)
        shrunk = lambda g: (widened(g) * factor.astype(widened(g).dtype)).astype(g.dtype)
        return tree_map(lambda g: shrunk(jnp.asarray(g)), grads)

    return stateless(shrink)


def clip_by_block_rms(threshold: float) -> GradientTransformation:
    """Shrink each gradient so that its root mean square is at most `threshold`.

    Args:
      threshold: bound, positive.

    Raises:
      TypeError: `threshold` is no number.
      ValueError: `threshold` is not positive.

        >>> optim.clip_by_block_rms(1.0).update(jnp.array([3.0, 3.0]), optim.EmptyState())[0]
        Array([1., 1.], dtype=float32)
    """
    _check_bound("clip_by_block_rms", "threshold", threshold)

    def one(g: Any) -> Any:
        g = jnp.asarray(g)
        wide = widened(g)  # float16 cannot hold the squares of all that it can
        size = jnp.sqrt(jnp.mean(jnp.square(jnp.abs(wide))))
        return (wide / jnp.maximum(1, size / threshold)).astype(g.dtype)

    return stateless(lambda grads, _: tree_map(one, grads))


def _check_bound(name: str, argument: str, value: Any) -> None:
    check_number(name, argument, value)
    if isinstance(value, (int, float)) and not value > 0:
        raise ValueError(f"{name}: {argument} must be positive, got {value!r}.")
