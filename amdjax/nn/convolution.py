"""Convolutions of batches of signals, images and volumes."""

from __future__ import annotations

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.nn._arguments import (
    Ints,
    Padding,
    Pads,
    check_layout,
    check_no_complex,
    dilated,
    ints,
    is_integer,
    pads,
    space_rank,
)
from amdjax.numpy._util import ArrayLike, as_array, convert, promote_dtypes

__all__ = ["conv", "conv_transpose"]

_SPACE = "HWD"
_SMALL_INTEGERS = tuple(map(np.dtype, ("int8", "uint8", "int16", "uint16")))


def conv(
    x: ArrayLike, kernel: ArrayLike, bias: ArrayLike | None = None, *, strides: Ints = 1,
    padding: Padding = "SAME", dilation: Ints = 1, groups: int = 1, layout: str = "channels_last",
) -> Array:  # fmt: skip
    """Slide a kernel over the spatial axes (a cross-correlation, as everywhere in the field).

    Args:
      x: batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels come first.
      strides: steps of the window, one for all spatial axes or one for each.
      padding: "SAME", "VALID", an integer, or for each spatial axis an integer or a pair.
      groups: how many groups the channels are cut into, each with kernels of its own.
      layout: "channels_last" (NHWC, HWIO) or "channels_first" (NCHW, OIHW).

    Returns:
      A batch with `features` channels in the same layout. Integers of 8 and 16
      bits are summed in int32.

        >>> nn.conv(jnp.ones((1, 8, 8, 3)), jnp.ones((3, 3, 3, 5)), strides=2).shape
        (1, 4, 4, 5)
    """
    x, kernel, bias = _operands("conv", x, kernel, bias)
    last = check_layout("conv", layout)
    rank = _check_shapes("conv", x, kernel, bias, groups, last)
    steps = ints("conv", "strides", strides, rank)
    distances = ints("conv", "dilation", dilation, rank)
    reach = dilated(_space(kernel, last, kernel=True), distances)
    margins = pads("conv", padding, _space(x, last), reach, steps)
    if any(n + low + high < r for n, (low, high), r in zip(_space(x, last), margins, reach)):
        raise ValueError(
            f"conv: the window must fit into x with its padding, got kernel of shape "
            f"{kernel.shape}, {dilation=}, {padding=} and x of shape {x.shape}."
        )
    return _conv(x, kernel, bias, steps, margins, (1,) * rank, distances, groups, last)


def conv_transpose(
    x: ArrayLike, kernel: ArrayLike, bias: ArrayLike | None = None, *, strides: Ints = 1,
    padding: Padding = "SAME", output_padding: Ints = 0, dilation: Ints = 1, groups: int = 1,
    layout: str = "channels_last",
) -> Array:  # fmt: skip
    """The transpose of a convolution: what `conv` with these arguments shrinks is enlarged.

    As in Zeiler et al. (2010). The window is mirrored, so that this is the gradient of `conv` with
    respect to its input where channels and features change places.

    Args:
      x: batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels come first.
      strides: factors by which the spatial axes grow.
      padding: padding of the convolution that is transposed, which cuts off the result's edges:
        "SAME" makes it `strides` times the size of `x`, "VALID" keeps all of it.
      output_padding: elements to add after each axis, for convolutions that leave some over.
      layout: "channels_last" (NHWC, HWIO) or "channels_first" (NCHW, OIHW).

    Returns:
      A batch with `features` channels in the same layout. Each spatial axis has
      `(size - 1) * stride + (window - 1) * dilation + 1 - padding + output_padding` elements.

        >>> nn.conv_transpose(jnp.ones((1, 4, 4, 3)), jnp.ones((3, 3, 3, 5)), strides=2).shape
        (1, 8, 8, 5)
    """
    x, kernel, bias = _operands("conv_transpose", x, kernel, bias)
    last = check_layout("conv_transpose", layout)
    rank = _check_shapes("conv_transpose", x, kernel, bias, groups, last)
    steps = ints("conv_transpose", "strides", strides, rank)
    distances = ints("conv_transpose", "dilation", dilation, rank)
    extra = ints("conv_transpose", "output_padding", output_padding, rank, least=0)
    reach = dilated(_space(kernel, last, kernel=True), distances)
    large = [n * s for n, s in zip(_space(x, last), steps)]
    removed = pads("conv_transpose", padding, large, reach, steps)
    if isinstance(padding, str) and padding.upper() == "SAME":
        # A window smaller than its step leaves gaps, which the result must still contain.
        extra = tuple(e + max(s - r, 0) for e, s, r in zip(extra, steps, reach))
    margins = tuple(
        (r - 1 - low, r - 1 - high + e) for r, (low, high), e in zip(reach, removed, extra)
    )
    if any(
        (n - 1) * s + r - low - high + e < 1
        for n, s, r, (low, high), e in zip(_space(x, last), steps, reach, removed, extra)
    ):
        raise ValueError(
            f"conv_transpose: padding cuts all off, got {padding=} for x of shape {x.shape} and "
            f"kernel of shape {kernel.shape}."
        )
    mirrored = lax.rev(kernel, range(rank) if last else range(2, 2 + rank))
    return _conv(x, mirrored, bias, (1,) * rank, margins, steps, distances, groups, last)


def _operands(
    name: str, x: ArrayLike, kernel: ArrayLike, bias: ArrayLike | None
) -> tuple[Array, Array, Array | None]:
    x, kernel = promote_dtypes(as_array(name, x), as_array(name, kernel, 1))
    if bias is None:
        return x, kernel, None
    bias = as_array(name, bias, 2)
    if not dtypes.issubdtype(x.dtype, np.complexfloating):
        check_no_complex(name, bias, "bias")
    return x, kernel, bias


def _space(x: Array, last: bool, kernel: bool = False) -> tuple[int, ...]:
    if last:
        return x.shape[:-2] if kernel else x.shape[1:-1]
    return x.shape[2:]


def _check_shapes(
    name: str, x: Array, kernel: Array, bias: Array | None, groups: int, last: bool
) -> int:
    rank = space_rank(name, x)
    if kernel.ndim != x.ndim:
        raise ValueError(
            f"{name}: kernel must have as many axes as x, got shapes {kernel.shape} and {x.shape}."
        )
    if not is_integer(groups) or groups < 1:
        raise ValueError(f"{name}: groups must be a positive integer, got {groups!r}.")
    channels = x.shape[-1 if last else 1]
    inputs, features = kernel.shape[-2:] if last else (kernel.shape[1], kernel.shape[0])
    if inputs * groups != channels:
        raise ValueError(
            f"{name}: kernel of shape {kernel.shape} takes {inputs} channels in each of {groups} "
            f"group(s), but x of shape {x.shape} has {channels} channels."
        )
    if features % groups:
        raise ValueError(
            f"{name}: groups must divide the number of features, got {groups=} and kernel of shape "
            f"{kernel.shape} with {features} features."
        )
    if bias is not None and bias.shape != (features,):
        raise ValueError(f"{name}: bias must have shape {(features,)}, got {bias.shape}.")
    return rank


@composite(static_argnames=("strides", "pads", "lhs_dilation", "rhs_dilation", "groups", "last"))
def _conv(
    x: Array, kernel: Array, bias: Array | None, strides: tuple[int, ...], pads: Pads,
    lhs_dilation: tuple[int, ...], rhs_dilation: tuple[int, ...], groups: int, last: bool,
) -> Array:  # fmt: skip
    space = _SPACE[: len(strides)]
    data, weights = ("N" + space + "C", space + "IO") if last else ("NC" + space, "OI" + space)
    wide = np.dtype("int32") if x.dtype in _SMALL_INTEGERS else None
    y = lax.conv_general_dilated(
        x, kernel, strides, pads, lhs_dilation, rhs_dilation,
        dimension_numbers=(data, weights, data), feature_group_count=groups,
        preferred_element_type=wide,
    )  # fmt: skip
    if bias is None:
        return y
    return y + convert(lax.expand_dims(bias, _other_axes(y.ndim, last)), y.dtype)


def _other_axes(ndim: int, last: bool) -> tuple[int, ...]:
    channel = ndim - 1 if last else 1
    return tuple(i for i in range(ndim) if i != channel)
