"""The greatest elements along an axis, greatest first."""

from __future__ import annotations

import math

from amdjax.jit.element import short_dtype
from amdjax.jit.shaped import Call, Copy, ShapedContext, shaped
from amdjax.kernels.keys import Key
from amdjax.kernels.sort import Geometry, sort_calls


@shaped("top_k")
def lower_top_k(ctx: ShapedContext) -> list[Call | Copy]:
    """Values and positions; NaN counts as greatest, -0 as less than +0."""
    (x,), (values, indices) = ctx.inputs, ctx.outputs
    k = ctx.params["k"]
    if not math.prod(values.aval.shape):
        kernel = ctx.kernel("empty")
        kernel.output(values)
        kernel.output(indices)
        return [kernel.launch(0, 0.0)]
    geometry = Geometry.of(x.aval.shape, ctx.params["axis"])
    key = Key(short_dtype(x.aval.dtype), equal_zeros=False, descending=True)
    return sort_calls(ctx, geometry, [(x, key)], [(x, values), (None, indices)], k)
