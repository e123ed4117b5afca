"""Layers that MIOpen has in half, bfloat16 and double, too: values and gradients in these."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn
from tests.api.test_miopen_layers import ACTIVATIONS, LOGISTIC
from tests.support import layer_references as reference
from tests.support.miopen import check, draw
from tests.support.turns import in_turn

MEAN, VARIANCE = draw(3), draw(3, seed=1) ** 2 + 0.5
SIGNS = np.sign(draw(5, 4, seed=1))
ONES = ((1, 1), (1, 1))


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def standard(x, axes, epsilon=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def conv(x, w):
    return reference.conv(x, w, (1, 1), ONES, (1, 1), 1)


#: Functions, their definitions, and shapes of their arguments.
LAYERS = {
    **{name: (*both, [(5, 40)]) for name, both in ACTIVATIONS.items()},
    "glu": (nn.glu, lambda x: x[:, :4] * LOGISTIC(x[:, 4:]), [(4, 8)]),
    "prelu": (nn.prelu, lambda x, a: np.where(x > 0, x, a * x), [(6, 5), (5,)]),
    "softmax": (nn.softmax, softmax, [(4, 30)]),
    "log softmax": (nn.log_softmax, lambda x: np.log(softmax(x)), [(4, 30)]),
    "mean of windows": (
        lambda x: nn.avg_pool(x, 3, strides=2, padding=1),
        lambda x: reference.pool(x, (3, 3), (2, 2), ONES, lambda y, a: y.mean(a), 0.0),
        [(2, 7, 6, 3)],
    ),
    "largest of windows": (
        lambda x: nn.max_pool(x, 3, strides=2),
        lambda x: reference.pool(x, (3, 3), (2, 2), ((0, 0),) * 2, lambda y, a: y.max(a), -np.inf),
        [(2, 7, 6, 3)],
    ),
    "local response": (
        lambda x: nn.local_response_norm(x, 3, alpha=0.5, k=2.0),
        lambda x: reference.local_response(x, 3, (3,), 0.5, 0.75, 2.0),
        [(2, 5, 6, 7)],
    ),
    "layer norm": (nn.layer_norm, lambda x, s, b: standard(x, -1) * s + b, [(3, 5, 8), (8,), (8,)]),
    "rms norm": (
        lambda x, s: nn.rms_norm(x, s, epsilon=1e-6),
        lambda x, s: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * s,
        [(3, 5, 8), (8,)],
    ),
    "batch norm": (
        lambda x: nn.batch_norm(x, None, None, MEAN, VARIANCE, train=True)[0],
        lambda x: standard(x, (0, 1)),
        [(6, 5, 3)],
    ),
    "batch norm, inference": (
        lambda x: nn.batch_norm(x, None, None, MEAN, VARIANCE, train=False)[0],
        lambda x: (x - MEAN) / np.sqrt(VARIANCE + 1e-5),
        [(6, 5, 3)],
    ),
    "soft margin": (
        lambda x: nn.soft_margin_loss(x, SIGNS.astype(x.dtype)),
        lambda x: np.mean(np.log1p(np.exp(-SIGNS * x))),
        [(5, 4)],
    ),
    "sum": (lambda x: jnp.sum(x, 1), lambda x: x.sum(1), [(4, 50)]),
    "product": (lambda x: jnp.prod(x, 1), lambda x: x.prod(1), [(4, 6)]),
    "k-th": (lambda x: nn.kthvalue(x, 3)[0], lambda x: np.sort(x, -1)[:, 2], [(4, 9)]),
    "convolution": (
        lambda x, w: nn.conv(x, w, padding=1), conv, [(2, 5, 5, 3), (3, 3, 3, 4)]
    ),
    "transposed convolution": (
        lambda x, w: nn.conv_transpose(x, w, padding=1),
        lambda x, w: conv(x, w[::-1, ::-1]),
        [(2, 5, 5, 3), (3, 3, 3, 4)],
    ),
}  # fmt: skip
#: A few roundings of numbers that are about 1; of double, what differences leave.
TOLERANCE = {"float16": 5e-3, "bfloat16": 4e-2, "float64": 1e-7}


@pytest.mark.turns(3)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", in_turn(LAYERS, 5))
def test_dtypes(name, dtype):
    f, define, shapes = LAYERS[name]
    with amdjax.enable_x64(dtype == "float64"):
        args = [draw(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
        assert f(*args).dtype == args[0].dtype
        check(f, define, *args, tolerance=TOLERANCE[dtype])
