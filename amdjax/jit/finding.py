"""Whether measured choices have a say in what is compiled, and where they are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from amdjax.core.backend import load_finder
from amdjax.core.config import config
from amdjax.core.context import entered
from amdjax.runtime.cache import default_directory
from amdjax.schedule.search import is_deciding
from amdjax.targets import GpuTarget

if TYPE_CHECKING:
    from amdjax.schedule.writer import Machine

#: The folder of estimates that come with the package.
ESTIMATES = Path(__file__).parents[1] / "find" / "estimates"

#: Measured choices that go with a program: decisions, each of a family's name, a solver and a plan,
#: by the machine's name and units, and the kind and the text of the problem.
Choices = Mapping[tuple[str, int, str, str], Sequence[Sequence[str]]]


class Carried(NamedTuple):
    """Choices, and what equals that of equal ones alone."""

    choices: Choices
    digest: str


_carried: ContextVar[Carried | None] = ContextVar("carried choices", default=None)
_noted: ContextVar[dict[tuple[str, int, str, str], Sequence[Sequence[str]]] | None] = ContextVar(
    "noted choices", default=None
)


def choices_from(carried: Carried) -> AbstractContextManager[object]:
    """In here programs are planned by choices where the user's database has none."""
    return entered(_carried, carried)


def choices_noted() -> AbstractContextManager[Choices]:
    """What gets the measured choices that programs follow in here."""
    return entered(_noted, {})


def carried_choices() -> Choices:
    """Those that `choices_from` brought."""
    found = _carried.get()
    return {} if found is None else found.choices


def note_choice(key: tuple[str, int, str, str], decisions: Sequence[Sequence[str]]) -> None:
    """Tell `choices_noted` of a choice that is followed."""
    noted = _noted.get()
    if noted is not None:
        noted[key] = decisions


_loaded = 0  # 1 is what knows, 2 what measures too
_trying: ContextVar[bool] = ContextVar("trying choices", default=False)


def trying_choices() -> AbstractContextManager[object]:
    """In here programs are planned by choices that are tried out."""
    return entered(_trying, True)


def choices_known(machine: Machine) -> str | None:
    """What differs where measured choices that are followed may; None where they are tried out."""
    if _trying.get() or is_deciding():
        return None
    if config.find_mode == "off":
        return "off"
    if config.find_mode != "fast" or config.find_enforce != "none":
        return None
    carried = _carried.get()
    told = [] if carried is None else [carried.digest]
    told += [_contents(estimates_of(machine.name))] if isinstance(machine, GpuTarget) else []
    if (path := database_path()) is not None:
        # What other processes write comes into the first file sooner or later.
        told += [_state(path), _state(path.with_name(path.name + "-wal"))]
    return " ".join(told)


@lru_cache
def _contents(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _state(path: Path) -> str:
    """What differs once a file was written."""
    try:
        s = path.stat()
    except OSError:
        return ""
    return f"{s.st_ino} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}" if s.st_size else ""


def database_path() -> Path | None:
    """Where the user's database is; None where there is to be none."""
    return _path(config.db_path, os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


@lru_cache(16)  # which each step asks for
def _path(text: str | None, *environment: str | None) -> Path | None:
    """Where a setting puts the database, in an environment that is part of the key."""
    if (text or "").strip().lower() in ("off", "0", "none"):
        return None
    return Path(text).expanduser() if text else default_directory() / "find.db"


def estimates_of(target: str) -> Path:
    """The file of estimates that comes with the package for a GPU target."""
    return ESTIMATES / f"{target}.jsonl"


def ask_finder(machine: Machine) -> None:
    """Load what knows decisions, where settings or a database give it something to say."""
    if config.find_mode == "off":
        return
    measures = config.find_mode != "fast" or config.find_enforce != "none"
    if _loaded < 1 + measures and (measures or _has_say(machine)):
        _load(measures)


def _load(measures: bool) -> None:
    global _loaded
    _loaded = 1 + measures
    load_finder(measures)


def _has_say(machine: Machine) -> bool:
    if isinstance(machine, GpuTarget) and estimates_of(machine.name).exists():
        return True
    if carried_choices():
        return True
    return (path := database_path()) is not None and path.exists()
