"""What all loops of products share: lanes, LDS, and how sums leave the matrix unit."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from amdjax.codegen.gpu.matrix import (
    CELL_BYTES,
    Tiling,
    emit_digits,
    i32,
    lds_address,
    log2,
)
from amdjax.codegen.gpu.tiles import GpuTiles
from amdjax.codegen.llvm import Value


class Product(ABC):
    """One product, from the first load to sums in the layout of every tile.

    Args:
      gen: the kernel being written.
      tiling: how the workgroup divides the work.
    """

    def __init__(self, gen: GpuTiles, tiling: Tiling):
        self.gen, self.f, self.tiling, self.unit = gen, gen.f, tiling, tiling.unit
        self.wave_size, self.thread = gen.isa.wave, gen.threads.number
        self.lane = self.f.and_(self.thread, i32(self.wave_size - 1))
        wave = gen.uniform(self.f.lshr(self.thread, i32(log2(self.wave_size))))
        across = i32(log2(tiling.waves[1]))
        self.waves = (self.f.lshr(wave, across), self.f.and_(wave, i32(tiling.waves[1] - 1)))

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """LDS that the operands take."""

    @abstractmethod
    def sums(self, start: Value, stop: Value, ragged: bool) -> list[Value]:
        """The sums of each fragment, as the unit has them.

        Args:
          start: of the depth, of the dtype of an index.
          stop: of the depth; a multiple of the tiling's from `start` unless `ragged`.
          ragged: the last tile may reach over `stop`.
        """

    def write(self, start: Value, stop: Value, ragged: bool) -> list[Value]:
        """The thread's elements of the result, in vectors of neighbours."""
        return self._collected(self.sums(start, stop, ragged))

    def lds(self, nbytes: int) -> Value:
        """LDS for this product; earlier users of the same memory are waited for."""
        buffer = self.gen.temporary("u8", nbytes)
        self.gen.access(buffer, "write")
        return self.gen.addresses[buffer.name]

    def barrier(self) -> None:
        """Threads wait for what others did to LDS."""
        self.gen.isa.barrier(self.f, self.gen.workgroup // self.wave_size, only_lds=True)

    # Sums to where all tiles of this shape have them

    def _collected(self, sums: list[Value]) -> list[Value]:
        """The thread's elements, in vectors of neighbours.

        A few rows of fragments of each wave pass through LDS at a time; where even one is too much,
        those of one row of waves.
        """
        gen, tiling, m = self.gen, self.tiling, self.unit.m
        vector = min(gen.kernel.vector, max(tiling.rows * tiling.columns // gen.workgroup, 1))
        across = gen.workgroup * vector
        high = max(across // tiling.columns, 1)  # rows that one vector of every thread covers
        own = tiling.fragments[0] * m
        together = tiling.fragments[0] if high > own else max(high // m, 1)
        stride = tiling.columns + CELL_BYTES // (self.unit.sums.bits // 8)
        row_bytes = together * m * stride * self.unit.sums.bits // 8
        waves = tiling.waves[0]
        apart = high <= own and waves * row_bytes > max(self.memory_bytes, 16 << 10)
        memory = self.lds(row_bytes * (1 if apart else waves))
        out: list[Value] = []
        for w in range(waves) if apart else (None,):
            for first in range(0, tiling.fragments[0], together):
                if out:
                    self.barrier()
                self._put(sums, memory, stride, first, together, w)
                self.barrier()
                out += self._take(memory, stride, first, together, w, vector)
        return [out[i] for i in self._order(high, own, together, apart, across)]

    def _put(
        self, sums: list[Value], memory: Value, stride: int, first: int, together: int,
        only: int | None,
    ) -> None:  # fmt: skip
        """Rows of fragments `first..first+together` to LDS, of all waves or of one row of them."""
        f, unit, tiling = self.f, self.unit, self.tiling
        high, wide = self.waves
        size, width = unit.sums.bits // 8, tiling.fragments[1]
        run = _run(unit.elements)

        def write() -> list[Value]:
            row = emit_digits(f, unit.row, self.lane)
            if only is None:
                row = f.add(row, f.mul(high, i32(together * unit.m)))
            column = emit_digits(f, unit.column, self.lane)
            column = f.add(column, f.mul(wide, i32(width * unit.n)))
            base = f.mul(f.add(f.mul(row, i32(stride)), column), i32(size))
            for i in range(together):
                for j in range(width):
                    c = sums[(first + i) * width + j]
                    for e in range(0, len(unit.elements), run):
                        r, at = unit.elements[e]
                        place = ((i * unit.m + r) * stride + j * unit.n + at) * size
                        x = f.shuffle(c, None, range(e, e + run)) if c.type.lanes else c
                        align = math.gcd(run * size, CELL_BYTES)
                        f.store(x, lds_address(f, memory, base, place), align)
            return []

        if only is None:
            write()
        else:
            f.if_(f.icmp("eq", high, i32(only)), write)

    def _take(
        self, memory: Value, stride: int, first: int, together: int, only: int | None, vector: int
    ) -> list[Value]:
        """The thread's vectors of what `_put` wrote."""
        f, gen, tiling = self.f, self.gen, self.tiling
        size = self.unit.sums.bits // 8
        kind = self.unit.sums.with_lanes(vector)
        rows = together * self.unit.m * (1 if only is not None else tiling.waves[0])
        at = f.mul(gen.threads.number, i32(vector))
        wide = log2(tiling.columns)
        row, column = f.lshr(at, i32(wide)), f.and_(at, i32(tiling.columns - 1))
        base = f.mul(f.add(f.mul(row, i32(stride)), column), i32(size))
        across = gen.workgroup * vector
        out = []
        for e in range(0, rows * tiling.columns, across):
            r, c = divmod(e, tiling.columns)
            align = math.gcd(vector * size, CELL_BYTES)
            out.append(f.load(kind, lds_address(f, memory, base, (r * stride + c) * size), align))
        return out

    def _order(self, high: int, own: int, together: int, apart: bool, across: int) -> list[int]:
        """For each vector of a thread, in order, when `_take` returned it."""
        tiling, m = self.tiling, self.unit.m
        waves = [[w] for w in range(tiling.waves[0])] if apart else [list(range(tiling.waves[0]))]
        starts = []
        for group in waves:
            for first in range(0, tiling.fragments[0], together):
                rows = [w * own + first * m + r for w in group for r in range(together * m)]
                elements = len(rows) * tiling.columns
                for e in range(0, elements, across):
                    r, c = divmod(e, tiling.columns)
                    starts.append(rows[r] * tiling.columns + c)
        return sorted(range(len(starts)), key=starts.__getitem__)


def _run(elements: Sequence[tuple[int, int]]) -> int:
    """Sums of a lane that are neighbours in a row of the result and may be stored together."""
    run = 1
    while 2 * run <= min(len(elements), 4) and all(
        elements[e + i] == (elements[e][0], elements[e][1] + i)
        for e in range(0, len(elements), 2 * run)
        for i in range(2 * run)
    ):
        run *= 2
    return run
