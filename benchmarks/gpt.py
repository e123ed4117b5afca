"""A small GPT: four layers, tied embeddings, causal attention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .training import cross_entropy, training_step


@dataclass(frozen=True)
class Config:
    layers: int = 4
    heads: int = 8
    width: int = 256
    vocabulary: int = 4096
    time: int = 128
    batch: int = 8


FULL = Config()
QUICK = Config(layers=2, heads=2, width=32, vocabulary=128, time=16, batch=2)


def _model(rng: np.random.Generator, quick: bool) -> tuple:
    c = QUICK if quick else FULL
    d = c.width

    def matrix(*shape: int) -> np.ndarray:
        return np.float32(0.02) * rng.standard_normal(shape, dtype=np.float32)

    def norm() -> dict:
        return {"scale": np.ones(d, np.float32), "bias": np.zeros(d, np.float32)}

    def dense(n: int, m: int) -> dict:
        return {"w": matrix(n, m), "b": np.zeros(m, np.float32)}

    blocks = [
        {
            "norm1": norm(),
            # One matrix a head keeps the number of heads in the shape: (d, 3, heads, d / heads).
            "qkv": matrix(d, 3, c.heads, d // c.heads).reshape(d, 3 * c.heads, d // c.heads),
            "out": dense(d, d),
            "norm2": norm(),
            "up": dense(d, 4 * d),
            "down": dense(4 * d, d),
        }
        for _ in range(c.layers)
    ]
    params = {
        "tokens": matrix(c.vocabulary, d),
        "places": matrix(c.time, d),
        "blocks": blocks,
        "norm": norm(),
    }
    ids = rng.integers(0, c.vocabulary, (c.batch, c.time + 1), dtype=np.int32)
    return params, ids[:, :-1].copy(), ids[:, 1:].copy()


def _norm(l, p, x):
    mean = l.np.mean(x, axis=-1, keepdims=True)
    variance = l.np.mean(l.np.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * l.lax.rsqrt(variance + 1e-5) * p["scale"] + p["bias"]


def _dense(p, x):
    return x @ p["w"] + p["b"]


def _attention(l, p, x):
    batch, time, d = x.shape
    qkv = l.np.einsum("btd,dhk->hbtk", x, p["qkv"])
    heads = qkv.shape[0] // 3
    q, k, v = qkv[:heads], qkv[heads : 2 * heads], qkv[2 * heads :]
    scores = l.np.einsum("hbqd,hbkd->hbqk", q, k) / q.shape[-1] ** 0.5
    causal = l.np.tril(l.np.ones((time, time), bool))
    weights = l.nn.softmax(l.np.where(causal, scores, -1e30), axis=-1)
    mixed = l.np.einsum("hbqk,hbkd->bqhd", weights, v)
    return _dense(p["out"], mixed.reshape(batch, time, d))


def _loss(l, params, ids, targets):
    x = params["tokens"][ids] + params["places"]
    for block in params["blocks"]:
        x = x + _attention(l, block, _norm(l, block["norm1"], x))
        hidden = l.nn.gelu(_dense(block["up"], _norm(l, block["norm2"], x)))
        x = x + _dense(block["down"], hidden)
    logits = _norm(l, params["norm"], x) @ params["tokens"].T
    return cross_entropy(l, logits, targets)


def _norm_torch(t, p, x):
    return t.nn.functional.layer_norm(x, (x.shape[-1],), p["scale"], p["bias"], 1e-5)


def _attention_torch(t, p, x):
    batch, time, d = x.shape
    heads, size = p["qkv"].shape[1] // 3, p["qkv"].shape[2]
    qkv = (x @ p["qkv"].reshape(d, -1)).reshape(batch, time, 3, heads, size).permute(2, 0, 3, 1, 4)
    mixed = t.nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
    return _dense(p["out"], mixed.transpose(1, 2).reshape(batch, time, d))


def _loss_torch(t, params, ids, targets):
    f = t.nn.functional
    x = f.embedding(ids, params["tokens"]) + params["places"]
    for block in params["blocks"]:
        x = x + _attention_torch(t, block, _norm_torch(t, block["norm1"], x))
        up = _dense(block["up"], _norm_torch(t, block["norm2"], x))
        x = x + _dense(block["down"], f.gelu(up, approximate="tanh"))
    logits = _norm_torch(t, params["norm"], x) @ params["tokens"].T
    return f.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1).long())


STEP = training_step(
    "GPT training step, 4 layers of 256, 8×128", _model, _loss, _loss_torch, optimizer="adam"
)
