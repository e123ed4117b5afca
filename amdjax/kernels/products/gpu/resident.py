"""Products of a loop by a matrix that the loop does not change, which stays in LDS.

A program has some columns of the matrix, over their whole depth, and brings a few rows of the other
operand, part by part. Where programs stay resident (`schedule/gpu/persistent.py`) the matrix is
read before the first round only; the product then reads no more of it than the rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from amdjax.core.dims import Dim, is_multiple, like_at_hand, size_hint
from amdjax.core.integers import ceil_div, power_of_two, round_up
from amdjax.core.jaxpr import Var
from amdjax.kernels.products.contraction import Contraction, Source
from amdjax.kernels.products.gpu.contraction import TileWriter
from amdjax.kernels.products.gpu.tiling import PRODUCTS, ProductProblem, operand_atoms, plan_cost
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.gpu.partition import Partition, foreign_reads
from amdjax.targets import GpuTarget
from amdjax.targets.mma import CELL_BYTES
from amdjax.tile import Buffer, Value, itemsize

__all__ = ["ResidentPlan", "can_part", "plan_resident", "resident_clocks", "resident_plans"]

MOST_SUMS = 32  # of a lane
MOST_BROUGHT = 64  # elements that a thread brings at once
MOST_PARTS = 256  # sums that a thread adds for each element of its own, and of its groups
TILES = tuple(1 << i for i in range(8))
DEPTHS = (2048, 1024, 512, 256, 128, 64, 32)
FILLED = 2048  # elements of the matrix that a program brings at once
EXCHANGES = 16 << 10  # bytes of LDS for what else changes threads


@dataclass(frozen=True)
class ResidentPlan:
    """A product whose right operand stays in LDS.

    Args:
      problem: the contraction, merged.
      partition: of the result.
      depth: of the left operand that is brought at once.
      workgroup: threads.
      lanes: of a wave, along rows, columns and depth.
    """

    problem: Contraction
    partition: Partition
    depth: int
    workgroup: int
    lanes: tuple[int, int, int]

    @property
    def groups(self) -> int:
        """Groups of columns."""
        return self.problem.columns // self.partition.width

    @property
    def rows(self) -> int:
        """Of a program's tile."""
        return self.partition.rows

    @property
    def columns(self) -> int:
        """Of a program's tile, in all groups together."""
        return self.groups * self.partition.columns

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles along rows and columns."""
        return self.partition.grid

    @property
    def whole(self) -> int:
        """The depth, filled up with zeros."""
        return round_up(self.problem.depth, self.depth)

    @property
    def parts(self) -> int:
        """Parts of the depth that waves and their lanes sum."""
        high, wide, _ = self.lanes
        return self.workgroup // (high * wide)

    @property
    def lds(self) -> int:
        """Bytes: the matrix, rows, sums of all parts."""
        size = itemsize(self.problem.accumulate)
        cell = CELL_BYTES // size
        matrix = self.columns * (self.whole + cell)
        sums = self.parts * self.rows * (self.columns + cell)
        return size * (matrix + self.rows * (self.depth + cell) + sums) + EXCHANGES

    def of(self, problem: Contraction) -> ResidentPlan:
        """The same for a product of other sizes, in as many groups of as many columns."""
        partition = replace(self.partition, lines=problem.rows)
        return replace(self, problem=problem, partition=partition)

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [_Emitter(ctx, self).call()]

    def __str__(self) -> str:
        groups = f"{self.groups} groups of columns, " if self.groups > 1 else ""
        return (
            f"product of {self.problem}, tiles of {self.rows}×{self.columns}×{self.depth}, "
            f"{groups}its matrix stays in LDS"
        )


def plan_resident(
    target: GpuTarget, problem: Contraction, partition: Partition | None = None
) -> ResidentPlan | None:
    """The plan of a product in a loop; None where another one is better.

    Args:
      target: the GPU.
      problem: the product.
      partition: of what the loop's programs make, which is taken if the product can.
    """
    problem = problem.merged()
    if problem.a.fixed and not problem.b.fixed:
        problem = problem.swapped()
    if problem.a.fixed or not problem.b.fixed or not _is_plain(problem):
        return None
    if isinstance(problem.columns, Dim) or isinstance(problem.depth, Dim):
        return None  # as much of it as LDS holds is part of the code
    like_at_hand(problem.rows)
    found = _plan_at_hand(target, problem, partition)
    return None if found is None else found.of(problem)


def _plan_at_hand(
    target: GpuTarget, wanted: Contraction, partition: Partition | None
) -> ResidentPlan | None:
    problem = wanted.at_hand
    atoms = operand_atoms(target, problem.a.dtype, problem.b.dtype, problem.accumulate)
    if not atoms:
        return None
    clocks = lambda p: resident_clocks(target, p)
    if partition is not None and can_part(wanted, partition.lines, partition.width):
        plans = resident_plans(target, problem, partition.width)
        here = replace(partition, lines=size_hint(partition.lines))
        found = min((p for p in plans if p.partition == here), key=clocks, default=None)
        if found is not None:
            return found
    found = min(resident_plans(target, problem, problem.columns), key=clocks, default=None)
    if found is None:
        return None
    other = ProductProblem(problem, atoms)
    usual = plan_cost(other, PRODUCTS.best(other, target), target)
    return found if clocks(found) < usual else None


def can_part(problem: Contraction, lines: int, width: int) -> bool:
    """Whether a merged product makes rows that lie one behind the other, in groups of columns."""
    out, width_of_all = problem.out, problem.columns
    fits = problem.rows == lines and width > 0 and width_of_all % width == 0
    rows_in_order = all(x.stride == width_of_all for x in out.rows) and len(out.rows) <= 1
    columns_in_order = all(x.stride == 1 for x in out.columns) and len(out.columns) <= 1
    return fits and rows_in_order and columns_in_order and out.offset == 0


def _is_plain(p: Contraction) -> bool:
    """Whether both operands are matrices of the dtype of the sums, the left one with whole rows."""
    sides = (p.a, p.b)
    plain = all(
        len(x.lines) <= 1 and len(x.depth) == 1 and not x.limits and not x.flip for x in sides
    )
    same = all(x.dtype == p.accumulate for x in sides) and p.accumulate in ("f32", "f64")
    return plain and same and p.batches == 1 and p.a.depth[0].stride == 1 and not p.is_complex


def resident_plans(target: GpuTarget, problem: Contraction, width: int) -> Iterator[ResidentPlan]:
    """All that fit: a compute unit has one or two programs, a thread few sums.

    Args:
      target: the GPU.
      problem: the product, merged.
      width: of the groups of columns of each of which a program has some.
    """
    threads, cell = target.usual_workgroup, CELL_BYTES // itemsize(problem.accumulate)
    for rows, columns in itertools.product(TILES, TILES):
        if rows > power_of_two(problem.rows) or columns > power_of_two(width):
            continue
        partition = Partition(problem.rows, width, rows, columns)
        groups = problem.columns // width
        for lanes, depth in itertools.product(_lanes(target, rows, columns, groups), DEPTHS):
            plan = ResidentPlan(problem, partition, depth, threads, lanes)
            each = min(target.lds_per_cu // plan.lds, 2) * target.lds_units
            fits = math.prod(plan.grid) <= each and plan.lds <= target.lds_bytes
            useful = rows * depth <= MOST_BROUGHT * threads and plan.parts * groups <= MOST_PARTS
            if fits and useful and depth % (cell * plan.parts) == 0:
                yield plan


def _lanes(
    target: GpuTarget, rows: int, columns: int, groups: int
) -> Iterator[tuple[int, int, int]]:
    """How lanes may lie over tiles, such that each has no more sums than it has registers for."""
    wave = target.wave_size
    for high, wide in itertools.product(TILES, TILES):
        fits = high <= rows and wide <= columns and high * wide <= wave
        if fits and rows * columns * groups <= MOST_SUMS * high * wide:
            yield high, wide, wave // (high * wide)


def resident_clocks(target: GpuTarget, plan: ResidentPlan) -> float:
    """Of a round, programs and the matrix being there: rows are brought, multiplied, sums meet."""
    costs, size = target.costs, itemsize(plan.problem.accumulate)
    high, wide, deep = plan.lanes
    rate = target.vector_rate if size == 4 else target.f64_rate
    multiplied = 2 * plan.rows * plan.columns * plan.whole / rate
    cells = plan.whole * size // CELL_BYTES
    lines = plan.rows // high + plan.columns // wide
    read = cells // deep * lines * CELL_BYTES * target.wave_size / costs.lds_rate
    brought = plan.rows * plan.whole * size / costs.cache_rate
    met = 2 * plan.parts * plan.rows * plan.columns * size / costs.lds_rate
    times = plan.whole // plan.depth
    together = ceil_div(math.prod(plan.grid), target.lds_units)
    waiting = times * (costs.load_latency + 2 * costs.stall)
    return waiting + together * (max(multiplied, read) + brought + times * met)


class _Emitter:
    def __init__(self, ctx: ShapedContext, plan: ResidentPlan):
        self.ctx, self.plan, self.problem = ctx, plan, plan.problem
        self.program = Program(ctx, "product")
        self.k = self.program.k
        size = itemsize(self.problem.accumulate)
        self.cell = CELL_BYTES // size
        self.k.schedule.workgroup, self.k.schedule.vector = plan.workgroup, self.cell

    def call(self) -> Call:
        k, p, plan = self.k, self.problem, self.plan
        part, groups = plan.partition, range(plan.groups)
        high, wide = plan.grid
        number = k.program_id()
        bases = [number % high * part.rows, number // high * part.columns]
        pitches = plan.depth + self.cell, plan.whole + self.cell
        rows = k.scratch("rows", p.accumulate, plan.rows * pitches[0])
        matrix = k.scratch("matrix", p.accumulate, plan.columns * pitches[1])
        tile = part.rows, part.columns

        def fill() -> None:
            # Few elements at once: those that lie across change threads in LDS.
            steps = max(self.cell, min(plan.depth, FILLED // part.columns))

            def bring(at: Value) -> None:
                for i in groups:
                    to = at + i * part.columns * pitches[1]
                    brought = part.columns, steps
                    self._bring(self._lines(i), bases[1], brought, at, matrix, to, pitches[1])

            k.for_(0, plan.whole, steps, bring)

        k.once(fill)

        def multiply(at: Value, *sums: Value) -> list[Value]:
            brought = part.rows, plan.depth
            self._bring(p.a, bases[0], brought, at, rows, k.const("index", 0), pitches[0])
            more = k.scratch_product(
                rows, matrix, at, tile, pitches, plan.depth, plan.lanes, plan.groups
            )
            return [x + y for x, y in zip(sums, more, strict=True)]

        zeros = k.const(p.accumulate, 0, tile)
        sums = k.for_(0, plan.whole, plan.depth, multiply, [zeros] * plan.groups)
        writer = TileWriter(self.program, p.out, [])
        for i, x in zip(groups, sums, strict=True):
            writer.store([x], bases, (p.rows, part.width), column=i * part.width)
        call = self.program.launch(high * wide, 2.0 * plan.rows * plan.columns * plan.whole)
        return replace(call.owning(self._own().__contains__), whole_lds=True)

    def _lines(self, group: int) -> Source:
        """The lines of the matrix that are a group of columns."""
        source, width = self.problem.b, self.plan.partition.width
        lines = tuple(replace(x, extent=width) for x in source.lines)
        offset = source.offset + group * width * sum(x.stride for x in lines)
        return replace(source, lines=lines, offset=offset)

    def _own(self) -> set[Any]:
        """Arguments of which a program touches what no other has."""
        p, part, fused = self.problem, self.plan.partition, self.ctx.epilogue
        if not can_part(p, part.lines, part.width):
            return set()
        if fused is None:
            return {p.out.owner}
        made = [p.out.owner]
        foreign = foreign_reads(part, fused.producers, fused.stored, made)
        return {x for x in self.program.kernel.args if isinstance(x, Var)} - foreign - {p.a.owner}

    def _bring(
        self, source: Source, first: Value, shape: tuple[int, int], step: Value, to: Buffer,
        at: Value, pitch: int,
    ) -> None:  # fmt: skip
        """Lines of an operand from a step in depth on, to LDS; zeros where there are none."""
        k, depth = self.k, self.problem.depth
        line = source.lines[0].stride if source.lines else 0
        stride = source.depth[0].stride
        buffer = self.program.buffer(source.owner, source.dtype)
        mask = None
        for axis, base, extent, count in (
            (0, first, source.line_count, shape[0]), (1, step, depth, shape[1]),
        ):  # fmt: skip
            if not is_multiple(extent, count):
                inside = k.iota(count, "i32") < k.convert(k.const("index", extent) - base, "i32")
                one = k.broadcast(k.expand(inside, 1 - axis), shape)
                mask = one if mask is None else mask & one
        offset = first * line + step * stride + source.offset
        x = k.load(buffer, offset, shape, (line, stride), mask)
        k.store(to, at, x, (pitch, 1))
