"""Two GPUs for tests, on which programs run as the CPU's kernels; see `fake_gpu`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from amdjax.core.config import config
from amdjax.jit.cpu.kernels import SYMBOL, cpu_kernels, kernel_text
from amdjax.jit.cpu.program import cpu_target
from amdjax.jit.gpu import kernels as device_kernels
from amdjax.jit.plan import plan_program
from amdjax.runtime import devices
from tests.support.fake_gpu import PROTOTYPE, FakeGpu, FakeKernel


def compile_fake(
    closed: Any, target: Any, donated: Any, observe: Any, debug: bool
) -> tuple[Any, Any]:
    """What `compile_device` does for a GPU's target."""
    loader = cpu_kernels()
    plan = plan_program(closed, cpu_target(), donated, observe, loader)
    libraries = loader.load()
    return plan, {id(k): fake_kernel(k, libraries[id(k)]) for k in plan.kernels()}


def fake_kernel(kernel: Any, library: Any) -> FakeKernel:
    function = PROTOTYPE(library[SYMBOL])
    function.library = library  # keeps the code

    def run(grid: int, kernarg: int) -> None:
        function(ctypes.c_void_p(kernarg), 0, grid, 0)

    addresses = np.array([p.role != "size" for p in kernel.params], np.int64)
    return FakeKernel(kernel.name, run, addresses, kernel_text(kernel).encode())


@contextmanager
def fake_platform(**options: Any) -> Iterator[list[FakeGpu]]:
    """Two devices of platform `fake`; the CPU is the default, whatever the environment says."""
    before = config.platforms
    gpus = [FakeGpu(i, "fake", **options) for i in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "_registry", dict(devices._registry))
        patch.setattr(devices, "_found", dict(devices._found))
        patch.setattr(device_kernels, "compile_device", compile_fake)
        patch.setattr(
            device_kernels, "compile_sized_device", lambda *args: (*compile_fake(*args), None)
        )
        devices.register_platform("fake", lambda: gpus, priority=-5, aliases=("gpu",))
        config.update("platforms", "cpu")
        try:
            yield gpus
        finally:
            config.update("platforms", before)
