"""Matrix products and attention."""

from __future__ import annotations

import numpy as np

from .workload import Inputs, Workload, array_function, normal, together


def _product(size: int, quick: int) -> Workload:
    operand = normal(size, size, quick=(quick, quick))
    return array_function(
        f"matmul, {size}²",
        together(operand, operand),
        lambda l, x, y: x @ y,
        lambda t, x, y: x @ y,
        tolerance=1e-4,
    )


def _dense_inputs(rng: np.random.Generator, quick: bool) -> tuple:
    """Sums of multiples of 1/64 are exact, and biases between these keep them from zero.

    So all libraries agree where `relu` has which slope, which rounding would decide.
    """
    n = 256 if quick else 2048
    x, w = (np.round(rng.standard_normal((n, n), dtype=np.float32) * 8) / 8 for _ in range(2))
    bias = rng.standard_normal(n, dtype=np.float32)
    return x, w, (np.floor(bias * 64) + np.float32(0.5)) / np.float32(64)


def _dense(l, x, w, b):
    return l.nn.relu(x @ w + b)


def _dense_torch(t, x, w, b):
    return t.relu(t.addmm(b, x, w))


def _bf16(l, x, y):
    return l.np.matmul(x.astype(l.np.bfloat16), y.astype(l.np.bfloat16)).astype(l.np.float32)


def _bf16_torch(t, x, y):
    return (x.to(t.bfloat16) @ y.to(t.bfloat16)).float()


def _heads(rng: np.random.Generator, quick: bool) -> tuple:
    shape = (2, 2, 64, 32) if quick else (8, 8, 512, 64)
    return tuple(rng.standard_normal(shape, dtype=np.float32) for _ in range(3))


def _attention(l, q, k, v):
    scores = l.np.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    causal = l.np.tril(l.np.ones((q.shape[2], k.shape[2]), bool))
    weights = l.nn.softmax(l.np.where(causal, scores, -1e30), axis=-1)
    return l.np.einsum("bhqk,bhkd->bhqd", weights, v)


def _attention_torch(t, q, k, v):
    return t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _batch(count: int, m: int, k: int, n: int, quick_count: int) -> Inputs:
    return together(
        normal(count, m, k, quick=(quick_count, m, k)),
        normal(count, k, n, quick=(quick_count, k, n)),
    )


WORKLOADS = [
    _product(16, 16),
    _product(64, 64),
    _product(256, 128),
    _product(1024, 256),
    _product(2048, 256),
    _product(4096, 256),
    array_function(
        "matmul in bfloat16, 1024²",
        together(*[normal(1024, 1024, quick=(128, 128))] * 2),
        _bf16,
        _bf16_torch,
        tolerance=2e-2,
    ),
    array_function(
        "batched matmul, 256 of 64×128×64",
        _batch(256, 64, 128, 64, 8),
        lambda l, x, y: x @ y,
        lambda t, x, y: x @ y,
    ),
    array_function(
        "matrix times vector, 4096²",
        together(normal(4096, 4096, quick=(512, 512)), normal(4096, quick=(512,))),
        lambda l, x, y: x @ y,
        lambda t, x, y: x @ y,
        tolerance=1e-4,
    ),
    array_function(
        "matmul + bias + relu, 2048²", _dense_inputs, _dense, _dense_torch, tolerance=1e-4
    ),
    array_function(
        "matmul + bias + relu gradient, 2048²",
        _dense_inputs,
        _dense,
        _dense_torch,
        argnums=(0, 1, 2),
        tolerance=1e-3,
    ),
    array_function(
        "causal attention, 8×8×512×64", _heads, _attention, _attention_torch, tolerance=1e-4
    ),
    array_function(
        "causal attention gradient, 8×8×512×64",
        _heads,
        _attention,
        _attention_torch,
        argnums=(0, 1, 2),
        tolerance=1e-4,
    ),
]
