"""Attention that reads queries, keys and values as parts of arrays computes the same."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn
from amdjax.core.check import check_jaxpr
from amdjax.core.config import State
from amdjax.core.views import View
from amdjax.passes.attention import read_views, views

RNG = np.random.default_rng(0)
ATTENTION = nn.dot_product_attention


def draw(*shape, dtype=np.float16):
    return jnp.asarray(RNG.standard_normal(shape).astype(np.float32), dtype)


def heads(x, count, first=0, stop=None):
    part = x[..., first:stop]
    return part.reshape(*part.shape[:2], count, part.shape[2] // count)


def packed(x, w, is_causal=True):
    """One product makes queries, keys and values."""
    q, k, v = jnp.split(x @ w, 3, -1)
    return ATTENTION(heads(q, 2), heads(k, 2), heads(v, 2), is_causal=is_causal)


def grouped(x, w):
    """Four heads of queries to one of keys, with a number beside the product."""
    y = x @ w + 1
    return ATTENTION(heads(y, 4, 0, 64), heads(y, 1, 64, 80), heads(y, 1, 80, 96))


def cached(queries, cache):
    """What a cache has so far, of one array; axes in another order."""
    keys, values = (jnp.transpose(cache[i, :, :, :37], (0, 2, 1, 3)) for i in (0, 1))
    return ATTENTION(queries, keys, values)


def every_second(x, w):
    y = (x @ w)[:, ::2]
    return ATTENTION(heads(y, 1, 0, 32), heads(y, 1, 32, 64), heads(y, 1, 64))


CASES = {
    "packed": (packed, (2, 40, 24), (24, 96)),
    "grouped": (grouped, (2, 33, 24), (24, 96)),
    "decoding": (grouped, (3, 1, 24), (24, 96)),
    "cached": (cached, (2, 5, 2, 32), (2, 2, 2, 50, 32)),
    "decoding from a cache": (cached, (2, 1, 4, 32), (2, 2, 2, 50, 32)),
    "every second": (every_second, (2, 40, 24), (24, 96)),
}


def loss(f):
    return lambda *args: (f(*args).astype(np.float32) ** 2).sum()


@pytest.mark.devices
@pytest.mark.parametrize("name", CASES)
def test_as_with_copies(device, name):
    """The same kernels read the same numbers."""
    f, *shapes = CASES[name]
    args = [draw(*shape) for shape in shapes]
    run = lambda: [amdjax.jit(f)(*args), *amdjax.jit(amdjax.grad(loss(f), (0, 1)))(*args)]
    found = run()
    with State("disabled_passes")("read_views"):
        wanted = run()
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.mark.cpu_only("plans only")
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "sm_90a"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_copied(target, name):
    f, *shapes = CASES[name]
    args = [amdjax.ShapeDtypeStruct(shape, np.float16) for shape in shapes]
    text = amdjax.jit(f).lower(*args).compile(target=target).as_text("simplified")
    assert "views=" in text and " slice[" not in text


def simplified(f, *args, takes=lambda eqn: True):
    closed = amdjax.make_jaxpr(f)(*args)
    new = read_views(closed, takes)
    check_jaxpr(new.jaxpr)
    return next(e for e in new.eqns if e.primitive.name == "attention")


def test_what_is_read_for_a_part_of_it_alone_is_no_view():
    """Of what nothing else stores, as sums, and of what lies in no strides."""
    x, w = draw(2, 8, 96), draw(2, 8, 96)

    def part(x, w):
        y = x + w
        return ATTENTION(*(heads(jnp.sin(y[..., :32]), 2),) * 2, heads(y, 2, 64))

    def apart(x, w):
        y = jnp.transpose(x, (0, 2, 1))[:, :32].reshape(2, 8, 2, 16)
        return ATTENTION(y, y, y)

    for f in (part, apart):
        assert "views" not in simplified(f, x, w).params
    eqn = simplified(packed, draw(2, 8, 24), draw(24, 96))
    assert eqn.params["views"][1] == ((2, 8, 2, 16), 32, (768, 96, 16, 1))
    refused = simplified(packed, draw(2, 8, 24), draw(24, 96), takes=lambda eqn: False)
    assert "views" not in refused.params


def moved(rng, x):
    """An operation on an array, as NumPy and as a function has it."""
    kind = rng.integers(3)
    if kind == 0:
        starts = [int(rng.integers(n)) for n in x.shape]
        steps = [int(rng.integers(1, 3)) for _ in x.shape]
        parts = tuple(slice(i, None, n) for i, n in zip(starts, steps, strict=True))
        return x[parts], lambda y: lax.slice(y, starts, y.shape, steps)
    if kind == 1:
        order = [int(d) for d in rng.permutation(x.ndim)]
        return x.transpose(order), lambda y: lax.transpose(y, order)
    shape = (x.size // 2, 1, 2) if x.size % 2 == 0 and rng.integers(2) else (1, x.size)
    return x.reshape(shape), lambda y: lax.reshape(y, shape)


@pytest.mark.parametrize("seed", range(20))
def test_strides_are_those_of_numpy(seed):
    """Of slices, transpositions and reshapes in any order; none only where NumPy copies."""
    rng = np.random.default_rng(seed)
    x = base = np.arange(4 * 6 * 8 * 2, dtype=np.int32).reshape(4, 6, 8, 2)
    view = View.of(x.shape)
    for _ in range(5):
        y, f = moved(rng, x)
        for eqn in amdjax.make_jaxpr(f)(x).eqns:
            view = views._moved(view, eqn)
        if view is None:
            assert not np.shares_memory(y, base)
            return
        assert view.shape == y.shape
        steps = np.ix_(*(np.arange(n) * s for n, s in zip(view.shape, view.strides, strict=True)))
        np.testing.assert_array_equal(base.ravel()[view.offset + sum(steps)], y)
        if not np.shares_memory(y, base):
            return
        x = y
