"""Kernels of which a thread has nothing to do where a mask is false, and ends there.

Where all that a kernel writes is under one mask, and threads tell each other nothing, a thread
whose elements are outside ends before its first access. What follows has no branches, and leaves
LLVM as little to do as a kernel without a mask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from amdjax import tile
from amdjax.codegen.gpu.layout import Layout
from amdjax.tile import ops

#: What threads do by themselves, where tiles have one shape.
_OWN = (
    ops.Bitcast, ops.Const, ops.Convert, ops.Elementwise, ops.For, ops.Iota, ops.Load, ops.LoadAt,
    ops.ProgramId, ops.Size, ops.Store,
)  # fmt: skip


@dataclass(frozen=True)
class EarlyExit:
    """Where threads end.

    Args:
      mask: of the elements that are there.
      layout: of the mask, of which a thread holds neighbors that are there or not as one.
      place: the operation of the kernel's own block in front of which they end.
    """

    mask: tile.Value
    layout: Layout
    place: tile.Op


def early_exit(kernel: tile.Kernel, workgroup: int) -> EarlyExit | None:
    """Where threads of a kernel may end, of which passes found what accesses have in common.

    Args:
      kernel: the program.
      workgroup: threads of one.
    """
    nested = list(tile.nested_ops(kernel.body))
    stores = [op for op in nested if isinstance(op, ops.Store)]
    mask = stores[0].mask if stores else None
    if mask is None or any(op.mask is None or op.mask.number != mask.number for op in stores):
        return None
    loads = [op for op in nested if isinstance(op, (ops.Load, ops.LoadAt))]
    written = Counter(op.buffer.name for op in stores)
    if max(written.values()) > 1 or any(op.buffer.name in written for op in loads):
        return None  # threads may wait for each other
    layout = Layout(mask.shape, workgroup, kernel.schedule.vector)
    if layout.registers > layout.width or any(op.mask_constancy < layout.width for op in stores):
        return None  # a thread may have elements of which some are there
    if not _is_apart(kernel.body, mask):
        return None
    known: set[int] = set()
    for op in kernel.body.ops:
        if any(number == mask.number for number in _masks(op)):
            return EarlyExit(mask, layout, op) if mask.number in known else None
        known |= {v.number for v in op.results}
    return None


def _masks(op: tile.Op) -> Iterator[int]:
    """The numbers of the masks of an operation and of those inside it."""
    inside = (x for block in op.blocks for x in tile.nested_ops(block))
    for x in (op, *inside):
        mask = getattr(x, "mask", None)
        if mask is not None:
            yield mask.number


def _turns(op: tile.Op) -> bool:
    """Whether threads may exchange what an operation accesses, whose columns lie side by side."""
    return isinstance(op, (ops.Load, ops.Store)) and len(op.strides) == 2 and op.strides[0] == 1


def _is_apart(block: tile.Block, mask: tile.Value) -> bool:
    """Whether threads do not meet: nothing that one has loaded or carried moves to another."""
    of_memory = {v.number for v in block.args if v.shape}
    waiting = [block]
    while waiting:
        for op in waiting.pop().ops:
            inherits = any(v.number in of_memory for v in op.operands)
            if isinstance(op, (ops.Broadcast, ops.Expand)):
                if inherits:
                    return False
            elif not isinstance(op, _OWN) or _turns(op):
                return False
            if isinstance(op, (ops.Load, ops.LoadAt)) or op.blocks or inherits:
                of_memory |= {v.number for v in op.results if v.shape}
            for inner in op.blocks:
                of_memory |= {v.number for v in inner.args if v.shape}
                waiting.append(inner)
    return mask.number not in of_memory
