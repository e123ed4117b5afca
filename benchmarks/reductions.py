"""Sums along each axis, softmax, layer norm, cumulative sums."""

from __future__ import annotations

import numpy as np

from .workload import Inputs, array_function, normal, together

ROWS = normal(8192, 1024, quick=(512, 256))
MATRIX = normal(4096, 4096, quick=(512, 512))
CUBE = normal(256, 256, 256, quick=(32, 64, 64))


def _layernorm(l, x, scale, bias):
    mean = l.np.mean(x, axis=-1, keepdims=True)
    variance = l.np.mean(l.np.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * l.lax.rsqrt(variance + 1e-5) * scale + bias


def _layernorm_torch(t, x, scale, bias):
    return t.nn.functional.layer_norm(x, (x.shape[-1],), scale, bias, 1e-5)


def _rows_scale_bias(rng: np.random.Generator, quick: bool) -> tuple:
    (x,) = ROWS(rng, quick)
    features = x.shape[1]
    return (x, *(rng.standard_normal(features, dtype=np.float32) for _ in range(2)))


def _softmax(l, x):
    return l.nn.softmax(x, axis=-1)


def _softmax_torch(t, x):
    return t.softmax(x, dim=-1)


def _mean_variance(l, x):
    return l.np.mean(x, axis=0), l.np.var(x, axis=0)


def _mean_variance_torch(t, x):
    return t.mean(x, 0), t.var(x, 0, correction=0)


def _long(size: int, quick: int) -> Inputs:
    # Small positive and negative steps, so that a running sum in float32 stays comparable.
    return normal(size, quick=(quick,), scale=1e-2)


WORKLOADS = [
    array_function("softmax, 8192×1024", ROWS, _softmax, _softmax_torch),
    array_function("softmax gradient, 8192×1024", ROWS, _softmax, _softmax_torch, argnums=(0,)),
    array_function("layernorm, 8192×1024", _rows_scale_bias, _layernorm, _layernorm_torch),
    array_function(
        "layernorm gradient, 8192×1024",
        _rows_scale_bias,
        _layernorm,
        _layernorm_torch,
        argnums=(0, 1, 2),
        tolerance=1e-4,
    ),
    array_function(
        "sum all, 4096²", MATRIX, lambda l, x: x.sum(), lambda t, x: x.sum(), tolerance=1e-2
    ),
    array_function("sum axis 0, 4096²", MATRIX, lambda l, x: x.sum(0), lambda t, x: x.sum(0)),
    array_function("sum axis 1, 4096²", MATRIX, lambda l, x: x.sum(1), lambda t, x: x.sum(1)),
    array_function("sum axis 1, 256³", CUBE, lambda l, x: x.sum(1), lambda t, x: x.sum(1)),
    array_function(
        "sum axes 0 2, 256³", CUBE, lambda l, x: x.sum((0, 2)), lambda t, x: x.sum((0, 2))
    ),
    array_function("max axis 0, 4096²", MATRIX, lambda l, x: x.max(0), lambda t, x: t.amax(x, 0)),
    array_function("max axis 1, 4096²", MATRIX, lambda l, x: x.max(1), lambda t, x: t.amax(x, 1)),
    array_function(
        "argmax axis 1, 4096²", MATRIX, lambda l, x: l.np.argmax(x, 1), lambda t, x: t.argmax(x, 1)
    ),
    array_function("mean and variance axis 0, 4096²", MATRIX, _mean_variance, _mean_variance_torch),
    array_function(
        "logsumexp axis 1, 4096²",
        MATRIX,
        lambda l, x: l.nn.logsumexp(x, axis=1),
        lambda t, x: t.logsumexp(x, 1),
    ),
    array_function(
        "cumsum, 16M",
        _long(2**24, 2**18),
        lambda l, x: l.np.cumsum(x),
        lambda t, x: t.cumsum(x, 0),
        tolerance=1e-3,
    ),
    array_function(
        "cumsum axis 0, 4096²",
        together(MATRIX),
        lambda l, x: l.np.cumsum(x, axis=0),
        lambda t, x: t.cumsum(x, 0),
        tolerance=1e-4,
    ),
    array_function(
        "cumsum axis 1, 4096²",
        MATRIX,
        lambda l, x: l.np.cumsum(x, axis=1),
        lambda t, x: t.cumsum(x, 1),
        tolerance=1e-4,
    ),
]
