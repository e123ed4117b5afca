"""`nn.apply`: state, keys and training without threading; what transforms inside of it may do."""

import warnings

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn, optim, random, rnn

pytestmark = pytest.mark.cpu_only("what is traced is the same for all devices")
KEY = random.key(0)
X = jnp.asarray(np.random.default_rng(0).standard_normal((8, 3)), jnp.float32)


def statistics(x, mean, variance, momentum=0.9):
    """Running statistics after a batch, by NumPy."""
    x = np.asarray(x, np.float64)
    mixed = lambda old, new: momentum * np.asarray(old, np.float64) + (1 - momentum) * new
    return mixed(mean, x.mean(0)), mixed(variance, x.var(0, ddof=1))


def assert_statistics(layer, expected):
    np.testing.assert_allclose(layer.mean, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.variance, expected[1], rtol=1e-5, atol=1e-6)


def network(rate=0.5):
    k1, k2 = random.split(KEY)
    return nn.Sequential(
        [nn.Dense(3, 4, key=k1), nn.BatchNorm(4), nn.Dropout(rate), nn.Dense(4, 2, key=k2)]
    )


class Parent(nn.Module):
    """Knows nothing of state, keys and training."""

    first: nn.BatchNorm
    blocks: dict

    def __call__(self, x):
        return self.blocks["b"][0](self.first(x))

    def twice(self, x):
        return self.first(self.first(x))


def parent():
    return Parent(nn.BatchNorm(3), {"b": [network()]})


def test_state_comes_from_any_depth():
    model = parent()
    y, after = nn.apply(model, X, key=KEY, train=True)
    assert y.shape == (8, 2) and not model.first.mean.any()
    assert_statistics(after.first, statistics(X, np.zeros(3), np.ones(3)))
    normal = (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-5)
    hidden = model.blocks["b"][0][0](normal)
    expected = statistics(hidden, np.zeros(4), np.ones(4))
    assert_statistics(after.blocks["b"][0][1], expected)
    assert after.blocks["b"][0][0].kernel is model.blocks["b"][0][0].kernel
    assert amdjax.tree.structure(after) == amdjax.tree.structure(model)
    same_y, same = nn.apply(model, X)
    assert same is model
    np.testing.assert_array_equal(same_y, model(X))


def test_a_layer_called_twice_goes_on_from_its_first_call():
    model = parent()
    _, after = nn.apply(model, X, train=True, method="twice")
    once = statistics(X, np.zeros(3), np.ones(3))
    normal = (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-5)
    assert_statistics(after.first, statistics(normal, *once))


def test_methods_functions_and_containers_of_modules():
    model = parent()
    by_name, _ = nn.apply(model, X, method="twice")
    by_function, _ = nn.apply(model, X, method=Parent.twice)
    np.testing.assert_array_equal(by_name, by_function)
    pair = {"a": nn.BatchNorm(3), "b": None}
    _, after = nn.apply(pair, X, train=True, method=lambda pair, x: pair["a"](x))
    assert after["a"].mean.any() and after["b"] is None
    with pytest.raises(TypeError, match="model must be callable"):
        nn.apply(pair, X)


def test_explicit_arguments_win():
    layer = nn.Dropout(0.5)
    wide = jnp.ones(1000)
    call = lambda layer, **kwargs: nn.apply(
        layer, wide, method=lambda layer, x: layer(x, **kwargs), train=True, key=KEY
    )[0]
    np.testing.assert_array_equal(call(layer, train=False), wide)
    np.testing.assert_array_equal(call(layer, key=random.key(7)),
                                  layer(wide, key=random.key(7), train=True))  # fmt: skip
    norm = nn.BatchNorm(3)
    method = lambda norm, x: norm(x, train=False)
    assert nn.apply(norm, X, method=method, train=True)[1] is norm


def test_keys_follow_from_the_key_alone():
    model = nn.Sequential([nn.Dropout(0.5), nn.Dropout(0.5)])
    run = lambda key: np.asarray(nn.apply(model, jnp.ones(10_000), key=key, train=True)[0])
    np.testing.assert_array_equal(run(KEY), run(KEY))
    assert (run(KEY) != run(random.key(1))).any()
    assert abs((run(KEY) > 0).mean() - 0.25) < 0.02  # the masks differ
    np.testing.assert_array_equal(run(random.PRNGKey(0)), run(KEY))
    compiled = amdjax.jit(lambda key: nn.apply(model, jnp.ones(10_000), key=key, train=True)[0])
    np.testing.assert_array_equal(compiled(KEY), run(KEY))


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match=r"Dropout \(model\.layers\[2\]\): a key must be given"):
        nn.apply(network(), X, train=True)
    with pytest.raises(ValueError, match=r"Dropout: a key must be given"):
        nn.Dropout(0.5)(X, train=True)
    with pytest.raises(ValueError, match=r"LSTM: a key must be given"):
        rnn.LSTM(3, 4, layers=2, rate=0.5, key=KEY)(X[:, None], train=True)
    with pytest.raises(RuntimeError, match=r"BatchNorm .*outside of nn\.apply"):
        nn.BatchNorm(3)(X, train=True)
    with pytest.raises(ValueError, match=r"BatchNorm: .*no part of the model"):
        nn.apply(nn.relu, X, method=lambda _, x: nn.BatchNorm(3)(x), train=True)


def test_train_is_that_of_the_innermost_apply():
    seen = []

    class Looks(nn.Module):
        def __call__(self):
            seen.append(nn.is_training())

    nested = lambda layer: (layer(), nn.apply(layer), nn.apply(layer, train=False), layer())
    nn.apply(Looks(), method=nested, train=True)
    assert seen == [True, True, False, True] and not nn.is_training()
    with pytest.raises(ZeroDivisionError):
        nn.apply(Looks(), method=lambda layer: 1 / 0, train=True)
    assert not nn.is_training()


class Counter(nn.Module):
    count: amdjax.Array = nn.state()
    scale: amdjax.Array
    size: int = nn.static(default=1)

    def __call__(self, **values):
        self.record(**values)


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"count": jnp.zeros(2)}, ValueError, r"Counter\.record: count must keep the form int32\["),
        ({"count": jnp.float32(1)}, ValueError, "count must keep the form"),
        ({"count": None}, ValueError, "count must keep the form"),
        ({"count": (jnp.int32(1),)}, ValueError, "count must keep the form"),
        ({"size": 2}, TypeError, "size is no field"),
        ({"other": 2}, TypeError, "other is no field"),
    ],
)
def test_records_that_do_not_fit(values, error, words):
    with pytest.raises(error, match=words):
        nn.apply(Counter(jnp.int32(0), jnp.float32(1)), **values)


def test_parameters_are_not_recorded():
    layer = Counter(jnp.int32(0), jnp.float32(1))
    _, after = nn.apply(layer, scale=jnp.float32(2), count=jnp.int32(5))
    assert after.scale == 1 and after.count == 5


def training_step(optimizer):
    @amdjax.jit
    def step(model, opt_state, x, labels, key):
        params, rest = nn.partition(model)

        def loss(params):
            logits, model = nn.apply(nn.combine(params, rest), x, key=key, train=True)
            return nn.softmax_cross_entropy(logits, labels), model

        (value, model), grads = amdjax.value_and_grad(loss, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optim.apply_updates(params, updates)
        return nn.combine(params, nn.partition(model)[1]), opt_state, value

    return step


def test_the_usual_loop_trains():
    x = random.normal(KEY, (64, 3))
    labels = (x[:, 0] > x[:, 1]).astype(jnp.int32)
    model, optimizer = network(rate=0.1), optim.adam(3e-2)
    opt_state, step = optimizer.init(nn.partition(model)[0]), training_step(optimizer)
    losses = []
    for i in range(60):
        model, opt_state, loss = step(model, opt_state, x, labels, random.fold_in(KEY, i))
        losses.append(float(loss))
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:5])
    assert model[1].mean.any() and all(map(np.all, map(np.isfinite, amdjax.tree.leaves(model))))


def test_gradients_are_those_of_the_batch_statistics():
    layer = nn.BatchNorm(3)
    by_apply = amdjax.grad(lambda x: (nn.apply(layer, x, train=True)[0] ** 3).sum())(X)
    plain = lambda x: ((x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5)) ** 3
    np.testing.assert_allclose(by_apply, amdjax.grad(lambda x: plain(x).sum())(X), atol=1e-4)


TRANSFORMED = {
    "jit": lambda f: amdjax.jit(f),
    "checkpoint": lambda f: amdjax.checkpoint(f),
    "vmap": lambda f: amdjax.vmap(f),
    "grad": lambda f: amdjax.grad(lambda x: f(x).sum()),
    "cond": lambda f: lambda x: lax.cond(x.sum() > 0, f, f, x),
    "scan": lambda f: lambda x: lax.scan(lambda x, _: (f(x), None), x, length=2)[0],
}


@pytest.mark.parametrize("outer", [lambda f: f, amdjax.jit], ids=["eager", "jitted"])
@pytest.mark.parametrize("layer", [nn.BatchNorm(3), nn.Dropout(0.5)], ids=["state", "key"])
@pytest.mark.parametrize("transform", TRANSFORMED)
def test_nothing_leaks_from_transforms_within(transform, layer, outer):
    call = lambda layer, x: TRANSFORMED[transform](lambda x: layer(x))(x)
    run = outer(
        lambda layer, x, train: (
            nn.apply(layer, x, method=call, key=KEY, train=True)
            if train is not None
            else nn.apply(layer, x, method=call)
        )
    )
    x = X[None] if transform == "vmap" else X
    with pytest.raises(RuntimeError, match=r"Call nn\.apply\(layer, \.\.\.\) inside"):
        run(layer, x, 1)
    run(layer, x, None)  # nothing is recorded or drawn


def test_training_is_a_part_of_what_is_compiled():
    layer = nn.Dropout(1.0)
    inner = amdjax.jit(lambda x: layer(x, key=KEY))
    run = lambda train: nn.apply(layer, X, method=lambda _, x: inner(x), train=train)[0]
    assert run(False).any() and not run(True).any() and run(False).any()


class Checkpointed(nn.Module):
    inner: nn.Sequential

    def __call__(self, x):
        run = amdjax.checkpoint(lambda inner, x, key: nn.apply(inner, x, key=key))
        y, inner = run(self.inner, x, self.next_key())
        self.record(inner=inner)
        return y


def test_checkpoint_carries_the_layer_out():
    key = random.fold_in(KEY, 0)  # the first that the outer apply hands out

    def loss(params, rest, model, key):
        y, after = nn.apply(nn.combine(params, rest), X, key=key, train=True)
        return (y**2).sum(), after

    results = []
    for model, model_key in ((Checkpointed(network()), KEY), (network(), key)):
        params, rest = nn.partition(model)
        grad = amdjax.jit(amdjax.grad(loss, has_aux=True), static_argnums=())
        grads, after = grad(params, rest, model, model_key)
        results.append(amdjax.tree.leaves((grads, after)))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


class Stack(nn.Module):
    layers: nn.Sequential

    def __call__(self, x):
        def body(x, layer):
            layer, key = layer
            x, layer = nn.apply(layer, x, key=key)
            return x, nn.partition(layer)[1]

        keys = random.split(self.next_key(), 3)
        x, state = lax.scan(body, x, (self.layers, keys))
        self.record(layers=state)
        return x


def test_scan_over_layers():
    make = lambda key: nn.Sequential([nn.Dense(3, 3, key=key), nn.BatchNorm(3), nn.Dropout(0.5)])
    stack = Stack(amdjax.vmap(make)(random.split(KEY, 3)))
    y, after = amdjax.jit(lambda m: nn.apply(m, X, key=KEY, train=True))(stack)
    x, keys = X, random.split(random.fold_in(KEY, 0), 3)
    for i in range(3):
        layer = amdjax.tree.map(lambda leaf: leaf[i], stack.layers)
        x, layer = nn.apply(layer, x, key=keys[i], train=True)
        np.testing.assert_allclose(after.layers[1].mean[i], layer[1].mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(after.layers[0].kernel[i], layer[0].kernel)
    np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-6)


def test_vmap_over_a_batch_with_an_axis_name():
    layer = nn.BatchNorm(3, axis_name="batch")
    run = lambda x: nn.apply(layer, x, train=True)
    y, after = amdjax.vmap(run, axis_name="batch", out_axes=(0, None))(X)
    whole, same = nn.apply(layer.replace(axis_name=None), X, train=True)
    np.testing.assert_allclose(y, whole, rtol=1e-5, atol=1e-6)
    assert_statistics(after, (same.mean, same.variance))


def test_recurrent_layers_in_sequential():
    k1, k2, k3 = random.split(KEY, 3)
    lstm, gru = rnn.LSTM(3, 5, layers=2, rate=0.5, key=k1), rnn.GRU(5, 4, key=k2)
    model = nn.Sequential([lstm, gru, nn.Dense(4, 2, key=k3)])
    x = random.normal(KEY, (7, 2, 3))
    np.testing.assert_allclose(model(x), model[2](gru(lstm(x)[0])[0]), rtol=1e-6)
    y, _ = nn.apply(model, x, key=KEY, train=True)
    assert y.shape == (7, 2, 2) and (y != model(x)).any()


def test_a_whole_training_in_one_scan():
    x = random.normal(KEY, (4, 8, 3))
    step = lambda model, x: (nn.apply(model, x, key=KEY, train=True)[1], None)
    scanned, _ = amdjax.jit(lambda model: lax.scan(step, model, x))(network())
    model = network()
    for batch in x:
        _, model = nn.apply(model, batch, key=KEY, train=True)
    assert_statistics(scanned[1], (model[1].mean, model[1].variance))


def test_an_ensemble_with_state():
    make = lambda key: nn.Sequential([nn.Dense(3, 4, key=key), nn.BatchNorm(4)])
    models = amdjax.vmap(make)(random.split(KEY, 5))
    y, after = amdjax.vmap(lambda m: nn.apply(m, X, train=True))(models)
    assert y.shape == (5, 8, 4)
    hidden = models[0].replace(kernel=models[0].kernel[3], bias=models[0].bias[3])(X)
    expected = statistics(hidden, np.zeros(4), np.ones(4))
    np.testing.assert_allclose(after[1].mean[3], expected[0], rtol=1e-5, atol=1e-6)


def test_a_layer_with_state_is_held_once():
    """Under `jit` it would be two, with statistics of their own."""
    bn = nn.BatchNorm(3)
    with pytest.raises(ValueError, match=r"model.layers\[0\] and model.layers\[1\]"):
        nn.apply(nn.Sequential([bn, bn]), X, train=True)
    nn.apply(nn.Sequential([bn, bn]), X)


@pytest.mark.parametrize("layer", [nn.BatchNorm, nn.InstanceNorm])
def test_momentum_is_a_share(layer):
    with pytest.raises(
        ValueError, match=rf"{layer.__name__}: momentum must be in \[0, 1\], got 2.0"
    ):
        layer(3, momentum=2.0)


def test_gradients_of_running_statistics_are_warned_of():
    """They are zero, and an optimizer would still decay them."""
    layer = nn.BatchNorm(3)
    loss = lambda layer, x: (nn.apply(layer, x, train=True)[0] ** 3).sum()
    for slope in (amdjax.grad(loss), amdjax.jit(amdjax.grad(loss)), amdjax.grad(amdjax.jit(loss))):
        with pytest.warns(UserWarning, match="BatchNorm: its mean and variance are differentiated"):
            slope(layer, X)
    parameters, rest = nn.partition(layer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        of_parameters = lambda p, x: loss(nn.combine(p, rest), x)
        for slope in (amdjax.grad(of_parameters, (0, 1)), amdjax.grad(amdjax.jit(of_parameters))):
            slope(parameters, X)
        amdjax.grad(lambda layer, x: (layer(x) ** 2).sum())(layer, X)  # of inference


def test_keys_that_are_none_are_named():
    layer = nn.Dense(3, 2, key=amdjax.random.key(0))
    for call, name in [
        (lambda: nn.apply(layer, X, key=3), "apply"),
        (lambda: nn.Dense(3, 2, key=None), "Dense"),
        (lambda: nn.Embedding(3, 2, key="a"), "Embedding"),
        (lambda: nn.MultiHeadAttention(4, 2, key=0), "MultiHeadAttention"),
        (lambda: rnn.LSTM(3, 4, key=None), "LSTM"),
        (lambda: rnn.GRUCell(3, 4, key=None), "GRUCell"),
        (lambda: optim.add_noise(1.0, 0.5, "a").init(X), "add_noise"),
        (lambda: next(iter(nn.data.batches(X, 2, key=0))), "batches"),
    ]:
        with pytest.raises(TypeError, match=f"^{name}: unexpected PRNG key type"):
            call()
