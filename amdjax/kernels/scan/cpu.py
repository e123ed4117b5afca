"""Scans along an axis, on CPUs.

Lanes run along the axis where its elements lie side by side: each vector is combined in
log2(lanes) steps, and one carry goes from vector to vector. Otherwise lanes run across
neighbouring rows, and the loop along the axis has nothing to combine within a vector.

Where rows alone do not keep the threads busy, rows are cut into pieces: a first kernel combines
each piece, a second one starts each piece from all that precedes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amdjax.core import dtypes
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.loops import (
    lane_loop,
    lanes_for,
    load_element,
    precedes,
    split_position,
    store_element,
)
from amdjax.kernels.shaped import Call, Copy, ShapedContext, ShapedKernel, Temp, shaped
from amdjax.schedule.element import El, ElementBuilder, compute_dtype, part_dtype, short_dtype
from amdjax.tile import Builder, Value

PIECE = 1 << 14  # elements below which a row is not cut
UNROLL = 4


@shaped("cumulative")
def lower_cumulative(ctx: ShapedContext) -> list[Call | Copy]:
    """Choose the direction of the lanes and the pieces."""
    shape, axis = ctx.inputs[0].aval.shape, ctx.params["axis"]
    if not math.prod(shape):
        return [Copy(ctx.inputs[0], ctx.outputs[0])]
    outer, n, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if inner == 1 and (n >= 16 or outer < 16):
        return list(Along(ctx, outer, n).build())
    if inner == 1:  # short rows side by side: neighbouring rows lie n apart
        return list(Across(ctx, 1, n, outer, step=1, apart=n).build())
    return list(Across(ctx, outer, n, inner, step=inner, apart=1).build())


@dataclass
class Combiner:
    """An associative operation on elements and its neutral element."""

    name: str
    dtype: str

    def identity(self, k: Builder) -> El:
        b = _elements(k)
        if self.name == "cumprod":
            return b.const(1, self.dtype)
        integer = self.dtype[0] in "iu"
        if self.name == "cumsum":  # minus zero, so that a sum of minus zeros keeps its sign
            zero = complex(-0.0, -0.0) if self.dtype[0] == "c" else 0 if integer else -0.0
            return b.const(zero, self.dtype)
        least = self.name in ("cummax", "cumlogsumexp")
        if integer:
            limits = dtypes.iinfo(dtypes.dtype_from_short_name(self.dtype))
            return b.const(int(limits.min if least else limits.max), self.dtype)
        end = -math.inf if least else math.inf
        if self.dtype[0] == "c":
            return b.const(complex(end, 0.0 if self.name == "cumlogsumexp" else end), self.dtype)
        return b.const(end, self.dtype)

    @property
    def tile_op(self) -> str | None:
        """The combiner of the tile language that does the same, if there is one."""
        if self.dtype.startswith("c"):
            return None
        return {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}.get(self.name)

    def __call__(self, k: Builder, left: El, right: El) -> El:
        b = _elements(k)
        if self.tile_op or self.name in ("cumsum", "cumprod"):
            return b.op(
                {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}[self.name],
                left,
                right,
            )
        if self.name == "cumlogsumexp":
            return _log_add_exp(b, left, right)
        first = precedes(b, left, right)
        return (
            b.select(first, right, left) if self.name == "cummax" else b.select(first, left, right)
        )


def _elements(k: Builder) -> ElementBuilder:
    return ElementBuilder(k, {}, lambda var: None)  # type: ignore[arg-type, return-value]


def _log_add_exp(b: ElementBuilder, x: El, y: El) -> El:
    """`log(exp(x) + exp(y))`; equal infinities stay what they are."""
    if not x.is_complex:
        delta = b.sub(x, y)
        same = b.eq(x, y)
        far = b.select(same, b.const(0, x.dtype), b.neg(b.abs(delta)))
        return b.add(b.max(x, y), b.log1p(b.exp(far)))
    greater = b.compare("ge", b.real(x), b.real(y))
    high, low = b.select(greater, x, y), b.select(greater, y, x)
    total = b.add(high, b.log1p(b.exp(b.sub(low, high))))
    empty = b.compare("eq", b.real(high), b.const(-math.inf, part_dtype(x.dtype)))
    return b.select(empty, high, _wrapped(b, total))


def _wrapped(b: ElementBuilder, x: El) -> El:
    """The same logarithm with its imaginary part within half a turn."""
    part = part_dtype(x.dtype)
    turns = b.floor(b.add(b.mul(b.imag(x), b.const(0.5 / math.pi, part)), b.const(0.5, part)))
    return b.complex(b.real(x), b.sub(b.imag(x), b.mul(turns, b.const(2 * math.pi, part))))


class Scan:
    """What both directions share: pieces, and the kernels before and after them."""

    unroll = UNROLL

    def __init__(self, ctx: ShapedContext, rows: int, n: int):
        self.ctx, self.rows, self.n = ctx, rows, n
        self.dtype = short_dtype(ctx.inputs[0].aval.dtype)
        self.reverse = ctx.params["reverse"]
        self.combine = Combiner(ctx.eqn.primitive.name, self.dtype)
        total = math.prod(ctx.inputs[0].aval.shape)
        self.cost = total * (0.3 if self.combine.tile_op else 8.0)
        most = total // (self.rows * self.least_piece())
        self.pieces = max(1, min(ceil_div(self.wanted_programs(), self.rows), most))
        self.length = self.round_piece(ceil_div(n, self.pieces))
        self.pieces = ceil_div(n, self.length)

    def wanted_programs(self) -> int:
        threads = self.ctx.target.threads
        return 4 * threads if threads > 1 and self.rows < 2 * threads else 1

    def least_piece(self) -> int:
        return PIECE

    def round_piece(self, length: int) -> int:
        return length

    def begin(self, name: str) -> tuple[Value, Value, Value, Value]:
        """A kernel over all pieces: the row, the piece, and the piece's bounds."""
        self.kernel: ShapedKernel = self.ctx.kernel(name)
        k = self.k = self.kernel.k
        self.x = self.kernel.input(self.ctx.inputs[0])
        row, piece = k.program_id(), k.const("index", 0)
        low, high = k.const("index", 0), k.const("index", self.n)
        if self.pieces > 1:
            row, piece = split_position(k, row, (self.rows, self.pieces))
            low = piece * self.length
            high = k.min(low + self.length, high)
        return row, piece, low, high

    def parts(self, x: El) -> list[Value]:
        return list(x.parts)

    def element(self, parts: Sequence[Value]) -> El:
        return El(self.dtype, *parts)

    def build(self) -> list[Call]:
        if self.pieces == 1:
            return [self.scan(None)]
        part = compute_dtype(part_dtype(self.dtype))
        count = 2 if self.dtype.startswith("c") else 1
        totals = [Temp(part, self.rows * self.pieces * self.width()) for _ in range(count)]
        return [self.totals(totals), self.scan(totals)]

    def before(
        self, row: Value, piece: Value, totals: list[Temp] | None, fetch: Callable[[Value], El]
    ) -> El:
        """All that precedes a piece, combined."""
        k = self.k
        start = self.start()
        if totals is None:
            return start
        low, high = (
            (piece + 1, k.const("index", self.pieces))
            if self.reverse
            else (k.const("index", 0), piece)
        )

        def step(p: Value, *carried: Value) -> list[Value]:
            here = row * self.pieces + p
            return self.parts(self.combine(k, fetch(here), self.element(carried)))

        return self.element(k.for_(low, high, 1, step, start.parts))

    # For the directions to say

    def width(self) -> int:
        """Values that a piece leaves."""
        raise NotImplementedError

    def start(self) -> El:
        raise NotImplementedError

    def totals(self, totals: list[Temp]) -> Call:
        raise NotImplementedError

    def scan(self, totals: list[Temp] | None) -> Call:
        raise NotImplementedError


class Along(Scan):
    """Lanes along the axis, which is the last one."""

    def __init__(self, ctx: ShapedContext, rows: int, n: int):
        dtype = compute_dtype(part_dtype(short_dtype(ctx.inputs[0].aval.dtype)))
        self.count = self.lane_count(ctx, dtype, n)
        super().__init__(ctx, rows, n)

    def lane_count(self, ctx: ShapedContext, dtype: str, n: int) -> int:
        """Elements that are combined at once."""
        return lanes_for(ctx, dtype, n, 1)

    def round_piece(self, length: int) -> int:
        unit = self.count * self.unroll
        return min(self.n, round_up(length, unit))

    def width(self) -> int:
        return 1

    def start(self) -> El:
        return self.combine.identity(self.k)

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

        # Several accumulators: one alone waits for its own last addition.
        width = len(neutral.parts)
        wide = high - ((high - low) % (count * self.unroll))

        def block(base: Value, *carried: Value) -> list[Value]:
            out: list[Value] = []
            for u in range(self.unroll):
                acc = self.element(carried[u * width : (u + 1) * width])
                out += merge(base + u * count, None, acc).parts
            return out

        accs = k.for_(low, wide, count * self.unroll, block, neutral.parts * self.unroll)
        acc = self.element(accs[:width])
        for u in range(1, self.unroll):
            acc = self.combine(k, acc, self.element(accs[u * width : (u + 1) * width]))
        acc = self.element(
            lane_loop(
                k,
                wide,
                high,
                count,
                lambda base, mask, *c: merge(base, mask, self.element(c)).parts,
                acc.parts,
            )
        )
        for out, part in zip(outs, self._horizontal(acc).parts, strict=True):
            k.store(out, k.program_id(), part)
        return self.kernel.launch(self.rows * self.pieces, self.cost / 2)

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
        row, piece, low, high = self.begin("scan")
        k, count = self.k, self.count
        out = self.kernel.output(self.ctx.outputs[0])
        reads = [self.kernel.input(t) for t in totals or ()]
        first = row * self.n
        carry = self.before(
            row, piece, totals, lambda at: self.element([k.load(t, at) for t in reads])
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

        unit = k.const("index", count * self.unroll)
        wide = length - (length % unit)
        carried = k.for_(0, wide, count * self.unroll, block, carry.parts)
        lane_loop(k, wide, length, count, vector, carried)
        return self.kernel.launch(self.rows * self.pieces, self.cost)

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
    """Lanes across neighbouring rows.

    Args:
      ctx: the equation.
      outer: loops around.
      n: length of the axis.
      inner: neighbouring rows.
      step: distance of elements along the axis.
      apart: distance of neighbouring rows.
    """

    def __init__(self, ctx: ShapedContext, outer: int, n: int, inner: int, step: int, apart: int):
        dtype = compute_dtype(part_dtype(short_dtype(ctx.inputs[0].aval.dtype)))
        self.count = lanes_for(ctx, dtype, inner, 4 if apart == 1 else 1)
        self.inner, self.step, self.apart = inner, step, apart
        self.blocks = ceil_div(inner, self.count)
        super().__init__(ctx, outer * self.blocks, n)

    def least_piece(self) -> int:
        return max(64, PIECE // self.count)

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
        start = start + column * self.apart
        if self.inner % self.count == 0:
            return start, None
        rest = k.convert(self.inner - column, "i32")
        return start, k.iota(self.count, "i32") < rest

    def _load(self, start: Value, i: Value, mask: Value | None) -> tuple[Value, El]:
        where = start + i * self.step
        return where, load_element(self.k, self.x, self.dtype, where, self.count, self.apart, mask)

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
        return self.kernel.launch(self.rows * self.pieces, self.cost / 2)

    def scan(self, totals: list[Temp] | None) -> Call:
        row, piece, low, high = self.begin("scan")
        k, count = self.k, self.count
        start, mask = self._bundle(row)
        out = self.kernel.output(self.ctx.outputs[0])
        reads = [self.kernel.input(t) for t in totals or ()]

        def fetch(at: Value) -> El:
            here = at * count
            return self.element([k.load(t, here, (count,)) for t in reads])

        def body(i: Value, *carried: Value) -> list[Value]:
            if self.reverse:
                i = ((high + low) - i) - 1
            where, x = self._load(start, i, mask)
            total = self.combine(k, self.element(carried), x)
            store_element(k, out, where, total, self.apart, mask)
            return self.parts(total)

        k.for_(low, high, 1, body, self.before(row, piece, totals, fetch).parts)
        return self.kernel.launch(self.rows * self.pieces, self.cost)
