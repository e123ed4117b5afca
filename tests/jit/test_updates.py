"""Updates in place in loops: an array that is read and written is copied only where it must be.

Bodies of loops read, update, rename and pass on two arrays in random order, also versions of them
that were updated since. They are compared with the same body step by step, each operation alone.
"""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax
import amdjax.numpy as jnp
from amdjax import lax

N = 7
STEPS = 4

_at = st.integers(0, N - 1)
_which = st.integers(0, 30)  # of the values so far, counted from the last one

operations = st.one_of(
    st.tuples(st.just("read"), _which, _at),
    st.tuples(st.just("set"), _which, _at),
    st.tuples(st.just("add"), _which, _at),
    st.tuples(st.just("slice"), _which, _at),
    st.tuples(st.just("rename"), _which, _at),
    st.tuples(st.just("cond"), _which, _at),
    st.tuples(st.just("inner"), _which, _at),
    st.tuples(st.just("sum"), _which, _at),
)


def pick(values, back):
    return values[-1 - back % len(values)]


def run_body(program, i, a, b):
    """One step; returns two arrays, not always the latest versions, and a number."""
    arrays, numbers = [a, b], [jnp.float32(1) + i]
    for name, back, at in program:
        x = pick(arrays, back)
        place = (at + i) % N
        if name == "read":
            numbers.append(x[place] * 0.5)
        elif name == "sum":
            numbers.append(x.sum() * 0.1)
        elif name == "set":
            arrays.append(x.at[place].set(pick(numbers, back)))
        elif name == "add":
            arrays.append(x.at[place].add(pick(numbers, at)))
        elif name == "slice":
            piece = lax.dynamic_slice(pick(arrays, at), (place,), (2,))
            arrays.append(lax.dynamic_update_slice(x, piece[::-1] + 1, (at,)))
        elif name == "rename":
            arrays.append(x.reshape(1, N).reshape(N))
        elif name == "cond":
            arrays.append(lax.cond(i % 2 == 0, lambda x: x, lambda x: x.at[0].set(3.0), x))
        elif name == "inner":
            step = lambda k, c: (c[0], c[1].at[k].set(c[0][k] + 1))
            arrays += lax.fori_loop(0, 2, step, (x, pick(arrays, at)))
    return arrays, numbers


FORMS = ("fori", "while", "scan")


def looped(form, body, a, b):
    """Three results: both arrays, and the numbers of all steps."""
    ys = jnp.zeros(STEPS)
    if form == "scan":
        step = lambda c, i: (lambda a, b, y: ((a, b), y))(*body(i, *c))
        (a, b), ys = lax.scan(step, (a, b), jnp.arange(STEPS))
        return a, b, ys

    def step(i, c):
        a, b, y = body(i, *c[:2])
        return a, b, c[2].at[i].set(y)

    if form == "fori":
        return lax.fori_loop(0, STEPS, step, (a, b, ys))
    carry = (jnp.int32(0), (a, b, ys))
    return lax.while_loop(lambda c: c[0] < STEPS, lambda c: (c[0] + 1, step(c[0], c[1])), carry)[1]


@pytest.mark.turns(3)
@settings(max_examples=60)
@given(st.lists(operations, min_size=1, max_size=7), _which, _which, _which, st.sampled_from(FORMS))
def test_random_bodies(program, first, second, number, form):
    def body(i, a, b):
        arrays, numbers = run_body(program, i, a, b)
        return pick(arrays, first), pick(arrays, second), pick(numbers, number)

    a, b = np.arange(N, dtype=np.float32), np.linspace(-1, 1, N, dtype=np.float32)
    found = amdjax.jit(lambda a, b: looped(form, body, a, b))(a, b)
    x, y, ys = jnp.asarray(a), jnp.asarray(b), []
    for i in range(STEPS):
        x, y, z = body(jnp.int32(i), x, y)
        ys.append(float(z))
    for got, want in zip(found, (x, y, np.array(ys, np.float32))):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# What must not be copied, by the instructions of the compiled program.

BIG = 1000
UPDATES = {
    "set from itself": lambda i, b: b.at[i].set(b[i] + 1),
    "set from a neighbor": lambda i, b: b.at[i + 1].set(b[i] + 1),
    "add": lambda i, b: b.at[i].add(b[i]),
    "slice": lambda i, b: lax.dynamic_update_slice(b, lax.dynamic_slice(b, (i,), (4,)) * 2, (i,)),
    "exchange": lambda i, b: b.at[i].set(b[i + 1]).at[i + 1].set(b[i]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", UPDATES)
def test_loops_that_update_an_array_copy_nothing(name, form):
    update = UPDATES[name]
    body = lambda i, a, b: (update(i, a), b, a[i])
    f = amdjax.jit(lambda a, b: looped(form, body, a, b))
    plan = f.lower(np.ones(BIG, np.float32), np.ones(2, np.float32)).compile().as_text("plan")
    lines = plan.splitlines()
    # One copy into the loop's memory, one out of it; only the counter has two places.
    assert sum("COPY" in line and line.endswith(f" {4 * BIG}") for line in lines) == 2
    assert sum("SWAP" in line for line in lines) <= 1


def test_an_old_version_that_is_returned_is_kept():
    f = amdjax.jit(
        lambda b: lax.fori_loop(0, 3, lambda i, c: (c[0].at[i].set(c[0][i] + 1), c[0]), (b, b))
    )
    new, old = f(np.zeros(4, np.float32))
    np.testing.assert_array_equal(new, [1, 1, 1, 0])
    np.testing.assert_array_equal(old, [1, 1, 0, 0])
