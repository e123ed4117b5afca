"""Elements of a region on a GPU, where a tile is spread over a workgroup.

Neighboring threads should touch neighboring memory. Two things are done for that which a CPU does
not need: what lies along the slow axis of a tile is read along that axis and transposed, and one
loop instead of several short ones keeps those accesses contiguous that are.

Rows whose length is no multiple of the elements that a thread moves at once may have tiles that
begin a few elements early, where an access of the whole array's alignment does. Lanes before the
row are masked off as those behind it are.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

from amdjax import tile
from amdjax.core.dims import surely_equal
from amdjax.schedule.element import ElementBuilder
from amdjax.schedule.index import Index, LoopVar, Symbol, delinear
from amdjax.schedule.values import Lanes


class TileElements(ElementBuilder):
    """Writes tile code for elements, for GPUs."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._flattened: tuple[list[LoopVar], LoopVar] | None = None
        self._digits: dict[Symbol, Index] = {}
        self._grouped: dict[tuple[tuple[Symbol, int], ...], Index] = {}
        #: Aligned places in arrays, by what is added there to the position in the row.
        self.starts: dict[Index, tile.Value] = {}

    def flatten_loops(self, variables: Sequence[LoopVar], position: LoopVar) -> None:
        """Let `position` count through all points of the loops, in row-major order."""
        self._flattened = list(variables), position
        digits = delinear(Index.of(position), tuple(v.extent for v in variables))
        self._digits = dict(zip(variables, digits, strict=True))
        self._grouped.clear()

    def resolved(self, offset: Index) -> Index:
        offset = super().resolved(offset)
        if self._flattened is None:
            return offset
        # Accesses of a window differ in the constant alone; no loop is written in parts here.
        found = self._grouped.get(offset.terms)
        if found is None:
            found = _regrouped(Index(0, offset.terms), *self._flattened, self._digits)
            self._grouped[offset.terms] = found
        return found + offset.const

    def _symbol_tile(self, s: Symbol) -> tile.Value:
        digit = self._digits.get(s)
        return super()._symbol_tile(s) if digit is None else self.index_tile(digit)

    def _split_offset(self, offset: Index) -> tuple[tile.Value | None, list[int]]:
        for lanes in self.lanes:
            if self.starts and isinstance(lanes, EdgeLanes) and lanes.place is not None:
                start = self.starts.get(offset - Index.of(lanes.var))
                if start is not None:  # known to be aligned, as it is not when both are added up
                    return start + lanes.place, [1]
        return super()._split_offset(offset)

    # Accesses across the tile

    def _load(self, buffer: tile.Buffer, offset: Index) -> tile.Value:
        place = self._across(offset)
        if place is None:
            return super()._load(buffer, offset)
        base, strides, shape, mask = place
        return self.k.transpose(self.k.load(buffer, base, shape, strides, mask))

    def _store(self, buffer: tile.Buffer, offset: Index, value: tile.Value) -> None:
        place = self._across(offset)
        if place is None:
            super()._store(buffer, offset, value)
            return
        base, strides, shape, mask = place
        value = self.k.transpose(self.k.broadcast(value, shape[::-1]))
        self.k.store(buffer, base, value, strides, mask)

    def _across(
        self, offset: Index
    ) -> tuple[tile.Value, list[int], tuple[int, ...], tile.Value | None] | None:
        """Place, strides, shape and mask of the transposed access, where that is contiguous."""
        if len(self.lanes) != 2 or self.guards:
            return None
        base, strides = self._split_offset(self.resolved(offset))
        if base is None or strides[0] not in (1, -1) or -2 < strides[1] < 2:
            return None
        slow, fast = sorted(self.lanes, key=lambda lanes: lanes.axis)
        if slow.count < 8 or fast.count < 8:
            return None
        shape = (fast.count, slow.count)
        masks = [turned_mask(self.k, fast, 0), turned_mask(self.k, slow, 1)]
        return base, strides[::-1], shape, self._every(masks, shape)

    def _every(
        self, masks: Sequence[tile.Value | None], shape: tuple[int, ...]
    ) -> tile.Value | None:
        """The masks there are, as one of the tile."""
        wide = [self.k.broadcast(m, shape) for m in masks if m is not None]
        return functools.reduce(operator.and_, wide) if wide else None


class EdgeLanes(Lanes):
    """Lanes that know which of them exist before that is laid along an axis of the tile.

    `place` is the first lane's, counted from where tiles of the row begin, if that is before it.
    """

    edge: tile.Value | None = None
    place: tile.Value | None = None


def edge_lanes(
    k: tile.Builder, var: LoopVar, count: int, axis: int | None, base: tile.Value,
    edge: tile.Value | None,
) -> EdgeLanes:  # fmt: skip
    """A loop along an axis of the tile; along the only one if `axis` is None.

    Args:
      k: the kernel.
      var: the loop.
      count: lanes.
      axis: of a tile of rank 2.
      base: the first lane's place in the loop.
      edge: which lanes exist, as a tile of rank 1; None if all do.
    """
    mask = edge if axis is None or edge is None else k.expand(edge, 1 - axis)
    lanes = EdgeLanes(var, count, axis or 0, base, mask)
    lanes.edge = edge
    return lanes


def turned_mask(k: tile.Builder, lanes: Lanes, axis: int) -> tile.Value | None:
    """Which lanes exist, along another axis of the tile."""
    edge = lanes.edge if isinstance(lanes, EdgeLanes) else None
    return None if edge is None else k.expand(edge, 1 - axis)


def _regrouped(
    offset: Index, variables: Sequence[LoopVar], position: LoopVar, digits: dict[Symbol, Index]
) -> Index:
    """An offset in terms of the position among all elements of the loops.

    Loops that are one to the access stay one, so that a contiguous access is seen to be.
    """
    own = set(variables)
    rest = Index(offset.const, tuple((s, c) for s, c in offset.terms if s not in own))
    out = rest.substitute(digits)
    i, step = len(variables), 1
    while i:
        i -= 1
        coefficient, size = offset.coefficient(variables[i]), variables[i].extent
        while i and surely_equal(offset.coefficient(variables[i - 1]), coefficient * size):
            i -= 1
            size *= variables[i].extent
        if coefficient:
            digit = Index.of(position) // step
            out = out + (digit % size if i else digit) * coefficient
        step *= size
    return out
