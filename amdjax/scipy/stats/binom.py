"""The binomial distribution: the number of successes in `n` trials."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.special import gammaln, xlog1py, xlogy
from amdjax.scipy.stats._distribution import Number, distribution_function, inside

__all__ = ["logpmf", "pmf"]

_function = distribution_function(n="the number of trials.", p="the probability of a success.")


@_function
def logpmf(k: Number, n: Number, p: Number, loc: Number = 0) -> Array:
    """The logarithm of the probability.

    >>> amdjax.scipy.stats.binom.logpmf(1, 1, 0.5)
    Array(-0.6931472, dtype=float32, weak_type=True)
    """
    y = k - loc
    ways = gammaln(n + 1) - (gammaln(y + 1) + gammaln(n - y + 1))
    linear = xlogy(y, p) + xlog1py(n - y, -p)
    certain = ((y == 0) & (n == 0)) | (linear == 0)
    value = jnp.where(certain, 0, ways + linear)
    return inside((k >= loc) & (k < loc + n + 1), value, -math.inf)


@_function
def pmf(k: Number, n: Number, p: Number, loc: Number = 0) -> Array:
    """The probability.

    >>> amdjax.scipy.stats.binom.pmf(jnp.array([0, 1, 2]), 1, 0.5)
    Array([0.5, 0.5, 0. ], dtype=float32)
    """
    return jnp.exp(logpmf(k, n, p, loc))


_public_surface(globals())
