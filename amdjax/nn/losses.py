"""Losses: how far predictions are from what was wanted."""

from __future__ import annotations

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.errors import public_surface as _public_surface
from amdjax.nn.functions import log_sigmoid, log_softmax
from amdjax.numpy._util import (
    ArrayLike,
    as_arrays,
    broadcast_to,
    canonical_axis,
    promote_args_inexact,
)

__all__ = ["huber", "mae", "mse", "sigmoid_cross_entropy", "softmax_cross_entropy"]

REDUCTIONS = ("mean", "sum", "none")


def _reduced(name: str, losses: Array, reduction: str) -> Array:
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}: reduction must be one of {REDUCTIONS}, got {reduction!r}.")
    if reduction == "none":
        return losses
    return jnp.mean(losses) if reduction == "mean" else jnp.sum(losses)


def _same_shape(name: str, predictions: Array, targets: Array) -> None:
    if predictions.shape != targets.shape:
        raise ValueError(
            f"{name}: predictions and targets must have the same shape, got {predictions.shape} "
            f"and {targets.shape}."
        )


def softmax_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Array:
    """`-log softmax(logits)` of the labeled classes.

    Args:
      logits: unnormalized log-probabilities, floating-point.
      labels: class numbers, integers of the shape of `logits` without `axis` (numbers that are no
        class contribute nothing); or probabilities of all classes, in the shape of `logits`.
      axis: the axis of the classes.
      label_smoothing: share of each label that is spread evenly over all classes (Szegedy et al.,
        2016).
      reduction: "mean", "sum" or "none".

    Returns:
      A scalar, or the losses of the examples if `reduction` is "none".

    Raises:
      ValueError: the shapes do not fit, or `reduction` or `label_smoothing` has no such value.

        >>> nn.softmax_cross_entropy(jnp.array([[0.0, 0.0], [3.0, -3.0]]), jnp.array([0, 0]))
        Array(0.3478..., dtype=float32)
    """
    name = "softmax_cross_entropy"
    logits, labels = as_arrays(name, logits, labels)
    (logits,) = promote_args_inexact(name, logits)
    axis = canonical_axis(axis, logits.ndim)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{name}: label_smoothing must lie in [0, 1], got {label_smoothing!r}.")
    if dtypes.issubdtype(labels.dtype, np.integer):
        expected = (*logits.shape[:axis], *logits.shape[axis + 1 :])
        if labels.shape != expected:
            raise ValueError(
                f"{name}: integer labels must have the shape of logits without the class axis, "
                f"{expected}, got {labels.shape}."
            )
        losses = _integer_cross_entropy(logits, labels, axis, label_smoothing)
    else:
        if labels.shape != logits.shape:
            raise ValueError(
                f"{name}: labels must be integers or probabilities in the shape of logits, "
                f"{logits.shape}, got {labels.dtype} of shape {labels.shape}."
            )
        losses = _cross_entropy(logits, labels, axis, label_smoothing)
    return _reduced(name, losses, reduction)


@composite(static_argnames=("axis", "smoothing"))
def _integer_cross_entropy(logits: Array, labels: Array, axis: int, smoothing: float) -> Array:
    log_p = log_softmax(logits, axis)
    # A comparison fuses with the softmax and its gradient, where a gather would be two more passes.
    classes = lax.broadcasted_iota(labels.dtype, logits.shape, axis)
    chosen = lax.eq(classes, broadcast_to(lax.expand_dims(labels, (axis,)), logits.shape))
    loss = -jnp.sum(jnp.where(chosen, log_p, 0), axis)
    if not smoothing:
        return loss
    known = (labels >= 0) & (labels < logits.shape[axis])
    spread = jnp.where(known, -jnp.mean(log_p, axis), 0)
    return (1 - smoothing) * loss + smoothing * spread


@composite(static_argnames=("axis", "smoothing"))
def _cross_entropy(logits: Array, labels: Array, axis: int, smoothing: float) -> Array:
    if smoothing:
        labels = (1 - smoothing) * labels + smoothing / logits.shape[axis]
    return -jnp.sum(labels * log_softmax(logits, axis), axis)


def sigmoid_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, reduction: str = "mean"
) -> Array:
    """Cross-entropy of independent yes-or-no decisions.

    Args:
      logits: log-odds, floating-point.
      labels: 0, 1, or probabilities in between, in the shape of `logits`.
      reduction: "mean", "sum" or "none".

    Returns:
      A scalar, or the losses of all decisions if `reduction` is "none".

    Raises:
      ValueError: the shapes differ, or there is no such `reduction`.

        >>> nn.sigmoid_cross_entropy(jnp.array([0.0, 2.0]), jnp.array([1, 1]))
        Array(0.410..., dtype=float32)
    """
    logits, labels = promote_args_inexact("sigmoid_cross_entropy", logits, labels)
    _same_shape("sigmoid_cross_entropy", logits, labels)
    losses = -labels * log_sigmoid(logits) - (1 - labels) * log_sigmoid(-logits)
    return _reduced("sigmoid_cross_entropy", losses, reduction)


def mse(predictions: ArrayLike, targets: ArrayLike, *, reduction: str = "mean") -> Array:
    """Squared differences.

    >>> nn.mse(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]))
    Array(2., dtype=float32)
    """
    predictions, targets = promote_args_inexact("mse", predictions, targets)
    _same_shape("mse", predictions, targets)
    return _reduced("mse", jnp.square(predictions - targets), reduction)


def mae(predictions: ArrayLike, targets: ArrayLike, *, reduction: str = "mean") -> Array:
    """Absolute differences.

    >>> nn.mae(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]))
    Array(1., dtype=float32)
    """
    predictions, targets = promote_args_inexact("mae", predictions, targets)
    _same_shape("mae", predictions, targets)
    return _reduced("mae", jnp.abs(predictions - targets), reduction)


def huber(
    predictions: ArrayLike, targets: ArrayLike, *, delta: float = 1.0, reduction: str = "mean"
) -> Array:
    """Half the squared difference up to `delta`, linear beyond (Huber, 1964).

    Args:
      delta: where the loss becomes linear; positive.

        >>> nn.huber(jnp.array([0.0, 0.0]), jnp.array([1.0, 3.0]), reduction="none")
        Array([0.5, 2.5], dtype=float32)
    """
    predictions, targets = promote_args_inexact("huber", predictions, targets)
    _same_shape("huber", predictions, targets)
    distance = jnp.abs(predictions - targets)
    near = jnp.minimum(distance, delta)
    return _reduced("huber", near * (distance - 0.5 * near), reduction)


_public_surface(globals())
