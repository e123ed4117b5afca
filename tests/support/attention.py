"""Attention and its gradient in NumPy, in float64."""

import ml_dtypes  # noqa: F401 (so that NumPy knows narrow dtypes by name)
import numpy as np

from amdjax.lax.attention import Extents, dropped
from amdjax.lax.filling import full

LEAST = -0.7 * float(np.finfo(np.float32).max)


def operands(sizes, dtype, seed=0):
    """Query, key, value and cotangent of `(batch, queries, keys, heads, key heads, H, D)`."""
    batch, queries, keys, heads, key_heads, features, values = sizes
    rng = np.random.default_rng(seed)
    shapes = [
        (batch, queries, heads, features),
        (batch, keys, key_heads, features),
        (batch, keys, key_heads, values),
        (batch, queries, heads, values),
    ]
    return [rng.normal(size=s).astype(np.dtype(dtype)) for s in shapes]


def weight_factors(sizes, seeds, rate):
    """What dropping makes of weights, as the definition draws: zero or more than one."""
    e = Extents(*sizes)
    return np.asarray(dropped(full(e.pairs, 1, np.float32), seeds, rate, e))


def kept(shape, mask=None, is_causal=False, window=None, query_lengths=None, key_lengths=None):
    """Which pairs take part, of shape (batch, heads, queries, keys)."""
    t, s = np.arange(shape[2])[:, None], np.arange(shape[3])[None, :]
    keep = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape).copy()
    if is_causal:
        keep &= s <= t
    if window is not None:
        keep &= (s >= t - window[0]) & (s <= t + window[1])
    if query_lengths is not None:
        keep &= t < np.asarray(query_lengths)[:, None, None, None]
    if key_lengths is not None:
        keep &= s < np.asarray(key_lengths)[:, None, None, None]
    return keep


def attention(q, k, v, bias=None, scale=None, ct=None, factors=1.0, **options):
    """The result, the logarithm of sums of exponentials, and gradients if `ct` is given.

    Weights are multiplied by `factors` behind the softmax.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    group = q.shape[2] // k.shape[2]
    wide_k, wide_v = (np.repeat(x, group, axis=2) for x in (k, v))
    logits = scale * np.einsum("btnh,bsnh->bnts", q, wide_k)
    if bias is not None:
        logits = logits + np.asarray(bias, np.float64)
    keep = kept(logits.shape, **options)
    logits = np.where(keep, logits, LEAST)
    top = logits.max(-1, keepdims=True)
    weights = np.exp(logits - top)
    total = weights.sum(-1, keepdims=True)
    weights /= total
    used = np.ones(q.shape[:2], bool)
    if options.get("query_lengths") is not None:
        used = np.arange(q.shape[1]) < np.asarray(options["query_lengths"])[:, None]
    used = used[:, :, None, None]
    out = np.einsum("bnts,bsnd->btnd", weights * factors, wide_v) * used
    residual = np.swapaxes((top + np.log(total))[..., 0], 1, 2)
    if ct is None:
        return out, residual
    ct = np.asarray(ct, np.float64) * used
    sums = lambda x: x.reshape(*k.shape[:3], group, x.shape[-1]).sum(3)
    slope = np.einsum("btnd,bsnd->bnts", ct, wide_v) * factors
    slope = weights * (slope - (slope * weights).sum(-1, keepdims=True)) * keep
    d_query = scale * np.einsum("bnts,bsnh->btnh", slope, wide_k)
    d_key = sums(scale * np.einsum("bnts,btnh->bsnh", slope, q))
    d_value = sums(np.einsum("bnts,btnd->bsnd", weights * factors, ct))
    if bias is None:
        return out, residual, (d_query, d_key, d_value)
    axes = tuple(i for i, (n, m) in enumerate(zip(bias.shape, slope.shape)) if n != m)
    return out, residual, (d_query, d_key, d_value, slope.sum(axes, keepdims=True))
