"""What holds for a thread or a stretch of code, as the trace that processes operations."""

from __future__ import annotations

import threading
from contextvars import ContextVar, Token
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Context(threading.local):
    """Thread-local interpreter state. A thread starts with the evaluating trace."""

    base: Any = None  # the EvalTrace, set once by core.trace

    def __init__(self) -> None:
        self.trace = type(self).base


context = Context()


class entered(Generic[T]):
    """In here a context variable has a value."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: T):
        self._variable, self._value = variable, value

    def __enter__(self) -> T:
        self._token: Token[Any] = self._variable.set(self._value)
        return self._value

    def __exit__(self, *exc: object) -> None:
        self._variable.reset(self._token)


def is_recording() -> bool:
    """Whether operations end in a program being recorded, by way of whatever transforms."""
    trace = context.trace
    while trace is not None and not trace.records:
        trace = trace.parent
    return trace is not None
