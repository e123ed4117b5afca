"""Graphs of TensorFlow, made by hand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from amdjax.tf.messages import messages
from amdjax.tf.tensors import DTYPES

NUMBERS = {dtype: number for number, dtype in DTYPES.items()}


class Func(NamedTuple):
    """A function as the value of an attribute."""

    name: str


class Shape(NamedTuple):
    """A shape as the value of an attribute; None is an unknown size, or an unknown rank."""

    sizes: tuple | None


def shape_message(sizes):
    m = messages()
    if sizes is None:
        return m.TensorShape(unknown_rank=True)
    return m.TensorShape(dim=[m.Dim(size=-1 if n is None else n) for n in sizes])


def tensor(value):
    """The message of an array, or of a list of texts."""
    m = messages()
    if isinstance(value, list):
        shape = shape_message((len(value),))
        return m.Tensor(dtype=7, tensor_shape=shape, string_val=[v.encode() for v in value])
    value = np.asarray(value)
    return m.Tensor(
        dtype=NUMBERS[value.dtype], tensor_shape=shape_message(value.shape),
        tensor_content=np.ascontiguousarray(value).tobytes(),
    )  # fmt: skip


def attribute(value):
    """The message of an attribute's value."""
    m = messages()
    if isinstance(value, m.AttrValue):
        return value
    if isinstance(value, bool):
        return m.AttrValue(b=value)
    if isinstance(value, int):
        return m.AttrValue(i=value)
    if isinstance(value, float):
        return m.AttrValue(f=value)
    if isinstance(value, str):
        return m.AttrValue(s=value.encode())
    if isinstance(value, Shape):
        return m.AttrValue(shape=shape_message(value.sizes))
    if isinstance(value, Func):
        return m.AttrValue(func=m.NameAttrList(name=value.name))
    if isinstance(value, (list, tuple)):
        return m.AttrValue(list=m.ListValue(i=list(value)))
    if isinstance(value, np.ndarray):
        return m.AttrValue(tensor=tensor(value))
    return m.AttrValue(type=NUMBERS[np.dtype(value)])


class Builder:
    """Nodes of a graph or function; methods return names of outputs."""

    def __init__(self):
        self.nodes = []
        self.functions = []

    def op(self, op, *inputs, name=None, **attributes):
        name = name or f"{op}_{len(self.nodes)}"
        attr = {key: attribute(value) for key, value in attributes.items()}
        self.nodes.append(messages().Node(name=name, op=op, input=list(inputs), attr=attr))
        return name

    def input(self, name, shape=None, dtype=np.float32):
        return self.op("Placeholder", name=name, dtype=dtype, shape=Shape(shape))

    def const(self, value, name=None):
        value = np.asarray(value)
        if value.dtype == np.float64 and not isinstance(value, np.float64):
            value = value.astype(np.float32)
        if value.dtype == np.int64:
            value = value.astype(np.int32)
        return self.typed(value, name)

    def typed(self, value, name=None):
        """A constant of the dtype that its array has."""
        return self.op("Const", name=name, value=attribute(np.asarray(value)), dtype=value.dtype)

    def function(self, name, body, arguments, results):
        """Add a function: its nodes, names of arguments, and what results are by their names."""
        m = messages()
        signature = m.Op(
            name=name,
            input_arg=[m.Arg(name=n) for n in arguments],
            output_arg=[m.Arg(name=n) for n in results],
        )
        self.functions.append(m.Function(signature=signature, node_def=body.nodes, ret=results))

    @property
    def graph(self):
        m = messages()
        return m.Graph(node=self.nodes, library=m.Library(function=self.functions))

    def bytes(self):
        return self.graph.SerializeToString()


def saved_model(builder, inputs, outputs, restore=""):
    """The bytes of a SavedModel: its signature gives names of nodes, dtypes and shapes."""
    m = messages()
    info = lambda name, dtype, shape: m.TensorInfo(
        name=name, dtype=NUMBERS[np.dtype(dtype)], tensor_shape=shape_message(shape)
    )
    signature = m.Signature(
        inputs={key: info(*value) for key, value in inputs.items()},
        outputs={key: info(*value) for key, value in outputs.items()},
        method_name="tensorflow/serving/predict",
    )
    meta = m.MetaGraph(
        meta_info_def=m.MetaInfo(tags=["serve"], tensorflow_version="2.15.0"),
        graph_def=builder.graph, signature_def={"serving_default": signature},
        saver_def=m.Saver(restore_op_name=restore),
    )  # fmt: skip
    return m.SavedModel(saved_model_schema_version=1, meta_graphs=[meta]).SerializeToString()
