"""Convolutions each lane of which sums its own taps: loads, stores, the loop over taps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amdjax import tile
from amdjax.kernels.products.contraction import (
    Axis,
    Contraction,
    Sink,
    Source,
    lane_count,
)
from amdjax.kernels.products.convolution import phase_offset
from amdjax.kernels.products.formats import sum_dtype
from amdjax.kernels.products.program import Program
from amdjax.kernels.products.writing import Writer
from amdjax.kernels.shaped import ShapedContext
from amdjax.schedule.values import short_dtype

if TYPE_CHECKING:
    from amdjax.kernels.products.convolution import Convolution, Phase

Value = tile.Value

UNROLLED_TAPS = 16


@dataclass
class LaneConvolution:
    """What kernels share each lane of which sums its own taps.

    Args:
      conv: sizes and layout; one input feature a group, or few.
      phases: the positions to compute.
    """

    ctx: ShapedContext
    conv: Convolution
    phases: Sequence[Phase]

    def __post_init__(self) -> None:
        self.out_var = self.ctx.outputs[0]
        self.accumulate = sum_dtype(self.ctx)
        self.lanes = lane_count(self.ctx.target, self.accumulate)

    def begin(self, name: str) -> None:
        self.program = Program(self.ctx, name)
        self.k = self.program.k
        lhs, rhs = self.ctx.inputs
        self.x = self.program.buffer(lhs, short_dtype(lhs.aval.dtype))
        self.w = self.program.buffer(rhs, short_dtype(rhs.aval.dtype))

    def load(
        self,
        buffer: tile.Buffer,
        at: Value,
        shape: tuple[int, ...],
        stride: int,
        mask: Value | None,
    ) -> Value:
        """Elements in the dtype of the sums."""
        if mask is not None and not mask.shape:
            mask = self.k.broadcast(mask, shape)
        x = self.k.load(buffer, at, shape, (stride,), mask)
        return self.k.convert(x, self.accumulate)

    def writer(
        self, batch: Sequence[tuple[Axis, Value]], rows: Sequence[Axis], columns: Axis
    ) -> Writer:
        sink = Sink(
            self.out_var, short_dtype(self.out_var.aval.dtype),
            phase_offset(self.phases, self.conv.out_strides, "first"),
            tuple(axis for axis, _ in batch), tuple(rows), (columns,),
        )  # fmt: skip
        nothing = Source(None, "", 0, (), (), ())
        problem = Contraction(nothing, nothing, sink, self.accumulate)
        return Writer(self.program, problem, [digit for _, digit in batch])

    def over_outer_taps(
        self,
        positions: Sequence[Value],
        accumulators: list[Value],
        body: Callable[[Value, Value, list[Value]], list[Value]],
    ) -> list[Value]:
        """Loop over the taps of all spatial axes but the last that lie inside the input.

        `body(input offset, kernel offset, sums)` returns the next sums.
        """
        k, conv = self.k, self.conv

        def nest(d: int, x_at: Value, w_at: Value, accumulators: list[Value]) -> list[Value]:
            if d == len(positions):
                return body(x_at, w_at, accumulators)
            phase, x_stride, w_stride = (
                self.phases[d],
                conv.lhs_strides[2 + d],
                conv.rhs_strides[2 + d],
            )
            x_here = x_at + positions[d] * (phase.shift * x_stride)
            low, high = phase.window(conv.lhs[2 + d]).taps_inside(k, positions[d])

            def tap(t: Value, *accumulators: Value) -> list[Value]:
                inner = x_here + t * (phase.tap_shift * x_stride)
                return nest(
                    d + 1, inner, w_at + t * (phase.tap_step * w_stride), list(accumulators)
                )

            return list(k.for_(low, high, 1, tap, accumulators))

        return nest(
            0,
            k.const("index", phase_offset(self.phases, self.conv.lhs_strides, "start")),
            k.const("index", self.conv.kernel_start(self.phases)),
            accumulators,
        )

    def offset_of_last_taps(self, positions: Sequence[Value]) -> Value:
        """Where the last taps of all spatial axes begin in the input, the innermost left out."""
        at = self.k.const("index", phase_offset(self.phases, self.conv.lhs_strides, "start"))
        for phase, stride, i in zip(self.phases, self.conv.lhs_strides[2:], positions):
            last = (phase.taps - 1) * phase.tap_shift
            at = at + (i * phase.shift + last) * stride
        return at

    def nanoseconds(self) -> float:
        conv = self.conv
        taps = math.prod(p.taps for p in self.phases) * conv.rhs[1]
        count = conv.lhs[0] * conv.out[1] * math.prod(p.count for p in self.phases)
        return count * (taps * 0.6 / self.lanes + 0.3)
