"""Trigonometric functions and their inverses.

Arguments reduce by multiples of pi / 2: small ones by Cody and Waite's three constants with fused
multiplications, the others with as many bits of 2 / pi as they need (Payne and Hanek, "Radian
reduction for trigonometric functions", 1983). The second way is a branch that a vector takes
if one of its lanes needs it.
"""

from __future__ import annotations

import math
from itertools import pairwise

from ..llvm import I64, Value, const
from . import coefficients as c
from .conversions import elementwise
from .expr import (
    Expr,
    absolute,
    any_lane,
    copysign,
    count_leading_zeros,
    fma,
    funnel_shift_left,
    odd_polynomial,
    polynomial,
    power_of_two,
    rough_inverse,
    round_shifted,
    round_to_even,
    select,
    select_constant,
    sqrt_of,
    two_sum,
)

# Below this three constants give pi / 2 precisely enough.
SMALL_ANGLE = {"float": 2.0**18, "double": 2.0**30}
# Longer vectors take the second way lane by lane, which keeps rarely used code short.
WIDEST_LARGE = {"float": 16, "double": 0}


def reduce_angle(x: Expr) -> tuple[Expr, Expr, Expr]:
    """`(n, r, low)`, `x = n pi / 2 + r + low`, `|r| <= pi / 4`; only the low two bits of `n` count.

    `low` is below half an ulp of `r`.
    """
    small = _reduce_small(x)
    large = absolute(x) >= SMALL_ANGLE[x.type.elem]

    def exact() -> list[Value]:
        if x.type.lanes and x.f.module.lanes_apart:
            return _large_lanes(x, large, small)
        wide = x.type.lanes > WIDEST_LARGE[x.type.elem]
        parts = _per_lane(x) if wide else _reduce_large(x)
        return [select(large, a, b).value for a, b in zip(parts, small)]

    f = x.f
    results = f.if_(any_lane(large), exact, lambda: [e.value for e in small], weights=(1, 1000))
    n, r, low = (Expr(f, v) for v in results)
    return n, r, low


def _reduce_small(x: Expr) -> tuple[Expr, Expr, Expr]:
    n, shifted = round_shifted(x, 2 / math.pi)
    first, second, third = c.HALF_PI_DOWN[x.type.elem]
    rest = fma(n, -first, x)  # exact
    r = fma(n, -third, fma(n, -second, rest))
    # What r lacks; not computed where it is not used.
    product = n * second
    s, error = two_sum(rest, -product)
    low = (s - r) + (error - fma(n, third, fma(n, second, -product)))
    return shifted.bits(), r, low


def _large_lanes(x: Expr, large: Expr, small: tuple[Expr, ...]) -> list[Value]:
    """`_reduce_large` of lanes that need it, one after another lest all take registers at once."""
    f, results = x.f, [e.value for e in small]
    for lane in range(x.type.lanes):

        def exact(lane: int = lane) -> list[Value]:
            return [e.value for e in _reduce_large(Expr(f, f.extract(x.value, lane)))]

        def known(lane: int = lane) -> list[Value]:
            return [f.extract(e.value, lane) for e in small]

        parts = f.if_(f.extract(large.value, lane), exact, known)
        results = [f.insert(to, part, lane) for to, part in zip(results, parts, strict=True)]
    return results


def _per_lane(x: Expr) -> tuple[Expr, Expr, Expr]:
    """`_reduce_large` lane by lane; products of 128 bits have no vector form anyway."""
    f, value = x.f, x.value
    n_type = value.type.with_elem(x.format.int_elem)

    def body(lane: Value, carried: list[Value]) -> list[Value]:
        parts = _reduce_large(Expr(f, f.extract(value, lane)))
        return [f.insert(to, part.value, lane) for to, part in zip(carried, parts)]

    start = [const(n_type, 0), value, value]
    n, r, low = f.loop(const(I64, 0), const(I64, value.type.lanes), 1, start, body)
    return Expr(f, n), Expr(f, r), Expr(f, low)


def _reduce_large(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Payne–Hanek reduction in integers.

    `x = m * 2**q`, `m` an integer of one word. Of the bits of 2 / pi those that only give
    multiples of four to `m * 2**q * 2 / pi` are left out; three words of the following ones
    give the product modulo 4 with enough bits for the worst case (distance 2**-62 in double).
    """
    fmt = x.format
    word, double_word = fmt.bits, f"i{2 * fmt.bits}"
    bits = x.bits()
    q = ((bits >> fmt.mantissa) & (2 * fmt.bias + 1)) - (fmt.bias + fmt.mantissa)
    m = (bits & ((1 << fmt.mantissa) - 1)) | (1 << fmt.mantissa)
    high, middle, low = _two_over_pi(q - 2)
    wide = m.resize(double_word)
    product = (m * high).resize(double_word) << word
    product = product + wide * middle.resize(double_word)
    product = product + ((wide * low.resize(double_word)) >> word)
    # The top two bits are the quadrant, the rest a fraction of it; rounding makes it signed.
    n = (product >> (2 * word - 2)).resize(fmt.int_elem)
    n = n + ((product >> (2 * word - 3)).resize(fmt.int_elem) & 1)
    fraction = product << 2
    negative = fraction < 0
    fraction = select(negative, -fraction, fraction)
    zeros = count_leading_zeros(fraction)
    # The product with pi / 2 is an integer one too, so that only its conversion rounds.
    leading = ((fraction << zeros) >> word) * half_pi_integer(word)
    leading = (leading >> (word + 1)).resize(fmt.int_elem)
    rounded = leading.to_float()
    scale = power_of_two(2 - word - zeros.resize(fmt.int_elem), fmt)
    x_negative = bits < 0
    scale = select(negative ^ x_negative, -scale, scale)
    scale = select(absolute(x) < math.inf, scale, x.like(math.nan))
    low = (leading - rounded.to_int()).to_float()
    return select(x_negative, -n, n), rounded * scale, low * scale


def half_pi_integer(bits: int) -> int:
    """`pi / 2 * 2**(bits - 1)`, to the precision of 2 / pi."""
    return (1 << (bits - 1 + c.TWO_OVER_PI_BITS)) // c.TWO_OVER_PI


def _two_over_pi(start: Expr) -> tuple[Expr, Expr, Expr]:
    """Three words of the binary digits of 2 / pi, from bit `start` (at least minus one word).

    The table lives in constants; a tree of selects picks four words and a funnel shift aligns.
    """
    word = start.type.bits
    count = c.TWO_OVER_PI_BITS // word
    table = [
        0,
        *((c.TWO_OVER_PI >> (word * (count - 1 - i))) & ((1 << word) - 1) for i in range(count)),
    ]
    start = start + word
    index = start >> (word.bit_length() - 1)
    levels = {32: 3, 64: 5}[word]
    words = [start.like(w) for w in table]
    for level in reversed(range(levels)):
        taken = (index & (1 << level)) != 0
        step = 1 << level
        padded = words + [start.like(0)] * (3 + 2 * step)
        words = [select(taken, padded[i + step], padded[i]) for i in range(3 + step)]
    shift = start & (word - 1)
    aligned = [funnel_shift_left(a, b, shift) for a, b in pairwise(words)]
    return aligned[0], aligned[1], aligned[2]


def sin_of_reduced(r: Expr, z: Expr) -> Expr:
    return odd_polynomial(r, z, c.SIN[r.type.elem])


def cos_of_reduced(z: Expr) -> Expr:
    return fma(z, fma(z, polynomial(z, c.COS[z.type.elem]), -0.5), 1.0)


def _sin_or_cos(n: Expr, r: Expr) -> Expr:
    """`sin(n pi / 2 + r)`."""
    z = r * r
    value = select((n & 1) != 0, cos_of_reduced(z), sin_of_reduced(r, z))
    fmt = r.format
    return (value.bits() ^ ((n & 2) << (fmt.bits - 2))).as_float()


@elementwise
def sin(x: Expr) -> Expr:
    """Sine; exact argument reduction over the whole range.

    Error: 1.6 ulp in float, 1.4 in double.
    """
    n, r, _ = reduce_angle(x)
    return _sin_or_cos(n, r)


@elementwise
def cos(x: Expr) -> Expr:
    """Cosine; exact argument reduction over the whole range.

    Error: 1.8 ulp in float, 1.3 in double.
    """
    n, r, _ = reduce_angle(x)
    return _sin_or_cos(n + 1, r)


@elementwise
def tan(x: Expr) -> Expr:
    """Tangent: in float a polynomial and its reciprocal, in double sine over cosine.

    Error: 1.5 ulp in float, 2.8 in double.
    """
    n, r, low = reduce_angle(x)
    z = r * r
    odd = (n & 1) != 0
    if x.is_double:
        s, co = sin_of_reduced(r, z), cos_of_reduced(z)
        return select(odd, -co, s) / select(odd, s, co)
    # tan(r + low) = t + low (1 + t**2), and its low part makes up for what 1 / t multiplies.
    rest = fma(fma(z, polynomial(z, c.TAN["float"]), 0.0), r, fma(low, z, low))
    t = r + rest
    t_low = rest - (t - r)
    inverse = -rough_inverse(t)
    residual = fma(inverse, t_low, fma(inverse, t, 1.0))
    return select(odd, fma(inverse, residual, inverse), copysign(t, r))


def sin_cos_half_turns(x: Expr) -> tuple[Expr, Expr]:
    """`(sin(pi x), cos(pi x))`, exactly zero where they are."""
    x = fma(round_to_even(x * 0.5), -2.0, x)  # exact, so that the next rounding is in range
    n, shifted = round_shifted(x, 2.0)
    r = fma(n, -0.5, x) * math.pi
    n = shifted.bits()
    return _sin_or_cos(n, r), _sin_or_cos(n + 1, r)


def _asin_parts(x: Expr) -> tuple[Expr, Expr, Expr]:
    """`(outer, s, p)`: `p = asin(s)`, `s = |x|`, or `sqrt((1 - |x|) / 2)` if `outer`."""
    a = absolute(x)
    outer = a > 0.5
    z = select(outer, fma(a, -0.5, 0.5), a * a)
    s = select(outer, sqrt_of(z), a)
    return outer, s, odd_polynomial(s, z, c.ASIN[x.type.elem])


@elementwise
def asin(x: Expr) -> Expr:
    """Arc sine: `pi / 2 - 2 p` beyond 1/2, with `p` that of `sqrt((1 - |x|) / 2)`.

    Error: 2.0 ulp in float, 2.1 in double.
    """
    outer, _, p = _asin_parts(x)
    high, low = c.HALF_PI[x.type.elem]
    return copysign(select(outer, fma(p, -2.0, high) + low, p), x)


@elementwise
def acos(x: Expr) -> Expr:
    """Arc cosine; `2 asin(sqrt((1 - x) / 2))` beyond 1/2.

    Error: 1.3 ulp in float, 1.2 in double.
    """
    outer, _, p = _asin_parts(x)
    high, low = c.HALF_PI[x.type.elem]
    negative = x < 0.0
    twice = p + p
    beyond = select(negative, (2 * high - twice) + 2 * low, twice)
    signed = select(negative, -p, p)
    return select(outer, beyond, (high - signed) + low)


def _atan_of_quotient(num: Expr, den: Expr) -> Expr:
    """`atan(num / den)` for `0 <= num <= den`; the quotient of equals is 1, of zeros 0."""
    equal = select(den == 0.0, den, den.like(1.0))
    q = select(num == den, equal, num / den)
    return odd_polynomial(q, q * q, c.ATAN[num.type.elem])


@elementwise
def atan(x: Expr) -> Expr:
    """Arc tangent: `pi / 2 - p` beyond 1, with `p` that of `1 / |x|`.

    Error: 1.4 ulp in float, 1.3 in double.
    """
    a = absolute(x)
    outer = a > 1.0
    q = select(outer, x.like(1.0) / a, a)
    p = odd_polynomial(q, q * q, c.ATAN[x.type.elem])
    high, low = c.HALF_PI[x.type.elem]
    return copysign(select(outer, (high - p) + low, p), x)


@elementwise
def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of the point `(x, y)`, with IEEE 754's values for zeros and infinities.

    Error: 1.5 ulp in float, 1.4 in double.
    """
    ax, ay = absolute(x), absolute(y)
    steep = ay > ax
    p = _atan_of_quotient(select(steep, ax, ay), select(steep, ay, ax))
    negative = x.sign_bit()
    high, low = c.HALF_PI[x.type.elem]
    base = select(steep, x.like(high), select_constant(negative, 2 * high, 0.0, x))
    base_low = select(steep, x.like(low), select_constant(negative, 2 * low, 0.0, x))
    signed = select(steep ^ negative, -p, p)
    return copysign(base + (signed + base_low), y)
