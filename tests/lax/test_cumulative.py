import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax import lax
from tests.support.lax_checks import check_batching, check_derivatives

shapes = st.lists(st.integers(0, 6), min_size=1, max_size=3).map(tuple)

REFERENCE = {
    "cumsum": np.add.accumulate,
    "cumprod": np.multiply.accumulate,
    "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate,
    "cumlogsumexp": np.logaddexp.accumulate,
}
NAMES = sorted(REFERENCE)


def reference(name, x, axis, reverse):
    x = np.flip(x, axis) if reverse else x
    y = REFERENCE[name](x, axis)
    return np.flip(y, axis) if reverse else y


@given(shapes, st.sampled_from(NAMES), st.booleans(), st.integers(0, 99))
def test_value(shape, name, reverse, seed):
    x = np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)
    for axis in range(len(shape)):
        found = getattr(lax, name)(x, axis=axis, reverse=reverse)
        wanted = reference(name, x.astype(np.float64), axis, reverse)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        assert found.dtype == x.dtype


@given(shapes, st.sampled_from(["cumsum", "cumprod", "cummax", "cummin"]), st.booleans())
def test_integers_wrap(shape, name, reverse):
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.int8)
    for axis in range(len(shape)):
        found = getattr(lax, name)(x, axis=axis, reverse=reverse)
        y = np.flip(x, axis) if reverse else x
        wanted = REFERENCE[name].__self__.accumulate(y, axis, dtype=np.int8)
        wanted = np.flip(wanted, axis) if reverse else wanted
        np.testing.assert_array_equal(found, wanted)


def test_long_axes():
    x = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    wanted = np.cumsum(x.astype(np.float64))
    np.testing.assert_allclose(lax.cumsum(x), wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(lax.cummax(x), np.maximum.accumulate(x))


@pytest.mark.parametrize("name", ["cummax", "cummin", "cumsum"])
def test_nan_stays(name):
    x = np.array([1, np.nan, 2, 0], np.float32)
    found = np.asarray(getattr(lax, name)(x))
    np.testing.assert_array_equal(np.isnan(found), [False, True, True, True])


def test_cumlogsumexp_of_infinities():
    inf = np.inf
    x = np.array([-inf, -inf, 0, 1000, inf, 1], np.float32)
    np.testing.assert_array_equal(lax.cumlogsumexp(x), [-inf, -inf, 0, 1000, inf, inf])


def test_complex():
    x = np.array([1 + 1j, 2, -1j, 0.5], np.complex64)
    np.testing.assert_allclose(lax.cumsum(x), np.cumsum(x), rtol=1e-6)
    np.testing.assert_allclose(lax.cumprod(x), np.cumprod(x), rtol=1e-6)


@pytest.mark.turns(3)
@given(
    shapes.filter(lambda s: np.prod(s) <= 40),
    st.sampled_from(NAMES),
    st.booleans(),
    st.integers(0, 99),
)
def test_rules(shape, name, reverse, seed):
    x = np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape(shape)
    x = x / 10 - 1.05
    for axis in range(len(shape)):
        fun = lambda x: getattr(lax, name)(x, axis=axis, reverse=reverse)
        check_derivatives(fun, x)
        check_batching(fun, x.astype(np.float32), rtol=1e-5, atol=1e-5)


def test_cumprod_is_differentiable_at_zeros():
    check_derivatives(lambda x: lax.cumprod(x), np.array([2.0, 0.0, 3.0, 0.0, 4.0]))


def test_cumlogsumexp_is_differentiable_beside_minus_infinity():
    from amdjax.transforms.differentiate import vjp

    x = np.array([-np.inf, 1.0, -np.inf, 2.0], np.float32)
    _, pull = vjp(lambda x: lax.cumlogsumexp(x), x)
    (found,) = pull(np.array([0, 0, 0, 1], np.float32))
    total = np.exp(1) + np.exp(2)
    np.testing.assert_allclose(found, [0, np.exp(1) / total, 0, np.exp(2) / total], rtol=1e-5)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: lax.cumsum(np.zeros(3, np.float32), axis=-1), ValueError, "cumsum axis"),
        (lambda: lax.cumsum(np.zeros(3, np.float32), axis=1), ValueError, "cumsum axis"),
        (lambda: lax.cummax(np.zeros(3, np.bool_)), TypeError, "cummax"),
        (lambda: lax.cumlogsumexp(np.zeros(3, np.int32)), TypeError, "cumlogsumexp"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
