"""Gives a region its loops and tiles: from what is computed to a tile program.

The domain of a region is first brought to few long loops (`domain.py`). A plan then spreads one of
them over vector lanes on a CPU (`map_plan.py`, `row_plan.py`), one or two over a workgroup on a GPU
(`gpu/map_plan.py`, `gpu/multi_pass.py`), and an emitter writes the kernels that it describes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

from amdjax import tile
from amdjax.schedule.calls import Call, Temp
from amdjax.schedule.combine import CombineKernel
from amdjax.schedule.domain import Domain
from amdjax.schedule.fusion import Fusion, Region, Root
from amdjax.schedule.gpu.partition import Resident
from amdjax.schedule.map_plan import CPU_MAPS, CpuMapPlan
from amdjax.schedule.maps import CpuMapEmitter
from amdjax.schedule.row_plan import CPU_ROWS, CpuRowPlan, reductions_of
from amdjax.schedule.rows import CpuRowEmitter
from amdjax.schedule.search import planned
from amdjax.schedule.writer import Machine
from amdjax.targets import GpuTarget

if TYPE_CHECKING:
    from amdjax.schedule.gpu.regions import GpuRegionPlan

RegionPlan: TypeAlias = "CpuMapPlan | CpuRowPlan | GpuRegionPlan"


def plan_region(
    region: Region, fusion: Fusion, target: Machine, resident: Resident | None = None
) -> RegionPlan | None:
    """How a region is computed; None if it has no elements. Nothing is written for it.

    Args:
      region: what is computed.
      fusion: of the program.
      target: the machine.
      resident: of the loop around it, if that is one launch.
    """
    if 0 in region.domain:
        return None
    if resident is not None and resident.partition is not None:
        # late: programs for CPUs need none of it
        from amdjax.schedule.gpu.parts import plan_part

        assert isinstance(target, GpuTarget)
        part = plan_part(region, fusion, target, resident.partition)
        if part is not None:
            return part
    plan = planned((region, fusion), target, lambda: _plan_region(region, fusion, target))
    if region.sums is None:
        return plan
    # late: programs for CPUs need none of it
    from amdjax.schedule.gpu.row_sums import ApartPlan, plan_row_sums

    assert isinstance(target, GpuTarget)
    joint = plan_row_sums(plan, region, target)
    return joint or ApartPlan(plan, plan_region(region.sums, fusion, target, resident))


def _plan_region(region: Region, fusion: Fusion, target: Machine) -> RegionPlan:
    domain = Domain(region, fusion)
    if isinstance(target, GpuTarget):
        # late: programs for CPUs need none of it
        from amdjax.schedule.gpu.regions import plan_on_gpu

        return plan_on_gpu(domain, target)
    return (CPU_MAPS if region.axes is None else CPU_ROWS).best(domain, target)


def lower_region(
    region: Region, fusion: Fusion, target: Machine, resident: Resident | None = None
) -> list[Call]:
    """The kernels of a region, usually one; arguments are those of `plan_region`."""
    match plan_region(region, fusion, target, resident):
        case None:
            return _empty_region(region, fusion, target)
        case CpuMapPlan() as plan:
            return [CpuMapEmitter(plan, region, fusion, target).call()]
        case CpuRowPlan() as plan:
            return CpuRowEmitter(plan, fusion, target).calls()
        case plan:
            # late: programs for CPUs need none of it
            from amdjax.schedule.gpu.regions import lower_on_gpu

            assert isinstance(target, GpuTarget)
            return lower_on_gpu(plan, region, fusion, target)


def _empty_region(region: Region, fusion: Fusion, target: Machine) -> list[Call]:
    """No elements: element values have no elements, reductions are their identities."""
    stored: list[Any] = [v for r in region.roots for v in r.vars if v in fusion.stored]
    calls = [Call(tile.Builder("empty").finish(0), stored, 0, 0.0)]  # gives them their places
    rows = math.prod(region.row_shape) if region.axes is not None else 0
    if rows:
        reductions = reductions_of(region)
        partials: dict[Root, list[Temp]] = {r: [] for r in reductions}
        calls.append(CombineKernel(region, fusion, target, reductions, partials, 0, rows).build())
    return calls
