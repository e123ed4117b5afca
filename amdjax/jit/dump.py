"""`AMDJAX_DUMP=dir`: every stage of every compile as files a person can read."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from amdjax.core.jaxpr import ClosedJaxpr

_numbers = itertools.count()
#: Stages that need no plan.
_UNPLANNED = ("jaxpr", "passes", "simplified", "fusion", "schedule")


@contextmanager
def dumping(
    directory: str | None, closed: ClosedJaxpr, observe: Callable[[str, Any], None]
) -> Iterator[Callable[[str, Any], None]]:
    """An observer that also keeps the stages, written to a folder of their own at the end.

    The folder is `<directory>/<process>-<number>-<name>/` and holds `jaxpr.txt`, `simplified.txt`,
    `fusion.txt`, `schedule.txt`, `tiles.txt`, `passes.txt`, `plan.txt`, `llvm.ll`, `asm.s`, and
    `resources.txt` for a GPU. Without a directory it is `observe` itself.
    """
    if not directory:
        yield observe
        return
    stages: list[tuple[str, Any]] = []

    def both(stage: str, x: Any) -> None:
        stages.append((stage, x))
        observe(stage, x)

    folder = Path(directory) / _folder(closed)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        text = f"AMDJAX_DUMP={directory!r}: stages of programs cannot be written there, {e}"
        raise RuntimeError(text) from None
    try:
        yield both
    except Exception:
        _write(folder, closed, stages, None)  # as far as it came
        raise
    _write(folder, closed, stages, next(x for s, x in stages if s == "plan"))


def _folder(closed: ClosedJaxpr) -> str:
    info = closed.jaxpr.debug_info
    name = (
        info.name
        if info is not None
        else "_".join(dict.fromkeys(e.primitive.name for e in closed.eqns[:3]))
    )
    safe = re.sub(r"[^A-Za-z0-9_]+", "_", name)[:60]
    return f"{os.getpid()}-{next(_numbers):04d}-{safe}"


def _write(folder: Path, closed: ClosedJaxpr, stages: list[tuple[str, Any]], plan: Any) -> None:
    # late: loads with what a GPU's programs are told by
    from amdjax.jit import report

    wanted = (
        report.TEXT_STAGES
        if plan is not None
        else ("jaxpr", "passes", "simplified", "fusion", "schedule")
    )
    if any(name == "kernels" for name, _ in stages):
        wanted = (*wanted, "resources")
    for stage in wanted:
        suffix = {"llvm": "ll", "asm": "s"}.get(stage, "txt")
        text = report.stage_text(stage, closed, stages, plan)
        (folder / f"{stage}.{suffix}").write_text(text + "\n")
