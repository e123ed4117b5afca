"""QuantizeLinear and DequantizeLinear, and products between them as products of integers."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax
import amdjax.numpy as jnp
from amdjax import lax
from amdjax.quantize import dequantize_linear, integer_products, quantize_linear

INTEGERS = ("int4", "uint4", "int8", "uint8", "int16", "uint16")


def spread(x, shape, axis, block):
    if x.ndim == 0:
        return x
    if not block:
        return x.reshape([-1 if d == axis else 1 for d in range(len(shape))])
    return np.repeat(x, block, axis).take(range(shape[axis]), axis)


@settings(max_examples=settings.default.max_examples // 2)
@given(st.data())
def test_as_numpy(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    block = data.draw(st.integers(0, 3))
    scalar = not block and data.draw(st.booleans())
    of_scale = list(shape)
    of_scale[axis] = -(-shape[axis] // block) if block else shape[axis]
    of_scale = () if scalar else tuple(of_scale) if block else (shape[axis],)
    name = data.draw(st.sampled_from(INTEGERS))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    x = (rng.standard_normal(shape) * 40).astype(np.float32)
    scale = (rng.random(of_scale) + 0.1).astype(np.float32)
    info = ml_dtypes.iinfo(name)
    low, high = int(info.min), int(info.max)
    zero = rng.integers(max(low, -9), min(high, 9), of_scale).astype(info.dtype)
    got = quantize_linear(x, scale, zero, axis=axis, block_size=block)
    wide = lambda v: spread(np.asarray(v).astype(np.float32), shape, axis, block)
    wanted = np.clip(np.round(x / wide(scale)) + wide(zero), low, high)
    assert got.dtype == np.dtype(info.dtype)
    np.testing.assert_array_equal(np.asarray(got).astype(np.float32), wanted)
    back = dequantize_linear(got, scale, zero, axis=axis, block_size=block)
    np.testing.assert_array_equal(np.asarray(back), (wanted - wide(zero)) * wide(scale))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"])
def test_float8_saturates_if_told(name):
    dtype = getattr(ml_dtypes, name)
    x = np.array([0.1, 3.3, -1e6, 1e6, np.inf, np.nan], np.float32)
    highest = float(ml_dtypes.finfo(dtype).max)
    got = np.asarray(quantize_linear(x, np.float32(2), output_dtype=dtype)).astype(np.float32)
    np.testing.assert_array_equal(
        got, np.clip(x / 2, -highest, highest).astype(dtype).astype(np.float32)
    )
    got = np.asarray(quantize_linear(x, np.float32(2), output_dtype=dtype, saturate=False))
    np.testing.assert_array_equal(got.astype(np.float32), (x / 2).astype(dtype).astype(np.float32))


def test_zero_of_a_large_integer_is_exact():
    x = np.array([-32768, 32767], np.int16)
    back = dequantize_linear(x, np.float32(1), np.int16(32767))
    assert np.asarray(back).tolist() == [-65535.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"y_scale": np.ones(2, np.float32)}, "y_scale"),
        ({"y_scale": np.ones(3, np.float32), "axis": 2}, "axis 2"),
        ({"y_scale": np.float32(1), "block_size": -1}, "block_size"),
        ({"y_scale": np.ones((2, 1), np.float32), "block_size": 2}, "y_scale"),
        ({"y_scale": 1.0, "y_zero_point": np.int8(0), "output_dtype": "uint8"}, "output_dtype"),
    ],
)
def test_errors_name_the_argument(arguments, named):
    with pytest.raises(ValueError, match=named):
        quantize_linear(np.ones((2, 3), np.float32), **arguments)
    with pytest.raises(TypeError, match="output_dtype"):
        quantize_linear(np.ones(2, np.float32), 1.0, output_dtype="float32")


# Products of integers

rng = np.random.default_rng(5)
A = rng.standard_normal((6, 16)).astype(np.float32)
W = rng.integers(-127, 128, (5, 16)).astype(np.int8)
S = (rng.random(5) * 0.1 + 0.01).astype(np.float32)


def through(x, scale, zero):
    return dequantize_linear(quantize_linear(x, scale, zero), scale, zero)


def counts(f, *args):
    text = str(amdjax.make_jaxpr(integer_products(f))(*args))
    return text.count("preferred_element_type=int32")


def agrees(f, *args):
    got = amdjax.jit(integer_products(f))(*args)
    with amdjax.enable_x64(True):
        wanted = f(*args)
    np.testing.assert_allclose(got, wanted, rtol=3e-6, atol=3e-6 * float(jnp.abs(wanted).max()))


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(131), np.int8(-7), np.int8(0)])
@pytest.mark.parametrize("of_weight", [None, np.zeros(5, np.int8), np.arange(5, dtype=np.int8)])
def test_matrix_product(zero, of_weight):
    def f(x, w):
        return through(x, np.float32(0.02), zero) @ dequantize_linear(w, S, of_weight, axis=0).T

    assert counts(f, A, W) == 1
    agrees(f, A, W)


def test_sums_are_of_32_bits():
    """Vectors of 64-bit integers are slow to convert, and 64-bit types are on for models."""

    def f(x, w):
        return through(x, np.float32(0.02), np.int8(3)) @ dequantize_linear(w, S, axis=0).T

    def g(x, w):
        w = dequantize_linear(w, np.float32(0.1), axis=0)
        return lax.conv(through(x, np.float32(0.02), np.int8(3)), w, (1, 1), "SAME")

    with amdjax.enable_x64(True):
        for h, x, w in ((f, A, W), (g, A.reshape(1, 6, 4, 4), W[:, :6, None, None])):
            assert "i64" not in str(amdjax.make_jaxpr(integer_products(h))(x, w))


@pytest.mark.parametrize("zero", [np.uint8(100), np.int8(3), np.int8(0)])
@pytest.mark.parametrize("kernel_zero", [None, np.int8(2)])
@pytest.mark.parametrize("form", ["strided", "dilated", "grouped", "transposed"])
def test_convolution(zero, kernel_zero, form):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 4, 7, 6)).astype(np.float32)
    groups = 2 if form == "grouped" else 1
    w = rng.integers(-127, 128, (8, 4 // groups, 3, 3)).astype(np.int8)
    scale = (rng.random(8) * 0.1 + 0.01).astype(np.float32)
    windows = {
        "strided": {"window_strides": (2, 1), "padding": "SAME"},
        "dilated": {"window_strides": (1, 1), "padding": [(1, 2), (0, 1)], "rhs_dilation": (2, 1)},
        "grouped": {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 2},
        "transposed": {"window_strides": (1, 1), "padding": [(2, 1), (-1, 2)],
                       "lhs_dilation": (2, 3)},
    }[form]  # fmt: skip

    def f(x, w):
        own = None if kernel_zero is None else np.full(8, kernel_zero)
        kernel = dequantize_linear(w, scale, own, axis=0)
        return lax.conv_general_dilated(through(x, np.float32(0.03), zero), kernel, **windows)

    assert counts(f, x, w) == 1
    agrees(f, x, w)


@pytest.mark.parametrize("zero", [None, np.zeros(5, np.int8)])
def test_weights_alone_are_scaled_behind_the_sum(zero):
    f = lambda x, w: x @ dequantize_linear(w, S, zero, axis=0).T
    agrees(f, A, W)
    text = str(amdjax.make_jaxpr(integer_products(f))(A, W))
    assert "mul" in text.split("dot_general")[1]


def test_float8_product():
    def f(x, w):
        form = "float8_e4m3fn"
        x, w = (quantize_linear(v, np.float32(0.1), output_dtype=form) for v in (x, w))
        return dequantize_linear(x, np.float32(0.1)) @ dequantize_linear(w, np.float32(0.1)).T

    text = str(amdjax.make_jaxpr(integer_products(f))(A, A))
    assert text.count("f8e4m3fn[16,6]") or "float8_e4m3fn" in text
    agrees(f, A, A)


def test_what_is_left_in_float():
    scales = np.full((5, 4), 0.1, np.float32)
    along_sum = lambda x, w: x @ dequantize_linear(w, scales, axis=1, block_size=4).T
    moved = lambda x, w: x @ dequantize_linear(w, S, np.arange(5, dtype=np.int8), axis=0).T
    int16 = lambda x: through(x, np.float32(0.1), np.int16(0))
    wide = lambda x, w: int16(x) @ dequantize_linear(w, np.float32(0.5), np.int8(1)).T
    for f in (along_sum, moved, wide):
        assert counts(f, A, W) == 0
        np.testing.assert_array_equal(integer_products(f)(A, W), f(A, W))


def test_pairs_written_with_size_one_axes():
    def f(x, w, zero):
        x = (quantize_linear(x, np.float32(0.02), np.uint8(7)).astype(np.float32) - 7) * 0.02
        return x @ ((w.astype(np.float32) - zero.astype(np.float32)) * S[:, None]).T

    zero = np.arange(5, dtype=np.int8)[:, None]
    assert counts(f, A, W, zero) == 1
    agrees(f, A, W, zero)


PIXELS = np.random.default_rng(2).integers(0, 256, (6, 16)).astype(np.uint8)


@pytest.mark.parametrize(
    "normalized",
    [
        lambda x, mean: (x - np.float32(127.5)) * np.float32(1 / 127.5),
        lambda x, mean: (x - np.float32(300)) * np.float32(0.1),
        lambda x, mean: (x - np.linspace(0, 9, 6, dtype=np.float32)[:, None]) * np.float32(0.1),
        lambda x, mean: (x - mean) * np.float32(0.1),
        lambda x, mean: (x - mean.astype(np.int32)) * np.float32(0.1),
        lambda x, mean: (x[:1] - np.float32(3)) * np.linspace(1, 2, 6, dtype=np.float32)[:, None],
    ],
)
def test_images_are_no_quantized_numbers(normalized):
    """What is subtracted of them is no number of theirs, or they are repeated by the scale."""

    def f(x, w, mean):
        return normalized(x.astype(np.float32), mean) @ dequantize_linear(w, S, axis=0).T

    assert counts(f, PIXELS, W, np.float32(4.5)) == 0
    agrees(f, PIXELS, W, np.float32(4.5))


def test_zero_points_of_float8_are_left_in_float():
    form = "float8_e4m3fn"

    def f(x, w):
        q = quantize_linear(x, np.float32(0.1), output_dtype=form)
        x = (q.astype(np.float32) - np.float32(1)) * np.float32(0.1)
        q = quantize_linear(w, np.float32(0.1), output_dtype=form)
        return x @ dequantize_linear(q, np.float32(0.1)).T

    agrees(f, A, A)


def test_in_a_loop():
    def f(x, w):
        def step(c, w):
            c = through(c, np.float32(0.02), np.int8(0)) @ dequantize_linear(w, np.float32(0.003))
            return jnp.tanh(c), None

        return lax.scan(step, x, w)[0]

    w = np.random.default_rng(0).integers(-127, 128, (3, 16, 16)).astype(np.int8)
    assert counts(f, A, w) == 1
    # A difference of rounding may move a number by a step of the next layer.
    np.testing.assert_allclose(integer_products(f)(A, w), f(A, w), atol=2e-6)
