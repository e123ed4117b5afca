"""Sums over blocks of rows of a product's result, by the program that has them in registers.

As the mean and variance of batch norm, which blocks of rows have first (`nn/_moments.py`): where a
slice of a tile is such a block, what a region of reductions computes of it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amdjax import tile
from amdjax.core.dims import Dim
from amdjax.core.jaxpr import Var
from amdjax.kernels.products.contraction import Contraction
from amdjax.kernels.products.gpu.tiling import Plan, tile_count
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Sums
from amdjax.schedule.domain import region_producers
from amdjax.schedule.fusion import Root
from amdjax.schedule.gpu.combine import combine_axes
from amdjax.schedule.gpu.element import TileElements, edge_lanes
from amdjax.schedule.gpu.tiles import TileAxis, tile_lanes
from amdjax.schedule.index import Index, LoopVar, linear, placed
from amdjax.schedule.row_plan import last_level, reductions_of
from amdjax.schedule.values import El
from amdjax.targets import GpuTarget

MOST = 32  # elements of a thread that have passed from where they were summed
#: Tiles that a unit computes one after the other at most. In each, threads combine what they have
#: several times, which takes longer than reading the tile again: many cost more than a launch.
ROUNDS = 3


def rows_of_sums(
    sums: Sums, problem: Contraction, cut: Plan, target: GpuTarget, vector: int
) -> int:
    """Rows of the blocks of which a product computes sums; 0 where launches of their own serve.

    Args:
      sums: of what it stores.
      problem: the product, merged.
      cut: how it is divided.
      target: the GPU.
      vector: neighboring elements that a thread stores.
    """
    out, tiling, domain = problem.out, cut.tiling, sums.region.domain
    sizes = (problem.rows, problem.columns, problem.depth, problem.batches)
    if any(isinstance(n, Dim) for n in sizes) or cut.splits > 1 or out.batch or tiling.atom.copied:
        return 0
    plain = len(out.rows) == len(out.columns) == 1 and out.offset == 0
    if not plain or out.columns[0].stride != 1 or out.rows[0].stride != problem.columns:
        return 0
    if len(domain) < 2 or sums.region.axes != (len(domain) - 2,) or domain[-1] != problem.columns:
        return 0
    if tile_count(problem, tiling) > ROUNDS * target.lds_units:
        return 0
    block, threads = domain[-2], tiling.wave_count * target.wave_size
    each = block * tiling.columns_together / threads
    fits = tiling.rows % block == 0 and vector <= each <= MOST
    return block if fits else 0


class TileSums:
    """Computes what a region does of a block of rows.

    Args:
      program: the kernel.
      sums: the region.
      values: tiles of what was stored, a block of rows each.
    """

    def __init__(self, program: Program, sums: Sums, values: Mapping[Var, El]):
        self.program, self.k, self.sums, self.values = program, program.k, sums, values
        self.results: dict[Var, El] = {}
        producers, memory = region_producers(sums.region, sums.fusion), program.kernel.input
        self.elements = TileElements(self.k, producers, memory, self._element)
        self.per_row = TileElements(
            self.k, producers, memory, lambda var, index: self.results.get(var)
        )
        self.loops = [LoopVar(f"s{i}", n) for i, n in enumerate(sums.region.domain)]

    def store(
        self, columns: TileAxis, bases: Sequence[tile.Value], extents: tuple[int, int]
    ) -> None:
        """Compute and store it.

        Args:
          columns: of the tile.
          bases: its first row and column.
          extents: rows and columns that there are; of a block all exist, or none.
        """
        k, (*outer, down, across) = self.k, self.loops
        axes = [TileAxis(down, down.extent), TileAxis(across, columns.count, whole=columns.whole)]
        self.elements.lanes = list(tile_lanes(k, axes, [k.const("index", 0), bases[1]]))
        edge = axes[1].edge(k, bases[1], extents[1])
        self.per_row.lanes = [edge_lanes(k, across, columns.count, None, bases[1], edge)]
        number = bases[0] // down.extent
        for loop in reversed(outer):
            n = k.const("index", loop.extent)
            self.elements.scalars[loop] = self.per_row.scalars[loop] = number % n
            number = number // n
        for level in range(last_level(self.sums.region) + 1):
            for root in self.sums.region.roots:
                if root.level == level:
                    with k.made_from(root.eqn.origin):
                        self._compute(root)
        k.if_(bases[0] < extents[0], self._store)

    def _compute(self, root: Root) -> None:
        region = self.sums.region
        if not root.is_reduction:
            for v in root.vars:
                self.results[v] = self.per_row.value(v, self._row(v))
            return
        rule = reductions_of(region)[root]
        xs = rule.element(self.elements, placed(map(Index.of, self.loops), rule.shape))
        shape = self.elements.tile_shape()
        tiles = [El(x.dtype, *(self.k.broadcast(p, shape) for p in x.parts)) for x in xs]
        totals = rule.finish(self.per_row, combine_axes(self.per_row, rule, tiles, [0]))
        self.results.update(zip(root.vars, totals, strict=True))

    def _row(self, var: Var) -> tuple[Index, ...]:
        *outer, _, across = self.loops
        return placed(map(Index.of, (*outer, across)), var.aval.shape)

    def _element(self, var: Var, index: tuple[Index, ...]) -> El | None:
        if var in self.values:
            return self.values[var]
        x = self.results.get(var)
        if x is None:
            return None
        return El(x.dtype, *(self.k.expand(p, 0) if p.shape else p for p in x.parts))

    def _store(self) -> None:
        for v in (v for r in self.sums.region.roots for v in r.vars):
            if v in self.sums.fusion.stored:
                place = linear(self._row(v), v.aval.shape)
                self.per_row.store(self.program.kernel.output(v), place, self.results[v])
