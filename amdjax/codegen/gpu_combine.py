"""Combining the elements of a tile: reductions and running combinations.

Within a thread, then between the lanes of a wave by permutes, then between waves through LDS.
"""

from __future__ import annotations

from collections.abc import Sequence

from amdjax.codegen import llvm, tile
from amdjax.codegen.gpu_isa import by_words
from amdjax.codegen.gpu_layout import Layout
from amdjax.codegen.gpu_memory import GpuMemory
from amdjax.codegen.gpu_tiles import Held, Rep
from amdjax.codegen.llvm import Value
from amdjax.codegen.pointwise import SIGNED

__all__ = ["GpuCombine", "identity"]


def identity(combine: str, dtype: str, bits: int) -> float | int:
    """The number that changes nothing."""
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


class GpuCombine(GpuMemory):
    def _tree(self, name: str, dtype: str, xs: Sequence[Value]) -> Value:
        """Neighbours first; of one order whatever the layout."""
        while len(xs) > 1:
            pairs = [
                self.elementwise(name, dtype, a, b) for a, b in zip(xs[::2], xs[1::2], strict=False)
            ]
            xs = [*pairs, *xs[len(xs) & ~1 :]]
        return xs[0]

    def _filled(self, x: Held, value: float | int) -> Value:
        """Registers; those that hold no element get a value."""
        guards = self.guards(x.layout)
        if all(g is None for g in guards):
            return x.value
        alive = self.joined([g or llvm.const(llvm.I1, True) for g in guards])
        return self.f.select(alive, x.value, llvm.const(x.value.type, value))

    def op_reduce(self, op: tile.Op) -> list[Rep]:
        (operand,) = op.operands
        name, axis, dtype = op.attrs["combine"], op.attrs["axis"], operand.dtype
        x = self.in_registers(operand)
        kept = [a for a in range(len(operand.shape)) if a != axis]
        bits = [x.layout.thread_bits(a) for a in range(len(operand.shape))]
        if any(b is None for b in bits):
            return [self._reduce_in_lds(name, dtype, x, axis)]
        neutral = identity(name, dtype, x.value.type.bits)
        value = self._filled(x, neutral)
        groups: dict[tuple[object, ...], list[Value]] = {}
        for r, place in enumerate(self.places(x.layout)):
            key = tuple(place[a] for a in kept)
            groups.setdefault(key, []).append(self.register(value, r))
        totals = [self._tree(name, dtype, group) for group in groups.values()]
        reduced = bits[axis] or 0
        totals = [self._over_lanes(name, dtype, t, reduced) for t in totals]
        if not kept:
            return [self._over_waves(name, dtype, totals[0], reduced // self.isa.wave)]
        return [self._dealt(name, dtype, x.layout, axis, list(groups), totals)]

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

    def _over_waves(self, name: str, dtype: str, x: Value, waves: int) -> Value:
        """The same in all lanes of each wave, combined over waves that differ in bits `waves`."""
        if not waves:
            return self.uniform(x)
        count = self.workgroup // self.isa.wave
        parts = self.temporary(dtype, count)
        self.access(parts, "write")
        memory = self.memory_type(dtype)
        lane = self.threads.apply("and", self.threads.number, self.isa.wave - 1)
        wave = self.threads.apply("lshr", self.threads.number, self.isa.wave.bit_length() - 1)
        stored = self._to_memory(x, dtype, memory)

        def write() -> list[Value]:
            self.f.store(stored, self._pointer(parts, wave), memory.bits // 8)
            return []

        self.when(self.threads.compare("eq", lane, 0), write)
        self.access(parts, "read")
        every = self.f.load(memory.with_lanes(count), self.addresses[parts.name], 16)
        loaded = self._from_memory(every, dtype)
        return self._tree(name, dtype, [self.register(loaded, i) for i in range(waves + 1)])

    def _dealt(
        self,
        name: str,
        dtype: str,
        source: Layout,
        axis: int,
        kept: Sequence[tuple[object, ...]],
        totals: Sequence[Value],
    ) -> Held:
        """Totals of rows (or columns) in the layout of a tile of them."""
        raise NotImplementedError

    def _reduce_in_lds(self, name: str, dtype: str, x: Held, axis: int) -> Held:
        """For layouts without structure: each thread reads the elements of its results."""
        raise NotImplementedError
