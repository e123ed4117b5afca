"""The Hurwitz zeta function and the derivatives of the digamma function.

Formula numbers are those of the NIST Digital Library of Mathematical Functions (dlmf.nist.gov).
"""

from __future__ import annotations

import math
from typing import Any

from amdjax.core.array import Array
from amdjax.lax._rules import FLOAT, binary, filled_like, scalar
from amdjax.lax._series import any_of, bernoulli, decomposed, is_nan, where, widened
from amdjax.lax.bitwise import bitwise_and, bitwise_not
from amdjax.lax.comparison import eq, le, lt, ne
from amdjax.lax.elementwise import add, div, mul, neg, rem, sub
from amdjax.lax.powers import pow
from amdjax.lax.rounding import floor
from amdjax.transforms.forward import jvp_flat
from amdjax.typing import ArrayLike

__all__ = ["zeta", "zeta_p"]

_DIRECT_TERMS = 10
_CORRECTIONS = 12


def _zeta(s: Any, q: Any) -> Any:
    """Euler-Maclaurin summation, 25.11.5: ten terms, an integral, and corrections."""
    total = filled_like(q, 0)
    for k in range(_DIRECT_TERMS):
        total = add(total, pow(add(q, scalar(q, k)), neg(s)))
    a = add(q, scalar(q, _DIRECT_TERMS))
    power = pow(a, neg(s))
    total = add(total, div(mul(power, a), sub(s, scalar(s, 1))))
    total = add(total, mul(scalar(q, 0.5), power))
    factor = div(mul(power, s), a)
    for j, b in enumerate(bernoulli(_CORRECTIONS), 1):
        ratio = float(b / math.factorial(2 * j))
        total = add(total, mul(factor, scalar(q, ratio)))
        for k in (2 * j - 1, 2 * j):
            factor = div(mul(factor, add(s, scalar(s, k))), a)
    pole = bitwise_and(le(q, scalar(q, 0)), eq(q, floor(q)))
    even = eq(rem(s, scalar(s, 2)), scalar(s, 0))
    outside = bitwise_and(le(q, scalar(q, 0)), ne(s, floor(s)))
    result = where(bitwise_and(pole, even), total, math.inf)
    odd_pole = bitwise_and(pole, bitwise_not(even))
    bad = any_of(outside, odd_pole, lt(s, scalar(s, 1)), is_nan(s), is_nan(q))
    return where(eq(s, scalar(s, 1)), where(bad, result, math.nan), math.inf)


def _zeta_slope(s: Any, q: Any) -> Any:
    """The derivative with respect to the first argument."""
    return jvp_flat(lambda v: [_zeta(v, q)], [s], [filled_like(s, 1)])[1][0]


zeta_p = binary(
    "zeta",
    FLOAT,
    lambda g, y, s, q: mul(g, widened(_zeta_slope)(s, q)),
    lambda g, y, s, q: mul(g, neg(mul(s, zeta(add(s, scalar(s, 1)), q)))),
    decomposed(_zeta),
)


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """The Hurwitz zeta function, the sum of `(k + q) ** -x` over k = 0, 1, ….

    Args:
      x: array of a floating-point dtype.
      q: array of the same dtype; shapes equal up to axes of size one, or scalars.

        >>> round(float(zeta(2.0, 1.0)), 4)
        1.6449
    """
    return zeta_p.bind(x, q)
