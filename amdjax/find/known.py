"""What programs are compiled by: decisions of the databases, and searches where modes ask for one.

Importing this module makes the planner ask it (`schedule.search.set_finder`). The compiler imports
it where settings or an existing database give it something to say.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from amdjax.core.config import config
from amdjax.core.dims import like_at_hand
from amdjax.find import shipped
from amdjax.find.choice import choice
from amdjax.find.database import Database, Known
from amdjax.find.machines import machine_key, version
from amdjax.find.problem import (
    Problem,
    Step,
    decided,
    equation_of,
    is_independent,
    problem_of,
    sizes_of,
)
from amdjax.jit.finding import carried_choices, database_path, note_choice, trying_choices
from amdjax.kernels.shaped import ShapedContext
from amdjax.schedule.search import Decision, set_finder
from amdjax.schedule.writer import Machine
from amdjax.targets import GpuTarget

Search = Callable[[Problem, Machine, bool], None]
_search: Search | None = None
_searched: set[tuple[Problem, str, Path | None]] = set()  # in this process
_applied = threading.local()
_lock = threading.Lock()
_open: dict[Path, Database | None] = {}


def set_search(search: Search) -> None:
    """Name the function that searches: of a problem, a machine, and whether algorithms suffice."""
    global _search
    _search = search


def user_database() -> Database | None:
    """The user's database, made if need be; None if there is to be none, or it cannot be used.

    One that cannot be written is still read.
    """
    path = database_path()
    if path is None:
        return None
    with _lock:
        found = _open.get(path)
        is_gone = found is not None and found.writable and not path.exists()
        if path not in _open or is_gone:
            found = _open[path] = _opened(path)
        return found


def _opened(path: Path) -> Database | None:
    there = path.exists()
    error: Exception | None = None
    # WAL mode makes files beside it.
    if not there or all(os.access(p, os.W_OK) for p in (path, path.parent)):
        try:
            return Database(path)
        except (sqlite3.Error, OSError) as e:
            error = e
    if there:
        try:
            return Database(path, writable=False)
        except (sqlite3.Error, OSError) as e:
            error = error or e
    warnings.warn(f"{path} is not used as a database of find: {error}", stacklevel=4)
    return None


def _existing_database() -> Database | None:
    """The user's database where there is one."""
    path = database_path()
    return None if path is None or not os.path.exists(path) else user_database()


@contextlib.contextmanager
def applying(decisions: Mapping[Problem, Sequence[Decision]]) -> Iterator[None]:
    """In this thread, compile these problems by decisions, and all others by their estimates."""
    before = getattr(_applied, "decisions", None)
    _applied.decisions = decisions
    try:
        with trying_choices():
            yield
    finally:
        _applied.decisions = before


def known_decisions(step: Step, machine: Machine) -> Sequence[Decision]:
    """What the planner follows for a step; empty where it is to decide by itself.

    Of symbolic sizes it is what is known of those at hand, and good for sizes about as large.
    """
    found = _known_decisions(step, machine)
    if found:
        for size in sizes_of(step):
            like_at_hand(size)
    return found


def _known_decisions(step: Step, machine: Machine) -> Sequence[Decision]:
    applied = getattr(_applied, "decisions", None)
    if applied is not None:
        return applied.get(problem_of(step), ()) if applied else ()
    if config.find_mode == "off" or not is_independent(step):
        return ()
    if config.find_mode == "fast" and config.find_enforce == "none":
        return _followed(step, machine)
    problem = problem_of(step)
    if config.find_enforce == "db_clean":
        return _forgotten(problem)
    if _wants_search(step, problem, machine):
        assert _search is not None
        _searched.add(_search_key(problem, machine))
        _search(problem, machine, config.find_mode == "dynamic_hybrid")
    return _followed(step, machine)


def _forgotten(problem: Problem) -> Sequence[Decision]:
    database = _existing_database()
    if database is not None and database.writable:
        database.forget(problem)
    return ()


def _wants_search(step: Step, problem: Problem, machine: Machine) -> bool:
    """Whether settings ask for a search now; each problem is searched once in a process."""
    mode, enforce = config.find_mode, config.find_enforce
    if _search is None or _search_key(problem, machine) in _searched:
        return False
    searches = mode != "fast"
    if enforce == "search_db_update" or (enforce == "db_update" and searches):
        return True
    if not searches and enforce != "search":
        return False
    return mode == "normal" or not (
        _by_the_user(step, [problem], machine) or _carried(problem, machine)
    )


def _search_key(problem: Problem, machine: Machine) -> tuple[Problem, str, Path | None]:
    return problem, str(machine_key(machine)), database_path()


def _followed(step: Step, machine: Machine) -> Sequence[Decision]:
    """The user's results first, those carried with a program, estimates that the package has."""
    estimates = None
    if isinstance(machine, GpuTarget) and isinstance(step, ShapedContext):  # they are of equations
        estimates = shipped.shipped(machine.name)
    if not estimates and _existing_database() is None and not carried_choices():
        return ()
    problem, equation = problem_of(step), equation_of(step)
    problems = [problem] if equation is None else [problem, equation]
    found = _by_the_user(step, problems, machine) or _carried(problem, machine)
    if found:
        note_choice((*astuple(machine_key(machine)), problem.kind, problem.program), found)
    elif estimates:
        known = [k for p in problems for k in estimates.of(p)]
        found = _choice(known, step, problem, machine, shipped.VERSION)
    return found or ()


def _by_the_user(
    step: Step, problems: Sequence[Problem], machine: Machine
) -> Sequence[Decision] | None:
    """What the user's database has for a step, which is the first of some problems."""
    database = _existing_database()
    if database is None:
        return None
    try:
        known = database.known(problems, machine_key(machine))
    except sqlite3.Error as e:
        warnings.warn(f"{database.path} cannot be read: {e}", stacklevel=2)
        return None
    return _choice(known, step, problems[0], machine, version())


def _carried(problem: Problem, machine: Machine) -> Sequence[Decision] | None:
    """What came with the program, of the machine of this name that has the nearest units."""
    choices = carried_choices()
    if not choices:
        return None
    key = machine_key(machine)
    near = (key.name, problem.kind, problem.program)
    found = [(abs(units - key.units), way) for (n, units, *p), way in choices.items()
             if (n, *p) == near]  # fmt: skip
    best = min(found, key=lambda pair: pair[0], default=None)
    return None if best is None else tuple(Decision(*x) for x in best[1])


def _choice(
    known: Sequence[Known], step: Step, problem: Problem, machine: Machine, made_by: str
) -> Sequence[Decision] | None:
    if not known:
        return None
    usual = lambda: tuple(decided(step, machine).taken)
    return choice(known, problem, machine_key(machine).units, made_by, usual)


set_finder(known_decisions)
