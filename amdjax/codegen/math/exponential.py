"""Exponentials and logarithms.

Exponentials reduce to `x = n log 2 + r`, `|r| <= log(2) / 2` (Cody and Waite, "Software Manual for
the Elementary Functions", 1980) and use a minimax polynomial in `r`. Logarithms split
`x = m * 2**e` with `m` around 1 (J.-M. Muller, "Elementary Functions", 3rd ed., 2016).

Errors in the docstrings here and in the other files are the largest that were measured, see
docs/math.md.
"""

from __future__ import annotations

import math
import struct

from . import coefficients as c
from .conversions import elementwise
from .expr import (
    Expr,
    absolute,
    at_least,
    at_most,
    copysign,
    estimate,
    fma,
    has_good_estimates,
    low_integer,
    polynomial,
    round_shifted,
    round_to_even,
    scale_by_power,
    select,
    select_constant,
)

# Beyond these exp is infinite, a little further than necessary, or the power of two that it is
# scaled by is zero, see `scale_by_power`.
EXP_RANGE = {"float": (-176.1, 89.5), "double": (-1418.2, 710.5)}
EXP2_RANGE = {"float": (-254.0, 129.0), "double": (-2046.0, 1025.0)}


def reduce_exp(x: Expr) -> tuple[Expr, Expr]:
    """`(n, r)` with `x = n log 2 + r`; `n` is left in the low bits, see `low_integer`."""
    high, low = c.LN2[x.type.elem]
    n, shifted = round_shifted(x, c.LOG2_E[x.type.elem][0])
    return shifted, fma(n, -low, fma(n, -high, x))


def exp_of_reduced(r: Expr) -> Expr:
    p = polynomial(r, c.EXP[r.type.elem])
    return fma(fma(p, r, 1.0), r, 1.0)


def expm1_of_reduced(r: Expr) -> Expr:
    return fma(r * r, polynomial(r, c.EXP[r.type.elem]), r)


def exp2_estimated(
    x: Expr, places: Expr, factors: tuple[float, float] | None, shift: int = 0
) -> Expr:
    """`2**(x f + shift)` for the sum `f` of two factors, 1 without, and `x f` to about an ulp.

    What is held between bounds is only the power of two that is taken out. So `r` is all of an
    infinite, a very large or a missing number, and the estimate of `2**r` infinite, zero or NaN.

    Error: a third of an ulp besides the estimate's.
    """
    n = round_to_even(estimate("median", places, *EXP2_RANGE["float"]))
    r = x - n if factors is None else fma(x, factors[1], fma(x, factors[0], -n))
    power = n.to_int()
    return scale_by_power(estimate("exp2", r), power + shift if shift else power)


def exp_scaled(x: Expr, shift: int = 0) -> Expr:
    """`exp(x) * 2**shift`, overflowing only where the result does."""
    if has_good_estimates(x):
        factors = c.LOG2_E["float"]
        return exp2_estimated(x, x * factors[0], factors, shift)
    low, high = EXP_RANGE[x.type.elem]
    shifted, r = reduce_exp(at_least(at_most(x, high), low))
    n = low_integer(shifted)
    return scale_by_power(exp_of_reduced(r), n + shift if shift else n)


@elementwise
def exp(x: Expr) -> Expr:
    """`e**x` by Cody–Waite reduction and a minimax polynomial.

    Error: 1.0 ulp in float, 0.9 in double; on AMD's GPUs, whose `v_exp_f32` is right to one ulp,
    1.3 in float.
    """
    return exp_scaled(x)


@elementwise
def exp2(x: Expr) -> Expr:
    """`2**x`; the reduction is exact.

    Error: 0.9 ulp in float, 0.8 in double; on AMD's GPUs 1.0 in float.
    """
    if has_good_estimates(x):
        return exp2_estimated(x, x, None)
    low, high = EXP2_RANGE[x.type.elem]
    x = at_least(at_most(x, high), low)
    shifted = x + x.format.round_magic
    return exp2_scaled(x - (shifted - x.format.round_magic), low_integer(shifted))


def exp2_scaled(r: Expr, n: Expr) -> Expr:
    """`2**(n + r)` for `|r| <= 1/2`."""
    return scale_by_power(fma(polynomial(r, c.EXP2[r.type.elem]), r, 1.0), n)


def short_exp2(shifted: Expr, r: Expr) -> Expr:
    """`2**(n + r)` in float to 23 bits, for normal results; NaN is not kept."""
    p = fma(polynomial(r, c.EXP2_SHORT["float"]), r, 1.0)
    return (p.bits() + (shifted.bits() << p.format.mantissa)).as_float()


def half_expm1(x: Expr) -> Expr:
    """`(exp(x) - 1) / 2` for `x` that is not below -40 (float) or -100 (double).

    The half keeps the power of two representable up to the largest finite result.
    """
    shifted, r = reduce_exp(x)
    fmt = x.format
    power = ((shifted.bits() << fmt.mantissa) + (fmt.bias - 1 << fmt.mantissa)).as_float()
    return fma(power, expm1_of_reduced(r), power - 0.5)


@elementwise
def expm1(x: Expr) -> Expr:
    """The exponential less one: `2**n p + (2**n - 1)` with `p` that of the reduced argument.

    Error: 1.6 ulp in float, 1.8 in double.
    """
    low, high = {"float": (-25.0, 89.0), "double": (-50.0, 710.0)}[x.type.elem]
    half = half_expm1(at_least(at_most(x, high), low))
    return copysign(half + half, x)


@elementwise
def logistic(x: Expr) -> Expr:
    """`1 / (1 + e**-x)` from `exp(-|x|)`, which cannot overflow.

    Error: 1.7 ulp in float, 1.5 in double.
    """
    e = exp_below_zero(-absolute(x))
    # 1 / (1 + e) = 1 - e / (1 + e) and e / (1 + e) = e - e * e / (1 + e): the quotient's error
    # shrinks by the last operation.
    b = select(x < 0.0, e, x.like(1.0))
    return fma(-(e / (e + 1.0)), b, b)


def exp_below_zero(x: Expr) -> Expr:
    """`e**x` for `x <= 0`."""
    if has_good_estimates(x):
        return exp_scaled(x)
    shifted, r = reduce_exp(at_least(x, EXP_RANGE[x.type.elem][0]))
    return scale_by_power(exp_of_reduced(r), low_integer(shifted))


def low_mantissa(x: Expr) -> float:
    """The smallest mantissa of the split: from here to twice as much, around 1."""
    return math.sqrt(0.5) if x.is_double else 2 / 3


def exponent_offset(x: Expr, lowest: float) -> Expr:
    """The exponent of a positive normal `x` in its place, so that the mantissa is from `lowest`."""
    return (x.bits() - float_bits(lowest, x)) & -(1 << x.format.mantissa)


def float_bits(x: float, like: Expr) -> int:
    """The bits of a constant in the format of `like`."""
    float_code, int_code = ("d", "q") if like.is_double else ("f", "i")
    return struct.unpack(int_code, struct.pack(float_code, x))[0]


def exponent_to_float(offset: Expr, like: Expr) -> Expr:
    """The shifted exponent as a float.

    64-bit integers have no conversion instruction on many machines; small ones convert by
    addition of a large constant instead.
    """
    fmt = like.format
    if not like.is_double:
        return offset.to_float() * 2.0**-fmt.mantissa
    biased = (offset + fmt.one_bits) >> fmt.mantissa
    large = 2.0**fmt.mantissa
    return (biased | float_bits(large, like)).as_float() - (large + fmt.bias)


def split_exponent(x: Expr, lowest: float) -> tuple[Expr, Expr]:
    """`(e, m)`, `x = m * 2**e`, `lowest <= m < 2 lowest`, for positive finite `x`."""
    fmt = x.format
    digits = float(fmt.mantissa)
    tiny = x < fmt.min_normal
    x = select(tiny, x * 2.0**digits, x)
    offset = exponent_offset(x, lowest)
    e = exponent_to_float(offset, x) + select_constant(tiny, -digits, 0.0, x)
    return e, (x.bits() - offset).as_float()


def log1p_parts(f: Expr) -> tuple[Expr, Expr]:
    """`(s, t)` with `log(1 + f) = f + s * t`, for `1 + f` a mantissa around 1.

    In double by `s = f / (2 + f)` as in fdlibm, since a polynomial in `f` would need degree 20.
    """
    if not f.is_double:
        return f * f, fma(f, polynomial(f, c.LOG["float"]), -0.5)
    s = f / (f + 2.0)
    z = s * s
    return s, z * polynomial(z, c.LOG["double"]) - f


def log_specials(x: Expr, result: Expr) -> Expr:
    """`result` for positive finite `x`, else what a logarithm gives there."""
    fmt = x.format
    ordinary = (x.bits() - 1).below(fmt.inf_bits - 1)
    special = select(x == 0.0, x.like(-math.inf), fma(x, math.inf, math.inf))
    return select(ordinary, result, special)


def log_of_parts(e: Expr, f: Expr, more: Expr | None = None) -> Expr:
    """`e log 2 + log(1 + f) + more`."""
    s, t = log1p_parts(f)
    high, low = c.LN2[f.type.elem]
    log_m = fma(s, t, fma(e, low, f) if f.is_double else f)
    return fma(e, high, log_m + more if more is not None else log_m)


@elementwise
def log(x: Expr) -> Expr:
    """Natural logarithm; in double by the quotient that fdlibm uses.

    Error: 1.0 ulp in float, 1.3 in double.
    """
    e, m = split_exponent(x, low_mantissa(x))
    return log_specials(x, log_of_parts(e, m - 1.0))


def _log_in_base(x: Expr, log_e: tuple[float, float], log_2: tuple[float, float]) -> Expr:
    """`e * log_2 + log(1 + f) * log_e` with both constants in two parts."""
    e, m = split_exponent(x, low_mantissa(x))
    f = m - 1.0
    s, t = log1p_parts(f)
    low = fma(s * t, log_e[0], f * log_e[1])
    if log_2[1]:
        low = fma(e, log_2[1], low)
    return log_specials(x, fma(e, log_2[0], fma(f, log_e[0], low)))


@elementwise
def log2(x: Expr) -> Expr:
    """Logarithm to base 2; exact for powers of two.

    Error: 1.6 ulp in float, 1.0 in double.
    """
    return _log_in_base(x, c.LOG2_E[x.type.elem], (1.0, 0.0))


@elementwise
def log10(x: Expr) -> Expr:
    """Logarithm to base 10, by constants of two parts.

    Error: 1.6 ulp in float, 0.9 in double.
    """
    return _log_in_base(x, c.LOG10_E[x.type.elem], c.LOG10_2[x.type.elem])


@elementwise
def log1p(x: Expr) -> Expr:
    """`log(1 + x)`: the exponent of `1 + x` is applied to `x` and 1 apart, without rounding.

    Error: 1.6 ulp in float, 1.3 in double.
    """
    fmt = x.format
    offset = exponent_offset(x + 1.0, low_mantissa(x))
    inverse_power = (fmt.one_bits + (2 << fmt.mantissa) - offset).as_float()  # 4 / 2**e
    f = (x.bits() - offset).as_float() + fma(inverse_power, 0.25, -1.0)
    result = log_of_parts(exponent_to_float(offset, x), f)
    ordinary = (x > -1.0) & (x < math.inf)
    special = select(x == -1.0, x.like(-math.inf), fma(x, math.inf, math.inf))
    return copysign(select(ordinary, result, special), x)
