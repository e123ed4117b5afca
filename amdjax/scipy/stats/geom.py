"""The geometric distribution: the number of trials up to the first success."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.errors import public_surface as _public_surface
from amdjax.scipy.special import xlog1py
from amdjax.scipy.stats._distribution import Number, distribution_function, inside

__all__ = ["logpmf", "pmf"]

_function = distribution_function(True, p="the probability of a success.")


@_function
def logpmf(k: Number, p: Number, loc: Number = 0) -> Array:
    """The logarithm of the probability.

    >>> amdjax.scipy.stats.geom.logpmf(1, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    x = k - loc
    return inside(x > 0, xlog1py(x - 1, -p) + jnp.log(p), -math.inf)


@_function
def pmf(k: Number, p: Number, loc: Number = 0) -> Array:
    """The probability.

    >>> amdjax.scipy.stats.geom.pmf(jnp.array([1, 2]), 0.5)
    Array([0.5 , 0.25], dtype=float32)
    """
    return jnp.exp(logpmf(k, p, loc))


_public_surface(globals())
