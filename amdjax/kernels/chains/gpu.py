"""Chains of products on GPUs as one kernel: what lies between them stays in registers.

A program has a block of rows of an entry of the batch, each wave rows of its own, and goes through
the columns block by block: products of rows and columns, what is computed of them, and products of
that with the last operand, as attention's programs do (`kernels/attention/gpu.py`). Right operands
pass through LDS. A reduction over the columns takes a pass of its own before what needs it.
Products of all columns stay in registers or in LDS meanwhile, or are computed anew.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.core.jaxpr import Var
from amdjax.core.precision import precision_setting
from amdjax.kernels.attention.gpu_blocks import (
    Blocking,
    Registers,
    as_operand,
    divided,
    fits,
    multiplied,
)
from amdjax.kernels.chains.problem import Chain, Factor, Operand
from amdjax.kernels.gpu_loops import every
from amdjax.kernels.products.contraction import Axis, Contraction
from amdjax.kernels.products.dot import dot_contraction
from amdjax.kernels.products.formats import operand_formats
from amdjax.kernels.products.gpu.contraction import TileWriter, product_atoms
from amdjax.kernels.products.gpu.tiling import ProductProblem, candidates, plan_cost
from amdjax.kernels.products.program import Program
from amdjax.kernels.shaped import Call, KernelPlan, ShapedContext, shaped
from amdjax.schedule.gpu.combine import combine_axes
from amdjax.schedule.gpu.element import TileElements
from amdjax.schedule.gpu.tiles import TileAxis, tile_lanes
from amdjax.schedule.index import Index
from amdjax.schedule.search import Family, Solver
from amdjax.schedule.values import El, compute_dtype, flat_parts, part_dtype, regroup, short_dtype
from amdjax.targets import GpuTarget
from amdjax.targets.mma import MmaAtom, tile_atoms
from amdjax.targets.timing import left_rate, timing_of

Value = tile.Value

COLUMNS = (16, 32, 64, 128)  # of a block of what a program goes through
WAVES = (1, 2, 4)  # of a program
LEAST_FEATURES, MOST_FEATURES = 64, 256  # of the result that a program makes
PARTS = (1, 2, 4, 8, 16)  # programs that share a block of rows
CHUNKS = (64, 32)  # of the depth, of which rows are read again in each block
MOST_BLOCKS = 8  # whose products stay in registers
#: Of a lane in a block, each of which takes registers while it is computed, by lanes of a wave.
MOST_ELEMENTS = {64: 32, 32: 16}
MOVED = 16  # elements that move at once, at most
PADDING = 4  # elements behind each row in LDS, so that lanes write to different banks
PLACES = 2  # of right operands in LDS, where they are read from one while the other is written
TEMPORARIES = 3  # of each element of a block, while elements are computed
OTHER_REGISTERS = 40  # of a lane, besides sums, operands and what is prefetched
LOADED, ELEMENT, REDUCED = 4, 3, 16  # instructions: of 16 bytes, of an element, of a row's lanes
#: Of the clocks that products take apart, as estimated, by lanes of a wave: what a chain may take.
#: Fitted so that the emulator's model has fewer cycles where it pays, on gfx942 and gfx1100.
PAYS = {64: 1.0, 32: 0.65}
NOT_HIDDEN = 0.5  # of what a unit does besides what takes longest


@dataclass(frozen=True)
class ChainProblem:
    """The sizes of a chain.

    Args:
      batches: entries of the batch.
      rows, columns: of what is between.
      features: of the result.
      depths: of the products in front.
      widths: bytes of an element of their results.
      dtype: of operands.
      formats: that may stand for float32 (`products/formats.py`).
      levels: passes over the columns.
      needed: products in front that each pass computes.
      operations: for each row and column besides products.
    """

    batches: int
    rows: int
    columns: int
    features: int
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    dtype: str
    formats: tuple[str, ...]
    levels: int
    needed: tuple[int, ...]
    operations: float

    @staticmethod
    def of(chain: Chain) -> ChainProblem | None:
        """Of a chain; None where products are of several dtypes, or no floats."""
        dtypes = {short_dtype(x.aval.dtype) for e in chain.products for x in e.invars}
        made = {short_dtype(v.aval.dtype) for e in chain.products for v in e.outvars}
        wide = any(
            precision_setting(e.params["precision"]) == "F64_F64_F64" for e in chain.products
        )
        if len(dtypes) > 1 or wide or not dtypes | made <= {"f16", "bf16", "f32"}:
            return None
        if not (factors := chain.factors.values()):
            return None
        formats = [operand_formats(e.params["precision"]) for e in chain.products]
        common = tuple(x for x in formats[0] if all(x in found for found in formats))
        return ChainProblem(
            chain.batches, chain.row.extent, chain.column.extent, chain.feature.extent,
            tuple(f.depth.extent for f in factors),
            tuple(f.result.aval.dtype.itemsize for f in factors), dtypes.pop(), common,
            chain.levels, tuple(len(found) for found in chain.needed), chain.operations,
        )  # fmt: skip

    def __str__(self) -> str:
        deep = " and ".join(map(str, self.depths))
        size = f"{self.rows}×{self.columns} over {deep}, by {self.features}"
        many = f"{self.batches} of " if self.batches > 1 else ""
        passes = f" in {self.levels} passes" if self.levels > 1 else ""
        return f"{many}{size} in {self.dtype}{passes}"


@dataclass(frozen=True)
class ChainPlan:
    """Blocks of rows, each going through blocks of columns.

    Args:
      problem: the chain.
      cut: its rows and columns are those of what is between.
      kept: where products of all columns stay for the passes; empty where they are computed anew.
    """

    problem: ChainProblem
    cut: Blocking
    kept: Literal["", "registers", "LDS"] = ""

    @property
    def blocks(self) -> int:
        """Of rows."""
        return ceil_div(self.problem.rows, self.cut.rows)

    @property
    def steps(self) -> int:
        """Blocks of columns."""
        return ceil_div(self.problem.columns, self.cut.columns)

    @property
    def made(self) -> int:
        """Features of the result of a program, in tiles."""
        return self.cut.padded(self.problem.features) // self.cut.parts

    @property
    def held(self) -> tuple[int, ...]:
        """Of each depth, as much as is in registers at a time."""
        return tuple(self.cut.held(self.cut.padded(n)) for n in self.problem.depths)

    @property
    def pitch(self) -> int:
        """Elements in LDS from one row of kept products to the next."""
        return self.cut.columns + PADDING

    @property
    def kept_elements(self) -> int:
        """Of a block of columns in LDS."""
        return self.cut.rows * self.pitch

    @property
    def kept_bytes(self) -> int:
        """Of products that are kept in LDS."""
        each = self.steps * self.kept_elements * sum(self.problem.widths)
        return each if self.kept == "LDS" else 0

    @property
    def programs(self) -> int:
        """Of the launch."""
        return self.problem.batches * self.blocks * self.cut.parts

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [_ChainKernel(ctx, self).call()]

    def __str__(self) -> str:
        return f"chain of {self.problem}, {self.cut}" + (
            f", products kept in {self.kept}" if self.kept else ""
        )


def chain_plans(problem: ChainProblem, target: GpuTarget) -> list[ChainPlan]:
    """All that fit registers and LDS."""
    return [plan for plan in _plans(problem, target) if _fits(plan, target)]


def _plans(problem: ChainProblem, target: GpuTarget) -> Iterator[ChainPlan]:
    operand = multiplied(problem.dtype, problem.formats, target)
    atoms = [x for x in tile_atoms(target, operand, "f32") if not x.from_lds]
    for atom, waves, high, columns in itertools.product(atoms, WAVES, (1, 2), COLUMNS):
        if columns % atom.depth or columns % atom.n or columns >= 2 * max(problem.columns, atom.n):
            continue
        if waves * high > 1 and waves * high * atom.m >= 2 * problem.rows:
            continue
        if high * atom.m * columns > MOST_ELEMENTS[target.wave_size] * target.wave_size:
            continue
        whole = Blocking(atom, waves, high, columns)
        wide, most = whole.padded(problem.features), max(map(whole.padded, problem.depths))
        chunks = (0, *(n for n in CHUNKS if n <= most and n % atom.depth == 0))
        for chunk, parts in itertools.product(chunks, PARTS):
            if wide // parts > MOST_FEATURES or wide // parts < min(wide, LEAST_FEATURES):
                continue
            plan = ChainPlan(problem, replace(whole, chunk=chunk, parts=parts))
            yield plan
            if problem.levels > 1 and _run(atom) > 1:  # else elements go to LDS one by one
                yield replace(plan, kept="LDS")
            # Waves that wait for no others would load all of it at once.
            if problem.levels > 1 and plan.steps <= (MOST_BLOCKS if waves > 1 else 1):
                yield replace(plan, kept="registers")


def _fits(plan: ChainPlan, target: GpuTarget) -> bool:
    enough = fits(plan.cut, target, _registers(plan, target), 0)
    return enough and _lds(plan, target) <= target.lds_bytes


def _lds(plan: ChainPlan, target: GpuTarget) -> int:
    """Bytes of kept products, and of right operands, between whose lines some are left out."""
    cut = plan.cut
    operand = cut.columns * max(*plan.held, plan.made) * cut.atom.operand_bytes * 5 // 4
    return plan.kept_bytes + PLACES * operand + target.lds_reserved


def _registers(plan: ChainPlan, target: GpuTarget) -> Registers:
    """About as many as a lane needs: to compute products, or to multiply what is made of them."""
    cut, p, held = plan.cut, plan.problem, plan.held
    ragged = p.columns % cut.columns != 0
    sums = cut.sums(cut.columns)

    def brought(*features: int) -> int:
        return cut.prefetched(target, max(features) if cut.chunk else sum(features), ragged)

    front = cut.operand(sum(held)) + cut.right_operand(cut.columns)
    back = cut.sums(plan.made) + cut.operand(cut.columns) + cut.right_operand(plan.made)
    if plan.kept:
        most = max(front + brought(*held), back + brought(plan.made))
    else:
        most = front + back + brought(*held, plan.made)
    computed = sums * len(p.depths) + max(most, back + TEMPORARIES * sums) + OTHER_REGISTERS
    # Of products, or of what is made of them for the next pass; both of more passes.
    kept = sums * plan.steps * len(p.widths) if plan.kept == "registers" else 0
    return Registers(computed, kept if p.levels == 2 else kept * 3 // 2)


def chain_cost(problem: ChainProblem, plan: ChainPlan, target: GpuTarget) -> float:
    """Clocks until the last compute unit is done, or the last pair of them that shares its LDS.

    A program by itself waits for what it brings, and its waves issue what they compute; those of a
    unit share its SIMDs, its LDS, its matrix units and what it gets of the caches.
    """
    cut, costs, atom, simds = plan.cut, target.costs, plan.cut.atom, target.simds
    beside = target.compute_units // target.lds_units
    lanes = cut.waves * target.wave_size
    each = cut.rows * cut.columns / lanes  # elements of a lane in a block
    times = 1 if plan.kept else sum(problem.needed) / len(problem.depths)
    wide = times * sum(map(cut.padded, problem.depths)) + plan.made
    brought = cut.columns * wide * atom.operand_bytes
    multiply = 2 * cut.rows * cut.columns * wide / (atom.flops * beside)
    atoms = cut.high * cut.columns * wide / (atom.n * atom.depth)
    issue = LOADED * brought / (16 * lanes) + atoms
    issue += cut.columns / atom.n * wide / atom.depth * atom.cells
    issue += each * (problem.operations + ELEMENT) * problem.levels
    issue += (problem.levels - 1) * REDUCED * cut.high * len(atom.elements)
    issue += each * (problem.levels + 1) / 2 if plan.kept == "LDS" else 0
    lds = brought * (1 + cut.waves) + (cut.rows * cut.columns * 4 if plan.kept == "LDS" else 0)
    waits = problem.levels * costs.stall / 2
    if cut.chunk:
        chunks = sum(ceil_div(cut.padded(n), cut.chunk) for n in problem.depths) * times
        waits += (chunks + 1) * costs.load_latency
        brought += cut.rows * wide * atom.operand_bytes
    step = issue * timing_of(target).arithmetic + multiply * max(simds / cut.waves, 1) + waits
    parts = [
        issue * target.issue_clocks * cut.waves / simds, multiply,
        lds / costs.lds_rate / beside, brought / costs.cache_rate / beside,
    ]  # fmt: skip
    shared = max(parts) + (sum(parts) - max(parts)) * NOT_HIDDEN
    passes = 1 if plan.kept == "registers" else problem.levels
    alone = costs.program + passes * costs.load_latency + plan.steps * step
    registers, waves = sum(_registers(plan, target)), ceil_div(cut.waves, simds)
    most = max(
        min(target.vgpr_file // (registers * waves), target.lds_per_cu // _lds(plan, target)), 1
    )
    most = max(most * simds // cut.waves, 1) if cut.waves < simds else most

    def together(programs: int) -> float:
        return max(alone, programs * plan.steps * shared + costs.program)

    full, rest = divmod(plan.programs, most * target.lds_units)
    return full * together(most) + (together(ceil_div(rest, target.lds_units)) if rest else 0)


def _run(atom: MmaAtom) -> int:
    """Neighboring columns that a lane has of a row of sums."""
    row, column = atom.elements[0]
    run = 1
    while run < len(atom.elements) and atom.elements[run] == (row, column + run):
        run += 1
    return run


@lru_cache(256)  # a network's layers are alike, and asked for when programs change and when planned
def _usual_plan(problem: ChainProblem, target: GpuTarget) -> ChainPlan | None:
    plans = chain_plans(problem, target)
    return min(plans, key=lambda plan: chain_cost(problem, plan, target), default=None)


CHAINS: Family[ChainProblem, GpuTarget, ChainPlan] = Family(
    "chain of products on a GPU", Solver("blocks", chain_plans, chain_cost, _usual_plan)
)


@lru_cache(256)
def _product_clocks(problem: Contraction, target: GpuTarget) -> float:
    product = ProductProblem(problem, product_atoms(target, problem))
    costs = (plan_cost(product, plan, target) for plan in candidates(product, target))
    return min(costs) if product.atoms else math.inf


def apart_cost(chain: Chain, target: GpuTarget) -> float:
    """Clocks of the products by themselves, and of kernels between them and behind."""
    total = 0.0
    for eqn in chain.products:
        problem = dot_contraction(ShapedContext(eqn, target)).merged()
        a, b = replace(problem.a, owner=None), replace(problem.b, owner=None)
        out = replace(problem.out, owner=None)  # variables of equal layers differ
        total += _product_clocks(replace(problem, a=a, b=b, out=out), target)
    moved = []
    if chain.reductions:
        moved.append(sum(v.aval.nbytes for v in (*chain.factors, chain.weights[0])))
    if chain.eqns[-1].primitive.name == "transpose":
        moved.append(2 * chain.eqns[-1].outvars[0].aval.nbytes)
    latency = target.costs.program + target.costs.load_latency
    return total + sum(max(nbytes / left_rate(target, nbytes), latency) for nbytes in moved)


@shaped("product_chain", on="gpu")
def plan_chain(ctx: ShapedContext) -> KernelPlan | None:
    """The plan for a chain; None where its products by themselves are as fast."""
    able = ctx.gpu.is_amdgpu and ctx.gpu.wave_size in MOST_ELEMENTS
    chain = Chain.of(ctx.eqn) if able else None
    problem = None if chain is None else ChainProblem.of(chain)
    if chain is None or problem is None or (usual := _usual_plan(problem, ctx.gpu)) is None:
        return None
    share = PAYS[ctx.gpu.wave_size]
    pays = chain_cost(problem, usual, ctx.gpu) < share * apart_cost(chain, ctx.gpu)
    return CHAINS.find(problem, ctx.gpu) if pays else None


class _ChainKernel:
    """The kernel of a plan."""

    def __init__(self, ctx: ShapedContext, plan: ChainPlan):
        chain = Chain.of(ctx.eqn)
        assert chain is not None
        self.chain, self.plan, self.cut = chain, plan, plan.cut
        self.inputs = chain.inputs
        self.program = Program(ctx, "product_chain")
        self.k = k = self.program.k
        k.schedule.workgroup = plan.cut.waves * ctx.gpu.wave_size
        k.schedule.vector, k.schedule.places = 1, PLACES
        made, number = divided(k.program_id(), plan.cut.parts)
        #: The first feature that the program makes; None if it makes all.
        self.feature = None if made is None else made * plan.made
        self.first = (number % plan.blocks) * plan.cut.rows
        axes = [Axis(v.extent, 0) for v in chain.batch]
        self.batch = self.program.split(number // plan.blocks, "batch", axes)
        self.rows = TileAxis(chain.row, plan.cut.rows)
        self.columns = TileAxis(chain.column, plan.cut.columns)
        self.features = TileAxis(chain.feature, plan.made)
        #: What is known of each row.
        self.known: dict[Var, El] = {}
        #: Left operands, where rows are kept.
        self.left: Mapping[Var, Value] = {}
        #: Products of each block of columns, or where they are in LDS, once they are kept.
        self.blocks: list[dict[Var, Value]] = []
        self.memory: dict[Var, tile.Buffer] = {}
        self.is_kept = False

    def call(self) -> Call:
        k, chain, plan = self.k, self.chain, self.plan
        if not self.cut.chunk:
            self.left = {v: self._left(x, None) for v, x in chain.factors.items()}
        for level in range(chain.levels - 1):
            self._reduce(level)
        sums = self._multiply()
        p = plan.problem
        writer = TileWriter(self.program, chain.out, self.batch)
        feature = k.const("index", 0) if self.feature is None else self.feature
        writer.store([sums], [self.first, feature], (p.rows, p.features))
        work = p.batches * p.rows * p.columns * (sum(p.depths) + p.features)
        call = self.program.launch(plan.programs, 2.0 * work)
        return replace(call, whole_lds=True)

    # Passes

    def _reduce(self, level: int) -> None:
        """A pass over the columns: reductions that are complete after it."""
        k, chain, cut = self.k, self.chain, self.cut
        found = {v: r for v, (r, _, n) in chain.reductions.items() if n == level}
        rows = self._elements(None)
        starts = {v: r.identity(rows) for v, r in found.items()}

        def step(b: TileElements, state: Sequence[Value]) -> list[Value]:
            carried, out = iter(state), list[Value]()
            for v, rule in found.items():
                accs = regroup(starts[v], carried)
                xs = rule.element(b, chain.reductions[v][1])
                pairs = zip(xs, starts[v], strict=True)
                xs = [El(x.dtype, self._within(b, x.value, start.value)) for x, start in pairs]
                out += flat_parts(rule.merge(b, accs, combine_axes(b, rule, xs, [1])))
            return out

        flat = [k.broadcast(x, (cut.rows,)) for xs in starts.values() for x in flat_parts(xs)]
        state = iter(self._through(chain.needed[level], None, step, flat))
        for v, rule in found.items():
            (self.known[v],) = rule.finish(rows, regroup(starts[v], state))

    def _multiply(self) -> Value:
        """The last pass: what is between times values."""
        k, chain, cut, plan = self.k, self.chain, self.cut, self.plan
        tiling = cut.tiling(plan.made, cut.columns)
        weights, index = chain.weights
        dtype = short_dtype(weights.aval.dtype)

        def step(b: TileElements, state: Sequence[Value]) -> list[Value]:
            sums, loaded = state
            values = self._multiplied(chain.values, loaded, self.columns, self.features)
            x = b.value(weights, index).value
            x = k.convert(self._within(b, x, k.const(x.dtype, 0)), dtype)
            return [k.dot(as_operand(k, x, cut), values, sums, tiling)]

        zero = k.const("f32", 0, (cut.rows, plan.made))
        (sums,) = self._through(chain.needed[-1], chain.values, step, [zero])
        return sums

    def _through(
        self, needed: Collection[Var], values: Operand | None,
        step: Callable[[TileElements, Sequence[Value]], list[Value]], state: Sequence[Value],
    ) -> Sequence[Value]:  # fmt: skip
        """A pass over the columns.

        Args:
          needed: factors that are computed, unless they are kept.
          values: the right operand of the last product; `step` gets a block of it behind the state.
          step: of what computes elements of a block, and of the state; makes the next one.
          state: before the first block.
        """
        keeps = self.plan.kept != "" and not self.is_kept
        factors = {v: x for v, x in self.chain.factors.items() if v in needed or keeps}
        count = 0 if self.is_kept else len(factors)

        def bring(block: Value) -> list[Value]:
            rights = self._rights(block, factors) if count else []
            return rights if values is None else [*rights, self._values(values, block)]

        def body(block: Value, brought: Sequence[Value], state: Sequence[Value]) -> list[Value]:
            if self.is_kept:
                sums = self._again(block)
            else:
                sums = self._factors(block, factors, brought[:count])
            if keeps:
                self._keep(block, sums)
            more = brought[count:]
            if values is not None and not more:
                more = [self._values(values, block)]
            return step(self._elements(block, sums), [*state, *more])

        found = self._blocks(bring, body, state)
        self.is_kept = self.is_kept or keeps
        return found

    def _keep(self, block: Value, sums: dict[Var, Value]) -> None:
        """Keep products of a block for later passes."""
        if self.plan.kept == "registers":
            self.blocks.append(sums)
            return
        for v, x in sums.items():
            size = self.plan.steps * self.plan.kept_elements
            self.memory[v] = self.k.scratch(f"sums{len(self.memory)}", x.dtype, size)
            at = block * self.plan.kept_elements
            self.k.store(self.memory[v], at, x, (self.plan.pitch, 1))

    def _again(self, block: Value) -> dict[Var, Value]:
        """Products of a block that were kept."""
        if self.plan.kept == "registers":
            self.blocks.append(self.blocks.pop(0))  # passes go through them in the same order
            return self.blocks[-1]
        shape, at = (self.cut.rows, self.cut.columns), block * self.plan.kept_elements
        strides = self.plan.pitch, 1
        return {v: self.k.load(x, at, shape, strides) for v, x in self.memory.items()}

    def _blocks(
        self, bring: Callable[[Value], list[Value]],
        body: Callable[[Value, Sequence[Value], Sequence[Value]], list[Value]],
        state: Sequence[Value],
    ) -> Sequence[Value]:  # fmt: skip
        """All blocks of columns, one after the other.

        Args:
          bring: loads what a block begins with; it is called while the block before is computed.
          body: of a block, what was brought for it, and the state; makes the next one.
          state: before the first block.
        """
        k, steps, count = self.k, self.plan.steps, len(state)
        early = bring if not self.cut.chunk else lambda block: []
        brought = early(k.const("index", 0))
        if self.plan.kept == "registers":
            for i in range(steps):
                following = early(k.const("index", i + 1)) if i + 1 < steps else []
                state, brought = body(k.const("index", i), brought, state), following
            return state

        def one(block: Value, *carried: Value) -> list[Value]:
            following = early(k.min(block + 1, steps - 1))
            return [*body(block, carried[count:], carried[:count]), *following]

        return k.for_(0, steps, 1, one, [*state, *brought])[:count]

    # Elements

    def _elements(self, block: Value | None, sums: dict[Var, Value] | None = None) -> TileElements:
        """What computes elements of a block of columns, or what is known of rows."""
        k, chain = self.k, self.chain
        axes, bases = [self.rows], [self.first]
        if block is not None:
            axes, bases = [*axes, self.columns], [*bases, block * self.cut.columns]

        def special(var: Var, index: tuple[Index, ...]) -> El | None:
            if sums is not None and var in sums:
                dtype = short_dtype(var.aval.dtype)
                return El(dtype, k.convert(sums[var], compute_dtype(dtype)))
            if var in self.known:
                x = self.known[var]
                if block is None:
                    return x
                return El(x.dtype, *(k.expand(p, 1) if p.shape else p for p in x.parts))
            return None

        memory = lambda v: self.program.kernel.input(self.inputs[v])
        b = TileElements(k, chain.producers, memory, special)
        b.lanes = list(tile_lanes(k, axes, bases))
        b.scalars.update(zip(chain.batch, self.batch, strict=True))
        return b

    def _within(self, b: TileElements, x: Value, other: Value) -> Value:
        """A tile of a block, with something else in columns that are not there."""
        k, shape = self.k, (self.cut.rows, self.cut.columns)
        x, mask = k.broadcast(x, shape), b.lanes[1].mask
        if mask is None:
            return x
        return k.select(k.broadcast(mask, shape), x, k.broadcast(other, shape))

    # Products

    def _factors(
        self, block: Value, factors: Mapping[Var, Factor], brought: Sequence[Value]
    ) -> dict[Var, Value]:
        """Products of the rows and a block of columns, rounded as their results are."""
        k, cut = self.k, self.cut
        found = {}
        for i, (v, factor) in enumerate(factors.items()):
            zero, depth = k.const("f32", 0, (cut.rows, cut.columns)), self._depth(factor)
            tiling = cut.tiling(cut.columns, depth.count)

            def add(
                left: Value, loaded: Value, sums: Value, factor: Factor = factor,
                depth: TileAxis = depth, tiling: tile.MatrixTiling = tiling,
            ) -> Value:  # fmt: skip
                right = self._multiplied(factor.right, loaded, depth, self.columns)
                return k.dot(left, right, sums, tiling)

            def chunk(
                j: Value, sums: Value, factor: Factor = factor, add: Callable[..., Value] = add
            ) -> list[Value]:
                at = j * self._depth(factor).count
                return [add(self._left(factor, at), self._right(factor, block, at), sums)]

            if v in self.left:
                sums = add(self.left[v], brought[i], zero)
            else:
                count = cut.padded(factor.depth.extent) // depth.count
                (sums,) = k.for_(0, count, 1, chunk, [zero])
            found[v] = k.convert(sums, part_dtype(short_dtype(v.aval.dtype)))
        return found

    def _depth(self, factor: Factor) -> TileAxis:
        return TileAxis(factor.depth, self.cut.held(self.cut.padded(factor.depth.extent)))

    def _left(self, factor: Factor, at: Value | None) -> Value:
        """Of rows and depth; of a part of it that begins somewhere, or all."""
        depth = self._depth(factor)
        found = self._matrix(factor.left, (self.rows, self.first), (depth, at))
        return self._multiplied(factor.left, found, self.rows, depth)

    def _right(self, factor: Factor, block: Value, at: Value | None) -> Value:
        """Of depth and columns, likewise, as it is loaded."""
        columns = self.columns, block * self.cut.columns
        return self._matrix(factor.right, (self._depth(factor), at), columns)

    def _rights(self, block: Value, factors: Mapping[Var, Factor]) -> list[Value]:
        return [self._right(x, block, None) for x in factors.values()]

    def _values(self, values: Operand, block: Value) -> Value:
        """Of columns and features, as it is loaded."""
        features = self.features, self.feature
        return self._matrix(values, (self.columns, block * self.cut.columns), features)

    def _matrix(
        self, x: Operand, down: tuple[TileAxis, Value | None], along: tuple[TileAxis, Value | None]
    ) -> Value:
        """A tile of an operand, zeros where there is nothing; its axes as what is contiguous lies.

        Args:
          x: the operand.
          down, along: loops along the axes of the tile, and where it begins; None for tiles that
            have all.
        """
        k, sides = self.k, (down, along)
        if _is_turned(x, down[0], along[0]):
            sides = along, down
        strides = tuple(x.offset.coefficient(axis.var) for axis, _ in sides)
        b = TileElements(k, {}, self.program.kernel.input)
        zero = k.const("index", 0)
        b.scalars.update(zip(self.chain.batch, self.batch, strict=True))
        b.scalars.update({axis.var: zero if at is None else at for axis, at in sides})
        shape = tuple(axis.count for axis, _ in sides)
        buffer = self.program.kernel.input(self.inputs[x.var])
        return k.load(
            buffer, b.index_tile(x.offset), shape, strides, self._inside(sides),
            eager=x.var.aval.size >= MOVED,
        )  # fmt: skip

    def _multiplied(self, x: Operand, loaded: Value, down: TileAxis, along: TileAxis) -> Value:
        """A tile that was loaded, as it is multiplied."""
        found = as_operand(self.k, loaded, self.cut)
        return self.k.transpose(found) if _is_turned(x, down, along) else found

    def _inside(self, sides: Sequence[tuple[TileAxis, Value | None]]) -> Value | None:
        """Which elements of a tile there are; None if all."""
        k, conditions = self.k, list[Value]()
        shape = tuple(axis.count for axis, _ in sides)
        for i, (axis, at) in enumerate(sides):
            extent, count = axis.var.extent, axis.count
            if extent % count == 0 or (at is None and extent == count):
                continue
            places = k.iota(count, "i32")
            if at is not None:
                places = places + k.broadcast(k.convert(at, "i32"), (count,))
            conditions.append(k.broadcast(k.expand(places < extent, 1 - i), shape))
        return every(k, conditions)


def _is_turned(x: Operand, down: TileAxis, along: TileAxis) -> bool:
    """Whether elements down a matrix are neighbors in memory."""
    return x.offset.coefficient(down.var) == 1 != x.offset.coefficient(along.var)
