"""Rows that do not fit the registers: how often they are walked, and what is kept meanwhile.

What several walks read from memory stays in LDS where that is large enough, in the dtype it has in
memory, and so does what is dear to compute again. Otherwise sums relative to an extremum are
computed in the walk that finds it (`online.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from amdjax import tile
from amdjax.core.integers import power_of_two
from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call
from amdjax.schedule.element import El, compute_dtype, short_dtype
from amdjax.schedule.fusion import Root
from amdjax.schedule.gpu.alignment import AlignedElements, row_start
from amdjax.schedule.gpu.element import EdgeLanes, edge_lanes
from amdjax.schedule.gpu.online_softmax import Rescaled, merge_walks
from amdjax.schedule.gpu.rows import GpuRowKernel
from amdjax.schedule.gpu.tiles import TileAxis, narrowest
from amdjax.schedule.index import Index, LoopVar, linear, placed
from amdjax.schedule.reduction import Reduction

__all__ = ["GpuRowWalks"]

#: Bytes of LDS through which reductions combine waves.
RESERVED = 4096
#: Threads of a CU that hide the latency of memory.
BUSY = 1024
PART = 4  # of a row one such part at least is kept in LDS, or none
DEEP = 32  # elements of a tile that a thread holds at most, where it has the registers
#: How much earlier than its row a program's first tile begins.
_AHEAD = LoopVar("ahead", 16)
DEAR = 8  # cost of a value above which it is kept rather than computed again


@dataclass(frozen=True)
class Span:
    """Part of a walk: from `low` to before `high`, in tiles of so many lanes.

    `whole` says that all lanes exist, `kept` that what is read stays in LDS.
    """

    low: int
    high: tile.Value | int
    count: int
    whole: bool
    kept: bool


class GpuRowWalks(GpuRowKernel):
    """A region with reductions, whose rows may be long."""

    elements = AlignedElements
    b: AlignedElements
    #: Where a row begins in memory, if its tiles begin earlier; and how much, in a program.
    start: Index | None = None
    ahead: tile.Value
    #: The part of a walk that is being written, if it has several.
    span: Span | None = None
    #: Elements of a row that stay in LDS, if not all do.
    keep = 0

    def begin(self) -> None:
        super().begin()
        self.kept: dict[Var, tuple[tile.Buffer, int]] = {}
        #: What stands for a value of the row while its extremum is not known yet.
        self.references: dict[Var, El] = {}
        #: What each thread found of an extremum, and what all did.
        self.found: dict[Root, tuple[tile.Value, tile.Value]] = {}

    # Shape of the schedule

    def _choose_rows(self, fast: LoopVar) -> None:
        super()._choose_rows(fast)
        threads, n = self._most_threads, power_of_two(fast.extent)
        if self.inner == [fast] and self._held(threads) < n <= self._deep * threads:
            self.threads, self.axes = threads, [TileAxis(fast, n)]

    @property
    def _deep(self) -> int:
        """Elements of a row that is read again of which threads have registers for so many."""
        merged, _ = merge_walks(self.region, self.fusion)
        if not any(r.level for r in merged.roots):
            return 0
        each = self.target.registers_of(self._most_threads)
        return min(each // (2 * self._alive * max(self.domain.widest // 32, 1)), DEEP)

    def _settle(self) -> None:
        super()._settle()
        self.rescaled: dict[Root, Rescaled] = {}
        self.inputs: list[Var] = []
        self.dear: list[Root] = []
        if self.levels and self._walks_one_row:
            self._plan_walks()

    @property
    def _walks_one_row(self) -> bool:
        one = not self.is_resident and len(self.axes) == 1 and self.lanes_reduce
        return one and self.count >= self.threads * self.vector

    def _plan_walks(self) -> None:
        """Decide what stays in LDS, and which walks become one."""
        self._align()
        inputs, dear = self._worth_keeping()
        if not (dear and self._fits(inputs, dear)):
            self.region, self.rescaled = merge_walks(self.region, self.fusion)
            self.levels = max(r.level for r in self.region.roots)
            self.reductions = {r: Reduction(r.eqn) for r in self.region.roots if r.is_reduction}
            inputs, dear = self._worth_keeping()
        self.inputs = inputs if self._fits(inputs, []) else []
        self.dear = dear if self._fits(self.inputs, dear) else []
        self._share_lds()
        if inputs and not self.inputs and not self.dear and self._is_spanned:
            self._keep_part(inputs)

    def _keep_part(self, inputs: list[Var]) -> None:
        """Keep as much of a row in LDS as fits, if that is worth it."""
        usual = self.threads, self.axes
        self.inputs, self.keep = inputs, 1
        self.keep = (self.target.lds_bytes - RESERVED) // sum(self._sizes(inputs, []))
        self._share_lds()
        first = self._first(self.count)
        self.keep = first + max(self.keep - first, 0) // self.count * self.count
        if self.keep * PART < self._row_elements:
            self.inputs, self.keep = [], 0
            self.threads, self.axes = usual
            super()._settle()

    @property
    def _is_spanned(self) -> bool:
        """Whether threads have sums of their own, so that tiles may differ in size."""
        if not (self.levels or self.rescaled) or not self._walks_one_row:
            return False
        rules = self.reductions.values()
        plain = all(isinstance(rule.rule.combine, str) for rule in rules)
        reals = not any(x.aval.dtype.kind == "c" for rule in rules for x in rule.eqn.invars)
        return plain and reals and self.inner == [self.axes[0].var]

    def _align(self) -> None:
        """Let tiles begin where memory is aligned, if rows do not."""
        (axis,) = self.axes
        vector = self.target.vector_for(narrowest(self.domain))
        self.start = row_start(self.domain, axis.var)
        if self.vector == vector or self.inner != [axis.var] or self.count < self.threads * vector:
            self.start = None
        if self.start is not None:
            self.vector, self.axes = vector, [replace(axis, early=True)]

    def _share_lds(self) -> None:
        """Give programs so many threads that those which have LDS at once keep a CU busy."""
        lds = sum(self._sizes(self.inputs, self.dear))
        programs = max(self.target.lds_per_cu // (lds + RESERVED), 1)
        (axis,) = self.axes
        whole = power_of_two(axis.var.extent)
        most = min(self._most_threads, whole // self.vector)
        while self.threads * 2 <= most and programs * self.threads < BUSY:
            self.threads *= 2
        count = self._held(self.threads) // (1 if self.rescaled else 2)
        self.axes = [replace(axis, count=min(count, whole))]
        super()._settle()

    def _fits(self, inputs: Sequence[Var], dear: Sequence[Root]) -> bool:
        return sum(self._sizes(inputs, dear)) <= self.target.lds_bytes - RESERVED

    def _sizes(self, inputs: Sequence[Var], dear: Sequence[Root]) -> list[int]:
        """Bytes of LDS that keep a row of each value."""
        names = [short_dtype(v.aval.dtype) for v in inputs]
        names += [compute_dtype(short_dtype(v.aval.dtype)) for r in dear for v in r.vars]
        return [self._stash_size() * tile.itemsize(name) for name in names]

    @property
    def _row_elements(self) -> int:
        return math.prod(v.extent for v in self.inner)

    def _worth_keeping(self) -> tuple[list[Var], list[Root]]:
        """Arrays that several walks read, and what later walks would compute again."""
        dear = [r for r in self.region.roots if self._is_dear(r)]
        walks: dict[Var, set[int]] = {}
        elsewhere: set[Var] = set()
        for root, level in self._visits(dear):
            for v, index in root.reads:
                walks.setdefault(v, set()).add(level)
                if index != placed(map(Index.of, root.dims), v.aval.shape):
                    elsewhere.add(v)
        again = [v for v, levels in walks.items() if len(levels) > 1 and v not in elsewhere]
        return [v for v in again if self._is_array(v)], dear

    def _is_dear(self, root: Root) -> bool:
        if root.is_reduction or root.row or root.cost <= DEAR:
            return False
        if any(v in self.fusion.stored or v.aval.dtype.kind == "c" for v in root.vars):
            return False
        own = set(root.vars)
        return any(v in own for r in self.region.roots if r.level > root.level for v, _ in r.reads)

    def _is_array(self, var: Var) -> bool:
        """Whether a variable lies in memory, with an element for each point of the domain."""
        if any(var in r.vars for r in self.region.roots):
            return False
        kind, size = var.aval.dtype.kind, var.aval.dtype.itemsize
        long = tuple(n for n in var.aval.shape if n != 1)
        return long == self.region.domain and (kind in "fiu" or (kind == "V" and size > 1))

    def _visits(self, dear: Sequence[Root]) -> Iterator[tuple[Root, int]]:
        """Which roots are computed for each element, and in which walks."""
        for root in self.region.roots:
            stored = any(v in self.fusion.stored for v in root.vars)
            if root.is_reduction or (not root.row and stored) or root in dear:
                yield from self._computed(root, root.level, dear)

    def _computed(self, root: Root, level: int, dear: Sequence[Root]) -> Iterator[tuple[Root, int]]:
        yield root, level
        for other in self.region.roots:
            if other.is_reduction or other.row or other is root:
                continue
            ready = other.level < level and (
                other in dear or any(v in self.fusion.stored for v in other.vars)
            )
            if not ready and any(v in other.vars for v, _ in root.reads):
                yield from self._computed(other, level, dear)

    def _pieces(self) -> int:
        return 1 if self.rescaled else super()._pieces()

    def finish(self, grid: int, elements: int, **options: Any) -> Call:
        call = super().finish(grid, elements, **options)
        return replace(call, whole_lds=bool(self.inputs or self.dear))

    # Tiles that begin before the row

    def bind_outer(self, variables: Sequence[LoopVar], position: tile.Value) -> None:
        super().bind_outer(variables, position)
        if self.start is None:
            return
        k, start = self.k, self.b.index_tile(self.start)
        vector = k.const("index", self.vector)
        aligned = k.op("mul", k.op("div", start, vector), vector)
        self.ahead = k.op("sub", start, aligned)
        self.b.scalars[_AHEAD] = self.ahead
        self.b.starts = {self.start: aligned, Index.of(_AHEAD): k.const("index", 0)}

    def _lanes(
        self,
        bases: dict[LoopVar, tile.Value],
        stops: dict[LoopVar, tile.Value] | None = None,
    ) -> list[EdgeLanes]:
        if self.span is None:
            return super()._lanes(bases, stops)
        k, axis, ((loop, place),) = self.k, self.axes[0], bases.items()
        base = place if self.start is None else k.op("sub", place, self.ahead)
        edge = None if self.span.whole else axis.edge(k, base, loop.extent)
        lanes = edge_lanes(k, loop, axis.count, None, base, edge)
        lanes.place = None if self.start is None else place
        return [lanes]

    def _stash_position(self) -> Index:
        position = super()._stash_position()
        return position if self.start is None else position + Index.of(_AHEAD)

    # Parts of a walk

    def _walk(
        self,
        bounds: tuple[Any, Any] | None,
        merge: Callable[..., list[tile.Value]],
        carried: Sequence[tile.Value],
    ) -> Sequence[tile.Value]:
        if bounds or not self._is_spanned:
            return super()._walk(bounds, merge, carried)
        axis = self.axes[0]
        for span in self._spans():
            self.span = span
            self._set_axis(replace(axis, count=span.count))
            carried = self.b.nested(super()._walk)(None, merge, carried)
        self.span = None
        self._set_axis(axis)
        return carried

    def _spans(self) -> list[Span]:
        """Large tiles where all lanes exist, small ones at the ends of the row."""
        axis, small = self.axes[0], self.threads * self.vector
        n, large, everything = axis.var.extent, axis.count, not self.keep
        first = self._first(large)
        middle = first + (n - first) // large * large
        kept = middle if everything else min(self.keep, middle)
        end: tile.Value | int = n if self.start is None else self.ahead + n
        spans = [
            Span(0, first, small, False, True),
            Span(first, kept, large, True, True),
            Span(kept, middle, large, True, False),
            Span(middle, end, small, False, everything),
        ]
        return [s for s in spans if isinstance(s.high, tile.Value) or s.low < s.high]

    def _first(self, large: int) -> int:
        """Lanes of the row's first tile, if that may begin before the row."""
        return 0 if self.start is None else min(self.threads * self.vector, large)

    def _set_axis(self, axis: TileAxis) -> None:
        self.axes = self.reduced_axes = [axis]
        self.shape, self.count = (axis.count,), axis.count

    def _range(self, loop: LoopVar) -> tuple[int, tile.Value | int]:
        return super()._range(loop) if self.span is None else (self.span.low, self.span.high)

    def _contribution(self, rule: Reduction, start: Sequence[El]) -> list[El]:
        xs = super()._contribution(rule, start)
        combine = rule.rule.combine
        if self.span is None or not isinstance(combine, str):
            return xs
        return [El(x.dtype, *(self._in_threads(combine, p) for p in x.parts)) for x in xs]

    # What is kept between walks

    def special(self, var: Var, index: tuple[Index, ...]) -> El | None:
        if var in self.references:
            return self.references[var]
        if var in self.inputs and not self.b.guards:
            return self._input(var, index)
        return super().special(var, index)

    def _input(self, var: Var, index: tuple[Index, ...]) -> El:
        """An element of an array, which stays in LDS once it was read."""
        dtype, position = short_dtype(var.aval.dtype), self._stash_position()
        if self.span is not None and not self.span.kept:
            return self.b.load(var, linear(index, var.aval.shape))
        buffer, level = self.kept.get(var, (None, 0))
        if buffer is not None and level < self.level:
            x = self.b._load(buffer, position)
        else:
            x = self.b._load(self.memory(var), linear(index, var.aval.shape))
            if buffer is None:
                buffer = self.k.scratch(f"x{len(self.kept)}.row", x.dtype, self._stash_size())
                self.kept[var] = buffer, self.level
            self.b._store(buffer, position, x)
        return El(dtype, self.k.convert(x, compute_dtype(dtype)))

    def _stashes(self, root: Root) -> bool:
        return root in self.dear if self._walks_one_row else super()._stashes(root)

    def _stash_size(self) -> int:
        if not self._walks_one_row:
            return super()._stash_size()
        if self.keep:
            return self.keep
        return self._row_elements + (self.vector if self.start is not None else 0)

    # Sums relative to an extremum

    @property
    def _extrema(self) -> set[Root]:
        return {m.extremum for m in self.rescaled.values()}

    def _reduce_loop(
        self,
        reductions: Sequence[Root],
        elements: Sequence[Root],
        bounds: tuple[Any, Any] | None = None,
    ) -> list[list[El]]:
        if not any(r in self.rescaled for r in reductions):
            return super()._reduce_loop(reductions, elements, bounds)
        # What is computed with a reference is nothing that others may use.
        totals: list[list[El]] = self.b.nested(super()._reduce_loop)(reductions, elements, bounds)
        self.references.clear()
        return totals

    def _accumulator_shape(self, root: Root) -> tuple[int, ...]:
        return (self.threads,) if self._is_spanned else super()._accumulator_shape(root)

    def _accumulated(self, root: Root, start: Sequence[El], accs: list[El]) -> list[El]:
        if root in self._extrema:
            return [self._extended(root, start, accs[0])]
        if root in self.rescaled:
            return [self._added(root, start, accs[0])]
        return super()._accumulated(root, start, accs)

    def _extended(self, root: Root, start: Sequence[El], acc: El) -> El:
        """The extremum of each thread with that of its elements of the tile."""
        combine = self.reductions[root].rule.combine
        assert isinstance(combine, str)
        (x,) = self._contribution(self.reductions[root], start)
        new = self.k.op(combine, acc.value, x.value)
        self.found[root] = acc.value, new
        for match in self.rescaled.values():
            if match.extremum is root:
                reference = self._over_threads(_finite(self.k, new))
                self.references[match.shift] = El(short_dtype(match.shift.aval.dtype), reference)
        return El(acc.dtype, new)

    def _added(self, root: Root, start: Sequence[El], acc: El) -> El:
        """The sum of each thread, relative to its new extremum."""
        (x,) = self._contribution(self.reductions[root], start)
        old, new = self.found[self.rescaled[root].extremum]
        scaled = self._scaled(root, acc.value, old, new)
        return El(acc.dtype, self.k.op("add", scaled, x.value))

    def _scaled(self, root: Root, x: tile.Value, old: tile.Value, new: tile.Value) -> tile.Value:
        """A sum relative to one extremum as that relative to another."""
        k = self.k
        factor = self._power(root, k.op("sub", _finite(k, old), _finite(k, new)))
        # Nothing yet is nothing later, however large the factor.
        zero = k.const(x.dtype, 0, x.shape)
        return k.select(k.op("eq", x, zero), x, k.op("mul", x, factor))

    def _power(self, root: Root, x: tile.Value) -> tile.Value:
        """What a sum grows by if `x` less is subtracted in its exponents."""
        match = self.rescaled[root]
        if match.factor != 1:
            x = self.k.op("mul", x, self.k.const(x.dtype, match.factor, x.shape))
        return self.k.op(match.power, x)

    def _in_threads(self, combine: str, x: tile.Value) -> tile.Value:
        """Elements that the same thread holds, combined."""
        k, threads, side = self.k, self.threads, self.vector
        if self.count > threads * side:
            x = k.reduce(combine, k.reshape(x, (self.count // (threads * side), threads * side)), 0)
        return k.reduce(combine, k.reshape(x, (threads, side)), 1) if side > 1 else x

    def _over_threads(self, x: tile.Value) -> tile.Value:
        """A tile whose elements are those of the threads that hold them."""
        k, threads, side = self.k, self.threads, self.vector
        if side > 1:
            x = k.reshape(k.broadcast(k.expand(x, 1), (threads, side)), (threads * side,))
        if self.count > threads * side:
            shape = self.count // (threads * side), threads * side
            x = k.reshape(k.broadcast(k.expand(x, 0), shape), (self.count,))
        return x

    def horizontal(self, rule: Reduction, accs: list[El]) -> list[El]:
        root = next(r for r, one in self.reductions.items() if one is rule)
        if root in self._extrema:
            totals = super().horizontal(rule, accs)
            self.found[root] = accs[0].value, totals[0].value
            return totals
        if root in self.rescaled:
            return [self._total(root, accs[0])]
        return super().horizontal(rule, accs)

    def _total(self, root: Root, acc: El) -> El:
        """The sum of all threads, relative to what the program subtracts."""
        match, k = self.rescaled[root], self.k
        mine, every = self.found[match.extremum]
        every = _finite(k, every)
        scaled = self._scaled(root, acc.value, mine, k.broadcast(every, mine.shape))
        (total,) = super().horizontal(self.reductions[root], [El(acc.dtype, scaled)])
        shift = self.per_row.value(match.shift, self._row_place(match.shift)).value
        # One, unless the extremum is not finite; then the result is what it has to be.
        factor = self._power(root, k.op("sub", every, shift))
        return El(acc.dtype, k.op("mul", total.value, factor))

    def _row_place(self, var: Var) -> tuple[Index, ...]:
        """The place of a value of the row, which may have been laid along the whole domain."""
        shape, index = var.aval.shape, self.domain.index
        if sum(n != 1 for n in shape) < len(index):
            return self.domain.row_index(shape)
        reduced = self.region.axes or ()
        return placed((Index(0) if i in reduced else x for i, x in enumerate(index)), shape)


def _finite(k: tile.Builder, x: tile.Value) -> tile.Value:
    """Numbers; zero for what is infinite or none."""
    return k.select(k.op("is_finite", x), x, k.const(x.dtype, 0, x.shape))
