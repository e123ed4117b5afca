"""Plans of scans, and their kernels.

Lanes run along the axis where its elements lie side by side: each vector is combined in
log2(lanes) steps, or by a workgroup at once, and one carry goes from vector to vector. Otherwise
lanes run across neighboring rows, and the loop along the axis has nothing to combine within a
vector.

Where a row is split, a first kernel combines each split, a second one starts each split from all
that precedes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amdjax.core.dims import Dim, covering, fits, is_multiple
from amdjax.core.integers import ceil_div
from amdjax.kernels.gpu_loops import every
from amdjax.kernels.loops import lane_loop, load_element, split_position, store_element
from amdjax.kernels.scan.combiner import Combiner
from amdjax.kernels.shaped import Call, ShapedContext, ShapedKernel, Temp
from amdjax.schedule.gpu.tiles import TileAxis, tile_lanes
from amdjax.schedule.index import LoopVar
from amdjax.schedule.row_plan import counted
from amdjax.schedule.values import El, compute_dtype, part_dtype
from amdjax.tile import Value

UNROLL = 4


@dataclass(frozen=True)
class ScanPlan:
    """A scan of rows.

    Args:
      combine: the operation.
      reverse: whether it runs from the end.
      rows: scanned on their own; bundles of neighboring ones where lanes are across rows.
      n: elements of a row.
      length: elements of a row that a program takes.
      lanes: elements that are combined, or rows that are scanned, at once.
      unroll: vectors that are combined one after the other in a step.
      threads: of a program on a GPU; 0 for one wave, as of programs for CPUs.
      vector: neighbors in a thread.
    """

    combine: Combiner
    reverse: bool
    rows: int
    n: int
    length: int
    lanes: int
    unroll: int = UNROLL
    threads: int = 0
    vector: int = 1

    @property
    def splits(self) -> int:
        """Programs that share a row."""
        return ceil_div(self.n, self.length)

    @property
    def total(self) -> int:
        """Elements of all rows."""
        return self.rows * self.n

    def text(self, direction: str) -> str:
        """The plan, lanes being `along` or `across` rows."""
        out = f"scan by {self.combine.op} of {counted(self.total // self.n, 'row')} of {self.n}"
        out += f", {self.lanes} lanes {direction} them"
        out += f", {self.threads} threads, vectors of {self.vector}" if self.threads else ""
        return out + (f", split {self.splits} ways" if self.splits > 1 else "")


@dataclass(frozen=True)
class AlongPlan(ScanPlan):
    """Lanes along the axis, which is the last one."""

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return Along(ctx, self).build()

    def __str__(self) -> str:
        return self.text("along")


@dataclass(frozen=True)
class RowShape:
    """Neighboring rows of an array.

    Args:
      outer: loops around them.
      n: length of the axis.
      inner: neighboring rows.
      step: distance of elements along the axis.
      row_stride: distance of neighboring rows.
    """

    outer: int
    n: int
    inner: int
    step: int
    row_stride: int

    @property
    def total(self) -> int:
        return self.outer * self.n * self.inner


@dataclass(frozen=True, kw_only=True)
class AcrossPlan(ScanPlan):
    """Lanes across neighboring rows."""

    shape: RowShape

    @property
    def total(self) -> int:
        return self.shape.total

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return Across(ctx, self).build()

    def __str__(self) -> str:
        return self.text("across")


@dataclass(frozen=True)
class ShortRowsPlan:
    """Many rows in a tile of a GPU.

    Args:
      combine: the operation.
      reverse: whether it runs from the end.
      rows: number of rows.
      n: elements of a row.
      high: rows of a tile.
      wide: its columns.
      threads: of a program.
      vector: neighbors in a thread.
    """

    combine: Combiner
    reverse: bool
    rows: int
    n: int
    high: int
    wide: int
    threads: int
    vector: int

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return short_rows(ctx, self)

    def __str__(self) -> str:
        out = f"scan by {self.combine.op} of {counted(self.rows, 'row')} of {self.n}"
        out += f" in tiles of {self.high}×{self.wide}"
        return f"{out}, {self.threads} threads, vectors of {self.vector}"


class Scan:
    """What both directions share: splits of rows, and the kernels before and after them."""

    def __init__(self, ctx: ShapedContext, plan: ScanPlan):
        self.ctx, self.plan, self.combine = ctx, plan, plan.combine
        self.rows, self.n, self.reverse = plan.rows, plan.n, plan.reverse
        self.splits, self.length, self.count = plan.splits, plan.length, plan.lanes
        self.dtype, self.unroll = plan.combine.dtype, plan.unroll
        self.cost = plan.total * (0.3 if self.combine.tile_op else 8.0)

    def begin(self, name: str) -> tuple[Value, Value, Value, Value]:
        """A kernel over all splits: the row, the split, and its bounds."""
        self.kernel: ShapedKernel = self.ctx.kernel(name)
        k = self.k = self.kernel.k
        if self.plan.threads:
            k.schedule.workgroup, k.schedule.vector = self.plan.threads, self.plan.vector
        self.x = self.kernel.input(self.ctx.inputs[0])
        row, split = k.program_id(), k.const("index", 0)
        low, high = k.const("index", 0), k.const("index", self.n)
        if self.splits > 1:
            row, split = split_position(k, row, (self.rows, self.splits))
            low = split * self.length
            high = k.min(low + self.length, high)
        return row, split, low, high

    def parts(self, x: El) -> list[Value]:
        return list(x.parts)

    def element(self, parts: Sequence[Value]) -> El:
        return El(self.dtype, *parts)

    def build(self) -> list[Call]:
        if self.splits == 1:
            return [self.scan(None)]
        part = compute_dtype(part_dtype(self.dtype))
        count = 2 if self.dtype.startswith("c") else 1
        totals = [Temp(part, self.rows * self.splits * self.width()) for _ in range(count)]
        return [self.totals(totals), self.scan(totals)]

    def before(
        self, row: Value, split: Value, totals: list[Temp] | None, load: Callable[[Value], El]
    ) -> El:
        """All that precedes a split, combined; `load` gives the total of a split."""
        k = self.k
        start = self.start()
        if totals is None:
            return start
        low, high = (
            (split + 1, k.const("index", self.splits))
            if self.reverse
            else (k.const("index", 0), split)
        )

        def step(p: Value, *carried: Value) -> list[Value]:
            here = row * self.splits + p
            return self.parts(self.combine(k, load(here), self.element(carried)))

        return self.element(k.for_(low, high, 1, step, start.parts))

    # For the directions to say

    def width(self) -> int:
        """Values that a split leaves."""
        raise NotImplementedError

    def start(self) -> El:
        raise NotImplementedError

    def totals(self, totals: list[Temp]) -> Call:
        raise NotImplementedError

    def scan(self, totals: list[Temp] | None) -> Call:
        raise NotImplementedError


class Along(Scan):
    """Lanes along the axis, which is the last one."""

    def width(self) -> int:
        return 1

    def start(self) -> El:
        return self.combine.identity(self.k)

    def before(
        self, row: Value, split: Value, totals: list[Temp] | None, load: Callable[[Value], El]
    ) -> El:
        if totals is None or not self.plan.threads:
            return super().before(row, split, totals, load)
        k, count = self.k, covering(self.splits)
        number = k.iota(count, "i32")
        here = k.convert(split, "i32")
        there = number > here if self.reverse else number < here
        exists = there & (number < k.const("i32", self.splits, (count,)))
        (total,) = (self.kernel.input(t) for t in totals)
        x = k.load(total, row * self.splits, (count,), (1,), exists)
        neutral = k.broadcast(self.start().value, (count,))
        assert self.combine.tile_op is not None
        return self.element([k.reduce(self.combine.tile_op, k.select(exists, x, neutral))])

    def totals(self, totals: list[Temp]) -> Call:
        row, _, low, high = self.begin("totals")
        k, count = self.k, self.count
        first = row * self.n
        outs = [self.kernel.output(t) for t in totals]
        neutral = self.element([k.broadcast(p, (count,)) for p in self.start().parts])

        def merge(base: Value, mask: Value | None, acc: El) -> El:
            x = load_element(k, self.x, self.dtype, first + base, count, 1, mask)
            if mask is not None:
                x = self.element(
                    [k.select(mask, a, b) for a, b in zip(x.parts, neutral.parts, strict=True)]
                )
            return self.combine(k, acc, x)

        def vector(base: Value, mask: Value | None, *carried: Value) -> Sequence[Value]:
            return merge(base, mask, self.element(carried)).parts

        # Several accumulators: one alone waits for its own last addition.
        width = len(neutral.parts)

        def block(base: Value, *carried: Value) -> list[Value]:
            out: list[Value] = []
            for u in range(self.unroll):
                acc = self.element(carried[u * width : (u + 1) * width])
                out += merge(base + u * count, None, acc).parts
            return out

        acc = neutral
        if self.unroll > 1:
            wide = high - ((high - low) % (count * self.unroll))
            accs = k.for_(low, wide, count * self.unroll, block, neutral.parts * self.unroll)
            acc, low = self.element(accs[:width]), wide
            for u in range(1, self.unroll):
                acc = self.combine(k, acc, self.element(accs[u * width : (u + 1) * width]))
        acc = self.element(lane_loop(k, low, high, count, vector, acc.parts))
        for out, part in zip(outs, self._horizontal(acc).parts, strict=True):
            k.store(out, k.program_id(), part)
        return self.kernel.launch(self.rows * self.splits, self.cost / 2)

    def _horizontal(self, x: El) -> El:
        """All lanes combined."""
        k, count = self.k, self.count
        if self.combine.tile_op:
            return self.element([k.reduce(self.combine.tile_op, x.value)])
        while count > 1:
            half = count // 2
            low, high = (
                self.element([k.shuffle(p, range(at, at + half)) for p in x.parts])
                for at in (0, half)
            )
            x, count = self.combine(k, low, high), half
        return self.element([k.extract(p, 0) for p in x.parts])

    def scan(self, totals: list[Temp] | None) -> Call:
        row, split, low, high = self.begin("scan")
        k, count = self.k, self.count
        out = self.kernel.output(self.ctx.outputs[0])
        reads = [self.kernel.input(t) for t in totals or ()]
        first = row * self.n
        carry = self.before(
            row, split, totals, lambda at: self.element([k.load(t, at) for t in reads])
        )
        length = high - low

        def vector(i: Value, mask: Value | None, *carried: Value) -> list[Value]:
            at = ((high - i) - count) if self.reverse else low + i
            if mask is not None and self.reverse:  # the missing lanes are the first ones
                mask = k.shuffle(mask, range(count - 1, -1, -1))
            where = first + at
            x = self._prefix(load_element(k, self.x, self.dtype, where, count, 1, mask))
            before = self.element(carried)
            wide = self.element([k.broadcast(p, (count,)) for p in before.parts])
            store_element(k, out, where, self.combine(k, wide, x), 1, mask)
            last = self.element([k.extract(p, 0 if self.reverse else count - 1) for p in x.parts])
            return self.parts(self.combine(k, before, last))

        def block(i: Value, *carried: Value) -> list[Value]:
            values = list(carried)
            for u in range(self.unroll):
                values = vector(i + u * count, None, *values)
            return values

        wide, carried = k.const("index", 0), carry.parts
        symbolic = isinstance(self.n, Dim)
        if self.unroll > 1 and not (symbolic and fits(self.n, count * self.unroll - 1)):
            wide = length - (length % k.const("index", count * self.unroll))
            carried = k.for_(0, wide, count * self.unroll, block, carried)
        lane_loop(k, wide, length, count, vector, carried, masked=symbolic)
        return self.kernel.launch(self.rows * self.splits, self.cost)

    def _prefix(self, x: El) -> El:
        """Prefix combination within a vector."""
        k, count = self.k, self.count
        if self.combine.tile_op:
            return self.element([k.cumulative(self.combine.tile_op, x.value, self.reverse)])
        distance = 1
        while distance < count:
            sign = -1 if self.reverse else 1
            source = [i - sign * distance for i in range(count)]
            inside = [0 <= i < count for i in source]
            moved = self.element(
                [
                    k.shuffle(p, [i if ok else 0 for i, ok in zip(source, inside, strict=True)])
                    for p in x.parts
                ]
            )
            merged = self.combine(k, moved, x)
            keep = [count + i if ok else i for i, ok in enumerate(inside)]
            x = self.element(
                [k.shuffle(p, keep, m) for p, m in zip(x.parts, merged.parts, strict=True)]
            )
            distance *= 2
        return x


class Across(Scan):
    """Lanes across neighboring rows."""

    def __init__(self, ctx: ShapedContext, plan: AcrossPlan):
        super().__init__(ctx, plan)
        shape = plan.shape
        self.inner, self.step, self.row_stride = shape.inner, shape.step, shape.row_stride
        self.blocks = ceil_div(shape.inner, plan.lanes)

    def width(self) -> int:
        return self.count

    def start(self) -> El:
        return self.element(
            [self.k.broadcast(p, (self.count,)) for p in self.combine.identity(self.k).parts]
        )

    def _bundle(self, row: Value) -> tuple[Value, Value | None]:
        """Offset of the first element of a bundle of rows, and which of them exist."""
        k = self.k
        outer, block = split_position(k, row, (self.rows // self.blocks, self.blocks))
        column = block * self.count
        start = outer * (self.n * self.inner)
        start = start + column * self.row_stride
        if is_multiple(self.inner, self.count):
            return start, None
        rest = k.convert(self.inner - column, "i32")
        return start, k.iota(self.count, "i32") < rest

    def _load(self, start: Value, i: Value, mask: Value | None) -> tuple[Value, El]:
        where = start + i * self.step
        return where, load_element(
            self.k, self.x, self.dtype, where, self.count, self.row_stride, mask
        )

    def totals(self, totals: list[Temp]) -> Call:
        row, _, low, high = self.begin("totals")
        k = self.k
        start, mask = self._bundle(row)
        outs = [self.kernel.output(t) for t in totals]

        def body(i: Value, *carried: Value) -> list[Value]:
            return self.parts(self.combine(k, self.element(carried), self._load(start, i, mask)[1]))

        result = k.for_(low, high, 1, body, self.start().parts)
        for out, part in zip(outs, result, strict=True):
            k.store(out, k.program_id() * self.count, part)
        return self.kernel.launch(self.rows * self.splits, self.cost / 2)

    def scan(self, totals: list[Temp] | None) -> Call:
        row, split, low, high = self.begin("scan")
        k, count = self.k, self.count
        start, mask = self._bundle(row)
        out = self.kernel.output(self.ctx.outputs[0])
        reads = [self.kernel.input(t) for t in totals or ()]

        def load(at: Value) -> El:
            here = at * count
            return self.element([k.load(t, here, (count,)) for t in reads])

        def body(i: Value, *carried: Value) -> list[Value]:
            if self.reverse:
                i = ((high + low) - i) - 1
            where, x = self._load(start, i, mask)
            total = self.combine(k, self.element(carried), x)
            store_element(k, out, where, total, self.row_stride, mask)
            return self.parts(total)

        k.for_(low, high, 1, body, self.before(row, split, totals, load).parts)
        return self.kernel.launch(self.rows * self.splits, self.cost)


def short_rows(ctx: ShapedContext, plan: ShortRowsPlan) -> list[Call]:
    """Many rows in a tile, which a workgroup combines at once."""
    combine, n, wide, high = plan.combine, plan.n, plan.wide, plan.high
    kernel = ctx.kernel("scan")
    k = kernel.k
    k.schedule.workgroup, k.schedule.vector = plan.threads, plan.vector
    axes = [TileAxis(LoopVar("r", plan.rows), high), TileAxis(LoopVar("c", n), wide)]
    first = k.program_id() * high
    lanes = tile_lanes(k, axes, [first, k.const("index", 0)])
    mask = every(k, [k.broadcast(x.mask, (high, wide)) for x in lanes if x.mask is not None])
    x = k.load(kernel.input(ctx.inputs[0]), first * n, (high, wide), (n, 1), mask)
    x = k.convert(x, compute_dtype(combine.dtype))
    if mask is not None:
        x = k.select(mask, x, k.broadcast(combine.identity(k).value, (high, wide)))
    assert combine.tile_op is not None
    x = k.convert(k.cumulative(combine.tile_op, x, plan.reverse), combine.dtype)
    k.store(kernel.output(ctx.outputs[0]), first * n, x, (n, 1), mask)
    return [kernel.launch(axes[0].blocks, 0.5 * high * wide)]
