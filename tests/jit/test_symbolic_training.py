"""A transformer learns from sentences of every length by one trace and fewer programs."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, optim

WORDS, WIDTH, HEADS = 31, 16, 2
ONE = optim.adam(3e-3)


def started():
    rng = np.random.default_rng(0)
    sizes = {
        "words": (WORDS, WIDTH), "qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH),
        "up": (WIDTH, 2 * WIDTH), "down": (2 * WIDTH, WIDTH), "head": (WIDTH, WORDS),
    }  # fmt: skip
    return {k: jnp.asarray(rng.normal(0, 0.2, s), jnp.float32) for k, s in sizes.items()}


def loss(params, words, lengths):
    b, t = words.shape
    x = params["words"][words]
    qkv = (nn.standardize(x) @ params["qkv"]).reshape(b, t, 3, HEADS, WIDTH // HEADS)
    q, k, v = (qkv[:, :, i] for i in range(3))
    y = nn.dot_product_attention(
        q, k, v, is_causal=True, query_seq_lengths=lengths, key_value_seq_lengths=lengths
    )
    x = x + y.reshape(b, t, WIDTH) @ params["out"]
    x = x + nn.gelu(nn.standardize(x) @ params["up"]) @ params["down"]
    told = nn.log_softmax(nn.standardize(x) @ params["head"])[:, :-1]
    right = jnp.take_along_axis(told, words[:, 1:, None], 2)[..., 0]
    counted = jnp.arange(t - 1) < lengths[:, None] - 1
    return -jnp.where(counted, right, 0).sum() / counted.sum()


def step(params, state, words, lengths):
    value, grads = amdjax.value_and_grad(loss)(params, words, lengths)
    updates, state = ONE.update(grads, state, params)
    return optim.apply_updates(params, updates), state, value


@pytest.mark.turns(3)
def test_sentences_of_every_length():
    traces = []

    def traced(params, state, words, lengths):
        traces.append(words.shape)
        return step(params, state, words, lengths)

    fixed = amdjax.jit(step)
    learn = amdjax.jit(
        traced, symbolic={"words": "b, t", "lengths": "b"}, constraints=["t >= 3", "t <= 512"]
    )
    rng = np.random.default_rng(1)
    params = started()
    state = ONE.init(params)
    for i, t in enumerate([37, 512, 5, 64, 300, 17, 129, 3, 96, 33, 480, 11]):
        words = rng.integers(0, WORDS, (4, t)).astype(np.int32)
        lengths = rng.integers(2, t + 1, 4).astype(np.int32)
        after, later, value = learn(params, state, words, lengths)
        if i % 4 == 0:
            expected, _, right = fixed(params, state, words, lengths)
            np.testing.assert_allclose(value, right, rtol=1e-5)
            for name in params:
                np.testing.assert_allclose(after[name], expected[name], atol=2e-4, err_msg=name)
        params, state = after, later
    assert list(map(str, traces)) == ["(b, t)"]
    assert learn._programs.work.compiled <= 8, learn._programs.work
