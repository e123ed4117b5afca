"""Rows whose length is no multiple of the elements that a thread moves at once.

Their tiles begin a few elements early, where an access of the whole array's alignment does. Lanes
before the row are masked off as those behind it are.
"""

from __future__ import annotations

from amdjax import tile
from amdjax.schedule.domain import Domain
from amdjax.schedule.gpu.element import EdgeLanes, TileElements
from amdjax.schedule.index import Index, LoopVar

__all__ = ["AlignedElements", "row_start"]


def row_start(domain: Domain, loop: LoopVar) -> Index | None:
    """Where rows along a loop begin, in elements of the arrays; None if that differs among them."""
    offsets = [o for _, o in domain.loads + domain.stores if o.depends_on(loop)]
    starts = {o - Index.of(loop) for o in offsets}
    (start,) = starts if len(starts) == 1 else (None,)
    return None if start is None or start.depends_on(loop) else start


class AlignedElements(TileElements):
    """Elements of such rows."""

    #: Aligned places in arrays, by what is added there to the position in the row.
    starts: dict[Index, tile.Value] | None = None

    def _split_offset(self, offset: Index) -> tuple[tile.Value | None, list[int]]:
        for lanes in self.lanes:
            if self.starts and isinstance(lanes, EdgeLanes) and lanes.place is not None:
                start = self.starts.get(offset - Index.of(lanes.var))
                if start is not None:  # known to be aligned, as it is not when both are added up
                    return start + lanes.place, [1]
        return super()._split_offset(offset)
