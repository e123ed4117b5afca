"""Results that were wrong once, each beside what is right."""

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax

NAN, INF = np.nan, np.inf
DOWN = np.array([3.0, 2.0, 1.0])
ONES = np.ones((2, 3, 2))


@pytest.mark.parametrize(
    "ours, expected",
    [
        (lambda: jnp.arange(10, step=3), [0, 3, 6, 9]),
        (lambda: jnp.arange(-20, None, -5), [0, -5, -10, -15]),
        (lambda: jnp.digitize(np.array([0.5, 1.0, 2.5, 3.0]), DOWN), [3, 2, 1, 0]),
        (lambda: jnp.digitize(np.array([1.0, 3.0]), DOWN, right=True), [3, 1]),
        (lambda: jnp.piecewise(np.arange(3.0), [np.arange(3) > 0, np.arange(3) > 1], [10, 20]),
         [0, 10, 20]),
        (lambda: jnp.unique(np.array([1, 1, 2, 3, 3]), size=2, return_counts=True)[1], [2, 1]),
        (lambda: jnp.unique(np.array([4, 4, 5]), size=3, return_counts=True)[1], [2, 1, 0]),
        (lambda: jnp.array_equal([1, 2], [1, 2]), True),
        (lambda: jnp.array(np.ma.array([1, 2], mask=[1, 0])), [1, 2]),
        (lambda: amdjax.jit(lambda z: jnp.iscomplexobj([z, 1]))(1j), True),
        (lambda: amdjax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(np.ones(3, bool)),
         [3, 3, 3]),
        (lambda: amdjax.jvp(amdjax.grad(lambda x: (x[np.zeros((0, 2), int)] ** 2).sum()),
                            (np.ones((0, 3), "f"),), (np.ones((0, 3), "f"),))[1],
         np.ones((0, 3))),
        (lambda: jnp.array_equiv([1, 2], [[1, 2], [1, 2]]), True),
        (lambda: jnp.cov(np.ones((2, 0))), [[NAN, NAN], [NAN, NAN]]),
        (lambda: jnp.cov(np.ones((1, 4))), 0.0),
        (lambda: jnp.put(np.arange(5), 9, 7, inplace=False), [0, 1, 2, 3, 7]),
        (lambda: jnp.put(np.arange(5), -9, 7, inplace=False), [7, 1, 2, 3, 4]),
        (lambda: jnp.linspace(np.arange(2.0), 3, num=1, retstep=True)[1], NAN),
        (lambda: jnp.geomspace(1j, 16j, 5), [1j, 2j, 4j, 8j, 16j]),
        (lambda: jnp.spacing(jnp.float16(1)), 2.0**-10),
        (lambda: jnp.spacing(jnp.bfloat16(-2)), -(2.0**-6)),
        (lambda: jnp.isin(np.arange(3), np.array([1])), [False, True, False]),
        (lambda: jnp.median(np.array([3, 1, 2], np.int32)), 2.0),
        (lambda: jnp.trim_zeros(np.zeros(3), "f").shape, [0]),
        (lambda: jnp.roots(np.zeros(4)).shape, [0]),
        (lambda: jnp.full(2, 2**31), [-(2**31)] * 2),
        (lambda: jnp.sum(np.ones((2, 3), bool), dtype=bool), True),
        (lambda: jnp.sum(np.array([256, 256]), dtype=bool), True),
        (lambda: jnp.prod(np.array([2, 0]), dtype=bool), False),
        (lambda: jnp.unwrap(np.array([0, 3, 6, 0]), discont=np.pi, period=4), [0, 3, 6, 4]),
        (lambda: jnp.unwrap(np.array([0, 3, 6, 0]), period=np.int8(5)), [0, -2, -4, -5]),
        (lambda: lax.reduce_max(np.array([1 + 2j, 3 - 1j, 3 + 4j]), (0,)), 3 + 4j),
        (lambda: lax.reduce_min(np.array([1 + 2j, 3 - 1j, 1 - 4j]), (0,)), 1 - 4j),
        (lambda: lax.fori_loop(0.0, 3.7, lambda i, x: x + i, 0), 3),
        (lambda: amdjax.jit(lambda n: lax.fori_loop(0.5, n, lambda i, x: x + i, 0.0))(3.7), 8.0),
        (lambda: jnp.round(jnp.float32(1.25), 400), 1.25),
        (lambda: jnp.round(jnp.float32(5), 38), 5),
    ],
)  # fmt: skip
def test_values(ours, expected):
    np.testing.assert_allclose(np.asarray(ours()).astype(complex), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), [0, -1]), ([0, 1], [0, 2]), (0, [[0, 1], [1, 0]]), (0, (0, 1)), (True, 0),
        (slice(None), []), True, False, (True, slice(None), True), (None, False), (..., True),
        (0, slice(None, 2), False), (slice(None), np.array([0, 2]), True), ([True, False],),
    ],
)  # fmt: skip
def test_indices_of_lists_and_boolean_scalars(index):
    x = np.arange(12.0).reshape(2, 3, 2)
    np.testing.assert_array_equal(jnp.asarray(x)[index], x[index])
    expected = x.copy()
    expected[index] = 7
    np.testing.assert_array_equal(jnp.asarray(x).at[index].set(7), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("toward", [INF, -INF, 0.0])
def test_neighbors(dtype, toward):
    x = jnp.asarray([1.0, 0.0, -0.0, -2.0, 1e-7, INF, -INF, NAN], dtype)
    expected = np.nextafter(np.asarray(x), np.asarray(toward, x.dtype))
    got = np.asarray(lax.nextafter(x, jnp.full_like(x, toward)))
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))
    assert not np.signbit(got[0]) and np.signbit(got[3])


def test_derivatives():
    x = jnp.array([1.0, NAN, 3.0, 5.0])
    np.testing.assert_allclose(amdjax.grad(jnp.nanvar)(x), [-4 / 3, 0, 0, 4 / 3], rtol=1e-6)
    np.testing.assert_allclose(
        amdjax.grad(jnp.nanstd)(x), [-(6**-0.5), 0, 0, 6**-0.5], rtol=1e-6, atol=1e-7
    )
    for dtype, value in (("float32", 3.0), ("float16", 48.0), ("float32", 1e-40)):
        v = jnp.asarray(value, dtype)
        mantissa, exponent = jnp.frexp(v)
        assert 0.5 <= float(mantissa) < 1
        assert float(jnp.ldexp(mantissa, exponent)) == float(v)
    assert float(amdjax.grad(lambda v: jnp.frexp(v)[0])(3.0)) == 0.25
    assert float(amdjax.grad(jnp.i0)(0.0)) == 0.0
    for x, slope in ((5.0, -INF), (-5.0, INF), (0.0, NAN)):
        np.testing.assert_equal(float(amdjax.grad(lambda y: lax.rem(x, y))(0.0)), slope)


@pytest.mark.parametrize(
    "call, dtype",
    [
        (lambda i, f, b: jnp.searchsorted(f, f), "int32"),
        (lambda i, f, b: jnp.digitize(f, f), "int32"),
        (lambda i, f, b: jnp.argpartition(f, 1), "int32"),
        (lambda i, f, b: jnp.tri(3), "float32"),
        (lambda i, f, b: jnp.median(i), "float32"),
        (lambda i, f, b: jnp.trapezoid(i), "float32"),
        (lambda i, f, b: jnp.angle(i), "float64"),
        (lambda i, f, b: jnp.tril_indices(3)[0], "int64"),
        (lambda i, f, b: jnp.cumsum(b), "int64"),
        (lambda i, f, b: jnp.var(f, dtype="complex64"), "complex64"),
        (lambda i, f, b: jnp.rint(i), "float64"),
        (lambda i, f, b: jnp.linalg.matrix_rank(jnp.eye(2)), "int64"),
    ],
)
def test_dtypes_with_64_bits(call, dtype):
    with amdjax.enable_x64(True):
        i = jnp.arange(4, dtype="int32")
        assert call(i, i.astype("float32"), i > 1).dtype == dtype


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda x: jnp.array_equal(None, x), ValueError),
        (lambda x: jnp.split(x, (4, 4)), ValueError),
        (lambda x: jnp.diag(x, 1.5), TypeError),
        (lambda x: jnp.insert(x, 1.0, 3), ValueError),
        (lambda x: lax.convert_element_type(x, None), ValueError),
        (lambda x: jnp.full_like(x, 1j), TypeError),
        (lambda x: jnp.arange(1j), ValueError),
        (lambda x: jnp.nonzero(jnp.asarray(3)), ValueError),
        (lambda x: x[[0, 1]], TypeError),
        (lambda x: x[..., [0, 1.5]], TypeError),
        (lambda x: jnp.sum(x, axis=2), ValueError),
        (lambda x: jnp.sum(x, axis=2), IndexError),
        (lambda x: jnp.asarray(np.ma.array([1, 2], mask=[0, 1])), ValueError),
        (lambda x: jnp.add(np.ma.array([1, 2], mask=[0, 1]), 1), ValueError),
        (lambda x: amdjax.jit(jnp.array)(np.ma.array([1, 2], mask=[0, 1])), ValueError),
        (lambda x: jnp.round(x > 0), ValueError),
        (lambda x: lax.broadcast_shapes((-1,)), TypeError),
        (lambda x: lax.broadcast_shapes("ab"), TypeError),
        (
            lambda x: lax.reduce_window(x, 0.0, lambda a, b: [a + b], (1,), (1,), "VALID"),
            ValueError,
        ),
        (lambda x: jnp.round(x.astype(int), -1), NotImplementedError),
        (lambda x: jnp.tri(3, k=2**40), OverflowError),
        (lambda x: jnp.arange(3, dtype=bool), TypeError),
        (lambda x: jnp.roll(x, jnp.array([1, 2]), (0, 0, 0)), ValueError),
        (lambda x: "a" in x, TypeError),
        (lambda x: jnp.vectorize(lambda v: v, signature="(n)->()")(x), ValueError),
        (lambda x: jnp.linalg.cond(np.ones((2, 0))), ValueError),
    ],
)
def test_what_is_refused(call, error):
    with pytest.raises(error):
        call(jnp.ones(3))


def test_integers_beyond_the_default_dtype_fill_arrays_of_wider_ones():
    big = 2**31 + 5
    for x in (jnp.full(2, big, jnp.uint32), jnp.full_like(jnp.zeros(2, jnp.uint32), big),
              lax.full((2,), big, jnp.uint32)):  # fmt: skip
        assert x.dtype == np.uint32 and x.tolist() == [big, big]


def test_many_arrays_are_joined_a_few_at_a_time():
    """An operation of hundreds of operands takes seconds to compile."""
    parts = [np.full((2, 1 + i % 3), i, np.float32) for i in range(300)]
    np.testing.assert_array_equal(jnp.concatenate(parts, 1), np.concatenate(parts, 1))
    jaxpr = amdjax.make_jaxpr(lambda *xs: jnp.concatenate(xs, 1))(*parts).jaxpr
    joins = [len(e.invars) for e in jaxpr.eqns if e.primitive.name == "concatenate"]
    assert max(joins) <= 16 and sum(joins) == 300 + 19 + 2
