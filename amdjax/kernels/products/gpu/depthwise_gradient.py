"""Gradients of the kernels of depthwise convolutions on GPUs.

As a convolution, such a gradient has few positions and as many taps as the image has pixels, and
each group has one feature: for each group and position, a sum over all images and pixels. A
program loops over some of those, tile by tile, columns along what lies side by side in memory, and
keeps accumulators of all positions (or of some rows of them) in registers; neighboring tiles share
what they see of the input. Accumulators go to memory, where a second launch adds those of all
programs, always in the same order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from amdjax import tile
from amdjax.core.dims import is_multiple
from amdjax.core.integers import ceil_div, power_of_two
from amdjax.kernels.gpu_loops import every, lanes_inside, tile_of
from amdjax.kernels.products.contraction import Axis, Sink
from amdjax.kernels.products.convolution import phase_offset
from amdjax.kernels.products.cpu.micro_kernel import multiply_add
from amdjax.kernels.products.formats import sum_dtype
from amdjax.kernels.products.gpu.contraction import TileWriter
from amdjax.kernels.products.gpu.depthwise import ONCE, Loop
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, ShapedContext, Temp
from amdjax.schedule.gpu.tiles import TileAxis, tile_lanes
from amdjax.schedule.index import LoopVar
from amdjax.schedule.search import Family, Solver, busy_time, shares
from amdjax.schedule.values import short_dtype
from amdjax.targets import GpuTarget
from amdjax.tile import itemsize

if TYPE_CHECKING:
    from amdjax.kernels.products.convolution import Convolution, Phase

Value = tile.Value

MOST_POSITIONS = 64
MOST_SUMS = 56  # of a thread that has those of all positions
CUT_SUMS = 16  # of one that has some rows of them
SEEN_BYTES = 320  # of the input that a thread reads at once
MOST_RUN = 8  # tiles that share what they see of the input
COLUMNS, EACH = 16, 4  # of tiles in which programs' sums are added, and elements of a thread


@dataclass(frozen=True)
class GradientPlan:
    """The gradient of a depthwise kernel.

    Args:
      conv: the convolution that it is.
      phases: its positions.
      loops: the loops over groups and pixels.
      vector: neighbors in a thread.
      axes: rows and columns of a tile.
      threads: of a program.
      block_rows: rows of positions, along the first spatial axis but the run's, of a program.
      length: tiles of a run.
      part: runs of a program.
    """

    conv: Convolution
    phases: tuple[Phase, ...]
    loops: GradientLoops
    vector: int
    axes: tuple[TileAxis, TileAxis]
    threads: int
    block_rows: int
    length: int
    part: int

    @property
    def counts(self) -> list[int]:
        """Positions along each spatial axis."""
        return [p.count for p in self.phases]

    @property
    def other_axes(self) -> list[int]:
        """The spatial axes but that of runs."""
        return [d for d in range(len(self.phases)) if d != self.loops.run.axis]

    @property
    def chunks(self) -> int:
        """Programs that share the positions."""
        rows = self.counts[self.other_axes[0]] if self.other_axes else 1
        return ceil_div(rows, self.block_rows)

    @property
    def held(self) -> int:
        """Positions whose sums a thread keeps."""
        rows = self.counts[self.other_axes[0]] if self.other_axes else 1
        return math.prod(self.counts) // rows * self.block_rows

    @property
    def blocks(self) -> list[Axis]:
        """The loops over all runs."""
        return self.loops.blocks(self.axes, self.length)

    @property
    def total(self) -> int:
        """Runs of all programs."""
        return math.prod(axis.extent for axis in self.blocks)

    @property
    def group_blocks(self) -> int:
        """Tiles along the groups."""
        return self.axes[1 if self.loops.fast is self.loops.groups else 0].blocks

    @property
    def splits(self) -> int:
        """Programs that share the runs."""
        return ceil_div(self.total, self.part)

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return KernelGradient(ctx, self).calls()

    def __str__(self) -> str:
        size = f"{self.axes[0].count}×{self.axes[1].count}"
        out = f"gradient of a depthwise kernel, {self.held} positions at once"
        out += f", {self.part} runs of {self.length} tiles of {size} in a program"
        return f"{out}, {self.threads} threads, vectors of {self.vector}"


@dataclass(frozen=True)
class GradientLoops:
    """The loops of a gradient: over groups, along columns, runs and rows of tiles, around them."""

    groups: Loop
    fast: Loop
    run: Loop
    slow: Loop
    outer: tuple[Loop, ...]

    def blocks(self, axes: Sequence[TileAxis], length: int) -> list[Axis]:
        """The loops over runs of `length` tiles, which have these axes."""
        (pixels,) = (
            axis for loop, axis in zip((self.slow, self.fast), axes) if loop is not self.groups
        )
        extents = [loop.extent for loop in self.outer]
        return [Axis(n, 0) for n in (*extents, pixels.blocks, self.run.extent // length)]


def plan_gradient(ctx: ShapedContext, conv: Convolution) -> GradientPlan | None:
    """The plan; None where this is no gradient of a depthwise convolution's kernel."""
    dtypes = [short_dtype(x.aval.dtype) for x in (*ctx.inputs, *ctx.outputs)]
    single = conv.batch_groups == conv.lhs[0] == conv.rhs[0] > 1 and conv.feature_groups == 1
    if not single or not conv.spatial or any(d.startswith("c") for d in dtypes):
        return None
    first, *more = (tuple(phases) for phases in conv.phases())
    positions, taps = (math.prod(getattr(p, n) for p in first) for n in ("count", "taps"))
    if more or positions > MOST_POSITIONS or not conv.rhs[1] * taps:
        return None
    return GRADIENTS.best(GradientProblem(conv, first, *map(itemsize, dtypes[:2])), ctx.gpu)


class GradientProblem(NamedTuple):
    """The convolution that a gradient is, its positions, and bytes of elements of both operands."""

    conv: Convolution
    phases: tuple[Phase, ...]
    in_bytes: int
    kernel_bytes: int


def gradient_plans(problem: GradientProblem, target: GpuTarget) -> list[GradientPlan]:
    """Runs of tiles, shared by different numbers of programs."""
    conv, phases, *sizes = problem
    loops, positions = _assign_loops(conv, phases), math.prod(p.count for p in phases)
    vector = _vector(loops, positions, min(sizes))
    axes, threads = tile_of(target, loops.slow.extent, loops.fast.extent, vector)
    plan = GradientPlan(conv, phases, loops, vector, axes, threads, 1, 1, 1)
    plan = replace(plan, block_rows=_block_rows(plan))
    plan = replace(plan, length=_run_length(plan, sizes[0]))
    wanted = max(1, target.busy_threads // (threads * plan.chunks * plan.group_blocks))
    parts = dict.fromkeys(ceil_div(plan.total, n) for n in shares(min(plan.total, wanted)))
    return [replace(plan, part=part) for part in parts]


def gradient_cost(problem: GradientProblem, plan: GradientPlan, target: GpuTarget) -> float:
    """Runs that a program takes, of as many as keep the machine busy."""
    others = plan.chunks * plan.group_blocks
    busy = target.busy_threads // plan.threads
    return busy_time(plan.total * others, plan.splits * others, busy)


GRADIENTS: Family[GradientProblem, GpuTarget, GradientPlan] = Family(
    "gradient of a depthwise kernel on a GPU",
    Solver("depthwise gradient", gradient_plans, gradient_cost),
)


def _assign_loops(conv: Convolution, phases: Sequence[Phase]) -> GradientLoops:
    """Which loops run along rows, columns and runs of tiles, and which around them."""
    (x0, x1, *xs), (w0, w1, *ws) = conv.lhs_strides, conv.rhs_strides
    groups = Loop(conv.lhs[0], x0, w0, conv.out_strides[1])
    pixels = [
        Loop(p.taps, x * p.tap_shift, w * p.tap_step, 0, d)
        for d, (p, x, w) in enumerate(zip(phases, xs, ws, strict=True))
    ]
    nearest = sorted((p for p in pixels if p.extent > 1), key=lambda loop: loop.w)
    by_groups = not nearest or groups.w <= nearest[0].w
    fast = groups if by_groups else nearest.pop(0)
    run = nearest.pop(0) if nearest else ONCE
    rest = [*nearest, Loop(conv.lhs[1], x1, w1, 0)]
    slow = rest.pop(0) if by_groups else groups
    return GradientLoops(groups, fast, run, slow, tuple(rest))


def _vector(loops: GradientLoops, positions: int, size: int) -> int:
    """Neighbors in a thread, so that it can hold sums of all positions of each if possible."""
    groups = loops.groups
    if loops.fast is not groups or not groups.x == groups.w == 1:
        return 1
    vector, least = max(1, 16 // size), max(1, 4 // size)
    while vector > least and vector * positions > MOST_SUMS:
        vector //= 2
    while not is_multiple(groups.extent, vector):
        vector //= 2
    return vector


def _block_rows(plan: GradientPlan) -> int:
    """How many rows of positions a program takes."""
    rows = plan.counts[plan.other_axes[0]] if plan.other_axes else 1
    across = math.prod(plan.counts) // rows
    if rows * across * plan.vector > MOST_SUMS:
        return max(1, CUT_SUMS // (across * plan.vector))
    return rows


def _run_length(plan: GradientPlan, size: int) -> int:
    """Tiles of a run: a divisor of its taps, so that none sees what does not exist."""
    run = plan.loops.run
    if run is ONCE:
        return 1
    phase = plan.phases[run.axis]
    rows = plan.held // phase.count
    most = SEEN_BYTES // (rows * plan.vector * size)
    fitting = [n for n in range(2, MOST_RUN + 1) if len(_steps(phase, n)) <= most]
    return max((n for n in fitting if is_multiple(run.extent, n)), default=1)


def _steps(phase: Phase, length: int) -> list[int]:
    """What a run of tiles sees along it, in steps of the input."""
    places = itertools.product(range(phase.count), range(length))
    return sorted({q * phase.shift + u * phase.tap_shift for q, u in places})


class KernelGradient:
    """The gradient of a depthwise kernel as launches.

    `x` is the input of the convolution, `w` the cotangent of its result: in the roles of input and
    kernel they are convolved with each other.
    """

    def __init__(self, ctx: ShapedContext, plan: GradientPlan):
        self.ctx, self.plan, self.conv, self.phases = ctx, plan, plan.conv, plan.phases
        self.out_var = ctx.outputs[0]
        operands = [v.aval.dtype for v in ctx.inputs]
        self.dtypes = [short_dtype(d) for d in operands]
        self.accumulate = sum_dtype(ctx)
        loops = plan.loops
        self.groups, self.fast, self.slow, self.run = (
            loops.groups,
            loops.fast,
            loops.slow,
            loops.run,
        )
        self.axes, self.shape = plan.axes, (plan.axes[0].count, plan.axes[1].count)
        self.group_axis, self.pixel_axis = plan.axes
        if self.fast is self.groups:
            self.pixel_axis, self.group_axis = plan.axes
        self.counts, self.block_rows, self.held = plan.counts, plan.block_rows, plan.held
        self.other_axes, self.length = plan.other_axes, plan.length

    def calls(self) -> list[Call]:
        """The launches in order."""
        parts = Temp(
            self.accumulate, self.plan.splits * math.prod(self.counts) * self.groups.extent
        )
        return [self._sum(parts), self._combine(parts)]

    # Sums of programs

    def _sum(self, parts: Temp) -> Call:
        self.program = program = Program(self.ctx, "kernel_gradient")
        self.k = k = program.k
        k.schedule.workgroup, k.schedule.vector = self.plan.threads, self.plan.vector
        self.x, self.w = (
            program.buffer(v, d) for v, d in zip(self.ctx.inputs, self.dtypes, strict=True)
        )
        out = program.buffer(parts, parts.dtype, "out")
        digits = [Axis(n, 0) for n in (self.plan.splits, self.group_axis.blocks, self.plan.chunks)]
        split, block, chunk = program.split(k.program_id(), "part", digits)
        self.first_group, self.first_row = block * self.group_axis.count, chunk * self.block_rows
        start = split * self.plan.part
        stop = k.min(start + self.plan.part, self.plan.total)
        zero = k.const(self.accumulate, 0, self.shape)
        accumulators = k.for_(start, stop, 1, self._add_run, [zero] * self.held)
        self._store(out, split, accumulators)
        grid = self.plan.splits * self.group_axis.blocks * self.plan.chunks
        work = 2.0 * self.plan.part * self.length * self.held * math.prod(self.shape)
        return program.launch(grid, work)

    def _add_run(self, number: Value, *accumulators: Value) -> list[Value]:
        """Add what a run of tiles contributes to the sums of all positions."""
        k, out = self.k, list(accumulators)
        *outer_places, block, run = self.program.split(number, "block", self.plan.blocks)
        pixel = block * self.pixel_axis.count
        groups_fast = self.fast is self.groups
        bases = [pixel, self.first_group] if groups_fast else [self.first_group, pixel]
        self.edges = [
            k.broadcast(lanes.mask, self.shape)
            for lanes in tile_lanes(k, self.axes, bases)
            if lanes.mask is not None
        ]
        loops = (*self.plan.loops.outer, self.slow, self.fast, self.run)
        places = [*outer_places, *bases, run * self.length]
        self.places = {loop.axis: at for loop, at in zip(loops, places) if loop.axis >= 0}
        x = k.const("index", phase_offset(self.phases, self.conv.lhs_strides, "start"))
        w = k.const("index", self.conv.kernel_start(self.phases))
        for loop, at in zip(loops, places, strict=True):
            x, w = x + at * loop.x, w + at * loop.w
        tops = [self._load(self.w, w + u * self.run.w, (self.slow.w, self.fast.w), ())
                for u in range(self.length)]  # fmt: skip
        held = [range(self.block_rows), *(range(self.counts[d]) for d in self.other_axes[1:])]
        for row, place in enumerate(itertools.product(*held)):
            self._add_row(out, row, x, place, tops)
        return out

    def _add_row(
        self, accumulators: list[Value], row: int, x: Value, place: Sequence[int],
        tops: Sequence[Value],
    ) -> None:  # fmt: skip
        """Add to the sums of a row of positions along the run.

        Args:
          accumulators: of all positions; changed.
          row: number of the row among those that are held.
          x: offset of what the first position sees.
          place: of the row along the other spatial axes, the first one from the first held row.
          tops: the cotangent's tiles.
        """
        k, masks = self.k, []
        for i, (d, q) in enumerate(zip(self.other_axes, place)):
            position = k.const("index", q) if i else self.first_row + q
            x = x + position * (self.conv.lhs_strides[2 + d] * self.phases[d].shift)
            masks += self._inside(d, position)
        if self.run is ONCE:
            accumulators[row] = multiply_add(k, self._seen(x, masks), tops[0], accumulators[row])
            return
        d, p = self.run.axis, self.phases[self.run.axis]
        seen = {}
        for j in _steps(self.phases[self.run.axis], self.length):
            at = x + j * self.conv.lhs_strides[2 + d]
            first = self.places[d] * p.tap_shift + (p.start + j)
            inside = (
                [self._scalar_inside(first, d)] if p.window(self.conv.lhs[2 + d]).leaves else []
            )
            seen[j] = self._seen(at, masks + inside)
        for u, q in itertools.product(range(self.length), range(p.count)):
            i = row * p.count + q
            accumulators[i] = multiply_add(
                k, seen[q * p.shift + u * p.tap_shift], tops[u], accumulators[i]
            )

    def _inside(self, d: int, position: Value) -> list[Value]:
        """Which elements of a tile a position sees inside the input along an axis."""
        p, extent = self.phases[d], self.conv.lhs[2 + d]
        if not p.window(extent).leaves:
            return []
        place = self.places.get(d, self.k.const("index", 0))
        first = position * p.shift + place * p.tap_shift + p.start
        across = next((i for i, loop in enumerate((self.slow, self.fast)) if loop.axis == d), None)
        if across is None:
            return [self._scalar_inside(first, d)]
        return [lanes_inside(self.k, self.shape, across, first, p.tap_shift, extent)]

    def _scalar_inside(self, at: Value, d: int) -> Value:
        """Whether a coordinate is inside the input, for all elements of a tile."""
        k = self.k
        inside = k.convert(at, "u32") < k.const("u32", self.conv.lhs[2 + d])
        return k.broadcast(inside, self.shape)

    def _seen(self, at: Value, masks: Sequence[Value]) -> Value:
        return self._load(self.x, at, (self.slow.x, self.fast.x), masks)

    def _load(
        self, buffer: tile.Buffer, at: Value, strides: tuple[int, int], masks: Sequence[Value]
    ) -> Value:
        """A tile in the dtype of the sums; zero where it does not exist or a mask is false."""
        mask = every(self.k, (*self.edges, *masks))
        x = self.k.load(buffer, at, self.shape, strides, mask, eager=True)
        return self.k.convert(x, self.accumulate)

    def _store(self, out: tile.Buffer, split: Value, accumulators: Sequence[Value]) -> None:
        """The sums of all pixels that the program has seen, to its part of the workspace."""
        k, groups = self.k, self.groups.extent
        reduced = 0 if self.fast is self.groups else 1
        totals = [k.reduce("add", x, reduced) for x in accumulators]
        mask = self.group_axis.edge(k, self.first_group, groups)
        base = split * math.prod(self.counts)
        for position, row, exists in self._positions():
            at = (base + position) * groups + self.first_group

            def write(at: Value = at, x: Value = totals[row]) -> None:
                k.store(out, at, x, (1,), mask)

            write() if exists is None else k.if_(exists, write)

    def _positions(self) -> Iterator[tuple[Value, int, Value | None]]:
        """For each of the sums: the number of its position, its own, whether there is such."""
        k, steps = self.k, [math.prod(self.counts[d + 1 :]) for d in range(len(self.counts))]
        order = [*self.other_axes, *([self.run.axis] if self.run is not ONCE else [])]
        extents = [range(self.counts[d]) for d in order]
        if self.other_axes:
            extents[0] = range(self.block_rows)
        for i, place in enumerate(itertools.product(*extents)):
            number, exists = k.const("index", 0), None
            for d, q in zip(order, place, strict=True):
                at = k.const("index", q)
                if self.other_axes and d == order[0]:
                    at = self.first_row + q
                    if self.counts[d] % self.block_rows:
                        exists = at < self.counts[d]
                number = number + at * steps[d]
            yield number, i, exists

    # Adding them

    def _combine(self, parts: Temp) -> Call:
        """The launch that adds the sums of all programs."""
        program = Program(self.ctx, "combine")
        k, total = program.k, math.prod(self.counts) * self.groups.extent
        k.schedule.workgroup = self.ctx.gpu.usual_workgroup
        k.schedule.vector = EACH if is_multiple(total, EACH) else 1
        high = min(k.schedule.workgroup * EACH // COLUMNS, power_of_two(self.plan.splits))
        column = TileAxis(LoopVar("c", total), COLUMNS)
        source = program.buffer(parts, parts.dtype)
        first = k.program_id() * COLUMNS
        shape = (high, COLUMNS)

        def add(row: Value, x: Value) -> Value:
            rows = TileAxis(LoopVar("r", self.plan.splits), high)
            lanes = tile_lanes(k, [rows, column], [row, first])
            mask = every(k, [k.broadcast(x.mask, shape) for x in lanes if x.mask is not None])
            at = row * total + first
            return x + k.load(source, at, shape, (total, 1), mask, eager=True)

        (accumulators,) = k.for_(0, self.plan.splits, high, add, [k.const(parts.dtype, 0, shape)])
        positions = zip(self.phases, self.conv.out_strides[2:], strict=True)
        columns = tuple(Axis(p.count, s * p.step) for p, s in positions)
        sink = Sink(
            self.out_var, short_dtype(self.out_var.aval.dtype), 0, (), (),
            (*columns, Axis(self.groups.extent, self.groups.out)),
        )  # fmt: skip
        row = k.expand(k.reduce("add", accumulators, 0), 0)
        TileWriter(program, sink, []).store([row], [k.const("index", 0), first], (1, total))
        return program.launch(column.blocks, 1.0 * self.plan.splits * COLUMNS)
