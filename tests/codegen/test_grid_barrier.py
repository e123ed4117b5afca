"""`grid_barrier`: resident programs see what all others stored, again and again."""

import re
import struct

import numpy as np
import pytest

from amdjax import targets, tile
from amdjax.codegen.gpu.amdgpu_object import assembly
from amdjax.codegen.gpu.kernel import compile_kernel
from amdjax.codegen.gpu.writer import kernel_ir
from amdjax.emulator import CodeObject, Memory, launch
from amdjax.emulator.errors import EmulatorError, KernelFault
from amdjax.runtime.gpu import DeviceError
from tests.codegen.test_arrive import GCN, RDNA, WRITTEN_BACK
from tests.conftest import find_device

WIDE = 128  # elements of a program


def rotating(rounds, workgroup, barriers=True):
    """In each round every program takes over what its neighbor had, plus one.

    Rounds read one half of `x` and write the other.
    """
    k = tile.Builder("rotating")
    x, counter = k.param("x", "f32", "inout"), k.param("counter", "u32", "inout")
    count = k.size(k.param("programs", "index", "size"))
    k.schedule.workgroup = workgroup
    me = k.program_id()

    def step(t):
        half = count * WIDE
        to, source = ((t + 1) & 1) * half, (t & 1) * half
        neighbor = (me + 1) % count
        # By other threads than those that stored.
        old = k.load(x, source + neighbor * WIDE + (WIDE - 1), (WIDE,), (-1,))
        k.store(x, to + me * WIDE, old + 1.0)
        if barriers:
            k.grid_barrier(counter, 0, t, count, rounds)

    k.for_(0, rounds, 1, step)
    return k.finish(1)


def run(kernel, programs, gfx, cooperative=True):
    made = compile_kernel(kernel, targets.get(gfx))
    start = np.random.default_rng(0).standard_normal((programs, WIDE)).astype(np.float32)
    x, counter = np.stack([start, np.full_like(start, np.nan)]), np.zeros(1, np.uint32)
    memory = Memory()
    with memory.holding(x, counter):
        words = struct.pack("<3q", x.ctypes.data, counter.ctypes.data, programs)
        kernels = CodeObject(made.code).kernels
        found = launch(
            kernels["kernel"], programs, made.workgroup, words, memory, cooperative=cooperative
        )
    assert not counter.any()
    return start, x, found


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100", "gfx908", "gfx1201"])
@pytest.mark.parametrize("programs,waves", [(1, 1), (5, 1), (9, 4)])
def test_all_see_what_all_stored(programs, waves, gfx):
    rounds = 7
    kernel = rotating(rounds, waves * targets.get(gfx).wave_size)
    tile.verify(kernel)
    start, x, counters = run(kernel, programs, gfx)
    want = start
    for _ in range(rounds):
        want = np.roll(want, -1, 0)[:, ::-1] + np.float32(1)
    np.testing.assert_array_equal(x[rounds % 2], want)
    assert counters.workgroups == programs


def test_rotation_needs_the_barrier():
    """What the test above would see of a barrier that does nothing."""
    start, x, _ = run(rotating(2, 64, barriers=False), 5, "gfx942", cooperative=False)
    assert not np.array_equal(x[0], np.roll(start, -2, 0) + np.float32(2))


def test_more_than_are_resident_are_refused():
    with pytest.raises(EmulatorError, match="workgroups resident at once"):
        run(rotating(2, 1024), 305 * 2, "gfx942")


def test_launch_through_hip():
    """A cooperative launch of what is resident runs, a larger one is refused."""
    device, programs = find_device("gfx1100"), 5
    made = compile_kernel(rotating(3, 256), targets.get("gfx1100"))
    function = device.function(made)
    assert device.resident_workgroups(function, 256) >= programs
    start = np.random.default_rng(1).standard_normal((2, programs, WIDE)).astype(np.float32)
    x, counter = device.upload(start), device.upload(np.zeros(1, np.uint32))
    words = struct.pack("<3q", x.address, counter.address, programs)
    device.launch(function, programs, 256, 0, words)
    want = start[0]
    for _ in range(3):
        want = np.roll(want, -1, 0)[:, ::-1] + np.float32(1)
    np.testing.assert_array_equal(x.as_numpy((2, programs, WIDE), np.float32)[1], want)
    with pytest.raises(DeviceError, match="CooperativeLaunchTooLarge"):
        device.launch(function, 100_000, 256, 0, words)


def test_programs_that_wait_for_what_never_comes():
    """One program too few: the emulator says so rather than run on."""
    k = tile.Builder("alone")
    counter = k.param("counter", "u32", "inout")
    k.param("x", "f32", "inout")
    k.schedule.workgroup = 64
    k.grid_barrier(counter, 0, 0, k.const("index", 3), 1)
    made = compile_kernel(k.finish(2), targets.get("gfx942"))
    counts, memory = np.zeros(1, np.uint32), Memory()
    with memory.holding(counts), pytest.raises(KernelFault, match="wait for each other"):
        words = struct.pack("<2q", counts.ctypes.data, 0)
        launch(CodeObject(made.code).kernels["kernel"], 2, 64, words, memory, cooperative=True)


#: As of `arrive`, with a loop in which the one thread looks whether all have come.
LOOKS = {
    "gfx942": [*WRITTEN_BACK[:-2], r"global_load_dword .*sc1", r"s_sleep", *WRITTEN_BACK[-2:]],
    "gfx908": [*GCN[:-2], r"global_load_dword .*glc", r"s_sleep", *GCN[-2:]],
    "gfx1100": [*RDNA[:4], r"global_load_b32 .*glc", r"s_sleep", *RDNA[5:]],
    "sm_90a": [
        r"st\.global", r"bar\.sync", r"fence\.acq_rel\.gpu", r"atom\.global\.inc\.u32",
        r"ld\.relaxed\.gpu\.global", r"fence\.acq_rel\.gpu", r"bar\.sync",
    ],
}  # fmt: skip
INVALIDATE = {"gfx942": "buffer_inv sc1", "gfx908": "buffer_wbinvl1_vol"}


@pytest.mark.parametrize("name", LOOKS)
def test_order_of_memory(name):
    target = targets.get(name)
    kernel = rotating(3, 256)
    if target.is_amdgpu:
        text = assembly(kernel_ir(kernel, target, debug=False), target, verbose=False)
    else:
        text = compile_kernel(kernel, target).code.decode()
    at = 0
    for pattern in LOOKS[name]:
        pattern = pattern.replace("{invalidate}", INVALIDATE.get(name, ""))
        found = re.search(pattern, text[at:])
        assert found, f"no {pattern} behind\n{text[:at][-400:]}"
        at += found.end()
