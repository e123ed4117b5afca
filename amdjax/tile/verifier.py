"""Checks that a tile program keeps the rules of the IR.

- Types: operands, attributes and results of each operation fit, as its class says (`Op.check`,
  `Op.result_types`).
- Scopes: a value is made once, and used in its block or one inside it, behind where it is made.
- Buffers: operations name memory that the kernel declares, in its role; a buffer seen as another
  dtype is still that buffer.
- Uniform control flow: conditions and bounds are scalars, so that all of a program takes one way.
  Bodies that threads run each for themselves, those of combinations and of places in memory, are
  made of scalars and change no memory.
- The result of a product in memory goes to `collect` alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from amdjax.tile import ops
from amdjax.tile.attributes import Attribute
from amdjax.tile.ir import Block, Op, TileError, Value, expect
from amdjax.tile.kernel import Kernel, listing
from amdjax.tile.types import Buffer

__all__ = ["verify"]

_ROLES = ("in", "out", "inout", "size", "scratch")


def verify(kernel: Kernel) -> None:
    """Check a kernel.

    Raises:
      TileError: it breaks a rule; the message names the line of its text, and the rule.
    """
    _Verifier(kernel).kernel()


class _Verifier:
    def __init__(self, kernel: Kernel):
        self._kernel = kernel
        self._buffers = kernel.buffers
        self._made: set[int] = set()
        self._visible: dict[int, Value] = {}
        self._sums: set[int] = set()  # numbers of what only `collect` may use

    def kernel(self) -> None:
        kernel = self._kernel
        declared = [*kernel.params, *kernel.scratch]
        expect(len(self._buffers) == len(declared), "two buffers have one name")
        for buffer in declared:
            expect(buffer.role in _ROLES, "{} has no role {!r}", buffer.name, buffer.role)
        if isinstance(kernel.grid, str):
            size = self._buffers.get(kernel.grid)
            expect(size is not None and size.role == "size", "{} is no size", kernel.grid)
        self._block(kernel.body)
        expect(not kernel.body.yields, "a kernel makes no values")

    def _block(self, block: Block) -> None:
        outer = dict(self._visible)
        for v in block.args:
            self._make(v)
        for op in block.ops:
            try:
                self._operation(op)
            except TileError as e:
                if hasattr(e, "line"):
                    raise
                raise self._placed(op, e) from e
        self._use(block.yields)
        self._visible = outer

    def _placed(self, op: Op, error: TileError) -> TileError:
        """The error with the line of the operation."""
        text, lines = listing(self._kernel)
        line = lines[id(op)]
        shown = text.splitlines()[line - 1].strip()
        placed = TileError(f"line {line}, {shown}: {error}")
        placed.line = line  # type: ignore[attr-defined]
        return placed

    def _operation(self, op: Op) -> None:
        self._use(op.operands)
        if not isinstance(op, ops.Collect):
            sums = [v for v in op.operands if v.number in self._sums]
            expect(not sums, "only collect can use sums, not {}", op.name)
        for buffer in op.buffers():
            self._buffer(buffer)
        required, known = _names(op.attributes)
        missing = required.difference(op.attrs)
        expect(not missing, "{} lacks {}", op.name, ", ".join(sorted(missing)))
        expect(known.issuperset(op.attrs), "{} has none of {}", op.name, set(op.attrs) - known)
        for block in op.blocks:
            self._block(block)
        if isinstance(op, (ops.ReduceBy, ops.Contract)):
            self._check_pure_bodies(op)
        op.check()
        types = op.result_types()
        made = tuple(v.type for v in op.results)
        if types is not None and types != made:
            raise TileError(f"results of {op.name} are no {', '.join(map(str, made))}")
        for v in op.results:
            self._make(v)
        if isinstance(op, ops.Contract):
            self._sums.add(op.result.number)

    def _check_pure_bodies(self, op: Op) -> None:
        """Bodies that threads run for themselves."""
        for block in op.blocks:
            for inner in block.ops:
                alike = inner.is_pure and not inner.blocks
                scalar = all(not v.shape for v in (*inner.operands, *inner.results))
                expect(alike and scalar, "{} in a body of {}, made of scalars", inner.name, op.name)

    def _buffer(self, buffer: Buffer) -> None:
        declared = self._buffers.get(buffer.name)
        expect(declared is not None, "there is no buffer {}", buffer.name)
        assert declared is not None
        expect(declared.role == buffer.role, "{} is {}", buffer.name, declared.role)

    def _make(self, v: Value) -> None:
        expect(v.number not in self._made, "{!r} is made twice", v)
        self._made.add(v.number)
        self._visible[v.number] = v

    def _use(self, values: Iterable[Value]) -> None:
        for v in values:
            found = self._visible.get(v.number)
            expect(found is not None, "a value is used where it cannot be seen")
            assert found is not None
            expect(found.type == v.type, "a value of {} is used as {}", found.type, v.type)


@cache
def _names(found: tuple[Attribute[Any], ...]) -> tuple[frozenset[str], frozenset[str]]:
    """The names of attributes: of those that an operation must have, and of all."""
    return frozenset(a.name for a in found if a.required), frozenset(a.name for a in found)
