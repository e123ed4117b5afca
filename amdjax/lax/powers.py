"""Powers, element by element."""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.lowering import Pointwise
from amdjax.lax._rules import (
    INEXACT,
    NUMBER,
    constant,
    dtype_of,
    elementwise,
    filled_like,
    repeat_to,
    scalar,
    shape_of,
    unary,
    zero_tangent,
)
from amdjax.lax.casting import convert
from amdjax.lax.comparison import eq
from amdjax.lax.elementary import log
from amdjax.lax.elementwise import mul, sub
from amdjax.lax.selection import select
from amdjax.typing import ArrayLike

__all__ = [
    "integer_pow", "integer_pow_p", "pow", "pow_p", "reciprocal",
]  # fmt: skip


def _pow_dtype(x: Any, y: Any) -> np.dtype:
    if x.dtype == y.dtype or dtypes.issubdtype(y.dtype, np.integer):
        return x.dtype
    raise TypeError(
        "pow: x must be floating-point or complex and y of the same dtype or an integer, got "
        f"{x.dtype} and {y.dtype}."
    )


def _pow_base(g: Any, z: Any, x: Any, y: Any) -> Any:
    """The slope y x^(y-1), which is 0 where y is 0 although x^-1 may be infinite there."""
    x, y = convert(x, dtype_of(z)), repeat_to(shape_of(z), y)
    less = pow(x, sub(y, scalar(y, 1)))
    slope = mul(convert(y, dtype_of(z)), less)
    return mul(g, select(eq(y, scalar(y, 0)), filled_like(slope, 0), slope))


def _pow_exponent(g: Any, z: Any, x: Any, y: Any) -> Any:
    """The slope x^y log x, which is 0 where x is 0."""
    nonzero = select(eq(x, scalar(x, 0)), filled_like(x, 1), x)
    return convert(mul(g, mul(log(nonzero), z)), dtype_of(z))


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
