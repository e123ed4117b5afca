"""The beta distribution, of density `x**(a-1) (1-x)**(b-1) / B(a, b)` on [0, 1]."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.special import betainc, betaln, xlog1py, xlogy
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]

_function = distribution_function(
    a="the exponent of `x`, and one.", b="the exponent of `1 - x`, and one."
)


def _clamped(x: Number, loc: Number, scale: Number) -> Array:
    return jnp.clip((x - loc) / scale, constant(x, 0), constant(x, 1))


@_function("0.5, 1.0, 1.0", "0.")
def logpdf(x: Number, a: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    value = xlogy(a - constant(x, 1), z) + xlog1py(b - 1, -z) - betaln(a, b) - jnp.log(scale)
    value = inside((x >= loc) & (x <= loc + scale), value, -math.inf)
    return inside((a > 0) & (b > 0) & (scale > 0), value, math.nan)


pdf = derived(_function("0.5, 1.0, 1.0", "1."), "pdf", logpdf)


@_function("0.25, 1.0, 1.0", "0.25")
def cdf(x: Number, a: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return betainc(a, b, _clamped(x, loc, scale))


logcdf = derived(_function("1.0, 1.0, 1.0", "0."), "logcdf", cdf)


@_function("0.25, 1.0, 1.0", "0.75")
def sf(x: Number, a: Number, b: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return betainc(b, a, 1 - _clamped(x, loc, scale))


logsf = derived(_function("0.0, 1.0, 1.0", "0."), "logsf", sf)
