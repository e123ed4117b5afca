"""The uniform distribution, on [0, 1]."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import strong
from amdjax.scipy.stats._distribution import (
    Number,
    derived,
    distribution_function,
    inside,
    probability,
)

__all__ = ["cdf", "logpdf", "pdf", "ppf"]

_function = distribution_function(True)


@_function("0.5", "-0.")
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return inside((x >= loc) & (x <= loc + scale), -jnp.log(scale), -math.inf)


pdf = derived(_function("0.5", "1."), "pdf", logpdf)


@_function("0.5", "Array(0.5, dtype=float32)")
def cdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return jnp.where(x < loc, strong(x, 0), jnp.where(x > loc + scale, 1, (x - loc) / scale))


@_function("0.5", "0.5")
def ppf(q: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return probability(q, loc + scale * q)
