"""Sums over blocks of rows by the product whose tiles these are."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, lax, nn

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
OFF = {"disabled_passes": "fuse_sums"}


def data(*shapes, dtype="float32"):
    r = np.random.default_rng(0)
    return [jnp.asarray(r.normal(size=s), dtype) for s in shapes]


def convolved(x, w):
    numbers = "NHWC", "HWIO", "NHWC"
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)


def trained(multiply):
    """The product, normalized by features, and what the normalization knows of it then."""

    def f(x, w):
        y = multiply(x, w)
        zero = jnp.zeros(y.shape[-1])
        z, (mean, variance) = nn.batch_norm(y, None, None, zero, zero, train=True, momentum=0.0)
        return y, nn.relu(z), mean, variance

    return f


def compiled(f, *args, target="gfx942", **options):
    return jit(f, compiler_options=options).lower(*args).compile(target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "multiply, x, w, dtype",
    [
        (convolved, (4, 32, 32, 8), (1, 1, 8, 64), "float16"),  # blocks of 64 rows
        (jnp.matmul, (2592, 64), (64, 128), "float32"),  # of 32, some tiles have one less
        (jnp.matmul, (2048, 32), (32, 72), "float32"),  # some have fewer columns
        (jnp.matmul, (520, 16), (16, 200), "float16"),  # of 20, which no tile has
    ],
    ids=["convolution", "rows", "columns", "apart"],
)
def test_statistics(target, multiply, x, w, dtype):
    """Against NumPy, of what was stored."""
    args = data(x, w, dtype=dtype)
    y, *results = compiled(trained(multiply), *args, target=target).profile(*args).results
    y = np.float64(y).reshape(-1, w[-1])
    mean, variance = y.mean(0), y.var(0, ddof=1)
    normalized = np.maximum((y - mean) / np.sqrt(y.var(0) + 1e-5), 0)
    rtol = 2e-3 if dtype == "float16" else 1e-5
    out, got_mean, got_variance = map(np.asarray, results)
    np.testing.assert_allclose(got_mean, mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got_variance, variance, rtol=1e-5)
    out = np.float64(out).reshape(normalized.shape)
    np.testing.assert_allclose(out, normalized, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("shape, block", [((2592, 64, 128), 32), ((2048, 32, 72), 32)])
def test_a_launch_less(shape, block):
    n, depth, features = shape
    args, f = data((n, depth), (depth, features)), trained(jnp.matmul)
    together = compiled(f, *args)
    assert f"sums of {block} rows" in together.as_text("schedule")
    assert len(compiled(f, *args, **OFF).kernels) == len(together.kernels) + 1
    assert "sums of" not in compiled(f, *args, target="sm_90").as_text("schedule")


def test_behind_elementwise_work():
    """Sums of what an epilogue makes, and of what it is made of."""
    x, w, b = data((2592, 64), (64, 128), (128,))

    def f(x, w, b):
        y = x @ w
        z = jnp.tanh(y + b)
        blocks = z.reshape(81, 32, 128)
        return z, blocks.sum(1), (blocks - blocks.mean(1, keepdims=True)).max(1)

    found = compiled(f, x, w, b)
    assert "sums of 32 rows" in found.as_text("schedule")
    for got, want in zip(found.profile(x, w, b).results, f(x, w, b), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "f",
    [
        lambda y: (y, y.reshape(81, 32, 128)[::-1].sum(1)),  # other places
        lambda y: (y, y.T.reshape(81, 32, 128).sum(1)),
        lambda y: (y, y.reshape(81, 32, 128).sum(2)),  # over columns
        lambda y: (y, (y.reshape(81, 32, 128) * jnp.linspace(0, 1, 32)[:, None]).sum(1)),
        lambda y: (y, jnp.argmax(y.reshape(81, 32, 128), 1)),
        lambda y: (jnp.sin(y).T, jnp.sin(y).reshape(81, 32, 128).sum(1)),
    ],
)
def test_other_sums_are_right(f):
    x, w = data((2592, 64), (64, 128))
    both = lambda x, w: f(x @ w / 64)
    found = compiled(both, x, w).profile(x, w).results
    for got, want in zip(found, amdjax.tree_util.tree_leaves(both(x, w)), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-5, atol=2e-5)
