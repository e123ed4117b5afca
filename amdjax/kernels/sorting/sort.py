"""Sorting along an axis.

Elements become unsigned keys (`keys.py`), and what is sorted are *records*: keys alone, or keys
with the position they came from, by which the other operands are then gathered. Short rows go
through networks (`cpu/network.py`), others are sorted by digits (`cpu/radix.py`). GPUs have
networks (`gpu/bitonic.py`) and digits (`gpu/radix.py`) of their own.
"""

from __future__ import annotations

import math
from typing import Any

from amdjax.kernels.shaped import CopyPlan, KernelPlan, ShapedContext, shaped
from amdjax.kernels.sorting.cpu.network import NetworkPlan
from amdjax.kernels.sorting.cpu.radix import plan_radix
from amdjax.kernels.sorting.gpu.bitonic import plan_bitonic
from amdjax.kernels.sorting.gpu.radix import plan_gpu_radix
from amdjax.kernels.sorting.keys import Key
from amdjax.kernels.sorting.rows import Geometry, SortProblem
from amdjax.schedule.element import short_dtype
from amdjax.targets import GpuTarget
from amdjax.targets.cpu import CpuTarget

NETWORK = 2048  # longest rows that go through networks, if there are rows for all lanes
NETWORK_FEW, NETWORK_ALONE = 512, 96  # the same for rows that fill half of them, or fewer


@shaped("sort")
def plan_sort(ctx: ShapedContext) -> KernelPlan:
    """Sort all operands by the first `num_keys` of them."""
    shape, axis = ctx.inputs[0].aval.shape, ctx.params["dimension"]
    outputs = tuple(zip(ctx.inputs, ctx.outputs, strict=True))
    if not math.prod(shape) or not shape or shape[axis] == 1:
        return CopyPlan(outputs)
    keys: list[tuple[Any, Key]] = []
    for x in ctx.inputs[: ctx.params["num_keys"]]:
        dtype = short_dtype(x.aval.dtype)
        parts = 2 if dtype in ("c64", "c128") else 1
        keys += [(x, Key(dtype, part)) for part in range(parts)]
    geometry = Geometry.of(shape, axis)
    return plan_rows(ctx.machine, SortProblem(geometry, tuple(keys), outputs, geometry.n))


def plan_rows(machine: CpuTarget | GpuTarget, problem: SortProblem) -> KernelPlan:
    """How rows are sorted."""
    g = problem.geometry
    if isinstance(machine, GpuTarget):
        network, digits = plan_bitonic(machine, problem), plan_gpu_radix(machine, problem)
        return digits if digits.passes <= network.passes else network
    limit = NETWORK_ALONE if g.rows < 8 else NETWORK_FEW if g.rows < 16 else NETWORK
    return NetworkPlan(problem) if g.n <= limit else plan_radix(machine, problem)
