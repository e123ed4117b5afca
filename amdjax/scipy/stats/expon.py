"""The exponential distribution, of density `exp(-x)` for positive `x`."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.stats._distribution import (
    Number,
    derived,
    distribution_function,
    inside,
    probability,
)

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_function = distribution_function(True)


@_function
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the density.

    >>> amdjax.scipy.stats.expon.logpdf(2.0)
    Array(-2., dtype=float32, weak_type=True)
    """
    return inside(x >= loc, -((x - loc) / scale + jnp.log(scale)), -math.inf)


pdf = derived(_function, "pdf", logpdf, "0.0", "1.")


@_function
def cdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The distribution function.

    >>> amdjax.scipy.stats.expon.cdf(0.0)
    Array(-0., dtype=float32, weak_type=True)
    """
    return inside(x >= loc, -jnp.expm1((loc - x) / scale), 0)


@_function
def logcdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the distribution function.

    >>> amdjax.scipy.stats.expon.logcdf(jnp.inf)
    Array(-0., dtype=float32, weak_type=True)
    """
    return jnp.log1p(-sf(x, loc, scale))


@_function
def logsf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of `sf`.

    >>> amdjax.scipy.stats.expon.logsf(2.0)
    Array(-2., dtype=float32, weak_type=True)
    """
    return inside(x >= loc, (loc - x) / scale, 0)


sf = derived(_function, "sf", logsf, "0.0", "1.")


@_function
def ppf(q: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The inverse of the distribution function.

    >>> amdjax.scipy.stats.expon.ppf(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return probability(q, loc - scale * jnp.log1p(-q))


_public_surface(globals())
