"""The normal distribution."""

from __future__ import annotations

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.errors import public_surface as _public_surface
from amdjax.numpy._util import ArrayLike, promote_args_inexact
from amdjax.scipy import special

__all__ = [
    "cdf",
    "isf",
    "logcdf",
    "logpdf",
    "logsf",
    "pdf",
    "ppf",
    "sf",
]


@composite
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density.

    >>> norm.logpdf(jnp.array([0.0]))
    Array([-0.9189385], dtype=float32)
    """
    x, loc, scale = promote_args_inexact("norm.logpdf", x, loc, scale)
    z = (x - loc) / scale
    return -0.5 * lax.square(z) - (lax.log(scale) + 0.5 * np.log(2 * np.pi))


@composite
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density.

    >>> norm.pdf(jnp.array([0.0]))
    Array([0.3989423], dtype=float32)
    """
    return lax.exp(logpdf(x, loc, scale))


@composite
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The distribution function.

    >>> norm.cdf(jnp.array([0.0]))
    Array([0.5], dtype=float32)
    """
    x, loc, scale = promote_args_inexact("norm.cdf", x, loc, scale)
    return special.ndtr((x - loc) / scale)


@composite
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the distribution function.

    >>> norm.logcdf(jnp.array([0.0]))
    Array([-0.6931472], dtype=float32)
    """
    x, loc, scale = promote_args_inexact("norm.logcdf", x, loc, scale)
    return special.log_ndtr((x - loc) / scale)


@composite
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of the distribution function.

    >>> norm.ppf(jnp.array([0.5]))
    Array([0.], dtype=float32)
    """
    q, loc, scale = promote_args_inexact("norm.ppf", q, loc, scale)
    return special.ndtri(q) * scale + loc


@composite
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """One less the distribution function, accurate in the upper tail.

    >>> norm.sf(jnp.array([0.0]))
    Array([0.5], dtype=float32)
    """
    x, loc, scale = promote_args_inexact("norm.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


@composite
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of `sf`.

    >>> norm.logsf(jnp.array([0.0]))
    Array([-0.6931472], dtype=float32)
    """
    x, loc, scale = promote_args_inexact("norm.logsf", x, loc, scale)
    return logcdf(-x, -loc, scale)


@composite
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `sf`.

    >>> norm.isf(jnp.array([0.5]), loc=1.0)
    Array([1.], dtype=float32)
    """
    q, loc, scale = promote_args_inexact("norm.isf", q, loc, scale)
    return -ppf(q, 0, scale) + loc


_public_surface(globals())
