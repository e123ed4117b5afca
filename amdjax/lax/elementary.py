"""Exponentials, logarithms, trigonometric and hyperbolic functions, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amdjax.core.lowering import Pointwise
from amdjax.lax._public import (
    AccurateUnary,
    Unary,
    accurate_function,
    binary_function,
    unary_function,
)
from amdjax.lax._rules import (
    INEXACT,
    binary,
    constant,
    dtype_of,
    is_complex,
    scalar,
    unary,
    value_dtype,
)
from amdjax.lax.comparison import lt
from amdjax.lax.complexes import complex, imag, real
from amdjax.lax.elementwise import add, div, mul, neg, sub
from amdjax.lax.magnitude import abs
from amdjax.lax.roots import rsqrt, square
from amdjax.lax.selection import select

__all__ = [
    "acos", "acos_p", "acosh", "acosh_p", "asin", "asin_p", "asinh", "asinh_p", "atan", "atan2",
    "atan2_p", "atan_p", "atanh", "atanh_p", "cos", "cos_p", "cosh", "cosh_p", "exp", "exp2",
    "exp2_p", "exp_p", "expm1", "expm1_p", "log", "log1p", "log1p_p", "log_p", "logistic",
    "logistic_p", "sin", "sin_p", "sinh", "sinh_p", "tan", "tan_p", "tanh", "tanh_p",
]  # fmt: skip


def _one_minus_square_value(b: Any, x: Any) -> Any:
    one = b.const(1, value_dtype(x))
    return b.mul(b.sub(one, x), b.add(one, x))


# A primitive, as the value is accurate near the ends of [-1, 1] in a form whose derivative, by the
# rules of its parts, would have no digits near zero.
_one_minus_square_p = unary(
    "one_minus_square",
    INEXACT,
    lambda g, y, x: mul(g, mul(scalar(x, -2), x)),
    _one_minus_square_value,
)
_one_minus_square = _one_minus_square_p.bind


def _one_plus_square(x: Any) -> Any:
    return add(constant(x, 1), square(x))


# Slopes of complex arguments. A product that overflows has no root, and one from which nothing is
# left has no digits, where the slope itself is an ordinary number.


def _expm1_slope(g: Any, y: Any, x: Any) -> Any:
    return mul(g, exp(x) if is_complex(x) else add(y, scalar(y, 1)))


def _over_roots(g: Any, x: Any) -> Any:
    """`g` over the root of `1 - x²`; of complex numbers, over the roots of `1 - x` and `1 + x`."""
    if not is_complex(x):
        # The constant decides whether the slope is weakly typed.
        return mul(g, mul(constant(x, 1), rsqrt(_one_minus_square(x))))
    return mul(g, mul(rsqrt(sub(constant(x, 1), x)), rsqrt(add(constant(x, 1), x))))


def _asinh_slope(g: Any, y: Any, x: Any) -> Any:
    if not is_complex(x):
        return mul(g, rsqrt(add(scalar(x, 1), square(x))))
    return _over_roots(g, complex(neg(imag(x)), real(x)))


def _over_square(g: Any, cos: Any, size: Any, other: Any) -> Any:
    """`g / cos²`, where the exponential of `size` is in range; else `g` times the `other` form."""
    inverse = div(scalar(cos, 1), cos)
    top = math.log(np.finfo(dtype_of(size)).max) - 1
    return mul(g, select(lt(abs(size), scalar(size, top)), square(inverse), other))


def _tan_slope(g: Any, y: Any, x: Any) -> Any:
    if not is_complex(x):
        return mul(g, _one_plus_square(y))
    return _over_square(g, cos(x), imag(x), _one_plus_square(y))


def _tanh_slope(g: Any, y: Any, x: Any) -> Any:
    if not is_complex(x):
        return mul(g, _one_minus_square(y))
    return _over_square(g, cosh(x), real(x), _one_minus_square(y))


exp_p = unary("exp", INEXACT, lambda g, y, x: mul(g, y))
exp2_p = unary("exp2", INEXACT, lambda g, y, x: mul(g, mul(constant(x, math.log(2)), y)))
expm1_p = unary("expm1", INEXACT, _expm1_slope)
log_p = unary("log", INEXACT, lambda g, y, x: div(g, x))
log1p_p = unary("log1p", INEXACT, lambda g, y, x: div(g, add(x, scalar(x, 1))))
logistic_p = unary("logistic", INEXACT, lambda g, y, x: mul(g, mul(y, sub(scalar(y, 1), y))))
tanh_p = unary("tanh", INEXACT, _tanh_slope)

sin_p = unary("sin", INEXACT, lambda g, y, x: mul(g, cos(x)))
cos_p = unary("cos", INEXACT, lambda g, y, x: neg(mul(g, sin(x))))
tan_p = unary("tan", INEXACT, _tan_slope)
asin_p = unary("asin", INEXACT, lambda g, y, x: _over_roots(g, x))
acos_p = unary("acos", INEXACT, lambda g, y, x: neg(_over_roots(g, x)))
atan_p = unary("atan", INEXACT, lambda g, y, x: div(g, _one_plus_square(x)))

sinh_p = unary("sinh", INEXACT, lambda g, y, x: mul(g, cosh(x)))
cosh_p = unary("cosh", INEXACT, lambda g, y, x: mul(g, sinh(x)))
asinh_p = unary("asinh", INEXACT, _asinh_slope)
acosh_p = unary(
    "acosh",
    INEXACT,
    # Two roots rather than that of the product: for complex x the product leaves the branch.
    lambda g, y, x: mul(g, mul(rsqrt(sub(x, scalar(x, 1))), rsqrt(add(x, scalar(x, 1))))),
)
atanh_p = unary("atanh", INEXACT, lambda g, y, x: div(g, _one_minus_square(x)))


exp = accurate_function(exp_p, "Exponential of each element.", "0.0", "1.0")
exp2 = accurate_function(exp2_p, "Two to the power of each element.", "3.0", "8.0")
expm1 = accurate_function(
    expm1_p, "Exponential of each element minus one, accurate near zero.", "0.0", "0.0"
)
log = accurate_function(
    log_p, "Natural logarithm of each element; NaN for negative real ones.", "1.0", "0.0"
)
log1p = accurate_function(
    log1p_p, "Natural logarithm of one plus each element, accurate near zero.", "0.0", "0.0"
)
logistic = accurate_function(
    logistic_p, "The sigmoid 1 / (1 + exp(-x)) of each element.", "0.0", "0.5"
)
tanh = accurate_function(tanh_p, "Hyperbolic tangent of each element.", "0.0", "0.0")
sin: AccurateUnary = accurate_function(sin_p, "Sine of each element, in radians.", "0.0", "0.0")
cos: AccurateUnary = accurate_function(cos_p, "Cosine of each element, in radians.", "0.0", "1.0")
tan = accurate_function(tan_p, "Tangent of each element, in radians.", "0.0", "0.0")
asin = unary_function(asin_p, "Inverse sine of each element, in [-pi/2, pi/2].", "0.0", "0.0")
acos = unary_function(acos_p, "Inverse cosine of each element, in [0, pi].", "1.0", "0.0")
atan = unary_function(atan_p, "Inverse tangent of each element, in [-pi/2, pi/2].", "0.0", "0.0")
sinh: Unary = unary_function(sinh_p, "Hyperbolic sine of each element.", "0.0", "0.0")
cosh: Unary = unary_function(cosh_p, "Hyperbolic cosine of each element.", "0.0", "1.0")
asinh = unary_function(asinh_p, "Inverse hyperbolic sine of each element.", "0.0", "0.0")
acosh = unary_function(
    acosh_p, "Inverse hyperbolic cosine of each element; NaN for real ones below one.", "1.0", "0.0"
)
atanh = unary_function(atanh_p, "Inverse hyperbolic tangent of each element.", "0.0", "0.0")


def _atan2(b: Any, y: Any, x: Any) -> Any:
    if value_dtype(x).kind != "c":
        return b.atan2(y, x)
    # -i log((x + iy) / sqrt(x^2 + y^2))
    i = b.const(1j, x.dtype)
    radius = b.sqrt(b.add(b.mul(x, x), b.mul(y, y)))
    return b.neg(b.mul(i, b.log(b.div(b.add(x, b.mul(i, y)), radius))))


atan2_p = binary(
    "atan2",
    INEXACT,
    lambda g, z, y, x: mul(g, div(x, add(square(x), square(y)))),
    lambda g, z, y, x: mul(g, div(neg(y), add(square(x), square(y)))),
    Pointwise(_atan2, cost=8.0),
)


atan2 = binary_function(
    atan2_p,
    "The angle of the point with ordinate `x` and abscissa `y`, in radians.",
    "0.0, 1.0",
    "0.0",
)
