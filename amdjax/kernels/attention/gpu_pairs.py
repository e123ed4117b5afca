"""Which pairs of a block of queries and a block of keys take part, and their logits, on GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amdjax import tile
from amdjax.kernels.attention.problem import Attention
from amdjax.kernels.gpu_loops import every

__all__ = ["LOG2_E", "MASKED", "Pairs", "Segment", "always_has_key", "segments"]

Value = tile.Value

LOG2_E = math.log2(math.e)
#: The logit of pairs that take no part, in the unit of logits: finite and exact times a factor.
MASKED = -(2.0**100)


def always_has_key(p: Attention) -> bool:
    """Whether each query is known to take a key into account, and one with a finite logit."""
    if {"bias", "mask", "key_value_lengths"} & set(p.given):
        return False
    return all(_last(p, t) >= _first(p, t) for t in (0, p.queries - 1))


def _first(p: Attention, t: int) -> int:
    return 0 if p.window is None else max(0, t - p.window[0])


def _last(p: Attention, t: int) -> int:
    last = p.keys - 1
    if p.is_causal:
        last = min(last, t)
    return last if p.window is None else min(last, t + p.window[1])


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
    """

    def __init__(
        self, k: tile.Builder, problem: Attention, inputs: Mapping[str, tile.Buffer],
        batch: Value, head: Value, key_axis: int = 1,
    ):  # fmt: skip
        self.k, self.problem, self.inputs, self.key_axis = k, problem, inputs, key_axis
        self.batch, self.head = batch, head
        self.query_length, self.key_length = (
            k.convert(k.load(inputs[name], batch), "index") if name in problem.given else None
            for name in ("query_lengths", "key_value_lengths")
        )

    @property
    def factor(self) -> float:
        """What makes of a logit the exponent of two."""
        return 1.0 if self._is_scaled else self.problem.scale * LOG2_E

    @property
    def _is_scaled(self) -> bool:
        """Whether logits are scaled before the greatest of them is found."""
        return "bias" in self.problem.given or self.problem.scale <= 0

    def logits(self, x: Value, query: Value, key: Value, masked: bool) -> Value:
        """Products of queries and keys from these on as logits.

        Args:
          x: the products.
          query, key: the first.
          masked: whether some pairs may take no part.
        """
        k, p = self.k, self.problem
        if self._is_scaled:
            x = x * k.const(x.dtype, p.scale * LOG2_E, x.shape)
        there = self._exist(x.shape, query, key)
        if "bias" in p.given:
            bias = k.convert(self._operand("bias", p.bias, x.shape, query, key, there), x.dtype)
            x = k.op("fma", bias, k.const(x.dtype, LOG2_E, x.shape), x)
        if not masked:
            return x
        conditions = self._conditions(x.shape, query, key)
        if "mask" in p.given:
            conditions.append(self._operand("mask", p.mask, x.shape, query, key, there))
        kept = every(k, conditions)
        if kept is not None:
            x = k.select(kept, x, k.const(x.dtype, MASKED, x.shape))
        inside = self._inside(x.shape, key)
        if inside is not None:
            x = k.select(inside, x, k.const(x.dtype, -math.inf, x.shape))
        return x

    def kept(self, shape: tuple[int, ...], query: Value, key: Value) -> Value | None:
        """Which pairs take part; None for all."""
        there = self._exist(shape, query, key)
        conditions = self._conditions(shape, query, key)
        if "mask" in self.problem.given:
            conditions.append(self._operand("mask", self.problem.mask, shape, query, key, there))
        if self.query_length is not None:
            places = self._places(shape, 1 - self.key_axis, query)
            length = self.k.convert(self.query_length, "i32")
            conditions.append(places < self.k.broadcast(length, shape))
        return every(self.k, conditions)

    # Positions

    def _places(self, shape: tuple[int, ...], axis: int, first: Value) -> Value:
        k, n = self.k, shape[axis]
        line = k.iota(n, "i32") + k.broadcast(k.convert(first, "i32"), (n,))
        return k.broadcast(k.expand(line, 1 - axis), shape)

    def _conditions(self, shape: tuple[int, ...], query: Value, key: Value) -> list[Value]:
        """What decides by position whether a pair takes part."""
        k, p, conditions = self.k, self.problem, list[Value]()
        columns = self._places(shape, self.key_axis, key)
        if p.is_causal or p.window is not None:
            rows = self._places(shape, 1 - self.key_axis, query)
            last = (0 if p.is_causal else None, None if p.window is None else p.window[1])
            right = min(x for x in last if x is not None)
            moved = rows + right if right else rows
            conditions.append(columns <= moved)
            if p.window is not None:
                conditions.append(rows <= columns + p.window[0])
        if self.key_length is not None:
            length = k.convert(self.key_length, "i32")
            conditions.append(columns < k.broadcast(length, shape))
        return conditions

    def _inside(self, shape: tuple[int, ...], key: Value) -> Value | None:
        """Which keys there are, if blocks reach over the last one."""
        if self.problem.keys % shape[self.key_axis] == 0:
            return None
        return self._places(shape, self.key_axis, key) < self.problem.keys

    def _exist(self, shape: tuple[int, ...], query: Value, key: Value) -> Value | None:
        """Which pairs of queries and keys there are, if not all."""
        inside = [x for x in (self._inside(shape, key),) if x is not None]
        if self.problem.queries % shape[1 - self.key_axis]:
            inside.append(self._places(shape, 1 - self.key_axis, query) < self.problem.queries)
        return every(self.k, inside)

    def _operand(
        self, name: str, strides: Sequence[int], shape: tuple[int, ...], query: Value, key: Value,
        there: Value | None,
    ) -> Value:  # fmt: skip
        """A tile of the bias or the mask."""
        at = self.batch * strides[0] + self.head * strides[1]
        at = at + query * strides[2] + key * strides[3]
        across = (strides[2], strides[3]) if self.key_axis else (strides[3], strides[2])
        return self.k.load(self.inputs[name], at, shape, across, there)


def segments(pairs: Pairs, query: Value, queries: int, keys: int) -> list[Segment]:
    """The blocks of keys that a block of queries needs, those in the middle without masks.

    Args:
      pairs: of the head.
      query: the first of the block.
      queries: how many are in it.
      keys: how many are in a block of keys.
    """
    k, p = pairs.k, pairs.problem
    zero, end = k.const("index", 0), k.const("index", p.keys)
    first, last = query, k.min(query + (queries - 1), p.queries - 1)
    start, stop, inner_start, inner_stop = zero, end, zero, end
    if pairs.key_length is not None:
        stop = inner_stop = k.max(k.min(pairs.key_length, p.keys), 0)
    if p.is_causal:
        stop, inner_stop = k.min(stop, last + 1), k.min(inner_stop, first + 1)
    if p.window is not None:
        left, right = p.window
        start, inner_start = k.max(first - left, 0), k.max(last - left, 0)
        stop, inner_stop = k.min(stop, last + (right + 1)), k.min(inner_stop, first + (right + 1))
    if not always_has_key(p):
        if {"bias", "mask"} & set(p.given):
            start, stop, inner_start = zero, end, zero
        else:
            # All queries have a key if the first and the last have one.
            alone = (_begins(pairs, first) < _ends(pairs, first)) & (
                _begins(pairs, last) < _ends(pairs, last)
            )
            start, stop = k.select(alone, start, zero), k.select(alone, stop, end)
            inner_stop = k.select(alone, inner_stop, zero)
    from_, to = start // keys, (stop + (keys - 1)) // keys
    if "mask" in p.given:
        return [Segment(from_, to, True)]
    uncut = p.keys % keys == 0 and not p.is_causal and pairs.key_length is None
    if uncut and p.window is None:
        return [Segment(from_, to, False)]
    middle = k.min(k.max((inner_start + (keys - 1)) // keys, from_), to)
    behind = k.min(k.max(k.max(inner_stop, 0) // keys, middle), to)
    found = [Segment(middle, behind, False), Segment(behind, to, True)]
    return found if p.window is None else [Segment(from_, middle, True), *found]


def _begins(pairs: Pairs, query: Value) -> Value:
    k, p = pairs.k, pairs.problem
    return k.const("index", 0) if p.window is None else k.max(query - p.window[0], 0)


def _ends(pairs: Pairs, query: Value) -> Value:
    k, p = pairs.k, pairs.problem
    stop = k.const("index", p.keys)
    if pairs.key_length is not None:
        stop = k.min(pairs.key_length, p.keys)
    if p.is_causal:
        stop = k.min(stop, query + 1)
    return stop if p.window is None else k.min(stop, query + (p.window[1] + 1))
