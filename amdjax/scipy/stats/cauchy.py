"""The Cauchy distribution, of density `1 / (π (1 + x²))`."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.stats._distribution import Number, derived, distribution_function

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_function = distribution_function()


@_function
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the density.

    >>> amdjax.scipy.stats.cauchy.logpdf(0.0)
    Array(-1.1447299, dtype=float32, weak_type=True)
    """
    z = (x - loc) / scale
    return -(jnp.log(math.pi * scale) + jnp.log1p(z * z))


pdf = derived(_function, "pdf", logpdf, "0.0", "0.3183099")


@_function
def cdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The distribution function.

    >>> amdjax.scipy.stats.cauchy.cdf(0.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return 0.5 + jnp.arctan((x - loc) / scale) / math.pi


logcdf = derived(_function, "logcdf", cdf, "0.0", "-0.6931472")


@_function
def sf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """One less the distribution function, accurate in the upper tail.

    >>> amdjax.scipy.stats.cauchy.sf(0.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return cdf(-x, -loc, scale)


@_function
def logsf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of `sf`.

    >>> amdjax.scipy.stats.cauchy.logsf(0.0)
    Array(-0.6931472, dtype=float32, weak_type=True)
    """
    return logcdf(-x, -loc, scale)


@_function
def isf(q: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The inverse of `sf`.

    >>> amdjax.scipy.stats.cauchy.isf(0.5, loc=1.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return jnp.tan(math.pi / 2 - math.pi * q) * scale + loc


@_function
def ppf(q: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The inverse of the distribution function.

    >>> amdjax.scipy.stats.cauchy.ppf(0.5, loc=1.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return jnp.tan(math.pi * q - math.pi / 2) * scale + loc


_public_surface(globals())
