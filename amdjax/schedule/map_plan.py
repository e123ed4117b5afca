"""How a region without reductions is computed on a CPU: loops in lanes, blocks, square tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from amdjax.core.dims import Dim, cheapest, choosing, size_hint, surely_equal
from amdjax.core.integers import ceil_div, round_up
from amdjax.core.jaxpr import Var
from amdjax.schedule.domain import Domain
from amdjax.schedule.index import LoopVar, Quotient, changes
from amdjax.schedule.reads import LANES
from amdjax.schedule.row_plan import counted, extent, masks_cheaply, unrolled_loop
from amdjax.schedule.search import Family, Solver
from amdjax.schedule.writer import Machine, is_large, lane_count

CHUNK = 4096  # elements that a program handles ...
CHUNK_COST = 4 << 20  # ... unless they cost more than this together
SPARSE, AMPLE = 8, 16  # a program with an eighth of that is worse than one with 16 times as much
PROGRAM = 100  # elements that take as long as beginning a program
MOST_RANGES = 8  # of a loop that get code of their own
FEW_OPERATIONS = 40  # of which code may be there once for each part of a scalar loop
APART = 4  # elements in a row that take as long as one that lies apart from its neighbors


class Part(NamedTuple):
    """Steps of a loop from `start` to before `stop`."""

    start: int
    stop: int


@dataclass(frozen=True)
class Transposition:
    """Square tiles, where operands are contiguous along another loop than results are.

    Attributes:
      operand_var: the other loop.
      side: elements along an edge of a tile.
      block: elements along an edge of what a program computes.
      transposed: operands beyond the caches that lie the other way.
    """

    operand_var: LoopVar
    side: int
    block: int
    transposed: tuple[Var, ...]


@dataclass(frozen=True)
class CpuMapPlan:
    """A program is a block of the domain, with one loop in vector lanes.

    Attributes:
      domain: the loops.
      lane_var: the loop in lanes; None where there is no loop.
      count: lanes.
      chunk: steps of that loop in a program.
      inner: loops around it in a program.
      outer: loops over programs.
      flat: whether one kernel serves every length of the only loop.
      span: steps of the last loop of `outer` in a program.
      ranges: parts of the loop in lanes, one after the other, that differ in what is computed.
      inner_ranges: likewise of the scalar loop next to it in a program.
      transposition: of square tiles, where there are some.
      unrolled: the loop whose steps share what does not depend on it: the innermost, if it is short
        and lanes run over the one around it.
    """

    domain: Domain
    lane_var: LoopVar | None = None
    count: int = 1
    chunk: int = 1
    inner: tuple[LoopVar, ...] = ()
    outer: tuple[LoopVar, ...] = ()
    flat: bool = False
    span: int = 1
    ranges: tuple[Part, ...] = ()
    inner_ranges: tuple[Part, ...] = ()
    transposition: Transposition | None = None
    unrolled: LoopVar | None = None

    @property
    def is_masked(self) -> bool:
        """Whether tiles of a symbolic loop in lanes all have masks: where each is a loop.

        Results of other maps pass the caches where they are large, which masks do not.
        """
        loops = any(root.loop is not None for root in self.domain.region.roots)
        return loops and masks_cheaply(self.domain, self.lane_var)

    @property
    def chunks(self) -> int:
        """Programs that share the loop in lanes."""
        return ceil_div(self.lane_var.extent, self.chunk) if self.lane_var is not None else 1

    @property
    def blocks(self) -> tuple[int, int]:
        """Programs along the two loops of square tiles."""
        assert self.transposition is not None and self.lane_var is not None
        block = self.transposition.block
        return ceil_div(self.transposition.operand_var.extent, block), ceil_div(
            self.lane_var.extent, block
        )

    @property
    def grid(self) -> int:
        """Programs."""
        if self.transposition is not None:
            return extent(self.outer) * self.blocks[0] * self.blocks[1]
        if self.span > 1:
            return extent(self.outer[:-1]) * self.spans * self.chunks
        return extent(self.outer) * self.chunks

    @property
    def spans(self) -> int:
        """Programs along the last loop over programs."""
        return ceil_div(self.outer[-1].extent, self.span)

    def __str__(self) -> str:
        out = f"map of {self.domain.size}, {counted(self.grid, 'program')}"
        if self.lane_var is None:
            return out
        if (square := self.transposition) is not None:
            out += f" of {square.block}×{square.block} in squares of {square.side}"
            return f"{out} over {square.operand_var.name} and {self.lane_var.name}"
        out += f", {self.count} lanes over {self.lane_var.name}, {self.chunk} of it in a program"
        if self.unrolled is not None:
            out += f", {self.unrolled.name} unrolled"
        if self.inner:
            out += f", in loops over {' '.join(v.name for v in self.inner)}"
        if self.span > 1:
            out += f", {self.span} of {self.outer[-1].name}"
        for ranges in (self.inner_ranges, self.ranges):
            if len(ranges) > 1:
                out += f", apart from {' '.join(str(p.start) for p in ranges)}"
        return out + (", any length" if self.flat else "")


def cpu_map_plans(domain: Domain, target: Machine) -> list[CpuMapPlan]:
    """Schedules of a region without reductions on a CPU: in squares, or with one loop in lanes."""
    if not domain.vars:
        return [CpuMapPlan(domain)]
    lane_var = _lanes(domain)
    square = _in_squares(domain, target, lane_var)
    return [*([] if square is None else [square]), *_in_lanes(domain, target, lane_var)]


def usual_map_plan(domain: Domain, target: Machine) -> CpuMapPlan:
    """The first of these that takes least: squares, of which nothing is asked but whether they are.

    No other one is estimated to take as little.
    """
    if not domain.vars:
        return CpuMapPlan(domain)
    lane_var = _lanes(domain)
    square = _in_squares(domain, target, lane_var)
    if square is not None:
        return square
    plans = _in_lanes(domain, target, lane_var)
    with choosing():
        return plans[cheapest([cpu_map_cost(domain, plan, target) for plan in plans])]


def _lanes(domain: Domain) -> LoopVar:
    """The loop in lanes."""
    lane_var = lane_loop(domain)
    second = domain.vars[max(len(domain.vars) - 2, 0)]
    with choosing():
        long = second.extent >= LANES
    is_short = long and lane_var is unrolled_loop(domain, second, domain.stores)
    return second if is_short else lane_var


def _in_squares(domain: Domain, target: Machine, lane_var: LoopVar) -> CpuMapPlan | None:
    """The schedule in squares, where operands are contiguous along another loop than results."""
    across = crossing_loop(domain, lane_var)
    if across is None:
        return None
    others = tuple(v for v in domain.vars if v is not lane_var and v is not across)
    square = _transposition(domain, target, lane_var, across)
    return CpuMapPlan(domain, lane_var, outer=others, transposition=square)


def _in_lanes(domain: Domain, target: Machine, lane_var: LoopVar) -> list[CpuMapPlan]:
    """Schedules with a loop in lanes."""
    outer = tuple(v for v in domain.vars if v is not lane_var)
    flat = is_flat(domain)
    unrolled = unrolled_loop(domain, lane_var, domain.stores)
    steps = unrolled.extent if unrolled is not None else 1
    count = lane_count(domain, target, 1 << 20 if flat else lane_var.extent, steps)
    if unrolled is not None and _stores_words(domain):
        # A vector is made of the values of all steps: one each keeps the machine as busy as four.
        count = min(count, max(4, target.vectors.vector_bits // max(domain.widest, 8)))
    most = min(CHUNK, int(CHUNK_COST / max(size_hint(domain.cost), 1.0)))
    chunks = dict.fromkeys(round_up(max(most // part, 1), count) for part in (1, 2, 4))
    if flat:
        return [CpuMapPlan(domain, lane_var, count, chunk, flat=True) for chunk in chunks]
    if unrolled is not None:
        outer = outer[:-1]
    with choosing():
        ways = dict.fromkeys(
            (
                min(lane_var.extent, chunk),
                _inner_loops(outer, lane_var.extent, chunk, 4 * target.vectors.threads),
            )
            for chunk in chunks
        )
    least = target.vectors.vector_bits // max(domain.widest, 8)
    ranges, count = _lane_ranges(domain, lane_var, count, least)
    plans = []
    for chunk, inner in ways:
        rest = outer[: len(outer) - len(inner)]
        span = _span(rest, extent(inner) * chunk, most, 4 * target.vectors.threads)
        near = inner[-1] if inner else rest[-1] if span > 1 else None
        apart = _scalar_ranges(domain, near, len(ranges)) if near is not None else ()
        plans.append(
            CpuMapPlan(domain, lane_var, count, chunk, inner, rest, span=span, ranges=ranges,
                       inner_ranges=apart, unrolled=unrolled)
        )  # fmt: skip
    return plans


def _stores_words(domain: Domain) -> bool:
    """Whether elements are stored as wide as they are computed; narrower ones are converted."""
    return all(8 * v.aval.dtype.itemsize >= domain.widest for v, _ in domain.stores)


def cpu_map_cost(domain: Domain, plan: CpuMapPlan, target: Machine) -> float:
    """Elements, and what programs and elements that lie apart take, in elements."""
    if plan.transposition is not None or plan.lane_var is None:
        return domain.size
    across = crossing_loop(domain, plan.lane_var)
    return plan.grid * PROGRAM + domain.size * (1 if across is None else APART)


CPU_MAPS: Family[Domain, Machine, CpuMapPlan] = Family(
    "map on a CPU", Solver("map", cpu_map_plans, cpu_map_cost, usual=usual_map_plan)
)


def lane_loop(domain: Domain) -> LoopVar:
    """The loop whose neighbors lie side by side in most accesses."""

    def score(var: LoopVar) -> float:
        total = 0.0
        for _, o in domain.stores:
            total += 4.0 if surely_equal(o.coefficient(var), 1) else 0.0
        for _, o in domain.loads:
            if surely_equal(o.coefficient(var), 1):
                total += 2.0
            elif o.is_dynamic:  # each lane may read from another place
                total -= 2.0
            else:  # what all lanes share is read as quickly as what lies side by side
                total += 2.0 if not o.depends_on(var) else 0.0
        return total if var.extent >= 8 else total * var.extent / 16

    if len(domain.vars) == 1:
        return domain.vars[0]
    with choosing():
        return max(reversed(domain.vars), key=score)


def crossing_loop(domain: Domain, lane_var: LoopVar) -> LoopVar | None:
    """A loop along which some access is contiguous while it strides along the lanes."""
    if domain.widest > 64 or domain.operations > 100:
        return None
    with choosing():
        long = {v for v in domain.vars if v.extent >= 8}
    if lane_var not in long:
        return None
    for _, o in domain.loads:
        plain = any(surely_equal(o.coefficient(lane_var), c) for c in (0, 1))
        if plain or any(isinstance(s, Quotient) for s, _ in o.terms):
            continue
        for var in domain.vars:
            if var is not lane_var and var in long and surely_equal(o.coefficient(var), 1):
                return var
    return None


def _ranges(domain: Domain, var: LoopVar) -> tuple[Part, ...]:
    """Parts of a loop between which conditions on its variable alone change."""
    return tuple(Part(a, b) for a, b in pairwise(changes(domain.irregular, var)))


def _lane_ranges(
    domain: Domain, lane_var: LoopVar, count: int, least: int
) -> tuple[tuple[Part, ...], int]:
    """Parts of the loop in lanes, and the lanes: at least so many, and none beyond a part."""
    ranges, whole = _ranges(domain, lane_var), (Part(0, lane_var.extent),)
    if len(ranges) == 1 or len(ranges) > MOST_RANGES:
        return whole, count
    with choosing():
        while count > least and any(p.stop - p.start < count for p in ranges):
            count //= 2
        fit = all(p.stop - p.start >= count for p in ranges)
    return (ranges, count) if fit else (whole, count)


def _scalar_ranges(domain: Domain, var: LoopVar, others: int) -> tuple[Part, ...]:
    """Parts of a loop around that in lanes, of which code is written `others` times."""
    if isinstance(var.extent, Dim) or domain.operations > FEW_OPERATIONS:
        return ()
    numbers = (i.const for i in domain.irregular if any(v is var for v, _ in i.terms))
    if any(isinstance(n, Dim) for n in numbers):
        return ()
    ranges = _ranges(domain, var)
    return ranges if 1 < len(ranges) * others <= MOST_RANGES else ()


def _span(outer: Sequence[LoopVar], work: int, most: int, programs: int) -> int:
    """Steps of the last of the loops over programs that a program takes, of so much work each."""
    sizes = [v.extent for v in outer]
    if not sizes or any(isinstance(n, Dim) for n in (*sizes, work)) or 2 * work > most:
        return 1
    return max(1, min(most // work, sizes[-1], math.prod(sizes) // programs))


def is_flat(domain: Domain) -> bool:
    """Whether one code serves every length: a single loop, nothing depends on its extent."""
    offsets = [o for _, o in domain.loads + domain.stores]
    plain = all(
        surely_equal(o.const, 0) and all(surely_equal(c, 1) for _, c in o.terms) for o in offsets
    )
    return len(domain.vars) == 1 and not domain.irregular and plain


def _inner_loops(
    outer: Sequence[LoopVar], row: int, most: int, programs: int
) -> tuple[LoopVar, ...]:
    """The last of the outer loops that go into the program, until it has work enough.

    A program has rather too much than far too little, if there remain as many as wanted.
    """
    first = len(outer)
    while first:
        limit = most
        if row * SPARSE <= most and extent(outer[: first - 1]) >= programs:
            limit = most * AMPLE
        if row * outer[first - 1].extent > limit:
            break
        first -= 1
        row *= outer[first].extent
    return tuple(outer[first:])


def _transposition(
    domain: Domain, target: Machine, lane_var: LoopVar, across: LoopVar
) -> Transposition:
    side = 16 if domain.widest <= 32 and target.vectors.vector_bits >= 512 else 8
    transposed = tuple(
        v
        for v, o in domain.loads
        if is_large(v)
        and surely_equal(o.coefficient(across), 1)
        and o.coefficient(lane_var) > 1
        and len(o.terms) == 2
        and surely_equal(o.const, 0)
    )
    return Transposition(across, side, (8 if transposed else 4) * side, transposed)
