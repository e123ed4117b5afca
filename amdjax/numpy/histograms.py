"""Histograms of samples in one and more dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.numpy import reductions
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    as_arrays,
    check_arraylike,
    concrete_int,
    constant,
    convert,
    promote_dtypes,
    promote_dtypes_inexact,
    select,
)
from amdjax.numpy.conversion import asarray
from amdjax.numpy.cumulative import diff
from amdjax.numpy.joining import stack
from amdjax.numpy.manipulation import ravel
from amdjax.numpy.ranges import linspace
from amdjax.numpy.sorting import searchsorted


def histogram_bin_edges(
    a: ArrayLike, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None
) -> Array:
    """The edges of the bins that `histogram` counts in.

    Args:
      a: samples.
      bins: the number of bins of equal width, or their edges.
      range: lower and upper end; None means those of the samples.
      weights: accepted; the edges do not depend on it.

        >>> jnp.histogram_bin_edges(jnp.array([0.0, 2.0]), 2)
        Array([0., 1., 2.], dtype=float32)
    """
    if isinstance(bins, str):
        raise NotImplementedError("string values for `bins` not implemented.")
    check_arraylike("histogram_bin_edges", a, bins)
    a = as_array("histogram_bin_edges", a)
    if np.ndim(bins) == 1:
        return convert(_array(bins), promote_dtypes_inexact(a)[0].dtype)
    (a,) = promote_dtypes_inexact(ravel(a))
    if range is None:
        low, high = (
            (reductions.min(a), reductions.max(a)) if a.size else (constant(a, 0), constant(a, 1))
        )
        low, high = convert(low, a.dtype), convert(high, a.dtype)
    else:
        ends = promote_dtypes_inexact(_array(range))[0]
        if ends.shape != (2,):
            raise ValueError(f"`range` must be either None or a sequence of scalars, got {range}")
        low, high = convert(ends[0], a.dtype), convert(ends[1], a.dtype)
    # A range without width is widened to one.
    flat = lax.eq(low, high)
    half = constant(a, 0.5)
    low, high = select(flat, lax.sub(low, half), low), select(flat, lax.add(high, half), high)
    return linspace(low, high, concrete_int(bins, "bins") + 1, dtype=a.dtype)


def _array(x: Any) -> Array:
    return asarray(x)


def _bin_of(x: Array, edges: Array) -> Array:
    """The bin of each sample, counted from one; the last edge belongs to the last bin."""
    place = searchsorted(edges, x, side="right")
    on_last = lax.eq(x, lax.index_in_dim(edges, edges.size - 1, keepdims=False))
    return select(on_last, lax.sub(place, place.dtype.type(1)), place)


def histogram(
    a: ArrayLike, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """How many samples fall into each bin.

    Args:
      a: samples.
      bins: the number of bins of equal width, or their edges.
      range: lower and upper end; None means those of the samples.
      weights: how much each sample counts.
      density: divide by the total and by the widths of the bins.

    Returns:
      The counts, and the edges of the bins.

        >>> jnp.histogram(jnp.array([1.0, 2.0, 2.0]), 2)[0]
        Array([1., 2.], dtype=float32)
    """
    a = as_array("histogram", a)
    edges = histogram_bin_edges(a, bins, range)
    if weights is None:
        (values,) = promote_dtypes_inexact(ravel(a))
        w = lax.full_like(values, 1)
    else:
        w = as_array("histogram", weights)
        if w.shape != a.shape:
            raise ValueError("weights should have the same shape as a.")
        values, w = promote_dtypes_inexact(ravel(a), ravel(w))
    values, edges_ = promote_dtypes(values, edges)
    slot = _bin_of(values, edges_)
    n = edges.size
    counts = lax.full((n + 1,), 0, w.dtype).at[slot].add(w)
    counts = lax.slice_in_dim(counts, 1, n)
    if density:
        widths = diff(edges)
        counts, widths = promote_dtypes_inexact(counts, widths)
        counts = lax.div(lax.div(counts, widths), reductions.sum(counts))
    return counts, edges


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, list[Array]]:  # fmt: skip
    """How many points fall into each cell of a grid.

    Args:
      sample: one point a row, or a sequence of coordinates.
      bins: the number of bins, one for each axis, or the edges along each axis.
      range: for each axis lower and upper end.
      weights: how much each point counts.
      density: divide by the total and by the volumes of the cells.

    Returns:
      The counts, and the edges along each axis.

        >>> jnp.histogramdd(jnp.zeros((3, 2)), 1)[0]
        Array([[3]], dtype=int32)
    """
    if isinstance(sample, (list, tuple)):
        sample = stack(as_arrays("histogramdd", *sample), -1)
    (points,) = promote_dtypes_inexact(as_array("histogramdd", sample))
    if points.ndim == 1:
        points = lax.expand_dims(points, (1,))
    n, d = points.shape
    if range is not None and len(range) != d:
        raise ValueError("For sample with shape (..., d), `range` must have d entries")
    many = isinstance(bins, Sequence) or np.ndim(bins) > 0
    if many and len(bins) != d:
        raise ValueError("should be a bin for each dimension.")
    bins = list(bins) if many else [bins] * d
    if weights is not None and as_array("histogramdd", weights, 1).shape != (n,):
        raise ValueError("should have one weight for each sample.")
    edges, cells = [], None
    for i, axis_bins in enumerate(bins):
        x = lax.index_in_dim(points, i, 1, keepdims=False)
        edges.append(histogram_bin_edges(x, axis_bins, None if range is None else range[i]))
        slot = _bin_of(x, convert(edges[-1], x.dtype))
        width = slot.dtype.type(edges[-1].size + 1)
        cells = slot if cells is None else lax.add(lax.mul(cells, width), slot)
    shape = tuple(e.size + 1 for e in edges)
    ones = lax.full((n,), 1, dtypes.default_int_dtype())
    w = ones if weights is None else as_array("histogramdd", weights)
    counts = lax.full((int(np.prod(shape)),), 0, w.dtype).at[cells].add(w)
    counts = lax.reshape(counts, shape)
    counts = lax.slice(counts, [1] * d, [s - 1 for s in shape])
    if density:
        counts = convert(counts, dtypes.to_inexact_dtype(counts.dtype))
        total = reductions.sum(counts)
        for i, e in enumerate(edges):
            widths = convert(diff(e), counts.dtype)
            counts = lax.div(counts, lax.broadcast_in_dim(widths, counts.shape, (i,)))
        counts = lax.div(counts, total)
    return counts, edges


def histogram2d(
    x: ArrayLike, y: ArrayLike, bins: Any = 10, range: Any = None,
    weights: ArrayLike | None = None, density: bool | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """How many points of the plane fall into each cell of a grid.

    >>> jnp.histogram2d(jnp.zeros(3), jnp.zeros(3), 1)[0]
    Array([[3]], dtype=int32)
    """
    x, y = as_arrays("histogram2d", x, y)
    if x.ndim != y.ndim:
        raise TypeError(f"histogram2d: x and y must be vectors, got shapes {x.shape}, {y.shape}")
    many = isinstance(bins, Sequence) or np.ndim(bins) > 0
    if many and len(bins) not in (1, 2):
        bins = [_array(bins)] * 2
    elif many and len(bins) == 1:
        bins = list(bins) * 2
    counts, (x_edges, y_edges) = histogramdd([x, y], bins, range, weights, density)
    return counts, x_edges, y_edges
