"""How a region with reductions is computed on a GPU: tiles of rows, threads, splits.

A program has a row, or a block of neighboring ones, and spreads one or two loops over its threads:
the loop in which neighbors lie side by side, and another one where that is short. A row that fits
the registers is read once and all its levels are computed from there; a longer one takes a pass for
each level (`multi_pass.py`). Reductions too long for the programs there would be are split; the
last program of a row combines them, or a second kernel where that is much.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from amdjax.core.dims import choosing, size_hint
from amdjax.core.integers import ceil_div, floor_power_of_two, power_of_two
from amdjax.core.jaxpr import Var
from amdjax.passes import is_on
from amdjax.schedule.domain import Domain
from amdjax.schedule.fusion import Region, Root
from amdjax.schedule.gpu.calls import scratch_limit
from amdjax.schedule.gpu.combine import TILE
from amdjax.schedule.gpu.online_softmax import Rescaled
from amdjax.schedule.gpu.tiles import TileAxis, axes_text, block_extent, fastest_vector, narrowest
from amdjax.schedule.index import Index, LoopVar
from amdjax.schedule.row_plan import (
    RowPlan,
    counted,
    extent,
    last_level,
    names_of,
    reductions_of,
    worth_stashing,
)
from amdjax.schedule.search import busy_time, shares
from amdjax.targets import GpuTarget

EACH = 16  # elements of a tile that a thread holds at most, where more are not worth while
#: 32-bit registers that a thread has for each of these, for values that are alive together.
REGISTERS = 4
#: Registers of a thread that values alive together may take for accesses of 16 bytes.
MOST_REGISTERS = 224
#: Values alive together with which threads need more registers than the largest workgroup leaves.
MANY = 10
NARROW = 16  # columns a program has at least, so that it reads whole cache lines
CUT = 1 << 14  # elements from which a reduction is split
#: Elements that a split has for each of the splits: programs arrive one after the other, and what
#: more of them take for that has to be less than what reading takes less.
SHARE = 64
#: Partial results that one program combines; where twice as many would be useful, programs of a
#: second launch share them.
COMBINED = 16 * TILE


@dataclass(frozen=True)
class Tiling:
    """The tile of a program.

    Attributes:
      axes: loops along its axes.
      threads: that share it.
      vector: elements that a thread has side by side.
    """

    axes: tuple[TileAxis, ...]
    threads: int
    vector: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(a.count for a in self.axes)

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class LoopPeel:
    """Part of a pass over a row: from `low` to before `high`, in tiles of so many lanes.

    Attributes:
      low: the first lane.
      high: the last but one; None for the end of the row, which may begin anywhere in a tile.
      count: lanes of a tile.
      whole: whether all lanes exist.
      kept: whether what is read stays in LDS.
    """

    low: int
    high: int | None
    count: int
    whole: bool
    kept: bool


@dataclass(frozen=True)
class GpuRowPlan(RowPlan):
    """A program is a tile of rows, or passes over one in tiles.

    Attributes:
      tiling: the tile.
      start: where a row begins in memory, if its tiles begin earlier.
      inputs: arrays of which LDS holds a row from the first pass on.
      kept_elements: elements of a row that stay there, if not all do.
      rescaled: sums relative to an extremum that the same pass finds.
      combined_by_last: whether the last program of a row combines its splits.
    """

    tiling: Tiling
    start: Index | None = None
    inputs: tuple[Var, ...] = ()
    kept_elements: int = 0
    rescaled: Mapping[Root, Rescaled] = field(default_factory=dict)
    combined_by_last: bool = False

    @cached_property
    def row_axis(self) -> TileAxis | None:
        """The axis over neighboring rows."""
        return next((a for a in self.tiling.axes if a.var not in self.domain.reduced), None)

    @cached_property
    def reduced_axes(self) -> list[TileAxis]:
        return [a for a in self.tiling.axes if a.var in self.domain.reduced]

    @cached_property
    def loops(self) -> list[LoopVar]:
        """Reduced loops around the tile."""
        return [v for v in self.inner if all(a.var is not v for a in self.tiling.axes)]

    @cached_property
    def row_loops(self) -> list[LoopVar]:
        """Loops over rows that are no axis of the tile."""
        return [v for v in self.outer if all(a.var is not v for a in self.tiling.axes)]

    @cached_property
    def is_resident(self) -> bool:
        """Whether a tile holds its rows whole."""
        return all(a.is_whole for a in self.reduced_axes) and not self.loops

    @cached_property
    def is_long_row(self) -> bool:
        """Whether programs pass over one row in tiles that keep all threads busy."""
        tiling = self.tiling
        one = not self.is_resident and len(tiling.axes) == 1 and bool(self.reduced_axes)
        return one and tiling.count >= tiling.threads * tiling.vector

    @cached_property
    def accumulates_in_threads(self) -> bool:
        """Whether threads have sums of their own, so that tiles may differ in size."""
        if not (self.levels or self.rescaled) or not self.is_long_row:
            return False
        rules = self.reductions.values()
        plain = all(isinstance(rule.rule.combine, str) for rule in rules)
        reals = not any(x.aval.dtype.kind == "c" for rule in rules for x in rule.eqn.invars)
        return plain and reals and self.inner == [self.tiling.axes[0].var]

    @property
    def grid(self) -> int:
        """Programs, if reductions are not split."""
        return extent(self.row_loops) * (self.row_axis.blocks if self.row_axis else 1)

    @property
    def split(self) -> LoopVar:
        """The reduced loop that programs share: that of most steps."""
        return max(self.inner, key=lambda v: ceil_div(size_hint(v.extent), self._step(v)))

    @property
    def granularity(self) -> int:
        """Steps of it that stay together."""
        return self._step(self.split)

    def _step(self, loop: LoopVar) -> int:
        return next((a.count for a in self.tiling.axes if a.var is loop), 1)

    @property
    def stash_size(self) -> int:
        """Elements of scratch for a row."""
        if not self.is_long_row:
            return self.row_elements + self.tiling.count
        early = self.tiling.vector if self.start is not None else 0
        return self.kept_elements or self.row_elements + early

    @property
    def fills_lds(self) -> bool:
        """Whether rows that stay in LDS may fill it."""
        return bool(self.inputs or (self.is_long_row and self.stashed))

    @property
    def first_lanes(self) -> int:
        """Lanes of a row's first tile, if that may begin before the row."""
        if self.start is None:
            return 0
        return min(self.tiling.threads * self.tiling.vector, self.tiling.count)

    def peeled(self) -> list[LoopPeel]:
        """A pass over a row: large tiles where all lanes exist, small ones at the ends."""
        (axis,), small = self.tiling.axes, self.tiling.threads * self.tiling.vector
        n, large, everything = axis.var.extent, axis.count, not self.kept_elements
        first = self.first_lanes
        middle = first + (n - first) // large * large
        kept = middle if everything else min(self.kept_elements, middle)
        parts = [
            LoopPeel(0, first, small, False, True),
            LoopPeel(first, kept, large, True, True),
            LoopPeel(kept, middle, large, True, False),
            LoopPeel(middle, n if self.start is None else None, small, False, everything),
        ]
        return [p for p in parts if p.high is None or p.low < p.high]

    def __str__(self) -> str:
        tiling = self.tiling
        out = f"rows of {self.row_elements}, {counted(self.grid * self.splits, 'program')}"
        if tiling.axes:
            out += f" of {axes_text(tiling.axes)}"
        out += f", {tiling.threads} threads, vectors of {tiling.vector}"
        passes = counted(self.levels + 1, "pass", "passes")
        out += f", {'rows in registers' if self.is_resident else passes}"
        if self.rescaled:
            out += f", online {names_of(list(self.rescaled))}"
        if self.start is not None:
            out += ", tiles begin aligned"
        if self.inputs or self.stashed:
            what = [counted(len(self.inputs), "input")] if self.inputs else []
            what += [names_of(self.stashed)] if self.stashed else []
            part = f"{self.kept_elements} elements of " if self.kept_elements else ""
            out += f", LDS holds {part}{', '.join(what)}"
        if self.splits > 1:
            by = "the last program" if self.combined_by_last else "a second kernel"
            out += f", split {self.splits} ways along {self.split.name}, combined by {by}"
        return out


class Resources:
    """What a region takes of a machine: tiles alive together, elements that threads hold.

    Args:
      region: with reductions.
      domain: the loops.
      target: the machine.
    """

    def __init__(self, region: Region, domain: Domain, target: GpuTarget):
        self.region, self.domain, self.target = region, domain, target
        self.levels = last_level(region)

    def held(self, threads: int) -> int:
        """Elements of a tile that the registers of so many threads hold."""
        words = max(self.domain.widest // 32, 1) * self.alive
        # Of narrow elements it takes more to ask memory for as much at once.
        narrow = not self.levels and narrowest(self.domain) < 32
        most = max(EACH, self.target.costs.row_elements)
        each = min(floor_power_of_two(REGISTERS * most // words), 2 * most if narrow else most)
        if not self.levels and each < self.together:  # fewer threads cost less than short accesses
            each = max(each, min(floor_power_of_two(MOST_REGISTERS // words), self.together))
        return threads * each

    def whole(self, threads: int) -> int:
        """Elements of a row that these threads hold, rather than share with other programs."""
        narrow = 2 if narrowest(self.domain) < 32 else 1
        held = self.held(threads)
        return held if self.levels else min(held, threads * EACH * narrow)

    def accumulating(self, threads: int) -> int:
        """Elements of a tile that these threads add to accumulators of their own."""
        if self.levels:  # where nothing waits for a reduction, a program only reads and combines
            return self.held(threads)
        rules = reductions_of(self.region).values()
        each = max(2 * EACH // sum(rule.accumulators for rule in rules), self.together)
        if narrowest(self.domain) == 8:  # taken out of words, they need registers of their own
            each = min(each, EACH)
        return min(self.held(threads), threads << (each.bit_length() - 1))

    @cached_property
    def together(self) -> int:
        """Elements that an access brings at most."""
        last = self.domain.vars[-1].extent if self.domain.vars else 1
        return fastest_vector(self.target, narrowest(self.domain), last)

    @cached_property
    def alive(self) -> int:
        """Tiles alive together: what is read, what is kept, and terms of sums side by side."""
        loads = len(set(self.domain.loads))
        kept = sum(not r.is_reduction and not r.row for r in self.region.roots)
        together = Counter(r.level for r in self.region.roots if r.is_reduction)
        return max(loads + kept + max(together.values()) - 1, 1)

    @property
    def most_threads(self) -> int:
        most = self.target.max_workgroup
        return most // 2 if self.alive > MANY else most

    def threads_for(self, elements: int) -> int:
        """Threads that share a tile: few elements each, more threads if more are needed."""
        wave, most = self.target.wave_size, self.most_threads
        each = self.target.costs.row_elements
        threads = max(wave, min(power_of_two(elements // each), self.target.usual_workgroup))
        while threads < most and self.held(threads) < elements:
            threads *= 2
        return threads


def tiling_of_rows(resources: Resources, deep: Callable[[], int]) -> Tiling:
    """The tile of a program.

    Args:
      resources: what the region takes.
      deep: elements of a row that is read again of which a thread has registers for so many.
    """
    domain, target = resources.domain, resources.target
    fast = domain.vars[-1] if domain.vars else None
    vector = fastest_vector(target, narrowest(domain), fast.extent if fast else 1)
    if fast is None:
        return Tiling((), target.wave_size, vector)
    if fast in domain.reduced:
        axes, threads = _rows(resources, fast, vector, deep)
    else:
        axes, threads = _columns(resources, fast, vector)
    return fitted(Tiling(axes, threads, vector))


def fitted(tiling: Tiling) -> Tiling:
    """The tiling with vectors no longer than the axis along which they lie."""
    return replace(tiling, vector=min(tiling.vector, tiling.axes[-1].count))


def _rows(
    resources: Resources, fast: LoopVar, vector: int, deep: Callable[[], int]
) -> tuple[tuple[TileAxis, ...], int]:
    """The innermost loop is reduced: a row a program, or several short ones."""
    inner, outer = resources.domain.inner, resources.domain.outer
    target, levels, most = resources.target, resources.levels, resources.most_threads
    n = power_of_two(fast.extent)
    if inner == [fast] and resources.held(most) < n <= deep() * most:
        return (TileAxis(fast, n),), most
    others = [v for v in inner if v is not fast] or outer
    if n < target.wave_size * vector and others:
        slow = others[-1]
        usual = target.usual_workgroup
        count = max(min(resources.held(usual), usual * EACH) // n, 1)
        count = min(power_of_two(slow.extent), count)
        return (TileAxis(slow, count), TileAxis(fast, n)), resources.threads_for(n * count)
    held = resources.whole if inner == [fast] else resources.accumulating
    rows = extent(outer)
    if n <= held(most):
        threads = resources.threads_for(n)
        while held(threads) < n:
            threads *= 2
        while _is_idle(resources, fast, rows, threads, vector):
            threads *= 2
        return (TileAxis(fast, n),), threads
    usual = target.usual_workgroup
    threads = most if levels > 0 and rows * usual < target.busy_threads else usual
    # What is kept beside the sums of a row that is read again takes half.
    return (TileAxis(fast, resources.accumulating(threads) // (2 if levels else 1)),), threads


def _is_idle(resources: Resources, fast: LoopVar, rows: int, threads: int, vector: int) -> bool:
    """Whether twice the threads would find work in a tile, and room on the machine."""
    target = resources.target
    most = min(resources.most_threads, power_of_two(fast.extent) // vector, target.issuing_threads)
    # The loops around a tile are split where nothing waits for their results.
    tiles = rows if resources.levels else resources.domain.size // fast.extent
    return threads * 2 <= most and tiles * threads * 4 < target.lds_units * target.issuing_threads


def _columns(resources: Resources, fast: LoopVar, vector: int) -> tuple[tuple[TileAxis, ...], int]:
    """The innermost loop is kept: a block of columns a program, several elements of each."""
    target, inner = resources.target, resources.domain.inner
    columns = block_extent(fast.extent, target.wave_size * vector)
    if not inner:
        return (TileAxis(fast, columns),), target.wave_size
    slow = inner[-1]
    rows, most = power_of_two(slow.extent), resources.held(resources.most_threads)
    if resources.levels and len(inner) == 1 and rows * NARROW <= most:
        while columns > NARROW and rows * columns > most:
            columns //= 2
    else:
        most = resources.accumulating(target.usual_workgroup)
    rows = min(rows, max(most // columns, 1))
    axes = (TileAxis(slow, rows), TileAxis(fast, columns))
    return axes, resources.threads_for(rows * columns)


def with_stash(plan: GpuRowPlan, target: GpuTarget) -> GpuRowPlan:
    """The plan with what stays in scratch, where passes over rows are tiles of several loops."""
    if plan.is_resident or plan.row_axis is not None or not plan.reduced_axes:
        return plan
    # Elements of a row of which two fit the LDS.
    limit = scratch_limit(target) // (2 * max(plan.domain.widest // 8, 4)) - plan.tiling.count
    return replace(plan, stashed=worth_stashing(plan.region, plan.row_elements, limit))


def splits_of(plan: GpuRowPlan, target: GpuTarget) -> list[GpuRowPlan]:
    """The plan, and those with reductions split among programs, where there are too few of them."""
    domain = plan.domain
    if not is_on("split_reductions"):
        return [plan]
    with choosing():
        if plan.levels > 0 or not plan.inner or domain.size < CUT or plan.rescaled:
            return [plan]
    # Of symbolic sizes those at hand: any number of programs computes the same.
    grid, size, steps = map(size_hint, (plan.grid, domain.size, plan.split.extent))
    wanted = target.busy_threads // (plan.tiling.threads * grid)
    most = math.isqrt(size // (grid * SHARE))
    most = max(1, min(wanted, most, ceil_div(steps, plan.granularity)))
    return list({p.splits: p for p in (_split(plan, n) for n in shares(most))}.values())


def _split(plan: GpuRowPlan, splits: int) -> GpuRowPlan:
    if splits == 1:
        return plan
    few = max(COMBINED // (plan.row_axis.count if plan.row_axis else 1), 1)
    if splits <= 2 * few:
        return replace(plan, splits=min(splits, few), combined_by_last=True)
    steps = size_hint(plan.split.extent)
    length = ceil_div(steps, splits * plan.granularity) * plan.granularity
    return replace(plan, splits=ceil_div(steps, length))  # that are not empty


def gpu_row_cost(domain: Domain, plan: GpuRowPlan, target: GpuTarget) -> float:
    """Elements that a thread takes, of as many as keep the machine busy."""
    threads = plan.grid * plan.splits * plan.tiling.threads
    return busy_time(domain.size, threads, max(target.busy_threads, plan.tiling.threads))
