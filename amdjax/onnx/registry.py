"""The table of rules: what an operator computes, by domain, name and version.

A rule is a function of an operator's inputs, in its order, and its attributes, by their names::

    @rule("Clip", since=11)
    def clip(x, low=None, high=None): ...

    @rule("Softmax", since=13)
    def softmax(x, *, axis=-1): ...

It serves the versions from `since` up to the next rule of that name. A version is that in which the
standard last changed the operator ("since version"), not a model's opset.

Values are

  - arrays of amdjax, concrete or traced; NumPy arrays ("host arrays") where a value is known as the
    program is traced: constants, sizes, and what rules make of such alone. What a rule makes of
    host arrays alone becomes a host array again, by whichever functions it is made.
  - host arrays of dtype `object` hold sizes of which some are symbolic dimensions. Only rules of
    shape arithmetic meet them; `namespace(*values)` is NumPy for host arrays, else `amdjax.numpy`,
    so that one rule serves both. Strings are host arrays of dtype `object`, too.
  - lists, for sequences; None, for an optional that is empty and for an input that is left out.

A rule returns a value, or a tuple of several outputs: outputs at the end may be left out where a
node does not ask for them. Operands that must be known as numbers are read by `static`.

An attribute is an int, a float, a str, a NumPy array, a dtype (of integers that name one, where the
rule's parameter is called `to` or ends in `dtype`), a `Graph`, or a list of such. Parameters whose
names begin with "_" are the rule's own: no file sets them. A rule with a
parameter `node` gets a `Call`, which says how many outputs are asked for, names the node in errors,
and evaluates subgraphs.
"""

from __future__ import annotations

import bisect
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.dims import is_symbolic_dim
from amdjax.core.trace import Tracer

from .errors import NotTraceable, OnnxError

#: Rules of operators by `(domain, name)`: since-versions, ascending, with their rules.
_RULES: dict[tuple[str, str], list[tuple[int, Rule]]] = {}


class Rule(NamedTuple):
    """What an operator computes."""

    run: Callable[..., Any]
    wants_node: bool
    attributes: frozenset[str]  # that it takes
    takes_all: bool  # has a parameter **attributes


class Call(Protocol):
    """The node that is evaluated, for rules that ask for more than its inputs."""

    outputs: int  # how many are asked for; of trailing ones that are not, rules need not think
    opset: int  # of the operator's domain, in the model

    @property
    def version(self) -> int:
        """Of the operator."""

    def error(self, message: str) -> OnnxError:
        """An error that names the node."""

    def graph(self, graph: Any, arguments: Sequence[Any]) -> list[Any]:
        """The outputs of a subgraph, which sees the values around the node."""


def rule(*names: str, since: int = 1, domain: str = "") -> Callable[[Any], Any]:
    """Register the function as what the operators of these names compute, from a version on."""

    def register(function: Any) -> Any:
        parameters = inspect.signature(function).parameters
        named = (n for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY)
        attributes = frozenset(n for n in named if not n.startswith("_"))
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        made = Rule(function, "node" in attributes, attributes - {"node"}, takes_all)
        for name in names:
            bisect.insort(_RULES.setdefault((domain, name), []), (since, made), key=lambda r: r[0])
        return function

    return register


def find_rule(domain: str, name: str, opset: int) -> Rule | None:
    """The rule for an operator at an opset, or of a version."""
    found = None
    for since, made in _RULES.get((domain, name), ()):
        if since <= opset:
            found = made
    return found


def operators() -> Iterator[tuple[str, str, int]]:
    """The operators that have rules.

    Returns:
      Domain, name and the version from which on it serves, for each rule.

    Example:
      >>> ("", "Softmax", 13) in set(operators())
      True
    """
    for (domain, name), rules in sorted(_RULES.items()):
        for since, _ in rules:
            yield domain, name, since


# Values


def is_host(value: Any) -> bool:
    """Whether a value is known while programs are traced: an array of NumPy, or a Python value."""
    if isinstance(value, (list, tuple)):
        return all(map(is_host, value))
    return value is None or isinstance(value, (np.ndarray, np.generic, int, float, str, bytes))


def has_symbols(value: Any) -> bool:
    """Whether a value is a host array that holds symbolic dimensions."""
    return (
        isinstance(value, np.ndarray) and value.dtype == object
        and any(map(is_symbolic_dim, value.ravel()))
    )  # fmt: skip


def namespace(*values: Any) -> Any:
    """NumPy where all values are host arrays, else `amdjax.numpy`."""
    return np if all(map(is_host, values)) else jnp


def alike(*values: Any) -> tuple[Any, ...]:
    """The values; beside arrays that are computed, symbolic dimensions are numbers of these."""
    if all(map(is_host, values)):
        return values
    return tuple(jnp.asarray(v.tolist()) if has_symbols(v) else v for v in values)


def static(value: Any, name: str) -> np.ndarray:
    """An operand as an array of NumPy, which may hold symbolic dimensions.

    Raises:
      NotTraceable: the value depends on inputs of a traced function.
    """
    if isinstance(value, Tracer):
        raise NotTraceable(
            f"{name} must be known as the function is traced, but depends on its inputs; call the "
            "model outside of jit"
        )
    return np.asarray(value)


def ints(value: Any, name: str) -> list[Any]:
    """An operand of sizes, axes or positions as a list of integers and symbolic dimensions."""
    flat = static(value, name).ravel().tolist()
    return [v if is_symbolic_dim(v) else int(v) for v in flat]


def integer(value: Any, name: str) -> Any:
    """An operand of one number as a Python integer, or a symbolic dimension."""
    found = ints(value, name)
    if len(found) != 1:
        raise OnnxError(f"{name} must be one number, got {len(found)}")
    return found[0]
