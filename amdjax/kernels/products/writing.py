"""Stores the tiles of a contraction's result, after the epilogue fused behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from amdjax import tile
from amdjax.core.dims import Dim, is_multiple
from amdjax.core.integers import ceil_div
from amdjax.core.jaxpr import Var
from amdjax.core.lowering import Pointwise
from amdjax.kernels.products.contraction import Axis, Contraction, Sink, TileShape, product
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Temp
from amdjax.schedule.element import ElementBuilder
from amdjax.schedule.index import Index, LoopVar, delinear
from amdjax.schedule.reads import Recorder
from amdjax.schedule.streaming import may_stream, streams
from amdjax.schedule.values import El, Lanes, compute_dtype, part_dtype, short_dtype
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize
from amdjax.tile.types import CACHE_LINE

Value = tile.Value


class _Places(NamedTuple):
    """Where an epilogue is computed, as loops: rows, columns, batch, and the position they give."""

    row: LoopVar
    column: LoopVar
    batch: list[LoopVar]
    position: Index


class Writer:
    """Stores rows of lanes to the sink of a contraction.

    Args:
      program: the kernel.
      problem: the contraction, its sink merged.
      batch: the place along each batch loop.
    """

    def __init__(self, program: Program, problem: Contraction, batch: Sequence[Value]):
        self.program, self.k, self.sink = program, program.k, problem.out
        self.is_complex, self.batch = problem.is_complex, list(batch)
        epilogue = program.ctx.epilogue
        self.epilogue = None if isinstance(self.sink.owner, Temp) else epilogue
        #: whether whole tiles are written past the caches, which do not hold them anyway
        self.streams: bool | Value = False
        if self.epilogue is None:
            self.buffer = program.buffer(self.sink.owner, self.sink.dtype, "out")
            program.declare(_numbers(self.sink))
            self.origin = program.param("out.offset", self.sink.offset)
            able = isinstance(program.ctx.machine, CpuTarget) and self.is_plain
            if able and (lines := _in_whole_lines(self.k, self.sink)) is not False:
                self.streams = _both(lines, streams(self.k, _bytes(self.sink)))

    def either_way(self, body: Callable[[], None]) -> None:
        """Write code of many stores, twice where it is told as it runs whether they stream."""
        told = self.streams
        if isinstance(told, bool):
            body()
            return

        def way(streams: bool) -> None:
            self.streams = streams
            body()

        self.k.if_(told, lambda: way(True), lambda: way(False))
        self.streams = told

    @property
    def is_plain(self) -> bool:
        """Whether storing is a few instructions a row."""
        return self.epilogue is None and self._is_regular

    @property
    def _is_regular(self) -> bool:
        """Whether rows are one loop, and elements of a row side by side."""
        return len(self.sink.rows) <= 1 and self._unit_columns()

    def _unit_columns(self) -> bool:
        columns = self.sink.columns
        return not columns or (len(columns) == 1 and columns[0].stride == 1)

    def store_rows(self, row: Value, column: Value, rows: Sequence[Sequence[Value]]) -> None:
        """Whole rows of vectors, the first from (row, column)."""
        self.either_way(lambda: self._store_rows(row, column, rows))

    def _store_rows(self, row: Value, column: Value, rows: Sequence[Sequence[Value]]) -> None:
        in_lines = fills_lines(sum(x.shape[0] for x in rows[0]), self.sink.dtype)
        streaming = in_lines and self.streams
        for r, vectors in enumerate(rows):
            base = self._row_base(row + r) if len(self.sink.rows) != 1 else None
            for v, x in enumerate(vectors):
                at = column + v * x.shape[0]
                if base is None:
                    stride = self.program.num("out.rows0.stride", self.sink.rows[0].stride)
                    first = self._row_base(row)
                    base = first + stride * r if r else first
                x = self.k.convert(x, self.sink.dtype)
                self.k.store(self.buffer, base + at, x, (1,), streaming=streaming)

    def prefetch(self, row: Value, column: Value, shape: TileShape) -> None:
        """Have the cache lines of a tile that will be stored, and what its epilogue reads there.

        Nothing where rows are several loops. The tile's rows need not exist.
        """
        if not self._is_regular:
            return
        for buffer, past in self._written():
            if isinstance(past, Value):
                ask = partial(self._ask, buffer, row, column, shape, True)
                self.k.if_(past, lambda: None, ask)
            elif not past:
                self._ask(buffer, row, column, shape, True)
        for v in self.reads_in_place():
            self._ask(self.program.kernel.input(v), row, column, shape, False)

    def prefetches(self) -> bool:
        """Whether `prefetch` asks for anything."""
        some = any(past is not True for _, past in self._written())
        return self._is_regular and (some or bool(self.reads_in_place()))

    def _ask(
        self, buffer: tile.Buffer, row: Value, column: Value, shape: TileShape, write: bool
    ) -> None:
        """Ask for a tile's lines, row by row: written out they take long to compile."""

        def ask(r: Value) -> None:
            base = self._row_base(row + r) + column
            for at in range(0, shape.columns, CACHE_LINE // itemsize(buffer.dtype)):
                self.k.prefetch(buffer, base + at, write=write)

        self.k.for_(0, shape.rows, 1, ask)

    def _written(self) -> Iterator[tuple[tile.Buffer, bool | Value]]:
        """What tiles are stored to, and whether past the caches."""
        if self.epilogue is None:
            yield self.buffer, self.streams
            return
        for v in self.epilogue.stored:
            if v.aval.dtype.kind == "c":
                continue
            nbytes = v.aval.nbytes
            lines = is_multiple(nbytes, CACHE_LINE)
            yield self.program.kernel.output(v), lines and streams(self.k, nbytes)

    def reads_in_place(self) -> list[Var]:
        """What the epilogue reads at the place of the result that it is computed from."""
        if self.epilogue is None:
            return []
        result, producers = self.program.ctx.outputs[0], self.epilogue.producers
        left: list[Any] = [*self.epilogue.stored]
        found, seen = [], {result}
        while left:
            v = left.pop()
            if isinstance(v, Var) and v not in seen:
                seen.add(v)
                eqn = producers.get(v)
                if eqn is not None and isinstance(eqn.primitive.lowering, Pointwise):
                    left += eqn.invars
                elif eqn is None and _is_real_of(v, result.aval.shape):
                    found.append(v)
        return found

    def _row_base(self, row: Value) -> Value:
        base = self._batch_base()
        digits = self.program.split(row, "out.rows", self.sink.rows)
        for i, digit in enumerate(digits):
            base = base + digit * self.program.num(f"out.rows{i}.stride", self.sink.rows[i].stride)
        return base

    def _batch_base(self) -> Value:
        base = self.k.const("index", self.sink.offset) if self.epilogue else self.origin
        for i, digit in enumerate(self.batch):
            base = base + digit * self.program.num(
                f"out.batch{i}.stride", self.sink.batch[i].stride
            )
        return base

    def store(
        self,
        row: Value,
        column: Value,
        x: Value,
        mask: Value | None,
        pair: tuple[Value, Value] | None = None,
        aligned: bool = False,
        columns: ElementBuilder | None = None,
    ) -> None:
        """Lanes of one row to (row, column) and on, where `mask` says that they exist.

        `pair` are real and imaginary parts, for a complex result with an epilogue; else `x` counts.
        `aligned` says that the lanes, or those of several calls together, are whole cache lines if
        their row begins at one. `columns` is what `of_columns` gave for this place.
        """
        if self.epilogue is not None:
            b = columns or self._builder(column, (pair[0] if pair else x).shape[0], mask)
            b.nested(self._store_fused)(b, row, pair or (x,), aligned)
            return
        k, x = self.k, self.k.convert(x, self.sink.dtype)
        base = self._row_base(row)
        if self._unit_columns():
            streaming = aligned and mask is None and self.streams
            k.store(self.buffer, base + column, x, (1,), mask, streaming)
            return
        lanes = k.iota(x.shape[0]) + column
        if len(self.sink.columns) > 1:
            digits = self.program.split(k.convert(lanes, "u32"), "out.columns", self.sink.columns)
            digits = [k.convert(d, "index") for d in digits]
        else:
            digits = [lanes]
        at = k.broadcast(base, x.shape)
        for i, digit in enumerate(digits):
            stride = self.program.num(f"out.columns{i}.stride", self.sink.columns[i].stride)
            at = at + (digit * stride)
        k.store_at(self.buffer, at, x, mask)

    def of_columns(self, column: Value, count: int) -> ElementBuilder | None:
        """For `store` of several rows: has read what the epilogue reads for all of them alike.

        LLVM reads it for each row again, as far as it knows results may lie there.
        """
        if self.epilogue is None:
            return None
        b = self._builder(column, count, None)
        for v, index in self._reads_of_columns:
            b.value(v, index)
        return b

    @cached_property
    def _reads_of_columns(self) -> list[tuple[Var, tuple[Index, ...]]]:
        """Variables that the epilogue reads at one place whatever the row is, and that place."""
        assert self.epilogue is not None
        producers, out, places = self.epilogue.producers, self.program.ctx.outputs[0], self._places
        operands = [x for e in producers.values() for x in e.invars if isinstance(x, Var)]
        read = dict.fromkeys(x for x in operands if x is not out and x not in producers)
        recorder = Recorder(producers, {out}, [places.row, places.column, *places.batch], read)
        for stored in self.epilogue.stored:
            recorder.value(stored, delinear(places.position, stored.aval.shape))
        return [
            (v, index)
            for v in read
            if len(recorder.places[v]) == 1
            for index, guards in recorder.places[v]
            if not guards and not any(i.depends_on(places.row) or i.is_dynamic for i in index)
        ]

    @cached_property
    def _places(self) -> _Places:
        sink, scale = self.sink, 2 if self.is_complex else 1
        columns = _complex_columns(sink.columns) if self.is_complex else sink.columns
        row, column = LoopVar("r", product(sink.rows)), LoopVar("c", product(columns))
        batch = [LoopVar("b", axis.extent) for axis in sink.batch]
        position = Index(sink.offset // scale)
        for var, axis in zip(batch, sink.batch, strict=True):
            position = position + Index.of(var) * (axis.stride // scale)
        position = position + _flattened(sink.rows, row, scale) + _flattened(columns, column, scale)
        return _Places(row, column, batch, position)

    def _builder(self, column: Value, count: int, mask: Value | None) -> ElementBuilder:
        """What writes elements of the epilogue in some columns."""
        assert self.epilogue is not None
        b = ElementBuilder(self.k, self.epilogue.producers, self.program.kernel.input)
        b.lanes = [Lanes(self._places.column, count, 0, column, mask)]
        b.scalars.update(zip(self._places.batch, self.batch))
        return b

    def _store_fused(
        self, b: ElementBuilder, row: Value, x: Sequence[Value], aligned: bool
    ) -> None:
        k, ctx = self.k, self.program.ctx
        out, position = ctx.outputs[0], self._places.position
        assert self.epilogue is not None
        b.scalars[self._places.row] = row
        dtype = short_dtype(out.aval.dtype)
        result = El(dtype, *(k.convert(p, compute_dtype(part_dtype(dtype))) for p in x))
        b.special = lambda var, index: result if var is out else None
        for stored in self.epilogue.stored:
            index = delinear(position, stored.aval.shape)
            buffer = self.program.kernel.output(stored)
            lines = aligned and is_multiple(stored.aval.nbytes, CACHE_LINE)
            if lines and isinstance(ctx.machine, CpuTarget):
                b.streaming[buffer] = stored.aval.nbytes
            b.store(buffer, position, b.value(stored, index))


def _is_real_of(v: Var, shape: tuple[int, ...]) -> bool:
    """Whether elements of a shape lie where their positions say."""
    return v.aval.shape == shape and v.aval.dtype.kind != "c"


def _both(a: bool | Value, b: bool | Value) -> bool | Value:
    """Whether two conditions hold, each of which may be told as it runs."""
    if isinstance(a, bool):
        return b if a else False
    return (a if b else False) if isinstance(b, bool) else a & b


def _in_whole_lines(k: tile.Builder, sink: Sink) -> bool | Value:
    """Whether each row begins at a cache line, in this result and in a stack of such results.

    Told as it runs where that depends on symbolic sizes, if those at hand are about as large as
    what is written past the caches: the code of stores is there twice then.
    """
    line = CACHE_LINE // itemsize(sink.dtype)
    steps = [sink.offset, *(axis.stride for axis in (*sink.batch, *sink.rows))]
    symbolic = [axis.extent for axis in sink.columns if isinstance(axis.extent, Dim)]
    told: bool | Value = True
    for n in (*steps, *symbolic, ceil_div(_bytes(sink), itemsize(sink.dtype))):
        if is_multiple(n, line):
            continue
        if not isinstance(n, Dim) or not may_stream(_bytes(sink)):
            return False
        test = k.eq(k.const("index", n) % line, k.const("index", 0))
        told = _both(told, test)
    return told


def fills_lines(lanes: int, dtype: str) -> bool:
    """Whether so many lanes of a dtype are whole cache lines."""
    return lanes * itemsize(dtype) % CACHE_LINE == 0


def _bytes(sink: Sink) -> int:
    """Size of all of what a sink writes to."""
    owner = sink.owner
    return owner.size * itemsize(owner.dtype) if isinstance(owner, Temp) else owner.aval.nbytes


def _complex_columns(columns: Sequence[Axis]) -> tuple[Axis, ...]:
    """Columns of a real view, in pairs."""
    *outer, last = columns
    if last.extent == 2:
        return tuple(outer)
    return (*outer, Axis(last.extent // 2, last.stride * 2))


def _flattened(axes: Sequence[Axis], var: LoopVar, scale: int) -> Index:
    """Position after counting `var` through the loops."""
    out = Index(0)
    if not axes:
        return out
    digits = delinear(Index.of(var), tuple(axis.extent for axis in axes))
    for axis, digit in zip(axes, digits):
        out = out + digit * (axis.stride // scale)
    return out


def _numbers(sink: Sink) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for group in ("batch", "rows", "columns"):
        for i, axis in enumerate(getattr(sink, group)):
            numbers[f"out.{group}{i}.extent"] = axis.extent
            numbers[f"out.{group}{i}.stride"] = axis.stride
    return numbers


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
    whole: bool = False,
    apart: bool = True,
) -> None:
    """Rows of a tile that waits in scratch, through the epilogue to the result.

    Args:
      whole: all columns exist, in every tile ...
      apart: ... and no tile begins in the middle of another.
    """
    # Whole cache lines at once, which may be several vectors, can be written past the caches.
    line = CACHE_LINE // itemsize(scratch.dtype)
    count = max(shape.lanes, line) if shape.columns % line == 0 else shape.lanes
    aligned = apart and fills_lines(shape.columns, writer.sink.dtype)

    whole = whole and not writer.is_complex
    starts = range(0, shape.columns, count)
    columns = {s: writer.of_columns(column + s, count) for s in starts} if whole else {}

    def one(r: Value) -> None:
        for start in starts:
            at, there = base + r * shape.columns + start, column + start
            if whole:
                x = k.load(scratch, at, (count,), (1,))
                writer.store(row + r, there, x, None, aligned=aligned, columns=columns[start])
            else:
                store_lanes(k, writer, scratch, at, row + r, there, width, count)

    k.for_(0, rows, 1, one)


def store_sums(
    writer: Writer,
    scratch: tile.Buffer,
    base: Value,
    shape: TileShape,
    sums: Sequence[Value],
    rows: tuple[Value, Value],
    columns: tuple[Value, Value],
    all_rows: bool = False,
    all_columns: bool = False,
) -> None:
    """A finished tile: from registers where it is whole and plain, else row by row.

    Args:
      writer: of the result.
      scratch: has room for the tile ...
      base: ... from here on.
      shape: of the tile.
      sums: its vectors, row by row.
      rows: the first, and how many of the tile exist.
      columns: the first, and how many the result has.
      all_rows: all rows exist, in every tile ...
      all_columns: ... and all columns, and no tile begins in the middle of another.
    """
    k = writer.k

    def row_by_row() -> None:
        for n, x in enumerate(sums):
            k.store(scratch, base + n * shape.lanes, x, (1,))
        store_tile(k, writer, scratch, base, *rows, *columns, shape, all_columns)

    def at_once() -> None:
        starts = range(0, len(sums), shape.vectors)
        writer.store_rows(rows[0], columns[0], [sums[i : i + shape.vectors] for i in starts])

    if not writer.is_plain:
        row_by_row()
    elif all_rows and all_columns:
        at_once()
    else:
        whole = (rows[1] >= shape.rows) & ((columns[0] + shape.columns) <= columns[1])
        k.if_(whole, at_once, row_by_row)


def store_lanes(
    k: tile.Builder,
    writer: Writer,
    scratch: tile.Buffer,
    at: Value,
    row: Value,
    column: Value,
    width: Value,
    lanes: int,
) -> None:
    """A vector from scratch to the result; complex numbers lie there as pairs."""
    if writer.is_complex and writer.epilogue is not None:
        half = lanes // 2
        parts = (k.load(scratch, at, (half,), (2,)), k.load(scratch, at + 1, (half,), (2,)))
        two = k.const("index", 2)
        remaining = (width - column) // two
        mask = k.iota(half, "i32") < k.convert(remaining, "i32")
        writer.store(row, column // two, parts[0], mask, parts)
        return
    mask = k.iota(lanes, "i32") < k.convert(width - column, "i32")
    writer.store(row, column, k.load(scratch, at, (lanes,), (1,)), mask)
