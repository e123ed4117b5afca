"""Functions for results that will be rounded to 16 bits, from the estimates that GPUs have.

An estimate is one instruction; its error is about an ulp of float and it takes subnormal numbers
for zero. Results here have a relative error of at most 2**-16.5, also with estimates three ulp off,
so that half results are within 0.53 ulp and bfloat16 ones within 0.51. Bfloat16 has float's range:
its subnormal arguments and results are scaled around estimates; those of half are normal floats.

Quotients, roots and powers are not among the functions of `NARROW`: with forms for float they are
integers where they ought to be, and programs take the floor of them before anything is rounded to
16 bits. `div` is for quotients that nothing but such a rounding reads.
"""

from __future__ import annotations

from collections.abc import Callable

from . import coefficients as c
from .conversions import elementwise
from .expr import Expr, absolute, copysign, estimate, fma, polynomial, select, select_constant
from .trigonometric import reduce_angle

LOG2_E, LN2 = c.LOG2_E["float"][0], c.LN2["float"][0]

#: Up to here polynomials are used where the difference of estimates would cancel.
NEAR = 1 / 16


def _has_subnormal(dtype: str) -> bool:
    """Whether subnormal floats matter to results of a dtype."""
    return dtype == "bf16"


def _near_zero(x: Expr, near: Expr, far: Expr) -> Expr:
    """`near` where `x` is small; NaN takes `far`."""
    return select(absolute(x) < NEAR, near, far)


def _odd(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """`x + x z P(z)`, `z = x**2`."""
    z = x * x
    return x * fma(z, polynomial(z, coefficients), 1.0)


@elementwise
def exp(x: Expr, dtype: str) -> Expr:
    """`2**(x log2(e))`; the square of a root cannot be subnormal before it is rounded."""
    if not _has_subnormal(dtype):
        return estimate("exp2", x * LOG2_E)
    root = estimate("exp2", x * (LOG2_E / 2))
    return root * root


@elementwise
def exp2(x: Expr, dtype: str) -> Expr:
    """The estimate, which is exact for integers."""
    if not _has_subnormal(dtype):
        return estimate("exp2", x)
    tiny = x < -126.0
    power = estimate("exp2", x + select_constant(tiny, 64.0, 0.0, x))
    return power * select_constant(tiny, 2.0**-64, 1.0, x)


@elementwise
def expm1(x: Expr, dtype: str) -> Expr:
    """A polynomial, beyond it the exponential less one."""
    near = x * fma(x, polynomial(x, c.EXPM1_NARROW["float"]), 1.0)
    return _near_zero(x, near, estimate("exp2", x * LOG2_E) - 1.0)


def _log_far_from_one(x: Expr, dtype: str) -> Expr:
    if not _has_subnormal(dtype):
        return estimate("log2", x) * LN2
    tiny = x < 2.0**-126
    result = estimate("log2", x * select_constant(tiny, 2.0**32, 1.0, x))
    return fma(result, LN2, select_constant(tiny, -32 * LN2, 0.0, x))


def _log1p_near(f: Expr) -> Expr:
    """`log(1 + f)` for small `f`."""
    return f * fma(f, polynomial(f, c.LOG1P_NARROW["float"]), 1.0)


@elementwise
def log(x: Expr, dtype: str) -> Expr:
    """Around 1, where the estimate has an absolute error only, a polynomial."""
    f = x - 1.0
    return _near_zero(f, _log1p_near(f), _log_far_from_one(x, dtype))


@elementwise
def log1p(x: Expr, dtype: str) -> Expr:
    """A polynomial, beyond it the logarithm of `1 + x`, which is not subnormal."""
    return _near_zero(x, _log1p_near(x), estimate("log2", x + 1.0) * LN2)


@elementwise
def logistic(x: Expr, dtype: str) -> Expr:
    """`1 / (1 + e**-x)`; numerator and denominator are divided by 2**32 lest they overflow."""
    scale = 2.0**-32
    e = estimate("exp2", fma(x, -LOG2_E, -32.0))
    return estimate("rcp", e + scale) * scale


def _half_exp(x: Expr, sign: float) -> Expr:
    """`e**(sign * x) / 2`, which is not subnormal where it counts."""
    return estimate("exp2", fma(x, sign * LOG2_E, -1.0))


@elementwise
def sinh(x: Expr, dtype: str) -> Expr:
    """A polynomial, beyond it the difference of exponentials."""
    far = _half_exp(x, 1.0) - _half_exp(x, -1.0)
    return _near_zero(x, _odd(x, c.SINH_NARROW["float"]), far)


@elementwise
def cosh(x: Expr, dtype: str) -> Expr:
    """The sum of exponentials."""
    return _half_exp(x, 1.0) + _half_exp(x, -1.0)


@elementwise
def tanh(x: Expr, dtype: str) -> Expr:
    """A polynomial, beyond it `2 / (1 + e**(-2 x)) - 1`, which has the right limits."""
    near = _odd(x, c.TANH_NARROW["float"])
    inverse = estimate("rcp", estimate("exp2", x * (-2.0 * LOG2_E)) + 1.0)
    return _near_zero(x, near, fma(inverse, 2.0, -1.0))


@elementwise
def tan(x: Expr, dtype: str) -> Expr:
    """A polynomial of what is left of the angle, or its reciprocal."""
    n, r, _ = reduce_angle(x)
    t = _odd(r, c.TAN_NARROW["float"])
    return select((n & 1) != 0, -estimate("rcp", t), t)


@elementwise
def atan(x: Expr, dtype: str) -> Expr:
    """A polynomial, beyond 1 of the reciprocal, which may be zero for subnormal."""
    a = absolute(x)
    outer = a > 1.0
    p = _odd(select(outer, estimate("rcp", a), a), c.ATAN_NARROW["float"])
    return copysign(select(outer, c.HALF_PI["float"][0] - p, p), x)


@elementwise
def rsqrt(x: Expr, dtype: str) -> Expr:
    """The estimate."""
    if not _has_subnormal(dtype):
        return estimate("rsqrt", x)
    tiny = x < 2.0**-100
    inverse = estimate("rsqrt", x * select_constant(tiny, 2.0**64, 1.0, x))
    return inverse * select_constant(tiny, 2.0**32, 1.0, x)


@elementwise
def erf(x: Expr, dtype: str) -> Expr:
    """An odd polynomial, beyond it `1 - erfc(|x|)` as a power of two."""
    a = absolute(x)
    near = x * polynomial(x * x, c.ERF_NARROW["float"])
    tail = estimate("exp2", -a * polynomial(a, c.ERF_NARROW_TAIL["float"]))
    return _near_zero(x, near, copysign(1.0 - tail, x))


@elementwise
def erfc(x: Expr, dtype: str) -> Expr:
    """`exp(-x**2) t P(t)` with `t = 1 / (1 + |x| / 2)`.

    The form is that of C. Hastings, "Approximations for Digital Computers" (1955).
    """
    a = absolute(x)
    t = estimate("rcp", fma(a, 0.5, 1.0))
    scaled = t * polynomial(t, c.ERFC_NARROW["float"])
    positive = scaled * exp(-(a * a), dtype)
    return select(x < 0.0, 2.0 - positive, positive)


@elementwise
def div(x: Expr, y: Expr, dtype: str) -> Expr:
    """The product with the estimate of a reciprocal, scaled where one of both were subnormal."""
    size = absolute(y)
    scale = select_constant(size > 2.0**96, 2.0**-32, 1.0, y)
    scale = select(size < 2.0**-96, scale.like(2.0**32), scale)
    return x * estimate("rcp", y * scale) * scale


_FUNCTIONS = (exp, exp2, expm1, log, log1p, logistic, sinh, cosh, tanh, tan, atan, rsqrt, erf, erfc)
NARROW: dict[str, Callable] = {fn.__name__: fn for fn in _FUNCTIONS}
