"""Solutions of a problem: found by measuring, saved, loaded and run."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from amdjax.core.array import Array, asarray_concrete
from amdjax.find.database import Database, Result
from amdjax.find.known import set_search, user_database
from amdjax.find.machines import machine_key, machine_named, version
from amdjax.find.model import is_here
from amdjax.find.problem import Problem
from amdjax.find.program import Program
from amdjax.find.session import Session
from amdjax.schedule.search import Decision, UnknownDecision
from amdjax.schedule.writer import Machine
from amdjax.targets import GpuTarget

FORMAT = 2  # of saved solutions
EACH = 4  # plans of a solver that are tried unless the search is exhaustive
FINALISTS = 3  # that are measured once more
FINAL_ROUNDS = 15
GAIN = 0.98  # of the time so far that makes another round of a search worth it
ROUNDS = 4


@dataclass(frozen=True)
class Solution:
    """A way to solve a problem: algorithms and their plans, and how long it takes.

    Args:
      problem: what is computed.
      decisions: what was chosen for it: families, solvers, plans.
      time: of a run that nothing disturbs, in seconds.
      spread: how much longer the median of runs took, in seconds.
      workspace_bytes: memory that it needs besides arguments and results.
      target: what it is for: `cpu`, or a GPU as in `gfx942`.
      estimated: whether `time` comes from a model, not from a clock.

        >>> from amdjax import find
        >>> x = jnp.ones((30, 40))
        >>> problem, = find.problems(lambda x, y: x @ y, x, x.T)
        >>> best = find.find_solutions(problem)[0]
        >>> best.run(x, x.T)[0].shape
        (30, 30)
    """

    problem: Problem
    decisions: tuple[Decision, ...]
    time: float
    spread: float
    workspace_bytes: int
    target: str
    estimated: bool = False

    @staticmethod
    def of(problem: Problem, result: Result, machine: Machine) -> Solution:
        """The solution that a result is."""
        name = machine.name if isinstance(machine, GpuTarget) else "cpu"
        return Solution(
            problem, result.decisions, result.seconds or 0.0, result.spread, result.workspace,
            name, result.estimated,
        )  # fmt: skip

    @property
    def solver(self) -> str:
        """Names of the algorithms."""
        return " + ".join(dict.fromkeys(d.solver for d in self.decisions))

    @property
    def plan(self) -> str:
        """How they compute it, as text."""
        return "; ".join(d.plan for d in self.decisions if d.plan)

    def __str__(self) -> str:
        kind = "estimated " if self.estimated else ""
        time = f"{kind}{self.time * 1e6:.1f} µs + {self.spread * 1e6:.1f}"
        return f"{time}, {self.workspace_bytes} bytes of workspace: {self.solver}: {self.plan}"

    @cached_property
    def _program(self) -> Program:
        machine = machine_named(self.target)
        emulated = isinstance(machine, GpuTarget) and self.estimated and not is_here(machine)
        session = Session(self.problem, machine, emulated)
        session.plan(self.decisions)  # raises if a plan is none any more
        return session.compile(self.decisions)

    def compile(self) -> Callable[..., list[Array]]:
        """Compile the solution.

        Returns:
          A function of the problem's arguments, arrays, that returns its results in a list.

        Raises:
          UnknownDecision: this version of the compiler, or this machine, has no such plan.
          ValueError: the solution was measured on a GPU that is not here.
        """
        program, avals = self._program, self.problem.closed.in_avals

        def run(*arrays: Any) -> list[Array]:
            found = [asarray_concrete(x) for x in arrays]
            if len(found) != len(avals):
                raise TypeError(f"Solution.run takes {len(avals)} arrays, got {len(found)}")
            for i, (x, aval) in enumerate(zip(found, avals, strict=True)):
                if x.shape != aval.shape or x.dtype != aval.dtype:
                    raise TypeError(
                        f"Solution.run: array {i} must be {aval.str_short()}, "
                        f"got {x.aval.str_short()}"
                    )
            return program.run(found)

        return run

    def run(self, *arrays: Any) -> list[Array]:
        """Compute the problem in this way.

        Args:
          arrays: the problem's arguments.

        Returns:
          Its results.

        Raises:
          TypeError: the arrays have other shapes or dtypes than the problem's arguments.
          UnknownDecision: this version of the compiler, or this machine, has no such plan.
        """
        return self.compile()(*arrays)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the solution to a file, as JSON.

        Args:
          path: of the file, which `load_solution` reads where the compiler's version and the
            machine are the same.
        """
        data = {
            "amdjax_solution": FORMAT, "version": version(), "machine": _machine_name(self.target),
            "problem": self.problem.to_json(), "target": self.target,
            "decisions": [list(d) for d in self.decisions], "time": self.time,
            "spread": self.spread, "workspace_bytes": self.workspace_bytes,
            "estimated": self.estimated,
        }  # fmt: skip
        Path(path).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")


def load_solution(path: str | os.PathLike[str]) -> Solution:
    """Read a solution that `Solution.save` wrote.

    Args:
      path: of the file.

    Returns:
      The solution.

    Raises:
      ValueError: the file holds no solution, or one of another version of amdjax's compiler, for
        another CPU, or for a GPU target that is unknown.
    """
    try:
        data = json.loads(Path(path).read_text("utf-8"))
        if data["amdjax_solution"] != FORMAT:
            raise ValueError(f"format {data['amdjax_solution']}, of which this knows {FORMAT}")
        _require_same("made by the compiler's version", str(data["version"]), version())
        _require_same("for", str(data["machine"]), _machine_name(str(data["target"])))
        problem = Problem(*(str(data["problem"][key]) for key in ("kind", "program")))
        decisions = tuple(Decision(*map(str, d)) for d in data["decisions"])
        problem.closed  # noqa: B018  (raises if it is no program)
        return Solution(
            problem, decisions, float(data["time"]), float(data["spread"]),
            int(data["workspace_bytes"]), str(data["target"]), bool(data["estimated"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise ValueError(
            f"load_solution: {os.fspath(path)} holds no solution that can be used here: {e}"
        ) from None


def _machine_name(target: str) -> str:
    """What a solution is for: a GPU target, or this CPU."""
    return machine_key(machine_named(target)).name


def _require_same(what: str, found: str, here: str) -> None:
    if found != here:
        raise ValueError(
            f"it is {what} {found!r}, and this is {here!r}; find_solutions searches anew"
        )


def find_solutions(
    problem: Problem, *, sort: Literal["time", "workspace"] = "time", exhaustive: bool = False,
    workspace_limit: int | None = None, limit: int | None = None,
    target: str | Machine | None = None, refresh: bool = False, model: bool = False,
) -> list[Solution]:  # fmt: skip
    """Measure the ways to solve a problem.

    Each is compared with results in float64 before it counts. Results are recorded in the user's
    database as they come, and are not measured again; programs that are compiled from then on use
    the fastest.

    Args:
      problem: one of `problems(f, ...)`.
      sort: what the solutions are ordered by.
      exhaustive: whether to try all plans of all algorithms, not only the most promising ones.
      workspace_limit: bytes of workspace that solutions may need.
      limit: the most solutions to return.
      target: `cpu`, or a GPU as in `gfx942`; the default device if None.
      refresh: whether to measure again what is known.
      model: whether to rank plans of an AMD GPU that is not here, from what its emulator counts.

    Returns:
      The solutions whose results are right, the best first.

    Raises:
      TypeError: `problem` is none.
      ValueError: the problem is no step of a program for the target, the target is not here and
        `model` is False, `sort` is unknown or `limit` not positive.

    Warns:
      UserWarning: some plan's results are wrong.

        >>> from amdjax import find
        >>> x = jnp.ones((64, 3))
        >>> problem, = find.problems(lambda x: jnp.sort(x, axis=0), x)
        >>> sorted({s.solver for s in find.find_solutions(problem)})
        ['digits', 'network']
    """
    if sort not in ("time", "workspace"):
        raise ValueError(f"find_solutions: sort must be 'time' or 'workspace', got {sort!r}")
    if not isinstance(problem, Problem):
        raise TypeError(
            f"find_solutions: problem must be one of find.problems(f, ...), got {problem!r}"
        )
    if limit is not None and limit < 1:
        raise ValueError(f"find_solutions: limit must be positive, got {limit}")
    machine = machine_named(target)
    found = search(problem, machine, exhaustive=exhaustive, refresh=refresh, model=model)
    solutions = [
        Solution.of(problem, r, machine)
        for r in found
        if r.seconds is not None and r.status == "right"
        if workspace_limit is None or r.workspace <= workspace_limit
    ]
    by_time = lambda s: (s.time, s.decisions)  # in one order also where times are equal
    by_workspace = lambda s: (s.workspace_bytes, *by_time(s))
    return sorted(solutions, key=by_time if sort == "time" else by_workspace)[:limit]


def search(
    problem: Problem, machine: Machine, *, exhaustive: bool = False, algorithms_only: bool = False,
    refresh: bool = False, deadline: float = float("inf"), model: bool = False,
) -> list[Result]:  # fmt: skip
    """Measure ways to solve a problem, and record them.

    Args:
      problem: what is to be computed.
      machine: what computes it.
      exhaustive: whether to try all plans.
      algorithms_only: whether one plan of each algorithm suffices.
      refresh: whether to measure again what is known.
      deadline: when to stop, as `time.monotonic` has it.
      model: whether times are a model's.

    Returns:
      All that is known, what is decided without measuring first.
    """
    run = Search(problem, machine, refresh=refresh, model=model)
    run.run(None if exhaustive else 1 if algorithms_only else EACH, deadline)
    return sorted(run.results.values(), key=lambda r: r.decisions != run.session.usual)


class Search:
    """The ways of one problem that were tried.

    Args:
      problem: what is to be computed.
      machine: what computes it.
      refresh: whether to measure again what is known.
      model: whether times are a model's.
    """

    def __init__(
        self, problem: Problem, machine: Machine, *, refresh: bool = False, model: bool = False
    ):
        self.session = Session(problem, machine, model)
        self.problem, self.key = problem, machine_key(machine)
        self.database = database = user_database()
        self.measured = False
        self.results: dict[tuple[Decision, ...], Result] = {}
        if database is not None and not refresh:
            self.results = self._known(database, model)

    def _known(self, database: Database, model: bool) -> dict[tuple[Decision, ...], Result]:
        try:
            known = database.results(self.problem, self.key, version())
        except sqlite3.Error as e:
            warnings.warn(f"{database.path} cannot be read: {e}", stacklevel=5)
            return {}
        known = [r for r in known if model or not r.estimated]
        return {r.decisions: r for r in known if self.session.has(r.decisions)}

    def run(
        self, each: int | None, deadline: float, report: Callable[[], None] = lambda: None
    ) -> None:
        """Try ways until a deadline, or until no time that is known makes another one worth it.

        Args:
          each: plans of a solver that are tried; None for all.
          deadline: when no further one is begun, as `time.monotonic` has it.
          report: called after each.
        """
        while True:
            for decisions in self.candidates(each):
                self.result(decisions)
                report()
                if time.monotonic() > deadline:
                    break
            if not self.measured:
                return
            # Measured longer, others may be the fastest: what is next to those may be new.
            self.finish(deadline)
            self.measured = False
            if time.monotonic() > deadline:
                return

    def result(self, decisions: tuple[Decision, ...]) -> Result:
        """What is known of a way, measured now if need be."""
        found = self.results.get(decisions)
        if found is None:
            found = self._measured(decisions)
            if found.status == "wrong":
                warnings.warn(
                    f"a plan computes wrong results and is not used: {found.note}: "
                    f"{decisions} for {self.problem}",
                    stacklevel=4,
                )
        return found

    def _measured(self, decisions: tuple[Decision, ...], rounds: int = 5) -> Result:
        self.measured = True
        found = self.results[decisions] = self.session.measure(decisions, rounds)
        if self.database is not None:
            try:
                self.database.record(self.problem, self.key, version(), found)
            except (OSError, sqlite3.Error) as e:  # as of a full disk: the search is worth going on
                path, self.database = self.database.path, None
                warnings.warn(f"{path} does not record results: {e}", stacklevel=4)
        return found

    @property
    def usual_seconds(self) -> float:
        """Of what is decided without measuring, once it was tried; 0 if that failed."""
        found = self.results.get(self.session.usual)
        return (found.seconds if found is not None else None) or 0.0

    def first_look(self) -> float:
        """Seconds of what is decided without measuring; 0 if that fails.

        It is not compared with a reference: this only tells which problems are worth a search.
        """
        try:
            return self.usual_seconds or self.session.usual_seconds
        except Exception:  # whatever goes wrong: a search records it
            return 0.0

    def best(self) -> Result | None:
        """The fastest way so far."""
        right = [r for r in self.results.values() if r.status == "right"]
        return min(right, key=lambda r: (r.seconds or 0.0, r.decisions), default=None)

    def candidates(self, each: int | None) -> Iterator[tuple[Decision, ...]]:
        """Ways to try: the usual one, then what differs from the best so far, while that helps."""
        yield self.session.usual
        seen = {self.session.usual}
        start = self.session.usual
        for _ in range(ROUNDS):
            for decisions in self._neighbors(start, each):
                if decisions not in seen:
                    seen.add(decisions)
                    yield decisions
            best, first = self.best(), self.results.get(start)
            if best is None or best.decisions == start:
                return
            if first and first.seconds and (best.seconds or 0.0) > GAIN * first.seconds:
                return
            start = best.decisions

    def _neighbors(
        self, start: tuple[Decision, ...], each: int | None
    ) -> Iterator[tuple[Decision, ...]]:
        """Ways that differ in one choice, or in all choices of a family alike."""
        planned = self.session.plan(start, listing=True)
        # Of several choices each has its best plans tried, and all are made alike.
        most = min(each or EACH, 2) if len(planned.options) > 2 else each or EACH
        for at, options in enumerate(planned.options):
            first: dict[str, int] = {}
            for option in options:
                first[option.solver] = first.get(option.solver, 0) + 1
                if each is not None and first[option.solver] > most:
                    continue
                yield from self._with(start[:at], option)
        families = [d.family for d in planned.taken]
        for family in dict.fromkeys(f for f in families if families.count(f) > 1):
            at = families.index(family)
            for solver in dict.fromkeys(d.solver for d in planned.options[at]):
                yield from self._alike(start, family, solver)

    def _with(
        self, before: tuple[Decision, ...], option: Decision
    ) -> Iterator[tuple[Decision, ...]]:
        """The way that takes an option, and what is usual behind it."""
        try:
            yield tuple(self.session.plan((*before, option)).taken)
        except UnknownDecision:
            return

    def _alike(
        self, start: tuple[Decision, ...], family: str, solver: str
    ) -> Iterator[tuple[Decision, ...]]:
        """The way in which one solver computes all that it can of a family's problems."""
        wanted: list[Decision | None] = []
        planned = self.session.plan(start, listing=True)
        for decision, options in zip(planned.taken, planned.options, strict=True):
            of_solver = (o for o in options if decision.family == family and o.solver == solver)
            wanted.append(next(of_solver, decision))
        try:
            yield tuple(self.session.plan(wanted).taken)
        except UnknownDecision:
            return

    def finish(self, deadline: float) -> None:
        """Measure the fastest once more, longer, until the fastest is one of those."""
        again: set[tuple[Decision, ...]] = set()
        if not self.measured or self.session.model:
            return
        while len(again) < FINALISTS and time.monotonic() < deadline:
            best = self.best()
            if best is None or best.decisions in again or len(self.results) < 2:
                return
            again.add(best.decisions)
            self._measured(best.decisions, FINAL_ROUNDS)


def _search_for_jit(problem: Problem, machine: Machine, algorithms_only: bool) -> None:
    """A search while a program is compiled; what cannot be searched is left as it is."""
    model = isinstance(machine, GpuTarget) and not is_here(machine)
    try:
        search(problem, machine, algorithms_only=algorithms_only, refresh=True, model=model)
    except ValueError:
        return
    except (OSError, sqlite3.Error) as e:  # the program is compiled all the same
        warnings.warn(f"a search was given up: {e}", stacklevel=2)


set_search(_search_for_jit)
