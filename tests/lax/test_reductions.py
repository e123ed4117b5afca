import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import amdjax
from amdjax import lax, numpy as jnp
from amdjax.transforms.staging import make_jaxpr
from tests.support.lax_checks import check_batching, check_derivatives

REDUCTIONS = {
    "reduce_sum": np.sum,
    "reduce_prod": np.prod,
    "reduce_max": np.max,
    "reduce_min": np.min,
}
BITWISE = {"reduce_and": np.bitwise_and, "reduce_or": np.bitwise_or, "reduce_xor": np.bitwise_xor}
shapes = hnp.array_shapes(max_dims=4, max_side=5)


def some_axes(data, rank):
    return tuple(data.draw(st.sets(st.integers(0, rank - 1))))


@given(shapes, st.data(), st.integers(0, 99))
def test_values(shape, data, seed):
    x = np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)
    axes = some_axes(data, x.ndim)
    for name, reference in REDUCTIONS.items():
        found = getattr(lax, name)(x, axes)
        np.testing.assert_allclose(found, reference(x.astype(np.float64), axes), rtol=1e-5)


@given(st.sampled_from(["int8", "uint16", "int32", "bool"]), shapes, st.data())
def test_integers(dtype, shape, data):
    x = data.draw(hnp.arrays(dtype, shape))
    axes = some_axes(data, x.ndim)
    for name, reference in BITWISE.items():
        wanted = reference.reduce(x, axis=axes) if axes else x
        np.testing.assert_array_equal(getattr(lax, name)(x, axes), wanted)
    for name in ("reduce_max", "reduce_min"):
        np.testing.assert_array_equal(getattr(lax, name)(x, axes), REDUCTIONS[name](x, axes))
    if dtype != "bool":
        wanted = np.sum(x, axes, dtype=x.dtype)
        np.testing.assert_array_equal(lax.reduce_sum(x, axes), wanted)


def test_empty_axes_give_the_identity():
    x = np.zeros((0, 2), np.float32)
    assert lax.reduce_sum(x, (0,)).tolist() == [0, 0]
    assert lax.reduce_prod(x, (0,)).tolist() == [1, 1]
    assert lax.reduce_max(x, (0,)).tolist() == [-np.inf] * 2
    assert lax.reduce_min(x.astype(np.int8), (0,)).tolist() == [127] * 2
    assert lax.reduce_and(x.astype(bool), (0,)).tolist() == [True] * 2


def test_nan_propagates():
    x = np.array([[1, np.nan], [2, 3]], np.float32)
    np.testing.assert_array_equal(lax.reduce_max(x, (1,)), [np.nan, 3])
    np.testing.assert_array_equal(lax.reduce_min(x, (0,)), [1, np.nan])


@given(shapes, st.data(), st.integers(0, 99))
def test_position_of_extremum(shape, data, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, shape).astype(np.float32)  # many ties
    x[rng.uniform(size=shape) < 0.1] = np.nan
    axis = data.draw(st.integers(0, x.ndim - 1))
    np.testing.assert_array_equal(lax.argmax(x, axis, np.int32), np.argmax(x, axis))
    np.testing.assert_array_equal(lax.argmin(x, axis, np.int32), np.argmin(x, axis))


def test_position_among_infinities():
    x = np.full((2, 3), -np.inf, np.float32)
    assert lax.argmax(x, 1, np.int32).tolist() == [0, 0]
    assert lax.argmin(-x, 1, "uint8").dtype == np.uint8


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint16, np.bool_])
@pytest.mark.parametrize("shape", [(3, 7), (2, 33), (5, 300), (1, 5000), (4, 9, 70), (2, 600, 5)])
def test_first_of_equal_extrema(shape, dtype):
    """Also where all are the worst of their dtype, and of several NaN."""
    rng = np.random.default_rng(len(shape))
    few = rng.integers(0, 3, shape).astype(dtype)
    if few.dtype.kind == "f":
        ends = np.array([-np.inf, np.inf], dtype)
        holes = np.where(rng.random(shape) < 2 / shape[1], dtype(np.nan), few)
        several = [few, holes, np.where(few == 1, -few * 0.0, few * 0)]
    else:
        several = [few]
        info = np.array([False, True]) if dtype is np.bool_ else np.iinfo(dtype)
        ends = info if dtype is np.bool_ else np.array([info.min, info.max], dtype)
    several += [np.full(shape, end) for end in ends]
    for x in several:
        for axis in range(len(shape)):
            np.testing.assert_array_equal(lax.argmax(x, axis, np.int32), np.argmax(x, axis))
            np.testing.assert_array_equal(lax.argmin(x, axis, np.int32), np.argmin(x, axis))


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2), ()])
def test_rules(name, axes):
    x = np.random.default_rng(0).permutation(24).reshape(2, 3, 4) / 10 + 0.3
    fun = lambda v: getattr(lax, name)(v, axes)
    check_derivatives(fun, x, rtol=1e-4)
    check_batching(fun, x.astype(np.float32), rtol=1e-4)


def test_product_with_zeros():
    x = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [3.0, 4.0, 5.0]])
    check_derivatives(lambda v: lax.reduce_prod(v, (0,)), x)


def test_tied_extrema_share_the_gradient():
    from amdjax.transforms.differentiate import vjp

    x = np.array([1.0, 3.0, 3.0, 2.0], np.float32)
    _, pull = vjp(lambda v: lax.reduce_max(v, (0,)), x)
    assert pull(np.float32(1))[0].tolist() == [0.0, 0.5, 0.5, 0.0]


def test_batching_of_positions():
    x = np.random.default_rng(0).permutation(12).reshape(3, 4).astype(np.float32)
    check_batching(lambda v: lax.argmax(v, 1, np.int32), x)
    check_batching(lambda v: lax.reduce_or(lax.gt(v, 4.0), (0,)), x)


def test_general_reduction():
    x = np.random.default_rng(0).uniform(0.5, 1.5, (3, 5, 2))

    def either(a, b):  # the probability of one of two events, with identity 0
        return lax.sub(lax.add(a, b), lax.mul(a, b))

    def fun(v):
        return lax.reduce(v, np.asarray(0, v.dtype)[()], either, (1,))

    single = x.astype(np.float32)
    np.testing.assert_allclose(fun(single), 1 - np.prod(1 - x, 1), rtol=1e-4, atol=1e-5)
    check_derivatives(fun, x)
    check_batching(fun, single, rtol=1e-4, atol=1e-5)


def test_general_reduction_of_pairs():
    x = np.array([3.0, 1.0, 2.0], np.float32)

    def earlier(a, b):
        first = lax.lt(a[0], b[0])
        return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])

    init = np.float32(np.inf), np.int32(-1)
    value, place = lax.reduce((x, np.arange(3, dtype=np.int32)), init, earlier, (0,))
    assert (float(value), int(place)) == (1.0, 1)
    value, place = lax.reduce((x[:0], np.arange(0, dtype=np.int32)), init, earlier, (0,))
    assert (float(value), int(place)) == (np.inf, -1)


@pytest.mark.parametrize(
    ("computation", "init", "primitive"),
    [
        (lax.add, 0.0, "reduce_sum"),
        (lax.mul, 1.0, "reduce_prod"),
        (lax.max, -np.inf, "reduce_max"),
        (lambda a, b: lax.min(b, a), np.inf, "reduce_min"),
        (lax.add, 1.0, "reduce"),
    ],
)
def test_known_monoids_become_their_primitive(computation, init, primitive):
    x = np.array([1.0, 2.0], np.float32)
    program = make_jaxpr(lambda v: lax.reduce(v, np.float32(init), computation, (0,)))(x)
    assert [eqn.primitive.name for eqn in program.eqns] == [primitive]
    wanted = {"reduce_sum": 3, "reduce_prod": 2, "reduce_max": 2, "reduce_min": 1, "reduce": 4}
    assert float(lax.reduce(x, np.float32(init), computation, (0,))) == wanted[primitive]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8])
def test_initial_values_count_once(size):
    x = np.arange(size, dtype=np.float32)
    assert float(lax.reduce(x, np.float32(100), lax.add, (0,))) == 100 + x.sum()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32", "uint8"])
def test_identities_of_monoids_may_have_another_dtype(dtype):
    x = jnp.arange(6).astype(dtype)
    ends = (lax.add, 0, 15), (lax.max, -np.inf, 5), (lax.min, np.float32(np.inf), 0)
    for computation, init, wanted in ends:
        found = lax.reduce(x, init, computation, (0,))
        assert (found.dtype, found.weak_type, float(found)) == (x.dtype, False, wanted)
    weak = jnp.broadcast_to(1.0, (3,))
    assert lax.reduce(weak, 0.0, lax.add, (0,)).weak_type
    assert not lax.reduce(weak, np.float32(0), lax.add, (0,)).weak_type


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "out-of-bounds", lambda: lax.reduce_sum(X, (2,))),
        (ValueError, "out-of-bounds", lambda: lax.reduce_sum(X, (-1,))),
        (ValueError, "duplicate", lambda: lax.reduce_sum(X, (0, 0))),
        (TypeError, "reduce_sum does not accept dtype bool", lambda: lax.reduce_sum(X > 0, (0,))),
        (TypeError, "reduce_and does not accept", lambda: lax.reduce_and(X, (0,))),
        (ValueError, "Invalid axis 2", lambda: lax.argmax(X, 2, np.int32)),
        (TypeError, "integer type", lambda: lax.argmax(X, 1, np.float32)),
        (ValueError, "non-empty", lambda: lax.argmax(X[:0], 0, np.int32)),
        (ValueError, "structure", lambda: lax.reduce((X, X), 0.0, lax.add, (0,))),
        (TypeError, "must return", lambda: lax.reduce(X, 0.0, lambda a, b: (a, b), (0,))),
        (TypeError, "same dtypes", lambda: lax.reduce(X, 1, lax.add, (0,))),
    ],
)
def test_errors(error, message, call):
    with pytest.raises(error, match=message):
        call()


def test_printed_programs():
    assert str(make_jaxpr(lambda v: lax.reduce_max(v, (1,)))(X)) == (
        "{ lambda ; a:f32[2,3]. let b:f32[2] = reduce_max[axes=(1,)] a in (b,) }"
    )


@pytest.mark.parametrize("dtype, refused", [("bfloat16", 1), ("float16", 1), ("float32", 0)])
def test_sums_of_16_bits_are_refused_on_request(dtype, refused):
    with amdjax.allow_f16_reductions(False):
        lax.reduce_sum(jnp.ones((1, 3), dtype), (0,))
        if refused:
            with pytest.raises(ValueError, match="not allowed when jax_allow_f16_reductions"):
                lax.reduce_sum(jnp.ones(3, dtype), (0,))
        else:
            assert float(lax.reduce_sum(jnp.ones(3, dtype), (0,))) == 3


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("rows", [(64,), (3, 70), (2, 5, 131)])
def test_what_is_stored_of_short_rows_lies_between_lanes(rows, count):
    x = np.random.default_rng(0).standard_normal((*rows, count), dtype=np.float32)
    doubled, total, place, least = amdjax.jit(
        lambda x: (2 * x, (3 * x).sum(-1), jnp.argmax(x, -1), jnp.where(x > 0, x, 1.0).min(-1))
    )(x)
    np.testing.assert_array_equal(doubled, 2 * x)
    np.testing.assert_allclose(total, (3.0 * x.astype(np.float64)).sum(-1), rtol=0, atol=3e-6)
    np.testing.assert_array_equal(place, x.argmax(-1))
    np.testing.assert_array_equal(least, np.where(x > 0, x, 1.0).min(-1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int8, np.complex64])
@pytest.mark.parametrize("width", [2, 3, 4, 5])
def test_reductions_of_short_rows_that_are_gathered(width, dtype):
    """What is read of computed places, few elements each, on its way into several results."""
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (50, width)).astype(dtype)
    places = rng.integers(-60, 60, (3, 67)).astype(np.int32)
    weights = rng.integers(1, 4, (3, 67)).astype(dtype)

    @amdjax.jit
    def f(x, places, weights):
        rows, next_rows = x[places], x[places + 1]
        y = (rows * weights[..., None]).sum(-1) + next_rows.sum(-1)
        if jnp.iscomplexobj(x):
            return y, rows.sum(-1)
        return y, rows.max(-1), rows.argmax(-1), (rows * next_rows).sum(-1, dtype=x.dtype)

    def at(places):
        return x[np.clip(np.where(places < 0, places + 50, places), 0, 49)]

    rows, next_rows = at(places), at(places + 1)
    y = (rows * weights[..., None]).sum(-1, dtype=dtype) + next_rows.sum(-1, dtype=dtype)
    wanted = [y, rows.sum(-1)]
    if np.dtype(dtype).kind != "c":
        wanted[1:] = rows.max(-1), rows.argmax(-1), (rows * next_rows).sum(-1, dtype=dtype)
    for got, want in zip(f(x, places, weights), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)
