"""Squares, integer powers and roots, element by element."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.lax._public import accurate_function, unary_function
from amdjax.lax._rules import FLOAT, INEXACT, NUMBER, constant, unary, value_dtype, zero_tangent
from amdjax.lax.elementwise import div, mul
from amdjax.typing import ArrayLike

__all__ = [
    "cbrt", "cbrt_p", "integer_pow", "integer_pow_p", "rsqrt", "rsqrt_p", "sqrt", "sqrt_p",
    "square", "square_p",
]  # fmt: skip

square_p = unary(
    "square",
    NUMBER,
    lambda g, y, x: mul(g, mul(constant(x, 2), x)),
    lambda b, x: b.square(x) if value_dtype(x).kind == "c" else b.mul(x, x),
)


square = unary_function(square_p, "Square of each element.", "3.0", "9.0")


def _integer_power(b: Any, x: Any, *, y: int) -> Any:
    """Square and multiply: log2(y) squarings, exact wherever the products are."""
    one = b.const(1, x.dtype)
    result, factor, rest = None, x, abs(y)
    while rest:
        if rest & 1:
            result = factor if result is None else b.mul(result, factor)
        rest >>= 1
        if rest:
            factor = b.mul(factor, factor)
    if result is None:
        return one
    return b.div(one, result) if y < 0 else result


def _integer_pow_derivative(g: Any, z: Any, x: Any, *, y: int) -> Any:
    if y == 0:
        return zero_tangent(z)
    if y == 1:
        return g
    less = x if y == 2 else integer_pow(x, y - 1)
    return mul(g, mul(constant(x, y), less))


def _integer_pow_dtype(x: Any, *, y: int) -> np.dtype:
    if y < 0 and dtypes.issubdtype(x.dtype, np.integer):
        raise TypeError(f"Integers cannot be raised to negative powers, got integer_pow({x}, {y}).")
    return x.dtype


integer_pow_p = unary(
    "integer_pow", NUMBER, _integer_pow_derivative, _integer_power, out=_integer_pow_dtype
)


def integer_pow(x: ArrayLike, y: int) -> Array:
    """`x` to a power that is known when tracing.

    Args:
      x: array of a numeric dtype.
      y: the exponent; not negative if `x` is an integer array.

    Raises:
      TypeError: for a negative power of integers.

        >>> float(integer_pow(2.0, -2))
        0.25
    """
    try:
        power = operator.index(y)
    except TypeError:
        raise TypeError(f"integer_pow: y must be an integer, got {y!r}") from None
    return integer_pow_p.bind(x, y=power)


sqrt_p = unary("sqrt", INEXACT, lambda g, y, x: div(mul(g, constant(x, 0.5)), y))
rsqrt_p = unary("rsqrt", INEXACT, lambda g, y, x: mul(g, mul(constant(x, -0.5), div(y, x))))
cbrt_p = unary("cbrt", FLOAT, lambda g, y, x: mul(g, mul(constant(x, 1 / 3), integer_pow(y, -2))))


sqrt = accurate_function(
    sqrt_p, "Square root of each element; the principal one of complex numbers.", "9.0", "3.0"
)
rsqrt = accurate_function(rsqrt_p, "Reciprocal of the square root of each element.", "4.0", "0.5")
cbrt = accurate_function(
    cbrt_p, "Cube root of each element; negative for negative ones.", "-8.0", "-2.0"
)
