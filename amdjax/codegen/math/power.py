"""Roots and powers."""

from __future__ import annotations

import math

from . import coefficients as c
from .conversions import elementwise
from .exponential import exp2_scaled, split_exponent
from .expr import (
    Expr,
    Pair,
    absolute,
    at_least,
    at_most,
    copysign,
    estimate,
    fast_two_sum,
    fma,
    has_good_estimates,
    low_integer,
    polynomial,
    rough_inverse,
    select,
    select_constant,
    sqrt_of,
    truncate,
)


@elementwise
def sqrt(x: Expr) -> Expr:
    """Square root, correctly rounded."""
    return sqrt_of(x)


@elementwise
def rsqrt(x: Expr) -> Expr:
    """`1 / sqrt(x)`.

    Error: 1.5 ulp in float, 1.5 in double; that of an estimate that is right to an ulp is 1.
    """
    if not has_good_estimates(x):
        return 1.0 / sqrt_of(x)
    tiny = x < x.format.min_normal
    y = estimate("rsqrt", x * select_constant(tiny, 2.0**24, 1.0, x))
    return y * select_constant(tiny, 2.0**12, 1.0, x)


@elementwise
def cbrt(x: Expr) -> Expr:
    """Cube root: Newton's iteration for `x**(-1/3)` from a guess in the exponent bits.

    The guess is Kahan's, "Computing a real cube root" (1991); the last step corrects
    `x * y**2` by its residual.

    Error: 0.9 ulp in float, 0.8 in double.
    """
    fmt = x.format
    a = absolute(x)
    digits = fmt.mantissa - fmt.mantissa % 3 + 3
    tiny = a < fmt.min_normal
    a = select(tiny, a * 2.0**digits, a)
    bits = a.bits()
    # bits / 3 by the high word only, precise enough for a guess.
    drop = fmt.bits - 32
    third = ((bits >> drop).resize("i32").to_float() * (1 / 3)).to_int()
    third = third.resize(fmt.int_elem) << drop if drop else third
    y = (inverse_cbrt_guess(x) - third).as_float()
    for _ in range(3 if x.is_double else 2):
        y = _inverse_cbrt_step(a, y)
    root = a * y * y
    residual = fma(root * root, -root, a)
    root = fma(residual * (y * y), 1 / 3, root)
    root = root * select_constant(tiny, 2.0 ** (-digits // 3), 1.0, x)
    ordinary = (a > 0.0) & (a < math.inf)
    return copysign(select(ordinary, root, a), x)


def inverse_cbrt_guess(like: Expr) -> Expr:
    """The constant of `x**(-1/3) ~ constant - bits / 3`, for an error of about 3.5 percent."""
    fmt = like.format
    return like.bits().like(int((fmt.bias * 4 / 3 - 0.0335) * 2**fmt.mantissa))


def _inverse_cbrt_step(a: Expr, y: Expr) -> Expr:
    """Third order: with `h = 1 - a y**3`, `y (1 + h / 3 + 2 h**2 / 9)`."""
    h = fma(-(a * y), y * y, 1.0)
    return fma(y * h, fma(h, 2 / 9, 1 / 3), y)


def multiply(a: Pair, b: Pair) -> Pair:
    """The product of two pairs, to twice the precision but a few bits."""
    high = a[0] * b[0]
    return high, fma(a[0], b[0], -high) + fma(a[0], b[1], a[1] * b[0])


def constant_pair(values: dict, like: Expr) -> Pair:
    high, low = values[like.type.elem]
    return like.like(high), like.like(low)


def extended_log_of_mantissa(m: Expr) -> Pair:
    """`log(m)` as a pair, `m` in [sqrt(1/2), sqrt(2)].

    `2 atanh(s)`, `s = (m - 1) / (m + 1)`, with the first two terms in pairs.
    """
    elem = m.type.elem
    f = m - 1.0
    d, d_low = fast_two_sum(m.like(2.0), f)
    inverse = rough_inverse(d)
    s = f * inverse
    s_low = fma(-s, d_low, fma(-s, d, f)) * inverse
    z = s * s
    z_low = fma(s, s, -z) + s * s_low * 2.0
    two_thirds, two_thirds_low = c.TWO_THIRDS[elem]
    rest = fma(z, polynomial(z, c.LOG_EXTENDED[elem]), two_thirds_low)
    factor = fast_two_sum(m.like(two_thirds), rest)
    cubic = multiply((s, s_low), multiply((z, z_low), factor))
    high, low = fast_two_sum(s + s, cubic[0])
    return high, low + (s_low + s_low + cubic[1])


def split_at_root_two(x: Expr) -> Pair:
    """`(e, m)`, `x = m * 2**e`, `m` in [sqrt(1/2), sqrt(2)], for positive finite `x`."""
    return split_exponent(x, math.sqrt(0.5))


def extended_log2(x: Expr) -> Pair:
    """`log2(x)` as a pair, for positive finite `x`."""
    e, m = split_at_root_two(x)
    log_m = multiply(extended_log_of_mantissa(m), constant_pair(c.LOG2_E, x))
    high, low = fast_two_sum(e, log_m[0])
    return high, low + log_m[1]


def extended_log(x: Expr) -> Pair:
    """`log(x)` as a pair, for positive finite `x`."""
    e, m = split_at_root_two(x)
    high, low = c.LN2[x.type.elem]
    log_m = extended_log_of_mantissa(m)
    scaled = multiply((e, x.like(0.0)), (x.like(high), x.like(low)))
    total = fast_two_sum(scaled[0], log_m[0])
    return fast_two_sum(total[0], total[1] + (scaled[1] + log_m[1]))


def _magnitude(a: Expr, y: Expr) -> Expr:
    """`a**y` for positive finite `a`."""
    # No finite `log2(a)` but zero is so small that it needs a larger exponent to overflow.
    largest = 2.0**80 if y.is_double else 2.0**40
    limit = 1100.0 if y.is_double else 200.0
    y = at_least(at_most(y, largest), -largest)
    high, low = extended_log2(a)
    product = y * high
    product_low = fma(y, high, -product) + y * low
    product_low = select(absolute(product) < limit, product_low, product.like(0.0))
    product = at_least(at_most(product, limit), -limit)
    shifted = product + product.format.round_magic
    r = (product - (shifted - product.format.round_magic)) + product_low
    return exp2_scaled(r, low_integer(shifted))


@elementwise
def pow(x: Expr, y: Expr) -> Expr:
    """`x**y` with IEEE 754's special values: `exp2(y * log2(x))` with a logarithm in two parts.

    The arithmetic of two parts is T. J. Dekker's (1971), with fused multiplications.

    Error: 1.0 ulp in float, 0.9 in double.
    """
    a = absolute(x)
    # Replaced below; keeps the logarithm away from values without a mantissa.
    infinite_or_zero = (a == 0.0) | (a == math.inf)
    result = _magnitude(select(infinite_or_zero, a.like(1.0), a), y)
    vanishes = (a == 0.0) ^ (y < 0.0)
    edge = select(vanishes, a.like(0.0), a.like(math.inf))
    result = select(infinite_or_zero, edge, result)
    whole = truncate(y) == y
    half = y * 0.5
    odd = whole & (truncate(half) != half)
    result = select(odd & x.sign_bit(), -result, result)
    undefined = (x < 0.0) & (x > -math.inf) & ~whole
    result = select(undefined, x.like(math.nan), result)
    result = select(x.is_nan() | y.is_nan(), x + y, result)
    return select((x == 1.0) | (y == 0.0), x.like(1.0), result)
