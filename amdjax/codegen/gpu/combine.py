"""Combining the elements of a tile: reductions and running combinations.

Within a thread, then between the lanes of a wave by permutes, then between waves through LDS. The
order depends on shape and layout alone, so results are the same in every run.
"""

from __future__ import annotations

from collections.abc import Sequence

from amdjax.codegen import llvm, tile
from amdjax.codegen.gpu.isa import by_words
from amdjax.codegen.gpu.layout import Layout, Place
from amdjax.codegen.gpu.memory import Spread
from amdjax.codegen.gpu.moves import GpuMoves
from amdjax.codegen.gpu.tiles import Held, Rep
from amdjax.codegen.llvm import I1, I32, Value
from amdjax.codegen.pointwise import SIGNED

__all__ = ["GpuCombine", "identity"]


def identity(combine: str, dtype: str, bits: int) -> float | int:
    """The number that changes nothing, for elements of so many bits."""
    if combine in ("add", "or", "xor"):
        return -0.0 if dtype in tile.FLOATS else 0
    if combine == "mul":
        return 1
    if combine == "and":
        return -1
    sign = 1 if combine == "min" else -1
    if dtype in tile.FLOATS:
        return sign * float("inf")
    if dtype == "bool":
        return combine == "min"
    if dtype in SIGNED:
        return (1 << (bits - 1)) - 1 if combine == "min" else -(1 << (bits - 1))
    return (1 << bits) - 1 if combine == "min" else 0


class GpuCombine(GpuMoves):
    def _tree(self, name: str, dtype: str, xs: Sequence[Value]) -> Value:
        """All of them combined, neighbours first."""
        while len(xs) > 1:
            pairs = [
                self.elementwise(name, dtype, a, b) for a, b in zip(xs[::2], xs[1::2], strict=False)
            ]
            xs = [*pairs, *xs[len(xs) & ~1 :]]
        return xs[0]

    def _filled(self, x: Value, layout: Layout, neutral: float | int) -> Value:
        """Registers; those that hold no element get a value."""
        guards = self.guards(layout)
        if all(g is None for g in guards):
            return x
        alive = self.joined([g or llvm.const(I1, True) for g in guards])
        return self.f.select(alive, x, llvm.const(x.type, neutral))

    # Reductions

    def op_reduce(self, op: tile.Op) -> list[Rep]:
        (v,), name, axis = op.operands, op.attrs["combine"], op.attrs["axis"]
        layout, dtype = self.layout(v.shape), v.dtype
        bits = layout.thread_bits(axis)
        if bits is None:
            return [self._reduce_in_lds(name, v, axis)]
        x = self.in_registers(v)
        x = self._filled(x, layout, identity(name, dtype, x.type.bits))
        groups: dict[tuple[Place, ...], list[Value]] = {}
        for r, place in enumerate(self.places(layout)):
            kept = (*place[:axis], *place[axis + 1 :])
            groups.setdefault(kept, []).append(self.register(x, r))
        totals = {kept: self._tree(name, dtype, group) for kept, group in groups.items()}
        if len(v.shape) == 1:
            (total,) = totals.values()
            return [self._everywhere(name, dtype, total, bits)]
        totals = {kept: self._over_lanes(name, dtype, t, bits) for kept, t in totals.items()}
        return [self._dealt(name, v, axis, bits, {kept[0]: t for kept, t in totals.items()})]

    def _over_lanes(self, name: str, dtype: str, x: Value, bits: int) -> Value:
        """Combined over the lanes of a wave that differ in the given bits of their number."""
        distance = 1
        while distance < self.isa.wave:
            if bits & distance:
                settled = bits & (distance - 1) == distance - 1
                x = self.elementwise(name, dtype, x, self._partner(x, distance, settled))
            distance *= 2
        return x

    def _partner(self, x: Value, distance: int, settled: bool) -> Value:
        f = self.f
        return by_words(f, x, lambda word: self.isa.partner(f, word, distance, settled))

    def _everywhere(self, name: str, dtype: str, x: Value, bits: int) -> Value:
        """Combined over all lanes and waves: a scalar."""
        row = self.isa.row
        x = self._over_lanes(name, dtype, x, bits & (row - 1))
        lanes = range(0, min(bits + 1, self.isa.wave), row)
        x = self._tree(name, dtype, [self.from_lane(x, lane) for lane in lanes])
        if bits < self.isa.wave:
            return x
        waves = (bits + 1) // self.isa.wave
        parts = self.temporary(dtype, waves)
        self.access(parts, "write")
        memory = self.memory_type(dtype)
        stored = self.to_memory(x, dtype, memory)

        def write() -> list[Value]:
            self.f.store(stored, self.pointer(parts, self.wave_number()), memory.bits // 8)
            return []

        first = self.threads.compare("eq", self.lane_number(), 0)
        if bits + 1 < self.workgroup:  # the other waves repeat what these have
            first = self.f.and_(first, self.threads.compare("ult", self.threads.number, bits + 1))
        self.when(first, write)
        self.access(parts, "read")
        every = self.f.load(memory.with_lanes(waves), self.addresses[parts.name], 16)
        loaded = self.from_memory(every, dtype)
        return self._tree(name, dtype, [self.register(loaded, i) for i in range(waves)])

    def from_lane(self, x: Value, lane: int) -> Value:
        """The value of one lane, in all lanes of its wave."""
        return by_words(self.f, x, lambda word: self.isa.lane(self.f, word, lane))

    def lane_number(self) -> Value:
        return self.threads.apply("and", self.threads.number, self.isa.wave - 1)

    def wave_number(self) -> Value:
        return self.threads.apply("lshr", self.threads.number, self.isa.wave.bit_length() - 1)

    def _dealt(
        self, name: str, v: tile.Value, axis: int, bits: int, totals: dict[Place, Value]
    ) -> Held:
        """Totals of rows or columns, combined over waves, in the layout of a tile of them.

        Lanes that are equal in the reduced bits hold the same total; the first one writes it.
        """
        n, dtype = v.shape[1 - axis], v.dtype
        target = self.layout((n,))
        across = bits & -self.isa.wave
        waves = 1 << across.bit_count()
        wanted = [place for (place,) in self.places(target)]
        if waves == 1 and all(place in totals for place in wanted):
            return Held(self.joined([totals[place] for place in wanted]))
        buffer = self.temporary(dtype, n * waves)
        self.access(buffer, "write")
        self._write_totals(buffer, v, axis, bits, totals)
        self.access(buffer, "read")
        parts = [
            self.load_tile(Spread(buffer, part * n, (1,)), dtype, target) for part in range(waves)
        ]
        return Held(self._tree(name, dtype, parts))

    def _write_totals(
        self, buffer: tile.Buffer, v: tile.Value, axis: int, bits: int, totals: dict[Place, Value]
    ) -> None:
        f, t, n = self.f, self.threads, v.shape[1 - axis]
        layout, memory = self.layout(v.shape), self.memory_type(v.dtype)
        across = bits & -self.isa.wave
        mine = t.compare("eq", t.apply("and", t.number, bits & ~across), 0)
        if layout.period < self.workgroup:
            mine = f.and_(mine, t.compare("ult", t.number, layout.period))
        shift = (across & -across).bit_length() - 1
        part = t.apply("lshr", t.apply("and", t.number, across), shift) if across else None
        base = self.addresses[buffer.name]

        def write() -> list[Value]:
            for place, total in totals.items():
                stored = self.to_memory(total, v.dtype, memory)
                at = f.gep(base, place.step, memory)
                if place.base is not None:
                    at = f.gep(at, place.base, memory)
                if part is not None:
                    at = f.gep(at, t.apply("mul", part, n), memory)
                inside = self._exists(place, n)
                if inside is None:
                    f.store(stored, at, memory.bits // 8)
                else:
                    self.when(inside, lambda s=stored, p=at: self._store(s, p))  # type: ignore[misc]
            return []

        self.when(mine, write)

    def _store(self, x: Value, pointer: Value) -> list[Value]:
        self.f.store(x, pointer, x.type.bits // 8)
        return []

    def _exists(self, place: Place, n: int) -> Value | None:
        """Whether a place is below `n`; None where it always is."""
        if place.base is None:
            return None if place.step < n else llvm.const(I1, False)
        if n & (n - 1) == 0:
            return None if place.step < n else llvm.const(I1, False)
        return self.threads.compare("slt", place.base, n - place.step)

    def _reduce_in_lds(self, name: str, v: tile.Value, axis: int) -> Held:
        """Where threads hold rows in part: each reads the elements of its results."""
        columns = v.shape[1]
        buffer = self.put_rows(v)
        self.access(buffer, "read")
        stride, step = (1, columns) if axis == 0 else (columns, 1)
        target = self.layout((v.shape[1 - axis],))

        def part(i: Value | int) -> Value:
            offset = i if isinstance(i, int) else self.f.mul(i, llvm.const(I32, step))
            return self.load_tile(Spread(buffer, offset, (stride,)), v.dtype, target)

        def body(i: Value, carried: list[Value]) -> list[Value]:
            with self.scope():
                return [self.elementwise(name, v.dtype, carried[0], part(i))]

        bounds = llvm.const(I32, 1), llvm.const(I32, v.shape[axis])
        (total,) = self.f.loop(*bounds, 1, [part(0)], body)
        return Held(total)

    # Running combinations

    def op_cumulative(self, op: tile.Op) -> list[Rep]:
        (v,), name, reverse = op.operands, op.attrs["combine"], op.attrs["reverse"]
        if len(v.shape) == 2:
            return [self._running_rows(name, v, reverse)]
        x = self.in_registers(v)
        return [Held(self.running(name, v.dtype, x, v.shape[0], reverse))]

    def running(self, name: str, dtype: str, x: Value, n: int, reverse: bool) -> Value:
        """Running combination of `n` elements, each with those before it."""
        layout, forward = self.layout((n,)), -1 if reverse else 1
        neutral = llvm.const(x.type.with_lanes(0), identity(name, dtype, x.type.bits))
        x = self._filled(x, layout, identity(name, dtype, x.type.bits))
        chunks = []
        for c in range(0, layout.registers, layout.width):
            local = [self.register(x, r) for r in range(c, c + layout.width)][::forward]
            for i in range(1, layout.width):
                local[i] = self.elementwise(name, dtype, local[i - 1], local[i])
            chunks.append(local)
        chunks = chunks[::forward]
        lanes = [
            self._over_lanes_below(name, dtype, c[-1], layout, neutral, reverse) for c in chunks
        ]
        waves = self._before_waves(name, dtype, [t for _, t in lanes], layout, neutral, reverse)
        out: list[Value] = []
        for local, (below, _), before in zip(chunks, lanes, waves, strict=True):
            start = self.elementwise(name, dtype, before, below)
            out += [self.elementwise(name, dtype, start, one) for one in local]
        return self.joined(out[::forward])

    def _over_lanes_below(
        self, name: str, dtype: str, x: Value, layout: Layout, neutral: Value, reverse: bool
    ) -> tuple[Value, Value]:
        """What lanes before each one (behind, if `reverse`) hold together, and all of the wave."""
        f, t = self.f, self.threads
        lanes = min(layout.period, self.isa.wave)
        lane = t.apply("and", t.number, lanes - 1)

        def shifted(x: Value, distance: int) -> Value:
            moved = by_words(f, x, lambda word: self.isa.moved(f, word, distance, not reverse))
            inside = (
                t.compare("slt", lane, lanes - distance)
                if reverse
                else t.compare("sge", lane, distance)
            )
            return f.select(inside, moved, neutral)

        distance = 1
        while distance < lanes:
            x = self.elementwise(name, dtype, shifted(x, distance), x)
            distance *= 2
        below = shifted(x, 1) if lanes > 1 else neutral
        return below, self.from_lane(x, 0 if reverse else lanes - 1)

    def _before_waves(
        self,
        name: str,
        dtype: str,
        totals: Sequence[Value],
        layout: Layout,
        neutral: Value,
        reverse: bool,
    ) -> list[Value]:
        """What comes before this thread's wave in each chunk, earlier chunks included."""
        t = self.threads
        waves = max(layout.period // self.isa.wave, 1)
        mine = t.apply("and", self.wave_number(), waves - 1)
        sofar, out = neutral, []
        for parts in self._of_waves(dtype, totals, waves, layout, mine):
            before = sofar
            for w in range(waves)[:: -1 if reverse else 1]:
                if w != (waves - 1 if reverse else 0):
                    reached = t.compare("sle" if reverse else "sge", mine, w)
                    before = self.f.select(reached, sofar, before)
                sofar = self.elementwise(name, dtype, sofar, parts[w])
            out.append(before)
        return out

    def _of_waves(
        self, dtype: str, totals: Sequence[Value], waves: int, layout: Layout, mine: Value
    ) -> list[list[Value]]:
        """The totals of all waves, in all threads."""
        if waves == 1:
            return [[total] for total in totals]
        f, t, memory = self.f, self.threads, self.memory_type(dtype)
        buffer = self.temporary(dtype, waves * len(totals))
        self.access(buffer, "write")
        writes = t.compare("eq", self.lane_number(), 0)
        if layout.period < self.workgroup:
            writes = f.and_(writes, t.compare("ult", t.number, layout.period))
        first = f.gep(self.addresses[buffer.name], mine, memory)

        def write() -> list[Value]:
            for i, total in enumerate(totals):
                self._store(self.to_memory(total, dtype, memory), f.gep(first, i * waves, memory))
            return []

        self.when(writes, write)
        self.access(buffer, "read")
        every = memory.with_lanes(waves)
        rows = [
            f.load(every, f.gep(self.addresses[buffer.name], i * waves, memory), memory.bits // 8)
            for i in range(len(totals))
        ]
        rows = [self.from_memory(row, dtype) for row in rows]
        return [[f.extract(row, w) for w in range(waves)] for row in rows]

    def _running_rows(self, name: str, v: tile.Value, reverse: bool) -> Held:
        """Rows one by one, each by a thread."""
        rows, columns = v.shape
        buffer = self.put_rows(v)
        self.access(buffer, "write")
        target, dtype = self.layout((rows,)), v.dtype
        first = columns - 1 if reverse else 0

        def column(i: Value) -> Value:
            return self.f.sub(llvm.const(I32, first), i) if reverse else i

        def body(i: Value, carried: list[Value]) -> list[Value]:
            with self.scope():
                where = Spread(buffer, column(i), (columns,))
                one = self.load_tile(where, dtype, target)
                total = self.elementwise(name, dtype, carried[0], one)
                self.store_tile(where, dtype, target, total)
            return [total]

        start = self.load_tile(Spread(buffer, first, (columns,)), dtype, target)
        self.f.loop(llvm.const(I32, 1), llvm.const(I32, columns), 1, [start], body)
        return self.take(buffer, v.shape, 0, (columns, 1))
