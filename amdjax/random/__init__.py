"""Random numbers from explicit keys, bit for bit those of jax.random.

A key is used once: `split` it to have several. Keys are typed (`key`) or raw arrays (`PRNGKey`);
all functions take both.
"""

from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import complete as _complete
from amdjax.random import _docs, _key_attributes  # noqa: F401
from amdjax.random._keys import (
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from amdjax.random.basic import bits, normal, randint, truncated_normal, uniform
from amdjax.random.continuous import (
    cauchy,
    double_sided_maxwell,
    exponential,
    laplace,
    logistic,
    lognormal,
    maxwell,
    pareto,
    rayleigh,
    triangular,
    wald,
    weibull_min,
)
from amdjax.random.counting import binomial, multinomial, poisson
from amdjax.random.discrete import (
    bernoulli,
    categorical,
    choice,
    geometric,
    permutation,
    rademacher,
)
from amdjax.random.gamma_family import (
    beta,
    chisquare,
    dirichlet,
    f,
    gamma,
    loggamma,
    random_gamma_p,
    t,
)
from amdjax.random.gumbel import gumbel
from amdjax.random.multivariate import ball, generalized_normal, multivariate_normal, orthogonal

__all__ = [
    "PRNGKey", "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy",
    "chisquare", "choice", "clone", "dirichlet", "double_sided_maxwell", "exponential", "f",
    "fold_in", "gamma", "generalized_normal", "geometric", "gumbel", "key", "key_data", "key_dtype",
    "key_impl", "laplace", "loggamma", "logistic", "lognormal", "maxwell", "multinomial",
    "multivariate_normal", "normal", "orthogonal", "pareto", "permutation", "poisson", "rademacher",
    "randint", "random_gamma_p", "rayleigh", "split", "t", "triangular", "truncated_normal",
    "uniform", "wald", "weibull_min", "wrap_key_data",
]  # fmt: skip

_complete(globals(), _docs.FAMILIES, _docs.PHRASES)
_public_surface(globals())
