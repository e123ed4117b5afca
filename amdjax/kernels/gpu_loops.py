"""What kernel families for GPUs share."""

from __future__ import annotations

from collections.abc import Sequence

from amdjax.core.dims import choosing, is_multiple
from amdjax.core.integers import ceil_div, power_of_two
from amdjax.schedule.gpu.tiles import TileAxis, block_extent, uneven
from amdjax.schedule.index import LoopVar
from amdjax.targets import GpuTarget
from amdjax.tile import Builder, Value

EACH = 4  # elements of a thread
WASTE = 1.1  # rows of tiles for each row that exists, from which on tiles get fewer
NARROW, NARROW_WASTE = 32, 0.15  # columns of a tile where wider ones waste so much more


def threads_for(target: GpuTarget, total: int, each: int = EACH) -> int:
    """Threads of a program: fewer than usual where there are few elements in all."""
    threads = target.usual_workgroup
    with choosing():
        while threads > target.wave_size and total <= threads * each // 2:
            threads //= 2
    return threads


def element_tile(k: Builder, target: GpuTarget, total: int) -> tuple[Value, Value | None, int]:
    """Deal elements to programs, a tile for each.

    Args:
      k: the kernel, which gets its number of threads.
      target: the GPU.
      total: number of elements.

    Returns:
      The numbers of a program's elements as a tile, which of them exist (None if all do), and the
      number of programs.
    """
    k.schedule.workgroup = threads_for(target, total, EACH)
    count = k.schedule.workgroup * EACH
    base = k.program_id() * count
    numbers = k.iota(count) + k.broadcast(base, (count,))
    if is_multiple(total, count):
        return numbers, None, total // count
    rest = k.convert(k.const("index", total) - base, "i32")
    return numbers, k.iota(count, "i32") < rest, ceil_div(total, count)


def spread(k: Builder, x: Value, like: Value) -> Value:
    """A scalar in all lanes of a tile."""
    return k.broadcast(x, like.shape)


def tile_of(
    target: GpuTarget, rows: int, columns: int, each: int, narrow: bool = False
) -> tuple[tuple[TileAxis, TileAxis], int]:
    """The axes of a tile, and the threads that hold `each` elements of it.

    Tiles have fewer rows where many would lie beyond the last one; and few columns, if they may be
    `narrow`, where wider ones would waste much.
    """
    most = target.usual_workgroup * each
    with choosing():
        wide = block_extent(columns, most)
        if narrow and uneven(columns, NARROW) < uneven(columns, wide) - NARROW_WASTE:
            wide = NARROW
        least = max(1, target.wave_size * each // wide)
        heights = [1 << i for i in range(power_of_two(rows).bit_length())]
        fitting = [h for h in heights if least <= h <= most // wide] or heights[-1:]
        best = min(uneven(rows, h) for h in fitting)
        high = max(h for h in fitting if uneven(rows, h) <= WASTE * best)
    axes = TileAxis(LoopVar("r", rows), high), TileAxis(LoopVar("c", columns), wide)
    return axes, max(target.wave_size, high * wide // each)


def lanes_inside(
    k: Builder, shape: tuple[int, int], across: int, first: Value, shift: int, extent: int
) -> Value:
    """Which elements of a tile have a coordinate in `range(extent)`.

    Args:
      k: the kernel.
      shape: of the tile.
      across: the axis along which the coordinate moves.
      first: the coordinate of the first element.
      shift: by how much it moves from one to the next.
      extent: the first coordinate that is not inside.
    """
    steps = k.iota(shape[across], "i32") * k.const("i32", shift)
    place = steps + k.convert(first, "i32")
    # Negative numbers are large unsigned ones: one comparison for both ends.
    inside = k.convert(place, "u32") < k.const("u32", extent)
    return k.broadcast(k.expand(inside, 1 - across), shape)


def every(k: Builder, masks: Sequence[Value]) -> Value | None:
    """Where all masks are true; None if there are none."""
    both = None
    for mask in masks:
        both = mask if both is None else both & mask
    return both
