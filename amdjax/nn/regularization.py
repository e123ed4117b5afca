"""Noise that keeps a network from learning its examples by heart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.nn import _random as random
from amdjax.nn._arguments import check_floating, check_rate
from amdjax.numpy._util import ArrayLike, as_array, broadcast_to, canonical_axes, constant, select

__all__ = ["dropout"]


def dropout(
    key: Any, x: ArrayLike, rate: float, *, broadcast_axes: int | Sequence[int] = ()
) -> Array:
    """Set elements to zero at random and enlarge the others, so that the mean stays the same.

    As in Srivastava et al. (2014). The mask depends on nothing but key and shape.

    Args:
      key: key of the mask.
      x: floating-point array.
      broadcast_axes: axes along which all elements share their fate.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      TypeError: `x` is not floating-point.
      ValueError: `rate` is no probability.

        >>> key = amdjax.random.key(0)
        >>> sorted(set(nn.dropout(key, jnp.ones(100), 0.5).tolist()))
        [0.0, 2.0]
    """
    x = as_array("dropout", x, 1)
    check_floating("dropout", x)
    check_rate("dropout", rate)
    if isinstance(rate, (int, float)) and rate in (0, 1):
        return x if rate == 0 else x * 0
    return _dropout(key, x, rate, canonical_axes(broadcast_axes, x.ndim))


@composite(static_argnames="shared")
def _dropout(key: Any, x: Array, rate: Any, shared: tuple[int, ...]) -> Array:
    shape = tuple(1 if i in shared else n for i, n in enumerate(x.shape))
    keep = random.bernoulli(key, 1 - rate, shape)
    # Where all is dropped, the slope of what is not kept is to be 0, not 0 / 0.
    enlarged = (x / jnp.where(jnp.asarray(rate) < 1, 1 - rate, 1)).astype(x.dtype)
    return select(broadcast_to(keep, x.shape), enlarged, constant(x, 0))
