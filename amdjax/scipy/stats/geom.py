"""The geometric distribution: the number of trials up to the first success."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.numpy._util import constant
from amdjax.scipy.special import xlog1py
from amdjax.scipy.stats._distribution import Number, derived, distribution_function, inside

__all__ = ["logpmf", "pmf"]

_function = distribution_function(True, p="the probability of a success.")


@_function("1, 1.0", "0.")
def logpmf(k: Number, p: Number, loc: Number = 0) -> Array:
    x = k - loc
    return inside(x > 0, xlog1py(x - constant(k, 1), -p) + jnp.log(p), -math.inf)


pmf = derived(
    _function("jnp.array([1, 2]), 0.5", "Array([0.5 , 0.25], dtype=float32)"), "pmf", logpmf
)
