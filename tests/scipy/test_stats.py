"""`scipy.stats` against SciPy in both precisions, its derivatives and transformations."""

import inspect
import math

import numpy as np
import pytest
import scipy.stats as sp

import amdjax
import amdjax.numpy as jnp
from amdjax import enable_x64, grad, jit, vmap
from amdjax.scipy import stats
from amdjax.test_util import check_grads
from tests.support.turns import in_turn

RNG = np.random.default_rng(0)
REAL = np.concatenate([RNG.normal(size=60) * 4, [0.0, 1.0, -1.0, 30.0]])
UNIT = np.concatenate([RNG.uniform(0.01, 0.99, size=60), [0.5, 0.25, 0.75, 0.001]])
COUNT = np.concatenate([RNG.integers(-2, 12, size=60), [0, 1, 2, 3]]).astype(float)
SHAPE = RNG.uniform(0.3, 4, size=64)
SHAPE2 = RNG.uniform(0.3, 4, size=64)
PLACED = {"loc": RNG.normal(size=64), "scale": RNG.uniform(0.5, 2, size=64)}
MOVED = {"loc": RNG.integers(-1, 3, size=64).astype(float)}

# name: (where, parameters, how it is placed)
CASES = {
    "bernoulli": (COUNT, (UNIT,), MOVED),
    "beta": (REAL / 3, (SHAPE, SHAPE2), PLACED),
    "betabinom": (COUNT, (RNG.integers(0, 9, size=64).astype(float), SHAPE, SHAPE2), {}),
    "binom": (COUNT, (RNG.integers(0, 9, size=64).astype(float), UNIT), MOVED),
    "cauchy": (REAL, (), PLACED),
    "chi2": (REAL, (SHAPE,), PLACED),
    "expon": (REAL, (), PLACED),
    "gamma": (REAL, (SHAPE,), PLACED),
    "gennorm": (REAL, (SHAPE,), {}),
    "geom": (COUNT, (UNIT,), MOVED),
    "gumbel_l": (REAL / 4, (), PLACED),
    "gumbel_r": (REAL / 4, (), PLACED),
    "laplace": (REAL, (), PLACED),
    "logistic": (REAL, (), PLACED),
    "nbinom": (COUNT, (SHAPE, UNIT), MOVED),
    "norm": (REAL, (), PLACED),
    "pareto": (REAL, (SHAPE,), PLACED),
    "poisson": (COUNT, (SHAPE,), MOVED),
    "t": (REAL, (SHAPE,), PLACED),
    "truncnorm": (REAL / 3, (-SHAPE, SHAPE2 / 2), PLACED),
    "uniform": (REAL / 3, (), PLACED),
    "vonmises": (REAL, (SHAPE,), {}),
    "wrapcauchy": (np.abs(REAL), (UNIT,), {}),
}
FUNCTIONS = [
    (name, f) for name in CASES for f in getattr(stats, name).__all__ if f != "entropy"
]  # fmt: skip


def arguments(name, function):
    where, parameters, placed = CASES[name]
    ours = getattr(getattr(stats, name), function)
    if function in ("ppf", "isf"):
        where = UNIT
    takes = inspect.signature(ours).parameters
    return ours, where, parameters, {k: v for k, v in placed.items() if k in takes}


@pytest.mark.parametrize(
    ("name", "function", "x64"),
    [(*f, True) for f in FUNCTIONS] + [(*f, False) for f in in_turn(FUNCTIONS, 2)],
)
def test_against_scipy(name, function, x64):
    ours, where, parameters, placed = arguments(name, function)
    dtype = np.float64 if x64 else np.float32
    args = [np.asarray(a, dtype) for a in (where, *parameters)]
    placed = {k: np.asarray(v, dtype) for k, v in placed.items()}
    wide = [a.astype(np.float64) for a in args]
    with np.errstate(all="ignore"):
        want = getattr(getattr(sp, name), function)(
            *wide, **{k: v.astype(np.float64) for k, v in placed.items()}
        )
    with enable_x64(x64):
        got = ours(*args, **placed)
        assert got.dtype == dtype
        np.testing.assert_array_equal(jit(ours)(*args, **placed), got)
    tolerance = 1e-9 if x64 else 5e-4
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance / 10)


# What SciPy has no derivative for is compared with differences, inside the support.
SMOOTH = {
    "beta.logpdf": (0.3, 2.0, 3.0), "cauchy.logcdf": (0.3,), "chi2.logpdf": (2.0, 3.0),
    "expon.logsf": (0.4,), "gamma.logpdf": (1.5, 2.0), "gennorm.logpdf": (0.5, 2.5),
    "gumbel_r.logpdf": (0.5,), "gumbel_l.logcdf": (0.2,), "laplace.cdf": (0.7,),
    "logistic.logpdf": (0.4,), "norm.logcdf": (-3.0,), "norm.ppf": (0.3,),
    "pareto.logpdf": (2.0, 1.5),
    "t.logpdf": (0.4, 3.0), "truncnorm.logpdf": (0.2, -1.0, 2.0), "uniform.cdf": (0.4,),
    "vonmises.logpdf": (0.4, 2.0), "wrapcauchy.logpdf": (1.0, 0.3),
}  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients(name):
    module, function = name.split(".")
    f = getattr(getattr(stats, module), function)
    with enable_x64(True):
        check_grads(f, SMOOTH[name], 2)
        args = [np.array([a, a * 1.01]) for a in SMOOTH[name]]
        np.testing.assert_allclose(vmap(f)(*args), f(*args), rtol=1e-12)


def test_gradients_are_finite_outside_the_support():
    for f in (stats.gamma.logpdf, stats.expon.logpdf, stats.uniform.logpdf):
        args = (-1.0, 2.0) if f is stats.gamma.logpdf else (-1.0,)
        assert grad(f)(*args) == 0


def test_weak_types_and_names_in_errors():
    assert stats.norm.pdf(1.0).weak_type
    assert not stats.norm.pdf(jnp.float32(1.0)).weak_type
    assert stats.expon.logpdf(1).dtype == jnp.float32
    with pytest.raises(TypeError, match=r"gamma\.logpdf"):
        stats.gamma.logpdf([1.0], 2.0)


def test_entropy_of_poisson():
    mu = np.array([0.0, 0.1, 1.0, 5.0, 9.9, 20.0, 99.0, 200.0])
    with enable_x64(True):
        got = stats.poisson.entropy(mu)
    np.testing.assert_allclose(got, [sp.poisson.entropy(m) for m in mu], rtol=1e-5, atol=1e-12)
    assert stats.poisson.entropy(mu[:, None], np.zeros(3)).shape == (8, 3)


def test_dirichlet_and_multinomial():
    alpha, x = np.array([0.5, 2.0, 3.0]), np.array([0.2, 0.3, 0.5])
    with enable_x64(True):
        want = sp.dirichlet.logpdf(x, alpha)
        for given in (x, x[:-1]):
            np.testing.assert_allclose(stats.dirichlet.logpdf(given, alpha), want)
        np.testing.assert_allclose(
            stats.dirichlet.pdf(np.stack([x, x], 1), alpha), [np.exp(want)] * 2
        )
        assert stats.dirichlet.logpdf(x * 2, alpha) == -math.inf
        counts = np.array([2, 3, 1])
        np.testing.assert_allclose(
            stats.multinomial.pmf(counts, 6, x), sp.multinomial.pmf(counts, 6, x)
        )
        assert stats.multinomial.logpmf(counts, 7, x) == -math.inf
    with pytest.raises(ValueError, match="one-dimensional"):
        stats.dirichlet.logpdf(x, alpha[None])
    with pytest.raises(ValueError, match="same number of entries"):
        stats.dirichlet.logpdf(x[:1], alpha)
    with pytest.raises(ValueError, match="integer type"):
        stats.multinomial.logpmf(x, 6, x)


def test_multivariate_normal():
    x, mean = RNG.normal(size=(2, 7, 3))
    root = RNG.normal(size=(3, 3))
    cov = root @ root.T + np.eye(3)
    with enable_x64(True):
        f = stats.multivariate_normal
        want = [sp.multivariate_normal.logpdf(a, m, cov) for a, m in zip(x, mean, strict=True)]
        np.testing.assert_allclose(f.logpdf(x, mean, cov), want)
        np.testing.assert_allclose(f.pdf(x, mean, cov), np.exp(want))
        np.testing.assert_allclose(
            f.logpdf(x, mean[0], 2.0), sp.multivariate_normal.logpdf(x, mean[0], 2.0)
        )
        np.testing.assert_allclose(f.logpdf(0.3, 0.1, 2.0), sp.norm.logpdf(0.3, 0.1, 2**0.5))
        check_grads(f.logpdf, (x[0], mean[0], cov), 1)
    with pytest.raises(ValueError, match="incompatible shapes"):
        f.logpdf(x, mean, cov[:2, :2])
    with pytest.raises(NotImplementedError, match="allow_singular"):
        f.logpdf(x, mean, cov, allow_singular=True)


@pytest.mark.parametrize("axis", [0, 1, None, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_mode_and_standard_error(axis, keepdims):
    a = RNG.integers(0, 4, size=(5, 6))
    for got, want in zip(
        stats.mode(a, axis, keepdims=keepdims), sp.mode(a, axis, keepdims=keepdims), strict=True
    ):
        np.testing.assert_array_equal(got, want)
    b = np.where(a == 0, np.nan, a)
    np.testing.assert_allclose(
        stats.sem(a, axis, keepdims=keepdims), sp.sem(a, axis, keepdims=keepdims), rtol=1e-5
    )
    want = sp.sem(b, axis, nan_policy="omit", keepdims=keepdims)
    np.testing.assert_allclose(
        stats.sem(b, axis, nan_policy="omit", keepdims=keepdims), want, rtol=1e-5
    )


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_ranks(method, axis):
    a = RNG.integers(0, 4, size=(5, 6))
    for x in (a, a.astype(np.float32)):
        np.testing.assert_array_equal(
            stats.rankdata(x, method, axis=axis), sp.rankdata(a, method, axis=axis)
        )
    with_nan = np.where(a == 0, np.nan, a)
    np.testing.assert_array_equal(
        stats.rankdata(with_nan, method, axis=axis), sp.rankdata(with_nan, method, axis=axis)
    )
    assert stats.rankdata(np.zeros((2, 0)), method, axis=1).shape == (2, 0)


def test_policies_that_no_compiled_program_can_follow():
    for f in (stats.mode, stats.rankdata):
        with pytest.raises(NotImplementedError, match="nan_policy"):
            f(np.ones(3), nan_policy="omit")
        with pytest.raises(NotImplementedError, match="JIT"):
            f(np.ones(3), nan_policy="raise")
        with pytest.raises(ValueError, match="nan_policy"):
            f(np.ones(3), nan_policy="ignore")
    with pytest.raises(ValueError, match="unknown method"):
        stats.rankdata(np.ones(3), "worst")


@pytest.mark.parametrize("method", [None, "scott", "silverman", 0.4, lambda kde: kde.neff**-0.2])
@pytest.mark.parametrize("d", [1, 2])
def test_density_estimates(method, d):
    data, points, weights = RNG.normal(size=(d, 30)), RNG.normal(size=(d, 9)), RNG.uniform(size=30)
    with enable_x64(True):
        ours = stats.gaussian_kde(data, method, weights)
        theirs = sp.gaussian_kde(data, method, weights)
        np.testing.assert_allclose(ours(points), theirs(points), rtol=1e-9)
        np.testing.assert_allclose(
            jit(lambda k, x: k.logpdf(x))(ours, points), theirs.logpdf(points)
        )
        other = (stats.gaussian_kde(points), sp.gaussian_kde(points))
        np.testing.assert_allclose(ours.integrate_kde(other[0]), theirs.integrate_kde(other[1]))
        mean, cov = np.zeros(d), np.eye(d)
        np.testing.assert_allclose(
            ours.integrate_gaussian(mean, cov), theirs.integrate_gaussian(mean, cov)
        )
        if d == 1:
            np.testing.assert_allclose(
                ours.integrate_box_1d(-1, 0.5), theirs.integrate_box_1d(-1, 0.5)
            )
        check_grads(lambda x: ours.logpdf(x), (points,), 1)
        sample = ours.resample(amdjax.random.key(0), (5000,))
        assert sample.shape == (d, 5000)
        np.testing.assert_allclose(jnp.mean(sample, 1), data @ weights / weights.sum(), atol=0.1)
        assert ours.resample(amdjax.random.key(0)).shape == (d,)


def test_density_estimates_refuse():
    with pytest.raises(ValueError, match="multiple elements"):
        stats.gaussian_kde(np.ones(1))
    with pytest.raises(ValueError, match="bw_method"):
        stats.gaussian_kde(np.arange(3.0), "wide")
    with pytest.raises(ValueError, match="length n"):
        stats.gaussian_kde(np.arange(3.0), weights=np.ones(2))
    kde = stats.gaussian_kde(np.arange(4.0).reshape(2, 2) + np.eye(2))
    with pytest.raises(ValueError, match="dimension"):
        kde(np.ones((3, 2)))
    with pytest.raises(AttributeError, match="immutable"):
        kde.neff = 1
    for call in (lambda: kde.set_bandwidth(1), lambda: kde.integrate_box(0, 1)):
        with pytest.raises(NotImplementedError):
            call()
