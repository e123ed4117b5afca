"""Functions of float with relaxed errors, for programs that ask for `fast_math`.

A relaxed function is off by what its docstring says rather than by two ulp. It takes subnormal
results for zero and may overflow within a factor of two of the largest number, but NaN and infinite
arguments, and zeros, give what they ought to. GPUs compute from their estimates, which are an
instruction each. Doubles have the forms that they always have.
"""

from __future__ import annotations

from collections.abc import Callable

from . import coefficients as c
from .conversions import elementwise
from .exponential import exp as full_exp, exp2 as full_exp2, logistic as full_logistic
from .expr import (
    Expr,
    absolute,
    at_least,
    at_most,
    copysign,
    estimate,
    fma,
    odd_polynomial,
    polynomial,
    power_of_two,
    round_shifted,
    select,
)
from .hyperbolic import tanh as full_tanh
from .power import rsqrt as full_rsqrt

LOG2_E = c.LOG2_E["float"][0]


def _estimates(x: Expr) -> bool:
    """Whether the machine has estimates for `x`."""
    return bool(x.f.module.estimates) and not x.is_double


def _exp2_of_product(x: Expr, factor: float) -> Expr:
    """`2**(x factor)` of floats: an estimate, or as good as the factor, whatever `x` is.

    The exponent is added to that of one, whose bits are all zero where the power is to be zero and
    infinity's where it is too large.
    """
    if _estimates(x):
        return estimate("exp2", x * factor)
    limited = at_least(at_most(x, 128.0 / factor), -127.0 / factor)
    n, shifted = round_shifted(limited, factor)
    p = fma(polynomial(r := fma(limited, factor, -n), c.EXP2_SHORT["float"]), r, 1.0)
    # The low bits are those of n; what is above them leaves on the left.
    return p * power_of_two(shifted.bits(), x.format)


@elementwise
def exp(x: Expr) -> Expr:
    """`2**(x log2(e))`.

    Error: 2.5 + |x| / 2 ulp, with estimates 2.5 + 5/4 |x|.
    """
    if x.is_double:
        return full_exp(x)
    return _exp2_of_product(x, LOG2_E)


@elementwise
def exp2(x: Expr) -> Expr:
    """The estimate, where there is one.

    Error: 2 ulp.
    """
    return estimate("exp2", x) if _estimates(x) else full_exp2(x)


@elementwise
def logistic(x: Expr) -> Expr:
    """`1 / (1 + e**-x)`.

    Error: 4 + |x| / 2 ulp, with estimates 4 + 5/4 |x|.
    """
    if x.is_double:
        return full_logistic(x)
    below = _exp2_of_product(-x, LOG2_E) + 1.0
    return estimate("rcp", below) if _estimates(x) else 1.0 / below


@elementwise
def tanh(x: Expr) -> Expr:
    """With estimates a polynomial up to 0.6, beyond it `1 - 2 / (1 + e**(2 |x|))`.

    Error: 4 ulp.
    """
    if not _estimates(x):
        return full_tanh(x)
    a = absolute(x)
    far = fma(estimate("rcp", estimate("exp2", a * (2.0 * LOG2_E)) + 1.0), -2.0, 1.0)
    # A NaN takes the polynomial, which keeps it.
    return copysign(select(a >= 0.6, far, odd_polynomial(a, a * a, c.TANH["float"])), x)


@elementwise
def rsqrt(x: Expr) -> Expr:
    """The estimate, where there is one; infinite for subnormal arguments.

    Error: 2 ulp.
    """
    return estimate("rsqrt", x) if _estimates(x) else full_rsqrt(x)


@elementwise
def div(x: Expr, y: Expr) -> Expr:
    """The product with the estimate of a reciprocal, where there is one.

    Divisors beyond 2**126 count as infinite, subnormal ones as zero.

    Error: 2.5 ulp.
    """
    return x * estimate("rcp", y) if _estimates(x) else x / y


_FUNCTIONS = (exp, exp2, logistic, tanh, rsqrt, div)
RELAXED: dict[str, Callable] = {fn.__name__: fn for fn in _FUNCTIONS}
