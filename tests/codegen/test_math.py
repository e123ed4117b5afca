import re
import warnings

import llvmlite.binding as ll
import ml_dtypes
import mpmath as mp
import numpy as np
import pytest

from amdjax.codegen.llvm import Type
from amdjax.codegen.math import CONVERSIONS, MATH, conversions as conv
from tests.support import math_harness as harness
from tests.support.math_harness import REFERENCES, evaluate, random_bits

# Casts of NaN and overflowing values are the point of many of these tests.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DTYPES = [np.float32, np.float64]
inf, nan = np.inf, np.nan
UNARY_EXACT = {
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round_even": np.rint,
    "sign": lambda x: np.copysign(np.sign(x), x), "sqrt": np.sqrt,
}  # fmt: skip
SPECIALS = [
    0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, inf, -inf, nan, 1e-45, -1e-45, 1e-40, 1e-38,
    -1e-38, 3.4e38, -3.4e38, 16777216, 65536, 1 + 2**-23, 1 - 2**-24, 1e10, -7.25, 88.8, -104.5,
]  # fmt: skip


def same_bits(got, want):
    """Equal including the sign of zero; any NaN equals any NaN."""
    with np.errstate(invalid="ignore"):
        return ((got == want) & (np.signbit(got) == np.signbit(want))) | (
            np.isnan(got) & np.isnan(want)
        )


# Accuracy


@pytest.mark.parametrize("name", REFERENCES)
def test_float32_is_within_2_ulp(name):
    error, where = harness.measure_float32(name)
    assert error <= 2.0, where


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REFERENCES)
def test_against_mpmath(name, dtype):
    n = 400 if name in harness.SLOW else 3000
    error, where = harness.measure_mpmath(name, dtype, n)
    assert error <= (2.0 if dtype is np.float32 else 4.0), where


@pytest.mark.parametrize("name", ["exp", "tanh", "logistic", "sin", "pow", "erfc", "lgamma"])
@pytest.mark.parametrize("native", [frozenset(), None])
def test_lanes_do_not_matter(name, native):
    xs = harness.sample(name, np.float32, 5000)
    want = evaluate(name, *xs, native=native)
    for lanes in (0, 1, 3, 64):
        assert same_bits(evaluate(name, *xs, lanes=lanes, native=native), want).all(), lanes
    xs = harness.sample(name, np.float64, 1000)
    want = evaluate(name, *xs, native=native)
    for lanes in (0, 2, 16):
        assert same_bits(evaluate(name, *xs, lanes=lanes, native=native), want).all(), lanes


@pytest.mark.parametrize("name", ["exp", "exp2", "logistic", "cosh"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scaling_without_ldexp_agrees(name, dtype):
    (x,) = harness.sample(name, dtype, 20000)
    plain, native = (evaluate(name, x, native=frozenset(n)) for n in ((), ("ldexp",)))
    assert same_bits(plain, native).all()


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [0, 8])
def test_huge_angles(name, dtype, lanes):
    # The double next to a multiple of pi / 2, neighbors of such multiples, and the largest ones.
    x = [np.finfo(dtype).max, 2.0**100, 1e22, 16367173 * 2.0**72]
    if dtype is np.float64:
        x += [6381956970095103.0 * 2.0**797, 5.0**200, 2.0**1000]
    multiples = np.arange(1, 150) * (np.pi / 2)
    rng = np.random.default_rng(0)
    scattered = 10.0 ** rng.uniform(3, 38, 150)
    x = np.concatenate([x, multiples, -multiples, scattered]).astype(dtype)
    got = evaluate(name, x, lanes=lanes)
    errors = harness.ulp_errors_mpmath(got, [x], REFERENCES[name][1])
    assert errors.max() <= (2.0 if dtype is np.float32 else 4.0), x[errors.argmax()]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_negative_gamma_arguments_have_small_absolute_errors(name, dtype):
    x = np.random.default_rng(0).uniform(-20, 0, 400).astype(dtype)
    reference = {"lgamma": lambda v: mp.log(abs(mp.gamma(v))), "digamma": mp.digamma}[name]
    for v, y in zip(x.astype(float), evaluate(name, x).astype(float)):
        reflected = {
            "lgamma": abs(mp.log(abs(mp.sinpi(v)))) + mp.loggamma(1 - v),
            "digamma": abs(mp.pi * mp.cospi(v) / mp.sinpi(v)) + mp.digamma(1 - v),
        }[name]
        assert abs(y - reference(mp.mpf(v))) <= 3 * np.finfo(dtype).eps * (1 + reflected), v


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "zero"),
    [("lgamma", 1), ("lgamma", 2), ("digamma", 1.4616321449683623), ("log", 1), ("acosh", 1)],
)
def test_next_to_zeros(name, zero, dtype):
    steps = 2.0 ** -np.arange(2, 53)
    x = np.concatenate([zero + steps, zero - steps]).astype(dtype)
    x = x[x >= 1] if name == "acosh" else x
    errors = harness.ulp_errors_mpmath(evaluate(name, x), [x], REFERENCES[name][1])
    assert errors.max() <= 2.0, x[errors.argmax()]


# Special values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [n for n in REFERENCES if n not in harness.BINARY])
def test_special_values(name, dtype):
    x = np.array(SPECIALS, dtype)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = REFERENCES[name][0](x.astype(np.float64)).astype(dtype)
    if name == "digamma":
        want[x == 0] = nan  # as in XLA
    if name == "lgamma":
        want[x == -inf] = inf  # as in C
    if name in ("erf_inv", "bessel_i1e"):
        want = np.where(x == 0, x, want)  # SciPy loses the sign
    got = evaluate(name, x)
    # Elsewhere than in the special results a relative error suffices here.
    with np.errstate(all="ignore"):
        close = np.abs(got - want) <= 16 * np.finfo(dtype).eps * np.abs(want)
        # SciPy's lgamma is not accurate next to its zeros; ours is, as another test shows.
        close |= (np.abs(got - want) < 1e-15) & (name == "lgamma")
        tiny = np.abs(got - want) <= 2 * np.finfo(dtype).smallest_subnormal
    ok = same_bits(got, want) | ((close | tiny) & (np.signbit(got) == np.signbit(want)))
    assert ok.all(), (x[~ok], got[~ok], want[~ok])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "reference"), [("pow", np.power), ("atan2", np.arctan2)])
def test_special_pairs(name, reference, dtype):
    x, y = (a.ravel() for a in np.meshgrid(*[np.array(SPECIALS, dtype)] * 2))
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
        got = evaluate(name, x, y)
        close = np.abs(got - want) <= 8 * np.finfo(dtype).eps * np.abs(want)
        tiny = np.abs(got - want) <= 2 * np.finfo(dtype).smallest_subnormal
    ok = same_bits(got, want) | ((close | tiny) & (np.signbit(got) == np.signbit(want)))
    assert ok.all(), (x[~ok], y[~ok], got[~ok], want[~ok])


@pytest.mark.parametrize("name", MATH)
def test_nan_of_any_payload_stays_nan(name):
    payloads = np.array([0x7F800001, 0x7FBFFFFF, 0x7FFFFFFF, 0xFF812345, 0xFFFFFFFF], np.uint32)
    x = payloads.view(np.float32)
    pairs = name in ("pow", "atan2", "rem", "nextafter")
    assert np.isnan(evaluate(name, x, *([np.full_like(x, 2)] * pairs))).all()


# Exact functions


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY_EXACT)
def test_exact(name, dtype):
    x = np.concatenate(
        [np.array(SPECIALS, dtype), np.arange(-40, 40) / 4, random_bits(20000, dtype)]
    )
    x = x.astype(dtype)
    with np.errstate(all="ignore"):
        assert same_bits(evaluate(name, x), UNARY_EXACT[name](x)).all()


def test_round_away():
    x = np.array(
        [0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997, -0.2, -0.0, 8388609, 1e30, inf], np.float32
    )
    want = np.array([1, 2, 3, -1, -3, 0, -0.0, -0.0, 8388609, 1e30, inf], np.float32)
    assert same_bits(evaluate("round_away", x), want).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "reference"), [("rem", np.fmod), ("nextafter", np.nextafter)])
def test_exact_pairs(name, reference, dtype):
    pairs = np.meshgrid(*[np.array(SPECIALS, dtype)] * 2)
    rng = np.random.default_rng(0)
    near = rng.uniform(-100, 100, (2, 20000)).astype(dtype)
    x, y = (
        np.concatenate([p.ravel(), n, random_bits(50000, dtype, seed)])
        for p, n, seed in zip(pairs, near, (1, 2))
    )
    with np.errstate(all="ignore"):
        want = reference(x, y)
    ok = same_bits(evaluate(name, x, y), want)
    assert ok.all(), (x[~ok], y[~ok])


def test_integer_rem_and_sign():
    x, y = (a.ravel().astype(np.int32) for a in np.meshgrid([-(2**31), -7, 0, 7], [-3, -1, 0, 2]))
    kernel = harness.Kernel(MATH["rem"], ["i32", "i32"], "i32", 4)
    want = np.where(y == 0, x, np.fmod(x.astype(np.int64), np.where(y == 0, 1, y)))
    np.testing.assert_array_equal(kernel(x, y, dtype=np.int32), want)
    kernel = harness.Kernel(MATH["sign"], ["i32"], "i32", 4)
    np.testing.assert_array_equal(kernel(x, dtype=np.int32), np.sign(x))


@pytest.mark.parametrize(("elem", "dtype"), [("half", np.float16), ("bfloat", ml_dtypes.bfloat16)])
def test_half_precisions_are_computed_in_float(elem, dtype):
    x = np.arange(65536, dtype=np.uint16).view(dtype)
    kernel = harness.Kernel(MATH["tanh"], [elem], elem, 16)
    want = evaluate("tanh", x.astype(np.float32)).astype(dtype)
    assert same_bits(kernel(x, dtype=dtype).astype(np.float32), want.astype(np.float32)).all()


@pytest.mark.parametrize(("elem", "dtype"), [("half", np.float16), ("bfloat", ml_dtypes.bfloat16)])
def test_nextafter_of_half_precisions(elem, dtype):
    x = np.arange(65536, dtype=np.uint16).view(dtype)
    kernel = harness.Kernel(MATH["nextafter"], [elem, elem], elem, 16)
    for to in (0, 1, -inf, nan):
        y = np.full_like(x, to)
        got, want = kernel(x, y, dtype=dtype), np.nextafter(x, y)
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


# Conversions

NUMPY = {
    "bool": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "bf16": ml_dtypes.bfloat16, "f4_e2m1fn": ml_dtypes.float4_e2m1fn,
    "i4": np.int8, "u4": np.uint8, "i2": np.int8, "u2": np.uint8,
    **{f"{s}{n}": np.dtype(f"{s}{n // 8}").type for s in "iu" for n in (8, 16, 32, 64)},
    **{k: getattr(ml_dtypes, f"float{k[1:]}") for k in conv.DTYPES if k.startswith(("f8_", "f6_"))},
}  # fmt: skip
NARROW = [k for k in conv.DTYPES if k.startswith(("f8_", "f6_", "f4_"))]
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


def element(dtype):
    return conv.FLOATS.get(dtype) or f"i{8 * np.dtype(NUMPY[dtype]).itemsize}"


def convert(x, source, target, lanes=16):
    kernel = harness.conversion_kernel(source, target, (element(source), element(target)), lanes)
    return kernel(x, dtype=NUMPY[target])


def unsigned(x):
    return x.view(f"u{x.dtype.itemsize}")


def cast(x, dtype):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x.astype(dtype)


def codes(dtype):
    count = {"f4": 16, "f6": 64}.get(dtype[:2], 256)
    return np.arange(count, dtype=np.uint8).view(NUMPY[dtype])


def float32_sample():
    """All values of bfloat16, their neighbors, all of half's ties, and random ones."""
    top = np.arange(65536, dtype=np.uint32) << 16
    ties = np.arange(2**20, dtype=np.uint32) << 12
    rng = np.random.default_rng(0)
    scattered = rng.normal(size=100_000).astype(np.float32) * 10
    bits = np.concatenate([top, top + 1, top - 1, ties, ties + 1, ties - 1])
    return np.concatenate([bits.view(np.float32), scattered, random_bits(300_000, np.float32)])


def round_to_odd(x):
    """Float64 to float32 so that another rounding to fewer bits is the correct one."""
    near = cast(x, np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32)
    odd = np.where(np.abs(back) > np.abs(x), bits - 1, bits) | 1
    return np.where(back == x, bits, odd).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_floats_decode(dtype):
    x = codes(dtype)
    for target in ("f32", "f64"):
        got, want = convert(x, dtype, target), cast(x, NUMPY[target])
        np.testing.assert_array_equal(unsigned(got), unsigned(want))
    for target in ("bf16", "f16"):
        got, want = convert(x, dtype, target), cast(x.astype(np.float32), NUMPY[target])
        assert same_bits(got.astype(np.float32), want.astype(np.float32)).all()


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_floats_encode(dtype):
    x = float32_sample()
    want = cast(x, NUMPY[dtype])
    np.testing.assert_array_equal(unsigned(convert(x, "f32", dtype)), unsigned(want))
    for source in ("f16", "bf16"):
        x = np.arange(65536, dtype=np.uint16).view(NUMPY[source])
        want = cast(cast(x, np.float32), NUMPY[dtype])
        np.testing.assert_array_equal(unsigned(convert(x, source, dtype)), unsigned(want))


@pytest.mark.parametrize("dtype", [*NARROW, "f16"])
def test_doubles_round_once(dtype):
    x = float32_sample()[::7].astype(np.float64)
    x = np.concatenate([x, np.nextafter(x, inf), np.nextafter(x, -inf)])
    x = np.concatenate([x, random_bits(100_000, np.float64)])
    x = x[(np.abs(x) > 1e-44) | (x == 0)] if dtype == "f8_e8m0fnu" else x
    odd = x.astype(np.float32) if dtype == "f8_e8m0fnu" else round_to_odd(x)
    want = cast(odd, NUMPY[dtype])
    got = convert(x, "f64", dtype)
    if dtype == "f8_e8m0fnu":  # rounds ties up, for which sticky bits do not help
        ties = odd.astype(np.float64) != x
        got, want = got[~ties], want[~ties]
    same = unsigned(got) == unsigned(want)
    same |= np.isnan(got.astype(np.float32)) & np.isnan(want.astype(np.float32))
    assert same.all()


def test_bfloat16():
    x = float32_sample()
    want = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(unsigned(convert(x, "f32", "bf16")), unsigned(want))
    x = np.concatenate([x.astype(np.float64), random_bits(100_000, np.float64)])
    want = cast(x, ml_dtypes.bfloat16)
    np.testing.assert_array_equal(unsigned(convert(x, "f64", "bf16")), unsigned(want))
    x = np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16)
    want = x.astype(np.float32)
    np.testing.assert_array_equal(unsigned(convert(x, "bf16", "f32")), unsigned(want))


def test_half():
    x = float32_sample()
    assert same_bits(convert(x, "f32", "f16"), cast(x, np.float16)).all()
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    assert same_bits(convert(x, "f16", "f32"), x.astype(np.float32)).all()
    assert same_bits(convert(x, "f16", "f64"), x.astype(np.float64)).all()


def saturate(x, dtype):
    info = np.iinfo(dtype)
    y = np.trunc(np.where(np.isnan(x), 0, x).astype(np.float64))
    out = np.zeros(x.shape, dtype)
    inside = (y > info.min) & (y < float(info.max))
    out[inside] = y[inside].astype(dtype)
    out[y >= float(info.max)] = info.max
    out[y <= info.min] = info.min
    return out


@pytest.mark.parametrize("dtype", INTEGERS)
def test_floats_saturate_to_integers(dtype):
    rng = np.random.default_rng(0)
    edges = [2.0**31, -(2.0**31), 2.0**32, 2.0**63, 2.0**64, -(2.0**63), inf, -inf, nan, 127.9, 128]
    wide = [rng.uniform(-a, 2 * a, 5000) for a in (300, 1e5, 3e9, 1e19)]
    x = np.concatenate([edges, [-128.9, 255.9, -0.9, -1], *wide])
    for source in ("f32", "f64"):
        y = x.astype(NUMPY[source])
        np.testing.assert_array_equal(convert(y, source, dtype), saturate(y, NUMPY[dtype]))
    y = cast(x, np.float16)
    np.testing.assert_array_equal(convert(y, "f16", dtype), saturate(y, NUMPY[dtype]))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_to_others(dtype):
    info = np.iinfo(NUMPY[dtype])
    rng = np.random.default_rng(0)
    x = rng.integers(info.min, info.max, 5000, dtype=NUMPY[dtype], endpoint=True)
    x = np.concatenate([x, np.array([info.min, info.max, 0, 1, 7], NUMPY[dtype])])
    for target in ("f32", "f64", "f16", "bool"):
        np.testing.assert_array_equal(convert(x, dtype, target), cast(x, NUMPY[target]))
    want = x.astype(np.float32).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(convert(x, dtype, "bf16"), want)
    for target in INTEGERS:
        if target != dtype:
            np.testing.assert_array_equal(convert(x, dtype, target), x.astype(NUMPY[target]))
    low = x.astype(np.int64) & 15
    np.testing.assert_array_equal(convert(x, dtype, "u4"), low)
    np.testing.assert_array_equal(convert(x, dtype, "i4"), np.where(low > 7, low - 16, low))


def test_booleans():
    x = np.array([True, False] * 8)
    for target in ("f32", "f64", "f16", "bf16", "i8", "u64", "f8_e5m2"):
        want = x.astype(np.float32).astype(NUMPY[target])
        np.testing.assert_array_equal(convert(x, "bool", target), want)
    x = np.array([0.0, -0.0, nan, 1e-45, inf] * 4, np.float32)
    np.testing.assert_array_equal(convert(x, "f32", "bool"), x != 0)


# Code

GLOBAL = Type("ptr addrspace(1)")
TARGETS = {
    "haswell": ("x86_64-unknown-linux-gnu", "haswell", {}, 8),
    "aarch64": ("aarch64-unknown-linux-gnu", "generic", {}, 4),
    "sapphirerapids": ("x86_64-unknown-linux-gnu", "sapphirerapids",
                       {"native": frozenset({"ldexp"})}, 16),
    "gfx942": ("amdgcn-amd-amdhsa", "gfx942", {"convention": "amdgpu_kernel", "pointer": GLOBAL,
                                               "native": frozenset({"ldexp", "subnormal"})}, 0),
    "sm_90": ("nvptx64-nvidia-cuda", "sm_90", {"convention": "ptx_kernel", "pointer": GLOBAL}, 0),
}  # fmt: skip
CALL = re.compile(r"^\s*(callq?|bl|s_swappc_b64|call\.uni)\b.*", re.MULTILINE)


def assembly(target, emit, ins, out):
    ll.initialize_all_targets()
    ll.initialize_all_asmprinters()
    triple, cpu, options, lanes = TARGETS[target]
    machine = ll.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=2)
    ir = harness.build(emit, ins, out, lanes, triple=triple, **options)
    return machine.emit_assembly(harness.optimize(ir, machine))


@pytest.mark.parametrize("target", TARGETS)
def test_no_calls_in_machine_code(target):
    for name, fn in MATH.items():
        for elem in ("float", "double"):
            arity = 2 if name in ("pow", "atan2", "rem", "nextafter") else 1
            assert not CALL.search(assembly(target, fn, [elem] * arity, elem)), (name, elem)
    for source, to in [("f32", "bf16"), ("f64", "f16"), ("f32", "i64"), ("u64", "f32"),
                       ("f64", "u64"), ("f8_e4m3fn", "f32"), ("f64", "f8_e5m2")]:  # fmt: skip
        emit = CONVERSIONS[source, to]
        assert not CALL.search(assembly(target, emit, [element(source)], element(to))), (source, to)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "logistic", "erf"])
def test_inner_loops_stay_in_vector_registers(name):
    kernel = harness.math_kernel(name, "float", 1, 64, None, ())
    if "zmm" not in kernel.assembly:
        pytest.skip("the host has no AVX-512")
    assert not CALL.search(kernel.assembly)
    scalar = re.findall(r"^\s*v(?!broadcast)\w+ss\s", kernel.assembly, re.MULTILINE)
    assert not scalar


@pytest.mark.parametrize("name", ["exp", "exp2", "logistic"])
@pytest.mark.parametrize("elem", ["float", "double"])
def test_what_becomes_zero_is_not_scaled(name, elem):
    """Processors of Intel take a hundred cycles for a result too small, not for a masked one."""
    text = assembly("sapphirerapids", MATH[name], [elem], elem)
    scaled = re.findall(r"^\s*vscalefp.*", text, re.MULTILINE)
    assert scaled and all("{z}" in line for line in scaled), scaled
