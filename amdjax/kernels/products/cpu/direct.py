"""Products that read their operands where they lie.

Packing costs more than it saves where a matrix fits the first-level cache, where it is used once,
or where one side is only a few rows. `DirectProduct` runs the micro-kernel on memory itself;
`DotProduct` sums along contiguous depth, for few rows against lines of `b` that are stored as rows.
Their code is made for one shape: all distances are constants in the instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.dims import (
    Dim,
    bound,
    choosing,
    is_multiple,
    no_less,
    size_hint,
    surely_equal,
)
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.products.contraction import (
    Contraction,
    ProductProblem,
    Sink,
    TileShape,
    best_tiles,
    choose_tile,
    lane_count,
    private_cache,
)
from amdjax.kernels.products.cpu.blocking import is_at_most, like_one_tile
from amdjax.kernels.products.cpu.costs import (
    combining,
    comes_in_runs,
    conversions,
    is_aliased,
    launch,
    launch_time,
    nanoseconds,
    return_cycles,
    store_stall,
    work,
)
from amdjax.kernels.products.cpu.micro_kernel import multiply, multiply_add
from amdjax.kernels.products.cpu.plain import PlainProduct, plain_contraction, stride_of
from amdjax.kernels.products.writing import fills_lines, store_lanes, store_tile
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.row_plan import counted
from amdjax.schedule.search import Solver, shares
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize
from amdjax.tile.types import CACHE_LINE

Value = tile.Value

PROGRAM_CYCLES = 12_000  # work worth a program of its own
LINES = 64  # lines a program finishes before it stores them
MOST_DOT_ROWS = 16  # whose sums registers hold
MOST_TILES = 4  # of different shapes that are looked at
LONG_SUM = 512  # steps of a loop that are summed by themselves
FEW_ROWS = 4  # for which columns are prefetched, and registers hold many
WAYS = 8  # of the second-level cache: lines that share a set
AFAR = 1.5  # times as long, what comes from beyond the second-level cache
LANE_SUM = 6  # cycles to add the lanes of a sum
SPLIT_DEPTH = 256  # least part of a depth that programs share


@dataclass(frozen=True)
class DirectPlan:
    """The micro-kernel on unpacked operands.

    Args:
      problem: the contraction; rows, columns and depth are one loop each.
      tile: what registers hold.
      row_programs: programs along the rows.
      column_programs: programs along the columns.
      splits: parts of the depth that different programs sum.
    """

    problem: Contraction
    tile: TileShape
    row_programs: int
    column_programs: int
    splits: int

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return DirectProduct(ctx, self).calls()

    def __str__(self) -> str:
        programs = f"{self.row_programs}×{self.column_programs} programs"
        out = f"direct product of {self.problem}, {programs} in tiles of {self.tile}"
        return out + (f", split {self.splits} ways along depth" if self.splits > 1 else "")


@dataclass(frozen=True)
class DotPlan:
    """Few rows times many lines of contiguous depth: sums run along lanes.

    Args:
      problem: the contraction; rows, columns and depth are one loop each.
      rows: whose sums registers hold; there may be fewer where their number is symbolic.
      group: lines that are summed at once.
      blocks: programs along the lines.
      splits: parts of the depth that different programs sum.
      part: depth of each.
    """

    problem: Contraction
    rows: int
    group: int
    blocks: int
    splits: int
    part: int

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return DotProduct(ctx, self).calls()

    def __str__(self) -> str:
        lines = f"{counted(self.blocks, 'program')}, {counted(self.group, 'line')} at once"
        out = f"dot products of {self.problem}, {lines}"
        return out + (f", split {self.splits} ways along depth" if self.splits > 1 else "")


def dot_plans(product: ProductProblem, target: CpuTarget) -> list[DotPlan]:
    """Plans for few rows and many lines, both contiguous along the depth."""
    p = plain_contraction(product.merged)
    if p is None or size_hint(p.rows) > MOST_DOT_ROWS or not _by_line(p):
        return []
    return _dot_plans(target, p)


def direct_plans(product: ProductProblem, target: CpuTarget) -> list[DirectPlan]:
    """Plans for a right operand whose columns lie side by side, of several tiles."""
    p = plain_contraction(product.merged)
    if p is None or (stride_of(p.b.lines) != 1 and p.columns > 1):
        return []
    shapes = [_direct_tile(target, p.at_hand)]
    if p.at_hand.rows > FEW_ROWS:
        shapes += best_tiles(p, target)
    plans = []
    for shape in list(dict.fromkeys(shapes))[:MOST_TILES]:
        usual = _direct_plans(target, p, shape)
        splits = shares(min(2 * target.threads, p.at_hand.depth // SPLIT_DEPTH))[1:]
        plans += [*usual, *(replace(usual[-1], splits=n) for n in splits)]
    return list(dict.fromkeys(plans))


def dot_cost(product: ProductProblem, plan: DotPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    p = plan.problem.at_hand
    programs = size_hint(plan.blocks) * plan.splits * p.batches
    each = _dot_cycles(p, plan.rows, plan.group, target) / programs
    cycles = launch(each, programs, target, counted=work(p, target))
    return nanoseconds(cycles + combining(p, plan.splits, target), target)


def direct_cost(product: ProductProblem, plan: DirectPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    p, shape = plan.problem.at_hand, plan.tile
    high, wide = ceil_div(p.rows, shape.rows), ceil_div(p.columns, shape.columns)
    down, across = size_hint(plan.row_programs), size_hint(plan.column_programs)
    programs = p.batches * down * across * plan.splits
    tiles = ceil_div(high, down) * ceil_div(wide, across)
    each = _tile_cycles(p, shape, plan.splits, target)
    total = p.batches * plan.splits * high * wide * each
    cycles = launch(tiles * each, programs, target, total, work(p, target))
    cycles += combining(p, plan.splits, target)
    return nanoseconds(cycles, target)


DOT_PRODUCTS = Solver("dot products", dot_plans, dot_cost)
DIRECT = Solver("direct", direct_plans, direct_cost)


def _by_line(p: Contraction) -> bool:
    """Whether rows and columns are contiguous along the depth."""
    apart = p.columns == 1 or stride_of(p.b.lines) != 1
    return stride_of(p.b.depth) == 1 and apart and stride_of(p.a.depth) == 1


def _direct_plans(target: CpuTarget, problem: Contraction, shape: TileShape) -> list[DirectPlan]:
    p = problem.at_hand
    high, wide = ceil_div(p.rows, shape.rows), ceil_div(p.columns, shape.columns)
    wanted = _wanted(target, p, p.batches * high * wide * _tile_cycles(p, shape, 1, target))
    # For other sizes all threads may be woken where they are not for those at hand.
    least = 1 if p is problem else min(wanted, ceil_div(target.threads, p.batches))
    columns = ((n, min(wide, n)) for n in shares(wanted) if n >= least)
    ways = dict.fromkeys((min(high, ceil_div(n, across)), across) for n, across in columns)
    lines = ceil_div(problem.rows, shape.rows)
    panels = ceil_div(problem.columns, shape.columns)
    return [
        DirectPlan(problem, shape, _programs(lines, down), _programs(panels, across), 1)
        for down, across in ways
    ]


def _programs(tiles: int, programs: int) -> int:
    """Programs that compute `tiles`, each as much of other sizes as of those at hand."""
    if not isinstance(tiles, Dim):
        return programs
    return ceil_div(tiles, ceil_div(size_hint(tiles), programs))


def _tile_cycles(p: Contraction, shape: TileShape, splits: int, target: CpuTarget) -> float:
    """Cycles of a tile, or the time in which its columns arrive."""
    costs, high = target.costs, ceil_div(p.rows, shape.rows)
    step = shape.cycles(costs) + conversions(p, shape.rows, shape.vectors, target)
    # The first tile of a column of tiles reads a panel from beyond the first-level cache.
    first = max(step, _arrival(p, shape, target))
    # Rows of the left operand are beside it, and packed panels would be read without all this;
    # but where they were packed now, that would meet it too.
    kept = target.l1_bytes * 2 // 3 if p.b.fixed else target.l1_bytes
    if p.depth * shape.columns * itemsize(p.b.dtype) > kept or _is_aliased(p, target):
        step = first
    step += (first - step) / high + _return(p, shape, target)
    cycles = p.depth / splits * step
    return cycles + costs.tile / 2 + store_stall(p, shape.rows, cycles, target, False)


def _return(p: Contraction, shape: TileShape, target: CpuTarget) -> float:
    """Cycles of a step until operands are there again that other tiles have read.

    Rows that are contiguous along the depth are prefetched; others are a line for each step. Of a
    panel of columns, lines share sets of caches with those of the panels beside it.
    """
    high, wide = ceil_div(p.rows, shape.rows), ceil_div(p.columns, shape.columns)
    cycles = 0.0
    if p.a.lines and stride_of(p.a.depth) != 1:
        size = itemsize(p.a.dtype)
        each = return_cycles(p.rows * p.depth * size, target)
        cycles += shape.rows * size * each * (wide - 1) / wide
    size = itemsize(p.b.dtype)
    if p.depth * shape.columns * size > private_cache(target):
        each = return_cycles(p.depth * p.columns * size, target)
        cycles += shape.columns * size * each * (high - 1) / high
    return cycles


def _arrival(p: Contraction, shape: TileShape, target: CpuTarget) -> float:
    """Cycles until a row of a panel is there."""
    costs, size = target.costs, itemsize(p.b.dtype)
    row = min(shape.columns, p.columns) * size
    runs = row / costs.run_rate if p.b.depth and comes_in_runs(p.b, target) else 0.0
    if not _is_aliased(p, target):
        return max(row / costs.stream_rate, runs)
    if p.b.fixed:
        near = not _crowds(p, target)
    else:
        near = p.depth * stride_of(p.b.depth) * size <= private_cache(target)
    return max(costs.aliased_row if near else AFAR * costs.aliased_row, runs)


def _is_aliased(p: Contraction, target: CpuTarget) -> bool:
    """Whether rows of a panel share few sets of the caches and are not prefetched."""
    stride = stride_of(p.b.depth)
    if p.rows <= FEW_ROWS or is_aliased(stride, p.b.dtype) or not (stride and p.b.fixed):
        return p.rows > FEW_ROWS and is_aliased(stride, p.b.dtype)
    return _crowds(p, target)


def _crowds(p: Contraction, target: CpuTarget) -> bool:
    """Whether lines of a panel take more than half of the second-level cache's sets they share.

    They have to be fetched from beyond it, and leave again while other operands pass.
    """
    apart = math.gcd(stride_of(p.b.depth) * itemsize(p.b.dtype), target.l2_bytes // WAYS)
    return 2 * p.depth > target.l2_bytes // max(apart, CACHE_LINE)


def _dot_cycles(p: Contraction, rows: int, group: int, target: CpuTarget) -> float:
    """Cycles of all programs, which sum so many rows."""
    costs, lanes = target.costs, lane_count(target, p.accumulate)
    vectors = ceil_div(p.depth, lanes)
    loads = rows + group + conversions(p, rows, group, target)
    each = max(group * rows / 2, loads / 2)
    lines = p.depth * itemsize(p.b.dtype)
    if rows * p.depth * itemsize(p.a.dtype) > target.l1_bytes * 3 // 4:
        each = max(each, lanes * rows * itemsize(p.a.dtype) / costs.stream_rate)
    each = vectors * each + group * rows * LANE_SUM
    arriving = p.columns * lines / costs.stream_rate
    return p.batches * max(p.columns / group * each, arriving)


def _direct_tile(target: CpuTarget, p: Contraction) -> TileShape:
    if p.rows > FEW_ROWS:
        return choose_tile(target, p.rows, p.columns, p.accumulate)
    lanes, registers = lane_count(target, p.accumulate), 24 if target.vector_bits >= 512 else 12
    vectors = min(registers // p.rows, 16, ceil_div(p.columns, lanes))
    return TileShape(p.rows, vectors, lanes)


def _dot_plans(target: CpuTarget, problem: Contraction) -> list[DotPlan]:
    p, group = problem.at_hand, 1
    many = isinstance(problem.rows, Dim) and p.rows > MOST_DOT_ROWS // 2
    rows = round_up(p.rows, MOST_DOT_ROWS // 4) if many else p.rows  # for few different numbers
    while group * 2 * rows <= 8 and group * 2 <= p.columns:
        group *= 2
    wanted = _wanted(target, p, _dot_cycles(p, rows, group, target))
    most = min(ceil_div(p.columns, LINES), wanted)
    ways = [(blocks, 1) for blocks in shares(most)]
    if most * p.batches * 2 <= target.threads and p.depth >= 1 << 15:
        splits = min(2 * target.threads // (most * p.batches), p.depth >> 13)
        ways += [(most, n) for n in shares(splits)[1:]]
    unit = 4 * lane_count(target, p.accumulate)
    chunks, depth = ceil_div(problem.columns, LINES), problem.depth
    parts = ((_programs(chunks, n), k, ceil_div(depth, unit * k) * unit) for n, k in ways)
    return [DotPlan(problem, rows, group, *part) for part in parts]


def _wanted(target: CpuTarget, p: Contraction, cycles: float) -> int:
    """Programs of an entry of the batch that are worth having for work of that many cycles."""
    programs = max(1, min(int(cycles / PROGRAM_CYCLES), 4 * target.threads))
    return ceil_div(programs, p.batches)


class DirectProduct(PlainProduct):
    """The micro-kernel on unpacked operands.

    Tiles at the end are moved back over their neighbors instead of cut: what they compute twice is
    the same, and there is one kernel for all tiles. Where there are fewer columns than a tile has,
    and more of other sizes, the last ones are masked.
    """

    def __init__(self, ctx: ShapedContext, plan: DirectPlan):
        super().__init__(ctx, plan.problem, plan.splits)
        self.plan, self.shape = plan, plan.tile
        self.rows = no_less(plan.problem.rows, plan.tile.rows)
        like_one_tile(plan.problem, plan.tile, self.target)
        columns = plan.problem.columns
        # Few columns at hand: of other sizes there are more, in tiles of the same width.
        self.masked = isinstance(columns, Dim) and size_hint(columns) < plan.tile.columns
        self.columns = plan.tile.columns if self.masked else no_less(columns, plan.tile.columns)
        self.depth = ceil_div(plan.problem.depth, plan.splits)

    def _product(self, sink: Sink) -> Call:
        p, shape, plan = self.problem, self.shape, self.plan
        splits, down, across = plan.splits, plan.row_programs, plan.column_programs
        high, wide = ceil_div(p.rows, self.rows), ceil_div(p.columns, self.columns)
        places, part = self.begin("direct", sink, [down, across])
        k = self.k
        self.waiting = None
        self.reads_in_place = self.writer.reads_in_place()
        if not self.writer.is_plain:
            self.waiting = k.scratch("tile", p.accumulate, shape.rows * shape.columns)
        self.low, self.high = k.const("index", 0), k.const("index", p.depth)
        if part is not None:
            self.low = part * self.depth
            self.high = k.min(self.low + self.depth, self.high)
        spans = [
            ((place * n) // count, ((place + 1) * n) // count)
            if not surely_equal(count, 1)
            else (k.const("index", 0), k.const("index", n))
            for place, count, n in ((places[0], down, high), (places[1], across, wide))
        ]

        def column(j: Value) -> None:
            def row(i: Value) -> None:
                self._tile(i, j)

            k.for_(*spans[0], 1, row)

        k.for_(*spans[1], 1, column)
        grid = p.batches * splits * down * across
        return self.program.launch(grid, launch_time(work(p, self.target)))

    def _tile(self, i: Value, j: Value) -> None:
        k, p, shape = self.k, self.problem, self.shape
        row = k.min(i * self.rows, p.rows - self.rows)
        column = j * self.columns
        if not self.masked:
            column = k.min(column, p.columns - self.columns)
        a_line, a_step = stride_of(p.a.lines), stride_of(p.a.depth)
        a_base, b_base = self.a_base + row * a_line, self.b_base + column
        starts, masks = self._vectors(column)
        # Where rows and vectors begin is known before the loop over depth.
        rows = [a_base + k.const("index", a_line) * r for r in range(self.rows)]
        vectors = [b_base + start for start in starts]

        def load_a(s: Value, r: int) -> Value:
            return self.load(self.a, rows[r] + s * a_step, 1, ())

        def load_b(s: Value, v: int) -> Value:
            at = vectors[v] + s * stride_of(p.b.depth)
            return self.load(self.b, at, 1, (shape.lanes,), masks[v])

        if self.reads_in_place:
            self.writer.prefetch(row, column, replace(shape, rows=self.rows))
        accumulators = self._sums(
            replace(shape, rows=self.rows, vectors=len(starts)), load_a, load_b
        )
        if self.waiting is None:
            # Of symbolic columns it is told as it runs whether they are whole lines.
            whole = not self.masked and isinstance(p.columns, Dim)
            whole = whole or is_multiple(p.columns, self.lanes)
            aligned = whole and fills_lines(self.columns, self.writer.sink.dtype)

            def store() -> None:
                for r, line in enumerate(accumulators):
                    for start, mask, x in zip(starts, masks, line):
                        self.writer.store(row + r, column + start, x, mask, aligned=aligned)

            self.writer.either_way(store)
            return
        zero = k.const("index", 0)
        for r, line in enumerate(accumulators):
            for start, x in zip(starts, line):
                k.store(self.waiting, k.const("index", r * shape.columns + start), x, (1,))
        store_tile(
            k,
            self.writer,
            self.waiting,
            zero,
            row,
            k.const("index", self.rows),
            column,
            k.const("index", p.columns),
            shape,
            self.columns == shape.columns and not self.masked,
            is_multiple(p.columns, shape.columns),
        )

    def _sums(
        self,
        shape: TileShape,
        load_a: Callable[[Value, int], Value],
        load_b: Callable[[Value, int], Value],
    ) -> list[list[Value]]:
        """Of a tile. As rounding errors grow with the length of a sum, long ones are begun anew."""
        k, p = self.k, self.problem
        with choosing():
            prefetch = [self.b] if p.rows <= FEW_ROWS else []

        def part(start: Value, steps: Value) -> list[Value]:
            rows = multiply(
                k, shape, p.accumulate, steps, lambda s, r: load_a(s + start, r),
                lambda s, v: load_b(s + start, v), None, prefetch=prefetch,
            )  # fmt: skip
            return [x for row in rows for x in row]

        count = ceil_div(self.depth, LONG_SUM)
        if is_at_most(self.depth, LONG_SUM):
            sums = part(self.low, self.high - self.low)
        else:
            length = ceil_div(self.depth, count)

            def add(start: Value, *sums: Value) -> list[Value]:
                more = part(start, k.min(self.high - start, length))
                return [x + y for x, y in zip(sums, more, strict=True)]

            none = [k.const(p.accumulate, 0, (shape.lanes,))] * (shape.rows * shape.vectors)
            sums = list(k.for_(self.low, self.high, length, add, none))
        return [sums[r * shape.vectors : (r + 1) * shape.vectors] for r in range(shape.rows)]

    def _vectors(self, column: Value) -> tuple[list[int], list[Value | None]]:
        """Where the vectors of a tile from a column on begin, and which lanes of them exist."""
        k, lanes, n = self.k, self.lanes, self.columns
        if self.masked:
            starts, left = [*range(0, n, lanes)], k.const("index", self.problem.columns) - column
            return starts, [k.iota(lanes, "i32") < k.convert(left - x, "i32") for x in starts]
        if n < lanes:
            return [0], [k.iota(lanes, "i32") < k.const("i32", n)]
        starts = [min(v * lanes, n - lanes) for v in range(ceil_div(n, lanes))]
        return starts, [None] * len(starts)


class DotProduct(PlainProduct):
    """Few rows times many lines of contiguous depth: sums run along lanes."""

    def __init__(self, ctx: ShapedContext, plan: DotPlan):
        super().__init__(ctx, plan.problem, plan.splits)
        self.plan, self.rows, self.group = plan, plan.rows, plan.group
        bound(plan.problem.rows, plan.rows)

    def _product(self, sink: Sink) -> Call:
        p, lines = self.problem, LINES
        splits, blocks = self.plan.splits, self.plan.blocks
        (place,), part = self.begin("dots", sink, [blocks])
        k = self.k
        accumulators = k.scratch("sums", p.accumulate, self.rows * (lines + self.lanes))
        self.lines = self._lines()
        chunks = ceil_div(p.columns, lines)
        low, top = k.const("index", 0), k.const("index", p.depth)
        if part is not None:
            low = k.min(part * self.plan.part, top)
            top = k.min(low + self.plan.part, top)

        def chunk_at(i: Value) -> None:
            first = i * lines
            count = k.min(k.const("index", p.columns) - first, lines)
            k.for_(0, count, self.group, lambda g: self._group(first, g, low, top, accumulators))
            for r in range(self.rows):
                row = k.const("index", r)

                def store(v: Value) -> None:
                    at, width = v + r * (lines + self.lanes), first + count
                    store_lanes(k, self.writer, accumulators, at, row, first + v, width, self.lanes)

                if isinstance(p.rows, Dim):
                    exists = row < k.const("index", p.rows)
                    k.if_(exists, lambda: k.for_(0, count, self.lanes, store))
                else:
                    k.for_(0, count, self.lanes, store)

        start, stop = (
            k.const("index", i * chunks)
            if surely_equal(blocks, 1)
            else ((place + i) * chunks) // blocks
            for i in (0, 1)
        )
        k.for_(start, stop, 1, chunk_at)
        time = launch_time(work(p, self.target))
        return self.program.launch(p.batches * splits * blocks, time)

    def _lines(self) -> list[Value | int]:
        """Where each row of `a` begins; past the last one it is taken again."""
        k, rows, stride = self.k, self.problem.rows, stride_of(self.problem.a.lines)
        if not isinstance(rows, Dim):
            return [r * stride for r in range(self.rows)]
        last = k.const("index", rows - 1)
        return [k.min(k.const("index", r), last) * stride for r in range(self.rows)]

    def _group(
        self, first: Value, g: Value, low: Value, top: Value, accumulators: tile.Buffer
    ) -> None:
        """A few lines at once; past the last line it is taken again."""
        k, p, shape = self.k, self.problem, (self.lanes,)
        stride, rows = stride_of(p.b.lines), self.rows
        last = k.const("index", p.columns - 1)
        bases = [self.b_base + k.min(first + g + n, last) * stride for n in range(self.group)]
        unroll = max(1, 8 // (self.group * rows))
        step = unroll * self.lanes
        zero = k.const(p.accumulate, 0, shape)

        def add(at: Value, totals: list[Value], mask: Value | None) -> list[Value]:
            xs = [self.load(self.a, self.a_base + at + line, 1, shape, mask) for line in self.lines]
            out = []
            for n, base in enumerate(bases):
                y = self.load(self.b, base + at, 1, shape, mask)
                out += [multiply_add(k, y, xs[r], totals[n * rows + r]) for r in range(rows)]
            return out

        def steps(e: Value, *totals: Value) -> list[Value]:
            size, out = self.group * rows, []
            for u in range(unroll):
                out += add(e + u * self.lanes, list(totals[u * size : (u + 1) * size]), None)
            return out

        whole = top - ((top - low) % step)
        none = [zero] * (self.group * rows * unroll)

        def part(start: Value, *totals: Value) -> list[Value]:
            more = k.for_(start, k.min(start + LONG_SUM * step, whole), step, steps, none)
            return [x + y for x, y in zip(totals, more, strict=True)]

        if self.plan.part > LONG_SUM * step:
            totals = k.for_(low, whole, LONG_SUM * step, part, none)
        else:
            totals = k.for_(low, whole, step, steps, none)
        size = self.group * rows
        combined = [_sum(k, [totals[u * size + i] for u in range(unroll)]) for i in range(size)]

        def tail(e: Value, *totals: Value) -> list[Value]:
            mask = k.iota(self.lanes, "i32") < k.convert(top - e, "i32")
            return add(e, list(totals), mask)

        combined = list(k.for_(whole, top, self.lanes, tail, combined))
        for n in range(self.group):
            for r in range(rows):
                total = k.reduce("add", combined[n * rows + r])
                k.store(accumulators, g + n + r * (LINES + self.lanes), total)


def _sum(k: tile.Builder, xs: list[Value]) -> Value:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total
