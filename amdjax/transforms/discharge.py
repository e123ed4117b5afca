"""Programs with references as programs of values: what a reference holds is passed along.

An operation on a reference is told by a rule that works on a `Cell`. Control flow whose operands
hold references takes their contents as values and returns what they hold afterwards. So compiled
programs, transforms of loops and eager operations have one account of what references mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amdjax.core import source_info
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    Var,
    eval_jaxpr,
    memoize_on_jaxpr,
    open_jaxpr,
    subjaxprs,
    subjaxprs_of_value,
)
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.lowering import Control
from amdjax.core.primitive import Primitive
from amdjax.core.ref import AbstractRef, RefEffect, is_ref


class Cell:
    """Holds the value of a reference while a program is discharged."""

    __slots__ = ("aval", "value")

    def __init__(self, aval: AbstractRef, value: Any):
        self.aval = aval
        self.value = value

    def read(self) -> Any:
        """What the reference holds."""
        if self.value is None:
            raise ValueError(f"a reference of type {self.aval} is used after it was freed")
        return self.value

    def write(self, value: Any) -> None:
        """Replace what it holds."""
        self.read()
        self.value = value

    def free(self) -> None:
        """End its life."""
        self.read()
        self.value = None


class RefCell(Cell):
    """Reads and writes a reference itself, by operations under the current trace."""

    __slots__ = ("ref",)

    def __init__(self, ref: Any):
        self.aval, self.ref = ref.aval, ref

    def read(self) -> Any:
        return Primitive.by_name["get"].bind(self.ref, indices=())

    def write(self, value: Any) -> None:
        Primitive.by_name["swap"].bind(self.ref, value, indices=())


#: `rule(*operands, **params) -> results`, a `Cell` in place of each reference.
ref_rules: dict[str, Callable[..., Any]] = {}

#: `rule(primitive, operands, params, discharge) -> results` of control flow.
control_rules: dict[str, Callable[..., list[Any]]] = {}

Discharge = Callable[[ClosedJaxpr], "ClosedJaxpr"]
_CUSTOM = frozenset(("custom_jvp_call", "custom_vjp_call"))


def is_control(primitive: Primitive) -> bool:
    """Whether a primitive runs programs, which may work on references among its operands."""
    return type(primitive.lowering) is Control


def must_discharge(primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> bool:
    """Whether transforms cannot work on a program as it is.

    It may pass references on to rules of custom derivatives, as long as it neither reads nor
    writes them itself.
    """
    if not is_control(primitive) or not any(map(is_ref, args)):
        return False
    if primitive.name == "remat2":  # what it computes again must not be done again
        return True
    programs = (p for value in params.values() for p in subjaxprs_of_value(value))
    return any(isinstance(e, RefEffect) for p in programs for e in p.effects)


def is_call(primitive: Primitive) -> bool:
    """Whether a primitive runs a program once, with its operands as they are."""
    return is_control(primitive) and primitive.lowering.name == "call"  # type: ignore[union-attr]


def _body_of(primitive: Primitive, params: dict[str, Any]) -> ClosedJaxpr:
    body = params[primitive.lowering.jaxpr_param]  # type: ignore[union-attr]
    return body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body)


def run_on_refs(
    primitive: Primitive, args: Sequence[Any], params: dict[str, Any], keep_rules: bool
) -> list[Any]:
    """Run control flow some of whose operands are references, under the current trace.

    Args:
      primitive: the operation.
      args: its operands.
      params: its parameters.
      keep_rules: whether functions with custom derivatives may be differentiated later; those that
        take references are refused then.
    """
    if is_call(primitive):
        body = _body_of(primitive, params)
        return eval_jaxpr(body.jaxpr, body.consts, *args[len(args) - len(body.in_avals) :])
    return _control(primitive, [RefCell(x) if is_ref(x) else x for x in args], params, keep_rules)


def _control(primitive: Primitive, args: Sequence[Any], params: Any, keep_rules: bool) -> Any:
    if is_call(primitive):
        if keep_rules and primitive.name in _CUSTOM:
            raise NotImplementedError(
                f"{primitive.name}: a function with custom derivatives that takes references is "
                "not supported inside loops and branches that are transformed."
            )
        body = _body_of(primitive, params)
        args = args[len(args) - len(body.in_avals) :]
        return interpret(body.jaxpr, body.consts, args, keep_rules)
    return control_rules[primitive.name](
        primitive, args, params, lambda closed: discharged(closed, keep_rules)
    )


def interpret(
    jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], keep_rules: bool = False
) -> list[Any]:
    """Run a program under the current trace, a `Cell` in place of each reference."""
    env: dict[Var, Any] = dict(zip(jaxpr.constvars, consts))
    env.update(zip(jaxpr.invars, args))
    outer = source_info.position()
    try:
        for eqn in jaxpr.eqns:
            primitive = eqn.primitive
            ins = [x.val if type(x) is Literal else env[x] for x in eqn.invars]  # type: ignore[index]
            source_info.replay(eqn.source, outer)
            rule = ref_rules.get(primitive.name)
            if rule is not None:
                out = rule(*ins, **eqn.params)
            elif any(isinstance(x, Cell) for x in ins):
                out = _control(primitive, ins, eqn.params, keep_rules)
            else:
                out = primitive.bind(*ins, **_pure_params(eqn.params, keep_rules))
            env.update(zip(eqn.outvars, out if primitive.multiple_results else (out,)))
    finally:
        source_info.restore(outer)
    return [x.val if type(x) is Literal else env[x] for x in jaxpr.outvars]  # type: ignore[index]


@memoize_on_jaxpr
def discharged(closed: ClosedJaxpr, keep_rules: bool = False) -> ClosedJaxpr:
    """The program without references.

    Returns:
      A program that takes what its references hold, and returns what they hold in the end after
      its own results.
    """

    def fun(*args: Any) -> list[Any]:
        cells = [Cell(a, x) if type(a) is AbstractRef else x for a, x in zip(closed.in_avals, args)]
        outs = interpret(closed.jaxpr, closed.consts, cells, keep_rules)
        return [*outs, *(c.value for c in cells if type(c) is Cell)]

    return trace_to_jaxpr(fun, [held(a) for a in closed.in_avals])


def held(aval: Any) -> Any:
    """The type of what a reference holds; other types as they are."""
    return aval.inner_aval if type(aval) is AbstractRef else aval


@memoize_on_jaxpr
def makes_refs(jaxpr: Jaxpr) -> bool:
    """Whether references come to be in a program, or in those inside it."""
    return any(type(v.aval) is AbstractRef for eqn in jaxpr.eqns for v in eqn.outvars) or any(
        makes_refs(open_jaxpr(sub)) for sub in subjaxprs(jaxpr)
    )


def without_own_refs(closed: ClosedJaxpr, keep_rules: bool = False) -> ClosedJaxpr:
    """The program without the references that it makes; none may be among its arguments."""
    return discharged(closed, keep_rules) if makes_refs(closed.jaxpr) else closed


def _pure_params(params: dict[str, Any], keep_rules: bool) -> dict[str, Any]:
    """Parameters with the programs among them without the references that these make."""

    def pure(value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return without_own_refs(value, keep_rules)
        return tuple(map(pure, value)) if isinstance(value, tuple) else value

    return {k: pure(v) if any(subjaxprs_of_value(v)) else v for k, v in params.items()}
