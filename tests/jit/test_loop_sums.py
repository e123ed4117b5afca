"""Sums that a `scan` never reads are made after it."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.passes import prepare

RNG = np.random.default_rng(0)
STEPS, ROWS, N, M = 7, 5, 11, 13


def draw(*shape):
    return RNG.integers(-3, 4, shape).astype(np.float32)  # sums of these are exact


def scans(f, *args):
    """The loops of a program, and how many products stand beside them."""
    eqns = prepare(amdjax.make_jaxpr(f)(*args)).eqns
    outside = [e.primitive.name for e in eqns].count("dot_general")
    return [e for e in eqns if e.primitive.name == "scan"], outside


def accumulate(term, reverse=False):
    def f(start, xs, ys):
        def step(total, xy):
            return total + term(*xy), xy[0].sum()

        return lax.scan(step, start, (xs, ys), reverse=reverse)

    return f


TERMS = {
    "plain": lambda x, y: x.T @ y,
    "transposed": lambda x, y: (y.T @ x).T,
    "contracted twice": lambda x, y: jnp.einsum("bi,bj->ij", x, y),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("term", TERMS)
def test_of_slices(term, reverse):
    args = draw(N, M), draw(STEPS, ROWS, N), draw(STEPS, ROWS, M)
    f = accumulate(TERMS[term], reverse)
    (loop,), outside = scans(f, *args)
    assert loop.params["num_carry"] == 0 and outside == 1
    total, sums = amdjax.jit(f)(*args)
    np.testing.assert_array_equal(total, args[0] + np.einsum("tbi,tbj->ij", *args[1:]))
    np.testing.assert_array_equal(sums, args[1].sum((1, 2)))


def test_batched_products():
    args = draw(ROWS, N, M), draw(STEPS, ROWS, 2, N), draw(STEPS, ROWS, 2, M)
    f = accumulate(lambda x, y: jnp.einsum("bki,bkj->bij", x, y))
    (loop,), outside = scans(f, *args)
    assert loop.params["num_carry"] == 0 and outside == 1
    want = args[0] + np.einsum("tbki,tbkj->bij", *args[1:])
    np.testing.assert_array_equal(amdjax.jit(f)(*args)[0], want)
    one = accumulate(TERMS["plain"])  # and a loop of which all is a batch
    batch = args[0], np.moveaxis(args[1], 1, 0), np.moveaxis(args[2], 1, 0)
    np.testing.assert_array_equal(amdjax.jit(amdjax.vmap(one))(*batch)[0], want)


@pytest.mark.parametrize("axes", [(0,), (0, 1)])
def test_sums_over_axes(axes):
    def f(start, xs):
        def step(total, x):
            y = x * x
            return total + y.sum(axes), y

        return lax.scan(step, start, xs)

    xs = draw(STEPS, ROWS, N)
    start = draw(*(xs**2).sum(0).sum(axes).shape)
    (loop,), _ = scans(f, start, xs)
    assert loop.params["num_carry"] == 0
    total, _ = amdjax.jit(f)(start, xs)
    np.testing.assert_array_equal(total, start + (xs**2).sum(0).sum(axes))


def test_sums_of_what_is_not_stacked_stay():
    step = lambda total, x: (total + (x * x).sum(0), x.sum())
    f = lambda start, xs: lax.scan(step, start, xs)
    start, xs = draw(N), draw(STEPS, ROWS, N)
    (loop,), _ = scans(f, start, xs)
    assert loop.params["num_carry"] == 1
    np.testing.assert_array_equal(amdjax.jit(f)(start, xs)[0], start + (xs**2).sum((0, 1)))


def test_several_sums_of_what_the_loop_makes():
    def f(x, w):
        def step(carry, _):
            h, a, b = carry
            g = jnp.clip(h @ w, -2, 2)
            return (g, a + h.T @ g, b + g.T @ g), (h, g)

        zeros = jnp.zeros((N, N))
        return lax.scan(step, (x, zeros, zeros), length=STEPS)[0]

    x, w = draw(ROWS, N), draw(N, N)
    (loop,), outside = scans(f, x, w)
    assert loop.params["num_carry"] == 1 and outside == 2
    h, a, b = np.float64(x), 0, 0
    for _ in range(STEPS):
        g = np.clip(h @ w, -2, 2)
        h, a, b = g, a + h.T @ g, b + g.T @ g
    for got, want in zip(amdjax.jit(f)(x, w), (h, a, b), strict=True):
        np.testing.assert_array_equal(got, want)


def read_in_the_loop(total, x, y):
    return total + x.T @ y, total.sum()


def doubled(total, x, y):
    return total + total + x.T @ y, x.sum()


def scaled(total, x, y):
    return 0.5 * total + x.T @ y, x.sum()


def returned_each_step(total, x, y):
    total = total + x.T @ y
    return total, total


def large_operands(total, x, y):
    """Stacking what this multiplies would take more memory than the loop does."""
    wide = jnp.tile(x, (9, 1)) * 2
    return total + wide.T @ jnp.tile(y, (9, 1)), x.sum()


@pytest.mark.parametrize(
    "step", [read_in_the_loop, doubled, scaled, returned_each_step, large_operands]
)
def test_others_stay(step):
    args = draw(N, M), draw(STEPS, ROWS, N), draw(STEPS, ROWS, M)
    f = lambda start, *xs: lax.scan(lambda c, x: step(c, *x), start, xs)
    (loop,), outside = scans(f, *args)
    assert loop.params["num_carry"] == 1 and outside == 0
    total = args[0]
    for x, y in zip(*args[1:], strict=True):
        total, _ = step(total, x, y)
    np.testing.assert_array_equal(amdjax.jit(f)(*args)[0], total)


def test_gradient_of_a_recurrence():
    def loss(w, x):
        return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), x[0], x)[0].sum()

    w, x = draw(N, N) / 10, draw(STEPS, ROWS, N)
    f = amdjax.grad(loss)
    loops, outside = scans(f, w, x)
    assert len(loops) == 2 and loops[1].params["num_carry"] == 1 and outside == 1
    h, states = x[0], []
    for row in x:
        states.append(h)
        h = np.tanh(h @ w + row)
        states[-1] = states[-1], h
    slope, back = np.zeros_like(w), np.ones_like(h)
    for before, after in reversed(states):
        back = back * (1 - after**2)
        slope += before.T @ back
        back = back @ w.T
    np.testing.assert_allclose(amdjax.jit(f)(w, x), slope, rtol=1e-4, atol=1e-5)
