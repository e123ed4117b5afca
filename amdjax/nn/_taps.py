"""Sums of a few weighted elements along an axis, at places that follow from sizes.

Where all sizes are numbers, places are known while tracing, and so is who gathers a gradient. Where
one is symbolic, they are computed by the program.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.dims import is_symbolic_dim
from amdjax.custom_derivatives import linear_call

FEW = 4  # elements that are added one after the other, without a reduction


class Taps(NamedTuple):
    """Which elements along an axis make up each new one.

    Attributes:
      places: `(size, k)`, positions of the elements.
      weights: `(size, k)`, their factors; 0 for places that do not count.
    """

    places: Any
    weights: Any

    @property
    def known(self) -> bool:
        """Whether they are numbers while tracing."""
        return isinstance(self.places, np.ndarray) and isinstance(self.weights, np.ndarray)

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
    """The new elements of the taps along each axis of `x`; if all are known, so is its gradient."""
    known = all(t.known for t in taps.values())
    if not known or not dtypes.issubdtype(x.dtype, np.inexact):
        return _weighted(x, taps)
    back = {axis: t.transposed(x.shape[axis]) for axis, t in reversed(list(taps.items()))}
    return linear_call(lambda _, x: _weighted(x, taps), lambda _, y: _weighted(y, back), (), x)


def _weighted(x: Array, taps: Mapping[int, Taps]) -> Array:
    if _are_few(taps.values()):
        # One kernel reads what it needs of all axes.
        return _corners(x, list(taps.items()))
    for axis, along in taps.items():
        x = _corners(x, [(axis, along)]) if _are_few([along]) else _sums(x, axis, along)
    return x


def _are_few(taps: Iterable[Taps]) -> bool:
    counts = [t.places.shape[1] for t in taps]
    return not any(map(is_symbolic_dim, counts)) and math.prod(counts) <= FEW


def _corners(x: Array, taps: Sequence[tuple[int, Taps]]) -> Array:
    """A few elements, weighted and added one after the other."""
    if not taps:
        return x
    (axis, along), *others = taps
    total = None
    for places, weights in zip(along.places.T, along.weights.T, strict=True):
        y = _corners(jnp.take(x, places, axis=axis, mode="clip"), others)
        shape = [weights.shape[0] if i == axis else 1 for i in range(x.ndim)]
        y = _times(y, weights.reshape(shape))
        total = y if total is None else total + y
    assert total is not None
    return total


def _sums(x: Array, axis: int, taps: Taps) -> Array:
    y = jnp.take(x, taps.places, axis=axis, mode="clip")
    shape = [1] * y.ndim
    shape[axis : axis + 2] = taps.places.shape
    return jnp.sum(_times(y, taps.weights.reshape(shape)), axis + 1, dtype=x.dtype)


def _times(x: Array, weights: Any) -> Array:
    """Elements times their weights; those of none are zero, also if they are no numbers."""
    known = isinstance(weights, np.ndarray)
    if known and (weights == 1).all():
        return x
    y = x * weights.astype(x.dtype)
    return y if known and weights.all() else jnp.where(weights != 0, y, 0)


def taps_of(build: Callable[..., Taps], size: int, new: int, *options: Any) -> Taps:
    """`build(xp, size, new, *options)`, by NumPy and once where both sizes are numbers."""
    if is_symbolic_dim(size) or is_symbolic_dim(new):
        return build(jnp, size, new, *options)
    return _known_taps(build, operator.index(size), operator.index(new), *options)


@functools.lru_cache(512)
def _known_taps(build: Callable[..., Taps], size: int, new: int, *options: Any) -> Taps:
    return build(np, size, new, *options)


def without_idle(taps: Taps) -> Taps:
    """Without columns whose weights are all zero."""
    busy = (taps.weights != 0).any(0)
    return Taps(taps.places[:, busy], taps.weights[:, busy])


def mean_taps(xp: Any, size: int, new: int) -> Taps:
    """Means of `new` windows that cover `size` samples, as equal as can be."""
    starts, ends = adaptive_windows(size, new, xp)
    most = (ends - starts).max() if xp is np else -(-size // new) + 1
    places = starts[:, None] + xp.arange(most)
    weights = (places < ends[:, None]) / (ends - starts)[:, None]
    return Taps(xp.minimum(places, size - 1).astype(np.int32), weights)


def adaptive_windows(size: int, new: int, xp: Any = np) -> tuple[Any, Any]:
    """Where `new` windows that cover `size` samples begin and end."""
    starts, _ = scaled(xp, xp.arange(new), size, new)
    ends, rest = scaled(xp, xp.arange(1, new + 1), size, new)
    return starts, ends + (rest > 0)


def scaled(xp: Any, k: Any, n: int, m: int) -> tuple[Any, Any]:
    """Quotient and remainder of `k * n` by `m`, of integers of 32 bits if these are traced.

    Their product may not fit. What a quotient that is nearly right leaves does, so it is right
    although it is the difference of two products that wrapped around.
    """
    if xp is np:
        return np.divmod(k.astype(np.int64) * n, m)
    share = xp.asarray(n).astype(np.float32) / xp.asarray(m).astype(np.float32)
    near = xp.floor(k.astype(np.float32) * share).astype(np.int32)
    more, rest = xp.divmod(k.astype(np.int32) * n - near * m, m)
    return near + more, rest
