"""Convolutions on GPUs in which each group has one input feature.

Nothing is shared between features, so there is no matrix product in them: a program computes a tile
of the result, its columns along what lies side by side in the result (features or the innermost
spatial axis), and adds one tap after the other to it. Taps along axes of the tile are masked where
they leave the input; along other axes only those inside are visited.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amdjax.codegen import tile
from amdjax.codegen.tile import itemsize
from amdjax.jit.element import short_dtype
from amdjax.jit.gpu.tiles import TileAxis, tile_lanes
from amdjax.jit.index import LoopVar
from amdjax.jit.shaped import Call, ShapedContext
from amdjax.kernels.blocked import multiply_add
from amdjax.kernels.contraction import Axis, Sink, accumulate_dtype
from amdjax.kernels.gpu.contraction import TileWriter
from amdjax.kernels.program import Program

if TYPE_CHECKING:
    from amdjax.kernels.convolution import Convolution, Phase

Value = tile.Value

ELEMENTS = 8  # of the result in a thread
UNROLLED = 9  # taps along an axis of the tile whose code is written one after the other


@dataclass(frozen=True)
class _Loop:
    """A loop over the result.

    Args:
      extent: number of steps.
      x, w, out: elements from one step to the next in input, kernel and result.
      axis: the spatial axis it walks; -1 for images, groups and features.
    """

    extent: int
    x: int
    w: int
    out: int
    axis: int = -1


def direct_convolution(ctx: ShapedContext, conv: Convolution) -> list[Call] | None:
    """The launches, one for each phase of dilation; None where products suit better."""
    dtypes = [short_dtype(x.aval.dtype) for x in (*ctx.inputs, *ctx.outputs)]
    if conv.rhs[1] != 1 or conv.feature_groups < 8 or any(d.startswith("c") for d in dtypes):
        return None
    if math.prod(conv.rhs[2:]) > 256:  # the gradient of a kernel: long sums, few results
        return None
    return [DirectConvolution(ctx, conv, phases).call() for phases in conv.phases()]


class DirectConvolution:
    """One phase of a convolution with one input feature a group."""

    def __init__(self, ctx: ShapedContext, conv: Convolution, phases: Sequence[Phase]):
        self.ctx, self.conv, self.phases = ctx, conv, phases
        self.out_var = ctx.outputs[0]
        dtypes = [v.aval.dtype for v in ctx.inputs]
        self.accumulate = accumulate_dtype(self.out_var.aval.dtype, *dtypes)
        self.slow, self.fast, self.outer = self._loops()

    def _loops(self) -> tuple[_Loop, _Loop, list[_Loop]]:
        """The loops along rows and columns of the tile, and those around."""
        conv = self.conv
        each = conv.rhs[0] // conv.feature_groups
        (x0, x1, *xs), (w0, _, *_), (o0, o1, *os) = (
            conv.lhs_strides, conv.rhs_strides, conv.out_strides,
        )  # fmt: skip
        loops = [
            _Loop(conv.out[0], x0, 0, o0),
            _Loop(conv.feature_groups, x1, each * w0, each * o1),
            _Loop(each, 0, w0, o1),
        ]
        for d, phase in enumerate(self.phases):
            loops.append(_Loop(phase.count, xs[d] * phase.move, 0, os[d] * phase.step, d))
        long = [loop for loop in loops if loop.extent >= 8] or loops
        fast = min(long, key=lambda loop: loop.out)
        rest = [loop for loop in loops if loop is not fast]
        # Neighbouring positions share taps, which the cache holds.
        slow = min(rest, key=lambda loop: (loop.axis < 0, loop.extent < 4, loop.out))
        return slow, fast, [loop for loop in rest if loop is not slow and loop.extent > 1]

    def call(self) -> Call:
        """The launch."""
        conv = self.conv
        self.program = program = Program(self.ctx, "depthwise")
        self.k = k = program.k
        x, w = self.ctx.inputs
        x_dtype, w_dtype = (short_dtype(v.aval.dtype) for v in (x, w))
        self.x, self.w = program.buffer(x, x_dtype), program.buffer(w, w_dtype)
        k.workgroup = self.ctx.gpu.usual_workgroup
        out_dtype = short_dtype(self.out_var.aval.dtype)
        narrow = min(itemsize(x_dtype), itemsize(out_dtype))
        k.vector = self._vector(16 // narrow)
        axes = self._axes(k.workgroup * max(ELEMENTS, k.vector))
        number = k.program_id()
        self.bases: list[Value] = []
        for axis in reversed(axes):
            count = k.const("index", axis.blocks)
            self.bases.insert(0, k.op("rem", number, count) * axis.count)
            number = k.op("div", number, count)
        digits = program.split(number, "outer", [Axis(loop.extent, 0) for loop in self.outer])
        self.places = {loop.axis: d for loop, d in zip(self.outer, digits) if loop.axis >= 0}
        self.shape = (axes[0].count, axes[1].count)
        self.edges = [
            k.broadcast(lanes.mask, self.shape)
            for lanes in tile_lanes(k, axes, self.bases)
            if lanes.mask is not None
        ]
        zero = k.const(self.accumulate, 0, self.shape)
        sums = self._over_taps(0, *self._origins(digits), [], zero)
        sink = Sink(
            self.out_var, out_dtype, self._start(conv.out_strides, "first"),
            tuple(Axis(loop.extent, loop.out) for loop in self.outer),
            (Axis(self.slow.extent, self.slow.out),), (Axis(self.fast.extent, self.fast.out),),
        )  # fmt: skip
        extents = (self.slow.extent, self.fast.extent)
        TileWriter(program, sink, digits).store([sums], self.bases, extents)
        grid = math.prod(loop.extent for loop in self.outer) * axes[0].blocks * axes[1].blocks
        taps = math.prod(phase.taps for phase in self.phases)
        return program.launch(grid, 2.0 * math.prod(self.shape) * (taps + 1))

    def _vector(self, most: int) -> int:
        vector = min(most, 8)
        while vector > 1 and (self.fast.x != 1 or self.fast.extent % vector):
            vector //= 2
        return vector

    def _axes(self, elements: int) -> list[TileAxis]:
        def power(n: int) -> int:
            return 1 << max(n - 1, 0).bit_length()

        wide = min(power(self.fast.extent), elements // min(power(self.slow.extent), 8))
        high = min(power(self.slow.extent), elements // wide)
        return [
            TileAxis(LoopVar("r", self.slow.extent), high),
            TileAxis(LoopVar("c", self.fast.extent), wide),
        ]

    def _start(self, strides: Sequence[int], name: str) -> int:
        """Offset of the phase's first tap or position in an array with these strides."""
        return sum(getattr(p, name) * s for p, s in zip(self.phases, strides[2:], strict=True))

    def _origins(self, digits: Sequence[Value]) -> tuple[Value, Value]:
        """Offsets of the tile's first element in input and kernel, at the first tap."""
        k = self.k
        x = k.const("index", self._start(self.conv.lhs_strides, "start"))
        w = k.const("index", self._start(self.conv.rhs_strides, "tap"))
        for loop, place in zip((*self.outer, self.slow, self.fast), (*digits, *self.bases)):
            x = x + place * loop.x if loop.x else x
            w = w + place * loop.w if loop.w else w
        return x, w

    # Taps

    def _over_taps(self, d: int, x: Value, w: Value, masks: list[Value], sums: Value) -> Value:
        """Add all taps of spatial axes from `d` on; `x`, `w` are offsets at their first ones."""
        if d == len(self.phases):
            return self._add(x, w, masks, sums)
        k, phase = self.k, self.phases[d]
        x_step = self.conv.lhs_strides[2 + d] * phase.tap_move
        w_step = self.conv.rhs_strides[2 + d] * phase.tap_step
        across = next((i for i, loop in enumerate((self.slow, self.fast)) if loop.axis == d), None)

        def tap(t: Value, sums: Value) -> Value:
            more = [] if across is None else self._inside(d, across, t)
            return self._over_taps(d + 1, x + t * x_step, w + t * w_step, masks + more, sums)

        if across is not None and phase.taps <= UNROLLED:
            for t in range(phase.taps):
                sums = tap(k.const("index", t), sums)
            return sums
        low, high = k.const("index", 0), k.const("index", phase.taps)
        if across is None and phase.leaves(self.conv.lhs[2 + d]):
            low, high = self._bounds(d)
        (sums,) = k.for_(low, high, 1, tap, [sums])
        return sums

    def _bounds(self, d: int) -> tuple[Value, Value]:
        """The taps along an axis around the tile that see the input."""
        k, phase, extent = self.k, self.phases[d], self.conv.lhs[2 + d]
        place = self.places.get(d, k.const("index", 0))
        at = place * phase.move + phase.start
        step, zero = phase.tap_move, k.const("index", 0)
        low = k.op("div", k.op("max", -at, zero) + (step - 1), k.const("index", step))
        reach = k.op("max", -at + (extent - 1 + step), zero)
        high = k.op("div", reach, k.const("index", step))
        return low, k.op("min", high, k.const("index", phase.taps))

    def _inside(self, d: int, across: int, t: Value) -> list[Value]:
        """Which elements of the tile see the input at a tap of an axis of the tile."""
        k, phase, extent = self.k, self.phases[d], self.conv.lhs[2 + d]
        if not phase.leaves(extent):
            return []
        count = self.shape[across]
        first = self.bases[across] * phase.move + phase.start + t * phase.tap_move
        steps = k.op("mul", k.iota(count, "i32"), k.const("i32", phase.move))
        place = k.op("add", steps, k.convert(first, "i32"))
        # Negative numbers are large unsigned ones: one comparison for both ends.
        inside = k.op("lt", k.convert(place, "u32"), k.const("u32", extent))
        return [k.broadcast(k.expand(inside, 1 - across), self.shape)]

    def _add(self, x: Value, w: Value, masks: list[Value], sums: Value) -> Value:
        k = self.k
        mask = None
        for m in (*self.edges, *masks):
            mask = m if mask is None else k.op("and", mask, m)
        seen = k.load(self.x, x, self.shape, (self.slow.x, self.fast.x), mask)
        own = self.edges[-1] if self.edges else None
        for m in self.edges[:-1]:
            own = k.op("and", own, m) if own is not None else m
        weight = k.load(self.w, w, self.shape, (self.slow.w, self.fast.w), own)
        seen, weight = (k.convert(v, self.accumulate) for v in (seen, weight))
        return multiply_add(k, seen, weight, sums)
