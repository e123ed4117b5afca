"""Passes over programs before kernels are decided, named and switchable ([passes.md]).

They load when they are first asked for: a program whose plan is kept needs none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amdjax.passes.changes import Changed as Changed, changes_text as changes_text
    from amdjax.passes.preparing import prepare as prepare, prepare_body as prepare_body
    from amdjax.passes.switches import is_on as is_on
    from amdjax.passes.table import (
        PASSES as PASSES,
        Facts as Facts,
        Note as Note,
        Pass as Pass,
    )

__all__ = ["PASSES", "Changed", "Facts", "Note", "Pass", "changes_text", "is_on", "prepare"]

_PLACES = {
    **dict.fromkeys(("Changed", "changes_text"), "changes"),
    **dict.fromkeys(("prepare", "prepare_body"), "preparing"),
    **dict.fromkeys(("PASSES", "Facts", "Note", "Pass"), "table"),
    "is_on": "switches",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
