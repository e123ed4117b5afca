"""The problems of a whole function: listed, and solved as well as the time allows."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.api import block_until_ready
from amdjax.core.pytree import tree_map
from amdjax.find.known import applying, user_database
from amdjax.find.machines import machine_named
from amdjax.find.problem import Problem, is_independent, problem_of, steps
from amdjax.find.session import Session
from amdjax.find.solutions import Solution, search
from amdjax.jit.api import clear_caches, jit
from amdjax.jit.refs import without_refs
from amdjax.schedule.search import Decision
from amdjax.schedule.writer import Machine
from amdjax.targets import GpuTarget

__all__ = ["Tuning", "problems", "tune"]

ROUNDS = 15  # in which the function is timed before and after, in turn


def problems(
    f: Callable[..., Any], *args: Any, target: str | Machine | None = None
) -> list[Problem]:
    """The problems that a function of arrays consists of; nothing is compiled.

    Args:
      f: a function of pytrees of arrays; jitted ones too.
      args: its arguments; `ShapeDtypeStruct`s will do.
      target: `cpu`, or a GPU as in `gfx942`; the default device if None.

    Returns:
      Its steps as problems, each once, in the order in which they are met. Those of loop bodies
      are among them, but for products of what a loop does not change, which is packed before it.

        >>> from amdjax import find
        >>> x = jnp.ones((8, 100))
        >>> [p.kind for p in find.problems(lambda x: jnp.sort(x @ x.T).sum(), x)]
        ['product', 'sort', 'rows']
    """
    return list(_counted(f, args, machine_named(target)))


def _counted(f: Callable[..., Any], args: Sequence[Any], machine: Machine) -> Counter[Problem]:
    """The problems of a function, and how many steps of it each is."""
    traced = _jitted(f).trace(*args)
    closed, _, _ = without_refs(traced.jaxpr, traced.donated)
    return Counter(problem_of(step) for step in steps(closed, machine) if is_independent(step))


def _jitted(f: Callable[..., Any]) -> Any:
    return f if hasattr(f, "trace") and hasattr(f, "lower") else jit(f)


@dataclass(frozen=True)
class Tuning:
    """What `tune` found.

    Args:
      before: seconds of a call of the function by estimates; of a model, those of its problems.
      after: the same by what was found.
      solutions: for each problem the fastest way that is known.
      unsolved: problems that were not tried, and why.
    """

    before: float
    after: float
    solutions: tuple[Solution, ...]
    unsolved: tuple[tuple[Problem, str], ...] = ()

    @property
    def speedup(self) -> float:
        """How many times as fast the function is."""
        return self.before / self.after

    def __str__(self) -> str:
        saved = (self.before - self.after) * 1e3
        return (
            f"{self.before * 1e3:.3f} ms before, {self.after * 1e3:.3f} ms after: "
            f"{self.speedup:.2f} times as fast, {saved:.3f} ms saved a call; "
            f"{len(self.solutions)} problems measured, {len(self.unsolved)} not"
        )


def tune(
    f: Callable[..., Any], *args: Any, budget: float = 60.0, exhaustive: bool = False,
    quiet: bool = False, target: str | Machine | None = None, model: bool = False,
) -> Tuning:  # fmt: skip
    """Search the fastest solutions of all problems of a function, the most expensive first.

    Results go to the user's database; programs are compiled by them from now on, in this process
    and in others.

    Args:
      f: a function of pytrees of arrays; jitted ones too.
      args: its arguments, arrays.
      budget: seconds after which no further search is begun.
      exhaustive: whether to try all plans of all algorithms.
      quiet: whether to show no progress and print no summary.
      target: `cpu`, or a GPU as in `gfx942`; the default device if None.
      model: whether to rank plans of an AMD GPU that is not here, from what its emulator counts.

    Returns:
      Times before and after, and the solutions.

    Raises:
      TypeError: `f` is no function.
      ValueError: `budget` is negative, or the target is not here and `model` is False.

        >>> from amdjax import find
        >>> x = jnp.ones((200, 200))
        >>> tuning = find.tune(lambda x: jnp.tanh(x @ x), x, budget=1, quiet=True)
        >>> tuning.before > 0 and tuning.after > 0
        True
    """
    if not callable(f):
        raise TypeError(f"tune: f must be a function of arrays, got {f!r}")
    if not budget >= 0:
        raise ValueError(f"tune: budget must be a number of seconds, got {budget}")
    machine, deadline = machine_named(target), time.monotonic() + budget
    counts = _counted(f, args, machine)
    best: dict[Problem, Solution] = {}
    unsolved: dict[Problem, str] = {}
    weights = _most_expensive_first(counts, machine, unsolved, model)
    left = sum(weights.values())
    with _progress(len(weights), quiet) as show:
        for problem in weights:
            if time.monotonic() > deadline:
                unsolved[problem] = "no time was left"
                continue
            now, cost = time.monotonic(), weights[problem]
            share = now + (deadline - now) * cost / left
            left -= cost
            found = _solved(problem, machine, exhaustive, share, model)
            if found is None:
                unsolved[problem] = "no plan gave right results"
                continue
            best[problem], gain = found
            show(f"{problem.kind}: {gain:.2f} times as fast by {best[problem].solver}")
    if model:
        after = sum(counts[problem] * solution.time for problem, solution in best.items())
        before = sum(weights[problem] for problem in best)
    else:
        decided = {problem: solution.decisions for problem, solution in best.items()}
        before, after = _timed(f, args, decided, machine)
    if user_database() is not None:
        clear_caches()  # programs that were compiled by estimates
    tuning = Tuning(before, after, tuple(best.values()), tuple(unsolved.items()))
    if not quiet:
        print(tuning)
    return tuning


def _solved(
    problem: Problem, machine: Machine, exhaustive: bool, deadline: float, model: bool
) -> tuple[Solution, float] | None:
    """The fastest way, and how many times as fast as the usual one."""
    found = search(problem, machine, exhaustive=exhaustive, deadline=deadline, model=model)
    right = [r for r in found if r.status == "right" and r.seconds is not None]
    if not right:
        return None
    r = min(right, key=lambda r: r.seconds or 0.0)
    best = Solution.of(problem, r, machine)
    usual = found[0].seconds  # the first that is tried
    return best, (usual or best.time) / best.time


def _most_expensive_first(
    counts: Counter[Problem], machine: Machine, unsolved: dict[Problem, str], model: bool
) -> dict[Problem, float]:
    """Problems with several solutions, and what all steps of each take by estimates."""
    found: dict[Problem, float] = {}
    for problem, count in counts.items():
        try:
            session = Session(problem, machine, model)
            options = session.plan(listing=True).options
            if any(len(o) > 1 for o in options):
                found[problem] = count * session.usual_seconds
        except ValueError as e:
            unsolved[problem] = str(e)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _timed(
    f: Callable[..., Any],
    args: Sequence[Any],
    decided: dict[Problem, tuple[Decision, ...]],
    machine: Machine,
) -> tuple[float, float]:
    """Seconds of a call by estimates and by decisions, in turn."""
    lowered = _jitted(f).lower(*args)
    donates = any(lowered.traced.donated)
    programs = []
    for decisions in ({}, decided):
        with applying(decisions):
            programs.append(lowered.compile(machine if isinstance(machine, GpuTarget) else None))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for program, found in zip(programs, times, strict=True):
            given = tree_map(_copied, args) if donates else args
            start = time.perf_counter()
            block_until_ready(program(*given))
            found.append(time.perf_counter() - start)
    before, after = map(min, times)
    return before, after


def _copied(x: Any) -> Any:
    return x.copy() if hasattr(x, "copy") else x


@contextlib.contextmanager
def _progress(total: int, quiet: bool) -> Any:
    """Shows how many problems are done, and the last gain; a bar where there is tqdm."""
    if quiet:
        yield lambda text: None
        return
    try:
        # late: only people who look on need it
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError:
        yield print
        return
    with tqdm(total=total, desc="find", unit="problem") as bar:

        def show(text: str) -> None:
            bar.set_postfix_str(text)
            bar.update()

        yield show
