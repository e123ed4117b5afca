"""Writes kernels of regions with reductions for GPUs, as plans of rows say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from amdjax import tile
from amdjax.core.integers import power_of_two
from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call, Temp
from amdjax.schedule.fusion import Fusion, Root
from amdjax.schedule.gpu.combine import TILE, GpuCombineKernel, combine_axes, combine_splits
from amdjax.schedule.gpu.element import EdgeLanes, TileElements, edge_lanes
from amdjax.schedule.gpu.online_sums import OnlineSums
from amdjax.schedule.gpu.row_plan import GpuRowPlan, LoopPeel
from amdjax.schedule.gpu.tiles import TileAxis, first_lanes, region_name, tile_lanes
from amdjax.schedule.index import Index, LoopVar, linear
from amdjax.schedule.reduction import Reduction
from amdjax.schedule.rows import Bounds, RowEmitter
from amdjax.schedule.values import El, compute_dtype, flat_parts, regroup, short_dtype
from amdjax.targets import GpuTarget

#: In what narrow values are accumulated.
WORDS = {"i8": "i32", "u8": "u32", "bool": "u32"}
#: How much earlier than its row a program's first tile begins.
_LEAD = LoopVar("lead", 16)


class GpuRowEmitter(RowEmitter):
    """Kernels of rows on a GPU."""

    plan: GpuRowPlan
    b: TileElements
    combine = GpuCombineKernel

    def __init__(self, plan: GpuRowPlan, fusion: Fusion, target: GpuTarget):
        name = region_name("rows", plan.region)
        super().__init__(plan, fusion, target, name, TileElements)
        # What is computed once a row has lanes of its own, and so does what is known of them.
        self.per_row = TileElements(self.k, self.b.producers, self.w.memory, self._row_value)
        self.per_row.alias = plan.domain.alias
        self.per_row.scalars = self.b.scalars
        self.online = OnlineSums(self.k, plan)
        self.row_base: tile.Value  # the first row of the tile
        self.lead: tile.Value  # how much before the row its first tile begins ...
        self.row_end: tile.Value  # ... and where it ends, counted from there
        #: Arrays of which LDS holds a row, and the pass that puts it there.
        self.inputs: dict[Var, tuple[tile.Buffer, int]] = {}
        #: The part of a pass that is being written, if it has several.
        self.peel: LoopPeel | None = None

    def calls(self) -> list[Call]:
        """The launches that compute the region."""
        plan = self.plan
        if plan.splits == 1:
            call = self.whole_rows(plan.grid)
            return [replace(call, whole_lds=plan.fills_lds)]
        return [self._one_launch()] if plan.combined_by_last else self.two_launches(plan.grid)

    # Programs

    def program(self, pid: tile.Value, body: Callable[[], None]) -> None:
        k, plan, axis = self.k, self.plan, self.plan.row_axis
        k.schedule.workgroup, k.schedule.vector = plan.tiling.threads, plan.tiling.vector
        self.row_base = k.const("index", 0)
        if axis:
            (self.row_base,), pid = first_lanes(k, [axis], pid, len(plan.row_loops))
        self.w.bind_outer(plan.row_loops, pid)
        if plan.start is not None:
            self._begin_aligned(plan.start)
        if axis:
            edge = axis.edge(k, self.row_base, axis.var.extent)
            self.per_row.lanes = [edge_lanes(k, axis.var, axis.count, None, self.row_base, edge)]
        if plan.is_resident and plan.splits == 1:
            zero = k.const("index", 0)
            self.w.with_lanes(self._lanes({a.var: zero for a in plan.reduced_axes}), body)
        else:
            body()

    def _begin_aligned(self, row: Index) -> None:
        """Let tiles begin where memory is aligned."""
        k, start = self.k, self.b.index_tile(row)
        vector = k.const("index", self.plan.tiling.vector)
        aligned = (start // vector) * vector
        self.lead = start - aligned
        self.b.scalars[_LEAD] = self.lead
        self.b.starts = {row: aligned, Index.of(_LEAD): k.const("index", 0)}

    def _lanes(
        self, bases: dict[LoopVar, tile.Value], stops: dict[LoopVar, tile.Value] | None = None
    ) -> list[EdgeLanes]:
        """The lanes of a tile whose reduced axes begin at `bases`."""
        if self.peel is not None:
            return [self._peeled_lanes(self.peel, bases)]
        axes = self.plan.tiling.axes
        places = [bases.get(a.var, self.row_base) for a in axes]
        return tile_lanes(self.k, axes, places, [(stops or {}).get(a.var) for a in axes])

    def _peeled_lanes(self, peel: LoopPeel, bases: dict[LoopVar, tile.Value]) -> EdgeLanes:
        k, axis, ((loop, place),) = self.k, self._peeled_axis(peel), bases.items()
        aligned = self.plan.start is not None
        base = place - self.lead if aligned else place
        edge = None if peel.whole else axis.edge(k, base, loop.extent)
        lanes = edge_lanes(k, loop, axis.count, None, base, edge)
        lanes.place = place if aligned else None
        return lanes

    def _peeled_axis(self, peel: LoopPeel) -> TileAxis:
        return replace(self.plan.tiling.axes[0], count=peel.count)

    # Values that the kernel holds

    def _row_value(self, var: Var, index: tuple[Index, ...]) -> El | None:
        return self.results.get(var)

    def special(self, var: Var, index: tuple[Index, ...]) -> El | None:
        if var in self.online.references:
            return self.online.references[var]
        if var in self.plan.inputs and not self.b.guards:
            return self._input(var, index)
        if var in self.results:
            return self._over_tile(self.results[var])
        return super().special(var, index)

    def _over_tile(self, x: El) -> El:
        """The value of each row, along the rows of the tile."""
        axes, row_axis = self.plan.tiling.axes, self.plan.row_axis
        if row_axis is None or len(axes) < 2:
            return x
        axis = 1 - axes.index(row_axis)
        return El(x.dtype, *(self.k.expand(p, axis) if p.shape else p for p in x.parts))

    def _input(self, var: Var, index: tuple[Index, ...]) -> El:
        """An element of an array, which stays in LDS once it was read."""
        dtype, position = short_dtype(var.aval.dtype), self.stash_position()
        if self.peel is not None and not self.peel.kept:
            return self.b.load(var, linear(index, var.aval.shape))
        buffer, level = self.inputs.get(var, (None, 0))
        if buffer is not None and level < self.level:
            x = self.b._load(buffer, position)
        else:
            x = self.b._load(self.w.memory(var), linear(index, var.aval.shape))
            if buffer is None:
                size = self.plan.stash_size
                buffer = self.k.scratch(f"x{len(self.inputs)}.row", x.dtype, size)
                self.inputs[var] = buffer, self.level
            self.b._store(buffer, position, x)
        return El(dtype, self.k.convert(x, compute_dtype(dtype)))

    def stash_position(self) -> Index:
        position = super().stash_position()
        return position if self.plan.start is None else position + Index.of(_LEAD)

    # Passes

    def totals(
        self, reductions: Sequence[Root], elements: Sequence[Root], bounds: Bounds | None = None
    ) -> list[list[El]]:
        if not any(r in self.plan.rescaled for r in reductions):
            return self._totals(reductions, elements, bounds)
        # What is computed with a reference is nothing that others may use.
        totals: list[list[El]] = self.b.nested(self._totals)(reductions, elements, bounds)
        self.online.references.clear()
        return totals

    def _totals(
        self, reductions: Sequence[Root], elements: Sequence[Root], bounds: Bounds | None
    ) -> list[list[El]]:
        b, k = self.b, self.k
        starts = [self.reductions[r].identity(b) for r in reductions]
        if self.plan.is_resident and bounds is None:
            for r in elements:
                self.element_root(r)
            pairs = zip(reductions, starts, strict=True)
            return [self._contribution(self.reductions[r], start) for r, start in pairs]
        shape = (self.plan.tiling.threads,) if self._in_threads else self.plan.tiling.shape

        def merge(*carried: tile.Value) -> list[tile.Value]:
            for r in elements:
                self.element_root(r)
            it, out = iter(carried), []
            for root, start in zip(reductions, starts, strict=True):
                accs = regroup(start, it)
                with k.made_from(root.eqn.origin):
                    merged = self._accumulated(root, start, accs)
                    out += [k.broadcast(p, shape) for e in merged for p in e.parts]
            return out

        flat = [
            k.broadcast(p, shape)
            for root, start in zip(reductions, starts, strict=True)
            for e in self._in_words(root, start)
            for p in e.parts
        ]
        result = iter(self._tiles(bounds, merge, flat))
        return [
            [El(e.dtype, *(k.convert(next(result), p.dtype) for p in e.parts)) for e in start]
            for start in starts
        ]

    @property
    def _in_threads(self) -> bool:
        return self.plan.accumulates_in_threads

    def _accumulated(self, root: Root, start: Sequence[El], accs: list[El]) -> list[El]:
        """Accumulators with what the tile contributes."""
        rule, online = self.reductions[root], self.online
        if root in online.extrema:
            assert isinstance(rule.rule.combine, str)
            (x,) = self._contribution(rule, start)
            count = self.peel.count if self.peel else self.plan.tiling.count
            return [online.extended(root, accs[0], x, rule.rule.combine, count)]
        if root in online.rescaled:
            (x,) = self._contribution(rule, start)
            return [online.added(root, accs[0], x)]
        return rule.merge(self.b, accs, self._in_words(root, self._contribution(rule, start)))

    def _in_words(self, root: Root, xs: Sequence[El]) -> Sequence[El]:
        """Bytes and bits as words, which threads need not put together in every round."""
        if not isinstance(self.reductions[root].rule.combine, str):
            return xs
        k = self.k
        return [El(x.dtype, *(k.convert(p, WORDS.get(p.dtype, p.dtype)) for p in x.parts))
                for x in xs]  # fmt: skip

    def _contribution(self, rule: Reduction, start: Sequence[El]) -> list[El]:
        """What the tile contributes to a reduction; the identity where it ends early."""
        b, k, peel = self.b, self.k, self.peel
        shape = (peel.count,) if peel else self.plan.tiling.shape
        with k.made_from(rule.eqn.origin):
            xs = rule.element(b, self.domain.element_index(rule.shape))
            for lanes in b.lanes:
                if lanes.mask is not None and lanes.var in self.domain.reduced:
                    keep = El("bool", lanes.mask)
                    xs = [b.select(keep, x, e) for x, e in zip(xs, start, strict=True)]
            xs = [El(x.dtype, *(k.broadcast(p, shape) for p in x.parts)) for x in xs]
        combine = rule.rule.combine
        if peel is None or not isinstance(combine, str):
            return xs
        within = self.online.in_threads
        return [El(x.dtype, *(within(combine, p, peel.count) for p in x.parts)) for x in xs]

    def _tiles(
        self,
        bounds: Bounds | None,
        merge: Callable[..., list[tile.Value]],
        carried: Sequence[tile.Value],
    ) -> Sequence[tile.Value]:
        """Call `merge` for all tiles of a row; `bounds` limits the loop that is split."""
        if bounds or not self._in_threads:
            return self._nest(bounds, merge, carried)
        if self.plan.start is not None:
            self.row_end = self.lead + self.plan.row_elements
        for peel in self.plan.peeled():
            self.peel = peel
            carried = self.b.nested(self._nest)(None, merge, carried)
        self.peel = None
        return carried

    def _nest(
        self,
        bounds: Bounds | None,
        merge: Callable[..., list[tile.Value]],
        carried: Sequence[tile.Value],
    ) -> Sequence[tile.Value]:
        """The loops around a tile, and along its reduced axes."""
        k, b, plan, peel = self.k, self.b, self.plan, self.peel
        axes = plan.reduced_axes if peel is None else [self._peeled_axis(peel)]
        order: list[LoopVar | TileAxis] = [*plan.loops, *axes]
        bases: dict[LoopVar, tile.Value] = {}
        stops: dict[LoopVar, tile.Value] = {}

        def nest(depth: int, values: Sequence[tile.Value]) -> Sequence[tile.Value]:
            if depth == len(order):
                lanes = self._lanes(bases, stops)
                return self.w.with_lanes(lanes, lambda: merge(*values))
            loop = order[depth]
            var = loop.var if isinstance(loop, TileAxis) else loop
            step = loop.count if isinstance(loop, TileAxis) else 1
            low, high = self._range(var)
            if bounds and var is plan.split:
                (low, high), step = bounds, step * plan.splits
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

    def _range(self, loop: LoopVar) -> Bounds:
        """Where the tiles along a loop begin and end."""
        if self.peel is None:
            return 0, loop.extent
        return self.peel.low, self.row_end if self.peel.high is None else self.peel.high

    def horizontal(self, rule: Reduction, accs: list[El]) -> list[El]:
        root = next(r for r, one in self.reductions.items() if one is rule)
        online = self.online
        if root in online.extrema:
            totals = self._combined(rule, accs)
            online.found[root] = accs[0].value, totals[0].value
            return totals
        if root in online.rescaled:
            (total,) = self._combined(rule, [online.of_all_threads(root, accs[0])])
            return [online.subtracted(root, total, self.per_row)]
        return self._combined(rule, accs)

    def _combined(self, rule: Reduction, accs: list[El]) -> list[El]:
        plan = self.plan
        axes = [i for i, axis in enumerate(plan.tiling.axes) if axis in plan.reduced_axes]
        return combine_axes(self.per_row, rule, accs, axes)

    # Splits

    def bounds(self, number: tile.Value) -> Bounds:
        """Every so many tiles: programs at work together read memory that lies together."""
        return number * self.plan.granularity, self.plan.split.extent

    def _one_launch(self) -> Call:
        """The last program of a row combines its splits."""
        number, row = self.split_number()
        self.program(row, lambda: self._split_of_group(number))
        return self.w.finish(self.plan.grid * self.plan.splits, self.domain.size)

    def _split_of_group(self, number: tile.Value) -> None:
        """One split of a tile of rows; the program that comes last combines all of them."""
        k, plan, partials = self.k, self.plan, []
        groups, splits = plan.grid, plan.splits
        lanes, pid = plan.row_axis.count if plan.row_axis else 1, k.program_id()
        for root, accs in self.split_totals(number):
            with k.made_from(root.eqn.origin):
                parts = flat_parts(accs)
                temps = [Temp(p.dtype, groups * splits * lanes) for p in parts]
                buffers = [self.w.param(t, t.dtype, "inout") for t in temps]
                for buffer, part in zip(buffers, parts, strict=True):
                    k.store(buffer, pid * lanes, part)
                partials.append((root, buffers))
        group = pid // splits
        counters = self.w.param(Temp("u32", groups, zero=True), "u32", "inout")

        def combine() -> None:
            first = group * (splits * lanes)
            count = min(power_of_two(splits), max(TILE // lanes, 1))
            axes = [TileAxis(LoopVar("split", splits), count)]
            axes += [plan.row_axis] if plan.row_axis else []
            for root, buffers in partials:
                with k.made_from(root.eqn.origin):
                    rule = self.reductions[root]
                    accs = combine_splits(self.per_row, rule, buffers, axes, first, lanes)
                    self.finish_reduction(root, accs)
            self.row_roots(0)

        last = k.arrive(counters, group, splits)
        k.if_(last, self.b.nested(self.per_row.nested(combine)))
