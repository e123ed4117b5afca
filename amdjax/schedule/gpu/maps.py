"""Writes kernels of regions without reductions for GPUs, as plans of maps say."""

from __future__ import annotations

from dataclasses import replace

from amdjax.schedule.calls import Call
from amdjax.schedule.fusion import Fusion, Region
from amdjax.schedule.gpu.element import TileElements
from amdjax.schedule.gpu.map_plan import GpuMapPlan
from amdjax.schedule.gpu.tiles import first_lanes, region_name, tile_lanes
from amdjax.schedule.maps import MapEmitter
from amdjax.targets import GpuTarget


class GpuMapEmitter(MapEmitter):
    """Kernels of maps on a GPU."""

    plan: GpuMapPlan
    b: TileElements

    def __init__(self, plan: GpuMapPlan, region: Region, fusion: Fusion, target: GpuTarget):
        super().__init__(plan, region, fusion, target, region_name("map", region), TileElements)

    def call(self) -> Call:
        """The launch that computes the region: one tile a program, in row-major order of tiles."""
        plan, k, axes = self.plan, self.k, list(self.plan.axes)
        if not axes:
            self.store_roots()
            return self.w.finish(1, 1)
        if plan.any_length:
            (axis,) = axes
            size = k.size(self.w.param(axis.var.extent, "index", "size"))
            axes = [replace(axis, size=size)]
        if plan.flattened:
            self.b.flatten_loops(plan.flattened, axes[0].var)
        k.schedule.workgroup, k.schedule.vector = plan.threads, plan.vector
        bases, rest = first_lanes(k, axes, k.program_id(), len(plan.outer))
        self.w.bind_outer(plan.outer, rest)
        self.w.with_lanes(tile_lanes(k, axes, bases), self.store_roots)
        return self.w.finish(plan.grid, plan.domain.size)
