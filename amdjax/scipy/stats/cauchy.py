"""The Cauchy distribution, of density `1 / (π (1 + x²))`."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.stats._distribution import Number, derived, distribution_function

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_function = distribution_function()


@_function("0.0", "-1.1447299")
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    return -(jnp.log(constant(x, math.pi) * scale) + jnp.log1p(z * z))


pdf = derived(_function("0.0", "0.3183099"), "pdf", logpdf)


@_function("0.0", "0.5")
def cdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return constant(x, 0.5) + jnp.arctan((x - loc) / scale) / math.pi


logcdf = derived(_function("0.0", "-0.6931472"), "logcdf", cdf)


@_function("0.0", "0.5")
def sf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return cdf(-x, -loc, scale)


@_function("0.0", "-0.6931472")
def logsf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return logcdf(-x, -loc, scale)


@_function("0.5, loc=1.0", "1.")
def isf(q: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return jnp.tan(constant(q, math.pi / 2) - math.pi * q) * scale + loc


@_function("0.5, loc=1.0", "1.")
def ppf(q: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return jnp.tan(math.pi * q - constant(q, math.pi / 2)) * scale + loc
