"""Attention of many: examples join the batch, or the heads that share a head of keys.

Joining the batch is always possible, and repeats what is the same for all examples. Where keys and
values are, examples become further heads of queries instead: then nothing of the size of keys is
repeated. Of both, what writes less is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core.dims import is_symbolic_dim
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import batch_to, dtype_of, shape_of
from amdjax.lax.attention.operands import wide_dtype
from amdjax.lax.casting import convert
from amdjax.lax.reductions import reduce_sum
from amdjax.lax.shape import broadcast_in_dim, reshape

__all__ = ["batch_by"]

ROWS = "rows"  # (B, T, N, features)
STATISTICS = "statistics"  # (B, N, T)
KEYS = "keys"  # (B, S, K, features)
PAIRS = "pairs"  # broadcasts to (B, N, T, S)
EXAMPLES = "examples"  # (B, …)

#: What operands and results hold.
HELD = {
    "query": ROWS, "key": KEYS, "value": KEYS, "bias": PAIRS, "mask": PAIRS,
    "query_lengths": EXAMPLES, "key_value_lengths": EXAMPLES, "seeds": EXAMPLES,
    "factors": EXAMPLES, "out": ROWS, "ct": ROWS, "maximum": STATISTICS, "total": STATISTICS,
    "delta": STATISTICS,
}  # fmt: skip

#: Where heads are, behind which examples stand that join them.
HEADS = {ROWS: 2, STATISTICS: 1, PAIRS: 1}


class _Batched:
    """Operands of one of the primitives, some of them with an axis of examples.

    Args:
      names: of the operands; a tangent has that of its operand.
      args: the operands.
      dims: of each, the axis of examples; None where it is the same for all.
      count: examples.
    """

    def __init__(
        self, names: Sequence[str], args: Sequence[Any], dims: Sequence[int | None], count: int
    ):
        self.names, self.args, self.dims, self.count = names, args, dims, count
        self.held = [HELD[name] for name in names]
        self.batched = {name for name, d in zip(names, dims, strict=True) if d is not None}
        shape = self._shape(0)
        self.batch, self.heads = shape[0], shape[2]

    def _shape(self, i: int) -> tuple[int, ...]:
        """The shape of an operand of one example."""
        dim, shape = self.dims[i], shape_of(self.args[i])
        return shape if dim is None else tuple(n for d, n in enumerate(shape) if d != dim)

    def as_batch(self, each: bool) -> list[Any]:
        """Operands whose examples are in the batch; a bias of all only where not wanted of each."""
        return [self._into_batch(i, each) for i in range(len(self.args))]

    def as_heads(self) -> list[Any]:
        """Operands whose examples are heads."""
        return [self._into_heads(i) for i in range(len(self.args))]

    def _stays_in_batch(self, i: int, each: bool) -> bool:
        """Whether an operand broadcasts to all examples as it is."""
        is_one = self.held[i] == PAIRS and self._shape(i)[0] == 1
        return is_one and self.names[i] not in self.batched and not each

    def _stays_in_heads(self, i: int) -> bool:
        if self.held[i] not in HEADS:
            return True
        is_one = self.held[i] == PAIRS and self._shape(i)[1] == 1
        return is_one and self.names[i] not in self.batched

    def _into_batch(self, i: int, each: bool) -> Any:
        if self._stays_in_batch(i, each):
            return self.args[i]
        x = self._with_all(batch_to(self.args[i], self.dims[i], self.count), 1, self.batch)
        shape = shape_of(x)
        return reshape(x, (shape[0] * shape[1], *shape[2:]))

    def _into_heads(self, i: int) -> Any:
        if self._stays_in_heads(i):
            return self.args[i]
        axis = HEADS[self.held[i]]
        x = batch_to(self.args[i], self.dims[i], self.count, axis + 1)
        x = self._with_all(x, axis, self.heads)
        shape = shape_of(x)
        return reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))

    @staticmethod
    def _with_all(x: Any, axis: int, size: int) -> Any:
        """Pairs repeated along an axis that examples join."""
        shape = shape_of(x)
        if shape[axis] == size:
            return x
        kept = [d for d in range(len(shape)) if d != axis]
        x = reshape(x, tuple(shape[d] for d in kept))
        return broadcast_in_dim(x, (*shape[:axis], size, *shape[axis + 1 :]), kept)

    def prefers_heads(self) -> bool:
        """Whether examples can be heads, and less is written then."""
        # What is dropped depends on the head.
        same = [i for i, held in enumerate(self.held) if held in (KEYS, EXAMPLES)]
        if "seeds" in self.names or any(self.dims[i] is not None for i in same):
            return False
        sizes = [self.count, *(n for i in range(len(self.args)) for n in self._shape(i))]
        if any(map(is_symbolic_dim, sizes)) or not self.count:
            return False
        batch = heads = 0.0
        for i, held in enumerate(self.held):
            shape = self._shape(i)
            size = self.count * math.prod(shape)
            by_batch, by_heads = (shape[0], shape[1]) if held == PAIRS else (self.batch, self.heads)
            if not self._stays_in_batch(i, False):
                batch += size * self.batch / max(by_batch, 1)
            if not self._stays_in_heads(i):
                heads += size * self.heads / max(by_heads, 1)
        return heads < batch


def batch_by(
    primitive: Primitive, behind: Callable[..., Sequence[str]], results: Sequence[str]
) -> None:
    """Give one of the primitives its batching rule.

    Args:
      primitive: it.
      behind: names of its operands behind the shared ones, of its parameters.
      results: names of its results, those of the operands they are like.
    """

    def batch(axis: Any, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
        names = ("query", "key", "value", *params["given"], *behind(**params))
        x = _Batched(names, args, dims, axis.size)
        is_summed = "key" in results  # over the heads that share it
        if not is_summed and x.prefers_heads():
            outs = primitive.bind(*x.as_heads(), **params)
            places = [HEADS[HELD[name]] for name in results]
            shapes = [shape_of(y) for y in outs]
            return [
                reshape(y, (*s[:d], x.heads, axis.size, *s[d + 1 :]))
                for y, s, d in zip(outs, shapes, places, strict=True)
            ], [d + 1 for d in places]
        outs = primitive.bind(*x.as_batch(params.get("bias_gradient", False)), **params)
        outs = [reshape(y, (axis.size, x.batch, *shape_of(y)[1:])) for y in outs]
        if len(outs) > 3 and is_summed and shape_of(args[3])[_first(dims[3])] != x.batch:
            outs[3] = _summed(outs[3])
        return outs, [0] * len(outs)

    primitive.batch = batch


def _first(dim: int | None) -> int:
    """The axis of the batch, of an operand that may have one of examples."""
    return 1 if dim == 0 else 0


def _summed(x: Any) -> Any:
    """The gradient of a bias that all of a batch share."""
    dtype, shape = dtype_of(x), shape_of(x)
    x = reduce_sum(convert(x, wide_dtype(dtype)), (1,))
    return convert(reshape(x, (shape[0], 1, *shape[2:])), dtype)
