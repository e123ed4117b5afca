"""How scans along an axis are computed: the direction of lanes, and how rows are split.

Rows are split where they alone do not keep the machine busy.
"""

from __future__ import annotations

import math

from amdjax.core.integers import ceil_div, power_of_two, round_up
from amdjax.kernels.gpu_loops import threads_for
from amdjax.kernels.loops import lanes_for
from amdjax.kernels.scan.combiner import Combiner
from amdjax.kernels.scan.emit import UNROLL, AcrossPlan, AlongPlan, RowShape, ShortRowsPlan
from amdjax.kernels.shaped import CopyPlan, KernelPlan, ShapedContext, shaped
from amdjax.schedule.element import compute_dtype, part_dtype
from amdjax.schedule.gpu.tiles import fastest_vector
from amdjax.targets import GpuTarget
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

SPLIT_FROM = 1 << 14  # elements below which a row is not split on a CPU
SHORT = 64  # rows from this length on have a workgroup each
EACH = 8  # elements of a thread
ROWS_EACH = 16  # of short rows
MOST_SPLITS = 2048  # of a row, whose totals are combined as one tile


@shaped("cumulative")
def plan_scan(ctx: ShapedContext) -> KernelPlan:
    """How a CPU scans: the direction of lanes, and splits."""
    shape, axis = ctx.inputs[0].aval.shape, ctx.params["axis"]
    if not math.prod(shape):
        return CopyPlan([(ctx.inputs[0], ctx.outputs[0])])
    outer, n, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    combine, reverse = Combiner.of(ctx), ctx.params["reverse"]
    if inner == 1 and (n >= 16 or outer < 16):
        return _along(ctx.target, combine, reverse, outer, n)
    rows = RowShape(outer, n, inner, step=inner, row_stride=1)
    if inner == 1:  # short rows side by side: neighboring rows lie n elements apart
        rows = RowShape(1, n, outer, step=1, row_stride=n)
    lanes = _row_lanes(ctx.target, combine, rows)
    bundles = rows.outer * ceil_div(rows.inner, lanes)
    length = _length(bundles, n, _wanted(ctx.target, bundles), max(64, SPLIT_FROM // lanes), rows)
    return AcrossPlan(combine, reverse, bundles, n, length, lanes, shape=rows)


@shaped("cumulative", on="gpu")
def plan_gpu_scan(ctx: ShapedContext) -> KernelPlan | None:
    """How a GPU scans; None for what is combined step by step.

    Along the last axis a tile is spread over a workgroup; across rows a thread has rows of its own.
    """
    shape, axis, gpu = ctx.inputs[0].aval.shape, ctx.params["axis"], ctx.gpu
    if not math.prod(shape):
        return None
    outer, n, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    combine, reverse = Combiner.of(ctx), ctx.params["reverse"]
    if inner > 1:
        rows = RowShape(outer, n, inner, step=inner, row_stride=1)
        lanes = _row_lanes(ctx.target, combine, rows)
        bundles = outer * ceil_div(inner, lanes)
        # Splits go through the totals of all before them.
        length = _length(
            bundles, n, gpu.busy_threads // gpu.wave_size, max(64, math.isqrt(n)), rows
        )
        return AcrossPlan(combine, reverse, bundles, n, length, lanes, shape=rows)
    if combine.tile_op is None:
        return None
    if n < SHORT:
        return _short_rows(gpu, combine, reverse, outer, n)
    return _along_gpu(gpu, combine, reverse, outer, n)


def _along(target: CpuTarget, combine: Combiner, reverse: bool, rows: int, n: int) -> AlongPlan:
    lanes = lanes_for(target, _computed(combine), n, 1)
    shape = RowShape(rows, n, 1, 1, n)
    length = _length(rows, n, _wanted(target, rows), SPLIT_FROM, shape)
    length = min(n, round_up(length, lanes * UNROLL))
    return AlongPlan(combine, reverse, rows, n, length, lanes)


def _along_gpu(target: GpuTarget, combine: Combiner, reverse: bool, rows: int, n: int) -> AlongPlan:
    threads = threads_for(target, n, EACH)
    lanes = min(threads * EACH, power_of_two(n))
    vector = fastest_vector(target, 8 * itemsize(part_dtype(combine.dtype)), n)
    wanted = target.busy_threads // threads
    wanted = min(wanted, MOST_SPLITS * rows) if rows < wanted else 1
    length = _length(rows, n, wanted, 2 * lanes, RowShape(rows, n, 1, 1, n))
    length = min(n, round_up(length, lanes))
    return AlongPlan(combine, reverse, rows, n, length, lanes, 1, threads, vector)


def _short_rows(
    target: GpuTarget, combine: Combiner, reverse: bool, rows: int, n: int
) -> ShortRowsPlan:
    wide = power_of_two(n)
    threads = threads_for(target, rows * wide, ROWS_EACH)
    high = min(threads * ROWS_EACH // wide, power_of_two(rows))
    vector = fastest_vector(target, 8 * itemsize(combine.dtype), n)
    return ShortRowsPlan(combine, reverse, rows, n, high, threads, vector)


def _computed(combine: Combiner) -> str:
    """The dtype in which (parts of) elements are combined."""
    return compute_dtype(part_dtype(combine.dtype))


def _row_lanes(target: CpuTarget, combine: Combiner, rows: RowShape) -> int:
    """Neighboring rows that are scanned at once."""
    return lanes_for(target, _computed(combine), rows.inner, 4 if rows.row_stride == 1 else 1)


def _wanted(target: CpuTarget, rows: int) -> int:
    """Programs for all rows."""
    return 4 * target.threads if target.threads > 1 and rows < 2 * target.threads else 1


def _length(rows: int, n: int, wanted: int, least: int, shape: RowShape) -> int:
    """Elements of a row that a program takes, where as many are wanted and `least` worth one."""
    most = shape.total // (rows * least)
    return ceil_div(n, max(1, min(ceil_div(wanted, rows), most)))
