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


def _finals(pure: ClosedJaxpr, results: int, refs: Sequence[int]) -> dict[int, int]:
    """For each reference that a discharged program writes, the result that it holds at the end."""
    jaxpr = pure.jaxpr
    finals = {i: results + k for k, i in enumerate(refs)}
    return {i: k for i, k in finals.items() if jaxpr.outvars[k] is not jaxpr.invars[i]}


def _scan(
    primitive: Primitive, args: Sequence[Any], params: dict[str, Any], discharge: Discharge
) -> list[Any]:
    """References that all steps share are carried; those to rows of xs return as ys."""
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    body: ClosedJaxpr = params["jaxpr"]
    results, first_x = len(body.out_avals), num_consts + num_carry
    pure = discharge(body)
    finals = _finals(pure, results, _cells(args))
    shared = [i for i in finals if i < first_x]
    rows = [i for i in finals if i >= first_x]
    consts = [i for i in range(num_consts) if i not in shared]
    order = [*consts, *range(num_consts, first_x), *shared, *range(first_x, len(args))]
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
    """References that the body writes are carried, past a condition that must not read them."""
    cond_nconsts, body_nconsts = params["cond_nconsts"], params["body_nconsts"]
    if any(not cond_nconsts <= i < cond_nconsts + body_nconsts for i in _cells(args)):
        raise NotImplementedError(
            "while: a reference is among what the condition reads or in the carry. Carry what it "
            "holds instead, and close over references in the body only."
        )
    count = len(params["body_jaxpr"].out_avals)
    body = discharge(params["body_jaxpr"])
    finals = _finals(body, count, [i - cond_nconsts for i in _cells(args)])
    consts = [i for i in range(body_nconsts) if i not in finals]
    order = [*consts, *range(body_nconsts, len(body.in_avals)), *finals]
    values = _values(args)
    outs = primitive.bind(
        *values[:cond_nconsts],
        *(values[cond_nconsts + i] for i in order),
        cond_jaxpr=with_unused_binders(params["cond_jaxpr"], [body.in_avals[i] for i in finals]),
        body_jaxpr=with_outputs(with_binders(body, order), [*range(count), *finals.values()]),
        cond_nconsts=cond_nconsts,
        body_nconsts=len(consts),
    )
    for i, value in zip(finals, outs[count:]):
        args[cond_nconsts + i].write(value)
    return outs[:count]


def _cond(
    primitive: Primitive, args: Sequence[Any], params: dict[str, Any], discharge: Discharge
) -> list[Any]:
    """Each branch returns what the references that one of them writes hold after it."""
    count = len(params["branches"][0].out_avals)
    branches = tuple(map(discharge, params["branches"]))
    refs = [i - 1 for i in _cells(args)]  # the first operand is the index
    finals: dict[int, int] = {}
    for branch in branches:
        finals |= _finals(branch, count, refs)
    outputs = [*range(count), *finals.values()]
    branches = tuple(with_outputs(b, outputs) for b in branches)
    outs = primitive.bind(*_values(args), **{**params, "branches": branches})
    for i, value in zip(finals, outs[count:]):
        args[i + 1].write(value)
    return outs[:count]


control_rules.update({"scan": _scan, "while": _while, "cond": _cond})
