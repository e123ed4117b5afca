"""Rotary positions, caches of keys and values, and attention between trained products."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, random
from amdjax.test_util import check_grads


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def turned(x, positions, base=10000.0, pairing="halves"):
    """The paper's complex form, one pair after the other."""
    half = x.shape[-1] // 2
    y = np.array(x, np.float64)
    for i in range(half):
        a, b = (i, half + i) if pairing == "halves" else (2 * i, 2 * i + 1)
        angle = np.asarray(positions, np.float64)[..., None] * base ** (-2 * i / (2 * half))
        z = (y[..., a] + 1j * y[..., b]) * np.exp(1j * angle)
        y[..., a], y[..., b] = z.real, z.imag
    return y


@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
class TestRope:
    def test_values(self, pairing):
        x = normal(2, 5, 3, 8)
        expected = turned(x, np.arange(5), pairing=pairing)
        np.testing.assert_allclose(nn.rope(x, pairing=pairing), expected, rtol=1e-5, atol=1e-6)

    def test_positions_of_rows_base_and_scaling(self, pairing):
        x, at = normal(2, 3, 2, 6), np.array([[0, 7, 100], [3, 3, 41]])
        y = nn.rope(x, at, base=500.0, scaling=4.0, pairing=pairing)
        np.testing.assert_allclose(y, turned(x, at / 4, 500.0, pairing), rtol=1e-5, atol=1e-5)

    def test_only_some_features(self, pairing):
        x = normal(4, 2, 6)
        y = nn.rope(x, features=4, pairing=pairing)
        np.testing.assert_allclose(y[..., :4], nn.rope(x[..., :4], pairing=pairing), rtol=1e-6)
        np.testing.assert_array_equal(y[..., 4:], x[..., 4:])

    def test_products_depend_on_distances(self, pairing):
        q, k = normal(1, 1, 8), normal(1, 1, 8, seed=1)
        at = lambda x, i: nn.rope(x, jnp.array([i]), pairing=pairing)
        product = lambda i, j: np.sum(at(q, i) * at(k, j))
        np.testing.assert_allclose(product(3, 1), product(12, 10), rtol=1e-4)

    def test_gradients_and_vmap(self, pairing):
        x = normal(2, 3, 2, 4)
        turn = lambda x: nn.rope(x, pairing=pairing)
        check_grads(turn, (x,), order=2, rtol=1e-2)
        np.testing.assert_allclose(amdjax.vmap(turn)(x), turn(x), rtol=1e-6)


def test_rope_of_narrow_floats_turns_in_float32():
    x = jnp.ones((3000, 1, 2), jnp.bfloat16)
    y = nn.rope(x)
    assert y.dtype == jnp.bfloat16
    expected = turned(np.ones((3000, 1, 2)), np.arange(3000))
    np.testing.assert_allclose(y.astype(np.float32), expected, atol=5e-3)


def caches(batch, size, heads, features):
    pages = -(-size // 4) * batch
    return {
        "fixed": nn.KVCache(batch, size, heads=heads, features=features),
        "paged": nn.PagedKVCache(batch, pages, 4, heads=heads, features=features),
    }


@pytest.mark.parametrize("kind", ["fixed", "paged"])
class TestCaches:
    def test_chunks_are_read_in_order(self, kind):
        cache, new = caches(2, 10, 3, 4)[kind], normal(2, 9, 3, 4)
        step = amdjax.jit(lambda cache, k: cache.update(k, 2 * k), donate_argnums=0)
        for first, last in ((0, 5), (5, 6), (6, 9)):
            cache = step(cache, new[:, first:last])
        keys, values = cache.read()
        np.testing.assert_array_equal(keys[:, :9], new)
        np.testing.assert_array_equal(values[:, :9], 2 * new)
        assert list(cache.lengths) == [9, 9] and nn.count_parameters(cache) == 0

    def test_rows_begin_where_they_are(self, kind):
        cache, new = caches(2, 8, 1, 2)[kind], normal(2, 3, 1, 2)
        cache = cache.update(new, new).replace(lengths=jnp.array([1, 3]))
        cache = cache.update(new[:, :1], new[:, :1])
        keys, _ = cache.read()
        np.testing.assert_array_equal(keys[0, :2], new[0, [0, 0]])
        np.testing.assert_array_equal(keys[1, :4], new[1, [0, 1, 2, 0]])
        cache = cache.update(-new, -new, jnp.array([0, 2]))
        np.testing.assert_array_equal(cache.read()[0][1, :5], np.concatenate([new[1, :2], -new[1]]))
        assert list(cache.lengths) == [3, 5]

    def test_decoding_is_the_full_attention(self, kind):
        """Prompts of two lengths, then one position after the other."""
        q, k, v = normal(2, 9, 4, 8), normal(2, 9, 2, 8, seed=1), normal(2, 9, 2, 8, seed=2)
        full = nn.dot_product_attention(q, k, v, is_causal=True)
        lengths, cache = np.array([3, 5]), caches(2, 12, 2, 8)[kind]
        y, cache = nn.cached_attention(q[:, :5], k[:, :5], v[:, :5], cache)
        np.testing.assert_allclose(y, full[:, :5], rtol=1e-4, atol=1e-5)
        cache = cache.replace(lengths=jnp.asarray(lengths))
        step = amdjax.jit(nn.cached_attention, donate_argnums=3)
        for i in range(4):
            rows = np.arange(2), lengths + i
            y, cache = step(*(x[rows][:, None] for x in (q, k, v)), cache)
            np.testing.assert_allclose(y[:, 0], full[rows], rtol=1e-4, atol=1e-5)

    def test_what_does_not_fit_is_told(self, kind):
        cache, new = caches(2, 4, 1, 2)[kind], normal(2, 3, 1, 2)
        cache = cache.update(new, new)
        if kind == "paged":
            cache = cache.replace(table=cache.table[:, :1])
        y, cache = nn.cached_attention(new[:, :1], new[:, :1], new[:, :1], cache)
        assert np.all(np.isfinite(y))
        cache = cache.replace(lengths=jnp.array([4, 2]))
        y, cache = nn.cached_attention(new[:, :1], new[:, :1], new[:, :1], cache)
        assert np.all(np.isnan(y[0])) and np.all(np.isfinite(y[1]))

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_a_sequence_that_is_not_finite_spoils_no_other(self, kind, bad):
        cache, new = caches(2, 12, 1, 2)[kind], normal(2, 3, 1, 2)
        alone, _ = nn.cached_attention(new, new, new, cache)
        spoiled = new.copy()
        spoiled[0] = bad
        y, cache = nn.cached_attention(new, spoiled, spoiled, cache)
        assert not np.any(np.isfinite(y[0]))
        np.testing.assert_array_equal(y[1], alone[1])
        if kind == "paged":  # its page goes to another sequence, which does not fill it
            y, _ = nn.cached_attention(new, new, new, cache.release(jnp.array([True, True])))
            np.testing.assert_array_equal(y, alone)


@pytest.mark.parametrize("kind", ["fixed", "paged"])
@pytest.mark.parametrize("count", [1, 3])
def test_room_of_a_cache_that_is_not_used_may_hold_anything(kind, count):
    cache, new = caches(2, 12, 2, 4)[kind], normal(2, count, 2, 4)
    filled = cache.replace(keys=cache.keys + np.nan, values=cache.values + np.nan)
    (expected, _), (y, _) = (nn.cached_attention(new, new, new, c) for c in (cache, filled))
    np.testing.assert_array_equal(y, expected)


def test_memory_of_a_donated_cache_is_used_again():
    cache, new = nn.KVCache(2, 64, heads=2, features=4), jnp.ones((2, 1, 2, 4))
    step = amdjax.jit(lambda cache, new: cache.update(new, new), donate_argnums=0)
    cache = step(cache, new)
    before = cache.keys.unsafe_buffer_pointer(), cache.values.unsafe_buffer_pointer()
    cache = step(cache, new)
    assert before == (cache.keys.unsafe_buffer_pointer(), cache.values.unsafe_buffer_pointer())


def test_pages_are_taken_and_given_back():
    cache, new = nn.PagedKVCache(3, 5, 2, heads=1, features=2), normal(3, 2, 1, 2)
    cache = cache.update(new, new)
    assert sorted(cache.table[:, 0]) == [0, 1, 2]
    cache = cache.release(jnp.array([False, True, False])).update(new, new)
    used = cache.table[cache.table >= 0]
    assert sorted(used) == [0, 1, 2, 3, 4]  # no page is anybody's twice
    np.testing.assert_array_equal(cache.read()[0][0, :4], np.concatenate([new[0], new[0]]))
    y, _ = nn.cached_attention(new[:, :1], new[:, :1], new[:, :1], cache)
    assert np.all(np.isnan(y))  # there is no page left


@pytest.mark.parametrize("pairing", [None, "halves", "interleaved"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_layer_against_numpy(kv_heads, pairing):
    layer = nn.MultiHeadAttention(16, 4, kv_heads=kv_heads, rope=pairing, key=random.key(0),
                                  bias_init=nn.initializers.normal(1.0))  # fmt: skip
    x = normal(2, 6, 16)
    heads = lambda dense: (np.asarray(x, np.float64) @ dense.kernel + dense.bias).reshape(
        2, 6, -1, 4
    )
    q, k, v = heads(layer.query), heads(layer.keys), heads(layer.values)
    if pairing:
        q, k = (turned(a, np.arange(6), pairing=pairing) for a in (q, k))
    k, v = (np.repeat(a, 4 // kv_heads, 2) for a in (k, v))
    logits = np.einsum("btnh,bsnh->bnts", q, k) / 2
    logits = np.where(np.tri(6, dtype=bool), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = np.einsum("bnts,bsnh->btnh", weights, v).reshape(2, 6, 16)
    expected = out @ layer.out.kernel + layer.out.bias
    np.testing.assert_allclose(layer(x, is_causal=True), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["fixed", "paged"])
@pytest.mark.parametrize("pairing", [None, "halves"])
def test_layer_decodes_as_it_reads(kind, pairing):
    layer = nn.MultiHeadAttention(16, 4, kv_heads=2, rope=pairing, key=random.key(0))
    x, cache = normal(2, 7, 16), caches(2, 8, 2, 4)[kind]
    full = layer(x, is_causal=True)
    y, cache = layer(x[:, :3], cache=cache)
    found = [y]
    for i in range(3, 7):
        y, cache = layer(x[:, i : i + 1], cache=cache)
        found.append(y)
    np.testing.assert_allclose(np.concatenate(found, 1), full, rtol=1e-4, atol=1e-5)


def test_layer_of_a_context_and_a_mask():
    layer = nn.MultiHeadAttention(8, 2, context_features=6, head_features=5, key=random.key(0))
    x, context = normal(2, 3, 8), normal(2, 7, 6)
    mask = np.arange(7) < np.array([4, 7])[:, None, None, None]
    y = layer(x, context, mask=mask)
    np.testing.assert_allclose(y[0], layer(x[:1], context[:1, :4])[0], rtol=1e-5, atol=1e-6)
    check_grads(lambda layer, x: layer(x, context, mask=mask), (layer, x), order=1, rtol=1e-2)


def test_layer_drops_weights_in_training(small):
    layer = nn.MultiHeadAttention(8, 2, kv_heads=1, rate=0.5, key=random.key(0))
    x = normal(2, 5, 8)
    still = layer(x, is_causal=True)
    kept = layer.replace(rate=0.0)
    np.testing.assert_array_equal(still, kept(x, is_causal=True))
    train = lambda key: nn.apply(layer, x, is_causal=True, key=key, train=True)[0]
    many = amdjax.vmap(train)(random.split(random.key(1), small(4000, 500)))
    assert np.any(many[0] != still)
    np.testing.assert_allclose(many.mean(0), still, atol=small(0.06, 0.17))
    with pytest.raises(ValueError, match="key"):
        layer(x, train=True)


X = np.zeros((1, 2, 4), np.float32)
LAYER = nn.MultiHeadAttention(4, 2, rope="halves", key=random.key(0))
DROPPING = LAYER.replace(rate=0.5)
CACHE = nn.KVCache(1, 4, heads=2, features=2)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: nn.MultiHeadAttention(5, 2, key=random.key(0)), "heads must divide"),
        (lambda: nn.MultiHeadAttention(8, 4, kv_heads=3, key=random.key(0)), "kv_heads"),
        (lambda: nn.MultiHeadAttention(6, 2, rope="halves", key=random.key(0)), "rope"),
        (lambda: LAYER(X[0]), "x must"),
        (lambda: LAYER.replace(rope=None)(X, positions=np.arange(2)), "those of rope"),
        (lambda: LAYER(X, X), "rope goes without context"),
        (lambda: LAYER(X, mask=np.ones((2, 2), bool), cache=CACHE), "cache goes without"),
        (lambda: LAYER(X, mask=np.full((2, 2), 2)), "mask must be boolean"),
        (lambda: nn.apply(DROPPING, X, mask=np.full((2, 2), 2), key=random.key(0), train=True),
         "mask must be boolean"),
        (lambda: nn.rope(X[0]), "x must"),
        (lambda: nn.rope(X, features=3), "features"),
        (lambda: nn.rope(X, pairing="thirds"), "pairing"),
        (lambda: nn.rope(X, np.zeros(3, int)), "positions"),
        (lambda: nn.KVCache(1, 0, heads=1, features=1), "size"),
        (lambda: CACHE.update(X, X), "key must"),
        (lambda: CACHE.update(X[..., None], X), "key must"),
        (lambda: CACHE.update(np.zeros((1, 1, 2, 2)), np.zeros((1, 2, 2, 2))), "value"),
        (lambda: CACHE.update(*[np.zeros((1, 1, 2, 2))] * 2, np.zeros(2, int)), "position"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
