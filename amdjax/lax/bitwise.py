"""Bitwise and logical operations on integers and booleans, element by element."""

from __future__ import annotations

from amdjax.core.array import Array
from amdjax.lax._public import binary_function, unary_function
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


bitwise_and = binary_function(
    and_p, "Bitwise conjunction; of booleans the logical one.", "6, 3", "2", "bitwise_and"
)
bitwise_or = binary_function(
    or_p, "Bitwise disjunction; of booleans the logical one.", "6, 3", "7", "bitwise_or"
)
bitwise_xor = binary_function(
    xor_p, "Bitwise exclusive disjunction; of booleans the logical one.", "6, 3", "5", "bitwise_xor"
)


def bitwise_not(x: ArrayLike) -> Array:
    """Bitwise complement; of booleans the logical one.

    Args:
      x: array of an integer or boolean dtype.

        >>> int(bitwise_not(0))
        -1
    """
    return not_p.bind(x)


shift_left_p = binary("shift_left", INT, FLAT, FLAT, "shl")
shift_right_logical_p = binary("shift_right_logical", INT, FLAT, FLAT, "shr_logical")
shift_right_arithmetic_p = binary("shift_right_arithmetic", INT, FLAT, FLAT, "shr_arithmetic")


shift_left = binary_function(
    shift_left_p,
    """`x` shifted left by `y` bits, filled with zeros.

    A shift by the width of the dtype or more, or by a negative count, gives 0.""",
    "3, 2",
    "12",
)
shift_right_logical = binary_function(
    shift_right_logical_p,
    """`x` shifted right by `y` bits, filled with zeros.

    A shift by the width of the dtype or more, or by a negative count, gives 0.""",
    "12, 2",
    "3",
)
shift_right_arithmetic = binary_function(
    shift_right_arithmetic_p,
    """`x` shifted right by `y` bits, filled with copies of the sign bit.

    A shift by the width of the dtype or more, or by a negative count, leaves only the sign.""",
    "-12, 2",
    "-3",
)


population_count_p = unary("population_count", INT, FLAT, "popcnt")
clz_p = unary("clz", INT, FLAT)


population_count = unary_function(
    population_count_p, "Number of bits set in each element.", "7", "3"
)
clz = unary_function(clz_p, "Number of leading zero bits of each element.", "1", "31")
