"""What writing a tile program as LLVM IR has in common on all machines: dispatch, control flow.

How a tile is held, its *rep*, is the machine's own: vectors on a CPU, the share of one thread on a
GPU. Methods of an `Emitter` say by `@lowers` which operations they write.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from amdjax import tile
from amdjax.codegen.llvm import I32, Function, Value, const
from amdjax.tile import ops

__all__ = ["Emitter", "arrival", "atomic_operation", "lowers"]

Rep = TypeVar("Rep")
Method = TypeVar("Method", bound=Callable[..., Any])


def lowers(*kinds: type[tile.Op]) -> Callable[[Method], Method]:
    """A method of an `Emitter` that writes these operations, and those derived from them."""

    def mark(method: Method) -> Method:
        method.lowers = kinds  # type: ignore[attr-defined]
        return method

    return mark


class Emitter(Generic[Rep]):
    """Writes the body of one kernel. `self.reps` maps SSA values to what represents them."""

    _methods: ClassVar[dict[type[tile.Op], Callable[..., list[Any]]]] = {}

    def __init_subclass__(cls) -> None:
        """Methods of derived classes stand for those that they inherit."""
        cls._methods = {
            kind: method
            for base in reversed(cls.__mro__)
            for method in vars(base).values()
            for kind in getattr(method, "lowers", ())
        }

    @classmethod
    def _method(cls, kind: type[tile.Op]) -> Callable[..., list[Rep]]:
        """What writes an operation."""
        found = cls._methods.get(kind)
        if found is None:
            known = next((base for base in kind.__mro__ if base in cls._methods), None)
            if known is None:
                raise NotImplementedError(f"{cls.__name__} cannot write {kind.name}")
            found = cls._methods[kind] = cls._methods[known]
        return found

    def __init__(self, f: Function):
        self.f = f
        self.reps: dict[int, Rep] = {}

    def block(self, block: tile.Block) -> list[Rep]:
        """Write the ops of a block; returns what it yields."""
        for op in block.ops:
            self.writing(op)
            results = self._method(type(op))(self, op)
            for v, rep in zip(op.results, results, strict=True):
                self.reps[v.number] = rep
        return [self.reps[v.number] for v in block.yields]

    def writing(self, op: tile.Op) -> None:
        """Called in front of each op."""

    def rep(self, v: tile.Value) -> Rep:
        return self.reps[v.number]

    def scalar(self, v: tile.Value) -> Value:
        """What represents a tile of rank 0."""
        rep = self.reps[v.number]
        assert isinstance(rep, Value)
        return rep

    @abstractmethod
    def flatten(self, reps: Sequence[Rep], types: Sequence[tile.TileType]) -> list[Value]:
        """Reps as LLVM values, to carry them through control flow."""

    @abstractmethod
    def unflatten(self, flat: Sequence[Value], types: Sequence[tile.TileType]) -> list[Rep]:
        """The inverse of `flatten`."""

    # Control flow

    def _bind(self, args: Sequence[tile.Value], flat: Sequence[Value]) -> None:
        for v, rep in zip(args, self.unflatten(flat, [a.type for a in args]), strict=True):
            self.reps[v.number] = rep

    def _yielded(self, block: tile.Block) -> list[Value]:
        return self.flatten(self.block(block), [v.type for v in block.yields])

    def _entering(self, values: Sequence[tile.Value]) -> list[Value]:
        return self.flatten([self.rep(v) for v in values], [v.type for v in values])

    @lowers(ops.For)
    def lower_for(self, op: ops.For) -> list[Rep]:
        start, stop, step = (self.scalar(v) for v in op.operands[:3])
        (body,) = op.blocks

        def iteration(index: Value, flat: list[Value]) -> list[Value]:
            self._bind(body.args, [index, *flat])
            return self._yielded(body)

        flat = self.f.loop(start, stop, step, self._entering(op.operands[3:]), iteration)
        return self.unflatten(flat, [v.type for v in op.results])

    @lowers(ops.While)
    def lower_while(self, op: ops.While) -> list[Rep]:
        cond, body = op.blocks

        def test(flat: list[Value]) -> Value:
            self._bind(cond.args, flat)
            (keep,) = self._yielded(cond)
            return keep

        def iteration(flat: list[Value]) -> list[Value]:
            self._bind(body.args, flat)
            return self._yielded(body)

        flat = self.f.while_loop(self._entering(op.operands), test, iteration)
        return self.unflatten(flat, [v.type for v in op.results])

    @lowers(ops.If)
    def lower_if(self, op: ops.If) -> list[Rep]:
        yes, no = op.blocks
        flat = self.f.if_(
            self.scalar(op.operands[0]), lambda: self._yielded(yes), lambda: self._yielded(no)
        )
        return self.unflatten(flat, [v.type for v in op.results])


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
