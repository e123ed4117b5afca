"""Products of one operand are one launch on GPUs, and compute what they would one by one."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import nn

RNG = np.random.default_rng(0)
TARGETS = ("gfx942", "gfx1100")


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def qkv(x, a, b, c):
    return x @ a, x @ b, x @ c


def biased(x, a, b, c):
    return x @ a + a[0], x @ b + b[0], x @ c + c[0]


def gated(x, a, b, c):
    return nn.silu(x @ a) * (x @ b) @ c


def narrower(x, a, b, c):
    return x @ a, x @ b[:, :16], x @ c[:, :16]


def chained(x, a, b, c):
    y = x @ a
    return y, y @ b, y @ c


def of_other_rows(x, a, b, c):
    return x @ a, (x + 1) @ b, (x * 2) @ c


def gradients(x, a, b, c):
    return amdjax.grad(lambda ws: sum((y**2).sum() for y in qkv(x, *ws)))((a, b, c))


#: Launches of products, together and each by itself.
FUNCTIONS = {
    qkv: (1, 3), biased: (1, 3), narrower: (2, 3), chained: (2, 3), of_other_rows: (3, 3),
    gradients: (2, 6), gated: (3, 3),
}  # fmt: skip


def launches(f, args, target, off=""):
    options = {"disabled_passes": f"fuse_product_chains,{off}"}
    compiled = amdjax.jit(f).lower(*args).compile(target, compiler_options=options)
    plan = compiled.as_text("plan")
    return plan.count("CALL product")


def arguments(rows=5, n=48, dtype=np.float32):
    return [x.astype(dtype) for x in (normal(rows, n), normal(n, n), normal(n, n), normal(n, n))]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_launches(f, target):
    together, apart = FUNCTIONS[f]
    assert launches(f, arguments(), target) == together
    assert launches(f, arguments(), target, "run_together") == apart


@pytest.mark.devices
@pytest.mark.parametrize("rows", [1, 5, 70])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_results(rows, dtype):
    args = arguments(rows, dtype=dtype)
    for f in (qkv, biased, narrower, chained, gradients):
        got, want = amdjax.jit(f)(*args), jitted_apart(f)(*args)
        for x, y in zip(amdjax.tree.leaves(got), amdjax.tree.leaves(want), strict=True):
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
    x, a, b, c = (z.astype(np.float64) for z in args)
    tolerance = 2e-5 if dtype == np.float32 else 2e-2
    for got, want in zip(amdjax.jit(qkv)(*args), (x @ a, x @ b, x @ c), strict=True):
        np.testing.assert_allclose(
            np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance
        )


def jitted_apart(f):
    return amdjax.jit(f, compiler_options={"disabled_passes": "run_together"})


#: Rows, depth, and how wide the other operands are: one split along the depth, tiles cut at edges.
WIDTHS = (
    (1, 64, (256, 64, 64)), (16, 256, (512, 128)), (3, 1024, (200, 72)), (20, 66, (96, 64, 160)),
)  # fmt: skip


def of_widths(x, ws, bs):
    """Products of several widths, their epilogues alike; of one line, whose code may be one."""
    return [jnp.maximum(x @ w + b, 0) for w, b in zip(ws, bs)]


@pytest.mark.devices
@pytest.mark.parametrize("rows, depth, widths", WIDTHS)
@pytest.mark.parametrize(
    "dtype, turned", [(np.float32, 0), (np.float16, 0), (np.float16, 1), (np.int8, 0)]
)
def test_products_of_several_widths(rows, depth, widths, dtype, turned):
    """Of integers, whose sums are exact."""
    draw = lambda *shape: RNG.integers(-3, 4, shape).astype(dtype)
    x, bs = draw(rows, depth), [draw(n) for n in widths]
    ws = [draw(n, depth) if turned else draw(depth, n) for n in widths]
    f = lambda x, ws, bs: of_widths(x, [w.T if turned else w for w in ws], bs)
    for y, w, b in zip(amdjax.jit(f)(x, ws, bs), ws, bs, strict=True):
        wide = x.astype(np.float64) @ (w.T if turned else w).astype(np.float64)
        np.testing.assert_array_equal(np.asarray(y), np.maximum(wide.astype(dtype) + b, 0))


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("rows, depth, widths", WIDTHS[:2])
def test_several_widths_are_one_launch(target, rows, depth, widths):
    """Few programs, each told the width of its product; many are launches of their own."""
    args = normal(rows, depth), [normal(depth, n) for n in widths], [normal(n) for n in widths]
    assert launches(of_widths, args, target) == 1
    wide = normal(512, 64), [normal(64, n) for n in (1024, 512)], [normal(n) for n in (1024, 512)]
    assert launches(of_widths, wide, target) == 2


@pytest.mark.devices
def test_donated_operands():
    """None of them is written while another product reads it."""
    x, a, b, c = arguments(48)
    f = lambda x, a, b, c: (x @ a + x, x @ b + x, x @ c)
    want = [np.asarray(y) for y in f(x, a, b, c)]
    got = amdjax.jit(f, donate_argnums=0)(jnp.asarray(x), a, b, c)
    for y, z in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(y), z, rtol=2e-5, atol=2e-5)


@pytest.mark.devices
def test_in_a_loop():
    x, a, b, c = arguments(3)

    def f(x, a, b, c):
        def body(h, _):
            z, r, n = qkv(h, a, b, c)
            h = nn.sigmoid(z) * h + jnp.tanh(r) * 0.1 + nn.sigmoid(n)
            return h, h.sum(-1)

        return amdjax.lax.scan(body, x, None, length=4)

    got, want = amdjax.jit(f)(x, a, b, c), jitted_apart(f)(x, a, b, c)
    for y, z in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(y), np.asarray(z), rtol=1e-5, atol=1e-5)


def test_large_products_stay_apart():
    """One has programs enough for a GPU."""
    assert launches(qkv, arguments(2048, 512), "gfx942") == 3


def test_the_schedule_tells():
    text = amdjax.jit(qkv).lower(*arguments()).compile("gfx942").as_text("schedule")
    assert text.splitlines()[0] == "3 products in one launch:"
