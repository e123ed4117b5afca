"""Loops and branches: one native call each, and what their plans look like."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, lax
from amdjax.core.config import config
from amdjax.core.errors import JaxRuntimeError
from tests.support.jit_helpers import compiled, loop_part, opcodes


@pytest.fixture(autouse=True)
def _checked(checked):
    assert config.check


V = np.arange(6, dtype=np.float32) - 2


def runs_in_one_call(compiled_program):
    """No instruction of the plan calls Python."""
    return not compiled_program.executable.plan.hosts


def test_while_loop():
    def f(x):
        return lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + 1, x)

    want = V
    while want.sum() < 100:
        want = want * 2 + 1
    np.testing.assert_array_equal(jit(f)(V), want)
    assert {"UNLESS", "JUMP", "SWAP"} <= set(opcodes(f, V))
    assert runs_in_one_call(compiled(f, V))


def test_while_loop_that_does_not_start():
    def f(x):
        return lax.while_loop(lambda c: c.sum() < -100, lambda c: c * 2, x)

    np.testing.assert_array_equal(jit(f)(V), V)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_scan(length, reverse):
    def f(c, xs):
        return lax.scan(lambda c, x: (c * 0.5 + x, (c[::-1], x.sum())), c, xs, reverse=reverse)

    xs = np.random.default_rng(0).standard_normal((length, 6)).astype(np.float32)
    carry, (slices, sums) = jit(f)(V, xs)
    c, kept = V, {}
    for i in reversed(range(length)) if reverse else range(length):
        kept[i] = c[::-1]
        c = c * np.float32(0.5) + xs[i]
    np.testing.assert_allclose(carry, c, rtol=1e-6)
    assert slices.shape == (length, 6) and sums.shape == (length,)
    if length:
        np.testing.assert_allclose(slices, [kept[i] for i in range(length)], rtol=1e-6)
        np.testing.assert_allclose(sums, xs.sum(1), rtol=1e-5, atol=1e-6)


def test_a_scan_slices_and_stacks_nothing():
    def f(c, xs):
        return lax.scan(lambda c, x: (c + x[::-1], c * x), c, xs)

    names = opcodes(f, V, np.ones((50, 6), np.float32))
    assert loop_part(names) == ["CALL", "SWAP", "ADD"]


def test_scan_without_inputs_or_carry():
    ys = jit(lambda x: lax.scan(lambda c, _: (c, x * 2), None, None, length=3)[1])(V)
    np.testing.assert_array_equal(ys, np.stack([V * 2] * 3))
    xs = np.arange(12, dtype=np.float32).reshape(3, 4)
    _, ys = jit(lambda xs: lax.scan(lambda c, x: (None, x[::-1]), None, xs))(xs)
    np.testing.assert_array_equal(ys, xs[:, ::-1])


def test_nested_scans():
    def f(m):
        def outer(c, row):
            inner, ys = lax.scan(lambda d, x: (d + x * row.sum(), d), c, row)
            return inner, ys

        return lax.scan(outer, jnp.zeros(2), m)

    m = np.random.default_rng(1).standard_normal((3, 4, 2)).astype(np.float32)
    c, ys = np.zeros(2, np.float32), np.zeros((3, 4, 2), np.float32)
    for i in range(3):
        for j in range(4):
            ys[i, j] = c
            c = c + m[i, j] * m[i].sum()
    got_c, got = jit(f)(m)
    np.testing.assert_allclose(got_c, c, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got, ys, rtol=1e-5, atol=1e-5)
    assert opcodes(f, m).count("REPEAT") == 2


def test_while_inside_scan():
    def f(xs):
        def step(c, x):
            d = lax.while_loop(lambda s: s.sum() < 10, lambda s: s + 1, x)
            return c + d, d

        return lax.scan(step, jnp.zeros(3), xs)

    xs = np.arange(12, dtype=np.float32).reshape(4, 3) - 6
    c, ys = jit(f)(xs)
    want = []
    for x in xs:
        while x.sum() < 10:
            x = x + 1
        want.append(x)
    np.testing.assert_array_equal(ys, want)
    np.testing.assert_array_equal(c, np.sum(want, 0))


def test_cond_inside_scan():
    def f(xs):
        def step(c, x):
            return lax.cond(x.sum() > 0, lambda c, x: (c + x, x), lambda c, x: (c, -x[::-1]), c, x)

        return lax.scan(step, jnp.zeros(3), xs)

    xs = np.random.default_rng(2).standard_normal((8, 3)).astype(np.float32)
    c, ys = jit(f)(xs)
    positive = xs.sum(1) > 0
    np.testing.assert_allclose(c, xs[positive].sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ys, np.where(positive[:, None], xs, -xs[:, ::-1]))
    names = opcodes(f, xs)
    assert "SWITCH" in names[names.index("SET") : names.index("REPEAT")]


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_switch_clamps_its_index(index):
    branches = [lambda x: x + 1, lambda x: x[::-1], lambda x: x * x]
    got = jit(lambda i, x: lax.switch(i, branches, x))(index, V)
    np.testing.assert_array_equal(got, branches[min(max(index, 0), 2)](V))


def test_branches_that_return_operands_and_constants():
    table = np.array([5, 6, 7, 8, 9, 10], np.float32)
    f = jit(
        lambda p, x, y: lax.cond(p, lambda x, y: (x, y), lambda x, y: (y, jnp.array(table)), x, y)
    )
    a, b = f(True, V, V * 2)
    np.testing.assert_array_equal([a, b], [V, V * 2])
    a, b = f(False, V, V * 2)
    np.testing.assert_array_equal([a, b], [V * 2, table])


def test_only_the_chosen_branch_runs():
    calls = []

    def noisy(x):
        amdjax.debug.callback(lambda v: calls.append("a"), x)
        return x

    f = jit(lambda p, x: lax.cond(p, noisy, lambda x: x + 1, x))
    f(False, V)
    amdjax.effects_barrier() if hasattr(amdjax, "effects_barrier") else None
    assert calls == []
    np.testing.assert_array_equal(f(True, V), V)
    assert calls == ["a"]


def test_updates_in_a_loop_happen_in_place():
    def f(x):
        return lax.fori_loop(0, 100, lambda i, c: c.at[i].set(c.shape[0]), x)

    names = opcodes(f, np.zeros(1000, np.float32))
    assert "COPY" not in loop_part(names)


def test_several_updates_of_one_array_in_a_loop_happen_in_place():
    def f(x):
        def step(i, c):
            c = c.at[i].set(1.0).at[i + 1].add(2.0)
            return lax.dynamic_update_slice(c, jnp.full(3, 4.0), (i + 3,))

        return lax.fori_loop(0, 8, step, x)

    x = np.zeros(1000, np.float32)
    assert "COPY" not in loop_part(opcodes(f, x))
    want = x.copy()
    for i in range(8):
        want[i] = 1
        want[i + 1] += 2
        want[i + 3 : i + 6] = 4
    np.testing.assert_array_equal(jit(f)(x), want)


def test_an_array_that_is_returned_and_updated_is_copied():
    def f(c):
        return lax.scan(lambda c, i: (c.at[i].set(1.0), c), c, jnp.arange(4))

    last, before = jit(f)(np.zeros(4, np.float32))
    np.testing.assert_array_equal(last, np.ones(4))
    np.testing.assert_array_equal(before, np.tril(np.ones((4, 4)), -1))


def test_the_old_array_carried_beside_the_updated_one():
    def f(x):
        return lax.fori_loop(0, 4, lambda i, s: (s[0].at[i].set(1.0), s[0]), (x, x))

    new, old = jit(f)(np.zeros(4, np.float32))
    np.testing.assert_array_equal(new, [1, 1, 1, 1])
    np.testing.assert_array_equal(old, [1, 1, 1, 0])


def test_carries_that_change_places():
    def f(a, b, c):
        return lax.fori_loop(0, 5, lambda i, s: (s[1], s[2], s[0]), (a, b, c))

    got = jit(f)(V, V * 2, V * 3)
    for g, w in zip(got, (V * 3, V, V * 2), strict=True):
        np.testing.assert_array_equal(g, w)


def test_one_value_for_two_carries():
    def f(a):
        return lax.fori_loop(0, 3, lambda i, s: (s[0] + s[1], s[0] + s[1]), (a, a))

    for g in jit(f)(V):
        np.testing.assert_array_equal(g, V * 8)


def test_carries_passed_on_unchanged_cost_nothing():
    def f(a, b):
        return lax.fori_loop(0, 9, lambda i, s: (s[0], s[1] + s[0][::-1]), (a, b))

    a, b = jit(f)(V, V)
    np.testing.assert_array_equal(a, V)
    np.testing.assert_array_equal(b, V + 9 * V[::-1])
    assert loop_part(opcodes(f, V, V)).count("CALL") == 1


def test_the_argument_of_a_loop_is_not_changed():
    x = jnp.array(V)
    jit(lambda x: lax.fori_loop(0, 6, lambda i, c: c.at[i].set(9.0), x))(x)
    np.testing.assert_array_equal(x, V)


def test_large_constants_of_a_body_are_not_copied():
    table = jnp.arange(5000.0)

    def f(c, idx):
        return lax.scan(lambda c, i: (c + table[i], table[i] * c), c, idx)

    idx = np.array([3, 4999, 0], np.int32)
    c, ys = jit(f)(np.float32(1), idx)
    np.testing.assert_array_equal(c, 1 + 3 + 4999)
    np.testing.assert_array_equal(ys, [3, 4999 * 4, 0])


@pytest.mark.parametrize("n", [0, 1, 5])
def test_gradients_through_loops_of_any_length(n):
    def f(x):
        return lax.scan(lambda c, _: (jnp.sin(c) * x, c), x, None, length=n)[0].sum()

    def direct(x):
        c = x
        for _ in range(n):
            c = jnp.sin(c) * x
        return c.sum()

    np.testing.assert_allclose(jit(amdjax.grad(f))(V), amdjax.grad(direct)(V), rtol=2e-5, atol=1e-6)


def test_errors_of_callbacks_come_out_of_loops():
    def fail(x):
        raise KeyError("stop here")

    def f(x):
        def step(c, _):
            return c + amdjax.pure_callback(fail, amdjax.ShapeDtypeStruct((), "float32"), c), None

        return lax.scan(step, x, None, length=3)[0]

    with pytest.raises(JaxRuntimeError, match="KeyError: 'stop here'"):
        jit(f)(1.0)
    np.testing.assert_array_equal(jit(lambda x: x + 1)(1.0), 2.0)


def test_ordered_effects_keep_their_order():
    seen = []

    def f(x):
        def step(c, i):
            amdjax.debug.callback(lambda v: seen.append(int(v)), i, ordered=True)
            return c + 1, None

        return lax.scan(step, x, jnp.arange(5))[0]

    jit(f)(0.0)
    assert seen == [0, 1, 2, 3, 4]
