"""Operators of ONNX as functions, for programs that were written out from a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import OnnxError
from .evaluation import Evaluation, apply_rule, as_outputs
from .graph import Graph, Node, Program, Value
from .registry import find_rule

_NOTHING = Program(Graph("", (), (), {}, ()), {}, {})


@dataclass(frozen=True)
class Subgraph:
    """A function in the place of a graph that an operator takes, such as a loop's body.

    Args:
      function: of the graph's inputs; gives its outputs, a tuple.
      outputs: the dtype and shape of each, as far as known.
    """

    function: Callable[..., Sequence[Any]]
    described: Sequence[tuple[Any, Any]]

    @property
    def outputs(self) -> list[Value]:
        """What is said of the outputs."""
        return [Value("", d and np.dtype(d), s) for d, s in self.described]


def operator(name: str, version: int, domain: str = "", *, opset: int = 0) -> Callable[..., Any]:
    """An operator of ONNX as a function.

    Args:
      name: the operator.
      version: the opset in which it last changed.
      domain: where it is defined; ONNX's own by default.
      opset: for operators that the standard defines by others, the opset of the model; `version`
        by default.

    Returns:
      A function of the operator's inputs, None for those that are left out, and of its attributes
      by name. It gives one value, or a tuple of as many as its keyword `_outputs` says.

    Raises:
      OnnxError: as it is called, what the operator does not take.

    Example:
      >>> gelu = operator("Gelu", 20)
      >>> print(np.round(gelu(np.float32([0, 1]), approximate="tanh"), 4))
      [0.     0.8412]
    """
    evaluation = Evaluation(_NOTHING, {})

    def apply(*inputs: Any, _outputs: int | None = None, **attributes: Any) -> Any:
        given = [np.asarray(x) if isinstance(x, np.generic) else x for x in inputs]
        names = tuple("" if x is None else f"input{i}" for i, x in enumerate(given))
        values = {n: x for n, x in zip(names, given) if n}
        outputs = tuple(f"output{i}" for i in range(_outputs or 1))
        node = Node(name, domain, "", opset or version, name, names, outputs, attributes)
        if any(isinstance(v, Subgraph) for v in attributes.values()):
            rule = find_rule(domain, name, version)
            if rule is None:
                raise OnnxError(f"{name} takes no subgraph")
            made = as_outputs(apply_rule(rule, _Functions(node), given, attributes))
        else:
            made = evaluation.node(node, values, {})
        return made[0] if _outputs is None else tuple(made[:_outputs])

    return apply


class _Functions:
    """What a rule may ask of a node whose graphs are functions; see `registry.Call`."""

    def __init__(self, node: Node) -> None:
        self.outputs = len(node.outputs)
        self.version, self.opset = node.version, node.opset

    def error(self, message: str) -> OnnxError:
        return OnnxError(message)

    def graph(self, graph: Subgraph, arguments: Sequence[Any]) -> list[Any]:
        return list(graph.function(*arguments))


__all__ = ["Subgraph", "operator"]
