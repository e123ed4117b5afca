"""Layers of normalization."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.pytree import tree_leaves
from amdjax.nn._arguments import (
    Ints,
    check_integer,
    check_not_negative,
    check_number,
    check_positive,
    check_share,
    check_sizes,
    hashable,
)
from amdjax.nn._function_layer import FunctionLayer
from amdjax.nn._scope import is_training
from amdjax.nn._torch import SCALE_AND_BIAS, TorchTensor
from amdjax.nn.local_response import check_options, local_response_norm
from amdjax.nn.module import Module, state, static
from amdjax.nn.normalization import (
    Axes,
    add_layer_norm,
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)
from amdjax.numpy._util import ArrayLike, as_array, canonical_axis
from amdjax.transforms import custom_jvp
from amdjax.transforms.zero import SymbolicZero

__all__ = [
    "AddLayerNorm", "BatchNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "LocalResponseNorm",
    "RMSNorm", "T5LayerNorm",
]  # fmt: skip


_RUNNING = (
    TorchTensor("running_mean", "mean"),
    TorchTensor("running_var", "variance"),
    TorchTensor("num_batches_tracked", None),
)


@partial(custom_jvp, nondiff_argnums=(0,))
def _not_trained(name: str, mean: Any, variance: Any) -> tuple[Any, Any]:
    """Running statistics, of which no result of training depends."""
    return mean, variance


def _warn_of_slopes(name: str, primals: Any, tangents: Any) -> tuple[Any, Any]:
    if not all(isinstance(t, SymbolicZero) for t in tree_leaves(tangents)):
        warnings.warn(
            f"{name}: its mean and variance are differentiated, which are running statistics, not "
            "parameters: their gradients are zero, and an optimizer may still change them. Take "
            "gradients of the parameters alone: parameters, rest = nn.partition(model), and "
            "nn.combine(parameters, rest) inside of the function that is differentiated.",
            stacklevel=2,
        )
    return primals, tangents


_not_trained.defjvp(_warn_of_slopes, symbolic_zeros=True)


def _with_running_statistics(
    layer: BatchNorm | InstanceNorm,
    norm: Callable[..., Any],
    x: ArrayLike,
    train: bool | None,
    **options: Any,
) -> Array:
    """`norm` with a layer's parameters and statistics, which it records anew in training."""
    train, now = is_training(train), layer.latest()
    before = now.mean, now.variance
    if train and now.mean is not None:
        before = _not_trained(type(layer).__name__, *before)
    y, (mean, variance) = norm(
        x, layer.scale, layer.bias, *before, train=train, axis=layer.axis,
        momentum=layer.momentum, epsilon=layer.epsilon, **options,
    )  # fmt: skip
    if train:
        layer.record(mean=mean, variance=variance)
    return y


class BatchNorm(Module):
    """Normalize each feature over the batch; in training, within `nn.apply`, with new statistics.

    Args:
      features: size of the feature axis, or a tuple of sizes for several.
      axis: the feature axis: -1 for channels last, 1 for channels first; or a tuple of axes, all
        but the first for statistics of each activation.
      affine: whether features get a trained scale and bias.

    Raises:
      ValueError: a size is no positive integer, `momentum` is not in [0, 1], or `axis` has another
        number of axes.

        >>> layer = nn.BatchNorm(2, momentum=0.5)
        >>> y, layer = nn.apply(layer, jnp.array([[1.0, 2.0], [3.0, 6.0]]), train=True)
        >>> layer.mean
        Array([1., 2.], dtype=float32)
    """

    scale: Array | None
    bias: Array | None
    mean: Array = state()
    variance: Array = state()
    axis: Axes = static()
    momentum: float = static()
    epsilon: float = static()
    axis_name: Any = static()

    def __init__(
        self, features: Ints, *, axis: Axes = -1, momentum: float = 0.9, epsilon: float = 1e-5,
        affine: bool = True, axis_name: str | tuple[str, ...] | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        shape = check_sizes("BatchNorm", features=features)
        check_share("BatchNorm", "momentum", momentum)
        check_not_negative("BatchNorm", epsilon=epsilon)
        if len(shape) != (len(axis) if hasattr(axis, "__len__") else 1):
            raise ValueError(
                f"BatchNorm: axis must have an entry for each of features, got {axis=} and "
                f"{features=}."
            )
        self.scale = jnp.ones(shape, dtype) if affine else None
        self.bias = jnp.zeros(shape, dtype) if affine else None
        self.mean, self.variance = jnp.zeros(shape, dtype), jnp.ones(shape, dtype)
        self.axis, self.momentum, self.epsilon = hashable(axis), momentum, epsilon
        self.axis_name = axis_name

    def __call__(self, x: ArrayLike, *, train: bool | None = None) -> Array:
        """`nn.batch_norm` with these parameters; in training it records the new statistics.

        Args:
          x: floating-point batch.
          train: whether to normalize by the batch's own statistics; None means as `nn.apply` says.

        Returns:
          An array of the shape and dtype of `x`.

        Raises:
          RuntimeError: in training outside of `nn.apply`.
        """
        return _with_running_statistics(self, batch_norm, x, train, axis_name=self.axis_name)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.BatchNorm1d` to `BatchNorm3d`, as `Module.torch_tensors` says."""
        return *SCALE_AND_BIAS, *_RUNNING


class LayerNorm(Module):
    """Normalize each example over its last axis or axes.

    Args:
      use_bias: whether features get a trained bias.

        >>> nn.LayerNorm((3, 4))(jnp.ones((2, 3, 4))).shape
        (2, 3, 4)
    """

    scale: Array | None
    bias: Array | None
    rank: int = static(repr=False)
    epsilon: float = static()

    def __init__(
        self, features: Ints, *, epsilon: float = 1e-5, use_scale: bool = True,
        use_bias: bool = True, dtype: Any = None,
    ) -> None:  # fmt: skip
        shape = check_sizes(type(self).__name__, features=features)
        check_not_negative(type(self).__name__, epsilon=epsilon)
        self.scale = jnp.ones(shape, dtype) if use_scale else None
        self.bias = jnp.zeros(shape, dtype) if use_bias else None
        self.rank, self.epsilon = len(shape), epsilon

    def __call__(self, x: ArrayLike) -> Array:
        """`nn.layer_norm` with these parameters; `x` of shape `(..., *features)`."""
        return layer_norm(x, self.scale, self.bias, axis=_last(self.rank), epsilon=self.epsilon)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.LayerNorm`, as `Module.torch_tensors` says."""
        return SCALE_AND_BIAS


def _last(rank: int) -> tuple[int, ...]:
    return tuple(range(-rank, 0))


class AddLayerNorm(LayerNorm):
    """`LayerNorm` of a sum, of the same arguments: what follows a residual connection.

    Args:
      use_bias: whether features get a trained bias.

        >>> nn.AddLayerNorm(4)(jnp.ones((2, 4)), jnp.zeros((2, 4))).shape
        (2, 4)
    """

    def __call__(self, x: ArrayLike, residual: ArrayLike) -> Array:  # type: ignore[override]
        """`nn.add_layer_norm` with these parameters; both of shape `(..., *features)`."""
        axis = _last(self.rank)
        return add_layer_norm(x, residual, self.scale, self.bias, axis=axis, epsilon=self.epsilon)


class RMSNorm(Module):
    """Divide each example by the root mean square of its last axis or axes.

    Args:
      epsilon: added to the mean square.
      dtype: dtype of the scale; None means the default float.

        >>> nn.RMSNorm(2)(jnp.array([3.0, 4.0])).round(3)
        Array([0.849, 1.131], dtype=float32)
    """

    scale: Array | None
    rank: int = static(repr=False)
    epsilon: float = static()

    def __init__(
        self, features: Ints, *, epsilon: float = 1e-6, use_scale: bool = True, dtype: Any = None,
    ) -> None:  # fmt: skip
        shape = check_sizes(type(self).__name__, features=features)
        check_not_negative(type(self).__name__, epsilon=epsilon)
        self.scale = jnp.ones(shape, dtype) if use_scale else None
        self.rank, self.epsilon = len(shape), epsilon

    def __call__(self, x: ArrayLike) -> Array:
        """`nn.rms_norm` with this scale; `x` of shape `(..., *features)`."""
        return rms_norm(x, self.scale, axis=_last(self.rank), epsilon=self.epsilon)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.RMSNorm`, as `Module.torch_tensors` says."""
        return (TorchTensor("weight", "scale"),)


class T5LayerNorm(RMSNorm):
    """`RMSNorm` by the name it has in T5 (Raffel et al., 2020).

    Args:
      epsilon: added to the mean square.
      dtype: dtype of the scale; None means the default float.

        >>> nn.T5LayerNorm(2)(jnp.array([3.0, 4.0])).round(3)
        Array([0.849, 1.131], dtype=float32)
    """


class GroupNorm(Module):
    """Normalize each example over groups of channels and all of space.

    Args:
      axis: the channel axis: -1 for channels last, 1 for channels first.

        >>> nn.GroupNorm(4, groups=2)(jnp.ones((1, 5, 5, 4))).shape
        (1, 5, 5, 4)
    """

    scale: Array | None
    bias: Array | None
    groups: int = static()
    axis: int = static()
    epsilon: float = static()

    def __init__(
        self, channels: int, *, groups: int, axis: int = -1, epsilon: float = 1e-5,
        affine: bool = True, dtype: Any = None,
    ) -> None:  # fmt: skip
        check_positive("GroupNorm", channels=channels, groups=groups)
        check_not_negative("GroupNorm", epsilon=epsilon)
        check_integer("GroupNorm", "axis", axis)
        if channels % groups:
            raise ValueError(f"GroupNorm: groups must divide {channels=}, got {groups=}.")
        self.scale = jnp.ones(channels, dtype) if affine else None
        self.bias = jnp.zeros(channels, dtype) if affine else None
        self.groups, self.axis, self.epsilon = int(groups), axis, epsilon

    def __call__(self, x: ArrayLike) -> Array:
        """`nn.group_norm` with these parameters."""
        return group_norm(
            x, self.scale, self.bias, groups=self.groups, axis=self.axis, epsilon=self.epsilon
        )

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.GroupNorm`, as `Module.torch_tensors` says."""
        return SCALE_AND_BIAS


class InstanceNorm(Module):
    """Normalize each channel of each example over space.

    Args:
      axis: the channel axis: -1 for channels last, 1 for channels first.
      running_statistics: whether to gather statistics in training, within `nn.apply`, and to
        normalize by them otherwise.

    Raises:
      ValueError: `channels` is no positive integer.

        >>> nn.InstanceNorm(3)(jnp.ones((1, 5, 5, 3))).shape
        (1, 5, 5, 3)
    """

    scale: Array | None
    bias: Array | None
    mean: Array | None = state()
    variance: Array | None = state()
    channels: int = static(repr=False)
    axis: int = static()
    momentum: float = static()
    epsilon: float = static()

    def __init__(
        self, channels: int, *, axis: int = -1, epsilon: float = 1e-5, affine: bool = False,
        running_statistics: bool = False, momentum: float = 0.9, dtype: Any = None,
    ) -> None:  # fmt: skip
        check_positive("InstanceNorm", channels=channels)
        check_share("InstanceNorm", "momentum", momentum)
        check_not_negative("InstanceNorm", epsilon=epsilon)
        check_integer("InstanceNorm", "axis", axis)
        self.scale = jnp.ones(channels, dtype) if affine else None
        self.bias = jnp.zeros(channels, dtype) if affine else None
        self.mean = jnp.zeros(channels, dtype) if running_statistics else None
        self.variance = jnp.ones(channels, dtype) if running_statistics else None
        self.axis, self.momentum, self.epsilon = axis, momentum, epsilon
        self.channels = channels

    def __call__(self, x: ArrayLike, *, train: bool | None = None) -> Array:
        """`nn.instance_norm` with these parameters; in training it records running statistics.

        Args:
          x: floating-point batch.
          train: whether a layer with running statistics normalizes by the examples' own; None means
            as `nn.apply` says. Without running statistics it always does.

        Returns:
          An array of the shape and dtype of `x`.

        Raises:
          RuntimeError: in training outside of `nn.apply`, with running statistics.
          ValueError: `x` has another number of channels.
        """
        x = as_array("InstanceNorm", x)
        if x.shape[canonical_axis(self.axis, x.ndim)] != self.channels:
            raise ValueError(
                f"InstanceNorm: x must have {self.channels} channels on axis {self.axis}, got "
                f"shape {x.shape}."
            )
        if self.mean is None:
            return instance_norm(x, self.scale, self.bias, axis=self.axis, epsilon=self.epsilon)
        return _with_running_statistics(self, instance_norm, x, train)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.InstanceNorm1d` to `3d`, as `Module.torch_tensors` says."""
        return *SCALE_AND_BIAS, *_RUNNING


class LocalResponseNorm(FunctionLayer):
    """`nn.local_response_norm` as a layer.

    Args:
      size: extent of the neighborhood.
      mode: "cross_channel" or "within_channel".

        >>> nn.LocalResponseNorm(5)(jnp.ones((1, 4, 4, 8))).shape
        (1, 4, 4, 8)
    """

    size: int = static()
    alpha: float = static(default=1e-4)
    beta: float = static(default=0.75)
    k: float = static(default=1.0)
    mode: str = static(default="cross_channel")
    layout: str = static(default="channels_last")

    def __post_init__(self) -> None:
        check_options("LocalResponseNorm", self.size, self.mode, self.layout)
        for option in ("alpha", "beta", "k"):
            check_number("LocalResponseNorm", option, getattr(self, option))

    def __call__(self, x: ArrayLike) -> Array:
        """Normalize `x` of shape `(n, *space, channels)`."""
        return local_response_norm(x, **self._options())
