"""Updates of arrays in place: which values may be changed where they are, and in which order.

An update changes some elements of its operand. It needs no copy of the rest if whatever else reads
the operand has done so before, and no other name of the operand's memory is read afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from amdjax.core.jaxpr import JaxprEqn, Literal, Var
from amdjax.core.lowering import Control, Shaped
from amdjax.passes import is_on
from amdjax.passes.barriers import BARRIER
from amdjax.schedule.equations import is_bitcast
from amdjax.schedule.fusion import Fusion, Region, Single, step_reads, step_writes

Step = Region | Single


def is_update(eqn: JaxprEqn) -> bool:
    """Whether the result is the first operand, some elements changed, in place if it is free."""
    rule = eqn.primitive.lowering
    return isinstance(rule, Shaped) and rule.in_place


def _renames(step: Step, v: Var) -> bool:
    """Whether a result of a step that reads `v` may be another name for its memory."""
    if isinstance(step, Region):
        return False
    rule, params = step.eqn.primitive.lowering, step.eqn.params
    if not isinstance(rule, Control):
        return is_bitcast(step.eqn) or not isinstance(rule, Shaped)
    if rule.name == "cond":
        return False
    if rule.name == "while":
        return v in step.eqn.invars[params["cond_nconsts"] + params["body_nconsts"] :]
    if rule.name == "scan":
        first = params["num_consts"]
        return v in step.eqn.invars[first : first + params["num_carry"]]
    return True


def first_names(fusion: Fusion) -> dict[Var, Var]:
    """What values were called before barriers, which give names and move nothing."""
    names: dict[Var, Var] = {}
    for step in fusion.steps:
        if isinstance(step, Single) and step.eqn.primitive.name == BARRIER:
            pairs = zip(step.eqn.outvars, step.eqn.invars, strict=True)
            names.update((v, names.get(x, x)) for v, x in pairs if isinstance(x, Var))
    return names


def readers_first(fusion: Fusion) -> Fusion:
    """The program with steps that read what an update changes before it, where that is possible."""
    steps = list(fusion.steps)
    staying = [s for s in steps if isinstance(s, Single) and _stays(s)]
    last = {v: s for s in staying for v in _variables(step_reads(s))}
    # What another update reads too changes in place in the last of them.
    sources = [(s, _source(s)) for s in staying if is_update(s.eqn)]
    updates = [(s, v) for s, v in sources if v is not None and last[v] is s]
    places = {step: i for i, step in enumerate(steps)} if updates else {}
    for update, source in updates:
        start = places[update]
        stop = max(places[s] for s in fusion.readers[source]) + 1
        if stop > start + 1:
            steps[start:stop] = _readers_before(steps[start:stop], update)
            places.update((s, i) for i, s in enumerate(steps[start:stop], start))
    return replace(fusion, steps=steps) if updates else fusion


def _source(update: Single) -> Var | None:
    """The value of which an update changes elements."""
    source = update.eqn.invars[0]
    return source if isinstance(source, Var) else None


def _stays(step: Step) -> bool:
    """Whether a step does not go before another that stays, either."""
    return isinstance(step, Single) and (bool(step.eqn.effects) or is_update(step.eqn))


def _readers_before(steps: Sequence[Step], update: Single) -> list[Step]:
    """Steps from an update on, those before it that read what it changes."""
    # What the update's result, or an effect after it, leads to stays where it is.
    late = set(step_writes(update))
    moved: list[Step] = []
    stay: list[Step] = []
    wanted = _needed_by_readers(steps[1:], update.eqn.invars[0])
    for step in steps[1:]:
        fixed = _stays(step) or id(step) not in wanted
        if fixed or late.intersection(_variables(step_reads(step))):
            late.update(step_writes(step))
            stay.append(step)
        else:
            moved.append(step)
    return [*moved, update, *stay]


def _needed_by_readers(steps: Sequence[Step], source: Any) -> set[int]:
    """The steps that read `source`, and those that they need, by identity."""
    needed: set[int] = set()
    values: set[Any] = set()
    for step in reversed(steps):
        reads = _variables(step_reads(step))
        if source in reads or values.intersection(step_writes(step)):
            needed.add(id(step))
            values |= reads
    return needed


def _variables(reads: Sequence[Any]) -> set[Any]:
    return {v for v in reads if not isinstance(v, Literal)}


def changes_in_place(step: Step, fusion: Fusion) -> bool:
    """Whether a step updates a value that nothing reads from then on."""
    if not isinstance(step, Single) or not is_update(step.eqn) or not is_on("update_in_place"):
        return False
    source = _source(step)
    if source is None or source in fusion.results:
        return False
    before = True
    for other in fusion.readers[source]:
        if other is step:
            before = False
        elif not before or _renames(other, source):
            return False
    return step_reads(step).count(source) == 1


def updates_in_place(fusion: Fusion, invar: Var, out: Any, outs: Sequence[Any]) -> bool:
    """Whether `out` is `invar` after a chain of updates, each of them in place."""
    if list(outs).count(out) != 1:
        return False
    makers = {v: s for s in fusion.steps if isinstance(s, Single) for v in s.eqn.outvars}
    value = out
    while value is not invar:
        step = None if isinstance(value, Literal) else makers.get(value)
        if step is None or not changes_in_place(step, fusion):
            return False
        value = step.eqn.invars[0]
    return True
