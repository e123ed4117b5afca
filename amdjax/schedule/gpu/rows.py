"""Kernels of regions with reductions, for GPUs.

A program has a row, or a block of neighbouring ones, and spreads one or two loops over its threads:
the loop in which neighbours lie side by side, and another one where that is short. A row that fits
the registers is read once and all its levels are computed from there; a longer one is walked once
for each level, and what is dear to compute again is kept in LDS. Reductions too long for the
programs there would be are cut into pieces, which the last program of a row combines, or a second
kernel where that is much.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from amdjax import tile
from amdjax.core.integers import ceil_div, floor_power_of_two, power_of_two
from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call, Temp
from amdjax.schedule.element import El, flat_parts
from amdjax.schedule.fusion import Root
from amdjax.schedule.gpu.calls import scratch_limit
from amdjax.schedule.gpu.combine import TILE, GpuCombineKernel, combine_axes, combine_pieces
from amdjax.schedule.gpu.element import EdgeLanes, TileElements, edge_lanes
from amdjax.schedule.gpu.tiles import (
    TileAxis,
    block_extent,
    fastest_vector,
    first_lanes,
    narrowest,
    region_name,
    tile_lanes,
)
from amdjax.schedule.index import Index, LoopVar
from amdjax.schedule.reduction import Reduction
from amdjax.schedule.rows import RowKernel
from amdjax.targets import GpuTarget

#: 32-bit registers of a thread for values of a tile that are alive together.
REGISTERS = 64
EACH = 16  # elements of a tile that a thread holds at most
#: Values alive together with which threads need more registers than the largest workgroup leaves.
MANY = 10
#: In what narrow values are accumulated.
WORDS = {"i8": "i32", "u8": "u32", "bool": "u32"}
NARROW = 16  # columns a program has at least, so that it reads whole cache lines
CUT = 1 << 14  # elements from which a reduction is cut into pieces
#: Elements that a piece has for each of the pieces: programs arrive one after the other, and what
#: more of them take for that has to be less than what reading takes less.
SHARE = 64
#: Partial results that one program combines; where twice as many would be useful, programs of a
#: second launch share them.
COMBINED = 16 * TILE


class GpuRowKernel(RowKernel):
    """A region with reductions."""

    elements = TileElements
    target: GpuTarget

    @property
    def name(self) -> str:  # type: ignore[override]
        return region_name("rows", self.region)

    def begin(self) -> None:
        super().begin()
        # What is computed once a row has lanes of its own, and so does what is known of them.
        self.per_row = TileElements(self.k, self.b.producers, self.memory, self._row_value)
        self.per_row.alias = self.domain.alias
        self.per_row.scalars = self.b.scalars

    # Shape of the schedule

    def _choose_lanes(self) -> None:
        """The loops of the tile, and how many threads share it."""
        #: Nothing waits for a reduction, so that all a program does is to read and to combine.
        self.only_combines = not self.levels
        fast = self.domain.vars[-1] if self.domain.vars else None
        self.vector = fastest_vector(
            self.target, narrowest(self.domain), fast.extent if fast else 1
        )
        if fast is None:
            self.axes: list[TileAxis] = []
            self.threads = self.target.wave_size
        elif fast in self.domain.reduced:
            self._choose_rows(fast)
        else:
            self._choose_columns(fast)
        self._settle()

    def _choose_rows(self, fast: LoopVar) -> None:
        """The innermost loop is reduced: a row a program, or several short ones."""
        n, wave = power_of_two(fast.extent), self.target.wave_size
        others = [v for v in self.inner if v is not fast] or self.outer
        if n < wave * self.vector and others:
            slow = others[-1]
            count = min(
                power_of_two(slow.extent), max(self._held(self.target.usual_workgroup) // n, 1)
            )
            self.axes = [TileAxis(slow, count), TileAxis(fast, n)]
            self.threads = self._threads_for(n * count)
            return
        held = self._held if self.inner == [fast] else self._accumulating
        if n <= held(self._most_threads):
            self.threads = self._threads_for(n)
            while held(self.threads) < n:
                self.threads *= 2
            while self._is_idle(fast):
                self.threads *= 2
        else:
            usual = self.target.usual_workgroup
            few = self.levels > 0 and self._rows() * usual < self.target.busy_threads
            self.threads = self._most_threads if few else usual
            # What is kept beside the sums of a row that is walked again takes half.
            n = self._accumulating(self.threads) // (2 if self.levels else 1)
        self.axes = [TileAxis(fast, n)]

    def _choose_columns(self, fast: LoopVar) -> None:
        """The innermost loop is kept: a block of columns a program, several elements of each."""
        columns = block_extent(fast.extent, self.target.wave_size * self.vector)
        if not self.inner:
            self.axes, self.threads = [TileAxis(fast, columns)], self.target.wave_size
            return
        slow = self.inner[-1]
        rows, most = power_of_two(slow.extent), self._held(self._most_threads)
        if self.levels and len(self.inner) == 1 and rows * NARROW <= most:
            while columns > NARROW and rows * columns > most:
                columns //= 2
        else:
            most = self._accumulating(self.target.usual_workgroup)
        rows = min(rows, max(most // columns, 1))
        self.axes = [TileAxis(slow, rows), TileAxis(fast, columns)]
        self.threads = self._threads_for(rows * columns)

    def _held(self, threads: int) -> int:
        """Elements of a tile that the registers of so many threads hold."""
        each = REGISTERS // (max(self.domain.widest // 32, 1) * self._alive)
        # Of narrow elements it takes more to ask memory for as much at once.
        narrow = self.only_combines and narrowest(self.domain) < 32
        return threads * min(floor_power_of_two(each), 2 * EACH if narrow else EACH)

    def _accumulating(self, threads: int) -> int:
        """Elements of a tile that these threads add to accumulators of their own."""
        if not self.only_combines:
            return self._held(threads)
        each = 2 * EACH // self._accumulators
        if narrowest(self.domain) == 8:  # taken out of words, they need registers of their own
            each = min(each, EACH)
        return min(self._held(threads), threads << (each.bit_length() - 1))

    @cached_property
    def _alive(self) -> int:
        """Tiles alive together: what is read, what is kept, and terms of sums side by side."""
        loads = len(set(self.domain.loads))
        kept = sum(not r.is_reduction and not r.row for r in self.region.roots)
        together = Counter(r.level for r in self.region.roots if r.is_reduction)
        return max(loads + kept + max(together.values()) - 1, 1)

    @property
    def _accumulators(self) -> int:
        """Tiles of what is accumulated."""
        return sum(rule.accumulators for rule in self.reductions.values())

    @property
    def _most_threads(self) -> int:
        most = self.target.max_workgroup
        return most // 2 if self._alive > MANY else most

    def _rows(self) -> int:
        return math.prod(v.extent for v in self.outer)

    def _is_idle(self, fast: LoopVar) -> bool:
        """Whether twice the threads would find work in a tile, and room on the machine."""
        most = min(self._most_threads, power_of_two(fast.extent) // self.vector)
        # The loops around a tile are cut into pieces where nothing waits for their results.
        tiles = self._rows() if self.levels else self.domain.size // fast.extent
        return self.threads * 2 <= most and tiles * self.threads * 4 < self.target.busy_threads

    def _threads_for(self, elements: int) -> int:
        """Threads that share a tile: about eight elements each, more if more are needed."""
        wave, most = self.target.wave_size, self._most_threads
        threads = max(wave, min(power_of_two(elements // 8), self.target.usual_workgroup))
        while threads < most and self._held(threads) < elements:
            threads *= 2
        return threads

    def _settle(self) -> None:
        """What follows from the choice of axes."""
        self.row_axis = next((a for a in self.axes if a.var not in self.domain.reduced), None)
        self.reduced_axes = [a for a in self.axes if a.var in self.domain.reduced]
        chosen = [a.var for a in self.axes]
        self.loops = [v for v in self.inner if v not in chosen]
        self.around = [v for v in self.outer if v not in chosen]
        whole = all(a.is_whole for a in self.reduced_axes)
        self.is_resident = whole and not self.loops
        self.shape = tuple(a.count for a in self.axes)
        self.count, self.lanes_reduce = math.prod(self.shape), bool(self.reduced_axes)
        # A thread's neighbours are neighbours in memory only along the fast axis.
        if self.shape:
            self.vector = min(self.vector, self.shape[-1])

    @property
    def grid(self) -> int:
        blocks = self.row_axis.blocks if self.row_axis else 1
        return math.prod(v.extent for v in self.around) * blocks

    def _pieces(self) -> int:
        if self.levels > 0 or not self.inner or self.domain.size < CUT:
            return 1
        wanted = self.target.busy_threads // (self.threads * self.grid)
        most = math.isqrt(self.domain.size // (self.grid * SHARE))
        return max(1, min(wanted, most, ceil_div(self.cut.extent, self.unit)))

    @property
    def cut(self) -> LoopVar:
        """The reduced loop of most steps."""
        return max(self.inner, key=lambda v: ceil_div(v.extent, self._step(v)))

    @property
    def unit(self) -> int:
        return self._step(self.cut)

    def _step(self, loop: LoopVar) -> int:
        return next((a.count for a in self.axes if a.var is loop), 1)

    # Programs

    def _programs(self, body: Callable[[], None], pieces: int = 1) -> None:
        k, pid = self.k, self.k.program_id()
        k.schedule.workgroup, k.schedule.vector = self.threads, self.vector
        if pieces > 1:
            self.piece = k.op("rem", pid, k.const("index", pieces))
            pid = k.op("div", pid, k.const("index", pieces))
        self.row_base = k.const("index", 0)
        if self.row_axis:
            (self.row_base,), pid = first_lanes(k, [self.row_axis], pid, len(self.around))
        self.bind_outer(self.around, pid)
        if self.row_axis:
            axis, base = self.row_axis, self.row_base
            edge = axis.edge(k, base, axis.var.extent)
            self.per_row.lanes = [edge_lanes(k, axis.var, axis.count, None, base, edge)]
        if self.is_resident and pieces == 1:
            zero = k.const("index", 0)
            self.with_lanes(self._lanes({a.var: zero for a in self.reduced_axes}), body)
        else:
            body()

    def _lanes(
        self,
        bases: dict[LoopVar, tile.Value],
        stops: dict[LoopVar, tile.Value] | None = None,
    ) -> list[EdgeLanes]:
        """The lanes of a tile whose reduced axes begin at `bases`."""
        places = [bases.get(a.var, self.row_base) for a in self.axes]
        return tile_lanes(self.k, self.axes, places, [(stops or {}).get(a.var) for a in self.axes])

    # Values of rows

    def _row_value(self, var: Var, index: tuple[Index, ...]) -> El | None:
        return self.rows.get(var)

    def special(self, var: Var, index: tuple[Index, ...]) -> El | None:
        if var in self.rows:
            return self._over_tile(self.rows[var])
        return super().special(var, index)

    def _over_tile(self, x: El) -> El:
        """The value of each row, along the rows of the tile."""
        if self.row_axis is None or len(self.axes) < 2:
            return x
        axis = 1 - self.axes.index(self.row_axis)
        return El(x.dtype, *(self.k.expand(p, axis) if p.shape else p for p in x.parts))

    # Passes

    def _reduce_loop(
        self,
        reductions: Sequence[Root],
        elements: Sequence[Root],
        bounds: tuple[Any, Any] | None = None,
    ) -> list[list[El]]:
        b, k = self.b, self.k
        rules = [self.reductions[r] for r in reductions]
        starts = [rule.identity(b) for rule in rules]
        if self.is_resident and bounds is None:
            for r in elements:
                self._element_root(r)
            return [
                self._contribution(rule, start) for rule, start in zip(rules, starts, strict=True)
            ]

        def merge(*carried: tile.Value) -> list[tile.Value]:
            for r in elements:
                self._element_root(r)
            it, out = iter(carried), []
            for root, start in zip(reductions, starts, strict=True):
                accs = [El(e.dtype, *(next(it) for _ in e.parts)) for e in start]
                with k.made_from(root.eqn.origin):
                    merged = self._accumulated(root, start, accs)
                    shape = self._accumulator_shape(root)
                    out += [k.broadcast(p, shape) for e in merged for p in e.parts]
            return out

        flat = [
            k.broadcast(p, self._accumulator_shape(root))
            for root, start in zip(reductions, starts, strict=True)
            for e in self._in_words(root, start)
            for p in e.parts
        ]
        result = iter(self._walk(bounds, merge, flat))
        return [
            [El(e.dtype, *(k.convert(next(result), p.dtype) for p in e.parts)) for e in start]
            for start in starts
        ]

    def _accumulator_shape(self, root: Root) -> tuple[int, ...]:
        return self.shape

    def _accumulated(self, root: Root, start: Sequence[El], accs: list[El]) -> list[El]:
        """Accumulators with what the tile contributes."""
        rule = self.reductions[root]
        xs = self._in_words(root, self._contribution(rule, start))
        return rule.merge(self.b, accs, xs)

    def _in_words(self, root: Root, xs: Sequence[El]) -> Sequence[El]:
        """Bytes and bits as words, which threads need not put together in every round."""
        if not isinstance(self.reductions[root].rule.combine, str):
            return xs
        k = self.k
        return [El(x.dtype, *(k.convert(p, WORDS.get(p.dtype, p.dtype)) for p in x.parts))
                for x in xs]  # fmt: skip

    def _contribution(self, rule: Reduction, start: Sequence[El]) -> list[El]:
        """What the tile contributes to a reduction; the identity where it ends early."""
        b, k = self.b, self.k
        with k.made_from(rule.eqn.origin):
            xs = rule.element(b, self.domain.element_index(rule.shape))
            for lanes in b.lanes:
                if lanes.mask is not None and lanes.var in self.domain.reduced:
                    keep = El("bool", lanes.mask)
                    xs = [b.select(keep, x, e) for x, e in zip(xs, start, strict=True)]
            return [El(x.dtype, *(k.broadcast(p, self.shape) for p in x.parts)) for x in xs]

    def _walk(
        self,
        bounds: tuple[Any, Any] | None,
        merge: Callable[..., list[tile.Value]],
        carried: Sequence[tile.Value],
    ) -> Sequence[tile.Value]:
        """Call `merge` for all tiles of the reduced loops; `bounds` limits the one that is cut."""
        k, b = self.k, self.b
        order: list[LoopVar | TileAxis] = [*self.loops, *self.reduced_axes]
        bases: dict[LoopVar, tile.Value] = {}
        stops: dict[LoopVar, tile.Value] = {}

        def nest(depth: int, values: Sequence[tile.Value]) -> Sequence[tile.Value]:
            if depth == len(order):
                lanes = self._lanes(bases, stops)
                return self.with_lanes(lanes, lambda: merge(*values))
            loop = order[depth]
            var = loop.var if isinstance(loop, TileAxis) else loop
            step = loop.count if isinstance(loop, TileAxis) else 1
            low, high = self._range(var)
            if bounds and var is self.cut:
                (low, high), step = bounds, step * self.apart
            if isinstance(high, tile.Value):
                stops[var] = high

            def body(i: tile.Value, *now: tile.Value) -> Sequence[tile.Value]:
                if isinstance(loop, TileAxis):
                    bases[var] = i
                else:
                    b.scalars[var] = i
                return nest(depth + 1, now)

            if isinstance(low, int) and isinstance(high, int) and high - low <= step:
                return body(k.const("index", low), *values)
            return k.for_(low, high, step, b.nested(body), values)

        return nest(0, carried)

    def _range(self, loop: LoopVar) -> tuple[Any, Any]:
        """Where the tiles along a loop begin and end."""
        return 0, loop.extent

    def horizontal(self, rule: Reduction, accs: list[El]) -> list[El]:
        axes = [i for i, axis in enumerate(self.axes) if axis in self.reduced_axes]
        return combine_axes(self.per_row, rule, accs, axes)

    # What is kept between passes

    def _stashes(self, root: Root) -> bool:
        if self.is_resident or self.row_axis is not None:
            return False
        return super()._stashes(root)

    @property
    def stash_limit(self) -> int:  # type: ignore[override]
        """Elements of a row of which two fit the LDS."""
        return scratch_limit(self.target) // (2 * max(self.domain.widest // 8, 4)) - self.count

    # Pieces

    def _bounds(self, pieces: int) -> tuple[Any, Any]:
        """Every so many tiles: programs at work together read memory that lies together."""
        self.apart = pieces
        return self.piece * self.unit, self.cut.extent

    def _build_pieces(self, pieces: int) -> list[Call]:
        """The last program of a row combines its pieces, where they are few enough for one."""
        lanes = self.row_axis.count if self.row_axis else 1
        few = max(COMBINED // lanes, 1)
        if pieces > 2 * few:
            return super()._build_pieces(pieces)
        pieces = min(pieces, few)
        self.begin()
        groups = self.grid
        self._programs(lambda: self._piece_of_group(pieces, groups, lanes), pieces)
        return [self.finish(groups * pieces, self.domain.size)]

    def _piece_of_group(self, pieces: int, groups: int, lanes: int) -> None:
        """One piece of a tile of rows; whoever comes last combines all of them."""
        k, pid, partials = self.k, self.k.program_id(), []
        for root, accs in self._piece_totals(pieces):
            with k.made_from(root.eqn.origin):
                parts = flat_parts(accs)
                temps = [Temp(p.dtype, groups * pieces * lanes) for p in parts]
                buffers = [self.param(t, t.dtype, "inout") for t in temps]
                for buffer, part in zip(buffers, parts, strict=True):
                    k.store(buffer, pid * lanes, part)
                partials.append((root, buffers))
        group = k.op("div", pid, k.const("index", pieces))
        counters = self.param(Temp("u32", groups, zero=True), "u32", "inout")

        def combine() -> None:
            first = group * (pieces * lanes)
            count = min(power_of_two(pieces), max(TILE // lanes, 1))
            axes = [TileAxis(LoopVar("piece", pieces), count)]
            axes += [self.row_axis] if self.row_axis else []
            for root, buffers in partials:
                with k.made_from(root.eqn.origin):
                    rule = self.reductions[root]
                    accs = combine_pieces(self.per_row, rule, buffers, axes, first, lanes)
                    self._finish(root, accs)
            self._row_roots(0)

        last = k.arrive(counters, group, pieces)
        k.if_(last, self.b.nested(self.per_row.nested(combine)))

    def _combine(self, partials: dict[Root, list[Temp]], pieces: int, rows: int) -> Call:
        return GpuCombineKernel(
            self.region, self.fusion, self.target, self.reductions, partials, pieces, rows
        ).build()
