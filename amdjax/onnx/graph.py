"""A model as plain data: graphs of nodes, whose attributes are Python values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from amdjax.export.values import Value

from .standard import version_of


@dataclass(frozen=True)
class Reference:
    """An attribute of a node in a function, which is an attribute of the function's call."""

    name: str


@dataclass(frozen=True)
class Node:
    """An operator or function that is applied.

    Attributes:
      op, domain, overload: which.
      opset: of its domain where it stands; of a function, 0.
      name: of the node, or `op` and its number.
      inputs, outputs: names of values; "" where one is left out.
      attributes: Python values by name.
    """

    op: str
    domain: str
    overload: str
    opset: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def version(self) -> int:
        """The opset in which the operator last changed; of a function, 0."""
        return self.opset and version_of(self.domain, self.op, self.opset)

    @property
    def graphs(self) -> Iterator[Graph]:
        """Its subgraphs."""
        for value in self.attributes.values():
            for part in value if isinstance(value, list) else (value,):
                if isinstance(part, Graph):
                    yield part

    @cached_property
    def reads(self) -> frozenset[str]:
        """Names of the values around it that it reads, those of its subgraphs among them."""
        inner = (name for graph in self.graphs for name in graph.free)
        return frozenset({*self.inputs, *inner} - {""})

    def __str__(self) -> str:
        name = f"{self.domain}.{self.op}" if self.domain else self.op
        shown = "".join(f", {k}={_shown(v)}" for k, v in self.attributes.items())
        return (
            f"{', '.join(self.outputs)} = {name}({', '.join(i or '_' for i in self.inputs)}{shown})"
        )


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can be computed.

    Attributes:
      name: as the model has it.
      inputs, outputs: what is said of them.
      constants: arrays by name, of which inputs of that name are the default.
      nodes: the nodes.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: Mapping[str, Any]
    nodes: tuple[Node, ...]

    @cached_property
    def free(self) -> frozenset[str]:
        """Names that it reads from around it."""
        own = {v.name for v in self.inputs} | set(self.constants)
        found: set[str] = set()
        for node in self.nodes:
            found |= node.reads - own
            own |= set(node.outputs)
        return frozenset(found | {v.name for v in self.outputs} - own)

    @cached_property
    def dies(self) -> tuple[tuple[str, ...], ...]:
        """For each node the values of this graph that nothing reads after it."""
        live = {v.name for v in self.outputs}
        own = set(self.constants) | {v.name for v in self.inputs}
        own |= {name for node in self.nodes for name in node.outputs}
        dying: list[tuple[str, ...]] = []
        for node in reversed(self.nodes):
            last = ((node.reads | set(node.outputs)) & own) - live - {""}
            dying.append(tuple(last))
            live |= last
        return tuple(reversed(dying))

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, indent: str = "") -> Iterator[str]:
        """Its text, a node a line, subgraphs below their node."""
        inner = indent + "  "
        yield f"{indent}graph {self.name}({', '.join(map(str, self.inputs))}) {{"
        for node in self.nodes:
            yield inner + str(node)
            for graph in node.graphs:
                yield from graph.lines(inner + "  ")
        yield f"{inner}return {', '.join(map(str, self.outputs))}"
        yield indent + "}"


@dataclass(frozen=True)
class Function:
    """A function of a model: nodes with names for what they are given."""

    inputs: tuple[str, ...]
    attributes: Mapping[str, Any]  # with their defaults; None where a call has to give one
    graph: Graph


@dataclass(frozen=True)
class Program:
    """A whole model.

    Attributes:
      graph: what it computes.
      functions: by domain, name and overload.
      opsets: versions of the domains it uses.
      metadata: what its makers say of it.
    """

    graph: Graph
    functions: Mapping[tuple[str, str, str], Function]
    opsets: Mapping[str, int]
    metadata: Mapping[str, str] = field(default_factory=dict)


def walk(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of its subgraphs."""
    for node in graph.nodes:
        yield node
        for inner in node.graphs:
            yield from walk(inner)


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{list(value.shape)}" if value.size > 8 else str(value.tolist())
    if isinstance(value, Graph):
        return value.name or "graph"
    if isinstance(value, Reference):
        return f"@{value.name}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)
