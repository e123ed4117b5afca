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
    types = word_types(p, target)
    if types is None:
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
        steps = VnniShape.of(shape, size)
        yield from blockings(problem, target, steps, size, AMX_ROW_BYTES // size)


def word_types(problem: Contraction, target: CpuTarget) -> tuple[str, str] | None:
    """What instructions of the machine multiply for a product: its operands, or pairs they fit.

    None if there are none, or operands cannot be packed for them.
    """
    own = problem.a.dtype, problem.b.dtype
    types: tuple[str, str] | None = None
    if target.vector_bits >= 512 and own in _SUMS and set(own) <= set(target.dot_dtypes):
        types = own
    elif "i16" in target.dot_dtypes and set(own) <= _FIT_PAIRS:
        types = _PAIRS
    return types if types and takes_words(problem, _SUMS[types]) else None


def _plan(problem: Contraction, blocking: Blocking, types: tuple[str, str]) -> VnniPlan:
    if types[0] == "i8":  # sums start from those of columns, which packing all of `b` gives
        blocking = replace(blocking, splits=1, shared=True)
    return VnniPlan.of(problem, blocking, types)


def vnni_cost(product: ProductProblem, plan: VnniPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    p, blocking = plan.problem.at_hand, plan.blocking
    size, wide = itemsize(plan.types[0]), ceil_div(p.columns, blocking.tile.columns)
    cycles = block_cycles(p, target, blocking, size)
    cycles += column_sums(p, plan.types, blocking.tile, target)
    if len(p.a.depth) > 1:
        blocks = ceil_div(wide, blocking.columns)
        runs = p.batches * p.rows * (p.depth // p.a.depth[-1].extent) * blocks
        cycles += RUN * runs / target.threads
    return nanoseconds(cycles, target)


def column_sums(
    problem: Contraction, types: tuple[str, str], shape: TileShape, target: CpuTarget
) -> float:
    """Cycles of the sums of columns that signed bytes start from, read from their panels."""
    if types[0] != "i8":
        return 0.0
    programs = problem.batches * ceil_div(problem.columns, shape.columns)
    return launch(problem.depth / 4 * shape.vectors, programs, target)


VNNI = Solver("VNNI", vnni_plans, vnni_cost)


@dataclass(frozen=True)
class VnniShape(TileShape):
    """The part of the result in registers, whose steps are words.

    Args:
      per: elements in a word.
    """

    per: int = 4

    @classmethod
    def of(cls, shape: TileShape, size: int) -> VnniShape:
        """The same part, of elements of so many bytes."""
        return cls(shape.rows, shape.vectors, shape.lanes, shape.even, 4 // size)

    def cycles(self, costs: CpuCosts) -> float:
        """Cycles of one element in depth."""
        return super().cycles(costs) / self.per


class WordSums:
    """What vector instructions sum that take words, step by step.

    Args:
      ctx: the equation.
      types: of the elements of words.
      packer: of `b`.
      shape: of the tiles.

    Attributes:
      signed: whether bytes of `a` are moved up.
      types: of what is multiplied.
    """

    def __init__(
        self, ctx: ShapedContext, types: tuple[str, str], packer: PanelPacker, shape: TileShape
    ) -> None:
        self.ctx, self.packer, self.shape, self.signed = ctx, packer, shape, types[0] == "i8"
        self.types = ("u8", "i8") if self.signed else types
        self._starts = Temp("i32", packer.batches * packer.panels * shape.columns)

    def add(self, k: tile.Builder, a: Value, b: Value, total: Value) -> Value:
        """A step of the micro-kernel."""
        return k.dot_words(self.types, a, b, total)

    def start(self, program: Program, panel: Value) -> list[Value]:
        """What sums of the columns of a panel, given its place among all, start from if signed."""
        k, shape = program.k, self.shape
        buffer, at = program.buffer(self._starts, "i32"), panel * shape.columns
        places = (at + v * shape.lanes for v in range(shape.vectors))
        return [k.load(buffer, place, (shape.lanes,), (1,)) for place in places]

    def calls(self) -> list[Call]:
        """What is launched between packing `b` and multiplying."""
        return [self._column_sums()] if self.signed else []

    def _column_sums(self) -> Call:
        """-128 times the sums of the columns of `b`."""
        packer, shape, per = self.packer, self.shape, 4  # bytes of a word
        program = Program(self.ctx, "column_sums", runtime=True)
        k, lanes = program.k, (shape.lanes,)
        panels = program.buffer(packer.result, "i32")
        out = program.buffer(self._starts, "i32", "out")
        words = ceil_div(packer.steps, per), packer.depth // per
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


class VnniProduct(PackedProduct):
    """A packed product whose steps are words."""

    def __init__(self, ctx: ShapedContext, plan: VnniPlan):
        self.element = plan.element
        self.per = 4 // itemsize(self.element)
        super().__init__(ctx, moved_up(plan.problem, plan.types), plan.blocking)
        self.words = WordSums(ctx, plan.types, self.packer, plan.blocking.tile)

    def make_packer(self) -> PanelPacker:
        columns = self.blocking.tile.columns
        return WordPacker(self.ctx, self.problem, columns, self.target, self.element)

    def _place_rows(self) -> None:
        self.rows = WordRows(self.program, self.a_reader, self.problem, self.blocking, self.element)
        self.a, self.stride, self.by_line = self.rows.buffer, self.rows.stride, True

    def _pack_a(self, part: Part, high: Value) -> None:
        self.rows.pack(part, high)

    def calls(self) -> list[Call]:
        first, *others = super().calls()
        return [first, *self.words.calls(), *others]

    def add(self, k: tile.Builder, a: Value, b: Value, total: Value) -> Value:
        return self.words.add(k, a, b, total)

    def start(self, panel: Value, first: Literal[True] | Value) -> list[Value]:
        zero = super().start(panel, first)
        if not self.words.signed:
            return zero

        def moved() -> list[Value]:
            return self.words.start(self.program, self.panel_index(panel))

        return moved() if first is True else list(self.k.if_(first, moved, lambda: zero))


def moved_up(problem: Contraction, types: tuple[str, str]) -> Contraction:
    """A product of words in which signed bytes of `a` are moved up."""
    return replace(problem, a=replace(problem.a, flip=UP)) if types[0] == "i8" else problem
