"""Convolutions that read reversed kernels where these lie, from their last taps on.

The gradient of a convolution's input is a convolution with the reversed kernel. Reversed it would
be written and read again, which for large kernels and few positions takes as long as the products.
What packs kernels, and what loads tiles of them, follows any strides, backwards too.
"""

from __future__ import annotations

from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Var
from amdjax.passes.cleanup import eliminate_dead_code
from amdjax.passes.layouts import CONVOLUTION


def read_reversed_kernels(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Convolutions, in one group, of the kernel as it was before its taps were reversed."""
    makers = {v: e for e in closed.eqns for v in e.outvars if e.primitive.name == "rev"}
    eqns = [_reversing(e, makers) if e.primitive.name == CONVOLUTION else e for e in closed.eqns]
    if all(new is old for new, old in zip(eqns, closed.eqns, strict=True)):
        return closed
    return eliminate_dead_code(closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns)))


def _reversing(eqn: JaxprEqn, makers: dict[Var, JaxprEqn]) -> JaxprEqn:
    image, kernel = eqn.invars
    maker = makers.get(kernel) if isinstance(kernel, Var) else None
    p = eqn.params
    if maker is None or p["feature_group_count"] * p["batch_group_count"] != 1:
        return eqn
    taps, turned = p["dimension_numbers"].rhs_spec[2:], maker.params["dimensions"]
    known = all(isinstance(kernel.aval.shape[d], int) for d in taps)
    if not known or not {*turned} <= {*taps} or p.get("window_reversal"):
        return eqn
    reversal = tuple(d in turned for d in taps)
    return eqn.replace(invars=[image, maker.invars[0]], params={**p, "window_reversal": reversal})
