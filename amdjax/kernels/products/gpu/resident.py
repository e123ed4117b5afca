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

from amdjax.core.integers import ceil_div, power_of_two, round_up
from amdjax.kernels.products.contraction import Contraction, Source
from amdjax.kernels.products.gpu.contraction import TileWriter
from amdjax.kernels.products.gpu.tiling import PRODUCTS, ProductProblem, operand_atoms, plan_cost
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.targets import GpuTarget
from amdjax.targets.mma import CELL_BYTES
from amdjax.tile import Buffer, Value, itemsize

__all__ = ["ResidentPlan", "plan_resident"]

MOST_SUMS = 32  # of a lane
MOST_BROUGHT = 64  # elements that a thread brings at once
TILES = tuple(1 << i for i in range(8))
DEPTHS = (2048, 1024, 512, 256, 128, 64, 32)
FILLED = 2048  # elements of the matrix that a program brings at once
EXCHANGES = 16 << 10  # bytes of LDS for what else changes threads


@dataclass(frozen=True)
class ResidentPlan:
    """A product whose right operand stays in LDS.

    Args:
      problem: the contraction, merged.
      rows, columns: of a program's tile.
      depth: of the left operand that is brought at once.
      workgroup: threads.
      lanes: of a wave, along rows, columns and depth.
    """

    problem: Contraction
    rows: int
    columns: int
    depth: int
    workgroup: int
    lanes: tuple[int, int, int]

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles along rows and columns."""
        return ceil_div(self.problem.rows, self.rows), ceil_div(self.problem.columns, self.columns)

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

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [_Emitter(ctx, self).call()]

    def __str__(self) -> str:
        return (
            f"product of {self.problem}, tiles of {self.rows}×{self.columns}×{self.depth}, "
            "its matrix stays in LDS"
        )


def plan_resident(target: GpuTarget, problem: Contraction) -> ResidentPlan | None:
    """The plan of a product in a loop; None where another one is better.

    Args:
      target: the GPU.
      problem: the product.
    """
    problem = problem.merged()
    if problem.a.fixed and not problem.b.fixed:
        problem = problem.swapped()
    if problem.a.fixed or not problem.b.fixed or not _is_plain(problem):
        return None
    atoms = operand_atoms(target, problem.a.dtype, problem.b.dtype, problem.accumulate)
    if not atoms:
        return None
    found = min(_plans(target, problem), key=lambda p: _clocks(target, p), default=None)
    if found is None:
        return None
    other = ProductProblem(problem, atoms)
    usual = plan_cost(other, PRODUCTS.best(other, target), target)
    return found if _clocks(target, found) < usual else None


def _is_plain(p: Contraction) -> bool:
    """Whether both operands are matrices of the dtype of the sums, the left one with whole rows."""
    sides = (p.a, p.b)
    plain = all(
        len(x.lines) <= 1 and len(x.depth) == 1 and not x.limits and not x.flip for x in sides
    )
    same = all(x.dtype == p.accumulate for x in sides) and p.accumulate in ("f32", "f64")
    return plain and same and p.batches == 1 and p.a.depth[0].stride == 1 and not p.is_complex


def _plans(target: GpuTarget, problem: Contraction) -> Iterator[ResidentPlan]:
    """All that fit: a compute unit has one or two programs, a thread few sums."""
    threads, cell = target.usual_workgroup, CELL_BYTES // itemsize(problem.accumulate)
    for rows, columns in itertools.product(TILES, TILES):
        if rows > power_of_two(problem.rows) or columns > power_of_two(problem.columns):
            continue
        for lanes, depth in itertools.product(_lanes(target, rows, columns), DEPTHS):
            plan = ResidentPlan(problem, rows, columns, depth, threads, lanes)
            each = min(target.lds_per_cu // plan.lds, 2) * target.lds_units
            fits = math.prod(plan.grid) <= each and plan.lds <= target.lds_bytes
            useful = rows * depth <= MOST_BROUGHT * threads
            if fits and useful and depth % (cell * plan.parts) == 0:
                yield plan


def _lanes(target: GpuTarget, rows: int, columns: int) -> Iterator[tuple[int, int, int]]:
    """How lanes may lie over a tile, such that each has no more sums than it has registers for."""
    wave = target.wave_size
    for high, wide in itertools.product(TILES, TILES):
        fits = high <= rows and wide <= columns and high * wide <= wave
        if fits and rows * columns <= MOST_SUMS * high * wide:
            yield high, wide, wave // (high * wide)


def _clocks(target: GpuTarget, plan: ResidentPlan) -> float:
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
        high, wide = plan.grid
        number = k.program_id()
        bases = [number % high * plan.rows, number // high * plan.columns]
        pitches = plan.depth + self.cell, plan.whole + self.cell
        rows = k.scratch("rows", p.accumulate, plan.rows * pitches[0])
        matrix = k.scratch("matrix", p.accumulate, plan.columns * pitches[1])

        def fill() -> None:
            # Few elements at once: those that lie across change threads in LDS.
            steps = max(self.cell, min(plan.depth, FILLED // plan.columns))

            def part(at: Value) -> None:
                self._bring(p.b, bases[1], (plan.columns, steps), at, matrix, at, pitches[1])

            k.for_(0, plan.whole, steps, part)

        k.once(fill)

        def multiply(at: Value, sums: Value) -> Value:
            shape, brought = (plan.rows, plan.columns), (plan.rows, plan.depth)
            self._bring(p.a, bases[0], brought, at, rows, k.const("index", 0), pitches[0])
            return sums + k.scratch_product(
                rows, matrix, at, shape, pitches, plan.depth, plan.lanes
            )

        zeros = k.const(p.accumulate, 0, (plan.rows, plan.columns))
        (sums,) = k.for_(0, plan.whole, plan.depth, multiply, [zeros])
        TileWriter(self.program, p.out, []).store([sums], bases, (p.rows, p.columns))
        call = self.program.launch(high * wide, 2.0 * plan.rows * plan.columns * plan.whole)
        return replace(call, whole_lds=True)

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
            if extent % count:
                inside = k.iota(count, "i32") < k.convert(k.const("index", extent) - base, "i32")
                one = k.broadcast(k.expand(inside, 1 - axis), shape)
                mask = one if mask is None else mask & one
        offset = first * line + step * stride + source.offset
        x = k.load(buffer, offset, shape, (line, stride), mask)
        k.store(to, at, x, (pitch, 1))
