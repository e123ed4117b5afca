"""Sums of products, or over axes, that a `scan` makes and never reads are made after it.

The gradient of a matrix that each step multiplies by is such a sum, and that of a vector which each
step adds. In the loop, each step reads and writes all of it for a thin product; over all steps it
is one thick product, or one sum, whose operands the loop mostly stacks already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Var
from amdjax.core.primitive import Primitive

ADDED = ("dot_general", "reduce_sum")  # what a step may add


def sum_after_loops(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Take such sums out of each `scan`."""
    eqns = [new for eqn in closed.eqns for new in _without_sums(eqn)]
    if len(eqns) == len(closed.eqns):
        return closed
    old = closed.jaxpr
    jaxpr = Jaxpr(old.constvars, old.invars, old.outvars, eqns, None, old.debug_info)
    return ClosedJaxpr(jaxpr, closed.consts)


@dataclass
class _Sum:
    """A carried value to which each step adds a product, or a sum over axes.

    Args:
      index: among the carried values.
      product: the equation of what is added.
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
        if product is not None and same and product.primitive.name in ADDED:
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

    makers = {e.outvars[0]: e for e in body.eqns if e.primitive.name in _OVER_STEPS}

    def take(found: _Sum) -> list[JaxprEqn] | None:
        operands = [x for x in found.product.invars if isinstance(x, Var) and x not in consts]
        if len(operands) < len(found.product.invars):
            return None
        outside = [e for x in operands for e in _made_outside(x, makers, stacked)]
        made = {e.outvars[0] for e in outside}
        new = [x for x in dict.fromkeys(operands) if x not in stacked and x not in made]
        nbytes = sum(x.aval.nbytes for x in new)
        moved = sum(v.aval.nbytes for v in (*body.invars[first_x:], *body.outvars[count:]))
        if 2 * nbytes > moved or nbytes > 2 * body.outvars[found.index].aval.nbytes:
            return None
        fresh = {x: Var(_stacked(x.aval, length)) for x in new}
        places = stacked | fresh
        moving = []
        for e in dict.fromkeys(outside):
            places[e.outvars[0]] = result = Var(_stacked(e.outvars[0].aval, length))
            params = {**e.params, **_OVER_STEPS[e.primitive.name](e, length)}
            moving.append(e.replace(invars=[places[e.invars[0]]], outvars=[result], params=params))
        return [
            _loop(eqn, found, fresh),
            *moving,
            *_after(eqn, found, [places[x] for x in operands]),
        ]

    return take


def _made_outside(
    x: Var, makers: Mapping[Var, JaxprEqn], stacked: Mapping[Any, Any]
) -> list[JaxprEqn]:
    """The equations, in order, that make all steps' values of a variable of what is stacked."""
    out: list[JaxprEqn] = []
    while x not in stacked:
        made = makers.get(x)
        if made is None or not isinstance(made.invars[0], Var):
            return []
        out.insert(0, made)
        x = made.invars[0]
    return out


def _later(dims: Iterable[int]) -> tuple[int, ...]:
    """Axes behind that of the steps."""
    return tuple(d + 1 for d in dims)


#: What may be done with all steps at once: parameters that differ then.
_OVER_STEPS: dict[str, Callable[[JaxprEqn, int], dict[str, Any]]] = {
    "transpose": lambda e, length: {"permutation": (0, *_later(e.params["permutation"]))},
    "reshape": lambda e, length: {"new_sizes": (length, *e.outvars[0].aval.shape)},
    "reduce_sum": lambda e, length: {"axes": _later(e.params["axes"])},
}


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
    """The product, or sum, over all steps, added to what the sum began with."""
    product = found.product
    if product.primitive.name == "reduce_sum":
        over_steps: dict[str, Any] = {"axes": (0, *_later(product.params["axes"]))}
    else:
        contract, batch = product.params["dimension_numbers"]
        numbers = tuple((0, *_later(d)) for d in contract), tuple(map(_later, batch))
        over_steps = {"dimension_numbers": numbers}
    start = eqn.invars[eqn.params["num_consts"] + found.index]
    value = Var(product.outvars[0].aval)
    out = [
        product.replace(
            invars=operands,
            outvars=[value],
            params={**product.params, **over_steps},
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
