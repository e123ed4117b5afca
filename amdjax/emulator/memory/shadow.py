"""What is known of memory besides its contents: which bytes were written, and by which wave.

Each byte of an allocation that starts without contents has one of shadow: 0, 1 where it was
written, or the tag of a wave that wrote it since its last barrier (`write_log`).

Each byte of LDS has three. `written` is 0 or 1. Since the last barrier, `writers` is 0, the wave's
number (from 1), or with ATOMIC set where atomics of that wave or (SEVERAL) of several did it;
`readers` is 0, a wave's number or MANY. A workgroup of one wave has no races and no such shadow.
"""

from __future__ import annotations

from amdjax.codegen.llvm import I1, I8, PTR, Type, Value, const
from amdjax.emulator import state
from amdjax.emulator.builder import Lanes
from amdjax.emulator.memory.write_log import LOG

ATOMIC, SEVERAL, MANY = 0x40, 0x7E, 0x7F
WAVES = 32  # of a workgroup at most


def is_written(h: Lanes, shadow: Value, size: int) -> Value:
    """Whether all of `size` bytes were written."""
    return _all(h, h.f.icmp("ne", *_with_zero(h, shadow, size)))


def mark_written(h: Lanes, shadow: Value, size: int) -> None:
    h.f.store(const(Type("i8", size), 1), shadow, 1)


def any_written(h: Lanes, shadow: Value, size: int) -> Value:
    """Whether each aligned dword has a byte that was written."""
    f = h.f
    words = f.load(Type("i32", size // 4), shadow, 1)
    return _all(h, f.icmp("ne", words, const(words.type, 0)))


def _with_zero(h: Lanes, shadow: Value, size: int) -> tuple[Value, Value]:
    x = h.f.load(Type("i8", size), shadow, 1)
    return x, const(x.type, 0)


def _all(h: Lanes, mask: Value) -> Value:
    if mask.type.lanes == 1:
        return h.f.extract(mask, 0)
    bits = h.f.bitcast(mask, Type(f"i{mask.type.lanes}"))
    return h.f.icmp("eq", bits, const(bits.type, -1))


class GlobalShadow:
    """Checks one access to `size` bytes of global memory against the shadow of its allocation.

    `written` says whether what is read was written, `exclusive` whether no other wave of the
    workgroup stored there since the last barrier; `mark` enters a store. Tags of other workers say
    nothing: workgroups meet in atomics, in whatever order.
    """

    def __init__(self, h: Lanes, place: Value, size: int, kind: str, whole_dwords: bool) -> None:
        f = self.f = h.f
        self.h, self.place, self.size, self.kind = h, place, size, kind
        type = Type("i8", size)
        tag = f.cast("trunc", h.header(state.TAG, Type("i32")), "i8")
        self.tag, self.bytes = f.splat(tag, size), f.load(type, place, 1)
        zero = const(type, 0)
        others = f.icmp("ugt", f.xor(self.bytes, self.tag), const(type, WAVES - 1))
        mine = f.or_(f.icmp("eq", self.bytes, self.tag), others)
        self.fine = f.or_(mine, f.icmp("eq", self.bytes, zero))
        self.exclusive = _all(h, self.fine)
        self.written = const(I1, True)
        if kind != "store":
            check = any_written if whole_dwords else is_written
            any_will_do = f.icmp(
                "ne", h.header(state.READS_ANY, Type("i32")), const(Type("i32"), 0)
            )
            self.written = f.or_(check(h, place, size), any_will_do)

    def mark(self) -> None:
        """Enter a store."""
        if self.kind != "store":
            return
        h, f = self.h, self.f
        f.store(self.tag, self.place, 1)
        tag = h.header(state.TAG, Type("i32"))

        def log() -> list[Value]:
            context = h.header(state.CONTEXT, PTR)
            f.call(LOG, Type("void"), context, self.place, const(Type("i64"), self.size))
            return []

        f.if_(f.icmp("ne", tag, const(tag.type, 1)), log)

    def blame(self) -> None:
        """Store who is in the way, for the report."""
        h, f, none = self.h, self.f, const(self.bytes.type, 0)
        wave = f.and_(self.bytes, const(none.type, WAVES - 1))
        found = f.reduce("umax", f.select(self.fine, none, f.add(wave, const(none.type, 1))))
        f.store(f.cast("zext", found, "i32"), h.at(h.wave, state.OTHER_WAVE))


class Races:
    """Checks one access of a wave to `size` bytes of LDS against those of other waves.

    `ok` says whether no other wave is in the way; `mark` enters the access.
    """

    def __init__(self, h: Lanes, offset: Value, size: int, kind: str) -> None:
        f = self.f = h.f
        self.kind, self.size, type = kind, size, Type("i8", size)
        base = h.header(state.LDS_RACES, PTR)
        self.writers_at = h.at(base, offset)
        self.readers_at = h.at(self.writers_at, h.header(state.LDS_STRIDE, Type("i64")))
        me = f.splat(f.cast("trunc", h.header(state.WAVE, Type("i32")), "i8"), size)
        self.me = me
        zero = const(type, 0)
        self.writers, self.readers = (
            f.load(type, place, 1) for place in (self.writers_at, self.readers_at)
        )
        wave = f.and_(self.writers, const(type, ATOMIC - 1))
        self.fresh = f.icmp("eq", self.writers, zero)
        fine = f.or_(self.fresh, f.icmp("eq", wave, me))
        by_atomics = f.icmp("uge", self.writers, const(type, ATOMIC))
        # A loop around compare-and-exchange begins with an ordinary read.
        reads = f.icmp("ne", h.header(state.READS_ATOMICS, Type("i32")), const(Type("i32"), 0))
        loops = f.splat(reads, size)
        self.unread = f.or_(f.icmp("eq", self.readers, zero), f.icmp("eq", self.readers, me))
        if kind == "atomic":
            fine = f.or_(fine, by_atomics)
            self.unread = f.or_(self.unread, loops)
        elif kind == "load":
            fine = f.or_(fine, f.and_(by_atomics, loops))
        self.writers_fine = fine
        self.ok = _all(h, fine if kind == "load" else f.and_(fine, self.unread))

    def mark(self) -> None:
        """Enter the access."""
        f, type = self.f, self.me.type
        if self.kind == "load":
            f.store(f.select(self.unread, self.me, const(type, MANY)), self.readers_at, 1)
        elif self.kind == "store":
            f.store(self.me, self.writers_at, 1)
        else:
            mine = f.or_(self.me, const(type, ATOMIC))
            again = f.or_(self.fresh, f.icmp("eq", self.writers, mine))
            kept = f.icmp("eq", self.writers, self.me)
            others = f.select(kept, self.me, const(type, SEVERAL))
            f.store(f.select(again, mine, others), self.writers_at, 1)

    def blame(self, h: Lanes) -> None:
        """Store who is in the way, for the report."""
        f, none = self.f, const(self.me.type, 0)
        writer = f.select(self.writers_fine, none, self.writers)
        reader = f.select(self.unread, none, self.readers) if self.kind != "load" else none
        found = f.reduce("umax", f.select(f.icmp("ne", writer, none), writer, reader))
        assert found.type == I8
        f.store(f.cast("zext", found, "i32"), h.at(h.wave, state.OTHER_WAVE))
