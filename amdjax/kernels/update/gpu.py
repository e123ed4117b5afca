"""Writing a window into an array on a GPU: only the window moves where the array need not be kept.

Elements move in words as wide as rows of the window, and the places where it may begin, allow. A
program takes a tile of a few rows; of short rows, which fill no tile, it takes words one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdjax.core.integers import power_of_two
from amdjax.kernels.gpu_loops import EACH, element_tile, threads_for
from amdjax.kernels.loops import Axis, merge_axes, offset_of, row_major, split_position, view
from amdjax.kernels.shaped import Call, Copy, KernelPlan, ShapedContext, shaped
from amdjax.kernels.update.cpu import plain_copy, window_start
from amdjax.schedule.gpu.tiles import (
    TileAxis,
    block_extent,
    fastest_vector,
    first_lanes,
    tile_lanes,
)
from amdjax.schedule.index import LoopVar
from amdjax.schedule.row_plan import counted
from amdjax.schedule.values import short_dtype
from amdjax.tile import Buffer, Builder, Value, itemsize

WORD = 8  # bytes that move as one at most
SHORT = 32  # words of a row from which on tiles are rows


@dataclass(frozen=True)
class GpuWindowPlan:
    """A window that moves in words.

    Args:
      word: bytes of one.
      outer: the loops around rows, in words.
      row: words of a row.
    """

    word: int
    outer: tuple[Axis, ...]
    row: int

    def emit(self, ctx: ShapedContext) -> list[Call | Copy]:
        return [Copy(ctx.inputs[0], ctx.outputs[0]), _Window(ctx, self).call()]

    def __str__(self) -> str:
        rows = math.prod(a.extent for a in self.outer)
        moved = "tiles of rows" if self.row >= SHORT else "words one by one"
        return f"window of {counted(rows, 'row')} of {self.row} words of {self.word} bytes, {moved}"


@shaped("dynamic_update_slice", on="gpu")
def plan_window(ctx: ShapedContext) -> KernelPlan:
    """A copy of the operand (or its memory, if free), then the window."""
    if copy := plain_copy(ctx):
        return copy
    update, result = ctx.inputs[1], ctx.outputs[0]
    shape, total = update.aval.shape, result.aval.shape
    size = itemsize(short_dtype(update.aval.dtype))
    strides = [s * size for s in row_major(total)]
    axes = [Axis(n, s * size, t) for n, s, t in zip(shape, row_major(shape), strides, strict=True)]
    outer, row = merge_axes([*axes, Axis(size, 1, 1)]), Axis(1, 1, 1)
    if outer and outer[-1].source == outer[-1].target == 1:
        row = outer.pop()
    partial = [t for n, m, t in zip(shape, total, strides, strict=True) if n != m]
    steps = [step for axis in outer for step in (axis.source, axis.target)]
    word = math.gcd(WORD, row.extent, *partial, *steps)
    in_words = tuple(Axis(a.extent, a.source // word, a.target // word) for a in outer)
    return GpuWindowPlan(word, in_words, row.extent // word)


class _Window:
    """The launch that writes a window."""

    def __init__(self, ctx: ShapedContext, plan: GpuWindowPlan):
        self.ctx, self.result = ctx, ctx.outputs[0]
        _, self.update, *self.starts = ctx.inputs
        self.shape, self.total = self.update.aval.shape, self.result.aval.shape
        self.word, self.outer, self.row = plan.word, plan.outer, plan.row
        size = itemsize(short_dtype(self.update.aval.dtype))
        self.strides = [t * size // plan.word for t in row_major(self.total)]

    def call(self) -> Call:
        """The launch."""
        kernel, dtype = self.ctx.kernel("update_slice"), f"u{8 * self.word}"
        source = view(kernel.input(self.update), dtype)
        target = view(kernel.inout(self.result), dtype)
        base = window_start(kernel, self.starts, self.shape, self.total, self.strides)
        move = self._move_rows if self.row >= SHORT else self._move_words
        grid = move(kernel.k, source, target, base)
        return kernel.launch(grid, 0.1 * self.update.aval.nbytes)

    def _move_rows(self, k: Builder, source: Buffer, target: Buffer, base: Value) -> int:
        """A tile of rows a program; the number of programs."""
        gpu, outer = self.ctx.gpu, list(self.outer)
        slow = outer.pop() if outer else Axis(1, 0, 0)
        # Accesses wider than a word would have to be aligned by chance.
        k.schedule.vector = fastest_vector(gpu, 8 * self.word, self.row) if self.word == WORD else 1
        words = self.update.aval.nbytes // self.word
        each = EACH if words >= EACH * gpu.busy_threads else k.schedule.vector
        k.schedule.workgroup = threads_for(gpu, words, each)
        count = k.schedule.workgroup * each
        wide = block_extent(self.row, count)
        high = min(power_of_two(slow.extent), count // wide)
        axes = [TileAxis(LoopVar("r", slow.extent), high), TileAxis(LoopVar("c", self.row), wide)]
        bases, number = first_lanes(k, axes, k.program_id(), len(outer))
        outer_place = split_position(k, number, [a.extent for a in outer])
        mask = None
        for lanes in tile_lanes(k, axes, bases):
            if lanes.mask is not None:
                edge = k.broadcast(lanes.mask, (high, wide))
                mask = edge if mask is None else mask & edge
        loops, places = [*outer, slow, Axis(self.row, 1, 1)], [*outer_place, *bases]
        first = offset_of(k, places, [a.source for a in loops])
        x = k.load(source, first, (high, wide), (slow.source, 1), mask)
        first = base + offset_of(k, places, [a.target for a in loops])
        k.store(target, first, x, (slow.target, 1), mask)
        return math.prod(a.extent for a in outer) * axes[0].blocks * axes[1].blocks

    def _move_words(self, k: Builder, source: Buffer, target: Buffer, base: Value) -> int:
        """A tile of words a program; the number of programs."""
        axes = [*self.outer, Axis(self.row, 1, 1)]
        total = math.prod(a.extent for a in axes)
        number, mask, grid = element_tile(k, self.ctx.gpu, total)
        x = k.load(source, k.program_id() * number.shape[0], number.shape, None, mask)
        places = split_position(k, number, [a.extent for a in axes])
        at = offset_of(k, places, [a.target for a in axes]) + k.broadcast(base, number.shape)
        k.store_at(target, at, x, mask, unique=True)
        return grid
