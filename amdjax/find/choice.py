"""Which of the ways that are known a program follows.

What was measured for a step by this version of the code generator is followed at once, on the
machine with the nearest number of units where there is none for this one. Anything else is old or
a guess: estimates, what another version measured, and what is known of the step's equation without
what is fused behind it. It is followed only where the plan that the compiler would take now was
among those that it was compared with, and lost: a plan that has become the usual one since was not.
Estimates of another version are never followed, since other code has other counts; those that come
with the package have versions of their own (`shipped.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amdjax.find.database import Known
from amdjax.find.problem import Problem
from amdjax.schedule.search import Decision

Way = tuple[Decision, ...]


def choice(
    known: Sequence[Known], problem: Problem, units: int, version: str, usual: Callable[[], Way]
) -> Way | None:
    """The way to follow.

    Args:
      known: right ways of the problem, and of its equation alone.
      problem: the step.
      units: of the machine.
      version: of the code generator, or of the estimates that come with the package.
      usual: gives what is decided without knowing anything.

    Returns:
      The fastest way that may be followed; None if there is none.
    """

    def order(k: Known) -> tuple[bool, bool, bool, int, float]:
        is_other = k.problem != problem, k.version != version
        distance = abs(k.machine.units - units)
        return *is_other, k.result.estimated, distance, k.result.seconds or 0.0

    for best in sorted(known, key=order):
        is_estimate, is_old = best.result.estimated, best.version != version
        if is_estimate and is_old:
            continue
        if best.problem == problem and not is_estimate and not is_old:
            return best.result.decisions
        now = usual()
        if any(k.result.decisions == now and _compared(k, best) for k in known):
            return best.result.decisions
    return None


def _compared(a: Known, b: Known) -> bool:
    """Whether two times were taken alike."""
    same = a.problem == b.problem and a.machine == b.machine and a.version == b.version
    return same and a.result.estimated == b.result.estimated
