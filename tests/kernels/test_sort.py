import functools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax import ShapeDtypeStruct, jit, lax, numpy as jnp
from amdjax.kernels.sorting.cpu.network import merge_exchange

DTYPES = [
    np.bool_, np.int8, np.uint16, np.int32, np.uint32, np.float16, ml_dtypes.bfloat16, np.float32,
    ml_dtypes.float8_e4m3fn, ml_dtypes.int4,
]  # fmt: skip
#: Every strategy: networks in lanes and alone, digits by rows and in pieces, each way of lying.
SHAPES = [
    ((1,), 0), ((2,), 0), ((7,), 0), ((96,), 0), ((97,), 0), ((40_000,), 0), ((5, 7), 1),
    ((40, 7), 0), ((33, 64), 1), ((3, 70, 5), 1), ((33, 513), 1), ((520, 33), 0), ((2, 9000), 1),
    ((9000, 2), 0), ((0,), 0), ((3, 0), 1), ((0, 3), 1),
]  # fmt: skip
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 2.5]


def elements(rng, shape, dtype, few=False):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == ml_dtypes.int4:
        return rng.integers(-8, 8, shape).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = (0, 4) if few else (info.min, info.max)
        return rng.integers(low, high, shape, endpoint=True, dtype=np.int64).astype(dtype)
    if few:
        return rng.choice(SPECIAL, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def order(keys, axis):
    """Stable positions of rows sorted by several keys; NaN last, zeros equal."""
    parts = []
    for x in keys:
        x = x.astype(np.float64) if np.dtype(x.dtype).kind in "Vf" else x
        parts += [x.real, x.imag] if x.dtype.kind == "c" else [x]
    moved = [np.moveaxis(x, axis, -1) for x in parts]
    out = np.zeros(moved[0].shape, np.int64)
    for row in np.ndindex(moved[0].shape[:-1]):
        positions = np.arange(moved[0].shape[-1])
        for x in reversed(moved):
            positions = positions[np.argsort(x[row][positions], kind="stable")]
        out[row] = positions
    return np.moveaxis(out, -1, axis)


def assert_same(actual, expected):
    """Equal values, equal signs of zero; NaN need not keep its sign."""
    actual = np.asarray(actual)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if actual.dtype.kind in "biu" or actual.dtype == ml_dtypes.int4:
        np.testing.assert_array_equal(actual, expected)
        return
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    actual, expected = actual.astype(wide), expected.astype(wide)
    np.testing.assert_array_equal(actual, expected)
    if wide is np.float64:
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(actual)[number], np.signbit(expected)[number])


def check(operands, axis, num_keys=1):
    results = lax.sort(operands, dimension=axis, num_keys=num_keys)
    positions = order(operands[:num_keys], axis)
    for x, y in zip(operands, results, strict=True):
        assert_same(y, np.take_along_axis(x, positions, axis))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, axis", SHAPES)
def test_keys_alone(shape, axis, dtype):
    rng = np.random.default_rng(0)
    check([elements(rng, shape, dtype)], axis)
    check([elements(rng, shape, dtype, few=True)], axis)


@pytest.mark.parametrize("dtype", [np.int8, np.float32, ml_dtypes.bfloat16, np.uint32])
@pytest.mark.parametrize("shape, axis", SHAPES)
def test_carried_operands(shape, axis, dtype):
    rng = np.random.default_rng(1)
    x = elements(rng, shape, dtype, few=True)
    positions = np.arange(x.size, dtype=np.int32).reshape(shape)
    check([x, positions], axis)
    check([x, positions, positions.astype(np.int8), x.astype(np.complex64)], axis)


@pytest.mark.parametrize("shape, axis", SHAPES)
def test_several_keys_and_complex_ones(shape, axis):
    rng = np.random.default_rng(2)
    first, second = (elements(rng, shape, t, few=True) for t in (np.int8, np.float32))
    check([first, second, np.arange(first.size, dtype=np.int32).reshape(shape)], axis, num_keys=2)
    check([(first + 1j * elements(rng, shape, np.float32)).astype(np.complex64), first], axis)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64, np.complex128])
@pytest.mark.parametrize("shape, axis", [((9,), 0), ((700,), 0), ((20_000,), 0), ((40, 9), 1)])
def test_wide_keys(shape, axis, dtype):
    import amdjax

    rng = np.random.default_rng(3)
    x = rng.integers(-(2**62), 2**62, shape)
    x = x.astype(dtype) if np.dtype(dtype).kind in "iu" else (x / 2.0**40).astype(dtype)
    with amdjax.enable_x64(True):
        check([x], axis)
        check([x, np.arange(x.size).reshape(shape)], axis)


@pytest.mark.parametrize(
    "shape, axis", [((9, 33), 1), ((5, 300), 1), ((130, 7), 0), ((3, 5000), 1)]
)
def test_results_that_nobody_reads(shape, axis):
    """Are not written; where positions are none of those read, keys go alone."""
    x = np.random.default_rng(2).integers(-4, 5, shape).astype(np.float32) * np.float32(-0.5)
    places = lax.broadcasted_iota(np.int32, shape, axis)
    both = lambda x: lax.sort_key_val(jnp.asarray(x), places, axis)
    want = np.argsort(x, axis, kind="stable")
    np.testing.assert_array_equal(jit(lambda x: both(x)[1])(x), want)
    found = np.asarray(jit(lambda x: both(x)[0])(x))
    sorted_x = np.take_along_axis(x, want, axis)
    np.testing.assert_array_equal(found, sorted_x)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(sorted_x))


def test_the_zero_principle():
    """A network that sorts all sequences of zeros and ones sorts everything."""
    for n in range(1, 11):
        for bits in range(1 << n):
            row = [(bits >> i) & 1 for i in range(n)]
            for p, r, d in merge_exchange(n):
                for i in range(n - d):
                    if i & p == r and row[i] > row[i + d]:
                        row[i], row[i + d] = row[i + d], row[i]
            assert row == sorted(row)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int8])
@pytest.mark.parametrize("n", [513, 1025])
def test_a_tail_of_one_lane_leaves_the_next_row_alone(n, dtype):
    x = np.random.default_rng(4).integers(0, 100, (9, n)).astype(dtype)
    positions = np.arange(x.size, dtype=np.int32).reshape(x.shape)
    np.testing.assert_array_equal(lax.sort((x, positions), dimension=1)[0], np.sort(x, 1))


@given(st.lists(st.floats(width=32), max_size=300))
def test_any_floats(xs):
    check([np.array(xs, np.float32)], 0)


def test_networks_of_long_rows_are_no_more_code():
    """What LLVM compiles grows neither with rows nor with the longest of symbolic ones."""

    def lines(*shape):
        program = jit(lambda x: jnp.sort(x, -1)).lower(ShapeDtypeStruct(shape, "float32")).compile()
        program = program.at({"b": 64, "t": 64}) if "b" in shape else program
        return len(program.as_text("tiles").splitlines())

    assert lines(64, 64) == lines(64, 2048) == lines("b", "t")


# Top_k


def greatest(x, k, axis):
    moved = np.moveaxis(x, axis, -1)
    # NaN is greatest, -0 is less than +0, among equals the first one wins.
    wide = moved.astype(np.float64)
    rank = np.where(np.isnan(wide), np.inf, wide)
    zero = np.where((wide == 0) & np.signbit(wide), -1, 0)
    out = np.zeros((*moved.shape[:-1], k), np.int64)
    for row in np.ndindex(moved.shape[:-1]):
        keys = (np.arange(rank.shape[-1]), -zero[row], -rank[row], ~np.isnan(wide[row]))
        out[row] = np.lexsort(keys)[:k]
    return np.moveaxis(out, -1, axis)


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "shape, k, axis",
    [
        ((10,), 3, 0), ((5, 40), 40, 1), ((5, 40), 0, 1), ((5, 40), 3, 0), ((3, 2000), 5, 1),
        ((50_000,), 7, 0), ((70_001,), 128, 0), ((2, 20_000), 300, 1), ((4, 700, 9), 6, 1),
        ((40, 600), 200, 1), ((0, 5), 2, 1),
    ],
)  # fmt: skip
def test_top_k(shape, k, axis, dtype):
    rng = np.random.default_rng(5)
    for few in (False, True):
        x = elements(rng, shape, dtype, few)
        values, indices = lax.top_k(x, k, axis=axis)
        expected = greatest(x, k, axis)
        np.testing.assert_array_equal(indices, expected)
        assert indices.dtype == np.int32
        assert_same(values, np.take_along_axis(x, expected, axis))


@pytest.mark.parametrize("run", [np.arange, lambda n: np.arange(n)[::-1], np.zeros])
def test_top_k_of_ordered_rows(run):
    x = np.asarray(run(3000), np.int32)
    values, indices = lax.top_k(x, 20)
    expected = greatest(x, 20, 0)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, x[expected])


def test_sorting_inside_a_program():
    from amdjax.core.aval import ShapedArray
    from amdjax.core.jaxpr import jaxpr_as_fun
    from amdjax.core.jaxpr_trace import trace_to_jaxpr

    def fn(x):
        return [functools.reduce(lax.add, lax.sort((lax.neg(x), x)))]

    x = np.random.default_rng(6).standard_normal(500).astype(np.float32)
    closed = trace_to_jaxpr(fn, [ShapedArray(x.shape, x.dtype)])
    np.testing.assert_array_equal(np.asarray(jaxpr_as_fun(closed)(x)[0]), np.zeros(500))
