"""The normal distribution of vectors."""

from __future__ import annotations

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, promote_dtypes_inexact
from amdjax.scipy.stats._distribution import LOG_TWO_PI

__all__ = ["logpdf", "pdf"]


@composite(static_argnames="allow_singular")
def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
    """The logarithm of the density.

    Args:
      x: vectors, of shape `(..., n)`.
      mean: of shape `(..., n)`, or a number.
      cov: covariances, of shape `(..., n, n)`; or a number, the variance of independent entries.
      allow_singular: must be None.

    Returns:
      Numbers of shape `(...)`.

    Raises:
      ValueError: `cov` does not fit `mean`.
      NotImplementedError: `allow_singular` is given.

        >>> amdjax.scipy.stats.multivariate_normal.logpdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2))
        Array(-1.837877, dtype=float32)
    """
    if allow_singular is not None:
        raise NotImplementedError("allow_singular argument of multivariate_normal.logpdf")
    x, mean, cov = promote_dtypes_inexact(x, mean, cov)
    if not mean.ndim:
        return -0.5 * (jnp.square(x - mean) / cov + LOG_TWO_PI + jnp.log(cov))
    n, centered = mean.shape[-1], x - mean
    if not cov.ndim:
        squares = jnp.sum(centered * centered, axis=-1)
        return -0.5 * (squares / cov + n * (LOG_TWO_PI + jnp.log(cov)))
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ValueError(
            "multivariate_normal.logpdf got incompatible shapes: cov has shape"
            f" {cov.shape}, mean {mean.shape}"
        )
    factor = lax.linalg.cholesky(cov)
    whitened = jnp.vectorize(_solve_lower, signature="(n,n),(n)->(n)")(factor, centered)
    scales = jnp.diagonal(factor, axis1=-2, axis2=-1)
    squares = jnp.sum(whitened * whitened, axis=-1)
    return -0.5 * squares - 0.5 * n * LOG_TWO_PI - jnp.sum(jnp.log(scales), axis=-1)


def _solve_lower(factor: Array, b: Array) -> Array:
    return lax.linalg.triangular_solve(factor, b, left_side=True, lower=True)


def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """The density.

    Args:
      x: vectors, of shape `(..., n)`.
      mean: of shape `(..., n)`, or a number.
      cov: covariances, of shape `(..., n, n)`; or a number, the variance of independent entries.

    Returns:
      Numbers of shape `(...)`.

    Raises:
      ValueError: `cov` does not fit `mean`.

        >>> amdjax.scipy.stats.multivariate_normal.pdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2))
        Array(0.15915495, dtype=float32)
    """
    return jnp.exp(logpdf(x, mean, cov))
