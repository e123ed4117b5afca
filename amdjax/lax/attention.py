"""Scaled dot-product attention, its tangent and its gradient: `softmax(q · kᵀ) · v`.

Three primitives that take the same leading operands: query, key and value, then those of
`OPTIONAL` that `given` names. `attention_p` returns for each query also the greatest logit and the
sum of the exponentials relative to it, of which the other two compute the weights anew, so that
nothing of the size of all pairs needs to be kept. Each is defined here by other operations
(`composed_…`): what machines without kernels run, and what derivatives of higher order are of.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from amdjax.core.aval import ShapedArray
from amdjax.core.integers import ceil_div
from amdjax.core.lowering import Decompose, Shaped
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import (
    FLOAT,
    Shape,
    aval_of,
    batch_to,
    check_dtype,
    check_same_dtype,
    dtype_of,
    is_zero,
    shape_of,
    sum_to,
    zero_tangent,
)
from amdjax.lax.bitwise import bitwise_and, bitwise_or
from amdjax.lax.casting import convert
from amdjax.lax.comparison import ge, le, lt
from amdjax.lax.counter_blocks import threefry2x32
from amdjax.lax.dot import dot_general
from amdjax.lax.elementary import exp, log
from amdjax.lax.elementwise import add, div, max, mul, sub
from amdjax.lax.filling import broadcasted_iota, full_like
from amdjax.lax.joining import concatenate
from amdjax.lax.reductions import reduce_max, reduce_sum
from amdjax.lax.rounding import is_finite
from amdjax.lax.selection import select
from amdjax.lax.shape import broadcast_in_dim, reshape, transpose
from amdjax.lax.slicing import slice_in_dim
from amdjax.transforms import instantiate_zeros, is_undefined_primal, jvp_flat

__all__: list[str] = []

#: Operands behind query, key and value, in order, as far as they are given.
OPTIONAL = ("bias", "mask", "query_lengths", "key_value_lengths", "seeds", "factors")


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
    """Sizes of an attention, with the features of queries and keys, and those of values."""

    batch: int
    queries: int
    keys: int
    heads: int
    key_heads: int
    features: int
    value_features: int

    @staticmethod
    def of(x: Operands) -> Extents:
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


#: What stands for the logits of pairs that take no part. Large, not infinite: the weights of a
#: query without any key are then all equal.
LEAST_LOGIT = -0.7 * float(np.finfo(np.float32).max)


# Definitions by other operations


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


def _keep(x: Operands, e: Extents, is_causal: bool, window: tuple[int, int] | None) -> Any:
    """Which pairs of a query and a key take part, `(B, N, T, S)`; None if all do."""
    index = np.dtype(np.int32)
    rows, columns = (broadcasted_iota(index, e.pairs, axis) for axis in (2, 3))
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


def _dropped(x: Any, seeds: Any, rate: float, e: Extents) -> Any:
    """Values of pairs without those that are dropped, the others larger by as much.

    Whether a pair is dropped follows from the words of its example, its head and query, and its
    key: two neighboring keys take the two words of a block of Threefry. So all kernels drop the
    same pairs, forward and backward.
    """
    if seeds is None:
        return x
    word = np.dtype(np.uint32)
    blocks = (*e.pairs[:3], ceil_div(e.keys, 2))
    head, query, block = (broadcasted_iota(word, blocks, axis) for axis in (1, 2, 3))
    row = add(mul(head, full_like(head, e.queries)), query)
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
        logits = mul(logits, _factor(x, 0, e.pairs, wide))
    if x.bias is not None:
        logits = add(logits, _to_pairs(convert(x.bias, wide), e))
    if keep is None:
        return logits
    return select(keep, logits, full_like(logits, LEAST_LOGIT))


def _factor(x: Operands, which: int, shape: Shape, wide: Any) -> Any:
    """One of the factors of each example, repeated to a shape."""
    column = slice_in_dim(convert(x.factors, wide), which, which + 1, axis=1)
    return broadcast_in_dim(reshape(column, shape[:1]), shape, (0,))


def _without_padding(out: Any, x: Operands) -> Any:
    """`out`, `(B, T, N, D)`, with zeros for queries that are padding."""
    if x.query_lengths is None:
        return out
    shape = shape_of(out)
    lengths = broadcast_in_dim(convert(x.query_lengths, np.int32), shape, (0,))
    used = lt(broadcasted_iota(np.int32, shape, 1), lengths)
    return select(used, out, full_like(out, 0))


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
    e, dtype = Extents.of(x), dtype_of(x.query)
    out_dtype = dtype if out_dtype is None else out_dtype
    wide = wide_dtype(dtype)
    if x.factors is not None:
        dtype = wide
        x = x._replace(query=convert(x.query, wide), key=convert(x.key, wide),
                       value=convert(x.value, wide))  # fmt: skip
    logits = _logits(x, e, scale, _keep(x, e, is_causal, window))
    maximum = reduce_max(logits, (3,))
    # Of a row of infinities nothing is subtracted that would make it NaN before its end.
    maximum = max(maximum, full_like(maximum, float(np.finfo(wide).min)))
    exponentials = exp(sub(logits, _to_pairs(_column(maximum), e)))
    total = reduce_sum(exponentials, (3,))
    weights = _dropped(div(exponentials, _to_pairs(_column(total), e)), x.seeds, rate, e)
    out = _over_keys(convert(weights, dtype), x.value, e, wide)
    if x.factors is not None:
        out = mul(out, _factor(x, 1, shape_of(out), wide))
    return [_without_padding(convert(out, out_dtype), x), maximum, total]


def _column(x: Any) -> Any:
    return reshape(x, (*shape_of(x), 1))


def _weights(x: Operands, e: Extents, scale: float, keep: Any, maximum: Any, total: Any) -> Any:
    """The weights anew, of what `attention_p` returned."""
    logits = _logits(x, e, scale, keep)
    exponentials = exp(sub(logits, _to_pairs(_column(maximum), e)))
    return div(exponentials, _to_pairs(_column(total), e))


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
    x, (_, maximum, total, *tangents) = operands(args, given)
    x = _without_unused(x)
    e, dtype = Extents.of(x), dtype_of(x.query)
    wide, change = wide_dtype(dtype), dict(zip(directions, tangents))
    keep = _keep(x, e, is_causal, window)
    weights = _weights(x, e, scale, keep, maximum, total)
    terms: list[Any] = []
    if "query" in change:
        terms.append(_pairs(change["query"], x.key, e, wide))
    if "key" in change:
        terms.append(_pairs(x.query, change["key"], e, wide))
    terms = [mul(t, full_like(t, scale)) for t in terms]
    if "bias" in change:
        terms.append(_to_pairs(convert(change["bias"], wide), e))
    out = full_like(x.query, 0, wide, (e.batch, e.queries, e.heads, e.value_features))
    mean = full_like(maximum, 0)
    if terms:
        slope = terms[0]
        for term in terms[1:]:
            slope = add(slope, term)
        if keep is not None:
            slope = select(keep, slope, full_like(slope, 0))
        weighted = mul(weights, slope)
        mean = reduce_sum(weighted, (3,))
        weighted = sub(weighted, mul(weights, _to_pairs(_column(mean), e)))
        weighted = _dropped(weighted, x.seeds, rate, e)
        out = add(out, _over_keys(weighted, convert(x.value, wide), e, wide))
    if "value" in change:
        kept = _dropped(weights, x.seeds, rate, e)
        out = add(out, _over_keys(kept, convert(change["value"], wide), e, wide))
    return [_without_padding(convert(out, dtype), x), mul(mean, total)]


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
    x, (maximum, total, delta, ct) = operands(args, given)
    x = _without_unused(x)
    e, dtype = Extents.of(x), dtype_of(x.query)
    wide = wide_dtype(dtype)
    keep = _keep(x, e, is_causal, window)
    weights = _weights(x, e, scale, keep, maximum, total)
    ct = convert(_without_padding(ct, x), wide)
    d_value = _over_queries(_dropped(weights, x.seeds, rate, e), ct, e, wide)
    slope = _dropped(_pairs(ct, convert(x.value, wide), e, wide), x.seeds, rate, e)
    slope = sub(slope, _to_pairs(_column(delta), e))
    slope = mul(weights, slope)
    if keep is not None:
        slope = select(keep, slope, full_like(slope, 0))
    scaled = mul(slope, full_like(slope, scale))
    d_query = _over_keys(scaled, convert(x.key, wide), e, wide)
    d_key = _over_queries(scaled, convert(x.query, wide), e, wide)
    found = [convert(g, dtype) for g in (d_query, d_key, d_value)]
    if bias_gradient:
        found.append(convert(sum_to(aval_of(x.bias), slope), dtype_of(x.bias)))
    return found


# The primitives


attention_p = Primitive("attention", multiple_results=True)


@attention_p.def_abstract_eval
def _attention_type(
    *avals: Any, given: Sequence[str], out_dtype: Any = None, **_: Any
) -> list[ShapedArray]:
    x, _rest = operands(avals, given)
    check_same_dtype("attention", x.query, x.key, x.value)
    check_dtype("attention", x.query.dtype, FLOAT)
    e = Extents.of(x)
    if not e.keys or (e.key_heads and e.heads % e.key_heads):
        raise TypeError(f"attention of {x.query.shape} to keys of shape {x.key.shape}.")
    statistic = ShapedArray(e.pairs[:3], wide_dtype(x.query.dtype))
    shape = (e.batch, e.queries, e.heads, e.value_features)
    dtype = x.query.dtype if out_dtype is None else np.dtype(out_dtype)
    return [ShapedArray(shape, dtype), statistic, statistic]


@attention_p.def_jvp
def _attention_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, given: Sequence[str], **params: Any
) -> tuple[list[Any], list[Any]]:
    if "factors" in given:
        raise TypeError(
            "attention of operands with scales has no derivative: differentiate that of operands "
            "that are converted and multiplied by their scales before."
        )
    out, maximum, total = attention_p.bind(*primals, given=given, **params)
    names = ("query", "key", "value", *given)
    known = {name: t for name, t in zip(names, tangents) if not is_zero(t)}
    args = (*primals, out, maximum, total, *known.values())
    changes = attention_tangent_p.bind(*args, given=given, directions=tuple(known), **params)
    # Only with the total is the maximum a function: whatever is subtracted, their sum is the same.
    return [out, maximum, total], [changes[0], zero_tangent(maximum), changes[1]]


attention_tangent_p = Primitive("attention_tangent", multiple_results=True)


@attention_tangent_p.def_abstract_eval
def _tangent_type(*avals: Any, given: Sequence[str], **_: Any) -> list[ShapedArray]:
    _x, (out, _maximum, total, *_rest) = operands(avals, given)
    return [ShapedArray(out.shape, out.dtype), ShapedArray(total.shape, total.dtype)]


@attention_tangent_p.def_transpose
def _tangent_transpose(
    cts: Sequence[Any],
    *args: Any,
    given: Sequence[str],
    directions: Sequence[str],
    **params: Any,
) -> list[Any]:
    known, linear = args[: -len(directions)], args[-len(directions) :]
    _x, (out, maximum, total) = operands(known, given)
    wide = dtype_of(maximum)
    ct, ct_total = map(instantiate_zeros, cts)
    delta = reduce_sum(mul(convert(ct, wide), convert(out, wide)), (3,))
    delta = sub(transpose(delta, (0, 2, 1)), mul(ct_total, total))
    wanted = {name: y.aval for name, y in zip(directions, linear) if is_undefined_primal(y)}
    found = attention_gradient_p.bind(
        *known[: 3 + len(given)], maximum, total, delta, ct,
        given=given, bias_gradient="bias" in wanted, **params,
    )  # fmt: skip
    by_name = dict(zip(("query", "key", "value", "bias"), found))
    return [None] * len(known) + [by_name[d] if d in wanted else None for d in directions]


attention_gradient_p = Primitive("attention_gradient", multiple_results=True)


@attention_gradient_p.def_abstract_eval
def _gradient_type(
    *avals: Any, given: Sequence[str], bias_gradient: bool, **_: Any
) -> list[ShapedArray]:
    x, _rest = operands(avals, given)
    wanted = [x.query, x.key, x.value, x.bias][: 3 + bias_gradient]
    return [ShapedArray(y.shape, y.dtype) for y in wanted]


def _derivative_of(composed: Any) -> Any:
    """The jvp rule of a primitive, as that of its definition."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        return jvp_flat(lambda *args: composed(*args, **params), primals, tangents)

    return jvp


def _fold_batch(primitive: Primitive) -> Any:
    """The batching rule: examples join the batch, of all operands and results the first axis."""

    def batch(axis: Any, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
        sizes = [shape_of(x)[0 if d is None or d > 0 else 1] for x, d in zip(args, dims)]
        size = sizes[0]

        def fold(x: Any, dim: int | None) -> Any:
            x = batch_to(x, dim, axis.size)
            shape = shape_of(x)
            if shape[1] != size:  # a bias or mask of all the batch
                x = broadcast_in_dim(
                    reshape(x, (shape[0], *shape[2:])),
                    (shape[0], size, *shape[2:]),
                    (0, *range(2, len(shape))),
                )
            return reshape(x, (axis.size * size, *shape[2:]))

        outs = primitive.bind(*map(fold, args, dims), **params)
        outs = [reshape(y, (axis.size, size, *shape_of(y)[1:])) for y in outs]
        return outs, [0] * len(outs)

    return batch


for _primitive, _composed in (
    (attention_tangent_p, composed_tangent),
    (attention_gradient_p, composed_gradient),
):
    _primitive.jvp = _derivative_of(_composed)
for _primitive in (attention_p, attention_tangent_p, attention_gradient_p):
    _primitive.batch = _fold_batch(_primitive)


def _flops(products: int) -> Any:
    """Of an element of the results, for so many products of queries and keys or the like."""

    def flops(eqn: Any) -> float:
        e = Extents.of(operands([x.aval for x in eqn.invars], eqn.params["given"])[0])
        elements = sum(v.aval.size for v in eqn.outvars) or 1
        features = (e.features + e.value_features) / 2
        return 2.0 * products * e.batch * e.heads * e.queries * e.keys * features / elements

    return flops


attention_p.lowering = Shaped("attention", composed=composed_attention, flops=_flops(2))
attention_tangent_p.lowering = Decompose(composed_tangent)
attention_gradient_p.lowering = Shaped(
    "attention_gradient", composed=composed_gradient, flops=_flops(5)
)


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float,
    is_causal: bool = False,
    window: tuple[int, int] | None = None,
    rate: float = 0.0,
    out_dtype: Any = None,
    **optional: Any,
) -> tuple[Any, Any]:
    """Attention and the logarithm of the sum of exponentials of each query's logits.

    Args:
      query: of shape `(batch, T, N, H)`.
      key: of shape `(batch, S, K, H)`; N is a multiple of K.
      value: of shape `(batch, S, K, D)`.
      scale: factor of the logits.
      is_causal: keys behind a query take no part.
      window: how many keys before and behind the place of a query take part.
      rate: probability of a weight to be dropped, below 1; with `seeds`.
      out_dtype: dtype of the result; None means that of the query.
      **optional: those of `OPTIONAL` that are not None.

    Returns:
      Arrays of shape `(batch, T, N, D)` and `(batch, N, T)`.
    """
    given = tuple(name for name in OPTIONAL if optional.get(name) is not None)
    more = {} if out_dtype is None else {"out_dtype": np.dtype(out_dtype)}
    if window is not None:  # no further than there are positions, whose sums are of 32 bits
        most = builtins.max(shape_of(query)[1], shape_of(key)[1])
        left, right = (min(builtins.max(n, -most), most) for n in window)
        window = left, right
    out, maximum, total = attention_p.bind(
        query, key, value, *(optional[name] for name in given),
        given=given, scale=scale, is_causal=is_causal, window=window, rate=rate, **more,
    )  # fmt: skip
    return out, add(maximum, log(total))
