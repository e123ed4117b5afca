"""The chi-squared distribution: the sum of squares of standard normal numbers."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.special import gammainc, gammaincc, gammaln
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_function = distribution_function(True, df="degrees of freedom.")


def _half(x: Number, loc: Number, scale: Number) -> Array:
    return jnp.maximum((x - loc) / (scale * constant(scale, 2)), constant(x, 0))


@_function("-1.0, 2.0", "-inf")
def logpdf(x: Number, df: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    half = df / constant(x, 2)
    kernel = (half - 1) * jnp.log(z) - z / 2
    term = -(gammaln(half) + math.log(2) * half)
    return inside(x >= loc, term - jnp.log(scale) + kernel, -math.inf)


pdf = derived(_function("-1.0, 2.0", "0."), "pdf", logpdf)


@_function("0.0, 2.0", "0.")
def cdf(x: Number, df: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return gammainc(df / constant(scale, 2), _half(x, loc, scale))


logcdf = derived(_function("jnp.inf, 2.0", "0."), "logcdf", cdf)


@_function("0.0, 2.0", "1.")
def sf(x: Number, df: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return gammaincc(df / constant(scale, 2), _half(x, loc, scale))


logsf = derived(_function("0.0, 2.0", "0."), "logsf", sf)
