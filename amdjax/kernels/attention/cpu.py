"""The solvers of attention on CPUs."""

from __future__ import annotations

from amdjax.kernels.attention.cpu_amx import AMX
from amdjax.kernels.attention.cpu_blocks import ONLINE_SOFTMAX
from amdjax.kernels.attention.cpu_gradient import (
    AttentionGradientPlan,
    gradient_cost,
    gradient_plans,
)
from amdjax.kernels.attention.cpu_rows import FEW_ROWS
from amdjax.kernels.attention.problem import Attention
from amdjax.kernels.shaped import KernelPlan, ShapedContext, shaped
from amdjax.schedule.search import Family, Solver
from amdjax.targets.cpu import CpuTarget

ATTENTION: Family[Attention, CpuTarget, KernelPlan] = Family(
    "attention on a CPU", FEW_ROWS, AMX, ONLINE_SOFTMAX
)
GRADIENT: Family[Attention, CpuTarget, AttentionGradientPlan] = Family(
    "gradient of attention on a CPU", Solver("weights anew", gradient_plans, gradient_cost)
)


@shaped("attention")
def plan_attention(ctx: ShapedContext) -> KernelPlan | None:
    """The plan for an attention; None on GPUs, and for more features than scratch has room for."""
    return ATTENTION.find(Attention.of(ctx.eqn), ctx.target) if _is_for_cpus(ctx) else None


@shaped("attention_gradient")
def plan_gradient(ctx: ShapedContext) -> KernelPlan | None:
    """The plan for the gradient; None also where the bias has one, which is as large as logits."""
    if not _is_for_cpus(ctx) or ctx.params["bias_gradient"]:
        return None
    return GRADIENT.find(Attention.of(ctx.eqn), ctx.target)


def _is_for_cpus(ctx: ShapedContext) -> bool:
    return not ctx.on_gpu and all(x.aval.size for x in (*ctx.inputs, *ctx.outputs))
