"""Attention on GPUs as one kernel, by the matrix unit: the logits stay in registers.

A program has a block of queries of one head, each wave rows of its own, and goes through the keys
block by block: products with the keys, their exponentials relative to the greatest logit so far,
and the sums of values. What a lane holds of the exponentials is what the matrix unit takes of them
for the second product (`codegen/gpu/tile_product.py`), so that only keys and values pass through
LDS, where all waves read them. Those of the next block are loaded meanwhile.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.integers import ceil_div, power_of_two
from amdjax.kernels.attention.gpu_pairs import LOG2_E, MASKED, Pairs, segments
from amdjax.kernels.attention.problem import LEAST_LOGIT, LOWEST, Attention
from amdjax.kernels.gpu_loops import every
from amdjax.kernels.shaped import Call, KernelPlan, ShapedContext, shaped
from amdjax.schedule.search import Family, Solver
from amdjax.targets import GpuTarget
from amdjax.targets.mma import CELL_BYTES, MmaAtom, along_rows, mma_atoms
from amdjax.tile import MatrixTiling

Value = tile.Value

KEYS = (16, 32, 64, 128)  # of a block
WAVES = 4  # of a program, one for each SIMD
MOST_FEATURES = 256
OTHER_REGISTERS = 40  # of a lane, besides sums, operands and what is loaded ahead
FULL = 0.91  # of the registers, as far as they are counted here


@dataclass(frozen=True)
class BlockPlan:
    """Blocks of queries, each going through blocks of keys.

    Args:
      problem: the attention.
      atom: the matrix instruction.
      waves: of a program.
      high: atoms along the rows of each wave.
      keys: of a block.
    """

    problem: Attention
    atom: MmaAtom
    waves: int
    high: int
    keys: int

    @property
    def queries(self) -> int:
        """Of a block."""
        return self.waves * self.high * self.atom.m

    @property
    def blocks(self) -> int:
        """Of queries, of each head."""
        return ceil_div(self.problem.queries, self.queries)

    @property
    def features(self) -> int:
        """Of queries and keys in tiles."""
        return padded(self.problem.features, self.atom)

    @property
    def value_features(self) -> int:
        """Of values in tiles."""
        return padded(self.problem.value_features, self.atom)

    @property
    def is_ragged(self) -> bool:
        """Whether tiles of keys or values reach over what there is."""
        p = self.problem
        wide = self.features, self.value_features
        return p.keys % self.keys != 0 or (p.features, p.value_features) != wide

    @property
    def programs(self) -> int:
        return self.problem.batch * self.problem.heads * self.blocks

    def tiling(self, columns: int, depth: int) -> MatrixTiling:
        """Of a product of the block's rows."""
        atom = self.atom
        fragments = self.high, columns // atom.n
        return MatrixTiling(atom.name, atom.operand, (self.waves, 1), fragments, depth, 1)

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [Forward(ctx, self).call()]

    def __str__(self) -> str:
        out = f"attention of {self.problem}, blocks of {self.queries} queries and {self.keys} keys"
        return out + f" by {self.atom.name}, {self.waves} waves of {self.high}"


def padded(features: int, atom: MmaAtom) -> int:
    """Features in tiles: a power of two of whole instructions."""
    return max(power_of_two(features), atom.depth, atom.n)


def block_plans(problem: Attention, target: GpuTarget) -> list[BlockPlan]:
    """Plans for dtypes that the matrix unit multiplies, as far as registers and LDS go."""
    wide = max(problem.features, problem.value_features)
    if wide > MOST_FEATURES or problem.accumulate != "f32" or problem.rate:
        return []
    known = map(along_rows, mma_atoms(target, problem.dtype, problem.accumulate))
    atoms = [atom for atom in known if atom is not None]
    # Larger ones read less for what they multiply, where all waves have rows.
    atoms = [x for x in atoms if x.m * WAVES < 2 * problem.queries][:1] or atoms[-1:]
    found = []
    for atom, high, keys in itertools.product(atoms, (1, 2), KEYS):
        if keys % atom.depth or keys % atom.n:
            continue
        needed = min(WAVES, power_of_two(ceil_div(problem.queries, high * atom.m)))
        plans = [BlockPlan(problem, atom, waves, high, keys) for waves in {needed, WAVES}]
        found += [plan for plan in plans if _fits(plan, target)]
    return found


def _fits(plan: BlockPlan, target: GpuTarget) -> bool:
    threads = plan.waves * target.wave_size
    wide = plan.features + plan.value_features
    lds = plan.keys * wide * plan.atom.operand_bytes * 5 // 4
    return (
        _registers(plan, target) <= target.registers_of(threads) * FULL
        and lds + target.lds_reserved <= target.lds_bytes
        and threads <= target.max_workgroup
    )


def _registers(plan: BlockPlan, target: GpuTarget) -> int:
    """About as many as a lane needs."""
    atom, size = plan.atom, plan.atom.operand_bytes
    each = len(atom.elements) * plan.high * max(atom.accumulator_bytes // 4, 1)
    sums = each * (plan.keys + plan.value_features) // atom.n
    # Queries, and weights as an operand.
    depth = plan.features + plan.keys
    query = plan.high * len(atom.more[0]) * depth // atom.groups * size // 4
    query += max(plan.keys, plan.value_features) // atom.n * atom.cells * CELL_BYTES // 8
    loaded = plan.keys * (plan.features + plan.value_features) * size // 4
    if plan.is_ragged:  # places, and whether something is there
        loaded *= 3
    return sums + query + loaded // (plan.waves * target.wave_size) + OTHER_REGISTERS


def block_cost(problem: Attention, plan: BlockPlan, target: GpuTarget) -> float:
    """Clocks of a compute unit, for all programs that it gets."""
    atom = plan.atom
    wide = plan.features + plan.value_features
    pairs = plan.queries * plan.keys
    products = 2 * pairs * wide / atom.flops
    lanes = plan.waves * target.wave_size
    # Reading keys and values of each wave, and what is computed of each logit.
    reads = plan.waves * plan.keys * wide * atom.operand_bytes / target.costs.lds_rate
    weights = pairs * 10 / min(lanes, 128)
    brought = plan.keys * wide * atom.operand_bytes / target.costs.cache_rate
    steps = ceil_div(problem.keys, plan.keys)
    step = products + reads + weights + brought / 2 + target.costs.stall / 2
    rounds = ceil_div(plan.programs, target.compute_units)
    return rounds * (steps * step + target.costs.program)


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
        k.schedule.workgroup = plan.waves * ctx.gpu.wave_size
        k.schedule.vector = 1
        p = self.problem
        names = ("query", "key", "value", *p.given)
        self.inputs = {name: self.kernel.input(x) for name, x in zip(names, ctx.inputs)}
        number = k.program_id()
        block, line = number % plan.blocks, number // plan.blocks
        if p.is_causal:  # the longest first
            block = k.const("index", plan.blocks - 1) - block
        self.query = block * plan.queries
        self.head, self.batch = line % p.heads, line // p.heads
        self.pairs = Pairs(k, p, self.inputs, self.batch, self.head)

    def call(self) -> Call:
        k, p, plan = self.k, self.problem, self.plan
        outs = [self.kernel.output(v) for v in self.ctx.outputs]
        query = self._lines("query", self.query, plan.queries)
        found = segments(self.pairs, self.query, plan.queries, plan.keys)
        rows = (plan.queries,)
        state = [
            k.const("f32", LOWEST["f32"], rows), k.const("f32", 0, rows),
            k.const("f32", 0, (plan.queries, plan.value_features)),
            *self._block(found[0].start),
        ]  # fmt: skip
        last = found[-1].stop - 1
        for part in found:

            def step(i: Value, *carried: Value, masked: bool = part.masked) -> Sequence[Value]:
                return self._step(query, i, last, carried, masked)

            state = list(k.for_(part.start, part.stop, 1, step, state))
        self._finish(outs, *state[:3])
        work = p.batch * p.heads * p.queries * p.keys * (p.features + p.value_features)
        return self.kernel.launch(plan.programs, 2.0 * work)

    def _lines(self, name: str, first: Value, count: int) -> Value:
        """A tile of queries, keys or values."""
        k, p, plan = self.k, self.problem, self.plan
        lines, heads, head = p.keys, p.key_heads, self.head // p.group
        if name == "query":
            lines, heads, head = p.queries, p.heads, self.head
        features = p.value_features if name == "value" else p.features
        wide = plan.value_features if name == "value" else plan.features
        at = ((self.batch * lines + first) * heads + head) * features
        mask = inside(k, (count, wide), (first, lines), features)
        return k.load(self.inputs[name], at, (count, wide), (heads * features, 1), mask, eager=True)

    def _block(self, number: Value) -> list[Value]:
        """The keys and values of a block."""
        first = number * self.plan.keys
        return [self._lines(name, first, self.plan.keys) for name in ("key", "value")]

    def _step(
        self, query: Value, number: Value, last: Value, carried: Sequence[Value], masked: bool
    ) -> list[Value]:
        """One block of keys."""
        k, plan = self.k, self.plan
        greatest, total, sums, keys, values = carried
        following = self._block(k.min(number + 1, last))
        shape = plan.queries, plan.keys
        zero = k.const("f32", 0, shape)
        x = k.dot(query, k.transpose(keys), zero, plan.tiling(plan.keys, plan.features))
        x = self.pairs.logits(x, self.query, number * plan.keys, masked)
        before, greatest = greatest, k.max(greatest, k.reduce("max", x, 1))
        factor = k.const("f32", self.pairs.factor, (plan.queries,))
        bound = greatest * factor
        weights = self._power(x, self.pairs.factor, bound)
        shrink = k.op("exp2", before * factor - bound, rounded="f16")
        total = k.op("fma", total, shrink, k.reduce("add", weights, 1))
        sums = sums * k.broadcast(k.expand(shrink, 1), sums.shape)
        weights = k.convert(weights, self.problem.dtype)
        if masked:
            values = self._counted(values, number * plan.keys)
        sums = k.dot(weights, values, sums, plan.tiling(plan.value_features, plan.keys))
        return [greatest, total, sums, *following]

    def _counted(self, values: Value, first: Value) -> Value:
        """Values without what is not finite behind the length of keys: zero times that is NaN."""
        k, length = self.k, self.pairs.key_length
        if length is None:
            return values
        keys = values.shape[0]
        there = k.iota(keys) + k.broadcast(first, (keys,)) < k.broadcast(length, (keys,))
        finite = k.op("is_finite", k.convert(values, "f32"))
        counts = k.broadcast(k.expand(there, 1), values.shape) | finite
        return k.select(counts, values, k.const(values.dtype, 0, values.shape))

    def _power(self, x: Value, factor: float, bound: Value) -> Value:
        """`2 ** (x * factor - bound)`, with a bound for each row."""
        k = self.k
        wide = k.broadcast(k.expand(bound, 1), x.shape)
        if factor != 1:
            exponent = k.op("fma", x, k.const("f32", factor, x.shape), k.op("neg", wide))
        else:
            exponent = x - wide
        return k.op("exp2", exponent, rounded="f16")

    def _finish(
        self, outs: Sequence[tile.Buffer], greatest: Value, total: Value, sums: Value
    ) -> None:
        """Store the block; zeros for queries that are padding, whose weights all pairs share."""
        k, p, plan = self.k, self.problem, self.plan
        rows = (plan.queries,)
        share = k.op("div", k.const("f32", 1, rows), total)
        maximum = greatest * k.const("f32", self.pairs.factor / LOG2_E, rows)
        least = k.const("f32", LEAST_LOGIT, rows)
        maximum = k.select(k.eq(greatest, MASKED), least, maximum)
        used = None
        if self.pairs.query_length is not None:
            places = k.iota(plan.queries) + k.broadcast(self.query, rows)
            used = places < k.broadcast(self.pairs.query_length, rows)
            maximum = k.select(used, maximum, least)
            total = k.select(used, total, k.const("f32", p.keys, rows))
        out = sums * k.broadcast(k.expand(share, 1), sums.shape)
        if used is not None:
            wide = k.broadcast(k.expand(used, 1), sums.shape)
            out = k.select(wide, out, k.const("f32", 0, sums.shape))
        at = ((self.batch * p.queries + self.query) * p.heads + self.head) * p.value_features
        mask = inside(k, sums.shape, (self.query, p.queries), p.value_features)
        strides = p.heads * p.value_features, 1
        k.store(outs[0], at, k.convert(out, p.dtype), strides, mask)
        at = (self.batch * p.heads + self.head) * p.queries + self.query
        mask = None
        if p.queries % plan.queries:
            mask = k.iota(plan.queries) + k.broadcast(self.query, rows) < p.queries
        k.store(outs[1], at, maximum, (1,), mask)
        k.store(outs[2], at, total, (1,), mask)


def inside(
    k: tile.Builder, shape: tuple[int, ...], lines: tuple[Value, int], features: int
) -> Value | None:
    """Which elements of a tile of lines there are; None for all.

    Args:
      k: the kernel.
      shape: of the tile.
      lines: the first line of the tile, and how many there are in all.
      features: of a line.
    """
    (high, wide), (first, count) = shape, lines
    conditions = []
    if count % high:
        line = k.iota(high) + k.broadcast(first, (high,))
        conditions.append(k.broadcast(k.expand(line < count, 1), (high, wide)))
    if features < wide:
        conditions.append(k.broadcast(k.expand(k.iota(wide, "i32") < features, 0), (high, wide)))
    return every(k, conditions)
