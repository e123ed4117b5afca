"""Keys and values of former positions, kept while a sequence is generated."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.nn._arguments import check_positive
from amdjax.nn.attention import dot_product_attention
from amdjax.nn.module import Module, state
from amdjax.numpy._util import ArrayLike, as_array, broadcast_to, convert

__all__ = ["KVCache", "PagedKVCache", "cached_attention"]


class KVCache(Module):
    """Room for the keys and values of a fixed number of positions.

    Args:
      size: how many positions each can have.
      features: of each head.
      dtype: dtype of keys and values.

    Attributes:
      keys: array of shape `(batch, size, heads, features)`.
      values: array of that shape.
      lengths: how many positions each sequence has, int32 of shape `(batch,)`. Larger than `size`
        where more were written than there is room for; attention gives NaN then.

        >>> cache = nn.KVCache(1, 8, heads=2, features=4)
        >>> cache = cache.update(jnp.ones((1, 3, 2, 4)), jnp.ones((1, 3, 2, 4)))
        >>> cache.lengths
        Array([3], dtype=int32)
    """

    keys: Array = state()
    values: Array = state()
    lengths: Array = state()

    def __init__(
        self, batch: int, size: int, *, heads: int, features: int, dtype: Any = jnp.float32
    ) -> None:
        check_positive("KVCache", batch=batch, size=size, heads=heads, features=features)
        shape = (batch, size, heads, features)
        self.keys, self.values = jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)
        self.lengths = jnp.zeros(batch, np.int32)

    @property
    def size(self) -> int:
        """How many positions each sequence can have."""
        return self.keys.shape[1]

    def update(self, key: ArrayLike, value: ArrayLike, position: ArrayLike | None = None) -> Self:
        """The cache with new positions; in place, if it is donated to the function around it.

        After a batch of prompts of different lengths, padded to one, `cache.replace(lengths=...)`
        says how many positions of each count.

        Args:
          key: of shape `(batch, T, heads, features)`.
          value: of the same shape.
          position: where they begin, an integer or one for each sequence; None means behind those
            there are. Then each sequence ends with them.

        Returns:
          A cache. What does not fit is not written.

        Raises:
          ValueError: the shapes do not fit.
        """
        rows = _checked("KVCache.update", self, key, value, position, self.keys.shape[0])
        return self.replace(**_written(self.keys, self.values, *rows))

    def read(self) -> tuple[Array, Array]:
        """All keys and values.

        Returns:
          Two arrays of shape `(batch, size, heads, features)`; what is behind `lengths` is unused.
        """
        return self.keys, self.values


def _checked(
    name: str, cache: Any, key: Any, value: Any, position: Any, batch: int
) -> tuple[Array, Array, Array]:
    key, value = as_array(name, key), as_array(name, value, 1)
    head = cache.keys.shape[-2:]
    if key.ndim != 4 or key.shape[0] != batch or key.shape[2:] != head:
        raise ValueError(
            f"{name}: key must have shape ({batch}, T, {head[0]}, {head[1]}), got {key.shape}."
        )
    if value.shape != key.shape:
        raise ValueError(f"{name}: value must have the shape of key, {key.shape}, got "
                         f"{value.shape}.")  # fmt: skip
    start = cache.lengths if position is None else as_array(name, position, 2)
    if start.shape not in ((), (batch,)):
        raise ValueError(f"{name}: position must have shape () or ({batch},), got {start.shape}.")
    start = broadcast_to(convert(start, np.int32), (batch,))
    return convert(key, cache.keys.dtype), convert(value, cache.values.dtype), start


@composite
def _written(
    keys: Array, values: Array, key: Array, value: Array, start: Array
) -> dict[str, Array]:
    batch, count = key.shape[:2]
    rows = jnp.arange(batch)[:, None]
    # Negative positions would count from the end.
    at = start[:, None] + jnp.arange(count, dtype=np.int32)
    at = jnp.where(at < 0, keys.shape[1], at)
    put = lambda old, new: old.at[rows, at].set(new, mode="drop")
    return {"keys": put(keys, key), "values": put(values, value), "lengths": start + count}


class PagedKVCache(Module):
    """Keys and values in pages that sequences take as they grow (Kwon et al., 2023).

    Args:
      pages: how many pages there are for all of them.
      page_size: positions of a page.
      features: of each head.
      pages_per_sequence: how many pages a sequence can have; None means all.
      dtype: dtype of keys and values.

    Attributes:
      keys: array of shape `(pages, page_size, heads, features)`.
      values: array of that shape.
      table: numbers of the pages of each sequence, in order, int32 of shape
        `(batch, pages_per_sequence)`; -1 where it has none.
      lengths: how many positions each sequence has, int32 of shape `(batch,)`. Where pages were
        lacking, attention gives NaN.

        >>> cache = nn.PagedKVCache(2, 6, 4, heads=1, features=2)
        >>> new = jnp.ones((2, 5, 1, 2))
        >>> cache.update(new, new).table
        Array([[ 0,  1, -1, -1, -1, -1],
               [ 2,  3, -1, -1, -1, -1]], dtype=int32)
    """

    keys: Array = state()
    values: Array = state()
    table: Array = state()
    lengths: Array = state()

    def __init__(
        self,
        batch: int,
        pages: int,
        page_size: int,
        *,
        heads: int,
        features: int,
        pages_per_sequence: int | None = None,
        dtype: Any = jnp.float32,
    ) -> None:
        most = pages if pages_per_sequence is None else pages_per_sequence
        check_positive(
            "PagedKVCache", batch=batch, pages=pages, page_size=page_size, heads=heads,
            features=features, pages_per_sequence=most,
        )  # fmt: skip
        shape = (pages, page_size, heads, features)
        self.keys, self.values = jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)
        self.table = jnp.full((batch, most), -1, np.int32)
        self.lengths = jnp.zeros(batch, np.int32)

    @property
    def size(self) -> int:
        """How many positions a sequence can have."""
        return self.table.shape[1] * self.keys.shape[1]

    def update(self, key: ArrayLike, value: ArrayLike, position: ArrayLike | None = None) -> Self:
        """The cache with new positions, for which sequences take free pages where they need some.

        Args:
          key: of shape `(batch, T, heads, features)`.
          value: of the same shape.
          position: where they begin, an integer or one for each sequence; None means behind those
            there are. Then each sequence ends with them.

        Returns:
          A cache. What does not fit is not written.

        Raises:
          ValueError: the shapes do not fit.
        """
        rows = _checked("PagedKVCache.update", self, key, value, position, self.table.shape[0])
        return self.replace(**_written_to_pages(self.keys, self.values, self.table, *rows))

    def release(self, sequences: ArrayLike) -> Self:
        """The cache without some sequences, whose pages are free for others.

        Args:
          sequences: booleans of shape `(batch,)`, true for those that end.

        Returns:
          A cache.
        """
        gone = as_array("PagedKVCache.release", sequences)
        table, lengths = jnp.where(gone[:, None], -1, self.table), jnp.where(gone, 0, self.lengths)
        return self.replace(table=table, lengths=lengths)

    def read(self) -> tuple[Array, Array]:
        """The keys and values of each sequence in order, copied out of their pages.

        Returns:
          Two arrays of shape `(batch, size, heads, features)`. What is behind `lengths` is 0, and
          NaN before that what found no page.
        """
        held = jnp.arange(self.size) < self.lengths[:, None]
        held = held.reshape(*self.table.shape, -1, 1, 1)
        lost = held & (self.table < 0)[..., None, None, None]

        def gathered(pages: Array) -> Array:
            found = jnp.where(lost, np.nan, pages[jnp.maximum(self.table, 0)])
            # Weights of 0 would not keep out a NaN that another sequence left there.
            found = jnp.where(held, found, 0)
            return found.reshape(self.table.shape[0], self.size, *pages.shape[2:])

        return gathered(self.keys), gathered(self.values)


@composite
def _written_to_pages(
    keys: Array, values: Array, table: Array, key: Array, value: Array, start: Array
) -> dict[str, Array]:
    pages, size = keys.shape[:2]
    end = start + key.shape[1]
    table = _with_pages(table, -(-end // size), pages)
    at = start[:, None] + jnp.arange(key.shape[1], dtype=np.int32)
    place = at // size
    page = jnp.take_along_axis(table, jnp.clip(place, 0, table.shape[1] - 1), 1)
    # Past the last page, which drops it; -1 would be the last one.
    page = jnp.where((page < 0) | (at < 0) | (place >= table.shape[1]), pages, page)
    put = lambda old, new: old.at[page, at % size].set(new, mode="drop")
    return {"keys": put(keys, key), "values": put(values, value), "table": table, "lengths": end}


def _with_pages(table: Array, wanted: Array, pages: int) -> Array:
    """The table with free pages where sequences want more than they have."""
    held = jnp.where(table < 0, pages, table).ravel()
    used = jnp.zeros(pages, bool).at[held].set(True, mode="drop")
    free = jnp.argsort(used, stable=True).astype(np.int32)
    column = lax.broadcasted_iota(np.dtype(np.int32), table.shape, 1)
    missing = (table < 0) & (column < wanted[:, None])
    turn = jnp.cumsum(missing.ravel()).reshape(table.shape) - 1
    found = jnp.where(turn < jnp.sum(~used), free[jnp.clip(turn, 0, pages - 1)], -1)
    return jnp.where(missing, found, table)


def cached_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, cache: Any, *, scale: float | None = None
) -> tuple[Array, Any]:
    """Causal attention of new positions to themselves and to those of a cache.

    Args:
      query: of shape `(batch, T, N, H)`.
      key: of shape `(batch, T, K, H)`; N must be a multiple of K.
      value: of the shape of `key`.
      cache: a `KVCache` or `PagedKVCache`.
      scale: factor of the logits; None means `1 / sqrt(H)`.

    Returns:
      An array of the shape of `query`, and the cache with the new positions. A sequence for which
      there is no room gives NaN.

        >>> cache, x = nn.KVCache(1, 8, heads=1, features=4), jnp.ones((1, 3, 1, 4))
        >>> y, cache = nn.cached_attention(x, x, x, cache)
        >>> y.shape, int(cache.lengths[0])
        ((1, 3, 1, 4), 3)
    """
    query = as_array("cached_attention", query)
    before, cache = cache.lengths, cache.update(key, value)
    keys, values = cache.read()
    mask = None
    if query.shape[1] != 1:
        at = before[:, None] + jnp.arange(query.shape[1])
        mask = (jnp.arange(cache.size) <= at[..., None])[:, None]
    out = dot_product_attention(
        query, convert(keys, query.dtype), convert(values, query.dtype), mask=mask, scale=scale,
        key_value_seq_lengths=jnp.minimum(cache.lengths, cache.size),
    )  # fmt: skip
    full = (cache.lengths > cache.size)[:, None, None, None]
    return jnp.where(full, np.nan, out), cache
