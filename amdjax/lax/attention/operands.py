"""What the primitives of attention share: operands and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from amdjax.lax._rules import Shape

__all__ = ["LEAST_LOGIT", "OPTIONAL", "Extents", "Operands", "operands", "wide_dtype"]

#: Operands behind query, key and value, in order, as far as they are given.
OPTIONAL = ("bias", "mask", "query_lengths", "key_value_lengths", "seeds", "factors")

#: What stands for the logits of pairs that take no part. Large, not infinite: the weights of a
#: query without any key are then all equal.
LEAST_LOGIT = -0.7 * float(np.finfo(np.float32).max)


class Operands(NamedTuple):
    """What the primitives share: query `(B, T, N, H)`, key `(B, S, K, H)`, value `(B, S, K, D)`,
    bias and mask that broadcast to `(B, N, T, S)`, lengths `(B,)`, two words `(B, 2)` from which
    follows what is dropped, and factors `(B, 2)` of logits and of results; None where not given.
    """

    query: Any
    key: Any
    value: Any
    bias: Any = None
    mask: Any = None
    query_lengths: Any = None
    key_value_lengths: Any = None
    seeds: Any = None
    factors: Any = None


def operands(args: Sequence[Any], given: Sequence[str]) -> tuple[Operands, Sequence[Any]]:
    """The shared operands of one of the primitives by name, and those behind them."""
    count = 3 + len(given)
    return Operands(*args[:3], **dict(zip(given, args[3:count]))), args[count:]


@dataclass(frozen=True)
class Extents:
    """Sizes of an attention, or of a block of its queries.

    Args:
      batch: examples.
      queries: positions of queries ...
      keys: ... and of keys.
      heads: of queries.
      key_heads: as many share a head of keys as `heads` is a multiple of these.
      features: of queries and keys.
      value_features: of values.
      first: the position of the first query, where these are a block of `all_queries`.
      all_queries: of the attention that the block is of; None where it is all of it.
    """

    batch: int
    queries: int
    keys: int
    heads: int
    key_heads: int
    features: int
    value_features: int
    first: Any = None
    all_queries: int | None = None

    @staticmethod
    def of(x: Operands) -> Extents:
        """Those of operands, all queries of them."""
        batch, queries, heads, features = x.query.shape
        keys, key_heads = x.key.shape[1:3]
        return Extents(batch, queries, keys, heads, key_heads, features, x.value.shape[3])

    @property
    def group(self) -> int:
        """Heads that share a head of keys."""
        return self.heads // self.key_heads if self.key_heads else 1

    @property
    def pairs(self) -> Shape:
        """The shape of the logits."""
        return self.batch, self.heads, self.queries, self.keys


def wide_dtype(dtype: Any) -> np.dtype:
    """The dtype of logits, weights and sums."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)
