"""Attention of com.microsoft in groups of heads, whose caches may be windows and of few bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import amdjax.nn.normalization as normalization
from amdjax import numpy as jnp
from amdjax.core.dims import max_dim

from ..registry import integer
from .contrib import contrib
from .contrib_attention import known_rows, stored, to_width, turned
from .language import Heads, Visible, attend, attend_by_scores, join_heads, split_heads
from .quantization import quantized


class _Format(NamedTuple):
    """How keys, or values, are stored from step to step.

    Attributes:
      dtype: of the arrays that hold them.
      bits: of a number; of two of 4 bits in a byte, the first has the lower ones.
      scale: of the numbers, as it broadcasts to `(heads, features)`; None where they are floats.
    """

    dtype: Any
    bits: int = 0
    scale: Any = None

    def write(self, x: Any) -> Any:
        """Floats as they are stored."""
        if self.scale is None:
            return x
        ratio = x.astype(np.float32) / self.scale
        if self.bits == 8:
            return quantized(ratio, None, self.dtype)
        y = jnp.clip(jnp.round(ratio), -8, 7).astype(np.int32) + 8
        return (y[..., ::2] + 16 * y[..., 1::2]).astype(np.uint8)

    def read(self, cache: Any, dtype: Any) -> Any:
        """What is stored, as floats."""
        if self.scale is None:
            return cache
        if self.bits == 4:
            pairs = jnp.stack([cache & np.uint8(15), cache >> np.uint8(4)], -1)
            cache = pairs.reshape(*cache.shape[:-1], 2 * cache.shape[-1]).astype(np.int32) - 8
        return (cache.astype(np.float32) * self.scale).astype(dtype)


def _format(node: Any, name: str, new: Any, past: Any, kind: str, scale: Any, bits: int) -> _Format:
    """How keys or values are stored, checked."""
    if kind == "NONE":
        if past is not None and past.dtype != new.dtype:
            raise node.error(f"past_{name} must be of {new.dtype}, got {past.dtype}")
        return _Format(new.dtype)
    letter, (heads, features) = name[0], new.shape[2:]
    counts = {"PER_TENSOR": 1, "PER_CHANNEL": heads * features}
    if kind not in counts:
        raise node.error(f"{letter}_quant_type must be NONE or of {list(counts)}, got {kind!r}")
    if past is None or scale is None:
        raise node.error(f"{letter}_quant_type {kind} needs past_{name} and {letter}_scale")
    if scale.size != counts[kind]:
        raise node.error(f"{letter}_scale must have {counts[kind]} elements, got {scale.size}")
    names = {8: ("int8", "float8_e4m3fn"), 4: ("uint8",)}
    if past.dtype.name not in names.get(bits, ()):
        raise node.error(
            "kv_cache_bit_width must be 8, of int8 or float8_e4m3fn, or 4, in uint8, got "
            f"{bits} and past_{name} of {past.dtype}"
        )
    if past.shape[-1] * 8 != features * bits:
        raise node.error(f"past_{name} must hold {features} features, got {tuple(past.shape)}")
    shape = (1, 1) if kind == "PER_TENSOR" else (heads, features)
    return _Format(past.dtype, bits, scale.astype(np.float32).reshape(shape))


class _Places(NamedTuple):
    """Which positions of its sequence a step adds, for each of the batch.

    Attributes:
      before: how many there were.
      counts: how many rows are added, which those that are padding follow.
      at: positions of all rows.
    """

    before: Any
    counts: Any
    at: Any

    @property
    def lengths(self) -> Any:
        """How many positions there are now."""
        return self.before + self.counts


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
    """Causal attention to keys and values as they are stored, those of its own step among them."""
    if local_window_size > 0 and not causal:
        raise node.error("local_window_size must be -1 where causal is 0")
    if do_rotary and (cos is None or sin is None):
        raise node.error("cos_cache and sin_cache must be given where do_rotary is 1")
    q, k, v = _grouped(q, k, v, num_heads, kv_num_heads)
    if q_norm is not None:
        q = normalization.rms_norm(q, q_norm, epsilon=q_norm_epsilon or qk_norm_epsilon)
        k = normalization.rms_norm(k, k_norm, epsilon=k_norm_epsilon or qk_norm_epsilon)
    places = _places(lengths, query_lengths, q.shape[1])
    may_be_first = positions is not None and query_lengths is None
    whole = None
    if may_be_first or not sliding_window_cache:
        whole = integer(total, "total_sequence_length")
    if do_rotary:
        turns = places.at if positions is None else positions
        if may_be_first and whole == q.shape[1]:  # of a prompt the first position alone is read
            turns = positions.reshape(-1)[:1] + places.at - places.before[:, None]
        q, k = (turned(x, turns, cos, sin, rotary_interleaved) for x in (q, k))
    formats = [
        _format(node, "key", k, past_key, k_quant_type, k_scale, kv_cache_bit_width),
        _format(node, "value", v, past_value, v_quant_type, v_scale, kv_cache_bit_width),
    ]
    rows = [form.write(x) for form, x in zip(formats, (k, v))]
    pasts = [None if past is None else jnp.swapaxes(past, 1, 2) for past in (past_key, past_value)]
    if sliding_window_cache:
        if past_key is None or not 0 < local_window_size <= past_key.shape[2] or qk_output:
            raise node.error(
                "sliding_window_cache needs past_key of local_window_size positions or more, and "
                "qk_output of 0"
            )
        caches, held, visible = _windowed(rows, pasts, places, bias, local_window_size)
    else:
        window = (local_window_size - 1 if local_window_size > 0 else -1, -1)
        held = caches = _appended(rows, pasts, places, whole, query_lengths is not None)
        visible = Visible(
            bias=to_width(bias, caches[0].shape[1]), offset=places.before,
            is_causal=bool(causal), lengths=places.lengths, window=window,
        )  # fmt: skip
    k, v = (form.read(x, q.dtype) for form, x in zip(formats, held))
    heads = Heads(q, k, v if visible.lengths is None else known_rows(v, visible.lengths))
    if smooth_softmax and sink is None:
        sink = jnp.zeros((num_heads,), q.dtype)
    shown = None
    if softcap or sink is not None or qk_output:
        y, scores = attend_by_scores(heads, visible, scale or None, softcap, sink=sink)
        if qk_output:
            shown = jnp.where(np.isneginf(scores.biased), 0, scores.biased)
            shown = (shown if qk_output == 1 else scores.weights)[..., :whole].astype(q.dtype)
    else:
        y = attend(heads, visible, scale or None)
    return join_heads(y), *(jnp.swapaxes(x, 1, 2) for x in caches), shown


def _grouped(q: Any, k: Any, v: Any, heads: int, groups: int) -> tuple[Any, Any, Any]:
    """Queries, keys and values by heads, which may lie side by side in one array."""
    if k is None:
        features = q.shape[-1] // (heads + 2 * groups)
        q, k, v = jnp.split(q, [heads * features, (heads + groups) * features], -1)
    return split_heads(q, heads), split_heads(k, groups), split_heads(v, groups)


def _places(lengths: Any, counts: Any, new: Any) -> _Places:
    """Places of new rows, from the last position that each sequence has after them."""
    lengths = lengths.reshape(-1).astype(np.int32) + 1
    if counts is None:  # a prompt that is filled up on its right has fewer positions than rows
        counts = jnp.minimum(lengths, jnp.asarray(new, np.int32))
    before = lengths - counts.reshape(-1).astype(np.int32)
    return _Places(before, lengths - before, before[:, None] + jnp.arange(new, dtype=np.int32))


def _appended(
    rows: list[Any], pasts: list[Any], places: _Places, whole: Any, has_counts: bool
) -> list[Any]:
    """Caches of all positions, with room for as many as there are now."""
    room = whole if pasts[0] is None else max_dim(whole, pasts[0].shape[1])
    at = places.at
    if has_counts:  # then padding is not written
        at = jnp.where(at < places.lengths[:, None], at, jnp.asarray(room, np.int32))
    made = []
    for x, past in zip(rows, pasts):
        if past is None:
            cache = jnp.zeros((x.shape[0], room, *x.shape[2:]), x.dtype)
        else:
            cache = jnp.pad(past, [(0, 0), (0, room - past.shape[1]), (0, 0), (0, 0)])
        made.append(stored(x, cache, at))
    return made


def _windowed(
    rows: list[Any], pasts: list[Any], places: _Places, bias: Any, window: int
) -> tuple[list[Any], list[Any], Visible]:
    """Caches of the last positions as they are now, all that is attended to, and what is seen.

    A cache holds the last positions in their order from its first row on, at least the window; as
    it is full, those in front of it make room at once.
    """
    capacity, new = pasts[0].shape[1], rows[0].shape[1]
    held = [jnp.concatenate([past, x], 1) for past, x in zip(pasts, rows)]
    room, slack = jnp.asarray(capacity, np.int32), jnp.asarray(capacity - window + 1, np.int32)

    def resident(lengths: Any) -> Any:
        return lengths - slack * ((jnp.maximum(lengths - room, 0) + slack - 1) // slack)

    before, lengths = places.before[:, None], places.lengths[:, None]
    known, kept = resident(before), resident(lengths)
    order = jnp.arange(capacity, dtype=np.int32)
    position = jnp.concatenate([jnp.where(order < known, before - known + order, -1), places.at], 1)
    is_known = (position >= 0)[:, :, None, None]  # behind, anything may lie
    held = [jnp.where(is_known, x, jnp.zeros((), x.dtype)) for x in held]
    key, query = position[:, None], places.at[:, :, None]
    seen = (key >= 0) & (key <= query) & (key > query - window)
    if bias is not None:
        shape = (position.shape[0], *bias.shape[1:])
        columns = jnp.clip(position, 0, bias.shape[-1] - 1)[:, None, None]
        columns = jnp.broadcast_to(columns, (*shape[:3], position.shape[1]))
        bias = jnp.take_along_axis(jnp.broadcast_to(bias, shape), columns, -1)
    now = lengths - kept + order
    source = jnp.where(now >= before, room + now - before, now - before + known)
    source = jnp.clip(source, 0, jnp.asarray(capacity + new - 1, np.int32))[:, :, None, None]
    caches = [jnp.take_along_axis(x, source, 1) for x in held]
    return caches, held, Visible(mask=seen[:, None], bias=bias)
