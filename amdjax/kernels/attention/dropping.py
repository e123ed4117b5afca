"""Which weights of attention are dropped, as `lax/attention/definition.py` says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax import tile
from amdjax.core.primitive import Primitive

Value = tile.Value


class _Words:
    """Arithmetic on tiles of words, as a lowering rule asks for it."""

    def __init__(self, k: tile.Builder, shape: tuple[int, ...]):
        self.k, self.shape = k, shape

    def __getattr__(self, name: str) -> Any:
        return lambda *operands: self.k.op(name, *operands)

    def const(self, value: int, dtype: Any) -> Value:
        return self.k.const("u32", value, self.shape)


def kept_pair(
    k: tile.Builder, seeds: Sequence[Value], rows: Value, block: Value, rate: float
) -> tuple[Value, Value]:
    """Whether the pairs of some rows with two neighboring keys are kept.

    Args:
      k: the builder.
      seeds: the two words of the example.
      rows: a tile of words, the number of a head times that of queries, plus that of the query.
      block: the half of the first key's number, one for all rows or a tile.
      rate: probability of a pair to be dropped.
    """
    rule: Any = Primitive.by_name["threefry2x32"].lowering
    wide = [k.broadcast(x, rows.shape) for x in (*seeds, k.convert(block, "u32"))]
    drawn = rule.op(_Words(k, rows.shape), wide[0], wide[1], rows, wide[2])
    least = k.const("u32", int(min(round(rate * 2.0**32), 2**32 - 1)), rows.shape)
    first, second = (k.op("ge", x, least) for x in drawn)
    return first, second
