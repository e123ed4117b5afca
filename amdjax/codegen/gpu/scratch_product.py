"""Products by lines that stay in LDS, in parts of the depth whose sums meet there.

By multiply-adds of vector lanes, waves, and groups of lanes where the tile is small, sum parts of
the depth for the whole tile, a lane for a few rows and columns of it: it reads 16 bytes of each of
them and multiplies each with each. Neighboring lanes have neighboring rows, which a pitch of an odd
number of cells puts into different banks.

By the matrix unit each wave has a part. What it takes of the left operand no other one does, so
that comes from memory into registers, ahead of what is multiplied.

Every thread adds up its elements of all parts.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import Lowerings
from amdjax.codegen.gpu.accesses import BlockPointer, load_tile, pointer
from amdjax.codegen.gpu.accumulators import run_length
from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.matrix import accumulator_type, emit_digits, i32, multiplier
from amdjax.codegen.gpu.positions import Held, Rep
from amdjax.codegen.gpu.tile_product import cut_lines
from amdjax.codegen.llvm import I32, Type, Value
from amdjax.core.integers import ceil_div
from amdjax.targets.mma import CELL_BYTES, MmaAtom, mma_atoms
from amdjax.tile import Buffer, itemsize, ops

LOWERINGS = Lowerings()

CELL = Type("i32", 4)
PREFETCHED = 64  # registers of a lane for what the matrix unit is yet to take


@LOWERINGS.of(ops.ScratchProduct)
def lower_scratch_product(g: GpuEmitter, op: ops.ScratchProduct) -> list[Rep]:
    for buffer in (op.a, op.b):
        g.buffers.access(buffer, "read")
    return [Held(x) for x in _LaneProduct(g, op).sums()]


@LOWERINGS.of(ops.ResidentProduct)
def lower_resident_product(g: GpuEmitter, op: ops.ResidentProduct) -> list[Rep]:
    for buffer in (op.a, op.b):
        g.buffers.access(buffer, "read")
    return [Held(x) for x in _UnitProduct(g, op).sums()]


class _PartedProduct(ABC):
    """A product whose depth is summed in parts.

    Args:
      g: the kernel being written.
      results: tiles side by side.
      parts: of the depth.
    """

    def __init__(self, g: GpuEmitter, results: Sequence[tile.Value], parts: int):
        self.g, self.f, self.parts, self.count = g, g.f, parts, len(results)
        self.dtype, self.tile = results[0].dtype, results[0].shape
        self.shape = self.tile[0], self.tile[1] * self.count
        self.size = itemsize(self.dtype)
        self.cell = CELL_BYTES // self.size
        self.pitch = self.shape[1] + self.cell  # of sums in LDS

    @abstractmethod
    def _multiplied(self) -> list[Value]:
        """What a lane has of the sums of its part."""

    @abstractmethod
    def _put(self, buffer: Buffer, parts: list[Value]) -> None:
        """A lane's sums to their places in LDS."""

    def sums(self) -> list[Value]:
        """The tiles, each thread its elements."""
        g, rows = self.g, self.shape[0]
        buffer = g.buffers.temporary(self.dtype, self.parts * rows * self.pitch)
        parts = self._multiplied()
        g.buffers.access(buffer, "write")
        self._put(buffer, parts)
        g.buffers.access(buffer, "read")
        return [self._total(buffer, n * self.tile[1]) for n in range(self.count)]

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


class _LaneProduct(_PartedProduct):
    def __init__(self, g: GpuEmitter, op: ops.ScratchProduct):
        self.op = op
        self.high, self.wide, deep = op.lanes
        super().__init__(g, op.results, g.workgroup // g.isa.wave * deep)
        self.each = self.shape[0] // self.high, self.shape[1] // self.wide
        t, lane = g.threads, g.threads.number
        self.row = t.apply("and", lane, self.high - 1)
        rest = t.apply("lshr", lane, self.high.bit_length() - 1)
        self.column = t.apply("and", rest, self.wide - 1)
        self.part = t.apply("lshr", rest, self.wide.bit_length() - 1)

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


class _UnitProduct(_PartedProduct):
    def __init__(self, g: GpuEmitter, op: ops.ResidentProduct):
        self.op, self.atom = op, _atom(g, op)
        super().__init__(g, op.results, g.workgroup // g.isa.wave)
        self.high, self.wide = self.shape[0] // self.atom.m, self.shape[1] // self.atom.n
        self.lane = g.lane_number()
        self.wave = g.uniform(self.f.lshr(g.threads.number, i32(g.isa.wave.bit_length() - 1)))
        self.step = self.parts * self.atom.depth  # elements of depth that all waves take
        self.itemsize = self.atom.operand_bytes

    def _multiplied(self) -> list[Value]:
        """The sums of each atom, row by row."""
        g, f, known = self.g, self.f, min(self.g.kernel.align, CELL_BYTES)
        if known == CELL_BYTES:
            return self._summed(known)
        rest = f.and_(g.buffers.low_bits(self.op.a), i32(CELL_BYTES - 1))
        aligned = f.icmp("eq", rest, i32(0))
        return g.when(aligned, lambda: self._summed(CELL_BYTES), lambda: self._summed(known))

    def _summed(self, align: int) -> list[Value]:
        """The same for rows that begin at multiples of so many bytes."""
        f, atom = self.f, self.atom
        multiply, each = multiplier(atom), max(1, atom.cell_depth // atom.step)
        sums = [llvm.zero(accumulator_type(atom))] * (self.high * self.wide)
        rounds = range(ceil_div(self.op.depth, self.step))
        rows, columns = self._rows(), self._columns()
        distance = max(1, PREFETCHED // (self.high * len(atom.more[0]) * atom.cells * CELL.lanes))
        brought = [self._left(rows, r, align) for r in rounds[:distance]]
        for r in rounds:
            a = brought[r]
            if r + distance < len(rounds):
                brought.append(self._left(rows, r + distance, align))
            for j in range(self.wide):
                b = self._right(columns, j, r)
                for part, i in itertools.product(range(each), range(self.high)):
                    at = i * self.wide + j
                    x, y = (cut_lines(lines, part, each) for lines in (a[i], b))
                    sums[at] = multiply(f, x, y, sums[at])
        return sums

    def _first(self, side: int) -> Value:
        """The first element of depth that a lane takes of its lines."""
        f, atom = self.f, self.atom
        group = emit_digits(f, atom.group[side], self.lane)
        own = f.mul(group, i32(atom.cells * atom.cell_depth))
        return f.add(f.mul(self.wave, i32(atom.depth)), own)

    def _rows(self) -> list[list[Value]]:
        """Where a lane's lines of `a` begin, the last one for those behind it."""
        g, f, op, atom = self.g, self.f, self.op, self.atom
        last = f.int_resize(g.scalar(op.last), "i32", True)
        start, line = g.scalar(op.start), emit_digits(f, atom.line[0], self.lane)
        found = []
        for i in range(self.high):
            numbers = [f.add(line, i32(i * atom.m + more)) for more in atom.more[0]]
            numbers = [f.select(f.icmp("slt", n, last), n, last) for n in numbers]
            at = [
                f.int_resize(f.mul(n, i32(op.pitches[0])), start.type.elem, False) for n in numbers
            ]
            found.append([pointer(g, op.a, f.add(x, start)) for x in at])
        return found

    def _left(self, rows: list[list[Value]], number: int, align: int) -> list[list[list[Value]]]:
        """[fragment][line][word]: what a lane takes of `a` in a round; zeros behind the depth."""
        f, atom, moved = self.f, self.atom, number * self.step
        places = [f.add(self._first(0), i32(moved + c * atom.cell)) for c in range(atom.cells)]
        inside: list[Value] = []
        if moved + self.step > self.op.depth:
            inside = [f.icmp("slt", at, i32(self.op.depth)) for at in places]
            places = [f.select(x, at, i32(0)) for x, at in zip(inside, places, strict=True)]

        def words(line: Value) -> list[Value]:
            out = []
            for n, at in enumerate(places):
                x = f.load(CELL, f.gep(line, f.mul(at, i32(self.itemsize)), Type("i8")), align)
                x = f.select(inside[n], x, llvm.zero(CELL)) if inside else x
                out += [f.extract(x, i) for i in range(CELL.lanes)]
            return out

        return [[words(line) for line in lines] for lines in rows]

    def _columns(self) -> Value:
        """Where the first cell is that a lane reads of `b`."""
        f, t = self.f, self.g.buffers.address(self.op.b)
        line = f.mul(emit_digits(f, self.atom.line[1], self.lane), i32(self.op.pitches[1]))
        at = f.mul(f.add(line, self._first(1)), i32(self.itemsize))
        return f.gep(t, at, Type("i8"))

    def _right(self, start: Value, fragment: int, number: int) -> list[list[Value]]:
        """[line][word]: what a lane takes of columns in a round."""
        f, atom, lines = self.f, self.atom, []
        for more in atom.more[1]:
            words = []
            for c in range(atom.cells):
                line = (fragment * atom.n + more) * self.op.pitches[1]
                at = line + number * self.step + c * atom.cell
                x = f.load(CELL, f.gep(start, at * self.itemsize, Type("i8")), CELL_BYTES)
                words += [f.extract(x, i) for i in range(CELL.lanes)]
            lines.append(words)
        return lines

    def _put(self, buffer: Buffer, parts: list[Value]) -> None:
        f, g, atom = self.f, self.g, self.atom
        row, column = (emit_digits(f, d, self.lane) for d in (atom.row, atom.column))
        row = f.add(row, f.mul(self.wave, i32(self.shape[0])))
        at = f.mul(f.add(f.mul(row, i32(self.pitch)), column), i32(self.size))
        base, run = f.gep(g.buffers.address(buffer), at, Type("i8")), run_length(atom.elements)
        for n, x in enumerate(parts):
            i, j = divmod(n, self.wide)
            for e in range(0, len(atom.elements), run):
                r, c = atom.elements[e]
                place = ((i * atom.m + r) * self.pitch + j * atom.n + c) * self.size
                one = f.shuffle(x, None, range(e, e + run)) if x.type.lanes else x
                f.store(one, f.gep(base, place, Type("i8")), run * self.size)


def _atom(g: GpuEmitter, op: ops.ResidentProduct) -> MmaAtom:
    """What multiplies."""
    atoms = mma_atoms(g.isa.target, op.tiling.operand, "f32")
    return next(atom for atom in atoms if atom.name == op.tiling.instruction)
