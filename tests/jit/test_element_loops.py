"""Loops and branches that each element runs by itself are part of a kernel."""

import numpy as np
import pytest

import amdjax.numpy as jnp
from amdjax import enable_x64, grad, jit, jvp, lax, make_jaxpr, vmap
from amdjax.schedule.element_loops import element_loop
from tests.support.jit_helpers import opcodes, stage

pytestmark = pytest.mark.devices


def one_kernel(fun, *args):
    names = opcodes(fun, *args)
    return names.count("CALL") == 1 and not {"REPEAT", "UNLESS", "SWITCH", "SWAP"} & set(names)


def test_while():
    def collatz(n):
        def step(s):
            n, k = s
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), k + 1

        return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]

    assert one_kernel(collatz, 27)
    assert jit(collatz)(27) == 111
    assert "while" in stage(collatz, 27, name="tiles")


def test_fori_with_floats():
    def f(x):
        return lax.fori_loop(0, 1000, lambda i, c: c * 0.999 + i, x)

    want = np.float32(2)
    for i in range(1000):
        want = np.float32(want * np.float32(0.999)) + np.float32(i)
    assert one_kernel(f, 2.0)
    np.testing.assert_allclose(jit(f)(2.0), want, rtol=1e-5)


@pytest.mark.parametrize("length", [0, 1, 2, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_over_numbers(length, reverse):
    def f(c, xs):
        return lax.scan(lambda c, x: (c * 0.5 + x, c), c, xs, reverse=reverse)

    xs = np.arange(1, length + 1, dtype=np.float32)
    c, ys = jit(f)(1.0, xs)
    want, kept = np.float32(1), np.zeros(length, np.float32)
    for i in reversed(range(length)) if reverse else range(length):
        kept[i] = want
        want = want * np.float32(0.5) + xs[i]
    np.testing.assert_array_equal(c, want)
    np.testing.assert_array_equal(ys, kept)
    if length > 1:
        assert one_kernel(f, 1.0, xs)


def test_nested_loops_and_branches():
    def f(n):
        def outer(i, total):
            inner = lax.while_loop(lambda s: s < 50, lambda s: s + i + 1, total)
            return lax.cond(inner % 2 == 0, lambda v: v // 2, lambda v: v - 1, inner)

        return lax.fori_loop(0, n, outer, 3)

    want = 3
    for i in range(6):
        while want < 50:
            want += i + 1
        want = want // 2 if want % 2 == 0 else want - 1
    assert one_kernel(f, 6)
    assert jit(f)(6) == want


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 5])
def test_switch(index):
    branches = [lambda x: x + 1, lambda x: x * 10, lambda x: -x]
    f = lambda i, x: lax.switch(i, branches, x)
    assert "SWITCH" not in opcodes(f, 0, 3.0)
    assert jit(f)(index, 3.0) == branches[min(max(index, 0), 2)](3.0)


def test_complex_carries():
    def f(z):
        return lax.fori_loop(0, 10, lambda i, w: w * w * 0.1 + z, z)

    z = np.complex64(0.3 - 0.2j)
    want = z
    for _ in range(10):
        want = want * want * np.float32(0.1) + z
    np.testing.assert_allclose(jit(f)(z), want, rtol=1e-5)


@pytest.mark.parametrize(
    "dtype", ["float64", "int64", "uint32", "bool", "float16", "bfloat16", "int8"]
)
def test_dtypes(dtype):
    with enable_x64(True):
        x = jnp.array(1).astype(dtype)
        got = jit(
            lambda x: lax.fori_loop(0, 3, lambda i, c: c | c if dtype == "bool" else c + c, x)
        )(x)
        assert got.dtype == x.dtype
        assert float(got) == (1 if dtype == "bool" else 8)


def test_a_value_that_never_changes_and_an_empty_loop():
    assert jit(lambda n: lax.fori_loop(0, n, lambda i, c: (c[0], c[1] + c[0]), (3, 0)))(4)[1] == 12
    assert jit(lambda n: lax.fori_loop(5, n, lambda i, c: c + 1, 7))(2) == 7


def test_gradient_and_batch_of_a_scalar_loop():
    def f(x):
        return lax.fori_loop(0, 5, lambda i, c: c * x, 1.0)

    np.testing.assert_allclose(jit(grad(f))(2.0), 80.0)
    np.testing.assert_allclose(jit(vmap(f))(np.float32([1, 2, 3])), [1, 32, 243])


# Arrays

X = np.linspace(-2, 2, 301).astype(np.float32).reshape(7, 43)
SERIES = np.random.default_rng(0).standard_normal((11, 7, 43)).astype(np.float32)


def kernels(fun, *args):
    """The contents of the kernels of a program whose plan has no jumps."""
    assert not {"REPEAT", "UNLESS", "SWITCH"} & set(opcodes(fun, *args))
    return stage(fun, *args, name="fusion").splitlines()


def test_a_loop_joins_its_neighbors():
    def newton(x):
        step = lambda _, y: y - (y * y * y - x) / (3 * y * y + 1)
        return 2 * lax.fori_loop(0, 30, step, jnp.sinh(x)) + 1

    assert len(kernels(newton, X)) == 1
    y = np.sinh(X.astype(np.float64))
    for _ in range(30):
        y -= (y**3 - X) / (3 * y * y + 1)
    np.testing.assert_allclose(jit(newton)(X), 2 * y + 1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (7, 43), (2, 1, 130)])
def test_a_scan_steps_through_longer_arrays(shape, reverse):
    xs = np.random.default_rng(1).standard_normal((11, *shape)).astype(np.float32)
    h0 = np.full(shape, 0.5, np.float32)

    def f(h, xs):
        return lax.scan(lambda h, x: (h * 0.5 + x, (h, h > x)), h, xs, reverse=reverse)

    assert len(kernels(f, h0, xs)) == 1
    want, hs, larger = h0, np.empty_like(xs), np.empty(xs.shape, bool)
    for t in range(11)[::-1] if reverse else range(11):
        hs[t], larger[t] = want, want > xs[t]
        want = want * np.float32(0.5) + xs[t]
    h, (ys, more) = jit(f)(h0, xs)
    np.testing.assert_allclose(h, want, rtol=1e-6)
    np.testing.assert_allclose(ys, hs, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(more, larger)


def test_numbers_that_are_read_have_loops_of_their_own():
    def f(x):
        return lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] * 1.5), (0, x))

    count, y = jit(f)(X)
    assert count == 10 and len(kernels(f, X)) == 2
    np.testing.assert_allclose(y, X * np.float32(1.5) ** 10, rtol=1e-5)


def test_steps_that_store_numbers_beside_arrays():
    def f(x, ts):
        return lax.scan(lambda c, t: ((c[0] + t, c[1] * t), (c[0], c[1])), (0.0, x), ts)

    ts = np.float32([1, 2, 3])
    (total, last), (totals, ys) = jit(f)(X, ts)
    assert total == 6 and last.shape == X.shape
    np.testing.assert_array_equal(totals, [0, 1, 3])
    np.testing.assert_array_equal(ys, [X, X, 2 * X])
    np.testing.assert_array_equal(last, 6 * X)


@pytest.mark.parametrize("which", [-1, 0, 1, 2, 3])
def test_branches_over_elements(which):
    branches = [lambda x, y: x + y, lambda x, y: x * y, lambda x, y: jnp.full_like(x, 3)]
    f = lambda i, x: 1 + lax.switch(i, branches, x, x * 2)
    assert len(kernels(f, which, X)) == 1
    want = 1 + np.asarray(branches[min(max(which, 0), 2)](X, X * 2))
    np.testing.assert_allclose(jit(f)(which, X), want, rtol=1e-6)


def test_loops_in_loops_and_branches_in_loops():
    def f(x):
        def outer(i, y):
            y = lax.cond(i % 2 == 0, lambda y: y + 1, lambda y: -y, y)
            return lax.fori_loop(0, i, lambda j, z: z * 0.5 + j, y)

        return lax.fori_loop(0, 6, outer, x)

    want = X
    for i in range(6):
        want = want + 1 if i % 2 == 0 else -want
        for j in range(i):
            want = want * np.float32(0.5) + np.float32(j)
    assert len(kernels(f, X)) == 1
    np.testing.assert_allclose(jit(f)(X), want, rtol=1e-5, atol=1e-6)


def test_a_loop_beside_a_reduction():
    f = lambda x: lax.fori_loop(0, 3, lambda i, c: c * c, x - x.mean()).sum()
    want = ((X - X.mean(dtype=np.float64)) ** 8).sum()
    np.testing.assert_allclose(jit(f)(X), want, rtol=1e-4)


@pytest.mark.parametrize(
    "body",
    [
        lambda c: c + c.sum(),
        lambda c: c[::-1],
        lambda c: jnp.cumsum(c, axis=0),
        lambda c: c + jnp.arange(43, dtype=jnp.float32)[::-1],
    ],
    ids=["sum", "reversed", "cumulative", "row"],
)
def test_elements_that_look_at_others_go_the_usual_way(body):
    f = lambda x: lax.fori_loop(0, 3, lambda i, c: body(c), x)
    want = X
    for _ in range(3):
        want = np.asarray(body(jnp.asarray(want)))
    np.testing.assert_allclose(jit(f)(X), want, rtol=1e-5, atol=1e-5)


@pytest.mark.cpu_only("on GPUs such a loop is one launch")
def test_many_arrays_go_the_usual_way():
    def f(xs):
        return lax.fori_loop(0, 3, lambda i, c: [x * 2 + i for x in c], xs)

    xs = [X + i for i in range(12)]
    assert "SWAP" in opcodes(f, xs)
    for x, y in zip(xs, jit(f)(xs), strict=True):
        np.testing.assert_allclose(y, 8 * x + 4, rtol=1e-6)


def test_gradients_of_loops_over_arrays():
    def f(h, xs):
        h, ys = lax.scan(lambda h, x: (jnp.tanh(h * 0.5 + x), h * x), h, xs)
        return (h * h).sum() + ys.sum()

    forward = jit(grad(f, (0, 1)))(X, SERIES)
    h, hs = X.astype(np.float64), []
    for x in SERIES:
        hs.append(h)
        h = np.tanh(h * 0.5 + x)
    g, dxs = 2 * h, []
    for t in reversed(range(len(SERIES))):
        after = np.tanh(hs[t] * 0.5 + SERIES[t])
        inner = g * (1 - after**2)
        dxs.insert(0, inner + hs[t])
        g = inner * 0.5 + SERIES[t]
    np.testing.assert_allclose(forward[0], g, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(forward[1], dxs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "int8", "bool"])
def test_dtypes_of_what_is_carried(dtype):
    x = jnp.asarray(np.arange(-8, 9) % 5, dtype)
    body = (lambda i, c: c ^ (i > 1)) if dtype == "bool" else (lambda i, c: c * c - c + 1)
    want = x
    for i in range(3):
        want = body(i, want)
    got = jit(lambda x: lax.fori_loop(0, 3, body, x))(x)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(
        np.asarray(got, np.complex64), np.asarray(want, np.complex64), rtol=0.02
    )


def test_an_input_overwritten_by_a_loop_is_read_first():
    f = jit(lambda h, xs: lax.scan(lambda h, x: (h + x, h * x), h, xs), donate_argnums=(0, 1))
    h, ys = f(jnp.asarray(X), jnp.asarray(SERIES))
    want, stacked = X, []
    for x in SERIES:
        stacked.append(want * x)
        want = want + x
    np.testing.assert_allclose(h, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ys, stacked, rtol=1e-5, atol=1e-6)


def collatz(n):
    """Steps until 1."""

    def step(s):
        n, k = s
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), k + 1

    return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]


@pytest.mark.parametrize("n", [1, 7, 64, 300])
def test_examples_of_a_while_end_by_themselves(n):
    wanted = []
    for start in range(1, n + 1):
        m, steps = start, 0
        while m != 1:
            m, steps = (m // 2 if m % 2 == 0 else 3 * m + 1), steps + 1
        wanted.append(steps)
    f, x = vmap(collatz), jnp.arange(1, n + 1)
    assert one_kernel(f, x)
    np.testing.assert_array_equal(np.asarray(jit(f)(x)), wanted)


def test_examples_beyond_the_last_do_not_go_on():
    """What a tile has instead of them, zeros, would never end."""
    f = vmap(lambda x: lax.while_loop(lambda c: c < 100, lambda c: c + c, x))
    x = jnp.arange(1, 38, dtype=jnp.float32)
    wanted = np.float32(x)
    while (wanted < 100).any():
        wanted = np.where(wanted < 100, 2 * wanted, wanted)
    assert one_kernel(f, x)
    np.testing.assert_array_equal(np.asarray(jit(f)(x)), wanted)


def test_a_while_with_constants_tangents_and_two_batches():
    """Newton's iteration: what is divided is read by each example."""
    root = lambda x, e: lax.while_loop(
        lambda c: abs(c * c - x) > e * x, lambda c: (c + x / c) / 2, x
    )
    x = np.linspace(0.5, 90, 45, dtype=np.float32)
    f = vmap(root, (0, None))
    assert one_kernel(f, x, 1e-5)
    np.testing.assert_allclose(np.asarray(jit(f)(x, 1e-5)), np.sqrt(np.float64(x)), rtol=1e-5)
    slope = vmap(lambda x: jvp(lambda x: root(x, 1e-6), (x,), (1.0,))[1])
    assert one_kernel(slope, x)
    np.testing.assert_allclose(np.asarray(jit(slope)(x)), 0.5 / np.sqrt(np.float64(x)), rtol=1e-4)
    both = vmap(f, (0, None))(x.reshape(5, 9), 1e-5)
    np.testing.assert_allclose(np.asarray(both), np.sqrt(np.float64(x)).reshape(5, 9), rtol=1e-5)


@pytest.mark.parametrize(
    "body, x",
    [
        (lambda go, x: (go & (x < 4), x + 1), [1, 2, 9, -3, 0]),  # changes those that have ended
        (lambda go, x: (x < 4, jnp.where(go, x + 1, x)), [1, 2, 9, -3, 0]),  # some begin again
        (lambda go, x: (go & (x < 4), jnp.where(go, x + x[0], x)), [1, 2, 9, -3, 0]),
        (lambda go, x: (go & (x < 4), jnp.where(go, x, x + 1)), [9, 9, 9, 9, 9]),
    ],
    ids=["all change", "begin again", "look at others", "others change"],
)
def test_a_while_whose_elements_need_others_goes_the_usual_way(body, x):
    go, x = np.array([True, False, True, True, False]), np.float32(x)
    f = lambda go, x: lax.while_loop(lambda s: jnp.any(s[0]), lambda s: body(*s), (go, x))
    (eqn,) = make_jaxpr(f)(go, x).jaxpr.eqns
    assert element_loop(eqn) is None
    flags, values = jnp.asarray(go), jnp.asarray(x)
    while np.asarray(flags).any():
        flags, values = body(flags, values)
    for got, want in zip(jit(f)(go, x), (flags, values), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
