"""`conv_general_dilated` stated as contractions.

Rows are positions of the result, columns its features, and what is summed over are the taps of the
kernel with the input features. The input is read through its padding and strides while it is
packed, so no patches are ever written to memory. A dilated input is cut by phase: all positions of
the result with the same remainder see the same taps, and no zero between input elements is touched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from amdjax.core.integers import ceil_div
from amdjax.kernels.loops import row_major
from amdjax.kernels.products.contraction import (
    Axis,
    Contraction,
    Limit,
    Sink,
    Source,
    accumulate_dtype,
)
from amdjax.kernels.shaped import ShapedContext, Temp
from amdjax.schedule.element import part_dtype, short_dtype


@dataclass(frozen=True)
class Phase:
    """Positions of the result along one spatial axis that see the same taps.

    Args:
      first, step, count: the positions.
      tap, tap_step, taps: the taps of the kernel they see.
      start: input coordinate of the first position's first tap.
      shift: by how much the next position moves it.
      tap_shift: by how much the next tap moves it.
    """

    first: int
    step: int
    count: int
    tap: int
    tap_step: int
    taps: int
    start: int
    shift: int
    tap_shift: int

    def leaves(self, extent: int) -> bool:
        """Whether some tap of some position lies outside `range(extent)`."""
        if not self.taps:
            return False
        last = self.start + (self.count - 1) * self.shift + (self.taps - 1) * self.tap_shift
        return self.start < 0 or last >= extent


def phases_of_axis(
    extent: int, window: int, stride: int, padding: int, dilation: int, window_dilation: int
) -> list[Phase]:
    """The phases of one axis.

    Args:
      extent: of the result.
      window: taps of the kernel.
      stride: of the window.
      padding: in front, in steps of the dilated input.
      dilation: of the input.
      window_dilation: of the kernel.
    """
    step = dilation // math.gcd(stride, dilation)
    tap_step = dilation // math.gcd(window_dilation, dilation)
    phases = []
    for first in range(min(step, extent)):
        at = first * stride - padding
        fitting = [
            t for t in range(min(tap_step, window)) if (at + t * window_dilation) % dilation == 0
        ]
        tap = fitting[0] if fitting else 0
        taps = ceil_div(window - tap, tap_step) if fitting else 0
        start = (at + tap * window_dilation) // dilation
        count = ceil_div(extent - first, step)
        phases.append(
            Phase(
                first, step, count, tap, tap_step, taps, start,
                step * stride // dilation, tap_step * window_dilation // dilation,
            )
        )  # fmt: skip
    return phases


@dataclass(frozen=True)
class Convolution:
    """A convolution's sizes and layout, axes in the order batch, feature, spatial.

    Args:
      lhs, rhs, out: shapes; the kernel's axes are output feature, input feature, spatial.
      lhs_strides, rhs_strides, out_strides: of the axes in that order.
    """

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    out: tuple[int, ...]
    lhs_strides: tuple[int, ...]
    rhs_strides: tuple[int, ...]
    out_strides: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]
    feature_groups: int
    batch_groups: int

    @staticmethod
    def of(ctx: ShapedContext) -> Convolution:
        p = ctx.params
        lhs_spec, rhs_spec, out_spec = p["dimension_numbers"]
        arrays = (*ctx.inputs, ctx.outputs[0])
        specs = (lhs_spec, rhs_spec, out_spec)
        lhs, rhs, out = (tuple(x.aval.shape[d] for d in spec) for x, spec in zip(arrays, specs))
        lhs_strides, rhs_strides, out_strides = (
            tuple(row_major(x.aval.shape)[d] for d in spec) for x, spec in zip(arrays, specs)
        )
        ones = (1,) * (len(lhs_spec) - 2)
        return Convolution(
            lhs, rhs, out, lhs_strides, rhs_strides, out_strides,
            tuple(p["window_strides"]), tuple(lo for lo, _ in p["padding"]),
            tuple(p["lhs_dilation"] or ones), tuple(p["rhs_dilation"] or ones),
            p["feature_group_count"], p["batch_group_count"],
        )  # fmt: skip

    @property
    def spatial(self) -> int:
        return len(self.strides)

    def phases(self) -> Iterator[tuple[Phase, ...]]:
        """Of all axes, in every combination."""
        return itertools.product(*self._axis_phases())

    def _axis_phases(self) -> list[list[Phase]]:
        return [
            phases_of_axis(
                self.out[2 + d], self.rhs[2 + d], self.strides[d], self.padding[d],
                self.dilation[d], self.window_dilation[d],
            )
            for d in range(self.spatial)
        ]  # fmt: skip

    def contractions(self, ctx: ShapedContext, owners: Sequence[Any] = ()) -> Iterator[Contraction]:
        """As few as there can be: phases of an axis that differ by a constant step are one loop."""
        choices: list[list[tuple[Phase, list[Phase]]]] = [
            [(first, more)] if _in_step([first, *more]) else [(p, []) for p in (first, *more)]
            for first, *more in self._axis_phases()
        ]
        for axes in itertools.product(*choices):
            yield self.contraction(ctx, [p for p, _ in axes], owners, [more for _, more in axes])

    def contraction(
        self,
        ctx: ShapedContext,
        phases: Sequence[Phase],
        owners: Sequence[Any] = (),
        more: Sequence[Sequence[Phase]] = (),
    ) -> Contraction:
        """The part of the convolution that computes one phase.

        `owners` of input, kernel and result may be workspace in their stead. `more` are phases of
        each axis that are computed too, each a constant step behind the last.
        """
        groups = self.feature_groups * self.batch_groups
        features = self.rhs[0] // groups
        images = self.lhs[0] // self.batch_groups
        every = [(phase, *rest) for phase, rest in zip(phases, more or [()] * self.spatial)]
        limited = [
            d for d in range(self.spatial) if any(p.leaves(self.lhs[2 + d]) for p in every[d])
        ]
        limits = tuple(Limit(phases[d].start, self.lhs[2 + d]) for d in limited)

        def axis(extent: int, stride: int, along: int = -1, shift: int = 0) -> Axis:
            return Axis(extent, stride, tuple(shift if d == along else 0 for d in limited))

        rows = [(axis(images, self.lhs_strides[0]), Axis(images, self.out_strides[0]))]
        taps = []
        for d, phase in enumerate(phases):
            lhs, rhs, out = (
                s[2 + d] for s in (self.lhs_strides, self.rhs_strides, self.out_strides)
            )
            rows.append(
                (
                    axis(phase.count, lhs * phase.shift, d, phase.shift),
                    Axis(phase.count, out * phase.step),
                )
            )
            taps.append(
                (
                    axis(phase.taps, lhs * phase.tap_shift, d, phase.tap_shift),
                    Axis(phase.taps, rhs * phase.tap_step),
                )
            )
        channels = (axis(self.rhs[1], self.lhs_strides[1]), Axis(self.rhs[1], self.rhs_strides[1]))
        depth = self._depth_order(taps, channels)
        split = (
            images * self.lhs_strides[0]
            if self.batch_groups > 1
            else self.rhs[1] * self.lhs_strides[1]
        )
        group = (
            axis(groups, split),
            Axis(groups, features * self.rhs_strides[0]),
            Axis(groups, features * self.out_strides[1]),
        )
        batch = [group]
        for d, (first, *rest) in enumerate(every):
            if rest:
                start, tap, place = (
                    getattr(rest[0], name) - getattr(first, name)
                    for name in ("start", "tap", "first")
                )
                n = 1 + len(rest)
                batch.append(
                    (
                        axis(n, self.lhs_strides[2 + d] * start, d, start),
                        Axis(n, self.rhs_strides[2 + d] * tap),
                        Axis(n, self.out_strides[2 + d] * place),
                    )
                )
        columns = Axis(features, self.rhs_strides[0]), Axis(features, self.out_strides[1])
        transposed = self._is_transposed()
        if transposed and images > 1:
            batch.append((rows[0][0], Axis(images, 0), rows[0][1]))
            rows = rows[1:]
        rows.sort(key=lambda r: -r[1].stride)
        read, weights, written = owners or (*ctx.inputs, *ctx.outputs)
        offsets = [
            sum(getattr(f, name) * s[2 + d] for d, f in enumerate(phases))
            for name, s in (
                ("start", self.lhs_strides),
                ("tap", self.rhs_strides),
                ("first", self.out_strides),
            )
        ]
        a_dtype, b_dtype, out_dtype = (_dtype(owner) for owner in (read, weights, written))
        a = Source(
            read,
            part_dtype(a_dtype),
            offsets[0],
            tuple(g[0] for g in batch),
            tuple(r[0] for r in rows),
            tuple(x[0] for x in depth),
            limits,
        )
        b = Source(
            weights,
            part_dtype(b_dtype),
            offsets[1],
            tuple(g[1] for g in batch),
            (columns[0],),
            tuple(x[1] for x in depth),
        )
        sink = Sink(
            written, part_dtype(out_dtype), offsets[2], tuple(g[2] for g in batch),
            tuple(r[1] for r in rows), (columns[1],),
        )  # fmt: skip
        accumulate = accumulate_dtype(*(v.aval.dtype for v in (*ctx.outputs, *ctx.inputs)))
        problem = Contraction(a, b, sink, accumulate, out_dtype in ("c64", "c128"))
        problem = _without_depth(problem) if not problem.depth else problem
        return problem.swapped() if transposed else problem

    def _is_transposed(self) -> bool:
        """Whether positions, not features, lie side by side in the result."""
        return (
            self.out_strides[1] != 1
            and 1 in self.out_strides[2:]
            and self.out[2 + self.out_strides[2:].index(1)] > 1
        )

    def _depth_order(
        self, taps: list[tuple[Axis, Axis]], channels: tuple[Axis, Axis]
    ) -> list[tuple[Axis, Axis]]:
        """Loops in the order in which they lie in the operand that is read along them."""
        along = 1 if self._is_transposed() else 0
        return sorted([*taps, channels], key=lambda pair: -pair[along].stride)


def _in_step(phases: Sequence[Phase]) -> bool:
    """Whether phases are alike but for where they are, which moves by a constant step."""
    places = [(p.start, p.tap, p.first) for p in phases]
    alike = {replace(p, start=0, tap=0, first=0) for p in phases}
    steps = {
        tuple(b - a for a, b in zip(here, there, strict=True))
        for here, there in itertools.pairwise(places)
    }
    return len(alike) == 1 and len(steps) <= 1


def _dtype(owner: Any) -> str:
    """The short dtype of a variable, a literal or workspace."""
    return owner.dtype if isinstance(owner, Temp) else short_dtype(owner.aval.dtype)


def _without_depth(problem: Contraction) -> Contraction:
    """A sum of nothing, in one loop."""
    still = (0,) * len(problem.a.limits)
    a = replace(problem.a, depth=(Axis(0, 1, still),))
    return replace(problem, a=a, b=replace(problem.b, depth=(Axis(0, 1),)))
