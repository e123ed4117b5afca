"""The gamma distribution, of density `x**(a-1) exp(-x) / Γ(a)` for positive `x`."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.special import gammainc, gammaincc, gammaln, xlogy
from amdjax.scipy.stats._distribution import Number, distribution_function, inside

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_function = distribution_function(a="the exponent of `x`, and one.")


@_function
def logpdf(x: Number, a: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the density.

    >>> amdjax.scipy.stats.gamma.logpdf(2.0, 1.0)
    Array(-2., dtype=float32, weak_type=True)
    """
    positive = x >= loc
    # So that nothing is differentiated where the density is zero.
    z = jnp.where(positive, (x - loc) / scale, 1)
    value = xlogy(a - 1, z) - z - (gammaln(a) + jnp.log(scale))
    return inside(positive, value, -math.inf)


@_function
def pdf(x: Number, a: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The density.

    >>> amdjax.scipy.stats.gamma.pdf(0.0, 1.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return jnp.exp(logpdf(x, a, loc, scale))


@_function
def cdf(x: Number, a: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The distribution function.

    >>> amdjax.scipy.stats.gamma.cdf(0.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return gammainc(a, jnp.clip((x - loc) / scale, 0))


@_function
def logcdf(x: Number, a: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the distribution function.

    >>> amdjax.scipy.stats.gamma.logcdf(jnp.inf, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return jnp.log(cdf(x, a, loc, scale))


@_function
def sf(x: Number, a: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """One less the distribution function, accurate in the upper tail.

    >>> amdjax.scipy.stats.gamma.sf(-1.0, 1.0)
    Array(1., dtype=float32, weak_type=True)
    """
    z = (x - loc) / scale
    return inside(z >= 0, gammaincc(a, z), 1)


@_function
def logsf(x: Number, a: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of `sf`.

    >>> amdjax.scipy.stats.gamma.logsf(-1.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return jnp.log(sf(x, a, loc, scale))


_public_surface(globals())
