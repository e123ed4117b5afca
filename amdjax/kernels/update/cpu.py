"""Writing a window into an array at a position known only at run time."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from amdjax.kernels.shaped import Call, Copy, ShapedContext, ShapedKernel, shaped
from amdjax.schedule.element import short_dtype
from amdjax.tile import Value, itemsize


@shaped("dynamic_update_slice")
def lower_dynamic_update_slice(ctx: ShapedContext) -> list[Call | Copy]:
    """A copy of the operand (or its memory, if free), then the window, row by row."""
    operand, update, *starts = ctx.inputs
    result = ctx.outputs[0]
    calls: list[Call | Copy] = [Copy(operand, result)]
    if math.prod(update.aval.shape):
        calls.append(_write_window(ctx, update, result, starts))
    return calls


def _write_window(ctx: ShapedContext, update: Any, result: Any, starts: Sequence[Any]) -> Call:
    dtype, parts = bits_dtype(short_dtype(update.aval.dtype))
    kernel = ctx.kernel("update_slice")
    k = kernel.k
    source, target = view(kernel.input(update), dtype), view(kernel.inout(result), dtype)
    shape, total = update.aval.shape, result.aval.shape
    base = window_start(kernel, starts, shape, total, [t * parts for t in row_major(total)])
    axes = [
        Axis(n, s * parts, t * parts)
        for n, s, t in zip(shape, row_major(shape), row_major(total), strict=True)
    ]
    axes = merge_axes([*axes, Axis(parts, 1, 1)]) or [Axis(1, 1, 1)]
    lane = max(
        range(len(axes)),
        key=lambda i: (axes[i].target == 1 and axes[i].extent >= 8, axes[i].extent),
    )
    across = axes.pop(lane)
    count = lanes_for(ctx, dtype, across.extent)
    rows = math.prod(a.extent for a in axes)

    def row(position: Value, start: Value | int, stop: Value | int) -> None:
        index = split_position(k, position, [a.extent for a in axes])
        read = offset_of(k, index, [a.source for a in axes])
        write = base + offset_of(k, index, [a.target for a in axes])

        def body(i: Value, mask: Value | None) -> None:
            x = k.load(
                source, read + offset_of(k, [i], [across.source]), (count,), [across.source], mask
            )
            k.store(target, write + offset_of(k, [i], [across.target]), x, [across.target], mask)

        lane_loop(k, start, stop, count, body)

    work = 0.1 * rows * across.extent * itemsize(dtype)
    if across.extent > CHUNK:
        pieces = ceil_div(across.extent, CHUNK)
        pid = k.program_id()
        start = (pid % pieces) * CHUNK
        stop = k.min(start + CHUNK, across.extent)
        row(pid // pieces, start, stop)
        return kernel.launch(rows * pieces, work)
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
