"""Sorting along an axis.

Elements become unsigned keys (`keys.py`), and what is sorted are *records*: keys alone, or keys
with the position they came from, by which the other operands are then gathered. Short rows go
through networks (`cpu/network.py`), others are sorted by digits (`cpu/radix.py`). GPUs have
networks (`gpu/bitonic.py`) and digits (`gpu/radix.py`) of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from amdjax.core.dims import DimSize, choosing, estimated, size_hint
from amdjax.core.jaxpr import DropVar
from amdjax.kernels.shaped import CopyPlan, KernelPlan, ShapedContext, shaped
from amdjax.kernels.sorting.cpu.network import NetworkPlan
from amdjax.kernels.sorting.cpu.radix import radix_cost, radix_plans
from amdjax.kernels.sorting.keys import Key
from amdjax.kernels.sorting.rows import Geometry, SortProblem
from amdjax.schedule.search import Family, Solver
from amdjax.schedule.values import short_dtype
from amdjax.targets import GpuTarget
from amdjax.targets.cpu import CpuTarget

if TYPE_CHECKING:
    from amdjax.kernels.sorting.gpu.bitonic import BitonicPlan
    from amdjax.kernels.sorting.gpu.radix import GpuRadixPlan

NETWORK = 2048  # longest rows that go through networks, if there are rows for all lanes
LONGEST_NETWORK = 4096  # whose rows in lanes a second-level cache holds
NETWORK_FEW, NETWORK_ALONE = 512, 96  # the same for rows that fill half of them, or fewer


@shaped("sort")
def plan_sort(ctx: ShapedContext) -> KernelPlan:
    """Sort all operands by the first `num_keys` of them."""
    shape, axis = ctx.inputs[0].aval.shape, ctx.params["dimension"]
    pairs = zip(ctx.inputs, ctx.outputs, strict=True)
    outputs = tuple(pair for pair in pairs if not isinstance(pair[1], DropVar))
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


def networks(problem: SortProblem, target: CpuTarget) -> list[NetworkPlan]:
    """A network, if rows are short enough to write one."""
    with choosing():
        short = problem.geometry.n <= LONGEST_NETWORK
    return [NetworkPlan(problem, LONGEST_NETWORK)] if short else []


def usual_network(problem: SortProblem, target: CpuTarget) -> NetworkPlan | None:
    """A network for rows of which it is known to be about as fast as digits."""
    with choosing():
        return NetworkPlan(problem, NETWORK) if problem.geometry.n <= NETWORK else None


def network_cost(problem: SortProblem, plan: NetworkPlan, target: CpuTarget) -> float:
    """Moves of a record that a thread makes one after the other.

    The steps of a network, whose number grows with the square of the logarithm, are reckoned by the
    length of rows from which they take as long as digits.
    """
    by_digits = [radix_cost(problem, p, target) for p in radix_plans(problem, target)]
    return min(by_digits, key=size_hint) * _steps(problem.geometry.rows, problem.geometry.n)


def _steps(rows: DimSize, n: DimSize) -> Any:
    """Steps of a network, of as many as take as long as digits."""
    some = estimated("at least", rows, 16, math.log2(NETWORK), math.log2(NETWORK_FEW))
    even = estimated("at least", rows, 8, some, math.log2(NETWORK_ALONE))
    return (estimated("log2", n) / even) ** 2


def gpu_digits(problem: SortProblem, target: GpuTarget) -> list[GpuRadixPlan]:
    """Digits, if their records fit LDS."""
    # late: programs for CPUs need none of them
    from amdjax.kernels.sorting.gpu.radix import plan_gpu_radix

    digits = plan_gpu_radix(target, problem)
    return [digits] if digits.block else []


def gpu_networks(problem: SortProblem, target: GpuTarget) -> list[BitonicPlan]:
    """A network."""
    # late: programs for CPUs need none of them
    from amdjax.kernels.sorting.gpu.bitonic import plan_bitonic

    return [plan_bitonic(target, problem)]


def _passes(problem: SortProblem, plan: GpuRadixPlan | BitonicPlan, target: GpuTarget) -> float:
    return plan.passes


CPU_SORTS: Family[SortProblem, CpuTarget, KernelPlan] = Family(
    "sort on a CPU",
    Solver("network", networks, network_cost, usual_network),
    Solver("digits", radix_plans, radix_cost),
)
GPU_SORTS: Family[SortProblem, GpuTarget, KernelPlan] = Family(
    "sort on a GPU",
    Solver("digits", gpu_digits, _passes),
    Solver("network", gpu_networks, _passes),
)
