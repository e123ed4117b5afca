"""What vector instructions compute, one entry each: the table, and those on integers.

An entry is `result operands: expression`; expressions take the writer `h` and the operands as
values over lanes. Names are RDNA3's; `ALIASES` has the older ones. `valu_float`, `compare`,
`narrow`, `legacy` and `rare` enter theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.codegen.llvm import Type, Value, vector
from amdjax.emulator.builder import Lanes, Operation, defining

OPERATIONS: dict[str, Operation] = {}
define = defining(OPERATIONS)
_fn: Callable[..., Any]  # of the tables below


def amount(h: Lanes, x: Value, bits: int) -> Value:
    """A shift amount: only the low bits count."""
    return h.f.and_(x, h.like(x, bits - 1))


def amount64(h: Lanes, x: Value) -> Value:
    return h.f.cast("zext", amount(h, x, 64), "i64")


def extremum(predicate: str) -> Callable[..., Value]:
    return lambda h, a, b: h.f.select(h.f.icmp(predicate, a, b), a, b)


def umin(h: Lanes, a: Value, b: Value) -> Value:
    return extremum("ult")(h, a, b)


def intrinsic(name: str) -> Callable[..., Value]:
    return lambda h, *xs: h.f.intrinsic(name, xs[0].type, *xs)


def count_bits(name: str) -> Callable[..., Value]:
    """Leading or trailing zeros; -1 where there is no one at all."""

    def compute(h: Lanes, x: Value) -> Value:
        f = h.f
        full = f"llvm.{name}.{x.type.suffix}"
        f.module.declare(full, x.type, [x.type, Type("i1")])
        count = f.op(f"call {x.type} @{full}({x}, i1 false)", x.type)
        count = f.int_resize(count, "i32", False)
        none = f.icmp("eq", x, h.like(x, 0))
        return f.select(none, h.like(count, -1), count)

    return compute


def count_sign(h: Lanes, x: Value) -> Value:
    """Leading bits equal to the sign, counted from the top; -1 if all are."""
    f = h.f
    flipped = f.xor(x, f.ashr(x, h.like(x, x.type.bits - 1)))
    return count_bits("ctlz")(h, flipped)


def bfe(signed: bool) -> Callable[..., Value]:
    def compute(h: Lanes, x: Value, offset: Value, width: Value) -> Value:
        f = h.f
        offset, width = amount(h, offset, 32), amount(h, width, 32)
        zero = h.like(x, 0)
        if not signed:
            mask = f.sub(f.shl(h.like(x, 1), width), h.like(x, 1))
            return f.and_(f.lshr(x, offset), mask)
        # The field moves to the top and back, with whatever sign bits the register end supplies.
        moved = f.ashr(x, offset)
        up = f.sub(h.like(x, 32), width)
        up_safe = f.and_(up, h.like(x, 31))
        field = f.ashr(f.shl(moved, up_safe), up_safe)
        return f.select(f.icmp("eq", width, zero), zero, field)

    return compute


def bfi(h: Lanes, mask: Value, a: Value, b: Value) -> Value:
    return h.f.or_(h.f.and_(mask, a), h.f.and_(h.f.not_(mask), b))


def bfm(h: Lanes, width: Value, offset: Value) -> Value:
    one = h.like(width, 1)
    bits = width.type.bits
    field = h.f.sub(h.f.shl(one, amount(h, width, bits)), one)
    return h.f.shl(field, amount(h, offset, bits))


def mul_high(signed: bool) -> Callable[..., Value]:
    def compute(h: Lanes, a: Value, b: Value) -> Value:
        wide = [h.f.cast("sext" if signed else "zext", x, "i64") for x in (a, b)]
        product = h.f.mul(*wide)
        return h.f.cast("trunc", h.f.lshr(product, h.like(product, 32)), "i32")

    return compute


def low24(h: Lanes, x: Value, signed: bool) -> Value:
    eight = h.like(x, 8)
    up = h.f.shl(x, eight)
    return h.f.ashr(up, eight) if signed else h.f.lshr(up, eight)


def mul24(signed: bool, high: bool = False) -> Callable[..., Value]:
    def compute(h: Lanes, a: Value, b: Value, c: Value | None = None) -> Value:
        a, b = low24(h, a, signed), low24(h, b, signed)
        product = mul_high(signed)(h, a, b) if high else h.f.mul(a, b)
        return product if c is None else h.f.add(product, c)

    return compute


def mad64(signed: bool) -> Callable[..., tuple[Value, Value]]:
    """64-bit a * b + c and bit 64 of the exact sum: its carry, or for signed its sign."""

    def compute(h: Lanes, a: Value, b: Value, c: Value) -> tuple[Value, Value]:
        f = h.f
        x, y = (f.cast("sext" if signed else "zext", v, "i64") for v in (a, b))
        product = f.mul(x, y)
        total = f.add(product, c)
        if not signed:
            return total, f.icmp("ult", total, product)
        overflow = f.and_(f.xor(total, product), f.xor(total, c))
        return total, f.icmp("slt", f.xor(total, overflow), h.like(total, 0))

    return compute


def _carrying(op: str) -> Callable[..., tuple[Value, Value]]:
    """`op` of two words and, where there is one, a carry: its word, and whether it leaves it."""

    def compute(h: Lanes, *words: Value) -> tuple[Value, Value]:
        total, *rest = (h.f.cast("zext", x, "i64") for x in words)
        for x in rest:
            total = getattr(h.f, op)(total, x)
        low, high = h.split(total)
        return low, h.f.icmp("ne", high, h.like(high, 0))

    return compute


add_carry, sub_borrow = _carrying("add"), _carrying("sub")


def swapped(compute: Callable[..., Any]) -> Callable[..., Any]:
    return lambda h, a, b, *rest: compute(h, b, a, *rest)


def perm(h: Lanes, a: Value, b: Value, selector: Value) -> Value:
    """Each byte of the result is one of the eight bytes of a:b, a sign of one, 0 or 0xff."""
    f = h.f
    data = h.join(b, a)
    result = h.like(a, 0)
    for byte in range(4):
        s = f.and_(f.lshr(selector, h.like(selector, 8 * byte)), h.like(selector, 255))
        shift = f.cast("zext", f.shl(f.and_(s, h.like(s, 7)), h.like(s, 3)), "i64")
        picked = f.and_(f.cast("trunc", f.lshr(data, shift), "i32"), h.like(s, 255))
        # 8…11: sign of bytes 1, 3, 5, 7.
        odd = f.add(f.shl(f.sub(s, h.like(s, 8)), h.like(s, 4)), h.like(s, 15))
        sign = f.lshr(data, f.cast("zext", f.and_(odd, h.like(s, 63)), "i64"))
        sign = f.and_(f.cast("trunc", sign, "i32"), h.like(s, 1))
        sign = f.mul(sign, h.like(s, 255))
        fixed = f.select(f.icmp("uge", s, h.like(s, 13)), h.like(s, 255), h.like(s, 0))
        special = f.select(f.icmp("ult", s, h.like(s, 12)), sign, fixed)
        value = f.select(f.icmp("ult", s, h.like(s, 8)), picked, special)
        result = f.or_(result, f.shl(value, h.like(value, 8 * byte)))
    return result


def alignbit(scale: int) -> Callable[..., Value]:
    def compute(h: Lanes, a: Value, b: Value, c: Value) -> Value:
        shift = h.f.and_(c, h.like(c, 31 // scale))
        shift = h.f.mul(shift, h.like(c, scale)) if scale > 1 else shift
        data = h.f.lshr(h.join(b, a), h.f.cast("zext", shift, "i64"))
        return h.f.cast("trunc", data, "i32")

    return compute


def mad16(widen: str) -> Callable[..., Value]:
    """Product of two halves, widened, plus a word."""

    def compute(h: Lanes, a: Value, b: Value, c: Value) -> Value:
        return h.f.add(h.f.mul(h.f.cast(widen, a, "i32"), h.f.cast(widen, b, "i32")), c)

    return compute


def median(low: Callable[..., Value], high: Callable[..., Value]) -> Callable[..., Value]:
    return lambda h, a, b, c: high(h, low(h, a, b), low(h, high(h, a, b), c))


def three(fn: Callable[..., Value]) -> Callable[..., Value]:
    return lambda h, a, b, c: fn(h, fn(h, a, b), c)


def mbcnt(high: bool) -> Callable[..., Value]:
    """Ones of the mask below the lane, in its low or high word, plus the addend."""

    def compute(h: Lanes, mask: Value, addend: Value) -> Value:
        masks = []
        for lane in range(h.lanes):
            position = lane - 32 if high else lane
            masks.append((1 << max(0, min(32, position))) - 1)
        below = h.f.and_(mask, vector("i32", masks))
        return h.f.add(h.f.unary_intrinsic("ctpop", below), addend)

    return compute


def pack16(h: Lanes, low: Value, high: Value) -> Value:
    f = h.f
    bits = [f.bitcast(x, x.type.with_elem("i16")) for x in (low, high)]
    a, b = (f.cast("zext", x, "i32") for x in bits)
    return f.or_(a, f.shl(b, h.like(b, 16)))


for _names, _fn in {
    "v_and_b32": lambda h, a, b: h.f.and_(a, b),
    "v_or_b32": lambda h, a, b: h.f.or_(a, b),
    "v_xor_b32": lambda h, a, b: h.f.xor(a, b),
    "v_xnor_b32": lambda h, a, b: h.f.not_(h.f.xor(a, b)),
    "v_lshlrev_b32": lambda h, a, b: h.f.shl(b, amount(h, a, 32)),
    "v_lshrrev_b32": lambda h, a, b: h.f.lshr(b, amount(h, a, 32)),
    "v_ashrrev_i32": lambda h, a, b: h.f.ashr(b, amount(h, a, 32)),
    "v_min_i32": extremum("slt"), "v_max_i32": extremum("sgt"),
    "v_min_u32": extremum("ult"), "v_max_u32": extremum("ugt"),
    "v_mul_lo_u32": lambda h, a, b: h.f.mul(a, b),
    "v_mul_hi_u32": mul_high(False), "v_mul_hi_i32": mul_high(True),
    "v_mul_u32_u24": mul24(False), "v_mul_i32_i24": mul24(True),
    "v_mul_hi_u32_u24": mul24(False, True), "v_mul_hi_i32_i24": mul24(True, True),
    "v_bcnt_u32_b32": lambda h, a, b: h.f.add(h.f.unary_intrinsic("ctpop", a), b),
    "v_bfm_b32": bfm, "v_mbcnt_lo_u32_b32": mbcnt(False), "v_mbcnt_hi_u32_b32": mbcnt(True),
}.items():  # fmt: skip
    define(_names, "u32 u32 u32", _fn)

define("v_add_nc_u32", "u32 u32 u32", lambda h, a, b: h.f.add(a, b), saturate=intrinsic("uadd.sat"))
define("v_sub_nc_u32", "u32 u32 u32", lambda h, a, b: h.f.sub(a, b), saturate=intrinsic("usub.sat"))
define("v_subrev_nc_u32", "u32 u32 u32", lambda h, a, b: h.f.sub(b, a),
       saturate=swapped(intrinsic("usub.sat")))  # fmt: skip
define("v_add_nc_i32", "i32 i32 i32", lambda h, a, b: h.f.add(a, b), saturate=intrinsic("sadd.sat"))
define("v_sub_nc_i32", "i32 i32 i32", lambda h, a, b: h.f.sub(a, b), saturate=intrinsic("ssub.sat"))

for _names, _fn in {
    "v_mad_u32_u24": mul24(False), "v_mad_i32_i24": mul24(True),
    "v_bfe_u32": bfe(False), "v_bfe_i32": bfe(True), "v_bfi_b32": bfi,
    "v_alignbit_b32": alignbit(1), "v_alignbyte_b32": alignbit(8), "v_perm_b32": perm,
    "v_min3_i32": three(extremum("slt")), "v_max3_i32": three(extremum("sgt")),
    "v_min3_u32": three(extremum("ult")), "v_max3_u32": three(extremum("ugt")),
    "v_med3_i32": median(extremum("slt"), extremum("sgt")),
    "v_med3_u32": median(extremum("ult"), extremum("ugt")),
    "v_add3_u32": lambda h, a, b, c: h.f.add(h.f.add(a, b), c),
    "v_lshl_add_u32": lambda h, a, b, c: h.f.add(h.f.shl(a, amount(h, b, 32)), c),
    "v_add_lshl_u32": lambda h, a, b, c: h.f.shl(h.f.add(a, b), amount(h, c, 32)),
    "v_lshl_or_b32": lambda h, a, b, c: h.f.or_(h.f.shl(a, amount(h, b, 32)), c),
    "v_and_or_b32": lambda h, a, b, c: h.f.or_(h.f.and_(a, b), c),
    "v_or3_b32": lambda h, a, b, c: h.f.or_(h.f.or_(a, b), c),
    "v_xor3_b32": lambda h, a, b, c: h.f.xor(h.f.xor(a, b), c),
    "v_xad_u32": lambda h, a, b, c: h.f.add(h.f.xor(a, b), c),
    "v_maxmin_i32": lambda h, a, b, c: extremum("slt")(h, extremum("sgt")(h, a, b), c),
    "v_minmax_i32": lambda h, a, b, c: extremum("sgt")(h, extremum("slt")(h, a, b), c),
    "v_maxmin_u32": lambda h, a, b, c: extremum("ult")(h, extremum("ugt")(h, a, b), c),
    "v_minmax_u32": lambda h, a, b, c: extremum("ugt")(h, extremum("ult")(h, a, b), c),
    "v_sad_u32": lambda h, a, b, c: h.f.add(
        h.f.sub(extremum("ugt")(h, a, b), extremum("ult")(h, a, b)), c
    ),
}.items():  # fmt: skip
    define(_names, "u32 u32 u32 u32", _fn)

for _names, _types, _fn in (
    ("v_mov_b32 v_accvgpr_read v_accvgpr_write v_accvgpr_mov_b32", "b32 b32", lambda h, a: a),
    ("v_mov_b64", "b64 b64", lambda h, a: a),
    ("v_mov_b16", "b16 b16", lambda h, a: a),
    ("v_not_b32", "b32 b32", lambda h, a: h.f.not_(a)),
    ("v_not_b16", "b16 b16", lambda h, a: h.f.not_(a)),
    ("v_bfrev_b32", "b32 b32", intrinsic("bitreverse")),
    ("v_clz_i32_u32", "i32 u32", count_bits("ctlz")),
    ("v_ctz_i32_b32", "i32 b32", count_bits("cttz")),
    ("v_cls_i32", "i32 i32", count_sign),
    ("v_cvt_i32_i16", "i32 i16", lambda h, a: h.f.cast("sext", a, "i32")),
    ("v_cvt_u32_u16", "u32 u16", lambda h, a: h.f.cast("zext", a, "i32")),
    ("v_lshlrev_b64", "u64 u32 u64", lambda h, a, b: h.f.shl(b, amount64(h, a))),
    ("v_lshrrev_b64", "u64 u32 u64", lambda h, a, b: h.f.lshr(b, amount64(h, a))),
    ("v_ashrrev_i64", "i64 u32 i64", lambda h, a, b: h.f.ashr(b, amount64(h, a))),
    ("v_lshl_add_u64", "u64 u64 u32 u64",
     lambda h, a, b, c: h.f.add(h.f.shl(a, h.f.cast("zext", amount(h, b, 8), "i64")), c)),
    ("v_cndmask_b32", "f32 f32 f32 mask", lambda h, a, b, m: h.f.select(m, b, a)),
    ("v_cndmask_b16", "f16 f16 f16 mask", lambda h, a, b, m: h.f.select(m, b, a)),
    ("v_mad_u32_u16", "u32 u16 u16 u32", mad16("zext")),
    ("v_mad_i32_i16", "i32 i16 i16 i32", mad16("sext")),
    ("v_pack_b32_f16", "b32 f16 f16", lambda h, a, b: pack16(h, a, b)),
):  # fmt: skip
    define(_names, _types, _fn)

for _names, _types, _fn in (
    ("v_add_co_u32", "u32 u32 u32", add_carry),
    ("v_sub_co_u32", "u32 u32 u32", sub_borrow),
    ("v_subrev_co_u32", "u32 u32 u32", swapped(sub_borrow)),
    ("v_add_co_ci_u32", "u32 u32 u32 mask", add_carry),
    ("v_sub_co_ci_u32", "u32 u32 u32 mask", sub_borrow),
    ("v_subrev_co_ci_u32", "u32 u32 u32 mask", swapped(sub_borrow)),
    ("v_mad_u64_u32", "u64 u32 u32 u64", mad64(False)),
    ("v_mad_i64_i32", "i64 i32 i32 i64", mad64(True)),
):
    define(_names, _types, _fn, sdst="mask")

for _suffix, _types in (("u16", "u16 u16 u16"), ("i16", "i16 i16 i16")):
    _s = "u" if _suffix == "u16" else "s"
    for _op in ("add", "sub"):
        define(f"v_{_op}_nc_{_suffix}", _types, lambda h, a, b, op=_op: getattr(h.f, op)(a, b),
               saturate=intrinsic(f"{_s}{_op}.sat"))  # fmt: skip
    define(f"v_min_{_suffix}", _types, extremum(f"{_s}lt"))
    define(f"v_max_{_suffix}", _types, extremum(f"{_s}gt"))
    for _op, _p in (("min", "lt"), ("max", "gt")):
        define(f"v_{_op}3_{_suffix}", _types + " " + _suffix, three(extremum(_s + _p)))
    define(f"v_med3_{_suffix}", _types + " " + _suffix,
           median(extremum(_s + "lt"), extremum(_s + "gt")))  # fmt: skip
    define(f"v_mad_{_suffix}", _types + " " + _suffix,
           lambda h, a, b, c: h.f.add(h.f.mul(a, b), c))  # fmt: skip
define("v_subrev_nc_u16", "u16 u16 u16", lambda h, a, b: h.f.sub(b, a))
define("v_mul_lo_u16", "u16 u16 u16", lambda h, a, b: h.f.mul(a, b))
define("v_lshlrev_b16", "u16 u16 u16", lambda h, a, b: h.f.shl(b, amount(h, a, 16)))
define("v_lshrrev_b16", "u16 u16 u16", lambda h, a, b: h.f.lshr(b, amount(h, a, 16)))
define("v_ashrrev_i16", "u16 u16 u16", lambda h, a, b: h.f.ashr(b, amount(h, a, 16)))
for _op in ("and_", "or_", "xor"):
    define(
        f"v_{_op.rstrip('_')}_b16", "b16 b16 b16", lambda h, a, b, op=_op: getattr(h.f, op)(a, b)
    )

# The same operation under another name, older first.
ALIASES = {
    "v_mad_mix_f32": "v_fma_mix_f32",
    "v_mad_mixlo_f16": "v_fma_mixlo_f16",
    "v_mad_mixhi_f16": "v_fma_mixhi_f16",
    "v_add_u32": "v_add_nc_u32", "v_sub_u32": "v_sub_nc_u32", "v_subrev_u32": "v_subrev_nc_u32",
    "v_add_i32": "v_add_nc_i32", "v_sub_i32": "v_sub_nc_i32", "v_add_u16": "v_add_nc_u16",
    "v_sub_u16": "v_sub_nc_u16", "v_subrev_u16": "v_subrev_nc_u16", "v_add_i16": "v_add_nc_i16",
    "v_sub_i16": "v_sub_nc_i16", "v_addc_co_u32": "v_add_co_ci_u32",
    "v_subb_co_u32": "v_sub_co_ci_u32", "v_subbrev_co_u32": "v_subrev_co_ci_u32",
    "v_ffbh_u32": "v_clz_i32_u32", "v_ffbl_b32": "v_ctz_i32_b32", "v_ffbh_i32": "v_cls_i32",
    "v_cvt_rpi_i32_f32": "v_cvt_nearest_i32_f32", "v_cvt_flr_i32_f32": "v_cvt_floor_i32_f32",
    "v_cvt_pkrtz_f16_f32": "v_cvt_pk_rtz_f16_f32", "v_rcp_iflag_f32": "v_rcp_f32",
    "v_accvgpr_read_b32": "v_accvgpr_read", "v_accvgpr_write_b32": "v_accvgpr_write",
    "v_mad_co_u64_u32": "v_mad_u64_u32", "v_mad_co_i64_i32": "v_mad_i64_i32",
    "s_add_co_u32": "s_add_u32", "s_sub_co_u32": "s_sub_u32", "s_add_co_i32": "s_add_i32",
    "s_sub_co_i32": "s_sub_i32", "s_add_co_ci_u32": "s_addc_u32", "s_sub_co_ci_u32": "s_subb_u32",
    "s_addk_co_i32": "s_addk_i32",
}  # fmt: skip
# RDNA4 says which of IEEE's extrema is meant.
ALIASES |= {
    f"v_{pk}{name}_{t}": f"v_{pk}{name.replace('_num', '')}_{t}"
    for name in ("min_num", "max_num", "min3_num", "max3_num", "med3_num", "minmax_num",
                 "maxmin_num")
    for pk in ("", "pk_") for t in ("f16", "f32", "f64")
}  # fmt: skip
