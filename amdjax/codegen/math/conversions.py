"""Conversions between the dtypes of tiles.

Dtypes have the tile language's names (`f32`, `bf16`, `f8_e4m3fn`, `u8`, `bool`, ...). Floats of
eight bits and fewer travel as their bits in bytes. Floats round to nearest, ties to even, bit for
bit as ml_dtypes does. Floats become integers by truncation and saturate; NaN becomes zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..llvm import Function, Value
from .expr import Expr, absolute, at_least, at_most, select

FLOATS = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}
SIGNED = ("i1", "i2", "i4", "i8", "i16", "i32", "i64", "index")
UNSIGNED = ("u1", "u2", "u4", "u8", "u16", "u32", "u64")


@dataclass(frozen=True)
class SmallFloat:
    """A format of at most eight bits: sign, exponent, mantissa.

    `infinite` formats follow IEEE 754; `fn` ones have only NaN beyond the largest number, `fnuz`
    ones only the NaN that would be -0. Without any NaN, numbers saturate.
    """

    exponent: int
    mantissa: int
    bias: int
    kind: str

    @property
    def sign_bit(self) -> int:
        return 1 << (self.exponent + self.mantissa)

    @property
    def all_ones(self) -> int:
        return self.sign_bit - 1

    @property
    def inf_code(self) -> int:
        """The code after the largest finite one, of an IEEE 754 format."""
        return self.all_ones & -(1 << self.mantissa)


SMALL_FLOATS = {
    "f8_e4m3fn": SmallFloat(4, 3, 7, "fn"),
    "f8_e5m2": SmallFloat(5, 2, 15, "infinite"),
    "f8_e4m3fnuz": SmallFloat(4, 3, 8, "fnuz"),
    "f8_e5m2fnuz": SmallFloat(5, 2, 16, "fnuz"),
    "f8_e4m3b11fnuz": SmallFloat(4, 3, 11, "fnuz"),
    "f8_e4m3": SmallFloat(4, 3, 7, "infinite"),
    "f8_e3m4": SmallFloat(3, 4, 3, "infinite"),
    "f4_e2m1fn": SmallFloat(2, 1, 1, "saturating"),
    "f6_e2m3fn": SmallFloat(2, 3, 1, "saturating"),
    "f6_e3m2fn": SmallFloat(3, 2, 3, "saturating"),
}


def _narrow_to_bfloat(x: Expr) -> Expr:
    """Float to bfloat16 on bits where instructions flush subnormals or are library calls."""
    if "bf16" in x.f.module.native:
        return x.cast("fptrunc", "bfloat")
    bits = x.bits()
    rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
    quiet = ((bits >> 16) & 0x8000) | 0x7FC0
    narrow = select(x.is_nan(), quiet, rounded).resize("i16")
    return Expr(x.f, x.f.bitcast(narrow.value, narrow.type.with_elem("bfloat")))


def _round_to_odd_float(x: Expr) -> Expr:
    """Double to float, inexact results to the neighbor with an odd last bit.

    Rounding that once more to fewer bits gives what rounding the double would have given.
    """
    near = x.cast("fptrunc", "float")
    back = near.cast("fpext", "double")
    bits = near.bits()
    too_large = absolute(back) > absolute(x)
    odd = select(too_large, bits - 1, bits) | 1
    return select(back == x, bits, odd).as_float()


def narrow_float(x: Expr, elem: str) -> Expr:
    """Float or double to half or bfloat16.

    A double becomes bfloat16 by way of float, two roundings, as in ml_dtypes and XLA.
    """
    if elem == "bfloat":
        return _narrow_to_bfloat(x.cast("fptrunc", "float") if x.is_double else x)
    if x.is_double:
        # A NaN compares unequal and stays one with its last bit set.
        x = _round_to_odd_float(x)
    return x.cast("fptrunc", "half")


def widen_float(x: Expr) -> Expr:
    """Half or bfloat16 to float, exactly."""
    if x.type.elem == "bfloat":
        bits = Expr(x.f, x.f.bitcast(x.value, x.type.with_elem("i16")))
        return (bits.resize("i32") << 16).as_float()
    return x.cast("fpext", "float")


def elementwise(fn: Callable[..., Expr], *, widen: bool = True) -> Callable:
    """Make a formula over `Expr` callable as `fn(f, *values)` too.

    Half and bfloat16 operands are computed in float and rounded back, where `widen` says so.
    """

    @functools.wraps(fn)
    def call(first: Function | Expr, *args: Any, **options: Any) -> Any:
        if not isinstance(first, Function):
            return fn(first, *args, **options)
        values = [Expr(first, a) if isinstance(a, Value) else a for a in args]
        narrow = values[0].type.elem
        if not widen or narrow not in ("half", "bfloat"):
            return fn(*values, **options).value
        wide = [widen_float(v) if isinstance(v, Expr) else v for v in values]
        return narrow_float(fn(*wide, **options), narrow).value

    return call


def decode_small(code: Expr, fmt: SmallFloat) -> Expr:
    """The float with the value of a code in a byte.

    The code's exponent and mantissa, moved into place, are the value but for the exponents' bias,
    also where they are subnormal.
    """
    code = code.resize("i32")
    magnitude = code & fmt.all_ones
    sign = (code & fmt.sign_bit) << (31 - fmt.exponent - fmt.mantissa)
    value = (magnitude << (23 - fmt.mantissa)).as_float() * 2.0 ** (127 - fmt.bias)
    bits = value.bits()
    quiet_nan = 0x7FC00000
    if fmt.kind == "infinite":
        special = select(magnitude == fmt.inf_code, bits.like(0x7F800000), bits.like(quiet_nan))
        bits = select(magnitude < fmt.inf_code, bits, special)
    elif fmt.kind == "fn":
        bits = select(magnitude == fmt.all_ones, bits.like(quiet_nan), bits)
    elif fmt.kind == "fnuz":
        # The one NaN has its sign bit set.
        bits = select((code & (2 * fmt.sign_bit - 1)) == fmt.sign_bit, bits.like(quiet_nan), bits)
    return (bits | sign).as_float()


def encode_small(x: Expr, fmt: SmallFloat) -> Expr:
    """The code in a byte of a float or double, rounded once."""
    wide = x.format
    drop = wide.mantissa - fmt.mantissa
    a = absolute(x)
    bits = a.bits()
    rebias = (wide.bias - fmt.bias) << wide.mantissa
    normal = (bits - rebias + ((bits >> drop) & 1) + ((1 << (drop - 1)) - 1)) >> drop
    # Beside this number an ulp is the least subnormal number of the format.
    grid = 2.0 ** (1 - fmt.bias + drop)
    subnormal = (a + grid).bits() - x.like(grid).bits()
    code = select(a < 2.0 ** (1 - fmt.bias), subnormal, normal)
    sign = (x.bits() >> (wide.bits - 1 - fmt.exponent - fmt.mantissa)) & fmt.sign_bit
    if fmt.kind == "fnuz":
        code = select(code == 0, code, code | sign)
        finite = a < wide_limit(fmt)
        return select(finite, code, code.like(fmt.sign_bit)).resize("i8")
    last = fmt.inf_code if fmt.kind == "infinite" else fmt.all_ones
    code = select(code > last, code.like(last), code)
    if fmt.kind == "saturating":
        # A NaN becomes a zero of the other sign, as in ml_dtypes.
        return select(x.is_nan(), sign ^ fmt.sign_bit, code | sign).resize("i8")
    quiet_bit = 1 << (fmt.mantissa - 1) if fmt.kind == "infinite" else 0
    return (select(x.is_nan(), code.like(last | quiet_bit), code) | sign).resize("i8")


def wide_limit(fmt: SmallFloat) -> float:
    """The least number that rounds beyond the largest number of an `fnuz` format."""
    return (2.0 - 2.0 ** -(fmt.mantissa + 1)) * 2.0 ** ((1 << fmt.exponent) - 1 - fmt.bias)


def decode_exponent(code: Expr) -> Expr:
    """`2**(code - 127)` for `float8_e8m0fnu`; 255 is NaN."""
    code = code.resize("i32")
    bits = select(code == 0, code.like(0x00400000), code << 23)
    return select(code == 255, bits.like(0x7FC00000), bits).as_float()


def encode_exponent(x: Expr) -> Expr:
    """The nearest power of two, ties up, as `float8_e8m0fnu`; NaN unless positive and finite."""
    wide = x.format
    bits = x.bits()
    code = (bits + (1 << (wide.mantissa - 1))).ashr(wide.mantissa) - (wide.bias - 127)
    # The interval below the least normal float has no leading one, and all of it beyond 2**-127
    # rounds up in ml_dtypes.
    tiny = (x > 2.0**-127).resize(code.type.elem)
    code = select(x < 2.0**-126, tiny, code)
    representable = (x > 0.0) & (code < 255)
    return select(representable, code, code.like(255)).resize("i8")


def float_to_int(x: Expr, bits: int, signed: bool) -> Expr:
    """Truncated and clamped to an integer of `bits` bits; NaN gives 0.

    Clamping before one plain conversion is shorter than what the saturating intrinsics become.
    """
    lowest = -(1 << (bits - 1)) if signed else 0
    width = bits - 1 if signed else bits
    precision = x.format.mantissa + 1
    largest = float((1 << width) - (1 << max(width - precision, 0)))  # that is below 2**width
    # A NaN fails both comparisons, so it is replaced first.
    number = select(x.is_nan(), x.like(0.0), x)
    clamped = at_most(at_least(number, float(lowest)), largest)
    elem = f"i{max(bits, 32)}"
    result = clamped.cast("fptosi" if signed or bits < 32 else "fptoui", elem)
    if width > precision:
        result = select(x >= 2.0**width, result.like((1 << width) - 1), result)
    return result.resize(f"i{max(bits, 8)}")


def int_to_float(x: Expr, source: str, target: str) -> Expr:
    """An integer of dtype `source` as f32 or f64."""
    signed = source in SIGNED
    if x.type.bits < 32:
        x, signed = x.resize("i32", signed), True
    return x.cast("sitofp" if signed else "uitofp", FLOATS[target])


def int_bits(dtype: str) -> int:
    return 64 if dtype == "index" else int(dtype[1:])


def _int_to_int(x: Expr, source: str, target: str) -> Expr:
    """Wrap around; integers of four and two bits are kept extended to a byte."""
    bits = int_bits(target)
    x = x.resize(f"i{max(bits, 8)}", signed=source in SIGNED)
    if bits < 8:
        x = x << (8 - bits)
        x = x.ashr(8 - bits) if target in SIGNED else x >> (8 - bits)
    return x


def _to_wide_float(x: Expr, source: str) -> Expr:
    """Any dtype as float, or double where float cannot hold it; floats exactly."""
    if source in ("f32", "f64"):
        return x
    if source in ("f16", "bf16"):
        return widen_float(x)
    if source in SMALL_FLOATS:
        return decode_small(x, SMALL_FLOATS[source])
    if source == "f8_e8m0fnu":
        return decode_exponent(x)
    if source == "bool":
        return x.cast("uitofp", "float")
    return int_to_float(x, source, "f32")


def _from_wide_float(x: Expr, target: str) -> Expr:
    """A float or double as any dtype."""
    if target == "f64":
        return x if x.is_double else x.cast("fpext", "double")
    if target == "f32":
        return x.cast("fptrunc", "float") if x.is_double else x
    if target in FLOATS:
        return narrow_float(x, FLOATS[target])
    if target in SMALL_FLOATS:
        return encode_small(x, SMALL_FLOATS[target])
    if target == "f8_e8m0fnu":
        return encode_exponent(x)
    if target == "bool":
        return x != 0.0
    return float_to_int(x, int_bits(target), target in SIGNED)


def convert(f: Function, x: Value, source: str, target: str) -> Value:
    """`x` of dtype `source` as dtype `target`."""
    e = Expr(f, x)
    integers = (*SIGNED, *UNSIGNED)
    if source == target:
        return x
    if source in integers and target in integers:
        return _int_to_int(e, source, target).value
    if source in integers and target == "bool":
        return (e != 0).value
    if source in integers and target == "f64":
        return int_to_float(e, source, "f64").value
    if source == "bool" and target in integers:
        return e.resize(f"i{max(int_bits(target), 8)}").value
    return _from_wide_float(_to_wide_float(e, source), target).value


DTYPES = ("bool", *SIGNED, *UNSIGNED, *FLOATS, *SMALL_FLOATS, "f8_e8m0fnu")
CONVERSIONS: dict[tuple[str, str], Callable[[Function, Value], Value]] = {
    (source, target): functools.partial(convert, source=source, target=target)
    for source in DTYPES
    for target in DTYPES
    if source != target
}
