"""Where an operation was written: file, line, function and the enclosing `named_scope`s.

Recorded for every equation, so it has to be cheap: a code object and a line number.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import NamedTuple

from amdjax.core import errors


class SourceInfo(NamedTuple):
    """The user's line that made an operation."""

    code: CodeType | None
    line: int
    scope: tuple[str, ...]

    @property
    def file(self) -> str:
        return self.code.co_filename if self.code else ""

    @property
    def function(self) -> str:
        return self.code.co_name if self.code else ""

    def __str__(self) -> str:
        if self.code is None:
            return "unknown location"
        return f"{self.file}:{self.line} ({self.function})"


unknown = SourceInfo(None, 0, ())


class Origin(NamedTuple):
    """What a piece of a kernel was made from: an operation of a program, and who wrote that where.

    >>> str(Origin("exp", unknown))
    '`exp`'
    """

    operation: str
    source: SourceInfo

    def __str__(self) -> str:
        code, line, _ = self.source
        if code is None:
            return f"`{self.operation}`"
        return f"`{self.operation}` at {short_place(code.co_filename, line, code.co_name)}"


def short_place(file: str, line: int, function: str) -> str:
    """A line for tables and margins, where there is no room for folders.

    >>> short_place("/home/me/train.py", 41, "loss")
    'train.py:41 (loss)'
    """
    return f"{os.path.basename(file)}:{line} ({function})"


class _State(threading.local):
    def __init__(self) -> None:
        self.scope: tuple[str, ...] = ()
        self.replayed: SourceInfo | None = None
        self.pinned: SourceInfo | None = None


_state = _State()
_internal: dict[CodeType, bool] = {}


def _is_internal(code: CodeType) -> bool:
    found = _internal.get(code)
    if found is None:
        found = _internal[code] = code.co_filename.startswith(tuple(errors.exclude_paths))
    return found


def register_exclusion(path: str) -> None:
    """Let no operation count as written in a library's files; see `errors.register_exclusion`."""
    errors.register_exclusion(path)
    _internal.clear()


def current() -> SourceInfo:
    """The nearest line on the stack outside amdjax."""
    state = _state
    if state.replayed is not None:
        return state.replayed
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _is_internal(code):
            return SourceInfo(code, frame.f_lineno, state.scope)
        frame = frame.f_back  # type: ignore[assignment]
    return SourceInfo(None, 0, state.scope)


def replayed() -> SourceInfo | None:
    """The place that operations count as written at, if one was set by `replay`."""
    return _state.replayed


def replay(info: SourceInfo) -> None:
    """Let operations count as written at `info`, until `restore`.

    Transforms use it while they evaluate a jaxpr, so that derived operations keep the line of
    the operation they come from.
    """
    if _state.scope and info.scope[: len(_state.scope)] != _state.scope:
        info = info._replace(scope=_state.scope + info.scope)
    _state.replayed = info


def restore(info: SourceInfo | None) -> None:
    """Put back what `replayed` returned before."""
    _state.replayed = info


def pinned() -> SourceInfo | None:
    """The place of all operations inside a `written_at`, programs traced there included."""
    return _state.pinned


@contextmanager
def written_at(info: SourceInfo) -> Iterator[None]:
    """Inside, operations count as written at `info`, whoever calls.

    For what the library writes itself, which is none of the user's lines on the stack.
    """
    outer = _state.replayed, _state.pinned
    replay(info)
    _state.pinned = _state.replayed
    try:
        yield
    finally:
        _state.replayed, _state.pinned = outer


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Inside, operations carry `name` at the end of their scope."""
    old = _state.scope
    _state.scope = (*old, name)
    try:
        yield
    finally:
        _state.scope = old
