"""Selects that a masked load makes needless."""

from __future__ import annotations

from amdjax.tile import ops
from amdjax.tile.ir import Op, Value
from amdjax.tile.kernel import Kernel
from amdjax.tile.passes.rewriting import rewritten
from amdjax.tile.types import Number


def fold_masked_selects(kernel: Kernel) -> Kernel:
    """`select(mask, load(…, mask, other=x), x)` is the load.

    Also behind a conversion, which keeps zeros.
    """
    folding = _Folding()
    return rewritten(kernel, folding.change)


class _Folding:
    def __init__(self) -> None:
        self.fillings: dict[int, tuple[int, Number]] = {}  # by number of a tile: its mask, and what
        self.constants: dict[int, Number] = {}  # stands where that is false

    def change(self, op: Op) -> Op | Value:
        if isinstance(op, ops.Const):
            self.constants[op.result.number] = _number(op.value.x, op.result)
        elif isinstance(op, ops.Broadcast) and op.x.number in self.constants:
            self.constants[op.result.number] = self.constants[op.x.number]
        elif isinstance(op, ops.Load) and op.mask is not None:
            self.fillings[op.result.number] = op.mask.number, _number(op.other, op.result)
        elif isinstance(op, ops.Convert) and op.x.number in self.fillings:
            mask, filling = self.fillings[op.x.number]
            if filling.x == 0:
                self.fillings[op.result.number] = mask, _number(filling.x, op.result)
        elif isinstance(op, ops.Select):
            other = self.constants.get(op.b.number)
            if other and self.fillings.get(op.a.number) == (op.condition.number, other):
                return op.a
        return op


def _number(x: float | int | bool, of: Value) -> Number:
    return Number.of(of.dtype if of.dtype != "bool" else "i8", x)
