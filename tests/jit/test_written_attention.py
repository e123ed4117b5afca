"""Attention that is written out goes through kernels with the same results, or stays as it is."""

from functools import partial

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn

B, T, S, K, G, H, D = 2, 5, 7, 2, 3, 8, 6
N = K * G
RNG = np.random.default_rng(0)

pytestmark = pytest.mark.cpu_only("what passes make of programs")


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def kernels(f, *args):
    """How many attentions, and how many gradients of some, are kernels."""
    text = amdjax.jit(f).lower(*args).compile().as_text("schedule")
    backward = text.count("gradient of attention of")
    return text.count("attention of") - backward, backward


def softmax(xp, x, axis=-1):
    """As people write it."""
    e = xp.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


SOFTMAX = {
    "nn.softmax": lambda x: nn.softmax(x),
    "plain": lambda x: softmax(jnp, x),
    "stopped": lambda x: (lambda e: e / e.sum(-1, keepdims=True))(
        jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True)))
    ),
    "reciprocal": lambda x: (lambda e: e * (1 / e.sum(-1, keepdims=True)))(
        jnp.exp(x - x.max(-1)[..., None])
    ),
    "unshifted": lambda x: (lambda e: e / jnp.sum(e, -1)[..., None])(jnp.exp(x)),
}


def causal(xp):
    if xp is np:
        return np.tri(T, S, dtype=bool)
    return jnp.arange(S) <= jnp.arange(T)[:, None]


#: What logits become, of themselves and a bias or mask; of any rank with positions last.
MASKS = {
    "none": lambda xp, x, bias, mask: x,
    "causal": lambda xp, x, bias, mask: xp.where(causal(xp), x, -np.inf),
    "triangle": lambda xp, x, bias, mask: xp.where(np.tri(T, S, dtype=bool), x, -1e30),
    "tril": lambda xp, x, bias, mask: xp.where(xp.tril(xp.ones((T, S), bool)), x, -1e10),
    "triu": lambda xp, x, bias, mask: xp.where(xp.triu(xp.ones((T, S), bool), 2), -1e10, x),
    "triangle of floats": lambda xp, x, bias, mask: xp.where(
        xp.tril(xp.ones((T, S)), 1) == 0, -np.inf, x
    ),
    "triangle of a mask": lambda xp, x, bias, mask: xp.where(
        xp.tril(xp.broadcast_to(mask, x.shape), 1), x, -1e10
    ),
    "band": lambda xp, x, bias, mask: xp.where(
        xp.tril(xp.triu(xp.ones((T, S), bool), -2), 1), x, -np.inf
    ),
    "not below": lambda xp, x, bias, mask: xp.where(
        ~(xp.arange(T)[:, None] >= xp.arange(S)), np.finfo(np.float32).min, x
    ),
    "window": lambda xp, x, bias, mask: xp.where(
        causal(xp) & (xp.arange(T)[:, None] - xp.arange(S) < 3), x, -1e9
    ),
    "later": lambda xp, x, bias, mask: xp.where(
        xp.arange(T)[:, None] + 2 >= xp.arange(S)[None], x, -np.inf
    ),
    "mask": lambda xp, x, bias, mask: xp.where(mask, x, -1e9),
    "infinite mask": lambda xp, x, bias, mask: xp.where(mask, x, -np.inf),
    "bias": lambda xp, x, bias, mask: x + bias,
    "additive": lambda xp, x, bias, mask: x + xp.where(mask, 0.0, -1e9) - bias,
    "all": lambda xp, x, bias, mask: xp.where(causal(xp) & mask, bias + x, -1e20),
    "added": lambda xp, x, bias, mask: x + xp.where(causal(xp), 0.0, -np.inf),
    "added to a bias": lambda xp, x, bias, mask: xp.where(causal(xp), 0.0, -np.inf) + x - bias,
    "added numbers": lambda xp, x, bias, mask: x + (1 - xp.tril(xp.ones((T, S)), 1)) * -1e9,
    "subtracted": lambda xp, x, bias, mask: x - xp.triu(xp.full((T, S), 1e30), 3),
    "added twice": lambda xp, x, bias, mask: (
        x + xp.where(causal(xp), 0.0, -1e9) + xp.where(mask, 0.0, -1e9)
    ),
    "added and chosen": lambda xp, x, bias, mask: xp.where(
        mask, x + xp.where(causal(xp), 0.0, -1e9), -1e9
    ),
    "bias behind": lambda xp, x, bias, mask: xp.where(causal(xp), x, -np.inf) + bias,
}


def form(rng):
    """A way to write attention: a function of `xp`, query, key, value, bias and mask."""
    letters = lambda names: "".join(rng.permutation(list(names)))
    q, k, v, out = letters("btnh"), letters("bsnh"), letters("bsnd"), letters("btnd")
    scores = letters("bn") + "ts"
    scale, place = 0.3, rng.integers(5)
    kind = rng.choice(list(MASKS))
    how = rng.choice(list(SOFTMAX))
    repeated = rng.random() < 0.3
    turned = rng.random() < 0.3
    shared = "".join(c for c in scores[:2] if rng.random() < 0.5)

    def f(xp, q_, k_, v_, bias, mask):
        given = lambda x, order, to: xp.transpose(x, [order.index(c) for c in to])
        if repeated:
            k_, v_ = (xp.repeat(x[:, :, ::G], G, 2) for x in (k_, v_))
        q_, k_, v_ = given(q_, "btnh", q), given(k_, "bsnh", k), given(v_, "bsnd", v)
        if place == 0:
            q_ = q_ * scale
        x = xp.einsum(f"{q},{k}->{scores}", q_, k_)
        if turned:
            x = xp.einsum(f"{k},{q}->{scores[:2]}st", k_, q_).swapaxes(-1, -2)
        x = x * scale if place == 1 else x / xp.sqrt(1 / scale**2) if place == 2 else x
        narrow = [slice(None) if c in shared else slice(0, 1) for c in scores[:2]]
        order = ["bn".index(c) for c in scores[:2]]
        bias, mask = (xp.transpose(y, (*order, 2, 3))[tuple(narrow)] for y in (bias, mask))
        x = MASKS[kind](xp, x, bias, mask)
        x = x * scale if place >= 3 else x
        w = softmax(np, x) if xp is np else SOFTMAX[how](x)
        return xp.einsum(f"{scores},{v}->{out}", w, v_)

    f.text = f"{q},{k}->{scores},{v}->{out} {kind} {how} {place} {shared} {repeated} {turned}"
    return f


def drawn(rng):
    q, k, v = (rng.normal(size=s) for s in ((B, T, N, H), (B, S, N, H), (B, S, N, D)))
    bias, mask = rng.normal(size=(B, N, T, S)), rng.random((B, N, T, S)) < 0.7
    mask[..., 0] = True
    return q, k, v, bias, mask


def narrow(xs):
    return [jnp.asarray(x, bool if x.dtype == bool else np.float32) for x in xs]


@pytest.mark.parametrize("seed", range(6))
def test_forms(seed):
    rng = np.random.default_rng(seed)
    f, xs = form(rng), drawn(rng)
    attend = amdjax.jit(lambda *xs: f(jnp, *xs))
    assert kernels(attend, *narrow(xs)) == (1, 0), f.text
    np.testing.assert_allclose(attend(*narrow(xs)), f(np, *xs), rtol=2e-5, atol=2e-5)


#: What a kernel is told of masks that compare positions.
BOUNDS = {
    "causal": "causal", "triangle": "causal", "tril": "causal", "not below": "causal",
    "window": "window 2 0", "later": "window 12 2", "triu": "window 12 1",
    "triangle of floats": "window 12 1", "triangle of a mask": "window 12 1",
    "band": "window 2 1", "all": "causal", "added": "causal", "added to a bias": "causal",
    "added numbers": "window 12 1", "subtracted": "window 12 2",
}  # fmt: skip


@pytest.mark.parametrize("kind", MASKS)
def test_masks(kind):
    """Blocks that a comparison of positions leaves out are not computed, however it is written."""
    q, k, v, bias, mask = drawn(np.random.default_rng(0))

    def attend(xp, q, k, v, bias, mask):
        x = MASKS[kind](xp, xp.einsum("btnh,bsnh->bnts", q, k), bias, mask)
        return xp.einsum("bnts,bsnd->btnd", softmax(xp, x), v)

    compiled = amdjax.jit(partial(attend, jnp)).lower(*narrow((q, k, v, bias, mask))).compile()
    found = compiled(*narrow((q, k, v, bias, mask)))
    np.testing.assert_allclose(found, attend(np, q, k, v, bias, mask), rtol=2e-5, atol=2e-5)
    (line,) = (x for x in compiled.as_text("schedule").splitlines() if "attention of" in x)
    assert BOUNDS.get(kind, "") in line, line
    if kind.startswith("added") and kind not in BOUNDS:  # what is left without keys would differ
        assert "causal" not in line and "window" not in line


@pytest.mark.parametrize(
    "one, limit, compare",
    [
        (2**53, 2**53 + 1, "ge"), (2**53 + 1, 2**53, "eq"), (2**53 + 1, 2**53, "le"),
        (-(2**62) - 1, -(2**62), "ge"), (2**63 - 1, 2**63 - 2, "ne"),
    ],
)  # fmt: skip
def test_masks_of_integers_that_no_float_holds(one, limit, compare):
    """What is compared is known exactly, or not known."""
    q, k, v, *_ = drawn(np.random.default_rng(0))

    def attend(xp, q, k, v):
        ones = xp.where(xp.tril(xp.ones((T, S), bool)), xp.int64(one), xp.int64(0))
        kept = getattr(ones, f"__{compare}__")(xp.int64(limit))
        x = xp.where(kept, xp.einsum("btnh,bsnh->bnts", q, k), -1e10)
        return xp.einsum("bnts,bsnd->btnd", softmax(xp, x), v)

    with amdjax.enable_x64(True):
        found = amdjax.jit(partial(attend, jnp))(q, k, v)
    np.testing.assert_allclose(found, attend(np, q, k, v), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_gradients_of_forms(seed):
    """Against derivatives of what is written, in float64."""
    rng = np.random.default_rng(100 + seed)
    f, xs = form(rng), drawn(rng)
    ct = rng.normal(size=f(np, *xs).shape)

    def loss(q, k, v, bias, mask, ct):
        out = f(jnp, q, k, v, bias, mask)
        return (out * ct).sum(), out

    gradient = amdjax.grad(loss, (0, 1, 2), has_aux=True)
    assert kernels(gradient, *narrow((*xs, ct))) == (1, 1), f.text
    found, out = amdjax.jit(gradient)(*narrow((*xs, ct)))
    np.testing.assert_allclose(out, f(np, *xs), rtol=2e-5, atol=2e-5)
    with amdjax.enable_x64(True), amdjax.disable_jit():
        expected, _ = gradient(*map(jnp.asarray, (*xs, ct)))
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=5e-5, atol=5e-5)


Q, KEYS, V = normal(B, T, N, H), normal(B, S, N, H), normal(B, S, N, D)


def plain(q, k, v, of_logits=lambda x: x, of_weights=lambda w: w):
    w = nn.softmax(of_logits(jnp.einsum("btnh,bsnh->bnts", q, k)))
    return jnp.einsum("bnts,bsnd->btnd", of_weights(w), v)


@pytest.mark.parametrize("shape", [(1, N, T, S), (N, T, S), (B, N, T, S), (T, S), (N, 1, 1), ()])
def test_gradient_of_a_bias(shape):
    bias = jnp.asarray(normal(*shape))
    attend = lambda q, k, v, bias: plain(q, k, v, lambda x: jnp.where(causal(jnp), x + bias, -1e9))
    gradient = amdjax.grad(lambda *a: (attend(*a) ** 2).sum(), (0, 1, 2, 3))
    args = [jnp.asarray(x) for x in (Q, KEYS, V, bias)]
    assert kernels(gradient, *args) == (1, 1)
    with amdjax.disable_jit():
        expected = gradient(*args)
    for got, want in zip(amdjax.jit(gradient)(*args), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (0, 2)])
def test_gradients_of_some_operands(which):
    gradient = amdjax.grad(lambda *a: (plain(*a) ** 2).sum(), which)
    args = [jnp.asarray(x) for x in (Q, KEYS, V)]
    assert kernels(gradient, *args) == (1, 1)
    with amdjax.disable_jit():
        expected = gradient(*args)
    for got, want in zip(amdjax.jit(gradient)(*args), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_one_array_for_queries_keys_and_values():
    x = jnp.asarray(normal(B, T, N, H))
    gradient = amdjax.grad(lambda x: (plain(x, x, x) ** 2).sum())
    assert kernels(gradient, x) == (1, 1)
    with amdjax.disable_jit():
        expected = gradient(x)
    np.testing.assert_allclose(amdjax.jit(gradient)(x), expected, rtol=1e-4, atol=1e-4)


def test_heads_that_share_keys():
    """Grouped in the product, or repeated: keys are read as they are."""
    k, v = KEYS[:, :, :K], V[:, :, :K]

    def grouped(q, k, v):
        x = jnp.einsum("btkgh,bskh->bkgts", q.reshape(B, T, K, G, H), k)
        return jnp.einsum("bkgts,bskd->btkgd", nn.softmax(x), v).reshape(B, T, N, D)

    def repeated(q, k, v):
        return plain(q, jnp.repeat(k, G, 2), jnp.repeat(v, G, 2))

    expected = plain(Q, np.repeat(k, G, 2), np.repeat(v, G, 2))
    for f in (grouped, repeated):
        text = amdjax.jit(f).lower(Q, k, v).compile().as_text("schedule")
        assert "attention of" in text and f"{G} heads to one of keys" in text
        np.testing.assert_allclose(amdjax.jit(f)(Q, k, v), expected, rtol=2e-5, atol=2e-5)
    gradient = amdjax.grad(lambda *a: (grouped(*a) ** 2).sum(), (0, 1, 2))
    assert kernels(gradient, Q, k, v) == (1, 1)
    with amdjax.disable_jit():
        wanted = gradient(*map(jnp.asarray, (Q, k, v)))
    for got, want in zip(amdjax.jit(gradient)(Q, k, v), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fill", [-1e9, float(np.finfo(np.float32).min), -np.inf])
def test_queries_without_keys(fill):
    """Equal weights where logits are a finite number everywhere, NaN where they are infinite."""
    mask = RNG.random((B, 1, T, S)) < 0.5
    mask[0, 0, 2] = False
    f = lambda q, k, v, mask: plain(q, k, v, lambda x: jnp.where(mask, x, fill))
    assert kernels(f, Q, KEYS, V, mask) == (1, 0)
    out = np.asarray(amdjax.jit(f)(Q, KEYS, V, mask))
    with amdjax.disable_jit():
        expected = f(*map(jnp.asarray, (Q, KEYS, V, mask)))
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-5)
    if np.isfinite(fill):
        np.testing.assert_allclose(out[0, 2], V[0].mean(0), rtol=1e-5, atol=1e-5)
    else:
        assert np.isnan(out[0, 2]).all() and np.isfinite(out[1]).all()


def _without_nan(w):
    return jnp.where(jnp.isnan(w), 0, w)


@pytest.mark.parametrize("kind", ["chosen", "added", "both"])
def test_weights_that_are_zero_where_they_are_nan(kind):
    """As exporters write boolean masks: rows of no keys give zeros, in place of NaN."""
    mask = RNG.random((B, 1, T, S)) < 0.5
    mask[0, 0, 2], mask[1, 0, 3] = False, True
    bias = normal(B, N, T, S)
    bias[1, 0, 3, 1], bias[1, 1, 3, 1] = np.nan, np.inf
    logits = {
        "chosen": lambda x: jnp.where(mask, x, -np.inf),
        "added": lambda x: x + jnp.where(mask, 0, np.full(1, -np.inf, np.float32)),
        "both": lambda x: jnp.where(mask, x + bias, -np.inf),
    }[kind]  # fmt: skip
    f = lambda q, k, v: plain(q, k, v, logits, _without_nan)
    assert kernels(f, Q, KEYS, V) == (1, 0)
    out = np.asarray(amdjax.jit(f)(Q, KEYS, V))
    with amdjax.disable_jit():
        expected = f(*map(jnp.asarray, (Q, KEYS, V)))
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-5)
    assert not out[0, 2].any() and np.isfinite(out).all()


def test_gradients_of_such_weights():
    mask = RNG.random((B, 1, T, S)) < 0.5
    mask[..., 0] = True
    f = lambda q, k, v: plain(q, k, v, lambda x: jnp.where(mask, x, -np.inf), _without_nan)
    gradient = amdjax.grad(lambda *a: (f(*a) ** 2).sum(), (0, 1, 2))
    with amdjax.disable_jit():
        expected = gradient(*map(jnp.asarray, (Q, KEYS, V)))
    for got, want in zip(amdjax.jit(gradient)(Q, KEYS, V), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("read", [lambda n: n.sum(), lambda n: n])
def test_where_weights_are_nan_may_be_read(read):
    def f(q, k, v):
        w = nn.softmax(jnp.einsum("btnh,bsnh->bnts", q, k))
        return jnp.einsum("bnts,bsnd->btnd", _without_nan(w), v), read(jnp.isnan(w))

    assert kernels(f, Q, KEYS, V) == (0, 0)


def test_factors_of_operands_are_in_the_scale():
    """What is multiplied behind a transposition of heads makes no copy of queries and keys."""
    heads = lambda x: x.swapaxes(1, 2)

    def f(q, k, v):
        logits = (heads(q) * 0.5) @ (heads(k) / 4).swapaxes(2, 3)
        return heads(nn.softmax(logits) @ heads(v))

    compiled = amdjax.jit(f).lower(Q, KEYS, V).compile()
    text = compiled.as_text("schedule")
    assert "attention of" in text and "transpose" not in text and "mul" not in text
    np.testing.assert_allclose(
        compiled(Q, KEYS, V), plain(Q, KEYS, V, lambda x: x / 8), rtol=2e-5, atol=2e-5
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_operands(dtype):
    q, k, v = (jnp.asarray(x, dtype) for x in (Q, KEYS, V))

    def mixed(q, k, v):
        x = jnp.einsum("btnh,bsnh->bnts", q, k, preferred_element_type=np.float32)
        return jnp.einsum("bnts,bsnd->btnd", nn.softmax(x).astype(dtype), v)

    assert kernels(mixed, q, k, v) == (1, 0)
    out = amdjax.jit(mixed)(q, k, v)
    assert out.dtype == dtype
    wide = [np.asarray(x, np.float64) for x in (q, k, v)]
    w = softmax(np, np.einsum("btnh,bsnh->bnts", *wide[:2]))
    expected = np.einsum("bnts,bsnd->btnd", w, wide[2])
    np.testing.assert_allclose(np.asarray(out, np.float64), expected, atol=2e-2)


def test_wide_operands():
    with amdjax.enable_x64(True):
        q, k, v = (jnp.asarray(x, np.float64) for x in (Q, KEYS, V))
        f = amdjax.grad(lambda *a: (plain(*a, lambda x: 0.2 * x + 1) ** 2).sum(), (0, 1, 2))
        assert kernels(f, q, k, v) == (1, 1)
        with amdjax.disable_jit():
            expected = f(q, k, v)
        for got, want in zip(amdjax.jit(f)(q, k, v), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_recomputed_in_the_backward_pass():
    def loss(q, k, v):
        return amdjax.checkpoint(lambda q: plain(q, k, v) ** 2)(q).sum()

    gradient = amdjax.grad(loss, (0, 1, 2))
    assert kernels(gradient, Q, KEYS, V)[1] == 1
    expected = amdjax.grad(lambda *a: (plain(*a) ** 2).sum(), (0, 1, 2))
    with amdjax.disable_jit():
        wanted = expected(*map(jnp.asarray, (Q, KEYS, V)))
    for got, want in zip(amdjax.jit(gradient)(Q, KEYS, V), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_memory_is_linear():
    def bytes_of(n):
        shapes = [amdjax.ShapeDtypeStruct((1, n, 2, 16), np.float32)] * 3
        f = amdjax.grad(lambda *a: plain(*a).sum(), (0, 1, 2))
        return amdjax.jit(f).lower(*shapes).compile().memory_analysis().temp_size_in_bytes

    assert bytes_of(2048) <= 8.5 * bytes_of(256)


def _weights_too(q, k, v):
    w = nn.softmax(jnp.einsum("btnh,bsnh->bnts", q, k))
    return jnp.einsum("bnts,bsnd->btnd", w, v), w


def _logits_too(q, k, v):
    x = jnp.einsum("btnh,bsnh->bnts", q, k)
    return jnp.einsum("bnts,bsnd->btnd", nn.softmax(x), v), (x * x).sum()


@pytest.mark.parametrize(
    "f",
    [
        _weights_too,
        lambda q, k, v: jnp.einsum(
            "bnts,btnh->bsnh", nn.softmax(jnp.einsum("btnh,bsnh->bnts", q, k)), q
        ),
        lambda q, k, v: plain(q, k, v, lambda x: nn.softmax(x, -2)),
        lambda q, k, v: plain(q, k, v, of_weights=lambda w: w * w),
        lambda q, k, v: plain(q, k, v, of_weights=lambda w: w[..., ::-1]),
        lambda q, k, v: plain(q, k, v, of_weights=lambda w: jnp.where(w > 0.1, w, 0)),
        lambda q, k, v: plain(q, k, v, jnp.tanh),
        lambda q, k, v: plain(q, k, v, lambda x: -x),
        lambda q, k, v: plain(q, k, v, lambda x: jnp.where(x > 0, x, -1e4)),
        lambda q, k, v: plain(q, k, v[:1] + 0 * v),
        lambda q, k, v: jnp.einsum(
            "bnts,bsnd->btnd", nn.softmax(jnp.einsum("bnh,bsnh,btnh->bnts", q[:, 0], k, q)), v
        ),
    ],
)
def test_what_is_no_attention_stays(f):
    """Of what kernels are found, results are those of what is written."""
    with amdjax.disable_jit():
        expected = f(*map(jnp.asarray, (Q, KEYS, V)))
    found = amdjax.jit(f)(Q, KEYS, V)
    for got, want in zip(*map(amdjax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_what_is_read_elsewhere_stays():
    assert kernels(_weights_too, Q, KEYS, V) == (0, 0)
    assert kernels(lambda q, k, v: plain(q, k, v, of_weights=jnp.tanh), Q, KEYS, V) == (0, 0)
    assert kernels(lambda q, k, v: plain(q, k, v, lambda x: nn.softmax(x, -2)), Q, KEYS, V)[1] == 0
    second = amdjax.grad(lambda q: amdjax.grad(lambda q: plain(q, KEYS, V).sum())(q).sum())
    assert kernels(second, Q) == (0, 0)
