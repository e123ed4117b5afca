"""Convolutions: stated as contractions (`convolution.py`), or done by lanes (`depthwise.py`)."""

from __future__ import annotations

import math

from amdjax.kernels.convolution import Convolution
from amdjax.kernels.depthwise import lane_convolution
from amdjax.kernels.gemm import lower_contraction
from amdjax.kernels.shaped import Call, ShapedContext, shaped


@shaped("conv_general_dilated")
def lower_conv(ctx: ShapedContext) -> list[Call]:
    """Launches that compute a `conv_general_dilated` equation."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return []
    conv = Convolution.of(ctx)
    calls = lane_convolution(ctx, conv)
    return calls or [
        call
        for phase in conv.phases()
        for call in lower_contraction(ctx, conv.contraction(ctx, phase))
    ]
