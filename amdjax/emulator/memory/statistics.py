"""Native code that enters memory accesses of a wave in the statistics of their instruction."""

from __future__ import annotations

from collections.abc import Callable

from amdjax.codegen.llvm import I8, I32, I64, PTR, Function, Module, Type, Value, const
from amdjax.emulator import state
from amdjax.emulator.memory.vector_memory import NOTE
from amdjax.emulator.trace import push_detail

_LANES = 64


class _Distinct:
    """A set of numbers on the stack."""

    def __init__(self, f: Function, capacity: int) -> None:
        self.f, self.items, self.size = f, f.alloca(I64, capacity), f.alloca(I64)
        self.clear()

    def clear(self) -> None:
        self.f.store(const(I64, 0), self.size, 8)

    def count(self) -> Value:
        return self.f.load(I64, self.size, 8)

    def add(self, item: Value, when_new: Callable[[], None] = lambda: None) -> None:
        f, size = self.f, self.count()
        at = lambda i: f.gep(self.items, i, I64)
        new = lambda i: f.icmp("ne", f.load(I64, at(i), 8), item)
        # The item behind the last ends the search.
        f.store(item, at(size), 8)
        (index,) = f.while_loop([const(I64, 0)], lambda c: new(c[0]),
                                lambda c: [f.add(c[0], const(I64, 1))])  # fmt: skip

        def enter() -> list[Value]:
            f.store(f.add(size, const(I64, 1)), self.size, 8)
            when_new()
            return []

        f.if_(f.icmp("eq", index, size), enter)


class _Note:
    """Writes `void note(context, record, addresses, mask, size, is_lds)`."""

    def __init__(self, module: Module) -> None:
        arguments = [("context", PTR), ("record", PTR), ("addresses", PTR), ("mask", I64),
                     ("size", I32), ("is_lds", I32)]  # fmt: skip
        self.f = f = module.function(NOTE, arguments, Type("void"), attributes="nounwind")
        self.context, self.record, self.addresses, self.mask, size, self.is_lds = f.args
        self.size = f.cast("zext", size, "i64")

    def _word(self, offset: int) -> Value:
        return self.f.load(I64, self.f.gep(self.context, offset, I8), 8)

    def _row(self) -> Value:
        f = self.f
        place = f.sub(f.op(f"ptrtoint {self.record} to i64", I64), self._word(state.RECORDS))
        index = f.udiv(place, const(I64, state.RECORD))
        base = f.load(PTR, f.gep(self.context, state.STATISTICS, I8), 8)
        return f.gep(base, f.mul(index, const(I64, state.STATISTICS_WORDS)), I64)

    def _add(self, word: int, amount: Value) -> None:
        f, place = self.f, self.f.gep(self.row, word, I64)
        f.store(f.add(f.load(I64, place, 8), amount), place, 8)

    def _if_active(self, lane: Value, body: Callable[[Value], None]) -> None:
        f = self.f
        bit = f.cast("trunc", f.lshr(self.mask, lane), "i1")

        def inside() -> list[Value]:
            body(f.load(I64, f.gep(self.addresses, lane, I64), 8))
            return []

        f.if_(bit, inside)

    def _lines(self, shift: int, word: int, ideal: int, active: Value) -> None:
        """Distinct lines of 2^shift bytes, and how few could do."""
        f = self.f
        found = _Distinct(f, 2 * _LANES + 1)
        by = const(I64, shift)

        def touch(address: Value) -> None:
            last = f.add(address, f.sub(self.size, const(I64, 1)))
            for byte in (address, last):
                found.add(f.lshr(byte, by))

        def lane(index: Value, _: list[Value]) -> list[Value]:
            self._if_active(index, touch)
            return []

        f.loop(const(I64, 0), const(I64, _LANES), 1, [], lane)
        touched = found.count()
        full = self._divide_up(f.mul(active, self.size), const(I64, 1 << shift))
        # Lanes that read one place need less than all their bytes.
        self._add(word, touched)
        if word == state.LINES_64:
            self._trace_lines(found)
        self._add(ideal, f.select(f.icmp("ult", full, touched), full, touched))

    def _trace_lines(self, found: _Distinct) -> None:
        f = self.f

        def line(index: Value, _: list[Value]) -> list[Value]:
            push_detail(f, self.context, f.load(I64, f.gep(found.items, index, I64), 8))
            return []

        f.loop(const(I64, 0), found.count(), 1, [], line)

    def _divide_up(self, x: Value, by: Value) -> Value:
        f = self.f
        return f.udiv(f.add(x, f.sub(by, const(I64, 1))), by)

    def _banks(self) -> None:
        """Cycles that LDS takes.

        It serves one dword of each bank at a time, to as many lanes as together ask for that many.
        """
        f, banks = self.f, self._word(state.BANKS)
        words = self._divide_up(self.size, const(I64, 4))
        together = f.udiv(banks, words)
        seen, counts, most = _Distinct(f, 65), f.alloca(I64, 64), f.alloca(I64)

        def touch(address: Value) -> None:
            first = f.lshr(address, const(I64, 2))

            def word(i: Value, _: list[Value]) -> list[Value]:
                item = f.add(first, i)

                def conflict() -> None:
                    place = f.gep(counts, f.urem(item, banks), I64)
                    count = f.add(f.load(I64, place, 8), const(I64, 1))
                    f.store(count, place, 8)
                    so_far = f.load(I64, most, 8)
                    larger = f.icmp("ugt", count, so_far)
                    f.store(f.select(larger, count, so_far), most, 8)

                seen.add(item, conflict)
                return []

            f.loop(const(I64, 0), words, 1, [], word)

        def lane(index: Value, _: list[Value]) -> list[Value]:
            self._if_active(index, touch)
            return []

        def group(first: Value, _: list[Value]) -> list[Value]:
            seen.clear()
            f.store(const(Type("i64", 64), 0), counts, 64)
            f.store(const(I64, 0), most, 8)
            f.loop(first, f.add(first, together), 1, [], lane)
            cycles = f.load(I64, most, 8)
            push_detail(f, self.context, cycles)
            self._add(state.BANK_CYCLES, cycles)
            self._add(state.BANK_IDEAL, f.cast("zext", f.icmp("ne", cycles, const(I64, 0)), "i64"))
            return []

        f.loop(const(I64, 0), const(I64, _LANES), together, [], group)

    def write(self) -> None:
        f = self.f
        self.row = self._row()
        active = f.unary_intrinsic("ctpop", self.mask)
        self._add(state.ACCESSES, f.cast("zext", f.icmp("ne", active, const(I64, 0)), "i64"))
        self._add(state.ACTIVE, active)

        def lds() -> list[Value]:
            self._banks()
            return []

        def memory() -> list[Value]:
            self._lines(6, state.LINES_64, state.IDEAL_64, active)
            self._lines(7, state.LINES_128, state.IDEAL_128, active)
            return []

        f.if_(f.icmp("ne", self.is_lds, const(I32, 0)), lds, memory)
        f.ret()


def write_note(module: Module) -> Function:
    """Add the function to a module."""
    note = _Note(module)
    note.write()
    return note.f
