"""What all loops of products share: lanes, LDS, and how sums leave the matrix unit."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.matrix import (
    CELL_BYTES,
    Digits,
    Tiling,
    emit_digits,
    i32,
    lds_address,
    log2,
)
from amdjax.codegen.gpu.positions import Deferred
from amdjax.codegen.gpu.registers import joined
from amdjax.codegen.llvm import Value

BANKED = 8  # cells that all banks of LDS hold


class Product(ABC):
    """One product, from the first load to sums in the layout of every tile.

    Args:
      g: the kernel being written.
      tiling: how the workgroup divides the work.
    """

    def __init__(self, g: GpuEmitter, tiling: Tiling):
        self.g, self.f, self.tiling, self.unit = g, g.f, tiling, tiling.unit
        self.wave_size, self.thread = g.isa.wave, g.threads.number
        self.lane = self.f.and_(self.thread, i32(self.wave_size - 1))
        wave = g.uniform(self.f.lshr(self.thread, i32(log2(self.wave_size))))
        across = i32(log2(tiling.waves[1]))
        self.waves = (self.f.lshr(wave, across), self.f.and_(wave, i32(tiling.waves[1] - 1)))

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """LDS that the operands take."""

    @abstractmethod
    def accumulated(self, start: Value, stop: Value, ragged: bool) -> list[Value]:
        """The sums of each fragment, as the unit has them.

        Args:
          start: of the depth, of the dtype of an index.
          stop: of the depth; a multiple of the tiling's from `start` unless `ragged`.
          ragged: the last tile may reach over `stop`.
        """

    def lds(self, nbytes: int) -> Value:
        """LDS for this product; earlier users of the same memory are waited for."""
        buffer = self.g.buffers.temporary("u8", nbytes)
        self.g.buffers.access(buffer, "write")
        return self.g.buffers.address(buffer)

    def barrier(self) -> None:
        """Threads wait for what others did to LDS."""
        self.g.isa.barrier(self.f, self.g.workgroup // self.wave_size, only_lds=True)


class Accumulators(Deferred):
    """A product's sums, on their way from where the unit has them to where all tiles do.

    They pass through LDS, as many rows of fragments of all waves at a time as it takes to give
    every thread something; where that is too much, those of one row of waves. So they come row by
    row, and those that are not yet asked for stay in their registers.

    Args:
      product: which they are of.
      fragments: the sums of each.
    """

    def __init__(self, product: Product, fragments: list[Value]):
        self.product, self.fragments = product, fragments
        g, tiling, unit = product.g, product.tiling, product.unit
        self.size = unit.accumulators.bits // 8
        self.vector = min(
            g.kernel.schedule.vector, max(tiling.rows * tiling.columns // g.workgroup, 1)
        )
        self.across = g.workgroup * self.vector
        high = max(self.across // tiling.columns, 1)  # rows with a vector of every thread
        self.row_bytes = tiling.columns * self.size
        waves = tiling.waves[0]
        self.together = max(high // (unit.m * waves), 1)  # fragments
        whole = self.together * unit.m * waves * self.row_bytes
        self.apart = waves > 1 and high <= unit.m and whole > max(product.memory_bytes, 16 << 10)
        self.height = self.together * unit.m * (1 if self.apart else waves)
        self.taken: list[Value] = []
        self.passes = iter(
            [
                (first, wave)
                for first in range(0, tiling.fragments[0], self.together)
                for wave in (range(waves) if self.apart else (None,))
            ]
        )

    def rows(self, count: int) -> list[Value]:
        """The next rows of the result: the thread's elements, in vectors of neighbours."""
        g = self.product.g
        g.isa.begin_region(g.f)  # lest LLVM compute with several slices at once
        parts = max(count * self.product.tiling.columns // self.across, 1)
        while len(self.taken) < parts:
            buffer = g.buffers.temporary("u8", self.height * self.row_bytes)
            g.buffers.access(buffer, "write")
            self._put(g.buffers.address(buffer), *next(self.passes))
            g.buffers.access(buffer, "read")
            self.taken += self._take(g.buffers.address(buffer))
        found, self.taken = self.taken[:parts], self.taken[parts:]
        return found

    def _put(self, memory: Value, first: int, only: int | None) -> None:
        """Rows of fragments from `first` to LDS, of all waves or of one row of them."""
        product, unit = self.product, self.product.unit
        f, (high, wide) = product.f, product.waves
        high_waves, wide_waves = product.tiling.waves
        run = _run(unit.elements)

        def write() -> list[Value]:
            row = emit_digits(f, unit.row, product.lane)
            if only is None:
                row = f.add(row, f.mul(high, i32(unit.m)))
            column = f.add(emit_digits(f, unit.column, product.lane), f.mul(wide, i32(unit.n)))
            place = self._places(row, column)
            width = product.tiling.fragments[1]
            for i, j in itertools.product(range(self.together), range(width)):
                c = self.fragments[(first + i) * width + j]
                for e in range(0, len(unit.elements), run):
                    r, at = unit.elements[e]
                    r, at = i * unit.m * high_waves + r, j * unit.n * wide_waves + at
                    x = f.shuffle(c, None, range(e, e + run)) if c.type.lanes else c
                    to = lds_address(f, memory, *place(r, at))
                    f.store(x, to, math.gcd(run * self.size, CELL_BYTES))
            return []

        if only is None:
            write()
        else:
            f.if_(f.icmp("eq", high, i32(only)), write)

    def _take(self, memory: Value) -> list[Value]:
        """The thread's vectors of what `_put` wrote."""
        f, columns = self.product.f, self.product.tiling.columns
        at = f.mul(self.product.thread, i32(self.vector))
        row, column = f.lshr(at, i32(log2(columns))), f.and_(at, i32(columns - 1))
        place = self._places(row, column)
        each = min(self.vector, CELL_BYTES // self.size)  # of one cell
        kind = self.product.unit.accumulators.with_lanes(each if self.vector > 1 else 0)
        out = []
        for e in range(0, self.height * columns, self.across):
            r, c = divmod(e, columns)
            parts = [
                f.load(kind, lds_address(f, memory, *place(r, c + x)), each * self.size)
                for x in range(0, self.vector, each)
            ]
            out.append(joined(f, parts))
        return out

    def _places(self, row: Value, column: Value) -> Callable[[int, int], tuple[Value, int]]:
        """`at(r, c)`: where the element `r` rows and `c` columns on is, in bytes.

        The cells of a row are exchanged by the reversed bits of its number, so that neither rows
        nor columns of fragments meet in banks. In every second group of them neighbours are
        exchanged too, so that threads which read two each find the first ones in all banks.
        Numbers that are added have no bits in common.
        """
        f, group = self.product.f, min(self.row_bytes, BANKED * CELL_BYTES)
        start = f.mul(row, i32(self.row_bytes))
        offset = f.mul(column, i32(self.size))
        if group < self.row_bytes:
            offset = f.xor(offset, emit_digits(f, ((group, 2, CELL_BYTES),), offset))
        known: dict[tuple[int, int, int], Value] = {}

        def at(r: int, c: int) -> tuple[Value, int]:
            far, near = divmod(c * self.size, group)
            key = r % BANKED, near, far % 2
            if key not in known:
                exchange = emit_digits(f, _reversed(group), f.add(row, i32(key[0])))
                here = f.xor(offset, i32(near ^ key[2] * CELL_BYTES))
                known[key] = f.add(start, f.xor(here, exchange))
            return known[key], r * self.row_bytes + far * group

        return at


def _reversed(nbytes: int) -> Digits:
    """By which bytes cells of a row are exchanged, from its number."""
    bits = log2(nbytes // CELL_BYTES)
    digits = ((1 << i, 2, CELL_BYTES << (bits - 1 - i)) for i in range(bits))
    return tuple(digits)


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
