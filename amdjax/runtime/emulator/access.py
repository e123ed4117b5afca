"""Loads, stores and atomics: what each mnemonic moves, and the handlers.

A vector access goes lane by lane over EXEC. Each address is checked before it is used: global
memory against the launch's allocations, LDS and private memory against their sizes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from amdjax.codegen.llvm import I1, I32, I64, PTR, Function, Module, Type, Value, const
from amdjax.runtime.emulator import state
from amdjax.runtime.emulator.builder import Lanes

FIND = "amdjax_emulator_find"

_SIZES = {
    "ubyte": (1, False), "sbyte": (1, True), "ushort": (2, False), "sshort": (2, True),
    "byte": (1, False), "short": (2, False), "dword": (4, False),
    "u8": (1, False), "i8": (1, True), "u16": (2, False), "i16": (2, True), "b8": (1, False),
    "b16": (2, False), "b32": (4, False), "b64": (8, False), "b96": (12, False),
    "b128": (16, False), "b256": (32, False), "b512": (64, False),
    **{f"dwordx{n}": (4 * n, False) for n in (2, 3, 4, 8, 16)},
}  # fmt: skip

# Name in the mnemonic: the operation of atomicrmw, and whether operands are floats.
_ATOMICS = {
    "add": "add", "sub": "sub", "smin": "min", "umin": "umin", "smax": "max", "umax": "umax",
    "min_i": "min", "min_u": "umin", "max_i": "max", "max_u": "umax", "and": "and", "or": "or",
    "xor": "xor", "inc": "uinc_wrap", "dec": "udec_wrap", "swap": "xchg", "wrxchg": "xchg",
    "storexchg": "xchg", "add_f": "fadd", "min_f": "fmin", "max_f": "fmax", "cmpswap": "cmpxchg",
    "cmpst": "cmpxchg", "cmpstore": "cmpxchg", "pk_add_f": "fadd", "pk_add_bf": "fadd",
}  # fmt: skip


@dataclass(frozen=True)
class Access:
    """What a memory instruction moves. `half` is where 16-bit data goes: "", "lo" or "hi"."""

    kind: str
    space: str
    size: int
    signed: bool = False
    half: str = ""
    operation: str = ""
    elem: str = ""
    count: int = 1  # 2 for the forms with two addresses
    scale: int = 1  # of their offsets

    @property
    def dwords(self) -> int:
        return max(1, self.size // 4)


@cache
def access_of(name: str) -> Access | None:
    """What the mnemonic does, or None if it is no (known) memory access."""
    if match := re.fullmatch(r"s_load_(\w+)", name):
        found = _SIZES.get(match[1])
        return Access("scalar", "global", found[0]) if found else None
    if match := re.fullmatch(r"(global|flat|scratch)_(load|store)_(\w+)", name):
        return _plain(match[2], match[1], match[3])
    if match := re.fullmatch(r"(global|flat)_atomic_(\w+)", name):
        return _atomic(match[1], match[2])
    if match := re.fullmatch(r"ds_(read|load|write|store)(2|_2addr)?(st64|_stride64)?_(\w+)", name):
        kind = {"read": "load", "write": "store"}.get(match[1], match[1])
        plain = _plain(kind, "lds", match[4])
        if plain is None or not match[2]:
            return plain
        scale = plain.size * (64 if match[3] else 1)
        return Access(kind, "lds", plain.size, count=2, scale=scale)
    if match := re.fullmatch(r"ds_(\w+)", name):
        return _atomic("lds", match[1].replace("_rtn", ""))
    return None


def _plain(kind: str, space: str, what: str) -> Access | None:
    half = "hi" if "d16_hi" in what else "lo" if "d16" in what else ""
    found = _SIZES.get(re.sub(r"_?d16(_hi)?_?", "", what))
    return Access(kind, space, *found, half=half) if found else None


def _atomic(space: str, what: str) -> Access | None:
    wide = what.endswith(("_x2", "64"))
    body = what.removesuffix("_x2")
    packed = re.fullmatch(r"(pk_add_b?f)16", body)
    if packed:
        elem = "<2 x bfloat>" if "bf" in body else "<2 x half>"
        return Access("atomic", space, 4, operation="fadd", elem=elem)
    match = re.fullmatch(r"([a-z_]+?)(?:_([biuf])(?:32|64))?", body)
    if match is None:
        return None
    name, letter = match[1], match[2] or ""
    operation = _ATOMICS.get(f"{name}_{letter}") or _ATOMICS.get(name)
    if operation is None:
        return None
    floating = operation in ("fadd", "fmin", "fmax")
    elem = ("double" if wide else "float") if floating else ("i64" if wide else "i32")
    return Access("atomic", space, 8 if wide else 4, operation=operation, elem=elem)


# Handlers


def emit(h: Lanes, access: Access) -> None:
    """Write the handler of a memory instruction."""
    if access.kind == "scalar":
        _scalar_load(h, access)
    else:
        _for_active_lanes(h, lambda lane: _one_lane(h, access, lane))
    h.finish()


def _for_active_lanes(h: Lanes, body: Callable[[Value], None]) -> None:
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


def _element(h: Lanes, slot: int, lane: Value, dword: int = 0) -> Value:
    """Where a lane's element of a register operand (or a following register) lies."""
    f = h.f
    place = f.add(h.slot(slot), f.shl(lane, const(I64, 2)))
    return h.at(h.at(h.wave, place), dword * h.vgpr_stride())


def _read32(h: Lanes, slot: int, lane: Value, dword: int = 0) -> Value:
    return h.f.load(I32, _element(h, slot, lane, dword), 4)


def _read64(h: Lanes, slot: int, lane: Value) -> Value:
    return h.join(_read32(h, slot, lane), _read32(h, slot, lane, 1))


def _fail(h: Lanes, ok: Value, status: state.Status, lane: Value, address: Value) -> None:
    """Go on if `ok`, else leave with a fault."""
    f = h.f
    bad, good = f.new_label("fault"), f.new_label("fine")
    f.cond_br(ok, good, bad, (1 << 20, 1))
    f.start_block(bad)
    f.store(f.int_resize(lane, "i32", False), h.at(h.wave, state.FAULT_LANE))
    f.store(address, h.at(h.wave, state.FAULT_ADDRESS))
    h.stop(status)
    f.start_block(good)


def _check_global(h: Lanes, address: Value, size: int, lane: Value, aligned: int) -> None:
    f = h.f
    context = h.header(state.CONTEXT, PTR)
    end = f.add(address, const(I64, size))
    low = f.load(I64, h.at(context, state.LAST_LOW), 8)
    high = f.load(I64, h.at(context, state.LAST_HIGH), 8)
    near = f.and_(f.icmp("uge", address, low), f.icmp("ule", end, high))
    inside = f.if_(near, lambda: [const(I1, True)],
                   lambda: [f.call(FIND, I1, context, address, const(I64, size))])[0]  # fmt: skip
    _fail(h, inside, state.Status.OUT_OF_BOUNDS, lane, address)
    _check_alignment(h, address, lane, aligned)


def _check_alignment(h: Lanes, address: Value, lane: Value, aligned: int) -> None:
    if aligned > 1:
        f = h.f
        wanted = f.load(I64, h.at(h.header(state.CONTEXT, PTR), state.CHECK_ALIGNMENT), 8)
        rest = f.and_(f.and_(address, const(I64, aligned - 1)), wanted)
        _fail(h, h._is_zero(rest), state.Status.MISALIGNED, lane, address)


def _pointer(h: Lanes, access: Access, lane: Value, which: int = 0) -> Value:
    """The checked host pointer that a lane accesses."""
    aligned = min(access.size, 4) if access.kind != "atomic" else access.size
    address = {
        "global": _global_address, "flat": _flat_address, "lds": _lds_address,
        "scratch": _scratch_address,
    }[access.space]  # fmt: skip
    return address(h, access, lane, which, aligned)


def _to_pointer(h: Lanes, address: Value) -> Value:
    return h.f.op(f"inttoptr {address} to ptr", PTR)


def _global_address(h: Lanes, access: Access, lane: Value, which: int, aligned: int) -> Value:
    f = h.f
    if h.variant.flag("saddr"):
        base = f.load(I64, h.at(h.wave, h.slot(state.SRC0 + 2)), 4)
        address = f.add(base, f.cast("zext", _read32(h, state.SRC0, lane), "i64"))
    else:
        address = _read64(h, state.SRC0, lane)
    address = f.add(address, h.slot(state.OFFSET))
    _check_global(h, address, access.size, lane, aligned)
    return _to_pointer(h, address)


def _flat_address(h: Lanes, access: Access, lane: Value, which: int, aligned: int) -> Value:
    """A flat address names LDS or private memory by its high half."""
    f = h.f
    address = f.add(_read64(h, state.SRC0, lane), h.slot(state.OFFSET))
    high = f.lshr(address, const(I64, 32))
    offset = f.and_(address, const(I64, 0xFFFFFFFF))

    def shared() -> list[Value]:
        return [_within_lds(h, offset, access.size, lane, aligned)]

    def private() -> list[Value]:
        return [_within_scratch(h, offset, access.size, lane)]

    def rest() -> list[Value]:
        is_private = f.icmp("eq", high, const(I64, state.PRIVATE_APERTURE))
        return f.if_(is_private, private, plain)

    def plain() -> list[Value]:
        _check_global(h, address, access.size, lane, aligned)
        return [_to_pointer(h, address)]

    return f.if_(f.icmp("eq", high, const(I64, state.SHARED_APERTURE)), shared, rest)[0]


def _within_lds(h: Lanes, offset: Value, size: int, lane: Value, aligned: int) -> Value:
    f = h.f
    limit = f.cast("zext", h.header(state.LDS_SIZE, I32), "i64")
    inside = f.icmp("ule", f.add(offset, const(I64, size)), limit)
    _fail(h, inside, state.Status.LDS_OUT_OF_BOUNDS, lane, offset)
    _check_alignment(h, offset, lane, aligned)
    return h.at(h.header(state.LDS, PTR), offset)


def _lds_address(h: Lanes, access: Access, lane: Value, which: int, aligned: int) -> Value:
    f = h.f
    offset = h.slot(state.OFFSET if which == 0 else state.TARGET)
    base = f.cast("zext", _read32(h, state.SRC0, lane), "i64")
    return _within_lds(h, f.add(base, offset), access.size, lane, aligned)


def _within_scratch(h: Lanes, offset: Value, size: int, lane: Value) -> Value:
    f = h.f
    limit = f.cast("zext", h.header(state.SCRATCH_SIZE, I32), "i64")
    inside = f.icmp("ule", f.add(offset, const(I64, size)), limit)
    _fail(h, inside, state.Status.SCRATCH_OUT_OF_BOUNDS, lane, offset)
    mine = f.add(f.mul(lane, limit), offset)
    return h.at(h.header(state.SCRATCH, PTR), mine)


def _scratch_address(h: Lanes, access: Access, lane: Value, which: int, aligned: int) -> Value:
    f = h.f
    offset = f.cast("trunc", h.slot(state.OFFSET), "i32")
    if h.variant.flag("vaddr"):
        offset = f.add(offset, _read32(h, state.SRC0, lane))
    if h.variant.flag("saddr"):
        offset = f.add(offset, f.load(I32, h.at(h.wave, h.slot(state.SRC0 + 2)), 4))
    return _within_scratch(h, f.cast("zext", offset, "i64"), access.size, lane)


def _one_lane(h: Lanes, access: Access, lane: Value) -> None:
    for which in range(access.count):
        pointer = _pointer(h, access, lane, which)
        if access.kind == "load":
            _load(h, access, pointer, lane, which * access.dwords)
        elif access.kind == "store":
            _store(h, access, pointer, lane, state.SRC0 + 1 + which)
        else:
            _atomic_lane(h, access, pointer, lane)


def _load(h: Lanes, access: Access, pointer: Value, lane: Value, first: int) -> None:
    f = h.f
    if access.size >= 4:
        words = [f.load(I32, h.at(pointer, 4 * i), 1) for i in range(access.dwords)]
        for i, word in enumerate(words):
            f.store(word, _element(h, state.DST, lane, first + i), 4)
        return
    narrow = f.load(Type(f"i{8 * access.size}"), pointer, 1)
    place = _element(h, state.DST, lane, first)
    if not access.half:
        f.store(f.int_resize(narrow, "i32", access.signed), place, 4)
        return
    value = f.int_resize(narrow, "i16", access.signed)
    f.store(value, h.at(place, 2 if access.half == "hi" else 0), 2)


def _store(h: Lanes, access: Access, pointer: Value, lane: Value, slot: int) -> None:
    f = h.f
    if access.size >= 4:
        words = [_read32(h, slot, lane, i) for i in range(access.dwords)]
        for i, word in enumerate(words):
            f.store(word, h.at(pointer, 4 * i), 1)
        return
    value = _read32(h, slot, lane)
    if access.half == "hi":
        value = f.lshr(value, const(I32, 16))
    f.store(f.int_resize(value, f"i{8 * access.size}", False), pointer, 1)


def _atomic_lane(h: Lanes, access: Access, pointer: Value, lane: Value) -> None:
    f = h.f
    wide = access.size == 8
    bits = Type("i64" if wide else "i32")
    data = _read64 if wide else _read32
    value = data(h, state.SRC0 + 1, lane)
    if access.operation == "cmpxchg":
        expected, new = _compare_operands(h, access, lane, value)
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
        f.store(low, _element(h, state.DST, lane), 4)
        if wide:
            f.store(high, _element(h, state.DST, lane, 1), 4)


def _compare_operands(h: Lanes, access: Access, lane: Value, first: Value) -> tuple[Value, Value]:
    """Expected and new value: global forms have new before expected in one register group.

    LDS has two operands; the older set has expected first, the newer new first.
    """
    dwords = access.dwords
    if access.space == "lds":
        second = (_read64 if dwords == 2 else _read32)(h, state.SRC0 + 2, lane)
        return (first, second) if "cmpst_" in h.variant.name else (second, first)
    if dwords == 1:
        return _read32(h, state.SRC0 + 1, lane, 1), first
    high = h.join(*(_read32(h, state.SRC0 + 1, lane, i) for i in (2, 3)))
    return high, first


def _scalar_load(h: Lanes, access: Access) -> None:
    f = h.f
    base = f.load(I64, h.at(h.wave, h.slot(state.SRC0)), 4)
    address = f.add(base, h.slot(state.OFFSET))
    if h.variant.flag("soffset"):
        extra = f.load(I32, h.at(h.wave, h.slot(state.SRC0 + 1)), 4)
        address = f.add(address, f.cast("zext", extra, "i64"))
    address = f.and_(address, const(I64, -4))
    _check_global(h, address, access.size, const(I32, -1), 1)
    pointer = _to_pointer(h, address)
    words = [f.load(I32, h.at(pointer, 4 * i), 4) for i in range(access.dwords)]
    target = h.at(h.wave, h.slot(state.DST))
    for i, word in enumerate(words):
        f.store(word, h.at(target, 4 * i), 4)


def find_function(module: Module) -> Function:
    """`i1 find(context, address, size)`: binary search of the range that holds an access."""
    arguments = [("context", PTR), ("address", I64), ("size", I64)]
    f = module.function(FIND, arguments, I1, attributes="nounwind")
    context, address, size = f.args
    at = lambda offset: f.gep(context, offset, Type("i8"))
    ranges, count = f.load(PTR, at(state.RANGES), 8), f.load(I64, at(state.RANGE_COUNT), 8)
    one = const(I64, 1)

    def bound(index: Value, part: int) -> Value:
        place = f.add(f.shl(index, one), const(I64, part))
        return f.load(I64, f.gep(ranges, place, I64), 8)

    def halve(carried: list[Value]) -> list[Value]:
        low, high = carried
        middle = f.lshr(f.add(low, high), one)
        before = f.icmp("ule", bound(middle, 0), address)
        return [f.select(before, f.add(middle, one), low), f.select(before, high, middle)]

    # The first range that starts beyond the address; the one before may hold it.
    after, _ = f.while_loop([const(I64, 0), count], lambda c: f.icmp("ult", c[0], c[1]), halve)
    none = f.icmp("eq", after, const(I64, 0))

    def look() -> list[Value]:
        index = f.sub(after, one)
        low, high = bound(index, 0), bound(index, 1)
        f.store(low, at(state.LAST_LOW), 8)
        f.store(high, at(state.LAST_HIGH), 8)
        return [f.icmp("ule", f.add(address, size), high)]

    f.ret(f.if_(none, lambda: [const(I1, False)], look)[0])
    return f
