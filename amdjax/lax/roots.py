"""Squares and roots, element by element."""

from __future__ import annotations

from amdjax.lax._public import accurate_function, unary_function
from amdjax.lax._rules import FLOAT, INEXACT, NUMBER, constant, unary, value_dtype
from amdjax.lax.elementwise import div, mul

__all__ = [
    "cbrt", "cbrt_p", "rsqrt", "rsqrt_p", "sqrt", "sqrt_p", "square", "square_p",
]  # fmt: skip

square_p = unary(
    "square",
    NUMBER,
    lambda g, y, x: mul(g, mul(constant(x, 2), x)),
    lambda b, x: b.square(x) if value_dtype(x).kind == "c" else b.mul(x, x),
)


square = unary_function(square_p, "Square of each element.", "float(square(3.0))", "9.0")


sqrt_p = unary("sqrt", INEXACT, lambda g, y, x: div(mul(g, constant(x, 0.5)), y))
rsqrt_p = unary("rsqrt", INEXACT, lambda g, y, x: mul(g, mul(constant(x, -0.5), div(y, x))))
cbrt_p = unary("cbrt", FLOAT, lambda g, y, x: div(mul(g, constant(x, 1 / 3)), square(y)))


sqrt = accurate_function(
    sqrt_p,
    "Square root of each element; the principal one of complex numbers.",
    "float(sqrt(9.0))",
    "3.0",
)
rsqrt = accurate_function(
    rsqrt_p, "Reciprocal of the square root of each element.", "float(rsqrt(4.0))", "0.5"
)
cbrt = accurate_function(
    cbrt_p, "Cube root of each element; negative for negative ones.", "float(cbrt(-8.0))", "-2.0"
)
