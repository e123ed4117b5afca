"""The binomial distribution: the number of successes in `n` trials."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.scipy.special import gammaln, xlog1py, xlogy
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["logpmf", "pmf"]

_function = distribution_function(n="the number of trials.", p="the probability of a success.")


@_function("1, 1, 0.5", "-0.6931472")
def logpmf(k: Number, n: Number, p: Number, loc: Number = 0) -> Array:
    y = k - loc
    ways = gammaln(n + 1) - (gammaln(y + 1) + gammaln(n - y + 1))
    linear = xlogy(y, p) + xlog1py(n - y, -p)
    certain = ((y == 0) & (n == 0)) | (linear == 0)
    value = jnp.where(certain, 0, ways + linear)
    return inside((k >= loc) & (k < loc + n + 1), value, -math.inf)


pmf = derived(
    _function(
        "jnp.array([0, 1, 2]), 1, 0.5", "Array([0.5, 0.5, 0. ], dtype=float32, weak_type=True)"
    ),
    "pmf",
    logpmf,
)
