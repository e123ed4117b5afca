"""Models that depend on values, such as how many boxes a detector keeps, are compiled in part.

What does not follow from such a node is one compiled program, the front; the rest is run operator
by operator, of what the front gives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from amdjax import numpy as jnp
from amdjax.export.prepared import Prepared
from amdjax.export.values import Value

from .evaluation import Evaluation, to_device
from .graph import Graph, Node
from .registry import has_symbols

#: A function of a graph, parameters and inputs, which gives the graph's outputs by name.
Evaluate = Callable[[Graph, Mapping[str, Any], dict[str, Any]], dict[str, Any]]


class Parts(NamedTuple):
    """A graph in two parts.

    Attributes:
      front: a function of parameters and inputs, compiled, which gives values by name.
      names: the nodes of the front, by their outputs.
      back: the other nodes.
      blocked: values that are not known while a function is traced.
    """

    front: Prepared
    names: frozenset[str]
    back: Graph
    blocked: frozenset[str]

    def run(
        self, evaluation: Evaluation, params: Mapping[str, Any], given: dict[str, Any]
    ) -> list[Any]:
        """The outputs of the whole."""
        values = dict(self.front(params, given)) if self.names else {}
        read = self.back.free | {v.name for v in self.back.outputs}
        values |= {n: to_device(params[n]) for n in read & params.keys()}
        values |= {n: to_device(v) for n, v in given.items()}
        return evaluation.run(self.back, values)


def divided(graph: Graph, blocked: Collection[str], evaluate: Evaluate) -> Parts:
    """A graph in two parts.

    Args:
      graph: it.
      blocked: outputs of nodes that cannot be traced.
      evaluate: computes a graph.
    """
    later = set(blocked)
    front: list[Node] = []
    back: list[Node] = []
    for node in graph.nodes:
        is_later = not later.isdisjoint((*node.reads, *node.outputs))
        later |= set(node.outputs) if is_later else set()
        (back if is_later else front).append(node)
    names = frozenset(n for node in front for n in node.outputs if n)
    behind = dataclasses.replace(graph, nodes=tuple(back))
    given = sorted((behind.free | {v.name for v in graph.outputs}) & names)
    outputs = tuple(Value(n, np.dtype(np.float32), None) for n in given)
    before = dataclasses.replace(graph, nodes=tuple(front), outputs=outputs)

    def run(params: Mapping[str, Any], **inputs: Any) -> dict[str, Any]:
        made = evaluate(before, params, inputs)
        return {n: _computed(v) for n, v in made.items() if v is not None}

    return Parts(Prepared(run, to_device), names, behind, frozenset(blocked))


def _computed(value: Any) -> Any:
    """A value of the front; sizes that are symbolic as numbers of a compiled program."""
    return jnp.asarray(value.tolist()) if has_symbols(value) else value
