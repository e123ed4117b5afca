"""Allocation, copies and fills of the emulated HIP runtime."""

from __future__ import annotations

import ctypes

from amdjax.emulator.hip.abi import HipFailure, Status, export, poke
from amdjax.emulator.hip.runtime import Allocation, EmulatedDevice, Runtime
from amdjax.emulator.hip.streams import Stream, stream_of

# hipMemcpyKind
_HOST_TO_HOST, _HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE, _DEFAULT = range(5)
_DEVICE_TO_DEVICE_NO_CU = 1024
# hipMemoryType
_UNREGISTERED, _HOST, _DEVICE = range(3)


@export("hipMalloc", "pz")
def malloc(rt: Runtime, out: int, nbytes: int) -> None:
    poke(out, 0)
    device = rt.device
    if nbytes:
        poke(out, rt.allocate(nbytes, device).address)


@export("hipExtMallocWithFlags", "pzu")
def malloc_with_flags(rt: Runtime, out: int, nbytes: int, flags: int) -> None:
    malloc(rt, out, nbytes)


@export("hipMallocAsync", "pzp")
def malloc_async(rt: Runtime, out: int, nbytes: int, handle: int) -> None:
    poke(out, 0)
    stream = stream_of(rt, handle)
    stream.refuse_while_capturing()
    if nbytes:
        poke(out, rt.allocate(nbytes, stream.device).address)


@export("hipHostMalloc", "pzu")
def host_malloc(rt: Runtime, out: int, nbytes: int, flags: int) -> None:
    poke(out, 0)
    rt.device_of(0)
    if nbytes:
        poke(out, rt.allocate(nbytes, None).address)


def _allocation(rt: Runtime, address: int) -> Allocation:
    found = rt.allocations.at(address)
    if found is None:
        raise HipFailure(Status.InvalidValue, f"no allocation begins at 0x{address:x}")
    return found


@export("hipFree", "p")
def free(rt: Runtime, address: int) -> None:
    if not address:
        return
    found = _allocation(rt, address)
    if found.device is None:
        raise HipFailure(Status.InvalidValue, "pinned host memory is freed by hipHostFree")
    found.device.synchronize()
    _release(rt, found)


def _release(rt: Runtime, allocation: Allocation) -> None:
    """Give memory back, unless work that came before has."""
    if rt.allocations.at(allocation.address) is not allocation:
        raise HipFailure(Status.InvalidValue, f"0x{allocation.address:x} was freed already")
    rt.release(allocation)


@export("hipFreeAsync", "pp")
def free_async(rt: Runtime, address: int, handle: int) -> None:
    stream = stream_of(rt, handle)
    stream.refuse_while_capturing()
    found = _allocation(rt, address)
    if found.device is None:
        raise HipFailure(Status.InvalidValue, "pinned host memory is freed by hipHostFree")
    stream.submit(lambda: _release(rt, found))


@export("hipHostFree", "p")
def host_free(rt: Runtime, address: int) -> None:
    if not address:
        return
    found = _allocation(rt, address)
    if found.device is not None or found.owner is None:
        raise HipFailure(Status.InvalidValue, "not memory of hipHostMalloc")
    rt.synchronize_all()
    rt.release(found)


@export("hipHostGetDevicePointer", "ppu")
def host_get_device_pointer(rt: Runtime, out: int, address: int, flags: int) -> None:
    if rt.allocations.holding(address, 1) is None:
        raise HipFailure(Status.InvalidValue, "not pinned memory")
    poke(out, address)


@export("hipHostRegister", "pzu")
def host_register(rt: Runtime, address: int, nbytes: int, flags: int) -> None:
    if not address or not nbytes:
        raise HipFailure(Status.InvalidValue)
    if rt.allocations.holding(address, nbytes) is not None:
        raise HipFailure(Status.HostMemoryAlreadyRegistered)
    rt.register(Allocation(address, nbytes, None, None))


@export("hipHostUnregister", "p")
def host_unregister(rt: Runtime, address: int) -> None:
    found = rt.allocations.at(address)
    if found is None or found.device is not None or found.owner is not None:
        raise HipFailure(Status.HostMemoryNotRegistered)
    rt.synchronize_all()
    rt.release(found)


@export("hipMemGetInfo", "pp")
def mem_get_info(rt: Runtime, free_out: int, total_out: int) -> None:
    device = rt.device
    poke(free_out, device.memory_bytes - device.used)
    poke(total_out, device.memory_bytes)


@export("hipMemPtrGetInfo", "pp")
def mem_ptr_get_info(rt: Runtime, address: int, out: int) -> None:
    poke(out, _allocation(rt, address).nbytes)


@export("hipPointerGetAttributes", "pp")
def pointer_get_attributes(rt: Runtime, out: int, address: int) -> None:
    """Writes a `hipPointerAttribute_t`: type, device, device pointer, host pointer, flags."""
    found = rt.allocations.holding(address, 1)
    if found is None:
        kind, device, pointers = _UNREGISTERED, -1, (0, 0)
    elif found.device is None:
        kind, device, pointers = _HOST, 0, (address, address)
    else:
        kind, device, pointers = _DEVICE, found.device.index, (address, 0)
    for offset, value, format in (
        (0, kind, "i"), (4, device, "i"), (8, pointers[0], "Q"), (16, pointers[1], "Q"),
        (24, 0, "i"), (28, 0, "I"),
    ):  # fmt: skip
        poke(out and out + offset, value, format)


# Copies


def _is_device(allocation: Allocation | None) -> bool:
    return allocation is not None and allocation.device is not None


def _check_direction(kind: int, to: Allocation | None, source: Allocation | None) -> None:
    """Memory of the host may not stand for memory of a device; pinned memory is either."""
    if kind not in (*range(5), _DEVICE_TO_DEVICE_NO_CU):
        raise HipFailure(Status.InvalidMemcpyDirection, f"copy direction {kind}")
    wants_device = {
        _HOST_TO_DEVICE: (True, False),
        _DEVICE_TO_HOST: (False, True),
        _DEVICE_TO_DEVICE: (True, True),
        _DEVICE_TO_DEVICE_NO_CU: (True, True),
    }.get(kind, (False, False))
    for name, allocation, wanted in zip(("destination", "source"), (to, source), wants_device):
        if wanted and allocation is None:
            raise HipFailure(Status.InvalidValue, f"the {name} is no memory of a device")


def _submit_copy(rt: Runtime, stream: Stream, to: int, source: int, nbytes: int, kind: int) -> None:
    """A copy in stream order; pageable memory of the host is read or written before the return."""
    if not nbytes:
        return
    if not to or not source:
        raise HipFailure(Status.InvalidValue, "a copy from or to NULL")
    target, origin = rt.allocations.holding(to, nbytes), rt.allocations.holding(source, nbytes)
    _check_direction(kind, target, origin)
    detail = nbytes, _is_device(target), _is_device(origin)
    what: int | bytes = source
    if origin is None and stream.capture is None:
        what = ctypes.string_at(source, nbytes)

    def copy() -> None:
        _check_still_there(rt, target, to, nbytes)
        _check_still_there(rt, origin, source, nbytes)
        _move(rt, to, what, nbytes)

    stream.submit(copy, "copy", detail)
    if target is None and stream.capture is None:
        stream.wait()


def _check_still_there(rt: Runtime, then: Allocation | None, address: int, nbytes: int) -> None:
    """What was an allocation when a copy was issued must be one when it is made, if another."""
    if then is not None and rt.allocations.holding(address, nbytes) is None:
        text = f"memory at 0x{address:x} is used after its release"
        raise HipFailure(Status.IllegalAddress, text)


def _move(rt: Runtime, to: int, source: int | bytes, nbytes: int) -> None:
    """Copy, and tell the device's memory what is written now."""
    ctypes.memmove(to, source, nbytes)
    target = rt.allocations.holding(to, nbytes)
    if target is None or target.device is None:
        return
    memory = target.device.memory
    if isinstance(source, int) and _owner(rt, source, nbytes) is target.device:
        memory.copied(to, source, nbytes)
    else:
        memory.written(to, nbytes)


def _owner(rt: Runtime, address: int, nbytes: int) -> EmulatedDevice | None:
    found = rt.allocations.holding(address, nbytes)
    return None if found is None else found.device


def _copy_now(rt: Runtime, stream: Stream, to: int, source: int, nbytes: int, kind: int) -> None:
    stream.refuse_while_capturing()
    _submit_copy(rt, stream, to, source, nbytes, kind)
    stream.wait()


@export("hipMemcpy", "ppzi")
def memcpy(rt: Runtime, to: int, source: int, nbytes: int, kind: int) -> None:
    _copy_now(rt, rt.device.null_stream, to, source, nbytes, kind)


@export("hipMemcpyWithStream", "ppzip")
def memcpy_with_stream(
    rt: Runtime, to: int, source: int, nbytes: int, kind: int, handle: int
) -> None:
    _copy_now(rt, stream_of(rt, handle), to, source, nbytes, kind)


@export("hipMemcpyAsync", "ppzip")
def memcpy_async(rt: Runtime, to: int, source: int, nbytes: int, kind: int, handle: int) -> None:
    _submit_copy(rt, stream_of(rt, handle), to, source, nbytes, kind)


def _export_direction(suffix: str, kind: int) -> None:
    """`hipMemcpyHtoD` and its asynchronous form, and so on."""

    def now(rt: Runtime, to: int, source: int, nbytes: int) -> None:
        memcpy(rt, to, source, nbytes, kind)

    def later(rt: Runtime, to: int, source: int, nbytes: int, handle: int) -> None:
        memcpy_async(rt, to, source, nbytes, kind, handle)

    export(f"hipMemcpy{suffix}", "ppz")(now)
    export(f"hipMemcpy{suffix}Async", "ppzp")(later)


for _suffix, _kind in (("HtoD", _HOST_TO_DEVICE), ("DtoH", _DEVICE_TO_HOST),
                       ("DtoD", _DEVICE_TO_DEVICE)):  # fmt: skip
    _export_direction(_suffix, _kind)


def _check_owner(rt: Runtime, address: int, nbytes: int, device: EmulatedDevice) -> None:
    if _owner(rt, address, nbytes) is not device:
        raise HipFailure(
            Status.InvalidValue, f"0x{address:x} is not memory of device {device.index}"
        )


@export("hipMemcpyPeer", "pipiz")
def memcpy_peer(
    rt: Runtime, to: int, to_device: int, source: int, source_device: int, nbytes: int
) -> None:
    stream = rt.device.null_stream
    stream.refuse_while_capturing()
    memcpy_peer_async(rt, to, to_device, source, source_device, nbytes, 0)
    stream.wait()


@export("hipMemcpyPeerAsync", "pipizp")
def memcpy_peer_async(
    rt: Runtime, to: int, to_device: int, source: int, source_device: int, nbytes: int, handle: int
) -> None:
    target, origin = rt.device_of(to_device), rt.device_of(source_device)
    if nbytes:
        _check_owner(rt, to, nbytes, target)
        _check_owner(rt, source, nbytes, origin)
        _submit_copy(rt, stream_of(rt, handle), to, source, nbytes, _DEVICE_TO_DEVICE)


# Fills


def _submit_fill(rt: Runtime, stream: Stream, to: int, value: int, width: int, count: int) -> None:
    if not count:
        return
    target = rt.allocations.holding(to, width * count)
    if target is None:
        raise HipFailure(Status.InvalidValue, "not memory of a device")
    data = (value & (1 << 8 * width) - 1).to_bytes(width, "little") * count

    def fill() -> None:
        _check_still_there(rt, target, to, width * count)
        _move(rt, to, data, width * count)

    stream.submit(fill, "set", (width, count))


def _export_fill(suffix: str, width: int, value: str) -> None:
    """`hipMemset` and the like, and their asynchronous forms."""

    def now(rt: Runtime, to: int, fill: int, count: int) -> None:
        stream = rt.device.null_stream
        _submit_fill(rt, stream, to, fill, width, count)
        stream.wait()

    def later(rt: Runtime, to: int, fill: int, count: int, handle: int) -> None:
        _submit_fill(rt, stream_of(rt, handle), to, fill, width, count)

    export(f"hipMemset{suffix}", f"p{value}z")(now)
    export(f"hipMemset{suffix}Async", f"p{value}zp")(later)


for _suffix, _width, _value in (("", 1, "i"), ("D8", 1, "b"), ("D16", 2, "h"), ("D32", 4, "i")):
    _export_fill(_suffix, _width, _value)
