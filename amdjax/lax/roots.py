"""Squares and roots, element by element."""

from __future__ import annotations

from typing import Any

from amdjax.core.array import Array
from amdjax.lax._rules import (
    FLOAT,
    INEXACT,
    NUMBER,
    scalar,
    unary,
    value_dtype,
)
from amdjax.lax.elementwise import div, mul
from amdjax.typing import ArrayLike

__all__ = [
    "cbrt", "cbrt_p", "rsqrt", "rsqrt_p", "sqrt", "sqrt_p", "square", "square_p",
]  # fmt: skip

square_p = unary(
    "square",
    NUMBER,
    lambda g, y, x: mul(g, mul(scalar(x, 2), x)),
    lambda b, x: b.square(x) if value_dtype(x).kind == "c" else b.mul(x, x),
)


def square(x: ArrayLike) -> Array:
    """Square of each element.

    Example:
      >>> float(square(3.0))
      9.0
    """
    return square_p.bind(x)


sqrt_p = unary("sqrt", INEXACT, lambda g, y, x: div(mul(g, scalar(x, 0.5)), y))
rsqrt_p = unary("rsqrt", INEXACT, lambda g, y, x: mul(g, mul(scalar(x, -0.5), div(y, x))))
cbrt_p = unary("cbrt", FLOAT, lambda g, y, x: div(mul(g, scalar(x, 1 / 3)), square(y)))


def sqrt(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Square root of each element; the principal one of complex numbers.

    Example:
      >>> float(sqrt(9.0))
      3.0
    """
    return sqrt_p.bind(x)


def rsqrt(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Reciprocal of the square root of each element.

    Example:
      >>> float(rsqrt(4.0))
      0.5
    """
    return rsqrt_p.bind(x)


def cbrt(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Cube root of each element; negative for negative ones.

    Example:
      >>> float(cbrt(-8.0))
      -2.0
    """
    return cbrt_p.bind(x)
