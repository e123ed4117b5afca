"""Traces of what a program does in time, for Perfetto and Chrome's viewer.

A trace holds what is compiled, the calls of compiled programs, copies to and from devices, and the
program's own annotations. Times are those of the host: a call that leaves its work to a GPU ends
when the work is queued. `Compiled.profile` counts what kernels do.

    >>> import json, pathlib, tempfile
    >>> from amdjax import profiler
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with profiler.trace(folder, create_perfetto_trace=True):
    ...         with profiler.TraceAnnotation("all of it"):
    ...             y = amdjax.jit(lambda x: x + 1)(jnp.arange(3))
    ...     found = [p.name for p in pathlib.Path(folder).rglob("perfetto*")]
    >>> found
    ['perfetto_trace.json.gz']
"""

from __future__ import annotations

import datetime
import functools
import gzip
import json
import os
import pathlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from amdjax import _docs
from amdjax.core import events
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import Phrases as _Phrases, complete as _complete


class ProfileOptions:
    """What a trace records. Accepted with JAX's names; everything is recorded."""

    def __init__(self) -> None:
        self.host_tracer_level = 2
        self.python_tracer_level = 0
        self.device_tracer_level = 1
        self.enable_hlo_proto = False
        self.include_dataset_ops = False
        self.duration_ms = 0
        self.start_timestamp_ns = 0
        self.repository_path = ""
        self.advanced_configuration: dict[str, Any] = {}


class _Running(NamedTuple):
    recorder: events.Recorder
    folder: pathlib.Path
    perfetto: bool


_running: _Running | None = None
_lock = threading.Lock()


def start_trace(
    log_dir: os.PathLike[str] | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> None:
    """Begin to record a trace.

    Args:
      log_dir: the folder into which `stop_trace` writes it, as `plugins/profile/<time>/`.
      create_perfetto_link: refused: it would open a server.
      create_perfetto_trace: write `perfetto_trace.json.gz` too, for ui.perfetto.dev.
      profiler_options: accepted.

    Raises:
      RuntimeError: a trace is being recorded.
      NotImplementedError: `create_perfetto_link` is true.

        >>> import tempfile
        >>> amdjax.profiler.start_trace(tempfile.mkdtemp())
        >>> amdjax.profiler.stop_trace()
    """
    global _running
    if create_perfetto_link:
        raise NotImplementedError(
            "start_trace: create_perfetto_link would open a server; pass create_perfetto_trace=True"
            " and open the file at ui.perfetto.dev"
        )
    with _lock:
        if _running is not None:
            raise RuntimeError(
                "Profile has already been started. Only one profile may be run at a time."
            )
        recorder = events.Recorder()
        _running = _Running(recorder, pathlib.Path(log_dir), create_perfetto_trace)
        events.record_with(recorder)


def stop_trace() -> None:
    """End the trace and write it.

    Raises:
      RuntimeError: no trace is being recorded.

        >>> import tempfile
        >>> amdjax.profiler.start_trace(tempfile.mkdtemp())
        >>> amdjax.profiler.stop_trace()
    """
    global _running
    with _lock:
        if _running is None:
            raise RuntimeError("No profile started")
        ended, _running = _running, None
        events.record_with(None)
    now = datetime.datetime.now().strftime("%Y_%m_%d_%H_%M_%S")
    folder = ended.folder / "plugins" / "profile" / now
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{socket.gethostname()}.trace.json.gz"]
    names += ["perfetto_trace.json.gz"] if ended.perfetto else []
    text = json.dumps(_chrome_events(ended.recorder)).encode()
    for name in names:
        with gzip.open(folder / name, "wb") as file:
            file.write(text)


def _chrome_events(recorder: events.Recorder) -> dict[str, Any]:
    """The trace in Chrome's format: complete events, in microseconds since it began."""
    process = os.getpid()
    found: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "args": {"name": "amdjax"}}
    ]
    for s in recorder.spans:
        found.append({
            "ph": "X", "name": s.name, "cat": s.category, "pid": process, "tid": s.thread,
            "ts": (s.start - recorder.began) / 1e3, "dur": s.duration / 1e3,
            "args": {k: str(v) for k, v in s.details.items()},
        })  # fmt: skip
    return {"displayTimeUnit": "ns", "traceEvents": found}


@contextmanager
def trace(
    log_dir: os.PathLike[str] | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> Iterator[None]:
    """Record a trace of the body; see `start_trace`.

    Args:
      log_dir: the folder into which it is written.
      create_perfetto_link: refused.
      create_perfetto_trace: write `perfetto_trace.json.gz` too.
      profiler_options: accepted.

        >>> import tempfile
        >>> with amdjax.profiler.trace(tempfile.mkdtemp()):
        ...     y = jnp.ones(3) + 1
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


class TraceAnnotation:
    """Shows a part of a program in the trace, under a name.

    Args:
      name: what the trace shows.
      kwargs: details of it.

        >>> with amdjax.profiler.TraceAnnotation("part", batch=3):
        ...     pass
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name, self.details = name, kwargs
        self._span: Any = None

    def __enter__(self) -> TraceAnnotation:
        self._span = events.span(self.name, "annotation", **self.details)
        self._span.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._span.__exit__(*exc)


class StepTraceAnnotation(TraceAnnotation):
    """Shows one step of a training loop in the trace.

    Args:
      name: what the trace shows.
      kwargs: details of it, of which `step_num` is the step's number.

        >>> with amdjax.profiler.StepTraceAnnotation("train", step_num=1):
        ...     pass
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, _r=1, **kwargs)


def annotate_function(
    func: Callable[..., Any], name: str | None = None, **decorator_kwargs: Any
) -> Callable[..., Any]:
    """Show each call of a function in the trace.

    Args:
      func: the function.
      name: what the trace shows; the function's name by default.
      decorator_kwargs: details of it.

    Returns:
      The function, annotated.

        >>> amdjax.profiler.annotate_function(abs)(-1)
        1
    """
    shown = name or getattr(func, "__qualname__", repr(func))

    @functools.wraps(func)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(str(shown), **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated


class ProfileEvent(NamedTuple):
    """Something in a trace that took time.

    Args:
      name: what it is called.
      start_ns: when it began, in nanoseconds.
      duration_ns: how long it took, in nanoseconds.
      stats: pairs of names and values that were given with it.
    """

    name: str
    start_ns: float
    duration_ns: float
    stats: tuple[tuple[str, Any], ...]

    @property
    def end_ns(self) -> float:
        """When it ended."""
        return self.start_ns + self.duration_ns


class ProfileLine(NamedTuple):
    """The events of one thread.

    Args:
      name: the thread's.
      events: in the order of their beginnings.
    """

    name: str
    events: tuple[ProfileEvent, ...]


class ProfilePlane(NamedTuple):
    """The threads of one process.

    Args:
      name: the process's.
      lines: its threads.
      stats: pairs of names and values of the whole process.
    """

    name: str
    lines: tuple[ProfileLine, ...]
    stats: tuple[tuple[str, Any], ...] = ()


class ProfileData:
    """A trace that was written by `stop_trace`.

    Args:
      planes: the processes in it.
    """

    def __init__(self, planes: tuple[ProfilePlane, ...]) -> None:
        self.planes = planes

    @classmethod
    def from_file(cls, path: os.PathLike[str] | str) -> ProfileData:
        """Read a trace.

        Args:
          path: a `.trace.json.gz` or `perfetto_trace.json.gz`.

        Returns:
          The trace.

        Raises:
          ValueError: the file is no such trace.
        """
        try:
            with gzip.open(path, "rb") as file:
                found = json.loads(file.read())["traceEvents"]
        except (OSError, KeyError, ValueError) as error:
            raise ValueError(f"ProfileData.from_file: {path} is no trace of amdjax") from error
        threads: dict[Any, list[ProfileEvent]] = {}
        for e in found:
            if e["ph"] == "X":
                stats = tuple(e.get("args", {}).items())
                event = ProfileEvent(e["name"], e["ts"] * 1e3, e["dur"] * 1e3, stats)
                threads.setdefault(e["tid"], []).append(event)
        lines = tuple(ProfileLine(str(t), tuple(sorted(es, key=lambda e: e.start_ns)))
                      for t, es in threads.items())  # fmt: skip
        return cls((ProfilePlane("/host:CPU", lines),))

    def find_plane_with_name(self, name: str) -> ProfilePlane | None:
        """The process of a name; None if there is none.

        Args:
          name: the name.

        Returns:
          The process, or None.
        """
        return next((p for p in self.planes if p.name == name), None)


def _refuse(what: str, instead: str) -> NotImplementedError:
    return NotImplementedError(f"profiler.{what} is not supported: {instead}")


def device_memory_profile(backend: str | None = None) -> bytes:
    """Refused: memory is not recorded; `Compiled.memory_analysis` tells what a program needs."""
    raise _refuse("device_memory_profile", "see Compiled.memory_analysis()")


def save_device_memory_profile(filename: str, backend: str | None = None) -> None:
    """Refused; see `device_memory_profile`."""
    raise _refuse("save_device_memory_profile", "see Compiled.memory_analysis()")


def start_server(port: int, requires_backend: bool = True) -> Any:
    """Refused: no port is opened; use `start_trace`."""
    raise _refuse("start_server", "no port is opened, use start_trace(log_dir)")


def stop_server() -> None:
    """Refused: there is no server.

    Raises:
      ValueError: always.
    """
    raise ValueError("No active profiler server.")


def register_subprocess(pid: int, port: int) -> None:
    """Refused: a trace is of one process."""
    raise _refuse("register_subprocess", "a trace is of one process")


_complete(globals(), _docs.PROFILER, _Phrases())
_public_surface(globals())
