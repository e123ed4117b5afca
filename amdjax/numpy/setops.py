"""Sets of numbers. The size of a result depends on values; `size` fixes it under `jit`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.errors import ConcretizationTypeError
from amdjax.core.trace import is_concrete
from amdjax.numpy import reductions
from amdjax.numpy._util import (
    ArrayLike,
    as_arrays,
    broadcast_to,
    canonical_axis,
    concrete_int,
    constant,
    convert,
    is_kind,
    promote_dtypes,
    scalar_of,
    select,
)
from amdjax.numpy.joining import concatenate
from amdjax.numpy.manipulation import moveaxis, ravel
from amdjax.numpy.selecting import nonzero, take
from amdjax.numpy.sorting import searchsorted


class _UniqueAllResult(NamedTuple):
    """Result of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class _UniqueCountsResult(NamedTuple):
    """Result of `unique_counts`."""

    values: Array
    counts: Array


class _UniqueInverseResult(NamedTuple):
    """Result of `unique_inverse`."""

    values: Array
    inverse_indices: Array


def _number(fill: Any) -> Any:
    return 0 if fill is None else fill


def _known_size(name: str, size: int | None, *arrays: Array) -> None:
    for x in arrays:
        if size is None and not is_concrete(x):
            raise ConcretizationTypeError(
                x,
                f"The size argument of jnp.{name} must be statically specified to use jnp.{name}"
                " within JAX transformations.",
            )


def _row_keys(rows: Array) -> tuple[Array, ...]:
    """Sort keys of the rows of a matrix: complex numbers with a NaN in them are one."""
    if is_kind(rows.dtype, np.complexfloating):
        rows = select(lax.ne(rows, rows), np.asarray(complex(np.nan, np.nan), rows.dtype), rows)
    return tuple(lax.index_in_dim(rows, i, 1, keepdims=False) for i in range(rows.shape[1]))


def _differs(x: Array, equal_nan: bool) -> Array:
    """Whether each row differs from the one before it; the first one does."""
    upper, lower = lax.slice_in_dim(x, 1, None), lax.slice_in_dim(x, 0, x.shape[0] - 1)
    unequal = lax.ne(upper, lower)
    if equal_nan and is_kind(x.dtype, np.inexact):
        both = lax.bitwise_and(lax.ne(upper, upper), lax.ne(lower, lower))
        unequal = lax.bitwise_and(unequal, lax.bitwise_not(both))
    unequal = reductions.any(unequal, axis=tuple(range(1, x.ndim)))
    return lax.concatenate([lax.full((1,), True, np.dtype(bool)), unequal], 0)


def unique(
    ar: ArrayLike, return_index: bool = False, return_inverse: bool = False,
    return_counts: bool = False, axis: int | None = None, *, equal_nan: bool = True,
    size: int | None = None, fill_value: ArrayLike | None = None, sorted: bool = True,
) -> Any:  # fmt: skip
    """The distinct elements in rising order.

    Args:
      ar: array.
      return_index: also return where each first occurs.
      return_inverse: also return for each element the index of its value.
      return_counts: also return how often each occurs.
      axis: compare the slices along this axis; None compares elements.
      equal_nan: whether all NaN are one value.
      size: how many values to return, so that the shape is known under `jit`.
      fill_value: pads the values up to `size`; None means the smallest.
      sorted: accepted; the result is sorted always.

        >>> jnp.unique(jnp.array([3, 1, 3]))
        Array([1, 3], dtype=int32)
    """
    a, _ = as_arrays("unique", ar, 0 if fill_value is None or size is None else fill_value)
    size = None if size is None else concrete_int(size, "size of unique")
    _known_size("unique", size, a)
    shape = a.shape
    rows = ravel(a) if axis is None else moveaxis(a, canonical_axis(axis, a.ndim), 0)
    n = rows.shape[0]
    index = dtypes.default_int_dtype()
    if not rows.size:
        values, first, inverse, counts = _nothing(rows, size, fill_value, index)
    else:
        values, first, inverse, counts = _unique_rows(rows, n, index, equal_nan, size, fill_value)
    if axis is not None:
        values = moveaxis(values, 0, axis)
    if axis is None:
        inverse = lax.reshape(inverse, shape)
    results = [values]
    results += [first] if return_index else []
    results += [inverse] if return_inverse else []
    results += [counts] if return_counts else []
    return tuple(results) if len(results) > 1 else values


def _nothing(rows: Array, size: int | None, fill: Any, index: Any) -> tuple[Array, ...]:
    """Of rows without elements, which are all one, or of no rows."""
    n = rows.shape[0]
    found = min(n, 1)
    if size and fill is None and not n:
        raise ValueError("jnp.unique: for zero-sized input with nonzero size argument, fill_value"
                         " must be specified")  # fmt: skip
    size = found if size is None else size
    return (
        lax.full((size, *rows.shape[1:]), fill or 0, rows.dtype),
        lax.full((size,), 0, index),
        lax.full((n,), 0, index),
        convert(lax.lt(lax.iota(index, size), index.type(found)), index) * scalar_of(n, index),
    )


def _unique_rows(
    rows: Array, n: int, index: Any, equal_nan: bool, size: int | None, fill: Any
) -> tuple[Array, Array, Array, Array]:
    flat = lax.reshape(rows, (n, rows.size // n))
    *_, order = lax.sort(
        (*_row_keys(flat), lax.iota(index, n)), num_keys=flat.shape[1], is_stable=True
    )
    ordered = take(flat, order, 0, mode="clip")
    new = _differs(ordered, equal_nan)
    group = lax.sub(lax.cumsum(convert(new, index), 0), index.type(1))
    inverse = lax.full((n,), 0, index).at[order].set(group, unique_indices=True)
    # One start more than is asked for: it ends the last group that is.
    starts = nonzero(new, size=None if size is None else size + 1, fill_value=n)[0]
    if size is None:
        starts = lax.concatenate([starts, lax.full((1,), n, index)], 0)
    starts, ends = lax.slice_in_dim(starts, 0, -1), lax.slice_in_dim(starts, 1, None)
    counts = lax.sub(ends, starts)
    clipped = lax.min(starts, scalar_of(n - 1, index))
    values = take(take(rows, order, 0, mode="clip"), clipped, 0, mode="clip")
    first = take(order, clipped, 0, mode="clip")
    if size is not None:
        beyond = lax.ge(starts, scalar_of(n, index))
        if not size:
            return values, first, inverse, counts
        padding = lax.index_in_dim(values, 0) if fill is None else convert(fill, values.dtype)
        wide = lax.broadcast_in_dim(beyond, values.shape, (0,))
        values = lax.select(wide, broadcast_to(padding, values.shape), values)
        lead = lax.broadcast_in_dim(lax.index_in_dim(first, 0, keepdims=False), first.shape, ())
        first = lax.select(beyond, lead, first)
    return values, first, inverse, counts


def unique_all(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Any:
    """Distinct elements, first places, inverse and counts; every NaN by itself.

    >>> jnp.unique_all(jnp.array([3, 1, 3])).counts
    Array([1, 2], dtype=int32)
    """
    return _UniqueAllResult(
        *unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_counts(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Any:
    """Distinct elements and how often they occur.

    >>> jnp.unique_counts(jnp.array([3, 1, 3])).counts
    Array([1, 2], dtype=int32)
    """
    return _UniqueCountsResult(
        *unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_inverse(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Any:
    """Distinct elements and the index of each element among them.

    >>> jnp.unique_inverse(jnp.array([3, 1, 3])).inverse_indices
    Array([1, 0, 1], dtype=int32)
    """
    return _UniqueInverseResult(
        *unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value)
    )


def unique_values(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Array:
    """The distinct elements.

    >>> jnp.unique_values(jnp.array([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


def union1d(
    ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Array:
    """The elements of either array, once each, in rising order.

    >>> jnp.union1d(jnp.array([1, 2]), jnp.array([2, 3]))
    Array([1, 2, 3], dtype=int32)
    """
    a, b = as_arrays("union1d", ar1, ar2)
    _known_size("union1d", size, a, b)
    return unique(concatenate([a, b], None), size=size, fill_value=fill_value)


def _flags(a: Array, b: Array, invert: bool) -> Array:
    """Which elements of `a` occur in `b`."""
    flat = ravel(b)
    if not flat.size or not a.size:
        return lax.full(a.shape, invert, np.dtype(bool))
    ordered = lax.sort(flat)
    place = lax.min(searchsorted(ordered, a), scalar_of(flat.size - 1, np.dtype("int32")))
    found = lax.eq(take(ordered, place, 0, mode="clip"), a)
    return lax.bitwise_not(found) if invert else found


def isin(
    element: ArrayLike, test_elements: ArrayLike, assume_unique: bool = False, invert: bool = False,
    *, method: str = "auto",
) -> Array:  # fmt: skip
    """Whether each element occurs in `test_elements`.

    Args:
      element: array.
      test_elements: the set.
      assume_unique: accepted; nothing is gained from it.
      invert: whether it does not occur instead.
      method: accepted; binary search is used always.

        >>> jnp.isin(jnp.arange(4), jnp.array([1, 3]))
        Array([False,  True, False,  True], dtype=bool)
    """
    a, b = promote_dtypes(*as_arrays("isin", element, test_elements))
    return _flags(a, b, invert)


def setdiff1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, *, size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The elements of the first array that the second lacks.

    >>> jnp.setdiff1d(jnp.array([1, 2, 3]), jnp.array([2]))
    Array([1, 3], dtype=int32)
    """
    a, b = as_arrays("setdiff1d", ar1, ar2)
    _known_size("setdiff1d", size, a, b)
    dtype = a.dtype
    a, b = promote_dtypes(ravel(a), ravel(b))
    if size is None:
        values = a if assume_unique else unique(a)
        return convert(values[_flags(values, b, True)], dtype)
    ordered = lax.sort(a) if not assume_unique else a
    keep = _flags(ordered, b, True)
    if not assume_unique and a.size:
        keep = lax.bitwise_and(keep, _differs(ordered, True))
    return convert(_compact(ordered, keep, size, fill_value), dtype)


def _compact(values: Array, keep: Array, size: int, fill: Any) -> Array:
    """The kept values in front, padded with `fill` (None means 0)."""
    if not values.size:
        return lax.full((size,), _number(fill), values.dtype)
    index = nonzero(keep, size=size, fill_value=values.shape[0])[0]
    found = values.at[index].get(mode="clip")
    beyond = lax.ge(index, scalar_of(values.shape[0], index.dtype))
    return select(beyond, convert(0 if fill is None else fill, values.dtype), found)


def intersect1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, return_indices: bool = False, *,
    size: int | None = None, fill_value: ArrayLike | None = None,
) -> Any:  # fmt: skip
    """The elements both arrays have, in rising order.

    Args:
      ar1: array.
      ar2: array.
      assume_unique: promise that neither has an element twice.
      return_indices: also return where they first occur in each array.
      size: how many to return, so that the shape is known under `jit`.
      fill_value: pads the result up to `size`.

        >>> jnp.intersect1d(jnp.array([1, 2, 3]), jnp.array([3, 2]))
        Array([2, 3], dtype=int32)
    """
    a, b = as_arrays("intersect1d", ar1, ar2)
    _known_size("intersect1d", size, a, b)
    a, b = promote_dtypes(ravel(a), ravel(b))
    index = dtypes.default_int_dtype()
    if not a.size or not b.size:
        n = size or 0
        values = lax.full((n,), _number(fill_value), a.dtype)
        return (
            (values, lax.full((n,), a.size, index), lax.full((n,), b.size, index))
            if return_indices
            else values
        )
    ordered, where = lax.sort((a, lax.iota(index, a.size)), num_keys=1, is_stable=True)
    keep = lax.bitwise_and(_flags(ordered, b, False), _differs(ordered, True))
    places = nonzero(keep, size=size, fill_value=a.size)[0]
    values = ordered.at[places].get(mode="fill", fill_value=0 if fill_value is None else fill_value)
    if size is not None and fill_value is None and places.size:
        padded = lax.ge(places, scalar_of(a.size, index))
        lead = lax.broadcast_in_dim(values[0], values.shape, ())
        values = lax.select(padded, lead, values)
    if not return_indices:
        return values
    first = where.at[places].get(mode="fill", fill_value=a.size)
    b_sorted, b_where = lax.sort((b, lax.iota(index, b.size)), num_keys=1, is_stable=True)
    found = searchsorted(b_sorted, values)
    second = b_where.at[found].get(mode="clip")
    second = lax.select(
        lax.ge(places, scalar_of(a.size, index)), lax.full_like(second, b.size), second
    )
    return values, first, second


def setxor1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, *, size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The elements exactly one of the arrays has, in rising order.

    >>> jnp.setxor1d(jnp.array([1, 2]), jnp.array([2, 3]))
    Array([1, 3], dtype=int32)
    """
    a, b = as_arrays("setxor1d", ar1, ar2)
    _known_size("setxor1d", size, a, b)
    a, b = promote_dtypes(ravel(a), ravel(b))
    both = concatenate([a, b])
    origin = concatenate(
        [lax.full(a.shape, 0, np.dtype("int32")), lax.full(b.shape, 1, np.dtype("int32"))]
    )
    if not both.size:
        return lax.full((size or 0,), _number(fill_value), both.dtype)
    ordered, origin = lax.sort((both, origin), num_keys=1)
    keep = _differs(ordered, True)
    if assume_unique:
        last = lax.full((1,), True, np.dtype(bool))
        after = lax.concatenate([lax.slice_in_dim(keep, 1, None), last], 0)
        keep = lax.bitwise_and(keep, after)
    else:
        in_other = lax.select(
            lax.eq(origin, np.int32(0)), _flags(ordered, b, False), _flags(ordered, a, False)
        )
        keep = lax.bitwise_and(lax.bitwise_not(in_other), keep)
    if size is None:
        return ordered[keep]
    if fill_value is None:
        first = ordered[nonzero(keep, size=1)[0][0]]
        fill_value = select(lax.reduce_or(keep, (0,)), first, constant(first, 0))
    return _compact(ordered, keep, size, fill_value)
