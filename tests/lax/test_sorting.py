import numpy as np
import pytest
from hypothesis import given, strategies as st

import amdjax
from amdjax import lax
from tests.support.lax_checks import check_batching, check_derivatives

shapes = st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple)


def values(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    x = rng.integers(-4, 4, shape).astype(dtype) if dtype != np.uint8 else rng.integers(0, 9, shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.integers(-2, 2, shape)
    return x.astype(dtype)


DTYPES = [np.float32, np.float16, np.int32, np.int8, np.uint8, np.bool_, np.complex64]


@given(shapes, st.sampled_from(DTYPES), st.integers(0, 99), st.booleans())
def test_sort(shape, dtype, seed, stable):
    x = values(shape, dtype, seed)
    for axis in range(-1, len(shape)):
        found = lax.sort(x, dimension=axis, is_stable=stable)
        np.testing.assert_array_equal(found, np.sort(x, axis))
        assert found.dtype == x.dtype


def test_special_values_come_in_order():
    x = np.array([np.nan, 1, -np.inf, 0.0, -0.0, np.inf, -np.nan, -1], np.float32)
    keys, order = lax.sort_key_val(x, np.arange(8, dtype=np.int32))
    np.testing.assert_array_equal(np.asarray(order), [2, 7, 3, 4, 1, 5, 0, 6])
    np.testing.assert_array_equal(keys, np.sort(x))


@given(shapes, st.integers(0, 99), st.integers(1, 3))
def test_sort_by_several_keys(shape, seed, num_keys):
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, 3, shape).astype(np.int32) for _ in range(2))
    c = rng.integers(0, 3, shape).astype(np.float32)
    axis = len(shape) - 1
    position = np.broadcast_to(np.arange(shape[-1], dtype=np.int32), shape)
    found = lax.sort((a, b, c, position), dimension=axis, num_keys=num_keys)
    order = np.lexsort((position, *(a, b, c)[num_keys - 1 :: -1]), axis=axis)
    for y, x in zip(found, (a, b, c, position)):
        np.testing.assert_array_equal(y, np.take_along_axis(x, order, axis))


@pytest.mark.turns(3)
@given(shapes, st.integers(0, 99))
def test_sort_rules(shape, seed):
    rng = np.random.default_rng(seed)
    x = rng.permutation(np.prod(shape)).reshape(shape) + 0.0
    y = rng.standard_normal(shape)
    for axis in range(len(shape)):
        fun = lambda x, y: lax.sort((x, y), dimension=axis, num_keys=1)
        check_derivatives(fun, x, y, order=1 if x.size > 20 else 2)
        check_batching(fun, x.astype(np.float32), y.astype(np.float32), axes=(0,))


def test_integer_operands_follow_without_tangents():
    x = np.array([3.0, 1.0, 2.0])
    check_derivatives(lambda x: lax.sort((x, np.arange(3, dtype=np.int32))), x)


@given(shapes, st.sampled_from([np.float32, np.int32, np.int8, np.uint8, np.bool_]), st.data())
def test_top_k(shape, dtype, data):
    x = values(shape, dtype, data.draw(st.integers(0, 99)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    k = data.draw(st.integers(0, shape[axis]))
    found, indices = lax.top_k(x, k, axis=axis)
    down = x.astype(np.float64)
    order = np.take(np.argsort(-down, axis, kind="stable"), np.arange(k), axis)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(found, np.take_along_axis(x, order, axis))
    assert indices.dtype == np.int32


@given(st.integers(0, 99))
def test_top_k_rules(seed):
    rng = np.random.default_rng(seed)
    x = rng.permutation(12).reshape(3, 4) + 0.0
    for axis in (0, 1):
        check_derivatives(lambda x: lax.top_k(x, 2, axis=axis), x)
        check_batching(lambda x: lax.top_k(x, 2, axis=axis), x.astype(np.float32))


def test_approximate_k_is_exact():
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    found, indices = lax.approx_max_k(x, 5)
    np.testing.assert_array_equal(found, np.sort(x, 1)[:, ::-1][:, :5])
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(indices), 1), found)
    found, _ = lax.approx_min_k(x, 2, reduction_dimension=0)
    np.testing.assert_array_equal(found, np.sort(x, 0)[:2])
    check_derivatives(lambda x: lax.approx_min_k(x, 2), x[:, :4].astype(np.float64))
    check_batching(lambda x: lax.approx_max_k(x, 2), x[:, :4])


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: lax.sort(()), TypeError, "at least one operand"),
        (lambda x: lax.sort((x, x[0])), TypeError, "equal shapes"),
        (lambda x: lax.sort(x, num_keys=2), ValueError, "num_keys"),
        (lambda x: lax.sort(x, dimension=2), ValueError, "axis 2"),
        (lambda x: lax.top_k(x, 4), ValueError, "k=4"),
        (lambda x: lax.top_k(x, -1), ValueError, "k=-1"),
        (lambda x: lax.top_k(x.astype(np.complex64), 1), TypeError, "complex64"),
        (lambda x: lax.top_k(np.float32(1), 1), ValueError, "at least one dimension"),
        (lambda x: lax.approx_max_k(x, 0), ValueError, "k must be positive"),
        (lambda x: lax.approx_max_k(x.astype(np.int32), 1), ValueError, "int32"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
@pytest.mark.parametrize("shape", [(33, 40), (2, 300), (1, 40_000)])
def test_a_key_sorted_with_itself_is_written_to_all_results(shape, dtype):
    """By networks and by digits; zeros of both signs keep their order."""
    x = values(shape, dtype, 0)
    x = np.where(np.arange(shape[1]) % 2, x, -x).astype(dtype)
    expected = np.take_along_axis(x, np.argsort(x, 1, kind="stable"), 1)
    found = amdjax.jit(lambda x: lax.sort((x, x), dimension=1, num_keys=1))(x)
    for y in found:
        np.testing.assert_array_equal(np.asarray(y).view(np.int32), expected.view(np.int32))
