"""Models of one node, for tests of rules."""

import numpy as np
import onnx
from onnx import helper

from amdjax.onnx import load


def tensor(name, array):
    """What a graph says of an array of this name."""
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
    )


def untyped(*names):
    """Outputs of which nothing is said."""
    return [onnx.ValueInfoProto(name=name) for name in names]


def graph_model(nodes, inputs, outputs, *, opset=23, domains=(), constants=()):
    """A model of nodes, with inputs by name, of which arrays give dtypes and shapes."""
    infos = [tensor(name, np.asarray(x)) for name, x in inputs.items()]
    graph = helper.make_graph(nodes, "g", infos, untyped(*outputs), list(constants))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return load(helper.make_model(graph, opset_imports=opsets))


def node_model(op, inputs, outputs=1, *, domain="", opset=23, **attributes):
    """A model of one node; inputs that are None are left out."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, domain=domain, **attributes)
    given = {name: x for name, x in zip(names, inputs) if name}
    return graph_model([node], given, made, opset=opset, domains=[domain] if domain else [])


def run_node(op, inputs, outputs=1, **how):
    """The outputs of a node as arrays of NumPy."""
    made = node_model(op, inputs, outputs, **how)(*(x for x in inputs if x is not None))
    found = [np.asarray(v) for v in made.values()]
    return found[0] if outputs == 1 else found
