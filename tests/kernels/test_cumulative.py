import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from amdjax import lax
from tests.support.turns import in_turn

ACCUMULATE = {
    "cumsum": np.add,
    "cumprod": np.multiply,
    "cummax": np.maximum,
    "cummin": np.minimum,
    "cumlogsumexp": np.logaddexp,
}
#: Lanes along and across the axis, whole rows and pieces, tails.
SHAPES = [
    ((1,), 0), ((7,), 0), ((1000,), 0), ((70_001,), 0), ((5, 7), 1), ((40, 7), 1), ((40, 70), 1),
    ((40, 70), 0), ((3, 500, 5), 1), ((2, 9000, 3), 1), ((30_000, 2), 0), ((2, 30, 130), 1),
    ((2, 20_000), 1), ((0, 3), 0), ((3, 0), 0), ((0,), 0),
]  # fmt: skip
DTYPES = [np.float32, np.int32, np.int8, np.complex64, ml_dtypes.bfloat16, ml_dtypes.int4]


def run(name, x, axis, reverse):
    return np.asarray(getattr(lax, name)(x, axis, reverse))


def expected(name, x, axis, reverse):
    wide = x.astype(
        {"c": np.complex128, "f": np.float64, "V": np.float64}.get(x.dtype.kind, x.dtype)
    )
    wide = np.flip(wide, axis) if reverse else wide
    if x.dtype == ml_dtypes.int4:
        wide = wide.astype(np.int64)
    if name in ("cummax", "cummin") and x.dtype.kind == "c":
        out = wide.copy()
        rows = np.moveaxis(out, axis, 0)
        better = (lambda a, b: a > b) if name == "cummax" else (lambda a, b: a < b)
        for i in range(1, len(rows)):
            pairs = zip(rows[i - 1].ravel(), rows[i].ravel())
            chosen = [p if better((p.real, p.imag), (q.real, q.imag)) else q for p, q in pairs]
            rows[i] = np.reshape(chosen, rows[i].shape)
    elif name == "cumlogsumexp" and x.dtype.kind == "c":
        out = np.log(np.add.accumulate(np.exp(wide), axis))
    else:
        out = ACCUMULATE[name].accumulate(wide, axis, dtype=wide.dtype)
    out = np.flip(out, axis) if reverse else out
    return ((out + 8) % 16 - 8).astype(x.dtype) if x.dtype == ml_dtypes.int4 else out


def values(rng, name, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind in "iu" or dtype == ml_dtypes.int4:
        return rng.integers(-3, 4, shape).astype(dtype)
    x = rng.standard_normal(shape)
    if dtype.kind == "c":
        x = x + 0.2j * rng.standard_normal(shape)
    # Products of numbers near 1 stay in range.
    return (1 + x * 0.02 if name == "cumprod" else x).astype(dtype)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ACCUMULATE)
@pytest.mark.parametrize("shape, axis", SHAPES)
def test_against_numpy(shape, axis, name, reverse):
    rng = np.random.default_rng(0)
    for dtype in in_turn(DTYPES, 2, f"{shape} {axis} {name} {reverse}"):
        exact = np.dtype(dtype).kind in "iu" or dtype == ml_dtypes.int4
        slow = np.dtype(dtype).kind == "c" and name in ("cummax", "cummin")
        if (name == "cumlogsumexp" and exact) or (slow and np.prod(shape) > 5000):
            continue
        x = values(rng, name, shape, dtype)
        actual, wanted = run(name, x, axis, reverse), expected(name, x, axis, reverse)
        assert actual.dtype == x.dtype and actual.shape == x.shape
        if exact:
            np.testing.assert_array_equal(actual, wanted)
            continue
        if name == "cumlogsumexp" and np.dtype(dtype).kind == "c":  # a logarithm: modulo a turn
            actual, wanted = np.exp(actual.astype(np.complex128)), np.exp(wanted)
        # Rounding errors grow with the number of steps, against sums that grow like its root.
        eps = float(ml_dtypes.finfo(dtype).eps)
        scale = 1.0 if name in ("cummax", "cummin") else np.sqrt(max(x.shape[axis], 1))
        magnitude = np.max(np.abs(wanted), initial=1.0)
        np.testing.assert_allclose(
            actual.astype(wanted.dtype), wanted, rtol=0, atol=4 * eps * scale * magnitude
        )


@given(
    hnp.arrays(
        np.float32, hnp.array_shapes(max_dims=3, max_side=40), elements=st.floats(-9, 9, width=32)
    ),
    st.data(),
)
def test_any_shape(x, data):
    axis = data.draw(st.integers(0, x.ndim - 1))
    reverse = data.draw(st.booleans())
    wanted = expected("cumsum", x, axis, reverse)
    np.testing.assert_allclose(run("cumsum", x, axis, reverse), wanted, atol=1e-3)
    np.testing.assert_array_equal(
        run("cummax", x, axis, reverse), expected("cummax", x, axis, reverse)
    )


def test_special_values():
    inf, nan = np.inf, np.nan
    x = np.array([inf, 1, -inf, 2], np.float32)
    np.testing.assert_array_equal(run("cumsum", x, 0, False), [inf, inf, nan, nan])
    y = np.array([1, nan, 2, 3], np.float32)
    np.testing.assert_array_equal(run("cummax", y, 0, False), [1, nan, nan, nan])
    np.testing.assert_array_equal(run("cummin", y, 0, True), [nan, nan, 2, 3])
    z = np.array([-inf, -inf, 1, inf, 0], np.float32)
    np.testing.assert_array_equal(run("cumlogsumexp", z, 0, False), [-inf, -inf, 1, inf, inf])
    far = np.array([0, 1000, 0, -1000], np.float32)
    np.testing.assert_array_equal(run("cumlogsumexp", far, 0, False), [0, 1000, 1000, 1000])
    np.testing.assert_array_equal(
        np.signbit(run("cumsum", np.full(40, -0.0, np.float32), 0, False)), True
    )


def test_wide_dtypes():
    import amdjax

    rng = np.random.default_rng(1)
    with amdjax.enable_x64(True):
        for dtype in (np.float64, np.int64, np.complex128):
            x = (rng.standard_normal(5000) * 1e3).astype(dtype)
            wanted = np.cumsum(x)
            np.testing.assert_allclose(run("cumsum", x, 0, False), wanted, rtol=1e-12, atol=1e-9)


#: Floats of 8 bits and less, some of which have no infinity to start from.
NARROW = [
    getattr(ml_dtypes, name)
    for name in dir(ml_dtypes)
    if name.startswith(("float8_e3", "float8_e4", "float8_e5", "float4"))
]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("shape, axis", [((5, 7), 0), ((5, 7), 1), ((3, 500), 1), ((30_000, 2), 0)])
def test_extrema_of_narrow_floats(shape, axis, dtype):
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)
    for name in ("cummax", "cummin"):
        wide = ACCUMULATE[name].accumulate(x.astype(np.float32), axis)
        np.testing.assert_array_equal(run(name, x, axis, False).astype(np.float32), wide)
