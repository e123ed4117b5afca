"""Reductions of tiles.

Within a thread, then between the lanes of a wave by permutes, then between waves through LDS. The
order depends on shape and layout alone, so results are the same in every run. Several tiles may be
reduced together: what stands for two elements then depends on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import Emitter, lowers
from amdjax.codegen.gpu.extrema import extremum, of_numbers, or_nan
from amdjax.codegen.gpu.isa import by_words
from amdjax.codegen.gpu.layout import Layout, Place
from amdjax.codegen.gpu.layout_conversion import GpuLayoutConversion, row_major
from amdjax.codegen.gpu.memory import Spread
from amdjax.codegen.gpu.tiles import Held, Rep
from amdjax.codegen.llvm import I1, I32, Type, Value
from amdjax.codegen.pointwise import SIGNED
from amdjax.core.integers import ceil_div
from amdjax.tile import ops

__all__ = ["GpuReduce", "identity"]

#: An element of each tile that is reduced, or registers of each.
Parts = Sequence[Value]


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


@dataclass(frozen=True)
class _Merge:
    """What combines elements of tiles that are reduced together.

    Args:
      dtypes: of the tiles.
      neutral: elements that change nothing.
      of: what stands for the elements at two places.
      expensive: whether that takes longer than a permute.
      extremum: `max` or `min` of floats, where that had better be told of all at once.
    """

    dtypes: Sequence[str]
    neutral: Parts
    of: Callable[[Parts, Parts], Parts]
    expensive: bool = False
    extremum: str = ""


class GpuReduce(GpuLayoutConversion):
    @lowers(ops.Reduce)
    def lower_reduce(self, op: ops.Reduce) -> list[Rep]:
        (v,), name = op.operands, op.combine
        kind = self.vector(v.dtype, 1)
        neutral = llvm.const(kind, identity(name, v.dtype, kind.bits))

        def merge(left: Parts, right: Parts) -> Parts:
            return [self.elementwise(name, v.dtype, left[0], right[0])]

        by_extremum = name in ("max", "min") and v.dtype in tile.FLOATS and not self.isa.passes_nan
        one = _Merge([v.dtype], [neutral], merge, extremum=name if by_extremum else "")
        return self._reduced(one, op.operands, op.axis)

    @lowers(ops.ReduceBy)
    def lower_reduce_by(self, op: ops.ReduceBy) -> list[Rep]:
        n, (block,) = len(op.results), op.blocks
        tiles, neutral = op.operands[:n], [self.scalar(v) for v in op.operands[n:]]

        def one(left: Parts, right: Parts) -> list[Value]:
            self.reps.update(zip((a.number for a in block.args), (*left, *right), strict=True))
            with self.scope():  # no memory is accessed there, so that barriers need no arm
                Emitter.block(self, block)
            return [self.scalar(v) for v in block.yields]

        def merge(left: Parts, right: Parts) -> Parts:
            lanes = left[0].type.lanes
            if not lanes:
                return one(left, right)
            sides = [[self.register(x, r) for x in (*left, *right)] for r in range(lanes)]
            merged = [one(both[:n], both[n:]) for both in sides]
            return [self.joined(registers) for registers in zip(*merged, strict=True)]

        together = _Merge([v.dtype for v in tiles], neutral, merge, expensive=True)
        return self._reduced(together, tiles, op.axis)

    def _reduced(self, merge: _Merge, tiles: Sequence[tile.Value], axis: int) -> list[Rep]:
        shape = tiles[0].shape
        layout = self.layout(shape)
        bits = layout.thread_bits(axis)
        if bits is None:
            return self._reduce_in_lds(merge, tiles, axis)
        held = [
            self.filled(self.in_registers(v), layout, x)
            for v, x in zip(tiles, merge.neutral, strict=True)
        ]
        groups: dict[tuple[Place, ...], list[Parts]] = {}
        for r, place in enumerate(self.places(layout)):
            kept = (*place[:axis], *place[axis + 1 :])
            groups.setdefault(kept, []).append([self.register(x, r) for x in held])
        totals = {kept: self._tree(merge, group) for kept, group in groups.items()}
        if len(shape) == 1:
            (total,) = totals.values()
            return list(self._everywhere(merge, total, bits))
        lanes = {kept[0]: self._over_lanes(merge, t, bits) for kept, t in totals.items()}
        return self._dealt(merge, shape, axis, bits, lanes)

    def filled(self, x: Value, layout: Layout, neutral: Value) -> Value:
        """Registers; those that hold no element get a value."""
        guards = self.guards(layout)
        if all(g is None for g in guards):
            return x
        alive = self.joined([g or llvm.const(I1, True) for g in guards])
        return self.f.select(alive, x, self.splat(neutral, layout.registers))

    def _tree(self, merge: _Merge, xs: Sequence[Parts]) -> Parts:
        """All of them combined, neighbours first."""
        if merge.extremum:
            return [extremum(self.f, merge.extremum, [x for (x,) in xs])]
        while len(xs) > 1:
            pairs = [merge.of(a, b) for a, b in zip(xs[::2], xs[1::2], strict=False)]
            xs = [*pairs, *xs[len(xs) & ~1 :]]
        return xs[0]

    def _over_lanes(self, merge: _Merge, parts: Parts, bits: int) -> Parts:
        """Combined over the lanes of a wave that differ in the given bits of their number."""
        distance = 1
        while distance < self.isa.wave:
            if bits & distance:
                settled = bits & (distance - 1) == distance - 1
                others = [self._partner(x, distance, settled) for x in parts]
                parts = merge.of(parts, others)
            distance *= 2
        return parts

    def _partner(self, x: Value, distance: int, settled: bool) -> Value:
        f = self.f
        return by_words(f, x, lambda word: self.isa.partner(f, word, distance, settled))

    def _everywhere(self, merge: _Merge, parts: Parts, bits: int) -> Parts:
        """Combined over all lanes and waves: scalars."""
        parts = self._over_wave(merge, parts, bits)
        if bits < self.isa.wave:
            return parts
        waves = (bits + 1) // self.isa.wave
        whole, buffers = self._temporaries(merge.dtypes, waves)
        self.access(whole, "write")
        kinds = [self.memory_type(dtype) for dtype in merge.dtypes]
        stored = [
            self.to_memory(x, dtype, kind)
            for x, dtype, kind in zip(parts, merge.dtypes, kinds, strict=True)
        ]

        def write() -> list[Value]:
            for x, buffer in zip(stored, buffers, strict=True):
                self.store_one(x, self.pointer(buffer, self.wave_number()))
            return []

        first = self.threads.compare("eq", self.lane_number(), 0)
        if bits + 1 < self.workgroup:  # the other waves repeat what these have
            first = self.f.and_(first, self.threads.compare("ult", self.threads.number, bits + 1))
        self.when(first, write)
        self.access(whole, "read")
        if merge.expensive:  # fewer steps, of a permute each
            lane = self.threads.apply("and", self.threads.number, waves - 1)
            mine = [
                self.from_memory(self.f.load(k, self.pointer(b, lane), k.bits // 8), b.dtype)
                for k, b in zip(kinds, buffers, strict=True)
            ]
            return [self.from_lane(x, 0) for x in self._over_lanes(merge, mine, waves - 1)]
        loaded = [
            self.from_memory(self.f.load(k.with_lanes(waves), self.addresses[b.name], 16), b.dtype)
            for k, b in zip(kinds, buffers, strict=True)
        ]
        return self._tree(merge, [[self.register(x, i) for x in loaded] for i in range(waves)])

    def _over_wave(self, merge: _Merge, parts: Parts, bits: int) -> Parts:
        """Combined over all lanes of each wave."""
        row = self.isa.row
        if merge.extremum:
            f, name, (x,) = self.f, merge.extremum, parts
            numbers = replace(merge, of=lambda a, b: [of_numbers(f, name, a[0], b[0])], extremum="")
            (number,) = self._over_wave(numbers, parts, bits)
            return [or_nan(f, self.isa.any(f, f.fcmp("uno", x, x)), number)]
        parts = self._over_lanes(merge, parts, bits & (row - 1))
        lanes = range(0, min(bits + 1, self.isa.wave), row)
        return self._tree(merge, [[self.from_lane(x, lane) for x in parts] for lane in lanes])

    def from_lane(self, x: Value, lane: int) -> Value:
        """The value of one lane, in all lanes of its wave."""
        return by_words(self.f, x, lambda word: self.isa.lane(self.f, word, lane))

    def lane_number(self) -> Value:
        return self.threads.apply("and", self.threads.number, self.isa.wave - 1)

    def wave_number(self) -> Value:
        return self.threads.apply("lshr", self.threads.number, self.isa.wave.bit_length() - 1)

    def store_one(self, x: Value, pointer: Value) -> list[Value]:
        """Store one element."""
        self.f.store(x, pointer, x.type.bits // 8)
        return []

    def _temporaries(
        self, dtypes: Sequence[str], elements: int
    ) -> tuple[tile.Buffer, list[tile.Buffer]]:
        """LDS for a tile of each dtype: what accesses are noted of, and where each tile is."""
        if len(dtypes) == 1:
            buffer = self.temporary(dtypes[0], elements)
            return buffer, [buffer]
        sizes = [ceil_div(elements * self.memory_type(d).bits, 128) * 16 for d in dtypes]
        whole = self.temporary("u8", sum(sizes))
        buffers = []
        for i, dtype in enumerate(dtypes):
            part = tile.Buffer(f"{whole.name}.{i}", dtype, "scratch", elements)
            at = self.f.gep(self.addresses[whole.name], sum(sizes[:i]), Type("i8"))
            self.addresses[part.name] = at
            buffers.append(part)
        return whole, buffers

    def _dealt(
        self,
        merge: _Merge,
        shape: tuple[int, ...],
        axis: int,
        bits: int,
        totals: dict[Place, Parts],
    ) -> list[Rep]:
        """Totals of rows or columns, combined over waves, in the layout of a tile of them.

        Lanes that are equal in the reduced bits hold the same total; the first one writes it.
        """
        n = shape[1 - axis]
        target = self.layout((n,))
        across = bits & -self.isa.wave
        waves = 1 << across.bit_count()
        wanted = [place for (place,) in self.places(target)]
        if waves == 1 and all(place in totals for place in wanted):
            registers = zip(*(totals[place] for place in wanted), strict=True)
            return [Held(self.joined(x)) for x in registers]
        whole, buffers = self._temporaries(merge.dtypes, n * waves)
        self.access(whole, "write")
        self._write_totals(buffers, shape, axis, bits, totals)
        self.access(whole, "read")
        parts = [
            [self.load_tile(Spread(b, part * n, (1,)), b.dtype, target) for b in buffers]
            for part in range(waves)
        ]
        return [Held(x) for x in self._tree(merge, parts)]

    def _write_totals(
        self,
        buffers: Sequence[tile.Buffer],
        shape: tuple[int, ...],
        axis: int,
        bits: int,
        totals: dict[Place, Parts],
    ) -> None:
        f, t, n = self.f, self.threads, shape[1 - axis]
        layout = self.layout(shape)
        across = bits & -self.isa.wave
        mine = t.compare("eq", t.apply("and", t.number, bits & ~across), 0)
        if layout.period < self.workgroup:
            mine = f.and_(mine, t.compare("ult", t.number, layout.period))
        shift = (across & -across).bit_length() - 1
        part = t.apply("lshr", t.apply("and", t.number, across), shift) if across else None

        def put(place: Place, x: Value, buffer: tile.Buffer) -> None:
            memory = self.memory_type(buffer.dtype)
            stored = self.to_memory(x, buffer.dtype, memory)
            at = f.gep(self.addresses[buffer.name], place.step, memory)
            if place.base is not None:
                at = f.gep(at, place.base, memory)
            if part is not None:
                at = f.gep(at, t.apply("mul", part, n), memory)
            inside = self._exists(place, n)
            if inside is None:
                self.store_one(stored, at)
            else:
                self.when(inside, lambda: self.store_one(stored, at))

        def write() -> list[Value]:
            for place, parts in totals.items():
                for x, buffer in zip(parts, buffers, strict=True):
                    put(place, x, buffer)
            return []

        self.when(mine, write)

    def _exists(self, place: Place, n: int) -> Value | None:
        """Whether a place is below `n`; None where it always is."""
        if place.base is None:
            return None if place.step < n else llvm.const(I1, False)
        if n & (n - 1) == 0:
            return None if place.step < n else llvm.const(I1, False)
        return self.threads.compare("slt", place.base, n - place.step)

    def _reduce_in_lds(self, merge: _Merge, tiles: Sequence[tile.Value], axis: int) -> list[Rep]:
        """Where threads hold rows in part: each reads the elements of its results."""
        shape = tiles[0].shape
        rows, columns = shape
        held = [self.in_registers(v) for v in tiles]
        whole, buffers = self._temporaries(merge.dtypes, rows * columns)
        self.access(whole, "write")
        for buffer, x in zip(buffers, held, strict=True):
            self.store_tile(
                Spread(buffer, 0, row_major(shape)), buffer.dtype, self.layout(shape), x
            )
        self.access(whole, "read")
        stride, step = (1, columns) if axis == 0 else (columns, 1)
        target = self.layout((shape[1 - axis],))

        def at(i: Value | int) -> Parts:
            offset = i if isinstance(i, int) else self.f.mul(i, llvm.const(I32, step))
            return [self.load_tile(Spread(b, offset, (stride,)), b.dtype, target) for b in buffers]

        def body(i: Value, carried: list[Value]) -> list[Value]:
            with self.scope():
                return list(merge.of(carried, at(i)))

        bounds = llvm.const(I32, 1), llvm.const(I32, shape[axis])
        return [Held(x) for x in self.f.loop(*bounds, 1, list(at(0)), body)]
