"""Divisions of several elements by one number."""

from __future__ import annotations

from amdjax.tile import ops
from amdjax.tile.ir import Op, nested_ops
from amdjax.tile.kernel import Kernel
from amdjax.tile.passes.rewriting import rewritten

__all__ = ["annotate_divisions"]


def annotate_divisions(kernel: Kernel) -> Kernel:
    """Say of divisions of floats along which axes the divisor was broadcast."""
    same = {
        op.result.number: axes
        for op in nested_ops(kernel.body)
        if isinstance(op, ops.Broadcast) and (axes := _broadcast_axes(op))
    }

    def change(op: Op) -> Op:
        axes = same.get(op.operands[1].number) if isinstance(op, ops.Div) else None
        if axes is None or op.result.dtype != "f32":
            return op
        return op.with_(attrs=op.attrs | {"same_along": axes})

    return rewritten(kernel, change)


def _broadcast_axes(op: ops.Broadcast) -> tuple[int, ...]:
    source, shape = op.x.shape, op.result.shape
    leading = len(shape) - len(source)
    return tuple(a for a, n in enumerate(shape) if a < leading or source[a - leading] == 1 != n)
