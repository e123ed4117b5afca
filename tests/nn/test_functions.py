import math

import numpy as np
import pytest
from scipy import special

import amdjax
import amdjax.numpy as jnp
from amdjax import nn

X = np.array([-50.0, -3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0, 6.0, 50.0], np.float32)
sigmoid = lambda x: special.expit(x)
softplus = lambda x: np.logaddexp(x, 0)
FORMULAS = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "softplus": softplus,
    "log_sigmoid": lambda x: -softplus(-x),
    "soft_sign": lambda x: x / (np.abs(x) + 1),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "celu": lambda x: np.maximum(x, 0) + np.expm1(np.minimum(x, 0)),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "mish": lambda x: x * np.tanh(softplus(x)),
    "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "selu": lambda x: (
        1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_values(name):
    expected = FORMULAS[name](X.astype(np.float64))
    np.testing.assert_allclose(getattr(nn, name)(X), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FORMULAS)
def test_values_inside_a_jitted_function(name):
    eager, traced = getattr(nn, name)(X), amdjax.jit(getattr(nn, name))(X)
    np.testing.assert_allclose(eager, traced, rtol=1e-6)


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients(name):
    x = np.array([-2.0, -0.7, 0.3, 1.5, 4.0])
    step = 1e-6
    expected = (FORMULAS[name](x + step) - FORMULAS[name](x - step)) / (2 * step)
    grad = amdjax.grad(lambda x: getattr(nn, name)(x).sum())(x.astype(np.float32))
    np.testing.assert_allclose(grad, expected, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients_stay_finite_far_out(name):
    grad = amdjax.grad(lambda x: getattr(nn, name)(x).sum())(jnp.array([-1000.0, 0.0, 1000.0]))
    assert np.isfinite(grad).all()


def test_gradients_at_the_kinks():
    assert float(amdjax.grad(nn.relu)(0.0)) == 0.0
    assert float(amdjax.grad(nn.relu6)(6.0)) == 0.0
    assert float(amdjax.grad(nn.relu6)(0.0)) == 0.0


def test_exact_gelu():
    expected = X * special.ndtr(X.astype(np.float64))
    np.testing.assert_allclose(nn.gelu(X, approximate=False), expected, rtol=1e-5, atol=1e-6)


def test_glu_halves_an_axis():
    assert nn.glu(jnp.ones((2, 6))).shape == (2, 3)
    with pytest.raises(ValueError, match="glu: the size of x along axis 0 must be even"):
        nn.glu(jnp.ones(3))
    for gate in (nn.glu, nn.swiglu):
        with pytest.raises(ValueError, match=f"{gate.__name__}: axis 2 is out of bounds"):
            gate(jnp.ones((2, 6)), 2)


@pytest.mark.parametrize("axis", [0, 1, (0, 1), None])
def test_softmax_and_its_logarithm(axis):
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32) * 100
    expected = special.log_softmax(x.astype(np.float64), axis)
    np.testing.assert_allclose(nn.softmax(x, axis), np.exp(expected), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(nn.log_softmax(x, axis), expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(
        nn.logsumexp(x, axis), special.logsumexp(x.astype(np.float64), axis), rtol=1e-6
    )


def test_softmax_of_masked_rows():
    x, mask = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[True, False], [False, False]])
    assert nn.softmax(x, where=mask).tolist() == [[1, 0], [0, 0]]


def test_softmax_gradients_of_both_orders():
    x = jnp.array([0.5, -1.0, 2.0])
    y = np.asarray(nn.softmax(x))
    jacobian = np.diag(y) - np.outer(y, y)
    np.testing.assert_allclose(amdjax.jacrev(nn.softmax)(x), jacobian, atol=1e-6)
    np.testing.assert_allclose(amdjax.jacfwd(nn.softmax)(x), jacobian, atol=1e-6)
    first = lambda x: nn.softmax(x)[0]
    hessian = amdjax.hessian(first)(x)
    np.testing.assert_allclose(hessian, np.asarray(hessian).T, atol=1e-6)


def test_logsumexp_with_weights_and_signs():
    a, b = np.array([1.0, 2.0, 3.0], np.float32), np.array([1.0, -5.0, 1.0], np.float32)
    value, sign = nn.logsumexp(a, b=b, return_sign=True)
    expected = special.logsumexp(a.astype(np.float64), b=b, return_sign=True)
    np.testing.assert_allclose((value, sign), expected, rtol=1e-5)
    assert np.isnan(float(nn.logsumexp(a, b=b)))
    assert float(nn.logsumexp(jnp.array([-jnp.inf, -jnp.inf]))) == -np.inf


def test_one_hot():
    assert nn.one_hot(jnp.array([0, 2, 5]), 3).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert nn.one_hot(jnp.array([0, 1]), 3, axis=0, dtype=bool).shape == (3, 2)
    with pytest.raises(TypeError, match="num_classes"):
        nn.one_hot(jnp.array([0]), 2.5)


@pytest.mark.parametrize("algorithm", ["fast", "stable"])
def test_standardize(algorithm):
    x = np.random.default_rng(0).normal(3, 2, (4, 50)).astype(np.float32)
    y = np.asarray(nn.standardize(x, algorithm=algorithm))
    np.testing.assert_allclose(y.mean(1), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(1), 1, atol=1e-4)


def reference_attention(q, k, v, causal):
    logits = np.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
    if causal:
        logits = np.where(np.tri(*logits.shape[-2:]), logits, -np.inf)
    return np.einsum("bhts,bshd->bthd", special.softmax(logits, -1), v)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 5, 3, 4)).astype(np.float32) for _ in range(3))
    ours = nn.dot_product_attention(q, k, v, is_causal=causal)
    np.testing.assert_allclose(ours, reference_attention(q, k, v, causal), rtol=1e-4, atol=1e-5)


def test_attention_with_grouped_heads_and_lengths():
    rng = np.random.default_rng(0)
    q = rng.normal(size=(2, 5, 4, 8)).astype(np.float32)
    k, v = (rng.normal(size=(2, 6, 2, 8)).astype(np.float32) for _ in range(2))
    ours = nn.dot_product_attention(q, k, v, key_value_seq_lengths=jnp.array([6, 2]))
    wide = [np.repeat(x, 2, axis=2) for x in (k, v)]
    expected = reference_attention(q, *wide, False)
    np.testing.assert_allclose(ours[0], expected[0], rtol=1e-4, atol=1e-5)
    short = reference_attention(q[1:], wide[0][1:, :2], wide[1][1:, :2], False)
    np.testing.assert_allclose(ours[1], short[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="multiple"):
        nn.dot_product_attention(q, k[:, :, :1].repeat(3, 2), v[:, :, :1].repeat(3, 2))


@pytest.mark.parametrize("bad", [[1.0, 2.0], None])
def test_errors_name_the_function(bad):
    for name in ("relu", "softmax", "gelu"):
        with pytest.raises(TypeError, match=f"{name} requires ndarray or scalar arguments"):
            getattr(nn, name)(bad)


def test_scaled_matmul():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, 3, 8)), "float8_e4m3fn")
    y = jnp.asarray(rng.normal(size=(2, 5, 8)), "float8_e5m2")
    s, t = rng.uniform(0.5, 2, (2, 3, 4)), rng.uniform(0.5, 2, (2, 5, 2))
    found = nn.scaled_matmul(x, y, s.astype("float32"), t.astype("float32"))
    left = np.asarray(x).astype("float64") * np.repeat(s, 2, 2)
    right = np.asarray(y).astype("float64") * np.repeat(t, 4, 2)
    np.testing.assert_allclose(found, left @ right.transpose(0, 2, 1), rtol=1e-5, atol=1e-5)
    assert found.dtype == np.float32
    assert nn.scaled_matmul(x, y, s, t, "bfloat16").dtype == "bfloat16"
    with pytest.raises(ValueError, match="lhs and rhs"):
        nn.scaled_matmul(x, y[:1], s, t)
    with pytest.raises(ValueError, match="rhs_scales"):
        nn.scaled_matmul(x, y, s, t[:, :, :1].repeat(3, 2))
