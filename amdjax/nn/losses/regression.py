"""Losses of numbers: distances and negative log-likelihoods."""

from __future__ import annotations

import math

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.nn._arguments import check_not_negative, widened
from amdjax.nn.losses._reduction import check_same_shape, promote_reals, reduced
from amdjax.numpy._util import ArrayLike, broadcast_to, convert

__all__ = ["gaussian_nll_loss", "huber", "mae", "mse", "poisson_nll_loss", "smooth_l1"]


@composite(static_argnames="reduction")
def mse(predictions: ArrayLike, targets: ArrayLike, *, reduction: str = "mean") -> Array:
    """Squared differences.

    >>> nn.mse(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]))
    Array(2., dtype=float32)
    """
    return reduced("mse", jnp.square(_difference("mse", predictions, targets)), reduction)


@composite(static_argnames="reduction")
def mae(predictions: ArrayLike, targets: ArrayLike, *, reduction: str = "mean") -> Array:
    """Absolute differences.

    >>> nn.mae(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]))
    Array(1., dtype=float32)
    """
    return reduced("mae", _distance("mae", predictions, targets), reduction)


def _difference(name: str, predictions: ArrayLike, targets: ArrayLike) -> Array:
    predictions, targets = promote_reals(name, predictions, targets)
    check_same_shape(name, predictions=predictions, targets=targets)
    return predictions - targets


def _distance(name: str, predictions: ArrayLike, targets: ArrayLike) -> Array:
    """Absolute differences, of slope 0 where there is none (that of `abs` is 1 at 0)."""
    difference = _difference(name, predictions, targets)
    return lax.stop_gradient(lax.sign(difference)) * difference


def huber(
    predictions: ArrayLike, targets: ArrayLike, *, delta: float = 1.0, reduction: str = "mean"
) -> Array:
    """Half the squared difference up to `delta`, linear beyond (Huber, 1964).

    Args:
      delta: where the loss becomes linear; positive.

        >>> nn.huber(jnp.array([0.0, 0.0]), jnp.array([1.0, 3.0]), reduction="none")
        Array([0.5, 2.5], dtype=float32)
    """
    check_not_negative("huber", delta=delta)
    return _huber(predictions, targets, delta, reduction)


@composite(static_argnames="reduction")
def _huber(predictions: ArrayLike, targets: ArrayLike, delta: float, reduction: str) -> Array:
    distance = _distance("huber", predictions, targets)
    near = jnp.minimum(distance, delta)
    return reduced("huber", near * (distance - 0.5 * near), reduction)


def smooth_l1(
    predictions: ArrayLike, targets: ArrayLike, *, beta: float = 1.0, reduction: str = "mean"
) -> Array:
    """The absolute difference, rounded off below `beta` (Girshick, 2015): `huber / beta`.

    Args:
      beta: up to where the loss is quadratic; 0 gives `mae`.

        >>> nn.smooth_l1(jnp.array([0.0, 0.0]), jnp.array([0.5, 3.0]), beta=0.5, reduction="none")
        Array([0.25, 2.75], dtype=float32)
    """
    check_not_negative("smooth_l1", beta=beta)
    return _smooth_l1(predictions, targets, beta, reduction)


@composite(static_argnames="reduction")
def _smooth_l1(predictions: ArrayLike, targets: ArrayLike, beta: float, reduction: str) -> Array:
    distance = _distance("smooth_l1", predictions, targets)
    # The branch not taken stays finite, or the slope would be NaN for a `beta` of 0.
    curved = distance < beta
    width = jnp.where(curved, beta, 1)
    losses = jnp.where(curved, 0.5 * distance * distance / width, distance - 0.5 * beta)
    return reduced("smooth_l1", losses, reduction)


@composite(static_argnames=("log_predictions", "full", "reduction"))
def poisson_nll_loss(
    predictions: ArrayLike, targets: ArrayLike, *, log_predictions: bool = True, full: bool = False,
    epsilon: float = 1e-8, reduction: str = "mean",
) -> Array:  # fmt: skip
    """The negative log-likelihood of counts under Poisson distributions, less a constant.

    Args:
      predictions: expected counts, or their logarithms.
      targets: counts, of the same shape.
      log_predictions: whether `predictions` are logarithms.
      full: add the constant, by Stirling's formula where a count is above 1.
      epsilon: added to expected counts before their logarithm is taken.

    Returns:
      A scalar, or the losses of all counts if `reduction` is "none".

        >>> nn.poisson_nll_loss(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0]), reduction="none")
        Array([1.        , 0.71828175], dtype=float32)
    """
    name = "poisson_nll_loss"
    x, y = promote_reals(name, predictions, targets)
    check_same_shape(name, predictions=x, targets=y)
    dtype, x, y = x.dtype, widened(x), widened(y)
    losses = jnp.exp(x) - y * x if log_predictions else x - y * jnp.log(x + epsilon)
    if full:
        many = jnp.where(y > 1, y, 1)
        stirling = many * jnp.log(many) - many + 0.5 * jnp.log(2 * math.pi * many)
        losses += jnp.where(y > 1, stirling, 0)
    return convert(reduced(name, losses, reduction), dtype)


@composite(static_argnames=("full", "reduction"))
def gaussian_nll_loss(
    predictions: ArrayLike, targets: ArrayLike, variance: ArrayLike, *, full: bool = False,
    epsilon: float = 1e-6, reduction: str = "mean",
) -> Array:  # fmt: skip
    """The negative log-likelihood under normal distributions (Nix & Weigend, 1994).

    Args:
      predictions: means.
      targets: array of the same shape.
      variance: variances; broadcasts to that shape.
      full: add the constant `log(2π) / 2`.
      epsilon: the least variance: smaller ones count as this, but are pushed as if they did not.

    Returns:
      A scalar, or the losses of all numbers if `reduction` is "none".

        >>> nn.gaussian_nll_loss(jnp.zeros(2), jnp.array([0.0, 2.0]), jnp.ones(2))
        Array(1., dtype=float32)
    """
    name = "gaussian_nll_loss"
    x, y, variance = promote_reals(name, predictions, targets, variance)
    check_same_shape(name, predictions=x, targets=y)
    dtype, x, y, variance = x.dtype, *map(widened, (x, y, broadcast_to(variance, x.shape)))
    # In value only: where a variance is too small, its slope must still make it larger.
    variance += lax.stop_gradient(jnp.maximum(variance, epsilon) - variance)
    losses = 0.5 * (jnp.log(variance) + jnp.square(x - y) / variance)
    losses = losses + 0.5 * math.log(2 * math.pi) if full else losses
    return convert(reduced(name, losses, reduction), dtype)


_public_surface(globals())
