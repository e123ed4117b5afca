"""Convolutions in which each group has one input feature, or few.

Nothing is shared between the lanes of a vector here, so there is no matrix product in them: lanes
run over features where features lie side by side, over the innermost spatial axis otherwise, and
each lane sums its own taps. Where groups have several features, as many of them as output ones, a
vector holds whole groups, and each of their features is spread over the lanes of its group in turn.
The gradient of such a kernel has few positions and as many taps as the
image has pixels; its positions stay in registers while the loop over taps runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from amdjax import tile
from amdjax.core.dims import is_multiple, no_less, size_hint
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import Axis, lane_count
from amdjax.kernels.products.cpu.costs import launch, nanoseconds
from amdjax.kernels.products.cpu.depthwise_gradient import KernelGradient
from amdjax.kernels.products.cpu.lane_convolution import UNROLLED_TAPS, LaneConvolution
from amdjax.kernels.products.cpu.micro_kernel import multiply_add
from amdjax.kernels.products.formats import sum_dtype
from amdjax.kernels.products.writing import Writer
from amdjax.kernels.shaped import Call, InOrder, KernelPlan, ShapedContext
from amdjax.schedule.search import Family, Solver, shares
from amdjax.schedule.values import short_dtype
from amdjax.targets.cpu import CpuTarget

if TYPE_CHECKING:
    from amdjax.kernels.products.convolution import Convolution, ConvolutionProblem, Phase

Value = tile.Value

MOST_POSITIONS = 8  # positions of the result whose sums are in registers together
MOST_SUMS = 27  # positions that a kernel gradient keeps in registers
LANE_TAP = 0.9  # cycles of a tap of a vector
GRADIENT_TAP = 8.0  # cycles of a tap of a vector of sums, with what it is compared with
MOST_BLOCKS = 16  # of positions, each of which reads the images again: a product reads them once


class FeatureLanes(LaneConvolution):
    """Features side by side in memory: lanes over features, a few positions at a time."""

    def calls(self) -> list[Call]:
        self.begin("depthwise")
        conv, k = self.conv, self.k
        *outer, self.inner_phase = self.phases
        self.width = self._positions()
        pid = k.program_id()
        axes = [Axis(conv.lhs[0], conv.out_strides[0])]
        axes += [Axis(p.count, conv.out_strides[2 + d] * p.step) for d, p in enumerate(outer)]
        places = self.program.split(pid, "outer", axes)
        inner = Axis(self.inner_phase.count, conv.out_strides[-1] * self.inner_phase.step)
        features = conv.out[1]
        accumulators = self.writer(list(zip(axes, places)), [inner], Axis(features, 1))
        image = places[0] * conv.lhs_strides[0]
        last_row = image + self.offset_of_last_taps(places[1:])

        def tile_at(first: Value) -> None:
            first = k.min(first, self.inner_phase.count - self.width)
            inside = self._inside(first)
            # The pixels of the next tile that the one above it has not read; each is a short run
            # of a page of its own, which no machine foresees.
            step = self.inner_phase.shift * conv.lhs_strides[-1]
            next_tile = last_row + (first + self.width) * step

            def block(c: Value) -> None:
                for i in range(self.width) if features == conv.lhs[1] else ():
                    k.prefetch(self.x, next_tile + c + i * step)
                mask = None
                if not is_multiple(features, self.lanes):
                    mask = k.iota(self.lanes, "i32") < k.convert(
                        k.const("index", features) - c, "i32"
                    )

                def write(guarded: bool) -> None:
                    self._tile(image, places[1:], first, c, mask, guarded, accumulators)

                if inside is None:
                    write(False)
                else:
                    k.if_(inside, lambda: write(False), lambda: write(True))

            k.for_(0, features, self.lanes, block)

        k.for_(0, self.inner_phase.count, self.width, tile_at)
        return [self.program.launch(math.prod(axis.extent for axis in axes), self.nanoseconds())]

    def _positions(self) -> int:
        count = size_hint(self.inner_phase.count)
        return no_less(self.inner_phase.count, ceil_div(count, ceil_div(count, MOST_POSITIONS)))

    def _inside(self, first: Value) -> Value | None:
        """Whether no tap of the tile's positions leaves the input; None if none ever does."""
        p, extent = self.inner_phase, self.conv.lhs[-1]
        if not p.window(extent).leaves:
            return None
        at = first * p.shift + p.start
        last = at + (self.width - 1) * p.shift + (p.taps - 1) * p.tap_shift
        return (at >= 0) & (last < extent)

    def _tile(
        self,
        image: Value,
        positions: Sequence[Value],
        first: Value,
        c: Value,
        mask: Value | None,
        guarded: bool,
        writer: Writer,
    ) -> None:
        k, conv, p, shape = self.k, self.conv, self.inner_phase, (self.lanes,)
        multiplier = conv.out[1] // conv.lhs[1]  # 1 where groups have several features
        x_stride, w_stride = conv.lhs_strides[-1], conv.rhs_strides[-1]
        coordinate = first * p.shift + p.start

        def read(at: Value, j: int) -> Value:
            """The input `j` steps after the tile's first tap."""
            where = mask
            if guarded:
                step = k.convert(coordinate + j, "u64")
                ok = k.broadcast(step < k.const("u64", conv.lhs[-1]), shape)
                where = ok if mask is None else ok & mask
            at = at + j * x_stride
            if multiplier == 1:
                return self.load(self.x, at + c, shape, 1, where)
            lanes = k.convert(k.iota(self.lanes) + c, "u32") // k.const("u32", multiplier)
            lanes = k.convert(lanes, "index") + at
            return k.convert(k.load_at(self.x, lanes, where), self.accumulate)

        def taps(x_at: Value, w_at: Value, accumulators: list[Value]) -> list[Value]:
            x_at = x_at + first * (p.shift * x_stride)

            def tap(
                t: Value | int, accumulators: Sequence[Value], at: Callable[[int, int], Value]
            ) -> list[Value]:
                """Add products with a tap; `at(position, feature)` is the input in each lane."""
                w_here = w_at + c + t * (p.tap_step * w_stride)
                out = list(accumulators)
                for f in range(conv.rhs[1]):
                    w = self.load(self.w, w_here + f * conv.rhs_strides[1], shape, 1, mask)
                    out = [multiply_add(k, at(i, f), w, total) for i, total in enumerate(out)]
                return out

            if p.taps * conv.rhs[1] <= UNROLLED_TAPS:
                values = cache(lambda j: read(x_at, j))
                spread = cache(lambda j, f: self._spread(values(j), f))
                for t in range(p.taps):
                    at = lambda i, f, t=t: spread(i * p.shift + t * p.tap_shift, f)
                    accumulators = tap(t, accumulators, at)
                return accumulators

            def rolled(t: Value, *accumulators: Value) -> list[Value]:
                nonlocal coordinate
                before, coordinate = coordinate, coordinate + t * p.tap_shift
                place = x_at + t * (p.tap_shift * x_stride)
                values = cache(lambda i: read(place, i * p.shift))
                out = tap(t, accumulators, lambda i, f: self._spread(values(i), f))
                coordinate = before
                return out

            return list(k.for_(0, p.taps, 1, rolled, accumulators))

        zero = k.const(self.accumulate, 0, shape)
        origin = [zero] * self.width
        accumulators = self._from(image, positions, origin, taps)
        self._store(writer, first, c, accumulators, mask)

    def _spread(self, x: Value, feature: int) -> Value:
        """A feature of each group in all lanes of the group."""
        group = self.conv.rhs[1]
        if group == 1:
            return x
        return self.k.shuffle(x, [i // group * group + feature for i in range(self.lanes)])

    def _from(
        self,
        image: Value,
        positions: Sequence[Value],
        accumulators: list[Value],
        taps: Callable[[Value, Value, list[Value]], list[Value]],
    ) -> list[Value]:
        return self.over_outer_taps(positions, accumulators, lambda x, w, s: taps(x + image, w, s))

    def _store(
        self, writer: Writer, first: Value, c: Value, accumulators: list[Value], mask: Value | None
    ) -> None:
        k = self.k
        if writer.is_plain:
            for i, x in enumerate(accumulators):
                writer.store(first + i, c, x, mask)
            return
        if not hasattr(self, "waiting"):
            self.waiting = k.scratch("sums", self.accumulate, self.width * self.lanes)
        for i, x in enumerate(accumulators):
            k.store(self.waiting, k.const("index", i * self.lanes), x, (1,))

        def one(i: Value) -> None:
            writer.store(
                first + i, c, k.load(self.waiting, i * self.lanes, (self.lanes,), (1,)), mask
            )

        k.for_(0, self.width, 1, one)


class SpatialLanes(LaneConvolution):
    """The innermost spatial axis side by side in memory: lanes along it, a row at a time."""

    def calls(self) -> list[Call]:
        self.begin("depthwise")
        conv, k = self.conv, self.k
        *outer, across = self.phases
        features = conv.out[1]
        planes = [Axis(conv.lhs[0], conv.out_strides[0]), Axis(features, conv.out_strides[1])]
        pid = k.program_id()
        image, feature = self.program.split(pid, "plane", planes)
        rows = [Axis(p.count, conv.out_strides[2 + d] * p.step) for d, p in enumerate(outer)]
        columns = Axis(across.count, across.step)
        batch = list(zip(planes, (image, feature)))
        multiplier = features // conv.lhs[1]
        x_plane = image * conv.lhs_strides[0] + feature // multiplier * conv.lhs_strides[1]
        w_plane = feature * conv.rhs_strides[0]

        def row(r: Value) -> None:
            places = self.program.split(r, "rows", rows)
            writer = self.writer([*batch, *zip(rows, places)], [], columns)

            def split(q: Value) -> None:
                lanes = k.iota(self.lanes) + q
                exists = lanes < across.count

                def taps(x_at: Value, w_at: Value, accumulators: list[Value]) -> list[Value]:
                    x_at = x_at + x_plane + q * across.shift
                    for t in range(across.taps) if across.taps <= UNROLLED_TAPS else ():
                        accumulators = [
                            self._tap(x_at, w_at + w_plane, lanes, exists, t, accumulators[0])
                        ]
                    if across.taps > UNROLLED_TAPS:
                        body = lambda t, s: [self._tap(x_at, w_at + w_plane, lanes, exists, t, s)]
                        accumulators = list(k.for_(0, across.taps, 1, body, accumulators))
                    return accumulators

                (total,) = self.over_outer_taps(
                    places, [k.const(self.accumulate, 0, (self.lanes,))], taps
                )
                writer.store(k.const("index", 0), q, total, exists)

            k.for_(0, across.count, self.lanes, split)

        k.for_(0, math.prod(axis.extent for axis in rows), 1, row)
        return [self.program.launch(math.prod(axis.extent for axis in planes), self.nanoseconds())]

    def _tap(
        self, x_at: Value, w_at: Value, lanes: Value, exists: Value, t: Value | int, total: Value
    ) -> Value:
        k, conv, p = self.k, self.conv, self.phases[-1]
        t = k.index(t)
        mask = exists
        if p.window(conv.lhs[-1]).leaves:
            place = (lanes * p.shift) + (t * p.tap_shift + p.start)
            inside = k.convert(place, "u64") < k.const("u64", conv.lhs[-1], (self.lanes,))
            mask = exists & inside
        x = self.load(self.x, x_at + t * p.tap_shift, (self.lanes,), p.shift, mask)
        w = k.convert(
            k.load(self.w, w_at + t * (p.tap_step * conv.rhs_strides[-1])), self.accumulate
        )
        return multiply_add(k, x, k.broadcast(w, (self.lanes,)), total)


@dataclass(frozen=True)
class LanePlan:
    """A convolution each lane of which sums its own taps.

    Args:
      conv: its sizes and layout.
      phases: the positions to compute.
      lanes: what they run along: features, the innermost spatial axis, or the groups of a
        kernel's gradient.
      chunk: rows of taps that a program of a gradient sums.
    """

    conv: Convolution
    phases: tuple[Phase, ...]
    lanes: Literal["features", "columns", "groups"]
    chunk: int = 0

    def emit(self, ctx: ShapedContext) -> list[Call]:
        if self.lanes == "groups":
            return KernelGradient(ctx, self.conv, self.phases, self.chunk).calls()
        kind = FeatureLanes if self.lanes == "features" else SpatialLanes
        return kind(ctx, self.conv, self.phases).calls()

    def __str__(self) -> str:
        size, group = "×".join(str(p.count) for p in self.phases), self.conv.rhs[1]
        several = self.lanes == "features" and group > 1
        kind = f"convolution of groups of {group}" if several else "depthwise convolution"
        out = f"{kind}, {size} positions, lanes over {self.lanes}"
        return out + (f", {self.chunk} rows of taps in a program" if self.chunk else "")


def depthwise_plans(problem: ConvolutionProblem, target: CpuTarget) -> list[InOrder]:
    """The plan of a convolution of single features, or of few; none where products suit it."""
    ctx, conv = problem
    group = conv.rhs[1]
    if (
        conv.batch_groups > 1
        or conv.feature_groups == 1
        or not (group == 1 or _fit(ctx, conv, target))
    ):
        return []
    if conv.spatial == 0 or _is_complex(ctx):
        return []
    every = [tuple(phases) for phases in conv.phases()]
    taps = [math.prod(p.taps for p in phases) for phases in every]
    if taps[0] > 4096 or not all(taps):
        return []
    if conv.lhs_strides[1] == conv.rhs_strides[0] == conv.out_strides[1] == 1:
        return [InOrder([LanePlan(conv, phases, "features") for phases in every])]
    if group == conv.lhs_strides[-1] == conv.out_strides[-1] == 1:
        return [InOrder([LanePlan(conv, phases, "columns") for phases in every])]
    return []


def _fit(ctx: ShapedContext, conv: Convolution, target: CpuTarget) -> bool:
    """Whether several groups fit a vector, of as many input features as output ones."""
    sums = sum_dtype(ctx)
    floats = all(short_dtype(v.aval.dtype) == sums in tile.FLOATS for v in ctx.inputs)
    same = floats and isinstance(conv.rhs[1], int) and conv.out[1] == conv.lhs[1]
    return same and lane_count(target, sums) % (2 * conv.rhs[1]) == 0


def lane_cost(plan: LanePlan, ctx: ShapedContext, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    conv, costs = plan.conv.at_hand(), target.costs
    lanes = lane_count(target, sum_dtype(ctx))
    phases = [p.at_hand() for p in plan.phases]
    counts, taps = [p.count for p in phases], math.prod(p.taps for p in phases)
    if plan.lanes == "features":
        vectors = math.prod(counts) * ceil_div(conv.out[1], lanes)
        each, programs = LANE_TAP * taps * conv.rhs[1] + 3, conv.out[0] * math.prod(counts[:-1])
    else:
        vectors = math.prod(counts[:-1]) * conv.out[1] * ceil_div(counts[-1], lanes)
        stride = phases[-1].shift
        tap = costs.masked_copy if stride == 1 else costs.gather * lanes
        each, programs = tap * taps + 3, conv.out[0] * conv.out[1]
    return nanoseconds(launch(conv.out[0] * vectors * each / programs, programs, target), target)


def depthwise_cost(problem: ConvolutionProblem, plan: InOrder, target: CpuTarget) -> float:
    """Nanoseconds, about, of all phases."""
    phases = (part for part in plan.plans if isinstance(part, LanePlan))
    return sum(lane_cost(part, problem.ctx, target) for part in phases)


def kernel_gradients(problem: ConvolutionProblem, target: CpuTarget) -> list[KernelPlan]:
    """The plan of a depthwise kernel's gradient, block by block; none where it is no such."""
    ctx, conv = problem
    single = conv.batch_groups == conv.lhs[0] == conv.rhs[0] > 1 and conv.feature_groups == 1
    unit = conv.lhs_strides[0] == conv.rhs_strides[0] == conv.out_strides[1] == 1
    if not single or not unit or conv.spatial == 0 or _is_complex(ctx):
        return []
    phases, *more = (tuple(phases) for phases in conv.phases())
    blocks = [] if more else list(position_blocks(phases))
    if not blocks or len(blocks) > MOST_BLOCKS:
        return []
    return [InOrder([KERNEL_GRADIENTS.best(GradientProblem(conv, b), target) for b in blocks])]


def position_blocks(phases: tuple[Phase, ...]) -> Iterator[tuple[Phase, ...]]:
    """The positions in blocks whose sums fit the registers; each reads all taps again.

    Example: 7×7 positions are blocks of 3×7, 2×7 and 2×7.
    """
    room = MOST_SUMS
    ranges: list[list[Phase]] = []
    for phase in reversed(phases):  # whole rows where they fit, then as many of them
        number = ceil_div(phase.count, max(1, room))
        ranges.insert(0, list(phase.blocks(number)))
        room //= ceil_div(phase.count, number)
    return itertools.product(*ranges)


class GradientProblem(NamedTuple):
    """The gradient of a depthwise kernel: the convolution that it is, and its positions."""

    conv: Convolution
    phases: tuple[Phase, ...]


def gradient_plans(problem: GradientProblem, target: CpuTarget) -> list[LanePlan]:
    """Rows of taps, cut for different numbers of programs."""
    rows = size_hint(problem.phases[0].taps)
    wanted = max(1, 4 * target.threads // size_hint(problem.conv.rhs[1]))
    chunks = dict.fromkeys(ceil_div(rows, n) for n in shares(min(rows, wanted)))
    return [LanePlan(*problem, "groups", chunk) for chunk in chunks]


def gradient_cost(problem: GradientProblem, plan: LanePlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    conv, phases = problem.conv.at_hand(), [p.at_hand() for p in problem.phases]
    rows, others = phases[0].taps, conv.rhs[1]
    vectors = ceil_div(conv.out[1], lane_count(target, "f32"))
    taps = plan.chunk * math.prod(p.taps for p in phases[1:])
    each = vectors * math.prod(p.count for p in phases) * (taps * GRADIENT_TAP + target.costs.copy)
    programs = ceil_div(rows, plan.chunk) * others
    return nanoseconds(launch(each, programs, target), target)


def _is_complex(ctx: ShapedContext) -> bool:
    arrays = (*ctx.inputs, ctx.outputs[0])
    return any(short_dtype(x.aval.dtype) in ("c64", "c128") for x in arrays)


KERNEL_GRADIENTS: Family[GradientProblem, CpuTarget, LanePlan] = Family(
    "gradient of a depthwise kernel on a CPU",
    Solver("depthwise gradient", gradient_plans, gradient_cost),
)
DEPTHWISE = Solver("depthwise", depthwise_plans, depthwise_cost)
DEPTHWISE_GRADIENT = Solver("depthwise gradient", kernel_gradients, composite=True)
