"""What is nearly attention, and attention at its limits, computes what is written."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from tests.jit.test_written_attention import kernels

B, T, N, H, D = 2, 5, 3, 4, 6
RNG = np.random.default_rng(0)

pytestmark = pytest.mark.cpu_only("what passes make of programs")


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


Q, K, V, CT = normal(B, T, N, H), normal(B, T, N, H), normal(B, T, N, D), normal(B, T, N, D)
MASK = RNG.random((B, N, T, T)) < 0.5
MASK[0, :, 2] = False
MASK[..., 3] = False
MASK[1, ..., 0] = True
LACKING = np.where(np.arange(T)[:, None, None] == 3, np.nan, K).astype(np.float32)


def scores(q, k):
    return jnp.einsum("btnh,bsnh->bnts", q, k)


def mixed(w, v):
    return jnp.einsum("bnts,bsnd->btnd", w, v)


def softmax(x):
    e = jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True)))
    return e / e.sum(-1, keepdims=True)


def check(f, *args, rtol=1e-4):
    """`f` compiled beside `f` operation by operation, NaN at the same places."""
    with amdjax.disable_jit():
        expected = amdjax.tree.leaves(f(*map(jnp.asarray, args)))
    for got, want in zip(amdjax.tree.leaves(amdjax.jit(f)(*args)), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def gradients(f):
    return lambda *args: amdjax.vjp(f, *args)[1](jnp.asarray(CT, np.float32))


@pytest.mark.parametrize("fill", [-1e9, -np.inf])
@pytest.mark.parametrize("k", [-1, 0])
def test_added_triangles(fill, k):
    """Also where rows are left without keys."""

    def f(q, key, v):
        x = scores(q, key)
        return mixed(softmax(x + jnp.where(jnp.tril(jnp.ones((T, T), bool), k), 0, fill)), v)

    check(f, Q, K, V)
    check(gradients(f), Q, K, V)


#: Where queries keep no key; the second one compares positions only, so that no mask is read.
KEEP = {
    "mask": lambda x, mask: mask,
    "strictly causal": lambda x, mask: jnp.arange(T) < jnp.arange(T)[:, None],
    "behind": lambda x, mask: jnp.arange(T) > jnp.arange(T)[:, None] + 1,
    "mask and bias": lambda x, mask: mask & (jnp.arange(T) <= jnp.arange(T)[:, None]),
}


@pytest.mark.parametrize("fill", [-1e9, -np.inf])
@pytest.mark.parametrize("kind", KEEP)
def test_queries_without_keys(kind, fill):
    """Of infinite logits, too, only those rows are NaN, and only gradients that read them."""

    def f(q, k, v, mask):
        x = scores(q, k) + (0.5 if kind == "mask and bias" else 0)
        return mixed(softmax(jnp.where(KEEP[kind](x, mask), x, fill)), v)

    grad = gradients(lambda q, k, v: f(q, k, v, MASK))
    assert kernels(f, Q, K, V, MASK) == (1, 0)
    assert kernels(grad, Q, K, V) == (1, 1)
    check(f, Q, K, V, MASK)
    check(grad, Q, K, V)


@pytest.mark.parametrize("fill", [-1e9, -1e4])
@pytest.mark.parametrize("least", [None, 0.0, -20000.0])
def test_queries_without_keys_whose_logits_are_not_shifted(least, fill):
    """Their exponentials are all zero then, and the quotient NaN, unless the shift is as low."""

    def f(q, k, v, mask):
        x = jnp.where(mask, scores(q, k), fill)
        shifted = x if least is None else x - jnp.maximum(x.max(-1, keepdims=True), least)
        e = jnp.exp(shifted)
        return mixed(e / e.sum(-1, keepdims=True), v)

    assert kernels(f, Q, K, V, MASK) == ((1, 0) if fill == -1e9 else (0, 0))
    check(f, Q, K, V, MASK)


@pytest.mark.parametrize("least", [float(np.finfo(np.float32).min), -np.inf])
def test_padding_by_a_bias_beside_an_infinite_mask(least):
    """Queries whose only keys are padding have weights, unless all of their logits are infinite."""
    padding = np.where(np.arange(T) < 2, least, 0).astype(np.float32)

    def f(q, k, v, padding):
        x = scores(q, k) + padding
        return mixed(softmax(jnp.where(np.tri(T, dtype=bool), x, -np.inf)), v)

    assert kernels(f, Q, K, V, padding) == (1, 0)
    assert np.isnan(amdjax.jit(f)(Q, K, V, padding)[:, :2]).all() == np.isinf(least)
    check(f, Q, K, V, padding)
    check(gradients(lambda v: f(Q, K, v, padding)), V)


@pytest.mark.parametrize("fill", [-1e9, -np.inf])
def test_masked_keys_are_not_read_as_numbers(fill):
    def f(q, k, v, mask):
        return mixed(softmax(jnp.where(mask, scores(q, k), fill)), v)

    mask = MASK | (np.arange(T) == 0)
    assert kernels(f, Q, LACKING, V, mask) == (1, 0)
    assert np.isfinite(amdjax.jit(f)(Q, LACKING, V, mask)).all()
    check(f, Q, LACKING, V, mask)
    check(lambda q, v: gradients(lambda q, v: f(q, LACKING, v, mask))(q, v), Q, V)


def _other_rows(x):
    e = jnp.exp(x - x.max(-1)[..., None, :])
    return e / e.sum(-1, keepdims=True)


def _zeroed(fill):
    return lambda q, k, v, m: mixed(jnp.where(m, softmax(jnp.where(m, scores(q, k), fill)), 0), v)


def _as_int(q, k, v, mask):
    return mixed(softmax(scores(q, k) * jnp.float32(2.7).astype(int).astype(np.float32)), v)


def _wrapped(q, k, v, mask):
    least = np.int32(-(2**31) + 2)
    first = jnp.arange(T, dtype=np.int32)[:, None] + least - 5
    return mixed(softmax(jnp.where(first >= jnp.arange(T), scores(q, k), -1e9)), v)


def _finite(q, k, v, mask):
    keep = (jnp.arange(T) < np.inf)[None] & (jnp.arange(T) < 2.5)
    return mixed(softmax(jnp.where(keep, scores(q, k), -1e9)), v)


def _through(dtype, of_logits):
    """Logits or weights rounded to a dtype that is narrower than operands."""

    def f(q, k, v, mask):
        rounded = lambda x: x.astype(dtype).astype(np.float32)
        x = scores(q, k)
        return mixed(softmax(rounded(x)) if of_logits else rounded(softmax(x)), v)

    return f


@pytest.mark.parametrize(
    "f",
    [
        lambda q, k, v, mask: mixed(_other_rows(scores(q, k)), v),
        lambda q, k, v, mask: mixed(softmax(jnp.where(mask, scores(q, k), -1e9) * 1e-9), v),
        _zeroed(-1e9),
        _zeroed(-np.inf),
        _as_int,
        _wrapped,
        _finite,
        *(_through(t, x) for t in ("float8_e4m3fn", "bfloat16") for x in (True, False)),
    ],
)
def test_forward(f):
    check(f, Q, K, V, MASK)


def _derivative(of_sum=lambda x: x, of_cotangent=lambda x: x, of_logits=lambda x, m: x, fill=None):
    """The gradient of queries written by hand, or nearly."""

    def f(q, k, v, mask, ct):
        x = scores(q, k) if fill is None else jnp.where(mask, scores(q, k), fill)
        w = softmax(x)
        out = mixed(w, v)
        g = jnp.einsum("btnd,bsnd->bnts", ct, v)
        slope = of_logits(w * g - w * of_sum((w * of_cotangent(g)).sum(-1, keepdims=True)), mask)
        return out, jnp.einsum("bnts,bsnh->btnh", slope, k)

    return f


@pytest.mark.parametrize(
    "options, found",
    [
        ({}, (1, 1)),
        ({"of_cotangent": lambda g: g.swapaxes(-1, -2)}, (0, 0)),
        ({"of_sum": lambda x: x * 1.001}, (0, 0)),
        ({"fill": -1e9}, (0, 0)),  # of queries without keys
        ({"fill": -1e9, "of_logits": lambda x, m: jnp.where(m, x, 0)}, (1, 1)),
    ],
)
def test_gradients_by_hand(options, found):
    f = _derivative(**options)
    assert kernels(f, Q, K, V, MASK, CT) == found
    check(f, Q, K, V, MASK, CT)


def test_factors_near_one_in_float64():
    """Constants of float64 programs are not rounded away."""
    with amdjax.enable_x64(True):
        wide = [jnp.asarray(x, np.float64) for x in (Q, K, V, MASK[0, 0] * 0.3)]
        f = lambda q, k, v, bias: mixed(softmax(scores(q, k) + bias * (1 + 7e-7)) * (1 - 5e-7), v)
        assert kernels(f, *wide) == (1, 0)
        check(f, *wide, rtol=1e-13)


@pytest.mark.parametrize("examples", [1, 2])
def test_gradients_of_examples_with_one_cotangent(examples):
    """A cotangent that all examples of `vmap` share is repeated, not read beyond its end."""
    xs = [np.stack([x[:examples], 2 * x[:examples]]) for x in (Q, K, V)]
    grad = amdjax.vmap(
        amdjax.grad(lambda *a: (mixed(softmax(scores(*a[:2])), a[2]) * ct).sum(), (0, 1, 2))
    )
    ct = CT[:examples]
    assert kernels(grad, *xs) == (1, 1)
    check(grad, *xs)


@pytest.mark.parametrize("none", "btsnhd")
def test_axes_without_elements(none):
    sizes = dict(b=B, t=T, s=T, n=N, h=H, d=D) | {none: 0}
    xs = [np.zeros([sizes[c] for c in s], np.float32) for s in ("btnh", "bsnh", "bsnd")]
    f = lambda q, k, v: mixed(nn.softmax(scores(q, k) * 0.5 + 1), v)
    check(f, *xs)
    check(amdjax.grad(lambda *a: f(*a).sum(), (0, 1, 2)), *xs)


def test_sums_of_sums_are_searched_once():
    """Programs with exponentially many ways to a value compile as fast as others."""

    def f(q, v, x, s):
        for i in range(60):
            x, s = x + (i + 0.5) * x.swapaxes(-1, -2), s * s + s
        return mixed(softmax(x * s), mixed(MASK * 1.0, v) + q.sum())

    def by_place(q, k, v, n):
        place = jnp.arange(T, dtype=np.int32)
        for _ in range(60):
            place = place + place
        return mixed(softmax(jnp.where(place < jnp.arange(T)[:, None], scores(q, k), -1e9)), v)

    assert kernels(f, Q, V, normal(B, N, T, T), np.float32(0.5)) == (0, 0)
    check(by_place, Q, K, V, 1)
