"""Convolutions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from amdjax import lax, numpy as jnp

from ..errors import OnnxError
from ..registry import ints, rule
from ._windows import windows

_SPACE = "DHW"


def layouts(rank: int) -> tuple[str, str, str]:
    """Channels first, for so many spatial axes."""
    space = _SPACE[-rank:] if rank <= 3 else "".join(map(chr, range(ord("a"), ord("a") + rank)))
    return "NC" + space, "OI" + space, "NC" + space


def by_channel(values: Any, rank: int) -> Any:
    """One value a channel, beside a batch of so many spatial axes."""
    return values.reshape(1, -1, *[1] * rank)


@rule("Conv")
def conv(
    x: Any, w: Any, b: Any = None, *, auto_pad: str = "NOTSET", dilations: Any = None,
    group: int = 1, kernel_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    made = windows(x.shape[2:], kernel_shape or w.shape[2:], strides, dilations, pads, auto_pad)
    y = lax.conv_general_dilated(
        x, w, made.strides, made.pads, rhs_dilation=made.dilations, feature_group_count=group,
        dimension_numbers=layouts(x.ndim - 2),
    )  # fmt: skip
    return y if b is None else y + by_channel(b, x.ndim - 2)


@rule("ConvTranspose")
def conv_transpose(
    x: Any, w: Any, b: Any = None, *, auto_pad: str = "NOTSET", dilations: Any = None,
    group: int = 1, kernel_shape: Any = None, output_padding: Any = None,
    output_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    """The transpose of a convolution in its data: elements lie apart, kernels are turned."""
    rank = x.ndim - 2
    size = w.shape[2:]
    steps, apart = list(strides or [1] * rank), list(dilations or [1] * rank)
    more = list(output_padding or [0] * rank)
    if output_shape is None and auto_pad.startswith("SAME"):
        output_shape = [n * s for n, s in zip(x.shape[2:], steps)]
    margins = []
    flat = list(pads or [0] * 2 * rank)
    for i in range(rank):
        reach = apart[i] * (size[i] - 1) + 1
        low, high = flat[i], flat[i + rank]
        if output_shape is not None:
            whole = steps[i] * (x.shape[2 + i] - 1) + more[i] + reach
            total = whole - list(output_shape)[-rank:][i]
            half = max(total, 0) // 2  # what is larger than the whole is so at its end
            low, high = half, total - half
            if auto_pad != "SAME_UPPER" and total > 0:
                low, high = high, low
        margins.append((reach - 1 - low, reach - 1 - high + more[i]))
    kernel = w.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2)
    kernel = jnp.flip(kernel.reshape(-1, *kernel.shape[2:]), tuple(range(2, 2 + rank)))
    y = lax.conv_general_dilated(
        x, kernel, [1] * rank, margins, lhs_dilation=steps, rhs_dilation=apart,
        feature_group_count=group, dimension_numbers=layouts(rank),
    )  # fmt: skip
    return y if b is None else y + by_channel(b, rank)


@rule("Col2Im", since=18)
def col2im(
    x: Any, image_shape: Any, block_shape: Any, *, dilations: Any = None, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    """Blocks of elements, a column each, added up where they lie in an image."""
    space, block = ints(image_shape, "image_shape"), ints(block_shape, "block_shape")
    made = windows(space, block, strides, dilations, pads, "NOTSET")
    channels = x.shape[1] // int(np.prod(block))
    margins = made.pads
    padded = [n + low + high for n, (low, high) in zip(space, margins)]
    counts = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(padded, block, made.strides, made.dilations)
    ]
    columns = x.reshape(x.shape[0], channels, *block, *counts)
    y = jnp.zeros((x.shape[0], channels, *padded), x.dtype)
    for tap in itertools.product(*map(range, block)):
        places = tuple(
            slice(t * d, t * d + (c - 1) * s + 1, s)
            for t, d, s, c in zip(tap, made.dilations, made.strides, counts)
        )
        y = y.at[(slice(None), slice(None), *places)].add(columns[(slice(None), slice(None), *tap)])
    cut = tuple(slice(low, low + n) for n, (low, _) in zip(space, margins))
    return y[(slice(None), slice(None), *cut)]


@rule("DeformConv", since=19)
def deform_conv(
    x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None, *, dilations: Any = None,
    group: int = 1, kernel_shape: Any = None, offset_group: int = 1, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    """A convolution whose taps are moved, and weighted, at each place (two spatial axes)."""
    if x.ndim != 4:
        raise OnnxError(f"its input must have two spatial axes, got shape {x.shape}")
    made = windows(x.shape[2:], w.shape[2:], strides, dilations, pads, "NOTSET")
    (kh, kw), (oh, ow) = w.shape[2:], offset.shape[2:]
    n, channels = x.shape[:2]
    moves = offset.reshape(n, offset_group, kh * kw, 2, oh, ow)
    taps = [np.indices((kh, kw))[i].ravel() * made.dilations[i] for i in range(2)]
    start = [np.arange(o) * s - low for o, s, (low, _) in zip((oh, ow), made.strides, made.pads)]
    at_y = (taps[0][:, None, None] + start[0][:, None]).astype(x.dtype) + moves[:, :, :, 0]
    at_x = (taps[1][:, None, None] + start[1][None, :]).astype(x.dtype) + moves[:, :, :, 1]
    rows = x.reshape(n, offset_group, channels // offset_group, *x.shape[2:])
    values = bilinear(rows, at_y, at_x)  # (n, groups, channels of one, taps, oh, ow)
    if mask is not None:
        values = values * mask.reshape(n, offset_group, 1, kh * kw, oh, ow)
    columns = values.reshape(n, group, channels // group, kh * kw, oh, ow)
    kernel = w.reshape(group, w.shape[0] // group, channels // group, kh * kw)
    y = jnp.einsum("ngcthw,gmct->ngmhw", columns, kernel).reshape(n, w.shape[0], oh, ow)
    return y if b is None else y + by_channel(b, 2)


def bilinear(images: Any, y: Any, x: Any) -> Any:
    """Images `(n, g, c, h, w)` at points `(n, g, ...)`, zero outside; `(n, g, c, ...)`."""
    n, g, c, h, w = images.shape
    flat = images.reshape(n, g, c, h * w)
    top, left = jnp.floor(y), jnp.floor(x)
    total: Any = 0
    for dy, dx in itertools.product((0, 1), repeat=2):
        row, column = top + dy, left + dx
        share = (1 - abs(y - row)) * (1 - abs(x - column))
        inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
        place = jnp.where(inside, row * w + column, 0).astype(np.int32)
        read = jnp.take_along_axis(flat, place.reshape(n, g, 1, -1), -1).reshape(
            n, g, c, *y.shape[2:]
        )
        total = total + read * jnp.where(inside, share, 0)[:, :, None]
    return total
