"""Signals without their trend."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, promote_dtypes_inexact


@composite(static_argnames=("axis", "type", "breaks"))
def _detrend(data: ArrayLike, axis: int, type: str, breaks: tuple[int, ...]) -> Array:
    (x,) = promote_dtypes_inexact(jnp.asarray(data))
    if type == "constant":
        return x - x.mean(axis, keepdims=True)
    length = operator.index(x.shape[axis])
    ends = np.unique([0, *breaks, length])
    if ends[0] < 0 or ends[-1] > length:
        raise ValueError(
            "Breakpoints must be non-negative and less than length of data along given axis, got"
            f" {breaks} for length {length}."
        )
    x = jnp.moveaxis(x, axis, -1)
    pieces = [_without_line(x[..., a:b]) for a, b in itertools.pairwise(ends)]
    return jnp.moveaxis(jnp.concatenate(pieces, axis=-1), -1, axis) if pieces else x


def _without_line(x: Array) -> Array:
    """What the line of least squares leaves, along the last axis."""
    n = x.shape[-1]
    centered = np.arange(n) - (n - 1) / 2
    # Of unit length, so that the slope is one product.
    unit = centered / max(float(np.linalg.norm(centered)), 1e-30)
    direction = jnp.broadcast_to(jnp.asarray(unit, x.dtype), x.shape)
    x = x - x.mean(-1, keepdims=True)
    return x - (x * direction).sum(-1, keepdims=True) * direction


def detrend(
    data: ArrayLike,
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] | np.ndarray = 0,
    overwrite_data: None = None,
) -> Array:
    """A signal without its mean, or without a line fitted to each of its pieces.

    Args:
      data: the signals.
      type: "linear" or "constant".
      bp: where new pieces begin, for "linear".
      overwrite_data: must be None.

    Returns:
      An inexact array of the shape of `data`.

    Raises:
      ValueError: `type` is unknown, or a breakpoint lies outside the signal.
      NotImplementedError: `overwrite_data` is given.

        >>> amdjax.scipy.signal.detrend(jnp.array([1.0, 2.0, 6.0]), type="constant")
        Array([-2., -1.,  3.], dtype=float32)
    """
    if overwrite_data is not None:
        raise NotImplementedError("overwrite_data argument not implemented.")
    if type not in ("constant", "linear"):
        raise ValueError(f"Trend type must be 'linear' or 'constant', got {type!r}.")
    breaks: Any = tuple(int(b) for b in np.atleast_1d(bp))
    return _detrend(data, axis, type, breaks)
