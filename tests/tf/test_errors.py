"""Bad files and calls: errors that name the node or input; no crash, no hang, no huge memory."""

import random
import resource
import subprocess
import sys
import time

import numpy as np
import pytest
from numpy import float32 as f32, int32 as i32

from amdjax import tf
from amdjax.tf import inlining, tensors
from tests.support.tf_graphs import (
    Builder,
    Func,
    messages,
    saved_model,
    shape_message,
)


def failing(data, **options):
    with pytest.raises(tf.TensorFlowError) as caught:
        tf.load(data, **options)
    return str(caught.value)


def network():
    """A small graph with a function, shape arithmetic, and operators of each family."""
    graph = Builder()
    body = Builder()
    body.op("Relu", "x", name="relu")
    graph.function("act", body, ["x"], {"y": "relu:activations:0"})
    x = graph.input("x", (None, 6, 6, 2))
    kernel = graph.typed(np.ones((3, 3, 2, 3), f32), "kernel")
    y = graph.op("Conv2D", x, kernel, strides=[1, 2, 2, 1], padding="SAME", name="conv")
    y = graph.op("BiasAdd", y, graph.typed(np.zeros(3, f32), "bias"))
    y = graph.op("PartitionedCall", y, f=Func("act"))
    y = graph.op("MaxPool", y, ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="SAME")
    y = graph.op("Pad", y, graph.const([[0, 0], [1, 0], [0, 1], [0, 0]]))
    batch = graph.op(
        "StridedSlice", graph.op("Shape", y), *(graph.const([n]) for n in (0, 1, 1)),
        shrink_axis_mask=1,
    )  # fmt: skip
    y = graph.op("Reshape", y, graph.op("Pack", batch, graph.const(48)))
    parts = graph.op("Split", graph.const(1), y, num_split=2)
    y = graph.op("ConcatV2", parts, f"{parts}:1", graph.const(1))
    y = graph.op("Tile", y, graph.const([1, 2]))
    y = graph.op("Fill", graph.const([2, 3]), graph.op("Sum", y, graph.const([0, 1])))
    graph.op("Mean", y, graph.op("Range", *map(graph.const, (0, 2, 1)), Tidx=i32), name="y")
    return graph


def test_unknown_operators_are_all_listed():
    graph = Builder()
    x = graph.input("x", (2,))
    y = graph.op("DecodeJpeg", x, name="image")
    graph.op("Quantize", graph.op("Relu", y), name="q")
    with pytest.raises(tf.UnsupportedOperator) as caught:
        tf.load(graph.bytes())
    assert "DecodeJpeg (node 'image'), Quantize (node 'q')" in str(caught.value)


def test_errors_name_node_operator_and_input():
    graph = Builder()
    x = graph.input("x", (2, 3))
    graph.op("MatMul", x, graph.typed(np.ones((4, 5), f32)), name="dense")
    told = failing(graph.bytes())
    assert told.startswith("node 'dense' (MatMul): ")
    assert "a: float32[2, 3], b: float32[4, 5]" in told
    graph = Builder()
    graph.op("Reshape", graph.input("x", (6,)), graph.input("s", (2,), i32), name="r")
    assert failing(graph.bytes()) == (
        "node 'r' (Reshape): input 'shape' must be known as the graph is traced, but depends on "
        "inputs or parameters"
    )
    graph = Builder()
    graph.op("Reshape", graph.input("x", (6,)), name="r")
    assert failing(graph.bytes()) == "node 'r' (Reshape): takes 2 inputs (x, shape), got 1"
    graph = Builder()
    graph.op("AddV2", graph.input("x", (6,)), graph.input("z", (6,), i32), name="r")
    assert "(AddV2): inputs must have one dtype, got float32 and int32" in failing(graph.bytes())


ATTRIBUTES = [
    ("Conv2D", {"padding": "SAME"}, "the attribute 'strides' is missing"),
    ("Conv2D", {"strides": [1, 1, 1, 1]}, "the attribute 'padding' is missing"),
    ("Conv2D", {"strides": 1, "padding": "SAME"}, "must be a list of integers"),
    ("Conv2D", {"strides": [1, 1, 1, 1], "padding": "FULL"}, "one of SAME, VALID, EXPLICIT"),
    ("Conv2D", {"strides": [1, 0, 1, 1], "padding": "SAME"}, "strides must be positive"),
    ("Conv2D", {"strides": [2, 1, 1, 1], "padding": "SAME"}, "of batch and channels must be 1"),
    ("Conv2D", {"strides": [1, 1, 1], "padding": "SAME"}, "must have 4 values"),
    (
        "Conv2D",
        {"strides": [1, 1, 1, 1], "padding": "SAME", "data_format": "NCHW_VECT_C"},
        "data_format must be one of NHWC, NCHW",
    ),
    (
        "Conv2D",
        {"strides": [1, 1, 1, 1], "padding": "EXPLICIT", "explicit_paddings": [1, 1]},
        "explicit_paddings must be pairs",
    ),
]


@pytest.mark.parametrize("op, attributes, told", ATTRIBUTES)
def test_attributes_are_checked(op, attributes, told):
    graph = Builder()
    x = graph.input("x", (1, 4, 4, 2))
    graph.op(op, x, graph.typed(np.ones((1, 1, 2, 2), f32)), name="y", **attributes)
    assert told in failing(graph.bytes())


def test_graphs_are_checked():
    graph = Builder()
    graph.op("Relu", "nowhere", name="y")
    assert failing(graph.bytes()) == "y: there is no node 'nowhere'"
    graph = Builder()
    graph.op("Relu", "z", name="y")
    graph.op("Relu", "y", name="z")
    assert "depends on itself" in failing(graph.bytes(), outputs=["z"])
    assert "name its outputs=" in failing(graph.bytes())
    graph = Builder()
    graph.input("x")
    graph.input("x")
    assert "two nodes 'x'" in failing(graph.bytes(), outputs=["x"])
    assert "no nodes" in failing(b"")
    assert "pointer of Git LFS" in failing(b"version https://git-lfs.github.com/spec/v1\n")
    assert "there is no node 'a'" in failing(network().bytes(), outputs=["a"])
    assert "no output of a node" in failing(network().bytes(), outputs=["y:-1"])
    assert "there is no output 3 of node 'y'" in failing(network().bytes(), outputs=["y:3"])
    graph = Builder()
    graph.op("Exit", graph.input("x", (2,)), name="y")
    assert "it leaves no loop" in failing(graph.bytes())
    graph = Builder()
    graph.op("ReadVariableOp", graph.op("VarHandleOp", name="v"), name="y")
    assert "freeze the graph" in failing(graph.bytes())
    assert "load its folder, or freeze" in failing(
        saved_model(graph, {}, {"y": ("y:0", f32, None)})
    )


def test_texts_are_not_computed_with():
    graph = Builder()
    m = messages()
    value = m.AttrValue(tensor=m.Tensor(dtype=7, string_val=[b"a"]))
    graph.op("Const", name="c", value=value)
    graph.op("Identity", "c", name="y")
    assert "node 'c' (Const): texts are not computed with" in failing(graph.bytes())


def test_calls_are_checked():
    graph = Builder()
    graph.op("AddV2", graph.input("x", (None, 3)), graph.input("z", (3,)), name="y")
    model = tf.load(graph.bytes())
    x, z = np.ones((2, 3), f32), np.ones(3, f32)
    for feeds, told in [
        ({"x": x}, "input 'z' is missing; the inputs are x: float32[batch,3]; z: float32[3]"),
        ({"x": x, "z": z, "w": z}, "the graph has no input 'w'"),
        ({"x": x, "z": i32([1, 2, 3])}, "input z: float32[3] must be float32, got int32"),
        ({"x": z, "z": z}, "input x: float32[batch,3] has 2 axes, got shape (3,)"),
        ({"x": x[:, :2], "z": z}, "axis 1 must have 3 elements, got shape (2, 2)"),
    ]:
        with pytest.raises(tf.TensorFlowError) as caught:
            model(**feeds)
        assert told in str(caught.value)
    with pytest.raises(tf.TensorFlowError, match="takes 2 inputs, got 3"):
        model(x, z, z)
    with pytest.raises(tf.TensorFlowError, match="input 'x' is given twice"):
        model(x, x=x, z=z)
    graph.op("MatMul", "y", graph.typed(np.ones((3, 3), f32), "w"), name="m")
    with pytest.raises(tf.TensorFlowError, match="params lacks 'w'"):
        tf.load(graph.bytes()).function({}, x=x, z=z)


def test_options_are_checked():
    data = network().bytes()
    assert "no input has a dimension 'n'; there are ['batch', 'x']" in failing(data, dims={"n": 2})
    assert "has 4 axes" in failing(data, dims={"x": (1, 2)})
    with pytest.raises(ValueError, match="layout must be 'NHWC' or 'NCHW', got 'last'"):
        tf.load(data, layout="last")
    with pytest.raises(TypeError, match="must be a path or bytes, got int"):
        tf.load(3)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        tf.load("nowhere.pb")
    assert "a name is there twice" in failing(data, outputs=["y", "y:0"])


def test_sizes_and_names_of_dimensions_can_be_given():
    data = network().bytes()
    assert tf.load(data, dims={"batch": 5}).inputs[0].shape == (5, 6, 6, 2)
    assert tf.load(data, dims={"batch": "n"}).inputs[0].shape == ("n", 6, 6, 2)
    assert tf.load(data, dims={"x": (1, 6, 6, 2)}).inputs[0].shape == (1, 6, 6, 2)
    graph = Builder()
    graph.op("Relu", graph.input("x"), name="y")
    open_ = tf.load(graph.bytes())
    assert (open_.inputs[0].shape, open_.outputs[0].shape) == (None, None)
    assert open_(x=f32([[1, -1]]))["y"].tolist() == [[1, 0]]
    assert tf.load(graph.bytes(), dims={"x": (2, "n")}).outputs[0].shape == (2, "n")


# Claims of files


def claiming(value, **options):
    """The message of an error about a constant."""
    graph = Builder()
    graph.op("Const", name="c", value=messages().AttrValue(tensor=value))
    graph.op("Relu", "c", name="y")
    return failing(graph.bytes(), **options)


def test_sizes_of_constants_are_checked_before_memory_is_taken():
    m = messages()
    huge = shape_message((1 << 30, 1 << 9))
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "bytes cannot be" in claiming(
        m.Tensor(dtype=1, tensor_shape=huge, tensor_content=b"1234")
    )
    assert "is written as 1 values" in claiming(
        m.Tensor(dtype=1, tensor_shape=huge, float_val=[1.0])
    )
    assert "2 values for shape [1]" in claiming(
        m.Tensor(dtype=1, tensor_shape=shape_message((1,)), float_val=[1, 2])
    )
    assert "is no shape" in claiming(m.Tensor(dtype=1, tensor_shape=shape_message((-3,))))
    assert "at most 32" in claiming(m.Tensor(dtype=1, tensor_shape=shape_message((1,) * 40)))
    assert "shape is not known" in claiming(m.Tensor(dtype=1, tensor_shape=shape_message(None)))
    assert "dtype resource is not read" in claiming(m.Tensor(dtype=20))
    assert "dtype number 99 is not read" in claiming(m.Tensor(dtype=99))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start < 200 << 10  # KiB


def test_constants_may_be_written_as_few_values():
    m = messages()
    for tensor, expected in [
        (m.Tensor(dtype=1, tensor_shape=shape_message((2, 2)), float_val=[1.5]), [[1.5] * 2] * 2),
        (m.Tensor(dtype=1, tensor_shape=shape_message((4,)), float_val=[1, 2]), [1, 2, 2, 2]),
        (m.Tensor(dtype=3, tensor_shape=shape_message((2,))), [0, 0]),
        (m.Tensor(dtype=10, tensor_shape=shape_message((2,)), bool_val=[True]), [True, True]),
        (m.Tensor(dtype=19, half_val=[0x3C00]), 1),
        (m.Tensor(dtype=14, half_val=[0x3F80]), 1),
        (m.Tensor(dtype=4, tensor_shape=shape_message((2,)), int_val=[7, 9]), [7, 9]),
        (m.Tensor(dtype=8, scomplex_val=[1, 2]), 1 + 2j),
        (m.Tensor(dtype=23, uint64_val=[2**63]), 2**63),
    ]:
        made = tensors.Reader().array(tensor, "it")
        assert made.tolist() == expected and made.dtype == tensors.DTYPES[tensor.dtype]


def test_functions_may_neither_call_themselves_nor_grow_without_limit(monkeypatch):
    graph = Builder()
    for name, called in (("f", "g"), ("g", "f")):
        body = Builder()
        body.op("PartitionedCall", "x", name="call", f=Func(called))
        graph.function(name, body, ["x"], {"y": "call:output:0"})
    graph.op("PartitionedCall", graph.input("x", (2,)), name="y", f=Func("f"))
    assert "calls itself" in failing(graph.bytes())

    def doubling(depth):
        graph = Builder()
        for i in range(depth):
            body = Builder()
            for k in range(2):
                body.op("PartitionedCall", "x" if k == 0 else "c0", name=f"c{k}", f=Func(f"f{i}"))
            graph.function(f"f{i + 1}", body, ["x"], {"y": "c1:output:0"})
        body = Builder()
        body.op("Neg", "x", name="n")
        graph.function("f0", body, ["x"], {"y": "n:y:0"})
        graph.op("PartitionedCall", graph.input("x", (2,)), name="y", f=Func(f"f{depth}"))
        return graph.bytes()

    assert tf.load(doubling(4))(x=f32([1, 2]))["y"].tolist() == [1, 2]
    assert "deep" in failing(doubling(100))
    monkeypatch.setattr(inlining, "MAX_NODES", 2000)
    assert "more than 2000 nodes" in failing(doubling(40))


def test_results_of_huge_claimed_shapes_take_no_memory_while_loading():
    graph = Builder()
    big = graph.op("Fill", graph.const([1 << 15, 1 << 15, 1 << 9]), graph.const(1))
    graph.op("Sum", big, graph.const([0, 1, 2]), name="y")
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tf.load(graph.bytes())
    for op, inputs, attributes in [
        ("Tile", ([1, 2, 3], [1 << 30]), {}), ("BroadcastTo", ([1], [1 << 30, 1 << 9]), {}),
        ("Range", (0, 1 << 30, 1), {"Tidx": i32}),
        ("Pad", ([1, 2, 3], [[1 << 30, 1 << 30]]), {}),
    ]:  # fmt: skip
        graph = Builder()
        y = graph.op(op, *map(graph.const, inputs), **attributes)
        graph.op("Sum", y, graph.const(0), name="y")
        tf.load(graph.bytes())
    graph = Builder()
    part = graph.op("Split", graph.const(0), graph.const([0]), num_split=1 << 30)
    graph.op("Neg", part, name="y")
    assert "cannot be split into" in failing(graph.bytes())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start < 200 << 10


def mutated(data, generator):
    """Bytes with a few of them changed, left out, repeated or put elsewhere."""
    data = bytearray(data)
    for _ in range(generator.choice((1, 1, 2, 4))):
        at = generator.randrange(len(data))
        kind = generator.randrange(5)
        if kind == 0:
            data[at] = generator.randrange(256)
        elif kind == 1:
            data[at] ^= 1 << generator.randrange(8)
        elif kind == 2:
            del data[at : at + generator.randrange(1, 9)]
        elif kind == 3:
            data[at:at] = data[at : at + generator.randrange(1, 30)]
        else:
            other = generator.randrange(len(data))
            data[at : at + 4] = data[other : other + 4]
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("part", range(4))
def test_damaged_files_give_clear_errors(part):
    """They are read, or refused: nothing else is raised, and no reading takes long or much."""
    data = network().bytes()
    generator = random.Random(part)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slowest, refused = 0.0, 0
    for _ in range(750):
        begun = time.process_time()
        try:
            tf.load(mutated(data, generator))
        except tf.TensorFlowError:
            refused += 1
        slowest = max(slowest, time.process_time() - begun)
    assert refused > 400
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start < 300 << 10


def test_every_truncation_is_refused_or_has_fewer_nodes():
    data = network().bytes()
    whole = len(messages().Graph.FromString(data).node)
    for end in range(0, len(data), 7):
        try:
            model = tf.load(data[:end])
        except tf.TensorFlowError:
            continue
        assert len(model.graph.nodes) < whole


def test_protobuf_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ImportError, match=r"pip install 'amdjax\[tf\]'"):
        messages.__wrapped__()  # which keeps its classes


def test_protobuf_is_loaded_when_a_file_is():
    code = "import amdjax.tf, sys; assert 'google.protobuf' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
