"""Plans of rows on a GPU, and what rows that do not fit the registers keep between passes.

What several passes read from memory stays in LDS where that is large enough, in the dtype it has in
memory, and so does what costs much to compute again. Otherwise sums relative to an extremum are
computed in the pass that finds it (`online_softmax.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from amdjax import tile
from amdjax.core.dims import choosing
from amdjax.core.integers import power_of_two
from amdjax.core.jaxpr import Var
from amdjax.schedule.domain import Domain
from amdjax.schedule.fusion import Fusion, Region, Root
from amdjax.schedule.gpu.online_softmax import merge_passes
from amdjax.schedule.gpu.row_plan import (
    GpuRowPlan,
    Resources,
    Tiling,
    fitted,
    gpu_row_cost,
    splits_of,
    tiling_of_rows,
    with_stash,
)
from amdjax.schedule.gpu.tiles import narrowest
from amdjax.schedule.index import Index, LoopVar, placed
from amdjax.schedule.row_plan import STASH_COST, is_read_later
from amdjax.schedule.search import Family, Solver
from amdjax.schedule.values import compute_dtype, short_dtype
from amdjax.targets import GpuTarget

#: Bytes of LDS through which reductions combine waves.
RESERVED = 4096
PART = 4  # of a row one such part at least is kept in LDS, or none
DEEP = 32  # elements of a tile that a thread holds at most, where it has the registers


def gpu_row_plans(domain: Domain, target: GpuTarget) -> list[GpuRowPlan]:
    """Schedules of a region with reductions on a GPU, which split rows in different numbers."""
    region, fusion = domain.region, domain.fusion
    resources = Resources(region, domain, target)
    with choosing():
        tiling = tiling_of_rows(resources, lambda: _deep(resources, fusion))
    plan = GpuRowPlan(region, frozenset(fusion.stored), domain, 1, (), tiling)
    if plan.levels and plan.is_long_row:
        plan = _kept_between_passes(plan, resources, fusion)
    elif not plan.is_long_row:
        plan = with_stash(plan, target)
    return splits_of(plan, target)


GPU_ROWS: Family[Domain, GpuTarget, GpuRowPlan] = Family(
    "rows on a GPU", Solver("rows", gpu_row_plans, gpu_row_cost)
)


def _deep(resources: Resources, fusion: Fusion) -> int:
    """Elements of a row that is read again of which a thread has registers for so many."""
    merged, _ = merge_passes(resources.region, fusion)
    if not any(r.level for r in merged.roots):
        return 0
    each = resources.target.registers_of(resources.most_threads)
    words = max(resources.domain.widest // 32, 1)
    return min(each // (2 * resources.alive * words), DEEP)


def _kept_between_passes(plan: GpuRowPlan, resources: Resources, fusion: Fusion) -> GpuRowPlan:
    """Decide what stays in LDS, and which passes become one."""
    target = resources.target
    plan = _aligned(plan, target)
    inputs, costly = _worth_keeping(plan)
    if not (costly and _fits(plan, inputs, costly, target)):
        merged, rescaled = merge_passes(plan.region, fusion)
        plan = replace(plan, region=merged, rescaled=rescaled)
        inputs, costly = _worth_keeping(plan)
    kept = inputs if _fits(plan, inputs, [], target) else []
    stashed = costly if _fits(plan, kept, costly, target) else []
    plan = _sharing_lds(replace(plan, inputs=tuple(kept), stashed=tuple(stashed)), resources)
    if inputs and not kept and not stashed and plan.accumulates_in_threads:
        return _keeping_part(plan, inputs, resources)
    return plan


def _aligned(plan: GpuRowPlan, target: GpuTarget) -> GpuRowPlan:
    """Let tiles begin where memory is aligned, if rows do not."""
    tiling, (axis,) = plan.tiling, plan.tiling.axes
    vector = target.vector_for(narrowest(plan.domain))
    start = _row_start(plan.domain, axis.var)
    small = tiling.count < tiling.threads * vector
    if start is None or tiling.vector == vector or plan.inner != [axis.var] or small:
        return plan
    early = Tiling((replace(axis, early=True),), tiling.threads, vector)
    return replace(plan, start=start, tiling=early)


def _row_start(domain: Domain, loop: LoopVar) -> Index | None:
    """Where rows along a loop begin, in elements of the arrays; None if that differs among them."""
    offsets = [o for _, o in domain.loads + domain.stores if o.depends_on(loop)]
    starts = {o - Index.of(loop) for o in offsets}
    (start,) = starts if len(starts) == 1 else (None,)
    return None if start is None or start.depends_on(loop) else start


def _sharing_lds(plan: GpuRowPlan, resources: Resources) -> GpuRowPlan:
    """Give programs so many threads that those which have LDS at once keep a CU busy."""
    target, tiling = resources.target, plan.tiling
    lds = sum(_sizes(plan, plan.inputs, plan.stashed))
    programs = max(target.lds_per_cu // (lds + RESERVED), 1)
    (axis,), threads = tiling.axes, tiling.threads
    with choosing():
        whole = power_of_two(axis.var.extent)
    most = min(resources.most_threads, whole // tiling.vector)
    while threads * 2 <= most and programs * threads < resources.target.costs.busy_threads:
        threads *= 2
    count = min(resources.held(threads) // (1 if plan.rescaled else 2), whole)
    shared = Tiling((replace(axis, count=count),), threads, tiling.vector)
    return replace(plan, tiling=fitted(shared))


def _keeping_part(plan: GpuRowPlan, inputs: Sequence[Var], resources: Resources) -> GpuRowPlan:
    """The plan with as much of a row in LDS as fits, if that is worth it."""
    target = resources.target
    one = replace(plan, inputs=tuple(inputs), kept_elements=1)
    most = (target.lds_bytes - RESERVED) // sum(_sizes(one, inputs, []))
    part = _sharing_lds(replace(one, kept_elements=most), resources)
    first, count = part.first_lanes, part.tiling.count
    kept = first + max(most - first, 0) // count * count
    return replace(part, kept_elements=kept) if kept * PART >= plan.row_elements else plan


def _fits(
    plan: GpuRowPlan, inputs: Sequence[Var], costly: Sequence[Root], target: GpuTarget
) -> bool:
    return sum(_sizes(plan, inputs, costly)) <= target.lds_bytes - RESERVED


def _sizes(plan: GpuRowPlan, inputs: Sequence[Var], costly: Sequence[Root]) -> list[int]:
    """Bytes of LDS that keep a row of each value."""
    names = [short_dtype(v.aval.dtype) for v in inputs]
    names += [compute_dtype(short_dtype(v.aval.dtype)) for r in costly for v in r.vars]
    return [plan.stash_size * tile.itemsize(name) for name in names]


def _worth_keeping(plan: GpuRowPlan) -> tuple[list[Var], list[Root]]:
    """Arrays that several passes read, and what later passes would compute again."""
    costly = [r for r in plan.region.roots if _is_costly(r, plan)]
    passes: dict[Var, set[int]] = {}
    elsewhere: set[Var] = set()
    for root, level in _visits(plan, costly):
        for v, index in root.reads:
            passes.setdefault(v, set()).add(level)
            axes = sum(n != 1 for n in v.aval.shape)
            if axes != len(root.dims) or index != placed(map(Index.of, root.dims), v.aval.shape):
                elsewhere.add(v)
    again = [v for v, levels in passes.items() if len(levels) > 1 and v not in elsewhere]
    return [v for v in again if _is_array(v, plan.region)], costly


def _is_costly(root: Root, plan: GpuRowPlan) -> bool:
    """Whether a value is computed for elements, costs much and is read by a later pass."""
    if root.is_reduction or root.row or root.cost <= STASH_COST:
        return False
    if any(v in plan.stored or v.aval.dtype.kind == "c" for v in root.vars):
        return False
    return is_read_later(root, plan.region)


def _is_array(var: Var, region: Region) -> bool:
    """Whether a variable lies in memory, with an element for each point of the domain."""
    if any(var in r.vars for r in region.roots):
        return False
    kind, size = var.aval.dtype.kind, var.aval.dtype.itemsize
    long = tuple(n for n in var.aval.shape if n != 1)
    return long == region.domain and (kind in "fiu" or (kind == "V" and size > 1))


def _visits(plan: GpuRowPlan, costly: Sequence[Root]) -> Iterator[tuple[Root, int]]:
    """Which roots are computed for each element, and in which passes."""
    for root in plan.region.roots:
        stored = any(v in plan.stored for v in root.vars)
        if root.is_reduction or (not root.row and stored) or root in costly:
            yield from _computed(plan, root, root.level, costly)


def _computed(
    plan: GpuRowPlan, root: Root, level: int, costly: Sequence[Root]
) -> Iterator[tuple[Root, int]]:
    yield root, level
    for other in plan.region.roots:
        if other.is_reduction or other.row or other is root:
            continue
        ready = other.level < level and (
            other in costly or any(v in plan.stored for v in other.vars)
        )
        if not ready and any(v in other.vars for v, _ in root.reads):
            yield from _computed(plan, other, level, costly)
