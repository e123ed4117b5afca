"""Normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax

from ..nodes import Node
from ..registry import rule
from .convolutions import layout_of


@rule("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", only_device=True)
def batch_norm(node: Node, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    """Statistics have float32 where `x` is narrower; results are rounded once."""
    axis = layout_of(node, x.ndim).index("C")
    for name, value in (("scale", scale), ("offset", offset)):
        if value.ndim != 1 or value.shape[0] != x.shape[axis]:
            raise node.error(f"{name} has shape {value.shape} for {x.shape[axis]} channels")
    epsilon = np.asarray(node.real("epsilon", 1e-4), scale.dtype)
    dtype, wide = x.dtype, x.astype(scale.dtype)
    other = tuple(i for i in range(x.ndim) if i != axis)
    along = lambda v: v.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    new_mean, new_variance, used_mean, used_variance = mean, variance, mean, variance
    if node.flag("is_training", True):
        used_mean = wide.mean(other)
        used_variance = ((wide - along(used_mean)) ** 2).mean(other)
        new_mean, new_variance = _running(node, x, other, used_mean, used_variance, mean, variance)
    elif mean.shape != scale.shape or variance.shape != scale.shape:
        raise node.error(f"mean has shape {mean.shape}, variance {variance.shape}")
    factor = scale * lax.rsqrt(used_variance + epsilon)
    y = (wide - along(used_mean)) * along(factor) + along(offset)
    return y.astype(dtype), new_mean, new_variance, used_mean, used_variance, used_mean[:0]


def _running(
    node: Node, x: Any, other: tuple[int, ...], mean: Any, variance: Any, old_mean: Any,
    old_variance: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Means and unbiased variances of a batch, moved from the old ones by a factor."""
    count: Any = 1
    for i in other:
        count = count * x.shape[i]
    unbiased = variance * (count / jnp.maximum(count - 1, 1)).astype(variance.dtype)
    factor = np.asarray(node.real("exponential_avg_factor", 1.0), mean.dtype)
    if factor == 1:
        return mean, unbiased
    return old_mean + (mean - old_mean) * factor, old_variance + (unbiased - old_variance) * factor


@rule("BatchNormWithGlobalNormalization", only_device=True)
def old_batch_norm(node: Node, t: Any, m: Any, v: Any, beta: Any, gamma: Any) -> Any:
    factor = lax.rsqrt(v + np.asarray(node.real("variance_epsilon", 1e-3), v.dtype))
    factor = factor * gamma if node.flag("scale_after_normalization") else factor
    return t * factor + (beta - m * factor)


@rule("LRN", only_device=True)
def local_response(node: Node, x: Any) -> Any:
    if x.ndim != 4:
        raise node.error(f"the batch must have 4 axes, got {x.ndim}")
    radius = node.integer("depth_radius", 5)
    if not 0 <= radius < 2**20:
        raise node.error(f"depth_radius must be a size, got {radius}")
    radius = min(radius, x.shape[-1])
    window = (1, 1, 1, 2 * radius + 1)
    pads = ((0, 0), (0, 0), (0, 0), (radius, radius))
    total = lax.reduce_window(x * x, np.asarray(0, x.dtype), lax.add, window, (1,) * 4, pads)
    bias, alpha, beta = (
        np.asarray(node.real(n, v), x.dtype)
        for n, v in (("bias", 1.0), ("alpha", 1.0), ("beta", 0.5))
    )
    return x * (bias + alpha * total) ** -beta
