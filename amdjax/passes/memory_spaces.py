"""Memory spaces, which types tell, as machines have them.

A CPU computes where the host's arrays are: types lose their memory spaces, and transfers go. On a
GPU kernels compute in its own memory alone. What they read of the host's is copied there first, and
what they make for it is copied to it after; between them there are transfers, loops and branches.
"""

from __future__ import annotations

from typing import Any

from amdjax.core.aval import AbstractValue, ShapedArray
from amdjax.core.instantiate import Retyped
from amdjax.core.jaxpr import (
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Var,
    memoize_on_jaxpr,
    open_jaxpr,
    subjaxprs,
    subjaxprs_of_value,
)
from amdjax.core.lowering import Control
from amdjax.core.sharding import Space
from amdjax.passes.barriers import BARRIER
from amdjax.transforms.transfers import device_put_p, transfer


def place_in_memory(closed: ClosedJaxpr, on_gpu: bool) -> ClosedJaxpr:
    """The program whose types are those of memory that the machine has, and can compute in."""
    if not _mentions_host(closed.jaxpr):
        return closed
    return _on_device(closed) if on_gpu else _OneMemory().closed(closed)


@memoize_on_jaxpr
def _mentions_host(jaxpr: Jaxpr) -> bool:
    """Whether a program, or one in it, has values in the host's memory."""
    variables = (*jaxpr.constvars, *jaxpr.invars, *(v for e in jaxpr.eqns for v in e.outvars))
    if any(v.aval.memory_space is Space.Host for v in variables):
        return True
    return any(_mentions_host(open_jaxpr(inner)) for inner in subjaxprs(jaxpr))


class _OneMemory(Retyped):
    """The program for a machine with one memory."""

    def aval(self, aval: AbstractValue) -> Any:
        if isinstance(aval, ShapedArray):
            return aval.update(memory_space=Space.Device)
        return super().aval(aval)

    def eqn(self, eqn: JaxprEqn) -> JaxprEqn | None:
        if eqn.primitive is not device_put_p:
            return super().eqn(eqn)
        self.atoms.update(zip(eqn.outvars, map(self.atom, eqn.invars), strict=True))
        return None


def _on_device(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program in which what computes has all its operands and results on the device."""
    return ClosedJaxpr(_computing_on_device(closed.jaxpr), closed.consts)


@memoize_on_jaxpr
def _computing_on_device(jaxpr: Jaxpr) -> Jaxpr:
    if not _mentions_host(jaxpr):
        return jaxpr
    eqns: list[JaxprEqn] = []
    here: dict[Var, Var] = {}  # of values in the host's memory, on the device

    def fetched(x: Atom) -> Atom:
        if not isinstance(x, Var) or x.aval.memory_space is not Space.Host:
            return x
        if x not in here:
            here[x] = Var(x.aval.update(memory_space=Space.Device))
            eqns.append(transfer(x, here[x]))
        return here[x]

    for eqn in jaxpr.eqns:
        if isinstance(eqn.primitive.lowering, Control):
            params = {name: _params(value) for name, value in eqn.params.items()}
            eqns.append(eqn.replace(params=params))
            continue
        spaces = [v.aval.memory_space for v in (*eqn.invars, *eqn.outvars)]
        if eqn.primitive.name in (device_put_p.name, BARRIER) or Space.Host not in spaces:
            eqns.append(eqn)
            continue
        invars = [fetched(x) for x in eqn.invars]
        back = [v for v in eqn.outvars if v.aval.memory_space is Space.Host]
        here.update((v, Var(v.aval.update(memory_space=Space.Device))) for v in back)
        eqns.append(eqn.replace(invars=invars, outvars=[here.get(v, v) for v in eqn.outvars]))
        eqns.extend(transfer(here[v], v) for v in back)
    return jaxpr.replace(eqns=eqns)


def _params(value: Any) -> Any:
    if isinstance(value, ClosedJaxpr):
        return _on_device(value)
    if isinstance(value, Jaxpr):
        return _computing_on_device(value)
    if isinstance(value, tuple) and any(subjaxprs_of_value(value)):
        return tuple(map(_params, value))
    return value
