"""Products whose operands get zeros behind their rows are the same products."""

import ml_dtypes
import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.check import check_jaxpr
from amdjax.core.jaxpr import eval_jaxpr
from amdjax.passes import alignment
from amdjax.passes.alignment import align_products

RNG = np.random.default_rng(0)


def draw(shape, dtype):
    return RNG.integers(-4, 5, shape).astype(dtype)


def primitives(closed):
    return [e.primitive.name for e in closed.eqns]


@pytest.fixture
def always(monkeypatch):
    monkeypatch.setattr(alignment, "LEAST_INTENSITY", 0)


def aligned(f, *args):
    closed = align_products(amdjax.make_jaxpr(f)(*args))
    check_jaxpr(closed.jaxpr)
    return closed


# Axes summed over and in common; which operand's rows are unaligned: of the first, second, both.
@pytest.mark.parametrize(
    ("x", "y", "numbers", "pads"),
    [
        ((5, 31), (31, 16), (((1,), (0,)), ((), ())), 2),
        ((31, 16), (31, 8), (((0,), (0,)), ((), ())), 0),
        ((16, 31), (16, 8), (((0,), (0,)), ((), ())), 1),
        ((16, 29), (16, 31), (((0,), (0,)), ((), ())), 2),
        ((5, 31), (7, 31), (((1,), (1,)), ((), ())), 2),
        ((3, 5, 31), (3, 31, 30), (((2,), (1,)), ((0,), (0,))), 3),
        ((4, 6, 31), (4, 31, 5), (((0, 2), (0, 1)), ((), ())), 2),
        ((5, 31), (6, 31), (((), ()), ((1,), (1,))), 0),
        ((5, 9), (9, 16), (((1,), (0,)), ((), ())), 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_same_products(always, x, y, numbers, pads, dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    wide = np.int32 if dtype == "int8" else np.float32
    f = lambda x, y: lax.dot_general(x, y, numbers, preferred_element_type=wide)
    x, y = draw(x, kind), draw(y, kind)
    closed = aligned(f, x, y)
    if dtype != "int8" or not pads:  # whose accesses are longer
        assert primitives(closed).count("pad") == pads
    (got,) = eval_jaxpr(closed.jaxpr, closed.consts, x, y)
    want = np.asarray(f(x.astype(wide), y.astype(wide)))
    np.testing.assert_array_equal(np.asarray(got), want)  # of small integers, exact


def test_what_is_infinite_meets_no_zero(always):
    x, y = draw((3, 31), np.float16), draw((4, 31), np.float16)
    x[0, 30], y[1, 29] = np.inf, np.nan
    f = lambda x, y: jnp.einsum("ik,jk->ij", x, y)
    closed = aligned(f, x, y)
    assert "pad" in primitives(closed)
    (got,) = eval_jaxpr(closed.jaxpr, closed.consts, x, y)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.asarray(got), x @ y.T)


def test_two_products_read_one_padded_operand(always):
    g, w, x = draw((24, 31), np.float16), draw((31, 16), np.float16), draw((24, 16), np.float16)
    closed = aligned(lambda g, w, x: (g @ w, g.T @ x, jnp.einsum("tv,td->vd", g, x)), g, w, x)
    shapes = [e.outvars[0].aval.shape for e in closed.eqns if e.primitive.name == "pad"]
    assert sorted(shapes) == [(24, 32), (32, 16)]


# Axes summed over and in common, and the operand whose columns are those of the result.
@pytest.mark.parametrize(
    ("x", "y", "numbers", "padded"),
    [
        ((64, 16), (16, 31), (((1,), (0,)), ((), ())), (16, 32)),
        ((64, 16), (31, 16), (((1,), (1,)), ((), ())), (32, 16)),
        ((2, 64, 16), (2, 31, 16), (((2,), (2,)), ((0,), (0,))), (2, 32, 16)),
        ((64, 31, 16), (16,), (((2,), (0,)), ((), ())), None),  # the operand is as large
        ((64, 16), (16, 32), (((1,), (0,)), ((), ())), None),
    ],
    ids=str,
)
def test_results_that_are_reduced_by_rows_are_wider(x, y, numbers, padded):
    def f(x, y):
        z = lax.dot_general(x, y, numbers, preferred_element_type=np.float16)
        return amdjax.nn.logsumexp(z.astype(np.float32), -1)

    x, y = draw(x, np.float16), draw(y, np.float16)
    closed = aligned(f, x, y)
    pads = [e.outvars[0].aval.shape for e in closed.eqns if e.primitive.name == "pad"]
    assert pads == ([padded] if padded else [])
    (got,) = eval_jaxpr(closed.jaxpr, closed.consts, x, y)
    np.testing.assert_allclose(np.asarray(got), np.asarray(f(x, y)), rtol=1e-6)


def test_results_that_are_returned_or_not_reduced_by_rows_stay():
    x, w = draw((64, 16), np.float16), draw((16, 31), np.float16)
    returned = aligned(lambda x, w: ((z := x @ w), jnp.max(z, -1)), x, w)
    across = aligned(lambda x, w: jnp.max(jnp.exp(x @ w), 0), x, w)
    assert "pad" not in primitives(returned) and "pad" not in primitives(across)


def test_what_would_cost_more_than_it_saves_stays():
    half = np.float16
    few = aligned(lambda x, y: x @ y, draw((4, 1001), half), draw((1001, 1024), half))
    many = aligned(lambda x, y: x @ y, draw((1024, 1001), half), draw((1001, 1024), half))
    wide = aligned(lambda x, y: x @ y, *(draw((501, 501), np.float32) for _ in range(2)))
    assert "pad" not in primitives(few) and "pad" not in primitives(wide)
    assert primitives(many).count("pad") == 2


def test_open_sizes_stay(always):
    f = lambda x, y: x @ y
    n = amdjax.export.symbolic_shape("n, m")
    spec = [amdjax.ShapeDtypeStruct(shape, np.float16) for shape in ((n[0], n[1]), (n[1], 31))]
    closed = amdjax.make_jaxpr(f)(*spec)
    assert align_products(closed) is closed


def test_only_gpus_have_it():
    f = amdjax.jit(lambda x, y: x @ y)
    specs = [amdjax.ShapeDtypeStruct((1024, 1001), np.float16)] * 2
    lowered = f.lower(specs[0], amdjax.ShapeDtypeStruct((1001, 1024), np.float16))
    assert " pad[" in lowered.compile(target="gfx942").as_text("simplified")
    assert " pad[" not in lowered.compile().as_text("simplified")
