"""Products of which a `scan` reads slices are made in the loop, where they are large."""

import re

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.passes import loop_slices, prepare
from amdjax.passes.loop_slices import slice_products_in_loops

RNG = np.random.default_rng(0)
STEPS, ROWS, N, M = 6, 40, 5, 7


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(loop_slices, "FROM_BYTES", 0)


def draw(*shape):
    return RNG.integers(-3, 4, shape).astype(np.float32)  # sums of these are exact


def outside(f, *args):
    """Shapes of the products that stand beside the loops."""
    closed = slice_products_in_loops(prepare(amdjax.make_jaxpr(f)(*args)))
    return [e.outvars[0].aval.shape for e in closed.eqns if e.primitive.name == "dot_general"]


def loop(z, reverse=False):
    step = lambda h, row: (jnp.clip(h + row, -50, 50), h * 2)
    return lax.scan(step, jnp.zeros(z.shape[1:]), z, reverse=reverse)


def in_numpy(z, reverse=False):
    h, out = np.zeros(z.shape[1:]), np.zeros(z.shape)
    for i in reversed(range(len(z))) if reverse else range(len(z)):
        out[i] = 2 * h
        h = np.clip(h + z[i], -50, 50)
    return h, out


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("biases", [0, 1, 2])
def test_values(biases, reverse):
    x, w, b = draw(STEPS, ROWS, N), draw(N, M), [draw(M) for _ in range(biases)]

    def f(x, w, *b):
        return loop(sum(b, x @ w), reverse)

    assert outside(f, x, w, *b) == []
    jitted = amdjax.jit(f)
    plan = jitted.lower(x, w, *b).compile().as_text("plan")
    assert re.search(r"^@.*CALL (product|direct)", plan, re.M)  # the first of each step
    got, want = jitted(x, w, *b), in_numpy(sum(b, x @ w), reverse)
    for g, e in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, e)


def test_two_products_of_one_loop():
    x, v, w = draw(STEPS, ROWS, N), draw(N, M), draw(N, M)

    def f(x, v, w):
        step = lambda h, rows: (h + rows[0] * rows[1] - rows[2][:, :1], h)
        return lax.scan(step, jnp.zeros((ROWS, M)), (x @ v, x @ w, x))[0]

    assert outside(f, x, v, w) == []
    want = ((x @ v) * (x @ w) - x[..., :1]).sum(0)
    np.testing.assert_array_equal(amdjax.jit(f)(x, v, w), want)


def test_in_a_loop_and_with_a_batch():
    x, w = draw(3, STEPS, ROWS, N), draw(N, M)
    f = lambda x, w: lax.map(lambda x: loop(x @ w)[0], x)
    want = np.stack([in_numpy(one @ w)[0] for one in x])
    np.testing.assert_array_equal(amdjax.jit(f)(x, w), want)
    g = amdjax.vmap(lambda x: loop(x @ w)[0])
    np.testing.assert_array_equal(amdjax.jit(g)(x), want)


def test_gradient():
    x, w = draw(STEPS, ROWS, N), draw(N, M)
    f = lambda x, w: jnp.sum(loop(x @ w)[1])
    got = amdjax.jit(amdjax.grad(f, argnums=(0, 1)))(x, w)
    want = amdjax.grad(f, argnums=(0, 1))(x, w)
    for g, e in zip(got, want, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-6)


def read_twice(x, w):
    z = x @ w
    return loop(z)[0] + z.sum(0)


def few_rows(x, w):
    return loop(x[:, :8] @ w)


def over_time(x, w):
    return loop(jnp.einsum("tbn,ts->sbn", x, jnp.ones((STEPS, STEPS))))


def other_bias_each_step(x, w):
    return loop(x @ w + x[:, :1, :1])


@pytest.mark.parametrize("f", [read_twice, few_rows, over_time, other_bias_each_step])
def test_others_stay(f):
    x, w = draw(STEPS, ROWS, N), draw(N, M)
    assert len(outside(f, x, w)) == 1
    got, want = amdjax.jit(f)(x, w), f(x, w)
    amdjax.tree.map(np.testing.assert_array_equal, got, want)


def test_small_products_stay(monkeypatch):
    monkeypatch.setattr(loop_slices, "FROM_BYTES", 4 << 20)
    x, w = draw(STEPS, ROWS, N), draw(N, M)
    assert len(outside(lambda x, w: loop(x @ w), x, w)) == 1
