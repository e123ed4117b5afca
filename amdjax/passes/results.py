"""Results of which a program has several."""

from __future__ import annotations

from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Var
from amdjax.core.lowering import Element, Pointwise, Reduce
from amdjax.transforms import copy_p


def repeat_results(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Let what several results are be written several times by the kernel that computes it.

    Otherwise it were copied afterwards. What no element rule makes, as products, stays one value.
    """
    jaxpr = closed.jaxpr
    makers = {v: e for e in jaxpr.eqns for v in e.outvars}
    seen: set[Var] = set()
    eqns, outvars = list(jaxpr.eqns), list(jaxpr.outvars)
    for i, v in enumerate(outvars):
        if not isinstance(v, Var):
            continue
        eqn = makers.get(v)
        again = v in seen
        seen.add(v)
        if not again or eqn is None or eqn.effects:
            continue
        rule = eqn.primitive.lowering
        if isinstance(rule, Pointwise | Reduce) or (
            isinstance(rule, Element) and not rule.keeps_order
        ):
            outvars[i] = new = Var(v.aval)
            eqns.append(JaxprEqn(copy_p, [v], [new], {}, source=eqn.source))
    if len(eqns) == len(jaxpr.eqns):
        return closed
    return closed.replace(jaxpr=jaxpr.replace(eqns=eqns, outvars=outvars))
