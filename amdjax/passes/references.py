"""References become the values they hold, which loops carry and operations update in place."""

from __future__ import annotations

from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.ref import AbstractRef
from amdjax.passes.flatten import flatten_calls
from amdjax.transforms.discharge import discharged


def discharge_refs(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without the references that it makes; calls must be inlined."""
    own = any(type(v.aval) is AbstractRef for eqn in closed.eqns for v in eqn.outvars)
    return flatten_calls(discharged(closed)) if own else closed
