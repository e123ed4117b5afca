"""Writes kernels of regions with reductions, as plans of rows say.

A program makes one pass over its rows for each level of reductions that wait for each other. Where
a plan splits reductions, programs write what their parts add up to, and `combine.py` goes on.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from amdjax import tile
from amdjax.core.dims import fits, is_multiple, surely_equal
from amdjax.core.integers import ceil_div
from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call, Temp
from amdjax.schedule.combine import CombineKernel
from amdjax.schedule.element import ElementBuilder
from amdjax.schedule.fusion import Fusion, Root
from amdjax.schedule.index import Index, LoopVar, Symbol, linear
from amdjax.schedule.reduction import Reduction
from amdjax.schedule.row_plan import CpuRowPlan, RowPlan, extent
from amdjax.schedule.values import El, Lanes, flat_parts, regroup, short_dtype
from amdjax.schedule.writer import PREFETCH_DISTANCE, RegionWriter

Bounds = tuple[Any, Any]
Innermost = Callable[[tile.Value | None, Sequence[tile.Value]], list[tile.Value]]


class RowEmitter(ABC):
    """Passes over rows; how a program and a pass go through their elements is the machine's.

    Args:
      plan: of the region.
      fusion: of the program.
      target: the machine.
      name: of the kernel.
      elements: what writes elements.
    """

    plan: RowPlan
    combine: type[CombineKernel]

    def __init__(
        self, plan: Any, fusion: Fusion, target: Any, name: str = "kernel",
        elements: type[ElementBuilder] = ElementBuilder,
    ):  # fmt: skip
        self.plan, self.fusion, self.target = plan, fusion, target
        self.region, self.domain, self.reductions = plan.region, plan.domain, plan.reductions
        self.w = RegionWriter(
            plan.region, fusion, target, plan.domain, name, elements, self.special
        )
        self.k, self.b = self.w.k, self.w.b
        self.per_row: ElementBuilder = self.b  # writes what is computed once a row
        self.level = 0  # of the pass being written
        self.results: dict[Var, El] = {}  # of rows
        self.scratch: dict[Var, tuple[tile.Buffer, int]] = {}  # and the pass that fills it

    # What machines do differently

    @abstractmethod
    def program(self, pid: tile.Value, body: Callable[[], None]) -> None:
        """Give the variables of the grid the values they have in a program, and write its body."""

    @abstractmethod
    def totals(
        self, reductions: Sequence[Root], elements: Sequence[Root], bounds: Bounds | None = None
    ) -> list[list[El]]:
        """One pass over the elements; accumulators of each reduction, not combined yet."""

    @abstractmethod
    def horizontal(self, rule: Reduction, accs: list[El]) -> list[El]:
        """What the lanes accumulated, combined."""

    @abstractmethod
    def bounds(self, number: tile.Value) -> Bounds:
        """Where the split of a number begins and ends, in the loop that is split."""

    # Passes

    def whole_rows(self, grid: int) -> Call:
        """The launch in which each program computes its rows."""
        self.program(self.k.program_id(), self.passes)
        return self.w.finish(grid, self.domain.size * (1 + self.plan.levels))

    def passes(self) -> None:
        """All passes over the rows of a program."""
        self.results, self.scratch = {}, {}
        for level in range(self.plan.levels + 1):
            self.level = level
            self._pass()
            self.row_roots(level)

    def _pass(self) -> None:
        reductions = [r for r in self.reductions if r.level == self.level]
        elements = self.plan.element_roots(self.level)
        if not reductions and not elements:
            return
        for r, accs in zip(reductions, self.totals(reductions, elements), strict=True):
            with self.k.made_from(r.eqn.origin):
                self.finish_reduction(r, self.horizontal(self.reductions[r], accs))

    def finish_reduction(self, root: Root, accs: list[El]) -> None:
        """The results of a reduction from its accumulators."""
        finished = self.reductions[root].finish(self.per_row, accs)
        for v, x in zip(root.vars, finished, strict=True):
            self.results[v] = x
            if v in self.fusion.stored:
                self._store_row(v, x)

    def row_roots(self, level: int) -> None:
        """What follows from reductions once a row."""
        for r in self.region.roots:
            if r.row and r.level == level:
                for v in r.vars:
                    x = self.results[v] = self.per_row.value(v, self.domain.row_index(v.aval.shape))
                    if v in self.fusion.stored:
                        with self.k.made_from(r.eqn.origin):
                            self._store_row(v, x)

    def _store_row(self, var: Var, x: El) -> None:
        shape = var.aval.shape
        self.per_row.store(self.w.output(var), linear(self.domain.row_index(shape), shape), x)

    def element_root(self, root: Root) -> None:
        """Compute a value of an element, and keep it."""
        for v in root.vars:
            index = self.domain.element_index(v.aval.shape)
            x = self.b.value(v, index)
            with self.k.made_from(root.eqn.origin):
                if v in self.fusion.stored:
                    self.b.store(self.w.output(v), linear(index, v.aval.shape), x)
                elif root in self.plan.stashed:
                    self._stash(v, x)

    # Values that the kernel holds

    def special(self, var: Var, index: tuple[Index, ...]) -> El | None:
        """A value that is in registers, in scratch, or was stored by an earlier pass."""
        if var in self.results:
            return self.results[var]
        if var in self.scratch and self.scratch[var][1] < self.level:
            value = self.b._load(self.scratch[var][0], self.stash_position())
            return El(short_dtype(var.aval.dtype), value)
        root = next((r for r in self.region.roots if var in r.vars), None)
        if (
            root is not None
            and not root.row
            and var in self.fusion.stored
            and root.level < self.level
        ):
            return self.b.load(var, linear(index, var.aval.shape))
        return None

    def stash_position(self) -> Index:
        """The place of an element in scratch."""
        position = Index(0)
        for v in self.domain.vars:
            if v in self.domain.reduced:
                position = position * v.extent + Index.of(v)
        return position

    def _stash(self, var: Var, x: El) -> None:
        if var not in self.scratch:
            buffer = self.k.scratch(f"s{len(self.scratch)}", x.value.dtype, self.plan.stash_size)
            self.scratch[var] = (buffer, self.level)
        self.b._store(self.scratch[var][0], self.stash_position(), x.value)

    # Split reductions

    def split_number(self) -> tuple[tile.Value, tile.Value]:
        """Which split of its rows a program is, and which rows."""
        pid = self.k.program_id()
        number = pid % self.plan.splits
        return number, pid // self.plan.splits

    def split_totals(self, number: tile.Value) -> list[tuple[Root, list[El]]]:
        """What the split of a number contributes to each reduction."""
        roots, elements = list(self.reductions), self.plan.element_roots(0)
        out = []
        totals = self.totals(roots, elements, self.bounds(number))
        for r, accs in zip(roots, totals, strict=True):
            with self.k.made_from(r.eqn.origin):
                out.append((r, self.horizontal(self.reductions[r], accs)))
        return out

    def two_launches(self, grid: int) -> list[Call]:
        """Launches that compute partial results for each split, and combine them."""
        plan, partial = self.plan, dict[Root, list[Temp]]()
        number, pid = self.split_number()

        def body() -> None:
            for r, accs in self.split_totals(number):
                with self.k.made_from(r.eqn.origin):
                    parts = flat_parts(accs)
                    if r not in partial:
                        partial[r] = [Temp(p.dtype, plan.splits * plan.rows) for p in parts]
                    for temp, part in zip(partial[r], parts, strict=True):
                        self._store_partial(self.w.param(temp, temp.dtype, "out"), part, number)

        self.program(pid, body)
        first = self.w.finish(grid * plan.splits, self.domain.size)
        rows, splits = plan.rows, plan.splits
        combine = self.combine(
            plan.region, self.fusion, self.target, plan.reductions, partial, splits, rows
        )
        return [first, combine.build()]

    def _store_partial(self, buffer: tile.Buffer, part: tile.Value, number: tile.Value) -> None:
        shape = self.region.row_shape
        row = linear(self.domain.row_index(shape), shape)
        b, split = self.per_row, LoopVar("split", 1 << 30)
        b.scalars[split] = number
        b._store(buffer, Index.of(split) * self.plan.rows + row, part)


class CpuRowEmitter(RowEmitter):
    """Kernels of rows on a CPU."""

    plan: CpuRowPlan
    combine = CombineKernel
    #: Of sums in scratch: the first row, where they are, and the part of the split loop.
    first_row: tile.Value
    sums: Sequence[tile.Buffer] = ()
    part: Bounds | None = None

    def split_number(self) -> tuple[tile.Value, tile.Value]:
        number, rows = super().split_number()
        if self.plan.in_order:
            pid = self.k.program_id()
            number, rows = pid // self.plan.grid, pid % self.plan.grid
        self.part = self.bounds(number)
        return number, rows

    def calls(self) -> list[Call]:
        """The launches that compute the region."""
        grid = self.plan.grid
        return [self.whole_rows(grid)] if self.plan.splits == 1 else self.two_launches(grid)

    def program(self, pid: tile.Value, body: Callable[[], None]) -> None:
        k, w, plan = self.k, self.w, self.plan
        lane_var, count = plan.lane_var, plan.count
        if lane_var is None or plan.lanes_reduce:
            w.bind_outer(plan.outer, pid)
            body()
            return
        base = (pid % plan.bundles) * (plan.chunk or count)
        outer = [v for v in plan.outer if v not in (lane_var, plan.row_var)]
        rest = pid // plan.bundles
        if plan.row_var is not None:
            first = (rest % plan.blocks) * plan.steps
            w.bind_outer(outer, rest // plan.blocks)
            rows = Lanes(plan.row_var, plan.steps, 0, first)
            w.with_lanes([rows, Lanes(lane_var, count, 1, base)], body)
            return
        w.bind_outer(outer, rest)
        if plan.chunk:
            self._by_scratch(lane_var, base, body)
            return

        def with_mask(mask: tile.Value | None) -> None:
            w.with_lanes([Lanes(lane_var, count, 0, base, mask)], body)

        n = lane_var.extent
        if is_multiple(n, count):
            with_mask(None)
        elif fits(n, count):
            with_mask(w.mask(base, count, k.const("index", n), last=isinstance(n, int)))
        else:
            k.if_(
                (base + count) <= n,
                self.b.nested(lambda: with_mask(None)),
                self.b.nested(lambda: with_mask(w.mask(base, count, k.const("index", n)))),
            )

    def totals(
        self, reductions: Sequence[Root], elements: Sequence[Root], bounds: Bounds | None = None
    ) -> list[list[El]]:
        k, b, plan = self.k, self.b, self.plan
        rules = [self.reductions[r] for r in reductions]
        starts = [rule.identity(b) for rule in rules]
        if plan.unrolled is not None:
            return self._unrolled(plan.unrolled, rules, starts, elements)
        if plan.chunk:
            place = b.lanes[-1].base - self.first_row
            result = iter([k.load(buffer, place, plan.tile) for buffer in self.sums])
            return [regroup(start, result) for start in starts]
        flat = [k.broadcast(p, plan.tile) for p in flat_parts(x for xs in starts for x in xs)]
        innermost = self._element(rules, starts, elements)
        result = iter(self._loops(innermost, flat, bounds))
        return [regroup(start, result) for start in starts]

    def _element(
        self, rules: Sequence[Reduction], starts: Sequence[list[El]], elements: Sequence[Root]
    ) -> Innermost:
        """What a pass does with the elements in a tile: keeps some, and adds to accumulators."""
        k, b, shape = self.k, self.b, self.plan.tile

        def innermost(mask: tile.Value | None, carried: Sequence[tile.Value]) -> list[tile.Value]:
            for r in elements:
                self.element_root(r)
            it = iter(carried)
            out: list[tile.Value] = []
            for rule, start in zip(rules, starts, strict=True):
                accs = regroup(start, it)
                with k.made_from(rule.eqn.origin):
                    xs = rule.element(b, self.domain.element_index(rule.shape))
                    if mask is not None:
                        keep = El("bool", mask)
                        xs = [b.select(keep, x, e) for x, e in zip(xs, start, strict=True)]
                    merged = rule.append(b, accs, xs)
                    out += [k.broadcast(p, shape) for e in merged for p in e.parts]
            return out

        return innermost

    def _by_scratch(self, lane_var: LoopVar, first: tile.Value, body: Callable[[], None]) -> None:
        """Sums of neighboring rows in scratch, then `body` for each tile of rows.

        Tiles take some elements of all their rows at a time, as these lie in memory.
        """
        k, b, w, plan = self.k, self.b, self.w, self.plan
        count, shape = plan.count, plan.tile
        whole = surely_equal(plan.bundles, 1)
        start: tile.Value | int = 0 if whole else first
        stop = lane_var.extent if whole else k.min(first + plan.chunk, lane_var.extent)
        self.first_row = k.index(start)
        reductions = list(self.reductions)
        rules = [self.reductions[r] for r in reductions]
        starts = [rule.identity(b) for rule in rules]
        flat = [k.broadcast(p, shape) for p in flat_parts(x for xs in starts for x in xs)]
        size = plan.chunk + count
        self.sums = [k.scratch(f"sums{i}", p.dtype, size) for i, p in enumerate(flat)]
        innermost = self._element(rules, starts, plan.element_roots(0))

        def put(place: tile.Value, values: Sequence[tile.Value]) -> None:
            for buffer, x in zip(self.sums, values, strict=True):
                k.store(buffer, place, x)

        def some(low: tile.Value, high: tile.Value, lanes: Lanes) -> Sequence[tile.Value]:
            place = lanes.base - self.first_row
            *_, last = plan.inner

            def one(i: tile.Value, *values: tile.Value) -> Sequence[tile.Value]:
                b.scalars[last] = i
                return innermost(None, values)

            values = [k.load(buffer, place, shape) for buffer in self.sums]
            single = plan.scratch_step == 1
            put(place, one(low, *values) if single else k.for_(low, high, 1, b.nested(one), values))
            return ()

        def nest(depth: int) -> None:
            var = plan.inner[depth]
            low, high = self.part if self.part and depth == 0 else (0, var.extent)

            def step(i: tile.Value) -> None:
                if var is not plan.inner[-1]:
                    b.scalars[var] = i
                    nest(depth + 1)
                    return
                end = k.min(i + plan.scratch_step, high)
                tile_of = lambda lanes: some(i, end, lanes)
                w.lane_loop(lane_var, count, start, stop, (), tile_of, streamed=plan.streamed)

            k.for_(low, high, plan.scratch_step if var is plan.inner[-1] else 1, b.nested(step))

        k.for_(0, plan.chunk, count, lambda i: put(i, flat))
        nest(0)

        def finish(lanes: Lanes) -> Sequence[tile.Value]:
            body()
            return ()

        w.lane_loop(lane_var, count, start, stop, (), finish)

    def _unrolled(
        self, var: LoopVar, rules: Sequence[Reduction], accs: list[list[El]],
        elements: Sequence[Root],
    ) -> list[list[El]]:  # fmt: skip
        """Totals over a few elements, written one by one; what is stored of them follows together.

        Each total is complete before the next begins, so that few are in registers.
        """
        k, b = self.k, self.b
        places: dict[tuple[Root, Var], list[tuple[Index, El]]] = {}
        steps: list[dict[Symbol, Index]] = [{var: Index(i)} for i in range(var.extent)]

        def place(shape: tuple[int, ...], step: dict[Symbol, Index]) -> tuple[Index, ...]:
            return tuple(x.substitute(step) for x in self.domain.element_index(shape))

        for step, root in itertools.product(steps, elements):
            for v in root.vars:
                if v in self.fusion.stored:
                    index = place(v.aval.shape, step)
                    element = linear(index, v.aval.shape), b.value(v, index)
                    places.setdefault((root, v), []).append(element)
        for n, rule in enumerate(rules):
            with k.made_from(rule.eqn.origin):
                for step in steps:
                    accs[n] = rule.append(b, accs[n], rule.element(b, place(rule.shape, step)))
        self.w.store_steps(places)
        return accs

    def _loops(
        self,
        innermost: Innermost,
        carried: Sequence[tile.Value],
        bounds: Bounds | None,
    ) -> Sequence[tile.Value]:
        """The reduced loops; `bounds` limits the outermost."""
        k, b, lane_var = self.k, self.b, self.plan.lane_var
        order = [v for v in self.plan.inner if v is not lane_var]
        if lane_var is not None and self.plan.lanes_reduce:
            order.append(lane_var)

        def nest(depth: int, values: Sequence[tile.Value]) -> Sequence[tile.Value]:
            if depth == len(order):
                return innermost(None, values)
            var = order[depth]
            low, high = bounds if bounds and depth == 0 else (0, var.extent)
            if var is lane_var and self.plan.in_one_tile:
                return self._one_tile(var, innermost, values)
            if var is lane_var:
                masked = self.plan.is_masked(self.level)
                element = lambda l, *c: innermost(l.mask, c)
                streamed = self.plan.streamed if self.level == 0 else ()  # rows are in caches later
                return self.w.lane_loop(
                    var, self.plan.count, low, high, values, element, masked=masked,
                    streamed=streamed,
                )  # fmt: skip

            def body(i: tile.Value, *now: tile.Value) -> Sequence[tile.Value]:
                b.scalars[var] = i
                if var is order[-1] and self.plan.gathered:
                    self._prefetch_rows()
                return nest(depth + 1, now)

            return k.for_(low, high, 1, b.nested(body), values)

        return nest(0, carried)

    def _prefetch_rows(self) -> None:
        """Ask for rows of tables that are read some steps later."""
        k, b, plan = self.k, self.b, self.plan
        steps = [v for v in self.domain.vars if v is not plan.lane_var]
        nbytes = plan.count * min(v.aval.dtype.itemsize for v in plan.gathered)
        place, scalars = k.const("index", ceil_div(PREFETCH_DISTANCE, nbytes)), dict(b.scalars)
        for n, v in enumerate(steps):
            place = place + scalars[v] * extent(steps[n + 1 :])
        self.w.bind_outer(steps, k.min(place, extent(steps) - 1))

        def read() -> None:
            for rule in self.reductions.values():
                rule.element(b, self.domain.element_index(rule.shape))

        for found in b.places_of(plan.gathered, read):
            b.prefetch(found)
        b.scalars.update(scalars)

    def _one_tile(
        self, var: LoopVar, innermost: Innermost, values: Sequence[tile.Value]
    ) -> Sequence[tile.Value]:
        """A row in a tile; later passes know what is computed of it."""
        k, w, count = self.k, self.w, self.plan.count
        first = k.const("index", 0)
        whole = surely_equal(var.extent, count)
        mask = None if whole else w.mask(first, count, k.index(var.extent))
        lanes = Lanes(var, count, 0, first, mask)
        return w.with_lanes([lanes], lambda: innermost(mask, values))

    def horizontal(self, rule: Reduction, accs: list[El]) -> list[El]:
        if self.plan.segment > 1:
            return rule.segments(self.b, accs, self.plan.segment)
        return rule.horizontal(self.b, accs) if self.plan.lanes_reduce else accs

    def bounds(self, number: tile.Value) -> Bounds:
        k, length = self.k, self.plan.split_length
        low = number * length
        return low, k.min(low + length, self.plan.split.extent)
