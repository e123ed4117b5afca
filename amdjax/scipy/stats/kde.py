"""Densities estimated from samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax, random
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.pytree_registry import register_pytree_node
from amdjax.numpy._util import ArrayLike, check_arraylike, is_kind, promote_dtypes_inexact
from amdjax.scipy import special
from amdjax.scipy.linalg import cholesky
from amdjax.scipy.stats._distribution import LOG_TWO_PI

BandWidth = str | float | Array | Callable[["gaussian_kde"], Any] | None

_FIELDS = ("neff", "dataset", "weights", "covariance", "inv_cov")


class gaussian_kde:
    """A density estimated by normal kernels around samples.

    Args:
      dataset: samples, of shape `(d, n)`, or `(n,)` for single numbers.
      bw_method: how wide the kernels are: "scott" (the default), "silverman", a factor of the
        samples' deviation, or a function of the estimate that returns one.
      weights: of the samples, of shape `(n,)`.

    Raises:
      ValueError: there are fewer than two numbers, or an argument does not fit.
      NotImplementedError: samples are complex.

    Estimates are immutable pytrees; `neff` is the effective number of samples, `covariance` that of
    the kernels and `inv_cov` its inverse.

    Source: Scott, "Multivariate Density Estimation", 1992; Silverman, "Density Estimation for
    Statistics and Data Analysis", 1986.

        >>> kde = amdjax.scipy.stats.gaussian_kde(jnp.array([-1.0, 0.0, 1.0]))
        >>> jnp.round(kde(jnp.array([0.0])), 3)
        Array([0.318], dtype=float32)
    """

    __slots__ = _FIELDS
    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    def __init__(
        self, dataset: ArrayLike, bw_method: BandWidth = None, weights: ArrayLike | None = None
    ) -> None:
        check_arraylike("gaussian_kde", dataset)
        samples = jnp.atleast_2d(dataset)
        if is_kind(samples.dtype, np.complexfloating):
            raise NotImplementedError("gaussian_kde does not support complex data")
        if samples.size < 2:
            raise ValueError("`dataset` input should have multiple elements.")
        d, n = samples.shape
        if weights is None:
            (samples,) = promote_dtypes_inexact(samples)
            shares = jnp.full(n, 1.0 / n, dtype=samples.dtype)
        else:
            check_arraylike("gaussian_kde", weights)
            samples, shares = promote_dtypes_inexact(samples, weights)
            shares = jnp.atleast_1d(shares)
            if shares.ndim != 1:
                raise ValueError(
                    f"`weights` input should be one-dimensional, got shape {shares.shape}."
                )
            if len(shares) != n:
                raise ValueError(f"`weights` input should be of length n = {n}, got {len(shares)}")
            shares = shares / jnp.sum(shares)
        self._set("dataset", samples)
        self._set("weights", shares)
        self._set("neff", 1 / jnp.sum(shares**2))
        factor = self._factor(bw_method, d)
        spread = jnp.atleast_2d(jnp.cov(samples, rowvar=True, bias=False, aweights=shares))
        self._set("covariance", spread * factor**2)
        self._set("inv_cov", jnp.linalg.inv(spread) / factor**2)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}: a gaussian_kde is immutable")

    def _factor(self, method: BandWidth, d: int) -> Any:
        if method is None or (isinstance(method, str) and method == "scott"):
            return jnp.power(self.neff, -1.0 / (d + 4))
        if isinstance(method, str) and method == "silverman":
            return jnp.power(self.neff * (d + 2) / 4.0, -1.0 / (d + 4))
        if callable(method):
            return method(self)
        if not isinstance(method, str) and jnp.isscalar(method):
            return method
        raise ValueError("`bw_method` should be 'scott', 'silverman', a scalar, or a callable.")

    @property
    def d(self) -> int:
        """The number of entries of a sample."""
        return int(self.dataset.shape[0])

    @property
    def n(self) -> int:
        """The number of samples."""
        return int(self.dataset.shape[1])

    def evaluate(self, points: ArrayLike) -> Array:
        """The density at points of shape `(d, m)`, or `(m,)` where `d` is one."""
        check_arraylike("evaluate", points)
        return jnp.exp(_log_density(self, self._as_points(points)))

    def __call__(self, points: ArrayLike) -> Array:
        """The density; see `evaluate`."""
        return self.evaluate(points)

    def pdf(self, x: ArrayLike) -> Array:
        """The density; see `evaluate`."""
        return self.evaluate(x)

    def logpdf(self, x: ArrayLike) -> Array:
        """The logarithm of the density."""
        check_arraylike("logpdf", x)
        return _log_density(self, self._as_points(x))

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The integral of the product with a normal density.

        Args:
          mean: its mean, of shape `(d,)`.
          cov: its covariance, of shape `(d, d)`.
        """
        center = jnp.atleast_1d(jnp.squeeze(jnp.asarray(mean)))
        spread = jnp.atleast_2d(jnp.asarray(cov))
        if center.shape != (self.d,):
            raise ValueError(f"mean does not have dimension {self.d}, got shape {center.shape}")
        if spread.shape != (self.d, self.d):
            raise ValueError(
                f"covariance does not have dimension {self.d}, got shape {spread.shape}"
            )
        return _overlap(self.covariance + spread, self.dataset, self.weights, center[:, None])[0]

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """The integral between two numbers, where `d` is one."""
        if self.d != 1:
            raise ValueError(f"integrate_box_1d() only handles 1D pdfs, this has {self.d}")
        if np.ndim(low) != 0 or np.ndim(high) != 0:
            raise ValueError("the limits of integration in integrate_box_1d must be scalars")
        sigma = jnp.sqrt(self.covariance[0, 0])
        below, above = ((limit - self.dataset[0]) / sigma for limit in (low, high))
        return jnp.sum(self.weights * (special.ndtr(above) - special.ndtr(below)))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product with another estimate."""
        if other.d != self.d:
            raise ValueError(f"KDEs are not the same dimensionality: {self.d} and {other.d}")
        spread = self.covariance + other.covariance
        overlaps = _overlap(spread, self.dataset, self.weights, other.dataset)
        return jnp.sum(overlaps * other.weights)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Array:
        """Refused: only `integrate_box_1d` is implemented."""
        raise NotImplementedError("only 1D box integrations are supported; use `integrate_box_1d`")

    def set_bandwidth(self, bw_method: BandWidth = None) -> None:
        """Refused: an estimate does not change."""
        raise NotImplementedError("dynamically changing the bandwidth method is not supported")

    def resample(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Samples of the density, of shape `(d, *shape)`."""
        return _resample(self, key, tuple(shape))

    def _as_points(self, points: ArrayLike) -> Array:
        x = jnp.atleast_2d(points)
        if is_kind(x.dtype, np.complexfloating):
            raise NotImplementedError("gaussian_kde does not support complex coordinates")
        if x.shape[0] == self.d:
            return x
        if x.shape == (1, self.d):
            return x.reshape(self.d, 1)
        raise ValueError(f"points have dimension {x.shape[0]}, dataset has dimension {self.d}")


@composite
def _log_density(kde: gaussian_kde, points: Array) -> Array:
    samples, weights, x, precision = promote_dtypes_inexact(
        kde.dataset, kde.weights, points, kde.inv_cov
    )
    # Squared distances in the metric of the kernels, as products: no array of shape (m, n, d).
    whitening = cholesky(precision, lower=True)
    samples, x = samples.T @ whitening, x.T @ whitening
    squares = _squared_distances(x, samples)
    scale = jnp.sum(jnp.log(jnp.diagonal(whitening))) - 0.5 * kde.d * LOG_TWO_PI
    return special.logsumexp(jnp.log(weights)[None, :] - 0.5 * squares, axis=1) + scale


def _squared_distances(x: Array, y: Array) -> Array:
    """Between the rows of two matrices, as a sum over few columns."""
    total: Any = 0
    for a, b in zip(x.T, y.T, strict=True):
        total = total + lax.square(a[:, None] - b[None, :])
    return total


@composite
def _overlap(spread: Array, samples: Array, weights: Array, means: Array) -> Array:
    """For each mean the weighted normal densities at the samples."""
    factor = cholesky(spread, lower=True)
    whiten = functools.partial(lax.linalg.triangular_solve, factor, left_side=True, lower=True)
    squares = _squared_distances(whiten(means).T, whiten(samples).T)
    size = math.sqrt(2 * math.pi) ** samples.shape[0] * jnp.prod(jnp.diagonal(factor))
    return jnp.sum(jnp.exp(-0.5 * squares) * weights[None, :], axis=1) / size


@functools.partial(composite, static_argnames="shape")
def _resample(kde: gaussian_kde, key: Array, shape: tuple[int, ...]) -> Array:
    which, noise = random.split(key)
    chosen = random.choice(which, kde.n, shape=shape, p=kde.weights)
    zero = jnp.zeros(kde.d, kde.covariance.dtype)
    offsets = random.multivariate_normal(
        noise, zero, kde.covariance, shape=shape, dtype=kde.dataset.dtype
    )
    return kde.dataset[:, chosen] + offsets.T


def _flatten(kde: gaussian_kde) -> tuple[Any, None]:
    return tuple(getattr(kde, name) for name in _FIELDS), None


def _unflatten(_: None, children: Any) -> gaussian_kde:
    kde = object.__new__(gaussian_kde)
    for name, value in zip(_FIELDS, children, strict=True):
        object.__setattr__(kde, name, value)
    return kde


register_pytree_node(gaussian_kde, _flatten, _unflatten)
