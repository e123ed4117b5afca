"""Activations with parameters: values, slopes at corners, at infinity and of NaN."""

import numpy as np
import pytest
from scipy import special

import amdjax
import amdjax.numpy as jnp
from amdjax import nn
from amdjax.test_util import check_grads

INF, NAN = np.inf, np.nan
X = np.array([0.0, -0.0, 1, -1, 2.5, -2.5, 3, 40, -40, INF, -INF], np.float32)
gate = {"reglu": lambda x: np.maximum(x, 0), "swiglu": lambda x: x * special.expit(x),
        "geglu": lambda x: x * special.ndtr(x)}  # fmt: skip


def slopes(fn, x):
    return np.asarray(amdjax.vmap(amdjax.grad(fn))(jnp.asarray(x)))


# function, value, derivative: both in NumPy
CASES = {
    "clamp": (lambda x: nn.clamp(x, -1.0, 3.0), lambda x: np.clip(x, -1, 3),
              lambda x: (x > -1) & (x < 3)),
    "clipped_relu": (lambda x: nn.clipped_relu(x, 3.0), lambda x: np.clip(x, 0, 3),
                     lambda x: (x > 0) & (x < 3)),
    "power": (lambda x: nn.power(x, 2.0, 3.0, 2.0), lambda x: (2 + 3 * x) ** 2,
              lambda x: 6 * (2 + 3 * x)),
    "power 0": (lambda x: nn.power(x, gamma=0.0), np.ones_like, np.zeros_like),
    "scaled_tanh": (lambda x: nn.scaled_tanh(x, 0.5, 3.0), lambda x: 3 * np.tanh(x / 2),
                    lambda x: 1.5 / np.cosh(x / 2) ** 2),
    "prelu": (lambda x: nn.prelu(x, 0.25), lambda x: np.where(x > 0, x, x / 4),
              lambda x: np.where(x > 0, 1, 0.25)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_slopes(name):
    fn, value, slope = CASES[name]
    with np.errstate(over="ignore"):
        expected, steep = value(X.astype(float)), slope(X.astype(float))
    np.testing.assert_allclose(fn(X), expected, rtol=1e-6)
    np.testing.assert_allclose(slopes(fn, X), steep, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in CASES if n != "power 0"])
def test_nan_stays(name):
    assert np.isnan(CASES[name][0](jnp.float32(NAN)))


def test_slopes_of_parameters():
    x = jnp.array([[-2.0, 3.0, INF], [0.0, -1.0, -4.0]])
    alpha = jnp.array([0.1, 0.2, 0.3])
    grad = amdjax.grad(lambda a: jnp.sum(nn.prelu(x, a)))(alpha)
    np.testing.assert_array_equal(grad, [-2, -1, -4])
    first = amdjax.grad(lambda a: jnp.sum(nn.prelu(x.T, a, axis=0)))(alpha)
    np.testing.assert_array_equal(first, grad)
    shared = amdjax.grad(lambda a: jnp.sum(nn.prelu(x, a)))(0.5)
    assert shared == -7
    low, high = amdjax.grad(lambda a, b: jnp.sum(nn.clamp(X, a, b)), (0, 1))(-1.0, 3.0)
    assert (low, high) == ((X <= -1).sum(), (X >= 3).sum())


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", gate)
def test_gated_units(name, axis):
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    first, second = np.split(x.astype(float), 2, axis)
    options = {"approximate": False} if name == "geglu" else {}
    y = getattr(nn, name)(x, axis, **options)
    np.testing.assert_allclose(y, first * gate[name](second), rtol=1e-5, atol=1e-6)
    check_grads(lambda x: getattr(nn, name)(x, axis), (x,), order=1, rtol=1e-2)
    with pytest.raises(ValueError, match=name):
        getattr(nn, name)(x[:3, :3], axis)


def test_modules():
    key = amdjax.random.key(0)
    x = amdjax.random.normal(key, (5, 3))
    layer = nn.GLU(3, 4, activation=nn.silu, key=key)
    values, gates = np.split(x @ layer.kernel, 2, -1)
    np.testing.assert_allclose(layer(x), values * nn.silu(gates), rtol=1e-5)
    sloped = np.where(layer(x) > 0, layer(x), layer(x) / 4)
    np.testing.assert_allclose(nn.Sequential([layer, nn.PReLU(4)])(x), sloped, rtol=1e-6)
    assert nn.count_parameters(nn.PReLU(4)) == 4
    with amdjax.enable_x64(True):
        assert nn.PReLU().alpha.dtype == jnp.float64
    assert nn.PReLU(axis=1, dtype=jnp.bfloat16).alpha.dtype == jnp.bfloat16
    with pytest.raises(ValueError, match="alpha"):
        nn.PReLU(3)(jnp.ones((2, 4)))


def test_softmax_algorithms():
    x = np.array([[1.0, 2.0, -3.0], [100.0, 0.0, 0.0]], np.float32)
    np.testing.assert_allclose(nn.softmax(x[:1], algorithm="fast"), nn.softmax(x[:1]), rtol=1e-6)
    assert np.isnan(nn.softmax(x, algorithm="fast")[1, 0])
    np.testing.assert_array_equal(nn.softmax(x, algorithm="log"), nn.log_softmax(x))
    where = np.array([True, False, True])
    fast = lambda x: nn.softmax(x, where=where, algorithm="fast")
    np.testing.assert_allclose(fast(x[:1]), nn.softmax(x[:1], where=where), rtol=1e-6)
    check_grads(fast, (x[:1],), order=2, rtol=1e-2)
    with pytest.raises(ValueError, match="algorithm"):
        nn.softmax(x, algorithm="slow")


@pytest.mark.parametrize("k", [1, 3, 5])
def test_kthvalue(k):
    x = np.random.default_rng(0).integers(0, 4, (5, 6)).astype(np.float32)
    x[2, 1] = NAN
    value, at = nn.kthvalue(x, k, axis=0)
    np.testing.assert_array_equal(value, np.sort(x, 0)[k - 1])
    np.testing.assert_array_equal(at, np.argsort(x, 0, kind="stable")[k - 1])
    kept = nn.kthvalue(x, k, axis=0, keepdims=True)
    assert kept[0].shape == kept[1].shape == (1, 6)
    grad = amdjax.grad(lambda x: jnp.sum(nn.kthvalue(x, k, axis=0)[0]))(jnp.asarray(x))
    np.testing.assert_array_equal(grad, np.arange(5)[:, None] == np.asarray(at))


def test_kthvalue_of_what_is_not_there():
    for k in (0, 4, 1.5):
        with pytest.raises(ValueError, match="k must lie"):
            nn.kthvalue(jnp.ones(3), k)
