"""`precision` of products: errors within what its format has, and the instructions that it gets."""

import math
import re

import ml_dtypes
import numpy as np
import pytest

import amdjax
import amdjax.kernels
import amdjax.numpy as jnp
from amdjax import grad, jit, jvp, lax, make_jaxpr, nn, vmap
from amdjax.codegen.gpu.amdgpu_object import assembly
from amdjax.core.parse import parse_jaxpr
from amdjax.core.precision import canonical_precision
from amdjax.kernels.products.formats import operand_formats
from amdjax.lax.attention import attention, attention_p
from amdjax.lax.conv import ConvDimensionNumbers, conv_general_dilated_p
from amdjax.lax.dot import dot_general_p
from tests.support.gpu_runner import GpuRunner
from tests.support.turns import in_turn

GPUS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
EPS = float(np.finfo(np.float32).eps)

#: By how much a product of two numbers may be wrong, relative to it: both operands are rounded to
#: the format; of two parts, the last bits of each and the product of the lesser parts are missing.
ERRORS = {
    "default": 2.0**-10, "high": 2.0**-10, "tensorfloat32": 2.0**-10, "TF32_TF32_F32": 2.0**-10,
    "F16_F16_F32": 2.0**-10, "BF16_BF16_F32": 2.0**-7, "BF16_BF16_BF16": 2.0**-7,
    "BF16_BF16_F32_X3": 3 * 2.0**-16, "BF16_BF16_F32_X6": EPS, "BF16_BF16_F32_X9": EPS,
    "TF32_TF32_F32_X3": 3 * 2.0**-22, "float32": 0.0, "highest": 0.0, "F32_F32_F32": 0.0,
    "DEFAULT": 2.0**-10,
}  # fmt: skip

NUMBERS = (((1,), (0,)), ((), ()))
LAST = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


MATRIX = r"v_mfma_\w+|v_wmma_\w+|mma\.sync[\w.]+|wgmma\.mma_async[\w.]+"


def instructions(kernel, gfx):
    return kernel.code.decode() if kernel.format == "ptx" else assembly(kernel.llvm, gfx)


def machine_code(compiled, gfx):
    return compiled.as_text("ptx" if gfx.startswith("sm") else "amdgcn")


def dot(gfx, x, y, precision, numbers=NUMBERS):
    params = {
        "dimension_numbers": numbers, "precision": canonical_precision(precision),
        "preferred_element_type": None, "out_sharding": None,
    }  # fmt: skip
    return GpuRunner(dot_general_p, [x, y], params, gfx)


def conv(gfx, x, w, precision, groups=1):
    padding = (w.shape[1] // 2,) * 2
    params = {
        "window_strides": (1, 1), "padding": (padding, padding), "lhs_dilation": (1, 1),
        "rhs_dilation": (1, 1), "dimension_numbers": LAST, "feature_group_count": groups,
        "batch_group_count": 1, "precision": canonical_precision(precision),
        "preferred_element_type": None, "out_sharding": None,
    }  # fmt: skip
    return GpuRunner(conv_general_dilated_p, [x, w], params, gfx)


def check(got, x, y, precision, product):
    """Against the product in float64; sums of `depth` numbers add their own rounding."""
    wide = x.astype(np.float64), y.astype(np.float64)
    want, scale = product(*wide), product(*map(np.abs, wide))
    depth = product(np.ones_like(x), np.ones_like(y)).max()
    error = np.abs(got.astype(np.float64) - want)
    assert (error <= (ERRORS[precision] + depth * EPS) * scale).all(), np.max(error / scale)
    return np.max(error / scale)


def numbers(shape, seed):
    """Positive numbers, whose errors do not cancel, of many magnitudes."""
    rng = np.random.default_rng(seed)
    return (rng.uniform(1, 2, shape) * 2.0 ** rng.integers(-6, 7, shape)).astype(np.float32)


@pytest.mark.parametrize(
    ("gfx", "precision"), in_turn([(g, p) for g in GPUS for p in ERRORS], 3, "dot")
)
def test_errors_of_products(gfx, precision):
    x, y = numbers((37, 50), 0), numbers((50, 44), 1)
    error = check(dot(gfx, x, y, precision)(x, y), x, y, precision, np.matmul)
    if not operand_formats(canonical_precision(precision)):
        assert np.array_equal(dot(gfx, x, y, precision)(x, y), dot(gfx, x, y, None)(x, y))
    elif gfx == "gfx942" and ERRORS[precision] > 2.0**-11:
        assert error > 2.0**-18


@pytest.mark.parametrize("precision", ["TF32_TF32_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6"])
@pytest.mark.parametrize("shape", [(64, 64, 48), (33, 17, 65), (5, 1, 3)])
@pytest.mark.parametrize("turned", [(0, 1), (1, 0)])
def test_transposed_operands(precision, shape, turned):
    m, k, n = shape
    x = numbers((k, m) if turned[0] else (m, k), 0)
    y = numbers((n, k) if turned[1] else (k, n), 1)
    got = dot(
        "gfx950" if "X6" in precision else "gfx942",
        x,
        y,
        precision,
        (((1 - turned[0],), (turned[1],)), ((), ())),
    )(x, y)
    check(got, x.T if turned[0] else x, y.T if turned[1] else y, precision, np.matmul)


@pytest.mark.parametrize(
    ("gfx", "precision"),
    in_turn([(g, p) for g in GPUS for p in ERRORS if p.isupper()], 4, "conv"),
)
def test_errors_of_convolutions(gfx, precision):
    x, w = numbers((2, 6, 5, 8), 0), numbers((3, 3, 8, 24), 1)

    def product(x, w):
        x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
        return np.einsum("nhwcij,ijco->nhwo", windows, w)

    check(conv(gfx, x, w, precision)(x, w), x, w, precision, product)


@pytest.mark.parametrize("narrow", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("precision", ["TF32_TF32_F32", "BF16_BF16_F32_X3"])
def test_one_operand_may_be_narrow(narrow, precision):
    x, y = numbers((37, 50), 0), numbers((50, 44), 1).astype(narrow)
    check(dot("gfx942", x, y, precision)(x, y), x, y, precision, np.matmul)


@pytest.mark.parametrize("precision", ["TF32_TF32_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6"])
def test_numbers_that_are_none_and_numbers_near_the_largest(precision):
    x = np.ones((4, 8), np.float32)
    x[0, 0], x[1, 0], x[2, 0], x[3, 0] = np.inf, np.nan, -np.inf, np.finfo(np.float32).min
    y = np.full((8, 16), 0.125, np.float32)
    gfx = "gfx950" if precision.endswith("X6") else "gfx942"
    got = dot(gfx, x, y, precision)(x, y)
    assert np.isposinf(got[0]).all() and np.isnan(got[1]).all() and np.isneginf(got[2]).all()
    if precision != "TF32_TF32_F32":  # whose unit may round the largest number to infinity
        np.testing.assert_allclose(got[3], x[3].astype(np.float64) @ y, rtol=1e-4)
    y[0] = 0
    got = dot(gfx, x, y, precision)(x, y)
    assert np.isnan(got[:3]).all()


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100"])
def test_sums_in_double(gfx):
    x = np.array([[1e8, 1, -1e8]], np.float32)
    y = np.ones((3, 2), np.float32)
    assert dot(gfx, x, y, "F64_F64_F64")(x, y).tolist() == [[1, 1]]
    assert lax.dot(x, y, precision="F64_F64_F64").tolist() == [[1, 1]]


@pytest.mark.parametrize("target", ["cpu", "gfx942", "gfx1100"])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_sums_of_convolutions_in_double(target, groups):
    """By products, by padded groups, and by lanes."""
    x = np.tile(np.array([1e8, 1, -1e8], np.float32)[None, :, None, None], (2, 1, 5, 8))
    w = np.ones((3, 1, 8 // groups, 8), np.float32)
    if target == "cpu":
        got = lax.conv_general_dilated(
            x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups, precision="F64_F64_F64",
        )  # fmt: skip
    else:
        got = conv(target, x, w, "F64_F64_F64", groups)(x, w)
    np.testing.assert_array_equal(got, np.full((2, 1, 5, 8), 8 // groups))


@pytest.mark.parametrize("target", ["cpu", "gfx942", "gfx1100"])
@pytest.mark.parametrize("precision", ["high", "BF16_BF16_F32", "F64_F64_F64"])
def test_complex_numbers_are_multiplied_as_they_are(target, precision):
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(2, *s)).astype("f") for s in [(2, 5, 6, 8), (3, 1, 8, 16)])
    x, w = x[0] + 1j * x[1], w[0] + 1j * w[1]
    a, b = x[0, 0], w[0, 0]
    if target == "cpu":
        product = lax.dot(a, b, precision=precision)
        convolved = lax.conv_general_dilated(
            x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), precision=precision
        )
    else:
        product = dot(target, a, b, precision)(a, b)
        convolved = conv(target, x, w, precision)(x, w)
    np.testing.assert_allclose(product, a.astype(complex) @ b, rtol=8 * EPS, atol=32 * EPS)
    wanted = sum(x[:, i : i + 3].astype(complex) @ w[i, 0] for i in range(3))
    np.testing.assert_allclose(convolved, wanted, rtol=8 * EPS, atol=96 * EPS)


# Attention

ATTENTION = {"tensorfloat32": 2.0**-9, "BF16_BF16_F32": 2.0**-6, "highest": 2.0**-20}


@pytest.mark.parametrize("precision", ATTENTION)
def test_errors_of_attention(precision):
    """Weights are rounded, too, and relatively off by as much as logits are."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.uniform(0.5, 1, (1, 40, 2, 32)).astype(np.float32) for _ in range(3))
    with amdjax.default_matmul_precision(precision):
        eqn = make_jaxpr(lambda *x: attention(*x, scale=0.05))(q, k, v).eqns[0]
    assert (eqn.params.get("precision") or "") == precision.replace("tensorfloat32", "high")
    got, *_ = GpuRunner(attention_p, [q, k, v], eqn.params, "gfx942")(q, k, v)
    logits = 0.05 * np.einsum("btnh,bsnh->bnts", q.astype(np.float64), k)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    want = np.einsum("bnts,bsnh->btnh", weights, v)
    error = np.max(np.abs(got - want) / want)
    assert error < ATTENTION[precision]
    assert precision == "highest" or error > 2.0**-16


def written(q, k, v):
    weights = nn.softmax(jnp.einsum("btnh,bsnh->bnts", q, k))
    return jnp.einsum("bnts,bsnh->btnh", weights, v)


@pytest.mark.parametrize("attend", [nn.dot_product_attention, written])
@pytest.mark.parametrize(
    ("gfx", "precision", "wanted"),
    [("gfx942", None, "_f32"), ("gfx942", "high", "xf32"), ("sm_90a", "high", ".tf32"),
     ("gfx942", "BF16_BF16_F32", "_bf16"), ("gfx942", "BF16_BF16_F32_X3", "4_f32")],
)  # fmt: skip
def test_instructions_of_attention_and_its_gradient(attend, gfx, precision, wanted):
    x = jnp.ones((1, 64, 2, 32))
    gradient = grad(lambda *x: attend(*x).sum(), (0, 1, 2))
    with amdjax.default_matmul_precision(precision):
        compiled = jit(gradient).lower(x, x, x).compile(gfx)
    assert "attention_gradient" in compiled.as_text("simplified")
    found = re.findall(MATRIX, machine_code(compiled, gfx))
    assert len(found) >= 7 and all(wanted in x for x in found)


@pytest.mark.parametrize("mixed", [("high", "highest"), ("highest", "BF16_BF16_F32")])
def test_products_of_attention_that_differ_are_of_float32(mixed):
    def attend(q, k, v):
        weights = nn.softmax(jnp.einsum("btnh,bsnh->bnts", q, k, precision=mixed[0]))
        return jnp.einsum("bnts,bsnh->btnh", weights, v, precision=mixed[1])

    x = jnp.ones((1, 64, 2, 32))
    compiled = jit(attend).lower(x, x, x).compile("gfx942")
    assert set(re.findall(MATRIX, machine_code(compiled, "gfx942"))) == {"v_mfma_f32_16x16x4_f32"}


def test_attention_sums_in_double():
    q, k = jnp.array([1e8, 1, 1e8]).reshape(1, 1, 1, 3), jnp.array([1.0, 1, -1]).reshape(1, 1, 1, 3)
    both, v = jnp.concatenate([k, 0 * k], 1), jnp.arange(2.0).reshape(1, 2, 1, 1)
    with amdjax.default_matmul_precision("F64_F64_F64"):
        out, _ = attention(q, both, v, scale=1.0)
    np.testing.assert_allclose(out.ravel(), 1 / (1 + np.e), rtol=4 * EPS)


def test_what_attention_decomposes_to_keeps_its_precision():
    """Whatever holds when it is compiled, as for more features than kernels have."""
    x = jnp.ones((1, 64, 1, 512))
    for precision in (None, "high"):
        with amdjax.default_matmul_precision(precision):
            lowered = jit(lambda x: nn.dot_product_attention(x, x, x)).lower(x)
        with amdjax.default_matmul_precision("high" if precision is None else None):
            code = machine_code(lowered.compile("gfx942"), "gfx942")
        assert ("_xf32" in code) == (precision == "high")


# Instructions

INSTRUCTIONS = {
    ("gfx942", None): r"v_mfma_f32_32x32x2_f32",
    ("gfx942", "highest"): r"v_mfma_f32_32x32x2_f32",
    ("gfx942", "tensorfloat32"): r"v_mfma_f32_32x32x4_xf32",
    ("gfx942", "BF16_BF16_F32_X3"): r"v_mfma_f32_32x32x8_bf16",
    ("gfx942", "BF16_BF16_F32"): r"v_mfma_f32_32x32x8_bf16",
    ("gfx942", "F16_F16_F32"): r"v_mfma_f32_32x32x8_f16",
    ("gfx942", "BF16_BF16_F32_X9"): r"v_mfma_f32_32x32x2_f32",  # is as fast, and as good
    ("gfx950", "high"): r"v_mfma_f32_32x32x16_bf16",  # which has no xf32
    ("gfx1100", "high"): r"v_(dual_)?fma",
    ("gfx1201", "high"): r"v_(dual_)?fma",
    ("gfx942", "BF16_BF16_F32_X6"): r"v_mfma_f32_32x32x2_f32",
    ("gfx950", "BF16_BF16_F32_X6"): r"v_mfma_f32_32x32x16_bf16",
    ("sm_80", None): r"fma\.rn\.f32",
    ("sm_80", "highest"): r"fma\.rn\.f32",
    ("sm_80", "tensorfloat32"): r"mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.tf32\.tf32\.f32",
    ("sm_90a", "default"): r"\.tf32",
    ("sm_90a", "BF16_BF16_F32_X3"): r"bf16\.bf16",
}


@pytest.mark.parametrize(("gfx", "precision"), INSTRUCTIONS)
def test_instructions_of_products(gfx, precision):
    x = np.empty((1024, 1024), np.float32)
    kernel, *_ = dot(gfx, x, x, precision).compiled()
    assert kernel.scratch_bytes == 0
    text, wanted = instructions(kernel, gfx), INSTRUCTIONS[gfx, precision]
    assert len(re.findall(wanted, text)) >= 2
    assert all(re.search(wanted, found) for found in re.findall(MATRIX, text))


@pytest.mark.parametrize("precision", ["TF32_TF32_F32", "BF16_BF16_F32_X3", "TF32_TF32_F32_X3"])
def test_lanes_add_sums_of_tiles_where_units_would_cut_them_off(precision):
    x = np.empty((1024, 1024), np.float32)
    runner = dot("sm_80", x, x, precision)
    kernel, *_ = runner.compiled()
    (op,) = [op for op in runner.calls[0].kernel.body.ops if op.name == "contract"]
    each = math.prod(op.result.shape) // kernel.workgroup
    found = len(re.findall(r"add\.rn\.f32", instructions(kernel, "sm_80")))
    assert found >= each if precision.endswith("X3") else not found


@pytest.mark.parametrize(("gfx", "name"), [("gfx942", "_xf32"), ("sm_80", ".tf32")])
def test_instructions_of_convolutions_and_their_gradients(gfx, name):
    x, w = jnp.ones((8, 14, 14, 64)), jnp.ones((3, 3, 64, 64))

    def loss(x, w):
        layout = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout).sum()

    with amdjax.default_matmul_precision("tensorfloat32"):
        text = machine_code(jit(grad(loss, (0, 1))).lower(x, w).compile(gfx), gfx)
    found = re.findall(MATRIX, text)
    assert len(found) >= 4 and all(name in x for x in found)


def test_the_setting_is_part_of_what_a_program_depends_on():
    x = jnp.ones((256, 256))
    f = jit(lambda x: x @ x)
    found = []
    for setting in (None, "tensorfloat32", "highest", "tensorfloat32"):
        with amdjax.default_matmul_precision(setting):
            found.append("_xf32" in machine_code(f.lower(x).compile("gfx942"), "gfx942"))
    assert found == [False, True, False, True]


# Programs


@pytest.mark.parametrize("precision", [*lax.DotAlgorithmPreset, lax.Precision.HIGH])
def test_programs_keep_it(precision):
    """Through batching, derivatives and the printed form."""
    x, w = jnp.ones((2, 3, 6, 6)), jnp.ones((5, 3, 3, 3))

    def f(x, w):
        y = lax.conv(x, w, (1, 1), "SAME", precision=precision)
        return lax.dot_general(y, y, (((3,), (2,)), ((), ())), precision=precision).sum()

    many = jnp.stack([w, w])
    programs = [
        make_jaxpr(f)(x, w),
        make_jaxpr(grad(f, (0, 1)))(x, w),
        make_jaxpr(vmap(grad(f), (None, 0)))(x, many),
    ]
    for jaxpr in programs:
        for closed in (jaxpr, parse_jaxpr(str(jaxpr))):
            found = [e.params["precision"] for e in closed.eqns if "precision" in e.params]
            assert len(found) >= 2 and set(found) == {canonical_precision(precision)}


SOLVERS = (jnp.linalg.pinv, jnp.linalg.det, jnp.linalg.slogdet, jnp.linalg.solve, jnp.linalg.lstsq)


@pytest.mark.parametrize("solve", SOLVERS)
def test_what_is_solved_is_solved_in_full_precision(solve):
    """And its derivative."""
    x = jnp.eye(4) + 0.1
    arguments = (x, x) if solve in (jnp.linalg.solve, jnp.linalg.lstsq) else (x,)
    with amdjax.default_matmul_precision("tensorfloat32"):
        jaxpr = str(make_jaxpr(lambda *x: jvp(solve, x, x))(*arguments))
    assert "Precision.HIGHEST" in jaxpr and "Precision.HIGH)" not in jaxpr


@pytest.mark.parametrize("precision", [*lax.DotAlgorithmPreset, *lax.Precision])
def test_cpus_are_as_good(precision):
    x, w = numbers((1, 8, 8, 16), 0), numbers((3, 3, 16, 16), 1)
    layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    want = lax.conv_general_dilated(x, w, (1, 1), "SAME", precision="highest", **layout)
    got = lax.conv_general_dilated(x, w, (1, 1), "SAME", precision=precision, **layout)
    np.testing.assert_allclose(got, want, rtol=64 * EPS)
    got = lax.dot(x[0, 0], w[0, 0], precision=precision)
    np.testing.assert_allclose(got, lax.dot(x[0, 0], w[0, 0]), rtol=16 * EPS)


def test_algorithms_are_the_presets_that_they_spell():
    bf16, f32 = ml_dtypes.bfloat16, np.float32
    algorithm = lax.DotAlgorithm(bf16, bf16, f32, 2, 2, 3)
    assert operand_formats(algorithm) == operand_formats(lax.DotAlgorithmPreset.BF16_BF16_F32_X3)
    assert operand_formats(lax.DotAlgorithm(f32, f32, f32)) == ()
