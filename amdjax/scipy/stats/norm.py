"""The normal distribution."""

from __future__ import annotations

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.special import log_ndtr, ndtr, ndtri
from amdjax.scipy.stats._distribution import LOG_TWO_PI, Number, derived, distribution_function

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]

_function = distribution_function()


@_function("jnp.array([0.0])", "Array([-0.9189385], dtype=float32)")
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    return constant(x, -0.5) * z * z - (jnp.log(scale) + 0.5 * LOG_TWO_PI)


pdf = derived(_function("jnp.array([0.0])", "Array([0.3989423], dtype=float32)"), "pdf", logpdf)


@_function("jnp.array([0.0])", "Array([0.5], dtype=float32)")
def cdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return ndtr((x - loc) / scale)


@_function("jnp.array([0.0])", "Array([-0.6931472], dtype=float32)")
def logcdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return log_ndtr((x - loc) / scale)


@_function("jnp.array([0.5])", "Array([0.], dtype=float32)")
def ppf(q: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return jnp.asarray(ndtri(q) * scale + loc, float)  # of the widest type there is, as in JAX


@_function("jnp.array([0.0])", "Array([0.5], dtype=float32)")
def sf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return cdf(-x, -loc, scale)


@_function("jnp.array([0.0])", "Array([-0.6931472], dtype=float32)")
def logsf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return logcdf(-x, -loc, scale)


@_function("jnp.array([0.5]), loc=1.0", "Array([1.], dtype=float32)")
def isf(q: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return jnp.asarray(loc - ndtri(q) * scale, float)  # as `ppf`
