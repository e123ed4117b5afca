"""Pareto's distribution, of density `b / x**(b+1)` for `x` above one."""

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

_function = distribution_function(True, b="the exponent of the tail.")


@_function
def logpdf(x: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the density.

    >>> amdjax.scipy.stats.pareto.logpdf(1.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    z = (x - loc) / scale
    value = jnp.log(b / scale) - (b + 1) * jnp.log(z)
    return inside(x >= loc + scale, value, -math.inf)


pdf = derived(_function, "pdf", logpdf, "1.0, 1.0", "1.")


@_function
def cdf(x: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The distribution function.

    >>> amdjax.scipy.stats.pareto.cdf(2.0, 1.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    z = (x - loc) / scale
    return inside(x >= loc + scale, 1 - z**-b, 0)


@_function
def logcdf(x: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of the distribution function.

    >>> amdjax.scipy.stats.pareto.logcdf(2.0, 1.0)
    Array(-0.6931472, dtype=float32, weak_type=True)
    """
    z = (x - loc) / scale
    return inside(x >= loc + scale, jnp.log1p(-(z**-b)), -math.inf)


@_function
def logsf(x: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The logarithm of `sf`.

    >>> amdjax.scipy.stats.pareto.logsf(2.0, 1.0)
    Array(-0.6931472, dtype=float32, weak_type=True)
    """
    z = (x - loc) / scale
    return inside(x >= loc + scale, -b * jnp.log(z), 0)


sf = derived(_function, "sf", logsf, "2.0, 1.0", "0.5")


@_function
def ppf(q: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The inverse of the distribution function.

    >>> amdjax.scipy.stats.pareto.ppf(0.5, 1.0)
    Array(2., dtype=float32, weak_type=True)
    """
    return probability(q, loc + scale * (1 - q) ** (-1 / b))


_public_surface(globals())
