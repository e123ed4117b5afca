"""The multinomial distribution: how often each outcome comes in `n` trials."""

from __future__ import annotations

import math

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, is_kind, promote_args_inexact, promote_args_numeric
from amdjax.scipy.special import gammaln, xlogy

__all__ = ["logpmf", "pmf"]


@composite
def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """The logarithm of the probability.

    Args:
      x: counts of the outcomes along the last axis, whole numbers.
      n: the number of trials, a whole number.
      p: probabilities of the outcomes.

    Returns:
      A number; minus infinity where the counts do not add up to `n`.

    Raises:
      ValueError: `x` or `n` is of an inexact dtype.

        >>> amdjax.scipy.stats.multinomial.logpmf(jnp.array([1, 0]), 1, jnp.array([1.0, 0.0]))
        Array(0., dtype=float32)
    """
    (p,) = promote_args_inexact("multinomial.logpmf", p)
    x, n = promote_args_numeric("multinomial.logpmf", x, n)
    if not is_kind(x.dtype, np.integer):
        raise ValueError(
            f"x and n must be of integer type; got x.dtype={x.dtype}, n.dtype={n.dtype}"
        )
    counts, trials = jnp.asarray(x, p.dtype), jnp.asarray(n, p.dtype)
    value = gammaln(trials + 1) + jnp.sum(xlogy(counts, p) - gammaln(counts + 1), axis=-1)
    return jnp.where(jnp.sum(counts) == trials, value, -math.inf)


def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """The probability.

    Args:
      x: counts of the outcomes along the last axis, whole numbers.
      n: the number of trials, a whole number.
      p: probabilities of the outcomes.

    Returns:
      A number; zero where the counts do not add up to `n`.

    Raises:
      ValueError: `x` or `n` is of an inexact dtype.

        >>> amdjax.scipy.stats.multinomial.pmf(jnp.array([1, 0]), 1, jnp.array([1.0, 0.0]))
        Array(1., dtype=float32)
    """
    return jnp.exp(logpmf(x, n, p))
