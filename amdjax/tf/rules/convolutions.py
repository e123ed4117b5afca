"""Convolutions and pooling, in both layouts, padded as TensorFlow does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax import dtypes, lax

from ..nodes import Node
from ..registry import rule, sizes
from .arithmetic import check_same_dtype

_LAYOUTS = {4: ("NHWC", "NCHW"), 5: ("NDHWC", "NCDHW")}


class _Geometry(NamedTuple):
    """Windows of an operator.

    Attributes:
      layout: the names of axes, as `lax` takes them.
      space: the axes that windows move along.
      window: the size of windows along them.
      strides, dilation: steps of windows, and of their elements.
      pads: elements beyond both ends.
    """

    layout: str
    space: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[Any, Any], ...]

    def everywhere(self, values: Sequence[Any], other: Any) -> list[Any]:
        """Values for all axes."""
        by_axis = dict(zip(self.space, values))
        return [by_axis.get(i, other) for i in range(len(self.layout))]


def layout_of(node: Node, rank: int) -> str:
    """The layout of an operator on batches of so many axes."""
    if rank not in _LAYOUTS:
        raise node.error(f"the batch must have 4 or 5 axes, got {rank}")
    return node.text("data_format", _LAYOUTS[rank][0], _LAYOUTS[rank])


def _geometry(
    node: Node, shape: Sequence[Any], window: Sequence[int] | None, with_dilation: bool,
    ksize: Sequence[int] | None = None, steps: Sequence[int] | None = None,
) -> _Geometry:  # fmt: skip
    rank = len(shape)
    layout = layout_of(node, rank)
    space = tuple(i for i in range(rank) if layout[i] not in "NC")
    strides = _of_space(node, "strides", steps, layout)
    ones = (1,) * rank
    dilation = _of_space(node, "dilations", None, layout, ones if with_dilation else None)
    if not with_dilation:
        dilation = (1,) * len(space)
    window = _of_space(node, "ksize", ksize, layout) if window is None else tuple(window)
    if any(n < 1 for n in window):
        raise node.error(f"windows must have one element at least, got {window}")
    reaches = [(n - 1) * d + 1 for n, d in zip(window, dilation)]
    pads = _pads(node, [shape[i] for i in space], reaches, strides, space)
    return _Geometry(layout, space, window, strides, dilation, pads)


def _of_space(
    node: Node, name: str, given: Sequence[int] | None, layout: str,
    default: Sequence[int] | None = None,
) -> tuple[int, ...]:  # fmt: skip
    """An attribute's values for spatial axes."""
    if given is None:
        if name == "dilations" and default is None:
            return ()
        given = node.integers(name, default)
    if len(given) != len(layout):
        raise node.error(f"{name} must have {len(layout)} values, got {len(given)}")
    if any(not 1 <= n < 2**31 for n in given):
        raise node.error(f"{name} must be positive, got {list(given)}")
    if any(n != 1 for n, axis in zip(given, layout) if axis in "NC"):
        raise node.error(f"{name} of batch and channels must be 1, got {list(given)}")
    return tuple(n for n, axis in zip(given, layout) if axis not in "NC")


def _pads(
    node: Node, shape: Sequence[Any], reaches: Sequence[int], strides: Sequence[int],
    space: Sequence[int],
) -> tuple[tuple[Any, Any], ...]:  # fmt: skip
    """Elements beyond both ends of spatial axes; of an odd number, one more at the end."""
    padding = node.text("padding", None, ("SAME", "VALID", "EXPLICIT"))
    if padding == "EXPLICIT":
        given = node.integers("explicit_paddings", ())
        if len(given) != 2 * (len(space) + 2) or any(not 0 <= n < 2**31 for n in given):
            raise node.error(f"explicit_paddings must be pairs for each axis, got {list(given)}")
        return tuple((given[2 * i], given[2 * i + 1]) for i in space)
    if padding == "VALID":
        for n, reach in zip(shape, reaches):
            if isinstance(n, int) and n < reach:
                raise node.error(f"windows of {list(reaches)} are larger than {list(shape)}")
        return ((0, 0),) * len(space)
    return tuple(lax.padtype_to_pads(shape, reaches, strides, "SAME"))


@rule("Conv2D", "Conv3D", only_device=True)
def conv(node: Node, x: Any, filter: Any) -> Any:
    if filter.ndim != x.ndim:
        raise node.error(f"input has shape {x.shape}, filter {filter.shape}")
    check_same_dtype(node, x, filter)
    g = _geometry(node, x.shape, filter.shape[:-2], True)
    channels, depth = x.shape[g.layout.index("C")], filter.shape[-2]
    if not depth or channels % depth or filter.shape[-1] % (channels // depth or 1):
        raise node.error(f"filter {filter.shape} does not fit {channels} channels")
    return _conv(x, filter, g, channels // depth)


@rule("DepthwiseConv2dNative", only_device=True)
def depthwise_conv(node: Node, x: Any, filter: Any) -> Any:
    if filter.ndim != 4 or x.ndim != 4:
        raise node.error(f"input has shape {x.shape}, filter {filter.shape}")
    check_same_dtype(node, x, filter)
    g = _geometry(node, x.shape, filter.shape[:2], True)
    channels = x.shape[g.layout.index("C")]
    if filter.shape[2] != channels:
        raise node.error(f"filter {filter.shape} does not fit {channels} channels")
    return _conv(x, filter.reshape(*filter.shape[:2], 1, -1), g, channels)


def _conv(x: Any, kernel: Any, g: _Geometry, groups: int) -> Any:
    return lax.conv_general_dilated(
        x, kernel, g.strides, g.pads, rhs_dilation=g.dilation, feature_group_count=groups,
        dimension_numbers=(g.layout, _kernel(g.layout), g.layout),
    )  # fmt: skip


def _kernel(layout: str) -> str:
    return ("DHW" if len(layout) == 5 else "HW") + "IO"


@rule("Conv2DBackpropInput", numbers=("input_sizes",), only_device=True)
def conv_transpose(node: Node, input_sizes: Any, filter: Any, out_backprop: Any) -> Any:
    """The gradient of a convolution, by which graphs write transposed ones."""
    shape = sizes(input_sizes)
    layout = layout_of(node, out_backprop.ndim)
    if len(shape) == 2:
        shape = list(out_backprop.shape[:1]) + (
            [*shape, filter.shape[2]] if layout == "NHWC" else [filter.shape[2], *shape]
        )
    if len(shape) != 4 or filter.ndim != 4:
        raise node.error(f"sizes {shape} do not fit filter {filter.shape}")
    check_same_dtype(node, filter, out_backprop)
    g = _geometry(node, shape, filter.shape[:2], True)
    pads = []
    for i, axis in enumerate(g.space):
        reach = (g.window[i] - 1) * g.dilation[i] + 1
        low = reach - 1 - g.pads[i][0]
        spread = (out_backprop.shape[axis] - 1) * g.strides[i] + 1
        pads.append((low, shape[axis] + reach - 1 - spread - low))
    kernel = jnp.flip(filter, (0, 1)).swapaxes(2, 3)
    groups = shape[g.layout.index("C")] // filter.shape[2]
    if groups != 1:
        raise node.error("transposed convolutions of groups are not read")
    return lax.conv_general_dilated(
        out_backprop, kernel, (1, 1), pads, lhs_dilation=g.strides, rhs_dilation=g.dilation,
        dimension_numbers=(g.layout, "HWIO", g.layout),
    )  # fmt: skip


@rule("MaxPool", "MaxPool3D", only_device=True)
def max_pool(node: Node, x: Any) -> Any:
    return _max_pool(x, _geometry(node, x.shape, None, False))


@rule("MaxPoolV2", numbers=("ksize", "strides"), only_device=True)
def max_pool_v2(node: Node, x: Any, ksize: Any, strides: Any) -> Any:
    g = _geometry(node, x.shape, None, False, sizes(ksize), sizes(strides))
    return _max_pool(x, g)


def _max_pool(x: Any, g: _Geometry) -> Any:
    is_real = dtypes.issubdtype(x.dtype, np.floating)
    lowest = -np.inf if is_real else dtypes.iinfo(x.dtype).min
    return _over_windows(x, g, np.asarray(lowest, x.dtype), lax.max)


@rule("AvgPool", "AvgPool3D", only_device=True)
def avg_pool(node: Node, x: Any) -> Any:
    g = _geometry(node, x.shape, None, False)
    dtype = x.dtype
    x = x.astype(np.float32) if dtype.itemsize < 4 else x
    total = _over_windows(x, g, np.asarray(0, x.dtype), lax.add)
    if not any(map(_is_padded, g.pads)):
        return (total / np.asarray(math.prod(g.window), x.dtype)).astype(dtype)
    counts = jnp.ones((), x.dtype)  # elements of a window that are there, along each axis
    for i, axis in enumerate(g.space):
        starts = jnp.arange(total.shape[axis]) * g.strides[i] - g.pads[i][0]
        ends = jnp.minimum(starts + g.window[i], x.shape[axis])
        along = (ends - jnp.maximum(starts, 0)).astype(x.dtype)
        counts = counts * along.reshape([-1 if j == axis else 1 for j in range(x.ndim)])
    return (total / counts).astype(dtype)


def _is_padded(pads: tuple[Any, Any]) -> bool:
    return not all(isinstance(n, int) and n == 0 for n in pads)


def _over_windows(x: Any, g: _Geometry, start: Any, combine: Any) -> Any:
    return lax.reduce_window(
        x, start, combine, tuple(g.everywhere(g.window, 1)), tuple(g.everywhere(g.strides, 1)),
        g.everywhere(g.pads, (0, 0)),
    )  # fmt: skip
