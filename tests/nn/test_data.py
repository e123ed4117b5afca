"""Batches: each example once, in an order that follows from the key; threads that end."""

import threading
import time

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn, random

KEY = random.key(0)


def data(n=10):
    return {"x": np.arange(2 * n, dtype=np.float32).reshape(n, 2), "y": jnp.arange(n)}


def threads():
    return [t for t in threading.enumerate() if t.name == "amdjax-batches"]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_in_order(prefetch, drop_remainder):
    found = list(nn.data.batches(data(), 4, drop_remainder=drop_remainder, prefetch=prefetch))
    assert [len(b["y"]) for b in found] == [4, 4] + [2] * (not drop_remainder)
    np.testing.assert_array_equal(
        np.concatenate([b["y"] for b in found]), np.arange(8 if drop_remainder else 10)
    )
    assert all(isinstance(x, amdjax.Array) for x in amdjax.tree.leaves(found))
    assert not threads()


def test_shuffled_by_key():
    run = lambda key: list(nn.data.batches(data(), 3, key=key))
    order = np.concatenate([b["y"] for b in run(KEY)])
    assert sorted(order) == list(range(10)) and (order != np.arange(10)).any()
    np.testing.assert_array_equal(order, random.permutation(KEY, 10))
    np.testing.assert_array_equal(np.concatenate([b["x"] for b in run(KEY)]), data()["x"][order])
    again = np.concatenate([b["y"] for b in run(random.key(1))])
    assert (again != order).any()


def test_less_than_a_batch():
    assert [b["y"].shape for b in nn.data.batches(data(3), 4)] == [(3,)]
    assert not list(nn.data.batches(data(3), 4, drop_remainder=True))
    assert not list(nn.data.batches(data(0), 4))
    assert [len(b["y"]) for b in nn.data.batches(data(8), 4)] == [4, 4]


def test_settings_are_those_of_the_caller():
    with amdjax.enable_x64(True):
        batch = next(nn.data.batches(np.arange(4.0), 2, prefetch=1))
    assert batch.dtype == np.float64
    assert next(nn.data.batches(np.arange(4.0), 2, prefetch=1)).dtype == np.float32


def test_batches_are_copies():
    x = np.zeros(4)
    batch = next(nn.data.batches(x, 4, prefetch=0))
    x[:] = 1
    assert not batch.any()


def test_a_loop_that_is_left_ends_the_thread():
    for _ in nn.data.batches(data(1000), 1, prefetch=2):
        assert threads()
        break
    deadline = time.monotonic() + 60
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not threads()


def test_errors_of_the_thread_arrive():
    class Broken(np.ndarray):
        def __getitem__(self, index):
            raise OSError("the disk is gone")

    broken = np.arange(4.0).view(Broken)
    made = map(lambda i: broken[i], range(3))
    with pytest.raises(OSError, match="disk is gone"):
        list(nn.data._prefetched(made, 2))
    assert not threads()


@pytest.mark.parametrize(
    ("arrays", "options", "error", "words"),
    [
        ({"x": np.zeros(3), "y": np.zeros(4)}, {}, ValueError, r"first axes of one size.*\['y'\]"),
        ({}, {}, ValueError, "no arrays"),
        ({"x": 3}, {}, TypeError, r"arrays\['x'\] must be an array"),
        (np.zeros(3), {"batch_size": 0}, ValueError, "batch_size"),
        (np.zeros(3), {"prefetch": -1}, ValueError, "prefetch"),
    ],
)
def test_refusals(arrays, options, error, words):
    with pytest.raises(error, match=words):
        nn.data.batches(arrays, **{"batch_size": 2, **options})


def test_gradients_of_parts_are_those_of_the_whole():
    model = nn.Sequential([nn.Dense(3, 4, key=KEY), nn.tanh, nn.Dense(4, 1, key=KEY)])
    batch = {"x": random.normal(KEY, (12, 3)), "y": jnp.ones((12, 1))}

    def loss(model, state, batch):
        return nn.mse(model(batch["x"]), batch["y"]), state + 1

    whole, grads = amdjax.value_and_grad(loss, has_aux=True)(model, jnp.int32(0), batch)
    run = amdjax.jit(nn.accumulate_gradients(loss, 4))
    (value, state), mean = run(model, jnp.int32(0), batch)
    assert state == 4
    np.testing.assert_allclose(value, whole[0], rtol=1e-6)
    assert amdjax.tree.structure(mean) == amdjax.tree.structure(grads)
    for a, b in zip(*map(amdjax.tree.leaves, (mean, grads))):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_state_and_keys_pass_from_part_to_part():
    model = nn.Sequential([nn.BatchNorm(3, momentum=0.5), nn.Dropout(0.5)])
    params, rest = nn.partition(model)
    x = random.normal(KEY, (8, 3))

    def loss(params, state, x):
        rest, key = state
        key, now = random.split(key)
        y, after = nn.apply(nn.combine(params, rest), x, key=now, train=True)
        return (y**2).mean(), (nn.partition(after)[1], key)

    (value, (rest_after, _)), _ = nn.accumulate_gradients(loss, 2)(params, (rest, KEY), x)
    state, values = (rest, KEY), []
    for part in (x[:4], x[4:]):
        one, state = loss(params, state, part)
        values.append(one)
    np.testing.assert_allclose(value, np.mean(values), rtol=1e-6)
    np.testing.assert_allclose(rest_after[0].mean, state[0][0].mean, rtol=1e-6)


def test_narrow_gradients_are_summed_wide():
    loss = lambda w, state, x: ((w * x).sum().astype(jnp.float32), state)
    x = jnp.concatenate([jnp.full(1, 256.0), jnp.full(255, 1.0)]).astype(jnp.bfloat16)
    _, grad = nn.accumulate_gradients(loss, 256)(jnp.bfloat16(1), None, x)
    assert grad.dtype == jnp.bfloat16 and grad == jnp.bfloat16(511 / 256)


def test_parts_must_be_equal():
    run = nn.accumulate_gradients(lambda w, s, b: (b["x"].sum() * w, s), 3)
    with pytest.raises(ValueError, match=r"divide the first axis of batch\['x'\]"):
        run(1.0, None, {"x": jnp.ones(4)})
    with pytest.raises(ValueError, match="positive integer, got 0"):
        nn.accumulate_gradients(lambda w, s, b: (w, s), 0)


@pytest.mark.parametrize(
    ("batch", "said"),
    [(None, "must hold arrays"), ((np.ones(4), 3.0), r"batch\[1\], of shape \(\)")],
)
def test_batches_that_have_no_parts_are_refused(batch, said):
    with pytest.raises(ValueError, match=f"accumulate_gradients: .*{said}"):
        nn.accumulate_gradients(lambda w, s, b: (w, s), 2)(1.0, None, batch)
