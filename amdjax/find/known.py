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
from pathlib import Path

from amdjax.core.config import config
from amdjax.find.database import Database
from amdjax.find.machines import machine_key, version
from amdjax.find.problem import Problem, Step, is_independent, problem_of
from amdjax.jit.finding import SYSTEM, database_path
from amdjax.schedule.search import Decision, set_finder
from amdjax.schedule.writer import Machine

__all__ = ["applying", "known_decisions", "set_search", "user_database"]

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
    """The database to which results go; None if there is none, or it cannot be used."""
    path = database_path()
    return None if path is None else _database(path, writable=True)


def _database(path: Path, writable: bool) -> Database | None:
    with _lock:
        found = _open.get(path)
        if path not in _open or (found is not None and writable and not path.exists()):
            try:
                found = Database(path, writable=writable)
            except (sqlite3.Error, OSError) as e:
                warnings.warn(f"{path} is not used as a database of find: {e}", stacklevel=3)
                found = None
            _open[path] = found
        return found


@contextlib.contextmanager
def applying(decisions: Mapping[Problem, Sequence[Decision]]) -> Iterator[None]:
    """In this thread, compile these problems by decisions, and all others by their estimates."""
    before = getattr(_applied, "decisions", None)
    _applied.decisions = decisions
    try:
        yield
    finally:
        _applied.decisions = before


def known_decisions(step: Step, machine: Machine) -> Sequence[Decision]:
    """What the planner follows for a step; empty where it is to decide by itself."""
    applied = getattr(_applied, "decisions", None)
    if applied is not None:
        return applied.get(problem_of(step), ()) if applied else ()
    if config.find_mode == "off" or not is_independent(step):
        return ()
    problem = problem_of(step)
    if config.find_enforce == "db_clean":
        return _forgotten(problem)
    if _wants_search(problem, machine):
        assert _search is not None
        _searched.add(_search_key(problem, machine))
        _search(problem, machine, config.find_mode == "dynamic_hybrid")
    return _looked_up(problem, machine) or ()


def _forgotten(problem: Problem) -> Sequence[Decision]:
    database = user_database()
    if database is not None:
        database.forget(problem)
    return ()


def _wants_search(problem: Problem, machine: Machine) -> bool:
    """Whether settings ask for a search now; each problem is searched once in a process."""
    mode, enforce = config.find_mode, config.find_enforce
    if _search is None or _search_key(problem, machine) in _searched:
        return False
    searches = mode != "fast"
    if enforce == "search_db_update" or (enforce == "db_update" and searches):
        return True
    if not searches and enforce != "search":
        return False
    return mode == "normal" or _looked_up(problem, machine) is None


def _search_key(problem: Problem, machine: Machine) -> tuple[Problem, str, Path | None]:
    return problem, str(machine_key(machine)), database_path()


def _looked_up(problem: Problem, machine: Machine) -> Sequence[Decision] | None:
    """The user's results first, then those that come with the package."""
    for path in (database_path(), SYSTEM):
        if path is None or not os.path.exists(path):
            continue
        places = path, path.parent  # WAL mode makes files beside it
        database = _database(path, path != SYSTEM and all(os.access(p, os.W_OK) for p in places))
        if database is None:
            continue
        try:
            found = database.choice(problem, machine_key(machine), version())
        except sqlite3.Error as e:
            warnings.warn(f"{path} cannot be read: {e}", stacklevel=2)
            continue
        if found is not None:
            return found
    return None


set_finder(known_decisions)
