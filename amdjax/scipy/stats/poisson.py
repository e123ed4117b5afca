"""Poisson's distribution: the number of rare events."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.special import entr, gammaincc, gammaln, xlogy
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["cdf", "entropy", "logpmf", "pmf"]

_function = distribution_function(mu="the mean.")


@_function("0, 1.0", "-1.")
def logpmf(k: Number, mu: Number, loc: Number = 0) -> Array:
    x = k - loc
    value = xlogy(x, mu) - gammaln(x + 1) - mu
    return inside((x >= 0) & (jnp.round(k) == k), value, -math.inf)


pmf = derived(_function("0.5, 1.0", "0."), "pmf", logpmf)


@_function("-1, 1.0", "0.")
def cdf(k: Number, mu: Number, loc: Number = 0) -> Array:
    x = k - loc
    return inside(x >= 0, gammaincc(jnp.floor(1 + x), mu), constant(k, 0))


# Up to which mean the sum over so many terms is the entropy; beyond, a series in the mean is.
_SUMS = ((10, 35), (100, 250))


@_function("0.0", "Array(0., dtype=float32)")
def entropy(mu: Number, loc: Number = 0) -> Array:
    """The entropy, in nats."""
    value = 0.5 * jnp.log(2 * math.pi * math.e * mu) - 1 / (12 * mu)
    for limit, terms in reversed(_SUMS):
        k = jnp.arange(terms, dtype=mu.dtype).reshape(-1, *[1] * mu.ndim)
        total = jnp.sum(entr(pmf(k, mu[None])), axis=0)
        value = jnp.where(mu < limit, total, value)
    shape = jnp.broadcast_shapes(mu.shape, loc.shape)
    return jnp.broadcast_to(jnp.where(mu == 0, 0, value), shape)
