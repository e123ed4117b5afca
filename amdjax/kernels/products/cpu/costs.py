"""What products and convolutions cost on a CPU: packing, memory, threads.

Estimates are made in cycles of one thread and compared in nanoseconds; `CpuCosts` has the numbers.
"""

from __future__ import annotations

from amdjax.core.integers import ceil_div
from amdjax.kernels.products.contraction import (
    Contraction,
    Source,
    TileShape,
    lane_count,
    private_cache,
)
from amdjax.kernels.products.cpu.packing import UNROLLED
from amdjax.targets.cpu import PARALLEL_FROM, CpuTarget
from amdjax.tile import itemsize

ALIASED = 2048  # bytes between rows that share few sets of the caches
FAR_APART = 2048  # bytes between lines, from which on processors do not look ahead
LAUNCH_CLOCK = 2.5  # cycles in a nanosecond of a machine that is slow and busy
HIDDEN = 0.2  # of multiplying, what stores of the tile before take meanwhile


def nanoseconds(cycles: float, target: CpuTarget) -> float:
    """Cycles as time."""
    return cycles / target.costs.clock


def launch_time(cycles: float) -> float:
    """Nanoseconds that a launch counts as, which tell whether other threads are woken."""
    return cycles / LAUNCH_CLOCK


def launch(
    each: float,
    programs: int,
    target: CpuTarget,
    total: float | None = None,
    counted: float | None = None,
) -> float:
    """Cycles of a launch of programs that take at most `each`, until the last thread is done.

    Threads that are done help the others: of many programs, the last ones are hardly waited for.
    They are woken where a launch of as many `counted` cycles will wake them, by default the total.
    """
    costs, total = target.costs, each * programs if total is None else total
    threads = min(target.threads, programs)
    if threads < 2 or launch_time(total if counted is None else counted) <= PARALLEL_FROM:
        return costs.call + total
    last = ceil_div(programs, threads) * each if programs < 8 * threads else 0.0
    return costs.call + costs.wake + max(last, total / threads)


def packing(
    source: Source,
    lines: int,
    depth: int,
    group: int,
    target: CpuTarget,
    accumulate: str,
    size: int | None = None,
) -> float:
    """Cycles to copy a part of an operand to where panels of `group` lines are read from.

    Packed elements have `size` bytes, by default those of sums.

    Lines that are contiguous along the depth are copied one by one, and turned in registers where
    columns are packed; of others, lanes hold neighboring lines. See `packing.py`.
    """
    costs, lanes = target.costs, lane_count(target, accumulate)
    lanes = lanes * itemsize(accumulate) // size if size else lanes
    run = min(source.depth[-1].extent, depth) if source.depth else 1
    runs = ceil_div(depth, max(run, 1))
    each = costs.masked_copy if source.limits else costs.copy
    each += costs.convert * (size is None and source.dtype != accumulate)
    if source.depth and source.depth[-1].stride == 1:
        vectors = ceil_div(run, lanes)
        count = runs if runs * vectors > UNROLLED else 1
        return lines * (count * costs.line + runs * vectors * each)
    panels, vectors = ceil_div(lines, group), ceil_div(group, lanes)
    begins = runs * costs.run if len(source.depth) > 1 else 0.0
    if source.lines and source.lines[-1].stride != 1:
        return panels * begins + lines * depth * costs.gather
    if source.depth and comes_in_runs(source, target):
        each = max(each, group / vectors * itemsize(source.dtype) / costs.run_rate)
    if len(source.lines) > 1 and source.lines[-1].extent % group:
        each *= 2  # lanes hold the end of one run of lines and the beginning of the next
    return panels * (begins + depth * vectors * each)


def comes_in_runs(source: Source, target: CpuTarget) -> bool:
    """Whether steps along the depth are far apart in what only the last cache holds."""
    step = source.depth[-1].stride * itemsize(source.dtype)
    return step >= FAR_APART and source.depth_count * step > private_cache(target)


def return_cycles(nbytes: float, target: CpuTarget) -> float:
    """Cycles in which a byte comes again, after `nbytes` others, from beyond all caches.

    The last cache loses little of what takes three eighths of it, and all of what takes twice as
    much: data of other steps and processes is there too.
    """
    kept = target.l3_bytes * 3 / 8
    return min(max(nbytes / kept - 1, 0.0), 1.0) / target.costs.far_rate


def work(problem: Contraction, target: CpuTarget, words: TileShape | None = None) -> float:
    """Cycles of a product by which it is told whether to wake threads, the same for all plans.

    Otherwise plans that take longer would be chosen for that alone. They are of multiplying, in
    tiles of `words` if it is words that are multiplied, and until columns are there.
    """
    p, lanes = problem, lane_count(target, problem.accumulate)
    each = words.cycles(target.costs) / (words.rows * words.columns) if words else 0.5 / lanes
    arrival = itemsize(p.b.dtype) / target.costs.stream_rate
    return p.batches * p.columns * p.depth * (p.rows * each + arrival)


def conversions(problem: Contraction, rows: int, vectors: int, target: CpuTarget) -> float:
    """Cycles that a step of a tile takes to convert operands that are not in the sums' dtype."""
    a, b = (source.dtype != problem.accumulate for source in (problem.a, problem.b))
    return target.costs.convert * (rows * a + vectors * b)


def is_aliased(stride: int, dtype: str) -> bool:
    """Whether rows so many elements apart share few sets of the caches."""
    nbytes = stride * itemsize(dtype)
    return nbytes > 0 and nbytes % ALIASED == 0


def store_stall(
    problem: Contraction, rows: int, cycles: float, target: CpuTarget, prefetched: bool
) -> float:
    """Cycles that a tile of so many rows waits for its stores, after so many of multiplying.

    That is where rows of a large result share sets of the caches; less so if they were
    `prefetched`.
    """
    result = problem.batches * problem.rows * problem.columns * itemsize(problem.out.dtype)
    stride = problem.out.rows[-1].stride if problem.out.rows else 0
    if 2 * result <= private_cache(target) or not is_aliased(stride, problem.out.dtype):
        return 0.0
    return max(0.0, rows * target.costs.store - cycles * (1 if prefetched else HIDDEN))


def combining(problem: Contraction, splits: int, target: CpuTarget) -> float:
    """Cycles of the launch that adds the parts of a sum which programs share."""
    if splits == 1:
        return 0.0
    problem = problem.at_hand
    vectors = ceil_div(problem.columns, lane_count(target, problem.accumulate))
    each = (splits + 1) * vectors * target.costs.copy
    return launch(each, problem.batches * problem.rows, target)
