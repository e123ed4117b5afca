"""Integer dot products and 8-bit floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amdjax.codegen.llvm import Value
from amdjax.runtime.emulator.alu import define, exponent_bits, extremum
from amdjax.runtime.emulator.builder import Lanes


def dot(bits: int, signed: bool | None) -> Callable[..., Value]:
    """Sum of products of packed integers; `signed` None: each operand's negate bit says it."""

    def compute(h: Lanes, a: Value, b: Value, c: Value) -> Value:
        f, total = h.f, c
        for part in range(32 // bits):
            fields = []
            for i, x in enumerate((a, b)):
                is_signed = bool(h.variant.neg >> i & 1) if signed is None else signed
                up = f.shl(x, h.like(x, 32 - bits - bits * part))
                down = h.like(x, 32 - bits)
                fields.append(f.ashr(up, down) if is_signed else f.lshr(up, down))
            total = f.add(total, f.mul(*fields))
        return total

    return compute


for _names, _bits, _signed in (
    ("v_dot4_i32_i8 v_dot4c_i32_i8", 8, True), ("v_dot4_u32_u8", 8, False),
    ("v_dot4_i32_iu8", 8, None), ("v_dot8_i32_i4 v_dot8c_i32_i4", 4, True),
    ("v_dot8_u32_u4", 4, False), ("v_dot8_i32_iu4", 4, None),
    ("v_dot2_i32_i16 v_dot2c_i32_i16", 16, True), ("v_dot2_u32_u16", 16, False),
):  # fmt: skip
    define(_names, "b32 b32 b32 b32", dot(_bits, _signed))


@dataclass(frozen=True)
class Float8:
    """gfx942's 8-bit floats: one zero, one NaN (0x80), no infinities."""

    mantissa: int
    bias: int


FP8, BF8 = Float8(3, 8), Float8(2, 16)


def encode(form: Float8) -> Callable[..., Value]:
    """f32 to the low byte, to nearest even; what is too large becomes NaN."""

    def compute(h: Lanes, x: Value) -> Value:
        f = h.f
        size = f.unary_intrinsic("fabs", x)
        lowest = h.const("i32", 1 - form.bias)
        exponent = f.sub(exponent_bits(h, x), h.const("i32", 127))
        exponent = extremum("sgt")(h, exponent, lowest)
        # Units of the last place: 2^(exponent - mantissa), divided out exactly.
        biased = f.sub(h.const("i32", 127 + form.mantissa), exponent)
        scale = f.bitcast(f.shl(biased, h.like(biased, 23)), x.type)
        units = f.unary_intrinsic("roundeven", f.mul(size, scale))
        finite = f.fcmp("olt", size, h.like(x, 2.0**20))
        units = f.select(finite, units, h.like(x, 0.0))
        count = f.cast("fptosi", units, "i32")
        above = f.sub(exponent, lowest)
        code = f.add(f.shl(f.select(finite, above, h.like(above, 0)),
                           h.like(above, form.mantissa)), count)  # fmt: skip
        sign = f.lshr(f.bitcast(x, code.type), h.like(code, 31))
        signed = f.or_(code, f.shl(sign, h.like(sign, 7)))
        result = f.select(f.icmp("eq", code, h.like(code, 0)), code, signed)
        bad = f.or_(f.icmp("ugt", code, h.like(code, 127)), f.not_(finite))
        return f.select(bad, h.like(code, 128), result)

    return compute


def decode(form: Float8) -> Callable[..., Value]:
    """The low byte as f32."""

    def compute(h: Lanes, x: Value) -> Value:
        f = h.f
        code = f.and_(x, h.like(x, 127))
        # As an f32 pattern with its exponent off by a factor, which also lifts denormals.
        pattern = f.bitcast(f.shl(code, h.like(code, 23 - form.mantissa)),
                            x.type.with_elem("float"))  # fmt: skip
        size = f.mul(pattern, h.like(pattern, 2.0 ** (127 - form.bias)))
        negative = f.icmp("ne", f.and_(x, h.like(x, 128)), h.like(x, 0))
        value = f.select(negative, f.neg(size), size)
        byte = f.and_(x, h.like(x, 255))
        nan = f.icmp("eq", byte, h.like(byte, 128))
        return f.select(nan, h.like(value, float("nan")), value)

    return compute


def encode_pair(form: Float8) -> Callable[..., Value]:
    def compute(h: Lanes, a: Value, b: Value) -> Value:
        low, high = encode(form)(h, a), encode(form)(h, b)
        pair = h.f.or_(low, h.f.shl(high, h.like(high, 8)))
        return h.f.cast("trunc", pair, "i16")

    return compute


def decode_pair(form: Float8) -> Callable[..., Value]:
    def compute(h: Lanes, x: Value) -> Value:
        f = h.f
        values = decode(form)(h, x), decode(form)(h, f.lshr(x, h.like(x, 8)))
        return h.join(*(f.bitcast(v, x.type) for v in values))

    return compute


for _name, _form in {"fp8": FP8, "bf8": BF8}.items():
    define(f"v_cvt_f32_{_name}", "f32 b32", decode(_form))
    define(f"v_cvt_pk_f32_{_name}", "b64 b32", decode_pair(_form))
    # The result is one half of the register; the other is kept.
    define(f"v_cvt_pk_{_name}_f32", "b16 f32 f32", encode_pair(_form))
