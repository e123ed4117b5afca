"""The logarithm of the gamma function and its derivatives, element by element."""

from __future__ import annotations

import math
from typing import Any

from amdjax.core.array import Array
from amdjax.lax._public import Unary, unary_function
from amdjax.lax._rules import FLOAT, binary, constant, scalar, unary
from amdjax.lax._series import any_of, decomposed, where
from amdjax.lax.comparison import eq, lt, ne
from amdjax.lax.elementary import exp
from amdjax.lax.elementwise import add, mul, neg, rem
from amdjax.lax.rounding import floor
from amdjax.lax.selection import select
from amdjax.lax.zeta import zeta
from amdjax.typing import ArrayLike

__all__ = [
    "digamma", "digamma_p", "lgamma", "lgamma_p", "polygamma", "polygamma_p",
]  # fmt: skip

lgamma_p = unary("lgamma", FLOAT, lambda g, y, x: mul(g, digamma(x)))
digamma_p = unary("digamma", FLOAT, lambda g, y, x: mul(g, polygamma(constant(x, 1), x)))


lgamma = unary_function(
    lgamma_p, "Logarithm of the absolute value of the gamma function.", "1.0", "0.0"
)
digamma: Unary = unary_function(
    digamma_p, "Logarithmic derivative of the gamma function.", "1.0", "-0.577..."
)


def _polygamma(m: Any, x: Any) -> Any:
    """By 5.15.3, (-1)^(m+1) m! zeta(m + 1, x)."""
    next_order = add(m, scalar(m, 1))
    even = eq(rem(m, scalar(m, 2)), scalar(m, 0))
    value = mul(exp(lgamma(next_order)), zeta(next_order, x))
    value = select(even, neg(value), value)
    bad = any_of(lt(m, scalar(m, 0)), ne(m, floor(m)))
    return select(eq(m, scalar(m, 0)), digamma(x), where(bad, value, math.nan))


def _no_slope_in_order(g: Any, y: Any, m: Any, x: Any) -> Any:
    raise ValueError("polygamma: the derivative with respect to m, the order, is not supported.")


polygamma_p = binary(
    "polygamma",
    FLOAT,
    _no_slope_in_order,
    lambda g, y, m, x: mul(g, polygamma(add(m, scalar(m, 1)), x)),
    decomposed(_polygamma),
)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of order `m` of the digamma function.

    `m` holds whole numbers; elsewhere the result is NaN.

    Args:
      m: array of a floating-point dtype.
      x: array of the same dtype; shapes equal up to axes of size one, or scalars.

        >>> round(float(polygamma(1.0, 1.0)), 4)
        1.6449
    """
    return polygamma_p.bind(m, x)
