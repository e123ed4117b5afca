"""How passes make new kernels of old ones, which stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from amdjax.tile.ir import Block, Op, Value
from amdjax.tile.kernel import Kernel

__all__ = ["rewritten"]

#: Of an operation whose operands are renamed: what stands in its place, or what its result is.
Change = Callable[[Op], Op | Sequence[Op] | Value]


def rewritten(kernel: Kernel, change: Change) -> Kernel:
    """The kernel with each operation changed; the outermost and first come first."""
    return replace(kernel, body=_Rewriter(change).block(kernel.body))


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
        return op.with_(blocks=tuple([self.block(b) for b in op.blocks])) if op.blocks else op

    def block(self, block: Block) -> Block:
        written: list[Op] = []
        for op in block.ops:
            operands = self._current(op.operands)
            found = self.change(op if operands == op.operands else op.with_(operands=operands))
            if isinstance(found, Value):
                self.renamed[op.result.number] = found
                continue
            written += map(self._inside, [found] if isinstance(found, Op) else found)
        return Block(block.args, written, self._current(block.yields))
