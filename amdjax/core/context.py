"""The current trace of this thread: the one place that says who processes an operation."""

from __future__ import annotations

import threading
from typing import Any


class Context(threading.local):
    """Thread-local interpreter state. A thread starts with the evaluating trace."""

    base: Any = None  # the EvalTrace, set once by core.trace

    def __init__(self) -> None:
        self.trace = type(self).base


context = Context()


def is_recording() -> bool:
    """Whether operations end in a program being recorded, by way of whatever transforms."""
    trace = context.trace
    while trace is not None and not trace.records:
        trace = trace.parent
    return trace is not None
