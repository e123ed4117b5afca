"""Handlers of scalar loads, and the search for the allocation that an address is in."""

from __future__ import annotations

from amdjax.codegen.llvm import I1, I32, I64, PTR, Type, Value, const
from amdjax.emulator import state
from amdjax.emulator.builder import Lanes
from amdjax.emulator.isa.access import Access
from amdjax.emulator.memory import shadow
from amdjax.emulator.memory.vector_memory import check_global, fail_unless

_NO_LANE = const(I32, -1)


def emit(h: Lanes, access: Access) -> None:
    """Write the handler of a scalar load.

    The two low bits of the address are ignored. LLVM makes loads of bytes and halves into loads of
    the dword around them, so of a dword one byte must have been written.
    """
    f = h.f
    base = f.load(I64, h.at(h.wave, h.slot(state.SRC0)), 4)
    address = f.add(base, h.slot(state.OFFSET))
    if h.variant.flag("soffset"):
        extra = f.load(I32, h.at(h.wave, h.slot(state.SRC0 + 1)), 4)
        address = f.add(address, f.cast("zext", extra, "i64"))
    # Allocations are whole dwords to the hardware: only the first byte of the last must be inside.
    dwords = max(access.size, 4)
    address = f.and_(address, const(I64, -4 if access.size >= 4 else -access.size))
    check_global(h, address, access.size if access.size < 4 else dwords - 3, _NO_LANE, 1)
    _check_written(h, access, address)
    pointer = f.op(f"inttoptr {address} to ptr", PTR)
    target = h.at(h.wave, h.slot(state.DST))
    if access.size < 4:
        narrow = f.load(Type(f"i{8 * access.size}"), pointer, 1)
        f.store(f.int_resize(narrow, "i32", access.signed), target, 4)
    else:
        words = [f.load(I32, h.at(pointer, 4 * i), 4) for i in range(access.dwords)]
        for i, word in enumerate(words):
            f.store(word, h.at(target, 4 * i), 4)
    h.finish()


def _check_written(h: Lanes, access: Access, address: Value) -> None:
    f = h.f
    delta = f.load(I64, h.at(h.header(state.CONTEXT, PTR), state.LAST_SHADOW), 8)

    def check() -> list[Value]:
        place = f.op(f"inttoptr {f.add(address, delta)} to ptr", PTR)
        wide = access.size >= 4
        written = (shadow.any_written if wide else shadow.is_written)(h, place, access.size)
        return [f.or_(written, f.icmp("ne", h.header(state.READS_ANY, I32), const(I32, 0)))]

    has_shadow = f.icmp("ne", delta, const(I64, 0))
    written = f.if_(has_shadow, check, lambda: [const(I1, True)])[0]
    fail_unless(h, written, state.Status.UNINITIALIZED, _NO_LANE, address)


SOURCE = """
def amdjax_emulator_find(context, address: i64, size: i64) -> i1:
    "Binary search of the allocation that holds an access."
    ranges = context[RANGES // 8]
    low: i64 = 0
    high: i64 = number(context, RANGE_COUNT // 8)
    # The first range that starts beyond the address; the one before may hold it.
    while low < high:
        middle = (low + high) >> 1
        if below(address, number(ranges, RANGE_WORDS * middle)):
            high = middle
        else:
            low = middle + 1
    if low == 0:
        return False
    found = ranges + RANGE_WORDS * (low - 1)
    context[LAST_LOW // 8] = number(found, 0)
    context[LAST_HIGH // 8] = number(found, 1)
    has_shadow = number(found, 2) != 0
    context[LAST_SHADOW // 8] = number(found, 2) - number(found, 0) if has_shadow else 0
    return not below(number(found, 1), address + size)
"""
