"""Powers and roots, element by element."""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.lowering import Pointwise
from amdjax.lax._rules import (
    FLOAT,
    INEXACT,
    NUMBER,
    elementwise,
    filled_like,
    repeat_to,
    scalar,
    shape_of,
    unary,
    value_dtype,
    zero_tangent,
)
from amdjax.lax.casting import convert_like
from amdjax.lax.comparison import eq
from amdjax.lax.elementwise import div, mul, sub
from amdjax.lax.selection import select
from amdjax.typing import ArrayLike

__all__ = [
    "cbrt",
    "cbrt_p",
    "integer_pow",
    "integer_pow_p",
    "pow",
    "pow_p",
    "reciprocal",
    "rsqrt",
    "rsqrt_p",
    "sqrt",
    "sqrt_p",
    "square",
    "square_p",
]

square_p = unary(
    "square",
    NUMBER,
    lambda g, y, x: mul(g, mul(scalar(x, 2), x)),
    lambda b, x: b.square(x) if value_dtype(x).kind == "c" else b.mul(x, x),
)


def square(x: ArrayLike) -> Array:
    """Square of each element.

    Args:
      x: array of a numeric dtype.

    Returns:
      Array of the shape and dtype of the operand.

    Raises:
      TypeError: for an operand of another dtype.

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

    Args:
      x: array of a floating-point or complex dtype.
      accuracy: accepted for compatibility; results are within 2 ulp in any case.

    Returns:
      Array of the shape and dtype of the operand.

    Raises:
      TypeError: for an operand of another dtype.

    Example:
      >>> float(sqrt(9.0))
      3.0
    """
    return sqrt_p.bind(x)


def rsqrt(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Reciprocal of the square root of each element.

    Args:
      x: array of a floating-point or complex dtype.
      accuracy: accepted for compatibility; results are within 2 ulp in any case.

    Returns:
      Array of the shape and dtype of the operand.

    Raises:
      TypeError: for an operand of another dtype.

    Example:
      >>> float(rsqrt(4.0))
      0.5
    """
    return rsqrt_p.bind(x)


def cbrt(x: ArrayLike, *, accuracy: Any = None) -> Array:
    """Cube root of each element; negative for negative ones.

    Args:
      x: array of a floating-point dtype.
      accuracy: accepted for compatibility; results are within 2 ulp in any case.

    Returns:
      Array of the shape and dtype of the operand.

    Raises:
      TypeError: for an operand of another dtype.

    Example:
      >>> float(cbrt(-8.0))
      -2.0
    """
    return cbrt_p.bind(x)


def _pow_dtype(x: Any, y: Any) -> np.dtype:
    if x.dtype == y.dtype or dtypes.issubdtype(y.dtype, np.integer):
        return x.dtype
    raise TypeError(
        "pow: x must be floating-point or complex and y of the same dtype or an integer, got "
        f"{x.dtype} and {y.dtype}."
    )


def _pow_base(g: Any, z: Any, x: Any, y: Any) -> Any:
    """The slope y x^(y-1), which is 0 where y is 0 although x^-1 may be infinite there."""
    y = repeat_to(shape_of(z), y)
    less = pow(x, sub(y, scalar(y, 1)))
    slope = mul(convert_like(y, x), less)
    return mul(g, select(eq(y, scalar(y, 0)), filled_like(slope, 0), slope))


def _pow_exponent(g: Any, z: Any, x: Any, y: Any) -> Any:
    """The slope x^y log x, which is 0 where x is 0."""
    nonzero = select(eq(x, scalar(x, 0)), filled_like(x, 1), x)
    return mul(g, mul(_elementary_log(nonzero), z))


def _elementary_log(x: Any) -> Any:
    from amdjax.lax.elementary import log

    return log(x)


pow_p = elementwise(
    "pow",
    (INEXACT, NUMBER),
    Pointwise(
        lambda b, x, y: b.pow(x, y if y.dtype == x.dtype else b.convert(y, x.dtype)), cost=8.0
    ),
    _pow_base,
    _pow_exponent,
    out=_pow_dtype,
    mixed=True,
)


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """`x` to the power `y`, element by element.

    `y` has the dtype of `x` or an integer dtype.

    Args:
      x: array of a floating-point or complex dtype.
      y: array of the same dtype or of an integer dtype; shapes equal up to axes of size one, or
        scalars.

    Returns:
      Array of the common shape and the dtype of `x`.

    Raises:
      TypeError: for an operand of another dtype, or shapes that do not match.

    Example:
      >>> float(pow(2.0, 3))
      8.0
    """
    return pow_p.bind(x, y)


def _integer_power(b: Any, x: Any, *, y: int) -> Any:
    """Square and multiply: log2(y) squarings, exact wherever the products are."""
    one = b.const(1, x.dtype)
    result, factor, rest = None, x, builtins.abs(y)
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
    return mul(g, mul(scalar(x, y), less))


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

    Returns:
      Array of the shape and dtype of `x`.

    Raises:
      TypeError: for a negative power of integers.

    Example:
      >>> float(integer_pow(2.0, -2))
      0.25
    """
    try:
        power = operator.index(y)
    except TypeError:
        raise TypeError(f"integer_pow: y must be an integer, got {y!r}") from None
    return integer_pow_p.bind(x, y=power)


def reciprocal(x: ArrayLike) -> Array:
    """One divided by each element.

    Args:
      x: array of floating-point or complex dtype.

    Returns:
      Array of the shape and dtype of `x`.

    Raises:
      TypeError: for an integer operand.

    Example:
      >>> float(reciprocal(4.0))
      0.25
    """
    return integer_pow(x, -1)
