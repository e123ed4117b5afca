"""Products of groups of rows or of depth on GPUs, in one launch.

Groups of rows: a program finds its block of rows as it runs (`GroupBounds.find`), and stores those
that are in the group. Groups of depth: a program sums what lies between the bounds of its group,
which are aligned to nothing; where a cut depth is passed through several times, each is a part of
the sum (`split_k.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from amdjax import tile
from amdjax.core.dims import Dim, DimSize
from amdjax.core.integers import round_up
from amdjax.kernels.products.contraction import Contraction, product
from amdjax.kernels.products.gpu.contraction import (
    BAND,
    GpuContraction,
    TileWriter,
    prefer_alike,
    product_atoms,
)
from amdjax.kernels.products.gpu.tiling import Plan, ProductProblem, candidates, plan_cost
from amdjax.kernels.products.grouped import GroupBounds, block_numbers
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Family, Solver
from amdjax.targets import GpuTarget

Value = tile.Value

BITS = 4  # of the number of a program's group that are looked for at once


@dataclass(frozen=True)
class GroupedPlan:
    """A contraction of groups by the matrix unit.

    Args:
      problem: the contraction, merged.
      cut: how that of a group of the usual size is divided.
    """

    problem: Contraction
    cut: Plan

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return GroupedContraction(ctx, self.problem, self.cut).calls()

    def __str__(self) -> str:
        return f"product of {self.problem}, {self.cut}"


def plan_groups(target: GpuTarget, problem: Contraction) -> GroupedPlan | None:
    """The plan of a merged contraction of groups; None where there are no kernels for it."""
    choice = product_atoms(target, problem)
    if not choice:
        return None
    prefer_alike(problem.typical, target)
    cut = GROUPED_PRODUCTS.best(ProductProblem(problem, choice), target)
    return GroupedPlan(problem, cut)


def _typical(product: ProductProblem) -> ProductProblem:
    return product._replace(contraction=product.contraction.typical.at_hand)


def grouped_candidates(product: ProductProblem, target: GpuTarget) -> list[Plan]:
    """Plans for groups of equal sizes; programs share the depth of no group of rows."""
    may_split = not product.contraction.cuts_rows
    plans = candidates(_typical(product), target)
    return [plan for plan in plans if may_split or plan.splits == 1]


def grouped_cost(product: ProductProblem, plan: Plan, target: GpuTarget) -> float:
    """Clocks, about, if groups are of equal sizes."""
    return plan_cost(_typical(product), plan, target)


GROUPED_PRODUCTS: Family[ProductProblem, GpuTarget, Plan] = Family(
    "grouped product on a GPU", Solver("matrix unit", grouped_candidates, grouped_cost)
)


class GroupedContraction(GpuContraction):
    """A contraction of groups as launches."""

    def __init__(self, ctx: ShapedContext, problem: Contraction, cut: Plan):
        assert problem.groups is not None
        self.groups, self.splits = problem.groups, cut.splits
        super().__init__(ctx, problem, replace(cut, splits=self.groups.outer * cut.splits))

    @property
    def batches(self) -> DimSize:
        """Entries of the batch that programs count through; they find groups of rows themselves."""
        return product(self.problem.out.batch[: -1 if self.problem.cuts_rows else None])

    @property
    def high(self) -> DimSize:
        """Tiles from the first row to the last, and some that are empty."""
        if not self.problem.cuts_rows:
            return super().high
        blocks = block_numbers(self.problem, self.tiling.rows)
        return blocks if isinstance(blocks, Dim) or blocks < BAND else round_up(blocks, BAND)

    def place(self, row: Value, entry: Value) -> tuple[Value, list[Value]]:
        """The first row of a program, and its place along each batch loop."""
        self.bounds = GroupBounds(self.program, self.problem)
        if not self.problem.cuts_rows:
            return super().place(row, entry)
        batch = self.program.split(entry, "batch", self.problem.out.batch[:-1])
        found = self.bounds.find(row, self.k.const("index", self.tiling.rows), batch, BITS)
        self.end, self.exists = found.end, found.exists
        return found.first, [*batch, found.group]

    def compute(
        self, writer: TileWriter, bases: Sequence[Value], batch: Sequence[Value],
        part: Value | None,
    ) -> None:  # fmt: skip
        """Multiply and store the tile that begins at `bases`, if the group reaches there."""
        tile_of = partial(super().compute, writer, bases, batch, part)
        if self.end is None:
            tile_of()
        else:
            self.k.if_(bases[0] < self.end, tile_of)

    def depth_range(
        self, depth: DimSize, batch: Sequence[Value], part: Value | None
    ) -> tuple[Value, Value]:
        """Where the depth that a program sums begins and ends; rows of no group have none."""
        k, step = self.k, self.tiling.depth
        if self.problem.cuts_rows:
            zero = k.const("index", 0)
            return zero, k.select(self.exists, k.const("index", depth), zero)
        turn = None if part is None else part // self.splits
        *outer, group = batch
        start, stop = (self.bounds.at(outer, group + i, turn) for i in (0, 1))
        if turn is None or part is None:
            return start, stop
        first = turn * (depth // self.groups.outer)
        start, stop = start + first, stop + first
        each = (stop - start + (self.splits * step - 1)) // (self.splits * step) * step
        start = start + part % self.splits * each
        return start, k.min(start + each, stop)

    def is_ragged(self, depth: DimSize) -> bool:
        """Whether a tile reaches past the depth."""
        return self.problem.cuts_depth or super().is_ragged(depth)
