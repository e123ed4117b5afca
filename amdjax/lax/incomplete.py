"""Zeta functions and incomplete integrals: of gamma and beta, with their derivatives.

They are decomposed: series and continued fractions that run until every element has converged.
Formula numbers are those of the NIST Digital Library of Mathematical Functions (dlmf.nist.gov).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.lowering import Decompose
from amdjax.lax._rules import (
    FLOAT,
    binary,
    broadcast_together,
    dtype_of,
    elementwise,
    filled_like,
    repeat_to,
    scalar,
    shape_of,
)
from amdjax.lax.bitwise import bitwise_and, bitwise_not, bitwise_or
from amdjax.lax.casting import convert
from amdjax.lax.comparison import eq, ge, gt, le, lt, ne
from amdjax.lax.elementary import exp, log, log1p
from amdjax.lax.elementwise import abs, add, div, mul, neg, rem, sub
from amdjax.lax.powers import pow, square
from amdjax.lax.reductions import reduce_or
from amdjax.lax.rounding import floor
from amdjax.lax.selection import select
from amdjax.lax.special import digamma, lgamma
from amdjax.typing import ArrayLike

__all__ = [
    "betainc",
    "igamma",
    "igamma_grad_a",
    "igamma_grad_a_p",
    "igamma_p",
    "igammac",
    "igammac_p",
    "polygamma",
    "polygamma_p",
    "random_gamma_grad",
    "regularized_incomplete_beta_p",
    "zeta",
    "zeta_p",
]


def _decomposed(fn: Callable[..., Any]) -> Decompose:
    """Lowering by a function of arrays of one shape that are computed in at least float32."""

    def lowered(*args: Any) -> Any:
        dtype = dtype_of(args[0])
        shape = broadcast_together(fn.__name__, [shape_of(x) for x in args])
        wide = np.dtype(np.float32) if dtypes.itemsize_bits(dtype) < 32 else dtype
        out = fn(*(repeat_to(shape, convert(x, wide)) for x in args))
        return convert(out, dtype)

    return Decompose(lowered)


def _any_of(*conditions: Any) -> Any:
    result = conditions[0]
    for condition in conditions[1:]:
        result = bitwise_or(result, condition)
    return result


def _is_nan(x: Any) -> Any:
    return ne(x, x)


def _where(condition: Any, x: Any, value: float) -> Any:
    """`value` where the condition holds, elsewhere `x`."""
    return select(condition, filled_like(x, value), x)


def _epsilon(x: Any) -> Any:
    return scalar(x, dtypes.finfo(dtype_of(x)).eps)


def _iterate(step: Callable[..., Any], state: tuple[Any, ...], limit: int | None = None) -> Any:
    """Apply `step(n, state) -> (state, busy)` for n = 1, 2, ... while any element is busy."""
    from amdjax.lax.control_flow import while_loop

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


_DIRECT_TERMS = 10
_CORRECTIONS = 12


def _bernoulli_over_factorial(count: int) -> list[float]:
    """The ratios B(2j) / (2j)! for j = 1 … count, from the recurrence 24.5.3."""
    bernoulli = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        total = sum((math.comb(m + 1, k) * b for k, b in enumerate(bernoulli)), Fraction(0))
        bernoulli.append(-total / (m + 1))
    return [float(bernoulli[2 * j] / math.factorial(2 * j)) for j in range(1, count + 1)]


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
    for j, ratio in enumerate(_bernoulli_over_factorial(_CORRECTIONS), 1):
        total = add(total, mul(factor, scalar(q, ratio)))
        for k in (2 * j - 1, 2 * j):
            factor = div(mul(factor, add(s, scalar(s, k))), a)
    pole = bitwise_and(le(q, scalar(q, 0)), eq(q, floor(q)))
    even = eq(rem(s, scalar(s, 2)), scalar(s, 0))
    outside = bitwise_and(le(q, scalar(q, 0)), ne(s, floor(s)))
    result = _where(bitwise_and(pole, even), total, math.inf)
    odd_pole = bitwise_and(pole, bitwise_not(even))
    bad = _any_of(outside, odd_pole, lt(s, scalar(s, 1)), _is_nan(s), _is_nan(q))
    return _where(eq(s, scalar(s, 1)), _where(bad, result, math.nan), math.inf)


def _polygamma(m: Any, x: Any) -> Any:
    """By 5.15.3, (-1)^(m+1) m! zeta(m + 1, x)."""
    next_order = add(m, scalar(m, 1))
    even = eq(rem(m, scalar(m, 2)), scalar(m, 0))
    value = mul(exp(lgamma(next_order)), zeta(next_order, x))
    value = select(even, neg(value), value)
    bad = _any_of(lt(m, scalar(m, 0)), ne(m, floor(m)))
    return select(eq(m, scalar(m, 0)), digamma(x), _where(bad, value, math.nan))


zeta_p = binary(
    "zeta",
    FLOAT,
    None,
    lambda g, y, s, q: mul(g, neg(mul(s, zeta(add(s, scalar(s, 1)), q)))),
    _decomposed(_zeta),
)
polygamma_p = binary(
    "polygamma",
    FLOAT,
    None,
    lambda g, y, m, x: mul(g, polygamma(add(m, scalar(m, 1)), x)),
    _decomposed(_polygamma),
)


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """The Hurwitz zeta function, the sum of `(k + q) ** -x` over k = 0, 1, ….

    Args:
      x: array of a floating-point dtype.
      q: array of the same dtype; shapes equal up to axes of size one, or scalars.

    Returns:
      Array of the common shape and of the operands' dtype.

    Raises:
      TypeError: for an operand of another dtype, or shapes that do not match.

    Example:
      >>> round(float(zeta(2.0, 1.0)), 4)
      1.6449
    """
    return zeta_p.bind(x, q)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of order `m` of the digamma function.

    `m` holds whole numbers; elsewhere the result is NaN.

    Args:
      m: array of a floating-point dtype.
      x: array of the same dtype; shapes equal up to axes of size one, or scalars.

    Returns:
      Array of the common shape and of the operands' dtype.

    Raises:
      TypeError: for an operand of another dtype, or shapes that do not match.

    Example:
      >>> round(float(polygamma(1.0, 1.0)), 4)
      1.6449
    """
    return polygamma_p.bind(m, x)


def _gamma_series(a: Any, x: Any) -> tuple[Any, Any]:
    """The sum over n of x^n / ((a+1) … (a+n)), 8.11.4, and its derivative with respect to a."""

    def step(n: Any, state: Any) -> Any:
        total, slope, term, term_slope = state
        below = add(a, n)
        term = div(mul(term, x), below)
        term_slope = sub(div(mul(term_slope, x), below), div(term, below))
        total, slope = add(total, term), add(slope, term_slope)
        eps = _epsilon(x)
        busy = _any_of(gt(term, mul(eps, total)), gt(abs(term_slope), mul(eps, abs(slope))))
        return (total, slope, term, term_slope), busy

    one, zero = filled_like(x, 1), filled_like(x, 0)
    total, slope, _, _ = _iterate(step, (one, zero, one, zero))
    return total, slope


def _gamma_fraction(a: Any, x: Any) -> tuple[Any, Any]:
    """The continued fraction 8.9.2 of Γ(a, x) x^-a e^x, by Lentz's method, and its derivative
    with respect to a.
    """

    def step(n: Any, state: Any) -> Any:
        value, slope, c, c_slope, d, d_slope = state
        numerator, numerator_slope = neg(mul(n, sub(n, a))), n
        b = sub(add(add(x, scalar(x, 1)), mul(scalar(x, 2), n)), a)  # its derivative is -1
        inner = add(b, mul(numerator, d))
        inner_slope = add(add(mul(numerator_slope, d), mul(numerator, d_slope)), scalar(x, -1))
        ratio = div(numerator, c)
        c_slope = add(div(sub(numerator_slope, mul(ratio, c_slope)), c), scalar(x, -1))
        c = add(b, ratio)
        d = div(scalar(x, 1), inner)
        d_slope = neg(mul(square(d), inner_slope))
        delta = mul(c, d)
        delta_slope = add(mul(c_slope, d), mul(c, d_slope))
        slope = add(mul(slope, delta), mul(value, delta_slope))
        value = mul(value, delta)
        eps = _epsilon(x)
        busy = _any_of(
            gt(abs(sub(delta, scalar(x, 1))), eps),
            gt(abs(mul(value, delta_slope)), mul(eps, abs(slope))),
        )
        return (value, slope, c, c_slope, d, d_slope), busy

    b = sub(add(x, scalar(x, 1)), a)
    d = div(scalar(x, 1), b)
    huge = filled_like(x, 1 / dtypes.finfo(dtype_of(x)).tiny)
    start = (d, square(d), huge, filled_like(x, 0), d, square(d))
    value, slope, *_ = _iterate(step, start, limit=2000)
    return value, slope


def _gamma_regions(a: Any, x: Any) -> tuple[Any, Any, Any]:
    """Where the fraction converges better than the series, and where arguments are proper."""
    bad = _any_of(
        lt(x, scalar(x, 0)), le(a, scalar(a, 0)), _is_nan(x), _is_nan(a), eq(a, scalar(a, np.inf))
    )
    proper = bitwise_not(_any_of(bad, eq(x, scalar(x, 0)), eq(x, scalar(x, np.inf))))
    upper = bitwise_and(gt(x, scalar(x, 1)), gt(x, a))
    return bad, proper, upper


def _both_regions(a: Any, x: Any) -> tuple[Any, Any, Any, Any]:
    """Series and fraction, each on the elements it is meant for; others get harmless arguments."""
    _, proper, upper = _gamma_regions(a, x)
    in_series = bitwise_and(proper, bitwise_not(upper))
    in_fraction = bitwise_and(proper, upper)

    def only(where: Any, value: float) -> tuple[Any, Any]:
        outside = bitwise_not(where)
        return _where(outside, a, 1.0), _where(outside, x, value)

    return *_gamma_series(*only(in_series, 0.5)), *_gamma_fraction(*only(in_fraction, 2.0))


def _log_density(a: Any, x: Any) -> Any:
    """The logarithm of x^a e^-x / Γ(a)."""
    return sub(sub(mul(a, log(x)), x), lgamma(a))


def _gamma_ends(a: Any, x: Any, result: Any, at_zero: float, at_infinity: float) -> Any:
    bad, _, _ = _gamma_regions(a, x)
    result = _where(eq(x, scalar(x, np.inf)), result, at_infinity)
    return _where(bad, _where(eq(x, scalar(x, 0)), result, at_zero), math.nan)


def _igamma(a: Any, x: Any) -> Any:
    series, _, fraction, _ = _both_regions(a, x)
    _, _, upper = _gamma_regions(a, x)
    density = exp(_log_density(a, x))
    above = sub(scalar(x, 1), mul(density, fraction))
    result = _gamma_ends(a, x, select(upper, above, div(mul(density, series), a)), 0.0, 1.0)
    return _where(_all_mass_at_zero(a, x), result, 1.0)


def _igammac(a: Any, x: Any) -> Any:
    series, _, fraction, _ = _both_regions(a, x)
    _, _, upper = _gamma_regions(a, x)
    density = exp(_log_density(a, x))
    below = sub(scalar(x, 1), div(mul(density, series), a))
    result = _gamma_ends(a, x, select(upper, mul(density, fraction), below), 1.0, 0.0)
    return _where(_all_mass_at_zero(a, x), result, 0.0)


def _all_mass_at_zero(a: Any, x: Any) -> Any:
    """Where the distribution function of the limit a = 0 has reached 1."""
    return bitwise_and(eq(a, scalar(a, 0)), gt(x, scalar(x, 0)))


def _relative_slopes(a: Any, x: Any) -> tuple[Any, Any, Any]:
    """The derivative of P(a, x) with respect to a, divided by x^a e^-x / Γ(a), in both regions."""
    series, series_slope, fraction, fraction_slope = _both_regions(a, x)
    _, _, upper = _gamma_regions(a, x)
    lower_log = sub(log(x), digamma(add(a, scalar(a, 1))))
    below = div(add(mul(series, lower_log), series_slope), a)
    above = neg(add(mul(fraction, sub(log(x), digamma(a))), fraction_slope))
    return upper, below, above


def _igamma_grad_a(a: Any, x: Any) -> Any:
    upper, below, above = _relative_slopes(a, x)
    slope = mul(exp(_log_density(a, x)), select(upper, above, below))
    return _gamma_ends(a, x, slope, 0.0, 0.0)


def _random_gamma_grad(a: Any, x: Any) -> Any:
    upper, below, above = _relative_slopes(a, x)
    return _gamma_ends(a, x, neg(mul(x, select(upper, above, below))), 0.0, math.nan)


def _gamma_density(a: Any, x: Any) -> Any:
    """The slope of P(a, x): x^(a-1) e^-x / Γ(a), which at a = 1 is e^-x even for x = 0."""
    less = sub(a, scalar(a, 1))
    power = mul(less, log(x))
    power = _where(repeat_to(shape_of(power), eq(less, scalar(a, 0))), power, 0.0)
    return exp(sub(sub(power, x), lgamma(a)))


igamma_grad_a_p = binary("igamma_grad_a", FLOAT, None, None, _decomposed(_igamma_grad_a))
igamma_p = binary(
    "igamma",
    FLOAT,
    lambda g, y, a, x: mul(g, igamma_grad_a(a, x)),
    lambda g, y, a, x: mul(g, _gamma_density(a, x)),
    _decomposed(_igamma),
)
igammac_p = binary(
    "igammac",
    FLOAT,
    lambda g, y, a, x: neg(mul(g, igamma_grad_a(a, x))),
    lambda g, y, a, x: neg(mul(g, _gamma_density(a, x))),
    _decomposed(_igammac),
)
random_gamma_grad_p = binary(
    "random_gamma_grad", FLOAT, None, None, _decomposed(_random_gamma_grad)
)


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function P(a, x).

    NaN unless `a` is positive and `x` not negative.

    Args:
      a: array of a floating-point dtype.
      x: array of the same dtype; shapes equal up to axes of size one, or scalars.

    Returns:
      Array of the common shape and of the operands' dtype.

    Raises:
      TypeError: for an operand of another dtype, or shapes that do not match.

    Example:
      >>> round(float(igamma(1.0, 1.0)), 4)
      0.6321
    """
    return igamma_p.bind(a, x)


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized upper incomplete gamma function Q(a, x).

    NaN unless `a` is positive and `x` not negative.

    Args:
      a: array of a floating-point dtype.
      x: array of the same dtype; shapes equal up to axes of size one, or scalars.

    Returns:
      Array of the common shape and of the operands' dtype.

    Raises:
      TypeError: for an operand of another dtype, or shapes that do not match.

    Example:
      >>> round(float(igammac(1.0, 1.0)), 4)
      0.3679
    """
    return igammac_p.bind(a, x)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of `igamma` with respect to `a`.

    Args:
      a: array of a floating-point dtype.
      x: array of the same dtype; shapes equal up to axes of size one, or scalars.

    Returns:
      Array of the common shape and of the operands' dtype.

    Raises:
      TypeError: for an operand of another dtype, or shapes that do not match.

    Example:
      >>> float(igamma_grad_a(1.0, 0.0))
      0.0
    """
    return igamma_grad_a_p.bind(a, x)


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative with respect to `a` of a sample `x` of the gamma distribution.

    That is the implicit derivative, -(dP/da) / (dP/dx) for the distribution function P(a, x):
    Figurnov, Mohamed and Mnih, Implicit Reparameterization Gradients (2018).

    Args:
      a: array of a floating-point dtype.
      x: array of the same dtype; shapes equal up to axes of size one, or scalars.

    Returns:
      Array of the common shape and of the operands' dtype.

    Raises:
      TypeError: for an operand of another dtype, or shapes that do not match.

    Example:
      >>> float(random_gamma_grad(1.0, 0.0))
      0.0
    """
    return random_gamma_grad_p.bind(a, x)


def _beta_fraction(a: Any, b: Any, x: Any) -> Any:
    """The continued fraction 8.17.22 by Lentz's method, two of its terms at a time."""
    one = scalar(x, 1)

    def away_from_zero(v: Any) -> Any:
        tiny = dtypes.finfo(dtype_of(x)).tiny
        return _where(lt(abs(v), scalar(x, tiny)), v, tiny)

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
        return (mul(value, delta), c, d), gt(abs(sub(delta, one)), _epsilon(x))

    first = neg(mul(div(add(a, b), add(a, one)), x))
    d = div(one, away_from_zero(add(one, first)))
    value, _, _ = _iterate(step, (d, filled_like(x, 1), d), limit=600)
    return value


def _betainc(a: Any, b: Any, x: Any) -> Any:
    one = scalar(x, 1)
    zero, infinity = scalar(x, 0), scalar(x, np.inf)
    outside = _any_of(lt(a, zero), lt(b, zero), lt(x, zero), gt(x, one))
    bad = _any_of(outside, _is_nan(a), _is_nan(b), _is_nan(x))
    # Limits: all mass at 0, at 1, or undefined.
    low = bitwise_or(eq(a, zero), eq(b, infinity))
    high = bitwise_or(eq(b, zero), eq(a, infinity))
    bad = bitwise_or(bad, bitwise_and(low, high))
    at_end = _any_of(eq(x, zero), eq(x, one), low, high)
    end = _where(bitwise_and(high, lt(x, one)), _where(low, x, 1.0), 0.0)
    skip = bitwise_or(bad, at_end)
    p, q, t = _where(skip, a, 1.0), _where(skip, b, 1.0), _where(skip, x, 0.5)
    # The fraction converges fast below the mean; above it, the complement does.
    mirrored = ge(t, div(add(p, one), add(add(p, q), scalar(x, 2))))
    rest = sub(one, t)
    p, q = select(mirrored, q, p), select(mirrored, p, q)
    near = select(mirrored, rest, t)
    log_t, log_rest = log(t), log1p(neg(t))
    log_near = select(mirrored, log_rest, log_t)
    log_far = select(mirrored, log_t, log_rest)
    log_beta = sub(add(lgamma(p), lgamma(q)), lgamma(add(p, q)))
    front = exp(sub(add(mul(p, log_near), mul(q, log_far)), log_beta))
    value = div(mul(front, _beta_fraction(p, q, near)), p)
    value = select(mirrored, sub(one, value), value)
    return _where(bad, select(at_end, end, value), math.nan)


def _betainc_slope(g: Any, y: Any, a: Any, b: Any, x: Any) -> Any:
    """The density x^(a-1) (1-x)^(b-1) / B(a, b)."""
    one = scalar(x, 1)
    log_beta = sub(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))
    powers = add(mul(sub(a, one), log(x)), mul(sub(b, one), log1p(neg(x))))
    return mul(g, exp(sub(powers, log_beta)))


regularized_incomplete_beta_p = elementwise(
    "regularized_incomplete_beta",
    (FLOAT, FLOAT, FLOAT),
    _decomposed(_betainc),
    None,
    None,
    _betainc_slope,
)


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The regularized incomplete beta function I_x(a, b).

    Its derivative is known with respect to `x` only.

    Args:
      a: array of a floating-point dtype, positive.
      b: array of the same dtype, positive.
      x: array of the same dtype, in [0, 1]; shapes equal up to axes of size one, or scalars.

    Returns:
      Array of the common shape and of the operands' dtype; NaN outside the domain.

    Raises:
      TypeError: for an operand of another dtype, or shapes that do not match.

    Example:
      >>> float(betainc(1.0, 1.0, 0.25))
      0.25
    """
    return regularized_incomplete_beta_p.bind(a, b, x)
