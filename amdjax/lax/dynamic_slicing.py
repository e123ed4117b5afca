"""Rectangular pieces at positions known when running: read, and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray
from amdjax.core.dims import as_size, is_symbolic_dim
from amdjax.core.lowering import Element, Shaped
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    INT,
    as_ints,
    batch_to,
    canonical_axis,
    check_dtype,
    check_same_dtype,
    dtype_of,
    insert,
    instantiate_zeros,
    is_zero,
    shape_of,
    zero_tangent,
)
from amdjax.lax.comparison import lt
from amdjax.lax.elementwise import add
from amdjax.lax.filling import full
from amdjax.lax.gather import gather_p
from amdjax.lax.index_vectors import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from amdjax.lax.joining import concatenate
from amdjax.lax.scatter import scatter_p
from amdjax.lax.selection import select
from amdjax.lax.shape import expand_dims, squeeze
from amdjax.lax.slicing import index_in_dim
from amdjax.transforms.zero import is_undefined_primal

__all__ = [
    "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim", "dynamic_slice_p",
    "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim",
    "dynamic_update_slice_p",
]  # fmt: skip


def _start_indices(name, operand, indices, allow_negative) -> list[Any]:
    """`indices` as scalars of one dtype, with negative ones counted from the end."""
    shape = shape_of(operand)
    if not isinstance(indices, (list, tuple)):
        if isinstance(indices, (int, float, complex)):
            raise TypeError(f"{name} start_indices must be a sequence, got {indices!r}.")
        if np.ndim(indices) != 1:
            raise ValueError(
                f"{name} start_indices must be a sequence of scalars or an array of shape "
                f"({len(shape)},), got an array of shape {shape_of(indices)}."
            )
        count = shape_of(indices)[0]
        indices = [index_in_dim(indices, k, 0, False) for k in range(count)]
    if len(indices) != len(shape):
        raise ValueError(
            f"{name} start_indices must have one entry for each dimension of the operand, "
            f"got {len(indices)} for operand shape {shape}."
        )
    flags = [allow_negative] * len(shape) if isinstance(allow_negative, bool) else allow_negative
    # Python integers take the dtype of the arrays they stand beside.
    arrays = [i for i in indices if not isinstance(i, int)]
    dtype = dtype_of(arrays[0]) if arrays else np.dtype(np.int32)
    return [
        _start_index(name, i, size, flag, dtype) for i, size, flag in zip(indices, shape, flags)
    ]


def _start_index(name: str, index: Any, size: int, allow_negative: bool, dtype: Any) -> Any:
    if isinstance(index, (int, np.integer)):
        if index < 0 and not allow_negative:
            raise ValueError(
                f"{name}: index {index} is out of bounds for a dimension of size {size} "
                "with allow_negative_indices=False."
            )
        value = index + size if index < 0 else index
        kind = dtype if isinstance(index, int) else index.dtype
        return full((), value, kind) if is_symbolic_dim(value) else np.asarray(value, kind)
    kind = dtype_of(index)
    if not allow_negative or not dtypes.issubdtype(kind, np.signedinteger):
        return index
    wrapped = add(index, full((), size, kind))
    return select(lt(index, full((), 0, kind)), wrapped, index)


dynamic_slice_p = Primitive("dynamic_slice")


@dynamic_slice_p.def_abstract_eval
def _dynamic_slice_type(operand, *starts, slice_sizes):
    fits = [0 <= size <= total for size, total in zip(slice_sizes, operand.shape)]
    ranks_agree = len(slice_sizes) == len(operand.shape)
    if not (ranks_agree and all(fits)):
        raise (TypeError if ranks_agree else ValueError)(
            "dynamic_slice slice_sizes must lie between zero and the operand's shape, "
            f"got slice_sizes={slice_sizes} for operand shape {operand.shape}."
        )
    _check_starts("dynamic_slice", operand, starts)
    return ShapedArray(slice_sizes, operand.dtype, operand.weak_type)


def _check_starts(name, operand, starts) -> None:
    if len(starts) != len(operand.shape):
        raise ValueError(
            f"{name} needs one start index for each dimension of the operand, "
            f"got {len(starts)} for operand shape {operand.shape}."
        )
    if any(s.shape != () for s in starts):
        shapes = [s.shape for s in starts]
        raise TypeError(f"{name} start_indices must be scalars, got shapes {shapes}.")
    for start in starts:
        check_dtype(f"{name} start_indices", start.dtype, INT)
    if any(s.dtype != starts[0].dtype for s in starts[1:]):
        found = ", ".join(str(s.dtype) for s in starts)
        raise TypeError(
            f"index arguments to {name} must be integers of the same type, got {found}."
        )


@dynamic_slice_p.def_jvp
def _dynamic_slice_jvp(primals, tangents, *, slice_sizes):
    operand, *starts = primals
    out = dynamic_slice_p.bind(operand, *starts, slice_sizes=slice_sizes)
    t = tangents[0]
    if is_zero(t):
        return out, zero_tangent(out)
    return out, dynamic_slice_p.bind(t, *starts, slice_sizes=slice_sizes)


@dynamic_slice_p.def_transpose
def _dynamic_slice_transpose(ct, operand, *starts, slice_sizes):
    zeros = full(operand.aval.shape, 0, operand.aval.dtype)
    return [dynamic_update_slice_p.bind(zeros, ct, *starts)] + [None] * len(starts)


@dynamic_slice_p.def_batch
def _dynamic_slice_batch(axis, args, dims, *, slice_sizes):
    operand, *starts = args
    dim, *start_dims = dims
    if all(d is None for d in start_dims):
        # A common start needs no gather: the whole new axis is taken.
        zero = full((), 0, starts[0].dtype if starts else np.int32)
        out = dynamic_slice_p.bind(
            operand, *insert(starts, dim, zero), slice_sizes=insert(slice_sizes, dim, axis.size)
        )
        return out, dim
    axes = tuple(range(len(slice_sizes)))
    dnums = GatherDimensionNumbers(offset_dims=axes, collapsed_slice_dims=(), start_index_map=axes)
    indices = _stack_starts(axis, starts, start_dims)
    gather = gather_p.batch
    assert gather is not None
    return gather(
        axis, [operand, indices], [dim, 0], dimension_numbers=dnums, slice_sizes=slice_sizes,
        unique_indices=True, indices_are_sorted=True, mode=GatherScatterMode.CLIP, fill_value=None,
    )  # fmt: skip


def _stack_starts(axis, starts, dims) -> Any:
    """The batched start indices as one integer array of shape `(batch, n)`."""
    columns = [batch_to(s, d, axis.size) for s, d in zip(starts, dims)]
    return concatenate([expand_dims(c, (1,)) for c in columns], 1)


def _clamped_starts(b, shape, sizes, starts) -> list[Any]:
    return [
        b.clamp_index(b.as_index(b.read(s, [])), 0, total - size)
        for s, total, size in zip(starts, shape, sizes)
    ]


def _dynamic_slice_element(b, index, operand, *starts, slice_sizes):
    origin = _clamped_starts(b, operand.shape, slice_sizes, starts)
    return b.read(operand, [o + i for o, i in zip(origin, index)])


dynamic_slice_p.lowering = Element(_dynamic_slice_element)


def dynamic_slice(
    operand: Any,
    start_indices: Any,
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Any:
    """A slice of static size at a position known only when the program runs.

    The start is clamped so that the slice lies within the array.

    Args:
      operand: an array of rank n.
      slice_sizes: n Python integers, the shape of the result.
      allow_negative_indices: whether a negative start counts from the end; one flag, or n.

    Returns:
      An array of shape `slice_sizes` and `operand`'s dtype.

    Raises:
      TypeError: if sizes exceed the operand's or indices are no integers of one dtype.
      ValueError: if the number of indices is not the operand's rank.

        >>> lax.dynamic_slice(np.arange(5, dtype=np.int32), (4,), (3,)).tolist()
        [2, 3, 4]
    """
    starts = _start_indices("dynamic_slice", operand, start_indices, allow_negative_indices)
    sizes = as_ints(slice_sizes, "dynamic_slice slice_sizes")
    return dynamic_slice_p.bind(operand, *starts, slice_sizes=sizes)


def dynamic_slice_in_dim(
    operand: Any, start_index: Any, slice_size: int, axis: int = 0, *,
    allow_negative_indices: bool = True,
) -> Any:  # fmt: skip
    """`dynamic_slice` along one axis.

    Args:
      slice_size: the size of the result along `axis`.
      axis: the axis to slice.
      allow_negative_indices: whether a negative start counts from the end.

    Raises:
      TypeError: as `dynamic_slice`.

        >>> lax.dynamic_slice_in_dim(np.arange(5, dtype=np.int32), 1, 3).tolist()
        [1, 2, 3]
    """
    shape = shape_of(operand)
    axis = canonical_axis(axis, len(shape), "dynamic_slice_in_dim: axis")
    starts: list[Any] = [0] * len(shape)
    sizes = list(shape)
    starts[axis], sizes[axis] = start_index, as_size(slice_size)
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=allow_negative_indices)


def dynamic_index_in_dim(
    operand: Any, index: Any, axis: int = 0, keepdims: bool = True, *,
    allow_negative_indices: bool = True,
) -> Any:  # fmt: skip
    """The elements at a position along one axis, known only when the program runs.

    Args:
      axis: the axis to index.

    Raises:
      TypeError: as `dynamic_slice`.

        >>> int(lax.dynamic_index_in_dim(np.arange(5, dtype=np.int32), -2, keepdims=False))
        3
    """
    out = dynamic_slice_in_dim(
        operand, index, 1, axis, allow_negative_indices=allow_negative_indices
    )
    return out if keepdims else squeeze(out, (axis,))


dynamic_update_slice_p = Primitive("dynamic_update_slice")


@dynamic_update_slice_p.def_abstract_eval
def _dynamic_update_slice_type(operand, update, *starts):
    if len(operand.shape) != len(update.shape) or not all(
        part <= total for part, total in zip(update.shape, operand.shape)
    ):
        raise TypeError(
            "dynamic_update_slice update must have the operand's rank and be nowhere larger, "
            f"got update shape {update.shape} for operand shape {operand.shape}."
        )
    check_same_dtype("dynamic_update_slice", operand, update)
    _check_starts("dynamic_update_slice", operand, starts)
    return ShapedArray(operand.shape, operand.dtype, operand.weak_type and update.weak_type)


@dynamic_update_slice_p.def_jvp
def _dynamic_update_slice_jvp(primals, tangents):
    operand, update, *starts = primals
    out = dynamic_update_slice_p.bind(operand, update, *starts)
    if all(is_zero(t) for t in tangents[:2]):
        return out, zero_tangent(out)
    changes = [instantiate_zeros(t) for t in tangents[:2]]
    return out, dynamic_update_slice_p.bind(*changes, *starts)


@dynamic_update_slice_p.def_transpose
def _dynamic_update_slice_transpose(ct, operand, update, *starts):
    operand_ct = update_ct = None
    shape = update.aval.shape if is_undefined_primal(update) else shape_of(update)
    if is_undefined_primal(operand):
        hole = full(shape, 0, ct.dtype)
        operand_ct = dynamic_update_slice_p.bind(ct, hole, *starts)
    if is_undefined_primal(update):
        update_ct = dynamic_slice_p.bind(ct, *starts, slice_sizes=shape)
    return [operand_ct, update_ct] + [None] * len(starts)


@dynamic_update_slice_p.def_batch
def _dynamic_update_slice_batch(axis, args, dims):
    operand, update, *starts = args
    operand_dim, update_dim, *start_dims = dims
    operand = batch_to(operand, operand_dim, axis.size)
    update = batch_to(update, update_dim, axis.size)
    if all(d is None for d in start_dims):
        zero = full((), 0, starts[0].dtype if starts else np.int32)
        return dynamic_update_slice_p.bind(operand, update, zero, *starts), 0
    axes = tuple(range(len(starts)))
    dnums = ScatterDimensionNumbers(
        update_window_dims=axes, inserted_window_dims=(), scatter_dims_to_operand_dims=axes
    )
    scatter = scatter_p.batch
    assert scatter is not None
    return scatter(
        axis, [operand, _stack_starts(axis, starts, start_dims), update], [0, 0, 0],
        update_jaxpr=None, update_consts=(), dimension_numbers=dnums, indices_are_sorted=True,
        unique_indices=True, mode=GatherScatterMode.CLIP,
    )  # fmt: skip


dynamic_update_slice_p.lowering = Shaped("dynamic_update_slice", in_place=True)


def dynamic_update_slice(
    operand: Any,
    update: Any,
    start_indices: Any,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Any:
    """`operand` with `update` written at a position known only when the program runs.

    The start is clamped so that the update lies within the array. The compiler writes in place
    where nothing else still needs the operand.

    Args:
      operand: an array of rank n.
      update: an array of rank n and the operand's dtype, nowhere larger than it.
      allow_negative_indices: whether a negative start counts from the end; one flag, or n.

    Raises:
      TypeError: if ranks, dtypes or sizes do not fit.
      ValueError: if the number of indices is not the operand's rank.

        >>> x, y = np.zeros(5, np.float32), np.ones(2, np.float32)
        >>> lax.dynamic_update_slice(x, y, (1,)).tolist()
        [0.0, 1.0, 1.0, 0.0, 0.0]
    """
    name = "dynamic_update_slice"
    starts = _start_indices(name, operand, start_indices, allow_negative_indices)
    return dynamic_update_slice_p.bind(operand, update, *starts)


def dynamic_update_slice_in_dim(
    operand: Any, update: Any, start_index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Any:
    """`dynamic_update_slice` along one axis.

    Args:
      update: an array that agrees with the operand in all axes but `axis`.
      axis: the axis along which the update is placed.
      allow_negative_indices: whether a negative start counts from the end.

        >>> x, y = np.zeros(4, np.float32), np.ones(2, np.float32)
        >>> lax.dynamic_update_slice_in_dim(x, y, 2, axis=0).tolist()
        [0.0, 0.0, 1.0, 1.0]
    """
    rank = np.ndim(operand)
    starts: list[Any] = [0] * rank
    starts[canonical_axis(axis, rank, "dynamic_update_slice_in_dim: axis")] = start_index
    return dynamic_update_slice(
        operand, update, starts, allow_negative_indices=allow_negative_indices
    )


def dynamic_update_index_in_dim(
    operand: Any, update: Any, index: Any, axis: int, *, allow_negative_indices: bool = True
) -> Any:
    """`operand` with the elements at one position of an axis replaced.

    Args:
      update: an array of the operand's shape without `axis`, or with size 1 there.
      axis: the axis to index.

        >>> lax.dynamic_update_index_in_dim(np.zeros(3, np.float32), np.float32(7), 1, 0).tolist()
        [0.0, 7.0, 0.0]
    """
    rank = np.ndim(operand)
    axis = canonical_axis(axis, rank, "dynamic_update_index_in_dim: axis")
    if np.ndim(update) == rank - 1:
        update = expand_dims(update, (axis,))
    return dynamic_update_slice_in_dim(
        operand, update, index, axis, allow_negative_indices=allow_negative_indices
    )
