"""What programs ask of streams and events in the emulated HIP runtime."""

from __future__ import annotations

import ctypes

from amdjax.emulator.hip.abi import HipFailure, Status, export, poke
from amdjax.emulator.hip.queues import NON_BLOCKING, Event, Marker, Stream
from amdjax.emulator.hip.runtime import Runtime

_DISABLE_TIMING = 2


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
    if flags not in (0, NON_BLOCKING):
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
