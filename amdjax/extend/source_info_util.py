"""Where operations were written, and whose lines do not count as a user's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amdjax.core import source_info as _source_info
from amdjax.core.source_info import (
    NameStack as NameStack,
    SourceInfo as SourceInfo,
    current as current,
    register_exclusion as register_exclusion,
)

__all__ = [
    "NameStack", "SourceInfo", "current", "current_name_stack", "extend_name_stack",
    "new_name_stack", "new_source_info", "register_exclusion", "reset_name_stack", "set_name_stack",
    "summarize", "user_context",
]  # fmt: skip


def new_name_stack(name: str = "") -> NameStack:
    """A stack of one name, or of none.

    Args:
      name: the name, if there is one.

    Returns:
      The stack.

        >>> tuple(new_name_stack("model"))
        ('model',)
    """
    return NameStack((name,) if name else ())


def new_source_info() -> SourceInfo:
    """An unknown place.

    Returns:
      The place.

        >>> new_source_info().line
        0
    """
    return _source_info.unknown


def current_name_stack() -> NameStack:
    """The enclosing scopes.

    Returns:
      The stack.

        >>> with extend_name_stack("model"):
        ...     tuple(current_name_stack())
        ('model',)
    """
    return NameStack(_source_info.current().scope)


def extend_name_stack(name: str) -> Any:
    """Context manager: a scope inside the present one.

    Args:
      name: the scope's.

    Returns:
      The context manager.

        >>> with extend_name_stack("model"):
        ...     tuple(current_name_stack())
        ('model',)
    """
    return _source_info.scope(name)


@contextmanager
def set_name_stack(stack: Any) -> Iterator[None]:
    """Inside, operations carry the scopes of `stack` and no others.

    Args:
      stack: names of scopes.

    Returns:
      A context manager.

        >>> with set_name_stack(["model"]):
        ...     tuple(current_name_stack())
        ('model',)
    """
    state = _source_info._state
    old, state.scope = state.scope, tuple(stack)
    try:
        yield
    finally:
        state.scope = old


def reset_name_stack() -> Any:
    """Context manager: inside, there are no scopes.

    Returns:
      The context manager.

        >>> with reset_name_stack():
        ...     tuple(current_name_stack())
        ()
    """
    return set_name_stack(())


def summarize(source: SourceInfo, num_frames: int = 1) -> str:
    """The place as `file:line (function)`.

    Args:
      source: where an operation was written.
      num_frames: accepted; one line is known.

    Returns:
      A string.

        >>> summarize(new_source_info())
        'unknown location'
    """
    return str(source)


@contextmanager
def user_context(traceback: Any = None, *, name_stack: Any = None) -> Iterator[None]:
    """Inside, operations carry `name_stack`; errors keep their own tracebacks.

    Args:
      traceback: accepted.
      name_stack: scopes, or None for the present ones.

    Returns:
      A context manager.

        >>> with user_context(name_stack=["model"]):
        ...     tuple(current_name_stack())
        ('model',)
    """
    if name_stack is None:
        yield
    else:
        with set_name_stack(name_stack):
            yield
