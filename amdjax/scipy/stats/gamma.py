"""The gamma distribution, of density `x**(a-1) exp(-x) / Γ(a)` for positive `x`."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.special import gammainc, gammaincc, gammaln, xlogy
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_function = distribution_function(True, a="the exponent of `x`, and one.")


@_function("2.0, 1.0", "-2.")
def logpdf(x: Number, a: Number, loc: Number = 0, scale: Number = 1) -> Array:
    positive = x >= loc
    # So that nothing is differentiated where the density is zero.
    z = jnp.where(positive, (x - loc) / scale, 1)
    value = xlogy(a - constant(x, 1), z) - z - (gammaln(a) + jnp.log(scale))
    return inside(positive, value, -math.inf)


pdf = derived(_function("0.0, 1.0", "1."), "pdf", logpdf)


@_function("0.0, 1.0", "0.")
def cdf(x: Number, a: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return gammainc(a, jnp.maximum((x - loc) / scale, constant(x, 0)))


logcdf = derived(_function("jnp.inf, 1.0", "0."), "logcdf", cdf)


@_function("-1.0, 1.0", "1.")
def sf(x: Number, a: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    return inside(z >= 0, gammaincc(a, z), 1)


logsf = derived(_function("-1.0, 1.0", "0."), "logsf", sf)
