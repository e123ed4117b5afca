"""Which kernels a CPU computes a product or a convolution with."""

from __future__ import annotations

import math

from amdjax.kernels.products.contraction import Contraction
from amdjax.kernels.products.convolution import Convolution
from amdjax.kernels.products.cpu.amx import amx_product
from amdjax.kernels.products.cpu.depthwise import lane_convolution
from amdjax.kernels.products.cpu.direct import direct_product
from amdjax.kernels.products.cpu.few_columns import few_columns_product
from amdjax.kernels.products.cpu.packed import PackedProduct
from amdjax.kernels.products.cpu.vnni import vnni_product
from amdjax.kernels.products.dot import dot_contraction
from amdjax.kernels.shaped import Call, ShapedContext, shaped


@shaped("dot_general")
def lower_dot_general(ctx: ShapedContext) -> list[Call]:
    """Launches that compute a `dot_general` equation."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return []
    return _contraction(ctx, dot_contraction(ctx))


@shaped("conv_general_dilated")
def lower_conv(ctx: ShapedContext) -> list[Call]:
    """Launches that compute a `conv_general_dilated` equation."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return []
    conv = Convolution.of(ctx)
    calls = lane_convolution(ctx, conv)
    return calls or [
        call for phase in conv.phases() for call in _contraction(ctx, conv.contraction(ctx, phase))
    ]


def _contraction(ctx: ShapedContext, problem: Contraction) -> list[Call]:
    """The kernels that suit a contraction's sizes and layout."""
    if problem.is_complex:
        problem = problem.as_real()
    calls = few_columns_product(ctx, problem)
    if calls is not None:
        return calls
    problem = problem.merged()
    for special in (direct_product, amx_product, vnni_product):
        calls = special(ctx, problem)
        if calls is not None:
            return calls
    return PackedProduct(ctx, problem).calls()
