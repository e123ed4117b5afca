"""Contractions on GPUs: `out[b, i, j] = Σ_k a[b, i, k] b[b, k, j]` by the matrix unit.

A program computes one tile of the result. It states where lines and steps in depth of the operands
lie (`Builder.contract` does the loop), and applies what is fused behind before it stores. Where the
result has fewer tiles than the machine has compute units, programs share the depth; a second launch
adds their parts, always in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

from amdjax.codegen import tile
from amdjax.codegen.gpu.matrix import Unit
from amdjax.codegen.gpu.wgmma import warpgroup_units
from amdjax.codegen.tile import Side, itemsize
from amdjax.jit.element import El, compute_dtype, part_dtype, short_dtype
from amdjax.jit.gpu.element import TileElements
from amdjax.jit.gpu.tiles import TileAxis, tile_lanes
from amdjax.jit.index import Index, LoopVar, delinear
from amdjax.jit.shaped import Call, ShapedContext, Temp
from amdjax.kernels.blocked import split_sink
from amdjax.kernels.contraction import Axis, Contraction, Sink, Source
from amdjax.kernels.gpu.tiling import Plan, choose_plan, operand_units
from amdjax.kernels.program import Program
from amdjax.targets import GpuTarget

Value = tile.Value

BAND = 8  # rows of tiles that are walked together, so that they share what the cache holds of `b`
MOST_LINES_TOGETHER = 4


def gpu_contraction(ctx: ShapedContext, problem: Contraction) -> list[Call] | None:
    """Launches that compute a real contraction; None where there are no kernels for it."""
    problem = problem.merged()
    choice = _warpgroup_units(ctx.gpu, problem) or operand_units(
        ctx.gpu, problem.a.dtype, problem.b.dtype, problem.accumulate
    )
    if not choice:
        return None
    return GpuContraction(ctx, problem, choose_plan(ctx.gpu, problem, choice)).calls()


def _warpgroup_units(target: GpuTarget, problem: Contraction) -> list[Unit]:
    """Units that take whole cells from memory as they are, where both operands have such."""
    found = warpgroup_units(target, problem.a.dtype)
    fits = problem.a.dtype == problem.b.dtype and problem.accumulate == "f32" and problem.depth
    return [
        unit
        for unit in found
        if fits and all(_neighbours(x, unit)[1] == unit.cell for x in (problem.a, problem.b))
    ]


class GpuContraction:
    """A merged contraction as launches."""

    def __init__(self, ctx: ShapedContext, problem: Contraction, plan: Plan):
        self.ctx, self.problem, self.plan = ctx, problem, plan
        self.tiling = plan.tiling

    def calls(self) -> list[Call]:
        """The launches in order."""
        if self.plan.splits == 1:
            return [self._product(self.problem.out)]
        parts, temp = split_sink(self.problem, self.plan.splits)
        return [self._product(parts), self._combine(temp)]

    # The product

    def _product(self, sink: Sink) -> Call:
        p, tiling, plan = self.problem, self.tiling, self.plan
        self.program = program = Program(self.ctx, "product")
        self.k = k = program.k
        k.workgroup = tiling.wave_count * self.ctx.gpu.wave_size
        k.vector = _store_vector(sink, tiling.rows * tiling.columns // k.workgroup)
        high, wide = -(-p.rows // tiling.rows), -(-p.columns // tiling.columns)
        row, column, rest = self._tile(high, wide)
        part = None
        if plan.splits > 1:
            part = k.op("rem", rest, k.const("index", plan.splits))
            rest = k.op("div", rest, k.const("index", plan.splits))
        batch = program.split(rest, "batch", p.out.batch)
        bases = [row * tiling.rows, column * tiling.columns]
        sums = self.sums(bases, batch, part)
        digits = batch if part is None else [part, *batch]
        TileWriter(program, sink, digits).store(sums, bases, (p.rows, p.columns))
        grid = p.batches * plan.splits * high * wide
        return program.launch(grid, 2.0 * tiling.rows * tiling.columns * plan.part)

    def _tile(self, high: int, wide: int) -> tuple[Value, Value, Value]:
        """Row and column of the program's tile, and what is left of its number."""
        k, number = self.k, self.k.program_id()
        band = BAND
        while high % band:
            band //= 2

        def cut(number: Value, n: int) -> tuple[Value, Value]:
            if n == 1:
                return k.const("index", 0), number
            count = k.const("index", n)
            return k.op("rem", number, count), k.op("div", number, count)

        inside, number = cut(number, band)
        column, number = cut(number, wide)
        outer, number = cut(number, high // band)
        return outer * band + inside, column, number

    def sums(
        self, bases: Sequence[Value], batch: Sequence[Value], part: Value | None
    ) -> list[Value]:
        """The tile that begins at `bases`: its sums, or those of real and imaginary part."""
        return [self.contract(self.problem, bases, batch, part)]

    def contract(
        self, p: Contraction, bases: Sequence[Value], batch: Sequence[Value], part: Value | None
    ) -> Value:
        """The tile of a real product."""
        k, tiling = self.k, self.tiling
        if not p.depth:
            return k.const(p.accumulate, 0, (tiling.rows, tiling.columns))
        start, stop = k.const("index", 0), k.const("index", p.depth)
        if part is not None:
            start = part * self.plan.part
            stop = k.op("min", start + self.plan.part, stop)
        a, b = (
            _SourcePlaces(self.program, source, base, batch, tiling.depth, tiling.unit)
            for source, base in zip((p.a, p.b), bases, strict=True)
        )
        return k.contract(
            tiling, p.accumulate, (a.side, b.side), (a.line, b.line), (a.step, b.step),
            [(a.base, a.last), (b.base, b.last)], start, stop,
            ragged=p.depth % tiling.depth != 0,
        )  # fmt: skip

    # Adding parts

    def _combine(self, temp: Temp) -> Call:
        """The launch that adds the parts of all programs and stores the result."""
        p = self.problem
        program = Program(self.ctx, "combine")
        k = program.k
        k.workgroup = self.ctx.gpu.usual_workgroup
        columns = min(_power_of_two(p.columns), k.workgroup * 4)
        rows = max(1, k.workgroup * 4 // columns)
        k.vector = min(_store_vector(p.out, 4), _aligned(p.columns, 4))
        parts = program.buffer(temp, temp.dtype)
        axes = _axes(p.rows, rows, p.columns, columns)
        number = k.program_id()
        bases: list[Value] = []
        for axis in reversed(axes):
            count = k.const("index", axis.blocks)
            bases.insert(0, k.op("rem", number, count) * axis.count)
            number = k.op("div", number, count)
        lanes = tile_lanes(k, axes, bases)
        masks = [k.broadcast(x.mask, (rows, columns)) for x in lanes if x.mask is not None]
        mask = None
        for m in masks:
            mask = m if mask is None else k.op("and", mask, m)
        size = p.rows * p.columns
        first = number * size + bases[0] * p.columns + bases[1]

        def add(i: Value, x: Value) -> Value:
            at = first + i * (p.batches * size)
            return k.op("add", x, k.load(parts, at, (rows, columns), (p.columns, 1), mask))

        zero = k.const(temp.dtype, 0, (rows, columns))
        (x,) = k.for_(0, self.plan.splits, 1, add, [zero])
        batch = program.split(number, "batch", p.out.batch)
        TileWriter(program, p.out, batch).store([x], bases, (p.rows, p.columns))
        grid = p.batches * axes[0].blocks * axes[1].blocks
        return program.launch(grid, 4.0 * self.plan.splits * rows * columns)


class _SourcePlaces:
    """Where the lines and steps in depth of an operand are.

    Args:
      program: the kernel.
      source: the operand, merged.
      first: the tile's first line.
      batch: the place along each batch loop.
      depth: of the product's tiles.
      unit: what multiplies.
    """

    def __init__(
        self, program: Program, source: Source, first: Value, batch: Sequence[Value],
        depth: int, unit: Unit,
    ):  # fmt: skip
        self.program, self.k, self.source, self.first = program, program.k, source, first
        k = self.k
        buffer = program.buffer(source.owner, source.dtype)
        limits = tuple(limit.extent for limit in source.limits)
        along, vector = _neighbours(source, unit)
        run = _run(source, depth)
        moves = source.depth[-1].moves if source.depth else (0,) * len(limits)
        self.side = Side(buffer, along, vector, run, limits, moves if run is not None else ())
        base = k.const("index", source.offset)
        self.starts = [k.const("index", limit.start) for limit in source.limits]
        base, self.starts = self._moved(source.batch, batch, base, self.starts)
        if len(source.lines) == 1:
            base, self.starts = self._moved(source.lines, [first], base, self.starts)
        self.base = base
        self.last = k.op("sub", k.const("index", source.line_count - 1), first)

    def line(self, number: Value) -> list[Value]:
        """A line, counted from the tile's first."""
        axes = self.source.lines
        if len(axes) > 1:
            number = self.k.op("add", number, self.first)
        digits = self._digits(number, axes)
        offset, coords = self._moved(axes, digits, self.k.const("index", 0), self.starts)
        return [offset, *coords]

    def step(self, number: Value) -> list[Value]:
        """A step in depth."""
        axes = self.source.depth
        zero = self.k.const("index", 0)
        still = [zero] * len(self.source.limits)
        offset, moves = self._moved(axes, self._digits(number, axes), zero, still)
        return [offset, *moves]

    def _digits(self, number: Value, axes: Sequence[Axis]) -> list[Value]:
        """The place along each of several loops; positions divide as unsigned 32-bit numbers."""
        if len(axes) <= 1:
            return [number] * len(axes)
        k, number = self.k, self.k.convert(number, "u32")
        digits: list[Value] = []
        for axis in reversed(axes[1:]):
            count = k.const("u32", axis.extent)
            digits.insert(0, k.op("rem", number, count))
            number = k.op("div", number, count)
        return [k.convert(d, "index") for d in (number, *digits)]

    def _moved(
        self, axes: Sequence[Axis], digits: Sequence[Value], base: Value, coords: Sequence[Value]
    ) -> tuple[Value, list[Value]]:
        k, coords = self.k, list(coords)
        for axis, digit in zip(axes, digits, strict=True):
            if axis.stride:
                base = k.op("add", base, _times(k, digit, axis.stride))
            for j, move in enumerate(axis.moves):
                if move:
                    coords[j] = k.op("add", coords[j], _times(k, digit, move))
        return base, coords


def _times(k: tile.Builder, x: Value, n: int) -> Value:
    return x if n == 1 else k.op("mul", x, k.const("index", n))


def _neighbours(source: Source, unit: Unit) -> tuple[str, int]:
    """Whether steps in depth or lines lie side by side, and how many are read at once."""
    most = max(1, 16 // itemsize(source.dtype))
    inner = {"depth": source.depth[-1:], "lines": source.lines[-1:]}
    lines = unit.cell if unit.from_lds else MOST_LINES_TOGETHER
    for along, limit in (("depth", unit.cell), ("lines", lines)):
        axis = next(iter(inner[along]), None)
        if axis is not None and axis.stride == 1 and axis.extent > 1:
            together = min(most, limit, _aligned(axis.extent, most))
            return along, min(together, _groups_inside(source, axis, most))
    strides = {name: axes[0].stride if axes else 0 for name, axes in inner.items()}
    by_lines = 0 < strides["lines"] < strides["depth"] or not strides["depth"]
    return ("lines" if by_lines else "depth"), 1


def _groups_inside(source: Source, axis: Axis, most: int) -> int:
    """Neighbours along an axis, in groups that lie inside or outside of every limit as a whole."""
    others = [x for x in (*source.batch, *source.lines, *source.depth) if x is not axis]
    distances = [source.offset, *(x.stride for x in others)]
    for j, (limit, move) in enumerate(zip(source.limits, axis.moves, strict=True)):
        if move not in (0, 1):
            return 1
        if move:  # the coordinate counts neighbours
            distances += [limit.start, limit.extent, *(x.moves[j] for x in others)]
    return min(_aligned(distance, most) for distance in distances)


def _aligned(x: int, most: int) -> int:
    """The largest power of two up to `most` that divides a number."""
    return min(x & -x, most) if x else most


def _run(source: Source, depth: int) -> int | None:
    """The stride of tiles in depth if each lies within a run of the innermost loop."""
    if not source.depth:
        return 0
    inner = source.depth[-1]
    within = len(source.depth) == 1 or inner.extent % depth == 0
    return inner.stride if within else None


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def _store_vector(sink: Sink, most: int) -> int:
    """Elements of a row that a thread stores at once."""
    if not sink.columns or sink.columns[-1].stride != 1:
        return 1
    wanted = min(max(1, 16 // itemsize(sink.dtype)), 8, max(most, 1))
    return _aligned(sink.columns[-1].extent, wanted)


def _axes(rows: int, high: int, columns: int, wide: int) -> list[TileAxis]:
    return [TileAxis(LoopVar("r", rows), high), TileAxis(LoopVar("c", columns), wide)]


class TileWriter:
    """Stores tiles of a contraction's result, after the epilogue fused behind it.

    Args:
      program: the kernel.
      sink: where the result goes, merged.
      batch: the place along each batch loop.
    """

    def __init__(self, program: Program, sink: Sink, batch: Sequence[Value]):
        self.program, self.k, self.sink, self.batch = program, program.k, sink, batch
        fused = program.ctx.epilogue
        self.epilogue = None if isinstance(sink.owner, Temp) else fused

    def store(
        self, sums: Sequence[Value], bases: Sequence[Value], extents: tuple[int, int]
    ) -> None:
        """A tile whose first element is at `bases` of a result of `extents`.

        `sums` are its elements, or their real and imaginary parts.
        """
        k, sink = self.k, self.sink
        axes = _axes(extents[0], sums[0].shape[0], extents[1], sums[0].shape[1])
        producers = self.epilogue.producers if self.epilogue else {}
        b = TileElements(k, producers, self.program.kernel.input)
        b.lanes = list(tile_lanes(k, axes, bases))
        position = Index(sink.offset)
        for axis, digit in zip(sink.batch, self.batch, strict=True):
            var = LoopVar("b", axis.extent)
            b.scalars[var] = digit
            position = position + Index.of(var) * axis.stride
        for own, loop in zip(axes, (sink.rows, sink.columns), strict=True):
            digits = delinear(Index.of(own.var), tuple(axis.extent for axis in loop))
            for axis, place in zip(loop, digits, strict=True):
                position = position + place * axis.stride
        if self.epilogue is None:
            dtype = {"f32": "c64", "f64": "c128"}[sink.dtype] if len(sums) > 1 else sink.dtype
            b.store(self.program.buffer(sink.owner, dtype, "out"), position, El(dtype, *sums))
            return
        out = self.program.ctx.outputs[0]
        dtype = short_dtype(out.aval.dtype)
        part = part_dtype(dtype)
        narrow = [k.convert(x, part) for x in sums]
        result = El(dtype, *(k.convert(x, compute_dtype(part)) for x in narrow))
        b.special = lambda var, index: result if var is out else None
        for stored in self.epilogue.stored:
            index = delinear(position, stored.aval.shape)
            b.store(self.program.kernel.output(stored), position, b.value(stored, index))
