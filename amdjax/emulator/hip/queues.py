"""Devices of the emulated HIP runtime, their streams, and captures of streams into graphs.

Work waits in its stream until something waits for it. A program that reads a result too early, or
reuses a pinned buffer too early, therefore always sees old data here, and not once in a while as on
hardware.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from amdjax.core.source_info import SourceInfo, current
from amdjax.emulator.errors import EmulatorError, MemoryFault
from amdjax.emulator.hip.abi import HipFailure, Status
from amdjax.emulator.memory.allocations import Memory
from amdjax.targets import GpuTarget

Task = Callable[[], None]
# A program that never waits must not fill the memory with closures.
_MAX_PENDING = 4096
NON_BLOCKING = 1


class EmulatedDevice:
    """One device: its target, memory and streams.

    Args:
      index: the device's number.
      target: what it is.
      memory_bytes: size of its memory.
    """

    def __init__(self, index: int, target: GpuTarget, memory_bytes: int) -> None:
        self.index, self.target, self.memory_bytes = index, target, memory_bytes
        self.memory = Memory()
        self.used = 0
        self.peers: set[EmulatedDevice] = set()
        self.null_stream: Stream = Stream(self)
        self.streams: list[Stream] = [self.null_stream]

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.refuse_while_capturing()
        for stream in self.streams:
            stream.drain()

    def refuse_while_capturing(self) -> None:
        """Work in the null stream would wait for streams that are being captured."""
        for stream in self.streams:
            if stream.capture is not None and stream.is_blocking:
                stream.capture.is_valid = False
                raise HipFailure(Status.StreamCaptureImplicit)


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
        return not self.flags & NON_BLOCKING

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


@dataclass(frozen=True)
class Node:
    """One operation of a graph.

    Args:
      kind: `kernel`, `copy`, `set`, ...; an update may not change it.
      detail: what else an update may not change.
      task: does it.
    """

    kind: str
    detail: object
    task: Task


@dataclass(eq=False)
class Graph:
    """Operations in an order that respects what depends on what."""

    nodes: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class GraphExec:
    """A graph ready to be launched."""

    nodes: Sequence[Node]


class Capture:
    """A capture in progress: the stream it began in and those that joined."""

    def __init__(self, origin: Stream) -> None:
        self.origin = origin
        self.graph = Graph()
        self.is_valid = True
        self._streams: list[Stream] = [origin]
        self._unjoined: set[Stream] = set()
        origin.capture = self

    def add(self, stream: Stream, kind: str, detail: object, task: Task) -> None:
        self.graph.nodes.append(Node(kind, detail, task))
        if stream is not self.origin:
            self._unjoined.add(stream)

    def wait(self, stream: Stream, other: Stream) -> None:
        """`stream` waits for an event of `other`, which is part of the capture."""
        self._unjoined.discard(other)
        if stream is not self.origin:
            self._unjoined.add(stream)
        if stream.capture is None:
            stream.capture = self
            self._streams.append(stream)

    def end(self) -> Graph:
        for stream in self._streams:
            stream.capture = None
        if not self.is_valid:
            raise HipFailure(Status.StreamCaptureInvalidated)
        if self._unjoined:
            raise HipFailure(Status.StreamCaptureUnjoined)
        return self.graph
