"""The solvers of attention on CPUs."""

from __future__ import annotations

from amdjax.kernels.attention.cpu_amx import AMX
from amdjax.kernels.attention.cpu_bias import bias_gradient_plan
from amdjax.kernels.attention.cpu_blocks import ONLINE_SOFTMAX
from amdjax.kernels.attention.cpu_gradient import (
    AttentionGradientPlan,
    gradient_cost,
    gradient_plans,
)
from amdjax.kernels.attention.cpu_rows import FEW_ROWS
from amdjax.kernels.attention.problem import Attention
from amdjax.kernels.shaped import InOrder, KernelPlan, ShapedContext, shaped
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
    """The plan for the gradient, and behind it that for the gradient of the bias if it has one."""
    if not _is_for_cpus(ctx):
        return None
    problem = Attention.of(ctx.eqn)
    plan = GRADIENT.find(problem, ctx.target)
    if not ctx.params["bias_gradient"] or plan is None:
        return plan
    bias = bias_gradient_plan(problem, ctx.target)
    return None if bias is None else InOrder([plan, bias])


def _is_for_cpus(ctx: ShapedContext) -> bool:
    return not ctx.on_gpu and all(x.aval.size for x in (*ctx.inputs, *ctx.outputs))
