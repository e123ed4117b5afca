"""Products of bytes: four steps of depth at once.

A 32-bit lane holds four bytes of a row of `a` or of a column of `b`, and one instruction multiplies
and adds them all. It takes bytes of `a` as unsigned: signed ones are moved up by 128 while they are
packed, and sums start from -128 times the sum of the column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from amdjax import tile
from amdjax.kernels.products.contraction import (
    Axis,
    Contraction,
    ProductProblem,
    Source,
    choose_tile,
)
from amdjax.kernels.products.cpu.blocking import Blocking, choose_blocking
from amdjax.kernels.products.cpu.packed import PackedProduct
from amdjax.kernels.products.cpu.packing import PanelPacker
from amdjax.kernels.products.cpu.reading import Part
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, ShapedContext, Temp
from amdjax.schedule.search import Solver
from amdjax.targets.cpu import CpuTarget

Value = tile.Value

UP = 128  # by how much signed bytes of `a` are moved


@dataclass(frozen=True)
class VnniPlan:
    """A blocked product whose steps are four bytes deep.

    Args:
      problem: the contraction in words of four bytes.
      bytes: `b` as it lies in memory.
      signed: whether bytes of `a` are.
      blocking: how it is cut.
    """

    problem: Contraction
    bytes: Source
    signed: bool
    blocking: Blocking

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return VnniProduct(ctx, self).calls()

    def __str__(self) -> str:
        return f"VNNI product of {self.problem}, four bytes each, {self.blocking}"


def usual_vnni(product: ProductProblem, target: CpuTarget) -> VnniPlan | None:
    """The plan of a product of bytes; None where machine or layout have no use of it."""
    p = product.merged
    return None if p.depth * p.columns < 1 << 12 else next(iter(vnni_plans(product, target)), None)


def vnni_plans(product: ProductProblem, target: CpuTarget) -> list[VnniPlan]:
    """The plan of a product of bytes."""
    problem = product.merged
    a, b = problem.a, problem.b
    if problem.accumulate != "i32" or a.dtype not in ("i8", "u8") or b.dtype != "i8":
        return []
    if target.vector_bits < 512 or not target.dots_bytes:
        return []
    if a.limits or b.limits or len(a.depth) != 1 or len(b.depth) != 1 or len(b.lines) > 1:
        return []
    words = _in_words(a)
    if words is None:
        return []
    signed = a.dtype == "i8"
    in_words = replace(
        problem,
        a=replace(words, flip=0x80808080 if signed else 0),
        b=_in_words(b) or replace(b, depth=(Axis(problem.depth // 4, 1),)),
    )
    shape = choose_tile(target, problem.rows, problem.columns, "i32")
    blocking = replace(choose_blocking(in_words, target, shape), splits=1, shared=True)
    return [VnniPlan(in_words, b, signed, blocking)]


VNNI = Solver("VNNI", vnni_plans, usual=usual_vnni, tier=4)


def _in_words(source: Source) -> Source | None:
    """The source in units of four bytes along its depth."""
    (depth,) = source.depth
    others = (*source.batch, *source.lines)
    if (
        depth.stride != 1
        or depth.extent % 4
        or source.offset % 4
        or any(x.stride % 4 for x in others)
    ):
        return None

    def quarter(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(replace(x, stride=x.stride // 4) for x in axes)

    return replace(
        source, dtype="i32", offset=source.offset // 4, batch=quarter(source.batch),
        lines=quarter(source.lines), depth=(Axis(depth.extent // 4, 1),),
    )  # fmt: skip


class VnniProduct(PackedProduct):
    """A blocked product whose steps are four bytes deep."""

    def __init__(self, ctx: ShapedContext, plan: VnniPlan):
        self.signed, self.bytes = plan.signed, plan.bytes
        self.gathers = plan.problem.b.dtype != "i32"
        super().__init__(ctx, plan.problem, plan.blocking)

    def make_packer(self) -> PanelPacker:
        shape = self.blocking.tile
        arguments = (self.ctx, self.problem, shape.columns, shape.lanes, self.target)
        packer = (
            VnniPacker(*arguments, source=self.bytes) if self.gathers else PanelPacker(*arguments)
        )
        self.starts = Temp("i32", packer.batches * packer.panels * shape.columns)
        return packer

    def calls(self) -> list[Call]:
        accumulators = [self._column_sums()] if self.signed else []
        return [self.packer.call(), *accumulators, self._product(self.problem.out)]

    def add(self, k: tile.Builder, a: Value, b: Value, total: Value) -> Value:
        return k.dot4(a, b, total)

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
        panels, out = (
            program.buffer(packer.result, "i32"),
            program.buffer(self.starts, "i32", "out"),
        )
        steps, padded = program.num("steps", packer.steps), program.num("padded", packer.depth)
        ones, panel = k.const("i32", 0x01010101, lanes), k.program_id()
        for v in range(shape.vectors):

            def step(i: Value, total: Value) -> Value:
                at = (panel * padded + i) * shape.columns + v * shape.lanes
                return k.dot4(ones, k.load(panels, at, lanes, (1,)), total)

            (total,) = k.for_(0, steps, 1, step, [k.const("i32", 0, lanes)])
            total = total * k.const("i32", -UP, lanes)
            k.store(out, panel * shape.columns + v * shape.lanes, total, (1,))
        count = packer.batches * packer.panels
        return program.launch(count, 0.1 * count * packer.depth * shape.columns)


class VnniPacker(PanelPacker):
    """Packs columns that lie side by side: the bytes of four rows go into one word."""

    def __init__(self, *arguments: object, source: Source):
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.granularity = 1
        self.source = replace(source, batch=tuple(source.batch[i] for i in self.batch))

    def pack(self, part: Part, target: tile.Buffer, at: Value) -> None:
        reader, k = part.reader, part.reader.k
        for v in range(0, self.columns, self.lanes):
            place = part.lanes(v, self.lanes, self.columns)
            ((origin, exists),) = place.segments

            def step(i: Value) -> None:
                word: Value | None = None
                for byte in range(4):
                    there = origin + reader.inner_step(i * 4 + byte)
                    x = (
                        k.load_at(reader.buffer, there, exists)
                        if origin.shape
                        else k.load(reader.buffer, there, (self.lanes,), (1,), exists)
                    )
                    x = k.convert(k.bitcast(x, "u8"), "u32")
                    x = x << k.const("u32", 8 * byte, x.shape) if byte else x
                    word = x if word is None else word | x
                assert word is not None
                row = at + (i - part.start) * self.columns
                k.store(target, row + v, k.bitcast(word, "i32"), (1,))

            k.for_(part.start, part.stop, 1, step)
