"""Rounding, and functions of the parts of floating-point numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    constant,
    convert,
    is_kind,
    promote_args_inexact,
    promote_dtypes_inexact,
    promote_ranks,
    refuse_out,
    select,
    strong,
)
from amdjax.numpy.conversion import asarray
from amdjax.numpy.logic import isneginf, isposinf, signbit

_EVEN = lax.RoundingMethod.TO_NEAREST_EVEN


def _whole(x: ArrayLike, name: str) -> Array | None:
    """`x` if it is of an integer dtype, which rounding leaves alone."""
    x = as_array(name, x)
    return x if is_kind(x.dtype, np.integer) or x.dtype == bool else None


def floor(x: ArrayLike, /) -> Array:
    """The largest integer not above `x`.

    >>> jnp.floor(jnp.array([-1.5, 1.5]))
    Array([-2.,  1.], dtype=float32)
    """
    whole = _whole(x, "floor")
    return lax.floor(*promote_args_inexact("floor", x)) if whole is None else whole


def ceil(x: ArrayLike, /) -> Array:
    """The smallest integer not below `x`.

    >>> jnp.ceil(jnp.array([-1.5, 1.5]))
    Array([-1.,  2.], dtype=float32)
    """
    whole = _whole(x, "ceil")
    return lax.ceil(*promote_args_inexact("ceil", x)) if whole is None else whole


@composite
def _truncate(x: Array) -> Array:
    return select(lax.lt(x, constant(x, 0)), lax.ceil(x), lax.floor(x))


def trunc(x: ArrayLike) -> Array:
    """`x` without its fraction.

    >>> jnp.trunc(jnp.array([-1.5, 1.5]))
    Array([-1.,  1.], dtype=float32)
    """
    whole = _whole(x, "trunc")
    return _truncate(as_array("trunc", x)) if whole is None else whole


fix = trunc


def rint(x: ArrayLike, /) -> Array:
    """The nearest integer, halves to the even one, as a float.

    >>> jnp.rint(jnp.array([0.5, 1.5]))
    Array([0., 2.], dtype=float32)
    """
    x = as_array("rint", x)
    if not is_kind(x.dtype, np.inexact):
        return convert(x, dtypes.default_float_dtype())
    return _round_parts(x)


def _round_parts(x: Array) -> Array:
    if is_kind(x.dtype, np.complexfloating):
        return lax.complex(lax.round(lax.real(x), _EVEN), lax.round(lax.imag(x), _EVEN))
    return lax.round(x, _EVEN)


@composite(static_argnames="decimals")
def _round(x: Array, decimals: int) -> Array:
    if decimals == 0:
        return _round_parts(x)
    if is_kind(x.dtype, np.complexfloating):
        return lax.complex(_round(lax.real(x), decimals), _round(lax.imag(x), decimals))
    small = dtypes.finfo(x.dtype).bits < 32
    wide = convert(x, np.dtype("float32")) if small else x
    if abs(decimals) > dtypes.finfo(wide.dtype).maxexp * math.log10(2):
        return x if decimals > 0 else lax.mul(x, constant(x, 0))
    factor = constant(wide, 10.0**decimals)
    scaled = lax.mul(wide, factor)
    rounded = lax.div(lax.round(scaled, _EVEN), factor)
    # What is too large to be scaled has no digits after the point.
    rounded = lax.select(lax.is_finite(scaled), rounded, wide)
    return convert(rounded, x.dtype, rounded.weak_type)


def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """`a` rounded to a number of decimal places, halves to even.

    Args:
      a: array of numbers.
      decimals: places after the point; for floats, negative ones count before it.
      out: not supported.

    Raises:
      ValueError: `a` is boolean.
      NotImplementedError: `a` is of integers and `decimals` negative.

        >>> jnp.round(jnp.array([1.234, 5.678]), 1)
        Array([1.2, 5.7], dtype=float32)
    """
    refuse_out("round", out)
    a = as_array("round", a)
    try:
        decimals = int(decimals.__index__())
    except AttributeError:
        raise TypeError(
            f"'decimals' argument to jnp.round must be an int, got {decimals!r}"
        ) from None
    if a.dtype == bool:
        raise ValueError("round takes numbers, got an array of bool; data type bool not inexact")
    if is_kind(a.dtype, np.integer):
        if decimals < 0:
            raise NotImplementedError(
                f"integer np.round not implemented for decimals < 0, got {decimals} for {a.dtype}"
            )
        return a
    return _round(a, decimals)


around = round


@composite
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The magnitude of `x1` with the sign of `x2`.

    >>> jnp.copysign(jnp.array([1.0, -2.0]), -1.0)
    Array([-1., -2.], dtype=float32)
    """
    x, y = promote_args_inexact("copysign", x1, x2)
    if is_kind(x.dtype, np.complexfloating):
        raise TypeError("copysign does not support complex-valued inputs")
    return select(signbit(y), lax.neg(lax.abs(x)), lax.abs(x))


def nextafter(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The next representable number after `x` toward `y`.

    >>> bool(jnp.nextafter(1.0, 2.0) > 1.0)
    True
    """
    return lax.nextafter(*promote_args_inexact("nextafter", x, y))


def spacing(x: ArrayLike, /) -> Array:
    """The distance from `x` to the next number away from zero.

    >>> jnp.spacing(1.0)
    Array(1.1920929e-07, dtype=float32)
    """
    (x,) = promote_args_inexact("spacing", x)
    if not is_kind(x.dtype, np.floating):
        raise ValueError(f"jnp.spacing is not defined for {x.dtype}.")
    outward = select(signbit(x), strong(x, -np.inf), strong(x, np.inf))
    if x.dtype == np.float16:
        outward = lax.full_like(outward, np.inf)  # as in NumPy, of halves alone
    x = convert(x, x.dtype)
    return lax.sub(lax.nextafter(x, outward), x)


@composite
def modf(x: ArrayLike, /, out: None = None) -> tuple[Array, Array]:
    """The fractional and the integral part, both with the sign of `x`.

    >>> jnp.modf(jnp.array([1.5, -2.25]))
    (Array([ 0.5 , -0.25], dtype=float32), Array([ 1., -2.], dtype=float32))
    """
    refuse_out("modf", out)
    (x,) = promote_args_inexact("modf", x)
    if is_kind(x.dtype, np.complexfloating):
        raise TypeError("modf does not support complex-valued inputs")
    whole = _truncate(x)
    return lax.sub(x, whole), whole


def _layout(dtype: Any) -> tuple[int, int, np.dtype]:
    """Bits of the significand, exponent bias, and the integer type of the same width."""
    info = dtypes.finfo(dtype)
    return info.nmant, 1 - info.minexp, np.dtype(f"int{info.bits}")


@composite
def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """Mantissa in [0.5, 1) and exponent with `x = mantissa * 2**exponent`.

    >>> jnp.frexp(jnp.array([1.0, 10.0]))
    (Array([0.5  , 0.625], dtype=float32), Array([1, 4], dtype=int32))
    """
    (x,) = promote_args_inexact("frexp", x)
    if is_kind(x.dtype, np.complexfloating):
        raise TypeError("frexp does not support complex-valued inputs")
    digits, bias, word = _layout(x.dtype)
    mask = np.array((1 << (dtypes.finfo(x.dtype).bits - 1 - digits)) - 1, word)
    shift = np.array(digits, word)
    # Subnormal numbers are scaled into the normal range first.
    tiny = lax.lt(lax.abs(x), constant(x, dtypes.finfo(x.dtype).tiny))
    scaled = select(tiny, lax.mul(x, constant(x, 2.0 ** (digits + 1))), x)
    bits = lax.bitcast_convert_type(scaled, word)
    field = lax.bitwise_and(lax.shift_right_logical(bits, shift), mask)
    exponent = lax.sub(field, np.array(bias - 1, word))
    exponent = select(tiny, lax.sub(exponent, np.array(digits + 1, word)), exponent)
    special = lax.bitwise_or(lax.eq(x, constant(x, 0)), lax.bitwise_not(lax.is_finite(x)))
    exponent = convert(select(special, np.array(0, word), exponent), np.dtype("int32"))
    # A product with a power of two is exact and, other than what is made of bits, has a derivative.
    return _scaled(x, lax.neg(exponent)), exponent


@composite
def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`x1 * 2**x2`, without overflow of the power.

    >>> jnp.ldexp(jnp.array([1.0, 0.75]), 3)
    Array([8., 6.], dtype=float32)
    """
    exponent = as_array("ldexp", x2)
    if exponent.dtype == bool:
        exponent = convert(exponent, np.dtype("int32"))
    if not is_kind(exponent.dtype, np.integer):
        raise ValueError(f"ldexp not supported for input types {(np.result_type(exponent.dtype))}")
    (x,) = promote_dtypes_inexact(as_array("ldexp", x1))
    if is_kind(x.dtype, np.complexfloating):
        raise ValueError("ldexp does not support complex-valued inputs")
    return _scaled(*promote_ranks("ldexp", x, convert(exponent, np.dtype("int32"))))


def _scaled(x: Array, exponent: Array) -> Array:
    """`x * 2**exponent`, not weakly typed; its gradient is as weak as `x`."""
    x = convert(x, x.dtype)
    _, bias, _ = _layout(x.dtype)
    # Three factors, each representable, cover every exponent that does not over- or underflow.
    limit = np.array(bias - 1, np.int32)
    for _ in range(3):
        step = lax.max(lax.min(exponent, limit), np.negative(limit))
        x = lax.mul(x, _power_of_two(step, x.dtype))
        exponent = lax.sub(exponent, step)
    return x


def _power_of_two(exponent: Array, dtype: Any) -> Array:
    """2**exponent for exponents of normal numbers, from its bits."""
    digits, bias, word = _layout(dtype)
    field = lax.add(convert(exponent, word), np.array(bias, word))
    return lax.bitcast_convert_type(lax.shift_left(field, np.array(digits, word)), np.dtype(dtype))


@composite(static_argnames="copy")
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Array:
    """NaN and infinities replaced by numbers.

    Args:
      copy: ignored; arrays are immutable.
      nan: replaces NaN.
      posinf: replaces +inf; None means the largest number of the dtype.
      neginf: replaces -inf; None means the smallest.

        >>> jnp.nan_to_num(jnp.array([1.0, jnp.nan]))
        Array([1., 0.], dtype=float32)
    """
    x = as_array("nan_to_num", x)
    if not is_kind(x.dtype, np.inexact):
        return x
    if is_kind(x.dtype, np.complexfloating):
        parts = (nan_to_num(part(x), copy, nan, posinf, neginf) for part in (lax.real, lax.imag))
        return lax.complex(*parts)
    info = dtypes.finfo(x.dtype)
    replace = lambda value, limit: asarray(limit if value is None else value, x.dtype)
    result = select(lax.ne(x, x), asarray(nan, x.dtype), x)
    result = select(isposinf(result), replace(posinf, float(info.max)), result)
    return select(isneginf(result), replace(neginf, float(info.min)), result)
