"""Error, gamma and Bessel functions.

Series and recurrences are in the NIST Digital Library of Mathematical Functions, chapters 5, 7
and 10.
"""

from __future__ import annotations

import math

from ..llvm import Value
from . import coefficients as c
from .conversions import elementwise
from .exponential import (
    expm1_of_reduced,
    log,
    log_of_parts,
    low_mantissa,
    reduce_exp,
    short_exp2,
    split_exponent,
)
from .expr import (
    Expr,
    absolute,
    any_lane,
    at_most,
    copysign,
    fast_two_sum,
    fma,
    low_integer,
    near_inverse,
    polynomial,
    round_shifted,
    round_to_even,
    scale_by_power,
    select,
    sqrt_of,
    two_chains,
    two_sum,
)
from .power import extended_log
from .trigonometric import sin_cos_half_turns


def _erf_tail(a: Expr) -> Expr:
    """`1 - 2**-P(a)` for `a >= 1`, in float."""
    magic = a.format.round_magic
    g = two_chains(at_most(a, 3.95), c.ERF_TAIL["float"])
    shifted = magic - g
    return 1.0 - short_exp2(shifted, (magic - shifted) - g)


@elementwise
def erf(x: Expr) -> Expr:
    """Error function: an odd polynomial up to 1; beyond, `1 - erfc`.

    In float `erfc(x)` is `2**-P(x)` there, whose error shrinks in the subtraction.

    Error: 1.2 ulp in float, 0.7 in double.
    """
    a = absolute(x)
    small = fma(x, polynomial(x * x, c.ERF[x.type.elem]), x)
    large = 1.0 - _erfc_positive(a) if x.is_double else _erf_tail(a)
    # A NaN takes the polynomial, which keeps it.
    return select(a >= 1.0, copysign(large, x), small)


_ERFC_SHIFT = 40  # of the exponent, which is at least -160, into that of normal numbers


def _erfc_positive(a: Expr) -> Expr:
    """`erfc(a) = exp(-a**2) h((a - k) / (a + k)) / (1 + c a)` for `a >= 0`, with `h` around 1.

    The form is that of M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of
    (1 + 2x) exp(x**2) erfc x" (1981).
    """
    return _erfc_positive_double(a) if a.is_double else _erfc_positive_float(a)


def _erfc_positive_float(a: Expr) -> Expr:
    """`2**n y (1 + v) (1 + p)`: that `v` and `p` are small leaves little to round."""
    a = at_most(a, 10.5)
    # The factors are normal numbers, and what may be subnormal is rounded once.
    one = 2.0**_ERFC_SHIFT
    second = fma(a, 1.75 * one, one)
    y = near_inverse(second)
    lacking = fma(-fma(a, 1.75 * one, -(second - one)), y, fma(-second, y, 1.0))
    # Near zero, where `h` is steep, `a / (a + k)` has the smallest error.
    t = fma(a * near_inverse(a + 2.5), 2.0, -1.0)
    v = two_chains(t, c.ERFC["float"]) + lacking
    p, shifted = _exp_of_square(a)
    fmt = a.format
    power = (shifted.bits() << fmt.mantissa) + (fmt.bias + _ERFC_SHIFT << fmt.mantissa)
    return fma(y, fma(v, p, v + p), y) * power.as_float()


def _exp_of_square(a: Expr) -> tuple[Expr, Expr]:
    """`(p, n)` with `exp(-a**2) = 2**n (1 + p)`; `n` is left in the low bits."""
    square = a * a
    high, low = c.LN2[a.type.elem]
    n, shifted = round_shifted(square, -c.LOG2_E[a.type.elem][0])
    return expm1_of_reduced(fma(n, -high, -square) - fma(n, low, fma(a, a, -square))), shifted


def _erfc_positive_double(a: Expr) -> Expr:
    """Residuals correct the quotients."""
    a, k = at_most(a, 28.0), 4.0
    # One division gives the inverses of both denominators.
    first, (second, second_low) = a + k, two_sum(a + a, a.like(1.0))
    product_inverse = 1.0 / (first * second)
    inverse = product_inverse * second
    t = (a - k) * inverse
    t = fma(fma(-t, a, fma(t + 1.0, -k, a)), inverse, t)
    constant, *rest = c.ERFC["double"]
    varying = t * polynomial(t, rest)
    h, h_low = fast_two_sum(a.like(constant), varying)
    q = h * (product_inverse * first)
    q_low = (fma(-q, second, h) + fma(-q, second_low, h_low)) * (product_inverse * first)
    p, shifted = _exp_of_square(a)
    return scale_by_power(q + fma(p, q, fma(p, q_low, q_low)), low_integer(shifted))


@elementwise
def erfc(x: Expr) -> Expr:
    """Complementary error function, to full relative precision in the tail.

    Error: 1.7 ulp in float, 1.2 in double.
    """
    positive = _erfc_positive(absolute(x))
    return select(x.bits() < 0, 2.0 - positive, positive)  # the sign needs no comparison


@elementwise
def erf_inv(x: Expr) -> Expr:
    """Inverse error function: `x + x P(w)`, `w = -log(1 - x**2)`; `P(sqrt(w))` in the tails.

    The form is that of M. Giles, "Approximating the erfinv function" (2010).

    Error: 1.5 ulp in float, 1.7 in double.
    """
    elem = x.type.elem
    w = -log(fma(-x, x, 1.0))
    s = sqrt_of(w)
    if x.is_double:
        p = polynomial(w - 3.125, c.ERF_INV[elem])
        p = select(w < 6.25, p, polynomial(s - 3.25, c.ERF_INV_TAIL[elem]))
        p = select(w < 16.0, p, polynomial(s - 5.0, c.ERF_INV_FAR_TAIL[elem]))
    else:
        p = polynomial(w - 2.5, c.ERF_INV[elem])
        p = select(w < 5.0, p, polynomial(s - 3.0, c.ERF_INV_TAIL[elem]))
    return select(absolute(x) == 1.0, x * math.inf, copysign(fma(x, p, x), x))


def _shift_down(x: Expr, to: float) -> tuple[Expr, Expr, Expr]:
    """Lower `x`, from `to` to 8, by integers below `to`: the result, the product and the sum of
    inverses (as its numerator over that product) of the numbers passed on the way.
    """
    product, numerator, shifted = x.like(1.0), x.like(0.0), x
    for _ in range(math.ceil(8 - to)):
        above = shifted >= to
        below = shifted - 1.0
        numerator = select(above, fma(numerator, below, product), numerator)
        product = select(above, product * below, product)
        shifted = select(above, below, shifted)
    return shifted, product, numerator


def _lgamma_positive(x: Expr) -> Expr:
    """`lgamma(x)` for `x > 0`.

    From 8 by Stirling's series, else by a polynomial around 2 and the recurrence; the logarithm
    of either has two parts.
    """
    elem = x.type.elem
    large = x >= 8.0
    down, passed, _ = _shift_down(x, 2.5)
    # Below 5/4 up by one step, below 1/2 by two.
    up_one, up_two = x < 1.25, x < 0.5
    above = x + 1.0
    passed_up = select(up_two, x * above, x)
    passed_low = select(up_two, fma(x, above, -passed_up) + x * (x - (above - 1.0)), x.like(0.0))
    argument = select(large, x, select(up_one, passed_up, passed))
    log_high, log_low = extended_log(argument)
    log_low = select(up_one, log_low + passed_low / argument, log_low)
    # With x = 2 + t, one or two steps down from where it was shifted up.
    t = select(up_two, x, select(up_one, x - 1.0, down - 2.0))
    # lgamma(2 + t) = t (1 + t) P(t)
    p = polynomial(t, c.LGAMMA2[elem])
    next_t = t + 1.0  # exact, but where it hardly counts
    factor = t * next_t
    factor_low = fma(t, next_t, -factor)
    near_high = select(up_one, -log_high, log_high)
    near_low = select(up_one, -log_low, log_low)
    product = factor * p
    product_low = fma(factor, p, -product) + factor_low * p
    total, rest = two_sum(near_high, product)
    near = total + (rest + (near_low + product_low))
    return select(large, _stirling(x, log_high, log_low), near)


def _stirling(x: Expr, log_high: Expr, log_low: Expr) -> Expr:
    """`(x - 1/2) log x - x + log(2 pi) / 2 + P(1 / x**2) / x`."""
    high, low = c.HALF_LOG_2PI[x.type.elem]
    # As (x - 1/2) (log x - 1) - 1/2, in which nothing cancels.
    n, m = x - 0.5, log_high - 1.0
    product = n * m
    product_low = fma(n, m, -product) + n * log_low
    inverse = 1.0 / x
    series = polynomial(inverse * inverse, c.STIRLING[x.type.elem]) * inverse
    result = product + (product_low + (series + low) + (high - 0.5))
    return select(product < math.inf, result, product)


@elementwise
def lgamma(x: Expr) -> Expr:
    """`log |gamma(x)|`; infinite at the poles.

    For negative `x` the error is relative to `log(pi / |sin(pi x)|)`: near the zeros there only
    the absolute error is small.

    Error for `x > 0`: 1.6 ulp in float, 1.4 in double.
    """
    a = absolute(x)
    positive = _lgamma_positive(a)
    negative = x < 0.0

    def reflect() -> list[Value]:
        return [select(negative, _reflected_lgamma(a, positive), positive).value]

    result = Expr(x.f, x.f.if_(any_lane(negative), reflect, lambda: [positive.value])[0])
    pole = (x <= 0.0) & (round_to_even(x) == x)
    return select(pole | (a == math.inf), x.like(math.inf), result)


def _reflected_lgamma(a: Expr, positive: Expr) -> Expr:
    """`lgamma(-a) = log(pi / (a |sin(pi a)|)) - lgamma(a)` for `a > 0`."""
    tiny = a < 2.0 ** -(a.format.mantissa + 2)
    sine, _ = sin_cos_half_turns(a)
    high, low = c.LOG_PI[a.type.elem]
    log_high, log_low = extended_log(select(tiny, a, a * absolute(sine)))
    total, rest = two_sum(-log_high, -positive)
    result = (total + high) + (rest + (low - log_low))
    return select(tiny, -log_high, result)


def _digamma_positive(x: Expr) -> tuple[Expr, Expr]:
    """`digamma(x)` and `digamma(x + 1)` for `x > 0`.

    Around its zero, on [1, 5/2] (float) or [1, 2] (double), as `(x - root) P(x)`; below by the
    recurrence. Then by the asymptotic series, in double from 8 and by the recurrence before.
    """
    elem = x.type.elem
    end, center = (2.0, 1.5) if x.is_double else (2.5, 1.75)
    inverse = 1.0 / x
    z = inverse * inverse
    e, m = split_exponent(x, low_mantissa(x))
    rest = fma(-z, polynomial(z, c.DIGAMMA_TAIL[elem]), inverse * -0.5)
    large = log_of_parts(e, m - 1.0, rest)
    below = x < 1.0
    y, steps = x, x.like(0.0)
    if x.is_double:
        y, passed, numerator = _shift_down(x, end)
        steps = numerator / passed
    y = select(below, x + 1.0, y)
    steps_low = select(below & (inverse < math.inf), fma(x, inverse, -1.0) * inverse, x.like(0.0))
    # The root in three parts, so that the distance keeps its relative precision.
    root, root_low, root_least = c.DIGAMMA_ROOT[elem]
    exact = y - root
    distance = exact - root_low
    distance_low = ((exact - distance) - root_low) - root_least
    p = polynomial(y - center, c.DIGAMMA[elem])
    above = fma(distance, p, fma(distance_low, p, steps_low))
    near = above + select(below, -inverse, steps)
    value = select(x >= (8.0 if x.is_double else end), large, near)
    return value, select(below, above, value + inverse)


@elementwise
def digamma(x: Expr) -> Expr:
    """Derivative of `lgamma`; NaN at the poles.

    For negative `x`, by reflection, the error is relative to `pi / |tan(pi x)|`.

    Error for `x > 0`: 1.8 ulp in float, 2.7 in double.
    """
    negative = x <= 0.0
    positive, next_to_it = _digamma_positive(absolute(x))

    def reflect() -> list[Value]:
        sine, cosine = sin_cos_half_turns(x)
        reflected = next_to_it - cosine / sine * math.pi
        return [select(negative, reflected, positive).value]

    result = Expr(x.f, x.f.if_(any_lane(negative), reflect, lambda: [positive.value])[0])
    pole = negative & (round_to_even(x) == x)
    result = select(pole, x.like(math.nan), result)
    return select(x == math.inf, x, result)


def _bessel(a: Expr, order: int) -> Expr:
    """`exp(-a) I(a)` for `a >= 0`.

    Up to 8 the power series in `z = a**2 / 4`, whose terms are all positive, made minimax;
    beyond, a polynomial in `1 / a` over `sqrt(a)`.
    """
    elem = a.type.elem
    series, tail = ((c.I0, c.I0_TAIL), (c.I1, c.I1_TAIL))[order]
    near = at_most(a, 8.0)
    half = near * 0.5
    z = half * half
    shifted, r = reduce_exp(-near)
    # The sum, and what its last two additions lose.
    constant, *higher = series[elem]
    last = polynomial(z, higher)
    rest = fma(z, last, constant)
    i = fma(z, rest, 1.0)
    i_low = fma(z, fma(z, last, constant - rest), fma(z, rest, 1.0 - i))
    if order:
        i, i_low = i * half, fma(i, half, -(i * half)) + i_low * half
    p = expm1_of_reduced(r)
    if not a.is_double:
        # What the rounding of z took away, times the logarithmic derivative.
        slope = polynomial(z, (c.I0_SLOPE, c.I1_SLOPE)[order]["float"])
        i_low = fma(fma(half, half, -z) * slope, i, i_low)
    small = i + fma(i, p, fma(i_low, p, i_low))
    small = scale_by_power(small, low_integer(shifted))
    root, inverse = sqrt_of(a), 1.0 / a
    numerator = polynomial(at_most(inverse, 0.125), tail[elem])
    large = numerator / root
    # The residuals of the quotient and of the root.
    lost = fma(-large, root, numerator) * root - large * fma(-root, root, a) * 0.5
    large = fma(lost, inverse, large)
    large = select(a == math.inf, a.like(0.0), large)
    return select(a <= 8.0, small, large)


@elementwise
def bessel_i0e(x: Expr) -> Expr:
    """`exp(-|x|) I0(x)`, the scaled modified Bessel function of order 0.

    Error: 1.9 ulp in float, 2.6 in double.
    """
    return _bessel(absolute(x), 0)


@elementwise
def bessel_i1e(x: Expr) -> Expr:
    """`exp(-|x|) I1(x)`, the scaled modified Bessel function of order 1.

    Error: 1.7 ulp in float, 2.5 in double.
    """
    return copysign(_bessel(absolute(x), 1), x)
