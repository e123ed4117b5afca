"""An element that is no number reaches the same results at symbolic sizes as at numbers.

Where sizes are numbers, who adds up what is known while tracing; where they are symbolic, it is
computed, and an element that is multiplied by 0 instead of left out would reach results that it has
no share in. So it is with gradients.
"""

from __future__ import annotations

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import image, lax, nn
from amdjax.core.dims import at_sizes
from amdjax.export import symbolic_shape
from tests.dims.test_all_functions import call_of, public

SIZES = {"a": 7, "b": 5}
I = np.int32

#: By name: a function, and the shapes of its arguments.
LAYERS = {
    "adaptive_avg_pool": (lambda x: nn.adaptive_avg_pool(x, 3), "2, a, 2"),
    "adaptive_avg_pool of more": (lambda x: nn.adaptive_avg_pool(x, (9, 2)), "1, a, b, 2"),
    "avg_pool": (lambda x: nn.avg_pool(x, 3, strides=2, padding=1), "1, a, b, 2"),
    "max_pool": (lambda x: nn.max_pool(x, 3, strides=2, padding=1), "1, a, b, 2"),
    "lp_pool": (lambda x: nn.lp_pool(x, 2, 3), "1, a, b, 2"),
    "linear": (lambda x: nn.upsample(x, scale_factor=2, method="linear"), "1, a, b, 2"),
    "linear, corners": (
        lambda x: nn.upsample(x, (9, 4), method="linear", align_corners=True),
        "1, a, b, 2",
    ),
    "cubic": (lambda x: nn.upsample(x, (9, 4), method="cubic"), "1, a, b, 2"),
    "area": (lambda x: nn.upsample(x, (9, 4), method="area"), "1, a, b, 2"),
    "nearest": (lambda x: nn.upsample(x, (14, 4)), "1, a, b, 2"),
    "nearest_exact": (lambda x: nn.upsample(x, (9, 4), method="nearest_exact"), "1, a, b, 2"),
    "image.resize": (lambda x: image.resize(x, (9, x.shape[1], 2), "nearest"), "a, b, 2"),
    "conv": (lambda x: nn.conv(x, jnp.ones((3, 3, 2, 2)), padding="SAME"), "1, a, b, 2"),
    "conv, strides": (
        lambda x: nn.conv(x, jnp.ones((3, 3, 1, 4)), strides=2, groups=2),
        "1, a, b, 2",
    ),
    "conv_transpose": (
        lambda x: nn.conv_transpose(x, jnp.ones((3, 3, 2, 2)), strides=2),
        "1, a, b, 2",
    ),
    "grid_sample": (lambda x: nn.grid_sample(x, jnp.full((1, 2, 2, 2), 0.3)), "1, a, b, 2"),
    "attention": (lambda x: nn.dot_product_attention(x, x, x, is_causal=True), "a, b, 2, 4"),
    "attention, lengths": (
        lambda x: nn.dot_product_attention(
            x, x, x, key_value_seq_lengths=jnp.full(x.shape[0], 3, I)
        ),
        "a, b, 2, 4",
    ),
    "layer_norm": (lambda x: nn.layer_norm(x), "a, b, 3"),
    "group_norm": (lambda x: nn.group_norm(x, groups=2), "a, b, 4"),
    "local_response_norm": (lambda x: nn.local_response_norm(x, 3), "a, b, 4"),
    "embedding": (lambda x: nn.embedding(x, jnp.arange(x.shape[0]) % 3), "a, b"),
    "softmax, where": (lambda x: nn.softmax(x, where=jnp.arange(x.shape[-1]) < 3), "a, b"),
    "log_softmax": (lambda x: nn.log_softmax(x, -1), "a, b"),
    "mean, where": (lambda x: jnp.mean(x, 0, where=jnp.arange(x.shape[0])[:, None] < 4), "a, b"),
    "triangle": (lambda x: jnp.tril(x) + jnp.triu(x, 2), "a, b"),
    "windows": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 2), (2, 1), "SAME"),
        "a, b",
    ),
    "padded": (lambda x: jnp.pad(x, ((1, 2), (0, x.shape[0]))), "a, b"),
}


def operands(specs, dtype, odd):
    """Arrays of these shapes with one odd element each, apart from the others' places."""
    rng = np.random.default_rng(len(specs))
    found = []
    for spec in specs:
        shape = [at_sizes(n, SIZES) for n in symbolic_shape(spec)]
        x = rng.normal(size=shape).astype(dtype)
        x.reshape(-1)[rng.integers(x.size)] = odd
        found.append(x)
    return found


def leaves(f):
    kept = lambda x: hasattr(x, "shape") and jnp.issubdtype(x.dtype, np.inexact)
    return lambda *args: [x for x in amdjax.tree.leaves(f(*args)) if kept(x)]


def same(got, wanted):
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(np.isfinite(x), np.isfinite(y))
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, odd):
    f, *specs = LAYERS[name]
    f = leaves(f)
    args = operands(specs, np.float32, odd)
    wanted = amdjax.jit(f)(*args)
    same(amdjax.jit(f, symbolic=tuple(specs))(*args), wanted)

    def back(*args):
        """Gradients of finite elements, whose cotangents have one that is odd."""
        finite = [jnp.where(jnp.isfinite(x), x, 0.5) for x in args]
        y, pullback = amdjax.vjp(f, *finite)
        return pullback(
            [jnp.ones_like(x).reshape(-1).at[x.size // 2].set(odd).reshape(x.shape) for x in y]
        )

    same(amdjax.jit(back, symbolic=tuple(specs))(*args), amdjax.jit(back)(*args))


@pytest.mark.turns(12)
@pytest.mark.parametrize("name", public())
def test_functions(name):
    call = call_of(name)
    if call is None or not np.issubdtype(call[-1], np.inexact) or name == "lax.rng_uniform":
        return
    f, *specs, dtype = call
    args = operands(specs, dtype, np.nan)
    try:
        wanted = amdjax.jit(leaves(f))(*args)
    except Exception as error:
        pytest.skip(f"takes no such values: {error}")
    try:
        got = amdjax.jit(leaves(f), symbolic=tuple(specs))(*args)
    except amdjax.errors.InconclusiveDimensionOperation:
        return
    same(got, wanted)
