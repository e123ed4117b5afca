"""Products of bfloat16 and of bytes on AMX, the matrix unit of x86 CPUs.

A step of it is 64 bytes deep. Operands are packed by line and in words (`words.py`). Sums, float32
or int32, go through memory.

The unit rounds each sum to nearest even, and takes subnormal numbers, of its operands and of its
sums, as zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from amdjax import tile
from amdjax.kernels.products.contraction import Contraction, ProductProblem, TileShape
from amdjax.kernels.products.cpu.blocking import (
    Blocking,
    block_cycles,
    blockings,
)
from amdjax.kernels.products.cpu.costs import nanoseconds
from amdjax.kernels.products.cpu.packed import Block, PackedProduct
from amdjax.kernels.products.cpu.packing import PanelPacker
from amdjax.kernels.products.cpu.reading import Part
from amdjax.kernels.products.cpu.words import WORDS, WordPacker, WordPlan, WordRows, takes_words
from amdjax.kernels.products.writing import store_tile
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Solver
from amdjax.targets.cpu import AMX_ROW_BYTES, AMX_ROWS, CpuCosts, CpuTarget
from amdjax.tile import itemsize

Value = tile.Value


@dataclass(frozen=True)
class AmxPlan(WordPlan):
    """A packed product whose tiles AMX computes."""

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return AmxProduct(ctx, self).calls()

    def __str__(self) -> str:
        return f"AMX product of {self.problem} of {self.types[0]}, {self.blocking}"


def amx_plans(product: ProductProblem, target: CpuTarget) -> list[AmxPlan]:
    """Plans of different blocks."""
    p = product.merged
    return [AmxPlan.of(p, cut) for cut in _cuts(p, target)]


def _cuts(problem: Contraction, target: CpuTarget) -> list[Blocking]:
    """Blocks of a product; none where machine or layout have no use of AMX."""
    a, b = problem.a, problem.b
    types = (a.dtype, b.dtype)
    accumulators = "f32" if types == ("bf16", "bf16") else "i32"
    if not set(types) <= set(target.matrix_dtypes) or not takes_words(problem, accumulators):
        return []
    size = itemsize(a.dtype)
    high, wide = (2 if n > AMX_ROWS else 1 for n in (problem.at_hand.rows, problem.at_hand.columns))
    shape = AmxShape(high * AMX_ROWS, wide, WORDS, grain=AMX_ROW_BYTES // size)
    return blockings(problem, target, shape, size, shape.grain)


def amx_cost(product: ProductProblem, plan: AmxPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    size = itemsize(plan.problem.a.dtype)
    return nanoseconds(block_cycles(plan.problem, target, plan.blocking, size), target)


AMX = Solver("AMX", amx_plans, amx_cost)


@dataclass(frozen=True)
class AmxShape(TileShape):
    """A square of sums that registers of the unit hold.

    Args:
      grain: elements that a step takes of each row.
    """

    grain: int = 32

    def cycles(self, costs: CpuCosts) -> float:
        """Cycles of one element in depth: a step of each register, and loads it waits for."""
        return 1.3 * AMX_ROWS * (self.rows // AMX_ROWS) * self.vectors / self.grain


class AmxProduct(PackedProduct):
    """A packed product whose tiles AMX computes."""

    def __init__(self, ctx: ShapedContext, plan: AmxPlan):
        self.types, self.element = plan.types, plan.element
        super().__init__(ctx, plan.problem, plan.blocking)

    def make_packer(self) -> PanelPacker:
        return WordPacker(
            self.ctx, self.problem, self.blocking.tile.columns, self.target, self.element
        )

    def _place_rows(self) -> None:
        self.rows = WordRows(self.program, self.a_reader, self.problem, self.blocking, self.element)
        self.a, self.stride, self.by_line = self.rows.buffer, self.rows.stride, True

    def _pack_a(self, part: Part, high: Value) -> None:
        self.rows.pack(part, high)

    def _tile(self, block: Block, i: Value, first: Value, j: Value, shape: TileShape) -> None:
        program, k, blocking = self.program, self.k, self.blocking
        if self.shared:
            b_base = self._panel(block.panel + j) + block.start * shape.columns
        else:
            b_base = j * (self.panel_depth * shape.columns)
        c_base = k.const("index", 0)
        if self.partial:
            place = j * program.num("block.rows", blocking.rows) + i
            c_base = place * (shape.rows * shape.columns)
        row, column = block.row + first, (block.panel + j) * shape.columns
        self._prefetch_result(row, column, block.last, shape)
        k.amx_product(
            self.types,
            (self.a, first * self.stride, self.stride),
            (self.panels, b_base),
            (self.c, c_base),
            (shape.rows, shape.columns),
            (block.stop - block.start + (self.packer.lanes - 1)) // self.packer.lanes,
            k.const("bool", True) if block.first is True else block.first,
        )
        if block.last is True:
            self._store(row, column, c_base)
        else:
            k.if_(block.last, lambda: self._store(row, column, c_base))

    def _store(self, row: Value, column: Value, c_base: Value) -> None:
        """Store a finished tile: unmasked where it is whole and plain."""
        k, program, shape = self.k, self.program, self.blocking.tile
        rows = k.min(program.num("rows", self.problem.rows) - row, shape.rows)
        width = program.num("columns", self.problem.columns)

        def masked() -> None:
            store_tile(k, self.writer, self.c, c_base, row, rows, column, width, shape)

        def whole() -> None:
            def one(r: Value) -> None:
                at = c_base + r * shape.columns
                vectors = [
                    k.load(self.c, at + v * shape.lanes, (shape.lanes,), (1,))
                    for v in range(shape.vectors)
                ]
                self.writer.store_rows(row + r, column, [vectors])

            k.for_(0, rows, 1, one)

        if self.writer.is_plain:
            k.if_((column + shape.columns) <= width, whole, masked)
        else:
            masked()
