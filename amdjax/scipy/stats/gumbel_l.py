"""The left-skewed Gumbel distribution, of the least of many numbers."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_function = distribution_function(True, p="probabilities.")


@_function("0.0", "-1.")
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    return inside(scale > 0, z - jnp.exp(z) - jnp.log(scale), math.nan)


pdf = derived(_function("0.0", "0.36787945"), "pdf", logpdf)


@_function("0.0", "-0.45867515")
def logcdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    return inside(scale > 0, jnp.log(-jnp.expm1(-jnp.exp(z))), math.nan)


cdf = derived(_function("0.0", "0.63212055"), "cdf", logcdf)


@_function("1.5", "nan")
def ppf(p: Number, loc: Number = 0, scale: Number = 1) -> Array:
    quantile = loc + scale * jnp.log(-jnp.log1p(-p))
    return inside((p > 0) & (p < 1), quantile, math.nan)


@_function("0.0", "-1.")
def logsf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return inside(scale > 0, -jnp.exp((x - loc) / scale), math.nan)


sf = derived(_function("0.0", "0.36787945"), "sf", logsf)
