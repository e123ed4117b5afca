"""Bitwise and logical operations on integers and booleans, element by element."""

from __future__ import annotations

from amdjax.core.array import Array
from amdjax.lax._rules import BOOL, FLAT, INT, binary, unary
from amdjax.typing import ArrayLike

__all__ = [
    "and_p", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "clz", "clz_p", "not_p",
    "or_p", "population_count", "population_count_p", "shift_left", "shift_left_p",
    "shift_right_arithmetic", "shift_right_arithmetic_p", "shift_right_logical",
    "shift_right_logical_p", "xor_p",
]  # fmt: skip

and_p = binary("and", BOOL | INT, FLAT, FLAT)
or_p = binary("or", BOOL | INT, FLAT, FLAT)
xor_p = binary("xor", BOOL | INT, FLAT, FLAT)
not_p = unary("not", BOOL | INT, FLAT)


def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """Bitwise conjunction; of booleans the logical one.

    Example:
      >>> int(bitwise_and(6, 3))
      2
    """
    return and_p.bind(x, y)


def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """Bitwise disjunction; of booleans the logical one.

    Example:
      >>> int(bitwise_or(6, 3))
      7
    """
    return or_p.bind(x, y)


def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """Bitwise exclusive disjunction; of booleans the logical one.

    Example:
      >>> int(bitwise_xor(6, 3))
      5
    """
    return xor_p.bind(x, y)


def bitwise_not(x: ArrayLike) -> Array:
    """Bitwise complement; of booleans the logical one.

    Args:
      x: array of an integer or boolean dtype.

    Returns:
      Array of the shape and dtype of the operand.

    Raises:
      TypeError: for an operand of another dtype.

    Example:
      >>> int(bitwise_not(0))
      -1
    """
    return not_p.bind(x)


shift_left_p = binary("shift_left", INT, FLAT, FLAT, "shl")
shift_right_logical_p = binary("shift_right_logical", INT, FLAT, FLAT, "shr_logical")
shift_right_arithmetic_p = binary("shift_right_arithmetic", INT, FLAT, FLAT, "shr_arithmetic")


def shift_left(x: ArrayLike, y: ArrayLike) -> Array:
    """`x` shifted left by `y` bits, filled with zeros.

    A shift by the width of the dtype or more, or by a negative count, gives 0.

    Example:
      >>> int(shift_left(3, 2))
      12
    """
    return shift_left_p.bind(x, y)


def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    """`x` shifted right by `y` bits, filled with zeros.

    A shift by the width of the dtype or more, or by a negative count, gives 0.

    Example:
      >>> int(shift_right_logical(12, 2))
      3
    """
    return shift_right_logical_p.bind(x, y)


def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    """`x` shifted right by `y` bits, filled with copies of the sign bit.

    A shift by the width of the dtype or more, or by a negative count, leaves only the sign.

    Example:
      >>> int(shift_right_arithmetic(-12, 2))
      -3
    """
    return shift_right_arithmetic_p.bind(x, y)


population_count_p = unary("population_count", INT, FLAT, "popcnt")
clz_p = unary("clz", INT, FLAT)


def population_count(x: ArrayLike) -> Array:
    """Number of bits set in each element.

    Example:
      >>> int(population_count(7))
      3
    """
    return population_count_p.bind(x)


def clz(x: ArrayLike) -> Array:
    """Number of leading zero bits of each element.

    Example:
      >>> int(clz(1))
      31
    """
    return clz_p.bind(x)
