"""The command `python -m amdjax.find`: shows, fills and edits databases of measured choices."""

from __future__ import annotations

import argparse
import importlib
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amdjax.find.database import Database, Known, Result
from amdjax.find.known import user_database
from amdjax.find.lines import line_of, read_lines
from amdjax.find.machines import version
from amdjax.find.tuning import tune


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0 if all is well."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except KeyboardInterrupt:
        return 130
    except (OSError, ValueError, sqlite3.Error) as e:
        print(f"amdjax.find: {e}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    # Not abbreviated: `clean --all` removes everything.
    parser = argparse.ArgumentParser(
        "python -m amdjax.find", description=__doc__, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(run: Any, help: str, name: str = "") -> argparse.ArgumentParser:
        name = name or run.__name__
        added = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        added.set_defaults(run=run)
        return added

    shown = command(show, "Show what is known: of each problem the fastest way, or all of them.")
    shown.add_argument("--all", action="store_true", help="all ways, wrong and failed ones too")
    shown.add_argument("--kind", help="only these, such as product, convolution data")
    about = "Search the problems of a function of some arguments."
    tuned = command(tune_function, about, "tune")
    tuned.add_argument("function", metavar="MODULE:FUNCTION")
    tuned.add_argument("arguments", metavar="MODULE:ARGUMENTS", help="a function that returns them")
    tuned.add_argument("--budget", type=float, default=60.0, help="seconds (default: 60)")
    tuned.add_argument("--exhaustive", action="store_true", help="try all plans")
    tuned.add_argument("--target", help="cpu, or a GPU as in gfx942 (default: the default device)")
    tuned.add_argument("--model", action="store_true", help="rank plans of a GPU that is not here")
    exported = command(export, "Write the database as JSON, a line each result.")
    exported.add_argument("file", type=Path)
    merged = command(merge, "Add the results of other databases, or of what export wrote.")
    merged.add_argument("files", type=Path, nargs="+")
    cleaned = command(clean, "Remove results of other versions of the compiler, or all.")
    cleaned.add_argument("--all", action="store_true", help="all results")
    return parser


def _database(write: bool = False) -> Database:
    database = user_database()
    if database is None:
        raise ValueError("there is no database: AMDJAX_DB_PATH turns it off, or it cannot be used")
    if write and not database.writable:
        raise ValueError(f"{database.path} cannot be written")
    return database


def show(options: argparse.Namespace) -> None:
    """Print results, problem by problem."""
    database = _database()
    print(database.path)
    known = list(database.rows())
    kinds = sorted({k.problem.kind for k in known} | {k.problem.name for k in known})
    if options.kind and options.kind not in kinds:
        raise ValueError(
            f"no results of kind {options.kind!r}; there are {', '.join(kinds) or 'none'}"
        )
    seen = None
    for problem, machine, made_by, result in known:
        if options.kind and options.kind not in (problem.kind, problem.name):
            continue
        place = problem, machine, made_by
        if place != seen:
            print(f"\n{problem}\n  on {machine}, by {made_by}")
        elif not options.all:
            continue
        seen = place
        print(f"  {_text(result)}")


def _text(result: Result) -> str:
    way = "; ".join(f"{d.solver}: {d.plan}" if d.plan else d.solver for d in result.decisions)
    if result.seconds is None:
        return f"{result.status} ({result.note}): {way}"
    time = f"{result.seconds * 1e6:.1f} µs + {result.spread * 1e6:.1f}"
    return f"{'estimated ' if result.estimated else ''}{time}: {way}"


def tune_function(options: argparse.Namespace) -> None:
    """Tune a function of a module."""
    sys.path.insert(0, "")
    f, arguments = map(_named, (options.function, options.arguments))
    chosen = {name: getattr(options, name) for name in ("budget", "exhaustive", "target", "model")}
    given = arguments()
    if not isinstance(given, (tuple, list)):
        raise ValueError(f"{options.arguments} must return a tuple of arguments, got {given!r}")
    tune(f, *given, **chosen)


def _named(text: str) -> Any:
    module, separator, name = text.partition(":")
    if not separator:
        raise ValueError(f"{text!r} is not MODULE:NAME")
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as e:
        if e.name is None or not f"{module}.".startswith(f"{e.name}."):
            raise  # of what the module imports
        raise ValueError(f"{text}: there is no module {module!r} here or on the path") from None
    except AttributeError:
        raise ValueError(f"{text}: module {module!r} has no {name!r}") from None
    if not callable(found):
        raise ValueError(f"{text} must be a function, got {found!r}")
    return found


def export(options: argparse.Namespace) -> None:
    """Write all results as lines of JSON."""
    with options.file.open("w", encoding="utf-8") as out:
        for known in _database().rows():
            out.write(line_of(known) + "\n")


def merge(options: argparse.Namespace) -> None:
    """Add the results of files."""
    database, count = _database(write=True), 0
    for path in options.files:
        for entry in _entries(path):
            database.record(*entry)
            count += 1
    print(f"{count} results merged into {database.path}")


def _entries(path: Path) -> Iterator[Known]:
    with path.open("rb") as file:
        is_database = file.read(15) == b"SQLite format 3"
    if is_database:
        yield from Database(path, writable=False).rows()
        return
    yield from read_lines(path)


def clean(options: argparse.Namespace) -> None:
    """Remove results."""
    database = _database(write=True)
    count = database.forget(version=None if options.all else version())
    print(f"{count} results removed from {database.path}")


if __name__ == "__main__":
    sys.exit(main())
