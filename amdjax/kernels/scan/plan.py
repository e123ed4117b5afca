"""How scans along an axis are computed: the direction of lanes, and how rows are split.

Rows are split where they alone do not keep the machine busy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdjax.core.dims import choosing, covering, size_hint
from amdjax.core.integers import ceil_div, power_of_two, round_up
from amdjax.kernels.gpu_loops import threads_for
from amdjax.kernels.loops import lanes_for
from amdjax.kernels.scan.combiner import Combiner
from amdjax.kernels.scan.emit import UNROLL, AcrossPlan, AlongPlan, RowShape, ShortRowsPlan
from amdjax.kernels.shaped import CopyPlan, KernelPlan, ShapedContext, shaped
from amdjax.schedule.gpu.tiles import fastest_vector
from amdjax.schedule.search import Family, Solver, busy_time, shares
from amdjax.schedule.values import compute_dtype, part_dtype
from amdjax.targets import GpuTarget
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

SPLIT_FROM = 1 << 14  # elements below which a row is not split on a CPU
SHORT = 64  # rows from this length on have a workgroup each
EACH = 8  # elements of a thread
ROWS_EACH = 16  # of short rows
MOST_SPLITS = 2048  # of a row, whose totals are combined as one tile


@dataclass(frozen=True)
class ScanProblem:
    """Rows to scan: along an axis of length `n`, with `inner` elements between neighbors."""

    combine: Combiner
    reverse: bool
    outer: int
    n: int
    inner: int

    @staticmethod
    def of(ctx: ShapedContext) -> ScanProblem:
        shape, axis = ctx.inputs[0].aval.shape, ctx.params["axis"]
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        return ScanProblem(Combiner.of(ctx), ctx.params["reverse"], outer, shape[axis], inner)

    @property
    def computed(self) -> str:
        """The dtype in which (parts of) elements are combined."""
        return compute_dtype(part_dtype(self.combine.dtype))


@shaped("cumulative")
def plan_scan(ctx: ShapedContext) -> KernelPlan:
    """How a CPU scans."""
    if not ctx.inputs[0].aval.size:
        return CopyPlan([(ctx.inputs[0], ctx.outputs[0])])
    return CPU_SCANS.best(ScanProblem.of(ctx), ctx.target)


@shaped("cumulative", on="gpu")
def plan_gpu_scan(ctx: ShapedContext) -> KernelPlan | None:
    """How a GPU scans; None for what is combined step by step."""
    return GPU_SCANS.find(ScanProblem.of(ctx), ctx.gpu) if ctx.inputs[0].aval.size else None


def cpu_scans(p: ScanProblem, target: CpuTarget) -> list[AlongPlan] | list[AcrossPlan]:
    """The direction of lanes, and rows split in different numbers where they are few."""
    with choosing():  # both directions, and all lengths, are right for all sizes
        return _cpu_scans(p, target)


def _cpu_scans(p: ScanProblem, target: CpuTarget) -> list[AlongPlan] | list[AcrossPlan]:
    if p.inner == 1 and (p.n >= 16 or p.outer < 16):
        lanes = lanes_for(target, p.computed, p.n, 1)
        most = _most_splits(p.outer, p, _wanted(target, p.outer), SPLIT_FROM)
        return _along(p, most, lanes, UNROLL)
    rows = RowShape(p.outer, p.n, p.inner, step=p.inner, row_stride=1)
    if p.inner == 1:  # short rows side by side: neighboring rows lie n elements apart
        rows = RowShape(1, p.n, p.outer, step=1, row_stride=p.n)
    lanes, bundles = _bundles(p, rows, target)
    most = _most_splits(bundles, p, _wanted(target, bundles), max(64, SPLIT_FROM // lanes))
    return _across(p, most, lanes, bundles, rows)


def gpu_scans(
    p: ScanProblem, target: GpuTarget
) -> list[AlongPlan] | list[AcrossPlan] | list[ShortRowsPlan]:
    """Along the last axis tiles of a workgroup; across rows a thread has rows of its own."""
    with choosing():  # all of them are right for all sizes
        return _gpu_scans(p, target)


def _gpu_scans(
    p: ScanProblem, target: GpuTarget
) -> list[AlongPlan] | list[AcrossPlan] | list[ShortRowsPlan]:
    if p.inner > 1:
        rows = RowShape(p.outer, p.n, p.inner, step=p.inner, row_stride=1)
        lanes, bundles = _bundles(p, rows, target.vectors)
        wanted = target.busy_threads // target.wave_size
        # Splits go through the totals of all before them.
        most = _most_splits(bundles, p, wanted, max(64, math.isqrt(p.n)))
        return _across(p, most, lanes, bundles, rows)
    if p.combine.tile_op is None:
        return []
    if p.n < SHORT:
        return [_short_rows(target, p)]
    threads = threads_for(target, p.n, EACH)
    lanes = min(threads * EACH, power_of_two(p.n))
    vector = fastest_vector(target, 8 * itemsize(part_dtype(p.combine.dtype)), p.n)
    wanted = min(target.busy_threads // threads, MOST_SPLITS * p.outer)
    most = _most_splits(p.outer, p, wanted, 2 * lanes)
    return _along(p, most, lanes, 1, threads, vector)


def cpu_scan_cost(p: ScanProblem, plan: AlongPlan | AcrossPlan, target: CpuTarget) -> float:
    """Elements that a thread takes."""
    return busy_time(plan.total, plan.rows * plan.splits, 4 * target.threads)


def gpu_scan_cost(
    p: ScanProblem, plan: AlongPlan | AcrossPlan | ShortRowsPlan, target: GpuTarget
) -> float:
    """Elements that a program takes, of as many as keep the machine busy."""
    if isinstance(plan, ShortRowsPlan):
        return plan.n * plan.high
    busy = target.busy_threads // (plan.threads or target.wave_size)
    return busy_time(plan.total, plan.rows * plan.splits, busy)


CPU_SCANS: Family[ScanProblem, CpuTarget, AlongPlan | AcrossPlan] = Family(
    "scan on a CPU", Solver("scan", cpu_scans, cpu_scan_cost)
)
GPU_SCANS: Family[ScanProblem, GpuTarget, AlongPlan | AcrossPlan | ShortRowsPlan] = Family(
    "scan on a GPU", Solver("scan", gpu_scans, gpu_scan_cost)
)


def _along(p: ScanProblem, most: int, lanes: int, unroll: int, *gpu: int) -> list[AlongPlan]:
    """Plans with up to so many programs for a row, each of which takes whole steps."""
    parts = (ceil_div(p.n, n) for n in shares(most))
    lengths = dict.fromkeys(min(p.n, round_up(part, lanes * unroll)) for part in parts)
    own = p.combine, p.reverse, p.outer, p.n
    return [AlongPlan(*own, length, lanes, unroll, *gpu) for length in lengths]


def _across(
    p: ScanProblem, most: int, lanes: int, bundles: int, rows: RowShape
) -> list[AcrossPlan]:
    lengths = dict.fromkeys(ceil_div(p.n, n) for n in shares(most))
    own = p.combine, p.reverse, bundles, p.n
    return [AcrossPlan(*own, length, lanes, shape=rows) for length in lengths]


def _short_rows(target: GpuTarget, p: ScanProblem) -> ShortRowsPlan:
    wide = covering(p.n)
    threads = threads_for(target, p.outer * wide, ROWS_EACH)
    high = min(threads * ROWS_EACH // wide, power_of_two(p.outer))
    vector = fastest_vector(target, 8 * itemsize(p.combine.dtype), p.n)
    return ShortRowsPlan(p.combine, p.reverse, p.outer, p.n, high, wide, threads, vector)


def _bundles(p: ScanProblem, rows: RowShape, target: CpuTarget) -> tuple[int, int]:
    """Neighboring rows that are scanned at once, and how many times so many there are."""
    lanes = lanes_for(target, p.computed, rows.inner, 4 if rows.row_stride == 1 else 1)
    return lanes, rows.outer * ceil_div(rows.inner, lanes)


def _wanted(target: CpuTarget, rows: int) -> int:
    """Programs for all rows."""
    return 4 * target.threads if target.threads > 1 and rows < 2 * target.threads else 1


def _most_splits(rows: int, p: ScanProblem, wanted: int, least: int) -> int:
    """Programs for a row, where as many are wanted and `least` elements are worth one."""
    rows, size = size_hint(rows), size_hint(p.outer * p.n * p.inner)
    return max(1, min(ceil_div(wanted, rows), size // (rows * least)))
