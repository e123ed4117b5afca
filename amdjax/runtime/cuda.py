"""NVIDIA GPUs through the CUDA driver, reached by cuda-bindings (extra `cuda`).

The twin of `runtime/hip`: it runs what the same generator makes as PTX, so that the generator can
be proven and timed where there is such hardware. The driver compiles the PTX.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import numpy as np

from amdjax.runtime.gpu import DeviceError, DriverCalls, GpuDevice, refuse_after_fork
from amdjax.targets import get as target_named

_END = 0  # of the `extra` list of a launch
_LOG_BYTES = 8192


@cache
def _driver() -> Any:
    """The driver's functions; None where cuda-bindings or the driver is missing."""
    if importlib.util.find_spec("cuda") is None:
        return None
    try:
        # late: an optional dependency
        from cuda.bindings import driver
    except ImportError:
        return None
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError:  # cuda-bindings found no libcuda
        return None
    return driver if status == 0 else None


def find_devices() -> list[CudaDevice]:
    """The GPUs that the generator has a target for; none without cuda-bindings and a driver."""
    driver = _driver()
    if driver is None:
        return []
    count = _checked(driver.cuDeviceGetCount(), "counting devices")
    return [d for i in range(count) if (d := _device(driver, i)) is not None]


def _device(driver: Any, id: int) -> CudaDevice | None:
    handle = _checked(driver.cuDeviceGet(id), f"opening device {id}")
    attribute = driver.CUdevice_attribute
    major, minor = (
        _checked(driver.cuDeviceGetAttribute(a, handle), "asking for the compute capability")
        for a in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    if major < 8:
        return None
    # PTX for an older generation runs on every later one; only sm_90a is tied to its own.
    target = target_named("sm_90a" if (major, minor) == (9, 0) else "sm_80")
    name = _checked(driver.cuDeviceGetName(128, handle), "asking for the name")
    return CudaDevice(id, name.split(b"\0")[0].decode(), target, driver, handle)


def _checked(answer: tuple[Any, ...], doing: str) -> Any:
    """The results of a driver call.

    Raises:
      DeviceError: the driver reports an error.
    """
    status, *results = answer
    if status != 0:
        name = getattr(status, "name", str(status))
        raise DeviceError(f"{doing}: the driver says {name}", name)
    return results[0] if len(results) == 1 else tuple(results)


class CudaDevice(GpuDevice):
    """One NVIDIA GPU, with a stream of its own."""

    platform = "cuda"
    can_capture = captures_cooperative = True
    graphs_from = 3  # four launches take 18 µs, as a graph 6; of two the recording is saved late

    def __init__(self, id: int, device_kind: str, target: Any, driver: Any, handle: Any):
        super().__init__(id, device_kind, target)
        self._driver, self._device = driver, handle
        self._context = _checked(driver.cuDevicePrimaryCtxRetain(handle), "opening a context")
        self._handles: dict[int, tuple[Any, ...]] = {}  # what integers given out stand for
        self._next = 0
        self._enter()
        flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._stream = _checked(driver.cuStreamCreate(flags), "making a stream")
        refuse_after_fork(self, "_enter")
        refuse_after_fork(self, "run")

    def _enter(self) -> Any:
        """Make this device the thread's current one; returns the driver."""
        _checked(self._driver.cuCtxSetCurrent(self._context), "choosing the device")
        return self._driver

    def _keep(self, *what: Any) -> int:
        self._next += 1
        self._handles[self._next] = what
        return self._next

    def memory_stats(self) -> dict[str, int]:
        """Bytes in use by arrays, taken from the driver, and in the device altogether."""
        _, total = _checked(self._enter().cuMemGetInfo(), "asking for the memory")
        return {**super().memory_stats(), "bytes_limit": int(total)}

    def _map(self, nbytes: int) -> int | None:
        return self._mapped(self._enter().cuMemAlloc(nbytes), f"{nbytes:,} bytes")

    def _mapped(self, answer: tuple[Any, Any], what: str) -> int | None:
        """The address of new memory, None where there is none."""
        status, address = answer
        if status == self._enter().CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return None
        _checked((status,), f"allocating {what}")
        return int(address)

    def _unmap(self, address: int) -> None:
        _checked(self._enter().cuMemFree(address), "freeing memory")

    def _map_host(self, nbytes: int) -> int | None:
        driver = self._enter()
        answer = driver.cuMemHostAlloc(nbytes, driver.CU_MEMHOSTALLOC_PORTABLE)
        return self._mapped(answer, f"{nbytes:,} bytes of the host's memory")

    def _unmap_host(self, address: int) -> None:
        _checked(self._enter().cuMemFreeHost(address), "freeing memory")

    def _write(self, address: int, data: np.ndarray) -> None:
        # Ordinary memory is copied aside before the call returns.
        answer = self._enter().cuMemcpyHtoDAsync(
            address, data.ctypes.data, data.nbytes, self._stream
        )
        _checked(answer, "copying to the device")

    def _read(self, address: int, out: np.ndarray) -> None:
        answer = self._enter().cuMemcpyDtoHAsync(out.ctypes.data, address, out.nbytes, self._stream)
        _checked(answer, "copying from the device")
        self._wait()

    def _copy(self, to: int, source: int, nbytes: int) -> None:
        # Either may be pinned memory of the host.
        answer = self._enter().cuMemcpyAsync(to, source, nbytes, self._stream)
        _checked(answer, "copying on the device")

    def _load(self, kernel: Any) -> int:
        driver = self._enter()
        module = self._compiled(driver, kernel)
        symbol = kernel.name.encode()
        function = _checked(
            driver.cuModuleGetFunction(module, symbol), f"loading kernel {kernel.name}"
        )
        dynamic = kernel.dynamic_lds
        if dynamic:
            most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            answer = driver.cuFuncSetAttribute(function, most, dynamic)
            _checked(answer, f"giving kernel {kernel.name} its shared memory")
        return self._keep(function, module, dynamic, kernel.cooperative)

    def _compiled(self, driver: Any, kernel: Any) -> Any:
        """The PTX of a kernel as a module."""
        option = driver.CUjit_option
        log = bytes(_LOG_BYTES)  # the driver writes into it
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        values = [log, _LOG_BYTES]
        answer = driver.cuModuleLoadDataEx(kernel.code + b"\0", len(options), options, values)
        if answer[0] != 0:
            detail = log.partition(b"\0")[0].decode(errors="replace").strip()
            raise DeviceError(
                f"the driver rejects kernel {kernel.name}: {answer[0].name}\n{detail}",
                answer[0].name,
                [kernel.name],
            )
        return answer[1]

    def _unload(self, handle: int) -> None:
        _, module, *_ = self._handles.pop(handle)
        _checked(self._enter().cuModuleUnload(module), "unloading a kernel")

    def _resident(self, handle: int, workgroup: int) -> int:
        function, _, dynamic, _ = self._handles[handle]
        driver = self._enter()
        each = _checked(
            driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, workgroup, dynamic),
            "asking for the occupancy",
        )
        count = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        units = _checked(driver.cuDeviceGetAttribute(count, self._device), "counting processors")
        return int(each) * int(units)

    @cached_property
    def driver_calls(self) -> DriverCalls:
        """See `GpuDevice.driver_calls`."""
        library = ctypes.CDLL("libcuda.so.1")
        names = "cuLaunchKernel", "cuLaunchCooperativeKernel", "cuMemcpyAsync", "cuCtxSetCurrent"
        functions = [getattr(library, name) for name in names]
        launch, together, copy, use = (
            ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions
        )
        choose = use, int(self._context)
        return DriverCalls(launch, together, copy, int(self._stream), _END, use=choose)

    def _launched(self, handle: int, nbytes: int) -> tuple[int, int, bool]:
        function, _, dynamic, cooperative = self._handles[handle]
        return int(function), dynamic, cooperative

    def _error(self, call: str, doing: str, status: int) -> BaseException:
        try:
            _checked((self._driver.CUresult(status),), doing)
        except (DeviceError, ValueError) as error:  # of a status that the bindings do not know
            return error if isinstance(error, DeviceError) else DeviceError(f"{doing}: {error}")
        return DeviceError(doing)

    def _wait(self) -> None:
        _checked(self._enter().cuStreamSynchronize(self._stream), "waiting for the device")

    def _is_done(self) -> bool:
        driver = self._enter()
        (status,) = driver.cuStreamQuery(self._stream)
        if status == driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        _checked((status,), "asking whether the device is done")
        return True

    def elapsed(self, issue: Callable[[], object]) -> float:
        """See `GpuDevice.elapsed`; by the device's clock."""
        with self.lock:
            driver = self._enter()
            events = [_checked(driver.cuEventCreate(0), "making an event") for _ in range(2)]
            try:
                _checked(driver.cuEventRecord(events[0], self._stream), "taking the time")
                issue()
                _checked(driver.cuEventRecord(events[1], self._stream), "taking the time")
                self.synchronize()
                answer = driver.cuEventElapsedTime(*events)
                return float(_checked(answer, "reading the time")) / 1e3
            finally:
                for event in events:
                    _checked(driver.cuEventDestroy(event), "freeing an event")

    def _begin_capture(self) -> None:
        driver = self._enter()
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        _checked(driver.cuStreamBeginCapture(self._stream, mode), "beginning a graph")

    def _end_capture(self) -> int:
        driver = self._enter()
        graph = _checked(driver.cuStreamEndCapture(self._stream), "ending a graph")
        try:
            runnable = _checked(driver.cuGraphInstantiate(graph, 0), "preparing a graph")
        finally:
            _checked(driver.cuGraphDestroy(graph), "freeing a graph")
        return self._keep(runnable)

    def _replay(self, handle: int) -> None:
        (graph,) = self._handles[handle]
        _checked(self._enter().cuGraphLaunch(graph, self._stream), "launching a graph")

    def _drop_graph(self, handle: int) -> None:
        (graph,) = self._handles.pop(handle)
        _checked(self._enter().cuGraphExecDestroy(graph), "freeing a graph")
