"""Reductions and scans of tiles."""

from __future__ import annotations

from amdjax.tile.attributes import Attribute, Flag, Found, Word
from amdjax.tile.ir import Op, Operand, Trait, expect
from amdjax.tile.types import TileType

COMBINATIONS = frozenset({"add", "mul", "min", "max", "and", "or", "xor"})


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


class Reduce(Op, name="reduce", traits=Trait.PURE):
    """Combine along an axis, which disappears.

    A sum that `contracts` may be so with products that say the same. An extremum is one of
    `numbers` if it may be anything where one of them is NaN.
    """

    __slots__ = ()
    x = Operand(0)
    combine = Word()
    axis = Attribute[int]()
    contracts = Found(False)
    numbers = Found(False)

    def result_types(self) -> tuple[TileType, ...]:
        return (TileType(self.x.dtype, _without(self.x.shape, self.axis)),)

    def check(self) -> None:
        expect(self.combine in COMBINATIONS, "nothing combines by {!r}", self.combine)
        expect(0 <= self.axis < len(self.x.shape), "{} has no axis {}", self.x.type, self.axis)


class ReduceBy(Op, name="reduce_by"):
    """Combine several tiles together along an axis, which disappears.

    Operands are tiles of one shape, then for each a scalar, which together change nothing. The body
    makes of the elements at two places, left ones first, what stands for both, by elementwise
    operations of scalars; it is associative and commutative.
    """

    __slots__ = ()
    axis = Attribute[int]()

    def result_types(self) -> tuple[TileType, ...]:
        tiles = self.operands[: len(self.operands) // 2]
        return tuple(TileType(v.dtype, _without(v.shape, self.axis)) for v in tiles)

    def check(self) -> None:
        n, (body,) = len(self.operands) // 2, self.blocks
        tiles, neutral = self.operands[:n], self.operands[n:]
        expect(len({v.shape for v in tiles}) == 1, "reduce_by takes tiles of one shape")
        expect(0 <= self.axis < len(tiles[0].shape), "{} has no axis {}", tiles[0].type, self.axis)
        scalars = [TileType(v.dtype) for v in tiles]
        expect([v.type for v in neutral] == scalars, "reduce_by takes a number for each tile")
        both = [v.type for v in body.args] == 2 * scalars
        expect(both, "the body of reduce_by takes the elements at two places")
        expect([v.type for v in body.yields] == scalars, "the body of reduce_by makes elements")


class Cumulative(Op, name="cumulative", traits=Trait.PURE):
    """Inclusive scan along the last axis."""

    __slots__ = ()
    x = Operand(0)
    combine = Word()
    reverse = Flag()

    def result_types(self) -> tuple[TileType, ...]:
        return (self.x.type,)

    def check(self) -> None:
        expect(self.combine in COMBINATIONS, "nothing combines by {!r}", self.combine)
        expect(bool(self.x.shape), "a number has no axis")
