"""Events that code reports and listeners hear, such as how long something took.

>>> heard = []
>>> listener = lambda event, seconds, **about: heard.append((event, seconds))
>>> register_event_duration_secs_listener(listener)
>>> record_event_duration_secs("/mine/loading", 0.5, file="a.npz")
>>> heard
[('/mine/loading', 0.5)]
>>> unregister_event_duration_listener(listener)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.core.errors import public_surface as _public_surface

__all__ = [
    "clear_event_listeners",
    "record_event",
    "record_event_duration_secs",
    "record_event_time_span",
    "record_scalar",
    "register_event_duration_secs_listener",
    "register_event_listener",
    "register_event_time_span_listener",
    "register_scalar_listener",
    "unregister_event_duration_listener",
    "unregister_event_listener",
    "unregister_event_time_span_listener",
    "unregister_scalar_listener",
]

Listener = Callable[..., None]
_events: list[Listener] = []
_durations: list[Listener] = []
_spans: list[Listener] = []
_scalars: list[Listener] = []


def _report(listeners: list[Listener], *values: Any, **about: Any) -> None:
    for listener in list(listeners):
        listener(*values, **about)


def _forget(listeners: list[Listener], listener: Listener, kind: str) -> None:
    if listener not in listeners:
        raise ValueError(f"{listener!r} is not registered as a listener of {kind}")
    listeners.remove(listener)


def record_event(event: str, **kwargs: str | int) -> None:
    """Say that something happened.

    Args:
      event: its name.
      **kwargs: more about it, for the listeners.
    """
    _report(_events, event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Say how long something took.

    Args:
      event: its name.
      duration: in seconds.
      **kwargs: more about it.
    """
    _report(_durations, event, duration, **kwargs)


def record_event_time_span(
    event: str, start_time: float, end_time: float, **kwargs: str | int
) -> None:
    """Say when something began and ended.

    Args:
      event: its name.
      start_time: in seconds.
      end_time: in seconds.
      **kwargs: more about it.
    """
    _report(_spans, event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Report a number.

    Args:
      event: its name.
      value: the number.
      **kwargs: more about it.
    """
    _report(_scalars, event, value, **kwargs)


def register_event_listener(callback: Listener) -> None:
    """Let `callback(event, **about)` hear of events."""
    _events.append(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Let `callback(event, seconds, **about)` hear of durations."""
    _durations.append(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Let `callback(event, start, end, **about)` hear of spans of time."""
    _spans.append(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Let `callback(event, value, **about)` hear of numbers."""
    _scalars.append(callback)


def unregister_event_listener(callback: Listener) -> None:
    """Undo `register_event_listener`; a ValueError if it was not registered."""
    _forget(_events, callback, "events")


def unregister_event_duration_listener(callback: Listener) -> None:
    """Undo `register_event_duration_secs_listener`."""
    _forget(_durations, callback, "durations")


def unregister_event_time_span_listener(callback: Listener) -> None:
    """Undo `register_event_time_span_listener`."""
    _forget(_spans, callback, "spans of time")


def unregister_scalar_listener(callback: Listener) -> None:
    """Undo `register_scalar_listener`."""
    _forget(_scalars, callback, "numbers")


def clear_event_listeners() -> None:
    """Forget all listeners."""
    for listeners in (_events, _durations, _spans, _scalars):
        listeners.clear()


_public_surface(globals())
