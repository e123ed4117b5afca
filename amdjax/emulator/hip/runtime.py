"""State of the emulated HIP runtime: devices, their memory, handles, errors."""

from __future__ import annotations

import bisect
import ctypes
import gc
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

import numpy as np

from amdjax.core.integers import round_up
from amdjax.emulator.errors import EmulatorError
from amdjax.emulator.hip.abi import DESCRIPTIONS, Export, HipFailure, Status
from amdjax.emulator.hip.queues import EmulatedDevice
from amdjax.emulator.memory.allocations import Memory
from amdjax.targets import GpuTarget

__all__ = ["Allocation", "EmulatedDevice", "Runtime"]

T = TypeVar("T")
_ALIGNMENT = 256
_STRINGS = 256


@contextmanager
def _no_finalizers() -> Iterator[None]:
    """Keep the garbage collector away: a buffer it finds would be freed amid the call under way."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True, eq=False)
class Allocation:
    """A range that devices can address.

    Args:
      address, nbytes: where.
      device: whose memory it is; None for pinned host memory, which all devices see.
      owner: keeps the memory; None where that is the program's.
    """

    address: int
    nbytes: int
    device: EmulatedDevice | None
    owner: Any


class Allocations:
    """All allocations by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._found: dict[int, Allocation] = {}

    def add(self, allocation: Allocation) -> None:
        bisect.insort(self._starts, allocation.address)
        self._found[allocation.address] = allocation

    def at(self, address: int) -> Allocation | None:
        """What begins at an address."""
        return self._found.get(address)

    def __iter__(self) -> Iterator[Allocation]:
        return iter(list(self._found.values()))

    def remove(self, address: int) -> None:
        del self._found[address]
        self._starts.remove(address)

    def holding(self, address: int, nbytes: int) -> Allocation | None:
        """What an address lies in; None for memory of the program's own.

        Raises:
          HipFailure: the range runs out of its allocation.
        """
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        found = self._found[self._starts[index]]
        if address >= found.address + found.nbytes:
            return None
        if address + nbytes > found.address + found.nbytes:
            raise HipFailure(
                Status.InvalidValue,
                f"{nbytes} bytes at 0x{address:x} run out of an allocation of {found.nbytes} "
                f"bytes at 0x{found.address:x}",
            )
        return found


class Handles:
    """Opaque pointers of streams, events, modules, .... None is ever used twice."""

    def __init__(self) -> None:
        # Far from any address, odd ones never: a handle taken for a pointer shows at once.
        self._next = count(0x7E00_0000_0000_0010, 16)
        self._objects: dict[int, Any] = {}

    def add(self, item: Any) -> int:
        handle = next(self._next)
        self._objects[handle] = item
        return handle

    def get(self, handle: int, kind: type[T]) -> T:
        found = self._objects.get(handle)
        if not isinstance(found, kind):
            name = kind.__name__.lower()
            raise HipFailure(Status.InvalidHandle, f"0x{handle:x} is no handle of {name}s")
        return found

    def remove(self, handle: int) -> None:
        del self._objects[handle]


class Runtime:
    """What the exported functions work on.

    Attributes:
      devices: in order of their numbers.
    """

    def __init__(self) -> None:
        self.devices: list[EmulatedDevice] = []
        self.handles = Handles()
        self.allocations = Allocations()
        self._lock = threading.RLock()
        self._local = threading.local()
        # C strings that were handed out lately; callers copy them at once.
        self._strings: deque[Any] = deque(maxlen=_STRINGS)

    @property
    def device(self) -> EmulatedDevice:
        """The calling thread's current device."""
        return self.device_of(getattr(self._local, "device", 0))

    def device_of(self, index: int) -> EmulatedDevice:
        if not self.devices:
            raise HipFailure(Status.NoDevice)
        if not 0 <= index < len(self.devices):
            raise HipFailure(Status.InvalidDevice, f"there is no device {index}")
        return self.devices[index]

    def add_device(self, target: GpuTarget, memory_bytes: int) -> int:
        """The number of a new device."""
        device = EmulatedDevice(len(self.devices), target, memory_bytes)
        with self._lock:
            self.devices.append(device)
            for allocation in self.allocations:
                if allocation.device is None:
                    device.memory.register(allocation.address, allocation.nbytes, allocation.owner)
        return device.index

    def set_device(self, index: int) -> None:
        self._local.device = self.device_of(index).index

    # Memory

    def allocate(self, nbytes: int, device: EmulatedDevice | None) -> Allocation:
        """Memory of a device, or pinned memory of the host that all devices see."""
        if device is not None and device.used + nbytes > device.memory_bytes:
            raise HipFailure(
                Status.OutOfMemory,
                f"{nbytes} bytes asked for, {device.used} of {device.memory_bytes} in use",
            )
        try:
            backing = np.empty(nbytes + _ALIGNMENT, np.uint8)
        except (MemoryError, ValueError):  # the latter where no array can be so large
            raise HipFailure(Status.OutOfMemory) from None
        allocation = Allocation(round_up(backing.ctypes.data, _ALIGNMENT), nbytes, device, backing)
        if device is not None:
            device.used += nbytes
        self.register(allocation)
        return allocation

    def register(self, allocation: Allocation) -> None:
        """Let devices access memory."""
        self.allocations.add(allocation)
        # What the host or another device writes to cannot be followed, and counts as written.
        device = allocation.device
        private = device is not None and not any(device in d.peers for d in self.devices)
        for memory in self._seen_from(allocation):
            memory.register(
                allocation.address, allocation.nbytes, allocation.owner, initialized=not private
            )

    def release(self, allocation: Allocation) -> None:
        self.allocations.remove(allocation.address)
        for memory in self._seen_from(allocation):
            memory.release(allocation.address)
        if allocation.device is not None:
            allocation.device.used -= allocation.nbytes

    def _seen_from(self, allocation: Allocation) -> Iterator[Memory]:
        owner = allocation.device
        for device in self.devices:
            if owner is None or owner is device or owner in device.peers:
                yield device.memory

    def enable_peer(self, device: EmulatedDevice, peer: EmulatedDevice) -> None:
        device.peers.add(peer)
        for allocation in self.allocations:
            if allocation.device is peer:
                peer.memory.written(allocation.address, allocation.nbytes)
                device.memory.register(allocation.address, allocation.nbytes, allocation.owner)

    def disable_peer(self, device: EmulatedDevice, peer: EmulatedDevice) -> None:
        device.peers.remove(peer)
        for allocation in self.allocations:
            if allocation.device is peer:
                device.memory.release(allocation.address)

    def synchronize_all(self) -> None:
        for device in self.devices:
            device.synchronize()

    # Errors

    def entry(self, export: Export) -> Callable[..., int]:
        """What C calls: one call at a time, failures as codes."""
        function = export.function

        def call(*arguments: int) -> int:
            with self._lock, _no_finalizers():
                try:
                    return function(self, *arguments) or 0
                except HipFailure as failure:
                    return self.fail(failure.status, failure.detail)
                except EmulatorError as error:
                    return self.fail(Status.LaunchFailure, str(error))
                except BaseException as error:
                    # Nothing can pass through the C frames in between.
                    self._local.interruption = error
                    return self.fail(Status.Unknown, f"{export.name}: {error!r}")

        return call

    def interruption(self) -> BaseException | None:
        """What ended this thread's latest call that was not a failure, such as Ctrl-C; once."""
        error = getattr(self._local, "interruption", None)
        self._local.interruption = None
        return error

    def fail(self, status: Status, detail: str) -> int:
        """Remember an error for this thread; returns its code."""
        self._local.error, self._local.detail = status, (status, detail)
        return int(status)

    def last_error(self, clear: bool) -> int:
        status = getattr(self._local, "error", Status.Success)
        if clear:
            self._local.error = Status.Success
        return int(status)

    def describe(self, code: int) -> int:
        """Address of a text for an error code; of this thread's latest error, with its details."""
        if code not in DESCRIPTIONS:
            return self.string(DESCRIPTIONS[Status.Unknown])
        text = DESCRIPTIONS[Status(code)]
        status, detail = getattr(self._local, "detail", (None, ""))
        return self.string(f"{text}: {detail}" if status == code and detail else text)

    def string(self, text: str) -> int:
        """Address of a C string."""
        buffer = ctypes.create_string_buffer(text.encode())
        self._strings.append(buffer)
        return ctypes.addressof(buffer)
