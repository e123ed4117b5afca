"""What happens while programs run, told to listeners: a trace being recorded, listeners.

Mostly there is no listener; then each place that tells something asks one question and goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple


class Span(NamedTuple):
    """Something that took time; times are nanoseconds of `time.perf_counter_ns`."""

    name: str
    category: str
    start: int
    duration: int
    thread: int
    details: Mapping[str, Any]


class Recorder:
    """Spans, in the order in which they ended."""

    def __init__(self) -> None:
        self.began = time.perf_counter_ns()
        self.spans: list[Span] = []

    def add(self, name: str, category: str, start: int, details: Mapping[str, Any]) -> None:
        """A span that began at `start` and ends now; appending to a list needs no lock."""
        end = time.perf_counter_ns()
        thread = threading.get_ident()
        self.spans.append(Span(name, category, start, end - start, thread, details))


recorder: Recorder | None = None
"""What records now; None if nothing does."""


def record_with(new: Recorder | None) -> Recorder | None:
    """Let another recorder record, or none; returns the one that did."""
    global recorder
    old, recorder = recorder, new
    return old


@contextmanager
def span(name: str, category: str, **details: Any) -> Iterator[None]:
    """Record how long the body takes, if a trace is being recorded."""
    current = recorder
    if current is None:
        yield
        return
    start = time.perf_counter_ns()
    try:
        yield
    finally:
        current.add(name, category, start, details)


Listener = Callable[..., None]

listeners: dict[str, list[Listener]] = {"event": [], "duration": [], "time_span": [], "scalar": []}
"""Functions that want to hear of events, by kind of event."""


def tell(kind: str, *args: Any, **details: Any) -> None:
    """Call all listeners of a kind."""
    for listener in tuple(listeners[kind]):
        listener(*args, **details)


def is_heard() -> bool:
    """Whether a trace is recorded, or listeners want to hear how long something takes."""
    return recorder is not None or bool(listeners["duration"] or listeners["time_span"])


@contextmanager
def duration(event: str, **details: Any) -> Iterator[None]:
    """Tell listeners how long the body took, if there are any."""
    if not listeners["duration"] and not listeners["time_span"]:
        yield
        return
    began, start = time.time(), time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    tell("duration", event, seconds, **details)
    tell("time_span", event, began, began + seconds, **details)
