"""The Bernoulli distribution: one with probability `p`, else zero."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.special import xlog1py, xlogy
from amdjax.scipy.stats._distribution import (
    Number,
    derived,
    distribution_function,
    inside,
    probability,
)

__all__ = ["cdf", "logpmf", "pmf", "ppf"]

_function = distribution_function(True, p="the probability of one.")


@_function("1, 0.5", "-0.6931472")
def logpmf(k: Number, p: Number, loc: Number = 0) -> Array:
    x = k - loc
    return inside((x >= 0) & (x <= 1), xlogy(x, p) + xlog1py(constant(k, 1) - x, -p), -math.inf)


pmf = derived(
    _function("jnp.array([0, 1, 2]), 0.25", "Array([0.75, 0.25, 0.  ], dtype=float32)"),
    "pmf",
    logpmf,
)


def _valid(p: Number) -> Array:
    return (p >= 0) & (p <= 1)


@_function("jnp.array([-1, 0, 1]), 0.25", "Array([0.  , 0.75, 1.  ], dtype=float32)")
def cdf(k: Number, p: Number) -> Array:
    one = constant(k, 1)
    value = jnp.where(k < 0, 0, jnp.where(k < 1, one - p, one))
    return inside(_valid(p) & ~jnp.isnan(k), value, math.nan)


@_function("jnp.array([0.5, 0.8]), 0.25", "Array([0., 1.], dtype=float32)")
def ppf(q: Number, p: Number) -> Array:
    value = jnp.where(q <= 1 - p, constant(q, 0), constant(q, 1))
    return inside(_valid(p), probability(q, value), math.nan)
