"""Operations on all pairs of queries and keys, by blocks of queries where there are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from amdjax.core.dims import is_symbolic_dim
from amdjax.core.integers import ceil_div
from amdjax.lax._rules import shape_of
from amdjax.lax.attention.operands import Extents
from amdjax.lax.control_flow.scans import scan
from amdjax.lax.elementwise import add
from amdjax.lax.filling import full
from amdjax.lax.joining import concatenate
from amdjax.lax.shape import reshape, transpose
from amdjax.lax.slicing import slice_in_dim
from amdjax.transforms.remat import checkpoint

__all__ = ["by_blocks"]

MOST_PAIRS = 1 << 20  # of a block, of all heads: several arrays of so many numbers are in memory
LEAST_QUERIES = 16  # of a block: fewer would read all keys for little

#: Of a block: results with an axis of queries, and those that blocks are summed to.
Found = tuple[list[Any], list[Any]]


def by_blocks(
    body: Callable[..., Found],
    e: Extents,
    args: Sequence[Any],
    axes: Sequence[int | None],
    row_axes: Sequence[int],
    sums: Sequence[tuple[Sequence[int], Any]] = (),
) -> Found:
    """What a function gives of all queries, in memory that is linear in their number.

    Derivatives of any order are as well: blocks are computed again where those need them.

    Args:
      body: `body(extents, *args)` of a block, or of everything at once where that is small.
      e: sizes.
      args: its operands.
      axes: of each, that of queries; None if each block takes all of it.
      row_axes: of each result that has an axis of queries, that axis.
      sums: shape and dtype of each result that is summed over blocks.
    """
    size = _block_size(e)
    if size is None:
        return body(e, *args)
    count, rest = divmod(e.queries, size)
    cut = {i: axis for i, axis in enumerate(axes) if axis is not None}

    def of_block(first: Any, queries: int, parts: Sequence[Any]) -> Found:
        own = list(args)
        for i, part in zip(cut, parts, strict=True):
            own[i] = part
        return body(replace(e, queries=queries, first=first, all_queries=e.queries), *own)

    def step(totals: list[Any], block: tuple[Any, list[Any]]) -> tuple[list[Any], list[Any]]:
        rows, found = of_block(block[0], size, block[1])
        return list(map(add, totals, found)), rows

    firsts = np.arange(0, count * size, size, dtype=np.int32)
    stacked = [_stacked(args[i], axis, count, size) for i, axis in cut.items()]
    zeros = [full(tuple(shape), 0, dtype) for shape, dtype in sums]
    totals, rows = scan(checkpoint(step, prevent_cse=False), zeros, (firsts, stacked))
    rows = [_joined(y, axis) for y, axis in zip(rows, row_axes, strict=True)]
    if rest:
        whole = count * size
        last = [slice_in_dim(args[i], whole, e.queries, axis=d) for i, d in cut.items()]
        more, found = of_block(np.int32(whole), rest, last)
        totals = list(map(add, totals, found))
        rows = [concatenate(ys, axis) for *ys, axis in zip(rows, more, row_axes, strict=True)]
    return rows, totals


def _block_size(e: Extents) -> int | None:
    """Queries of a block, about as many in each; None for all, as where sizes are not known yet."""
    if any(map(is_symbolic_dim, (*e.pairs, e.key_heads))):
        return None
    most = max(MOST_PAIRS // max(e.batch * e.heads * e.keys, 1), LEAST_QUERIES)
    return ceil_div(e.queries, ceil_div(e.queries, most)) if e.queries > most else None


def _stacked(x: Any, axis: int, count: int, size: int) -> Any:
    """Blocks of an axis, along a new first one."""
    x = slice_in_dim(x, 0, count * size, axis=axis)
    shape = shape_of(x)
    x = reshape(x, (*shape[:axis], count, size, *shape[axis + 1 :]))
    return transpose(x, (axis, *(d for d in range(len(shape) + 1) if d != axis)))


def _joined(x: Any, axis: int) -> Any:
    """What `_stacked` undoes."""
    shape = shape_of(x)
    x = transpose(x, (*range(1, axis + 1), 0, *range(axis + 1, len(shape))))
    return reshape(x, (*shape[1 : axis + 1], shape[0] * shape[axis + 1], *shape[axis + 2 :]))
