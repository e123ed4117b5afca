"""Instructions that few kernels have: bytes, saturating packs, bit tricks, swaps."""

from __future__ import annotations

from collections.abc import Callable

from amdjax.codegen.llvm import I64, Value, const
from amdjax.emulator import state
from amdjax.emulator.alu import salu, valu, valu_float
from amdjax.emulator.alu.crosslane import handler
from amdjax.emulator.builder import Lanes


def _field(h: Lanes, x: Value, part: int, bits: int) -> Value:
    down = h.f.lshr(x, h.like(x, part * bits))
    return h.f.and_(down, h.like(x, (1 << bits) - 1))


def _distance(h: Lanes, a: Value, b: Value) -> Value:
    return h.f.sub(valu.extremum("ugt")(h, a, b), valu.extremum("ult")(h, a, b))


def sum_of_distances(bits: int, shift: int = 0, masked: bool = False) -> Callable[..., Value]:
    """|a - b| of all fields, added to c; `masked` leaves out those where b is 0."""

    def compute(h: Lanes, a: Value, b: Value, c: Value) -> Value:
        f, total = h.f, h.like(c, 0)
        for part in range(32 // bits):
            x, y = (_field(h, v, part, bits) for v in (a, b))
            term = _distance(h, x, y)
            if masked:
                zero = h.like(y, 0)
                term = f.select(f.icmp("eq", y, zero), zero, term)
            total = f.add(total, term)
        return f.add(f.shl(total, h.like(total, shift)) if shift else total, c)

    return compute


def lerp(h: Lanes, a: Value, b: Value, c: Value) -> Value:
    """Mean of each byte of a and b, rounded up where the byte of c is odd."""
    f, result = h.f, h.like(a, 0)
    for part in range(4):
        x, y = (_field(h, v, part, 8) for v in (a, b))
        odd = f.and_(f.lshr(c, h.like(c, 8 * part)), h.like(c, 1))
        mean = f.lshr(f.add(f.add(x, y), odd), h.like(x, 1))
        result = f.or_(result, f.shl(mean, h.like(mean, 8 * part)))
    return result


def pack_bytes(h: Lanes, x: Value) -> Value:
    """Two signed halves as unsigned bytes, saturating."""
    f, parts = h.f, []
    for part in range(2):
        up = f.shl(x, h.like(x, 16 * (1 - part)))
        half = f.ashr(up, h.like(x, 16))
        half = valu.extremum("sgt")(h, half, h.like(half, 0))
        parts.append(valu.extremum("slt")(h, half, h.like(half, 255)))
    return f.or_(parts[0], f.shl(parts[1], h.like(x, 8)))


def dot_halves(elem: str) -> Callable[..., Value]:
    """Two products added to c, rounded to f32 and then to the type of the elements."""

    def compute(h: Lanes, a: Value, b: Value, c: Value) -> Value:
        total = valu_float.products_of_halves(h, a, b, c, elem)
        total = h.f.cast("fptrunc", total, "float")
        return (
            h.f.cast("fptrunc", total, elem) if elem == "half" else valu_float.to_bfloat(h, total)
        )

    return compute


def bitop(h: Lanes, a: Value, b: Value, c: Value) -> Value:
    """Any function of three bits: the table is in the modifiers of the encoding."""
    f, result = h.f, h.like(a, 0)
    for row in range(8):
        if not h.variant.flag("table") >> row & 1:
            continue
        term = h.like(a, -1)
        for x, bit in ((a, 4), (b, 2), (c, 1)):
            term = f.and_(term, x if row & bit else f.not_(x))
        result = f.or_(result, term)
    return result


for _names, _types, _fn in (
    ("v_sad_u8", "u32 u32 u32 u32", sum_of_distances(8)),
    ("v_sad_hi_u8", "u32 u32 u32 u32", sum_of_distances(8, shift=16)),
    ("v_msad_u8", "u32 u32 u32 u32", sum_of_distances(8, masked=True)),
    ("v_sad_u16", "u32 u32 u32 u32", sum_of_distances(16)),
    ("v_lerp_u8", "u32 u32 u32 u32", lerp),
    ("v_sat_pk_u8_i16", "b16 b32", lambda h, x: h.f.cast("trunc", pack_bytes(h, x), "i16")),
    ("v_dot2_f16_f16", "f16 b32 b32 f16", dot_halves("half")),
    ("v_dot2_bf16_bf16", "bf16 b32 b32 bf16", dot_halves("bfloat")),
    ("v_bitop3_b32", "b32 b32 b32 b32", bitop),
    ("v_bitop3_b16", "b16 b16 b16 b16", bitop),
):
    valu.define(_names, _types, _fn)
for _t in ("f16", "bf16", "f32"):
    valu.define(f"v_minimum3_{_t}", f"{_t} {_t} {_t} {_t}", valu.three(valu_float.minimum))
    valu.define(f"v_maximum3_{_t}", f"{_t} {_t} {_t} {_t}", valu.three(valu_float.maximum))


def _swap_lanes(distance: int) -> Callable[[Lanes], None]:
    """Odd groups of lanes of the destination change places with even ones of the source."""

    def emit(h: Lanes) -> None:
        f, target, source = h.f, h.slot(state.DST), h.slot(state.SRC0)
        a, b = (h.load_vgpr(h.at(h.wave, place), 32) for place in (target, source))
        n = h.lanes
        odd = [bool(i // distance % 2) for i in range(n)]
        new_a = f.shuffle(a, b, [i - distance + n if odd[i] else i for i in range(n)])
        new_b = f.shuffle(a, b, [i + n if odd[i] else i + distance for i in range(n)])
        mask = h.write_mask()
        f.masked_store(new_a, h.at(h.wave, target), mask, 64)
        f.masked_store(new_b, h.at(h.wave, source), mask, 64)
        h.finish()

    return emit


handler("v_permlane16_swap_b32")(_swap_lanes(16))
handler("v_permlane32_swap_b32")(_swap_lanes(32))


# Scalars


def replicate(h: Lanes, x: Value) -> Value:
    """Every bit twice."""
    f = h.f
    wide = f.cast("zext", x, "i64")
    for shift, mask in ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F),
                        (2, 0x3333333333333333), (1, 0x5555555555555555)):  # fmt: skip
        spread = f.or_(wide, f.shl(wide, const(I64, shift)))
        wide = f.and_(spread, const(I64, mask))
    return f.or_(wide, f.shl(wide, const(I64, 1)))


def _quads(h: Lanes, x: Value) -> Value:
    """The lowest bit of each four: whether one of them is set."""
    f, bits = h.f, x.type.bits
    pairs = f.or_(x, f.lshr(x, h.like(x, 1)))
    any_of = f.or_(pairs, f.lshr(pairs, h.like(x, 2)))
    return f.and_(any_of, h.like(x, int("1" * (bits // 4), 16)))


def whole_quads(h: Lanes, x: Value) -> Value:
    return h.f.mul(_quads(h, x), h.like(x, 15))


def quad_mask(h: Lanes, x: Value) -> Value:
    """A bit for each four, side by side."""
    f, found, result = h.f, _quads(h, x), h.like(x, 0)
    for i in range(x.type.bits // 4):
        bit = f.and_(f.lshr(found, h.like(x, 3 * i)), h.like(x, 1 << i))
        result = f.or_(result, bit)
    return result


def first_zero(h: Lanes, x: Value) -> Value:
    return valu.count_bits("cttz")(h, h.f.not_(x))


for _b in (32, 64):
    _t = f"b{_b}"
    salu.define(f"s_wqm_{_t}", f"{_t} {_t}", whole_quads, scc=salu.nonzero)
    salu.define(f"s_quadmask_{_t}", f"{_t} {_t}", quad_mask, scc=salu.nonzero)
    salu.define(f"s_ff0_i32_{_t}", f"i32 {_t}", first_zero)
salu.define("s_bitreplicate_b64_b32", "b64 b32", replicate)
salu.define("s_flbit_i32_i64 s_cls_i32_i64", "i32 i64", valu.count_sign)
