"""Products of integers and of bfloat16 by vector instructions that sum the products in a word.

A 32-bit lane holds four bytes (VNNI), two of 16 bits, or two of bfloat16 (AVX512_BF16) of a row of
`a` or of a column of `b`, and one instruction multiplies and adds them all. Bytes become 16 bits
while they are packed where there is no VNNI: sums of two products are a 32-bit integer's.

That for bytes takes those of `a` as unsigned: signed ones are moved up by 128 while they are
packed, and sums start from -128 times the sum of the column.

That for bfloat16 adds one product after the other in float32, each sum rounded to nearest even,
whatever the mode, and takes subnormal numbers, of its operands and of its sums, as zero. Next to
float32 products of the same numbers a sum of n lacks at most n · 2^-126 for what it flushes, and
2^-126 |y| for each x that is subnormal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import (
    Contraction,
    ProductProblem,
    TileShape,
    best_tiles,
)
from amdjax.kernels.products.cpu.blocking import Blocking, block_cycles, blockings
from amdjax.kernels.products.cpu.costs import launch, nanoseconds
from amdjax.kernels.products.cpu.packed import MOST_TILES, PackedProduct
from amdjax.kernels.products.cpu.packing import PanelPacker
from amdjax.kernels.products.cpu.reading import Part
from amdjax.kernels.products.cpu.words import (
    WORDS,
    WordPacker,
    WordPlan,
    WordRows,
    takes_words,
)
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, ShapedContext, Temp
from amdjax.schedule.search import Solver
from amdjax.targets.cpu import AMX_ROW_BYTES, CpuCosts, CpuTarget
from amdjax.tile import itemsize

Value = tile.Value

UP = 128  # by how much signed bytes of `a` are moved
RUN = 8  # cycles to begin copying what lies side by side in a row of `a`

#: Of what instructions multiply, the dtype of sums.
_SUMS = {("bf16", "bf16"): "f32", ("i8", "i8"): "i32", ("u8", "i8"): "i32", ("i16", "i16"): "i32"}
_PAIRS = ("i16", "i16")
_FIT_PAIRS = {"i8", "u8", "i16"}  # integers of 16 bits and less


@dataclass(frozen=True)
class VnniPlan(WordPlan):
    """A packed product whose steps are words."""

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return VnniProduct(ctx, self).calls()

    def __str__(self) -> str:
        return f"VNNI product of {self.problem} of {self.types[0]}, {self.blocking}"


def vnni_plans(product: ProductProblem, target: CpuTarget) -> list[VnniPlan]:
    """Plans of several tiles and blocks."""
    p = product.merged
    types = _multiplied(p, target)
    if types is None or not takes_words(p, _SUMS[types]):
        return []
    cuts = _cuts(p, target, itemsize(types[0]), best_tiles(p, target)[:MOST_TILES])
    return list(dict.fromkeys(_plan(p, cut, types) for cut in cuts))


def _cuts(
    problem: Contraction, target: CpuTarget, size: int, shapes: Iterable[TileShape]
) -> Iterator[Blocking]:
    """Blocks of a product of words whose elements have `size` bytes."""
    for shape in shapes:
        if shape.columns % WORDS:
            continue
        steps = VnniShape(shape.rows, shape.vectors, shape.lanes, per=4 // size)
        yield from blockings(problem, target, steps, size, AMX_ROW_BYTES // size)


def _multiplied(problem: Contraction, target: CpuTarget) -> tuple[str, str] | None:
    """What instructions of the machine multiply for a product: its operands, or pairs they fit."""
    own = problem.a.dtype, problem.b.dtype
    if target.vector_bits >= 512 and own in _SUMS and set(own) <= set(target.dot_dtypes):
        return own
    return _PAIRS if "i16" in target.dot_dtypes and set(own) <= _FIT_PAIRS else None


def _plan(problem: Contraction, blocking: Blocking, types: tuple[str, str]) -> VnniPlan:
    if types[0] == "i8":  # sums start from those of columns, which packing all of `b` gives
        blocking = replace(blocking, splits=1, shared=True)
    return VnniPlan.of(problem, blocking, types)


def vnni_cost(product: ProductProblem, plan: VnniPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    p, blocking = plan.problem.at_hand, plan.blocking
    size, wide = itemsize(plan.types[0]), ceil_div(p.columns, blocking.tile.columns)
    cycles = block_cycles(p, target, blocking, size)
    if plan.types[0] == "i8":  # sums of columns, read from their panels
        each = p.depth * size / 4 * blocking.tile.vectors
        cycles += launch(each, p.batches * wide, target)
    if len(p.a.depth) > 1:
        blocks = ceil_div(wide, blocking.columns)
        runs = p.batches * p.rows * (p.depth // p.a.depth[-1].extent) * blocks
        cycles += RUN * runs / target.threads
    return nanoseconds(cycles, target)


VNNI = Solver("VNNI", vnni_plans, vnni_cost)


@dataclass(frozen=True)
class VnniShape(TileShape):
    """The part of the result in registers, whose steps are words.

    Args:
      per: elements in a word.
    """

    per: int = 4

    def cycles(self, costs: CpuCosts) -> float:
        """Cycles of one element in depth."""
        return super().cycles(costs) / self.per


class VnniProduct(PackedProduct):
    """A packed product whose steps are words."""

    def __init__(self, ctx: ShapedContext, plan: VnniPlan):
        problem, self.signed = plan.problem, plan.types[0] == "i8"
        self.types = ("u8", "i8") if self.signed else plan.types
        if self.signed:
            problem = replace(problem, a=replace(problem.a, flip=UP))
        self.element = plan.element
        self.per = 4 // itemsize(self.element)
        super().__init__(ctx, problem, plan.blocking)

    def make_packer(self) -> PanelPacker:
        columns = self.blocking.tile.columns
        packer = WordPacker(self.ctx, self.problem, columns, self.target, self.element)
        self.starts = Temp("i32", packer.batches * packer.panels * columns)
        return packer

    def _place_rows(self) -> None:
        self.rows = WordRows(self.program, self.a_reader, self.problem, self.blocking, self.element)
        self.a, self.stride, self.by_line = self.rows.buffer, self.rows.stride, True

    def _pack_a(self, part: Part, high: Value) -> None:
        self.rows.pack(part, high)

    def calls(self) -> list[Call]:
        calls = super().calls()
        return [calls[0], self._column_sums(), *calls[1:]] if self.signed else calls

    def add(self, k: tile.Builder, a: Value, b: Value, total: Value) -> Value:
        return k.dot_words(self.types, a, b, total)

    def start(self, panel: Value, first: Literal[True] | Value) -> list[Value]:
        zero = super().start(panel, first)
        if not self.signed:
            return zero
        k, shape = self.k, self.blocking.tile
        buffer = self.program.buffer(self.starts, "i32")
        at = self.panel_index(panel) * shape.columns

        def moved() -> list[Value]:
            places = (at + v * shape.lanes for v in range(shape.vectors))
            return [k.load(buffer, place, (shape.lanes,), (1,)) for place in places]

        return moved() if first is True else list(k.if_(first, moved, lambda: zero))

    def _column_sums(self) -> Call:
        """-128 times the sums of the columns of `b`."""
        packer, shape = self.packer, self.blocking.tile
        program = Program(self.ctx, "column_sums", runtime=True)
        k, lanes = program.k, (shape.lanes,)
        panels = program.buffer(packer.result, "i32")
        out = program.buffer(self.starts, "i32", "out")
        words = ceil_div(packer.steps, self.per), packer.depth // self.per
        steps, padded = (program.num(n, x) for n, x in zip(("steps", "padded"), words, strict=True))
        ones, panel = k.const("i32", 0x01010101, lanes), k.program_id()
        for v in range(shape.vectors):

            def step(i: Value, total: Value) -> Value:
                at = (panel * padded + i) * shape.columns + v * shape.lanes
                return k.dot_words(self.types, ones, k.load(panels, at, lanes, (1,)), total)

            (total,) = k.for_(0, steps, 1, step, [k.const("i32", 0, lanes)])
            total = total * k.const("i32", -UP, lanes)
            k.store(out, panel * shape.columns + v * shape.lanes, total, (1,))
        count = packer.batches * packer.panels
        return program.launch(count, 0.1 * count * words[1] * shape.columns)
