"""Reductions and scans of tiles on a CPU: lanes of a vector, rows of tiles."""

from __future__ import annotations

from collections.abc import Callable

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import Emitter, lowers
from amdjax.codegen.llvm import Type, Value
from amdjax.codegen.pointwise import ELEMENT_TYPES, lower_pointwise
from amdjax.tile import ops

__all__ = ["CpuCombinations", "Rep", "llvm_type"]

Rep = Value | list[Value]  # a scalar or rank-1 tile; the rows of a rank-2 tile


def llvm_type(type: tile.TileType) -> Type:
    """The type of a scalar, or of one row of a tile."""
    return Type(ELEMENT_TYPES[type.dtype], type.shape[-1] if type.shape else 0)


class CpuCombinations(Emitter[Rep]):
    def rowwise(self, type: tile.TileType, fn: Callable[..., Value], *operands: Rep) -> Rep:
        """Apply `fn` to vectors, row by row for rank-2 tiles."""
        if len(type.shape) < 2:
            return fn(*operands)
        return [fn(*row) for row in zip(*operands, strict=True)]

    @lowers(ops.Reduce)
    def lower_reduce(self, op: ops.Reduce) -> list[Rep]:
        (x,) = op.operands
        rep, combine = self.rep(x), op.combine
        if isinstance(rep, Value):
            return [self._horizontal(combine, x.dtype, rep)]
        if op.axis == 0:
            return [self._tree(combine, x.dtype, rep)]
        t = llvm_type(op.results[0].type)
        out = llvm.undef(t)
        for i, row in enumerate(rep):
            out = self.f.insert(out, self._horizontal(combine, x.dtype, row), i)
        return [out]

    @lowers(ops.ReduceBy)
    def lower_reduce_by(self, op: ops.ReduceBy) -> list[Rep]:
        """One element after the other: no schedule for CPUs has it."""
        n, (block,) = len(op.results), op.blocks
        shape, axis = op.operands[0].shape, op.axis
        rows = [self._rows(v) for v in op.operands[:n]]

        def elements(place: int) -> list[list[Value]]:
            """Those that become one."""
            if len(shape) == 1:
                return [[self.f.extract(x[0], i) for x in rows] for i in range(shape[0])]
            if axis == 0:
                return [[self.f.extract(x[i], place) for x in rows] for i in range(shape[0])]
            return [[self.f.extract(x[place], i) for x in rows] for i in range(shape[1])]

        def total(place: int) -> list[Value]:
            first, *others = elements(place)
            for other in others:
                self._bind(block.args, [*first, *other])
                first = self._yielded(block)
            return first

        if len(shape) == 1:
            return list(total(0))
        out = [llvm.undef(llvm_type(v.type)) for v in op.results]
        for place in range(shape[1 - axis]):
            pairs = zip(out, total(place), strict=True)
            out = [self.f.insert(v, x, place) for v, x in pairs]
        return list(out)

    def _rows(self, v: tile.Value) -> list[Value]:
        rep = self.rep(v)
        return rep if isinstance(rep, list) else [rep]

    def _tree(self, combine: str, dtype: str, rows: list[Value]) -> Value:
        while len(rows) > 1:
            pairs = [
                lower_pointwise(self.f, combine, dtype, a, b)
                for a, b in zip(rows[::2], rows[1::2], strict=False)
            ]
            rows = pairs + rows[len(rows) & ~1 :]
        return rows[0]

    def _horizontal(self, combine: str, dtype: str, x: Value) -> Value:
        """All lanes of a vector combined, in a tree."""
        f, floating = self.f, dtype in tile.FLOATS
        if floating and combine in ("add", "mul"):
            start = llvm.const(x.type.with_lanes(0), -0.0 if combine == "add" else 1.0)
            return f.reduce("f" + combine, x, start, "reassoc")
        if floating:
            return self._halved(combine, dtype, x)
        if combine in ("min", "max"):
            signed = dtype in tile.SIGNED
            return f.reduce(("s" if signed else "u") + combine, x)
        return f.reduce(combine, x)

    def _halved(self, combine: str, dtype: str, x: Value) -> Value:
        """All lanes combined by halving the vector: shorter than LLVM's order of signed zeros."""
        lanes = x.type.lanes
        while lanes > 1:
            half, odd = lanes // 2, lanes % 2
            low = self.f.shuffle(x, None, range(half))
            high = self.f.shuffle(x, None, range(half + odd, lanes))
            combined = lower_pointwise(self.f, combine, dtype, low, high)
            if odd:
                last = self.f.extract(x, half)
                wider = self.f.shuffle(combined, None, [*range(half), -1])
                combined = self.f.insert(wider, last, half)
            x, lanes = combined, half + odd
        return self.f.extract(x, 0)

    @lowers(ops.Cumulative)
    def lower_cumulative(self, op: ops.Cumulative) -> list[Rep]:
        (x,) = op.operands
        combine, reverse = op.combine, op.reverse
        return [
            self.rowwise(
                x.type, lambda row: self._prefix(combine, x.dtype, row, reverse), self.rep(x)
            )
        ]

    def _prefix(self, combine: str, dtype: str, x: Value, reverse: bool) -> Value:
        """Prefix combination of one vector in log2(lanes) steps."""
        lanes, distance = x.type.lanes, 1
        while distance < lanes:
            moved = [i + distance if reverse else i - distance for i in range(lanes)]
            inside = [0 <= i < lanes for i in moved]
            shifted = self.f.shuffle(
                x, None, [i if ok else -1 for i, ok in zip(moved, inside, strict=True)]
            )
            combined = lower_pointwise(self.f, combine, dtype, shifted, x)
            x = self.f.shuffle(x, combined, [lanes + i if ok else i for i, ok in enumerate(inside)])
            distance *= 2
        return x
