"""Integer products are exact, whatever the signs and zero points; blocks and axes of scales."""

import ml_dtypes
import numpy as np
import pytest

import amdjax

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

from amdjax.onnx import load
from tests.support.onnx_nodes import run_node

SIGNS = [(a, b) for a in (np.uint8, np.int8) for b in (np.uint8, np.int8)]


def whole(rng, dtype, *shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, size=shape).astype(dtype)


def wide(x):
    return x.astype(np.int64)


@pytest.mark.parametrize("zeros", ["", "a", "b", "ab", "rows", "columns"])
@pytest.mark.parametrize("signs", SIGNS)
def test_matrices(signs, zeros):
    rng = np.random.default_rng(0)
    a, b = whole(rng, signs[0], 2, 5, 7), whole(rng, signs[1], 7, 4)
    a_zero = b_zero = None
    if zeros in ("a", "ab", "columns"):
        a_zero = whole(rng, signs[0])
    if zeros in ("b", "ab"):
        b_zero = whole(rng, signs[1])
    if zeros == "rows":
        a_zero = whole(rng, signs[0], 5)
    if zeros == "columns":
        b_zero = whole(rng, signs[1], 4)
    left = wide(a) - (0 if a_zero is None else wide(a_zero).reshape(-1, 1))
    right = wide(b) - (0 if b_zero is None else wide(b_zero))
    got = run_node("MatMulInteger", [a, b, a_zero, b_zero])
    assert got.dtype == np.int32
    assert np.array_equal(got, left @ right)


def convolved(x, w, groups, pads, dilation):
    """A convolution of two spatial axes with stride 1, in int64."""
    top, left, bottom, right = pads
    x = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)])
    n, _, h, width = x.shape
    m, per, kh, kw = w.shape
    rows, columns = h - dilation * (kh - 1), width - dilation * (kw - 1)
    y = np.zeros((n, m, rows, columns), np.int64)
    for i in range(kh):
        for j in range(kw):
            part = x[
                :, :, i * dilation : i * dilation + rows, j * dilation : j * dilation + columns
            ]
            parts = part.reshape(n, groups, per, rows, columns)
            kernel = w[:, :, i, j].reshape(groups, m // groups, per)
            y += np.einsum("ngchw,gmc->ngmhw", parts, kernel).reshape(y.shape)
    return y


@pytest.mark.parametrize("zero", ["none", "one", "channel"])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("signs", SIGNS)
def test_convolutions(signs, groups, zero):
    rng = np.random.default_rng(1)
    x, w = whole(rng, signs[0], 2, 4, 6, 5), whole(rng, signs[1], 6, 4 // groups, 3, 3)
    x_zero = whole(rng, signs[0])
    w_zero = {"none": None, "one": whole(rng, signs[1]), "channel": whole(rng, signs[1], 6)}[zero]
    kernel = wide(w) - (0 if w_zero is None else wide(w_zero).reshape(-1, 1, 1, 1))
    want = convolved(wide(x) - wide(x_zero), kernel, groups, (1, 2, 1, 0), 2)
    got = run_node(
        "ConvInteger", [x, w, x_zero, w_zero], group=groups, pads=[1, 2, 1, 0], dilations=[2, 2]
    )
    assert np.array_equal(got, want)


@pytest.mark.parametrize("signs", SIGNS[:1] + SIGNS[2:])
def test_quantized_products_are_rounded_once(signs):
    rng = np.random.default_rng(2)
    a, b = whole(rng, signs[0], 5, 7), whole(rng, signs[1], 7, 4)
    a_zero, b_zero, y_zero = whole(rng, signs[0]), whole(rng, signs[1], 4), whole(rng, signs[0])
    scales = np.float32(0.02), np.array([0.01, 0.02, 0.03, 0.04], np.float32), np.float32(1.7)
    product = (wide(a) - wide(a_zero)) @ (wide(b) - wide(b_zero))
    exact = product * (scales[0] * scales[1] / scales[2]).astype(np.float64)
    info = np.iinfo(signs[0])
    want = np.clip(np.rint(exact) + int(y_zero), info.min, info.max)
    got = run_node("QLinearMatMul", [a, scales[0], a_zero, b, scales[1], b_zero, scales[2], y_zero])
    assert got.dtype == signs[0]
    assert np.array_equal(got, want)


@pytest.mark.parametrize("dtype", [
    np.uint8, np.int8, np.uint16, np.int16, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2,
    ml_dtypes.uint2,
])  # fmt: skip
@pytest.mark.parametrize("form", ["tensor", "axis", "block"])
def test_values_return_from_their_dtype(dtype, form):
    """Multiples of the scale in range are what they were; those beyond take the nearest."""
    info = ml_dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    shape = {"tensor": (), "axis": (4,), "block": (3, 2)}[form]
    scale = np.asarray(2.0 ** np.arange(np.prod(shape, dtype=int)).reshape(shape), np.float32)
    zero = np.full(shape, 1, dtype)
    attributes = {"tensor": {}, "axis": {"axis": 1}, "block": {"axis": 1, "block_size": 3}}[form]
    beside = np.repeat(scale, 3, 1)[:, :4] if form == "block" else scale
    steps = np.array([[low - 9, low - 1, low, 0], [high - 1, high, 1, -1], [high + 7, 1, 0, 1]])
    x = (steps * beside).astype(np.float32)
    q = run_node("QuantizeLinear", [x, scale, zero], opset=25, **attributes)
    assert q.dtype == dtype
    want = np.clip(steps + 1, low, high)
    assert np.array_equal(q.astype(np.int64), want)
    y = run_node("DequantizeLinear", [q, scale, zero], opset=25, **attributes)
    assert np.array_equal(y, (want - 1) * beside)


def test_halves_go_to_even_numbers():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
    zero = np.array(128, np.uint8)
    got = run_node("QuantizeLinear", [x, np.float32(1), zero])
    assert np.array_equal(got, [128, 130, 130, 128, 126])


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"])
def test_floats_of_eight_bits_saturate_if_asked(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    largest = float(ml_dtypes.finfo(dtype).max)
    x, zero = np.array([1e6, -1e6, 1.0], np.float32), np.zeros((), dtype)
    got = run_node("QuantizeLinear", [x, np.float32(0.5), zero])
    assert np.array_equal(got.astype(np.float32), [largest, -largest, 2])
    got = run_node("QuantizeLinear", [x, np.float32(0.5), zero], saturate=0)
    assert not np.isfinite(got[:2].astype(np.float32)).any()


@pytest.mark.parametrize("x", [[0.0, 0.0], [-1.0, 3.0], [2.0, 5.0], [-4.0, -1.0]])
def test_a_range_that_is_measured_contains_zero(x):
    x = np.array(x, np.float32)
    y, scale, zero = run_node("DynamicQuantizeLinear", [x], 3)
    low, high = min(x.min(), 0), max(x.max(), 0)
    assert scale == np.float32((high - low or 1) / 255)
    assert abs((y.astype(np.float32) - zero) * scale - x).max() <= scale / 2 * (1 + 1e-6)


def pairs(zero_dtype):
    """A network as exporters quantize it: a pair before each operand, the bias in int32."""
    rng = np.random.default_rng(0)
    zero = np.asarray(0 if zero_dtype == np.int8 else 117, zero_dtype)
    w, v = rng.integers(-128, 128, (6, 3, 3, 3)), rng.integers(-128, 128, (6, 5))
    constants = {
        "w": w.astype(np.int8), "v": v.astype(np.int8), "b": np.arange(6, dtype=np.int32) * 100,
        "w_scale": rng.uniform(1e-3, 2e-3, 6).astype(np.float32), "w_zero": np.zeros(6, np.int8),
        "v_scale": np.float32(0.01), "s": np.float32(0.03), "z": zero, "zero": np.int8(0),
        "b_scale": np.float32(1e-4), "axes": np.int64([2, 3]),
    }  # fmt: skip
    op = helper.make_node
    nodes = [
        op("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        op("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        op("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wd"], axis=0),
        op("DequantizeLinear", ["b", "b_scale"], ["bd"]),
        op("Conv", ["xd", "wd", "bd"], ["h"], pads=[1] * 4),
        op("Relu", ["h"], ["r"]),
        op("QuantizeLinear", ["r", "s", "z"], ["rq"]),
        op("DequantizeLinear", ["rq", "s", "z"], ["rd"]),
        op("ReduceMean", ["rd", "axes"], ["m"], keepdims=0),
        op("QuantizeLinear", ["m", "s", "z"], ["mq"]),
        op("DequantizeLinear", ["mq", "s", "z"], ["md"]),
        op("DequantizeLinear", ["v", "v_scale", "zero"], ["vd"]),
        op("MatMul", ["md", "vd"], ["y"]),
    ]
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, ["n", 3, 8, 8])]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", TensorProto.FLOAT, ["n", 5])], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), constants


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_products_between_pairs_are_of_integers(dtype):
    """Weights stay in 8 bits, small ones too, and sums are exact."""
    proto, constants = pairs(dtype)
    made = load(proto)
    assert {made.params[n].dtype for n in ("w", "v")} == {np.dtype(np.int8)}
    x = np.random.default_rng(1).standard_normal((2, 3, 8, 8), dtype=np.float32)
    info, s, z = np.iinfo(dtype), np.float32(0.03), int(constants["z"])

    def rounded(y):
        return np.clip(np.round((y / s).astype(np.float32)) + z, info.min, info.max) - z

    w, v = wide(constants["w"]), wide(constants["v"])
    sums = convolved(rounded(x).astype(np.int64), w, 1, (1, 1, 1, 1), 1)
    step = s.astype(np.float64) * constants["w_scale"].reshape(-1, 1, 1)
    bias = (constants["b"] * np.float64(np.float32(1e-4))).reshape(-1, 1, 1)
    h = np.maximum(sums * step + bias, 0)
    mean = (rounded(h) * np.float64(s)).mean((2, 3))
    want = rounded(mean).astype(np.int64) @ v * (np.float64(s) * np.float64(np.float32(0.01)))
    text = str(amdjax.make_jaxpr(made.function)(made.params, x))
    assert text.count("preferred_element_type=int32") == 2
    assert "preferred_element_type=float32" not in text
    for n in (2, 1):  # the second size is symbolic
        np.testing.assert_allclose(made(x[:n])["y"], want[:n], rtol=1e-6)
