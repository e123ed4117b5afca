"""Rounding to integers, and neighbors of floating-point numbers."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.lowering import Pointwise
from amdjax.lax._public import unary_function
from amdjax.lax._rules import FLAT, FLOAT, binary, boolean, unary, value_dtype
from amdjax.typing import ArrayLike

__all__ = [
    "RoundingMethod", "ceil", "ceil_p", "floor", "floor_p", "is_finite", "is_finite_p", "nextafter",
    "nextafter_p", "round", "round_p",
]  # fmt: skip

floor_p = unary("floor", FLOAT, FLAT)
ceil_p = unary("ceil", FLOAT, FLAT)


floor = unary_function(floor_p, "The greatest integer not above each element.", "-1.5", "-2.0")
ceil = unary_function(ceil_p, "The least integer not below each element.", "-1.5", "-1.0")


class RoundingMethod(enum.IntEnum):
    """What `round` does with values halfway between two integers."""

    AWAY_FROM_ZERO = 0
    """0.5 becomes 1 and -0.5 becomes -1."""
    TO_NEAREST_EVEN = 1
    """0.5 becomes 0 and 1.5 becomes 2."""


def _round(b: Any, x: Any, *, rounding_method: RoundingMethod) -> Any:
    if rounding_method == RoundingMethod.AWAY_FROM_ZERO:
        return b.round_away(x)
    return b.round_even(x)


round_p = unary("round", FLOAT, FLAT, _round)


def round(x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """The integer nearest to each element.

    Args:
      x: array of a floating-point dtype.
      rounding_method: where values halfway between two integers go.

    Raises:
      TypeError: for another dtype.
      ValueError: for an unknown method.

        >>> float(round(2.5)), float(round(2.5, RoundingMethod.TO_NEAREST_EVEN))
        (3.0, 2.0)
    """
    return round_p.bind(x, rounding_method=RoundingMethod(rounding_method))


is_finite_p = unary("is_finite", FLOAT, FLAT, out=boolean)


def is_finite(x: ArrayLike) -> Array:
    """Whether each element is neither infinite nor NaN.

    Args:
      x: array of a floating-point dtype.

    Returns:
      Boolean array of the shape of `x`.

        >>> bool(is_finite(float('inf')))
        False
    """
    return is_finite_p.bind(x)


def _nextafter(b: Any, x: Any, y: Any) -> Any:
    """Narrow floats are computed in a wider type, whose neighbors are others: theirs by bits."""
    dtype = value_dtype(x)
    if dtypes.itemsize_bits(dtype) >= 32:
        return b.nextafter(x, y)
    word = np.dtype(f"int{dtypes.itemsize_bits(dtype)}")
    zero, one, unit = b.const(0, dtype), b.const(1, word), b.bitcast(x, word)
    outward = b.xor(b.compare("gt", y, x), b.compare("lt", x, zero))
    stepped = b.select(outward, b.add(unit, one), b.sub(unit, one))
    sign = b.const(np.iinfo(word).min, word)
    from_zero = b.or_(b.and_(b.bitcast(y, word), sign), one)
    moved = b.bitcast(b.select(b.compare("eq", x, zero), from_zero, stepped), dtype)
    moved = b.select(b.compare("eq", x, y), y, moved)
    ordered = b.and_(b.compare("eq", x, x), b.compare("eq", y, y))
    return b.select(ordered, moved, b.const(np.nan, dtype))


nextafter_p = binary("nextafter", FLOAT, lowering=Pointwise(_nextafter, cost=8.0))


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The floating-point number next to `x1` in the direction of `x2`.

    Args:
      x1: array of a floating-point dtype.
      x2: array of the same dtype; shapes equal up to axes of size one, or scalars.

        >>> float(nextafter(0.0, 1.0)) > 0
        True
    """
    return nextafter_p.bind(x1, x2)
