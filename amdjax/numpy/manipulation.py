"""Shapes changed, axes moved, arrays joined and split."""

from __future__ import annotations

import builtins
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy import _util
from amdjax.numpy._util import (
    ArrayLike,
    Axis,
    DTypeLike,
    Shape,
    as_array,
    as_arrays,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    convert,
    is_arraylike,
    promote_dtypes,
    refuse_out,
    select,
    user_dtype,
)
from amdjax.numpy.creation import asarray, lower_mask


def shape(a: Any) -> tuple[int, ...]:
    """The extents of the axes of `a`.

    >>> jnp.shape(jnp.ones((2, 3)))
    (2, 3)
    """
    return tuple(a.shape) if hasattr(a, "shape") else as_array("shape", a).shape


def ndim(a: Any) -> int:
    """The number of axes of `a`.

    >>> jnp.ndim(jnp.ones((2, 3)))
    2
    """
    return a.ndim if hasattr(a, "ndim") else as_array("ndim", a).ndim


def size(a: Any, axis: Axis = None) -> int:
    """The number of elements of `a`, or its extent along `axis`.

    >>> jnp.size(jnp.ones((2, 3)), 1)
    3
    """
    extents = shape(a)
    return math.prod(extents[i] for i in canonical_axes(axis, len(extents)))


def reshape(
    a: ArrayLike, shape: Shape, order: str = "C", *, copy: bool | None = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """The elements of `a` in another shape.

    Args:
      a: array.
      shape: the new shape; one extent may be -1 and is computed.
      order: "C" reads and writes with the last axis fastest, "F" with the first.
      copy: accepted; arrays are immutable.
      out_sharding: accepted; there is one device.

    Raises:
      TypeError: the numbers of elements differ.

        >>> jnp.reshape(jnp.arange(6), (2, -1))
        Array([[0, 1, 2],
               [3, 4, 5]], dtype=int32)
    """
    a = as_array("reshape", a)
    new = _computed_shape(a, canonical_shape(shape))
    if order == "C":
        return a if new == a.shape else lax.reshape(a, new)
    if order == "F":
        reversed_axes = tuple(reversed(range(a.ndim)))
        flat = lax.reshape(lax.transpose(a, reversed_axes), new[::-1])
        return lax.transpose(flat, tuple(reversed(range(len(new)))))
    if order == "A":
        raise NotImplementedError("np.reshape order=A is not implemented.")
    raise ValueError(f"Unexpected value for 'order' argument: {order}.")


def _computed_shape(a: Array, new: tuple[int, ...]) -> tuple[int, ...]:
    free = [i for i, n in enumerate(new) if n == -1]
    if len(free) > 1:
        raise ValueError(f"can only specify one unknown axis size with a `-1` value, got {new}")
    known = math.prod(n for n in new if n != -1)
    if free:
        if known == 0 or a.size % known:
            raise TypeError(f"cannot reshape array of shape {a.shape} (size {a.size}) into {new}")
        new = tuple(a.size // known if n == -1 else n for n in new)
    if math.prod(new) != a.size or builtins.any(n < 0 for n in new):
        raise TypeError(
            f"cannot reshape array of shape {a.shape} (size {a.size}) into shape {new}"
            f" (size {math.prod(new)})"
        )
    return new


def ravel(a: ArrayLike, order: str = "C", *, out_sharding: Any = None) -> Array:
    """The elements of `a` in one axis.

    >>> jnp.ravel(jnp.array([[1, 2], [3, 4]]))
    Array([1, 2, 3, 4], dtype=int32)
    """
    a = as_array("ravel", a)
    if order == "K":
        raise NotImplementedError("Ravel not implemented for order='K'.")
    return reshape(a, (a.size,), order)


def resize(a: ArrayLike, new_shape: Shape) -> Array:
    """The elements of `a`, repeated as often as needed, in another shape.

    >>> jnp.resize(jnp.arange(3), (2, 2))
    Array([[0, 1],
           [2, 0]], dtype=int32)
    """
    new = canonical_shape(new_shape)
    if builtins.any(n < 0 for n in new):
        raise ValueError("all elements of `new_shape` must be non-negative")
    flat = ravel(a)
    total = math.prod(new)
    if not total or not flat.size:
        return lax.full(new, 0, flat.dtype)
    repeats = -(-total // flat.size)
    flat = lax.concatenate([flat] * repeats, 0) if repeats > 1 else flat
    return lax.reshape(lax.slice_in_dim(flat, 0, total), new)


def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """`a` with its axes permuted, by default reversed.

    >>> jnp.transpose(jnp.ones((2, 3, 4)), (1, 0, 2)).shape
    (3, 2, 4)
    """
    a = as_array("transpose", a)
    order = tuple(reversed(range(a.ndim))) if axes is None else canonical_axes(tuple(axes), a.ndim)
    if len(order) != a.ndim:
        raise ValueError(f"axes don't match array: got {axes} for an array of {a.ndim} axes")
    return lax.transpose(a, order)


def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    """`a` with its axes permuted; the array API's name for `transpose`.

    >>> jnp.permute_dims(jnp.ones((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return transpose(a, axes)


def matrix_transpose(x: ArrayLike, /) -> Array:
    """`x` with its last two axes exchanged.

    >>> jnp.matrix_transpose(jnp.ones((4, 2, 3))).shape
    (4, 3, 2)
    """
    x = as_array("matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError(
            f"x must be at least two-dimensional for matrix_transpose; got ndim={x.ndim}"
        )
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """`a` with two axes exchanged.

    >>> jnp.swapaxes(jnp.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    a = as_array("swapaxes", a)
    order = list(range(a.ndim))
    i, j = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    order[i], order[j] = j, i
    return lax.transpose(a, tuple(order))


def moveaxis(a: ArrayLike, source: Axis, destination: Axis) -> Array:
    """`a` with axes moved to new positions, the others kept in order.

    >>> jnp.moveaxis(jnp.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    a = as_array("moveaxis", a)
    if source is None or destination is None:
        raise TypeError("moveaxis: source and destination must be ints or sequences of ints")
    start, end = canonical_axes(source, a.ndim), canonical_axes(destination, a.ndim)
    if len(start) != len(end):
        raise ValueError(f"Inconsistent number of elements: {len(start)} vs {len(end)} in moveaxis")
    order = [i for i in range(a.ndim) if i not in start]
    for to, axis in sorted(zip(end, start)):
        order.insert(to, axis)
    return lax.transpose(a, tuple(order))


def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """`a` with one axis moved before another.

    >>> jnp.rollaxis(jnp.ones((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    a = as_array("rollaxis", a)
    axis = canonical_axis(axis, a.ndim)
    if not -a.ndim <= start <= a.ndim:
        raise ValueError(f"start must satisfy {-a.ndim}<=start<={a.ndim}; got {start}")
    start = start + a.ndim if start < 0 else start
    return moveaxis(a, axis, start - 1 if start > axis else start)


def expand_dims(a: ArrayLike, axis: Shape) -> Array:
    """`a` with new axes of one at the given positions of the result.

    >>> jnp.expand_dims(jnp.ones(3), 0).shape
    (1, 3)
    """
    a = as_array("expand_dims", a)
    count = len(axis) if isinstance(axis, Sequence) else 1
    return lax.expand_dims(a, canonical_axes(axis, a.ndim + count))


def squeeze(a: ArrayLike, axis: Axis = None) -> Array:
    """`a` without its axes of one, or without those given.

    >>> jnp.squeeze(jnp.ones((1, 3, 1))).shape
    (3,)
    """
    a = as_array("squeeze", a)
    if axis is None:
        axes: tuple[int, ...] = tuple(i for i, n in enumerate(a.shape) if n == 1)
    else:
        axes = canonical_axes(axis, a.ndim)
        if builtins.any(a.shape[i] != 1 for i in axes):
            raise ValueError(
                "cannot select an axis to squeeze out which has size not equal to one, got"
                f" shape={a.shape} and dimensions={axes}"
            )
    return lax.squeeze(a, axes) if axes else a


def atleast_1d(*arys: ArrayLike) -> Any:
    """The arguments with at least one axis.

    >>> jnp.atleast_1d(3)
    Array([3], dtype=int32, weak_type=True)
    """
    return _each(lambda x: lax.reshape(x, (1,)) if x.ndim < 1 else x, "atleast_1d", arys)


def atleast_2d(*arys: ArrayLike) -> Any:
    """The arguments with at least two axes, new ones in front.

    >>> jnp.atleast_2d(jnp.arange(2))
    Array([[0, 1]], dtype=int32)
    """
    grow = lambda x: lax.reshape(x, (1,) * (2 - x.ndim) + x.shape) if x.ndim < 2 else x
    return _each(grow, "atleast_2d", arys)


def atleast_3d(*arys: ArrayLike) -> Any:
    """The arguments with at least three axes.

    >>> jnp.atleast_3d(jnp.arange(2)).shape
    (1, 2, 1)
    """

    def grow(x: Array) -> Array:
        if x.ndim == 2:
            return lax.reshape(x, (*x.shape, 1))
        return lax.reshape(x, (1, x.size, 1)) if x.ndim < 2 else x

    return _each(grow, "atleast_3d", arys)


def _each(fn: Callable[[Array], Array], name: str, args: tuple[Any, ...]) -> Any:
    results = [fn(x) for x in as_arrays(name, *args)]
    return results[0] if len(results) == 1 else results


def broadcast_to(array: ArrayLike, shape: Shape, *, out_sharding: Any = None) -> Array:
    """`array` repeated to `shape`.

    >>> jnp.broadcast_to(jnp.arange(2), (2, 2))
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    return _util.broadcast_to(array, shape)


def broadcast_arrays(*args: ArrayLike) -> list[Array]:
    """The arguments with their common shape.

    >>> [x.shape for x in jnp.broadcast_arrays(jnp.ones((2, 1)), jnp.ones(3))]
    [(2, 3), (2, 3)]
    """
    return _util.broadcast_arrays(*as_arrays("broadcast_arrays", *args))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that arrays of the given shapes broadcast to.

    >>> jnp.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return tuple(lax.broadcast_shapes(*(canonical_shape(s) for s in shapes))) if shapes else ()


def _sequence(name: str, arrays: Any) -> list[Any]:
    """The entries of a list, a tuple or an array."""
    if isinstance(arrays, (np.ndarray, Array)):
        return list(arrays)
    if isinstance(arrays, (str, bytes)) or not isinstance(arrays, Sequence):
        raise TypeError(f"{name} requires a sequence of arrays, got {type(arrays)}")
    return list(arrays)


def concatenate(arrays: Any, axis: int | None = 0, dtype: DTypeLike = None) -> Array:
    """Arrays joined along an existing axis.

    Args:
      arrays: arrays that agree along the other axes.
      axis: the axis; None joins the flattened arrays.
      dtype: dtype of the result; None means the promoted one.

        >>> jnp.concatenate([jnp.arange(2), jnp.arange(3)])
        Array([0, 1, 0, 1, 2], dtype=int32)
    """
    parts = as_arrays("concatenate", *_sequence("concatenate", arrays))
    if not parts:
        raise ValueError("Need at least one array to concatenate.")
    if axis is None:
        parts, axis = [ravel(x) for x in parts], 0
    if parts[0].ndim == 0:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    axis = canonical_axis(axis, parts[0].ndim)
    parts = _joined_dtype(parts, dtype, "concatenate")
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, axis)


def _joined_dtype(parts: list[Array], dtype: DTypeLike, name: str) -> list[Array]:
    if dtype is not None:
        target = user_dtype(dtype, name)
        return [convert(x, target) for x in parts]
    return promote_dtypes(*parts) if len(parts) > 1 else parts


def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """Arrays joined along an axis; the array API's name for `concatenate`.

    >>> jnp.concat([jnp.arange(2), jnp.arange(2)])
    Array([0, 1, 0, 1], dtype=int32)
    """
    return concatenate(arrays, axis)


def stack(arrays: Any, axis: int = 0, out: None = None, dtype: DTypeLike = None) -> Array:
    """Arrays of one shape joined along a new axis.

    >>> jnp.stack([jnp.arange(2), jnp.arange(2)], axis=1)
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    refuse_out("stack", out)
    parts = as_arrays("stack", *_sequence("stack", arrays))
    if not parts:
        raise ValueError("Need at least one array to stack.")
    if len({x.shape for x in parts}) > 1:
        raise ValueError(
            f"All input arrays must have the same shape, got {[x.shape for x in parts]}"
        )
    axis = canonical_axis(axis, parts[0].ndim + 1)
    return concatenate([lax.expand_dims(x, (axis,)) for x in parts], axis, dtype)


def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices of `x` along `axis`.

    >>> jnp.unstack(jnp.array([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    x = as_array("unstack", x)
    if x.ndim == 0:
        raise ValueError(
            "Unstack requires arrays with rank > 0, however a scalar array was passed."
        )
    axis = canonical_axis(axis, x.ndim)
    return tuple(lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis]))


def vstack(tup: Any, dtype: DTypeLike = None) -> Array:
    """Arrays joined as rows.

    >>> jnp.vstack([jnp.arange(2), jnp.arange(2)])
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    return concatenate([atleast_2d(x) for x in _sequence("vstack", tup)], 0, dtype)


def hstack(tup: Any, dtype: DTypeLike = None) -> Array:
    """Arrays joined as columns; vectors end to end.

    >>> jnp.hstack([jnp.arange(2), jnp.arange(2)])
    Array([0, 1, 0, 1], dtype=int32)
    """
    parts = [atleast_1d(x) for x in _sequence("hstack", tup)]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1, dtype)


def dstack(tup: Any, dtype: DTypeLike = None) -> Array:
    """Arrays joined along the third axis.

    >>> jnp.dstack([jnp.arange(2), jnp.arange(2)]).shape
    (1, 2, 2)
    """
    return concatenate([atleast_3d(x) for x in _sequence("dstack", tup)], 2, dtype)


def column_stack(tup: Any) -> Array:
    """Vectors as the columns of a matrix.

    >>> jnp.column_stack([jnp.arange(2), jnp.arange(2)])
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    parts = as_arrays("column_stack", *_sequence("column_stack", tup))
    return concatenate([lax.reshape(x, (x.size, 1)) if x.ndim < 2 else x for x in parts], 1)


def block(arrays: Any) -> Array:
    """A matrix assembled from nested lists of blocks.

    >>> jnp.block([[jnp.ones((1, 1)), jnp.zeros((1, 1))]])
    Array([[1., 0.]], dtype=float32)
    """
    depth = _depth(arrays)
    rank = builtins.max(depth, *(x.ndim for x in _blocks(arrays)))
    return _assemble(arrays, depth, rank)


def _depth(arrays: Any) -> int:
    if isinstance(arrays, tuple):
        raise ValueError("jax.numpy.block does not allow tuples, got a tuple")
    if not isinstance(arrays, list):
        return 0
    if not arrays:
        raise ValueError("jax.numpy.block does not allow empty list arguments")
    depths = {_depth(x) for x in arrays}
    if len(depths) > 1:
        raise ValueError("List depths are mismatched in jax.numpy.block")
    return 1 + depths.pop()


def _blocks(arrays: Any) -> list[Array]:
    if isinstance(arrays, list):
        return [x for part in arrays for x in _blocks(part)]
    return [as_array("block", arrays)]


def _assemble(arrays: Any, depth: int, rank: int) -> Array:
    if depth == 0:
        x = as_array("block", arrays)
        return lax.reshape(x, (1,) * (rank - x.ndim) + x.shape)
    return concatenate([_assemble(x, depth - 1, rank) for x in arrays], axis=-depth)


def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """`arr` followed by `values`.

    >>> jnp.append(jnp.arange(2), jnp.array([9]))
    Array([0, 1, 9], dtype=int32)
    """
    return concatenate([arr, values], axis)


def split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """`ary` cut along `axis`.

    Args:
      ary: array.
      indices_or_sections: a number of equal parts, or the indices to cut at.
      axis: the axis to cut.

    Raises:
      ValueError: the axis cannot be cut into equal parts.

        >>> jnp.split(jnp.arange(4), 2)
        [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32)]
    """
    return _split("split", ary, indices_or_sections, axis, equal=True)


def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """`ary` cut along `axis` into parts that may differ by one.

    >>> jnp.array_split(jnp.arange(3), 2)
    [Array([0, 1], dtype=int32), Array([2], dtype=int32)]
    """
    return _split("array_split", ary, indices_or_sections, axis, equal=False)


def _split(name: str, ary: ArrayLike, where: Any, axis: int, equal: bool) -> list[Array]:
    a = as_array(name, ary)
    axis = canonical_axis(axis, a.ndim)
    length = a.shape[axis]
    if np.ndim(where) == 0 and not isinstance(where, (list, tuple)):
        parts = int(where)
        if parts <= 0:
            raise ValueError("number sections must be larger than 0.")
        if equal and length % parts:
            raise ValueError(
                f"array split does not result in an equal division: rest is {length % parts}"
            )
        small, extra = builtins.divmod(length, parts)
        sizes = [small + 1] * extra + [small] * (parts - extra)
        cuts = np.cumsum([0, *sizes]).tolist()
    else:
        inner = [int(i) for i in np.asarray(where)]
        inner = [builtins.max(i + length, 0) if i < 0 else builtins.min(i, length) for i in inner]
        cuts = [0, *inner, length]
    return [
        lax.slice_in_dim(a, lo, builtins.max(lo, hi), axis=axis)
        for lo, hi in itertools.pairwise(cuts)
    ]


def hsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """`ary` cut along its second axis, a vector along its only one.

    >>> [x.shape for x in jnp.hsplit(jnp.ones((2, 4)), 2)]
    [(2, 2), (2, 2)]
    """
    a = as_array("hsplit", ary)
    return _split("hsplit", a, indices_or_sections, 0 if a.ndim == 1 else 1, equal=True)


def vsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """`ary` cut along its first axis.

    >>> [x.shape for x in jnp.vsplit(jnp.ones((4, 2)), 2)]
    [(2, 2), (2, 2)]
    """
    return _split("vsplit", ary, indices_or_sections, 0, equal=True)


def dsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """`ary` cut along its third axis.

    >>> [x.shape for x in jnp.dsplit(jnp.ones((1, 2, 4)), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return _split("dsplit", ary, indices_or_sections, 2, equal=True)


def flip(m: ArrayLike, axis: Axis = None) -> Array:
    """`m` with the order of its elements along `axis` reversed.

    >>> jnp.flip(jnp.arange(3))
    Array([2, 1, 0], dtype=int32)
    """
    m = as_array("flip", m)
    return lax.rev(m, canonical_axes(axis, m.ndim))


def fliplr(m: ArrayLike) -> Array:
    """`m` with its columns reversed.

    >>> jnp.fliplr(jnp.array([[1, 2]]))
    Array([[2, 1]], dtype=int32)
    """
    return flip(m, 1)


def flipud(m: ArrayLike) -> Array:
    """`m` with its rows reversed.

    >>> jnp.flipud(jnp.array([[1], [2]]))
    Array([[2],
           [1]], dtype=int32)
    """
    return flip(m, 0)


def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """`m` turned by `k` quarters from the first of two axes to the second.

    >>> jnp.rot90(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int32)
    """
    m = as_array("rot90", m)
    if m.ndim < 2:
        raise ValueError(
            f"rot90 requires its first argument to have ndim at least two, got {m.shape}"
        )
    first, second = (canonical_axis(a, m.ndim) for a in axes)
    if first == second:
        raise ValueError("Axes must be different")
    match k % 4:
        case 0:
            return m
        case 1:
            return swapaxes(flip(m, second), first, second)
        case 2:
            return flip(m, (first, second))
        case _:
            return flip(swapaxes(m, first, second), second)


def roll(a: ArrayLike, shift: Any, axis: Axis = None) -> Array:
    """`a` shifted cyclically along `axis`.

    Args:
      a: array.
      shift: by how many places; one number, or one for each axis; may be traced.
      axis: the axis or axes; None shifts the flattened array.

        >>> jnp.roll(jnp.arange(4), 1)
        Array([3, 0, 1, 2], dtype=int32)
    """
    a = as_array("roll", a)
    if axis is None:
        return lax.reshape(roll(ravel(a), shift, 0), a.shape)
    axes = (
        canonical_axes(axis, a.ndim)
        if not isinstance(axis, Sequence)
        else tuple(canonical_axis(i, a.ndim) for i in axis)
    )
    if isinstance(shift, Array):
        shifts = [shift] * len(axes) if shift.ndim == 0 else list(shift)
        return _roll_dynamic(a, shifts, axes)
    count = builtins.max(len(axes), np.size(shift))
    steps = np.broadcast_to(np.asarray(shift), (count,))
    if len(axes) == 1:
        axes = axes * count
    if len(axes) != count:
        raise ValueError(f"roll: shift {shift} and axis {axis} must have equal lengths")
    for by, i in zip(steps.tolist(), axes):
        n = a.shape[i]
        by = by % n if n else 0
        if by:
            parts = lax.slice_in_dim(a, n - by, n, axis=i), lax.slice_in_dim(a, 0, n - by, axis=i)
            a = lax.concatenate(parts, i)
    return a


def _roll_dynamic(a: Array, shifts: list[Array], axes: tuple[int, ...]) -> Array:
    """Shift by traced amounts: a window of the array laid twice end to end."""
    for by, i in zip(shifts, axes):
        n = a.shape[i]
        if n:
            size = np.asarray(n, by.dtype)
            start = lax.rem(lax.sub(size, lax.rem(by, size)), size)
            a = lax.dynamic_slice_in_dim(lax.concatenate([a, a], i), start, n, i)
    return a


def tile(A: ArrayLike, reps: Shape) -> Array:
    """`A` repeated as a whole along each axis.

    >>> jnp.tile(jnp.arange(2), 2)
    Array([0, 1, 0, 1], dtype=int32)
    """
    a = as_array("tile", A)
    counts = canonical_shape(reps)
    rank = builtins.max(a.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    extents = (1,) * (rank - a.ndim) + a.shape
    if builtins.all(n == 1 for n in counts):
        return a if extents == a.shape else lax.reshape(a, extents)
    pairs = [n for pair in zip(counts, extents) for n in pair]
    wide = lax.broadcast_in_dim(lax.reshape(a, extents), pairs, tuple(range(1, 2 * rank, 2)))
    return lax.reshape(wide, tuple(c * n for c, n in zip(counts, extents)))


def repeat(
    a: ArrayLike,
    repeats: Any,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: Any = None,
) -> Array:
    """Each element of `a` repeated along `axis`.

    Args:
      a: array.
      repeats: how often; one number, or one for each element along the axis.
      axis: the axis; None repeats the flattened array.
      total_repeat_length: extent of the result; needed where `repeats` is traced. The last element
        fills what is left over.
      out_sharding: accepted; there is one device.

        >>> jnp.repeat(jnp.arange(2), 2)
        Array([0, 0, 1, 1], dtype=int32)
    """
    a = as_array("repeat", a)
    if axis is None:
        a, axis = ravel(a), 0
    axis = canonical_axis(axis, a.ndim)
    length = a.shape[axis]
    if total_repeat_length is None:
        counts = np.asarray(repeats)
        if counts.size == 1:
            return _repeat_evenly(a, int(counts.reshape(())), axis)
        if counts.shape != (length,):
            raise ValueError(
                f"repeats of shape {counts.shape} do not fit the axis of size {length}"
            )
        chosen = np.repeat(np.arange(length), counts)
        return lax.concatenate([_take_rows(a, chosen, axis)], axis)
    each = asarray(repeats)
    each = _util.broadcast_to(lax.reshape(each, (each.size,)), (length,))
    ends = lax.cumsum(each, 0)
    position = lax.iota(ends.dtype, int(total_repeat_length))
    from amdjax.numpy.reductions import sum as sum_

    behind = lax.ge(lax.expand_dims(position, (1,)), lax.expand_dims(ends, (0,)))
    index = sum_(behind, 1, dtype=ends.dtype)
    return _take_rows(a, lax.min(index, np.asarray(length - 1, index.dtype)), axis)


def _take_rows(a: Array, index: Any, axis: int) -> Array:
    from amdjax.numpy.selecting import take

    return take(a, asarray(index), axis, mode="clip")


def _repeat_evenly(a: Array, count: int, axis: int) -> Array:
    wide = [*a.shape[: axis + 1], count, *a.shape[axis + 1 :]]
    kept = [i for i in range(a.ndim + 1) if i != axis + 1]
    final = list(a.shape)
    final[axis] *= count
    return lax.reshape(lax.broadcast_in_dim(a, wide, kept), final)


def _triangle(m: ArrayLike, k: int, name: str, keep_lower: bool) -> Array:
    m = as_array(name, m)
    if m.ndim < 2:
        raise ValueError(f"Argument to jax.numpy.{name} must be at least 2D")
    rows, columns = m.shape[-2:]
    mask = lower_mask(rows, columns, k if keep_lower else k - 1, np.dtype(bool))
    mask = _util.broadcast_to(mask, m.shape)
    zero = lax.full(m.shape, 0, m.dtype)
    return lax.select(mask, m, zero) if keep_lower else lax.select(mask, zero, m)


@composite(static_argnames="k")
def tril(m: ArrayLike, k: int = 0) -> Array:
    """`m` with zeros above its `k`-th diagonal.

    >>> jnp.tril(jnp.ones((2, 2)))
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    return _triangle(m, k, "tril", True)


@composite(static_argnames="k")
def triu(m: ArrayLike, k: int = 0) -> Array:
    """`m` with zeros below its `k`-th diagonal.

    >>> jnp.triu(jnp.ones((2, 2)))
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    return _triangle(m, k, "triu", False)


def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonal of the matrices spanned by two axes, as a new last axis.

    >>> jnp.diagonal(jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    a = as_array("diagonal", a)
    if a.ndim < 2:
        raise ValueError("diagonal requires an array of at least two dimensions.")
    first, second = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    a = moveaxis(a, (first, second), (-2, -1))
    rows, columns = a.shape[-2:]
    length = builtins.max(
        0, builtins.min(rows + builtins.min(offset, 0), columns - builtins.max(offset, 0))
    )
    # Rows of one element more put the diagonal into one column.
    flat = lax.reshape(a, (*a.shape[:-2], rows * columns))
    start = offset if offset >= 0 else -offset * columns
    if not length:
        return lax.full((*a.shape[:-2], 0), 0, a.dtype)
    return lax.slice_in_dim(
        flat, start, start + (length - 1) * (columns + 1) + 1, columns + 1, axis=flat.ndim - 1
    )


def diag(v: ArrayLike, k: int = 0) -> Array:
    """A matrix with a given diagonal, or the diagonal of a matrix.

    >>> jnp.diag(jnp.array([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    v = as_array("diag", v)
    k = int(k)
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ValueError(f"diag input must be 1d or 2d, got shape {v.shape}")
    n = v.size + abs(k)
    zero = np.zeros((), v.dtype)
    padded = lax.pad(v, zero, ((builtins.max(0, k), builtins.max(0, -k), 0),))
    on = lax.eq(
        lax.broadcasted_iota(np.dtype("int32"), (n, n), 1),
        lax.add(lax.broadcasted_iota(np.dtype("int32"), (n, n), 0), np.int32(k)),
    )
    return select(on, _util.broadcast_to(padded, (n, n)), zero)


def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """A matrix with the flattened `v` on its `k`-th diagonal.

    >>> jnp.diagflat(jnp.array([[1, 2]])).shape
    (2, 2)
    """
    return diag(ravel(v), k)


def trace(
    a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike = None,
    out: None = None,
) -> Array:  # fmt: skip
    """The sum of the diagonal.

    >>> jnp.trace(jnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    from amdjax.numpy.reductions import sum as sum_

    refuse_out("trace", out)
    return sum_(diagonal(a, offset, axis1, axis2), -1, dtype=dtype)


def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """The matrix of powers of the elements of `x`.

    >>> jnp.vander(jnp.array([2, 3]), 3)
    Array([[4, 2, 1],
           [9, 3, 1]], dtype=int32)
    """
    x = as_array("vander", x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array")
    N = x.size if N is None else int(N)
    if N < 0:
        raise ValueError("N must be nonnegative")
    powers = [lax.full_like(x, 1)]
    for _ in range(N - 1):
        powers.append(lax.mul(powers[-1], x))
    powers = powers[:N] if increasing else powers[:N][::-1]
    return stack(powers, 1) if powers else lax.full((x.size, 0), 0, x.dtype)


def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """The Kronecker product.

    >>> jnp.kron(jnp.array([1, 10]), jnp.array([1, 2]))
    Array([ 1,  2, 10, 20], dtype=int32)
    """
    x, y = promote_dtypes(*as_arrays("kron", a, b))
    rank = builtins.max(x.ndim, y.ndim)
    xs = (1,) * (rank - x.ndim) + x.shape
    ys = (1,) * (rank - y.ndim) + y.shape
    x = lax.reshape(x, tuple(n for e in xs for n in (e, 1)))
    y = lax.reshape(y, tuple(n for e in ys for n in (1, e)))
    return lax.reshape(lax.mul(x, y), tuple(m * n for m, n in zip(xs, ys)))


def iterable(y: Any) -> bool:
    """Whether `y` can be iterated over.

    >>> jnp.iterable(jnp.arange(3))
    True
    """
    return np.iterable(y)


def isscalar(element: Any) -> bool:
    """Whether `element` is a number or an array without axes.

    >>> jnp.isscalar(jnp.ones(1))
    False
    """
    if is_arraylike(element) and hasattr(element, "ndim"):
        return element.ndim == 0
    return np.isscalar(element)


def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: Any = None) -> Array:
    """A concrete array without leading and trailing zeros.

    >>> jnp.trim_zeros(jnp.array([0, 1, 2, 0]))
    Array([1, 2], dtype=int32)
    """
    a = as_array("trim_zeros", filt)
    nonzero = np.nonzero(np.asarray(a))
    box = []
    for i, n in enumerate(a.shape):
        hit = nonzero[i]
        lo, hi = (int(hit.min()), int(hit.max()) + 1) if hit.size else (0, 0)
        chosen = i in canonical_axes(axis, a.ndim)
        lo = lo if chosen and "f" in trim.lower() else 0
        hi = hi if chosen and "b" in trim.lower() else n
        box.append((builtins.min(lo, hi), hi))
    return lax.slice(a, [lo for lo, _ in box], [hi for _, hi in box]) if a.ndim else a
