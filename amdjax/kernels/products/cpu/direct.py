"""Products that read their operands where they lie.

Packing costs more than it saves where a matrix fits the first-level cache, where it is used once,
or where one side is only a few rows. `DirectProduct` runs the micro-kernel on memory itself;
`DotProduct` sums along contiguous depth, for few rows against lines of `b` that are stored as rows.
Their code is made for one shape: all distances are constants in the instructions.
"""

from __future__ import annotations

from dataclasses import replace

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import (
    Contraction,
    Sink,
    Source,
    TileShape,
    choose_tile,
    lane_count,
    max_rows,
    private_cache,
)
from amdjax.kernels.products.cpu.packed import multiply, multiply_add
from amdjax.kernels.products.program import Program
from amdjax.kernels.products.split_k import combine_parts, split_sink
from amdjax.kernels.products.writing import Writer, store_lanes, store_tile
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.tile import itemsize

Value = tile.Value

PAGE = 4096
PREFETCH = 16  # steps in depth
PROGRAM_CYCLES = 12_000  # work worth a program of its own


def direct_product(ctx: ShapedContext, problem: Contraction) -> list[Call] | None:
    """Launches without packing, None where packing pays or the layout needs it."""
    if problem.is_complex or not problem.depth or not _is_plain(problem):
        return None
    if problem.columns == 1 and problem.rows > 1:
        problem = problem.swapped()
    size = itemsize(problem.accumulate)
    same = problem.a.dtype == problem.b.dtype == problem.accumulate
    few = problem.rows <= 4
    if not same and not few:
        return None
    by_line = _stride(problem.b.depth) == 1 and _stride(problem.b.lines) != 1
    if few and by_line and _stride(problem.a.depth) == 1 and problem.depth >= 16:
        return DotProduct(ctx, problem).calls()
    if _stride(problem.b.lines) != 1 and problem.columns > 1:
        return None
    footprint = problem.depth * problem.columns * size
    near = _stride(problem.b.depth) * itemsize(problem.b.dtype) < PAGE
    once = problem.rows <= max_rows(ctx.target, 2)
    if (
        few
        or (near and footprint <= private_cache(ctx.target) // 8)
        or footprint <= ctx.target.l1_bytes * 3 // 2
        or (once and footprint <= ctx.target.l2_bytes // 2)
    ):
        return DirectProduct(ctx, problem).calls()
    return None


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

    def __init__(self, ctx: ShapedContext, problem: Contraction):
        self.ctx, self.problem, self.target = ctx, problem, ctx.target
        self.lanes = lane_count(ctx.target, problem.accumulate)

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

    def wanted(self, cycles: float) -> int:
        """Programs worth having for work of that many cycles."""
        return max(1, min(int(cycles / PROGRAM_CYCLES), 4 * self.target.threads))

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

    Tiles at the end are moved back over their neighbours instead of cut: what they compute twice is
    the same, and there is one kernel for all tiles.
    """

    def calls(self) -> list[Call]:
        p = self.problem
        shape = self._shape()
        self.shape, self.rows = shape, min(shape.rows, p.rows)
        self.columns = min(shape.columns, p.columns)
        high, wide = ceil_div(p.rows, shape.rows), ceil_div(p.columns, shape.columns)
        cycles = p.batches * high * wide * shape.cycles * p.depth
        reads = p.depth * (p.rows + p.columns) * itemsize(p.b.dtype)
        traffic = p.batches * (reads + p.rows * p.columns * itemsize(p.out.dtype)) / 5
        wanted = ceil_div(self.wanted(max(cycles, traffic)), p.batches)
        across = min(wide, wanted)
        down = min(high, ceil_div(wanted, across))
        splits = self._splits(wanted, across * down)
        self.depth = ceil_div(p.depth, splits)
        if splits > 1:
            sink, temp = split_sink(p, splits)
            return [
                self._product(sink, splits, down, across, high, wide),
                combine_parts(self.ctx, p, temp, splits),
            ]
        return [self._product(p.out, 1, down, across, high, wide)]

    def _shape(self) -> TileShape:
        p = self.problem
        if p.rows > 4:
            return choose_tile(self.target, p.rows, p.columns, p.accumulate)
        registers = 24 if self.target.vector_bits >= 512 else 12
        vectors = min(registers // p.rows, 16, ceil_div(p.columns, self.lanes))
        return TileShape(p.rows, vectors, self.lanes)

    def _splits(self, wanted: int, blocks: int) -> int:
        """Parts of the depth, where the result alone does not make enough programs."""
        p = self.problem
        if blocks * 2 > min(wanted, self.target.threads) or p.depth < 2048:
            return 1
        return max(1, min(wanted // blocks, p.depth // 1024))

    def _product(
        self, sink: Sink, splits: int, down: int, across: int, high: int, wide: int
    ) -> Call:
        p, shape = self.problem, self.shape
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
            (
                (place * n) // count,
                ((place + 1) * n) // count,
            )
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

        b_step = _stride(p.b.depth)
        far = p.rows <= 4 and b_step * itemsize(p.b.dtype) >= PAGE // 4

        def load_b(s: Value, v: int) -> Value:
            at = b_base + (s + self.low) * b_step + starts[v]
            if far:  # each step is another page, which no hardware prefetches
                k.prefetch(self.b, at + PREFETCH * b_step)
            return self.load(self.b, at, 1, (shape.lanes,), masks[v])

        cut = replace(shape, rows=self.rows, vectors=len(starts))
        sums = multiply(k, cut, p.accumulate, self.high - self.low, load_a, load_b, None)
        if self.waiting is None:
            aligned = p.columns % self.lanes == 0
            for r, vectors in enumerate(sums):
                for start, mask, x in zip(starts, masks, vectors):
                    self.writer.store(row + r, column + start, x, mask, aligned=aligned)
            return
        zero = k.const("index", 0)
        for r, vectors in enumerate(sums):
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

    LINES = 64  # lines a program finishes before it stores them

    def calls(self) -> list[Call]:
        p = self.problem
        self.group = 1
        while self.group * 2 * p.rows <= 8 and self.group * 2 <= p.columns:
            self.group *= 2
        work = p.depth * p.columns * p.rows * p.batches * itemsize(p.b.dtype) / 10
        blocks = min(
            ceil_div(p.columns, self.LINES), max(1, ceil_div(self.wanted(work), p.batches))
        )
        splits = 1
        if blocks * p.batches * 2 <= self.target.threads and p.depth >= 1 << 15:
            splits = min(2 * self.target.threads // (blocks * p.batches), p.depth >> 13)
        unit = 4 * self.lanes * splits
        self.part_depth = ceil_div(p.depth, unit) * 4 * self.lanes
        if splits > 1:
            sink, temp = split_sink(p, splits)
            return [
                self._product(sink, splits, blocks, work),
                combine_parts(self.ctx, p, temp, splits),
            ]
        return [self._product(p.out, 1, blocks, work)]

    def _product(self, sink: Sink, splits: int, blocks: int, work: float) -> Call:
        p, lines = self.problem, self.LINES
        (place,), part = self.begin("dots", sink, splits, [blocks])
        k = self.k
        sums = k.scratch("sums", p.accumulate, p.rows * (lines + self.lanes))
        pieces = ceil_div(p.columns, lines)
        low, top = k.const("index", 0), k.const("index", p.depth)
        if part is not None:
            low = k.min(part * self.part_depth, top)
            top = k.min(low + self.part_depth, top)

        def piece(i: Value) -> None:
            first = i * lines
            count = k.min(k.const("index", p.columns) - first, lines)
            k.for_(0, count, self.group, lambda g: self._group(first, g, low, top, sums))
            for r in range(p.rows):

                def store(v: Value) -> None:
                    at = v + r * (lines + self.lanes)
                    width = first + count
                    store_lanes(
                        k, self.writer, sums, at, k.const("index", r), first + v, width, self.lanes
                    )

                k.for_(0, count, self.lanes, store)

        start, stop = (
            ((place + i) * pieces) // blocks if blocks > 1 else k.const("index", i * pieces)
            for i in (0, 1)
        )
        k.for_(start, stop, 1, piece)
        return self.program.launch(p.batches * splits * blocks, work / 2.5)

    def _group(self, first: Value, g: Value, low: Value, top: Value, sums: tile.Buffer) -> None:
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
                k.store(sums, g + n + r * (self.LINES + self.lanes), total)


def _sum(k: tile.Builder, xs: list[Value]) -> Value:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total
