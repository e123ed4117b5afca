"""Sums over rows by the kernel that has these in registers, as `schedule/row_sums.py` decides.

Programs take every so many tiles of rows, one after the other, and add to sums of their own, which
wait in registers meanwhile. Then the last program of each group adds what its group has, and the
last of these what all groups have: always in the same order, and in one launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.schedule.calls import Call, Temp
from amdjax.schedule.domain import region_producers
from amdjax.schedule.fusion import Region, Root
from amdjax.schedule.gpu.combine import combine_axes
from amdjax.schedule.gpu.element import TileElements, edge_lanes
from amdjax.schedule.gpu.row_plan import EACH, GpuRowPlan
from amdjax.schedule.gpu.rows import GpuRowEmitter
from amdjax.schedule.index import linear, placed
from amdjax.schedule.row_plan import reductions_of
from amdjax.schedule.values import El, flat_parts, regroup
from amdjax.targets import GpuTarget

TURNS = 8  # tiles of rows that a program has at least, where there are many
PROGRAMS = 4  # for each compute unit at most
REGISTERS = 64  # of a thread for parts that are read before they are added


@dataclass(frozen=True)
class RowSumsPlan:
    """Rows whose programs compute sums over them, too.

    Args:
      rows: how the rows are computed, by a program each.
      groups: of programs, whose sums one of them adds.
      each: programs of a group.
    """

    rows: GpuRowPlan
    groups: int
    each: int

    def emit(self, emitter: GpuRowEmitter) -> list[Call]:
        """The launch, which an emitter of the rows helps to write."""
        return [_Sums(self, emitter).call()]

    def __str__(self) -> str:
        return f"{self.rows}, sums over rows by {self.groups}×{self.each} programs"


@dataclass(frozen=True)
class ApartPlan:
    """Rows, and sums over them, by launches of their own.

    Args:
      rows: how the rows are computed.
      sums: how the sums are.
    """

    rows: Any
    sums: Any

    def __str__(self) -> str:
        return f"{self.rows}; {self.sums}"


def plan_row_sums(plan: Any, region: Region, target: GpuTarget) -> RowSumsPlan | None:
    """The plan of rows together with sums over them; None if launches of their own serve these.

    Args:
      plan: of the rows.
      region: has sums.
      target: the GPU.
    """
    assert region.sums is not None
    if not isinstance(plan, GpuRowPlan) or plan.region is not region or plan.splits > 1:
        return None
    sums = sum(rule.accumulators for rule in reductions_of(region.sums).values())
    if not plan.is_resident or len(plan.inner) != 1 or len(plan.reduced_axes) != 1:
        return None
    if plan.tiling.count * sums > 2 * EACH * plan.tiling.threads:
        return None
    tiles = plan.grid
    # Parts are added one after the other, too, in as many steps as are a group and groups.
    few = max(min(TURNS, round(tiles ** (1 / 3) / 2)), 1)
    turns = max(ceil_div(tiles, PROGRAMS * target.compute_units), few)
    programs = ceil_div(tiles, turns)
    each = math.isqrt(programs)
    return RowSumsPlan(plan, ceil_div(programs, each), each)


class _Sums:
    """Writes the kernel."""

    def __init__(self, plan: RowSumsPlan, rows: GpuRowEmitter):
        self.plan, self.rows = plan, rows
        self.k, self.b, self.w = rows.k, rows.b, rows.w
        region = plan.rows.region.sums
        assert region is not None
        self.region = region
        made = region_producers(region, rows.fusion)
        self.b.producers.update(made)
        self.rules = reductions_of(region)
        self.results: dict[Any, El] = {}
        #: Writes what there is one of for each column.
        self.columns = TileElements(
            self.k, made, self.w.memory, lambda var, index: self.results.get(var)
        )
        self.columns.alias, self.columns.scalars = rows.domain.alias, self.b.scalars
        (self.axis,) = plan.rows.reduced_axes

    def call(self) -> Call:
        k, rows, plan = self.k, self.rows, self.plan
        programs, me = plan.groups * plan.each, k.program_id()
        starts = [rule.identity(self.b) for rule in self.rules.values()]
        shape = plan.rows.tiling.shape
        flat = [k.broadcast(p, shape) for start in starts for p in flat_parts(start)]

        def one(number: tile.Value, *carried: tile.Value) -> list[tile.Value]:
            found: list[tile.Value] = []
            rows.program(number, lambda: found.extend(self._added(starts, carried)))
            return found

        turn = self.b.nested(rows.per_row.nested(one))
        result = iter(k.for_(me, plan.rows.grid, programs, turn, flat))
        totals = [regroup(start, result) for start in starts]
        self._combine(me, [self._of_tile(r, x) for r, x in zip(self.rules, totals, strict=True)])
        return self.w.finish(programs, rows.domain.size * (2 + plan.rows.levels))

    def _added(self, starts: Sequence[list[El]], carried: Sequence[tile.Value]) -> list[tile.Value]:
        """Sums with what a tile of rows contributes, behind what is computed of the rows."""
        k, b, rows, plan = self.k, self.b, self.rows, self.plan.rows
        rows.passes()
        rows.level = 0  # values of elements are in registers
        it, out = iter(carried), list[tile.Value]()
        for (root, rule), start in zip(self.rules.items(), starts, strict=True):
            with k.made_from(root.eqn.origin):
                accs = regroup(start, it)
                xs = rule.element(b, rows.domain.element_index(rule.shape))
                for lanes in b.lanes:
                    if lanes.mask is not None and lanes.var not in rows.domain.reduced:
                        keep = El("bool", lanes.mask)
                        xs = [b.select(keep, x, e) for x, e in zip(xs, start, strict=True)]
                merged = rule.merge(b, accs, xs)
                out += [k.broadcast(p, plan.tiling.shape) for x in merged for p in x.parts]
        return out

    def _of_tile(self, root: Root, accs: list[El]) -> list[El]:
        """The sums of a tile's rows."""
        axes = [i for i, a in enumerate(self.plan.rows.tiling.axes) if a is not self.axis]
        return combine_axes(self.columns, self.rules[root], accs, axes)

    # Adding what programs have

    def _combine(self, me: tile.Value, totals: Sequence[list[El]]) -> None:
        """Sums of groups, and the results from these."""
        k, plan = self.k, self.plan
        zero = k.const("index", 0)
        edge = self.axis.edge(k, zero, self.axis.var.extent)
        self.columns.lanes = [edge_lanes(k, self.axis.var, self.axis.count, None, zero, edge)]
        self.edge = edge
        group = me // plan.each
        parts = self._stored(totals, me, plan.groups * plan.each)

        def of_group() -> None:
            sums = self._read(parts, group * plan.each, plan.each)
            stored = self._stored(sums, group, plan.groups)
            last = k.arrive(self._counters(1), 0, plan.groups)
            k.if_(last, self.columns.nested(lambda: self._finish(stored)))

        last = k.arrive(self._counters(plan.groups), group, plan.each)
        k.if_(last, self.columns.nested(of_group))

    def _counters(self, count: int) -> tile.Buffer:
        return self.w.param(Temp("u32", count, zero=True), "u32", "inout")

    def _stored(
        self, sums: Sequence[list[El]], number: tile.Value, count: int
    ) -> list[list[tile.Buffer]]:
        """Where the sums of a number are put, of so many."""
        k, n, found = self.k, self.axis.var.extent, []
        for accs in sums:
            buffers = []
            for part in flat_parts(accs):
                buffer = self.w.param(Temp(part.dtype, count * n), part.dtype, "inout")
                k.store(buffer, number * n, part, (1,), self.edge)
                buffers.append(buffer)
            found.append(buffers)
        return found

    def _read(
        self, stored: Sequence[Sequence[tile.Buffer]], first: tile.Value, count: int
    ) -> list[list[El]]:
        """The sums of so many numbers, in their order."""
        k, b, n, shape = self.k, self.columns, self.axis.var.extent, (self.axis.count,)
        starts = [rule.identity(b) for rule in self.rules.values()]
        flat = [k.broadcast(p, shape) for start in starts for p in flat_parts(start)]
        buffers = [x for some in stored for x in some]

        def part(number: tile.Value) -> list[tile.Value]:
            at = (first + number) * n
            return [k.load(x, at, shape, (1,), self.edge) for x in buffers]

        def merged(carried: Sequence[tile.Value], parts: Sequence[tile.Value]) -> list[tile.Value]:
            left, right, out = iter(carried), iter(parts), list[tile.Value]()
            for rule, start in zip(self.rules.values(), starts, strict=True):
                out += flat_parts(rule.merge(b, regroup(start, left), regroup(start, right)))
            return [k.broadcast(p, shape) for p in out]

        def some(number: tile.Value, *carried: tile.Value, together: int) -> list[tile.Value]:
            found = [part(number + i) for i in range(together)]
            values = list(carried)
            for x in found:
                values = merged(values, x)
            return values

        held = len(buffers) * self.axis.count // self.plan.rows.tiling.threads
        most = max(min(REGISTERS // max(held, 1), count), 1)
        whole = count // most * most
        for begin, end, together in ((0, whole, most), (whole, count, max(count - whole, 1))):
            if begin < end:
                body = lambda i, *c, together=together: some(i, *c, together=together)
                flat = list(k.for_(begin, end, together, b.nested(body), flat))
        result = iter(flat)
        return [regroup(start, result) for start in starts]

    def _finish(self, stored: Sequence[Sequence[tile.Buffer]]) -> None:
        """The results, and what follows from them for each column."""
        totals = self._read(stored, self.k.const("index", 0), self.plan.groups)
        for (root, rule), accs in zip(self.rules.items(), totals, strict=True):
            with self.k.made_from(root.eqn.origin):
                finished = rule.finish(self.columns, accs)
                self.results.update(zip(root.vars, finished, strict=True))
        for root in self.region.roots:
            with self.k.made_from(root.eqn.origin):
                for v in root.vars:
                    symbols = (self.rows.domain.index[i] for i in self.region.row_axes)
                    index = placed(symbols, v.aval.shape)
                    x = self.results[v] = self.columns.value(v, index)
                    if v in self.rows.fusion.stored:
                        self.columns.store(self.w.output(v), linear(index, v.aval.shape), x)
