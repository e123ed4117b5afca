"""Results as lines of JSON: what `export` writes, `merge` reads, and the package comes with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from amdjax.find.database import Known, MachineKey, Result
from amdjax.find.problem import Problem

MIDDLE = ', "machine": '  # behind the problem; in a string its quotes would be escaped
NAMES = [field.name for field in fields(Result)]


def line_of(known: Known) -> str:
    """A result as a line."""
    data = {
        **known.problem.to_json(), "machine": known.machine.name, "units": known.machine.units,
        "version": known.version, **asdict(known.result),
    }  # fmt: skip
    return json.dumps(data, ensure_ascii=False)


def start_of(problem: Problem) -> str:
    """What the lines of a problem start with, up to `MIDDLE`."""
    return json.dumps(problem.to_json(), ensure_ascii=False)[:-1]


def read_lines(path: Path) -> Iterator[Known]:
    """The results of a file.

    Raises:
      ValueError: a line holds none.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is neither a database of find nor what export wrote") from None
    for number, line in enumerate(lines, 1):
        yield known_of(line, f"{path}, line {number}")


def known_of(line: str, place: str) -> Known:
    """The result of a line.

    Raises:
      ValueError: it holds none; `place` is where it comes from.
    """
    try:
        data = json.loads(line)
        problem = Problem(str(data["kind"]), str(data["program"]))
        machine = MachineKey(str(data["machine"]), int(data["units"]))
        return Known(problem, machine, str(data["version"]), _result(data))
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise ValueError(f"{place}: no result of find: {e!r}") from None


def _result(data: dict[str, Any]) -> Result:
    decisions = [[*map(str, d)] for d in data["decisions"]]
    found = Result.of_row([json.dumps(decisions), *(data[name] for name in NAMES[1:])])
    if found is None:
        raise ValueError("a damaged result")
    return found
