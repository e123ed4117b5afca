"""Functions for results of 16 bits, which GPUs compute from estimates: every argument there is."""

import functools

import math_harness as harness
import ml_dtypes
import numpy as np
import pytest
import tile_runner
from tile_runner import elementwise

from amdjax.codegen import llvm, tile
from amdjax.codegen.gpu.isa import Amdgcn, Nvptx
from amdjax.codegen.llvm import F32, F64, I32
from amdjax.codegen.math import MATH, NARROW

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
ELEMS = {"f16": "half", "bf16": "bfloat"}
GPUS = [b for b in tile_runner.GPUS if b.waves == 1]
#: What rounding to 16 bits leaves: half an ulp, and what the relative error of a float adds.
RELATIVE = 2.0**-16.5
BOUND = {"f16": 0.5 + RELATIVE * 2**11, "bf16": 0.5 + RELATIVE * 2**8}


def arguments(dtype):
    """All of them: zeros, subnormal numbers, infinities and NaN included."""
    return np.arange(65536, dtype=np.uint16).view(DTYPES[dtype])


@functools.cache
def references(name, dtype):
    return exact(name, arguments(dtype).astype(np.float64))


def exact(name, x):
    with np.errstate(all="ignore"):
        return harness.REFERENCES[name][0](x)


def check(name, dtype, got):
    x, want = arguments(dtype), references(name, dtype)
    info = ml_dtypes.finfo(DTYPES[dtype])
    largest, least = float(info.max), int(info.minexp)
    got = got.astype(np.float64)
    with np.errstate(all="ignore"):
        exponent = np.clip(np.floor(np.log2(np.abs(want))), least, None)
        ulp = np.exp2(np.where(want == 0, least, exponent) - info.nmant)
        error = np.abs(got - want) / ulp
        beyond = np.isinf(got) & (np.abs(want) > largest * (1 + 0.49 * float(info.eps)))
    same_sign = (np.signbit(got) == np.signbit(want)) | np.isnan(want)
    good = np.where(np.isfinite(want), (error <= BOUND[dtype]) | beyond, got == want)
    good = (good & same_sign) | (np.isnan(got) & np.isnan(want))
    assert good.all(), [(x[i], got[i], want[i]) for i in np.flatnonzero(~good)[:5]]


# With estimates as bad as they may be


def estimate(module, name, ulps):
    """A function as GPUs estimate it, but for some ulp: subnormal numbers are zeros."""
    f = module.function(f"estimate.{name}", [("x", F32)], F32, linkage="internal")
    x = flushed(f, f.args[0])
    wide = f.cast("fpext", x, "double")
    if name == "rcp":
        y = f.fdiv(llvm.const(F64, 1.0), wide)
    else:
        y = MATH[name](f, wide)
    if name == "log2":  # an absolute error too
        y = f.add(y, llvm.const(F64, ulps / 3 * 2.0**-22))
    y = f.cast("fptrunc", y, "float")
    moved = f.bitcast(f.add(f.bitcast(y, I32), llvm.const(I32, ulps)), F32)
    magnitude = f.intrinsic("fabs", F32, y)
    ordinary = f.and_(
        f.fcmp("olt", magnitude, llvm.const(F32, float("inf"))),
        f.fcmp("ogt", magnitude, llvm.const(F32, 2.0**-125)),
    )
    f.ret(flushed(f, f.select(ordinary, moved, y)))
    return f.name


def flushed(f, x):
    small = f.fcmp("olt", f.intrinsic("fabs", F32, x), llvm.const(F32, 2.0**-126))
    return f.select(small, f.intrinsic("copysign", F32, llvm.const(F32, 0.0), x), x)


@functools.cache
def modelled(name, dtype, elem, ulps):
    def emit(f, x):
        names = ("exp2", "log2", "rcp", "rsqrt")
        f.module.estimates = {n: estimate(f.module, n, ulps) for n in names}
        return NARROW[name](f, x, dtype)

    return harness.Kernel(emit, [elem], elem, 8)


@pytest.mark.parametrize("ulps", [-3, 0, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NARROW)
def test_every_argument_with_rough_estimates(name, dtype, ulps):
    kernel = modelled(name, dtype, ELEMS[dtype], ulps)
    check(name, dtype, kernel(arguments(dtype), dtype=DTYPES[dtype]))


@pytest.mark.parametrize("ulps", [-3, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NARROW)
def test_floats_between_them(name, dtype, ulps):
    """In a chain of operations arguments are floats, and a result may be used before rounding."""
    low, high = harness.REFERENCES[name][2:]
    rng = np.random.default_rng(0)
    near = (name == "log") + rng.normal(0, 0.05, 30_000)
    x = np.concatenate([rng.uniform(low, high, 30_000), near, 10.0 ** rng.uniform(-37, 37, 30_000)])
    x = x.astype(np.float32)
    got = modelled(name, dtype, "float", ulps)(x, dtype=np.float32).astype(np.float64)
    want = exact(name, x.astype(np.float64))
    # Of half's range, where subnormal floats are zeros.
    inside = np.abs(want) < (65504 if dtype == "f16" else 3.3e38)
    least = 2.0**-126 if dtype == "f16" else 2.0**-148
    off = np.abs(got - want) - least > RELATIVE * np.abs(want)
    assert not (off & inside).any(), x[off & inside][:5]


# As code of GPUs


@pytest.mark.parametrize("gpu", GPUS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NARROW)
def test_every_argument_on_gpus(name, dtype, gpu):
    def write(k, x):
        return k.convert(k.op(name, k.convert(x, "f32"), rounded=dtype), dtype)

    with tile_runner.using(gpu):
        got = elementwise(write, arguments(dtype), out=DTYPES[dtype], lanes=1024)
    check(name, dtype, got)


@pytest.mark.parametrize("gpu", GPUS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_on_gpus(dtype, gpu):
    """Floats that lie on, beside and between those of bfloat16, subnormal numbers included."""
    top = np.arange(65536, dtype=np.uint32) << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = (top[:, None] | low).ravel().view(np.float32)
    with tile_runner.using(gpu):
        got = elementwise(lambda k, x: k.convert(x, dtype), x, out=DTYPES[dtype], lanes=1024)
    np.testing.assert_array_equal(
        got.astype(np.float32), x.astype(DTYPES[dtype]).astype(np.float32)
    )


def test_the_tile_language_names_these_functions():
    assert set(NARROW) == tile.NARROW


@pytest.mark.parametrize("isa", [Amdgcn, Nvptx])
def test_targets_have_the_estimates(isa):
    assert set(isa.estimates) == {"exp2", "log2", "rcp", "rsqrt"}
