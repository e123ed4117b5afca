"""Loops over single numbers are one kernel."""

import numpy as np
import pytest
from jit_helpers import opcodes, stage

import amdjax.numpy as jnp
from amdjax import enable_x64, grad, jit, lax, vmap


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


def test_arrays_in_the_body_go_the_usual_way():
    f = lambda x: lax.fori_loop(0, 3, lambda i, c: c + 1, x)
    assert not one_kernel(f, np.zeros(3, np.float32))


def test_gradient_and_batch_of_a_scalar_loop():
    def f(x):
        return lax.fori_loop(0, 5, lambda i, c: c * x, 1.0)

    np.testing.assert_allclose(jit(grad(f))(2.0), 80.0)
    np.testing.assert_allclose(jit(vmap(f))(np.float32([1, 2, 3])), [1, 32, 243])
