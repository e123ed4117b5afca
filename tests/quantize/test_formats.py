"""Arrays in few bits against the same arithmetic in NumPy."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax
import amdjax.numpy as jnp
from amdjax.quantize import FORMATS, QuantizedArray, quantize_array

INTEGERS = ("int4", "uint4", "int8", "uint8", "int16", "uint16")
FLOATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2")


def ranges(x, axis, group):
    """The least and largest number of each scale, of `x`'s rank."""
    if group:
        size = x.shape[axis]
        begins = range(0, size, math.ceil(size / math.ceil(size / group)))
        return tuple(of.reduceat(x, begins, axis) for of in (np.minimum, np.maximum))
    rest = tuple(d for d in range(x.ndim) if axis is None or d != axis)
    return x.min(rest, keepdims=True), x.max(rest, keepdims=True)


def repeated(x, shape):
    for d, size in enumerate(shape):
        x = np.repeat(x, math.ceil(size / x.shape[d]), d).take(range(size), d)
    return x


def simulated(x, name, axis, group, symmetric):
    """Stored numbers, scales and zero points, in NumPy."""
    low, high = ranges(x, axis, group)
    if name == "mxfp4":
        exponent = np.floor(np.log2(np.maximum(-low, high))) - 2
        scale, zero = np.exp2(exponent).astype(np.float32), None
    elif symmetric or name in FLOATS:
        highest = np.float32(FORMATS[name].highest)
        scale, zero = np.maximum(-low, high) / highest, None
    else:
        info = ml_dtypes.iinfo(name)
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        steps = np.float32(int(info.max) - int(info.min))
        scale = high / steps - low / steps
        zero = np.clip(np.round(int(info.min) - low / scale), int(info.min), int(info.max))
    ratio = x / repeated(scale, x.shape)
    if name in INTEGERS:
        info = ml_dtypes.iinfo(name)
        numbers = np.round(ratio) + (0 if zero is None else repeated(zero, x.shape))
        lowest = -int(info.max) if symmetric else int(info.min)
        return np.clip(numbers, lowest, int(info.max)), scale, zero
    highest = FORMATS[name].highest
    dtype = ml_dtypes.float4_e2m1fn if name == "mxfp4" else getattr(ml_dtypes, name)
    return np.clip(ratio, -highest, highest).astype(dtype).astype(np.float32), scale, zero


@st.composite
def cases(draw):
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    axis = draw(st.one_of(st.none(), st.integers(0, len(shape) - 1)))
    name = draw(st.sampled_from((*INTEGERS, *FLOATS, "mxfp4")))
    group = draw(st.sampled_from((None, 1, 2, 4)))
    if name in ("int4", "uint4", "mxfp4"):
        group = group or 2
    if group:
        axis = axis or 0
        shape[axis] *= draw(st.sampled_from((1, group)))
    symmetric = name in FLOATS or name == "mxfp4" or draw(st.booleans())
    symmetric = symmetric and not name.startswith("u")
    seed = draw(st.integers(0, 2**31))
    return tuple(shape), name, axis, group, symmetric, seed


@settings(max_examples=settings.default.max_examples // 2)
@given(cases())
def test_as_numpy(case):
    shape, name, axis, group, symmetric, seed = case
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * np.exp(rng.standard_normal(shape))).astype(np.float32)
    q = quantize_array(x, name, axis=axis, group=group, symmetric=symmetric)
    numbers, scale, zero = simulated(x, name, axis, group, symmetric)
    np.testing.assert_array_equal(np.asarray(q.scale, np.float32), scale.astype(np.float32))
    np.testing.assert_array_equal(np.asarray(q.unpacked()).astype(np.float32), numbers)
    assert q.shape == shape
    back = numbers - (0 if zero is None else repeated(zero, shape).astype(np.float32))
    wanted = back.astype(np.float32) * repeated(scale, shape).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(q.dequantize()), wanted)
    if FORMATS[name].per_byte == 2:
        assert q.values.nbytes == math.prod(shape[:-1]) * -(-shape[-1] // 2)


def test_halves_are_rounded_to_even_and_the_rest_is_clipped():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 200.0, -200.0], np.float32)
    q = quantize_array(x, "int8", scale=1.0)
    assert np.asarray(q.values).tolist() == [0, 2, 2, 0, -2, 127, -127]
    moved = quantize_array(x, "int8", scale=1.0, zero_point=1, symmetric=False)
    assert np.asarray(moved.values).tolist() == [1, 3, 3, 1, -1, 127, -128]


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS, "mxfp4"])
@pytest.mark.parametrize("value", [0.0, 1e-45, -1e-39, 3e38, -3e38])
def test_extremes(name, value):
    x = np.full((2, 32), value, np.float32)
    x[0, 0] = -value / 3
    symmetric = not name.startswith("u")
    back = np.asarray(quantize_array(x, name, symmetric=symmetric).dequantize())
    assert np.isfinite(back).all()
    coarse = 2 / FORMATS[name].highest if name in INTEGERS else 0.5
    assert np.abs(back - x).max() <= max(coarse * abs(value), 1e-37)


@pytest.mark.parametrize("name", ["int8", "int4", "mxfp4", "float8_e5m2"])
def test_is_a_pytree_under_jit_vmap_and_slices(name):
    x = np.random.default_rng(0).standard_normal((3, 4, 32)).astype(np.float32)
    stack = amdjax.vmap(lambda row: quantize_array(row, name, axis=1))(x)
    assert isinstance(stack, QuantizedArray)
    back = amdjax.jit(amdjax.vmap(lambda q: q.dequantize()))(stack)
    row = amdjax.tree.map(lambda leaf: leaf[1], stack)
    np.testing.assert_array_equal(np.asarray(back[1]), np.asarray(row.dequantize()))
    np.testing.assert_array_equal(
        np.asarray(quantize_array(x[1], name, axis=1).dequantize()), np.asarray(back[1])
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtype_is_kept(dtype):
    with amdjax.enable_x64(True):
        x = jnp.linspace(-1, 1, 12).astype(dtype)
        back = quantize_array(x, "int8").dequantize()
        assert back.dtype == x.dtype
        assert float(jnp.abs(back - x).max()) < 0.02


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"dtype": "int3"}, "dtype"),
        ({"dtype": "float16"}, "float16"),
        ({"axis": 2}, "axis 2"),
        ({"dtype": "int4", "group": -3}, "group"),
        ({"group": 2, "axis": (0, 1)}, "axis"),
        ({"dtype": "uint8"}, "symmetric"),
        ({"zero_point": 1}, "zero_point"),
        ({"scale": np.ones((3, 1), np.float32)}, "scale"),
        ({"scale": np.ones((2, 3), np.float32)}, "scale"),  # of 2, 2 and none
    ],
)
def test_errors_name_the_argument(arguments, named):
    with pytest.raises(ValueError, match=named):
        quantize_array(np.ones((2, 4), np.float32), **arguments)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_only_finite_numbers(bad):
    with pytest.raises(ValueError, match="x must be finite"):
        quantize_array(np.array([1.0, bad], np.float32))
    with pytest.raises(TypeError, match="x must be of floats"):
        quantize_array(np.array([1, 2]))


def test_floats_of_four_bits_are_halves_of_integers():
    codes = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    q = quantize_array(codes, "mxfp4", scale=np.ones(1, np.float32))
    integers, worth = q.integers()
    np.testing.assert_array_equal(np.asarray(integers) * worth, codes)
    assert integers.dtype == np.int8
