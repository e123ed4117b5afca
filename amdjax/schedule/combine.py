"""The second kernel of split reductions: it combines partial results, and goes on from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call, Temp
from amdjax.schedule.domain import Domain
from amdjax.schedule.element import ElementBuilder
from amdjax.schedule.fusion import Fusion, Region, Root
from amdjax.schedule.index import Index, LoopVar, linear, placed
from amdjax.schedule.reduction import Reduction
from amdjax.schedule.values import El, Lanes
from amdjax.schedule.writer import RegionWriter, lane_count

Partial = Mapping[Root, list[Temp]]


class CombineKernel:
    """Combines partial results of reductions and computes what follows from them per row.

    Args:
      region: of the reductions.
      fusion: of the program.
      target: the machine.
      reductions: their rules.
      partials: partial results, those of a split side by side.
      splits: how many there are of each row.
      rows: how many there are.
    """

    elements: type[ElementBuilder] = ElementBuilder

    def __init__(
        self, region: Region, fusion: Fusion, target: Any, reductions: Mapping[Root, Reduction],
        partials: Partial, splits: int, rows: int,
    ):  # fmt: skip
        self.region, self.fusion, self.target = region, fusion, target
        self.reductions, self.partials, self.splits, self.rows = reductions, partials, splits, rows
        self.domain = Domain.of_rows(region, fusion)
        self.w = RegionWriter(
            region, fusion, target, self.domain, self.name, self.elements, self.special
        )
        self.k, self.b = self.w.k, self.w.b

    @property
    def name(self) -> str:
        return "kernel"

    def special(self, var: Var, index: tuple[Index, ...]) -> El | None:
        root = next((r for r in self.partials if var in r.vars), None)
        if root is None:
            return None
        rule, temps = self.reductions[root], self.partials[root]
        position = linear(index, var.aval.shape)

        def step(k: tuple[Index, ...], accs: list[El]) -> list[El]:
            it = iter(temps)
            xs = []
            for a in accs:
                buffers = [self.w.param(t, t.dtype, "in") for t in (next(it) for _ in a.parts)]
                xs.append(
                    El(a.dtype, *(self.b._load(u, k[0] * self.rows + position) for u in buffers))
                )
            return rule.merge(self.b, accs, xs)

        with self.k.made_from(root.eqn.origin):
            accs = self.b.fold([self.splits], rule.identity(self.b), step)
            return rule.finish(self.b, accs)[root.vars.index(var)]

    def store_rows(self, symbols: Sequence[Index]) -> None:
        """Store what belongs to the row at `symbols`, its place along each axis."""
        for root in self.region.roots:
            if not (root.is_reduction or root.row):
                continue
            for v in root.vars:
                if v in self.fusion.stored:
                    index = placed(symbols, v.aval.shape)
                    x = self.b.value(v, index)
                    with self.k.made_from(root.eqn.origin):
                        self.b.store(self.w.output(v), linear(index, v.aval.shape), x)

    def build(self) -> Call:
        k, n = self.k, self.rows
        row = LoopVar("row", n)
        symbols = self.b.delinear(Index.of(row), self.region.row_shape)

        def body(lanes: Lanes | None = None) -> Sequence[tile.Value]:
            self.store_rows(symbols)
            return ()

        if n == 1:
            body()
            return self.w.finish(1, self.splits)
        count = lane_count(self.domain, self.target, n)
        start = k.program_id() * count
        stop = k.min(start + count, n)
        self.w.lane_loop(row, count, start, stop, (), body)
        return self.w.finish(ceil_div(n, count), n * self.splits)
