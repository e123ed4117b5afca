"""What kernels of attention's gradient on GPUs share: how they are cut, slopes of logits anew.

A program has blocks of rows, queries or keys, which are left operands and stay in registers, and
meets blocks of the other ones, right operands in LDS. Weights are computed anew from what the
forward pass returned; the slopes of the logits from those, and products of cotangents and values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import is_multiple
from amdjax.core.integers import ceil_div
from amdjax.kernels.attention.gpu_blocks import (
    Blocking,
    Registers,
    as_operand,
    first_kind,
    fits,
    lines,
    overlapped_clocks,
)
from amdjax.kernels.attention.gpu_pairs import Pairs
from amdjax.kernels.attention.problem import Attention, Layout
from amdjax.kernels.shaped import ShapedContext
from amdjax.targets import GpuTarget

Value = tile.Value


@dataclass(frozen=True)
class GradientPart:
    """Blocks of queries, each going through blocks of keys, or the other way around.

    Args:
      problem: the attention.
      cut: its rows.
      of_queries: whether rows are queries.
    """

    problem: Attention
    cut: Blocking
    of_queries: bool

    @property
    def rows(self) -> int:
        """Of a head."""
        return self.problem.queries if self.of_queries else self.problem.keys

    @property
    def columns(self) -> int:
        """Of a head."""
        return self.problem.keys if self.of_queries else self.problem.queries

    @property
    def heads(self) -> int:
        """Of rows."""
        return self.problem.heads if self.of_queries else self.problem.key_heads

    @property
    def blocks(self) -> int:
        """Of rows, of each head."""
        return ceil_div(self.rows, self.cut.rows)

    @property
    def features(self) -> tuple[int, int]:
        """Of queries and keys in tiles, and of values."""
        return self.cut.features(self.problem)

    @property
    def made(self) -> tuple[int, ...]:
        """Features of the results that a program has sums of."""
        found = self.cut.made(self.problem)
        return found[:1] if self.of_queries else found

    @property
    def is_ragged(self) -> bool:
        """Whether tiles of columns reach over what there is."""
        return self.cut.is_ragged(self.problem, self.columns)

    @property
    def programs(self) -> int:
        return self.problem.batch * self.heads * self.blocks * self.cut.parts


def gradient_parts(
    problem: Attention, target: GpuTarget, of_queries: bool,
    accepts: Callable[[GradientPart], bool] | None = None,
) -> list[GradientPart]:  # fmt: skip
    """What fits the machine, of the best kind of which something does. None of float8.

    Args:
      problem: the attention.
      target: the GPU.
      of_queries: whether rows are queries.
      accepts: which of them fit; by default those whose gradients of rows do.
    """
    if problem.dtype.startswith("f8"):
        return []
    rows = problem.queries if of_queries else problem.keys
    known = accepts or (lambda part: _fits(part, target))
    cuts = first_kind(
        problem, target, rows, lambda cut: known(GradientPart(problem, cut, of_queries))
    )
    return [GradientPart(problem, cut, of_queries) for cut in cuts]


def _fits(part: GradientPart, target: GpuTarget) -> bool:
    return fits_with(part, target, part_registers(part, target), sum(part.made))


def fits_with(part: GradientPart, target: GpuTarget, registers: Registers, made: int) -> bool:
    """Whether a program has the registers and the LDS, with sums of so many features."""
    cut = part.cut
    if cut.chunk:
        return fits(cut, target, registers, sum(map(cut.held, part.features)) + made)
    return fits(cut, target, registers, sum(part.features), 2)


def part_registers(part: GradientPart, target: GpuTarget) -> Registers:
    """About as many as a lane needs."""
    cut, wide = part.cut, sum(part.features)
    sums, held, most, early = sum(part.made), wide, max(part.features), wide
    if cut.chunk:  # rows of one operand at a time, and columns when they are multiplied
        held = max(map(cut.held, part.features))
        early = most = max(held, *part.made)
    operands = cut.operand(cut.columns) + cut.right_operand(max(cut.columns, most))
    prefetched = cut.prefetched(target, early, part.is_ragged)
    computed = _computed(part, target) + operands + prefetched
    return Registers(computed, cut.sums(sums) + cut.operand(held))


def _computed(part: GradientPart, target: GpuTarget) -> int:
    """Registers for what is computed of a block of pairs.

    These are logits, weights, slopes, both as operands, and what is computed on the way, of which
    LLVM's scheduler for AMD holds more at a time than NVIDIA's assembler.
    """
    cut, problem = part.cut, part.problem
    block, given = cut.sums(cut.columns), len({"bias", "mask"} & set(problem.given))
    if cut.in_turn:
        return (7 + given + problem.is_masked_by_position + bool(problem.rate)) * block
    # Elements of bias and mask with their places, which in the second kernel lie across.
    places = given * (40 + (4 if part.of_queries else 6) * block)
    blocks = 7 + problem.is_masked_by_position if target.is_amdgpu else 4
    if cut.atom.from_lds:  # sums of both products, and one more; what is known of their queries
        blocks, places = 3, places + (0 if part.of_queries else cut.columns // 2)
    return (blocks + 2 * bool(problem.rate)) * block + places


def part_cost(part: GradientPart, target: GpuTarget) -> float:
    """Clocks of a compute unit, for all programs that it gets."""
    cut, wide, costs = part.cut, sum(part.features), target.costs
    pairs = cut.rows * cut.columns
    products = 2 * pairs * (wide + part.features[0] // cut.parts) / cut.atom.flops
    reads = 2 * cut.waves * cut.columns * wide * cut.atom.operand_bytes / costs.lds_rate
    slopes = pairs * 14 / min(cut.waves * target.wave_size, 128)
    brought = cut.columns * wide * cut.atom.operand_bytes / costs.cache_rate
    steps = ceil_div(part.columns, cut.columns) * part.problem.heads // part.heads
    step = products + reads + slopes + brought / 2 + cut.waits(costs)
    step += cut.again(part.features, costs)
    if cut.atom.from_lds:
        known = part_registers(part, target), wide, part.programs, steps
        return overlapped_clocks(cut, target, *known, products, slopes)
    return ceil_div(part.programs, target.compute_units) * (steps * step + costs.program)


class GradientKernel:
    """A kernel of the gradient: its operands, and the slopes of a block of pairs.

    Args:
      ctx: the equation.
      part: how it is cut.
      name: of the kernel.
    """

    def __init__(self, ctx: ShapedContext, part: GradientPart, name: str):
        self.ctx, self.part, self.problem, self.cut = ctx, part, part.problem, part.cut
        self.kernel = ctx.kernel(name)
        self.k = self.kernel.k
        self.k.schedule.workgroup = part.cut.waves * ctx.gpu.wave_size
        known = ("maximum", "total", "delta", "cotangent")
        self.names = ("query", "key", "value", *self.problem.given, *known)
        self.inputs = {name: self.kernel.input(x) for name, x in zip(self.names, ctx.inputs)}

    def _lines(
        self, name: str, first: Value, count: int, batch: Value, head: Value,
        features: tuple[Value | None, int] | None = None,
    ) -> Value:  # fmt: skip
        """A tile of an operand as it is multiplied; of cotangents, zeros for padding.

        Args:
          name: of the operand.
          first, count: lines.
          batch: the entry of the batch.
          head: of queries, or of keys where these are the rows.
          features: the first of the tile and how many; by default all.
        """
        k, p = self.k, self.problem
        of_queries = name in ("query", "cotangent")
        if not of_queries and self.part.of_queries:
            head = head // p.group
        of_values = name in ("value", "cotangent")
        feature, wide = features or (None, self.part.features[of_values])
        total = p.value_features if of_values else p.features
        shape, place = (count, wide), (batch, first, head)
        extents, layout = (p.queries if of_queries else p.keys, total), self._layout(name)
        x = lines(k, self.inputs[name], layout, shape, place, extents, feature)
        if name == "cotangent" and "query_lengths" in p.given:
            length = k.convert(k.load(self.inputs["query_lengths"], batch), "index")
            line = k.iota(count) + k.broadcast(first, (count,))
            used = k.broadcast(k.expand(line < k.broadcast(length, (count,)), 1), shape)
            x = k.select(used, x, k.const(x.dtype, 0, shape))
        return x

    def _layout(self, name: str) -> Layout:
        """Where an operand lies."""
        return Layout.of(self.ctx.eqn, self.names.index(name))

    def _names(self, own: bool) -> tuple[str, str]:
        """What is multiplied of rows (`own`) or of columns."""
        of_queries = own == self.part.of_queries
        return ("query", "cotangent") if of_queries else ("key", "value")

    def _own(self, first: Value, batch: Value, head: Value) -> list[Value]:
        """The rows that stay in registers."""
        if self.cut.chunk:
            return []
        names = self._names(True)
        found = [self._lines(name, first, self.cut.rows, batch, head) for name in names]
        return [as_operand(self.k, x, self.cut) for x in found]

    def _others(self, first: Value, batch: Value, head: Value) -> list[Value]:
        """Columns that are brought early."""
        if self.cut.chunk:
            return []
        names = self._names(False)
        return [self._lines(name, first, self.cut.columns, batch, head) for name in names]

    def _product(
        self, which: int, pairs: Pairs, own: Sequence[Value], others: Sequence[Value],
        places: tuple[Value, Value],
    ) -> Value:  # fmt: skip
        """Of queries and keys, or of cotangents and values.

        Args:
          which: 0 or 1.
          pairs: of the head.
          own, others: rows and columns, as far as they are there; else they are read here.
          places: the first row and the first column.
        """
        k, cut, features = self.k, self.cut, self.part.features[which]
        zero = k.const("f32", 0, (cut.rows, cut.columns))
        if own:
            column = as_operand(k, others[which], cut)
            tiling = cut.tiling(cut.columns, features)
            return k.dot(own[which], k.transpose(column), zero, tiling)
        wide = cut.held(features)
        head = pairs.head if self.part.of_queries else pairs.head // self.problem.group
        sides = (True, places[0], cut.rows, head), (False, places[1], cut.columns, pairs.head)

        def add(i: Value, sums: Value) -> Sequence[Value]:
            row, column = (
                as_operand(k, self._lines(
                    self._names(mine)[which], first, count, pairs.batch, head, (i * wide, wide)
                ), cut)
                for mine, first, count, head in sides
            )  # fmt: skip
            return [k.dot(row, k.transpose(column), sums, cut.tiling(cut.columns, wide))]

        return k.for_(0, features // wide, 1, add, [zero])[0]

    def _statistics(self, pairs: Pairs, first: Value, count: int) -> list[Value]:
        """Of queries: what `Pairs.power` subtracts, one by the sum of exponentials, and delta."""
        k, p = self.k, self.problem
        at = (pairs.batch * p.heads + pairs.head) * p.queries + first
        mask = None
        if not is_multiple(p.queries, count):
            mask = k.iota(count) + k.broadcast(first, (count,)) < p.queries
        maximum, total, delta = (
            k.load(self.inputs[name], at, (count,), (1,), mask, other, eager=mask is None)
            for name, other in (("maximum", 0), ("total", 1), ("delta", 0))
        )
        bound = pairs.bound_of(maximum)
        # Of at least one; a division has branches, for each element that a lane has of them.
        return [bound, k.op("rsqrt", total * total, rounded="f16"), delta]

    def _slopes(
        self, pairs: Pairs, own: Sequence[Value], others: Sequence[Value],
        statistics: Sequence[Value], places: tuple[Value, Value], masked: bool,
    ) -> tuple[Value, Value]:  # fmt: skip
        """Of the logits of a block, and the weights as they multiply values.

        Args:
          pairs: of the head.
          own: of rows, what is multiplied with keys or queries, and with values or cotangents; none
            if it is read here.
          others: the same of columns.
          statistics: of the queries.
          places: the first query and the first key.
          masked: whether some pairs may take no part.
        """
        k, p, part, cut = self.k, self.problem, self.part, self.cut
        shape = cut.rows, cut.columns
        zero = k.const("f32", 0, shape)
        across = 1 if part.of_queries else 0
        rows_first = places if part.of_queries else places[::-1]

        def spread(x: Value) -> Value:
            return k.broadcast(k.expand(x, across), shape)

        bound, share, delta = statistics[0], *map(spread, statistics[1:])
        x = self._product(0, pairs, own, others, rows_first)
        kept = pairs.kept(shape, *places) if masked else None
        x = pairs.logits(x, *places, masked, kept)
        weights = pairs.power(x, bound, across) * share
        slope = self._product(1, pairs, own, others, rows_first)
        not_dropped = pairs.not_dropped(shape, *places)
        if not_dropped is not None:
            slope = k.select(not_dropped, slope * k.const("f32", 1 / (1 - p.rate), shape), zero)
        slope = weights * (slope - delta)
        if not_dropped is not None:
            weights = k.select(not_dropped, weights, zero)
        # Also where each query has keys: of one that is NaN the others' slopes are zero.
        return (slope if kept is None else k.select(kept, slope, zero)), weights
