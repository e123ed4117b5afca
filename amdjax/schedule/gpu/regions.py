"""The plan of a region on a GPU, and the kernels that it describes; see `schedule/regions.py`."""

from __future__ import annotations

from amdjax.schedule.calls import Call
from amdjax.schedule.domain import Domain
from amdjax.schedule.fusion import Fusion, Region
from amdjax.schedule.gpu.map_plan import GPU_MAPS, GpuMapPlan
from amdjax.schedule.gpu.maps import GpuMapEmitter
from amdjax.schedule.gpu.multi_pass import GPU_ROWS
from amdjax.schedule.gpu.parts import PartPlan
from amdjax.schedule.gpu.row_plan import GpuRowPlan
from amdjax.schedule.gpu.row_sums import ApartPlan, RowSumsPlan
from amdjax.schedule.gpu.rows import GpuRowEmitter
from amdjax.targets import GpuTarget

GpuRegionPlan = GpuMapPlan | GpuRowPlan | PartPlan | RowSumsPlan | ApartPlan


def plan_on_gpu(domain: Domain, target: GpuTarget) -> GpuRegionPlan:
    """How the region of a domain is computed."""
    if domain.region.axes is None:
        return GPU_MAPS.best(domain, target)
    return GPU_ROWS.best(domain, target)


def lower_on_gpu(
    plan: GpuRegionPlan, region: Region, fusion: Fusion, target: GpuTarget
) -> list[Call]:
    """The kernels of a region."""
    if isinstance(plan, PartPlan):
        return plan.emit(region, fusion, target)
    if isinstance(plan, GpuMapPlan):
        return [GpuMapEmitter(plan, region, fusion, target).call()]
    if isinstance(plan, RowSumsPlan):
        return plan.emit(GpuRowEmitter(plan.rows, fusion, target))
    if isinstance(plan, ApartPlan):
        assert region.sums is not None
        rows = lower_on_gpu(plan.rows, region, fusion, target)
        return [*rows, *lower_on_gpu(plan.sums, region.sums, fusion, target)]
    return GpuRowEmitter(plan, fusion, target).calls()
