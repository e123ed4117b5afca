"""Student's t distribution."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.special import gammaln
from amdjax.scipy.stats._distribution import Number, derived, distribution_function

__all__ = ["logpdf", "pdf"]

_function = distribution_function(df="degrees of freedom.")


@_function("0.0, 1.0", "-1.1447299")
def logpdf(x: Number, df: Number, loc: Number = 0, scale: Number = 1) -> Array:
    z = (x - loc) / scale
    more = df / 2 + constant(x, 0.5)
    term = gammaln(df / 2) + jnp.log(scale * scale * math.pi * df) / 2 - gammaln(more)
    return -(term + more * jnp.log1p(z * z / df))


pdf = derived(_function("0.0, 1.0", "0.3183099"), "pdf", logpdf)
