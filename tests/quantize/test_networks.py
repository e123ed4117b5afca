"""Networks keep what int8 leaves of them: ResNet-18 and MobileNet-v3 of random weights.

The bounds are those of onnxruntime's static quantization, one scale a channel by extremes.
"""

import types

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.quantize import quantize, sqnr
from benchmarks import resnet

pytestmark = pytest.mark.turns(12)  # compiles whole networks

LIBRARY = types.SimpleNamespace(np=jnp, lax=lax, nn=nn)
#: Kernel, expanded channels, channels, squeezed, hard swish, stride; of MobileNet-v3-large.
BLOCKS = (
    (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 24, 0, 2),
    (5, 120, 40, 32, 0, 1), (3, 240, 80, 0, 1, 2), (3, 184, 80, 0, 1, 1), (3, 480, 112, 120, 1, 1),
    (5, 672, 160, 168, 1, 2), (5, 960, 160, 240, 1, 1),
)  # fmt: skip


def mobilenet_params(rng):
    def kernel(size, n, m, groups=1):
        # As PyTorch initializes it: by what leaves a channel.
        scale = np.float32((2 / (size * size * m)) ** 0.5)
        return rng.standard_normal((size, size, n // groups, m), dtype=np.float32) * scale

    params, channels = {"stem": kernel(3, 3, 16)}, 16
    for i, (size, wide, out, squeezed, _, _) in enumerate(BLOCKS):
        block = {"expand": kernel(1, channels, wide), "depth": kernel(size, wide, wide, wide)}
        if squeezed:
            block |= {"down": kernel(1, wide, squeezed), "up": kernel(1, squeezed, wide)}
        params[f"block{i}"] = block | {"project": kernel(1, wide, out)}
        channels = out
    head = rng.standard_normal((960, 100), dtype=np.float32) / np.float32(100)
    return {**params, "last": kernel(1, channels, 960), "head": head}


def mobilenet(params, x):
    x = nn.hard_swish(nn.conv(x, params["stem"], strides=2))
    for i, (_, wide, _, squeezed, swish, stride) in enumerate(BLOCKS):
        p, act = params[f"block{i}"], nn.hard_swish if swish else nn.relu
        y = act(nn.conv(x, p["expand"]))
        y = act(nn.conv(y, p["depth"], strides=stride, groups=wide))
        if squeezed:
            z = nn.relu(nn.conv(y.mean((1, 2), keepdims=True), p["down"]))
            y = y * nn.hard_sigmoid(nn.conv(z, p["up"]))
        y = nn.conv(y, p["project"])
        x = x + y if x.shape == y.shape else y
    return nn.hard_swish(nn.conv(x, params["last"])).mean((1, 2)) @ params["head"]


def quality(f, params, size):
    rng = np.random.default_rng(1)
    images = [rng.standard_normal((2, size, size, 3), dtype=np.float32) for _ in range(3)]
    q = quantize(f, params, images[:2])
    assert all(d.recipe is not None for d in q.decisions.values())
    return sqnr(amdjax.jit(f)(params, images[2]), q(q.params, images[2]))


def test_resnet_18():
    params = resnet._params(np.random.default_rng(0))
    f = lambda params, x: resnet._forward(LIBRARY, params, x, False)
    assert quality(f, params, 64) >= 32.5


def test_mobilenet_v3():
    assert quality(mobilenet, mobilenet_params(np.random.default_rng(0)), 64) >= 24.8
