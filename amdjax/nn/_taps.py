"""Sums of a few weighted elements along an axis, at places that are known while tracing."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.custom_derivatives import linear_call


class Taps(NamedTuple):
    """Which elements along an axis make up each new one.

    Attributes:
      places: `(size, k)`, positions of the elements.
      weights: `(size, k)`, their factors; 0 for places that do not count.
    """

    places: np.ndarray
    weights: np.ndarray

    def transposed(self, size: int) -> Taps:
        """What gathers from the new elements for each of the `size` old ones."""
        count = len(self.places)
        there = self.weights.ravel() != 0
        pairs = (self.places.astype(np.int64) * count + np.arange(count)[:, None]).ravel()[there]
        pairs, which = np.unique(pairs, return_inverse=True)
        shares = np.bincount(which, self.weights.ravel()[there], len(pairs))
        old, new = np.divmod(pairs, count)
        rank = np.arange(len(old)) - np.searchsorted(old, old)
        shape = size, int(rank.max(initial=0)) + 1
        back = Taps(np.zeros(shape, np.int32), np.zeros(shape))
        back.places[old, rank], back.weights[old, rank] = new, shares
        return back


def gather_taps(x: Array, axis: int, taps: Taps) -> Array:
    """The new elements of `taps` along an axis of `x`; its gradient gathers, too."""
    if not dtypes.issubdtype(x.dtype, np.inexact):
        return _weighted(x, axis, taps)
    back = taps.transposed(x.shape[axis])
    forward = lambda _, x: _weighted(x, axis, taps)
    backward = lambda _, y: _weighted(y, axis, back)
    return linear_call(forward, backward, (), x)


def _weighted(x: Array, axis: int, taps: Taps) -> Array:
    count, k = taps.places.shape
    whole = (taps.weights == 1).all()
    if k == 1:
        y = jnp.take(x, taps.places[:, 0], axis=axis, mode="clip")
        shape = [count if i == axis else 1 for i in range(x.ndim)]
        return y if whole else y * taps.weights.astype(x.dtype).reshape(shape)
    y = jnp.take(x, taps.places, axis=axis, mode="clip")
    if not whole:
        shape = [1] * y.ndim
        shape[axis : axis + 2] = count, k
        y = y * taps.weights.astype(x.dtype).reshape(shape)
    return jnp.sum(y, axis + 1, dtype=x.dtype)


@functools.lru_cache(256)
def mean_taps(size: int, new: int) -> Taps:
    """Means of `new` windows that cover `size` samples, as equal as can be."""
    starts, ends = adaptive_windows(size, new)
    places = starts[:, None] + np.arange((ends - starts).max())
    weights = (places < ends[:, None]) / (ends - starts)[:, None]
    return Taps(np.minimum(places, size - 1).astype(np.int32), weights)


def adaptive_windows(size: int, new: int) -> tuple[np.ndarray, np.ndarray]:
    """Where `new` windows that cover `size` samples begin and end."""
    i = np.arange(new)
    return i * size // new, -(-(i + 1) * size // new)
