"""Who asks what no symbolic dimension can tell: the operation, and the user's line."""

from __future__ import annotations

import sys
from opcode import opmap
from types import FrameType

from amdjax.core.source_info import SourceInfo, position
from amdjax.core.tracebacks import is_hidden, is_internal

__all__ = ["asked_by"]

#: Packages whose functions users call to make operations.
_OPERATIONS = ("image", "lax", "nn", "numpy", "ops", "optim", "random", "rnn", "scipy")


def asked_by() -> str:
    """A sentence on the primitive and the function that run, and on the line that calls them.

    >>> asked_by().startswith("Asked")
    True
    """
    frame: FrameType | None = sys._getframe(1)
    primitive = function = ""
    while frame is not None and _is_inside(frame):
        name, module = frame.f_code.co_name, str(frame.f_globals.get("__name__", "")).split(".")
        if frame.f_code.co_qualname == "Primitive.bind":
            primitive = primitive or f" by the primitive '{frame.f_locals['self'].name}'"
        elif module[:1] == ["amdjax"] and module[1] in _OPERATIONS and name[0] not in "_<":
            function = f" in '{name}'"
        frame = frame.f_back
    place = position().replayed
    if place is None and frame is not None:
        place = SourceInfo(frame.f_code, frame.f_lineno, ())
    return f"Asked{primitive}{function}{f' at {place}' if place else ''}."


def is_called_as(name: str, frame: FrameType) -> bool:
    """Whether code runs a function that is not Python's, perhaps one of this name: no operator."""
    code = frame.f_code
    return name in code.co_names and code.co_code[frame.f_lasti] != opmap["BINARY_OP"]


def _is_inside(frame: FrameType) -> bool:
    return is_internal(frame.f_code.co_filename) or is_hidden(frame, True)
