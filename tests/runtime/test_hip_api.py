"""The emulator's HIP library as a C program sees it."""

import ctypes
import platform
from ctypes import byref, c_float, c_int, c_size_t, c_ubyte, c_void_p

import numpy as np
import pytest
from hip_kernels import code_object, saxpy_arguments

from amdjax.runtime.emulator import recording
from amdjax.runtime.emulator.hip import EmulatedHip, device_memory, device_names
from amdjax.runtime.emulator.hip_abi import Status
from amdjax.runtime.emulator.hip_properties import DeviceProperties

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux", reason="Linux on x86-64"
)
MEMORY = 1 << 20
TO_HOST, TO_DEVICE, ON_DEVICE, DEFAULT = 2, 1, 3, 4


class Hip:
    """Functions by attribute; pointers are integers, and the result is the error's name."""

    def __init__(self, *targets: str) -> None:
        self.emulated = EmulatedHip(MEMORY, ["hipNobodyEmulatesThis"])
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


@pytest.fixture
def hip():
    return Hip("gfx942")


@pytest.fixture
def pair():
    return Hip("gfx942", "gfx1100")


ONES = np.ones(64, np.float32)


# Devices


def test_devices_and_properties(pair):
    count, device = c_int(), c_int()
    assert pair.hipInit(0) == "Success" and pair.hipInit(1) == "InvalidValue"
    assert pair.hipGetDeviceCount(byref(count)) == "Success" and count.value == 2
    assert pair.hipSetDevice(1) == "Success" and pair.hipSetDevice(2) == "InvalidDevice"
    assert pair.hipGetDevice(byref(device)) == "Success" and device.value == 1
    found = DeviceProperties()
    assert pair.hipGetDevicePropertiesR0600(byref(found), 1) == "Success"
    assert (found.gcnArchName, found.warpSize, found.major) == (b"gfx1100", 32, 11)
    assert found.totalGlobalMem == MEMORY and found.multiProcessorCount == 96


def test_the_property_structure_has_the_size_of_the_headers():
    assert ctypes.sizeof(DeviceProperties) == 1472
    assert DeviceProperties.gcnArchName.offset == 1160


@pytest.mark.parametrize(
    ("number", "value"),
    [(87, 64), (63, 304), (23, 9), (61, 4), (56, 1024), (26, 1024), (74, 65536)],
)
def test_attributes(hip, number, value):
    out = c_int()
    assert hip.hipDeviceGetAttribute(byref(out), number, 0) == "Success" and out.value == value


def test_unknown_attribute_and_null_pointer(hip):
    out = c_int()
    assert hip.hipDeviceGetAttribute(byref(out), 4711, 0) == "InvalidValue"
    assert hip.hipGetDeviceCount(None) == "InvalidValue"


def test_no_device_at_all():
    hip = Hip()
    assert hip.hipInit(0) == "NoDevice"
    assert hip.hipGetDeviceCount(byref(c_int())) == "NoDevice"
    assert hip.hipMalloc(byref(c_void_p()), c_size_t(16)) == "NoDevice"


def test_what_is_not_emulated_says_so(hip):
    assert hip.hipNobodyEmulatesThis() == "NotSupported"
    assert "hipNobodyEmulatesThis is not emulated" in hip.text("NotSupported")


def test_the_last_error_is_kept_until_it_is_asked_for(hip):
    hip.hipSetDevice(9)
    assert hip.hipPeekAtLastError() == "InvalidDevice"
    assert hip.hipGetLastError() == "InvalidDevice"
    assert hip.hipGetLastError() == "Success"


# Memory


def test_memory_is_limited_and_comes_back(hip):
    free, total = c_size_t(), c_size_t()
    address = hip.make("hipMalloc", c_size_t(MEMORY - 4096))
    assert hip.hipMalloc(byref(c_void_p()), c_size_t(8192)) == "OutOfMemory"
    assert "8192 bytes asked for" in hip.text("OutOfMemory")
    assert hip.hipMemGetInfo(byref(free), byref(total)) == "Success"
    assert (free.value, total.value) == (4096, MEMORY)
    assert hip.hipFree(address) == "Success" and hip.hipFree(address) == "InvalidValue"
    assert hip.hipFree(None) == "Success"
    hip.make("hipMalloc", c_size_t(MEMORY))


def test_nothing_is_null(hip):
    assert hip.make("hipMalloc", c_size_t(0)) == 0


@pytest.mark.parametrize("nbytes", [1, 257, 100_000])
def test_copies_and_fills(hip, nbytes):
    data = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    a, b = hip.upload(data), hip.make("hipMalloc", c_size_t(nbytes))
    assert hip.hipMemcpyDtoD(b, a, c_size_t(nbytes)) == "Success"
    np.testing.assert_array_equal(hip.download(b, nbytes, np.uint8), data)
    assert hip.hipMemset(a, 0x5A, c_size_t(nbytes)) == "Success"
    assert (hip.download(a, nbytes, np.uint8) == 0x5A).all()


def test_fills_of_wider_elements(hip):
    a = hip.upload(np.zeros(8, np.uint32))
    assert hip.hipMemsetD32(a, 0x01020304, c_size_t(2)) == "Success"
    assert hip.hipMemsetD16Async(a + 8, 0xBEEF, c_size_t(3), None) == "Success"
    assert hip.hipMemsetD8(a + 14, c_ubyte(7), c_size_t(1)) == "Success"
    expected = [0x01020304, 0x01020304, 0xBEEFBEEF, 0x0007BEEF, 0, 0, 0, 0]
    assert hip.download(a, 8, np.uint32).tolist() == expected


def test_a_copy_stays_within_its_allocation(hip):
    a = hip.upload(ONES)
    host = np.zeros(65, np.float32)
    assert hip.hipMemcpy(host.ctypes.data, a, c_size_t(260), TO_HOST) == "InvalidValue"
    assert "run out of an allocation of 256 bytes" in hip.text("InvalidValue")
    assert hip.hipMemcpy(a + 8, host.ctypes.data, c_size_t(256), TO_DEVICE) == "InvalidValue"
    assert hip.hipMemset(a, 0, c_size_t(257)) == "InvalidValue"


def test_direction_and_null(hip):
    a, host = hip.upload(ONES), np.zeros(64, np.float32)
    assert hip.hipMemcpy(a, host.ctypes.data, c_size_t(4), 77) == "InvalidMemcpyDirection"
    assert hip.hipMemcpy(host.ctypes.data, a, c_size_t(4), ON_DEVICE) == "InvalidValue"
    assert hip.hipMemcpy(None, a, c_size_t(4), DEFAULT) == "InvalidValue"
    assert hip.hipMemcpy(host.ctypes.data, a, c_size_t(256), DEFAULT) == "Success"
    np.testing.assert_array_equal(host, ONES)


def test_pinned_memory(hip):
    pinned = hip.make("hipHostMalloc", c_size_t(256), 0)
    assert hip.make("hipHostGetDevicePointer", c_size_t(pinned), 0) == pinned
    assert hip.hipFree(pinned) == "InvalidValue"
    assert hip.hipHostFree(pinned) == "Success" and hip.hipHostFree(pinned) == "InvalidValue"
    host = np.zeros(64, np.float32)
    assert hip.hipHostRegister(host.ctypes.data, c_size_t(256), 0) == "Success"
    assert hip.hipHostRegister(host.ctypes.data, c_size_t(4), 0) == "HostMemoryAlreadyRegistered"
    assert hip.hipHostUnregister(host.ctypes.data) == "Success"
    assert hip.hipHostUnregister(host.ctypes.data) == "HostMemoryNotRegistered"


# Streams and events


def test_work_waits_until_it_is_waited_for(hip):
    stream, a = hip.make("hipStreamCreate"), hip.upload(ONES)
    pinned = hip.make("hipHostMalloc", c_size_t(256), 0)
    view = np.frombuffer((c_ubyte * 256).from_address(pinned), np.float32)
    view[:] = 5
    copy = (pinned, a, c_size_t(256), TO_HOST, c_size_t(stream))
    assert hip.hipMemcpyAsync(*copy) == "Success"
    assert (view == 5).all()
    assert hip.hipStreamQuery(c_size_t(stream)) == "NotReady"
    assert hip.hipStreamQuery(c_size_t(stream)) == "Success"
    assert (view == 1).all()


def test_pinned_memory_is_read_late_and_pageable_memory_at_once(hip):
    stream, a = hip.make("hipStreamCreate"), hip.upload(np.zeros(64, np.float32))
    for kind, expected in (("pageable", 1), ("pinned", 2)):
        if kind == "pinned":
            pinned = hip.make("hipHostMalloc", c_size_t(256), 0)
            source = np.frombuffer((c_ubyte * 256).from_address(pinned), np.float32)
        else:
            source = np.empty(64, np.float32)
        source[:] = 1
        data = source.ctypes.data
        assert hip.hipMemcpyAsync(a, data, c_size_t(256), TO_DEVICE, c_size_t(stream)) == "Success"
        source[:] = 2
        assert hip.hipStreamSynchronize(c_size_t(stream)) == "Success"
        assert (hip.download(a, 64) == expected).all()


def test_the_null_stream_waits_for_blocking_streams_only(hip):
    host = hip.make("hipHostMalloc", c_size_t(256), 0)
    view = np.frombuffer((c_ubyte * 256).from_address(host), np.float32)
    a = hip.upload(ONES)
    for flags, expected in ((0, 1), (1, 0)):
        view[:] = 0
        stream = hip.make("hipStreamCreateWithFlags", flags)
        hip.hipMemcpyAsync(host, a, c_size_t(256), TO_HOST, c_size_t(stream))
        assert hip.hipStreamSynchronize(None) == "Success"
        assert (view == expected).all()
        assert hip.hipStreamDestroy(c_size_t(stream)) == "Success"
    assert hip.hipStreamCreateWithFlags(byref(c_size_t()), 8) == "InvalidValue"


def test_events_order_streams_and_have_times(hip):
    first, second = (hip.make("hipStreamCreateWithFlags", 1) for _ in range(2))
    start, stop = hip.make("hipEventCreate"), hip.make("hipEventCreate")
    a, b = hip.upload(ONES), hip.upload(np.zeros(64, np.float32))
    two = np.full(64, 2, np.float32)
    assert hip.hipEventRecord(c_size_t(start), c_size_t(first)) == "Success"
    hip.hipMemcpyAsync(a, two.ctypes.data, c_size_t(256), TO_DEVICE, c_size_t(first))
    assert hip.hipEventRecord(c_size_t(stop), c_size_t(first)) == "Success"
    assert hip.hipEventElapsedTime(byref(c_float()), c_size_t(start), c_size_t(stop)) == "NotReady"
    assert hip.hipStreamWaitEvent(c_size_t(second), c_size_t(stop), 0) == "Success"
    hip.hipMemcpyAsync(b, a, c_size_t(256), ON_DEVICE, c_size_t(second))
    assert hip.hipStreamSynchronize(c_size_t(second)) == "Success"
    assert (hip.download(b, 64) == 2).all()
    elapsed = c_float()
    assert hip.hipEventElapsedTime(byref(elapsed), c_size_t(start), c_size_t(stop)) == "Success"
    assert elapsed.value > 0
    assert hip.hipEventQuery(c_size_t(stop)) == "Success"
    untimed = hip.make("hipEventCreateWithFlags", 2)
    hip.hipEventRecord(c_size_t(untimed), None)
    assert hip.hipEventSynchronize(c_size_t(untimed)) == "Success"
    late = hip.hipEventElapsedTime(byref(elapsed), c_size_t(start), c_size_t(untimed))
    assert late == "InvalidHandle"


def test_bad_handles(hip):
    a = hip.upload(ONES)
    assert hip.hipStreamSynchronize(c_size_t(a)) == "InvalidHandle"
    stream = hip.make("hipStreamCreate")
    assert hip.hipStreamDestroy(c_size_t(stream)) == "Success"
    assert hip.hipStreamSynchronize(c_size_t(stream)) == "InvalidHandle"
    assert hip.hipEventRecord(c_size_t(stream), None) == "InvalidHandle"
    assert hip.hipModuleUnload(c_size_t(a)) == "InvalidHandle"
    assert hip.launch(a, b"") == "InvalidHandle"


def test_host_functions_run_in_order(hip):
    seen = []
    function = ctypes.CFUNCTYPE(None, c_void_p)(lambda data: seen.append(data))
    stream = hip.make("hipStreamCreate")
    for i in (1, 2):
        assert hip.hipLaunchHostFunc(c_size_t(stream), function, c_size_t(i)) == "Success"
    assert seen == []
    assert hip.hipDeviceSynchronize() == "Success"
    assert seen == [1, 2]


# Kernels


def test_a_kernel_by_packed_buffer_and_by_pointers(hip):
    function, x, y = hip.load(), hip.upload(ONES), hip.upload(ONES)
    assert hip.launch(function, saxpy_arguments(x, y, 64, 3.0)) == "Success"
    values = c_size_t(x), c_size_t(y), ctypes.c_int64(64), c_float(10.0)
    pointers = (c_size_t * 4)(*(ctypes.addressof(v) for v in values))
    status = hip.hipModuleLaunchKernel(
        c_size_t(function), 1, 1, 1, 64, 1, 1, 0, None, pointers, None
    )
    assert status == "Success"
    assert (hip.download(y, 64) == 14).all()


def test_constants_of_a_module(hip):
    module = hip.make("hipModuleLoadData", code_object("gfx942"))
    function = hip.make("hipModuleGetFunction", c_size_t(module), b"lookup")
    out = hip.upload(np.zeros(64, np.int32))
    assert hip.launch(function, out.to_bytes(8, "little")) == "Success"
    assert hip.download(out, 64, np.int32).tolist() == [2, 3, 5, 7] * 16
    assert hip.hipModuleGetFunction(byref(c_size_t()), c_size_t(module), b"no") == "NotFound"
    assert "the module has saxpy, lookup" in hip.text("NotFound")
    assert hip.hipModuleUnload(c_size_t(module)) == "Success"
    assert hip.launch(function, out.to_bytes(8, "little")) == "InvalidHandle"


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (dict(grid=0), "InvalidValue", "grid"),
        (dict(block=0), "InvalidValue", "workgroups"),
        (dict(block=65), "InvalidValue", "up to 64 threads, not 65"),
        (dict(shared=70000), "InvalidValue", "70000 bytes of LDS; gfx942 has 65536"),
        (dict(kernarg=b"1234"), "InvalidValue", "takes 28 bytes of arguments, got 4"),
        (dict(grid=1 << 27), "InvalidConfiguration", "too large"),
    ],
)
def test_launches_that_cannot_be(hip, options, status, text):
    y = hip.upload(ONES)
    kernarg = options.pop("kernarg", saxpy_arguments(y, y, 64, 1.0))
    assert hip.launch(hip.load(), kernarg, **options) == status
    assert text in hip.text(status)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"MZ" + bytes(200), "InvalidImage"),
        (code_object("gfx1100"), "NoBinaryForGpu"),
        (code_object("gfx942")[:64] + bytes(10_000), "InvalidImage"),
    ],
)
def test_code_that_does_not_load(hip, data, status):
    assert hip.hipModuleLoadData(byref(c_size_t()), data) == status
    assert hip.hipModuleLoad(byref(c_size_t()), b"/nowhere.hsaco") == "FileNotFound"


def test_function_attributes(hip):
    out = c_int()
    function = c_size_t(hip.load())
    assert hip.hipFuncGetAttribute(byref(out), 0, function) == "Success" and out.value == 64
    assert hip.hipFuncGetAttribute(byref(out), 4, function) == "Success" and 0 < out.value < 64
    name = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
    assert getattr(hip, name)(byref(out), function, 64, c_size_t(0)) == "Success"
    assert out.value > 1


def test_what_a_kernel_does_wrong_shows_at_the_next_wait_and_only_there(hip):
    function, x = hip.load(), hip.upload(ONES)
    y = hip.upload(np.zeros(32, np.float32))
    assert hip.launch(function, saxpy_arguments(x, y, 64, 1.0)) == "Success"
    assert hip.hipDeviceSynchronize() == "IllegalAddress"
    text = hip.text("IllegalAddress")
    assert "kernel saxpy" in text and "lane 32" in text
    assert hip.hipDeviceSynchronize() == "Success"
    np.testing.assert_array_equal(hip.download(x, 64), ONES)


def test_use_after_free(hip):
    function, x = hip.load(), hip.upload(ONES)
    y = hip.upload(ONES)
    assert hip.hipFree(y) == "Success"
    hip.launch(function, saxpy_arguments(x, y, 64, 1.0))
    assert hip.hipDeviceSynchronize() == "IllegalAddress"


def test_free_waits_for_kernels(hip):
    function, x, y = hip.load(), hip.upload(ONES), hip.upload(ONES)
    hip.launch(function, saxpy_arguments(x, y, 64, 1.0))
    assert hip.hipFree(x) == "Success"
    assert (hip.download(y, 64) == 2).all()
    stream = c_size_t(hip.make("hipStreamCreate"))
    z = hip.make("hipMallocAsync", c_size_t(256), stream)
    hip.hipMemcpyAsync(z, ONES.ctypes.data, c_size_t(256), TO_DEVICE, stream)
    hip.launch(function, saxpy_arguments(z, y, 64, 1.0), stream=stream.value)
    assert hip.hipFreeAsync(z, stream) == "Success"
    assert hip.hipStreamSynchronize(stream) == "Success"
    assert (hip.download(y, 64) == 3).all()
    assert hip.hipFree(z) == "InvalidValue"


def test_devices_have_memories_of_their_own(pair):
    x = pair.upload(ONES)
    pair.hipSetDevice(1)
    function, y = pair.load("gfx1100"), pair.upload(ONES)
    pair.launch(function, saxpy_arguments(x, y, 64, 1.0))
    assert pair.hipDeviceSynchronize() == "IllegalAddress"
    can = c_int()
    assert pair.hipDeviceCanAccessPeer(byref(can), 1, 0) == "Success" and can.value == 1
    assert pair.hipDeviceEnablePeerAccess(0, 0) == "Success"
    assert pair.hipDeviceEnablePeerAccess(0, 0) == "PeerAccessAlreadyEnabled"
    pair.launch(function, saxpy_arguments(x, y, 64, 1.0))
    assert (pair.download(y, 64) == 2).all()
    assert pair.hipDeviceDisablePeerAccess(0) == "Success"
    assert pair.hipDeviceDisablePeerAccess(0) == "PeerAccessNotEnabled"


def test_peer_copies(pair):
    x = pair.upload(ONES)
    pair.hipSetDevice(1)
    y = pair.upload(np.zeros(64, np.float32))
    assert pair.hipMemcpyPeer(y, 1, x, 0, c_size_t(256)) == "Success"
    assert pair.hipMemcpyPeer(y, 0, x, 1, c_size_t(256)) == "InvalidValue"
    np.testing.assert_array_equal(pair.download(y, 64), ONES)


# Graphs


def captured(hip, stream, issue) -> int:
    assert hip.hipStreamBeginCapture(c_size_t(stream), 2) == "Success"
    issue()
    return hip_end(hip, stream)


def hip_end(hip, stream) -> int:
    graph = c_size_t()
    assert hip.hipStreamEndCapture(c_size_t(stream), byref(graph)) == "Success"
    return graph.value


def test_a_graph_runs_as_often_as_it_is_launched(hip):
    function, x, y = hip.load(), hip.upload(ONES), hip.upload(ONES)
    stream = hip.make("hipStreamCreateWithFlags", 1)
    kernarg = saxpy_arguments(x, y, 64, 1.0)
    graph = captured(hip, stream, lambda: hip.launch(function, kernarg, stream=stream))
    assert (hip.download(y, 64) == 1).all()
    count = c_size_t()
    assert hip.hipGraphGetNodes(c_size_t(graph), None, byref(count)) == "Success"
    assert count.value == 1
    run = hip.make("hipGraphInstantiate", c_size_t(graph), None, None, c_size_t(0))
    assert hip.hipGraphDestroy(c_size_t(graph)) == "Success"
    for expected in (2, 3):
        assert hip.hipGraphLaunch(c_size_t(run), c_size_t(stream)) == "Success"
        assert hip.hipStreamSynchronize(c_size_t(stream)) == "Success"
        assert (hip.download(y, 64) == expected).all()

    new = captured(
        hip, stream, lambda: hip.launch(function, saxpy_arguments(x, y, 64, 10.0), stream=stream)
    )
    result = c_int()
    update = (c_size_t(run), c_size_t(new), None, byref(result))
    assert hip.hipGraphExecUpdate(*update) == "Success" and result.value == 0
    hip.hipGraphLaunch(c_size_t(run), c_size_t(stream))
    assert hip.hipDeviceSynchronize() == "Success"
    assert (hip.download(y, 64) == 13).all()
    empty = captured(hip, stream, lambda: None)
    status = hip.hipGraphExecUpdate(c_size_t(run), c_size_t(empty), None, byref(result))
    assert (status, result.value) == ("GraphExecUpdateFailure", 2)
    assert hip.hipGraphExecDestroy(c_size_t(run)) == "Success"
    assert hip.hipGraphLaunch(c_size_t(run), c_size_t(stream)) == "InvalidHandle"


def test_waiting_spoils_a_capture(hip):
    stream = c_size_t(hip.make("hipStreamCreate"))
    assert hip.hipStreamBeginCapture(stream, 0) == "Success"
    assert hip.hipStreamBeginCapture(stream, 0) == "StreamCaptureUnsupported"
    assert hip.hipStreamSynchronize(stream) == "StreamCaptureUnsupported"
    status = c_int()
    assert hip.hipStreamIsCapturing(stream, byref(status)) == "Success" and status.value == 2
    assert hip.hipStreamEndCapture(stream, byref(c_size_t())) == "StreamCaptureInvalidated"
    assert hip.hipStreamEndCapture(stream, byref(c_size_t())) == "StreamCaptureUnmatched"
    assert hip.hipStreamBeginCapture(None, 0) == "StreamCaptureUnsupported"


def test_the_null_stream_cannot_be_used_beside_a_capture(hip):
    a, stream = hip.upload(ONES), c_size_t(hip.make("hipStreamCreate"))
    assert hip.hipStreamBeginCapture(stream, 0) == "Success"
    assert hip.hipMemset(a, 0, c_size_t(4)) == "StreamCaptureImplicit"
    assert hip.hipStreamEndCapture(stream, byref(c_size_t())) == "StreamCaptureInvalidated"


@pytest.mark.parametrize("join", [True, False])
def test_a_capture_spreads_by_events(hip, join):
    function, x, y = hip.load(), hip.upload(ONES), hip.upload(ONES)
    first, second = (hip.make("hipStreamCreateWithFlags", 1) for _ in range(2))
    fork, back = (c_size_t(hip.make("hipEventCreate")) for _ in range(2))
    assert hip.hipStreamBeginCapture(c_size_t(first), 0) == "Success"
    hip.hipEventRecord(fork, c_size_t(first))
    assert hip.hipStreamWaitEvent(c_size_t(second), fork, 0) == "Success"
    hip.launch(function, saxpy_arguments(x, y, 64, 1.0), stream=second)
    hip.hipEventRecord(back, c_size_t(second))
    assert hip.hipEventSynchronize(back) == "CapturedEvent"
    if join:
        assert hip.hipStreamWaitEvent(c_size_t(first), back, 0) == "Success"
        run = hip.make("hipGraphInstantiateWithFlags", c_size_t(hip_end(hip, first)), c_size_t(0))
        hip.hipGraphLaunch(c_size_t(run), None)
        assert (hip.download(y, 64) == 2).all()
    else:
        status = hip.hipStreamEndCapture(c_size_t(first), byref(c_size_t()))
        assert status == "StreamCaptureUnjoined"


# Settings


def test_names_of_devices():
    assert device_names(None) == ["gfx942"]
    assert device_names("gfx1100, gfx942x2,") == ["gfx1100", "gfx942", "gfx942"]
    with pytest.raises(ValueError, match=r"gfx943.*Did you mean 'gfx942'"):
        device_names("gfx943")


def test_sizes_of_memory():
    assert device_memory("512M") == 512 << 20
    assert device_memory("4 GiB") == 4 << 30
    assert device_memory("1000") == 1000
    assert device_memory(None) > 1 << 28
    with pytest.raises(ValueError, match="much"):
        device_memory("much")


def test_devices_are_added_where_there_are_too_few():
    hip = EmulatedHip(MEMORY)
    assert hip.devices(["gfx942"]) == [0]
    assert hip.devices(["gfx942", "gfx942"]) == [0, 1]
    assert hip.devices(["gfx1100", "gfx942"]) == [2, 0]


def test_launches_are_counted_on_demand(hip):
    function, x, y = hip.load(), hip.upload(ONES), hip.upload(ONES)
    with recording() as found:
        hip.launch(function, saxpy_arguments(x, y, 64, 1.0), grid=2)
        hip.hipDeviceSynchronize()
    hip.launch(function, saxpy_arguments(x, y, 64, 1.0))
    hip.hipDeviceSynchronize()
    assert [counters.by_mnemonic["s_endpgm"] for counters in found] == [2]


def test_memory_that_nobody_wrote(hip):
    function, y = hip.load(), hip.upload(ONES)
    x, copy = (hip.make("hipMalloc", c_size_t(256)) for _ in range(2))
    hip.hipMemset(x, 0, c_size_t(128))
    hip.hipMemcpyDtoD(copy, x, c_size_t(256))
    for source in (x, copy):
        hip.launch(function, saxpy_arguments(source, y, 32, 1.0))
        assert hip.hipDeviceSynchronize() == "Success"
        hip.launch(function, saxpy_arguments(source, y, 33, 1.0))
        assert hip.hipDeviceSynchronize() == "LaunchFailure"
        assert "lane 32" in hip.text("LaunchFailure")
