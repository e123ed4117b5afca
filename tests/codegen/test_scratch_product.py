"""`scratch_product` and `resident_product`: products of what lies in LDS."""

import struct

import ml_dtypes
import numpy as np
import pytest

from amdjax import targets, tile
from amdjax.codegen.gpu.kernel import compile_kernel
from amdjax.core.integers import round_up
from amdjax.emulator import CodeObject, Memory, launch
from amdjax.targets.mma import mma_atoms
from amdjax.tile.parse import parse_kernel


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


def by_the_unit(target, dtype, lines, columns, depth, waves, groups):
    """A product of rows in memory by a matrix in LDS, by the first atom of the target."""
    atom = mma_atoms(target, dtype, "f32")[0]
    rows = round_up(lines, atom.m)
    whole = round_up(depth, waves * atom.depth)
    pitch = whole + 8
    k = tile.Builder("multiplying")
    a, b, y = k.param("a", dtype), k.param("b", dtype), k.param("y", "f32", "out")
    w = k.scratch("w", dtype, groups * columns * pitch)
    k.schedule.workgroup, k.schedule.vector = waves * target.wave_size, 4

    def fill():
        inside = k.broadcast(k.iota(whole) < depth, (groups * columns, whole))
        k.store(w, 0, k.load(b, 0, inside.shape, (depth, 1), inside), (pitch, 1))

    k.once(fill)
    fragments = rows // atom.m, groups * columns // atom.n
    tiling = tile.MatrixTiling(atom.name, dtype, (1, 1), fragments, whole, 0)
    place, pitches, shape = (8, lines - 1), (depth, pitch), (rows, columns)
    found = k.resident_product(a, w, place, shape, pitches, depth, tiling, groups)
    inside = k.broadcast(k.expand(k.iota(rows) < lines, 1), (rows, columns))
    for g, x in enumerate(found):
        k.store(y, g * columns, x, (groups * columns, 1), inside)
    return k.finish(1)


@pytest.mark.parametrize("gfx", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("lines, columns, depth, groups", [(32, 32, 256, 1), (27, 16, 168, 2)])
def test_product_by_the_matrix_unit(gfx, dtype, lines, columns, depth, groups):
    target = targets.get(gfx)
    kernel = by_the_unit(target, dtype, lines, max(columns, 32 // groups), depth, 2, groups)
    tile.verify(kernel)
    assert str(parse_kernel(str(kernel))) == str(kernel)
    made = compile_kernel(kernel, target)
    kind = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]
    rng = np.random.default_rng(0)
    wide = max(columns, 32 // groups) * groups
    # Whole numbers: their sums are exact, in whatever order. Nothing behind the last row is read.
    a, b = (rng.integers(-9, 9, (n, depth)).astype(kind) for n in (lines, wide))
    placed = np.concatenate([np.full(8, np.nan, kind), a.ravel()])
    y, memory = np.full((lines, wide), np.nan, np.float32), Memory()
    with memory.holding(placed, b, y):
        words = struct.pack("<3q", *(x.ctypes.data for x in (placed, b, y)))
        launch(CodeObject(made.code).kernels["kernel"], 1, made.workgroup, words, memory)
    np.testing.assert_array_equal(y, a.astype(np.float32) @ b.astype(np.float32).T)
