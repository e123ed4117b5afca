"""Attention of bfloat16 on AMX, the matrix unit of x86 CPUs.

Both products of a tile of rows and a block of keys go through memory, whose operands lie as
`kernels/products/cpu/amx.py` says: keys by line, values turned, queries and weights in words of two
neighbors in depth. Weights are rounded to bfloat16 before they meet the values, as in the
definition; their sum is of those before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from amdjax import tile
from amdjax.core.dims import capped, size_hint
from amdjax.core.integers import ceil_div, round_up
from amdjax.kernels.attention.cpu_blocks import AttentionPlan, Forward, blocking_cost
from amdjax.kernels.attention.problem import MOST_SCRATCH, Attention
from amdjax.kernels.attention.staging import Blocking, steps
from amdjax.kernels.products.contraction import TileShape, private_cache
from amdjax.kernels.shaped import Call, ShapedContext
from amdjax.schedule.search import Solver
from amdjax.targets.cpu import AMX_ROWS, CpuTarget

Value = tile.Value

ROWS = 2 * AMX_ROWS  # of a tile, and lines of a square that registers hold
DEPTH = 32  # of a step of the unit, in elements
EXPONENTIALS = 100  # cycles of the weights of a key and a tile of rows, conversions included
KEYS = 128  # of a block, in which sums of values stay in registers


@dataclass(frozen=True)
class AmxAttentionPlan(AttentionPlan):
    """Blocks of queries by blocks of keys, which AMX multiplies."""

    def emit(self, ctx: ShapedContext) -> list[Call]:
        return [AmxForward(ctx, self.problem, self.blocking).call()]

    def __str__(self) -> str:
        return f"{super().__str__()} on AMX"


def amx_plans(problem: Attention, target: CpuTarget) -> Sequence[AmxAttentionPlan]:
    """Plans for AMX; none where machine or dtype have no use of it."""
    if problem.dtype != "bf16" or "bf16" not in target.matrix_dtypes or problem.rate:
        return []
    features = round_up(max(problem.features, problem.value_features), ROWS)
    fitting = max(1, private_cache(target) // 2 // (2 * ROWS * features * 4))
    shape, found = TileShape(8, 2, AMX_ROWS), []
    for group in dict.fromkeys((1, problem.group)):
        rows, keys = problem.queries * group, capped(round_up(problem.keys, ROWS), KEYS)
        for tiles in (1, 2, 4, 8):
            scratch = (6 * keys + (6 * tiles + 8) * ROWS) * features
            if tiles <= min(fitting, ceil_div(size_hint(rows), ROWS)) and scratch <= MOST_SCRATCH:
                found.append(AmxAttentionPlan(problem, Blocking(shape, keys, tiles, group)))
    return found


def amx_cost(problem: Attention, plan: AmxAttentionPlan, target: CpuTarget) -> float:
    """Cycles: products take a fraction of those of lanes, and then exponentials the most."""
    products = blocking_cost(problem, plan.blocking, plan.programs, target, 2) / 4
    tiles = ceil_div(problem.queries * plan.blocking.group, ROWS)
    lines = problem.batch * problem.heads / plan.blocking.group * tiles * problem.keys
    return products + EXPONENTIALS * lines / min(plan.programs, target.threads)


AMX = Solver("AMX", amx_plans, amx_cost, approximate=True)


class AmxForward(Forward):
    """The kernel: for each block of keys all tiles of the program's rows."""

    def _scratch(self) -> None:
        k, p, b = self.k, self.problem, self.blocking
        self.wide, self.value_wide = (round_up(n, DEPTH) for n in (p.features, p.value_features))
        # Whole cache lines, an odd number of them: lines then lie in different cache sets.
        self.key_stride, self.value_stride = (
            (n // DEPTH + 1 | 1) * DEPTH for n in (self.wide, b.keys)
        )
        bits = max(b.keys * self.value_wide, b.rows * self.wide)
        self.bits = k.scratch("bits", "u16", bits)
        self.keys = k.scratch("keys", "u16", b.keys * self.key_stride)
        self.values = k.scratch("values", "u16", self.value_wide * self.value_stride)
        self.queries = k.scratch("queries", "u16", b.tiles * self.wide * b.rows)
        self.words = k.scratch("words", "i32", b.keys // 2 * b.rows)
        self._row_scratch()

    def _bring_queries(self, i: Value) -> None:
        """Queries of a tile in words: line `f` holds features 2f and 2f + 1 of all rows."""
        k, s, p, b = self.k, self.stage, self.problem, self.blocking
        first, count = self._rows_from(i)
        offset = lambda r: s.row_offset(first + r, p.features)
        s.copy_lines(s.inputs["query"], offset, count, b.rows, p.features, self.bits, self.wide)
        source, target = (replace(x, dtype="i32") for x in (self.bits, self.queries))
        stride, n = self.wide // 2, AMX_ROWS
        start = i * (stride * b.rows)

        def part(f: Value) -> None:
            for r in range(0, b.rows, n):
                square = k.load(source, f + r * stride, (n, n), (1, stride))
                k.store(target, start + (f * b.rows + r), square, (b.rows, 1))

        steps(k, stride, n, part)

    def _copy_keys(self, j: Value) -> None:
        k, s, p, b = self.k, self.stage, self.problem, self.blocking
        s.copy_block("key", j, p.features, self.keys, self.key_stride)
        s.copy_block("value", j, p.value_features, self.bits, self.value_wide)
        n, wide = AMX_ROWS, self.value_wide

        def line(f: Value) -> None:
            def square(key: Value) -> None:
                x = k.load(self.bits, key * wide + f, (n, n), (1, wide))
                k.store(self.values, f * self.value_stride + key, x, (self.value_stride, 1))

            steps(k, b.keys, n, square)

        steps(k, wide, n, line)

    def _multiply(
        self, lines: int, a: tuple[tile.Buffer, int], b: tuple[tile.Buffer, Value],
        c: tuple[tile.Buffer, Value], depth: int, fresh: bool,
    ) -> None:  # fmt: skip
        """`c += a @ b`, of `lines` lines `a[1]` elements apart, a square of registers at a time."""
        k = self.k

        def square(line: Value) -> None:
            k.amx_product(
                ("bf16", "bf16"), (a[0], line * a[1], a[1]), b, (c[0], c[1] + line * ROWS),
                (ROWS, ROWS), k.const("index", depth // DEPTH), k.const("bool", fresh),
            )  # fmt: skip

        k.for_(0, lines, ROWS, square)

    def _tile(self, i: Value, j: Value, masked: Value) -> None:
        k, s, b, lanes = self.k, self.stage, self.blocking, self.stage.lanes
        rows, zero = b.rows, self.k.const("index", 0)
        first = self.first + i * rows
        self.staged.prepare(first, j)
        queries = i * (self.wide * rows)
        self._multiply(b.keys, (self.keys, self.key_stride), (self.queries, queries),
                       (self.weights, zero), self.wide, True)  # fmt: skip
        vectors = range(0, rows, lanes)
        greatest = [k.load(self.maximum, i * rows + v, (lanes,), (1,)) for v in vectors]

        def logits(key: Value, *found: Value) -> list[Value]:
            places = [key * rows + v for v in vectors]
            sums = [k.load(self.weights, at, (lanes,), (1,)) for at in places]
            (made,) = s.logits([sums], j * b.keys + key, first, masked, self.staged)
            for at, x in zip(places, made, strict=True):
                k.store(self.weights, at, x, (1,))
            return [k.max(before, x) for before, x in zip(found, made, strict=True)]

        most = list(k.for_(0, b.keys, 1, logits, greatest))
        shrink = [k.op("exp", old - new) for old, new in zip(greatest, most, strict=True)]
        self._exponentials(i, j, most, shrink)
        sums = i * (self.value_wide * rows)

        def smaller(line: Value) -> None:
            for v, factor in zip(vectors, shrink, strict=True):
                at = sums + line * rows + v
                k.store(self.sums, at, k.load(self.sums, at, (lanes,), (1,)) * factor, (1,))

        k.for_(0, self.value_wide, 1, smaller)
        self._multiply(self.value_wide, (self.values, self.value_stride), (self.words, zero),
                       (self.sums, sums), b.keys, False)  # fmt: skip

    def _exponentials(self, i: Value, j: Value, most: list[Value], shrink: list[Value]) -> None:
        """Weights of the block in words of neighboring keys, and their sums."""
        k, b, lanes = self.k, self.blocking, self.stage.lanes
        rows, vectors = b.rows, range(b.tile.vectors)

        def pair(word: Value, *sums: Value) -> list[Value]:
            out = []
            for v in vectors:
                weights = [
                    k.op("exp", k.load(self.weights, at, (lanes,), (1,)) - most[v])
                    for at in ((word * 2 + n) * rows + v * lanes for n in range(2))
                ]
                low, high = (
                    k.convert(k.bitcast(k.convert(x, "bf16"), "u16"), "u32") for x in weights
                )
                both = low | (high << k.const("u32", 16, (lanes,)))
                k.store(self.words, word * rows + v * lanes, k.bitcast(both, "i32"), (1,))
                out.append(sums[v] + weights[0] + weights[1])
            return out

        zero = k.const(self.dtype, 0, (lanes,))
        sums = k.for_(0, b.keys // 2, 1, pair, [zero for _ in vectors])
        self._keep_statistics(i, most, shrink, sums)
