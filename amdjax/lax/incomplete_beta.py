"""The incomplete beta function, and the logarithm of the complete one.

Formula numbers are those of the NIST Digital Library of Mathematical Functions (dlmf.nist.gov).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.lax._rules import FLOAT, dtype_of, elementwise, filled_like, scalar
from amdjax.lax._series import (
    any_of,
    decomposed,
    epsilon,
    is_nan,
    iterate,
    log1p_less,
    stirling_rest,
    where,
    widened,
)
from amdjax.lax.bitwise import bitwise_and, bitwise_not, bitwise_or
from amdjax.lax.comparison import eq, ge, gt, le, lt
from amdjax.lax.elementary import exp, log, log1p
from amdjax.lax.elementwise import add, div, max, min, mul, neg, sub
from amdjax.lax.gamma import lgamma
from amdjax.lax.magnitude import abs
from amdjax.lax.roots import rsqrt, sqrt
from amdjax.lax.selection import select
from amdjax.typing import ArrayLike

__all__ = ["betainc", "regularized_incomplete_beta_p"]


def _log_scaled_beta(small: Any, large: Any) -> Any:
    """`log |small B(small, large)|`, which is small where `small` is.

    Gamma functions of arguments from 8 on are compared by Stirling's formula, so that nothing
    large cancels.
    """
    eight = scalar(small, 8)
    total = add(small, large)
    far = bitwise_and(ge(large, eight), ge(total, eight))
    big, sum_ = where(bitwise_not(far), large, 8.0), where(bitwise_not(far), total, 16.0)
    part = select(far, small, filled_like(small, 8))
    ratio = div(part, big)
    # log Γ(large) - log Γ(small + large)
    rest = sub(stirling_rest(big), stirling_rest(sum_))
    bend = mul(sub(add(big, part), scalar(small, 0.5)), log1p(ratio))
    apart = sub(sub(rest, bend), mul(part, sub(log(big), scalar(small, 1))))
    apart = select(far, apart, sub(lgamma(large), lgamma(total)))
    unequal = add(lgamma(add(small, scalar(small, 1))), apart)
    both = bitwise_and(far, ge(small, eight))
    part = select(both, small, filled_like(small, 8))
    ratio = div(part, big)
    rest = sub(add(stirling_rest(part), stirling_rest(big)), stirling_rest(sum_))
    high = mul(sub(part, scalar(small, 0.5)), log(div(ratio, add(ratio, scalar(small, 1)))))
    wide = sub(high, mul(big, log1p(ratio)))
    scale = sub(log(part), mul(scalar(small, 0.5), log(big)))
    equal = add(wide, add(add(scale, scalar(small, 0.5 * math.log(2 * math.pi))), rest))
    return select(both, equal, unequal)


@widened
def log_beta(a: Any, b: Any) -> Any:
    """The logarithm of the magnitude of the beta function."""
    small, large = min(a, b), max(a, b)
    endless = eq(large, scalar(a, np.inf))
    large = where(endless, large, 8.0)
    value = sub(_log_scaled_beta(small, large), log(abs(small)))
    return where(bitwise_and(endless, gt(small, scalar(a, 0))), value, -math.inf)


def _beta_fraction(a: Any, b: Any, x: Any) -> Any:
    """The continued fraction 8.17.22 by Lentz's method, two of its terms at a time."""
    one = scalar(x, 1)

    def away_from_zero(v: Any) -> Any:
        tiny = dtypes.finfo(dtype_of(x)).tiny
        return where(lt(abs(v), scalar(x, tiny)), v, tiny)

    def advance(numerator: Any, c: Any, d: Any) -> tuple[Any, Any]:
        d = div(one, away_from_zero(add(one, mul(numerator, d))))
        return away_from_zero(add(one, div(numerator, c))), d

    def step(m: Any, state: Any) -> Any:
        value, c, d = state
        twice = add(a, mul(scalar(x, 2), m))
        even = mul(div(m, sub(twice, one)), mul(div(sub(b, m), twice), x))
        c, d = advance(even, c, d)
        value = mul(value, mul(c, d))
        shifted = add(a, m)
        odd = neg(mul(div(shifted, twice), mul(div(add(shifted, b), add(twice, one)), x)))
        c, d = advance(odd, c, d)
        delta = mul(c, d)
        return (mul(value, delta), c, d), gt(abs(sub(delta, one)), epsilon(x))

    first = neg(mul(div(add(a, b), add(a, one)), x))
    d = div(one, away_from_zero(add(one, first)))
    value, _, _ = iterate(step, (d, filled_like(x, 1), d), limit=10_000)
    return value


def _powers(a: Any, b: Any, x: Any, rest: Any) -> Any:
    """x^a (1-x)^b / (a B(a, b)), where `rest` is 1 - x."""
    eight = scalar(a, 8)
    small, large = min(a, b), max(a, b)
    total = add(a, b)
    # Where both are large, relative to the largest value, at the mean.
    left = sub(a, mul(total, x))
    gap = select(le(a, b), left, sub(mul(total, rest), b))
    from_a = log1p_less(neg(div(gap, a)), div(x, div(a, total)))
    from_b = log1p_less(div(gap, b), div(rest, div(b, total)))
    corrections = sub(
        add(stirling_rest(max(a, eight)), stirling_rest(max(b, eight))),
        stirling_rest(max(total, eight)),
    )
    exponent = sub(add(mul(a, from_a), mul(b, from_b)), corrections)
    root = mul(rsqrt(mul(scalar(a, 2 * math.pi), a)), sqrt(div(b, total)))
    peaked = mul(exp(exponent), root)
    exponent = add(mul(a, log(x)), mul(b, log1p(neg(x))))
    plain = mul(exp(sub(exponent, _log_scaled_beta(small, large))), div(small, a))
    return select(ge(small, eight), peaked, plain)


def _betainc(a: Any, b: Any, x: Any) -> Any:
    one = scalar(x, 1)
    zero, infinity = scalar(x, 0), scalar(x, np.inf)
    outside = any_of(lt(a, zero), lt(b, zero), lt(x, zero), gt(x, one))
    bad = any_of(outside, is_nan(a), is_nan(b), is_nan(x))
    # Limits: all mass at 0, at 1, or undefined.
    low = bitwise_or(eq(a, zero), eq(b, infinity))
    high = bitwise_or(eq(b, zero), eq(a, infinity))
    bad = bitwise_or(bad, bitwise_and(low, high))
    at_zero, at_one = eq(x, zero), eq(x, one)
    at_end = any_of(at_zero, at_one, low, high)
    end = where(at_one, where(at_zero, where(high, filled_like(x, 1), 0.0), 0.0), 1.0)
    skip = bitwise_or(bad, at_end)
    p, q, t = where(skip, a, 1.0), where(skip, b, 1.0), where(skip, x, 0.5)
    # The fraction converges fast below the mean; above it, the complement does.
    mirrored = ge(t, div(add(p, one), add(add(p, q), scalar(x, 2))))
    rest = sub(one, t)
    front = _powers(p, q, t, rest)
    front = select(mirrored, mul(front, div(p, q)), front)
    p, q = select(mirrored, q, p), select(mirrored, p, q)
    value = mul(front, _beta_fraction(p, q, select(mirrored, rest, t)))
    value = select(mirrored, sub(one, value), value)
    return where(bad, select(at_end, end, value), math.nan)


@widened
def _density(a: Any, b: Any, x: Any) -> Any:
    """The slope in x, x^(a-1) (1-x)^(b-1) / B(a, b), which at 0 and 1 depends on a and b."""
    one, zero = scalar(x, 1), scalar(x, 0)
    proper = bitwise_and(bitwise_and(gt(a, zero), gt(b, zero)), bitwise_not(is_nan(add(a, b))))
    inside = bitwise_and(proper, bitwise_and(gt(x, zero), lt(x, one)))
    outside = bitwise_not(inside)
    p, q, t = where(outside, a, 1.0), where(outside, b, 1.0), where(outside, x, 0.5)
    rest = sub(one, t)
    slope = mul(_powers(p, q, t, rest), div(p, mul(t, rest)))

    def at(order: Any, other: Any) -> Any:
        flat = where(lt(order, one), filled_like(x, 0), math.inf)
        return select(eq(order, one), other, flat)

    ends = select(eq(x, zero), at(a, b), at(b, a))
    ends = select(
        bitwise_and(proper, any_of(eq(x, zero), eq(x, one))), ends, filled_like(x, math.nan)
    )
    return select(inside, slope, ends)


regularized_incomplete_beta_p = elementwise(
    "regularized_incomplete_beta", (FLOAT, FLOAT, FLOAT), decomposed(_betainc), None, None,
    lambda g, y, a, b, x: mul(g, _density(a, b, x)),
)  # fmt: skip


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The regularized incomplete beta function I_x(a, b).

    Its derivative is known with respect to `x` only.

    Args:
      a: array of a floating-point dtype, positive.
      b: array of the same dtype, positive.
      x: array of the same dtype, in [0, 1]; shapes equal up to axes of size one, or scalars.

    Returns:
      Array of the common shape and of the operands' dtype; NaN outside the domain.

        >>> float(betainc(1.0, 1.0, 0.25))
        0.25
    """
    return regularized_incomplete_beta_p.bind(a, b, x)
