"""Blocks of attention's operands on their way into scratch, and the places of rows and keys.

Rows of a program are pairs of a query and one of the heads that it computes together: row `r` is
head `r % group` of query `r // group`. Lanes run along rows; a tile of logits has a line for each
key. So products take a scalar of keys or values at a time as these lie in memory, and maxima and
sums of rows need nothing across lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax import tile
from amdjax.core.dims import is_multiple
from amdjax.core.integers import round_up
from amdjax.kernels.attention.dropping import kept_pair
from amdjax.kernels.attention.problem import LEAST_LOGIT, Attention
from amdjax.kernels.loops import lane_loop
from amdjax.kernels.products.contraction import TileShape
from amdjax.kernels.products.cpu.micro_kernel import Rows, multiply
from amdjax.kernels.shaped import ShapedContext, ShapedKernel
from amdjax.schedule.row_plan import counted

Value = tile.Value


@dataclass(frozen=True)
class Blocking:
    """How registers and caches divide an attention.

    Args:
      tile: lines of logits (keys) by vectors of rows in registers.
      keys: of a block.
      tiles: of rows that a program holds at once.
      group: heads that are rows of one program.
    """

    tile: TileShape
    keys: int
    tiles: int
    group: int

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return self.tile.columns

    def __str__(self) -> str:
        together = f", {self.group} heads together" if self.group > 1 else ""
        tiles = f"{counted(self.tiles, 'tile')} of {self.rows} rows"
        return f"{tiles} by blocks of {self.keys} keys{together}"


@dataclass(frozen=True)
class Bounds:
    """Blocks of keys that rows look at, from `start` to `stop`.

    Those from `whole_start` to `whole_stop` are seen by all rows as a whole.
    """

    start: Value
    stop: Value
    whole_start: Value
    whole_stop: Value


def steps(k: tile.Builder, stop: int, step: int, body: Callable[[Value], None]) -> None:
    """`body` at every step, written out where these are few."""
    if stop > 4 * step:
        k.for_(0, stop, step, body)
        return
    for i in range(0, stop, step):
        body(k.const("index", i))


def finite(k: tile.Builder, x: Value) -> Value:
    """A vector with zeros in place of what is not finite; of u16, the bits of bfloat16."""
    if x.dtype == "u16":
        infinity = k.const("u16", 0x7F80, x.shape)
        known = k.ne(x & infinity, infinity)
    else:
        known = k.op("is_finite", k.convert(x, "f32") if x.dtype.startswith("f8") else x)
    return k.select(known, x, k.const(x.dtype, 0, x.shape))


class Stage:
    """A kernel of an attention: where its program is, its operands, blocks of them in scratch."""

    def __init__(self, ctx: ShapedContext, problem: Attention, blocking: Blocking, name: str):
        self.ctx, self.problem, self.blocking = ctx, problem, blocking
        self.kernel: ShapedKernel = ctx.kernel(name)
        self.k = self.kernel.k
        self.dtype = problem.accumulate
        self.lanes = blocking.tile.lanes
        self.inputs = {
            name: self.kernel.input(x)
            for name, x in zip(("query", "key", "value", *problem.given), ctx.inputs)
        }
        self.row_count = problem.queries * blocking.group

    # Places

    def locate(self, batch: Value, key_head: Value, head: Value) -> None:
        """Say which entry of the batch and which heads the program computes, `head` the first."""
        self.batch, self.key_head, self.head = batch, key_head, head
        k, p = self.k, self.problem
        self.query_length, self.key_length = (
            k.convert(k.load(self.inputs[name], batch), "index") if name in p.given else None
            for name in ("query_lengths", "key_value_lengths")
        )
        self.logit_factor, self.out_factor = (
            k.convert(k.load(self.inputs["factors"], batch * 2 + i), self.dtype)
            if "factors" in p.given else None
            for i in (0, 1)
        )  # fmt: skip

    def query_of(self, row: Value) -> Value:
        return row // self.blocking.group if self.blocking.group > 1 else row

    def row_offset(self, row: Value, features: int) -> Value:
        """Of a row in an array `(batch, queries, heads, features)`."""
        p, group = self.problem, self.blocking.group
        head = self.head + row % group if group > 1 else self.head
        return ((self.batch * p.queries + self.query_of(row)) * p.heads + head) * features

    def key_offset(self, key: Value, features: int) -> Value:
        """Of a key in an array `(batch, keys, key_heads, features)`."""
        p = self.problem
        return ((self.batch * p.keys + key) * p.key_heads + self.key_head) * features

    def statistic_offset(self, row: Value) -> Value:
        """Of a row in an array `(batch, heads, queries)`."""
        p, group = self.problem, self.blocking.group
        head = self.head + row % group if group > 1 else self.head
        return (self.batch * p.heads + head) * p.queries + self.query_of(row)

    def places(self, base: Value) -> Value:
        """The rows of a vector that starts at `base`, beyond the last one that one again."""
        k, n = self.k, self.lanes
        rows = k.broadcast(k.convert(base, "i32"), (n,)) + k.iota(n, "i32")
        return k.min(rows, self.row_count - 1)

    def bounds(self, first: Value, last: Value) -> Bounds:
        """The blocks that rows from `first` to `last` look at."""
        k, p = self.k, self.problem
        block = self.blocking.keys
        low, high = k.const("index", 0), k.const("index", p.keys)
        whole_low, whole_high = low, high
        t0, t1 = self.query_of(first), self.query_of(last)
        if p.is_causal:
            high, whole_high = k.min(t1 + 1, high), k.min(t0 + 1, whole_high)
        if p.window is not None:
            left, right = p.window
            low, whole_low = k.max(t0 - left, 0), k.max(t1 - left, 0)
            high = k.min(k.max(t1 + (right + 1), 0), high)
            whole_high = k.min(k.max(t0 + (right + 1), 0), whole_high)
        if self.key_length is not None:
            length = k.max(self.key_length, 0)
            high, whole_high = k.min(high, length), k.min(whole_high, length)
        none = k.const("index", 0)
        if "mask" in p.given:
            whole_high = none
        if self.query_length is not None:
            whole_high = k.select(t1 < self.query_length, whole_high, none)
            high = k.select(t0 < self.query_length, high, none)
        up = block - 1
        return Bounds(low // block, (high + up) // block, (whole_low + up) // block,
                      whole_high // block)  # fmt: skip

    # Scratch

    def copy_lines(
        self,
        source: tile.Buffer,
        offset: Callable[[Value], Value],
        count: Value,
        lines: int,
        features: int,
        target: tile.Buffer,
        stride: int,
        used: Value | None = None,
    ) -> None:
        """Lines of features into scratch, zeros behind them and for lines from `count` on.

        They get the dtype of the scratch, unless that holds their bits. What is not finite in lines
        from `used` on becomes zero.
        """
        k, dtype = self.k, target.dtype
        if dtype.startswith("u"):
            source = tile.Buffer(source.name, dtype, source.role, source.size)
        lanes = self.lanes * tile.itemsize(self.dtype) // tile.itemsize(dtype)
        padded = round_up(features, lanes)
        zero = k.const(dtype, 0, (lanes,))
        tail = None
        if features % lanes:
            tail = k.iota(lanes, "i32") < k.const("i32", features % lanes, (lanes,))

        def copy(line: Value, is_used: bool = True) -> None:
            at, to = offset(line), line * stride

            def vector(f: Value, mask: Value | None = None) -> None:
                x = k.load(source, at + f, (lanes,), (1,), mask)
                if not is_used:
                    x = finite(k, x)
                k.store(target, to + f, k.convert(x, dtype), (1,))

            steps(k, features // lanes * lanes, lanes, vector)
            if tail is not None:
                vector(k.const("index", padded - lanes), tail)

        def clear(line: Value) -> None:
            start = line * stride
            steps(k, padded, lanes, lambda f: k.store(target, start + f, zero, (1,)))

        if used is None:
            k.for_(0, count, 1, copy)
        else:
            k.for_(0, used, 1, copy)
            k.for_(used, count, 1, lambda line: copy(line, False))
        k.for_(count, lines, 1, clear)

    def turn(
        self, source: tile.Buffer, stride: int, target: tile.Buffer, at: Value, features: int
    ) -> None:
        """Lines of a tile of rows into lanes: `target[f * rows + row]`."""
        k, lanes, rows = self.k, self.lanes, self.blocking.rows

        def square(f: Value, v: Value) -> None:
            x = k.load(source, f + v * stride, (lanes, lanes), (1, stride))
            k.store(target, at + (f * rows + v), x, (rows, 1))

        self._squares(features, square)

    def copy_block(
        self, name: str, block: Value, features: int, target: tile.Buffer, stride: int
    ) -> None:
        """The keys or values of a block into scratch."""
        k, p, b = self.k, self.problem, self.blocking
        first = block * b.keys
        count = k.min(k.const("index", p.keys) - first, b.keys)
        offset = lambda i: self.key_offset(first + i, features)
        used = None
        if self.key_length is not None:
            used = k.min(k.max(self.key_length - first, 0), count)
        self.copy_lines(self.inputs[name], offset, count, b.keys, features, target, stride, used)

    def turn_back(
        self, source: tile.Buffer, at: Value, features: int, target: tile.Buffer, stride: int,
        factors: Callable[[Value], Value] | None = None,
    ) -> None:  # fmt: skip
        """What `turn` undoes, times a factor for each row: `factors` of a vector's first one."""
        k, lanes, rows = self.k, self.lanes, self.blocking.rows

        def square(f: Value, v: Value) -> None:
            x = k.load(source, at + (f * rows + v), (lanes, lanes), (rows, 1))
            if factors is not None:
                x = x * k.broadcast(k.expand(factors(v), 0), (lanes, lanes))
            k.store(target, f + v * stride, x, (1, stride))

        self._squares(features, square)

    def _squares(self, features: int, body: Callable[[Value, Value], None]) -> None:
        """`body(feature, row)` for the squares of a tile: loops, as turning one takes much code."""
        k, lanes = self.k, self.lanes
        across = lambda v: k.for_(0, round_up(features, lanes), lanes, lambda f: body(f, v))
        k.for_(0, self.blocking.rows, lanes, across)

    def store_line(
        self, source: tile.Buffer, start: Value, target: tile.Buffer, at: Value, features: int
    ) -> None:
        """A line of scratch to memory, in the dtype of the operands."""
        k, lanes = self.k, self.lanes

        def part(f: Value, mask: Value | None) -> None:
            x = k.load(source, start + f, (lanes,), (1,))
            k.store(target, at + f, k.convert(x, self.problem.out_dtype), (1,), mask)

        lane_loop(k, 0, features, lanes, part)

    # Products

    def product(
        self,
        lines: int,
        depth: int,
        scalar: Callable[[Value, Value], Value],
        vector: Callable[[Value, int], Value],
        init: Callable[[Value, int], Value] | None,
        finish: Callable[[Value, Rows, tuple[Value, ...]], Sequence[Value]],
        carried: Sequence[Value] = (),
        shape: TileShape | None = None,
    ) -> Sequence[Value]:
        """`Σ_s scalar(line, s) vector(s, v)` for all lines, a register tile at a time.

        Args:
          lines: as many, rounded up to whole register tiles.
          depth: steps.
          scalar: of a line and a step.
          vector: of a step and the number of a vector.
          init: what sums begin with, of a line and the number of a vector; None means zero.
          finish: receives the first line, sums of a register tile, and what is carried.
          carried: through all register tiles.
          shape: of the register tile; by default that of logits.
        """
        k, shape = self.k, shape or self.blocking.tile
        high = shape.rows

        def part(line: Value, *values: Value) -> Sequence[Value]:
            start = None
            if init is not None:
                start = [[init(line + r, v) for v in range(shape.vectors)] for r in range(high)]
            sums = multiply(
                k, shape, self.dtype, depth, lambda s, r: scalar(line + r, s), vector, start
            )
            return finish(line, sums, values)

        return k.for_(0, round_up(lines, high), high, part, carried)

    # Logits

    @property
    def always_masked(self) -> bool:
        """Whether no block of keys is known to be seen as a whole."""
        return "mask" in self.problem.given

    @property
    def never_masked(self) -> bool:
        """Whether all pairs of queries and keys take part, and blocks are full of keys."""
        p = self.problem
        bounded = p.is_masked_by_position or self.always_masked
        return not bounded and is_multiple(p.keys, self.blocking.keys)

    def logits(
        self, products: Rows, key: Value, base: Value, masked: Value, staged: Staged
    ) -> list[list[Value]]:
        """Products of a key and those that follow it as logits: scaled, with bias, and masked.

        Args:
          products: for each key, vectors of the rows from `base` on.
          key: the first one.
          base: the first row.
          masked: whether some pairs may take no part.
          staged: bias and mask.
        """
        k, p, lanes = self.k, self.problem, (self.lanes,)

        def scaled(x: Value, key: Value, base: Value) -> Value:
            x = x * k.const(self.dtype, p.scale, lanes)
            if self.logit_factor is not None:
                x = x * k.broadcast(self.logit_factor, lanes)
            return x + staged.read("bias", key, base) if "bias" in p.given else x

        def hidden(x: Value, key: Value, base: Value) -> Value:
            keep = self._keep(key, base, staged)
            if keep is not None:
                x = k.select(keep, x, k.const(self.dtype, LEAST_LOGIT, lanes))
            if not is_multiple(p.keys, self.blocking.keys):
                absent = k.const(self.dtype, float("-inf"), lanes)
                x = k.select(k.broadcast(key < p.keys, lanes), x, absent)
            return x

        found = self._each(products, key, base, scaled)
        return self._if_masked(masked, found, lambda: self._each(found, key, base, hidden))

    def kept(
        self, values: Rows, key: Value, base: Value, masked: Value, staged: Staged
    ) -> list[list[Value]]:
        """Values of pairs, as `logits` takes them, with zeros for those that take no part."""
        k = self.k

        def one(x: Value, key: Value, base: Value) -> Value:
            keep = self._keep(key, base, staged)
            return x if keep is None else k.select(keep, x, k.const(x.dtype, 0, x.shape))

        return self._if_masked(masked, values, lambda: self._each(values, key, base, one))

    def _each(
        self, values: Rows, key: Value, base: Value, change: Callable[[Value, Value, Value], Value]
    ) -> list[list[Value]]:
        """`change(value, key, first row)` for vectors of keys."""
        return [
            [change(x, key + r, base + v * self.lanes) for v, x in enumerate(vectors)]
            for r, vectors in enumerate(values)
        ]

    def _if_masked(
        self, masked: Value, values: Rows, change: Callable[[], Rows]
    ) -> list[list[Value]]:
        """What `change` makes of values where some may take no part.

        It is asked for each tile of registers: whole blocks and others share their code.
        """
        if self.never_masked:
            return [list(vectors) for vectors in values]
        if self.always_masked:
            return [list(vectors) for vectors in change()]
        flat = lambda rows: [x for vectors in rows for x in vectors]
        found = self.k.if_(masked, lambda: flat(change()), lambda: flat(values))
        wide = len(values[0])
        return [list(found[at : at + wide]) for at in range(0, len(found), wide)]

    def not_dropped(self, key: Value, base: Value) -> tuple[Value, Value]:
        """Whether pairs of the rows from `base` with a key and the next one are not dropped."""
        k, p, group = self.k, self.problem, self.blocking.group
        rows = self.places(base)
        heads = k.broadcast(k.convert(self.head, "i32"), (self.lanes,))
        if group > 1:
            heads = heads + rows % group
        numbers = heads * p.queries + rows // group
        seeds = [k.load(self.inputs["seeds"], self.batch * 2 + i) for i in (0, 1)]
        return kept_pair(k, seeds, k.convert(numbers, "u32"), key // 2, p.rate)

    def _keep(self, key: Value, base: Value, staged: Staged) -> Value | None:
        k, p, lanes = self.k, self.problem, (self.lanes,)
        rows = self.places(base)
        queries = rows // self.blocking.group if self.blocking.group > 1 else rows
        column = k.broadcast(k.convert(key, "i32"), lanes)
        conditions = []
        if "mask" in p.given:
            conditions.append(k.ne(staged.read("mask", key, base), 0))
        if p.is_causal:
            conditions.append(queries >= column)
        if p.window is not None:
            left, right = p.window
            conditions += [column >= queries - left, column <= queries + right]
        if self.query_length is not None:
            length = k.convert(self.query_length, "i32")
            conditions.append(queries < k.broadcast(length, lanes))
        if self.key_length is not None:
            length = k.convert(self.key_length, "i32")
            conditions.append(column < k.broadcast(length, lanes))
        keep: Value | None = None
        for condition in conditions:
            keep = condition if keep is None else keep & condition
        return keep


class Staged:
    """Bias and mask of a block of keys and a tile of rows, in scratch where they differ by both."""

    def __init__(self, stage: Stage):
        self.stage, self.buffers = stage, dict[str, tile.Buffer]()
        p, b, k = stage.problem, stage.blocking, stage.k
        self.strides = {"bias": p.bias, "mask": p.mask}
        for name in ("bias", "mask"):
            if name in p.given and self.strides[name][2]:
                dtype = stage.dtype if name == "bias" else "u8"
                self.buffers[name] = k.scratch(name, dtype, b.keys * b.rows)

    def prepare(self, first: Value, block: Value) -> None:
        """Bring what the rows from `first` and the keys of a block need."""
        self.first, self.key = first, block * self.stage.blocking.keys
        for name in self.buffers:
            self._bring(name)

    def _start(self, name: str, head: Any) -> Value:
        batch, by_head = self.strides[name][:2]
        out = self.stage.k.const("index", 0)
        if batch:
            out = out + self.stage.batch * batch
        return out + head * by_head if by_head else out

    def _bring(self, name: str) -> None:
        s, target = self.stage, self.buffers[name]
        k, b, p, lanes = s.k, s.blocking, s.problem, s.lanes
        by_head, by_query, by_key = self.strides[name][1:]
        source = s.inputs[name]
        if name == "mask":
            source = tile.Buffer(source.name, "u8", source.role, source.size)
        last_key = k.const("index", p.keys - 1)

        def gathered() -> None:
            def line(j: Value) -> None:
                key = k.min(self.key + j, last_key) * by_key
                start = k.broadcast(self._start(name, s.head) + key, (lanes,))
                for v in range(0, b.rows, lanes):
                    rows = s.places(self.first + v)
                    queries = rows // b.group if b.group > 1 else rows
                    at = start + k.convert(queries, "index") * by_query
                    if b.group > 1 and by_head:
                        at = at + k.convert(rows % b.group, "index") * by_head
                    x = k.load_at(source, at)
                    k.store(target, j * b.rows + v, k.convert(x, target.dtype), (1,))

            k.for_(0, b.keys, 1, line)

        def turned() -> None:
            start = self._start(name, s.head) + self.first * by_query + self.key * by_key

            def square(j: Value) -> None:
                for v in range(0, b.rows, lanes):
                    at = start + (j * by_key + v * by_query)
                    x = k.load(source, at, (lanes, lanes), (by_key, by_query))
                    x = k.convert(x, target.dtype)
                    k.store(target, j * b.rows + v, x, (b.rows, 1))

            k.for_(0, b.keys, lanes, square)

        if b.group > 1 or by_key != 1 or b.keys % lanes:
            gathered()
            return
        inside = ((self.first + b.rows) <= s.row_count) & ((self.key + b.keys) <= p.keys)
        k.if_(inside, turned, gathered)

    def read(self, name: str, key: Value, base: Value) -> Value:
        """A vector of the rows from `base` at a key."""
        s, k = self.stage, self.stage.k
        lanes = s.lanes
        if name in self.buffers:
            at = (key - self.key) * s.blocking.rows + (base - self.first)
            return k.load(self.buffers[name], at, (lanes,), (1,))
        by_head, _, by_key = self.strides[name][1:]
        source = s.inputs[name]
        if name == "mask":
            source = tile.Buffer(source.name, "u8", source.role, source.size)
        dtype = s.dtype if name == "bias" else "u8"
        column = k.min(key, s.problem.keys - 1) * by_key
        at = self._start(name, s.head) + column
        if s.blocking.group > 1 and by_head:
            heads = k.convert(s.places(base) % s.blocking.group, "index") * by_head
            x = k.load_at(source, k.broadcast(at, (lanes,)) + heads)
            return k.convert(x, dtype)
        return k.broadcast(k.convert(k.load(source, at), dtype), (lanes,))
