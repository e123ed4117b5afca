"""Sparse arrays of another shape: stretched, joined, sliced, cut anew."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.experimental.sparse.bcoo import BCOO, full_batch, make
from amdjax.experimental.sparse.layout import (
    bcoo_sum_duplicates,
    bcoo_transpose,
    bcoo_update_layout,
    columns,
    ends,
    masked,
    sparse_shape,
    valid,
)
from amdjax.numpy._util import canonical_axes


def bcoo_broadcast_in_dim(
    mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCOO:
    """The array in a larger shape.

    New axes before the first sparse one are batches, those after the first dense one dense, others
    sparse.

    Raises:
      ValueError: the shapes do not fit.

        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.bcoo_broadcast_in_dim(m, shape=(3, 2, 2), broadcast_dimensions=(1, 2)).shape
        (3, 2, 2)
    """
    places = [operator.index(d) for d in broadcast_dimensions]
    if len(places) != mat.ndim:
        raise ValueError(f"{mat.shape=} and {broadcast_dimensions=} must have the same length")
    if sorted(places) != places:
        raise ValueError(f"broadcast_dimensions must rise, got {places}")
    shape = tuple(shape)
    if any(n not in (1, shape[place]) for n, place in zip(mat.shape, places, strict=True)):
        raise ValueError(f"cannot broadcast {mat.shape} to {shape}")
    b, s, rank = mat.n_batch, mat.n_sparse, len(shape)
    first = min(places[b:], default=rank)
    last = min(places[b + s :], default=rank)
    n_sparse, nse = last - first, mat.nse
    data, indices = full_batch(mat)
    data = lax.broadcast_in_dim(
        data, (*shape[:first], nse, *shape[last:]),
        (*places[:b], first, *(d + 1 - n_sparse for d in places[b + s :])),
    )  # fmt: skip
    indices = lax.broadcast_in_dim(
        indices, (*shape[:first], nse, s), (*places[:b], first, first + 1)
    )
    own = {place: i for i, place in enumerate(places[b : b + s])}
    there = valid(indices, sparse_shape(mat))
    # Each entry is there once for each place along the sparse axes that it is repeated on.
    repeated = [
        d for d in range(first, last)
        if d not in own or mat.shape[b + own[d]] != shape[d]
    ]  # fmt: skip
    copies = [shape[d] for d in repeated]
    count = math.prod(copies)
    where = np.indices(copies).reshape(len(copies), count)
    columns_out = []
    for d in range(first, last):
        if d in repeated:
            places_d = np.repeat(where[repeated.index(d)], nse).astype(np.int32)
            column = jnp.broadcast_to(places_d, (*shape[:first], nse * count))
        else:
            column = _tiled(indices[..., own[d]], count, first)
        columns_out.append(jnp.where(_tiled(there, count, first), column, shape[d]))
    stacked = [c.astype(indices.dtype) for c in columns_out]
    empty = jnp.zeros((*shape[:first], nse * count, 0), indices.dtype)
    return make(_tiled(data, count, first), jnp.stack(stacked, -1) if stacked else empty, shape,
                indices_sorted=mat.indices_sorted and count == 1,
                unique_indices=mat.unique_indices)  # fmt: skip


def _tiled(x: Array, count: int, axis: int) -> Array:
    """`x`, several times one after the other along an axis."""
    return x if count == 1 else jnp.concatenate([x] * count, axis)


def _with_room(mat: BCOO, nse: int) -> tuple[Array, Array]:
    """Data and indices for `nse` entries, of which the last hold nothing."""
    data, indices = full_batch(mat)
    b, more = mat.n_batch, nse - mat.nse
    data = jnp.pad(data, [(0, more if d == b else 0) for d in range(data.ndim)])
    end = ends(indices, sparse_shape(mat))
    rest = jnp.broadcast_to(end, (*indices.shape[:b], more, mat.n_sparse))
    return data, jnp.concatenate([indices, rest], b)


def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """Sparse arrays, joined along an axis.

    Args:
      operands: `BCOO`s of as many dense axes; the batch axes are the fewest of one.

    Raises:
      ValueError: the dense axes or shapes do not fit.

        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.bcoo_concatenate([m, m], dimension=0).shape
        (4, 2)
    """
    layouts = {(m.n_dense, m.ndim) for m in operands}
    if len(layouts) != 1:
        raise ValueError(f"bcoo_concatenate requires inputs of one layout, got {layouts}")
    fewest = min(m.n_batch for m in operands)
    operands = [bcoo_update_layout(m, n_batch=fewest) for m in operands]
    first = operands[0]
    (axis,) = canonical_axes(dimension, first.ndim)
    others = {m.shape[:axis] + m.shape[axis + 1 :] for m in operands}
    if len(others) != 1:
        shapes = [m.shape for m in operands]
        raise ValueError(f"bcoo_concatenate: shapes {shapes} differ beside axis {axis}")
    b, s = first.n_batch, first.n_sparse
    length = sum(m.shape[axis] for m in operands)
    shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
    if axis < b:
        nse = max(m.nse for m in operands)
        data, indices = (
            jnp.concatenate(x, axis) for x in zip(*(_with_room(m, nse) for m in operands))
        )
        unique = all(m.unique_indices and (s or m.nse == nse) for m in operands)
        return make(data, indices, shape, unique_indices=unique)
    if axis >= b + s:
        flat = [bcoo_update_layout(m, n_dense=0) for m in operands]
        joined = bcoo_concatenate(flat, dimension=axis)
        return bcoo_update_layout(joined, n_batch=b, n_dense=first.n_dense, on_inefficient=None)
    parts, start = [], 0
    for m in operands:
        data, indices = full_batch(m)
        column = indices[..., axis - b]
        moved = jnp.where(column < m.shape[axis], column + start, length)
        parts.append((data, indices.at[..., axis - b].set(moved.astype(indices.dtype))))
        start += m.shape[axis]
    data = jnp.concatenate([d for d, _ in parts], axis=b)
    indices = jnp.concatenate([i for _, i in parts], axis=b)
    return make(data, indices, shape, unique_indices=all(m.unique_indices for m in operands))


def bcoo_slice(
    mat: BCOO,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> BCOO:
    """A window of the array.

    Args:
      start_indices: where it begins on each axis.
      limit_indices: where it ends.
      strides: how far apart its elements are; ones by default.

    Returns:
      A `BCOO` with as many entries; those outside the window are none.

        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.bcoo_slice(m, start_indices=(0, 1), limit_indices=(2, 2)).todense()
        Array([[2.],
               [0.]], dtype=float32)
    """
    steps = [1] * mat.ndim if strides is None else list(strides)
    b, s = mat.n_batch, mat.n_sparse
    bounds = zip(start_indices, limit_indices, steps, strict=True)
    windows = [slice(*map(operator.index, w)) for w in bounds]
    data, indices = full_batch(mat)
    batch, dense = tuple(windows[:b]), tuple(windows[b + s :])
    data, indices = data[(*batch, slice(None), *dense)], indices[batch]
    shape = tuple(len(range(*w.indices(n))) for w, n in zip(windows, mat.shape, strict=True))
    new, keep = [], jnp.ones(indices.shape[:-1], bool)
    for i, w in enumerate(windows[b : b + s]):
        column, step = indices[..., i], w.step
        offset = column - w.start
        keep &= (column >= w.start) & (column < w.stop) & (offset % step == 0)
        new.append(offset // step)
    if new:
        end = shape[b : b + s]
        indices = jnp.stack([jnp.where(keep, c, n) for c, n in zip(new, end, strict=True)], -1)
    found = make(masked(data, keep), indices, shape, unique_indices=mat.unique_indices)
    most = math.prod(shape[b : b + s])
    return bcoo_sum_duplicates(found, most) if most < mat.nse else found


def bcoo_reshape(
    mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None,
    sharding: Any = None,
) -> BCOO:  # fmt: skip
    """The same elements in another shape.

    Batch axes become batch axes of as many elements, sparse ones sparse, dense ones dense.

    Args:
      new_sizes: the new shape; one may be -1.
      dimensions: the order in which the axes are taken first; batch axes stay in front.

    Raises:
      ValueError: the sizes do not fit, or an axis would be of two kinds.

        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.bcoo_reshape(m, new_sizes=(4,)).todense()
        Array([0., 2., 3., 0.], dtype=float32)
    """
    sizes = [operator.index(n) for n in new_sizes]
    if -1 in sizes:
        known = -math.prod(sizes)
        sizes[sizes.index(-1)] = mat.size // max(known, 1)
    if math.prod(sizes) != mat.size:
        raise ValueError(f"cannot reshape array of shape {mat.shape} into {tuple(new_sizes)}")
    if dimensions is not None and list(dimensions) != list(range(mat.ndim)):
        mat = bcoo_transpose(mat, permutation=dimensions)
    b, old = mat.n_batch, sparse_shape(mat)
    batch, places = math.prod(mat.shape[:b]), math.prod(old)
    up_to = list(itertools.accumulate(sizes, operator.mul))
    for kinds, count, end in (
        ("batch and sparse", batch, batch),
        ("sparse and dense", places, batch * places),
    ):
        if count != 1 and end not in up_to:
            raise ValueError(
                f"bcoo_reshape: new shape cannot mix {kinds} dimensions, got {mat.shape} to"
                f" {tuple(sizes)} with n_batch={b}, n_dense={mat.n_dense}"
            )
    first, last = (bisect.bisect_right(up_to, end) for end in (batch, batch * places))
    data, indices = full_batch(mat)
    data = data.reshape(*sizes[:first], mat.nse, *sizes[last:])
    indices, new = indices.reshape(*sizes[:first], *indices.shape[b:]), sizes[first:last]
    there = valid(indices, old)
    flat = functools.reduce(
        lambda total, pair: total * pair[1] + pair[0],
        zip(columns(indices), old, strict=True),
        jnp.zeros(indices.shape[:-1], indices.dtype),
    )
    parts = []
    for n in reversed(new):
        parts.append(jnp.where(there, flat % n, n).astype(indices.dtype))
        flat = flat // n
    indices = jnp.stack(parts[::-1], -1) if parts else jnp.zeros((*flat.shape, 0), indices.dtype)
    return make(masked(data, there), indices, tuple(sizes), unique_indices=mat.unique_indices)
