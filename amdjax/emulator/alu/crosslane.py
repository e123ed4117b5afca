"""Instructions that move values between lanes, or between lanes and scalar registers."""

from __future__ import annotations

from collections.abc import Callable

from amdjax.codegen.llvm import I32, I64, Type, Value, const, vector, zero
from amdjax.emulator import state
from amdjax.emulator.builder import Lanes, entering
from amdjax.emulator.isa import ISAS

HANDLERS: dict[str, Callable[[Lanes], None]] = {}


handler = entering(HANDLERS)


def _scalar(h: Lanes, index: int) -> Value:
    return h.scalar_at(h.slot(state.SRC0 + index), h.variant.sources[index], 32)


def _lane_of(h: Lanes, register: Value, lane: Value) -> Value:
    """One lane's element of the register at the byte offset `register`."""
    place = h.f.add(register, h.f.shl(h.f.cast("zext", lane, "i64"), const(I64, 2)))
    return h.at(h.wave, place)


@handler("v_readlane_b32")
def read_lane(h: Lanes) -> None:
    lane = h.f.and_(_scalar(h, 1), const(I32, h.lanes - 1))
    x = h.f.load(I32, _lane_of(h, h.slot(state.SRC0), lane), 4)
    h.f.store(x, h.at(h.wave, h.slot(state.DST)), 4)
    h.finish()


@handler("v_readfirstlane_b32")
def read_first_lane(h: Lanes) -> None:
    if h.variant.sources[0] != "v":
        x = _scalar(h, 0)
    else:
        name = f"llvm.cttz.i{h.lanes}"
        mask = h.exec_bits()
        h.f.module.declare(name, mask.type, [mask.type, Type("i1")])
        first = h.f.op(f"call {mask.type} @{name}({mask}, i1 false)", mask.type)
        first = h.f.int_resize(first, "i32", False)
        first = h.f.select(h._is_zero(mask), const(I32, 0), first)
        x = h.f.load(I32, _lane_of(h, h.slot(state.SRC0), first), 4)
    h.f.store(x, h.at(h.wave, h.slot(state.DST)), 4)
    h.finish()


@handler("v_writelane_b32")
def write_lane(h: Lanes) -> None:
    lane = h.f.and_(_scalar(h, 1), const(I32, h.lanes - 1))
    h.f.store(_scalar(h, 0), _lane_of(h, h.slot(state.DST), lane), 4)
    h.finish()


@handler("v_permlane16_b32 v_permlanex16_b32")
def permute_row(h: Lanes) -> None:
    """Sixteen 4-bit selectors in two scalars, within a row or from its neighbor."""
    f = h.f
    x = h.raw(0, h.variant.sources[0], 32)
    selectors = f.or_(
        f.cast("zext", _scalar(h, 1), "i64"),
        f.shl(f.cast("zext", _scalar(h, 2), "i64"), const(I64, 32)),
    )
    shifts = vector("i64", [4 * (i % 16) for i in range(h.lanes)])
    picked = f.cast("trunc", f.lshr(f.splat(selectors, h.lanes), shifts), "i32")
    other = 16 if h.variant.name == "v_permlanex16_b32" else 0
    rows = vector("i32", [(i & ~15) ^ other for i in range(h.lanes)])
    _write_from_lanes(h, x, f.or_(f.and_(picked, const(picked.type, 15)), rows))


def _write_from_lanes(h: Lanes, x: Value, index: Value) -> None:
    """x[index]; lanes that are off give 0 or nothing, unless op_sel says to read them."""
    f, moved = h.f, gather(h, x, index)
    if not h.variant.opsel & 1:
        bits = f.splat(f.int_resize(h.exec_bits(), "i64", False), h.lanes)
        active = f.cast("trunc", f.lshr(bits, f.cast("zext", index, "i64")), "i1")
        if h.variant.opsel & 2:
            moved = f.select(active, moved, zero(moved.type))
        else:
            h.restrict(active)
    h.write(moved, "b32")
    h.finish()


@handler("v_permlane16_var_b32 v_permlanex16_var_b32")
def permute_row_by_lane(h: Lanes) -> None:
    """The selector of each lane is in a vector register."""
    f = h.f
    x, selector = (h.raw(i, h.variant.sources[i], 32) for i in range(2))
    other = 16 if "permlanex16" in h.variant.name else 0
    rows = vector("i32", [(i & ~15) ^ other for i in range(h.lanes)])
    _write_from_lanes(h, x, f.or_(f.and_(selector, const(selector.type, 15)), rows))


@handler("v_permlane64_b32")
def swap_halves(h: Lanes) -> None:
    """Nothing in a wave of 32."""
    if h.lanes == 64:
        x = h.raw(0, h.variant.sources[0], 32)
        h.write(h.f.shuffle(x, None, [i ^ 32 for i in range(64)]), "b32")
    h.finish()


@handler("v_swap_b32")
def swap(h: Lanes) -> None:
    source, target = h.slot(state.SRC0), h.slot(state.DST)
    a, b = (h.load_vgpr(h.at(h.wave, place), 32) for place in (source, target))
    mask = h.write_mask()
    h.f.masked_store(a, h.at(h.wave, target), mask, 64)
    h.f.masked_store(b, h.at(h.wave, source), mask, 64)
    h.finish()


@handler("v_swap_b16")
def swap_half_registers(h: Lanes) -> None:
    """Two halves change places; they may be those of one register."""
    opsel = h.variant.opsel
    source, target = (h.at(h.wave, h.slot(place)) for place in (state.SRC0, state.DST))
    a, b = _half(h, source, opsel & 1), _half(h, target, opsel >> 3)
    _set_half(h, target, opsel >> 3, a)
    _set_half(h, source, opsel & 1, b)
    h.finish()


def _half(h: Lanes, register: Value, high: int) -> Value:
    """The low or high half of a register, in the low bits."""
    f, word = h.f, h.load_vgpr(register, 32)
    return f.lshr(word, h.like(word, 16)) if high else f.and_(word, h.like(word, 0xFFFF))


def _set_half(h: Lanes, register: Value, high: int, value: Value) -> None:
    f, word = h.f, h.load_vgpr(register, 32)
    kept = f.and_(word, h.like(word, 0xFFFF if high else 0xFFFF0000))
    value = f.shl(value, h.like(value, 16)) if high else value
    f.masked_store(f.or_(kept, value), register, h.write_mask(), 64)


def gather(h: Lanes, x: Value, index: Value) -> Value:
    """x[index] for each lane."""
    copy = h.f.alloca(x.type)
    h.f.store(x, copy, 64)
    places = h.f.gep(copy, h.f.cast("zext", index, "i64"), I32)
    every = const(Type("i1", h.lanes), True)
    return h.f.gather(x.type, places, every, zero(x.type), 4)


def _permute_address(h: Lanes) -> Value:
    """The lane that each lane's byte address and the offset name.

    On RDNA2 and RDNA3 the halves of a wave of 64 are permuted each by itself.
    """
    f = h.f
    offset = f.splat(f.cast("trunc", h.slot(state.OFFSET), "i32"), h.lanes)
    address = f.add(h.raw(0, "v", 32), offset)
    lane = f.lshr(address, const(address.type, 2))
    if ISAS[h.variant.isa].generation not in (10, 11):
        return f.and_(lane, const(lane.type, h.lanes - 1))
    halves = vector("i32", [i & 32 for i in range(h.lanes)])
    return f.or_(f.and_(lane, const(lane.type, 31)), halves)


@handler("ds_bpermute_b32 ds_bpermute_fi_b32")
def backward_permute(h: Lanes) -> None:
    """Each lane reads another; lanes that are off give 0, or (fi) what they hold."""
    data = h.raw(1, "v", 32)
    if "_fi_" not in h.variant.name:
        data = h.f.select(h.exec(), data, zero(Type("i32", h.lanes)))
    h.write(gather(h, data, _permute_address(h)), "b32")
    h.finish()


@handler("ds_permute_b32")
def forward_permute(h: Lanes) -> None:
    """Each lane sends to another; the highest sender wins, lanes not sent to get 0."""
    f = h.f
    type = Type("i32", h.lanes)
    copy = f.alloca(type)
    f.store(zero(type), copy, 64)
    places = f.gep(copy, f.cast("zext", _permute_address(h), "i64"), I32)
    f.scatter(h.raw(1, "v", 32), places, h.exec(), 4)
    h.write(f.load(type, copy, 64), "b32")
    h.finish()


@handler("ds_swizzle_b32")
def swizzle(h: Lanes) -> None:
    """A fixed pattern."""
    control = h.variant.flag("offset")
    lanes = [lane & 32 | _swizzled(control, lane & 31) for lane in range(h.lanes)]
    f = h.f
    data = f.select(h.exec(), h.raw(0, "v", 32), zero(Type("i32", h.lanes)))
    h.write(f.shuffle(data, None, lanes), "b32")
    h.finish()


def _swizzled(control: int, lane: int) -> int:
    """The lane, of 32, that a lane reads."""
    mask = control & 31
    if control >= 0xE000:  # the order of a fast Fourier transform
        return int(f"{lane:05b}"[::-1], 2) >> mask.bit_count() | lane & mask
    if control >= 0xC000:  # rotation within groups
        distance = control >> 5 & 31
        moved = lane - distance if control & 0x400 else lane + distance
        return lane & mask | moved & ~mask & 31
    if control & 0x8000:  # permutation of quads
        return lane & ~3 | control >> 2 * (lane & 3) & 3
    return (lane & mask | control >> 5 & 31) ^ (control >> 10 & 31)
