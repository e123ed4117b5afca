"""Attention on GPUs as one kernel, as machine code in the emulator, against NumPy in float64."""

import dataclasses
import re

import ml_dtypes
import numpy as np
import pytest

from amdjax import targets
from amdjax.codegen.gpu.kernel import compile_kernel
from amdjax.codegen.gpu.writer import kernel_ir
from amdjax.core.aval import ShapedArray
from amdjax.core.jaxpr import JaxprEqn, Var
from amdjax.kernels.attention.gpu import ATTENTION, block_plans, plan_attention
from amdjax.kernels.attention.problem import Attention
from amdjax.kernels.shaped import ShapedContext
from amdjax.lax.attention import (
    attention_gradient_p,
    attention_p,
    composed_attention,
    composed_gradient,
)
from amdjax.schedule.search import Family
from tests.support import attention as reference
from tests.support.attention import operands, weight_factors
from tests.support.gpu_runner import EMULATED, GpuRunner
from tests.support.turns import in_turn

F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
TOLERANCE = {F16: 2e-3, BF16: 2e-2, np.dtype(np.float32): 4e-6}
OPERANDS = ("bias", "mask", "query_lengths", "key_value_lengths", "seeds")


def parameters(sizes, options):
    """What an equation has of options, and the operands among them."""
    extra = {name: options[name] for name in OPERANDS if name in options}
    scale = options.get("scale", sizes[5] ** -0.5)
    return extra, {
        "given": tuple(extra), "scale": scale, "is_causal": options.get("is_causal", False),
        "window": options.get("window"), "rate": options.get("rate", 0.0),
    }  # fmt: skip


def expected(arrays, options, **more):
    renamed = {"key_value_lengths": "key_lengths"}
    options = {renamed.get(name, name): x for name, x in options.items()}
    rate, seeds = options.pop("rate", 0.0), options.pop("seeds", None)
    if rate:
        queries, keys, values = (x.shape for x in arrays)
        sizes = (*queries[:2], keys[1], queries[2], keys[2], queries[3], values[3])
        more["factors"] = weight_factors(sizes, seeds, rate)
    return reference.attention(*arrays, **options, **more)


def assert_close(got, want, tolerance):
    scale = max(1.0, np.abs(want).max())
    got = np.asarray(got, np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def check(gfx, sizes, dtype=F16, **options):
    arrays = operands(sizes, dtype)[:3]
    extra, params = parameters(sizes, options)
    runner = GpuRunner(attention_p, [*arrays, *extra.values()], params, gfx)
    assert len(runner.calls) == 1
    out, greatest, total = runner(*arrays, *extra.values())
    want, residual = expected(arrays, options)
    assert_close(out, want, TOLERANCE[np.dtype(dtype)])
    found = np.swapaxes(greatest.astype(np.float64) + np.log(total.astype(np.float64)), 1, 2)
    assert_close(found, residual, 4e-6)


SIZES = [
    (1, 64, 64, 2, 2, 64, 64),
    (2, 33, 70, 2, 1, 32, 32),
    (1, 130, 65, 1, 1, 33, 20),
    (1, 5, 200, 4, 2, 128, 64),
]


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_sizes(gfx, sizes, is_causal):
    check(gfx, sizes, is_causal=is_causal)


def _options():
    rng = np.random.default_rng(1)
    sizes = batch, queries, keys, heads, *_ = (2, 37, 150, 2, 1, 32, 32)
    full = (batch, heads, queries, keys)
    half = lambda x: x.astype(np.float16)
    return sizes, {
        "window": {"window": (3, 1)},
        "window behind all keys": {"window": (2, -1), "is_causal": True},
        "causal window": {"window": (20, 4), "is_causal": True},
        "wide window": {"window": (150, 100)},
        "key lengths": {"key_value_lengths": np.array([0, 91], np.int32)},
        "key lengths and window": {"key_value_lengths": np.array([150, 9], np.int32),
                                   "window": (5, 30)},
        "query lengths": {"query_lengths": np.array([0, 20], np.int32), "is_causal": True},
        "both lengths": {"query_lengths": np.array([30, 99], np.int32),
                         "key_value_lengths": np.array([66, 9], np.int32)},
        "bias": {"bias": half(rng.normal(size=full))},
        "bias of heads": {"bias": half(rng.normal(size=(1, heads, 1, keys))), "is_causal": True},
        "mask": {"mask": rng.random(full) < 0.5},
        "sparse mask": {"mask": rng.random(full) < 0.02, "is_causal": True},
        "mask of keys": {"mask": rng.random((batch, 1, 1, keys)) < 0.5, "scale": -0.3},
        "dropping": {"rate": 0.3, "seeds": rng.integers(2**32, size=(batch, 2), dtype=np.uint32)},
        "everything": {
            "rate": 0.1, "seeds": rng.integers(2**32, size=(batch, 2), dtype=np.uint32),
            "bias": half(rng.normal(size=(1, 1, queries, keys))), "mask": rng.random(full) < 0.9,
            "key_value_lengths": np.array([70, 150], np.int32), "is_causal": True,
            "window": (30, 0), "query_lengths": np.array([37, 36], np.int32),
        },
    }  # fmt: skip


OPTION_SIZES, OPTIONS = _options()


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("name", in_turn(OPTIONS, 2))
def test_options(gfx, name):
    check(gfx, OPTION_SIZES, **OPTIONS[name])


@pytest.mark.parametrize("gfx", ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_targets(gfx, dtype):
    check(gfx, (1, 40, 72, 1, 1, 64, 48), dtype, is_causal=True)


@pytest.mark.parametrize("gfx", [*EMULATED, "gfx1030"])
@pytest.mark.parametrize(
    "dtype,queries", [("float8_e4m3fn", 40), ("float8_e5m2", 1), ("bfloat16", 40)]
)
def test_operands_with_scales(gfx, dtype, queries):
    """Those of eight bits are multiplied as float16, which has them all, or as float32."""
    arrays = operands((2, queries, 70, 4, 2, 32, 20), dtype)[:3]
    factors = np.array([[0.3, 4.0], [1.5, 0.5]], np.float32)
    params = parameters((2, queries, 70, 4, 2, 32, 20), {"is_causal": queries > 1})[1]
    params = {**params, "given": ("factors",), "out_dtype": np.dtype(np.float32)}
    runner = GpuRunner(attention_p, [*arrays, factors], params, gfx)
    out, greatest, total = runner(*arrays, factors)
    wide = [x.astype(np.float64) for x in arrays]
    wide[0], wide[2] = (
        x * f[:, None, None, None] for x, f in zip(wide[::2], factors.T, strict=True)
    )
    want, residual = reference.attention(*wide, is_causal=queries > 1)
    assert out.dtype == np.float32
    assert_close(out, want, TOLERANCE[BF16 if dtype == "bfloat16" else F16])
    assert_close(np.swapaxes(greatest + np.log(total), 1, 2), residual, 4e-6)


@pytest.mark.parametrize("gfx", [*EMULATED, "gfx1201"])
def test_floats(gfx):
    """By the matrix unit, or by lanes that share rows."""
    check(gfx, (1, 40, 72, 2, 1, 32, 40), np.float32, is_causal=True)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_lanes_multiply_what_no_matrix_unit_does(dtype):
    check("gfx1030", (1, 20, 40, 2, 1, 32, 20), dtype)


@pytest.mark.parametrize("name", in_turn(OPTIONS, 5, "floats"))
def test_options_of_floats_by_lanes(name):
    check("gfx1100", OPTION_SIZES, np.float32, **OPTIONS[name])


def check_gradient(gfx, sizes, dtype=F16, bias_gradient=False, **options):
    *arrays, ct = operands(sizes, dtype)
    extra, params = parameters(sizes, options)
    wide = [x.astype(np.float64) for x in (*arrays, ct)]
    out, residual, want = expected(wide[:3], options, ct=wide[3])[:3]
    greatest = np.swapaxes(residual, 1, 2).astype(np.float32)
    alone = greatest < -1e30
    total = np.where(alone, np.float32(sizes[2]), np.float32(1))
    greatest = np.where(alone, np.float32(reference.LEAST), greatest)
    delta = np.swapaxes((out * wide[3]).sum(-1), 1, 2).astype(np.float32)
    given = [*arrays, *extra.values(), greatest, total, delta, ct]
    params = {**params, "bias_gradient": bias_gradient}
    runner = GpuRunner(attention_gradient_p, given, params, gfx)
    assert len(runner.calls) == 2 + bias_gradient
    for got, gradient in zip(runner(*given), want[: 3 + bias_gradient], strict=True):
        assert_close(got, gradient, TOLERANCE[np.dtype(dtype)])


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_gradient_of_sizes(gfx, sizes, is_causal):
    check_gradient(gfx, sizes, is_causal=is_causal)


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("name", in_turn(OPTIONS, 2, 1))
def test_gradient_of_options(gfx, name):
    check_gradient(gfx, OPTION_SIZES, **OPTIONS[name])


#: Axes of a bias, and options beside it.
BIASES = {
    "whole": ((2, 4, 40, 70), {}),
    "of positions": ((1, 1, 40, 70), {"is_causal": True}),
    "of keys": ((1, 4, 1, 70), {"key_value_lengths": np.array([70, 41], np.int32)}),
    "of queries": ((2, 1, 40, 1), {"window": (9, 9)}),
    "number": ((1, 1, 1, 1), {"rate": 0.3, "seeds": np.arange(4, dtype=np.uint32).reshape(2, 2)}),
}


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("name", ["number", *in_turn(list(BIASES)[:-1], 2)])
def test_gradient_of_bias(gfx, name):
    """In the shape of the bias, summed where it is broadcast; in its own dtype."""
    shape, options = BIASES[name]
    bias = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    check_gradient(gfx, (2, 40, 70, 4, 2, 32, 20), bias=bias, bias_gradient=True, **options)


@pytest.mark.parametrize("gfx", ["gfx90a", "gfx942", "gfx950", "gfx1201"])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_gradient_on_targets(gfx, dtype):
    check_gradient(gfx, (1, 40, 72, 1, 1, 64, 48), dtype, is_causal=True)


@pytest.mark.parametrize("gfx,dtype", [("gfx1100", np.float32), ("gfx1030", F16)], ids=str)
@pytest.mark.parametrize("name", in_turn(OPTIONS, 8, "lanes"))
def test_gradient_by_lanes(gfx, dtype, name):
    check_gradient(gfx, OPTION_SIZES, dtype, **OPTIONS[name])


@pytest.mark.parametrize("gfx", ["gfx1100", "gfx1030", "gfx1201"])
@pytest.mark.parametrize("sizes", [(2, 1, 12, 4, 2, 8, 8), (1, 2, 16, 2, 1, 4, 4)], ids=str)
def test_lanes_without_features_tell_others_their_part(gfx, sizes):
    """Fewer features than lanes: those that store nothing multiply all the same."""
    check(gfx, sizes, np.float32)
    check_gradient(gfx, sizes, np.float32)


#: Where registers do not hold the rows of all features: targets, dtypes and sizes.
WIDE = [
    ("gfx1100", F16, (1, 33, 40, 2, 1, 128, 128)),
    ("gfx942", np.float32, (1, 20, 40, 1, 1, 128, 100)),
    ("gfx1100", np.float32, (1, 20, 40, 1, 1, 256, 100)),
    ("gfx908", F16, (1, 20, 40, 2, 1, 128, 256)),
    ("gfx942", BF16, (1, 20, 70, 1, 1, 256, 200)),
    ("gfx1201", F16, (1, 20, 40, 1, 1, 40, 256)),
]  # fmt: skip


@pytest.mark.parametrize("gfx,dtype,sizes", in_turn(WIDE, 2), ids=str)
def test_many_features(gfx, dtype, sizes):
    """They are summed over a part at a time, and results are made in parts."""
    check(gfx, sizes, dtype, is_causal=True)
    bias = np.random.default_rng(2).normal(size=(1, 1, *sizes[1:3])).astype(np.float32)
    check_gradient(gfx, sizes, dtype, is_causal=True, bias=bias, bias_gradient=True)


@pytest.mark.parametrize("gfx", EMULATED)
def test_parts_of_results_whose_programs_share_keys(gfx, monkeypatch):
    def split(self, problem, target):
        plans = [x for x in block_plans(problem, target) if x.cut.parts == 2]
        return dataclasses.replace(plans[0], splits=3)

    monkeypatch.setattr(Family, "find", split)
    check(gfx, (2, 3, 150, 2, 1, 256, 256), key_value_lengths=np.array([0, 99], np.int32))


def test_great_logits():
    """The greatest logit so far changes from block to block."""
    sizes = (1, 33, 300, 1, 1, 32, 32)
    check("gfx942", sizes, scale=20.0)
    check("gfx1100", sizes, scale=-3.0)


def test_nan_stays_with_its_queries():
    """Values that are not taken into account may be anything, if their weight is zero."""
    arrays = operands((1, 40, 70, 1, 1, 32, 32), F16)[:3]
    arrays[0][0, 7] = np.nan
    params = parameters((1, 40, 70, 1, 1, 32, 32), {})[1]
    out, *_ = GpuRunner(attention_p, arrays, params, "gfx942")(*arrays)
    rows = np.isnan(out.astype(np.float32)).any((0, 2, 3))
    np.testing.assert_array_equal(np.flatnonzero(rows), [7])


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("which,bad", [(0, np.nan), (1, -np.inf), (2, np.nan)])
def test_what_is_not_finite_is_where_the_definition_has_it(gfx, which, bad):
    sizes = (1, 20, 40, 2, 1, 32, 32)
    *arrays, ct = operands(sizes, F16)
    arrays[which][0, 3, 0, 5] = bad
    params = parameters(sizes, {"is_causal": True, "scale": 1.0})[1]
    found = GpuRunner(attention_p, arrays, params, gfx)(*arrays)
    want = composed_attention(*arrays, **params)
    delta = np.swapaxes((found[0].astype(np.float32) * ct).sum(-1), 1, 2)
    given, params = [*arrays, *found[1:], delta, ct], {**params, "bias_gradient": False}
    slopes = GpuRunner(attention_gradient_p, given, params, gfx)(*given)
    definition = composed_gradient(*given, **params)
    for got, exact in zip([*found, *slopes], [*want, *definition], strict=True):
        got, exact = (np.asarray(x, np.float64) for x in (got, exact))
        finite = np.isfinite(exact)
        np.testing.assert_array_equal(np.isfinite(got), finite)
        if finite.any():
            assert_close(got[finite], exact[finite], 4e-3)


def context(gfx, sizes, dtype=F16, **options):
    extra, params = parameters(sizes, options)
    shapes = [
        (sizes[0], *more)
        for more in (
            (sizes[1], sizes[3], sizes[5]),
            (sizes[2], sizes[4], sizes[5]),
            (sizes[2], sizes[4], sizes[6]),
        )
    ]
    avals = [ShapedArray(s, np.dtype(dtype)) for s in shapes]
    avals += [ShapedArray(x.shape, x.dtype) for x in extra.values()]
    invars = list(map(Var, avals))
    outs = attention_p.abstract_eval(*(v.aval for v in invars), **params)
    eqn = JaxprEqn(attention_p, invars, list(map(Var, outs)), params)
    return ShapedContext(eqn, targets.get(gfx))


def test_plans():
    found = plan_attention(context("gfx942", (4, 256, 256, 4, 4, 64, 64), is_causal=True))
    assert str(found) == (
        "attention of 4×4 of 256×256×64 in f16 causal, blocks of 128 rows and 128 columns by "
        "mfma.f32.32x32x8f16, 4 waves of 1"
    )
    assert "by fma.rows4.f32" in str(plan_attention(context("gfx1030", SIZES[0])))
    assert plan_attention(context("gfx942", SIZES[0], np.float64)) is None


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100", "gfx1201", "sm_90a"])
@pytest.mark.parametrize("options", [{}, {"is_causal": True, "window": (99, 9)}], ids=str)
def test_only_right_operands_pass_through_lds(gfx, options):
    """All other tiles are held as what meets them wants them."""
    ctx = context(gfx, (1, 256, 256, 1, 1, 64, 64), **options)
    (call,) = plan_attention(ctx).emit(ctx)
    written = kernel_ir(call.kernel, targets.get(gfx), debug=False)
    found = set(re.findall(r"^@([\w.]+) = .*addrspace\(3\)", written, re.M))
    assert found == ({"tiles.0", "tiles.1"} if gfx == "sm_90a" else {"own.0", "own.1"})


@pytest.mark.parametrize("gfx", ["gfx942", "gfx1100", "gfx1201", "sm_90"])
def test_operands_move_in_whole_cells(gfx):
    """Keys too, although the product takes them transposed; NVIDIA's lanes transpose values."""
    ctx = context(gfx, (1, 256, 256, 1, 1, 64, 64))
    (call,) = plan_attention(ctx).emit(ctx)
    written = kernel_ir(call.kernel, targets.get(gfx), debug=False)
    loads = re.findall(r"load ([^,]*), ptr addrspace\((\d)\)", written)
    lanes = [int(re.match(r"<(\d+) x half>", kind)[1]) for kind, space in loads if space == "1"]
    assert lanes and all(n % 8 == 0 for n in lanes)
    cells = sum(space == "3" for _, space in loads)
    transposed = len(re.findall(r"call .*ldmatrix.*trans", written))
    assert transposed == (cells if gfx == "sm_90" else 0)


@pytest.mark.parametrize("features", [40, 64, 128])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_hopper_copies_keys_and_values(features, dtype):
    """They are multiplied from LDS, where blocks to come lie beside those in use."""
    ctx = context("sm_90a", (4, 512, 512, 16, 16, features, features), dtype, is_causal=True)
    (call,) = plan_attention(ctx).emit(ctx)
    text = _compiled(call.kernel, targets.get("sm_90a")).code.decode()
    assert "wgmma.mma_async" in text and "mma.sync" not in text
    assert "st.shared" not in text and "ld.shared" not in text
    assert (
        text.count("cp.async.wait_group \t0") == 4
    )  # in rounds and behind loops, with masks or not


@pytest.mark.parametrize("options", [{}, {"key_value_lengths": np.full(2, 300, np.int32)}])
def test_hopper_multiplies_values_whose_number_is_not_known(options):
    """What lies behind the last is left out, in registers: those values are no copies."""
    ctx = context("sm_90a", (2, 64, 512, 8, 2, 64, 64), **options)
    (call,) = plan_attention(ctx).emit(ctx)
    text = _compiled(call.kernel, targets.get("sm_90a")).code.decode()
    assert "wgmma.mma_async" in text and "cp.async" in text
    assert ("st.shared.v4" in text) == bool(options)


@pytest.mark.parametrize("gfx", ["gfx908", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_no_plan_spills(gfx):
    """All of a problem's plans are kernels that keep to registers."""
    problem = Attention.of(context(gfx, (1, 512, 512, 1, 1, 64, 64)).eqn)
    plans = block_plans(problem, targets.get(gfx))
    assert ATTENTION.find(problem, targets.get(gfx)) in plans
    for plan in in_turn(plans, 2):
        assert _scratch(gfx, plan, (1, 512, 512, 1, 1, 64, 64)) == 0, plan


@pytest.mark.parametrize("gfx", ["gfx908", "gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("length", [256, 200])
def test_no_causal_plan_spills(gfx, length):
    sizes = (4, length, length, 4, 4, 64, 64)
    plan = plan_attention(context(gfx, sizes, is_causal=True))
    assert _scratch(gfx, plan, sizes, is_causal=True) == 0, plan


def _scratch(gfx, plan, sizes, **options):
    (call,) = plan.emit(context(gfx, sizes, **options))
    return _compiled(call.kernel, targets.get(gfx)).scratch_bytes


def _compiled(kernel, target):
    return compile_kernel(kernel, target, index_bits=32)


@pytest.mark.parametrize("gfx", EMULATED)
def test_what_lies_behind_the_length_of_keys(gfx):
    """It may be anything: neither results nor gradients see it."""
    sizes = (1, 40, 70, 1, 1, 32, 32)
    options = {"key_value_lengths": np.array([50], np.int32)}
    arrays = operands(sizes, F16)[:3]
    want, _, slopes = expected(arrays, options, ct=arrays[0])
    for x in arrays[1:]:
        x[0, 55:] = np.nan
    extra, params = parameters(sizes, options)
    given = [*arrays, *extra.values()]
    out, greatest, total = GpuRunner(attention_p, given, params, gfx)(*given)
    assert_close(out, want, TOLERANCE[F16])
    delta = np.swapaxes((want * arrays[0]).sum(-1), 1, 2).astype(np.float32)
    given += [greatest, total, delta, arrays[0]]
    params = {**params, "bias_gradient": False}
    found = GpuRunner(attention_gradient_p, given, params, gfx)(*given)
    for got, gradient in zip(found, slopes, strict=True):
        assert_close(got, gradient, TOLERANCE[F16])


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BF16], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_bias_of_least_numbers(gfx, dtype, is_causal):
    """Rows of nothing else weigh all keys alike, but less than what a mask leaves out."""
    sizes = (1, 37, 70, 1, 1, 32, 32)
    least = float(ml_dtypes.finfo(dtype).min)
    bias = np.where(np.random.default_rng(3).random((1, 1, 37, 70)) < 0.5, least, 0)
    bias[:, :, :3], bias[:, :, 3:6] = least, least / 2
    options = {"bias": bias.astype(dtype), "is_causal": is_causal}
    arrays = operands(sizes, F16)[:3]
    want, _, slopes = expected(arrays, options, ct=arrays[0])
    extra, params = parameters(sizes, options)
    given = [*arrays, *extra.values()]
    out, greatest, total = GpuRunner(attention_p, given, params, gfx)(*given)
    assert_close(out, want, TOLERANCE[F16])
    delta = np.swapaxes((want * arrays[0]).sum(-1), 1, 2).astype(np.float32)
    given += [greatest, total, delta, arrays[0]]
    found = GpuRunner(attention_gradient_p, given, {**params, "bias_gradient": False}, gfx)(*given)
    for got, gradient in zip(found, slopes, strict=False):
        assert_close(got, gradient, TOLERANCE[F16])


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize(
    "options",
    [
        {}, {"key_value_lengths": np.array([0, 333], np.int32)}, {"window": (300, -100)},
        {"query_lengths": np.array([0, 2], np.int32), "is_causal": True},
    ],
)  # fmt: skip
def test_programs_share_keys(gfx, options, monkeypatch):
    """As in decoding; some have none of them."""
    sizes = (2, 3, 400, 2, 1, 32, 32)
    shared = []

    def split(self, problem, target):
        plans = [x for x in block_plans(problem, target) if x.cut.columns == 32]
        shared.append(dataclasses.replace(plans[0], splits=5))
        return shared[-1]

    monkeypatch.setattr(Family, "find", split)
    check(gfx, sizes, **options)
    assert "keys split 5 ways" in str(shared[-1])


@pytest.mark.parametrize("gfx", EMULATED)
@pytest.mark.parametrize("name", ["none", *in_turn(list(OPTIONS)[:-1], 4), "everything"])
def test_heads_of_a_group_share_keys(gfx, name):
    """Of one query, as in decoding: they are rows of one program."""
    batch, keys, heads, key_heads = 2, 150, 6, 2
    options = dict(OPTIONS.get(name, {}))
    for which in {"bias", "mask"} & set(options):
        shape = (batch, heads, 1, keys)
        shape = [n if m > 1 else 1 for n, m in zip(shape, options[which].shape)]
        drawn = np.random.default_rng(3).normal(size=shape)
        options[which] = drawn.astype(F16) if which == "bias" else drawn < 0.5
    sizes = (batch, 1, keys, heads, key_heads, 32, 20)
    assert "3 heads together" in str(plan_attention(context(gfx, sizes, **options)))
    check(gfx, sizes, **options)


def test_few_queries_of_many_keys_are_split():
    found = plan_attention(context("gfx942", (1, 1, 8192, 8, 8, 64, 64)))
    assert found.splits > 8
    assert plan_attention(context("gfx942", (64, 1, 8192, 16, 16, 64, 64))).splits == 1
