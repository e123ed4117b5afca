"""Convolutions whose rows are read from a padded copy of the input: implicit products.

Packed rows of a convolution hold each element of the input as often as windows see it. Here a
program copies the part of the input that its positions see once, with the zeros around it, to where
it stays in the second-level cache. Taps of a position that follow one another there are one run of
the micro-kernel, which reads each row of a tile at a constant distance from the first. Taps outside
the input are left out where that is so for whole runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from amdjax import tile
from amdjax.core.dims import Dim, is_multiple, size_hint
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import (
    Contraction,
    ProductProblem,
    TileShape,
    WindowAxis,
    best_even_tiles,
    private_cache,
)
from amdjax.kernels.products.cpu.blocking import extents
from amdjax.kernels.products.cpu.costs import launch, launch_time, nanoseconds, packing, work
from amdjax.kernels.products.cpu.micro_kernel import each_tile, multiply
from amdjax.kernels.products.cpu.packing import PanelPacker
from amdjax.kernels.products.cpu.window_copy import (
    WindowBlock,
    WindowCopy,
    block_loops,
    position_blocks,
)
from amdjax.kernels.products.program import Program
from amdjax.kernels.products.writing import Writer, store_sums
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Solver
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

Value = tile.Value

NEAR = 0.9  # of the cycles of a step on packed rows, many runs from the second-level cache
LONG_SUM = 256  # steps in depth that are summed by themselves
MOST_PLANS = 6  # that are looked at


@dataclass(frozen=True)
class ImplicitPlan:
    """The micro-kernel on a padded copy of what its positions see.

    Args:
      problem: the contraction, merged.
      axes: of the windows, see `ProductProblem`.
      tile: what registers hold: neighbors along the last axis.
      block: positions of a program along each axis.
      panels: panels of columns of a program.
    """

    problem: Contraction
    axes: tuple[WindowAxis, ...]
    tile: TileShape
    block: tuple[int, ...]
    panels: int

    @property
    def features(self) -> int:
        """Steps in depth of a tap."""
        return self.problem.depth // math.prod(axis.taps for axis in self.axes)

    @property
    def window(self) -> WindowBlock:
        """What a program copies."""
        return WindowBlock(self.axes, self.block, self.features)

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return ImplicitProduct(ctx, self).calls()

    def __str__(self) -> str:
        block = "×".join(map(str, self.block))
        columns = self.panels * self.tile.columns
        return (
            f"implicit product of {self.problem}, blocks of {block} positions and {columns} "
            f"columns in tiles of {self.tile}"
        )


def implicit_plans(product: ProductProblem, target: CpuTarget) -> list[ImplicitPlan]:
    """Plans of several tiles and blocks; none where a position sees a single tap."""
    p, axes = product.merged, product.windows
    if p.is_complex or not axes or any(isinstance(axis.taps, Dim) for axis in axes):
        return []
    if isinstance(p.depth, Dim) or math.prod(axis.taps for axis in axes) == 1:
        return []
    along = size_hint(axes[-1].positions)
    shapes = best_even_tiles(p, target, along)
    found = [plan for shape in shapes[:2] for plan in _plans(p, axes, shape, target)]
    found.sort(key=lambda plan: implicit_cost(product, plan, target))
    return list(dict.fromkeys(found[:MOST_PLANS]))


def _plans(
    problem: Contraction, axes: tuple[WindowAxis, ...], shape: TileShape, target: CpuTarget
) -> Iterator[ImplicitPlan]:
    """Blocks of positions whose copy the second-level cache holds, and blocks of columns."""
    wide = ceil_div(problem.at_hand.columns, shape.columns)
    panel = problem.depth * shape.columns * itemsize(problem.accumulate)
    for block in position_blocks(axes, shape.rows):
        whole = ImplicitPlan(problem, axes, shape, block, wide)
        copied = whole.window.elements * itemsize(problem.accumulate)
        if copied + min(panel, private_cache(target) // 2) > private_cache(target) * 3 // 4:
            continue
        for columns in extents(wide, wide)[:4]:
            yield ImplicitPlan(problem, axes, shape, block, columns)


def implicit_cost(product: ProductProblem, plan: ImplicitPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    p, shape, costs, dtype = plan.problem.at_hand, plan.tile, target.costs, plan.problem.accumulate
    each_panel = math.prod(plan.block[:-1]) * sum(
        count * (NEAR * p.depth * one.cycles(costs) + costs.tile)
        for count, one in shape.covering(plan.block[-1])
    )
    wide = ceil_div(p.columns, shape.columns)
    if p.depth * p.columns * itemsize(dtype) > private_cache(target) // 2:
        # Panels come from beyond the second level, once for each program.
        arrival = p.depth * shape.columns * itemsize(dtype) / costs.memory_rate
        each_panel = max(each_panel, arrival)
        if p.b.fixed:  # other steps were there since, and nothing asks for them ahead
            each_panel += arrival / 4
    programs = p.batches * size_hint(math.prod(plan.window.counts)) * ceil_div(wide, plan.panels)
    copying = plan.window.copy_cycles(costs, shape.lanes)
    each = each_panel * plan.panels + copying + costs.program
    cycles = launch(each, programs, target, counted=work(p, target))
    if not p.b.fixed:
        packed = packing(p.b, shape.columns, p.depth, shape.columns, target, dtype)
        cycles += launch(packed, p.batches * wide, target)
    return nanoseconds(cycles, target)


IMPLICIT = Solver("implicit", implicit_plans, implicit_cost)


class _Taps(NamedTuple):
    """A loop over taps: their range, elements of the copy and steps in depth between two."""

    low: Value | int
    high: Value | int
    pitch: int
    steps: int


class ImplicitProduct:
    """A convolution as launches: packing the kernel, and blocks of positions."""

    def __init__(self, ctx: ShapedContext, plan: ImplicitPlan):
        self.ctx, self.plan, self.problem = ctx, plan, plan.problem
        shape = plan.tile
        self.packer = PanelPacker(ctx, plan.problem, shape.columns, shape.lanes, ctx.target)
        self.pitches = plan.window.pitches
        *outer, last = plan.axes
        #: axes whose taps are a loop each; along the last axis they are mostly one run
        self.looped = [d for d, axis in enumerate(outer) if axis.taps > 1]
        self.run = last.taps * plan.features
        if last.tap_shift > 1 and last.taps > 1:
            self.looped.append(len(outer))
            self.run = plan.features
        most = range(ceil_div(self.run, 2 * LONG_SUM), 2 * ceil_div(self.run, 2 * LONG_SUM))
        parts = next((n for n in most if not self.run % n), 1)
        #: steps of a run that are summed at once
        self.part = self.run // parts

    def calls(self) -> list[Call]:
        """The launches in order."""
        return [self.packer.call(), self._product()]

    def _product(self) -> Call:
        p, plan, shape = self.problem, self.plan, self.plan.tile
        self.program = program = Program(self.ctx, "convolution")
        self.k = k = program.k
        # Rows of a tile that do not exist are computed all the same, from what lies there.
        beyond = shape.rows * plan.axes[-1].shift * plan.features
        self.copy = WindowCopy(program, p.a, plan.window, p.accumulate, shape.lanes, beyond)
        self.panels = program.buffer(self.packer.result, self.packer.dtype)
        wide = ceil_div(self.packer.panels, plan.panels)
        pid = k.program_id()
        first_panel = (pid % wide) * plan.panels
        loops = [*p.a.batch, *block_loops(plan.window)]
        digits = program.split(pid // wide, "block", loops)
        own = len(p.a.batch)
        self.batch, blocks = digits[:own], digits[own:]
        self.writer = Writer(program, p, self.batch)
        self.sums = k.scratch("sums", p.accumulate, shape.rows * shape.columns)
        self.first = [digit * n for digit, n in zip(blocks, plan.block, strict=True)]
        self.copy.write(self.batch, self.first)
        panels = k.min(k.const("index", self.packer.panels) - first_panel, plan.panels)
        k.for_(0, panels, 1, lambda j: self._positions(first_panel + j, []))
        grid = p.batches * math.prod(plan.window.counts) * wide
        return program.launch(grid, launch_time(work(p, self.ctx.target)))

    def _positions(self, panel: Value, place: list[Value]) -> None:
        """All tiles of a panel, whose places along outer axes are given."""
        k, plan, d = self.k, self.plan, len(place)
        stop = self.copy.stop(d)
        if d + 1 < len(plan.axes):
            k.for_(0, stop, 1, lambda i: self._positions(panel, [*place, i]))
        else:
            each_tile(
                k, stop, plan.tile,
                lambda _, row, shape: self._tile(panel, [*place, row], stop, shape),
            )  # fmt: skip

    def _tile(self, panel: Value, place: Sequence[Value], stop: Value, shape: TileShape) -> None:
        """A tile; `stop` is where the positions of the block end along the last axis."""
        k, p, plan = self.k, self.problem, self.plan
        columns = shape.columns
        at = k.const("index", 0)
        row = k.const("index", 0)
        for axis, i, first, pitch in zip(plan.axes, place, self.first, self.pitches):
            at = at + i * (axis.shift * pitch)
            row = row * axis.positions + (first + i)
        self.writer.prefetch(row, panel * columns, shape)
        none = [k.const(p.accumulate, 0, (shape.lanes,))] * (shape.rows * shape.vectors)

        def nest(loops: list[_Taps], at: Value, depth: Value, sums: list[Value]) -> list[Value]:
            if not loops:
                here = self.packer.place(self.batch, panel) + depth * columns
                return self._run(shape, at, here, sums)
            taps, *inner = loops

            def tap(t: Value, *sums: Value) -> list[Value]:
                here = at + t * taps.pitch, depth + t * taps.steps
                if taps.steps < LONG_SUM:
                    return nest(inner, *here, list(sums))
                # As rounding errors grow with the length of a sum, long ones are begun anew.
                return [x + y for x, y in zip(sums, nest(inner, *here, none), strict=True)]

            return list(k.for_(taps.low, taps.high, 1, tap, sums))

        sums = nest(self._loops(place), at, k.const("index", 0), none)
        store_sums(
            self.writer, self.sums, k.const("index", 0), shape, sums,
            (row, k.min(stop - place[-1], shape.rows)),
            (panel * columns, k.const("index", p.columns)),
            self._rows_exist,
            is_multiple(p.columns, columns),
        )  # fmt: skip

    @property
    def _rows_exist(self) -> bool:
        """Whether all rows of all tiles do."""
        along, block, shape = self.plan.axes[-1].positions, self.plan.block[-1], self.plan.tile
        if shape.even and is_multiple(along, block):
            return sum(count * one.rows for count, one in shape.covering(block)) == block
        return is_multiple(along, shape.rows) and block % shape.rows == 0

    def _loops(self, place: Sequence[Value]) -> list[_Taps]:
        """The loops over taps of positions at a place, the last one over parts of a run."""
        k, plan, steps = self.k, self.plan, self.run
        loops = [_Taps(0, self.run // self.part, self.part, self.part)]
        for d in reversed(self.looped):
            axis = plan.axes[d]
            inside: tuple[Value | int, Value | int] = 0, axis.taps
            if axis.leaves and d + 1 < len(plan.axes):  # along the last axis, zeros are copied
                inside = axis.taps_inside(k, self.first[d] + place[d])
            loops.insert(0, _Taps(*inside, axis.tap_shift * self.pitches[d], steps))
            steps *= axis.taps
        return loops if self.part < self.run else loops[:-1]

    def _run(self, shape: TileShape, at: Value, panel: Value, sums: list[Value]) -> list[Value]:
        """The micro-kernel along steps that follow one another in the copy and in a panel."""
        k = self.k
        step = self.plan.axes[-1].shift * self.plan.features
        starts = range(0, len(sums), shape.vectors)
        lines = multiply(
            k, shape, self.problem.accumulate, self.part,
            lambda s, r: k.load(self.copy.buffer, at + s + r * step),
            lambda s, v: k.load(
                self.panels, panel + s * shape.columns + v * shape.lanes, (shape.lanes,), (1,)
            ),
            [sums[i : i + shape.vectors] for i in starts],
        )  # fmt: skip
        return [x for line in lines for x in line]
