"""The gamma distribution, of density `x**(a-1) exp(-x) / Γ(a)` for positive `x`."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.special import gammainc, gammaincc, gammaln, xlogy
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_function = distribution_function(True, a="the exponent of `x`, and one.")


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


pdf = derived(_function, "pdf", logpdf, "0.0, 1.0", "1.")


@_function
def cdf(x: Number, a: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """The distribution function.

    >>> amdjax.scipy.stats.gamma.cdf(0.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return gammainc(a, jnp.clip((x - loc) / scale, 0))


logcdf = derived(_function, "logcdf", cdf, "jnp.inf, 1.0", "0.")


@_function
def sf(x: Number, a: Number, loc: Number = 0, scale: Number = 1) -> Array:
    """One less the distribution function, accurate in the upper tail.

    >>> amdjax.scipy.stats.gamma.sf(-1.0, 1.0)
    Array(1., dtype=float32, weak_type=True)
    """
    z = (x - loc) / scale
    return inside(z >= 0, gammaincc(a, z), 1)


logsf = derived(_function, "logsf", sf, "-1.0, 1.0", "0.")


_public_surface(globals())
