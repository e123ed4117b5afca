"""Structured control flow. Conditions and bounds are scalars, so that all of a program agrees."""

from __future__ import annotations

from collections.abc import Sequence

from amdjax.tile.attributes import Attribute, Flag, Memories
from amdjax.tile.ir import Block, Op, Operand, Operands, Value, expect, expect_scalars
from amdjax.tile.types import BOOL, TileType


def _types(values: Sequence[Value]) -> tuple[TileType, ...]:
    return tuple([v.type for v in values])


class For(Op, name="for"):
    """`for i in range(start, stop, step): carried = body(i, *carried)`.

    Attributes:
      users: a loop of the user's program, which may run for long.
      prefetch: memory whose reads in the loop caches are asked for ahead of time, on CPUs.
      prefetch_distance: rounds between asking and reading; 0 to ask for all of it before the
        loop begins.
    """

    __slots__ = ()
    users = Flag()
    prefetch = Memories()
    prefetch_distance = Attribute(0)
    start, stop, step = Operand(0), Operand(1), Operand(2)
    init = Operands(3)

    @property
    def body(self) -> Block:
        return self.blocks[0]

    def result_types(self) -> tuple[TileType, ...]:
        return _types(self.init)

    def check(self) -> None:
        expect_scalars(self, self.operands[:3])
        expect(len(self.blocks) == 1, "for has one body")
        carried = _types(self.init)
        given = _types(self.body.args)
        expect(given == (TileType("index"), *carried), "a round of for takes its number and state")
        expect(_types(self.body.yields) == carried, "a round of for makes the state it takes")


class While(Op, name="while"):
    """`while condition(*carried): carried = body(*carried)`; `users` as in `For`."""

    __slots__ = ()
    users = Flag()
    init = Operands(0)

    @property
    def condition(self) -> Block:
        return self.blocks[0]

    @property
    def body(self) -> Block:
        return self.blocks[1]

    def result_types(self) -> tuple[TileType, ...]:
        return _types(self.init)

    def check(self) -> None:
        expect(len(self.blocks) == 2, "while has a condition and a body")
        carried = _types(self.init)
        both = _types(self.condition.args) == carried == _types(self.body.args)
        expect(both, "condition and body of while take the state")
        expect(_types(self.condition.yields) == (BOOL,), "the condition of while is a scalar")
        expect(_types(self.body.yields) == carried, "a round of while makes the state it takes")


class If(Op, name="if"):
    """One of two arms, by a scalar; both make values of the same types."""

    __slots__ = ()
    condition = Operand(0)

    def result_types(self) -> tuple[TileType, ...]:
        return _types(self.blocks[0].yields)

    def check(self) -> None:
        expect_scalars(self, self.operands, "bool")
        expect(len(self.operands) == 1 and len(self.blocks) == 2, "if has two arms")
        yes, no = self.blocks
        expect(not yes.args and not no.args, "arms of if take nothing")
        expect(_types(yes.yields) == _types(no.yields), "arms of if differ in what they make")


class Shift(Op, name="shift"):
    """A block in which memory begins elsewhere: each of `moved` so many bytes later.

    `vector` is that of the schedule for the tiles of the block, which are made and used in it.
    """

    __slots__ = ()
    moved = Memories()
    vector = Attribute[int]()
    offsets = Operands(0)

    @property
    def body(self) -> Block:
        return self.blocks[0]

    def check(self) -> None:
        expect_scalars(self, self.operands)
        expect(len(self.operands) == len(self.moved), "shift takes an offset for each buffer")
        expect(len(self.blocks) == 1, "shift has one body")
        expect(
            not (self.body.args or self.body.yields), "the body of shift takes and makes nothing"
        )


class Once(Op, name="once"):
    """A block that fills scratch with the same in every launch of a program of this number.

    Where programs stay resident through a loop of launches, it runs before the first round only.
    """

    __slots__ = ()

    @property
    def body(self) -> Block:
        return self.blocks[0]

    def check(self) -> None:
        expect(not self.operands and len(self.blocks) == 1, "once has one body and takes nothing")
        expect(not (self.body.args or self.body.yields), "the body of once takes and makes nothing")
