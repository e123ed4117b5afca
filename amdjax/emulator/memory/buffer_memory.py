"""Handlers of buffer accesses: memory named by a resource of four scalar registers.

Private memory of machines without scratch instructions is such a buffer: its resource is
recognized by `state.SCRATCH_RESOURCE`. Other buffers are raw, that is without a stride: an access
beyond their size is no fault, it reads zeros or writes nothing.
"""

from __future__ import annotations

from amdjax.codegen.llvm import I32, I64, PTR, Value, const
from amdjax.emulator import state
from amdjax.emulator.builder import Lanes
from amdjax.emulator.isa.access import Access
from amdjax.emulator.memory import vector_memory
from amdjax.emulator.memory.vector_memory import WaveAccess

# Slots: the data and the offset of each lane are where other accesses have data and address.
RESOURCE, SCALAR_OFFSET = state.SRC0 + 2, state.TARGET


def emit(h: Lanes, access: Access) -> None:
    """Write the handler of a buffer load, store or atomic."""
    vector_memory.emit(h, access, _BufferAccess)


class _BufferAccess(WaveAccess):
    """One access of all active lanes; addresses are offsets within the buffer."""

    def __init__(self, h: Lanes, access: Access, which: int) -> None:
        super().__init__(h, access, which)
        f = h.f
        if access.kind != "atomic":  # elements of resources of bytes may lie anywhere
            self.aligned = 1
        resource = h.at(h.wave, h.slot(RESOURCE))
        word = lambda index: f.load(I32, h.at(resource, 4 * index), 4)
        high = f.and_(word(1), const(I32, 0xFFFF))
        self.private = f.icmp("eq", high, const(I32, state.SCRATCH_RESOURCE))
        self.base = f.or_(
            f.cast("zext", word(0), "i64"), f.shl(f.cast("zext", high, "i64"), const(I64, 32))
        )
        self.records = f.cast("zext", word(2), "i64")
        self.extra = const(I64, 0)
        if h.variant.flag("soffset"):
            offset = f.load(I32, h.at(h.wave, h.slot(SCALAR_OFFSET)), 4)
            self.extra = f.cast("zext", offset, "i64")

    def _counted(self) -> tuple[Value, Value]:
        """What lies beyond the buffer's size does not move, and scratch is not counted."""
        h, f = self.h, self.h.f
        end = f.add(self.addresses, h.splat(const(I64, self.access.size)))
        inside = h.bits_of(f.icmp("ule", end, h.splat(self.records)))
        addresses = f.alloca(self.addresses.type)
        start = h.splat(f.add(self.base, self.extra))
        f.store(f.add(self.addresses, start), addresses, 64)
        lanes = f.and_(inside, h.exec_bits())
        return addresses, f.select(self.private, const(lanes.type, 0), lanes)

    def run(self) -> None:
        vector_memory.for_active_lanes(self.h, self._one_lane)

    def _one_lane(self, lane: Value) -> None:
        h, f = self.h, self.h.f
        offset = f.load(I64, f.gep(self.buffer, lane, I64), 8)
        nothing = Value(PTR, "null")

        def private() -> list[Value]:
            # A scalar offset counts the bytes of all lanes.
            mine = f.add(offset, f.udiv(self.extra, const(I64, h.lanes)))
            return [self._scratch(mine, lane)]

        def raw() -> list[Value]:
            end = f.add(offset, const(I64, self.access.size))
            inside = f.icmp("ule", end, self.records)
            address = f.add(f.add(self.base, self.extra), offset)
            return f.if_(inside, lambda: [self._global(address, lane)], lambda: [nothing])

        def move() -> list[Value]:
            self._move(pointer, lane)
            return []

        def skip() -> list[Value]:
            if self.access.kind == "load":
                zeros = f.alloca(I32, 4)
                for i in range(4):
                    f.store(const(I32, 0), f.gep(zeros, const(I64, i), I32), 4)
                self._move(zeros, lane)
            return []

        (pointer,) = f.if_(self.private, private, raw)
        f.if_(f.icmp("ne", pointer, nothing), move, skip)
