import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax
from amdjax import lax, numpy as jnp
from tests.support.indexing_reference import cases, gather_reference, scatter_reference
from tests.support.lax_checks import check_batching, check_derivatives

MODES = ["clip", "fill"]
FILLS = [
    (np.float32, np.nan),
    (np.int16, np.iinfo(np.int16).min),
    (np.uint8, 255),
    (np.bool_, True),
    (np.complex64, np.nan),
]


def array_of(shape, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return np.asarray(rng.integers(-9, 9, shape)).astype(dtype)


def gather_numbers(case):
    return lax.GatherDimensionNumbers(
        case.offset_dims, case.collapsed, case.index_map, case.batching, case.indices_batching
    )


def scatter_numbers(case):
    return lax.ScatterDimensionNumbers(
        case.offset_dims, case.collapsed, case.index_map, case.batching, case.indices_batching
    )


@given(cases(), st.sampled_from(FILLS), st.sampled_from(MODES))
def test_gather(case, kind, mode):
    dtype, fill = kind
    x = array_of(case.shape, dtype)
    found = lax.gather(x, case.indices, gather_numbers(case), case.sizes, mode=mode)
    np.testing.assert_array_equal(found, gather_reference(x, case, mode, fill))
    assert found.dtype == dtype


@given(cases(in_bounds=True))
def test_gather_within_bounds(case):
    x = array_of(case.shape, np.float32)
    wanted = gather_reference(x, case, "clip", 0)
    for mode in (None, "promise_in_bounds", "fill", "clip", "one_hot"):
        found = lax.gather(x, case.indices, gather_numbers(case), case.sizes, mode=mode)
        np.testing.assert_array_equal(found, wanted)


@given(cases())
def test_gather_fills_with_a_given_value(case):
    x = array_of(case.shape, np.float32)
    call = lambda mode, **kw: lax.gather(
        x, case.indices, gather_numbers(case), case.sizes, mode=mode, **kw
    )
    np.testing.assert_array_equal(call("fill", fill_value=7), gather_reference(x, case, "fill", 7))
    np.testing.assert_array_equal(call("one_hot"), gather_reference(x, case, "fill", 0))


@given(cases(), st.sampled_from(MODES))
def test_gather_rules(case, mode):
    numbers = gather_numbers(case)
    fun = lambda x, i: lax.gather(x, i, numbers, case.sizes, mode=mode, fill_value=0)
    check_derivatives(lambda x: fun(x, case.indices), array_of(case.shape))
    check_batching(fun, array_of(case.shape, np.float32), case.indices)


COMBINE = {
    "scatter": lambda old, new: new,
    "scatter_add": np.add,
    "scatter_sub": np.subtract,
    "scatter_mul": np.multiply,
    "scatter_min": np.minimum,
    "scatter_max": np.maximum,
}


def is_unique(case):
    """Whether no element is named twice."""
    ones = np.ones(case.result_shape)
    counts = scatter_reference(np.zeros(case.shape), ones, case, "clip", np.add)
    return counts.max(initial=0) <= 1


@given(cases(), st.sampled_from(sorted(COMBINE)), st.sampled_from(MODES))
@settings(max_examples=60)
def test_scatter(case, name, mode):
    x = array_of(case.shape, np.float32)
    y = array_of(case.result_shape, np.float32, 1)
    if name == "scatter":
        y = np.full_like(y, 5)  # which of several updates remains is not specified
    found = getattr(lax, name)(x, case.indices, y, scatter_numbers(case), mode=mode)
    wanted = scatter_reference(x, y, case, mode, COMBINE[name])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.complex64, np.float16])
def test_scatter_add_of_other_dtypes(dtype):
    x, y = array_of((4,), dtype), array_of((3,), dtype, 1)
    i = np.array([[1], [1], [9]], np.int32)
    wanted = x.copy()
    wanted[1] += y[0] + y[1]
    found = lax.scatter_add(x, i, y, lax.ScatterDimensionNumbers((), (0,), (0,)))
    np.testing.assert_array_equal(found, wanted)


@given(cases(), st.sampled_from(["scatter_add", "scatter_sub"]), st.sampled_from(MODES))
def test_scatter_add_rules(case, name, mode):
    numbers = scatter_numbers(case)
    fun = lambda x, i, y: getattr(lax, name)(x, i, y, numbers, mode=mode)
    x, y = array_of(case.shape), array_of(case.result_shape, seed=1)
    check_derivatives(lambda x, y: fun(x, case.indices, y), x, y)
    check_batching(fun, x.astype(np.float32), case.indices, y.astype(np.float32), axes=(0,))


@given(cases(), st.sampled_from(["scatter", "scatter_mul"]), st.sampled_from(MODES))
def test_unique_scatter_rules(case, name, mode):
    unique = is_unique(case)
    numbers = scatter_numbers(case)
    fun = lambda x, i, y: getattr(lax, name)(x, i, y, numbers, mode=mode, unique_indices=unique)
    x, y = array_of(case.shape), array_of(case.result_shape, seed=1)
    if unique:
        check_derivatives(lambda x, y: fun(x, case.indices, y), x, y)
    elif name == "scatter_mul":
        check_derivatives(lambda x: fun(x, case.indices, y.astype(x.dtype)), x)
    if name == "scatter":
        y = np.full_like(y, 5)
        check_batching(
            lambda x, i: fun(x, i, y.astype(np.float32)), x.astype(np.float32), case.indices
        )


@given(cases(), st.sampled_from(MODES))
def test_overlapping_scatter_keeps_value_and_derivative_together(case, mode):
    # Where updates overlap, the derivative must be that of the update which remained.
    numbers = scatter_numbers(case)
    fun = lambda x, y: lax.scatter(x, case.indices, y, numbers, mode=mode)
    x = array_of(case.shape)
    y = np.arange(1.0, 1 + math.prod(case.result_shape)).reshape(case.result_shape)
    check_derivatives(fun, x, y, order=1)


@given(cases(), st.sampled_from(["scatter_min", "scatter_max"]))
def test_extremal_scatter_rules(case, name):
    rng = np.random.default_rng(3)
    # No two values tie.
    values = rng.permutation(np.arange(1000.0))
    x = values[: math.prod(case.shape)].reshape(case.shape)
    y = values[500 : 500 + math.prod(case.result_shape)].reshape(case.result_shape)
    numbers = scatter_numbers(case)
    fun = lambda x, i, y: getattr(lax, name)(x, i, y, numbers)
    check_derivatives(lambda x, y: fun(x, case.indices, y), x, y)


def test_extremal_scatter_shares_the_tangent_of_ties():
    from amdjax.transforms.differentiate import vjp

    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    i = np.array([[0], [0], [1]], np.int32)
    x, y = np.array([3, 1, 2], np.float32), np.array([3, 3, 5], np.float32)
    _, pull = vjp(lambda x, y: lax.scatter_max(x, i, y, numbers), x, y)
    dx, dy = pull(np.ones(3, np.float32))
    np.testing.assert_allclose(dx, [1 / 3, 0, 1])
    np.testing.assert_allclose(dy, [1 / 3, 1 / 3, 1])


def test_scatter_mul_needs_unique_indices_for_derivatives():
    from amdjax.transforms.differentiate import jvp

    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    i = np.array([[0], [0]], np.int32)
    x, y = np.ones(3, np.float32), np.ones(2, np.float32)
    with pytest.raises(NotImplementedError, match="unique_indices=True"):
        jvp(lambda y: lax.scatter_mul(x, i, y, numbers), (y,), (y,))


def test_scatter_apply():
    x = np.arange(1, 6, dtype=np.float32)
    i = np.array([[4], [0], [4]], np.int32)
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    square = lambda v: lax.mul(v, v)
    found = lax.scatter_apply(x, i, square, numbers, update_shape=(3,))
    np.testing.assert_array_equal(found, [1, 2, 3, 4, 625])


def test_index_take():
    x = array_of((3, 4, 2), np.float32)
    i, j = np.array([2, -1, 0], np.int32), np.array([1, 5, -4], np.int32)
    np.testing.assert_array_equal(lax.index_take(x, (i, j), (0, 1)), x[i, j % 4])


def test_modes_by_name():
    names = ["clip", "fill", "drop", "promise_in_bounds", "one_hot", None]
    found = [lax.GatherScatterMode.from_any(name).name for name in names]
    assert found[:4] == ["CLIP", "FILL_OR_DROP", "FILL_OR_DROP", "PROMISE_IN_BOUNDS"]
    assert found[4:] == ["ONE_HOT", "FILL_OR_DROP"]
    with pytest.raises(ValueError, match="unknown gather/scatter mode 'wrap'"):
        lax.GatherScatterMode.from_any("wrap")


X = np.zeros((4, 3), np.float32)
I = np.zeros((2, 1), np.int32)
GOOD = lax.GatherDimensionNumbers((1,), (0,), (0,))


@pytest.mark.parametrize(
    "indices, numbers, sizes, message",
    [
        (I.astype(np.float32), GOOD, (1, 3), "start_indices"),
        (np.zeros((2, 2), np.int32), GOOD, (1, 3), "1 elements in start_index_map"),
        (I, GOOD, (1, 4), "Slice size at index 1"),
        (I, GOOD, (2, 3), "only collapse slice dims"),
        (I, GOOD, (1,), "one slice size for every"),
        (I, GOOD._replace(offset_dims=(2,)), (1, 3), "Offset dimension 0"),
        (I, GOOD._replace(start_index_map=(2,)), (1, 3), "start_index_map"),
        (I, GOOD._replace(collapsed_slice_dims=(1, 0)), (1, 1), "sorted"),
        (I, GOOD._replace(operand_batching_dims=(1,)), (1, 1), "equal numbers"),
    ],
)
def test_gather_names_what_does_not_fit(indices, numbers, sizes, message):
    with pytest.raises(TypeError, match=message):
        lax.gather(X, indices, numbers, sizes)


SCATTER = lax.ScatterDimensionNumbers((1,), (0,), (0,))


@pytest.mark.parametrize(
    "indices, updates, numbers, message",
    [
        (I.astype(np.float32), np.zeros((2, 3), np.float32), SCATTER, "scatter_indices"),
        (I, np.zeros((2, 3), np.int32), SCATTER, "dtype"),
        (I, np.zeros((2, 4), np.float32), SCATTER, "must not exceed those of the operand"),
        (I, np.zeros((3, 3), np.float32), SCATTER, "ask for"),
        (I, np.zeros((3,), np.float32), SCATTER, "rank 2"),
        (I, np.zeros((2, 3), np.float32), SCATTER._replace(inserted_window_dims=()), "dimension"),
    ],
)
def test_scatter_names_what_does_not_fit(indices, updates, numbers, message):
    with pytest.raises(TypeError, match=message):
        lax.scatter(X, indices, updates, numbers)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex64, ml_dtypes.bfloat16, np.bool_])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_places_that_floats_say(channels, dtype):
    """Coordinates beyond all bounds, NaN among them, are held between the ends of an axis."""
    rng = np.random.default_rng(channels)
    image = rng.integers(0, 9, (3, 9, 11, channels)).astype(dtype)
    at = rng.uniform(-4, 14, (3, 5, 41, 2)).astype(np.float32)
    special = [np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**31, -(2.0**31), -0.0, 8.999, 10.0, 1e-40]
    at[0, 0, : len(special), 0], at[1, 1, : len(special), 1] = special, special

    def gather(xp, image, at, low):
        (y, x), batch = at, np.arange(3)[:, None, None]
        y, x = (xp.clip(c, low, n - 1) for c, n in ((y, 9), (x, 11)))
        if xp is np:
            y, x = (np.where(np.isnan(c), 0, c) for c in (y, x))
        y, x = y.astype(np.int32), x.astype(np.int32)
        return image[batch, y, x], image[batch, y, xp.minimum(x + 1, 10)]

    for low in (0, -2):  # -1 and -2 are the last ones
        coordinates = at[..., 0], at[..., 1]
        found = amdjax.jit(lambda *xs: gather(jnp, *xs, low))(image, coordinates)
        for got, want in zip(found, gather(np, image, coordinates, low), strict=True):
            np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_places_that_floats_round(dtype):
    """65535 is 65536 in a narrow float, or infinite: beyond an axis that has room for 65535."""
    table, places = np.arange(1 << 16, dtype=np.int32), np.full(64, 65535, np.uint16)
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))

    def gather(table, places):
        i = places.astype(dtype).astype(jnp.int32)
        return lax.gather(table, i[:, None], numbers, (1,), mode="clip")

    found = amdjax.jit(gather)(jnp.array(table), jnp.array(places))
    np.testing.assert_array_equal(np.asarray(found), 65535)
