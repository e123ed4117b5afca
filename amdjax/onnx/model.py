"""A model that was read: a pure function, its parameters, and what it says of itself."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from amdjax import nn
from amdjax.core.collector import rare_collections
from amdjax.export.model import FileModel
from amdjax.export.values import Value, checked_dims
from amdjax.quantize import integer_products

from .errors import NotTraceable, OnnxError
from .evaluation import Evaluation, to_device
from .graph import Graph, Program, walk
from .padding import has_padded_selections, with_padded_selections
from .parts import Parts, divided
from .reading import parse, read_program
from .source import Source

#: Integers of more elements are parameters: tables and weights, not shapes.
LARGE = 4096
#: Operands, by their number, that are needed as numbers though they are floats.
_NUMBERS = {"Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2), "Dropout": (1, 2)}


def load(
    model: Any, *, dims: Mapping[str, int | str] | None = None,
    custom_ops: Mapping[tuple[str, str], Any] | None = None, padded: bool = False,
) -> Model:  # fmt: skip
    """Read an ONNX model, of the standard's opsets 1 to 28 (https://onnx.ai/onnx/).

    Args:
      model: a path, the bytes of a file, or an `onnx.ModelProto`. Values that lie in other files
        are read only beside a file that is named by its path, and mapped into memory.
      dims: sizes for symbolic dimensions, by their names, or other names: dimensions of one name
        are equal.
      custom_ops: functions of the inputs and attributes of operators that have no rule, by domain
        and name.
      padded: whether NonMaxSuppression gives as many rows as there may be, so that the model is one
        program with it. An output more counts the rows that are selected, `"<name>.count"`; those
        behind are -1, what follows from them is without meaning, and `TopK` and reductions leave
        them out. Nodes that would mix them with others are refused as the model is traced.

    Returns:
      The model.

    Raises:
      OnnxError: it is damaged, too large or inconsistent; the message names the node.
      UnsupportedOperator: it has operators without a rule; all are named.
      FileNotFoundError: there is no such file.
      TypeError: `model` is none of these, `custom_ops` are no functions by domain and name, or
        `dims` no mapping.

    Example:
      >>> from onnx import helper, TensorProto
      >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
      >>> graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y])
      >>> model = load(helper.make_model(graph))
      >>> print(model(x=np.float32([-1, 2]))["y"])
      [1. 2.]
    """
    if custom_ops is not None and not isinstance(custom_ops, Mapping):
        raise TypeError(f"custom_ops must be functions by (domain, name), got {custom_ops!r}")
    custom = dict(custom_ops or {})
    for key, function in custom.items():
        if not (isinstance(key, tuple) and len(key) == 2 and callable(function)):
            raise TypeError("custom_ops must be functions by (domain, name)")
    if not isinstance(padded, bool):
        raise TypeError(f"padded must be True or False, got {padded!r}")
    try:
        dims = checked_dims(dims)
    except ValueError as e:
        raise OnnxError(str(e)) from None
    with rare_collections:
        program = read_program(parse(model), custom)
    if padded:
        graph = with_padded_selections(lift_constants(program.graph))
        program = dataclasses.replace(program, graph=graph)
    return Model(_with_sizes(program, dims), custom)


class Model(FileModel):
    """A model that was read from a file, by `load`.

    Calling it computes its outputs, by name, from inputs, by name or in their order, compiled as by
    `jit` with 64-bit types; sizes that change become symbolic. Where shapes depend on values, what
    follows from these is run operator by operator.

    Args:
      program: the graph.
      custom: the user's operators, by domain and name.

    Attributes:
      params: its weights by name, arrays of NumPy: views of the file's bytes. Constants that shapes
        are computed of are no parameters.
      inputs, outputs: their names, dtypes and shapes, of which some dimensions are names.
      metadata: what its makers say of it.
    """

    error = OnnxError
    _to_device = staticmethod(to_device)

    def __init__(self, program: Program, custom: Mapping[tuple[str, str], Any]) -> None:
        graph = lift_constants(program.graph)
        names = set(_parameters(graph))
        params = {n: v for n, v in graph.constants.items() if n in names}
        rest = {n: v for n, v in graph.constants.items() if n not in names}
        defaults = {v.name for v in graph.inputs if v.name in graph.constants}
        self.program = dataclasses.replace(
            program, graph=dataclasses.replace(graph, constants=rest)
        )
        inputs = [v for v in graph.inputs if v.name not in defaults]
        super().__init__(params, inputs, graph.outputs, program.metadata, defaults)
        self._custom = dict(custom)
        self._evaluation = Evaluation(self.program, custom)
        self._is_quantized = any(n.op == "DequantizeLinear" for n in walk(self.program.graph))
        self._traceable = all(map(_is_tensor, self.inputs))
        self._is_padded = has_padded_selections(graph)
        self._parts: Parts | None = None  # where the model as a whole cannot be traced

    def _computed(self, params: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        made = self._evaluated(self.program.graph, params, given)
        return {name: to_device(value) for name, value in made.items()}

    def _evaluated(
        self, graph: Graph, params: Mapping[str, Any], given: dict[str, Any]
    ) -> dict[str, Any]:
        """The outputs of the graph or of a part of it."""

        def run(params: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
            values = {name: to_device(params[name]) for name in self.params}
            values.update((name, to_device(value)) for name, value in given.items())
            made = self._evaluation.run(graph, values)
            return dict(zip((v.name for v in graph.outputs), made))

        if self._is_quantized:
            with contextlib.suppress(NotTraceable):  # of values that are known it may work
                return integer_products(run)(dict(params), given)
        return run(params, given)

    def _run(self, given: dict[str, Any]) -> dict[str, Any]:
        if self._traceable:
            try:
                return super()._run(given)
            except NotTraceable as e:
                if self._is_padded:  # what is padded is known as such in one program alone
                    raise
                self._traceable = False
                self._divide(e.outputs)
        while self._parts is not None:
            try:
                made = self._parts.run(self._evaluation, self.params, given)
                return dict(zip((v.name for v in self.outputs), map(to_device, made)))
            except NotTraceable as e:
                self._divide(e.outputs)
        return self.function(self._prepared.arrays(self.params), **given)

    def _divide(self, outputs: tuple[str, ...]) -> None:
        """Leave a node, and what follows from it, out of what is compiled."""
        parts = self._parts
        is_less = parts is None or not parts.names.isdisjoint(outputs)
        blocked = {*(() if parts is None else parts.blocked), *filter(None, outputs)}
        graph = self.program.graph
        self._parts = divided(graph, blocked, self._evaluated) if outputs and is_less else None

    def to_python(self, path: str | os.PathLike[str] | None = None) -> str:
        """The model as source, to be read and changed: a line for each node.

        The source has a function `model(params, ...)` of the parameters and of the inputs in their
        order, and functions for the scopes that names of nodes tell. Where there is a function of
        amdjax that gives the same it is called, else the operator of ONNX.

        Args:
          path: where to write it, mostly "*.py"; parameters are written beside it, as
            "*.safetensors", which `load_params` of the source reads.

        Returns:
          The source.

        Raises:
          OnnxError: the model has operators that are functions of the user, or padded selections.

        Example:
          >>> from onnx import helper, TensorProto
          >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
          >>> graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
          >>> print(load(helper.make_model(graph)).to_python().split("def model")[1])
          (params, x):
              \"\"\"The outputs by name.\"\"\"
              params = {name: to_device(value) for name, value in params.items()}
              x = to_device(x)
              y = jnp.exp(x)
              return {'y': to_device(y)}
          <BLANKLINE>
        """
        if self._is_padded:
            raise OnnxError("padded: load the model without padded=True to write it as source")
        made = Source(self.program, self.params, self.inputs, self._optional, self._custom).text()
        if path is not None:
            path = Path(path)
            nn.save(path.with_suffix(".safetensors"), self.params)
            path.write_text(made, "utf-8")
        return made

    def __str__(self) -> str:
        opsets = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in self.program.opsets.items())
        count = sum(v.size for v in self.params.values())
        head = f"# opsets: {opsets}; {len(self.params)} parameters, {count} numbers"
        bodies = (function.graph.lines() for function in self.program.functions.values())
        return "\n".join([head, *self.program.graph.lines(), *(line for b in bodies for line in b)])


def _is_tensor(value: Value) -> bool:
    return value.kind == "tensor" and value.dtype != object


def _with_sizes(program: Program, dims: dict[str, int | str]) -> Program:
    """The program whose inputs have these sizes for names of dimensions."""
    graph = program.graph
    names = {n for v in graph.inputs for n in v.shape or () if isinstance(n, str)}
    if unknown := set(dims) - names:
        raise OnnxError(
            f"dims: no input has a dimension {min(unknown)!r}; there are {sorted(names)}"
        )
    put = lambda v: dataclasses.replace(v, shape=v.shape and tuple(dims.get(n, n) for n in v.shape))
    inputs, outputs = tuple(map(put, graph.inputs)), tuple(map(put, graph.outputs))
    return dataclasses.replace(
        program, graph=dataclasses.replace(graph, inputs=inputs, outputs=outputs)
    )


def lift_constants(graph: Graph) -> Graph:
    """The graph in which arrays of `Constant` nodes are constants of its own."""
    constants, nodes = dict(graph.constants), []
    for node in graph.nodes:
        value = node.attributes.get("value")
        if node.op == "Constant" and isinstance(value, np.ndarray) and len(node.outputs) == 1:
            constants[node.outputs[0]] = value
        else:
            nodes.append(node)
    return dataclasses.replace(graph, constants=constants, nodes=tuple(nodes))


def _parameters(graph: Graph) -> Iterator[str]:
    """Names of constants that are weights: not of integers that shapes are made of."""
    numbers = {
        node.inputs[i]
        for node in graph.nodes
        for i in _NUMBERS.get(node.op, ())
        if i < len(node.inputs)
    }
    stored = {node.inputs[0] for node in graph.nodes if node.op == "DequantizeLinear"}
    for name, value in graph.constants.items():
        is_float = value.dtype.kind not in "biuOSU" and name not in numbers
        is_large = value.size > LARGE and value.dtype != object
        if is_float or is_large or name in stored:
            yield name
