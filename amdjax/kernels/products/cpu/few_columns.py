"""Convolutions with very few features in their result, as in the gradient of a first layer.

A vector of result features would be nearly empty. Here lanes run along the features that are summed
over: a few positions and all result features are kept as vectors of partial sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import Dim, is_multiple
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import Axis, Contraction, ProductProblem, lane_count
from amdjax.kernels.products.cpu.costs import conversions, launch, nanoseconds
from amdjax.kernels.products.cpu.micro_kernel import multiply_add
from amdjax.kernels.products.cpu.reading import Reader
from amdjax.kernels.products.program import Program
from amdjax.kernels.products.writing import Writer, store_lanes
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Solver, shares
from amdjax.targets.cpu import CpuTarget

Value = tile.Value

MOST_COLUMNS = 4
LANE_SUM = 8  # cycles to add the lanes of a sum
POSITIONS = 4  # positions of the result that share what is loaded of the kernel


@dataclass(frozen=True)
class FewColumnsPlan:
    """Rows times few columns, both contiguous along the innermost depth.

    Args:
      problem: the contraction, its loops not merged.
      chunk: groups of rows that a program computes.
    """

    problem: Contraction
    chunk: int

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [FewColumnsProduct(ctx, self).call()]

    def __str__(self) -> str:
        rows = f"{self.chunk * POSITIONS} rows in a program"
        return f"few columns, product of {self.problem}, {rows}"


def few_columns_plans(product: ProductProblem, target: CpuTarget) -> list[FewColumnsPlan]:
    """Plans for a contraction whose loops are not merged; none where they do not fit."""
    problem = product.loops
    if problem.is_complex or not problem.a.limits or isinstance(problem.columns, Dim):
        return []
    if problem.columns > MOST_COLUMNS:
        return []
    if not problem.depth or problem.b.limits or len(problem.a.depth) < 2:
        return []
    near, kernel = problem.a.depth[-1], problem.b.depth[-1]
    lanes = lane_count(target, problem.accumulate)
    if near.stride != 1 or kernel.stride != 1 or any(near.shifts) or near.extent < lanes:
        return []
    p = problem.at_hand
    groups = ceil_div(p.rows, POSITIONS) * p.batches
    most = max(1, min(64, groups // (8 * target.threads)))
    return [FewColumnsPlan(problem, chunk) for chunk in shares(most)]


def few_columns_cost(product: ProductProblem, plan: FewColumnsPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    p, lanes = plan.problem.at_hand, lane_count(target, plan.problem.accumulate)
    near = p.a.depth[-1].extent
    vectors = p.depth // near * ceil_div(near, lanes)
    loads = POSITIONS + p.columns + conversions(p, POSITIONS, p.columns, target)
    each = vectors * max(loads, POSITIONS * p.columns / 2)
    each += POSITIONS * (target.costs.line + LANE_SUM * p.columns)
    programs = p.batches * ceil_div(ceil_div(p.rows, POSITIONS), plan.chunk)
    return nanoseconds(launch(plan.chunk * each + target.costs.tile, programs, target), target)


FEW_COLUMNS = Solver("few columns", few_columns_plans, few_columns_cost)


class FewColumnsProduct:
    """Rows times few columns, both contiguous along the innermost depth."""

    def __init__(self, ctx: ShapedContext, plan: FewColumnsPlan):
        self.ctx, self.problem, self.chunk = ctx, plan.problem, plan.chunk
        self.lanes = lane_count(ctx.target, plan.problem.accumulate)

    def call(self) -> Call:
        p = self.problem
        self.program = program = Program(self.ctx, "few_columns")
        self.k = k = program.k
        self.a, self.b = Reader(program, p.a, "a"), Reader(program, p.b, "b")
        pid = k.program_id()
        groups = ceil_div(p.rows, POSITIONS)
        chunk = self.chunk
        blocks = ceil_div(groups, chunk)
        batch = program.split(pid // blocks, "batch", p.out.batch)
        block = pid % blocks
        writer = Writer(
            program, Contraction(p.a, p.b, p.out.merged(), p.accumulate), _kept(p, batch)
        )
        accumulators = k.scratch("sums", p.accumulate, POSITIONS * self.lanes)
        stop = k.min((block + 1) * chunk, groups)

        def group(g: Value) -> None:
            first = g * POSITIONS
            totals = self._sums(first, batch)
            for i, total in enumerate(totals):
                row, column = divmod(i, p.columns)
                at = k.const("index", row * self.lanes + column)
                k.store(accumulators, at, k.reduce("add", total))
            rows = k.min(k.const("index", p.rows) - first, POSITIONS)
            zero, width = k.const("index", 0), k.const("index", p.columns)

            def store(r: Value) -> None:
                store_lanes(
                    k, writer, accumulators, r * self.lanes, first + r, zero, width, self.lanes
                )

            k.for_(0, rows, 1, store)

        k.for_(block * chunk, stop, 1, group)
        work = p.batches * p.rows * p.depth * (p.columns + 1) / self.lanes
        return program.launch(p.batches * blocks, work / 4)

    def _sums(self, first: Value, batch: Sequence[Value]) -> list[Value]:
        """Partial sums of a few rows and all columns, row by row."""
        k, p, lanes = self.k, self.problem, self.lanes
        base, coords = self.a.start(batch)
        rows = [self.a.line(first + r, base, coords) for r in range(POSITIONS)]
        start, _ = self.b.start(batch)
        columns = [self.b.line(k.const("index", c), start, [])[0] for c in range(p.columns)]
        extent = p.a.depth[-1].extent
        zero = k.const("index", 0)
        still = [zero] * len(p.a.limits)

        def nest(d: int, digits: list[Value], totals: list[Value]) -> list[Value]:
            if d < len(p.a.depth) - 1:
                step = lambda i, *t: nest(d + 1, [*digits, i], list(t))
                return list(k.for_(0, p.a.depth[d].extent, 1, step, totals))
            offset, shifts = self.a.place("depth", digits, zero, still)
            kernel, _ = self.b.place("depth", digits, zero, [])
            inside = []
            for _, line in rows:
                test = self.a.inside([c + m for c, m in zip(line, shifts)])
                assert test is not None
                inside.append(k.broadcast(test, (lanes,)))

            def chunk_at(e: Value, *totals: Value) -> list[Value]:
                tail = None
                if not is_multiple(extent, lanes):
                    left = k.convert(k.const("index", extent) - e, "i32")
                    tail = k.iota(lanes, "i32") < left
                ws = [self._load(self.b, at + kernel + e, tail) for at in columns]
                out = []
                for r, (at, _) in enumerate(rows):
                    mask = inside[r] if tail is None else inside[r] & tail
                    x = self._load(self.a, at + offset + e, mask)
                    for c, w in enumerate(ws):
                        out.append(multiply_add(k, x, w, totals[r * p.columns + c]))
                return out

            return list(k.for_(0, extent, lanes, chunk_at, totals))

        return nest(0, [], [k.const(p.accumulate, 0, (lanes,))] * (POSITIONS * p.columns))

    def _load(self, reader: Reader, at: Value, mask: Value | None) -> Value:
        x = self.k.load(reader.buffer, at, (self.lanes,), (1,), mask)
        return self.k.convert(x, self.problem.accumulate)


def _kept(problem: Contraction, digits: Sequence[Value]) -> list[Value]:
    """Places along the batch loops that merging leaves."""
    axes: Sequence[Axis] = problem.out.batch
    return [digit for axis, digit in zip(axes, digits) if axis.extent != 1]
