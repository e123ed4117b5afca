"""Special functions of one argument: error functions and Bessel functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from amdjax.core import dtypes
from amdjax.lax._public import unary_function
from amdjax.lax._rules import FLOAT, constant, dtype_of, filled_like, scalar, unary
from amdjax.lax.comparison import le
from amdjax.lax.elementary import exp
from amdjax.lax.elementwise import add, div, mul, neg, sub
from amdjax.lax.magnitude import abs, sign
from amdjax.lax.roots import square
from amdjax.lax.selection import select

__all__ = [
    "bessel_i0e", "bessel_i0e_p", "bessel_i1e", "bessel_i1e_p", "erf", "erf_inv", "erf_inv_p",
    "erf_p", "erfc", "erfc_p",
]  # fmt: skip


def _gauss(scale: float) -> Callable[..., Any]:
    """Derivative `scale * exp(-x^2)`."""
    return lambda g, y, x: mul(mul(g, constant(x, scale)), exp(neg(square(x))))


def _erf_inv_derivative(g: Any, y: Any, x: Any) -> Any:
    return mul(mul(g, constant(x, math.sqrt(math.pi) / 2)), exp(square(y)))


def _i0e_derivative(g: Any, y: Any, x: Any) -> Any:
    return mul(g, sub(bessel_i1e(x), mul(sign(x), y)))


def _i1e_derivative(g: Any, y: Any, x: Any) -> Any:
    """The slope i0e(x) - y (sign x + 1/x), which tends to 1/2 at 0."""
    tiny = le(abs(x), scalar(x, dtypes.finfo(dtype_of(x)).eps))
    safe = select(tiny, filled_like(x, 1), x)
    slope = sub(bessel_i0e(x), mul(y, add(sign(x), div(scalar(x, 1), safe))))
    return mul(g, select(tiny, filled_like(x, 0.5), slope))


erf_p = unary("erf", FLOAT, _gauss(2 / math.sqrt(math.pi)))
erfc_p = unary("erfc", FLOAT, _gauss(-2 / math.sqrt(math.pi)))
erf_inv_p = unary("erf_inv", FLOAT, _erf_inv_derivative)
bessel_i0e_p = unary("bessel_i0e", FLOAT, _i0e_derivative)
bessel_i1e_p = unary("bessel_i1e", FLOAT, _i1e_derivative)


erf = unary_function(erf_p, "The error function of each element.", "0.0", "0.0")
erfc = unary_function(
    erfc_p, "One minus the error function of each element, accurate far from zero.", "0.0", "1.0"
)
erf_inv = unary_function(
    erf_inv_p, "The inverse of the error function; infinite at -1 and 1, NaN beyond.", "0.0", "0.0"
)
bessel_i0e = unary_function(
    bessel_i0e_p, "The modified Bessel function of order 0 times `exp(-abs(x))`.", "0.0", "1.0"
)
bessel_i1e = unary_function(
    bessel_i1e_p, "The modified Bessel function of order 1 times `exp(-abs(x))`.", "0.0", "0.0"
)
