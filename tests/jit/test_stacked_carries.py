"""Values that a scan carries and stacks lie where they are stacked."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, lax
from amdjax.core.config import config
from tests.support.jit_helpers import loop_part, opcodes


@pytest.fixture(autouse=True)
def _checked(checked):
    assert config.check


STACKED = ["before", "after", "before after", "after before", "before before", "after after after"]
RNG = np.random.default_rng(0)
START = RNG.standard_normal(37).astype(np.float32)


def steps(length: int) -> np.ndarray:
    return RNG.standard_normal((length, 37)).astype(np.float32)


def stacked(c, xs, names: str, reverse: bool):
    """A carried value that changes, and what is stacked of it."""

    def step(c, x):
        made = c[::-1] * 0.5 + x
        return made, tuple(c if name == "before" else made for name in names.split())

    return lax.scan(step, c, xs, reverse=reverse)


def expected(c, xs, names: str, reverse: bool):
    ys = [np.zeros_like(xs) for _ in names.split()]
    for i in reversed(range(len(xs))) if reverse else range(len(xs)):
        made = c[::-1] * np.float32(0.5) + xs[i]
        for y, name in zip(ys, names.split()):
            y[i] = c if name == "before" else made
        c = made
    return c, tuple(ys)


def assert_same(got, want) -> None:
    got, want = amdjax.tree.leaves(got), amdjax.tree.leaves(want)
    assert len(got) == len(want)
    for x, y in zip(got, want):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("names", STACKED)
@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_results(names, reverse, length):
    xs = steps(length)
    got = jit(lambda c, xs: stacked(c, xs, names, reverse))(START, xs)
    assert_same(got, expected(START, xs, names, reverse))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("names", STACKED)
@pytest.mark.parametrize("length", [1, 4])
def test_what_comes_after_overwrites_none_of_it(names, reverse, length):
    """Each stack is updated and computed with while the others and the last value are needed."""

    def after(xp, put, c, ys):
        products = [y @ weights for y in ys]
        updated = [put(y) for y in ys]
        scaled = [xp.exp(-y * y) for y in ys]
        return products, updated, scaled, [xp.flip(y, 0) + c for y in ys], c * 2, c

    def put(y):
        y = y.copy()
        y[0] = 7
        return y

    xs, weights = steps(length), RNG.standard_normal((37, 5)).astype(np.float32)
    put_ours = lambda y: y.at[0].set(7)
    run = jit(lambda c, xs: after(jnp, put_ours, *stacked(c, xs, names, reverse)))
    got = run(START, xs)
    assert_same(got, after(np, put, *expected(START, xs, names, reverse)))


@pytest.mark.parametrize("names", STACKED)
def test_inside_another_loop(names):
    """Each round of the outer loop begins with where the one before ended, and with a slice."""

    def f(c, starts, xs):
        def outer(c, start):
            c, ys = stacked(c, xs, names, False)
            d, zs = stacked(start, xs * 2, names, True)
            return c + d, (ys, [z.sum(0) for z in zs], d)

        return lax.scan(outer, c, starts)

    starts, xs, c, rows = steps(3), steps(4), START, []
    for start in starts:
        c, ys = expected(c, xs, names, False)
        d, zs = expected(start, xs * 2, names, True)
        rows.append((ys, [z.sum(0) for z in zs], d))
        c = c + d
    want = c, amdjax.tree.map(lambda *parts: np.stack(parts), *rows)
    assert_same(jit(f)(START, starts, xs), want)


def test_values_that_are_carried_twice_or_change_places():
    def f(a, b, xs):
        def step(carry, x):
            a, b, c = carry
            made = a * 0.5 + x
            return (b, made, made), (a, b, c, made)

        return lax.scan(step, (a, b, b), xs)

    xs, a, b = steps(5), START, START[::-1].copy()
    c, rows = b, []
    for x in xs:
        made = a * np.float32(0.5) + x
        rows.append((a, b, c, made))
        a, b, c = b, made, made
    want = (a, b, c), tuple(np.stack(part) for part in zip(*rows))
    assert_same(jit(f)(START, START[::-1].copy(), xs), want)


def test_the_start_keeps_its_value():
    def f(c, xs):
        last, ys = stacked(c, xs, "after", False)
        other, zs = stacked(c, xs, "before", True)
        return last, ys, other, zs, c

    xs, start = steps(3), START.copy()
    last, ys = expected(START, xs, "after", False)
    other, zs = expected(START, xs, "before", True)
    assert_same(jit(f, donate_argnums=0)(jnp.asarray(start), xs), (last, ys, other, zs, START))
    np.testing.assert_array_equal(start, START)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("names", ["before", "after", "before after"])
def test_a_round_copies_nothing(names, reverse):
    """What is read by the rest of the program; a result of the program follows what is made."""

    def f(c, xs):
        _, ys = stacked(c, xs, names, reverse)
        return [jnp.cumsum(y, axis=0) for y in ys]

    assert "COPY" not in loop_part(opcodes(f, START, steps(9)))
    alone = lambda c, xs: stacked(c, xs, "after", reverse)
    assert loop_part(opcodes(alone, START, steps(9))) == ["CALL", "ADDRESS", "ADD"]
