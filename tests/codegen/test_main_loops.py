"""Loops of products on AMD's GPUs multiply while the next tiles are on their way."""

import ml_dtypes
import numpy as np
import pytest

import amdjax.kernels
from amdjax.lax.dot import dot_general_p
from amdjax.targets import get
from tests.kernels.test_gpu_conv import make as make_conv
from tests.kernels.test_gpu_gemm import MATMUL, params, values
from tests.support.gpu_runner import DISTINCT, GpuRunner
from tests.support.main_loop import main_loop

#: Shapes of the operands, and which axes are summed and which are of a batch.
PRODUCTS = {
    "nn": ((1024, 1024), (1024, 1024), MATMUL),
    "nt": ((1024, 1024), (1024, 1024), (((1,), (1,)), ((), ()))),
    "tn": ((1024, 1024), (1024, 1024), (((0,), (0,)), ((), ()))),
    "batched": ((16, 128, 1024), (16, 1024, 128), (((2,), (1,)), ((0,), (0,)))),
    "ragged": ((500, 1100), (1100, 500), MATMUL),
    "small": ((128, 1024), (1024, 128), MATMUL),
    "odd": ((255, 1027), (1027, 129), MATMUL),
}
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "f32": np.float32}


def assert_never_waits(runner):
    kernels = [
        k for k, call in zip(runner.compiled(), runner.calls) if call.kernel.name == "product"
    ]
    assert kernels
    for kernel in kernels:
        assert kernel.scratch_bytes == kernel.vgpr_spills == 0
        loop = main_loop(kernel.code)
        assert loop.products_before_wait == loop.products > 0


@pytest.mark.parametrize("gfx", DISTINCT)
@pytest.mark.parametrize("dtype", ["f16", "i8", "f32"])
@pytest.mark.parametrize("shapes", PRODUCTS)
def test_products(gfx, dtype, shapes):
    a, b, numbers = PRODUCTS[shapes]
    operands = (np.empty(shape, DTYPES[dtype]) for shape in (a, b))
    out = np.dtype(np.int32) if dtype == "i8" else None
    assert_never_waits(GpuRunner(dot_general_p, list(operands), params(numbers, out), gfx))


@pytest.mark.parametrize("gfx", DISTINCT)
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("layout", ["last", "first"])
def test_convolutions(gfx, dtype, layout):
    x, w = (np.empty(s, DTYPES[dtype]) for s in ((8, 64, 14, 14), (64, 64, 3, 3)))
    runner, _, _ = make_conv(x, w, gfx, layout, (1, 1), [(1, 1), (1, 1)])
    assert_never_waits(runner)


@pytest.mark.parametrize("gfx, each", [("gfx942", 3.1), ("gfx1100", 4.1), ("gfx1201", 3.7)])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_large_tiles_need_few_instructions(gfx, each, dtype):
    """Of the loop, for each instruction of the matrix unit."""
    operands = [np.empty((4096, 4096), DTYPES[dtype])] * 2
    (kernel,) = GpuRunner(dot_general_p, operands, params(), gfx).compiled()
    loop = main_loop(kernel.code)
    assert len(loop.instructions) <= each * loop.products


@pytest.mark.parametrize("gfx, most", [("gfx942", 56_000), ("gfx1100", 92_000)])
def test_small_products_take_few_steps(gfx, most):
    """Each of which waits for memory."""
    x = values((256, 256), np.float16)
    runner = GpuRunner(dot_general_p, [x, x], params(), gfx)
    assert np.array_equal(runner(x, x), x @ x)
    assert sum(c.instructions for c in runner.counters) <= most


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("rows, columns", [(1, 16), (16, 16), (16, 1)])
def test_one_tile_is_no_larger_than_the_result(gfx, rows, columns):
    x, y = np.ones((rows, 16), np.float16), np.ones((16, columns), np.float16)
    (kernel,) = GpuRunner(dot_general_p, [x, y], params(), gfx).compiled()
    assert kernel.workgroup == get(gfx).wave_size and "16x16x16" in kernel.llvm


@pytest.mark.parametrize("gfx", ["gfx90a", "gfx942"])
def test_rounding_large_tiles_spills_nothing(gfx):
    """Sums become bfloat16 without a mask of lanes for each that might be NaN."""
    x = amdjax.ShapeDtypeStruct((4096, 4096), ml_dtypes.bfloat16)
    (kernel,) = amdjax.jit(lambda a, b: a @ b).lower(x, x).compile(gfx).kernels
    assert kernel.vgpr_spills == kernel.sgpr_spills == 0
