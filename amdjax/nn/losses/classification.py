"""Losses of probabilities: cross-entropies and their kin."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.nn._arguments import check_integer, check_no_complex, check_share, widened
from amdjax.nn.functions import log_sigmoid, log_softmax, sigmoid
from amdjax.nn.losses._reduction import check_same_shape, promote_reals, reduced
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    as_arrays,
    broadcast_to,
    canonical_axis,
    convert,
)
from amdjax.transforms import custom_jvp

__all__ = [
    "binary_cross_entropy", "focal_loss", "kl_divergence", "nll_loss", "sigmoid_cross_entropy",
    "softmax_cross_entropy",
]  # fmt: skip


def softmax_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, axis: int = -1, weight: ArrayLike | None = None,
    ignore_index: int | None = None, label_smoothing: float = 0.0, reduction: str = "mean",
) -> Array:  # fmt: skip
    """`-log softmax(logits)` of the labeled classes.

    Args:
      logits: unnormalized log-probabilities, floating-point.
      labels: class numbers, integers of the shape of `logits` without `axis`; or probabilities of
        all classes, in the shape of `logits`. Numbers that are no class do not count: their loss is
        0, and "mean" divides by the others.
      axis: the axis of the classes.
      weight: factor of each class, `(classes,)`. With class numbers, "mean" divides by the sum of
        the labels' weights; with probabilities, by the number of examples.
      label_smoothing: share of each label that is spread evenly over all classes (Szegedy et al.,
        2016).

    Raises:
      ValueError: the shapes do not fit, or `reduction` or `label_smoothing` has no such value, or
        `ignore_index` is given beside probabilities.

        >>> nn.softmax_cross_entropy(jnp.array([[0.0, 0.0], [3.0, -3.0]]), jnp.array([0, 0]))
        Array(0.3478..., dtype=float32)
        >>> nn.softmax_cross_entropy(jnp.zeros((2, 3)), jnp.array([1, -1]))
        Array(1.0986..., dtype=float32)
    """
    name = "softmax_cross_entropy"
    logits, labels = as_arrays(name, logits, labels)
    (logits,) = promote_reals(name, logits)
    axis = canonical_axis(axis, logits.ndim)
    check_share(name, "label_smoothing", label_smoothing)
    factors = _class_weights(name, weight, logits, axis)
    if dtypes.issubdtype(labels.dtype, np.integer):
        _check_class_numbers(name, "logits", logits, labels, axis, ignore_index)
        return _class_numbers(
            name, logits, labels, factors, ignore_index, axis, label_smoothing, reduction, False
        )
    if labels.shape != logits.shape:
        raise ValueError(
            f"{name}: labels must be integers or probabilities in the shape of logits, "
            f"{logits.shape}, got {labels.dtype} of shape {labels.shape}."
        )
    if ignore_index is not None:
        raise ValueError(f"{name}: ignore_index goes with integer labels, got {labels.dtype}.")
    return _probabilities(name, logits, labels, factors, axis, label_smoothing, reduction)


def nll_loss(
    log_probabilities: ArrayLike, labels: ArrayLike, *, axis: int = -1,
    weight: ArrayLike | None = None, ignore_index: int | None = None, reduction: str = "mean",
) -> Array:  # fmt: skip
    """The negative log-likelihood: minus the log-probabilities of the labeled classes.

    Args:
      log_probabilities: as `log_softmax` gives them, floating-point.
      labels: class numbers, integers of the shape of `log_probabilities` without `axis`. Numbers
        that are no class do not count: their loss is 0, and "mean" divides by the others.
      axis: the axis of the classes.
      weight: factor of each class, `(classes,)`; "mean" divides by the sum of the labels' weights.

        >>> nn.nll_loss(jnp.log(jnp.array([[0.25, 0.75]])), jnp.array([1]))
        Array(0.2876..., dtype=float32)
    """
    name = "nll_loss"
    log_p, labels = as_arrays(name, log_probabilities, labels)
    (log_p,) = promote_reals(name, log_p)
    axis = canonical_axis(axis, log_p.ndim)
    if not dtypes.issubdtype(labels.dtype, np.integer):
        raise TypeError(f"{name}: labels must be integers, got {labels.dtype}.")
    _check_class_numbers(name, "log_probabilities", log_p, labels, axis, ignore_index)
    factors = _class_weights(name, weight, log_p, axis)
    return _class_numbers(name, log_p, labels, factors, ignore_index, axis, 0.0, reduction, True)


def _check_class_numbers(
    name: str, what: str, logits: Array, labels: Array, axis: int, ignore_index: Any
) -> None:
    if ignore_index is not None:
        check_integer(name, "ignore_index", ignore_index)
    expected = (*logits.shape[:axis], *logits.shape[axis + 1 :])
    if labels.shape != expected:
        raise ValueError(
            f"{name}: integer labels must have the shape of {what} without the class axis, "
            f"{expected}, got {labels.shape}."
        )


def _class_weights(name: str, weight: Any, logits: Array, axis: int) -> Array | None:
    """Weights of the classes, in the dtype of `logits`."""
    if weight is None:
        return None
    weight = as_array(name, weight)
    check_no_complex(name, weight, "weight")
    if weight.shape != (logits.shape[axis],):
        raise ValueError(
            f"{name}: weight must have one element a class, ({logits.shape[axis]},), got "
            f"{weight.shape}."
        )
    return convert(weight, logits.dtype)


def _along(axis: int, weight: Array, logits: Array) -> Array:
    """Weights of the classes in the shape of `logits`."""
    others = [i for i in range(logits.ndim) if i != axis]
    return broadcast_to(lax.expand_dims(weight, others), logits.shape)


@composite(static_argnames=("name", "axis", "smoothing", "reduction", "normalized"))
def _class_numbers(
    name: str, logits: Array, labels: Array, weight: Array | None, ignore_index: Any, axis: int,
    smoothing: float, reduction: str, normalized: bool,
) -> Array:  # fmt: skip
    # Narrow or unsigned integers may not hold all class numbers, nor one that is no class.
    labels = convert(labels, np.int64 if labels.dtype.itemsize == 8 else np.int32)
    known = (labels >= 0) & (labels < logits.shape[axis])
    if ignore_index is not None:
        known &= labels != ignore_index
        labels = jnp.where(known, labels, -1)
    if normalized:
        at = lax.expand_dims(labels, (axis,))
        picked = jnp.take_along_axis(logits, at, axis, "fill", 0, wrap_negative_indices=False)
        losses = -lax.squeeze(picked, (axis,))
        if weight is None:
            return reduced(name, losses, reduction, known)
        counts = jnp.where(known, jnp.take(weight, labels, mode="clip"), 0)
        return reduced(name, losses * counts, reduction, counts)
    # A comparison fuses with the softmax and its gradient, where a gather would be two more passes.
    log_p = log_softmax(logits, axis)
    classes = lax.broadcasted_iota(labels.dtype, logits.shape, axis)
    chosen = lax.eq(classes, broadcast_to(lax.expand_dims(labels, (axis,)), logits.shape))
    weight = None if weight is None else _along(axis, weight, logits)
    weighted = log_p if weight is None else log_p * weight
    losses = -jnp.sum(jnp.where(chosen, weighted, 0), axis)
    if smoothing:
        spread = jnp.where(known, -jnp.mean(weighted, axis), 0)
        losses = (1 - smoothing) * losses + smoothing * spread
    counts = known if weight is None else jnp.sum(jnp.where(chosen, weight, 0), axis)
    return reduced(name, losses, reduction, counts)


@composite(static_argnames=("name", "axis", "smoothing", "reduction"))
def _probabilities(
    name: str, logits: Array, labels: Array, weight: Array | None, axis: int, smoothing: float,
    reduction: str,
) -> Array:  # fmt: skip
    if smoothing:
        labels = (1 - smoothing) * labels + smoothing / logits.shape[axis]
    if weight is not None:
        labels = labels * _along(axis, weight, logits)
    return reduced(name, -jnp.sum(labels * log_softmax(logits, axis), axis), reduction)


@composite(static_argnames="reduction")
def sigmoid_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, weight: ArrayLike | None = None,
    pos_weight: ArrayLike | None = None, reduction: str = "mean",
) -> Array:  # fmt: skip
    """Cross-entropy of independent yes-or-no decisions.

    Args:
      weight: factor of each loss; broadcasts to `logits`.
      pos_weight: factor of what a label of 1 costs; broadcasts to `logits`.

        >>> nn.sigmoid_cross_entropy(jnp.array([0.0, 2.0]), jnp.array([1, 1]))
        Array(0.410..., dtype=float32)
    """
    name = "sigmoid_cross_entropy"
    logits, labels = promote_reals(name, logits, labels)
    check_same_shape(name, logits=logits, labels=labels)
    yes = _factor(name, "pos_weight", pos_weight, labels)
    losses = -yes * log_sigmoid(logits) - (1 - labels) * log_sigmoid(-logits)
    return reduced(name, _factor(name, "weight", weight, losses), reduction)


def _factor(name: str, argument: str, factor: Any, x: Array) -> Array:
    """`factor * x`, in the dtype of `x`."""
    if factor is None:
        return x
    factor = as_array(name, factor)
    check_no_complex(name, factor, argument)
    try:
        return convert(broadcast_to(factor, x.shape), x.dtype) * x
    except ValueError:
        raise ValueError(
            f"{name}: {argument} must broadcast to the shape {x.shape}, got {factor.shape}."
        ) from None


@custom_jvp
def _binary_cross_entropy(p: Array, labels: Array) -> Array:
    # A certain and wrong prediction costs 100 rather than infinity.
    yes, no = jnp.maximum(jnp.log(p), -100), jnp.maximum(jnp.log1p(-p), -100)
    return -labels * yes - (1 - labels) * no


def _binary_cross_entropy_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    p, labels = primals
    slope = (p - labels) / jnp.maximum((1 - p) * p, 1e-12)
    yes, no = jnp.maximum(jnp.log(p), -100), jnp.maximum(jnp.log1p(-p), -100)
    return _binary_cross_entropy(p, labels), slope * tangents[0] + (no - yes) * tangents[1]


_binary_cross_entropy.defjvp(_binary_cross_entropy_jvp)


@composite(static_argnames="reduction")
def binary_cross_entropy(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    reduction: str = "mean",
) -> Array:
    """Cross-entropy of yes-or-no decisions whose probabilities are known.

    Where there are log-odds, `sigmoid_cross_entropy` is more accurate. Logarithms below -100 count
    as -100, and the slope stays finite at 0 and 1.

    Args:
      probabilities: of yes, between 0 and 1.
      labels: 0, 1, or probabilities in between, of the same shape.
      weight: factor of each loss; broadcasts to `probabilities`.

        >>> nn.binary_cross_entropy(jnp.array([0.5, 0.25]), jnp.array([1, 0]), reduction="none")
        Array([0.6931472 , 0.28768206], dtype=float32)
    """
    name = "binary_cross_entropy"
    p, labels = promote_reals(name, probabilities, labels)
    check_same_shape(name, probabilities=p, labels=labels)
    losses = _binary_cross_entropy(widened(p), widened(labels))
    losses = reduced(name, _factor(name, "weight", weight, losses), reduction)
    return convert(losses, p.dtype)


@composite(static_argnames="reduction")
def focal_loss(
    logits: ArrayLike, labels: ArrayLike, *, alpha: float | None = 0.25, gamma: float = 2.0,
    reduction: str = "mean",
) -> Array:  # fmt: skip
    """`sigmoid_cross_entropy` that counts easy decisions less (Lin et al., 2017).

    The loss of a decision whose right answer has probability p is `-(1 - p)**gamma * log(p)`.

    Args:
      alpha: factor where the label is 1, and `1 - alpha` where it is 0; None means none.
      gamma: how much less; 0 gives the cross-entropy.

        >>> nn.focal_loss(jnp.array([0.0, 5.0]), jnp.array([1, 1]), reduction="none").round(5)
        Array([0.04332, 0.     ], dtype=float32)
    """
    name = "focal_loss"
    logits, labels = promote_reals(name, logits, labels)
    check_same_shape(name, logits=logits, labels=labels)
    losses = -labels * log_sigmoid(logits) - (1 - labels) * log_sigmoid(-logits)
    # `1 - p` without the cancellation where p is almost 1.
    missed = labels * sigmoid(-logits) + (1 - labels) * sigmoid(logits)
    # No slope where nothing is missed: that of a root there would be infinite.
    easy = missed == 0
    losses = losses * jnp.where(easy, gamma == 0, jnp.where(easy, 1, missed) ** gamma)
    if alpha is not None:
        losses = losses * (alpha * labels + (1 - alpha) * (1 - labels))
    return reduced(name, losses, reduction)


@composite(static_argnames=("axis", "log_targets", "reduction"))
def kl_divergence(
    log_predictions: ArrayLike, targets: ArrayLike, *, axis: int = -1, log_targets: bool = False,
    reduction: str = "mean",
) -> Array:  # fmt: skip
    """The Kullback-Leibler divergence of the predicted distribution from the target.

    Args:
      log_predictions: logarithms of the predicted probabilities.
      targets: the probabilities wanted, in the same shape.
      axis: the axis of the classes, over which the terms are summed.
      log_targets: whether `targets` are logarithms, too.
      reduction: "mean" over the distributions, "sum" or "none".

    Returns:
      A scalar, or the divergences of all distributions if `reduction` is "none".

        >>> even = jnp.log(jnp.array([[0.5, 0.5]]))
        >>> nn.kl_divergence(even, jnp.array([[1.0, 0.0]]))
        Array(0.6931472, dtype=float32)
    """
    name = "kl_divergence"
    log_q, p = promote_reals(name, log_predictions, targets)
    check_same_shape(name, log_predictions=log_q, targets=p)
    if log_targets:
        terms = jnp.exp(p) * (p - log_q)
    else:
        terms = p * (jnp.log(jnp.where(p == 0, 1, p)) - log_q)
    return reduced(name, jnp.sum(terms, axis), reduction)


_public_surface(globals())
