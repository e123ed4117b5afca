"""Convolutions whose rows are read from a padded copy of the input: implicit products.

Packed rows of a convolution hold each element of the input as often as windows see it. Here a
program copies the part of the input that its positions see once, with the zeros around it, to where
it stays in the second-level cache. Taps of a position that follow one another there are one run of
the micro-kernel, which reads each row of a tile at a constant distance from the first. Taps outside
the input are left out where that is so for whole runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

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
from amdjax.kernels.products.cpu.micro_kernel import each_tile, multiply, multiply_add
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
from amdjax.tile.types import CACHE_LINE

Value = tile.Value

NEAR = 0.9  # of the cycles of a step on packed rows, many runs from the second-level cache
TALL = 14  # rows of a tile whose sums take the time of `tile` to be stored
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
    def size(self) -> int:
        """Bytes of an element that is multiplied."""
        return itemsize(self.problem.accumulate)

    @property
    def features(self) -> int:
        """Elements in depth of a tap."""
        return features_of(self.problem, self.axes)

    @property
    def window(self) -> WindowBlock:
        """What a program copies."""
        return self.cut(self.block)

    def cut(self, block: tuple[int, ...]) -> WindowBlock:
        """What a program of so many positions copies."""
        return WindowBlock(self.axes, block, self.features, CACHE_LINE // self.size)

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return ImplicitProduct(ctx, self.problem, self).calls()

    def __str__(self) -> str:
        block = "×".join(map(str, self.block))
        columns = self.panels * self.tile.columns
        return (
            f"implicit product of {self.problem}, blocks of {block} positions and {columns} "
            f"columns in tiles of {self.tile}"
        )


Plan = TypeVar("Plan", bound=ImplicitPlan)


def implicit_plans(product: ProductProblem, target: CpuTarget) -> list[ImplicitPlan]:
    """Plans of several tiles and blocks; none where a position sees a single tap."""
    p, axes = product.merged, product.windows
    if p.is_complex or not sees_taps(p, axes):
        return []
    shapes = best_even_tiles(p, target, size_hint(axes[-1].positions))
    found = [ImplicitPlan(p, axes, shape, (), 0) for shape in shapes[:2]]
    return best_blocks(product, found, target)


def sees_taps(problem: Contraction, axes: Sequence[WindowAxis]) -> bool:
    """Whether positions see several taps, of numbers that are known."""
    if not axes or isinstance(problem.depth, Dim):
        return False
    return not any(isinstance(axis.taps, Dim) for axis in axes) and _taps(axes) > 1


def features_of(problem: Contraction, axes: Sequence[WindowAxis]) -> int:
    """Elements in depth of a tap."""
    return problem.depth // _taps(axes)


def _taps(axes: Sequence[WindowAxis]) -> int:
    return math.prod(axis.taps for axis in axes)


def best_blocks(product: ProductProblem, plans: Sequence[Plan], target: CpuTarget) -> list[Plan]:
    """The best ways to cut what plans without blocks compute."""
    del product
    found = [(*cut, plan) for plan in plans for cut in _blocks(plan, target)]
    found.sort(key=lambda cut: cut[0])
    best = [replace(plan, block=block, panels=n) for _, block, n, plan in found[:MOST_PLANS]]
    return list(dict.fromkeys(best))


def _blocks(plan: Plan, target: CpuTarget) -> Iterator[tuple[float, tuple[int, ...], int]]:
    """Blocks of positions whose copy the second-level cache holds, and panels; with their costs."""
    problem, shape = plan.problem, plan.tile
    wide = ceil_div(problem.at_hand.columns, shape.columns)
    panel = problem.depth * shape.columns * plan.size
    panels = extents(wide, wide)[:4]
    cost = _costs_of(plan, target)
    for block in position_blocks(plan.axes, shape.rows):
        window = plan.cut(block)
        copied = window.elements * plan.size
        if copied + min(panel, private_cache(target) // 2) > private_cache(target) * 3 // 4:
            continue
        for n, each in zip(panels, cost(window, panels), strict=True):
            yield each, block, n


def implicit_cost(product: ProductProblem, plan: ImplicitPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    del product
    (cost,) = _costs_of(plan, target)(plan.window, (plan.panels,))
    return cost


def _costs_of(
    plan: ImplicitPlan, target: CpuTarget
) -> Callable[[WindowBlock, Sequence[int]], list[float]]:
    """Nanoseconds of a plan, about, for blocks of positions and numbers of panels."""
    p, shape, costs, size = plan.problem.at_hand, plan.tile, target.costs, plan.size
    busy = replace(costs, step=0.0)  # low tiles are as fast as tall ones
    # Panels come from beyond the second level, once for each program.
    far = p.depth * shape.columns * size / costs.memory_rate
    arrival = far if panels_are_far(p, size, target) else 0.0
    wide = ceil_div(p.columns, shape.columns)
    counted = work(p, target, shape if size != itemsize(p.accumulate) else None)
    first = 0.0
    if not p.b.fixed:
        packed = packing(p.b, shape.columns, p.depth, shape.columns, target, p.accumulate)
        first = launch(packed, p.batches * wide, target)

    def cost(window: WindowBlock, panels: Sequence[int]) -> list[float]:
        *outer, last = window.positions
        each_panel = math.prod(outer) * sum(
            count * (NEAR * p.depth * one.cycles(busy) + costs.tile * one.rows / TALL)
            for count, one in shape.covering(last)
        )
        each_panel = max(each_panel, arrival)
        blocks = p.batches * size_hint(math.prod(window.counts))
        copying = window.copy_cycles(costs, target.vector_bits // 8 // size)
        found = []
        for n in panels:
            each = each_panel * n + copying + costs.program
            cycles = launch(each, blocks * ceil_div(wide, n), target, counted=counted) + first
            found.append(nanoseconds(cycles, target))
        return found

    return cost


def panels_are_far(problem: Contraction, size: int, target: CpuTarget) -> bool:
    """Whether panels, of elements of a size, do not stay in the second-level cache."""
    p = problem.at_hand
    return p.depth * p.columns * size > private_cache(target) // 2


def usual_implicit_plan(product: ProductProblem, target: CpuTarget) -> ImplicitPlan | None:
    """The best of these plans."""
    return next(iter(implicit_plans(product, target)), None)


IMPLICIT = Solver("implicit", implicit_plans, implicit_cost, usual=usual_implicit_plan)


class _Taps(NamedTuple):
    """A loop over taps: their range, elements of the copy and steps in depth between two."""

    low: Value | int
    high: Value | int
    pitch: int
    steps: int


class ImplicitProduct:
    """A convolution as launches: packing the kernel, and blocks of positions."""

    #: Elements in depth that a step of the micro-kernel takes.
    per = 1
    #: Whether taps outside the input are left out where whole runs are.
    skips = True

    def __init__(self, ctx: ShapedContext, problem: Contraction, plan: ImplicitPlan):
        self.ctx, self.plan, self.problem = ctx, plan, problem
        self.packer = self.make_packer()
        self.pitches = plan.window.pitches
        *outer, last = plan.axes
        #: axes whose taps are a loop each; along the last axis they are mostly one run
        self.looped = [d for d, axis in enumerate(outer) if axis.taps > 1]
        self.run = last.taps * plan.features
        if last.tap_shift > 1 and last.taps > 1:
            self.looped.append(len(outer))
            self.run = plan.features
        #: whether rounding errors grow with the length of a sum
        self.rounds = problem.accumulate in tile.FLOATS
        most = range(ceil_div(self.run, 2 * LONG_SUM), 2 * ceil_div(self.run, 2 * LONG_SUM))
        parts = next((n for n in most if not self.run % (n * self.per)), 1) if self.rounds else 1
        self.long = self.rounds and self.run >= LONG_SUM
        #: steps of a run that are summed at once
        self.part = self.run // parts
        tiles = ceil_div(math.prod(plan.block), plan.tile.rows)
        self.share = max(2, ceil_div(plan.tile.columns, tiles))

    def make_packer(self) -> PanelPacker:
        """What packs `b`."""
        shape = self.plan.tile
        return PanelPacker(self.ctx, self.problem, shape.columns, shape.lanes, self.ctx.target)

    def calls(self) -> list[Call]:
        """The launches in order."""
        return [self.packer.call(), self._product()]

    def add(self, k: tile.Builder, a: Value, b: Value, total: Value) -> Value:
        """A step of the micro-kernel."""
        return multiply_add(k, a, b, total)

    def start(self, panel: Value) -> list[Value]:
        """What sums of the columns of a panel start from."""
        del panel
        return self._nothing()

    def _nothing(self) -> list[Value]:
        shape = self.plan.tile
        return [self.k.const(self.problem.accumulate, 0, (shape.lanes,))] * shape.vectors

    def _product(self) -> Call:
        p, plan, shape = self.problem, self.plan, self.plan.tile
        self.program = program = Program(self.ctx, "convolution")
        self.k = k = program.k
        # Rows of a tile that do not exist are computed all the same, from what lies there.
        beyond = shape.rows * plan.axes[-1].shift * plan.features
        dtype = self.packer.dtype
        lanes = shape.lanes * itemsize(p.accumulate) // itemsize(dtype)
        self.copy = WindowCopy(program, p.a, plan.window, dtype, lanes, beyond)
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
        words = shape if self.per > 1 else None
        return program.launch(grid, launch_time(work(p, self.ctx.target, words)))

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
        none = self._nothing() * shape.rows

        base = self.packer.place(self.batch, panel)
        fetched = self._first_prefetch(base, place)

        def nest(loops: list[_Taps], at: Value, depth: Value, sums: list[Value]) -> list[Value]:
            if not loops:
                prefetched = fetched and fetched + depth * self.share
                run = partial(self._run, shape, at, base + depth * columns, prefetched)
                # Long sums are begun anew.
                return list(map(operator.add, sums, run(none))) if self.long else run(sums)
            taps, *inner = loops

            def tap(t: Value, *sums: Value) -> list[Value]:
                return nest(inner, at + t * taps.pitch, depth + t * taps.steps, list(sums))

            return list(k.for_(taps.low, taps.high, 1, tap, sums))

        start = self.start(panel) * shape.rows
        sums = nest(self._loops(place), at, k.const("index", 0), start)
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
        # Long runs are a loop even of one part, as others of the same code have more.
        loops = [_Taps(0, self.run // self.part, self.part, self.part)] if self.long else []
        for d in reversed(self.looped):
            axis = plan.axes[d]
            inside: tuple[Value | int, Value | int] = 0, axis.taps
            # Along the last axis, zeros are copied.
            if self.skips and axis.leaves and d + 1 < len(plan.axes):
                inside = axis.taps_inside(k, self.first[d] + place[d])
            loops.insert(0, _Taps(*inside, axis.tap_shift * self.pitches[d], steps))
            steps *= axis.taps
        return loops

    def _first_prefetch(self, base: Value, place: Sequence[Value]) -> Value | None:
        """What a tile asks for at its first step, of the panel behind the one at `base`.

        None where panels are near. Of others, each tile asks for a part, `share` elements a step.
        """
        plan, p = self.plan, self.problem
        if not panels_are_far(p, plan.size, self.ctx.target):
            return None
        position = self.k.const("index", 0)
        for n, i in zip(plan.block, place, strict=True):
            position = position * n + i
        tile = position // plan.tile.rows
        return base + self.packer.depth * plan.tile.columns + tile * (p.depth * self.share)

    def _run(
        self, shape: TileShape, at: Value, panel: Value, prefetched: Value | None, sums: list[Value]
    ) -> list[Value]:
        """The micro-kernel along steps that follow one another in the copy and in a panel."""
        k, per = self.k, self.per
        step = self.plan.axes[-1].shift * self.plan.features // per
        starts = range(0, len(sums), shape.vectors)
        copy, panels = self.copy.buffer, self.panels
        if per > 1:
            copy, panels = (replace(x, dtype="i32") for x in (copy, panels))
            at, panel, prefetched = at // per, panel // per, prefetched and prefetched // per
        # Where rows and vectors begin is known before the loop over steps.
        rows = [at + k.const("index", step) * r for r in range(shape.rows)]
        vectors = [panel + v * shape.lanes for v in range(shape.vectors)]

        def load_b(s: Value, v: int) -> Value:
            if prefetched is not None and v == 0:
                k.prefetch(panels, prefetched + s * self.share, level=2)
            return k.load(panels, vectors[v] + s * shape.columns, (shape.lanes,), (1,))

        lines = multiply(
            k, shape, self.problem.accumulate, self.part // per,
            lambda s, r: k.load(copy, rows[r] + s),
            load_b,
            [sums[i : i + shape.vectors] for i in starts],
            self.add,
        )  # fmt: skip
        return [x for line in lines for x in line]
