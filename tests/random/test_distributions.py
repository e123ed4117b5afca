"""Large samples against the distributions they are drawn from."""

import numpy as np
import pytest
import scipy.stats as stats

from amdjax import random

N = 20_000

CONTINUOUS = {
    "uniform": ({"minval": -1.0, "maxval": 3.0}, stats.uniform(-1, 4)),
    "normal": ({}, stats.norm()),
    "truncated_normal": ({"lower": -1.0, "upper": 2.0}, stats.truncnorm(-1, 2)),
    "exponential": ({}, stats.expon()),
    "cauchy": ({}, stats.cauchy()),
    "laplace": ({}, stats.laplace()),
    "logistic": ({}, stats.logistic()),
    "gumbel": ({}, stats.gumbel_r()),
    "maxwell": ({}, stats.maxwell()),
    "pareto": ({"b": 2.5}, stats.pareto(2.5)),
    "rayleigh": ({"scale": 1.5}, stats.rayleigh(scale=1.5)),
    "wald": ({"mean": 1.5}, stats.invgauss(1.5)),
    "triangular": ({"left": 0.0, "mode": 0.5, "right": 2.0}, stats.triang(0.25, 0, 2)),
    "lognormal": ({"sigma": 0.7}, stats.lognorm(0.7)),
    "weibull_min": ({"scale": 1.5, "concentration": 2.0}, stats.weibull_min(2, scale=1.5)),
    "gamma": ({"a": 0.6}, stats.gamma(0.6)),
    "beta": ({"a": 0.5, "b": 2.0}, stats.beta(0.5, 2)),
    "chisquare": ({"df": 3.0}, stats.chi2(3)),
    "t": ({"df": 3.0}, stats.t(3)),
    "f": ({"dfnum": 3.0, "dfden": 5.0}, stats.f(3, 5)),
    "generalized_normal": ({"p": 3.0}, stats.gennorm(3)),
}


@pytest.mark.parametrize("name", sorted(CONTINUOUS))
def test_continuous(name):
    arguments, law = CONTINUOUS[name]
    x = np.asarray(getattr(random, name)(random.key(11), shape=(N,), **arguments))
    assert stats.kstest(x.astype(np.float64), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("mode", ["low", "high", "highest"])
def test_gumbel_modes(mode):
    x = np.asarray(random.gumbel(random.key(3), (N,), mode=mode))
    assert stats.kstest(x.astype(np.float64), stats.gumbel_r().cdf).pvalue > 1e-3


DISCRETE = {
    "poisson-small": ("poisson", {"lam": 3.0}, stats.poisson(3)),
    "poisson-large": ("poisson", {"lam": 60.0}, stats.poisson(60)),
    "binomial-small": ("binomial", {"n": 12.0, "p": 0.3}, stats.binom(12, 0.3)),
    "binomial-large": ("binomial", {"n": 200.0, "p": 0.7}, stats.binom(200, 0.7)),
    "geometric": ("geometric", {"p": 0.2}, stats.geom(0.2)),
    "randint": ("randint", {"minval": -3, "maxval": 9}, stats.randint(-3, 9)),
}


@pytest.mark.parametrize("case", sorted(DISCRETE))
def test_discrete(case):
    name, arguments, law = DISCRETE[case]
    x = np.asarray(getattr(random, name)(random.key(5), shape=(N,), **arguments))
    low, high = int(law.ppf(1e-3)), int(law.ppf(1 - 1e-3))
    values = np.arange(low, high + 1)
    expected = law.pmf(values) * N
    counts = np.array([(x == v).sum() for v in values])
    usual = expected > 10
    observed, wanted = counts[usual], expected[usual]
    assert ((observed - wanted) ** 2 / wanted).sum() < stats.chi2(usual.sum()).ppf(0.9995)


def frequencies(x, count):
    return np.bincount(np.asarray(x).ravel(), minlength=count) / np.size(x)


def test_categories():
    p = np.array([0.1, 0.2, 0.7], np.float32)
    x = random.categorical(random.key(0), np.log(p), shape=(N,))
    np.testing.assert_allclose(frequencies(x, 3), p, atol=0.01)
    x = random.choice(random.key(1), 3, (N,), p=p)
    np.testing.assert_allclose(frequencies(x, 3), p, atol=0.01)
    counts = random.multinomial(random.key(2), np.float32(N), p)
    np.testing.assert_allclose(np.asarray(counts) / N, p, atol=0.01)
    assert float(counts.sum()) == N


def test_permutations_are_uniform():
    keys = random.split(random.key(0), 3000)
    from amdjax.transforms.vmap import vmap

    first = vmap(lambda k: random.permutation(k, 5))(keys)[:, 0]
    np.testing.assert_allclose(frequencies(first, 5), 0.2, atol=0.03)


def test_vectors():
    mean, cov = np.array([1, -2], np.float32), np.array([[2, 0.8], [0.8, 1]], np.float32)
    for method in ("cholesky", "eigh", "svd"):
        x = np.asarray(random.multivariate_normal(random.key(0), mean, cov, (N,), method=method))
        np.testing.assert_allclose(x.mean(0), mean, atol=0.05)
        np.testing.assert_allclose(np.cov(x.T), cov, atol=0.08)
    alpha = np.array([0.5, 1, 2], np.float32)
    x = np.asarray(random.dirichlet(random.key(0), alpha, (N,)))
    np.testing.assert_allclose(x.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(x.mean(0), alpha / alpha.sum(), atol=0.01)
    x = np.asarray(random.ball(random.key(0), 3, shape=(N,)))
    radius = np.linalg.norm(x, axis=-1)
    assert stats.kstest(radius.astype(np.float64) ** 3, stats.uniform().cdf).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_orthogonal_matrices(dtype):
    q = np.asarray(random.orthogonal(random.key(0), 3, (50,), dtype))
    close = lambda x: np.testing.assert_allclose(x, np.broadcast_to(np.eye(3), x.shape), atol=1e-5)
    close(q @ np.swapaxes(q, -1, -2).conj())
    wide = np.asarray(random.orthogonal(random.key(0), 3, (), dtype, m=5))
    close(wide @ wide.T.conj())


def test_complex_normals():
    z = np.asarray(random.normal(random.key(0), (N,), np.complex64))
    for part in (z.real, z.imag):
        law = stats.norm(scale=np.sqrt(0.5))
        assert stats.kstest(part.astype(np.float64), law.cdf).pvalue > 1e-3


def test_bits_are_balanced():
    for dtype in (np.uint8, np.uint16, np.uint32):
        width = np.dtype(dtype).itemsize * 8
        x = np.asarray(random.bits(random.key(0), (N,), dtype)).astype(np.uint64)
        ones = [(x >> k & 1).mean() for k in map(np.uint64, range(width))]
        np.testing.assert_allclose(ones, 0.5, atol=0.02)
