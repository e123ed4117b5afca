"""Gradients of a convolution's kernel from a padded copy of the input: sums over positions.

Rows of the result are taps and input features, columns output features; what is summed over are
positions. Packed, each element of the input would be copied once for each tap. Here a program
copies what a block of positions sees once (`window_copy.py`), and a tile of rows, which lie side by
side there, is summed over all positions of the block in registers. Sums of blocks before it wait in
scratch. Programs share the positions, the columns, or the groups, whose features are copied alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.dims import Dim, is_multiple, min_dim, size_hint
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import (
    Axis,
    Contraction,
    ProductProblem,
    Sink,
    TileShape,
    WindowAxis,
    best_tiles,
    private_cache,
)
from amdjax.kernels.products.cpu.blocking import extents
from amdjax.kernels.products.cpu.costs import (
    combining,
    launch,
    launch_time,
    nanoseconds,
    packing,
    work,
)
from amdjax.kernels.products.cpu.micro_kernel import multiply
from amdjax.kernels.products.cpu.packing import PanelPacker
from amdjax.kernels.products.cpu.window_copy import (
    WindowBlock,
    WindowCopy,
    block_loops,
    position_blocks,
)
from amdjax.kernels.products.program import Program
from amdjax.kernels.products.split_k import combine_parts, split_sink
from amdjax.kernels.products.writing import Writer, store_sums
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Solver, shares
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

Value = tile.Value

LONG_SUM = 1024  # positions that are summed by themselves
MOST_TILES = 2  # of different shapes that are looked at
MOST_PLANS = 6  # that are looked at


@dataclass(frozen=True)
class ImplicitGradientPlan:
    """Sums over positions, from a padded copy of what they see.

    Args:
      problem: the contraction, merged.
      axes: of the windows of the convolution whose kernel's gradient it is.
      features: of the input.
      tile: what registers hold: rows are elements that lie side by side.
      block: positions along each axis that are copied at once.
      panels: panels of columns of a program.
      splits: parts of the blocks that different programs sum, where there are as many blocks.
    """

    problem: Contraction
    axes: tuple[WindowAxis, ...]
    features: int
    tile: TileShape
    block: tuple[int, ...]
    panels: int
    splits: int

    @property
    def window(self) -> WindowBlock:
        """What a program copies at once."""
        return WindowBlock(self.axes, self.block, self.features)

    @property
    def run(self) -> int:
        """Rows of the result that lie side by side in the copy."""
        last = self.axes[-1]
        return self.features * (last.taps if last.tap_shift == 1 else 1)

    @property
    def looped(self) -> tuple[WindowAxis, ...]:
        """The axes whose taps are a loop each."""
        return self.axes if self.axes[-1].tap_shift > 1 else self.axes[:-1]

    @property
    def tiles(self) -> int:
        """Tiles of a panel."""
        taps = math.prod(axis.taps for axis in self.looped)
        return taps * ceil_div(self.run, self.tile.rows)

    @property
    def parts(self) -> int:
        """Parts of the blocks: none is empty."""
        return min_dim(self.splits, math.prod(self.window.counts))

    @property
    def rounds(self) -> int:
        """Blocks of positions that a program sums, at most."""
        return ceil_div(math.prod(self.window.counts), self.splits)

    @property
    def waiting(self) -> int:
        """Elements of sums that wait for further blocks, if there may be such."""
        held = self.tiles * self.panels * self.tile.rows * self.tile.columns
        return held if isinstance(self.rounds, Dim) or self.rounds > 1 else 0

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return ImplicitGradient(ctx, self).calls()

    def __str__(self) -> str:
        block = "×".join(map(str, self.block))
        out = (
            f"implicit gradient, {self.problem}, blocks of {block} positions and "
            f"{self.panels * self.tile.columns} columns in tiles of {self.tile}"
        )
        return out + (f", split {self.splits} ways along depth" if self.splits > 1 else "")


def implicit_gradient_plans(
    product: ProductProblem, target: CpuTarget
) -> list[ImplicitGradientPlan]:
    """Plans of several blocks; none for what is no gradient of a kernel of several taps."""
    p, axes = product.merged, product.gradient
    if p.is_complex or any(isinstance(n, Dim) for n in (p.rows, p.columns)):
        return []
    if math.prod(axis.taps for axis in axes) == 1:
        return []
    features = p.rows // math.prod(axis.taps for axis in axes)
    found = [
        plan
        for shape in best_tiles(p, target)[:MOST_TILES]
        for plan in _plans(p, axes, features, shape, target)
    ]
    found.sort(key=lambda plan: implicit_gradient_cost(product, plan, target))
    return list(dict.fromkeys(found))[:MOST_PLANS]


def _plans(
    p: Contraction, axes: tuple[WindowAxis, ...], features: int, shape: TileShape, target: CpuTarget
) -> Iterator[ImplicitGradientPlan]:
    wide = ceil_div(p.columns, shape.columns)
    size, cache = itemsize(p.accumulate), private_cache(target)
    for block in position_blocks(axes, 1):
        if math.prod(block) > LONG_SUM:
            continue
        blocks = size_hint(math.prod(WindowBlock(axes, block, features).counts))
        for columns, splits in itertools.product(
            extents(wide, wide)[:4], shares(min(2 * target.threads, blocks))
        ):
            plan = ImplicitGradientPlan(p, axes, features, shape, block, columns, splits)
            panel = math.prod(block) * shape.columns
            if (plan.window.elements + plan.waiting + panel) * size <= cache * 3 // 4:
                yield plan


def implicit_gradient_cost(
    product: ProductProblem, plan: ImplicitGradientPlan, target: CpuTarget
) -> float:
    """Nanoseconds, about."""
    p, shape, costs, dtype = plan.problem.at_hand, plan.tile, target.costs, plan.problem.accumulate
    positions = math.prod(plan.block)
    wide = ceil_div(p.columns, shape.columns)
    arrival = positions * shape.columns * itemsize(dtype) / costs.memory_rate
    each_panel = max(plan.tiles * (positions * shape.cycles(costs) + costs.tile), arrival)
    copying = plan.window.copy_cycles(costs, shape.lanes)
    each = size_hint(plan.rounds) * (each_panel * plan.panels + copying) + costs.program
    programs = plan.splits * p.batches * ceil_div(wide, plan.panels)
    cycles = launch(each, programs, target, counted=work(p, target))
    packed = packing(p.b, shape.columns, p.depth, shape.columns, target, dtype)
    cycles += launch(packed, p.batches * wide, target) + combining(p, plan.splits, target)
    return nanoseconds(cycles, target)


IMPLICIT_GRADIENT = Solver("implicit gradient", implicit_gradient_plans, implicit_gradient_cost)


class ImplicitGradient:
    """The gradient of a kernel as launches: packing the result's cotangent, and sums."""

    def __init__(self, ctx: ShapedContext, plan: ImplicitGradientPlan):
        self.ctx, self.plan, self.problem = ctx, plan, plan.problem
        shape = plan.tile
        self.packer = PanelPacker(ctx, plan.problem, shape.columns, shape.lanes, ctx.target)

    def calls(self) -> list[Call]:
        """The launches in order."""
        p, splits = self.problem, self.plan.splits
        if splits > 1:
            parts, temp = split_sink(p, splits)
            combine = combine_parts(self.ctx, p, temp, self.plan.parts)
            return [self.packer.call(), self._sums(parts), combine]
        return [self.packer.call(), self._sums(p.out)]

    def _sums(self, sink: Sink) -> Call:
        p, plan, shape = self.problem, self.plan, self.plan.tile
        self.program = program = Program(self.ctx, "gradient")
        self.k = k = program.k
        # Rows of a tile that do not exist are computed all the same, from what lies there.
        self.copy = WindowCopy(program, p.a, plan.window, p.accumulate, shape.lanes, shape.rows)
        self.panels = program.buffer(self.packer.result, self.packer.dtype)
        wide = ceil_div(self.packer.panels, plan.panels)
        pid = k.program_id()
        first = (pid % wide) * plan.panels
        part, *self.batch = program.split(pid // wide, "part", [Axis(plan.parts, 0), *p.a.batch])
        place = [part, *self.batch] if plan.splits > 1 else self.batch
        self.writer = Writer(program, replace(p, out=sink), place)
        self.sums = k.scratch("sums", p.accumulate, plan.waiting or shape.rows * shape.columns)
        total = math.prod(plan.window.counts)
        low, high = ((part + i) * total // plan.parts for i in (0, 1))
        panels = k.min(k.const("index", self.packer.panels) - first, plan.panels)

        def block(n: Value) -> None:
            digits = program.split(n, "block", block_loops(plan.window))
            places = [digit * m for digit, m in zip(digits, plan.block, strict=True)]
            self.copy.write(self.batch, places)
            self.fresh, self.last = k.eq(n, low), k.eq(n + 1, high)
            k.for_(0, panels, 1, lambda j: self._rows(first + j, j * plan.tiles, []))

        k.for_(low, high, 1, block)
        grid = plan.parts * p.batches * wide
        return program.launch(grid, launch_time(work(p, self.ctx.target)))

    def _rows(self, panel: Value, number: Value, taps: list[Value]) -> None:
        """All tiles of a panel, whose first has a number among those in scratch."""
        k, plan = self.k, self.plan
        tiles = ceil_div(plan.run, plan.tile.rows)
        if len(taps) < len(plan.looped):
            axis = plan.looped[len(taps)]
            each = math.prod(later.taps for later in plan.looped[len(taps) + 1 :]) * tiles

            def tap(t: Value) -> None:
                self._rows(panel, number + t * each, [*taps, t])

            k.for_(0, axis.taps, 1, tap)
            return
        k.for_(0, tiles, 1, lambda i: self._tile(panel, number + i, taps, i * plan.tile.rows))

    def _tile(self, panel: Value, number: Value, taps: Sequence[Value], begin: Value) -> None:
        """The rows from `begin` on of a run."""
        k, p, plan, shape = self.k, self.problem, self.plan, self.plan.tile
        at, row = begin, k.const("index", 0)
        for axis, t, pitch in zip(plan.looped, taps, plan.window.pitches):
            at, row = at + t * (axis.tap_shift * pitch), row * axis.taps + t
        row = row * plan.run + begin
        none = [k.const(p.accumulate, 0, (shape.lanes,))] * (shape.rows * shape.vectors)
        steps = self.packer.place(self.batch, panel)
        for first, inner in zip(self.copy.first, self._steps()):
            steps = steps + first * (inner * shape.columns)
        sums = self._positions(0, at, steps, none)
        size = shape.rows * shape.columns
        base = number * size if plan.waiting else k.const("index", 0)
        places = [base + n * shape.lanes for n in range(len(sums))]

        def with_earlier() -> list[Value]:
            earlier = (k.load(self.sums, at, (shape.lanes,), (1,)) for at in places)
            return [x + y for x, y in zip(sums, earlier, strict=True)]

        def keep() -> None:
            for at, x in zip(places, totals, strict=True):
                k.store(self.sums, at, x, (1,))

        def store() -> None:
            rows = k.min(-begin + plan.run, shape.rows)
            store_sums(
                self.writer, self.sums, base, shape, totals, (row, rows),
                (panel * shape.columns, k.const("index", p.columns)),
                is_multiple(plan.run, shape.rows), is_multiple(p.columns, shape.columns),
            )  # fmt: skip

        if not plan.waiting:
            totals = sums
            store()
            return
        totals = list(k.if_(self.fresh, lambda: sums, with_earlier))
        k.if_(self.last, store, keep)

    def _positions(self, d: int, at: Value, depth: Value, sums: list[Value]) -> list[Value]:
        """Sums over the block's positions along an axis and those inside it."""
        k, plan, shape = self.k, self.plan, self.plan.tile
        step, inner = plan.axes[d].shift * plan.window.pitches[d], self._steps()[d]
        if d + 1 < len(plan.axes):

            def one(i: Value, *sums: Value) -> list[Value]:
                here = at + i * step, depth + i * (inner * shape.columns)
                return self._positions(d + 1, *here, list(sums))

            return list(k.for_(0, self.copy.stop(d), 1, one, sums))
        lines = multiply(
            k, shape, self.problem.accumulate, self.copy.stop(d),
            lambda s, r: k.load(self.copy.buffer, at + s * step + r),
            lambda s, v: k.load(
                self.panels, depth + s * shape.columns + v * shape.lanes, (shape.lanes,), (1,)
            ),
            [sums[i : i + shape.vectors] for i in range(0, len(sums), shape.vectors)],
        )  # fmt: skip
        return [x for line in lines for x in line]

    def _steps(self) -> list[int]:
        """Steps in depth from one position of each axis to the next."""
        counts = [axis.positions for axis in self.plan.axes]
        return [math.prod(counts[d + 1 :]) for d in range(len(counts))]
