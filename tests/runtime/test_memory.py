import ctypes
import gc
import itertools
import os
import threading

import ml_dtypes
import numpy as np
import pytest

from amdjax.runtime import memory as M
from amdjax.runtime.memory import Buffer, BufferPool
from tests.support.native_helpers import resident_bytes

SIZES = [0, 1, 63, 64, 65, 1000, 1024, 1025, 5000, 65_536, 65_537, 10**6, 2 << 20, 5_000_001]


@pytest.fixture
def pool():
    return BufferPool()


def test_size_classes():
    for nbytes in [*range(0, 70_000, 13), *np.random.default_rng(0).integers(1, 2**36, 500)]:
        nbytes = int(nbytes)
        size = M._class_size(nbytes)
        assert size >= nbytes and size % M.ALIGNMENT == 0
        assert size <= max(64, nbytes + 63, nbytes * 1.25)
        assert M._class_size(size) == size


@pytest.mark.parametrize("nbytes", SIZES)
def test_alloc(pool, nbytes):
    buffers = [pool.alloc(nbytes) for _ in range(20)]
    places = sorted((b.address, b.address + max(nbytes, 1)) for b in buffers)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))
    assert all(b.address % M.ALIGNMENT == 0 and b.nbytes == nbytes for b in buffers)
    for i, b in enumerate(buffers):
        b.as_numpy((nbytes,), np.uint8, writable=True)[:] = i
    for i, b in enumerate(buffers):
        assert (b.as_numpy((nbytes,), np.uint8) == i).all()


def test_huge_buffers_are_aligned_to_huge_pages(pool):
    assert pool.alloc(8 << 20).address % (2 << 20) == 0


def test_negative(pool):
    with pytest.raises(ValueError, match="negative"):
        pool.alloc(-1)
    with pytest.raises(ValueError, match="negative"):
        pool.alloc(-1000)


@pytest.mark.parametrize("nbytes", SIZES)
def test_memory_is_reused(pool, nbytes):
    address = pool.alloc(nbytes).address
    assert pool.alloc(nbytes).address == address


def test_slightly_larger_memory_is_reused(pool):
    address = pool.alloc(1_200_000).address
    assert pool.alloc(1_000_000).address == address
    assert pool.stats().in_use == 0


def test_stats(pool):
    assert pool.stats().in_use == pool.stats().mapped == 0
    small, large = pool.alloc(100), pool.alloc(1 << 20)
    assert pool.stats().in_use == 128 + (1 << 20)
    del small, large
    stats = pool.stats()
    assert stats.in_use == 0 and stats.cached == stats.mapped > 1 << 20
    pool.trim()
    assert pool.stats().mapped == 0


def test_trim_leaves_what_is_in_use(pool):
    kept = [pool.alloc(n) for n in (100, 5000, 1 << 20)]
    for b in kept:
        b.as_numpy((b.nbytes,), np.uint8, writable=True)[:] = 7
    for n in SIZES * 10:
        pool.alloc(n)
    pool.trim()
    for b in kept:
        assert (b.as_numpy((b.nbytes,), np.uint8) == 7).all()
    assert pool.stats().in_use == 128 + 5120 + (1 << 20)
    more = [pool.alloc(100) for _ in range(20_000)]
    assert len({b.address for b in more} | {kept[0].address}) == 20_001


def test_oldest_go_first():
    pool = BufferPool(keep=3 << 20)
    buffers = [pool.alloc(1 << 20) for _ in range(5)]
    addresses = [b.address for b in buffers]
    while buffers:
        del buffers[0]
    assert pool.stats().cached == 3 << 20
    assert {pool.alloc(1 << 20).address} <= set(addresses[2:])
    assert {a for _, a in pool._large[1 << 20]} == set(addresses[2:])


def test_limit():
    pool = BufferPool(limit=64 << 20)
    kept = [pool.alloc(20 << 20) for _ in range(3)]
    with pytest.raises(MemoryError, match=r"16 MiB asked for, 60 MiB in use.*limit 64 MiB"):
        pool.alloc(16 << 20)
    kept.pop()
    assert pool.alloc(16 << 20).nbytes == 16 << 20  # cached memory made room


def test_limit_frees_cycles_first():
    pool = BufferPool(limit=64 << 20)
    cycle = [pool.alloc(60 << 20)]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        pool.alloc(60 << 20)
    finally:
        gc.enable()


@pytest.mark.parametrize("nbytes", [8, 3000, 1 << 20])
def test_no_growth(pool, nbytes):
    window = [pool.alloc(nbytes) for _ in range(8)]
    mapped, resident = pool.stats().mapped, resident_bytes()
    for i in range(100_000):
        window[i % 8] = None
        window[i % 8] = pool.alloc(nbytes)
    assert pool.stats().mapped == mapped
    assert resident_bytes() - resident < 4 << 20


def test_no_growth_with_mixed_sizes():
    pool = BufferPool(keep=16 << 20)
    rng = np.random.default_rng(0)
    window = {}
    for nbytes in (2.0 ** rng.uniform(0, 22, 20_000)).astype(int).tolist():
        window[nbytes % 16] = pool.alloc(nbytes)
    window.clear()
    assert pool.stats().mapped < 120 << 20 and pool.stats().in_use == 0


def test_threads(pool):
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        held = []
        for nbytes in (2.0 ** rng.uniform(0, 19, 2000)).astype(int).tolist():
            b = pool.alloc(nbytes)
            view = b.as_numpy((nbytes,), np.uint8, writable=True)
            view[:] = seed
            held.append(view)
            if len(held) > 20:
                failures.extend(v for v in held[::3] if not (v == seed).all())
                held = held[15:]
            if nbytes % 100 == 0:
                pool.trim()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
    assert pool.stats().in_use == 0


@pytest.mark.parametrize(
    "dtype",
    [np.bool_, np.int8, np.uint64, np.float16, np.float32, np.complex128]
    + [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4],
)
def test_views(pool, dtype):
    dtype = np.dtype(dtype)
    b = pool.alloc(12 * dtype.itemsize)
    view = b.as_numpy((3, 4), dtype, writable=True)
    assert view.dtype == dtype and view.shape == (3, 4) and view.ctypes.data == b.address
    view[:] = 1
    assert (b.as_numpy((12,), dtype) == np.ones(12, dtype)).all()
    assert not b.as_numpy((3, 4), dtype).flags.writeable
    assert b.as_numpy((), dtype, offset=4 * dtype.itemsize) == 1
    with pytest.raises(ValueError, match="needs"):
        b.as_numpy((13,), dtype)
    assert b.as_numpy((0, 5), dtype).size == 0


def test_views_keep_the_memory(pool):
    view = pool.alloc(1 << 20).as_numpy((1 << 18,), np.float32, writable=True)
    part = view[5:10].reshape(1, 5)
    address = view.ctypes.data
    del view
    gc.collect()
    assert pool.alloc(1 << 20).address != address
    del part
    assert address in {b.address for b in [pool.alloc(1 << 20) for _ in range(2)]}


def test_numpy_memory():
    array = np.arange(10.0)
    b = Buffer.from_numpy(array)
    assert (b.address, b.nbytes, b.read_only) == (array.ctypes.data, 80, False)
    b.as_numpy((10,), np.float64, writable=True)[0] = 5
    assert array[0] == 5
    array.flags.writeable = False
    b = Buffer.from_numpy(array)
    assert b.read_only
    with pytest.raises(ValueError):
        b.as_numpy((10,), np.float64, writable=True)[0] = 1
    del array
    assert b.as_numpy((10,), np.float64)[9] == 9
    with pytest.raises(ValueError, match="contiguous"):
        Buffer.from_numpy(np.ones((4, 4)).T[1:])
    with pytest.raises(TypeError, match="objects"):
        Buffer.from_numpy(np.array([None]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork(pool):
    b = pool.alloc(1 << 20)
    view = b.as_numpy((1 << 20,), np.uint8, writable=True)
    view[:] = 3
    child = os.fork()
    if child == 0:
        view[:] = 4
        del view, b
        pool.trim()
        ok = pool.alloc(1 << 20).nbytes == 1 << 20
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (view == 3).all()


@pytest.mark.skipif(not hasattr(M._libc(), "mincore"), reason="no mincore")
@pytest.mark.parametrize("nbytes", [64, 200, 1000, 5000])
def test_pages_behind_small_blocks_are_in_memory(pool, nbytes):
    # Masked lanes of a vector there would be slow.
    for _ in range(3):
        block = pool.alloc(nbytes)
        known = [block.address, *pool.free_addresses(nbytes)]
        for address in known:
            page = (address + M._class_size(nbytes) + 255) & -M._PAGE
            if page & -M._SLAB == address & -M._SLAB:
                resident = ctypes.create_string_buffer(1)
                assert M._libc().mincore(ctypes.c_void_p(page), M._PAGE, resident) == 0
                assert resident.raw[0] & 1
        pool.free_addresses(nbytes).clear()
