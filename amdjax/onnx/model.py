"""A model that was read: a pure function, its parameters, and what it says of itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import amdjax
from amdjax.core.dims import is_symbolic_dim
from amdjax.core.dtypes import canonicalize_dtype

from .errors import NotTraceable, OnnxError
from .evaluation import Evaluation, to_device
from .graph import Graph, Program, Value
from .reading import parse, read_program

#: Integers of more elements are parameters: tables and weights, not shapes.
LARGE = 4096
#: Operands, by their number, that are needed as numbers though they are floats.
_NUMBERS = {"Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2), "Dropout": (1, 2)}


def load(
    model: Any, *, dims: Mapping[str, int] | None = None,
    custom_ops: Mapping[tuple[str, str], Any] | None = None,
) -> Model:  # fmt: skip
    """Read an ONNX model, of the standard's opsets 1 to 28 (https://onnx.ai/onnx/).

    Args:
      model: a path, the bytes of a file, or an `onnx.ModelProto`. Values that lie in other files
        are read only beside a file that is named by its path, and mapped into memory.
      dims: sizes for symbolic dimensions, by their names.
      custom_ops: functions of the inputs and attributes of operators that have no rule, by domain
        and name.

    Returns:
      The model.

    Raises:
      OnnxError: it is damaged, too large or inconsistent; the message names the node.
      UnsupportedOperator: it has operators without a rule; all are named.
      FileNotFoundError: there is no such file.
      TypeError: `model` is none of these, or `custom_ops` are no functions by domain and name.

    Example:
      >>> from onnx import helper, TensorProto
      >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy")
      >>> graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y])
      >>> model = load(helper.make_model(graph))
      >>> print(model(x=np.float32([-1, 2]))["y"])
      [1. 2.]
    """
    custom = dict(custom_ops or {})
    for key, function in custom.items():
        if not (isinstance(key, tuple) and len(key) == 2 and callable(function)):
            raise TypeError("custom_ops must be functions by (domain, name)")
    proto, folder = parse(model)
    program = read_program(proto, folder, custom)
    return Model(_with_sizes(program, dict(dims or {})), custom)


class Model:
    """A model that was read from a file, by `load`.

    Calling it computes its outputs, by name, from inputs, by name or in their order, compiled as by
    `jit` with 64-bit types; sizes that change become symbolic. Where shapes depend on values it is
    run operator by operator.

    Args:
      program: the graph.
      custom: the user's operators, by domain and name.

    Attributes:
      params: its weights by name, arrays of NumPy: views of the file's bytes. Constants that shapes
        are computed of are no parameters.
      inputs, outputs: their names, dtypes and shapes, of which some dimensions are names.
      metadata: what its makers say of it.
    """

    def __init__(self, program: Program, custom: Mapping[tuple[str, str], Any]) -> None:
        graph = lift_constants(program.graph)
        names = set(_parameters(graph))
        self.params: dict[str, np.ndarray] = {
            n: v for n, v in graph.constants.items() if n in names
        }
        rest = {n: v for n, v in graph.constants.items() if n not in names}
        defaults = {v.name for v in graph.inputs if v.name in graph.constants}
        self.program = dataclasses.replace(
            program, graph=dataclasses.replace(graph, constants=rest)
        )
        self.inputs = tuple(v for v in graph.inputs if v.name not in defaults)
        self.outputs = graph.outputs
        self.metadata = dict(program.metadata)
        self._optional = {v.name: v for v in graph.inputs if v.name in defaults}
        self._evaluation = Evaluation(self.program, custom)
        self._compiled = amdjax.jit(self.function, dynamic="auto")
        self._on_device: dict[str, Any] | None = None
        self._traceable = all(map(_is_tensor, self.inputs))

    def function(self, params: Mapping[str, Any], *args: Any, **inputs: Any) -> dict[str, Any]:
        """The model as a pure function, to be transformed by `jit`, `grad`, `vmap` and others.

        Args:
          params: arrays by name, as in `self.params`.
          args, inputs: the inputs, in their order or by name.

        Returns:
          The outputs by name. Types of 64 bits become those of 32 where `jax_enable_x64` is off.

        Raises:
          OnnxError: an input is missing, unknown or of another dtype or shape; a node fails.
          NotTraceable: shapes depend on the values of inputs that are traced.
        """
        given = self._bound(args, inputs)
        if missing := [name for name in self.params if name not in params]:
            raise OnnxError(f"params lacks {missing[0]!r}; start from model.params")
        values = {name: to_device(params[name]) for name in self.params}
        values.update((name, to_device(value)) for name, value in given.items())
        made = self._evaluation.run(self.program.graph, values)
        return dict(zip((v.name for v in self.outputs), map(to_device, made)))

    def __call__(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        """The outputs by name, of inputs in their order or by name."""
        given = self._bound(args, inputs)
        with amdjax.enable_x64(True):
            if self._on_device is None:
                self._on_device = {name: to_device(v) for name, v in self.params.items()}
            if self._traceable:
                try:
                    made = self._compiled(self._on_device, **given)
                    return {v.name: made[v.name] for v in self.outputs}
                except NotTraceable:
                    self._traceable = False
            return self.function(self._on_device, **given)

    def _bound(self, args: tuple[Any, ...], inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by name, whose dtypes and shapes are those of the model."""
        if len(args) > len(self.inputs):
            raise OnnxError(f"the model takes {len(self.inputs)} inputs, got {len(args)}")
        given = dict(zip((v.name for v in self.inputs), args))
        for name, value in inputs.items():
            if name in given:
                raise OnnxError(f"input {name!r} is given twice")
            given[name] = value
        known = {v.name: v for v in self.inputs} | self._optional
        shown = ", ".join(map(str, self.inputs))
        for name in given:
            if name not in known:
                raise OnnxError(f"the model has no input {name!r}; its inputs are {shown}")
        sizes: dict[str, Any] = {}
        for value in self.inputs:
            if value.name not in given:
                if "optional" in value.kind:
                    given[value.name] = None
                    continue
                raise OnnxError(f"input {value.name!r} is missing; the inputs are {shown}")
            given[value.name] = _fitting(value, given[value.name], sizes)
        return given

    def __str__(self) -> str:
        opsets = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in self.program.opsets.items())
        count = sum(v.size for v in self.params.values())
        head = f"# opsets: {opsets}; {len(self.params)} parameters, {count} numbers"
        bodies = (function.graph.lines() for function in self.program.functions.values())
        return "\n".join([head, *self.program.graph.lines(), *(line for b in bodies for line in b)])

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, v)) for v in (self.inputs, self.outputs))
        return f"Model({inputs} -> {outputs})"


def _is_tensor(value: Value) -> bool:
    return value.kind == "tensor" and value.dtype != object


def _fitting(value: Value, given: Any, sizes: dict[str, Any]) -> Any:
    """An input that has the dtype and the shape that the model says."""
    if value.kind != "tensor" or given is None:
        return given
    if not hasattr(given, "dtype"):
        given = np.asarray(given, value.dtype)
    if value.dtype == object or given.dtype.kind in "OSU":
        return given
    if value.dtype is not None and given.dtype not in (
        value.dtype,
        canonicalize_dtype(value.dtype),
    ):
        raise OnnxError(f"input {value.name!r} must be {value.dtype}, got {given.dtype}")
    if value.shape is None:
        return given
    if len(given.shape) != len(value.shape):
        raise OnnxError(f"input {value} has {len(value.shape)} axes, got shape {given.shape}")
    for axis, (said, size) in enumerate(zip(value.shape, given.shape)):
        if said is None or is_symbolic_dim(size):
            continue
        expected = sizes.setdefault(said, size) if isinstance(said, str) else said
        if expected != size:
            raise OnnxError(
                f"input {value}: axis {axis} must have {expected} elements, got shape {given.shape}"
            )
    return given


def _with_sizes(program: Program, dims: dict[str, int]) -> Program:
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
    for name, value in graph.constants.items():
        is_float = value.dtype.kind not in "biuOSU"
        if (is_float and name not in numbers) or (value.size > LARGE and value.dtype != object):
            yield name
