"""Contents of arrays in the memory of a device."""

from __future__ import annotations

from weakref import WeakValueDictionary

from amdjax.core.array import ConcreteArray
from amdjax.core.sharding import Space
from amdjax.runtime.gpu import DeviceBuffer, GpuDevice

SMALL = 16  # bytes; such arrays are mostly constants, of which a device keeps one copy


def buffer_on(x: ConcreteArray, device: GpuDevice, space: Space = Space.Device) -> DeviceBuffer:
    """The contents of an array in a memory space of a GPU, where they may be already."""
    buffer = x.buffer
    if isinstance(buffer, DeviceBuffer):
        if buffer.device is device and buffer.space is space:
            return buffer
        if buffer.device is device:
            moved = device.alloc(buffer.nbytes, space)
            device.copy(moved.address, buffer.address, buffer.nbytes)
            return moved
        on_devices = buffer.space is space is Space.Device
        if on_devices and buffer.device.platform == device.platform:
            moved = device.alloc(buffer.nbytes)
            device.copy_from(buffer.device, buffer.address, moved.address, buffer.nbytes)
            return moved
    value = x._view()
    if value.nbytes <= SMALL and space is Space.Device:
        return device.constant(value)
    return device.upload(value, space)


# What holds one of these holds the host's buffer too, so its id stays what it is.
_uploads: WeakValueDictionary[tuple[int, int], DeviceBuffer] = WeakValueDictionary()


def shared_upload(x: ConcreteArray, device: GpuDevice) -> DeviceBuffer:
    """The contents of a constant on a device, one copy for all programs there."""
    if x.nbytes <= SMALL:
        return buffer_on(x, device)  # shared already, and kept when the host's buffer has gone
    key = id(device), id(x.buffer)
    found = _uploads.get(key)
    if found is None:
        found = _uploads[key] = buffer_on(x, device)
    return found
