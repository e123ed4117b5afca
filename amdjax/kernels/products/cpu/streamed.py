"""A row or a few times a matrix that was packed before, each element of which is read once.

Such products take as long as their matrix takes to arrive. Neighboring panels are read side by
side: what looks ahead in memory follows several streams, where one alone would wait for each line.
Sums stay in registers, and rows are read where they lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.dims import Dim, is_multiple
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import (
    Contraction,
    ProductProblem,
    Sink,
    Source,
    TileShape,
    lane_count,
    private_cache,
)
from amdjax.kernels.products.cpu.costs import conversions, launch, launch_time, nanoseconds, work
from amdjax.kernels.products.cpu.micro_kernel import Rows, multiply
from amdjax.kernels.products.cpu.packing import PanelPacker
from amdjax.kernels.products.cpu.plain import PlainProduct, plain_contraction, stride_of
from amdjax.kernels.products.writing import store_sums
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Solver, shares
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

Value = tile.Value

VECTORS = 2  # of a panel
STREAMS = {1: 4, 2: 3, 3: 2}  # panels side by side, by rows, whose sums 16 registers hold
BLOCK = 512  # of the depth, which is summed from zero: rounding errors grow with it


@dataclass(frozen=True)
class StreamedPlan:
    """Few rows times packed panels.

    Args:
      problem: the contraction; rows, columns and depth are one loop each.
      tile: what registers hold: all rows, and the columns of panels that are read side by side.
      width: tiles along the columns that a program computes, one after the other.
    """

    problem: Contraction
    tile: TileShape
    width: int

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return VECTORS * self.tile.lanes

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return Streamed(ctx, self).calls()

    def __str__(self) -> str:
        streams = f"{self.tile.columns // self.panel} panels of {self.panel} columns side by side"
        columns = f"{self.width * self.tile.columns} columns in a program"
        return f"streamed product of {self.problem}, {columns}, {streams}"


def streamed_plans(product: ProductProblem, target: CpuTarget) -> list[StreamedPlan]:
    """Plans for few rows and a right operand that is packed once for many products."""
    p = plain_contraction(product.merged)
    if p is None or any(isinstance(size, Dim) for size in (p.rows, p.columns, p.depth)):
        return []
    # What is narrower than sums arrives sooner as it is than packed.
    if not p.b.fixed or p.b.dtype != p.accumulate or p.rows not in STREAMS:
        return []
    shape = TileShape(p.rows, VECTORS * STREAMS[p.rows], lane_count(target, p.accumulate))
    if p.columns < shape.columns:
        return []
    wide = ceil_div(p.columns, shape.columns)
    widths = (ceil_div(wide, n) for n in shares(min(wide, 4 * target.threads)))
    return [StreamedPlan(p, shape, width) for width in dict.fromkeys(widths)]


def streamed_cost(product: ProductProblem, plan: StreamedPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    p, shape, costs = plan.problem.at_hand, plan.tile, target.costs
    wide = ceil_div(p.columns, shape.columns)
    step = max(shape.rows * shape.vectors / 2, shape.vectors * costs.load, costs.latency)
    step += costs.step + conversions(p, shape.rows, 0, target)
    size = itemsize(p.accumulate)
    near = p.batches * p.depth * p.columns * size <= private_cache(target)
    arrival = shape.columns * size / (costs.stream_rate if near else costs.panels_rate)
    each = p.depth * max(step, arrival) + costs.tile
    programs = p.batches * ceil_div(wide, plan.width)
    total = p.batches * wide * each
    cycles = launch(min(plan.width, wide) * each, programs, target, total, work(p, target))
    return nanoseconds(cycles, target)


STREAMED = Solver("streamed", streamed_plans, streamed_cost)


class Streamed(PlainProduct):
    """Few rows times packed panels."""

    def __init__(self, ctx: ShapedContext, plan: StreamedPlan):
        p, shape, panel = plan.problem, plan.tile, plan.panel
        self.packer = packer = PanelPacker(ctx, p, panel, shape.lanes, ctx.target)
        super().__init__(ctx, replace(p, b=_panels(p.b, packer)), 1)
        self.plan, self.shape = plan, shape

    def calls(self) -> list[Call]:
        return [self.packer.call(), *super().calls()]

    def _product(self, sink: Sink) -> Call:
        p, shape, plan = self.problem, self.shape, self.plan
        wide = ceil_div(p.columns, shape.columns)
        blocks = ceil_div(wide, plan.width)
        places, _ = self.begin("streamed", sink, [blocks])
        k = self.k
        waiting = k.scratch("sums", p.accumulate, shape.rows * shape.columns)
        zero, rows, width = (k.const("index", n) for n in (0, shape.rows, p.columns))
        whole = is_multiple(p.columns, shape.columns)

        def one(j: Value) -> None:
            sums = [x for line in self._sums(j) for x in line]
            store_sums(
                self.writer, waiting, zero, shape, sums, (zero, rows), (j * shape.columns, width),
                True, whole,
            )  # fmt: skip

        first = places[0] * plan.width
        k.for_(first, k.min(first + plan.width, k.const("index", wide)), 1, one)
        return self.program.launch(p.batches * blocks, launch_time(work(p, self.target)))

    def _sums(self, j: Value) -> Rows:
        """Those of the tile of that number."""
        k, p, shape, panel = self.k, self.problem, self.shape, self.plan.panel
        a_line, a_step = stride_of(p.a.lines), stride_of(p.a.depth)
        streams, last = shape.columns // panel, self.packer.panels - 1
        # Where there are no more, the last one is read again.
        numbers = (k.min(j * streams + n, last) for n in range(streams))
        starts = [self.b_base + number * (self.packer.depth * panel) for number in numbers]

        def block(start: Value | int, steps: Value | int) -> Rows:
            def load_a(s: Value, r: int) -> Value:
                return self.load(self.a, self.a_base + (s + start) * a_step + r * a_line, 1, ())

            def load_b(s: Value, v: int) -> Value:
                at = starts[v // VECTORS] + (s + start) * panel + v % VECTORS * shape.lanes
                return k.load(self.b, at, (shape.lanes,), (1,))

            return multiply(k, shape, p.accumulate, steps, load_a, load_b, None)

        if p.depth <= BLOCK:
            return block(0, p.depth)
        count = ceil_div(p.depth, BLOCK)
        size = ceil_div(p.depth, count)

        def add(i: Value, *totals: Value) -> list[Value]:
            steps = k.min(k.const("index", p.depth) - i, size)
            sums = (x for line in block(i, steps) for x in line)
            return [x + total for x, total in zip(sums, totals, strict=True)]

        none = [k.const(p.accumulate, 0, (shape.lanes,))] * (shape.rows * shape.vectors)
        flat = list(k.for_(0, p.depth, size, add, none))
        return [flat[n : n + shape.vectors] for n in range(0, len(flat), shape.vectors)]


def _panels(b: Source, packer: PanelPacker) -> Source:
    """Packed panels as what is read; steps from one to the next and within are the kernel's."""
    step, batch = packer.panels * packer.depth * packer.columns, list(b.batch)
    for i in reversed(packer.batch):
        batch[i] = replace(batch[i], stride=step)
        step *= batch[i].extent
    return replace(b, owner=packer.result, dtype=packer.dtype, offset=0, batch=tuple(batch))
