"""Dirichlet's distribution, of probabilities that add up to one."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, promote_dtypes_inexact
from amdjax.scipy.special import gammaln, xlogy

__all__ = ["logpdf", "pdf"]


@composite
def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """The logarithm of the density.

    Args:
      x: probabilities along the first axis, of shape `(n, ...)`, or all but the last of them.
      alpha: concentrations, of shape `(n,)`.

    Returns:
      Numbers of the shape of `x` without its first axis.

    Raises:
      ValueError: `alpha` is no vector, or `x` does not fit.

        >>> amdjax.scipy.stats.dirichlet.logpdf(jnp.array([0.5, 0.5]), jnp.array([1.0, 1.0]))
        Array(0., dtype=float32)
    """
    x, alpha = promote_dtypes_inexact(x, alpha)
    if alpha.ndim != 1:
        raise ValueError(f"`alpha` must be one-dimensional; got alpha.shape={alpha.shape}")
    n = alpha.shape[0]
    if x.ndim == 0 or x.shape[0] not in (n, n - 1):
        raise ValueError(
            "`x` must have either the same number of entries as `alpha` or one entry fewer; got"
            f" x.shape={x.shape}, alpha.shape={alpha.shape}"
        )
    if x.shape[0] != n:
        x = jnp.concatenate([x, 1 - x.sum(0, keepdims=True)])
    normalizer = jnp.sum(gammaln(alpha)) - gammaln(jnp.sum(alpha))
    exponents = jnp.broadcast_to((alpha - 1).reshape(-1, *[1] * (x.ndim - 1)), x.shape)
    value = jnp.sum(xlogy(exponents, x), axis=0) - normalizer
    simplex = jnp.all(x > 0, axis=0) & (jnp.abs(jnp.sum(x, axis=0) - 1) < 1e-6)
    return jnp.where(simplex, value, -math.inf)


def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """The density.

    Args:
      x: probabilities along the first axis, of shape `(n, ...)`, or all but the last of them.
      alpha: concentrations, of shape `(n,)`.

    Returns:
      Numbers of the shape of `x` without its first axis.

    Raises:
      ValueError: `alpha` is no vector, or `x` does not fit.

        >>> amdjax.scipy.stats.dirichlet.pdf(jnp.array([0.5, 0.5]), jnp.array([1.0, 1.0]))
        Array(1., dtype=float32)
    """
    return jnp.exp(logpdf(x, alpha))
