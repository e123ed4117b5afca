"""Attention of com.microsoft, with its rotary positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import nn, numpy as jnp
from amdjax.core.dims import max_dim
from amdjax.nn.rotary import turn_pairs

from ..registry import integer
from .contrib import contrib
from .language import Heads, Visible, attend, attend_by_scores, join_heads, split_heads


@contrib("RotaryEmbedding")
def rotary_embedding(
    x: Any, positions: Any, cos: Any, sin: Any, *, node: Any, interleaved: int = 0,
    is_packed_batching: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Any:  # fmt: skip
    """Pairs of features, turned by angles; one position is that of the first of all."""
    if is_packed_batching:
        raise node.error("is_packed_batching is not supported")
    if x.ndim == 4:
        heads = jnp.swapaxes(x, 1, 2)
    else:
        count = num_heads or x.shape[-1] // (2 * cos.shape[-1])
        heads = split_heads(x, count)
    if positions.size == 1:
        at = positions.reshape(1, 1) + jnp.arange(heads.shape[1], dtype=positions.dtype)
    else:
        at = positions
    y = _turned(heads, at, cos, sin, interleaved)
    y = y * np.asarray(scale, y.dtype) if scale != 1 else y
    return jnp.swapaxes(y, 1, 2) if x.ndim == 4 else join_heads(y)


def _turned(heads: Any, positions: Any, cos: Any, sin: Any, interleaved: int) -> Any:
    """Heads `(batch, positions, heads, features)`, turned as their positions say."""
    cos, sin = (nn.embedding(t, positions)[..., None, :] for t in (cos, sin))
    pairing = "interleaved" if interleaved else "halves"
    return turn_pairs(heads, cos, sin, pairing, 2 * cos.shape[-1])


def _masked_bias(mask: Any, filler: float, dtype: Any) -> Any:
    """What is added to logits for a mask of integers, of which 0 hides a key."""
    return jnp.where(mask != 0, np.zeros((), dtype), np.asarray(filler).astype(dtype))


def _added(*parts: Any) -> Any:
    found = None
    for part in parts:
        if part is not None:
            found = part if found is None else found + part
    return found


@contrib("Attention")
def attention(
    x: Any, w: Any, b: Any = None, mask: Any = None, past: Any = None, bias: Any = None,
    past_length: Any = None, *, node: Any, num_heads: int, do_rotary: int = 0,
    mask_filter_value: float = -10000.0, past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Any = None, rotary_embedding_dim: int = 0, scale: float = 0.0,
    unidirectional: int = 0,
) -> Any:  # fmt: skip
    """Attention of a sequence to itself, with the projections of queries, keys and values."""
    if do_rotary or past_present_share_buffer:
        raise node.error("do_rotary and past_present_share_buffer are not supported")
    y = jnp.matmul(x, w)
    y = y if b is None else y + b
    sizes = [w.shape[-1] // 3] * 3 if qkv_hidden_sizes is None else list(qkv_hidden_sizes)
    q, k, v = (split_heads(p, num_heads) for p in jnp.split(y, np.cumsum(sizes)[:2].tolist(), -1))
    offset = 0
    if past is not None:
        offset = past.shape[3]
        k = jnp.concatenate([jnp.swapaxes(past[0], 1, 2), k], 1)
        v = jnp.concatenate([jnp.swapaxes(past[1], 1, 2), v], 1)
    hidden = _mask_of_keys(node, mask, q, k, mask_filter_value)
    visible = Visible(bias=_added(bias, hidden), offset=offset, is_causal=bool(unidirectional))
    y = join_heads(attend(Heads(q, k, v), visible, scale or None))
    if node.outputs == 1:
        return y
    return y, jnp.stack([jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)])


def _mask_of_keys(node: Any, mask: Any, q: Any, k: Any, filler: float) -> Any:
    """What a mask adds to logits, from any of the forms that it may have."""
    if mask is None:
        return None
    batch, keys = q.shape[0], jnp.arange(k.shape[1], dtype=np.int32)
    if mask.ndim == 1:  # the ends of the sequences, then their starts
        ends = mask[:batch, None]
        if mask.shape[0] == batch:
            kept = keys < ends
        elif mask.shape[0] == 2 * batch:
            kept = (keys < ends) & (keys >= mask[batch:, None])
        else:
            raise node.error(f"a mask of shape {tuple(mask.shape)} is not supported")
        return _masked_bias(kept[:, None, None], filler, q.dtype)
    if mask.ndim == 4:  # rows and columns of the longest sequence
        end = k.shape[1]
        mask = mask[:, :, end - q.shape[1] : end, :end]
        return _masked_bias(mask, filler, q.dtype)
    mask = mask[:, None, None] if mask.ndim == 2 else mask[:, None]
    return _masked_bias(mask, filler, q.dtype)


@contrib("MultiHeadAttention")
def multi_head_attention(
    q: Any, k: Any = None, v: Any = None, b: Any = None, mask: Any = None, bias: Any = None,
    past_key: Any = None, past_value: Any = None, past_length: Any = None, beams: Any = None, *,
    node: Any, num_heads: int, mask_filter_value: float = -10000.0, scale: float = 0.0,
    unidirectional: int = 0,
) -> Any:  # fmt: skip
    """Attention to keys and values that are given apart, packed, or by heads already."""
    if past_length is not None or beams is not None:
        raise node.error("past_sequence_length and cache_indirection are not supported")
    q, k, v = _packed(node, q, k, v, num_heads)
    if b is not None:
        sizes = [x.shape[2] * x.shape[3] for x in (q, k)]
        parts = jnp.split(b, np.cumsum(sizes).tolist())
        q, k, v = (x + p.reshape(x.shape[2:]) for x, p in zip((q, k, v), parts))
    offset = 0
    if past_key is not None:
        offset = past_key.shape[2]
        k = jnp.concatenate([jnp.swapaxes(past_key, 1, 2), k], 1)
        v = jnp.concatenate([jnp.swapaxes(past_value, 1, 2), v], 1)
    hidden = _mask_of_keys(node, mask, q, k, mask_filter_value)
    visible = Visible(bias=_added(bias, hidden), offset=offset, is_causal=bool(unidirectional))
    heads = Heads(q, k, v)
    if node.outputs <= 3:
        y, shown = attend(heads, visible, scale or None), None
    else:
        y, scores = attend_by_scores(heads, visible, scale or None)
        shown = scores.biased.astype(q.dtype)
    return join_heads(y), jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2), shown


def _packed(node: Any, q: Any, k: Any, v: Any, heads: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values by heads, from any of the forms that they may have."""
    if q.ndim == 5:  # (batch, positions, heads, 3, features)
        return q[:, :, :, 0], q[:, :, :, 1], q[:, :, :, 2]
    q = split_heads(q, heads)
    if k is None:
        raise node.error("key must be given where query does not hold it")
    if k.ndim == 5:  # (batch, positions, heads, 2, features)
        return q, k[:, :, :, 0], k[:, :, :, 1]
    if k.ndim == 4:  # (batch, heads, positions, features)
        return q, jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)
    return q, split_heads(k, heads), split_heads(v, heads)


@contrib("GroupQueryAttention")
def group_query_attention(
    q: Any, k: Any = None, v: Any = None, past_key: Any = None, past_value: Any = None,
    lengths: Any = None, total: Any = None, cos: Any = None, sin: Any = None,
    positions: Any = None, bias: Any = None, sink: Any = None, k_scale: Any = None,
    v_scale: Any = None, q_norm: Any = None, k_norm: Any = None, query_lengths: Any = None, *,
    node: Any, num_heads: int, kv_num_heads: int, causal: int = 1, do_rotary: int = 0,
    k_norm_epsilon: float | None = None, k_quant_type: str = "NONE", kv_cache_bit_width: int = 0,
    local_window_size: int = -1, q_norm_epsilon: float | None = None, qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0, rotary_interleaved: int = 0, scale: float = 0.0,
    sliding_window_cache: int = 0, smooth_softmax: int = 0, softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> Any:  # fmt: skip
    """Causal attention with a cache, whose sequences may have lengths of their own."""
    if k_scale is not None or v_scale is not None or sliding_window_cache or qk_output:
        raise node.error("quantized and windowed caches and qk_output are not supported")
    if query_lengths is not None:
        raise node.error("query_seqlens is not supported")
    q, k, v = _grouped(q, k, v, num_heads, kv_num_heads)
    if q_norm is not None:
        q = nn.rms_norm(q, q_norm, epsilon=q_norm_epsilon or qk_norm_epsilon)
        k = nn.rms_norm(k, k_norm, epsilon=k_norm_epsilon or qk_norm_epsilon)
    new, known = q.shape[1], 0 if past_key is None else past_key.shape[2]
    whole = integer(total, "total_sequence_length")
    lengths = lengths.reshape(-1).astype(np.int32) + 1
    # A prompt that is filled up on its right has fewer positions than there are rows of queries.
    before = jnp.maximum(lengths - jnp.asarray(new, np.int32), 0)
    at = before[:, None] + jnp.arange(new, dtype=np.int32)
    if do_rotary:
        turns = at if positions is None else positions
        q, k = (_turned(x, turns, cos, sin, rotary_interleaved) for x in (q, k))
    room = max_dim(whole, known)
    k, v = (_stored(x, past, at, room) for x, past in ((k, past_key), (v, past_value)))
    window = (local_window_size - 1 if local_window_size > 0 else -1, -1)
    if bias is not None and bias.shape[-1] != room:
        bias = jnp.pad(bias, [(0, 0)] * 3 + [(0, room - bias.shape[-1])])
    visible = Visible(
        bias=bias, offset=before, is_causal=bool(causal), lengths=lengths, window=window
    )
    if smooth_softmax and sink is None:
        sink = jnp.zeros((num_heads,), q.dtype)
    heads = Heads(q, k, v)
    if softcap or sink is not None:
        y, _ = attend_by_scores(heads, visible, scale or None, softcap, sink=sink)
    else:
        y = attend(heads, visible, scale or None)
    return join_heads(y), jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)


def _grouped(q: Any, k: Any, v: Any, heads: int, groups: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values by heads, which may lie side by side in one array."""
    if k is None:
        features = q.shape[-1] // (heads + 2 * groups)
        q, k, v = jnp.split(q, [heads * features, (heads + groups) * features], -1)
    return split_heads(q, heads), split_heads(k, groups), split_heads(v, groups)


def _stored(new: Any, past: Any, at: Any, room: int) -> Any:
    """A cache, `(batch, positions, heads, features)`, with what is new at its places."""
    if past is None:
        cache = jnp.zeros((new.shape[0], room, *new.shape[2:]), new.dtype)
    else:
        cache = jnp.swapaxes(past, 1, 2)
        cache = jnp.pad(cache, [(0, 0), (0, room - past.shape[2]), (0, 0), (0, 0)])
    batch = jnp.arange(new.shape[0], dtype=np.int32)[:, None]
    return cache.at[batch, at].set(new)
