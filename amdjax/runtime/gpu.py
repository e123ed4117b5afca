"""What a GPU can do: memory, kernels, launches.

`GpuDevice` is what compiled programs are run on. A platform implements the methods that talk to its
driver, whose names begin with an underscore; what all platforms share is here: the memory pool,
kernels loaded once, errors that name the kernel, graphs of launches.

What is launched is a program of the machine in `vm`, which calls the driver's functions by their
addresses: many launches take one call from Python.

Work on a device is asynchronous and in order. What a kernel does wrong shows at the next call that
waits, which then names the kernels that may have done it; with `AMDJAX_SYNC=1` every launch is
waited for, and the message names the one.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from weakref import WeakSet, WeakValueDictionary, finalize

import numpy as np

from amdjax.core.config import config
from amdjax.core.integers import round_up
from amdjax.core.sharding import Space
from amdjax.runtime.device_pool import DevicePool, Returns
from amdjax.runtime.devices import Device
from amdjax.runtime.memory import Block

CONSTANTS = 1024  # kept for each device
SUSPECTS = 16  # kernels named when an error shows late


# What a driver answers to any call, once a kernel that was launched before has failed.
_LATE = re.compile(r"illegal_?address|launch_?(failure|failed|timeout)|assert|ecc", re.IGNORECASE)


class DeviceError(RuntimeError):
    """A device or its driver failed.

    Args:
      message: what was asked for and what the driver said.
      status: the driver's name of the error, such as `hipErrorInvalidValue`.
      kernels: names of the kernels that may be the cause.
    """

    def __init__(self, message: str, status: str = "", kernels: Sequence[str] = ()):
        super().__init__(message)
        self.status, self.kernels = status, tuple(kernels)

    @property
    def is_late(self) -> bool:
        """Whether it tells of work issued before the call that raises it."""
        return _LATE.search(self.status) is not None

    def blaming(self, kernels: Sequence[str]) -> DeviceError:
        """The same error with the kernels that may be its cause, if none are named yet."""
        names = tuple(dict.fromkeys(kernels))
        if self.kernels or not names:
            return self
        if len(names) == 1:
            cause = f"in kernel {names[0]}"
        else:
            cause = f"in one of the kernels {', '.join(names)}; AMDJAX_SYNC=1 tells in which"
        return type(self)(f"{self}, {cause}", self.status, names)


class DeviceBuffer(Block):
    """A piece of a device's memory; goes back to the pool when the last reference goes.

    Attributes:
      address: of the first byte, on the device.
      nbytes: as asked for.
      device: whose memory it is, or to which it is known.
      space: whether it is the device's memory, or pinned memory of the host.
      is_own: whether a program may write a result over it once no one else sees it.
    """

    __slots__ = ("_free", "_host", "_pool", "device", "is_own", "space")

    def __init__(self, device: GpuDevice, nbytes: int, space: Space = Space.Device):
        # Set first: `__del__` runs even when there was no memory.
        self._free: Returns | None = None
        self.device, self.nbytes, self.is_own, self.space = device, nbytes, True, space
        self._host: np.ndarray | None = None
        self._pool = device.host_pool if space is Space.Host else device.pool
        self.address, self._free = self._pool.alloc(nbytes)

    def __del__(self) -> None:
        if self._free is not None:
            self._free.append(self.address)

    @classmethod
    def without_address(cls, device: GpuDevice, nbytes: int) -> DeviceBuffer:
        """What `dispatch_ir` makes buffers like; it is never to be finalized by Python."""
        like = object.__new__(cls)
        like.device, like.nbytes, like.is_own, like.space = device, nbytes, True, Space.Device
        like._host, like._pool, like._free = None, device.pool, device.pool.free_addresses(nbytes)
        return like

    def as_numpy(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """The contents as a read-only array in host memory; waits until they are computed.

        They are copied once, and the copy is kept as long as the buffer.
        """
        host = self._host
        if host is None:
            host = np.empty(self.nbytes, np.uint8)
            if self.nbytes:
                self.device.read(self.address, host)
            host.flags.writeable = False
            self._host = host
        return host.view(dtype).reshape(shape)

    def overwritten(self) -> None:
        """Note that a program has written to the buffer."""
        self._host = None

    def block_until_ready(self) -> None:
        """Wait until the contents are computed."""
        self.device.synchronize()

    def is_ready(self) -> bool:
        """Whether the contents are computed, as far as can be told without waiting."""
        return self._host is not None or self.device.is_idle()

    def __repr__(self) -> str:
        return f"DeviceBuffer({self.device}, address={self.address:#x}, nbytes={self.nbytes})"


class Function:
    """A kernel loaded on a device; unloaded when the last program that uses it goes."""

    __slots__ = ("__weakref__", "handle", "name")

    def __init__(self, device: GpuDevice, handle: int, name: str):
        self.handle, self.name = handle, name
        # Not `__del__`: while that runs, weak references still give the object to other threads.
        finalize(self, device._give_back, device._unload, handle).atexit = False


@dataclass(frozen=True)
class DriverCalls:
    """What programs of launches call, as `vm` says.

    Attributes:
      launch, launch_together, copy: addresses of functions; 0 for `launch_together` where `launch`
        takes kernels whose workgroups wait for each other.
      stream: the handle that they take.
      end: what ends a list of extra arguments.
      kind: what a copy takes beside its operands; negative for nothing.
      use: the address of a function that chooses the thread's device, and what that takes.
      held: what has to live as long.
    """

    launch: int
    launch_together: int
    copy: int
    stream: int
    end: int
    kind: int = -1
    use: tuple[int, int] | None = None
    held: Any = None


class Launches:
    """The words of launches and copies, as instructions of `vm`.

    Args:
      device: where.

    Attributes:
      words: the instructions so far.
      kernels: names of what is launched.
      late: those that may fail when the program has returned.
    """

    def __init__(self, device: GpuDevice):
        # late: loads LLVM
        from amdjax.runtime import vm

        self.device, self.words = device, array("q")
        self.kernels: list[str] = []
        self.late: list[str] = []
        self._vm, self._calls, self._held = vm, device.driver_calls, list[Any]()
        if self._calls.use is not None:
            function, given = self._calls.use
            self.words.extend((vm.USE, function, self._judge("use", "choosing the device"), given))

    def _judge(self, call: str, doing: str) -> int:
        """What is called when the driver refuses something."""
        judge = partial(self.device._refused, call, doing, self.kernels, len(self.kernels))
        return self.call(judge)

    def call(self, function: Callable[[int], Any]) -> int:
        """What instructions have of a function of Python."""
        self._held.append(function)
        return id(function)

    def launch(
        self, function: Function, grid: int, workgroup: int, lds: int,
        operands: Sequence[Sequence[int]],
    ) -> None:  # fmt: skip
        """A launch, as `GpuDevice.launch`, of operands as `vm` takes them."""
        if not grid:
            return
        calls = self._calls
        kernel, dynamic, together = self.device._launched(function.handle, 8 * len(operands))
        together = together and calls.launch_together != 0
        self._held.append(function)
        self.kernels.append(function.name)
        judge = self._judge("launch", f"launching {grid} workgroups of {workgroup} threads")
        self.words.extend((
            self._vm.LAUNCH, calls.launch_together if together else calls.launch, judge, kernel,
            grid, workgroup, lds + dynamic, calls.stream, -1 if together else calls.end,
            len(operands),
        ))  # fmt: skip
        for operand in operands:
            self.words.extend(operand)
        if not config.sync:
            self.late.append(function.name)
        else:
            wait = partial(self.device._wait_for, function.name)
            self.words.extend((self._vm.HOST, self.call(wait), 0))

    def copy(self, to: Sequence[int], source: Sequence[int], nbytes: int) -> None:
        """A copy, as `GpuDevice.copy`."""
        if nbytes:
            calls, judge = self._calls, self._judge("copy", "copying on the device")
            self.words.extend((self._vm.MOVE, calls.copy, judge, calls.kind, calls.stream, nbytes))
            self.words.extend(to)
            self.words.extend(source)

    def program(self, slots: int, most_operands: int) -> array[int]:
        """The whole, with its end, for so many slots; lives as long as `self` does.

        Args:
          slots: how many there are.
          most_operands: how many a launch has at most.
        """
        header = self._vm.header(self._vm.operands_of_launch(most_operands), slots)
        return array("q", [*header, *self.words, self._vm.HALT])


class Graph:
    """Launches and copies recorded by `GpuDevice.capture`."""

    __slots__ = ("_device", "handle", "kernels")

    def __init__(self, device: GpuDevice, handle: int, kernels: Sequence[str]):
        self._device, self.handle, self.kernels = device, handle, tuple(kernels)

    def __del__(self) -> None:
        self._device._give_back(self._device._drop_graph, self.handle)


class GpuDevice(Device, ABC):
    """One GPU.

    Args:
      id: number within the platform.
      device_kind: the model.
      target: what code is generated for.
      exact_memory: whether every buffer is an allocation of its own; see `DevicePool`.

    Attributes:
      lock: held while work is issued, waited for or recorded, so that what other threads do is
        not recorded too.
      can_capture: whether `capture` works.
      captures_cooperative: whether it does for kernels whose workgroups wait for each other.
      graphs_from: how many launches are worth a graph.
      failures: how often work was refused, failed or was interrupted: what kernels count in memory
        may be anything since.
    """

    can_capture = captures_cooperative = False
    graphs_from = 8

    def __init__(self, id: int, device_kind: str, target: Any, *, exact_memory: bool = False):
        super().__init__(id, device_kind)
        self.target, self.exact_memory = target, exact_memory
        unmap = lambda address: self._give_back(self._unmap, address)
        self.pool = DevicePool(self._map, unmap, exact_memory)
        free = lambda address: self._give_back(self._unmap_host, address)
        self.host_pool = DevicePool(self._map_host, free, exact_memory, "pinned host")
        self.lock = threading.RLock()
        self._functions: WeakValueDictionary[tuple[str, bytes], Function] = WeakValueDictionary()
        self._constants: dict[bytes, DeviceBuffer] = {}
        self._recent: deque[str] = deque(maxlen=SUSPECTS)
        self._capturing = False
        self._failure: BaseException | None = None
        self._raised: BaseException | None = None  # by a method that stands for a driver's function
        self.failures = 0
        _devices.add(self)

    # Memory

    def alloc(self, nbytes: int, space: Space = Space.Device) -> DeviceBuffer:
        """Memory with undefined contents: the device's, or pinned memory of the host.

        Raises:
          MemoryError: there is none left.
        """
        return DeviceBuffer(self, nbytes, space)

    def write(self, address: int, data: np.ndarray) -> None:
        """Copy a C-contiguous array to the device, after all work issued before.

        `data` may change as soon as this returns.
        """
        if data.nbytes:
            self._issuing(self._write, address, data)

    def read(self, address: int, out: np.ndarray) -> None:
        """Fill a C-contiguous array from the device; waits for all work issued before."""
        if out.nbytes:
            self._waiting(self._read, address, out)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy after all work issued before; the ranges do not overlap.

        Either may be in pinned memory of the host.
        """
        if nbytes:
            self._issuing(self._copy, to, source, nbytes)

    def copy_beside(self, to: int, source: int, nbytes: int) -> Any:
        """Copy after all work issued before, beside what is issued next.

        Returns:
          The copy, for `await_copy`; None where it is in order with all other work.
        """
        self.copy(to, source, nbytes)

    def await_copy(self, copy: Any) -> None:
        """Let further work wait for a copy that `copy_beside` began, if it is one."""

    def copy_from(self, other: GpuDevice, source: int, to: int, nbytes: int) -> None:
        """Copy from another device's memory, after all work issued before on both.

        By the host, where the platform does not know a shorter way.
        """
        data = np.empty(nbytes, np.uint8)
        other.read(source, data)
        self.write(to, data)

    def upload(self, value: np.ndarray, space: Space = Space.Device) -> DeviceBuffer:
        """A buffer with the contents of an array."""
        buffer = self.alloc(value.nbytes, space)
        self.write(buffer.address, np.ascontiguousarray(value))
        return buffer

    def constant(self, value: np.ndarray) -> DeviceBuffer:
        """As `upload`, for a few bytes that are likely to be asked for again; not to be written."""
        key = value.tobytes()
        found = self._constants.get(key)
        if found is None:
            found = self.upload(value)
            found.is_own = False
            if len(self._constants) >= CONSTANTS:
                self._constants.clear()
            self._constants[key] = found
        return found

    def memory_stats(self) -> dict[str, int]:
        """Bytes in use by arrays, and those taken from the driver; of the host's apart."""
        stats, host = self.pool.stats(), self.host_pool.stats()
        return {
            "bytes_in_use": stats.in_use, "bytes_reserved": stats.mapped,
            "host_bytes_in_use": host.in_use, "host_bytes_reserved": host.mapped,
        }  # fmt: skip

    # Kernels

    def function(self, kernel: Any) -> Function:
        """A `GpuKernel` ready to launch; equal ones are loaded once.

        Raises:
          DeviceError: the driver rejects its code.
        """
        key = kernel.name, kernel.code
        found = self._functions.get(key)
        if found is None:
            with self.lock:
                found = self._functions.get(key)
                if found is None:
                    found = Function(self, self._load(kernel), kernel.name)
                    self._functions[key] = found
        return found

    def resident_workgroups(self, function: Function, workgroup: int) -> int:
        """How many workgroups of a kernel the device holds at once.

        Args:
          function: what `function` returned.
          workgroup: threads of each.
        """
        return self._resident(function.handle, workgroup)

    def launch(
        self, function: Function, grid: int, workgroup: int, lds: int, kernarg: bytes
    ) -> None:
        """Run `grid` programs of `workgroup` threads after all work issued before.

        Args:
          function: what `function` returned.
          grid: number of programs; nothing happens if it is 0.
          workgroup: threads of a program.
          lds: bytes of LDS of a program beyond what the kernel declares itself.
          kernarg: the kernel's arguments as it reads them from memory.

        Raises:
          DeviceError: the launch is refused, or earlier work has failed.
        """
        launches = Launches(self)
        padded = kernarg.ljust(round_up(len(kernarg), 8), b"\0")
        operands = [(1, number, 1, 0) for number in array("q", padded)]
        launches.launch(function, grid, workgroup, lds, operands)
        program = launches.program(2, len(operands))
        self.run(array("q", [program.buffer_info()[0], 0, 0]).tobytes(), launches.late)

    def run(self, call: bytes, kernels: Sequence[str]) -> None:
        """Run a program of launches after all work issued before.

        Args:
          call: the address of the program and the initial slots, as `vm.run_program` takes them.
          kernels: names of what it launches and does not wait for.

        Raises:
          DeviceError: the driver refuses something, or earlier work has failed.
        """
        with self.lock:  # another thread may be recording a graph
            try:
                self._machine(call)
            except BaseException:
                self.failures += 1
                raise
            self._recent.extend(kernels)

    @cached_property
    def _machine(self) -> Callable[[bytes], int]:
        # late: loads LLVM
        from amdjax.runtime import vm

        return vm.run_program()

    def _refused(
        self, call: str, doing: str, kernels: Sequence[str], issued: int, status: int
    ) -> None:
        """Raise for what a driver's function answers that a program called.

        Args:
          call: `launch`, `copy` or `use`.
          doing: what was asked for.
          kernels: what the program launches, of which so many were before, this one included.
          issued: that number.
          status: the answer.
        """
        error = self._error(call, doing, status)
        if not isinstance(error, DeviceError):
            raise error
        last = kernels[issued - 1 : issued] if call == "launch" else ()
        before = (*self._recent, *kernels[max(issued - SUSPECTS, 0) : issued])
        raise error.blaming(before if error.is_late else last) from None

    def _wait_for(self, kernel: str, _: int) -> None:
        """Under `AMDJAX_SYNC`: wait for a launch."""
        self._recent.append(kernel)
        if not self._capturing:
            self.synchronize()

    def synchronize(self) -> None:
        """Wait for all work issued before.

        Raises:
          DeviceError: some of it has failed.
        """
        self._waiting(self._wait)

    def is_idle(self) -> bool:
        """Whether all work issued before is done; waits where the driver cannot be asked."""
        try:
            return self._is_done()
        except DeviceError as error:
            raise error.blaming(self._recent) from None

    def _issuing(self, issue: Callable[..., None], *args: Any) -> None:
        """Issue what is no launch; kernels before it may be why the driver refuses."""
        with self.lock:
            try:
                issue(*args)
            except BaseException as error:
                self.failures += 1
                if not (isinstance(error, DeviceError) and error.is_late):
                    raise
                raise error.blaming(self._recent) from None

    def _waiting(self, wait: Callable[..., None], *args: Any) -> None:
        """Run what waits for the device; errors of kernels show here."""
        with self.lock:  # waiting would spoil a recording
            recent = list(self._recent)
            self._recent.clear()
            try:
                wait(*args)
            except BaseException as error:
                self.failures += 1
                if not isinstance(error, DeviceError):
                    raise
                raise error.blaming(recent) from None
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # Graphs

    def capture(self, issue: Callable[[], None]) -> Graph | None:
        """Record the launches and copies that `issue` makes, instead of running them.

        Args:
          issue: launches and copies only; no reads, no allocation from the driver.

        Returns:
          What `replay` runs, with the same addresses; None if the device cannot capture.
        """
        if not self.can_capture:
            return None
        with self.lock:
            before, self._recent = self._recent, deque(maxlen=SUSPECTS)
            self._begin_capture()
            self._capturing, done = True, False
            try:
                issue()
                done = True
            finally:
                self._capturing = False
                handle = self._end_capture()
                kernels, self._recent = list(self._recent), before
                if not done:
                    self._drop_graph(handle)
            return Graph(self, handle, kernels)

    def replay(self, graph: Graph) -> None:
        """Run what was recorded, after all work issued before."""
        try:
            with self.lock:
                self._replay(graph.handle)
        except BaseException as error:
            self.failures += 1
            if not isinstance(error, DeviceError):
                raise
            before = self._recent if error.is_late else ()
            raise error.blaming([*before, *graph.kernels]) from None
        self._recent.extend(graph.kernels)
        if config.sync:
            self.synchronize()

    def _give_back(self, how: Callable[[int], None], handle: int) -> None:
        """Free something of the driver's; at exit the driver does it itself.

        What a finalizer raises is lost, so it is kept for the next call that waits.
        """
        if sys is None or sys.is_finalizing():  # at exit even modules are gone
            return
        try:
            how(handle)
        except BaseException as error:  # which may wait, and be interrupted
            self.failures += 1
            if isinstance(error, DeviceError):
                error = error.blaming(self._recent)
            self._failure = error

    def elapsed(self, issue: Callable[[], object]) -> float:
        """Seconds that the device takes for the work that `issue` issues; waits for it."""
        with self.lock:
            self.synchronize()
            start = time.perf_counter()
            issue()
            self.synchronize()
            return time.perf_counter() - start

    # What a platform implements. All raise `DeviceError` for what the driver refuses.

    @abstractmethod
    def _map(self, nbytes: int) -> int | None:
        """The address of new memory, a multiple of 256; None if there is none left."""

    @abstractmethod
    def _unmap(self, address: int) -> None:
        """Give memory back, once the work issued before is done."""

    def _map_host(self, nbytes: int) -> int | None:
        """As `_map` of pinned memory of the host, whose addresses are the device's too.

        Where there is one memory for both, it is that.
        """
        return self._map(nbytes)

    def _unmap_host(self, address: int) -> None:
        """Give pinned memory back, once the work issued before is done."""
        self._unmap(address)

    @abstractmethod
    def _write(self, address: int, data: np.ndarray) -> None: ...

    @abstractmethod
    def _read(self, address: int, out: np.ndarray) -> None: ...

    @abstractmethod
    def _copy(self, to: int, source: int, nbytes: int) -> None: ...

    @abstractmethod
    def _load(self, kernel: Any) -> int:
        """A handle for a kernel on the device."""

    def _unload(self, handle: int) -> None:
        """Unload a kernel, once the work issued before is done."""

    def _resident(self, handle: int, workgroup: int) -> int:
        raise NotImplementedError(f"{self} runs no workgroups that wait for each other")

    @cached_property
    def driver_calls(self) -> DriverCalls:
        """The driver's functions; where there is none, functions of C that `_launch` is behind."""
        return _calls_of_python(self)

    def _launched(self, handle: int, nbytes: int) -> tuple[int, int, bool]:
        """What the driver knows a kernel by, its dynamic LDS, whether its workgroups wait.

        Args:
          handle: what `_load` returned.
          nbytes: how long its arguments are.
        """
        return handle, 0, False

    def _error(self, call: str, doing: str, status: int) -> BaseException:
        """What to raise for a status; arguments are those of `_refused`."""
        error, self._raised = self._raised, None
        return error or DeviceError(f"{doing}: status {status}")

    def _launch(self, handle: int, grid: int, workgroup: int, lds: int, kernarg: bytes) -> None:
        raise NotImplementedError

    @abstractmethod
    def _wait(self) -> None: ...

    def _is_done(self) -> bool:
        """Whether `_wait` would return at once."""
        self._wait()
        return True

    def _begin_capture(self) -> None:
        raise NotImplementedError(f"{self} cannot capture")

    def _end_capture(self) -> int:
        raise NotImplementedError(f"{self} cannot capture")

    def _replay(self, handle: int) -> None:
        raise NotImplementedError(f"{self} cannot replay")

    def _drop_graph(self, handle: int) -> None:
        """Free what `_end_capture` returned."""


_NUMBER = ctypes.c_size_t
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, _NUMBER, *[ctypes.c_uint] * 7, *[_NUMBER] * 3)
_COPY = ctypes.CFUNCTYPE(ctypes.c_int, *[_NUMBER] * 4)


def _calls_of_python(device: GpuDevice) -> DriverCalls:
    """A driver whose functions are a device's methods."""

    def answer(method: Callable[..., None], *args: Any) -> int:
        try:
            method(*args)
        except BaseException as error:  # which C cannot pass on
            device._raised = error
            return 1
        return 0

    def launch(handle: int, *given: int) -> int:
        grid, _, _, workgroup, _, _, lds, _, _, extra = given
        _, place, _, length, _ = (_NUMBER * 5).from_address(extra)
        kernarg = ctypes.string_at(place, _NUMBER.from_address(length).value)
        return answer(device._launch, handle, grid, workgroup, lds, kernarg)

    def copy(to: int, source: int, nbytes: int, stream: int) -> int:
        return answer(device._copy, to, source, nbytes)

    functions = _LAUNCH(launch), _COPY(copy)
    addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions]
    return DriverCalls(addresses[0], 0, addresses[1], 0, 0, held=functions)


_devices: WeakSet[GpuDevice] = WeakSet()


def _unlock_all() -> None:
    """The thread that held a lock when the process was forked is not in the child."""
    for device in _devices:
        device.lock = threading.RLock()


def refuse_after_fork(owner: object, method: str) -> None:
    """Let a method raise in processes forked from here, where drivers hang or crash.

    Args:
      owner: what talks to a driver.
      method: name of the method that all its calls go through.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: setattr(owner, method, _refuse))


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise DeviceError(
        "this process was forked from one that uses a GPU, and cannot use it: start it by "
        "multiprocessing.get_context('spawn'), or fork before a device is first asked for"
    )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_all)
