"""Divisions of several elements by one number, and those whose results are rounded at once."""

from __future__ import annotations

from amdjax.tile import ops
from amdjax.tile.ir import Op, nested_ops
from amdjax.tile.kernel import Kernel
from amdjax.tile.passes.rewriting import readers, rewritten


def annotate_divisions(kernel: Kernel) -> Kernel:
    """Say of divisions of floats along which axes the divisor was broadcast, and who reads them."""
    if not any(isinstance(op, ops.Div) for op in nested_ops(kernel.body)):
        return kernel
    reading = readers(kernel.body)
    same = {
        op.result.number: axes
        for op in nested_ops(kernel.body)
        if isinstance(op, ops.Broadcast) and (axes := _broadcast_axes(op))
    }

    def change(op: Op) -> Op:
        if not isinstance(op, ops.Div) or op.result.dtype != "f32":
            return op
        axes = same.get(op.operands[1].number)
        dtypes = {_rounded_to(reader) for reader in reading.get(op.result.number, ())}
        found: dict[str, object] = {"same_along": axes} if axes else {}
        if dtypes and "" not in dtypes:
            found |= {"becomes": "bf16" if "bf16" in dtypes else "f16"}
        return op.with_(attrs=op.attrs | found) if found else op

    return rewritten(kernel, change)


def _rounded_to(op: Op) -> str:
    """The dtype of 16 bits that a conversion makes of its operand."""
    to = op.result.dtype if isinstance(op, ops.Convert) else ""
    return to if to in ("f16", "bf16") else ""


def _broadcast_axes(op: ops.Broadcast) -> tuple[int, ...]:
    source, shape = op.x.shape, op.result.shape
    leading = len(shape) - len(source)
    return tuple(a for a, n in enumerate(shape) if a < leading or source[a - leading] == 1 != n)
