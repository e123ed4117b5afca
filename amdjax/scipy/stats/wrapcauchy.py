"""The Cauchy distribution wrapped around the circle, on [0, 2π]."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.scipy.stats._distribution import (
    LOG_TWO_PI,
    Number,
    derived,
    distribution_function,
    inside,
)

__all__ = ["logpdf", "pdf"]

_function = distribution_function(True, c="how narrow it is, between zero and one.")


@_function("0.0, 0.5", "-0.7392647")
def logpdf(x: Number, c: Number) -> Array:
    value = jnp.log(1 - c * c) - LOG_TWO_PI - jnp.log(1 + c * c - 2 * c * jnp.cos(x))
    value = inside((x >= 0) & (x <= 2 * math.pi), value, -math.inf)
    return inside((c > 0) & (c < 1), value, math.nan)


pdf = derived(_function("0.0, 0.5", "0.47746485"), "pdf", logpdf)
