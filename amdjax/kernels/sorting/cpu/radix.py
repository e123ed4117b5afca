"""Sorting by digits, the lowest first.

Each pass counts the digits of each split of a row, turns counts into places, and moves records
there. With few rows every phase is a kernel whose programs take splits; with many a program does
whole rows, one after the other.

Source: D. Knuth, The Art of Computer Programming, volume 3, 5.2.5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amdjax.core.dims import choosing, min_dim, size_hint
from amdjax.core.integers import ceil_div
from amdjax.kernels.loops import lane_loop, lanes_for, split_position, view
from amdjax.kernels.shaped import Call, Copy, ShapedContext, ShapedKernel, Temp
from amdjax.kernels.sorting.keys import Key
from amdjax.kernels.sorting.rows import RecordLayout, SortedRows, SortProblem
from amdjax.schedule.search import busy_time
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import Buffer, Value

PARALLEL = 1 << 14  # elements from which threads share the work
BIN = 7.2452  # moves of a record that take as long as clearing a count and adding it to others


@dataclass
class Records:
    """Arrays of records: two halves for each row, between which passes move them.

    Args:
      buffers: one for each part of a record.
      layout: of records.
    """

    buffers: list[Buffer]
    layout: RecordLayout

    @property
    def keys(self) -> Buffer:
        """What has the keys, and positions if they are packed."""
        return self.buffers[0]


@dataclass(frozen=True)
class RadixPlan:
    """Digits, the lowest first.

    Args:
      problem: the rows.
      split_rows: whether several programs share a row, each kind of step being a launch.
      length: elements of a row that a program takes.
      owners: programs that have records of their own.
      bits: of a digit.
    """

    problem: SortProblem
    split_rows: bool
    length: int
    owners: int
    bits: int

    def emit(self, ctx: ShapedContext) -> list[Call | Copy]:
        return Radix(ctx, self).build()

    def __str__(self) -> str:
        shared = f"{self.length} of a row in a program" if self.split_rows else "a row in a program"
        return f"radix sort of {self.problem}, digits of {self.bits} bits, {shared}"


def radix_plans(problem: SortProblem, target: CpuTarget) -> list[RadixPlan]:
    """Digits of both sizes, by programs that take whole rows or share them."""
    rows, n, busy = problem.geometry.rows, problem.geometry.n, 2 * target.threads
    ways = [(False, n, min_dim(rows, 4 * target.threads))]
    with choosing():
        large = rows * n >= PARALLEL
    if large and target.threads > 1:
        ways.append((True, ceil_div(n, ceil_div(busy, size_hint(rows))), rows))
    return [RadixPlan(problem, *way, bits) for way in ways for bits in (8, 11)]


def radix_cost(problem: SortProblem, plan: RadixPlan, target: CpuTarget) -> float:
    """Moves of a record that a thread makes one after the other, for keys of 32 bits."""
    rows, n, busy = plan.problem.geometry.rows, plan.problem.geometry.n, 2 * target.threads
    work = 32 / plan.bits * rows * (n + BIN * (1 << plan.bits))
    return busy_time(work, busy if plan.split_rows else rows, busy)


class Radix(SortedRows):
    """Sorts by digits."""

    def __init__(self, ctx: ShapedContext, plan: RadixPlan):
        super().__init__(ctx, plan.problem)
        self.split_rows, self.length, self.owners = plan.split_rows, plan.length, plan.owners
        self.splits = ceil_div(self.geometry.n, self.length)
        self.bits, self.bins = plan.bits, 1 << plan.bits

    def build(self) -> list[Call | Copy]:
        self.steps = [self._step(source, key) for source, key in reversed(self.keys)]
        return self._build_split_rows() if self.split_rows else self._build_rows()

    def _step(self, source: Any, key: Key) -> _Step:
        """Workspace for sorting by one key."""
        size = self.owners * 2 * self.geometry.n
        layout = RecordLayout.of([(source, key)], self.needs_position)
        low = 32 if layout.packed else 0
        shifts = list(range(low, low + key.width, self.bits))
        return _Step(source, key, [Temp(kind, size) for kind in layout.kinds], layout, shifts)

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

    def _build_split_rows(self) -> list[Call | Copy]:
        g = self.geometry
        calls: list[Call | Copy] = []
        previous: tuple[_Step, Temp, int] | None = None
        flags = None
        for step in self.steps:
            state = Temp("u32", g.rows * (len(step.shifts) + 1))
            if previous is None and self._fixes_zeros:
                flags = Temp("u8", g.rows * self.splits)
            calls.append(self._fill_call(step, state, previous, flags))
            for number, shift in enumerate(step.shifts):
                counts = Temp("u32", g.rows * self.splits * self.bins)
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
        """A kernel over splits: row, split, and its bounds."""
        self.kernel = self.ctx.kernel(name)
        k = self.k = self.kernel.k
        row, split = split_position(k, k.program_id(), (self.geometry.rows, self.splits))
        low = split * self.length
        return row, split, low, k.min(low + self.length, self.geometry.n)

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
        row, split, low, high = self._begin("sort_fill")
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
        k.if_(k.eq(split, 0), lambda: k.store(out, at, k.const("u32", 0)))
        if flags is not None:
            assert mixed is not None
            k.store(self.kernel.output(flags), k.program_id(), k.convert(mixed, "u8"))
        return self.kernel.launch(self.geometry.rows * self.splits, self._cost() / 2)

    def _count_call(self, step: _Step, state: Temp, number: int, shift: int, counts: Temp) -> Call:
        row, _, low, high = self._begin("sort_count")
        k = self.k
        source = self._half(state, len(step.shifts), number, row)
        out = self.kernel.inout(counts)
        base = k.program_id() * self.bins
        wide = min(self.bins, 16)
        k.for_(0, self.bins, wide, lambda i: k.store(out, base + i, k.const("u32", 0, (wide,))))
        self._count(step.records(self.kernel, read=True), source, low, high, shift, out, base)
        return self.kernel.launch(self.geometry.rows * self.splits, self._cost() / 2)

    def _places_call(self, state: Temp, passes: int, number: int, counts: Temp) -> Call:
        self.kernel = self.ctx.kernel("sort_places")
        k = self.k = self.kernel.k
        row = k.program_id()
        most = self._places(self.kernel.inout(counts), row * (self.splits * self.bins), self.splits)
        states = self.kernel.inout(state)
        at = row * (passes + 1) + number
        half = k.load(states, at)
        moved = most < self.geometry.n
        k.store(states, at + 1, k.select(moved, k.const("u32", 1) - half, half))
        return self.kernel.launch(
            self.geometry.rows, 0.3 * self.geometry.rows * self.splits * self.bins
        )

    def _move_call(self, step: _Step, state: Temp, number: int, shift: int, counts: Temp) -> Call:
        row, _, low, high = self._begin("sort_move")
        k, passes = self.k, len(step.shifts)
        source, after = (self._half(state, passes, number + i, row) for i in (0, 1))
        places = k.scratch("places", "u32", self.bins)
        records = step.records(self.kernel)

        def move() -> None:
            given = self.kernel.input(counts)
            base = k.program_id() * self.bins
            wide = min(self.bins, 16)
            k.for_(
                0, self.bins, wide, lambda i: k.store(places, i, k.load(given, base + i, (wide,)))
            )
            self._move(records, source, self._other_half(row, source), low, high, shift, places)

        k.if_(k.ne(source, after), move)
        return self.kernel.launch(self.geometry.rows * self.splits, self._cost())

    def _finish_call(self, step: _Step, state: Temp, passes: int) -> Call:
        row, _, low, high = self._begin("sort_finish")
        k = self.k
        source = self._half(state, passes, passes, row)
        if self.taken < self.geometry.n:
            high = k.min(high, self.taken)
            low = k.min(low, high)
        self._finish(step, step.records(self.kernel, read=True), source, row, low, high)
        return self.kernel.launch(self.geometry.rows * self.splits, self._cost())

    def _restore_call(self, flags: Temp) -> Call:
        self.kernel = self.ctx.kernel("sort_zeros")
        k = self.k = self.kernel.k
        row = k.program_id()
        given = self.kernel.input(flags)
        first = row * self.splits
        (seen,) = k.for_(
            0, self.splits, 1, lambda i, seen: seen | k.load(given, first + i), [k.const("u8", 0)]
        )
        k.if_(k.ne(seen, k.const("u8", 0)), lambda: self._restore_zeros(row))
        return self.kernel.launch(self.geometry.rows, 50.0 * self.geometry.rows)

    # The phases

    def _fill(
        self, step: _Step, records: Records, row: Value, low: Value, high: Value, base: Value,
        previous: tuple[Records, Value] | None,
    ) -> Value | None:  # fmt: skip
        """Make records of a split of a row; returns whether it has a negative zero that matters."""
        k, g, key = self.k, self.geometry, step.key
        count = lanes_for(self.ctx.target, records.keys.dtype, g.n, 1)
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
            record = records.layout.join(k, [key.encode(k, bits)], position)
            for buffer, x in zip(records.buffers, record, strict=True):
                k.store(buffer, base + i, x, None, mask)
            if not watch:
                return []
            zero = key.negative_zero(k, bits)
            zero = zero if mask is None else zero & mask
            return [seen[0] | k.convert(zero, "u8")]

        carried = [k.const("u8", 0, (count,))] if watch else []
        seen = lane_loop(k, low, high, count, lanes, carried)
        return k.ne(k.reduce("or", seen[0]), k.const("u8", 0)) if watch else None

    def _positions(
        self, records: Records, base: Value, i: Value, count: int, mask: Value | None
    ) -> Value:
        """Where records come from."""
        k = self.k
        last = k.load(records.buffers[-1], base + i, (count,), None, mask)
        return k.convert(k.convert(last, "u32"), "index")

    def _digit(self, x: Value, shift: int) -> Value:
        k = self.k
        x = x >> k.const(x.dtype, shift) if shift else x
        return k.convert(x, "index") & (self.bins - 1)

    def _count(
        self, records: Records, source: Value, low: Value, high: Value, shift: int, counts: Buffer,
        base: Value,
    ) -> None:  # fmt: skip
        k = self.k

        def one(i: Value) -> None:
            at = base + self._digit(k.load(records.keys, source + i), shift)
            k.store(counts, at, k.load(counts, at) + k.const("u32", 1))

        k.for_(low, high, 1, one)

    def _places(self, counts: Buffer, base: Value, splits: int) -> Value:
        """Turn the counts of a row's splits into places; returns the greatest total of a digit."""
        k = self.k
        wide = min(self.bins, 16)

        def at(split: int, i: Value) -> Value:
            return base + (i + split * self.bins)

        def block(i: Value, carry: Value, most: Value) -> list[Value]:
            total = k.const("u32", 0, (wide,))
            before = []
            for split in range(splits):
                before.append(total)
                total = total + k.load(counts, at(split, i), (wide,))
            last = k.cumulative("add", total)
            start = k.broadcast(carry, (wide,)) + (last - total)
            for split in range(splits):
                k.store(counts, at(split, i), start + before[split])
            return [carry + k.extract(last, wide - 1), k.max(most, total)]

        zero = k.const("u32", 0)
        _, most = k.for_(0, self.bins, wide, block, [zero, k.const("u32", 0, (wide,))])
        return k.convert(k.reduce("max", most), "index")

    def _move(
        self, records: Records, source: Value, target: Value, low: Value, high: Value, shift: int,
        places: Buffer,
    ) -> None:  # fmt: skip
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
        k, g = self.k, self.geometry
        count = lanes_for(self.ctx.target, records.keys.dtype, g.n, 1)
        start, out = g.start(k, row), g.start(k, row, self.taken)

        def lanes(i: Value, mask: Value | None) -> None:
            where, position = out + i * g.inner, None
            if self.needs_position:
                position = self._positions(records, source, i, count, mask)
            for operand, target in self.outputs:
                if key := self.decoding(operand):
                    x = k.load(records.keys, source + i, (count,), None, mask)
                    x = key.decode(k, records.layout.part(k, x, key.unsigned))
                    result = view(self.kernel.output(target), key.unsigned)
                    k.store(result, where, x, [g.inner], mask)
                else:
                    assert position is not None
                    place = start, position, count, g.inner, mask
                    self.gather(self.kernel, operand, target, where, *place)

        lane_loop(k, low, high, count, lanes)

    def _restore_zeros(self, row: Value) -> None:
        """Put zeros of both signs where a stable sort leaves them: in the order they came in."""
        k, g, key = self.k, self.geometry, self.single
        assert key is not None
        count = lanes_for(self.ctx.target, key.unsigned, g.n, 1)
        source = self.keys[0][0]
        start, out = g.start(k, row), g.start(k, row, self.taken)
        operand = self.kernel.input(source)
        targets = [target for origin, target in self.outputs if origin is source]
        results = [view(self.kernel.inout(target), key.unsigned) for target in targets]
        zero = k.const(key.unsigned, key.zero_key(), (count,))

        def load(i: Value, mask: Value | None) -> tuple[Value, Value]:
            at = start + i * g.inner
            bits = key.load(k, operand, at, count, g.inner, mask)
            return bits, key.encode(k, bits)

        def size(found: Value, mask: Value | None) -> Value:
            found = found if mask is None else found & mask
            return k.convert(k.reduce("add", k.convert(found, "i32")), "index")

        def before(i: Value, mask: Value | None, total: Value) -> list[Value]:
            return [total + size(load(i, mask)[1] < zero, mask)]

        def write(i: Value, mask: Value | None, place: Value) -> list[Value]:
            bits, x = load(i, mask)
            found = k.eq(x, zero)
            found = found if mask is None else found & mask
            number = size(found, None)
            front = k.iota(count) < k.broadcast(number, (count,))
            at = out + place * g.inner
            for result in results:
                k.store(result, at, k.compress(bits, found), [g.inner], front)
            return [place + number]

        (place,) = lane_loop(k, 0, g.n, count, before, [k.const("index", 0)])
        lane_loop(k, 0, g.n, count, write, [place])


@dataclass
class _Step:
    """Sorting by one key: its operand, the workspace, and the digits."""

    source: Any
    key: Key
    temps: list[Temp]
    layout: RecordLayout
    shifts: list[int]

    def records(self, kernel: ShapedKernel, read: bool = False) -> Records:
        param: Callable[[Any], Buffer] = kernel.input if read else kernel.inout
        return Records([param(temp) for temp in self.temps], self.layout)
