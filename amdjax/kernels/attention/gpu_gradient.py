"""Gradients of attention on GPUs, by two kernels that compute the weights anew.

In the first a program has a block of queries and goes through the keys, for the gradient of its
queries; in the second it has a block of keys and goes through the queries, for the gradients of its
keys and values. Either multiplies what it has (left operands, in registers) with what it goes
through (right ones, in LDS): products of queries and keys, and of cotangents and values; then the
slopes of the logits, which are left operands as they lie, with what it goes through. No sum is
shared, so results are the same in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.kernels.attention.gpu_blocks import (
    Blocking,
    Registers,
    blockings,
    fits,
    inside,
    lines,
)
from amdjax.kernels.attention.gpu_pairs import Pairs, always_has_key, segments
from amdjax.kernels.attention.problem import Attention
from amdjax.kernels.shaped import Call, KernelPlan, ShapedContext, shaped
from amdjax.schedule.search import Family, Solver
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
    def is_ragged(self) -> bool:
        """Whether tiles of columns reach over what there is."""
        return self.cut.is_ragged(self.problem, self.columns)

    @property
    def programs(self) -> int:
        return self.problem.batch * self.heads * self.blocks


@dataclass(frozen=True)
class GradientPlan:
    """Both kernels.

    Args:
      queries: for the gradient of queries.
      keys: for those of keys and values.
    """

    queries: GradientPart
    keys: GradientPart

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [Backward(ctx, part).call() for part in (self.queries, self.keys)]

    def __str__(self) -> str:
        out = f"gradient of attention of {self.queries.problem}: queries in {self.queries.cut}"
        return f"{out}; keys in {self.keys.cut}"


def _parts(problem: Attention, target: GpuTarget, of_queries: bool) -> list[GradientPart]:
    rows = problem.queries if of_queries else problem.keys
    cuts = list(blockings(problem, target, rows))
    for in_turn in (False, True) if target.is_amdgpu else (False,):
        found = [GradientPart(problem, replace(x, in_turn=in_turn), of_queries) for x in cuts]
        fitting = [part for part in found if _fits(part, target)]
        if fitting:
            return fitting
    return []


def _fits(part: GradientPart, target: GpuTarget) -> bool:
    return fits(part.cut, target, _registers(part, target), sum(part.features), 2)


def _registers(part: GradientPart, target: GpuTarget) -> Registers:
    cut, (features, value_features) = part.cut, part.features
    wide = features + value_features
    multiplied = cut.sums(features if part.of_queries else wide) + cut.operand(wide)
    operands = cut.operand(cut.columns) + cut.right_operand(max(cut.columns, *part.features))
    prefetched = cut.prefetched(target, wide, part.is_ragged)
    return Registers(_computed(part, target) + operands + prefetched, multiplied)


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
    return (blocks + 2 * bool(problem.rate)) * block + places


def _cost(part: GradientPart, target: GpuTarget) -> float:
    """Clocks of a compute unit, for all programs that it gets."""
    cut, wide, costs = part.cut, sum(part.features), target.costs
    pairs = cut.rows * cut.columns
    products = 2 * pairs * (wide + part.features[0]) / cut.atom.flops
    reads = 2 * cut.waves * cut.columns * wide * cut.atom.operand_bytes / costs.lds_rate
    slopes = pairs * 14 / min(cut.waves * target.wave_size, 128)
    brought = cut.columns * wide * cut.atom.operand_bytes / costs.cache_rate
    steps = ceil_div(part.columns, cut.columns) * part.problem.heads // part.heads
    step = products + reads + slopes + brought / 2 + costs.stall / 2
    return ceil_div(part.programs, target.compute_units) * (steps * step + costs.program)


def gradient_plans(problem: Attention, target: GpuTarget) -> list[GradientPlan]:
    """Each plan of one kernel with the best of the other."""
    both = [_parts(problem, target, of_queries) for of_queries in (True, False)]
    if not all(both):
        return []
    best = [min(parts, key=lambda part: _cost(part, target)) for parts in both]
    found = [GradientPlan(part, best[1]) for part in both[0]]
    return [*found, *(GradientPlan(best[0], part) for part in both[1] if part != best[1])]


def gradient_cost(problem: Attention, plan: GradientPlan, target: GpuTarget) -> float:
    """Clocks of both kernels."""
    return _cost(plan.queries, target) + _cost(plan.keys, target)


GRADIENT: Family[Attention, GpuTarget, GradientPlan] = Family(
    "gradient of attention on a GPU", Solver("blocks", gradient_plans, gradient_cost)
)


@shaped("attention_gradient", on="gpu")
def plan_gradient(ctx: ShapedContext) -> KernelPlan | None:
    """The plan for the gradient; None where no matrix unit multiplies, or the bias has one too."""
    if ctx.params["bias_gradient"] or not all(x.aval.size for x in (*ctx.inputs, *ctx.outputs)):
        return None
    problem = Attention.of(ctx.eqn)
    return GRADIENT.find(problem, ctx.gpu) if gradient_plans(problem, ctx.gpu) else None


class Backward:
    """The kernel of a part."""

    def __init__(self, ctx: ShapedContext, part: GradientPart):
        self.ctx, self.part, self.problem, self.cut = ctx, part, part.problem, part.cut
        name = "attention_gradient_of_" + ("queries" if part.of_queries else "keys")
        self.kernel = ctx.kernel(name)
        self.k = k = self.kernel.k
        k.schedule.workgroup = part.cut.waves * ctx.gpu.wave_size
        p = self.problem
        names = ("query", "key", "value", *p.given, "maximum", "total", "delta", "cotangent")
        self.inputs = {name: self.kernel.input(x) for name, x in zip(names, ctx.inputs)}
        number = k.program_id()
        block, line = number % part.blocks, number // part.blocks
        if p.is_causal and part.of_queries:  # the longest first
            block = k.const("index", part.blocks - 1) - block
        self.first = block * part.cut.rows
        self.head, self.batch = line % part.heads, line // part.heads

    def call(self) -> Call:
        k, p, part, cut = self.k, self.problem, self.part, self.cut
        results = self.ctx.outputs[:1] if part.of_queries else self.ctx.outputs[1:]
        outs = [self.kernel.output(v) for v in results]
        own = [self._lines(name, self.first, cut.rows, self.head) for name in self._names(True)]
        sums = [k.const("f32", 0, (cut.rows, wide)) for wide in part.features[: len(outs)]]
        if part.of_queries:
            sums = self._through(own, self.head, sums)
        else:

            def one(i: Value, *sums: Value) -> Sequence[Value]:
                return self._through(own, self.head * p.group + i, list(sums))

            sums = (
                list(k.for_(0, p.group, 1, one, sums))
                if p.group > 1
                else list(one(k.const("index", 0), *sums))
            )
        for out, x, features in zip(outs, sums, (p.features, p.value_features)):
            factor = p.scale if out is outs[0] else 1 / (1 - p.rate)
            x = x * k.const("f32", factor, x.shape)
            at = ((self.batch * part.rows + self.first) * part.heads + self.head) * features
            mask = inside(k, x.shape, (self.first, part.rows), features)
            k.store(out, at, k.convert(x, p.dtype), (part.heads * features, 1), mask)
        work = p.batch * p.heads * p.queries * p.keys * (p.features + p.value_features)
        return self.kernel.launch(part.programs, 2.5 * work)

    def _names(self, own: bool) -> tuple[str, str]:
        """What is multiplied of rows (`own`) or of columns."""
        of_queries = own == self.part.of_queries
        return ("query", "cotangent") if of_queries else ("key", "value")

    def _lines(self, name: str, first: Value, count: int, head: Value) -> Value:
        """A tile of an operand; of cotangents, zeros for queries that are padding."""
        k, p = self.k, self.problem
        wide, value_wide = self.part.features
        of_queries = name in ("query", "cotangent")
        extents = (p.queries, p.heads) if of_queries else (p.keys, p.key_heads)
        if not of_queries and self.part.of_queries:
            head = head // p.group
        of_values = name in ("value", "cotangent")
        features = p.value_features if of_values else p.features
        shape = count, value_wide if of_values else wide
        place = self.batch, first, head
        x = lines(k, self.inputs[name], shape, place, (*extents, features))
        if name == "cotangent" and "query_lengths" in p.given:
            length = k.convert(k.load(self.inputs["query_lengths"], self.batch), "index")
            line = k.iota(count) + k.broadcast(first, (count,))
            used = k.broadcast(k.expand(line < k.broadcast(length, (count,)), 1), shape)
            x = k.select(used, x, k.const(x.dtype, 0, shape))
        return x

    def _through(self, own: Sequence[Value], head: Value, sums: list[Value]) -> list[Value]:
        """All blocks of columns that a head of queries needs."""
        k, part, cut = self.k, self.part, self.cut
        across = 1 if part.of_queries else 0
        pairs = Pairs(k, self.problem, self.inputs, self.batch, head, across, masks_queries=True)
        found = segments(pairs, self.first, cut.rows, cut.columns)
        statistics = self._statistics(pairs, self.first, cut.rows) if part.of_queries else None
        last = k.max(found[-1].stop - 1, 0)

        def block(number: Value) -> list[Value]:
            first = number * cut.columns
            return [self._lines(name, first, cut.columns, head) for name in self._names(False)]

        state = [*sums, *block(k.min(found[0].start, last))]
        for segment in found:

            def step(i: Value, *carried: Value, masked: bool = segment.masked) -> Sequence[Value]:
                following = block(k.min(i + 1, last))
                first = i * cut.columns
                known = statistics or self._statistics(pairs, first, cut.columns)
                n = len(sums)
                done = self._step(pairs, own, carried[n:], carried[:n], known, first, masked)
                return [*done, *following]

            state = list(k.for_(segment.start, segment.stop, 1, step, state))
        return state[: len(sums)]

    def _statistics(self, pairs: Pairs, first: Value, count: int) -> list[Value]:
        """Of queries: what `Pairs.power` subtracts, one by the sum of exponentials, and delta."""
        k, p = self.k, self.problem
        at = (self.batch * p.heads + pairs.head) * p.queries + first
        mask = None
        if p.queries % count:
            mask = k.iota(count) + k.broadcast(first, (count,)) < p.queries
        maximum, total, delta = (
            k.load(self.inputs[name], at, (count,), (1,), mask, other, eager=mask is None)
            for name, other in (("maximum", 0), ("total", 1), ("delta", 0))
        )
        bound = pairs.bound_of(maximum)
        # Of at least one; a division has branches, for each element that a lane has of them.
        return [bound, k.op("rsqrt", total * total, rounded="f16"), delta]

    def _step(
        self, pairs: Pairs, own: Sequence[Value], others: Sequence[Value], sums: Sequence[Value],
        statistics: Sequence[Value], first: Value, masked: bool,
    ) -> list[Value]:  # fmt: skip
        """One block of columns."""
        k, p, part, cut = self.k, self.problem, self.part, self.cut
        shape, (wide, value_wide) = (cut.rows, cut.columns), part.features
        zero = k.const("f32", 0, shape)
        query, key = (self.first, first) if part.of_queries else (first, self.first)
        across = 1 if part.of_queries else 0

        def spread(x: Value) -> Value:
            return k.broadcast(k.expand(x, across), shape)

        bound, share, delta = statistics[0], *map(spread, statistics[1:])
        x = k.dot(own[0], k.transpose(others[0]), zero, cut.tiling(cut.columns, wide))
        kept = pairs.kept(shape, query, key) if masked else None
        x = pairs.logits(x, query, key, masked, kept)
        weights = pairs.power(x, bound, across) * share
        slope = k.dot(own[1], k.transpose(others[1]), zero, cut.tiling(cut.columns, value_wide))
        not_dropped = pairs.not_dropped(shape, query, key)
        if not_dropped is not None:
            slope = k.select(not_dropped, slope * k.const("f32", 1 / (1 - p.rate), shape), zero)
        slope = weights * (slope - delta)
        if not_dropped is not None:
            weights = k.select(not_dropped, weights, zero)
        if masked and not (always_has_key(p) and pairs.query_length is None):
            slope = slope if kept is None else k.select(kept, slope, zero)
            if part.of_queries:
                others = [pairs.counted(others[0], first), others[1]]
        tiling = cut.tiling(wide, cut.columns)
        found = [k.dot(k.convert(slope, p.dtype), others[0], sums[0], tiling)]
        if not part.of_queries:
            tiling = cut.tiling(value_wide, cut.columns)
            found.append(k.dot(k.convert(weights, p.dtype), others[1], sums[1], tiling))
        return found
