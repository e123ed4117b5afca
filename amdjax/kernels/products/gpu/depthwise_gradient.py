"""Gradients of the kernels of depthwise convolutions on GPUs.

As a convolution, such a gradient has few positions and as many taps as the image has pixels, and
each group has one feature: for each group and position, a sum over all images and pixels. A
program walks some of those tile by tile, columns along what lies side by side in memory, and keeps
sums of all positions (or of some rows of them) in registers; neighbouring tiles share what they see
of the input. Its sums go to memory, where a second launch adds those of all programs, always in the
same order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from amdjax import tile
from amdjax.core.integers import ceil_div, power_of_two
from amdjax.kernels.gpu_loops import every, lanes_inside, tile_of
from amdjax.kernels.products.contraction import Axis, Sink, accumulate_dtype
from amdjax.kernels.products.cpu.packed import multiply_add
from amdjax.kernels.products.gpu.contraction import TileWriter
from amdjax.kernels.products.gpu.depthwise import ONCE, Loop
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, ShapedContext, Temp
from amdjax.schedule.element import short_dtype
from amdjax.schedule.gpu.tiles import TileAxis, tile_lanes
from amdjax.schedule.index import LoopVar
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


def kernel_gradient(ctx: ShapedContext, conv: Convolution) -> list[Call] | None:
    """The launches; None where this is no gradient of a depthwise convolution's kernel."""
    dtypes = [short_dtype(x.aval.dtype) for x in (*ctx.inputs, *ctx.outputs)]
    single = conv.batch_groups == conv.lhs[0] == conv.rhs[0] > 1 and conv.feature_groups == 1
    if not single or not conv.spatial or any(d.startswith("c") for d in dtypes):
        return None
    first, *more = conv.phases()
    positions, taps = (math.prod(getattr(p, n) for p in first) for n in ("count", "taps"))
    if more or positions > MOST_POSITIONS or not conv.rhs[1] * taps:
        return None
    return KernelGradient(ctx, conv, first).calls()


class KernelGradient:
    """The gradient of a depthwise kernel as launches.

    `x` is the input of the convolution, `w` the cotangent of its result: in the roles of input and
    kernel they are convolved with each other.
    """

    def __init__(self, ctx: ShapedContext, conv: Convolution, phases: Sequence[Phase]):
        self.ctx, self.conv, self.phases = ctx, conv, phases
        self.out_var = ctx.outputs[0]
        operands = [v.aval.dtype for v in ctx.inputs]
        self.dtypes = [short_dtype(d) for d in operands]
        self.accumulate = accumulate_dtype(self.out_var.aval.dtype, *operands)
        self.counts = [p.count for p in phases]
        self._assign_loops()
        self.vector = self._vector()
        self.axes, self.threads = tile_of(ctx.gpu, self.slow.extent, self.fast.extent, self.vector)
        self.shape = (self.axes[0].count, self.axes[1].count)
        self._cut_positions()
        self.length = self._run_length()
        self._cut_walk()

    def _assign_loops(self) -> None:
        """Which loops run along rows, columns and runs of tiles, and which around them."""
        conv = self.conv
        (x0, x1, *xs), (w0, w1, *ws) = conv.lhs_strides, conv.rhs_strides
        self.groups = Loop(conv.lhs[0], x0, w0, conv.out_strides[1])
        pixels = [
            Loop(p.taps, x * p.tap_move, w * p.tap_step, 0, d)
            for d, (p, x, w) in enumerate(zip(self.phases, xs, ws, strict=True))
        ]
        nearest = sorted((p for p in pixels if p.extent > 1), key=lambda loop: loop.w)
        by_groups = not nearest or self.groups.w <= nearest[0].w
        self.fast = self.groups if by_groups else nearest.pop(0)
        self.run = nearest.pop(0) if nearest else ONCE
        rest = [*nearest, Loop(conv.lhs[1], x1, w1, 0)]
        self.slow = rest.pop(0) if by_groups else self.groups
        self.walked = rest

    def _vector(self) -> int:
        """Neighbours in a thread, so that it can hold sums of all positions of each if possible."""
        if self.fast is not self.groups or not self.groups.x == self.groups.w == 1:
            return 1
        size = min(map(itemsize, self.dtypes))
        vector, least = max(1, 16 // size), max(1, 4 // size)
        while vector > least and vector * math.prod(self.counts) > MOST_SUMS:
            vector //= 2
        while self.groups.extent % vector:
            vector //= 2
        return vector

    def _cut_positions(self) -> None:
        """How many rows of positions, along the first spatial axis but the run's, are together."""
        self.around_run = [d for d in range(len(self.counts)) if d != self.run.axis]
        rows = self.counts[self.around_run[0]] if self.around_run else 1
        across = math.prod(self.counts) // rows
        self.together = rows
        if rows * across * self.vector > MOST_SUMS:
            self.together = max(1, CUT_SUMS // (across * self.vector))
        self.chunks = ceil_div(rows, self.together)
        self.held = across * self.together

    def _run_length(self) -> int:
        """Tiles of a run: a divisor of its taps, so that none sees what does not exist."""
        if self.run is ONCE:
            return 1
        rows = self.held // self.counts[self.run.axis]
        most = SEEN_BYTES // (rows * self.vector * itemsize(self.dtypes[0]))
        fitting = [n for n in range(2, MOST_RUN + 1) if len(self._steps(n)) <= most]
        return max((n for n in fitting if self.run.extent % n == 0), default=1)

    def _steps(self, length: int) -> list[int]:
        """What a run of tiles sees along it, in steps of the input."""
        p = self.phases[self.run.axis]
        places = itertools.product(range(p.count), range(length))
        return sorted({q * p.move + u * p.tap_move for q, u in places})

    def _cut_walk(self) -> None:
        """The tiles, and how many of them each program walks."""
        loops = list(zip((self.slow, self.fast), self.axes, strict=True))
        self.group_axis = next(axis for loop, axis in loops if loop is self.groups)
        (self.pixel_axis,) = (axis for loop, axis in loops if loop is not self.groups)
        extents = [loop.extent for loop in self.walked]
        extents += [self.pixel_axis.blocks, self.run.extent // self.length]
        self.blocks = [Axis(n, 0) for n in extents]
        self.total = math.prod(extents)
        around = self.chunks * self.group_axis.blocks
        wanted = max(1, self.ctx.gpu.busy_threads // (self.threads * around))
        self.part = ceil_div(self.total, min(self.total, wanted))
        self.pieces = ceil_div(self.total, self.part)

    def calls(self) -> list[Call]:
        """The launches in order."""
        parts = Temp(self.accumulate, self.pieces * math.prod(self.counts) * self.groups.extent)
        return [self._sum(parts), self._combine(parts)]

    # Sums of programs

    def _sum(self, parts: Temp) -> Call:
        self.program = program = Program(self.ctx, "kernel_gradient")
        self.k = k = program.k
        k.schedule.workgroup, k.schedule.vector = self.threads, self.vector
        self.x, self.w = (
            program.buffer(v, d) for v, d in zip(self.ctx.inputs, self.dtypes, strict=True)
        )
        out = program.buffer(parts, parts.dtype, "out")
        digits = [Axis(n, 0) for n in (self.pieces, self.group_axis.blocks, self.chunks)]
        piece, block, chunk = program.split(k.program_id(), "part", digits)
        self.first_group, self.first_row = block * self.group_axis.count, chunk * self.together
        start = piece * self.part
        stop = k.min(start + self.part, self.total)
        zero = k.const(self.accumulate, 0, self.shape)
        sums = k.for_(start, stop, 1, self._add_run, [zero] * self.held)
        self._store(out, piece, sums)
        grid = self.pieces * self.group_axis.blocks * self.chunks
        work = 2.0 * self.part * self.length * self.held * math.prod(self.shape)
        return program.launch(grid, work)

    def _add_run(self, number: Value, *sums: Value) -> list[Value]:
        """Add what a run of tiles contributes to the sums of all positions."""
        k, out = self.k, list(sums)
        *walked, block, run = self.program.split(number, "block", self.blocks)
        pixel = block * self.pixel_axis.count
        groups_fast = self.fast is self.groups
        bases = [pixel, self.first_group] if groups_fast else [self.first_group, pixel]
        self.edges = [
            k.broadcast(lanes.mask, self.shape)
            for lanes in tile_lanes(k, self.axes, bases)
            if lanes.mask is not None
        ]
        loops = (*self.walked, self.slow, self.fast, self.run)
        places = [*walked, *bases, run * self.length]
        self.places = {loop.axis: at for loop, at in zip(loops, places) if loop.axis >= 0}
        x = k.const("index", self._start(self.conv.lhs_strides, "start"))
        w = k.const("index", self._start(self.conv.rhs_strides, "tap"))
        for loop, at in zip(loops, places, strict=True):
            x, w = x + at * loop.x, w + at * loop.w
        tops = [self._load(self.w, w + u * self.run.w, (self.slow.w, self.fast.w), ())
                for u in range(self.length)]  # fmt: skip
        held = [range(self.together), *(range(self.counts[d]) for d in self.around_run[1:])]
        for row, place in enumerate(itertools.product(*held)):
            self._add_row(out, row, x, place, tops)
        return out

    def _start(self, strides: Sequence[int], name: str) -> int:
        """Offset of the first tap or position in an array with these strides."""
        return sum(getattr(p, name) * s for p, s in zip(self.phases, strides[2:], strict=True))

    def _add_row(
        self, sums: list[Value], row: int, x: Value, place: Sequence[int], tops: Sequence[Value]
    ) -> None:
        """Add to the sums of a row of positions along the run.

        Args:
          sums: of all positions; changed.
          row: number of the row among those that are held.
          x: offset of what the first position sees.
          place: of the row along the other spatial axes, the first one from the first held row.
          tops: the cotangent's tiles.
        """
        k, masks = self.k, []
        for i, (d, q) in enumerate(zip(self.around_run, place)):
            position = k.const("index", q) if i else self.first_row + q
            x = x + position * (self.conv.lhs_strides[2 + d] * self.phases[d].move)
            masks += self._inside(d, position)
        if self.run is ONCE:
            sums[row] = multiply_add(k, self._seen(x, masks), tops[0], sums[row])
            return
        d, p = self.run.axis, self.phases[self.run.axis]
        seen = {}
        for j in self._steps(self.length):
            at = x + j * self.conv.lhs_strides[2 + d]
            first = self.places[d] * p.tap_move + (p.start + j)
            inside = [self._scalar_inside(first, d)] if p.leaves(self.conv.lhs[2 + d]) else []
            seen[j] = self._seen(at, masks + inside)
        for u, q in itertools.product(range(self.length), range(p.count)):
            i = row * p.count + q
            sums[i] = multiply_add(k, seen[q * p.move + u * p.tap_move], tops[u], sums[i])

    def _inside(self, d: int, position: Value) -> list[Value]:
        """Which elements of a tile a position sees inside the input along an axis."""
        p, extent = self.phases[d], self.conv.lhs[2 + d]
        if not p.leaves(extent):
            return []
        place = self.places.get(d, self.k.const("index", 0))
        first = position * p.move + place * p.tap_move + p.start
        across = next((i for i, loop in enumerate((self.slow, self.fast)) if loop.axis == d), None)
        if across is None:
            return [self._scalar_inside(first, d)]
        return [lanes_inside(self.k, self.shape, across, first, p.tap_move, extent)]

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

    def _store(self, out: tile.Buffer, piece: Value, sums: Sequence[Value]) -> None:
        """The sums of all pixels that the program walked, to its part of the workspace."""
        k, groups = self.k, self.groups.extent
        reduced = 0 if self.fast is self.groups else 1
        totals = [k.reduce("add", x, reduced) for x in sums]
        mask = self.group_axis.edge(k, self.first_group, groups)
        base = piece * math.prod(self.counts)
        for position, row, exists in self._positions():
            at = (base + position) * groups + self.first_group

            def write(at: Value = at, x: Value = totals[row]) -> None:
                k.store(out, at, x, (1,), mask)

            write() if exists is None else k.if_(exists, write)

    def _positions(self) -> Iterator[tuple[Value, int, Value | None]]:
        """For each of the sums: the number of its position, its own, whether there is such."""
        k, steps = self.k, [math.prod(self.counts[d + 1 :]) for d in range(len(self.counts))]
        order = [*self.around_run, *([self.run.axis] if self.run is not ONCE else [])]
        extents = [range(self.counts[d]) for d in order]
        if self.around_run:
            extents[0] = range(self.together)
        for i, place in enumerate(itertools.product(*extents)):
            number, exists = k.const("index", 0), None
            for d, q in zip(order, place, strict=True):
                at = k.const("index", q)
                if self.around_run and d == order[0]:
                    at = self.first_row + q
                    if self.counts[d] % self.together:
                        exists = at < self.counts[d]
                number = number + at * steps[d]
            yield number, i, exists

    # Adding them

    def _combine(self, parts: Temp) -> Call:
        """The launch that adds the sums of all programs."""
        program = Program(self.ctx, "combine")
        k, total = program.k, math.prod(self.counts) * self.groups.extent
        k.schedule.workgroup = self.ctx.gpu.usual_workgroup
        k.schedule.vector = EACH if total % EACH == 0 else 1
        high = min(k.schedule.workgroup * EACH // COLUMNS, power_of_two(self.pieces))
        column = TileAxis(LoopVar("c", total), COLUMNS)
        source = program.buffer(parts, parts.dtype)
        first = k.program_id() * COLUMNS
        shape = (high, COLUMNS)

        def add(row: Value, x: Value) -> Value:
            rows = TileAxis(LoopVar("r", self.pieces), high)
            lanes = tile_lanes(k, [rows, column], [row, first])
            mask = every(k, [k.broadcast(x.mask, shape) for x in lanes if x.mask is not None])
            at = row * total + first
            return x + k.load(source, at, shape, (total, 1), mask, eager=True)

        (sums,) = k.for_(0, self.pieces, high, add, [k.const(parts.dtype, 0, shape)])
        positions = zip(self.phases, self.conv.out_strides[2:], strict=True)
        columns = tuple(Axis(p.count, s * p.step) for p, s in positions)
        sink = Sink(
            self.out_var, short_dtype(self.out_var.aval.dtype), 0, (), (),
            (*columns, Axis(self.groups.extent, self.groups.out)),
        )  # fmt: skip
        row = k.expand(k.reduce("add", sums, 0), 0)
        TileWriter(program, sink, []).store([row], [k.const("index", 0), first], (1, total))
        return program.launch(column.blocks, 1.0 * self.pieces * COLUMNS)
