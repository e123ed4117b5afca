"""Rectangular pieces at positions known when tracing, and padding, their transpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray
from amdjax.core.dims import as_size, max_dim
from amdjax.core.integers import ceil_div
from amdjax.core.lowering import Element
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    LINEAR,
    Zero,
    as_axes,
    as_ints,
    batch_to,
    canonical_axis,
    insert,
    is_zero,
    joint_linear_jvp,
    jvp_from,
    scalar,
    shape_of,
)
from amdjax.lax.elementwise import sub
from amdjax.lax.filling import full
from amdjax.lax.padding import dilated
from amdjax.lax.selection import select
from amdjax.lax.shape import broadcast, broadcast_in_dim, squeeze
from amdjax.transforms import ops
from amdjax.transforms.zero import is_undefined_primal
from amdjax.typing import ArrayLike

__all__ = [
    "index_in_dim", "pad", "pad_p", "slice", "slice_in_dim", "slice_p",
]  # fmt: skip


slice_p = Primitive("slice")


@slice_p.def_abstract_eval
def _slice_type(operand, *, start_indices, limit_indices, strides):
    shape = operand.shape
    steps = (1,) * len(shape) if strides is None else strides
    given = (("start_indices", start_indices), ("limit_indices", limit_indices), ("strides", steps))
    for name, values in given:
        if len(values) != len(shape):
            raise TypeError(
                f"slice {name} must have one entry for each dimension of the operand, "
                f"got {name}={values} for operand shape {shape}."
            )
    for start, limit, size in zip(start_indices, limit_indices, shape):
        if not 0 <= start <= limit <= size:
            raise TypeError(
                "slice bounds must satisfy 0 <= start <= limit <= size, got "
                f"start_indices={start_indices} and limit_indices={limit_indices} "
                f"for operand shape {shape}."
            )
    if any(step <= 0 for step in steps):
        raise TypeError(f"slice strides must be positive, got {strides}.")
    sizes = tuple(
        max_dim(ceil_div(limit - start, step), 0)  # known to be no less, whatever the sizes are
        for start, limit, step in zip(start_indices, limit_indices, steps)
    )
    return ShapedArray(sizes, operand.dtype, operand.weak_type)


slice_p.jvp = jvp_from(slice_p, (LINEAR,))


@slice_p.def_transpose
def _slice_transpose(ct, operand, *, start_indices, limit_indices, strides):
    steps = strides or (1,) * len(start_indices)
    # `limit` may lie beyond the last element taken, so the tail is counted from that element.
    taken = [start + reach for start, reach in zip(start_indices, dilated(ct.shape, steps))]
    pads = [
        (start, total - end, step - 1)
        for start, end, total, step in zip(start_indices, taken, operand.aval.shape, steps)
    ]
    return [pad(ct, full((), 0, ct.dtype), pads)]


@slice_p.def_batch
def _slice_batch(axis, args, dims, *, start_indices, limit_indices, strides):
    (operand,), (dim,) = args, dims
    out = slice(
        operand,
        insert(start_indices, dim, 0),
        insert(limit_indices, dim, operand.shape[dim]),
        None if strides is None else insert(strides, dim, 1),
    )
    return out, dim


def _slice_element(b, index, operand, *, start_indices, limit_indices, strides):
    steps = strides or (1,) * len(index)
    return b.read(operand, [s + i * k for s, i, k in zip(start_indices, index, steps)])


slice_p.lowering = Element(_slice_element)


def slice(
    operand: Any,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Any:
    """The elements of `operand` from `start_indices` up to `limit_indices`.

    Args:
      operand: an array of rank n.
      start_indices: n integers, the first position taken along each axis.
      limit_indices: n integers, the first position no longer taken.
      strides: n positive integers; 1 where omitted.

    Returns:
      An array of `operand`'s dtype and shape `ceil((limit - start) / stride)`.

    Raises:
      TypeError: if the lengths differ from n or the bounds leave the array.

        >>> lax.slice(np.arange(12, dtype=np.int32).reshape(3, 4), (0, 1), (3, 4), (2, 2)).tolist()
        [[1, 3], [9, 11]]
    """
    strides = None if strides is None else as_axes(strides, "slice strides")
    return slice_p.bind(
        operand,
        start_indices=as_ints(start_indices, "slice start_indices"),
        limit_indices=as_ints(limit_indices, "slice limit_indices"),
        strides=strides,
    )


def slice_in_dim(
    operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Any:
    """`slice` along one axis, with NumPy's reading of negative and missing bounds.

    Args:
      start_index: first position taken; negative counts from the end; `None` is 0.
      limit_index: first position not taken; negative counts from the end; `None` is the size.
      stride: positive step.
      axis: the axis to slice.

    Raises:
      TypeError: if the bounds leave the axis.

        >>> lax.slice_in_dim(np.arange(6, dtype=np.int32), 1, -1, stride=2).tolist()
        [1, 3]
    """
    shape = shape_of(operand)
    axis = canonical_axis(axis, len(shape), "slice_in_dim: axis")
    size = shape[axis]
    start = 0 if start_index is None else as_size(start_index)
    limit = size if limit_index is None else as_size(limit_index)
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis] = start + size if start < 0 else start
    limits[axis] = limit + size if limit < 0 else limit
    strides[axis] = as_size(stride)
    return slice(operand, starts, limits, strides)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """The elements at a static position along one axis.

    Args:
      index: a Python integer; negative counts from the end.
      axis: the axis to index.

    Raises:
      IndexError: if `index` lies outside the axis.

        >>> lax.index_in_dim(np.arange(6, dtype=np.int32).reshape(2, 3), -1, 1, False).tolist()
        [2, 5]
    """
    shape = shape_of(operand)
    index = as_size(index)
    axis = canonical_axis(axis, len(shape), "index_in_dim: axis")
    size = shape[axis]
    position = index + size if index < 0 else index
    if not 0 <= position < size:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
    out = slice_in_dim(operand, position, position + 1, 1, axis)
    return out if keepdims else squeeze(out, (axis,))


Padding = Sequence[tuple[int, int, int]]

pad_p = Primitive("pad")


@pad_p.def_abstract_eval
def _pad_type(x: Any, value: Any, *, padding_config: Padding) -> ShapedArray:
    if value.shape:
        raise ValueError(f"pad: padding_value must be a scalar, got shape {value.shape}.")
    if x.dtype != value.dtype:
        raise TypeError(
            f"pad operand and padding_value must have one dtype, got {x.dtype} and {value.dtype}."
        )
    given = f"got padding_config {padding_config} for operand shape {x.shape}"
    if len(padding_config) != x.ndim:
        raise ValueError(f"pad: padding_config must have one entry for each axis, {given}.")
    if any(interior < 0 for _, _, interior in padding_config):
        raise ValueError(f"pad: interior padding in padding_config must be nonnegative, {given}.")
    between = dilated(x.shape, [interior + 1 for _, _, interior in padding_config])
    shape = [low + n + high for n, (low, high, _) in zip(between, padding_config)]
    if any(n < 0 for n in shape):
        raise ValueError(
            f"pad: Dimension size after padding is not at least 0 in {tuple(shape)}, {given}."
        )
    return ShapedArray(shape, x.dtype, x.weak_type and value.weak_type)


@pad_p.def_transpose
def _pad_transpose(ct: Any, x: Any, value: Any, *, padding_config: Padding) -> list[Any]:
    if is_zero(ct):
        return [Zero(y.aval) if is_undefined_primal(y) else None for y in (x, value)]
    operand_part = _unpad(ct, padding_config)
    value_part = None
    if is_undefined_primal(value):
        axes = tuple(range(len(padding_config)))
        value_part = sub(ops.reduce_sum(ct, axes), ops.reduce_sum(operand_part, axes))
    return [operand_part if is_undefined_primal(x) else None, value_part]


def _unpad(ct: Any, config: Padding) -> Any:
    """The elements of `ct` at the places of the padded operand's own."""
    bare = pad(ct, scalar(ct, 0), [(-low, -high, 0) for low, high, _ in config])
    return slice(bare, (0,) * len(config), shape_of(bare), [step + 1 for _, _, step in config])


@pad_p.def_batch
def _pad_batch(axis: Any, args: Any, dims: Any, *, padding_config: Padding) -> tuple[Any, int]:
    (x, value), (x_dim, value_dim) = args, dims
    place = 0 if x_dim is None else x_dim
    x = batch_to(x, x_dim, axis.size, place)
    config = insert(padding_config, place, (0, 0, 0))
    if value_dim is None:
        return pad(x, value, config), place
    # Every example has its own value: pad with anything, then put the values in.
    padded = pad(x, scalar(x, 0), config)
    own = pad(broadcast(True, shape_of(x)), False, config)
    return select(own, padded, broadcast_in_dim(value, shape_of(padded), (place,))), place


def _pad_element(b: Any, index: Any, x: Any, value: Any, *, padding_config: Padding) -> Any:
    guards, position = [], []
    for i, n, (low, _, interior) in zip(index, x.shape, padding_config):
        i = i - low
        if interior:
            step = interior + 1
            lead = max(0, ceil_div(low, step))  # steps ahead of the array; keeps i positive
            i = i + lead * step
            guards.append(b.in_bounds(i % step, 1))
            i = i // step - lead
        guards.append(b.in_bounds(i, n))
        position.append(i)
    return b.read_if(b.all_of(*guards), x, position, b.read(value, ()))


pad_p.jvp = joint_linear_jvp(pad_p)
pad_p.lowering = Element(_pad_element, cost=2.0)


def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Padding) -> Array:
    """Put a value around and between the elements of an array, or take elements off its ends.

    Args:
      operand: array of rank n.
      padding_value: scalar of the operand's dtype.
      padding_config: n triples `(low, high, interior)`: how many values to put before and after
        (negative: how many to remove), and how many between two neighbors.

    Returns:
      The padded array.

    Raises:
      TypeError: if the dtypes differ or the value is not a scalar.
      ValueError: if the configuration does not fit the operand.

        >>> lax.pad(np.array([1, 2, 3]), 0, [(1, -1, 1)]).tolist()
        [0, 1, 0, 2, 0]
    """
    config = tuple(as_ints(entry, "pad padding_config") for entry in padding_config)
    if any(len(entry) != 3 for entry in config):
        raise ValueError(f"pad: padding_config must hold triples (low, high, interior): {config}.")
    return pad_p.bind(operand, padding_value, padding_config=config)
