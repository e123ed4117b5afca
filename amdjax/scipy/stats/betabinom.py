"""The beta-binomial distribution: binomial, with a probability that is beta distributed."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.special import betaln
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["logpmf", "pmf"]

_function = distribution_function(
    n="the number of trials.",
    a="the first parameter of the beta distribution.",
    b="its second parameter.",
)


@_function("0.0, 0.0, 1.0, 1.0", "0.")
def logpmf(k: Number, n: Number, a: Number, b: Number, loc: Number = 0) -> Array:
    y = jnp.floor(k) - loc
    one = constant(y, 1)
    count = -jnp.log1p(n) - betaln(n - y + one, y + one)
    value = count + betaln(y + a, n - y + b) - betaln(a, b)
    value = jnp.where((y == 0) & (n == 0), 0, value)
    value = inside((y >= -loc) & (y <= n) & (y + a > 0), value, -math.inf)
    return inside((n >= 0) & (a > 0) & (b > 0), value, math.nan)


pmf = derived(_function("0.0, 0.0, 1.0, 1.0", "1."), "pmf", logpmf)
