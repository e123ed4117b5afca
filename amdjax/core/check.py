"""Verify programs: every variable is bound once, before it is read, and types are right."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from amdjax.core.aval import ShapedArray, get_aval
from amdjax.core.config import config, enable_x64
from amdjax.core.effects import NamedAxisEffect, join_effects
from amdjax.core.errors import JaxprTypeError
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    open_jaxpr,
    subjaxprs_of_value,
    visible_effects,
)
from amdjax.core.pprint import format_eqn

CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
}
"""Primitives whose operands and results are those of the program in the named parameter."""


def check_jaxpr(jaxpr: Jaxpr | ClosedJaxpr) -> None:
    """Raise unless a program is well formed.

    Args:
      jaxpr: the program.

    Raises:
      JaxprTypeError: with the offending operation.

        >>> from amdjax.core.parse import parse_jaxpr
        >>> check_jaxpr(parse_jaxpr("{ lambda ; a:f32[3]. let b:f32[2] = copy a in (b,) }"))
        Traceback (most recent call last):
          ...
        amdjax.core.errors.JaxprTypeError: result 0 has type f32[2], but the operation gives f32[3]
        in the equation:
          a:f32[2] = copy b
    """
    if isinstance(jaxpr, ClosedJaxpr):
        for var, const in zip(jaxpr.jaxpr.constvars, jaxpr.consts):
            if not _same(var.aval, get_aval(const)):
                raise JaxprTypeError(
                    f"a constant of type {get_aval(const)} is bound to a variable of type "
                    f"{var.aval}"
                )
    _check(open_jaxpr(jaxpr))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, ShapedArray) and isinstance(b, ShapedArray):
        return (a.shape, a.dtype, a.memory_space) == (b.shape, b.dtype, b.memory_space)
    return type(a) is type(b)


def _check(jaxpr: Jaxpr) -> None:
    bound: set[Var] = set()
    for v in (*jaxpr.constvars, *jaxpr.invars):
        _bind(bound, v, "as an argument")
    for eqn in jaxpr.eqns:
        try:
            _check_eqn(bound, eqn)
        except JaxprTypeError as e:
            if "in the equation" in str(e):
                raise
            text = format_eqn(eqn).replace("\n", "\n  ")
            raise JaxprTypeError(f"{e}\nin the equation:\n  {text}") from None
    for i, result in enumerate(jaxpr.outvars):
        _read(bound, result, f"result {i} of the program")
    happen = visible_effects(
        join_effects(*(eqn.effects for eqn in jaxpr.eqns)), jaxpr.constvars, jaxpr.invars
    )
    missing = {e for e in happen - jaxpr.effects if not isinstance(e, NamedAxisEffect)}
    if missing:
        raise JaxprTypeError(f"Equation effect not present in jaxpr effects. They lack: {missing}")


def _bind(bound: set[Var], v: Any, where: str) -> None:
    if not isinstance(v, Var):
        raise JaxprTypeError(f"{v!r} is bound {where}, but is no variable")
    if v in bound:
        raise JaxprTypeError(f"a variable of type {v.aval.str_short()} is bound again {where}")
    bound.add(v)


def _read(bound: set[Var], v: Any, where: str) -> None:
    if isinstance(v, Literal):
        if not _same(v.aval, get_aval(v.val)) and getattr(v.aval, "shape", ()) != ():
            raise JaxprTypeError(f"{where} is the literal {v.val!r}, which is not {v.aval}")
    elif v not in bound:
        raise JaxprTypeError(
            f"{where} is a variable of type {v.aval.str_short()} that is not bound before"
        )


def _check_eqn(bound: set[Var], eqn: JaxprEqn) -> None:
    for i, v in enumerate(eqn.invars):
        _read(bound, v, f"operand {i}")
    for value in eqn.params.values():
        for sub in subjaxprs_of_value(value):
            check_jaxpr(sub)
    _check_call(eqn)
    avals = [v.aval for v in eqn.invars]
    rule = eqn.primitive.abstract_eval
    if rule is None:
        raise JaxprTypeError(f"primitive {eqn.primitive.name} has no abstract_eval rule")
    try:
        # Entering a setting is slow beside most rules.
        wide = enable_x64(True) if eqn.is_wide and not config.enable_x64 else nullcontext()
        with wide:
            out = eqn.primitive.out_types(avals, eqn.params)
    except Exception as e:
        raise JaxprTypeError(f"the type rule fails: {e}") from e
    outs = list(out) if eqn.primitive.multiple_results else [out]
    if len(outs) != len(eqn.outvars):
        raise JaxprTypeError(f"the operation gives {len(outs)} results")
    for i, (v, aval) in enumerate(zip(eqn.outvars, outs)):
        if not _same(v.aval, aval):
            raise JaxprTypeError(
                f"result {i} has type {v.aval.str_short()}, but the operation gives "
                f"{aval.str_short()}"
            )
    for v in eqn.outvars:
        _bind(bound, v, "as a result")


def _check_call(eqn: JaxprEqn) -> None:
    """The operands of a call have the types of the callee's arguments."""
    param = CALLS.get(eqn.primitive.name)
    if param is None:
        return
    expected = eqn.params[param].in_avals
    if len(expected) != len(eqn.invars):
        raise JaxprTypeError(f"the program takes {len(expected)} arguments")
    for i, (v, aval) in enumerate(zip(eqn.invars, expected)):
        if not _same(v.aval, aval):
            raise JaxprTypeError(
                f"operand {i} has type {v.aval.str_short()}, but the program takes "
                f"{aval.str_short()}"
            )
