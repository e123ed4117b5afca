"""Products of bfloat16 and of bytes on AMX, the matrix unit of x86 CPUs.

A step of it is 64 bytes deep. Rows of `a` are copied as they are; `b` is packed in words of
32 bits that hold neighbors in depth of one column, two of bfloat16 or four bytes. Sums, float32 or
int32, go through memory. What a block lacks in depth to whole steps is zero in both.

The unit rounds each sum to nearest even, and takes subnormal numbers, of its operands and of its
sums, as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from amdjax import tile
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.products.contraction import Contraction, ProductProblem, Source, TileShape
from amdjax.kernels.products.cpu.blocking import (
    Blocking,
    block_time,
    blockings,
    choose_blocking,
)
from amdjax.kernels.products.cpu.packed import Block, PackedProduct, room_for
from amdjax.kernels.products.cpu.packing import PanelPacker, copy_lines
from amdjax.kernels.products.cpu.reading import Part
from amdjax.kernels.products.writing import store_tile
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Solver
from amdjax.targets.cpu import AMX_ROW_BYTES, AMX_ROWS, CpuTarget
from amdjax.tile import itemsize

Value = tile.Value
T = TypeVar("T")

WORDS = 16  # words of 32 bits in a row of a register
LEAST = 1 << 14  # multiplications worth packing for


@dataclass(frozen=True)
class AmxPlan:
    """A packed product whose tiles AMX computes.

    Args:
      problem: the contraction, whose operands are moved as bits.
      types: what the bits mean.
      blocking: how it is cut.
    """

    problem: Contraction
    types: tuple[str, str]
    blocking: Blocking

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return AmxProduct(ctx, self).calls()

    def __str__(self) -> str:
        return f"AMX product of {self.problem} of {self.types[0]}, {self.blocking}"


def usual_amx(product: ProductProblem, target: CpuTarget) -> AmxPlan | None:
    """The plan for AMX; None where machine or layout have no use of it."""
    p = product.merged
    if p.rows * p.columns * p.depth < LEAST:
        return None
    return next((_amx_plan(p, cut) for cut in _cuts(p, target, choose_blocking)), None)


def amx_plans(product: ProductProblem, target: CpuTarget) -> list[AmxPlan]:
    """Plans of different blocks."""
    p = product.merged
    return [_amx_plan(p, cut) for cuts in _cuts(p, target, blockings) for cut in cuts]


def _cuts(problem: Contraction, target: CpuTarget, cut: Callable[..., T]) -> Iterator[T]:
    """What `cut` makes of a product; nothing where machine or layout have no use of AMX."""
    a, b = problem.a, problem.b
    types = (a.dtype, b.dtype)
    accumulators = "f32" if types == ("bf16", "bf16") else "i32"
    if problem.is_complex or problem.accumulate != accumulators:
        return
    if not set(types) <= set(target.matrix_dtypes):
        return
    by_line = bool(a.depth) and a.depth[-1].stride == 1
    if not (by_line or _is_plain(a)) or not _is_plain(b) or not problem.depth:
        return
    size = itemsize(a.dtype)
    high, wide = (2 if n > AMX_ROWS else 1 for n in (problem.rows, problem.columns))
    shape = AmxShape(high * AMX_ROWS, wide, WORDS, AMX_ROW_BYTES // size)
    yield cut(problem, target, shape, size, shape.grain)


def _amx_plan(problem: Contraction, blocking: Blocking) -> AmxPlan:
    a, b = problem.a, problem.b
    bits = f"u{8 * itemsize(a.dtype)}"
    in_bits = replace(problem, a=replace(a, dtype=bits), b=replace(b, dtype=bits))
    return AmxPlan(in_bits, (a.dtype, b.dtype), blocking)


AMX = Solver(
    "AMX", amx_plans, lambda p, plan, target: block_time(plan.problem, target, plan.blocking),
    usual_amx, tier=3,
)  # fmt: skip


def _is_plain(source: Source) -> bool:
    return not source.limits and len(source.lines) <= 1 and len(source.depth) <= 1


@dataclass(frozen=True)
class AmxShape(TileShape):
    """A square of sums that registers of the unit hold.

    Args:
      grain: elements that a step takes of each row.
    """

    grain: int = 32

    @property
    def cycles(self) -> float:
        """Cycles of one element in depth: a step of each register, and loads it waits for."""
        return 1.3 * AMX_ROWS * (self.rows // AMX_ROWS) * self.vectors / self.grain


class AmxProduct(PackedProduct):
    """A packed product whose tiles AMX computes."""

    def __init__(self, ctx: ShapedContext, plan: AmxPlan):
        self.types, self.bits = plan.types, plan.problem.a.dtype
        size = itemsize(self.bits)
        self.grain, self.per = AMX_ROW_BYTES // size, 4 // size
        super().__init__(ctx, plan.problem, plan.blocking)

    def make_packer(self) -> PanelPacker:
        problem = replace(self.problem, accumulate=self.bits)
        return WordPacker(self.ctx, problem, self.blocking.tile.columns, self.grain, self.target)

    def _scratch(self) -> None:
        p, blocking, k = self.problem, self.blocking, self.k
        shape = blocking.tile
        self.by_line = self.a_reader.depth_contiguous
        room, depth = room_for(self.program, blocking.depth)
        # Whole cache lines, an odd number of them: rows then lie in different cache sets.
        self.stride = (ceil_div(depth, self.grain) + 1 | 1) * self.grain
        self.a = k.scratch("a", self.bits, room(blocking.rows * shape.rows * self.stride))
        if not self.by_line:
            self.strip = k.scratch("turned", "i32", WORDS * shape.rows)
        if not self.shared:
            self.panel_depth = round_up(depth, self.grain)
            size = blocking.columns * self.panel_depth * shape.columns
            self.panels = k.scratch("b", self.bits, room(size))
        self.partial = blocking.depth < ceil_div(p.depth, blocking.splits)
        tiles = blocking.rows * blocking.columns if self.partial else 1
        self.c = k.scratch("c", p.accumulate, room(tiles * shape.rows * shape.columns))

    def _pack_a(self, part: Part, high: Value) -> None:
        k, rows = self.k, self.blocking.tile.rows
        if self.by_line:
            whole = self.blocking.depth >= self.problem.depth
            copy_lines(part, high * rows, self.a, self.stride, self.grain, whole)
            if len(self.problem.a.depth) > 1 and self.problem.depth % self.grain:
                self._clear_ends(high * rows, part.stop - part.start)
            return
        words, stride = replace(self.a, dtype="i32"), self.stride // self.per

        def panel(i: Value) -> None:
            def turn(low: Value) -> None:
                high = k.min(low + self.grain, part.stop)
                zero = k.const("index", 0)
                square = part.after(i * rows).within(low, high)
                interleave(square, rows, self.strip, zero)
                word = (low - part.start) // self.per
                for r in range(0, rows, WORDS):
                    x = k.load(self.strip, r, (WORDS, WORDS), (1, rows))
                    k.store(words, (i * rows + r) * stride + word, x, (stride, 1))

            k.for_(part.start, part.stop, self.grain, turn)

        k.for_(0, high, 1, panel)

    def _clear_ends(self, lines: Value, depth: Value) -> None:
        """Zero behind each line: the last of several runs need not have ended a step."""
        k, zero = self.k, self.k.const(self.bits, 0, (self.grain,))
        k.for_(0, lines, 1, lambda i: k.store(self.a, i * self.stride + depth, zero, (1,)))

    def _tile(self, block: Block, i: Value, j: Value) -> None:
        program, k, blocking, shape = self.program, self.k, self.blocking, self.blocking.tile
        if self.shared:
            b_base = self._panel(block.panel + j) + block.start * shape.columns
        else:
            b_base = j * (self.panel_depth * shape.columns)
        c_base = k.const("index", 0)
        if self.partial:
            place = j * program.num("block.rows", blocking.rows) + i
            c_base = place * (shape.rows * shape.columns)
        row, column = block.row + i * shape.rows, (block.panel + j) * shape.columns
        self._prefetch_result(row, column, block.last)
        k.amx_product(
            self.types,
            (self.a, i * (shape.rows * self.stride), self.stride),
            (self.panels, b_base),
            (self.c, c_base),
            (shape.rows, shape.columns),
            (block.stop - block.start + (self.grain - 1)) // self.grain,
            k.const("bool", True) if block.first is True else block.first,
        )
        if block.last is True:
            self._store(row, column, c_base)
        else:
            k.if_(block.last, lambda: self._store(row, column, c_base))

    def _store(self, row: Value, column: Value, c_base: Value) -> None:
        """Store a finished tile: unmasked where it is whole and plain."""
        k, program, shape = self.k, self.program, self.blocking.tile
        rows = k.min(program.num("rows", self.problem.rows) - row, shape.rows)
        width = program.num("columns", self.problem.columns)

        def masked() -> None:
            store_tile(k, self.writer, self.c, c_base, row, rows, column, width, shape)

        def whole() -> None:
            def one(r: Value) -> None:
                at = c_base + r * shape.columns
                vectors = [
                    k.load(self.c, at + v * shape.lanes, (shape.lanes,), (1,))
                    for v in range(shape.vectors)
                ]
                self.writer.store_rows(row + r, column, [vectors])

            k.for_(0, rows, 1, one)

        if self.writer.is_plain:
            k.if_((column + shape.columns) <= width, whole, masked)
        else:
            masked()


class WordPacker(PanelPacker):
    """Packs `b` in words that hold neighbors in depth of one column."""

    def __init__(
        self, ctx: ShapedContext, problem: Contraction, columns: int, grain: int, target: CpuTarget
    ):
        super().__init__(ctx, problem, columns, grain, target)
        self.per = 4 // itemsize(self.dtype)

    def pack(self, part: Part, target: tile.Buffer, at: Value) -> None:
        words = replace(target, dtype="i32")
        turned = part.reader.depth_contiguous and not part.reader.lines_contiguous
        pack = _pack_turned if turned else interleave
        pack(part, self.columns, words, at // self.per)


def interleave(part: Part, lines: int, words: tile.Buffer, at: Value) -> None:
    """One panel of `lines` lines by depth, in words of neighbors in depth, from `at` in `words`.

    The part starts with a step of the unit; from where it stops to the end of one there are zeros.
    """
    reader, k, stop = part.reader, part.reader.k, part.stop
    bits = int(reader.source.dtype[1:])
    per = 32 // bits
    size = k.const("index", per)
    places = [(v, part.lanes(v, WORDS, lines)) for v in range(0, lines, WORDS)]

    def element(origin: Value, exists: Value | None, at: Value, guarded: bool) -> Value:
        there = origin + reader.inner_step(at)
        if guarded:
            inside = k.broadcast(at < stop, (WORDS,))
            exists = inside if exists is None else exists & inside
        if origin.shape:
            return k.load_at(reader.buffer, there, exists)
        return k.load(reader.buffer, there, (WORDS,), (1,), exists)

    def step(i: Value, guarded: bool) -> None:
        for v, place in places:
            ((origin, exists),) = place.segments
            word: Value | None = None
            for n in range(per):
                x = k.convert(element(origin, exists, i * per + n, guarded), "u32")
                x = x << k.const("u32", bits * n, x.shape) if n else x
                word = x if word is None else word | x
            assert word is not None
            row = at + (i - low) * lines
            k.store(words, row + v, k.bitcast(word, "i32"), (1,))

    low, whole = part.start // size, stop // size
    grain = AMX_ROW_BYTES * 8 // bits
    steps = (stop - part.start + (grain - 1)) // grain
    k.for_(low, whole, 1, lambda i: step(i, False))
    k.for_(whole, low + steps * WORDS, 1, lambda i: step(i, True))


def _pack_turned(part: Part, lines: int, words: tile.Buffer, at: Value) -> None:
    """The same where lines are contiguous, and so the bytes of a word: turn squares of words."""
    k, dtype = part.reader.k, part.reader.source.dtype
    per = 4 // itemsize(dtype)
    grain = WORDS * per
    strip = k.scratch("strip", dtype, lines * grain)
    count = k.const("index", lines)

    def step(low: Value) -> None:
        high = k.min(low + grain, part.stop)
        copy_lines(part.within(low, high), count, strip, grain, grain)
        row = at + ((low - part.start) // per) * lines
        for v in range(0, lines, WORDS):
            square = replace(strip, dtype="i32")
            x = k.load(square, v * WORDS, (WORDS, WORDS), (1, WORDS))
            k.store(words, row + v, x, (lines, 1))

    k.for_(part.start, part.stop, grain, step)
