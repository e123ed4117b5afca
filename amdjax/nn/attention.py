"""Scaled dot-product attention."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.dims import is_symbolic_dim
from amdjax.core.trace import Tracer
from amdjax.lax.attention import attention
from amdjax.nn import _random as random
from amdjax.nn._arguments import check_integer, check_number, check_share, is_integer
from amdjax.numpy._util import ArrayLike, as_array, convert

_NAME = "dot_product_attention"


def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    dropout_rate: float = 0.0,
    dropout_key: Any = None,
    query_scale: ArrayLike | None = None,
    key_scale: ArrayLike | None = None,
    value_scale: ArrayLike | None = None,
    out_dtype: Any = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """`softmax(scale * query · keyᵀ + bias) · value` (Vaswani et al., 2017).

    Args:
      query: of shape `(batch, T, N, H)` or `(T, N, H)`: T positions, N heads of H features.
      key: of shape `(batch, S, K, H)`; N must be a multiple of K (grouped and multi-query heads).
      value: of shape `(batch, S, K, D)`, mostly with D = H.
      bias: added to the logits; broadcasts to `(batch, N, T, S)`.
      mask: boolean of that shape; false entries take no part. Where a position attends to none at
        all, all keys have the same weight.
      scale: factor of the logits; None means `1 / sqrt(H)`. One that is traced multiplies `query`.
      is_causal: each position attends to itself and earlier ones only.
      query_seq_lengths: of shape `(batch,)`: positions from there on are padding, their result 0.
      key_value_seq_lengths: of shape `(batch,)`: keys from there on are ignored.
      local_window_size: how many positions to the left and right take part.
      dropout_rate: probability of a weight to be dropped; the others are larger by as much.
      dropout_key: key of what is dropped. Which weights are depends on nothing but key and place.
      query_scale: what elements of `query` are multiplied by to give their values, as those of
        float8 are; of shape `()` or `(batch,)`. Derivatives are computed in the dtype of the
        result; those by operands are rounded to the dtypes of these.
      key_scale: the same of `key`.
      value_scale: the same of `value`.
      out_dtype: dtype of the result; None means that of `query`, float32 if that is float8.
      implementation: None or "xla"; other kernels are not chosen by name here.
      return_residual: also return the logarithm of the softmax's denominator, `(batch, T, N)`.

    Returns:
      An array of shape `(batch, T, N, D)`. On CPUs one kernel computes it, and one its
      gradient; derivatives of all orders need memory that is linear in T and S.

        >>> x = jnp.ones((1, 2, 1, 4))
        >>> nn.dot_product_attention(x, x, x).shape
        (1, 2, 1, 4)
    """
    name = _NAME
    q, k, v = (as_array(name, x, i) for i, x in enumerate((query, key, value)))
    if implementation not in (None, "xla"):
        raise ValueError(f'{name}: implementation must be None or "xla", got {implementation!r}.')
    if q.ndim not in (3, 4):
        raise ValueError(
            f"{name}: query must have shape (T, N, H) or (batch, T, N, H), got {q.shape}."
        )
    rank = q.ndim
    lift = lambda x: lax.expand_dims(x, tuple(range(max(4 - x.ndim, 0))))
    q, k, v = lift(q), lift(k), lift(v)
    _check_operands(q, k, v)
    opt = lambda x: None if x is None else as_array(name, x)
    bias, mask = (x if x is None else lift(x) for x in (opt(bias), opt(mask)))
    if mask is not None and mask.dtype != bool:
        raise ValueError(f"{name}: mask must be boolean, got {mask.dtype}.")
    pairs = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    for which, x in (("bias", bias), ("mask", mask)):
        _check_broadcasts(which, x, pairs)
    window = _window(local_window_size)
    lengths = opt(query_seq_lengths), opt(key_value_seq_lengths)
    for which, x in zip(("query_seq_lengths", "key_value_seq_lengths"), lengths):
        if x is None:
            continue
        check_integer(name, which, x)
        if x.shape != (q.shape[0],):
            raise ValueError(f"{name}: {which} must have shape {(q.shape[0],)}, got {x.shape}.")
    if scale is None and is_symbolic_dim(q.shape[-1]):
        q, query_scale, scale = *_scaled(q, query_scale), 1.0
    scale = float(1 / np.sqrt(q.shape[-1])) if scale is None else scale
    check_number(name, "scale", scale)
    if isinstance(scale, Tracer):
        q, scale = _multiplied(q, scale), 1.0
    check_share(name, "dropout_rate", dropout_rate, "a probability in [0, 1]")
    rate = float(dropout_rate)
    seeds = _seeds(dropout_key, q.shape[0]) if 0 < rate < 1 else None
    factors = _factors(q, query_scale, key_scale, value_scale)
    if out_dtype is None:
        out_dtype = np.float32 if q.dtype.itemsize == 1 else q.dtype
    dtype = dtypes.dtype(out_dtype)
    if not jnp.issubdtype(dtype, np.floating):
        raise ValueError(f"{name}: out_dtype must be a floating dtype, got {dtype}.")
    out, residual = _attend(
        q, k, v, bias, mask, *lengths, seeds, factors, scale, bool(is_causal), window,
        0.0 if seeds is None else rate, None if factors is None else dtype,
    )  # fmt: skip
    out = convert(out * 0 if rate == 1 else out, dtype)
    if rank == 3:
        out, residual = (lax.squeeze(x, (0,)) for x in (out, residual))
    return (out, residual) if return_residual else out


def _window(window: Any) -> tuple[int, int] | None:
    """How many positions take part to the left and to the right."""
    if window is None:
        return None
    pair = (window, window) if is_integer(window) else window
    if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and all(map(is_integer, pair))):
        raise ValueError(
            f"{_NAME}: local_window_size must be an integer or a pair of integers, got {window!r}."
        )
    return int(pair[0]), int(pair[1])


def _multiplied(q: Array, scale: Array) -> Array:
    """Queries times a factor of all logits that only a run will tell, as one that is trained."""
    if q.dtype.itemsize == 1:
        raise ValueError(
            f"{_NAME}: scale must be a number where query is {q.dtype}; query_scale may be traced."
        )
    if scale.shape:
        raise ValueError(f"{_NAME}: scale must be a scalar, got shape {scale.shape}.")
    wide = jnp.promote_types(q.dtype, np.float32)
    return convert(q.astype(wide) * scale.astype(wide), q.dtype)


def _seeds(key: Any, batch: int) -> Any:
    """Words from which follows what is dropped of each example."""
    if key is None:
        raise ValueError(f"{_NAME}: dropout_key must be a key where weights are dropped, got None.")
    return random.bits(key, (batch, 2), np.uint32)


def _scaled(q: Array, query_scale: ArrayLike | None) -> tuple[Array, Any]:
    """Queries, or the scale that they have, by the root of a symbolic number of features."""
    factor = 1 / jnp.sqrt(q.shape[-1])
    if query_scale is not None or q.dtype.itemsize == 1:
        return q, factor * (1.0 if query_scale is None else query_scale)
    return convert(q * factor, q.dtype), None


def _factors(q: Array, *scales: ArrayLike | None) -> Array | None:
    """Factors of logits and results of each example; None where operands are what they are."""
    if q.dtype.itemsize > 1 and all(x is None for x in scales):
        return None
    found = []
    for which, x in zip(("query_scale", "key_scale", "value_scale"), scales):
        x = as_array(_NAME, 1.0 if x is None else x)
        if x.shape not in ((), q.shape[:1]):
            raise ValueError(
                f"{_NAME}: {which} must have shape () or {q.shape[:1]}, got {x.shape}."
            )
        found.append(jnp.broadcast_to(x.astype(np.float32), q.shape[:1]))
    return jnp.stack([found[0] * found[1], found[2]], 1)


def _check_operands(q: Array, k: Array, v: Array) -> None:
    batch, _, heads, features = q.shape
    if k.ndim != 4 or k.shape[0] != batch or k.shape[3] != features:
        raise ValueError(
            f"{_NAME}: key must have shape ({batch}, S, K, {features}) for query of shape "
            f"{q.shape}, got {k.shape}."
        )
    if v.ndim != 4 or v.shape[:3] != k.shape[:3]:
        raise ValueError(
            f"{_NAME}: value must have shape ({', '.join(map(str, k.shape[:3]))}, D) for key of "
            f"shape {k.shape}, got {v.shape}."
        )
    if not k.shape[2] or heads % k.shape[2]:
        raise ValueError(
            f"{_NAME}: the heads of query must be a multiple of those of key, got {heads} and "
            f"{k.shape[2]}."
        )
    if not k.shape[1]:
        raise ValueError(f"{_NAME}: key must have at least one position, got shape {k.shape}.")
    for which, x in (("key", k), ("value", v)):
        if x.dtype != q.dtype:
            raise ValueError(
                f"{_NAME}: {which} must have the dtype of query, {q.dtype}, got {x.dtype}."
            )
    if not jnp.issubdtype(q.dtype, np.floating):
        raise ValueError(f"{_NAME}: query must be of a floating dtype, got {q.dtype}.")


def _check_broadcasts(which: str, x: Array | None, pairs: tuple[int, ...]) -> None:
    """Whether a bias or mask has an element for each pair, or one for all along an axis."""
    if x is None:
        return
    if jnp.issubdtype(x.dtype, np.complexfloating):
        raise ValueError(f"{_NAME}: {which} must be real, got {x.dtype}.")
    if x.ndim != 4 or any(n not in (1, m) for n, m in zip(x.shape, pairs)):
        raise ValueError(f"{_NAME}: {which} must broadcast to {pairs}, got shape {x.shape}.")


@composite(static_argnames=("scale", "is_causal", "window", "rate", "out_dtype"))
def _attend(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None,
    mask: Array | None,
    q_lengths: Array | None,
    kv_lengths: Array | None,
    seeds: Array | None,
    factors: Array | None,
    scale: float,
    is_causal: bool,
    window: tuple[int, int] | None,
    rate: float,
    out_dtype: Any,
) -> tuple[Array, Array]:
    out, residual = attention(
        q, k, v, scale=scale, is_causal=is_causal, window=window, rate=rate, bias=bias, mask=mask,
        query_lengths=q_lengths, key_value_lengths=kv_lengths, seeds=seeds, factors=factors,
        out_dtype=out_dtype,
    )  # fmt: skip
    residual = convert(jnp.swapaxes(residual, 1, 2), out.dtype)
    return out, lax.stop_gradient(residual)
