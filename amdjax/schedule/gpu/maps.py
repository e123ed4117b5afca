"""Kernels of regions without reductions, for GPUs: a program computes one tile.

The tile runs along the loop in which most accesses are contiguous, and along the loop around it
where that is short. Where both together fill it badly, it runs through all loops as one, at the
cost of dividing positions. Where operands lie across each other, tiles are square.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from amdjax.schedule.calls import Call
from amdjax.schedule.gpu.element import TileElements
from amdjax.schedule.gpu.tiles import (
    TileAxis,
    block_extent,
    fastest_vector,
    first_lanes,
    narrowest,
    region_name,
    tile_lanes,
    uneven,
)
from amdjax.schedule.index import LoopVar
from amdjax.schedule.maps import MapKernel
from amdjax.targets import GpuTarget

WASTE = 1.25  # elements of tiles for each element computed, from which all loops run as one
SHORT = 32  # loops shorter than this do not fill a memory access of a wave
UNDIVIDED = 1 << 31  # positions from here on take 64 bits to divide


class GpuMapKernel(MapKernel):
    """A region without reductions."""

    elements = TileElements
    b: TileElements
    target: GpuTarget

    @property
    def name(self) -> str:  # type: ignore[override]
        return region_name("map", self.region)

    def _build_flat(self, var: LoopVar) -> Call:
        n = var.extent
        count = self._tile_size(n)
        size = None if n % count == 0 else self.k.size(self.param(n, "index", "size"))
        return self._program([TileAxis(var, count, size)], [])

    def _build_blocks(self, lane_var: LoopVar) -> Call:
        total, n = self.domain.size, lane_var.extent
        count = self._tile_size(total, lane_var)
        outer = [v for v in self.domain.vars if v is not lane_var]
        fast = block_extent(n, count)
        slow = block_extent(outer[-1].extent, count // fast) if outer else 1
        waste = uneven(n, fast) * (uneven(outer[-1].extent, slow) if outer else 1.0)
        filled = min(fast * slow / count, 1.0)
        if (waste > WASTE * filled or n < SHORT) and len(outer) and total < UNDIVIDED:
            return self._build_walk(count)
        axes = [TileAxis(lane_var, fast)]
        if slow > 1:
            axes.insert(0, TileAxis(outer.pop(), slow))
        return self._program(axes, outer)

    def _build_walk(self, count: int) -> Call:
        """All loops as one."""
        position = LoopVar("p", self.domain.size)
        self.b.walk(self.domain.vars, position)
        return self._program([TileAxis(position, count)], [])

    def _build_transposing(self, lane_var: LoopVar, across: LoopVar) -> Call:
        side = 64 if self.domain.widest <= 32 and self.domain.operations < 60 else 32
        k, outer = self.k, [v for v in self.domain.vars if v not in (lane_var, across)]
        k.schedule.workgroup = self.target.usual_workgroup
        k.schedule.vector = fastest_vector(
            self.target, narrowest(self.domain), across.extent, lane_var.extent
        )
        k.schedule.vector = min(k.schedule.vector, side * side // k.schedule.workgroup)
        return self._program([TileAxis(across, side), TileAxis(lane_var, side)], outer)

    def _tile_size(self, total: int, *rows: LoopVar) -> int:
        """Elements of a tile; decides about threads and vectors.

        Args:
          total: elements of all tiles.
          rows: a loop at whose end memory goes on elsewhere.
        """
        domain, k = self.domain, self.k
        vector = fastest_vector(self.target, narrowest(domain), *(row.extent for row in rows))
        if domain.operations > 60:
            vector = min(vector, 4 if domain.operations < 200 else 2)
        threads = self.target.usual_workgroup
        while vector > 1 and total < self.target.busy_threads * vector // 4:
            vector //= 2
        while threads > self.target.wave_size and total <= threads * vector // 2:
            threads //= 2
        k.schedule.workgroup, k.schedule.vector = threads, vector
        each = vector
        while each < 8 and domain.operations < 30 and total >= self.target.busy_threads * each * 4:
            each *= 2
        return threads * each

    def _program(self, axes: Sequence[TileAxis], outer: Sequence[LoopVar]) -> Call:
        """One tile a program, in row-major order of tiles."""
        k, pid = self.k, self.k.program_id()
        # Waves that only repeat what others compute would still read what those overwrite.
        busy = math.prod(a.count for a in axes) // k.schedule.vector
        k.schedule.workgroup = min(k.schedule.workgroup, max(busy, self.target.wave_size))
        bases, rest = first_lanes(k, axes, pid, len(outer))
        self.bind_outer(outer, rest)
        self.with_lanes(tile_lanes(k, axes, bases), self.store_roots)
        grid = math.prod(v.extent for v in outer) * math.prod(a.blocks for a in axes)
        return self.finish(grid, self.domain.size)
