"""What a loop would read of another and can compute cheaply, it computes."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, rnn
from amdjax.core.config import disabled_passes
from amdjax.passes import prepare
from amdjax.passes.loop_residuals import recompute_in_loops
from amdjax.schedule.equations import cost_again

RNG = np.random.default_rng(0)
STEPS, ROWS, N = 5, 3, 8


def draw(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def loops(f, *args):
    """Arrays that the first loop stacks and that the second reads, before and after."""
    before = prepare(amdjax.make_jaxpr(f)(*args))
    found = []
    for closed in (before, recompute_in_loops(before, cost_again)):
        writer, reader = [e for e in closed.eqns if e.primitive.name == "scan"]
        p = reader.params
        ys = len(writer.outvars) - writer.params["num_carry"]
        found.append((ys, len(reader.invars) - p["num_consts"] - p["num_carry"]))
    return found


def check(f, *args, ulps=4):
    """Values as without the pass, and no more memory."""
    compiled = amdjax.jit(f).lower(*args).compile()
    with disabled_passes("recompute_in_loops"):
        plain = amdjax.jit(lambda *a: f(*a)).lower(*args).compile()
    for got, want in zip(compiled(*args), plain(*args), strict=True):
        scale = jnp.finfo(want.dtype).eps * np.abs(np.float64(want)).max()
        np.testing.assert_allclose(np.float64(got), np.float64(want), rtol=0, atol=ulps * scale)
    sizes = [c.memory_analysis().temp_size_in_bytes for c in (compiled, plain)]
    assert sizes[0] <= sizes[1]


#: Gates; values that a step stacks, and rows that its gradient reads, a cotangent among them.
CELLS = {"lstm": (4, 7, 7), "gru": (3, 5, 6), "rnn": (1, 2, 2)}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_gates_of_recurrent_layers(cell, reverse, monkeypatch):
    """Gates are kept, their slopes are not; a GRU keeps its candidate instead of two values."""
    gates, stacked, read = CELLS[cell]
    args = draw(STEPS, ROWS, N), draw(N, gates * N), draw(N, gates * N), draw(gates * N)

    def loss(x, w, u, b):
        return getattr(rnn, cell)(rnn.Weights(w, u, b, b), x, reverse=reverse)[0].sum()

    f = amdjax.grad(loss, argnums=(0, 1, 2, 3))
    _, (ys, xs) = loops(f, *args)
    assert (ys, xs) == (stacked, read)
    check(f, *args)


def pair(step, back, xs):
    """A loop over rows, and one over what it stacks, from the other end."""
    last, ys = lax.scan(step, jnp.ones(N), xs)
    return last, lax.scan(back, jnp.ones(N), ys, reverse=True)


def test_a_value_in_place_of_two():
    def step(c, x):
        s = jnp.exp(-c * c * x)
        return jnp.sin(s + x), (1 - s, s * 2)

    def back(c, ys):
        return jnp.cos(c + ys[0] * ys[1]), c

    f = lambda x: jnp.concatenate([y.ravel() for y in (*pair(step, back, x)[1], x)])[None]
    assert loops(f, draw(STEPS, N)) == [(2, 2), (1, 1)]
    check(f, draw(STEPS, N))


def test_what_is_read_elsewhere_stays():
    """It is in memory anyway, so that what follows from it need not be."""

    def step(c, x):
        s = jnp.tanh(c + x)
        return s, (s, s * s, s + 1)

    def back(c, ys):
        return jnp.cos(c + ys[0] + ys[1] * ys[2]), c

    def f(x):
        last, ys = lax.scan(step, jnp.ones(N), x)
        return *lax.scan(back, last, ys, reverse=True), ys[0], ys[2]

    before, after = loops(f, draw(STEPS, N))
    assert before == (3, 3) and after == (2, 2)
    check(f, draw(STEPS, N))


def test_rows_and_constants_of_the_writer():
    """What both loops can read is no reason to stack a third."""

    def f(x, w):
        step = lambda c, x: (jnp.sin(c + x), (x * w + 1, jnp.exp(c)))
        back = lambda c, ys: (jnp.cos(c + ys[0] * ys[1]), c)
        return pair(step, back, x)[1]

    before, after = loops(f, draw(STEPS, N), draw(N))
    assert before == (2, 2) and after == (1, 2)
    check(f, draw(STEPS, N), draw(N))


@pytest.mark.parametrize(
    "dear",
    [
        lambda c: jnp.exp(c),
        lambda c: c @ jnp.ones((N, N)),
        lambda c: c[::-1].cumsum(),
        lambda c: sum((c + k for k in range(9)), start=c),
    ],
    ids=["exp", "product", "sum", "long"],
)
def test_what_takes_longer_than_memory_is_stacked(dear, monkeypatch):
    def f(x):
        step = lambda c, x: (jnp.sin(c + x), (c, dear(c)))
        back = lambda c, ys: (jnp.cos(c + ys[0] * ys[1]), c)
        return pair(step, back, x)[1]

    before, after = loops(f, draw(STEPS, N))
    assert before == after
    check(f, draw(STEPS, N))


def test_a_carry_is_not_computed_from_its_other_values():
    """The value before a step does not follow from the one after it."""

    def f(x):
        step = lambda c, x: (c + x, (c, c + x))
        back = lambda c, ys: (jnp.cos(c + ys[0] * ys[1]), c)
        return pair(step, back, x)[1]

    x = np.arange(STEPS * N, dtype=np.float32).reshape(STEPS, N)
    assert loops(f, x)[1] == (1, 2)  # and the rows of x
    c = np.ones(N, np.float32)
    ys = [(c + x[:i].sum(0), c + x[: i + 1].sum(0)) for i in range(STEPS)]
    for before, after in reversed(ys):
        c = np.cos(c + before * after)
    np.testing.assert_allclose(amdjax.jit(f)(x)[0], c, rtol=0, atol=1e-4)


def test_saved_values_of_checkpoints():
    """A policy says what is kept; what follows from it cheaply need not be."""

    @amdjax.checkpoint
    def block(c, w):
        s = jax_sigmoid(c @ w)
        return s * jnp.tanh(s)

    jax_sigmoid = lambda x: 1 / (1 + jnp.exp(-x))

    def loss(c, w):
        return lax.scan(lambda c, w: (block(c, w), None), c, w)[0].sum()

    f = amdjax.grad(loss, argnums=(0, 1))
    args = draw(ROWS, N), draw(STEPS, N, N)
    before, after = loops(f, *args)
    assert after == before
    check(f, *args)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float64])
def test_dtypes(dtype, monkeypatch):
    with amdjax.enable_x64(True):
        w, x = jnp.asarray(draw(N, N), dtype), jnp.asarray(draw(STEPS, N), dtype)

        def loss(w, x):
            step = lambda h, x: (jnp.tanh(h @ w + x) * amdjax.nn.sigmoid(h), None)
            return lax.scan(step, jnp.zeros(N, dtype), x)[0].sum()

        f = amdjax.grad(loss, argnums=(0, 1))
        check(f, w, x)
