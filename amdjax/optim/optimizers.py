"""Optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.optim.adaptive import (
    scale_by_adadelta,
    scale_by_adam,
    scale_by_adamax,
    scale_by_amsgrad,
    scale_by_factored_rms,
    scale_by_lion,
    scale_by_radam,
    scale_by_rms,
    scale_by_rss,
)
from amdjax.optim.base import GradientTransformation, chain, identity, masked
from amdjax.optim.clipping import clip_by_block_rms
from amdjax.optim.scaling import (
    add_decayed_weights,
    ema,
    scale,
    scale_by_learning_rate,
    scale_by_param_block_rms,
    scale_by_trust_ratio,
    trace,
)
from amdjax.optim.schedules import Schedule

__all__ = [
    "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "amsgrad", "lamb", "lars",
    "lion", "nadam", "nadamw", "radam", "rmsprop", "sgd",
]  # fmt: skip

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
      momentum: how much of the decaying sum of gradients remains; None means no momentum.
      nesterov: whether the momentum looks one step ahead (Sutskever et al., 2013).

        >>> optimizer = optim.sgd(0.1)
        >>> optimizer.update(jnp.array([1.0]), optimizer.init(jnp.array([1.0])))[0]
        Array([-0.1], dtype=float32)
    """
    return chain(
        identity() if momentum is None else trace(momentum, nesterov, accumulator_dtype),
        scale_by_learning_rate(learning_rate),
    )


def adam(
    learning_rate: LearningRate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
    eps_root: float = 0.0, mu_dtype: Any = None, *, nesterov: bool = False,
    bias_correction: bool = True,
) -> GradientTransformation:  # fmt: skip
    """Adam (Kingma & Ba, 2015).

    Args:
      bias_correction: whether both means are freed of their start at zero; without, there is no
        `nesterov`.

        >>> optimizer = optim.adam(0.1)
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(jnp.array([1.0])))[0].round(5)
        Array([-0.1], dtype=float32)
    """
    how = {"nesterov": nesterov, "bias_correction": bias_correction}
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, **how),
        scale_by_learning_rate(learning_rate),
    )


def nadam(
    learning_rate: LearningRate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
    eps_root: float = 0.0, mu_dtype: Any = None,
) -> GradientTransformation:  # fmt: skip
    """Adam that looks one step ahead (Dozat, 2016).

    `b1` is the same in all updates, as in optax; in PyTorch it grows toward the given one.

    >>> optimizer = optim.nadam(0.1)
    >>> optimizer.update(jnp.array([5.0]), optimizer.init(jnp.array([1.0])))[0].round(3)
    Array([-0.147], dtype=float32)
    """
    return adam(learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov=True)


def adamw(
    learning_rate: LearningRate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
    eps_root: float = 0.0, mu_dtype: Any = None, weight_decay: float | Array | Schedule = 1e-4,
    mask: Mask = None, *, nesterov: bool = False, bias_correction: bool = True,
) -> GradientTransformation:  # fmt: skip
    """Adam with weights that decay apart from the gradient (Loshchilov & Hutter, 2019).

    Args:
      bias_correction: whether both means are freed of their start at zero; without, there is no
        `nesterov`.

        >>> optimizer, w = optim.adamw(0.1, weight_decay=0.5), jnp.array([1.0])
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(w), w)[0].round(5)
        Array([-0.15], dtype=float32)
    """
    how = {"nesterov": nesterov, "bias_correction": bias_correction}
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, **how),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def nadamw(
    learning_rate: LearningRate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
    eps_root: float = 0.0, mu_dtype: Any = None, weight_decay: float | Array | Schedule = 1e-4,
    mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """`adamw` that looks one step ahead (Dozat, 2016).

    >>> optimizer, w = optim.nadamw(0.1, weight_decay=0.5), jnp.array([1.0])
    >>> optimizer.update(jnp.array([0.0]), optimizer.init(w), w)[0]
    Array([-0.05], dtype=float32)
    """
    return adamw(learning_rate, b1, b2, eps, eps_root, mu_dtype, weight_decay, mask, nesterov=True)


def amsgrad(
    learning_rate: LearningRate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
    eps_root: float = 0.0, mu_dtype: Any = None, bias_correction_mu: bool = True,
    bias_correction_nu: bool = True, *, correct_largest: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Adam whose steps in a direction never grow: by the largest mean square (Reddi et al., 2018).

    Args:
      bias_correction_mu: whether the mean gradient is freed of its start at zero.
      bias_correction_nu: whether the mean square is.
      correct_largest: whether the largest of mean squares as they are is freed of their start, as
        in PyTorch and MIOpen, rather than the largest taken of freed ones, as in optax.

        >>> optimizer = optim.amsgrad(0.1)
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(jnp.array([1.0])))[0].round(5)
        Array([-0.1], dtype=float32)
    """
    correct = bias_correction_mu, bias_correction_nu
    return chain(
        scale_by_amsgrad(
            b1, b2, eps, eps_root, mu_dtype, *correct, correct_largest=correct_largest
        ),
        scale_by_learning_rate(learning_rate),
    )


def adamax(
    learning_rate: LearningRate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> GradientTransformation:
    """Adam by the largest gradient of late in place of the mean square (Kingma & Ba, 2015).

    Args:
      b2: how much of the largest gradient remains.
      eps: added to the size of each gradient.

        >>> optimizer = optim.adamax(0.1)
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(jnp.array([1.0])))[0].round(5)
        Array([-0.1], dtype=float32)
    """
    return chain(scale_by_adamax(b1, b2, eps), scale_by_learning_rate(learning_rate))


def radam(
    learning_rate: LearningRate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
    eps_root: float = 0.0, threshold: float = 5.0, *, nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Adam that needs no warm-up (Liu et al., 2020).

    >>> optimizer = optim.radam(0.1)
    >>> optimizer.update(jnp.array([5.0]), optimizer.init(jnp.array([1.0])))[0].round(5)
    Array([-0.5], dtype=float32)
    """
    return chain(
        scale_by_radam(b1, b2, eps, eps_root, threshold, nesterov=nesterov),
        scale_by_learning_rate(learning_rate),
    )


def rmsprop(
    learning_rate: LearningRate, decay: float = 0.9, eps: float = 1e-8, initial_scale: float = 0.0,
    eps_in_sqrt: bool = True, centered: bool = False, momentum: float | None = None,
    nesterov: bool = False, bias_correction: bool = False,
) -> GradientTransformation:  # fmt: skip
    """RMSProp (Tieleman & Hinton, 2012).

    With `eps_in_sqrt=False` its steps are PyTorch's, whose defaults are a `decay` of 0.99 and no
    schedule inside of the momentum.

    Args:
      momentum: how much of the decaying sum of updates remains; None means no momentum.
      nesterov: whether the momentum looks one step ahead.

        >>> optimizer = optim.rmsprop(0.1, decay=0.75)
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(jnp.array([1.0])))[0].round(5)
        Array([-0.2], dtype=float32)
    """
    return chain(
        scale_by_rms(decay, eps, initial_scale, eps_in_sqrt, bias_correction, centered=centered),
        scale_by_learning_rate(learning_rate),
        identity() if momentum is None else trace(momentum, nesterov),
    )


def adagrad(
    learning_rate: LearningRate,
    initial_accumulator_value: float = 0.1,
    eps: float = 1e-7,
    *,
    eps_in_sqrt: bool = True,
) -> GradientTransformation:
    """AdaGrad: by the root of the sum of all squares (Duchi et al., 2011).

    With `eps_in_sqrt=False`, nothing at the start and an `eps` of 1e-10 its steps are PyTorch's.

    >>> optimizer = optim.adagrad(0.1, 0.0)
    >>> optimizer.update(jnp.array([5.0]), optimizer.init(jnp.array([1.0])))[0].round(5)
    Array([-0.1], dtype=float32)
    """
    return chain(
        scale_by_rss(initial_accumulator_value, eps, eps_in_sqrt=eps_in_sqrt),
        scale_by_learning_rate(learning_rate),
    )


def adadelta(
    learning_rate: LearningRate | None = None,
    rho: float = 0.9,
    eps: float = 1e-6,
    weight_decay: float | Array | Schedule = 0.0,
    weight_decay_mask: Mask = None,
) -> GradientTransformation:
    """AdaDelta: by the means of squared updates and squared gradients (Zeiler, 2012).

    Args:
      learning_rate: a number, or a schedule; None leaves updates as they are, to be
        subtracted.
      weight_decay: share of the weights that is added to the gradients.

        >>> optimizer, w = optim.adadelta(1.0, 0.75, 1e-2), jnp.array([1.0])
        >>> optimizer.update(jnp.array([2.0]), optimizer.init(w), w)[0].round(3)
        Array([-0.199], dtype=float32)
    """
    return chain(
        add_decayed_weights(weight_decay, weight_decay_mask),
        scale_by_adadelta(rho, eps),
        identity() if learning_rate is None else scale_by_learning_rate(learning_rate),
    )


def lion(
    learning_rate: LearningRate, b1: float = 0.9, b2: float = 0.99, mu_dtype: Any = None,
    weight_decay: float | Array | Schedule = 1e-3, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Lion: the sign of the momentum (Chen et al., 2023).

    Args:
      learning_rate: a number, or a schedule; a third to a tenth of what Adam would take.
      b1: share of the mean gradient in what the sign is taken of.
      b2: how much of the mean gradient remains.

        >>> optimizer, w = optim.lion(0.1, weight_decay=0.0), jnp.array([1.0])
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(w), w)[0]
        Array([-0.1], dtype=float32)
    """
    return chain(
        scale_by_lion(b1, b2, mu_dtype),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


def lamb(
    learning_rate: LearningRate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-6,
    eps_root: float = 0.0, weight_decay: float | Array | Schedule = 0.0, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """LAMB: Adam with steps in proportion to each parameter, for large batches (You et al., 2020).

    >>> optimizer, w = optim.lamb(0.1), jnp.array([3.0])
    >>> optimizer.update(jnp.array([5.0]), optimizer.init(w), w)[0].round(5)
    Array([-0.3], dtype=float32)
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_trust_ratio(),
        scale_by_learning_rate(learning_rate),
    )


def lars(
    learning_rate: LearningRate, weight_decay: float | Array | Schedule = 0.0,
    weight_decay_mask: Mask = True, trust_coefficient: float = 0.001, eps: float = 0.0,
    trust_ratio_mask: Mask = True, momentum: float = 0.9, nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """LARS: descent with steps in proportion to each parameter, for large batches.

    (You et al., 2017.)

    Args:
      weight_decay: share of the weights that is added to the gradients.
      trust_coefficient: norm of a step over that of its parameter, before the learning rate.
      eps: added to the norm of a gradient.
      trust_ratio_mask: which parameters' steps are so, as for `masked`.
      momentum: how much of the decaying sum of updates remains.
      nesterov: whether the momentum looks one step ahead.

        >>> optimizer, w = optim.lars(0.5, trust_coefficient=0.1), jnp.array([3.0])
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(w), w)[0].round(5)
        Array([-0.15], dtype=float32)
    """
    return chain(
        add_decayed_weights(weight_decay, weight_decay_mask),
        masked(
            scale_by_trust_ratio(trust_coefficient=trust_coefficient, eps=eps), trust_ratio_mask
        ),
        scale_by_learning_rate(learning_rate),
        trace(momentum, nesterov),
    )


def adafactor(
    learning_rate: LearningRate | None = None, min_dim_size_to_factor: int = 128,
    decay_rate: float = 0.8, decay_offset: int = 0, multiply_by_parameter_scale: bool = True,
    clipping_threshold: float | None = 1.0, momentum: float | None = None,
    dtype_momentum: Any = jnp.float32, weight_decay_rate: float | Schedule | None = None,
    eps: float = 1e-30, factored: bool = True, weight_decay_mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Adafactor, which remembers a row and a column for each matrix (Shazeer & Stern, 2018).

    Args:
      learning_rate: a number, or a schedule; None means 1.
      min_dim_size_to_factor: how long the second longest axis of what is factored must be.
      decay_offset: number of updates before the count of these.
      multiply_by_parameter_scale: whether steps are in proportion to each parameter.
      clipping_threshold: largest root mean square of an update; None means no bound.
      momentum: how much of the average of updates remains; None means no momentum.
      dtype_momentum: dtype of that average.
      weight_decay_rate: share of the weights lost in each update; None means none.
      eps: added to squared gradients.
      factored: whether matrices are factored at all.

        >>> optimizer, w = optim.adafactor(0.1), jnp.array([3.0])
        >>> optimizer.update(jnp.array([5.0]), optimizer.init(w), w)[0].round(5)
        Array([-0.3], dtype=float32)
    """
    parts = [scale_by_factored_rms(factored, decay_rate, decay_offset, min_dim_size_to_factor, eps)]
    if clipping_threshold is not None:
        parts.append(clip_by_block_rms(clipping_threshold))
    if learning_rate is not None:
        parts.append(scale_by_learning_rate(learning_rate, flip_sign=False))
    if multiply_by_parameter_scale:
        parts.append(scale_by_param_block_rms())
    if momentum is not None:
        parts.append(ema(momentum, debias=False, accumulator_dtype=dtype_momentum))
    if weight_decay_rate is not None:
        parts.append(add_decayed_weights(weight_decay_rate, weight_decay_mask))
    return chain(*parts, scale(-1))
