"""What a command answers, and how it is shown."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Table(NamedTuple):
    """Rows of cells under headings; columns of numbers stand to the right."""

    headings: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass
class Answer:
    """What a command found.

    Args:
      data: for programs; `--json` prints it.
      shown: for people: lines and tables.
      code: the exit code.
    """

    data: dict[str, Any]
    shown: list[str | Table] = field(default_factory=list)
    code: int = 0


def show(answer: Answer, as_json: bool) -> None:
    """Print an answer."""
    if as_json:
        print(json.dumps(plain(answer.data), indent=2, allow_nan=False))
        return
    for part in answer.shown:
        show_part(part)


def show_part(part: str | Table) -> None:
    """Print a line or table; by rich where it is installed and this is a terminal."""
    if isinstance(part, str):
        print(part)
        return
    if sys.stdout.isatty() and _rich_table(part):
        return
    print(as_text(part))


def as_text(table: Table) -> str:
    """A table in plain text."""
    rows = [table.headings, *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    right = [_is_numeric(column) for column in zip(*table.rows)] or [False] * len(widths)
    lines = [table.title] if table.title else []
    for row in rows:
        cells = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _is_numeric(cells: Sequence[str]) -> bool:
    return all(c[:1] in "0123456789-∞" or not c for c in cells)


def _rich_table(table: Table) -> bool:
    try:
        # late: only people who look on need it
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        return False
    made = RichTable(title=table.title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for heading, column in zip(table.headings, zip(*table.rows) if table.rows else table.headings):
        justify = "right" if table.rows and _is_numeric(column) else "left"
        made.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in table.rows:
        made.add_row(*map(Text, row))
    Console().print(made)
    return True


def plain(value: Any) -> Any:
    """Data as JSON has it: numbers that are not finite are texts."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return value.item() if hasattr(value, "item") else str(value)


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """A function that tells of one more step done, on the error output if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda said: None
        return
    try:
        # late: only people who look on need it
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield _counting(what, total)
        print(file=sys.stderr)
        return
    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda said: bars.update(bar, advance=1, description=f"{what}: {said}")


def _counting(what: str, total: int) -> Callable[[str], None]:
    done = 0

    def step(said: str) -> None:
        nonlocal done
        done += 1
        print(f"\r\x1b[K{what} {done}/{total}: {said}", end="", file=sys.stderr, flush=True)

    return step


def note(text: str) -> None:
    """Tell something on the error output."""
    print(f"# {text}", file=sys.stderr)


def in_bytes(count: float) -> str:
    """A number of bytes for people.

    >>> in_bytes(1536)
    '1.5 kB'
    """
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= step:
            return f"{count / step:.1f} {unit}"
    return f"{count:.0f} B"


def in_time(seconds: float) -> str:
    """Seconds for people.

    >>> in_time(0.00123)
    '1.23 ms'
    """
    for unit, step in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= step:
            return f"{seconds / step:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"
