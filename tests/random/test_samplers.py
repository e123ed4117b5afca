"""Samples against recorded ones: bits exactly, floats up to how elementary functions round."""

import itertools
import math

import numpy as np
import pytest

from amdjax import lax, numpy as jnp, random
from amdjax.core import dtypes
from amdjax.core.config import disable_jit, enable_x64
from amdjax.core.errors import TypePromotionError
from amdjax.transforms.differentiate import grad, jvp
from amdjax.transforms.vmap import vmap
from tests.support.recorded_samples import SAMPLES
from tests.support.turns import in_turn

# What differs from one elementary function to the next is a few units in the last place; sampling
# by way of logarithms or differences multiplies that.
TOLERANCE = {"float32": 1e-4, "complex64": 1e-5, "bfloat16": 0.02, "float16": 0.003}


def arrays(arguments):
    """Lists as float32 arrays."""
    return {
        name: np.asarray(v, np.float32) if isinstance(v, list) else v
        for name, v in arguments.items()
    }


def as_recorded(found):
    found = np.asarray(found)
    if found.dtype.kind == "c":
        return np.stack([found.real, found.imag], -1)
    return found.astype(np.float32) if found.dtype.name in ("bfloat16", "float16") else found


@pytest.mark.parametrize(
    "name, seed, arguments, dtype, values",
    SAMPLES,
    ids=[f"{s[0]}-{s[1]}-{n}" for n, s in enumerate(SAMPLES)],
)
def test_recorded_samples(name, seed, arguments, dtype, values):
    found = getattr(random, name)(random.key(seed), **arrays(arguments))
    assert found.dtype == dtype
    exact = dtype not in TOLERANCE or name in ("multinomial", "poisson", "binomial")
    if exact:
        np.testing.assert_array_equal(as_recorded(found), values)
    else:
        tol = TOLERANCE[dtype]
        np.testing.assert_allclose(as_recorded(found), values, rtol=tol, atol=tol)


def test_uniform_floats_are_exact():
    for name, _, arguments, _, values in [s for s in SAMPLES if s[0] == "uniform"][:3]:
        found = getattr(random, name)(random.key(0), **arguments)
        np.testing.assert_array_equal(as_recorded(found), np.float32(values))


def test_raw_and_typed_keys_agree():
    for name in ("uniform", "normal", "exponential"):
        sample = getattr(random, name)
        a, b = sample(random.key(5), (7,)), sample(random.PRNGKey(5), (7,))
        np.testing.assert_array_equal(a, b)


def test_samplers_batch():
    keys = random.split(random.key(0), 3)
    samplers = [
        lambda k: random.normal(k, (4,)),
        lambda k: random.randint(k, (4,), 0, 9),
        lambda k: random.gamma(k, 0.7, (4,)),
        lambda k: random.poisson(k, 12.0, (4,)),
        lambda k: random.binomial(k, 30.0, 0.2, (4,)),
        lambda k: random.permutation(k, 6),
        lambda k: random.categorical(k, np.zeros(5, np.float32), shape=(4,)),
        lambda k: random.orthogonal(k, 2),
    ]
    for sampler in samplers:
        found = np.asarray(vmap(sampler)(keys))
        wanted = np.stack([np.asarray(sampler(k)) for k in keys])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_samplers_batch_over_parameters():
    key = random.key(3)
    rates = np.array([0.5, 3.0, 20.0], np.float32)
    for sampler in (random.gamma, random.poisson, random.chisquare):
        found = np.asarray(vmap(lambda r: sampler(key, r, (4,)))(rates))
        wanted = np.stack([np.asarray(sampler(key, r, (4,))) for r in rates])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_without_jit():
    with disable_jit():
        found = random.normal(random.key(0), (3,)), random.gamma(random.key(0), 2.0)
    np.testing.assert_allclose(found[0], random.normal(random.key(0), (3,)), rtol=1e-6)
    np.testing.assert_allclose(found[1], random.gamma(random.key(0), 2.0), rtol=1e-6)


def test_double_precision():
    with enable_x64(True):
        x = random.uniform(random.key(0), (1000,))
        assert x.dtype == np.float64
        assert len(np.unique(np.asarray(x).astype(np.float32))) > 990
        assert random.randint(random.key(0), (3,), 0, 2**40).dtype == np.int64
        assert random.bits(random.key(0)).dtype == np.uint64


def test_ends_of_ranges():
    lowest, highest = np.int32(-(2**31)), np.int32(2**31 - 1)
    x = np.asarray(random.randint(random.key(0), (1000,), lowest, highest))
    assert x.min() < -(2**30) and x.max() > 2**30
    x = np.asarray(random.randint(random.key(0), (2000,), 0, 256, np.uint8))
    assert (x.min(), x.max()) == (0, 255)
    x = np.asarray(random.randint(random.key(0), (10,), 5, 5))
    assert (x == 5).all()
    u = np.asarray(random.uniform(random.key(0), (100_000,), minval=2.0, maxval=2.5))
    assert u.min() >= 2 and u.max() < 2.5
    t = np.asarray(random.truncated_normal(random.key(0), -0.5, 0.5, (10_000,)))
    assert t.min() > -0.5 and t.max() < 0.5


def test_permutations():
    key = random.key(1)
    x = np.arange(40, dtype=np.float32).reshape(8, 5)
    for axis in (0, 1, -1):
        found = np.asarray(random.permutation(key, x, axis=axis))
        rows = {tuple(r) for r in np.moveaxis(found, axis, 0)}
        assert rows == {tuple(r) for r in np.moveaxis(x, axis, 0)}
        apart = np.asarray(random.permutation(key, x, axis=axis, independent=True))
        np.testing.assert_array_equal(np.sort(apart, axis), np.sort(x, axis))
    assert sorted(random.permutation(key, 5000).tolist()) == list(range(5000))


def test_choice_takes_slices():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    found = np.asarray(random.choice(random.key(0), x, (5, 2), axis=1))
    assert found.shape == (3, 5, 2)
    columns = {tuple(c) for c in x.T}
    assert {tuple(found[:, i, j]) for i in range(5) for j in range(2)} <= columns
    assert random.choice(random.key(0), x, (), axis=0).shape == (4,)
    assert random.choice(random.key(0), x, (0,)).shape == (0,)
    without = random.choice(random.key(0), 7, (7,), replace=False)
    assert sorted(without.tolist()) == list(range(7))


def test_derivatives_pass_through():
    key = random.key(0)
    mean = grad(lambda m: random.normal(key) * 2 + m)(1.0)
    assert float(mean) == 1
    with enable_x64(True):
        for a in (0.4, 2.5):
            _, slope = jvp(lambda a: random.gamma(key, a), (a,), (1.0,))
            # At a fixed quantile; rejections make the sample itself jump, so ask the distribution.
            from scipy.special import gammainc, gammaincinv

            x = float(random.gamma(key, a))
            q = gammainc(a, x)
            wanted = (gammaincinv(a + 1e-5, q) - gammaincinv(a - 1e-5, q)) / 2e-5
            assert math.isclose(float(slope), wanted, rel_tol=1e-4)
            _, log_slope = jvp(lambda a: random.loggamma(key, a), (a,), (1.0,))
            y = math.exp(float(random.loggamma(key, a)))
            q = gammainc(a, y)
            wanted = (gammaincinv(a + 1e-5, q) - gammaincinv(a - 1e-5, q)) / 2e-5 / y
            assert math.isclose(float(log_slope), wanted, rel_tol=1e-4)


def test_samples_inside_loops():
    def step(key, _):
        key, sub = random.split(key)
        return key, random.uniform(sub)

    _, found = lax.scan(step, random.key(0), None, length=4)
    key, wanted = random.key(0), []
    for _ in range(4):
        key, sub = random.split(key)
        wanted.append(float(random.uniform(sub)))
    np.testing.assert_array_equal(found, np.float32(wanted))


KEY = random.PRNGKey(0)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: random.uniform(KEY, (2,), np.int32), ValueError, "`uniform` must be a float"),
        (lambda: random.normal(KEY, (2,), np.int32), ValueError, "float or complex"),
        (lambda: random.bits(KEY, (2,), np.int32), ValueError, "unsigned int"),
        (lambda: random.randint(KEY, (2,), 0, 3, np.float32), TypeError, "integer dtypes"),
        (lambda: random.randint(KEY, (2,), np.zeros(3, np.int32), 3), ValueError, "randint"),
        (lambda: random.uniform(KEY, (2.5,)), TypeError, "uniform shape"),
        (lambda: random.bernoulli(KEY, 1), TypeError, "floating"),
        (lambda: random.bernoulli(KEY, mode="exact"), ValueError, "mode"),
        (lambda: random.gumbel(KEY, mode="exact"), ValueError, "mode"),
        (lambda: random.gamma(KEY, np.ones(3, np.float32), (2,)), ValueError, "gamma"),
        (lambda: random.pareto(KEY, np.float32(1), dtype=np.float16), TypePromotionError, "pareto"),
        (lambda: random.categorical(KEY, np.zeros(3, np.float32), axis=1), ValueError, "axis 1"),
        (
            lambda: random.categorical(KEY, np.zeros(3, np.float32), shape=(4,), replace=False),
            ValueError,
            "without replacement",
        ),
        (lambda: random.choice(KEY, 3, (4,), replace=False), ValueError, "larger sample"),
        (lambda: random.choice(KEY, 3, 4), TypeError, "sequence"),
        (lambda: random.choice(KEY, 5.5), TypeError, "choice: a must be"),
        (lambda: random.choice(KEY, 3, (2,), p=np.ones(2, np.float32)), ValueError, "p must be"),
        (lambda: random.choice(KEY, 0, (2,)), ValueError, "greater than 0"),
        (lambda: random.permutation(KEY, 0.5), TypeError, "x must be an integer"),
        (
            lambda: random.multivariate_normal(KEY, np.zeros(2), np.zeros((3, 3))),
            ValueError,
            "covariance",
        ),
        (
            lambda: random.multivariate_normal(KEY, np.zeros(2), np.eye(2), method="lu"),
            ValueError,
            "method",
        ),
        (lambda: random.dirichlet(KEY, 1.0), ValueError, "alpha.ndim"),
        (lambda: random.poisson(random.key(0, impl="rbg"), 1.0), NotImplementedError, "threefry"),
        (lambda: random.geometric(KEY, 0.5, dtype=np.float32), ValueError, "int"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_dtypes_of_defaults():
    assert random.uniform(KEY).dtype == np.float32
    assert random.randint(KEY, (), 0, 3).dtype == np.int32
    assert random.rademacher(KEY, dtype=np.int8).dtype == np.int8
    assert random.key(0).dtype == random.key_dtype()
    assert dtypes.issubdtype(random.key(0).dtype, dtypes.prng_key)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("low, high", [(1, 2), (-1, 1), (0, 0.25), (3, 3.125), (-4, -3.5), (0, 9)])
def test_truncated_normal_lies_between_its_bounds(dtype, low, high):
    x = random.truncated_normal(random.key(3), low, high, (20_000,), dtype).astype("float32")
    assert low < x.min() and x.max() < high


# JAX 0.10.2's numbers for random.key(1), as bits.
SHORT_FLOATS = {
    "uniform bfloat16": [16272, 15932, 16167, 16330, 16251, 16278],
    "uniform float16": [12422, 45978, 15479, 15563, 15058, 45044],
    "normal bfloat16": [16144, 48945, 48477, 16326, 16059, 16162],
    "normal float16": [47655, 49007, 14435, 14689, 12842, 48488],
    "truncated_normal bfloat16": [16177, 48821, 15895, 16336, 16132, 16194],
    "gumbel bfloat16": [16265, 48820, 16025, 16431, 16207, 16278],
    "laplace bfloat16": [48910, 16184, 15668, 49159, 48812, 48932],
    "cauchy bfloat16": [16205, 49026, 48507, 16545, 16121, 16238],
    "logistic bfloat16": [16230, 49042, 48576, 16429, 16148, 16258],
    "maxwell bfloat16": [16229, 16347, 16309, 16282, 16352, 16403],
    "gamma bfloat16": [16066, 16107, 16172, 15978, 16228, 16352],
    "loggamma bfloat16": [49268, 49344, 49094, 49151, 49169, 49114],
    "beta bfloat16": [16165, 15956, 16033, 16061, 16063, 15989],
}


@pytest.mark.parametrize("case", SHORT_FLOATS)
def test_16_bit_floats_are_rounded_at_each_step(case):
    name, dtype = case.split()
    before = {"truncated_normal": (-1, 3), "gamma": (1.7,), "loggamma": (0.6,), "beta": (1.2, 2.0)}
    bounds = (-0.3, 1.7) if name == "uniform" else ()
    drawn = getattr(random, name)(random.key(1), *before.get(name, ()), (6,), dtype, *bounds)
    assert drawn.view("uint16").tolist() == SHORT_FLOATS[case]


# Parameters after the shape, which may have 16 bits too.
PARAMETERS = {
    "bernoulli": (0.4,), "beta": (2.0, 3.0), "binomial": (10.0, 0.5), "cauchy": (),
    "chisquare": (4.0,), "double_sided_maxwell": (0.5, 2.0), "exponential": (),
    "f": (8.0, 12.0), "gamma": (3.0,), "geometric": (0.25,),
    "gumbel": (), "laplace": (), "loggamma": (3.0,), "logistic": (), "lognormal": (0.5,),
    "maxwell": (), "normal": (), "pareto": (5.0,), "poisson": (4.0,), "rademacher": (),
    "rayleigh": (2.0,), "t": (8.0,), "triangular": (0.0, 0.5, 2.0),
    "truncated_normal": (-1.0, 2.0), "uniform": (), "wald": (1.5,), "weibull_min": (1.0, 2.0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dtype"), in_turn(itertools.product(PARAMETERS, ("float16", "bfloat16")), 2)
)
def test_parameters_of_16_bits(name, dtype):
    draw = lambda kind: np.asarray(
        getattr(random, name)(
            KEY, *(jnp.asarray(p, kind) for p in PARAMETERS[name]), shape=(1000,)
        ),
        np.float64,
    )
    found, wanted = draw(dtype), draw("float32")
    # Quartiles, since not every distribution has moments; 1000 draws put them within a tenth.
    spread = np.ptp(np.quantile(wanted, [0.25, 0.75])) or 1.0
    for q in (0.25, 0.5, 0.75):
        assert abs(np.quantile(found, q) - np.quantile(wanted, q)) <= 0.25 * spread + 1e-2
