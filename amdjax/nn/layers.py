"""Modules over the functional layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import amdjax.numpy as jnp
from amdjax import random
from amdjax.core.array import Array
from amdjax.nn import initializers
from amdjax.nn._arguments import Ints, Padding, check_layout, check_rate, ints
from amdjax.nn.convolution import conv, conv_transpose
from amdjax.nn.linear import dense, embedding
from amdjax.nn.module import Module, is_stateful, state, static
from amdjax.nn.normalization import batch_norm, group_norm, layer_norm, rms_norm
from amdjax.nn.pooling import avg_pool, max_pool
from amdjax.nn.regularization import dropout
from amdjax.numpy._util import ArrayLike

__all__ = [
    "AvgPool", "BatchNorm", "Conv", "ConvTranspose", "Dense", "Dropout", "Embedding", "Flatten",
    "GroupNorm", "Lambda", "LayerNorm", "Linear", "MaxPool", "RMSNorm", "Sequential",
]  # fmt: skip

Init = initializers.Initializer
_KERNEL = initializers.lecun_normal()


def _positive(layer: str, **sizes: Any) -> None:
    for name, value in sizes.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{layer}: {name} must be a positive integer, got {value!r}.")


class Dense(Module):
    """`x @ kernel + bias` on the last axis.

    Args:
      in_features: size of the last axis of the input.
      out_features: size of the last axis of the result.
      key: key of the parameters' random start.
      use_bias: whether there is a bias.
      kernel_init: how the kernel starts, `(in_features, out_features)`.
      bias_init: how the bias starts, `(out_features,)`.
      dtype: dtype of the parameters; None means the default float.

    Raises:
      ValueError: a size is no positive integer.

        >>> layer = nn.Dense(3, 4, key=amdjax.random.key(0))
        >>> layer(jnp.ones((2, 3))).shape
        (2, 4)
    """

    kernel: Array
    bias: Array | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        key: Any,
        use_bias: bool = True,
        kernel_init: Init = _KERNEL,
        bias_init: Init = initializers.zeros,
        dtype: Any = None,
    ) -> None:
        _positive("Dense", in_features=in_features, out_features=out_features)
        key, bias_key = random.split(key)
        self.kernel = kernel_init(key, (in_features, out_features), dtype)
        self.bias = bias_init(bias_key, (out_features,), dtype) if use_bias else None

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """`nn.dense` with these parameters; `x` of shape `(..., in_features)`."""
        return dense(x, self.kernel, self.bias)


Linear = Dense


class _ConvBase(Module):
    kernel: Array
    bias: Array | None
    strides: Ints = static()
    padding: Padding = static()
    dilation: Ints = static()
    groups: int = static()
    layout: str = static()

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        *,
        key: Any,
        strides: Ints = 1,
        padding: Padding = "SAME",
        dilation: Ints = 1,
        groups: int = 1,
        use_bias: bool = True,
        layout: str = "channels_last",
        kernel_init: Init | None = None,
        bias_init: Init = initializers.zeros,
        dtype: Any = None,
    ) -> None:
        name = type(self).__name__
        _positive(name, in_channels=in_channels, out_channels=out_channels, groups=groups)
        last = check_layout(name, layout)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{name}: groups must divide in_channels and out_channels, got "
                f"{groups=}, {in_channels=}, {out_channels=}."
            )
        rank = 2 if isinstance(kernel_size, int) else len(kernel_size)
        size = ints(name, "kernel_size", kernel_size, rank)
        channels = (in_channels // groups, out_channels)
        if kernel_init is None:
            axes = {} if last else {"in_axis": 1, "out_axis": 0}
            kernel_init = initializers.lecun_normal(**axes)
        key, bias_key = random.split(key)
        shape = (*size, *channels) if last else (*channels[::-1], *size)
        self.kernel = kernel_init(key, shape, dtype)
        self.bias = bias_init(bias_key, (out_channels,), dtype) if use_bias else None
        self.strides, self.dilation = _hashable(strides), _hashable(dilation)
        self.padding, self.groups, self.layout = _hashable(padding), groups, layout

    def _options(self) -> dict[str, Any]:
        names = ("strides", "padding", "dilation", "groups", "layout")
        return {name: getattr(self, name) for name in names}


def _hashable(value: Any) -> Any:
    """Static fields are compared and hashed; lists become tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


class Conv(_ConvBase):
    """A convolution; 1-D, 2-D or 3-D as `kernel_size` has entries.

    Args:
      in_channels: channels of the input.
      out_channels: channels of the result.
      kernel_size: sizes of the window; an integer means a square.
      key: key of the parameters' random start.
      strides: steps of the window, one for all spatial axes or one for each.
      padding: "SAME", "VALID", an integer, or for each spatial axis an integer or a pair.
      dilation: distances between neighbors in the window.
      groups: how many groups the channels are cut into.
      use_bias: whether there is a bias.
      layout: "channels_last" or "channels_first".
      kernel_init: how the kernel starts; None means LeCun's normal distribution.
      bias_init: how the bias starts, `(out_channels,)`.
      dtype: dtype of the parameters; None means the default float.

    Raises:
      ValueError: a size is no positive integer, or `groups` does not divide the channels.

        >>> layer = nn.Conv(3, 16, (3, 3), key=amdjax.random.key(0))
        >>> layer(jnp.ones((1, 8, 8, 3))).shape
        (1, 8, 8, 16)
    """

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """`nn.conv` with these parameters; `x` of shape `(n, *space, in_channels)`."""
        return conv(x, self.kernel, self.bias, **self._options())


class ConvTranspose(_ConvBase):
    """A transposed convolution, with the arguments of `Conv` and `output_padding`.

    Args:
      in_channels: channels of the input.
      out_channels: channels of the result.
      kernel_size: sizes of the window; an integer means a square.
      output_padding: elements to add after each spatial axis.
      kwargs: the other arguments of `Conv`.

        >>> layer = nn.ConvTranspose(3, 16, (2, 2), strides=2, key=amdjax.random.key(0))
        >>> layer(jnp.ones((1, 8, 8, 3))).shape
        (1, 16, 16, 16)
    """

    output_padding: Ints = static()

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        *,
        output_padding: Ints = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, **kwargs)
        self.output_padding = _hashable(output_padding)

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """`nn.conv_transpose` with these parameters; `x` of shape `(n, *space, in_channels)`."""
        options = {**self._options(), "output_padding": self.output_padding}
        return conv_transpose(x, self.kernel, self.bias, **options)


class BatchNorm(Module):
    """Normalize each feature over the batch; returns `(y, layer)` with new running statistics.

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
        >>> y, layer = layer(jnp.array([[1.0, 2.0], [3.0, 6.0]]), train=True)
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
        _positive("BatchNorm", features=features)
        self.scale = jnp.ones(features, dtype) if affine else None
        self.bias = jnp.zeros(features, dtype) if affine else None
        self.mean, self.variance = jnp.zeros(features, dtype), jnp.ones(features, dtype)
        self.axis, self.momentum, self.epsilon = axis, momentum, epsilon
        self.axis_name = axis_name

    def __call__(
        self, x: ArrayLike, *, key: Any = None, train: bool = False
    ) -> tuple[Array, BatchNorm]:
        """`nn.batch_norm` with these parameters, and the layer with the new statistics."""
        y, (mean, variance) = batch_norm(
            x, self.scale, self.bias, self.mean, self.variance, train=train, axis=self.axis,
            momentum=self.momentum, epsilon=self.epsilon, axis_name=self.axis_name,
        )  # fmt: skip
        return y, self.replace(mean=mean, variance=variance) if train else self


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
        _positive("LayerNorm", features=features)
        self.scale = jnp.ones(features, dtype) if use_scale else None
        self.bias = jnp.zeros(features, dtype) if use_bias else None
        self.epsilon = epsilon

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """`nn.layer_norm` with these parameters; `x` of shape `(..., features)`."""
        return layer_norm(x, self.scale, self.bias, epsilon=self.epsilon)


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
        _positive("RMSNorm", features=features)
        self.scale, self.epsilon = jnp.ones(features, dtype), epsilon

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """`nn.rms_norm` with this scale; `x` of shape `(..., features)`."""
        return rms_norm(x, self.scale, epsilon=self.epsilon)


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
        _positive("GroupNorm", channels=channels, groups=groups)
        self.scale = jnp.ones(channels, dtype) if affine else None
        self.bias = jnp.zeros(channels, dtype) if affine else None
        self.groups, self.axis, self.epsilon = groups, axis, epsilon

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """`nn.group_norm` with these parameters."""
        return group_norm(
            x, self.scale, self.bias, groups=self.groups, axis=self.axis, epsilon=self.epsilon
        )


class Dropout(Module):
    """Set elements to zero at random while training.

    Args:
      rate: probability of an element to become zero.

    Raises:
      ValueError: `rate` is no probability.

        >>> nn.Dropout(0.5)(jnp.ones(3))
        Array([1., 1., 1.], dtype=float32)
    """

    rate: float = static()

    def __init__(self, rate: float = 0.5) -> None:
        check_rate("Dropout", rate)
        self.rate = rate

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """`nn.dropout` if `train`, else `x`.

        Raises:
          ValueError: no key was given for training.
        """
        if not train or self.rate == 0:
            return jnp.asarray(x)
        if key is None:
            raise ValueError("Dropout: key must be given where train=True.")
        return dropout(key, x, self.rate)


class Embedding(Module):
    """A table of vectors, one for each number.

    Args:
      count: how many vectors.
      features: size of each.
      key: key of the table's random start.
      table_init: how the table starts, `(count, features)`.
      dtype: dtype of the table; None means the default float.

    Raises:
      ValueError: a size is no positive integer.

        >>> layer = nn.Embedding(10, 4, key=amdjax.random.key(0))
        >>> layer(jnp.array([1, 2, 3])).shape
        (3, 4)
    """

    table: Array

    def __init__(
        self,
        count: int,
        features: int,
        *,
        key: Any,
        table_init: Init = initializers.normal(1.0),  # noqa: B008
        dtype: Any = None,
    ) -> None:
        _positive("Embedding", count=count, features=features)
        self.table = table_init(key, (count, features), dtype)

    def __call__(self, ids: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """Vectors of `ids`, of shape `(*ids.shape, features)`."""
        return embedding(self.table, ids)


class MaxPool(Module):
    """`nn.max_pool` as a layer.

    Args:
      window: sizes of the window.
      strides: steps of the window; None means its size.
      padding: "SAME", "VALID", or integers.
      layout: "channels_last" or "channels_first".

        >>> nn.MaxPool(2)(jnp.ones((1, 4, 4, 3))).shape
        (1, 2, 2, 3)
    """

    window: Ints = static()
    strides: Ints | None = static(default=None)
    padding: Padding = static(default="VALID")
    layout: str = static(default="channels_last")

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """Pool `x` of shape `(n, *space, channels)`."""
        return max_pool(
            x, self.window, strides=self.strides, padding=self.padding, layout=self.layout
        )


class AvgPool(Module):
    """`nn.avg_pool` as a layer.

    Args:
      window: sizes of the window.
      strides: steps of the window; None means its size.
      padding: "SAME", "VALID", or integers.
      layout: "channels_last" or "channels_first".

        >>> nn.AvgPool(2)(jnp.ones((1, 4, 4, 3))).shape
        (1, 2, 2, 3)
    """

    window: Ints = static()
    strides: Ints | None = static(default=None)
    padding: Padding = static(default="VALID")
    layout: str = static(default="channels_last")

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """Pool `x` of shape `(n, *space, channels)`."""
        return avg_pool(
            x, self.window, strides=self.strides, padding=self.padding, layout=self.layout
        )


class Flatten(Module):
    """All axes but the first as one.

    >>> nn.Flatten()(jnp.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """Reshape `x` of shape `(n, ...)`."""
        x = jnp.asarray(x)
        return jnp.reshape(x, (x.shape[0], -1))


class Lambda(Module):
    """A function of one array as a layer.

    Args:
      fn: the function; it belongs to the network's structure.

        >>> nn.Lambda(nn.relu)(jnp.array([-1.0, 1.0]))
        Array([0., 1.], dtype=float32)
    """

    fn: Callable[[Any], Any] = static()

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Any:
        """`fn(x)`."""
        return self.fn(x)


class Sequential(Module):
    """Layers one after the other.

    Args:
      layers: modules, and functions of one array such as `nn.relu`.

    Raises:
      TypeError: a layer cannot be called.

        >>> k1, k2 = amdjax.random.split(amdjax.random.key(0))
        >>> mlp = nn.Sequential([nn.Dense(2, 8, key=k1), nn.relu, nn.Dense(8, 1, key=k2)])
        >>> mlp(jnp.ones((5, 2))).shape
        (5, 1)
    """

    layers: tuple[Any, ...]

    def __init__(self, layers: Sequence[Any]) -> None:
        for i, layer in enumerate(layers):
            if not callable(layer):
                raise TypeError(f"Sequential: layers[{i}] is not callable: {layer!r}.")
        self.layers = tuple(x if isinstance(x, Module) else Lambda(x) for x in layers)

    def __call__(self, x: Any, *, key: Any = None, train: bool = False) -> Any:
        """The last layer's result; with the network as it is then, if a layer has state.

        Args:
          x: what the first layer takes.
          key: key from which each layer gets one of its own.
          train: passed to each layer.

        Returns:
          `y`, or `(y, network)` if `nn.is_stateful(network)`.
        """
        keys = [None] * len(self.layers) if key is None else random.split(key, len(self.layers))
        layers = []
        for layer, layer_key in zip(self.layers, keys):
            x = layer(x, key=layer_key, train=train)
            if is_stateful(layer):
                x, layer = x
            layers.append(layer)
        return (x, self.replace(layers=tuple(layers))) if is_stateful(self) else x

    def __getitem__(self, index: Any) -> Any:
        """A layer, or for a slice a network of some layers."""
        found = self.layers[index]
        return self.replace(layers=found) if isinstance(index, slice) else found

    def __len__(self) -> int:
        return len(self.layers)
