"""Recurrent layers against NumPy loops."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import random, rnn
from amdjax.test_util import check_grads

KEY = random.key(0)
TIME, BATCH, N, M = 6, 3, 4, 5


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rnn_reference(w, x, h):
    h = np.tanh(x @ w[0] + w[2] + h @ w[1] + w[3])
    return h, h


def lstm_reference(w, x, state):
    h, c = state
    i, f, g, o = np.split(x @ w[0] + w[2] + h @ w[1] + w[3], 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return (h, c), h


def gru_reference(w, x, h):
    ir, iz, in_ = np.split(x @ w[0] + w[2], 3, -1)
    hr, hz, hn = np.split(h @ w[1] + w[3], 3, -1)
    r, z = sigmoid(ir + hr), sigmoid(iz + hz)
    h = (1 - z) * np.tanh(in_ + r * hn) + z * h
    return h, h


FORMS = {
    "rnn": (rnn.rnn, rnn_reference, 1),
    "lstm": (rnn.lstm, lstm_reference, 4),
    "gru": (rnn.gru, gru_reference, 3),
}
CELLS = {"rnn": rnn.rnn_cell, "lstm": rnn.lstm_cell, "gru": rnn.gru_cell}


def make(name, seed=0):
    rng = np.random.default_rng(seed)
    gates = FORMS[name][2]
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    weights = rnn.Weights(draw(N, gates * M), draw(M, gates * M), draw(gates * M), draw(gates * M))
    state = (draw(BATCH, M), draw(BATCH, M)) if name == "lstm" else draw(BATCH, M)
    return weights, draw(TIME, BATCH, N), state


def loop(name, weights, x, state, reverse=False):
    weights = [np.float64(w) for w in weights]
    outs = [None] * len(x)
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        state, outs[t] = FORMS[name][1](weights, x[t], state)
    return np.stack(outs), state


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_sequences(name, reverse):
    weights, x, state = make(name)
    expected, end = loop(name, weights, x, state, reverse)
    close = lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    f = amdjax.jit(FORMS[name][0], static_argnames=("reverse", "time_major"))
    y, final = f(weights, x, state, reverse=reverse)
    close(y, expected)
    amdjax.tree.map(close, final, end)
    y, final = f(weights, x.swapaxes(0, 1), state, reverse=reverse, time_major=False)
    close(y.swapaxes(0, 1), expected)
    single, _ = f(weights, x[:, 0], amdjax.tree.map(lambda s: s[0], state), reverse=reverse)
    close(single, expected[:, 0])


@pytest.mark.parametrize("name", FORMS)
def test_cells(name):
    weights, x, state = make(name)
    expected, _ = FORMS[name][1]([np.float64(w) for w in weights], x[0], state)
    amdjax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5),
        CELLS[name](weights, x[0], state),
        expected,
    )


@pytest.mark.parametrize("name", FORMS)
def test_gradients(name):
    with amdjax.enable_x64(True):
        wide = lambda tree: amdjax.tree.map(lambda a: jnp.asarray(a, jnp.float64) / 2, tree)
        weights, x, state = map(wide, make(name))
        f = lambda weights, x, state: FORMS[name][0](weights, x[:3], state)[0]
        check_grads(f, (weights, x, state), order=2, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cls", [rnn.LSTM, rnn.GRU, rnn.RNN])
def test_modules(cls):
    layer = cls(N, M, layers=3, rate=0.5, key=KEY)
    x = jnp.ones((TIME, BATCH, N))
    y, state = layer(x)
    assert y.shape == (TIME, BATCH, M) and len(state) == 3
    halves, middle = layer(x[:2])
    rest, end = layer(x[2:], middle)
    np.testing.assert_allclose(jnp.concatenate([halves, rest]), y, rtol=1e-5, atol=1e-6)
    amdjax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), end, state)
    noisy, _ = layer(x, key=KEY, train=True)
    assert (noisy != y).any()
    with pytest.raises(ValueError, match="key must be given"):
        layer(x, train=True)


def test_relu_and_no_bias():
    layer = rnn.RNN(N, M, activation="relu", use_bias=False, key=KEY)
    y, _ = layer(jnp.ones((TIME, BATCH, N)))
    assert (y >= 0).all() and layer.weights[0].input_bias is None


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_lengths(name, reverse):
    weights, x, state = make(name)
    lengths = np.array([4, 6, 0])
    beyond = np.arange(TIME)[:, None] >= lengths
    padded = np.where(beyond[..., None], np.float32(np.nan), x)
    f = lambda weights, x, state: FORMS[name][0](
        weights, x, state, lengths=lengths, reverse=reverse
    )
    y, final = amdjax.jit(f)(weights, padded, state)
    for b, n in enumerate(lengths):
        start = amdjax.tree.map(lambda s: s[b], state)
        expected, end = (
            loop(name, weights, x[:n, b], start, reverse) if n else (x[:0, b, :1], start)
        )
        np.testing.assert_allclose(
            y[:n, b], np.broadcast_to(expected, (n, M)), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_array_equal(y[n:, b], 0)
        check = lambda got, want: np.testing.assert_allclose(got[b], want, rtol=1e-4, atol=1e-5)
        amdjax.tree.map(check, final, end)
    loss = lambda *args: sum(jnp.sum(jnp.sin(a)) for a in amdjax.tree.leaves(f(*args)))
    slopes = amdjax.grad(loss, argnums=(0, 1, 2))(weights, padded, state)
    wanted = amdjax.grad(loss, argnums=(0, 1, 2))(weights, np.where(beyond[..., None], 0, x), state)
    close = lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    amdjax.tree.map(close, slopes, wanted)
    np.testing.assert_array_equal(slopes[1][beyond], 0)


def test_peepholes_and_projection():
    rng = np.random.default_rng(3)
    p, draw = 2, lambda *shape: np.float32(rng.standard_normal(shape) / 2)
    weights = rnn.Weights(
        draw(N, 4 * M), draw(p, 4 * M), draw(4 * M), draw(4 * M), draw(3 * M), draw(M, p)
    )
    w, x = [np.float64(a) for a in weights], draw(TIME, BATCH, N)
    h, c = draw(BATCH, p), draw(BATCH, M)
    y, end = rnn.lstm(weights, x, (h, c))
    holes = np.split(w[4], 3)
    for t in range(TIME):
        step = rnn.lstm_cell(weights, x[t], (np.float32(h), np.float32(c)))
        i, f, g, o = np.split(x[t] @ w[0] + w[2] + h @ w[1] + w[3], 4, -1)
        c, old = sigmoid(f + holes[1] * c) * c + sigmoid(i + holes[0] * c) * np.tanh(g), c
        h = (sigmoid(o + holes[2] * c) * np.tanh(c)) @ w[5]
        np.testing.assert_allclose(y[t], h, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(step[1], c, rtol=1e-4, atol=1e-5)
        assert np.abs(c - old).max() > 1e-3
    np.testing.assert_allclose(end[0], h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(end[1], c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FORMS)
def test_skip(name):
    weights, _, state = make(name)
    gates = FORMS[name][2]
    x = np.random.default_rng(1).standard_normal((TIME, BATCH, M)).astype(np.float32)
    y, _ = FORMS[name][0](weights._replace(input_kernel=None), x, state)
    same = weights._replace(input_kernel=np.tile(np.eye(M, dtype=np.float32), gates))
    np.testing.assert_allclose(y, FORMS[name][0](same, x, state)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cls", [rnn.LSTM, rnn.GRU, rnn.RNN])
def test_both_directions(cls):
    layer = cls(N, M, layers=2, bidirectional=True, time_major=False, key=KEY)
    rng, lengths = np.random.default_rng(0), np.array([6, 2, 4])
    x = rng.standard_normal((BATCH, TIME, N)).astype(np.float32)
    y, states = layer(x, lengths=lengths)
    assert y.shape == (BATCH, TIME, 2 * M) and len(states) == 4
    run = {rnn.LSTM: rnn.lstm, rnn.GRU: rnn.gru, rnn.RNN: rnn.rnn}[cls]
    for b, n in enumerate(lengths):  # each sequence alone, as long as it is
        alone = x[b, :n]
        for i in range(2):
            parts = [run(layer.weights[2 * i + d], alone, reverse=d == 1) for d in range(2)]
            alone = jnp.concatenate([part for part, _ in parts], axis=-1)
            for d, (_, end) in enumerate(parts):
                close = lambda got, want: np.testing.assert_allclose(
                    got[b], want, rtol=1e-5, atol=1e-6
                )
                amdjax.tree.map(close, states[2 * i + d], end)
        np.testing.assert_allclose(y[b, :n], alone, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(y[b, n:], 0)


@pytest.mark.parametrize(
    ("cls", "cell"), [(rnn.LSTM, rnn.LSTMCell), (rnn.GRU, rnn.GRUCell), (rnn.RNN, rnn.RNNCell)]
)
def test_cell_modules(cls, cell):
    step = cell(N, M, key=KEY)
    layer = cls(N, M, key=KEY).replace(weights=(step.weights,))
    x = random.normal(KEY, (3, BATCH, N))
    y, (end,) = layer(x)
    state = None
    for row, want in zip(x, y):
        state = step(row, state)
        got = state[0] if cls is rnn.LSTM else state
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    close = lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    amdjax.tree.map(close, state, end)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda w, x: rnn.lstm(w, x[..., :2]), ValueError, "input_kernel of shape"),
        (lambda w, x: rnn.gru(w, x), ValueError, "3 \\* m"),
        (lambda w, x: rnn.lstm(w, x[0, 0]), ValueError, "x must have shape"),
        (lambda w, x: rnn.lstm(w, x, x), TypeError, "state must be a pair"),
        (lambda w, x: rnn.lstm(w, x, (x[0], x[0])), ValueError, "state must have shape"),
        (lambda w, x: rnn.rnn(w, x, activation="gelu"), ValueError, "activation"),
        (lambda w, x: rnn.LSTM(N, M, layers=0, key=KEY), ValueError, "layers"),
        (lambda w, x: rnn.LSTM(N, M, rate=2.0, key=KEY), ValueError, "LSTM: rate"),
        (lambda w, x: rnn.GRU(N, M, peepholes=True, key=KEY), ValueError, "LSTM's alone"),
        (lambda w, x: rnn.RNN(N, M, input_mode="skip", key=KEY), ValueError, "be hidden_features"),
        (lambda w, x: rnn.RNN(N, M, input_mode="other", key=KEY), ValueError, "one of"),
        (lambda w, x: rnn.LSTM(N, M, projected_features=0, key=KEY), ValueError, "projected_"),
        (lambda w, x: rnn.LSTM(N, M, reverse=True, bidirectional=True, key=KEY), ValueError, "rev"),
        (lambda w, x: rnn.lstm(w, x, lengths=jnp.ones(3)), TypeError, "integers"),
        (lambda w, x: rnn.lstm(w, x, lengths=jnp.array([3])), ValueError, "lengths must have"),
        (lambda w, x: rnn.lstm(w._replace(input_bias=w[0]), x), ValueError, "input_bias of shape"),
        (lambda w, x: rnn.lstm(w._replace(input_kernel=None), x), ValueError, "no input_kernel"),
        (lambda w, x: rnn.lstm_cell(w, x[0], x[0, :, 0]), TypeError, "must be a pair"),
        (lambda w, x: rnn.LSTM(N, M, key=KEY)(x, ()), ValueError, "state must hold one entry"),
    ],
)
def test_bad_arguments_are_named(call, error, words):
    weights, x, _ = make("lstm")
    with pytest.raises(error, match=words):
        call(weights, x)
