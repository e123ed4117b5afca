"""The gradient of attention on CPUs: weights anew, block by block, then four more products.

A program takes all queries of the heads that share a head of keys, or a part of them, a tile of
rows at a time. The gradient of the tile's queries is complete behind its last block of keys; those
of keys and values are summed in a workspace that the program alone writes, and where several
programs share a head of keys, a second launch adds what they found. So sums have one order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import size_hint
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.attention.cpu_blocks import blocking_cost, blockings, register_tile
from amdjax.kernels.attention.problem import LEAST_LOGIT, Attention
from amdjax.kernels.attention.staging import Blocking, Stage, Staged
from amdjax.kernels.loops import lane_loop
from amdjax.kernels.products.cpu.packed import Rows
from amdjax.kernels.shaped import Call, ShapedContext, Temp
from amdjax.schedule.row_plan import counted
from amdjax.schedule.search import shares
from amdjax.targets.cpu import CpuTarget

Value = tile.Value

CHUNK = 64  # keys that a program of the second launch adds up


@dataclass(frozen=True)
class AttentionGradientPlan:
    """Tiles of rows by blocks of keys, all heads of a head of keys together.

    Args:
      problem: the attention.
      blocking: how it is cut.
      splits: programs that share the rows of a head of keys.
    """

    problem: Attention
    blocking: Blocking
    splits: int

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return Gradient(ctx, self).calls()

    @property
    def programs(self) -> int:
        return self.problem.batch * self.problem.key_heads * self.splits

    def __str__(self) -> str:
        b, count = self.blocking, counted(self.programs, "program")
        blocks = f"{b.rows} rows by blocks of {b.keys} keys"
        out = f"gradient of attention of {self.problem}, {count} of {blocks}"
        return out + (f", rows split {self.splits} ways" if self.splits > 1 else "")


def gradient_plans(problem: Attention, target: CpuTarget) -> Sequence[AttentionGradientPlan]:
    """Plans for the gradient of an attention."""
    found = [b for b in blockings(problem, target, 6, 1) if b.group == problem.group]
    if not found:
        return []
    blocking = found[0]
    tiles = ceil_div(size_hint(problem.queries * problem.group), blocking.rows)
    most = ceil_div(4 * target.threads, size_hint(problem.batch * problem.key_heads))
    return [AttentionGradientPlan(problem, blocking, n) for n in shares(min(most, tiles))]


def gradient_cost(problem: Attention, plan: AttentionGradientPlan, target: CpuTarget) -> float:
    """Cycles of products, and of adding up what programs found."""
    sums = problem.keys * (problem.features + problem.value_features) / plan.blocking.tile.lanes
    work = blocking_cost(problem, plan.blocking, plan.programs, target, 5)
    return work + 4 * plan.splits * problem.batch * problem.key_heads * sums / target.threads


class Gradient:
    """The kernels: gradients by tiles of rows, and sums over programs."""

    def __init__(self, ctx: ShapedContext, plan: AttentionGradientPlan):
        self.ctx, self.plan = ctx, plan
        self.problem, self.blocking = plan.problem, plan.blocking
        p, lanes = plan.problem, plan.blocking.tile.lanes
        self.factor = p.scale  # of gradients of logits
        high = register_tile(ctx.target, 1, lanes).rows
        self.wide = round_up(p.features, max(lanes, high))
        self.value_wide = round_up(p.value_features, max(lanes, high))
        self.padded_keys = round_up(p.keys, plan.blocking.keys)
        #: Elements of a program's sums: of keys, then of values.
        self.each = self.padded_keys * (self.wide + self.value_wide)
        self.sums = Temp(p.accumulate, plan.programs * self.each)

    def calls(self) -> list[Call]:
        """The launches in order."""
        return [self._gradients(), *([self._combined()] if self.plan.splits > 1 else [])]

    def _gradients(self) -> Call:
        p, splits = self.problem, self.plan.splits
        s = self._begin("attention_gradient")
        self.d_query = s.kernel.output(self.ctx.outputs[0])
        self.found = s.kernel.inout(self.sums)
        self._scratch()
        k = self.k
        pid = k.program_id()
        key_head = (pid // splits) % p.key_heads
        s.locate(pid // (splits * p.key_heads), key_head, key_head * p.group)
        self.key_sums = pid * self.each
        self.value_sums = self.key_sums + self.padded_keys * self.wide
        self._clear(self.found, self.key_sums, self.each)
        tiles = ceil_div(s.row_count, self.blocking.rows)
        self.staged = Staged(s)
        # In turn, so that all programs of a causal attention have about the same work.
        k.for_(pid % splits, tiles, splits, self._rows)
        if splits == 1:
            outs = [s.kernel.output(v) for v in self.ctx.outputs[1:3]]
            self._store_keys(outs)
        features = p.features + p.value_features
        cycles = 5 / 4 * p.batch * p.heads * p.queries * p.keys * features / s.lanes
        return s.kernel.launch(self.plan.programs, cycles / 2.5 / (2 if p.is_causal else 1))

    def _begin(self, name: str) -> Stage:
        """Begin a kernel that goes through tiles of rows."""
        self.stage = s = Stage(self.ctx, self.problem, self.blocking, name)
        self.k, self.dtype = s.k, s.dtype
        names = ("maximum", "total", "delta", "slope")
        known = self.ctx.inputs[3 + len(self.problem.given) :]
        self.given = {n: s.kernel.input(x) for n, x in zip(names, known, strict=True)}
        return s

    def _scratch(self) -> None:
        k, b = self.k, self.blocking
        widest = max(self.wide, self.value_wide)
        sizes = {
            "keys": b.keys * self.wide, "values": b.keys * self.value_wide,
            "query_lines": b.rows * self.wide, "slope_lines": b.rows * self.value_wide,
            "queries": self.wide * b.rows, "slopes": self.value_wide * b.rows,
            "weights": b.keys * b.rows, "changes": b.keys * b.rows, "sums": self.wide * b.rows,
            "lines": b.rows * widest, "maxima": b.rows, "inverses": b.rows, "deltas": b.rows,
        }  # fmt: skip
        self.at = {name: k.scratch(name, self.dtype, size) for name, size in sizes.items()}

    def _clear(self, buffer: tile.Buffer, start: Value, size: int) -> None:
        k, lanes = self.k, self.stage.lanes
        zero = k.const(self.dtype, 0, (lanes,))
        k.for_(0, size, lanes, lambda i: k.store(buffer, start + i, zero, (1,)))

    def _store_keys(self, outs: Sequence[tile.Buffer]) -> None:
        k, s, p = self.k, self.stage, self.problem
        parts = ((self.key_sums, self.wide, p.features),
                 (self.value_sums, self.value_wide, p.value_features))  # fmt: skip

        def key(i: Value) -> None:
            for out, (start, stride, features) in zip(outs, parts, strict=True):
                at = s.key_offset(i, features)
                s.store_line(self.found, start + i * stride, out, at, features)

        k.for_(0, p.keys, 1, key)

    # A tile of rows

    def _bring_rows(self, i: Value) -> Value:
        """What is known of a tile of rows into scratch; returns how many there are."""
        k, s, p, b, at = self.k, self.stage, self.problem, self.blocking, self.at
        self.first = first = i * b.rows
        count = k.min(k.const("index", s.row_count) - first, b.rows)
        for source, features, wide, lines, turned in (
            (s.inputs["query"], p.features, self.wide, at["query_lines"], at["queries"]),
            (self.given["slope"], p.value_features, self.value_wide, at["slope_lines"],
             at["slopes"]),
        ):  # fmt: skip
            offset = lambda r, features=features: s.row_offset(first + r, features)
            s.copy_lines(source, offset, count, b.rows, features, lines, wide)
            s.turn(lines, wide, turned, k.const("index", 0), features)
        self.lacks_keys = self._statistics(count)
        return count

    def _each_block(self, count: Value, body: Callable[[Value, Value], None]) -> None:
        """`body(block, masked)` for the blocks of keys that the tile of rows looks at."""
        k, s, p, b, at = self.k, self.stage, self.problem, self.blocking, self.at
        bounds = s.bounds(self.first, self.first + count - 1)
        blocks, none = k.const("index", ceil_div(p.keys, b.keys)), k.const("index", 0)
        start = k.select(self.lacks_keys, none, bounds.start)
        stop = k.select(self.lacks_keys, blocks, bounds.stop)

        def block(j: Value) -> None:
            s.copy_block("key", j, p.features, at["keys"], self.wide)
            s.copy_block("value", j, p.value_features, at["values"], self.value_wide)
            whole = (j >= bounds.whole_start) & (j < bounds.whole_stop) & ~self.lacks_keys
            body(j, ~whole)

        k.for_(start, stop, 1, block)

    def _rows(self, i: Value) -> None:
        k, s, p, b, at = self.k, self.stage, self.problem, self.blocking, self.at
        count, none = self._bring_rows(i), k.const("index", 0)
        self._clear(at["sums"], none, self.wide * b.rows)
        self._each_block(count, self._block)
        s.turn_back(at["sums"], none, p.features, at["lines"], self.wide)

        def row(r: Value) -> None:
            to = s.row_offset(self.first + r, p.features)
            s.store_line(at["lines"], r * self.wide, self.d_query, to, p.features)

        k.for_(0, count, 1, row)

    def _statistics(self, count: Value) -> Value:
        """Bring what is known of rows; whether one of them has no key at all.

        Rows that are not there, or padding, get an infinite maximum, so that their weights are 0.
        """
        k, s, b, at = self.k, self.stage, self.blocking, self.at
        dtype = self.dtype

        def known(r: Value, lacks: Value) -> Value:
            place = s.statistic_offset(self.first + r)
            maximum = k.load(self.given["maximum"], place)
            lacking = maximum <= k.const(dtype, LEAST_LOGIT)
            if s.query_length is not None:
                used = s.query_of(self.first + r) < s.query_length
                maximum = k.select(used, maximum, k.const(dtype, float("inf")))
                lacking = lacking & used
            total = k.load(self.given["total"], place)
            k.store(at["maxima"], r, maximum)
            k.store(at["inverses"], r, k.op("div", k.const(dtype, 1), total))
            k.store(at["deltas"], r, k.load(self.given["delta"], place))
            return lacks | lacking

        def absent(r: Value) -> None:
            k.store(at["maxima"], r, k.const(dtype, float("inf")))
            k.store(at["inverses"], r, k.const(dtype, 1))
            k.store(at["deltas"], r, k.const(dtype, 0))

        lacks: Value = k.for_(0, count, 1, known, [k.const("bool", False)])[0]
        k.for_(count, b.rows, 1, absent)
        return lacks if self.problem.may_lack_keys else k.const("bool", False)

    # A block of keys

    def _block(self, j: Value, masked: Value) -> None:
        self.staged.prepare(self.first, j)
        self._weights(j, masked)
        self._changes(j, masked)
        k, p, b, at = self.k, self.problem, self.blocking, self.at
        first = j * b.keys
        self._over_rows("weights", "slope_lines", p.value_features, self.value_wide,
                        self.value_sums + first * self.value_wide)  # fmt: skip
        self._over_rows("changes", "query_lines", p.features, self.wide,
                        self.key_sums + first * self.wide)  # fmt: skip
        rows, lanes = b.rows, self.stage.lanes

        def init(line: Value, v: int) -> Value:
            return k.load(at["sums"], line * rows + v * lanes, (lanes,), (1,))

        def finish(line: Value, sums: Rows, _: tuple[Value, ...]) -> list[Value]:
            self._keep(at["sums"], line, sums, rows)
            return []

        self.stage.product(
            p.features, b.keys,
            lambda line, key: k.load(at["keys"], key * self.wide + line),
            lambda key, v: k.load(at["changes"], key * rows + v * lanes, (lanes,), (1,)),
            init, finish,
        )  # fmt: skip

    def _keep(self, target: tile.Buffer, line: Value, sums: Rows, stride: int) -> None:
        for r, vectors in enumerate(sums):
            for v, x in enumerate(vectors):
                self.k.store(target, (line + r) * stride + v * self.stage.lanes, x, (1,))

    def _row_vectors(self, name: str) -> list[Value]:
        lanes = self.stage.lanes
        return [
            self.k.load(self.at[name], v, (lanes,), (1,))
            for v in range(0, self.blocking.rows, lanes)
        ]

    def _weights(self, j: Value, masked: Value) -> None:
        """Weights of the block, of the products of its keys with queries."""
        k, s, p, b, at, lanes = (
            self.k, self.stage, self.problem, self.blocking, self.at, self.stage.lanes,
        )  # fmt: skip
        rows = b.rows

        def finish(line: Value, sums: Rows, _: tuple[Value, ...]) -> list[Value]:
            maxima, inverses = self._row_vectors("maxima"), self._row_vectors("inverses")
            key = j * b.keys + line
            found = s.logits(sums, key, self.first, masked, self.staged)
            for vectors in found:
                for v, x in enumerate(vectors):
                    vectors[v] = k.op("exp", x - maxima[v]) * inverses[v]
            if p.rate:
                self._mark_dropped(key, found)
            self._keep(at["weights"], line, found, rows)
            return []

        s.product(
            b.keys, p.features,
            lambda line, f: k.load(at["keys"], line * self.wide + f),
            lambda f, v: k.load(at["queries"], f * rows + v * lanes, (lanes,), (1,)),
            None, finish,
        )  # fmt: skip

    def _mark_dropped(self, key: Value, sums: Rows) -> None:
        """Make the weights negative that are dropped."""
        k, s, lanes = self.k, self.stage, self.stage.lanes
        for v in range(self.blocking.tile.vectors):
            for r in range(0, len(sums), 2):
                keep = s.not_dropped(key + r, self.first + v * lanes)
                for n in (0, 1):
                    x = sums[r + n][v]
                    sums[r + n][v] = k.select(keep[n], x, k.op("neg", x))

    def _without_dropped(self, x: Value, weight: Value, place: Value) -> tuple[Value, Value]:
        """What is dropped is zero in cotangents of weights, and from now on in the weights."""
        k, lanes = self.k, (self.stage.lanes,)
        zero = k.const(self.dtype, 0, lanes)
        larger = k.const(self.dtype, 1 / (1 - self.problem.rate), lanes)
        k.store(self.at["weights"], place, k.max(weight, zero) * larger, (1,))
        return k.select(weight > zero, x * larger, zero), k.op("abs", weight)

    def _changes(self, j: Value, masked: Value) -> None:
        """Gradients of the products of keys and queries."""
        k, s, p, b, at, lanes = (
            self.k, self.stage, self.problem, self.blocking, self.at, self.stage.lanes,
        )  # fmt: skip
        rows = b.rows
        scale = k.const(self.dtype, self.factor, (lanes,))

        def finish(line: Value, sums: Rows, _: tuple[Value, ...]) -> list[Value]:
            deltas = self._row_vectors("deltas")
            for r, vectors in enumerate(sums):
                for v, x in enumerate(vectors):
                    place = (line + r) * rows + v * lanes
                    weight = k.load(at["weights"], place, (lanes,), (1,))
                    if p.rate:
                        x, weight = self._without_dropped(x, weight, place)
                    vectors[v] = (x - deltas[v]) * weight * scale
            found = s.kept(sums, j * b.keys + line, self.first, masked, self.staged)
            self._keep(at["changes"], line, found, rows)
            return []

        s.product(
            b.keys, p.value_features,
            lambda line, f: k.load(at["values"], line * self.value_wide + f),
            lambda f, v: k.load(at["slopes"], f * rows + v * lanes, (lanes,), (1,)),
            None, finish,
        )  # fmt: skip

    def _over_rows(
        self, factors: str, lines: str, features: int, stride: int, target: Value
    ) -> None:
        """Add `Σ factors[key, row] lines[row]` to the sums of the block's keys at `target`."""
        lanes = self.stage.lanes
        wide, most = ceil_div(features, lanes), 4 if self.ctx.target.vector_bits >= 512 else 2
        for first in range(0, wide, most):
            vectors, skipped = min(most, wide - first), first * lanes
            self._columns(factors, lines, stride, target + skipped, skipped, vectors)

    def _columns(
        self, factors: str, lines: str, stride: int, target: Value, first: int, vectors: int
    ) -> None:
        k, b, at, lanes = self.k, self.blocking, self.at, self.stage.lanes

        def init(line: Value, v: int) -> Value:
            return k.load(self.found, target + line * stride + v * lanes, (lanes,), (1,))

        def finish(line: Value, sums: Rows, _: tuple[Value, ...]) -> list[Value]:
            for r, found in enumerate(sums):
                for v, x in enumerate(found):
                    k.store(self.found, target + (line + r) * stride + v * lanes, x, (1,))
            return []

        shape = register_tile(self.ctx.target, vectors, lanes)
        assert b.keys % shape.rows == 0, "sums of the block would reach into those that follow"
        self.stage.product(
            b.keys, b.rows,
            lambda line, row: k.load(at[factors], line * b.rows + row),
            lambda row, v: k.load(at[lines], row * stride + (first + v * lanes), (lanes,), (1,)),
            init, finish, shape=shape,
        )  # fmt: skip

    # The second launch

    def _combined(self) -> Call:
        """Add what the programs of a head of keys found."""
        p, splits, lanes = self.problem, self.plan.splits, self.blocking.tile.lanes
        s = Stage(self.ctx, p, self.blocking, "attention_gradient_sums")
        k, found = s.k, s.kernel.input(self.sums)
        outs = [s.kernel.output(v) for v in self.ctx.outputs[1:3]]
        chunks = ceil_div(p.keys, CHUNK)
        pid = k.program_id()
        head = pid // chunks
        s.locate(head // p.key_heads, head % p.key_heads, k.const("index", 0))
        first = (pid % chunks) * CHUNK
        base = head * (splits * self.each)
        parts = ((0, self.wide, p.features),
                 (self.padded_keys * self.wide, self.value_wide, p.value_features))  # fmt: skip

        def key(i: Value) -> None:
            for out, (start, stride, features) in zip(outs, parts, strict=True):
                self._add(s, found, base + start + i * stride, out, s.key_offset(i, features),
                          features)  # fmt: skip

        k.for_(first, k.min(first + CHUNK, p.keys), 1, key)
        work = p.batch * p.key_heads * self.each * splits / lanes
        return s.kernel.launch(p.batch * p.key_heads * chunks, work)

    def _add(
        self, s: Stage, found: tile.Buffer, start: Value, out: tile.Buffer, at: Value, features: int
    ) -> None:
        k, lanes = s.k, s.lanes

        def part(f: Value, mask: Value | None) -> None:
            total: Value | None = None
            for n in range(self.plan.splits):
                x = k.load(found, start + f + n * self.each, (lanes,), (1,))
                total = x if total is None else total + x
            assert total is not None
            k.store(out, at + f, k.convert(total, self.problem.dtype), (1,), mask)

        lane_loop(k, 0, features, lanes, part)
