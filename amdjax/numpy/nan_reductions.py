"""Reductions that leave NaN out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy import reductions
from amdjax.numpy._util import (
    ArrayLike,
    Axis,
    DTypeLike,
    as_array,
    broadcast_to,
    canonical_axes,
    constant,
    convert,
    is_kind,
    refuse_out,
    select,
    user_dtype,
)


def _filled(a: Array, value: Any) -> tuple[Array, Array | None]:
    """`a` with NaN replaced, and where it was; nothing to do for integers."""
    if not is_kind(a.dtype, np.inexact):
        return a, None
    missing = lax.ne(a, a)
    return select(missing, constant(a, value), a), missing


def _total(
    name: str, fn: Callable[..., Array], neutral: int, a: ArrayLike, axis: Axis, dtype: DTypeLike,
    out: None, keepdims: bool, initial: Any, where: Any,
) -> Array:  # fmt: skip
    refuse_out(name, out)
    if where is not None:
        reductions._as_bool(name, where)
    filled, _ = _filled(as_array(name, a), neutral)
    return fn(filled, axis, dtype, None, keepdims, initial, where)


def nansum(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The sum along `axis`, NaN counting as zero.

    >>> jnp.nansum(jnp.array([1.0, jnp.nan, 2.0]))
    Array(3., dtype=float32)
    """
    return _total("nansum", reductions.sum, 0, a, axis, dtype, out, keepdims, initial, where)


def nanprod(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, out: None = None,
    keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The product along `axis`, NaN counting as one.

    >>> jnp.nanprod(jnp.array([2.0, jnp.nan, 3.0]))
    Array(6., dtype=float32)
    """
    return _total("nanprod", reductions.prod, 1, a, axis, dtype, out, keepdims, initial, where)


def _extremum(
    name: str, fn: Callable[..., Array], worst: float, a: ArrayLike, axis: Axis, out: None,
    keepdims: bool, initial: Any, where: Any,
) -> Array:  # fmt: skip
    refuse_out(name, out)
    if where is not None:
        reductions._as_bool(name, where)
    a = as_array(name, a)
    filled, missing = _filled(a, worst)
    result = fn(filled, axis, None, keepdims, initial, where)
    if missing is None or initial is not None:
        return result
    return select(
        reductions.all(missing, axis, keepdims=keepdims), constant(result, np.nan), result
    )


def nanmax(
    a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The largest element along `axis`, NaN left out; NaN if there is nothing else.

    >>> jnp.nanmax(jnp.array([1.0, jnp.nan, 2.0]))
    Array(2., dtype=float32)
    """
    return _extremum("nanmax", reductions.max, -np.inf, a, axis, out, keepdims, initial, where)


def nanmin(
    a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False,
    initial: ArrayLike | None = None, where: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The smallest element along `axis`, NaN left out; NaN if there is nothing else.

    >>> jnp.nanmin(jnp.array([1.0, jnp.nan, 2.0]))
    Array(1., dtype=float32)
    """
    return _extremum("nanmin", reductions.min, np.inf, a, axis, out, keepdims, initial, where)


def _position(
    fn: Callable[..., Array], worst: float, a: Array, axis: int | None, keepdims: Any
) -> Array:
    filled, missing = _filled(a, worst)
    result = fn(filled, axis, None, keepdims)
    if missing is None:
        return result
    nothing = reductions.all(missing, axis, keepdims=bool(keepdims))
    return select(nothing, constant(result, -1), result)


def nanargmax(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """The index of the largest element along `axis`, NaN left out; -1 if there is nothing else.

    >>> jnp.nanargmax(jnp.array([1.0, jnp.nan, 2.0]))
    Array(2, dtype=int32)
    """
    refuse_out("nanargmax", out)
    return _position(reductions.argmax, -np.inf, as_array("nanargmax", a), axis, keepdims)


def nanargmin(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """The index of the smallest element along `axis`, NaN left out; -1 if there is nothing else.

    >>> jnp.nanargmin(jnp.array([1.0, jnp.nan, 2.0]))
    Array(0, dtype=int32)
    """
    refuse_out("nanargmin", out)
    return _position(reductions.argmin, np.inf, as_array("nanargmin", a), axis, keepdims)


def _present(a: Array, where: Array | None) -> Array:
    """Which elements count."""
    present = lax.eq(a, a)
    return present if where is None else lax.bitwise_and(*_same_shape(present, where))


def _same_shape(x: Array, y: Array) -> tuple[Array, Array]:
    shape = lax.broadcast_shapes(x.shape, y.shape)
    return broadcast_to(x, shape), broadcast_to(y, shape)


def nanmean(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, out: None = None,
    keepdims: bool = False, where: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The mean along `axis`, NaN left out.

    >>> jnp.nanmean(jnp.array([1.0, jnp.nan, 3.0]))
    Array(2., dtype=float32)
    """
    refuse_out("nanmean", out)
    a = as_array("nanmean", a)
    if not is_kind(a.dtype, np.inexact):
        return reductions.mean(a, axis, dtype, None, keepdims, where=where)
    mask = None if where is None else reductions._as_bool("nanmean", where)
    dtype = None if dtype is None else user_dtype(dtype, "nanmean")
    return _nanmean(a, mask, reductions._static(axis), dtype, keepdims)


@composite(static_argnames=("axis", "dtype", "keepdims"))
def _nanmean(a: Array, where: Array | None, axis: Axis, dtype: Any, keepdims: bool) -> Array:
    result = a.dtype if dtype is None else dtype
    present = _present(a, where)
    count = reductions.sum(present, axis, dtype=np.int32, keepdims=keepdims)
    total = nansum(a, axis, result, None, keepdims, None, where)
    return lax.div(total, convert(count, result))


def nanvar(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, where: ArrayLike | None = None, mean: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The variance along `axis`, NaN left out; arguments as for `var`.

    >>> jnp.nanvar(jnp.array([1.0, jnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    refuse_out("nanvar", out)
    a = as_array("nanvar", a)
    if not is_kind(a.dtype, np.inexact):
        return reductions.var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean)
    if dtype is not None:
        dtype = user_dtype(dtype, "nanvar")
        if is_kind(a.dtype, np.complexfloating) and not is_kind(dtype, np.complexfloating):
            raise ValueError(f"nanvar of complex numbers as the real dtype {dtype}")
    mask = None if where is None else reductions._as_bool("nanvar", where)
    mean = None if mean is None else as_array("nanvar", mean)
    return _nanvar(a, mask, mean, reductions._static(axis), dtype, float(ddof), keepdims)


@composite(static_argnames=("axis", "dtype", "ddof", "keepdims"))
def _nanvar(
    a: Array, where: Array | None, mean: Array | None, axis: Axis, dtype: Any, ddof: float,
    keepdims: bool,
) -> Array:  # fmt: skip
    result = a.dtype if dtype is None else dtype
    compute = reductions._wide(result)
    if is_kind(a.dtype, np.complexfloating) and not is_kind(compute, np.complexfloating):
        compute = dtypes.to_complex_dtype(compute)
    axes = canonical_axes(axis, a.ndim)
    present = _present(a, where)
    a = convert(a, compute)
    mean = _nanmean(a, where, axes, None, True) if mean is None else convert(mean, compute)
    centered = lax.sub(a, broadcast_to(mean, a.shape))
    # Before the square, whose derivative at NaN is NaN, and NaN it stays when multiplied by zero.
    centered = select(present, centered, constant(centered, 0))
    if is_kind(compute, np.complexfloating):
        squares = lax.add(lax.square(lax.real(centered)), lax.square(lax.imag(centered)))
        result = dtypes.finfo(result).dtype if dtype is None else result
    else:
        squares = lax.square(centered)
    total = reductions.sum(squares, axes, keepdims=keepdims)
    count = reductions.sum(present, axes, dtype=squares.dtype, keepdims=keepdims)
    free = lax.sub(count, constant(count, ddof))
    usable = lax.gt(free, constant(free, 0))
    value = select(usable, lax.div(total, free), constant(free, np.nan))
    return convert(value, result)


def nanstd(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike = None, out: None = None, ddof: float = 0,
    keepdims: bool = False, where: ArrayLike | None = None, mean: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The standard deviation along `axis`, NaN left out; arguments as for `std`.

    >>> jnp.nanstd(jnp.array([1.0, jnp.nan, 3.0]))
    Array(1., dtype=float32)
    """
    if where is not None:
        reductions._as_bool("nanstd", where)
    return lax.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))
