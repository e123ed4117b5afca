"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._public import float_function
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    as_arrays,
    constant,
    convert,
    is_kind,
    promote_args_inexact,
    select,
    strong,
)
from amdjax.numpy.logic import signbit
from amdjax.numpy.logsumexp import logsumexp
from amdjax.numpy.ufunc_api import ufunc_of
from amdjax.transforms import custom_jvp

exp = float_function("exp", lax.exp, "The exponential function.", "1.0", "2.7182817")
exp2 = float_function("exp2", lax.exp2, "Two to the power `x`.", "3.0", "8.")
expm1 = float_function("expm1", lax.expm1, "`exp(x) - 1`, accurate near zero.", "1e-10", "1.e-10")
log = float_function("log", lax.log, "The natural logarithm.", "4.0", "1.3862944")
log1p = float_function("log1p", lax.log1p, "`log(1 + x)`, accurate near zero.", "1e-10", "1.e-10")


@composite
def log2(x: ArrayLike, /) -> Array:
    """The logarithm to base 2, exact at powers of two.

    >>> jnp.log2(jnp.array([1.0, 8.0]))
    Array([0., 3.], dtype=float32)
    """
    (x,) = promote_args_inexact("log2", x)
    if is_kind(x.dtype, np.complexfloating):
        return _complex_log(x, np.log(2))
    return lax.div(lax.log(x), strong(x, np.log(2)))


@composite
def log10(x: ArrayLike, /) -> Array:
    """The logarithm to base 10.

    >>> jnp.log10(jnp.array([1.0, 100.0]))
    Array([0., 2.], dtype=float32)
    """
    (x,) = promote_args_inexact("log10", x)
    if is_kind(x.dtype, np.complexfloating):
        return _complex_log(x, np.log(10))
    return lax.div(lax.log(x), strong(x, np.log(10)))


def _complex_log(x: Array, scale: float) -> Array:
    """The parts divided each by itself: a complex quotient would mix infinities into NaN."""
    value = lax.log(convert(x, x.dtype))
    real, imag = lax.real(value), lax.imag(value)
    factor = constant(real, scale)
    return lax.complex(lax.div(real, factor), lax.div(imag, factor))


sqrt = float_function("sqrt", lax.sqrt, "The square root.", "9.0", "3.")
cbrt = float_function("cbrt", lax.cbrt, "The real cube root.", "-27.0", "-3.")
sin = float_function("sin", lax.sin, "The sine of an angle in radians.", "0.0", "0.")
cos = float_function("cos", lax.cos, "The cosine of an angle in radians.", "1.0", "0.5403023")
tan = float_function("tan", lax.tan, "The tangent of an angle in radians.", "0.0", "0.")
arcsin = float_function(
    "arcsin", lax.asin, "The angle in [-π/2, π/2] whose sine is `x`.", "0.0", "0."
)
arccos = float_function("arccos", lax.acos, "The angle in [0, π] whose cosine is `x`.", "1.0", "0.")
arctan = float_function(
    "arctan", lax.atan, "The angle in (-π/2, π/2) whose tangent is `x`.", "0.0", "0."
)


def arctan2(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The angle in (-π, π] of the point `(x2, x1)`.

    >>> jnp.arctan2(0.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return lax.atan2(*promote_args_inexact("arctan2", x1, x2))


sinh = float_function("sinh", lax.sinh, "The hyperbolic sine.", "0.0", "0.")
cosh = float_function("cosh", lax.cosh, "The hyperbolic cosine.", "0.0", "1.")
tanh = float_function("tanh", lax.tanh, "The hyperbolic tangent.", "1.0", "0.7615942")
arcsinh = float_function("arcsinh", lax.asinh, "The inverse of the hyperbolic sine.", "0.0", "0.")


def arccosh(x: ArrayLike, /) -> Array:
    """The inverse of the hyperbolic cosine; for complex numbers the branch with real part ≥ 0.

    >>> jnp.arccosh(1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    (x,) = promote_args_inexact("arccosh", x)
    result = lax.acosh(x)
    if is_kind(x.dtype, np.complexfloating):
        zero = constant(lax.real(result), 0)
        result = select(lax.lt(lax.real(result), zero), lax.neg(result), result)
    return result


arctanh = float_function(
    "arctanh", lax.atanh, "The inverse of the hyperbolic tangent.", "0.0", "0."
)


asin, acos, atan, atan2 = arcsin, arccos, arctan, arctan2
asinh, acosh, atanh = arcsinh, arccosh, arctanh


def deg2rad(x: ArrayLike, /) -> Array:
    """Degrees as radians.

    >>> jnp.deg2rad(180.0)
    Array(3.1415927, dtype=float32, weak_type=True)
    """
    (x,) = promote_args_inexact("deg2rad", x)
    return lax.mul(x, constant(x, np.pi / 180))


def rad2deg(x: ArrayLike, /) -> Array:
    """Radians as degrees.

    >>> jnp.rad2deg(jnp.pi)
    Array(180., dtype=float32, weak_type=True)
    """
    (x,) = promote_args_inexact("rad2deg", x)
    return lax.mul(x, constant(x, 180 / np.pi))


degrees, radians = rad2deg, deg2rad


@composite
def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """`sqrt(x1² + x2²)` without overflow of the squares.

    >>> jnp.hypot(3.0, 4.0)
    Array(5., dtype=float32, weak_type=True)
    """
    x, y = promote_args_inexact("hypot", x1, x2)
    if is_kind(x.dtype, np.complexfloating):
        raise ValueError("jnp.hypot is not well defined for complex-valued inputs.")
    infinite = lax.bitwise_or(
        lax.eq(lax.abs(x), constant(x, np.inf)), lax.eq(lax.abs(y), constant(x, np.inf))
    )
    x, y = lax.abs(x), lax.abs(y)
    large, small = lax.max(x, y), lax.min(x, y)
    zero, one = constant(x, 0), constant(x, 1)
    ratio = lax.div(small, select(lax.eq(large, zero), one, large))
    value = lax.mul(large, lax.sqrt(lax.add(one, lax.square(ratio))))
    value = select(lax.eq(large, zero), large, value)
    return select(infinite, constant(x, np.inf), value)


def _logaddexp(x: Array, y: Array, exp: Any, log1p: Any) -> Array:
    """log(e^x + e^y) with the larger exponent taken out; equal infinities stay what they are."""
    distance = lax.sub(x, y)
    value = lax.add(lax.max(x, y), log1p(exp(lax.neg(lax.abs(distance)))))
    return select(lax.ne(distance, distance), lax.add(x, y), value)


def _complex_logaddexp(x: Array, y: Array) -> Array:
    """The same of complex numbers, the larger by its real part."""
    swap = lax.gt(lax.real(x), lax.real(y))
    large, small = select(swap, x, y), select(swap, y, x)
    distance = lax.sub(small, large)
    nan = lax.ne(lax.real(distance), lax.real(distance))
    value = select(nan, lax.add(x, y), lax.add(large, lax.log1p(lax.exp(distance))))
    # The phase in [-π, π).
    pi = constant(lax.imag(value), np.pi)
    turn = lax.imag(value)
    full = lax.mul(pi, constant(pi, 2))
    turn = lax.sub(turn, lax.mul(full, lax.floor(lax.div(lax.add(turn, pi), full))))
    return lax.complex(lax.real(value), turn)


@custom_jvp
def _logaddexp_e(x: Array, y: Array) -> Array:
    if is_kind(x.dtype, np.complexfloating):
        return _complex_logaddexp(x, y)
    return _logaddexp(x, y, lax.exp, lax.log1p)


@custom_jvp
def _logaddexp_2(x: Array, y: Array) -> Array:
    ln2 = constant(x, np.log(2))
    if is_kind(x.dtype, np.complexfloating):
        return lax.div(_complex_logaddexp(lax.mul(x, ln2), lax.mul(y, ln2)), ln2)
    return _logaddexp(x, y, lax.exp2, lambda v: lax.div(lax.log1p(v), ln2))


def _logaddexp_jvp(exp: Any, function: Any) -> Any:
    """Each tangent weighs with its share e^(x - result) of the sum."""

    def jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
        # Values may still be Python numbers here.
        primals = as_arrays("logaddexp", *primals)
        result = function(*primals)

        def finite(v: Array) -> Array:
            # Where the sum is infinite the share is 1, as in JAX.
            real = lax.real(v) if is_kind(v.dtype, np.complexfloating) else v
            return select(lax.eq(real, constant(real, np.inf)), lax.full_like(v, 0), v)

        def share(x: Array, t: Array) -> Array:
            return lax.mul(t, exp(lax.sub(finite(x), finite(result))))

        terms = [share(x, t) for x, t in zip(primals, tangents, strict=True)]
        return result, lax.add(*terms)

    return jvp


_logaddexp_e.defjvp(_logaddexp_jvp(lax.exp, _logaddexp_e))
_logaddexp_2.defjvp(_logaddexp_jvp(lax.exp2, _logaddexp_2))


def _reduce_logaddexp(a: ArrayLike, *, base2: bool = False, **options: Any) -> Array:
    dtype = options.pop("dtype", None)
    initial = options.pop("initial", None)
    (a,) = promote_args_inexact("logaddexp", a if dtype is None else convert(a, dtype))
    scale = constant(a, np.log(2)) if base2 else None
    a = a if scale is None else lax.mul(a, scale)
    result = logsumexp(a, **options)
    result = result if scale is None else lax.div(result, scale)
    if initial is None:
        return result
    return (logaddexp2 if base2 else logaddexp)(initial, result)


@ufunc_of(name="logaddexp", identity=-np.inf, reduce=_reduce_logaddexp)
@composite
def logaddexp(x: ArrayLike, y: ArrayLike, /) -> Array:
    """`log(exp(x) + exp(y))` without overflow.

    >>> jnp.logaddexp(1000.0, 1000.0)
    Array(1000.6932, dtype=float32, weak_type=True)
    """
    return _logaddexp_e(*promote_args_inexact("logaddexp", x, y))


@ufunc_of(
    name="logaddexp2",
    identity=-np.inf,
    reduce=lambda a, **options: _reduce_logaddexp(a, base2=True, **options),
)
@composite
def logaddexp2(x: ArrayLike, y: ArrayLike, /) -> Array:
    """`log2(2**x + 2**y)` without overflow.

    >>> jnp.logaddexp2(1000.0, 1000.0)
    Array(1001., dtype=float32, weak_type=True)
    """
    return _logaddexp_2(*promote_args_inexact("logaddexp2", x, y))


@composite
def sinc(x: ArrayLike, /) -> Array:
    """`sin(πx) / (πx)`, 1 at zero.

    >>> jnp.sinc(jnp.array([0.0, 1.5]))
    Array([ 1.        , -0.21220659], dtype=float32)
    """
    (x,) = promote_args_inexact("sinc", x)
    zero = lax.eq(x, constant(x, 0))
    angle = lax.mul(x, constant(x, np.pi))
    safe = select(zero, constant(x, 1), angle)
    return select(zero, _sinc_near_zero(0, angle), lax.div(lax.sin(safe), safe))


def _sinc_near_zero(order: int, angle: Array) -> Array:
    """The derivative of the given order of sin(a)/a at a = 0, for any number of derivatives."""

    @custom_jvp
    def value(angle: Array) -> Array:
        # Even derivatives of sin(a)/a at zero are ±1/(n + 1), odd ones vanish.
        number = 0.0 if order % 2 else (-1) ** (order // 2) / (order + 1)
        return lax.full_like(angle, number)

    def jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
        return value(*primals), lax.mul(_sinc_near_zero(order + 1, *primals), tangents[0])

    value.defjvp(jvp)
    return value(angle)


def i0(x: ArrayLike) -> Array:
    """The modified Bessel function of the first kind of order zero.

    >>> jnp.i0(jnp.array([0.0, 1.0]))
    Array([1.       , 1.2660658], dtype=float32)
    """
    (x,) = promote_args_inexact("i0", x)
    if not is_kind(x.dtype, np.floating):
        raise ValueError(f"Unsupported input type to jax.numpy.i0: {x.dtype}")
    return bessel_i0(x)


@custom_jvp
def bessel_i0(x: Array) -> Array:
    """The modified Bessel function of order zero, of a floating-point array."""
    return lax.mul(lax.exp(lax.abs(x)), lax.bessel_i0e(x))


@custom_jvp
def bessel_i1(x: Array) -> Array:
    """The modified Bessel function of order one, of a floating-point array."""
    return lax.mul(lax.exp(lax.abs(x)), lax.bessel_i1e(x))


def _i1_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,), (t,) = primals, tangents
    y, zero = bessel_i1(x), x == 0
    half = lax.full_like(x, 0.5)
    ratio = lax.select(zero, half, lax.div(y, lax.select(zero, half, x)))
    return y, lax.mul(t, lax.sub(bessel_i0(x), ratio))


# Through |x|, whose slope at zero is 1, derivatives there would be wrong.
bessel_i0.defjvps(lambda t, y, x: lax.mul(t, bessel_i1(x)))
bessel_i1.defjvp(_i1_jvp)


def angle(z: ArrayLike, deg: bool = False) -> Array:
    """The phase of a complex number, in radians or degrees.

    >>> jnp.angle(jnp.array([1.0, 1j]))
    Array([0.       , 1.5707964], dtype=float32)
    """
    z = as_array("angle", z)
    if not is_kind(z.dtype, np.complexfloating):
        if not is_kind(z.dtype, np.inexact) or z.ndim == 0:
            z = convert(z, dtypes.default_float_dtype())
        nan = lax.ne(z, z)
        pi, zero = lax.full_like(z, np.pi), lax.full_like(z, 0)
        result = select(nan, z, select(signbit(z), pi, zero))
    else:
        result = lax.atan2(lax.imag(z), lax.real(z))
    return degrees(result) if deg else result


def real(val: ArrayLike, /) -> Array:
    """The real part.

    >>> jnp.real(jnp.array([1 + 2j]))
    Array([1.], dtype=float32)
    """
    x = as_array("real", val)
    return lax.real(x) if is_kind(x.dtype, np.complexfloating) else x


def imag(val: ArrayLike, /) -> Array:
    """The imaginary part, zero for real numbers.

    >>> jnp.imag(jnp.array([1 + 2j]))
    Array([2.], dtype=float32)
    """
    x = as_array("imag", val)
    return lax.imag(x) if is_kind(x.dtype, np.complexfloating) else lax.full_like(x, 0)


def conjugate(x: ArrayLike, /) -> Array:
    """The complex conjugate.

    >>> jnp.conjugate(jnp.array([1 + 2j]))
    Array([1.-2.j], dtype=complex64)
    """
    x = as_array("conjugate", x)
    return lax.conj(x) if is_kind(x.dtype, np.complexfloating) else x


conj = conjugate
