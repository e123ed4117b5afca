"""Writes sums relative to an extremum, in the pass over a row that finds the extremum.

Each thread holds the largest number that it has met and sums relative to that; in the end all are
brought to what the program subtracts (`online_softmax.py` says which sums these are).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax import tile
from amdjax.core.jaxpr import Var
from amdjax.schedule.fusion import Root
from amdjax.schedule.gpu.row_plan import GpuRowPlan
from amdjax.schedule.index import Index, placed
from amdjax.schedule.values import El, short_dtype


class OnlineSums:
    """Accumulators of a pass that finds extrema and sums relative to them.

    Args:
      k: the kernel.
      plan: of the rows.
    """

    def __init__(self, k: tile.Builder, plan: GpuRowPlan):
        self.k, self.plan, self.rescaled = k, plan, plan.rescaled
        self.extrema = {m.extremum for m in plan.rescaled.values()}
        #: What stands for a value of the row while its extremum is not known yet.
        self.references: dict[Var, El] = {}
        #: What each thread found of an extremum, before and after a tile; in the end, what all did.
        self.found: dict[Root, tuple[tile.Value, tile.Value]] = {}

    def extended(self, root: Root, acc: El, x: El, combine: str, count: int) -> El:
        """The extremum of each thread with that of its elements of a tile of so many."""
        new = self.k.op(combine, acc.value, x.value)
        self.found[root] = acc.value, new
        for match in self.rescaled.values():
            if match.extremum is root:
                reference = self._over_threads(_finite(self.k, new), count)
                self.references[match.shift] = El(short_dtype(match.shift.aval.dtype), reference)
        return El(acc.dtype, new)

    def added(self, root: Root, acc: El, x: El) -> El:
        """The sum of each thread, relative to its new extremum."""
        old, new = self.found[self.rescaled[root].extremum]
        scaled = self._scaled(root, acc.value, old, new)
        return El(acc.dtype, scaled + x.value)

    def of_all_threads(self, root: Root, acc: El) -> El:
        """The sums of threads, relative to the extremum of all."""
        mine, every = self.found[self.rescaled[root].extremum]
        every = _finite(self.k, every)
        scaled = self._scaled(root, acc.value, mine, self.k.broadcast(every, mine.shape))
        return El(acc.dtype, scaled)

    def subtracted(self, root: Root, total: El, per_row: Any) -> El:
        """A sum relative to the extremum as that relative to what the program subtracts."""
        match, k = self.rescaled[root], self.k
        every = _finite(k, self.found[match.extremum][1])
        shift = per_row.value(match.shift, self._row_place(match.shift)).value
        # One, unless the extremum is not finite; then the result is what it has to be.
        factor = self._power(root, every - shift)
        return El(total.dtype, total.value * factor)

    def _scaled(self, root: Root, x: tile.Value, old: tile.Value, new: tile.Value) -> tile.Value:
        """A sum relative to one extremum as that relative to another."""
        k = self.k
        factor = self._power(root, _finite(k, old) - _finite(k, new))
        # Nothing yet is nothing later, however large the factor.
        zero = k.const(x.dtype, 0, x.shape)
        return k.select(k.eq(x, zero), x, x * factor)

    def _power(self, root: Root, x: tile.Value) -> tile.Value:
        """What a sum grows by if `x` less is subtracted in its exponents."""
        match = self.rescaled[root]
        if match.factor != 1:
            x = x * self.k.const(x.dtype, match.factor, x.shape)
        return self.k.op(match.power, x)

    def in_threads(self, combine: str, x: tile.Value, count: int) -> tile.Value:
        """Elements of a tile that the same thread holds, combined."""
        k, threads, side = self.k, self.plan.tiling.threads, self.plan.tiling.vector
        if count > threads * side:
            x = k.reduce(combine, k.reshape(x, (count // (threads * side), threads * side)), 0)
        return k.reduce(combine, k.reshape(x, (threads, side)), 1) if side > 1 else x

    def _over_threads(self, x: tile.Value, count: int) -> tile.Value:
        """A tile whose elements are those of the threads that hold them."""
        k, threads, side = self.k, self.plan.tiling.threads, self.plan.tiling.vector
        if side > 1:
            x = k.reshape(k.broadcast(k.expand(x, 1), (threads, side)), (threads * side,))
        if count > threads * side:
            shape = count // (threads * side), threads * side
            x = k.reshape(k.broadcast(k.expand(x, 0), shape), (count,))
        return x

    def _row_place(self, var: Var) -> tuple[Index, ...]:
        """The place of a value of the row, which may have been laid along the whole domain."""
        domain, shape = self.plan.domain, var.aval.shape
        if sum(n != 1 for n in shape) < len(domain.index):
            return domain.row_index(shape)
        reduced: Sequence[int] = self.plan.region.axes or ()
        places = (Index(0) if i in reduced else x for i, x in enumerate(domain.index))
        return placed(places, shape)


def _finite(k: tile.Builder, x: tile.Value) -> tile.Value:
    """Numbers; zero for what is infinite or none."""
    return k.select(k.op("is_finite", x), x, k.const(x.dtype, 0, x.shape))
