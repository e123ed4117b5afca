"""Loops and branches that work on references, as loops and branches of what these hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdjax.core.jaxpr import ClosedJaxpr
from amdjax.core.primitive import Primitive
from amdjax.lax.control_flow._common import (
    split_list,
    with_binders,
    with_outputs,
    with_unused_binders,
)
from amdjax.transforms.discharge import Cell, Discharge, control_rules


def _cells(args: Sequence[Any]) -> list[int]:
    """Positions of references."""
    return [i for i, x in enumerate(args) if isinstance(x, Cell)]


def _values(args: Sequence[Any]) -> list[Any]:
    return [x.read() if isinstance(x, Cell) else x for x in args]


def _scan(
    primitive: Primitive, args: Sequence[Any], params: dict[str, Any], discharge: Discharge
) -> list[Any]:
    """References that all steps share are carried; those to rows of xs return as ys."""
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    body: ClosedJaxpr = params["jaxpr"]
    results = len(body.out_avals)
    first_x = num_consts + num_carry
    shared = [i for i in _cells(args) if i < first_x]
    rows = [i for i in _cells(args) if i >= first_x]
    pure = discharge(body)
    consts = [i for i in range(num_consts) if i not in shared]
    order = [*consts, *range(num_consts, first_x), *shared, *range(first_x, len(args))]
    finals = {i: results + k for k, i in enumerate([*shared, *rows])}
    outputs = [
        *(*range(num_carry), *(finals[i] for i in shared)),
        *(*range(num_carry, results), *(finals[i] for i in rows)),
    ]
    values = _values(args)
    changed = {
        "jaxpr": with_outputs(with_binders(pure, order), outputs),
        "num_consts": len(consts),
        "num_carry": num_carry + len(shared),
    }
    outs = primitive.bind(*(values[i] for i in order), **{**params, **changed})
    carry, held, ys, held_rows = split_list(outs, num_carry, len(shared), results - num_carry)
    for i, value in zip([*shared, *rows], [*held, *held_rows]):
        args[i].write(value)
    return [*carry, *ys]


def _while(
    primitive: Primitive, args: Sequence[Any], params: dict[str, Any], discharge: Discharge
) -> list[Any]:
    """References are carried; those that only the condition reads stay as they are."""
    cond_nconsts, body_nconsts = params["cond_nconsts"], params["body_nconsts"]
    first = cond_nconsts + body_nconsts
    carried = [i for i in _cells(args) if i >= cond_nconsts]
    if any(i >= first for i in carried):
        raise NotImplementedError("while: the carry holds references; close over them instead.")
    if any(i < cond_nconsts for i in _cells(args)):
        raise NotImplementedError("while: the condition reads a reference; carry its value.")
    body = discharge(params["body_jaxpr"])
    shift = [i - cond_nconsts for i in carried]
    consts = [i for i in range(body_nconsts) if i not in shift]
    order = [*consts, *range(body_nconsts, len(body.in_avals)), *shift]
    values = _values(args)
    cond = params["cond_jaxpr"]
    count = len(params["body_jaxpr"].out_avals)
    held = [body.in_avals[i] for i in shift]
    outs = primitive.bind(
        *values[:cond_nconsts],
        *(values[cond_nconsts + i] for i in order),
        cond_jaxpr=with_unused_binders(cond, held),
        body_jaxpr=with_binders(body, order),
        cond_nconsts=cond_nconsts,
        body_nconsts=len(consts),
    )
    for i, value in zip(carried, outs[count:]):
        args[i].write(value)
    return outs[:count]


def _cond(
    primitive: Primitive, args: Sequence[Any], params: dict[str, Any], discharge: Discharge
) -> list[Any]:
    """Each branch returns what all references hold after it."""
    count = len(params["branches"][0].out_avals)
    branches = tuple(map(discharge, params["branches"]))
    outs = primitive.bind(*_values(args), **{**params, "branches": branches})
    for i, value in zip(_cells(args), outs[count:]):
        args[i].write(value)
    return outs[:count]


control_rules.update({"scan": _scan, "while": _while, "cond": _cond})
