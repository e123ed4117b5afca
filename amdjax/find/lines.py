"""Results as lines of JSON: what `export` writes, `merge` reads, and the package comes with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amdjax.find.database import Known, MachineKey, Result
from amdjax.find.problem import Problem
from amdjax.schedule.search import Decision

__all__ = ["line_of", "read_lines"]


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
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            data = json.loads(line)
            problem = Problem(str(data["kind"]), str(data["program"]))
            machine = MachineKey(str(data["machine"]), int(data["units"]))
            yield Known(problem, machine, str(data["version"]), _result(data))
        except (ValueError, KeyError, TypeError) as e:
            raise ValueError(f"{path}, line {number}: no result of find: {e!r}") from None


def _result(data: dict[str, Any]) -> Result:
    decisions = tuple(Decision(*map(str, d)) for d in data["decisions"])
    seconds = None if data["seconds"] is None else float(data["seconds"])
    status, note, estimated = str(data["status"]), str(data["note"]), bool(data["estimated"])
    spread, workspace = float(data["spread"]), int(data["workspace"])
    return Result(decisions, status, seconds, spread, workspace, estimated, note)
