"""Probability distributions and statistics of samples: `scipy.stats`."""

from types import ModuleType as _Module

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.scipy.stats import (
    bernoulli as bernoulli,
    beta as beta,
    betabinom as betabinom,
    binom as binom,
    cauchy as cauchy,
    chi2 as chi2,
    dirichlet as dirichlet,
    expon as expon,
    gamma as gamma,
    gennorm as gennorm,
    geom as geom,
    gumbel_l as gumbel_l,
    gumbel_r as gumbel_r,
    laplace as laplace,
    logistic as logistic,
    multinomial as multinomial,
    multivariate_normal as multivariate_normal,
    nbinom as nbinom,
    norm as norm,
    pareto as pareto,
    poisson as poisson,
    t as t,
    truncnorm as truncnorm,
    uniform as uniform,
    vonmises as vonmises,
    wrapcauchy as wrapcauchy,
)
from amdjax.scipy.stats._core import mode as mode, rankdata as rankdata, sem as sem
from amdjax.scipy.stats.kde import gaussian_kde as gaussian_kde

for _part in list(globals().values()):
    if isinstance(_part, _Module) and (hasattr(_part, "logpdf") or hasattr(_part, "logpmf")):
        _public_surface(vars(_part))  # a distribution
_public_surface(globals())
