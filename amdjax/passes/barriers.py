"""Optimization barriers: what stands behind one is computed there, from values as they are then."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from amdjax.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Var
from amdjax.core.primitive import Primitive

BARRIER = "optimization_barrier"


def barrier(values: Sequence[Var], after: Sequence[Var] = ()) -> tuple[JaxprEqn, list[Var]]:
    """An equation that gives values other names once others have been computed.

    Args:
      values: what gets new names.
      after: what is computed before the new names can be read.

    Returns:
      The equation, and the new names of `values`.
    """
    operands = list(dict.fromkeys([*values, *after]))
    names = {v: Var(v.aval) for v in operands}
    eqn = JaxprEqn(Primitive.by_name[BARRIER], operands, list(names.values()), {})
    return eqn, [names[v] for v in values]


def remove_barriers(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Take barriers out that kept only common subexpressions apart.

    Those stay behind which a value is read that something before them has read, too: a kernel that
    reads it for both would compute early what is computed again to save memory, as by
    `checkpoint`. Other values go by such a barrier, but it waits for those that kernels make.
    """
    if not any(e.primitive.name == BARRIER for e in closed.jaxpr.eqns):
        return closed
    names: dict[Var, Any] = {}
    read: set[Var] = set()
    makers: dict[Var, JaxprEqn] = {}
    used = {x for e in closed.eqns for x in e.invars if isinstance(x, Var)}
    used.update(v for v in closed.jaxpr.outvars if isinstance(v, Var))

    def rename(x: Any) -> Any:
        return names.get(x, x) if isinstance(x, Var) else x

    eqns: list[JaxprEqn] = []
    for eqn in closed.jaxpr.eqns:
        invars = [rename(x) for x in eqn.invars]
        if eqn.primitive.name == BARRIER:
            names.update(zip(eqn.outvars, invars, strict=True))
            names.update(_kept(eqn, invars, read, used, makers, eqns))
            continue
        eqns.append(eqn.replace(invars=invars))
        read.update(x for x in invars if isinstance(x, Var))
        makers.update((v, eqn) for v in eqn.outvars)
    outvars = [rename(v) for v in closed.jaxpr.outvars]
    return closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns, outvars=outvars))


def _kept(
    eqn: JaxprEqn, operands: Sequence[Atom], read: Collection[Var], used: Collection[Var],
    makers: dict[Var, JaxprEqn], eqns: list[JaxprEqn],
) -> dict[Var, Var]:  # fmt: skip
    """What is still called otherwise behind a barrier, which is added to `eqns` if anything is."""
    arrays = [
        (y, x)
        for y, x in zip(eqn.outvars, operands, strict=True)
        if isinstance(x, Var) and x.aval.shape and y in used
    ]
    kept = {y: x for y, x in arrays if x in read}
    if not kept:
        return {}
    after = [x for _, x in arrays if x in makers and not _is_spread(makers[x])]
    new, names = barrier(list(kept.values()), after)
    eqns.append(new)
    return dict(zip(kept, names, strict=True))


def _is_spread(eqn: JaxprEqn) -> bool:
    """Whether the result repeats what it is made of, and so costs nothing where it is read."""
    rank = max((len(x.aval.shape) for x in eqn.invars), default=0)
    return rank < len(eqn.outvars[0].aval.shape)
