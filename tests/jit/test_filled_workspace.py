"""An operand that several products pack alike is packed once."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.jit.plan import plan_program
from amdjax.targets.cpu import CpuTarget

RNG = np.random.default_rng(0)
N, M, K, C = 256, 192, 3200, 1024
CPU = CpuTarget(vector_bits=512, threads=2)


def draw(*shape):
    return RNG.integers(-3, 4, shape).astype(np.float32)  # sums of these are exact


def packs(f, *args):
    """How often operands are packed on some machine, and the results on this one."""
    jitted = amdjax.jit(f)
    kernels = plan_program(jitted.trace(*args).jaxpr, CPU).kernels()
    return [k.name for k in kernels].count("pack"), jitted(*args)


def test_products_with_one_right_operand():
    a, b, w = draw(N, K), draw(M, K), draw(K, C)
    count, got = packs(lambda a, b, w: (a @ w, b @ w), a, b, w)
    assert count == 1
    for x, y in zip(got, (a @ w, b @ w), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "second",
    [lambda b, w: b[:, :C] @ w.T, lambda b, w: b @ (w + 1), lambda b, w: b @ w[::-1]],
    ids=["transposed", "other values", "reversed"],
)
def test_what_is_packed_otherwise_is_packed_again(second):
    a, b, w = draw(N, K), draw(M, K), draw(K, C)
    count, (x, y) = packs(lambda a, b, w: (a @ w, second(b, w)), a, b, w)
    assert count == 2
    np.testing.assert_array_equal(x, a @ w)
    np.testing.assert_array_equal(y, second(b, w))


def test_memory_does_not_grow():
    """What would be kept while much else is computed is packed again."""
    a, b, w = draw(N, K), draw(M, K), draw(K, C)

    def f(a, b, w):
        x = a @ w
        large = lax.sort(jnp.outer(x.ravel(), jnp.arange(8.0)), dimension=0)
        return large.sum(), (b + large[0, 0]) @ w

    count, (_, y) = packs(f, a, b, w)
    assert count == 2
    np.testing.assert_array_equal(y, b @ w)  # as the first column is zero


def test_branches_pack_for_themselves():
    """What one branch has packed another one lacks, and so does what follows."""
    a, b, w = draw(N, K), draw(M, K), draw(K, C)

    def f(p, a, b, w):
        x = lax.cond(p, lambda: a @ w, lambda: 2 * (a @ w))
        return x, b @ w

    for p in (True, False):
        count, (x, y) = packs(f, np.bool_(p), a, b, w)
        assert count == 3
        np.testing.assert_array_equal(x, (1 if p else 2) * (a @ w))
        np.testing.assert_array_equal(y, b @ w)


def test_loops():
    """Packed before the loop what it does not change, and at each step what it does."""
    a, b, w = draw(N, K), draw(M, K), draw(K, C)

    def f(a, b, w):
        def step(c, k):
            v = c + k
            return jnp.clip(c + 1, -5, 5), (a @ w, b @ w, a @ v, b @ v)

        return lax.scan(step, w, jnp.arange(3.0))[1]

    count, got = packs(f, a, b, w)
    assert count == 2
    c = w
    for i in range(3):
        for x, y in zip(got, (a @ w, b @ w, a @ (c + i), b @ (c + i)), strict=True):
            np.testing.assert_array_equal(x[i], y)
        c = np.clip(c + 1, -5, 5)
