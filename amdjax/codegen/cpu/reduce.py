"""Reductions and scans of tiles: lanes of a vector, rows of tiles."""

from __future__ import annotations

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.cpu.emitter import CpuEmitter, Rep, llvm_type, rowwise
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.llvm import Function, Value
from amdjax.codegen.pointwise import lower_pointwise
from amdjax.tile import ops

LOWERINGS = Lowerings()


@LOWERINGS.of(ops.Reduce)
def lower_reduce(c: CpuEmitter, op: ops.Reduce) -> list[Rep]:
    (x,) = op.operands
    rep, combine = c.rep(x), op.combine
    if isinstance(rep, Value):
        return [_horizontal(c.f, combine, x.dtype, rep)]
    if op.axis == 0:
        return [_tree(c.f, combine, x.dtype, rep)]
    t = llvm_type(op.results[0].type)
    out = llvm.undef(t)
    for i, row in enumerate(rep):
        out = c.f.insert(out, _horizontal(c.f, combine, x.dtype, row), i)
    return [out]


@LOWERINGS.of(ops.ReduceBy)
def lower_reduce_by(c: CpuEmitter, op: ops.ReduceBy) -> list[Rep]:
    """One element after the other: no schedule for CPUs has it."""
    n, (block,) = len(op.results), op.blocks
    shape, axis = op.operands[0].shape, op.axis
    rows = [_rows(c, v) for v in op.operands[:n]]

    def elements(place: int) -> list[list[Value]]:
        """Those that become one."""
        if len(shape) == 1:
            return [[c.f.extract(x[0], i) for x in rows] for i in range(shape[0])]
        if axis == 0:
            return [[c.f.extract(x[i], place) for x in rows] for i in range(shape[0])]
        return [[c.f.extract(x[place], i) for x in rows] for i in range(shape[1])]

    def total(place: int) -> list[Value]:
        first, *others = elements(place)
        for other in others:
            first = c.flat_block(block, [*first, *other])
        return first

    if len(shape) == 1:
        return list(total(0))
    out = [llvm.undef(llvm_type(v.type)) for v in op.results]
    for place in range(shape[1 - axis]):
        pairs = zip(out, total(place), strict=True)
        out = [c.f.insert(v, x, place) for v, x in pairs]
    return list(out)


def _rows(c: CpuEmitter, v: tile.Value) -> list[Value]:
    rep = c.rep(v)
    return rep if isinstance(rep, list) else [rep]


def _tree(f: Function, combine: str, dtype: str, rows: list[Value]) -> Value:
    while len(rows) > 1:
        pairs = [
            lower_pointwise(f, combine, dtype, a, b)
            for a, b in zip(rows[::2], rows[1::2], strict=False)
        ]
        rows = pairs + rows[len(rows) & ~1 :]
    return rows[0]


def _horizontal(f: Function, combine: str, dtype: str, x: Value) -> Value:
    """All lanes of a vector combined, in a tree."""
    floating = dtype in tile.FLOATS
    if floating and combine in ("add", "mul"):
        start = llvm.const(x.type.with_lanes(0), -0.0 if combine == "add" else 1.0)
        return f.reduce("f" + combine, x, start, "reassoc")
    if floating:
        return _halved(f, combine, dtype, x)
    if combine in ("min", "max"):
        signed = dtype in tile.SIGNED
        return f.reduce(("s" if signed else "u") + combine, x)
    return f.reduce(combine, x)


def _halved(f: Function, combine: str, dtype: str, x: Value) -> Value:
    """All lanes combined by halving the vector: shorter than LLVM's order of signed zeros."""
    lanes = x.type.lanes
    while lanes > 1:
        half, odd = lanes // 2, lanes % 2
        low = f.shuffle(x, None, range(half))
        high = f.shuffle(x, None, range(half + odd, lanes))
        combined = lower_pointwise(f, combine, dtype, low, high)
        if odd:
            last = f.extract(x, half)
            wider = f.shuffle(combined, None, [*range(half), -1])
            combined = f.insert(wider, last, half)
        x, lanes = combined, half + odd
    return f.extract(x, 0)


@LOWERINGS.of(ops.Cumulative)
def lower_cumulative(c: CpuEmitter, op: ops.Cumulative) -> list[Rep]:
    (x,) = op.operands
    combine, reverse = op.combine, op.reverse
    return [rowwise(x.type, lambda row: _prefix(c.f, combine, x.dtype, row, reverse), c.rep(x))]


def _prefix(f: Function, combine: str, dtype: str, x: Value, reverse: bool) -> Value:
    """Prefix combination of one vector in log2(lanes) steps."""
    lanes, distance = x.type.lanes, 1
    while distance < lanes:
        moved = [i + distance if reverse else i - distance for i in range(lanes)]
        inside = [0 <= i < lanes for i in moved]
        shifted = f.shuffle(x, None, [i if ok else -1 for i, ok in zip(moved, inside, strict=True)])
        combined = lower_pointwise(f, combine, dtype, shifted, x)
        x = f.shuffle(x, combined, [lanes + i if ok else i for i, ok in enumerate(inside)])
        distance *= 2
    return x
