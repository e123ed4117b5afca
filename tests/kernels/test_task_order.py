"""Tasks of a kernel write what is theirs: their order is of no importance.

All tests run half of the time in an order that no neighbors follow (`tests/conftest.py`); here are
convolutions and products of symbolic sizes, whose blocks were chosen for other sizes.
"""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.runtime import threads

SIZES = ((8, 64), (5, 33), (3, 112), (2, 71), (4, 63), (1, 65))


@pytest.fixture(params=[False, True], ids=["ascending", "scattered"])
def order(request):
    threads.scatter_tasks(request.param)
    yield
    threads.scatter_tasks(False)


def convolution(padding):
    def run(x, w):
        return amdjax.lax.conv_general_dilated(
            x, w, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    return run


def expected(x, w, pad):
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    high, wide = x.shape[1] - 2, x.shape[2] - 2
    taps = [(i, j) for i in range(3) for j in range(3)]
    return sum(x[:, i : i + high, j : j + wide] @ w[i, j] for i, j in taps)


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("gradient", [False, True])
def test_convolutions_of_sizes_that_blocks_were_not_made_for(order, pad, gradient):
    # Small whole numbers: sums in any order are exact.
    rng = np.random.default_rng(3)
    w = rng.integers(-2, 3, (3, 3, 16, 16)).astype(np.float32)
    run = convolution([(pad, pad)] * 2)
    if gradient:
        run = amdjax.grad(lambda x, w: jnp.sum(convolution([(pad, pad)] * 2)(x, w) ** 2) / 2)
    one = amdjax.jit(run, symbolic=("b, t, t, 16", None), constraints=["t >= 3"])
    for b, t in SIZES:
        x = rng.integers(-2, 3, (b, t, t, 16)).astype(np.float32)
        y = expected(x, w, pad)
        want = y
        if gradient:
            back = np.pad(y, ((0, 0), (2 - pad,) * 2, (2 - pad,) * 2, (0, 0)))
            want = expected(back, w[::-1, ::-1].swapaxes(2, 3), 0)
        np.testing.assert_array_equal(one(x, w), want)


def test_products_of_sizes_that_blocks_were_not_made_for(order):
    rng = np.random.default_rng(4)
    one = amdjax.jit(lambda x, y: x @ y, symbolic=("b, t", "t, b"))
    for b, t in SIZES:
        x, y = (rng.integers(-3, 4, s).astype(np.float32) for s in ((b, t), (t, b)))
        np.testing.assert_array_equal(one(x, y), x @ y)
