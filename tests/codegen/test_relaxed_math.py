"""Functions of `fast_math`: within their bounds, right at zeros, infinities and NaN."""

import functools

import numpy as np
import pytest

from amdjax import tile
from amdjax.codegen.math import RELAXED
from tests.support import math_harness as harness, tile_runner
from tests.support.rough_estimates import roughly

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

NORMAL = 2.0**-125  # below it, results may be zero
LARGE = 2.0**126.5
GPUS = [b for b in tile_runner.GPUS if b.waves == 1]
FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "logistic": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x), "div": np.divide,
}  # fmt: skip
#: Ulp: of any argument, and what is added for each unit of it, without estimates and with them.
BOUNDS = {
    "exp": (2.5, 0.5, 1.25), "exp2": (2, 0, 0), "logistic": (4, 0.5, 1.25), "tanh": (4, 0, 0),
    "rsqrt": (2, 0, 0), "div": (2.5, 0, 0),
}  # fmt: skip
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1, -1, 3e38, -3e38, 1e30, -1e30, 88.72, -200],
    np.float32,
)
#: NaN with something in its last bits.
PAYLOADS = np.array([0x7FC00001, 0xFFFFFFFF, 0x7F8000FF], np.uint32).view(np.float32)


def arguments(name):
    """Normal numbers, dense where the function changes, and of every exponent."""
    rng = np.random.default_rng(0)
    dense = rng.uniform(-100, 100, 20_000), rng.normal(0, 1, 10_000)
    sizes = 2.0 ** rng.uniform(-125, 125, 10_000) * rng.choice([-1, 1], 10_000)
    xs = np.concatenate([*dense, sizes]).astype(np.float32)
    if name == "rsqrt":
        return (np.abs(xs),)
    return (xs, rng.permutation(xs)) if name == "div" else (xs,)


def check(name, xs, got, estimates=True, slack=0.0):
    """Assert bounds; `slack` is the share that rough estimates add."""
    wide = [x.astype(np.float64) for x in xs]
    want = FUNCTIONS[name](*wide)
    inside = (np.abs(want) >= NORMAL) & (np.abs(want) <= LARGE)
    error = np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32))
    least, *slopes = BOUNDS[name]
    bound = (least + slopes[estimates] * np.abs(wide[0])) * (1 + slack)
    worst = np.argmax(np.where(inside, error / bound, 0))
    assert error[worst] <= bound[worst], [x[worst] for x in xs]
    small, large = np.abs(want) < NORMAL, np.abs(want) > LARGE
    assert (np.abs(got[small]) <= NORMAL * 1.01).all()
    assert ((np.abs(got[large]) > LARGE / 1.01) & (np.sign(got) == np.sign(want))[large]).all()


def check_special(name, got, *xs):
    """Infinities, zeros and NaN of SPECIAL are those of the exact function."""
    want = FUNCTIONS[name](*(x.astype(np.float64) for x in xs))
    special = ~np.isfinite(want) | (np.isin(want, (0, 1, -1)) & ~np.isfinite(xs[0]))
    np.testing.assert_array_equal(got[special], want[special].astype(np.float32))


def specials(name):
    if name == "div":  # divisors that have a reciprocal
        grid = np.meshgrid(SPECIAL, SPECIAL[np.abs(np.nan_to_num(SPECIAL)) < 1e38])
        return tuple(x.ravel() for x in grid)
    return (SPECIAL[~np.signbit(SPECIAL)] if name == "rsqrt" else SPECIAL,)


@functools.cache
def kernel(name, arity, ulps, elem="float"):
    def emit(f, *xs):
        if ulps is not None:
            roughly(f.module, ulps)
        return RELAXED[name](f, *xs)

    return harness.Kernel(emit, [elem] * arity, elem, 8)


@pytest.mark.parametrize("ulps", [None, -1, 0, 1])
@pytest.mark.parametrize("name", RELAXED)
def test_bounds(name, ulps):
    """On this machine, and with estimates that are wrong by an ulp."""
    xs = arguments(name)
    got = kernel(name, len(xs), ulps)(*xs, dtype=np.float32)
    check(name, xs, got, ulps is not None, slack=0.75 if ulps else 0)
    if not ulps:
        xs = specials(name)
        check_special(name, kernel(name, len(xs), ulps)(*xs, dtype=np.float32), *xs)


@pytest.mark.parametrize("name", RELAXED)
def test_every_nan_stays_one(name):
    arity = 2 if name == "div" else 1
    assert np.isnan(kernel(name, arity, None)(*[PAYLOADS] * arity, dtype=np.float32)).all()


@pytest.mark.parametrize("name", RELAXED)
def test_doubles_are_as_exact_as_ever(name):
    xs = [x.astype(np.float64) for x in arguments(name)]
    got = kernel(name, len(xs), None, "double")(*xs, dtype=np.float64)
    want = FUNCTIONS[name](*xs)
    np.testing.assert_allclose(got, want, rtol=2e-15 if name != "logistic" else 1e-13, atol=1e-300)


@pytest.mark.parametrize("gpu", GPUS, ids=str)
@pytest.mark.parametrize("name", RELAXED)
def test_bounds_on_gpus(name, gpu):
    xs = tuple(x[::10] for x in arguments(name))
    with tile_runner.using(gpu):
        got = tile_runner.elementwise(
            lambda k, *xs: k.op(name, *xs, relaxed=True), *xs, out=np.float32, lanes=256
        )
    check(name, xs, got)


def test_the_tile_language_names_these_functions():
    assert set(RELAXED) | {"add", "sub", "mul"} == tile.RELAXED
