"""How a product is cut into blocks that fit the caches and keep all threads busy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.products.contraction import Contraction, TileShape, private_cache
from amdjax.kernels.products.cpu.packing import depth_granularity
from amdjax.schedule.search import busy_time, shares
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize


@dataclass(frozen=True)
class Blocking:
    """How a product is cut.

    Args:
      tile: what registers hold.
      rows: rows of a program's block, in tiles.
      columns: columns of a program's block, in tiles.
      depth: how deep a block is.
      splits: parts of the depth that different programs sum.
      shared: whether `b` is packed once, by a launch of its own.
    """

    tile: TileShape
    rows: int
    columns: int
    depth: int
    splits: int = 1
    shared: bool = True

    def __str__(self) -> str:
        block = f"{self.rows * self.tile.rows}×{self.columns * self.tile.columns}×{self.depth}"
        out = f"blocks of {block} in tiles of {self.tile}"
        out += ", b packed once" if self.shared else ", b packed by each program"
        return out + (f", split {self.splits} ways along depth" if self.splits > 1 else "")


def choose_blocking(
    problem: Contraction,
    target: CpuTarget,
    shape: TileShape,
    size: int | None = None,
    grain: int | None = None,
) -> Blocking:
    """Blocks that fit the caches and keep all threads busy to the end.

    Args:
      problem: the contraction.
      target: the machine.
      shape: of the tiles.
      size: bytes of a packed element; by default those of a sum.
      grain: what the depth of blocks is a multiple of; by default what packing likes.
    """
    size = size or itemsize(problem.accumulate)
    panel = max(64, target.l1_bytes * 2 // 3 // (shape.columns * size))
    depth = max(problem.depth, 1)
    # A panel is as fast from the second level, as long as all of `b` stays there.
    whole = depth <= 3 * panel and depth * problem.columns * size <= private_cache(target) // 4
    if depth > panel * 5 // 4 and not whole:
        granularity = math.lcm(*(depth_granularity(source) for source in (problem.a, problem.b)))
        depth = _equal_parts(depth, panel, grain or (16 if granularity == 1 else granularity))
    split = _choose_splits(problem, target, shape, depth, size)
    if split is not None:
        return split
    best, least = None, math.inf
    for blocking in candidates(problem, target, shape, depth, size):
        cost = block_cost(problem, target, blocking)
        if cost < least * 0.999:
            best, least = blocking, cost
    assert best is not None
    return best


def candidates(
    problem: Contraction, target: CpuTarget, shape: TileShape, depth: int, size: int
) -> Iterator[Blocking]:
    """Blocks of a depth whose packed elements, of `size` bytes, fit the second-level cache."""
    high, wide = ceil_div(problem.rows, shape.rows), ceil_div(problem.columns, shape.columns)
    most_rows = max(1, private_cache(target) // 4 // (depth * size * shape.rows))
    # Lines of a shallow block are mostly room between them.
    line = line_stride(shape, depth) * size * shape.rows
    most_rows = min(most_rows, max(1, private_cache(target) // line))
    accumulators = shape.rows * shape.columns * itemsize(problem.accumulate)
    waiting = private_cache(target) // 4 // accumulators
    panel = depth * size * shape.columns
    for rows in extents(high, most_rows):
        most_columns = max(1, waiting // rows) if depth < problem.depth else wide
        shared = problem.b.fixed or ceil_div(high, rows) > 1
        if not shared:
            most_columns = min(most_columns, max(1, private_cache(target) // 3 // panel))
        for columns in extents(wide, most_columns):
            yield Blocking(shape, rows, columns, depth, 1, shared)


def blockings(
    problem: Contraction,
    target: CpuTarget,
    shape: TileShape,
    size: int | None = None,
    grain: int | None = None,
) -> list[Blocking]:
    """The usual blocking, others of its depth, and some that split the depth, the best first."""
    usual = choose_blocking(problem, target, shape, size, grain)
    size = size or itemsize(problem.accumulate)
    depth = usual.depth
    found = list(candidates(problem, target, shape, depth, size))
    if target.threads > 1 and problem.batches < target.threads:
        high, wide = ceil_div(problem.rows, shape.rows), ceil_div(problem.columns, shape.columns)
        most = min(2 * target.threads, problem.depth // max(depth, 1))
        if _whole_fits(problem, target, shape, depth, size):
            found += [Blocking(shape, high, wide, depth, n, False) for n in shares(most)[1:]]
    found.sort(key=lambda cut: block_time(problem, target, cut))
    return list(dict.fromkeys([usual, *found[:MOST_BLOCKINGS]]))


def block_time(problem: Contraction, target: CpuTarget, blocking: Blocking) -> float:
    """Cycles, about, of one thread."""
    cost = block_cost(problem, target, blocking) * blocking.tile.cycles * problem.depth
    return busy_time(cost, blocking.splits, target.threads)


def block_cost(problem: Contraction, target: CpuTarget, blocking: Blocking) -> float:
    """Steps of the micro-kernel that one thread takes the time of, packing included."""
    shape, rows, columns = blocking.tile, blocking.rows, blocking.columns
    high, wide = ceil_div(problem.rows, shape.rows), ceil_div(problem.columns, shape.columns)
    programs = problem.batches * ceil_div(high, rows) * ceil_div(wide, columns)
    each_panel: float = min(rows, high)
    if _panels_read(problem, target, blocking) > private_cache(target):
        # Panels come from beyond the second level, once for each block of rows.
        arrival = shape.columns * itemsize(problem.accumulate) / (ARRIVAL * shape.cycles)
        each_panel = max(each_panel, arrival)
        if problem.b.fixed:  # at every step of the loop, and other blocks might not need it at all
            each_panel += arrival / 4
    tiles = each_panel * min(columns, wide)
    pack = PACKING * shape.rows * min(rows, high) / shape.cycles
    if not blocking.shared:
        pack += PACKING * shape.columns * min(columns, wide) / shape.cycles
    each = tiles + pack + PROGRAM_CYCLES / (shape.cycles * max(blocking.depth, 1))
    few = programs < 8 * target.threads
    rounds = ceil_div(programs, target.threads) if few else programs / target.threads
    cost = rounds * each
    if blocking.shared and not problem.b.fixed:
        packed = 2 * PACKING * shape.columns * wide * problem.batches
        cost += packed / shape.cycles / target.threads
    return cost


def _panels_read(problem: Contraction, target: CpuTarget, blocking: Blocking) -> float:
    """Bytes of packed `b` that a thread reads before it reads any of them again."""
    columns = min(blocking.columns * blocking.tile.columns, problem.columns)
    whole = problem.depth * itemsize(problem.accumulate)
    if not problem.b.fixed:
        return whole * problem.columns
    # In a loop a thread gets the same programs again, and finds its own panels in its cache.
    blocks = ceil_div(problem.columns, columns)
    return whole * columns * ceil_div(blocks * problem.batches, target.threads)


def line_stride(shape: TileShape, depth: int) -> int:
    """Elements from one packed line to the next.

    A multiple of a page would put all lines of a panel into the same cache sets.
    """
    return round_up(depth + shape.lanes, 16) + 16


MOST_BLOCKINGS = 6  # of a tile that are looked at
PACKING = 0.15  # cycles to copy an element
ARRIVAL = 4.0  # bytes a cycle that a thread reads from beyond the second level
PROGRAM_CYCLES = 1500  # cycles a program costs before it does anything


def _choose_splits(
    problem: Contraction, target: CpuTarget, shape: TileShape, depth: int, size: int
) -> Blocking | None:
    """All of the result in each program, a part of the depth; None where that does not pay."""
    high, wide = ceil_div(problem.rows, shape.rows), ceil_div(problem.columns, shape.columns)
    fits = _whole_fits(problem, target, shape, depth, size)
    parts = ceil_div(problem.depth, depth)
    # What is packed before a loop is packed whole, and tiles that read it are cheap to begin.
    enough = problem.b.fixed and high * wide >= 2 * target.threads
    if not fits or enough or problem.batches >= target.threads or parts < 8 or target.threads == 1:
        return None
    splits = min(parts // 2, max(1, 2 * target.threads // problem.batches))
    return Blocking(shape, high, wide, depth, splits, shared=False)


def _whole_fits(
    problem: Contraction, target: CpuTarget, shape: TileShape, depth: int, size: int
) -> bool:
    """Whether a program's caches hold all of the result and what a block of depth takes."""
    high, wide = ceil_div(problem.rows, shape.rows), ceil_div(problem.columns, shape.columns)
    whole = high * wide * shape.rows * shape.columns * itemsize(problem.accumulate)
    packed = depth * size * (high * shape.rows + wide * shape.columns)
    return whole <= private_cache(target) // 3 and packed <= private_cache(target) // 2


def _equal_parts(total: int, most: int, granularity: int) -> int:
    """The size of equal parts of `total`, about `most` or less, a multiple of `granularity`."""
    part = ceil_div(total, ceil_div(total, most))
    return round_up(part, granularity)


def extents(total: int, most: int) -> list[int]:
    """Block sizes worth trying: those that cut `total` into nearly equal parts, largest first."""
    most = min(total, most)
    out: list[int] = []
    parts = ceil_div(total, most)
    while len(out) < 12 and parts <= total:
        size = ceil_div(total, parts)
        if not out or size < out[-1]:
            out.append(size)
        parts = ceil_div(total, size - 1) if size > 1 else total + 1
    return out
