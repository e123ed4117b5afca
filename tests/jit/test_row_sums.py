"""Sums over rows by the kernel that has the rows in registers."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import jit, nn
from amdjax.jit.plan import plan_program
from amdjax.targets import get

OFF = {"disabled_passes": "fuse_sums"}
TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")


def data(*shapes, dtype="float32"):
    r = np.random.default_rng(0)
    return [jnp.asarray(r.normal(size=s), dtype) for s in shapes]


def gradient(norm):
    """Of rows, of a factor and of an offset of each column."""
    return lambda x, g, b, ct: amdjax.vjp(norm, x, g, b)[1](ct)


def exact(x, g, ct):
    """Gradients of a layer norm, in float64."""
    x, g, ct = (np.float64(a) for a in (x, g, ct))
    centered = x - x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    y, outer = centered * inverse, tuple(range(x.ndim - 1))
    inner = ct * g
    mean = lambda a: a.mean(-1, keepdims=True)
    dx = inverse * (inner - mean(inner) - y * mean(inner * y))
    return dx, (ct * y).sum(outer), ct.sum(outer)


def launches(f, *args, target="gfx942"):
    return len(plan_program(jit(f).trace(*args).jaxpr, get(target)).kernels())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "shape, dtype",
    [((300, 130), "float32"), ((5, 64, 256), "bfloat16"), ((2500, 20), "float32")],
    ids=str,
)
def test_gradients_of_a_layer_norm(target, shape, dtype):
    """One launch, whose counters are as they were behind it."""
    x, ct = data(shape, shape, dtype=dtype)
    g, b = data(shape[-1:], shape[-1:])
    f = gradient(nn.layer_norm)
    assert launches(f, x, g, b, ct, target=target) == 1
    found = jit(f).lower(x, g, b, ct).compile(target)
    for _ in range(2):
        results = found.profile(x, g, b, ct).results
        for got, want in zip(results, exact(x, g, ct), strict=True):
            scale = np.abs(want).max()
            rtol = 3e-6 if got.dtype == np.float32 else 2.0**-8
            np.testing.assert_allclose(np.float64(got), want, rtol=rtol, atol=rtol * scale)


def test_on_nvidia_they_are_launches_of_their_own():
    args = data((300, 130), (130,), (130,), (300, 130))
    assert launches(gradient(nn.layer_norm), *args, target="sm_90") > 1


def softmax_and(f):
    return lambda x, w: (nn.softmax(x), f(x, w))


@pytest.mark.parametrize(
    "f, together",
    [
        (lambda x, w: (x * w).sum((0, 1)), True),
        (lambda x, w: (x.max((0, 1)), x.min((0, 1)) * 2), True),
        (lambda x, w: (x * w[0, 0]).sum((0, 1)), False),
        # At other places than rows are, of what is made later, or over other axes.
        (lambda x, w: (x * w.sum(2, keepdims=True)).sum((0, 1)), False),
        (lambda x, w: (x * w[::-1]).sum((0, 1)), False),
        (lambda x, w: (x * w[0, :, :1]).sum((0, 1)), False),
        (lambda x, w: (x[::-1] * w).sum((0, 1)), False),
        (lambda x, w: x.sum(0), False),
        # Several numbers are combined together.
        (lambda x, w: x.argmax(0).sum(0), False),
    ],
)
def test_what_sums_read(f, together):
    """Beside softmax over the same rows, which are one loop to it."""
    x, w = data((4, 128, 96), (4, 128, 96))
    both = softmax_and(f)
    found = jit(both).lower(x, w).compile("gfx942").profile(x, w)
    apart = jit(both, compiler_options=OFF).lower(x, w).compile("gfx942").profile(x, w)
    assert (len(found) < len(apart)) is together
    for got, want in zip(found.results, amdjax.tree_util.tree_leaves(both(x, w)), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-5, atol=2e-5)


def test_what_rows_wait_for():
    """Sums over the rows that the rows need are complete before."""
    x, w = data((256, 256), (256, 256))
    f = lambda x, w: nn.softmax(x * (x * w).mean(0))
    found = jit(f).lower(x, w).compile("gfx942").profile(x, w)
    np.testing.assert_allclose(np.asarray(found.results[0]), np.asarray(f(x, w)), rtol=5e-6)


def test_square_rows_and_columns():
    x, w = data((256, 256), (256, 256))
    row = lambda x, w: (nn.softmax(x), (x * w.T).sum(0), (x * w[3][:, None]).sum(0))
    found = jit(row).lower(x, w).compile("gfx942").profile(x, w)
    for got, want in zip(found.results, row(x, w), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape, apart", [((40, 6000), False), ((64, 4096), True)])
def test_the_schedule_says_how(shape, apart):
    """More sums of a long row than registers hold are launches of their own."""
    (x,) = data(shape)
    sums = lambda x: [x.sum(0), x.max(0), x.min(0), (x * x).sum(0)]
    f = lambda x: (nn.softmax(x), sums(x))
    compiled = jit(f).lower(x).compile("gfx942")
    text = compiled.as_text("schedule")
    rows = shape[0] >= 64
    assert ("sums over rows by" in text) is (rows and not apart)
    assert ("axes 1 of" in text and "and reduce_sum" in text) is rows
    found = compiled.profile(x).results
    for got, want in zip(found, amdjax.tree_util.tree_leaves(f(x)), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-5)


def test_sums_over_rows_in_a_loop():
    """Counters and parts are used again in each round."""
    x, ct = data((600, 64), (600, 64))
    g, b = data((64,), (64,))

    def step(i, c):
        dx, dg, db = gradient(nn.layer_norm)(*c, ct)
        return c[0] - 1e-3 * dx, c[1] + 1e-3 * dg, c[2] - 1e-3 * db

    f = lambda *c: amdjax.lax.fori_loop(0, 3, step, c)
    found = jit(f).lower(x, g, b).compile("gfx942").profile(x, g, b).results
    for got, want in zip(found, f(x, g, b), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-5, atol=2e-5)


def test_rows_beyond_the_last_add_nothing():
    """Tiles hold several rows, the last one fewer; what is read instead of others is zero."""
    x = -abs(data((333, 100))[0]) - 1
    f = lambda x: (nn.softmax(x), jnp.exp(x).sum(0), x.max(0))
    found = jit(f).lower(x).compile("gfx942")
    assert "sums over rows by" in found.as_text("schedule")
    for got, want in zip(found.profile(x).results, f(x), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=5e-6)
