"""The greatest elements along an axis, greatest first.

Few of many are found in one pass: a sorted list holds the best so far, and vectors of elements
are only looked at closer where one of them beats the last of the list. Rows that keep too few
threads busy are split; a second kernel merges the lists. Otherwise rows are sorted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.core.dims import choosing, size_hint, surely_equal
from amdjax.core.integers import ceil_div
from amdjax.kernels.loops import bits_dtype, lane_loop, lanes_for, split_position, view
from amdjax.kernels.shaped import Call, Copy, KernelPlan, ShapedContext, ShapedKernel, Temp, shaped
from amdjax.kernels.sorting.keys import Key
from amdjax.kernels.sorting.rows import Geometry, SortProblem
from amdjax.kernels.sorting.sort import plan_rows
from amdjax.schedule.row_plan import counted
from amdjax.schedule.search import Family, Solver, busy_time, shares
from amdjax.schedule.values import short_dtype
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import Builder, Value

LIST = 128  # longest list that is kept sorted by insertion
SPLIT_FROM = 1 << 13  # elements below which a row is not split
UNROLL = 4


@shaped("top_k")
def plan_top_k(ctx: ShapedContext) -> KernelPlan:
    """Values and positions; NaN counts as greatest, -0 as less than +0."""
    (x,), (values, indices) = ctx.inputs, ctx.outputs
    k = ctx.params["k"]
    if not math.prod(values.aval.shape):
        return _NoElements()
    geometry = Geometry.of(x.aval.shape, ctx.params["axis"])
    key = Key(short_dtype(x.aval.dtype), equal_zeros=False, descending=True)
    outputs = (x, values), (None, indices)
    problem = SortProblem(geometry, ((x, key),), outputs, k)
    with choosing():
        least = max(64 if geometry.rows < 8 else 256, 4 * k)
        long = geometry.n >= least
    if not ctx.on_gpu and k <= LIST and long:
        return SELECTIONS.best(problem, ctx.target)
    return plan_rows(ctx.machine, problem)


@dataclass(frozen=True)
class _NoElements:
    """Results without elements, which have their places all the same."""

    def emit(self, ctx: ShapedContext) -> list[Call]:
        kernel = ctx.kernel("empty")
        for result in ctx.outputs:
            kernel.output(result)
        return [kernel.launch(0, 0.0)]

    def __str__(self) -> str:
        return "no elements"


@dataclass(frozen=True)
class SelectionPlan:
    """One pass over each row, which keeps the best so far.

    Args:
      geometry: the rows.
      key: of their elements.
      size: how many are wanted.
      length: elements of a row that a program takes.
      lanes: elements that are compared at once.
    """

    geometry: Geometry
    key: Key
    size: int
    length: int
    lanes: int

    def emit(self, ctx: ShapedContext) -> list[Call | Copy]:
        return _Selection(ctx, self).build()

    def __str__(self) -> str:
        g = self.geometry
        out = f"selection of {self.size} from {counted(g.rows, 'row')} of {g.n}, {self.lanes} lanes"
        return out + (
            f", {self.length} of a row in a program" if not surely_equal(self.length, g.n) else ""
        )


def selections(problem: SortProblem, target: CpuTarget) -> list[SelectionPlan]:
    """Rows split in different numbers, where they keep too few threads busy."""
    g, (_, key), size = problem.geometry, problem.keys[0], problem.taken
    rows, n, threads = g.rows, g.n, target.threads
    with choosing():
        few = threads > 1 and rows < 2 * threads
        wanted = ceil_div(4 * threads, size_hint(rows)) if few else 1
        most = min(wanted, max(1, size_hint(n) // max(SPLIT_FROM, 16 * size)))
        lengths = dict.fromkeys(ceil_div(n, splits) for splits in shares(most))
        filling = [m for m in lengths if _last(n, m) >= size]
    return [SelectionPlan(g, key, size, m, lanes_for(target, key.unsigned, n, 1)) for m in filling]


def _last(n: int, length: int) -> int:
    """Elements of the last split, which must fill a list."""
    return n - (ceil_div(n, length) - 1) * length


def selection_cost(problem: SortProblem, plan: SelectionPlan, target: CpuTarget) -> float:
    """Elements that a thread looks at."""
    g = problem.geometry
    return busy_time(g.rows * g.n, g.rows * ceil_div(g.n, plan.length), 4 * target.threads)


SELECTIONS: Family[SortProblem, CpuTarget, SelectionPlan] = Family(
    "selection on a CPU", Solver("selection", selections, selection_cost)
)


class _List:
    """The best elements so far, in scratch memory, behind a sentinel that precedes every key."""

    def __init__(self, k: Builder, key: Key, size: int):
        self.k, self.key, self.size = k, key, size
        self.keys = k.scratch("keys", key.unsigned, size + 1)
        self.positions = k.scratch("positions", "u32", size + 1)
        k.store(self.keys, 0, k.const(key.unsigned, 0))

    def insert(self, x: Value, position: Value, held: Value) -> None:
        """Put a key behind all that do not exceed it; of `held` keys the last one may drop out."""
        k = self.k

        def beyond(j: Value) -> Value:
            return k.load(self.keys, j - 1) > x

        def shift(j: Value) -> Value:
            before = j - 1
            k.store(self.keys, j, k.load(self.keys, before))
            k.store(self.positions, j, k.load(self.positions, before))
            return before

        (j,) = k.while_(beyond, shift, [held])
        k.store(self.keys, j, x)
        k.store(self.positions, j, position)

    def last(self) -> Value:
        return self.k.load(self.keys, self.size)

    def fill(self, element: Callable[[Value], tuple[Value, Value]]) -> None:
        """Start with the first elements, whatever they are."""
        k = self.k
        k.for_(0, self.size, 1, lambda i: self.insert(*element(i), i + 1))

    def offer(self, x: Value, position: Value, worst: Value) -> Value:
        """Insert a key if it beats the last one; returns the last one then."""
        k = self.k

        def better() -> Value:
            self.insert(x, position, k.const("index", self.size))
            return self.last()

        (worst,) = k.if_(x < worst, better, lambda: worst)
        return worst


class _Selection:
    """Finds the best elements of each row in one pass."""

    def __init__(self, ctx: ShapedContext, plan: SelectionPlan):
        self.ctx, self.geometry, self.key, self.size = ctx, plan.geometry, plan.key, plan.size
        self.length, self.count = plan.length, plan.lanes
        self.splits = ceil_div(self.geometry.n, self.length)
        if not _last(self.geometry.n, self.length) >= self.size:  # a guard of symbolic sizes
            raise AssertionError(f"{self.size} of the last of {self.splits} splits")

    def build(self) -> list[Call | Copy]:
        if self.splits == 1:
            return [self._select(None)]
        total = self.geometry.rows * self.splits * self.size
        temps = Temp(self.key.unsigned, total), Temp("u32", total)
        return [self._select(temps), self._merge(temps)]

    def _select(self, temps: tuple[Temp, Temp] | None) -> Call:
        g, kernel = self.geometry, self.ctx.kernel("top_k")
        k = kernel.k
        row, split = split_position(k, k.program_id(), (g.rows, self.splits))
        low = split * self.length
        high = k.min(low + self.length, g.n)
        best = _List(k, self.key, self.size)
        operand, start = kernel.input(self.ctx.inputs[0]), g.start(k, row)

        def keys(i: Value, count: int = 0, mask: Value | None = None) -> Value:
            at = start + i * g.inner
            return self.key.encode(k, self.key.load(k, operand, at, count, g.inner, mask))

        def first(i: Value) -> tuple[Value, Value]:
            i = low + i
            return keys(i), k.convert(i, "u32")

        best.fill(first)
        self._scan(k, best, keys, low + self.size, high)
        if temps is None:
            self._write(kernel, best, row)
        else:
            self._keep(kernel, best, temps)
        return kernel.launch(
            g.rows * self.splits, 0.3 * g.rows * g.n + 500.0 * g.rows * self.splits
        )

    def _scan(
        self, k: Builder, best: _List, keys: Callable[..., Value], low: Value, high: Value
    ) -> None:
        """Offer the elements `low..high` to the list."""
        count = self.count
        found_keys = k.scratch("found_keys", self.key.unsigned, count)
        found_positions = k.scratch("found_positions", "u32", count)

        def close(i: Value, x: Value, mask: Value | None, worst: Value) -> Value:
            """Offer those of a vector that beat the list's last one."""
            hits = x < k.broadcast(worst, (count,))
            hits = hits if mask is None else hits & mask
            position = k.iota(count, "u32") + k.broadcast(k.convert(i, "u32"), (count,))
            k.store(found_keys, 0, k.compress(x, hits))
            k.store(found_positions, 0, k.compress(position, hits))
            number = k.convert(k.reduce("add", k.convert(hits, "i32")), "index")

            def one(j: Value, worst: Value) -> Value:
                return best.offer(k.load(found_keys, j), k.load(found_positions, j), worst)

            (worst,) = k.for_(0, number, 1, one, [worst])
            return worst

        def vectors(i: Value, worst: Value) -> Value:
            xs = [keys(i + u * count, count) for u in range(UNROLL)]
            least = xs[0]
            for x in xs[1:]:
                least = k.min(least, x)

            def look() -> Value:
                now = worst
                for u, x in enumerate(xs):
                    now = close(i + u * count, x, None, now)
                return now

            hit = k.reduce("or", least < k.broadcast(worst, (count,)))
            (worst,) = k.if_(hit, look, lambda: worst)
            return worst

        step = k.const("index", count * UNROLL)
        wide = high - ((high - low) % step)
        (worst,) = k.for_(low, wide, count * UNROLL, vectors, [best.last()])
        lane_loop(
            k,
            wide,
            high,
            count,
            lambda i, mask, w: [close(i, keys(i, count, mask), mask, w)],
            [worst],
        )

    def _write(self, kernel: ShapedKernel, best: _List, row: Value) -> None:
        """Store the list as a row of the results."""
        k, g = kernel.k, self.geometry
        (source,), (values, indices) = self.ctx.inputs, self.ctx.outputs
        dtype, _ = bits_dtype(short_dtype(source.aval.dtype))
        read, write = view(kernel.input(source), dtype), view(kernel.output(values), dtype)
        places = kernel.output(indices)
        start, out = g.start(k, row), g.start(k, row, self.size)

        def one(i: Value) -> None:
            position = k.load(best.positions, i + 1)
            at = k.convert(position, "index") * g.inner
            to = out + i * g.inner
            k.store(write, to, k.load(read, start + at))
            k.store(places, to, k.convert(position, "i32"))

        k.for_(0, self.size, 1, one)

    def _keep(self, kernel: ShapedKernel, best: _List, temps: Sequence[Temp]) -> None:
        """Store the list of a split."""
        k = kernel.k
        base = k.program_id() * self.size
        for temp, scratch in zip(temps, (best.keys, best.positions), strict=True):
            out: Any = kernel.output(temp)
            k.for_(
                0,
                self.size,
                1,
                lambda i, out=out, scratch=scratch: k.store(out, base + i, k.load(scratch, i + 1)),
            )

    def _merge(self, temps: tuple[Temp, Temp]) -> Call:
        """One list out of those of the splits; earlier splits come first among equals."""
        g, kernel = self.geometry, self.ctx.kernel("top_k_merge")
        k, total = kernel.k, self.splits * self.size
        best = _List(k, self.key, self.size)
        keys, positions = (kernel.input(t) for t in temps)
        base = k.program_id() * total

        def element(i: Value) -> tuple[Value, Value]:
            at = base + i
            return k.load(keys, at), k.load(positions, at)

        best.fill(element)
        k.for_(self.size, total, 1, lambda i, worst: best.offer(*element(i), worst), [best.last()])
        self._write(kernel, best, k.program_id())
        return kernel.launch(g.rows, 3.0 * g.rows * total)
