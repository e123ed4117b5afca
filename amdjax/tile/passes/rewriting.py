"""How passes make new kernels of old ones, which stay as they are."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from amdjax.tile import ops
from amdjax.tile.ir import Block, Op, Value, nested_ops
from amdjax.tile.kernel import Kernel

__all__ = ["all_blocks", "constant_of", "either_way", "makers", "readers", "rewritten"]

#: Of an operation whose operands are renamed: what stands in its place, or what its result is.
Change = Callable[[Op], Op | Sequence[Op] | Value]


def rewritten(kernel: Kernel, change: Change) -> Kernel:
    """The kernel with each operation changed; the outermost and first come first.

    It is the same kernel if none was, and what is inside it the same wherever nothing changed.
    """
    body = _Rewriter(change).block(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)


def all_blocks(block: Block) -> Iterator[Block]:
    """A block and all inside it."""
    yield block
    for op in nested_ops(block):
        yield from op.blocks


def makers(block: Block) -> dict[int, Op]:
    """By the number of each value the operation that makes it."""
    return {v.number: op for op in nested_ops(block) for v in op.results}


def readers(block: Block) -> dict[int, list[Op]]:
    """By the number of each value the operations that read it, and those whose blocks yield it."""
    found: dict[int, list[Op]] = {}
    for op in nested_ops(block):
        for v in (*op.operands, *(v for inner in op.blocks for v in inner.yields)):
            found.setdefault(v.number, []).append(op)
    return found


def constant_of(v: Value, made: Mapping[int, Op]) -> float | None:
    """The number that a scalar or tile is in all elements, if that is a constant."""
    op = made.get(v.number)
    if isinstance(op, ops.Broadcast):
        op = made.get(op.x.number)
    return op.value.x if isinstance(op, ops.Const) else None


def either_way(op: Op) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    """The operands of a commutative operation, in both orders."""
    a, b = op.operands
    return (a, b), (b, a)


class _Rewriter:
    def __init__(self, change: Change):
        self.change = change
        self.renamed: dict[int, Value] = {}

    def _current(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        if not self.renamed:
            return values
        return tuple([self.renamed.get(v.number, v) for v in values])

    def _inside(self, op: Op) -> Op:
        """The operation with what is in its blocks changed."""
        blocks = tuple([self.block(b) for b in op.blocks])
        return op if _same(blocks, op.blocks) else op.with_(blocks=blocks)

    def block(self, block: Block) -> Block:
        written: list[Op] = []
        for op in block.ops:
            if self.renamed and (operands := self._current(op.operands)) != op.operands:
                op = op.with_(operands=operands)
            found = self.change(op)
            if found is op:  # as most are
                written.append(self._inside(op) if op.blocks else op)
            elif isinstance(found, Value):
                self.renamed[op.result.number] = found
            else:
                for new in [found] if isinstance(found, Op) else found:
                    written.append(self._inside(new) if new.blocks else new)
        yields = self._current(block.yields)
        if _same(written, block.ops) and _same(yields, block.yields):
            return block
        return Block(block.args, written, yields)


def _same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Whether two sequences are of the very same objects."""
    return len(one) == len(other) and all(map(operator.is_, one, other))
