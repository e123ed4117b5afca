"""docs/miopen.md names what exists, for every entry point of MIOpen."""

import fnmatch
import functools
import importlib
import re

import pytest

import amdjax
from tests.support.miopen import NAMES, ROWS, rows_of

HERE = re.findall(
    r"`((?:amdjax|find|lax|nn|numpy|optim|rnn)\.\w[\w.]*)`", " ".join(right for _, right in ROWS)
)


@pytest.mark.parametrize("name", dict.fromkeys(HERE))
def test_names_exist(name):
    first, *rest = name.split(".")
    root = amdjax if first == "amdjax" else importlib.import_module(f"amdjax.{first}")
    assert functools.reduce(getattr, rest, root) is not None


def test_every_entry_has_a_row():
    assert len(NAMES) == len(set(NAMES)) == 256
    assert not [name for name in NAMES if not rows_of(name)]


def test_every_row_is_of_entries():
    """But for what later versions spell otherwise."""
    patterns = [p for left, _ in ROWS for p in re.findall(r"`([^`]*)`", left)]
    dead = [p for p in patterns if not fnmatch.filter(NAMES, p)]
    assert dead == ["GetRNNLayeBias"] and len(HERE) > 60
