"""The Bernoulli distribution: one with probability `p`, else zero."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.special import xlog1py, xlogy
from amdjax.scipy.stats._distribution import Number, distribution_function, inside, probability

__all__ = ["cdf", "logpmf", "pmf", "ppf"]

_function = distribution_function(True, p="the probability of one.")


@_function
def logpmf(k: Number, p: Number, loc: Number = 0) -> Array:
    """The logarithm of the probability.

    >>> amdjax.scipy.stats.bernoulli.logpmf(1, 0.5)
    Array(-0.6931472, dtype=float32, weak_type=True)
    """
    x = k - loc
    return inside((x >= 0) & (x <= 1), xlogy(x, p) + xlog1py(1 - x, -p), -math.inf)


@_function
def pmf(k: Number, p: Number, loc: Number = 0) -> Array:
    """The probability.

    >>> amdjax.scipy.stats.bernoulli.pmf(jnp.array([0, 1, 2]), 0.25)
    Array([0.75, 0.25, 0.  ], dtype=float32)
    """
    return jnp.exp(logpmf(k, p, loc))


def _valid(p: Number) -> Array:
    return (p >= 0) & (p <= 1)


@_function
def cdf(k: Number, p: Number) -> Array:
    """The distribution function.

    >>> amdjax.scipy.stats.bernoulli.cdf(jnp.array([-1, 0, 1]), 0.25)
    Array([0.  , 0.75, 1.  ], dtype=float32)
    """
    value = jnp.where(k < 0, 0, jnp.where(k < 1, 1 - p, 1))
    return inside(_valid(p) & ~jnp.isnan(k), value, math.nan).astype(k.dtype)


@_function
def ppf(q: Number, p: Number) -> Array:
    """The inverse of the distribution function.

    >>> amdjax.scipy.stats.bernoulli.ppf(jnp.array([0.5, 0.8]), 0.25)
    Array([0., 1.], dtype=float32)
    """
    return inside(_valid(p), probability(q, jnp.where(q <= 1 - p, 0.0, 1.0)), math.nan).astype(
        q.dtype
    )


_public_surface(globals())
