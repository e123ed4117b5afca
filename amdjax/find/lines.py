"""Results as lines of JSON: what `export` writes, `merge` reads, and the package comes with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from amdjax.find.database import Known, MachineKey, Result
from amdjax.find.problem import Problem

__all__ = ["line_of", "read_lines"]

NAMES = [field.name for field in fields(Result)]


def line_of(known: Known) -> str:
    """A result as a line."""
    data = {
        **known.problem.to_json(), "machine": known.machine.name, "units": known.machine.units,
        "version": known.version, **asdict(known.result),
    }  # fmt: skip
    return json.dumps(data, ensure_ascii=False)


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
        try:
            data = json.loads(line)
            problem = Problem(str(data["kind"]), str(data["program"]))
            machine = MachineKey(str(data["machine"]), int(data["units"]))
            yield Known(problem, machine, str(data["version"]), _result(data))
        except (ValueError, KeyError, TypeError) as e:
            raise ValueError(f"{path}, line {number}: no result of find: {e!r}") from None


def _result(data: dict[str, Any]) -> Result:
    decisions = [[*map(str, d)] for d in data["decisions"]]
    found = Result.of_row([json.dumps(decisions), *(data[name] for name in NAMES[1:])])
    if found is None:
        raise ValueError("a damaged result")
    return found
