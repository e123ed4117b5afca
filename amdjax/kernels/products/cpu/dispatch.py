"""The solvers of products and convolutions on CPUs."""

from __future__ import annotations

import math

from amdjax.core.dims import like_at_hand
from amdjax.kernels.products.contraction import Contraction, ProductProblem, WindowAxis
from amdjax.kernels.products.convolution import ConvolutionProblem
from amdjax.kernels.products.cpu.amx import AMX
from amdjax.kernels.products.cpu.computed_columns import COMPUTED_COLUMNS
from amdjax.kernels.products.cpu.computed_elements import Problem as ComputedProblem
from amdjax.kernels.products.cpu.computed_lines import COMPUTED_LINES
from amdjax.kernels.products.cpu.depthwise import DEPTHWISE, DEPTHWISE_GRADIENT
from amdjax.kernels.products.cpu.direct import DIRECT, DOT_PRODUCTS
from amdjax.kernels.products.cpu.explicit_columns import explicit_columns
from amdjax.kernels.products.cpu.few_columns import FEW_COLUMNS
from amdjax.kernels.products.cpu.implicit import IMPLICIT
from amdjax.kernels.products.cpu.implicit_gradient import IMPLICIT_GRADIENT
from amdjax.kernels.products.cpu.implicit_words import IMPLICIT_WORDS
from amdjax.kernels.products.cpu.packed import GROUPED, PACKED
from amdjax.kernels.products.cpu.plain import plain_contraction
from amdjax.kernels.products.cpu.rank_updates import RANK_UPDATES
from amdjax.kernels.products.cpu.streamed import STREAMED
from amdjax.kernels.products.cpu.vnni import VNNI
from amdjax.kernels.products.cpu.winograd import F23, F43, winograd_solver
from amdjax.kernels.products.dot import dot_contraction
from amdjax.kernels.products.grouped import grouped_contraction
from amdjax.kernels.shaped import InOrder, KernelPlan, ShapedContext, shaped
from amdjax.schedule.computed import ComputedOperand
from amdjax.schedule.search import Family, Solver
from amdjax.targets.cpu import CpuTarget


@shaped("dot_general")
def plan_dot_general(ctx: ShapedContext) -> KernelPlan:
    """How a `dot_general` equation is computed."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return InOrder()
    if ctx.computed is not None:
        return _plan_computed(ctx.target, dot_contraction(ctx), ctx.computed)
    return plan_contraction(ctx.target, dot_contraction(ctx))


@shaped("grouped_dot")
def plan_grouped_dot(ctx: ShapedContext) -> KernelPlan | None:
    """How a `grouped_dot` equation is computed; None where there are no kernels."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return InOrder()
    problem = None if ctx.on_gpu else grouped_contraction(ctx)
    return GROUPED_PRODUCTS.find(problem, ctx.target) if problem else None


@shaped("conv_general_dilated")
def plan_conv(ctx: ShapedContext) -> KernelPlan:
    """How a `conv_general_dilated` equation is computed."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return InOrder()
    return CONVOLUTIONS.best(ConvolutionProblem.of(ctx), ctx.target)


def plan_contraction(
    target: CpuTarget,
    problem: Contraction,
    windows: tuple[WindowAxis, ...] = (),
    gradient: tuple[WindowAxis, ...] = (),
) -> KernelPlan:
    """The kernels that suit a contraction's sizes and layout; see `ProductProblem`."""
    for size in (problem.rows, problem.columns, problem.depth):
        like_at_hand(size)
    like_at_hand(problem.batches, 4 * target.threads)  # of which there is enough to do for all
    return PRODUCTS.best(ProductProblem.of(problem, windows, gradient), target)


def _plan_computed(target: CpuTarget, p: Contraction, computed: ComputedOperand) -> KernelPlan:
    """The kernel of a product that computes one of its operands."""
    plain = plain_contraction((p if computed.side else p.swapped()).merged())
    assert plain is not None, "an operand is computed of what plain loops go through"
    return COMPUTED_PRODUCTS.best((plain, computed), target)


def as_products(problem: ConvolutionProblem, target: CpuTarget) -> list[KernelPlan]:
    """Each phase of a convolution as a product."""
    ctx, conv = problem
    return [
        InOrder(
            [
                plan_contraction(
                    target,
                    conv.contraction(ctx, phases),
                    conv.windows(phases),
                    conv.gradient_windows(phases),
                )
                for phases in conv.phases()
            ]
        )
    ]


PRODUCTS: Family[ProductProblem, CpuTarget, KernelPlan] = Family(
    "product on a CPU",
    FEW_COLUMNS,
    STREAMED,
    RANK_UPDATES,
    DOT_PRODUCTS,
    DIRECT,
    AMX,
    VNNI,
    IMPLICIT,
    IMPLICIT_WORDS,
    IMPLICIT_GRADIENT,
    PACKED,
)
PRODUCTS.solvers.append(explicit_columns(PRODUCTS))  # what it multiplies, the others do
COMPUTED_PRODUCTS: Family[ComputedProblem, CpuTarget, KernelPlan] = Family(
    "product of a computed operand on a CPU", COMPUTED_COLUMNS, COMPUTED_LINES
)
GROUPED_PRODUCTS: Family[Contraction, CpuTarget, KernelPlan] = Family(
    "grouped product on a CPU", GROUPED
)
CONVOLUTIONS: Family[ConvolutionProblem, CpuTarget, KernelPlan] = Family(
    "convolution on a CPU",
    DEPTHWISE,
    DEPTHWISE_GRADIENT,
    Solver("products", as_products, composite=True),
    winograd_solver("Winograd F(2, 3)", F23, PRODUCTS),
    winograd_solver("Winograd F(4, 3)", F43, PRODUCTS),
    alike=lambda problem: problem.alike,
)
