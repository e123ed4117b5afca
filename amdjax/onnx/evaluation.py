"""Graphs are evaluated node by node, on arrays or on tracers."""

from __future__ import annotations

import inspect
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from amdjax import ensure_compile_time_eval, named_scope
from amdjax.core.errors import ConcretizationTypeError, InconclusiveDimensionOperation
from amdjax.core.trace import Tracer
from amdjax.export.values import as_array

from .errors import NotTraceable, OnnxError
from .graph import Function, Graph, Node, Program, Reference
from .padding import Padded, Sizes, padded_outputs, plain
from .reading import dtype_of, read_body
from .registry import Rule, find_rule, has_symbols, is_host

Values = MutableMapping[str, Any]


#: What a rule may end in where operands do not fit, or are larger than there is room for.
_FAILURES = (
    TypeError, ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError, MemoryError,
)  # fmt: skip


class Evaluation:
    """One evaluation of a program.

    Args:
      program: what is evaluated.
      custom: the user's operators, by domain and name.
    """

    def __init__(self, program: Program, custom: Mapping[tuple[str, str], Any]) -> None:
        self.program = program
        self.custom = custom

    def run(self, graph: Graph, values: Values) -> list[Any]:
        """The outputs of a graph.

        Args:
          graph: the graph.
          values: its inputs by name; gets all that is computed.
        """
        made = self.body(graph, values, {})
        for output, value in zip(graph.outputs, made):
            if output.name not in values:
                raise OnnxError(f"output {output.name!r} was not computed: no operator gives it")
            if isinstance(value, Sizes):
                raise OnnxError(
                    f"output {output.name!r} counts rows of which some are padding; load the model "
                    "without padded=True"
                )
        return [plain(value) for value in made]

    def body(self, graph: Graph, values: Values, bound: Mapping[str, Any]) -> list[Any]:
        """The outputs of the graph of a model, of a node or of a function.

        Args:
          graph: the graph.
          values: its inputs by name, with what lies around it; gets all that is computed.
          bound: attributes of the function that it is the body of.
        """
        for name, constant in graph.constants.items():
            values.setdefault(name, constant)
        for node, dying in zip(graph.nodes, graph.dies):
            made = self.node(node, values, bound)
            values.update((name, v) for name, v in zip(node.outputs, made) if name)
            for name in dying:
                values.pop(name, None)
        # Bodies of operators leave out outputs that are not asked for.
        return [values.get(v.name) for v in graph.outputs]

    def node(self, node: Node, values: Values, bound: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs of a node."""
        for name in node.reads:
            if name not in values:
                raise OnnxError(
                    f"node {node.name!r} ({node.op}): its input {name!r} was not computed"
                )
        inputs = [values[name] if name else None for name in node.inputs]
        attributes = {k: _resolved(v, bound) for k, v in node.attributes.items()}
        attributes = {k: v for k, v in attributes.items() if v is not None}
        call = _Call(self, node, values, bound)
        function = self.program.functions.get((node.domain, node.op, node.overload))
        try:
            with named_scope(node.name):
                if function is not None:
                    return self.function(function, inputs, attributes)
                if any(isinstance(values.get(n), (Padded, Sizes)) for n in node.reads):
                    return padded_outputs(node, inputs, attributes, self._plain(node, attributes))
                return self.operator(call, inputs, attributes)
        except (OnnxError, ConcretizationTypeError, InconclusiveDimensionOperation) as e:
            raise _named(e, node) from e
        except _FAILURES as e:
            if isinstance(e, NotImplementedError):
                raise
            shown = ", ".join(map(_described, inputs))
            raise OnnxError(f"node {node.name!r} ({node.op}), given {shown}: {e}") from e

    def _plain(self, node: Node, attributes: dict[str, Any]) -> Callable[[list[Any]], Any]:
        """An operator without subgraphs as a function of its operands."""

        def run(inputs: list[Any]) -> Sequence[Any]:
            call = _Call(self, node, dict(zip(node.inputs, inputs)), {})
            return self.operator(call, inputs, attributes)

        return run

    def operator(self, call: _Call, inputs: list[Any], attributes: dict[str, Any]) -> Sequence[Any]:
        """The outputs of an operator, by a function of the user, a rule or the standard's body."""
        node = call.node
        custom = self.custom.get((node.domain, node.op))
        if custom is not None:
            return as_outputs(custom(*inputs, **attributes))
        rule = find_rule(node.domain, node.op, node.opset)
        if rule is None:
            return self.function(read_body(node, inputs, attributes), inputs, attributes)
        # Subgraphs read what lies around the node, too.
        if not all(is_host(call.values.get(name)) for name in node.reads):
            return as_outputs(apply_rule(rule, call, inputs, attributes))
        if any(has_symbols(call.values.get(name)) for name in node.reads):
            made = as_outputs(apply_rule(rule, call, inputs, attributes))
            return [v if isinstance(v, Tracer) else to_host(v) for v in made]
        # Of what is known now the result is known now, whatever functions the rule uses.
        with ensure_compile_time_eval():
            made = as_outputs(apply_rule(rule, call, inputs, attributes))
        return [to_host(value) for value in made]

    def function(
        self, function: Function, inputs: Sequence[Any], attributes: Mapping[str, Any]
    ) -> Sequence[Any]:
        """The outputs of a function's body."""
        given = [*inputs, *[None] * (len(function.inputs) - len(inputs))]
        values = dict(zip(function.inputs, given))
        bound = {**function.attributes, **attributes}
        return self.body(function.graph, values, bound)


class _Call:
    """What a rule may ask of its node; see `registry.Call`."""

    def __init__(
        self, evaluation: Evaluation, node: Node, values: Values, bound: Mapping[str, Any]
    ) -> None:
        self.node = node
        self.outputs = len(node.outputs)
        self.opset = node.opset
        self.values = values
        self._evaluation, self._bound = evaluation, bound

    @property
    def version(self) -> int:
        return self.node.version

    def error(self, message: str) -> OnnxError:
        return OnnxError(message)

    def graph(self, graph: Graph, arguments: Sequence[Any]) -> list[Any]:
        if len(arguments) != len(graph.inputs):
            raise OnnxError(
                f"its subgraph {graph.name!r} has {len(graph.inputs)} inputs, not {len(arguments)}"
            )
        own = dict(zip((v.name for v in graph.inputs), arguments))
        return self._evaluation.body(graph, ChainMap(own, self.values), self._bound)


def apply_rule(rule: Rule, call: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """What a rule gives; attributes that name dtypes become dtypes."""
    given = {name: _attribute(name, value) for name, value in attributes.items()}
    # Names that begin with "_" are of the rules' own, which no file may change.
    own = (name for name in given if name.startswith("_"))
    new = (name for name in given if not rule.takes_all and name not in rule.attributes)
    for name in (*own, *new):
        raise OnnxError(f"it takes no attribute {name!r}, but {', '.join(sorted(rule.attributes))}")
    if rule.wants_node:
        given["node"] = call
    try:
        bound = _signature(rule.run).bind(*inputs, **given)
    except TypeError as e:  # too few or many inputs, an attribute left out
        raise OnnxError(str(e)) from None
    return rule.run(*bound.args, **bound.kwargs)


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _attribute(name: str, value: Any) -> Any:
    if isinstance(value, int) and (name == "to" or name.endswith("dtype")):
        return dtype_of(value) if value else None
    return value


def _resolved(value: Any, bound: Mapping[str, Any]) -> Any:
    return bound.get(value.name) if isinstance(value, Reference) else value


def as_outputs(made: Any) -> Sequence[Any]:
    """What a rule gave, which may be one value, as several."""
    return made if isinstance(made, tuple) else (made,)


def to_host(value: Any) -> Any:
    """A value that is known, as an array of NumPy."""
    if isinstance(value, list):
        return [to_host(v) for v in value]
    return value if value is None or isinstance(value, Padded) else np.asarray(value)


def to_device(value: Any) -> Any:
    """An input as an array of amdjax; strings stay where they are, lists are sequences."""
    if isinstance(value, (list, tuple)):
        return [to_device(v) for v in value]
    if value is None or (isinstance(value, np.ndarray) and value.dtype.kind in "OSU"):
        return value
    return as_array(value)


def _described(value: Any) -> str:
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    if isinstance(value, np.ndarray) and value.size <= 8:
        return f"{value.dtype}{value.tolist()}" if value.ndim else f"{value.dtype}({value})"
    if hasattr(value, "shape"):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return repr(value)


def _named(error: Exception, node: Node) -> Exception:
    """The error, with the node's name; those of inner nodes are named after it."""
    known = isinstance(error, OnnxError)
    traced = isinstance(error, NotTraceable) or not known
    text = f"node {node.name!r} ({node.op}): {error}"
    if not traced:
        return type(error)(text)
    made = NotTraceable(text)
    made.outputs = tuple(node.outputs)
    return made
