"""Convolutions on GPUs in which each group has one input feature.

Nothing is shared between features, so there is no matrix product in them. A program computes a few
neighboring tiles of the result: their columns run along what lies side by side in memory (features
or the innermost spatial axis), their rows along another loop, and neighbors in the run of tiles,
along a spatial axis, share what they see of the input. Taps are added one after the other. Where
they leave the input, zeros are read; along axes without a part in the tiles only taps inside are
visited.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from amdjax import tile
from amdjax.core.dims import is_multiple
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.gpu_loops import every, lanes_inside, tile_of
from amdjax.kernels.products.contraction import Axis, Sink
from amdjax.kernels.products.convolution import phase_offset
from amdjax.kernels.products.cpu.micro_kernel import multiply_add
from amdjax.kernels.products.formats import sum_dtype
from amdjax.kernels.products.gpu.contraction import TileWriter
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, InOrder, KernelPlan, ShapedContext
from amdjax.schedule.gpu.tiles import TileAxis, tile_lanes, uneven
from amdjax.schedule.row_plan import counted
from amdjax.schedule.search import Family, Solver
from amdjax.schedule.values import short_dtype
from amdjax.targets import GpuTarget
from amdjax.tile import itemsize

if TYPE_CHECKING:
    from amdjax.kernels.products.convolution import Convolution, Phase

Value = tile.Value

EACH = 2  # elements of a tile in a thread, where neighbors are not side by side
MOST_SUMS = 32  # of a thread
MOST_RUN = 8  # tiles of a program
UNROLLED = 4  # taps along an axis of the tile whose code is written one after the other
UNROLLED_RUN = 16  # taps along the run
MOST_SEEN = 20  # tiles of the input that are read at once
MANY_TAPS = 256  # from here on the kernel is as large as an image: the gradient of a kernel


@dataclass(frozen=True)
class Loop:
    """A loop over the result.

    Args:
      extent: number of steps.
      x: elements of the input from one step to the next.
      w: elements of the kernel.
      out: elements of the result.
      axis: the spatial axis it runs along; -1 for images, groups and features.
    """

    extent: int
    x: int
    w: int
    out: int
    axis: int = -1


ONCE = Loop(1, 0, 0, 0)


@dataclass(frozen=True)
class DepthwisePlan:
    """A convolution with one input feature a group.

    Args:
      conv: its sizes.
      phase_groups: phases with equal numbers of positions. Programs of different phases at one
        place are neighbors, so that they share what they read, and the lines of memory they write.
      fast: the loop along columns of tiles.
      slow: the loop along their rows.
      run: the loop along which a program computes several tiles.
      outer: the loops around them.
      vector: neighbors in a thread.
      axes: rows and columns of a tile.
      threads: of a program.
      length: tiles of a program.
    """

    conv: Convolution
    phase_groups: tuple[tuple[Phase, ...], ...]
    fast: Loop
    slow: Loop
    run: Loop
    outer: tuple[Loop, ...]
    vector: int
    axes: tuple[TileAxis, TileAxis]
    threads: int
    length: int

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [DirectConvolution(ctx, self).call()]

    def __str__(self) -> str:
        size = f"{self.axes[0].count}×{self.axes[1].count}"
        out = f"depthwise convolution, {counted(len(self.phase_groups), 'phase')}"
        out += f", {counted(self.length, 'tile')} of {size}"
        return f"{out} in a program, {self.threads} threads, vectors of {self.vector}"


def plan_depthwise(ctx: ShapedContext, conv: Convolution) -> KernelPlan | None:
    """The plan of a depthwise convolution; None where products suit better."""
    dtypes = [short_dtype(x.aval.dtype) for x in (*ctx.inputs, *ctx.outputs)]
    if conv.rhs[1] != 1 or conv.feature_groups < 8 or any(d.startswith("c") for d in dtypes):
        return None
    if math.prod(conv.rhs[2:]) > MANY_TAPS:
        return None
    phases = [tuple(axes) for axes in conv.phases()]
    alike = len({tuple(p.count for p in axes) for axes in phases}) == 1
    launches = [tuple(phases)] if alike else [(axes,) for axes in phases]
    sizes = itemsize(dtypes[0]), itemsize(dtypes[-1])
    problems = (DepthwiseProblem(conv, phase_groups, *sizes) for phase_groups in launches)
    return InOrder([DEPTHWISE.best(problem, ctx.gpu) for problem in problems])


class DepthwiseProblem(NamedTuple):
    """Phases of a convolution with equal numbers of positions, and bytes of elements."""

    conv: Convolution
    phase_groups: tuple[tuple[Phase, ...], ...]
    in_bytes: int
    out_bytes: int


def _longest(phase_groups: Sequence[Sequence[Phase]]) -> Sequence[Phase]:
    """The phase with the most taps."""
    return max(phase_groups, key=lambda axes: math.prod(p.taps for p in axes))


def depthwise_plans(problem: DepthwiseProblem, target: GpuTarget) -> list[DepthwisePlan]:
    """Which loops run along rows, columns and runs of tiles, for runs of different lengths."""
    conv, phase_groups, *sizes = problem
    phases, each = _longest(phase_groups), conv.rhs[0] // conv.feature_groups
    (x0, x1, *xs), (w0, _, *_), (o0, o1, *os) = (
        conv.lhs_strides, conv.rhs_strides, conv.out_strides,
    )  # fmt: skip
    loops = [
        Loop(conv.out[0], x0, 0, o0),
        Loop(conv.feature_groups, x1, each * w0, each * o1),
        Loop(each, 0, w0, o1),
    ]
    for d, phase in enumerate(phases):
        loops.append(Loop(phase.count, xs[d] * phase.shift, 0, os[d] * phase.step, d))
    long = [loop for loop in loops if loop.extent >= 8] or loops
    fast = min(long, key=lambda loop: loop.out)
    rest = [loop for loop in loops if loop is not fast]
    spatial = [loop for loop in rest if loop.axis >= 0 and loop.extent > 1]
    run = min(spatial, key=lambda loop: loop.out, default=ONCE)
    rest = [loop for loop in rest if loop is not run and loop.extent > 1]
    # Neighboring positions share taps, which the cache holds.
    order = lambda loop: (loop.axis < 0, loop.extent < 4, loop.out)
    slow = min(rest, key=order, default=ONCE)
    outer = tuple(loop for loop in rest if loop is not slow)
    vector = _vector(fast, 16 // min(sizes))
    each = vector if vector > 1 else EACH
    (rows, columns), threads = tile_of(target, slow.extent, fast.extent, each, narrow=True)
    outer_count = math.prod(loop.extent for loop in outer) * rows.blocks * columns.blocks
    most = min(
        MOST_RUN,
        MOST_SUMS // each,
        max(1, run.extent * outer_count * threads // target.busy_threads),
    )
    plan = DepthwisePlan(
        conv, phase_groups, fast, slow, run, outer, vector, (rows, columns), threads, 1
    )
    return [replace(plan, length=length) for length in range(1, most + 1)]


def _vector(fast: Loop, most: int) -> int:
    """Neighbors in a thread; taps along the columns would keep them from being aligned."""
    vector = min(most, 8) if fast.axis < 0 and fast.x == 1 else 1
    while not is_multiple(fast.extent, vector):
        vector //= 2
    return vector


def depthwise_cost(problem: DepthwiseProblem, plan: DepthwisePlan, target: GpuTarget) -> float:
    """What a tile reads, of the input and of the kernel."""
    phases, run, length = _longest(plan.phase_groups), plan.run, plan.length
    phase = phases[run.axis] if run.extent > 1 else None
    if phase is None or phase.taps > UNROLLED_RUN:
        return length  # neighbors have nothing in common, or read it again
    rows = [p.taps for p in phases if p.taps <= UNROLLED and p is not phase]
    places, taps = range(length), range(phase.taps)
    seen = {u * phase.shift + t * phase.tap_shift for u in places for t in taps}
    if length > 1 and len(seen) * math.prod(rows) > MOST_SEEN:
        return math.inf
    return uneven(run.extent, length) * (len(seen) + phase.taps) / length


DEPTHWISE: Family[DepthwiseProblem, GpuTarget, DepthwisePlan] = Family(
    "depthwise convolution on a GPU", Solver("depthwise", depthwise_plans, depthwise_cost)
)


class DirectConvolution:
    """The launch of a convolution with one input feature a group."""

    def __init__(self, ctx: ShapedContext, plan: DepthwisePlan):
        self.ctx, self.plan, self.conv, self.phase_groups = ctx, plan, plan.conv, plan.phase_groups
        self.fast, self.slow, self.run, self.outer = plan.fast, plan.slow, plan.run, plan.outer
        self.phases = _longest(plan.phase_groups)
        self.out_var = ctx.outputs[0]
        self.accumulate = sum_dtype(ctx)

    def call(self) -> Call:
        """The launch."""
        self.program = program = Program(self.ctx, "depthwise")
        self.k = k = program.k
        x, w = self.ctx.inputs
        x_dtype, w_dtype = (short_dtype(v.aval.dtype) for v in (x, w))
        self.x, self.w = program.buffer(x, x_dtype), program.buffer(w, w_dtype)
        out_dtype = short_dtype(self.out_var.aval.dtype)
        axes, count = self.plan.axes, self.plan.length
        k.schedule.vector, k.schedule.workgroup = self.plan.vector, self.plan.threads
        outer_count = (
            math.prod(loop.extent for loop in self.outer) * axes[0].blocks * axes[1].blocks
        )
        blocks = ceil_div(self.run.extent, count)
        which, number = self._phase_of(k.program_id())
        self.bases: list[Value] = []
        for axis in reversed(axes):
            self.bases.insert(0, (number % axis.blocks) * axis.count)
            number = number // axis.blocks
        self.start = (number % blocks) * count
        number = number // blocks
        digits = program.split(number, "outer", [Axis(loop.extent, 0) for loop in self.outer])
        self.places = {loop.axis: d for loop, d in zip(self.outer, digits) if loop.axis >= 0}
        self.shape = (axes[0].count, axes[1].count)
        self.edges = [
            k.broadcast(lanes.mask, self.shape)
            for lanes in tile_lanes(k, axes, self.bases)
            if lanes.mask is not None
        ]
        taps = sum(math.prod(phase.taps for phase in axes) + 1 for axes in self.phase_groups)
        self._compute_phase(0, which, digits, out_dtype, count)
        grid = len(self.phase_groups) * outer_count * blocks
        return program.launch(grid, 2.0 * count * math.prod(self.shape) * taps)

    def _phase_of(self, number: Value) -> tuple[Value, Value]:
        """Which of the phases a program computes, and its number among those that do."""
        phases = self.k.const("index", len(self.phase_groups))
        return number % phases, number // phases

    def _compute_phase(
        self, i: int, which: Value, digits: Sequence[Value], dtype: str, count: int
    ) -> None:
        """Compute and store a run of `count` tiles of phase `which`, which is not before `i`."""

        def compute() -> None:
            self.phases = self.phase_groups[i]
            self.leaves_run = self._leaves_run(round_up(self.run.extent, count))
            zero = self.k.const(self.accumulate, 0, self.shape)
            other_axes = [d for d in range(len(self.phases)) if d != self.run.axis]
            accumulators = self._over_taps(other_axes, *self._origins(digits), [], [zero] * count)
            self._store(accumulators, digits, dtype)

        if i == len(self.phase_groups) - 1:
            compute()
            return
        others = lambda: self._compute_phase(i + 1, which, digits, dtype, count)
        self.k.if_(self.k.eq(which, i), compute, others)

    def _leaves_run(self, places: int) -> bool:
        """Whether tiles at so many places along the run see anything outside of the input."""
        if self.run is ONCE:
            return False
        whole = replace(self.phases[self.run.axis], count=places)
        return whole.window(self.conv.lhs[2 + self.run.axis]).leaves

    def _origins(self, digits: Sequence[Value]) -> tuple[Value, Value]:
        """Offsets of the first tile's first element in input and kernel, at the first tap."""
        k = self.k
        x = k.const("index", phase_offset(self.phases, self.conv.lhs_strides, "start"))
        w = k.const("index", self.conv.kernel_start(self.phases))
        loops = (*self.outer, self.slow, self.fast, self.run)
        for loop, place in zip(loops, (*digits, *self.bases, self.start), strict=True):
            x = x + place * loop.x if loop.x else x
            w = w + place * loop.w if loop.w else w
        return x, w

    # Taps

    def _over_taps(
        self, axes: Sequence[int], x: Value, w: Value, masks: list[Value], accumulators: list[Value]
    ) -> list[Value]:
        """Add all taps along these spatial axes and the run; `x`, `w` are offsets at the first."""
        if not axes:
            return self._over_run(x, w, masks, accumulators)
        k, (d, *rest) = self.k, axes
        phase = self.phases[d]
        x_step = self.conv.lhs_strides[2 + d] * phase.tap_shift
        w_step = self.conv.rhs_strides[2 + d] * phase.tap_step
        across = next((i for i, loop in enumerate((self.slow, self.fast)) if loop.axis == d), None)

        def tap(t: Value, *accumulators: Value) -> list[Value]:
            more = [] if across is None else self._inside(d, across, t)
            at = x + t * x_step, w + t * w_step
            return self._over_taps(rest, *at, masks + more, list(accumulators))

        if across is not None and phase.taps <= UNROLLED:
            for t in range(phase.taps):
                accumulators = tap(k.const("index", t), *accumulators)
            return accumulators
        low, high = k.const("index", 0), k.const("index", phase.taps)
        if across is None and phase.window(self.conv.lhs[2 + d]).leaves:
            place = self.places.get(d, k.const("index", 0))
            low, high = phase.window(self.conv.lhs[2 + d]).taps_inside(k, place)
        return list(k.for_(low, high, 1, tap, accumulators))

    def _inside(self, d: int, across: int, t: Value) -> list[Value]:
        """Which elements of a tile see the input at a tap of an axis of the tile."""
        phase, extent = self.phases[d], self.conv.lhs[2 + d]
        if not phase.window(extent).leaves:
            return []
        first = self.bases[across] * phase.shift + phase.start + t * phase.tap_shift
        return [lanes_inside(self.k, self.shape, across, first, phase.shift, extent)]

    def _over_run(
        self, x: Value, w: Value, masks: list[Value], accumulators: list[Value]
    ) -> list[Value]:
        """Add the taps along the run, each of which neighboring tiles see in turn."""
        if self.run is ONCE:
            accumulators[0] = multiply_add(
                self.k, self._seen(x, masks), self._weight(w), accumulators[0]
            )
            return accumulators
        k, d = self.k, self.run.axis
        phase = self.phases[d]
        w_step = self.conv.rhs_strides[2 + d] * phase.tap_step
        if phase.taps > UNROLLED_RUN:

            def tap(t: Value, total: Value) -> Value:
                seen = self._seen_along(d, x, t * phase.tap_shift, masks)
                return multiply_add(k, seen, self._weight(w + t * w_step), total)

            return list(k.for_(0, phase.taps, 1, tap, accumulators))
        known: dict[int, Value] = {}
        for t in range(phase.taps):
            weight = self._weight(w + t * w_step)
            for u in range(len(accumulators)):
                j = u * phase.shift + t * phase.tap_shift
                if j not in known:
                    known[j] = self._seen_along(d, x, k.const("index", j), masks)
                accumulators[u] = multiply_add(k, known[j], weight, accumulators[u])
        return accumulators

    def _seen_along(self, d: int, x: Value, j: Value, masks: list[Value]) -> Value:
        """The input `j` steps along the run."""
        k, phase = self.k, self.phases[d]
        if self.leaves_run:
            place = k.convert(self.start * phase.shift + phase.start + j, "u32")
            inside = place < k.const("u32", self.conv.lhs[2 + d])
            masks = [*masks, k.broadcast(inside, self.shape)]
        return self._seen(x + j * self.conv.lhs_strides[2 + d], masks)

    def _seen(self, at: Value, masks: Sequence[Value]) -> Value:
        """A tile of the input; zero where a mask is false."""
        mask = every(self.k, (*self.edges, *masks))
        x = self.k.load(self.x, at, self.shape, (self.slow.x, self.fast.x), mask, eager=True)
        return self.k.convert(x, self.accumulate)

    def _weight(self, at: Value) -> Value:
        """The kernel's element for each element of a tile."""
        strides = (self.slow.w, self.fast.w)
        w = self.k.load(self.w, at, self.shape, strides, every(self.k, self.edges), eager=True)
        return self.k.convert(w, self.accumulate)

    def _store(self, accumulators: Sequence[Value], digits: Sequence[Value], dtype: str) -> None:
        """Write the tiles of the run that exist."""
        k, run = self.k, self.run
        sink = Sink(
            self.out_var, dtype, phase_offset(self.phases, self.conv.out_strides, "first"),
            tuple(Axis(loop.extent, loop.out) for loop in (*self.outer, run)),
            (Axis(self.slow.extent, self.slow.out),), (Axis(self.fast.extent, self.fast.out),),
        )  # fmt: skip
        extents = (self.slow.extent, self.fast.extent)
        for u, x in enumerate(accumulators):
            place = self.start + u
            writer = TileWriter(self.program, sink, [*digits, place])

            def write(writer: TileWriter = writer, x: Value = x) -> None:
                writer.store([x], self.bases, extents)

            if not is_multiple(run.extent, len(accumulators)):
                k.if_(place < run.extent, write)
            else:
                write()
