"""An emulated GPU that programs run on without HIP: to count what kernels do.

`AMDJAX_EMULATE` puts the emulator behind HIP, so that the whole way to a GPU is exercised. This
device is the short way, and needs neither hip-python nor a setting.
"""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import count
from typing import Any

import numpy as np

from amdjax.core.integers import round_up
from amdjax.emulator.code_object import CodeObject, Kernel
from amdjax.emulator.debug.counters import sample_size
from amdjax.emulator.errors import EmulatorError
from amdjax.emulator.isa import check_emulated
from amdjax.emulator.machine import launch
from amdjax.emulator.memory.allocations import Memory
from amdjax.runtime.gpu import DeviceError, GpuDevice
from amdjax.targets import GpuTarget, get, resident_workgroups

_ALIGN = 256


class EmulatedDevice(GpuDevice):
    """Kernels run when they are launched; every buffer is an allocation of its own."""

    platform = "emulated"

    def __init__(self, target: GpuTarget):
        super().__init__(0, f"emulated {target.name}", target, exact_memory=True)
        self._memory = Memory()
        self._kernels: dict[int, tuple[Kernel, bool]] = {}
        self._handles = count(1)

    def _map(self, nbytes: int) -> int | None:
        try:
            owner = np.empty(nbytes + _ALIGN, np.uint8)
        except MemoryError:
            return None
        if sample_size() is not None:
            owner.fill(255)  # so that what a sample leaves out shows
        address = round_up(owner.ctypes.data, _ALIGN)
        return self._memory.register(address, nbytes, owner, initialized=False)

    def _unmap(self, address: int) -> None:
        self._memory.release(address)

    def _write(self, address: int, data: np.ndarray) -> None:
        _bytes_at(address, data.nbytes)[:] = data.reshape(-1).view(np.uint8)
        self._memory.written(address, data.nbytes)

    def _read(self, address: int, out: np.ndarray) -> None:
        out.reshape(-1).view(np.uint8)[:] = _bytes_at(address, out.nbytes)

    def _copy(self, to: int, source: int, nbytes: int) -> None:
        _bytes_at(to, nbytes)[:] = _bytes_at(source, nbytes)
        self._memory.copied(to, source, nbytes)

    def _load(self, kernel: Any) -> int:
        handle = next(self._handles)
        self._kernels[handle] = CodeObject(kernel.code).kernels[kernel.name], kernel.cooperative
        return handle

    def _unload(self, handle: int) -> None:
        del self._kernels[handle]

    def _launch(self, handle: int, grid: int, workgroup: int, lds: int, kernarg: bytes) -> None:
        kernel, cooperative = self._kernels[handle]
        try:
            launch(kernel, grid, workgroup, kernarg, self._memory, lds, cooperative=cooperative)
        except EmulatorError as error:
            raise DeviceError(str(error), type(error).__name__) from None

    def _resident(self, handle: int, workgroup: int) -> int:
        return resident_workgroups(self.target, workgroup)

    def _wait(self) -> None:
        """Kernels have run by the time their launch returns."""


@cache
def emulated_device(name: str) -> EmulatedDevice:
    """The emulated device of a target.

    Args:
      name: of an AMD target, such as `gfx942`.

    Raises:
      ValueError: there is no emulation of it.
    """
    check_emulated(name)
    return EmulatedDevice(get(name))


def _bytes_at(address: int, nbytes: int) -> np.ndarray:
    memory: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.frombuffer(memory, np.uint8)
