"""Short rows through a network of compare-and-exchange steps.

Knuth's merge exchange serves every length. Neighboring rows run in lanes, so no step depends on
the data.

Source: D. Knuth, The Art of Computer Programming, volume 3, 5.2.2 (Algorithm M).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.dims import Dim, bound, choosing, is_multiple, size_hint, surely_equal
from amdjax.core.integers import ceil_div
from amdjax.kernels.loops import lanes_for, split_position, tail_mask, view
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.kernels.sorting.keys import Key
from amdjax.kernels.sorting.rows import RecordLayout, SortedRows, SortProblem, precedes
from amdjax.tile import Buffer, Value

#: Runs of as many neighbors are written out.
WRITTEN = 4


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


@dataclass(frozen=True)
class NetworkPlan:
    """Neighboring rows in lanes, each exchanged step by step.

    Args:
      problem: the rows.
      longest: of which there is room for rows of symbolic length.
    """

    problem: SortProblem
    longest: int

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [Network(ctx, self).build()]

    def __str__(self) -> str:
        return f"merge exchange of {self.problem}"


class Network(SortedRows):
    """Rows in lanes, elements in scratch memory."""

    def __init__(self, ctx: ShapedContext, plan: NetworkPlan):
        super().__init__(ctx, plan.problem)
        self.room = bound(self.geometry.n, plan.longest)

    def build(self) -> Call:
        g = self.geometry
        self.kernel = self.ctx.kernel("sort_network")
        k = self.k = self.kernel.k
        packed = RecordLayout.of(self.keys, self.needs_position).packed
        widest = "u64" if packed or self.single is None else self.single.unsigned
        side = g.inner if g.inner > 1 else g.rows
        self.count = lanes_for(self.ctx.target, widest, side, 1)
        self.lane_stride = 1 if g.inner > 1 else g.n
        blocks = ceil_div(side, self.count)
        bundle, block = split_position(k, k.program_id(), (g.rows // side, blocks))
        first, self.mask = block * self.count, None
        with choosing():
            short = side < self.count
        if not is_multiple(side, self.count):
            if short or not side >= self.count:
                self.mask = tail_mask(k, first, self.count, k.const("index", side))
            else:
                # The last bundle overlaps the one before: both write the same.
                first = k.min(first, side - self.count)
        self.bundle, self.first = bundle, first
        self.start = self._start(g.n)
        self._write()
        stages = len(merge_exchange(size_hint(g.n)))
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
        lane_stride = 1 if g.inner > 1 else n
        return outer + self.first * lane_stride

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

        mixed = k.ne(k.reduce("or", seen), k.const("i32", 0))
        k.if_(mixed, with_positions, lambda: self._sort(records))

    def _records(self, with_position: bool) -> _Scratch:
        layout = RecordLayout.of(self.keys, with_position)
        if self.ctx.target.vector_bits < 512:
            layout = layout.as_floats
        tag, size = "pairs" if with_position else "keys", self.room * self.count
        buffers = [self.k.scratch(f"{tag}{j}", t, size) for j, t in enumerate(layout.kinds)]
        return _Scratch(buffers, layout)

    def _each(self, start: int, stop: int, fn: Callable[[Value], Any]) -> None:
        """A loop, written out where rows fit into registers."""
        if self.room <= 16:
            for i in range(start, stop):
                fn(self.k.const("index", i))
        elif not surely_equal(start, stop):
            self.k.for_(start, stop, 1, lambda i: fn(i) and None)

    def _fill(self, records: _Scratch) -> Value:
        """Make records; returns, in lanes, whether there is a negative zero."""
        k, n, count = self.k, self.geometry.n, self.count
        flags = k.scratch("pair_flags" if records.layout.positioned else "flags", "i32", count)
        k.store(flags, 0, k.const("i32", 0, (count,)))

        def note(bits: Value) -> None:
            key = self.single
            if key is None or not key.loses_zeros or records.layout.positioned:
                return
            zero = k.convert(key.negative_zero(k, bits), "i32")
            zero = k.reduce("or", zero, 0) if len(zero.shape) == 2 else zero
            k.store(flags, 0, k.load(flags, 0, (count,)) | zero)

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

        usual = records.layout.positioned == self.needs_position
        whole = n // count * count if self._by_blocks and usual else 0
        if not surely_equal(whole, 0):
            k.for_(0, whole, count, block)
        self._each(whole, n, one)
        return k.load(flags, 0, (count,))

    @property
    def _by_blocks(self) -> bool:
        """Whether square blocks of rows and elements are transposed in registers."""
        key = self.single
        plain = key is not None and key.reversible and not key.is_padded
        return plain and self.lane_stride != 1 and self.mask is None and 4 <= self.count <= 16

    def _put(
        self, records: _Scratch, i: Value, bits: Sequence[Value], position: Value,
        strides: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        """Write records number `i` (and those after it in a block)."""
        k = self.k
        parts = [key.encode(k, x) for x, (_, key) in zip(bits, self.keys, strict=True)]
        record = records.layout.join(k, parts, position)
        for buffer, x in zip(records.buffers, record, strict=True):
            k.store(buffer, i * self.count, x, strides)

    def _load_bits(self, source: Any, key: Key, i: Value | int) -> Value:
        k, g = self.k, self.geometry
        at = self.start + k.index(i) * g.inner
        return key.load(k, self.kernel.input(source), at, self.count, self.lane_stride, self.mask)

    def _sort(self, records: _Scratch) -> None:
        self._network(records.buffers)
        whole = 0
        if self._by_blocks and not records.layout.positioned:
            whole = self.taken // self.count * self.count
            self.k.for_(0, whole, self.count, lambda i: self._emit_block(i, records.buffers[0]))
        self._each(whole, self.taken, lambda i: self._emit(i, records))

    def _emit_block(self, i: Value, keys: Buffer) -> None:
        """Write a block of sorted keys."""
        k, count, key = self.k, self.count, self.single
        assert key is not None
        x = key.decode(k, k.load(keys, i * count, (count, count), (count, 1)))
        for _, target in self.outputs:  # several, if the key is sorted with itself
            out = view(self.kernel.output(target), key.unsigned)
            k.store(out, self._start(self.taken) + i, x, (1, self.taken))

    def _network(self, scratch: Sequence[Buffer]) -> None:
        """All rounds; written out where rows fit into registers."""
        k, n = self.k, self.geometry.n
        if self.room <= 16:
            for p, r, d in merge_exchange(self.room):
                for i in range(n - d):
                    if i & p == r:
                        self._exchange(scratch, k.const("index", i), k.const("index", d))
            return
        top = k.const("index", merge_exchange(self.room)[0][0])
        if isinstance(n, Dim):  # rounds of greater `p` are none
            (top,) = k.while_(lambda t: t * 2 < n, lambda t: t * 2, [k.const("index", 1)])
        zero = k.const("index", 0)

        def rounds_of(p: Value | int) -> None:
            # As in `merge_exchange`, with the rounds of one p as a loop of the kernel.
            def step(q: Value, r: Value, d: Value) -> tuple[Value, ...]:
                self._round(scratch, p, r, d)
                return q // 2, k.index(p), q - p

            k.while_(lambda q, r, d: q >= p, step, [top, zero, k.index(p)])

        def longer(p: Value) -> Value:
            rounds_of(p)
            return p // 2

        # Where runs are loops, one piece of code is for all their lengths: rows of symbolic length
        # have rounds for the longest, which LLVM would compile one by one.
        k.while_(lambda p: p > WRITTEN, longer, [top])
        for p in (WRITTEN, WRITTEN // 2, WRITTEN // 4):
            rounds_of(p)

    def _round(self, scratch: Sequence[Buffer], p: Value | int, r: Value, d: Value) -> None:
        """One round: runs of `p` neighbors, every second one, from `r` on."""
        k = self.k
        limit = self.geometry.n - d
        pair = 2 * p
        whole = r + ((limit - r + p) & -pair)

        def run(start: Value) -> None:
            if isinstance(p, int):
                for j in range(p):
                    self._exchange(scratch, start + j, d)
            else:
                k.for_(start, start + p, 1, lambda i: self._exchange(scratch, i, d))

        k.for_(r, whole, pair, run)
        if not isinstance(p, int) or p > 1:  # the last run may be shorter
            k.for_(whole, limit, 1, lambda i: self._exchange(scratch, i, d))

    def _exchange(self, scratch: Sequence[Buffer], i: Value, d: Value) -> None:
        k, count = self.k, self.count
        here, there = i * count, (i + d) * count
        low = [k.load(s, here, (count,)) for s in scratch]
        high = [k.load(s, there, (count,)) for s in scratch]
        if len(scratch) == 1:
            pairs = [(k.min(low[0], high[0]), k.max(low[0], high[0]))]
        else:
            swap = precedes(k, high, low)
            pairs = [
                (k.select(swap, b, a), k.select(swap, a, b)) for a, b in zip(low, high, strict=True)
            ]
        for s, (a, b) in zip(scratch, pairs, strict=True):
            k.store(s, here, a)
            k.store(s, there, b)

    def _emit(self, i: Value, records: _Scratch) -> None:
        """Write the elements that became number `i` of their rows."""
        k, g, count, layout = self.k, self.geometry, self.count, records.layout
        parts = [k.load(s, i * count, (count,)) for s in records.buffers]
        position = layout.place(k, parts[-1])
        where = self._start(self.taken) + i * g.inner
        lane_stride = 1 if g.inner > 1 else self.taken
        lanes = k.iota(count) * k.const("index", self.lane_stride, (count,))
        start = lanes + k.broadcast(self.start, (count,))
        for source, target in self.outputs:
            if key := self.decoding(source, layout.positioned):
                bits = key.decode(k, layout.part(k, parts[0], key.unsigned))
                out = view(self.kernel.output(target), key.unsigned)
                k.store(out, where, bits, [lane_stride], self.mask)
            else:
                place = start, position, count, lane_stride, self.mask
                self.gather(self.kernel, source, target, where, *place)


@dataclass
class _Scratch:
    """Records of a bundle of rows: for each element of the rows a vector.

    Args:
      buffers: one for each part of a record.
      layout: of records.
    """

    buffers: list[Buffer]
    layout: RecordLayout
