"""What vector instructions compute on floats, conversions and packed forms included.

Special functions (rcp, rsq, sqrt, exp, log, sin, cos) are computed in double and rounded, so they
are at least as exact as the hardware's (1 ulp in f32); the f32 forms flush denormal inputs and
results, as hardware does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from amdjax.codegen.llvm import Value
from amdjax.emulator.alu.valu import OPERATIONS, define, extremum, pack16, three, umin
from amdjax.emulator.builder import Lanes, Operation

_fn: Callable[..., Any]  # of the tables below


def flush(h: Lanes, x: Value) -> Value:
    """A denormal becomes a zero of its sign."""
    f = h.f
    smallest = {"float": 2.0**-126, "double": 2.0**-1022, "half": 2.0**-14}[x.type.elem]
    tiny = f.fcmp("olt", f.unary_intrinsic("fabs", x), h.like(x, smallest))
    signed_zero = f.intrinsic("copysign", x.type, h.like(x, 0.0), x)
    return f.select(tiny, signed_zero, x)


def fmin(h: Lanes, a: Value, b: Value) -> Value:
    return h.f.intrinsic("minimumnum", a.type, a, b)


def fmax(h: Lanes, a: Value, b: Value) -> Value:
    return h.f.intrinsic("maximumnum", a.type, a, b)


def minimum(h: Lanes, a: Value, b: Value) -> Value:
    """IEEE 754-2019: NaN propagates."""
    return h.f.intrinsic("minimum", a.type, a, b)


def maximum(h: Lanes, a: Value, b: Value) -> Value:
    return h.f.intrinsic("maximum", a.type, a, b)


def narrowed(h: Lanes, x: Value, elem: str) -> Value:
    """A double rounded once, in any direction.

    Few hosts have an instruction for halves. Others make a float first, whose last bit is odd where
    something is lost, so that rounding it gives what rounding the double would have given.
    """
    f = h.f
    if elem != "half":
        return f.cast("fptrunc", x, elem)
    near = f.cast("fptrunc", x, "float")
    back = f.cast("fpext", near, "double")
    bits = f.bitcast(near, near.type.with_elem("i32"))
    above = f.fcmp("ogt", f.unary_intrinsic("fabs", back), f.unary_intrinsic("fabs", x))
    odd = f.or_(f.select(above, f.sub(bits, h.like(bits, 1)), bits), h.like(bits, 1))
    same = f.select(f.fcmp("oeq", back, x), bits, odd)
    return f.cast("fptrunc", f.bitcast(same, near.type), "half")


def fma(h: Lanes, a: Value, b: Value, c: Value) -> Value:
    if a.type.elem in ("half", "bfloat"):
        # In double nothing of these sums is lost, hence one rounding.
        wide = [h.f.cast("fpext", x, "double") for x in (a, b, c)]
        return narrowed(h, h.f.fma(*wide), a.type.elem)
    return h.f.fma(a, b, c)


def in_double(compute: Callable[..., Value], flushes: bool = False) -> Callable[..., Value]:
    """Compute in double and round to the operand's type."""

    def wrapped(h: Lanes, x: Value) -> Value:
        elem = x.type.elem
        if flushes and elem == "float":
            x = flush(h, x)
        if elem != "double":
            x = h.f.cast("fpext", x, "double")
        y = compute(h, x)
        if elem != "double":
            y = narrowed(h, y, elem)
        return flush(h, y) if flushes and elem == "float" else y

    return wrapped


def reciprocal(h: Lanes, x: Value) -> Value:
    return h.f.fdiv(h.like(x, 1.0), x)


def sqrt(h: Lanes, x: Value) -> Value:
    return h.f.unary_intrinsic("sqrt", x)


def rsqrt(h: Lanes, x: Value) -> Value:
    return reciprocal(h, sqrt(h, x))


def turns(name: str) -> Callable[..., Value]:
    """Sine or cosine of 2 pi x; whole turns are dropped before the multiplication."""

    def compute(h: Lanes, x: Value) -> Value:
        fraction = h.f.sub(x, h.f.unary_intrinsic("floor", x))
        # A negative zero would lose its sign.
        fraction = h.f.select(h.f.fcmp("oeq", x, h.like(x, 0.0)), x, fraction)
        return h.f.unary_intrinsic(name, h.f.mul(fraction, h.like(x, 2 * math.pi)))

    return compute


def fract(h: Lanes, x: Value) -> Value:
    below_one = {"float": 1 - 2.0**-24, "double": 1 - 2.0**-53, "half": 1 - 2.0**-11}
    y = h.f.sub(x, h.f.unary_intrinsic("floor", x))
    return h.f.select(
        h.f.fcmp("ogt", y, h.like(y, below_one[x.type.elem])), h.like(y, below_one[x.type.elem]), y
    )


def ldexp(h: Lanes, x: Value, exponent: Value) -> Value:
    elem = x.type.elem
    exponent = h.f.int_resize(exponent, "i32", True)
    wide = h.f.cast("fpext", x, "double") if elem != "double" else x
    # Three factors reach every result; beyond that it is zero or infinite anyway.
    limit = h.like(exponent, 2200)
    exponent = extremum("sgt")(h, h.f.sub(h.like(exponent, 0), limit), exponent)
    exponent = extremum("slt")(h, limit, exponent)
    if elem != "double":
        clamped = extremum("slt")(h, h.like(exponent, 1000), exponent)
        exponent = extremum("sgt")(h, h.like(exponent, -1000), clamped)
        return narrowed(h, h.f.mul(wide, power_of_two(h, exponent)), elem)
    return h.f.intrinsic("ldexp", x.type, x, exponent, overload=[x.type, exponent.type])


def power_of_two(h: Lanes, exponent: Value) -> Value:
    """2^exponent in double, for exponents of normal numbers."""
    biased = h.f.cast("sext", h.f.add(exponent, h.like(exponent, 1023)), "i64")
    bits = h.f.shl(biased, h.like(biased, 52))
    return h.f.bitcast(bits, bits.type.with_elem("double"))


def exponent_bits(h: Lanes, x: Value) -> Value:
    """The biased exponent field as i32."""
    width, mantissa = (8, 23) if x.type.elem == "float" else (11, 52)
    bits = h.f.bitcast(x, x.type.with_elem(f"i{x.type.bits}"))
    field_value = h.f.and_(h.f.lshr(bits, h.like(bits, mantissa)), h.like(bits, (1 << width) - 1))
    return h.f.int_resize(field_value, "i32", False)


def _normalized(h: Lanes, x: Value) -> tuple[Value, Value]:
    """X in double without denormals, and what its exponent must be corrected by."""
    if x.type.elem != "double":
        return h.f.cast("fpext", x, "double"), h.const("i32", 0)
    tiny = h.f.fcmp("olt", h.f.unary_intrinsic("fabs", x), h.like(x, 2.0**-1022))
    scaled = h.f.select(tiny, h.f.mul(x, h.like(x, 2.0**54)), x)
    return scaled, h.f.select(tiny, h.const("i32", -54), h.const("i32", 0))


def _special(h: Lanes, x: Value) -> Value:
    """Zero, infinite or not a number."""
    magnitude = h.f.unary_intrinsic("fabs", x)
    finite = h.f.fcmp("olt", magnitude, h.like(x, math.inf))
    nonzero = h.f.fcmp("ogt", magnitude, h.like(x, 0.0))
    return h.f.not_(h.f.and_(finite, nonzero))


def frexp_exponent(h: Lanes, x: Value) -> Value:
    wide, correction = _normalized(h, x)
    exponent = h.f.sub(exponent_bits(h, wide), h.const("i32", 1022))
    exponent = h.f.select(_special(h, x), h.const("i32", 0), h.f.add(exponent, correction))
    return h.f.cast("trunc", exponent, "i16") if x.type.elem == "half" else exponent


def frexp_mantissa(h: Lanes, x: Value) -> Value:
    wide, _ = _normalized(h, x)
    bits = h.f.bitcast(wide, wide.type.with_elem("i64"))
    kept = h.f.and_(bits, h.like(bits, ~(0x7FF << 52)))
    mantissa = h.f.bitcast(h.f.or_(kept, h.like(bits, 1022 << 52)), wide.type)
    if x.type.elem != "double":
        mantissa = narrowed(h, mantissa, x.type.elem)
    return h.f.select(_special(h, x), x, mantissa)


def to_int(signed: bool, elem: str) -> Callable[..., Value]:
    """Truncate, saturating; NaN gives 0."""

    def compute(h: Lanes, x: Value) -> Value:
        to = x.type.with_elem(elem)
        name = "fptosi.sat" if signed else "fptoui.sat"
        converted = h.f.intrinsic(name, to, x, overload=[to, x.type])
        # LLVM's lowering of vectors of halves forgets NaN.
        return h.f.select(h.f.fcmp("uno", x, x), h.like(converted, 0), converted)

    return compute


def cast(op: str, elem: str) -> Callable[..., Value]:
    return lambda h, x: h.f.cast(op, x, elem)


def from_int(op: str, elem: str) -> Callable[..., Value]:
    """Zero is positive, also where the host makes it of a difference and rounds down."""

    def compute(h: Lanes, x: Value) -> Value:
        if not h.variant.flag("round"):
            return h.f.cast(op, x, elem)
        if op == "uitofp" and x.type.elem == "i32" and elem == "float":
            # Halves are exact, so that one sum rounds; LLVM takes a select for what it chooses.
            high = h.f.cast(op, h.f.lshr(x, h.like(x, 16)), elem)
            low = h.f.cast(op, h.f.and_(x, h.like(x, 0xFFFF)), elem)
            return h.f.fma(high, h.like(high, 65536.0), low)
        y = h.f.cast(op, x, elem)
        return h.f.select(h.f.icmp("eq", x, h.like(x, 0)), h.like(y, 0.0), y)

    return compute


def unsigned_byte(index: int) -> Callable[..., Value]:
    def compute(h: Lanes, x: Value) -> Value:
        byte = h.f.and_(h.f.lshr(x, h.like(x, 8 * index)), h.like(x, 255))
        return h.f.cast("uitofp", byte, "float")

    return compute


def round_to_zero16(h: Lanes, x: Value) -> Value:
    """f32 to f16 toward zero: one step down where rounding went away from zero."""
    f = h.f
    nearest = f.cast("fptrunc", x, "half")
    back = f.unary_intrinsic("fabs", f.cast("fpext", nearest, "float"))
    above = f.fcmp("ogt", back, f.unary_intrinsic("fabs", x))
    bits = f.bitcast(nearest, nearest.type.with_elem("i16"))
    lower = f.sub(bits, h.like(bits, 1))
    return f.bitcast(f.select(above, lower, bits), nearest.type)


def to_bfloat(h: Lanes, x: Value) -> Value:
    """f32 to bf16, to nearest even.

    What LLVM makes of fptrunc flushes denormals on some hosts.
    """
    f = h.f
    bits = f.bitcast(x, x.type.with_elem("i32"))
    odd = f.and_(f.lshr(bits, h.like(bits, 16)), h.like(bits, 1))
    rounded = f.add(f.add(bits, h.like(bits, 0x7FFF)), odd)
    quiet = f.or_(bits, h.like(bits, 1 << 22))
    rounded = f.select(f.fcmp("uno", x, x), quiet, rounded)
    half = f.cast("trunc", f.lshr(rounded, h.like(rounded, 16)), "i16")
    return f.bitcast(half, half.type.with_elem("bfloat"))


def pack_converted(convert: Callable[..., Value]) -> Callable[..., Value]:
    return lambda h, a, b: pack16(h, convert(h, a), convert(h, b))


def saturating_pack(low: int, high: int) -> Callable[..., Value]:
    def clamp(h: Lanes, x: Value) -> Value:
        if low == 0:
            x = umin(h, x, h.like(x, high))
        else:
            x = extremum("sgt")(h, x, h.like(x, low))
            x = extremum("slt")(h, x, h.like(x, high))
        return h.f.cast("trunc", x, "i16")

    return pack_converted(clamp)


def div_scale(h: Lanes, x: Value, denominator: Value, numerator: Value) -> tuple[Value, Value]:
    """Scale numerator or denominator (whichever x is) away from the ends of the range."""
    f = h.f
    double = x.type.elem == "double"
    shift, near_max, tiny_limit = (128, 768, 53) if double else (64, 96, 23)
    smallest = 2.0**-1022 if double else 2.0**-126

    def denormal(v: Value) -> Value:
        size = f.unary_intrinsic("fabs", v)
        return f.and_(f.fcmp("olt", size, h.like(v, smallest)), f.fcmp("ogt", size, h.like(v, 0.0)))

    up, down = f.mul(x, h.like(x, 2.0**shift)), f.mul(x, h.like(x, 2.0**-shift))
    is_denominator = f.fcmp("oeq", x, denominator)
    is_numerator = f.fcmp("oeq", x, numerator)
    inverse_tiny = denormal(reciprocal(h, denominator))
    quotient_tiny = denormal(f.fdiv(numerator, denominator))
    exponents = [exponent_bits(h, v) for v in (numerator, denominator)]
    far = f.icmp("sge", f.sub(*exponents), h.const("i32", near_max))
    zero = f.or_(
        f.fcmp("oeq", numerator, h.like(x, 0.0)), f.fcmp("oeq", denominator, h.like(x, 0.0))
    )
    no, yes = h.const("i1", False), h.const("i1", True)
    # First match wins: condition, result, flag.
    cases = (
        (zero, h.like(x, math.nan), no),
        (far, f.select(is_denominator, up, x), yes),
        (denormal(denominator), up, no),
        (f.and_(inverse_tiny, quotient_tiny), f.select(is_denominator, down, x), yes),
        (inverse_tiny, down, no),
        (quotient_tiny, f.select(is_numerator, up, x), yes),
        (f.icmp("sle", exponents[0], h.const("i32", tiny_limit)), up, no),
    )
    result, flag = x, no
    for condition, value, mark in reversed(cases):
        result, flag = f.select(condition, value, result), f.select(condition, mark, flag)
    return result, flag


def div_fmas(h: Lanes, a: Value, b: Value, c: Value, scaled: Value) -> Value:
    """An fma that undoes what `div_scale` did to the quotient.

    Published pseudocode multiplies by 2^32 (2^64), which does not undo the published scaling by
    2^64 (2^128) and cannot serve both directions. The quotient in c tells which one it was.
    """
    double = a.type.elem == "double"
    shift, middle = (128, 1023) if double else (64, 127)
    large = h.f.icmp("sgt", exponent_bits(h, c), h.const("i32", middle))
    y = h.f.fma(a, b, c)
    factor = h.f.select(large, h.like(y, 2.0**shift), h.like(y, 2.0**-shift))
    moved = h.f.mul(y, factor)
    if not double:
        # What becomes subnormal is rounded once; in f64 all else would be rounded twice.
        wide = [h.f.cast("fpext", x, "double") for x in (a, b, c, factor)]
        once = h.f.cast("fptrunc", h.f.mul(h.f.fma(*wide[:3]), wide[3]), "float")
        normal = h.f.fcmp("oge", h.f.unary_intrinsic("fabs", moved), h.like(y, 2.0**-126))
        moved = h.f.select(normal, moved, once)
    return h.f.select(scaled, moved, y)


def div_fixup(h: Lanes, quotient: Value, denominator: Value, numerator: Value) -> Value:
    """The quotient's sign, and the cases with zeros, infinities and NaN."""
    f = h.f
    if quotient.type.elem == "half":
        wide = [f.cast("fpext", x, "float") for x in (quotient, denominator, numerator)]
        return f.cast("fptrunc", div_fixup(h, *wide), "half")
    elem = f"i{quotient.type.bits}"
    sign_source = f.bitcast(
        f.xor(*(f.bitcast(x, x.type.with_elem(elem)) for x in (numerator, denominator))),
        quotient.type,
    )

    def signed(value: float) -> Value:
        return f.intrinsic("copysign", quotient.type, h.like(quotient, value), sign_source)

    def is_(x: Value, value: float) -> Value:
        return f.fcmp("oeq", f.unary_intrinsic("fabs", x), h.like(x, value))

    n_zero, d_zero = is_(numerator, 0.0), is_(denominator, 0.0)
    n_inf, d_inf = is_(numerator, math.inf), is_(denominator, math.inf)
    underflow = -150 if quotient.type.elem == "float" else -1075
    gap = f.sub(exponent_bits(h, numerator), exponent_bits(h, denominator))
    cases = (
        (f.fcmp("uno", numerator, numerator), f.add(numerator, numerator)),
        (f.fcmp("uno", denominator, denominator), f.add(denominator, denominator)),
        (f.or_(f.and_(n_zero, d_zero), f.and_(n_inf, d_inf)), f.neg(h.like(quotient, math.nan))),
        (f.or_(d_zero, n_inf), signed(math.inf)),
        (f.or_(d_inf, n_zero), signed(0.0)),
        (f.icmp("slt", gap, h.const("i32", underflow)), signed(0.0)),
        (f.fcmp("uno", quotient, quotient), signed(math.inf)),  # steps toward it overflowed
    )
    size = f.unary_intrinsic("fabs", quotient)
    result = f.intrinsic("copysign", quotient.type, size, sign_source)
    for condition, value in reversed(cases):
        result = f.select(condition, value, result)
    return result


def med3(h: Lanes, a: Value, b: Value, c: Value) -> Value:
    """The greater of those that are not the greatest, which zeros are whatever their signs."""
    f = h.f
    nan = f.or_(f.fcmp("uno", a, b), f.fcmp("uno", c, c))
    greatest = three(fmax)(h, a, b, c)
    others = f.select(f.fcmp("oeq", greatest, b), fmax(h, a, c), fmax(h, a, b))
    others = f.select(f.fcmp("oeq", greatest, a), fmax(h, b, c), others)
    return f.select(nan, three(fmin)(h, a, b, c), others)


def dot2(h: Lanes, a: Value, b: Value, c: Value, elem: str = "half") -> Value:
    """Two products of halves added to c in f32; rounded once (hardware may round between)."""
    return h.f.cast("fptrunc", products_of_halves(h, a, b, c, elem), "float")


def products_of_halves(h: Lanes, a: Value, b: Value, c: Value, elem: str) -> Value:
    """Two products and c added in double; modifiers negate low and high halves."""
    f, total = h.f, h.f.cast("fpext", c, "double")
    for part, negated in enumerate((h.variant.neg, h.variant.flag("neg_hi"))):
        factors = []
        for i, x in enumerate((a, b)):
            half = f.cast("trunc", f.lshr(x, h.like(x, 16 * part)), "i16")
            y = f.cast("fpext", f.bitcast(half, half.type.with_elem(elem)), "double")
            factors.append(f.neg(y) if negated >> i & 1 else y)
        total = f.add(total, f.mul(*factors))
    return total


def rounding(name: str) -> Callable[..., Value]:
    return lambda h, x: h.f.unary_intrinsic(name, x)


for _t in ("f16", "f32", "f64"):
    for _name, _fn in {
        "add": lambda h, a, b: h.f.add(a, b), "mul": lambda h, a, b: h.f.mul(a, b),
        "sub": lambda h, a, b: h.f.sub(a, b), "subrev": lambda h, a, b: h.f.sub(b, a),
        "min": fmin, "max": fmax, "minimum": minimum, "maximum": maximum,
    }.items():  # fmt: skip
        define(f"v_{_name}_{_t}", f"{_t} {_t} {_t}", _fn)
    for _name, _fn in {
        "fma": fma, "min3": three(fmin), "max3": three(fmax), "med3": med3, "div_fixup": div_fixup,
        "maxmin": lambda h, a, b, c: fmin(h, fmax(h, a, b), c),
        "minmax": lambda h, a, b, c: fmax(h, fmin(h, a, b), c),
        "minimum3": three(minimum), "maximum3": three(maximum),
        "maximumminimum": lambda h, a, b, c: minimum(h, maximum(h, a, b), c),
        "minimummaximum": lambda h, a, b, c: maximum(h, minimum(h, a, b), c),
    }.items():  # fmt: skip
        define(f"v_{_name}_{_t}", f"{_t} {_t} {_t} {_t}", _fn)
    for _name in ("fmac", "fmamk", "fmaak"):
        define(f"v_{_name}_{_t}", f"{_t} {_t} {_t} {_t}", fma)
    for _name, _fn in {
        "trunc": rounding("trunc"), "ceil": rounding("ceil"), "floor": rounding("floor"),
        "rndne": rounding("roundeven"), "fract": fract,
        "rcp": in_double(reciprocal, True), "rcp_iflag": in_double(reciprocal, True),
        "sqrt": in_double(sqrt, True), "rsq": in_double(rsqrt, True),
        "exp": in_double(rounding("exp2"), True), "log": in_double(rounding("log2"), True),
        "sin": in_double(turns("sin"), True), "cos": in_double(turns("cos"), True),
        "frexp_mant": frexp_mantissa,
    }.items():  # fmt: skip
        define(f"v_{_name}_{_t}", f"{_t} {_t}", _fn)
    define(f"v_frexp_exp_{'i16' if _t == 'f16' else 'i32'}_{_t}",
           f"{'i16' if _t == 'f16' else 'i32'} {_t}", frexp_exponent)  # fmt: skip
    define(f"v_ldexp_{_t}", f"{_t} {_t} {'i16' if _t == 'f16' else 'i32'}", ldexp)
for _t in ("f32", "f64"):
    define(f"v_div_scale_{_t}", f"{_t} {_t} {_t} {_t}", div_scale, sdst="mask")
    define(f"v_div_fmas_{_t}", f"{_t} {_t} {_t} {_t} mask", div_fmas)

for _names, _types, _fn in (
    ("v_cvt_i32_f64", "i32 f64", to_int(True, "i32")),
    ("v_cvt_u32_f64", "u32 f64", to_int(False, "i32")),
    ("v_cvt_i32_f32", "i32 f32", to_int(True, "i32")),
    ("v_cvt_u32_f32", "u32 f32", to_int(False, "i32")),
    ("v_cvt_i16_f16", "i16 f16", to_int(True, "i16")),
    ("v_cvt_u16_f16", "u16 f16", to_int(False, "i16")),
    ("v_cvt_f64_i32", "f64 i32", from_int("sitofp", "double")),
    ("v_cvt_f64_u32", "f64 u32", from_int("uitofp", "double")),
    ("v_cvt_f32_i32", "f32 i32", from_int("sitofp", "float")),
    ("v_cvt_f32_u32", "f32 u32", from_int("uitofp", "float")),
    ("v_cvt_f16_i16", "f16 i16", from_int("sitofp", "half")),
    ("v_cvt_f16_u16", "f16 u16", from_int("uitofp", "half")),
    ("v_cvt_f16_f32", "f16 f32", cast("fptrunc", "half")),
    ("v_cvt_f32_f16", "f32 f16", cast("fpext", "float")),
    ("v_cvt_f32_bf16", "f32 bf16", cast("fpext", "float")),
    ("v_cvt_f32_f64", "f32 f64", cast("fptrunc", "float")),
    ("v_cvt_f64_f32", "f64 f32", cast("fpext", "double")),
    ("v_cvt_floor_i32_f32", "i32 f32",
     lambda h, x: to_int(True, "i32")(h, h.f.unary_intrinsic("floor", x))),
    ("v_cvt_nearest_i32_f32", "i32 f32",
     lambda h, x: to_int(True, "i32")(h, h.f.unary_intrinsic("floor", h.f.add(x, h.like(x, 0.5))))),
    ("v_cvt_pk_rtz_f16_f32", "b32 f32 f32", pack_converted(round_to_zero16)),
    ("v_cvt_pk_f16_f32", "b32 f32 f32",
     pack_converted(lambda h, x: h.f.cast("fptrunc", x, "half"))),
    ("v_cvt_pk_bf16_f32", "b32 f32 f32", pack_converted(to_bfloat)),
    ("v_cvt_pk_u16_u32", "b32 u32 u32", saturating_pack(0, 0xFFFF)),
    ("v_cvt_pk_i16_i32", "b32 i32 i32", saturating_pack(-0x8000, 0x7FFF)),
):  # fmt: skip
    define(_names, _types, _fn)
for _i in range(4):
    define(f"v_cvt_f32_ubyte{_i}", "f32 u32", unsigned_byte(_i))
define("v_dot2_f32_f16 v_dot2c_f32_f16 v_dot2acc_f32_f16", "f32 b32 b32 f32", dot2)
define("v_dot2_f32_bf16 v_dot2c_f32_bf16 v_dot2acc_f32_bf16", "f32 b32 b32 f32",
       lambda h, a, b, c: dot2(h, a, b, c, "bfloat"))  # fmt: skip

# Packed arithmetic: the scalar operation on both halves.
for _kind, _names in {
    "f16": "add mul min max minimum maximum minimum3 maximum3 fma", "u16": "add sub min max mad",
    "i16": "add sub min max mad",
}.items():  # fmt: skip
    for _op in _names.split():
        _scalar = OPERATIONS.get(f"v_{_op}_{_kind}") or OPERATIONS[f"v_{_op}_nc_{_kind}"]
        OPERATIONS[f"v_pk_{_op}_{_kind}"] = Operation(
            _kind, _scalar.sources, _scalar.compute, _scalar.saturate, packed=True
        )
for _op in ("mul_lo_u16", "lshlrev_b16", "lshrrev_b16", "ashrrev_i16"):
    _scalar = OPERATIONS[f"v_{_op}"]
    OPERATIONS[f"v_pk_{_op}"] = Operation("u16", _scalar.sources, _scalar.compute, packed=True)
OPERATIONS["v_pk_fmac_f16"] = Operation("f16", ("f16",) * 3, fma, packed=True)
for _op in ("add", "mul", "fma"):
    _scalar = OPERATIONS[f"v_{_op}_f32"]
    OPERATIONS[f"v_pk_{_op}_f32"] = Operation("f32", _scalar.sources, _scalar.compute, packed=True)
OPERATIONS["v_pk_mov_b32"] = Operation("b32", ("b32", "b32"), lambda h, a, b: a, packed=True)

# The operands of these are f32 or f16 as op_sel_hi says: `lower` reads them.
MIXED = {"v_fma_mix_f32": "f32", "v_fma_mixlo_f16": "f16", "v_fma_mixhi_f16": "f16"}
for _name, _dst in MIXED.items():
    OPERATIONS[_name] = Operation(_dst, ("f32",) * 3, fma, packed=True)
