"""`scratch_product`: products of what lies in LDS."""

import struct

import numpy as np
import pytest

from amdjax import targets, tile
from amdjax.codegen.gpu.kernel import compile_kernel
from amdjax.emulator import CodeObject, Memory, launch


def multiplying(shape, depth, parts, lanes, dtype, workgroup):
    """Both operands to LDS, then their product in parts of the depth."""
    (rows, columns), whole = shape, depth * parts
    k = tile.Builder("multiplying")
    a, b, y = k.param("a", dtype), k.param("b", dtype), k.param("y", dtype, "out")
    pitches = whole + 4, whole + 12
    x = k.scratch("x", dtype, rows * pitches[0])
    w = k.scratch("w", dtype, columns * pitches[1])
    k.schedule.workgroup, k.schedule.vector = workgroup, 2
    k.once(lambda: k.store(w, 0, k.load(b, 0, (columns, whole)), (pitches[1], 1)))
    k.store(x, 0, k.load(a, 0, (rows, whole)), (pitches[0], 1))

    def part(i, total):
        (first,) = k.scratch_product(x, w, i, shape, pitches, depth, lanes)
        return total + first

    (total,) = k.for_(0, whole, depth, part, [k.const(dtype, 0, shape)])
    k.store(y, 0, total)
    return k.finish(1)


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("shape, depth, lanes, dtype", [
    ((8, 16), 64, (4, 4), np.float32),
    ((1, 32), 64, (1, 8), np.float32),
    ((16, 4), 128, (8, 1), np.float32),
    ((8, 8), 64, (2, 8), np.float64),
])  # fmt: skip
def test_product(gfx, shape, depth, lanes, dtype):
    wave = targets.get(gfx).wave_size
    lanes = (*lanes, wave // (lanes[0] * lanes[1]))
    kernel = multiplying(
        shape, depth, 1, lanes, {4: "f32", 8: "f64"}[np.dtype(dtype).itemsize], 2 * wave
    )
    tile.verify(kernel)
    made = compile_kernel(kernel, targets.get(gfx))
    rng = np.random.default_rng(0)
    # Whole numbers: their sums are exact, in whatever order.
    a, b = (rng.integers(-9, 9, (n, depth)).astype(dtype) for n in shape)
    y, memory = np.full(shape, np.nan, dtype), Memory()
    with memory.holding(a, b, y):
        words = struct.pack("<3q", *(x.ctypes.data for x in (a, b, y)))
        launch(CodeObject(made.code).kernels["kernel"], 1, made.workgroup, words, memory)
    np.testing.assert_array_equal(y, a @ b.T)
