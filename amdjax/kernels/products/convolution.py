"""`conv_general_dilated` stated as contractions.

Rows are positions of the result, columns its features, and what is summed over are the taps of the
kernel with the input features. The input is read through its padding and strides while it is
packed, so no patches are ever written to memory. A dilated input is cut by phase: all positions of
the result with the same remainder see the same taps, and no zero between input elements is touched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from amdjax.core.dims import Dim, size_hint
from amdjax.core.integers import ceil_div
from amdjax.core.jaxpr import Var
from amdjax.kernels.loops import row_major
from amdjax.kernels.products.contraction import (
    Axis,
    Contraction,
    Limit,
    Sink,
    Source,
    WindowAxis,
)
from amdjax.kernels.products.formats import operand_formats, sum_dtype
from amdjax.kernels.shaped import ShapedContext, Temp
from amdjax.schedule.values import part_dtype, short_dtype


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

    def at_hand(self) -> Phase:
        """The same for the sizes at hand."""
        return Phase(*(size_hint(getattr(self, f.name)) for f in fields(self)))

    def window(self, extent: int, stride: int = 1) -> WindowAxis:
        """As an axis of an input with this extent and stride."""
        return WindowAxis(
            extent, stride, self.start, self.count, self.shift, self.taps, self.tap_shift
        )

    def blocks(self, number: int) -> Iterator[Phase]:
        """The positions in so many runs of about equal length."""
        done = 0
        for left in range(number, 0, -1):
            count = ceil_div(self.count - done, left)
            yield replace(
                self, first=self.first + done * self.step, count=count,
                start=self.start + done * self.shift,
            )  # fmt: skip
            done += count


def phase_offset(phases: Sequence[Phase], strides: Sequence[int], field: str) -> int:
    """Offset of the phases' first tap or position in a convolution's array with these strides."""
    return sum(getattr(p, field) * s for p, s in zip(phases, strides[2:], strict=True))


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
      lhs_strides, rhs_strides, out_strides: of the axes in that order; those of the kernel are
        negative where its taps are reversed.
      rhs_offset: where the first tap lies in the kernel.
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
    rhs_offset: int = 0

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
        last = 0
        for axis, turned in enumerate(p.get("window_reversal", ()), 2):
            if turned:
                last += (rhs[axis] - 1) * rhs_strides[axis]
                rhs_strides = (*rhs_strides[:axis], -rhs_strides[axis], *rhs_strides[axis + 1 :])
        return Convolution(
            lhs, rhs, out, lhs_strides, rhs_strides, out_strides,
            tuple(p["window_strides"]), tuple(lo for lo, _ in p["padding"]),
            tuple(p["lhs_dilation"] or ones), tuple(p["rhs_dilation"] or ones),
            p["feature_group_count"], p["batch_group_count"], last,
        )  # fmt: skip

    def at_hand(self) -> Convolution:
        """The same for the sizes at hand: for estimates."""

        def hint(x: Any) -> Any:
            return tuple(map(size_hint, x)) if isinstance(x, tuple) else size_hint(x)

        return Convolution(*(hint(getattr(self, f.name)) for f in fields(self)))

    @property
    def spatial(self) -> int:
        return len(self.strides)

    def kernel_start(self, phases: Sequence[Phase]) -> int:
        """Where the phases' first taps lie in the kernel."""
        return self.rhs_offset + phase_offset(phases, self.rhs_strides, "tap")

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
        every = [(phase, *rest) for phase, rest in zip(phases, more or [()] * self.spatial)]
        extents = self.lhs[2:]
        limited = [d for d, n in enumerate(extents) if any(p.window(n).leaves for p in every[d])]
        loops = _Loops(self, phases, limited)
        batch = [loops.groups(), *loops.later_phases(every)]
        rows, columns = loops.rows(), loops.columns()
        transposed = self.is_transposed
        if transposed and rows[0].read.extent > 1:
            images = rows.pop(0)
            batch.append(images._replace(weights=Axis(images.read.extent, 0)))
        rows.sort(key=lambda loop: -loop.written.stride)
        # In the order in which they lie in the operand that is read along them; of equal strides,
        # as sorting is stable, in that of the axes: `windows` and `gradient_windows` go by it.
        depth = sorted(loops.depth(), key=lambda loop: -abs(loop[1 if transposed else 0].stride))
        limits = tuple(Limit(phases[d].start, extents[d]) for d in limited)
        read, weights, written = owners or (*ctx.inputs, *ctx.outputs)
        out_dtype = _dtype(written)
        a = Source(
            read, part_dtype(_dtype(read)), phase_offset(loops.phases, self.lhs_strides, "start"),
            _axes(batch, 0), _axes(rows, 0), _axes(depth, 0), limits, fixed=read in ctx.fixed,
        )  # fmt: skip
        b = Source(
            weights, part_dtype(_dtype(weights)),
            self.kernel_start(loops.phases),
            _axes(batch, 1), (columns.weights,), _axes(depth, 1), fixed=weights in ctx.fixed,
        )  # fmt: skip
        sink = Sink(
            written, part_dtype(out_dtype), phase_offset(loops.phases, self.out_strides, "first"),
            _axes(batch, 2), _axes(rows, 2), (columns.written,),
        )  # fmt: skip
        formats = operand_formats(ctx.params["precision"])
        problem = Contraction(a, b, sink, sum_dtype(ctx), out_dtype in ("c64", "c128"), formats)
        problem = _without_depth(problem) if not problem.depth else problem
        return problem.swapped() if transposed else problem

    def windows(self, phases: Sequence[Phase]) -> tuple[WindowAxis, ...]:
        """What windows of a phase move along, see `ProductProblem`; nothing in other orders."""
        order = sorted(range(self.spatial), key=lambda d: -self.lhs_strides[2 + d])
        taps = [(phases[d].taps, self.lhs_strides[2 + d] * phases[d].tap_shift) for d in order]
        written = [(self.lhs[0], self.out_strides[0])]
        written += [(phases[d].count, self.out_strides[2 + d] * phases[d].step) for d in order]
        if not all(_descending(loops) for loops in (taps, written)) or self.is_transposed:
            return ()
        innermost = (
            self.lhs_strides[1] if self.rhs[1] > 1 or not order else self.lhs_strides[2 + order[-1]]
        )
        if self.batch_groups > 1 or innermost != 1:
            return ()
        if not all(p.taps and p.count for p in phases):
            return ()
        images = WindowAxis(self.lhs[0], self.lhs_strides[0], 0, self.lhs[0], 1, 1, 1)
        axes = (phases[d].window(self.lhs[2 + d], self.lhs_strides[2 + d]) for d in order)
        return (images, *axes)

    def gradient_windows(self, phases: Sequence[Phase]) -> tuple[WindowAxis, ...]:
        """Windows of the convolution whose kernel's gradient a phase is; nothing in other orders.

        Its batch are the features of the input, which lie side by side, its features are images;
        the taps of its kernel are positions, and its positions are taps. Where it has groups, these
        are windows of one group.
        """
        order = sorted(range(self.spatial), key=lambda d: -self.lhs_strides[2 + d])
        read = [(self.rhs[1], self.lhs_strides[1])]
        read += [(phases[d].taps, self.lhs_strides[2 + d] * phases[d].tap_shift) for d in order]
        written = [(phases[d].count, self.out_strides[2 + d] * phases[d].step) for d in order]
        written.append((self.out[0], self.out_strides[0]))
        if not all(_descending(loops) for loops in (read, written)) or self.is_transposed:
            return ()
        if self.lhs_strides[0] != 1:
            return ()
        if not self.out[0] or not self.rhs[1] or not all(p.taps and p.count for p in phases):
            return ()
        images = WindowAxis(self.rhs[1], self.lhs_strides[1], 0, self.rhs[1], 1, 1, 1)
        axes = (phases[d].window(self.lhs[2 + d], self.lhs_strides[2 + d]).turned() for d in order)
        return (images, *axes)

    @property
    def is_transposed(self) -> bool:
        """Whether positions, not features, lie side by side in the result."""
        return (
            self.out_strides[1] != 1
            and 1 in self.out_strides[2:]
            and self.out[2 + self.out_strides[2:].index(1)] > 1
        )


class ConvolutionProblem(NamedTuple):
    """An equation that solvers of a family compute, and the convolution that it is."""

    ctx: ShapedContext
    conv: Convolution

    @staticmethod
    def of(ctx: ShapedContext) -> ConvolutionProblem:
        return ConvolutionProblem(ctx, Convolution.of(ctx))

    @property
    def alike(self) -> tuple[Hashable, Sequence[Var]] | None:
        """What is equal of convolutions with the same plans, and variables; see `Family`."""
        eqn, fixed = self.ctx.eqn, self.ctx.fixed
        variables = [x for x in (*eqn.invars, *eqn.outvars) if type(x) is Var]
        sizes = itertools.chain(*(x.aval.shape for x in variables))
        if len(variables) < 3 or any(isinstance(n, Dim) for n in sizes):
            return None
        told = [(x.aval, variables.index(x), x in fixed) for x in variables]
        return (*told, *sorted(eqn.params.items())), variables


class _Loop(NamedTuple):
    """A loop as it lies in the input, in the kernel, and in the result."""

    read: Axis
    weights: Axis
    written: Axis


NOWHERE = Axis(1, 0)  # of operands that a loop does not move in


def _axes(loops: Sequence[_Loop], operand: int) -> tuple[Axis, ...]:
    return tuple(loop[operand] for loop in loops)


@dataclass(frozen=True)
class _Loops:
    """The loops of one phase.

    Args:
      conv: sizes and layout.
      phases: one of each spatial axis.
      limited: the spatial axes along which taps may lie outside the input.
    """

    conv: Convolution
    phases: Sequence[Phase]
    limited: Sequence[int]

    def _read(self, extent: int, stride: int, along: int = -1, shift: int = 0) -> Axis:
        """A loop of the input, which moves a coordinate along one spatial axis at most."""
        return Axis(extent, stride, tuple(shift if d == along else 0 for d in self.limited))

    def groups(self) -> _Loop:
        conv = self.conv
        count = conv.feature_groups * conv.batch_groups
        images, features = conv.lhs[0] // conv.batch_groups, conv.rhs[0] // count
        by_batch = conv.batch_groups > 1
        stride = images * conv.lhs_strides[0] if by_batch else conv.rhs[1] * conv.lhs_strides[1]
        return _Loop(
            self._read(count, stride),
            Axis(count, features * conv.rhs_strides[0]),
            Axis(count, features * conv.out_strides[1]),
        )

    def later_phases(self, every: Sequence[Sequence[Phase]]) -> Iterator[_Loop]:
        """Along the axes that have several phases, each a constant step behind the last."""
        conv = self.conv
        for d, (first, *rest) in enumerate(every):
            if rest:
                n, second = len(rest) + 1, rest[0]
                start = second.start - first.start
                yield _Loop(
                    self._read(n, conv.lhs_strides[2 + d] * start, d, start),
                    Axis(n, conv.rhs_strides[2 + d] * (second.tap - first.tap)),
                    Axis(n, conv.out_strides[2 + d] * (second.first - first.first)),
                )

    def rows(self) -> list[_Loop]:
        """Over images and positions."""
        conv = self.conv
        images = conv.lhs[0] // conv.batch_groups
        read, written = self._read(images, conv.lhs_strides[0]), Axis(images, conv.out_strides[0])
        loops = [_Loop(read, NOWHERE, written)]
        for d, p in enumerate(self.phases):
            read = self._read(p.count, conv.lhs_strides[2 + d] * p.shift, d, p.shift)
            written = Axis(p.count, conv.out_strides[2 + d] * p.step)
            loops.append(_Loop(read, NOWHERE, written))
        return loops

    def columns(self) -> _Loop:
        """Over the features of a group."""
        conv = self.conv
        n = conv.rhs[0] // (conv.feature_groups * conv.batch_groups)
        return _Loop(NOWHERE, Axis(n, conv.rhs_strides[0]), Axis(n, conv.out_strides[1]))

    def depth(self) -> Iterator[_Loop]:
        """Over taps and input features, as the axes lie in the input, the outermost first."""
        conv = self.conv
        for axis in sorted(range(1, 2 + conv.spatial), key=lambda axis: -conv.lhs_strides[axis]):
            if axis == 1:
                n, stride = conv.rhs[1], conv.lhs_strides[1]
                yield _Loop(self._read(n, stride), Axis(n, conv.rhs_strides[1]), NOWHERE)
                continue
            p = self.phases[axis - 2]
            read = self._read(p.taps, conv.lhs_strides[axis] * p.tap_shift, axis - 2, p.tap_shift)
            yield _Loop(read, Axis(p.taps, conv.rhs_strides[axis] * p.tap_step), NOWHERE)


def _in_step(phases: Sequence[Phase]) -> bool:
    """Whether phases are alike but for where they are, which moves by a constant step."""
    places = [(p.start, p.tap, p.first) for p in phases]
    alike = {replace(p, start=0, tap=0, first=0) for p in phases}
    steps = {
        tuple(b - a for a, b in zip(here, there, strict=True))
        for here, there in itertools.pairwise(places)
    }
    return len(alike) == 1 and len(steps) <= 1


def _descending(loops: Sequence[tuple[int, int]]) -> bool:
    """Whether loops, by extent and stride, go from the outermost to the innermost."""
    strides = [stride for extent, stride in loops if extent != 1]
    return all(outer >= inner for outer, inner in itertools.pairwise(strides))


def _dtype(owner: Any) -> str:
    """The short dtype of a variable, a literal or workspace."""
    return owner.dtype if isinstance(owner, Temp) else short_dtype(owner.aval.dtype)


def _without_depth(problem: Contraction) -> Contraction:
    """A sum of nothing, in one loop."""
    still = (0,) * len(problem.a.limits)
    a = replace(problem.a, depth=(Axis(0, 1, still),))
    return replace(problem, a=a, b=replace(problem.b, depth=(Axis(0, 1),)))
