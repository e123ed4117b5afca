"""Integer dot products and 8-bit floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from amdjax.codegen.llvm import Value
from amdjax.emulator.alu.valu import define, extremum
from amdjax.emulator.alu.valu_float import exponent_bits
from amdjax.emulator.builder import Lanes
from amdjax.emulator.isa import ISAS


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
    """An 8-bit float.

    `fnuz` has one zero, one NaN (0x80) and no infinity; `fn` (OCP's e4m3) has no infinity and its
    NaN where that would be; the others are like IEEE's (OCP's e5m2).
    """

    mantissa: int
    bias: int
    special: Literal["fnuz", "fn", "ieee"]

    @property
    def beyond(self) -> int:
        """What too large a number becomes: NaN or infinity, without its sign."""
        return {"fnuz": 0x80, "fn": 0x7F, "ieee": 0x7C}[self.special]

    @property
    def nan(self) -> int:
        return {"fnuz": 0x80, "fn": 0x7F, "ieee": 0x7E}[self.special]


_FORMS = {
    ("fp8", "fnuz"): Float8(3, 8, "fnuz"), ("bf8", "fnuz"): Float8(2, 16, "fnuz"),
    ("fp8", "ocp"): Float8(3, 7, "fn"), ("bf8", "ocp"): Float8(2, 15, "ieee"),
}  # fmt: skip


def form_of(h: Lanes, name: str) -> Float8:
    """The format as the machine has it."""
    return _FORMS[name, ISAS[h.variant.isa].float8]


def encode(h: Lanes, name: str, x: Value) -> Value:
    """f32 to the low byte, to nearest even; what is too large becomes NaN or infinite."""
    f, form = h.f, form_of(h, name)
    size = f.unary_intrinsic("fabs", x)
    lowest = h.const("i32", 1 - form.bias)
    exponent = f.sub(exponent_bits(h, x), h.const("i32", 127))
    exponent = extremum("sgt")(h, exponent, lowest)
    # Units of the last place: 2^(exponent - mantissa), divided out exactly.
    biased = f.sub(h.const("i32", 127 + form.mantissa), exponent)
    scale = f.bitcast(f.shl(biased, h.like(biased, 23)), x.type)
    units = f.unary_intrinsic("roundeven", f.mul(size, scale))
    small = f.fcmp("olt", size, h.like(x, 2.0**20))
    units = f.select(small, units, h.like(x, 0.0))
    count = f.cast("fptosi", units, "i32")
    above = f.sub(exponent, lowest)
    above = f.select(small, above, h.like(above, 0))
    code = f.add(f.shl(above, h.like(above, form.mantissa)), count)
    sign = f.lshr(f.bitcast(x, code.type), h.like(code, 31))
    largest = 0x7F if form.special == "fnuz" else form.beyond
    bad = f.or_(f.icmp("ugt", code, h.like(code, largest)), f.not_(small))
    code = f.select(bad, h.like(code, form.beyond), code)
    code = f.select(f.fcmp("uno", x, x), h.like(code, form.nan), code)
    signed = f.or_(code, f.shl(sign, h.like(sign, 7)))
    if form.special != "fnuz":
        return signed
    return f.select(f.icmp("eq", code, h.like(code, 0)), code, signed)


def decode(h: Lanes, name: str, x: Value) -> Value:
    """The low byte as f32."""
    f, form = h.f, form_of(h, name)
    code = f.and_(x, h.like(x, 127))
    # As an f32 pattern with its exponent off by a factor, which also lifts denormals.
    pattern = f.bitcast(f.shl(code, h.like(code, 23 - form.mantissa)), x.type.with_elem("float"))
    size = f.mul(pattern, h.like(pattern, 2.0 ** (127 - form.bias)))
    if form.special == "ieee":
        size = f.select(f.icmp("eq", code, h.like(code, 0x7C)), h.like(size, math.inf), size)
    negative = f.icmp("ne", f.and_(x, h.like(x, 128)), h.like(x, 0))
    value = f.select(negative, f.neg(size), size)
    if form.special == "fnuz":
        byte = f.and_(x, h.like(x, 255))
        nan = f.icmp("eq", byte, h.like(byte, 128))
    else:
        last = form.beyond - (form.special == "fn")
        nan = f.icmp("ugt", code, h.like(code, last))
    return f.select(nan, h.like(value, math.nan), value)


def selected(h: Lanes, x: Value, bits: int) -> Value:
    """The part that op_sel chooses moved down: a byte (the bits are exchanged) or a half."""
    opsel = h.variant.opsel
    part = (opsel & 1) << 1 | opsel >> 1 & 1 if bits == 8 else opsel & 1
    return h.f.lshr(x, h.like(x, bits * part)) if part else x


def decode_one(name: str) -> Callable[..., Value]:
    return lambda h, x: decode(h, name, selected(h, x, 8))


def encode_pair(name: str) -> Callable[..., Value]:
    def compute(h: Lanes, a: Value, b: Value) -> Value:
        low, high = encode(h, name, a), encode(h, name, b)
        pair = h.f.or_(low, h.f.shl(high, h.like(high, 8)))
        return h.f.cast("trunc", pair, "i16")

    return compute


def decode_pair(name: str) -> Callable[..., Value]:
    def compute(h: Lanes, x: Value) -> Value:
        f, x = h.f, selected(h, x, 16)
        values = decode(h, name, x), decode(h, name, f.lshr(x, h.like(x, 8)))
        return h.join(*(f.bitcast(v, x.type) for v in values))

    return compute


def dot4(first: str, second: str) -> Callable[..., Value]:
    """Four products of 8-bit floats added to c; rounded once (hardware may round between)."""

    def compute(h: Lanes, a: Value, b: Value, c: Value) -> Value:
        f, total = h.f, h.f.cast("fpext", c, "double")
        for part in range(4):
            x, y = (
                f.cast("fpext", decode(h, name, f.lshr(v, h.like(v, 8 * part))), "double")
                for name, v in ((first, a), (second, b))
            )
            total = f.add(total, f.mul(x, y))
        return f.cast("fptrunc", total, "float")

    return compute


for _name in ("fp8", "bf8"):
    define(f"v_cvt_f32_{_name}", "f32 b32", decode_one(_name))
    define(f"v_cvt_pk_f32_{_name}", "b64 b32", decode_pair(_name))
    # The result is one half of the register; the other is kept.
    define(f"v_cvt_pk_{_name}_f32", "b16 f32 f32", encode_pair(_name))
    for _other in ("fp8", "bf8"):
        define(f"v_dot4_f32_{_name}_{_other}", "f32 b32 b32 f32", dot4(_name, _other))
