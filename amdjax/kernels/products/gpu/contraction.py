"""Contractions on GPUs: `out[b, i, j] = Σ_k a[b, i, k] b[b, k, j]` by the matrix unit.

A program computes one tile of the result. It states where lines and steps in depth of the operands
lie (`Builder.contract` does the loop), and applies what is fused behind before it stores. Where the
result has fewer tiles than the machine has compute units, programs share the depth. Their parts are
added by the last of them, or by a second launch if that is much; always in the same order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from amdjax import tile
from amdjax.core.dims import (
    Dim,
    DimSize,
    bound,
    choosing,
    is_multiple,
    is_natural,
    size_hint,
    surely_equal,
)
from amdjax.core.integers import ceil_div, power_of_two, round_up
from amdjax.kernels.products.contraction import Contraction, Sink
from amdjax.kernels.products.gpu.operands import SourcePlaces, aligned, contiguity
from amdjax.kernels.products.gpu.rounding import Rounding, rounded
from amdjax.kernels.products.gpu.tile_sums import TileSums, rows_of_sums
from amdjax.kernels.products.gpu.tiling import (
    PARTS_TOGETHER,
    PREFETCH_COLUMNS,
    PRODUCTS,
    Plan,
    ProductProblem,
    RoundedProduct,
    adds_parts,
    matrix_tiling,
    operand_atoms,
    prefetches_tiles,
    tile_count,
)
from amdjax.kernels.products.program import Program
from amdjax.kernels.products.split_k import split_sink
from amdjax.kernels.shaped import Call, ShapedContext, Temp
from amdjax.schedule.equations import own_cost
from amdjax.schedule.gpu.element import TileElements
from amdjax.schedule.gpu.tiles import TileAxis, tile_lanes
from amdjax.schedule.horizontal import are_few
from amdjax.schedule.index import Index, LoopVar, delinear
from amdjax.schedule.search import is_deciding
from amdjax.schedule.values import El, compute_dtype, part_dtype, short_dtype
from amdjax.targets import GpuTarget
from amdjax.targets.mma import MmaAtom, staged_atoms, warpgroup_atoms
from amdjax.tile import itemsize

Value = tile.Value

SHORT_SLICE, LONG_SLICE = 8, 32  # elements of a thread to which an epilogue is applied at a time
SHORT_EPILOGUE = 8  # cost, as fusion counts it, up to which it needs few registers
FEW_OF = 4  # a tile of which at most one in so many rows is there has few
BAND = (
    8  # rows of tiles whose programs are neighbors, so that they share what the cache holds of `b`
)

#: Sizes between which another cut may be the best: of a side, of the elements that a compute unit
#: gets, and of the depth.
SIDES, WORK, DEPTHS = (16, 64), (1 << 11, 1 << 12, 1 << 13, 1 << 14), (64, 512, 4096)


@dataclass(frozen=True)
class MatrixPlan:
    """A contraction by the matrix unit.

    Args:
      problem: the contraction, merged.
      cut: how it is divided.
      rounded: operands that are rounded before.
      block: rows of which it computes sums, too; 0 if it does not.
    """

    problem: Contraction
    cut: Plan
    rounded: Sequence[Rounding] = ()
    block: int = 0

    def emit(self, ctx: ShapedContext) -> list[Call]:
        before = [x.call(ctx) for x in self.rounded]
        return [*before, *GpuContraction(ctx, self.problem, self.cut, self.block).calls()]

    def with_sums(self, ctx: ShapedContext) -> MatrixPlan | None:
        """The plan with sums of what is stored; None where they have to be launches."""
        assert ctx.sums is not None
        tiling = self.cut.tiling
        each = tiling.rows * tiling.columns // (tiling.wave_count * ctx.gpu.wave_size)
        vector = _store_vector(self.problem.out, each)
        block = rows_of_sums(ctx.sums, self.problem, self.cut, ctx.gpu, vector)
        return replace(self, block=block) if block and ctx.resident is None else None

    def __str__(self) -> str:
        sums = f", sums of {self.block} rows" if self.block else ""
        return f"product of {self.problem}, {self.cut}{sums}"


def plan_product(
    target: GpuTarget, problem: Contraction, neighbors: Sequence[Contraction] = ()
) -> MatrixPlan | None:
    """The plan of a real contraction; None where there are no kernels for it.

    `neighbors` are those of one launch, which are cut alike if that has few programs, and each
    product several tiles.
    """
    problem = problem.merged()
    choice = product_atoms(target, problem)
    if not choice:
        return None
    product, narrow, roundings = _rounded_before(target, problem, choice[0].format)
    prefer_alike(problem, target)
    neighbors = () if is_deciding() else neighbors
    for whole in (*_side_by_side(problem, neighbors), problem.at_hand):
        before = product if whole is problem.at_hand else None
        cut = PRODUCTS.best(ProductProblem(whole, choice, rounded=before), target)
        few = are_few(tile_count(whole, cut.tiling) * cut.splits, target)
        if few and all(cut.tiling.columns < x.columns for x in neighbors):
            break
    if cut.rounded:
        return MatrixPlan(narrow, replace(cut, rounded=False), roundings)
    return MatrixPlan(problem, _of_all_sizes(problem, cut))


def _side_by_side(problem: Contraction, neighbors: Sequence[Contraction]) -> Iterator[Contraction]:
    """The product of the columns of several that have the same rows, for estimates."""
    if neighbors and len(problem.b.lines) == 1 and len({x.rows for x in neighbors}) == 1:
        axis = replace(problem.b.lines[0], extent=sum(x.columns for x in neighbors))
        yield replace(problem, b=replace(problem.b, lines=(axis,))).at_hand


def _rounded_before(
    target: GpuTarget, problem: Contraction, format: str
) -> tuple[RoundedProduct | None, Contraction, Sequence[Rounding]]:
    """The product of operands that are rounded before, where these may be copied to LDS then."""
    found = rounded(problem, format) if "f32" in (problem.a.dtype, problem.b.dtype) else None
    if found is None:
        return None, problem, ()
    narrow, roundings = found
    atoms = _warpgroup_atoms(target, narrow, format)
    moved = sum(x.moved for x in roundings)
    if not atoms:
        return None, problem, ()
    product = ProductProblem(narrow, atoms)
    return RoundedProduct(product, len(roundings), moved), narrow, roundings


def product_atoms(target: GpuTarget, problem: Contraction) -> list[MmaAtom]:
    """What can multiply the operands of a merged contraction."""
    found = _warpgroup_atoms(target, problem, problem.a.dtype) or operand_atoms(
        target, problem.a.dtype, problem.b.dtype, problem.accumulate, problem.formats
    )
    if found and "f32" in (problem.a.dtype, problem.b.dtype):
        return [*staged_atoms(target, found[0].format), *found]
    return found


def prefer_alike(problem: Contraction, target: GpuTarget) -> None:
    """Prefer sizes that are cut alike: about as much work for a compute unit, about as deep."""
    sides, work = (problem.rows, problem.columns), problem.batches * problem.rows * problem.columns
    with choosing():
        for size, classes in (
            *((side, SIDES) for side in sides),
            (work, [n * target.compute_units for n in WORK]),
            (problem.depth, DEPTHS),
        ):
            for least in classes:
                bool(size >= least)  # each is a preference of its own


def _of_all_sizes(problem: Contraction, cut: Plan) -> Plan:
    """A plan for the sizes at hand as one of all; of some, the last parts have no depth."""
    if not isinstance(problem.depth, Dim):
        return cut
    part = round_up(ceil_div(problem.depth, cut.splits), cut.tiling.depth)
    return replace(cut, part=part)


def _warpgroup_atoms(target: GpuTarget, problem: Contraction, format: str) -> list[MmaAtom]:
    """Units that take whole cells from memory as they are, where both operands have such."""
    if problem.a.dtype != problem.b.dtype or not problem.depth:
        return []

    def fits(atom: MmaAtom) -> bool:
        found = [contiguity(x, atom, target) for x in (problem.a, problem.b)]
        whole = all(x.vector == atom.cell for x in found)
        return whole and (atom.operand_bytes == 2 or all(x.axis == "depth" for x in found))

    found = warpgroup_atoms(target, format)
    return [atom for atom in found if atom.accumulator == problem.accumulate and fits(atom)]


class Following(NamedTuple):
    """The next round of a program.

    Args:
      turn: the number of this one.
      bases: of the next one's tile.
      batch: its place along each batch loop.
      more: one, or zero where there is none.
    """

    turn: Value
    bases: list[Value]
    batch: list[Value]
    more: Value


class GpuContraction:
    """A merged contraction as launches."""

    def __init__(self, ctx: ShapedContext, problem: Contraction, plan: Plan, block: int = 0):
        self.ctx, self.problem, self.plan, self.block = ctx, problem, plan, block
        self.tiling = plan.tiling

    def calls(self) -> list[Call]:
        """The launches in order."""
        if self.plan.splits == 1:
            return [self._product(self.problem.out)]
        parts, _ = split_sink(self.problem, self.plan.splits)
        if adds_parts(self.problem, self.plan):
            return [self._product(parts)]
        return [self._product(parts), self._combine(parts)]

    # The product

    def _product(self, sink: Sink) -> Call:
        p, tiling, plan = self.problem, self.tiling, self.plan
        self.program = program = Program(self.ctx, "product")
        self.k = k = program.k
        k.schedule.workgroup = tiling.wave_count * self.ctx.gpu.wave_size
        each = tiling.rows * tiling.columns // k.schedule.workgroup
        k.schedule.vector = _store_vector(sink, each)
        high, wide = self.high, ceil_div(p.columns, tiling.columns)
        if self.prefetches_tiles:
            return self._rounds(sink)
        row, column, rest = self._tile(k.program_id(), high, wide)
        part = None
        if plan.splits > 1:
            part = rest % plan.splits
            rest = rest // plan.splits
        first, batch = self.place(row, rest)
        bases = [first, column * tiling.columns]
        digits = batch if part is None else [part, *batch]
        role = "inout" if adds_parts(p, plan) else "out"
        self.compute(TileWriter(program, sink, digits, role, self.block), bases, batch, part)
        if role == "inout":
            number = (rest * wide + column) * high + row
            self._combine_last(sink, number, rest, bases)
        grid = self.batches * plan.splits * high * wide
        return program.launch(grid, 2.0 * tiling.rows * tiling.columns * plan.part)

    @cached_property
    def prefetches_tiles(self) -> bool:
        """Whether programs compute tiles in rounds, each of which brings what the next begins with.

        Tiles have to fit then: all lines of a thread are those of the first one.
        """
        p, tiling = self.problem, self.tiling
        if not tiling.atom.copied or self.plan.splits > 1 or type(self) is not GpuContraction:
            return False
        if any(isinstance(n, Dim) for n in (p.rows, p.columns, p.depth, p.batches)):
            return False
        if any(x.limits or len(x.lines) != 1 or len(x.depth) != 1 for x in (p.a, p.b)):
            return False
        fits = p.rows % tiling.rows == p.columns % tiling.columns == p.depth % tiling.depth == 0
        return fits and prefetches_tiles(self.ctx.gpu, p, tiling)

    @property
    def width(self) -> int:
        """Columns that are stored together."""
        together = self.tiling.columns_together
        return min(together, PREFETCH_COLUMNS) if self.prefetches_tiles else together

    def _rounds(self, sink: Sink) -> Call:
        """Tiles one after the other, from the program's number on."""
        k, p, tiling, programs = self.k, self.problem, self.tiling, self.ctx.gpu.compute_units
        high, wide = p.rows // tiling.rows, p.columns // tiling.columns
        tiles, first = self.batches * high * wide, k.program_id()

        def place(number: Value) -> tuple[list[Value], list[Value]]:
            row, column, rest = self._tile(number, high, wide)
            base, batch = self.place(row, rest)
            return [base, column * tiling.columns], batch

        def compute(turn: Value) -> None:
            number = first + turn * programs
            following = number + programs
            last = k.const("index", tiles - 1)
            more = k.select(last < following, k.const("index", 0), k.const("index", 1))
            self.following = Following(turn, *place(k.min(following, last)), more)
            bases, batch = place(number)
            self.compute(TileWriter(self.program, sink, batch, "out"), bases, batch, None)

        k.for_(0, (k.const("index", tiles + programs - 1) - first) // programs, 1, compute)
        flops = 2.0 * tiling.rows * tiling.columns * self.plan.part
        return self.program.launch(programs, flops * tiles / programs)

    #: What is computed in the next round; None where there are none.
    following: Following | None = None

    #: Where the rows of a program's tile end; None where those of the result do.
    end: Value | None = None

    @property
    def batches(self) -> DimSize:
        """Entries of the batch that programs count through."""
        return self.problem.batches

    def place(self, row: Value, entry: Value) -> tuple[Value, list[Value]]:
        """The first row of a program, and its place along each batch loop.

        Args:
          row: of the tiles.
          entry: of the batch.
        """
        batch = self.program.split(entry, "batch", self.problem.out.batch)
        return row * self.tiling.rows, batch

    def compute(
        self, writer: TileWriter, bases: Sequence[Value], batch: Sequence[Value],
        part: Value | None,
    ) -> None:  # fmt: skip
        """Multiply the tile that begins at `bases`, and store it slice by slice."""
        p, tiling = self.problem, self.tiling
        height, whole = tiling.rows // self.slices, (tiling.rows, tiling.columns)
        filled = ceil_div(self._most_rows, height)
        for column, slices in self.accumulators(bases, batch, part):
            right = bases[1] + column if column else bases[1]
            for i, accumulators in enumerate(itertools.islice(slices, filled)):
                here = [bases[0] + i * height if i else bases[0], right]
                writer.store(accumulators, here, (p.rows, p.columns), whole, end=self.end)

    @property
    def _most_rows(self) -> int:
        """Rows of a tile that are rows of the result; of few symbolic ones a number not less."""
        most, rows = self.tiling.rows, self.problem.rows
        if not isinstance(rows, Dim):
            return min(most, rows)
        few = most // FEW_OF
        return bound(rows, few) if size_hint(rows) <= few else most

    @property
    def high(self) -> DimSize:
        """Tiles from the first row to the last."""
        few = self._most_rows < self.tiling.rows
        return 1 if few else ceil_div(self.problem.rows, self.tiling.rows)

    @property
    def slices(self) -> int:
        """Slices of the tile to which the epilogue is applied one after the other.

        What it computes on the way then takes registers for one slice only. What it reads is
        waited for in each.
        """
        tiling, schedule, epilogue = self.tiling, self.k.schedule, self.ctx.epilogue
        if self.block:  # a slice has all of which it computes sums
            return tiling.rows // self.block
        cost = sum(map(own_cost, epilogue.producers.values())) if epilogue else 0
        most = LONG_SLICE if cost < SHORT_EPILOGUE else SHORT_SLICE
        if self._most_rows <= tiling.rows // FEW_OF:  # of the other slices nothing is stored
            most = 1
        each = schedule.workgroup * max(most, schedule.vector)
        count = tiling.rows * self.width // each
        return max(1, min(count, tiling.rows))

    def _tile(self, number: Value, high: DimSize, wide: int) -> tuple[Value, Value, Value]:
        """Row and column of the tile of a number, and what is left of that."""
        k = self.k
        band = BAND
        while not is_multiple(high, band):
            band //= 2
        if isinstance(high, Dim) and band < BAND and not surely_equal(wide, 1):
            return self._tile_in_bands(number, high, wide)

        def cut(number: Value, n: int) -> tuple[Value, Value]:
            if surely_equal(n, 1):
                return k.const("index", 0), number
            count = k.const("index", n)
            return number % count, number // count

        inside, number = cut(number, band)
        column, number = cut(number, wide)
        outer, number = cut(number, high // band)
        return outer * band + inside, column, number

    def _tile_in_bands(self, number: Value, high: Dim, wide: int) -> tuple[Value, Value, Value]:
        """The same where the last band may have fewer rows of tiles than others."""
        k = self.k
        index = lambda n: k.const("index", n)
        tiles, band = index(high * wide), index(BAND * wide)
        number, rest = number % tiles, number // tiles
        first, inside = (number // band) * BAND, number % band
        rows = k.min(index(high) - first, index(BAND))
        return first + inside % rows, inside // rows, rest

    def accumulators(
        self, bases: Sequence[Value], batch: Sequence[Value], part: Value | None
    ) -> Iterator[tuple[int, Iterator[list[Value]]]]:
        """Slices of the tile that begins at `bases`: the sums, or real and imaginary part.

        Of the columns from each on that pass together.
        """
        narrow = self.problem.out.dtype if part is None else ""
        narrow = narrow if narrow in ("f16", "bf16") else ""
        for column, slices in self.contract(self.problem, bases, batch, part, narrow):
            yield column, ([x] for x in slices)

    def contract(
        self, p: Contraction, bases: Sequence[Value], batch: Sequence[Value], part: Value | None,
        narrow: str = "",
    ) -> list[tuple[int, Iterator[Value]]]:  # fmt: skip
        """Slices of the tile of a real product, which is computed now; sums may be rounded."""
        k, tiling = self.k, self.tiling
        width, starts = self.width, range(0, tiling.columns, self.width)
        if not p.depth:
            zero = k.const(p.accumulate, 0, (tiling.rows // self.slices, width))
            return [(x, itertools.repeat(zero, self.slices)) for x in starts]
        start, stop = self.depth_range(p.depth, batch, part)
        a, b = (
            SourcePlaces(self.program, source, base, batch, tiling.depth, tiling.atom, end)
            for source, base, end in zip((p.a, p.b), bases, (self.end, None), strict=True)
        )
        next_tile: list[Value] = []
        if (then := self.following) is not None:
            places = [
                SourcePlaces(self.program, x, base, then.batch, tiling.depth, tiling.atom).base
                for x, base in zip((p.a, p.b), then.bases, strict=True)
            ]
            next_tile = [then.turn, *places, then.more]
        accumulators = k.contract(
            matrix_tiling(tiling), tile.TileType(p.accumulate, (tiling.rows, tiling.columns)),
            (a.side, b.side), (a.line, b.line), (a.step, b.step),
            [(a.base, a.last), (b.base, b.last)], start, stop,
            ragged=self.is_ragged(p.depth), limits=[*a.told, *b.told], next_tile=next_tile,
        )  # fmt: skip
        return [(x, k.collect(accumulators, self.slices, width, x, narrow)) for x in starts]

    def depth_range(
        self, depth: DimSize, batch: Sequence[Value], part: Value | None
    ) -> tuple[Value, Value]:
        """Where the depth that a program sums begins and ends, for its place in the batch."""
        start, stop = self.k.const("index", 0), self.k.const("index", depth)
        if part is None:
            return start, stop
        start = part * self.plan.part
        return start, self.k.min(start + self.plan.part, stop)

    def is_ragged(self, depth: DimSize) -> bool:
        """Whether a tile reaches past the depth: the last one, or those of a part without depth."""
        plan = self.plan
        last = depth - (plan.splits - 1) * plan.part
        return not (is_multiple(depth, plan.tiling.depth) and is_natural(last - 1))

    # Adding parts

    def _combine_last(
        self, sink: Sink, number: Value, entry: Value, bases: Sequence[Value]
    ) -> None:
        """The last program of a tile adds its parts and stores the result.

        Args:
          sink: where parts are.
          number: of the tile.
          entry: of the batch.
          bases: of the tile.
        """
        p, k, tiling, program = self.problem, self.k, self.tiling, self.program
        tiles = p.batches * self.high * ceil_div(p.columns, tiling.columns)
        counters = program.buffer(Temp("u32", tiles, zero=True), "u32", "inout")
        last = k.arrive(counters, number, self.plan.splits)
        most = power_of_two(self._most_rows)
        across = min(SHORT_SLICE * k.schedule.workgroup, most * tiling.columns)
        height = max(across // tiling.columns, 1)
        axes = _axes(p.rows, height, p.columns, tiling.columns, (tiling.rows, 0))

        def combine(i: Value) -> None:
            here = [bases[0] + i * height, bases[1]]
            x = self._added(program, sink, "inout", entry, axes, here)
            batch = program.split(entry, "batch", p.out.batch)
            whole = tiling.rows, 0
            TileWriter(program, p.out, batch).store([x], here, (p.rows, p.columns), whole)

        slices = ceil_div(self._most_rows, height)
        k.if_(last, lambda: k.for_(0, slices, 1, combine))

    def _added(
        self, program: Program, sink: Sink, role: str, entry: Value, axes: Sequence[TileAxis],
        bases: Sequence[Value],
    ) -> Value:  # fmt: skip
        """A tile of the sum of all parts."""
        p, k, splits = self.problem, program.k, self.plan.splits
        parts = program.buffer(sink.owner, sink.dtype, role)
        shape = axes[0].count, axes[1].count
        mask = None
        for lanes in tile_lanes(k, axes, bases):
            if lanes.mask is not None:
                m = k.broadcast(lanes.mask, shape)
                mask = m if mask is None else mask & m
        size = p.rows * p.columns
        first = entry * size + bases[0] * p.columns + bases[1]
        together = splits if splits < PARTS_TOGETHER else math.gcd(splits, PARTS_TOGETHER)

        def add(i: Value, x: Value) -> Value:
            at = first + i * (p.batches * size)
            loaded = [
                k.load(parts, at + j * (p.batches * size), shape, (p.columns, 1), mask, eager=True)
                for j in range(together)
            ]
            for part in loaded:
                x = x + part
            return x

        (x,) = k.for_(0, splits, together, add, [k.const(sink.dtype, 0, shape)])
        return x

    def _combine(self, parts: Sink) -> Call:
        """The launch that adds the parts of all programs and stores the result."""
        p = self.problem
        program = Program(self.ctx, "combine")
        k = program.k
        k.schedule.workgroup = self.ctx.gpu.usual_workgroup
        columns = min(power_of_two(size_hint(p.columns)), k.schedule.workgroup * 4)
        rows = max(1, k.schedule.workgroup * 4 // columns)
        k.schedule.vector = min(_store_vector(p.out, 4), aligned(p.columns, 4))
        axes = _axes(p.rows, rows, p.columns, columns)
        number = k.program_id()
        bases: list[Value] = []
        for axis in reversed(axes):
            count = k.const("index", axis.blocks)
            bases.insert(0, (number % count) * axis.count)
            number = number // count
        x = self._added(program, parts, "in", number, axes, bases)
        batch = program.split(number, "batch", p.out.batch)
        TileWriter(program, p.out, batch).store([x], bases, (p.rows, p.columns))
        grid = p.batches * axes[0].blocks * axes[1].blocks
        return program.launch(grid, 4.0 * self.plan.splits * rows * columns)


def _store_vector(sink: Sink, most: int) -> int:
    """Elements of a row that a thread stores at once."""
    if not sink.columns or sink.columns[-1].stride != 1:
        return 1
    wanted = min(max(1, 16 // itemsize(sink.dtype)), 8, max(most, 1))
    return aligned(sink.columns[-1].extent, wanted)


def _axes(
    rows: int, high: int, columns: int, wide: int, whole: tuple[int, int] = (0, 0),
    divisor: int = 0,
) -> list[TileAxis]:  # fmt: skip
    """The axes of a tile, or of a slice of one that has `whole` rows and columns.

    `divisor` is of where rows end, if that is told as it runs.
    """
    down = TileAxis(LoopVar("r", rows), high, whole=whole[0], divisor=divisor)
    return [down, TileAxis(LoopVar("c", columns), wide, whole=whole[1])]


class TileWriter:
    """Stores tiles of a contraction's result, after the epilogue fused behind it.

    Args:
      program: the kernel.
      sink: where the result goes, merged.
      batch: the place along each batch loop.
      role: of the buffer if the result goes to a temporary.
      block: rows of a tile, if it has all of which sums are computed.
    """

    def __init__(
        self, program: Program, sink: Sink, batch: Sequence[Value], role: str = "out",
        block: int = 0,
    ):  # fmt: skip
        self.program, self.k, self.sink, self.batch = program, program.k, sink, batch
        self.role, self.block = role, block
        fused = program.ctx.epilogue
        self.epilogue = None if isinstance(sink.owner, Temp) else fused

    def store(
        self,
        accumulators: Sequence[Value],
        bases: Sequence[Value],
        extents: tuple[int, int],
        whole: tuple[int, int] = (0, 0),
        column: int = 0,
        end: Value | None = None,
    ) -> None:
        """A tile whose first element is at `bases` of a result of `extents` from a column on.

        `sums` are its elements, or their real and imaginary parts. A slice of a tile of `whole`
        rows and columns may lie behind the result's last ones, or behind the row `end`.
        """
        k, sink = self.k, self.sink
        high, wide = accumulators[0].shape
        axes = _axes(extents[0], high, extents[1], wide, whole, divisor=int(end is not None))
        producers = self.epilogue.producers if self.epilogue else {}
        b = TileElements(k, producers, self.program.kernel.input)
        b.lanes = list(tile_lanes(k, axes, bases, (end, None)))
        position = Index(sink.offset)
        for axis, digit in zip(sink.batch, self.batch, strict=True):
            var = LoopVar("b", axis.extent)
            b.scalars[var] = digit
            position = position + Index.of(var) * axis.stride
        for own, loop in zip(axes, (sink.rows, sink.columns), strict=True):
            here = Index.of(own.var) + (column if loop is sink.columns else 0)
            digits = delinear(here, tuple(axis.extent for axis in loop))
            for axis, place in zip(loop, digits, strict=True):
                position = position + place * axis.stride
        sums = self.program.ctx.sums if self.block else None
        if self.epilogue is None and sums is None:
            dtype = (
                {"f32": "c64", "f64": "c128"}[sink.dtype] if len(accumulators) > 1 else sink.dtype
            )
            b.store(
                self.program.buffer(sink.owner, dtype, self.role),
                position,
                El(dtype, *accumulators),
            )
            return
        out = self.program.ctx.outputs[0]
        dtype = short_dtype(out.aval.dtype)
        part = part_dtype(dtype)
        narrow = [k.convert(x, part) for x in accumulators]
        result = El(dtype, *(k.convert(x, compute_dtype(part)) for x in narrow))
        b.special = lambda var, index: result if var is out else None
        values = {out: result}
        for stored in self.epilogue.stored if self.epilogue else (out,):
            index = delinear(position, stored.aval.shape)
            values[stored] = b.value(stored, index)
            b.store(self.program.kernel.output(stored), position, values[stored])
        if sums is not None:
            TileSums(self.program, sums, values).store(axes[1], bases, extents)
