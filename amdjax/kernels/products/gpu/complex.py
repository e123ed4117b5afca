"""Products of complex numbers on GPUs, as four products of real ones in one program.

Memory holds real and imaginary parts side by side. The real part of the result is the difference of
two products; the imaginary part is one product of twice the depth, which meets the parts of one
operand in the order of memory and those of the other in reverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.integers import round_up
from amdjax.kernels.products.contraction import Axis, Contraction, Source
from amdjax.kernels.products.gpu.contraction import GpuContraction
from amdjax.kernels.products.gpu.tiling import PRODUCTS, Plan, ProductProblem, operand_atoms
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.targets import GpuTarget

Value = tile.Value

REAL_PRODUCTS = 3  # of real numbers that a program computes


@dataclass(frozen=True)
class ComplexPlan:
    """A contraction of complex operands as three real ones.

    Args:
      problem: the contraction; strides count complex numbers.
      both: the product whose result is the imaginary part.
      cut: how that is divided.
    """

    problem: Contraction
    both: Contraction
    cut: Plan

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return ComplexContraction(ctx, self).calls()

    def __str__(self) -> str:
        return f"complex product of {self.problem}, {self.cut}"


def plan_complex_product(target: GpuTarget, problem: Contraction) -> ComplexPlan | None:
    """The plan of a contraction of complex operands, its loops not merged."""
    both = _of_parts(problem, (0, 1), (1, 0))
    choice = operand_atoms(target, problem.a.dtype, problem.b.dtype, problem.accumulate)
    if not choice:
        return None
    tiling = PRODUCTS.best(ProductProblem(both, choice, REAL_PRODUCTS), target).tiling
    cut = Plan(tiling, 1, round_up(max(problem.depth, 1), tiling.depth))
    return ComplexPlan(problem, both, cut)


class ComplexContraction(GpuContraction):
    """A contraction of complex operands as launches."""

    def __init__(self, ctx: ShapedContext, plan: ComplexPlan):
        super().__init__(ctx, plan.problem.merged(), plan.cut)
        self.same = [_of_parts(plan.problem, (part,), (part,)) for part in (0, 1)]
        self.both = plan.both

    def accumulators(
        self, bases: Sequence[Value], batch: Sequence[Value], part: Value | None
    ) -> Iterator[tuple[int, Iterator[list[Value]]]]:
        """Slices of real and imaginary part of the tile that begins at `bases`."""
        products = [
            self.contract(problem, bases, batch, part) for problem in (*self.same, self.both)
        ]
        for (x, real), (_, minus), (_, imaginary) in zip(*products, strict=True):
            yield x, ([r - m, i] for r, m, i in zip(real, minus, imaginary, strict=True))


def _of_parts(problem: Contraction, a: tuple[int, ...], b: tuple[int, ...]) -> Contraction:
    """The product of some parts of `a` with some of `b`, in this order; merged."""
    real = replace(problem, is_complex=False, a=_parts(problem.a, a), b=_parts(problem.b, b))
    return real.merged()


def _parts(source: Source, parts: tuple[int, ...]) -> Source:
    """Parts of complex elements as real ones, one part after the other in depth."""

    def double(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(replace(axis, stride=2 * axis.stride) for axis in axes)

    depth = double(source.depth)
    if len(parts) > 1:
        depth = (Axis(2, parts[1] - parts[0], (0,) * len(source.limits)), *depth)
    return replace(
        source, offset=2 * source.offset + parts[0], batch=double(source.batch),
        lines=double(source.lines), depth=depth,
    )  # fmt: skip
