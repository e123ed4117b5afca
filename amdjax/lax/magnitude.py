"""Absolute values and signs, element by element."""

from __future__ import annotations

from typing import Any

from amdjax.core.array import Array
from amdjax.lax._public import unary_function
from amdjax.lax._rules import (
    FLAT,
    INEXACT,
    NUMBER,
    SIGNED,
    dtype_of,
    filled_like,
    is_complex,
    real_dtype,
    scalar,
    unary,
)
from amdjax.lax.casting import convert_element_type
from amdjax.lax.comparison import eq, ge
from amdjax.lax.complexes import conj, real
from amdjax.lax.elementwise import div, mul, neg
from amdjax.lax.selection import select
from amdjax.typing import ArrayLike

__all__ = [
    "abs", "abs_p", "sign", "sign_p",
]  # fmt: skip


def _abs_derivative(g: Any, y: Any, x: Any) -> Any:
    if not is_complex(x):
        return select(ge(x, scalar(x, 0)), g, neg(g))
    radius = select(eq(y, scalar(y, 0)), filled_like(y, 1), y)
    return real(mul(g, div(conj(x), convert_element_type(radius, dtype_of(x)))))


def _magnitude_dtype(aval: Any, **_: Any) -> Any:
    if aval.dtype in ("int1", "int2", "int4"):
        raise TypeError(
            f"abs does not accept dtype {aval.dtype}: the magnitude of its lowest number is none "
            "of its numbers. Convert to int8 first."
        )
    return real_dtype(aval)


abs_p = unary("abs", SIGNED | INEXACT, _abs_derivative, out=_magnitude_dtype)


def abs(x: ArrayLike) -> Array:
    """Absolute value of each element.

    Args:
      x: array of a signed integer, floating-point or complex dtype.

    Returns:
      Array of the shape of the operand; for a complex operand of its component dtype.

        >>> float(abs(-2.0))
        2.0
    """
    return abs_p.bind(x)


sign_p = unary("sign", NUMBER, FLAT)


sign = unary_function(
    sign_p,
    "Sign of each element: -1, 0 or 1; NaN for NaN; `x / abs(x)` for complex.",
    "-2.5",
    "-1.0",
)
