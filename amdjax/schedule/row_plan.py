"""How a region with reductions is computed: what kernels of rows have in common, and CPUs' plans.

Plans follow from what the domain and the machine are; nothing is written for them, and they can be
printed. `rows.py` writes the kernels that it describes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from amdjax.core.dims import Dim, choosing, divisor, fits_at_hand, size_hint, surely_equal
from amdjax.core.integers import ceil_div
from amdjax.core.jaxpr import Var
from amdjax.passes import is_on
from amdjax.schedule.domain import Domain
from amdjax.schedule.fusion import Region, Root
from amdjax.schedule.index import Index, LoopVar
from amdjax.schedule.reads import FEW, SHARED
from amdjax.schedule.reduction import Reduction
from amdjax.schedule.search import Family, Solver, busy_time, shares
from amdjax.schedule.writer import PREFETCH_DISTANCE, Machine, is_large, lane_count
from amdjax.targets import GpuTarget

STASH_LIMIT = 8192  # elements of a row kept in scratch between passes
STASH_COST = 8  # of a value above which it is kept for later passes rather than computed again
SPLIT_WORK = 1 << 15  # elements below which a reduction is not split
FAR = 1 << 20  # bytes beyond the nearer caches, from where long pieces come faster
WRITTEN = 400  # operations of them together
STACKED = 12  # steps of a loop that are written one after the other where each reads elsewhere
LEAST_SPLIT = 64  # elements of a row that are worth a program
LONG_RUN = 4 * PREFETCH_DISTANCE  # bytes side by side from which some are asked for ahead
TOGETHER = 8  # elements of a row in caches that are added before its sum goes to scratch
STRIDED = 1.25  # times as long as elements that lie in a row take others
CHEAP = 8  # cost of an element that takes less than its way from there
MASKED = 12  # cost of an element beside which a mask takes little


@dataclass(frozen=True)
class RowPlan:
    """A schedule of a region with reductions.

    Attributes:
      region: what is computed; its roots say in which pass over a row.
      stored: values of the program that are in memory.
      domain: the loops.
      splits: programs that share the reduction of a row, each with a part of loop `split`.
      stashed: roots that stay in scratch from the pass that computes them on.
    """

    region: Region
    stored: frozenset[Var]
    domain: Domain
    splits: int
    stashed: tuple[Root, ...]

    @cached_property
    def inner(self) -> list[LoopVar]:
        """The loops that are reduced."""
        return self.domain.inner

    @cached_property
    def outer(self) -> list[LoopVar]:
        """The loops over rows."""
        return self.domain.outer

    @cached_property
    def reductions(self) -> Mapping[Root, Reduction]:
        return reductions_of(self.region)

    @property
    def levels(self) -> int:
        """Passes over a row after the first."""
        return last_level(self.region)

    @property
    def rows(self) -> int:
        return math.prod(self.region.row_shape)

    @property
    def row_elements(self) -> int:
        return extent(self.inner)

    @property
    def stash_size(self) -> int:
        """Elements of scratch for a row."""
        raise NotImplementedError

    def element_roots(self, level: int) -> list[Root]:
        """What a pass computes for each element and keeps, in memory or in scratch."""
        return [
            r
            for r in self.region.roots
            if not (r.is_reduction or r.row)
            and r.level == level
            and (any(v in self.stored for v in r.vars) or r in self.stashed)
        ]


def reductions_of(region: Region) -> dict[Root, Reduction]:
    """The rules of a region's reductions."""
    return {r: Reduction(r.eqn) for r in region.roots if r.is_reduction}


def extent(loops: Sequence[LoopVar]) -> int:
    """Steps of nested loops together."""
    return math.prod(v.extent for v in loops)


def unrolled_loop(
    domain: Domain, lane_var: LoopVar, stores: Sequence[tuple[Var, Index]]
) -> LoopVar | None:
    """The innermost loop, if its steps lie between the lanes of what is stored, and are few.

    Where each step reads what lies elsewhere, as of arrays that are stacked, more are few.
    """
    if not _has_few_steps(domain, lane_var, STACKED if _stacks(domain, lane_var) else FEW):
        return None
    last, n = domain.vars[-1], domain.vars[-1].extent
    between = all(o.coefficient(last) == 1 and o.coefficient(lane_var) == n for _, o in stores)
    few = between and (n * domain.operations <= WRITTEN or domain.written(last) <= SHARED)
    return last if few else None


def _stacks(domain: Domain, lane_var: LoopVar) -> bool:
    """Whether reads have neighbors along lanes, and steps of the innermost loop differ in them."""
    last, loads = domain.vars[-1], [o for _, o in domain.loads]
    parts = any(i.depends_on(last) and i.const != 0 for i in domain.irregular)
    return (parts or any(o.depends_on(last) for o in loads)) and all(
        o.coefficient(lane_var) == 1 and o.coefficient(last) != 1 and not o.is_dynamic
        for o in loads
        if o.depends_on(lane_var) or o.depends_on(last)
    )


def _has_few_steps(domain: Domain, lane_var: LoopVar, most: int = FEW) -> bool:
    """Whether the innermost loop is not in lanes, and has few steps that can be written apart."""
    last, n = domain.vars[-1], domain.vars[-1].extent
    if last is lane_var or not isinstance(n, int) or n > most:
        return False
    loops = any(root.loop is not None for root in domain.region.roots)
    return not loops and not any(i.depends_on(last) for i in domain.alias.values())


def masks_cheaply(domain: Domain, lane_var: LoopVar | None) -> bool:
    """Whether lanes run over a symbolic loop, and read and write one element or neighbors."""
    if lane_var is None or not isinstance(lane_var.extent, Dim):
        return False
    if any(i.depends_on(lane_var) for i in domain.irregular):
        return False
    offsets = [o for _, o in domain.loads + domain.stores if o.depends_on(lane_var)]
    return all(surely_equal(o.coefficient(lane_var), 1) for o in offsets)


def reads_rows(offset: Index, lane_var: LoopVar) -> bool:
    """Whether lanes are neighbors at a place that is computed."""
    return offset.is_dynamic and surely_equal(offset.coefficient(lane_var), 1)


def last_level(region: Region) -> int:
    """The last pass over rows of a region."""
    return max(r.level for r in region.roots)


def is_read_later(root: Root, region: Region) -> bool:
    """Whether a later pass reads a value."""
    own = set(root.vars)
    return any(v in own for r in region.roots if r.level > root.level for v, _ in r.reads)


def worth_stashing(region: Region, row_elements: int, limit: int) -> tuple[Root, ...]:
    """Roots that later passes read, that cost much, and of which a row fits the scratch.

    Args:
      region: with reductions.
      row_elements: of a row.
      limit: elements of a row that scratch holds.
    """
    costly = tuple(
        r
        for r in region.roots
        if not (r.is_reduction or r.row)
        and r.cost > STASH_COST
        and not any(x.aval.dtype.kind == "c" for x in r.vars)
        and is_read_later(r, region)
    )
    return () if not costly or row_elements > limit else costly


@dataclass(frozen=True)
class CpuRowPlan(RowPlan):
    """A program is a row, whose elements run in lanes, or a bundle of neighboring rows.

    Attributes:
      lane_var: the loop in vector lanes; None where there is no loop.
      count: lanes.
      segment: neighboring lanes that are elements of one row.
      unrolled: the loop over the elements of short rows in lanes, where these are stored: what lies
        between the lanes of one step is written along with it; or where they are gathered.
      row_var: the loop around that over rows in lanes, where one of these is too short for a tile:
        a row of the tile for each of some of its steps.
      steps: of it in a program.
      chunk: neighboring rows whose sums a program keeps in scratch, where it reads elements of all
        of them as they lie in memory; 0 where sums stay in registers.
      in_order: whether all rows take a step of the split loop before any takes the next, as they
        lie in memory.
    """

    lane_var: LoopVar | None
    count: int
    segment: int = 1
    unrolled: LoopVar | None = None
    row_var: LoopVar | None = None
    steps: int = 1
    chunk: int = 0
    in_order: bool = False

    @property
    def row_elements(self) -> int:
        return extent(self.inner) * self.segment

    @property
    def lanes_reduce(self) -> bool:
        """Whether lanes are elements of one row."""
        return self.lane_var in self.domain.reduced

    @cached_property
    def in_one_tile(self) -> bool:
        """Whether one tile holds a row of several passes: what they share stays in registers.

        Longer rows take loops, which one pass alone would hardly miss.
        """
        whole = self.lanes_reduce and self.inner == [self.lane_var] and self.segment == 1
        return whole and self.levels > 0 and fits_at_hand(self.row_elements, self.count)

    def is_masked(self, level: int) -> bool:
        """Whether a pass over rows of a symbolic length has a mask for each tile.

        A body of whole tiles takes as long to compile as the one with masks for the last tile,
        which is not much slower where elements are costly and lie beside each other.
        """
        roots = [r for r in self.region.roots if r.is_reduction and r.level == level]
        cost = sum(r.cost for r in [*roots, *self.element_roots(level)])
        return size_hint(cost) >= MASKED and masks_cheaply(self.domain, self.lane_var)

    @property
    def bundles(self) -> int:
        """Programs that share neighboring rows."""
        if self.lane_var is None or self.lanes_reduce:
            return 1
        return ceil_div(self.lane_var.extent, self.chunk or self.count)

    @property
    def grid(self) -> int:
        """Programs, if reductions are not split."""
        others = [v for v in self.outer if v not in (self.lane_var, self.row_var)]
        return extent(others) * self.bundles * self.blocks

    @property
    def blocks(self) -> int:
        """Programs that share the loop beside that in lanes."""
        return self.row_var.extent // self.steps if self.row_var is not None else 1

    @property
    def tile(self) -> tuple[int, ...]:
        """The shape of what a program holds of a row, or of neighboring ones."""
        if self.lane_var is None:
            return ()
        return (self.count,) if self.row_var is None else (self.steps, self.count)

    @cached_property
    def streamed(self) -> list[Var]:
        """What is read from beyond the caches as it lies, in long runs."""
        runs = [(v, self._run(o) * v.aval.dtype.itemsize) for v, o in self.domain.loads]
        return list(dict.fromkeys(v for v, nbytes in runs if is_large(v) and nbytes >= LONG_RUN))

    def _run(self, offset: Index) -> int:
        """Elements that are read one after the other and lie side by side."""
        if self.chunk and self.bundles > 1:
            return self.chunk
        outer = [v for v in self.outer if v is not self.lane_var]
        inner = [v for v in self.inner if v is not self.lane_var]
        first = [inner.pop(0)] if self.in_order else []
        run = 1
        for var in reversed([*first, *outer, *inner, self.lane_var]):
            if var is None or not surely_equal(offset.coefficient(var), run):
                break
            run *= var.extent
        return size_hint(run)

    @property
    def scratch_step(self) -> int:
        """Elements of a row that are added before its sum goes to scratch.

        What lies beyond the caches comes fastest as one stream.
        """
        return 1 if self.streamed else TOGETHER

    @cached_property
    def gathered(self) -> list[Var]:
        """Far tables of which rows are read from places that are computed, as they lie in lanes."""
        if self.lane_var is None or self.lanes_reduce or self.row_var is not None:
            return []
        rows = [v for v, o in self.domain.loads if reads_rows(o, self.lane_var)]
        return [v for v in dict.fromkeys(rows) if size_hint(v.aval.nbytes) >= FAR]

    @property
    def split(self) -> LoopVar:
        """The reduced loop that programs share."""
        return self.inner[0]

    @property
    def granularity(self) -> int:
        """Steps of it that stay together."""
        return self.count if self.split is self.lane_var else 1

    @property
    def split_length(self) -> int:
        """Steps of it in a program."""
        return ceil_div(self.split.extent, self.splits * self.granularity) * self.granularity

    @property
    def stash_size(self) -> int:
        """Elements of scratch for a row: as many as it may have."""
        row = self.row_elements
        return (STASH_LIMIT if isinstance(row, Dim) else row) + self.count

    def __str__(self) -> str:
        lanes = "rows" if self.lane_var is not None and not self.lanes_reduce else "elements"
        out = f"rows of {self.row_elements}, {counted(self.grid * self.splits, 'program')}"
        if self.lane_var is not None:
            out += f", {self.count} lanes over {lanes} {self.lane_var.name}"
            out += f" in segments of {self.segment}" if self.segment > 1 else ""
            out += f", {self.steps} of {self.row_var.name}" if self.row_var is not None else ""
            out += f", sums of {self.chunk} in scratch" if self.chunk else ""
        if self.unrolled is not None:
            out += f", {self.unrolled.name} unrolled"
        out += f", {counted(self.levels + 1, 'pass', 'passes')}"
        if self.splits > 1:
            out += f", split {self.splits} ways along {self.split.name}"
            out += " in the order of memory" if self.in_order else ""
        if self.stashed:
            out += f", scratch holds {names_of(self.stashed)}"
        return out


def counted(n: int, noun: str, many: str = "") -> str:
    """`1 program`, `2 programs`."""
    return f"{n} {noun if surely_equal(n, 1) else many or noun + 's'}"


def names_of(roots: Sequence[Root]) -> str:
    """What computes roots, for people."""
    return " ".join(r.eqn.primitive.name for r in roots)


def cpu_row_plans(domain: Domain, target: Machine) -> list[CpuRowPlan]:
    """Schedules of a region with reductions on a CPU, which split rows in different numbers."""
    region, fusion = domain.region, domain.fusion
    lane_var, segment = _lane_loop(domain), 1
    segmented = _segmented(domain)
    if segmented is not None:
        segment = domain.vars[-1].extent
        domain, lane_var = segmented, segmented.vars[-1]
    count = 0
    if lane_var is not None and segment > 1:
        count = divisor(lane_count(domain, target, lane_var.extent), lane_var.extent)
    elif lane_var is not None:
        count = _row_lanes(domain, lane_var, lane_var.extent, target)
    plan = CpuRowPlan(region, frozenset(fusion.stored), domain, 1, (), lane_var, count, segment)
    if plan.lanes_reduce and not plan.in_one_tile:
        stashed = worth_stashing(region, plan.row_elements, STASH_LIMIT)
        plan = replace(plan, stashed=stashed)
    elif lane_var is not None and not plan.lanes_reduce:
        unrolled = _unrolled(plan, lane_var)
        if unrolled is not None and any(o.is_dynamic for _, o in domain.loads):
            count = lane_count(domain, target, lane_var.extent, unrolled.extent)
        plan = replace(plan, count=count, unrolled=unrolled)
        if (row_var := _row_loop(domain, lane_var, count)) is not None:
            lanes = _row_lanes(domain, lane_var, count * row_var.extent, target)
            steps = divisor(lanes // count, row_var.extent)
            plan = replace(plan, row_var=row_var, steps=steps) if steps > 1 else plan
    plans = [plan]
    if lane_var is not None and (chunk := _scratch_rows(plan, lane_var, target)):
        by_scratch = replace(plan, chunk=chunk)
        if by_scratch.scratch_step == 1:
            by_scratch = replace(by_scratch, count=lane_count(domain, target, lane_var.extent))
        plans.append(by_scratch)
    if _lies_across(plan):
        return [replace(plan, splits=plan.split.extent, in_order=True)]
    split = (_split(p, n) for p in plans for n in shares(_most_splits(p, target)))
    return list({(p.chunk, p.splits): p for p in split}.values())


def cpu_row_cost(domain: Domain, plan: CpuRowPlan, target: Machine) -> float:
    """Elements that a thread takes one after the other."""
    strided = 1 if plan.chunk or plan.lanes_reduce else STRIDED
    return busy_time(domain.size * strided, plan.grid * plan.splits, _programs(target))


CPU_ROWS: Family[Domain, Machine, CpuRowPlan] = Family(
    "rows on a CPU", Solver("rows", cpu_row_plans, cpu_row_cost)
)


def _programs(target: Machine) -> int:
    """As many keep the threads busy to the end."""
    return 4 * target.vectors.threads


def _lane_loop(domain: Domain) -> LoopVar | None:
    """The loop in lanes: a reduced one (a row a program), or that over neighboring rows."""
    inner, outer = domain.inner, domain.outer
    if not domain.vars or not outer or not inner:
        return domain.vars[-1] if domain.vars else None
    last = domain.vars[-1]
    if last in domain.reduced:
        with choosing():
            short = last.extent < 16 and extent(outer) >= 64 and outer[-1].extent >= 8
        return outer[-1] if short else last
    with choosing():
        narrow = last.extent < 4 and inner[-1].extent >= 16
    return inner[-1] if narrow else last


def _scratch_rows(plan: CpuRowPlan, lane_var: LoopVar, target: Machine) -> int:
    """Neighboring rows whose sums fit half of the nearest cache, if their elements lie far away.

    Memory is read faster as it lies than a piece of each line of a matrix.
    """
    domain, vectors = plan.domain, target.vectors
    in_lanes = not plan.lanes_reduce and plan.row_var is None and plan.unrolled is None
    if plan.levels or not plan.inner or not in_lanes or isinstance(target, GpuTarget):
        return 0
    if not isinstance(lane_var.extent, int) or plan.bundles < 2:
        return 0
    with choosing():
        few = plan.inner[-1].extent < TOGETHER
    rules = reductions_of(domain.region).values()
    if few or not all(rule.is_simple and rule.is_numeric for rule in rules):
        return 0
    far = [o for v, o in domain.loads if size_hint(v.aval.nbytes) >= FAR]
    each = [o for o in far if o.depends_on(plan.inner[-1])]
    if not any(o.coefficient(lane_var) == 1 for o in each):
        return 0
    nbytes = sum(rule.accumulator_bits for rule in rules) // 8
    return min(vectors.l1_bytes // 2 // nbytes // plan.count * plan.count, lane_var.extent)


def _unrolled(plan: CpuRowPlan, lane_var: LoopVar) -> LoopVar | None:
    """The loop over the few elements of a row, where one pass stores what it computes of them.

    Or where it reads all from a place that is computed, which is found once for them.
    """
    domain, elements = plan.domain, {v for r in plan.element_roots(0) for v in r.vars}
    stores = [(v, o) for v, o in domain.stores if v in elements]
    last = domain.vars[-1]
    if plan.levels or plan.inner != [last]:
        return None
    if stores:
        return unrolled_loop(domain, lane_var, stores)
    gathers = [o for _, o in domain.loads if o.is_dynamic]
    rows = gathers and all(surely_equal(o.coefficient(last), 1) for o in gathers)
    few = rows and domain.operations <= WRITTEN
    return last if few and _has_few_steps(domain, lane_var) else None


def _row_loop(domain: Domain, lane_var: LoopVar, count: int) -> LoopVar | None:
    """The loop that goes on where the rows in lanes end, which are as many as lanes."""
    if lane_var is not domain.vars[-1] or len(domain.outer) < 2:
        return None
    outer = domain.vars[-2]
    if outer in domain.reduced or not isinstance(outer.extent, int):
        return None
    if not surely_equal(lane_var.extent, count):
        return None
    along = [o for _, o in domain.loads if surely_equal(o.coefficient(lane_var), 1)]
    goes_on = [surely_equal(o.coefficient(outer), count) for o in along]
    apart = [not o.depends_on(outer) for o in along]
    fit = all(a or b for a, b in zip(goes_on, apart, strict=True))
    return outer if any(goes_on) and fit else None


def _row_lanes(domain: Domain, lane_var: LoopVar, rows: int, target: Machine) -> int:
    """Lanes; sums of neighboring rows fill half of the registers where memory lies far away."""
    count = lane_count(domain, target, rows)
    cost = sum(r.cost for r in domain.region.roots if not r.row)
    far = [
        o
        for v, o in domain.loads
        if size_hint(v.aval.nbytes) >= FAR and o.coefficient(lane_var) == 1
    ]
    gathers = any(o.is_dynamic for o in far)
    # Where a piece of a table begins is computed once for all lanes.
    cheap = CHEAP * (2 if gathers else 1)
    if lane_var in domain.reduced or cost > cheap or not far:
        return count
    bits = sum(rule.accumulator_bits for rule in reductions_of(domain.region).values())
    vector, rows = target.vectors.vector_bits, size_hint(rows)
    # Few long pieces, even of sums that are not all in registers, beat many short ones.
    registers = 16 if vector >= 512 or gathers else 8
    full = 1 << max(registers * vector // bits, 1).bit_length() - 1
    # Hardly any lanes are idle in the last piece.
    while full > count and 8 * (-rows % full) > rows:
        full //= 2
    return max(full, count)


def _segmented(domain: Domain) -> Domain | None:
    """Loops of which lanes take several rows, where rows are many runs too short for lanes."""
    if not domain.inner or not isinstance(domain.inner[-1].extent, int):
        return None
    with choosing():
        if domain.inner[-1].extent >= 16 or extent(domain.inner[:-1]) < 16:
            return None
    if not all(rule.is_simple for rule in reductions_of(domain.region).values()):
        return None
    return domain.segmented()


def _lies_across(plan: CpuRowPlan) -> bool:
    """Whether rows beyond the caches are pieces, between which pieces of all other rows lie.

    As many programs as there are pieces read them as they lie, in one stream.
    """
    inner, outer, order = plan.inner, plan.outer, plan.domain.vars
    if not plan.lanes_reduce or plan.levels or not outer or len(inner) < 2 or plan.segment > 1:
        return False
    if order.index(inner[0]) > order.index(outer[-1]) or not is_on("split_reductions"):
        return False
    if not isinstance(plan.split.extent, int):
        return False
    with choosing():
        if extent(inner[1:]) < LEAST_SPLIT:
            return False
    far = {v for v, _ in plan.domain.loads if is_large(v)} - set(plan.streamed)
    return any(v in far for v in replace(plan, in_order=True).streamed)


def _most_splits(plan: CpuRowPlan, target: Machine) -> int:
    """Programs that share the reductions of a row, where rows are too few for the threads."""
    wanted = _programs(target)
    if plan.levels or not plan.inner or not is_on("split_reductions"):
        return 1
    with choosing():
        if plan.domain.size < SPLIT_WORK or plan.grid >= wanted:
            return 1
    # Of symbolic sizes those at hand: any number of programs computes the same.
    grid, steps, size = map(size_hint, (plan.grid, plan.split.extent, plan.domain.size))
    most = max(1, steps // (plan.granularity * (8 if plan.granularity > 1 else 1)))
    return max(1, min(ceil_div(wanted, grid), most, size // (SPLIT_WORK // 4)))


def _split(plan: CpuRowPlan, splits: int) -> CpuRowPlan:
    """The plan with about so many programs for a row, none of which is without elements."""
    if splits == 1:
        return plan
    length = size_hint(replace(plan, splits=splits).split_length)
    return replace(plan, splits=ceil_div(size_hint(plan.split.extent), length))
