"""Rounding to integers, signs, neighbors and remainders: all exact."""

from __future__ import annotations

import functools
import math

from ..llvm import Value
from .conversions import elementwise
from .expr import (
    Expr,
    absolute,
    any_lane,
    at_least,
    copysign,
    count_leading_zeros,
    fma,
    intrinsic,
    power_of_two,
    round_to_even,
    select,
    truncate,
)


@elementwise
def floor(x: Expr) -> Expr:
    """The largest integer not above `x`."""
    return intrinsic("floor", x)


@elementwise
def ceil(x: Expr) -> Expr:
    """The smallest integer not below `x`."""
    return intrinsic("ceil", x)


@elementwise
def trunc(x: Expr) -> Expr:
    """`x` without its fraction."""
    return truncate(x)


@elementwise
def round_even(x: Expr) -> Expr:
    """The nearest integer, ties to even."""
    return round_to_even(x)


@elementwise
def round_away(x: Expr) -> Expr:
    """The nearest integer, ties away from zero."""
    whole = truncate(x)
    away = absolute(x - whole) >= 0.5
    return copysign(select(away, absolute(whole) + 1.0, absolute(whole)), x)


@elementwise
def sign(x: Expr) -> Expr:
    """-1, 0 or 1 of the operand's type; keeps -0 and NaN. Integers are taken as signed."""
    if not x.type.is_float:
        one = x.like(1)
        return select(x > 0, one, select(x < 0, x.like(-1), x.like(0)))
    return select((x == 0.0) | x.is_nan(), x, copysign(1.0, x))


@functools.partial(elementwise, widen=False)
def nextafter(x: Expr, y: Expr) -> Expr:
    """The neighbor of `x` in the direction of `y`; `y` if they are equal."""
    fmt = x.format
    bits = x.bits()
    # Away from zero the bits count upwards, toward zero downwards.
    outward = (y > x) ^ (x < 0.0)
    step = select(outward, bits + 1, bits - 1)
    from_zero = (y.bits() & fmt.sign_bit) | 1
    moved = select(x == 0.0, from_zero, step)
    moved = Expr(x.f, x.f.bitcast(moved.value, x.type))
    return select(x.is_nan() | y.is_nan(), x.like(math.nan), select(x == y, y, moved))


def _normalized(x: Expr) -> tuple[Expr, Expr]:
    """`(m, e)` with `x = m * 2**e` and `m` in [1, 2), for positive finite `x`, subnormal or not."""
    fmt = x.format
    bits = x.bits()
    shift = count_leading_zeros(bits | 1) - (fmt.bits - 1 - fmt.mantissa)
    subnormal = bits < 1 << fmt.mantissa
    shift = select(subnormal, shift, shift.like(0))
    mantissa = (bits << shift) & ((1 << fmt.mantissa) - 1)
    exponent = select(subnormal, shift.like(1), bits >> fmt.mantissa) - shift - fmt.bias
    return (mantissa | fmt.one_bits).as_float(), exponent


def _times_power(x: Expr, n: Expr) -> Expr:
    """`x * 2**n`, exact if the result is representable."""
    half = n.ashr(1)
    return x * power_of_two(half, x.format) * power_of_two(n - half, x.format)


def _reduce_once(r: Expr, y: Expr, y_mantissa: Expr, y_exponent: Expr) -> Expr:
    """`r` less a multiple of `y` that removes all but the lowest of its bits above `y`.

    The divisor `y * 2**k` is chosen to make the quotient fit a float. Every product and
    difference is exact; the rounded quotient may be one too large, which the sign of the
    difference shows.
    """
    fmt = r.format
    r_exponent = (r.bits() >> fmt.mantissa) - (fmt.bias + fmt.mantissa - 1)
    divisor = _times_power(y_mantissa, at_least(r_exponent, y_exponent))
    rest = fma(-truncate(r / divisor), divisor, r)
    rest = select(rest < 0.0, rest + divisor, rest)
    return select(r >= y, rest, r)


@elementwise
def rem(x: Expr, y: Expr) -> Expr:
    """The remainder of `x / y` truncated, as C's `fmod`: exact, with the sign of `x`.

    Integers: truncating too; the remainder by zero is `x`.
    """
    if not x.type.is_float:
        return _integer_rem(x, y)
    f = x.f
    valid = (absolute(x) < math.inf) & ((y != 0.0) & (y == y))
    b = select(valid, absolute(y), y.like(1.0))
    r = select(valid & (b < math.inf), absolute(x), x.like(0.0))
    b_finite = select(b < math.inf, b, y.like(1.0))
    mantissa, exponent = _normalized(b_finite)

    def more(carried: list[Value]) -> Value:
        return any_lane(Expr(f, carried[0]) >= b_finite)

    def step(carried: list[Value]) -> list[Value]:
        return [_reduce_once(Expr(f, carried[0]), b_finite, mantissa, exponent).value]

    r = Expr(f, f.while_loop([r.value], more, step)[0])
    r = select(b < math.inf, r, absolute(x))
    return select(valid, copysign(r, x), x.like(math.nan))


def _integer_rem(x: Expr, y: Expr) -> Expr:
    """Signed; neither the division by zero nor that of the least integer by -1 may trap."""
    f = x.f
    trivial = (y == 0) | (y == -1)
    r = Expr(f, f.srem(x.value, select(trivial, y.like(1), y).value))
    return select(y == 0, x, r)
