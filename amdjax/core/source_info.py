"""Where an operation was written: file, line, function and the enclosing `named_scope`s.

Recorded for every equation, so it has to be cheap: a code object and a line number.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from amdjax.core import tracebacks

P = ParamSpec("P")
R = TypeVar("R")


class Transform(str):
    """An entry of a scope that stands for a transform, whose name goes around what is inside."""

    __slots__ = ()


class NameStack(tuple[str, ...]):
    """The enclosing `named_scope`s and transforms, outermost first.

    >>> str(NameStack(("net", Transform("vmap"), Transform("jvp"), "layer", "norm")))
    'net/vmap(jvp(layer))/norm'
    """

    __slots__ = ()

    def extend(self, name: Any) -> NameStack:
        """This stack with a name, or several, inside."""
        return NameStack((*self, *((name,) if isinstance(name, str) else name)))

    def transform(self, name: str) -> NameStack:
        """This stack with a transform inside."""
        return NameStack((*self, Transform(name)))

    def __add__(self, other: Any) -> NameStack:
        return NameStack((*self, *other))

    def __str__(self) -> str:
        parts: list[str] = []  # innermost first
        for entry in reversed(self):
            if isinstance(entry, Transform):
                parts.append(f"{entry}({parts.pop() if parts else ''})")
            else:
                parts.append(entry)
        return "/".join(reversed(parts))


class SourceInfo(NamedTuple):
    """The user's line that made an operation.

    Args:
      code: the code object, if it is known.
      line: its line.
      scope: names of the enclosing `named_scope`s.
    """

    code: CodeType | None
    line: int
    scope: tuple[str, ...]

    @property
    def file(self) -> str:
        return self.code.co_filename if self.code else ""

    @property
    def function(self) -> str:
        return self.code.co_name if self.code else ""

    @property
    def name_stack(self) -> NameStack:
        return NameStack(self.scope)

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
        self.pinned: Position | None = None


_state = _State()
_internal: dict[str, bool] = {}  # by file: code objects are hashed anew each time


def is_internal(code: CodeType) -> bool:
    """Whether code is amdjax's own, or that of a library that wants to be left out."""
    file = code.co_filename
    found = _internal.get(file)
    if found is None:
        found = _internal[file] = file.startswith(tuple(tracebacks.exclude_paths))
    return found


def register_exclusion(path: str) -> None:
    """Let no operation count as written in a library's files; see `tracebacks.register_exclusion`.

    Args:
      path: a file of the library, or the folder of its files.

        >>> register_exclusion("/opt/library/")
    """
    tracebacks.register_exclusion(path)
    _internal.clear()


def current() -> SourceInfo:
    """The nearest line on the stack outside amdjax.

    Returns:
      The line.

        >>> current().line > 0
        True
    """
    state = _state
    info = state.replayed
    if info is not None:
        return info if info.scope == state.scope else info._replace(scope=state.scope)
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _internal.get(code.co_filename) and not is_internal(code):  # mostly without a call
            return SourceInfo(code, frame.f_lineno, state.scope)
        frame = frame.f_back  # type: ignore[assignment]
    return SourceInfo(None, 0, state.scope)


class Position(NamedTuple):
    """What operations recorded now count as written at.

    Attributes:
      replayed: a place that stands for the line that is running.
      scope: the enclosing scopes.
    """

    replayed: SourceInfo | None
    scope: tuple[str, ...]


def position() -> Position:
    """The present position, for `replay` and `restore`."""
    return Position(_state.replayed, _state.scope)


def replay(info: SourceInfo, outer: Position) -> None:
    """Let operations count as written at `info`, inside the scopes of `outer`, until `restore`.

    Transforms use it while they evaluate a jaxpr, so that derived operations keep the line of
    the operation they come from.
    """
    state = _state
    state.scope = outer.scope + info.scope
    state.replayed = info if not outer.scope else info._replace(scope=state.scope)


def restore(outer: Position) -> None:
    """Return to a position."""
    _state.replayed, _state.scope = outer


def enter_program() -> Position:
    """Let operations be those of a program of its own, which is outside all scopes.

    Returns:
      The position to `restore` at its end.
    """
    outer = position()
    _state.replayed, _state.scope = _state.pinned or Position(None, ())
    return outer


def depth() -> int:
    """The number of enclosing scopes."""
    return len(_state.scope)


@contextmanager
def written_at(info: SourceInfo) -> Iterator[None]:
    """Inside, operations count as written at `info`, as do programs traced there.

    For what the library writes itself, which is none of the user's lines on the stack.
    """
    outer, pinned = position(), _state.pinned
    replay(info, outer)
    _state.pinned = position()
    try:
        yield
    finally:
        restore(outer)
        _state.pinned = pinned


class scope:
    """Context manager: inside, operations carry `name` at the end of their scope."""

    __slots__ = ("name", "old")

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None:
        self.old = _state.scope
        _state.scope = (*self.old, self.name)

    def __exit__(self, *exc: object) -> None:
        _state.scope = self.old


def transformed(name: str, fun: Callable[P, R]) -> Callable[P, R]:
    """`fun`, with the names of scopes of its operations inside that of a transform."""
    entry = Transform(name)

    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with scope(entry):
            return fun(*args, **kwargs)

    return inside
