"""What is known of accesses of memory, as attributes of the operations."""

from __future__ import annotations

from amdjax.tile import ops
from amdjax.tile.axis_info import AxisInfo, axis_infos, minor_axis
from amdjax.tile.ir import Op, Value, nested_ops
from amdjax.tile.kernel import Kernel
from amdjax.tile.passes.rewriting import rewritten

_MOST = 128  # no access is wider, in elements
_COUNTS = ("i32", "u32", "i64", "index")


def annotate_accesses(kernel: Kernel) -> Kernel:
    """Say of loads and stores of tiles how they lie in memory, and how their masks run.

    `divisibility` divides the offset, of gathers and scatters the first of each run of `contiguity`
    offsets; `mask_constancy` neighbors have one mask; `mask_form` is `prefix` where the mask is
    true up to some position, `interval` where it is true between two.
    """
    return rewritten(kernel, _Annotation(kernel).change)


class _Annotation:
    def __init__(self, kernel: Kernel):
        self.infos = axis_infos(kernel)
        self.made = {v.number: op for op in nested_ops(kernel.body) for v in op.results}

    def change(self, op: Op) -> Op:
        found: dict[str, int | str] = {}
        if isinstance(op, (ops.Load, ops.Store)):
            found["divisibility"] = min(self._info(op.offset).divisor, _MOST)
        elif isinstance(op, (ops.LoadAt, ops.StoreAt)) and op.offsets.shape:
            info, axis = self._info(op.offsets), minor_axis(op.offsets.shape)
            found["contiguity"] = min(info.contiguity[axis], _MOST)
            found["divisibility"] = min(info.divisibility[axis], _MOST)
        if isinstance(op, (ops.Load, ops.Store, ops.LoadAt, ops.StoreAt)):
            found |= self._mask(op.mask)
        known = {name: x for name, x in found.items() if x not in (1, "")}
        return op.with_(attrs=op.attrs | known) if known else op

    def _info(self, v: Value) -> AxisInfo:
        return self.infos.get(v.number) or AxisInfo.unknown(v.shape)

    def _mask(self, mask: Value | None) -> dict[str, int | str]:
        if mask is None or not mask.shape:
            return {}
        constancy = self._info(mask).constancy[minor_axis(mask.shape)]
        return {"mask_constancy": min(constancy, _MOST), "mask_form": self._form(mask)}

    def _form(self, mask: Value) -> str:
        """Of masks such as `iota < n`, and unsigned `iota + base < n`."""
        test = self.made.get(mask.number)
        if not isinstance(test, (ops.Lt, ops.Le)) or not self._is_broadcast(test.operands[1]):
            return ""
        count = test.operands[0]
        if self._is_count(count):
            return "prefix"
        moved = self.made.get(count.number)
        if not isinstance(moved, ops.Add) or count.dtype != "u32":
            return ""
        count, base = moved.operands
        return "interval" if self._is_count(count) and self._is_broadcast(base) else ""

    def _is_count(self, v: Value) -> bool:
        return isinstance(self.made.get(v.number), ops.Iota) and v.dtype in _COUNTS

    def _is_broadcast(self, v: Value) -> bool:
        """Whether a scalar stands in all elements."""
        op = self.made.get(v.number)
        return isinstance(op, ops.Broadcast) and not op.x.shape
