"""Products of which a `scan` reads a slice at each step, made in the loop, slice by slice.

The inputs of a recurrent layer times its kernel are such a product: all steps at once it is larger
than the caches, is written to memory and read back; a step's share stays in the cache until the
step reads it. The matrix is packed once, before the loop, either way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from amdjax.core.aval import ShapedArray
from amdjax.core.dims import choosing
from amdjax.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Var
from amdjax.core.primitive import Primitive

#: Bytes of a product from which a loop makes it itself.
FROM_BYTES = 4 << 20
#: Rows of a step's share from which multiplying them by a matrix is worth reading it.
LEAST_ROWS = 32


@dataclass
class _Slice:
    """How a loop makes one slice.

    Args:
      xs: values of which the loop reads slices, and the variables of those.
      consts: values that all steps read, and their variables in the loop.
      body: equations of a step.
      prologue: equations that stand before the loop.
      gone: variables that nothing reads any more.
    """

    xs: dict[Var, Var] = field(default_factory=dict)
    consts: dict[Var, Var] = field(default_factory=dict)
    body: list[JaxprEqn] = field(default_factory=list)
    prologue: list[JaxprEqn] = field(default_factory=list)
    gone: set[Var] = field(default_factory=set)


def slice_products_in_loops(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Make products of which a loop alone reads slices in the loop."""
    uses = Counter(x for e in closed.eqns for x in e.invars if isinstance(x, Var))
    uses.update(x for x in closed.jaxpr.outvars if isinstance(x, Var))
    makers = {v: e for e in closed.eqns for v in e.outvars}
    eqns: list[JaxprEqn] = []
    gone: set[Var] = set()
    for eqn in closed.eqns:
        if eqn.primitive.name != "scan" or eqn.params["length"] < 2:
            eqns.append(eqn)
            continue
        first = eqn.params["num_consts"] + eqn.params["num_carry"]
        for x in eqn.invars[first:]:
            made = _made(x, makers, uses)
            if made is not None:
                eqns += made.prologue
                eqn = _moved(eqn, x, made)
                gone |= made.gone
        eqns.append(eqn)
    if not gone:
        return closed
    old = closed.jaxpr
    eqns = [e for e in eqns if not gone.intersection(e.outvars)]
    return closed.replace(
        jaxpr=Jaxpr(old.constvars, old.invars, old.outvars, eqns, None, old.debug_info)
    )


def _made(x: Any, makers: dict[Var, JaxprEqn], uses: Counter[Var]) -> _Slice | None:
    """How to make a slice of a large product, perhaps with biases added; None for what is none."""
    if not isinstance(x, Var):
        return None
    with choosing():
        if x.aval.nbytes < FROM_BYTES:
            return None
    out = _Slice()
    return None if _visit(x, makers, uses, out) is None else out


_Visit = Callable[[JaxprEqn, dict[Var, JaxprEqn], Counter[Var], _Slice], Var | None]


def _visit(x: Var, makers: dict[Var, JaxprEqn], uses: Counter[Var], out: _Slice) -> Var | None:
    eqn = makers.get(x)
    if eqn is None or uses[x] != 1:
        return None
    visit = _VISITS.get(eqn.primitive.name)
    out.gone.add(x)
    return None if visit is None else visit(eqn, makers, uses, out)


def _sum(eqn: JaxprEqn, makers: Any, uses: Any, out: _Slice) -> Var | None:
    """A sum of a product and what is the same at every step."""
    x, bias = eqn.invars
    if not isinstance(x, Var) or not isinstance(bias, Var):
        return None
    if x.aval.shape != eqn.outvars[0].aval.shape:
        return None
    if bias.aval.ndim != x.aval.ndim or bias.aval.shape[0] != 1:
        return None
    inner = _visit(x, makers, uses, out)
    if inner is None:
        return None
    row = Var(_without_first(bias.aval))
    reshape = Primitive.by_name["reshape"]
    params = {"new_sizes": row.aval.shape, "dimensions": None, "sharding": None}
    out.prologue.append(JaxprEqn(reshape, [bias], [row], params, source=eqn.source))
    here = out.consts.setdefault(row, Var(row.aval))
    result = Var(_without_first(eqn.outvars[0].aval))
    out.body.append(eqn.replace(invars=[inner, here], outvars=[result]))
    return result


def _product(eqn: JaxprEqn, makers: Any, uses: Any, out: _Slice) -> Var | None:
    """Rows of each step times one matrix."""
    x, w = eqn.invars
    (contract, _), batch = eqn.params["dimension_numbers"]
    rows = x.aval.size // x.aval.shape[0]
    for d in contract:
        rows //= x.aval.shape[d]
    if not isinstance(x, Var) or not isinstance(w, Var) or 0 in contract or batch != ((), ()):
        return None
    if rows < LEAST_ROWS or x.aval.nbytes > eqn.outvars[0].aval.nbytes:
        return None
    here = out.xs.setdefault(x, Var(_without_first(x.aval)))
    matrix = out.consts.setdefault(w, Var(w.aval))
    (left, right), _ = eqn.params["dimension_numbers"]
    numbers = (tuple(d - 1 for d in left), right), batch
    result = Var(_without_first(eqn.outvars[0].aval))
    params = {**eqn.params, "dimension_numbers": numbers}
    out.body.append(eqn.replace(invars=[here, matrix], outvars=[result], params=params))
    return result


_VISITS: dict[str, _Visit] = {"add": _sum, "dot_general": _product}


def _without_first(aval: Any) -> ShapedArray:
    return ShapedArray(aval.shape[1:], aval.dtype)


def _moved(eqn: JaxprEqn, x: Any, made: _Slice) -> JaxprEqn:
    """The scan, which makes its slices of `x` itself."""
    params = eqn.params
    closed, consts = params["jaxpr"], params["num_consts"]
    body = closed.jaxpr
    at = eqn.invars.index(x, consts + params["num_carry"])
    last = made.body[-1]
    own = [*made.body[:-1], last.replace(outvars=[body.invars[at]])]
    jaxpr = Jaxpr(
        body.constvars,
        [*body.invars[:consts], *made.consts.values(), *body.invars[consts:at],
         *body.invars[at + 1 :], *made.xs.values()],
        body.outvars,
        [*own, *body.eqns],
        None,
        body.debug_info,
    )  # fmt: skip
    return eqn.replace(
        invars=[*eqn.invars[:consts], *made.consts, *eqn.invars[consts:at],
                *eqn.invars[at + 1 :], *made.xs],
        params={
            **params, "jaxpr": ClosedJaxpr(jaxpr, closed.consts),
            "num_consts": consts + len(made.consts),
        },
    )  # fmt: skip
