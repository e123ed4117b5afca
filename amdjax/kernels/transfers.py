"""Copies between a GPU's memory and the host's."""

from __future__ import annotations

from amdjax.kernels.shaped import CopyPlan, ShapedContext, shaped


@shaped("device_put", on="gpu")
def plan_transfer(ctx: ShapedContext) -> CopyPlan | None:
    """Copies in the order of the program's work, where a value changes memory spaces."""
    pairs = list(zip(ctx.eqn.invars, ctx.eqn.outvars, strict=True))
    differ = any(x.aval.memory_space is not v.aval.memory_space for x, v in pairs)
    return CopyPlan(pairs) if differ else None
