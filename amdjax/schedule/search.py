"""Choosing among algorithms and their plans: which there are, about how long each takes.

A `Solver` is an algorithm: it lists plans and estimates their times, writing nothing. A `Family`
holds the solvers for problems of one kind on one kind of machine, and chooses. Without being told
it takes what is estimated to be fastest. `planned` tells it: a step of a program is planned by
*decisions* that were made before, by `amdjax.find` from measurements.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from amdjax.core.dims import cheapest, choosing, text_at_hand
from amdjax.core.jaxpr import Var

__all__ = [
    "FAMILIES", "Decision", "Decisions", "Family", "Solver", "UnknownDecision", "busy_time",
    "deciding", "is_deciding", "planned", "remembering", "renamed", "set_finder", "shares",
]  # fmt: skip

Problem = TypeVar("Problem")
Machine = TypeVar("Machine")
Plan = TypeVar("Plan")
T = TypeVar("T")

ROUNDING = 1 - 1e-9  # of estimates

#: Every family by its name.
FAMILIES: dict[str, Family[Any, Any, Any]] = {}


@dataclass(frozen=True)
class Solver(Generic[Problem, Machine, Plan]):
    """An algorithm for problems of one kind.

    Args:
      name: of the algorithm.
      plans: of a problem and a machine, plans worth a look, each of which solves it; none where
        the algorithm does not apply.
      estimate: of a problem, one of its plans and the machine, about how long that takes, in a
        unit that the solvers of one tier share; nanoseconds on CPUs. Of a composite, what it takes
        besides what the other families chose.
      usual: of a problem and a machine, the plan that is taken unless decided otherwise, None where
        other solvers suit better; by default the one of `plans` with the least estimate.
      least: of a problem and a machine, what no plan takes less than, which is found sooner than
        the plans; zero of symbolic sizes, for which choices are noted.
      tier: solvers of a lower one are asked first, and those of a higher one only if none of them
        has a usual plan.
      composite: its only plan is made by choices of other families, and so is not told by its text.
      approximate: its results are as accurate as they should be, but differ from those of others
        where sums are exact.
    """

    name: str
    plans: Callable[[Problem, Machine], Sequence[Plan]]
    estimate: Callable[[Problem, Plan, Machine], float] = lambda problem, plan, machine: 0.0
    usual: Callable[[Problem, Machine], Plan | None] | None = None
    least: Callable[[Problem, Machine], float] | None = None
    tier: int = 0
    composite: bool = False
    approximate: bool = False

    def best(self, problem: Problem, machine: Machine) -> Plan | None:
        """The plan that is taken unless decided otherwise; None where other solvers suit better."""
        if self.usual is not None:
            return self.usual(problem, machine)
        plans = self.plans(problem, machine)
        if len(plans) < 2:
            return plans[0] if plans else None
        with choosing():
            costs = [self.estimate(problem, plan, machine) for plan in plans]
            return plans[cheapest(costs)]

    def every(self, problem: Problem, machine: Machine) -> list[Plan]:
        """All plans, the usual one first, then by their estimates."""
        usual = self.best(problem, machine)
        plans = self.plans(problem, machine)
        with choosing():
            plans = sorted(plans, key=lambda plan: self.estimate(problem, plan, machine))
        return [*([] if usual is None else [usual]), *plans]


class Decision(NamedTuple):
    """What a family chose: a solver by its name and a plan by its text, empty if composite."""

    family: str
    solver: str
    plan: str


class UnknownDecision(Exception):
    """A decision names what is not, or no longer, among the plans."""


@dataclass
class Decisions:
    """Those taken while a step is planned, one for each choice in the order of choices.

    Args:
      wanted: what to decide; where it ends, or has None, families choose by themselves.
      listing: whether to note all options of each choice.

    Attributes:
      taken: what was decided.
      options: for each choice what could have been decided, if they are noted.
    """

    wanted: Sequence[Decision | None] = ()
    listing: bool = False
    taken: list[Decision] = field(default_factory=list)
    options: list[list[Decision]] = field(default_factory=list)

    def take(self, family: Family[Any, Any, Any], problem: Any, machine: Any) -> Any:
        """The plan of one choice."""
        at = len(self.taken)
        wanted = self.wanted[at] if at < len(self.wanted) else None
        # Choices that the plan is made by follow.
        self.taken.append(Decision(family.name, "", ""))
        self.options.append([])
        if wanted is None:
            solver, plan = family.usual(problem, machine)
        else:
            solver, plan = family.decided(wanted, problem, machine)
        if solver is None:
            self.undo(at)
            return None
        self.taken[at] = family.decision(solver, plan)
        if self.listing:
            with _using(None):
                self.options[at] = family.options(problem, machine)
        return plan

    def undo(self, count: int) -> None:
        """Forget all but the first `count`."""
        del self.taken[count:], self.options[count:]


_state = threading.local()


def _current() -> Decisions | None:
    return getattr(_state, "decisions", None)


def estimated(plan: Callable[[], object]) -> Any:
    """About how long in nanoseconds what `plan` chooses takes, as far as families estimate it."""
    with _using(None), _adding_up() as costs:
        plan()
    return sum(costs)


@contextlib.contextmanager
def _adding_up() -> Iterator[list[float]]:
    """Choices in here note what they are estimated to take."""
    before = getattr(_state, "estimates", None)
    _state.estimates = []
    try:
        yield _state.estimates
    finally:
        _state.estimates = before


@contextlib.contextmanager
def _using(decisions: Decisions | None) -> Iterator[None]:
    before = _current()
    _state.decisions = decisions
    try:
        yield
    finally:
        _state.decisions = before


@contextlib.contextmanager
def deciding(
    wanted: Sequence[Decision | None] = (), *, listing: bool = False
) -> Iterator[Decisions]:
    """Plan one step by these decisions, in this thread.

    Raises:
      UnknownDecision: one of them names no plan of the step's.
    """
    decisions = Decisions(wanted, listing)
    with _using(decisions):
        yield decisions


def is_deciding() -> bool:
    """Whether this thread plans by given decisions, or notes estimates."""
    return _current() is not None or getattr(_state, "estimates", None) is not None


Finder = Callable[[Any, Any], Sequence[Decision]]
_finder: Finder | None = None


def set_finder(find: Finder | None) -> None:
    """Name the function that knows decisions: of a step and a machine, none if unknown."""
    global _finder
    _finder = find


def planned(step: Any, machine: Any, plan: Callable[[], T]) -> T:
    """What `plan` plans for a step, by the decisions that are known for it."""
    if _finder is None or _current() is not None:
        return plan()
    wanted = _finder(step, machine)
    if wanted:
        with contextlib.suppress(UnknownDecision), deciding(wanted):
            return plan()
    return plan()


@contextlib.contextmanager
def remembering() -> Iterator[None]:
    """In here families search once for problems that are alike."""
    before = getattr(_state, "known", None)
    _state.known = {}
    try:
        yield
    finally:
        _state.known = before


def remembered(key: Hashable, make: Callable[[], T]) -> T:
    """What `make` makes for a key, once in a context of `remembering`."""
    known: dict[Any, Any] | None = getattr(_state, "known", None)
    if known is None:
        return make()
    if key not in known:
        known[key] = make()
    made: T = known[key]
    return made


def renamed(x: Any, names: Mapping[Any, Any]) -> Any:
    """A plan, or a part of one, with other variables."""
    if isinstance(x, (tuple, list)):
        parts = [renamed(part, names) for part in x]
        if all(map(operator.is_, parts, x)):
            return x
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if type(x) is Var:
        return names.get(x, x)
    parameters = getattr(type(x), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return x
    found = {f.name: getattr(x, f.name) for f in dataclasses.fields(x) if f.init}
    changed = {k: new for k, old in found.items() if (new := renamed(old, names)) is not old}
    return dataclasses.replace(x, **changed) if changed else x


class Family(Generic[Problem, Machine, Plan]):
    """The solvers for problems of one kind on one kind of machine.

    Args:
      name: of the kind of problems, and of machines.
      solvers: in the order in which the first of equals is taken.
      alike: of a problem, what is equal of those with the same plans but for their variables, and
        these in order; None of one that is like no other.
    """

    def __init__(
        self, name: str, *solvers: Solver[Problem, Machine, Any],
        alike: Callable[[Problem], tuple[Hashable, Sequence[Var]] | None] = lambda problem: None,
    ) -> None:  # fmt: skip
        self.name, self.alike = name, alike
        self.solvers: list[Solver[Problem, Machine, Any]] = sorted(
            solvers, key=lambda solver: solver.tier
        )
        FAMILIES[name] = self

    def find(self, problem: Problem, machine: Machine) -> Plan | None:
        """The plan that is decided, or estimated to be fastest; None if there is none."""
        decisions = _current()
        if decisions is not None:
            return decisions.take(self, problem, machine)
        return self.usual(problem, machine)[1]

    def best(self, problem: Problem, machine: Machine) -> Plan:
        """What `find` finds, of a kind that always has plans."""
        plan = self.find(problem, machine)
        assert plan is not None
        return plan

    def usual(
        self, problem: Problem, machine: Machine
    ) -> tuple[Solver[Problem, Machine, Any] | None, Plan | None]:
        """The solver and the plan that are taken unless decided otherwise."""
        known: dict[Any, Any] | None = getattr(_state, "known", None)
        told = None if known is None or _current() is not None else self.alike(problem)
        if known is None or told is None:
            return self._searched(problem, machine)
        key, owners = (self.name, machine, told[0]), told[1]
        if key not in known:
            with _adding_up() as cost:
                known[key] = *self._searched(problem, machine), cost, owners
        solver, plan, cost, before = known[key]
        if (noted := getattr(_state, "estimates", None)) is not None:
            noted += cost
        same = before is owners
        return solver, plan if same else renamed(plan, dict(zip(before, owners, strict=True)))

    def _searched(
        self, problem: Problem, machine: Machine
    ) -> tuple[Solver[Problem, Machine, Any] | None, Plan | None]:
        decisions, tier = _current(), None
        noted: list[float] | None = getattr(_state, "estimates", None)
        chosen: list[tuple[Solver[Problem, Machine, Any], Any, float]] = []
        costs: list[float] = []

        def known() -> list[float]:
            for s, p, others in chosen[len(costs) :]:
                costs.append(s.estimate(problem, p, machine) + others)
            return costs

        for solver in self.solvers:
            if chosen and solver.tier != tier:
                break
            tier = solver.tier
            least = solver.least(problem, machine) if chosen and solver.least else 0.0
            if least and least * ROUNDING >= min(known()):
                continue
            with _using(None), _adding_up() as others:
                plan = solver.best(problem, machine)
            if plan is not None:
                chosen.append((solver, plan, sum(others)))
        if not chosen:
            return None, None
        solver, plan, _ = chosen[0]
        if len(chosen) > 1 or noted is not None:
            with choosing():
                place = cheapest(known())
            solver, plan, _ = chosen[place]
            if noted is not None:
                noted.append(costs[place])
        if decisions is not None and solver.composite:
            plan = solver.best(problem, machine)  # once more, noting what it is made by
        return solver, plan

    def decided(
        self, wanted: Decision, problem: Problem, machine: Machine
    ) -> tuple[Solver[Problem, Machine, Any], Plan]:
        """The solver and the plan that a decision names."""
        for solver in self.solvers:
            if wanted[:2] != (self.name, solver.name):
                continue
            for plan in solver.every(problem, machine) if not solver.composite else ():
                if text_at_hand(plan) == wanted.plan:
                    return solver, plan
            if solver.composite and (plans := solver.plans(problem, machine)):
                return solver, plans[0]
        raise UnknownDecision(f"{self.name}: {wanted.solver} has no plan {wanted.plan!r} here")

    def decision(self, solver: Solver[Problem, Machine, Plan], plan: Any) -> Decision:
        return Decision(self.name, solver.name, "" if solver.composite else text_at_hand(plan))

    def options(self, problem: Problem, machine: Machine) -> list[Decision]:
        """All that could be decided, solver by solver, plans by their estimates."""
        found: dict[Decision, None] = {}
        for solver in self.solvers:
            if solver.composite:
                plans = list(solver.plans(problem, machine))
            else:
                plans = solver.every(problem, machine)
            found.update((self.decision(solver, plan), None) for plan in plans)
        return list(found)


def shares(most: int) -> list[int]:
    """In how many parts work may be cut: one, powers of two, and the most."""
    return [1 << i for i in range((most - 1).bit_length())] + [most] if most > 1 else [1]


def busy_time(work: float, programs: int, busy: int) -> float:
    """How long `work` takes programs of which `busy` keep a machine busy."""
    return work / max(min(programs, busy), 1)
