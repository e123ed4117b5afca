"""Powers, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.lowering import Pointwise
from amdjax.lax._rules import (
    INEXACT,
    NUMBER,
    dtype_of,
    elementwise,
    filled_like,
    repeat_to,
    scalar,
    shape_of,
)
from amdjax.lax.casting import convert
from amdjax.lax.comparison import eq
from amdjax.lax.elementary import log
from amdjax.lax.elementwise import mul, sub
from amdjax.lax.roots import integer_pow
from amdjax.lax.selection import select
from amdjax.typing import ArrayLike

__all__ = [
    "pow", "pow_p", "reciprocal",
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

        >>> float(pow(2.0, 3))
        8.0
    """
    return pow_p.bind(x, y)


def reciprocal(x: ArrayLike) -> Array:
    """One divided by each element.

    Args:
      x: array of floating-point or complex dtype.

    Raises:
      TypeError: for an integer operand.

        >>> float(reciprocal(4.0))
        0.25
    """
    return integer_pow(x, -1)
