"""`arrive`: the last program of a grid sees what all stored, and the counter is zero again."""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from amdjax import targets, tile
from amdjax.codegen.gpu.amdgpu_object import assembly
from amdjax.codegen.gpu.kernel import compile_kernel
from amdjax.codegen.gpu.writer import kernel_ir
from tests.support import tile_runner
from tests.support.tile_runner import run_kernel

WIDE = 512  # elements a program stores: several for each thread of the smaller workgroups
IN, OUT = ("f32", "in"), ("f32", "out")
BUFFERS = {"x": IN, "parts": ("f32", "inout"), "counter": ("u32", "inout"), "y": OUT}


def arriving(programs, groups=1):
    """Each program stores twice its tile; the last of each group adds up those of the group."""

    def write(k, x, parts, counter, y):
        pid = k.program_id()
        k.store(parts, pid * WIDE, k.load(x, pid * WIDE, (WIDE,)) * 2.0)
        group = k.op("div", pid, k.const("index", programs))
        first = group * (programs * WIDE)

        def last():
            def add(i, total):
                # By other threads than those that stored.
                return total + k.load(parts, first + i * WIDE + (WIDE - 1), (WIDE,), (-1,))

            (total,) = k.for_(0, programs, 1, add, [k.const("f32", 0, (WIDE,))])
            k.store(y, group * WIDE, total)

        k.if_(k.arrive(counter, group, programs), last)

    return write


@pytest.mark.parametrize("programs,groups", [(1, 1), (2, 1), (7, 1), (3, 4)])
def test_the_last_to_arrive_sees_what_all_stored(programs, groups, backend):
    grid = programs * groups
    x, counter = np.arange(grid * WIDE, dtype=np.float32), np.zeros(groups, np.uint32)
    for round in range(3):
        parts, y = np.zeros_like(x), np.zeros(groups * WIDE, np.float32)
        x += round
        run_kernel(arriving(programs, groups), x, parts, counter, y, grid=grid, **BUFFERS)
        want = 2 * x.reshape(groups, programs, WIDE).sum(1)[:, ::-1]
        np.testing.assert_array_equal(y.reshape(groups, WIDE), want)
        assert not counter.any()


def test_one_of_many_threads_is_last():
    """On the CPU programs run at once on several threads."""
    grid = 64
    program = tile_runner.kernel(arriving(grid), BUFFERS, 1)
    x, counter = np.ones(grid * WIDE, np.float32), np.zeros(1, np.uint32)
    run = tile_runner.compile_kernel(program)

    def one(parts, y, i):
        run.between(x, parts, counter, y, begin=i, end=i + 1)

    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            parts, y = np.zeros_like(x), np.zeros(WIDE, np.float32)
            list(pool.map(lambda i, p=parts, y=y: one(p, y, i), range(grid)))
            np.testing.assert_array_equal(y, np.full(WIDE, 2.0 * grid, np.float32))


#: In order, what has to stand between the stores of all waves and the reads of the last program:
#: every wave waits for its own stores, then for the others; one thread makes the stores visible to
#: the device, counts, and forgets what its caches hold.
GCN = [
    r"global_store_dword", r"s_waitcnt .*vmcnt\(0\)", r"s_barrier",
    r"global_atomic_inc ", r"s_waitcnt .*vmcnt\(0\)", r"{invalidate}", r"s_barrier",
]  # fmt: skip
RDNA = [
    r"global_store_", r"s_waitcnt_vscnt null, 0x0", r"s_barrier", r"global_atomic_inc",
    r"s_waitcnt vmcnt\(0\)", r"buffer_gl1_inv", r"buffer_gl0_inv", r"s_barrier", r"buffer_gl0_inv",
]  # fmt: skip
WRITTEN_BACK = [*GCN[:3], r"buffer_wbl2 sc1\n\ts_waitcnt .*vmcnt\(0\)", *GCN[3:]]
SEQUENCES = {
    "gfx908": [x.format(invalidate="buffer_wbinvl1_vol") for x in GCN],
    "gfx90a": [x.format(invalidate="buffer_wbinvl1_vol") for x in GCN],
    "gfx942": [x.replace("{invalidate}", "buffer_inv sc1") for x in WRITTEN_BACK],
    "gfx950": [x.replace("{invalidate}", "buffer_inv sc1") for x in WRITTEN_BACK],
    "gfx1030": RDNA,
    "gfx1100": RDNA,
    "gfx1201": [
        r"global_store_", r"s_wait_storecnt(_dscnt)? 0x0", r"s_barrier_wait",
        r"global_atomic_inc_u32 .*SCOPE_DEV", r"s_wait_loadcnt 0x0", r"global_inv scope:SCOPE_DEV",
        r"s_barrier_wait", r"global_inv scope:SCOPE_SE",
    ],
    "sm_90a": [
        r"st\.global", r"bar\.sync", r"fence\.acq_rel\.gpu", r"atom\.global\.inc\.u32",
        r"fence\.acq_rel\.gpu", r"bar\.sync",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SEQUENCES)
def test_order_of_memory(name):
    """What an emulator that runs one program after the other cannot show."""
    k = tile.Builder("k")
    buffers = [k.param(name, *kind) for name, kind in BUFFERS.items()]
    k.schedule.workgroup = 256
    arriving(7)(k, *buffers)
    target = targets.get(name)
    kernel = k.finish(7)
    if target.is_amdgpu:
        text = assembly(kernel_ir(kernel, target, debug=False), target, verbose=False)
    else:
        text = compile_kernel(kernel, target).code.decode()
    at = 0
    for pattern in SEQUENCES[name]:
        found = re.search(pattern, text[at:])
        assert found, f"no {pattern} behind\n{text[:at][-400:]}"
        at += found.end()
