"""Gradients of attention on GPUs, by two kernels that compute the weights anew.

In the first a program has a block of queries and goes through the keys, for the gradient of its
queries; in the second it has a block of keys and goes through the queries, for the gradients of its
keys and values. Either multiplies the slopes of the logits (`gpu_slopes.py`), which are left
operands as they lie, with what it goes through. No sum is shared, so results are the same in every
run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.kernels.attention.gpu_bias import BiasGradient, BiasPart, bias_part
from amdjax.kernels.attention.gpu_blocks import as_operand, divided, inside
from amdjax.kernels.attention.gpu_pairs import Pairs, segments
from amdjax.kernels.attention.gpu_slopes import (
    GradientKernel,
    GradientPart,
    gradient_parts,
    part_cost,
)
from amdjax.kernels.attention.problem import Attention
from amdjax.kernels.shaped import Call, KernelPlan, ShapedContext, shaped
from amdjax.schedule.search import Family, Solver
from amdjax.targets import GpuTarget

Value = tile.Value


@dataclass(frozen=True)
class GradientPlan:
    """Both kernels.

    Args:
      queries: for the gradient of queries.
      keys: for those of keys and values.
      bias: for that of the bias; None if it is not asked for.
    """

    queries: GradientPart
    keys: GradientPart
    bias: BiasPart | None = None

    def emit(self, ctx: ShapedContext) -> list[Call]:
        calls = [Backward(ctx, part).call() for part in (self.queries, self.keys)]
        return calls if self.bias is None else [*calls, BiasGradient(ctx, self.bias).call()]

    def __str__(self) -> str:
        out = f"gradient of attention of {self.queries.problem}: queries in {self.queries.cut}"
        out = f"{out}; keys in {self.keys.cut}"
        return out if self.bias is None else f"{out}; {self.bias}"


def gradient_plans(problem: Attention, target: GpuTarget) -> list[GradientPlan]:
    """Each plan of one kernel with the best of the other."""
    both = [gradient_parts(problem, target, of_queries) for of_queries in (True, False)]
    if not all(both):
        return []
    best = [min(parts, key=lambda part: part_cost(part, target)) for parts in both]
    found = [GradientPlan(part, best[1]) for part in both[0]]
    return [*found, *(GradientPlan(best[0], part) for part in both[1] if part != best[1])]


def gradient_cost(problem: Attention, plan: GradientPlan, target: GpuTarget) -> float:
    """Clocks of both kernels."""
    return part_cost(plan.queries, target) + part_cost(plan.keys, target)


GRADIENT: Family[Attention, GpuTarget, GradientPlan] = Family(
    "gradient of attention on a GPU", Solver("blocks", gradient_plans, gradient_cost)
)


@shaped("attention_gradient", on="gpu")
def plan_gradient(ctx: ShapedContext) -> KernelPlan | None:
    """The plan for the gradient; None where no matrix unit multiplies."""
    if not all(x.aval.size for x in (*ctx.inputs, *ctx.outputs)):
        return None
    problem = Attention.of(ctx.eqn)
    plan = GRADIENT.find(problem, ctx.gpu) if gradient_plans(problem, ctx.gpu) else None
    if plan is None or not ctx.params["bias_gradient"]:
        return plan
    bias = bias_part(problem, ctx.gpu)
    return None if bias is None else replace(plan, bias=bias)


class Backward(GradientKernel):
    """The kernel of a part."""

    def __init__(self, ctx: ShapedContext, part: GradientPart):
        name = "attention_gradient_of_" + ("queries" if part.of_queries else "keys")
        super().__init__(ctx, part, name)
        k, p = self.k, self.problem
        number = k.program_id()
        #: Which part of the features of its results it makes; None if all.
        self.made, number = divided(number, part.cut.parts)
        block, line = number % part.blocks, number // part.blocks
        if p.is_causal and part.of_queries:  # the longest first
            block = k.const("index", part.blocks - 1) - block
        self.first = block * part.cut.rows
        self.head, self.batch = line % part.heads, line // part.heads

    def call(self) -> Call:
        k, p, part, cut = self.k, self.problem, self.part, self.cut
        results = self.ctx.outputs[:1] if part.of_queries else self.ctx.outputs[1:3]
        outs = [self.kernel.output(v) for v in results]
        own = self._own(self.first, self.batch, self.head)
        sums = [k.const("f32", 0, (cut.rows, wide)) for wide in part.made]
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
            first = self._first_made(x.shape[1])
            at = at if first is None else at + first
            mask = inside(k, x.shape, (self.first, part.rows), features, first)
            k.store(out, at, k.convert(x, p.dtype), (part.heads * features, 1), mask)
        work = p.batch * p.heads * p.queries * p.keys * (p.features + p.value_features)
        return self.kernel.launch(part.programs, 2.5 * work)

    def _first_made(self, wide: int) -> Value | None:
        """The first of so many features that the program makes; None if these are all."""
        return None if self.made is None else self.made * wide

    def _through(self, own: Sequence[Value], head: Value, sums: list[Value]) -> list[Value]:
        """All blocks of columns that a head of queries needs."""
        k, part, cut = self.k, self.part, self.cut
        across = 1 if part.of_queries else 0
        pairs = Pairs(k, self.problem, self.inputs, self.batch, head, across, masks_queries=True)
        found = segments(pairs, self.first, cut.rows, cut.columns)
        statistics = self._statistics(pairs, self.first, cut.rows) if part.of_queries else None
        last = k.max(found[-1].stop - 1, 0)

        def block(number: Value) -> list[Value]:
            return self._others(number * cut.columns, self.batch, head)

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

    def _step(
        self, pairs: Pairs, own: Sequence[Value], others: Sequence[Value], sums: Sequence[Value],
        statistics: Sequence[Value], first: Value, masked: bool,
    ) -> list[Value]:  # fmt: skip
        """One block of columns."""
        k, part, cut = self.k, self.part, self.cut
        places = (self.first, first) if part.of_queries else (first, self.first)
        slope, weights = self._slopes(pairs, own, others, statistics, places, masked)
        found = []
        for which, (x, sum_) in enumerate(zip((slope, weights), sums)):
            column = self._column(which, pairs, others, first, sum_.shape[1])
            if masked and part.of_queries:
                column = pairs.counted(column, first)
            x = as_operand(k, x, cut)
            found.append(k.dot(x, column, sum_, cut.tiling(sum_.shape[1], cut.columns)))
        return found

    def _column(
        self, which: int, pairs: Pairs, others: Sequence[Value], first: Value, wide: int
    ) -> Value:
        """What slopes or weights multiply, the columns from `first` on."""
        if others:
            return as_operand(self.k, others[which], self.cut)
        name, features = self._names(False)[which], (self._first_made(wide), wide)
        found = self._lines(name, first, self.cut.columns, pairs.batch, pairs.head, features)
        return as_operand(self.k, found, self.cut)
