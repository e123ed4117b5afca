"""Elements of memory in another order, with zeros where there are none: a launch before or after
a product, so that its operands lie as it likes to read them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.dims import is_multiple
from amdjax.kernels.gpu_loops import every, tile_of
from amdjax.kernels.loops import offset_of, split_position
from amdjax.kernels.products.contraction import Axis, Limit, Sink
from amdjax.kernels.products.gpu.contraction import TileWriter
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, ShapedContext, Temp
from amdjax.schedule.gpu.tiles import first_lanes, tile_lanes
from amdjax.schedule.values import short_dtype
from amdjax.tile import Value, itemsize

MOST_COLUMNS = 4096
EACH = 8  # elements of a thread


@dataclass(frozen=True)
class ConversionPlan:
    """Elements in the order of some loops.

    Args:
      owner: what they are read from.
      axes: the loops, the innermost one last; each with its stride in memory and by how much it
        moves the limited coordinates.
      limits: coordinates; where one is outside of its bounds the element is zero.
      offset: of the first element.
      workspace: where they go, in this order; the equation's result if None.
      strides: of the result.
    """

    owner: Any
    axes: tuple[Axis, ...]
    limits: tuple[Limit, ...] = ()
    offset: int = 0
    workspace: Temp | None = None
    strides: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(axis.extent for axis in self.axes)

    @property
    def dtype(self) -> str:
        return _dtype_of(self.owner)

    def emit(self, ctx: ShapedContext) -> list[Call]:
        conversion = LayoutConversion(ctx, self)
        if self.workspace is not None:
            return [conversion.into_workspace(self.workspace)]
        return [conversion.into_result(self.strides)]

    def __str__(self) -> str:
        where = "a workspace" if self.workspace is not None else "the result"
        return f"layout conversion of {self.size} {self.dtype} into {where}"


def into_workspace(
    owner: Any, axes: Sequence[Axis], limits: Sequence[Limit] = (), offset: int = 0
) -> tuple[ConversionPlan, Temp]:
    """The plan that brings elements into workspace, and that; see `ConversionPlan`."""
    temp = Temp(_dtype_of(owner), math.prod(axis.extent for axis in axes))
    return ConversionPlan(owner, tuple(axes), tuple(limits), offset, temp), temp


def _dtype_of(owner: Any) -> str:
    return owner.dtype if isinstance(owner, Temp) else short_dtype(owner.aval.dtype)


class LayoutConversion:
    """The launch of a conversion."""

    def __init__(self, ctx: ShapedContext, plan: ConversionPlan):
        axes, limits = plan.axes, plan.limits
        self.ctx, self.owner, self.limits, self.offset = ctx, plan.owner, limits, plan.offset
        self.dtype = plan.dtype
        self.kept = [i for i, axis in enumerate(axes) if axis.extent > 1] or [len(axes) - 1]
        *outer, last = (axes[i] for i in self.kept)
        self.columns = [last]
        while outer and math.prod(a.extent for a in (outer[-1], *self.columns)) <= MOST_COLUMNS:
            self.columns.insert(0, outer.pop())
        self.row = outer.pop() if outer else Axis(1, 0, (0,) * len(limits))
        self.outer = outer
        self.wide = math.prod(a.extent for a in self.columns)

    def into_workspace(self, temp: Temp) -> Call:
        """The launch that writes them, in this order, to workspace."""
        x, number = self._begin("arrange", 16 // itemsize(self.dtype))
        k, pitch = self.k, self.wide
        strides = [math.prod(a.extent for a in self.outer[i + 1 :]) for i in range(len(number))]
        strides = [s * self.row.extent * pitch for s in strides]
        at = offset_of(k, [*number, *self.bases], [*strides, pitch, 1])
        out = self.program.buffer(temp, temp.dtype, "out")
        k.store(out, at, x, (pitch, 1), every(k, self.edges))
        return self._launch()

    def into_result(self, strides: Sequence[int]) -> Call:
        """The launch that stores them as the equation's result, whose strides are given."""
        var = self.ctx.outputs[0]
        dtype = short_dtype(var.aval.dtype)
        x, number = self._begin("extract", 16 // max(itemsize(self.dtype), itemsize(dtype)))
        outer = len(self.outer)
        loops = [*self.outer, self.row, *self.columns]
        strides = [strides[i] for i in self.kept]
        strides = [*[0] * (len(loops) - len(strides)), *strides]  # rows may be no loop of ours
        placed = [Axis(a.extent, s) for a, s in zip(loops, strides, strict=True)]
        sink = Sink(
            var, dtype, 0, tuple(placed[:outer]), (placed[outer],), tuple(placed[outer + 1 :])
        )
        writer = TileWriter(self.program, sink, number)
        writer.store([x], self.bases, (self.row.extent, self.wide))
        return self._launch()

    def _begin(self, name: str, most: int) -> tuple[Value, list[Value]]:
        """Begin the kernel: a tile of elements, and its place along the outer loops."""
        self.program = Program(self.ctx, name)
        self.k = k = self.program.k
        k.schedule.vector = min(most, EACH)
        while not is_multiple(self.wide, k.schedule.vector):
            k.schedule.vector //= 2
        self.axes, k.schedule.workgroup = tile_of(self.ctx.gpu, self.row.extent, self.wide, EACH)
        self.bases, number = first_lanes(k, self.axes, k.program_id(), len(self.outer))
        digits = split_position(k, number, [a.extent for a in self.outer])
        self.shape = (self.axes[0].count, self.axes[1].count)
        self.edges = [
            k.broadcast(lanes.mask, self.shape)
            for lanes in tile_lanes(k, self.axes, self.bases)
            if lanes.mask is not None
        ]
        rows, columns = self._places()
        loops = [*self.outer, self.row, *self.columns]

        def total(steps: Sequence[int], start: int) -> Value:
            """`start + Σ place * step`: of scalars, of rows and of columns."""
            *outer, row = steps[: len(self.outer) + 1]
            first = offset_of(k, digits, outer) + start + self.bases[0] * row
            along = (rows * row) + first
            across = offset_of(k, columns, steps[len(self.outer) + 1 :])
            return k.broadcast(along, self.shape) + k.broadcast(across, self.shape)

        masks = list(self.edges)
        for j, limit in enumerate(self.limits):
            place = total([a.shifts[j] for a in loops], limit.start)
            # Negative numbers are large unsigned ones: one comparison for both ends.
            masks.append(k.convert(place, "u32") < k.const("u32", limit.extent))
        source = self.program.buffer(self.owner, self.dtype)
        at = total([a.stride for a in loops], self.offset)
        return k.load_at(source, at, every(k, masks)), digits

    def _places(self) -> tuple[Value, list[Value]]:
        """Rows of the tile, counted from its first one, and places along the loops of columns."""
        k, (high, wide) = self.k, self.shape
        column = k.iota(wide, "u32") + k.convert(self.bases[1], "u32")
        digits = split_position(k, column, [a.extent for a in self.columns])
        return k.expand(k.iota(high), 1), [k.expand(k.convert(d, "index"), 0) for d in digits]

    def _launch(self) -> Call:
        outer = math.prod(a.extent for a in self.outer)
        grid = outer * self.axes[0].blocks * self.axes[1].blocks
        return self.program.launch(grid, 1.0 * math.prod(self.shape))
