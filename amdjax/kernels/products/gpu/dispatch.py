"""Which kernels a GPU computes a product or a convolution with."""

from __future__ import annotations

import math

from amdjax.kernels.products.contraction import Contraction
from amdjax.kernels.products.convolution import Convolution
from amdjax.kernels.products.dot import dot_contraction
from amdjax.kernels.products.gpu.complex import plan_complex_product
from amdjax.kernels.products.gpu.contraction import plan_product
from amdjax.kernels.products.gpu.depthwise import plan_depthwise
from amdjax.kernels.products.gpu.depthwise_gradient import plan_gradient
from amdjax.kernels.products.gpu.padded_groups import plan_packed
from amdjax.kernels.shaped import InOrder, KernelPlan, ShapedContext, shaped
from amdjax.targets import GpuTarget


@shaped("dot_general", on="gpu")
def plan_dot_general(ctx: ShapedContext) -> KernelPlan | None:
    """How a `dot_general` equation is computed."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return InOrder()
    return plan_contraction(ctx.gpu, dot_contraction(ctx))


def plan_contraction(target: GpuTarget, problem: Contraction) -> KernelPlan | None:
    """The plan for the matrix unit; None where it has nothing for these dtypes."""
    return (plan_complex_product if problem.is_complex else plan_product)(target, problem)


@shaped("conv_general_dilated", on="gpu")
def plan_conv(ctx: ShapedContext) -> KernelPlan | None:
    """How a `conv_general_dilated` equation is computed."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return InOrder()
    conv = Convolution.of(ctx)
    plan = plan_depthwise(ctx, conv) or plan_gradient(ctx, conv) or plan_packed(ctx, conv)
    if plan is not None:
        return plan
    plans: list[KernelPlan] = []
    for problem in conv.contractions(ctx):
        part = plan_contraction(ctx.gpu, problem)
        if part is None:
            return None
        plans.append(part)
    return InOrder(plans)
