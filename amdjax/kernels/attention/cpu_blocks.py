"""Attention on CPUs: blocks of queries by blocks of keys, with online softmax.

The softmax of a row is summed relative to the greatest logit so far, and what is summed already
shrinks when that grows (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax",
2018; T. Dao, "FlashAttention-2", 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import capped, size_hint
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.attention.problem import LEAST_LOGIT, LOWEST, MOST_SCRATCH, Attention
from amdjax.kernels.attention.staging import Blocking, Stage, Staged
from amdjax.kernels.loops import lane_loop
from amdjax.kernels.products.contraction import TileShape, lane_count, private_cache
from amdjax.kernels.products.cpu.packed import Rows
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Solver
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

Value = tile.Value

#: Bytes that blocks of an attention may take of the second-level cache.
SHARE = 2


@dataclass(frozen=True)
class AttentionPlan:
    """Blocks of queries by blocks of keys.

    Args:
      problem: the attention.
      blocking: how it is cut.
    """

    problem: Attention
    blocking: Blocking

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [Forward(ctx, self.problem, self.blocking).call()]

    @property
    def programs(self) -> int:
        p, b = self.problem, self.blocking
        rows = ceil_div(p.queries * b.group, b.rows * b.tiles)
        return p.batch * p.heads // b.group * rows

    def __str__(self) -> str:
        return f"attention of {self.problem}, {self.programs} programs of {self.blocking}"


def attention_plans(problem: Attention, target: CpuTarget) -> Sequence[AttentionPlan]:
    """Plans for an attention."""
    return [AttentionPlan(problem, b) for b in blockings(problem, target, 2, 4)]


def register_tile(target: CpuTarget, vectors: int, lanes: int) -> TileShape:
    """Of up to four vectors, as many lines as hide the latency of multiply-adds."""
    return TileShape(8 if vectors == 1 or (vectors == 2 and target.vector_bits >= 512) else 4,
                     vectors, lanes)  # fmt: skip


def blockings(problem: Attention, target: CpuTarget, copies: int, most: int) -> list[Blocking]:
    """How an attention may be cut; not at all if it has more features than scratch has room for.

    Args:
      problem: the attention.
      target: the machine.
      copies: of the rows of a tile, with their features, that a program keeps.
      most: tiles of a program.
    """
    lanes = lane_count(target, problem.accumulate)
    features = round_up(max(problem.features, problem.value_features), lanes)
    found = []
    for group in dict.fromkeys((1, problem.group)):
        rows = problem.queries * group
        vectors = capped(ceil_div(rows, lanes), 4 if target.vector_bits >= 512 else 2)
        # As many sums as hide the latency of multiply-adds.
        shape = register_tile(target, vectors, lanes)
        # Gradients sum by keys in tiles of one vector, which are the highest.
        high = register_tile(target, 1, lanes).rows
        keys = capped(round_up(problem.keys, max(high, lanes)), 64)
        line = features * itemsize(problem.accumulate)
        fitting = max(1, private_cache(target) // SHARE // (copies * shape.columns * line))
        for tiles in (1, 2, 4, 8):
            scratch = (2 * keys + (copies * tiles + 1) * shape.columns) * line
            if scratch > MOST_SCRATCH:
                continue
            if tiles <= min(most, fitting, ceil_div(size_hint(rows), shape.columns)):
                found.append(Blocking(shape, keys, tiles, group))
    return found


def attention_cost(problem: Attention, plan: AttentionPlan, target: CpuTarget) -> float:
    """Cycles of products, and of copying keys and values once for each program."""
    return blocking_cost(problem, plan.blocking, plan.programs, target, 2)


def blocking_cost(
    problem: Attention, b: Blocking, programs: int, target: CpuTarget, products: int
) -> float:
    """Cycles of all threads.

    Args:
      problem: the attention.
      b: how it is cut.
      programs: of the grid.
      target: the machine.
      products: of queries and keys, or weights and values, for each block.
    """
    features = problem.features + problem.value_features
    tiles = ceil_div(problem.queries * b.group, b.rows)
    heads = problem.batch * problem.heads / b.group
    lanes = problem.keys * features / b.tile.rows / 2
    work = heads * tiles * lanes * b.tile.cycles(target.costs) * products
    copied = programs * problem.keys * features / b.tile.lanes * 2
    # Half a program more: the threads do not end at once.
    rounds = ceil_div(programs, target.threads) + 0.5
    return (work + copied) / programs * rounds


ONLINE_SOFTMAX = Solver("online softmax", attention_plans, attention_cost)


class Forward:
    """The kernel: for each block of keys all tiles of the program's rows."""

    def __init__(self, ctx: ShapedContext, problem: Attention, blocking: Blocking):
        self.ctx, self.problem, self.blocking = ctx, problem, blocking
        self.stage = Stage(ctx, problem, blocking, "attention")
        self.k, self.dtype = self.stage.k, self.stage.dtype
        self.outputs = [self.stage.kernel.output(v) for v in ctx.outputs]

    def call(self) -> Call:
        k, p, b, s = self.k, self.problem, self.blocking, self.stage
        self._scratch()
        block = b.rows * b.tiles
        blocks = ceil_div(s.row_count, block)
        pid = k.program_id()
        heads = p.heads // b.group
        head = (pid // blocks) % heads
        first_head = head * b.group
        s.locate(pid // (blocks * heads), first_head // p.group, first_head)
        self.first = (pid % blocks) * block
        rest = k.const("index", s.row_count) - self.first
        self.count = k.min((rest + (b.rows - 1)) // b.rows, b.tiles)
        self.staged = Staged(s)
        k.for_(0, self.count, 1, self._begin)
        self._sweeps()
        k.for_(0, self.count, 1, self._end)
        features = p.features + p.value_features
        cycles = p.batch * p.heads * p.queries * p.keys * features / s.lanes / 2
        cycles = cycles / (2 if p.is_causal else 1)
        return s.kernel.launch(p.batch * heads * blocks, cycles / 2.5)

    def _scratch(self) -> None:
        k, p, b, lanes = self.k, self.problem, self.blocking, self.stage.lanes
        self.wide = round_up(p.features, lanes)
        self.value_wide = round_up(p.value_features, max(lanes, b.tile.rows))
        dtype = self.dtype
        self.keys = k.scratch("keys", dtype, b.keys * self.wide)
        self.values = k.scratch("values", dtype, b.keys * self.value_wide)
        self.queries = k.scratch("queries", dtype, b.tiles * self.wide * b.rows)
        self._row_scratch()

    def _row_scratch(self) -> None:
        """What every way to multiply keeps of rows."""
        k, b, dtype = self.k, self.blocking, self.dtype
        self.lines = k.scratch("lines", dtype, b.rows * max(self.wide, self.value_wide))
        self.sums = k.scratch("sums", dtype, b.tiles * self.value_wide * b.rows)
        self.weights = k.scratch("weights", dtype, b.keys * b.rows)
        self.maximum = k.scratch("maximum", dtype, b.tiles * b.rows)
        self.total = k.scratch("total", dtype, b.tiles * b.rows)

    # Rows

    def _rows_from(self, i: Value) -> tuple[Value, Value]:
        """The first row of a tile, and how many of it there are."""
        first = self.first + i * self.blocking.rows
        return first, self.k.min(
            self.k.const("index", self.stage.row_count) - first, self.blocking.rows
        )

    def _begin(self, i: Value) -> None:
        self._bring_queries(i)
        self._clear(i)

    def _bring_queries(self, i: Value) -> None:
        """Queries of a tile into lanes."""
        s, p, b = self.stage, self.problem, self.blocking
        first, count = self._rows_from(i)
        offset = lambda r: s.row_offset(first + r, p.features)
        s.copy_lines(s.inputs["query"], offset, count, b.rows, p.features, self.lines, self.wide)
        s.turn(self.lines, self.wide, self.queries, i * (self.wide * b.rows), p.features)

    def _clear(self, i: Value) -> None:
        k, b, lanes = self.k, self.blocking, (self.stage.lanes,)
        zero = k.const(self.dtype, 0, lanes)
        lowest = k.const(self.dtype, LOWEST[self.dtype], lanes)
        size = self.value_wide * b.rows

        def line(at: Value) -> None:
            k.store(self.sums, i * size + at, zero, (1,))

        k.for_(0, size, lanes[0], line)
        for v in range(0, b.rows, lanes[0]):
            k.store(self.maximum, i * b.rows + v, lowest, (1,))
            k.store(self.total, i * b.rows + v, zero, (1,))

    def _end(self, i: Value) -> None:
        """Divide by the sums of weights and store, row by row."""
        k, s, p, b, lanes = self.k, self.stage, self.problem, self.blocking, self.stage.lanes
        first, count = self._rows_from(i)
        out, maximum, total = self.outputs
        stride = self.value_wide
        one = k.const(self.dtype, 1 / (1 - p.rate), (lanes,))
        if s.out_factor is not None:
            one = one * k.broadcast(s.out_factor, (lanes,))
        factors = lambda v: k.op("div", one, k.load(self.total, i * b.rows + v, (lanes,), (1,)))
        at = i * (self.value_wide * b.rows)
        s.turn_back(self.sums, at, p.value_features, self.lines, stride, factors)

        def row(r: Value) -> None:
            to = s.statistic_offset(first + r)
            k.store(maximum, to, k.load(self.maximum, i * b.rows + r))
            k.store(total, to, k.load(self.total, i * b.rows + r))
            at = s.row_offset(first + r, p.value_features)
            s.store_line(self.lines, r * stride, out, at, p.value_features)

        k.for_(0, count, 1, row)
        if s.query_length is not None:
            self._clear_padding(first, count)

    def _clear_padding(self, first: Value, count: Value) -> None:
        """Zeros for queries beyond the length, whose weights all pairs shared."""
        k, s, p, lanes = self.k, self.stage, self.problem, self.stage.lanes
        out, maximum, total = self.outputs
        assert s.query_length is not None

        def row(r: Value) -> None:
            def clear() -> None:
                at, to = s.row_offset(first + r, p.value_features), s.statistic_offset(first + r)
                zero = k.const(p.out_dtype, 0, (lanes,))
                part = lambda f, mask: k.store(out, at + f, zero, (1,), mask)
                lane_loop(k, 0, p.value_features, lanes, part)
                k.store(maximum, to, k.const(self.dtype, LEAST_LOGIT))
                k.store(total, to, k.const(self.dtype, p.keys))

            k.if_(s.query_of(first + r) >= s.query_length, clear)

        k.for_(0, count, 1, row)

    # Blocks of keys

    def _sweeps(self) -> None:
        """All blocks that rows look at, and all there are for rows that found no key."""
        k, s, b, p = self.k, self.stage, self.blocking, self.problem
        last = k.min(self.first + b.rows * b.tiles, s.row_count) - 1
        bounds = s.bounds(self.first, last)
        if not p.may_lack_keys:
            k.for_(bounds.start, bounds.stop, 1, self._block)
            return
        self.marks = k.scratch("marks", "i32", b.tiles)
        k.for_(0, self.count, 1, lambda i: k.store(self.marks, i, k.const("i32", 1)))

        def sweep(number: Value) -> None:
            """The second one, over all keys, is for tiles with rows that found none."""
            again = number > 0
            k.if_(again, lambda: k.for_(0, self.count, 1, self._mark))
            is_any = lambda i, found: found | self._is_marked(i)
            some = k.for_(0, self.count, 1, is_any, [k.const("bool", False)])[0]
            start = k.select(again, k.const("index", 0), bounds.start)
            stop = k.select(again, k.const("index", ceil_div(p.keys, b.keys)), bounds.stop)
            k.for_(start, k.select(some, stop, start), 1, lambda j: self._block(j, again))

        k.for_(0, 2, 1, sweep)

    def _mark(self, i: Value) -> None:
        """Say whether a tile has rows that found no key, and begin it anew."""
        k = self.k
        lacks = self._lacks_keys(i)
        k.store(self.marks, i, k.convert(lacks, "i32"))
        k.if_(lacks, lambda: self._clear(i))

    def _is_marked(self, i: Value) -> Value:
        return self.k.ne(self.k.load(self.marks, i), 0)

    def _lacks_keys(self, i: Value) -> Value:
        """Whether a tile has a row without any key, padding aside."""
        k, b, s, lanes = self.k, self.blocking, self.stage, self.stage.lanes
        least, found = k.const(self.dtype, LEAST_LOGIT), k.const("bool", False)
        for v in range(0, b.rows, lanes):
            x = k.load(self.maximum, i * b.rows + v, (lanes,), (1,))
            lacks = x <= k.broadcast(least, (lanes,))
            if s.query_length is not None:
                rows = s.places(self.first + i * b.rows + v)
                queries = rows // b.group if b.group > 1 else rows
                length = k.broadcast(k.convert(s.query_length, "i32"), (lanes,))
                lacks = lacks & (queries < length)
            found = found | k.reduce("or", lacks)
        return found

    def _copy_keys(self, j: Value) -> None:
        s, p = self.stage, self.problem
        s.copy_block("key", j, p.features, self.keys, self.wide)
        s.copy_block("value", j, p.value_features, self.values, self.value_wide)

    def _block(self, j: Value, again: Value | None = None) -> None:
        """A block of keys for all tiles that look at it; `again` for those that are marked."""
        k, s = self.k, self.stage
        self._copy_keys(j)

        def one(i: Value) -> None:
            first, count = self._rows_from(i)
            bounds = s.bounds(first, first + count - 1)
            whole = (j >= bounds.whole_start) & (j < bounds.whole_stop)
            seen = (j >= bounds.start) & (j < bounds.stop)
            if again is not None:
                whole, seen = whole & ~again, (seen | again) & self._is_marked(i)
            k.if_(seen, lambda: self._tile(i, j, ~whole))

        k.for_(0, self.count, 1, one)

    def _tile(self, i: Value, j: Value, masked: Value) -> None:
        """One tile of rows by one block of keys, of which some rows may not see all."""
        k, s, b, lanes = self.k, self.stage, self.blocking, self.stage.lanes
        p, shape, rows = self.problem, b.tile, b.rows
        first = self.first + i * rows
        self.staged.prepare(first, j)
        queries = i * (self.wide * rows)
        greatest = [
            k.load(self.maximum, i * rows + v * lanes, (lanes,), (1,)) for v in range(shape.vectors)
        ]

        def logits(line: Value, sums: Rows, found: tuple[Value, ...]) -> list[Value]:
            most = list(found)
            made = s.logits(sums, j * b.keys + line, first, masked, self.staged)
            for r, vectors in enumerate(made):
                for v, x in enumerate(vectors):
                    k.store(self.weights, (line + r) * rows + v * lanes, x, (1,))
                    most[v] = k.max(most[v], x)
            return most

        most = s.product(
            b.keys, p.features,
            lambda line, f: k.load(self.keys, line * self.wide + f),
            lambda f, v: k.load(self.queries, queries + f * rows + v * lanes, (lanes,), (1,)),
            None, logits, greatest,
        )  # fmt: skip
        shrink = [k.op("exp", old - new) for old, new in zip(greatest, most)]
        self._exponentials(i, j, list(most), shrink)
        sums_at = i * (self.value_wide * rows)

        def weighted(line: Value, sums: Rows, found: tuple[Value, ...]) -> list[Value]:
            for r, vectors in enumerate(sums):
                for v, x in enumerate(vectors):
                    k.store(self.sums, sums_at + (line + r) * rows + v * lanes, x, (1,))
            return []

        def before(line: Value, v: int) -> Value:
            x = k.load(self.sums, sums_at + line * rows + v * lanes, (lanes,), (1,))
            return x * shrink[v]

        s.product(
            p.value_features, b.keys,
            lambda line, key: k.load(self.values, key * self.value_wide + line),
            lambda key, v: k.load(self.weights, key * rows + v * lanes, (lanes,), (1,)),
            before, weighted,
        )  # fmt: skip

    def _exponentials(self, i: Value, j: Value, most: list[Value], shrink: list[Value]) -> None:
        """Weights of the block in place of its logits, and their sums.

        The sums are of all weights, also of those that are dropped.
        """
        k, s, b, lanes = self.k, self.stage, self.blocking, self.stage.lanes
        rows, vectors = b.rows, range(b.tile.vectors)
        step = 2 if self.problem.rate else 1

        def line(key: Value, *sums: Value) -> list[Value]:
            out = []
            for v in vectors:
                at = [(key + n) * rows + v * lanes for n in range(step)]
                found = [k.op("exp", k.load(self.weights, x, (lanes,), (1,)) - most[v]) for x in at]
                kept = found
                if step == 2:
                    first = self.first + i * rows + v * lanes
                    keep = s.not_dropped(j * b.keys + key, first)
                    zero = k.const(self.dtype, 0, (lanes,))
                    kept = [k.select(c, x, zero) for c, x in zip(keep, found, strict=True)]
                for place, x in zip(at, kept, strict=True):
                    k.store(self.weights, place, x, (1,))
                out.append(sum(found, sums[v]))
            return out

        zero = k.const(self.dtype, 0, (lanes,))
        sums = k.for_(0, b.keys, step, line, [zero for _ in vectors])
        self._keep_statistics(i, most, shrink, sums)

    def _keep_statistics(
        self, i: Value, most: Sequence[Value], shrink: Sequence[Value], sums: Sequence[Value]
    ) -> None:
        """The greatest logits of a tile's rows, and sums of weights relative to them."""
        k, lanes = self.k, self.stage.lanes
        for v in range(self.blocking.tile.vectors):
            at = i * self.blocking.rows + v * lanes
            old = k.load(self.total, at, (lanes,), (1,))
            k.store(self.total, at, k.op("fma", old, shrink[v], sums[v]), (1,))
            k.store(self.maximum, at, most[v], (1,))
