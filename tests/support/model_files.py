"""Files of small models, for tests of what reads them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def network(path, batch="batch", size=8):
    """Write a small residual network, of images `x` (batch, 3, size, size) to `probs`."""
    draw = np.random.default_rng(0)
    weights = {
        "stem.w": (8, 3, 3, 3), "stem.b": (8,), "body.w": (8, 8, 3, 3), "head.w": (10, 8),
        "head.b": (10,),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "stem.w", "stem.b"], ["c1"], name="stem", pads=[1] * 4),
        node("Relu", ["c1"], ["r1"], name="stem/relu"),
        node("MaxPool", ["r1"], ["p1"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "body.w"], ["c2"], name="body", pads=[1] * 4),
        node("Add", ["c2", "p1"], ["a2"], name="body/add"),
        node("Relu", ["a2"], ["r2"], name="body/relu"),
        node("GlobalAveragePool", ["r2"], ["g"], name="average"),
        node("Flatten", ["g"], ["flat"], name="flatten"),
        node("Gemm", ["flat", "head.w", "head.b"], ["logits"], name="head", transB=1),
        node("Softmax", ["logits"], ["probs"], name="softmax"),
    ]
    values = [
        numpy_helper.from_array(0.3 * draw.standard_normal(shape, np.float32), name)
        for name, shape in weights.items()
    ]
    info = helper.make_tensor_value_info
    images = info("x", TensorProto.FLOAT, [batch, 3, size, size])
    probs = info("probs", TensorProto.FLOAT, [batch, 10])
    graph = helper.make_graph(nodes, "network", [images], [probs], values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


def affine(path, inputs=("x",), shape=("n", 4)):
    """Write a model of `y = tanh(sum of inputs @ w + b)`."""
    node = helper.make_node
    nodes, total = [], inputs[0]
    for name in inputs[1:]:
        nodes.append(node("Add", [total, name], [f"with_{name}"], name=f"add_{name}"))
        total = f"with_{name}"
    nodes += [
        node("MatMul", [total, "w"], ["product"], name="product"),
        node("Add", ["product", "b"], ["sum"], name="bias"),
        node("Tanh", ["sum"], ["y"], name="tanh"),
    ]
    w = np.linspace(-1, 1, shape[-1] * 3, dtype=np.float32).reshape(shape[-1], 3)
    values = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(w[0], "b")]
    info = helper.make_tensor_value_info
    given = [info(name, TensorProto.FLOAT, shape) for name in inputs]
    result = [info("y", TensorProto.FLOAT, [*shape[:-1], 3])]
    graph = helper.make_graph(nodes, "affine", given, result, values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path
