"""Loops of products on AMD's GPUs multiply while the next tiles are on their way."""

import ml_dtypes
import numpy as np
import pytest

import amdjax.kernels  # noqa: F401
from amdjax.lax.dot import dot_general_p
from tests.kernels.test_gpu_conv import make as make_conv
from tests.kernels.test_gpu_gemm import MATMUL, params
from tests.support.gpu_runner import DISTINCT, GpuRunner
from tests.support.main_loop import main_loop

#: Shapes of the operands, and which axes are summed and which are of a batch.
PRODUCTS = {
    "nn": ((512, 512), (512, 512), MATMUL),
    "nt": ((512, 512), (512, 512), (((1,), (1,)), ((), ()))),
    "tn": ((512, 512), (512, 512), (((0,), (0,)), ((), ()))),
    "batched": ((16, 256, 128), (16, 128, 256), (((2,), (1,)), ((0,), (0,)))),
    "ragged": ((500, 300), (300, 500), MATMUL),
    "small": ((256, 256), (256, 256), MATMUL),
    "odd": ((255, 127), (127, 129), MATMUL),
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
