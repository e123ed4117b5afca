"""Whole graphs against NumPy in float64: networks, transformations, functions, control flow."""

import math
import warnings

import numpy as np
import pytest
from numpy import float32 as f32, int32 as i32

import amdjax
import amdjax.numpy as jnp
from amdjax import tf
from tests.support.tf_graphs import Builder, Func, Shape, attribute, messages, saved_model
from tests.support.tf_references import conv

rng = np.random.default_rng(11)


def weights(*shape):
    return (rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1]) or 1)).astype(f32)


class MobileNet:
    """A convolution, blocks of a depthwise and a 1×1 one, a mean, and a dense layer."""

    def __init__(self, layout="NHWC", size=16):
        self.layout, self.graph, self.steps = layout, Builder(), []
        shape = (None, size, size, 3) if layout == "NHWC" else (None, 3, size, size)
        y = self.graph.input("image", shape)
        y = self.block(y, "Conv2D", weights(3, 3, 3, 8), 2)
        for stride, channels in ((1, 12), (2, 16)):
            depth = 8 if channels == 12 else 12
            y = self.block(y, "DepthwiseConv2dNative", weights(3, 3, depth, 1), stride)
            y = self.block(y, "Conv2D", weights(1, 1, depth, channels), 1)
        axes = [1, 2] if layout == "NHWC" else [2, 3]
        y = self.graph.op("Mean", y, self.graph.const(axes), keep_dims=True)
        shape = self.graph.op("Shape", y)
        batch = self.graph.op(
            "StridedSlice", shape, *(self.graph.const([n]) for n in (0, 1, 1)), shrink_axis_mask=1
        )
        y = self.graph.op("Reshape", y, self.graph.op("Pack", batch, self.graph.const(-1)))
        self.dense, self.bias = weights(16, 5), weights(5)
        y = self.graph.op("MatMul", y, self.graph.typed(self.dense, "dense"))
        y = self.graph.op("BiasAdd", y, self.graph.typed(self.bias, "bias"))
        self.graph.op("Softmax", y, name="probabilities")

    def block(self, x, op, kernel, stride):
        depth = kernel.shape[2] if op.startswith("Depth") else kernel.shape[3]
        statistics = [weights(depth) for _ in range(3)] + [np.abs(weights(depth))]
        strides = [1, stride, stride, 1] if self.layout == "NHWC" else [1, 1, stride, stride]
        attributes = {"data_format": self.layout}
        name = f"kernel{len(self.steps)}"
        y = self.graph.op(
            op, x, self.graph.typed(kernel, name), strides=strides, padding="SAME", **attributes
        )
        y = self.graph.op(
            "FusedBatchNormV3", y, *map(self.graph.typed, statistics), is_training=False,
            epsilon=1e-3, **attributes,
        )  # fmt: skip
        self.steps.append((op, kernel, stride, statistics))
        return self.graph.op("Relu6", y)

    def reference(self, x):
        x = np.asarray(x, np.float64)
        for op, kernel, stride, (scale, offset, mean, variance) in self.steps:
            if op.startswith("Depth"):
                kernel = kernel.reshape(*kernel.shape[:2], 1, -1)
            x = conv(x, kernel, (stride, stride), (1, 1), "SAME")
            x = (x - mean) / np.sqrt(variance + 1e-3) * scale + offset
            x = np.clip(x, 0, 6)
        x = x.mean((1, 2)) @ self.dense + self.bias
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)


def test_mobilenet_of_any_batch():
    network = MobileNet()
    model = tf.load(network.graph.bytes())
    assert str(model.inputs[0]) == "image: float32[batch,16,16,3]"
    assert str(model.outputs[0]) == "probabilities: float32[batch,5]"
    for n in (1, 2, 5):
        x = rng.normal(size=(n, 16, 16, 3)).astype(f32)
        np.testing.assert_allclose(model(x)["probabilities"], network.reference(x), 1e-5, 1e-6)


def test_images_may_be_given_in_the_other_layout():
    network = MobileNet("NCHW", 8)
    model = tf.load(network.graph.bytes(), layout="NHWC", dims={"batch": 2})
    assert model.inputs[0].shape == (2, 8, 8, 3)
    x = rng.normal(size=(2, 8, 8, 3)).astype(f32)
    np.testing.assert_allclose(model(x)["probabilities"], network.reference(x), 1e-5, 1e-6)
    same = tf.load(network.graph.bytes(), layout="NCHW")
    assert same.inputs[0].shape == ("batch", 3, 8, 8)
    made = same(np.moveaxis(x, -1, 1))["probabilities"]
    np.testing.assert_allclose(made, network.reference(x), 1e-5, 1e-6)


def test_parameters_are_the_weights():
    model = tf.load(MobileNet().graph.bytes())
    assert {"dense", "bias", *(f"kernel{i}" for i in range(5))} <= set(model.params)
    assert all(v.dtype == f32 and v.ndim for v in model.params.values())
    text = str(model)
    assert "image: float32[batch,16,16,3]" in text and "DepthwiseConv2dNative 2" in text


class Bert:
    """Embeddings, and a layer of attention, written out as exporters do."""

    def __init__(self, width=8, heads=2, words=20, longest=12):
        self.width, self.heads = width, heads
        g = self.graph = Builder()
        ids = g.input("ids", (None, None), i32)
        mask = g.input("mask", (None, None), i32)
        self.w = {
            name: weights(*shape)
            for name, shape in {
                "words": (words, width), "places": (longest, width), "q": (width, width),
                "k": (width, width), "v": (width, width), "o": (width, width), "up": (width, 16),
                "down": (16, width), "gamma": (width,), "beta": (width,), "bias": (width,),
            }.items()
        }  # fmt: skip
        self.names = {name: g.typed(value, name) for name, value in self.w.items()}
        x = g.op("GatherV2", self.names["words"], ids, g.const(0))
        self.batch, self.length = self.sizes(ids)
        size = g.op("Pack", self.length, g.const(-1))
        places = g.op("Slice", self.names["places"], g.const([0, 0]), size)
        x = self.norm(g.op("AddV2", x, g.op("ExpandDims", places, g.const(0))))
        x = self.norm(g.op("AddV2", x, self.attention(x, mask)))
        x = self.norm(g.op("AddV2", x, self.mlp(x)))
        first = g.op(
            "StridedSlice", x, *(g.const([0, n, 0]) for n in (0, 1)), g.const([1, 1, 1]),
            begin_mask=5, end_mask=5, shrink_axis_mask=2,
        )  # fmt: skip
        g.op("Tanh", first, name="pooled")
        g.op("Identity", x, name="encoded")

    def sizes(self, x):
        g = self.graph
        shape = g.op("Shape", x)
        return [
            g.op("StridedSlice", shape, *(g.const([n]) for n in (i, i + 1, 1)), shrink_axis_mask=1)
            for i in range(2)
        ]

    def norm(self, x):
        g = self.graph
        axis = g.const([-1])
        mean = g.op("Mean", x, axis, keep_dims=True)
        variance = g.op(
            "Mean", g.op("SquaredDifference", x, g.op("StopGradient", mean)), axis, keep_dims=True
        )
        factor = g.op("Rsqrt", g.op("AddV2", variance, g.typed(f32(1e-6))))
        factor = g.op("Mul", factor, self.names["gamma"])
        shift = g.op("Sub", self.names["beta"], g.op("Mul", mean, factor))
        return g.op("AddV2", g.op("Mul", x, factor), shift)

    def attention(self, x, mask):
        g = self.graph
        part = g.const(self.width // self.heads)
        split = g.op("Pack", self.batch, self.length, g.const(self.heads), part)
        rows = g.op("Reshape", x, g.const([-1, self.width]))
        found = []
        for name in "qkv":
            y = g.op("MatMul", rows, self.names[name])
            y = g.op("BiasAdd", y, self.names["bias"])
            found.append(g.op("Transpose", g.op("Reshape", y, split), g.const([0, 2, 1, 3])))
        q, k, v = found
        scores = g.op("BatchMatMulV2", q, k, adj_y=True)
        scores = g.op("Mul", scores, g.typed(f32(1 / np.sqrt(self.width / self.heads))))
        kept = g.op("Cast", g.op("ExpandDims", mask, g.const([1])), DstT=f32)
        kept = g.op("ExpandDims", kept, g.const([1]))
        away = g.op("Mul", g.op("Sub", g.typed(f32(1)), kept), g.typed(f32(-10000)))
        shares = g.op("Softmax", g.op("AddV2", scores, away))
        y = g.op("Transpose", g.op("BatchMatMulV2", shares, v), g.const([0, 2, 1, 3]))
        whole = g.op("Pack", self.batch, self.length, g.const(self.width))
        return g.op("Einsum", g.op("Reshape", y, whole), self.names["o"], equation="abc,cd->abd")

    def mlp(self, x):
        g = self.graph
        y = g.op("Einsum", x, self.names["up"], equation="abc,cd->abd")
        half = g.op("RealDiv", y, g.typed(f32(np.sqrt(2))))
        y = g.op(
            "Mul", g.op("Mul", y, g.typed(f32(0.5))),
            g.op("AddV2", g.op("Erf", half), g.typed(f32(1))),
        )  # fmt: skip
        return g.op("Einsum", y, self.names["down"], equation="abc,cd->abd")

    def reference(self, ids, mask):
        w = {name: value.astype(np.float64) for name, value in self.w.items()}
        n, t = ids.shape

        def norm(x):
            x = x - x.mean(-1, keepdims=True)
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w["gamma"] + w["beta"]

        heads = lambda y: y.reshape(n, t, self.heads, -1).transpose(0, 2, 1, 3)
        x = norm(w["words"][ids] + w["places"][:t])
        q, k, v = (heads(x @ w[name] + w["bias"]) for name in "qkv")
        scores = q @ k.swapaxes(2, 3) / np.sqrt(self.width / self.heads)
        scores = scores - 10000 * (1 - mask[:, None, None])
        e = np.exp(scores - scores.max(-1, keepdims=True))
        y = (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = norm(x + y @ w["o"])
        y = x @ w["up"]
        erf = np.vectorize(math.erf)
        x = norm(x + (y / 2 * (1 + erf(y / np.sqrt(2)))) @ w["down"])
        return np.tanh(x[:, 0]), x


def test_bert_of_any_sizes():
    network = Bert()
    model = tf.load(network.graph.bytes(), outputs=["pooled", "encoded"])
    # Inputs whose open axes must agree share names.
    assert model.inputs[0].shape == model.inputs[1].shape == ("batch", "axis_1")
    assert model.outputs[1].shape == ("batch", "axis_1", 8)
    for n, t in ((2, 5), (1, 7), (3, 12)):
        ids = rng.integers(0, 20, (n, t)).astype(i32)
        mask = (np.arange(t) < rng.integers(1, t + 1, (n, 1))).astype(i32)
        made = model(ids, mask)
        for y, expected in zip(made.values(), network.reference(ids, mask)):
            np.testing.assert_allclose(y, expected, 2e-5, 2e-5)
    ids = np.zeros((1, 13), i32)  # more than there are positions
    with pytest.raises(tf.TensorFlowError, match=r"node 'Slice.*0:13 is beyond the 12 elements"):
        model(ids, ids)


def test_gradients_with_respect_to_parameters():
    network = MobileNet(size=8)
    model = tf.load(network.graph.bytes())
    x = rng.normal(size=(2, 8, 8, 3))

    def loss(params, x):
        return -jnp.log(model.function(params, image=x)["probabilities"][:, 1]).sum()

    with amdjax.enable_x64(True):
        params = {name: np.float64(value) for name, value in model.params.items()}
        model.inputs = (tf.Value("image", np.dtype(np.float64), ("batch", 8, 8, 3)),)
        made, loss = amdjax.jit(amdjax.grad(loss))(params, x), amdjax.jit(loss)
        assert set(made) == set(params)
        for name in ("dense", "kernel0", "kernel1"):
            step = np.zeros_like(params[name])
            at = tuple(0 for _ in step.shape)
            step[at] = 1e-5
            ends = [float(loss({**params, name: params[name] + s * step}, x)) for s in (1, -1)]
            np.testing.assert_allclose(made[name][at], (ends[0] - ends[1]) / 2e-5, 1e-5, 1e-7)


def test_vmap_over_parameters_and_inputs():
    graph = Builder()
    x = graph.input("x", (None, 3))
    graph.op("MatMul", x, graph.typed(weights(3, 2), "w"), name="y")
    model = tf.load(graph.bytes())
    w, x = rng.normal(size=(4, 3, 2)).astype(f32), rng.normal(size=(4, 5, 3)).astype(f32)
    made = amdjax.vmap(lambda w, x: model.function({"w": w}, x=x)["y"])(w, x)
    np.testing.assert_allclose(made, x @ w, 1e-5)


def test_gradients_of_rounding_are_those_of_clipping():
    graph = Builder()
    ends = [graph.typed(f32(v)) for v in (-1, 1)]
    graph.op("FakeQuantWithMinMaxVars", graph.input("x", (3,)), *ends, name="y")
    model = tf.load(graph.bytes())
    made = amdjax.grad(lambda x: model.function({}, x=x)["y"].sum())(f32([-3, 0.3, 0.7]))
    assert made.tolist() == [0, 1, 1]


# Functions


def scaled(graph):
    """A library with a function of a function."""
    body = Builder()
    body.op("Mul", "x", "factor", name="product")
    graph.function("times", body, ["x", "factor"], {"z": "product:z:0"})
    outer = Builder()
    outer.op("Const", name="two", value=np.asarray(f32(2)), dtype=f32)
    outer.op("PartitionedCall", "x", "two:output:0", name="call", f=Func("times"))
    outer.op("Split", "axis:output:0", "call:output:0", name="parts", num_split=2)
    outer.op("Const", name="axis", value=np.asarray(i32(0)), dtype=i32)
    graph.function("halves", outer, ["x"], {"first": "parts:output:0", "second": "parts:output:1"})


def test_functions_are_written_out():
    graph = Builder()
    scaled(graph)
    x = graph.input("x", (4,))
    graph.op("StatefulPartitionedCall", x, name="call", f=Func("halves"))
    graph.op("Sub", "call", "call:1", name="y")
    model = tf.load(graph.bytes())
    assert model(x=f32([1, 2, 3, 5]))["y"].tolist() == [-4, -6]
    # The function's name as the operator.
    graph = Builder()
    scaled(graph)
    graph.op("halves", graph.input("x", (4,)), name="call")
    graph.op("Sub", "call", "call:1", name="y")
    assert tf.load(graph.bytes())(x=f32([1, 2, 3, 5]))["y"].tolist() == [-4, -6]


def test_attributes_of_functions_are_those_of_the_call():
    m = messages()
    body = Builder()
    body.op("Cast", "x", name="cast", DstT=m.AttrValue(placeholder="T"))
    graph = Builder()
    graph.function("convert", body, ["x"], {"y": "cast:y:0"})
    called = m.AttrValue(func=m.NameAttrList(name="convert", attr={"T": attribute(i32)}))
    graph.op("PartitionedCall", graph.input("x", (2,)), name="y", f=called)
    made = tf.load(graph.bytes())(x=f32([1.5, -2.5]))["y"]
    assert made.dtype == i32 and made.tolist() == [1, -2]


def test_outputs_in_the_middle_of_operators_with_several():
    body = Builder()
    body.op("TopKV2", "x", "k", name="top")
    graph = Builder()
    graph.function("best", body, ["x", "k"], {"at": "top:indices:0"})
    graph.op("PartitionedCall", graph.input("x", (4,)), graph.const(2), name="y", f=Func("best"))
    assert tf.load(graph.bytes())(x=f32([1, 4, 2, 3]))["y"].tolist() == [1, 3]


# Control flow


def branches(graph):
    for name, op in (("add", "AddV2"), ("take", "Sub")):
        body = Builder()
        body.op(op, "x", "y", name="r")
        graph.function(name, body, ["x", "y"], {"r": "r:z:0"})


@pytest.mark.parametrize("op", ["If", "StatelessIf"])
@pytest.mark.parametrize("known", [True, False])
def test_if(op, known):
    graph = Builder()
    branches(graph)
    cond = graph.typed(np.asarray(False)) if known else graph.input("c", (), bool)
    x = graph.input("x", (2,))
    graph.op(op, cond, x, x, name="y", then_branch=Func("add"), else_branch=Func("take"))
    model = tf.load(graph.bytes())
    feeds = {} if known else {"c": np.asarray(False)}
    assert model(x=f32([1, 2]), **feeds)["y"].tolist() == [0, 0]
    if not known:
        assert model(x=f32([1, 2]), c=np.asarray(True))["y"].tolist() == [2, 4]


def test_sizes_are_known_within_branches():
    graph = Builder()
    for name, op in (("keep", "Identity"), ("turn", "Neg")):
        body = Builder()
        body.op("Reshape", "x", "shape", name="r")
        body.op(op, "r:output:0", name="s")
        graph.function(name, body, ["x", "shape"], {"y": "s:0"})
    x = graph.input("x", (None, 2))
    shape = graph.op("Pack", graph.const(-1), graph.const(1))
    graph.op(
        "If", graph.input("c", (), bool), x, shape, name="y", then_branch=Func("keep"),
        else_branch=Func("turn"),
    )  # fmt: skip
    model = tf.load(graph.bytes())
    assert model.outputs[0].shape == ("2*batch", 1)
    assert model(x=f32([[1, 2]]), c=np.asarray(False))["y"].tolist() == [[-1], [-2]]


@pytest.mark.parametrize("op", ["While", "StatelessWhile"])
def test_while(op):
    graph = Builder()
    cond, body = Builder(), Builder()
    cond.op("Less", "i", "n", name="more")
    body.typed(i32(1), "one")
    body.op("AddV2", "i", "one:output:0", name="next")
    body.typed(f32([2, 3]), "factors")
    body.op("Mul", "x", "factors:output:0", name="product")
    graph.function("more", cond, ["i", "n", "x"], {"r": "more:z:0"})
    graph.function(
        "step", body, ["i", "n", "x"], {"i2": "next:z:0", "n2": "n", "x2": "product:z:0"}
    )
    graph.op(
        op, graph.const(0), graph.const(3), graph.input("x", (2,)), name="loop",
        cond=Func("more"), body=Func("step"),
    )  # fmt: skip
    model = tf.load(graph.bytes(), outputs=["loop:2"])
    assert model(x=f32([1, 1]))["loop:2"].tolist() == [8, 27]
    assert "loop/body//factors" in model.params


def recurrent(width=4):
    """A loop over time as Keras writes it: steps are read from a list, states written to one."""
    graph, cond, body = Builder(), Builder(), Builder()
    x = graph.input("x", (None, None, 3))
    w, u = weights(3, width), weights(width, width)
    steps = graph.op("Transpose", x, graph.const([1, 0, 2]))
    shape = graph.op("Shape", steps)
    time, batch = (
        graph.op("StridedSlice", shape, *(graph.const([n]) for n in (i, i + 1, 1)),
                 shrink_axis_mask=1)
        for i in range(2)
    )  # fmt: skip
    any_shape = graph.const([-1, width])
    read = graph.op("TensorListFromTensor", steps, any_shape, element_dtype=f32)
    made = graph.op("TensorListReserve", any_shape, time, element_dtype=f32)
    graph.op("TensorListLength", made, name="length")
    state = graph.op("Fill", graph.op("Pack", batch, graph.const(width)), graph.typed(f32(0)))
    names = ["i", "n", "made", "state", "read", "w", "u"]
    cond.op("Less", "i", "n", name="more")
    graph.function("more", cond, names, {"r": "more:z:0"})
    body.const(1, "one")
    body.const([-1, 3], "shape")
    body.op("TensorListGetItem", "read", "i", "shape:output:0", name="step", element_dtype=f32)
    body.op("MatMul", "step:item:0", "w", name="of_step")
    body.op("MatMul", "state", "u", name="of_state")
    body.op("AddV2", "of_step:product:0", "of_state:product:0", name="sum")
    body.op("Tanh", "sum:z:0", name="new")
    body.op("TensorListSetItem", "made", "i", "new:y:0", name="set", element_dtype=f32)
    body.op("AddV2", "i", "one:output:0", name="next")
    results = {"made": "set:output_handle:0", "state": "new:y:0", "i": "next:z:0"}
    graph.function("step", body, names, {f"{n}_out": results.get(n, n) for n in names})
    graph.op(
        "While", graph.const(0), time, made, state, read, graph.typed(w, "w"),
        graph.typed(u, "u"), name="loop", cond=Func("more"), body=Func("step"),
    )  # fmt: skip
    stacked = graph.op("TensorListStack", "loop:2", any_shape, element_dtype=f32)
    graph.op("Transpose", stacked, graph.const([1, 0, 2]), name="y")

    def reference(x):
        state, found = np.zeros((len(x), width)), []
        for step in x.swapaxes(0, 1).astype(np.float64):
            state = np.tanh(step @ w + state @ u)
            found.append(state)
        return np.stack(found, 1)

    return graph, reference


def test_recurrent_layers_are_trained():
    """Loops that count have gradients."""
    graph, _ = recurrent()
    model = tf.load(graph.bytes(), outputs=["y"])
    x = rng.normal(size=(2, 3, 3)).astype(f32)
    loss = lambda params, x: (model.function(params, x=x)["y"] ** 2).sum()
    made, loss = amdjax.jit(amdjax.grad(loss))(model.params, x), amdjax.jit(loss)
    for name, at in (("w", (1, 2)), ("u", (0, 3))):
        step = np.zeros_like(model.params[name])
        step[at] = 1e-2
        moved = [{**model.params, name: model.params[name] + s * step} for s in (1, -1)]
        slope = (loss(moved[0], x) - loss(moved[1], x)) / 2e-2
        np.testing.assert_allclose(made[name][at], slope, 1e-2, 1e-3)


@pytest.mark.parametrize("start, limit, step", [(0, 5, 1), (1, 8, 3), (4, 4, 1), (7, 2, 2)])
def test_loops_that_count(start, limit, step):
    """The number of steps is known where the limit is a constant, an argument, or both."""
    graph, cond, body = Builder(), Builder(), Builder()
    cond.const(limit, "limit")
    cond.op("Less", "i", "limit:output:0", name="a")
    cond.op("Less", "i", "n", name="b")
    cond.op("LogicalAnd", "a:z:0", "b:z:0", name="both")
    body.const(step, "step")
    body.typed(f32(1), "one")
    body.op("AddV2", "step:output:0", "i", name="next")
    body.op("AddV2", "x", "one:output:0", name="sum")
    names = ["i", "n", "x"]
    graph.function("cond", cond, names, {"r": "both:z:0"})
    graph.function("body", body, names, {"i2": "next:z:0", "n2": "n", "x2": "sum:z:0"})
    ends = [graph.const(start), graph.const(limit + 2), graph.input("x", ())]
    graph.op("While", *ends, name="y", cond=Func("cond"), body=Func("body"))
    model = tf.load(graph.bytes(), outputs=["y", "y:2"])
    count = len(range(start, limit, step))
    assert list(model(x=f32(0)).values()) == [start + step * count, count]
    assert amdjax.grad(lambda x: model.function({}, x=x)["y:2"])(f32(0)) == 1
    # A limit that is given: the number of steps is not known.
    ends[1] = graph.input("n", (), i32)
    graph.op("While", *ends, name="z", cond=Func("cond"), body=Func("body"))
    other = tf.load(graph.bytes(), outputs=["z:2"])
    assert other(x=f32(0), n=i32(limit))["z:2"] == count


def test_recurrent_loops_of_any_length():
    graph, reference = recurrent()
    model = tf.load(graph.bytes(), outputs=["y", "length"])
    assert model.outputs[0].shape == ("batch", "x_1", 4)
    for n, t in ((2, 5), (1, 3), (4, 7)):
        x = rng.normal(size=(n, t, 3)).astype(f32)
        made = model(x)
        np.testing.assert_allclose(made["y"], reference(x), 1e-5, 1e-5)
        assert made["length"] == t


@pytest.mark.parametrize("prefix", ["", "Ref"])
def test_switch_and_merge_of_known_predicates(prefix):
    graph = Builder()
    x = graph.input("x", (2,))
    switch = graph.op(f"{prefix}Switch", x, graph.typed(np.asarray(True)), name="switch")
    dead = graph.op("Exp", switch)
    alive = graph.op("Neg", f"{switch}:1")
    graph.op(f"{prefix}Merge", dead, alive, name="y")
    model = tf.load(graph.bytes(), outputs=["y", "y:1"])
    made = model(x=f32([1, 2]))
    assert made["y"].tolist() == [-1, -2] and made["y:1"] == 1


def test_inputs_with_defaults_may_be_left_out():
    graph = Builder()
    x = graph.op(
        "PlaceholderWithDefault", graph.typed(f32([1, 2])), name="x", dtype=f32, shape=Shape((2,))
    )
    graph.op("Neg", x, name="y")
    model = tf.load(graph.bytes())
    assert model()["y"].tolist() == [-1, -2]
    assert model(x=f32([3, 4]))["y"].tolist() == [-3, -4]


def test_nodes_that_are_only_waited_for_are_left_out():
    graph = Builder()
    x = graph.input("x", (2,))
    graph.op("Assert", graph.typed(np.asarray(True)), x, name="check")
    graph.op("NoOp", "^check", name="group")
    graph.op("Identity", x, "^group", name="y")
    model = tf.load(graph.bytes())
    assert [v.name for v in model.outputs] == ["y"]
    assert model(x=f32([3, 4]))["y"].tolist() == [3, 4]
    outputs = tf.load(graph.bytes(), outputs=["y"]).outputs
    assert outputs == model.outputs


# SavedModels


def signed(function_name="serve"):
    body = Builder()
    body.op("Relu", "x", name="relu")
    graph = Builder()
    graph.function(function_name, body, ["x"], {"y": "relu:activations:0"})
    x = graph.input("serving_default_image", (None, 3))
    graph.op("StatefulPartitionedCall", x, name="call", f=Func(function_name))
    return saved_model(
        graph, {"image": ("serving_default_image:0", f32, (None, 3))},
        {"scores": ("call:0", f32, (None, 3))},
    )  # fmt: skip


def test_signatures_of_saved_models(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(signed())
    for source in (signed(), tmp_path, str(tmp_path / "saved_model.pb")):
        model = tf.load(source)
        assert model(image=f32([[-1, 0, 2]]))["scores"].tolist() == [[0, 0, 2]]
        assert model.metadata["tensorflow_version"] == "2.15.0"
        assert str(model.inputs[0]) == "image: float32[batch,3]"
    with pytest.raises(tf.TensorFlowError, match="no signature 'train'; there are serving_default"):
        tf.load(signed(), signature="train")
    frozen = Builder()
    frozen.op("Relu", frozen.input("x"), name="y")
    with pytest.raises(tf.TensorFlowError, match="frozen graph has no signature 'train'"):
        tf.load(frozen.bytes(), signature="train")


def test_types_of_64_bits_are_kept_in_calls():
    graph = Builder()
    x = graph.input("x", (2,), np.int64)
    graph.op("AddV2", x, graph.typed(np.int64(2**40)), name="y")
    model = tf.load(graph.bytes())
    made = model(x=np.array([1, 2]))["y"]
    assert made.dtype == np.int64 and made.tolist() == [2**40 + 1, 2**40 + 2]
    with pytest.raises(tf.TensorFlowError, match=r"node 'y'.*more than 32 bits; enable"):
        model.function({}, x=np.array([1, 2]))


def test_types_of_64_bits_become_those_of_32_without_a_warning():
    graph = Builder()
    x = graph.input("x", (2, 3))
    at = graph.op("ArgMax", x, graph.const(1), name="at")
    wide = graph.op("Cast", x, DstT=np.float64)
    graph.op("AddV2", wide, graph.typed(np.float64(1.5)), name="wide")
    graph.op("AddV2", at, graph.typed(np.int64(3)), name="more")
    ends = [graph.typed(np.int64(v)) for v in (0, 5000, 1)]
    graph.op("Range", *ends, name="range", Tidx=np.int64)
    graph.op("OneHot", at, graph.const(3), *(graph.typed(np.float64(v)) for v in (1, 0)), name="o")
    outputs = ["at", "wide", "more", "range", "o"]
    model = tf.load(graph.bytes(), outputs=outputs)
    x = f32([[1, 2, 3], [3, 2, 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        narrow, wide = model.function({}, x=x), model(x)
    for name in outputs:
        assert narrow[name].dtype.itemsize == 4 and wide[name].dtype.itemsize == 8
        np.testing.assert_array_equal(narrow[name], wide[name])


def test_bits_of_wide_types_need_them():
    graph = Builder()
    x = graph.op("Cast", graph.input("x", (2,)), DstT=np.float64)
    graph.op("Bitcast", x, name="y", T=np.float64, type=np.int64)
    model = tf.load(graph.bytes())
    np.testing.assert_array_equal(model(f32([1, 2]))["y"], np.float64([1, 2]).view(np.int64))
    with pytest.raises(tf.TensorFlowError, match="64-bit types need jax_enable_x64"):
        model.function({}, x=f32([1, 2]))


def test_files_may_be_texts(tmp_path):
    graph = Builder()
    graph.op("Neg", graph.op("Cast", graph.input("x", (2,)), DstT=i32), name="y")
    text = str(graph.graph)
    assert "type: DT_FLOAT" in text
    (tmp_path / "graph.pbtxt").write_text(text.replace('name: "y"', 'unknown: 3\n  name: "y"', 1))
    assert tf.load(tmp_path / "graph.pbtxt")(x=f32([1.5, -2]))["y"].tolist() == [-1, 2]
    text = str(messages().SavedModel.FromString(signed()))
    (tmp_path / "saved_model.pbtxt").write_text(text)
    assert tf.load(tmp_path).outputs[0].name == "scores"
    assert tf.load(text.encode())(image=f32([[-1, 0, 2]]))["scores"].tolist() == [[0, 0, 2]]
    for damaged in (text[:-10], text.replace("op:", "op"), "node {" * 5000):
        with pytest.raises(tf.TensorFlowError, match="no such file"):
            tf.load(damaged.encode())
