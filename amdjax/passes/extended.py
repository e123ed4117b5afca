"""Arrays of extended dtypes become the arrays of numbers that they are stored as.

An array of keys is a batch of words. So an operation that only moves or chooses elements is, on
what is stored, itself mapped over the axes of the words: its own batching rule says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax.core.array import ConcreteArray
from amdjax.core.aval import is_extended, physical_aval
from amdjax.core.jaxpr import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    memoize_on_jaxpr,
    open_jaxpr,
    subjaxprs_of_value,
)
from amdjax.core.jaxpr_trace import trace_to_jaxpr
from amdjax.core.lowering import Control, Relabel
from amdjax.core.primitive import Primitive
from amdjax.core.source_info import written_at
from amdjax.passes.flatten import flatten_calls
from amdjax.transforms import ops
from amdjax.transforms.axes import AxisData
from amdjax.transforms.batching import batch_flat
from amdjax.transforms.calls import closed_call_p

#: Two elements are equal if all their numbers are, different if any is.
COMPARISONS = {"eq": "reduce_and", "ne": "reduce_or"}


def store_extended(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program on what values of extended dtypes are stored as; calls must be inlined."""
    if not _mentions_extended(closed.jaxpr):
        return closed
    return flatten_calls(_stored(closed))


@memoize_on_jaxpr
def _stored(closed: ClosedJaxpr) -> ClosedJaxpr:
    return _Storing().program(closed)


def _mentions_extended(jaxpr: Jaxpr) -> bool:
    binders = (*jaxpr.constvars, *jaxpr.invars)
    return any(is_extended(v.aval) for v in binders) or any(
        is_extended(v.aval) for eqn in jaxpr.eqns for v in eqn.outvars
    )


class _Storing:
    def __init__(self) -> None:
        self.stored: dict[Var, Var] = {}

    def bind(self, v: Var) -> Var:
        """The variable that holds what is stored."""
        if not is_extended(v.aval):
            return v
        return self.stored.setdefault(v, Var(physical_aval(v.aval)))

    def read(self, x: Any) -> Any:
        return x if type(x) is Literal else self.stored.get(x, x)

    def program(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        jaxpr = closed.jaxpr
        constvars, invars = ([self.bind(v) for v in vs] for vs in (jaxpr.constvars, jaxpr.invars))
        eqns = [new for eqn in jaxpr.eqns for new in self.equation(eqn)]
        outvars = [self.read(v) for v in jaxpr.outvars]
        consts = [c.stored() if isinstance(c, ConcreteArray) else c for c in closed.consts]
        return ClosedJaxpr(Jaxpr(constvars, invars, outvars, eqns, None, jaxpr.debug_info), consts)

    def equation(self, eqn: JaxprEqn) -> list[JaxprEqn]:
        if isinstance(eqn.primitive.lowering, Relabel):
            self.stored[eqn.outvars[0]] = self.read(eqn.invars[0])
            return []
        invars = [self.read(x) for x in eqn.invars]
        if not any(is_extended(v.aval) for v in (*eqn.invars, *eqn.outvars)):
            return [eqn.replace(invars=invars)]
        if isinstance(eqn.primitive.lowering, Control):
            changes: dict[str, Any] = {"params": _stored_params(eqn.params)}
        else:
            changes = {"primitive": closed_call_p, "params": {"call_jaxpr": _mapped(eqn)}}
        return [eqn.replace(invars=invars, outvars=[self.bind(v) for v in eqn.outvars], **changes)]


def _stored_params(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters with the programs among them on what is stored."""

    def stored(value: Any) -> Any:
        if isinstance(value, Jaxpr):
            return open_jaxpr(stored(ClosedJaxpr(value)))
        if isinstance(value, ClosedJaxpr):
            return _stored(flatten_calls(value))
        if isinstance(value, tuple):
            return tuple(map(stored, value))
        return value

    return {k: stored(v) if any(subjaxprs_of_value(v)) else v for k, v in params.items()}


def _mapped(eqn: JaxprEqn) -> ClosedJaxpr:
    """An operation on single elements, mapped over the numbers they are stored as."""
    avals = [x.aval for x in eqn.invars]
    element = next(a.dtype for a in (*avals, *(v.aval for v in eqn.outvars)) if is_extended(a))

    def operation(*args: Any) -> list[Any]:
        out = eqn.primitive.bind(*args, **eqn.params)
        return list(out) if eqn.primitive.multiple_results else [out]

    def over_numbers(args: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
        if not sizes:
            return operation(*args)
        dims = [a.ndim if is_extended(a) else None for a in avals]
        axis = AxisData(None, sizes[0])
        outs, found = batch_flat(lambda *xs: over_numbers(xs, sizes[1:]), axis, args, dims)
        ranks = [v.aval.ndim for v in eqn.outvars]
        return [y if d is None else ops.moveaxis(y, d, n) for y, d, n in zip(outs, found, ranks)]

    def fun(*args: Any) -> list[Any]:
        outs = over_numbers(args, element.element_shape)
        reduction = COMPARISONS.get(eqn.primitive.name)
        if reduction is not None:
            first = eqn.outvars[0].aval.ndim
            axes = tuple(range(first, first + len(element.element_shape)))
            outs = [Primitive.by_name[reduction].bind(outs[0], axes=axes)]
        return outs

    with written_at(eqn.source):
        return trace_to_jaxpr(fun, [physical_aval(a) for a in avals])
