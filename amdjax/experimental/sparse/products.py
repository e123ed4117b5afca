"""Products and sums of sparse arrays."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.experimental.sparse.base import JAXSparse, over_batch
from amdjax.experimental.sparse.bcoo import BCOO, full_batch, make
from amdjax.experimental.sparse.layout import (
    _gathered,
    bcoo_sum_duplicates,
    bcoo_todense,
    bcoo_update_layout,
    columns,
    ends,
    masked,
    sparse_shape,
    valid,
)
from amdjax.experimental.sparse.shapes import bcoo_broadcast_in_dim
from amdjax.numpy._util import canonical_axes, promote_dtypes

Dimensions = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


def _axes(dimension_numbers: Dimensions) -> tuple[list[int], list[int], list[int], list[int]]:
    (lc, rc), (lb, rb) = dimension_numbers
    lists = ([operator.index(d) for d in axes] for axes in (lc, rc, lb, rb))
    return tuple(lists)  # type: ignore[return-value]


def _check(lhs: Any, rhs: Any, lc: list[int], rc: list[int], lb: list[int], rb: list[int]) -> None:
    for what, left, right in (("contracting", lc, rc), ("batch", lb, rb)):
        if [lhs.shape[d] for d in left] != [rhs.shape[d] for d in right]:
            raise TypeError(
                f"dot_general requires {what} dimensions to have the same shape, got shapes"
                f" {lhs.shape} and {rhs.shape} along {left} and {right}"
            )


def bcoo_dot_general(
    lhs: Any, rhs: Any, *, dimension_numbers: Dimensions, precision: Any = None,
    preferred_element_type: Any = None, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """The product of two arrays of which one or both are sparse; see `lax.dot_general`.

    Each entry takes a row of the other operand, multiplies it and adds it to the result.

    Args:
      lhs: an array or a `BCOO`.
      rhs: an array or a `BCOO`.

    Returns:
      An array; a `BCOO` if both are sparse, with an entry for each pair of entries.

        >>> sparse.bcoo_dot_general(sparse.eye(2), jnp.ones(2), dimension_numbers=(((1,), (0,)),
        ...                         ((), ())))
        Array([1., 1.], dtype=float32)
    """
    lc, rc, lb, rb = _axes(dimension_numbers)
    _check(lhs, rhs, lc, rc, lb, rb)
    out: Any
    if isinstance(lhs, JAXSparse) and isinstance(rhs, JAXSparse):
        out = _sparse_sparse(lhs, rhs, lc, rc, lb, rb)
    elif isinstance(lhs, JAXSparse):
        out = _sparse_dense(lhs, jnp.asarray(rhs), lc, rc, lb, rb)
    elif isinstance(rhs, JAXSparse):
        out = _sparse_dense(rhs, jnp.asarray(lhs), rc, lc, rb, lb)
        # Batches, free axes of rhs, free axes of lhs: the last two change places.
        free = rhs.ndim - len(rc) - len(rb)
        b = len(lb)
        order = [*range(b), *range(b + free, out.ndim), *range(b, b + free)]
        out = jnp.transpose(out, order)
    else:
        return lax.dot_general(lhs, rhs, dimension_numbers, precision=precision,
                               preferred_element_type=preferred_element_type)  # fmt: skip
    return out if preferred_element_type is None else out.astype(preferred_element_type)


def _front(mat: BCOO, batch: list[int]) -> tuple[Array, Array, list[int]]:
    """Data and indices of a `BCOO` whose only batch axes are those of the product, in order.

    Returns:
      Both, with all batch axes in full, and the axes that the indices are of.
    """
    if sorted(batch) == list(range(len(batch))) and len(batch) <= mat.n_batch:
        mat = bcoo_update_layout(mat, n_batch=len(batch), n_dense=0)
    else:
        mat = bcoo_update_layout(mat, n_batch=0, n_dense=0)
        rest = [d for d in range(mat.ndim) if d not in batch]
        moved = make(mat.data, mat.indices[:, np.array([*batch, *rest], int)],
                     tuple(mat.shape[d] for d in (*batch, *rest)))  # fmt: skip
        split = bcoo_update_layout(moved, n_batch=len(batch), on_inefficient=None)
        data, indices = full_batch(split)
        return data, indices, rest
    data, indices = full_batch(mat)
    data, indices = (
        jnp.transpose(x, (*batch, *range(len(batch), x.ndim))) for x in (data, indices)
    )
    return data, indices, [d for d in range(mat.ndim) if d not in batch]


def _sparse_dense(
    lhs: Any, rhs: Array, lc: list[int], rc: list[int], lb: list[int], rb: list[int]
) -> Array:
    data, indices, axes = _front(lhs, lb)
    free_l = [d for d in axes if d not in lc]
    free_r = [d for d in range(rhs.ndim) if d not in (*rc, *rb)]
    rhs = jnp.transpose(rhs, (*rb, *rc, *free_r))
    data, rhs = promote_dtypes(data, rhs)
    shape = tuple(lhs.shape[d] for d in axes)
    contracted = np.array([axes.index(d) for d in lc], int)
    kept = np.array([axes.index(d) for d in free_l], int)
    out_shape = tuple(lhs.shape[d] for d in free_l)
    tail = rhs.ndim - len(rb) - len(rc)

    def one(data: Array, indices: Array, rhs: Array) -> Array:
        if contracted.size:
            rows = rhs.at[columns(indices[:, contracted])].get(mode="fill", fill_value=0)
        else:
            rows = jnp.broadcast_to(rhs, (data.shape[0], *rhs.shape))
        data = masked(data, valid(indices, shape))
        terms = data.reshape(-1, *[1] * tail) * rows
        if not kept.size:
            return lax.reduce_sum(terms, (0,))
        out = jnp.zeros((*out_shape, *terms.shape[1:]), terms.dtype)
        return out.at[columns(indices[:, kept])].add(terms, mode="drop")

    return over_batch(one, len(lb))(data, indices, rhs)


def _sparse_sparse(
    lhs: Any, rhs: Any, lc: list[int], rc: list[int], lb: list[int], rb: list[int]
) -> BCOO:
    """An entry for each pair of entries; those of different contracted indices are none."""
    l_data, l_indices, l_axes = _front(lhs, lb)
    r_data, r_indices, r_axes = _front(rhs, rb)
    l_data, r_data = promote_dtypes(l_data, r_data)
    place = lambda axes, wanted: np.array([axes.index(d) for d in wanted], int)
    l_free, r_free = ([d for d in axes if d not in c] for axes, c in ((l_axes, lc), (r_axes, rc)))
    shape = tuple([lhs.shape[d] for d in l_free] + [rhs.shape[d] for d in r_free])
    l_shape, r_shape = tuple(lhs.shape[d] for d in l_axes), tuple(rhs.shape[d] for d in r_axes)
    batch = tuple(lhs.shape[d] for d in lb)

    def one(l_data: Array, l: Array, r_data: Array, r: Array) -> tuple[Array, Array]:
        same = valid(l, l_shape)[:, None] & valid(r, r_shape)[None, :]
        for a, b in zip(place(l_axes, lc), place(r_axes, rc), strict=True):
            same &= l[:, a][:, None] == r[:, b][None, :]
        data = jnp.where(same, l_data[:, None] * r_data[None, :], 0).ravel()
        pairs = same.shape
        left = jnp.broadcast_to(l[:, None, place(l_axes, l_free)], (*pairs, len(l_free)))
        right = jnp.broadcast_to(r[None, :, place(r_axes, r_free)], (*pairs, len(r_free)))
        indices = jnp.concatenate([left, right.astype(left.dtype)], -1)
        indices = jnp.where(same[..., None], indices, ends(indices, shape))
        return data, indices.reshape(data.size, len(shape))

    data, indices = over_batch(one, len(lb))(l_data, l_indices, r_data, r_indices)
    out = make(data, indices, (*batch, *shape))
    most = math.prod(shape)
    return bcoo_sum_duplicates(out, most) if most < out.nse else out


def zero_data(indices: Any, arr: Any) -> Array:
    """Data of zeros for indices into an array."""
    dense = arr.shape[indices.ndim - 2 + indices.shape[-1] :]
    return jnp.zeros((*indices.shape[:-1], *dense), arr.dtype)


def bcoo_dot_general_sampled(
    A: Any, B: Any, indices: Array, *, dimension_numbers: Dimensions,
) -> Array:  # fmt: skip
    """The elements of a product at some places, without the others.

    Args:
      A: an array.
      B: an array.
      indices: the places, of shape `(*batch, entries, axes)`; the batch is that of the product.
      dimension_numbers: as for `lax.dot_general`.

    Returns:
      Numbers of shape `(*batch, entries)`.

    Raises:
      TypeError: the axes do not fit.

        >>> sparse.bcoo_dot_general_sampled(jnp.ones((2, 3)), jnp.ones((3, 2)),
        ...     jnp.array([[0, 1]]), dimension_numbers=(((1,), (0,)), ((), ())))
        Array([3.], dtype=float32)
    """
    A, B = promote_dtypes(jnp.asarray(A), jnp.asarray(B))
    lc, rc, lb, rb = _axes(dimension_numbers)
    _check(A, B, lc, rc, lb, rb)
    free_l = [d for d in range(A.ndim) if d not in (*lc, *lb)]
    free_r = [d for d in range(B.ndim) if d not in (*rc, *rb)]
    A, B = jnp.transpose(A, (*lb, *free_l, *lc)), jnp.transpose(B, (*rb, *free_r, *rc))
    n_batch, n_sparse = indices.ndim - 2, indices.shape[-1]
    if (n_batch, n_sparse) != (len(lb), len(free_l) + len(free_r)):
        # Some axes of the product are wanted whole.
        whole = lax.dot_general(
            A, B, ((_last(A, lc), _last(B, rc)), (range(len(lb)), range(len(rb))))
        )
        if n_batch + n_sparse > whole.ndim:
            raise TypeError(
                f"bcoo_dot_general_sampled: indices of shape {indices.shape} are for more axes "
                f"than the product has, {whole.shape}"
            )
        batch = whole.shape[:n_batch]
        indices = jnp.broadcast_to(indices, (*batch, *indices.shape[n_batch:]))
        return over_batch(_gathered, n_batch)(indices, whole)

    def one(a: Array, b: Array, places: Array) -> Array:
        n = len(free_l)
        take = lambda x, i: x.at[columns(i)].get(mode="fill", fill_value=0) if i.shape[1] else (
            jnp.broadcast_to(x, (i.shape[0], *x.shape)))  # fmt: skip
        rows = take(a, places[:, :n]) * take(b, places[:, n:])
        return lax.reduce_sum(rows, tuple(range(1, rows.ndim)))

    return over_batch(one, len(lb))(A, B, indices)


def _last(x: Array, axes: Sequence[int]) -> list[int]:
    return list(range(x.ndim - len(axes), x.ndim))


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """The sum over some axes.

    Args:
      axes: over which.

    Returns:
      A `BCOO` of the other axes.

        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.bcoo_reduce_sum(m, axes=[0]).todense()
        Array([3., 2.], dtype=float32)
    """
    over = canonical_axes(axes, mat.ndim)
    b, s = mat.n_batch, mat.n_sparse
    data, indices = full_batch(mat)
    there = valid(indices, sparse_shape(mat))
    data = masked(data, there)
    dense = tuple(d - s + 1 for d in over if d >= b + s)
    data = data.sum(dense) if dense else data
    kept = [i for i in range(s) if i + b not in over]
    indices = indices[..., np.array(kept, int)]
    end = ends(indices, tuple(sparse_shape(mat)[i] for i in kept))
    indices = jnp.where(there[..., None], indices, end)
    # Batch axes that are summed become entries.
    for d in sorted((d for d in over if d < b), reverse=True):
        data = jnp.moveaxis(data, d, b - 1)
        indices = jnp.moveaxis(indices, d, b - 1)
        data, indices = (
            x.reshape(*x.shape[: b - 1], x.shape[b - 1] * x.shape[b], *x.shape[b + 1 :])
            for x in (data, indices)
        )
        b -= 1
    return make(data, indices, tuple(n for d, n in enumerate(mat.shape) if d not in over))


def bcoo_multiply_dense(sp_mat: BCOO, v: Any) -> Array:
    """The data of the product with an array of the same shape, or one that stretches to it.

    Args:
      sp_mat: a `BCOO`.
      v: an array.

    Returns:
      Data for the indices of `sp_mat`.

    Raises:
      NotImplementedError: the array has more axes.

        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.bcoo_multiply_dense(m, jnp.array([1.0, 10.0]))
        Array([20.,  3.], dtype=float32)
    """
    v = jnp.asarray(v)
    if lax.broadcast_shapes(sp_mat.shape, v.shape) != sp_mat.shape:
        raise NotImplementedError(
            f"multiplication of {sp_mat.shape} with {v.shape}, which is larger"
        )
    b, s = sp_mat.n_batch, sp_mat.n_sparse
    v = v.reshape((1,) * (sp_mat.ndim - v.ndim) + v.shape)
    data, indices = full_batch(sp_mat)
    data, v = promote_dtypes(data, v)
    v = jnp.broadcast_to(v, (*sp_mat.shape[:b], *v.shape[b:]))

    def one(data: Array, indices: Array, v: Array) -> Array:
        if not s:
            return data * v[None]
        # Where the array stretches, all indices read its only row.
        rows = zip(columns(indices), sparse_shape(sp_mat), v.shape[:s], strict=True)
        places = tuple(c if n == m else jnp.where(c < n, 0, 1) for c, n, m in rows)
        return data * v.at[places].get(mode="fill", fill_value=0)

    return over_batch(one, b)(data, indices, v)


def _stretched(mat: BCOO, shape: tuple[int, ...]) -> BCOO:
    if mat.shape == shape:
        return mat
    axes = range(len(shape) - mat.ndim, len(shape))
    return bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=axes)


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The elementwise product of two sparse arrays of one shape.

    Args:
      lhs: a `BCOO`.
      rhs: a `BCOO` of the same shape.

    Returns:
      A `BCOO` with the indices of `lhs`, whose entries must not repeat unless those of `rhs` do
      not.

        >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.bcoo_multiply_sparse(m, m).data
        Array([4., 9.], dtype=float32)
    """
    if lhs.shape != rhs.shape:
        shape = lax.broadcast_shapes(lhs.shape, rhs.shape)
        lhs, rhs = (_stretched(x, shape) for x in (lhs, rhs))
    data = bcoo_multiply_dense(lhs, bcoo_todense(rhs))
    _, indices = full_batch(lhs)
    return make(data, indices, lhs.shape, indices_sorted=lhs.indices_sorted,
                unique_indices=lhs.unique_indices)  # fmt: skip
