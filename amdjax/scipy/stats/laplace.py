"""Laplace's distribution, of density `exp(-|x|) / 2`."""

from __future__ import annotations

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.stats._distribution import Number, derived, distribution_function

__all__ = ["cdf", "logpdf", "pdf"]

_function = distribution_function(True)


@_function("0.0", "-0.6931472")
def logpdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    return -(jnp.abs(x - loc) / scale + jnp.log(constant(x, 2) * scale))


pdf = derived(_function("0.0", "0.5"), "pdf", logpdf)


@_function("0.0", "0.5")
def cdf(x: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    # Each half decays away from the center, so that neither overflows.
    tail = constant(x, 0.5) * jnp.exp(-jnp.abs(z))
    return jnp.where(z <= 0, tail, 1 - tail)
