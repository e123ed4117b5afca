"""How a product is cut into blocks that fit the caches and keep all threads busy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.dims import Dim, DimSize, choosing, fits, size_hint
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.products.contraction import (
    Contraction,
    TileShape,
    lane_count,
    private_cache,
    tile_cost,
)
from amdjax.kernels.products.cpu.costs import (
    combining,
    launch,
    nanoseconds,
    packing,
    return_cycles,
    store_stall,
    work,
)
from amdjax.kernels.products.cpu.packing import depth_granularity
from amdjax.schedule.search import ROUNDING, shares
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

MOST_BLOCKINGS = 6  # of a tile that are looked at
MOST_EXTENTS = 6  # of blocks, along rows and columns
LONG_SUM = 512  # steps in depth that are summed from zero, whatever the caches hold
DEEP_GRAIN = 64  # of the depth of blocks that are as deep as a panel may be, for any depth


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


def blockings(
    problem: Contraction,
    target: CpuTarget,
    shape: TileShape,
    size: int | None = None,
    grain: int | None = None,
) -> list[Blocking]:
    """Blocks that fit the caches and keep all threads busy to the end, the best first.

    Args:
      problem: the contraction.
      target: the machine.
      shape: of the tiles.
      size: bytes of a packed element; by default those of a sum.
      grain: what the depth of blocks is a multiple of; by default what packing likes.
    """
    p, size = problem.typical.at_hand, size or itemsize(problem.accumulate)
    costs = _costs_of(p, target, shape, size)
    cuts = _cuts(problem, target, shape, size, grain)
    cuts.sort(key=lambda cut: costs.cycles(p, *cut))
    return [Blocking(shape, *cut) for cut in cuts[:MOST_BLOCKINGS]]


def best_blocking(
    problem: Contraction, target: CpuTarget, shapes: Sequence[TileShape]
) -> Blocking | None:
    """The first that is estimated to take least of the blocks of products in tiles of some shapes.

    As `blockings` has them; nothing is made for the others.
    """
    p, size = problem.typical.at_hand, itemsize(problem.accumulate)
    best, least = None, math.inf
    for shape in shapes:
        if nanoseconds(_least_cycles(p, target, shape), target) * ROUNDING >= least:
            continue
        costs = _costs_of(p, target, shape, size)
        for cut in _cuts(problem, target, shape, size):
            cost = nanoseconds(costs.cycles(p, *cut), target)
            if cost < least:
                best, least = (shape, cut), cost
    return best and Blocking(best[0], *best[1])


def least_time(problem: Contraction, target: CpuTarget, shapes: Sequence[TileShape]) -> float:
    """Nanoseconds of which blocks of tiles take no less; zero of symbolic sizes."""
    if problem.at_hand is not problem:
        return 0.0
    return nanoseconds(min(_least_cycles(problem, target, x) for x in shapes), target)


def _least_cycles(p: Contraction, target: CpuTarget, shape: TileShape) -> float:
    """Of multiplying and of packing the left operand once, wherever it is cut; see `_BlockCosts`.

    Blocks are deep enough for rounding their depth down to leave out no 32nd of it.
    """
    costs = target.costs
    packed = p.rows * p.depth * costs.copy / lane_count(target, p.accumulate) * 31 / 32
    each = p.depth * tile_cost(shape, p.rows, p.columns, target) + costs.program + packed
    return costs.call + p.batches * each / target.threads


#: What cuts a product but the tile: `Blocking`'s other arguments.
Cut = tuple[int, int, int, int, bool]


def _cuts(
    problem: Contraction, target: CpuTarget, shape: TileShape, size: int, grain: int | None = None
) -> list[Cut]:
    """Blocks of tiles of a shape worth a look."""
    groups, cuts_depth = problem.groups, problem.cuts_depth
    symbolic, problem = problem.typical, problem.typical.at_hand
    lines = shape.columns
    if shape.columns * size <= target.costs.cache_rate * shape.cycles(target.costs):
        # Panels stream from the second level; what stays in the first is the rows of a tile.
        lines = min(lines, shape.rows)
    least = 64 if problem.rows > shape.rows else LONG_SUM  # what is read once need not stay there
    panel = max(least, target.l1_bytes * 2 // 3 // (lines * size))
    depth = max(problem.depth, 1)
    # A panel is as fast from the second level, as long as all of `b` stays there.
    whole = depth <= 3 * panel and depth * problem.columns * size <= private_cache(target) // 4
    if depth > panel * 5 // 4 and not whole:
        granularity = math.lcm(*(depth_granularity(source) for source in (problem.a, problem.b)))
        depth = _equal_parts(depth, panel, grain or (16 if granularity == 1 else granularity))
    if isinstance(symbolic.depth, Dim):
        depth = round_up(max(depth, panel), DEEP_GRAIN)
    in_parts = depth < problem.depth or cuts_depth
    cuts = [*_candidates(problem, target, shape, depth, size, in_parts)]
    if groups is None:
        cuts += _splits(problem, target, shape, depth, size)
    return cuts


def _candidates(
    problem: Contraction, target: CpuTarget, shape: TileShape, depth: int, size: int,
    in_parts: bool,
) -> Iterator[Cut]:  # fmt: skip
    """Blocks of a depth whose packed elements, of `size` bytes, fit the second-level cache.

    Sums of a depth `in_parts` wait there, too.
    """
    high, wide = ceil_div(problem.rows, shape.rows), ceil_div(problem.columns, shape.columns)
    kept = private_cache(target) // 4 // (depth * size)
    most_rows = high if problem.rows <= kept else max(1, kept // shape.rows)
    # Lines of a shallow block are mostly room between them.
    line = line_stride(shape, depth) * size * shape.rows
    most_rows = min(most_rows, max(1, private_cache(target) // line))
    accumulators = shape.rows * shape.columns * itemsize(problem.accumulate)
    waiting = private_cache(target) // 4 // accumulators
    panel = depth * size * shape.columns
    for rows in extents(high, most_rows)[:MOST_EXTENTS]:
        most_columns = max(1, waiting // rows) if in_parts else wide
        shared = problem.b.fixed or ceil_div(high, rows) > 1
        if not shared:
            most_columns = min(most_columns, max(1, private_cache(target) // 3 // panel))
        for columns in extents(wide, most_columns)[:MOST_EXTENTS]:
            yield rows, columns, depth, 1, shared


def _splits(
    problem: Contraction, target: CpuTarget, shape: TileShape, depth: int, size: int
) -> list[Cut]:
    """All of the result in each program, and a part of the depth; where caches hold that."""
    if target.threads == 1 or problem.batches >= target.threads:
        return []
    if not _whole_fits(problem, target, shape, depth, size):
        return []
    high, wide = ceil_div(problem.rows, shape.rows), ceil_div(problem.columns, shape.columns)
    most = min(2 * target.threads, problem.depth // depth)
    return [(high, wide, depth, n, False) for n in shares(most)[1:]]


def block_cycles(
    problem: Contraction, target: CpuTarget, blocking: Blocking, size: int | None = None
) -> float:
    """Cycles, about, of the thread that takes longest, packing of elements of a size included."""
    size = size or itemsize(problem.accumulate)
    p = problem.typical.at_hand
    b = blocking
    costs = _costs_of(p, target, b.tile, size)
    return costs.cycles(p, b.rows, b.columns, b.depth, b.splits, b.shared)


def _costs_of(problem: Contraction, target: CpuTarget, shape: TileShape, size: int) -> _BlockCosts:
    """What is known of the costs of blocks of a product at hand; kept as long as that."""
    found: _BlockCosts | None = problem.memo.get((shape, size))
    if found is None or found.target is not target:
        found = problem.memo[shape, size] = _BlockCosts(target, shape, size)
    return found


class _BlockCosts:
    """What blocks of tiles of one shape cost in a product whose sizes are known.

    What depends on rows or on columns of a block alone is computed once for each number of them.
    The product, which keeps this, is an argument of each method, so that the two are no cycle.

    Args:
      target: the machine.
      shape: of the tiles.
      size: bytes of a packed element.
    """

    def __init__(self, target: CpuTarget, shape: TileShape, size: int):
        self.target, self._shape, self._size = target, shape, size
        self._wide, self._program = shape.columns, target.costs.program
        self._panels: dict[tuple[int, int, int], float] = {}
        self._arrivals: dict[tuple[int, int], float] = {}
        self._packed_a: dict[tuple[int, int], float] = {}
        self._packed_b: dict[tuple[int, int], float] = {}
        self._work: dict[tuple[()], float] = {}

    def cycles(
        self, p: Contraction, rows: int, columns: int, depth: int, splits: int, shared: bool
    ) -> float:
        """Cycles of the thread that takes longest, of blocks as `Blocking` has them."""
        target, shape = self.target, self._shape
        high, wide = ceil_div(p.rows, shape.rows), ceil_div(p.columns, self._wide)
        high_block, wide_block = min(rows, high), min(columns, wide)
        whole = max(p.depth, 1)
        part = ceil_div(whole, splits)
        parts = ceil_div(part, depth)
        each_panel = _known(self._panels, self._panel, p, high_block, part, parts)
        arrival = _known(self._arrivals, self._arrival, p, columns, part)
        if arrival:
            each_panel = max(each_panel, arrival)
            if p.b.fixed:  # at every step of the loop, and other blocks might not need it at all
                each_panel += arrival / 4
        each = each_panel * wide_block + self._program
        each += parts * _known(self._packed_a, self._packing_a, p, high_block, part // parts)
        if not shared:
            each += _known(self._packed_b, self._packing_b, p, wide_block, part)
        blocks = ceil_div(high, high_block) * ceil_div(wide, wide_block)
        counted = _known(self._work, self._counted, p)
        total = launch(each, p.batches * blocks * splits, target, counted=counted)
        if splits > 1:
            total += combining(p, splits, target)
        if shared and not p.b.fixed:
            packed = _known(self._packed_b, self._packing_b, p, 1, whole)
            total += launch(packed, p.batches * wide, target)
        return total

    def _panel(self, p: Contraction, rows: int, depth: int, parts: int) -> float:
        """Of a block's tiles along a panel of `b`."""
        target, made = self.target, 0.0
        for count, one in self._shape.covering(min(rows * self._shape.rows, p.rows)):
            cycles = depth * one.cycles(target.costs)
            cycles += parts * target.costs.tile + store_stall(p, one.rows, cycles, target, True)
            made += count * cycles
        return made

    def _arrival(self, p: Contraction, columns: int, depth: int) -> float:
        """Of a panel that comes from beyond the second level, once for each block of rows."""
        target, wide = self.target, self._shape.columns
        read = _panels_read(p, target, columns * wide, self._size)
        if read <= private_cache(target):
            return 0.0
        far = 0.0 if p.b.fixed else return_cycles(read, target)
        return depth * wide * self._size * (1 / target.costs.memory_rate + far)

    def _counted(self, p: Contraction) -> float:
        """The work that decides whether threads are woken."""
        return work(p, self.target, self._shape if self._size != itemsize(p.accumulate) else None)

    def _packing_a(self, p: Contraction, rows: int, depth: int) -> float:
        high = self._shape.rows
        words = self._size if self._size != itemsize(p.accumulate) else None
        return packing(p.a, rows * high, depth, high, self.target, p.accumulate, words)

    def _packing_b(self, p: Contraction, columns: int, depth: int) -> float:
        wide = self._shape.columns
        return packing(p.b, columns * wide, depth, wide, self.target, p.accumulate)


def _known(known: dict[Any, float], find: Callable[..., float], p: Contraction, *key: int) -> float:
    """What `find` finds of a product, from what is known already."""
    found = known.get(key)
    if found is None:
        found = known[key] = find(p, *key)
    return found


def _panels_read(problem: Contraction, target: CpuTarget, columns: int, size: int) -> float:
    """Bytes of packed `b` that a thread reads, in blocks of columns, before any of them again."""
    columns = min(columns, problem.columns)
    whole = problem.depth * size
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


def is_at_most(size: DimSize, most: int) -> bool:
    """Whether a size is no greater than a number, at the sizes at hand.

    What is made for greater ones has to be right for others, too, if not the best: of a symbolic
    size only that it is no greater is a guard.
    """
    with choosing():
        found = size <= most
    return bool(size <= most) if found and isinstance(size, Dim) else found


def like_one_tile(p: Contraction, shape: TileShape, target: CpuTarget) -> None:
    """Prefer sizes whose rows a tile holds as it does those at hand: two are twice the work.

    Of a product that takes no longer than to begin its kernel, that does not matter.
    """
    if size_hint(p.rows) <= shape.rows and work(p.at_hand, target) > target.costs.call:
        fits(p.rows, shape.rows)


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
