"""Which tiles of a kernel are held otherwise than all tiles are: those around its matrix products.

Sums of a product are held as its instruction leaves them. So is what is computed of them element by
element, what is reduced of them, and what meets them: loops carry them so, and what is loaded only
for them is loaded so. Left operands are loaded as the instruction takes them, right ones in pieces
that suit LDS. All other tiles have the layout that follows from their shape; where an operation
takes a tile otherwise than it is held, the tile moves there.
"""

from __future__ import annotations

from collections.abc import Iterator

from amdjax import tile
from amdjax.codegen.gpu.fragments import (
    FragmentLayout,
    accumulator_layout,
    operand_layout,
    rectangles,
)
from amdjax.targets import GpuTarget
from amdjax.targets.mma import Tiling, tile_atoms
from amdjax.tile import ops

#: Operations whose results lie as an operand of their shape does.
_ALIKE = (ops.Elementwise, ops.Convert, ops.Bitcast)


def dot_tiling(target: GpuTarget, op: ops.Dot) -> Tiling:
    """How waves divide a product, with the atom whose lanes hold rows."""
    x = op.tiling
    assert x is not None
    known = {atom.name: atom for atom in tile_atoms(target, x.operand, op.result.dtype)}
    return Tiling(known[x.instruction], x.waves, x.fragments, x.depth, x.stages)


def assigned_layouts(kernel: tile.Kernel, target: GpuTarget) -> dict[int, FragmentLayout]:
    """The layouts of values by their numbers, of those that have one of their own."""
    if not any(isinstance(op, ops.Dot) and op.tiling for op in tile.nested_ops(kernel.body)):
        return {}
    found = _Assignment(target, kernel.schedule.workgroup)
    while True:
        count = len(found.layouts)
        found.forward(kernel.body)
        found.backward(kernel.body)
        if len(found.layouts) == count:
            return found.layouts


class _Assignment:
    """Layouts found so far. None is changed, so that looking again and again comes to an end."""

    def __init__(self, target: GpuTarget, threads: int):
        self.target, self.threads = target, threads
        self.layouts: dict[int, FragmentLayout] = {}
        self._transposed: dict[int, tile.Value] = {}  # of what tiles are the transposes

    def _give(self, v: tile.Value, layout: FragmentLayout | None) -> None:
        if layout is not None and v.shape == layout.shape:
            self.layouts.setdefault(v.number, layout)

    def _of(self, v: tile.Value) -> FragmentLayout | None:
        return self.layouts.get(v.number)

    def _join(self, *values: tile.Value) -> None:
        """Values that control flow makes one."""
        layout = next((x for x in map(self._of, values) if x is not None), None)
        for v in values:
            self._give(v, layout)

    # From operands to results

    def forward(self, block: tile.Block) -> None:
        for op in block.ops:
            for inner in op.blocks:
                self.forward(inner)
            self._result(op)

    def _result(self, op: tile.Op) -> None:
        if isinstance(op, ops.Dot) and op.tiling is not None:
            self._give(op.result, accumulator_layout(*self._tiling(op)))
        elif isinstance(op, _ALIKE):
            held = (self._of(v) for v in op.operands if v.shape == op.result.shape)
            self._give(op.result, next((x for x in held if x is not None), None))
        elif isinstance(op, (ops.For, ops.If)):
            for values in _joined(op):
                self._join(*values)
        elif isinstance(op, (ops.Reduce, ops.Expand, ops.Transpose)):
            layout = self._of(op.operands[0])
            if layout is not None:
                self._give(op.result, _changed(op, layout))
        if isinstance(op, ops.Transpose):
            self._transposed[op.result.number] = op.x

    def _tiling(self, op: ops.Dot) -> tuple[Tiling, int]:
        return dot_tiling(self.target, op), self.target.wave_size

    # From results to operands

    def backward(self, block: tile.Block) -> None:
        for op in reversed(block.ops):
            self._operands(op)
            for inner in op.blocks:
                self.backward(inner)

    def _operands(self, op: tile.Op) -> None:
        """What is held in no way yet is held as it is wanted here."""
        if isinstance(op, ops.Dot) and op.tiling is not None:
            self._give(op.acc, self._of(op.result))
            self._give(op.a, operand_layout(*self._tiling(op)))
            self._bring(op.b)
        elif isinstance(op, (ops.For, ops.If)):
            for values in _joined(op):
                self._join(*values)
        elif op.results and (layout := self._of(op.result)) is not None:
            if isinstance(op, _ALIKE):
                for v in op.operands:
                    self._give(v, layout)
            elif isinstance(op, ops.Broadcast):
                self._give(op.x, _unspread(op, layout))
            elif isinstance(op, ops.Expand):
                self._give(op.x, layout.without(op.axis))
            elif isinstance(op, ops.Transpose):
                self._give(op.x, layout.transposed)
            elif isinstance(op, ops.Load) and op.masked:
                self._give(op.operands[-1], layout)

    def _bring(self, v: tile.Value) -> None:
        """The right operand of a product: it passes through LDS, in pieces of what was loaded."""
        source = self._transposed.get(v.number)
        layout = rectangles((source or v).shape, self.threads, tile.itemsize(v.dtype))
        self._give(v, layout if source is None else layout.transposed)


def _changed(op: tile.Op, layout: FragmentLayout) -> FragmentLayout | None:
    """The layout of the result of an operation that changes shapes."""
    if isinstance(op, ops.Expand):
        return layout.expanded(op.axis)
    if isinstance(op, ops.Transpose):
        return layout.transposed
    assert isinstance(op, ops.Reduce)
    return layout.without(op.axis) if len(layout.shape) > 1 else None


def _unspread(op: ops.Broadcast, layout: FragmentLayout) -> FragmentLayout | None:
    """The layout of what is broadcast: of axes of length one threads have all they need."""
    source = op.x.shape
    if len(source) != len(op.result.shape):
        return None
    for axis, (one, many) in enumerate(zip(source, op.result.shape, strict=True)):
        if one != many:
            layout = layout.along(axis)
    return layout


def _joined(op: ops.For | ops.If) -> Iterator[tuple[tile.Value, ...]]:
    """Of each value that control flow carries all its names."""
    if isinstance(op, ops.For):
        (body,) = op.blocks
        yield from zip(op.init, body.args[1:], body.yields, op.results, strict=True)
    else:
        yes, no = op.blocks
        yield from zip(yes.yields, no.yields, op.results, strict=True)
