"""Programs as text and JSON, and programs that are read from such.

What is read may be anything: it is parsed with limits, checked as a program, and nothing of it is
run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax.core.array import ConcreteArray
from amdjax.core.aval import ShapedArray, get_aval, is_extended
from amdjax.core.check import check_jaxpr
from amdjax.core.dims import SymbolicScope, polynomial, scope_of
from amdjax.core.dims.parse import parse_dimension
from amdjax.core.errors import JaxprTypeError
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    LateJaxpr,
    Opaque,
    subjaxprs,
    subjaxprs_of_value,
)
from amdjax.core.lowering import Host
from amdjax.core.parse import JaxprSyntaxError, parse_jaxpr, parse_type
from amdjax.core.pprint import format_jaxpr, type_text
from amdjax.core.primitive import Primitive
from amdjax.core.pytree import PyTreeDef, tree_flatten

from .names import names_of

__all__ = [
    "TEXT_BYTES", "Written", "check_types", "described_tree", "late_program", "read_program",
    "read_scope", "read_tree", "read_unequal", "scope_told", "with_constants",
    "written_program",
]  # fmt: skip

TEXT_BYTES = 16 << 20
MOST_LETTERS = 1000  # of a variable


class Written(NamedTuple):
    """A program as text.

    Attributes:
      text: what is read again.
      told: the types of arguments and results and the names of operations, in JSON, by which one
        need not read it at once; empty where reading decides anything about dimensions.
      names: what its operations were made from, in JSON; None where nothing is known.
    """

    text: str
    told: dict[str, Any]
    names: dict[str, Any] | None


def written_program(program: ClosedJaxpr, known: dict[str, Any]) -> Written:
    """A program as text.

    Args:
      program: the program.
      known: what is known of its dimension variables.

    Raises:
      ValueError: it calls Python functions, works on references or takes random keys.
    """
    text, scope = format_jaxpr(program, exact=True), read_scope(known)
    names = names_of(program, _checked_readable(program, text, scope))
    if _assumed(scope) != known["assumed"] or _unequal(scope) - set(known["unequal"]):
        return Written(text, {}, names)
    ins, outs = (list(map(type_text, avals)) for avals in (program.in_avals, program.out_avals))
    told = {"in_types": ins, "out_types": outs, "operations": sorted(_operations(program))}
    return Written(text, told, names)


def late_program(
    text: bytes, told: dict[str, Any], known: dict[str, Any], scope: SymbolicScope,
    consts: Sequence[Any], read: Callable[[], ClosedJaxpr],
) -> LateJaxpr:  # fmt: skip
    """A program that is read when it is asked for; any exception tells that there is none.

    Args:
      text: of the program.
      told: what `written_program` told besides.
      known: what is known of its dimension variables, and is in `scope`.
      consts: the values of its constants.
      read: reads it.
    """
    ins, outs = ([parse_type(t, scope) for t in told[k]] for k in ("in_types", "out_types"))
    names = list(told["operations"])
    if any(name not in Primitive.by_name for name in names):
        _load_operations()
    if not all(name in Primitive.by_name for name in names):
        raise ValueError("there is no such operation")

    return LateJaxpr(lambda: read().jaxpr, consts, ins, outs, _identity(text, known, consts), names)


def with_constants(program: ClosedJaxpr, values: Sequence[Any], digest: str) -> ClosedJaxpr:
    """A program whose leading arguments are constants.

    Args:
      program: the program, which is not read for this.
      values: of the arguments.
      digest: equal only where these are.
    """
    count, consts = len(values), [*program.consts, *values]

    def bound() -> Jaxpr:
        jaxpr = program.jaxpr
        constvars = [*jaxpr.constvars, *jaxpr.invars[:count]]
        return Jaxpr(constvars, jaxpr.invars[count:], jaxpr.outvars, jaxpr.eqns)

    if not isinstance(program, LateJaxpr):
        return ClosedJaxpr(bound(), consts)
    identity = hashlib.sha256(f"{program.identity} {count} {digest}".encode()).hexdigest()
    ins, outs = program.in_avals[count:], program.out_avals
    return LateJaxpr(bound, consts, ins, outs, identity, program.primitives)


def check_types(program: ClosedJaxpr, told: dict[str, Any]) -> None:
    """Raise ValueError for a program that has other types than is told of it, if any is told."""
    for key, avals in (("in_types", program.in_avals), ("out_types", program.out_avals)):
        if key in told and told[key] != list(map(type_text, avals)):
            raise ValueError("its types are not those that the manifest tells")


def _identity(text: bytes, known: dict[str, Any], consts: Sequence[Any]) -> str:
    """What tells a program from all others that are read."""
    digest = hashlib.sha256(json.dumps([known, len(text)], sort_keys=True).encode() + text)
    for value in consts:
        array = np.asarray(value)
        digest.update(f"{array.dtype.name} {array.shape} ".encode())
        data: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        digest.update(data)
    return digest.hexdigest()


def _operations(program: Jaxpr | ClosedJaxpr) -> set[str]:
    """The names of operations, those of programs in it among them."""
    bodies = (_operations(body) for body in subjaxprs(program))
    return {eqn.primitive.name for eqn in program.eqns}.union(*bodies)


def scope_told(avals: Sequence[Any]) -> dict[str, Any]:
    """What is known of the dimension variables of some types, in JSON."""
    scope = scope_of(avals) or SymbolicScope()
    return {
        "constraints": list(scope.constraints),
        "unequal": sorted(_unequal(scope)),
        "assumed": _assumed(scope),
        "narrower": {name: list(ends) for name, ends in scope.narrower.items()},
    }


def read_scope(told: dict[str, Any]) -> SymbolicScope:
    """What `scope_told` wrote, but for what is unequal; any exception tells that it is none."""
    scope = SymbolicScope(told["constraints"])
    for name, (least, most) in told.get("narrower", {}).items():
        if re.fullmatch("[A-Za-z]\\w*", name, re.ASCII) is None or len(name) > MOST_LETTERS:
            raise ValueError(f"{name[:200]!r} is no variable")
        if type(least) is not int or type(most) is not int or not 0 <= least <= most < 1 << 31:
            raise ValueError(f"{name!r} has no range")
        scope.ranged(name, least, most)
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
        _load_operations()
        program = parse_jaxpr(text, consts, scope)
    check_program(program, ValueError)
    return program


def _load_operations() -> None:
    # late: operations on references and on keys are known once these are loaded
    import amdjax.numpy
    import amdjax.random  # noqa: F401


_DEPTH = 100  # of containers in containers


def _unequal(scope: SymbolicScope) -> set[str]:
    """What tracing took to be unequal, as texts of differences."""
    return set(map(polynomial.text, scope.undecided))


def _assumed(scope: SymbolicScope) -> list[list[str]]:
    """What tracing took to hold, as texts of what is zero or at least zero."""
    negative = {polynomial.scale(a, -1) for a in scope.assumed}
    return [
        [polynomial.text(a), "==" if a in negative else ">="]
        for a in scope.assumed
        if a not in negative or a[0][1] > 0
    ]


def _checked_readable(program: ClosedJaxpr, text: str, scope: SymbolicScope) -> ClosedJaxpr:
    """The program that is read in a scope; raises ValueError if the text does not tell it."""
    refuse = lambda why: ValueError(f"serialize: the program cannot be written: {why}")
    arrays = (np.ndarray, ConcreteArray)
    if any(not isinstance(c, arrays) or is_extended(get_aval(c)) for c in program.consts):
        raise refuse("a constant is no array of numbers")
    try:
        read = parse_jaxpr(text, program.consts, scope)
        check_program(program, refuse)
        check_program(read, refuse)
    except ValueError as e:
        raise refuse(str(e)) from None
    if format_jaxpr(read, exact=True) != text:
        raise refuse("it reads back as another one")
    return read


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
