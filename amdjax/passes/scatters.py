"""Scatters into one array, one after the other, as one equation.

Such is the gradient of what is read at several places around each point, and so is
`x.at[i].add(y).at[j].add(z)`. Each by itself passes over the array, and waits for what was just
written where updates of neighbors meet; together, all of a point are added before the next ones.
"""

from __future__ import annotations

from collections import Counter

from amdjax.core.dims import surely_equal
from amdjax.core.jaxpr import ClosedJaxpr, JaxprEqn, Var
from amdjax.core.primitive import Primitive

_LONGEST = 32  # whose code is written one after the other


def join_scatters(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Scatters of the same kind and shapes, each of which alone reads the one before, are one.

    Sums and products of floats may differ in their last bits, since they are in another order, and
    near the largest number in whether they overflow on the way.
    """
    if sum(_chain_primitive(e) is not None for e in closed.eqns) < 2:
        return closed
    uses = Counter(x for e in closed.eqns for x in e.invars if isinstance(x, Var))
    uses.update(x for x in closed.jaxpr.outvars if isinstance(x, Var))
    chains: dict[Var, list[JaxprEqn]] = {}  # by the result of the last one
    for eqn in closed.eqns:
        if _chain_primitive(eqn) is None or not _may_meet(eqn):
            continue
        operand, before = eqn.invars[0], []
        if isinstance(operand, Var) and uses[operand] == 1:
            before = chains.get(operand, [])
            if before and len(before) < _LONGEST and _alike(before[0], eqn):
                del chains[operand]
            else:
                before = []
        chains[eqn.outvars[0]] = [*before, eqn]
    joined = {
        id(e): _joined(c) if e is c[-1] else None for c in chains.values() if c[1:] for e in c
    }
    if not joined:
        return closed
    eqns = [e for old in closed.eqns if (e := joined.get(id(old), old)) is not None]
    return closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns))


def _chain_primitive(eqn: JaxprEqn) -> Primitive | None:
    """The primitive of several such scatters; None if order matters, or it is no scatter."""
    return Primitive.by_name.get(f"{eqn.primitive.name}-chain")


def _may_meet(eqn: JaxprEqn) -> bool:
    """Whether updates may meet anyway, and are combined by the operation the primitive has."""
    return not eqn.params["unique_indices"] and eqn.params["update_jaxpr"] is None


def _alike(a: JaxprEqn, b: JaxprEqn) -> bool:
    """Whether two scatters differ in nothing but the arrays they read."""
    kinds = [(e.primitive, e.params["dimension_numbers"], e.params["mode"]) for e in (a, b)]
    shapes = [[x.aval.shape for x in e.invars[1:]] for e in (a, b)]
    return kinds[0] == kinds[1] and all(
        len(s) == len(t) and all(map(surely_equal, s, t)) for s, t in zip(*shapes, strict=True)
    )


def _joined(chain: list[JaxprEqn]) -> JaxprEqn:
    """The equation of a chain, in the place of the last one."""
    last, primitive = chain[-1], _chain_primitive(chain[-1])
    assert primitive is not None
    sets = [x for e in chain for x in e.invars[1:]]
    params = {**last.params, "indices_are_sorted": False}
    return last.replace(primitive=primitive, invars=[chain[0].invars[0], *sets], params=params)
