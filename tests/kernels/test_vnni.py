"""Products of words by vector instructions, or what they stand for, against NumPy."""

from dataclasses import replace

import llvmlite.binding as llvmlite
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax.kernels  # noqa: F401
from amdjax import tile
from amdjax.codegen import host, llvm
from amdjax.codegen.cpu import product
from amdjax.codegen.cpu.writer import emit_kernel
from amdjax.kernels.products.cpu.implicit_words import IMPLICIT_WORDS
from amdjax.lax.conv import conv_general_dilated_p
from amdjax.lax.dot import dot_general_p
from tests.kernels import test_conv, test_gemm
from tests.kernels.test_amx import operands, preferred
from tests.kernels.test_gemm import MATMUL, params, values
from tests.support.kernel_runner import Runner, target
from tests.support.solvers import everywhere

BF16 = ml_dtypes.bfloat16
TYPES = [(BF16, BF16), (np.int8, np.int8), (np.uint8, np.int8)]
MACHINE = replace(target(), vector_bits=512, dot_dtypes=("i8", "u8", "bf16"), matrix_dtypes=())
# Bytes that no instruction multiplies four of are pairs of 16 bits.
PAIRS = [(np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8), (np.int16, np.int16)]
PLAIN = replace(MACHINE, dot_dtypes=("i16",))
TINY = 2.0**-126  # what is smaller may be taken as zero


def run(x, y, numbers, dtype=None, machine=MACHINE, **options):
    """A product, and whether words were multiplied."""
    runner = Runner(dot_general_p, [x, y], params(numbers, dtype), cpu_target=machine, **options)
    return runner, any("dot_words" in str(call.kernel) for call in runner.calls)


@pytest.mark.turns(3)
@settings(max_examples=40, deadline=None)
@given(
    st.tuples(*[st.integers(1, n) for n in (90, 400, 90)]),
    st.sampled_from(TYPES),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from([(), (3,), (2, 2)]),
)
def test_products(sizes, types, turns, batch):
    x, y, numbers = operands(np.random.default_rng(0), *sizes, types, *turns, batch)
    runner, _ = run(x, y, numbers, preferred(types))
    test_gemm.check(x, y, numbers, out=runner(x, y))


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("turns", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("sizes", [(300, 3000, 90), (133, 404, 231), (600, 701, 500)])
def test_blocks_of_depth(sizes, turns, types):
    """Sums that wait in memory between blocks, words that the depth does not fill."""
    x, y, numbers = operands(np.random.default_rng(1), *sizes, types, *turns)
    runner, by_words = run(x, y, numbers, preferred(types))
    assert by_words
    test_gemm.check(x, y, numbers, out=runner(x, y))


@pytest.mark.turns(3)
@settings(max_examples=40, deadline=None)
@given(
    st.tuples(*[st.integers(1, n) for n in (90, 400, 90)]),
    st.sampled_from(PAIRS),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from([(), (3,)]),
    st.sampled_from([256, 512]),
)
def test_pairs(sizes, types, turns, batch, bits):
    """Sums are taken modulo 2**32, those of two products of the smallest numbers among them."""
    x, y, numbers = operands(np.random.default_rng(0), *sizes, types, *turns, batch)
    x.flat[:2], y.flat[:2] = np.iinfo(x.dtype).min, np.iinfo(y.dtype).min
    machine = replace(PLAIN, vector_bits=bits)
    runner, _ = run(x, y, numbers, np.dtype(np.int32), machine)
    test_gemm.check(x, y, numbers, out=runner(x, y))


@pytest.mark.parametrize("bits", [256, 512])
@pytest.mark.parametrize("types", PAIRS)
@pytest.mark.parametrize("turns", [(False, False), (True, False), (False, True), (True, True)])
def test_blocks_of_depth_of_pairs(turns, types, bits):
    x, y, numbers = operands(np.random.default_rng(1), 133, 3001, 231, types, *turns)
    machine = replace(PLAIN, vector_bits=bits)
    runner, by_words = run(x, y, numbers, np.dtype(np.int32), machine)
    assert by_words
    test_gemm.check(x, y, numbers, out=runner(x, y))


def test_programs_share_the_depth():
    x, y, numbers = operands(np.random.default_rng(1), 40, 20000, 30, (BF16, BF16))
    runner, by_words = run(x, y, numbers, np.dtype(np.float32))
    assert by_words and len(runner.calls) == 2
    test_gemm.check(x, y, numbers, out=runner(x, y))


@pytest.mark.parametrize("shape", [(40, 300, 33), (300, 900, 130)])
def test_epilogue(shape):
    m, k, n = shape
    rng = np.random.default_rng(0)
    x, y, numbers = operands(rng, m, k, n, (BF16, BF16))
    other = values(rng, (m, n), BF16)
    plain, by_words = run(x, y, numbers)
    fused, _ = run(x, y, numbers, epilogue=test_gemm.bias_relu((m, n)))
    assert by_words
    np.testing.assert_array_equal(fused(x, y, extra=[other])[1], plain(x, y))


@pytest.mark.parametrize("features", [30, 64])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution(features, stride):
    """Rows gathered from several runs, of which the last need not fill a word."""
    rng = np.random.default_rng(0)
    spec = test_conv.specs("last", 2)
    x, w = values(rng, (2, 13, 14, features), BF16), values(rng, (3, 3, features, 40), BF16)
    options = {
        "window_strides": (stride, stride), "padding": ((1, 1), (1, 1)), "lhs_dilation": (1, 1),
        "rhs_dilation": (1, 1), "feature_group_count": 1, "batch_group_count": 1,
        "precision": None, "preferred_element_type": np.dtype(np.float32), "out_sharding": None,
        "dimension_numbers": test_conv.ConvDimensionNumbers(*spec),
    }  # fmt: skip
    # Of several threads, convolutions that read windows in place may be faster.
    machine = replace(MACHINE, threads=1)
    runner = Runner(conv_general_dilated_p, [x, w], options, cpu_target=machine)
    assert any("dot_words" in str(call.kernel) for call in runner.calls)
    wide = [np.transpose(z.astype(np.float64), s) for z, s in zip((x, w), spec)]
    arguments = ((stride, stride), ((1, 1), (1, 1)), (1, 1), (1, 1), 1, 1)
    want = test_conv.plain_conv(*wide, *arguments)
    scale = test_conv.plain_conv(*map(abs, wide), *arguments)
    error = abs(np.transpose(runner(x, w), spec[2]) - want)
    assert (error <= (9 * features + 4) * 2**-23 * scale).all()


@pytest.mark.turns(3)
@settings(max_examples=60, deadline=None)
@given(
    test_conv.convolutions(), st.sampled_from([*TYPES, *PAIRS]), st.integers(0, 5),
    st.integers(1, 3), st.sampled_from([256, 512]),
)  # fmt: skip
def test_windows_of_words(conv, types, number, threads, bits):
    """Read from a copy of what windows see, whose zeros are moved up as signed bytes are."""
    (images, inputs, *extent), (outputs, features, *window), options = conv
    x_shape, w_shape = (images, 4 * inputs, *extent), (outputs, 4 * features, *window)
    options["dilation"] = (1,) * len(window)
    machine = MACHINE if types in TYPES else replace(PLAIN, vector_bits=bits)
    machine = replace(machine, threads=threads)
    if test_conv.has_room(x_shape, w_shape, options):
        rng = np.random.default_rng(0)
        x, w = (anything(rng, s, t) for s, t in zip((x_shape, w_shape), types, strict=True))
        with everywhere(IMPLICIT_WORDS, number):
            options |= {"layout": "last", "preferred": preferred(types)}
            test_conv.check(x, w, **options, cpu_target=machine)


@pytest.mark.parametrize("types", [*TYPES, PAIRS[1]])
@pytest.mark.parametrize("features", [4, 64])
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_of_words_of_networks(features, stride, types):
    rng = np.random.default_rng(0)
    x, w = (
        anything(rng, (2, features, 13, 14), types[0]),
        anything(rng, (40, features, 3, 3), types[1]),
    )
    machine = MACHINE if types in TYPES else PLAIN
    for number in range(3):
        with everywhere(IMPLICIT_WORDS, number) as plans:
            test_conv.check(
                x, w, "last", (stride, stride), [(1, 1), (2, 0)], cpu_target=machine,
                preferred=preferred(types),
            )  # fmt: skip
        assert plans


def test_windows_of_words_have_no_parts_of_two_taps():
    rng = np.random.default_rng(0)
    x, w = anything(rng, (2, 6, 9, 9), np.uint8), anything(rng, (8, 6, 3, 3), np.int8)
    with everywhere(IMPLICIT_WORDS, 0) as plans:
        options = {"cpu_target": MACHINE, "preferred": np.dtype(np.int32)}
        test_conv.check(x, w, "last", (1, 1), [(1, 1)] * 2, **options)
    assert not plans


def anything(rng, shape, dtype):
    """Numbers of the whole range of an integer dtype, or of a normal distribution."""
    if np.dtype(dtype).kind not in "iu":
        return values(rng, shape, dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def test_specials_stay_in_their_row_and_column():
    x, y = np.ones((40, 300), BF16), np.ones((300, 50), BF16)
    x[7, 3], y[5, 9] = np.nan, np.inf
    runner, by_words = run(x, y, MATMUL)
    out = runner(x, y).astype(np.float32)
    mask = np.zeros(out.shape, bool)
    mask[7], mask[:, 9] = True, True
    assert by_words
    assert (out[~mask] == 300).all() and np.isnan(out[7]).all() and np.isinf(out[8, 9])


@pytest.mark.parametrize("exponents", [(-75, -50), (-133, -110), (-20, 20)])
def test_subnormal_numbers(exponents):
    """What subnormal operands and sums may cost, and no more; from normal numbers, nothing."""
    rng = np.random.default_rng(0)
    scaled = (np.ldexp(rng.standard_normal(s), rng.integers(*exponents, s))
              for s in ((40, 300), (300, 50)))  # fmt: skip
    x, y = (z.astype(BF16) for z in scaled)
    runner, by_words = run(x, y, MATMUL, np.dtype(np.float32))
    assert by_words
    wide = [z.astype(np.float64) for z in (x, y)]
    want, scale = wide[0] @ wide[1], abs(wide[0]) @ abs(wide[1])
    small = [np.where(abs(z) < TINY, abs(z), 0) for z in wide]
    flushed = small[0] @ abs(wide[1]) + abs(wide[0]) @ small[1] + 300 * TINY
    error = abs(runner(x, y).astype(np.float64) - want)
    if exponents == (-20, 20):
        flushed = 0
    assert (error <= 304 * 2**-23 * scale + flushed).all()


@pytest.mark.parametrize(
    ("types", "sums", "feature", "instruction", "lanes"),
    [
        (("bf16", "bf16"), "f32", "avx512bf16", "vdpbf16ps", 16),
        (("u8", "i8"), "i32", "avx512vnni", "vpdpbusd", 16),
        (("i16", "i16"), "i32", "avx512bw", "vpdpwssd", 16),
        (("i16", "i16"), "i32", "avx2", "vpdpwssd", 8),
    ],
)
def test_instructions(types, sums, feature, instruction, lanes, monkeypatch):
    """What is compiled for a machine that has them, wherever this runs."""
    machine = replace(host.host(), features=f"+{feature}")
    monkeypatch.setattr(product, "host", lambda: machine)
    k = tile.Builder("dots")
    a, b, c = k.param("a", "i32"), k.param("b", "i32"), k.param("c", sums, "inout")
    words = [k.load(buffer, 0, (lanes,)) for buffer in (a, b)]
    k.store(c, 0, k.dot_words(types, *words, k.load(c, 0, (lanes,))))
    module = llvm.Module()
    emit_kernel(module, k.finish(1), "kernel")
    llvmlite.initialize_all_targets()
    llvmlite.initialize_all_asmprinters()
    try:
        x86 = llvmlite.Target.from_triple("x86_64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this LLVM compiles for no x86")
    text = x86.create_target_machine(cpu="znver4").emit_assembly(
        llvmlite.parse_assembly(str(module))
    )
    assert text.count(instruction) == 1
