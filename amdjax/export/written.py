"""Programs as text and JSON, and programs that are read from such.

What is read may be anything: it is parsed with limits, checked as a program, and nothing of it is
run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax.core.array import ConcreteArray
from amdjax.core.aval import ShapedArray, get_aval, is_extended
from amdjax.core.check import check_jaxpr
from amdjax.core.dims import SymbolicScope, polynomial, scope_of
from amdjax.core.dims.parse import parse_dimension
from amdjax.core.errors import JaxprTypeError
from amdjax.core.jaxpr import ClosedJaxpr, Opaque, subjaxprs_of_value
from amdjax.core.lowering import Host
from amdjax.core.parse import JaxprSyntaxError, parse_jaxpr
from amdjax.core.pprint import format_jaxpr
from amdjax.core.pytree import PyTreeDef, tree_flatten

__all__ = [
    "TEXT_BYTES", "described_tree", "program_text", "read_program", "read_scope", "read_tree",
    "read_unequal", "scope_told",
]  # fmt: skip

TEXT_BYTES = 16 << 20


def program_text(program: ClosedJaxpr, known: dict[str, Any]) -> str:
    """A program as text.

    Args:
      program: the program.
      known: what is known of its dimension variables.

    Raises:
      ValueError: it calls Python functions, works on references or takes random keys.
    """
    text = format_jaxpr(program, exact=True)
    _check_readable(program, text, known)
    return text


def scope_told(avals: Sequence[Any]) -> dict[str, Any]:
    """What is known of the dimension variables of some types, in JSON."""
    scope = scope_of(avals) or SymbolicScope()
    return {
        "constraints": list(scope.constraints),
        "unequal": sorted(map(polynomial.text, scope.undecided)),
        "assumed": _assumed(scope),
    }


def read_scope(told: dict[str, Any]) -> SymbolicScope:
    """What `scope_told` wrote, but for what is unequal; any exception tells that it is none."""
    scope = SymbolicScope(told["constraints"])
    for text, symbol in told["assumed"]:
        if symbol not in (">=", "=="):
            raise ValueError(f"{symbol!r} compares nothing")
        scope.assume(parse_dimension(text, scope), symbol)
    return scope


def read_unequal(told: dict[str, Any], scope: SymbolicScope) -> None:
    """Tell a scope what programs took to be unequal: after they are read, which decides nothing."""
    for difference in told["unequal"]:
        scope.undecided[parse_dimension(difference, scope)] = None


def read_program(text: str, scope: SymbolicScope, consts: Sequence[Any]) -> ClosedJaxpr:
    """The program that was written; any exception tells that it is none.

    Args:
      text: of the program.
      scope: what is known of its dimension variables.
      consts: the values of its constants.
    """
    try:
        program = parse_jaxpr(text, consts, scope)
    except JaxprSyntaxError:
        # late: operations on references and on keys are known once these are loaded
        import amdjax.numpy
        import amdjax.random  # noqa: F401

        program = parse_jaxpr(text, consts, scope)
    check_program(program, ValueError)
    return program


_DEPTH = 100  # of containers in containers


def _assumed(scope: SymbolicScope) -> list[tuple[str, str]]:
    """What tracing took to hold, as texts of what is zero or at least zero."""
    negative = {polynomial.scale(a, -1) for a in scope.assumed}
    return [
        (polynomial.text(a), "==" if a in negative else ">=")
        for a in scope.assumed
        if a not in negative or a[0][1] > 0
    ]


def _check_readable(program: ClosedJaxpr, text: str, known: dict[str, Any]) -> None:
    """Raise ValueError for a program that its text does not tell."""
    refuse = lambda why: ValueError(f"serialize: the program cannot be written: {why}")
    arrays = (np.ndarray, ConcreteArray)
    if any(not isinstance(c, arrays) or is_extended(get_aval(c)) for c in program.consts):
        raise refuse("a constant is no array of numbers")
    try:
        read = parse_jaxpr(text, program.consts, read_scope(known))
        check_program(program, refuse)
        check_program(read, refuse)
    except ValueError as e:
        raise refuse(str(e)) from None
    if format_jaxpr(read, exact=True) != text:
        raise refuse("it reads back as another one")


def check_program(program: ClosedJaxpr, refuse: Callable[[str], Exception]) -> None:
    """Raise for a program that is not well formed, or that its text does not tell."""
    if any(not isinstance(a, ShapedArray) or is_extended(a) for a in program.in_avals):
        raise refuse("an argument is no array of numbers")
    try:
        check_jaxpr(program)
    except JaxprTypeError as e:
        raise refuse(str(e)) from None
    _check_parts(program, refuse)


def _check_parts(program: Any, refuse: Callable[[str], Exception]) -> None:
    for eqn in program.eqns:
        name = eqn.primitive.name
        if isinstance(eqn.primitive.lowering, Host) and any(map(callable, eqn.params.values())):
            raise refuse(f"{name} calls a Python function")
        opaque = [k for k, v in eqn.params.items() if isinstance(v, Opaque)]
        if opaque and not name.startswith("custom_"):
            raise refuse(f"{name} has the parameter {opaque[0]}, which has no text")
        for value in eqn.params.values():
            for body in subjaxprs_of_value(value):
                if isinstance(body, ClosedJaxpr) and body.consts:
                    raise refuse(f"the program of {name} has constants of its own")
                _check_parts(body, refuse)


def described_tree(tree: PyTreeDef) -> Any:
    """A structure of tuples, lists and dictionaries in JSON."""

    def told(x: Any) -> Any:
        if x is None or type(x) is int:
            return x
        if type(x) in (tuple, list):
            return [type(x).__name__, *map(told, x)]
        if type(x) is dict and all(type(k) is str for k in x):
            return {key: told(value) for key, value in x.items()}
        raise ValueError(
            f"serialize: containers must be tuples, lists and dictionaries, got {type(x).__name__}"
        )

    return told(tree.unflatten(range(tree.num_leaves)))


def read_tree(told: Any) -> PyTreeDef:
    """The structure that `described` wrote; any exception tells that it is none."""
    return tree_flatten(_container(told, 0))[1]


def _container(described: Any, depth: int) -> Any:
    if depth > _DEPTH:
        raise ValueError(f"more than {_DEPTH} containers in containers")
    if isinstance(described, dict):
        return {key: _container(value, depth + 1) for key, value in described.items()}
    if isinstance(described, list):
        kind = {"tuple": tuple, "list": list}[described[0]]
        return kind([_container(value, depth + 1) for value in described[1:]])
    if described is None or type(described) is int:
        return described
    raise ValueError(f"{described!r} is no structure of arguments or results")
