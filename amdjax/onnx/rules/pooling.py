"""Pools."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from amdjax import lax, numpy as jnp

from ..errors import OnnxError
from ..registry import ints, rule
from ._windows import Windows, rounded_up, windows


def _reduced(x: Any, w: Windows, initial: Any, function: Any) -> Any:
    """A reduction of each window of the spatial axes."""
    return lax.reduce_window(
        x, np.asarray(initial).astype(x.dtype), function, (1, 1, *w.size), (1, 1, *w.strides),
        [(0, 0), (0, 0), *w.pads], window_dilation=(1, 1, *w.dilations),
    )  # fmt: skip


def _lowest(dtype: Any) -> Any:
    return jnp.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -np.inf


@rule("MaxPool")
def max_pool(
    x: Any, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Any = None,
    pads: Any = None, storage_order: int = 0, strides: Any = None, node: Any,
) -> Any:  # fmt: skip
    """With indices into the whole batch, in row-major order over space, or column-major."""
    made = windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    made = rounded_up(x.shape[2:], made) if ceil_mode else made
    y = _reduced(x, made, _lowest(x.dtype), lax.max)
    if node.outputs < 2:
        return y
    return y, _places(x, y, made, storage_order)


def _places(x: Any, y: Any, w: Windows, storage_order: int) -> Any:
    """Of the first element of each window that is the largest."""
    space = x.shape[2:]
    order: Literal["C", "F"] = "F" if storage_order else "C"
    within = np.reshape(np.arange(math.prod(space)), space, order=order)
    taps, found = np.ndindex(*w.size), jnp.full(y.shape, np.iinfo(np.int64).max)
    margins = [(0, 0), (0, 0), *((low, high + s * 2) for (low, high), s in zip(w.pads, w.strides))]
    padded = jnp.pad(x, margins, constant_values=np.asarray(_lowest(x.dtype)).astype(x.dtype))
    places = np.pad(within, margins[2:], constant_values=-1)
    for tap in taps:
        cut = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, w.dilations, y.shape[2:], w.strides)
        )
        here = places[cut]
        equal = (padded[(slice(None), slice(None), *cut)] == y) & (here >= 0)
        found = jnp.where(equal, jnp.minimum(found, here), found)
    image = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(space))
    return (found + image * math.prod(space)).astype(np.int64)


@rule("AveragePool")
def average_pool(
    x: Any, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, dilations: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    made = windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    whole = rounded_up(x.shape[2:], made) if ceil_mode else made
    return _reduced(x, whole, 0, lax.add) / _counts(x, made, whole, bool(count_include_pad))


def _counts(x: Any, made: Windows, whole: Windows, with_padding: bool) -> Any:
    """Elements in each window; what rounding up adds beyond the padding is never among them."""
    margins = [(0, 0), (0, 0), *made.pads]
    counted = jnp.pad(
        jnp.ones((1, 1, *x.shape[2:]), x.dtype), margins, constant_values=with_padding
    )
    beyond = [(0, w[1] - m[1]) for w, m in zip(whole.pads, made.pads)]
    return _reduced(counted, whole._replace(pads=beyond), 0, lax.add)


@rule("LpPool")
def lp_pool(
    x: Any, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Any = None,
    p: float = 2, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    made = windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    made = rounded_up(x.shape[2:], made) if ceil_mode else made
    return _root(_reduced(abs(x) ** p, made, 0, lax.add), p)


def _root(x: Any, p: float) -> Any:
    return jnp.sqrt(x) if p == 2 else x ** (1 / p)


@rule("GlobalAveragePool")
def global_average_pool(x: Any) -> Any:
    return jnp.mean(x, tuple(range(2, x.ndim)), keepdims=True)


@rule("GlobalMaxPool")
def global_max_pool(x: Any) -> Any:
    return jnp.max(x, tuple(range(2, x.ndim)), keepdims=True)


@rule("GlobalLpPool")
def global_lp_pool(x: Any, *, p: float = 2) -> Any:
    return _root(jnp.sum(abs(x) ** p, tuple(range(2, x.ndim)), keepdims=True), p)


@rule("MaxUnpool", since=9)
def max_unpool(
    x: Any, indices: Any, output_shape: Any = None, *, kernel_shape: Any, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    """The elements at their places in the batch that was pooled, whose shape may be made larger."""
    rank = x.ndim - 2
    steps, flat = list(strides or [1] * rank), list(pads or [0] * 2 * rank)
    space = [
        (n - 1) * s + k - low - high
        for n, s, k, low, high in zip(x.shape[2:], steps, kernel_shape, flat[:rank], flat[rank:])
    ]
    shape = (*x.shape[:2], *space)
    made = jnp.zeros(math.prod(shape), x.dtype).at[indices.ravel()].set(x.ravel()).reshape(shape)
    if output_shape is None:
        return made
    wanted = ints(output_shape, "output_shape")
    if any(w < n for w, n in zip(wanted, shape)):
        raise OnnxError(f"output_shape {wanted} is smaller than {list(shape)}")
    return jnp.pad(made, [(0, w - n) for w, n in zip(wanted, shape)])


@rule("MaxRoiPool")
def max_roi_pool(x: Any, rois: Any, *, pooled_shape: Any, spatial_scale: float = 1.0) -> Any:
    """The largest element of each cell of regions, whose corners are rounded to elements."""
    (height, width), (rows, columns) = x.shape[2:], pooled_shape
    corners = jnp.round(rois[:, 1:] * spatial_scale)
    x1, y1, x2, y2 = (corners[:, i] for i in range(4))

    def cells(first: Any, last: Any, count: int, size: int) -> Any:
        """Which elements of an axis each cell of each region has: `(regions, cells, size)`."""
        step = jnp.maximum(last - first + 1, 1)[:, None] / count
        cell = np.arange(count, dtype=np.float32)
        low = jnp.clip(jnp.floor(cell * step) + first[:, None], 0, size)
        high = jnp.clip(jnp.ceil((cell + 1) * step) + first[:, None], 0, size)
        place = np.arange(size, dtype=np.float32)
        return (place >= low[..., None]) & (place < high[..., None])

    in_row, in_column = cells(y1, y2, rows, height), cells(x1, x2, columns, width)
    images = x[rois[:, 0].astype(np.int32)]
    by_column = jnp.where(in_column[:, None, None], images[:, :, :, None, :], -np.inf).max(-1)
    y = jnp.where(in_row[:, None, :, :, None], by_column[:, :, None], -np.inf).max(3)
    return jnp.where(jnp.isneginf(y), 0, y).astype(x.dtype)
