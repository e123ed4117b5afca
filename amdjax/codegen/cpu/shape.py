"""Ops that move elements between the lanes and rows of tiles."""

from __future__ import annotations

from amdjax.codegen import llvm
from amdjax.codegen.cpu.emitter import CpuEmitter, Rep
from amdjax.codegen.cpu.transpose import transpose_rows
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.engine import host
from amdjax.codegen.llvm import Function, Value
from amdjax.tile import ops

LOWERINGS = Lowerings()


@LOWERINGS.of(ops.Broadcast)
def lower_broadcast(c: CpuEmitter, op: ops.Broadcast) -> list[Rep]:
    x, rep = op.operands[0], c.rep(op.operands[0])
    shape = op.results[0].type.shape
    rows = rep if isinstance(rep, list) else [rep]
    if not x.shape or x.shape[-1] != shape[-1]:
        rows = [_splat(c.f, r, shape[-1]) for r in rows]
    if len(shape) == 1:
        return [rows[0]]
    return [rows * shape[0] if len(rows) == 1 else rows]


def _splat(f: Function, x: Value, lanes: int) -> Value:
    if x.type.lanes == 1:
        x = f.extract(x, 0)
    return f.splat(x, lanes)


@LOWERINGS.of(ops.Expand)
def lower_expand(c: CpuEmitter, op: ops.Expand) -> list[Rep]:
    rep = c.rep(op.operands[0])
    assert isinstance(rep, Value)
    if op.axis == 0:
        return [[rep]]
    one = rep.type.with_lanes(1)
    scalars = [c.f.extract(rep, i) for i in range(rep.type.lanes)]
    return [[c.f.insert(llvm.undef(one), s, 0) for s in scalars]]


@LOWERINGS.of(ops.Reshape)
def lower_reshape(c: CpuEmitter, op: ops.Reshape) -> list[Rep]:
    f, rep, shape = c.f, c.rep(op.operands[0]), op.results[0].shape
    flat = _joined(f, rep if isinstance(rep, list) else [rep])
    if len(shape) == 1:
        return [flat]
    n = shape[1]
    return [[f.shuffle(flat, None, range(i * n, (i + 1) * n)) for i in range(shape[0])]]


@LOWERINGS.of(ops.Transpose)
def lower_transpose(c: CpuEmitter, op: ops.Transpose) -> list[Rep]:
    rows = c.rep(op.operands[0])
    assert isinstance(rows, list)
    return [transpose_rows(c.f, rows)]


@LOWERINGS.of(ops.Extract)
def lower_extract(c: CpuEmitter, op: ops.Extract) -> list[Rep]:
    rep = c.rep(op.operands[0])
    lane = op.lane
    return [rep[lane] if isinstance(rep, list) else c.f.extract(rep, lane)]


@LOWERINGS.of(ops.Shuffle)
def lower_shuffle(c: CpuEmitter, op: ops.Shuffle) -> list[Rep]:
    x, *other = (c.rep(v) for v in op.operands)
    assert isinstance(x, Value)
    return [c.f.shuffle(x, other[0] if other else None, op.lanes)]  # type: ignore[arg-type]


@LOWERINGS.of(ops.Lookup)
def lower_lookup(c: CpuEmitter, op: ops.Lookup) -> list[Rep]:
    f, table, index = c.f, c.scalar(op.table), c.scalar(op.index)
    lanes, count = table.type.lanes, index.type.lanes
    if lanes != 16 or op.table.dtype != "f32" or not host().has("avx512f"):
        return [_looked_up(f, table, index)]
    name, parts = "llvm.x86.avx512.permvar.sf.512", []
    for start in range(0, count, lanes):  # an instruction for each register
        part = f.shuffle(index, None, [i % count for i in range(start, start + lanes)])
        # LLVM knows that few bits count, and would shift bytes before it widens them.
        part = f.op(f'call {part.type} asm "", "=v,0"({part})', part.type)
        parts.append(f.call(name, table.type, table, part))
    return [f.shuffle(_joined(f, parts), None, range(count))]


def _looked_up(f: Function, table: Value, index: Value) -> Value:
    """Through memory, where no instruction takes lanes by index."""
    slot, one = f.alloca(table.type), table.type.with_lanes(0)
    f.store(table, slot, 4)
    last = llvm.const(index.type.with_lanes(0), table.type.lanes - 1)
    out = llvm.undef(table.type.with_lanes(index.type.lanes))
    for i in range(index.type.lanes):
        place = f.gep(slot, f.and_(f.extract(index, i), last), one)
        out = f.insert(out, f.load(one, place, 4), i)
    return out


def _joined(f: Function, rows: list[Value]) -> Value:
    """A power of two of vectors, one behind the other."""
    while len(rows) > 1:
        both = range(2 * rows[0].type.lanes)
        rows = [f.shuffle(a, b, both) for a, b in zip(rows[::2], rows[1::2], strict=True)]
    return rows[0]


@LOWERINGS.of(ops.Interleave)
def lower_interleave(c: CpuEmitter, op: ops.Interleave) -> list[Rep]:
    x, other = (c.rep(v) for v in op.operands)
    if not isinstance(x, list) or not isinstance(other, list):
        assert isinstance(x, Value) and isinstance(other, Value)
        return [_in_turns(c.f, x, other)]
    pairs = list(zip(x, other, strict=True))
    if op.axis == 0:
        return [[row for pair in pairs for row in pair]]
    return [[_in_turns(c.f, *pair) for pair in pairs]]


def _in_turns(f: Function, x: Value, other: Value) -> Value:
    n = x.type.lanes
    return f.shuffle(x, other, [i + half for i in range(n) for half in (0, n)])


@LOWERINGS.of(ops.Compress)
def lower_compress(c: CpuEmitter, op: ops.Compress) -> list[Rep]:
    x, mask = (c.rep(v) for v in op.operands)
    assert isinstance(x, Value) and isinstance(mask, Value)
    return [_compressed(c.f, x, mask)]


def _compressed(f: Function, x: Value, mask: Value) -> Value:
    """Selected lanes first.

    LLVM 22 crashes on vectors wider than a register, so halves meet in memory.
    """
    lanes = x.type.lanes
    if lanes == 1:  # which it cannot compile at all
        return x
    if lanes * x.type.bits <= 512:
        return f.intrinsic("experimental.vector.compress", x.type, x, mask, llvm.undef(x.type))
    half = lanes // 2
    slot = f.alloca(x.type)
    places = [range(half), range(half, lanes)]
    low, high = (_compressed(f, f.shuffle(x, None, p), f.shuffle(mask, None, p)) for p in places)
    first = f.cast("zext", f.shuffle(mask, None, places[0]), "i64")
    f.store(low, slot, x.type.bits // 8)
    f.store(high, f.gep(slot, f.reduce("add", first), x.type.with_lanes(0)), x.type.bits // 8)
    return f.load(x.type, slot, 64)
