"""Shapes and the order of axes: broadcasting, reshaping, transposing, adding and removing axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core.array import Array, asarray_concrete
from amdjax.core.aval import ShapedArray, canonical_dim
from amdjax.core.dims import same_shape
from amdjax.core.lowering import Element
from amdjax.core.trace import is_float0
from amdjax.lax._rules import (
    Shape,
    after_batch,
    as_axes,
    as_ints,
    batch_to,
    canonical_axes,
    insert,
    shape_of,
    structural,
)
from amdjax.transforms import ops
from amdjax.typing import ArrayLike

__all__ = [
    "broadcast", "broadcast_in_dim", "broadcast_in_dim_p", "broadcast_like", "broadcast_shapes",
    "broadcast_to_rank", "collapse", "expand_dims", "reshape", "reshape_p", "squeeze", "squeeze_p",
    "transpose", "transpose_p",
]  # fmt: skip


def check_sizes(name: str, shape: Shape) -> None:
    """Raise a TypeError if a size in `shape` is negative."""
    if any(size < 0 for size in shape):
        raise TypeError(f"{name} must have every element be nonnegative, got {shape}.")


def _broadcast_in_dim_type(
    x: Any, *, shape: Shape, broadcast_dimensions: Shape, sharding: Any
) -> ShapedArray:
    check_sizes("broadcast_in_dim shape", shape)
    given = f"got broadcast_dimensions {broadcast_dimensions} for operand shape {x.shape}"
    if len(broadcast_dimensions) != x.ndim:
        raise TypeError(
            "broadcast_in_dim broadcast_dimensions must have length equal to operand ndim, "
            f"{given}."
        )
    if len(shape) < x.ndim:
        raise TypeError(
            "broadcast_in_dim target broadcast shape must have equal or higher rank to the "
            f"operand shape, {given} and shape {shape}."
        )
    if any(not 0 <= d < len(shape) for d in broadcast_dimensions):
        raise TypeError(
            "broadcast_in_dim broadcast_dimensions must be a subset of output dimensions, "
            f"{given} and shape {shape}."
        )
    if len(set(broadcast_dimensions)) != len(broadcast_dimensions):
        raise TypeError(
            f"broadcast_in_dim broadcast_dimensions must not contain duplicates, {given}."
        )
    if list(broadcast_dimensions) != sorted(broadcast_dimensions):
        raise TypeError(f"broadcast_in_dim_p takes broadcast_dimensions that rise, {given}.")
    if any(n not in (1, shape[d]) for n, d in zip(x.shape, broadcast_dimensions)):
        raise TypeError(
            "broadcast_in_dim operand dimension sizes must either be 1, or be equal to their "
            "corresponding dimensions in the target broadcast shape, "
            f"{given} and shape {shape}."
        )
    return ShapedArray(shape, x.dtype, x.weak_type)


def _broadcast_in_dim_element(
    b: Any, index: Any, x: Any, *, broadcast_dimensions: Shape, **_: Any
) -> Any:
    return b.read(x, [0 if n == 1 else index[d] for n, d in zip(x.shape, broadcast_dimensions)])


def _broadcast_in_dim_transpose(
    ct: Any, x: Any, *, shape: Shape, broadcast_dimensions: Shape, **_: Any
) -> Any:
    kept = [d for d, n in zip(broadcast_dimensions, x.shape) if n == shape[d]]
    summed = [d for d in range(len(shape)) if d not in kept]
    total = ops.reduce_sum(ct, summed) if summed else ct
    order = [sorted(kept).index(d) for d in kept]
    return reshape(transpose(total, order), x.shape)


def _broadcast_in_dim_batch(
    size: int, x: Any, dim: int, *, shape: Shape, broadcast_dimensions: Shape, **_: Any
) -> tuple[Any, int]:
    x = batch_to(x, dim, size)
    return broadcast_in_dim(x, (size, *shape), (0, *(d + 1 for d in broadcast_dimensions))), 0


broadcast_in_dim_p = structural(
    "broadcast_in_dim",
    _broadcast_in_dim_type,
    Element(_broadcast_in_dim_element, keeps_order=True),
    _broadcast_in_dim_transpose,
    _broadcast_in_dim_batch,
)


def broadcast_in_dim(
    operand: ArrayLike,
    shape: Sequence[int],
    broadcast_dimensions: Sequence[int],
    *,
    out_sharding: Any = None,
) -> Array:
    """Repeat an array along new axes and along axes of size one.

    Args:
      operand: array of rank n.
      broadcast_dimensions: n distinct integers, the axis of the result that each axis of the
        operand becomes.

    Returns:
      Array of the given shape and the operand's dtype.

    Raises:
      TypeError: if a size of the operand is neither 1 nor that of the result, or the dimensions
        do not name distinct axes.

        >>> broadcast_in_dim(1.5, (3,), ()).tolist()
        [1.5, 1.5, 1.5]
    """
    shape = as_ints(shape, "broadcast_in_dim shape")
    dims = as_ints(broadcast_dimensions, "broadcast_in_dim broadcast_dimensions")
    if list(dims) != sorted(dims) and len(dims) == len(shape_of(operand)):
        operand = transpose(operand, sorted(range(len(dims)), key=dims.__getitem__))
        dims = tuple(sorted(dims))
    if dims == tuple(range(len(shape))) and shape_of(operand) == shape:
        if isinstance(operand, Array):
            return operand
        if isinstance(operand, (np.ndarray, np.generic)) and not is_float0(operand):
            return asarray_concrete(operand)
    return broadcast_in_dim_p.bind(
        operand, shape=shape, broadcast_dimensions=dims, sharding=out_sharding
    )


def broadcast(operand: ArrayLike, sizes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """Repeat an array along new leading axes.

    Args:
      operand: array of any shape.
      sizes: sizes of the new axes.

    Returns:
      Array of shape `(*sizes, *operand.shape)`.

    Raises:
      TypeError: if a size is negative.

        >>> broadcast(1.5, (2,)).tolist()
        [1.5, 1.5]
    """
    sizes = as_axes(sizes, "broadcast sizes")
    shape = shape_of(operand)
    dims = range(len(sizes), len(sizes) + len(shape))
    return broadcast_in_dim(operand, (*sizes, *shape), dims)


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """The shape that arrays of the given shapes broadcast to, by NumPy's rules.

    Args:
      *shapes: sequences of integers, of any lengths.

    Returns:
      The common shape.

    Raises:
      ValueError: if two sizes differ and neither is 1.
      TypeError: if a size is no integer, or negative.

        >>> broadcast_shapes((2, 1), (3,))
        (2, 3)
    """
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(map(canonical_dim, shape)) for shape in shapes]
    if any(n < 0 for sizes in padded for n in sizes):
        raise TypeError(f"Only non-negative indices are allowed in shapes, got {list(shapes)}.")
    result = []
    for sizes in zip(*padded):
        wide = [size for size in sizes if size != 1]
        if any(size != wide[0] for size in wide[1:]):
            raise ValueError(f"Incompatible shapes for broadcasting: shapes={list(shapes)}")
        result.append(wide[0] if wide else 1)
    return tuple(result)


def broadcast_to_rank(x: ArrayLike, rank: int) -> Array:
    """Add leading axes of size one until the array has `rank` axes.

    Args:
      x: array of at most `rank` axes.
      rank: the rank of the result.

    Returns:
      Array of rank `rank`.

        >>> broadcast_to_rank(1.5, 2).shape
        (1, 1)
    """
    (missing,) = as_ints((rank - len(shape_of(x)),), "broadcast_to_rank: rank")
    return expand_dims(x, range(missing))


def broadcast_like(arr: ArrayLike, like_arr: ArrayLike) -> Array:
    """Repeat an array to the shape of another, by NumPy's rules.

    Args:
      arr: array that broadcasts to the shape of `like_arr`.
      like_arr: array of the wanted shape.

    Returns:
      Array of `like_arr`'s shape and `arr`'s dtype.

    Raises:
      ValueError: if the shapes do not fit.

        >>> broadcast_like(1.5, broadcast(0.0, (2,))).tolist()
        [1.5, 1.5]
    """
    shape, given = shape_of(like_arr), shape_of(arr)
    first = len(shape) - len(given)
    if first < 0 or any(n not in (1, m) for n, m in zip(given, shape[first:])):
        raise ValueError(
            f"broadcast_like: arr of shape {given} cannot take that of like_arr, {shape}."
        )
    return broadcast_in_dim(arr, shape, range(first, len(shape)))


def _reshape_type(x: Any, *, new_sizes: Shape, dimensions: Any, sharding: Any) -> ShapedArray:
    if any(size < 0 for size in new_sizes):
        raise TypeError(f"reshape new_sizes must all be nonnegative, got {new_sizes}.")
    if math.prod(new_sizes) != x.size:
        raise ValueError(
            f"reshape total size must be unchanged, got new_sizes {new_sizes} "
            f"(of total size {math.prod(new_sizes)}) for shape {x.shape} "
            f"(of total size {x.size})."
        )
    return ShapedArray(new_sizes, x.dtype, x.weak_type)


def _reshape_batch(size: int, x: Any, dim: int, *, new_sizes: Shape, **_: Any) -> tuple[Any, int]:
    return reshape(batch_to(x, dim, size), (size, *new_sizes)), 0


reshape_p = structural(
    "reshape",
    _reshape_type,
    Element(
        lambda b, index, x, *, new_sizes, **_: b.read_linear(x, b.linear(index, new_sizes)),
        keeps_order=True,
    ),
    lambda ct, x, **_: reshape(ct, x.shape),
    _reshape_batch,
)


def reshape(
    operand: ArrayLike,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """The same elements, in row-major order, in another shape.

    Args:
      operand: array of any shape.
      new_sizes: the new shape, of as many elements.
      dimensions: order of axes in which to read the operand; row-major where omitted.

    Returns:
      Array of shape `new_sizes`.

    Raises:
      TypeError: if the number of elements differs or `dimensions` is no permutation.

        >>> reshape(broadcast(1.5, (6,)), (2, 3)).shape
        (2, 3)
    """
    rule = "Shapes must be 1D sequences of concrete values of integer type: "
    new_sizes = as_ints(new_sizes, f"{rule}reshape new_sizes")
    if dimensions is not None:
        operand = transpose(operand, as_ints(dimensions, "reshape dimensions"))
    if isinstance(operand, Array) and same_shape(operand.shape, new_sizes):
        return operand
    return reshape_p.bind(operand, new_sizes=new_sizes, dimensions=None, sharding=out_sharding)


def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Join consecutive axes into one.

    Args:
      operand: array of rank n.
      start_dimension: the first axis to join.
      stop_dimension: the first axis no longer joined; n where omitted.

    Returns:
      Array of the same elements with the axes joined.

    Raises:
      ValueError: if the axes are out of bounds or out of order.

        >>> collapse(broadcast(1.5, (2, 3, 4)), 0, 2).shape
        (6, 4)
    """
    shape = shape_of(operand)
    rank = len(shape)
    start, stop, _ = slice(start_dimension, stop_dimension).indices(rank)
    if stop < start:
        raise ValueError(
            f"collapse: start_dimension {start_dimension} comes after stop_dimension "
            f"{stop_dimension} for an array of rank {rank}."
        )
    return reshape(operand, (*shape[:start], math.prod(shape[start:stop]), *shape[stop:]))


def _transpose_type(x: Any, *, permutation: Shape) -> ShapedArray:
    if sorted(permutation) != list(range(x.ndim)):
        raise TypeError(
            "transpose permutation isn't a permutation of operand dimensions, got permutation "
            f"{permutation} for operand shape {x.shape}."
        )
    return ShapedArray([x.shape[d] for d in permutation], x.dtype, x.weak_type)


def _inverse(permutation: Sequence[int]) -> list[int]:
    return sorted(range(len(permutation)), key=permutation.__getitem__)


def _transpose_element(b: Any, index: Any, x: Any, *, permutation: Shape) -> Any:
    return b.read(x, [index[d] for d in _inverse(permutation)])


def _transpose_batch(size: int, x: Any, dim: int, *, permutation: Shape) -> tuple[Any, int]:
    return transpose(x, (dim, *(after_batch(d, dim) for d in permutation))), 0


transpose_p = structural(
    "transpose",
    _transpose_type,
    Element(_transpose_element),
    lambda ct, x, *, permutation: transpose(ct, _inverse(permutation)),
    _transpose_batch,
)


def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """Reorder axes.

    Args:
      operand: array of rank n.
      permutation: a permutation of 0 … n-1; axis k of the result is axis `permutation[k]` of the
        operand.

    Returns:
      Array of the same elements with its axes reordered.

    Raises:
      TypeError: if `permutation` is not a permutation.

        >>> transpose(broadcast(1.5, (2, 3)), (1, 0)).shape
        (3, 2)
    """
    permutation = as_ints(permutation, "transpose permutation")
    if isinstance(operand, Array) and permutation == tuple(range(operand.ndim)):
        return operand
    return transpose_p.bind(operand, permutation=permutation)


def _squeeze_type(x: Any, *, dimensions: Shape) -> ShapedArray:
    if any(x.shape[d] != 1 for d in dimensions):
        raise ValueError(
            "cannot select an axis to squeeze out which has size not equal to one, got "
            f"shape={x.shape} and dimensions={dimensions}"
        )
    shape = [n for d, n in enumerate(x.shape) if d not in dimensions]
    return ShapedArray(shape, x.dtype, x.weak_type)


def _squeeze_element(b: Any, index: Any, x: Any, *, dimensions: Shape) -> Any:
    rest = iter(index)
    return b.read(x, [0 if d in dimensions else next(rest) for d in range(x.ndim)])


def _squeeze_batch(size: int, x: Any, dim: int, *, dimensions: Shape) -> tuple[Any, int]:
    moved = tuple(after_batch(d, dim) for d in dimensions)
    return squeeze(x, moved), dim - sum(d < dim for d in moved)


squeeze_p = structural(
    "squeeze",
    _squeeze_type,
    Element(_squeeze_element, keeps_order=True),
    lambda ct, x, **_: reshape(ct, x.shape),
    _squeeze_batch,
)


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Remove axes of size one.

    Args:
      array: array of any shape.
      dimensions: the axes to remove; negative ones count from the end.

    Returns:
      Array of the same elements without those axes.

    Raises:
      ValueError: if an axis has another size, is out of bounds or named twice.

        >>> squeeze(broadcast(1.5, (1, 3)), (0,)).shape
        (3,)
    """
    given: Any = array  # of what is no array, too: its axes are checked first
    dims = canonical_axes(dimensions, np.ndim(given), "squeeze dimensions")
    if not dims and isinstance(array, Array):
        return array
    return squeeze_p.bind(array, dimensions=dims)


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Insert axes of size one.

    Args:
      array: array of rank n.
      dimensions: positions of the new axes in the result; negative ones count from its end.

    Returns:
      Array of the same elements with the new axes.

    Raises:
      ValueError: if a position is out of bounds or named twice.

        >>> expand_dims(broadcast(1.5, (3,)), (0, 2)).shape
        (1, 3, 1)
    """
    wanted = as_axes(dimensions, "expand_dims dimensions")
    shape = shape_of(array)
    rank = len(shape) + len(wanted)
    dims = canonical_axes(wanted, rank, "expand_dims dimensions")
    for d in dims:
        shape = insert(shape, d, 1)
    return broadcast_in_dim(array, shape, [d for d in range(rank) if d not in dims])
