"""Streams and events of the emulated HIP runtime.

Work waits in its stream until something waits for it. A program that reads a result too early, or
reuses a pinned buffer too early, therefore always sees old data here, and not once in a while as on
hardware.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from amdjax.core.source_info import SourceInfo, current
from amdjax.emulator.errors import EmulatorError, MemoryFault
from amdjax.emulator.hip.abi import HipFailure, Status, export, poke

if TYPE_CHECKING:
    from amdjax.emulator.hip.graphs import Capture
    from amdjax.emulator.hip.runtime import EmulatedDevice, Runtime

__all__ = ["Event", "Marker", "Stream"]

Task = Callable[[], None]
# A program that never waits must not fill the memory with closures.
_MAX_PENDING = 4096
_NON_BLOCKING, _DISABLE_TIMING = 1, 2


class Stream:
    """A queue of work for a device.

    Args:
      device: where the work runs.
      flags: `hipStreamNonBlocking` (1) keeps the stream independent of the null stream.
      priority: as asked for; without effect.
    """

    def __init__(self, device: EmulatedDevice, flags: int = 0, priority: int = 0) -> None:
        self.device, self.flags, self.priority = device, flags, priority
        self.capture: Capture | None = None
        self._pending: deque[tuple[Task, SourceInfo]] = deque()

    @property
    def is_null(self) -> bool:
        return self is self.device.null_stream

    @property
    def is_blocking(self) -> bool:
        """Ordered with the null stream."""
        return not self.flags & _NON_BLOCKING

    def submit(self, task: Task, kind: str = "wait", detail: object = None) -> None:
        """Append work; `kind` and `detail` describe it for a graph, if one is being captured."""
        if self.capture is not None:
            self.capture.add(self, kind, detail, task)
            return
        if self.is_null:
            self.device.refuse_while_capturing()
            for other in self.device.streams:
                if other.is_blocking and other is not self:
                    other.drain()
        elif self.is_blocking:
            self.device.null_stream.drain()
        self._pending.append((task, current()))
        if len(self._pending) > _MAX_PENDING:
            self.drain()

    def drain(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run what is pending, or a part of it.

        Raises:
          HipFailure: a kernel failed; what was to follow it is dropped. The message says on which
            line of the user the kernel was launched.
        """
        while self._pending and not until():
            task, place = self._pending.popleft()
            try:
                task()
            except EmulatorError as error:
                self._pending.clear()
                address = type(error) is MemoryFault
                status = Status.IllegalAddress if address else Status.LaunchFailure
                launched = f", launched at {place}" if place.code is not None else ""
                raise HipFailure(status, f"{error}{launched}") from error
            except BaseException:
                self._pending.clear()
                raise

    def wait(self) -> None:
        """Finish all work; of the null stream, that of the streams ordered with it too."""
        self.refuse_while_capturing()
        if self.is_null:
            for other in self.device.streams:
                if other.is_blocking:
                    other.drain()
        self.drain()

    @property
    def is_idle(self) -> bool:
        return not self._pending

    def refuse_while_capturing(self) -> None:
        """Waiting for a stream under capture spoils the capture."""
        if self.capture is not None:
            self.capture.is_valid = False
            raise HipFailure(Status.StreamCaptureUnsupported)


class Marker:
    """A place in a stream that an event was recorded at."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.capture = stream, stream.capture
        self.reached_at: int | None = None

    def reach(self) -> None:
        self.reached_at = time.perf_counter_ns()

    def wait(self) -> None:
        self.stream.drain(until=lambda: self.reached_at is not None)


class Event:
    """An event; before it is recorded it counts as complete.

    Args:
      flags: `hipEventDisableTiming` is 2.
    """

    def __init__(self, flags: int = 0) -> None:
        self.flags = flags
        self.marker: Marker | None = None


def stream_of(rt: Runtime, handle: int) -> Stream:
    """The stream of a handle, by NULL the current device's null stream."""
    return rt.device.null_stream if handle in (0, 1, 2) else rt.handles.get(handle, Stream)


@export("hipStreamCreate", "p")
def stream_create(rt: Runtime, out: int) -> None:
    stream_create_with_priority(rt, out, 0, 0)


@export("hipStreamCreateWithFlags", "pu")
def stream_create_with_flags(rt: Runtime, out: int, flags: int) -> None:
    stream_create_with_priority(rt, out, flags, 0)


@export("hipStreamCreateWithPriority", "pui")
def stream_create_with_priority(rt: Runtime, out: int, flags: int, priority: int) -> None:
    if flags not in (0, _NON_BLOCKING):
        raise HipFailure(Status.InvalidValue, f"stream flags {flags}")
    stream = Stream(rt.device, flags, priority)
    poke(out, rt.handles.add(stream))
    rt.device.streams.append(stream)


@export("hipStreamDestroy", "p")
def stream_destroy(rt: Runtime, handle: int) -> None:
    stream = rt.handles.get(handle, Stream)
    stream.drain()
    stream.device.streams.remove(stream)
    rt.handles.remove(handle)


@export("hipStreamSynchronize", "p")
def stream_synchronize(rt: Runtime, handle: int) -> None:
    stream_of(rt, handle).wait()


@export("hipStreamQuery", "p")
def stream_query(rt: Runtime, handle: int) -> None:
    """Says "not ready" once where there is work, which is done then: who polls, gets there."""
    stream = stream_of(rt, handle)
    idle = stream.is_idle
    stream.wait()
    if not idle:
        raise HipFailure(Status.NotReady)


@export("hipStreamWaitEvent", "ppu")
def stream_wait_event(rt: Runtime, handle: int, event: int, flags: int) -> None:
    stream = stream_of(rt, handle)
    marker = rt.handles.get(event, Event).marker
    if marker is None:
        return
    if marker.capture is not None:
        # Waiting for a captured event makes a stream part of that capture.
        marker.capture.wait(stream, marker.stream)
    else:
        stream.submit(marker.wait)


@export("hipStreamGetFlags", "pp")
def stream_get_flags(rt: Runtime, handle: int, out: int) -> None:
    poke(out, stream_of(rt, handle).flags, "I")


@export("hipStreamGetPriority", "pp")
def stream_get_priority(rt: Runtime, handle: int, out: int) -> None:
    poke(out, stream_of(rt, handle).priority, "i")


@export("hipStreamGetDevice", "pp")
def stream_get_device(rt: Runtime, handle: int, out: int) -> None:
    poke(out, stream_of(rt, handle).device.index, "i")


@export("hipDeviceGetStreamPriorityRange", "pp")
def priority_range(rt: Runtime, least: int, greatest: int) -> None:
    poke(least, 0, "i")
    poke(greatest, 0, "i")


@export("hipLaunchHostFunc", "ppp")
def launch_host_function(rt: Runtime, handle: int, function: int, data: int) -> None:
    if not function:
        raise HipFailure(Status.InvalidValue)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
    stream_of(rt, handle).submit(lambda: call(data), "host", function)


@export("hipEventCreate", "p")
def event_create(rt: Runtime, out: int) -> None:
    event_create_with_flags(rt, out, 0)


@export("hipEventCreateWithFlags", "pu")
def event_create_with_flags(rt: Runtime, out: int, flags: int) -> None:
    poke(out, rt.handles.add(Event(flags)))


@export("hipEventDestroy", "p")
def event_destroy(rt: Runtime, handle: int) -> None:
    rt.handles.get(handle, Event)
    rt.handles.remove(handle)


@export("hipEventRecord", "pp")
def event_record(rt: Runtime, handle: int, stream: int) -> None:
    event, where = rt.handles.get(handle, Event), stream_of(rt, stream)
    event.marker = marker = Marker(where)
    if marker.capture is None:
        where.submit(marker.reach)


@export("hipEventRecordWithFlags", "ppu")
def event_record_with_flags(rt: Runtime, handle: int, stream: int, flags: int) -> None:
    event_record(rt, handle, stream)


def _marker(rt: Runtime, handle: int) -> Marker | None:
    marker = rt.handles.get(handle, Event).marker
    if marker is not None and marker.capture is not None:
        raise HipFailure(Status.CapturedEvent)
    return marker


@export("hipEventSynchronize", "p")
def event_synchronize(rt: Runtime, handle: int) -> None:
    marker = _marker(rt, handle)
    if marker is not None:
        marker.wait()


@export("hipEventQuery", "p")
def event_query(rt: Runtime, handle: int) -> None:
    marker = _marker(rt, handle)
    if marker is not None and marker.reached_at is None:
        marker.wait()
        raise HipFailure(Status.NotReady)


@export("hipEventElapsedTime", "ppp")
def event_elapsed_time(rt: Runtime, out: int, start: int, stop: int) -> None:
    times = []
    for handle in (start, stop):
        marker = _marker(rt, handle)
        if marker is None or rt.handles.get(handle, Event).flags & _DISABLE_TIMING:
            raise HipFailure(Status.InvalidHandle, "the event has no time")
        if marker.reached_at is None:
            raise HipFailure(Status.NotReady)
        times.append(marker.reached_at)
    poke(out, (times[1] - times[0]) / 1e6, "f")
