"""Tiles of a GPU's programs: how large, along which loops, by how many threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import choosing, is_multiple, surely_equal
from amdjax.core.integers import ceil_div, power_of_two, round_up
from amdjax.schedule.domain import Domain
from amdjax.schedule.fusion import Region
from amdjax.schedule.gpu.element import EdgeLanes, edge_lanes
from amdjax.schedule.index import LoopVar
from amdjax.schedule.values import part_dtype, short_dtype
from amdjax.targets import GpuTarget


@dataclass(frozen=True)
class TileAxis:
    """A loop spread along an axis of a tile.

    Args:
      var: the loop.
      count: lanes, a power of two.
      size: the loop's extent where the kernel is told at run time.
      whole: lanes of the tile of which these are a slice; 0 where they are the tile.
      early: whether tiles may begin before the loop does.
      divisor: what divides every extent that the code is for; 0 where that is the loop's alone.
    """

    var: LoopVar
    count: int
    size: tile.Value | None = None
    whole: int = 0
    early: bool = False
    divisor: int = 0

    @property
    def blocks(self) -> int:
        """Tiles it takes."""
        return ceil_div(self.var.extent, self.count)

    @property
    def is_whole(self) -> bool:
        """Whether one tile holds the loop."""
        return self.count >= self.var.extent

    def edge(self, k: tile.Builder, base: tile.Value, stop: tile.Value | int) -> tile.Value | None:
        """Which lanes from `base` lie before `stop`; None if all do.

        Neighbors that a thread holds side by side exist together where the extent allows, which
        the comparison of their common number shows.
        """
        extent, divisor = self.var.extent, self.divisor or self.var.extent
        if self.early:  # as an unsigned number, what is before the first lane is behind the last
            place = k.iota(self.count, "u32") + k.convert(base, "u32")
            return place < k.const("u32", extent)
        # A slice may lie behind the end whole, where the tile does not fit the extent.
        at_end = not isinstance(stop, tile.Value) and surely_equal(stop, extent)
        if at_end and is_multiple(divisor, self.whole or self.count):
            return None
        last = self.size if self.size is not None else k.index(stop)
        remaining = k.convert(last - base, "i32")
        lanes = k.iota(self.count, "i32")
        together = (k.schedule.vector - 1).bit_length()
        vector = k.schedule.vector
        if together and is_multiple(divisor, vector) and self.count % vector == 0:
            lanes = k.op("shr_arithmetic", lanes, k.const("i32", together, lanes.shape))
            remaining = k.op("shr_arithmetic", remaining, k.const("i32", together))
        return lanes < remaining


def axes_text(axes: Sequence[TileAxis]) -> str:
    """Lanes along each axis, for people: `4×256 over i0 i1`."""
    counts = "×".join(str(a.count) for a in axes)
    return f"{counts} over {' '.join(a.var.name for a in axes)}"


def tile_lanes(
    k: tile.Builder,
    axes: Sequence[TileAxis],
    bases: Sequence[tile.Value],
    stops: Sequence[tile.Value | int | None] = (None, None),
) -> list[EdgeLanes]:
    """The lanes of a tile whose axes begin at `bases` and end before `stops` or their extents."""
    out = []
    for i, (axis, base, stop) in enumerate(zip(axes, bases, stops)):
        edge = axis.edge(k, base, axis.var.extent if stop is None else stop)
        out.append(edge_lanes(k, axis.var, axis.count, i if len(axes) > 1 else None, base, edge))
    return out


def first_lanes(
    k: tile.Builder, axes: Sequence[TileAxis], number: tile.Value, outer: int
) -> tuple[list[tile.Value], tile.Value]:
    """Where the tile of a number begins; numbers count tiles, then the loops around.

    Args:
      k: the kernel.
      axes: of the tile.
      number: of the tile.
      outer: how many loops there are around the tiles.

    Returns:
      The first lane along each axis, and what is left of the number for the loops around.
    """
    bases: list[tile.Value] = []
    cut = [axis for axis in axes if not surely_equal(axis.blocks, 1) or axis.size is not None]
    for axis in reversed(axes):
        if axis not in cut:
            bases.insert(0, k.const("index", 0))
            continue
        if axis is cut[0] and not outer:
            bases.insert(0, number * axis.count)
            continue
        blocks = k.const("index", axis.blocks)
        bases.insert(0, (number % blocks) * axis.count)
        number = number // blocks
    return bases, number


def region_name(kind: str, region: Region) -> str:
    """A name for a kernel: what it computes, as profilers and error messages show it.

    The kind in front keeps kernels from being called `exp`, of which LLVM believes to know all.
    """
    return "_".join([kind, *(r.eqn.primitive.name for r in region.roots)])[:56]


def uneven(extent: int, count: int) -> float:
    """Lanes for each step of a loop."""
    return round_up(extent, count) / extent


def block_extent(extent: int, most: int) -> int:
    """Lanes along a loop: as many as are useful, unless shorter blocks waste much less."""
    with choosing():
        count = min(power_of_two(extent), most)
        best = count
        while count >= 64:
            if uneven(extent, count) < uneven(extent, best) - 0.15:
                best = count
            count //= 2
    return best


def narrowest(domain: Domain) -> int:
    """Bits of the narrowest elements in memory."""
    names = {part_dtype(short_dtype(v.aval.dtype)) for v, _ in domain.loads + domain.stores}
    return min((8 * tile.itemsize(name) for name in names), default=32)


def fastest_vector(target: GpuTarget, bits: int, *rows: int) -> int:
    """Elements side by side in a thread; rows whose length they do not divide are not aligned."""
    vector = target.vector_for(bits)
    while not all(is_multiple(row, vector) for row in rows):
        vector //= 2
    return vector
