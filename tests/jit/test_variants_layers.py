"""Layers of symbolic sizes: one program for all of them, against the programs of each size."""

from __future__ import annotations

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, rnn
from amdjax.core.errors import InconclusiveDimensionOperation

KEY = amdjax.random.key(0)
IMAGES = "b, t, t, 8"
ROWS = "b, t, 16"
STEPS = "t, b, 8"


def with_lengths(layer):
    return lambda x: layer(x, lengths=jnp.arange(x.shape[1]) % x.shape[0])


def attended(x):
    return nn.dot_product_attention(x[:, :, None], x[:, :, None], x[:, :, None])


LAYERS = {
    "Conv": (IMAGES, lambda: nn.Conv(8, 4, (3, 3), strides=2, key=KEY)),
    "ConvTranspose": (IMAGES, lambda: nn.ConvTranspose(8, 4, (3, 3), strides=2, key=KEY)),
    "MaxPool": (IMAGES, lambda: nn.MaxPool(3, strides=2, padding="SAME")),
    "AvgPool": (IMAGES, lambda: nn.AvgPool(2)),
    "AvgPool, padded": (IMAGES, lambda: nn.AvgPool(3, strides=2, padding="SAME")),
    "LpPool": (IMAGES, lambda: nn.LpPool(2, p=2)),
    "AdaptiveAvgPool": (IMAGES, lambda: nn.AdaptiveAvgPool(3)),
    "BatchNorm": (IMAGES, lambda: lambda x: nn.apply(nn.BatchNorm(8), x, train=True)[0]),
    "BatchNorm of blocks": (
        "b, 8, 8, 8", lambda: lambda x: nn.apply(nn.BatchNorm(8), x, train=True)[0],
    ),
    "GroupNorm": (IMAGES, lambda: nn.GroupNorm(8, groups=4)),
    "InstanceNorm": (IMAGES, lambda: nn.InstanceNorm(8)),
    "Upsample": (IMAGES, lambda: nn.Upsample(scale_factor=2)),
    "Upsample, linear": ("b, t, 8", lambda: nn.Upsample(scale_factor=3, method="linear")),
    "Upsample, to a size": ("b, t, 8", lambda: nn.Upsample(5)),
    "MultiHeadAttention": (ROWS, lambda: nn.MultiHeadAttention(16, 4, kv_heads=2, key=KEY)),
    "heads of all sizes": ("b, 5, t", lambda: attended),
    "LSTM": (STEPS, lambda: with_lengths(rnn.LSTM(8, 4, bidirectional=True, key=KEY))),
    "GRU": (STEPS, lambda: with_lengths(rnn.GRU(8, 4, layers=2, key=KEY))),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_at_all_sizes(name):
    """Results, and gradients of a sum of them, are those of fixed sizes."""
    spec, make = LAYERS[name]
    layer = make()

    def both(x):
        def loss(x):
            results = [y for y in amdjax.tree.leaves(layer(x)) if y.dtype == np.float32]
            return sum(jnp.sum(jnp.sin(y)) for y in results), results

        return amdjax.grad(loss, has_aux=True)(x)

    one, each = amdjax.jit(both, symbolic=spec), amdjax.jit(both)
    for b, t in (3, 7), (2, 6), (5, 18):
        shape = [{"b": b, "t": t}.get(n) or int(n) for n in spec.split(", ")]
        x = np.random.default_rng(t).standard_normal(shape).astype(np.float32)
        pairs = zip(*map(amdjax.tree.leaves, (one(x), each(x))), strict=True)
        for got, want in pairs:
            assert got.aval == want.aval
            scale = max(1.0, float(np.abs(want).max()))
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * scale, err_msg=f"{b}x{t}")
    (made,) = one._programs.variants.values()
    assert made.reason is None


def test_pools_with_indices_at_all_sizes():
    pool = lambda x: nn.max_pool(x, 3, strides=2, padding="SAME", return_indices=True)
    compiled = amdjax.jit(pool, symbolic="b, t, t, 2")
    for b, t in (2, 7), (3, 8), (2, 5):
        x = np.random.default_rng(t).standard_normal((b, t, t, 2)).astype(np.float32)
        for got, want in zip(compiled(x), pool(x), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("batch", [None, (2,)])
def test_scales_of_queries_and_heads_of_symbolic_sizes(batch):
    def attend(x, scale):
        return nn.dot_product_attention(x, x, x, query_scale=scale)

    compiled = amdjax.jit(attend, symbolic=["2, 3, 1, t", None])
    scale = np.float32(0.5) if batch is None else np.array([0.5, 2.0], np.float32)
    for t in 4, 9, 16:
        x = np.random.default_rng(t).standard_normal((2, 3, 1, t)).astype(np.float32)
        np.testing.assert_allclose(compiled(x, scale), attend(x, scale), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "layer",
    [nn.AdaptiveMaxPool(3), nn.Upsample(scale_factor=1.5, method="cubic")],
    ids=["adaptive", "cubic"],
)
def test_layers_that_need_sizes_say_so(layer):
    with pytest.raises(InconclusiveDimensionOperation, match="requires a constant"):
        amdjax.jit(lambda x: layer(x), symbolic="b, t, 4")(np.ones((2, 7, 4), np.float32))
