"""The emulator's HIP library as a C program sees it: devices, memory, streams."""

import ctypes
from ctypes import byref, c_float, c_int, c_size_t, c_ubyte, c_void_p

import numpy as np
import pytest

from amdjax.emulator.hip.library import EmulatedHip, device_memory, device_names
from amdjax.emulator.hip.properties import DeviceProperties
from tests.support.hip_calls import (
    DEFAULT,
    LINUX_X86,
    MEMORY,
    ON_DEVICE,
    ONES,
    TO_DEVICE,
    TO_HOST,
    Hip,
)

pytestmark = LINUX_X86


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
    assert hip.hipNotEmulated() == "NotSupported"
    assert "hipNotEmulated is not emulated" in hip.text("NotSupported")


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


# Settings


def test_names_of_devices():
    assert device_names(None) == ["gfx942"]
    assert device_names("gfx1100, gfx942x2,") == ["gfx1100", "gfx942", "gfx942"]
    with pytest.raises(ValueError, match=r"gfx943.*Did you mean 'gfx942'"):
        device_names("gfx943")
    with pytest.raises(ValueError, match=r"sm_90 is not emulated; these are: gfx908, "):
        device_names("gfx942,sm_90")
    for none in ("gfx942x0", "gfx942x-1", ",", " "):
        with pytest.raises(ValueError, match="AMDJAX_EMULATE"):
            device_names(none)


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
