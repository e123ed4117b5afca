"""Operators of language models: attention, rotary positions, caches, gates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import amdjax.nn.normalization as normalization
from amdjax import lax, nn, numpy as jnp
from amdjax.nn.attention import dot_product_attention
from amdjax.nn.linear import embedding
from amdjax.nn.rotary import turn_pairs

from ..reading import dtype_of
from ..registry import is_host, rule

#: A window that is wider than any sequence.
_UNBOUNDED = 1 << 30


class Heads(NamedTuple):
    """Queries, keys and values of attention, `(batch, positions, heads, features)`."""

    q: Any
    k: Any
    v: Any


def split_heads(x: Any, heads: int) -> Any:
    """Heads that lie side by side on the last axis, as an axis before it."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def join_heads(x: Any) -> Any:
    """Heads side by side on the last axis."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


class Visible(NamedTuple):
    """Which keys a query attends to, and what is added to its logits.

    Attributes:
      mask: boolean, broadcasts to `(batch, heads, queries, keys)`; None for all.
      bias: added to the logits, of that shape; None for nothing.
      offset: position of the first query among the keys: a number, or one for each of the batch.
      is_causal: whether later keys are hidden.
      window: how many keys before and behind a query's position are seen; -1 for all.
      lengths: how many keys each of the batch has; None for all.
    """

    mask: Any = None
    bias: Any = None
    offset: Any = 0
    is_causal: bool = False
    window: tuple[int, int] = (-1, -1)
    lengths: Any = None

    @property
    def is_aligned(self) -> bool:
        """Whether queries and keys count their positions from the same place."""
        return is_host(self.offset) and np.ndim(self.offset) == 0 and self.offset == 0

    def positions(self, queries: int, keys: int) -> Any:
        """A mask of what positions alone decide, or None where all is seen."""
        at = jnp.asarray(self.offset).astype(np.int32)
        if at.ndim:
            at = at.reshape(-1, 1, 1, 1)
        at = at + jnp.arange(queries, dtype=np.int32)[:, None]
        key = jnp.arange(keys, dtype=np.int32)
        left, right = self.window
        parts = [key <= at] if self.is_causal else []
        parts += [key >= at - left] if left >= 0 else []
        parts += [key <= at + right] if right >= 0 else []
        if self.lengths is not None:
            parts.append(key < self.lengths.astype(np.int32).reshape(-1, 1, 1, 1))
        return _all(parts)

    def whole(self, queries: int, keys: int) -> Any:
        """The mask of all, or None where all is seen."""
        mask = _all([m for m in (self.mask, self.positions(queries, keys)) if m is not None])
        if self.bias is None:
            return mask
        finite = self.bias > -np.inf
        return finite if mask is None else mask & finite


def _all(parts: list[Any]) -> Any:
    found = None
    for part in parts:
        found = part if found is None else found & part
    return found


def attend(heads: Heads, visible: Visible, scale: float | None = None) -> Any:
    """Attention in one kernel; a query that sees no key gives 0."""
    q, k, v = heads
    counts = q.shape[1], k.shape[1]
    mask, aligned = visible.mask, visible.is_aligned
    if not aligned:
        mask = _all([m for m in (mask, visible.positions(*counts)) if m is not None])
    left, right = (w if w >= 0 else _UNBOUNDED for w in visible.window)
    has_window = aligned and (left, right) != (_UNBOUNDED, _UNBOUNDED)
    y = dot_product_attention(
        q, k, v, visible.bias, mask, scale=scale, is_causal=visible.is_causal and aligned,
        local_window_size=(left, right) if has_window else None,
        key_value_seq_lengths=visible.lengths,
    )  # fmt: skip
    if visible.mask is None and visible.bias is None and visible.lengths is None:
        return y
    seen = _sees_any(visible.whole(*counts), y)
    return jnp.where(seen, y, jnp.zeros((), y.dtype))


def _sees_any(mask: Any, y: Any) -> Any:
    """Which queries see a key, beside `(batch, queries, heads, features)`."""
    seen = jnp.any(mask, -1, keepdims=True)
    return jnp.swapaxes(seen.reshape((1,) * (y.ndim - seen.ndim) + seen.shape), 1, 2)


class Scores(NamedTuple):
    """What attention computes on its way, `(batch, heads, queries, keys)`."""

    raw: Any
    capped: Any
    biased: Any
    weights: Any


def attend_by_scores(
    heads: Heads, visible: Visible, scale: float | None, softcap: float = 0.0, dtype: Any = None,
    sink: Any = None,
) -> tuple[Any, Scores]:  # fmt: skip
    """Attention step by step, for what the kernel does not do, with what it computes on its way.

    `sink` are logits, one a head, that take part in the softmax and have no value.
    """
    q, k, v = heads
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    dtype = jnp.promote_types(q.dtype, np.float32 if dtype is None else dtype)
    groups = q.shape[2] // k.shape[2]
    grouped = q.reshape(*q.shape[:2], k.shape[2], groups, q.shape[3])
    raw = jnp.einsum("btkgh,bskh->bkgts", grouped, k, preferred_element_type=dtype)
    raw = raw.reshape(q.shape[0], q.shape[2], q.shape[1], k.shape[1]) * np.asarray(scale, dtype)
    capped = jnp.tanh(raw / softcap) * softcap if softcap else raw
    biased = capped if visible.bias is None else capped + visible.bias.astype(dtype)
    whole = visible.whole(q.shape[1], k.shape[1])
    if sink is not None:
        biased = biased if whole is None else jnp.where(whole, biased, -np.inf)
        logit = jnp.broadcast_to(sink.astype(dtype).reshape(-1, 1, 1), (*biased.shape[:-1], 1))
        weights = nn.softmax(jnp.concatenate([biased, logit], -1), -1)[..., :-1]
    elif whole is None:
        weights = nn.softmax(biased, -1)
    else:
        biased = jnp.where(whole, biased, -np.inf)
        seen = jnp.any(whole, -1, keepdims=True)
        weights = jnp.where(seen, nn.softmax(jnp.where(seen, biased, 0), -1), 0)
    return weighted(weights.astype(q.dtype), v), Scores(raw, capped, biased, weights)


def weighted(weights: Any, v: Any) -> Any:
    """Sums of values by weights `(batch, heads, queries, keys)`, in the dtype of the weights."""
    batch, heads, queries, keys = weights.shape
    grouped = weights.reshape(batch, v.shape[2], heads // v.shape[2], queries, keys)
    y = jnp.einsum("bkgts,bskh->btkgh", grouped, v)
    return y.reshape(batch, queries, heads, v.shape[-1]).astype(weights.dtype)


def as_visible(mask: Any, keys: int, **how: Any) -> Visible:
    """What a mask says, boolean or added to logits; keys beyond its end are not seen."""
    if mask is None:
        return Visible(**how)
    missing = keys - mask.shape[-1]
    if mask.dtype == bool:
        return Visible(mask=_padded(mask, missing, False), **how)
    return Visible(bias=_padded(mask, missing, -np.inf), **how)


def _padded(x: Any, missing: int, value: Any) -> Any:
    if not missing:
        return x
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)], constant_values=value)


@rule("Attention", since=23)
def attention(
    q: Any, k: Any, v: Any, mask: Any = None, past_key: Any = None, past_value: Any = None,
    lengths: Any = None, *, node: Any, is_causal: int = 0, kv_num_heads: int | None = None,
    left_window_size: int = -1, q_num_heads: int | None = None, qk_matmul_output_mode: int = 0,
    right_window_size: int = -1, scale: float | None = None, softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> Any:  # fmt: skip
    """Scaled dot-product attention, with a cache of keys and values that grows."""
    if (past_key is None) != (past_value is None):
        raise node.error("past_key and past_value must be given together")
    if lengths is not None and past_key is not None:
        raise node.error("nonpad_kv_seqlen cannot be given together with past_key")
    is_flat = q.ndim == 3
    if is_flat and not (q_num_heads and kv_num_heads):
        raise node.error("q_num_heads and kv_num_heads must be given where Q has three axes")
    counts = (q_num_heads, kv_num_heads, kv_num_heads)
    q, k, v = (_by_position(x, n if is_flat else None) for x, n in zip((q, k, v), counts))
    offset: Any = 0
    if past_key is not None:
        offset = past_key.shape[2]
        k = jnp.concatenate([jnp.swapaxes(past_key, 1, 2), k], 1)
        v = jnp.concatenate([jnp.swapaxes(past_value, 1, 2), v], 1)
    elif lengths is not None:
        offset = lengths - q.shape[1]
    visible = as_visible(
        mask, k.shape[1], offset=offset, is_causal=bool(is_causal), lengths=lengths,
        window=(left_window_size, right_window_size),
    )  # fmt: skip
    heads, scores = Heads(q, k, v), None
    precision = dtype_of(softmax_precision) if softmax_precision else None
    if softcap or node.outputs > 3 or (precision == np.float64 and q.dtype != np.float64):
        y, scores = attend_by_scores(heads, visible, scale, softcap, precision)
    else:
        y = attend(heads, visible, scale)
    y = join_heads(y) if is_flat else jnp.swapaxes(y, 1, 2)
    if node.outputs == 1:
        return y
    shown = () if scores is None else (scores[qk_matmul_output_mode].astype(q.dtype),)
    return y, jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2), *shown


def _by_position(x: Any, heads: int | None) -> Any:
    return jnp.swapaxes(x, 1, 2) if heads is None else split_heads(x, heads)


@rule("RotaryEmbedding", since=23)
def rotary_embedding(
    x: Any, cos: Any, sin: Any, positions: Any = None, *, node: Any, interleaved: int = 0,
    num_heads: int = 0, rotary_embedding_dim: int = 0,
) -> Any:  # fmt: skip
    """Pairs of features, turned by angles whose cosine and sine are given."""
    is_flat = x.ndim == 3
    if is_flat and not num_heads:
        raise node.error("num_heads must be given where X has three axes")
    heads = _by_position(x, num_heads if is_flat else None)
    if positions is not None:
        cos, sin = (embedding(table, positions) for table in (cos, sin))
    features = rotary_embedding_dim or heads.shape[-1]
    if cos.shape[-1] != features // 2 or sin.shape[-1] != features // 2:
        raise node.error(
            f"cos_cache and sin_cache must have {features // 2} columns, got {tuple(cos.shape)} "
            f"and {tuple(sin.shape)}"
        )
    pairing = "interleaved" if interleaved else "halves"
    y = turn_pairs(heads, cos[..., None, :], sin[..., None, :], pairing, features)
    return join_heads(y) if is_flat else jnp.swapaxes(y, 1, 2)


@rule("RMSNormalization", since=23)
def rms_normalization(
    x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    """Division by the root of the mean square over all axes from one on."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    y = normalization.rms_norm(
        x, jnp.broadcast_to(scale, x.shape[axes[0] :]), axis=axes, epsilon=epsilon
    )
    return y.astype(jnp.promote_types(x.dtype, scale.dtype)).astype(scale.dtype)


@rule("TensorScatter", since=24)
def tensor_scatter(
    cache: Any, update: Any, places: Any = None, *, axis: int = -2, mode: str = "linear"
) -> Any:
    """A cache with new positions, from a place of its own in each of the batch."""
    moved, rows = (jnp.moveaxis(x, axis, 1) for x in (cache, update))
    at = jnp.zeros(cache.shape[0], np.int32) if places is None else places.astype(np.int32)
    at = at[:, None] + jnp.arange(rows.shape[1], dtype=np.int32)
    if mode == "circular":
        at = at % moved.shape[1]
    batch = jnp.arange(cache.shape[0], dtype=np.int32)[:, None]
    return jnp.moveaxis(moved.at[batch, at].set(rows), 1, axis)


@rule("CausalConvWithState", since=27)
def causal_conv(
    x: Any, w: Any, bias: Any = None, past: Any = None, *, activation: str = "none"
) -> tuple[Any, Any]:
    """A convolution of each channel with what came before, and what the next one has to know."""
    before = w.shape[-1] - 1
    if past is None:
        past = jnp.zeros((*x.shape[:2], before), x.dtype)
    x = jnp.concatenate([past, x], -1)
    y = nn.conv(x, w, bias, padding="VALID", groups=w.shape[0], layout="channels_first")
    return y if activation == "none" else nn.silu(y), x[..., x.shape[-1] - before :]


@rule("LinearAttention", since=27)
def linear_attention(
    q: Any, k: Any, v: Any, past: Any = None, decay: Any = None, beta: Any = None, *, node: Any,
    q_num_heads: int, kv_num_heads: int, chunk_size: int = 64, scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Any, Any]:  # fmt: skip
    """Attention without softmax: a state for each head, updated by each key and value."""
    rules = {"linear": (False, False), "gated": (True, False), "delta": (False, True),
             "gated_delta": (True, True)}  # fmt: skip
    if update_rule not in rules:
        raise node.error(f"update_rule must be one of {list(rules)}, got {update_rule!r}")
    if (decay is not None, beta is not None) != rules[update_rule]:
        raise node.error(f"decay and beta do not fit update_rule {update_rule!r}")
    dtype = np.float64 if q.dtype == np.float64 else np.float32
    heads = (split_heads(x, n) for x, n in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads)))
    q4, k4, v4 = (x.astype(dtype) for x in heads)
    factor = np.asarray(scale or 1 / np.sqrt(q4.shape[-1]), dtype)
    if decay is not None:  # of each key feature, or of a head
        decay = jnp.exp(split_heads(decay, kv_num_heads).astype(dtype))[..., None]
    if beta is not None:  # of each head, or of all
        beta = beta.astype(dtype)[..., None]
    state = jnp.zeros((q.shape[0], *k4.shape[2:], v4.shape[-1]), dtype)
    state = state if past is None else past.astype(dtype)
    groups = q_num_heads // kv_num_heads

    def step(state: Any, now: Any) -> tuple[Any, Any]:
        q, k, v, decay, beta = now
        state = state if decay is None else state * decay
        if beta is not None:
            v = (v - jnp.einsum("bhkv,bhk->bhv", state, k)) * beta
        state = state + k[..., None] * v[..., None, :]
        q = q.reshape(*k.shape[:2], groups, k.shape[2])
        return state, jnp.einsum("bhgk,bhkv->bhgv", q, state) * factor

    by_time = [None if x is None else jnp.swapaxes(x, 0, 1) for x in (q4, k4, v4, decay, beta)]
    state, y = lax.scan(step, state, by_time)
    y = jnp.swapaxes(y, 0, 1).reshape(*q.shape[:2], q_num_heads * v4.shape[-1])
    return y.astype(q.dtype), state.astype(q.dtype if past is None else past.dtype)


@rule("SwiGLU", since=28)
def swiglu(a: Any, b: Any, *, alpha: float = 1.0) -> Any:
    """`a * sigmoid(alpha * a) * b`."""
    gate = nn.silu(a) if alpha == 1 else a * nn.sigmoid(np.asarray(alpha, a.dtype) * a)
    return gate * b


@rule("FlexAttention", domain="ai.onnx.preview")
def flex_attention(
    q: Any, k: Any, v: Any, *, node: Any, scale: float | None = None, score_mod: Any = None,
    prob_mod: Any = None, softmax_precision: int | None = None,
) -> Any:  # fmt: skip
    """Attention whose logits and whose weights may be changed by graphs."""
    heads = Heads(*(jnp.swapaxes(x, 1, 2) for x in (q, k, v)))
    if score_mod is None and prob_mod is None:
        return jnp.swapaxes(attend(heads, Visible(), scale), 1, 2)
    precision = dtype_of(softmax_precision) if softmax_precision else None
    _, scores = attend_by_scores(heads, Visible(), scale, dtype=precision)
    logits = scores.raw
    if score_mod is not None:
        (logits,) = node.graph(score_mod, [logits])
    weights = nn.softmax(logits, -1)
    if prob_mod is not None:
        (weights,) = node.graph(prob_mod, [weights])
    return weighted(weights.astype(q.dtype), heads.v).swapaxes(1, 2)
