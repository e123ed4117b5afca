"""Gather: many slices of one shape, read at positions that an array holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray
from amdjax.core.dims import min_dim
from amdjax.core.lowering import Element
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    INT,
    as_ints,
    check_dtype,
    dtype_of,
    is_zero,
    move_axis,
    shape_of,
    zero_tangent,
)
from amdjax.lax.comparison import lt
from amdjax.lax.elementwise import add, rem
from amdjax.lax.filling import full, full_like
from amdjax.lax.index_vectors import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    check_batching_dims,
    check_dims,
    check_index_vectors,
    shifted_dims,
    with_tuples,
)
from amdjax.lax.joining import concatenate
from amdjax.lax.selection import select
from amdjax.lax.shape import expand_dims
from amdjax.transforms import ops

__all__ = [
    "gather", "gather_p", "index_take",
]  # fmt: skip


def _default_fill(dtype) -> Any:
    if isinstance(dtype, dtypes.ExtendedDType):
        return _default_fill(dtype.element_dtype)
    if dtypes.issubdtype(dtype, np.inexact):
        return np.nan
    if dtypes.issubdtype(dtype, np.signedinteger):
        return int(dtypes.iinfo(dtype).min)
    if dtypes.issubdtype(dtype, np.unsignedinteger):
        return int(dtypes.iinfo(dtype).max)
    return True


gather_p = Primitive("gather")


@gather_p.def_abstract_eval
def _gather_type(
    operand, indices, *, dimension_numbers, slice_sizes, unique_indices, indices_are_sorted, mode,
    fill_value,
):  # fmt: skip
    dn = dimension_numbers
    check_dtype("gather start_indices", indices.dtype, INT)
    batch_rank = len(indices.shape) - 1
    rank = len(operand.shape)
    result_rank = batch_rank + len(dn.offset_dims)
    check_dims("gather", "offset_dims", dn.offset_dims, result_rank)
    check_index_vectors("gather", "start_index_map", indices, dn.start_index_map)
    check_dims("gather", "start_index_map", dn.start_index_map, rank, ascending=False)
    check_dims("gather", "collapsed_slice_dims", dn.collapsed_slice_dims, rank)
    check_batching_dims(
        "gather",
        operand,
        indices,
        dn.operand_batching_dims,
        dn.start_indices_batching_dims,
        "start_indices_batching_dims",
        taken=(
            ("collapsed_slice_dims", dn.collapsed_slice_dims),
            ("start_index_map", dn.start_index_map),
        ),
    )
    _check_slice_sizes(operand, indices, dn, slice_sizes)
    left_out = (*dn.collapsed_slice_dims, *dn.operand_batching_dims)
    window = [size for d, size in enumerate(slice_sizes) if d not in left_out]
    batch = list(indices.shape[:-1])
    shape = tuple(
        window.pop(0) if d in dn.offset_dims else batch.pop(0) for d in range(result_rank)
    )
    return ShapedArray(shape, operand.dtype, operand.weak_type)


def _check_slice_sizes(operand, indices, dn, slice_sizes) -> None:
    rank = len(operand.shape)
    if len(slice_sizes) != rank:
        raise TypeError(
            "Gather op must have one slice size for every input dimension, got "
            f"slice_sizes={slice_sizes} for operand shape {operand.shape}."
        )
    if rank != len(dn.offset_dims) + len(dn.collapsed_slice_dims) + len(dn.operand_batching_dims):
        raise TypeError(
            "All components of the offset index in a gather op must either be a offset dimension "
            f"or explicitly collapsed/batching, got {dn} for operand shape {operand.shape}."
        )
    empty = 0 in indices.shape
    for d, (size, extent) in enumerate(zip(slice_sizes, operand.shape)):
        if not empty and not 0 <= size <= extent:
            raise TypeError(
                f"Slice size at index {d} in gather op is out of range, must be in "
                f"[0, {extent}], got {size}."
            )
    for dims, most, what in (
        (dn.collapsed_slice_dims, "1", "collapse slice dims"),
        (dn.operand_batching_dims, "0/1", "have operand batching dims"),
    ):
        for position, d in enumerate(dims):
            if slice_sizes[d] > 1 or (most == "1" and slice_sizes[d] != 1):
                raise TypeError(
                    f"Gather op can only {what} with bound {most}, but bound is {slice_sizes[d]} "
                    f"for index {d} at position {position}."
                )


@gather_p.def_jvp
def _gather_jvp(primals, tangents, *, fill_value, **params):
    operand, indices = primals
    out = gather_p.bind(operand, indices, fill_value=fill_value, **params)
    t = tangents[0]
    if is_zero(t):
        return out, zero_tangent(out)
    # What is read outside is constant.
    fill = None if fill_value is None else 0
    return out, gather_p.bind(t, indices, fill_value=fill, **params)


@gather_p.def_transpose
def _gather_transpose(
    ct, operand, indices, *, dimension_numbers, slice_sizes, unique_indices, indices_are_sorted,
    mode, fill_value,
):  # fmt: skip
    dn = dimension_numbers
    scatter_dnums = ScatterDimensionNumbers(
        update_window_dims=dn.offset_dims,
        inserted_window_dims=dn.collapsed_slice_dims,
        scatter_dims_to_operand_dims=dn.start_index_map,
        operand_batching_dims=dn.operand_batching_dims,
        scatter_indices_batching_dims=dn.start_indices_batching_dims,
    )
    zeros = full(operand.aval.shape, 0, ct.dtype)
    out = ops.scatter_add(
        zeros, indices, ct, scatter_dnums, indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices, mode=mode,
    )  # fmt: skip
    return [out, None]


@gather_p.def_batch
def _gather_batch(
    axis, args, dims, *, dimension_numbers, slice_sizes, unique_indices, indices_are_sorted, **rest
):
    operand, indices = args
    operand_dim, indices_dim = dims
    dn = dimension_numbers
    offset_dims = shifted_dims(dn.offset_dims)
    if operand_dim is not None:
        operand = move_axis(operand, operand_dim, 0)
        dn = dn._replace(
            collapsed_slice_dims=shifted_dims(dn.collapsed_slice_dims),
            start_index_map=shifted_dims(dn.start_index_map),
            operand_batching_dims=shifted_dims(dn.operand_batching_dims),
        )
    if indices_dim is None:
        # The batch is one more dimension within a slice.
        offset_dims = (0, *offset_dims)
        slice_sizes = (axis.size, *slice_sizes)
    else:
        indices = move_axis(indices, indices_dim, 0)
        dn = dn._replace(start_indices_batching_dims=shifted_dims(dn.start_indices_batching_dims))
        if operand_dim is None:
            unique_indices = indices_are_sorted = False
        else:
            slice_sizes = (min_dim(axis.size, 1), *slice_sizes)
            dn = dn._replace(
                operand_batching_dims=(0, *dn.operand_batching_dims),
                start_indices_batching_dims=(0, *dn.start_indices_batching_dims),
            )
    out = gather_p.bind(
        operand, indices, dimension_numbers=dn._replace(offset_dims=offset_dims),
        slice_sizes=slice_sizes, unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted, **rest,
    )  # fmt: skip
    return out, 0


def _gather_element(
    b, index, operand, indices, *, dimension_numbers, slice_sizes, mode, fill_value, **_
):
    dn = dimension_numbers
    batch = [i for d, i in enumerate(index) if d not in dn.offset_dims]
    within = iter([index[d] for d in dn.offset_dims])
    left_out = (*dn.collapsed_slice_dims, *dn.operand_batching_dims)
    position = [0 if d in left_out else next(within) for d in range(len(slice_sizes))]
    for d, i in zip(dn.operand_batching_dims, dn.start_indices_batching_dims):
        position[d] = batch[i]
    inside = []
    for k, d in enumerate(dn.start_index_map):
        start = b.as_index(b.read(indices, [*batch, k]))
        room = operand.shape[d] - slice_sizes[d]
        if mode is GatherScatterMode.FILL_OR_DROP:
            inside.append(b.in_bounds(start, room + 1))
        else:
            # Also under a promise: a broken one then reads a wrong element, not foreign memory.
            start = b.clamp_index(start, 0, room)
        position[d] = start + position[d]
    if not inside:
        return b.read(operand, position)
    fill = b.const(fill_value, operand.dtype)
    return b.read_if(b.all_of(*inside), operand, position, fill)


gather_p.lowering = Element(_gather_element, cost=2.0)


def gather(
    operand: Any, start_indices: Any, dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int], *, unique_indices: bool = False, indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None, fill_value: Any = None,
) -> Any:  # fmt: skip
    """Slices of `operand`, one for each index vector in `start_indices`.

    Args:
      start_indices: integers of shape `(*batch, k)`: an array of index vectors of length k.
      dimension_numbers: how operand, indices and result fit together.
      slice_sizes: the shape of a slice, one entry for each dimension of the operand.
      unique_indices: a promise that no element is read twice; the transpose profits.
      mode: what is read where a slice leaves the operand; see `GatherScatterMode`. `None` means
        "promise_in_bounds": a slice outside yields unspecified elements of the operand.
      fill_value: what mode "fill" reads outside. The default is NaN, the lowest value of a signed
        and the highest of an unsigned dtype, or True.

    Returns:
      An array of `operand`'s dtype; its `offset_dims` run within a slice, the others over `batch`.

    Raises:
      TypeError: if indices are no integers or the dimension numbers do not fit the shapes.

    Source: the Gather operation of StableHLO.

        >>> x = np.arange(12, dtype=np.int32).reshape(4, 3)
        >>> dnums = lax.GatherDimensionNumbers((1,), (0,), (0,))
        >>> lax.gather(x, np.array([[3], [0]], np.int32), dnums, (1, 3)).tolist()
        [[9, 10, 11], [0, 1, 2]]
    """
    mode = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else mode
    mode = GatherScatterMode.from_any(mode)
    if mode is GatherScatterMode.ONE_HOT:
        mode, fill_value = GatherScatterMode.FILL_OR_DROP, 0
    if mode is not GatherScatterMode.FILL_OR_DROP:
        fill_value = None
    elif fill_value is None:
        fill_value = _default_fill(dtype_of(operand))
    return gather_p.bind(
        operand, start_indices, dimension_numbers=with_tuples(dimension_numbers),
        slice_sizes=as_ints(slice_sizes, "gather slice_sizes"), unique_indices=bool(unique_indices),
        indices_are_sorted=bool(indices_are_sorted), mode=mode, fill_value=fill_value,
    )  # fmt: skip


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Any:
    """The elements of `src` at positions given along several axes, the others kept whole.

    Args:
      src: an array.
      idxs: for each entry of `axes`, integers of shape `(n,)`, taken modulo the axis's size.
      axes: axes of `src`.

    Returns:
      An array of shape `(n, *rest)` with the axes not in `axes` as `rest`.

    Raises:
      TypeError: if indices are no integers.

        >>> x = np.arange(6, dtype=np.int32).reshape(2, 3)
        >>> i = np.array([1, 0], np.int32)
        >>> lax.index_take(x, (i, i), (0, 1)).tolist()
        [4, 0]
    """
    shape = shape_of(src)
    columns = [expand_dims(_floor_mod(i, shape[axis]), (1,)) for i, axis in zip(idxs, axes)]
    indices = concatenate(columns, 1)
    sizes = tuple(1 if d in axes else n for d, n in enumerate(shape))
    dnums = GatherDimensionNumbers(
        offset_dims=tuple(range(1, len(shape) - len(axes) + 1)),
        collapsed_slice_dims=tuple(axes),
        start_index_map=tuple(axes),
    )
    return gather(src, indices, dnums, sizes)


def _floor_mod(i: Any, size: int) -> Any:
    """`i % size` with the sign of `size`, as negative indices want it."""
    dtype = dtype_of(i)
    divisor = full(shape_of(i), size, dtype)
    rest = rem(i, divisor)
    if not dtypes.issubdtype(dtype, np.signedinteger):
        return rest
    return select(lt(rest, full_like(rest, 0)), add(rest, divisor), rest)


def take_along(x: Any, positions: Any, axis: int) -> Any:
    """`x` at `positions` along `axis`, the other axes running alike; all positions valid."""
    rank = len(shape_of(x))
    others = tuple(d for d in range(rank) if d != axis)
    dnums = GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    return gather(
        x,
        expand_dims(positions, (rank,)),
        dnums,
        tuple(1 if d == axis else min_dim(n, 1) for d, n in enumerate(shape_of(x))),
        unique_indices=True,
        mode=GatherScatterMode.PROMISE_IN_BOUNDS,
    )
