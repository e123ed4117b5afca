"""Optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdjax.core.array import Array
from amdjax.optim.base import GradientTransformation, chain, identity
from amdjax.optim.scaling import (
    add_decayed_weights,
    scale_by_adam,
    scale_by_learning_rate,
    scale_by_lion,
    scale_by_rms,
    trace,
)
from amdjax.optim.schedules import Schedule

__all__ = ["adam", "adamw", "lion", "rmsprop", "sgd"]

LearningRate = float | Array | Schedule
Mask = Any | Callable[[Any], Any] | None


def sgd(
    learning_rate: LearningRate,
    momentum: float | None = None,
    nesterov: bool = False,
    accumulator_dtype: Any = None,
) -> GradientTransformation:
    """Stochastic gradient descent, with momentum if wanted.

    Args:
      learning_rate: a number, or a schedule.
      momentum: how much of the decaying sum of gradients remains; None means no momentum.
      nesterov: whether the momentum looks one step ahead (Sutskever et al., 2013).
      accumulator_dtype: dtype of the sum; None means the parameters'.

        >>> from amdjax import optim
        >>> optimizer = optim.sgd(0.1)
        >>> optimizer.update(jnp.array([1.0]), optimizer.init(jnp.array([1.0])))[0]
        Array([-0.1], dtype=float32)
    """
    return chain(
        identity() if momentum is None else trace(momentum, nesterov, accumulator_dtype),
        scale_by_learning_rate(learning_rate),
    )


def adam(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam (Kingma & Ba, 2015).

    Args:
      learning_rate: a number, or a schedule.
      b1: how much of the mean gradient remains.
      b2: how much of the mean square remains.
      eps: added to the root of the mean square.
      eps_root: added to the mean square under the root.
      mu_dtype: dtype of the mean gradient; None means the parameters'.
      nesterov: whether to look one step ahead (Dozat, 2016).

    Raises:
      ValueError: `b1` or `b2` is not in [0, 1).

        >>> from amdjax import optim
        >>> optimizer = optim.adam(0.1)
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(jnp.array([1.0])))[0].round(5)
        Array([-0.1], dtype=float32)
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        scale_by_learning_rate(learning_rate),
    )


def adamw(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    weight_decay: float = 1e-4,
    mask: Mask = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam with weights that decay apart from the gradient (Loshchilov & Hutter, 2019).

    Args:
      learning_rate: a number, or a schedule.
      b1: how much of the mean gradient remains.
      b2: how much of the mean square remains.
      eps: added to the root of the mean square.
      eps_root: added to the mean square under the root.
      mu_dtype: dtype of the mean gradient; None means the parameters'.
      weight_decay: share of the weights, times the learning rate, lost in each update.
      mask: which parameters decay, as for `masked`; None means all.
      nesterov: whether to look one step ahead.

    Raises:
      ValueError: `b1` or `b2` is not in [0, 1).

        >>> from amdjax import optim
        >>> optimizer, w = optim.adamw(0.1, weight_decay=0.5), jnp.array([1.0])
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(w), w)[0].round(5)
        Array([-0.15], dtype=float32)
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def rmsprop(
    learning_rate: LearningRate,
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    momentum: float | None = None,
    nesterov: bool = False,
) -> GradientTransformation:
    """RMSProp (Tieleman & Hinton, 2012).

    Args:
      learning_rate: a number, or a schedule.
      decay: how much of the mean square remains.
      eps: added to it.
      initial_scale: the mean square at the start.
      eps_in_sqrt: whether `eps` is added before the root is taken, or after.
      centered: whether to subtract the squared mean (Graves, 2013).
      momentum: how much of the decaying sum of updates remains; None means no momentum.
      nesterov: whether the momentum looks one step ahead.

    Raises:
      ValueError: `decay` is not in [0, 1).

        >>> from amdjax import optim
        >>> optimizer = optim.rmsprop(0.1, decay=0.75)
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(jnp.array([1.0])))[0].round(5)
        Array([-0.2], dtype=float32)
    """
    return chain(
        scale_by_rms(decay, eps, initial_scale, eps_in_sqrt, centered=centered),
        scale_by_learning_rate(learning_rate),
        identity() if momentum is None else trace(momentum, nesterov),
    )


def lion(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.99,
    mu_dtype: Any = None,
    weight_decay: float = 1e-3,
    mask: Mask = None,
) -> GradientTransformation:
    """Lion: the sign of the momentum (Chen et al., 2023).

    Args:
      learning_rate: a number, or a schedule; a third to a tenth of what Adam would take.
      b1: share of the mean gradient in what the sign is taken of.
      b2: how much of the mean gradient remains.
      mu_dtype: dtype of the mean gradient; None means the parameters'.
      weight_decay: share of the weights, times the learning rate, lost in each update.
      mask: which parameters decay, as for `masked`; None means all.

    Raises:
      ValueError: `b1` or `b2` is not in [0, 1).

        >>> from amdjax import optim
        >>> optimizer, w = optim.lion(0.1, weight_decay=0.0), jnp.array([1.0])
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(w), w)[0]
        Array([-0.1], dtype=float32)
    """
    return chain(
        scale_by_lion(b1, b2, mu_dtype),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )
