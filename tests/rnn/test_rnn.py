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
        (lambda w, x: rnn.LSTM(N, M, key=KEY)(x, ()), ValueError, "state must hold one entry"),
    ],
)
def test_bad_arguments_are_named(call, error, words):
    weights, x, _ = make("lstm")
    with pytest.raises(error, match=words):
        call(weights, x)
