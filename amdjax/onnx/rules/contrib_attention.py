"""Attention of com.microsoft, with its rotary positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import numpy as jnp
from amdjax.nn.linear import embedding
from amdjax.nn.rotary import turn_pairs

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
    y = turned(heads, at, cos, sin, interleaved)
    y = y * np.asarray(scale, y.dtype) if scale != 1 else y
    return jnp.swapaxes(y, 1, 2) if x.ndim == 4 else join_heads(y)


def turned(heads: Any, positions: Any, cos: Any, sin: Any, interleaved: int) -> Any:
    """Heads `(batch, positions, heads, features)`, turned as their positions say."""
    cos, sin = (embedding(t, positions)[..., None, :] for t in (cos, sin))
    pairing = "interleaved" if interleaved else "halves"
    return turn_pairs(heads, cos, sin, pairing, 2 * cos.shape[-1])


def _masked_bias(mask: Any, filler: float, dtype: Any) -> Any:
    """What is added to logits for a mask of integers, of which 0 hides a key."""
    return jnp.where(mask != 0, np.zeros((), dtype), np.asarray(filler).astype(dtype))


def _added(keys: Any, *parts: Any) -> Any:
    """The sum of what is added to logits; keys beyond the end of a part are not those of any."""
    found = None
    for part in parts:
        if part is not None:
            part = to_width(part, keys)
            found = part if found is None else found + part
    return found


def to_width(x: Any, keys: Any) -> Any:
    """What is added for the keys that are there, as wide as the buffer that they lie in."""
    if x is None or x.shape[-1] == 1 or x.shape[-1] == keys:
        return x
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, keys - x.shape[-1])])


def _behind(new: Any, pasts: Any, length: Any) -> tuple[list[Any], Visible]:
    """Keys and values behind those of the past, and which of them there are.

    Args:
      new: two arrays `(batch, positions, heads, features)`.
      pasts: two arrays `(batch, heads, positions, features)`, or None.
      length: how many positions of the past there are, where it has room for the new ones.
    """
    if pasts[0] is None:
        return list(new), Visible()
    if length is None:
        joined = [jnp.concatenate([jnp.swapaxes(p, 1, 2), x], 1) for x, p in zip(new, pasts)]
        return joined, Visible(offset=pasts[0].shape[2])
    before = jnp.asarray(length).astype(np.int32).reshape(())
    count = new[0].shape[1]
    at = (before + jnp.arange(count, dtype=np.int32))[None]
    lengths = jnp.full((new[0].shape[0],), before + jnp.asarray(count, np.int32))
    made = [stored(x, jnp.swapaxes(p, 1, 2), at) for x, p in zip(new, pasts)]
    return made, Visible(offset=before, lengths=lengths)


def _values(v: Any, seen: Visible) -> Any:
    """Values that sums of weights that are 0 may read."""
    return v if seen.lengths is None else known_rows(v, seen.lengths)


@contrib("Attention")
def attention(
    x: Any, w: Any, b: Any = None, mask: Any = None, past: Any = None, bias: Any = None,
    past_length: Any = None, *, node: Any, num_heads: int, do_rotary: int = 0,
    mask_filter_value: float = -10000.0, past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Any = None, rotary_embedding_dim: int = 0, scale: float = 0.0,
    unidirectional: int = 0,
) -> Any:  # fmt: skip
    """Attention of a sequence to itself, with the projections of queries, keys and values."""
    if do_rotary:
        raise node.error("do_rotary is not supported, but in MultiHeadAttention's operands")
    y = jnp.matmul(x, w)
    y = y if b is None else y + b
    sizes = [w.shape[-1] // 3] * 3 if qkv_hidden_sizes is None else list(qkv_hidden_sizes)
    q, k, v = (split_heads(p, num_heads) for p in jnp.split(y, np.cumsum(sizes)[:2].tolist(), -1))
    if past_present_share_buffer and (past is None or past_length is None):
        raise node.error("past_present_share_buffer needs past and past_sequence_length")
    if past_present_share_buffer and mask is not None and mask.ndim == 4:
        raise node.error("a mask of four axes is not supported beside past_present_share_buffer")
    pasts = (None, None) if past is None else (past[0], past[1])
    length = past_length if past_present_share_buffer else None
    (k, v), seen = _behind((k, v), pasts, length)
    hidden = _mask_of_keys(node, mask, q, k, mask_filter_value)
    visible = seen._replace(bias=_added(k.shape[1], bias, hidden), is_causal=bool(unidirectional))
    y = join_heads(attend(Heads(q, k, _values(v, seen)), visible, scale or None))
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
        if mask.shape[0] in (batch, 3 * batch + 2):  # then sums of lengths, of queries and of keys
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
    if beams is not None:
        raise node.error("cache_indirection is not supported")
    q, k, v = _packed(node, q, k, v, num_heads)
    if b is not None:
        sizes = [x.shape[2] * x.shape[3] for x in (q, k)]
        parts = jnp.split(b, np.cumsum(sizes).tolist())
        q, k, v = (x + p.reshape(x.shape[2:]) for x, p in zip((q, k, v), parts))
    if (past_key is None) != (past_value is None):
        raise node.error("past_key and past_value must be given together")
    (k, v), seen = _behind((k, v), (past_key, past_value), past_length)
    hidden = _mask_of_keys(node, mask, q, k, mask_filter_value)
    visible = seen._replace(bias=_added(k.shape[1], bias, hidden), is_causal=bool(unidirectional))
    heads = Heads(q, k, _values(v, seen))
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


def known_rows(cache: Any, lengths: Any) -> Any:
    """A cache `(batch, positions, heads, features)`, 0 behind its ends, where anything may lie."""
    rows = jnp.arange(cache.shape[1], dtype=np.int32)
    is_known = (rows < lengths[:, None])[..., None, None]
    return jnp.where(is_known, cache, jnp.zeros((), cache.dtype))


def stored(new: Any, cache: Any, at: Any) -> Any:
    """A cache with what is new at its places, for each of the batch; places beyond are left out.

    Arrays are `(batch, positions, heads, features)`, places `(batch or 1, positions)`.
    """
    batch = jnp.arange(new.shape[0], dtype=np.int32)[:, None]
    return cache.at[batch, at].set(new)
