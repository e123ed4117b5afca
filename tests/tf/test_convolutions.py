"""Convolutions, pooling, normalization and resizing of images, in both layouts, against NumPy."""

import numpy as np
import pytest
from numpy import float32 as f32, int32 as i32

from amdjax import tf
from tests.support.tf_graphs import Builder
from tests.support.tf_references import conv, pool

rng = np.random.default_rng(3)
X = rng.normal(size=(2, 7, 8, 4)).astype(f32)
PADDINGS = ("SAME", "VALID", ((1, 2), (0, 1)))
WINDOWS = [(2, 1, 1), (1, 1, 2), (3, 2, 1)]  # strides, dilations, groups


def first(x):
    return np.moveaxis(x, -1, 1)


def run(op, x, others, layout, **attributes):
    """The first result of an operator on images given in a layout; channels last again."""
    is_first = layout.startswith("NC")
    graph = Builder()
    given = first(x) if is_first else x
    name = graph.input("x", given.shape)
    constants = [graph.typed(v) for v in others]
    graph.op(op, name, *constants, name="y", data_format=layout, **attributes)
    made = np.asarray(tf.load(graph.bytes())(x=given)["y"])
    return np.moveaxis(made, 1, -1) if is_first else made


def spread(values, layout):
    """Values of spatial axes as an attribute has them."""
    return [1, 1, *values] if layout.startswith("NC") else [1, *values, 1]


def padded(padding, layout):
    if isinstance(padding, str):
        return {"padding": padding}
    flat = [n for pair in padding for n in pair]
    pads = [0] * 4 + flat if layout.startswith("NC") else [0, 0, *flat, 0, 0]
    return {"padding": "EXPLICIT", "explicit_paddings": pads}


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("padding", PADDINGS, ids=str)
@pytest.mark.parametrize("stride, dilation, groups", WINDOWS)
def test_conv(layout, padding, stride, dilation, groups):
    kernel = rng.normal(size=(3, 2, 4 // groups, 6)).astype(f32)
    strides, apart = (stride, 1), (dilation, 1)
    made = run(
        "Conv2D", X, [kernel], layout, strides=spread(strides, layout),
        dilations=spread(apart, layout), **padded(padding, layout),
    )  # fmt: skip
    np.testing.assert_allclose(made, conv(X, kernel, strides, apart, padding), 1e-5, 1e-5)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("padding", PADDINGS, ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_conv(layout, padding, stride):
    kernel = rng.normal(size=(3, 3, 4, 2)).astype(f32)
    made = run(
        "DepthwiseConv2dNative", X, [kernel], layout, strides=spread((stride, stride), layout),
        **padded(padding, layout),
    )  # fmt: skip
    expected = conv(X, kernel.reshape(3, 3, 1, 8), (stride, stride), (1, 1), padding)
    np.testing.assert_allclose(made, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("layout", ["NDHWC", "NCDHW"])
def test_conv_3d(layout):
    x = rng.normal(size=(1, 4, 5, 6, 2)).astype(f32)
    kernel = rng.normal(size=(2, 3, 2, 2, 3)).astype(f32)
    made = run("Conv3D", x, [kernel], layout, strides=spread((1, 2, 2), layout), padding="SAME")
    expected = conv(x, kernel, (1, 2, 2), (1, 1, 1), "SAME")
    np.testing.assert_allclose(made, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("padding", PADDINGS, ids=str)
def test_transposed_conv_is_the_adjoint(layout, padding):
    """<conv(x), y> is <x, transposed(y)> for all x and y."""
    kernel = rng.normal(size=(3, 2, 4, 5)).astype(f32)
    x = X[:, :, :7]
    forward = conv(x, kernel, (2, 2), (1, 1), padding)
    y = rng.normal(size=forward.shape).astype(f32)
    shape = first(x).shape if layout == "NCHW" else x.shape
    graph = Builder()
    given = first(y) if layout == "NCHW" else y
    graph.op(
        "Conv2DBackpropInput", graph.const(list(shape)), graph.typed(kernel),
        graph.input("y", given.shape), name="x", data_format=layout,
        strides=spread((2, 2), layout), **padded(padding, layout),
    )  # fmt: skip
    made = np.asarray(tf.load(graph.bytes())(y=given)["x"])
    assert made.shape == tuple(shape)
    made = np.moveaxis(made, 1, -1) if layout == "NCHW" else made
    np.testing.assert_allclose((forward * y).sum(), (x * made).sum(), 1e-5)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("op", ["MaxPool", "AvgPool"])
def test_pool(op, layout, padding, stride):
    size, strides = (3, 2), (stride, 2)
    made = run(
        op, X, [], layout, ksize=spread(size, layout), strides=spread(strides, layout),
        padding=padding,
    )  # fmt: skip
    np.testing.assert_allclose(made, pool(op, X, size, strides, padding), 1e-5, 1e-6)


@pytest.mark.parametrize("layout", ["NDHWC", "NCDHW"])
@pytest.mark.parametrize("op", ["MaxPool3D", "AvgPool3D"])
def test_pool_3d(op, layout):
    x = rng.normal(size=(1, 4, 5, 6, 2)).astype(f32)
    size, strides = (2, 3, 2), (1, 2, 2)
    made = run(
        op, x, [], layout, ksize=spread(size, layout), strides=spread(strides, layout),
        padding="SAME",
    )  # fmt: skip
    np.testing.assert_allclose(made, pool(op, x, size, strides, "SAME"), 1e-5, 1e-6)


def test_windows_may_be_inputs():
    made = run("MaxPoolV2", X, [i32([1, 2, 2, 1]), i32([1, 2, 2, 1])], "NHWC", padding="SAME")
    np.testing.assert_array_equal(made, pool("MaxPool", X, (2, 2), (2, 2), "SAME"))


def test_padding_of_max_pool_may_be_explicit():
    made = run(
        "MaxPool", X, [], "NHWC", ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1],
        **padded(((1, 1), (1, 1)), "NHWC"),
    )  # fmt: skip
    np.testing.assert_array_equal(made, pool("MaxPool", X, (3, 3), (2, 2), ((1, 1), (1, 1))))


def test_integers_are_pooled():
    x = rng.integers(-9, 9, (1, 4, 4, 1)).astype(i32)
    graph = Builder()
    graph.op(
        "MaxPool", graph.input("x", x.shape, i32), name="y", ksize=[1, 3, 3, 1],
        strides=[1, 2, 2, 1], padding="SAME",
    )  # fmt: skip
    made = tf.load(graph.bytes())(x=x)["y"]
    np.testing.assert_array_equal(made, pool("MaxPool", x, (3, 3), (2, 2), "SAME"))


STATISTICS = [rng.normal(size=4).astype(f32) for _ in range(3)] + [
    np.abs(rng.normal(size=4)).astype(f32)
]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("op", ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"])
def test_batch_norm(op, layout):
    scale, offset, mean, variance = STATISTICS
    made = run(op, X, STATISTICS, layout, is_training=False, epsilon=1e-3)
    expected = (X - mean) / np.sqrt(variance + 1e-3) * scale + offset
    np.testing.assert_allclose(made, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_batch_norm_in_training(factor):
    scale, offset, mean, variance = STATISTICS
    graph = Builder()
    names = [graph.typed(v) for v in STATISTICS]
    graph.op(
        "FusedBatchNormV3", graph.input("x", (None, 7, 8, 4)), *names, name="y",
        exponential_avg_factor=factor,
    )  # fmt: skip
    y, new_mean, new_variance, used, *_ = tf.load(
        graph.bytes(), outputs=[f"y:{i}" for i in range(6)]
    )(x=X).values()
    rows = X.reshape(-1, 4).astype(np.float64)
    expected = (X - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-4) * scale + offset
    np.testing.assert_allclose(y, expected, 1e-5, 1e-5)
    np.testing.assert_allclose(used, rows.mean(0), 1e-5, 1e-6)
    moved = lambda old, new: old + (new - old) * factor
    np.testing.assert_allclose(new_mean, moved(mean, rows.mean(0)), 1e-5, 1e-6)
    np.testing.assert_allclose(new_variance, moved(variance, rows.var(0, ddof=1)), 1e-5)


def test_local_response():
    graph = Builder()
    graph.op("LRN", graph.input("x", X.shape), name="y", depth_radius=1, bias=2.0, alpha=0.5)
    squares = np.pad(X.astype(np.float64) ** 2, [(0, 0)] * 3 + [(1, 1)])
    total = squares[..., :-2] + squares[..., 1:-1] + squares[..., 2:]
    expected = X / np.sqrt(2 + 0.5 * total)
    np.testing.assert_allclose(tf.load(graph.bytes())(x=X)["y"], expected, 1e-5)


def centers(n, new, how, is_nearest):
    at = np.arange(new)
    if how == "align_corners":
        return at * ((n - 1) / (new - 1) if new > 1 else n / new)
    if how == "half_pixel_centers":
        return (at + 0.5) * (n / new) - (0 if is_nearest else 0.5)
    return at * (n / new)


HOW = ["", "align_corners", "half_pixel_centers"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("new", [(14, 3), (5, 1), (7, 16)], ids=str)
@pytest.mark.parametrize("op", ["ResizeBilinear", "ResizeNearestNeighbor"])
def test_resize(op, new, how):
    graph = Builder()
    flags = {how: True} if how else {}
    graph.op(op, graph.input("x", (None, 7, 8, 4)), graph.const(list(new)), name="y", **flags)
    expected = X.astype(np.float64)
    for axis, size in zip((1, 2), new):
        n = expected.shape[axis]
        at = centers(n, size, how, op != "ResizeBilinear")
        if op == "ResizeBilinear":
            low = np.clip(np.floor(at), 0, n - 1).astype(int)
            high = np.clip(np.ceil(at), 0, n - 1).astype(int)
            part = (at - np.floor(at)).reshape([-1 if i == axis else 1 for i in range(4)])
            low, high = (expected.take(i, axis) for i in (low, high))
            expected = low + (high - low) * part
        else:
            index = np.floor(at + 0.5) if how == "align_corners" else np.floor(at)
            expected = expected.take(np.clip(index, 0, n - 1).astype(int), axis)
    np.testing.assert_allclose(tf.load(graph.bytes())(x=X)["y"], expected, 1e-5, 1e-5)


def test_sizes_of_images_may_be_open():
    """Padding, and places of pixels, are computed of sizes that differ from call to call."""
    graph = Builder()
    x = graph.input("x", (None, None, None, 3))
    kernel = graph.typed(rng.normal(size=(3, 3, 3, 4)).astype(f32), "kernel")
    y = graph.op("Conv2D", x, kernel, strides=[1, 2, 2, 1], padding="SAME")
    y = graph.op("AvgPool", y, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME")
    shape = graph.op("Shape", x)
    size = graph.op(
        "StridedSlice", shape, graph.const([1]), graph.const([3]), graph.const([1]), name="size"
    )
    graph.op("ResizeBilinear", y, size, name="y", half_pixel_centers=True)
    model = tf.load(graph.bytes())
    assert model.outputs[0].shape == ("batch", "x_1", "x_2", 4)
    for n, h, w in [(1, 8, 9), (2, 11, 6), (3, 5, 5)]:
        images = rng.normal(size=(n, h, w, 3)).astype(f32)
        part = conv(images, model.params["kernel"], (2, 2), (1, 1), "SAME")
        part = pool("AvgPool", part, (3, 3), (2, 2), "SAME")
        for axis, new in ((1, h), (2, w)):
            m = part.shape[axis]
            at = centers(m, new, "half_pixel_centers", False)
            low, high = (np.clip(f(at), 0, m - 1).astype(int) for f in (np.floor, np.ceil))
            share = (at - np.floor(at)).reshape([-1 if i == axis else 1 for i in range(4)])
            part = part.take(low, axis) * (1 - share) + part.take(high, axis) * share
        np.testing.assert_allclose(model(x=images)["y"], part, 1e-5, 1e-5)
