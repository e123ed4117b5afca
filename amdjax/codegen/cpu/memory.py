"""Loads, stores and atomic operations of vectors."""

from __future__ import annotations

from typing import Any

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.cpu.emitter import CpuEmitter, Rep, memory_element, rowwise
from amdjax.codegen.cpu.transpose import interleaved, transpose_rows
from amdjax.codegen.emitter import Lowerings, arrival, atomic_operation
from amdjax.codegen.llvm import I64, PTR, Function, Type, Value
from amdjax.codegen.pointwise import ELEMENT_TYPES
from amdjax.tile import ops
from amdjax.tile.types import CACHE_LINE

LOWERINGS = Lowerings()

NEAR = (-4, -3, -2, -1, 2, 3, 4)  # strides of lanes that are read together with what lies between
REGISTER = 512  # bits of the widest vectors; shuffles of wider ones are written lane by lane


def _row_of(mask: Rep | None, r: int) -> Value | None:
    return mask[r] if isinstance(mask, list) else mask


def _memory_operands(
    c: CpuEmitter, op: ops.Load | ops.Store, skip: int
) -> tuple[list[Value | int], Rep | None]:
    """Strides of a load or store (runtime ones filled in) and the mask."""
    rest = list(op.operands[skip:])
    mask = c.rep(rest.pop()) if op.masked else None
    strides = [c.scalar(rest.pop(0)) if s is None else s for s in op.strides]
    return strides, mask


def _step(f: Function, offset: Value, i: int, stride: Value | int) -> Value:
    if i == 0 or stride == 0:
        return offset
    if isinstance(stride, int):
        return f.add(offset, llvm.const(I64, i * stride))
    return f.add(offset, f.mul(stride, llvm.const(I64, i)))


@LOWERINGS.of(ops.Load)
def lower_load(c: CpuEmitter, op: ops.Load) -> list[Rep]:
    buffer, t = op.buffer, op.results[0].type
    offset = c.scalar(op.operands[0])
    strides, mask = _memory_operands(c, op, 1)
    if len(t.shape) < 2:
        stride = strides[0] if strides else 0
        row_mask = _row_of(mask, 0)
        if row_mask is None and (stride == 1 or not t.shape):
            kind = Type(memory_element(t.dtype), t.shape[-1] if t.shape else 0)
            x = c.f.load(kind, c.address_at(buffer, op.offset), kind.bits // 8)
            return [_from_memory(c.f, x, t.dtype)]
        return [_load_row(c, buffer, t, offset, stride, row_mask, op.other)]
    rows, columns = t.shape
    if strides[0] == 1 and strides[1] != 1 and mask is None and rows > 1:
        column = tile.TileType(t.dtype, (rows,))
        loaded = [
            _load_row(c, buffer, column, _step(c.f, offset, i, strides[1]), 1, None, 0)
            for i in range(columns)
        ]
        return [transpose_rows(c.f, loaded)]
    out = []
    row_type = tile.TileType(t.dtype, (columns,))
    for r in range(rows):
        row_mask = _row_of(mask, r)
        start = _step(c.f, offset, r, strides[0])
        out.append(_load_row(c, buffer, row_type, start, strides[1], row_mask, op.other))
    return [out]


def _load_row(
    c: CpuEmitter, buffer: tile.Buffer, t: tile.TileType, offset: Value, stride: Value | int,
    mask: Value | None, other: Any,
) -> Value:  # fmt: skip
    f = c.f
    kind = Type(memory_element(t.dtype), t.shape[-1] if t.shape else 0)
    align = kind.bits // 8
    if not kind.lanes:
        loaded = f.load(kind, c.address(buffer, offset), align)
    elif stride == 1:
        pointer = c.address(buffer, offset)
        if mask is None:
            loaded = f.load(kind, pointer, align)
        else:
            loaded = _load_masked(f, kind, pointer, mask, llvm.const(kind, other))
    elif stride == 0 and mask is None:
        loaded = f.splat(f.load(kind.with_lanes(0), c.address(buffer, offset), align), kind.lanes)
    elif stride in NEAR and mask is None and kind.lanes in (4, 8, 16, 32, 64, 128):
        loaded = _load_near(c, buffer, kind, offset, stride)
    else:
        every = mask or llvm.const(kind.with_elem("i1"), True)
        pointers = c.address(buffer, _lane_offsets(c.f, offset, stride, kind.lanes))
        loaded = f.gather(kind, pointers, every, llvm.const(kind, other), align)
    return _from_memory(c.f, loaded, t.dtype)


def _load_near(c: CpuEmitter, buffer: tile.Buffer, kind: Type, offset: Value, stride: int) -> Value:
    """Lanes picked out of vectors that cover them, where gathering takes each by itself.

    The last vector ends with the last lane, as memory may.
    """
    f, n = c.f, min(kind.lanes, REGISTER // kind.bits)
    part, apart = kind.with_lanes(n), abs(stride)
    starts = [*(j * n for j in range(apart - 1)), (apart - 1) * (n - 1)]
    places = [i * apart for i in range(n)][:: 1 if stride > 0 else -1]
    found = []
    for first in range(0, kind.lanes, n):
        low = _step(f, offset, 1, first * stride + min(stride, 0) * (n - 1))
        vectors = [
            f.load(part, c.address(buffer, _step(f, low, 1, at)), kind.bits // 8) for at in starts
        ]
        # The vector that each lane comes from, and its lane there
        owners = [min(place // n, apart - 1) for place in places]
        lanes = [place - starts[j] for j, place in zip(owners, places, strict=True)]
        picked = f.shuffle(
            vectors[0], None, [lane if j == 0 else -1 for j, lane in zip(owners, lanes)]
        )
        for j, vector in enumerate(vectors[1:], 1):
            merged = [n + lane if o == j else i for i, (o, lane) in enumerate(zip(owners, lanes))]
            picked = f.shuffle(picked, vector, merged)
        found.append(picked)
    return _joined(f, found)


def _joined(f: Function, parts: list[Value]) -> Value:
    """Vectors one behind the other; a power of two of them."""
    while len(parts) > 1:
        both = range(2 * parts[0].type.lanes)
        parts = [f.shuffle(a, b, both) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _lane_offsets(f: Function, offset: Value, stride: Value | int, lanes: int) -> Value:
    if isinstance(stride, int):
        steps = llvm.vector("i64", [i * stride for i in range(lanes)])
    else:
        steps = f.mul(f.splat(stride, lanes), llvm.vector("i64", range(lanes)))
    return f.add(f.splat(offset, lanes), steps)


def _from_memory(f: Function, x: Value, dtype: str) -> Value:
    if dtype == "bool":
        return f.icmp("ne", x, llvm.zero(x.type))
    return f.bitcast(x, x.type.with_elem(ELEMENT_TYPES[dtype]))


def _to_memory(f: Function, x: Value, dtype: str) -> Value:
    if dtype == "bool":
        return f.cast("zext", x, "i8")
    return f.bitcast(x, x.type.with_elem(memory_element(dtype)))


@LOWERINGS.of(ops.Store)
def lower_store(c: CpuEmitter, op: ops.Store) -> list[Rep]:
    buffer, value = op.buffer, op.operands[1]
    offset, rep = c.scalar(op.operands[0]), c.rep(value)
    strides, mask = _memory_operands(c, op, 2)
    streaming = op.streaming
    if isinstance(rep, Value):
        stride, row_mask = strides[0] if strides else 0, _row_of(mask, 0)
        _store_row(c, buffer, value.dtype, offset, stride, rep, row_mask, streaming)
        return []
    if strides[0] == 1 and strides[1] != 1 and mask is None and len(rep) > 1:
        rep, strides = transpose_rows(c.f, rep), strides[::-1]
    for r, row in enumerate(rep):
        row_mask, start = _row_of(mask, r), _step(c.f, offset, r, strides[0])
        _store_row(c, buffer, value.dtype, start, strides[1], row, row_mask, streaming)
    return []


def _store_row(
    c: CpuEmitter, buffer: tile.Buffer, dtype: str, offset: Value, stride: Value | int, x: Value,
    mask: Value | None, streaming: bool = False,
) -> None:  # fmt: skip
    f, x = c.f, _to_memory(c.f, x, dtype)
    align = x.type.bits // 8
    if not x.type.lanes:
        f.store(x, c.address(buffer, offset), align)
    elif stride == 1:
        pointer = c.address(buffer, offset)
        if streaming:
            whole = min(align * x.type.lanes, CACHE_LINE)
            f.store(x, pointer, whole, f", !nontemporal {c.streams}")
        elif mask is None:
            f.store(x, pointer, align)
        else:
            _store_masked(f, x, pointer, mask, align)
    elif mask is None:  # vectors' scatters are slower than as many stores, or no faster
        for i in range(x.type.lanes):
            f.store(f.extract(x, i), c.address(buffer, _step(f, offset, i, stride)), align)
    else:
        places = _lane_offsets(f, offset, stride, x.type.lanes)
        f.scatter(x, c.address(buffer, places), mask, align)


def _load_masked(f: Function, kind: Type, pointer: Value, mask: Value, other: Value) -> Value:
    """A masked load; mostly all lanes are loaded, which is told first where masks are slow."""
    align = kind.bits // 8

    def some_lanes() -> Value:
        return f.masked_load(kind, pointer, mask, other, align)

    if kind.bits >= 32 or "masked.load" in f.module.native:
        return some_lanes()
    every = f.reduce("and", mask)
    return f.if_(every, lambda: [f.load(kind, pointer, align)], lambda: [some_lanes()])[0]


def _store_masked(f: Function, x: Value, pointer: Value, mask: Value, align: int) -> None:
    """A masked store, like `_load_masked`."""

    def all_lanes() -> list[Value]:
        f.store(x, pointer, align)
        return []

    def some_lanes() -> list[Value]:
        f.masked_store(x, pointer, mask, align)
        return []

    if "masked.store" in f.module.native:
        some_lanes()
    else:
        f.if_(f.reduce("and", mask), all_lanes, some_lanes)


@LOWERINGS.of(ops.LoadAt)
def lower_load_at(c: CpuEmitter, op: ops.LoadAt) -> list[Rep]:
    buffer, t = op.buffer, op.results[0].type
    mask = c.rep(op.operands[1]) if op.masked else None
    if not t.shape:
        return [_from_memory(c.f, _load_scalar_at(c, buffer, t, op, mask), t.dtype)]
    kind = Type(memory_element(t.dtype), t.shape[-1])

    def row(offsets: Value, *masks: Value) -> Value:
        every = masks[0] if masks else llvm.const(kind.with_elem("i1"), True)
        other = llvm.const(kind, op.other)
        loaded = c.f.gather(kind, c.address(buffer, offsets), every, other, kind.bits // 8)
        return _from_memory(c.f, loaded, t.dtype)

    operands = [c.rep(op.operands[0])] + ([mask] if mask is not None else [])
    return [rowwise(t, row, *operands)]


def _load_scalar_at(
    c: CpuEmitter, buffer: tile.Buffer, t: tile.TileType, op: ops.LoadAt, mask: Rep | None
) -> Value:
    kind = Type(memory_element(t.dtype))
    pointer, align = c.address(buffer, c.scalar(op.operands[0])), kind.bits // 8
    if mask is None:
        return c.f.load(kind, pointer, align)
    other = llvm.const(kind, op.other)
    assert isinstance(mask, Value)
    (loaded,) = c.f.if_(mask, lambda: [c.f.load(kind, pointer, align)], lambda: [other])
    return loaded


@LOWERINGS.of(ops.LoadRows)
def lower_load_rows(c: CpuEmitter, op: ops.LoadRows) -> list[Rep]:
    """Rows of lanes that lie apart in a vector, behind each other, and interleaved.

    Each block of as many lanes as a row is wide then holds one element of those lanes' rows.
    Offsets reach their addresses by way of the stack: loads are cheaper than taking vectors apart,
    which needs the unit that also joins the rows. `volatile` keeps LLVM from doing that after all.
    """
    f, buffer, count = c.f, op.buffer, op.count
    kind, offsets = Type(memory_element(buffer.dtype)), c.scalar(op.offsets)
    start = c.address(buffer, c.scalar(op.start) if op.start is not None else None)
    align = kind.bits // 8
    if count == 1:
        kind = kind.with_lanes(offsets.type.lanes)
        every = llvm.const(kind.with_elem("i1"), True)
        x = f.gather(kind, f.gep(start, offsets, kind.with_lanes(0)), every, llvm.zero(kind), align)
        return [_from_memory(f, x, buffer.dtype)]
    width = 2 if count == 2 else 4
    row_type = kind.with_lanes(width)
    some = llvm.vector("i1", [i < count for i in range(width)])

    element, slot = offsets.type.with_lanes(0), f.alloca(offsets.type)
    f.emit(f"store volatile {offsets}, {slot}, align 64")

    def row(lane: int) -> Value:
        offset = f.op(f"load volatile {element}, {f.gep(slot, lane, element)}, align 4", element)
        pointer = f.gep(start, offset, kind)
        if count == width:
            return f.load(row_type, pointer, align)
        return f.masked_load(row_type, pointer, some, llvm.zero(row_type), align)

    lanes = offsets.type.lanes
    n = min(lanes, REGISTER // kind.bits)
    found: list[list[Value]] = []
    for first in range(0, lanes, n):
        apart = [
            _joined(f, [row(lane) for lane in range(first + i, first + n, width)])
            for i in range(width)
        ]
        found.append(interleaved(f, apart, width))
    results = [_joined(f, list(parts)) for parts in zip(*found, strict=True)]
    return [_from_memory(f, x, buffer.dtype) for x in results[:count]]


@LOWERINGS.of(ops.StoreAt)
def lower_store_at(c: CpuEmitter, op: ops.StoreAt) -> list[Rep]:
    buffer, value = op.buffer, op.operands[1]
    offsets, rep = c.rep(op.operands[0]), c.rep(value)
    mask = c.rep(op.operands[2]) if op.masked else None
    f = c.f
    if isinstance(rep, Value) and not rep.type.lanes:
        pointer, stored = c.address(buffer, c.scalar(op.operands[0])), rep

        def write() -> list[Value]:
            x = _to_memory(f, stored, value.dtype)
            f.store(x, pointer, x.type.bits // 8)
            return []

        if isinstance(mask, Value):
            f.if_(mask, write)
        else:
            write()
        return []

    def row(where: Value, x: Value, *masks: Value) -> Value:
        x = _to_memory(c.f, x, value.dtype)
        every = masks[0] if masks else llvm.const(x.type.with_elem("i1"), True)
        f.scatter(x, c.address(buffer, where), every, x.type.bits // 8)
        return x

    rowwise(value.type, row, offsets, rep, *([mask] if mask is not None else []))
    return []


@LOWERINGS.of(ops.Atomic)
def lower_atomic(c: CpuEmitter, op: ops.Atomic) -> list[Rep]:
    f, name = c.f, atomic_operation(op.combine, op.operands[1].dtype)

    def one(offset: Value, value: Value, *mask: Value) -> Value:
        pointer = c.address(op.buffer, offset)

        def combine() -> list[Value]:
            return [f.op(f"atomicrmw {name} {pointer}, {value} monotonic", value.type)]

        (old,) = f.if_(mask[0], combine, lambda: [value]) if mask else combine()
        return old

    def row(*xs: Value) -> Value:
        lanes = xs[0].type.lanes
        if not lanes:
            return one(*xs)
        out = xs[1]
        for i in range(lanes):
            out = f.insert(out, one(*(f.extract(x, i) for x in xs)), i)
        return out

    return [rowwise(op.results[0].type, row, *map(c.rep, op.operands))]


@LOWERINGS.of(ops.Arrive)
def lower_arrive(c: CpuEmitter, op: ops.Arrive) -> list[Rep]:
    counter = c.address(op.buffer, c.scalar(op.operands[0]))
    return [arrival(c.f, counter, op.programs, "acq_rel")]


@LOWERINGS.of(ops.Prefetch)
def lower_prefetch(c: CpuEmitter, op: ops.Prefetch) -> list[Rep]:
    pointer = c.address_at(op.buffer, op.offset)
    write, locality = int(op.write), 4 - op.level
    kinds = [llvm.const(llvm.I32, x) for x in (write, locality, 1)]
    c.f.intrinsic("prefetch", llvm.VOID, pointer, *kinds, overload=[PTR])
    return []
