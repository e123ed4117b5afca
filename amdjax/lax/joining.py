"""Joining and cutting arrays: concatenate, stack, split, tile, pad, rev."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core.array import Array
from amdjax.core.aval import ShapedArray
from amdjax.core.lowering import Decompose, Element
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    Shape,
    Zero,
    after_batch,
    as_axes,
    as_ints,
    aval_of,
    batch_to,
    canonical_axis,
    check_same_dtype,
    insert,
    instantiate_zeros,
    is_zero,
    joint_linear_jvp,
    shape_of,
    structural,
    zero_tangent,
)
from amdjax.lax.reductions import reduce_sum
from amdjax.lax.shape import expand_dims, reshape, squeeze
from amdjax.lax.slicing import slice_in_dim
from amdjax.transforms.zero import is_undefined_primal
from amdjax.typing import ArrayLike

__all__ = [
    "concatenate", "concatenate_p", "rev", "rev_p", "split", "split_p", "stack", "stack_p", "tile",
    "tile_p", "unstack", "unstack_p",
]  # fmt: skip


concatenate_p = Primitive("concatenate")


@concatenate_p.def_abstract_eval
def _concatenate_type(*operands: Any, dimension: int) -> ShapedArray:
    shapes = ", ".join(str(x.shape) for x in operands)
    if len({x.ndim for x in operands}) != 1:
        raise TypeError(f"Cannot concatenate arrays of different ranks: got shapes {shapes}.")
    first = operands[0]
    if not 0 <= dimension < first.ndim:
        raise TypeError(
            f"concatenate dimension out of bounds: dimension {dimension} for shapes {shapes}."
        )
    if any(_without(x.shape, dimension) != _without(first.shape, dimension) for x in operands):
        raise TypeError(
            "Cannot concatenate arrays with shapes that differ in dimensions other than the one "
            f"being concatenated: concatenating along dimension {dimension} for shapes {shapes}."
        )
    check_same_dtype("concatenate", *operands)
    shape = list(first.shape)
    shape[dimension] = sum(x.shape[dimension] for x in operands)
    return ShapedArray(shape, first.dtype, all(x.weak_type for x in operands))


def _without(values: Sequence[Any], position: int) -> tuple[Any, ...]:
    return (*values[:position], *values[position + 1 :])


@concatenate_p.def_transpose
def _concatenate_transpose(ct: Any, *operands: Any, dimension: int) -> list[Any]:
    result: list[Any] = []
    start = 0
    for x in operands:
        stop = start + (x.aval if is_undefined_primal(x) else aval_of(x)).shape[dimension]
        if not is_undefined_primal(x):
            result.append(None)
        elif is_zero(ct):
            result.append(Zero(x.aval))
        else:
            result.append(slice_in_dim(ct, start, stop, axis=dimension))
        start = stop
    return result


@concatenate_p.def_batch
def _concatenate_batch(axis: Any, args: Any, dims: Any, *, dimension: int) -> tuple[Any, int]:
    place = next(d for d in dims if d is not None)
    args = [batch_to(x, d, axis.size, place) for x, d in zip(args, dims)]
    return concatenate_p.bind(*args, dimension=after_batch(dimension, place)), place


def _concatenate_element(b: Any, index: Any, *operands: Any, dimension: int) -> Any:
    pieces = []
    start = 0
    for x in operands:
        inside = insert(_without(index, dimension), dimension, index[dimension] - start)
        stop = start + x.shape[dimension]
        pieces.append((start, stop, lambda *_, x=x, inside=inside: b.read(x, inside)))
        start = stop
    return b.piecewise(index[dimension], pieces)


concatenate_p.jvp = joint_linear_jvp(concatenate_p)
concatenate_p.lowering = Element(_concatenate_element, cost=2.0)


def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Array:
    """Join arrays along an axis.

    Args:
      operands: arrays of one dtype whose shapes agree except along `dimension`.
      dimension: the axis to join along.

    Raises:
      TypeError: if dtypes or shapes do not agree, or there is no such axis.
      ValueError: if there are no operands.

        >>> concatenate([np.array([1, 2]), np.array([3])], 0).tolist()
        [1, 2, 3]
    """
    if len(operands) == 0:
        raise ValueError("concatenate requires a non-empty sequence of arrays")
    if len(operands) == 1 and isinstance(operands[0], Array):
        return operands[0]
    return concatenate_p.bind(*operands, dimension=as_ints(dimension, "dimension")[0])


stack_p = Primitive("stack")


@stack_p.def_abstract_eval
def _stack_type(*operands: Any, axis: int) -> ShapedArray:
    if any(x.shape != operands[0].shape for x in operands):
        shapes = ", ".join(str(x.shape) for x in operands)
        raise ValueError(f"stack: arrays must have the same shape, got {shapes}.")
    check_same_dtype("stack", *operands)
    shape = insert(operands[0].shape, axis, len(operands))
    return ShapedArray(shape, operands[0].dtype, all(x.weak_type for x in operands))


@stack_p.def_transpose
def _stack_transpose(ct: Any, *operands: Any, axis: int) -> list[Any]:
    if is_zero(ct):
        return [Zero(x.aval) if is_undefined_primal(x) else None for x in operands]
    parts = unstack(ct, axis)
    return [part if is_undefined_primal(x) else None for part, x in zip(parts, operands)]


@stack_p.def_batch
def _stack_batch(batch: Any, args: Any, dims: Any, *, axis: int) -> tuple[Any, int]:
    args = [batch_to(x, d, batch.size) for x, d in zip(args, dims)]
    return stack_p.bind(*args, axis=axis + 1), 0


stack_p.jvp = joint_linear_jvp(stack_p)
stack_p.lowering = Decompose(
    lambda *operands, axis: concatenate([expand_dims(x, (axis,)) for x in operands], axis)
)


def stack(operands: Sequence[ArrayLike], axis: int = 0) -> Array:
    """Join arrays along a new axis.

    Args:
      operands: arrays of one shape and dtype.
      axis: position of the new axis in the result.

    Raises:
      TypeError: if shapes or dtypes differ.
      ValueError: if there are no operands or the axis is out of bounds.

        >>> stack([np.array([1, 2]), np.array([3, 4])], 1).tolist()
        [[1, 3], [2, 4]]
    """
    if len(operands) == 0:
        raise ValueError("stack requires a non-empty sequence of arrays")
    return stack_p.bind(*operands, axis=canonical_axis(axis, len(shape_of(operands[0])) + 1))


def _cut_transpose(join: Any) -> Any:
    """Transpose of a cut into pieces: join their cotangents."""

    def transpose(cts: Sequence[Any], x: Any, **params: Any) -> list[Any]:
        if all(is_zero(ct) for ct in cts):
            return [Zero(x.aval)]
        return [join([instantiate_zeros(ct) for ct in cts], params["axis"])]

    return transpose


def _cut_jvp(primitive: Primitive) -> Any:
    def jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        ys = primitive.bind(*primals, **params)
        if is_zero(tangents[0]):
            return ys, [zero_tangent(y) for y in ys]
        return ys, primitive.bind(*tangents, **params)

    return jvp


unstack_p = Primitive("unstack", multiple_results=True)


@unstack_p.def_abstract_eval
def _unstack_type(x: Any, *, axis: int) -> list[ShapedArray]:
    piece = ShapedArray(_without(x.shape, axis), x.dtype, x.weak_type)
    return [piece] * x.shape[axis]


@unstack_p.def_batch
def _unstack_batch(batch: Any, args: Any, dims: Any, *, axis: int) -> tuple[Any, Any]:
    place = after_batch(axis, dims[0])
    ys = unstack_p.bind(*args, axis=place)
    return ys, [dims[0] - (place < dims[0])] * len(ys)


def _unstack(x: Any, *, axis: int) -> list[Any]:
    pieces = range(shape_of(x)[axis])
    return [squeeze(slice_in_dim(x, k, k + 1, axis=axis), (axis,)) for k in pieces]


unstack_p.jvp = _cut_jvp(unstack_p)
unstack_p.transpose = _cut_transpose(lambda cts, axis: stack(cts, axis))
unstack_p.lowering = Decompose(_unstack)


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """Cut an array into its pieces along an axis, which goes away.

    Args:
      x: array of at least one axis.
      axis: the axis to cut.

    Returns:
      As many arrays as the axis has positions.

    Raises:
      ValueError: if the axis is out of bounds.

        >>> [int(piece) for piece in unstack(np.array([1, 2]))]
        [1, 2]
    """
    return tuple(unstack_p.bind(x, axis=canonical_axis(axis, len(shape_of(x)))))


split_p = Primitive("split", multiple_results=True)


@split_p.def_abstract_eval
def _split_type(x: Any, *, sizes: Shape, axis: int) -> list[ShapedArray]:
    if any(size < 0 for size in sizes):
        raise ValueError(f"Sizes passed to split must be nonnegative, got {sizes}.")
    if sum(sizes) != x.shape[axis]:
        raise ValueError(
            f"split: Sum of sizes {sum(sizes)} must be equal to the size of axis {axis} of operand "
            f"shape {x.shape}."
        )
    rest = _without(x.shape, axis)
    return [ShapedArray(insert(rest, axis, size), x.dtype, x.weak_type) for size in sizes]


@split_p.def_batch
def _split_batch(batch: Any, args: Any, dims: Any, *, sizes: Shape, axis: int) -> tuple[Any, Any]:
    ys = split_p.bind(*args, sizes=sizes, axis=after_batch(axis, dims[0]))
    return ys, [dims[0]] * len(ys)


def _split(x: Any, *, sizes: Shape, axis: int) -> list[Any]:
    stops = np.cumsum(sizes).tolist()
    return [slice_in_dim(x, stop - n, stop, axis=axis) for n, stop in zip(sizes, stops)]


split_p.jvp = _cut_jvp(split_p)
split_p.transpose = _cut_transpose(lambda cts, axis: concatenate(cts, axis))
split_p.lowering = Decompose(_split)


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> Sequence[Array]:
    """Cut an array into consecutive pieces along an axis.

    Args:
      operand: array of at least one axis.
      sizes: sizes of the pieces along `axis`; they add up to its size.
      axis: the axis to cut.

    Returns:
      The pieces.

    Raises:
      ValueError: if the sizes do not add up or the axis is out of bounds.

        >>> [piece.tolist() for piece in split(np.array([1, 2, 3]), (1, 2))]
        [[1], [2, 3]]
    """
    axis = canonical_axis(axis, len(shape_of(operand)))
    return split_p.bind(operand, sizes=as_axes(sizes, "split sizes"), axis=axis)


def _tile_type(x: Any, *, reps: Shape) -> ShapedArray:
    if len(reps) != x.ndim:
        raise TypeError(f"tile: reps must have one entry for each axis, got {reps} for {x.shape}.")
    if any(rep < 0 for rep in reps):
        raise TypeError(f"tile: reps must be nonnegative, got {reps}.")
    return ShapedArray([n * rep for n, rep in zip(x.shape, reps)], x.dtype, x.weak_type)


def _tile_transpose(ct: Any, x: Any, *, reps: Shape) -> Any:
    pairs = [size for pair in zip(reps, x.shape) for size in pair]
    return reduce_sum(reshape(ct, pairs), range(0, len(pairs), 2))


tile_p = structural(
    "tile",
    _tile_type,
    Element(lambda b, index, x, *, reps: b.read(x, [i % n for i, n in zip(index, x.shape)])),
    _tile_transpose,
    lambda size, x, dim, *, reps: (tile(x, insert(reps, dim, 1)), dim),
)


def tile(operand: ArrayLike, reps: Sequence[int]) -> Array:
    """Repeat a whole array along its axes.

    Args:
      operand: array of rank n.
      reps: n numbers of copies.

    Returns:
      Array of shape `operand.shape * reps`.

    Raises:
      TypeError: if `reps` has another length or a negative entry.

        >>> tile(np.array([1, 2]), (2,)).tolist()
        [1, 2, 1, 2]
    """
    return tile_p.bind(operand, reps=as_axes(reps, "tile reps"))


def _rev_type(x: Any, *, dimensions: Shape) -> ShapedArray:
    if len(set(dimensions)) != len(dimensions):
        raise TypeError(f"rev dimensions must be unique, got {dimensions}.")
    if any(not 0 <= d < x.ndim for d in dimensions):
        raise TypeError(
            f"rev dimensions must be nonnegative and less than the operand's rank {x.ndim}, got "
            f"{dimensions}."
        )
    return x


def _rev_element(b: Any, index: Any, x: Any, *, dimensions: Shape) -> Any:
    flipped = [n - 1 - i if d in dimensions else i for d, (i, n) in enumerate(zip(index, x.shape))]
    return b.read(x, flipped)


rev_p = structural(
    "rev",
    _rev_type,
    Element(_rev_element),
    lambda ct, x, *, dimensions: rev(ct, dimensions),
    lambda size, x, dim, *, dimensions: (rev(x, [after_batch(d, dim) for d in dimensions]), dim),
)


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Reverse the order of elements along axes.

    Args:
      operand: array of any shape.
      dimensions: the axes to reverse.

    Returns:
      Array of the shape and dtype of the operand.

    Raises:
      TypeError: if an axis is out of bounds or named twice.

        >>> rev(np.array([1, 2, 3]), (0,)).tolist()
        [3, 2, 1]
    """
    return rev_p.bind(operand, dimensions=as_axes(dimensions, "rev dimensions"))
