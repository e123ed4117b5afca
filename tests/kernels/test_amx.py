"""Products on the matrix unit of a CPU, against NumPy and the kernels that do without it."""

import ctypes
import os
import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax.kernels  # noqa: F401
from amdjax.codegen.engine import compile_ir, engine
from amdjax.lax.conv import conv_general_dilated_p
from amdjax.lax.dot import dot_general_p
from amdjax.runtime import amx
from tests.kernels import test_conv, test_gemm
from tests.kernels.test_gemm import MATMUL, params, values
from tests.support.kernel_runner import Runner, target

BF16 = ml_dtypes.bfloat16
BYTES = [(np.int8, np.int8), (np.int8, np.uint8), (np.uint8, np.int8), (np.uint8, np.uint8)]
WITHOUT = replace(target(), matrix_dtypes=())
needs_unit = pytest.mark.skipif(not amx.dtypes(), reason="no matrix unit")


def uses_amx(runner):
    return any("amx_product" in str(call.kernel) for call in runner.calls)


def operands(rng, m, k, n, types, turn_x=False, turn_y=False, batch=()):
    shapes = ((k, m) if turn_x else (m, k)), ((n, k) if turn_y else (k, n))
    x, y = (values(rng, (*batch, *s), t) for s, t in zip(shapes, types))
    d, entries = len(batch), tuple(range(len(batch)))
    contract = ((d if turn_x else d + 1,), (d + 1 if turn_y else d,))
    return x, y, (contract, (entries, entries))


def preferred(types):
    return np.dtype(np.float32 if types[0] is BF16 else np.int32)


@pytest.mark.turns(3)
@needs_unit
@settings(max_examples=80, deadline=None)
@given(
    st.tuples(*[st.integers(1, n) for n in (90, 400, 90)]),
    st.sampled_from([(BF16, BF16), *BYTES]),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from([(), (3,), (2, 2)]),
)
def test_products(sizes, types, turns, batch):
    x, y, numbers = operands(np.random.default_rng(0), *sizes, types, *turns, batch)
    runner = Runner(dot_general_p, [x, y], params(numbers, preferred(types)))
    test_gemm.check(x, y, numbers, out=runner(x, y))


@needs_unit
@pytest.mark.parametrize("types", [(BF16, BF16), *BYTES])
@pytest.mark.parametrize("turns", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("sizes", [(300, 3000, 90), (20, 20000, 20), (600, 700, 500)])
def test_blocks_of_depth(sizes, turns, types):
    """Sums that wait in memory between blocks, and programs that share the depth."""
    x, y, numbers = operands(np.random.default_rng(1), *sizes, types, *turns)
    runner = Runner(dot_general_p, [x, y], params(numbers, preferred(types)))
    assert uses_amx(runner)
    test_gemm.check(x, y, numbers, out=runner(x, y))


@needs_unit
@pytest.mark.parametrize("shape", test_gemm.FUSED)
def test_epilogue(shape):
    m, k, n = shape
    rng = np.random.default_rng(0)
    x, y, numbers = operands(rng, m, k, n, (BF16, BF16))
    other = values(rng, (m, n), BF16)
    plain = Runner(dot_general_p, [x, y], params(numbers))(x, y)
    fused = Runner(
        dot_general_p, [x, y], params(numbers), epilogue=test_gemm.bias_relu((m, n))
    )  # fmt: skip
    _, out = fused(x, y, extra=[other])
    np.testing.assert_array_equal(out, plain)


@needs_unit
@pytest.mark.parametrize("features", [16, 30, 64])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution(features, stride):
    """Rows gathered from several runs, of which the last need not fill a step."""
    rng = np.random.default_rng(0)
    spec = test_conv.specs("last", 2)
    x, w = values(rng, (2, 13, 14, features), BF16), values(rng, (3, 3, features, 40), BF16)
    options = {
        "window_strides": (stride, stride), "padding": ((1, 1), (1, 1)), "lhs_dilation": (1, 1),
        "rhs_dilation": (1, 1), "feature_group_count": 1, "batch_group_count": 1,
        "precision": None, "preferred_element_type": np.dtype(np.float32), "out_sharding": None,
        "dimension_numbers": test_conv.ConvDimensionNumbers(*spec),
    }  # fmt: skip
    runner = Runner(conv_general_dilated_p, [x, w], options)
    assert uses_amx(runner)
    out = runner(x, w)
    wide = [np.transpose(z.astype(np.float64), s) for z, s in zip((x, w), spec)]
    arguments = ((stride, stride), ((1, 1), (1, 1)), (1, 1), (1, 1), 1, 1)
    want = test_conv.plain_conv(*wide, *arguments)
    scale = test_conv.plain_conv(*map(abs, wide), *arguments)
    error = abs(np.transpose(out, spec[2]) - want)
    assert (error <= (9 * features + 4) * 2**-23 * scale).all()


@needs_unit
def test_specials_stay_in_their_row_and_column():
    x, y = np.ones((40, 300), BF16), np.ones((300, 50), BF16)
    x[7, 3], y[5, 9] = np.nan, np.inf
    out = Runner(dot_general_p, [x, y], params(MATMUL))(x, y).astype(np.float32)
    mask = np.zeros(out.shape, bool)
    mask[7], mask[:, 9] = True, True
    assert (out[~mask] == 300).all() and np.isnan(out[7]).all() and np.isinf(out[8, 9])


@pytest.mark.parametrize("types", [(BF16, BF16), *BYTES])
@pytest.mark.parametrize("turn_y", [False, True])
@pytest.mark.parametrize("sizes", [(20, 400, 50), (300, 3000, 90), (33, 404, 31)])
def test_without_the_unit(sizes, turn_y, types):
    """What other machines run gives the same numbers."""
    x, y, numbers = operands(np.random.default_rng(0), *sizes, types, turn_y=turn_y)
    options = params(numbers, preferred(types))
    runner = Runner(dot_general_p, [x, y], options, cpu_target=WITHOUT)
    assert not uses_amx(runner)
    test_gemm.check(x, y, numbers, out=runner(x, y))


@needs_unit
def test_other_floats_do_without_the_unit():
    for dtype in (np.float32, np.float16, np.float64):
        x, y, numbers = operands(np.random.default_rng(0), 70, 300, 90, (dtype, dtype))
        assert not uses_amx(Runner(dot_general_p, [x, y], params(numbers)))


@needs_unit
def test_registers_are_released():
    """XINUSE says that the registers of this thread hold nothing behind a kernel."""
    x, y, numbers = operands(np.random.default_rng(0), 40, 300, 50, (BF16, BF16))
    runner = Runner(dot_general_p, [x, y], params(numbers))
    runner(x, y)
    assert uses_amx(runner) and not states_in_use() >> 17 & 3


def states_in_use():
    """What XGETBV reports for ECX = 1: bit 17 the configuration, bit 18 the data of tiles."""
    text = """
    declare i64 @llvm.x86.xgetbv(i32)
    define i64 @states() {
      %states = call i64 @llvm.x86.xgetbv(i32 1)
      ret i64 %states
    }
    """
    library = engine().load(compile_ir(text), ["states"])
    return ctypes.CFUNCTYPE(ctypes.c_int64)(library["states"])()


@needs_unit
def test_threads_and_children():
    x, y, numbers = operands(np.random.default_rng(0), 200, 700, 120, (BF16, BF16))
    make = lambda: Runner(dot_general_p, [x, y], params(numbers))
    want, wrong = make()(x, y), []

    def work():
        runner = make()
        for _ in range(20):
            if not np.array_equal(runner(x, y).view(np.uint16), want.view(np.uint16)):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    runner = make()
    child = os.fork()
    if not child:
        same = np.array_equal(runner(x, y).view(np.uint16), want.view(np.uint16))
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
