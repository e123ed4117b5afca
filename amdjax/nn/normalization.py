"""Normalization of batches, layers and groups of channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.nn._arguments import check_floating
from amdjax.numpy._util import ArrayLike, as_array, canonical_axes, canonical_axis, convert

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]

Axes = int | Sequence[int]


def _wide(x: Array) -> Array:
    """Statistics of 16-bit values are gathered in float32."""
    return convert(x, np.float32) if dtypes.finfo(x.dtype).bits < 32 else x


def _moments(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and variance over `axes`, which are kept with size 1."""
    mean = jnp.mean(x, axes, keepdims=True)
    return mean, jnp.mean(jnp.square(x - mean), axes, keepdims=True)


def _affine(y: Array, scale: Array | None, bias: Array | None, shape: tuple[int, ...]) -> Array:
    if scale is not None:
        y = y * lax.reshape(scale, shape)
    return y if bias is None else y + lax.reshape(bias, shape)


def _parameter(
    name: str, argument: str, value: ArrayLike | None, shape: tuple[int, ...]
) -> Array | None:
    if value is None:
        return None
    value = as_array(name, value)
    if value.shape != shape:
        raise ValueError(f"{name}: {argument} must have shape {shape}, got {value.shape}.")
    return value


def _input(name: str, x: ArrayLike) -> Array:
    x = as_array(name, x)
    check_floating(name, x)
    return x


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with size 1 wherever not in `axes`."""
    return tuple(n if i in axes else 1 for i, n in enumerate(shape))


def batch_norm(
    x: ArrayLike,
    scale: ArrayLike | None,
    bias: ArrayLike | None,
    mean: ArrayLike,
    variance: ArrayLike,
    *,
    train: bool,
    axis: Axes = -1,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    axis_name: str | Sequence[str] | None = None,
) -> tuple[Array, tuple[Array, Array]]:
    """Normalize each feature over the batch (Ioffe & Szegedy, 2015).

    Args:
      x: floating-point batch.
      scale: factor of each feature, or None. The shape of a parameter is that of `x` on `axis`.
      bias: what is added to each feature, or None.
      mean: running mean of each feature.
      variance: running variance of each feature.
      train: whether to normalize by the batch's own statistics and to update the running ones;
        otherwise the running ones are used and returned as they are.
      axis: the axis or axes that keep statistics of their own: -1 for channels last, 1 for channels
        first, all but the batch axis for one of each activation.
      momentum: how much of the running statistics remains after an update.
      epsilon: added to the variance.
      axis_name: axes of `vmap` over which the batch goes on.

    Returns:
      The normalized batch in the dtype of `x`, and the pair of running mean and variance. The
      running variance is updated by the unbiased estimate.

    Raises:
      TypeError: `x` is not floating-point.
      ValueError: a parameter does not have the shape of the features.

        >>> x = jnp.array([[1.0, 10.0], [3.0, 30.0]])
        >>> y, (mean, variance) = nn.batch_norm(
        ...     x, None, None, jnp.zeros(2), jnp.ones(2), train=True, momentum=0.5)
        >>> y.round(3), mean
        (Array([[-1., -1.],
               [ 1.,  1.]], dtype=float32), Array([ 1., 10.], dtype=float32))
    """
    x = _input("batch_norm", x)
    axes = tuple(sorted(canonical_axes(axis, x.ndim)))
    shape = tuple(x.shape[i] for i in axes)
    factor = _parameter("batch_norm", "scale", scale, shape)
    offset = _parameter("batch_norm", "bias", bias, shape)
    running_mean = _parameter("batch_norm", "mean", mean, shape)
    running_variance = _parameter("batch_norm", "variance", variance, shape)
    if running_mean is None or running_variance is None:
        raise TypeError("batch_norm: mean and variance must be arrays, got None.")
    values = (x, factor, offset, running_mean, running_variance)
    names = axis_name if axis_name is None or isinstance(axis_name, str) else tuple(axis_name)
    if not train:
        return _normalize_batch(*values, axes, epsilon), (running_mean, running_variance)
    if not x.size:
        raise ValueError(f"batch_norm: x of shape {x.shape} has no elements to take the mean of.")
    return _train_batch_norm(*values, axes, momentum, epsilon, names)


@composite(static_argnames="axes")
def _normalize_batch(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    axes: tuple[int, ...],
    epsilon: Any,
) -> Array:
    kept = _kept(x.shape, axes)
    wide = _wide(x)
    factor = lax.rsqrt(variance + epsilon)
    factor = factor if scale is None else factor * scale
    y = (wide - lax.reshape(mean, kept)) * lax.reshape(factor, kept)
    return convert(_affine(y, None, bias, kept), x.dtype)


@composite(static_argnames=("axes", "names"))
def _train_batch_norm(
    x: Array,
    scale: Array | None,
    bias: Array | None,
    mean: Array,
    variance: Array,
    axes: tuple[int, ...],
    momentum: Any,
    epsilon: Any,
    names: str | tuple[str, ...] | None,
) -> tuple[Array, tuple[Array, Array]]:
    reduced = tuple(i for i in range(x.ndim) if i not in axes)
    count = math.prod(x.shape[i] for i in reduced)
    wide = _wide(x)
    batch_mean = jnp.mean(wide, reduced, keepdims=True)
    if names is not None:
        batch_mean = lax.pmean(batch_mean, names)
        count *= lax.psum(1, names)
    batch_variance = jnp.mean(jnp.square(wide - batch_mean), reduced, keepdims=True)
    if names is not None:
        batch_variance = lax.pmean(batch_variance, names)
    y = (wide - batch_mean) * lax.rsqrt(batch_variance + epsilon)
    y = convert(_affine(y, scale, bias, batch_mean.shape), x.dtype)
    unbiased = count / max(count - 1, 1)
    batch_mean, batch_variance = lax.stop_gradient((batch_mean, batch_variance))
    new_mean = momentum * mean + (1 - momentum) * lax.reshape(batch_mean, mean.shape)
    new_variance = momentum * variance + (1 - momentum) * unbiased * lax.reshape(
        batch_variance, variance.shape
    )
    return y, (convert(new_mean, mean.dtype), convert(new_variance, variance.dtype))


def layer_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    axis: Axes = -1,
    epsilon: float = 1e-5,
) -> Array:
    """Normalize each example over its features (Ba et al., 2016).

    Args:
      x: floating-point array.
      scale: factor of each feature, of the shape of `x` on `axis`, or None.
      bias: what is added to each feature, of that shape too, or None.
      axis: the axis or axes of the features.
      epsilon: added to the variance.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      TypeError: `x` is not floating-point.
      ValueError: a parameter does not have the shape of the features.

        >>> nn.layer_norm(jnp.array([[1.0, 2.0, 3.0]])).round(3)
        Array([[-1.225,  0.   ,  1.225]], dtype=float32)
    """
    x = _input("layer_norm", x)
    axes = tuple(sorted(canonical_axes(axis, x.ndim)))
    shape = tuple(x.shape[i] for i in axes)
    scale = _parameter("layer_norm", "scale", scale, shape)
    return _layer_norm(x, scale, _parameter("layer_norm", "bias", bias, shape), axes, epsilon)


@composite(static_argnames="axes")
def _layer_norm(
    x: Array, scale: Array | None, bias: Array | None, axes: tuple[int, ...], epsilon: Any
) -> Array:
    wide = _wide(x)
    mean, variance = _moments(wide, axes)
    y = (wide - mean) * lax.rsqrt(variance + epsilon)
    return convert(_affine(y, scale, bias, _kept(x.shape, axes)), x.dtype)


def rms_norm(
    x: ArrayLike, scale: ArrayLike | None = None, *, axis: Axes = -1, epsilon: float = 1e-6
) -> Array:
    """Divide each example by the root of its mean square (Zhang & Sennrich, 2019); T5's layer norm.

    Args:
      x: floating-point array.
      scale: factor of each feature, of the shape of `x` on `axis`, or None.
      axis: the axis or axes of the features.
      epsilon: added to the mean square.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      TypeError: `x` is not floating-point.
      ValueError: `scale` does not have the shape of the features.

        >>> nn.rms_norm(jnp.array([[3.0, 4.0]])).round(3)
        Array([[0.849, 1.131]], dtype=float32)
    """
    x = _input("rms_norm", x)
    axes = tuple(sorted(canonical_axes(axis, x.ndim)))
    shape = tuple(x.shape[i] for i in axes)
    return _rms_norm(x, _parameter("rms_norm", "scale", scale, shape), axes, epsilon)


@composite(static_argnames="axes")
def _rms_norm(x: Array, scale: Array | None, axes: tuple[int, ...], epsilon: Any) -> Array:
    wide = _wide(x)
    square = jnp.mean(jnp.square(wide), axes, keepdims=True)
    y = wide * lax.rsqrt(square + epsilon)
    return convert(_affine(y, scale, None, _kept(x.shape, axes)), x.dtype)


def group_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    groups: int,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> Array:
    """Normalize each example over groups of channels and all of space (Wu & He, 2018).

    Args:
      x: floating-point batch; the first axis is that of the examples.
      scale: factor of each channel, `(channels,)`, or None.
      bias: what is added to each channel, `(channels,)`, or None.
      groups: how many groups the channels are cut into.
      axis: the axis of the channels.
      epsilon: added to the variance.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      TypeError: `x` is not floating-point.
      ValueError: `groups` does not divide the channels, or a parameter does not have their shape.

        >>> nn.group_norm(jnp.array([[1.0, 3.0, 10.0, 30.0]]), groups=2).round(3)
        Array([[-1.,  1., -1.,  1.]], dtype=float32)
    """
    x = _input("group_norm", x)
    axis = canonical_axis(axis, x.ndim)
    if axis == 0:
        raise ValueError("group_norm: axis must not be the first, which is that of the examples.")
    channels = x.shape[axis]
    if not isinstance(groups, int) or groups < 1 or channels % groups:
        raise ValueError(
            f"group_norm: groups must be a divisor of the {channels} channels, got {groups!r}."
        )
    scale = _parameter("group_norm", "scale", scale, (channels,))
    bias = _parameter("group_norm", "bias", bias, (channels,))
    return _group_norm(x, scale, bias, groups, axis, epsilon)


@composite(static_argnames=("groups", "axis"))
def _group_norm(
    x: Array, scale: Array | None, bias: Array | None, groups: int, axis: int, epsilon: Any
) -> Array:
    shape = x.shape
    grouped = lax.reshape(
        _wide(x), (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    )
    axes = tuple(i for i in range(1, grouped.ndim) if i != axis)
    mean, variance = _moments(grouped, axes)
    y = lax.reshape((grouped - mean) * lax.rsqrt(variance + epsilon), shape)
    return convert(_affine(y, scale, bias, _kept(shape, (axis,))), x.dtype)


def instance_norm(
    x: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> Array:
    """Normalize each channel of each example over space (Ulyanov et al., 2016).

    Args:
      x: floating-point batch; the first axis is that of the examples.
      scale: factor of each channel, `(channels,)`, or None.
      bias: what is added to each channel, `(channels,)`, or None.
      axis: the axis of the channels.
      epsilon: added to the variance.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      TypeError: `x` is not floating-point.
      ValueError: a parameter does not have the shape of the channels.

        >>> nn.instance_norm(jnp.array([[[1.0, 10.0], [3.0, 30.0]]])).round(3)
        Array([[[-1., -1.],
                [ 1.,  1.]]], dtype=float32)
    """
    x = _input("instance_norm", x)
    axis = canonical_axis(axis, x.ndim)
    return group_norm(x, scale, bias, groups=x.shape[axis], axis=axis, epsilon=epsilon)
