"""Handlers of vector loads, stores and atomics.

Addresses of all lanes are computed first. Where every lane is active and the lanes' elements lie
side by side, which is what good kernels do, the access is one vector move with one check. All else
goes lane by lane over EXEC. Every access is checked before it is made: global memory against the
launch's allocations, LDS and private memory against their sizes, then against the shadows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

from amdjax.codegen.llvm import I1, I32, I64, PTR, Type, Value, const, vector
from amdjax.emulator import state
from amdjax.emulator.builder import Lanes
from amdjax.emulator.isa import ISAS
from amdjax.emulator.isa.access import Access
from amdjax.emulator.memory import shadow
from amdjax.emulator.memory.transfers import (
    atomic_lane,
    load_block,
    load_lane,
    store_block,
    store_lane,
)

FIND = "amdjax_emulator_find"
NOTE = "amdjax_emulator_note"


def emit(h: Lanes, access: Access, form: type[WaveAccess] | None = None) -> None:
    """Write the handler of a vector memory instruction, which accesses memory in a form."""
    f = h.f
    some = f.new_label("some")
    inactive = f.new_label("inactive")
    f.cond_br(h._is_zero(h.exec_bits()), inactive, some, (1, 1 << 10))
    f.start_block(inactive)
    h.finish()
    f.start_block(some)
    # Results may overwrite the addresses.
    accesses = [(form or WaveAccess)(h, access, which) for which in range(access.count)]
    for wave in accesses:
        wave.count()
    for wave in accesses:
        wave.run()
    h.finish()


def for_active_lanes(h: Lanes, body: Callable[[Value], None]) -> None:
    """Write `body(lane)` once, to be run for each lane in EXEC."""
    f = h.f
    start = h.exec_bits()
    name = f"llvm.cttz.{start.type}"
    f.module.declare(name, start.type, [start.type, I1])

    def turn(carried: list[Value]) -> list[Value]:
        (left,) = carried
        lane = f.op(f"call {left.type} @{name}({left}, i1 true)", left.type)
        body(f.int_resize(lane, "i64", False))
        return [f.and_(left, f.sub(left, const(left.type, 1)))]

    f.while_loop([start], lambda c: f.icmp("ne", c[0], const(c[0].type, 0)), turn)


# Addresses


def _zext(h: Lanes, x: Value) -> Value:
    return h.f.cast("zext", x, "i64")


def _addresses(h: Lanes, access: Access, which: int) -> Value:
    """The address of every lane, or its offset in LDS or private memory."""
    f = h.f
    saddr = bool(h.variant.flag("saddr"))
    offset = h.splat(h.slot(state.OFFSET if which == 0 else state.TARGET))
    if access.space == "lds":  # wraps, so that a base below zero may come with an offset
        return _zext(h, f.add(h.raw(0, "v", 32), f.cast("trunc", offset, "i32")))
    if access.space == "buffer":
        lanes = h.raw(0, "v", 32) if h.variant.flag("vaddr") else h.const("i32", 0)
        return f.add(_zext(h, lanes), offset)
    if access.space == "scratch":
        total = f.cast("trunc", offset, "i32")
        if h.variant.flag("vaddr"):
            total = f.add(total, h.raw(0, "v", 32))
        if saddr:
            total = f.add(total, h.splat(_scalar(h, state.SRC0 + 2, I32)))
        return _zext(h, total)
    if saddr:
        base = h.splat(_scalar(h, state.SRC0 + 2, I64))
        return f.add(f.add(base, _zext(h, h.raw(0, "v", 32))), offset)
    return f.add(h.raw(0, "v", 64), offset)


def _scalar(h: Lanes, slot: int, type: Type) -> Value:
    return h.f.load(type, h.at(h.wave, h.slot(slot)), 4)


def _to_pointer(h: Lanes, address: Value) -> Value:
    return h.f.op(f"inttoptr {address} to ptr", PTR)


# Faults


def fail_unless(
    h: Lanes, ok: Value, status: state.Status, lane: Value, address: Value,
    before: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Go on if `ok`, else do what comes `before` leaving with a fault."""
    f = h.f
    bad, good = f.new_label("fault"), f.new_label("fine")
    f.cond_br(ok, good, bad, (1 << 20, 1))
    f.start_block(bad)
    before()
    f.store(f.int_resize(lane, "i32", False), h.at(h.wave, state.FAULT_LANE))
    f.store(address, h.at(h.wave, state.FAULT_ADDRESS))
    h.stop(status)
    f.start_block(good)


def _is_set(h: Lanes, pointer: Value) -> Value:
    return h.f.icmp("ne", pointer, Value(PTR, "null"))


@dataclass
class _Bounds:
    """The allocation that was hit last."""

    low: Value
    high: Value
    shadow: Value

    @classmethod
    def load(cls, h: Lanes) -> _Bounds:
        context = h.header(state.CONTEXT, PTR)
        places = (state.LAST_LOW, state.LAST_HIGH, state.LAST_SHADOW)
        return cls(*(h.f.load(I64, h.at(context, place), 8) for place in places))


def check_global(h: Lanes, address: Value, size: int, lane: Value, aligned: int) -> None:
    """Leave with a fault unless the access is within an allocation, and aligned."""
    f, length = h.f, const(I64, size)
    context = h.header(state.CONTEXT, PTR)
    last = _Bounds.load(h)
    near = f.and_(
        f.icmp("uge", address, last.low), f.icmp("ule", f.add(address, length), last.high)
    )
    found = lambda: [f.call(FIND, I1, context, address, length)]
    inside = f.if_(near, lambda: [const(I1, True)], found)[0]
    fail_unless(h, inside, state.Status.OUT_OF_BOUNDS, lane, address)
    _check_alignment(h, address, lane, aligned)


def _alignment_mask(h: Lanes, aligned: int) -> Value:
    wanted = h.f.load(I64, h.at(h.header(state.CONTEXT, PTR), state.CHECK_ALIGNMENT), 8)
    return h.f.and_(wanted, const(I64, aligned - 1))


def _check_alignment(h: Lanes, address: Value, lane: Value, aligned: int) -> None:
    if aligned > 1:
        rest = h.f.and_(address, _alignment_mask(h, aligned))
        fail_unless(h, h._is_zero(rest), state.Status.MISALIGNED, lane, address)


# Accesses


class WaveAccess:
    """One access of all active lanes of a wave."""

    def __init__(self, h: Lanes, access: Access, which: int) -> None:
        self.h, self.access, self.which = h, access, which
        self.aligned = min(access.size, 4) if access.kind != "atomic" else access.size
        self.addresses = _addresses(h, access, which)
        self.buffer = h.f.alloca(self.addresses.type)
        h.f.store(self.addresses, self.buffer, 64)
        self.previous = h.f.alloca(I64)
        h.f.store(const(I64, -1), self.previous, 8)

    def count(self) -> None:
        """Enter the access in the statistics, where they are wanted."""
        h, f, access = self.h, self.h.f, self.access
        if access.space == "scratch":
            return
        context = h.header(state.CONTEXT, PTR)
        statistics = f.load(PTR, h.at(context, state.STATISTICS), 8)

        def note() -> list[Value]:
            kind = const(I32, 1 if access.space == "lds" else 0)
            addresses, lanes = self._counted()
            mask = f.int_resize(lanes, "i64", False)
            f.call(NOTE, Type("void"), context, h.record, addresses, mask,
                   const(I32, access.size), kind)  # fmt: skip
            return []

        f.if_(_is_set(h, statistics), note, weights=(1, 1 << 10))

    def _counted(self) -> tuple[Value, Value]:
        """Addresses of all lanes, and which of them move something."""
        return self.buffer, self.h.exec_bits()

    def run(self) -> None:
        """Check and make the access."""
        slow = lambda: for_active_lanes(self.h, self._one_lane)
        access = self.access
        packs = access.dwords in (1, 2, 4) and not access.to_lds
        if access.kind == "atomic" or access.space == "scratch" or not packs:
            slow()
            return
        f = self.h.f
        f.if_(self._side_by_side(), self._together, lambda: (slow(), [])[1])

    # All lanes at once

    @property
    def _bytes(self) -> int:
        return self.h.lanes * self.access.size

    def _side_by_side(self) -> Value:
        """Whether all lanes are active and access neighboring elements, in order."""
        h, f = self.h, self.h.f
        steps = vector("i64", [self.access.size * i for i in range(h.lanes)])
        self.first = f.extract(self.addresses, 0)
        expected = f.add(f.splat(self.first, h.lanes), steps)
        same = h.bits_of(f.icmp("eq", self.addresses, expected))
        bits = f.and_(same, h.exec_bits())
        return f.and_(f.icmp("eq", bits, const(bits.type, -1)), self._inside())

    def _inside(self) -> Value:
        """Whether the whole block is within bounds and aligned."""
        h, f, first = self.h, self.h.f, self.first
        end = f.add(first, const(I64, self._bytes))
        if self.access.space == "lds":
            inside = f.icmp("ule", end, _zext(h, h.header(state.LDS_SIZE, I32)))
        else:
            self.last = _Bounds.load(h)
            inside = f.and_(f.icmp("uge", first, self.last.low), f.icmp("ule", end, self.last.high))
        if self.aligned > 1:
            rest = f.and_(first, _alignment_mask(h, self.aligned))
            inside = f.and_(inside, h._is_zero(rest))
        return inside

    def _together(self) -> list[Value]:
        """The block at once, or lane by lane if its shadow has something to say."""
        h, f = self.h, self.h.f
        self._shadowed()
        slow, fast, after = (f.new_label(x) for x in ("lanes", "block", "moved"))
        f.cond_br(self.clean, fast, slow, (1 << 20, 1))
        f.start_block(slow)
        for_active_lanes(h, self._one_lane)
        f.br(after)
        f.start_block(fast)
        pointer = (
            h.at(h.header(state.LDS, PTR), self.first)
            if self.access.space == "lds"
            else _to_pointer(h, self.first)
        )
        (load_block if self.access.kind == "load" else store_block)(
            h, self.access, pointer, self.which
        )
        f.br(after)
        f.start_block(after)
        return []

    def _shadowed(self) -> None:
        """Set `clean`: the shadow of the block has nothing against the access, and was updated."""
        f = self.h.f
        if self.access.space == "lds":
            written = self._lds_written(self.first, self._bytes)
            self.clean = f.if_(written, lambda: [self._lds_races(self.first)],
                               lambda: [const(I1, False)])[0]  # fmt: skip
        else:
            self.clean = self._global_clean(self.first, self.last)

    def _lds_races(self, first: Value) -> Value:
        h, f = self.h, self.h.f

        def check() -> list[Value]:
            races = shadow.Races(h, first, self._bytes, self.access.kind)

            def mark() -> list[Value]:
                races.mark()
                return []

            f.if_(races.ok, mark)
            return [races.ok]

        wanted = _is_set(h, h.header(state.LDS_RACES, PTR))
        return f.if_(wanted, check, lambda: [const(I1, True)])[0]

    def _lds_written(self, offset: Value, size: int) -> Value:
        """Whether what is read was written; what is written is entered."""
        h, f = self.h, self.h.f
        base = h.header(state.LDS_WRITTEN, PTR)
        return f.if_(_is_set(h, base), lambda: [self._written(h.at(base, offset), size)],
                     lambda: [const(I1, True)])[0]  # fmt: skip

    def _global_shadow(self, address: Value, last: _Bounds, size: int) -> shadow.GlobalShadow:
        place = _to_pointer(self.h, self.h.f.add(address, last.shadow))
        # LLVM rounds loads up to whole dwords where that does no harm.
        return shadow.GlobalShadow(self.h, place, size, self.access.kind, self.access.size % 4 == 0)

    def _global_clean(self, address: Value, last: _Bounds) -> Value:
        f = self.h.f

        def check() -> list[Value]:
            found = self._global_shadow(address, last, self._bytes)
            ok = f.and_(found.written, found.exclusive)

            def mark() -> list[Value]:
                found.mark()
                return []

            f.if_(ok, mark)
            return [ok]

        has_shadow = f.icmp("ne", last.shadow, const(I64, 0))
        return f.if_(has_shadow, check, lambda: [const(I1, True)])[0]

    def _written(self, place: Value, size: int) -> Value:
        h, ok = self.h, const(I1, True)
        if self.access.kind != "store":
            # LLVM rounds loads up to whole dwords where that does no harm.
            whole = shadow.is_written if self.access.size % 4 else shadow.any_written
            ok = whole(h, place, size)
        if self.access.kind != "load":
            shadow.mark_written(h, place, size)
        return ok

    # One lane

    def _one_lane(self, lane: Value) -> None:
        h, access = self.h, self.access
        address = h.f.load(I64, h.f.gep(self.buffer, lane, I64), 8)
        check = {
            "global": self._global, "flat": self._flat, "lds": self._lds, "scratch": self._scratch,
        }[access.space]  # fmt: skip
        repeats = access.kind == "load" and access.space in ("global", "lds")
        pointer = self._unless_again(check, address, lane) if repeats else check(address, lane)
        self._move(pointer, lane)

    def _unless_again(
        self, check: Callable[[Value, Value], Value], address: Value, lane: Value
    ) -> Value:
        """The pointer of an address, which is known to be good if the lane before read there."""
        h, f = self.h, self.h.f
        same = f.icmp("eq", address, f.load(I64, self.previous, 8))
        f.store(address, self.previous, 8)
        known = lambda: [
            h.at(h.header(state.LDS, PTR), address)
            if self.access.space == "lds"
            else _to_pointer(h, address)
        ]
        return f.if_(same, known, lambda: [check(address, lane)])[0]

    def _move(self, pointer: Value, lane: Value) -> None:
        h, access = self.h, self.access
        if access.to_lds:
            self._move_to_lds(pointer, lane)
        elif access.kind == "load":
            load_lane(h, access, pointer, lane, self.which * access.dwords)
        elif access.kind == "store":
            store_lane(h, access, pointer, lane, state.SRC0 + 1 + self.which)
        else:
            atomic_lane(h, access, pointer, lane)

    def _move_to_lds(self, pointer: Value, lane: Value) -> None:
        """To M0's low half, the offset and the lane's place behind them, in whole dwords."""
        h, f, access = self.h, self.h.f, self.access
        size = max(access.size, 4)
        base = f.and_(h.sgpr(ISAS[h.variant.isa].m0, I32), const(I32, 0xFFFF))
        offset = f.add(f.cast("zext", base, "i64"), h.slot(state.OFFSET))
        offset = f.add(offset, f.mul(lane, const(I64, size)))
        store = copy.copy(self)
        store.access = replace(access, kind="store", space="lds", size=size)
        target = store._lds(offset, lane)
        data = f.load(Type(f"i{8 * access.size}"), pointer, 1)
        f.store(f.int_resize(data, f"i{8 * size}", access.signed), target, 1)

    def _global(self, address: Value, lane: Value) -> Value:
        h, size = self.h, self.access.size
        check_global(h, address, size, lane, self.aligned)
        last = _Bounds.load(h)

        def check() -> list[Value]:
            found = self._global_shadow(address, last, size)
            fail_unless(h, found.written, state.Status.UNINITIALIZED, lane, address)
            fail_unless(h, found.exclusive, state.Status.RACE, lane, address, found.blame)
            found.mark()
            return []

        h.f.if_(h.f.icmp("ne", last.shadow, const(I64, 0)), check)
        return _to_pointer(h, address)

    def _flat(self, address: Value, lane: Value) -> Value:
        """A flat address names LDS or private memory by its high half."""
        f = self.h.f
        high = f.lshr(address, const(I64, 32))
        offset = f.and_(address, const(I64, 0xFFFFFFFF))
        private = f.icmp("eq", high, const(I64, state.PRIVATE_APERTURE))
        shared = f.icmp("eq", high, const(I64, state.SHARED_APERTURE))
        rest = lambda: f.if_(
            private, lambda: [self._scratch(offset, lane)], lambda: [self._global(address, lane)]
        )
        return f.if_(shared, lambda: [self._lds(offset, lane)], rest)[0]

    def _lds(self, offset: Value, lane: Value) -> Value:
        h, f, size = self.h, self.h.f, self.access.size
        limit = _zext(h, h.header(state.LDS_SIZE, I32))
        inside = f.icmp("ule", f.add(offset, const(I64, size)), limit)
        fail_unless(h, inside, state.Status.LDS_OUT_OF_BOUNDS, lane, offset)
        _check_alignment(h, offset, lane, self.aligned)
        written = self._lds_written(offset, size)
        fail_unless(h, written, state.Status.LDS_UNINITIALIZED, lane, offset)

        def check() -> list[Value]:
            races = shadow.Races(h, offset, size, self.access.kind)
            fail_unless(h, races.ok, state.Status.LDS_RACE, lane, offset, lambda: races.blame(h))
            races.mark()
            return []

        f.if_(_is_set(h, h.header(state.LDS_RACES, PTR)), check)
        return h.at(h.header(state.LDS, PTR), offset)

    def _scratch(self, offset: Value, lane: Value) -> Value:
        h, f = self.h, self.h.f
        limit = _zext(h, h.header(state.SCRATCH_SIZE, I32))
        inside = f.icmp("ule", f.add(offset, const(I64, self.access.size)), limit)
        fail_unless(h, inside, state.Status.SCRATCH_OUT_OF_BOUNDS, lane, offset)
        return h.at(h.header(state.SCRATCH, PTR), f.add(f.mul(lane, limit), offset))
