"""Products of packed panels: the general kernel.

A program of the grid computes one block of the result. For each block of depth it copies its rows
of `a` to where they stay in the second-level cache, then multiplies them with panels of `b`, one
register tile after the other. Sums that are not complete yet wait in scratch.

Panels of `b` are packed once for all programs where several use them, else by the program itself.
Where the result is small and the sum long, programs share the depth instead; the sums of their
parts are added by a second launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from amdjax import tile
from amdjax.core.dims import is_multiple
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.products.contraction import (
    Contraction,
    ProductProblem,
    Sink,
    TileShape,
    best_even_tiles,
    best_tiles,
    product,
)
from amdjax.kernels.products.cpu.blocking import (
    Blocking,
    best_blocking,
    block_cycles,
    blockings,
    is_at_most,
    least_time,
    like_one_tile,
    line_stride,
)
from amdjax.kernels.products.cpu.costs import launch_time, nanoseconds, work
from amdjax.kernels.products.cpu.micro_kernel import Rows, each_tile, multiply, multiply_add
from amdjax.kernels.products.cpu.packing import (
    PanelPacker,
    copy_lines,
    depth_granularity,
    pack_lanes,
)
from amdjax.kernels.products.cpu.reading import Part, Reader
from amdjax.kernels.products.grouped import GroupBounds, block_numbers
from amdjax.kernels.products.program import Program
from amdjax.kernels.products.split_k import combine_parts, split_sink
from amdjax.kernels.products.writing import Writer, store_sums
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Solver
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize
from amdjax.tile.types import CACHE_LINE

Value = tile.Value
MOST_TILES = 4  # of different shapes that are looked at


def _class_of(size: int) -> int:
    """A size at least as large, one of few, so that kernels of similar products are the same."""
    granularity = max(16, 1 << max(size - 1, 1).bit_length() >> 2)
    return round_up(size, granularity)


def room_for(program: Program, depth: int) -> tuple[Callable[[int], int], int]:
    """How much scratch to take for a size, and for what depth of a block.

    Few different ones where sizes are parameters: kernels of many sizes are the same.
    """
    return (_room, _class_of(depth)) if program.runtime else (int, depth)


def _room(size: int) -> int:
    """Elements of scratch for `size`, one of few."""
    room = 1 << 9
    while room < size:
        room *= 4
    return room if room <= 1 << 17 else ceil_div(size, 1 << 15) << 15


@dataclass(frozen=True)
class Block:
    """What a program multiplies between two copies of its operands.

    Args:
      row: the first row.
      panel: the first panel of columns.
      start: where in the depth it begins ...
      stop: ... and ends.
      first: whether no part of the depth came before ...
      last: ... or comes after.
    """

    row: Value
    panel: Value
    start: Value
    stop: Value
    first: Literal[True] | Value
    last: Literal[True] | Value


@dataclass(frozen=True)
class PackedPlan:
    """A product of packed panels.

    Args:
      problem: the contraction, merged.
      blocking: how it is cut.
    """

    problem: Contraction
    blocking: Blocking

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return PackedProduct(ctx, self.problem, self.blocking).calls()

    def __str__(self) -> str:
        return f"packed product of {self.problem}, {self.blocking}"


def packed_plans(problem: ProductProblem, target: CpuTarget) -> list[PackedPlan]:
    """Plans of several tiles and blocks."""
    p = problem.merged
    cuts = (cut for shape in _shapes(p, target) for cut in blockings(p, target, shape))
    return [PackedPlan(p, cut) for cut in cuts]


def usual_packed_plan(problem: ProductProblem, target: CpuTarget) -> PackedPlan | None:
    """The one of these plans that takes least."""
    p = problem.merged
    blocking = best_blocking(p, target, _shapes(p, target))
    return None if blocking is None else PackedPlan(p, blocking)


def least_packed_cost(problem: ProductProblem, target: CpuTarget) -> float:
    """Nanoseconds of which none of these plans takes less; zero of symbolic sizes."""
    p = problem.merged
    return least_time(p, target, _shapes(p, target))


def _shapes(p: Contraction, target: CpuTarget) -> list[TileShape]:
    """Tiles that are looked at."""
    if p.a.depth_contiguous:  # rows are packed one by one, and tiles begin at any of them
        return best_even_tiles(p, target, p.at_hand.rows)[:MOST_TILES]
    return best_tiles(p, target)[:MOST_TILES]


def grouped_plans(problem: Contraction, target: CpuTarget) -> list[PackedPlan]:
    """Plans for groups of rows or of depth."""
    if problem.a.depth_contiguous:
        shapes = best_even_tiles(problem.typical, target, problem.typical.at_hand.rows)
    elif problem.cuts_rows and len(problem.a.lines) > 1:  # lanes would hold rows of two loops
        return []
    else:
        shapes = best_tiles(problem.typical, target)
    cuts = (cut for shape in shapes[:MOST_TILES] for cut in blockings(problem, target, shape))
    return [PackedPlan(problem, cut) for cut in cuts]


def grouped_cost(problem: Contraction, plan: PackedPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    return nanoseconds(block_cycles(problem, target, plan.blocking), target)


def packed_cost(product: ProductProblem, plan: PackedPlan, target: CpuTarget) -> float:
    """Nanoseconds, about."""
    return nanoseconds(block_cycles(plan.problem, target, plan.blocking), target)


PACKED = Solver(
    "packed", packed_plans, packed_cost, usual=usual_packed_plan, least=least_packed_cost
)
GROUPED = Solver("packed groups", grouped_plans, grouped_cost)


class PackedProduct:
    """A contraction as launches: packing, blocks, and adding the parts of split sums."""

    #: Elements in depth that a step of the micro-kernel takes.
    per = 1

    def __init__(self, ctx: ShapedContext, problem: Contraction, blocking: Blocking):
        self.ctx, self.target, self.problem = ctx, ctx.target, problem
        self.blocking = blocking
        self.packer = self.make_packer()

    def make_packer(self) -> PanelPacker:
        """What packs `b`."""
        shape = self.blocking.tile
        return PanelPacker(self.ctx, self.problem, shape.columns, shape.lanes, self.target)

    def calls(self) -> list[Call]:
        """The launches in order."""
        if not self.problem.depth:
            return [self._product(self.problem.out)]
        if self.blocking.splits > 1:
            parts, combine = split_sink(self.problem, self.blocking.splits)
            return [
                self._product(parts),
                combine_parts(self.ctx, self.problem, combine, self.blocking.splits),
            ]
        first = [self.packer.call()] if self.blocking.shared else []
        return [*first, self._product(self.problem.out)]

    def _product(self, sink: Sink) -> Call:
        p, blocking = self.problem, self.blocking
        self.program = program = Program(self.ctx, "product", runtime=self._is_simple())
        self.k = k = program.k
        self.a_reader = Reader(program, p.a, "a")
        self.shared = blocking.shared and p.depth > 0
        if self.shared:
            self.panels = program.buffer(self.packer.result, self.packer.dtype)
        else:
            self.b_reader = Reader(program, p.b, "b")
        like_one_tile(p, blocking.tile, self.target)
        high = self._row_blocks()
        wide = ceil_div(self.packer.panels, blocking.columns)
        numbers = {
            "rows": p.rows, "columns": p.columns, "depth": p.depth, "wide": wide, "high": high,
            "panels": self.packer.panels, "padded": self.packer.depth, "block.rows": blocking.rows,
            "block.columns": blocking.columns, "block.depth": blocking.depth,
            "ahead": max(2, ceil_div(blocking.tile.columns, blocking.rows)),
            "turns": self.turns, "turn": p.depth // self.turns,
        }  # fmt: skip
        for i, axis in enumerate(p.out.batch):
            numbers[f"batch{i}.extent"] = axis.extent
        program.declare(numbers)
        self.bounds = GroupBounds(program, p) if p.groups else None
        pid = k.program_id()
        column_block = pid % program.num("wide", wide)
        pid = pid // program.num("wide", wide)
        row_block = pid % program.num("high", high)
        pid = pid // program.num("high", high)
        self.part = None
        if blocking.splits > 1:
            self.part = pid % blocking.splits
            pid = pid // blocking.splits
        first_row = self._place(pid, row_block)
        places = self.batch if self.part is None else [self.part, *self.batch]
        self.writer = Writer(program, replace(p, out=sink), places)
        self._scratch()
        if self.problem.cuts_rows:
            k.if_(first_row < self.end, lambda: self._block(first_row, column_block))
        else:
            self._block(first_row, column_block)
        grid = self._batches * blocking.splits * high * wide
        words = blocking.tile if self.packer.dtype != p.accumulate else None
        return program.launch(grid, launch_time(work(p.typical, self.target, words)))

    @property
    def _batches(self) -> int:
        """Entries of the batch that programs count through; they find groups of rows themselves."""
        return product(self.problem.out.batch[: -1 if self.problem.cuts_rows else None])

    def _row_blocks(self) -> int:
        """Blocks along the rows."""
        block = self.blocking.tile.rows * self.blocking.rows
        if self.problem.cuts_rows:
            return block_numbers(self.problem, block)
        return ceil_div(self.problem.rows, block)

    def _place(self, entry: Value, row_block: Value) -> Value:
        """The first row of a program; finds its place along each batch loop, and how far it goes.

        Args:
          entry: of the batch.
          row_block: the number of its block of rows.
        """
        program, p = self.program, self.problem
        block = program.num("block.rows", self.blocking.rows) * self.blocking.tile.rows
        self.end, self.exists = program.num("rows", p.rows), None
        if not self.problem.cuts_rows:
            self.batch = program.split(entry, "batch", p.out.batch)
            return row_block * block
        assert self.bounds is not None
        self.batch = program.split(entry, "batch", p.out.batch[:-1])
        found = self.bounds.find(row_block, block, self.batch)
        self.batch.append(found.group)
        self.end, self.exists = found.end, found.exists
        return found.first

    def _is_simple(self) -> bool:
        """Whether nothing but numbers depends on the sizes."""
        p = self.problem
        groups = (p.a.depth, p.a.lines, p.b.depth, p.b.lines)
        return (
            self.ctx.epilogue is None
            and not p.a.limits
            and not p.b.limits
            and self.blocking.splits == 1
            and all(len(axes) <= 1 for axes in groups)
        )

    def _scratch(self) -> None:
        p, blocking, k = self.problem, self.blocking, self.k
        shape = blocking.tile
        room, depth = room_for(self.program, blocking.depth)
        self._place_rows()
        if not self.shared:
            self.panel_depth = round_up(depth, self.packer.lanes)
            size = blocking.columns * self.panel_depth * shape.columns + shape.lanes
            self.panels = k.scratch("b", self.packer.dtype, room(size))
        if self.problem.cuts_depth:
            self.partial = True
        elif blocking.splits > 1:  # a program without depth would store nothing if it were partial
            self.partial = blocking.depth < ceil_div(p.depth, blocking.splits)
        else:
            self.partial = not is_at_most(p.depth, blocking.depth)
        tiles = blocking.rows * blocking.columns if self.partial else 1
        size = tiles * shape.rows * shape.columns
        self.c = k.scratch("c", p.accumulate, room(size))

    def _place_rows(self) -> None:
        """Scratch for the rows of a block."""
        blocking, shape = self.blocking, self.blocking.tile
        self.by_line = self.a_reader.depth_contiguous or not self.problem.a.depth
        room, depth = room_for(self.program, blocking.depth)
        self.stride = line_stride(shape, depth)
        size = blocking.rows * shape.rows * (self.stride if self.by_line else depth) + shape.lanes
        self.a = self.k.scratch("a", self.problem.accumulate, room(size))

    # One block

    def _block(self, first_row: Value, column_block: Value) -> None:
        program, k, blocking = self.program, self.k, self.blocking
        shape = blocking.tile
        block_rows = program.num("block.rows", blocking.rows)
        rows = k.min(self.end - first_row, block_rows * shape.rows)
        block_columns = program.num("block.columns", blocking.columns)
        first_panel = column_block * block_columns
        panels = k.min(program.num("panels", self.packer.panels) - first_panel, block_columns)
        high = (rows + (shape.rows - 1)) // shape.rows
        step = program.num("block.depth", blocking.depth)
        zero = k.const("index", 0)
        lines = Part.of(self.a_reader, self.batch, first_row, zero, zero)

        def part(
            start: Value, top: Value, first: Literal[True] | Value, last: Literal[True] | Value
        ) -> None:
            stop = k.min(start + step, top)
            block = Block(first_row, first_panel, start, stop, first, last)
            self._pack_a(lines.within(start, stop), high)
            if not self.shared:
                self._pack_b(block, panels)

            def panel(j: Value) -> None:
                each_tile(k, rows, shape, lambda i, row, one: self._tile(block, i, row, j, one))

            k.for_(0, panels, 1, panel)

        def whole(turn: Value | None) -> None:
            low, top = self._depth_range(turn)
            if not self.partial:
                part(low, top, True, True)
                return

            def each(start: Value) -> None:
                first, last = k.eq(start, low), (start + step) >= top
                if turn is not None:
                    first, last = first & k.eq(turn, zero), last & k.eq(turn, turns - 1)
                part(start, top, first, last)

            # What has no depth is stored, too.
            k.for_(low, k.max(top, low + 1) if self.bounds else top, step, each)

        if self.turns == 1:
            whole(None)
        else:
            turns = program.num("turns", self.turns)
            k.for_(0, turns, 1, whole)

    @property
    def turns(self) -> int:
        """How often a program passes through a depth, parts of which are summed."""
        return self.problem.groups.outer if self.problem.groups else 1

    def _depth_range(self, turn: Value | None) -> tuple[Value, Value]:
        """The depth this program sums, all of it or that of a turn."""
        k, blocking = self.k, self.blocking
        depth = self.program.num("depth", self.problem.depth)
        if self.exists is not None:
            return k.const("index", 0), k.select(self.exists, depth, k.const("index", 0))
        if self.bounds is not None:
            *batch, group = self.batch
            low, top = (self.bounds.at(batch, group + i, turn) for i in (0, 1))
            if turn is None:
                return low, top
            each = self.program.num("turn", self.problem.depth // self.turns) * turn
            return each + low, each + top
        if self.part is None:
            return k.const("index", 0), depth
        blocks = ceil_div(self.problem.depth, blocking.depth)
        bounds = [(((self.part + i) * blocks) // blocking.splits) * blocking.depth for i in (0, 1)]
        return bounds[0], k.min(bounds[1], depth)

    def _pack_a(self, part: Part, high: Value) -> None:
        k, shape = self.k, self.blocking.tile
        if self.by_line:
            whole = (
                is_at_most(self.problem.depth, self.blocking.depth) and not self.problem.cuts_depth
            )
            copy_lines(part, high * shape.rows, self.a, self.stride, shape.lanes, whole)
            return
        granularity = 1 if self.problem.cuts_depth else depth_granularity(self.problem.a)

        def panel(i: Value) -> None:
            at = i * shape.rows * (part.stop - part.start)
            pack_lanes(part.after(i * shape.rows), shape.rows, self.a, at, shape.lanes, granularity)

        k.for_(0, high, 1, panel)

    def _pack_b(self, block: Block, panels: Value) -> None:
        k, columns = self.k, self.blocking.tile.columns
        first = block.panel * columns
        part = Part.of(self.b_reader, self.batch, first, block.start, block.stop)

        def panel(j: Value) -> None:
            at = j * (self.panel_depth * columns)
            self.packer.pack(part.after(j * columns), self.panels, at)

        k.for_(0, panels, 1, panel)

    def _tile(self, block: Block, i: Value, first: Value, j: Value, shape: TileShape) -> None:
        """Multiply tile `i`, from row `first` of the block on, and its panel `j`."""
        program, k, blocking = self.program, self.k, self.blocking
        steps = self._steps(block.stop - block.start + (self.per - 1))
        prefetch_step = program.num("ahead", max(2, ceil_div(shape.columns, blocking.rows)))
        if self.shared:
            b_base = self._steps(self._panel(block.panel + j) + block.start * shape.columns)
        else:
            b_base = j * (self.panel_depth // self.per * shape.columns)
        if self.by_line:
            row_stride, step_stride = self.stride // self.per, 1
            a_base = first * row_stride
        else:
            a_base, row_stride, step_stride = first * steps, 1, shape.rows
        # The next panel arrives in the second-level cache while tiles use this one; where there is
        # one tile, panels are read from end to end, and machines see that by themselves.
        prefetches = self.shared and blocking.rows > 1
        distance = (
            b_base
            + self._steps(program.num("padded", self.packer.depth)) * shape.columns
            + i * steps * prefetch_step
        )
        row, column = block.row + first, (block.panel + j) * shape.columns
        self._prefetch_result(row, column, block.last, shape)

        a, panels = self.a, self.panels
        if self.per > 1:
            a, panels = (replace(x, dtype="i32") for x in (a, panels))

        def load_a(s: Value, r: int) -> Value:
            if r == 0 and prefetches:
                k.prefetch(panels, distance + s * prefetch_step, level=2)
            return k.load(a, a_base + s * step_stride + r * row_stride)

        def load_b(s: Value, v: int) -> Value:
            at = b_base + s * shape.columns + v * shape.lanes
            return k.load(panels, at, (shape.lanes,), (1,))

        c_base = k.const("index", 0)
        if self.partial:
            block_rows = program.num("block.rows", blocking.rows) * blocking.tile.rows
            c_base = (j * block_rows + first) * shape.columns
            each = CACHE_LINE // itemsize(self.problem.accumulate)
            for at in range(0, shape.rows * shape.columns, each):
                k.prefetch(self.c, c_base + at)
        fresh = self.start(block.panel + j, block.first)
        accumulators = multiply(
            k, shape, self.problem.accumulate, steps, load_a, load_b, [fresh] * shape.rows, self.add
        )
        accumulators = self._with_earlier(block.first, c_base, accumulators, shape)
        if block.last is True:
            self._finish(row, column, c_base, accumulators, shape)
        else:
            k.if_(
                block.last,
                lambda: self._finish(row, column, c_base, accumulators, shape),
                lambda: self._keep(c_base, accumulators),
            )

    def _steps(self, elements: Value) -> Value:
        """Whole steps of the micro-kernel in a number of elements."""
        return elements if self.per == 1 else elements // self.per

    def _prefetch_result(
        self, row: Value, column: Value, last: Literal[True] | Value, shape: TileShape
    ) -> None:
        """Have the lines that a tile will be stored to."""
        if not self.writer.prefetches():
            return
        ask = partial(self.writer.prefetch, row, column, shape)
        if last is True:
            ask()
        else:
            self.k.if_(last, ask)

    def _panel(self, panel: Value) -> Value:
        """Where a panel of this batch entry begins."""
        start = self.panel_index(panel) * self.program.num("padded", self.packer.depth)
        return start * self.blocking.tile.columns

    def panel_index(self, panel: Value) -> Value:
        """The place of a panel of this batch entry among all panels."""
        program = self.program
        entry: Value | None = None
        for i in self.packer.batch:
            digit = self.batch[i]
            if entry is not None:
                extent = program.num(f"batch{i}.extent", self.problem.out.batch[i].extent)
                digit = entry * extent + digit
            entry = digit
        return panel if entry is None else entry * program.num("panels", self.packer.panels) + panel

    def add(self, k: tile.Builder, a: Value, b: Value, total: Value) -> Value:
        """A step of the micro-kernel."""
        return multiply_add(k, a, b, total)

    def start(self, panel: Value, first: Literal[True] | Value) -> list[Value]:
        """What a block's sums of the columns of a panel start from."""
        del panel, first
        shape = self.blocking.tile
        return [self.k.const(self.problem.accumulate, 0, (shape.lanes,))] * shape.vectors

    def _with_earlier(
        self, first: Literal[True] | Value, c_base: Value, accumulators: Rows, shape: TileShape
    ) -> Rows:
        """Sums of this block of depth and of those before it, which wait in scratch.

        Each block is summed from zero: rounding errors then grow with the depth of a block and the
        number of blocks, not with their product.
        """
        if first is True:
            return accumulators
        k = self.k
        flat = [x for row in accumulators for x in row]

        def added() -> list[Value]:
            at = (c_base + n * shape.lanes for n in range(len(flat)))
            return [x + k.load(self.c, offset, (shape.lanes,), (1,)) for x, offset in zip(flat, at)]

        flat = list(k.if_(first, lambda: flat, added))
        return [flat[r * shape.vectors : (r + 1) * shape.vectors] for r in range(shape.rows)]

    def _keep(self, c_base: Value, accumulators: Rows) -> None:
        shape = self.blocking.tile
        for n, x in enumerate(x for row in accumulators for x in row):
            self.k.store(self.c, c_base + n * shape.lanes, x, (1,))

    def _finish(
        self, row: Value, column: Value, c_base: Value, accumulators: Rows, shape: TileShape
    ) -> None:
        """Store a finished tile."""
        k, program = self.k, self.program
        rows = k.min(self.end - row, shape.rows)
        width = program.num("columns", self.problem.columns)
        # Code that sizes share must not depend on them.
        whole = not program.runtime and is_multiple(self.problem.columns, shape.columns)
        sums = [x for line in accumulators for x in line]
        place = (row, rows), (column, width)
        store_sums(self.writer, self.c, c_base, shape, sums, *place, all_columns=whole)
