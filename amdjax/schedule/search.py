"""Choosing among plans: which there are, about how long each takes, and the one that takes least.

Neither needs anything to be written, so that a search which measures begins here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["SPACES", "SearchSpace", "busy_time", "shares"]

Problem = TypeVar("Problem")
Machine = TypeVar("Machine")
Plan = TypeVar("Plan")

#: Every space by its name.
SPACES: dict[str, SearchSpace[Any, Any, Any]] = {}


@dataclass(frozen=True)
class SearchSpace(Generic[Problem, Machine, Plan]):
    """The plans for problems of one kind.

    Args:
      name: of the kind.
      candidates: of a problem and a machine, plans worth a look, each of which solves it; none
        where other kernels suit it.
      cost: of a problem, one of its plans and the machine, about how long that takes, in a unit of
        the space's own.
    """

    name: str
    candidates: Callable[[Problem, Machine], Sequence[Plan]]
    cost: Callable[[Problem, Plan, Machine], float]

    def __post_init__(self) -> None:
        SPACES[self.name] = self

    def find(self, problem: Problem, machine: Machine) -> Plan | None:
        """The plan that costs least, of several the first; None if there is none."""
        plans = self.candidates(problem, machine)
        if len(plans) < 2:
            return plans[0] if plans else None
        return min(plans, key=lambda plan: self.cost(problem, plan, machine))

    def best(self, problem: Problem, machine: Machine) -> Plan:
        """What `find` finds, of a kind that always has candidates."""
        plan = self.find(problem, machine)
        assert plan is not None
        return plan


def shares(most: int) -> list[int]:
    """In how many parts work may be cut: one, powers of two, and the most."""
    return [1 << i for i in range((most - 1).bit_length())] + [most] if most > 1 else [1]


def busy_time(work: float, programs: int, busy: int) -> float:
    """How long `work` takes programs of which `busy` keep a machine busy."""
    return work / max(min(programs, busy), 1)
