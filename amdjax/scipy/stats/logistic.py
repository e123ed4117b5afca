"""The logistic distribution, whose distribution function is `1 / (1 + exp(-x))`."""

from __future__ import annotations

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.special import expit, logit
from amdjax.scipy.stats._distribution import Number, derived, distribution_function

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]

_function = distribution_function()


@_function("0.0", "-1.3862944")
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    half = z / constant(z, 2)
    return -2 * jnp.logaddexp(half, -half) - jnp.log(scale)


pdf = derived(_function("0.0", "0.25"), "pdf", logpdf)


@_function("0.5", "0.")
def ppf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return logit(x) * scale + loc


@_function("0.0", "0.5")
def sf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return expit(-((x - loc) / scale))


@_function("0.5, loc=1.0", "1.")
def isf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return -logit(x) * scale + loc


@_function("0.0", "0.5")
def cdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return expit((x - loc) / scale)
