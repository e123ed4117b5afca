"""The exponential distribution, of density `exp(-x)` for positive `x`."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.scipy.stats._distribution import (
    Number,
    derived,
    distribution_function,
    inside,
    probability,
)

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_function = distribution_function(True)


@_function("2.0", "-2.")
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return inside(x >= loc, -((x - loc) / scale + jnp.log(scale)), -math.inf)


pdf = derived(_function("0.0", "1."), "pdf", logpdf)


@_function("0.0", "-0.")
def cdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return inside(x >= loc, -jnp.expm1((loc - x) / scale), 0)


@_function("jnp.inf", "-0.")
def logcdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return jnp.log1p(-sf(x, loc, scale))


@_function("2.0", "-2.")
def logsf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return inside(x >= loc, (loc - x) / scale, 0)


sf = derived(_function("0.0", "1."), "sf", logsf)


@_function("0.0", "0.")
def ppf(q: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return probability(q, loc - scale * jnp.log1p(-q))
