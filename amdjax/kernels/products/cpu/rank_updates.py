"""Few rows times a large matrix whose columns lie side by side.

Tiles that run along the whole depth would read a few columns at a time, a line of another page at
each step, which no cache foresees. Here the matrix is read once and in its own order, a few of its
rows at a time: each of these blocks is a rank-k update of the result, whose sums wait in the
second-level cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import Dim, bound, is_multiple, no_less
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import (
    Contraction,
    ProductProblem,
    Sink,
    TileShape,
    best_tiles,
    private_cache,
)
from amdjax.kernels.products.cpu.costs import (
    combining,
    conversions,
    launch,
    launch_time,
    nanoseconds,
    work,
)
from amdjax.kernels.products.cpu.micro_kernel import multiply
from amdjax.kernels.products.cpu.plain import PlainProduct, plain_contraction, stride_of
from amdjax.kernels.products.writing import store_tile
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Solver, shares
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize
from amdjax.tile.types import CACHE_LINE

Value = tile.Value

RANK = 16  # rows of the matrix that are read side by side; as many streams are prefetched
LEAST_DEPTH = 4 * RANK
TURN = 15  # cycles to begin and end an update of a tile
MOST_ROWS = 64  # beyond which packing the matrix is little of the work
MOST_TILES = 3  # of different shapes that are looked at
LONG_SUM = 512 * RANK  # with whose length rounding errors grow, so that longer ones are split
SPLIT_DEPTH = 256  # least part of a depth that programs share
PREFETCHED_ROWS = 3  # least rows of tiles that prefetch; those of fewer do little but load
LEAST_COLUMNS = 256  # of a program, so that streams are long


@dataclass(frozen=True)
class RankUpdatesPlan:
    """Sums that wait in cache while the matrix streams by.

    Args:
      problem: the contraction; rows, columns and depth are one loop each.
      tile: what registers hold of the result during an update.
      width: tiles along the columns that a program sums.
      splits: parts of the depth that different programs sum.
      prefetch: whether the next block of the matrix is asked for while one is multiplied.
    """

    problem: Contraction
    tile: TileShape
    width: int
    splits: int
    prefetch: bool

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return RankUpdates(ctx, self).calls()

    def __str__(self) -> str:
        columns = f"{self.width * self.tile.columns} columns in a program"
        out = f"rank-{RANK} updates of {self.problem}, {columns}, in tiles of {self.tile}"
        out += ", prefetched" if self.prefetch else ""
        return out + (f", split {self.splits} ways along depth" if self.splits > 1 else "")


def rank_updates_plans(product: ProductProblem, target: CpuTarget) -> list[RankUpdatesPlan]:
    """Plans for few rows and a right operand whose columns lie side by side."""
    p = plain_contraction(product.merged)
    if p is None or stride_of(p.b.lines) != 1:
        return []
    rows, columns, depth = p.at_hand.rows, p.at_hand.columns, p.at_hand.depth
    if rows > MOST_ROWS or columns < LEAST_COLUMNS or depth < LEAST_DEPTH:
        return []
    shapes = [x for x in best_tiles(p, target) if x.rows <= rows and x.columns <= columns]
    plans = []
    for shape in shapes[:MOST_TILES]:
        widths = _widths(p, shape, target)
        least = ceil_div(depth, LONG_SUM)
        # Hardware alone does not ask for enough while tiles of several rows are multiplied.
        prefetch = shape.rows >= PREFETCHED_ROWS and not _is_near(p.at_hand, target)
        plans += [RankUpdatesPlan(p, shape, width, least, prefetch) for width in widths]
        programs = p.at_hand.batches * ceil_div(columns, min(widths) * shape.columns)
        most = min(ceil_div(2 * target.threads, programs), depth // SPLIT_DEPTH)
        splits = (n for n in shares(most) if n > least)
        plans += [RankUpdatesPlan(p, shape, min(widths), n, prefetch) for n in splits]
    return list(dict.fromkeys(plans))


def _widths(p: Contraction, shape: TileShape, target: CpuTarget) -> list[int]:
    """Tiles along the columns of programs whose sums stay in a cache."""
    wide = ceil_div(p.at_hand.columns, shape.columns)
    least = ceil_div(LEAST_COLUMNS, shape.columns)
    sums = _most_tiles(p, shape) * shape.rows * shape.columns * itemsize(p.accumulate)
    first, second = (size // sums for size in (near_bytes(target), private_cache(target) // 2))
    for_threads = (ceil_div(wide, n) for n in shares(4 * target.threads))
    return [max(least, min(second, n)) for n in (*for_threads, min(first, wide))]


def _most_tiles(p: Contraction, shape: TileShape) -> int:
    """Tiles along the rows that sums have room for."""
    return ceil_div(MOST_ROWS if isinstance(p.rows, Dim) else p.rows, shape.rows)


def near_bytes(target: CpuTarget) -> int:
    """What sums may take of the first-level cache."""
    return target.l1_bytes * 2 // 3


def _is_near(p: Contraction, target: CpuTarget) -> bool:
    """Whether the matrix has room in the cache of a core."""
    return p.depth * p.columns * itemsize(p.b.dtype) <= private_cache(target)


def rank_updates_cost(product: ProductProblem, plan: RankUpdatesPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    p, shape, costs = plan.problem.at_hand, plan.tile, target.costs
    high, wide = ceil_div(p.rows, shape.rows), ceil_div(p.columns, shape.columns)
    step = shape.cycles(costs) + conversions(p, shape.rows, shape.vectors, target)
    # Sums are loaded and stored once for `RANK` steps, from where all of a program's find room.
    area = shape.rows * shape.columns * itemsize(p.accumulate)
    far = min(plan.width, wide) * high * area > near_bytes(target)
    moved = 2 * area / costs.cache_rate if far else 3 * costs.load * shape.rows * shape.vectors
    step += (moved + TURN) / RANK
    size = itemsize(p.b.dtype)
    rate = costs.stream_rate if _is_near(p, target) else costs.memory_rate
    arrival = shape.columns * size / rate
    tile = p.depth / plan.splits * max(high * step, arrival) + high * costs.tile
    programs = p.batches * ceil_div(wide, plan.width) * plan.splits
    total = p.batches * plan.splits * wide * tile
    cycles = launch(min(plan.width, wide) * tile, programs, target, total, work(p, target))
    return nanoseconds(cycles + combining(p, plan.splits, target), target)


RANK_UPDATES = Solver("rank updates", rank_updates_plans, rank_updates_cost)


class RankUpdates(PlainProduct):
    """Sums that wait in cache while the matrix streams by."""

    def __init__(self, ctx: ShapedContext, plan: RankUpdatesPlan):
        super().__init__(ctx, plan.problem, plan.splits)
        self.plan, self.shape = plan, plan.tile
        self.depth = ceil_div(plan.problem.depth, plan.splits)
        no_less(plan.problem.rows, plan.tile.rows)
        no_less(plan.problem.columns, plan.tile.columns)
        bound(plan.problem.rows, MOST_ROWS)
        bound(plan.problem.depth, LONG_SUM * plan.splits)

    def _product(self, sink: Sink) -> Call:
        p, shape, plan = self.problem, self.shape, self.plan
        high, wide = ceil_div(p.rows, shape.rows), ceil_div(p.columns, shape.columns)
        blocks = ceil_div(wide, plan.width)
        places, part = self.begin("rank_updates", sink, [blocks])
        k = self.k
        area, most = shape.rows * shape.columns, _most_tiles(p, shape)
        self.sums = k.scratch("sums", p.accumulate, most * plan.width * area)
        low, top = k.const("index", 0), k.const("index", p.depth)
        if part is not None:
            low = part * self.depth
            top = k.min(low + self.depth, top)
        first = places[0] * plan.width
        count = k.min(k.const("index", wide) - first, plan.width)

        def each(body: Callable[[Value, Value, Value], None]) -> None:
            """For the place of each tile's sums, its first row and column."""

            def column(j: Value) -> None:
                at = k.min((first + j) * shape.columns, p.columns - shape.columns)

                def row(i: Value) -> None:
                    line = k.min(i * shape.rows, p.rows - shape.rows)
                    body((j * most + i) * area, line, at)

                k.for_(0, high, 1, row)

            k.for_(0, count, 1, column)

        zero = k.const(p.accumulate, 0, (self.lanes,))
        k.for_(0, count * (most * area), self.lanes, lambda at: k.store(self.sums, at, zero, (1,)))

        def update(start: Value) -> None:
            stop = k.min(start + RANK, top)
            each(lambda at, row, column: self._update(start, stop, at, row, column))

        k.for_(low, top, RANK, update)
        # Those at the end were moved back over their neighbors instead of cut.
        whole = is_multiple(p.columns, shape.columns)
        rows, width = k.const("index", shape.rows), k.const("index", p.columns)

        def store(at: Value, row: Value, column: Value) -> None:
            store_tile(k, self.writer, self.sums, at, row, rows, column, width, shape, whole)

        each(store)
        time = launch_time(work(p, self.target))
        return self.program.launch(p.batches * plan.splits * blocks, time)

    def _update(self, start: Value, stop: Value, at: Value, row: Value, column: Value) -> None:
        """Add a block of the depth to a tile of sums."""
        k, p, shape = self.k, self.problem, self.shape
        a_line, a_step = stride_of(p.a.lines), stride_of(p.a.depth)
        a_base, b_base = self.a_base + row * a_line, self.b_base + column
        line, later = CACHE_LINE // itemsize(p.b.dtype), RANK * stride_of(p.b.depth)

        def load_a(s: Value, r: int) -> Value:
            return self.load(self.a, a_base + (start + s) * a_step + r * a_line, 1, ())

        def load_b(s: Value, v: int) -> Value:
            place = b_base + (start + s) * stride_of(p.b.depth) + v * shape.lanes
            if self.plan.prefetch and v * shape.lanes % line == 0:
                k.prefetch(self.b, place + later, level=2)
            return self.load(self.b, place, 1, (shape.lanes,))

        sums = multiply(k, shape, p.accumulate, stop - start, load_a, load_b, None)
        for n, x in enumerate(x for line in sums for x in line):
            place = at + n * shape.lanes
            k.store(self.sums, place, x + k.load(self.sums, place, (shape.lanes,), (1,)), (1,))
