"""Sorting along an axis.

Elements become unsigned keys (`keys.py`), and what is sorted are *records*: keys alone, or keys
with the position they came from, by which the other operands are then gathered.

- Short rows go through a network of compare-and-exchange steps (Knuth's merge exchange, which
  serves every length). Neighbouring rows run in lanes, so no step depends on the data.
- Other rows are sorted by their digits, the lowest first. Each pass counts the digits of each
  piece of a row, turns counts into places, and moves records there. With few rows every phase is
  a kernel whose programs take pieces; with many a program does whole rows, one after the other.

Source: D. Knuth, The Art of Computer Programming, volume 3, 5.2.2 (Algorithm M) and 5.2.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.codegen.tile import Buffer, Builder, Value
from amdjax.jit.element import short_dtype
from amdjax.jit.shaped import Call, Copy, ShapedContext, ShapedKernel, Temp, shaped
from amdjax.kernels.keys import Key
from amdjax.kernels.loops import (
    bits_dtype,
    lane_loop,
    lanes_for,
    split_position,
    tail_mask,
    view,
)

NETWORK = 2048  # longest rows that go through networks, if there are rows for all lanes
NETWORK_FEW, NETWORK_ALONE = 512, 96  # the same for rows that fill half of them, or fewer
PARALLEL = 1 << 14  # elements from which threads share the work


@dataclass(frozen=True)
class Geometry:
    """Rows of an array: along an axis of length `n`, with `inner` elements between neighbours."""

    outer: int
    n: int
    inner: int

    @staticmethod
    def of(shape: Sequence[int], axis: int) -> Geometry:
        return Geometry(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))

    @property
    def rows(self) -> int:
        return self.outer * self.inner

    def start(self, k: Builder, row: Value, n: int | None = None) -> Value:
        """Offset of the first element of a row, in an array whose axis has length `n`."""
        n = self.n if n is None else n
        if self.inner == 1:
            return row * n
        outer, inside = split_position(k, row, (self.outer, self.inner))
        return outer * (n * self.inner) + inside


@shaped("sort")
def lower_sort(ctx: ShapedContext) -> list[Call | Copy]:
    """Sort all operands by the first `num_keys` of them."""
    shape, axis = ctx.inputs[0].aval.shape, ctx.params["dimension"]
    if not math.prod(shape) or not shape or shape[axis] == 1:
        return [Copy(x, y) for x, y in zip(ctx.inputs, ctx.outputs, strict=True)]
    geometry = Geometry.of(shape, axis)
    keys: list[tuple[Any, Key]] = []
    for x in ctx.inputs[: ctx.params["num_keys"]]:
        dtype = short_dtype(x.aval.dtype)
        parts = 2 if dtype in ("c64", "c128") else 1
        keys += [(x, Key(dtype, part)) for part in range(parts)]
    outputs = [(x, y) for x, y in zip(ctx.inputs, ctx.outputs, strict=True)]
    return sort_calls(ctx, geometry, keys, outputs)


def sort_calls(
    ctx: ShapedContext,
    geometry: Geometry,
    keys: list[tuple[Any, Key]],
    outputs: list[tuple[Any, Any]],
    taken: int | None = None,
) -> list[Call | Copy]:
    """The kernels that sort rows.

    Args:
      ctx: the equation.
      geometry: the rows.
      keys: operands that decide, the first one first.
      outputs: pairs of an operand and where it goes, sorted; None as operand stands for positions.
      taken: how many elements of each sorted row are wanted; None for all.
    """
    limit = NETWORK_ALONE if geometry.rows < 8 else NETWORK_FEW if geometry.rows < 16 else NETWORK
    if geometry.n <= limit:
        return [_Network(ctx, geometry, keys, outputs, taken).build()]
    return _Radix(ctx, geometry, keys, outputs, taken).build()


class _Output:
    """Writes sorted rows: from keys where these are enough, else by gathering operands."""

    def __init__(
        self,
        ctx: ShapedContext,
        geometry: Geometry,
        keys: list[tuple[Any, Key]],
        outputs: list[tuple[Any, Any]],
        taken: int | None,
    ):
        self.ctx, self.geometry, self.keys, self.outputs = ctx, geometry, keys, outputs
        self.taken = geometry.n if taken is None else taken
        self.single = keys[0][1] if len(keys) == 1 else None

    @property
    def needs_position(self) -> bool:
        """Whether records carry where they come from."""
        by_key = self.single is not None and self.single.reversible
        return not by_key or any(source is not self.keys[0][0] for source, _ in self.outputs)

    def gather(
        self,
        kernel: ShapedKernel,
        source: Any,
        target: Any,
        where: Value,
        start: Value,
        position: Value,
        count: int,
        stride: int,
        mask: Value | None,
    ) -> None:
        """Write the elements of one operand whose positions within the row are known."""
        k = kernel.k
        position = k.convert(position, "index")
        if source is None:
            dtype = short_dtype(target.aval.dtype)
            k.store(
                kernel.output(target),
                where,
                k.convert(position, dtype),
                [stride] if count else None,
                mask,
            )
            return
        dtype, parts = bits_dtype(short_dtype(source.aval.dtype))
        offsets = position * self.geometry.inner + start
        read, write = view(kernel.input(source), dtype), view(kernel.output(target), dtype)
        for j in range(parts):
            at = offsets if parts == 1 else offsets * parts + j
            to = where if parts == 1 else where * parts + j
            x = k.load_at(read, at, mask)
            k.store(write, to, x, [stride * parts] if count else None, mask)


# Networks


def merge_exchange(n: int) -> list[tuple[int, int, int]]:
    """The rounds of Knuth's Algorithm M: exchange (i, i + d) for all i < n - d with i & p == r."""
    rounds = []
    top = 1 << max(0, (n - 1).bit_length() - 1)
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            rounds.append((p, r, d))
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
    return rounds


class _Network(_Output):
    """Rows in lanes, elements in scratch memory."""

    def build(self) -> Call:
        g = self.geometry
        self.kernel = self.ctx.kernel("sort_network")
        k = self.k = self.kernel.k
        self.packed = self.single is not None and self.single.width <= 32 and self.needs_position
        widest = "u64" if self.packed or self.single is None else self.single.unsigned
        side = g.inner if g.inner > 1 else g.rows
        self.count = lanes_for(self.ctx, widest, side, 1)
        self.apart = 1 if g.inner > 1 else g.n
        blocks = -(-side // self.count)
        bundle, block = split_position(k, k.program_id(), (g.rows // side, blocks))
        first, self.mask = block * self.count, None
        if side < self.count:
            self.mask = tail_mask(k, first, self.count, k.const("index", side))
        elif side % self.count:  # the last bundle overlaps the one before: both write the same
            first = k.op("min", first, k.const("index", side - self.count))
        self.bundle, self.first = bundle, first
        self.start = self._start(g.n)
        self._write()
        stages = len(merge_exchange(g.n))
        cost = (
            g.rows
            * g.n
            * (1.0 + 0.15 * stages * (1 if self.single and not self.needs_position else 3))
        )
        return self.kernel.launch(g.rows // side * blocks, cost)

    def _start(self, n: int) -> Value:
        """Offset of the first element of the first row, in an array whose rows have length `n`."""
        g = self.geometry
        outer = self.bundle * (n * g.inner)
        apart = 1 if g.inner > 1 else n
        return outer + self.first * apart

    def _write(self) -> None:
        """Keys alone cannot order zeros of both signs stably; such rows get positions as well."""
        key, k = self.single, self.k
        records = self._records(self.needs_position)
        seen = self._fill(records)
        if self.needs_position or key is None or not key.loses_zeros:
            self._sort(records)
            return

        def with_positions() -> None:
            pairs = self._records(True)
            self._fill(pairs)
            self._sort(pairs)

        mixed = k.op("ne", k.reduce("or", seen), k.const("i32", 0))
        k.if_(mixed, with_positions, lambda: self._sort(records))

    def _records(self, with_position: bool) -> _Scratch:
        packed = with_position and self.single is not None and self.single.width <= 32
        if packed:
            kinds = ["u64"]
        else:
            kinds = [key.unsigned for _, key in self.keys] + (["u32"] if with_position else [])
        tag, size = "pairs" if with_position else "keys", self.geometry.n * self.count
        buffers = [self.k.scratch(f"{tag}{j}", t, size) for j, t in enumerate(kinds)]
        return _Scratch(buffers, with_position, packed)

    def _each(self, start: int, stop: int, fn: Callable[[Value], Any]) -> None:
        """A loop, written out where rows fit into registers."""
        if self.geometry.n <= 16:
            for i in range(start, stop):
                fn(self.k.const("index", i))
        elif start < stop:
            self.k.for_(start, stop, 1, lambda i: fn(i) and None)

    def _fill(self, records: _Scratch) -> Value:
        """Make records; returns, in lanes, whether there is a negative zero."""
        k, n, count = self.k, self.geometry.n, self.count
        flags = k.scratch("flags", "i32", count)
        k.store(flags, 0, k.const("i32", 0, (count,)))

        def note(bits: Value) -> None:
            key = self.single
            if key is None or not key.loses_zeros or records.with_position:
                return
            zero = k.convert(key.negative_zero(k, bits), "i32")
            zero = k.reduce("or", zero, 0) if len(zero.shape) == 2 else zero
            k.store(flags, 0, k.op("or", k.load(flags, 0, (count,)), zero))

        def one(i: Value) -> None:
            bits = [self._load_bits(source, key, i) for source, key in self.keys]
            note(bits[0])
            position = k.broadcast(k.convert(i, "u64"), (count,))
            self._put(records, i, bits, position, None)

        def block(i: Value) -> None:
            (source, key), square = self.keys[0], (count, count)
            operand = view(self.kernel.input(source), key.unsigned)
            bits = k.load(operand, self.start + i, square, (1, n))
            note(bits)
            position = k.iota(count, "u64") + k.broadcast(k.convert(i, "u64"), (count,))
            position = k.broadcast(k.expand(position, 1), square)
            self._put(records, i, [bits], position, (count, 1))

        usual = records.with_position == self.needs_position
        whole = n // count * count if self._by_blocks and usual else 0
        if whole:
            k.for_(0, whole, count, block)
        self._each(whole, n, one)
        return k.load(flags, 0, (count,))

    @property
    def _by_blocks(self) -> bool:
        """Whether square blocks of rows and elements are transposed in registers."""
        key = self.single
        plain = key is not None and key.reversible and not key.is_padded
        return plain and self.apart != 1 and self.mask is None and 4 <= self.count <= 16

    def _put(
        self,
        records: _Scratch,
        i: Value,
        bits: Sequence[Value],
        position: Value,
        strides: tuple[int, int] | None,
    ) -> None:
        """Write records number `i` (and those after it in a block)."""
        k = self.k
        parts = [key.encode(k, x) for x, (_, key) in zip(bits, self.keys, strict=True)]
        if records.packed:
            high = k.op("shl", k.convert(parts[0], "u64"), k.const("u64", 32, position.shape))
            parts = [k.op("or", high, position)]
        elif records.with_position:
            parts.append(k.convert(position, "u32"))
        for buffer, x in zip(records.buffers, parts, strict=True):
            k.store(buffer, i * self.count, x, strides)

    def _load_bits(self, source: Any, key: Key, i: Value | int) -> Value:
        k, g = self.k, self.geometry
        at = self.start + k.index(i) * g.inner
        return key.load(k, self.kernel.input(source), at, self.count, self.apart, self.mask)

    def _sort(self, records: _Scratch) -> None:
        self._network(records.buffers)
        whole = 0
        if self._by_blocks and not records.with_position:
            whole = self.taken // self.count * self.count
            self.k.for_(0, whole, self.count, lambda i: self._emit_block(i, records.buffers[0]))
        self._each(whole, self.taken, lambda i: self._emit(i, records))

    def _emit_block(self, i: Value, keys: Buffer) -> None:
        """Write a block of sorted keys."""
        k, count, key = self.k, self.count, self.single
        assert key is not None
        x = key.decode(k, k.load(keys, i * count, (count, count), (count, 1)))
        target = view(self.kernel.output(self.outputs[0][1]), key.unsigned)
        k.store(target, self._start(self.taken) + i, x, (1, self.taken))

    def _network(self, scratch: Sequence[Buffer]) -> None:
        """All rounds; written out where rows fit into registers."""
        k, n = self.k, self.geometry.n
        rounds = merge_exchange(n)
        if n <= 16:
            for p, r, d in rounds:
                for i in range(n - d):
                    if i & p == r:
                        self._exchange(scratch, k.const("index", i), k.const("index", d))
            return
        top = rounds[0][0]
        for p in dict.fromkeys(p for p, _, _ in rounds):
            # As in `merge_exchange`, with the rounds of one p as a loop of the kernel.
            def step(q: Value, r: Value, d: Value) -> tuple[Value, ...]:
                self._round(scratch, p, r, d)
                return q // 2, k.const("index", p), q - p

            k.while_(lambda q, r, d: q >= p, step, [k.const("index", x) for x in (top, 0, p)])

    def _round(self, scratch: Sequence[Buffer], p: int, r: Value, d: Value) -> None:
        """One round: runs of `p` neighbours, every second one, from `r` on."""
        k = self.k
        limit = self.geometry.n - d
        whole = r + (limit - r + p) // (2 * p) * (2 * p)

        def run(start: Value) -> None:
            if p <= 4:
                for j in range(p):
                    self._exchange(scratch, start + j, d)
            else:
                k.for_(start, start + p, 1, lambda i: self._exchange(scratch, i, d))

        k.for_(r, whole, 2 * p, run)
        if p > 1:  # the last run may be shorter
            k.for_(whole, limit, 1, lambda i: self._exchange(scratch, i, d))

    def _exchange(self, scratch: Sequence[Buffer], i: Value, d: Value) -> None:
        k, count = self.k, self.count
        here, there = i * count, (i + d) * count
        low = [k.load(s, here, (count,)) for s in scratch]
        high = [k.load(s, there, (count,)) for s in scratch]
        if len(scratch) == 1:
            pairs = [(k.op("min", low[0], high[0]), k.op("max", low[0], high[0]))]
        else:
            swap = _less(k, high, low)
            pairs = [
                (k.select(swap, b, a), k.select(swap, a, b)) for a, b in zip(low, high, strict=True)
            ]
        for s, (a, b) in zip(scratch, pairs, strict=True):
            k.store(s, here, a)
            k.store(s, there, b)

    def _emit(self, i: Value, records: _Scratch) -> None:
        """Write the elements that became number `i` of their rows."""
        k, g, count, key = self.k, self.geometry, self.count, self.single
        parts = [k.load(s, i * count, (count,)) for s in records.buffers]
        position = k.convert(parts[-1], "u32") if records.packed else parts[-1]
        where = self._start(self.taken) + i * g.inner
        apart = 1 if g.inner > 1 else self.taken
        lanes = k.iota(count) * k.const("index", self.apart, (count,))
        start = lanes + k.broadcast(self.start, (count,))
        for source, target in self.outputs:
            exact = None if records.with_position and key and key.loses_zeros else key
            if exact and exact.reversible and source is self.keys[0][0]:
                bits = parts[0]
                if records.packed:
                    bits = k.op("shr_logical", bits, k.const("u64", 32, (count,)))
                bits = exact.decode(k, k.convert(bits, exact.unsigned))
                out = view(self.kernel.output(target), exact.unsigned)
                k.store(out, where, bits, [apart], self.mask)
            else:
                self.gather(
                    self.kernel, source, target, where, start, position, count, apart, self.mask
                )


@dataclass
class _Scratch:
    """Records of a bundle of rows: for each element of the rows a vector.

    Args:
      buffers: keys, and positions unless packed.
      with_position: whether records say where they come from.
      packed: whether positions are in the lower 32 bits of the keys.
    """

    buffers: list[Buffer]
    with_position: bool
    packed: bool


def _less(k: Builder, a: Sequence[Value], b: Sequence[Value]) -> Value:
    """Lexicographic order of records."""
    less = a[-1] < b[-1]
    for x, y in zip(reversed(a[:-1]), reversed(b[:-1]), strict=True):
        less = k.op("or", x < y, k.op("and", k.op("eq", x, y), less))
    return less


# By digits


@dataclass
class Records:
    """Arrays of records: two halves for each row, between which passes move them.

    Args:
      keys: the keys; with `packed` the positions are in their lower 32 bits.
      positions: positions beside the keys; None if there are none or they are packed.
      packed: whether keys have positions in them.
    """

    keys: Buffer
    positions: Buffer | None
    packed: bool

    @property
    def buffers(self) -> list[Buffer]:
        return [self.keys] + ([self.positions] if self.positions is not None else [])


class _Radix(_Output):
    """Sorts by digits."""

    def __init__(
        self,
        ctx: ShapedContext,
        geometry: Geometry,
        keys: list[tuple[Any, Key]],
        outputs: list[tuple[Any, Any]],
        taken: int | None,
    ):
        super().__init__(ctx, geometry, keys, outputs, taken)
        threads, rows, n = ctx.target.threads, geometry.rows, geometry.n
        self.together = rows < 2 * threads and rows * n >= PARALLEL and threads > 1
        pieces = -(-2 * threads // rows) if self.together else 1
        self.length = -(-n // pieces)
        self.pieces = -(-n // self.length)
        #: Programs that have records of their own.
        self.owners = rows if self.together else min(rows, 4 * threads)
        self.bits = 11 if n >= 1 << 15 else 8
        self.bins = 1 << self.bits

    def build(self) -> list[Call | Copy]:
        self.steps = [self._step(source, key) for source, key in reversed(self.keys)]
        return self._build_together() if self.together else self._build_rows()

    def _step(self, source: Any, key: Key) -> _Step:
        """Workspace for sorting by one key."""
        size = self.owners * 2 * self.geometry.n
        packed = key.width <= 32 and self.needs_position
        dtype = "u64" if packed else key.unsigned
        positions = Temp("u32", size) if self.needs_position and not packed else None
        low = 32 if packed else 0
        shifts = list(range(low, low + key.width, self.bits))
        return _Step(source, key, Temp(dtype, size), positions, packed, shifts)

    # One kernel that does whole rows

    def _build_rows(self) -> list[Call | Copy]:
        g = self.geometry
        kernel = self.kernel = self.ctx.kernel("sort_rows")
        k = self.k = kernel.k
        counts = k.scratch("counts", "u32", self.bins)
        owner = k.program_id()
        base = owner * (2 * g.n)

        def row(r: Value) -> None:
            low, high = k.const("index", 0), k.const("index", g.n)
            previous: tuple[Records, Value] | None = None
            mixed = None
            for step in self.steps:
                records = step.records(kernel)
                mixed = self._fill(step, records, r, low, high, base, previous)
                half = k.const("index", 0)
                for shift in step.shifts:
                    source = base + half * g.n
                    k.for_(0, self.bins, 1, lambda i: k.store(counts, i, k.const("u32", 0)))
                    self._count(records, source, low, high, shift, counts, k.const("index", 0))
                    most = self._places(counts, k.const("index", 0), 1)

                    def move() -> Value:
                        target = base + (1 - half) * g.n
                        self._move(records, source, target, low, high, shift, counts)
                        return 1 - half

                    (half,) = k.if_(most < g.n, move, lambda: half)
                previous = records, base + half * g.n
            assert previous is not None
            self._finish(self.steps[-1], *previous, r, low, k.const("index", self.taken))
            if mixed is not None:
                k.if_(mixed, lambda: self._restore_zeros(r))

        k.for_(owner, g.rows, self.owners, row)
        return [kernel.launch(self.owners, self._cost() * len(self.steps) * 3)]

    # A kernel for every phase

    def _build_together(self) -> list[Call | Copy]:
        g = self.geometry
        calls: list[Call | Copy] = []
        previous: tuple[_Step, Temp, int] | None = None
        flags = None
        for step in self.steps:
            state = Temp("u32", g.rows * (len(step.shifts) + 1))
            if previous is None and self._fixes_zeros:
                flags = Temp("u8", g.rows * self.pieces)
            calls.append(self._fill_call(step, state, previous, flags))
            for number, shift in enumerate(step.shifts):
                counts = Temp("u32", g.rows * self.pieces * self.bins)
                calls.append(self._count_call(step, state, number, shift, counts))
                calls.append(self._places_call(state, len(step.shifts), number, counts))
                calls.append(self._move_call(step, state, number, shift, counts))
            previous = step, state, len(step.shifts)
        assert previous is not None
        calls.append(self._finish_call(*previous))
        if flags is not None:
            calls.append(self._restore_call(flags))
        return calls

    @property
    def _fixes_zeros(self) -> bool:
        key = self.single
        return key is not None and key.loses_zeros and key.reversible

    def _cost(self) -> float:
        return 1.5 * self.geometry.rows * self.geometry.n

    def _begin(self, name: str) -> tuple[Value, Value, Value, Value]:
        """A kernel over pieces: row, piece, and its bounds."""
        self.kernel = self.ctx.kernel(name)
        k = self.k = self.kernel.k
        row, piece = split_position(k, k.program_id(), (self.geometry.rows, self.pieces))
        low = piece * self.length
        return row, piece, low, k.op("min", low + self.length, k.const("index", self.geometry.n))

    def _half(self, state: Temp, passes: int, number: int, row: Value) -> Value:
        """Offset of the half that holds a row before the pass `number`."""
        k, n = self.k, self.geometry.n
        at = row * (passes + 1) + number
        half = k.convert(k.load(self.kernel.input(state), at), "index")
        return (row * 2 + half) * n

    def _other_half(self, row: Value, offset: Value) -> Value:
        return (row * 4 + 1) * self.geometry.n - offset

    def _fill_call(
        self, step: _Step, state: Temp, previous: tuple[_Step, Temp, int] | None, flags: Temp | None
    ) -> Call:
        row, piece, low, high = self._begin("sort_fill")
        k, n = self.k, self.geometry.n
        base = row * (2 * n)
        came = None
        if previous is not None:
            came = (
                previous[0].records(self.kernel, read=True),
                self._half(previous[1], previous[2], previous[2], row),
            )
        mixed = self._fill(step, step.records(self.kernel), row, low, high, base, came)
        at = row * (len(step.shifts) + 1)
        out = self.kernel.output(state)
        k.if_(k.op("eq", piece, k.const("index", 0)), lambda: k.store(out, at, k.const("u32", 0)))
        if flags is not None:
            assert mixed is not None
            k.store(self.kernel.output(flags), k.program_id(), k.convert(mixed, "u8"))
        return self.kernel.launch(self.geometry.rows * self.pieces, self._cost() / 2)

    def _count_call(self, step: _Step, state: Temp, number: int, shift: int, counts: Temp) -> Call:
        row, _, low, high = self._begin("sort_count")
        k = self.k
        source = self._half(state, len(step.shifts), number, row)
        out = self.kernel.inout(counts)
        base = k.program_id() * self.bins
        wide = min(self.bins, 16)
        k.for_(
            0,
            self.bins,
            wide,
            lambda i: k.store(out, base + i, k.const("u32", 0, (wide,))),
        )
        self._count(step.records(self.kernel, read=True), source, low, high, shift, out, base)
        return self.kernel.launch(self.geometry.rows * self.pieces, self._cost() / 2)

    def _places_call(self, state: Temp, passes: int, number: int, counts: Temp) -> Call:
        self.kernel = self.ctx.kernel("sort_places")
        k = self.k = self.kernel.k
        row = k.program_id()
        most = self._places(
            self.kernel.inout(counts),
            row * (self.pieces * self.bins),
            self.pieces,
        )
        states = self.kernel.inout(state)
        at = row * (passes + 1) + number
        half = k.load(states, at)
        moved = most < self.geometry.n
        k.store(states, at + 1, k.select(moved, k.const("u32", 1) - half, half))
        return self.kernel.launch(
            self.geometry.rows, 0.3 * self.geometry.rows * self.pieces * self.bins
        )

    def _move_call(self, step: _Step, state: Temp, number: int, shift: int, counts: Temp) -> Call:
        row, _, low, high = self._begin("sort_move")
        k = self.k
        passes = len(step.shifts)
        source, after = (
            self._half(state, passes, number, row),
            self._half(state, passes, number + 1, row),
        )
        places = k.scratch("places", "u32", self.bins)
        records = step.records(self.kernel)

        def move() -> None:
            given = self.kernel.input(counts)
            base = k.program_id() * self.bins
            wide = min(self.bins, 16)
            k.for_(
                0,
                self.bins,
                wide,
                lambda i: k.store(places, i, k.load(given, base + i, (wide,))),
            )
            self._move(records, source, self._other_half(row, source), low, high, shift, places)

        k.if_(k.op("ne", source, after), move)
        return self.kernel.launch(self.geometry.rows * self.pieces, self._cost())

    def _finish_call(self, step: _Step, state: Temp, passes: int) -> Call:
        row, _, low, high = self._begin("sort_finish")
        k = self.k
        source = self._half(state, passes, passes, row)
        if self.taken < self.geometry.n:
            high = k.op("min", high, k.const("index", self.taken))
            low = k.op("min", low, high)
        self._finish(step, step.records(self.kernel, read=True), source, row, low, high)
        return self.kernel.launch(self.geometry.rows * self.pieces, self._cost())

    def _restore_call(self, flags: Temp) -> Call:
        self.kernel = self.ctx.kernel("sort_zeros")
        k = self.k = self.kernel.k
        row = k.program_id()
        given = self.kernel.input(flags)
        first = row * self.pieces
        (seen,) = k.for_(
            0,
            self.pieces,
            1,
            lambda i, seen: k.op("or", seen, k.load(given, first + i)),
            [k.const("u8", 0)],
        )
        k.if_(k.op("ne", seen, k.const("u8", 0)), lambda: self._restore_zeros(row))
        return self.kernel.launch(self.geometry.rows, 50.0 * self.geometry.rows)

    # The phases

    def _fill(
        self,
        step: _Step,
        records: Records,
        row: Value,
        low: Value,
        high: Value,
        base: Value,
        previous: tuple[Records, Value] | None,
    ) -> Value | None:
        """Make records of a piece of a row; returns whether it has a negative zero that matters."""
        k, g, key = self.k, self.geometry, step.key
        count = lanes_for(self.ctx, records.keys.dtype, g.n, 1)
        start, operand = g.start(k, row), self.kernel.input(step.source)
        watch = self._fixes_zeros

        def lanes(i: Value, mask: Value | None, *seen: Value) -> list[Value]:
            position = k.iota(count) + k.broadcast(i, (count,))
            if previous is None:
                at = start + i * g.inner
                bits = key.load(k, operand, at, count, g.inner, mask)
            else:
                position = self._positions(*previous, i, count, mask)
                offsets = position * g.inner + start
                bits = key.load_at(k, operand, offsets, mask)
            x = key.encode(k, bits)
            if records.packed:
                high_bits = k.op("shl", k.convert(x, "u64"), k.const("u64", 32, (count,)))
                x = k.op("or", high_bits, k.convert(position, "u64"))
            to = base + i
            k.store(records.keys, to, x, None, mask)
            if records.positions is not None:
                k.store(records.positions, to, k.convert(position, "u32"), None, mask)
            if not watch:
                return []
            zero = key.negative_zero(k, bits)
            zero = zero if mask is None else k.op("and", zero, mask)
            return [k.op("or", seen[0], k.convert(zero, "u8"))]

        carried = [k.const("u8", 0, (count,))] if watch else []
        seen = lane_loop(k, low, high, count, lanes, carried)
        return k.op("ne", k.reduce("or", seen[0]), k.const("u8", 0)) if watch else None

    def _positions(
        self, records: Records, base: Value, i: Value, count: int, mask: Value | None
    ) -> Value:
        """Where records come from."""
        k = self.k
        at = base + i
        if records.positions is not None:
            return k.convert(k.load(records.positions, at, (count,), None, mask), "index")
        return k.convert(k.convert(k.load(records.keys, at, (count,), None, mask), "u32"), "index")

    def _digit(self, x: Value, shift: int) -> Value:
        k = self.k
        x = k.op("shr_logical", x, k.const(x.dtype, shift)) if shift else x
        return k.op("and", k.convert(x, "index"), k.const("index", self.bins - 1))

    def _count(
        self,
        records: Records,
        source: Value,
        low: Value,
        high: Value,
        shift: int,
        counts: Buffer,
        base: Value,
    ) -> None:
        k = self.k

        def one(i: Value) -> None:
            at = base + self._digit(k.load(records.keys, source + i), shift)
            k.store(counts, at, k.load(counts, at) + k.const("u32", 1))

        k.for_(low, high, 1, one)

    def _places(self, counts: Buffer, base: Value, pieces: int) -> Value:
        """Turn the counts of a row's pieces into places; returns the greatest total of a digit."""
        k = self.k
        wide = min(self.bins, 16)

        def at(piece: int, i: Value) -> Value:
            return base + (i + piece * self.bins)

        def block(i: Value, carry: Value, most: Value) -> list[Value]:
            total = k.const("u32", 0, (wide,))
            before = []
            for piece in range(pieces):
                before.append(total)
                total = total + k.load(counts, at(piece, i), (wide,))
            last = k.cumulative("add", total)
            start = k.broadcast(carry, (wide,)) + (last - total)
            for piece in range(pieces):
                k.store(counts, at(piece, i), start + before[piece])
            return [carry + k.extract(last, wide - 1), k.op("max", most, total)]

        zero = k.const("u32", 0)
        _, most = k.for_(0, self.bins, wide, block, [zero, k.const("u32", 0, (wide,))])
        return k.convert(k.reduce("max", most), "index")

    def _move(
        self,
        records: Records,
        source: Value,
        target: Value,
        low: Value,
        high: Value,
        shift: int,
        places: Buffer,
    ) -> None:
        k = self.k

        def one(i: Value) -> None:
            at = source + i
            xs = [k.load(b, at) for b in records.buffers]
            digit = self._digit(xs[0], shift)
            place = k.load(places, digit)
            k.store(places, digit, place + k.const("u32", 1))
            to = target + k.convert(place, "index")
            for b, x in zip(records.buffers, xs, strict=True):
                k.store(b, to, x)

        k.for_(low, high, 1, one)

    def _finish(
        self, step: _Step, records: Records, source: Value, row: Value, low: Value, high: Value
    ) -> None:
        """Write sorted elements `low..high` of a row."""
        k, g, key = self.k, self.geometry, self.single
        count = lanes_for(self.ctx, records.keys.dtype, g.n, 1)
        start, out = g.start(k, row), g.start(k, row, self.taken)

        def lanes(i: Value, mask: Value | None) -> None:
            where = out + i * g.inner
            position = (
                self._positions(records, source, i, count, mask) if self.needs_position else None
            )
            for operand, target in self.outputs:
                if key is not None and operand is self.keys[0][0] and key.reversible:
                    x = k.load(records.keys, source + i, (count,), None, mask)
                    if records.packed:
                        x = k.convert(
                            k.op("shr_logical", x, k.const("u64", 32, (count,))), key.unsigned
                        )
                    k.store(
                        view(self.kernel.output(target), key.unsigned),
                        where,
                        key.decode(k, x),
                        [g.inner],
                        mask,
                    )
                else:
                    assert position is not None
                    self.gather(
                        self.kernel, operand, target, where, start, position, count, g.inner, mask
                    )

        lane_loop(k, low, high, count, lanes)

    def _restore_zeros(self, row: Value) -> None:
        """Put zeros of both signs where a stable sort leaves them: in the order they came in."""
        k, g, key = self.k, self.geometry, self.single
        assert key is not None
        count = lanes_for(self.ctx, key.unsigned, g.n, 1)
        source, target = self.keys[0][0], next(t for s, t in self.outputs if s is self.keys[0][0])
        start, out = g.start(k, row), g.start(k, row, self.taken)
        operand, result = self.kernel.input(source), view(self.kernel.inout(target), key.unsigned)
        zero = k.const(key.unsigned, key.zero_key(), (count,))

        def load(i: Value, mask: Value | None) -> tuple[Value, Value]:
            at = start + i * g.inner
            bits = key.load(k, operand, at, count, g.inner, mask)
            return bits, key.encode(k, bits)

        def size(found: Value, mask: Value | None) -> Value:
            found = found if mask is None else k.op("and", found, mask)
            return k.convert(k.reduce("add", k.convert(found, "i32")), "index")

        def before(i: Value, mask: Value | None, total: Value) -> list[Value]:
            return [total + size(load(i, mask)[1] < zero, mask)]

        def write(i: Value, mask: Value | None, place: Value) -> list[Value]:
            bits, x = load(i, mask)
            found = k.op("eq", x, zero)
            found = found if mask is None else k.op("and", found, mask)
            number = size(found, None)
            front = k.iota(count) < k.broadcast(number, (count,))
            at = out + place * g.inner
            k.store(result, at, k.compress(bits, found), [g.inner], front)
            return [place + number]

        (place,) = lane_loop(k, 0, g.n, count, before, [k.const("index", 0)])
        lane_loop(k, 0, g.n, count, write, [place])


@dataclass
class _Step:
    """Sorting by one key: its operand, the workspace, and the digits."""

    source: Any
    key: Key
    keys: Temp
    positions: Temp | None
    packed: bool
    shifts: list[int]

    def records(self, kernel: ShapedKernel, read: bool = False) -> Records:
        param: Callable[[Any], Buffer] = kernel.input if read else kernel.inout
        return Records(
            param(self.keys), None if self.positions is None else param(self.positions), self.packed
        )
