"""Scans of tiles.

Within a thread, then over the lanes of a wave by permutes, then over waves through LDS. The order
depends on shape and layout alone, so results are the same in every run.
"""

from __future__ import annotations

from collections.abc import Sequence

from amdjax import tile
from amdjax.codegen import llvm
from amdjax.codegen.emitter import lowers
from amdjax.codegen.gpu.isa import by_words
from amdjax.codegen.gpu.layout import Layout
from amdjax.codegen.gpu.memory import Spread
from amdjax.codegen.gpu.reduce import GpuReduce, identity
from amdjax.codegen.gpu.tiles import Held, Rep
from amdjax.codegen.llvm import I32, Value
from amdjax.tile import ops

__all__ = ["GpuScan"]


class GpuScan(GpuReduce):
    @lowers(ops.Cumulative)
    def lower_cumulative(self, op: ops.Cumulative) -> list[Rep]:
        (v,), name, reverse = op.operands, op.combine, op.reverse
        if len(v.shape) == 2:
            return [self._scanned_rows(name, v, reverse)]
        x = self.in_registers(v)
        return [Held(self.scanned(name, v.dtype, x, v.shape[0], reverse))]

    def scanned(self, name: str, dtype: str, x: Value, n: int, reverse: bool) -> Value:
        """Inclusive scan of `n` elements, each with those before it."""
        layout, forward = self.layout((n,)), -1 if reverse else 1
        neutral = llvm.const(x.type.with_lanes(0), identity(name, dtype, x.type.bits))
        x = self.filled(x, layout, neutral)
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
                self.store_one(
                    self.to_memory(total, dtype, memory), f.gep(first, i * waves, memory)
                )
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

    def _scanned_rows(self, name: str, v: tile.Value, reverse: bool) -> Held:
        """Each row by a thread; a word behind each row puts them into different banks."""
        rows, columns = v.shape
        pitch = columns + max(4 // (self.memory_type(v.dtype).bits // 8), 1)
        buffer = self.put(v.dtype, v.shape, self.in_registers(v), (pitch, 1), rows * pitch)
        self.access(buffer, "write")
        target, dtype = self.layout((rows,)), v.dtype
        first = columns - 1 if reverse else 0

        def column(i: Value) -> Value:
            return self.f.sub(llvm.const(I32, first), i) if reverse else i

        def body(i: Value, carried: list[Value]) -> list[Value]:
            with self.scope():
                where = Spread(buffer, column(i), (pitch,))
                one = self.load_tile(where, dtype, target)
                total = self.elementwise(name, dtype, carried[0], one)
                self.store_tile(where, dtype, target, total)
            return [total]

        def scan_rows() -> list[Value]:
            start = self.load_tile(Spread(buffer, first, (pitch,)), dtype, target)
            self.f.loop(llvm.const(I32, 1), llvm.const(I32, columns), 1, [start], body)
            return []

        if target.period < self.workgroup:  # threads that repeat rows would read what others wrote
            self.when(self.threads.compare("ult", self.threads.number, target.period), scan_rows)
        else:
            scan_rows()
        return self.take(buffer, v.shape, 0, (pitch, 1))
