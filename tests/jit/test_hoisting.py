"""What a loop's body computes of the loop's constants alone is computed once, before the loop."""

import re

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.kernels.products.contraction import Axis, Contraction, Sink, Source, choose_tile
from amdjax.kernels.products.cpu.blocking import blockings
from amdjax.targets.cpu import CpuTarget

RNG = np.random.default_rng(0)
ROWS, N = 40, 300
WIDE = 1024  # of matrices that any machine packs: they are large, their rows share cache sets


def draw(*shape, dtype=np.float32):
    return (RNG.standard_normal(shape) / N**0.5).astype(dtype)


def instructions(f, *args):
    """Names of the kernels in order, and where the loop begins."""
    text = amdjax.jit(f).lower(*args).compile().as_text("plan")
    calls = re.findall(r"^(?:@(\d+):)? *(?:CALL (\w+)|[A-Z]+)", text, re.M)
    names = [name for _, name in calls]
    return names, next(i for i, (label, _) in enumerate(calls) if label)


def scan(x, w, length=4):
    return lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, length=length)[0]


def fori(x, w):
    return lax.fori_loop(0, 4, lambda i, h: jnp.tanh(h @ w), x)


def unknown_count(x, w):
    step = lambda s: (jnp.tanh(s[0] @ w), s[1] + 1)
    return lax.while_loop(lambda s: s[1] < 4, step, (x, 0))[0]


def passed_on(x, w):
    step = lambda i, s: (jnp.tanh(s[0] @ s[1]), s[1])
    return lax.fori_loop(0, 4, step, (x, w))[0]


def transposed(x, w):
    return lax.fori_loop(0, 4, lambda i, h: jnp.tanh(h @ w.T.T), x)


def nested(x, w):
    return lax.fori_loop(0, 2, lambda i, h: fori_twice(h, w), x)


def fori_twice(x, w):
    return lax.fori_loop(0, 2, lambda i, h: jnp.tanh(h @ w), x)


def in_branch(x, w):
    same, other = lambda h: jnp.tanh(h @ w), lambda h: h
    return lax.fori_loop(0, 8, lambda i, h: lax.cond(i % 2 == 0, same, other, h), x)


LOOPS = [scan, fori, unknown_count, passed_on, transposed, nested, in_branch]


@pytest.mark.parametrize("loop", LOOPS)
def test_values(loop):
    x, w = draw(ROWS, N), draw(N, N)
    want = np.float64(x)
    for _ in range(4):
        want = np.tanh(want @ w)
    np.testing.assert_allclose(amdjax.jit(loop)(x, w), want, rtol=1e-4, atol=1e-6)
    closed = amdjax.jit(lambda x: loop(x, w))(x)  # a constant of the program
    np.testing.assert_allclose(closed, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loop", [scan, fori, unknown_count, passed_on])
def test_packed_before_the_loop(loop):
    names, start = instructions(loop, draw(ROWS, WIDE), draw(WIDE, WIDE))
    assert names.count("pack") == 1 and names.index("pack") < start
    assert "product" in names[start:]


def test_packed_by_the_backward_loop_too():
    f = amdjax.grad(lambda x, w: scan(x, w).sum(), argnums=(0, 1))
    x, w = draw(ROWS, WIDE), draw(WIDE, WIDE)
    text = amdjax.jit(f).lower(x, w).compile().as_text("plan")
    loops = [m.start() for m in re.finditer(r"^@", text, re.M)]
    packs = [m.start() for m in re.finditer("CALL pack", text)]
    assert len(loops) == 2 and packs[0] < loops[0] < packs[1] < loops[1]


def test_what_the_loop_changes_is_packed_in_the_loop():
    def f(x, w):
        step = lambda i, s: (jnp.tanh(s[0] @ s[1]), s[1] * 0.5)
        return lax.fori_loop(0, 4, step, (x, w))[0]

    x, w = draw(ROWS, N), draw(N, N)
    names, start = instructions(f, x, w)
    assert "pack" not in names[:start]
    want = np.float64(x)
    for i in range(4):
        want = np.tanh(want @ (w * 0.5**i))
    np.testing.assert_allclose(amdjax.jit(f)(x, w), want, rtol=1e-4, atol=1e-6)


def test_two_products_with_one_matrix():
    """Steps that are alike but for whether their operand is fixed are lowered apart."""

    def step(i, state):
        y, z = state
        return jnp.tanh(y @ w), z.at[:ROWS].set(jnp.tanh(y @ z) @ w + z[:ROWS])

    f = lambda x, z: lax.fori_loop(0, 3, step, (x, z))
    x, w = draw(ROWS, N), draw(N, N)
    y, z = np.float64(x), np.float64(w)
    for _ in range(3):
        y, rows = np.tanh(y @ w), np.tanh(y @ z) @ w + z[:ROWS]
        z[:ROWS] = rows
    for got, want in zip(amdjax.jit(f)(x, w), (y, z), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "uint8", "float64", "complex64"])
def test_dtypes(dtype):
    with amdjax.enable_x64(dtype == "float64"):
        if "int" in dtype:
            x, w = RNG.integers(0, 100, (3, 64, 256)), RNG.integers(-100, 100, (256, 256))
            x, w = x.astype(dtype), w.astype(np.int8)
            dot = lambda x, w: lax.dot(x, w, preferred_element_type=np.int32)
        else:
            x, w = jnp.asarray(draw(3, 64, 256), dtype), jnp.asarray(draw(256, 256), dtype)
            dot = lambda x, w: x @ w
        f = amdjax.jit(lambda x, w: lax.map(lambda row: dot(row, w), x))
        got = f(x, w)
        for i in range(3):
            want = np.asarray(amdjax.jit(dot)(x[i], w))
            if "int" in dtype:
                np.testing.assert_array_equal(got[i], want)
                continue
            # Blocks of depth may differ, and so what is rounded.
            rounding = 2.0**-53 if dtype == "float64" else 2.0**-24
            scale = np.abs(np.asarray(x[i], complex)) @ np.abs(np.asarray(w, complex))
            last = 2.0**-7 * abs(want.astype(complex)) if dtype == "bfloat16" else 0
            error = abs(np.asarray(got[i]).astype(complex) - want.astype(complex))
            assert (error <= 2 * 256 * rounding * scale + last).all()


def test_a_batch_of_matrices():
    x, w = draw(2, ROWS, N), draw(2, N, N)
    got = amdjax.jit(amdjax.vmap(fori))(x, w)
    for i in range(2):
        np.testing.assert_allclose(got[i], fori(x[i], w[i]), rtol=1e-4, atol=1e-6)


def test_threads_keep_their_columns_in_their_caches():
    """Blocks of columns where all of a fixed matrix is too large for a thread's cache."""
    machine = CpuTarget(512, 2, 48 << 10, 2 << 20)
    x, w = Axis(64, 512), Axis(2048, 1)
    depth = Axis(512, 1), Axis(512, 2048)
    for fixed in (False, True):
        b = Source(None, "f32", 0, (), (w,), (depth[1],), fixed=fixed)
        a = Source(None, "f32", 0, (), (x,), (depth[0],))
        out = Sink(None, "f32", 0, (), (Axis(64, 2048),), (Axis(2048, 1),))
        problem = Contraction(a, b, out, "f32")
        cut, *_ = blockings(problem, machine, choose_tile(machine, 64, 2048, "f32"))
        assert cut.shared
        assert (cut.columns * cut.tile.columns == 1024) == fixed
