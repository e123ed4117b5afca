"""Attention of the standard and of com.microsoft against float64, and weights of few bits."""

import numpy as np
import pytest

import amdjax
from amdjax.onnx import OnnxError
from tests.support.onnx_nodes import node_model, run_node

MS = "com.microsoft"
B, T, N, K, H = 2, 5, 4, 2, 8


def floats(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def reference(q, k, v, allowed=None, bias=0.0, scale=None, softcap=0.0, sink=None):
    """Attention of `(batch, heads, positions, features)`; rows that see nothing are 0."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, groups, 1) for x in (k, v))
    logits = q @ k.swapaxes(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    logits = np.tanh(logits / softcap) * softcap if softcap else logits
    logits = logits + bias
    if allowed is not None:
        logits = np.where(allowed, logits, -np.inf)
    top = np.max(logits, -1, keepdims=True)
    weights = np.exp(logits - np.where(np.isinf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    if sink is not None:
        total += np.exp(sink.reshape(-1, 1, 1) - top)
    return weights / np.where(total == 0, 1, total) @ v


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def by_heads(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def flat(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


@pytest.mark.parametrize("window", [(-1, -1), (2, -1), (1, 1), (0, 0)])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("cache", ["none", "past", "lengths"])
def test_positions(cache, causal, window):
    rng = np.random.default_rng(0)
    q, k, v = floats(rng, B, N, T, H), floats(rng, B, K, 7, H), floats(rng, B, K, 7, H)
    past, lengths, outputs = [None, None], None, 1
    offset = np.zeros(B, int)
    keys, values = k, v
    if cache == "past":
        past, outputs = [floats(rng, B, K, 3, H), floats(rng, B, K, 3, H)], 3
        keys, values = (np.concatenate(x, 2) for x in zip(past, (k, v)))
        offset += 3
    if cache == "lengths":
        lengths = np.array([7, 2])
        offset = lengths - T
    at = (offset[:, None] + np.arange(T))[:, None, :, None]
    key = np.arange(keys.shape[2])
    allowed = np.ones((B, 1, T, len(key)), bool)
    allowed &= (key <= at) | (not causal)
    allowed &= (key >= at - window[0]) | (window[0] < 0)
    allowed &= (key <= at + window[1]) | (window[1] < 0)
    if lengths is not None:
        allowed &= key < lengths[:, None, None, None]
    got = run_node(
        "Attention", [q, k, v, None, *past, lengths], outputs, opset=25, is_causal=causal,
        left_window_size=window[0], right_window_size=window[1],
    )  # fmt: skip
    found = got if outputs == 1 else got[0]
    close(found, reference(q, keys, values, allowed))
    if outputs == 3:
        assert np.array_equal(got[1], keys) and np.array_equal(got[2], values)


@pytest.mark.parametrize("kind", ["boolean", "added", "short"])
def test_masks_hide_whole_rows(kind):
    rng = np.random.default_rng(1)
    q, k, v = floats(rng, B, N, T, H), floats(rng, B, K, 6, H), floats(rng, B, K, 6, H)
    allowed = rng.random((B, 1, T, 4 if kind == "short" else 6)) < 0.5
    allowed[0, 0, 2] = False
    added = np.where(allowed, floats(rng, *allowed.shape), -np.inf).astype(np.float32)
    mask = added if kind == "added" else allowed
    whole = np.pad(allowed, [(0, 0)] * 3 + [(0, 6 - allowed.shape[-1])])
    bias = np.where(allowed, added, 0) if kind == "added" else 0
    got = run_node("Attention", [q, k, v, mask])
    close(got, reference(q, k, v, whole, bias))
    assert not got[0, :, 2].any()


def test_what_is_computed_on_the_way():
    rng = np.random.default_rng(2)
    q, k, v = floats(rng, B, T, N * H), floats(rng, B, T, K * H), floats(rng, B, T, K * H)
    form = {"q_num_heads": N, "kv_num_heads": K, "scale": 0.5, "softcap": 2.0, "is_causal": 1}
    y, _, _, weights = run_node("Attention", [q, k, v], 4, qk_matmul_output_mode=3, **form)
    heads = by_heads(q, N), by_heads(k, K), by_heads(v, K)
    allowed = np.tri(T, dtype=bool)
    close(y, flat(reference(*heads, allowed, scale=0.5, softcap=2.0)))
    values = np.repeat(np.eye(T)[None, None], K, 1).repeat(B, 0)
    close(weights, reference(*heads[:2], values, allowed, scale=0.5, softcap=2.0))


def test_attention_has_gradients():
    rng = np.random.default_rng(3)
    q = floats(rng, B, N, T, H)
    model = node_model("Attention", [q, q, q], is_causal=1)
    f = lambda x: (model.function({}, x, q, q)["y0"] ** 2).sum()
    at = floats(rng, *q.shape)
    step = 1e-2
    slope = (f(q + step * at) - f(q - step * at)) / (2 * step)
    np.testing.assert_allclose((amdjax.grad(f)(q) * at).sum(), slope, rtol=2e-3)


@pytest.mark.parametrize("form", [
    {}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}, {"local_window_size": 3},
    {"softcap": 2.0}, {"smooth_softmax": 1}, {"scale": 0.2},
])  # fmt: skip
@pytest.mark.parametrize("new", [1, 4])
def test_sequences_of_a_cache_have_lengths_of_their_own(new, form):
    rng = np.random.default_rng(4)
    room, lengths = 9, np.array([7, 5])
    q, k, v = (floats(rng, B, new, n * H) for n in (N, K, K))
    caches = [floats(rng, B, K, room, H), floats(rng, B, K, room, H)]
    angles = rng.random((room, H // 2)).astype(np.float32)
    rotary = [np.cos(angles), np.sin(angles)] if form.get("do_rotary") else [None, None]
    given = [q, k, v, *caches, (lengths - 1).astype(np.int32), np.int32(7), *rotary]
    got, key, value = run_node(
        "GroupQueryAttention", given, 3, domain=MS, num_heads=N, kv_num_heads=K, **form
    )
    heads = [by_heads(x, n).astype(np.float64) for x, n in ((q, N), (k, K), (v, K))]
    for b, length in enumerate(lengths):
        at = np.arange(length - new, length)
        parts = [x[b : b + 1] for x in heads]
        if form.get("do_rotary"):
            parts[:2] = [turned(x, angles[at], form.get("rotary_interleaved")) for x in parts[:2]]
        stored = [
            np.concatenate([c[b : b + 1, :, : length - new], p], 2)
            for c, p in zip(caches, parts[1:])
        ]
        near = form.get("local_window_size", 99)
        allowed = (np.arange(length) <= at[:, None]) & (np.arange(length) > at[:, None] - near)
        want = reference(
            parts[0], *stored, allowed, scale=form.get("scale"), softcap=form.get("softcap", 0.0),
            sink=np.zeros(N) if form.get("smooth_softmax") else None,
        )  # fmt: skip
        close(got[b : b + 1], flat(want))
        close(key[b, :, :length], stored[0][0])
        close(value[b, :, :length], stored[1][0])


def turned(x, angles, interleaved):
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else np.split(x, 2, -1)
    cos, sin = np.cos(angles), np.sin(angles)
    pair = a * cos - b * sin, b * cos + a * sin
    return np.stack(pair, -1).reshape(x.shape) if interleaved else np.concatenate(pair, -1)


@pytest.mark.parametrize("mask", ["none", "ends", "starts", "keys", "pairs"])
@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention"])
def test_masks_of_integers(op, mask):
    rng = np.random.default_rng(5)
    x, w, b = floats(rng, B, T, N * H), floats(rng, N * H, 3 * N * H) / 4, floats(rng, 3 * N * H)
    masks = {
        "none": None, "ends": np.array([3, 5]), "starts": np.array([4, 5, 1, 0]),
        "keys": rng.integers(0, 2, (B, T)) | np.eye(T, dtype=int)[:1],
        "pairs": rng.integers(0, 2, (B, T, T)) | np.eye(T, dtype=int),
    }  # fmt: skip
    given, key = masks[mask], np.arange(T)
    shown = {
        "none": lambda: np.ones((B, 1, T, T)),
        "ends": lambda: (key < given[:, None])[:, None, None],
        "starts": lambda: ((key < given[:B, None]) & (key >= given[B:, None]))[:, None, None],
        "keys": lambda: given[:, None, None], "pairs": lambda: given[:, None],
    }[mask]()  # fmt: skip
    given = None if given is None else given.astype(np.int32)
    products = x.astype(np.float64) @ w
    if op == "Attention":
        inputs, added = [x, w, b, given], b
    else:
        parts = [np.ascontiguousarray(p) for p in np.split(products.astype(np.float32), 3, -1)]
        inputs, added = [*parts, b, given], b
    got = run_node(op, inputs, domain=MS, num_heads=N)
    heads = (by_heads(p, N) for p in np.split(products + added, 3, -1))
    close(got, flat(reference(*heads, shown.astype(bool))))


def test_what_is_not_supported_is_said():
    x = np.zeros((1, 2, 4), np.float32)
    with pytest.raises(OnnxError, match=r"'Attention_0'.*do_rotary"):
        run_node(
            "Attention", [x, np.zeros((4, 12), np.float32)], domain=MS, num_heads=1, do_rotary=1
        )


@pytest.mark.parametrize("zeros", ["usual", "packed", "floats"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("rows, columns, block", [(6, 40, 16), (24, 1000, 32)])
def test_weights_of_few_bits(rows, columns, block, count, bits, zeros):
    rng = np.random.default_rng(6)
    blocks = -(-columns // block)
    w = rng.integers(0, 1 << bits, (rows, blocks * block))
    at = rng.integers(0, 1 << bits, (rows, blocks))
    scale, a = floats(rng, rows, blocks), floats(rng, count, columns)
    given = {"usual": None, "packed": packed(at, bits), "floats": at.astype(np.float32)}[zeros]
    at = np.full_like(at, 1 << (bits - 1)) if zeros == "usual" else at
    exact = (w.reshape(rows, blocks, block) - at[..., None]) * scale[..., None].astype(np.float64)
    got = run_node(
        "MatMulNBits", [a, packed(w, bits).reshape(rows, blocks, -1), scale, given], domain=MS,
        K=columns, N=rows, bits=bits, block_size=block,
    )  # fmt: skip
    want = a @ exact.reshape(rows, -1)[:, :columns].T
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * abs(want).max())


def packed(x, bits):
    """Numbers of few bits in bytes, the first in the lowest bits."""
    per = 8 // bits
    x = np.pad(x, [(0, 0), (0, -x.shape[1] % per)]).reshape(x.shape[0], -1, per)
    return (x << (np.arange(per) * bits)).sum(-1).astype(np.uint8)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_updates_a_state(rule):
    rng = np.random.default_rng(7)
    q, k, v = floats(rng, B, T, N * H), floats(rng, B, T, K * H) / 3, floats(rng, B, T, K * 6)
    past = floats(rng, B, K, H, 6)
    decay = -abs(floats(rng, B, T, K)) if "gated" in rule else None
    beta = abs(floats(rng, B, T, K)) / 2 if "delta" in rule else None
    y, state = run_node(
        "LinearAttention", [q, k, v, past, decay, beta], 2, opset=27, q_num_heads=N, kv_num_heads=K,
        update_rule=rule,
    )  # fmt: skip
    s = past.astype(np.float64)
    want = np.zeros((B, T, N, 6))
    for t in range(T):
        key, value = k[:, t].reshape(B, K, H), v[:, t].reshape(B, K, 6).astype(np.float64)
        s = s if decay is None else s * np.exp(decay[:, t])[..., None, None]
        if beta is not None:
            value = (value - np.einsum("bhkv,bhk->bhv", s, key)) * beta[:, t][..., None]
        s = s + key[..., None] * value[..., None, :]
        query = q[:, t].reshape(B, N, H) / np.sqrt(H)
        want[:, t] = np.einsum("bnk,bnkv->bnv", query, np.repeat(s, N // K, 1))
    close(y, want.reshape(B, T, -1))
    close(state, s)
