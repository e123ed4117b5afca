"""Pareto's distribution, of density `b / x**(b+1)` for `x` above one."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.stats._distribution import (
    Number,
    derived,
    distribution_function,
    inside,
    probability,
)

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_function = distribution_function(True, b="the exponent of the tail.")


@_function("1.0, 1.0", "0.")
def logpdf(x: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    value = jnp.log(b / scale) - (b + constant(x, 1)) * jnp.log(z)
    return inside(x >= loc + scale, value, -math.inf)


pdf = derived(_function("1.0, 1.0", "1."), "pdf", logpdf)


@_function("2.0, 1.0", "0.5")
def cdf(x: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    return inside(x >= loc + scale, constant(x, 1) - z**-b, 0)


@_function("2.0, 1.0", "-0.6931472")
def logcdf(x: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    return inside(x >= loc + scale, jnp.log1p(-(z**-b)), -math.inf)


@_function("2.0, 1.0", "-0.6931472")
def logsf(x: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    return inside(x >= loc + scale, -b * jnp.log(z), constant(x, 0))


sf = derived(_function("2.0, 1.0", "0.5"), "sf", logsf)


@_function("0.5, 1.0", "2.")
def ppf(q: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return probability(q, loc + scale * (constant(q, 1) - q) ** (-1 / b))
