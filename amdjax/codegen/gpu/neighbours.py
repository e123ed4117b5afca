"""What is known of neighbouring elements of a tile, those that a thread holds side by side.

A mask that is the same for neighbours costs one test for all of them, and elements of memory at
consecutive offsets move in one access. Both follow from how offsets and masks are computed: counts
of an axis are consecutive, what is the same along the axis is the same for neighbours, and so on
through sums, products and divisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amdjax import tile
from amdjax.tile import ops

MOST = 1 << 30
_INTEGERS = frozenset((*tile.SIGNED, *tile.UNSIGNED))
#: Elementwise ops that indices and masks are made of.
_ELEMENTWISE = frozenset((
    *tile.COMPARISONS, "add", "sub", "mul", "div", "rem", "and", "or", "xor", "not", "min", "max",
    "neg", "select", "convert", "shl", "shr_logical", "shr_arithmetic",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of a tile.

    Args:
      step: from one neighbour to the next: 0 if they are the same, 1 if they count up.
      first: a power of two that divides the first of each few neighbours, if they count up.
      each: a power of two that divides every element.
    """

    step: int | None = None
    first: int = 1
    each: int = 1


NOTHING = Fact()


class Neighbours:
    """Facts about tiles by the numbers of their values.

    Args:
      vector: neighbours that a thread holds side by side, at most.
      divisors: a power of two that divides a scalar, by number.
    """

    def __init__(self, vector: int, divisors: Mapping[int, int]):
        self.vector, self.divisors = vector, divisors
        self._facts: dict[int, Fact] = {}
        self._constants: dict[int, int] = {}

    def of(self, v: tile.Value) -> Fact:
        """What is known of a value; a scalar is the same everywhere."""
        if not v.shape:
            n = self.divisors.get(v.number, 1)
            return Fact(0, n, n)
        return self._facts.get(v.number, NOTHING)

    def note(self, op: tile.Op) -> None:
        """Learn from an op what it makes."""
        if len(op.results) != 1:
            return
        (result,) = op.results
        if isinstance(op, ops.Const) and result.dtype in _INTEGERS:
            self._constants[result.number] = int(op.value.x)
        if not result.shape:
            return
        if (
            isinstance(op, ops.Broadcast)
            and (n := self._constants.get(op.operands[0].number)) is not None
        ):
            self._constants[result.number] = n
        fact = self._fact(op, result)
        if fact is not NOTHING:
            self._facts[result.number] = fact

    def _fact(self, op: tile.Op, result: tile.Value) -> Fact:
        if isinstance(op, ops.Const):
            n = self._constants.get(result.number, 1)
            n = n & -n if n else MOST
            return Fact(0, n, n)
        if isinstance(op, ops.Iota):
            return Fact(1, self.vector) if result.dtype in _INTEGERS else NOTHING
        if isinstance(op, ops.Broadcast):
            return self._spread(op.operands[0], result.shape)
        if isinstance(op, ops.Expand):
            return self.of(op.operands[0])
        if op.name not in _ELEMENTWISE:
            return NOTHING
        facts = [self.of(v) for v in op.operands]
        if result.dtype not in _INTEGERS or op.operands[0].dtype not in _INTEGERS:
            return Fact(0) if all(fact.step == 0 for fact in facts) else NOTHING
        return self._integer(op, facts)

    def _spread(self, v: tile.Value, shape: tuple[int, ...]) -> Fact:
        fact = self.of(v)
        near = -2 if len(shape) == 2 and shape[-1] == 1 else -1  # where neighbours lie
        along = v.shape[near] if len(v.shape) >= -near else 1
        return fact if along == shape[near] > 1 else Fact(0, fact.each, fact.each)

    def _integer(self, op: tile.Op, facts: list[Fact]) -> Fact:
        """Of integers computed from integers."""
        a, b = facts[0], facts[-1]
        each = self._each(op.name, a, b)
        if all(fact.step == 0 for fact in facts):
            return Fact(0, each, each)
        n = self._constants.get(op.operands[-1].number)
        whole = a.step == 1 and a.first >= self.vector
        if op.name == "convert":
            return a
        if op.name == "add" and {a.step, b.step} == {0, 1}:
            return Fact(1, min(a.first, b.first), each)
        if op.name == "sub" and (a.step, b.step) == (1, 0):
            return Fact(1, min(a.first, b.first), each)
        if op.name == "mul" and n == 1:
            return a
        if op.name in ("shr_logical", "shr_arithmetic") and n is not None and whole:
            return Fact(0) if (1 << n) >= self.vector else NOTHING
        if op.name in ("div", "rem") and n is not None and n > 0 and whole and n % self.vector == 0:
            return Fact(0) if op.name == "div" else Fact(1, self.vector)
        return Fact(None, 1, each)

    @staticmethod
    def _each(name: str, a: Fact, b: Fact) -> int:
        if name == "mul":
            return min(a.each * b.each, MOST)
        if name in ("add", "sub", "min", "max"):
            return min(a.each, b.each)
        return a.each if name in ("convert", "neg") else 1
