"""The logistic distribution, whose distribution function is `1 / (1 + exp(-x))`."""

from __future__ import annotations

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.special import expit, logit
from amdjax.scipy.stats._distribution import Number, derived, distribution_function

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]

_function = distribution_function()


@_function
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the density.

    >>> amdjax.scipy.stats.logistic.logpdf(0.0)
    Array(-1.3862944, dtype=float32, weak_type=True)
    """
    half = (x - loc) / scale / 2
    return -2 * jnp.logaddexp(half, -half) - jnp.log(scale)


pdf = derived(_function, "pdf", logpdf, "0.0", "0.25")


@_function
def ppf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The inverse of the distribution function.

    >>> amdjax.scipy.stats.logistic.ppf(0.5)
    Array(0., dtype=float32, weak_type=True)
    """
    return logit(x) * scale + loc


@_function
def sf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """One less the distribution function, accurate in the upper tail.

    >>> amdjax.scipy.stats.logistic.sf(0.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return expit(-((x - loc) / scale))


@_function
def isf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The inverse of `sf`.

    >>> amdjax.scipy.stats.logistic.isf(0.5, loc=1.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return -logit(x) * scale + loc


@_function
def cdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The distribution function.

    >>> amdjax.scipy.stats.logistic.cdf(0.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return expit((x - loc) / scale)


_public_surface(globals())
