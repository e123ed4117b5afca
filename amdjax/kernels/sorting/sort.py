"""Sorting along an axis.

Elements become unsigned keys (`keys.py`), and what is sorted are *records*: keys alone, or keys
with the position they came from, by which the other operands are then gathered. Short rows go
through networks (`cpu/network.py`), others are sorted by digits (`cpu/radix.py`). GPUs have
networks (`gpu/bitonic.py`) and digits (`gpu/radix.py`) of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from amdjax.kernels.shaped import CopyPlan, KernelPlan, ShapedContext, shaped
from amdjax.kernels.sorting.cpu.network import NetworkPlan
from amdjax.kernels.sorting.cpu.radix import RadixPlan, radix_cost, radix_plans
from amdjax.kernels.sorting.keys import Key
from amdjax.kernels.sorting.rows import Geometry, SortProblem
from amdjax.schedule.search import SearchSpace
from amdjax.schedule.values import short_dtype
from amdjax.targets import GpuTarget
from amdjax.targets.cpu import CpuTarget

if TYPE_CHECKING:
    from amdjax.kernels.sorting.gpu.bitonic import BitonicPlan
    from amdjax.kernels.sorting.gpu.radix import GpuRadixPlan

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
    if isinstance(machine, GpuTarget):
        return GPU_SORTS.best(problem, machine)
    return CPU_SORTS.best(problem, machine)


def cpu_sorts(problem: SortProblem, target: CpuTarget) -> list[NetworkPlan | RadixPlan]:
    """A network, if rows are short enough to write one, and digits of two sizes."""
    network = [NetworkPlan(problem)] if problem.geometry.n <= NETWORK else []
    return [*network, *radix_plans(target, problem)]


def cpu_sort_cost(problem: SortProblem, plan: NetworkPlan | RadixPlan, target: CpuTarget) -> float:
    """Moves of a record that a thread makes one after the other.

    The steps of a network, whose number grows with the square of the logarithm, are reckoned by the
    length of rows from which they take as long as digits.
    """
    if isinstance(plan, RadixPlan):
        return radix_cost(target, plan)
    g, by_digits = problem.geometry, radix_plans(target, problem)
    even = NETWORK_ALONE if g.rows < 8 else NETWORK_FEW if g.rows < 16 else NETWORK
    digits = min(radix_cost(target, other) for other in by_digits)
    return digits * (math.log2(g.n) / math.log2(even)) ** 2


def gpu_sorts(problem: SortProblem, target: GpuTarget) -> list[GpuRadixPlan | BitonicPlan]:
    """Digits, if their records fit LDS, and a network."""
    # late: programs for CPUs need none of them
    from amdjax.kernels.sorting.gpu.bitonic import plan_bitonic
    from amdjax.kernels.sorting.gpu.radix import plan_gpu_radix

    digits = plan_gpu_radix(target, problem)
    return [*([digits] if digits.block else []), plan_bitonic(target, problem)]


CPU_SORTS = SearchSpace("sort on a CPU", cpu_sorts, cpu_sort_cost)
GPU_SORTS = SearchSpace("sort on a GPU", gpu_sorts, lambda problem, plan, target: plan.passes)
