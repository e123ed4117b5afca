"""Products of packed panels: the general kernel.

A program of the grid computes one block of the result. For each block of depth it copies its rows
of `a` to where they stay in the second-level cache, then multiplies them with panels of `b`, one
register tile after the other. Sums that are not complete yet wait in scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amdjax.jit import tile
from amdjax.jit.shaped import Call, ShapedContext
from amdjax.kernels.contraction import Contraction, TileShape, choose_tile
from amdjax.kernels.packing import PanelPacker, Program, Reader, copy_lines, pack_lanes
from amdjax.kernels.writing import Writer
from amdjax.targets.cpu import CpuTarget

Value = tile.Value
Rows = list[list[Value]]


@dataclass(frozen=True)
class Blocking:
    """How a product is cut.

    Args:
      tile: what registers hold.
      rows: rows of a program's block, in tiles.
      columns: columns of a program's block, in tiles.
      depth: how deep a block is.
    """

    tile: TileShape
    rows: int
    columns: int
    depth: int


def choose_blocking(problem: Contraction, target: CpuTarget, shape: TileShape) -> Blocking:
    """Blocks that fit the caches and keep all threads busy to the end."""
    size = int(problem.accumulate[1:]) // 8
    depth = min(max(problem.depth, 1), max(64, 1024 // size))
    if problem.depth > depth:  # equal parts
        depth = -(-problem.depth // -(-problem.depth // depth))
        depth = -(-depth // 16) * 16
    high, wide = -(-problem.rows // shape.rows), -(-problem.columns // shape.columns)
    most_rows = max(1, target.l2_bytes // 4 // (depth * size * shape.rows))
    most_columns = max(1, 2 * target.l2_bytes // (depth * size * shape.columns))
    best: tuple[float, int, int] | None = None
    for rows in _candidates(high, most_rows):
        for columns in _candidates(wide, most_columns):
            if (
                depth < problem.depth
                and rows * columns * shape.rows * shape.columns * size > target.l2_bytes // 4
            ):
                continue
            programs = problem.batches * -(-high // rows) * -(-wide // columns)
            tiles = min(rows, high) * min(columns, wide)
            pack = 0.15 * shape.rows * min(rows, high) / shape.cycles
            each = tiles + pack + 40 / (shape.cycles * max(depth, 1))
            rounds = (
                -(-programs // target.threads)
                if programs < 8 * target.threads
                else programs / target.threads
            )
            cost = rounds * each
            if best is None or cost < best[0] * 0.999:
                best = (cost, rows, columns)
    assert best is not None
    return Blocking(shape, best[1], best[2], depth)


def _candidates(total: int, most: int) -> list[int]:
    """Block sizes worth trying: those that cut `total` into nearly equal parts, largest first."""
    most = min(total, most)
    out = []
    parts = -(-total // most)
    while len(out) < 12 and parts <= total:
        size = -(-total // parts)
        if not out or size < out[-1]:
            out.append(size)
        parts = -(-total // (size - 1)) if size > 1 else total + 1
    return out


def multiply(
    k: tile.Builder,
    shape: TileShape,
    accumulate: str,
    steps: Value | int,
    load_a: Callable[[Value, int], Value],
    load_b: Callable[[Value, int], Value],
    init: Rows | None,
) -> Rows:
    """The micro-kernel: `init + Σ a[:, i] b[i, :]` for `i` in `range(steps)`, all in registers.

    `load_a(i, row)` gives a scalar, `load_b(i, vector)` a vector.
    """
    rows, vectors, lanes = shape.rows, shape.vectors, (shape.lanes,)
    zero = k.const(accumulate, 0, lanes)
    flat = [zero] * (rows * vectors) if init is None else [x for row in init for x in row]

    def step(i: Value, *sums: Value) -> list[Value]:
        b = [load_b(i, v) for v in range(vectors)]
        out = []
        for r in range(rows):
            a = k.broadcast(load_a(i, r), lanes)
            out += [multiply_add(k, a, b[v], sums[r * vectors + v]) for v in range(vectors)]
        return out

    sums = k.for_(0, steps, 1, step, flat)
    return [list(sums[r * vectors : (r + 1) * vectors]) for r in range(rows)]


def multiply_add(k: tile.Builder, a: Value, b: Value, total: Value) -> Value:
    if total.dtype in tile.FLOATS:
        return k.op("fma", a, b, total)
    return k.op("add", k.op("mul", a, b), total)


class BlockedProduct:
    """A contraction as a packing launch and a launch of blocks."""

    def __init__(self, ctx: ShapedContext, problem: Contraction, target: CpuTarget):
        self.ctx, self.target = ctx, target
        self.problem = problem
        shape = choose_tile(target, problem.rows, problem.columns, problem.accumulate)
        self.blocking = choose_blocking(problem, target, shape)
        self.packer = PanelPacker(ctx, problem, shape.columns, shape.lanes, target)

    def calls(self) -> list[Call]:
        first = [self.packer.call()] if self.problem.depth else []
        return [*first, self.product()]

    def product(self) -> Call:
        p, blocking = self.problem, self.blocking
        self.program = program = Program(self.ctx, "product", runtime=self._is_simple())
        self.k = k = program.k
        self.reader = Reader(program, p.a, "a")
        self.panels = program.buffer(self.packer.result, p.accumulate)
        high = -(-p.rows // (blocking.tile.rows * blocking.rows))
        wide = -(-self.packer.panels // blocking.columns)
        numbers = {
            "rows": p.rows,
            "columns": p.columns,
            "depth": p.depth,
            "wide": wide,
            "high": high,
            "panels": self.packer.panels,
            "padded": self.packer.depth,
            "block.rows": blocking.rows,
            "block.columns": blocking.columns,
            "block.depth": blocking.depth,
        }
        for i, axis in enumerate(p.out.batch):
            numbers[f"batch{i}.extent"] = axis.extent
        program.declare(numbers)
        pid = k.program_id()
        column_block = k.op("rem", pid, program.num("wide", wide))
        pid = k.op("div", pid, program.num("wide", wide))
        row_block = k.op("rem", pid, program.num("high", high))
        self.batch = program.split(
            k.op("div", pid, program.num("high", high)), "batch", p.out.batch
        )
        self.writer = Writer(program, p, self.batch)
        self._scratch()
        self._block(row_block, column_block)
        flops = p.batches * p.rows * p.columns * p.depth
        cycles = flops / (blocking.tile.rows * blocking.tile.columns) * blocking.tile.cycles
        return program.launch(p.batches * high * wide, cycles / 2.5 + 1000)

    def _is_simple(self) -> bool:
        """Whether nothing but numbers depends on the sizes."""
        p = self.problem
        return (
            self.ctx.epilogue is None
            and not p.a.limits
            and len(p.a.depth) <= 1
            and len(p.a.lines) <= 1
        )

    def _scratch(self) -> None:
        p, blocking, k = self.problem, self.blocking, self.k
        shape = blocking.tile
        self.by_line = self.reader.depth_contiguous or not p.a.depth
        # A multiple of a page would put all lines of a panel into the same cache sets.
        self.stride = -(-(blocking.depth + shape.lanes) // 16) * 16 + 16
        rows = blocking.rows * shape.rows
        size = rows * (self.stride if self.by_line else blocking.depth) + shape.lanes
        if self._runtime_depth():
            size = max(size, 0)
        self.a = k.scratch("a", p.accumulate, size)
        partial = blocking.depth < p.depth
        tiles = blocking.rows * blocking.columns if partial else 1
        self.c = k.scratch("c", p.accumulate, tiles * shape.rows * shape.columns)

    def _runtime_depth(self) -> bool:
        return self.program.runtime

    # -- one block ----------------------------------------------------------------------------

    def _block(self, row_block: Value, column_block: Value) -> None:
        program, k, blocking = self.program, self.k, self.blocking
        shape = blocking.tile
        depth = program.num("depth", self.problem.depth)
        block_rows = program.num("block.rows", blocking.rows)
        first_row = row_block * block_rows * shape.rows
        rows = k.op(
            "min", program.num("rows", self.problem.rows) - first_row, block_rows * shape.rows
        )
        first_panel = column_block * program.num("block.columns", blocking.columns)
        panels = k.op(
            "min",
            program.num("panels", self.packer.panels) - first_panel,
            program.num("block.columns", blocking.columns),
        )
        high = k.op("div", rows + (shape.rows - 1), k.const("index", shape.rows))
        base, coords = self.reader.start(self.batch)

        def part(start: Value, first: bool | Value, last: bool | Value) -> None:
            stop = k.op("min", start + program.num("block.depth", blocking.depth), depth)
            self._pack(first_row, high, base, coords, start, stop)

            def panel(j: Value) -> None:
                def one(i: Value) -> None:
                    self._tile(first_row, i, first_panel, j, start, stop, first, last)

                k.for_(0, high, 1, one)

            k.for_(0, panels, 1, panel)

        if blocking.depth >= self.problem.depth:
            part(k.const("index", 0), True, True)
            return
        step = program.num("block.depth", blocking.depth)

        def each(start: Value) -> None:
            part(start, k.op("eq", start, k.const("index", 0)), k.op("ge", start + step, depth))

        k.for_(0, depth, step, each)

    def _pack(
        self,
        first_row: Value,
        high: Value,
        base: Value,
        coords: list[Value],
        start: Value,
        stop: Value,
    ) -> None:
        k, shape = self.k, self.blocking.tile
        if self.by_line:
            copy_lines(
                self.reader,
                first_row,
                high * shape.rows,
                base,
                coords,
                start,
                stop,
                self.a,
                self.stride,
                shape.lanes,
            )
            return

        def panel(i: Value) -> None:
            at = i * shape.rows * (stop - start)
            pack_lanes(
                self.reader, first_row + i * shape.rows, shape.rows, base, coords, start, stop, self.a, at,
                shape.lanes, shape.rows,
            )  # fmt: skip

        k.for_(0, high, 1, panel)

    def _tile(
        self,
        first_row: Value,
        i: Value,
        first_panel: Value,
        j: Value,
        start: Value,
        stop: Value,
        first: bool | Value,
        last: bool | Value,
    ) -> None:
        program, k, blocking, shape = self.program, self.k, self.blocking, self.blocking.tile
        steps, step_ahead = stop - start, max(2, -(-shape.columns // blocking.rows))
        b_base = self._panel(first_panel + j) + start * shape.columns
        if self.by_line:
            a_base, row_stride, step_stride = i * (shape.rows * self.stride), self.stride, 1
        else:
            a_base, row_stride, step_stride = i * shape.rows * steps, 1, shape.rows

        # The next panel arrives in the second-level cache while this one is used.
        ahead = b_base + program.num("padded", self.packer.depth) * shape.columns + i * step_ahead * steps
        self._prefetch_result(first_row + i * shape.rows, (first_panel + j) * shape.columns, last)

        def load_a(s: Value, r: int) -> Value:
            if r == 0:
                k.prefetch(self.panels, ahead + s * step_ahead, level=2)
            return k.load(self.a, a_base + s * step_stride + r * row_stride)

        def load_b(s: Value, v: int) -> Value:
            return k.load(
                self.panels, b_base + s * shape.columns + v * shape.lanes, (shape.lanes,), (1,)
            )

        size = shape.rows * shape.columns
        c_base = (
            k.const("index", 0)
            if first is True
            else (j * program.num("block.rows", blocking.rows) + i) * size
        )
        init = None if first is True else self._initial(first, c_base)
        sums = multiply(k, shape, self.problem.accumulate, steps, load_a, load_b, init)
        row, column = first_row + i * shape.rows, (first_panel + j) * shape.columns
        if last is True:
            self._finish(row, column, c_base, sums)
        else:
            k.if_(
                last,
                lambda: self._finish(row, column, c_base, sums),
                lambda: self._keep(c_base, sums),
            )

    def _prefetch_result(self, row: Value, column: Value, last: bool | Value) -> None:
        """Have the lines that a tile will be stored to."""
        if not self.writer.is_plain or len(self.problem.out.rows) != 1:
            return
        k, shape = self.k, self.blocking.tile

        def ask() -> None:
            for r in range(shape.rows):
                self.writer.prefetch(row + r, column, shape.columns)

        ask() if last is True else k.if_(last, ask)

    def _panel(self, panel: Value) -> Value:
        program = self.program
        entry: Value | None = None
        for i in self.packer.batch:
            digit = self.batch[i]
            if entry is not None:
                digit = (
                    entry * program.num(f"batch{i}.extent", self.problem.out.batch[i].extent)
                    + digit
                )
            entry = digit
        if entry is not None:
            panel = entry * program.num("panels", self.packer.panels) + panel
        return panel * program.num("padded", self.packer.depth) * self.blocking.tile.columns

    def _initial(self, first: Value, c_base: Value) -> Rows:
        k, shape = self.k, self.blocking.tile
        zero = k.const(self.problem.accumulate, 0, (shape.lanes,))
        count = shape.rows * shape.vectors

        def loaded() -> list[Value]:
            return [
                k.load(self.c, c_base + n * shape.lanes, (shape.lanes,), (1,)) for n in range(count)
            ]

        flat = k.if_(first, lambda: [zero] * count, loaded)
        return [list(flat[r * shape.vectors : (r + 1) * shape.vectors]) for r in range(shape.rows)]

    def _keep(self, c_base: Value, sums: Rows) -> None:
        shape = self.blocking.tile
        for n, x in enumerate(x for row in sums for x in row):
            self.k.store(self.c, c_base + n * shape.lanes, x, (1,))

    def _finish(self, row: Value, column: Value, c_base: Value, sums: Rows) -> None:
        """Store a finished tile: from registers where it is whole and plain, else row by row."""
        k, program, shape = self.k, self.program, self.blocking.tile
        rows = k.op(
            "min", program.num("rows", self.problem.rows) - row, k.const("index", shape.rows)
        )
        width = program.num("columns", self.problem.columns)

        def row_by_row() -> None:
            self._keep(c_base, sums)
            store_tile(k, self.writer, self.c, c_base, row, rows, column, width, shape)

        if not self.writer.is_plain:
            row_by_row()
            return
        whole = k.op(
            "and",
            k.op("ge", rows, k.const("index", shape.rows)),
            k.op("le", column + shape.columns, width),
        )
        k.if_(whole, lambda: self.writer.store_rows(row, column, sums), row_by_row)


def store_tile(
    k: tile.Builder,
    writer: Writer,
    scratch: tile.Buffer,
    base: Value,
    row: Value,
    rows: Value,
    column: Value,
    width: Value,
    shape: TileShape,
) -> None:
    """Rows of a tile that waits in scratch, through the epilogue to the result."""
    lanes = shape.lanes
    paired = writer.is_complex and writer.epilogue is not None

    def one(r: Value) -> None:
        for v in range(shape.vectors):
            at = base + r * shape.columns + v * lanes
            first = column + v * lanes
            if paired:
                half = lanes // 2
                parts = tuple(k.load(scratch, at + p, (half,), (2,)) for p in (0, 1))
                remaining = k.op("div", width - first, k.const("index", 2))
                mask = k.op("lt", k.iota(half, "i32"), k.convert(remaining, "i32"))
                writer.store(
                    row + r, k.op("div", first, k.const("index", 2)), parts[0], mask, parts
                )
                continue
            mask = k.op("lt", k.iota(lanes, "i32"), k.convert(width - first, "i32"))
            writer.store(row + r, first, k.load(scratch, at, (lanes,), (1,)), mask)

    k.for_(0, rows, 1, one)


__all__ = ["BlockedProduct", "Blocking", "Sequence", "choose_blocking", "multiply", "store_tile"]
