"""What a loop's body computes of the loop's constants alone, to be done once, before the loop."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from amdjax.core.jaxpr import Var
from amdjax.schedule.calls import Call, Copy, Temp
from amdjax.schedule.gpu.partition import Resident


@dataclass(frozen=True)
class Hoisted:
    """What is known of the body of a loop before it is entered.

    Attributes:
      fixed: variables that the loop does not change.
      resident: of the loop, if it becomes one launch with its body.
      steps: the launches that are left of shaped steps, and their workspace, by their equations.
    """

    fixed: frozenset[Var] = frozenset()
    resident: Resident | None = None
    steps: dict[int, tuple[Sequence[Call | Copy], dict[Temp, Any]]] = field(default_factory=dict)


def independent(calls: Sequence[Call | Copy], fixed: Collection[Var]) -> int:
    """How many of the first launches read nothing but `fixed`, so that once is enough."""
    later: set[Temp] = set()
    count = len(calls)
    for i in range(len(calls) - 1, -1, -1):
        call = calls[i]
        written = set() if isinstance(call, Copy) else workspace(call)
        variables = (x for x in getattr(call, "args", ()) if isinstance(x, Var))
        same = written and not (written & later) and all(v in fixed for v in variables)
        if not same or any(t.zero for t in written):
            count = i
        later |= written
    return count


def workspace(call: Call) -> set[Temp]:
    """The workspace that a launch writes."""
    pairs = zip(call.kernel.params, call.args, strict=True)
    return {arg for param, arg in pairs if isinstance(arg, Temp) and param.role != "in"}
