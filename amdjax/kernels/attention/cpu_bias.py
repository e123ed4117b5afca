"""The gradient of attention's bias on CPUs: gradients of logits anew, summed where it is broadcast.

A program has a part of the bias that no other has: an entry of its batch and a head as far as it
has these, and a tile of its queries. It goes through all rows that read the part, in order, and
sums in a workspace as large as the bias. So nothing as large as all pairs is kept, and sums have
one order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.integers import ceil_div
from amdjax.kernels.attention.cpu_blocks import blockings
from amdjax.kernels.attention.cpu_gradient import AttentionGradientPlan, Gradient
from amdjax.kernels.attention.problem import Attention
from amdjax.kernels.attention.staging import Blocking, Staged
from amdjax.kernels.loops import lane_loop
from amdjax.kernels.shaped import Call, ShapedContext, Temp
from amdjax.schedule.row_plan import counted
from amdjax.targets.cpu import CpuTarget

Value = tile.Value


@dataclass(frozen=True)
class BiasGradientPlan:
    """Parts of the bias, each of one program.

    Args:
      problem: the attention.
      blocking: how rows and keys are cut; a program has one head at a time.
    """

    problem: Attention
    blocking: Blocking

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [BiasGradient(ctx, self).call()]

    @property
    def parts(self) -> tuple[int, int, int]:
        """Entries of the batch, heads, and tiles of queries that programs have each for itself."""
        p = self.problem
        sizes = p.batch, p.heads, ceil_div(p.queries, self.blocking.rows)
        batch, heads, tiles = (n if s else 1 for n, s in zip(sizes, p.bias, strict=False))
        return batch, heads, tiles

    @property
    def programs(self) -> int:
        batch, heads, tiles = self.parts
        return batch * heads * tiles

    def __str__(self) -> str:
        b = self.blocking
        blocks = f"{b.rows} rows by blocks of {b.keys} keys"
        return f"gradient of its bias, {counted(self.programs, 'program')} of {blocks}"


def bias_gradient_plan(problem: Attention, target: CpuTarget) -> BiasGradientPlan | None:
    """The plan for the gradient of a bias; None for more features than scratch has room for."""
    found = [b for b in blockings(problem, target, 6, 1) if b.group == 1]
    return BiasGradientPlan(problem, found[0]) if found else None


class BiasGradient(Gradient):
    """The kernel: gradients of logits by tiles of rows, summed in the shape of the bias."""

    def __init__(self, ctx: ShapedContext, plan: BiasGradientPlan):
        super().__init__(ctx, AttentionGradientPlan(plan.problem, plan.blocking, 1))
        self.factor, self.parts, self.programs = 1.0, plan.parts, plan.programs
        p, b = plan.problem, plan.blocking
        self.by_query, self.by_key = (bool(s) for s in p.bias[2:])
        #: Elements of a line of sums, one line for each key that the bias tells apart.
        self.width = b.rows if self.by_query else b.tile.lanes
        self.region = self.width * (self.padded_keys if self.by_key else 1)
        self.sums = Temp(p.accumulate, self.programs * self.region)

    def call(self) -> Call:
        """The launch."""
        p = self.problem
        s = self._begin("attention_bias_gradient")
        self.out, self.found = s.kernel.output(self.ctx.outputs[3]), s.kernel.inout(self.sums)
        self._scratch()
        k, b = self.k, self.blocking
        self.turned = k.scratch("turned", self.dtype, b.rows * b.keys)
        pid = k.program_id()
        _, heads, tiles = self.parts
        part = pid // (heads * tiles), (pid // tiles) % heads, pid % tiles
        self.region_at = pid * self.region
        self._clear(self.found, self.region_at, self.region)
        self.staged = Staged(s)

        def rows(batch: Value) -> None:
            self._along(p.heads, p.bias[1], part[1], lambda head: one(batch, head))

        def one(batch: Value, head: Value) -> None:
            s.locate(batch, head // p.group, head)
            self._along(ceil_div(p.queries, b.rows), p.bias[2], part[2], self._sum_rows)

        self._along(p.batch, p.bias[0], part[0], rows)
        at = part[0] * p.bias[0] + part[1] * p.bias[1]
        self._finish(at, part[2] * b.rows)
        features = p.features + p.value_features
        cycles = 2 / 4 * p.batch * p.heads * p.queries * p.keys * features / s.lanes
        return s.kernel.launch(self.programs, cycles / 2.5 / (2 if p.is_causal else 1))

    def _along(self, count: int, stride: int, own: Value, body: Callable[[Value], None]) -> None:
        """`body` for the program's own number where the bias has an axis, else for all."""
        if stride:
            body(own)
        else:
            self.k.for_(0, count, 1, body)

    def _sum_rows(self, i: Value) -> None:
        count = self._bring_rows(i)

        def block(j: Value, masked: Value) -> None:
            self.staged.prepare(self.first, j)
            self._weights(j, masked)
            self._changes(j, masked)
            self._accumulate(j)

        self._each_block(count, block)

    def _accumulate(self, j: Value) -> None:
        """Add the gradients of a block's logits."""
        k, b, lanes = self.k, self.blocking, self.stage.lanes
        vectors = range(0, b.rows, lanes)

        def keep(at: Value, found: list[Value]) -> None:
            if not self.by_query:
                found = [sum(found[1:], found[0])]
            for v, x in zip(vectors, found, strict=False):
                before = k.load(self.found, at + v, (lanes,), (1,))
                k.store(self.found, at + v, before + x, (1,))

        def line(key: Value, *sums: Value) -> list[Value]:
            changes = self.at["changes"]
            found = [k.load(changes, key * b.rows + v, (lanes,), (1,)) for v in vectors]
            if self.by_key:
                keep(self.region_at + (j * b.keys + key) * self.width, found)
            return [x + y for x, y in zip(sums, found, strict=False)]

        zero = k.const(self.dtype, 0, (lanes,))
        totals = k.for_(0, b.keys, 1, line, [] if self.by_key else [zero for _ in vectors])
        if not self.by_key:
            keep(self.region_at, list(totals))

    def _finish(self, at: Value, first: Value) -> None:
        """Store the part, whose first element is at `at` but for its queries, from `first` on."""
        k, p, b = self.k, self.problem, self.blocking
        if not self.by_query:
            self._store_sums(at)
            return
        count = k.min(k.const("index", p.queries) - first, b.rows)
        start = at + first * p.bias[2]
        if self.by_key:
            blocks = ceil_div(p.keys, b.keys)
            k.for_(0, blocks, 1, lambda j: self._store_block(j, start, count))
            return

        def row(r: Value) -> None:
            self._store(start + r * p.bias[2], k.load(self.found, self.region_at + r))

        k.for_(0, count, 1, row)

    def _store(self, at: Value, x: Value, mask: Value | None = None) -> None:
        x = self.k.convert(x, self.problem.bias_dtype)
        self.k.store(self.out, at, x, (1,) * len(x.shape), mask)

    def _store_sums(self, at: Value) -> None:
        """A number for each key, or one for all, of what lanes have."""
        k, p, lanes = self.k, self.problem, self.stage.lanes

        def key(s: Value) -> None:
            x = k.load(self.found, self.region_at + s * lanes, (lanes,), (1,))
            self._store(at + s * p.bias[3], k.reduce("add", x))

        k.for_(0, p.keys if self.by_key else 1, 1, key)

    def _store_block(self, j: Value, at: Value, count: Value) -> None:
        """Rows of a block of keys."""
        k, p, b, s = self.k, self.problem, self.blocking, self.stage
        source = self.region_at + j * (b.keys * b.rows)
        s.turn_back(self.found, source, b.keys, self.turned, b.keys)
        rest = k.min(k.const("index", p.keys) - j * b.keys, b.keys)

        def row(r: Value) -> None:
            def part(f: Value, mask: Value | None) -> None:
                x = k.load(self.turned, r * b.keys + f, (s.lanes,), (1,))
                self._store(at + r * p.bias[2] + (j * b.keys + f), x, mask)

            lane_loop(k, 0, rest, s.lanes, part)

        k.for_(0, count, 1, row)
