"""The negative binomial distribution: failures before the `n`-th success."""

from __future__ import annotations

import math

from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.special import gammaln, xlogy
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["logpmf", "pmf"]

_function = distribution_function(n="the number of successes.", p="the probability of a success.")


@_function("0, 1, 0.5", "-0.6931472")
def logpmf(k: Number, n: Number, p: Number, loc: Number = 0) -> Array:
    one, y = constant(k, 1), k - loc
    ways = gammaln(y + n) - gammaln(n) - gammaln(y + one)
    return inside(k >= loc, ways + xlogy(n, p) + xlogy(y, one - p), -math.inf)


pmf = derived(_function("0, 1, 0.5", "0.5"), "pmf", logpmf)
