"""`nn.remat` and `nn.scan_layers` compute what plain calls do, with state, keys and gradients."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, random

pytestmark = pytest.mark.cpu_only("what is traced is the same for all devices")
KEY = random.key(0)
X = random.normal(KEY, (8, 3))


def block(key):
    return nn.Sequential([nn.Dense(3, 3, key=key), nn.BatchNorm(3), nn.tanh])


def noisy(key):
    return nn.Sequential([*block(key).layers, nn.Dropout(0.5)])


class Remat(nn.Module):
    inner: list
    plain: bool = nn.static(default=False)

    def __call__(self, x):
        for layer in self.inner:
            x = layer(x) if self.plain else nn.remat(layer, x)
        return x


class Stack(nn.Module):
    layers: nn.Module

    def __call__(self, x):
        return nn.scan_layers(self.layers, x)


def assert_close(a, b):
    for x, y in zip(*map(amdjax.tree.leaves, (a, b)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def loss(params, rest, key=None):
    y, after = nn.apply(nn.combine(params, rest), X, key=key, train=True)
    return (y**2).sum(), after


def test_remat_is_the_plain_call():
    model = Remat([block(KEY), block(random.key(1))])
    results = []
    for m in (model, model.replace(plain=True)):
        params, rest = nn.partition(m)
        results.append(amdjax.jit(amdjax.grad(loss, has_aux=True))(params, rest))
    assert_close(*results)
    assert_close(model(X), model.replace(plain=True)(X))
    assert results[0][1].inner[1][1].mean.any()


def test_remat_computes_again():
    params, rest = nn.partition(Remat([block(KEY)]))
    text = str(amdjax.make_jaxpr(amdjax.grad(lambda p: loss(p, rest)[0]))(params))
    assert "prevent_cse" in text and text.count("tanh") == 2


def test_remat_draws_keys_that_differ():
    model = Remat([nn.Dropout(0.5), nn.Dropout(0.5)])
    y = np.asarray(nn.apply(model, jnp.ones(10_000), key=KEY, train=True)[0])
    assert abs((y > 0).mean() - 0.25) < 0.02
    with pytest.raises(ValueError, match="Dropout: a key must be given"):
        nn.apply(model, X, train=True)


def test_scan_is_the_loop():
    layers = amdjax.vmap(block)(random.split(KEY, 4))
    params, rest = nn.partition(Stack(layers))
    grads, after = amdjax.jit(amdjax.grad(loss, has_aux=True))(params, rest)
    one = lambda i: amdjax.tree.map(lambda x: x[i], layers)
    split = nn.partition([one(i) for i in range(4)])
    plain = nn.Sequential(split[0]), nn.Sequential(split[1])
    expected, sequence = amdjax.grad(loss, has_aux=True)(*plain)
    for i in range(4):
        pick = lambda tree: amdjax.tree.map(lambda x: x[i], tree)
        assert_close(pick(grads.layers), expected[i])
        assert_close(pick(after.layers), sequence[i])
    assert_close(Stack(layers)(X), nn.Sequential([one(i) for i in range(4)])(X))


def test_scan_gives_each_layer_a_key():
    layers = amdjax.vmap(lambda _: nn.Lambda(nn.relu))(jnp.zeros(3))
    with pytest.raises(ValueError, match="leading axis of one size"):
        nn.scan_layers(layers, X)
    layers = amdjax.vmap(noisy)(random.split(KEY, 3))
    y, after = nn.apply(Stack(layers), X, key=KEY, train=True)
    keys = random.split(random.fold_in(KEY, 0), 3)
    x = X
    for i in range(3):
        layer = amdjax.tree.map(lambda leaf: leaf[i], layers)
        x, layer = nn.apply(layer, x, key=keys[i], train=True)
        assert_close(amdjax.tree.map(lambda leaf: leaf[i], after.layers), layer)
    assert_close(y, x)


def test_one_in_the_other():
    class Deep(nn.Module):
        block: nn.Module

        def __call__(self, x):
            return nn.remat(self.block, x)

    layers = amdjax.vmap(lambda key: Deep(noisy(key)))(random.split(KEY, 3))
    model = Remat([Stack(layers)])
    params, rest = nn.partition(model)
    grads, after = amdjax.jit(amdjax.grad(loss, has_aux=True))(params, rest, KEY)
    assert all(np.isfinite(g).all() for g in amdjax.tree.leaves(grads))
    means = after.inner[0].layers.block[1].mean
    assert means.shape == (3, 3) and (means != 0).all()
    assert nn.summary(model, X).flops > 3 * 2 * 8 * 9


def test_refusals():
    for lifted in (nn.remat, nn.scan_layers):
        with pytest.raises(TypeError, match="must be a module"):
            lifted(nn.relu, X)
    inner = block(KEY)
    with pytest.raises(ValueError, match="no part of the model"):
        nn.apply(nn.relu, X, method=lambda _, x: nn.remat(inner, x), train=True)
