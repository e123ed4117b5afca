"""Layers of convolution."""

from __future__ import annotations

from typing import Any

from amdjax.core.array import Array
from amdjax.nn import _random as random, initializers
from amdjax.nn._arguments import (
    Ints,
    Padding,
    check_callable,
    check_layout,
    check_padding,
    check_positive,
    hashable,
    ints,
)
from amdjax.nn._torch import TorchTensor
from amdjax.nn.convolution import conv, conv_transpose
from amdjax.nn.module import Module, static
from amdjax.numpy._util import ArrayLike

__all__ = ["Conv", "ConvTranspose"]


class _ConvBase(Module):
    kernel: Array
    bias: Array | None
    strides: Ints = static()
    padding: Padding = static()
    dilation: Ints = static()
    groups: int = static()
    layout: str = static()

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, *, key: Any,
        strides: Ints = 1, padding: Padding = "SAME", dilation: Ints = 1, groups: int = 1,
        use_bias: bool = True, layout: str = "channels_last",
        kernel_init: initializers.Initializer | None = None,
        bias_init: initializers.Initializer = initializers.zeros, dtype: Any = None,
    ) -> None:  # fmt: skip
        name = type(self).__name__
        check_positive(name, in_channels=in_channels, out_channels=out_channels, groups=groups)
        last = check_layout(name, layout)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{name}: groups must divide in_channels and out_channels, got "
                f"{groups=}, {in_channels=}, {out_channels=}."
            )
        rank = len(kernel_size) if hasattr(kernel_size, "__len__") else 2
        size = ints(name, "kernel_size", kernel_size, rank)
        ints(name, "strides", strides, rank)
        ints(name, "dilation", dilation, rank)
        check_padding(name, padding, rank)
        check_callable(name, bias_init=bias_init)
        channels = (in_channels // groups, out_channels)
        if kernel_init is None:
            axes = {} if last else {"in_axis": 1, "out_axis": 0}
            kernel_init = initializers.lecun_normal(**axes)
        check_callable(name, kernel_init=kernel_init)
        key, bias_key = random.split(random.checked_key(type(self).__name__, key))
        shape = (*size, *channels) if last else (*channels[::-1], *size)
        self.kernel = kernel_init(key, shape, dtype)
        self.bias = bias_init(bias_key, (out_channels,), dtype) if use_bias else None
        self.strides, self.dilation = hashable(strides), hashable(dilation)
        self.padding, self.groups, self.layout = hashable(padding), int(groups), layout

    def _options(self) -> dict[str, Any]:
        names = ("strides", "padding", "dilation", "groups", "layout")
        return {name: getattr(self, name) for name in names}


class Conv(_ConvBase):
    """A convolution; 1-D, 2-D or 3-D as `kernel_size` has entries.

    Args:
      strides: steps of the window, one for all spatial axes or one for each.
      padding: "SAME", "VALID", an integer, or for each spatial axis an integer or a pair.
      kernel_init: how the kernel starts; None means LeCun's normal distribution.
      bias_init: how the bias starts, `(out_channels,)`.

        >>> layer = nn.Conv(3, 16, (3, 3), key=amdjax.random.key(0))
        >>> layer(jnp.ones((1, 8, 8, 3))).shape
        (1, 8, 8, 16)
    """

    def __call__(self, x: ArrayLike) -> Array:
        """`nn.conv` with these parameters; `x` of shape `(n, *space, in_channels)`."""
        return conv(x, self.kernel, self.bias, **self._options())

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.Conv1d` to `Conv3d`, as `Module.torch_tensors` says."""
        space = range(2, self.kernel.ndim)
        axes = (*space, 1, 0) if self.layout == "channels_last" else None
        return TorchTensor("weight", "kernel", axes), TorchTensor("bias", "bias")


class ConvTranspose(_ConvBase):
    """A transposed convolution, with the arguments of `Conv` and `output_padding`.

    Args:
      output_padding: elements to add after each spatial axis.
      kwargs: the other arguments of `Conv`.

        >>> layer = nn.ConvTranspose(3, 16, (2, 2), strides=2, key=amdjax.random.key(0))
        >>> layer(jnp.ones((1, 8, 8, 3))).shape
        (1, 16, 16, 16)
    """

    output_padding: Ints = static()

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, *, output_padding: Ints = 0,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, **kwargs)
        ints("ConvTranspose", "output_padding", output_padding, self.kernel.ndim - 2, least=0)
        self.output_padding = hashable(output_padding)

    def __call__(self, x: ArrayLike) -> Array:
        """`nn.conv_transpose` with these parameters; `x` of shape `(n, *space, in_channels)`."""
        options = {**self._options(), "output_padding": self.output_padding}
        return conv_transpose(x, self.kernel, self.bias, **options)

    def torch_tensors(self) -> tuple[TorchTensor, ...]:
        """Those of `torch.nn.ConvTranspose1d` to `ConvTranspose3d`, as `Module.torch_tensors` says.

        PyTorch has all input channels first and the outputs of one group, ours the inputs of one
        group and all outputs.
        """
        last, groups = self.layout == "channels_last", self.groups
        *space, inputs, outputs = self.kernel.shape if last else (
            *self.kernel.shape[2:], *self.kernel.shape[1::-1])  # fmt: skip
        split = (groups, inputs, outputs // groups, *space)
        places = range(3, 3 + len(space))
        axes = (*places, 1, 0, 2) if last else (0, 2, 1, *places)
        shape = (groups * inputs, outputs // groups, *space)
        return TorchTensor("weight", "kernel", axes, split, shape), TorchTensor("bias", "bias")
