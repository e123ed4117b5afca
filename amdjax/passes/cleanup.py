"""Common subexpressions and dead code."""

from __future__ import annotations

from typing import Any

from amdjax.core.dead_code import dce_jaxpr
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, Literal, Var


def eliminate_dead_code(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Drop equations without effects that no result needs; arguments stay."""
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    used = {v for e in jaxpr.eqns for v in e.invars if isinstance(v, Var)}
    used |= {v for v in jaxpr.outvars if isinstance(v, Var)}
    kept = [(v, c) for v, c in zip(jaxpr.constvars, closed.consts, strict=True) if v in used]
    return ClosedJaxpr(jaxpr.replace(constvars=[v for v, _ in kept]), [c for _, c in kept])


def eliminate_common_subexpressions(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Compute equal expressions once; also one variable for constants that are one object."""
    seen: dict[Any, list[Var]] = {}
    names: dict[Var, Var] = {}
    first_of: dict[int, Var] = {}
    for v, c in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        names[v] = first_of.setdefault(id(c), v)

    def rename(x: Any) -> Any:
        return names.get(x, x) if isinstance(x, Var) else x

    eqns = []
    for eqn in closed.jaxpr.eqns:
        invars = [rename(x) for x in eqn.invars]
        key = None if eqn.effects else _key(eqn, invars)
        known = seen.get(key) if key is not None else None
        if known is not None:
            names.update(zip(eqn.outvars, known, strict=True))
            continue
        eqns.append(eqn.replace(invars=invars))
        if key is not None:
            seen[key] = list(eqn.outvars)
    jaxpr = closed.jaxpr.replace(eqns=eqns, outvars=[rename(v) for v in closed.jaxpr.outvars])
    return ClosedJaxpr(
        Jaxpr(jaxpr.constvars, jaxpr.invars, jaxpr.outvars, eqns, None, jaxpr.debug_info),
        closed.consts,
    )


def _key(eqn: Any, invars: list[Any]) -> Any:
    """What makes two equations compute the same; None if that cannot be told."""
    operands = tuple((repr(x.val), x.aval) if isinstance(x, Literal) else id(x) for x in invars)
    key = (eqn.primitive, operands, tuple(sorted(eqn.params.items(), key=lambda p: p[0])))
    try:
        hash(key)
    except TypeError:
        return None
    return key
