import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax import jit, lax, numpy as jnp
from amdjax.transforms.differentiate import vjp
from amdjax.transforms.staging import make_jaxpr
from tests.support.lax_checks import check_batching, check_derivatives

MONOIDS = {
    "add": (lax.add, 0.0, np.add),
    "mul": (lax.mul, 1.0, np.multiply),
    "max": (lax.max, -np.inf, np.maximum),
    "min": (lax.min, np.inf, np.minimum),
}


def reference(x, init, combine, dims, strides, padding, base, dilation):
    """Windows by definition: spread and pad the array, then look through every window."""
    config = list(zip(padding, base))
    spread = np.full([(n - 1) * b + 1 if n else 0 for n, b in zip(x.shape, base)], init, x.dtype)
    spread[tuple(slice(None, None, b) for b in base)] = x
    spread = np.pad(spread, [p for p, _ in config], constant_values=init)
    reach = [(n - 1) * d + 1 for n, d in zip(dims, dilation)]
    counts = [max(0, (n - r) // s + 1) for n, r, s in zip(spread.shape, reach, strides)]
    out = np.full(counts, init, x.dtype)
    for place in np.ndindex(*counts):
        for k in itertools.product(*map(range, dims)):
            at = tuple(i * s + j * d for i, s, j, d in zip(place, strides, k, dilation))
            out[place] = combine(out[place], spread[at])
    return out


@st.composite
def windows(draw, dilated=True):
    rank = draw(st.integers(1, 3))
    few = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))
    padding = tuple(zip(few(0, 2), few(0, 2)))
    spread = (few(1, 2), few(1, 2)) if dilated else ((1,) * rank, (1,) * rank)
    return few(1, 6), (few(1, 3), few(1, 3), padding, *spread)


@given(windows(), st.sampled_from(sorted(MONOIDS)), st.integers(0, 99))
def test_values(case, name, seed):
    shape, window = case
    computation, init, combine = MONOIDS[name]
    x = np.random.default_rng(seed).uniform(0.5, 2, shape).astype(np.float32)
    found = lax.reduce_window(x, np.float32(init), computation, *window)
    wanted = reference(x, init, combine, *window)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert found.shape == lax.reduce_window_shape_tuple(shape, *window)


@pytest.mark.parametrize("rule", ["SAME", "SAME_LOWER", "VALID"])
def test_padding_by_name(rule):
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    pads = lax.padtype_to_pads((5, 7), (2, 3), (2, 2), rule)
    found = lax.reduce_window(x, -np.inf, lax.max, (2, 3), (2, 2), rule)
    ones = (1, 1)
    np.testing.assert_array_equal(
        found, reference(x, -np.inf, np.maximum, (2, 3), (2, 2), pads, ones, ones)
    )


def distinct(*shape):
    return np.random.default_rng(3).permutation(int(np.prod(shape))).reshape(shape) / 7.0


WINDOWS = [
    ((2, 2), (2, 2), ((0, 0), (0, 0))),
    ((3, 2), (1, 2), ((1, 0), (1, 1))),
    ((2, 3), (3, 1), ((0, 1), (0, 0))),
    ((3, 3), (2, 2), ((1, 1), (0, 2))),
]


@pytest.mark.parametrize(
    ("window", "name"), [*itertools.product(WINDOWS, ("add", "max")), (WINDOWS[1], "min")]
)
def test_rules_of_pooling(name, window):
    computation, init, _ = MONOIDS[name]
    fun = lambda v: lax.reduce_window(v, np.asarray(init, v.dtype)[()], computation, *window)
    check_derivatives(fun, distinct(5, 6))
    check_batching(fun, distinct(5, 6).astype(np.float32))


def test_rules_of_dilated_pooling():
    window = (2, 2), (1, 2), ((1, 0), (0, 1))
    total = lambda v: lax.reduce_window(
        v, np.asarray(0, v.dtype)[()], lax.add, *window, (2, 1), (1, 2)
    )
    check_derivatives(total, distinct(4, 5))
    largest = lambda v: lax.reduce_window(
        v, np.asarray(-np.inf, v.dtype)[()], lax.max, *window, (1, 2)
    )
    check_derivatives(largest, distinct(4, 5))
    holes = lambda v: lax.reduce_window(
        v, np.asarray(-np.inf, v.dtype)[()], lax.max, *window, None, (2, 1)
    )
    check_derivatives(holes, distinct(4, 5))


def test_rules_of_general_windows():
    x = 1 + distinct(4, 5) / 10
    product = lambda v: lax.reduce_window(
        v, np.asarray(1, v.dtype)[()], lax.mul, (2, 3), (1, 2), "SAME"
    )
    check_derivatives(product, x)
    check_batching(product, x.astype(np.float32), rtol=1e-5)


def test_windows_of_pairs():
    x = np.array([3.0, 1.0, 2.0, 0.0], np.float32)
    place = np.arange(4, dtype=np.int32)

    def smaller(a, b):
        first = lax.lt(a[0], b[0])
        return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])

    init = np.float32(np.inf), np.int32(-1)
    values, places = lax.reduce_window((x, place), init, smaller, (2,))
    assert (values.tolist(), places.tolist()) == ([1.0, 1.0, 0.0], [1, 1, 3])


def test_initial_values_count_once():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    total = lax.reduce_window(x, np.float32(0), lax.add, (2, 3))
    np.testing.assert_array_equal(lax.reduce_window(x, 100.0, lax.add, (2, 3)), 100 + total)


@pytest.mark.parametrize(
    ("computation", "init"), [(lax.max, -np.inf), (lax.add, 0), (lax.min, np.inf)]
)
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_identities_of_monoids_may_have_another_dtype(computation, init, dtype):
    x = jnp.arange(12).reshape(3, 4).astype(dtype)
    found = lax.reduce_window(x, init, computation, (2, 2), padding="SAME")
    single = lax.reduce_window(
        x.astype(np.float32), np.float32(init), computation, (2, 2), padding="SAME"
    )
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found.astype(np.float32), single)


def pooled_gradient(x, ct, *window):
    fun = lambda v: lax.reduce_window(v, np.float32(-np.inf), lax.max, *window)
    return np.asarray(vjp(fun, x)[1](ct)[0])


def test_overlapping_windows_add_their_gradients():
    x = np.array([0.0, 5.0, 1.0, 2.0], np.float32)
    ct = np.array([1.0, 10.0, 100.0], np.float32)
    assert pooled_gradient(x, ct, (2,)).tolist() == [0.0, 11.0, 0.0, 100.0]


def test_the_first_of_equals_gets_the_gradient():
    x = np.zeros((4, 4), np.float32)
    found = pooled_gradient(x, np.ones((2, 2), np.float32), (2, 2), (2, 2))
    assert found.tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]
    # Elements that lose against padding's minus infinity still come before it.
    worst = np.full(3, -np.inf, np.float32)
    padding = ((1, 0),)
    assert pooled_gradient(worst, np.ones(2, np.float32), (2,), (2,), padding).tolist() == [1, 1, 0]


@pytest.mark.parametrize("wide", [16, 17])
def test_places_in_windows_of_more_elements_than_a_byte_counts(wide):
    x = np.zeros((wide, 2 * wide), np.float32)
    x[-1, wide - 1] = x[-1, -1] = 1  # the last of either window
    found = pooled_gradient(x, np.array([[2, 3]], np.float32), (wide, wide), (wide, wide))
    wanted = np.zeros_like(x)
    wanted[-1, wide - 1], wanted[-1, -1] = 2, 3
    np.testing.assert_array_equal(found, wanted)


def test_errors():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(TypeError, match="window_dimensions must have one entry for each axis"):
        lax.reduce_window(x, 0.0, lax.add, (2,))
    with pytest.raises(TypeError, match="window_strides must have every element be positive"):
        lax.reduce_window(x, 0.0, lax.add, (2, 2), (0, 1))
    with pytest.raises(TypeError, match="same dtypes"):
        lax.reduce_window(x, 1, lax.add, (2, 2))
    with pytest.raises(ValueError, match="structure"):
        lax.reduce_window(x, (0.0, 0.0), lax.add, (2, 2))
    with pytest.raises(RuntimeError, match="FULL"):
        lax.reduce_window(x, 0.0, lax.add, (2, 2), None, "FULL")


def test_printed_programs():
    x = np.ones((2, 4), np.float32)
    fun = lambda v: lax.reduce_window(v, np.float32(-np.inf), lax.max, (1, 2))
    assert str(make_jaxpr(fun)(x)) == (
        "{ lambda ; a:f32[2,4]. let\n"
        "    b:f32[2,3] = reduce_window_max[\n"
        "      base_dilation=(1, 1)\n"
        "      padding=((0, 0), (0, 0))\n"
        "      window_dilation=(1, 1)\n"
        "      window_dimensions=(1, 2)\n"
        "      window_strides=(1, 1)\n"
        "    ] a\n"
        "  in (b,) }"
    )


@given(
    dims=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    low=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    seed=st.integers(0, 99),
)
def test_gradient_of_window_sums_is_the_transposed_sum(dims, strides, low, seed):
    """Compiled, it passes over the holes that strides leave."""
    padding = [(n, m) for n, m in zip(low, low[::-1])]
    total = lambda x: lax.reduce_window(x, np.float32(0), lax.add, dims, strides, padding)
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, (6, 7)).astype(np.float32)
    ct = rng.integers(-9, 9, total(x).shape).astype(np.float32)
    (back,) = jit(lambda ct: vjp(total, x)[1](ct))(ct)
    tangent = rng.integers(-9, 9, x.shape).astype(np.float32)
    assert np.vdot(back, tangent) == np.vdot(ct, total(tangent))
