"""Sums of products that a `scan` makes step by step, and never reads, as one product after it.

The gradient of a matrix that each step multiplies by is such a sum. In the loop, each step reads
and writes all of it for a thin product; over all steps it is one thick product, whose operands the
loop mostly stacks already.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Var
from amdjax.core.primitive import Primitive


def sum_products_after_loops(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Take sums of products out of each `scan`."""
    eqns = [new for eqn in closed.eqns for new in _without_sums(eqn)]
    if len(eqns) == len(closed.eqns):
        return closed
    old = closed.jaxpr
    jaxpr = Jaxpr(old.constvars, old.invars, old.outvars, eqns, None, old.debug_info)
    return ClosedJaxpr(jaxpr, closed.consts)


@dataclass
class _Sum:
    """A carried value to which each step adds a product.

    Args:
      index: among the carried values.
      product: the equation of the product.
      turn: that of its transposition, if it is transposed.
    """

    index: int
    product: JaxprEqn
    turn: JaxprEqn | None


def _without_sums(eqn: JaxprEqn) -> list[JaxprEqn]:
    """The equations for one: the scan without its sums, and what makes them."""
    if eqn.primitive.name != "scan" or eqn.effects or eqn.params["length"] < 2:
        return [eqn]
    out = [eqn]
    # One after the other: what one has stacked is there for the next.
    while (found := next(filter(None, map(_taken(out[0]), _sums(out[0]))), None)) is not None:
        out = [*found, *out[1:]]
    return out


def _sums(eqn: JaxprEqn) -> list[_Sum]:
    body = eqn.params["jaxpr"].jaxpr
    start, count = eqn.params["num_consts"], eqn.params["num_carry"]
    uses = Counter(x for e in body.eqns for x in e.invars if isinstance(x, Var))
    uses.update(x for x in body.outvars if isinstance(x, Var))
    makers = {v: e for e in body.eqns for v in e.outvars}
    once = lambda x: isinstance(x, Var) and uses[x] == 1
    found = []
    for i in range(count):
        carried, add = body.invars[start + i], makers.get(body.outvars[i])
        if not once(carried) or not once(body.outvars[i]) or add is None:
            continue
        if add.primitive.name not in ("add", "add_any") or carried not in add.invars:
            continue
        (term,) = [x for x in add.invars if x is not carried] or [None]
        product, turn = makers.get(term) if once(term) else None, None
        if product is not None and product.primitive.name == "transpose":
            turn, (term,) = product, product.invars
            product = makers.get(term) if once(term) else None
        same = product is not None and product.outvars[0].aval.dtype == carried.aval.dtype
        if product is not None and same and product.primitive.name == "dot_general":
            found.append(_Sum(i, product, turn))
    return found


def _taken(eqn: JaxprEqn) -> Any:
    """What takes a sum out of a scan, or gives None where its operands would take much memory."""
    params = eqn.params
    body, length = params["jaxpr"].jaxpr, params["length"]
    first_x = params["num_consts"] + params["num_carry"]
    xs: dict[Any, Any] = dict(zip(body.invars[first_x:], eqn.invars[first_x:], strict=True))
    consts = {*body.invars[: params["num_consts"]], *body.constvars}
    count = params["num_carry"]
    ys = zip(body.outvars[count:], eqn.outvars[count:], strict=True)
    stacked = xs | {inner: outer for inner, outer in ys if type(outer) is not DropVar}

    turns = {e.outvars[0]: e for e in body.eqns if e.primitive.name == "transpose"}

    def take(found: _Sum) -> list[JaxprEqn] | None:
        operands = [x for x in found.product.invars if isinstance(x, Var) and x not in consts]
        if len(operands) < 2:
            return None
        turned = {x: turns[x] for x in operands if x not in stacked and x in turns}
        turned = {x: e for x, e in turned.items() if e.invars[0] in stacked}
        new = [x for x in dict.fromkeys(operands) if x not in stacked and x not in turned]
        nbytes = sum(x.aval.nbytes for x in new)
        moved = sum(v.aval.nbytes for v in (*body.invars[first_x:], *body.outvars[count:]))
        if 2 * nbytes > moved or nbytes > 2 * body.outvars[found.index].aval.nbytes:
            return None
        fresh = {x: Var(_stacked(x.aval, length)) for x in (*new, *turned)}
        places = stacked | fresh
        turning = [_turned(e, stacked[e.invars[0]], fresh[x]) for x, e in turned.items()]
        loop = _loop(eqn, found, {x: fresh[x] for x in new})
        return [loop, *turning, *_after(eqn, found, [places[x] for x in operands])]

    return take


def _turned(eqn: JaxprEqn, stacked: Var, result: Var) -> JaxprEqn:
    """A transposition of what was stacked."""
    permutation = (0, *(d + 1 for d in eqn.params["permutation"]))
    return eqn.replace(invars=[stacked], outvars=[result], params={"permutation": permutation})


def _stacked(aval: Any, length: int) -> ShapedArray:
    return ShapedArray((length, *aval.shape), aval.dtype)


def _loop(eqn: JaxprEqn, found: _Sum, fresh: dict[Var, Var]) -> JaxprEqn:
    """The scan without a carried value, and with more that it stacks."""
    params = eqn.params
    closed, at = params["jaxpr"], params["num_consts"] + found.index
    body, i = closed.jaxpr, found.index
    dead = {found.product.outvars[0], *(found.turn.outvars if found.turn else ()), body.outvars[i]}
    jaxpr = Jaxpr(
        body.constvars,
        [*body.invars[:at], *body.invars[at + 1 :]],
        [*body.outvars[:i], *body.outvars[i + 1 :], *fresh],
        [e for e in body.eqns if not dead.intersection(e.outvars)],
        None,
        body.debug_info,
    )
    return eqn.replace(
        invars=[*eqn.invars[:at], *eqn.invars[at + 1 :]],
        outvars=[*eqn.outvars[:i], *eqn.outvars[i + 1 :], *fresh.values()],
        params={
            **params, "jaxpr": ClosedJaxpr(jaxpr, closed.consts),
            "num_carry": params["num_carry"] - 1,
        },
    )  # fmt: skip


def _after(eqn: JaxprEqn, found: _Sum, operands: list[Any]) -> list[JaxprEqn]:
    """The product over all steps, added to what the sum began with."""
    product = found.product
    contract, batch = product.params["dimension_numbers"]
    numbers = (
        tuple((0, *(d + 1 for d in dims)) for dims in contract),
        tuple(tuple(d + 1 for d in dims) for dims in batch),
    )
    start = eqn.invars[eqn.params["num_consts"] + found.index]
    value = Var(product.outvars[0].aval)
    out = [
        product.replace(
            invars=operands,
            outvars=[value],
            params={**product.params, "dimension_numbers": numbers},
        )
    ]
    if found.turn is not None:
        turned = Var(found.turn.outvars[0].aval)
        out.append(found.turn.replace(invars=[value], outvars=[turned]))
        value = turned
    add = Primitive.by_name["add"]
    result = eqn.outvars[found.index]
    out.append(JaxprEqn(add, [start, value], [result], {}, source=eqn.source))
    return out
