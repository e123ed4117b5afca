"""What a vector memory access moves once its address is known to be good."""

from __future__ import annotations

from amdjax.codegen.llvm import I32, I64, Type, Value, const
from amdjax.emulator import state
from amdjax.emulator.builder import Lanes
from amdjax.emulator.isa.access import Access

# Registers


def element(h: Lanes, slot: int, lane: Value, dword: int = 0) -> Value:
    """Where a lane's element of a register operand (or a following register) lies."""
    f = h.f
    place = f.add(h.slot(slot), f.shl(lane, const(I64, 2)))
    return h.at(h.at(h.wave, place), dword * h.vgpr_stride())


def read32(h: Lanes, slot: int, lane: Value, dword: int = 0) -> Value:
    return h.f.load(I32, element(h, slot, lane, dword), 4)


def read64(h: Lanes, slot: int, lane: Value) -> Value:
    return h.join(read32(h, slot, lane), read32(h, slot, lane, 1))


def register(h: Lanes, slot: int, dword: int = 0) -> Value:
    """Where a register operand lies, all lanes of it."""
    return h.at(h.at(h.wave, h.slot(slot)), dword * h.vgpr_stride())


# Moves of whole registers


def _every(h: Lanes, dwords: int, dword: int) -> list[int]:
    return [dwords * i + dword for i in range(h.lanes)]


def load_block(h: Lanes, access: Access, pointer: Value, which: int) -> None:
    f, first = h.f, which * access.dwords
    if access.size >= 4:
        data = f.load(Type("i32", h.lanes * access.dwords), pointer, 1)
        for i in range(access.dwords):
            part = f.shuffle(data, None, _every(h, access.dwords, i)) if access.dwords > 1 else data
            f.store(part, register(h, state.DST, first + i), 64)
        return
    narrow = f.load(Type(f"i{8 * access.size}", h.lanes), pointer, 1)
    place = register(h, state.DST, first)
    if not access.half:
        f.store(f.int_resize(narrow, "i32", access.signed), place, 64)
        return
    value = f.int_resize(f.int_resize(narrow, "i16", access.signed), "i32", False)
    old = f.load(value.type, place, 64)
    high = access.half == "hi"
    value = f.shl(value, const(value.type, 16)) if high else value
    kept = f.and_(old, const(old.type, 0xFFFF if high else 0xFFFF0000))
    f.store(f.or_(value, kept), place, 64)


def store_block(h: Lanes, access: Access, pointer: Value, which: int) -> None:
    f, slot = h.f, state.SRC0 + 1 + which
    load = lambda dword: f.load(Type("i32", h.lanes), register(h, slot, dword), 64)
    if access.size < 4:
        value = load(0)
        if access.half == "hi":
            value = f.lshr(value, const(value.type, 16))
        f.store(f.int_resize(value, f"i{8 * access.size}", False), pointer, 1)
        return
    parts = [load(i) for i in range(access.dwords)]
    while len(parts) > 1:  # interleave: first with the one half-way behind it
        half = len(parts) // 2
        parts = [_interleaved(h, parts[i], parts[i + half]) for i in range(half)]
    f.store(parts[0], pointer, 1)


def _interleaved(h: Lanes, a: Value, b: Value) -> Value:
    n = a.type.lanes
    return h.f.shuffle(a, b, [i // 2 + n * (i % 2) for i in range(2 * n)])


# Moves of one lane


def load_lane(h: Lanes, access: Access, pointer: Value, lane: Value, first: int) -> None:
    f = h.f
    if access.size >= 4:
        words = [f.load(I32, h.at(pointer, 4 * i), 1) for i in range(access.dwords)]
        for i, word in enumerate(words):
            f.store(word, element(h, state.DST, lane, first + i), 4)
        return
    narrow = f.load(Type(f"i{8 * access.size}"), pointer, 1)
    place = element(h, state.DST, lane, first)
    if not access.half:
        f.store(f.int_resize(narrow, "i32", access.signed), place, 4)
        return
    value = f.int_resize(narrow, "i16", access.signed)
    f.store(value, h.at(place, 2 if access.half == "hi" else 0), 2)


def store_lane(h: Lanes, access: Access, pointer: Value, lane: Value, slot: int) -> None:
    f = h.f
    if access.size >= 4:
        words = [read32(h, slot, lane, i) for i in range(access.dwords)]
        for i, word in enumerate(words):
            f.store(word, h.at(pointer, 4 * i), 1)
        return
    value = read32(h, slot, lane)
    if access.half == "hi":
        value = f.lshr(value, const(I32, 16))
    f.store(f.int_resize(value, f"i{8 * access.size}", False), pointer, 1)


def atomic_lane(h: Lanes, access: Access, pointer: Value, lane: Value) -> None:
    f = h.f
    wide = access.size == 8
    bits = Type("i64" if wide else "i32")
    value = (read64 if wide else read32)(h, state.SRC0 + 1, lane)
    if access.operation == "cmpxchg":
        expected, new = _compare_operands(h, access, lane, value)
        if access.elem in ("float", "double"):
            expected = _same_number(h, access, pointer, expected)
        pair = f.op(f"cmpxchg ptr {pointer.ref}, {expected}, {new} seq_cst seq_cst", bits)
        old = f.op(f"extractvalue {{{bits}, i1}} {pair.ref}, 0", bits)
    else:
        typed = f.op(f"bitcast {value} to {access.elem}", Type(access.elem))
        old = f.op(
            f"atomicrmw {access.operation} ptr {pointer.ref}, {typed} seq_cst, align {access.size}",
            Type(access.elem),
        )
        old = f.op(f"bitcast {old} to {bits}", bits)
    if h.variant.flag("returns"):
        low, high = h.split(old) if wide else (old, old)
        f.store(low, element(h, state.DST, lane), 4)
        if wide:
            f.store(high, element(h, state.DST, lane, 1), 4)


def _same_number(h: Lanes, access: Access, pointer: Value, expected: Value) -> Value:
    """The bits in memory (in LDS, where a wave is alone) if they are equal as floats, or others."""
    f = h.f
    held = f.load(expected.type, pointer, access.size)
    equal = f.fcmp("oeq", *(f.bitcast(x, Type(access.elem)) for x in (held, expected)))
    return f.select(equal, held, f.not_(held))


def _compare_operands(h: Lanes, access: Access, lane: Value, first: Value) -> tuple[Value, Value]:
    """Expected and new value: global forms have new before expected in one register group.

    LDS has two operands; the older set has expected first, the newer new first.
    """
    dwords = access.dwords
    if access.space == "lds":
        second = (read64 if dwords == 2 else read32)(h, state.SRC0 + 2, lane)
        return (first, second) if "cmpst_" in h.variant.name else (second, first)
    if dwords == 1:
        return read32(h, state.SRC0 + 1, lane, 1), first
    high = h.join(*(read32(h, state.SRC0 + 1, lane, i) for i in (2, 3)))
    return high, first
