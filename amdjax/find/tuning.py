"""The problems of a whole function: listed, and solved as well as the time allows."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from amdjax.api import block_until_ready
from amdjax.core.pytree import tree_map
from amdjax.find.known import applying, user_database
from amdjax.find.machines import machine_named
from amdjax.find.problem import Problem, is_independent, problem_of, steps
from amdjax.find.session import require_machine
from amdjax.find.solutions import EACH, Search, Solution
from amdjax.jit.api import clear_caches, jit
from amdjax.jit.finding import database_path
from amdjax.jit.refs import without_refs
from amdjax.schedule.search import Decision
from amdjax.schedule.writer import Machine
from amdjax.targets import GpuTarget

ROUNDS = 15  # in which the function is timed before and after, in turn ...
LEAST_ROUNDS = 3  # ... or so many, and on for ...
TIMED_SHARE = 0.1  # ... of the budget besides


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
        return self.before / self.after if self.after else 1.0

    def __str__(self) -> str:
        saved = round((self.before - self.after) * 1e3, 3) + 0.0  # no -0.0
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
      budget: seconds after which no further plan is tried; one that is being tried is finished, and
        the function timed before and after, for a tenth of the budget if that is long.
      exhaustive: whether to try all plans of all algorithms.
      quiet: whether to show no progress and print no summary.
      target: `cpu`, or a GPU as in `gfx942`; the default device if None.
      model: whether to rank plans of an AMD GPU that is not here, from what its emulator counts.

    Returns:
      Times before and after, and the solutions.

    Raises:
      TypeError: `f` is no function.
      ValueError: `budget` is negative, or the target is not here and `model` is False.
      KeyboardInterrupt: the search was interrupted; what was measured is kept, and a later search
        goes on from there.

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
    require_machine(machine, model)
    counts = _counted(f, args, machine)
    unsolved: dict[Problem, str] = {}
    searches = _searches(counts, machine, model, unsolved)
    try:
        with _progress(len(searches), quiet) as progress:
            _search_all(searches, counts, None if exhaustive else EACH, deadline, progress)
    except KeyboardInterrupt:
        if not quiet and user_database() is not None:
            print(f"interrupted: what was measured stays in {database_path()}")
        raise
    finally:
        if user_database() is not None:
            clear_caches()  # programs that were compiled by estimates
    best: dict[Problem, Solution] = {}
    for problem, run in searches.items():
        found = run.best()
        if len(run.results) < 2:
            unsolved[problem] = "no time was left"
        elif found is None:
            unsolved[problem] = "no plan gave right results"
        else:
            best[problem] = Solution.of(problem, found, machine)
    if model:
        before = sum(counts[problem] * searches[problem].usual_seconds for problem in best)
        after = sum(counts[problem] * solution.time for problem, solution in best.items())
    else:
        decided = {
            problem: solution.decisions
            for problem, solution in best.items()
            if solution.decisions != searches[problem].session.usual
        }
        before, after = _timed(f, args, decided, machine, TIMED_SHARE * budget)
    tuning = Tuning(before, after, tuple(best.values()), tuple(unsolved.items()))
    if not quiet:
        print(tuning)
    return tuning


def _searches(
    counts: Counter[Problem], machine: Machine, model: bool, unsolved: dict[Problem, str]
) -> dict[Problem, Search]:
    """Of each problem with several solutions, what is known of them."""
    found: dict[Problem, Search] = {}
    for problem in counts:
        try:
            run = Search(problem, machine, model=model)
            if any(len(options) > 1 for options in run.session.plan(listing=True).options):
                found[problem] = run
        except ValueError as e:
            unsolved[problem] = str(e)
    return found


def _search_all(
    searches: dict[Problem, Search], counts: Counter[Problem], each: int | None, deadline: float,
    progress: _Progress,
) -> None:  # fmt: skip
    """Time problems as they are, then search the most expensive first, until a deadline.

    Half of the time at most is for looking at problems; those not looked at are not searched.
    """
    costs: dict[Problem, float] = {}
    looked = (time.monotonic() + deadline) / 2
    for problem, run in searches.items():
        if time.monotonic() > looked:
            break
        costs[problem] = counts[problem] * run.first_look()
    left = sum(costs.values())
    for problem in sorted(costs, key=lambda p: -costs[p]):
        now, run = time.monotonic(), searches[problem]
        if now > deadline:
            return
        share = now + (deadline - now) * costs[problem] / (left or 1.0)
        left -= costs[problem]
        run.run(each, share, lambda: progress.show(run, 0))
        progress.show(run, 1)


def _timed(
    f: Callable[..., Any],
    args: Sequence[Any],
    decided: dict[Problem, tuple[Decision, ...]],
    machine: Machine,
    budget: float,
) -> tuple[float, float]:
    """Seconds of a call by estimates and by decisions, in turn, for as long as a budget lasts.

    Without decisions the function is what it was.
    """
    lowered = _jitted(f).lower(*args)
    donates = any(lowered.traced.donated)
    programs = []
    for decisions in ({}, decided) if decided else ({},):
        with applying(decisions):
            programs.append(lowered.compile(machine if isinstance(machine, GpuTarget) else None))
    times: list[list[float]] = [[] for _ in programs]
    last = time.monotonic() + budget
    while len(times[0]) < LEAST_ROUNDS or (len(times[0]) < ROUNDS and time.monotonic() < last):
        for program, found in zip(programs, times, strict=True):
            given = tree_map(_copied, args) if donates else args
            start = time.perf_counter()
            block_until_ready(program(*given))
            found.append(time.perf_counter() - start)
    return min(times[0]), min(times[-1])


def _copied(x: Any) -> Any:
    return x.copy() if hasattr(x, "copy") else x


class _Progress:
    """Tells how many problems are done, and the best of the one at hand; a bar if there is tqdm.

    Args:
      bar: of tqdm; None to print lines.
      quiet: whether to tell nothing.
    """

    def __init__(self, bar: Any = None, quiet: bool = False):
        self._bar, self._quiet = bar, quiet

    def show(self, run: Search, done: int) -> None:
        """Tell of a search, after which so many more problems are done."""
        best = run.best()
        if self._quiet or best is None or (self._bar is None and not done):
            return
        gain = run.usual_seconds / (best.seconds or 1.0)
        solver = Solution.of(run.problem, best, run.session.machine).solver
        text = f"{run.problem.kind}, {len(run.results)} plans: {gain:.2f} times as fast by {solver}"
        if self._bar is None:
            print(text)
            return
        self._bar.set_postfix_str(text)
        self._bar.update(done)


@contextlib.contextmanager
def _progress(total: int, quiet: bool) -> Iterator[_Progress]:
    if quiet:
        yield _Progress(quiet=True)
        return
    try:
        # late: only people who look on need it
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError:
        yield _Progress()
        return
    with tqdm(total=total, desc="find", unit="problem") as bar:
        yield _Progress(bar)
