import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax import jit, lax
from tests.support.lax_checks import check_batching, check_derivatives

DTYPES = [np.float32, np.int8, np.uint16, np.bool_, np.complex64]


def array_of(shape, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return np.asarray(rng.standard_normal(shape) * 5).astype(dtype)


@st.composite
def slices(draw):
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
    limits = [draw(st.integers(0, n)) for n in shape]
    starts = [draw(st.integers(0, n)) for n in limits]
    strides = [draw(st.integers(1, 4)) for _ in shape]
    return shape, starts, limits, strides


@given(slices(), st.sampled_from(DTYPES))
def test_slice(case, dtype):
    shape, starts, limits, strides = case
    x = array_of(shape, dtype)
    wanted = x[tuple(map(slice, starts, limits, strides))]
    found = lax.slice(x, starts, limits, strides)
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == x.dtype


def test_slice_without_strides():
    x = array_of((4, 5))
    np.testing.assert_array_equal(lax.slice(x, (1, 0), (3, 5)), x[1:3].astype(np.float32))


@given(slices())
def test_slice_rules(case):
    shape, starts, limits, strides = case
    fun = lambda x: lax.slice(x, starts, limits, strides)
    check_derivatives(fun, array_of(shape))
    check_batching(fun, array_of(shape, np.float32))


@pytest.mark.parametrize(
    "starts, limits, strides",
    [
        ((0,), (3, 3), None),
        ((2, 0), (1, 3), None),
        ((0, 0), (4, 3), None),
        ((0, 0), (3, 3), (0, 1)),
    ],
)
def test_slice_reports_bad_bounds(starts, limits, strides):
    with pytest.raises(TypeError, match="slice"):
        lax.slice(np.zeros((3, 3), np.float32), starts, limits, strides)


def test_slice_in_dim():
    x = array_of((5, 4), np.float32)
    np.testing.assert_array_equal(lax.slice_in_dim(x, 1, -1, 2, axis=0), x[1:-1:2])
    np.testing.assert_array_equal(lax.slice_in_dim(x, None, 2, axis=-1), x[:, :2])
    np.testing.assert_array_equal(lax.slice_in_dim(x, -3, None), x[-3:])


def test_index_in_dim():
    x = array_of((5, 4), np.float32)
    np.testing.assert_array_equal(lax.index_in_dim(x, -1, 1), x[:, -1:])
    np.testing.assert_array_equal(lax.index_in_dim(x, 2, keepdims=False), x[2])
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 1 with size 4"):
        lax.index_in_dim(x, 4, 1)


@st.composite
def windows(draw):
    shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
    sizes = tuple(draw(st.integers(0, n)) for n in shape)
    starts = [draw(st.integers(-9, 9)) for _ in shape]
    return shape, sizes, starts


def placed(start, size, total):
    start = start + total if start < 0 else start
    return min(max(start, 0), total - size)


def where(starts, sizes, shape):
    origin = [placed(s, k, n) for s, k, n in zip(starts, sizes, shape)]
    return tuple(slice(o, o + k) for o, k in zip(origin, sizes))


@given(windows(), st.sampled_from(DTYPES), st.sampled_from([np.int32, np.int16, int]))
def test_dynamic_slice_clamps(case, dtype, index_dtype):
    shape, sizes, starts = case
    x = array_of(shape, dtype)
    found = lax.dynamic_slice(x, [index_dtype(s) for s in starts], sizes)
    np.testing.assert_array_equal(found, x[where(starts, sizes, shape)])


@given(windows(), st.sampled_from(DTYPES))
def test_dynamic_update_slice_clamps(case, dtype):
    shape, sizes, starts = case
    x, y = array_of(shape, dtype), array_of(sizes, dtype, 1)
    wanted = x.copy()
    wanted[where(starts, sizes, shape)] = y
    found = lax.dynamic_update_slice(x, y, [np.int32(s) for s in starts])
    np.testing.assert_array_equal(found, wanted)


@given(windows())
def test_dynamic_slice_rules(case):
    shape, sizes, starts = case
    starts = [np.int32(s) for s in starts]
    check_derivatives(lambda x: lax.dynamic_slice(x, starts, sizes), array_of(shape))
    fun = lambda x, *starts: lax.dynamic_slice(x, starts, sizes)
    # Ranks above two try many combinations of batched indices; one combination more is no news.
    if len(shape) <= 2:
        check_batching(fun, array_of(shape, np.float32), *starts)


@given(windows())
def test_dynamic_update_slice_rules(case):
    shape, sizes, starts = case
    starts = [np.int32(s) for s in starts]
    check_derivatives(
        lambda x, y: lax.dynamic_update_slice(x, y, starts), array_of(shape), array_of(sizes)
    )
    fun = lambda x, y, *starts: lax.dynamic_update_slice(x, y, starts)
    if len(shape) <= 2:
        check_batching(fun, array_of(shape, np.float32), array_of(sizes, np.float32, 1), *starts)


def test_dynamic_slice_takes_an_array_of_indices():
    x = array_of((4, 5), np.float32)
    found = lax.dynamic_slice(x, np.array([1, 2], np.int32), (2, 2))
    np.testing.assert_array_equal(found, x[1:3, 2:4])


def test_negative_indices_can_be_forbidden():
    x = array_of((4,), np.float32)
    found = lax.dynamic_slice(x, [np.array(-1, np.int32)], (2,), allow_negative_indices=False)
    np.testing.assert_array_equal(found, x[:2])
    with pytest.raises(ValueError, match="index -1 is out of bounds"):
        lax.dynamic_slice(x, [-1], (2,), allow_negative_indices=False)


def test_dynamic_slice_along_one_axis():
    x = array_of((4, 5), np.float32)
    i = np.int32(3)
    np.testing.assert_array_equal(lax.dynamic_slice_in_dim(x, i, 2, axis=1), x[:, 3:5])
    np.testing.assert_array_equal(lax.dynamic_index_in_dim(x, i, 1), x[:, 3:4])
    np.testing.assert_array_equal(lax.dynamic_index_in_dim(x, -2, 0, keepdims=False), x[-2])


def test_dynamic_update_along_one_axis():
    x, y = array_of((4, 5), np.float32), array_of((4, 2), np.float32, 1)
    wanted = x.copy()
    wanted[:, 3:5] = y
    found = lax.dynamic_update_slice_in_dim(x, y, np.int32(7), axis=-1)
    np.testing.assert_array_equal(found, wanted)
    wanted = x.copy()
    wanted[2] = x[0]
    np.testing.assert_array_equal(lax.dynamic_update_index_in_dim(x, x[0], 2, 0), wanted)
    np.testing.assert_array_equal(lax.dynamic_update_index_in_dim(x, x[:1], 2, 0), wanted)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: lax.dynamic_slice(x, (0,), (1, 1)), ValueError, "start_indices"),
        (lambda x: lax.dynamic_slice(x, (0, 0), (4, 1)), TypeError, "slice_sizes"),
        (lambda x: lax.dynamic_slice(x, (np.float32(0), 0), (1, 1)), TypeError, "start_indices"),
        (lambda x: lax.dynamic_update_slice(x, x[0], (0, 0)), TypeError, "update shape"),
        (lambda x: lax.dynamic_update_slice(x, x.astype(np.int32), (0, 0)), TypeError, "dtype"),
        (lambda x: lax.dynamic_index_in_dim(x, 0, axis=2), ValueError, "axis 2"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(np.zeros((3, 3), np.float32))


def test_dynamic_update_slice_of_all():
    """What is as large as the operand replaces it, also where both are one array."""

    def f(x, y, i):
        made = lax.exp(x)
        return lax.dynamic_update_slice(made, made, (i,)), lax.dynamic_update_slice(made, y, (i,))

    x, y = np.linspace(0, 1, 257, dtype=np.float32), np.arange(257, dtype=np.float32)
    own, other = jit(f)(x, y, 5)
    np.testing.assert_allclose(own, np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(other, y)
