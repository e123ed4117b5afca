"""What scalar instructions compute: arithmetic, comparisons, masks, and control flow.

An expression returns its result, or result and SCC. `nonzero` as `scc` sets SCC to whether the
result is not zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.codegen.llvm import I1, I32, I64, PTR, Type, Value, const
from amdjax.emulator import state
from amdjax.emulator.alu import valu
from amdjax.emulator.builder import Lanes, Operation, defining, entering

OPERATIONS: dict[str, Operation] = {}
define = defining(OPERATIONS)
_fn: Callable[..., Any]  # of the table below


def nonzero(h: Lanes, x: Value) -> Value:
    return h.f.icmp("ne", x, h.like(x, 0))


def amount(h: Lanes, x: Value, value: Value) -> Value:
    """A shift amount in the shifted value's type."""
    bits = value.type.bits
    return h.f.int_resize(h.f.and_(x, h.like(x, bits - 1)), f"i{bits}", False)


def shift(op: str) -> Callable[..., Value]:
    return lambda h, a, b: getattr(h.f, op)(a, amount(h, b, a))


def signed_overflow(op: str) -> Callable[..., tuple[Value, Value]]:
    def compute(h: Lanes, a: Value, b: Value) -> tuple[Value, Value]:
        pair = h.f.op(
            f"call {{{a.type}, i1}} @llvm.s{op}.with.overflow.i32({a}, {b})", Type("{i32, i1}")
        )
        h.f.module.declarations[f"s{op}o"] = (
            f"declare {{i32, i1}} @llvm.s{op}.with.overflow.i32(i32, i32)"
        )
        value = h.f.op(f"extractvalue {{i32, i1}} {pair.ref}, 0", I32)
        return value, h.f.op(f"extractvalue {{i32, i1}} {pair.ref}, 1", I1)

    return compute


def chosen(predicate: str) -> Callable[..., tuple[Value, Value]]:
    """Minimum or maximum; SCC is the comparison that chose (of equal ones, true for maxima)."""

    def compute(h: Lanes, a: Value, b: Value) -> tuple[Value, Value]:
        first = h.f.icmp(predicate, a, b)
        return h.f.select(first, a, b), first

    return compute


def extract(signed: bool) -> Callable[..., Value]:
    """Offset in the low bits of the second operand, width from bit 16."""

    def compute(h: Lanes, x: Value, field: Value) -> Value:
        f, bits = h.f, x.type.bits
        offset = f.and_(field, h.like(field, bits - 1))
        width = f.and_(f.lshr(field, h.like(field, 16)), h.like(field, 127))
        # Past the register's end there is nothing: the width is cut there.
        room = f.sub(h.like(field, bits), offset)
        width = valu.umin(h, width, room)
        elem = x.type.elem
        none = f.icmp("eq", width, h.like(width, 0))
        up = f.int_resize(f.sub(room, width), elem, False)
        down = f.int_resize(f.sub(h.like(field, bits), width), elem, False)
        up, down = f.select(none, h.like(x, 0), up), f.select(none, h.like(x, 0), down)
        top = f.shl(x, up)
        value = f.ashr(top, down) if signed else f.lshr(top, down)
        return f.select(none, h.like(x, 0), value)

    return compute


def ctpop(h: Lanes, x: Value) -> Value:
    return h.f.int_resize(h.f.unary_intrinsic("ctpop", x), "i32", False)


def pack(a_high: bool, b_high: bool) -> Callable[..., Value]:
    def compute(h: Lanes, a: Value, b: Value) -> Value:
        f = h.f
        low = f.lshr(a, h.like(a, 16)) if a_high else f.and_(a, h.like(a, 0xFFFF))
        high = f.and_(b, h.like(b, 0xFFFF0000)) if b_high else f.shl(b, h.like(b, 16))
        return f.or_(low, high)

    return compute


def absolute(h: Lanes, x: Value) -> Value:
    return h.f.select(h.f.icmp("slt", x, h.like(x, 0)), h.f.neg(x), x)


def shift_add(by: int) -> Callable[..., tuple[Value, Value]]:
    def compute(h: Lanes, a: Value, b: Value) -> tuple[Value, Value]:
        wide = h.f.shl(h.f.cast("zext", a, "i64"), const(I64, by))
        total = h.f.add(wide, h.f.cast("zext", b, "i64"))
        low, high = h.split(total)
        return low, nonzero(h, high)

    return compute


_LOGIC: dict[str, Callable[..., Value]] = {
    "and": lambda h, a, b: h.f.and_(a, b),
    "or": lambda h, a, b: h.f.or_(a, b),
    "xor": lambda h, a, b: h.f.xor(a, b),
    "nand": lambda h, a, b: h.f.not_(h.f.and_(a, b)),
    "nor": lambda h, a, b: h.f.not_(h.f.or_(a, b)),
    "xnor": lambda h, a, b: h.f.not_(h.f.xor(a, b)),
    "andn2 and_not1": lambda h, a, b: h.f.and_(a, h.f.not_(b)),
    "orn2 or_not1": lambda h, a, b: h.f.or_(a, h.f.not_(b)),
}
# With the first operand inverted; these exist as saveexec and wrexec forms only.
_LOGIC_EXEC = {
    "andn1 and_not0": lambda h, a, b: h.f.and_(h.f.not_(a), b),
    "orn1 or_not0": lambda h, a, b: h.f.or_(h.f.not_(a), b),
}


def save_exec(logic: Callable[..., Value], keep: bool) -> Callable[..., None]:
    """EXEC becomes logic(source, EXEC); the destination gets the old one (or the new)."""

    def emit(h: Lanes) -> None:
        bits = 64 if h.variant.name.endswith("b64") else 32
        mask = h.source(0, f"b{bits}")
        old = h.sgpr(state.EXEC, Type(f"i{bits}"))
        new = logic(h, mask, old)
        h.set_sgpr(state.EXEC, new)
        h.write(old if keep else new, f"b{bits}")
        h.set_scc(nonzero(h, new))
        h.finish()

    return emit


CONTROL: dict[str, Callable[[Lanes], None]] = {}

for _b in (32, 64):
    _t = f"b{_b}"
    for _names, _fn in _LOGIC.items():
        for _n in _names.split():
            define(f"s_{_n}_{_t}", f"{_t} {_t} {_t}", _fn, scc=nonzero)
    for _names, _fn in (_LOGIC | _LOGIC_EXEC).items():
        for _n in _names.split():
            CONTROL[f"s_{_n}_saveexec_{_t}"] = save_exec(_fn, True)
            CONTROL[f"s_{_n}_wrexec_{_t}"] = save_exec(_fn, False)
    define(f"s_mov_{_t}", f"{_t} {_t}", lambda h, a: a)
    define(f"s_not_{_t}", f"{_t} {_t}", lambda h, a: h.f.not_(a), scc=nonzero)
    define(f"s_brev_{_t}", f"{_t} {_t}", lambda h, a: h.f.unary_intrinsic("bitreverse", a))
    define(f"s_bcnt1_i32_{_t}", f"i32 {_t}", ctpop, scc=nonzero)
    define(f"s_bcnt0_i32_{_t}", f"i32 {_t}", lambda h, a: ctpop(h, h.f.not_(a)), scc=nonzero)
    define(f"s_ff1_i32_{_t} s_ctz_i32_{_t}", f"i32 {_t}", valu.count_bits("cttz"))
    define(f"s_flbit_i32_{_t} s_clz_i32_u{_b}", f"i32 {_t}", valu.count_bits("ctlz"))
    define(f"s_lshl_{_t}", f"{_t} {_t} u32", shift("shl"), scc=nonzero)
    define(f"s_lshr_{_t}", f"{_t} {_t} u32", shift("lshr"), scc=nonzero)
    define(f"s_ashr_i{_b}", f"{_t} {_t} u32", shift("ashr"), scc=nonzero)
    define(
        f"s_bfm_{_t}",
        f"{_t} u32 u32",
        lambda h, w, o, bits=_b: valu.bfm(
            h, h.f.int_resize(w, f"i{bits}", False), h.f.int_resize(o, f"i{bits}", False)
        ),
    )
    define(f"s_bfe_u{_b}", f"{_t} {_t} u32", extract(False), scc=nonzero)
    define(f"s_bfe_i{_b}", f"{_t} {_t} u32", extract(True), scc=nonzero)
    define(f"s_cselect_{_t}", f"{_t} {_t} {_t}", lambda h, a, b: h.f.select(h.scc(), a, b))
    define(
        f"s_bitcmp0_{_t}",
        f"- {_t} u32",
        lambda h, a, b: (a, h.f.not_(h.f.cast("trunc", shift("lshr")(h, a, b), "i1"))),
    )
    define(
        f"s_bitcmp1_{_t}",
        f"- {_t} u32",
        lambda h, a, b: (a, h.f.cast("trunc", shift("lshr")(h, a, b), "i1")),
    )
    for _c, _p in {"eq": "eq", "lg": "ne"}.items():
        define(f"s_cmp_{_c}_u{_b}", f"- u{_b} u{_b}", lambda h, a, b, p=_p: (a, h.f.icmp(p, a, b)))

for _names, _types, _fn, _scc in (
    ("s_flbit_i32 s_cls_i32", "i32 i32", valu.count_sign, None),
    ("s_add_u32", "u32 u32 u32", valu.add_carry, None),
    ("s_sub_u32", "u32 u32 u32", valu.sub_borrow, None),
    ("s_addc_u32", "u32 u32 u32", lambda h, a, b: valu.add_carry(h, a, b, h.scc()), None),
    ("s_subb_u32", "u32 u32 u32", lambda h, a, b: valu.sub_borrow(h, a, b, h.scc()), None),
    ("s_add_i32", "i32 i32 i32", signed_overflow("add"), None),
    ("s_sub_i32", "i32 i32 i32", signed_overflow("sub"), None),
    ("s_min_i32", "i32 i32 i32", chosen("slt"), None),
    ("s_max_i32", "i32 i32 i32", chosen("sge"), None),
    ("s_min_u32", "u32 u32 u32", chosen("ult"), None),
    ("s_max_u32", "u32 u32 u32", chosen("uge"), None),
    ("s_mul_i32", "i32 i32 i32", lambda h, a, b: h.f.mul(a, b), None),
    ("s_mul_hi_u32", "u32 u32 u32", valu.mul_high(False), None),
    ("s_mul_hi_i32", "i32 i32 i32", valu.mul_high(True), None),
    ("s_abs_i32", "i32 i32", absolute, nonzero),
    ("s_absdiff_i32", "i32 i32 i32", lambda h, a, b: absolute(h, h.f.sub(a, b)), nonzero),
    ("s_sext_i32_i8", "i32 i32",
     lambda h, a: h.f.cast("sext", h.f.cast("trunc", a, "i8"), "i32"), None),
    ("s_sext_i32_i16", "i32 i32",
     lambda h, a: h.f.cast("sext", h.f.cast("trunc", a, "i16"), "i32"), None),
    ("s_pack_ll_b32_b16", "b32 b32 b32", pack(False, False), None),
    ("s_pack_lh_b32_b16", "b32 b32 b32", pack(False, True), None),
    ("s_pack_hh_b32_b16", "b32 b32 b32", pack(True, True), None),
    ("s_pack_hl_b32_b16", "b32 b32 b32", pack(True, False), None),
):  # fmt: skip
    define(_names, _types, _fn, scc=_scc)
for _i in range(1, 5):
    define(f"s_lshl{_i}_add_u32", "u32 u32 u32", shift_add(_i))
for _t in ("i32", "u32"):
    for _c, _p in {"gt": "gt", "ge": "ge", "lt": "lt", "le": "le"}.items():
        _p = ("s" if _t == "i32" else "u") + _p
        define(f"s_cmp_{_c}_{_t}", f"- {_t} {_t}", lambda h, a, b, p=_p: (a, h.f.icmp(p, a, b)))
for _c, _p in {"eq": "eq", "lg": "ne"}.items():
    define(f"s_cmp_{_c}_i32", "- i32 i32", lambda h, a, b, p=_p: (a, h.f.icmp(p, a, b)))


# Control flow. Each entry writes the whole handler.


control = entering(CONTROL)


@control(
    "s_nop s_waitcnt s_waitcnt_vscnt s_waitcnt_vmcnt s_waitcnt_expcnt s_waitcnt_lgkmcnt s_clause "
    "s_delay_alu s_waitcnt_depctr s_wait_idle s_set_inst_prefetch_distance s_setprio "
    "s_sendmsg s_icache_inv s_code_end s_inst_prefetch s_dcache_wb s_dcache_inv s_gl1_inv "
    "buffer_inv buffer_wbl2 buffer_gl0_inv buffer_gl1_inv s_dcache_wb_vol v_nop s_wait_event "
    "s_wait_alu s_wait_loadcnt s_wait_storecnt s_wait_dscnt s_wait_kmcnt s_wait_expcnt "
    "s_wait_samplecnt s_wait_bvhcnt s_wait_loadcnt_dscnt s_wait_storecnt_dscnt s_barrier_signal "
    "s_barrier_leave global_inv global_wb global_wbinv s_sleep_var s_wakeup buffer_wbinvl1 "
    "buffer_wbinvl1_vol buffer_invl2 "
    "s_incperflevel s_decperflevel s_version s_sethalt s_ttracedata v_clrexcp s_set_gpr_idx_off"
)
def nothing(h: Lanes) -> None:
    """Instructions run in order and memory is coherent; `waits` judges the waits."""
    h.finish()


@control("s_endpgm")
def end_program(h: Lanes) -> None:
    h.stop(state.Status.ENDED)


@control("s_trap s_endpgm_saved")
def trap(h: Lanes) -> None:
    h.stop(state.Status.TRAP)


@control("s_sleep")
def sleep(h: Lanes) -> None:
    """Where workgroups are resident together, others have their turn meanwhile."""
    if h.variant.flag("yields"):
        h.stop(state.Status.ASLEEP, h.next_record())
    else:
        h.finish()


@control("s_barrier s_barrier_wait")
def barrier(h: Lanes) -> None:
    unsettled = const(I32, h.variant.flag("unsettled"))
    h.f.store(unsettled, h.at(h.wave, state.UNSETTLED))
    h.stop(state.Status.BARRIER, h.next_record())


# They set the mode to what is known when decoding: see `Program`.
MODE_WRITERS = ("s_setreg_b32", "s_setreg_imm32_b32", "s_round_mode", "s_denorm_mode")


@control(" ".join(("s_setreg", *MODE_WRITERS)))
def set_mode(h: Lanes) -> None:
    h.f.store(const(I32, h.variant.flag("mode")), h.at(h.wave, state.MODE))
    h.finish()


@control("unknown")
def unknown(h: Lanes) -> None:
    h.stop(state.Status.UNKNOWN)


def target(h: Lanes) -> Value:
    return h.f.load(PTR, h.at(h.record, state.SLOTS + 8 * state.TARGET), 8)


@control("s_branch")
def branch(h: Lanes) -> None:
    h.f.ret(target(h))


def conditional(condition: Callable[[Lanes], Value]) -> Callable[[Lanes], None]:
    def emit(h: Lanes) -> None:
        h.f.ret(h.f.select(condition(h), target(h), h.next_record()))

    return emit


CONTROL["s_cbranch_scc1"] = conditional(lambda h: h.scc())
CONTROL["s_cbranch_scc0"] = conditional(lambda h: h.f.not_(h.scc()))
CONTROL["s_cbranch_execz"] = conditional(lambda h: h._is_zero(h.exec_bits()))
CONTROL["s_cbranch_execnz"] = conditional(lambda h: nonzero(h, h.exec_bits()))
CONTROL["s_cbranch_vccz"] = conditional(lambda h: h._is_zero(h.sgpr(state.VCC, h.mask_type)))
CONTROL["s_cbranch_vccnz"] = conditional(lambda h: nonzero(h, h.sgpr(state.VCC, h.mask_type)))


def bitset(value: bool) -> Callable[[Lanes], None]:
    def emit(h: Lanes) -> None:
        bits = 64 if h.variant.name.endswith("b64") else 32
        x = h.source(0, "u32")
        place = h.at(h.wave, h.slot(state.DST))
        old = h.f.load(Type(f"i{bits}"), place, 4)
        bit = h.f.shl(h.like(old, 1), amount(h, x, old))
        h.f.store(h.f.or_(old, bit) if value else h.f.and_(old, h.f.not_(bit)), place, 4)
        h.finish()

    return emit


for _b in (32, 64):
    CONTROL[f"s_bitset0_b{_b}"], CONTROL[f"s_bitset1_b{_b}"] = bitset(False), bitset(True)


@control("s_getpc_b64")
def get_pc(h: Lanes) -> None:
    """The address of the next instruction in the mapped image, known when decoding."""
    h.f.store(h.slot(state.OFFSET), h.at(h.wave, h.slot(state.DST)), 4)
    h.finish()


@control("s_cmov_b32 s_cmov_b64 s_cmovk_i32")
def conditional_move(h: Lanes) -> None:
    bits = 64 if h.variant.name.endswith("b64") else 32
    x = h.source(0, f"b{bits}")
    place = h.at(h.wave, h.slot(state.DST))
    h.f.store(h.f.select(h.scc(), x, h.f.load(x.type, place, 4)), place, 4)
    h.finish()


# SOPK: the constant arrives as the second operand, the register as the first.
SOPK = {
    "s_movk_i32": "s_mov_b32", "s_addk_i32": "s_add_i32", "s_mulk_i32": "s_mul_i32",
    **{f"s_cmpk_{c}_{t}": f"s_cmp_{c}_{t}" for c in ("eq", "lg", "gt", "ge", "lt", "le")
       for t in ("i32", "u32")},
}  # fmt: skip
