"""What writing a tile program as LLVM IR has in common on all machines: dispatch, control flow.

How a tile is held, its *rep*, is the machine's own: vectors on a CPU, the share of one thread on a
GPU. What writes an operation is a function of the emitter and the operation, found by the
operation's class in a table, `Lowerings`; each subject has a table, and a machine joins them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from amdjax import tile
from amdjax.codegen.llvm import I32, Function, Value, const
from amdjax.tile import ops

Rep = TypeVar("Rep")
Lowering = TypeVar("Lowering", bound=Callable[..., list[Any]])


class Lowerings:
    """Functions that write operations, by the class of the operation.

    Args:
      parts: tables whose functions this one has too; later ones first.
    """

    def __init__(self, *parts: Lowerings):
        self._functions: dict[type[tile.Op], Callable[..., list[Any]]] = {}
        for part in parts:
            self._functions.update(part._functions)

    def of(self, *kinds: type[tile.Op]) -> Callable[[Lowering], Lowering]:
        """Marks what writes these operations, and those derived from them."""

        def mark(function: Lowering) -> Lowering:
            self._functions.update(dict.fromkeys(kinds, function))
            return function

        return mark

    def find(self, kind: type[tile.Op]) -> Callable[..., list[Any]]:
        """What writes an operation."""
        found = self._functions.get(kind)
        if found is None:
            known = next((base for base in kind.__mro__ if base in self._functions), None)
            if known is None:
                raise NotImplementedError(f"nothing writes {kind.name} for this machine")
            found = self._functions[kind] = self._functions[known]
        return found


class Emitter(ABC, Generic[Rep]):
    """Writes the body of one kernel.

    Args:
      f: the function.
      lowerings: what writes each operation.
    """

    def __init__(self, f: Function, lowerings: Lowerings):
        self.f, self._lowerings = f, lowerings
        self._reps: dict[int, Rep] = {}

    def block(self, block: tile.Block) -> list[Rep]:
        """Write the ops of a block; returns what it yields."""
        for op in block.ops:
            self.writing(op)
            results = self._lowerings.find(type(op))(self, op)
            self.bind(op.results, results)
        return [self._reps[v.number] for v in block.yields]

    def writing(self, op: tile.Op) -> None:
        """Called in front of each op."""

    def rep(self, v: tile.Value) -> Rep:
        return self._reps[v.number]

    def scalar(self, v: tile.Value) -> Value:
        """What represents a tile of rank 0."""
        rep = self._reps[v.number]
        assert isinstance(rep, Value)
        return rep

    def bind(self, values: Sequence[tile.Value], reps: Sequence[Rep]) -> None:
        """Say what represents values."""
        for v, rep in zip(values, reps, strict=True):
            self._reps[v.number] = rep

    @abstractmethod
    def flatten(self, reps: Sequence[Rep], types: Sequence[tile.TileType]) -> list[Value]:
        """Reps as LLVM values, to carry them through control flow."""

    @abstractmethod
    def unflatten(self, flat: Sequence[Value], types: Sequence[tile.TileType]) -> list[Rep]:
        """The inverse of `flatten`."""

    def flat(self, values: Sequence[tile.Value], like: Sequence[tile.Value]) -> list[Value]:
        """SSA values as LLVM values, held as those are which they become."""
        return self.flatten([self.rep(v) for v in values], [v.type for v in values])

    def flat_block(
        self, block: tile.Block, args: Sequence[Value], like: Sequence[tile.Value] = ()
    ) -> list[Value]:
        """Write a block whose arguments are LLVM values; what it yields as LLVM values."""
        self.bind(block.args, self.unflatten(args, [a.type for a in block.args]))
        self.block(block)
        return self.flat(block.yields, like or block.yields)


def lower_for(
    e: Emitter[Any], op: ops.For, loop: Callable[..., list[Value]] | None = None
) -> list[Any]:
    """Write a loop by `Function.loop` or what stands for it."""
    start, stop, step = (e.scalar(v) for v in op.operands[:3])
    (body,) = op.blocks

    def iteration(index: Value, carried: list[Value]) -> list[Value]:
        return e.flat_block(body, [index, *carried], body.args[1:])

    first = e.flat(op.init, body.args[1:])
    results = (loop or e.f.loop)(start, stop, step, first, iteration)
    return e.unflatten(results, [v.type for v in op.results])


def lower_while(
    e: Emitter[Any], op: ops.While, loop: Callable[..., list[Value]] | None = None
) -> list[Any]:
    """Write a loop by `Function.while_loop` or what stands for it."""
    cond, body = op.blocks

    def test(carried: list[Value]) -> Value:
        (keep,) = e.flat_block(cond, carried)
        return keep

    def iteration(carried: list[Value]) -> list[Value]:
        return e.flat_block(body, carried, body.args)

    results = (loop or e.f.while_loop)(e.flat(op.init, body.args), test, iteration)
    return e.unflatten(results, [v.type for v in op.results])


def lower_if(e: Emitter[Any], op: ops.If) -> list[Any]:
    yes, no = op.blocks
    condition = e.scalar(op.operands[0])
    results = e.f.if_(
        condition,
        lambda: e.flat_block(yes, [], op.results),
        lambda: e.flat_block(no, [], op.results),
    )
    return e.unflatten(results, [v.type for v in op.results])


def atomic_operation(combine: str, dtype: str) -> str:
    """The operation of LLVM's `atomicrmw`."""
    if dtype in tile.FLOATS:
        return {"add": "fadd", "min": "fminimum", "max": "fmaximum"}[combine]
    if combine in ("min", "max"):
        return combine if dtype in tile.SIGNED else "u" + combine
    return combine


def arrival(f: Function, counter: Value, programs: int, suffix: str) -> Value:
    """Count one more program; whether it is the last one, which leaves zero behind.

    Args:
      f: the function.
      counter: address of 32 bits.
      programs: how many arrive.
      suffix: scope, ordering and metadata, as LLVM's syntax has them.
    """
    last = const(I32, programs - 1)
    return f.icmp("eq", f.op(f"atomicrmw uinc_wrap {counter}, {last} {suffix}", I32), last)
