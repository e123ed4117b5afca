"""Parts and turns of sparse arrays: reversed, squeezed, dynamic windows, gathers, convolutions."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.experimental.sparse.base import over_batch
from amdjax.experimental.sparse.bcoo import BCOO, full_batch, make
from amdjax.experimental.sparse.layout import (
    bcoo_sum_duplicates,
    bcoo_transpose,
    bcoo_update_layout,
    masked,
    sparse_shape,
    valid,
)
from amdjax.numpy._util import canonical_axes, promote_dtypes


def _with_columns(mat: BCOO, columns: Sequence[Any], keep: Array) -> Array:
    """Indices of these columns; entries that are not kept are none."""
    _, indices = full_batch(mat)
    if not columns:
        return indices[..., :0]
    return jnp.stack([jnp.where(keep, c, n).astype(indices.dtype) for c, n in columns], -1)


def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """The array with some axes reversed.

    >>> sparse.bcoo_rev(sparse.BCOO.fromdense(jnp.arange(3)), dimensions=[0]).todense()
    Array([2, 1, 0], dtype=int32)
    """
    axes = canonical_axes(dimensions, operand.ndim)
    b, s = operand.n_batch, operand.n_sparse
    data, indices = full_batch(operand)
    batch = tuple(d for d in axes if d < b)
    data = lax.rev(data, (*batch, *(d - s + 1 for d in axes if d >= b + s)))
    indices = lax.rev(indices, batch)
    shape = sparse_shape(operand)
    there = valid(indices, shape)
    flipped = [
        (n - 1 - indices[..., i] if i + b in axes else indices[..., i], n)
        for i, n in enumerate(shape)
    ]
    indices = _with_columns(make(data, indices, operand.shape), flipped, there)
    turned = any(b <= d < b + s for d in axes)
    return make(data, indices, operand.shape, unique_indices=operand.unique_indices,
                indices_sorted=operand.indices_sorted and not turned)  # fmt: skip


def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """The array without some axes of length one.

    Args:
      arr: a `BCOO`.

    Raises:
      ValueError: an axis is longer.

        >>> sparse.bcoo_squeeze(sparse.empty((1, 3)), dimensions=[0]).shape
        (3,)
    """
    axes = canonical_axes(dimensions, arr.ndim)
    if any(arr.shape[d] != 1 for d in axes):
        raise ValueError(f"bcoo_squeeze: axes {axes} of shape {arr.shape} must have length one")
    b, s = arr.n_batch, arr.n_sparse
    batch = tuple(d for d in axes if d < b)
    data = lax.squeeze(arr.data, (*batch, *(d - s + 1 for d in axes if d >= b + s)))
    kept = [i for i in range(s) if i + b not in axes]
    indices = lax.squeeze(arr.indices, batch)
    # An entry beyond the end of an axis that goes must stay one that is none.
    gone = [i for i in range(s) if i + b in axes]
    if gone:
        there = (indices[..., np.array(gone, int)] < 1).all(-1)
        data = masked(jnp.broadcast_to(data, (*there.shape, *data.shape[there.ndim :])), there)
    indices = indices[..., np.array(kept, int)]
    shape = tuple(n for d, n in enumerate(arr.shape) if d not in axes)
    return make(data, indices, shape, indices_sorted=arr.indices_sorted,
                unique_indices=arr.unique_indices)  # fmt: skip


def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """A window whose start may be traced; see `lax.dynamic_slice`.

    Args:
      start_indices: where it begins on each axis; moved so that the window lies within.
      slice_sizes: its shape.

    Returns:
      A `BCOO` with as many entries, but no more than the window has elements.

    Raises:
      TypeError: the window is larger than the array.

        >>> x = sparse.BCOO.fromdense(jnp.arange(3.0))
        >>> sparse.bcoo_dynamic_slice(x, [1], [2]).todense()
        Array([1., 2.], dtype=float32)
    """
    sizes = tuple(operator.index(n) for n in slice_sizes)
    if any(not 0 <= size <= n for size, n in zip(sizes, mat.shape, strict=True)):
        raise TypeError(
            "slice_sizes must be less than or equal to operand shape, got slice_sizes "
            f"{sizes} for operand shape {mat.shape}"
        )
    b, s = mat.n_batch, mat.n_sparse
    # Negative starts count from the end, as they do in lax; then the window is moved inside.
    starts = []
    for start, n, size in zip(start_indices, mat.shape, sizes, strict=True):
        start = jnp.asarray(start)
        starts.append(jnp.clip(jnp.where(start < 0, start + n, start), 0, n - size))
    data, indices = full_batch(mat)
    zero = jnp.zeros((), starts[0].dtype) if starts else jnp.zeros((), np.int32)
    data = lax.dynamic_slice(data, [*starts[:b], zero, *starts[b + s :]],
                             [*sizes[:b], data.shape[b], *sizes[b + s :]])  # fmt: skip
    indices = lax.dynamic_slice(indices, [*starts[:b], zero, zero],
                                [*sizes[:b], *indices.shape[b:]])  # fmt: skip
    columns, keep = [], jnp.ones(indices.shape[:-1], bool)
    for i in range(s):
        offset = indices[..., i] - starts[b + i].astype(indices.dtype)
        keep &= (offset >= 0) & (offset < sizes[b + i])
        columns.append((offset, sizes[b + i]))
    shape = sizes
    window = make(data, indices, (*sizes[:b], *mat.shape[b : b + s], *sizes[b + s :]))
    indices = _with_columns(window, columns, keep)
    found = make(masked(data, keep), indices, shape, unique_indices=mat.unique_indices,
                 indices_sorted=False)  # fmt: skip
    most = math.prod(sizes[b : b + s])
    return bcoo_sum_duplicates(found, most) if most < mat.nse else found


def bcoo_gather(
    operand: BCOO, start_indices: Array, dimension_numbers: Any, slice_sizes: Sequence[int], *,
    unique_indices: bool = False, indices_are_sorted: bool = False, mode: Any = None,
    fill_value: Any = None,
) -> BCOO:  # fmt: skip
    """Windows of a sparse array, of which the axes of `start_indices` become batches.

    Args:
      start_indices: see `lax.gather`.
      dimension_numbers: see `lax.gather`.
      slice_sizes: the shape of a window.
      unique_indices: accepted.
      indices_are_sorted: accepted.
      mode: accepted; windows are moved so that they lie within.
      fill_value: must be None.

    Raises:
      NotImplementedError: axes are batched with the indices.

        >>> x = sparse.BCOO.fromdense(jnp.arange(3.0))
        >>> numbers = amdjax.lax.GatherDimensionNumbers((1,), (), (0,))
        >>> sparse.bcoo_gather(x, jnp.array([[1], [0]]), numbers, [2]).todense()
        Array([[1., 2.],
               [0., 1.]], dtype=float32)
    """
    numbers = dimension_numbers
    start_indices = jnp.asarray(start_indices)
    batch = start_indices.ndim - 1
    if fill_value is not None or numbers.operand_batching_dims:
        raise NotImplementedError("bcoo_gather: fill_value and operand_batching_dims")

    def window(start: Array) -> BCOO:
        starts = [jnp.zeros((), start.dtype)] * operand.ndim
        for i, d in enumerate(numbers.start_index_map):
            starts[d] = start[i]
        part = bcoo_dynamic_slice(operand, starts, slice_sizes)
        return bcoo_squeeze(part, dimensions=numbers.collapsed_slice_dims)

    found = over_batch(window, batch)(start_indices)
    # The axes of windows lie last; they go where they are wanted.
    others = [d for d in range(found.ndim) if d not in numbers.offset_dims]
    return found.transpose(np.argsort([*others, *numbers.offset_dims]))


def bcoo_conv_general_dilated(
    lhs: Any, rhs: Any, *, window_strides: Sequence[int], padding: Any,
    lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None, feature_group_count: int = 1, batch_group_count: int = 1,
    precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None,
) -> BCOO:  # fmt: skip
    """The convolution of two sequences of which one at least is sparse.

    Args:
      lhs: an array or `BCOO` of shape `(1, 1, n)`.
      rhs: the kernel, an array or `BCOO` of shape `(1, 1, k)`.
      window_strides: must be ones.
      padding: pairs of elements, or "SAME" or "VALID".
      lhs_dilation: must be ones.
      rhs_dilation: must be ones.
      dimension_numbers: must be those of `(batch, features, space)`.
      feature_group_count: must be 1.
      batch_group_count: must be 1.

    Returns:
      A `BCOO` of shape `(1, 1, positions)` with two batch axes, and an entry for each pair of an
      entry and an element of the kernel.

    Raises:
      NotImplementedError: anything else.

        >>> x = sparse.BCOO.fromdense(jnp.arange(3.0).reshape(1, 1, 3))
        >>> sparse.bcoo_conv_general_dilated(x, jnp.ones((1, 1, 2)), window_strides=(1,),
        ...     padding="VALID").todense()
        Array([[[1., 3.]]], dtype=float32)
    """
    ones = [window_strides, lhs_dilation or [1], rhs_dilation or [1]]
    if any(any(n != 1 for n in values) for values in ones):
        raise NotImplementedError("bcoo convolution with strides or dilations.")
    if feature_group_count != 1 or batch_group_count != 1:
        raise NotImplementedError("bcoo convolution with groups.")
    numbers = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    plain = all(tuple(spec) == (0, 1, 2) for spec in numbers)
    if lhs.ndim != 3 or lhs.shape[:2] != (1, 1) or rhs.shape[:2] != (1, 1) or not plain:
        raise NotImplementedError(
            f"bcoo convolution of shapes {lhs.shape} and {rhs.shape}: both must be (1, 1, length)"
        )
    n, k = lhs.shape[2], rhs.shape[2]
    if isinstance(padding, str):
        padding = lax.padtype_to_pads((n,), (k,), (1,), padding)
    ((low, high),) = padding
    positions = max(n + low + high - k + 1, 0)
    (data, at, there), (kernel, k_at, k_there) = (_sequence(x) for x in (lhs, rhs))
    data, kernel = promote_dtypes(data, kernel)
    place = jnp.expand_dims(at, 1) + low - jnp.expand_dims(k_at.astype(at.dtype), 0)
    both = jnp.expand_dims(there, 1) & jnp.expand_dims(k_there, 0)
    keep = both & (place >= 0) & (place < positions)
    terms = jnp.expand_dims(data, 1) * jnp.expand_dims(kernel, 0)
    terms = masked(terms, keep).reshape(1, 1, -1).astype(preferred_element_type or terms.dtype)
    indices = jnp.where(keep, place, positions).reshape(1, 1, -1, 1)
    return make(terms, indices, (1, 1, positions))


def _sequence(x: Any) -> tuple[Array, Array, Array]:
    """The data of a sequence of shape (1, 1, n), where they are, and which are entries."""
    if not isinstance(x, BCOO):
        x = jnp.asarray(x)
        return x[0, 0], jnp.arange(x.shape[2], dtype=np.int32), jnp.ones(x.shape[2], bool)
    x = bcoo_update_layout(x, n_batch=2, n_dense=0, on_inefficient=None)
    data, indices = full_batch(x)
    return data[0, 0], indices[0, 0, :, 0], valid(indices, sparse_shape(x))[0, 0]


__all__ = [
    "bcoo_conv_general_dilated", "bcoo_dynamic_slice", "bcoo_gather", "bcoo_rev", "bcoo_squeeze",
    "bcoo_transpose",
]  # fmt: skip
