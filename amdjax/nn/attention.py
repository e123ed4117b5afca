"""Scaled dot-product attention."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.lax.attention import attention
from amdjax.numpy._util import ArrayLike, as_array, convert


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
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """`softmax(scale * query · keyᵀ + bias) · value` (Vaswani et al., 2017).

    Args:
      query: of shape `(batch, T, N, H)` or `(T, N, H)`: T positions, N heads of H features.
      key: of shape `(batch, S, K, H)`; N must be a multiple of K (grouped and multi-query heads).
      value: of the shape of `key`.
      bias: added to the logits; broadcasts to `(batch, N, T, S)`.
      mask: boolean of that shape; false entries take no part.
      scale: factor of the logits; None means `1 / sqrt(H)`.
      is_causal: each position attends to itself and earlier ones only.
      query_seq_lengths: of shape `(batch,)`: positions from there on are padding, their result 0.
      key_value_seq_lengths: of shape `(batch,)`: keys from there on are ignored.
      local_window_size: how many positions to the left and right take part.
      implementation: None or "xla"; other kernels are not chosen by name here.
      return_residual: also return the logarithm of the softmax's denominator, `(batch, T, N)`.

    Returns:
      An array of the shape and dtype of `query`.

        >>> x = jnp.ones((1, 2, 1, 4))
        >>> nn.dot_product_attention(x, x, x).shape
        (1, 2, 1, 4)
    """
    q, k, v = (as_array("dot_product_attention", x, i) for i, x in enumerate((query, key, value)))
    if implementation not in (None, "xla"):
        raise ValueError(f"Unsupported implementation option: {implementation}")
    if q.ndim not in (3, 4):
        raise ValueError(f"query must have shape (T, N, H) or (batch, T, N, H), got {q.shape}")
    shape = q.shape
    lift = lambda x: lax.expand_dims(x, (0,)) if x.ndim == 3 else x
    q, k, v = lift(q), lift(k), lift(v)
    _check_shapes(q, k, v)
    opt = lambda x: None if x is None else as_array("dot_product_attention", x)
    bias, mask = opt(bias), opt(mask)
    if mask is not None and mask.dtype != bool:
        raise ValueError(f"mask must be boolean, got {mask.dtype}")
    bias, mask = (x if x is None else lift(x) for x in (bias, mask))
    window = local_window_size
    if isinstance(window, int):
        window = (window, window)
    lengths = opt(query_seq_lengths), opt(key_value_seq_lengths)
    scale = float(1 / np.sqrt(q.shape[-1])) if scale is None else scale
    out, residual = _attend(q, k, v, bias, mask, *lengths, scale, bool(is_causal), window)
    out = lax.reshape(out, shape)
    return (out, lax.reshape(residual, shape[:-1])) if return_residual else out


def _check_shapes(q: Array, k: Array, v: Array) -> None:
    batch, _, heads, features = q.shape
    if k.ndim != 4 or k.shape[0] != batch or k.shape[3] != features:
        raise ValueError(f"key of shape {k.shape} does not fit query of shape {q.shape}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"value of shape {v.shape} does not fit key of shape {k.shape}")
    if heads % k.shape[2]:
        raise ValueError(f"the number of query heads {heads} must be a multiple of that of key"
                         f" heads {k.shape[2]}")  # fmt: skip


@composite(static_argnames=("scale", "is_causal", "window"))
def _attend(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None,
    mask: Array | None,
    q_lengths: Array | None,
    kv_lengths: Array | None,
    scale: float,
    is_causal: bool,
    window: tuple[int, int] | None,
) -> tuple[Array, Array]:
    out, residual = attention(
        q, k, v, scale=scale, is_causal=is_causal, window=window, bias=bias, mask=mask,
        query_lengths=q_lengths, key_value_lengths=kv_lengths,
    )  # fmt: skip
    residual = convert(jnp.swapaxes(residual, 1, 2), k.dtype)
    return out, lax.stop_gradient(residual)
