"""The gradient of a depthwise kernel: few positions, which stay in registers, and many taps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import is_multiple
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import Axis
from amdjax.kernels.products.convolution import phase_offset
from amdjax.kernels.products.cpu.lane_convolution import LaneConvolution
from amdjax.kernels.products.cpu.micro_kernel import multiply_add
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, Temp

Value = tile.Value


@dataclass
class KernelGradient(LaneConvolution):
    """Few positions, many taps, groups side by side: sums of all positions stay in registers.

    The taps (with the input features, which are the images of the forward convolution) are cut
    into splits; a second launch adds their sums.

    Args:
      chunk: rows of taps of a split.
    """

    chunk: int

    def calls(self) -> list[Call]:
        conv = self.conv
        self.groups = conv.out[1]
        self.positions = [p.count for p in self.phases]
        self.count = math.prod(self.positions)
        images, rows = conv.rhs[1], self.phases[0].taps
        splits = images * ceil_div(rows, self.chunk)
        partial = Temp(self.accumulate, splits * self.count * self.groups)
        return [self._sum_taps(partial, splits), self._combine(partial, splits)]

    def _sum_taps(self, partial: Temp, splits: int) -> Call:
        self.begin("kernel_gradient")
        conv, k = self.conv, self.k
        out = self.program.buffer(partial, self.accumulate, "out")
        pid = k.program_id()
        chunks = ceil_div(self.phases[0].taps, self.chunk)
        image, chunk = (pid // chunks, pid % chunks)
        start = chunk * self.chunk
        stop = k.min(start + self.chunk, self.phases[0].taps)
        x_at = image * conv.lhs_strides[1] + phase_offset(self.phases, conv.lhs_strides, "start")
        w_at = image * conv.rhs_strides[1] + conv.kernel_start(self.phases)

        def block(c: Value) -> None:
            mask = None
            if not is_multiple(self.groups, self.lanes):
                mask = k.iota(self.lanes, "i32") < k.convert(
                    k.const("index", self.groups) - c, "i32"
                )
            zero = k.const(self.accumulate, 0, (self.lanes,))
            accumulators = self._nest(
                0, (start, stop), x_at + c, w_at + c, [zero] * self.count, [[]], mask
            )
            for i, x in enumerate(accumulators):
                k.store(out, (pid * self.count + i) * self.groups + c, x, (1,), mask)

        k.for_(0, self.groups, self.lanes, block)
        return self.program.launch(splits, self.nanoseconds())

    def _nest(
        self,
        d: int,
        span: tuple[Value | int, Value | int],
        x_at: Value,
        w_at: Value,
        accumulators: list[Value],
        guards: list[list[Value]],
        mask: Value | None,
    ) -> list[Value]:
        """Loop over the taps of axis `d` and those inside it; `guards` are per position so far."""
        k, p, extent = self.k, self.phases[d], self.conv.lhs[2 + d]
        x_stride, w_stride = (
            self.conv.lhs_strides[2 + d] * p.tap_shift,
            self.conv.rhs_strides[2 + d] * p.tap_step,
        )
        last = d == len(self.phases) - 1

        def traversed(
            low: Value | int, high: Value | int, guarded: bool, accumulators: list[Value]
        ) -> list[Value]:
            def tap(t: Value, *accumulators: Value) -> list[Value]:
                inner = []
                for before in guards:
                    for q in range(p.count):
                        more = []
                        if guarded:
                            place = k.convert(t * p.tap_shift + (p.start + q * p.shift), "u64")
                            more = [place < k.const("u64", extent)]
                        inner.append([*before, *more])
                here = x_at + t * x_stride, w_at + t * w_stride
                if last:
                    return self._tap(*here, list(accumulators), inner, mask)
                return self._nest(
                    d + 1, (0, self.phases[d + 1].taps), *here, list(accumulators), inner, mask
                )

            return list(k.for_(low, high, 1, tap, accumulators))

        if not p.window(extent).leaves:
            return traversed(*span, False, accumulators)
        if not last:
            return traversed(*span, True, accumulators)
        # Taps that all positions have inside the input need no guards.
        whole = ceil_div(max(0, -p.start), p.tap_shift)
        stop = (extent - 1 - p.start - (p.count - 1) * p.shift) // p.tap_shift + 1
        stop = min(max(stop, whole), p.taps)
        whole = min(whole, stop)
        for low, high, guarded in ((0, whole, True), (whole, stop, False), (stop, p.taps, True)):
            if low < high:
                accumulators = traversed(*self._within(span, low, high), guarded, accumulators)
        return accumulators

    def _within(
        self, span: tuple[Value | int, Value | int], low: int, high: int
    ) -> tuple[Value | int, Value | int]:
        """The part of a span of taps that lies between two taps; none if its end is before it."""
        k, (start, stop) = self.k, span
        if isinstance(start, int) and isinstance(stop, int):
            return max(start, low), min(stop, high)
        return (k.max(k.index(start), low), k.min(k.index(stop), high))

    def _tap(
        self,
        x_at: Value,
        w_at: Value,
        accumulators: list[Value],
        guards: list[list[Value]],
        mask: Value | None,
    ) -> list[Value]:
        k, shape = self.k, (self.lanes,)
        w = self.load(self.w, w_at, shape, 1, mask)
        out = []
        for i, total in enumerate(accumulators):
            where = mask
            for guard in guards[i]:
                guard = k.broadcast(guard, shape)
                where = guard if where is None else where & guard
            step, rest = 0, i
            for d in range(len(self.phases) - 1, -1, -1):
                step += (
                    rest % self.positions[d] * self.phases[d].shift * self.conv.lhs_strides[2 + d]
                )
                rest //= self.positions[d]
            out.append(multiply_add(k, self.load(self.x, x_at + step, shape, 1, where), w, total))
        return out

    def _combine(self, partial: Temp, splits: int) -> Call:
        self.program = Program(self.ctx, "combine")
        k = self.k = self.program.k
        conv = self.conv
        source = self.program.buffer(partial, self.accumulate)
        rows = [Axis(p.count, conv.out_strides[2 + d] * p.step) for d, p in enumerate(self.phases)]
        writer = self.writer([], rows, Axis(self.groups, 1))
        row = k.program_id()

        def block(c: Value) -> None:
            mask = k.iota(self.lanes, "i32") < k.convert(k.const("index", self.groups) - c, "i32")

            def split(i: Value, total: Value) -> Value:
                at = (i * self.count + row) * self.groups + c
                return total + k.load(source, at, (self.lanes,), (1,), mask)

            (total,) = k.for_(0, splits, 1, split, [k.const(self.accumulate, 0, (self.lanes,))])
            writer.store(row, c, total, mask)

        k.for_(0, self.groups, self.lanes, block)
        return self.program.launch(self.count, 0.1 * splits * self.count * self.groups)
