"""`experimental.rnn` against steps written out, for sequences of several lengths."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import grad, random
from amdjax.experimental import rnn

SIZES = {"input_size": 3, "hidden_size": 4, "num_layers": 2}


def written_out(x, h, c, params, lengths, reverse):
    """One layer and direction, one sequence after the other, in NumPy."""
    w_ih, w_hh, b_ih, b_hh = (np.asarray(p) for p in params)
    s = lambda v: 1 / (1 + np.exp(-v))
    y = np.zeros((*x.shape[:2], h.shape[-1]))
    h, c = np.array(h), np.array(c)
    for b, n in enumerate(lengths):
        for t in range(n)[:: -1 if reverse else 1]:
            i, f, g, o = np.split(w_ih @ x[b, t] + b_ih + w_hh @ h[b] + b_hh, 4)
            c[b] = s(f) * c[b] + s(i) * np.tanh(g)
            h[b] = s(o) * np.tanh(c[b])
            y[b, t] = h[b]
    return y, h, c


@pytest.mark.parametrize("bidirectional", [False, True])
def test_lstm(bidirectional):
    directions = 2 if bidirectional else 1
    weights = rnn.init_lstm_weight(random.key(0), **SIZES, bidirectional=bidirectional)
    assert weights.size == rnn.get_num_params_in_lstm(**SIZES, bidirectional=bidirectional)
    keys = random.split(random.key(1), 3)
    x = random.normal(keys[0], (3, 6, 3))
    h_0, c_0 = (random.normal(k, (2 * directions, 3, 4)) for k in keys[1:])
    lengths = jnp.array([6, 1, 4])
    run = lambda x, h, c, w: rnn.lstm(x, h, c, w, lengths, 3, 4, 2, 0.0, bidirectional)
    y, h_n, c_n = run(x, h_0, c_0, weights)
    params = rnn.unpack_lstm_weights(weights, **SIZES, bidirectional=bidirectional)
    want = np.asarray(x)
    for layer in range(2):
        outs = []
        for d in range(directions):
            n = layer * directions + d
            out, h, c = written_out(want, h_0[n], c_0[n], [p[n] for p in params], [6, 1, 4], d == 1)
            np.testing.assert_allclose(h_n[n], h, rtol=2e-5, atol=1e-6)
            np.testing.assert_allclose(c_n[n], c, rtol=2e-5, atol=1e-6)
            outs.append(out)
        want = np.concatenate(outs, -1)
    np.testing.assert_allclose(y, want, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(amdjax.jit(run)(x, h_0, c_0, weights)[0], y, rtol=1e-6, atol=1e-7)
    slope = grad(lambda w: run(x, h_0, c_0, w)[0].sum())(weights)
    step = 1e-2 * jnp.sign(slope)
    rise = run(x, h_0, c_0, weights + step)[0].sum() - run(x, h_0, c_0, weights - step)[0].sum()
    np.testing.assert_allclose(rise / 2e-2, jnp.abs(slope).sum(), rtol=2e-2)


def test_gates_change_places():
    weights = jnp.arange(float(rnn.get_num_params_in_lstm(1, 1, 1, False)))
    np.testing.assert_array_equal(
        rnn.swap_lstm_gates(weights, 1, 1, 1, False)[:8], [0, 1, 3, 2, 4, 5, 7, 6]
    )
    twice = rnn.swap_lstm_gates(rnn.swap_lstm_gates(weights, 1, 1, 1, False), 1, 1, 1, False)
    np.testing.assert_array_equal(twice, weights)


def test_refusals():
    weights, state = rnn.init_lstm_weight(random.key(0), 1, 1, 1, False), jnp.zeros((1, 1, 1))
    x = jnp.ones((1, 2, 1))
    with pytest.raises(NotImplementedError, match="int32"):
        rnn.lstm(x, state, state, weights, jnp.array([2.0]), 1, 1, 1, 0.0, False)
    with pytest.raises(NotImplementedError, match="Dropout"):
        rnn.lstm(x, state, state, weights, jnp.array([2]), 1, 1, 1, 0.5, False)
