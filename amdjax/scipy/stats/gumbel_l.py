"""The left-skewed Gumbel distribution, of the least of many numbers."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_function = distribution_function(True, p="probabilities.")


@_function
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the density.

    >>> amdjax.scipy.stats.gumbel_l.logpdf(0.0)
    Array(-1., dtype=float32, weak_type=True)
    """
    z = (x - loc) / scale
    return inside(scale > 0, z - jnp.exp(z) - jnp.log(scale), math.nan)


pdf = derived(_function, "pdf", logpdf, "0.0", "0.36787945")


@_function
def logcdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the distribution function.

    >>> amdjax.scipy.stats.gumbel_l.logcdf(0.0)
    Array(-0.45867515, dtype=float32, weak_type=True)
    """
    z = (x - loc) / scale
    return inside(scale > 0, jnp.log(-jnp.expm1(-jnp.exp(z))), math.nan)


cdf = derived(_function, "cdf", logcdf, "0.0", "0.63212055")


@_function
def ppf(p: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The inverse of the distribution function.

    >>> amdjax.scipy.stats.gumbel_l.ppf(1.5)
    Array(nan, dtype=float32, weak_type=True)
    """
    quantile = loc + scale * jnp.log(-jnp.log1p(-p))
    return inside((p > 0) & (p < 1), quantile, math.nan)


@_function
def logsf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of `sf`.

    >>> amdjax.scipy.stats.gumbel_l.logsf(0.0)
    Array(-1., dtype=float32, weak_type=True)
    """
    return inside(scale > 0, -jnp.exp((x - loc) / scale), math.nan)


sf = derived(_function, "sf", logsf, "0.0", "0.36787945")


_public_surface(globals())
