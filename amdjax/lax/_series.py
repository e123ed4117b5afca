"""What special functions computed by series and continued fractions share.

Formula numbers are those of the NIST Digital Library of Mathematical Functions (dlmf.nist.gov).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.lowering import Decompose
from amdjax.lax._rules import (
    aval_of,
    broadcast_together,
    dtype_of,
    filled_like,
    repeat_to,
    scalar,
    shape_of,
)
from amdjax.lax.bitwise import bitwise_and, bitwise_or
from amdjax.lax.casting import convert
from amdjax.lax.comparison import gt, lt, ne
from amdjax.lax.control_flow.while_loops import while_loop
from amdjax.lax.elementary import log
from amdjax.lax.elementwise import add, div, mul, sub
from amdjax.lax.reductions import reduce_or
from amdjax.lax.roots import square
from amdjax.lax.selection import select

if TYPE_CHECKING:
    from fractions import Fraction


def widened(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays of one shape, computed in at least float32."""

    def call(*args: Any) -> Any:
        dtype = dtype_of(args[0])
        shape = broadcast_together(fn.__name__, [shape_of(x) for x in args])
        wide = np.dtype(np.float32) if dtypes.itemsize_bits(dtype) < 32 else dtype
        out = fn(*(repeat_to(shape, convert(x, wide)) for x in args))
        return convert(out, dtype, all(aval_of(x).weak_type for x in args))

    return call


def decomposed(fn: Callable[..., Any]) -> Decompose:
    """Lowering by a function of arrays of one shape that are computed in at least float32."""
    return Decompose(widened(fn))


def any_of(*conditions: Any) -> Any:
    result = conditions[0]
    for condition in conditions[1:]:
        result = bitwise_or(result, condition)
    return result


def is_nan(x: Any) -> Any:
    return ne(x, x)


def where(condition: Any, x: Any, value: float) -> Any:
    """`value` where the condition holds, elsewhere `x`."""
    return select(condition, filled_like(x, value), x)


def epsilon(x: Any) -> Any:
    return scalar(x, dtypes.finfo(dtype_of(x)).eps)


def iterate(step: Callable[..., Any], state: tuple[Any, ...], limit: int | None = None) -> Any:
    """Apply `step(n, state) -> (state, busy)` for n = 1, 2, ... while any element is busy."""
    like = state[0]

    def condition(carry: Any) -> Any:
        n, busy, _ = carry
        return busy if limit is None else bitwise_and(busy, lt(n, scalar(like, limit)))

    def body(carry: Any) -> Any:
        n, _, state = carry
        n = add(n, scalar(like, 1))
        state, busy = step(n, state)
        return n, reduce_or(busy, range(len(shape_of(busy)))), state

    start = convert(scalar(like, 0), dtype_of(like))
    return while_loop(condition, body, (start, True, state))[2]


@cache
def bernoulli(count: int) -> tuple[Fraction, ...]:
    """The numbers of Bernoulli B(2), B(4), … B(2 count), from the recurrence 24.5.3."""
    # late: exact numbers load the decimal ones, and only some functions need any
    from fractions import Fraction

    found = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        total = sum((math.comb(m + 1, k) * b for k, b in enumerate(found)), Fraction(0))
        found.append(-total / (m + 1))
    return tuple(found[2::2])


def horner(x: Any, coefficients: Any) -> Any:
    """The polynomial in `x` of these coefficients, the constant one first."""
    *lower, last = coefficients
    total = filled_like(x, last)
    for c in reversed(lower):
        total = add(mul(total, x), scalar(x, c))
    return total


def log1p_less(x: Any, ratio: Any) -> Any:
    """`log(1 + x) - x`, accurate near zero too; `ratio` is `1 + x` to its last digit."""
    near = bitwise_and(gt(x, scalar(x, -0.5)), lt(x, scalar(x, 1)))
    small = select(near, x, filled_like(x, 0))
    # With r = x / (2 + x): log(1 + x) = 2 (r + r³/3 + r⁵/5 + …).
    r = div(small, add(small, scalar(x, 2)))
    z = square(r)
    series = mul(mul(z, r), horner(z, [2 / (2 * k + 3) for k in range(18)]))
    far = select(near, filled_like(x, 1), ratio)
    return select(near, sub(series, mul(small, r)), sub(log(far), x))


def stirling_rest(x: Any) -> Any:
    """What Stirling's formula for `lgamma(x)` lacks (5.11.1), for `x >= 8`."""
    inverse = div(scalar(x, 1), x)
    terms = [float(b / (2 * j * (2 * j - 1))) for j, b in enumerate(bernoulli(9), 1)]
    return mul(inverse, horner(square(inverse), terms))
