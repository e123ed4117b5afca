"""Hyperbolic functions and their inverses, from exponentials and `log1p`.

The formulas are those of W. Kahan, "Branch cuts for complex elementary functions" (1987), and of
J.-M. Muller, "Elementary Functions" (3rd ed., 2016).
"""

from __future__ import annotations

import math

from . import coefficients as c
from .conversions import elementwise
from .exponential import exp_scaled, half_expm1, log1p, short_exp2
from .expr import (
    Expr,
    absolute,
    at_least,
    at_most,
    copysign,
    fma,
    odd_polynomial,
    polynomial,
    round_shifted,
    select,
    select_constant,
    sqrt_of,
)


@elementwise
def tanh(x: Expr) -> Expr:
    """In float a polynomial up to 0.6, then `1 - e P(e)` with `e = exp(-2 |x|)`.

    In double `-u / (1 + u)` with `u = expm1(-2 |x|) / 2`.

    Error: 1.5 ulp in float, 2.5 in double.
    """
    a = absolute(x)
    if x.is_double:
        u = half_expm1(at_least(a * -2.0, -40.0))
        return copysign(u / (u + 1.0), x)
    # The error of e shrinks in the subtraction, so that one constant suffices for log2(e).
    limited, scale = at_most(a, 9.1), -2.0 * c.LOG2_E["float"][0]
    n, shifted = round_shifted(limited, scale)
    e = short_exp2(shifted, fma(limited, scale, -n))
    large = fma(-e, polynomial(e, c.TANH_TAIL["float"]), 1.0)
    small = odd_polynomial(a, a * a, c.TANH["float"])
    # A NaN takes the polynomial, which keeps it.
    return copysign(select(a >= 0.6, large, small), x)


@elementwise
def sinh(x: Expr) -> Expr:
    """A polynomial up to 1, then `e - 1 / (4 e)` with `e = exp(|x|) / 2`.

    Error: 1.7 ulp in float, 1.5 in double.
    """
    e = exp_scaled(absolute(x), -1)
    large = e - 0.25 / e
    small = odd_polynomial(x, x * x, c.SINH[x.type.elem])
    return select(absolute(x) < 1.0, small, copysign(large, x))


@elementwise
def cosh(x: Expr) -> Expr:
    """`e + 1 / (4 e)` with `e = exp(|x|) / 2`.

    Error: 1.4 ulp in float, 1.2 in double.
    """
    e = exp_scaled(absolute(x), -1)
    return e + 0.25 / e


def _log1p_or_log_twice(big: Expr, x: Expr, u: Expr) -> Expr:
    """`log(2 x)` where `big`, so large that `1 / x` does not count; else `log1p(u)`."""
    log_2 = c.LN2[x.type.elem][0]
    return log1p(select(big, x, u)) + select_constant(big, log_2, 0.0, x)


def _big(x: Expr) -> Expr:
    return x > (2.0**60 if x.is_double else 2.0**30)


@elementwise
def asinh(x: Expr) -> Expr:
    """`log1p(a + a**2 / (1 + sqrt(1 + a**2)))` with `a = |x|`.

    Error: 2.0 ulp in float, 2.0 in double.
    """
    a = absolute(x)
    u = fma(a, a / (sqrt_of(fma(a, a, 1.0)) + 1.0), a)
    return copysign(_log1p_or_log_twice(_big(a), a, u), x)


@elementwise
def acosh(x: Expr) -> Expr:
    """`log1p(t + sqrt(t**2 + 2 t))` with `t = x - 1`, in float a polynomial near 1.

    Error: 1.5 ulp in float, 2.2 in double.
    """
    t = x - 1.0
    u = t + sqrt_of(fma(t, t, t + t))
    result = select(x < 1.0, x.like(math.nan), _log1p_or_log_twice(_big(x), x, u))
    if x.is_double:
        return result
    # acosh(x) = 2 asinh(sqrt(t / 2))
    near = odd_polynomial(sqrt_of(t + t), t * 0.5, c.ASINH["float"])
    return select((t >= 0.0) & (t <= 0.5), near, result)


@elementwise
def atanh(x: Expr) -> Expr:
    """`log1p(2 a / (1 - a)) / 2` with `a = |x|`, in float a polynomial up to 1/2.

    Error: 1.1 ulp in float, 2.0 in double.
    """
    a = absolute(x)
    result = copysign(log1p((a + a) / (1.0 - a)) * 0.5, x)
    if x.is_double:
        return result
    return select(a <= 0.5, odd_polynomial(x, x * x, c.ATANH["float"]), result)
