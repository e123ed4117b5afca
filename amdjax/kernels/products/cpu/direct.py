"""Products that read their operands where they lie.

Packing costs more than it saves where a matrix fits the first-level cache, where it is used once,
or where one side is only a few rows. `DirectProduct` runs the micro-kernel on memory itself;
`DotProduct` sums along contiguous depth, for few rows against lines of `b` that are stored as rows.
Their code is made for one shape: all distances are constants in the instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import (
    Contraction,
    ProductProblem,
    Sink,
    Source,
    TileShape,
    choose_tile,
    lane_count,
    max_rows,
    private_cache,
    tile_candidates,
    tile_cost,
)
from amdjax.kernels.products.cpu.micro_kernel import multiply, multiply_add
from amdjax.kernels.products.program import Program
from amdjax.kernels.products.split_k import combine_parts, split_sink
from amdjax.kernels.products.writing import Writer, store_lanes, store_tile
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.row_plan import counted
from amdjax.schedule.search import Solver, busy_time, shares
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

Value = tile.Value

PAGE = 4096
PROGRAM_CYCLES = 12_000  # work worth a program of its own
LINES = 64  # lines a program finishes before it stores them
MOST_DOT_ROWS = 16  # whose sums registers hold
MOST_TILES = 4  # of different shapes that are looked at
LONG_DEPTH = 4096  # of few columns, which programs share
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
      group: lines that are summed at once.
      blocks: programs along the lines.
      splits: parts of the depth that different programs sum.
      part: depth of each.
    """

    problem: Contraction
    group: int
    blocks: int
    splits: int
    part: int

    @property
    def work(self) -> float:
        """Nanoseconds, about, of all programs."""
        p = self.problem
        return p.depth * p.columns * p.rows * p.batches * itemsize(p.b.dtype) / 10

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return DotProduct(ctx, self).calls()

    def __str__(self) -> str:
        lines = f"{counted(self.blocks, 'program')}, {counted(self.group, 'line')} at once"
        out = f"dot products of {self.problem}, {lines}"
        return out + (f", split {self.splits} ways along depth" if self.splits > 1 else "")


def dot_plans(product: ProductProblem, target: CpuTarget) -> list[DotPlan]:
    """Plans for few rows and many lines, both contiguous along the depth."""
    p = _plain(product.merged)
    if p is None or p.rows > MOST_DOT_ROWS or not _by_line(p):
        return []
    return _dot_plans(target, p)


def direct_plans(product: ProductProblem, target: CpuTarget) -> list[DirectPlan]:
    """Plans for a right operand whose columns lie side by side, of several tiles."""
    p = _plain(product.merged)
    if p is None or (_stride(p.b.lines) != 1 and p.columns > 1):
        return []
    shapes = [_direct_tile(target, p)]
    if p.rows > 4:
        found = tile_candidates(target, p.rows, p.columns, p.accumulate)
        shapes += sorted(found, key=lambda shape: tile_cost(shape, p.rows, p.columns))
    plans = []
    for shape in list(dict.fromkeys(shapes))[:MOST_TILES]:
        usual = _direct_plans(target, p, shape)
        splits = shares(min(2 * target.threads, p.depth // SPLIT_DEPTH))[1:]
        plans += [*usual, *(replace(usual[-1], splits=n) for n in splits)]
    return list(dict.fromkeys(plans))


def usual_dot(product: ProductProblem, target: CpuTarget) -> DotPlan | None:
    """A plan for a few rows."""
    p = _plain(product.merged)
    if p is None or p.rows > max_rows(target, 1) // 2 or not _by_line(p) or p.depth < 16:
        return None
    if p.rows > 4 and not _is_uniform(p):
        return None
    return min(_dot_plans(target, p), key=lambda plan: unpacked_cost(product, plan, target))


def usual_direct(product: ProductProblem, target: CpuTarget) -> DirectPlan | None:
    """A plan for operands that the caches hold, or that are read once."""
    p = _plain(product.merged)
    if p is None or (_stride(p.b.lines) != 1 and p.columns > 1):
        return None
    size = itemsize(p.accumulate)
    few = p.rows <= 4
    if not few and not _is_uniform(p):
        return None
    footprint = p.depth * p.columns * size
    near = _stride(p.b.depth) * itemsize(p.b.dtype) < PAGE
    once = p.rows <= max_rows(target, 2)
    narrow = p.columns <= 2 * lane_count(target, p.accumulate) and p.depth >= LONG_DEPTH
    if not (
        once
        or (narrow and footprint <= target.l2_bytes // 2)
        or (near and footprint <= private_cache(target) // 8)
        or footprint <= target.l1_bytes * 3 // 2
    ):
        return None
    plans = _direct_plans(target, p, _direct_tile(target, p))
    plan = min(plans, key=lambda plan: unpacked_cost(product, plan, target))
    if narrow and plan.splits == 1 and target.threads > 1:
        programs = plan.row_programs * plan.column_programs * p.batches
        return replace(plan, splits=ceil_div(4 * target.threads, programs))
    return plan


def unpacked_cost(product: ProductProblem, plan: DirectPlan | DotPlan, target: CpuTarget) -> float:
    """The time of a program, if there is work for so many."""
    if isinstance(plan, DotPlan):
        return busy_time(plan.work, plan.blocks * plan.splits, _wanted_dots(target, plan.problem))
    work, programs = (
        _direct_cycles(plan.problem, plan.tile),
        plan.column_programs * plan.row_programs * plan.splits,
    )
    return busy_time(work, programs, _wanted(target, plan.problem, work))


DOT_PRODUCTS = Solver("dot products", dot_plans, unpacked_cost, usual_dot, tier=1)
DIRECT = Solver("direct", direct_plans, unpacked_cost, usual_direct, tier=2)


def _plain(p: Contraction) -> Contraction | None:
    """A real contraction with one loop each, its columns many; None where there are more loops."""
    if p.is_complex or not p.depth or not _is_plain(p):
        return None
    return p.swapped() if p.columns == 1 and p.rows > 1 else p


def _is_uniform(p: Contraction) -> bool:
    """Whether operands are summed in their own dtype."""
    return p.a.dtype == p.b.dtype == p.accumulate


def _by_line(p: Contraction) -> bool:
    """Whether rows and columns are contiguous along the depth."""
    return _stride(p.b.depth) == 1 and _stride(p.b.lines) != 1 and _stride(p.a.depth) == 1


def _direct_plans(target: CpuTarget, p: Contraction, shape: TileShape) -> list[DirectPlan]:
    high, wide = ceil_div(p.rows, shape.rows), ceil_div(p.columns, shape.columns)
    wanted = _wanted(target, p, _direct_cycles(p, shape))
    columns = ((n, min(wide, n)) for n in shares(wanted))
    ways = dict.fromkeys((min(high, ceil_div(n, across)), across) for n, across in columns)
    plans = [DirectPlan(p, shape, down, across, 1) for down, across in ways]
    most = plans[-1].row_programs * plans[-1].column_programs
    # Where the result alone does not make enough programs.
    if most * 2 <= min(wanted, target.threads) and p.depth >= 2048:
        splits = max(1, min(wanted // most, p.depth // 1024))
        plans += [replace(plans[-1], splits=n) for n in shares(splits)[1:]]
    return plans


def _direct_cycles(p: Contraction, shape: TileShape) -> float:
    """Cycles of all programs, or the time that memory takes for what they read and write."""
    high, wide = ceil_div(p.rows, shape.rows), ceil_div(p.columns, shape.columns)
    cycles = p.batches * high * wide * shape.cycles * p.depth
    reads = p.depth * (p.rows + p.columns) * itemsize(p.b.dtype)
    traffic = p.batches * (reads + p.rows * p.columns * itemsize(p.out.dtype)) / 5
    return max(cycles, traffic)


def _direct_tile(target: CpuTarget, p: Contraction) -> TileShape:
    if p.rows > 4:
        return choose_tile(target, p.rows, p.columns, p.accumulate)
    lanes, registers = lane_count(target, p.accumulate), 24 if target.vector_bits >= 512 else 12
    vectors = min(registers // p.rows, 16, ceil_div(p.columns, lanes))
    return TileShape(p.rows, vectors, lanes)


def _dot_plans(target: CpuTarget, p: Contraction) -> list[DotPlan]:
    group = 1
    while group * 2 * p.rows <= 8 and group * 2 <= p.columns:
        group *= 2
    most = min(ceil_div(p.columns, LINES), _wanted_dots(target, p))
    ways = [(blocks, 1) for blocks in shares(most)]
    if most * p.batches * 2 <= target.threads and p.depth >= 1 << 15:
        splits = min(2 * target.threads // (most * p.batches), p.depth >> 13)
        ways += [(most, n) for n in shares(splits)[1:]]
    unit = 4 * lane_count(target, p.accumulate)
    return [DotPlan(p, group, *way, ceil_div(p.depth, unit * way[1]) * unit) for way in ways]


def _wanted_dots(target: CpuTarget, p: Contraction) -> int:
    return _wanted(target, p, DotPlan(p, 1, 1, 1, p.depth).work)


def _wanted(target: CpuTarget, p: Contraction, cycles: float) -> int:
    """Programs of an entry of the batch that are worth having for work of that many cycles."""
    programs = max(1, min(int(cycles / PROGRAM_CYCLES), 4 * target.threads))
    return ceil_div(programs, p.batches)


def _is_plain(problem: Contraction) -> bool:
    """Whether rows, columns and depth are one loop each, without limits."""
    sources = (problem.a, problem.b)
    if any(s.limits or len(s.lines) > 1 or len(s.depth) > 1 for s in sources):
        return False
    return len(problem.out.rows) <= 1 and len(problem.out.columns) <= 1


def _stride(axes: tuple) -> int:
    return axes[0].stride if axes else 1


class _Plain:
    """What the kernels of this file share."""

    plan: DirectPlan | DotPlan

    def __init__(self, ctx: ShapedContext, problem: Contraction):
        self.ctx, self.problem, self.target = ctx, problem, ctx.target
        self.lanes = lane_count(ctx.target, problem.accumulate)

    def calls(self) -> list[Call]:
        p, splits = self.problem, self.plan.splits
        if splits > 1:
            sink, temp = split_sink(p, splits)
            return [self._product(sink), combine_parts(self.ctx, p, temp, splits)]
        return [self._product(p.out)]

    def _product(self, sink: Sink) -> Call:
        """The kernel, which writes to `sink`."""
        raise NotImplementedError

    def begin(
        self, name: str, sink: Sink, splits: int, blocks: list[int]
    ) -> tuple[list[Value], Value | None]:
        """Open the kernel; returns the place along each of `blocks` and the part of the depth."""
        p = self.problem
        self.program = program = Program(self.ctx, name)
        self.k = k = program.k
        self.a, self.b = (program.buffer(s.owner, s.dtype) for s in (p.a, p.b))
        pid = k.program_id()
        places: list[Value] = []
        for n in reversed(blocks):
            places.insert(0, pid % n if n > 1 else k.const("index", 0))
            pid = pid // n if n > 1 else pid
        part = None
        if splits > 1:
            part = pid % splits
            pid = pid // splits
        batch = program.split(pid, "batch", p.out.batch)
        self.a_base, self.b_base = (self._start(s, batch) for s in (p.a, p.b))
        digits = batch if part is None else [part, *batch]
        self.writer = Writer(program, replace(p, out=sink), digits)
        return places, part

    def _start(self, source: Source, batch: list[Value]) -> Value:
        base = self.k.const("index", source.offset)
        for axis, digit in zip(source.batch, batch):
            if axis.stride:
                base = base + digit * axis.stride
        return base

    def load(
        self,
        buffer: tile.Buffer,
        at: Value,
        stride: int,
        shape: tuple[int, ...],
        mask: Value | None = None,
    ) -> Value:
        x = self.k.load(buffer, at, shape, (stride,) if shape else None, mask)
        return self.k.convert(x, self.problem.accumulate)


class DirectProduct(_Plain):
    """The micro-kernel on unpacked operands.

    Tiles at the end are moved back over their neighbors instead of cut: what they compute twice is
    the same, and there is one kernel for all tiles.
    """

    plan: DirectPlan

    def __init__(self, ctx: ShapedContext, plan: DirectPlan):
        super().__init__(ctx, plan.problem)
        self.plan, self.shape = plan, plan.tile
        self.rows = min(plan.tile.rows, plan.problem.rows)
        self.columns = min(plan.tile.columns, plan.problem.columns)
        self.depth = ceil_div(plan.problem.depth, plan.splits)

    def _product(self, sink: Sink) -> Call:
        p, shape, plan = self.problem, self.shape, self.plan
        splits, down, across = plan.splits, plan.row_programs, plan.column_programs
        high, wide = ceil_div(p.rows, shape.rows), ceil_div(p.columns, shape.columns)
        places, part = self.begin("direct", sink, splits, [down, across])
        k = self.k
        self.waiting = None
        if not self.writer.is_plain:
            self.waiting = k.scratch("tile", p.accumulate, shape.rows * shape.columns)
        self.low, self.high = k.const("index", 0), k.const("index", p.depth)
        if part is not None:
            self.low = part * self.depth
            self.high = k.min(self.low + self.depth, self.high)
        spans = [
            ((place * n) // count, ((place + 1) * n) // count)
            if count > 1
            else (k.const("index", 0), k.const("index", n))
            for place, count, n in ((places[0], down, high), (places[1], across, wide))
        ]

        def column(j: Value) -> None:
            def row(i: Value) -> None:
                self._tile(i, j)

            k.for_(*spans[0], 1, row)

        k.for_(*spans[1], 1, column)
        cycles = p.batches * high * wide * (shape.cycles * p.depth + shape.rows * shape.vectors * 4)
        return self.program.launch(p.batches * splits * down * across, cycles / 2.5)

    def _tile(self, i: Value, j: Value) -> None:
        k, p, shape = self.k, self.problem, self.shape
        row = k.min(i * shape.rows, p.rows - self.rows)
        column = k.min(j * shape.columns, p.columns - self.columns)
        a_line, a_step = _stride(p.a.lines), _stride(p.a.depth)
        a_base, b_base = self.a_base + row * a_line, self.b_base + column
        starts, masks = self._vectors()

        def load_a(s: Value, r: int) -> Value:
            return self.load(self.a, a_base + (s + self.low) * a_step + r * a_line, 1, ())

        def load_b(s: Value, v: int) -> Value:
            at = b_base + (s + self.low) * _stride(p.b.depth) + starts[v]
            return self.load(self.b, at, 1, (shape.lanes,), masks[v])

        cut = replace(shape, rows=self.rows, vectors=len(starts))
        steps, prefetch = self.high - self.low, [self.b] if p.rows <= 4 else []
        accumulators = multiply(
            k, cut, p.accumulate, steps, load_a, load_b, None, prefetch=prefetch
        )
        if self.waiting is None:
            aligned = p.columns % self.lanes == 0
            for r, vectors in enumerate(accumulators):
                for start, mask, x in zip(starts, masks, vectors):
                    self.writer.store(row + r, column + start, x, mask, aligned=aligned)
            return
        zero = k.const("index", 0)
        for r, vectors in enumerate(accumulators):
            for start, x in zip(starts, vectors):
                k.store(self.waiting, k.const("index", r * shape.columns + start), x, (1,))
        width = k.const("index", p.columns)
        store_tile(
            k,
            self.writer,
            self.waiting,
            zero,
            row,
            k.const("index", self.rows),
            column,
            width,
            shape,
        )

    def _vectors(self) -> tuple[list[int], list[Value | None]]:
        """Where the vectors of a row of tiles begin, and which lanes of them exist."""
        k, lanes, n = self.k, self.lanes, self.columns
        if n < lanes:
            return [0], [k.iota(lanes, "i32") < k.const("i32", n)]
        starts = [min(v * lanes, n - lanes) for v in range(ceil_div(n, lanes))]
        return starts, [None] * len(starts)


class DotProduct(_Plain):
    """Few rows times many lines of contiguous depth: sums run along lanes."""

    plan: DotPlan

    def __init__(self, ctx: ShapedContext, plan: DotPlan):
        super().__init__(ctx, plan.problem)
        self.plan, self.group = plan, plan.group

    def _product(self, sink: Sink) -> Call:
        p, lines = self.problem, LINES
        splits, blocks, work = self.plan.splits, self.plan.blocks, self.plan.work
        (place,), part = self.begin("dots", sink, splits, [blocks])
        k = self.k
        accumulators = k.scratch("sums", p.accumulate, p.rows * (lines + self.lanes))
        chunks = ceil_div(p.columns, lines)
        low, top = k.const("index", 0), k.const("index", p.depth)
        if part is not None:
            low = k.min(part * self.plan.part, top)
            top = k.min(low + self.plan.part, top)

        def chunk_at(i: Value) -> None:
            first = i * lines
            count = k.min(k.const("index", p.columns) - first, lines)
            k.for_(0, count, self.group, lambda g: self._group(first, g, low, top, accumulators))
            for r in range(p.rows):

                def store(v: Value) -> None:
                    at = v + r * (lines + self.lanes)
                    width = first + count
                    store_lanes(
                        k,
                        self.writer,
                        accumulators,
                        at,
                        k.const("index", r),
                        first + v,
                        width,
                        self.lanes,
                    )

                k.for_(0, count, self.lanes, store)

        start, stop = (
            ((place + i) * chunks) // blocks if blocks > 1 else k.const("index", i * chunks)
            for i in (0, 1)
        )
        k.for_(start, stop, 1, chunk_at)
        return self.program.launch(p.batches * splits * blocks, work / 2.5)

    def _group(
        self, first: Value, g: Value, low: Value, top: Value, accumulators: tile.Buffer
    ) -> None:
        """A few lines at once; past the last line it is taken again."""
        k, p, shape = self.k, self.problem, (self.lanes,)
        stride, rows = _stride(p.b.lines), p.rows
        last = k.const("index", p.columns - 1)
        bases = [self.b_base + k.min(first + g + n, last) * stride for n in range(self.group)]
        unroll = max(1, 8 // (self.group * rows))
        step = unroll * self.lanes
        zero = k.const(p.accumulate, 0, shape)

        def add(at: Value, totals: list[Value], mask: Value | None) -> list[Value]:
            xs = [
                self.load(self.a, self.a_base + at + r * _stride(p.a.lines), 1, shape, mask)
                for r in range(rows)
            ]
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
        totals = k.for_(low, whole, step, steps, [zero] * (self.group * rows * unroll))
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
