"""Operations that say where elements are: positions, broadcasts, exchanges of places."""

from __future__ import annotations

import math

from amdjax.tile.attributes import Attribute, Memory
from amdjax.tile.ir import Op, Operand, Trait, expect
from amdjax.tile.types import INDEX, INTEGERS, TileType


class ProgramId(Op, name="program_id", traits=Trait.PURE):
    """The number of the program in the grid."""

    __slots__ = ()

    def result_types(self) -> tuple[TileType, ...]:
        return (INDEX,)


class Size(Op, name="size", traits=Trait.PURE):
    """The value of a runtime integer parameter.

    Attributes:
      divisor: an integer that divides it, whatever it is.
    """

    __slots__ = ()
    buffer = Memory()
    divisor = Attribute[int](1)

    def result_types(self) -> tuple[TileType, ...]:
        return (INDEX,)

    def check(self) -> None:
        expect(
            self.buffer.role == "size", "{} is no size but {}", self.buffer.name, self.buffer.role
        )


class Iota(Op, name="iota", traits=Trait.PURE):
    """0, 1, 2, … along a tile of rank 1."""

    __slots__ = ()

    def result_types(self) -> None:
        return None

    def check(self) -> None:
        type = self.result.type
        counts = type.dtype in INTEGERS or type.dtype.startswith(("f", "bf"))
        expect(len(type.shape) == 1 and counts, "iota makes numbers in a row, no {}", type)


class Broadcast(Op, name="broadcast", traits=Trait.PURE):
    """Scalars to any shape; axes of length one, or missing in front, to the given length."""

    __slots__ = ()
    x = Operand(0)

    def result_types(self) -> None:
        return None

    def check(self) -> None:
        x, to = self.x.type, self.result.type
        leading = len(to.shape) - len(x.shape)
        fits = leading >= 0 and all(
            a in (1, b) for a, b in zip(x.shape, to.shape[leading:], strict=True)
        )
        expect(fits and x.dtype == to.dtype, "{} cannot be broadcast to {}", x, to)


class Expand(Op, name="expand", traits=Trait.PURE):
    """A tile of rank 1 with one more axis, of length one."""

    __slots__ = ()
    x = Operand(0)
    axis = Attribute[int]()

    def result_types(self) -> tuple[TileType, ...]:
        shape = (1, *self.x.shape) if self.axis == 0 else (*self.x.shape, 1)
        return (TileType(self.x.dtype, shape),)

    def check(self) -> None:
        expect(len(self.x.shape) == 1 and self.axis in (0, 1), "{} has no rank 1", self.x.type)


class Reshape(Op, name="reshape", traits=Trait.PURE):
    """The same elements in row-major order as a tile of another shape, of rank 1 or 2."""

    __slots__ = ()
    x = Operand(0)

    def result_types(self) -> None:
        return None

    def check(self) -> None:
        x, to = self.x.type, self.result.type
        same = math.prod(x.shape) == math.prod(to.shape) and x.dtype == to.dtype
        expect(same and 1 <= len(to.shape) <= 2, "{} cannot be reshaped to {}", x, to)


class Transpose(Op, name="transpose", traits=Trait.PURE):
    __slots__ = ()
    x = Operand(0)

    def result_types(self) -> tuple[TileType, ...]:
        return (TileType(self.x.dtype, self.x.shape[::-1]),)

    def check(self) -> None:
        expect(len(self.x.shape) == 2, "{} has no rank 2", self.x.type)


class Interleave(Op, name="interleave", traits=Trait.PURE):
    """Two tiles of one type in turns along an axis: element `2 i` is the first's `i`."""

    __slots__ = ()
    x, other = Operand(0), Operand(1)
    axis = Attribute[int]()

    def result_types(self) -> tuple[TileType, ...]:
        shape = tuple(n * (2 if a == self.axis else 1) for a, n in enumerate(self.x.shape))
        return (TileType(self.x.dtype, shape),)

    def check(self) -> None:
        fits = self.x.type == self.other.type and 0 <= self.axis < len(self.x.shape)
        expect(
            fits, "{} and {} cannot take turns along {}", self.x.type, self.other.type, self.axis
        )


class Extract(Op, name="extract", traits=Trait.PURE):
    """One element of a tile of rank 1, or one row of a tile of rank 2."""

    __slots__ = ()
    x = Operand(0)
    lane = Attribute[int]()

    def result_types(self) -> tuple[TileType, ...]:
        return (TileType(self.x.dtype, self.x.shape[1:]),)

    def check(self) -> None:
        inside = bool(self.x.shape) and 0 <= self.lane < self.x.shape[0]
        expect(inside, "{} has no lane {}", self.x.type, self.lane)


class Shuffle(Op, name="shuffle", traits=Trait.PURE):
    """A tile of rank 1 whose lane `i` is lane `lanes[i]` of its operands one behind the other."""

    __slots__ = ()
    x = Operand(0)
    lanes = Attribute[tuple[int, ...]]()

    def result_types(self) -> tuple[TileType, ...]:
        return (TileType(self.x.dtype, (len(self.lanes),)),)

    def check(self) -> None:
        types = {v.type for v in self.operands}
        expect(
            len(self.operands) in (1, 2) and len(types) == 1 and len(self.x.shape) == 1,
            "shuffle takes one or two tiles of one type and rank 1",
        )
        lanes = len(self.operands) * self.x.shape[0]
        expect(all(-1 <= i < lanes for i in self.lanes), "lanes of shuffle are below {}", lanes)


class Lookup(Op, name="lookup", traits=Trait.PURE):
    """The lanes of a tile of rank 1 that the low bits of indices name; it has a power of two."""

    __slots__ = ()
    table, index = Operand(0), Operand(1)

    def result_types(self) -> tuple[TileType, ...]:
        return (TileType(self.table.dtype, self.index.shape),)

    def check(self) -> None:
        table, index = self.table.type, self.index.type
        lanes = table.shape[0] if len(table.shape) == 1 else 0
        fits = lanes > 0 and lanes & (lanes - 1) == 0 and len(index.shape) == 1
        expect(fits and index.dtype == "i32", "{} has no lanes by {}", table, index)


class Compress(Op, name="compress", traits=Trait.PURE):
    """Lanes of a tile of rank 1 where a mask is true, moved to the front; others are undefined."""

    __slots__ = ()
    x, mask = Operand(0), Operand(1)

    def result_types(self) -> tuple[TileType, ...]:
        return (self.x.type,)

    def check(self) -> None:
        rank = len(self.x.shape)
        fits = rank == 1 and self.mask.type == TileType("bool", self.x.shape)
        expect(fits, "{} cannot be compressed by {}", self.x.type, self.mask.type)
