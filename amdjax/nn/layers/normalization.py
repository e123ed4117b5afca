"""Layers of normalization."""

from __future__ import annotations

from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.nn._arguments import check_positive
from amdjax.nn._scope import is_training
from amdjax.nn._torch import SCALE_AND_BIAS, TorchTensor
from amdjax.nn.module import Module, state, static
from amdjax.nn.normalization import batch_norm, group_norm, layer_norm, rms_norm
from amdjax.numpy._util import ArrayLike

__all__ = ["BatchNorm", "GroupNorm", "LayerNorm", "RMSNorm"]


class BatchNorm(Module):
    """Normalize each feature over the batch; in training, within `nn.apply`, with new statistics.

    Args:
      features: size of the feature axis.
      axis: the feature axis: -1 for channels last, 1 for channels first.
      momentum: how much of the running statistics remains after an update.
      epsilon: added to the variance.
      affine: whether features get a trained scale and bias.
      axis_name: axes of `vmap` over which the batch goes on.
      dtype: dtype of the parameters; None means the default float.

    Raises:
      ValueError: `features` is no positive integer.

        >>> layer = nn.BatchNorm(2, momentum=0.5)
        >>> y, layer = nn.apply(layer, jnp.array([[1.0, 2.0], [3.0, 6.0]]), train=True)
        >>> layer.mean
        Array([1., 2.], dtype=float32)
    """

    scale: Array | None
    bias: Array | None
    mean: Array = state()
    variance: Array = state()
    axis: int = static()
    momentum: float = static()
    epsilon: float = static()
    axis_name: Any = static()

    def __init__(
        self,
        features: int,
        *,
        axis: int = -1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        affine: bool = True,
        axis_name: str | tuple[str, ...] | None = None,
        dtype: Any = None,
    ) -> None:
        check_positive("BatchNorm", features=features)
        self.scale = jnp.ones(features, dtype) if affine else None
        self.bias = jnp.zeros(features, dtype) if affine else None
        self.mean, self.variance = jnp.zeros(features, dtype), jnp.ones(features, dtype)
        self.axis, self.momentum, self.epsilon = axis, momentum, epsilon
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
        train, now = is_training(train), self.latest()
        y, (mean, variance) = batch_norm(
            x, self.scale, self.bias, now.mean, now.variance, train=train, axis=self.axis,
            momentum=self.momentum, epsilon=self.epsilon, axis_name=self.axis_name,
        )  # fmt: skip
        if train:
            self.record(mean=mean, variance=variance)
        return y

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.BatchNorm1d` to `BatchNorm3d`, as `Module.torch_tensors` says."""
        statistics = (
            TorchTensor("running_mean", "mean"),
            TorchTensor("running_var", "variance"),
            TorchTensor("num_batches_tracked", None),
        )
        return *SCALE_AND_BIAS, *statistics


class LayerNorm(Module):
    """Normalize each example over its last axis.

    Args:
      features: size of the last axis.
      epsilon: added to the variance.
      use_scale: whether features get a trained scale.
      use_bias: whether features get a trained bias.
      dtype: dtype of the parameters; None means the default float.

        >>> nn.LayerNorm(4)(jnp.ones((2, 4))).shape
        (2, 4)
    """

    scale: Array | None
    bias: Array | None
    epsilon: float = static()

    def __init__(
        self,
        features: int,
        *,
        epsilon: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        dtype: Any = None,
    ) -> None:
        check_positive("LayerNorm", features=features)
        self.scale = jnp.ones(features, dtype) if use_scale else None
        self.bias = jnp.zeros(features, dtype) if use_bias else None
        self.epsilon = epsilon

    def __call__(self, x: ArrayLike) -> Array:
        """`nn.layer_norm` with these parameters; `x` of shape `(..., features)`."""
        return layer_norm(x, self.scale, self.bias, epsilon=self.epsilon)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.LayerNorm`, as `Module.torch_tensors` says."""
        return SCALE_AND_BIAS


class RMSNorm(Module):
    """Divide each example by the root mean square of its last axis.

    Args:
      features: size of the last axis.
      epsilon: added to the mean square.
      dtype: dtype of the scale; None means the default float.

        >>> nn.RMSNorm(2)(jnp.array([3.0, 4.0])).round(3)
        Array([0.849, 1.131], dtype=float32)
    """

    scale: Array
    epsilon: float = static()

    def __init__(self, features: int, *, epsilon: float = 1e-6, dtype: Any = None) -> None:
        check_positive("RMSNorm", features=features)
        self.scale, self.epsilon = jnp.ones(features, dtype), epsilon

    def __call__(self, x: ArrayLike) -> Array:
        """`nn.rms_norm` with this scale; `x` of shape `(..., features)`."""
        return rms_norm(x, self.scale, epsilon=self.epsilon)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.RMSNorm`, as `Module.torch_tensors` says."""
        return (TorchTensor("weight", "scale"),)


class GroupNorm(Module):
    """Normalize each example over groups of channels and all of space.

    Args:
      channels: size of the channel axis.
      groups: how many groups the channels are cut into.
      axis: the channel axis: -1 for channels last, 1 for channels first.
      epsilon: added to the variance.
      affine: whether channels get a trained scale and bias.
      dtype: dtype of the parameters; None means the default float.

        >>> nn.GroupNorm(4, groups=2)(jnp.ones((1, 5, 5, 4))).shape
        (1, 5, 5, 4)
    """

    scale: Array | None
    bias: Array | None
    groups: int = static()
    axis: int = static()
    epsilon: float = static()

    def __init__(
        self,
        channels: int,
        *,
        groups: int,
        axis: int = -1,
        epsilon: float = 1e-5,
        affine: bool = True,
        dtype: Any = None,
    ) -> None:
        check_positive("GroupNorm", channels=channels, groups=groups)
        self.scale = jnp.ones(channels, dtype) if affine else None
        self.bias = jnp.zeros(channels, dtype) if affine else None
        self.groups, self.axis, self.epsilon = groups, axis, epsilon

    def __call__(self, x: ArrayLike) -> Array:
        """`nn.group_norm` with these parameters."""
        return group_norm(
            x, self.scale, self.bias, groups=self.groups, axis=self.axis, epsilon=self.epsilon
        )

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.GroupNorm`, as `Module.torch_tensors` says."""
        return SCALE_AND_BIAS
