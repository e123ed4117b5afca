"""The emulator's HIP library as a C program sees it: modules, kernels, graphs."""

import ctypes
from ctypes import byref, c_float, c_int, c_size_t

import numpy as np
import pytest

from amdjax.emulator import recording
from tests.support.hip_calls import LINUX_X86, ONES, TO_DEVICE
from tests.support.hip_kernels import code_object, saxpy_arguments

pytestmark = LINUX_X86


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
