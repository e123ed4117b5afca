"""Normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.nn.normalization as normalization
from amdjax import lax, numpy as jnp

from ..registry import rule
from .convolutions import by_channel


@rule("BatchNormalization")
def batch_norm(
    x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *, epsilon: float = 1e-5,
    momentum: float = 0.9, training_mode: int = 0, spatial: int = 1, is_test: int = 1,
    consumed_inputs: Any = None, node: Any,
) -> Any:  # fmt: skip
    """By the running statistics; in training by the batch's, of which running ones are updated."""
    if not training_mode:
        axis: Any = 1 if spatial else tuple(range(1, x.ndim))
        y, _ = normalization.batch_norm(
            x, scale, bias, mean, variance, train=False, axis=axis, epsilon=epsilon
        )
        return (y,) + (mean, variance, mean, variance)[: node.outputs - 1]
    axes = (0, *range(2, x.ndim))
    wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    own_mean = jnp.mean(wide, axes)
    own_variance = jnp.mean(jnp.square(wide - by_channel(own_mean, x.ndim - 2)), axes)
    inverse = lax.rsqrt(own_variance + np.asarray(epsilon, wide.dtype)).astype(wide.dtype)
    y = (wide - by_channel(own_mean, x.ndim - 2)) * by_channel(inverse * scale, x.ndim - 2)
    y = (y + by_channel(bias, x.ndim - 2)).astype(x.dtype)
    running = [
        (old * momentum + new * (1 - momentum)).astype(old.dtype)
        for old, new in ((mean, own_mean), (variance, own_variance))
    ]
    return y, *running, own_mean, own_variance


@rule("InstanceNormalization")
def instance_norm(
    x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5, consumed_inputs: Any = None
) -> Any:
    return normalization.instance_norm(x, scale, bias, axis=1, epsilon=epsilon)


@rule("GroupNormalization", since=21)
def group_norm(
    x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    return normalization.group_norm(x, scale, bias, groups=num_groups, axis=1, epsilon=epsilon)


@rule("GroupNormalization", since=18)
def group_norm_before(
    x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    """With one factor a group, not a channel."""
    scale, bias = (jnp.repeat(v, x.shape[1] // num_groups) for v in (scale, bias))
    return normalization.group_norm(x, scale, bias, groups=num_groups, axis=1, epsilon=epsilon)


@rule("LayerNormalization", since=17)
def layer_norm(
    x: Any, scale: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1, node: Any,
) -> Any:  # fmt: skip
    """Also mean and inverse standard deviation, in the dtype that they are computed in."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    shape = tuple(x.shape[i] for i in axes)
    scale = jnp.broadcast_to(scale, shape)
    bias = None if bias is None else jnp.broadcast_to(bias, shape)
    if node.outputs == 1:
        return normalization.layer_norm(x, scale, bias, axis=axes, epsilon=epsilon)
    wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    mean = jnp.mean(wide, axes, keepdims=True)
    variance = jnp.mean(jnp.square(wide - mean), axes, keepdims=True)
    inverse = lax.rsqrt(variance + np.asarray(epsilon, wide.dtype))
    y = ((wide - mean) * inverse).astype(x.dtype) * scale
    return (y if bias is None else y + bias), mean, inverse


@rule("LRN")
def lrn(x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Any:
    """Over channels; of an even number of them one more lies behind."""
    low = (size - 1) // 2
    sums = lax.reduce_window(
        x * x, np.zeros((), x.dtype), lax.add, (1, size, *[1] * (x.ndim - 2)), (1,) * x.ndim,
        [(0, 0), (low, size - 1 - low), *[(0, 0)] * (x.ndim - 2)],
    )  # fmt: skip
    return x / (bias + alpha / size * sums) ** beta


@rule("LpNormalization")
def lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    """Where the norm is zero, so is the result."""
    norm = jnp.sum(abs(x), axis, keepdims=True)
    if p == 2:
        norm = jnp.sqrt(jnp.sum(x * x, axis, keepdims=True))
    return jnp.where(norm == 0, 0, x / jnp.where(norm == 0, 1, norm)).astype(x.dtype)
