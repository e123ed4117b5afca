"""The math functions as GPU code are as exact as on the CPU."""

import numpy as np
import pytest

from tests.support import math_harness as harness, tile_runner
from tests.support.tile_runner import elementwise

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
ONE_WAVE = [b for b in tile_runner.GPUS if b.waves == 1]


@pytest.fixture(params=ONE_WAVE, ids=str, autouse=True)
def gpu_backend(request):
    with tile_runner.using(request.param):
        yield


def evaluated(name, xs):
    return elementwise(lambda k, *x: k.op(name, *x), *xs, out=xs[0].dtype, lanes=128)


@pytest.mark.parametrize("name", harness.REFERENCES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors(name, dtype):
    xs = harness.sample(name, dtype, 100)
    got = evaluated(name, xs)
    errors = harness.ulp_errors_mpmath(got, xs, harness.REFERENCES[name][1])
    if name == "erfc":  # mpmath gives up on the largest
        errors[np.abs(xs[0]) > harness.LARGEST[name]] = 0
    worst = np.argmax(errors)
    assert errors[worst] <= (2 if dtype is np.float32 else 4), [x[worst] for x in xs]


@pytest.mark.parametrize("name,arity", [("div", 2), ("sqrt", 1), ("rem", 2), ("fma", 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_correctly_rounded(name, arity, dtype):
    """Subnormal numbers, infinities and NaN included: the bits of the CPU."""
    xs = [harness.random_bits(2000, dtype, seed) for seed in range(arity)]
    if name == "fma":  # of magnitudes that meet
        xs = [np.random.default_rng(i).standard_normal(2000).astype(dtype) for i in range(3)]
    got = evaluated(name, xs)
    with tile_runner.using(tile_runner.CPU):
        want = evaluated(name, xs)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_exponentials_of_all_magnitudes(name):
    """What is taken out as a power of two is bounded; infinite and missing numbers come through."""
    rng, ends = np.random.default_rng(0), (-151.0, -80.0, 80.0, 130.0)
    edges = [rng.uniform(a, b, 1000) for a, b in zip(ends[::2], ends[1::2])]
    given = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 3e38, -3e38, 1e-45, 128.0, -149.0]
    x = np.concatenate([harness.random_bits(2000, np.float32, 0), *edges, given]).astype(np.float32)
    got, want = evaluated(name, [x]), getattr(np, name)(x.astype(np.float64))
    with np.errstate(over="ignore"):
        infinite = np.isinf(want.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
    np.testing.assert_array_equal(np.isinf(got), infinite)
    inside = np.isfinite(want) & ~infinite
    spacing = np.spacing(want[inside].astype(np.float32)).astype(np.float64)
    assert np.max(np.abs(got[inside] - want[inside]) / spacing) <= 1.3


def test_reciprocal_square_roots_of_all_magnitudes():
    given = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1e-45, 1e-40, 3e38]
    given += list(4.0 ** np.arange(-60, 60))
    x = np.concatenate([harness.random_bits(4000, np.float32, 0), given]).astype(np.float32)
    got, want = evaluated("rsqrt", [x]), 1 / np.sqrt(x.astype(np.float64))
    np.testing.assert_array_equal(got[-120:], want[-120:])
    inside = np.isfinite(want)
    np.testing.assert_array_equal(got[~inside], want[~inside])
    error = np.abs(got[inside] - want[inside]) / np.spacing(want[inside].astype(np.float32))
    assert error.max() <= 1.5
