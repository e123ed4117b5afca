"""Matrix products: `dot_general`."""

from __future__ import annotations

import math

from amdjax.kernels.blocked import BlockedProduct
from amdjax.kernels.contraction import Axis, Contraction, Sink, Source, accumulate_dtype
from amdjax.kernels.direct import direct_product
from amdjax.kernels.loops import row_major
from amdjax.kernels.matrix_unit import unit_product
from amdjax.kernels.quads import byte_product
from amdjax.kernels.shaped import Call, ShapedContext, shaped
from amdjax.kernels.thin import thin_product
from amdjax.schedule.element import part_dtype, short_dtype


@shaped("dot_general")
def lower_dot_general(ctx: ShapedContext) -> list[Call]:
    """Launches that compute a `dot_general` equation."""
    if math.prod(ctx.outputs[0].aval.shape) == 0:
        return []
    return lower_contraction(ctx, dot_contraction(ctx))


def lower_contraction(ctx: ShapedContext, problem: Contraction) -> list[Call]:
    """The kernels that suit a contraction's sizes and layout."""
    if problem.is_complex:
        problem = problem.as_real()
    thin = thin_product(ctx, problem)
    if thin is not None:
        return thin
    problem = problem.merged()
    for special in (direct_product, unit_product, byte_product):
        calls = special(ctx, problem)
        if calls is not None:
            return calls
    return BlockedProduct(ctx, problem).calls()


def dot_contraction(ctx: ShapedContext) -> Contraction:
    """`dot_general` as a contraction; its result is laid out as (batch, rows, columns)."""
    (contract, batch) = ctx.params["dimension_numbers"]
    sources = []
    for side, operand in enumerate(ctx.inputs):
        shape, strides = operand.aval.shape, row_major(operand.aval.shape)
        free = [d for d in range(len(shape)) if d not in (*contract[side], *batch[side])]
        entries, lines, depth = (
            tuple(Axis(shape[d], strides[d]) for d in dims)
            for dims in (batch[side], free, contract[side])
        )
        dtype = part_dtype(short_dtype(operand.aval.dtype))
        sources.append(Source(operand, dtype, 0, entries, lines, depth))
    a, b = sources
    out = ctx.outputs[0]
    axes = [Axis(n, s) for n, s in zip(out.aval.shape, row_major(out.aval.shape))]
    cut = [len(a.batch), len(a.batch) + len(a.lines)]
    dtype = short_dtype(out.aval.dtype)
    sink = Sink(
        out, part_dtype(dtype), 0,
        tuple(axes[: cut[0]]), tuple(axes[cut[0] : cut[1]]), tuple(axes[cut[1] :]),
    )  # fmt: skip
    accumulate = accumulate_dtype(out.aval.dtype, *(x.aval.dtype for x in ctx.inputs))
    return Contraction(a, b, sink, accumulate, is_complex=dtype in ("c64", "c128"))
