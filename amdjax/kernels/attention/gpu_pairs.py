"""Which pairs of a block of queries and a block of keys take part, and their logits, on GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.core.dims import fits, is_multiple
from amdjax.kernels.attention.dropping import kept_pair
from amdjax.kernels.attention.problem import LEAST_LOGIT, Attention
from amdjax.kernels.gpu_loops import every

Value = tile.Value

LOG2_E = math.log2(math.e)
#: A product of pairs that take no part, where these are not scaled: exact times a factor.
_MASKED = -(2.0**100)
#: Products are scaled first if the scale is less: a masked one would be no great number else.
LEAST_SCALE = 2.0**-60


def always_has_key(p: Attention) -> bool:
    """Whether each query is known to take a key into account, and one with a finite logit."""
    if {"bias", "mask", "key_value_lengths"} & set(p.given):
        return False
    left, right = _reach(p)

    def count(t: int) -> int:
        last = p.keys - 1 if right is None else min(p.keys - 1, t + right)
        return last + 1 - (0 if left is None else max(0, t - left))

    return all(count(t) > 0 for t in (0, p.queries - 1))


@dataclass(frozen=True)
class Segment:
    """Blocks of keys, counted in blocks.

    Args:
      start, stop: the first, and the one behind the last.
      masked: whether some of their pairs may take no part.
    """

    start: Value
    stop: Value
    masked: bool


class Pairs:
    """The logits of one head.

    Args:
      k: the kernel.
      problem: the attention.
      inputs: buffers of operands by name.
      batch: the entry of the batch.
      head: of queries.
      key_axis: the axis of tiles along which keys are.
      masks_queries: whether queries that are padding take no part; else they are left to the end.
      row_heads: heads from `head` on that are rows of the only query, as they share their keys; if
        1, rows are queries.
    """

    def __init__(
        self, k: tile.Builder, problem: Attention, inputs: Mapping[str, tile.Buffer],
        batch: Value, head: Value, key_axis: int = 1, masks_queries: bool = False,
        row_heads: int = 1,
    ):  # fmt: skip
        self.row_heads = row_heads
        self.k, self.problem, self.inputs, self.key_axis = k, problem, inputs, key_axis
        self.batch, self.head, self.masks_queries = batch, head, masks_queries
        self.query_length, self.key_length = (
            k.convert(k.load(inputs[name], batch), "index") if name in problem.given else None
            for name in ("query_lengths", "key_value_lengths")
        )
        self.logit_factor, self.out_factor = (
            k.convert(k.load(inputs["factors"], batch * 2 + i), "f32")
            if "factors" in problem.given else None
            for i in (0, 1)
        )  # fmt: skip

    @property
    def factor(self) -> float:
        """What makes of a logit the exponent of two."""
        return LOG2_E if self._is_scaled else self.problem.scale * LOG2_E

    @property
    def masked(self) -> float:
        """The logit of pairs that take no part: where logits are scaled, that of the definition."""
        return LEAST_LOGIT if self._is_scaled else _MASKED

    @property
    def _is_scaled(self) -> bool:
        """Whether logits are scaled before the greatest of them is found."""
        p = self.problem
        return bool({"bias", "factors"} & set(p.given)) or not p.scale >= LEAST_SCALE

    def bound(self, greatest: Value) -> Value:
        """What `power` subtracts for these greatest logits."""
        if self._is_scaled:
            return greatest
        return greatest * self.k.const(greatest.dtype, self.factor, greatest.shape)

    def bound_of(self, maximum: Value) -> Value:
        """The same of what the forward pass returned of greatest logits."""
        k, shape = self.k, maximum.shape
        if self._is_scaled:
            return maximum
        bound = maximum * k.const(maximum.dtype, LOG2_E, shape)
        lowest = k.const(maximum.dtype, self.masked * self.factor, shape)
        return k.select(k.eq(maximum, LEAST_LOGIT), lowest, bound)

    def power(self, x: Value, bound: Value, axis: int) -> Value:
        """`exp` of what logits are above the greatest ones, whose bounds are spread along an axis.

        A bias may be the least number there is, which may be multiplied only when the greatest
        logit is subtracted.
        """
        k, factor = self.k, self.k.const(x.dtype, self.factor, x.shape)
        wide = k.broadcast(k.expand(bound, axis), x.shape)
        if self._is_scaled:
            exponent = (x - wide) * factor
        else:
            exponent = k.op("fma", x, factor, k.op("neg", wide))
        return k.op("exp2", exponent, rounded="f16")

    def shrink(self, before: Value, bound: Value) -> Value:
        """The factor of sums that are relative to the greatest logits before."""
        k, exponent = self.k, self.bound(before) - bound
        if self._is_scaled:
            exponent = exponent * k.const(before.dtype, self.factor, before.shape)
        return k.op("exp2", exponent, rounded="f16")

    def logits(self, x: Value, query: Value, key: Value, masked: bool, kept: Value | None) -> Value:
        """Products of queries and keys from these on as logits.

        Args:
          x: the products.
          query, key: the first.
          masked: whether some pairs may take no part.
          kept: which do; None for all.
        """
        k, p = self.k, self.problem
        there = self._exist(x.shape, query, key)
        if self._is_scaled:
            scale = k.const(x.dtype, p.scale, x.shape)
            if self.logit_factor is not None:
                scale = scale * k.broadcast(self.logit_factor, x.shape)
            if "bias" in p.given:
                bias = self._operand("bias", p.bias, x.shape, query, key, there)
                x = k.op("fma", x, scale, k.convert(bias, x.dtype))
            else:
                x = x * scale
        if not masked:
            return x
        if kept is not None:
            x = k.select(kept, x, k.const(x.dtype, self.masked, x.shape))
        inside = self._inside(x.shape, key)
        if inside is not None:
            x = k.select(inside, x, k.const(x.dtype, -math.inf, x.shape))
        return x

    def kept(self, shape: tuple[int, ...], query: Value, key: Value) -> Value | None:
        """Which pairs take part; None for all."""
        conditions = self._conditions(shape, query, key)
        if "mask" in self.problem.given:
            there = self._exist(shape, query, key)
            strides = self.problem.mask
            conditions.append(self._operand("mask", strides, shape, query, key, there))
        return every(self.k, conditions)

    def not_dropped(self, shape: tuple[int, ...], query: Value, key: Value) -> Value | None:
        """Which pairs from these on are not dropped; None for all."""
        k, p = self.k, self.problem
        if not p.rate:
            return None
        halves = tuple(n // 2 if a == self.key_axis else n for a, n in enumerate(shape))
        seeds = [k.load(self.inputs["seeds"], self.batch * 2 + i) for i in (0, 1)]
        first = self.head * p.queries + query
        rows = self._places(halves, 1 - self.key_axis, first, "u32")
        block = self._places(halves, self.key_axis, key // 2, "u32")
        kept = kept_pair(k, seeds, rows, block, p.rate)
        return k.interleave(*kept, self.key_axis)

    def counted(self, x: Value, first: Value) -> Value:
        """Keys or values without what is not finite behind their length: zero times that is NaN."""
        k, length = self.k, self.key_length
        if length is None:
            return x
        keys = x.shape[0]
        there = k.iota(keys) + k.broadcast(first, (keys,)) < k.broadcast(length, (keys,))
        finite = k.op("is_finite", k.convert(x, "f32"))
        counts = k.broadcast(k.expand(there, 1), x.shape) | finite
        return k.select(counts, x, k.const(x.dtype, 0, x.shape))

    # Positions

    def _places(self, shape: tuple[int, ...], axis: int, first: Value, dtype: str = "i32") -> Value:
        k, n = self.k, shape[axis]
        line = k.iota(n, dtype) + k.broadcast(k.convert(first, dtype), (n,))
        return k.broadcast(k.expand(line, 1 - axis), shape)

    def _queries(self, shape: tuple[int, ...], query: Value) -> Value:
        if self.row_heads > 1:
            return self.k.const("i32", 0, shape)
        return self._places(shape, 1 - self.key_axis, query)

    def _conditions(self, shape: tuple[int, ...], query: Value, key: Value) -> list[Value]:
        """What decides by position whether a pair takes part."""
        k, p, conditions = self.k, self.problem, list[Value]()
        columns = self._places(shape, self.key_axis, key)
        left, right = _reach(p)
        if right is not None:
            rows = self._queries(shape, query)
            conditions.append(columns <= (rows + right if right else rows))
            if left is not None:
                conditions.append(rows <= columns + left)
        if self.key_length is not None:
            length = k.convert(self.key_length, "i32")
            conditions.append(columns < k.broadcast(length, shape))
        if self.masks_queries and self.query_length is not None:
            rows = self._queries(shape, query)
            length = k.convert(self.query_length, "i32")
            conditions.append(rows < k.broadcast(length, shape))
        return conditions

    def _inside(self, shape: tuple[int, ...], key: Value) -> Value | None:
        """Which keys there are, if blocks reach over the last one."""
        if is_multiple(self.problem.keys, shape[self.key_axis]):
            return None
        return self._places(shape, self.key_axis, key) < self.problem.keys

    def _exist(self, shape: tuple[int, ...], query: Value, key: Value) -> Value | None:
        """Which pairs of queries and keys there are, if not all."""
        inside = [x for x in (self._inside(shape, key),) if x is not None]
        rows = self.problem.queries * self.row_heads
        if not is_multiple(rows, shape[1 - self.key_axis]):
            inside.append(self._places(shape, 1 - self.key_axis, query) < rows)
        return every(self.k, inside)

    def _operand(
        self, name: str, strides: Sequence[int], shape: tuple[int, ...], query: Value, key: Value,
        there: Value | None,
    ) -> Value:  # fmt: skip
        """A tile of the bias or the mask."""
        by_row = strides[1 if self.row_heads > 1 else 2]
        at = self.batch * strides[0] + self.head * strides[1]
        at = at + query * by_row + key * strides[3]
        across = (by_row, strides[3]) if self.key_axis else (strides[3], by_row)
        return self.k.load(self.inputs[name], at, shape, across, there, eager=there is not None)


def segments(pairs: Pairs, first: Value, rows: int, columns: int) -> list[Segment]:
    """The blocks of columns that a block of rows needs, those in the middle without masks.

    Args:
      pairs: of the head; rows are queries where keys lie across, else keys.
      first: row of the block.
      rows: how many are in it.
      columns: how many are in a block of columns.
    """
    k, p = pairs.k, pairs.problem
    of_queries = pairs.key_axis == 1
    count, others = (p.queries, p.keys) if of_queries else (p.keys, p.queries)
    zero, end = k.const("index", 0), k.const("index", others)
    if pairs.row_heads > 1:
        first, rows = zero, 1
    last = k.min(first + (rows - 1), count - 1)
    start, stop, inner_start, inner_stop = zero, end, zero, end
    left, right = _reach(p) if of_queries else _reach(p)[::-1]
    if pairs.key_length is not None and of_queries:
        stop = inner_stop = k.max(k.min(pairs.key_length, p.keys), 0)
    if right is not None:
        stop, inner_stop = k.min(stop, last + (right + 1)), k.min(inner_stop, first + (right + 1))
    if left is not None:
        start, inner_start = k.max(first - left, 0), k.max(last - left, 0)
    if pairs.key_length is not None and not of_queries:
        inner_stop = k.select(last < pairs.key_length, inner_stop, zero)
    if pairs.masks_queries and pairs.query_length is not None:
        known = k.max(pairs.query_length, 0)
        inner_stop = (
            k.min(inner_stop, known) if not of_queries else k.select(last < known, inner_stop, zero)
        )
    if not always_has_key(p):
        lone = _may_be_alone(pairs, first, last)
        start = k.select(lone, zero, start)
        stop = k.select(lone, end, stop)
        inner_stop = k.select(lone, zero, inner_stop)
    from_, to = start // columns, (k.max(stop, 0) + (columns - 1)) // columns
    if "mask" in p.given:
        return [Segment(from_, to, True)]
    lengths = pairs.key_length is not None or (
        pairs.masks_queries and pairs.query_length is not None
    )
    # Columns of queries that there are not count for nothing: they need no mask.
    tail = right is not None or lengths or (of_queries and p.keys % columns != 0)
    if left is None and not tail:
        return [Segment(from_, to, False)]
    if fits(others, columns):  # hardly a block is whole
        return [Segment(from_, to, True)]
    middle = k.min(k.max((inner_start + (columns - 1)) // columns, from_), to)
    behind = k.min(k.max(k.max(inner_stop, 0) // columns, middle), to) if tail else to
    found = [Segment(from_, middle, True)] if left is not None else []
    found.append(Segment(middle, behind, False))
    return [*found, Segment(behind, to, True)] if tail else found


def _reach(p: Attention) -> tuple[int | None, int | None]:
    """How many keys before and behind the place of a query take part; None for all."""
    left, right = (None, None) if p.window is None else p.window
    if p.is_causal:
        right = 0 if right is None else min(right, 0)
    return left, right


def _may_be_alone(pairs: Pairs, first: Value, last: Value) -> Value:
    """Whether some query may lack keys, so that all have the same weight for it."""
    k, p = pairs.k, pairs.problem
    if {"bias", "mask"} & set(p.given):
        return k.const("bool", True)
    if pairs.key_axis == 0:
        first, last = k.const("index", 0), k.const("index", p.queries - 1)
    # Queries in between have a key if both have one.
    lacks = [_begins(pairs, t) >= _ends(pairs, t) for t in (first, last)]
    return lacks[0] | lacks[1]


def _begins(pairs: Pairs, query: Value) -> Value:
    """The first key of a query."""
    k, (left, _) = pairs.k, _reach(pairs.problem)
    return k.const("index", 0) if left is None else k.max(query - left, 0)


def _ends(pairs: Pairs, query: Value) -> Value:
    """What is behind the last key of a query."""
    k, p, (_, right) = pairs.k, pairs.problem, _reach(pairs.problem)
    stop = k.const("index", p.keys)
    if pairs.key_length is not None:
        stop = k.min(pairs.key_length, p.keys)
    return stop if right is None else k.min(stop, query + (right + 1))
