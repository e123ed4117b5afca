"""Nodes of a graph, whose attributes are asked for by the type that a rule expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors import InvalidGraph, TensorFlowError
from .tensors import dtype_of

#: An output of a node: its name, and which one.
Edge = tuple[str, int]


@dataclass(frozen=True)
class Node:
    """An operator that is applied.

    Attributes:
      name: with the names of the calls it is in.
      op: the operator.
      inputs: outputs of other nodes.
      attributes: messages by name.
      constant: of a `Const`, its array.
      graphs: of control flow, its functions by attribute.
    """

    name: str
    op: str
    inputs: tuple[Edge, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    constant: np.ndarray | None = field(default=None, repr=False)
    graphs: Mapping[str, Graph] = field(default_factory=dict, repr=False)

    def error(self, message: str) -> TensorFlowError:
        """An error that names the node."""
        return TensorFlowError(f"node {self.name!r} ({self.op}): {message}")

    def invalid(self, message: str) -> InvalidGraph:
        """An error that names the node, which is wrong whatever its inputs are."""
        return InvalidGraph(str(self.error(message)))

    def integer(self, name: str, default: int | None = None) -> int:
        """An attribute that is an integer; without a default there must be one."""
        return int(self._one(name, "i", "an integer", default))

    def real(self, name: str, default: float) -> float:
        """An attribute that is a number."""
        return float(self._one(name, "f", "a number", default))

    def flag(self, name: str, default: bool = False) -> bool:
        """An attribute that is true or false."""
        return bool(self._one(name, "b", "a truth value", default))

    def text(self, name: str, default: str | None, choices: Sequence[str] = ()) -> str:
        """An attribute that is a text, one of some choices if there are any."""
        value = self._one(name, "s", "a text", default)
        value = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        if choices and value not in choices:
            raise self.invalid(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        return value

    def dtype(self, name: str, default: Any = None) -> np.dtype:
        """An attribute that is a dtype."""
        value = self._one(name, "type", "a dtype", default)
        return dtype_of(value, str(self.error(name))) if isinstance(value, int) else np.dtype(value)

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        value = self._one(name, "list", "a list of integers", default)
        return tuple(value.i) if hasattr(value, "i") else tuple(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """An attribute that is a list of texts."""
        value = self._one(name, "list", "a list of texts", ())
        return tuple(t.decode("utf-8", "replace") for t in getattr(value, "s", value))

    def message(self, name: str, kind: str) -> Any:
        """An attribute of any other kind, or None."""
        found = self.attributes.get(name)
        return None if found is None or found.WhichOneof("value") != kind else getattr(found, kind)

    def _one(self, name: str, kind: str, said: str, default: Any) -> Any:
        found = self.attributes.get(name)
        held = None if found is None else found.WhichOneof("value")
        if held is None:
            if default is None:
                raise self.invalid(f"the attribute {name!r} is missing, which is {said}")
            return default
        if held != kind:
            raise self.invalid(f"the attribute {name!r} must be {said}")
        return getattr(found, kind)


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can be computed.

    Attributes:
      nodes: the nodes.
      inputs: names of those that are given.
      outputs: what it results in.
      dies: for each node, those whose values nothing reads after it.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[Edge, ...]
    dies: tuple[tuple[str, ...], ...] = field(repr=False)
