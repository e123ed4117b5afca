"""Products of lines that lie in LDS, by multiply-adds of vector lanes.

Waves, and groups of lanes where the tile is small, sum parts of the depth for the whole tile, a
lane for a few rows and columns of it: it reads 16 bytes of each of them and multiplies each with
each. Neighboring lanes have neighboring rows, which a pitch of an odd number of cells puts into
different banks. The sums of all parts meet in LDS, where every thread adds up its elements.
"""

from __future__ import annotations

import math

from amdjax.codegen import llvm
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.gpu.accesses import BlockPointer, load_tile
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.positions import Held, Rep
from amdjax.codegen.llvm import I32, Type, Value
from amdjax.targets.mma import CELL_BYTES
from amdjax.tile import Buffer, itemsize, ops

__all__ = ["LOWERINGS"]

LOWERINGS = Lowerings()


@LOWERINGS.of(ops.ScratchProduct)
def lower_scratch_product(g: GpuEmitter, op: ops.ScratchProduct) -> list[Rep]:
    for buffer in (op.a, op.b):
        g.buffers.access(buffer, "read")
    return [Held(x) for x in _ScratchProduct(g, op).sums()]


class _ScratchProduct:
    def __init__(self, g: GpuEmitter, op: ops.ScratchProduct):
        self.g, self.f, self.op = g, g.f, op
        self.dtype, (rows, columns) = op.results[0].dtype, op.results[0].shape
        self.tile, self.shape = (rows, columns), (rows, columns * len(op.results))
        self.size = itemsize(self.dtype)
        self.cell = CELL_BYTES // self.size
        self.high, self.wide, deep = op.lanes
        self.parts = g.workgroup // g.isa.wave * deep
        self.each = self.shape[0] // self.high, self.shape[1] // self.wide
        t, lane = g.threads, g.threads.number
        self.row = t.apply("and", lane, self.high - 1)
        rest = t.apply("lshr", lane, self.high.bit_length() - 1)
        self.column = t.apply("and", rest, self.wide - 1)
        self.part = t.apply("lshr", rest, self.wide.bit_length() - 1)
        self.pitch = self.shape[1] + self.cell  # of sums in LDS

    def sums(self) -> list[Value]:
        """The tiles, each thread its elements."""
        g, rows = self.g, self.shape[0]
        buffer = g.buffers.temporary(self.dtype, self.parts * rows * self.pitch)
        parts = self._multiplied()
        g.buffers.access(buffer, "write")
        self._put(buffer, parts)
        g.buffers.access(buffer, "read")
        return [self._total(buffer, n * self.tile[1]) for n in range(len(self.op.results))]

    def _total(self, buffer: Buffer, column: int) -> Value:
        """The tile from a column on, over all parts of the depth."""
        layout, total = self.g.layouts.of(self.tile), None
        for number in range(self.parts):
            at = number * self.shape[0] * self.pitch + column
            place = BlockPointer(buffer, at, (self.pitch, 1), math.gcd(self.cell, column))
            part = load_tile(self.g, place, self.dtype, layout)
            total = part if total is None else self.f.add(total, part)
        assert total is not None
        return total

    def _multiplied(self) -> list[Value]:
        """A lane's sums over its part of the depth, row by row."""
        f, op, element = self.f, self.op, self.g.types.memory(self.dtype)
        cells = Type(element.elem, self.cell)
        own = self.g.threads.apply("mul", self.part, CELL_BYTES)
        start = f.int_resize(self.g.scalar(op.offset), "i32", False)
        moved = f.add(own, f.mul(start, llvm.const(I32, self.size)))
        a = self._lines(op.a, self.row, self.high, op.pitches[0], self.each[0], own)
        b = self._lines(op.b, self.column, self.wide, op.pitches[1], self.each[1], moved)

        def step(number: Value, sums: list[Value]) -> list[Value]:
            at = f.mul(number, llvm.const(I32, self.parts * CELL_BYTES))
            x, y = (
                [f.load(cells, f.gep(line, at, Type("i8")), CELL_BYTES) for line in lines]
                for lines in (a, b)
            )
            for i in range(self.cell):
                xs, ys = [f.extract(v, i) for v in x], [f.extract(v, i) for v in y]
                pairs = [(p, q) for p in xs for q in ys]
                sums = [f.fma(p, q, s) for (p, q), s in zip(pairs, sums, strict=True)]
            return sums

        rounds = op.depth // (self.cell * self.parts)
        zeros = [llvm.zero(element)] * (self.each[0] * self.each[1])
        return f.loop(llvm.const(I32, 0), llvm.const(I32, rounds), 1, zeros, step)

    def _lines(
        self, buffer: Buffer, first: Value, apart: int, pitch: int, count: int, moved: Value
    ) -> list[Value]:
        """Addresses of every `apart`th line from a lane's first on, moved by some bytes."""
        t, f, nbytes = self.g.threads, self.f, pitch * self.size
        base = f.gep(self.g.buffers.address(buffer), t.apply("mul", first, nbytes), Type("i8"))
        base = f.gep(base, moved, Type("i8"))
        return [f.gep(base, i * apart * nbytes, Type("i8")) for i in range(count)]

    def _put(self, buffer: Buffer, parts: list[Value]) -> None:
        """A lane's sums to their places in LDS."""
        t, f, g = self.g.threads, self.f, self.g
        places = [
            t.apply("mul", self.part, self.shape[0] * self.pitch * self.size),
            t.apply("mul", self.row, self.pitch * self.size),
            t.apply("mul", self.column, self.size),
        ]
        base = f.gep(g.buffers.address(buffer), t.total(places), Type("i8"))
        for n, x in enumerate(parts):
            i, j = divmod(n, self.each[1])
            at = (i * self.high * self.pitch + j * self.wide) * self.size
            f.store(x, f.gep(base, at, Type("i8")), self.size)
