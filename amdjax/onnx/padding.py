"""Selections padded to a bound, so that a detector is one program with its suppression.

What follows from padded rows has them, too: it is the same row by row, and what mixes rows, such as
the largest of them, is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from amdjax.export.values import Value

from .errors import OnnxError
from .graph import Graph, Node, walk

_SELECTIONS = ("NonMaxSuppression",)
#: Operators of elements.
_BY_ELEMENT = {
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Div", "Equal", "Exp", "Floor",
    "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log", "Max", "Min",
    "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign",
    "Sqrt", "Sub", "Sum", "Tanh", "Where", "Xor",
}  # fmt: skip
#: Operators along axes, with the input that says which; they are none of rows where that is not 0.
_ALONG_AXES = {"Concat": None, "Split": None, "Slice": 3, "Squeeze": 1, "Unsqueeze": 1}
#: Operators that look rows up, which are those of indices where the data has none.
_LOOKS_UP = frozenset(("Gather", "GatherElements", "GatherND"))


def with_padded_selections(graph: Graph) -> Graph:
    """A graph whose suppressions give all rows that there may be, and outputs that count them.

    Raises:
      OnnxError: a suppression is in a subgraph, or a node mixes rows that it gives.
    """
    padded: dict[str, str] = {}  # values, and the suppression that they follow from
    nodes, counts = [], []
    for node in graph.nodes:
        if any(inner.op in _SELECTIONS for g in node.graphs for inner in walk(g)):
            raise OnnxError(f"padded: node {node.name!r} ({node.op}) has a suppression inside")
        sources = [padded[name] for name in sorted(node.reads) if name in padded]
        if sources:
            if not _is_apart(node, padded, graph.constants):
                raise OnnxError(
                    f"padded: node {node.name!r} ({node.op}) may mix rows of what {sources[0]!r} "
                    "selects, of which some are padding; load the model without padded=True"
                )
            padded.update((name, sources[0]) for name in node.outputs)
        if node.op in _SELECTIONS and not node.domain:
            count = f"{node.outputs[0]}.count"
            counts.append(Value(count, np.dtype(np.int64), ()))
            padded[node.outputs[0]] = node.name
            node = dataclasses.replace(node, outputs=(node.outputs[0], count))
        nodes.append(node)
    outputs = (*graph.outputs, *counts)
    return dataclasses.replace(graph, nodes=tuple(nodes), outputs=outputs)


def _is_apart(node: Node, padded: Mapping[str, str], constants: Mapping[str, Any]) -> bool:
    """Whether a node treats rows apart, which are on the first axis."""
    if node.domain:
        return False
    if node.op in _LOOKS_UP and node.inputs[0] not in padded:
        return True
    if node.op in ("Gather", "GatherElements"):
        return node.inputs[1] not in padded and node.attributes.get("axis", 0) > 0
    if node.op in _ALONG_AXES:
        at = _ALONG_AXES[node.op]
        axes = node.attributes.get("axis", node.attributes.get("axes"))
        if at is not None and len(node.inputs) > at:
            axes = constants.get(node.inputs[at])
        # The last axis is that of rows where there is no other, which none is removed or added to.
        least = -1 if node.op in ("Squeeze", "Unsqueeze") else 1
        return axes is not None and all(a == least or a > 0 for a in np.ravel(axes))
    return node.op in _BY_ELEMENT
