"""Shapes changed, axes moved, elements rolled."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.dims import is_symbolic_dim, same_shape, surely_equal
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.core.integers import ceil_div
from amdjax.core.tracebacks import warn
from amdjax.numpy import _util
from amdjax.numpy._util import (
    ArrayLike,
    Axis,
    Shape,
    as_array,
    as_arrays,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    convert,
    is_arraylike,
    is_kind,
    scalar_of,
)


def shape(a: Any) -> tuple[int, ...]:
    """The extents of the axes of `a`.

    >>> jnp.shape(jnp.ones((2, 3)))
    (2, 3)
    """
    if hasattr(a, "shape"):
        return tuple(a.shape)
    return _shape_of("shape", a)


def _shape_of(name: str, a: Any) -> tuple[int, ...]:
    """The shape of what has no such attribute."""
    if isinstance(a, (list, tuple)):
        warn(
            f"{name} requires ndarray or scalar arguments, got {type(a)}; in future releases this"
            " will be an error",
            DeprecationWarning,
        )
        return np.shape(a)
    return np.shape(a)


def ndim(a: Any) -> int:
    """The number of axes of `a`.

    >>> jnp.ndim(jnp.ones((2, 3)))
    2
    """
    return a.ndim if hasattr(a, "ndim") else len(_shape_of("ndim", a))


def size(a: Any, axis: Axis = None) -> int:
    """The number of elements of `a`, or its extent along `axis`.

    >>> jnp.size(jnp.ones((2, 3)), 1)
    3
    """
    extents = tuple(a.shape) if hasattr(a, "shape") else _shape_of("size", a)
    return math.prod(extents[i] for i in canonical_axes(axis, len(extents)))


def reshape(
    a: ArrayLike, shape: Shape, order: str = "C", *, copy: bool | None = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """The elements of `a` in another shape.

    Args:
      shape: the new shape; one extent may be -1 and is computed.
      order: "C" reads and writes with the last axis fastest, "F" with the first.

    Raises:
      TypeError: the numbers of elements differ.

        >>> jnp.reshape(jnp.arange(6), (2, -1))
        Array([[0, 1, 2],
               [3, 4, 5]], dtype=int32)
    """
    a = as_array("reshape", a)
    new = computed_shape(a, canonical_shape(shape))
    if order == "C":
        return a if same_shape(new, a.shape) else lax.reshape(a, new)
    if order == "F":
        reversed_axes = tuple(reversed(range(a.ndim)))
        flat = lax.reshape(lax.transpose(a, reversed_axes), new[::-1])
        return lax.transpose(flat, tuple(reversed(range(len(new)))))
    if order == "A":
        raise NotImplementedError("np.reshape order=A is not implemented.")
    raise ValueError(f"Unexpected value for 'order' argument: {order}.")


def computed_shape(a: Any, new: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `a` is given, of which one extent may be -1."""
    free = [i for i, n in enumerate(new) if n == -1]
    if len(free) > 1:
        raise ValueError(f"can only specify one unknown axis size with a `-1` value, got {new}")
    known = math.prod(n for n in new if n != -1)
    if free:
        rest: Any = 1 if surely_equal(known, 0) else a.size % known
        if is_symbolic_dim(rest):
            raise InconclusiveDimensionOperation(
                f"cannot reshape array of shape {a.shape} into {new} but where '{rest}' is zero: "
                f"add the constraint '{rest} == 0'.{rest.scope.described()}"
            )
        if rest:
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
    repeats = ceil_div(total, flat.size)
    if is_symbolic_dim(repeats):
        places = lax.iota(np.dtype("int32"), total)
        places = lax.rem(places, scalar_of(flat.size, places.dtype))
        return lax.reshape(flat.at[places].get(mode="promise_in_bounds"), new)
    flat = lax.concatenate([flat] * repeats, 0) if repeats > 1 else flat
    return lax.reshape(lax.slice_in_dim(flat, 0, total), new)


def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """`a` with its axes permuted, by default reversed.

    >>> jnp.transpose(jnp.ones((2, 3, 4)), (1, 0, 2)).shape
    (3, 2, 4)
    """
    a = as_array("transpose", a)
    if axes is None:
        return lax.transpose(a, tuple(reversed(range(a.ndim))))
    return lax.transpose(a, tuple(canonical_axis(axis, a.ndim) for axis in axes))


def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    """`a` with its axes permuted; the array API's name for `transpose`.

    >>> jnp.permute_dims(jnp.ones((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return lax.transpose(as_array("permute_dims", a), axes)


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
    return lax.expand_dims(a, canonical_axes(axis, a.ndim + np.size(axis)))


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
    return _each(
        lambda x: lax.expand_dims(x, range(2 - x.ndim)) if x.ndim < 2 else x, "atleast_2d", arys
    )


def atleast_3d(*arys: ArrayLike) -> Any:
    """The arguments with at least three axes.

    >>> jnp.atleast_3d(jnp.arange(2)).shape
    (1, 2, 1)
    """
    new = (0, 1, 2), (0, 2), (2,)
    return _each(lambda x: lax.expand_dims(x, new[x.ndim]) if x.ndim < 3 else x, "atleast_3d", arys)


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
            f"rot90 requires its first argument to have ndim at least two, but got first"
            f" argument of shape {m.shape}"
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
      shift: by how many places; one number, or one for each axis; may be traced.
      axis: the axis or axes; None shifts the flattened array.

        >>> jnp.roll(jnp.arange(4), 1)
        Array([3, 0, 1, 2], dtype=int32)
    """
    x = as_array("roll", a)
    if axis is None:
        return lax.reshape(roll(ravel(x), shift, 0), x.shape)
    wanted: Any = axis
    axes = [canonical_axis(i, x.ndim) for i in (wanted if np.ndim(wanted) else [wanted])]
    given = shift if isinstance(shift, (list, tuple)) else [shift]
    traced = builtins.any(isinstance(s, Array) for s in given)
    symbolic = not traced and builtins.any(map(is_symbolic_dim, given))
    shift = shift.__jax_array__() if hasattr(shift, "__jax_array__") and not symbolic else shift
    if isinstance(shift, (list, tuple)) and traced:
        shift = lax.concatenate([lax.reshape(as_array("roll", s), (1,)) for s in shift], 0)
    known = not isinstance(shift, Array)
    shift = np.asarray(shift) if known else shift
    if shift.dtype.kind in "USO" and not symbolic:
        raise TypeError(f"roll: shift must be an integer or several, got {shift}")
    sizes = {shift.size, len(axes)} - {1}
    if shift.ndim > 1 or len(sizes) > 1:
        raise ValueError(
            "'shift' and 'axis' arguments to roll must be scalars or 1D arrays of one length, got"
            f" shapes {shift.shape} and {np.shape(axis)}"
        )
    count = builtins.max(sizes, default=1)
    if known:
        shifts: Any = shift.ravel().astype(object if symbolic else np.int64).tolist()
    else:
        shifts = _whole_numbers(shift)
    roll_by: Any = _roll_known if known else _roll_dynamic
    for k in range(count):
        x = roll_by(x, shifts[k % len(shifts)], axes[k % len(axes)])
    return x


def _whole_numbers(x: Array) -> list[Array]:
    """The elements of a scalar or vector, of an integer dtype that holds any extent."""
    wide = is_kind(x.dtype, np.integer) and x.dtype.itemsize >= 4
    return list(lax.reshape(x if wide else convert(x, np.dtype("int32")), (x.size,)))


def _roll_known(a: Array, by: int, axis: int) -> Array:
    n = a.shape[axis]
    by = by % n if n else 0
    if surely_equal(by, 0):
        return a
    ends = lax.slice_in_dim(a, n - by, n, axis=axis), lax.slice_in_dim(a, 0, n - by, axis=axis)
    return lax.concatenate(ends, axis)


def _roll_dynamic(a: Array, by: Array, axis: int) -> Array:
    """Shift by a traced amount: a window of the array laid twice end to end."""
    n = a.shape[axis]
    if not n:
        return a
    size = scalar_of(n, by.dtype)
    start = lax.rem(lax.sub(size, lax.rem(by, size)), size)
    return lax.dynamic_slice_in_dim(lax.concatenate([a, a], axis), start, n, axis)


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
    if hasattr(element, "__jax_array__"):
        element = element.__jax_array__()
    if is_arraylike(element) and hasattr(element, "ndim"):
        return element.ndim == 0
    return np.isscalar(element)
