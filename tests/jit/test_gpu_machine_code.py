"""Every kind of program as machine code of a GPU, emulated where there is none."""

import ml_dtypes
import numpy as np
import pytest

import amdjax
import amdjax.numpy as jnp
from amdjax.core.config import enable_x64
from tests.support.gpu_cases import CASES
from tests.support.random_programs import draw_program

pytestmark = pytest.mark.devices
#: Steps that jump: rounding differently they may choose differently.
JUMPS = {"choose", "argmax", "through_bool"}


@pytest.mark.parametrize("name", CASES)
def test_case(device, name):
    f, *args = CASES[name]
    found = amdjax.tree.leaves(amdjax.jit(f)(*args))
    with amdjax.default_device(amdjax.devices("cpu")[0]):
        wanted = amdjax.tree.leaves(amdjax.jit(f)(*args))
    rtol = 2e-2 if any(x.dtype.itemsize == 2 for x in args) else 2e-4
    for x, y in zip(found, wanted, strict=True):
        assert x.aval is y.aval and (device is None or x.device is device)
        x, y = np.asarray(x), np.asarray(y)
        if y.dtype.kind in "iub":
            np.testing.assert_array_equal(x, y)
            continue
        wide = np.complex128 if y.dtype.kind == "c" else np.float64
        scale = max(1.0, float(np.nanmax(np.abs(y.astype(wide)), initial=0.0)))
        np.testing.assert_allclose(x.astype(wide), y.astype(wide), rtol, atol=rtol * scale)


PROGRAM_DTYPES = (np.float32, np.int32, np.int8, np.uint16, np.float16, ml_dtypes.bfloat16,
                  np.complex64)  # fmt: skip


@pytest.mark.parametrize("dtype", PROGRAM_DTYPES)
def test_random_programs(device, dtype):
    floats = np.dtype(dtype).kind not in "iu"
    for seed in range(100, 110):
        program = draw_program(seed, dtype)
        if floats and any(name in JUMPS for name, _, _ in program.steps):
            continue
        run = amdjax.jit(lambda *xs, program=program: program.run(jnp, xs))
        with amdjax.default_device(amdjax.devices("cpu")[0]):
            wanted = [np.asarray(x) for x in run(*program.inputs)]
        for x, y in zip(run(*program.inputs), wanted, strict=True):
            if floats:
                wide = np.complex128 if y.dtype.kind == "c" else np.float64
                x, y = np.asarray(x).astype(wide), y.astype(wide)
                scale = max(1.0, float(np.abs(y).max(initial=0.0)))
                rtol = 60 * len(program.steps) * float(ml_dtypes.finfo(dtype).eps)
                np.testing.assert_allclose(x, y, rtol, atol=rtol * scale, err_msg=str(program))
            else:
                np.testing.assert_array_equal(np.asarray(x), y, err_msg=str(program))


@pytest.mark.parametrize("shape", [(30,), (3, 10)])
def test_reduction_that_reads_nothing(shape):
    found = amdjax.jit(lambda: (jnp.arange(30) % 7).reshape(shape).max(-1))()
    np.testing.assert_array_equal(found, (np.arange(30) % 7).reshape(shape).max(-1))


DOUBLES = ("softmax", "layer_norm_gradient", "sum_large", "transposed", "sort", "cumsum_long",
           "add_at", "argmax", "product", "short_loops", "gathered", "scan")  # fmt: skip


@pytest.mark.parametrize("name", DOUBLES)
def test_doubles_and_wide_indices(device, name):
    f, *args = CASES[name]
    wide = {"f": np.float64, "i": np.int64}
    args = [x.astype(wide[x.dtype.kind]) for x in args]
    with enable_x64(True):
        run = amdjax.jit(lambda *xs: f(*xs))
        found = amdjax.tree.leaves(run(*args))
        with amdjax.default_device(amdjax.devices("cpu")[0]):
            wanted = amdjax.tree.leaves(run(*args))
        for x, y in zip(found, wanted, strict=True):
            assert x.dtype == y.dtype and x.dtype.itemsize == 8
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-9, atol=1e-9)
