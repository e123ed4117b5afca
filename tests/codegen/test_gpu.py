"""Tile programs as GPU machine code, run by the emulator, against NumPy."""

import struct

import numpy as np
import pytest

from amdjax import targets
from amdjax.codegen import gpu, gpu_kernel, tile
from amdjax.runtime.emulator import CodeObject, Memory, launch

EMULATED = ("gfx942", "gfx1100")
WORKGROUPS = (0, 256)


def run(kernel, gfx, *args):
    """Run every program of a kernel on arrays and numbers, one for each parameter."""
    compiled = gpu_kernel.compile_kernel(kernel, targets.get(gfx), index_bits=32)
    assert compiled.scratch_bytes == 0
    words = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in args]
    memory = Memory()
    code = CodeObject(compiled.code)
    with memory.holding(*(a for a in args if isinstance(a, np.ndarray))):
        return launch(
            code.kernels["kernel"], kernel.grid, compiled.workgroup,
            struct.pack(f"<{len(words)}q", *words), memory,
        )  # fmt: skip


def builder(workgroup, vector):
    k = tile.Builder("test")
    k.workgroup, k.vector = workgroup, vector
    return k


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("workgroup", WORKGROUPS)
@pytest.mark.parametrize("n", [1, 63, 1024, 2500])
def test_masked_elementwise_and_reductions(gfx, workgroup, n):
    k = builder(workgroup, 4)
    x, size = k.param("x", "f32"), k.param("n", "index", "size")
    y, total = k.param("y", "f32", "out"), k.param("total", "f32", "out")
    lanes = (1024,)
    start = k.program_id() * 1024
    inside = k.iota(1024) + start < k.broadcast(k.size(size), lanes)
    v = k.load(x, start, lanes, mask=inside, other=-1.0)
    greatest = k.reduce("max", v)
    k.store(y, start, v - k.broadcast(greatest, lanes), mask=inside)
    k.store(total, k.program_id(), k.reduce("add", k.select(inside, v, k.const("f32", 0, lanes))))
    programs = -(-n // 1024)
    a, out, sums = (
        np.random.default_rng(0).random(n, np.float32),
        *(np.zeros(m, np.float32) for m in (n, programs)),
    )
    run(k.finish(programs), gfx, a, n, out, sums)
    for i in range(programs):
        part = slice(1024 * i, 1024 * (i + 1))
        np.testing.assert_array_equal(out[part], a[part] - a[part].max())
        np.testing.assert_allclose(sums[i], a[part].sum(dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("workgroup", WORKGROUPS)
def test_loops_and_branches(gfx, workgroup):
    k = builder(workgroup, 1)
    x, y = k.param("x", "f32"), k.param("y", "f32", "out")
    lanes = (256,)

    def step(i, total):
        odd = k.op("ne", k.op("and", i, k.const("index", 256)), k.const("index", 0))
        part = k.load(x, i, lanes)
        return k.if_(odd, lambda: total - part, lambda: total + part)

    (total,) = k.for_(0, 1024, 256, step, [k.const("f32", 0, lanes)])
    k.store(y, 0, total)
    a, out = np.random.default_rng(0).random(1024, np.float32), np.zeros(256, np.float32)
    run(k.finish(1), gfx, a, out)
    b = a.reshape(4, 256)
    np.testing.assert_array_equal(out, b[0] - b[1] + b[2] - b[3])


def test_workgroups_that_cannot_run():
    for workgroup in (16, 96, 2048):
        k = builder(workgroup, 1)
        with pytest.raises(ValueError, match="powers of two from 64 to 1024"):
            gpu.kernel_ir(k.finish(1), targets.get("gfx942"))
