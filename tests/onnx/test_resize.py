"""Resize of open sizes: one program for all of them, whose places are those of known sizes."""

import itertools

import numpy as np
import pytest

import amdjax

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from amdjax.onnx import load

SIZES = [(4, 6), (5, 4), (9, 16), (10, 7)]
PLACES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


def resizing(scales=None, times=None, roi=None, opset=19, **attributes):
    """A model of one Resize, by scales or to `shape * times[0] // times[1]`."""
    constants, nodes = {}, []
    if scales is not None:
        constants["scales"] = np.float32(scales)
        inputs = ["x", "roi" if roi else "", "scales"]
    else:
        constants |= {"times": np.int64(times[0]), "parts": np.int64(times[1])}
        nodes = [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Mul", ["shape", "times"], ["product"]),
            helper.make_node("Div", ["product", "parts"], ["sizes"]),
        ]
        inputs = ["x", "roi" if roi else "", "", "sizes"]
    if roi:
        constants["roi"] = np.float32(roi)
    nodes.append(helper.make_node("Resize", inputs, ["y"], **attributes))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["h", "w"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    values = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(proto, sizes=SIZES, oracle=None):
    """One trace serves all sizes, and gives what programs of known sizes and the oracle do."""
    model, traces = load(proto), []

    def function(x):
        traces.append(x.shape)
        return model.function({}, x=x)["y"]

    run = amdjax.jit(function, symbolic="h, w")
    oracle = oracle or ReferenceEvaluator(proto)
    for h, w in sizes:
        x = np.random.default_rng(h).standard_normal((h, w)).astype(np.float32)
        want = oracle.run(None, {"x": x})[0]
        got = np.asarray(run(x))
        np.testing.assert_allclose(got, want, atol=1e-5)
        np.testing.assert_allclose(got, model.function({}, x=x)["y"], atol=1e-6)
    assert len(traces) == 1, traces


@pytest.mark.turns(4)
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(places, nearest):
    """Which sample is nearest hangs on the last bit of a place, as at sizes of ratio 5 : 3."""
    how = dict(mode="nearest", coordinate_transformation_mode=places, nearest_mode=nearest)
    check(resizing(times=([5, 1], [3, 2]), **how))
    check(resizing(scales=[3, 1.5], **how), sizes=SIZES[2:])


def test_nearest_as_in_opset_11():
    ort = pytest.importorskip("onnxruntime")
    how = dict(mode="nearest", coordinate_transformation_mode="tf_half_pixel_for_nn")
    proto = resizing(scales=[3, 1.5], roi=[0, 0, 1, 1], nearest_mode="floor", opset=11, **how)
    check(proto, oracle=ort.InferenceSession(proto.SerializeToString()))


@pytest.mark.turns(4)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("places", [*PLACES, "half_pixel_symmetric"])
def test_interpolation(mode, places):
    how = dict(mode=mode, coordinate_transformation_mode=places)
    check(resizing(scales=[2, 0.5], **how), sizes=[(5, 4), (9, 16)])
    check(resizing(times=([3, 5], [2, 3]), **how))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("option", ["antialias", "exclude_outside"])
def test_low_pass_and_excluded_samples(mode, option):
    """How many samples a kernel reaches follows from the sizes."""
    how = {"mode": mode, option: 1}
    check(resizing(scales=[0.5, 1.5], **how), sizes=[(8, 4), (10, 16)])
    check(resizing(times=([1, 5], [2, 3]), **how))


def test_regions():
    """Samples beyond the image are a number."""
    how = dict(mode="linear", coordinate_transformation_mode="tf_crop_and_resize")
    check(
        resizing(times=([2, 3], [1, 2]), roi=[0.1, 0.2, 0.8, 1.25], extrapolation_value=3.0, **how)
    )


def test_scales_are_fractions_that_were_rounded():
    """Ten times the float32 nearest to 0.7 are 7 samples, as in PyTorch and onnxruntime."""
    ort = pytest.importorskip("onnxruntime")
    for scale, size in itertools.product([0.7, 1.3, 1 / 3], [10, 30]):
        proto = resizing(scales=[scale, 1], mode="linear")
        x = np.random.default_rng(0).standard_normal((size, 5)).astype(np.float32)
        session = ort.InferenceSession(proto.SerializeToString())
        want = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(load(proto).function({}, x=x)["y"], want, atol=2e-5)
