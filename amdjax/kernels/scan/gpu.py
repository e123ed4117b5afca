"""Scans along an axis, on GPUs.

Along the last axis a tile is spread over a workgroup, which combines it at once and carries its
total on to the next one; short rows are tiles of many, each of which a thread walks. Rows that
leave the machine idle are cut into pieces, as on a CPU; what precedes a piece is the totals of all
pieces before it, combined as one tile. Across rows, each thread walks rows of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from amdjax.core.integers import power_of_two
from amdjax.kernels.gpu_loops import every, threads_for
from amdjax.kernels.scan.cpu import Across, Along, Combiner
from amdjax.kernels.shaped import Call, Copy, ShapedContext, Temp, shaped
from amdjax.schedule.element import El, compute_dtype, part_dtype, short_dtype
from amdjax.schedule.gpu.tiles import TileAxis, fastest_vector, tile_lanes
from amdjax.schedule.index import LoopVar
from amdjax.tile import Value, itemsize

EACH = 8  # elements of a thread
ROWS_EACH = 16  # of short rows
SHORT = 64  # rows from this length on have a workgroup each
MOST_PIECES = 2048  # of a row, whose totals are combined as one tile


@shaped("cumulative", on="gpu")
def lower_cumulative(ctx: ShapedContext) -> list[Call | Copy] | None:
    """Lanes along or across rows; None for what is combined step by step."""
    shape, axis = ctx.inputs[0].aval.shape, ctx.params["axis"]
    if not math.prod(shape):
        return None
    outer, n, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if inner > 1:
        return list(GpuAcross(ctx, outer, n, inner, step=inner, apart=1).build())
    if n < SHORT:
        return _short_rows(ctx, outer, n)
    rows = GpuAlong(ctx, outer, n)
    return list(rows.build()) if rows.combine.tile_op else None


def _short_rows(ctx: ShapedContext, rows: int, n: int) -> list[Call | Copy] | None:
    """Many rows in a tile; None for what is combined step by step."""
    var, result = ctx.inputs[0], ctx.outputs[0]
    dtype = short_dtype(var.aval.dtype)
    combine = Combiner(ctx.eqn.primitive.name, dtype)
    if combine.tile_op is None:
        return None
    kernel = ctx.kernel("scan")
    k, wide = kernel.k, power_of_two(n)
    k.schedule.workgroup = threads_for(ctx.gpu, rows * wide, ROWS_EACH)
    high = min(k.schedule.workgroup * ROWS_EACH // wide, power_of_two(rows))
    k.schedule.vector = fastest_vector(ctx.gpu, 8 * itemsize(dtype), n)
    axes = [TileAxis(LoopVar("r", rows), high), TileAxis(LoopVar("c", n), wide)]
    first = k.program_id() * high
    lanes = tile_lanes(k, axes, [first, k.const("index", 0)])
    mask = every(k, [k.broadcast(x.mask, (high, wide)) for x in lanes if x.mask is not None])
    x = k.load(kernel.input(var), first * n, (high, wide), (n, 1), mask)
    x = k.convert(x, compute_dtype(dtype))
    if mask is not None:
        x = k.select(mask, x, k.broadcast(combine.identity(k).value, (high, wide)))
    x = k.convert(k.cumulative(combine.tile_op, x, ctx.params["reverse"]), dtype)
    k.store(kernel.output(result), first * n, x, (n, 1), mask)
    return [kernel.launch(axes[0].blocks, 0.5 * high * wide)]


class GpuAlong(Along):
    """A workgroup along each piece of a row."""

    unroll = 1

    def __init__(self, ctx: ShapedContext, rows: int, n: int):
        self.threads = ctx.gpu.usual_workgroup
        while self.threads > ctx.gpu.wave_size and n <= self.threads * EACH // 2:
            self.threads //= 2
        part = part_dtype(short_dtype(ctx.inputs[0].aval.dtype))
        self.vector = fastest_vector(ctx.gpu, 8 * itemsize(part), n)
        super().__init__(ctx, rows, n)

    def lane_count(self, ctx: ShapedContext, dtype: str, n: int) -> int:
        return min(self.threads * EACH, power_of_two(n))

    def wanted_programs(self) -> int:
        wanted = self.ctx.gpu.busy_threads // self.threads
        return min(wanted, MOST_PIECES * self.rows) if self.rows < wanted else 1

    def least_piece(self) -> int:
        return 2 * self.count

    def begin(self, name: str) -> tuple[Value, Value, Value, Value]:
        found = super().begin(name)
        self.k.schedule.workgroup, self.k.schedule.vector = self.threads, self.vector
        return found

    def before(
        self, row: Value, piece: Value, totals: list[Temp] | None, fetch: Callable[[Value], El]
    ) -> El:
        if totals is None:
            return self.start()
        k, count = self.k, power_of_two(self.pieces)
        number = k.iota(count, "i32")
        here = k.convert(piece, "i32")
        there = number > here if self.reverse else number < here
        exists = there & (number < k.const("i32", self.pieces, (count,)))
        (total,) = (self.kernel.input(t) for t in totals)
        x = k.load(total, row * self.pieces, (count,), (1,), exists)
        neutral = k.broadcast(self.start().value, (count,))
        assert self.combine.tile_op is not None
        return self.element([k.reduce(self.combine.tile_op, k.select(exists, x, neutral))])


class GpuAcross(Across):
    """A thread along each row, or along a piece of it."""

    def wanted_programs(self) -> int:
        return self.ctx.gpu.busy_threads // self.ctx.gpu.wave_size

    def least_piece(self) -> int:
        return max(64, math.isqrt(self.n))  # pieces go through the totals of all before them
