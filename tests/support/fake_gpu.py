"""A GPU for tests whose memory is the host's and whose kernels are the CPU's.

It is as lazy as real ones: nothing happens before somebody waits. Its addresses mean nothing to the
host, who would crash on them. Memory starts with bytes that no program means, copies are checked
against what is mapped, and kernels fail on demand.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amdjax.runtime.gpu import DeviceError, GpuDevice

PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
POISON = 0xCD
ELSEWHERE = 1 << 46  # added to addresses of the host


@dataclass(frozen=True)
class FakeKernel:
    """What `GpuKernel` is for real devices: here `run(grid, address of arguments)` is its code.

    `addresses` says with 1 and 0 which arguments are addresses.
    """

    name: str
    run: Callable[[int, int], None] = field(compare=False)
    addresses: Any = 1
    code: bytes = b""
    workgroup: int = 1
    lds_bytes: int = 0
    cooperative: bool = False


class FakeGpu(GpuDevice):
    """See the module; `log` tells what was executed."""

    platform = "fake"
    can_capture = True

    def __init__(self, id: int = 0, target: Any = None, *, memory: int = 1 << 30, **options: Any):
        super().__init__(id, "Fake 9000", target, **options)
        self.memory = memory
        self.allocations: dict[int, np.ndarray] = {}
        self.sizes: dict[int, int] = {}
        self.handles: dict[int, Any] = {}
        self.graphs: dict[int, list[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        self.queue: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.recording: list[Any] | None = None
        self.failing: set[str] = set()
        self.log: list[str] = []
        self._next = 0
        self._draining = threading.RLock()
        self.answer = ""

    def _handle(self) -> int:
        self._next += 1
        return self._next

    def _map(self, nbytes: int) -> int | None:
        if sum(self.sizes.values()) + nbytes > self.memory:
            return None
        block = np.full(nbytes + 256, POISON, np.uint8)
        address = -(-block.ctypes.data // 256) * 256 + ELSEWHERE
        self.allocations[address], self.sizes[address] = block, nbytes
        self.log.append("map")
        return address

    def _unmap(self, address: int) -> None:
        self._drain()
        self.allocations.pop(address).fill(POISON)
        del self.sizes[address]

    def _check(self, address: int, nbytes: int) -> None:
        if not any(a <= address and address + nbytes <= a + n for a, n in self.sizes.items()):
            raise DeviceError(f"{nbytes} bytes at {address:#x} are not mapped", "fakeErrorAddress")

    def _issue(self, what: Callable[..., None], *args: Any) -> None:
        (self.queue if self.recording is None else self.recording).append((what, args))

    def _answer(self) -> None:
        """Fail as `answer` says: drivers may tell of earlier work at any call."""
        if self.answer:
            raise DeviceError("the driver refuses", self.answer)

    def _drain(self) -> None:
        with self._draining:  # one thread at a time, or work would get out of order
            queue, self.queue = self.queue, []
            for what, args in queue:
                what(*args)

    def _write(self, address: int, data: np.ndarray) -> None:
        assert data.flags.c_contiguous
        self._answer()
        self._check(address, data.nbytes)
        self._issue(self._move, address - ELSEWHERE, data.tobytes(), data.nbytes)

    def _move(self, to: int, source: Any, nbytes: int) -> None:
        self.log.append("copy")
        ctypes.memmove(to, source, nbytes)

    def _read(self, address: int, out: np.ndarray) -> None:
        assert out.flags.c_contiguous and self.recording is None
        self._check(address, out.nbytes)
        self._drain()
        self.log.append("read")
        ctypes.memmove(out.ctypes.data, address - ELSEWHERE, out.nbytes)

    def _copy(self, to: int, source: int, nbytes: int) -> None:
        self._answer()
        self._check(to, nbytes)
        self._check(source, nbytes)
        self._issue(self._move, to - ELSEWHERE, source - ELSEWHERE, nbytes)

    def _load(self, kernel: Any) -> int:
        handle = self._handle()
        self.handles[handle] = kernel
        return handle

    def _unload(self, handle: int) -> None:
        del self.handles[handle]

    def _launch(self, handle: int, grid: int, workgroup: int, lds: int, kernarg: bytes) -> None:
        self._answer()
        if workgroup < 1:
            raise DeviceError(f"workgroup {workgroup}", "fakeErrorInvalidValue")
        self._issue(self._execute, self.handles[handle], grid, kernarg)

    def _execute(self, kernel: Any, grid: int, kernarg: bytes) -> None:
        self.log.append(kernel.name)
        if kernel.name in self.failing:
            self.queue.clear()
            raise DeviceError("illegal address", "fakeErrorIllegalAddress")
        words = np.frombuffer(kernarg, np.int64) - kernel.addresses * ELSEWHERE
        kernel.run(grid, words.ctypes.data)

    def _wait(self) -> None:
        assert self.recording is None
        self._drain()

    def _is_done(self) -> bool:
        self._answer()
        return not self.queue

    def _begin_capture(self) -> None:
        assert self.recording is None
        self.recording = []

    def _end_capture(self) -> int:
        handle = self._handle()
        assert self.recording is not None
        self.graphs[handle], self.recording = self.recording, None
        return handle

    def _replay(self, handle: int) -> None:
        self.queue.append((self.log.append, ("replay",)))
        self.queue.extend(self.graphs[handle])

    def _drop_graph(self, handle: int) -> None:
        del self.graphs[handle]
