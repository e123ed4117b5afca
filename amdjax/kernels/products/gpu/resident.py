"""Products of a loop by a matrix that the loop does not change, which stays in LDS.

A program has some columns of the matrix, over their whole depth, and brings a few rows of the other
operand, part by part. Where programs stay resident (`schedule/gpu/persistent.py`) the matrix is
read before the first round only; the product then reads no more of it than the rows. Operands of 16
bits are multiplied by the matrix unit, whose waves take their parts of the rows from memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from amdjax.core.dims import Dim, cheapest, estimated, is_multiple, size_hint
from amdjax.core.integers import ceil_div, power_of_two, round_up
from amdjax.core.jaxpr import Var
from amdjax.kernels.products.contraction import Contraction, Source
from amdjax.kernels.products.gpu.contraction import TileWriter
from amdjax.kernels.products.gpu.tiling import PRODUCTS, ProductProblem, operand_atoms, plan_cost
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.gpu.partition import Partition, foreign_reads
from amdjax.targets import GpuTarget
from amdjax.targets.mma import CELL_BYTES, MmaAtom, mma_atoms
from amdjax.tile import Buffer, MatrixTiling, Value, itemsize

RIVALS = (1, 4, 16, 64)  # rows whose best tiles are compared where their number is symbolic
MOST_SUMS = 32  # of a lane
MOST_UNIT_SUMS = 64  # of a lane, by the matrix unit
MOST_BROUGHT = 64  # elements that a thread brings at once
MOST_PARTS = 256  # sums that a thread adds for each element of its own, and of its groups
TILES = tuple(1 << i for i in range(8))
DEPTHS = (2048, 1024, 512, 256, 128, 64, 32)
MOST_MULTIPLIED = 512  # by a wave, of atoms, which are written out
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
      atom: what multiplies, each wave a part of the depth; None for vector lanes.
    """

    problem: Contraction
    partition: Partition
    depth: int
    workgroup: int
    lanes: tuple[int, int, int]
    atom: MmaAtom | None = None

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
        high, wide, deep = self.lanes
        return self.workgroup // (high * wide * (deep if self.atom else 1))

    @property
    def lds(self) -> int:
        """Bytes: the matrix, rows, sums of all parts."""
        size, wide = itemsize(self.problem.a.dtype), itemsize(self.problem.accumulate)
        sums = self.parts * self.rows * (wide * self.columns + CELL_BYTES)
        rows = 0 if self.atom else self.rows * (self.depth * size + CELL_BYTES)
        return self.columns * self.pitch * size + rows + sums + EXCHANGES

    @property
    def pitch(self) -> int:
        """Elements from a column of the matrix to the next, so that lanes find other banks."""
        # Four lanes that share a line read four cells; eight read at once.
        cells = 4 if self.atom is not None and self.atom.kind == "mma" else 1
        return self.whole + cells * CELL_BYTES // itemsize(self.problem.a.dtype)

    def of(self, problem: Contraction) -> ResidentPlan:
        """The same for a product of other sizes, in as many groups of as many columns."""
        partition = replace(self.partition, lines=problem.rows)
        return replace(self, problem=problem, partition=partition)

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [_Emitter(ctx, self).call()]

    def __str__(self) -> str:
        groups = f"{self.groups} groups of columns, " if self.groups > 1 else ""
        atom = "" if self.atom is None else f"by {self.atom}, "
        return (
            f"product of {self.problem}, tiles of {self.rows}×{self.columns}×{self.depth}, "
            f"{atom}{groups}its matrix stays in LDS"
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
    wanted = as_resident(problem)
    if wanted is None:
        return None
    if partition is not None and can_part(wanted, partition.lines, partition.width):
        here = replace(partition, lines=size_hint(partition.lines))
        plans = _resident(target, wanted.at_hand, partition.width, partition.rows)
        found = _least(target, (p for p in plans if p.partition == here))
        if found is not None:
            return found.of(wanted)
    found = cheapest_resident(target, wanted, wanted.columns)
    return found if found is not None and is_worth_it(target, found) else None


def as_resident(problem: Contraction) -> Contraction | None:
    """A product, merged, as one whose right operand may stay in LDS; None if it may not."""
    problem = problem.merged()
    if problem.a.fixed and not problem.b.fixed:
        problem = problem.swapped()
    if problem.a.fixed or not problem.b.fixed or not _is_plain(problem):
        return None
    # As much of the matrix as LDS holds is part of the code.
    return None if isinstance(problem.columns * problem.depth, Dim) else problem


def is_worth_it(target: GpuTarget, plan: ResidentPlan) -> bool:
    """Whether no other plan of the product is better, at the sizes at hand."""
    problem = plan.problem.at_hand
    atoms = operand_atoms(target, problem.a.dtype, problem.b.dtype, problem.accumulate)
    if not atoms:
        return False
    other = ProductProblem(problem, atoms)
    usual = plan_cost(other, PRODUCTS.best(other, target), target)
    return resident_clocks(target, plan.of(problem)) < usual


def _least(target: GpuTarget, plans: Iterable[ResidentPlan]) -> ResidentPlan | None:
    return min(plans, key=lambda p: resident_clocks(target, p), default=None)


def cheapest_resident(target: GpuTarget, problem: Contraction, width: int) -> ResidentPlan | None:
    """The best plan; one for symbolic rows is preferably for those of which it is about the best.

    Args:
      target: the GPU.
      problem: the product, as `as_resident` gives it.
      width: of the groups of columns of each of which a program has some.

    Returns:
      The plan; None if there is none.
    """
    here = problem.at_hand
    if not isinstance(problem.rows, Dim):
        return _least(target, resident_plans(target, here, width))
    # Lanes and depth are chosen for one tile, whatever the number of rows.
    tiles: dict[Partition, list[ResidentPlan]] = {}
    for plan in _fitting(target, here, width, max(here.rows, RIVALS[-1])):
        tiles.setdefault(plan.partition, []).append(plan)
    best = [found for plans in tiles.values() if (found := _least(target, plans))]
    if not best:
        return None
    plans = list(dict.fromkeys(_best_of(target, best, rows) for rows in (here.rows, *RIVALS)))
    costs = [_round_clocks(target, p, problem.rows) for p in plans]
    return plans[cheapest(costs)].of(problem)


def _best_of(target: GpuTarget, plans: Iterable[ResidentPlan], rows: int) -> ResidentPlan:
    """The cheapest plan for a number of rows."""
    return min(plans, key=lambda p: _round_clocks(target, p, rows))


def _round_clocks(target: GpuTarget, plan: ResidentPlan, rows: int) -> Any:
    """Of a round of so many rows: programs meet; those of several tiles bring the matrix again."""
    plan = replace(plan, partition=replace(plan.partition, lines=rows))
    costs, grid = target.costs, math.prod(plan.grid)
    most = _most_programs(target, plan)
    turns = estimated("ceil_div", grid, most)
    matrix = plan.columns * plan.whole * itemsize(plan.problem.accumulate)
    again = estimated("at least", turns, 2, turns, 0)
    again *= costs.load_latency + matrix / costs.cache_rate
    waiting = costs.grid_barrier(estimated("min", grid, most))
    return resident_clocks(target, plan) + again + waiting


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
    half = p.a.dtype == p.b.dtype in ("bf16", "f16") and p.accumulate == "f32" and _has_cells(p.a)
    whole = p.batches == 1 and not p.is_complex
    return plain and (same or half) and whole and p.a.depth[0].stride == 1


def _has_cells(x: Source) -> bool:
    """Whether lines begin where whole cells may, and end with one."""
    cell = CELL_BYTES // itemsize(x.dtype)
    sizes = x.offset, x.depth_count, *(axis.stride for axis in x.lines)
    return all(isinstance(n, int) and n % cell == 0 for n in sizes)


def resident_plans(target: GpuTarget, problem: Contraction, width: int) -> Iterator[ResidentPlan]:
    """All that fit: a compute unit has one or two programs, a thread few sums.

    Args:
      target: the GPU.
      problem: the product, merged.
      width: of the groups of columns of each of which a program has some.
    """
    return _resident(target, problem, width, problem.rows)


def _resident(
    target: GpuTarget, problem: Contraction, width: int, most: int
) -> Iterator[ResidentPlan]:
    """Plans of which all programs are resident, with tiles for at `most` so many rows."""
    for plan in _fitting(target, problem, width, most):
        if math.prod(plan.grid) <= _most_programs(target, plan):
            yield plan


def _most_programs(target: GpuTarget, plan: ResidentPlan) -> int:
    """That are resident."""
    return min(target.lds_per_cu // plan.lds, 2) * target.lds_units


def _fitting(
    target: GpuTarget, problem: Contraction, width: int, most: int
) -> Iterator[ResidentPlan]:
    """Plans that fit a compute unit, with tiles for at `most` so many rows."""
    if problem.a.dtype != problem.accumulate:
        yield from _by_unit(target, problem, width, most)
        return
    threads, cell = target.usual_workgroup, CELL_BYTES // itemsize(problem.accumulate)
    for rows, columns in itertools.product(TILES, TILES):
        if rows > power_of_two(most) or columns > power_of_two(width):
            continue
        partition = Partition(problem.rows, width, rows, columns)
        groups = problem.columns // width
        for lanes, depth in itertools.product(_lanes(target, rows, columns, groups), DEPTHS):
            plan = ResidentPlan(problem, partition, depth, threads, lanes)
            useful = rows * depth <= MOST_BROUGHT * threads and plan.parts * groups <= MOST_PARTS
            if useful and depth % (cell * plan.parts) == 0 and plan.lds <= target.lds_bytes:
                yield plan


def _by_unit(
    target: GpuTarget, problem: Contraction, width: int, most: int
) -> Iterator[ResidentPlan]:
    """The same for the matrix unit."""
    threads, groups = target.usual_workgroup, problem.columns // width
    waves = threads // target.wave_size
    for atom in mma_atoms(target, problem.a.dtype, problem.accumulate):
        if atom.by_lanes:
            continue
        depth = round_up(problem.depth, atom.depth * waves)
        for rows, columns in itertools.product(TILES, TILES):
            fits = rows <= max(power_of_two(most), atom.m) and columns <= power_of_two(width)
            if not fits or rows % atom.m or groups * columns % atom.n:
                continue
            atoms = rows // atom.m * (groups * columns // atom.n)
            partition = Partition(problem.rows, width, rows, columns)
            plan = ResidentPlan(problem, partition, depth, threads, (1, 1, target.wave_size), atom)
            few = atoms * len(atom.elements) <= MOST_UNIT_SUMS and waves * groups <= MOST_PARTS
            multiplied = (
                atoms * depth // (waves * atom.depth) * max(1, atom.cell_depth // atom.step)
            )
            if few and multiplied <= MOST_MULTIPLIED and plan.lds <= target.lds_bytes:
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
    costs, size = target.costs, itemsize(plan.problem.a.dtype)
    high, wide, deep = plan.lanes
    if plan.atom is not None:
        rate, lines = plan.atom.flops, plan.columns
        read = plan.columns * plan.whole * size / costs.lds_rate
    else:
        rate = target.vector_rate if size == 4 else target.f64_rate
        lines = plan.rows // high + plan.columns // wide
        cells = plan.whole * size // CELL_BYTES
        read = cells // deep * lines * CELL_BYTES * target.wave_size / costs.lds_rate
    multiplied = 2 * plan.rows * plan.columns * plan.whole / rate
    brought = plan.rows * plan.whole * size / costs.cache_rate
    wide = itemsize(plan.problem.accumulate)
    met = 2 * plan.parts * plan.rows * plan.columns * wide / costs.lds_rate
    times = plan.whole // plan.depth
    together = ceil_div(math.prod(plan.grid), target.lds_units)
    waiting = times * (costs.load_latency + 2 * costs.stall)
    return waiting + together * (max(multiplied, read) + brought + times * met)


class _Emitter:
    def __init__(self, ctx: ShapedContext, plan: ResidentPlan):
        self.ctx, self.plan, self.problem = ctx, plan, plan.problem
        self.program = Program(ctx, "product")
        self.k = self.program.k
        self.cell = CELL_BYTES // itemsize(self.problem.accumulate)
        self.k.schedule.workgroup, self.k.schedule.vector = plan.workgroup, self.cell

    def call(self) -> Call:
        k, p, plan = self.k, self.problem, self.plan
        part, groups = plan.partition, range(plan.groups)
        high, wide = plan.grid
        number = k.program_id()
        bases = [number % high * part.rows, number // high * part.columns]
        matrix = k.scratch("matrix", p.b.dtype, plan.columns * plan.pitch)

        def fill() -> None:
            # Few elements at once: those that lie across change threads in LDS.
            steps = max(self.cell, min(plan.depth, FILLED // part.columns))

            def bring(at: Value) -> None:
                for i in groups:
                    to = at + i * part.columns * plan.pitch
                    brought = part.columns, steps
                    self._bring(self._lines(i), bases[1], brought, at, matrix, to, plan.pitch)

            k.for_(0, plan.whole, steps, bring)

        k.once(fill)

        multiplied = self._by_lanes if plan.atom is None else self._by_unit
        sums = multiplied(matrix, bases[0])
        writer = TileWriter(self.program, p.out, [])
        for i, x in zip(groups, sums, strict=True):
            writer.store([x], bases, (p.rows, part.width), column=i * part.width)
        call = self.program.launch(high * wide, 2.0 * plan.rows * plan.columns * plan.whole)
        return replace(call.owning(self._own().__contains__, part), whole_lds=True)

    def _by_lanes(self, matrix: Buffer, first: Value) -> list[Value]:
        """The sums of the rows from `first` on; rows come through LDS."""
        k, p, plan = self.k, self.problem, self.plan
        pitches, tile = (plan.depth + self.cell, plan.pitch), (plan.rows, plan.partition.columns)
        rows = k.scratch("rows", p.accumulate, plan.rows * pitches[0])

        def multiply(at: Value, *sums: Value) -> list[Value]:
            brought = plan.rows, plan.depth
            self._bring(p.a, first, brought, at, rows, k.const("index", 0), pitches[0])
            more = k.scratch_product(
                rows, matrix, at, tile, pitches, plan.depth, plan.lanes, plan.groups
            )
            return [x + y for x, y in zip(sums, more, strict=True)]

        zeros = k.const(p.accumulate, 0, tile)
        return list(k.for_(0, plan.whole, plan.depth, multiply, [zeros] * plan.groups))

    def _by_unit(self, matrix: Buffer, first: Value) -> list[Value]:
        """The same; rows come from memory."""
        k, p, plan = self.k, self.problem, self.plan
        assert plan.atom is not None
        line = p.a.lines[0].stride if p.a.lines else 0
        rows = self.program.buffer(p.a.owner, p.a.dtype)
        place = first * line + p.a.offset, k.const("index", p.a.line_count - 1) - first
        fragments = plan.rows // plan.atom.m, plan.columns // plan.atom.n
        tiling = MatrixTiling(plan.atom.name, plan.atom.operand, (1, 1), fragments, plan.whole, 0)
        tile, pitches = (plan.rows, plan.partition.columns), (line, plan.pitch)
        return k.resident_product(rows, matrix, place, tile, pitches, p.depth, tiling, plan.groups)

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
