"""Handlers of scalar loads, and the search for the allocation that an address is in."""

from __future__ import annotations

from amdjax.codegen.llvm import I1, I32, I64, PTR, Function, Module, Type, Value, const
from amdjax.emulator import state
from amdjax.emulator.builder import Lanes
from amdjax.emulator.isa.access import Access
from amdjax.emulator.memory import shadow
from amdjax.emulator.memory.vector_memory import FIND, check_global, fail_unless

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


def find_function(module: Module) -> Function:
    """`i1 find(context, address, size)`: binary search of the range that holds an access."""
    arguments = [("context", PTR), ("address", I64), ("size", I64)]
    f = module.function(FIND, arguments, I1, attributes="nounwind")
    context, address, size = f.args
    at = lambda offset: f.gep(context, offset, Type("i8"))
    ranges, count = f.load(PTR, at(state.RANGES), 8), f.load(I64, at(state.RANGE_COUNT), 8)
    one = const(I64, 1)

    def word(index: Value, part: int) -> Value:
        place = f.add(f.mul(index, const(I64, state.RANGE_WORDS)), const(I64, part))
        return f.load(I64, f.gep(ranges, place, I64), 8)

    def halve(carried: list[Value]) -> list[Value]:
        low, high = carried
        middle = f.lshr(f.add(low, high), one)
        before = f.icmp("ule", word(middle, 0), address)
        return [f.select(before, f.add(middle, one), low), f.select(before, high, middle)]

    # The first range that starts beyond the address; the one before may hold it.
    after, _ = f.while_loop([const(I64, 0), count], lambda c: f.icmp("ult", c[0], c[1]), halve)
    none = f.icmp("eq", after, const(I64, 0))

    def look() -> list[Value]:
        low, high, place = (word(f.sub(after, one), part) for part in range(3))
        has_shadow = f.icmp("ne", place, const(I64, 0))
        delta = f.select(has_shadow, f.sub(place, low), const(I64, 0))
        for value, offset in (
            (low, state.LAST_LOW), (high, state.LAST_HIGH), (delta, state.LAST_SHADOW)
        ):  # fmt: skip
            f.store(value, at(offset), 8)
        return [f.icmp("ule", f.add(address, size), high)]

    f.ret(f.if_(none, lambda: [const(I1, False)], look)[0])
    return f
