"""Scaled dot-product attention, its tangent and its gradient: `softmax(q · kᵀ) · v`.

Three primitives that take the same leading operands: query, key and value, then those of
`OPTIONAL` that `given` names. `attention_p` returns for each query also the greatest logit and the
sum of the exponentials relative to it, of which the other two compute the weights anew, so that
nothing of the size of all pairs needs to be kept. Where a compiler's pass finds that query, key or
value are parts of arrays, `views` says which (`passes/attention/views.py`). A setting of precision
that held where they were called is their `precision`. `definition.py` defines each by other
operations: what machines without kernels run, and what derivatives of higher order are of.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax.core.aval import ShapedArray
from amdjax.core.lowering import Decompose, Shaped
from amdjax.core.precision import canonical_precision, precision_setting
from amdjax.core.primitive import Primitive
from amdjax.core.views import viewed
from amdjax.lax._rules import (
    FLOAT,
    check_dtype,
    check_same_dtype,
    dtype_of,
    is_zero,
    shape_of,
    zero_tangent,
)
from amdjax.lax.attention.batching import batch_by
from amdjax.lax.attention.definition import (
    composed_attention,
    composed_gradient,
    composed_tangent,
    factor_of_examples,
)
from amdjax.lax.attention.operands import OPTIONAL, Extents, operands, wide_dtype
from amdjax.lax.casting import convert
from amdjax.lax.elementary import log
from amdjax.lax.elementwise import add, mul, sub
from amdjax.lax.reductions import reduce_sum
from amdjax.lax.shape import transpose
from amdjax.transforms import instantiate_zeros, is_undefined_primal, jvp_flat

__all__ = ["attention", "attention_gradient_p", "attention_p", "attention_tangent_p"]

attention_p = Primitive("attention", multiple_results=True)


@attention_p.def_abstract_eval
def _attention_type(
    *avals: Any, given: Sequence[str], out_dtype: Any = None, views: Any = (), **_: Any
) -> list[ShapedArray]:
    x, _rest = operands(viewed(avals, views), given)
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
    out, maximum, total = attention_p.bind(*primals, given=given, **params)
    if "factors" in given:
        params.pop("out_dtype", None)  # from here on that of the operands
        primals, tangents, given = _multiplied(primals, tangents, given, dtype_of(out))
    names = ("query", "key", "value", *given)
    known = {name: t for name, t in zip(names, tangents) if not is_zero(t)}
    args = (*primals, out, maximum, total, *known.values())
    changes = attention_tangent_p.bind(*args, given=given, directions=tuple(known), **params)
    # Only with the total is the maximum a function: whatever is subtracted, their sum is the same.
    return [out, maximum, total], [changes[0], zero_tangent(maximum), changes[1]]


def _multiplied(
    primals: Sequence[Any], tangents: Sequence[Any], given: Sequence[str], dtype: Any
) -> tuple[list[Any], list[Any], list[str]]:
    """Operands times their factors in the dtype of the result, whose attention is the same.

    Their derivatives are those of what was stored, as of float8, and of the factors.
    """
    place = 3 + given.index("factors")

    def values(query: Any, key: Any, value: Any, factors: Any) -> list[Any]:
        def times(x: Any, which: int) -> Any:
            wide = wide_dtype(dtype_of(x))
            factor = factor_of_examples(factors, which, shape_of(x), wide)
            return convert(mul(convert(x, wide), factor), dtype)

        return [times(query, 0), convert(key, dtype), times(value, 1)]

    chosen = (0, 1, 2, place)
    made, changes = jvp_flat(values, [primals[i] for i in chosen], [tangents[i] for i in chosen])
    rest = [i for i in range(3, len(primals)) if i != place]
    return (
        [*made, *(primals[i] for i in rest)], [*changes, *(tangents[i] for i in rest)],
        [name for name in given if name != "factors"],
    )  # fmt: skip


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
    *avals: Any, given: Sequence[str], bias_gradient: bool, views: Any = (), **_: Any
) -> list[ShapedArray]:
    x, _rest = operands(viewed(avals, views), given)
    wanted = [x.query, x.key, x.value, x.bias][: 3 + bias_gradient]
    return [ShapedArray(y.shape, y.dtype) for y in wanted]


def _derivative_of(composed: Any) -> Any:
    """The jvp rule of a primitive, as that of its definition."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        return jvp_flat(lambda *args: composed(*args, **params), primals, tangents)

    return jvp


for _primitive, _composed in (
    (attention_tangent_p, composed_tangent),
    (attention_gradient_p, composed_gradient),
):
    _primitive.jvp = _derivative_of(_composed)
batch_by(attention_p, lambda **_: (), ("out", "maximum", "total"))
batch_by(
    attention_tangent_p,
    lambda directions, **_: ("out", "maximum", "total", *directions),
    ("out", "total"),
)
batch_by(
    attention_gradient_p,
    lambda **_: ("maximum", "total", "delta", "ct"),
    ("query", "key", "value", "bias"),
)


def _flops(products: int) -> Any:
    """Of an element of the results, for so many products of queries and keys or the like."""

    def flops(eqn: Any) -> float:
        avals = viewed([x.aval for x in eqn.invars], eqn.params.get("views", ()))
        e = Extents.of(operands(avals, eqn.params["given"])[0])
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
    more: dict[str, Any] = {} if out_dtype is None else {"out_dtype": np.dtype(out_dtype)}
    if dtype_of(query) == np.float32 and (asked := precision_setting(canonical_precision(None))):
        more["precision"] = asked
    if window is not None:  # no further than there are positions, whose sums are of 32 bits
        most = builtins.max(shape_of(query)[1], shape_of(key)[1])
        left, right = (min(builtins.max(n, -most), most) for n in window)
        window = left, right
    # No kernel sums float32 in float64.
    bind = composed_attention if more.get("precision") == "F64_F64_F64" else attention_p.bind
    out, maximum, total = bind(
        query, key, value, *(optional[name] for name in given),
        given=given, scale=scale, is_causal=is_causal, window=window, rate=rate, **more,
    )  # fmt: skip
    return out, add(maximum, log(total))
