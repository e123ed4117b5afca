"""Writing a window into an array at a position known only at run time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.integers import ceil_div
from amdjax.kernels.loops import (
    CHUNK,
    Axis,
    bits_dtype,
    lane_loop,
    lanes_for,
    merge_axes,
    offset_of,
    row_major,
    split_position,
    view,
)
from amdjax.kernels.shaped import (
    Call,
    Copy,
    CopyPlan,
    KernelPlan,
    ShapedContext,
    ShapedKernel,
    shaped,
)
from amdjax.schedule.row_plan import counted
from amdjax.schedule.values import short_dtype
from amdjax.tile import Value, itemsize


@dataclass(frozen=True)
class WindowPlan:
    """A window that is written row by row.

    Args:
      outer: the loops around rows.
      row: the loop in vector lanes.
      lanes: elements that move at once.
    """

    outer: tuple[Axis, ...]
    row: Axis
    lanes: int

    @property
    def rows(self) -> int:
        return math.prod(a.extent for a in self.outer)

    def emit(self, ctx: ShapedContext) -> list[Call | Copy]:
        return [Copy(ctx.inputs[0], ctx.outputs[0]), _write_window(ctx, self)]

    def __str__(self) -> str:
        return f"window of {counted(self.rows, 'row')} of {self.row.extent}, {self.lanes} lanes"


def plain_copy(ctx: ShapedContext) -> CopyPlan | None:
    """What a window of nothing, or of everything, which begins at the first element, comes to."""
    operand, update = ctx.inputs[:2]
    if not update.aval.size:
        return CopyPlan([(operand, ctx.outputs[0])])
    if update.aval.shape == operand.aval.shape:
        return CopyPlan([(update, ctx.outputs[0])])
    return None


@shaped("dynamic_update_slice")
def plan_window(ctx: ShapedContext) -> KernelPlan:
    """A copy of the operand (or its memory, if free), then the window, row by row."""
    if copy := plain_copy(ctx):
        return copy
    update, result = ctx.inputs[1], ctx.outputs[0]
    dtype, parts = bits_dtype(short_dtype(update.aval.dtype))
    shape, total = update.aval.shape, result.aval.shape
    axes = [
        Axis(n, s * parts, t * parts)
        for n, s, t in zip(shape, row_major(shape), row_major(total), strict=True)
    ]
    axes = merge_axes([*axes, Axis(parts, 1, 1)]) or [Axis(1, 1, 1)]
    lane = max(
        range(len(axes)),
        key=lambda i: (axes[i].target == 1 and axes[i].extent >= 8, axes[i].extent),
    )
    row = axes.pop(lane)
    return WindowPlan(tuple(axes), row, lanes_for(ctx.target, dtype, row.extent))


def _write_window(ctx: ShapedContext, plan: WindowPlan) -> Call:
    (_, update, *starts), result = ctx.inputs, ctx.outputs[0]
    dtype, parts = bits_dtype(short_dtype(update.aval.dtype))
    kernel = ctx.kernel("update_slice")
    k = kernel.k
    source, target = view(kernel.input(update), dtype), view(kernel.inout(result), dtype)
    shape, total = update.aval.shape, result.aval.shape
    base = window_start(kernel, starts, shape, total, [t * parts for t in row_major(total)])
    across, count, rows = plan.row, plan.lanes, plan.rows

    def row(position: Value, start: Value | int, stop: Value | int) -> None:
        index = split_position(k, position, [a.extent for a in plan.outer])
        read = offset_of(k, index, [a.source for a in plan.outer])
        write = base + offset_of(k, index, [a.target for a in plan.outer])

        def body(i: Value, mask: Value | None) -> None:
            x = k.load(
                source, read + offset_of(k, [i], [across.source]), (count,), [across.source], mask
            )
            k.store(target, write + offset_of(k, [i], [across.target]), x, [across.target], mask)

        lane_loop(k, start, stop, count, body)

    work = 0.1 * rows * across.extent * itemsize(dtype)
    if across.extent > CHUNK:
        chunks = ceil_div(across.extent, CHUNK)
        pid = k.program_id()
        start = (pid % chunks) * CHUNK
        stop = k.min(start + CHUNK, across.extent)
        row(pid // chunks, start, stop)
        return kernel.launch(rows * chunks, work)
    bundle = max(1, CHUNK // across.extent)
    first = k.program_id() * bundle
    last = k.min(first + bundle, rows)
    k.for_(first, last, 1, lambda i: row(i, 0, across.extent))
    return kernel.launch(ceil_div(rows, bundle), work)


def window_start(
    kernel: ShapedKernel,
    starts: Sequence[Any],
    shape: Sequence[int],
    total: Sequence[int],
    strides: Sequence[int],
) -> Value:
    """Where the window begins; starts are clamped so that it fits.

    Args:
      kernel: reads the starts.
      starts: a number for each axis.
      shape: of the window.
      total: shape of the array.
      strides: by how much a step along each axis moves the place.
    """
    k = kernel.k
    base = k.const("index", 0)
    for start, n, m, stride in zip(starts, shape, total, strides, strict=True):
        if n == m:
            continue
        x = k.convert(k.load(kernel.input(start), 0), "index")
        x = k.min(k.max(x, 0), m - n)
        base = base + x * stride
    return base
