"""What all GPUs share: pool, buffers, functions, errors, graphs."""

import ctypes
import gc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from amdjax.core.config import config
from amdjax.runtime import device_pool
from amdjax.runtime.device_pool import SLAB, SMALL, DevicePool, block_size
from amdjax.runtime.gpu import DeviceError
from tests.support.fake_gpu import POISON, FakeGpu, FakeKernel


def words(address, count):
    return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(address))


def adding(name="add", amount=1):
    """A kernel of one argument, which adds a number to as many elements as the grid has."""

    def run(grid, kernarg):
        (address,) = words(kernarg, 1)
        words(int(address), grid)[...] += amount

    return FakeKernel(name, run, code=name.encode())


def kernarg(*numbers):
    return np.array(numbers, np.int64).tobytes()


@pytest.fixture
def device():
    return FakeGpu()


@pytest.fixture
def synchronous():
    config.update("sync", True)
    yield
    config.update("sync", False)


def launch(device, kernel, buffer, grid):
    device.launch(device.function(kernel), grid, 1, 0, kernarg(buffer.address))


# Memory


@given(st.integers(0, 1 << 34))
def test_block_sizes_waste_little(nbytes):
    size = block_size(nbytes)
    assert size >= nbytes and size % 256 == 0 and block_size(size) == size
    assert size <= max(256, nbytes + 255, nbytes * 5 // 4)


def test_memory_is_reused(device):
    first = device.alloc(1000)
    address = first.address
    del first
    again = device.alloc(900)
    assert again.address == address
    big = device.alloc(SMALL + 1)
    where = big.address
    del big
    assert device.alloc(SMALL + 2).address == where
    assert device.log.count("map") == 2


def test_small_blocks_are_apart(device):
    held = [device.alloc(300) for _ in range(SLAB // 512 + 3)]
    addresses = sorted(b.address for b in held)
    assert all(b - a >= 300 for a, b in pairwise(addresses))
    assert all(a % 256 == 0 for a in addresses)
    assert device.log.count("map") == 2


def test_stats_and_trim(device):
    held, gone = device.alloc(1 << 20), device.alloc(1 << 20)
    small = [device.alloc(256) for _ in range(4)]
    del gone
    stats = device.pool.stats()
    assert stats.in_use == (1 << 20) + 4 * 256
    assert stats.mapped == (2 << 20) + SLAB == stats.in_use + stats.cached
    assert device.memory_stats() == {
        "bytes_in_use": stats.in_use, "bytes_reserved": stats.mapped,
        "host_bytes_in_use": 0, "host_bytes_reserved": 0,
    }  # fmt: skip
    device.pool.trim()
    assert device.pool.stats().mapped == (1 << 20) + SLAB
    del small
    device.pool.trim()
    assert device.pool.stats() == device_pool.DevicePoolStats(1 << 20, 0, 1 << 20)
    assert held.address in device.sizes


def test_blocks_of_a_trimmed_pool_are_still_usable(device):
    kept = [device.alloc(4096) for _ in range(SLAB // 4096 + 1)]  # two slabs, one block in one
    last = kept.pop()
    kept.clear()
    device.pool.trim()
    assert device.pool.stats().mapped == SLAB
    more = [device.alloc(4096) for _ in range(SLAB // 4096 - 1)]
    assert last.address not in {b.address for b in more}
    assert device.pool.stats().mapped == SLAB


def test_memory_that_garbage_holds_is_found():
    device = FakeGpu(memory=4 << 20)
    cycle = [device.alloc(3 << 20)]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        assert device.alloc(3 << 20).nbytes == 3 << 20
    finally:
        gc.enable()


def test_out_of_memory_is_an_error_and_the_device_stays_usable():
    device = FakeGpu(memory=4 << 20)
    held = device.alloc(1 << 20)
    with pytest.raises(MemoryError, match=r"8,388,608 bytes asked for, 1,048,576 in use"):
        device.alloc(8 << 20)
    assert device.alloc(2 << 20).nbytes == 2 << 20
    assert held.nbytes == 1 << 20


def test_cached_memory_goes_before_an_allocation_fails():
    device = FakeGpu(memory=4 << 20)
    for size in (1 << 20, 3 << 20, 2 << 20):
        device.alloc(size)
    assert device.pool.stats().mapped <= 4 << 20


def test_exact_memory():
    device = FakeGpu(exact_memory=True)
    buffer = device.alloc(10)
    assert list(device.sizes.values()) == [10]
    del buffer
    assert not device.sizes
    assert device.alloc(0).nbytes == 0


def test_pools_of_several_threads_hand_out_each_block_once():
    import threading

    device = FakeGpu()
    seen, errors = [[] for _ in range(4)], []

    def work(k):
        try:
            for i in range(2000):
                seen[k].append(device.alloc(256 + 256 * (i % 3)))
                if i % 2:
                    seen[k].pop(0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    addresses = [b.address for held in seen for b in held]
    assert len(addresses) == len(set(addresses)) == 4000


def test_pool_without_device():
    freed = []
    pool = DevicePool(lambda n: 4096, freed.append)
    address, free = pool.alloc(SMALL + 1)
    free.append(address)
    pool.trim()
    assert freed == [4096]


# Buffers


def test_contents_come_back_when_asked_for(device):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = device.upload(data[:, ::-1])
    assert not buffer.is_ready()
    found = buffer.as_numpy((2, 3), np.float32)
    np.testing.assert_array_equal(found, data[:, ::-1])
    assert not found.flags.writeable and buffer.is_ready()
    buffer.as_numpy((3, 2), np.float32)
    assert device.log.count("read") == 1


def test_written_buffers_are_read_again(device):
    buffer = device.upload(np.zeros(3, np.int64))
    buffer.as_numpy((3,), np.int64)
    launch(device, adding(), buffer, 3)
    buffer.overwritten()
    assert buffer.as_numpy((3,), np.int64).tolist() == [1, 1, 1]


def test_the_source_of_a_write_may_change(device):
    data = np.zeros(2)
    buffer = device.upload(data)
    data += 1
    assert buffer.as_numpy((2,), np.float64).tolist() == [0, 0]


def test_empty_buffers(device):
    buffer = device.upload(np.zeros((0, 3), np.float32))
    assert buffer.as_numpy((0, 3), np.float32).shape == (0, 3)
    device.copy(buffer.address, buffer.address, 0)
    assert "copy" not in device.log and "read" not in device.log


def test_memory_starts_undefined(device):
    assert set(device.alloc(8).as_numpy((8,), np.uint8)) == {POISON}


def test_blocks_may_be_reused_before_the_device_is_done(device):
    first = device.upload(np.zeros(4, np.int64))
    launch(device, adding(), first, 4)
    address = first.address
    result = device.alloc(32)
    device.copy(result.address, address, 32)
    del first
    second = device.upload(np.full(4, 7))
    assert second.address == address
    assert result.as_numpy((4,), np.int64).tolist() == [1] * 4
    assert second.as_numpy((4,), np.int64).tolist() == [7] * 4


# Kernels


def test_functions_are_loaded_once_and_unloaded(device):
    one, same, other = (
        device.function(adding()),
        device.function(adding()),
        device.function(adding("other")),
    )
    assert one is same and one is not other and len(device.handles) == 2
    del one, same
    assert len(device.handles) == 1


def test_an_empty_grid_is_no_launch(device):
    buffer = device.upload(np.zeros(1, np.int64))
    launch(device, adding(), buffer, 0)
    device.synchronize()
    assert "add" not in device.log


def test_a_refused_launch_names_the_kernel(device):
    f = device.function(adding("wrong"))
    with pytest.raises(DeviceError, match="workgroup 0, in kernel wrong") as caught:
        device.launch(f, 1, 0, 0, b"")
    assert caught.value.status == "fakeErrorInvalidValue"
    assert caught.value.kernels == ("wrong",)


def test_a_late_error_names_what_ran_since_the_last_wait(device):
    buffer = device.upload(np.zeros(2, np.int64))
    launch(device, adding("earlier"), buffer, 2)
    device.synchronize()
    device.failing.add("bad")
    for name in ("good", "bad", "good"):
        launch(device, adding(name), buffer, 2)
    with pytest.raises(DeviceError, match=r"in one of the kernels good, bad; AMDJAX_SYNC=1") as e:
        buffer.as_numpy((2,), np.int64)
    assert e.value.kernels == ("good", "bad")
    device.synchronize()  # told once


@pytest.mark.parametrize(
    "status, late",
    [
        ("hipErrorIllegalAddress", True),
        ("hipErrorLaunchFailure", True),
        ("CUDA_ERROR_LAUNCH_FAILED", True),
        ("CUDA_ERROR_ILLEGAL_ADDRESS", True),
        ("hipErrorInvalidValue", False),
        ("hipErrorLaunchOutOfResources", False),
    ],
)
def test_a_call_that_tells_of_earlier_work_names_it(device, status, late):
    buffer = device.upload(np.zeros(2, np.int64))
    launch(device, adding("bad"), buffer, 2)
    f = device.function(adding("good"))
    device.answer = status
    with pytest.raises(DeviceError) as caught:
        device.launch(f, 1, 64, 0, b"")
    assert caught.value.kernels == (("bad", "good") if late else ("good",))
    uses = (
        lambda: device.copy(buffer.address, buffer.address + 8, 8),
        lambda: device.write(buffer.address, np.ones(2)),
    )
    for use in uses:
        with pytest.raises(DeviceError) as caught:
            use()
        assert caught.value.kernels == (("bad",) if late else ())
    with pytest.raises(DeviceError, match="in kernel bad"):
        device.is_idle()
    device.answer = ""


def test_waiting_for_each_kernel_names_the_one(device, synchronous):
    buffer = device.upload(np.zeros(2, np.int64))
    device.failing.add("bad")
    launch(device, adding("good"), buffer, 2)
    with pytest.raises(DeviceError, match=r"illegal address, in kernel bad$"):
        launch(device, adding("bad"), buffer, 2)


def test_an_error_that_freeing_meets_is_told_at_the_next_wait():
    device = FakeGpu(exact_memory=True)
    device.failing.add("bad")
    buffer = device.upload(np.zeros(2, np.int64))
    launch(device, adding("bad"), buffer, 2)
    del buffer
    with pytest.raises(DeviceError, match="illegal address, in kernel bad"):
        device.synchronize()


# Graphs


def test_capture_and_replay(device):
    buffer = device.upload(np.zeros(2, np.int64))

    def issue():
        launch(device, adding("once"), buffer, 2)
        launch(device, adding("ten", 10), buffer, 1)

    graph = device.capture(issue)
    device.synchronize()
    assert "once" not in device.log and graph.kernels == ("once", "ten")
    device.replay(graph)
    device.replay(graph)
    assert buffer.as_numpy((2,), np.int64).tolist() == [22, 2]
    device.failing.add("ten")
    device.replay(graph)
    with pytest.raises(DeviceError, match="once, ten"):
        device.synchronize()
    del graph
    assert not device.graphs


def test_a_failed_capture_leaves_nothing(device):
    def issue():
        raise ValueError("no")

    with pytest.raises(ValueError):
        device.capture(issue)
    assert not device.graphs and device.recording is None
    device.synchronize()


def test_capture_does_not_wait(device, synchronous):
    buffer = device.upload(np.zeros(2, np.int64))
    graph = device.capture(lambda: launch(device, adding(), buffer, 2))
    device.replay(graph)
    assert device.log[-1] == "add"


def test_devices_that_cannot_capture(device, monkeypatch):
    monkeypatch.setattr(FakeGpu, "can_capture", False)
    assert device.capture(lambda: None) is None
