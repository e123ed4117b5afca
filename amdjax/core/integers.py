"""Arithmetic of sizes: quotients rounded up, multiples, powers of two."""

from __future__ import annotations

__all__ = ["ceil_div", "floor_power_of_two", "power_of_two", "round_up"]


def ceil_div(a: int, b: int) -> int:
    """`a / b` rounded up.

    >>> ceil_div(7, 3), ceil_div(-7, 3), ceil_div(6, 3)
    (3, -2, 2)
    """
    return (a + b - 1) // b


def round_up(a: int, unit: int) -> int:
    """The least multiple of `unit` that is no less than `a`.

    >>> round_up(13, 8), round_up(16, 8)
    (16, 16)
    """
    return (a + unit - 1) // unit * unit


def power_of_two(n: int) -> int:
    """The least power of two that is no less than `n`; 1 where `n` is less than that.

    >>> power_of_two(5), power_of_two(8), power_of_two(0)
    (8, 8, 1)
    """
    return 1 << max(n - 1, 0).bit_length()


def floor_power_of_two(n: int) -> int:
    """The greatest power of two that is no greater than `n`; 1 where `n` is less than that.

    >>> floor_power_of_two(5), floor_power_of_two(8), floor_power_of_two(0)
    (4, 8, 1)
    """
    return 1 << max(n.bit_length() - 1, 0)
