"""Bounds of polynomials from those of their unknowns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.dims.operations import Bounds
from amdjax.core.dims.polynomial import Atom, Polynomial

__all__ = ["interval_of", "known", "narrower", "quotient"]


def interval_of(a: Polynomial, range_of: Callable[[Atom], Bounds]) -> Bounds:
    """Bounds of a polynomial from those of its unknowns, as if all its terms were independent."""
    total: Bounds = (0, 0)
    for monomial, factor in a:
        product: Bounds = (factor, factor)
        for atom, power in monomial:
            for _ in range(power):
                product = _interval_product(product, range_of(atom))
        total = _interval_sum(total, product)
    return total


def quotient(a: int | None, of_positive: int | None, of_negative: int | None) -> int | None:
    """A bound of quotients: which bound of the divisor counts depends on the dividend's sign."""
    if a is None:
        return None
    divisor = of_positive if a >= 0 else of_negative
    return a // divisor if divisor is not None else (0 if a >= 0 else -1)


def known(best: Callable[..., int], values: Sequence[int | None]) -> int | None:
    return None if None in values else best(values)


def narrower(a: Bounds, b: Bounds) -> Bounds:
    lows = [x for x in (a[0], b[0]) if x is not None]
    highs = [x for x in (a[1], b[1]) if x is not None]
    return max(lows, default=None), min(highs, default=None)


def _interval_sum(a: Bounds, b: Bounds) -> Bounds:
    low, high = (None if x is None or y is None else x + y for x, y in zip(a, b))
    return low, high


def _interval_product(a: Bounds, b: Bounds) -> Bounds:
    (least, most), (other_least, other_most) = a, b
    if least is not None and other_least is not None and least > 0 and other_least > 0:
        # the most frequent one
        largest = None if most is None or other_most is None else most * other_most
        return least * other_least, largest
    ends = [(x, y) for x in _ends(a) for y in _ends(b)]
    products = [0.0 if 0 in (x, y) else x * y for x, y in ends]
    low, high = min(products), max(products)
    return (None if math.isinf(low) else int(low)), (None if math.isinf(high) else int(high))


def _ends(a: Bounds) -> tuple[Any, Any]:
    return (-math.inf if a[0] is None else a[0]), (math.inf if a[1] is None else a[1])
