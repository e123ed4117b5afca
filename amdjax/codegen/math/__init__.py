"""Elementwise math functions, written once as LLVM IR for every target.

A function takes the `Function` being written and its operands, scalars or vectors of float or
double (half and bfloat16 are computed in float), and returns the result's value. Only plain
instructions, generic intrinsics and a GPU's estimates are used: no library, no table in memory.
`MATH` maps the names of tile operations to them, `CONVERSIONS` pairs of dtypes to conversions;
`NARROW` has forms of some for results of 16 bits, made of estimates, `RELAXED` forms for programs
that ask for `fast_math`. docs/math.md has the measured errors.
"""

from __future__ import annotations

from collections.abc import Callable

from .conversions import CONVERSIONS, convert
from .exponential import exp, exp2, expm1, log, log1p, log2, log10, logistic
from .hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from .narrow import NARROW
from .power import cbrt, pow, rsqrt, sqrt
from .relaxed import RELAXED
from .rounding import ceil, floor, nextafter, rem, round_away, round_even, sign, trunc
from .special import bessel_i0e, bessel_i1e, digamma, erf, erf_inv, erfc, lgamma
from .trigonometric import acos, asin, atan, atan2, cos, sin, tan

_FUNCTIONS = (
    exp, exp2, expm1, log, log2, log10, log1p, logistic,
    sin, cos, tan, asin, acos, atan, atan2,
    sinh, cosh, tanh, asinh, acosh, atanh,
    sqrt, rsqrt, cbrt, pow,
    erf, erfc, erf_inv, lgamma, digamma, bessel_i0e, bessel_i1e,
    floor, ceil, trunc, round_even, round_away, sign, nextafter, rem,
)  # fmt: skip
MATH: dict[str, Callable] = {fn.__name__: fn for fn in _FUNCTIONS}

__all__ = ["CONVERSIONS", "MATH", "NARROW", "RELAXED", "convert", *MATH]
