"""Elements of an axis repeated, left out and put in."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.dims import as_size, is_symbolic_dim
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.core.trace import is_concrete
from amdjax.numpy import _util
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    as_arrays,
    broadcast_to,
    canonical_axis,
    check_arraylike,
    convert,
    is_arraylike,
    is_kind,
    strong,
)
from amdjax.numpy.conversion import asarray
from amdjax.numpy.index_syntax import parse
from amdjax.numpy.indexing import _wrapped
from amdjax.numpy.joining import concatenate
from amdjax.numpy.manipulation import moveaxis, ravel
from amdjax.numpy.reductions import sum as sum_
from amdjax.numpy.selecting import nonzero, take
from amdjax.numpy.sorting import argsort


def repeat(
    a: ArrayLike, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """Each element of `a` repeated along `axis`.

    Args:
      repeats: how often; one number, or one for each element along the axis.
      axis: the axis; None repeats the flattened array.
      total_repeat_length: extent of the result; needed where `repeats` is traced. The last element
        fills what is left over.

        >>> jnp.repeat(jnp.arange(2), 2)
        Array([0, 0, 1, 1], dtype=int32)
    """
    a = as_array("repeat", a)
    a, axis = (ravel(a), 0) if axis is None else (ravel(a) if not a.ndim else a, axis)
    axis = canonical_axis(axis, a.ndim)
    length = a.shape[axis]
    if is_symbolic_dim(repeats):
        return _repeat_evenly(a, repeats, axis)
    if total_repeat_length is None:
        counts = np.asarray(repeats)
        if counts.dtype.kind not in "biu":
            raise TypeError(f"repeat: repeats must be integers, got {counts.dtype}")
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
    position = lax.iota(ends.dtype, as_size(total_repeat_length))
    behind = lax.ge(lax.expand_dims(position, (1,)), lax.expand_dims(ends, (0,)))
    index = sum_(behind, 1, dtype=ends.dtype)
    return _take_rows(a, lax.min(index, strong(index, length - 1)), axis)


def _take_rows(a: Array, index: Any, axis: int) -> Array:
    return take(a, asarray(index), axis, mode="clip")


def _repeat_evenly(a: Array, count: int, axis: int) -> Array:
    wide = [*a.shape[: axis + 1], count, *a.shape[axis + 1 :]]
    kept = [i for i in range(a.ndim + 1) if i != axis + 1]
    final = list(a.shape)
    final[axis] *= count
    return lax.reshape(lax.broadcast_in_dim(a, wide, kept), final)


def delete(
    arr: ArrayLike, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False
) -> Array:
    """`arr` without the slices at the positions `obj` along `axis`.

    Args:
      obj: an int, a slice, a mask or an array of ints; concrete unless unique.
      axis: the axis; None means the flattened array.
      assume_unique_indices: promise that no position occurs twice; then `obj` may be traced.

        >>> jnp.delete(jnp.arange(4), 1)
        Array([0, 2, 3], dtype=int32)
    """
    a = as_array("delete", arr)
    if axis is None:
        a, axis = ravel(a), 0
    axis = canonical_axis(axis, a.ndim)
    n = a.shape[axis]
    obj = obj.__jax_array__() if hasattr(obj, "__jax_array__") else obj
    if not isinstance(obj, slice) and not is_arraylike(obj):
        raise TypeError(f"delete: obj must be an integer, a slice or an array, got {obj}")
    if is_symbolic_dim(n) and (isinstance(obj, slice) or is_concrete(obj)):
        return _delete_known(a, obj, axis)
    if isinstance(obj, slice):
        keep = np.delete(np.arange(n), obj)
    elif assume_unique_indices and not is_concrete(obj):
        return _delete_unique(a, as_array("delete", obj), axis)
    else:
        places = np.asarray(obj)
        if places.size and places.dtype.kind not in "biu":
            raise ValueError(f"delete: obj must have integers or booleans, got {places.dtype}")
        if places.dtype != bool and places.size and (places.min() < -n or places.max() >= n):
            raise IndexError(f"index {obj} is out of bounds for axis {axis} with size {n}")
        keep = np.delete(np.arange(n), places)
    return take(a, asarray(keep.astype(np.int32)), axis, mode="clip")


def _delete_known(a: Array, obj: Any, axis: int) -> Array:
    """`delete` at known positions of an axis whose size is symbolic."""
    n: Any = a.shape[axis]
    if not isinstance(obj, slice):
        return _delete_positions(a, np.asarray(obj), axis)
    window: Any = parse((n,), (obj,))[0][0]
    if abs(window.step) == 1:
        start = window.start if window.step > 0 else window.start + 1 - window.count
        return _cut_out(a, start, window.count, axis)
    places = lax.iota(np.dtype("int32"), window.count)
    places = lax.mul(places, strong(places, window.step))
    return _delete_unique(a, lax.add(places, strong(places, window.start)), axis)


def _delete_positions(a: Array, places: np.ndarray, axis: int) -> Array:
    n: Any = a.shape[axis]
    if places.dtype == bool:
        raise IndexError(f"delete: a mask of shape {places.shape} does not fit the axis of {n}")
    if places.size and places.dtype.kind not in "iu":
        raise ValueError(f"delete: obj must have integers or booleans, got {places.dtype}")
    places = np.unique(places)
    if any(not -n <= p < n for p in places.tolist()):
        raise IndexError(f"index {places} is out of bounds for axis {axis} with size {n}")
    if places.size == 1:
        at = places.item()
        return _cut_out(a, at + n if at < 0 else at, 1, axis)
    if places.size and places[0] < 0 <= places[-1]:
        raise InconclusiveDimensionOperation(
            f"delete: whether the positions {places} are different ones depends on the size '{n}': "
            f"count all of them from the same end.{n.scope.described()}"
        )
    return _delete_unique(a, asarray(places.astype(np.int32)), axis)


def _cut_out(a: Array, start: Any, count: Any, axis: int) -> Array:
    before = lax.slice_in_dim(a, 0, start, axis=axis)
    return lax.concatenate([before, lax.slice_in_dim(a, start + count, None, axis=axis)], axis)


def _delete_unique(a: Array, places: Array, axis: int) -> Array:
    n = a.shape[axis]
    flags = lax.full((n,), True, np.dtype(bool)).at[ravel(places)].set(False)
    index = nonzero(flags, size=n - places.size)[0]
    return take(a, index, axis, mode="clip")


def insert(arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None) -> Array:
    """`arr` with `values` put in before the positions `obj` along `axis`.

    >>> jnp.insert(jnp.arange(3), 1, 9)
    Array([0, 9, 1, 2], dtype=int32)
    """
    a, values = as_arrays("insert", arr, asarray(values))
    if axis is None:
        a, axis = ravel(a), 0
    axis = canonical_axis(axis, a.ndim)
    n = a.shape[axis]
    places = _positions(obj, n)
    scalar = places.ndim == 0
    values = convert(values, a.dtype)
    if values.ndim < a.ndim:
        values = lax.reshape(values, (1,) * (a.ndim - values.ndim) + values.shape)
    if scalar and np.ndim(values):
        values = moveaxis(values, 0, axis)
    count = values.shape[axis] if scalar else places.size
    places = broadcast_to(places, (count,))
    shape = list(a.shape)
    shape[axis] = count
    values = broadcast_to(values, tuple(shape))
    steps = lax.iota(np.dtype("int32"), count)
    order = argsort(places, dtype=np.int32)
    slots = lax.full((count,), 0, np.dtype("int32")).at[order].set(lax.add(places[order], steps))
    # Old elements are numbered first, new ones after them; the result gathers from both.
    old = lax.full((n + count,), 1, np.dtype("int32")).at[slots].set(0)
    source = (
        lax.sub(lax.cumsum(old, 0), np.int32(1)).at[slots].set(lax.add(steps, strong(steps, n)))
    )
    return take(concatenate([a, values], axis), source, axis, mode="clip")


def _positions(obj: Any, n: int) -> Array:
    """What `insert` is given as positions along an axis of `n`, counted from its start."""
    if isinstance(obj, slice):
        return asarray(np.arange(n, dtype=np.int32)[obj])
    check_arraylike("insert", [] if obj is None else 0)
    places = asarray(obj)
    if places.dtype == bool:
        return nonzero(places)[0]
    if places.size and not is_kind(places.dtype, np.integer):
        raise ValueError(f"jnp.insert(): index array must be integer typed; got {obj}")
    places = ravel(places) if places.ndim else places
    return _wrapped(convert(places, np.dtype("int32")), n)
