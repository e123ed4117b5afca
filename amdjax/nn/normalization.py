"""Normalization of batches, layers and groups of channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.nn._arguments import (
    check_flag,
    check_no_complex,
    check_not_negative,
    check_number,
    check_real,
    is_integer,
    widened,
)
from amdjax.nn._moments import Pair, mean_over, merged, moments_of
from amdjax.numpy._util import ArrayLike, as_array, canonical_axes, canonical_axis, convert

__all__ = [
    "add_layer_norm", "batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm",
]  # fmt: skip

Axes = int | Sequence[int]


def _by_channel(
    x: Array, mean: Array, inverse: Array, scale: Array | None, bias: Array | None
) -> Array:
    """`(x - mean) * inverse * scale + bias`, all but `x` with size 1 where `x` is summed.

    The gradients of what belongs to a channel follow from its sums of `dy` and `dy * (x - mean)`.
    For that the mean counts as constant where elements see it, and varies in their offset.
    """
    center = lax.stop_gradient(mean)
    factor = inverse if scale is None else inverse * scale
    offset = (center - mean) * factor
    return (x - center) * factor + (offset if bias is None else offset + bias)


def _affine(y: Array, scale: Array | None, bias: Array | None, shape: tuple[int, ...]) -> Array:
    if scale is not None:
        y = y * lax.reshape(scale, shape)
    return y if bias is None else y + lax.reshape(bias, shape)


def _shaped(value: Array | None, shape: tuple[int, ...]) -> Array | None:
    return None if value is None else lax.reshape(value, shape)


def _parameter(name: str, argument: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    value = as_array(name, value)
    if value.shape != shape:
        raise ValueError(f"{name}: {argument} must have shape {shape}, got {value.shape}.")
    check_no_complex(name, value, argument)
    return value


def _statistic(name: str, argument: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """A running mean or variance, of a dtype that can hold what it is updated to."""
    value = _parameter(name, argument, value, shape)
    check_real(name, value, argument)
    return value


def _input(name: str, x: ArrayLike, argument: str = "x") -> Array:
    x = as_array(name, x)
    check_real(name, x, argument)
    return x


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with size 1 wherever not in `axes`."""
    return tuple(n if i in axes else 1 for i, n in enumerate(shape))


def batch_norm(
    x: ArrayLike, scale: ArrayLike | None, bias: ArrayLike | None, mean: ArrayLike,
    variance: ArrayLike, *, train: bool, axis: Axes = -1, momentum: float = 0.9,
    epsilon: float = 1e-5, axis_name: str | Sequence[str] | None = None,
    return_statistics: bool = False,
) -> Any:  # fmt: skip
    """Normalize each feature over the batch (Ioffe & Szegedy, 2015).

    An activation that follows, `nn.relu(y)`, is computed in the same pass.

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

    Returns:
      The normalized batch in the dtype of `x`, and the pair of running mean and variance. The
      running variance is updated by the unbiased estimate. With `return_statistics` also the pair
      of mean and inverse standard deviation by which it normalized, of the shape of a parameter.

        >>> x = jnp.array([[1.0, 10.0], [3.0, 30.0]])
        >>> y, (mean, variance) = nn.batch_norm(
        ...     x, None, None, jnp.zeros(2), jnp.ones(2), train=True, momentum=0.5)
        >>> y.round(3), mean
        (Array([[-1., -1.],
               [ 1.,  1.]], dtype=float32), Array([ 1., 10.], dtype=float32))
    """
    x = _input("batch_norm", x)
    check_not_negative("batch_norm", epsilon=epsilon)
    check_number("batch_norm", "momentum", momentum)
    check_flag("batch_norm", train=train)
    if mean is None or variance is None:
        raise TypeError("batch_norm: mean and variance must be arrays, got None.")
    factor, offset, axes = _features("batch_norm", x, scale, bias, axis)
    shape = tuple(x.shape[i] for i in axes)
    running_mean = _statistic("batch_norm", "mean", mean, shape)
    running_variance = _statistic("batch_norm", "variance", variance, shape)
    values = (x, factor, offset, running_mean, running_variance)
    names = axis_name if axis_name is None or isinstance(axis_name, str) else tuple(axis_name)
    if not train:
        y, inverse = _normalize_batch(*values, axes, epsilon)
        running, statistics = (running_mean, running_variance), (running_mean, inverse)
    elif not x.size:
        raise ValueError(f"batch_norm: x of shape {x.shape} has no elements to take the mean of.")
    else:
        y, running, statistics = _train_batch_norm(*values, axes, momentum, epsilon, names)
    return (y, running, statistics) if return_statistics else (y, running)


@composite(static_argnames="axes")
def _normalize_batch(
    x: Array, scale: Array | None, bias: Array | None, mean: Array, variance: Array,
    axes: tuple[int, ...], epsilon: Any,
) -> tuple[Array, Array]:  # fmt: skip
    kept = _kept(x.shape, axes)
    inverse = lax.rsqrt(variance + epsilon)
    factor = inverse if scale is None else inverse * scale
    y = (widened(x) - lax.reshape(mean, kept)) * lax.reshape(factor, kept)
    return convert(_affine(y, None, bias, kept), x.dtype), inverse


@composite(static_argnames=("axes", "names"))
def _train_batch_norm(
    x: Array, scale: Array | None, bias: Array | None, mean: Array, variance: Array,
    axes: tuple[int, ...], momentum: Any, epsilon: Any, names: str | tuple[str, ...] | None,
) -> tuple[Array, Pair, Pair]:  # fmt: skip
    reduced = tuple(i for i in range(x.ndim) if i not in axes)
    count = math.prod(x.shape[i] for i in reduced)
    wide = widened(x)
    moments = moments_of(wide, reduced)
    if names is not None:
        moments = merged(moments, lambda part: lax.pmean(part, names))
        count *= lax.psum(1, names)
    inverse = lax.rsqrt(moments[1] + epsilon)
    kept = inverse.shape
    y = _by_channel(wide, moments[0], inverse, _shaped(scale, kept), _shaped(bias, kept))
    running = _updated((mean, variance), moments, momentum, count)
    statistics = lax.reshape(moments[0], mean.shape), lax.reshape(inverse, mean.shape)
    return convert(y, x.dtype), running, statistics


def _updated(running: Pair, moments: Pair, momentum: Any, count: Any) -> Pair:
    """Running mean and variance after a batch whose channels have `count` elements each."""
    weight = 1 - momentum
    weights = weight, weight * (count / max(count - 1, 1))
    new_mean, new_variance = (
        convert(momentum * old + w * lax.reshape(lax.stop_gradient(new), old.shape), old.dtype)
        for old, new, w in zip(running, moments, weights)
    )
    return new_mean, new_variance


def layer_norm(
    x: ArrayLike, scale: ArrayLike | None = None, bias: ArrayLike | None = None, *, axis: Axes = -1,
    epsilon: float = 1e-5, return_statistics: bool = False,
) -> Any:  # fmt: skip
    """Normalize each example over its features (Ba et al., 2016).

    Args:
      x: floating-point array.
      axis: the axis or axes of the features.

    Returns:
      An array of the shape and dtype of `x`; with `return_statistics` the pair of it and the pair
      of mean and inverse standard deviation, of the shape of `x` without `axis`.

        >>> nn.layer_norm(jnp.array([[1.0, 2.0, 3.0]])).round(3)
        Array([[-1.225,  0.   ,  1.225]], dtype=float32)
    """
    x = _input("layer_norm", x)
    check_not_negative("layer_norm", epsilon=epsilon)
    y, statistics = _layer_norm(x, None, *_features("layer_norm", x, scale, bias, axis), epsilon)
    return (y, statistics) if return_statistics else y


def add_layer_norm(
    x: ArrayLike, residual: ArrayLike, scale: ArrayLike | None = None,
    bias: ArrayLike | None = None, *, axis: Axes = -1, epsilon: float = 1e-5,
    return_statistics: bool = False,
) -> Any:  # fmt: skip
    """`layer_norm(x + residual)` in one pass, whose sum is not rounded for 16-bit dtypes.

    Args:
      x: floating-point array.
      residual: floating-point array of the same shape.
      axis: the axis or axes of the features.

    Returns:
      An array of the shape of `x` and the dtype to which both promote; with `return_statistics` the
      pair of it and the pair of mean and inverse standard deviation.

    Raises:
      TypeError: `x` or `residual` is not floating-point.
      ValueError: the shapes differ, or a parameter does not have the shape of the features.

        >>> nn.add_layer_norm(jnp.array([1.0, 1.0]), jnp.array([0.0, 2.0])).round(3)
        Array([-1.,  1.], dtype=float32)
    """
    x, other = _input("add_layer_norm", x), _input("add_layer_norm", residual, "residual")
    check_not_negative("add_layer_norm", epsilon=epsilon)
    if x.shape != other.shape:
        raise ValueError(
            f"add_layer_norm: residual must have the shape of x, {x.shape}, got {other.shape}."
        )
    features = _features("add_layer_norm", x, scale, bias, axis)
    y, statistics = _layer_norm(x, other, *features, epsilon)
    return (y, statistics) if return_statistics else y


def _features(
    name: str, x: Array, scale: ArrayLike | None, bias: ArrayLike | None, axis: Axes
) -> tuple[Array | None, Array | None, tuple[int, ...]]:
    """Checked parameters of each feature, and the axes of the features."""
    axes = tuple(sorted(canonical_axes(axis, x.ndim)))
    shape = tuple(x.shape[i] for i in axes)
    return (
        None if scale is None else _parameter(name, "scale", scale, shape),
        None if bias is None else _parameter(name, "bias", bias, shape),
        axes,
    )


@composite(static_argnames="axes")
def _layer_norm(
    x: Array, residual: Array | None, scale: Array | None, bias: Array | None,
    axes: tuple[int, ...], epsilon: Any,
) -> tuple[Array, Pair]:  # fmt: skip
    dtype, wide = x.dtype, widened(x)
    if residual is not None:
        dtype, wide = jnp.promote_types(dtype, residual.dtype), wide + widened(residual)
    mean, variance = moments_of(wide, axes)
    inverse = lax.rsqrt(variance + epsilon)
    y = _affine((wide - mean) * inverse, scale, bias, _kept(x.shape, axes))
    return convert(y, dtype), (lax.squeeze(mean, axes), lax.squeeze(inverse, axes))


def rms_norm(
    x: ArrayLike, scale: ArrayLike | None = None, *, axis: Axes = -1, epsilon: float = 1e-6,
    return_statistics: bool = False,
) -> Any:  # fmt: skip
    """Divide each example by the root of its mean square (Zhang & Sennrich, 2019).

    It is the layer norm of T5 (Raffel et al., 2020), without mean and bias.

    Args:
      x: floating-point array.
      axis: the axis or axes of the features.
      epsilon: added to the mean square.
      return_statistics: whether to return what it multiplied by, too.

    Returns:
      An array of the shape and dtype of `x`; with `return_statistics` the pair of it and the
      inverse root of the mean square, of the shape of `x` without `axis`.

    Raises:
      TypeError: `x` is not floating-point.
      ValueError: `scale` does not have the shape of the features.

        >>> nn.rms_norm(jnp.array([[3.0, 4.0]])).round(3)
        Array([[0.849, 1.131]], dtype=float32)
    """
    x = _input("rms_norm", x)
    check_not_negative("rms_norm", epsilon=epsilon)
    factor, _, axes = _features("rms_norm", x, scale, None, axis)
    y, inverse = _rms_norm(x, factor, axes, epsilon)
    return (y, inverse) if return_statistics else y


@composite(static_argnames="axes")
def _rms_norm(
    x: Array, scale: Array | None, axes: tuple[int, ...], epsilon: Any
) -> tuple[Array, Array]:
    wide = widened(x)
    inverse = lax.rsqrt(jnp.mean(jnp.square(wide), axes, keepdims=True) + epsilon)
    y = _affine(wide * inverse, scale, None, _kept(x.shape, axes))
    return convert(y, x.dtype), lax.squeeze(inverse, axes)


def group_norm(
    x: ArrayLike, scale: ArrayLike | None = None, bias: ArrayLike | None = None, *, groups: int,
    axis: int = -1, epsilon: float = 1e-5, return_statistics: bool = False,
) -> Any:  # fmt: skip
    """Normalize each example over groups of channels and all of space (Wu & He, 2018).

    Args:
      x: floating-point batch; the first axis is that of the examples.
      axis: the axis of the channels: -1 for channels last, 1 for channels first.

    Returns:
      An array of the shape and dtype of `x`; with `return_statistics` the pair of it and the pair
      of mean and inverse standard deviation, `(n, groups)` each.

    Raises:
      TypeError: `x` is not floating-point.
      ValueError: `groups` does not divide the channels, or a parameter does not have their shape.

        >>> nn.group_norm(jnp.array([[1.0, 3.0, 10.0, 30.0]]), groups=2).round(3)
        Array([[-1.,  1., -1.,  1.]], dtype=float32)
    """
    x, channels = _channels("group_norm", x, axis)
    check_not_negative("group_norm", epsilon=epsilon)
    if not is_integer(groups) or groups < 1 or x.shape[channels] % groups:
        raise ValueError(
            f"group_norm: groups must be a divisor of the {x.shape[channels]} channels, got "
            f"{groups!r}."
        )
    factor, offset, _ = _features("group_norm", x, scale, bias, channels)
    y, mean, _, inverse = _group_norm(x, factor, offset, groups, channels, epsilon)
    return (y, (mean, inverse)) if return_statistics else y


def _channels(name: str, x: ArrayLike, axis: int) -> tuple[Array, int]:
    x = _input(name, x)
    axis = canonical_axis(axis, x.ndim)
    if axis == 0:
        raise ValueError(f"{name}: axis must not be the first, which is that of the examples.")
    return x, axis


@composite(static_argnames=("groups", "axis"))
def _group_norm(
    x: Array, scale: Array | None, bias: Array | None, groups: int, axis: int, epsilon: Any
) -> tuple[Array, Array, Array, Array]:
    """The result; and mean, variance and inverse standard deviation, `(n, groups)` each."""
    normalize = _groups_last if axis == x.ndim - 1 else _groups_within
    y, *statistics = normalize(widened(x), scale, bias, groups, axis, epsilon)
    mean, variance, inverse = (lax.reshape(part, (x.shape[0], groups)) for part in statistics)
    return lax.reshape(convert(y, x.dtype), x.shape), mean, variance, inverse


def _groups_last(
    x: Array, scale: Array | None, bias: Array | None, groups: int, axis: int, epsilon: Any
) -> tuple[Array, Array, Array, Array]:
    """Channels last: sums of channels first, since the elements of a group lie apart."""
    moments = moments_of(x, tuple(range(1, axis)))
    by_group = (x.shape[0], groups, x.shape[axis] // groups)
    mean, variance = merged((lax.reshape(part, by_group) for part in moments), mean_over(2))
    inverse = lax.rsqrt(variance + epsilon)
    center, factor = (
        lax.reshape(jnp.broadcast_to(part, by_group), moments[0].shape) for part in (mean, inverse)
    )
    kept = _kept(x.shape, (axis,))
    y = _by_channel(x, center, factor, _shaped(scale, kept), _shaped(bias, kept))
    return y, mean, variance, inverse


def _groups_within(
    x: Array, scale: Array | None, bias: Array | None, groups: int, axis: int, epsilon: Any
) -> tuple[Array, Array, Array, Array]:
    """Channels before some of space: a group is a row, which is summed and normalized at once."""
    rows = lax.reshape(x, (*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :]))
    mean, variance = moments_of(rows, tuple(i for i in range(1, rows.ndim) if i != axis))
    inverse = lax.rsqrt(variance + epsilon)
    y = _affine((rows - mean) * inverse, scale, bias, _kept(rows.shape, (axis, axis + 1)))
    return y, mean, variance, inverse


def instance_norm(
    x: ArrayLike, scale: ArrayLike | None = None, bias: ArrayLike | None = None,
    mean: ArrayLike | None = None, variance: ArrayLike | None = None, *, train: bool = True,
    axis: int = -1, momentum: float = 0.9, epsilon: float = 1e-5, return_statistics: bool = False,
) -> Any:  # fmt: skip
    """Normalize each channel of each example over space (Ulyanov et al., 2016).

    Args:
      x: floating-point batch; the first axis is that of the examples.
      mean: running mean of each channel, or None to keep none.
      variance: running variance of each channel, with `mean`.
      train: whether to normalize by the examples' own statistics and to update the running ones;
        otherwise the running ones are used and returned as they are.
      axis: the axis of the channels: -1 for channels last, 1 for channels first.

    Returns:
      An array of the shape and dtype of `x`. With running statistics a pair of it and the pair of
      running mean and variance, as for `batch_norm`. With `return_statistics` one more at the end,
      the pair of mean and inverse standard deviation of each example and channel, `(n, channels)`.

    Raises:
      TypeError: `x` is not floating-point, or only one of `mean` and `variance` is given.
      ValueError: a parameter does not have the shape of the channels, or `train` is False without
        running statistics.

        >>> nn.instance_norm(jnp.array([[[1.0, 10.0], [3.0, 30.0]]])).round(3)
        Array([[[-1., -1.],
                [ 1.,  1.]]], dtype=float32)
    """
    x, channels = _channels("instance_norm", x, axis)
    check_not_negative("instance_norm", epsilon=epsilon)
    check_number("instance_norm", "momentum", momentum)
    check_flag("instance_norm", train=train)
    if (mean is None) != (variance is None):
        raise TypeError("instance_norm: mean and variance must be given together.")
    if not train:
        if mean is None or variance is None:
            raise ValueError("instance_norm: train=False takes running mean and variance.")
        y, running, statistics = batch_norm(
            x, scale, bias, mean, variance, train=False, axis=channels, epsilon=epsilon,
            return_statistics=True,
        )  # fmt: skip
        statistics = tuple(jnp.broadcast_to(s, (x.shape[0], *s.shape)) for s in statistics)
        return (y, running, statistics) if return_statistics else (y, running)
    factor, offset, _ = _features("instance_norm", x, scale, bias, channels)
    count = x.shape[channels]
    y, *moments, inverse = _group_norm(x, factor, offset, count, channels, epsilon)
    found: list[Any] = [y]
    if mean is not None and variance is not None:
        old = (
            _statistic("instance_norm", "mean", mean, (count,)),
            _statistic("instance_norm", "variance", variance, (count,)),
        )
        batch = jnp.mean(moments[0], 0), jnp.mean(moments[1], 0)
        found.append(_updated(old, batch, momentum, x.size // max(len(x) * count, 1)))
    if return_statistics:
        found.append((moments[0], inverse))
    return tuple(found) if len(found) > 1 else y
