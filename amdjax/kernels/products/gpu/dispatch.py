"""The solvers of products and convolutions on GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from amdjax.kernels.products.contraction import Contraction
from amdjax.kernels.products.convolution import Convolution, ConvolutionProblem
from amdjax.kernels.products.dot import dot_contraction
from amdjax.kernels.products.gpu.complex import plan_complex_product
from amdjax.kernels.products.gpu.contraction import plan_product
from amdjax.kernels.products.gpu.depthwise import plan_depthwise
from amdjax.kernels.products.gpu.depthwise_gradient import plan_gradient
from amdjax.kernels.products.gpu.grouped import plan_groups
from amdjax.kernels.products.gpu.padded_groups import plan_packed
from amdjax.kernels.products.gpu.resident import plan_resident
from amdjax.kernels.products.grouped import grouped_contraction
from amdjax.kernels.shaped import InOrder, KernelPlan, ShapedContext, shaped
from amdjax.schedule.search import Family, Solver
from amdjax.targets import GpuTarget

GpuSolver = Solver[ConvolutionProblem, GpuTarget, KernelPlan]


@shaped("dot_general", on="gpu")
def plan_dot_general(ctx: ShapedContext) -> KernelPlan | None:
    """How a `dot_general` equation is computed."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return InOrder()
    problem = dot_contraction(ctx)
    found = None
    if ctx.resident is not None:
        found = plan_resident(ctx.gpu, problem, ctx.resident.partition)
    neighbors = [dot_contraction(replace(ctx, eqn=eqn)) for eqn in ctx.neighbors]
    return found or plan_contraction(ctx.gpu, problem, neighbors)


def plan_contraction(
    target: GpuTarget, problem: Contraction, neighbors: Sequence[Contraction] = ()
) -> KernelPlan | None:
    """The plan for the matrix unit; None where it has nothing for these dtypes.

    `neighbors` are those of one launch.
    """
    if problem.is_complex:
        return plan_complex_product(target, problem)
    return plan_product(target, problem, neighbors)


@shaped("grouped_dot", on="gpu")
def plan_grouped_dot(ctx: ShapedContext) -> KernelPlan | None:
    """How a `grouped_dot` equation is computed; None where there are no kernels."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return InOrder()
    problem = grouped_contraction(ctx)
    return plan_groups(ctx.gpu, problem) if problem else None


@shaped("conv_general_dilated", on="gpu")
def plan_conv(ctx: ShapedContext) -> KernelPlan | None:
    """How a `conv_general_dilated` equation is computed."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return InOrder()
    return CONVOLUTIONS.find(ConvolutionProblem.of(ctx), ctx.gpu)


def as_products(ctx: ShapedContext, conv: Convolution) -> KernelPlan | None:
    """A convolution as products; None where the matrix unit has nothing for its dtypes."""
    plans: list[KernelPlan] = []
    for problem in conv.contractions(ctx):
        part = plan_contraction(ctx.gpu, problem)
        if part is None:
            return None
        plans.append(part)
    return InOrder(plans)


def _solver(
    name: str, tier: int, plan: Callable[[ShapedContext, Convolution], KernelPlan | None]
) -> GpuSolver:
    """An algorithm whose plan is made by choices of other families."""

    def plans(problem: ConvolutionProblem, target: GpuTarget) -> list[KernelPlan]:
        found = plan(*problem)
        return [] if found is None else [found]

    return Solver(name, plans, tier=tier, composite=True)


CONVOLUTIONS: Family[ConvolutionProblem, GpuTarget, KernelPlan] = Family(
    "convolution on a GPU",
    _solver("depthwise", 0, plan_depthwise),
    _solver("depthwise gradient", 1, plan_gradient),
    _solver("padded groups", 2, plan_packed),
    _solver("products", 3, as_products),
)
