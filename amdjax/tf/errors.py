"""What is wrong with a graph."""

from __future__ import annotations


class TensorFlowError(ValueError):
    """A graph that cannot be read or run; the message names the node, its operator and an input."""


class InvalidGraph(TensorFlowError):
    """A graph that is wrong whatever the shapes of its inputs are."""


class UnsupportedOperator(TensorFlowError):
    """Operators of a graph that have no rule, all of them named."""
