"""A product of tiles by multiply-adds of lanes that share rows.

Lanes hold of the left operand what they would hold of sums: of a few rows each a part, eight lanes
a row. At a step in depth the lane that has it tells the others, by a permutation among eight; the
right operand is read from LDS, where all have its columns.
"""

from __future__ import annotations

import itertools

from amdjax.codegen.gpu.fragments import OperandOrder, accumulator_layout, operand_layout
from amdjax.codegen.gpu.registers import joined, register
from amdjax.codegen.gpu.tile_product import TileProduct
from amdjax.codegen.llvm import F32, I32, Value

TOGETHER = 2  # fragments of the right operand that are read while others are multiplied


class RowProduct(TileProduct):
    """One product in a kernel."""

    def sums(self) -> Value:
        f, tiling, each = self.f, self.tiling, len(self.atom.elements)
        memory = self._bring()
        held = self.g.in_layout(self.op.acc, accumulator_layout(tiling, self.g.isa.wave))
        high, wide = tiling.fragments
        sums = [register(f, held, x) for x in range(high * wide * each)]
        address = self._read_address()
        slices, parts = range(tiling.depth // self.atom.cell_depth), range(0, wide, TOGETHER)
        units = list(itertools.product(slices, parts))
        following = self._columns(memory, address, *units[0])
        shared: dict[tuple[int, int, int], Value] = {}
        for number, (s, first) in enumerate(units):
            columns = following
            if number + 1 < len(units):
                following = self._columns(memory, address, *units[number + 1])
            if not first:
                shared = self._shared_words(s)
            for (i, step, r), x in shared.items():
                for j, lines in enumerate(columns):
                    for c, line in enumerate(lines):
                        at = (i * wide + first + j) * each + r * len(lines) + c
                        sums[at] = f.fma(x, line[step], sums[at])
            self.g.isa.begin_region(f)
        # Where only some lanes store their sums LLVM would multiply under their mask, and those
        # that are masked off tell the others nothing.
        return joined(f, [self.g.isa.computed_here(f, x) for x in sums])

    def _left_operand(self, wave: int) -> tuple[list[Value], OperandOrder]:
        """The words of a lane; the depth has its own order."""
        f, tiling, atom = self.f, self.tiling, self.atom
        x = self.g.in_layout(self.op.a, operand_layout(tiling, wave))
        count = tiling.fragments[0] * (tiling.depth // atom.n) * len(atom.elements)
        # LLVM would tell all lanes before a loop what they need in it.
        words = [self.g.isa.computed_here(f, register(f, x, i)) for i in range(count)]
        return [f.bitcast(x, I32) for x in words], OperandOrder(0, (), tuple(range(tiling.depth)))

    def _shared_words(self, slice: int) -> dict[tuple[int, int, int], Value]:
        """By fragment, step and row of a lane: the left operand, which a lane tells the others."""
        f, atom, rows = self.f, self.atom, len(self.atom.more[0])
        found = {}
        for i, step in itertools.product(range(self.tiling.fragments[0]), range(atom.cell_depth)):
            part, place = divmod(slice * atom.cell_depth + step, atom.n)
            lane, column = divmod(place, atom.step)
            fragment = (i * (self.tiling.depth // atom.n) + part) * len(atom.elements)
            for r in range(rows):
                own = self._left[fragment + r * atom.step + column]
                found[i, step, r] = f.bitcast(self.g.isa.of_eight(f, own, lane), F32)
        return found

    @property
    def _slices_of_step(self) -> int:
        return 1

    def _columns(
        self, memory: Value, address: Value, slice: int, first: int
    ) -> list[list[list[Value]]]:
        """[fragment][column][step]: what a lane takes of its columns at the steps of a slice."""
        last = min(first + TOGETHER, self.tiling.fragments[1])
        return [
            [
                [self.f.bitcast(word, F32) for word in line]
                for line in self._right_words(memory, address, j, slice)
            ]
            for j in range(first, last)
        ]
