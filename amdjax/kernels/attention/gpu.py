"""Attention on GPUs as one kernel, by the matrix unit: the logits stay in registers.

A program has a block of queries of one head, each wave rows of its own, and goes through the keys
block by block: products with the keys, their exponentials relative to the greatest logit so far,
and the sums of values. What a lane holds of the exponentials is what the matrix unit takes of them
for the second product (`codegen/gpu/tile_product.py`), so that only keys and values pass through
LDS, where all waves read them. Those of the next block are loaded meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.dims import choosing, is_multiple, size_hint
from amdjax.core.integers import ceil_div
from amdjax.kernels.attention.gpu_blocks import (
    Blocking,
    Registers,
    as_operand,
    divided,
    first_kind,
    fits,
    inside,
    lines,
    overlapped_clocks,
)
from amdjax.kernels.attention.gpu_pairs import LOG2_E, Pairs, Segment, segments
from amdjax.kernels.attention.problem import LEAST_LOGIT, LOWEST, Attention, Layout
from amdjax.kernels.shaped import Call, KernelPlan, ShapedContext, Temp, shaped
from amdjax.schedule.search import Family, Solver, shares
from amdjax.targets import GpuTarget

Value = tile.Value

LEAST_KEYS = 512  # worth a program of their own
OTHER_REGISTERS = 40  # of a lane, besides sums, operands and what is prefetched


@dataclass(frozen=True)
class BlockPlan:
    """Blocks of queries, each going through blocks of keys.

    Args:
      problem: the attention.
      cut: its rows are queries, its columns keys.
      splits: programs that share the keys of a block of queries.
      row_heads: heads of a group that are rows of a program, of one query; else rows are queries.
    """

    problem: Attention
    cut: Blocking
    splits: int = 1
    row_heads: int = 1

    @property
    def rows(self) -> int:
        """Of each head, or of the heads that are together."""
        return self.problem.queries * self.row_heads

    @property
    def blocks(self) -> int:
        """Of rows."""
        return ceil_div(self.rows, self.cut.rows)

    @property
    def features(self) -> tuple[int, int]:
        """Of queries and keys in tiles, and of values."""
        return self.cut.features(self.problem)

    @property
    def is_ragged(self) -> bool:
        """Whether tiles of keys or values reach over what there is."""
        return self.cut.is_ragged(self.problem, self.problem.keys)

    @property
    def programs(self) -> int:
        """Without those that share their keys."""
        heads = self.problem.heads // self.row_heads
        return self.problem.batch * heads * self.blocks * self.cut.parts

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [Forward(ctx, self).call()]

    def __str__(self) -> str:
        out = f"attention of {self.problem}, {self.cut}"
        out += f", {self.row_heads} heads together" if self.row_heads > 1 else ""
        return out + (f", keys split {self.splits} ways" if self.splits > 1 else "")


def block_plans(problem: Attention, target: GpuTarget) -> list[BlockPlan]:
    """Plans for dtypes that the matrix unit multiplies, as far as registers and LDS go."""
    with choosing():  # masks make each of them right for all sizes
        return _block_plans(problem, target)


def _block_plans(problem: Attention, target: GpuTarget) -> list[BlockPlan]:
    found = []
    row_heads = problem.group if problem.queries == 1 else 1

    def accepts(cut: Blocking) -> bool:
        return _fits(BlockPlan(problem, cut, row_heads=row_heads), target)

    for cut in first_kind(problem, target, problem.queries * row_heads, accepts):
        plan = BlockPlan(problem, cut, row_heads=row_heads)
        # Of symbolic sizes those at hand: any number of programs computes the same.
        wanted = ceil_div(2 * target.compute_units, size_hint(plan.programs))
        most = min(wanted, size_hint(problem.keys) // LEAST_KEYS)
        found += [replace(plan, splits=n) for n in shares(max(most, 1))]
    return found


def _fits(plan: BlockPlan, target: GpuTarget) -> bool:
    cut = plan.cut
    together = cut.held(plan.features[0]) + cut.made(plan.problem)[1]
    return fits(cut, target, _registers(plan, target), together)


def _registers(plan: BlockPlan, target: GpuTarget) -> Registers:
    cut = plan.cut
    features, value_features = cut.held(plan.features[0]), cut.made(plan.problem)[1]
    sums = cut.sums(cut.columns + value_features)
    is_masked = plan.problem.is_causal or plan.problem.may_lack_keys
    if target.is_amdgpu and not target.unified_registers and is_masked:
        sums += cut.sums(cut.columns)  # places; elsewhere sums may be in the other half
    operands = cut.operand(features + cut.columns)  # queries, and weights
    operands += cut.right_operand(max(cut.columns, value_features))
    early = max(features, value_features) if cut.chunk else features + value_features
    prefetched = cut.prefetched(target, early, plan.is_ragged)
    return Registers(sums + operands + prefetched + OTHER_REGISTERS, 0)


def block_cost(problem: Attention, plan: BlockPlan, target: GpuTarget) -> float:
    """Clocks of a compute unit, for all programs that it gets."""
    cut, costs = plan.cut, target.costs
    wide = plan.features[0] + cut.made(problem)[1]
    pairs = cut.rows * cut.columns
    products = 2 * pairs * wide / cut.atom.flops
    # Reading keys and values of each wave, and what is computed of each logit.
    reads = cut.waves * cut.columns * wide * cut.atom.operand_bytes / costs.lds_rate
    weights = pairs * 10 / min(cut.waves * target.wave_size, 128)
    brought = cut.columns * wide * cut.atom.operand_bytes / costs.cache_rate
    steps = ceil_div(ceil_div(problem.keys, cut.columns), plan.splits)
    step = products + reads + weights + brought / 2 + cut.waits(costs)
    step += cut.again(plan.features[:1], costs)
    programs = plan.programs * plan.splits
    total = ceil_div(programs, target.compute_units) * (steps * step + costs.program)
    if cut.atom.from_lds:
        known = _registers(plan, target), wide, programs, steps
        total = overlapped_clocks(cut, target, *known, products, weights)
    combined = 0.0
    if plan.splits > 1:
        moved = plan.splits * cut.rows * plan.features[1] * 4 / costs.cache_rate
        combined = costs.arrival + costs.load_latency + moved
    return total + combined


ATTENTION: Family[Attention, GpuTarget, BlockPlan] = Family(
    "attention on a GPU", Solver("blocks", block_plans, block_cost)
)


@shaped("attention", on="gpu")
def plan_attention(ctx: ShapedContext) -> KernelPlan | None:
    """The plan for an attention; None where no matrix unit multiplies its dtype."""
    if not all(x.aval.size for x in (*ctx.inputs, *ctx.outputs)):
        return None
    problem = Attention.of(ctx.eqn)
    return ATTENTION.find(problem, ctx.gpu) if block_plans(problem, ctx.gpu) else None


class Forward:
    """The kernel of a plan."""

    def __init__(self, ctx: ShapedContext, plan: BlockPlan):
        self.ctx, self.plan, self.problem = ctx, plan, plan.problem
        self.kernel = ctx.kernel("attention")
        self.k = k = self.kernel.k
        k.schedule.workgroup = plan.cut.waves * ctx.gpu.wave_size
        k.schedule.vector = 1
        p = self.problem
        names = ("query", "key", "value", *p.given)
        self.inputs = {name: self.kernel.input(x) for name, x in zip(names, ctx.inputs)}
        number = k.program_id()
        self.part, self.number = number % plan.splits, number // plan.splits
        made, number = divided(self.number, plan.cut.parts)
        #: The first feature of its results; None if it makes all.
        self.feature = None if made is None else made * plan.cut.made(p)[1]
        block, line = number % plan.blocks, number // plan.blocks
        if p.is_causal:  # the longest first
            block = k.const("index", plan.blocks - 1) - block
        self.query = block * plan.cut.rows
        heads, row_heads = p.heads // plan.row_heads, plan.row_heads
        self.head, self.batch = line % heads * row_heads, line // heads
        self.pairs = Pairs(k, p, self.inputs, self.batch, self.head, row_heads=row_heads)

    def call(self) -> Call:
        k, p, plan = self.k, self.problem, self.plan
        outs = [self.kernel.output(v) for v in self.ctx.outputs]
        query = None if plan.cut.chunk else self._query()
        found = self._shared(segments(self.pairs, self.query, plan.cut.rows, plan.cut.columns))
        rows, last = (plan.cut.rows,), k.max(found[-1].stop - 1, 0)
        state = [
            k.const("f32", LOWEST["f32"], rows), k.const("f32", 0, rows),
            k.const("f32", 0, (plan.cut.rows, plan.cut.made(p)[1])),
            *self._block(k.min(found[0].start, last)),
        ]  # fmt: skip
        for part in found:

            def step(i: Value, *carried: Value, masked: bool = part.masked) -> Sequence[Value]:
                return self._step(query, i, last, carried, masked)

            state = list(k.for_(part.start, part.stop, 1, step, state))
        if plan.splits > 1:
            self._combine(outs, *state[:3])
        else:
            self._finish(outs, *state[:3])
        work = p.batch * p.heads * p.queries * p.keys * (p.features + p.value_features)
        return self.kernel.launch(plan.programs * plan.splits, 2.0 * work)

    def _shared(self, found: Sequence[Segment]) -> Sequence[Segment]:
        """What of the blocks of keys is this program's."""
        k, splits = self.k, self.plan.splits
        if splits == 1:
            return found
        first, stop = found[0].start, found[-1].stop
        each = (stop - first + (splits - 1)) // splits
        start = k.min(first + self.part * each, stop)
        end = k.min(start + each, stop)

        def within(x: Value) -> Value:
            return k.min(k.max(x, start), end)

        return [Segment(within(x.start), within(x.stop), x.masked) for x in found]

    def _combine(
        self, outs: Sequence[tile.Buffer], greatest: Value, total: Value, sums: Value
    ) -> None:
        """The last program of a block of queries brings all parts to their greatest logit."""
        k, plan = self.k, self.plan
        rows, (high, wide) = plan.cut.rows, sums.shape
        count = plan.programs * plan.splits
        known = self.kernel.inout(Temp("f32", count * 2 * rows))
        parts = self.kernel.inout(Temp("f32", count * high * wide))
        counters = self.kernel.inout(Temp("u32", plan.programs, zero=True))
        at = self.number * plan.splits + self.part
        k.store(known, at * (2 * rows), greatest)
        k.store(known, at * (2 * rows) + rows, total)
        k.store(parts, at * (high * wide), sums)
        first = self.number * plan.splits

        def add(i: Value, greatest: Value, total: Value, sums: Value) -> Sequence[Value]:
            base = (first + i) * (2 * rows)
            one, its = (k.load(known, base + j * rows, (rows,)) for j in (0, 1))
            most = k.max(greatest, one)
            factor = k.const("f32", self.pairs.factor, (rows,))
            shrinks = [k.op("exp2", (x - most) * factor, rounded="f16") for x in (greatest, one)]
            part = k.load(parts, (first + i) * (high * wide), (high, wide))
            wides = [k.broadcast(k.expand(x, 1), (high, wide)) for x in shrinks]
            total = k.op("fma", total, shrinks[0], its * shrinks[1])
            return [most, total, k.op("fma", sums, wides[0], part * wides[1])]

        def combine() -> None:
            none = [
                k.const("f32", LOWEST["f32"], (rows,)), k.const("f32", 0, (rows,)),
                k.const("f32", 0, (high, wide)),
            ]  # fmt: skip
            self._finish(outs, *k.for_(0, plan.splits, 1, add, none))

        k.if_(k.arrive(counters, self.number, plan.splits), combine)

    def _lines(
        self, name: str, first: Value, count: int, wide: int, feature: Value | None = None
    ) -> Value:
        """A tile of queries, keys or values, of all features or as many from one on."""
        p, which = self.problem, ("query", "key", "value").index(name)
        layout, head, extents = Layout.of(self.ctx.eqn, which), self.head, (p.keys, p.features)
        if name == "query":
            extents = self.plan.rows, p.features
            if self.plan.row_heads > 1:
                layout = replace(layout, line=layout.head)
        else:
            head = head // p.group
        if name == "value":
            extents = p.keys, p.value_features
        place = self.batch, first, head
        return lines(self.k, self.inputs[name], layout, (count, wide), place, extents, feature)

    def _query(self, feature: Value | None = None) -> Value:
        cut = self.plan.cut
        wide = cut.held(self.plan.features[0])
        return as_operand(self.k, self._lines("query", self.query, cut.rows, wide, feature), cut)

    def _among(self) -> tuple[Value, Value, int]:
        """The entry of the batch, the head and how many there are, where rows are as queries lie.

        Heads that are together lie as queries of one head would, each group an entry.
        """
        k, p = self.k, self.problem
        if self.plan.row_heads == 1:
            return self.batch, self.head, p.heads
        return self.batch * p.key_heads + self.head // p.group, k.const("index", 0), 1

    def _block(self, number: Value) -> list[Value]:
        """The keys and values of a block that are brought early."""
        cut, first = self.plan.cut, number * self.plan.cut.columns
        if cut.chunk:
            return []
        each = zip(("key", "value"), self.plan.features, strict=True)
        return [self._lines(name, first, cut.columns, wide) for name, wide in each]

    def _products(
        self, query: Value | None, number: Value, keys: Sequence[Value], zero: Value
    ) -> Value:
        """Of the queries and a block of keys."""
        k, cut, features = self.k, self.plan.cut, self.plan.features[0]
        if query is not None:
            tiling = cut.tiling(cut.columns, features)
            return k.dot(query, k.transpose(as_operand(k, keys[0], cut)), zero, tiling)
        wide, first = cut.held(features), number * cut.columns

        def add(i: Value, sums: Value) -> Sequence[Value]:
            key = self._lines("key", first, cut.columns, wide, i * wide)
            key = k.transpose(as_operand(k, key, cut))
            return [k.dot(self._query(i * wide), key, sums, cut.tiling(cut.columns, wide))]

        return k.for_(0, features // wide, 1, add, [zero])[0]

    def _values(self, first: Value, brought: Sequence[Value]) -> Value:
        """The values from `first` on."""
        cut, wide = self.plan.cut, self.plan.cut.made(self.problem)[1]
        found = brought[-1] if brought else None
        if found is None:
            found = self._lines("value", first, cut.columns, wide, self.feature)
        return as_operand(self.k, found, cut)

    def _step(
        self, query: Value | None, number: Value, last: Value, carried: Sequence[Value],
        masked: bool,
    ) -> list[Value]:  # fmt: skip
        """One block of keys."""
        k, plan = self.k, self.plan
        greatest, total, sums = carried[:3]
        following = self._block(k.min(number + 1, last))
        shape = plan.cut.rows, plan.cut.columns
        zero = k.const("f32", 0, shape)
        x = self._products(query, number, carried[3:], zero)
        places = self.query, number * plan.cut.columns
        taken = self.pairs.kept(shape, *places) if masked else None
        x = self.pairs.logits(x, *places, masked, taken)
        before, greatest = greatest, k.max(greatest, k.reduce("max", x, 1))
        bound = self.pairs.bound(greatest)
        weights, shrink = self.pairs.power(x, bound, 1), self.pairs.shrink(before, bound)
        total = k.op("fma", total, shrink, k.reduce("add", weights, 1))
        sums = sums * k.broadcast(k.expand(shrink, 1), sums.shape)
        kept = self.pairs.not_dropped(shape, *places)
        weights = weights if kept is None else k.select(kept, weights, zero)
        weights = as_operand(k, weights, plan.cut)
        values = self._values(places[1], carried[3:])
        if masked:
            values = self.pairs.counted(values, places[1])
        sums = k.dot(weights, values, sums, plan.cut.tiling(sums.shape[1], plan.cut.columns))
        return [greatest, total, sums, *following]

    def _finish(
        self, outs: Sequence[tile.Buffer], greatest: Value, total: Value, sums: Value
    ) -> None:
        """Store the block; zeros for queries that are padding, whose weights all pairs share."""
        k, p, plan = self.k, self.problem, self.plan
        rows = (plan.cut.rows,)
        one = k.const("f32", 1 / (1 - p.rate), rows)
        if self.pairs.out_factor is not None:
            one = one * k.broadcast(self.pairs.out_factor, rows)
        share = k.op("div", one, total)
        maximum = greatest * k.const("f32", self.pairs.factor / LOG2_E, rows)
        least = k.const("f32", LEAST_LOGIT, rows)
        maximum = k.select(k.eq(greatest, self.pairs.masked), least, maximum)
        used = None
        if self.pairs.query_length is not None:
            places = k.const("index", 0, rows)
            if plan.row_heads == 1:
                places = k.iota(plan.cut.rows) + k.broadcast(self.query, rows)
            used = places < k.broadcast(self.pairs.query_length, rows)
            maximum = k.select(used, maximum, least)
            total = k.select(used, total, k.const("f32", p.keys, rows))
        out = sums * k.broadcast(k.expand(share, 1), sums.shape)
        if used is not None:
            wide = k.broadcast(k.expand(used, 1), sums.shape)
            out = k.select(wide, out, k.const("f32", 0, sums.shape))
        entry, head, heads = self._among()
        at = ((entry * plan.rows + self.query) * heads + head) * p.value_features
        if self.feature is not None:
            at = at + self.feature
        place = self.query, plan.rows
        mask = inside(k, sums.shape, place, p.value_features, self.feature)
        strides = heads * p.value_features, 1
        k.store(outs[0], at, k.convert(out, p.out_dtype), strides, mask)
        if self.feature is None:
            self._store_statistics(outs[1:], maximum, total)
        else:
            first = k.eq(self.feature, k.const("index", 0))
            k.if_(first, lambda: self._store_statistics(outs[1:], maximum, total))

    def _store_statistics(self, outs: Sequence[tile.Buffer], maximum: Value, total: Value) -> None:
        """Greatest logits and sums of exponentials."""
        k, p, plan = self.k, self.problem, self.plan
        rows = (plan.cut.rows,)
        at = (self.batch * p.heads + self.head) * p.queries + self.query
        mask = None
        if not is_multiple(plan.rows, plan.cut.rows):
            mask = k.iota(plan.cut.rows) + k.broadcast(self.query, rows) < plan.rows
        k.store(outs[0], at, maximum, (1,), mask)
        k.store(outs[1], at, total, (1,), mask)
