"""Sums of a few weighted elements along an axis, at places that are known while tracing."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.custom_derivatives import linear_call

FEW = 4  # elements that are added one after the other, without a reduction


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


def gather_taps(x: Array, taps: Mapping[int, Taps]) -> Array:
    """The new elements of the taps along each axis of `x`; its gradient gathers, too."""
    if not dtypes.issubdtype(x.dtype, np.inexact):
        return _weighted(x, taps)
    back = {axis: t.transposed(x.shape[axis]) for axis, t in reversed(list(taps.items()))}
    return linear_call(lambda _, x: _weighted(x, taps), lambda _, y: _weighted(y, back), (), x)


def _weighted(x: Array, taps: Mapping[int, Taps]) -> Array:
    if math.prod(t.places.shape[1] for t in taps.values()) <= FEW:
        # One kernel reads what it needs of all axes.
        return _corners(x, list(taps.items()))
    for axis, along in taps.items():
        x = _corners(x, [(axis, along)]) if along.places.shape[1] <= FEW else _sums(x, axis, along)
    return x


def _corners(x: Array, taps: Sequence[tuple[int, Taps]]) -> Array:
    """A few elements, weighted and added one after the other."""
    if not taps:
        return x
    (axis, along), *others = taps
    total = None
    for places, weights in zip(along.places.T, along.weights.T, strict=True):
        y = _corners(jnp.take(x, places, axis=axis, mode="clip"), others)
        shape = [len(weights) if i == axis else 1 for i in range(x.ndim)]
        y = _times(y, weights.reshape(shape))
        total = y if total is None else total + y
    assert total is not None
    return total


def _sums(x: Array, axis: int, taps: Taps) -> Array:
    y = jnp.take(x, taps.places, axis=axis, mode="clip")
    shape = [1] * y.ndim
    shape[axis : axis + 2] = taps.places.shape
    return jnp.sum(_times(y, taps.weights.reshape(shape)), axis + 1, dtype=x.dtype)


def _times(x: Array, weights: np.ndarray) -> Array:
    """Elements times their weights; those of none are zero, also if they are no numbers."""
    if (weights == 1).all():
        return x
    y = x * weights.astype(x.dtype)
    return y if weights.all() else jnp.where(weights != 0, y, 0)


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
