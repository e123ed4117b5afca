"""A product of tiles by the matrix unit: the left operand from registers, the right one from LDS.

The left operand is taken as it lies where lanes hold the rows that the instruction wants of them,
in whatever order of the depth: the right one is put into LDS in the same order, as cells like those
of `Contract`. So what is computed of the sums of one product is an operand of the next as it is.
Where lanes can read cells transposed, in the order that sums have, they hold neighboring columns
instead, as operands lie in memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from amdjax.codegen.gpu.emitter import GpuEmitter
from amdjax.codegen.gpu.fragments import (
    FragmentLayout,
    OperandOrder,
    accumulator_layout,
    bit_digits,
    operand_layout,
    operand_order,
    rectangles,
)
from amdjax.codegen.gpu.layout_assignment import dot_tiling
from amdjax.codegen.gpu.matrix import emit_digits, i32, lds_address, log2, multiplier
from amdjax.codegen.gpu.operand_formats import rounded_to_xf32
from amdjax.codegen.gpu.registers import joined, register
from amdjax.codegen.llvm import Type, Value
from amdjax.targets.mma import CELL_BYTES, SharedLayout, digits_of
from amdjax.tile import itemsize, ops

CELL = Type("i32", 4)


class TileProduct:
    """One product in a kernel.

    Args:
      g: the kernel being written.
      op: with a tiling.
    """

    def __init__(self, g: GpuEmitter, op: ops.Dot):
        self.g, self.f, self.op = g, g.f, op
        self.tiling, wave = dot_tiling(g.isa.target, op), g.isa.wave
        self.atom = self.tiling.atom
        self.lane = g.lane_number()
        self._left, order = self._left_operand(wave)
        self.depth = bit_digits(order.depth)
        b = g.layout(op.b)
        if not isinstance(b, FragmentLayout):
            b = rectangles(op.b.shape, g.workgroup, itemsize(op.b.dtype))
        self.source = b
        self.is_read_across = self._reads_across(order)
        self.shared = self._shared_layout()

    def sums(self) -> Value:
        """The accumulators of a thread."""
        f, op, tiling, atom = self.f, self.op, self.tiling, self.atom
        memory = self._bring()
        held = self.g.in_layout(op.acc, accumulator_layout(tiling, self.g.isa.wave))
        n = len(atom.elements)
        high, wide = tiling.fragments
        parts = [f.shuffle(held, None, range(x * n, x * n + n)) for x in range(high * wide)]
        multiply = multiplier(atom)
        each = max(1, atom.cell_depth // atom.step)
        address = self._read_address()
        for s in range(tiling.depth // atom.depth):
            a = [self._left_words(i, s) for i in range(high)]
            for columns in self._together(wide):
                b = {j: self._right_words(memory, address, j, s) for j in columns}
                for part, i, j in itertools.product(range(each), range(high), columns):
                    x, y = cut_lines(a[i], part, each), cut_lines(b[j], part, each)
                    at = i * wide + j
                    parts[at] = multiply(f, x, y, parts[at])
                if not tiling.stages:
                    self.g.isa.begin_region(f)
        return joined(f, parts)

    def _rounded(self, x: Value) -> Value:
        """Elements of an operand, as they are multiplied."""
        return rounded_to_xf32(self.f, x) if self.atom.operand == "xf32" else x

    def _together(self, wide: int) -> list[range]:
        """Fragments of the right operand that are read before any is multiplied."""
        return [range(wide)] if self.tiling.stages else [range(j, j + 1) for j in range(wide)]

    # The left operand

    def _left_operand(self, wave: int) -> tuple[list[Value], OperandOrder]:
        """For each line of a lane the words that it has of it, and their order."""
        g, a = self.g, self.op.a
        layout = g.layout(a)
        order = None
        if isinstance(layout, FragmentLayout):
            order = operand_order(layout, self.tiling, wave)
        if order is None:
            layout = operand_layout(self.tiling, wave)
            order = operand_order(layout, self.tiling, wave)
            assert order is not None
        x = self._rounded(g.in_layout(a, layout))
        return [self._line_words(x, line, order.lane) for line in order.lines], order

    def _line_words(self, x: Value, line: tuple[int, ...], lane: int) -> Value:
        """Registers of a line, of all lanes that share it, as words."""
        f, per = self.f, max(4 // itemsize(self.op.a.dtype), 1)
        own = [r for r in line if r >= 0]
        kind = Type("i32", len(own) * itemsize(self.op.a.dtype) // 4)
        words = f.bitcast(f.shuffle(x, None, own), kind)
        if not lane:
            return words
        upper = self.g.threads.compare("ne", self.g.threads.apply("and", self.lane, lane), 0)
        first, second = [], []
        for i in range(kind.lanes):
            mine = f.extract(words, i)
            other = self.g.isa.partner(f, mine, lane, False)
            first.append(f.select(upper, other, mine))
            second.append(f.select(upper, mine, other))
        place = {r: i for i, r in enumerate(own)}
        order = [
            (second if r < 0 else first)[place[~r if r < 0 else r] // per] for r in line[::per]
        ]
        return joined(f, order)

    def _left_words(self, fragment: int, step: int) -> list[list[Value]]:
        """[line][word]: what a lane takes at one step in depth."""
        atom = self.atom
        lines, count = len(atom.more[0]), 4 * atom.cells
        return [
            [self.f.extract(words, step * count + w) for w in range(count)]
            for words in self._left[fragment * lines : (fragment + 1) * lines]
        ]

    # The right operand

    def _reads_across(self, order: OperandOrder) -> bool:
        """Whether cells hold neighboring columns, and lanes read them transposed.

        Threads bring whole cells then, and the depth has the order in which lanes get it: each two
        neighbors of every eight.
        """
        atom, source = self.atom, self.source
        if not (self.g.isa.transposes_cells and atom.kind == "mma" and atom.operand_bytes == 2):
            return False
        wanted = tuple(
            s + 8 * word + 2 * group + i
            for s in range(0, self.tiling.depth, atom.depth)
            for group in range(4)
            for word in range(4)
            for i in range(2)
        )
        whole = source.minor_axis == 1 and source.width >= atom.cell
        return whole and atom.depth == 32 and order.depth == wanted

    def _shared_layout(self) -> SharedLayout:
        """Cells, whose lines lie apart where a thread has several."""
        source, depth = self.source, self.tiling.depth
        if self.is_read_across:  # a slice is a step in depth, its lines are groups of columns
            return SharedLayout(self.tiling.columns // self.atom.cell, depth)
        lines = sorted({line for _, line in source.elements})
        interleave = 1
        while lines[: 2 * interleave] == list(range(2 * interleave)):
            interleave *= 2
        interleave = min(interleave, self.atom.cell, self.tiling.columns)
        return SharedLayout(self.tiling.columns, depth // self.atom.cell_depth, interleave)

    def _bring(self) -> Value:
        """The tile in LDS; the address of its first cell."""
        g, f = self.g, self.f
        x = self._rounded(g.in_layout(self.op.b, self.source))
        buffer = g.buffers.reserved(self.shared.cells * CELL_BYTES)
        g.buffers.access(buffer, "write")
        memory, start = g.buffers.address(buffer), self._write_address()

        def write() -> list[Value]:
            for offset, registers in self._runs():
                one = len(registers) == 1
                part = register(f, x, registers[0]) if one else f.shuffle(x, None, registers)
                nbytes = len(registers) * self.atom.operand_bytes
                if nbytes >= 4:
                    part = f.bitcast(part, Type("i32", nbytes // 4 if nbytes > 4 else 0))
                f.store(part, lds_address(f, memory, start, offset), nbytes)
            return []

        owner = g.layouts.owner(self.source)
        if owner is None:
            write()
        else:
            g.when(owner, write)
        g.buffers.access(buffer, "read")
        return memory

    def _write_address(self) -> Value:
        """Where the first element of a thread goes, in bytes."""
        g, size, shared = self.g, self.atom.operand_bytes, self.shared

        def write() -> Value:
            f = self.f
            places = self.source.places(g.threads)[0]
            depth, line = (i32(0) if p.base is None else p.base for p in places)
            if self.is_read_across:
                start = f.mul(depth, i32(shared.slice_stride * CELL_BYTES))
                return f.add(start, f.mul(line, i32(size)))
            at = emit_digits(f, self.depth, depth)
            slice = f.lshr(at, i32(log2(self.atom.cell)))
            cell = f.add(
                f.mul(slice, i32(shared.slice_stride)), emit_digits(f, shared.line_digits, line)
            )
            inside = f.mul(f.and_(at, i32(self.atom.cell - 1)), i32(size))
            return f.add(f.mul(cell, i32(CELL_BYTES)), inside)

        return g.threads.at_head(write)

    def _runs(self) -> Iterator[tuple[int, list[int]]]:
        """Registers that are neighbors in LDS, and how far from the thread's first they go."""
        cell, size = self.atom.cell, self.atom.operand_bytes
        places = {self._place(*at): r for r, at in enumerate(self.source.elements)}
        fixed = self._low_bits()
        ordered = sorted(places)
        while ordered:
            first, run = ordered[0], 1
            while (
                2 * run <= min(cell, fixed)
                and first % (2 * run) == 0
                and ordered[: 2 * run] == list(range(first, first + 2 * run))
            ):
                run *= 2
            yield first * size, [places[first + i] for i in range(run)]
            ordered = ordered[run:]

    def _place(self, depth: int, line: int) -> int:
        """Where an element is, counted in elements."""
        cell, at = self.atom.cell, digits_of(self.depth, depth)
        if self.is_read_across:
            return self.shared.place(line // cell, depth) * cell + line % cell
        return self.shared.place(line, at // cell) * cell + at % cell

    def _low_bits(self) -> int:
        """What divides the places in a cell at which threads begin."""
        found = self.atom.cell
        if self.is_read_across:  # whole cells
            return found
        for _, modulus, scale in self.source.bases[0]:
            for i in range(modulus.bit_length() - 1):
                at = digits_of(self.depth, scale << i) % self.atom.cell
                found = math.gcd(found, at) if at else found
        return found

    def _read_address(self) -> Value:
        """Where the first cell is that a lane reads, in bytes."""
        f, atom, shared = self.f, self.atom, self.shared

        def write() -> Value:
            if self.is_read_across:
                return f.mul(self.lane, i32(shared.slice_stride * CELL_BYTES))
            line = emit_digits(f, atom.line[1], self.lane)
            slice = f.mul(
                emit_digits(f, atom.group[1], self.lane), i32(atom.cells * shared.slice_stride)
            )
            cell = f.add(slice, emit_digits(f, shared.line_digits, line))
            return f.mul(cell, i32(CELL_BYTES))

        return self.g.threads.at_head(write)

    @property
    def _slices_of_step(self) -> int:
        """Of a right operand, those that all lanes read at one step in depth."""
        return self.atom.groups * self.atom.cells

    def _right_words(
        self, memory: Value, address: Value, fragment: int, step: int
    ) -> list[list[Value]]:
        """[line][word]: what a lane takes at one step in depth."""
        f, atom = self.f, self.atom
        if self.is_read_across:
            cell = self.shared.place(fragment, step * atom.depth)
            at = lds_address(f, memory, address, cell * CELL_BYTES)
            return [self.g.isa.transposed_cells(f, at)]
        lines = []
        for more in atom.more[1]:
            words = []
            for p in range(atom.cells):
                slice = step * self._slices_of_step + p
                cell = self.shared.place(fragment * atom.n + more, slice)
                found = f.load(CELL, lds_address(f, memory, address, cell * CELL_BYTES), CELL_BYTES)
                words += [f.extract(found, i) for i in range(CELL.lanes)]
            lines.append(words)
        return lines


def cut_lines(lines: list[list[Value]], part: int, parts: int) -> list[list[Value]]:
    """One of so many parts of the words of each line."""
    size = len(lines[0]) // parts
    return [words[part * size : (part + 1) * size] for words in lines]
