"""Attention of few queries on CPUs, as in decoding with a cache: keys and values pass once.

Lanes run along features, then along keys. A program takes a range of keys for one head of keys, or
for several, whose features are neighbors in memory. Programs that share a row leave sums relative
to their own greatest logit, which a second launch combines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import Dim, size_hint
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.attention.problem import LEAST_LOGIT, LOWEST, MOST_SCRATCH, Attention
from amdjax.kernels.attention.staging import finite
from amdjax.kernels.loops import lane_loop
from amdjax.kernels.products.contraction import lane_count
from amdjax.kernels.shaped import Call, ShapedContext, ShapedKernel, Temp
from amdjax.schedule.row_plan import counted
from amdjax.schedule.search import Solver, shares
from amdjax.targets.cpu import CpuTarget
from amdjax.tile import itemsize

Value = tile.Value

MOST_ROWS = 8  # that share a head of keys
KEYS = 64  # of a block
TOGETHER = 4  # keys whose values are added at once
PART = 256  # keys worth a program of their own


@dataclass(frozen=True)
class FewRowsPlan:
    """Rows of few queries, a key of all heads of a program at a time.

    Args:
      problem: the attention.
      heads: of keys, in a program.
      splits: programs that share the keys.
    """

    problem: Attention
    heads: int
    splits: int

    @property
    def programs(self) -> int:
        return self.problem.batch * self.problem.key_heads // self.heads * self.splits

    @property
    def rows(self) -> int:
        """Queries of all heads that share a head of keys."""
        return self.problem.queries * self.problem.group

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return FewRows(ctx, self).calls()

    def __str__(self) -> str:
        heads = counted(self.heads, "head")
        out = f"attention of {self.problem}, {counted(self.programs, 'program')} of few rows"
        out += f", {heads} of keys in each"
        return out + (f", keys split {self.splits} ways" if self.splits > 1 else "")


def few_rows_plans(problem: Attention, target: CpuTarget) -> Sequence[FewRowsPlan]:
    """Plans where few rows share a head of keys."""
    rows = problem.queries * problem.group
    if isinstance(rows, Dim):  # each row has code of its own
        return []
    size = itemsize(problem.accumulate)
    row_bytes = rows * (problem.features + problem.value_features + KEYS) * size
    if rows > MOST_ROWS or row_bytes > MOST_SCRATCH or problem.rate:
        return []
    together = [n for n in range(2, problem.key_heads + 1) if problem.key_heads % n == 0]
    fitting = [n for n in together if n * row_bytes <= target.l1_bytes * 2 // 3]
    found = []
    for heads in (1, *fitting[-1:]):
        programs = problem.batch * problem.key_heads // heads
        most = ceil_div(4 * target.threads, size_hint(programs))
        most = min(most, ceil_div(size_hint(problem.keys), PART))
        found += [FewRowsPlan(problem, heads, n) for n in shares(most)]
    return found


def few_rows_cost(problem: Attention, plan: FewRowsPlan, target: CpuTarget) -> float:
    """Cycles of reading all keys and values, and of what rows compute of them."""
    lanes = lane_count(target, problem.accumulate)
    features = problem.features + problem.value_features
    each = plan.rows * (1.5 * features / lanes + 16) + features * itemsize(problem.dtype) / 16
    work = problem.batch * problem.key_heads * problem.keys * each
    rounds = ceil_div(plan.programs, target.threads) + 0.5
    combined = 0 if plan.splits == 1 else 2000 * plan.programs / target.threads
    return work / plan.programs * rounds + combined


FEW_ROWS = Solver("few rows", few_rows_plans, few_rows_cost)


class FewRows:
    """The kernels: sums over ranges of keys, and their combination."""

    def __init__(self, ctx: ShapedContext, plan: FewRowsPlan):
        self.ctx, self.plan, self.problem = ctx, plan, plan.problem
        p = plan.problem
        self.lanes, self.dtype = lane_count(ctx.target, p.accumulate), p.accumulate
        self.wide = round_up(p.features, self.lanes)
        self.value_wide = round_up(p.value_features, self.lanes)
        #: Of a row in the workspace: sums of values, the greatest logit, the sum of weights.
        self.each = self.value_wide + 2
        self.parts = Temp(self.dtype, p.batch * p.heads * p.queries * plan.splits * self.each)

    def calls(self) -> list[Call]:
        """The launches in order."""
        return [self._sums(), *([self._combined()] if self.plan.splits > 1 else [])]

    def _begin(self, name: str) -> None:
        self.kernel: ShapedKernel = self.ctx.kernel(name)
        self.k = self.kernel.k

    # Sums over a range of keys

    def _sums(self) -> Call:
        p, plan = self.problem, self.plan
        self._begin("attention_rows")
        k, kernel = self.k, self.kernel
        self.inputs = {
            name: kernel.input(x)
            for name, x in zip(("query", "key", "value", *p.given), self.ctx.inputs)
        }
        count = plan.heads * plan.rows
        self.queries = k.scratch("queries", self.dtype, count * self.wide)
        self.sums = k.scratch("sums", self.dtype, count * self.value_wide)
        self.weights = k.scratch("weights", self.dtype, count * KEYS)
        self.statistics = k.scratch("statistics", self.dtype, 2 * count)
        outs = [kernel.output(v) for v in self.ctx.outputs] if plan.splits == 1 else []
        parts = kernel.output(self.parts) if plan.splits > 1 else None
        pid, chunks = k.program_id(), p.key_heads // plan.heads
        self.batch = pid // (plan.splits * chunks)
        self.first_head = (pid // plan.splits) % chunks * plan.heads
        self.query_length, self.key_length = (
            k.convert(k.load(self.inputs[name], self.batch), "index") if name in p.given else None
            for name in ("query_lengths", "key_value_lengths")
        )
        start, stop = self._range(pid % plan.splits)
        self._each_row(self._bring)
        k.for_(start, stop, KEYS, lambda first: self._block(first, stop))

        def finish(h: Value, row: int) -> None:
            at = h * plan.rows + row
            if parts is None:
                maximum, total = (k.load(self.statistics, at * 2 + i) for i in (0, 1))
                base = at * self.value_wide
                sums = lambda f: k.load(self.sums, base + f, (self.lanes,), (1,))
                key_head = self.first_head + h
                self._finish(outs, self.batch, key_head, row, maximum, total, sums)
                return
            place = (self.batch * p.key_heads + self.first_head + h) * plan.rows + row
            to = (place * plan.splits + pid % plan.splits) * self.each
            for f in range(0, self.value_wide, self.lanes):
                x = k.load(self.sums, at * self.value_wide + f, (self.lanes,), (1,))
                k.store(parts, to + f, x, (1,))
            for i in (0, 1):
                k.store(parts, to + (self.value_wide + i), k.load(self.statistics, at * 2 + i))

        self._each_row(finish)
        cycles = few_rows_cost(p, FewRowsPlan(p, plan.heads, 1), CpuTarget(threads=1))
        return kernel.launch(plan.programs, cycles / 2.5)

    def _each_row(self, body: Callable[[Value, int], None]) -> None:
        """`body(head, row)` for the heads of keys of the program and the rows of each."""

        def head(h: Value) -> None:
            for row in range(self.plan.rows):
                body(h, row)

        self.k.for_(0, self.plan.heads, 1, head)

    def _range(self, part: Value) -> tuple[Value, Value]:
        """The keys of a program.

        Keys behind all lengths and queries are left out where no row can be left without any.
        """
        k, p, splits = self.k, self.problem, self.plan.splits
        stop = k.const("index", p.keys)
        if p.window is None and not set(p.given) & {"bias", "mask"}:
            if self.key_length is not None:
                length = k.min(k.max(self.key_length, 0), stop)
                stop = k.select(k.eq(length, 0), stop, length)
            if p.is_causal:
                causal = k.min(stop, p.queries)
                if self.key_length is not None:
                    causal = k.select(self.key_length <= 0, stop, causal)
                stop = causal
        if splits == 1:
            return k.const("index", 0), stop
        each = (stop + (splits * KEYS - 1)) // (splits * KEYS) * KEYS
        start = k.min(part * each, stop)
        return start, k.min(start + each, stop)

    def _query(self, row: int) -> int:
        return row // self.problem.group

    def _head(self, key_head: Value, row: int) -> Value:
        return key_head * self.problem.group + row % self.problem.group

    def _vector(self, source: tile.Buffer, at: Value, f: int, features: int) -> Value:
        """A vector of features from `f` on, zeros behind the last one."""
        k, lanes = self.k, self.lanes
        mask = None
        if f + lanes > features:
            mask = k.iota(lanes, "i32") < k.const("i32", features - f, (lanes,))
        return k.convert(k.load(source, at + f, (lanes,), (1,), mask), self.dtype)

    def _bring(self, h: Value, row: int) -> None:
        """A query into scratch, and sums of nothing."""
        k, p, lanes = self.k, self.problem, self.lanes
        head = self._head(self.first_head + h, row)
        at = ((self.batch * p.queries + self._query(row)) * p.heads + head) * p.features
        to = h * self.plan.rows + row
        for f in range(0, self.wide, lanes):
            x = self._vector(self.inputs["query"], at, f, p.features)
            k.store(self.queries, to * self.wide + f, x, (1,))
        zero = k.const(self.dtype, 0, (lanes,))
        for f in range(0, self.value_wide, lanes):
            k.store(self.sums, to * self.value_wide + f, zero, (1,))
        k.store(self.statistics, to * 2, k.const(self.dtype, LOWEST[self.dtype]))
        k.store(self.statistics, to * 2 + 1, k.const(self.dtype, 0))

    def _line(self, key: Value, h: Value, features: int) -> Value:
        """Where features of a key begin."""
        p = self.problem
        line = (self.batch * p.keys + key) * p.key_heads + self.first_head + h
        return line * features

    def _block(self, first: Value, stop: Value) -> None:
        k, p, plan, lanes = self.k, self.problem, self.plan, self.lanes
        count = k.min(stop - first, KEYS)

        def products(i: Value) -> None:
            def head(h: Value) -> None:
                at = self._line(first + i, h, p.features)
                keys = [
                    self._vector(self.inputs["key"], at, f, p.features)
                    for f in range(0, self.wide, lanes)
                ]
                for row in range(plan.rows):
                    line = h * plan.rows + row
                    total: Value | None = None
                    for n, x in enumerate(keys):
                        q = k.load(self.queries, line * self.wide + n * lanes, (lanes,), (1,))
                        total = x * q if total is None else k.op("fma", x, q, total)
                    assert total is not None
                    k.store(self.weights, line * KEYS + i, k.reduce("add", total))

            k.for_(0, plan.heads, 1, head)

        k.for_(0, count, 1, products)
        self._each_row(lambda h, row: self._weigh(first, stop, h, row))
        add = lambda is_used: k.for_(
            0, count, TOGETHER, lambda i: self._add(first, i, stop - 1, is_used)
        )
        if self.key_length is None:
            add(True)
        else:
            k.if_(stop <= self.key_length, lambda: add(True), lambda: add(False))

    def _add(self, first: Value, i: Value, last: Value, is_used: bool) -> None:
        """The values of neighboring keys, times their weights, of keys up to the last one.

        Those behind the length of keys, of which some are if not `is_used`, count if finite.
        """
        k, p, plan, lanes = self.k, self.problem, self.plan, self.lanes

        def head(h: Value) -> None:
            keys = [k.min(first + i + n, last) for n in range(TOGETHER)]
            starts = [self._line(key, h, p.value_features) for key in keys]
            for f in range(0, self.value_wide, lanes):
                values = [
                    self._vector(self.inputs["value"], at, f, p.value_features) for at in starts
                ]
                if not is_used:
                    values = [self._counted(x, key) for x, key in zip(values, keys, strict=True)]
                for row in range(plan.rows):
                    line = h * plan.rows + row
                    to = line * self.value_wide + f
                    total = k.load(self.sums, to, (lanes,), (1,))
                    for n, x in enumerate(values):
                        weight = k.load(self.weights, line * KEYS + i + n)
                        total = k.op("fma", k.broadcast(weight, (lanes,)), x, total)
                    k.store(self.sums, to, total, (1,))

        k.for_(0, plan.heads, 1, head)

    def _counted(self, x: Value, key: Value) -> Value:
        """Values of a key, without what is not finite where it is behind the length."""
        k = self.k
        assert self.key_length is not None
        there = k.broadcast(key < self.key_length, (self.lanes,))
        return k.select(there, x, finite(k, x))

    def _weigh(self, first: Value, stop: Value, h: Value, row: int) -> None:
        """Weights of a block in place of products, relative to the greatest logit so far."""
        k, lanes = self.k, self.lanes
        line = h * self.plan.rows + row
        before, total = (k.load(self.statistics, line * 2 + i) for i in (0, 1))
        start = line * KEYS
        logits, most = [], k.broadcast(before, (lanes,))
        for f in range(0, KEYS, lanes):
            x = k.load(self.weights, start + f, (lanes,), (1,))
            x = self._adjusted(x, first + f, stop, self.first_head + h, row)
            logits.append(x)
            most = k.max(most, x)
        greatest = k.reduce("max", most)
        added: Value | None = None
        for n, x in enumerate(logits):
            x = k.op("exp", x - k.broadcast(greatest, (lanes,)))
            k.store(self.weights, start + n * lanes, x, (1,))
            added = x if added is None else added + x
        assert added is not None
        shrink = k.op("exp", before - greatest)
        k.store(self.statistics, line * 2, greatest)
        total = k.op("fma", total, shrink, k.reduce("add", added))
        k.store(self.statistics, line * 2 + 1, total)
        for f in range(0, self.value_wide, lanes):
            at = line * self.value_wide + f
            x = k.load(self.sums, at, (lanes,), (1,)) * k.broadcast(shrink, (lanes,))
            k.store(self.sums, at, x, (1,))

    def _adjusted(self, x: Value, key: Value, stop: Value, key_head: Value, row: int) -> Value:
        """Products of a row with keys from `key` on as logits."""
        k, p, lanes = self.k, self.problem, (self.lanes,)
        query, head = self._query(row), self._head(key_head, row)
        columns = k.broadcast(k.convert(key, "i32"), lanes) + k.iota(self.lanes, "i32")
        there = columns < k.broadcast(k.convert(stop, "i32"), lanes)
        x = x * k.const(self.dtype, p.scale, lanes)
        if "factors" in p.given:
            x = x * k.broadcast(self._factor(self.batch, 0), lanes)
        conditions: list[Value] = []
        for name, strides in (("bias", p.bias), ("mask", p.mask)):
            if name not in p.given:
                continue
            at = self.batch * strides[0] + head * strides[1] + key * strides[3]
            at = at + query * strides[2]
            source = self.inputs[name]
            found = k.load(source, at, lanes, (strides[3],), there)
            if name == "bias":
                x = x + k.convert(found, self.dtype)
            else:
                conditions.append(found)
        if p.is_causal:
            conditions.append(columns <= k.const("i32", query, lanes))
        if p.window is not None:
            left, right = p.window
            conditions.append(columns >= k.const("i32", query - left, lanes))
            conditions.append(columns <= k.const("i32", query + right, lanes))
        if self.key_length is not None:
            length = k.convert(self.key_length, "i32")
            conditions.append(columns < k.broadcast(length, lanes))
        if self.query_length is not None:
            conditions.append(k.broadcast(self.query_length > query, lanes))
        for condition in conditions:
            x = k.select(condition, x, k.const(self.dtype, LEAST_LOGIT, lanes))
        return k.select(there, x, k.const(self.dtype, float("-inf"), lanes))

    def _factor(self, batch: Value, which: int) -> Value:
        """Of the logits, or of the results, of an example."""
        return self.k.convert(self.k.load(self.inputs["factors"], batch * 2 + which), self.dtype)

    # Results

    def _finish(
        self, outs: Sequence[tile.Buffer], batch: Value, key_head: Value, row: int,
        maximum: Value, total: Value, sums: Callable[[Value], Value],
    ) -> None:  # fmt: skip
        """Store a row; zeros where its query is padding, whose weights all pairs share."""
        k, p, lanes = self.k, self.problem, self.lanes
        query, head = self._query(row), self._head(key_head, row)
        to = ((batch * p.queries + query) * p.heads + head) * p.value_features
        factor = k.op("div", k.const(self.dtype, 1), total)
        if "factors" in p.given:
            factor = factor * self._factor(batch, 1)
        used: Value | None = None
        if "query_lengths" in p.given:
            length = k.convert(k.load(self.inputs["query_lengths"], batch), "index")
            used = length > query
            maximum = k.select(used, maximum, k.const(self.dtype, LEAST_LOGIT))
            total = k.select(used, total, k.const(self.dtype, p.keys))

        def part(f: Value, mask: Value | None) -> None:
            x = sums(f) * k.broadcast(factor, (lanes,))
            if used is not None:
                x = k.select(k.broadcast(used, (lanes,)), x, k.const(self.dtype, 0, (lanes,)))
            k.store(outs[0], to + f, k.convert(x, p.out_dtype), (1,), mask)

        lane_loop(k, 0, p.value_features, lanes, part)
        place = (batch * p.heads + head) * p.queries + query
        k.store(outs[1], place, maximum)
        k.store(outs[2], place, total)

    def _combined(self) -> Call:
        """Add the sums of all ranges of keys, each relative to the greatest logit of all."""
        p, plan, lanes = self.problem, self.plan, self.lanes
        self._begin("attention_combine")
        k = self.k
        parts = self.kernel.input(self.parts)
        self.inputs = {
            name: self.kernel.input(p.operand(name, self.ctx.inputs))
            for name in ("query_lengths", "factors")
            if name in p.given
        }
        outs = [self.kernel.output(v) for v in self.ctx.outputs]
        pid = k.program_id()
        batch, key_head = pid // p.key_heads, pid % p.key_heads
        for row in range(plan.rows):
            start = (pid * plan.rows + row) * (plan.splits * self.each)
            at = [start + n * self.each for n in range(plan.splits)]
            maxima, totals = (
                [k.load(parts, x + (self.value_wide + i)) for x in at] for i in (0, 1)
            )
            greatest = maxima[0]
            for x in maxima[1:]:
                greatest = k.max(greatest, x)
            shrinks = [k.op("exp", x - greatest) for x in maxima]
            total = totals[0] * shrinks[0]
            for x, shrink in zip(totals[1:], shrinks[1:]):
                total = k.op("fma", x, shrink, total)

            def sums(f: Value, at: list[Value] = at, shrinks: list[Value] = shrinks) -> Value:
                out = k.const(self.dtype, 0, (lanes,))
                for x, shrink in zip(at, shrinks):
                    vector = k.load(parts, x + f, (lanes,), (1,))
                    out = k.op("fma", vector, k.broadcast(shrink, (lanes,)), out)
                return out

            self._finish(outs, batch, key_head, row, greatest, total, sums)
        work = plan.rows * plan.splits * self.each / lanes * 2
        return self.kernel.launch(p.batch * p.key_heads, p.batch * p.key_heads * work)
