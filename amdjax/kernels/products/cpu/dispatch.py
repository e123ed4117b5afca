"""Which kernels a CPU computes a product or a convolution with."""

from __future__ import annotations

import math

from amdjax.kernels.products.contraction import Contraction
from amdjax.kernels.products.convolution import Convolution
from amdjax.kernels.products.cpu.amx import plan_amx
from amdjax.kernels.products.cpu.depthwise import plan_depthwise
from amdjax.kernels.products.cpu.direct import UNPACKED
from amdjax.kernels.products.cpu.few_columns import FEW_COLUMNS
from amdjax.kernels.products.cpu.packed import plan_packed
from amdjax.kernels.products.cpu.vnni import plan_vnni
from amdjax.kernels.products.dot import dot_contraction
from amdjax.kernels.shaped import InOrder, KernelPlan, ShapedContext, shaped
from amdjax.targets.cpu import CpuTarget


@shaped("dot_general")
def plan_dot_general(ctx: ShapedContext) -> KernelPlan:
    """How a `dot_general` equation is computed."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return InOrder()
    return plan_contraction(ctx.target, dot_contraction(ctx))


@shaped("conv_general_dilated")
def plan_conv(ctx: ShapedContext) -> KernelPlan:
    """How a `conv_general_dilated` equation is computed."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return InOrder()
    conv = Convolution.of(ctx)
    problems = (conv.contraction(ctx, phase) for phase in conv.phases())
    return plan_depthwise(ctx, conv) or InOrder([plan_contraction(ctx.target, p) for p in problems])


def plan_contraction(target: CpuTarget, problem: Contraction) -> KernelPlan:
    """The kernels that suit a contraction's sizes and layout."""
    if problem.is_complex:
        problem = problem.as_real()
    plan: KernelPlan | None = FEW_COLUMNS.find(problem, target)
    if plan is not None:
        return plan
    problem = problem.merged()
    plan = UNPACKED.find(problem, target) or plan_amx(target, problem)
    return plan or plan_vnni(target, problem) or plan_packed(target, problem)
