"""Few rows times a matrix whose elements are computed where they are read.

The matrix is visited once and in the order of its memory, a block of its depth at a time, whose
sums are added to those that wait in a cache. What all of a block is multiplied by, as the scale of
a group, is multiplied to its sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import (
    Contraction,
    Sink,
    TileShape,
    lane_count,
    private_cache,
)
from amdjax.kernels.products.cpu.computed_elements import ComputedElements, Problem
from amdjax.kernels.products.cpu.costs import combining, launch, launch_time, nanoseconds, work
from amdjax.kernels.products.cpu.micro_kernel import multiply_add
from amdjax.kernels.products.cpu.plain import PlainProduct, stride_of
from amdjax.kernels.products.writing import store_tile
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.computed import ComputedOperand, Term
from amdjax.schedule.index import Index, LoopVar
from amdjax.schedule.search import Solver, shares
from amdjax.schedule.values import Lanes
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

Value = tile.Value

MOST_VECTORS = 8  # of columns that are computed at once
COMPUTED = 1.2  # cycles of a vector of them
TURN = 15  # cycles to begin and end a block of a tile
STEPS = 4  # in depth that are written one after the other
SPLIT_DEPTH = 256  # least part of a depth that programs share
NEAR = 2 / 3  # of the first-level cache that sums may take


@dataclass(frozen=True)
class ComputedColumnsPlan:
    """Sums that wait in cache while the matrix is computed.

    Args:
      problem: the contraction; rows, columns and depth are one loop each.
      computed: its right operand.
      tile: what registers hold during a block: all rows, and some columns.
      width: columns of each part that a program sums, in tiles.
      splits: parts of the depth that different programs sum.
    """

    problem: Contraction
    computed: ComputedOperand
    tile: TileShape
    width: int
    splits: int

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return ComputedColumns(ctx, self).calls()

    def __str__(self) -> str:
        columns = self.computed.parts * self.width * self.tile.columns
        out = f"computed columns of {self.problem}, {columns} in a program, in tiles of {self.tile}"
        out += f", blocks of {self.computed.block}"
        return out + (f", split {self.splits} ways along depth" if self.splits > 1 else "")


def computed_plans(problem: Problem, target: CpuTarget) -> list[ComputedColumnsPlan]:
    """Plans for columns that lie side by side."""
    p, computed = problem
    if computed.by_line:
        return []
    shape = _tile(p, computed, target)
    wide = ceil_div(p.columns // computed.parts, shape.columns)
    area = computed.parts * p.rows * shape.columns * itemsize(p.accumulate)
    near, far = int(target.l1_bytes * NEAR) // area, private_cache(target) // 2 // area
    widths = [ceil_div(wide, n) for n in shares(4 * target.threads)] + [min(near, wide)]
    kept = dict.fromkeys(max(1, min(far, n)) for n in widths)
    plans = [ComputedColumnsPlan(p, computed, shape, n, 1) for n in kept]
    programs = ceil_div(wide, min(kept))
    splits = shares(min(ceil_div(2 * target.threads, programs), p.depth // SPLIT_DEPTH))
    return plans + [ComputedColumnsPlan(p, computed, shape, min(kept), n) for n in splits if n > 1]


def _tile(p: Contraction, computed: ComputedOperand, target: CpuTarget) -> TileShape:
    """All rows, and as many columns as registers hold and a part has."""
    lanes, registers = lane_count(target, p.accumulate), 24 if target.vector_bits >= 512 else 12
    vectors, parts = MOST_VECTORS, computed.parts
    least = p.columns // parts
    while vectors > 1 and (
        vectors * parts * p.rows > registers
        or vectors * parts > MOST_VECTORS
        or vectors * lanes > least
    ):
        vectors //= 2
    while lanes > least:
        lanes //= 2
    return TileShape(p.rows, 1, vectors * lanes)


def computed_cost(problem: Problem, plan: ComputedColumnsPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    (p, computed), shape, costs = problem, plan.tile, target.costs
    vectors = ceil_div(shape.lanes, lane_count(target, p.accumulate))
    area = shape.rows * shape.columns * itemsize(p.accumulate)
    tiles = computed.parts * ceil_div(p.columns // computed.parts, shape.columns)
    far = min(plan.width * computed.parts, tiles) * area > target.l1_bytes * NEAR
    moved = 2 * area / costs.cache_rate if far else 3 * costs.load * shape.rows * vectors
    step = vectors * (COMPUTED + shape.rows / 2) + (moved + TURN) / computed.block
    total = tiles * (p.depth * step + plan.splits * costs.tile)
    programs = plan.splits * ceil_div(tiles, plan.width * computed.parts)
    cycles = launch(total / programs, programs, target, total, work(p, target))
    return nanoseconds(cycles + combining(p, plan.splits, target), target)


COMPUTED_COLUMNS = Solver("computed columns", computed_plans, computed_cost)


class ComputedColumns(PlainProduct):
    """Sums that wait in cache while the matrix is computed."""

    def __init__(self, ctx: ShapedContext, plan: ComputedColumnsPlan):
        super().__init__(ctx, plan.problem, plan.splits)
        self.plan, self.shape, self.computed = plan, plan.tile, plan.computed
        #: columns of a part
        self.columns = plan.problem.columns // plan.computed.parts
        self.blocks = ceil_div(plan.problem.depth, plan.computed.block)
        nbytes = sum(v.aval.nbytes for v in plan.computed.reads)
        self.is_far = nbytes > private_cache(ctx.target)

    def _product(self, sink: Sink) -> Call:
        p, shape, plan = self.problem, self.shape, self.plan
        wide = ceil_div(self.columns, shape.columns)
        programs = ceil_div(wide, plan.width)
        places, split = self.begin("computed", sink, [programs])
        k, parts, area = self.k, self.computed.parts, shape.rows * shape.columns
        self.sums = k.scratch("sums", p.accumulate, plan.width * parts * area)
        self.elements = ComputedElements(self.program, self.computed)
        each = ceil_div(self.blocks, plan.splits)
        low, high = k.const("index", 0), k.const("index", self.blocks)
        if split is not None:
            low = k.min(split * each, high)
            high = k.min(low + each, high)
        first = places[0] * plan.width
        count = k.min(k.const("index", wide) - first, plan.width)
        zero = k.const(p.accumulate, 0, (shape.lanes,))
        k.for_(
            0, count * (parts * area), shape.lanes, lambda at: k.store(self.sums, at, zero, (1,))
        )

        def tiles(body: Callable[[Value, Value], None]) -> None:
            """For each tile the place of its sums and its first column in each part."""

            def tile_at(j: Value) -> None:
                # The last one is moved back over its neighbor instead of cut.
                column = k.min((first + j) * shape.columns, self.columns - shape.columns)
                body(j * (parts * area), column)

            k.for_(0, count, 1, tile_at)

        k.for_(low, high, 1, lambda n: tiles(lambda at, column: self._update(n, at, column)))
        row, rows, width = (k.const("index", n) for n in (0, shape.rows, p.columns))
        apart = self.columns % shape.columns == 0

        def store(at: Value, column: Value) -> None:
            for part in range(parts):
                there = column + part * self.columns
                begin = at + part * area
                store_tile(
                    k, self.writer, self.sums, begin, row, rows, there, width, shape, True, apart
                )

        tiles(store)
        grid = p.batches * plan.splits * programs
        return self.program.launch(grid, launch_time(work(p, self.target)))

    def _update(self, number: Value, at: Value, column: Value) -> None:
        """Add a block of the depth to the sums of a tile of each part."""
        k, b, shape, computed = self.k, self.elements, self.shape, self.computed
        block, lane = LoopVar("b", self.blocks), LoopVar("c", self.columns)
        area, parts = shape.rows * shape.columns, range(computed.parts)

        def written() -> None:
            b.lanes = [Lanes(lane, shape.lanes, 0, column)]
            b.scalars[block] = number
            depth = Index.of(block) * computed.block
            columns = [Index.of(lane) + part * self.columns for part in parts]
            sums = iter(self._sums(number * computed.block, depth, columns))
            for part in parts:
                scale = self._scale(depth, columns[part])
                for r in range(shape.rows):
                    place = at + (part * area + r * shape.lanes)
                    before, more = k.load(self.sums, place, (shape.lanes,), (1,)), next(sums)
                    after = before + more if scale is None else multiply_add(k, more, scale, before)
                    k.store(self.sums, place, after, (1,))

        b.nested(written)()

    def _scale(self, depth: Index, column: Index) -> Value | None:
        """What sums of a block are multiplied by."""
        scale = None
        for factor in self.computed.factors:
            x = self._value(factor, depth, column)
            scale = x if scale is None else scale * x
        return scale

    def _sums(self, start: Value, first: Index, columns: Sequence[Index]) -> list[Value]:
        """Those of a block that begins at a step, row by row of each part."""
        k, p, shape, b, block = self.k, self.problem, self.shape, self.elements, self.computed.block
        a_line, a_step = stride_of(p.a.lines), stride_of(p.a.depth)
        a_base = self.a_base + start * a_step

        def step(depth: Index, at: Value, sums: list[Value]) -> list[Value]:
            xs = [
                k.broadcast(self.load(self.a, a_base + at * a_step + r * a_line, 1, ()), lanes)
                for r in range(shape.rows)
            ]
            if self.is_far:  # hardware alone asks too late for what comes next
                later = first + depth + block
                b.prefetch_reads(
                    lambda: [self._value(self.computed.core, later, c) for c in columns]
                )
            ys = (self._value(self.computed.core, first + depth, column) for column in columns)
            pairs = ((x, y) for y in ys for x in xs)
            return [multiply_add(k, *pair, total) for pair, total in zip(pairs, sums, strict=True)]

        def steps(count: int, extent: int) -> Callable[..., list[Value]]:
            var = LoopVar("t", extent)

            def turn(t: Value, *sums: Value) -> list[Value]:
                b.scalars[var], out = t, list(sums)
                for n in range(count):
                    out = step(Index.of(var) * count + n, t * count + n, out)
                return out

            return b.nested(turn)

        lanes = (shape.lanes,)
        sums = [k.const(p.accumulate, 0, lanes)] * (shape.rows * len(columns))
        if p.depth % block == 0:
            return list(k.for_(0, block // STEPS, 1, steps(STEPS, block // STEPS), sums))
        left = k.min(k.const("index", p.depth) - start, block)
        whole = left // STEPS
        sums = list(k.for_(0, whole, 1, steps(STEPS, block // STEPS), sums))
        return list(k.for_(whole * STEPS, left, 1, steps(1, block), sums))

    def _value(self, term: Term, depth: Index, column: Index) -> Value:
        return self.elements.vector(term, depth, column, self.shape.lanes, self.problem.accumulate)
