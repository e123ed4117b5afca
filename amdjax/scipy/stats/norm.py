"""The normal distribution."""

from __future__ import annotations

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.special import log_ndtr, ndtr, ndtri
from amdjax.scipy.stats._distribution import LOG_TWO_PI, Number, distribution_function

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_function = distribution_function()


@_function
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the density.

    >>> norm.logpdf(jnp.array([0.0]))
    Array([-0.9189385], dtype=float32)
    """
    z = (x - loc) / scale
    return -0.5 * z * z - (jnp.log(scale) + 0.5 * LOG_TWO_PI)


@_function
def pdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The density.

    >>> norm.pdf(jnp.array([0.0]))
    Array([0.3989423], dtype=float32)
    """
    return jnp.exp(logpdf(x, loc, scale))


@_function
def cdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The distribution function.

    >>> norm.cdf(jnp.array([0.0]))
    Array([0.5], dtype=float32)
    """
    return ndtr((x - loc) / scale)


@_function
def logcdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the distribution function.

    >>> norm.logcdf(jnp.array([0.0]))
    Array([-0.6931472], dtype=float32)
    """
    return log_ndtr((x - loc) / scale)


@_function
def ppf(q: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The inverse of the distribution function.

    >>> norm.ppf(jnp.array([0.5]))
    Array([0.], dtype=float32)
    """
    return ndtri(q) * scale + loc


@_function
def sf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """One less the distribution function, accurate in the upper tail.

    >>> norm.sf(jnp.array([0.0]))
    Array([0.5], dtype=float32)
    """
    return cdf(-x, -loc, scale)


@_function
def logsf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of `sf`.

    >>> norm.logsf(jnp.array([0.0]))
    Array([-0.6931472], dtype=float32)
    """
    return logcdf(-x, -loc, scale)


@_function
def isf(q: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The inverse of `sf`.

    >>> norm.isf(jnp.array([0.5]), loc=1.0)
    Array([1.], dtype=float32)
    """
    return -ppf(q, 0, scale) + loc


_public_surface(globals())
