"""Functions for results of 16 bits, which GPUs compute from estimates: every argument there is."""

import functools
import itertools
import types

import numpy as np
import pytest

from amdjax import tile
from amdjax.codegen.gpu.isa import Amdgcn, Nvptx
from amdjax.codegen.math import MATH, NARROW
from amdjax.codegen.math.narrow import div
from tests.support import math_harness as harness, narrow_oracle as oracle, tile_runner
from tests.support.rough_estimates import estimate, roughly
from tests.support.tile_runner import elementwise
from tests.support.turns import in_turn

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

ELEMS = {"f16": "half", "bf16": "bfloat"}
GPUS = [b for b in tile_runner.GPUS if b.waves == 1]


# With estimates as bad as they may be


@functools.cache
def modeled(name, dtype, elem, ulps):
    def emit(f, x):
        roughly(f.module, ulps)
        return NARROW[name](f, x, dtype)

    return harness.Kernel(emit, [elem], elem, 8)


@pytest.mark.parametrize("ulps", [-3, 0, 3])
@pytest.mark.parametrize("dtype", oracle.DTYPES)
@pytest.mark.parametrize("name", NARROW)
def test_every_argument_with_rough_estimates(name, dtype, ulps):
    kernel = modeled(name, dtype, ELEMS[dtype], ulps)
    oracle.check(name, dtype, kernel(oracle.arguments(dtype), dtype=oracle.DTYPES[dtype]))


@pytest.mark.parametrize("ulps", [-3, 3])
@pytest.mark.parametrize("dtype", oracle.DTYPES)
@pytest.mark.parametrize("name", NARROW)
def test_floats_between_them(name, dtype, ulps):
    """In a chain of operations arguments are floats, and a result may be used before rounding."""
    low, high = harness.REFERENCES[name][2:]
    rng = np.random.default_rng(0)
    near = (name == "log") + rng.normal(0, 0.05, 30_000)
    x = np.concatenate([rng.uniform(low, high, 30_000), near, 10.0 ** rng.uniform(-37, 37, 30_000)])
    x = x.astype(np.float32)
    got = modeled(name, dtype, "float", ulps)(x, dtype=np.float32).astype(np.float64)
    want = oracle.exact(name, x.astype(np.float64))
    # Of half's range, where subnormal floats are zeros.
    inside = np.abs(want) < (65504 if dtype == "f16" else 3.3e38)
    least = 2.0**-126 if dtype == "f16" else 2.0**-148
    off = np.abs(got - want) - least > oracle.RELATIVE * np.abs(want)
    assert not (off & inside).any(), x[off & inside][:5]


@pytest.mark.parametrize("ulps", [-3, 3])
@pytest.mark.parametrize("dtype", oracle.DTYPES)
def test_quotients_that_are_rounded_at_once(dtype, ulps):
    """Of all magnitudes and signs, zeros, infinities and NaN; the sign of zero is kept."""

    def emit(f, x, y):
        roughly(f.module, ulps)
        return div(f, x, y, dtype)

    rng = np.random.default_rng(0)
    special = [
        0,
        1,
        2.0**-149,
        2.0**-126,
        2.0**-96,
        2.0**96,
        2.0**127,
        3.4028235e38,
        np.inf,
        np.nan,
    ]
    special = np.float32([*special, *np.negative(special)])
    x, y = (np.ldexp(rng.uniform(-2, 2, 50_000), rng.integers(-149, 127, 50_000)) for _ in "xy")
    x, y = (np.float32([*v, *t.ravel()]) for v, t in zip((x, y), np.meshgrid(special, special)))
    got = harness.Kernel(emit, ["float"] * 2, "float", 8)(x, y, dtype=np.float32)
    want = x.astype(np.float64) / y
    number = ~np.isnan(want)
    np.testing.assert_array_equal(~np.isnan(got), number)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])
    inside = np.abs(want) < 3.39e38  # others are infinite in bfloat16
    off = np.abs(got - want) - 2.0**-148 > oracle.RELATIVE * np.abs(want)
    assert not (off & inside).any(), (x[off & inside][:5], y[off & inside][:5])
    assert np.isinf(got[np.abs(want) > 3.5e38]).all()


@pytest.mark.parametrize("ulps", [-3, 3])
@pytest.mark.parametrize("name", ["erfc", "pow", "tan"])
def test_float_functions_make_up_for_rough_quotients(name, ulps):
    def emit(f, *xs):
        f.module.estimates = {"rcp": estimate(f.module, "rcp", ulps)}
        return MATH[name](f, *xs)

    xs = harness.sample(name, np.float32, 100_000)
    got = harness.Kernel(emit, ["float"] * len(xs), "float", 8)(*xs, dtype=np.float32)
    errors = harness.ulp_errors(got, oracle.exact(name, *(x.astype(np.float64) for x in xs)))
    assert errors.max() <= (1.8 if name == "erfc" else 1.5), [x[errors.argmax()] for x in xs]


# As code of GPUs


@pytest.mark.parametrize("gpu", GPUS, ids=str)
@pytest.mark.parametrize("dtype", oracle.DTYPES)
def test_rounding_on_gpus(dtype, gpu):
    """Floats that lie on, beside and between those of bfloat16, subnormal numbers included."""
    top = np.arange(65536, dtype=np.uint32) << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = (top[:, None] | low).ravel().view(np.float32)
    with tile_runner.using(gpu):
        got = elementwise(lambda k, x: k.convert(x, dtype), x, out=oracle.DTYPES[dtype], lanes=1024)
    np.testing.assert_array_equal(
        got.astype(np.float32), x.astype(oracle.DTYPES[dtype]).astype(np.float32)
    )


#: What ends in a product, so that a zero has the sign of its factors'.
PRODUCTS = {
    "product": lambda k, x, y: x * y,
    "negated": lambda k, x, y: -(x * y),
    "of a sum": lambda k, x, y: x * (y + y),
    "constant": lambda k, x, y: x * k.const("f32", 1.7, x.shape),
    "quotient": lambda k, x, y: x / y,
    "by a number": lambda k, x, y: x / k.const("f32", -8, x.shape),
    "chosen": lambda k, x, y: k.select(y < k.const("f32", 0, y.shape), x * y, y * x * x),
}


@pytest.mark.parametrize(
    ("gpu", "name", "dtype"), in_turn(itertools.product(GPUS, PRODUCTS, oracle.DTYPES), 3)
)
def test_products_that_round_to_zero_have_their_sign(gpu, name, dtype):
    """As numbers do that are too small for 16 bits."""
    x, y = np.meshgrid(np.float32([0, 1e-30, 3, -0.0, -1e-30, -3] * 2), np.float32([1, -2, 5, -7]))
    x, y = x.ravel(), y.ravel()
    with tile_runner.using(gpu):
        op = lambda k, x, y: k.convert(PRODUCTS[name](k, x, y), dtype)
        got = elementwise(op, x, y, out=oracle.DTYPES[dtype])
    numpy = types.SimpleNamespace(const=lambda _, n, shape: np.float32(n), select=np.where)
    want = PRODUCTS[name](numpy, x, y).astype(oracle.DTYPES[dtype])
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=2.0**-7)


def test_the_tile_language_names_these_functions():
    assert set(NARROW) == tile.NARROW


@pytest.mark.parametrize("isa", [Amdgcn, Nvptx])
def test_targets_have_the_estimates(isa):
    assert set(isa.estimates) - {"median"} == {"exp2", "log2", "rcp", "rsqrt"}
