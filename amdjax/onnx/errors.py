"""What is wrong with a model."""

from __future__ import annotations


class OnnxError(ValueError):
    """A model that cannot be read or run; the message names the node, its operator and an input."""


class UnsupportedOperator(OnnxError):
    """Operators of a model that have no rule, all of them named."""


class NotTraceable(OnnxError):
    """What depends on values while a function is traced; outside of `jit` it can be computed.

    Attributes:
      outputs: those of the node, as the graph that is evaluated names them.
    """

    outputs: tuple[str, ...] = ()
