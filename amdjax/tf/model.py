"""A graph that was read: a pure function, its parameters, and what it says of itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import amdjax
from amdjax.core.dims import SymbolicScope, is_symbolic_dim, symbolic_shape
from amdjax.core.errors import InconclusiveDimensionOperation
from amdjax.export.model import FileModel
from amdjax.export.values import Value

from .errors import InvalidGraph, TensorFlowError
from .evaluation import every_node, needed_as_numbers, run
from .nodes import Graph, Node
from .registry import to_device
from .tensors import shape_of

#: For each layout of images, where its axes are in the other one.
_ORDERS = {"NCHW": (0, 2, 3, 1), "NHWC": (0, 3, 1, 2)}


class Model(FileModel):
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

    error = TensorFlowError
    whose = "the graph"
    names_are_equal = False  # they are made up where the file has none
    _to_device = staticmethod(to_device)

    def __init__(
        self, graph: Graph, inputs: Sequence[Value], nodes: Sequence[str], outputs: Sequence[str],
        variables: Mapping[str, tuple[str, np.ndarray]], metadata: Mapping[str, str],
        layout: str | None,
    ) -> None:  # fmt: skip
        self.graph = graph
        self._nodes = dict(zip((v.name for v in inputs), nodes))
        numbers = needed_as_numbers(graph)
        self._holders: dict[str, list[str]] = {}  # of parameters: nodes
        params: dict[str, np.ndarray] = {}
        for node in every_node(graph):
            if node.name in variables:
                name, value = variables[node.name]
            elif node.constant is not None and _is_weight(node.constant, node.name in numbers):
                name, value = node.name, node.constant
            else:
                continue
            params[name] = value
            self._holders.setdefault(name, []).append(node.name)
        self._layout = None if layout == _layout(graph) else layout
        defaults = {n.name for n in graph.nodes if n.op == "PlaceholderWithDefault"}
        if self._layout is not None:
            inputs = [_in_layout(v, self._layout) for v in inputs]
        optional = {name for name, node in self._nodes.items() if node in defaults}
        super().__init__(params, inputs, [Value(name) for name in outputs], metadata, optional)
        self.outputs = self._inferred()

    def _computed(self, params: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
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
