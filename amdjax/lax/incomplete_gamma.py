"""The incomplete gamma functions and their derivatives.

They are decomposed: a power series, a continued fraction, and where the order is large and near the
argument an expansion that is uniform around it. Formula numbers are those of the NIST Digital
Library of Mathematical Functions (dlmf.nist.gov).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.lax._rules import FLOAT, binary, dtype_of, filled_like, scalar
from amdjax.lax._series import (
    any_of,
    bernoulli,
    decomposed,
    epsilon,
    horner,
    is_nan,
    iterate,
    log1p_less,
    stirling_rest,
    where,
    widened,
)
from amdjax.lax.bitwise import bitwise_and, bitwise_not, bitwise_or
from amdjax.lax.comparison import eq, ge, gt, le, lt
from amdjax.lax.elementary import exp, expm1, log
from amdjax.lax.elementwise import add, div, min, mul, neg, sub
from amdjax.lax.gamma import digamma, lgamma
from amdjax.lax.magnitude import abs
from amdjax.lax.powers import pow
from amdjax.lax.roots import rsqrt, sqrt, square
from amdjax.lax.selection import select
from amdjax.lax.special import erfc
from amdjax.typing import ArrayLike

__all__ = [
    "igamma", "igamma_grad_a", "igamma_grad_a_p", "igamma_p", "igammac", "igammac_p",
    "random_gamma_grad",
]  # fmt: skip


def _series(a: Any, x: Any) -> tuple[Any, Any]:
    """The sum over n of x^n / ((a+1) … (a+n)), 8.11.4, and its derivative with respect to a."""

    def step(n: Any, state: Any) -> Any:
        total, slope, term, term_slope = state
        below = add(a, n)
        term = div(mul(term, x), below)
        term_slope = sub(div(mul(term_slope, x), below), div(term, below))
        total, slope = add(total, term), add(slope, term_slope)
        eps = epsilon(x)
        busy = any_of(gt(term, mul(eps, total)), gt(abs(term_slope), mul(eps, abs(slope))))
        return (total, slope, term, term_slope), busy

    one, zero = filled_like(x, 1), filled_like(x, 0)
    total, slope, _, _ = iterate(step, (one, zero, one, zero), limit=2000)
    return total, slope


def _fraction(a: Any, x: Any) -> tuple[Any, Any]:
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
        eps = epsilon(x)
        busy = any_of(
            gt(abs(sub(delta, scalar(x, 1))), eps),
            gt(abs(mul(value, delta_slope)), mul(eps, abs(slope))),
        )
        return (value, slope, c, c_slope, d, d_slope), busy

    b = sub(add(x, scalar(x, 1)), a)
    d = div(scalar(x, 1), b)
    huge = filled_like(x, 1 / dtypes.finfo(dtype_of(x)).tiny)
    start = (d, square(d), huge, filled_like(x, 0), d, square(d))
    value, slope, *_ = iterate(step, start, limit=2000)
    return value, slope


@cache
def _uniform_coefficients(orders: int, terms: int) -> tuple[tuple[float, ...], ...]:
    """Coefficients of the power series of c_k(η) in 8.12.7, by their recurrences."""
    # late: exact numbers load the decimal ones
    from fractions import Fraction

    size = terms + 2 * orders
    alpha = [Fraction(0), Fraction(1), Fraction(1, 3)]
    for n in range(3, size + 3):
        total = sum((j * alpha[j] * alpha[n - j + 1] for j in range(2, n)), Fraction(0))
        alpha.append((alpha[n - 1] - total) / (n + 1))
    first = [Fraction(-1, 3)] + [(n + 2) * alpha[n + 2] for n in range(1, size)]
    rows, odd = [first], Fraction(1)
    for k in range(1, orders):
        odd *= 2 * k + 1
        sign = -1 if k % 2 else 1
        above = rows[-1]
        rows.append(
            [sign * odd * alpha[2 * k + 1] * first[n] + (n + 2) * above[n + 2]
             for n in range(len(above) - 2)]
        )  # fmt: skip
    return tuple(tuple(float(c) for c in row[:terms]) for row in rows)


class _Uniform:
    """Temme's expansion 8.12.3 and 8.12.4 for a >= 20 and |x - a| < 0.3 a."""

    def __init__(self, a: Any, x: Any):
        self.a, self.x = a, x
        one, half = scalar(x, 1), scalar(x, 0.5)
        self.mu = mu = div(sub(x, a), a)
        # η = μ sqrt(2 (μ - log(1 + μ)) / μ²), of which the root is smooth.
        w = div(one, add(mu, scalar(x, 2)))
        r = mul(mu, w)
        series = horner(square(r), [2 / (2 * k + 3) for k in range(12)])
        self.root = sqrt(mul(scalar(x, 2), sub(w, mul(mul(square(w), r), series))))
        self.eta = mul(mu, self.root)
        double = dtype_of(x) == np.float64
        rows = _uniform_coefficients(*((12, 18) if double else (5, 9)))
        inverse = div(one, a)
        factor, total, slope = filled_like(x, 1), filled_like(x, 0), filled_like(x, 0)
        for k, row in enumerate(rows):
            c = horner(self.eta, row)
            c_slope = horner(self.eta, [n * value for n, value in enumerate(row)][1:])
            # The slope of η with respect to a is -1 / (a root).
            change = add(div(c_slope, self.root), mul(scalar(x, k), c))
            total = add(total, mul(factor, c))
            slope = sub(slope, mul(mul(factor, change), inverse))
            factor = mul(factor, inverse)
        square_half = mul(half, square(self.eta))
        self.bell = mul(exp(neg(mul(a, square_half))), rsqrt(mul(scalar(x, 2 * math.pi), a)))
        self.total = total
        lead = sub(div(one, self.root), mul(half, self.eta))
        rest = add(sub(square_half, mu), mul(half, inverse))
        self.upper_slope = add(lead, sub(slope, mul(total, rest)))

    def tail(self, sign: int) -> Any:
        """Q(a, x) for sign 1, P(a, x) for sign -1."""
        half = scalar(self.x, 0.5)
        y = mul(self.eta, sqrt(mul(self.a, half)))
        rest = mul(self.bell, self.total)
        if sign < 0:
            return sub(mul(half, erfc(neg(y))), rest)
        return add(mul(half, erfc(y)), rest)

    def relative_slope(self) -> Any:
        """The derivative of P with respect to a, divided by x^a e^-x / Γ(a)."""
        return neg(mul(self.upper_slope, div(exp(stirling_rest(self.a)), self.a)))


class _Regions:
    """Where arguments are proper, and which method serves them."""

    def __init__(self, a: Any, x: Any):
        zero, infinity = scalar(x, 0), scalar(x, np.inf)
        self.at_zero, self.at_infinity = eq(x, zero), eq(x, infinity)
        endless = bitwise_and(eq(a, infinity), bitwise_not(self.at_zero))
        self.bad = any_of(lt(x, zero), le(a, zero), is_nan(x), is_nan(a), endless)
        self.all_at_zero = bitwise_and(eq(a, zero), gt(x, zero))
        ends = any_of(self.bad, self.at_zero, self.at_infinity, eq(a, infinity))
        close = lt(abs(sub(x, a)), mul(scalar(x, 0.3), a))
        self.uniform = bitwise_and(bitwise_and(ge(a, scalar(x, 20)), close), bitwise_not(ends))
        self.upper = bitwise_and(gt(x, scalar(x, 1)), gt(x, a))
        # Everything lies on one side where both are large and far from each other.
        far = bitwise_or(gt(x, scalar(x, 1e10)), gt(a, scalar(x, 1e10)))
        self.decided = bitwise_and(far, bitwise_not(bitwise_or(ends, self.uniform)))
        rest = bitwise_not(any_of(ends, self.uniform, far))
        self.series = bitwise_and(rest, bitwise_not(self.upper))
        self.fraction = bitwise_and(rest, self.upper)

    def finish(self, result: Any, at_zero: float, at_infinity: float, below: float) -> Any:
        """`result` with its values at the ends of the domain; `below` where x is far below a."""
        beyond = where(self.upper, filled_like(result, below), at_infinity)
        result = select(self.decided, beyond, result)
        result = where(self.at_infinity, result, at_infinity)
        return where(self.bad, where(self.at_zero, result, at_zero), math.nan)


def _only(condition: Any, a: Any, x: Any, values: tuple[float, float]) -> tuple[Any, Any]:
    """The arguments where the condition holds, elsewhere harmless ones."""
    outside = bitwise_not(condition)
    return where(outside, a, values[0]), where(outside, x, values[1])


def _density(a: Any, x: Any) -> Any:
    """x^a e^-x / Γ(a + 1) for a, x > 0: by Stirling's formula for large a, so nothing cancels."""
    large = ge(a, scalar(x, 8))
    order = select(large, a, filled_like(a, 8))
    t = div(sub(x, order), order)
    exponent = mul(order, log1p_less(t, div(x, order)))
    root = rsqrt(mul(scalar(x, 2 * math.pi), order))
    stirling = mul(exp(sub(exponent, stirling_rest(order))), root)
    order = select(large, filled_like(a, 1), a)
    bounded = min(x, scalar(x, 1000))  # e^-1000 is zero
    power = mul(pow(bounded, order), exp(neg(x)))
    plain = mul(power, exp(neg(lgamma(add(order, scalar(x, 1))))))
    return select(large, stirling, plain)


@cache
def _zeta_terms(count: int) -> tuple[float, ...]:
    """The coefficients of the power series 5.7.3 of log Γ(1 + a), less the constant."""

    def zeta(s: int) -> float:
        head = math.fsum(k**-s for k in range(1, 20))
        tail = 20.0 ** (1 - s) / (s - 1) + 0.5 * 20.0**-s
        factor = s * 20.0 ** (-s - 1)
        for j, b in enumerate(bernoulli(4), 1):
            tail += factor * float(b) / math.factorial(2 * j)
            factor *= (s + 2 * j - 1) * (s + 2 * j) / 400.0
        return head + tail

    return (-float(np.euler_gamma), *((-1) ** k * zeta(k) / k for k in range(2, count + 1)))


def _upper_of_small(a: Any, x: Any) -> Any:
    """Q(a, x) for a <= 1 and x <= 1.1, where one less P would cancel (8.7.1)."""
    near = lt(a, scalar(a, 0.25))
    small = select(near, a, filled_like(a, 0))
    log_gamma = select(
        near, mul(small, horner(small, _zeta_terms(26))), lgamma(add(a, scalar(a, 1)))
    )
    exponent = sub(mul(a, log(x)), log_gamma)
    total = filled_like(x, 0)
    for n in range(20, 0, -1):
        term = div(scalar(x, 1 / math.factorial(n)), add(a, scalar(a, n)))
        total = mul(neg(x), add(total, term))
    return sub(neg(expm1(exponent)), mul(exp(exponent), mul(a, total)))


def _tails(a: Any, x: Any) -> tuple[_Regions, _Uniform, Any, Any]:
    """The regions, the uniform expansion, and P by the series and Q by the fraction."""
    regions = _Regions(a, x)
    series, _ = _series(*_only(regions.series, a, x, (1.0, 0.5)))
    fraction, _ = _fraction(*_only(regions.fraction, a, x, (1.0, 2.0)))
    density = _density(*_only(bitwise_or(regions.series, regions.fraction), a, x, (1.0, 1.0)))
    uniform = _Uniform(*_only(regions.uniform, a, x, (20.0, 20.0)))
    return regions, uniform, mul(density, series), mul(mul(density, a), fraction)


def _igamma(a: Any, x: Any) -> Any:
    regions, uniform, lower, upper = _tails(a, x)
    result = select(regions.upper, sub(scalar(x, 1), upper), lower)
    result = select(regions.uniform, uniform.tail(-1), result)
    return where(regions.all_at_zero, regions.finish(result, 0.0, 1.0, 0.0), 1.0)


def _igammac(a: Any, x: Any) -> Any:
    regions, uniform, lower, upper = _tails(a, x)
    result = select(regions.upper, upper, sub(scalar(x, 1), lower))
    small = bitwise_and(le(a, scalar(a, 1)), le(x, scalar(x, 1.1)))
    small = bitwise_and(small, bitwise_or(regions.series, regions.fraction))
    result = select(small, _upper_of_small(*_only(small, a, x, (1.0, 1.0))), result)
    result = select(regions.uniform, uniform.tail(1), result)
    return where(regions.all_at_zero, regions.finish(result, 1.0, 0.0, 1.0), 0.0)


def _relative_slopes(a: Any, x: Any) -> tuple[_Regions, Any]:
    """The derivative of P(a, x) with respect to a, divided by x^a e^-x / Γ(a)."""
    regions = _Regions(a, x)
    p, t = _only(regions.series, a, x, (1.0, 0.5))
    series, series_slope = _series(p, t)
    lower_log = sub(log(t), digamma(add(p, scalar(p, 1))))
    below = div(add(mul(series, lower_log), series_slope), p)
    p, t = _only(regions.fraction, a, x, (1.0, 2.0))
    fraction, fraction_slope = _fraction(p, t)
    above = neg(add(mul(fraction, sub(log(t), digamma(p))), fraction_slope))
    uniform = _Uniform(*_only(regions.uniform, a, x, (20.0, 20.0)))
    slope = select(regions.fraction, above, below)
    return regions, select(regions.uniform, uniform.relative_slope(), slope)


def _igamma_grad_a(a: Any, x: Any) -> Any:
    regions, slope = _relative_slopes(a, x)
    inside = any_of(regions.series, regions.fraction, regions.uniform)
    p, t = _only(inside, a, x, (1.0, 1.0))
    return regions.finish(mul(mul(slope, p), _density(p, t)), 0.0, 0.0, 0.0)


def _random_gamma_grad(a: Any, x: Any) -> Any:
    regions, slope = _relative_slopes(a, x)
    return regions.finish(neg(mul(x, slope)), 0.0, math.nan, math.nan)


def _slope(a: Any, x: Any) -> Any:
    """The slope of P(a, x) in x, x^(a-1) e^-x / Γ(a), which at x = 0 depends on a."""
    regions = _Regions(a, x)
    outside = any_of(regions.bad, regions.at_zero, regions.at_infinity)
    p, t = where(outside, a, 1.0), where(outside, x, 1.0)
    slope = regions.finish(div(mul(_density(p, t), p), t), 0.0, 0.0, 0.0)
    at_zero = where(lt(a, scalar(a, 1)), where(eq(a, scalar(a, 1)), filled_like(a, 0), 1.0), np.inf)
    slope = where(regions.all_at_zero, slope, 0.0)
    return select(bitwise_and(regions.at_zero, bitwise_not(regions.bad)), at_zero, slope)


igamma_grad_a_p = binary("igamma_grad_a", FLOAT, None, None, decomposed(_igamma_grad_a))
igamma_p = binary(
    "igamma",
    FLOAT,
    lambda g, y, a, x: mul(g, igamma_grad_a(a, x)),
    lambda g, y, a, x: mul(g, widened(_slope)(a, x)),
    decomposed(_igamma),
)
igammac_p = binary(
    "igammac",
    FLOAT,
    lambda g, y, a, x: neg(mul(g, igamma_grad_a(a, x))),
    lambda g, y, a, x: neg(mul(g, widened(_slope)(a, x))),
    decomposed(_igammac),
)
random_gamma_grad_p = binary("random_gamma_grad", FLOAT, None, None, decomposed(_random_gamma_grad))


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function P(a, x).

    NaN unless `a` is positive and `x` not negative.

    >>> round(float(igamma(1.0, 1.0)), 4)
    0.6321
    """
    return igamma_p.bind(a, x)


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized upper incomplete gamma function Q(a, x).

    NaN unless `a` is positive and `x` not negative.

    >>> round(float(igammac(1.0, 1.0)), 4)
    0.3679
    """
    return igammac_p.bind(a, x)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of `igamma` with respect to `a`.

    >>> float(igamma_grad_a(1.0, 0.0))
    0.0
    """
    return igamma_grad_a_p.bind(a, x)


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative with respect to `a` of a sample `x` of the gamma distribution.

    That is the implicit derivative, -(dP/da) / (dP/dx) for the distribution function P(a, x):
    Figurnov, Mohamed and Mnih, Implicit Reparameterization Gradients (2018).

    >>> float(random_gamma_grad(1.0, 0.0))
    0.0
    """
    return random_gamma_grad_p.bind(a, x)
