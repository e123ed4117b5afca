"""How a region without reductions is computed on a GPU: which loops a tile runs along.

The tile runs along the loop in which most accesses are contiguous, and along the loop around it
where that is short. Where both together fill it badly, it runs through all loops as one, at the
cost of dividing positions. Where operands lie across each other, tiles are square.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from amdjax.core.dims import choosing, is_multiple_at_hand, surely_equal
from amdjax.schedule.domain import Domain
from amdjax.schedule.gpu.tiles import (
    TileAxis,
    axes_text,
    block_extent,
    fastest_vector,
    narrowest,
    uneven,
)
from amdjax.schedule.index import LoopVar
from amdjax.schedule.map_plan import crossing_loop, is_flat, lane_loop
from amdjax.schedule.row_plan import counted, extent
from amdjax.schedule.search import Family, Solver
from amdjax.targets import GpuTarget

DIVIDING = 1.25  # what all loops as one cost, which takes positions apart, for each element
APART = 4.0  # what an element costs that lies apart from its neighbors in a wave
SHORT = 32  # loops shorter than this do not fill a memory access of a wave
EACH = 8  # elements of a thread where there are many
SIMPLE = 30  # operations from which fewer elements are enough
FLAT_THREADS = 64  # of a program on AMD's GPUs, where a tile is one piece of memory
UNDIVIDED = 1 << 31  # positions from here on take 64 bits to divide


@dataclass(frozen=True)
class GpuMapPlan:
    """A program computes one tile.

    Attributes:
      domain: the loops.
      axes: loops along the axes of the tile.
      outer: loops over programs.
      threads: that share a tile.
      vector: elements that a thread has side by side.
      flattened: the loops that the tile runs through as one.
      any_length: whether one kernel serves every length of the only loop.
    """

    domain: Domain
    axes: tuple[TileAxis, ...] = ()
    outer: tuple[LoopVar, ...] = ()
    threads: int = 1
    vector: int = 1
    flattened: tuple[LoopVar, ...] = ()
    any_length: bool = False

    @property
    def grid(self) -> int:
        """Programs."""
        return extent(self.outer) * math.prod(a.blocks for a in self.axes)

    def __str__(self) -> str:
        out = f"map of {self.domain.size}, {counted(self.grid, 'program')}"
        if self.axes:
            out += f" of {axes_text(self.axes)}, {self.threads} threads, vectors of {self.vector}"
        if self.flattened:
            out += f", {' '.join(v.name for v in self.flattened)} as one loop"
        return out + (", any length" if self.any_length else "")


def gpu_map_plans(domain: Domain, target: GpuTarget) -> list[GpuMapPlan]:
    """Schedules of a region without reductions on a GPU."""
    if not domain.vars:
        return [GpuMapPlan(domain)]
    with choosing():
        lane_var, plans = lane_loop(domain), []
        across = crossing_loop(domain, lane_var)
    if across is not None:
        plans.append(_squares(domain, target, lane_var, across))
    elif is_flat(domain):
        # Tiles of the size that suits the launch, so that its regions share code.
        count, threads, vector = _flat_tile(domain, target, domain.launch_size)
        shared = not surely_equal(domain.launch_size, domain.size)
        whole = not shared and is_multiple_at_hand(lane_var.extent, count)
        divisor = domain.launch_divisor if shared else count if whole else 0
        axes, any_length = (TileAxis(lane_var, count, divisor=divisor),), not whole
        flat = GpuMapPlan(domain, axes, (), threads, vector, any_length=any_length)
        return [_busy(flat, target)]
    return [*plans, *_blocks(domain, target, lane_var)]


def _blocks(domain: Domain, target: GpuTarget, lane_var: LoopVar) -> Iterator[GpuMapPlan]:
    """Tiles along one or two loops, or through all loops as one."""
    total = domain.size
    count, threads, vector = _tile_size(domain, target, total, lane_var)
    outer = [v for v in domain.vars if v is not lane_var]
    axes: tuple[TileAxis, ...] = (TileAxis(lane_var, block_extent(lane_var.extent, count)),)
    slow = block_extent(outer[-1].extent, count // axes[0].count) if outer else 1
    others = outer[:-1] if slow > 1 else outer
    if slow > 1:
        axes = (TileAxis(outer[-1], slow), *axes)
    yield _busy(GpuMapPlan(domain, axes, tuple(others), threads, vector), target)
    if outer and total < UNDIVIDED:
        one = (TileAxis(LoopVar("p", total), count),)
        plan = GpuMapPlan(domain, one, (), threads, vector, flattened=tuple(domain.vars))
        yield _busy(plan, target)


def gpu_map_cost(domain: Domain, plan: GpuMapPlan, target: GpuTarget) -> float:
    """Elements of full tiles that take as long as one element that is computed."""
    if not plan.axes:
        return 1.0
    lane_var = lane_loop(domain)
    across = crossing_loop(domain, lane_var)
    if across is not None and {a.var for a in plan.axes} == {lane_var, across}:
        return 1.0 if plan.axes[0].count == plan.axes[1].count else APART
    if plan.flattened:
        return DIVIDING if across is None else DIVIDING * APART
    apart = across is not None or not _stores_together(domain, lane_var)
    count, _, _ = _tile_size(domain, target, domain.size, lane_var)
    filled = min(math.prod(a.count for a in plan.axes) / count, 1.0)
    waste = math.prod(uneven(a.var.extent, a.count) for a in plan.axes) / filled
    short = max(SHORT / lane_var.extent * DIVIDING, 1.0) if lane_var.extent < SHORT else 1.0
    return waste * short * (APART if apart else 1.0)


def _stores_together(domain: Domain, lane_var: LoopVar) -> bool:
    """Whether neighbors along a loop are neighbors in what is stored, as far as any loop's are."""
    with choosing():
        return all(
            surely_equal(o.coefficient(lane_var), 1)
            or not any(surely_equal(o.coefficient(var), 1) for var in domain.vars)
            for _, o in domain.stores
        )


GPU_MAPS: Family[Domain, GpuTarget, GpuMapPlan] = Family(
    "map on a GPU", Solver("map", gpu_map_plans, gpu_map_cost)
)


def _squares(domain: Domain, target: GpuTarget, lane_var: LoopVar, across: LoopVar) -> GpuMapPlan:
    side = 64 if domain.widest <= 32 and domain.operations < 60 else 32
    outer = tuple(v for v in domain.vars if v not in (lane_var, across))
    threads = target.usual_workgroup
    vector = fastest_vector(target, narrowest(domain), across.extent, lane_var.extent)
    vector = min(vector, side * side // threads)
    axes = (TileAxis(across, side), TileAxis(lane_var, side))
    return _busy(GpuMapPlan(domain, axes, outer, threads, vector), target)


def _flat_tile(domain: Domain, target: GpuTarget, total: int) -> tuple[int, int, int]:
    """The size of a tile of neighbors in memory.

    Of many elements a thread has more on AMD's GPUs, no farther apart than the constant of an
    access reaches, lest each have an address of its own; so programs are small.
    """
    count, threads, vector = _tile_size(domain, target, total)
    each = count // threads

    def are_many() -> bool:
        return total * 4 >= target.busy_threads * each * 3

    with choosing():
        if not target.is_amdgpu or not are_many():
            return count, threads, vector
        while each < EACH and domain.operations < SIMPLE and are_many():
            each *= 2
    threads = min(threads, FLAT_THREADS)
    return threads * each, threads, vector


def _tile_size(
    domain: Domain, target: GpuTarget, total: int, *rows: LoopVar
) -> tuple[int, int, int]:
    """Elements of a tile, threads, and elements that a thread has side by side.

    Args:
      domain: the loops.
      target: the machine.
      total: elements of all tiles.
      rows: a loop at whose end memory goes on elsewhere.
    """
    vector = fastest_vector(target, narrowest(domain), *(row.extent for row in rows))
    if domain.operations > 60:
        vector = min(vector, 4 if domain.operations < 200 else 2)
    threads = target.usual_workgroup
    with choosing():
        while vector > 1 and total < target.busy_threads * vector // 4:
            vector //= 2
        while threads > target.wave_size and total <= threads * vector // 2:
            threads //= 2
        each = vector
        while (
            each < EACH and domain.operations < SIMPLE and total >= target.busy_threads * each * 4
        ):
            each *= 2
    return threads * each, threads, vector


def _busy(plan: GpuMapPlan, target: GpuTarget) -> GpuMapPlan:
    """The plan without waves that would only repeat what others compute.

    They would still read what those overwrite.
    """
    busy = math.prod(a.count for a in plan.axes) // plan.vector
    threads = min(plan.threads, max(busy, target.wave_size))
    return replace(plan, threads=threads)
