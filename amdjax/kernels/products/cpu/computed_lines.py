"""Few rows times lines of a matrix whose elements are computed where they are read.

Lanes are steps in depth: each line is read once, in the order of its memory, a block of its depth
at a time. What all of a block is multiplied by is multiplied to its sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import Contraction, Sink, lane_count
from amdjax.kernels.products.cpu.computed_elements import ComputedElements, Problem
from amdjax.kernels.products.cpu.costs import launch, launch_time, nanoseconds, work
from amdjax.kernels.products.cpu.micro_kernel import multiply_add
from amdjax.kernels.products.cpu.plain import PlainProduct, stride_of
from amdjax.kernels.products.writing import store_lanes
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.computed import ComputedOperand, Term
from amdjax.schedule.index import Index, LoopVar
from amdjax.schedule.row_plan import counted
from amdjax.schedule.search import Solver, shares
from amdjax.schedule.values import Lanes
from amdjax.targets.cpu import CpuTarget

Value = tile.Value

LINES = 64  # lines a program finishes before it stores them
MOST_SUMS = 8  # of lines and rows that registers hold at once
COMPUTED = 1.2  # cycles of a vector of elements
LANE_SUM = 6  # cycles to add the lanes of a sum


@dataclass(frozen=True)
class ComputedLinesPlan:
    """Sums along lanes of a few lines and all rows.

    Args:
      problem: the contraction; rows, columns and depth are one loop each.
      computed: its right operand.
      lanes: steps in depth, or of those that share an element of memory.
      group: lines that are summed at once.
      programs: along the lines.
    """

    problem: Contraction
    computed: ComputedOperand
    lanes: int
    group: int
    programs: int

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return ComputedLines(ctx, self).calls()

    def __str__(self) -> str:
        lines = f"{counted(self.programs, 'program')}, {counted(self.group, 'line')} at once"
        block = f"{self.lanes} lanes, blocks of {self.computed.block}"
        return f"computed lines of {self.problem}, {lines}, {block}"


def computed_lines_plans(problem: Problem, target: CpuTarget) -> list[ComputedLinesPlan]:
    """Plans for lines along the depth."""
    p, computed = problem
    if not computed.by_line:
        return []
    lanes = min(lane_count(target, p.accumulate), computed.block // computed.interleave)
    group = 1
    while group * 2 * p.rows <= MOST_SUMS:
        group *= 2
    most = min(ceil_div(p.columns, LINES), 4 * target.threads)
    return [ComputedLinesPlan(p, computed, lanes, group, n) for n in shares(most)]


def computed_lines_cost(problem: Problem, plan: ComputedLinesPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    p = problem[0]
    vectors = ceil_div(p.depth, plan.lanes)
    copied = p.rows * vectors * target.costs.copy
    each = vectors * (COMPUTED + p.rows / 2) + p.rows * LANE_SUM
    total = p.columns * each + plan.programs * copied
    lines = ceil_div(ceil_div(p.columns, LINES), plan.programs) * LINES
    cycles = launch(lines * each + copied, plan.programs, target, total, work(p, target))
    return nanoseconds(cycles, target)


COMPUTED_LINES = Solver("computed lines", computed_lines_plans, computed_lines_cost)


class ComputedLines(PlainProduct):
    """Sums along lanes of a few lines and all rows."""

    def __init__(self, ctx: ShapedContext, plan: ComputedLinesPlan):
        super().__init__(ctx, plan.problem, 1)
        self.plan, self.computed, self.lanes = plan, plan.computed, plan.lanes
        #: depth of a part, and what of it one number of each element of memory is
        self.width = plan.problem.depth // plan.computed.parts
        self.run = self.width // plan.computed.interleave

    def _product(self, sink: Sink) -> Call:
        p, plan = self.problem, self.plan
        (place,), _ = self.begin("computed_lines", sink, [plan.programs])
        k = self.k
        self.elements = ComputedElements(self.program, self.computed)
        self.sums = k.scratch("sums", p.accumulate, p.rows * (LINES + self.lanes))
        self._copy_rows()
        chunks = ceil_div(p.columns, LINES)

        def chunk(i: Value) -> None:
            first = i * LINES
            count = k.min(k.const("index", p.columns) - first, LINES)
            k.for_(0, count, plan.group, lambda g: self._group(first, g))
            for r in range(p.rows):
                row = k.const("index", r)

                def store(v: Value) -> None:
                    at = v + r * (LINES + self.lanes)
                    store_lanes(
                        k, self.writer, self.sums, at, row, first + v, first + count, self.lanes
                    )

                k.for_(0, count, self.lanes, store)

        start, stop = (((place + i) * chunks) // plan.programs for i in (0, 1))
        k.for_(start, stop, 1, chunk)
        return self.program.launch(p.batches * plan.programs, launch_time(work(p, self.target)))

    def _copy_rows(self) -> None:
        """Have the rows with the steps in depth side by side that lanes are."""
        k, p, interleave = self.k, self.problem, self.computed.interleave
        a_line, a_step = stride_of(p.a.lines), stride_of(p.a.depth)
        self.rows = k.scratch("rows", p.accumulate, p.rows * p.depth)
        for r in range(p.rows):
            for n in range(interleave):

                def copy(at: Value) -> None:
                    source = self.a_base + r * a_line + (at * interleave + n) * a_step
                    x = self.load(self.a, source, interleave * a_step, (self.lanes,))
                    k.store(self.rows, at + (r * interleave + n) * (p.depth // interleave), x, (1,))

                k.for_(0, p.depth // interleave, self.lanes, copy)

    def _group(self, first: Value, g: Value) -> None:
        """A few lines at once; past the last line it is taken again."""
        k, p, plan, b = self.k, self.problem, self.plan, self.elements
        last = k.const("index", p.columns - 1)
        lines = [LoopVar(f"n{n}", p.columns) for n in range(plan.group)]
        for n, line in enumerate(lines):
            b.scalars[line] = k.min(first + g + n, last)
        block = LoopVar("b", self.width // self.computed.block)

        def add(i: Value, *totals: Value) -> list[Value]:
            b.scalars[block] = i
            out = list(totals)
            for part in range(self.computed.parts):
                out = self._block(Index.of(block), part, i, lines, out)
            return out

        none = [k.const(p.accumulate, 0, (self.lanes,))] * (plan.group * p.rows)
        totals = k.for_(0, block.extent, 1, b.nested(add), none)
        for n in range(plan.group):
            for r in range(p.rows):
                total = k.reduce("add", totals[n * p.rows + r])
                k.store(self.sums, g + n + r * (LINES + self.lanes), total)

    def _block(
        self, number: Index, part: int, i: Value, lines: list[LoopVar], totals: list[Value]
    ) -> list[Value]:
        """Add a block of the depth of some lines to their sums."""
        k, p, computed = self.k, self.problem, self.computed
        start = number * computed.block + part * self.width
        scales = [self._scale(start, line) for line in lines]
        # As many multiplications of sums as there are rows, or of elements as there are vectors.
        of_sums = bool(computed.factors) and p.rows <= computed.block // self.lanes
        zero = k.const(p.accumulate, 0, (self.lanes,))
        sums = [zero] * len(totals) if of_sums else list(totals)
        for depth, xs in self._steps(start, part, i):
            for n, (line, scale) in enumerate(zip(lines, scales, strict=True)):
                y = self._value(computed.core, depth, line)
                y = y if scale is None or of_sums else y * scale
                for r, x in enumerate(xs):
                    at = n * p.rows + r
                    sums[at] = multiply_add(k, x, y, sums[at])
        if not of_sums:
            return sums
        pairs = zip(sums, totals, strict=True)
        of_each = (scale for scale in scales for _ in range(p.rows))
        return [
            multiply_add(k, more, scale, total)
            for (more, total), scale in zip(pairs, of_each, strict=True)
            if scale is not None
        ]

    def _scale(self, start: Index, line: LoopVar) -> Value | None:
        """What sums of a block of a line are multiplied by."""
        scale = None
        for factor in self.computed.factors:
            x = self._value(factor, start, line)
            scale = x if scale is None else scale * x
        return scale

    def _steps(self, start: Index, part: int, i: Value) -> Iterator[tuple[Index, list[Value]]]:
        """For each vector of a block its steps in depth, and those of all rows."""
        k, p, computed = self.k, self.problem, self.computed
        interleave, lane = computed.interleave, LoopVar("l", self.lanes)
        self.elements.lanes = [Lanes(lane, self.lanes, 0, k.const("index", 0))]
        each = computed.block // interleave
        for first in range(0, each, self.lanes):
            for n in range(interleave):
                place = i * each + (part * self.run + first)
                xs = [
                    k.load(
                        self.rows, place + (r * interleave + n) * (p.depth // interleave),
                        (self.lanes,), (1,),
                    )
                    for r in range(p.rows)
                ]  # fmt: skip
                yield start + Index.of(lane) * interleave + (first * interleave + n), xs

    def _value(self, term: Term, depth: Index, line: LoopVar) -> Value:
        return self.elements.vector(
            term, depth, Index.of(line), self.lanes, self.problem.accumulate
        )
