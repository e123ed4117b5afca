"""Which elements of a loop's values each of its resident programs makes.

What a program makes and only it reads needs no grid barrier. A product in a loop makes what
elementwise steps read, in the same round or, through what is carried, in the next one: slices of
its columns, or all of them. Where a program has the same columns of each of these slices, and
computes what elementwise steps make of them, it reads nothing there that others made. Which slices
those are is read off the places in memory at which the steps read the product.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from amdjax.core.dims import Dim, divisor, is_multiple
from amdjax.core.integers import ceil_div
from amdjax.core.jaxpr import JaxprEqn, Var
from amdjax.schedule.domain import Domain
from amdjax.schedule.index import Index, LoopVar, delinear
from amdjax.schedule.reads import Tracer


@dataclass(frozen=True)
class Partition:
    """Elements of arrays, by resident programs.

    An array has `lines` rows of some groups of `width` columns each. A program has a few rows, and
    the same columns of each group.

    Args:
      lines, width: of the arrays.
      rows, columns: of a program, in each group.
    """

    lines: int
    width: int
    rows: int
    columns: int

    @property
    def grid(self) -> tuple[int, int]:
        """Programs along rows, whose numbers are neighbors, and along columns."""
        return ceil_div(self.lines, self.rows), ceil_div(self.width, self.columns)

    def groups(self, v: Var) -> int:
        """Groups of columns of an array; 0 where it has no whole number of them."""
        one = self.lines * self.width
        groups = v.aval.size // one if is_multiple(v.aval.size, one) else 0
        return 0 if isinstance(groups, Dim) else groups

    def place(self, v: Var, line: LoopVar, column: LoopVar, group: int) -> Index:
        """Where the element of a group's row and column lies in an array."""
        row = Index.of(line) * (self.groups(v) * self.width)
        return row + Index.of(column) + group * self.width

    def owns(self, v: Var, place: Index, line: LoopVar, column: LoopVar) -> bool:
        """Whether what is read for an element belongs to the program that has the element."""
        if not self.groups(v):
            return False
        rest = place - self.place(v, line, column, 0)
        inside = 0 <= rest.const < self.groups(v) * self.width
        return not rest.terms and inside and rest.const % self.width == 0


@dataclass(frozen=True)
class Resident:
    """What is known of a loop that is one launch, whose programs keep what is in LDS.

    Args:
      partition: of what steps make, if they have one in common.
    """

    partition: Partition | None = None


def foreign_reads(
    partition: Partition,
    producers: Mapping[Var, JaxprEqn],
    stored: Iterable[Var],
    made: Collection[Var] = (),
) -> set[Var]:
    """Variables of which programs read what others have, to compute their elements of others.

    Args:
      partition: of the elements.
      producers: of what is computed.
      stored: what is computed.
      made: variables that are at hand, and not read.
    """
    tracer = Tracer(producers, lambda v, _: tracer.dummy(v) if v in made else None)
    line, column = LoopVar("i", partition.lines), LoopVar("j", partition.width)
    tracer.spread_anywhere((line, column))
    for v in stored:
        for group in range(partition.groups(v)):
            place = partition.place(v, line, column, group)
            tracer.value(v, delinear(place, v.aval.shape))
    return {v for v, place in tracer.offsets if not partition.owns(v, place, line, column)}


def group_width(width: int, made: Collection[Var], regions: Iterable[Domain]) -> int:
    """The width of the groups of columns of which regions read slices of a product.

    Args:
      width: columns of the product.
      made: variables that are the product, or what is stored in its place.
      regions: what may read it.
    """
    starts = (place.const for d in regions for v, place in d.loads if v in made)
    return divisor(width, *starts)
