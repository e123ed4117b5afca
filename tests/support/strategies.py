"""What the NumPy tests draw: shapes, dtypes and values with the special ones among them."""

import numpy as np
from hypothesis import strategies as st

FLOATS = ["float32", "float16"]
INTS = ["int32", "int8", "uint8"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e-30, 1e30]

shapes = st.sampled_from([(), (1,), (3,), (0,), (2, 3), (3, 1), (2, 1, 4), (2, 3, 4)])
# Few shapes: each one compiles.
pairs_of_shapes = st.sampled_from(
    [((3,), (3,)), ((2, 3), (3,)), ((2, 3), ()), ((3, 1), (1, 4)), ((2, 1, 4), (3, 1)), ((), ())]
)


def draw_values(draw, shape, dtype, special=False):
    """An array of `shape` and `dtype`."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        low = 0 if dtype.kind == "u" else -5
        return rng.integers(low, 6, shape).astype(dtype)
    values = rng.normal(size=shape) * 2
    if special:
        values = np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), values)
    if dtype.kind == "c":
        values = values + 1j * rng.normal(size=shape)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


@st.composite
def arrays(draw, dtypes=("float32", "int32"), shapes=shapes, special=False):
    return draw_values(draw, draw(shapes), draw(st.sampled_from(list(dtypes))), special)


@st.composite
def pairs(draw, dtypes=("float32", "int32"), special=False):
    left, right = draw(pairs_of_shapes)
    kinds = st.sampled_from(list(dtypes))
    return (
        draw_values(draw, left, draw(kinds), special),
        draw_values(draw, right, draw(kinds), special),
    )


def close(ours, expected, rtol=2e-5, atol=1e-5):
    """Equal up to rounding, in shape too; dtypes are the business of their own tests."""
    ours, expected = np.asarray(ours), np.asarray(expected)
    assert ours.shape == expected.shape, (ours.shape, expected.shape)
    if ours.dtype.itemsize < 4 and ours.dtype.kind not in "biu":
        rtol, atol, ours = 2e-2, 2e-2, ours.astype(np.float32)
    np.testing.assert_allclose(ours, expected, rtol=rtol, atol=atol)
