"""What a graph computes, node by node, and which of its constants are needed as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from amdjax import named_scope
from amdjax.core.errors import InconclusiveDimensionOperation

from .errors import InvalidGraph
from .inlining import ARGUMENT
from .nodes import Graph, Node
from .registry import evaluate, find_rule

#: Operators whose result does not depend on elements of their input.
_OF_SHAPE = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")
#: A value of no kind: what a branch that is not taken results in.
DEAD = object()


def run(graph: Graph, given: Mapping[str, Any]) -> list[Any]:
    """The values of a graph's outputs.

    Args:
      graph: the graph.
      given: values of nodes by name: inputs, parameters, and what control flow gives its graphs.

    Raises:
      TensorFlowError: a node cannot be computed.
    """
    values: dict[str, tuple[Any, ...]] = {}

    def run_inner(inner: Graph, inputs: Sequence[Any]) -> list[Any]:
        return run(inner, {**given, **dict(zip(inner.inputs, inputs))})

    for node, dies in zip(graph.nodes, graph.dies):
        if node.name in given:
            values[node.name] = (given[node.name],)
        else:
            inputs = [_output(node, values, *edge) for edge in node.inputs]
            values[node.name] = _evaluated(node, inputs, run_inner)
        for name in dies:
            if (name, 0) not in graph.outputs:
                del values[name]
    found = []
    for name, at in graph.outputs:
        if at >= len(values[name]) or values[name][at] is DEAD:
            raise InvalidGraph(f"outputs: there is no output {at} of node {name!r}")
        found.append(values[name][at])
    return found


def _output(node: Node, values: Mapping[str, tuple[Any, ...]], name: str, at: int) -> Any:
    if at >= len(values[name]):
        raise node.invalid(f"input {name}:{at}: {name!r} has {len(values[name])} outputs")
    return values[name][at]


def _evaluated(node: Node, inputs: list[Any], run_inner: Any) -> tuple[Any, ...]:
    if any(value is DEAD for value in inputs):
        return (DEAD, DEAD)
    made = find_rule(node.op)
    if made is None:
        kind = "is not given" if node.op in (ARGUMENT, "Placeholder") else "has no rule"
        raise node.error(f"it {kind}")
    try:
        with named_scope(node.name):
            return evaluate(node, made, inputs, run_inner)
    except InconclusiveDimensionOperation as e:
        e.add_note(f"in node {node.name!r} ({node.op})")
        raise


def every_node(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of the graphs of its control flow."""
    for node in graph.nodes:
        yield node
        for inner in node.graphs.values():
            yield from every_node(inner)


def needed_as_numbers(graph: Graph) -> set[str]:
    """Names of nodes whose values must be known as the graph is traced."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        made = find_rule(node.op)
        count = len(node.inputs)
        for i, (name, _) in enumerate(node.inputs):
            is_number = made is not None and made.is_number(i, count)
            if is_number or (node.name in found and node.op not in _OF_SHAPE):
                found.add(name)
        for inner in node.graphs.values():
            found |= needed_as_numbers(inner)
    return found
