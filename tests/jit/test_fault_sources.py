"""What an emulated GPU finds wrong with a kernel names tile op, operation and the user's line."""

import re
import struct

import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax import lax, nn, tile
from amdjax.codegen.gpu.isa import Amdgcn
from amdjax.emulator import CodeObject, Memory, MemoryFault, launch
from amdjax.jit import kernels
from amdjax.jit.api import clear_caches
from amdjax.runtime.cache import ObjectCache
from amdjax.runtime.gpu import DeviceError

X = np.ones((8, 200), np.float32)


def scaled(x):
    return jnp.exp(x) - 0.75


def largest(x):
    return jnp.max(x, 1)


def softmax(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# What a wrong schedule does


@pytest.fixture
def unmasked(monkeypatch):
    """Schedules that forget the end of their arrays."""
    load, store = tile.Builder.load, tile.Builder.store

    def careless_load(k, buffer, offset, shape=(), strides=None, mask=None, *args, **options):
        return load(k, buffer, offset, shape, strides, None, *args, **options)

    def careless_store(k, buffer, offset, value, strides=None, mask=None, streaming=False):
        store(k, buffer, offset, value, strides, None, streaming)

    monkeypatch.setattr(tile.Builder, "load", careless_load)
    monkeypatch.setattr(tile.Builder, "store", careless_store)


@pytest.mark.devices
@pytest.mark.parametrize("fun,kernel,operation", [
    (scaled, "map_sub", "exp"), (largest, "rows_reduce_max", "reduce_max"),
])  # fmt: skip
def test_a_wrong_schedule_is_found(device, unmasked, fun, kernel, operation):
    if device is None or device.platform != "emulated":
        pytest.skip("for emulated GPUs")
    x = amdjax.device_put(np.ones((3, 101), np.float32), device)
    op = rf"\({kernel}\.tile:\d+: %\d+: f32\S+ = load x\d .*\)"
    place = re.escape(f"from `{operation}` at {__file__}:{line_of(fun)} ({fun.__name__})")
    with pytest.raises(
        DeviceError, match=rf"global_load\S* .* at \+0x\w+ {op}, {place}, .* lane \d+, launched at"
    ):
        np.asarray(amdjax.jit(fun)(x))


def line_of(fun, offset=1):
    """A line of a function, the first of its body by default."""
    return fun.__code__.co_firstlineno + offset


@pytest.mark.devices
def test_eager_operations_name_the_line_of_the_launch(device, unmasked):
    """They are compiled once for all callers, and so are functions of the library."""
    if device is None or device.platform != "emulated":
        pytest.skip("for emulated GPUs")
    x = amdjax.device_put(np.ones((3, 101), np.float32), device)

    def eager(x):
        return nn.softmax(x)

    for call in (eager, largest):
        launched = re.escape(f"launched at {__file__}:{line_of(call)} ({call.__name__})")
        with pytest.raises(DeviceError, match=rf"from `reduce_max`, workgroup .*, {launched}"):
            np.asarray(call(x))


@pytest.fixture
def careless_waves(monkeypatch, tmp_path):
    """Waves that do not wait for each other; no other test is to find such kernels in the cache."""
    monkeypatch.setattr(Amdgcn, "barrier", lambda *args: None)
    monkeypatch.setattr(kernels, "object_cache", lambda: ObjectCache(tmp_path))
    clear_caches()
    yield
    clear_caches()


@pytest.mark.devices
def test_missing_barriers_are_found(device, careless_waves):
    if device is None or device.platform != "emulated":
        pytest.skip("for emulated GPUs")
    x = amdjax.device_put(np.ones((3, 4000), np.float32), device)
    place = re.escape(f"from `reduce_max` at {__file__}:{line_of(softmax)} (softmax)")
    what = "race in LDS|read of LDS that was not written"
    with pytest.raises(DeviceError, match=rf"({what}).* reduce combine=max .*, {place}"):
        np.asarray(amdjax.jit(softmax)(x))


# Every kernel, with too little memory


def origins_of_faults(fun, *args, target="gfx942"):
    """What faults name, of every kernel of a program that is given arrays of a few bytes."""
    compiled = amdjax.jit(fun).lower(*args).compile(target)
    found = []
    for record in compiled.kernels:
        memory, small = Memory(), [np.zeros(8, np.uint8) for _ in record.arguments]
        values = [1 << 20 if a.role == "size" else x.ctypes.data
                  for a, x in zip(record.arguments, small)]  # fmt: skip
        (kernel,) = CodeObject(record.code).kernels.values()
        with memory.holding(*small), pytest.raises(MemoryFault) as caught:
            arguments = struct.pack(f"<{len(values)}Q", *values)
            launch(kernel, record.grid, record.workgroup, arguments, memory)
        found.append(caught.value.origin)
    return found


def at(fun, operation, offset=1):
    return f"`{operation}` at {__file__}:{line_of(fun, offset)} ({fun.__name__})"


def sorted_rows(x):
    return jnp.sort(x, axis=1)


def product(x):
    return nn.relu(x @ x.T)


def scattered(x):
    i = jnp.arange(8)[::-1] * 3
    return x.at[0, i].add(1.0)


def running(x):
    return jnp.cumsum(x, axis=1)


def windows(x):
    return lax.conv(x.reshape(1, 8, 10, 20), x.reshape(8, 8, 5, 5), (1, 1), "SAME")


@pytest.mark.parametrize("fun,operation,offset", [
    (scaled, "exp", 1), (softmax, "reduce_max", 1), (sorted_rows, "sort", 1),
    (product, "dot_general", 1), (scattered, "scatter-add", 2), (running, "cumsum", 1),
    (windows, "conv_general_dilated", 1),
])  # fmt: skip
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_faults_of_all_kinds_of_kernels(fun, operation, offset, target):
    found = origins_of_faults(fun, X, target=target)
    assert at(fun, operation, offset) in found
    assert all(f" at {__file__}:" in origin for origin in found), found


def test_long_reductions_in_pieces():
    def total(x):
        return x.sum()

    found = origins_of_faults(total, np.ones(1 << 20, np.float32))
    assert set(found) == {at(total, "reduce_sum")}
