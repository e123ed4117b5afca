"""Registers chosen at run time, and jumps to addresses in registers."""

from __future__ import annotations

from collections.abc import Callable

from amdjax.codegen.llvm import I32, I64, PTR, Type, Value, const
from amdjax.emulator import state
from amdjax.emulator.alu.crosslane import handler
from amdjax.emulator.alu.salu import control
from amdjax.emulator.builder import Lanes
from amdjax.emulator.isa import ISAS


def _relative(source: bool, target: bool, two: bool = False) -> Callable[[Lanes], None]:
    """A move between vector registers whose numbers M0 is added to."""

    def emit(h: Lanes) -> None:
        f, index = h.f, h.m0()
        low, high = index, index
        if two:  # a number for each
            low = f.and_(index, const(I32, 1023))
            high = f.and_(f.lshr(index, const(I32, 16)), const(I32, 1023))
        stride = h.vgpr_stride()
        place, how = h.slot(state.SRC0), h.variant.sources[0]
        if source and how == "v":
            place = h.register_beyond(place, low, stride)
        x = h.raw_at(place, how, 32)
        to = h.slot(state.DST)
        if target:
            to = h.register_beyond(to, high, stride)
        f.masked_store(x, h.at(h.wave, to), h.write_mask(), 64)
        h.finish()

    return emit


handler("v_movrels_b32")(_relative(True, False))
handler("v_movreld_b32")(_relative(False, True))
handler("v_movrelsd_b32")(_relative(True, True))
handler("v_movrelsd_2_b32")(_relative(True, True, two=True))


def _relative_scalar(source: bool) -> Callable[[Lanes], None]:
    def emit(h: Lanes) -> None:
        type = Type("i64" if h.variant.name.endswith("b64") else "i32")
        place, to = h.slot(state.SRC0), h.slot(state.DST)
        if source:
            place = h.register_beyond(place, h.m0(), 4)
        else:
            to = h.register_beyond(to, h.m0(), 4)
        x = h.scalar_at(place, h.variant.sources[0], type.bits)
        h.f.store(x, h.at(h.wave, to), 4)
        h.finish()

    return emit


control("s_movrels_b32 s_movrels_b64")(_relative_scalar(True))
control("s_movreld_b32 s_movreld_b64")(_relative_scalar(False))


# The index mode of GCN: M0 holds an index, and which operands of vector instructions it is added
# to. Which those are is known when decoding: see `Program`.


def _set_m0(h: Lanes, value: Value) -> None:
    h.set_sgpr(ISAS[h.variant.isa].m0, value)
    h.finish()


@control("s_set_gpr_idx_on")
def index_on(h: Lanes) -> None:
    f = h.f
    kept = f.and_(h.m0(), const(I32, 0x0F00))
    index = f.and_(h.source(0, "b32"), const(I32, 0xFF))
    _set_m0(h, f.or_(f.or_(kept, index), const(I32, h.variant.flag("mode") << 12)))


@control("s_set_gpr_idx_idx")
def index_change(h: Lanes) -> None:
    f = h.f
    kept = f.and_(h.m0(), const(I32, -256))
    _set_m0(h, f.or_(kept, f.and_(h.source(0, "b32"), const(I32, 0xFF))))


# Jumps


def _jump(h: Lanes, address: Value) -> None:
    """Go on at the record for an address in the kernel; elsewhere there is no code."""
    f = h.f
    offset = f.sub(address, h.header(state.CODE_START, I64))
    inside = f.icmp("ult", offset, h.header(state.CODE_SIZE, I64))
    good, bad = f.new_label("inside"), f.new_label("outside")
    f.cond_br(inside, good, bad)
    f.start_block(bad)
    h.stop(state.Status.JUMP)
    f.start_block(good)
    table = h.header(state.CODE, PTR)
    index = f.load(I32, f.gep(table, f.lshr(offset, const(I64, 2)), I32), 4)
    here = h.f.load(PTR, h.at(h.header(state.CONTEXT, PTR), state.RECORDS), 8)
    step = f.mul(f.cast("zext", index, "i64"), const(I64, state.RECORD))
    f.ret(f.gep(here, step, Type("i8")))


@control("s_setpc_b64")
def set_pc(h: Lanes) -> None:
    _jump(h, h.source(0, "b64"))


@control("s_swappc_b64")
def swap_pc(h: Lanes) -> None:
    target = h.source(0, "b64")
    h.f.store(h.slot(state.OFFSET), h.at(h.wave, h.slot(state.DST)), 4)
    _jump(h, target)


@control("s_call_b64")
def call(h: Lanes) -> None:
    """To a known place; the address of the next instruction is kept."""
    h.f.store(h.slot(state.OFFSET), h.at(h.wave, h.slot(state.DST)), 4)
    h.f.ret(h.f.load(PTR, h.at(h.record, state.SLOTS + 8 * state.TARGET), 8))


# What a wave can ask of the machine


@control("s_getreg_b32")
def get_register(h: Lanes) -> None:
    """A field of the mode register."""
    f, simm = h.f, h.variant.flag("register")
    shift, width = simm >> 6 & 31, (simm >> 11 & 31) + 1
    field = f.lshr(h.header(state.MODE, I32), const(I32, shift))
    f.store(f.and_(field, const(I32, (1 << width) - 1)), h.at(h.wave, h.slot(state.DST)), 4)
    h.finish()


@control("s_memtime s_memrealtime")
def time(h: Lanes) -> None:
    h.f.module.declare("llvm.readcyclecounter", I64, [])
    cycles = h.f.op("call i64 @llvm.readcyclecounter()", I64)
    h.f.store(cycles, h.at(h.wave, h.slot(state.DST)), 4)
    h.finish()
