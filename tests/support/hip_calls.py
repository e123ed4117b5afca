"""The emulator's HIP library as a C program calls it, for the tests of it."""

from __future__ import annotations

import ctypes
import platform
from ctypes import byref, c_size_t

import numpy as np
import pytest

from amdjax.emulator.hip.abi import Status
from amdjax.emulator.hip.library import EmulatedHip
from tests.support.hip_kernels import code_object

MEMORY = 1 << 20
TO_DEVICE, TO_HOST, ON_DEVICE, DEFAULT = 1, 2, 3, 4
ONES = np.ones(64, np.float32)
LINUX_X86 = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux", reason="Linux on x86-64"
)


class Hip:
    """Functions by attribute; pointers are integers, and the result is the error's name."""

    def __init__(self, *targets: str) -> None:
        self.emulated = EmulatedHip(MEMORY, ["hipNotEmulated"])
        self.emulated.devices(targets)
        self.library = self.emulated.library.handle

    def __getattr__(self, name: str):
        function = getattr(self.library, name)

        def call(*args):
            wide = [c_size_t(a) if isinstance(a, int) and not -(1 << 31) <= a < 1 << 31 else a
                    for a in args]  # fmt: skip
            return Status(function(*wide)).name

        return call

    def make(self, name: str, *args) -> int:
        out = c_size_t()
        assert getattr(self, name)(byref(out), *args) == "Success"
        return out.value

    def text(self, status: str) -> str:
        function = self.library.hipGetErrorString
        function.restype = ctypes.c_char_p
        return function(int(Status[status])).decode()

    def upload(self, array: np.ndarray) -> int:
        address = self.make("hipMalloc", c_size_t(array.nbytes))
        assert self.hipMemcpy(address, array.ctypes.data, c_size_t(array.nbytes), TO_DEVICE) == (
            "Success"
        )
        return address

    def download(self, address: int, count: int, dtype=np.float32) -> np.ndarray:
        out = np.empty(count, dtype)
        status = self.hipMemcpy(out.ctypes.data, address, c_size_t(out.nbytes), TO_HOST)
        assert status == "Success", self.text(status)
        return out

    def load(self, target: str = "gfx942", name: bytes = b"saxpy") -> int:
        module = self.make("hipModuleLoadData", code_object(target))
        return self.make("hipModuleGetFunction", c_size_t(module), name)

    def launch(self, function, kernarg: bytes, grid=1, block=64, stream=0, shared=0) -> str:
        data, size = ctypes.create_string_buffer(kernarg, len(kernarg)), c_size_t(len(kernarg))
        extra = (c_size_t * 5)(1, ctypes.addressof(data), 2, ctypes.addressof(size), 3)
        return self.hipModuleLaunchKernel(
            c_size_t(function), grid, 1, 1, block, 1, 1, shared, c_size_t(stream), None, extra
        )
