"""What all loops of products share: lanes, LDS, and how sums leave the matrix unit."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from amdjax.codegen import llvm
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.matrix import emit_digits, i32, lds_address, log2
from amdjax.codegen.gpu.positions import Deferred
from amdjax.codegen.gpu.registers import joined
from amdjax.codegen.gpu.rounding import converted_together, together
from amdjax.codegen.llvm import Value
from amdjax.targets.mma import CELL_BYTES, Digits, Tiling
from amdjax.tile import TileType

BANKED = 8  # cells that all banks of LDS hold
BANK_BYTES = 4


class Product(ABC):
    """One product, from the first load to sums in the layout of every tile.

    Args:
      g: the kernel being written.
      tiling: how the workgroup divides the work.
    """

    def __init__(self, g: GpuEmitter, tiling: Tiling):
        self.g, self.f, self.tiling, self.atom = g, g.f, tiling, tiling.atom
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
        """The sums of each fragment, as the atom has them.

        Args:
          start: of the depth, of the dtype of an index.
          stop: of the depth; a multiple of the tiling's from `start` unless `ragged`.
          ragged: the last tile may reach over `stop`.
        """

    def last_tile(self, start: Value, stop: Value) -> Value:
        """Where the last tile begins; where there is nothing to sum, a place that exists."""
        last = self.f.sub(stop, llvm.const(start.type, self.tiling.depth))
        return self.f.intrinsic("smax", start.type, last, start)

    def lds(self, nbytes: int) -> Value:
        """LDS for this product; earlier users of the same memory are waited for."""
        buffer = self.g.buffers.temporary("u8", nbytes)
        self.g.buffers.access(buffer, "write")
        return self.g.buffers.address(buffer)

    def barrier(self) -> None:
        """Threads wait for what others did to LDS."""
        self.g.isa.barrier(self.f, self.g.workgroup // self.wave_size, only_lds=True)


@dataclass(frozen=True)
class Slicing:
    """How a product's accumulators pass through LDS.

    As many rows of fragments of all waves at a time as it takes to give every thread something;
    where that is too much, those of one row of waves.

    Args:
      vector: neighbors that a thread has of a row.
      stride: elements of all threads' vectors, from one vector of a thread to its next.
      fragments: rows of fragments that pass at a time.
      by_wave: whether one row of waves passes at a time.
      height: rows of the result that pass at a time.
      columns: of the result that pass at a time.
      row_bytes: of LDS.
    """

    vector: int
    stride: int
    fragments: int
    by_wave: bool
    height: int
    columns: int
    row_bytes: int

    @classmethod
    def of(
        cls, tiling: Tiling, columns: int, workgroup: int, vector: int, memory_bytes: int, size: int
    ) -> Slicing:
        """The slicing for a workgroup.

        Args:
          tiling: of the product.
          columns: of the result that pass at a time.
          workgroup: threads.
          vector: neighbors that a thread has of a tile where it has as many.
          memory_bytes: LDS that the operands take, which slices may take again.
          size: bytes of an element.
        """
        atom, waves = tiling.atom, tiling.waves[0]
        vector = min(vector, max(tiling.rows * columns // workgroup, 1))
        high = max(workgroup * vector // columns, 1)  # rows with a vector of every thread
        row_bytes = columns * size
        fragments = max(high // (atom.m * waves), 1)
        whole = fragments * atom.m * waves * row_bytes
        by_wave = waves > 1 and high <= atom.m and whole > max(memory_bytes, 16 << 10)
        height = fragments * atom.m * (1 if by_wave else waves)
        return cls(vector, workgroup * vector, fragments, by_wave, height, columns, row_bytes)

    def passes(self, tiling: Tiling) -> Iterator[tuple[int, int | None]]:
        """First row of fragments of each pass, and which row of waves; None for all."""
        waves = range(tiling.waves[0]) if self.by_wave else (None,)
        return itertools.product(range(0, tiling.fragments[0], self.fragments), waves)


class Accumulators(Deferred):
    """A product's accumulators, on their way from where the atom has them to where all tiles do.

    They pass through LDS in slices, so that they come row by row, and those that are not yet asked
    for stay in their registers.

    Args:
      product: which they are of.
      fragments: the accumulators of each.
    """

    def __init__(self, product: Product, fragments: list[Value]):
        self.product, self.fragments = product, fragments
        self._run = run_length(product.atom.elements)
        self._column = -1

    def _begin(self, column: int, columns: int, dtype: str) -> None:
        """At the first row of the columns that begin with one."""
        g, product, sums = self.product.g, self.product, self.product.atom.accumulator
        # Rounded first, they take less LDS; but no bank takes less than its four bytes at once.
        early = self._run * g.types.bytes(dtype) >= BANK_BYTES
        self._column, self._dtypes = column, (dtype if early else sums, dtype)
        self.size = g.types.bytes(self._dtypes[0])
        self.slicing = Slicing.of(
            product.tiling, columns, g.workgroup, g.layouts.vector, product.memory_bytes, self.size
        )
        self._passes = self.slicing.passes(product.tiling)
        self._taken: list[Value] = []

    def rows(self, part: TileType, column: int) -> list[Value]:
        """The next rows of columns: the thread's elements, in vectors of neighbors."""
        g, (count, columns) = self.product.g, part.shape
        if column != self._column:
            self._begin(column, columns, part.dtype)
        slicing = self.slicing
        g.isa.begin_region(g.f)  # lest LLVM compute with several slices at once
        parts = max(count * slicing.columns // slicing.stride, 1)
        while len(self._taken) < parts:
            buffer = g.buffers.temporary("u8", slicing.height * slicing.row_bytes)
            g.buffers.access(buffer, "write")
            self._put(g.buffers.address(buffer), *next(self._passes))
            g.buffers.access(buffer, "read")
            self._taken += self._take(g.buffers.address(buffer))
        found, self._taken = self._taken[:parts], self._taken[parts:]
        return found

    def _put(self, memory: Value, first: int, only: int | None) -> None:
        """Rows of fragments from `first` to LDS, of all waves or of one row of them."""
        product, atom = self.product, self.product.atom
        f, (high, wide) = product.f, product.waves
        high_waves, wide_waves = product.tiling.waves
        run, dtypes = self._run, (atom.accumulator, self._dtypes[0])
        ours = range(self._column, self._column + self.slicing.columns)
        each = together(product.g, run, *dtypes)

        def write() -> list[Value]:
            row = emit_digits(f, atom.row, product.lane)
            if only is None:
                row = f.add(row, f.mul(high, i32(atom.m)))
            column = f.add(emit_digits(f, atom.column, product.lane), f.mul(wide, i32(atom.n)))
            place = self._places(row, column)
            width, runs = product.tiling.fragments[1], list[tuple[Value, Value]]()

            def store() -> None:
                found = converted_together(product.g, [x for x, _ in runs], *dtypes)
                for x, (_, to) in zip(found, runs, strict=True):
                    f.store(x, to, math.gcd(run * self.size, CELL_BYTES))
                runs.clear()

            for i, j in itertools.product(range(self.slicing.fragments), range(width)):
                c = self.fragments[(first + i) * width + j]
                for e in range(0, len(atom.elements), run):
                    r, at = atom.elements[e]
                    r, at = i * atom.m * high_waves + r, j * atom.n * wide_waves + at
                    if at not in ours:
                        continue
                    x = f.shuffle(c, None, range(e, e + run)) if c.type.lanes else c
                    runs.append((x, lds_address(f, memory, *place(r, at - self._column))))
                    if len(runs) == each:
                        store()
            store()
            return []

        if only is None:
            write()
        else:
            f.if_(f.icmp("eq", high, i32(only)), write)

    def _take(self, memory: Value) -> list[Value]:
        """The thread's vectors of what `_put` wrote."""
        f, columns = self.product.f, self.slicing.columns
        at = f.mul(self.product.thread, i32(self.slicing.vector))
        row, column = f.lshr(at, i32(log2(columns))), f.and_(at, i32(columns - 1))
        place = self._places(row, column)
        each = min(self.slicing.vector, CELL_BYTES // self.size)  # of one cell
        kind = self.product.g.types.vector(self._dtypes[0], each if self.slicing.vector > 1 else 1)
        each_time = together(self.product.g, self.slicing.vector, *self._dtypes)
        out, some = list[Value](), list[Value]()
        for e in range(0, self.slicing.height * columns, self.slicing.stride):
            r, c = divmod(e, columns)
            parts = [
                f.load(kind, lds_address(f, memory, *place(r, c + x)), each * self.size)
                for x in range(0, self.slicing.vector, each)
            ]
            some.append(joined(f, parts))
            if len(some) == each_time:
                out += converted_together(self.product.g, some, *self._dtypes)
                some = []
        return out + converted_together(self.product.g, some, *self._dtypes)

    def _places(self, row: Value, column: Value) -> Callable[[int, int], tuple[Value, int]]:
        """`at(r, c)`: where the element `r` rows and `c` columns on is, in bytes.

        The cells of a row are exchanged by the reversed bits of its number, so that neither rows
        nor columns of fragments meet in banks. In every second group of them neighbors are
        exchanged too, so that threads which read two each find the first ones in all banks.
        Numbers that are added have no bits in common.
        """
        f, group = self.product.f, min(self.slicing.row_bytes, BANKED * CELL_BYTES)
        start = f.mul(row, i32(self.slicing.row_bytes))
        offset = f.mul(column, i32(self.size))
        if group < self.slicing.row_bytes:
            offset = f.xor(offset, emit_digits(f, ((group, 2, CELL_BYTES),), offset))
        known: dict[tuple[int, int, int], Value] = {}

        def at(r: int, c: int) -> tuple[Value, int]:
            far, near = divmod(c * self.size, group)
            key = r % BANKED, near, far % 2
            if key not in known:
                exchange = emit_digits(f, _reversed(group), f.add(row, i32(key[0])))
                here = f.xor(offset, i32(near ^ key[2] * CELL_BYTES))
                known[key] = f.add(start, f.xor(here, exchange))
            return known[key], r * self.slicing.row_bytes + far * group

        return at


def _reversed(nbytes: int) -> Digits:
    """By which bytes cells of a row are exchanged, from its number."""
    bits = log2(nbytes // CELL_BYTES)
    digits = ((1 << i, 2, CELL_BYTES << (bits - 1 - i)) for i in range(bits))
    return tuple(digits)


def run_length(elements: Sequence[tuple[int, int]]) -> int:
    """Sums of a lane that are neighbors in a row of the result and may be stored together."""
    run = 1
    while 2 * run <= min(len(elements), 4) and all(
        elements[e + i] == (elements[e][0], elements[e][1] + i)
        for e in range(0, len(elements), 2 * run)
        for i in range(2 * run)
    ):
        run *= 2
    return run
