"""The chi-squared distribution: the sum of squares of standard normal numbers."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.special import gammainc, gammaincc, gammaln
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_function = distribution_function(True, df="degrees of freedom.")


def _half(x: Number, loc: Number, scale: Number) -> Array:
    return jnp.clip((x - loc) / (scale * 2), 0)


@_function
def logpdf(x: Number, df: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the density.

    >>> amdjax.scipy.stats.chi2.logpdf(-1.0, 2.0)
    Array(-inf, dtype=float32, weak_type=True)
    """
    z = (x - loc) / scale
    half = df / 2
    kernel = (half - 1) * jnp.log(z) - z / 2
    constant = -(gammaln(half) + math.log(2) * half)
    return inside(x >= loc, constant - jnp.log(scale) + kernel, -math.inf)


pdf = derived(_function, "pdf", logpdf, "-1.0, 2.0", "0.")


@_function
def cdf(x: Number, df: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The distribution function.

    >>> amdjax.scipy.stats.chi2.cdf(0.0, 2.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return gammainc(df / 2, _half(x, loc, scale))


logcdf = derived(_function, "logcdf", cdf, "jnp.inf, 2.0", "0.")


@_function
def sf(x: Number, df: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """One less the distribution function, accurate in the upper tail.

    >>> amdjax.scipy.stats.chi2.sf(0.0, 2.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return gammaincc(df / 2, _half(x, loc, scale))


logsf = derived(_function, "logsf", sf, "0.0, 2.0", "0.")


_public_surface(globals())
