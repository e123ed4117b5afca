"""Comparisons of what follows from the positions of elements."""

from __future__ import annotations

from amdjax.tile import ops
from amdjax.tile.ir import Op
from amdjax.tile.kernel import Kernel
from amdjax.tile.passes.rewriting import rewritten

__all__ = ["mark_positional_comparisons"]

#: Results of these do not follow from positions, whatever their operands.
_OTHERS = (ops.Load, ops.LoadAt, ops.Atomic, ops.ReduceBy, ops.For, ops.While, ops.If)


def mark_positional_comparisons(kernel: Kernel) -> Kernel:
    """Mark comparisons of tiles that differ between elements by their positions."""
    if not kernel.has(ops.Iota):
        return kernel
    positional: set[int] = set()

    def change(op: Op) -> Op:
        depends = bool(positional) and not positional.isdisjoint([v.number for v in op.operands])
        if isinstance(op, ops.Iota) or (depends and not isinstance(op, _OTHERS)):
            positional.update(v.number for v in op.results)
        if depends and isinstance(op, ops.Comparison) and op.result.shape:
            return op.with_(attrs=op.attrs | {"positional": True})
        return op

    return rewritten(kernel, change)
