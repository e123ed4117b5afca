"""Events of the library, and of programs that use it, for those who count or time them.

Compiling tells of `/jax/core/compile/jaxpr_trace_duration` and
`/jax/core/compile/backend_compile_duration`, as in JAX.

    >>> from amdjax import monitoring
    >>> heard = []
    >>> monitoring.register_event_listener(lambda event, **details: heard.append(event))
    >>> monitoring.record_event("/app/epoch")
    >>> monitoring.clear_event_listeners()
    >>> heard
    ['/app/epoch']
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar as _TypeVar

from amdjax.core import events
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import Family as _Family, Phrases as _Phrases, complete as _complete

Listener = Callable[..., None]
Function = _TypeVar("Function", bound=Callable[..., None])

_EXAMPLES = {
    "event": """
      >>> listener = lambda event, **kwargs: print(event)
      >>> monitoring.register_event_listener(listener)
      >>> monitoring.record_event("/start")
      /start
      >>> monitoring.unregister_event_listener(listener)
    """,
    "duration": """
      >>> listener = lambda event, duration, **kwargs: print(event, duration)
      >>> monitoring.register_event_duration_secs_listener(listener)
      >>> monitoring.record_event_duration_secs("/start", 0.5)
      /start 0.5
      >>> monitoring.unregister_event_duration_listener(listener)
    """,
    "time_span": """
      >>> listener = lambda event, start, end, **kwargs: print(event, end - start)
      >>> monitoring.register_event_time_span_listener(listener)
      >>> monitoring.record_event_time_span("/start", 1.0, 3.0)
      /start 2.0
      >>> monitoring.unregister_event_time_span_listener(listener)
    """,
    "scalar": """
      >>> listener = lambda event, value, **kwargs: print(event, value)
      >>> monitoring.register_scalar_listener(listener)
      >>> monitoring.record_scalar("/loss", 0.25)
      /loss 0.25
      >>> monitoring.unregister_scalar_listener(listener)
    """,
}


def _shown(kind: str) -> Callable[[Function], Function]:
    """Add the example of a kind of event to the docstring."""
    example = f"\n\n    Example:\n      >>> from amdjax import monitoring{_EXAMPLES[kind]}"

    def add(fn: Function) -> Function:
        if fn.__doc__:
            fn.__doc__ += example
        return fn

    return add


@_shown("event")
def record_event(event: str, **kwargs: Any) -> None:
    """Tell listeners of an event."""
    events.tell("event", event, **kwargs)


@_shown("duration")
def record_event_duration_secs(event: str, duration: float, **kwargs: Any) -> None:
    """Tell listeners how long something took."""
    events.tell("duration", event, duration, **kwargs)


@_shown("time_span")
def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: Any) -> None:
    """Tell listeners when something began and ended."""
    events.tell("time_span", event, start_time, end_time, **kwargs)


@_shown("scalar")
def record_scalar(event: str, value: float, **kwargs: Any) -> None:
    """Tell listeners of a number."""
    events.tell("scalar", event, value, **kwargs)


@_shown("event")
def register_event_listener(callback: Listener) -> None:
    """Call `callback(event, **kwargs)` for each `record_event`."""
    events.listeners["event"].append(callback)


@_shown("duration")
def register_event_duration_secs_listener(callback: Listener) -> None:
    """Call `callback(event, duration, **kwargs)` for each duration."""
    events.listeners["duration"].append(callback)


@_shown("time_span")
def register_event_time_span_listener(callback: Listener) -> None:
    """Call `callback(event, start_time, end_time, **kwargs)` for each time span."""
    events.listeners["time_span"].append(callback)


@_shown("scalar")
def register_scalar_listener(callback: Listener) -> None:
    """Call `callback(event, value, **kwargs)` for each number."""
    events.listeners["scalar"].append(callback)


def _unregister(kind: str, callback: Listener) -> None:
    if callback not in events.listeners[kind]:
        raise ValueError(f"{callback!r} is not a registered {kind.replace('_', ' ')} listener")
    events.listeners[kind].remove(callback)


@_shown("event")
def unregister_event_listener(callback: Listener) -> None:
    """Undo `register_event_listener`."""
    _unregister("event", callback)


@_shown("duration")
def unregister_event_duration_listener(callback: Listener) -> None:
    """Undo `register_event_duration_secs_listener`."""
    _unregister("duration", callback)


@_shown("time_span")
def unregister_event_time_span_listener(callback: Listener) -> None:
    """Undo `register_event_time_span_listener`."""
    _unregister("time_span", callback)


@_shown("scalar")
def unregister_scalar_listener(callback: Listener) -> None:
    """Undo `register_scalar_listener`."""
    _unregister("scalar", callback)


def clear_event_listeners() -> None:
    """Forget all listeners of all kinds.

    >>> from amdjax import monitoring
    >>> monitoring.clear_event_listeners()
    """
    for found in events.listeners.values():
        found.clear()


_PHRASES = _Phrases(
    {
        "event": "its name, by convention a path.",
        "duration": "in seconds.",
        "start_time": "in seconds of `time.time`.",
        "end_time": "the same.",
        "value": "the number.",
        "kwargs": "what else there is to say.",
        "callback": "called so.",
    }
)
_UNREGISTER = _Family(
    "unregister_event_listener unregister_event_duration_listener "
    "unregister_event_time_span_listener unregister_scalar_listener",
    "",
    "ValueError: it is not registered.",
    callback="what was registered.",
)
_complete(globals(), [_UNREGISTER], _PHRASES)
_public_surface(globals())
