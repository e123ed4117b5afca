"""Operators of com.microsoft that are no attention, against float64."""

import math

import numpy as np
import pytest

from amdjax.onnx import OnnxError
from tests.support.onnx_nodes import run_node

RNG = np.random.default_rng(0)
ERF = np.vectorize(math.erf)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def run(op, inputs, outputs=1, **attributes):
    return run_node(op, inputs, outputs, domain="com.microsoft", opset=17, **attributes)


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def gelu(x):
    return x * (1 + ERF(x / np.sqrt(2))) / 2


def layer_norm(x, scale, shift, epsilon):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(
        x.var(-1, keepdims=True) + epsilon
    ) * scale + shift


def test_activations():
    x, b = floats(2, 3, 8), floats(8)
    wide = x.astype(np.float64)
    close(run("Gelu", [x]), gelu(wide))
    close(run("BiasGelu", [x, b]), gelu(wide + b))
    tanh = np.tanh(np.sqrt(2 / np.pi) * (wide + b + 0.044715 * (wide + b) ** 3))
    close(run("FastGelu", [x, b]), (wide + b) * (1 + tanh) / 2)
    close(run("QuickGelu", [x], alpha=1.5), wide / (1 + np.exp(-1.5 * wide)))
    first, second = np.split(wide + b, 2, -1)
    close(run("BiasSplitGelu", [x, b]), first * gelu(second))
    close(run("BiasAdd", [x, b, x]), wide + b + x)


@pytest.mark.parametrize("outputs", [1, 4])
def test_norms_of_sums(outputs):
    x, skip, scale, shift, bias = floats(2, 3, 8), floats(3, 8), floats(8), floats(8), floats(8)
    total = x.astype(np.float64) + skip + bias
    got = run("SkipLayerNormalization", [x, skip, scale, shift, bias], outputs, epsilon=1e-5)
    made = [got] if outputs == 1 else got
    inverse = 1 / np.sqrt(total.var(-1, keepdims=True) + 1e-5)
    want = [layer_norm(total, scale, shift, 1e-5), total.mean(-1, keepdims=True), inverse, total]
    for a, b in zip(made, want):
        close(a, b)
    got = run("SkipSimplifiedLayerNormalization", [x, skip, scale, bias], outputs, epsilon=1e-5)
    inverse = 1 / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5)
    close(got if outputs == 1 else got[0], total * inverse * scale)
    if outputs == 4:
        close(got[2], inverse)
        close(got[3], total)
        alone = run_node("SimplifiedLayerNormalization", [total.astype(np.float32), scale], 2)
        close(alone[0], total * inverse * scale)


@pytest.mark.parametrize("last", [0, 1])
def test_groups_of_channels(last):
    x, scale, shift = floats(2, 8, 3, 3), floats(8), floats(8)
    wide = x.astype(np.float64).reshape(2, 4, -1)
    want = (
        layer_norm(wide, 1, 0, 1e-5).reshape(x.shape) * scale[:, None, None] + shift[:, None, None]
    )
    want = want / (1 + np.exp(-want))
    given = x.transpose(0, 2, 3, 1) if last else x
    got = run("GroupNorm", [given, scale, shift], groups=4, activation=1, channels_last=last)
    close(got, want.transpose(0, 2, 3, 1) if last else want)


@pytest.mark.parametrize("form", [
    ({"transA": 1}, (2, 4, 3), (2, 4, 5), "bki,bkj->bij"),
    ({"transB": 1, "alpha": 0.5}, (2, 3, 4), (2, 5, 4), "bik,bjk->bij"),
    ({"transBatchA": 1, "transBatchB": 1, "transB": 1}, (3, 2, 4), (5, 2, 4), "ibk,jbk->bij"),
    ({"transBatchA": 1, "transA": 1}, (4, 2, 3), (2, 4, 5), "kbi,bkj->bij"),
])  # fmt: skip
def test_products_of_transposed_operands(form):
    attributes, first, second, sums = form
    a, b = floats(*first), floats(*second)
    want = np.einsum(sums, a.astype(np.float64), b) * attributes.get("alpha", 1)
    close(run("FusedMatMul", [a, b], **attributes), want)


def test_convolutions_with_an_end():
    x, w, b, z = floats(1, 4, 5, 5), floats(6, 4, 1, 1), floats(6), floats(1, 6, 5, 5)
    y = np.einsum("nchw,mc->nmhw", x.astype(np.float64), w[..., 0, 0]) + b[:, None, None]
    close(run("FusedConv", [x, w, b, z], activation="Relu"), np.maximum(y + z, 0))
    got = run("FusedConv", [x, w, b], activation="Clip", activation_params=[-0.5, 0.5])
    close(got, np.clip(y, -0.5, 0.5))
    last = lambda v: np.ascontiguousarray(v.transpose(0, 2, 3, 1))
    close(run("NhwcConv", [last(x), last(w), b]), y.transpose(0, 2, 3, 1))
    with pytest.raises(OnnxError, match=r"'FusedConv_0'.*activation must be of"):
        run("FusedConv", [x, w], activation="Never")


@pytest.mark.parametrize("kind", [0, 1])
def test_weights_of_sixteen_values(kind):
    a, bytes_ = floats(3, 32), RNG.integers(0, 256, 6 * 32 // 2).astype(np.uint8)
    largest = abs(floats(6 * 32 // 16))
    numbers = np.stack([bytes_ >> 4, bytes_ & 15], -1).ravel()
    rows = [run("MatMulBnb4", [np.ones((1, 32), np.float32), np.full(16, n * 17, np.uint8),
                               np.ones(2, np.float32)], K=32, N=1, block_size=16, quant_type=kind)
            for n in range(16)]  # fmt: skip
    table = np.array(rows).ravel() / 32
    assert table.min() == -1 and table.max() == 1 and len(set(table.round(6))) >= 15
    w = (table[numbers] * np.repeat(largest, 16)).reshape(6, 32)
    got = run("MatMulBnb4", [a, bytes_, largest], K=32, N=6, block_size=16, quant_type=kind)
    np.testing.assert_allclose(got, a @ w.T, rtol=1e-4, atol=1e-5)


def test_integer_products_as_floats():
    a, b = (
        RNG.integers(0, 256, (5, 7)).astype(np.uint8),
        RNG.integers(-128, 128, (7, 4)).astype(np.int8),
    )
    scale, bias = np.array([0.1, 0.2, 0.3, 0.4], np.float32), floats(4)
    zeros = np.uint8(7), np.int8(-3)
    exact = (a.astype(np.float64) - 7) @ (b.astype(np.float64) + 3) * (
        np.float32(0.5) * scale
    ) + bias
    close(run("MatMulIntegerToFloat", [a, b, np.float32(0.5), scale, *zeros, bias]), exact)
    bias32, step = RNG.integers(-500, 500, 4).astype(np.int32), np.float32(0.5) * scale
    sums = (a.astype(np.float64) - 7) @ (b.astype(np.float64) + 3) + bias32
    operands = [a, np.float32(0.5), zeros[0], b.T, scale, zeros[1], bias32]
    close(run("QGemm", operands, transB=1), sums * step)
    got = run("QGemm", [*operands, np.float32(90), np.uint8(9)], transB=1)
    assert abs(got - np.clip(sums * step / 90 + 9, 0, 255)).max() < 0.501
    x = floats(5, 7)
    exact = x @ ((b.astype(np.float64) + 3) * scale) + bias
    got = run("DynamicQuantizeMatMul", [x, b, scale, zeros[1], bias])
    step = (x.max() - x.min()) / 255
    bound = step / 2 * abs((b.astype(np.float64) + 3) * scale).sum(0) * 1.01
    assert (abs(got - exact) <= bound).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantized_operators_round_what_numbers_give(dtype):
    info = np.iinfo(dtype)
    whole = lambda *shape: RNG.integers(info.min, info.max + 1, shape).astype(dtype)
    a, b, a_zero, b_zero, zero = whole(2, 3, 4), whole(3, 4), whole(), whole(), whole()
    scales = np.float32(0.1), np.float32(0.2), np.float32(0.7)
    x = (a.astype(np.float64) - int(a_zero)) * 0.1
    y = (b.astype(np.float64) - int(b_zero)) * 0.2

    def check(op, inputs, want, **attributes):
        got = run(op, inputs, **attributes).astype(np.float64)
        exact = np.clip(want / 0.7 + int(zero), info.min, info.max)
        assert abs(got - exact).max() < 0.5 + 1e-3

    end, operands = [scales[2], zero], [a, scales[0], a_zero, b, scales[1], b_zero]
    check("QLinearAdd", [*operands, *end], x + y)
    check("QLinearMul", [*operands, *end], x * y)
    check("QLinearSigmoid", [*operands[:3], *end], 1 / (1 + np.exp(-x)))
    check("QLinearLeakyRelu", [*operands[:3], *end], np.where(x < 0, 0.2 * x, x), alpha=0.2)
    joined = np.concatenate([x, np.broadcast_to(y, x.shape)], 1)
    parts = [*operands[:3], np.broadcast_to(b, a.shape).copy(), *operands[4:]]
    check("QLinearConcat", [*end, *parts], joined, axis=1)
    image = whole(1, 3, 4, 4)
    wide = (image.astype(np.float64) - int(a_zero)) * 0.1
    pooled = wide.reshape(1, 3, 2, 2, 2, 2).mean((3, 5))
    given = [image, scales[0], a_zero, *end]
    check("QLinearAveragePool", given, pooled, kernel_shape=[2, 2], strides=[2, 2])
    check("QLinearGlobalAveragePool", given, wide.mean((2, 3), keepdims=True))
    given[0] = np.ascontiguousarray(image.transpose(0, 2, 3, 1))
    means = wide.mean((2, 3))[:, None, None]
    check("QLinearGlobalAveragePool", given, means, channels_last=1)
