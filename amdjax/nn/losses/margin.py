"""Losses that want a margin between what is right and what is not."""

from __future__ import annotations

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.nn._arguments import check_no_complex, widened
from amdjax.nn.functions import softplus
from amdjax.nn.losses._reduction import check_same_shape, positive_part, promote_reals, reduced
from amdjax.nn.losses.classification import sigmoid_cross_entropy
from amdjax.numpy._util import ArrayLike, as_array, convert

__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "soft_margin_loss",
    "triplet_margin_loss",
]  # fmt: skip


@composite(static_argnames="reduction")
def soft_margin_loss(
    predictions: ArrayLike, targets: ArrayLike, *, reduction: str = "mean"
) -> Array:
    """`log(1 + exp(-targets * predictions))` of two classes.

    Args:
      targets: 1 or -1, in the shape of `predictions`.

        >>> nn.soft_margin_loss(jnp.array([0.0, 2.0]), jnp.array([1, -1]), reduction="none")
        Array([0.6931472, 2.126928 ], dtype=float32)
    """
    x, y = promote_reals("soft_margin_loss", predictions, targets)
    check_same_shape("soft_margin_loss", predictions=x, targets=y)
    return reduced("soft_margin_loss", softplus(-y * x), reduction)


def _rows(
    name: str, predictions: ArrayLike, labels: ArrayLike, of_classes: bool
) -> tuple[Array, Array]:
    """Scores `(..., classes)` and integer labels, one a row or a row as long."""
    (x,) = promote_reals(name, predictions)
    labels = as_array(name, labels)
    if not dtypes.issubdtype(labels.dtype, np.integer):
        raise TypeError(f"{name}: labels must be integers, got {labels.dtype}.")
    expected = x.shape if of_classes else x.shape[:-1]
    if not x.ndim or labels.shape != expected:
        raise ValueError(
            f"{name}: labels for predictions of shape {x.shape} must have shape {expected}, got "
            f"{labels.shape}."
        )
    return x, convert(labels, np.int64 if labels.dtype.itemsize == 8 else np.int32)


@composite(static_argnames=("p", "reduction"))
def multi_margin_loss(
    predictions: ArrayLike, labels: ArrayLike, *, p: int = 1, margin: float = 1.0,
    weight: ArrayLike | None = None, reduction: str = "mean",
) -> Array:  # fmt: skip
    """The mean over classes of `max(0, margin - score of the label + score of the class)**p`.

    (Crammer & Singer, 2001.) Labels that are no class cost nothing.

    Args:
      labels: class numbers, integers of shape `(...)`.
      p: 1 or 2.
      margin: by how much the label's score must exceed the others.
      weight: factor of the examples of each class, `(classes,)`.

    Raises:
      TypeError: the labels are no integers.
      ValueError: the shapes do not fit, or `p` or `reduction` has no such value.

        >>> nn.multi_margin_loss(jnp.array([[0.1, 0.2, 0.4, 0.8]]), jnp.array([3]))
        Array(0.325..., dtype=float32)
    """
    name = "multi_margin_loss"
    x, numbers = _rows(name, predictions, labels, of_classes=False)
    if p not in (1, 2):
        raise ValueError(f"{name}: p must be 1 or 2, got {p!r}.")
    classes = lax.broadcasted_iota(numbers.dtype, x.shape, x.ndim - 1)
    chosen = classes == numbers[..., None]
    score = jnp.sum(jnp.where(chosen, x, 0), -1, keepdims=True)
    known = (numbers >= 0) & (numbers < x.shape[-1])
    # Not `positive_part`: a class that keeps the margin exactly is no longer pushed.
    short = margin - score + x
    terms = jnp.where((short > 0) & ~chosen & known[..., None], short, 0)
    losses = jnp.sum(terms if p == 1 else terms * terms, -1) / x.shape[-1]
    if weight is not None:
        weight = as_array(name, weight)
        check_no_complex(name, weight, "weight")
        if weight.shape != x.shape[-1:]:
            raise ValueError(
                f"{name}: weight must have one element a class, {x.shape[-1:]}, got {weight.shape}."
            )
        losses = losses * jnp.sum(jnp.where(chosen, convert(weight, x.dtype), 0), -1)
    return reduced(name, losses, reduction)


@composite(static_argnames="reduction")
def multilabel_margin_loss(
    predictions: ArrayLike, labels: ArrayLike, *, reduction: str = "mean"
) -> Array:
    """The mean over classes of `max(0, 1 - (score of a label - score of a class that is none))`.

    Args:
      labels: for each example its class numbers, integers of shape `(..., classes)`; what follows
        the first negative one is not read.

        >>> x = jnp.array([[0.1, 0.2, 0.4, 0.8]])
        >>> nn.multilabel_margin_loss(x, jnp.array([[3, 0, -1, 1]]))
        Array(0.85, dtype=float32)
    """
    name = "multilabel_margin_loss"
    x, listed = _rows(name, predictions, labels, of_classes=True)
    read = jnp.cumsum(listed < 0, -1) == 0
    listed = jnp.where(read, listed, -1)
    classes = lax.broadcasted_iota(listed.dtype, (*x.shape, x.shape[-1]), x.ndim)
    times = jnp.sum(listed[..., None] == classes, -2)  # how often a class is a label
    short = 1 - (x[..., :, None] - x[..., None, :])
    short = jnp.where(short > 0, short, 0)  # no slope where the margin is kept exactly
    counts = jnp.where(times[..., None, :] == 0, times[..., :, None], 0)
    losses = jnp.sum(convert(counts, x.dtype) * short, (-2, -1)) / x.shape[-1]
    return reduced(name, losses, reduction)


@composite(static_argnames="reduction")
def multilabel_soft_margin_loss(
    predictions: ArrayLike,
    targets: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    reduction: str = "mean",
) -> Array:
    """The mean over classes of `sigmoid_cross_entropy`.

    Args:
      predictions: log-odds, `(..., classes)`.
      targets: 0 or 1, of the same shape.
      weight: factor of each class; broadcasts to `predictions`.

        >>> nn.multilabel_soft_margin_loss(jnp.zeros((1, 2)), jnp.array([[1, 0]]))
        Array(0.6931472, dtype=float32)
    """
    losses = sigmoid_cross_entropy(predictions, targets, weight=weight, reduction="none")
    return reduced("multilabel_soft_margin_loss", jnp.mean(losses, -1), reduction)


@composite(static_argnames="reduction")
def hinge_embedding_loss(
    distances: ArrayLike, targets: ArrayLike, *, margin: float = 1.0, reduction: str = "mean"
) -> Array:
    """The distance of pairs that belong together, `max(0, margin - distance)` of the others.

    Args:
      distances: of the two of each pair.
      targets: 1 if they belong together, else -1; of the same shape.
      margin: how far apart those should be that do not.

        >>> nn.hinge_embedding_loss(jnp.array([0.3, 0.3]), jnp.array([1, -1]), reduction="none")
        Array([0.3, 0.7], dtype=float32)
    """
    x, y = promote_reals("hinge_embedding_loss", distances, targets)
    check_same_shape("hinge_embedding_loss", distances=x, targets=y)
    together, apart = jnp.where(y == -1, 0, x), jnp.where(y == 1, 0, positive_part(margin - x))
    return reduced("hinge_embedding_loss", together + apart, reduction)


@composite(static_argnames="reduction")
def margin_ranking_loss(
    first: ArrayLike, second: ArrayLike, targets: ArrayLike, *, margin: float = 0.0,
    reduction: str = "mean",
) -> Array:  # fmt: skip
    """`max(0, -targets * (first - second) + margin)`.

    Args:
      first: scores.
      second: scores to compare with, in the same shape.
      targets: 1 where the first should be higher, -1 where the second should; of the same shape.
      margin: by how much.

        >>> nn.margin_ranking_loss(jnp.array([1.0]), jnp.array([3.0]), jnp.array([1]))
        Array(2., dtype=float32)
    """
    name = "margin_ranking_loss"
    first, second, targets = promote_reals(name, first, second, targets)
    check_same_shape(name, first=first, second=second, targets=targets)
    return reduced(name, positive_part(-targets * (first - second) + margin), reduction)


@composite(static_argnames="reduction")
def cosine_embedding_loss(
    first: ArrayLike, second: ArrayLike, targets: ArrayLike, *, margin: float = 0.0,
    reduction: str = "mean",
) -> Array:  # fmt: skip
    """One less the cosine of vectors that belong together, `max(0, cosine - margin)` of others.

    Args:
      first: vectors, `(..., features)`.
      second: vectors, in the same shape.
      targets: 1 if they belong together, else -1; `(...)`.
      margin: how alike those may be that do not.

    Returns:
      A scalar, or the losses of the pairs if `reduction` is "none".

    Raises:
      ValueError: the shapes do not fit, or there is no such `reduction`.

        >>> x, y = jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 2.0]])
        >>> nn.cosine_embedding_loss(x, y, jnp.array([1]))
        Array(1., dtype=float32)
    """
    name = "cosine_embedding_loss"
    first, second = promote_reals(name, first, second)
    targets = as_array(name, targets)
    check_same_shape(name, first=first, second=second)
    if targets.shape != first.shape[:-1]:
        raise ValueError(
            f"{name}: targets must have the shape of first without its last axis, "
            f"{first.shape[:-1]}, got {targets.shape}."
        )
    dtype, first, second = first.dtype, widened(first), widened(second)
    product = jnp.sum(first * second, -1)
    # So that vectors of length zero are perpendicular to all.
    lengths = [jnp.sqrt(jnp.sum(v * v, -1) + 1e-12) for v in (first, second)]
    cosine = product / lengths[0] / lengths[1]
    together = jnp.where(targets == 1, 1 - cosine, 0)
    apart = jnp.where(targets == -1, positive_part(cosine - margin), 0)
    return convert(reduced(name, together + apart, reduction), dtype)


@composite(static_argnames=("p", "swap", "reduction"))
def triplet_margin_loss(
    anchor: ArrayLike, positive: ArrayLike, negative: ArrayLike, *, margin: float = 1.0,
    p: float = 2.0, epsilon: float = 1e-6, swap: bool = False, reduction: str = "mean",
) -> Array:  # fmt: skip
    """How much the anchor is not nearer, by a margin, to its like than to another (Balntas, 2016).

    Args:
      anchor: vectors, `(..., features)`.
      positive: what should be near the anchor, in the same shape.
      negative: what should be far from it, in the same shape.
      margin: by how much farther.
      p: the order of the norm.
      epsilon: added to differences, so that the norm has a slope at 0.
      swap: use the distance of `negative` from `positive` where it is smaller.

    Returns:
      A scalar, or the losses of the triplets if `reduction` is "none".

        >>> a, near, far = jnp.zeros((1, 2)), jnp.array([[3.0, 4.0]]), jnp.array([[6.0, 8.0]])
        >>> nn.triplet_margin_loss(a, near, far, margin=7.0)
        Array(2., dtype=float32)
    """
    name = "triplet_margin_loss"
    a, b, c = promote_reals(name, anchor, positive, negative)
    check_same_shape(name, anchor=a, positive=b, negative=c)
    dtype, a, b, c = a.dtype, *map(widened, (a, b, c))
    distance = lambda x, y: jnp.linalg.norm(x - y + epsilon, ord=p, axis=-1)
    far = distance(a, c)
    if swap:
        far = jnp.minimum(far, distance(b, c))
    losses = positive_part(margin + distance(a, b) - far)
    return convert(reduced(name, losses, reduction), dtype)


_public_surface(globals())
