"""Loads, stores, atomics. Offsets and strides count elements of the dtype a buffer is seen as."""

from __future__ import annotations

from amdjax.tile.attributes import Attribute, Filling, Flag, Found, Memory, Strides, Word
from amdjax.tile.ir import Buffer, Op, Operand, Trait, Value, expect, expect_scalars
from amdjax.tile.types import BOOL, INTEGERS, TileType, itemsize


def _mask(op: Op) -> Value | None:
    """The mask of an access, which is its last operand."""
    return op.operands[-1] if op.attrs.get("masked") else None


def _check_role(op: Op, buffer: Buffer, *roles: str) -> None:
    expect(buffer.role in roles, "{} of {}, which is {}", op.name, buffer.name, buffer.role)


def _check_mask(mask: Value | None, shape: tuple[int, ...]) -> None:
    if mask is not None:
        fits = mask.type == TileType("bool", shape)
        expect(fits, "a mask of {} for elements of shape {}", mask.type, shape)


def _check_width(op: Op, buffer: Buffer, dtype: str) -> None:
    same = itemsize(buffer.dtype) == itemsize(dtype)
    expect(same, "{} of {} in memory of {}", op.name, dtype, buffer.dtype)


class Strided(Op):
    """An access of a tile at `offset + Σ i_axis * strides[axis]`.

    What `annotate_accesses` finds out of it: neighbors in runs of `mask_constancy` have one mask.
    The mask is true up to a position (`mask_form=prefix`), between two (`interval`), or anywhere.
    `divisibility` divides the offset.
    """

    __slots__ = ()
    buffer = Memory()
    mask_constancy = Found(1)
    mask_form = Found("")
    divisibility = Found(1)
    offset = Operand(0)
    strides = Strides()
    masked = Flag()
    mask = property(_mask)

    @property
    def dynamic_strides(self) -> tuple[Value, ...]:
        """What stands for the strides that are not static, in order."""
        first = 2 if self.traits & Trait.WRITES else 1
        return self.operands[first : first + self.strides.count(None)]

    def _check(self, type: TileType) -> None:
        expect_scalars(self, [self.offset, *self.dynamic_strides])
        expect(len(self.strides) == len(type.shape), "{} needs {} strides", type, len(type.shape))
        _check_mask(self.mask, type.shape)
        _check_width(self, self.buffer, type.dtype)
        first = 2 if self.traits & Trait.WRITES else 1
        count = first + len(self.dynamic_strides) + self.masked
        expect(len(self.operands) == count, "{} takes {} operands", self.name, count)


class Load(Strided, name="load", traits=Trait.READS):
    """Elements of memory; where a mask is false, `other`.

    `eager` says that the first elements of the buffer, as many as move at once, may be read where
    the mask is false.
    """

    __slots__ = ()
    other = Filling()
    eager = Flag()

    def result_types(self) -> None:
        return None

    def check(self) -> None:
        _check_role(self, self.buffer, "in", "inout", "out", "scratch")
        self._check(self.result.type)


class Store(Strided, name="store", traits=Trait.WRITES):
    """Write a tile; `streaming` writes past the caches, from a cache line on."""

    __slots__ = ()
    value = Operand(1)
    streaming = Flag()

    def check(self) -> None:
        _check_role(self, self.buffer, "out", "inout", "scratch")
        self._check(self.value.type)


class Scattered(Op):
    """An access of a tile at an offset for each element.

    What `annotate_accesses` finds out of it: masks as of `Strided`; neighbors in runs of
    `contiguity` follow each other in memory, from multiples of `divisibility` on.
    """

    __slots__ = ()
    buffer = Memory()
    mask_constancy = Found(1)
    mask_form = Found("")
    contiguity = Found(1)
    divisibility = Found(1)
    offsets = Operand(0)
    masked = Flag()
    mask = property(_mask)

    def _check_offsets(self, shape: tuple[int, ...]) -> None:
        type = self.offsets.type
        fits = type.shape == shape and type.dtype in INTEGERS
        expect(fits, "offsets of {} for elements of shape {}", type, shape)
        _check_mask(self.mask, shape)


class LoadAt(Scattered, name="load_at", traits=Trait.READS):
    """Gather: each element from its own offset; where a mask is false, `other`."""

    __slots__ = ()
    other = Filling()

    def result_types(self) -> tuple[TileType, ...]:
        return (TileType(self.buffer.dtype, self.offsets.shape),)

    def check(self) -> None:
        _check_role(self, self.buffer, "in", "inout", "out", "scratch")
        self._check_offsets(self.offsets.shape)


class LoadRows(Op, name="load_rows", traits=Trait.READS):
    """Gather of short rows: result `j` has the element `j` behind each offset.

    Offsets may be counted from a place, a scalar beside them. CPUs have it, for which
    `join_gathers` and `narrow_offsets` write it.
    """

    __slots__ = ()
    buffer = Memory()
    offsets = Operand(0)
    count = Attribute[int]()

    @property
    def start(self) -> Value | None:
        """The place."""
        return self.operands[1] if len(self.operands) > 1 else None

    def result_types(self) -> tuple[TileType, ...]:
        return (TileType(self.buffer.dtype, self.offsets.shape),) * self.count

    def check(self) -> None:
        _check_role(self, self.buffer, "in", "inout", "out", "scratch")
        fits = len(self.offsets.shape) == 1 and self.offsets.dtype in INTEGERS
        expect(fits and self.count > 0, "load_rows takes a row of offsets")
        expect_scalars(self, self.operands[1:])


class StoreAt(Scattered, name="store_at", traits=Trait.WRITES):
    """Scatter: where offsets coincide the last element of the tile wins.

    `unique` says that none do.
    """

    __slots__ = ()
    value = Operand(1)
    unique = Flag()

    def check(self) -> None:
        _check_role(self, self.buffer, "out", "inout", "scratch")
        self._check_offsets(self.value.shape)
        _check_width(self, self.buffer, self.value.dtype)


class Atomic(Op, name="atomic", traits=Trait.READS | Trait.WRITES):
    """Atomically combine a scalar, or each element of a tile, into memory.

    The result is what was there, as far as the mask is true.
    """

    __slots__ = ()
    buffer = Memory()
    offsets, value = Operand(0), Operand(1)
    combine = Word()
    masked = Flag()
    mask = property(_mask)

    def result_types(self) -> tuple[TileType, ...]:
        return (self.value.type,)

    def check(self) -> None:
        _check_role(self, self.buffer, "out", "inout", "scratch")
        expect(self.offsets.shape == self.value.shape, "atomic takes an offset for each element")
        _check_mask(self.mask, self.value.shape)
        _check_width(self, self.buffer, self.value.dtype)


class Arrive(Op, name="arrive", traits=Trait.READS | Trait.WRITES):
    """Whether this program is the last of `programs` to get here, by a counter that they share.

    What the others stored before they arrived is visible to the last one behind this. No program
    waits. The counter, a `u32`, is zero before the first and behind the last.
    """

    __slots__ = ()
    buffer = Memory()
    offset = Operand(0)
    programs = Attribute[int]()

    def result_types(self) -> tuple[TileType, ...]:
        return (BOOL,)

    def check(self) -> None:
        _check_role(self, self.buffer, "inout")
        expect_scalars(self, self.operands)
        expect(self.buffer.dtype == "u32" and self.programs > 0, "arrive counts in u32")


class GridBarrier(Op, name="grid_barrier", traits=Trait.READS | Trait.WRITES):
    """All programs wait for each other, which takes a grid that is resident as a whole.

    What any of them stored before is visible to all behind this. The barriers of a launch share a
    counter, a `u32` that is zero before the first and behind the last; operands are where it is,
    the number of this barrier, from 0, how many programs and how many barriers there are.
    """

    __slots__ = ()
    buffer = Memory()
    offset, number, programs, times = Operand(0), Operand(1), Operand(2), Operand(3)

    def check(self) -> None:
        _check_role(self, self.buffer, "inout")
        expect_scalars(self, self.operands)
        expect(len(self.operands) == 4, "grid_barrier takes 4 operands")
        expect(self.buffer.dtype == "u32", "grid_barrier counts in u32")


class ProgramBarrier(Op, name="program_barrier", traits=Trait.READS | Trait.WRITES):
    """The threads of a program wait for each other, by whatever names they know what they stored.

    Accesses of one buffer need none: those that have to wait do. Here two may be of one memory.
    """

    __slots__ = ()

    def check(self) -> None:
        expect(not self.operands, "program_barrier takes nothing")


class Prefetch(Op, name="prefetch"):
    """Ask for the cache line of an element, to be in the cache of `level` when it is needed."""

    __slots__ = ()
    buffer = Memory()
    offset = Operand(0)
    write = Flag()
    level = Attribute[int]()

    def check(self) -> None:
        expect_scalars(self, self.operands)
