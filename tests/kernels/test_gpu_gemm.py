"""Matrix products on GPUs, as machine code in the emulator, against NumPy."""

import itertools
import math
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdjax.kernels  # noqa: F401
import amdjax.numpy as jnp
from amdjax import enable_x64, jit, targets
from amdjax.codegen.gpu.amdgpu_object import assembly
from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import JaxprEqn, Literal, Var
from amdjax.core.precision import DotAlgorithmPreset
from amdjax.kernels.products.dot import dot_contraction
from amdjax.kernels.products.gpu import contraction, tiling
from amdjax.kernels.products.gpu.contraction import MatrixPlan
from amdjax.kernels.products.gpu.rounding import rounded
from amdjax.kernels.products.gpu.tiling import Plan
from amdjax.lax.dot import dot_general_p
from amdjax.lax.elementwise import add_p, max_p
from amdjax.lax.shape import broadcast_in_dim_p
from amdjax.nn import gelu
from amdjax.targets.mma import Tiling, mma_atoms
from tests.support.gpu_runner import DISTINCT, EMULATED, GpuRunner
from tests.support.turns import in_turn

pytestmark = pytest.mark.share(4)

MATMUL = (((1,), (0,)), ((), ()))


def params(numbers=MATMUL, out=None):
    return {
        "dimension_numbers": numbers, "precision": None, "preferred_element_type": out,
        "out_sharding": None,
    }  # fmt: skip


def bias_relu(out):
    """`max(out + bias, 0)`, with a bias for each column, and the product itself."""
    shape, dtype = out.aval.shape, out.aval.dtype
    bias = Var(ShapedArray(shape[-1:], dtype))
    wide, summed, result = Var(out.aval), Var(out.aval), Var(out.aval)
    spread = {"shape": shape, "broadcast_dimensions": (len(shape) - 1,), "sharding": None}
    producers = {
        wide: JaxprEqn(broadcast_in_dim_p, [bias], [wide], spread),
        summed: JaxprEqn(add_p, [out, wide], [summed], {}),
        result: JaxprEqn(max_p, [summed, Literal(dtype.type(0))], [result], {}),
    }
    return [result, out], [bias], producers


def values(shape, dtype, seed=0):
    """Integers whose products and sums every dtype here holds."""
    low = 0 if np.dtype(dtype).kind == "u" else -3
    return np.random.default_rng(seed).integers(low, 4, shape).astype(dtype)


def check(gfx, x, y, numbers=MATMUL, out=None, **options):
    runner = GpuRunner(dot_general_p, [x, y], params(numbers, out), gfx, **options)
    got = runner(x, y)
    wide = (z.astype(np.float64) for z in (x, y))
    ((xs, ys), (xb, yb)) = numbers
    letters = iter("abcdefghij")
    a, b = ([next(letters) for _ in z.shape] for z in (x, y))
    for i, j in zip((*xs, *xb), (*ys, *yb), strict=True):
        b[j] = a[i]
    batch = [a[i] for i in xb]
    free = [c for i, c in enumerate(a) if i not in (*xs, *xb)]
    free += [c for j, c in enumerate(b) if j not in (*ys, *yb)]
    want = np.einsum(f"{''.join(a)},{''.join(b)}->{''.join([*batch, *free])}", *wide)
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(got.dtype))
    return runner


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize(
    "dtype, out",
    [
        (np.float16, None), (np.float16, np.float32), (ml_dtypes.bfloat16, None),
        (np.float32, None), (np.float64, None), (np.int8, np.int32), (np.int8, None),
        (np.int32, None), (np.int64, None), (np.uint8, np.int32),
        (ml_dtypes.float8_e4m3fnuz, np.float32), (ml_dtypes.float8_e4m3fn, np.float32),
        (ml_dtypes.float8_e5m2, np.float16),
    ],
)  # fmt: skip
def test_dtypes(gfx, dtype, out):
    check(gfx, values((37, 52), dtype), values((52, 44), dtype, 1), out=out and np.dtype(out))


@pytest.mark.parametrize("gfx", EMULATED)
def test_operands_of_two_dtypes(gfx):
    pair = values((20, 30), np.float16), values((30, 24), ml_dtypes.bfloat16, 1)
    check(gfx, *pair, out=np.dtype(np.float32))
    pair = values((20, 32), ml_dtypes.float8_e5m2), values((32, 24), np.float16, 1)
    check(gfx, *pair, out=np.dtype(np.float32))


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("turned", list(itertools.product((0, 1), repeat=2)))
@pytest.mark.parametrize("shape", [(64, 96, 48), (33, 17, 65), (5, 1, 3)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_transposed_operands(gfx, turned, shape, dtype):
    m, k, n = shape
    x = values((k, m) if turned[0] else (m, k), dtype)
    y = values((n, k) if turned[1] else (k, n), dtype, 1)
    check(gfx, x, y, (((1 - turned[0],), (turned[1],)), ((), ())))


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize(
    "shapes, numbers",
    [
        (((3, 20, 30), (3, 30, 18)), (((2,), (1,)), ((0,), (0,)))),
        (((20, 2, 3, 8), (8, 3, 18, 2)), (((3, 2), (0, 1)), ((1,), (3,)))),
        (((2, 20, 3, 7), (7, 2, 9)), (((3,), (0,)), ((0,), (1,)))),
        (((1, 64), (64, 30)), MATMUL),
        (((30, 64), (64, 1)), MATMUL),
        (((300,), (300,)), (((0,), (0,)), ((), ()))),
        (((20,), (30,)), (((), ()), ((), ()))),
        (((8, 0), (0, 9)), MATMUL),
    ],
)
def test_shapes(gfx, shapes, numbers):
    check(gfx, values(shapes[0], np.float32), values(shapes[1], np.float32, 1), numbers)


@st.composite
def products(draw):
    """Shapes of two operands, their axes in any order, and what is contracted."""
    count = {"batch": 1, "contract": 2, "left": 2, "right": 2}
    axes = [
        (kind, i, draw(st.integers(1, 20)))
        for kind, most in count.items()
        for i in range(draw(st.integers(0, most)))
    ]
    left, right = (
        draw(st.permutations([a for a in axes if a[0] != other])) for other in ("right", "left")
    )
    shapes = [tuple(a[2] for a in side) for side in (left, right)]
    numbers = tuple(
        tuple(tuple(side.index(a) for a in axes if a[0] == kind) for side in (left, right))
        for kind in ("contract", "batch")
    )
    return shapes, numbers


@settings(max_examples=25, deadline=None, derandomize=True)
@given(products(), st.sampled_from(EMULATED), st.sampled_from([np.float16, np.float32, np.int8]))
def test_any_product(product, gfx, dtype):
    (left, right), numbers = product
    check(gfx, values(left, dtype), values(right, dtype, 1), numbers)


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("shape", [(64, 64, 64), (37, 50, 45)])
def test_large_buffers(gfx, shape):
    """Indices of 64 bits, as for buffers of 2 GiB or more."""
    m, k, n = shape
    check(gfx, values((m, k), np.float16), values((k, n), np.float16, 1), index_bits=64)


def forced(operand, accumulate, size, waves, fragments, stages=1, splits=1):
    """A family that cuts products in a given way; `size` numbers the atoms, largest first."""

    def lower(ctx):
        problem = dot_contraction(ctx).merged()
        atom = mma_atoms(ctx.gpu, operand, accumulate)[size]
        depth = max(atom.depth, 64 // atom.cell // (16 // atom.cell))
        # An atom of lanes that hold blocks of lines has as many sums as two by two of others.
        counts = tuple(-(-n // 2) for n in fragments) if atom.across else fragments
        tiling = Tiling(atom, waves, counts, depth, stages)
        part = -(-problem.depth // splits // depth) * depth
        return MatrixPlan(problem, Plan(tiling, splits, part)).emit(ctx)

    return lower


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize(
    "waves, fragments", [((2, 2), (2, 2)), ((4, 1), (1, 2)), ((1, 4), (2, 1)), ((2, 1), (4, 4))]
)
@pytest.mark.parametrize(
    "gfx, dtype, operand, size",
    [
        ("gfx942", np.float16, "f16", 0), ("gfx942", np.float16, "f16", 1),
        ("gfx942", np.float32, "f32", 1), ("gfx1100", np.float16, "f16", 0),
        ("gfx1100", np.float32, "f32", 0),
    ],
)  # fmt: skip
def test_tilings(gfx, dtype, operand, size, waves, fragments, turned):
    x = values((100, 72), dtype)
    y = values((130, 72) if turned else (72, 130), dtype, 1)
    lower = forced(operand, "f32", size, waves, fragments)
    check(gfx, x, y, (((1,), (turned,)), ((), ())), lower=lower)


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("depth", [512, 530])
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("most, launches", [(0, ["product", "combine"]), (64 << 10, ["product"])])
def test_shared_depth(gfx, depth, stages, most, launches, monkeypatch):
    """Programs sum parts of the depth.

    The last of a tile, or another launch, adds them and applies what is fused.
    """
    monkeypatch.setattr(tiling, "PARTS_BYTES", most)
    x, y = values((40, depth), np.float16), values((depth, 60), np.float16, 1)
    lower = forced("f16", "f32", -1, (2, 2), (1, 2), stages, 3)
    runner = check(gfx, x, y, out=np.dtype(np.float32), lower=lower)
    assert [c.kernel.name for c in runner.calls] == launches
    other = values((60,), np.float32, 2)
    fused = GpuRunner(
        dot_general_p, [x, y], params(out=np.dtype(np.float32)), gfx, lower=lower,
        epilogue=bias_relu,
    )  # fmt: skip
    plain = x.astype(np.float32) @ y.astype(np.float32)
    result, out = fused(x, y, extra=[other])
    np.testing.assert_array_equal(out, plain)
    np.testing.assert_array_equal(result, np.maximum(plain + other, 0))


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("shape", [(64, 32, 64), (33, 70, 45)])
def test_fused(gfx, dtype, shape):
    m, k, n = shape
    x, y, bias = values((m, k), dtype), values((k, n), dtype, 1), values((n,), dtype, 2)
    runner = GpuRunner(dot_general_p, [x, y], params(), gfx, epilogue=bias_relu)
    result, out = runner(x, y, extra=[bias])
    plain = (x.astype(np.float64) @ y.astype(np.float64)).astype(dtype)
    np.testing.assert_array_equal(out, plain)
    np.testing.assert_array_equal(result, np.maximum(plain + bias, 0))


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(40, 70, 45), (80, 32, 64), (288, 16, 64)])
def test_slices_behind_the_last_row(gfx, dtype, shape, monkeypatch):
    """They fit the rows, the tile does not; the emulator sees what they would write."""
    monkeypatch.setattr(contraction, "LONG_SLICE", 1)
    test_fused(gfx, dtype, shape)


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(64, 32, 128), (40, 70, 75)])
def test_columns_that_leave_in_parts(gfx, dtype, shape, monkeypatch):
    """As those of tiles whose width is no power of two: of one fragment at a time."""
    monkeypatch.setattr(Tiling, "columns_together", property(lambda x: x.waves[1] * x.atom.n))
    test_fused(gfx, dtype, shape)


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("turned", list(itertools.product((0, 1), repeat=2)))
@pytest.mark.parametrize("format", ["f16", "bf16", "xf32"])
def test_operands_that_are_rounded_before(gfx, format, turned):
    """To what the product would make of them; TF32 is laid out along the depth besides."""
    rng, (b, m, k, n) = np.random.default_rng(0), (2, 70, 84, 33)
    x = rng.normal(size=(b, k, m) if turned[0] else (b, m, k)).astype(np.float32)
    y = rng.normal(size=(b, n, k) if turned[1] else (b, k, n)).astype(np.float32)
    x.flat[:2] = np.inf, np.finfo(np.float32).max / 4

    def lower(ctx):
        narrow, roundings = rounded(dot_contraction(ctx).merged(), format)
        if format == "xf32":
            assert all(side.depth[-1].stride == 1 for side in (narrow.a, narrow.b))
        plan = contraction.plan_product(ctx.gpu, narrow)
        return [*(one.call(ctx) for one in roundings), *plan.emit(ctx)]

    numbers = (((2 - turned[0],), (1 + turned[1],)), ((0,), (0,)))
    got = GpuRunner(dot_general_p, [x, y], params(numbers), gfx, lower=lower)(x, y)
    with np.errstate(over="ignore"):
        x, y = (_rounded(z, format).astype(np.float64) for z in (x, y))
    x, y = x.swapaxes(1, 2) if turned[0] else x, y.swapaxes(1, 2) if turned[1] else y
    with np.errstate(invalid="ignore"):
        want, scale = x @ y, np.abs(x) @ np.abs(y)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    assert (np.abs(got[finite] - want[finite]) <= 2.0**-20 * scale[finite]).all()


def _rounded(x, format):
    """float32 as a format has it."""
    if format != "xf32":
        return x.astype({"f16": np.float16, "bf16": ml_dtypes.bfloat16}[format])
    bits = x.view(np.uint32) + np.where(np.isfinite(x), 1 << 12, 0).astype(np.uint32)
    return (bits & ~np.uint32((1 << 13) - 1)).view(np.float32)


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(20, 30, 18), (33, 7, 40)])
@pytest.mark.parametrize("turned", [0, 1])
def test_complex(gfx, dtype, shape, turned):
    m, k, n = shape
    x = values((m, k), dtype) + 1j * values((m, k), dtype, 1)
    y = values((n, k) if turned else (k, n), dtype, 2)
    y = y + 1j * values(y.shape, dtype, 3)
    numbers = (((1,), (turned,)), ((), ()))
    runner = GpuRunner(dot_general_p, [x.astype(dtype), y.astype(dtype)], params(numbers), gfx)
    assert [c.kernel.name for c in runner.calls] == ["product"]
    got = runner(x.astype(dtype), y.astype(dtype))
    np.testing.assert_array_equal(got, x @ (y.T if turned else y))


@pytest.mark.parametrize("gfx", EMULATED)
def test_fused_complex(gfx):
    x, y = (values(s, np.complex64, 4) * (1 + 2j) for s in ((20, 30), (30, 17)))
    x, y = x.astype(np.complex64), y.astype(np.complex64)
    other = values((20, 17), np.complex64, 5) * np.complex64(1j)

    def add(out):
        operand, result = Var(ShapedArray(other.shape, other.dtype)), Var(out.aval)
        return [result], [operand], {result: JaxprEqn(add_p, [out, operand], [result], {})}

    runner = GpuRunner(dot_general_p, [x, y], params(), gfx, epilogue=add)
    np.testing.assert_array_equal(runner(x, y, extra=[other]), x @ y + other)


# What every target gets

LARGE = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i8": np.int8}
EXPECTED = {
    "CDNA": {"f16": "v_mfma", "bf16": "v_mfma", "f32": "v_mfma", "i8": "v_mfma"},
    "RDNA2": {"f16": "v_dot2", "bf16": "v_fma", "f32": "v_fma", "i8": "v_dot4"},
    "RDNA": {"f16": "v_wmma", "bf16": "v_wmma", "f32": "v_(dual_)?fma", "i8": "v_wmma"},
}


def large(gfx, dtype, m=4096, k=1024, n=4096):
    x, y = np.empty((m, k), LARGE[dtype]), np.empty((k, n), LARGE[dtype])
    out = np.dtype(np.int32) if dtype == "i8" else None
    return GpuRunner(dot_general_p, [x, y], params(out=out), gfx)


@pytest.mark.parametrize("dtype", LARGE)
@pytest.mark.parametrize("gfx", DISTINCT)
def test_compiles_to_the_matrix_atom(gfx, dtype):
    kernel, *others = large(gfx, dtype).compiled()
    assert all(x.scratch_bytes == 0 for x in (kernel, *others))
    family = targets.get(gfx).family
    names = next(v for key, v in EXPECTED.items() if family.startswith(key))
    text = assembly(kernel.llvm, gfx)
    assert len(re.findall(names[dtype], text)) >= 2


@pytest.mark.parametrize("dtype", LARGE)
@pytest.mark.parametrize("gfx", [*DISTINCT, "sm_90"])
@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (64, 64, 65536), (8, 512, 30), (1, 999, 1)])
def test_plans(gfx, dtype, shape):
    """Tiles are no larger than needed, fill the machine, and their operands fit the LDS."""
    target = targets.get(gfx)
    m, k, n = shape
    runner = large(gfx, dtype, m, k, n)
    (op,) = [op for op in runner.calls[0].kernel.body.ops if op.name == "contract"]
    rows, columns = op.result.shape
    assert rows <= max(2 * m, 32) and columns <= max(2 * n, 32)
    assert math.prod(op.tiling.waves) * target.wave_size <= 256
    if shape == (64, 64, 65536):
        assert runner.calls[0].grid > target.compute_units // 4
    if m == 4096:
        assert rows * columns >= 128 * 64


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("turned", list(itertools.product((0, 1), repeat=2)))
def test_hopper_reads_operands_from_shared_memory(dtype, turned):
    x, y = np.empty((512, 512), LARGE[dtype]), np.empty((512, 512), LARGE[dtype])
    numbers = (((1 - turned[0],), (turned[1],)), ((), ()))
    runner = GpuRunner(dot_general_p, [x, y], params(numbers), "sm_90a")
    (kernel,) = runner.compiled()
    text = kernel.code.decode()
    # Whether each operand lies along its lines is part of the instruction.
    (flags,) = set(re.findall(r"p, 1, 1, (\d, \d); }", text))
    assert flags == f"{turned[0]}, {1 - turned[1]}"
    assert "cp.async.cg.shared.global" in text and "ld.global" not in text
    assert kernel.lds_bytes == kernel.dynamic_lds > 48 << 10
    assert ".extern .shared" in text


@pytest.mark.parametrize("turned", list(itertools.product((0, 1), repeat=2)))
def test_hopper_has_tiles_that_fill_the_machine(turned):
    """256 tiles of 192 columns are two for nearly all of its units, and sums leave in pairs."""
    m, k, n = 8192, 3072, 768
    x = np.broadcast_to(np.float16(0), (k, m) if turned[0] else (m, k))
    y = np.broadcast_to(np.float16(0), (n, k) if turned[1] else (k, n))
    numbers = (((1 - turned[0],), (turned[1],)), ((), ()))
    runner = GpuRunner(dot_general_p, [x, y], params(numbers), "sm_90a")
    (call,), (kernel,) = runner.calls, runner.compiled()
    text = kernel.code.decode()
    assert call.grid == 256 and "m64n192k16.f32.f16.f16" in text
    # Three blocks of 64 columns, each of 32 sums of a thread, in 16 words.
    assert len(re.findall(r"st.shared.b32", text)) == 48


@pytest.mark.parametrize("turned", list(itertools.product((0, 1), repeat=2)))
@pytest.mark.parametrize("out", [None, np.float32])
def test_hopper_brings_the_next_tile_while_a_short_one_is_stored(turned, out):
    """A program for each unit; copies begin once, before the loop over tiles and in its steps."""
    m, k, n = 8192, 768, 2304
    x = np.broadcast_to(np.float16(0), (k, m) if turned[0] else (m, k))
    y = np.broadcast_to(np.float16(0), (n, k) if turned[1] else (k, n))
    options = params((((1 - turned[0],), (turned[1],)), ((), ())), out and np.dtype(out))
    runner = GpuRunner(dot_general_p, [x, y], options, "sm_90a")
    (call,), (kernel,) = runner.calls, runner.compiled()
    target, text = targets.get("sm_90a"), kernel.code.decode()
    assert call.grid == target.compute_units < 8192 // 128 * (2304 // 192)
    # Nothing waits for all copies: those of the next tile are on their way.
    waits = set(re.findall(r"cp.async.wait_(\w+\s*\d*)", text))
    assert len(waits) == 1 and not re.search("all|0$", *waits)
    shared = sum(int(n) for n in re.findall(r"\.shared .*\[(\d+)\]", text))
    assert shared + kernel.dynamic_lds <= target.lds_bytes


@pytest.mark.parametrize("turned", list(itertools.product((0, 1), repeat=2)))
def test_hopper_reads_bytes_from_shared_memory_along_the_depth(turned):
    x, y = np.empty((512, 512), np.int8), np.empty((512, 512), np.int8)
    numbers = (((1 - turned[0],), (turned[1],)), ((), ()))
    out = np.dtype(np.int32)
    kernel, *_ = GpuRunner(dot_general_p, [x, y], params(numbers, out), "sm_90a").compiled()
    text = kernel.code.decode()
    assert ("k32.s32.s8.s8" in text) == (turned == (0, 1)) != ("mma.sync" in text)


@pytest.mark.parametrize(
    ("asked", "instruction", "terms"),
    [("TF32_TF32_F32", "k8.f32.tf32.tf32", 1), ("BF16_BF16_F32", "k16.f32.bf16.bf16", 1),
     ("BF16_BF16_F32_X3", "k16.f32.bf16.bf16", 3), ("BF16_BF16_F32_X6", "k16.f32.bf16.bf16", 6)],
)  # fmt: skip
@pytest.mark.parametrize("turned", list(itertools.product((0, 1), repeat=2)))
def test_hopper_narrows_operands_on_their_way_to_shared_memory(asked, instruction, terms, turned):
    """Both lie along the depth there, four steps of the instruction for each product of parts."""
    x, y = np.empty((512, 512), np.float32), np.empty((512, 512), np.float32)
    options = params((((1 - turned[0],), (turned[1],)), ((), ())))
    options["precision"] = DotAlgorithmPreset[asked]
    kernel, *_ = GpuRunner(dot_general_p, [x, y], options, "sm_90a").compiled()
    text = kernel.code.decode()
    found = re.findall(r"wgmma.mma_async\S*", text)
    assert len(found) == 4 * terms and all(name.endswith(instruction) for name in found)
    assert "mma.sync" not in text
    # The first of several terms begins at zero, lest the unit cut off much of what it adds.
    assert len(re.findall(r"setp.ne.b32 p, 0, 0; wgmma", text)) == (terms > 1)


@pytest.mark.parametrize(
    ("asked", "instruction"),
    [("TF32_TF32_F32", "k8.f32.tf32.tf32"), ("BF16_BF16_F32", "k16.f32.bf16.bf16")],
)
@pytest.mark.parametrize("turned", list(itertools.product((0, 1), repeat=2)))
def test_hopper_rounds_operands_of_large_products_before(asked, instruction, turned):
    x = y = np.broadcast_to(np.float32(0), (4096, 4096))
    options = params((((1 - turned[0],), (turned[1],)), ((), ())))
    options["precision"] = DotAlgorithmPreset[asked]
    runner = GpuRunner(dot_general_p, [x, y], options, "sm_90a")
    assert [call.kernel.name for call in runner.calls] == ["round", "round", "product"]
    text = runner.compiled()[-1].code.decode()
    found = set(re.findall(r"wgmma.mma_async\S*", text))
    assert len(found) == 1 and found.pop().endswith(instruction)
    assert "cp.async.cg.shared.global" in text and "ld.global" not in text


def test_hopper_copies_only_what_is_aligned():
    x, y = np.empty((512, 511), np.float16), np.empty((511, 512), np.float16)
    (kernel,) = GpuRunner(dot_general_p, [x, y], params(), "sm_90a").compiled()
    assert "wgmma" not in kernel.code.decode() and "mma.sync" in kernel.code.decode()


@pytest.mark.parametrize("target", ["gfx1030", "gfx1100", "gfx1201"])
def test_no_product_of_vector_lanes_needs_scratch(target):
    sizes = (1024, 256, 4096), (1024, 4096, 256), (6272, 64, 256)
    for m, k, n in in_turn(sizes, 3, target):
        x, y = jnp.ones((m, k)), jnp.ones((k, n))
        for kernel in jit(lambda a, b: a @ b).lower(x, y).compile(target).kernels:
            assert kernel.scratch_bytes == 0, (m, k, n, kernel.vgprs)


@pytest.mark.parametrize("target", ["gfx1030", "gfx1036", "gfx1100", "gfx1103", "gfx1201"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "float64", "complex128"])
def test_no_wide_product_needs_scratch(target, dtype):
    """Multiply-adds of integers take pairs of registers; tiles depend on the number of CUs."""
    sizes = (256, 256, 256), (1000, 1000, 1000), (4096, 64, 4096)
    with enable_x64(True):
        for m, k, n in in_turn(sizes, 3, target + dtype):
            x, y = jnp.ones((m, k), dtype), jnp.ones((k, n), dtype)
            for kernel in jit(lambda a, b: a @ b).lower(x, y).compile(target).kernels:
                assert kernel.scratch_bytes == 0, (m, k, n, kernel.vgprs)


@pytest.mark.parametrize(
    ("dtype", "target"), in_turn(itertools.product(("float32", "bfloat16"), DISTINCT), 2)
)
def test_long_epilogues_need_no_scratch(dtype, target):
    x, y, b = (jnp.ones(s, dtype) for s in ((1024, 256), (256, 4096), (4096,)))

    def layer(x, y, b):
        return gelu(x @ y + b, approximate=False)

    (kernel,) = jit(layer).lower(x, y, b).compile(target).kernels
    assert kernel.scratch_bytes == 0, kernel.vgprs


def test_hopper_multiplies_doubles_by_large_instructions():
    x, y = np.empty((512, 512)), np.empty((512, 512))
    kernel, *_ = GpuRunner(dot_general_p, [x, y], params(), "sm_90").compiled()
    text = kernel.code.decode()
    assert "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64" in text
    assert "m8n8k4" not in text


@pytest.mark.parametrize("gfx", ["gfx942", "gfx90a", "gfx1100"])
def test_bytes_are_turned_by_permutes(gfx):
    """A block of four lines by four steps in depth is turned by eight."""
    kernel, *_ = large(gfx, "i8").compiled()
    text = assembly(kernel.llvm, gfx)
    permutes = len(re.findall("v_perm_b32", text))
    assert permutes >= 32 and permutes % 8 == 0
    assert "sdwa" not in text and "v_or_b16" not in text
