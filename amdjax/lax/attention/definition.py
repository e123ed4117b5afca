"""Attention, its tangent and its gradient by other operations.

What machines without kernels run, and what derivatives of higher order are of. Many queries are
taken by blocks, so that nothing has an element for each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from amdjax.core.config import default_matmul_precision
from amdjax.core.integers import ceil_div
from amdjax.lax._rules import Shape, aval_of, dtype_of, shape_of, sum_to
from amdjax.lax.attention.blocks import Found, by_blocks
from amdjax.lax.attention.operands import LEAST_LOGIT, Extents, Operands, operands, wide_dtype
from amdjax.lax.bitwise import bitwise_and, bitwise_or
from amdjax.lax.casting import convert
from amdjax.lax.comparison import ge, le, lt
from amdjax.lax.counter_blocks import threefry2x32
from amdjax.lax.dot import dot_general
from amdjax.lax.elementary import exp
from amdjax.lax.elementwise import add, div, max, mul, sub
from amdjax.lax.filling import broadcasted_iota, full_like
from amdjax.lax.joining import concatenate
from amdjax.lax.reductions import reduce_max, reduce_sum
from amdjax.lax.rounding import is_finite
from amdjax.lax.selection import select
from amdjax.lax.shape import broadcast_in_dim, reshape, transpose
from amdjax.lax.slicing import slice_in_dim

__all__ = [
    "composed_attention", "composed_gradient", "composed_tangent", "dropped", "dropped_below",
    "factor_of_examples",
]  # fmt: skip


def _by_group(x: Any, e: Extents) -> Any:
    """`(B, T, N, F)` as `(B, T, K, group, F)`."""
    return reshape(x, (e.batch, e.queries, e.key_heads, e.group, shape_of(x)[3]))


def _pairs_by_group(x: Any, e: Extents) -> Any:
    """`(B, N, T, S)` as `(B, K, group, T, S)`."""
    return reshape(x, (e.batch, e.key_heads, e.group, e.queries, e.keys))


def _pairs(queries: Any, keys: Any, e: Extents, wide: Any) -> Any:
    """Products of all queries with all keys, `(B, N, T, S)`."""
    numbers = (((4,), (3,)), ((0, 2), (0, 2)))
    x = dot_general(_by_group(queries, e), keys, numbers, preferred_element_type=wide)
    return reshape(transpose(x, (0, 1, 3, 2, 4)), e.pairs)


def _over_keys(weights: Any, values: Any, e: Extents, wide: Any) -> Any:
    """`Σ_s weights[…, s] values[s]`, `(B, T, N, features)`."""
    numbers = (((4,), (1,)), ((0, 1), (0, 2)))
    x = dot_general(_pairs_by_group(weights, e), values, numbers, preferred_element_type=wide)
    return reshape(transpose(x, (0, 3, 1, 2, 4)), (e.batch, e.queries, e.heads, shape_of(x)[4]))


def _over_queries(weights: Any, rows: Any, e: Extents, wide: Any) -> Any:
    """`Σ_t weights[…, t, s] rows[t]`, summed over heads of a group, `(B, S, K, features)`."""
    numbers = (((2, 3), (3, 1)), ((0, 1), (0, 2)))
    lhs, rhs = _pairs_by_group(weights, e), _by_group(rows, e)
    return transpose(dot_general(lhs, rhs, numbers, preferred_element_type=wide), (0, 2, 1, 3))


def _to_pairs(x: Any, e: Extents) -> Any:
    """`x`, of shape `(B, N, T)` or with axes of length one, repeated to `(B, N, T, S)`."""
    shape = shape_of(x)
    kept = [d for d, n in enumerate(shape) if n != 1]
    return broadcast_in_dim(reshape(x, tuple(shape[d] for d in kept)), e.pairs, kept)


def _queries(shape: Shape, axis: int, e: Extents, dtype: Any = np.int32) -> Any:
    """Positions of queries along an axis."""
    places = broadcasted_iota(np.dtype(dtype), shape, axis)
    if e.first is None:
        return places
    return add(places, broadcast_in_dim(convert(e.first, dtype), shape, ()))


def _keep(x: Operands, e: Extents, is_causal: bool, window: tuple[int, int] | None) -> Any:
    """Which pairs of a query and a key take part, `(B, N, T, S)`; None if all do."""
    index = np.dtype(np.int32)
    rows, columns = _queries(e.pairs, 2, e), broadcasted_iota(index, e.pairs, 3)
    conditions = [] if x.mask is None else [_to_pairs(x.mask, e)]
    if is_causal:
        conditions.append(ge(rows, columns))
    if window is not None:
        left, right = (full_like(rows, n) for n in window)
        conditions += [ge(columns, sub(rows, left)), le(columns, add(rows, right))]
    for lengths, places in ((x.query_lengths, rows), (x.key_value_lengths, columns)):
        if lengths is not None:
            wide = broadcast_in_dim(convert(lengths, index), e.pairs, (0,))
            conditions.append(lt(places, wide))
    keep = None
    for condition in conditions:
        keep = condition if keep is None else bitwise_and(keep, condition)
    return keep


def _without_unused(x: Operands) -> Operands:
    """The operands without NaNs and infinities of keys and values behind the length of keys."""
    if x.key_value_lengths is None:
        return x

    def counted(y: Any) -> Any:
        shape = shape_of(y)
        lengths = broadcast_in_dim(convert(x.key_value_lengths, np.int32), shape, (0,))
        there = lt(broadcasted_iota(np.int32, shape, 1), lengths)
        return select(bitwise_or(there, is_finite(y)), y, full_like(y, 0))

    return x._replace(key=counted(x.key), value=counted(x.value))


def dropped(x: Any, seeds: Any, rate: float, e: Extents) -> Any:
    """Values of pairs without those that are dropped, the others larger by as much.

    Whether a pair is dropped follows from the words of its example, its head and query, and its
    key: two neighboring keys take the two words of a block of Threefry. So all kernels drop the
    same pairs, forward and backward.
    """
    if seeds is None:
        return x
    word = np.dtype(np.uint32)
    blocks = (*e.pairs[:3], ceil_div(e.keys, 2))
    head, block = (broadcasted_iota(word, blocks, axis) for axis in (1, 3))
    every = e.queries if e.all_queries is None else e.all_queries
    row = add(mul(head, full_like(head, every)), _queries(blocks, 2, e, word))
    words = (
        broadcast_in_dim(reshape(slice_in_dim(seeds, i, i + 1, axis=1), (e.batch,)), blocks, (0,))
        for i in (0, 1)
    )
    drawn = [reshape(y, (*blocks, 1)) for y in threefry2x32(tuple(words), (row, block))]
    both = reshape(concatenate(drawn, 4), (*blocks[:3], 2 * blocks[3]))
    drawn_of = slice_in_dim(both, 0, e.keys, axis=3)
    kept = ge(drawn_of, full_like(drawn_of, dropped_below(rate)))
    return select(kept, mul(x, full_like(x, 1 / (1 - rate))), full_like(x, 0))


def dropped_below(rate: float) -> int:
    """Pairs whose random word is less are dropped."""
    return int(min(round(rate * 2.0**32), 2**32 - 1))


def _logits(x: Operands, e: Extents, scale: float, keep: Any) -> Any:
    wide = wide_dtype(dtype_of(x.query))
    logits = _pairs(x.query, x.key, e, wide)
    logits = mul(logits, full_like(logits, scale))
    if x.factors is not None:
        logits = mul(logits, factor_of_examples(x.factors, 0, e.pairs, wide))
    if x.bias is not None:
        logits = add(logits, _to_pairs(convert(x.bias, wide), e))
    if keep is None:
        return logits
    return select(keep, logits, full_like(logits, LEAST_LOGIT))


def factor_of_examples(factors: Any, which: int, shape: Shape, wide: Any) -> Any:
    """One of the factors of each example, repeated to a shape."""
    column = slice_in_dim(convert(factors, wide), which, which + 1, axis=1)
    return broadcast_in_dim(reshape(column, shape[:1]), shape, (0,))


def _without_padding(out: Any, x: Operands, e: Extents) -> Any:
    """`out`, `(B, T, N, D)`, with zeros for queries that are padding."""
    if x.query_lengths is None:
        return out
    shape = shape_of(out)
    lengths = broadcast_in_dim(convert(x.query_lengths, np.int32), shape, (0,))
    used = lt(_queries(shape, 1, e), lengths)
    return select(used, out, full_like(out, 0))


def _query_axis(x: Any) -> int | None:
    """The axis of queries of what broadcasts to all pairs."""
    return 2 if x is not None and shape_of(x)[2] > 1 else None


def _in_precision(composed: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Products in the precision that attention was called with, whichever holds by now."""

    @wraps(composed)
    def run(*args: Any, precision: str | None = None, **params: Any) -> list[Any]:
        with default_matmul_precision(precision or "highest"):
            return composed(*args, **params)

    return run


@_in_precision
def composed_attention(
    *args: Any,
    given: Sequence[str],
    scale: float,
    is_causal: bool,
    window: Any,
    rate: float = 0.0,
    out_dtype: Any = None,
) -> list[Any]:
    """What `attention_p` computes."""
    x, _ = operands(args, given)
    x = _without_unused(x)
    dtype = dtype_of(x.query)
    out_dtype = dtype if out_dtype is None else out_dtype
    wide = wide_dtype(dtype)
    if x.factors is not None:
        dtype = wide
        x = x._replace(query=convert(x.query, wide), key=convert(x.key, wide),
                       value=convert(x.value, wide))  # fmt: skip

    def block(e: Extents, query: Any, bias: Any, mask: Any) -> Found:
        y = x._replace(query=query, bias=bias, mask=mask)
        logits = _logits(y, e, scale, _keep(y, e, is_causal, window))
        maximum = reduce_max(logits, (3,))
        # Of a row of infinities nothing is subtracted that would make it NaN before its end.
        maximum = max(maximum, full_like(maximum, float(np.finfo(wide).min)))
        exponentials = exp(sub(logits, _to_pairs(_column(maximum), e)))
        total = reduce_sum(exponentials, (3,))
        weights = dropped(div(exponentials, _to_pairs(_column(total), e)), y.seeds, rate, e)
        out = _over_keys(convert(weights, dtype), y.value, e, wide)
        if y.factors is not None:
            out = mul(out, factor_of_examples(y.factors, 1, shape_of(out), wide))
        return [_without_padding(convert(out, out_dtype), y, e), maximum, total], []

    parts = x.query, x.bias, x.mask
    axes = 1, _query_axis(x.bias), _query_axis(x.mask)
    return by_blocks(block, Extents.of(x), parts, axes, (1, 2, 2))[0]


def _column(x: Any) -> Any:
    return reshape(x, (*shape_of(x), 1))


def _weights(x: Operands, e: Extents, scale: float, keep: Any, maximum: Any, total: Any) -> Any:
    """The weights anew, of what `attention_p` returned."""
    logits = _logits(x, e, scale, keep)
    exponentials = exp(sub(logits, _to_pairs(_column(maximum), e)))
    return div(exponentials, _to_pairs(_column(total), e))


@_in_precision
def composed_tangent(
    *args: Any,
    given: Sequence[str],
    directions: Sequence[str],
    scale: float,
    is_causal: bool,
    window: Any,
    rate: float = 0.0,
) -> list[Any]:
    """What `attention_tangent_p` computes."""
    x, (_, *statistics) = operands(args, given)
    x = _without_unused(x)

    def block(
        e: Extents, query: Any, bias: Any, mask: Any, maximum: Any, total: Any, *tangents: Any
    ) -> Found:
        y = x._replace(query=query, bias=bias, mask=mask)
        keep = _keep(y, e, is_causal, window)
        weights = _weights(y, e, scale, keep, maximum, total)
        change = dict(zip(directions, tangents, strict=True))
        out, mean = _tangent(y, e, change, weights, keep, scale, rate)
        out = _without_padding(convert(out, dtype_of(x.query)), y, e)
        return [out, mul(mean, total)], []

    of = {"query": 1, "bias": _query_axis(x.bias)}
    parts = x.query, x.bias, x.mask, *statistics
    axes = 1, _query_axis(x.bias), _query_axis(x.mask), 2, 2, *(of.get(d) for d in directions)
    return by_blocks(block, Extents.of(x), parts, axes, (1, 2))[0]


def _tangent(
    x: Operands, e: Extents, change: Mapping[str, Any], weights: Any, keep: Any, scale: float,
    rate: float,
) -> tuple[Any, Any]:  # fmt: skip
    """The tangent of the result, and the mean of those of the logits."""
    wide = dtype_of(weights)
    terms: list[Any] = []
    if "query" in change:
        terms.append(_pairs(change["query"], x.key, e, wide))
    if "key" in change:
        terms.append(_pairs(x.query, change["key"], e, wide))
    terms = [mul(t, full_like(t, scale)) for t in terms]
    if "bias" in change:
        terms.append(_to_pairs(convert(change["bias"], wide), e))
    out = full_like(x.query, 0, wide, (e.batch, e.queries, e.heads, e.value_features))
    mean = full_like(weights, 0, wide, e.pairs[:3])
    if terms:
        slope = terms[0]
        for term in terms[1:]:
            slope = add(slope, term)
        if keep is not None:
            slope = select(keep, slope, full_like(slope, 0))
        weighted = mul(weights, slope)
        mean = reduce_sum(weighted, (3,))
        weighted = sub(weighted, mul(weights, _to_pairs(_column(mean), e)))
        weighted = dropped(weighted, x.seeds, rate, e)
        out = add(out, _over_keys(weighted, convert(x.value, wide), e, wide))
    if "value" in change:
        kept = dropped(weights, x.seeds, rate, e)
        out = add(out, _over_keys(kept, convert(change["value"], wide), e, wide))
    return out, mean


@_in_precision
def composed_gradient(
    *args: Any,
    given: Sequence[str],
    bias_gradient: bool,
    scale: float,
    is_causal: bool,
    window: Any,
    rate: float = 0.0,
) -> list[Any]:
    """What `attention_gradient_p` computes."""
    x, rows = operands(args, given)
    x = _without_unused(x)
    dtype = dtype_of(x.query)
    wide = wide_dtype(dtype)
    bias_rows = _query_axis(x.bias) if bias_gradient else None

    def block(
        e: Extents, query: Any, bias: Any, mask: Any, maximum: Any, total: Any, delta: Any, ct: Any
    ) -> Found:
        y = x._replace(query=query, bias=bias, mask=mask)
        keep = _keep(y, e, is_causal, window)
        weights = _weights(y, e, scale, keep, maximum, total)
        ct = convert(_without_padding(ct, y, e), wide)
        d_value = _over_queries(dropped(weights, y.seeds, rate, e), ct, e, wide)
        slope = dropped(_pairs(ct, convert(y.value, wide), e, wide), y.seeds, rate, e)
        slope = sub(slope, _to_pairs(_column(delta), e))
        slope = mul(weights, slope)
        if keep is not None:
            slope = select(keep, slope, full_like(slope, 0))
        scaled = mul(slope, full_like(slope, scale))
        d_query = convert(_over_keys(scaled, convert(y.key, wide), e, wide), dtype)
        sums = [_over_queries(scaled, convert(query, wide), e, wide), d_value]
        d_bias = [sum_to(aval_of(bias), slope)] if bias_gradient else []
        return ([d_query, *d_bias], sums) if bias_rows else ([d_query], [*sums, *d_bias])

    parts = x.query, x.bias, x.mask, *rows
    axes = 1, _query_axis(x.bias), _query_axis(x.mask), 2, 2, 2, 1
    shapes = [x.key.shape, x.value.shape]
    if bias_gradient and bias_rows is None:
        shapes.append(x.bias.shape)
    row_axes = (1,) if bias_rows is None else (1, bias_rows)
    (d_query, *more), (d_key, d_value, *last) = by_blocks(
        block, Extents.of(x), parts, axes, row_axes, [(shape, wide) for shape in shapes]
    )
    found = [d_query, convert(d_key, dtype), convert(d_value, dtype)]
    return found + [convert(g, dtype_of(x.bias)) for g in (*more, *last)]
