"""Regions of a loop of which each resident program computes its part (`partition.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call
from amdjax.schedule.domain import Domain, region_producers
from amdjax.schedule.fusion import Fusion, Region
from amdjax.schedule.gpu.element import TileElements
from amdjax.schedule.gpu.partition import Partition, foreign_reads
from amdjax.schedule.gpu.tiles import TileAxis, region_name, tile_lanes
from amdjax.schedule.index import Index, LoopVar, delinear
from amdjax.schedule.writer import RegionWriter
from amdjax.targets import GpuTarget


@dataclass(frozen=True)
class PartPlan:
    """A region of which each resident program computes its part.

    Args:
      partition: what a program has.
      threads: of a program.
      groups: of columns, of each value.
    """

    partition: Partition
    threads: int
    groups: tuple[int, ...]

    def emit(self, region: Region, fusion: Fusion, target: GpuTarget) -> list[Call]:
        """The launch that the plan describes."""
        return [_PartEmitter(self, region, fusion, target).call()]

    def __str__(self) -> str:
        p = self.partition
        groups = "+".join(map(str, self.groups))
        return (
            f"map of {p.lines}×{p.width}, in each program {p.rows}×{p.columns} of {groups} groups, "
            f"{self.threads} threads"
        )


def plan_part(
    region: Region, fusion: Fusion, target: GpuTarget, partition: Partition
) -> PartPlan | None:
    """The plan of a region in parts; None where its values have none.

    Args:
      region: what is computed.
      fusion: of the loop's body.
      target: the GPU.
      partition: of what the loop's programs make.
    """
    if region.axes is not None or any(r.loop is not None for r in region.roots):
        return None
    groups = tuple(partition.groups(v) for v in _stored(region, fusion))
    return PartPlan(partition, target.usual_workgroup, groups) if all(groups) else None


def part_foreign_reads(region: Region, fusion: Fusion, partition: Partition) -> set[Var]:
    """What a region that is computed in parts reads of others' parts."""
    return foreign_reads(partition, region_producers(region, fusion), _stored(region, fusion))


def _stored(region: Region, fusion: Fusion) -> list[Var]:
    return [v for r in region.roots for v in r.points if v in fusion.stored]


class _PartEmitter:
    """The kernel of a region in parts."""

    def __init__(self, plan: PartPlan, region: Region, fusion: Fusion, target: GpuTarget):
        self.plan, self.region, self.fusion = plan, region, fusion
        domain = Domain.of_rows(region, fusion)
        name = region_name("map", region)
        self.w = RegionWriter(region, fusion, target, domain, name, TileElements)

    def call(self) -> Call:
        k, p = self.w.k, self.plan.partition
        k.schedule.workgroup = self.plan.threads
        high, wide = p.grid
        number = k.program_id()
        self.line, self.column = LoopVar("i", p.lines), LoopVar("j", p.width)
        axes = [TileAxis(self.line, p.rows), TileAxis(self.column, p.columns)]
        bases = [number % high * p.rows, number // high * p.columns]
        self.w.with_lanes(tile_lanes(k, axes, bases), self._store)
        call = self.w.finish(high * wide, p.lines * p.width * sum(self.plan.groups))
        foreign = part_foreign_reads(self.region, self.fusion, p)
        return call.owning(lambda x: not (isinstance(x, Var) and x in foreign), p)

    def _store(self) -> None:
        """Compute all values of the part, then store them: a result may lie over an input."""
        b, p = self.w.b, self.plan.partition
        values: list[tuple[Var, Index, Any]] = []
        for v in _stored(self.region, self.fusion):
            for group in range(p.groups(v)):
                place = p.place(v, self.line, self.column, group)
                values.append((v, place, b.value(v, delinear(place, v.aval.shape))))
        for v, place, x in values:
            b.store(self.w.output(v), place, x)
