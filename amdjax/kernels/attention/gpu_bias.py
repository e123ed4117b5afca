"""The gradient of attention's bias on GPUs: slopes of logits, summed where the bias is broadcast.

A program has a tile of the bias that no other has: a block of queries and of keys of a head and an
entry of the batch, as far as the bias has these axes. It goes through all that reads its tile, in
order, and sums in registers. So nothing as large as all pairs is kept, and sums have one order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.dims import is_multiple
from amdjax.core.integers import ceil_div
from amdjax.kernels.attention.gpu_blocks import Registers
from amdjax.kernels.attention.gpu_pairs import Pairs, segments
from amdjax.kernels.attention.gpu_slopes import (
    GradientKernel,
    GradientPart,
    fits_with,
    gradient_parts,
    part_cost,
    part_registers,
)
from amdjax.kernels.attention.problem import Attention
from amdjax.kernels.gpu_loops import every
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.targets import GpuTarget

Value = tile.Value


@dataclass(frozen=True)
class BiasPart:
    """Tiles of the bias, each of one program.

    Args:
      slopes: how rows, which are queries, and columns are cut.
    """

    slopes: GradientPart

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Entries of the batch, heads, blocks of queries and of keys."""
        p, cut = self.slopes.problem, self.slopes.cut
        return p.batch, p.heads, ceil_div(p.queries, cut.rows), ceil_div(p.keys, cut.columns)

    @property
    def own(self) -> tuple[int, ...]:
        """The same as far as programs have each their own."""
        strides = self.slopes.problem.bias
        return tuple(n if s else 1 for n, s in zip(self.counts, strides, strict=True))

    @property
    def programs(self) -> int:
        batch, heads, rows, columns = self.own
        return batch * heads * rows * columns

    def __str__(self) -> str:
        return f"bias in {self.programs} tiles, {self.slopes.cut}"


def bias_part(problem: Attention, target: GpuTarget) -> BiasPart | None:
    """The cheapest division that fits the machine."""
    found = gradient_parts(problem, target, True, lambda part: _fits(part, target))
    if not found:
        return None
    best = min(found, key=lambda part: part_cost(part, target))
    return BiasPart(replace(best, cut=replace(best.cut, parts=1)))  # it has no such results


def _fits(part: GradientPart, target: GpuTarget) -> bool:
    cut, (computed, multiplied) = part.cut, part_registers(part, target)
    multiplied -= cut.sums(sum(part.made))
    registers = Registers(computed + cut.sums(cut.columns), multiplied)
    return fits_with(part, target, registers, 0)


class BiasGradient(GradientKernel):
    """The kernel of a part."""

    def __init__(self, ctx: ShapedContext, part: BiasPart):
        super().__init__(ctx, part.slopes, "attention_gradient_of_bias")
        self.tiles = part

    def call(self) -> Call:
        k, p, cut = self.k, self.problem, self.cut
        out = self.kernel.output(self.ctx.outputs[3])
        number, own = k.program_id(), list[Value]()
        for n in self.tiles.own[::-1]:
            own.insert(0, number % n)
            number = number // n
        total = k.const("f32", 0, (cut.rows, cut.columns))
        batch, head, rows, _ = (self._along(axis, own[axis]) for axis in range(4))
        total = batch(
            lambda b, x: head(lambda h, x: rows(lambda i, x: self._row(b, h, i, own[3], x), x), x),
            total,
        )
        self._store(out, own, total)
        work = p.batch * p.heads * p.queries * p.keys * (p.features + p.value_features)
        return self.kernel.launch(self.tiles.programs, 2.0 * work)

    def _along(self, axis: int, own: Value) -> Callable[..., Value]:
        """What goes through all numbers along an axis: the program's own one, or all there are."""
        k = self.k
        if self.problem.bias[axis]:
            return lambda body, x: body(own, x)
        count = self.tiles.counts[axis]
        return lambda body, x: k.for_(0, count, 1, lambda i, x: [body(i, x)], [x])[0]

    def _row(self, batch: Value, head: Value, block: Value, own: Value, total: Value) -> Value:
        """A block of queries with the program's blocks of keys."""
        k, p, cut = self.k, self.problem, self.cut
        pairs = Pairs(k, p, self.inputs, batch, head, masks_queries=True)
        query = block * cut.rows
        rows = self._own(query, batch, head)
        statistics = self._statistics(pairs, query, cut.rows)
        found = segments(pairs, query, cut.rows, cut.columns)
        start, stop = found[0].start, found[-1].stop
        if p.bias[3]:
            start, stop = k.max(start, own), k.min(stop, own + 1)

        def step(j: Value, total: Value) -> Sequence[Value]:
            key = j * cut.columns
            columns = self._others(key, batch, head)
            slopes, _ = self._slopes(pairs, rows, columns, statistics, (query, key), True)
            return [total + slopes]

        return k.for_(start, stop, 1, step, [total])[0]

    def _store(self, out: tile.Buffer, own: Sequence[Value], total: Value) -> None:
        """The tile, or its sums along axes that the bias does not have."""
        k, p, cut = self.k, self.problem, self.cut
        sizes, extents = (cut.rows, cut.columns), (p.queries, p.keys)
        kept = [axis for axis in (0, 1) if p.bias[2 + axis]]
        firsts = [own[2 + axis] * sizes[axis] for axis in (0, 1)]
        at = own[0] * p.bias[0] + own[1] * p.bias[1]
        for axis in kept:
            at = at + firsts[axis] * p.bias[2 + axis]
        for axis in (1, 0):
            if axis not in kept:
                total = k.reduce("add", total, axis)
        conditions = []
        for i, axis in enumerate(kept):
            n = sizes[axis]
            if not is_multiple(extents[axis], n):
                there = k.iota(n) + k.broadcast(firsts[axis], (n,)) < extents[axis]
                if len(kept) == 2:
                    there = k.broadcast(k.expand(there, 1 - i), total.shape)
                conditions.append(there)
        strides = tuple(p.bias[2 + axis] for axis in kept)
        total = k.convert(total, p.bias_dtype)
        k.store(out, at, total, strides, every(k, conditions))
