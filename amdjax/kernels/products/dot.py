"""`dot_general` stated as a contraction."""

from __future__ import annotations

from amdjax.kernels.loops import row_major
from amdjax.kernels.products.contraction import Axis, Contraction, Sink, Source
from amdjax.kernels.products.formats import operand_formats, sum_dtype
from amdjax.kernels.shaped import ShapedContext
from amdjax.schedule.values import part_dtype, short_dtype


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
        sources.append(Source(operand, dtype, 0, entries, lines, depth, fixed=operand in ctx.fixed))
    a, b = sources
    out = ctx.outputs[0]
    axes = [Axis(n, s) for n, s in zip(out.aval.shape, row_major(out.aval.shape))]
    cut = [len(a.batch), len(a.batch) + len(a.lines)]
    dtype = short_dtype(out.aval.dtype)
    sink = Sink(
        out, part_dtype(dtype), 0,
        tuple(axes[: cut[0]]), tuple(axes[cut[0] : cut[1]]), tuple(axes[cut[1] :]),
    )  # fmt: skip
    formats = operand_formats(ctx.params["precision"])
    return Contraction(a, b, sink, sum_dtype(ctx), dtype in ("c64", "c128"), formats)
