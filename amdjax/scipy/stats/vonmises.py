"""The von Mises distribution, the normal distribution of the circle."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.scipy.special import i0e
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["logpdf", "pdf"]

_function = distribution_function(kappa="how narrow it is.")


@_function("0.0, 1.0", "-1.0737915")
def logpdf(x: Number, kappa: Number) -> Array:
    value = kappa * (jnp.cos(x) - 1) - jnp.log(2 * math.pi * i0e(kappa))
    return inside(kappa > 0, value, math.nan)


pdf = derived(_function("0.0, 1.0", "0.34171048"), "pdf", logpdf)
