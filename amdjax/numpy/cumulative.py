"""Running sums and products, differences and integrals along an axis."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import (
    ArrayLike,
    Axis,
    DTypeLike,
    as_array,
    broadcast_to,
    canonical_axes,
    canonical_axis,
    convert,
    is_kind,
    promote_dtypes,
    promote_dtypes_inexact,
    refuse_out,
    scalar_of,
    select,
    user_dtype,
)
from amdjax.numpy.reductions import _sum_dtype, sum as sum_


def _cumulative(
    name: str, fn: Callable[..., Array], a: ArrayLike, axis: int | None, dtype: DTypeLike,
    out: None, fill_nan: Any = None,
) -> Array:  # fmt: skip
    refuse_out(name, out)
    a = as_array(name, a)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    elif isinstance(axis, (tuple, complex)):
        raise TypeError(f"axis argument of {name} must be an integer or None, got {axis!r}")
    elif not isinstance(axis, (int, np.integer)):
        raise ValueError(f"axis argument of {name} must be an integer or None, got {axis!r}")
    axis = canonical_axis(axis, a.ndim)
    if dtype is None:
        dtype = dtypes.default_int_dtype() if a.dtype == bool else a.dtype
    else:
        dtype = user_dtype(dtype, name)
    if fill_nan is not None and is_kind(a.dtype, np.inexact):
        a = select(lax.ne(a, a), np.asarray(fill_nan, a.dtype), a)
    if dtype == np.bool_:
        nonzero = convert(lax.ne(a, np.zeros((), a.dtype)), np.dtype("int32"))
        return lax.ne(fn(nonzero, axis), np.int32(0))
    return fn(convert(a, dtype), axis)


def cumsum(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: None = None
) -> Array:
    """The running sum along `axis`, or over the flattened array.

    >>> jnp.cumsum(jnp.array([1, 2, 3]))
    Array([1, 3, 6], dtype=int32)
    """
    return _cumulative("cumsum", lax.cumsum, a, axis, dtype, out)


def cumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: None = None
) -> Array:
    """The running product along `axis`, or over the flattened array.

    >>> jnp.cumprod(jnp.array([1, 2, 3]))
    Array([1, 2, 6], dtype=int32)
    """
    return _cumulative("cumprod", lax.cumprod, a, axis, dtype, out)


def nancumsum(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: None = None
) -> Array:
    """The running sum along `axis`, NaN counting as zero.

    >>> jnp.nancumsum(jnp.array([1.0, jnp.nan, 2.0]))
    Array([1., 1., 3.], dtype=float32)
    """
    return _cumulative("nancumsum", lax.cumsum, a, axis, dtype, out, 0)


def nancumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: None = None
) -> Array:
    """The running product along `axis`, NaN counting as one.

    >>> jnp.nancumprod(jnp.array([2.0, jnp.nan, 3.0]))
    Array([2., 2., 6.], dtype=float32)
    """
    return _cumulative("nancumprod", lax.cumprod, a, axis, dtype, out, 1)


def _include_initial(name: str, result: Array, axis: int, value: int, include: bool) -> Array:
    if not include:
        return result
    shape = list(result.shape)
    shape[axis] = 1
    return lax.concatenate([lax.full(shape, value, result.dtype), result], axis)


def _array_api(
    name: str, fn: Callable[..., Array], x: ArrayLike, axis: int | None, dtype: DTypeLike,
    include_initial: bool, start: int,
) -> Array:  # fmt: skip
    x = as_array(name, x)
    if x.ndim == 0:
        raise ValueError(f"The input must be non-scalar to take a {name.replace('_', ' ')}")
    if axis is None:
        if x.ndim > 1:
            raise ValueError(
                f"The input array has rank {x.ndim}, however the axis of {name} was not given; only"
                " for vectors it may be left out."
            )
        axis = 0
    axis = canonical_axis(axis, x.ndim)
    if dtype is None and fn is cumsum:
        dtype = _sum_dtype(x.dtype, True)
    return _include_initial(name, fn(x, axis, dtype), axis, start, include_initial)


def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike = None,
    include_initial: bool = False,
) -> Array:  # fmt: skip
    """The running sum along `axis`, optionally with a leading zero.

    >>> jnp.cumulative_sum(jnp.array([1, 2]), include_initial=True)
    Array([0, 1, 3], dtype=int32)
    """
    return _array_api("cumulative_sum", cumsum, x, axis, dtype, include_initial, 0)


def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike = None,
    include_initial: bool = False,
) -> Array:  # fmt: skip
    """The running product along `axis`, optionally with a leading one.

    >>> jnp.cumulative_prod(jnp.array([2, 3]), include_initial=True)
    Array([1, 2, 6], dtype=int32)
    """
    return _array_api("cumulative_prod", cumprod, x, axis, dtype, include_initial, 1)


def diff(
    a: ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Array:
    """The `n`-th difference between neighbors along `axis`.

    Args:
      a: array with at least one axis.
      n: how often to take differences.
      axis: the axis to go along.
      prepend: put before `a`; a scalar or an array that fits along the other axes.
      append: put after it.

        >>> jnp.diff(jnp.array([1, 4, 9, 16]))
        Array([3, 5, 7], dtype=int32)
    """
    a = as_array("diff", a)
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if a.ndim == 0:
        raise ValueError(f"diff requires input that is at least one dimensional; got {a}")
    axis = canonical_axis(axis, a.ndim)
    parts = [a]
    for extra, where in ((prepend, 0), (append, len(parts) + 1)):
        if extra is None:
            continue
        extra = as_array("diff", extra)
        if extra.ndim == 0:
            shape = list(a.shape)
            shape[axis] = 1
            extra = broadcast_to(extra, shape)
        parts.insert(where, extra)
    if len(parts) > 1:
        a = lax.concatenate(promote_dtypes(*parts), axis)
    length = a.shape[axis]
    for _ in range(n):
        if length == 0:
            break
        upper = lax.slice_in_dim(a, 1, None, axis=axis)
        lower = lax.slice_in_dim(a, 0, length - 1, axis=axis)
        a = lax.ne(upper, lower) if a.dtype == bool else lax.sub(upper, lower)
        length -= 1
    return a


def ediff1d(
    ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None
) -> Array:
    """The differences between neighbors of the flattened array.

    >>> jnp.ediff1d(jnp.array([1, 4, 9]), to_begin=0)
    Array([0, 3, 5], dtype=int32)
    """
    a = as_array("ediff1d", ary)
    if a.dtype == bool:
        raise TypeError("ediff1d: booleans cannot be subtracted")
    result = diff(lax.reshape(a, (a.size,)))
    parts = [result]
    if to_begin is not None:
        to_begin = as_array("ediff1d", to_begin)
        parts.insert(0, convert(lax.reshape(to_begin, (to_begin.size,)), a.dtype))
    if to_end is not None:
        to_end = as_array("ediff1d", to_end)
        parts.append(convert(lax.reshape(to_end, (to_end.size,)), a.dtype))
    return lax.concatenate(parts, 0) if len(parts) > 1 else result


@composite(static_argnames="axis")
def _gradient_along(a: Array, h: Any, axis: int) -> Array:
    """Second order central differences inside, one-sided ones at both ends."""
    at = functools.partial(lax.slice_in_dim, a, axis=axis)
    n = a.shape[axis]
    if n < 2:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least 2 elements are"
            " required."
        )
    first, last = lax.sub(at(1, 2), at(0, 1)), lax.sub(at(n - 1, n), at(n - 2, n - 1))
    if h.ndim == 0:
        inner = lax.mul(lax.sub(at(2, n), at(0, n - 2)), np.asarray(0.5, a.dtype))
        return lax.div(lax.concatenate([first, inner, last], axis), h)
    shape = [1] * a.ndim
    shape[axis] = n - 1
    step = lax.reshape(diff(h), shape)
    left, right = (
        lax.slice_in_dim(step, 0, n - 2, axis=axis),
        lax.slice_in_dim(step, 1, n - 1, axis=axis),
    )
    both = lax.add(left, right)
    weights = (
        lax.div(lax.neg(right), lax.mul(left, both)),
        lax.div(lax.sub(right, left), lax.mul(left, right)),
        lax.div(left, lax.mul(right, both)),
    )
    terms = [lax.mul(at(i, n - 2 + i), weight) for i, weight in enumerate(weights)]
    inner = lax.add(lax.add(terms[0], terms[1]), terms[2])
    first = lax.div(first, lax.slice_in_dim(step, 0, 1, axis=axis))
    last = lax.div(last, lax.slice_in_dim(step, n - 2, n - 1, axis=axis))
    return lax.concatenate([first, inner, last], axis)


def gradient(
    f: ArrayLike, *varargs: ArrayLike, axis: Axis = None, edge_order: int | None = None
) -> Any:
    """The derivative of a sampled function along one or several axes.

    Args:
      f: samples.
      varargs: nothing for unit spacing, one scalar for all axes, or for each axis a scalar spacing
        or an array of coordinates.
      axis: the axes; None means all.
      edge_order: only 1, one-sided differences at the ends.

    Returns:
      An array, or a list with one array for each axis if there are several.

        >>> jnp.gradient(jnp.array([1.0, 4.0, 9.0, 16.0]))
        Array([3., 4., 6., 7.], dtype=float32)
    """
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to jnp.gradient is not supported.")
    a, *spacing = promote_dtypes_inexact(as_array("gradient", f), *varargs)
    axes = canonical_axes(axis, a.ndim)
    if not spacing:
        spacing = [scalar_of(1.0, a.dtype, weak=True)] * len(axes)
    elif len(spacing) == 1 and spacing[0].ndim == 0:
        spacing = spacing * len(axes)
    if len(spacing) != len(axes):
        raise TypeError(f"Invalid number of spacing arguments {len(spacing)} for {axes=}")
    for h, i in zip(spacing, axes, strict=True):
        if h.ndim > 1 or (h.ndim == 1 and h.shape[0] != a.shape[i]):
            raise ValueError("when 1d, distances must match the length of the axis")
    results = [_gradient_along(a, h, i) for h, i in zip(spacing, axes, strict=True)]
    return results[0] if len(results) == 1 else results


@composite(static_argnames="axis")
def trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
) -> Array:
    """The integral of samples along `axis` by the trapezoidal rule.

    Args:
      y: samples.
      x: where they were taken; None means at distance `dx`.
      dx: the spacing; an array broadcasts against the gaps between the samples.
      axis: the axis to integrate over.

        >>> jnp.trapezoid(jnp.array([1.0, 2.0, 3.0]))
        Array(4., dtype=float32)
    """
    if x is None:
        (y,) = promote_dtypes_inexact(as_array("trapezoid", y))
        y, width = promote_dtypes(y, as_array("trapezoid", dx))
        axis = canonical_axis(axis, y.ndim)
        if not width.ndim and y.shape[axis]:
            end = lambda i: lax.index_in_dim(y, i, axis, keepdims=False)
            ends = lax.mul(np.asarray(0.5, y.dtype), lax.add(end(0), end(-1)))
            return lax.mul(width, lax.sub(sum_(y, axis), ends))
    else:
        y, x = promote_dtypes_inexact(as_array("trapezoid", y), as_array("trapezoid", x))
        width = diff(x, axis=axis if x.ndim > 1 else -1)
        axis = canonical_axis(axis, y.ndim)
        if x.ndim == 1:
            width = lax.reshape(width, (width.size, *(1,) * (y.ndim - 1 - axis)))
    gaps = lax.add(lax.slice_in_dim(y, 1, None, axis=axis), lax.slice_in_dim(y, 0, -1, axis=axis))
    rank = max(width.ndim, gaps.ndim)
    areas = lax.mul(lax.broadcast_to_rank(width, rank), lax.broadcast_to_rank(gaps, rank))
    return lax.mul(sum_(areas, axis), np.asarray(0.5, y.dtype))
