"""docs/miopen.md names what exists."""

import functools
import importlib
import re
from pathlib import Path

import pytest

import amdjax

PAGE = Path(__file__).parents[2] / "docs" / "miopen.md"
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
NAMES = re.findall(
    r"`((?:amdjax|find|lax|nn|numpy|optim|rnn)\.\w[\w.]*)`",
    " ".join(row.split("|")[2] for row in ROWS),
)


@pytest.mark.parametrize("name", dict.fromkeys(NAMES))
def test_names_exist(name):
    first, *rest = name.split(".")
    root = amdjax if first == "amdjax" else importlib.import_module(f"amdjax.{first}")
    assert functools.reduce(getattr, rest, root) is not None


def test_rows_are_read():
    assert len(ROWS) > 30 and len(NAMES) > 60
