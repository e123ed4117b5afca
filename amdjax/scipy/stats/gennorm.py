"""The generalized normal distribution, of density proportional to `exp(-|x|**beta)`."""

from __future__ import annotations

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.scipy.special import gammainc, gammaln
from amdjax.scipy.stats._distribution import Number, derived, distribution_function

__all__ = ["cdf", "logpdf", "pdf"]

_function = distribution_function(beta="the exponent; 2 gives a normal distribution, 1 Laplace's.")


@_function("0.0, 2.0", "-0.5723649")
def logpdf(x: Number, beta: Number) -> Array:
    return jnp.log(0.5 * beta) - gammaln(1 / beta) - jnp.abs(x) ** beta


pdf = derived(_function("0.0, 1.0", "0.5"), "pdf", logpdf)


@_function("0.0, 2.0", "0.5")
def cdf(x: Number, beta: Number) -> Array:
    return 0.5 * (1 + jnp.sign(x) * gammainc(1 / beta, jnp.abs(x) ** beta))
