"""The form of a `BCOO`: making it, taking it apart, and moving its axes about.

The data have shape `(*batch, entries, *dense)`, the indices `(*batch, entries, sparse axes)`; a
batch axis of one stands for any number. An index at or beyond the end of an axis is no entry.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.trace import Tracer
from amdjax.experimental.sparse.base import (
    Shape,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    over_batch,
)
from amdjax.experimental.sparse.bcoo import BCOO, full_batch, make


def sparse_shape(mat: BCOO) -> Shape:
    """The lengths of the sparse axes."""
    return mat.shape[mat.n_batch : mat.n_batch + mat.n_sparse]


def ends(indices: Array, shape: Shape) -> Array:
    """The index after the last of each axis, of the rank of other indices."""
    end = jnp.asarray(np.array(shape, np.int32), indices.dtype)
    return end.reshape((1,) * (indices.ndim - 1) + end.shape)


def valid(indices: Array, shape: Shape) -> Array:
    """Which indices are entries."""
    return jnp.all(indices < ends(indices, shape), axis=-1)


def columns(indices: Array) -> tuple[Array, ...]:
    """The indices of each sparse axis."""
    return tuple(indices[..., i] for i in range(indices.shape[-1]))


def masked(data: Array, keep: Array) -> Array:
    """The data of entries that are kept, zero for the others."""
    return jnp.where(jnp.reshape(keep, (*keep.shape, *[1] * (data.ndim - keep.ndim))), data, 0)


def bcoo_todense(mat: BCOO) -> Array:
    """The array that a `BCOO` stands for; entries at one place add up.

    >>> sparse.bcoo_todense(sparse.eye(2))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    data, indices = full_batch(mat)
    shape = mat.shape[mat.n_batch :]

    def one(data: Array, indices: Array) -> Array:
        if not mat.n_sparse:
            return lax.reduce_sum(data, (0,))
        return jnp.zeros(shape, data.dtype).at[columns(indices)].add(data, mode="drop")

    return over_batch(one, mat.n_batch)(data, indices)


def _gathered(indices: Array, array: Array) -> Array:
    """The elements at some indices, zero at those that are none."""
    if not indices.shape[-1]:
        return jnp.broadcast_to(array, (indices.shape[0], *array.shape))
    return array.at[columns(indices)].get(mode="fill", fill_value=0)


def bcoo_extract(sparr: BCOO, arr: Any, *, assume_unique: bool | None = None) -> BCOO:
    """The entries that an array has where a `BCOO` has some.

    Args:
      sparr: where.
      arr: an array of its shape.
      assume_unique: promise that no place comes twice; by default as `sparr` says. Otherwise only
        the first of several entries at one place gets the value.

    Returns:
      A `BCOO` with the indices of `sparr`.

    Raises:
      ValueError: the shapes differ.

        >>> sparse.bcoo_extract(sparse.eye(2), jnp.arange(4.0).reshape(2, 2)).data
        Array([0., 3.], dtype=float32)
    """
    arr = jnp.asarray(arr)
    if arr.shape != sparr.shape:
        raise ValueError(f"shape mismatch: {sparr.shape=} {arr.shape=}")
    _, indices = full_batch(sparr)
    data = over_batch(_gathered, sparr.n_batch)(indices, arr)
    unique = sparr.unique_indices if assume_unique is None else assume_unique
    if not unique:
        data = masked(data, over_batch(_is_first, sparr.n_batch)(indices))
    return make(data, indices, sparr.shape, indices_sorted=sparr.indices_sorted,
                unique_indices=sparr.unique_indices)  # fmt: skip


def _is_first(indices: Array) -> Array:
    """Which entries are the first at their place."""
    n = indices.shape[0]
    if not indices.shape[1]:
        return jnp.arange(n) == 0
    order = jnp.lexsort(columns(indices)[::-1])
    ordered = indices[order]
    new = jnp.any(ordered[1:] != ordered[:-1], axis=-1)
    first = jnp.concatenate([jnp.ones(min(n, 1), bool), new])
    return jnp.zeros(n, bool).at[order].set(first)


def count_entries(mask: Any) -> int:
    """How many entries are needed, where that is known: the greatest of the counts."""
    if isinstance(mask, Tracer):
        raise ValueError(
            "fromdense: under a transformation the number of entries must be given, as nse=."
        )
    return int(np.max(np.asarray(mask), initial=0))


def bcoo_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0,
    index_dtype: Any = np.int32,
) -> BCOO:  # fmt: skip
    """The entries of an array that are not zero.

    Args:
      mat: the array.
      nse: how many entries each element of the batch can hold; as many as needed by default.

    Returns:
      A `BCOO`; of more entries than `nse` the first are kept.

    Raises:
      ValueError: the axes are not as many, or `nse` is not given under a transformation.

        >>> sparse.bcoo_fromdense(jnp.array([0.0, 5.0])).indices
        Array([[1]], dtype=int32)
    """
    mat = jnp.asarray(mat)
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > mat.ndim:
        raise ValueError(
            f"fromdense: {n_batch=} and {n_dense=} must not be negative, nor more than the"
            f" {mat.ndim} axes of the array"
        )
    mask = mat != 0
    if n_dense:
        mask = jnp.any(mask, axis=tuple(range(mat.ndim - n_dense, mat.ndim)))
    if nse is None:
        nse = count_entries(mask.sum(tuple(range(n_batch, mask.ndim))))
    nse = operator.index(nse)
    shape = mask.shape[n_batch:]

    def one(mask: Array, mat: Array) -> tuple[Array, Array]:
        if not shape:
            found = jnp.zeros((nse, 0), index_dtype)
            data = jnp.where(jnp.arange(nse) == 0, 1, 0).reshape(-1, *[1] * n_dense)
            return mat[None] * data.astype(mat.dtype), found
        places = jnp.nonzero(mask, size=nse, fill_value=shape)
        found = jnp.stack([p.astype(index_dtype) for p in places], axis=-1)
        return _gathered(found, mat), found

    data, indices = over_batch(one, n_batch)(mask, mat)
    # Without sparse axes all entries are at the one place that there is.
    unique = bool(shape) or nse <= 1
    return make(data, indices, mat.shape, indices_sorted=True, unique_indices=unique)


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """The array with its axes in another order; batch, sparse and dense axes stay what they are.

    Args:
      permutation: the axes in their new order.

    Raises:
      NotImplementedError: an axis would change its kind.
      ValueError: the axes are not those of the array.

        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.bcoo_transpose(m, permutation=(1, 0)).todense()
        Array([[0., 3.],
               [2., 0.]], dtype=float32)
    """
    order = [operator.index(p) for p in permutation]
    if sorted(order) != list(range(mat.ndim)):
        raise ValueError(f"Invalid permutation {order} for shape {mat.shape}")
    b, s = mat.n_batch, mat.n_sparse
    batch, middle, dense = order[:b], [p - b for p in order[b : b + s]], order[b + s :]
    kinds = sorted(batch) == list(range(b)) and sorted(middle) == list(range(s))
    if not kinds:
        raise NotImplementedError(
            "bcoo_transpose: batch, sparse and dense dimensions cannot be exchanged, got"
            f" permutation={tuple(order)} for n_batch={b}, n_dense={mat.n_dense}; see"
            " update_layout"
        )
    indices = jnp.transpose(mat.indices, (*batch, b, b + 1))
    indices = indices[..., np.array(middle, int)] if s else indices
    data = jnp.transpose(mat.data, (*batch, b, *(p - s + 1 for p in dense)))
    moved = middle != list(range(s))
    return make(data, indices, tuple(mat.shape[p] for p in order),
                indices_sorted=mat.indices_sorted and not moved,
                unique_indices=mat.unique_indices)  # fmt: skip


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """The same array with its entries in order.

    >>> m = sparse.BCOO((jnp.array([1.0, 2.0]), jnp.array([[1], [0]])), shape=(2,))
    >>> sparse.bcoo_sort_indices(m).data
    Array([2., 1.], dtype=float32)
    """
    if mat.indices_sorted:
        return mat
    data, indices, b = mat.data, mat.indices, mat.n_batch
    if mat.n_sparse:
        order = over_batch(lambda x: jnp.lexsort(columns(x)[::-1]), b)(indices)
        indices = jnp.take_along_axis(indices, order[..., None], b)
        batch = jnp.broadcast_shapes(data.shape[:b], order.shape[:b])
        order = jnp.broadcast_to(order, (*batch, mat.nse))
        data = jnp.broadcast_to(data, (*batch, *data.shape[b:]))
        data = jnp.take_along_axis(data, order.reshape(*order.shape, *[1] * mat.n_dense), b)
    return make(data, indices, mat.shape, indices_sorted=True, unique_indices=mat.unique_indices)


def _distinct(indices: Array, shape: Shape) -> tuple[Array, Array]:
    """For each entry the number of its place among the distinct ones; how many there are."""
    n = indices.shape[0]
    indices = jnp.where(valid(indices, shape)[:, None], indices, ends(indices, shape))
    order = jnp.lexsort(columns(indices)[::-1]) if shape else jnp.arange(n)
    ordered = indices[order]
    new = jnp.any(ordered[1:] != ordered[:-1], axis=-1)
    group = jnp.cumsum(jnp.concatenate([jnp.zeros(min(n, 1), bool), new]))
    there = valid(ordered, shape)
    place = jnp.zeros(n, group.dtype).at[order].set(jnp.where(there, group, n))
    return place, jnp.max(jnp.where(there, group + 1, 0), initial=0)


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """The same array with one entry at each place, in order.

    Raises:
      ValueError: `nse` is not given under a transformation.

        >>> m = sparse.BCOO((jnp.array([1.0, 2.0]), jnp.array([[0], [0]])), shape=(2,))
        >>> sparse.bcoo_sum_duplicates(m).data
        Array([3.], dtype=float32)
    """
    data, indices = full_batch(mat)
    shape = sparse_shape(mat)
    place, count = over_batch(lambda i: _distinct(i, shape), mat.n_batch)(indices)
    if nse is None:
        nse = count_entries(count)
    size = operator.index(nse)

    def one(data: Array, indices: Array, place: Array) -> tuple[Array, Array]:
        total = jnp.zeros((size, *data.shape[1:]), data.dtype).at[place].add(data, mode="drop")
        end = np.broadcast_to(np.array(shape, np.int32), (size, len(shape)))
        found = jnp.asarray(end, indices.dtype).at[place].set(indices, mode="drop")
        return total, found

    data, indices = over_batch(one, mat.n_batch)(data, indices, place)
    return make(data, indices, mat.shape, indices_sorted=True, unique_indices=True)


def bcoo_update_layout(
    mat: BCOO,
    *,
    n_batch: int | None = None,
    n_dense: int | None = None,
    on_inefficient: str | None = "error",
) -> BCOO:
    """The same array with other axes batched, sparse or dense.

    Args:
      n_batch: leading axes that are batches; as they are by default.
      n_dense: trailing axes that are not sparse; as they are by default.
      on_inefficient: "error" or "warn" where each entry becomes a whole row, None for neither.

    Raises:
      ValueError: there are not so many axes.
      SparseEfficiencyError: a sparse axis would become a batch or dense one.

        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.bcoo_update_layout(m, n_batch=1, on_inefficient=None).n_batch
        1
    """
    n_batch = mat.n_batch if n_batch is None else n_batch
    n_dense = mat.n_dense if n_dense is None else n_dense
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > mat.ndim:
        raise ValueError(f"update_layout: invalid {n_batch=}, {n_dense=} for shape {mat.shape}")
    if on_inefficient not in ("error", "warn", None):
        raise ValueError(
            f"update_layout: on_inefficient={on_inefficient!r} must be 'error', 'warn' or None"
        )
    if n_batch > mat.n_batch or n_dense > mat.n_dense:
        text = (
            f"update_layout: from n_batch={mat.n_batch}, n_dense={mat.n_dense} to {n_batch=},"
            f" {n_dense=} each entry needs a row of its own"
        )
        if on_inefficient == "error":
            raise SparseEfficiencyError(f"{text}. Pass on_inefficient='warn' or None to allow it.")
        if on_inefficient == "warn":
            warnings.warn(text, SparseEfficiencyWarning, stacklevel=3)
    for _ in range(mat.n_batch - n_batch):
        mat = _last_batch_axis_sparse(mat)
    for _ in range(mat.n_dense - n_dense):
        mat = _first_dense_axis_sparse(mat)
    for _ in range(n_batch - mat.n_batch):
        mat = _first_sparse_axis_batched(mat)
    for _ in range(n_dense - mat.n_dense):
        mat = _last_sparse_axis_dense(mat)
    return mat


def _last_batch_axis_sparse(mat: BCOO) -> BCOO:
    data, indices = full_batch(mat)
    b = mat.n_batch - 1
    length = mat.shape[b]
    row = lax.broadcasted_iota(indices.dtype, (*indices.shape[:-1], 1), b)
    indices = jnp.concatenate([row, indices], axis=-1)
    merge = lambda x: x.reshape(*x.shape[:b], length * x.shape[b + 1], *x.shape[b + 2 :])
    return make(merge(data), merge(indices), mat.shape, unique_indices=mat.unique_indices,
                indices_sorted=mat.indices_sorted)  # fmt: skip


def _first_dense_axis_sparse(mat: BCOO) -> BCOO:
    data, indices = full_batch(mat)
    b = mat.n_batch
    length = data.shape[b + 1]
    indices = jnp.broadcast_to(
        indices[..., None, :], (*indices.shape[: b + 1], length, mat.n_sparse)
    )
    place = lax.broadcasted_iota(indices.dtype, (*indices.shape[:-1], 1), b + 1)
    indices = jnp.concatenate([indices, place], axis=-1)
    merge = lambda x: x.reshape(*x.shape[:b], x.shape[b] * length, *x.shape[b + 2 :])
    return make(merge(data), merge(indices), mat.shape, unique_indices=mat.unique_indices,
                indices_sorted=mat.indices_sorted)  # fmt: skip


def _first_sparse_axis_batched(mat: BCOO) -> BCOO:
    """Each row keeps all entries of which those of other rows are none."""
    data, indices = full_batch(mat)
    b, shape = mat.n_batch, sparse_shape(mat)
    own, rest = indices[..., 0], indices[..., 1:]
    length = shape[0]
    own = own[..., None, :]
    rows = jnp.arange(length, dtype=indices.dtype).reshape((1,) * b + (length, 1))
    here = own == rows
    rest = rest[..., None, :, :]
    kept = jnp.where(here[..., None], rest, ends(rest, shape[1:]))
    data = masked(jnp.broadcast_to(
        data[(slice(None),) * b + (None,)], (*data.shape[:b], length, *data.shape[b:])), here
    )  # fmt: skip
    return make(data, kept, mat.shape, unique_indices=mat.unique_indices)


def _last_sparse_axis_dense(mat: BCOO) -> BCOO:
    """Each entry becomes a row with one number."""
    data, indices = full_batch(mat)
    b, length = mat.n_batch, sparse_shape(mat)[-1]
    own, rest = indices[..., -1], indices[..., :-1]
    here = own[..., None] == jnp.arange(length, dtype=indices.dtype).reshape((1,) * (b + 1) + (-1,))
    wide = jnp.broadcast_to(
        data[(slice(None),) * (b + 1) + (None,)],
        (*data.shape[: b + 1], length, *data.shape[b + 1 :]),
    )
    return make(masked(wide, here), rest, mat.shape)
