"""The normal distribution between two bounds, which are in units of `scale` about `loc`."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.scipy.special import log_ndtr, ndtr
from amdjax.scipy.stats import norm
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_function = distribution_function(a="the lower bound.", b="the upper bound.")


def _log_mass(a: Number, b: Number) -> Array:
    """The logarithm of the normal distribution's mass between two bounds."""
    central = (a <= 0) & (b > 0)
    # Where both lie in one tail, it is the difference of small numbers of the lower tail.
    low, high = jnp.where(a > 0, -b, a), jnp.where(a > 0, -a, b)
    upper, lower = log_ndtr(high), log_ndtr(low)
    tail = upper + jnp.log1p(-jnp.exp(lower - upper))
    return jnp.where(central, jnp.log1p(-ndtr(a) - ndtr(-b)), tail)


@_function("2.0, -1.0, 1.0", "Array(-inf, dtype=float32)")
def logpdf(x: Number, a: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    value = norm.logpdf(x, loc, scale) - _log_mass(a, b)
    value = inside((z >= a) & (z <= b), value, -math.inf)
    return inside(a < b, value, math.nan)


pdf = derived(_function("2.0, -1.0, 1.0", "Array(0., dtype=float32)"), "pdf", logpdf)


@_function("2.0, -1.0, 1.0", "Array(0., dtype=float32)")
def logcdf(x: Number, a: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    whole = _log_mass(a, b)
    # Neither what is outside nor the form that is not taken may count in the derivative.
    some = jnp.where(a > -math.inf, jnp.where(b < math.inf, (a + b) / 2, a + 1), b - 1)
    within = jnp.where((a < z) & (z < b), z, some)
    below, above = _log_mass(a, within) - whole, _log_mass(within, b) - whole
    # Near the upper bound the mass above is known better.
    near = below > -0.1
    value = jnp.where(near, jnp.log1p(-jnp.exp(jnp.where(near, above, -1))), below)
    value = jnp.where(z >= b, 0, jnp.where(z <= a, -math.inf, value))
    return inside(a < b, value, math.nan)


cdf = derived(_function("2.0, -1.0, 1.0", "Array(1., dtype=float32)"), "cdf", logcdf)


@_function("-2.0, -1.0, 1.0", "Array(0., dtype=float32)")
def logsf(x: Number, a: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return logcdf(-x, -b, -a, -loc, scale)


sf = derived(_function("-2.0, -1.0, 1.0", "Array(1., dtype=float32)"), "sf", logsf)
