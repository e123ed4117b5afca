"""A graph that was read: a pure function, its parameters, and what it says of itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import amdjax
from amdjax.core.dims import SymbolicScope, is_symbolic_dim, symbolic_shape
from amdjax.core.dtypes import canonicalize_dtype
from amdjax.core.errors import InconclusiveDimensionOperation

from .errors import InvalidGraph, TensorFlowError
from .evaluation import every_node, needed_as_numbers, run
from .nodes import Graph, Node, Value
from .registry import to_device
from .tensors import shape_of

#: For each layout of images, where its axes are in the other one.
_ORDERS = {"NCHW": (0, 2, 3, 1), "NHWC": (0, 3, 1, 2)}


class Model:
    """A graph that `load` read from a file.

    `params` has its weights by name, arrays of NumPy: constants of floating-point numbers that are
    no scalars, and variables; what shapes are computed of are no parameters. `inputs` and `outputs`
    are their names, dtypes and shapes, of which some dimensions are names; `metadata` is what the
    file says of itself.

    Calling it computes its outputs, by name, from inputs, by name or in their order, compiled as by
    `jit` with 64-bit types; sizes that change become symbolic.

    Args:
      graph: the nodes that outputs need.
      inputs: what is said of the inputs.
      nodes: names of their nodes.
      outputs: names of outputs.
      variables: for each node that is a variable its name and value.
      metadata: what the file says of itself.
      layout: how images are given; None as the graph has them.
    """

    def __init__(
        self, graph: Graph, inputs: Sequence[Value], nodes: Sequence[str], outputs: Sequence[str],
        variables: Mapping[str, tuple[str, np.ndarray]], metadata: Mapping[str, str],
        layout: str | None,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.inputs = tuple(inputs)
        self.metadata = dict(metadata)
        self._nodes = dict(zip((v.name for v in inputs), nodes))
        numbers = needed_as_numbers(graph)
        self._holders: dict[str, list[str]] = {}  # of parameters: nodes
        self.params: dict[str, np.ndarray] = {}
        for node in every_node(graph):
            if node.name in variables:
                name, value = variables[node.name]
            elif node.constant is not None and _is_weight(node.constant, node.name in numbers):
                name, value = node.name, node.constant
            else:
                continue
            self.params[name] = value
            self._holders.setdefault(name, []).append(node.name)
        self._layout = None if layout == _layout(graph) else layout
        self._optional = {n.name for n in graph.nodes if n.op == "PlaceholderWithDefault"}
        if self._layout is not None:
            self.inputs = tuple(_in_layout(v, self._layout) for v in self.inputs)
        self.outputs = tuple(Value(name) for name in outputs)
        self.outputs = self._inferred()
        self._compiled = amdjax.jit(self.function, dynamic="auto")
        self._on_device: dict[str, Any] | None = None

    def function(self, params: Mapping[str, Any], *args: Any, **inputs: Any) -> dict[str, Any]:
        """The graph as a pure function, to be transformed by `jit`, `grad`, `vmap` and others.

        Args:
          params: arrays by name, as in `self.params`.
          args, inputs: the inputs, in their order or by name.

        Returns:
          The outputs by name. Types of 64 bits become those of 32 where `jax_enable_x64` is off.

        Raises:
          TensorFlowError: an input is missing, unknown or of another dtype or shape; a node fails.
        """
        given = self._bound(args, inputs)
        if missing := [name for name in self.params if name not in params]:
            raise TensorFlowError(f"params lacks {missing[0]!r}; start from model.params")
        values = {
            node: to_device(params[name]) for name, nodes in self._holders.items() for node in nodes
        }
        for name, value in given.items():
            value = amdjax.numpy.asarray(value)
            if self._layout is not None and value.ndim == 4:
                value = value.transpose(_ORDERS[self._layout])
            values[self._nodes[name]] = value
        made = [to_device(value) for value in run(self.graph, values)]
        if self._layout is not None:
            back = np.argsort(_ORDERS[self._layout])
            made = [y.transpose(back) if y.ndim == 4 else y for y in made]
        return dict(zip((v.name for v in self.outputs), made))

    def __call__(self, *args: Any, **inputs: Any) -> dict[str, Any]:
        """The outputs by name, of inputs in their order or by name."""
        given = self._bound(args, inputs)
        with amdjax.enable_x64(True):
            if self._on_device is None:
                self._on_device = {name: to_device(v) for name, v in self.params.items()}
            made = self._compiled(self._on_device, **given)
        return {v.name: made[v.name] for v in self.outputs}

    def _bound(self, args: tuple[Any, ...], inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by name, whose dtypes and shapes are those of the graph."""
        shown = "; ".join(map(str, self.inputs))
        if len(args) > len(self.inputs):
            raise TensorFlowError(f"the graph takes {len(self.inputs)} inputs, got {len(args)}")
        given = dict(zip((v.name for v in self.inputs), args))
        for name, value in inputs.items():
            if name in given:
                raise TensorFlowError(f"input {name!r} is given twice")
            if name not in self._nodes:
                raise TensorFlowError(f"the graph has no input {name!r}; its inputs are {shown}")
            given[name] = value
        for value in self.inputs:
            if value.name in given:
                given[value.name] = _fitting(value, given[value.name])
            elif self._nodes[value.name] not in self._optional:
                raise TensorFlowError(f"input {value.name!r} is missing; the inputs are {shown}")
        return given

    def _inferred(self) -> tuple[Value, ...]:
        """What is said of the outputs, by tracing the graph for the shapes of the inputs."""
        is_fixed = all(isinstance(n, int) for v in self.inputs for n in v.shape or ("",))
        names = [{}, _names_by_axis(self.inputs)]
        for shared in names[:1] if is_fixed else names:
            try:
                made = self._shapes(shared)
            except InvalidGraph:
                raise
            except (TensorFlowError, InconclusiveDimensionOperation):
                if is_fixed:
                    raise
                continue
            if shared:
                self.inputs = tuple(_renamed(v, shared) for v in self.inputs)
            return tuple(Value(v.name, y.dtype, _shape(y)) for v, y in zip(self.outputs, made))
        return self.outputs

    def _shapes(self, names: Mapping[str, str]) -> list[Any]:
        """Types of the outputs where dimensions have these names."""
        scope = SymbolicScope()
        shapes = {}
        for value in (_renamed(v, names) for v in self.inputs):
            if value.shape is None or value.dtype is None:
                raise TensorFlowError(f"nothing is said of the shape of input {value.name!r}")
            text = ", ".join(map(str, value.shape)) or None
            shapes[value.name] = symbolic_shape(text, scope=scope) if text else ()
        with amdjax.enable_x64(True):
            described = {name: _described(value) for name, value in self.params.items()}
            inputs = {v.name: amdjax.ShapeDtypeStruct(shapes[v.name], v.dtype) for v in self.inputs}
            made = amdjax.eval_shape(lambda p, i: self.function(p, **i), described, inputs)
        return [made[v.name] for v in self.outputs]

    def __str__(self) -> str:
        count = sum(v.size for v in self.params.values())
        used = Counter(node.op for node in every_node(self.graph))
        lines = [
            f"# {self.metadata.get('kind', 'graph')}: {sum(used.values())} nodes, "
            f"{len(self.params)} parameters, {count} numbers"
        ]
        for title, values in (("inputs", self.inputs), ("outputs", self.outputs)):
            lines += [title, *(f"  {value}" for value in values)]
        lines += ["operators", *(f"  {op} {n}" for op, n in sorted(used.items()))]
        return "\n".join(lines)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, v)) for v in (self.inputs, self.outputs))
        return f"Model({inputs} -> {outputs})"


def declared(node: Node) -> Value:
    """What the file says of an input."""
    shape = node.message("shape", "shape")
    if shape is None:
        lists = node.message("_output_shapes", "list")
        shape = lists.shape[0] if lists is not None and len(lists.shape) == 1 else None
    sizes = None if shape is None else shape_of(shape, f"node {node.name!r} ({node.op}): shape")
    return named(node.name, node.dtype("dtype"), sizes)


def named(name: str, dtype: np.dtype | None, shape: Sequence[int | None] | None) -> Value:
    """An input whose unknown sizes have names."""
    if shape is None:
        return Value(name, dtype, None)
    plain = re.sub(r"\W", "_", name).strip("_")
    plain = plain if plain[:1].isalpha() else f"input_{plain}"
    names = ("batch", *(f"{plain}_{i}" for i in range(1, len(shape))))
    return Value(name, dtype, tuple(n if size is None else size for n, size in zip(names, shape)))


def with_dims(inputs: Sequence[Value], dims: Mapping[str, Any]) -> list[Value]:
    """Inputs of which some dimensions have other names, or sizes.

    Args:
      inputs: the inputs.
      dims: sizes by names of dimensions, or whole shapes by names of inputs.
    """
    names = {n for v in inputs for n in v.shape or () if isinstance(n, str)}
    known = sorted(names | {v.name for v in inputs})
    if unknown := set(dims) - set(known):
        raise TensorFlowError(f"dims: no input has a dimension {min(unknown)!r}; there are {known}")
    found = []
    for value in inputs:
        given = dims.get(value.name)
        if isinstance(given, (tuple, list)):
            if value.shape is not None and len(given) != len(value.shape):
                raise TensorFlowError(f"dims: input {value} has {len(value.shape)} axes")
            found.append(Value(value.name, value.dtype, tuple(given)))
        else:
            sizes = {n: dims[n] for n in names if n in dims}
            found.append(_renamed(value, sizes))
    return found


def _is_weight(value: np.ndarray, is_number: bool) -> bool:
    return value.dtype.kind not in "biuOSU" and value.ndim > 0 and not is_number


def _described(value: Any) -> Any:
    return amdjax.ShapeDtypeStruct(value.shape, value.dtype)


def _shape(y: Any) -> tuple[int | str, ...]:
    return tuple(str(n) if is_symbolic_dim(n) else int(n) for n in y.shape)


def _names_by_axis(inputs: Sequence[Value]) -> dict[str, str]:
    """For names of dimensions, names that inputs share."""
    return {
        n: "batch" if i == 0 else f"axis_{i}"
        for v in inputs
        for i, n in enumerate(v.shape or ())
        if isinstance(n, str)
    }


def _renamed(value: Value, names: Mapping[str, Any]) -> Value:
    shape = value.shape and tuple(names.get(n, n) if isinstance(n, str) else n for n in value.shape)
    return Value(value.name, value.dtype, shape)


def _layout(graph: Graph) -> str:
    """The layout of a graph's images."""
    found = {
        node.text("data_format", "NHWC")
        for node in every_node(graph)
        if "data_format" in node.attributes
    }
    return "NCHW" if found == {"NCHW"} else "NHWC"


def _in_layout(value: Value, layout: str) -> Value:
    if value.shape is None or len(value.shape) != 4:
        return value
    order = np.argsort(_ORDERS[layout])
    return Value(value.name, value.dtype, tuple(value.shape[i] for i in order))


def _fitting(value: Value, given: Any) -> Any:
    """An input that has the dtype and the shape that the graph says."""
    if not hasattr(given, "dtype"):
        given = np.asarray(given, value.dtype)
    if value.dtype is not None and given.dtype not in (
        value.dtype,
        canonicalize_dtype(value.dtype),
    ):
        raise TensorFlowError(f"input {value} must be {value.dtype}, got {given.dtype}")
    if value.shape is None:
        return given
    if len(given.shape) != len(value.shape):
        raise TensorFlowError(f"input {value} has {len(value.shape)} axes, got shape {given.shape}")
    for axis, (said, size) in enumerate(zip(value.shape, given.shape)):
        if isinstance(said, int) and not is_symbolic_dim(size) and size != said:
            raise TensorFlowError(
                f"input {value}: axis {axis} must have {said} elements, got shape {given.shape}"
            )
    return given
