"""AMD GPUs as devices that programs run on."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from amdjax.runtime.gpu import DriverCalls, GpuDevice, Graph, refuse_after_fork
from amdjax.runtime.hip.driver import Driver, HipError
from amdjax.runtime.hip.staging import Staging
from amdjax.targets import GpuTarget

_END = 3  # of the `extra` list of a launch
_KERNARG_BYTES = 4096
_FUNCTIONS = {
    "launch": "hipModuleLaunchKernel", "together": "hipModuleLaunchCooperativeKernel",
    "copy": "hipMemcpyAsync", "use": "hipSetDevice",
}  # fmt: skip


class HipDevice(GpuDevice):
    """A GPU behind HIP: AMD's hardware, or the emulator.

    Args:
      driver: the library.
      ordinal: HIP's number of the device.
      target: what code is generated for.
      name: the model.
    """

    platform = "hip"
    can_capture = True

    def __init__(self, driver: Driver, ordinal: int, target: GpuTarget, name: str) -> None:
        # An emulated device finds accesses outside of allocations: a buffer is one of its own.
        super().__init__(ordinal, name, target, exact_memory=driver.is_emulated)
        if driver.is_emulated:
            self.platform = "emulated"
        else:
            refuse_after_fork(self, "run")
        self.ordinal, self._driver = ordinal, driver
        hip = driver.hip
        self._any_way = hip.hipMemcpyKind.hipMemcpyDefault
        self._capture_mode = hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
        self._switches = driver.is_emulated or driver.device_count() > 1
        self._use()
        # Independent of the null stream, which other libraries may use.
        self._stream = driver.call("hipStreamCreateWithFlags", hip.hipStreamNonBlocking)
        self._staging = Staging(driver, self._stream)
        self._modules: dict[int, Any] = {}
        self._cooperative: set[int] = set()
        self._peers: set[int] = set()
        self._copies: Any = None  # the stream of copies that run beside kernels
        self._postponed: list[Callable[[], None]] = []

    def _use(self) -> None:
        """Make this the calling thread's device."""
        if self._switches:
            self._driver.call("hipSetDevice", self.ordinal)

    def memory_stats(self) -> dict[str, int]:
        """Bytes in use by arrays, taken from the driver, and of the device's memory in all."""
        self._use()
        _, total = self._driver.call("hipMemGetInfo")
        return {**super().memory_stats(), "bytes_limit": int(total)}

    # Memory

    def _map(self, nbytes: int) -> int | None:
        return self._new_memory("hipMalloc", nbytes)

    def _map_host(self, nbytes: int) -> int | None:
        # Portable: other devices copy from it, too.
        return self._new_memory("hipHostMalloc", nbytes, 1)

    def _new_memory(self, function: str, *args: int) -> int | None:
        self._use()
        try:
            return int(self._driver.call(function, *args))
        except HipError as error:
            if error.status in ("hipErrorOutOfMemory", "hipErrorMemoryAllocation"):
                return None
            raise

    def _unmap(self, address: int) -> None:
        self._when_idle(lambda: self._driver.call("hipFree", address))

    def _unmap_host(self, address: int) -> None:
        self._when_idle(lambda: self._driver.call("hipHostFree", address))

    def _when_idle(self, give_back: Callable[[], None]) -> None:
        """Give something back once the work issued before is done.

        The garbage collector may ask for it amid a capture, which waiting would spoil.
        """
        if self._capturing:
            self._postponed.append(give_back)
            return
        self._use()
        self._wait()
        give_back()

    def _write(self, address: int, data: np.ndarray) -> None:
        with self.lock:
            self._use()
            self._staging.write(address, data.ctypes.data, data.nbytes)

    def _read(self, address: int, out: np.ndarray) -> None:
        with self.lock:
            self._use()
            self._staging.read(address, out.ctypes.data, out.nbytes)

    def _copy(self, to: int, source: int, nbytes: int) -> None:
        self._driver.call("hipMemcpyAsync", to, source, nbytes, self._any_way, self._stream)

    def copy_beside(self, to: int, source: int, nbytes: int) -> Any:
        """See `GpuDevice.copy_beside`; in a stream of its own."""
        call = self._driver.call
        with self.lock:
            self._use()
            if self._copies is None:
                blocking = self._driver.hip.hipStreamNonBlocking
                self._copies = call("hipStreamCreateWithFlags", blocking)
            self._join(self._copies, self._mark(self._stream))
            call("hipMemcpyAsync", to, source, nbytes, self._any_way, self._copies)
            return self._mark(self._copies)

    def await_copy(self, copy: Any) -> None:
        """See `GpuDevice.await_copy`."""
        if copy is not None:
            with self.lock:
                self._use()
                self._join(self._stream, copy)

    def _mark(self, stream: Any) -> Any:
        """An event behind what was issued in a stream."""
        event = self._driver.call("hipEventCreateWithFlags", self._driver.hip.hipEventDisableTiming)
        self._driver.call("hipEventRecord", event, stream)
        return event

    def _join(self, stream: Any, event: Any) -> None:
        """Let further work in a stream wait for an event, which is not needed any more."""
        self._driver.call("hipStreamWaitEvent", stream, event, 0)
        # HIP keeps what is still waited for.
        self._driver.call("hipEventDestroy", event)

    def copy_from(self, other: GpuDevice, source: int, to: int, nbytes: int) -> None:
        """Copy from another device's memory, after all work issued before on both.

        Args:
          other: whose memory; by the host if it is a device of another kind.
          source: address on `other`.
          to: address here.
          nbytes: how much.
        """
        if not nbytes:
            return
        if other is self:
            self.copy(to, source, nbytes)
            return
        if not isinstance(other, HipDevice):
            super().copy_from(other, source, to, nbytes)
            return
        call = self._driver.call
        first, second = sorted((self, other), key=lambda device: device.ordinal)
        with first.lock, second.lock:  # in one order, whichever way threads copy
            self._enable_peer(other)
            self._after(other)
            call(
                "hipMemcpyPeerAsync", to, self.ordinal, source, other.ordinal, nbytes, self._stream
            )
            # The source may be freed or overwritten by what `other` does next.
            other._after(self)

    def _after(self, other: HipDevice) -> None:
        """Let further work here wait for what was issued on another device."""
        other._use()
        event = self._mark(other._stream)
        self._use()
        self._join(self._stream, event)

    def _enable_peer(self, other: HipDevice) -> None:
        """Copy directly between the devices where they can; HIP goes by the host elsewhere."""
        if other.ordinal in self._peers:
            return
        self._use()
        if self._driver.call("hipDeviceCanAccessPeer", self.ordinal, other.ordinal):
            try:
                self._driver.call("hipDeviceEnablePeerAccess", other.ordinal, 0)
            except HipError as error:
                if error.status != "hipErrorPeerAccessAlreadyEnabled":
                    raise
        self._peers.add(other.ordinal)

    # Kernels

    def _load(self, kernel: Any) -> int:
        if kernel.format != "elf":
            raise HipError(f"kernel {kernel.name} is {kernel.format}, not a code object")
        self._use()
        call = self._driver.call
        try:
            module = call("hipModuleLoadData", kernel.code)
        except HipError as error:
            text = f"kernel {kernel.name} for {kernel.target.name} does not load on {self}: {error}"
            raise HipError(text, error.status, [kernel.name]) from None
        function = int(call("hipModuleGetFunction", module, kernel.name.encode()))
        # HIP may read the code later.
        self._modules[function] = module, kernel.code
        if kernel.cooperative:
            self._cooperative.add(function)
        return function

    def _unload(self, handle: int) -> None:
        self._cooperative.discard(handle)
        self._when_idle(lambda: self._driver.call("hipModuleUnload", self._modules.pop(handle)[0]))

    def _resident(self, handle: int, workgroup: int) -> int:
        self._use()
        call, hip = self._driver.call, self._driver.hip
        each = call("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", handle, workgroup, 0)
        count = hip.hipDeviceAttribute_t.hipDeviceAttributeMultiprocessorCount
        return int(each) * int(call("hipDeviceGetAttribute", count, self.ordinal))

    @cached_property
    def driver_calls(self) -> DriverCalls:
        """See `GpuDevice.driver_calls`."""
        library = ctypes.CDLL(self._driver.library)
        functions = {k: getattr(library, name) for k, name in _FUNCTIONS.items()}
        at = {k: ctypes.cast(f, ctypes.c_void_p).value or 0 for k, f in functions.items()}
        use = (at["use"], self.ordinal) if self._switches else None
        return DriverCalls(
            at["launch"], at["together"], at["copy"], int(self._stream), _END,
            int(self._any_way), use,
        )  # fmt: skip

    def _launched(self, handle: int, nbytes: int) -> tuple[int, int, bool]:
        if nbytes > _KERNARG_BYTES:
            raise HipError(f"{nbytes} bytes of arguments; a kernel takes {_KERNARG_BYTES} at most")
        return handle, 0, handle in self._cooperative

    def _error(self, call: str, doing: str, status: int) -> BaseException:
        hip = self._driver.hip
        try:
            return self._driver.error(_FUNCTIONS[call], hip.hipError_t(status))
        except BaseException as interruption:
            return interruption

    def _wait(self) -> None:
        self._driver.call("hipStreamSynchronize", self._stream)

    def _is_done(self) -> bool:
        try:
            self._driver.call("hipStreamQuery", self._stream)
        except HipError as error:
            if error.status == "hipErrorNotReady":
                return False
            raise
        return True

    def elapsed(self, issue: Callable[[], object]) -> float:
        """See `GpuDevice.elapsed`; by the device's clock."""
        call = self._driver.call
        with self.lock:
            self._use()
            start, stop = call("hipEventCreate"), call("hipEventCreate")
            try:
                call("hipEventRecord", start, self._stream)
                issue()
                call("hipEventRecord", stop, self._stream)
                self.synchronize()
                return float(call("hipEventElapsedTime", start, stop)) / 1e3
            finally:
                call("hipEventDestroy", start)
                call("hipEventDestroy", stop)

    # Graphs

    def capture(self, issue: Callable[[], None]) -> Graph | None:
        """See `GpuDevice.capture`; a HIP that fails at it is not asked again."""
        try:
            return super().capture(issue)
        except HipError as error:
            # Programs run without graphs as well, and then show an error that `issue` had made.
            self.can_capture = False
            warnings.warn(f"{self} works without graphs: {error}", stacklevel=2)
            return None

    def _begin_capture(self) -> None:
        self._use()
        self._driver.call("hipStreamBeginCapture", self._stream, self._capture_mode)

    def _end_capture(self) -> int:
        call = self._driver.call
        try:
            graph = call("hipStreamEndCapture", self._stream)
        finally:
            while self._postponed:
                self._when_idle(self._postponed.pop())
        try:
            return int(call("hipGraphInstantiateWithFlags", graph, 0))
        finally:
            call("hipGraphDestroy", graph)

    def _replay(self, handle: int) -> None:
        self._use()
        self._driver.call("hipGraphLaunch", handle, self._stream)

    def _drop_graph(self, handle: int) -> None:
        self._when_idle(lambda: self._driver.call("hipGraphExecDestroy", handle))
