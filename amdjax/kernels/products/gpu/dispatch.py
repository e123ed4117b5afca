"""Which kernels a GPU computes a product or a convolution with."""

from __future__ import annotations

import math

from amdjax.kernels.products.contraction import Contraction
from amdjax.kernels.products.convolution import Convolution
from amdjax.kernels.products.dot import dot_contraction
from amdjax.kernels.products.gpu.complex import complex_contraction
from amdjax.kernels.products.gpu.contraction import gpu_contraction
from amdjax.kernels.products.gpu.depthwise import direct_convolution
from amdjax.kernels.products.gpu.depthwise_gradient import kernel_gradient
from amdjax.kernels.products.gpu.padded_groups import packed_convolution
from amdjax.kernels.shaped import Call, ShapedContext, shaped


@shaped("dot_general", on="gpu")
def lower_dot_general(ctx: ShapedContext) -> list[Call] | None:
    """Launches that compute a `dot_general` equation."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return []
    return _contraction(ctx, dot_contraction(ctx))


def _contraction(ctx: ShapedContext, problem: Contraction) -> list[Call] | None:
    return (complex_contraction if problem.is_complex else gpu_contraction)(ctx, problem)


@shaped("conv_general_dilated", on="gpu")
def lower_conv(ctx: ShapedContext) -> list[Call] | None:
    """Launches that compute a `conv_general_dilated` equation."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return []
    conv = Convolution.of(ctx)
    for schedule in (direct_convolution, kernel_gradient, packed_convolution):
        found = schedule(ctx, conv)
        if found is not None:
            return found
    calls: list[Call] = []
    for problem in conv.contractions(ctx):
        more = _contraction(ctx, problem)
        if more is None:
            return None
        calls += more
    return calls
