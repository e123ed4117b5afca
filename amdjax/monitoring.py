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
from typing import Any

from amdjax.core import events
from amdjax.core.errors import public_surface as _public_surface

Listener = Callable[..., None]


def record_event(event: str, **kwargs: Any) -> None:
    """Tell listeners of an event.

    Args:
      event: its name, by convention a path.
      kwargs: what else there is to say.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, **kwargs: print(event)
      >>> monitoring.register_event_listener(listener)
      >>> monitoring.record_event("/start")
      /start
      >>> monitoring.unregister_event_listener(listener)
    """
    events.tell("event", event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: Any) -> None:
    """Tell listeners how long something took.

    Args:
      event: its name, by convention a path.
      duration: in seconds.
      kwargs: what else there is to say.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, duration, **kwargs: print(event, duration)
      >>> monitoring.register_event_duration_secs_listener(listener)
      >>> monitoring.record_event_duration_secs("/start", 0.5)
      /start 0.5
      >>> monitoring.unregister_event_duration_listener(listener)
    """
    events.tell("duration", event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: Any) -> None:
    """Tell listeners when something began and ended.

    Args:
      event: its name, by convention a path.
      start_time: in seconds of `time.time`.
      end_time: the same.
      kwargs: what else there is to say.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, start, end, **kwargs: print(event, end - start)
      >>> monitoring.register_event_time_span_listener(listener)
      >>> monitoring.record_event_time_span("/start", 1.0, 3.0)
      /start 2.0
      >>> monitoring.unregister_event_time_span_listener(listener)
    """
    events.tell("time_span", event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float, **kwargs: Any) -> None:
    """Tell listeners of a number.

    Args:
      event: its name, by convention a path.
      value: the number.
      kwargs: what else there is to say.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, value, **kwargs: print(event, value)
      >>> monitoring.register_scalar_listener(listener)
      >>> monitoring.record_scalar("/loss", 0.25)
      /loss 0.25
      >>> monitoring.unregister_scalar_listener(listener)
    """
    events.tell("scalar", event, value, **kwargs)


def register_event_listener(callback: Listener) -> None:
    """Call `callback(event, **kwargs)` for each `record_event`.

    Args:
      callback: called so.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, **kwargs: print(event)
      >>> monitoring.register_event_listener(listener)
      >>> monitoring.record_event("/start")
      /start
      >>> monitoring.unregister_event_listener(listener)
    """
    events.listeners["event"].append(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Call `callback(event, duration, **kwargs)` for each duration.

    Args:
      callback: called so.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, duration, **kwargs: print(event, duration)
      >>> monitoring.register_event_duration_secs_listener(listener)
      >>> monitoring.record_event_duration_secs("/start", 0.5)
      /start 0.5
      >>> monitoring.unregister_event_duration_listener(listener)
    """
    events.listeners["duration"].append(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Call `callback(event, start_time, end_time, **kwargs)` for each time span.

    Args:
      callback: called so.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, start, end, **kwargs: print(event, end - start)
      >>> monitoring.register_event_time_span_listener(listener)
      >>> monitoring.record_event_time_span("/start", 1.0, 3.0)
      /start 2.0
      >>> monitoring.unregister_event_time_span_listener(listener)
    """
    events.listeners["time_span"].append(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Call `callback(event, value, **kwargs)` for each number.

    Args:
      callback: called so.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, value, **kwargs: print(event, value)
      >>> monitoring.register_scalar_listener(listener)
      >>> monitoring.record_scalar("/loss", 0.25)
      /loss 0.25
      >>> monitoring.unregister_scalar_listener(listener)
    """
    events.listeners["scalar"].append(callback)


def _unregister(kind: str, callback: Listener) -> None:
    if callback not in events.listeners[kind]:
        raise ValueError(f"{callback!r} is not a registered {kind.replace('_', ' ')} listener")
    events.listeners[kind].remove(callback)


def unregister_event_listener(callback: Listener) -> None:
    """Undo `register_event_listener`.

    Args:
      callback: what was registered.

    Raises:
      ValueError: it is not registered.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, **kwargs: print(event)
      >>> monitoring.register_event_listener(listener)
      >>> monitoring.record_event("/start")
      /start
      >>> monitoring.unregister_event_listener(listener)
    """
    _unregister("event", callback)


def unregister_event_duration_listener(callback: Listener) -> None:
    """Undo `register_event_duration_secs_listener`.

    Args:
      callback: what was registered.

    Raises:
      ValueError: it is not registered.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, duration, **kwargs: print(event, duration)
      >>> monitoring.register_event_duration_secs_listener(listener)
      >>> monitoring.record_event_duration_secs("/start", 0.5)
      /start 0.5
      >>> monitoring.unregister_event_duration_listener(listener)
    """
    _unregister("duration", callback)


def unregister_event_time_span_listener(callback: Listener) -> None:
    """Undo `register_event_time_span_listener`.

    Args:
      callback: what was registered.

    Raises:
      ValueError: it is not registered.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, start, end, **kwargs: print(event, end - start)
      >>> monitoring.register_event_time_span_listener(listener)
      >>> monitoring.record_event_time_span("/start", 1.0, 3.0)
      /start 2.0
      >>> monitoring.unregister_event_time_span_listener(listener)
    """
    _unregister("time_span", callback)


def unregister_scalar_listener(callback: Listener) -> None:
    """Undo `register_scalar_listener`.

    Args:
      callback: what was registered.

    Raises:
      ValueError: it is not registered.

    Example:
      >>> from amdjax import monitoring
      >>> listener = lambda event, value, **kwargs: print(event, value)
      >>> monitoring.register_scalar_listener(listener)
      >>> monitoring.record_scalar("/loss", 0.25)
      /loss 0.25
      >>> monitoring.unregister_scalar_listener(listener)
    """
    _unregister("scalar", callback)


def clear_event_listeners() -> None:
    """Forget all listeners of all kinds.

    Example:
      >>> from amdjax import monitoring
      >>> monitoring.clear_event_listeners()
    """
    for found in events.listeners.values():
        found.clear()


_public_surface(globals())
