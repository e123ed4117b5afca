"""Pooling: windows of signals, images and volumes reduced to one element each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.nn._arguments import (
    Ints,
    Padding,
    Pads,
    check_floating,
    check_layout,
    ints,
    pads,
    space_rank,
)
from amdjax.numpy._util import ArrayLike, as_array, constant

__all__ = ["avg_pool", "global_avg_pool", "global_max_pool", "max_pool"]

T = TypeVar("T")


def max_pool(
    x: ArrayLike,
    window: Ints,
    *,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    layout: str = "channels_last",
) -> Array:
    """The largest element of each window.

    Args:
      x: batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels come first.
      window: sizes of the window, one for all spatial axes or one for each.
      strides: steps of the window; None means its size, so that windows do not overlap.
      padding: "SAME", "VALID", an integer, or for each spatial axis an integer or a pair. Padding
        is never chosen.
      layout: "channels_last" or "channels_first".

    Returns:
      A batch of as many channels in the same layout and dtype.

    Raises:
      TypeError: an argument that should be an integer is none.
      ValueError: `window`, `strides` or `padding` do not fit `x`, or `layout` has no such name.

        >>> nn.max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1), 2)[0, :, :, 0]
        Array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """
    x = as_array("max_pool", x)
    return _max_pool(x, *_window("max_pool", x, window, strides, padding, layout))


def avg_pool(
    x: ArrayLike,
    window: Ints,
    *,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    count_include_pad: bool = True,
    layout: str = "channels_last",
) -> Array:
    """The mean of each window.

    Args:
      x: batch of floating-point dtype and shape `(n, *space, channels)`; `(n, channels, *space)`
        if channels come first.
      window: sizes of the window, one for all spatial axes or one for each.
      strides: steps of the window; None means its size.
      padding: as for `max_pool`; it counts as zeros.
      count_include_pad: whether to divide by the window's size everywhere, rather than by the
        number of its elements inside `x`.
      layout: "channels_last" or "channels_first".

    Returns:
      A batch of as many channels in the same layout and dtype.

    Raises:
      TypeError: `x` is not floating-point, or an argument that should be an integer is none.
      ValueError: `window`, `strides` or `padding` do not fit `x`, or `layout` has no such name.

        >>> nn.avg_pool(jnp.arange(16.0).reshape(1, 4, 4, 1), 2)[0, :, :, 0]
        Array([[ 2.5,  4.5],
               [10.5, 12.5]], dtype=float32)
    """
    x = as_array("avg_pool", x)
    check_floating("avg_pool", x)
    sizes, steps, margins = _window("avg_pool", x, window, strides, padding, layout)
    return _avg_pool(x, sizes, steps, margins, bool(count_include_pad))


def global_max_pool(x: ArrayLike, *, layout: str = "channels_last") -> Array:
    """The largest element of each channel, `(n, channels)`, of a batch as in `max_pool`.

    >>> nn.global_max_pool(jnp.arange(6.0).reshape(1, 3, 2))
    Array([[4., 5.]], dtype=float32)
    """
    x = as_array("global_max_pool", x)
    return jnp.max(x, _space_axes("global_max_pool", x, layout))


def global_avg_pool(x: ArrayLike, *, layout: str = "channels_last") -> Array:
    """The mean of each channel, `(n, channels)`, of a batch as in `avg_pool`.

    >>> nn.global_avg_pool(jnp.arange(6.0).reshape(1, 3, 2))
    Array([[2., 3.]], dtype=float32)
    """
    x = as_array("global_avg_pool", x)
    check_floating("global_avg_pool", x)
    return jnp.mean(x, _space_axes("global_avg_pool", x, layout))


def _space_axes(name: str, x: Array, layout: str) -> tuple[int, ...]:
    rank, first = space_rank(name, x), 1 if check_layout(name, layout) else 2
    return tuple(range(first, first + rank))


def _window(
    name: str, x: Array, window: Ints, strides: Ints | None, padding: Padding, layout: str
) -> tuple[tuple[int, ...], tuple[int, ...], Pads]:
    """Window, steps and padding for all axes of `x`."""
    axes = _space_axes(name, x, layout)
    sizes = ints(name, "window", window, len(axes))
    steps = sizes if strides is None else ints(name, "strides", strides, len(axes))
    margins = pads(name, padding, [x.shape[i] for i in axes], sizes, steps)
    for axis, size, (low, high) in zip(axes, sizes, margins):
        if not (0 <= low < size and 0 <= high < size):
            raise ValueError(
                f"{name}: padding must be smaller than the window, got {padding=} and {window=}."
            )
        if x.shape[axis] + low + high < size:
            raise ValueError(f"{name}: {window=} is larger than x of shape {x.shape}.")

    def for_all_axes(values: Sequence[T], otherwise: T) -> tuple[T, ...]:
        by_axis = dict(zip(axes, values))
        return tuple(by_axis.get(i, otherwise) for i in range(x.ndim))

    return for_all_axes(sizes, 1), for_all_axes(steps, 1), for_all_axes(margins, (0, 0))


@composite(static_argnames=("window", "strides", "pads"))
def _max_pool(x: Array, window: tuple[int, ...], strides: tuple[int, ...], pads: Pads) -> Array:
    if dtypes.issubdtype(x.dtype, np.floating):
        lowest = -np.inf
    else:
        lowest = False if x.dtype == bool else dtypes.iinfo(x.dtype).min
    return lax.reduce_window(x, constant(x, lowest), lax.max, window, strides, pads)


@composite(static_argnames=("window", "strides", "pads", "include"))
def _avg_pool(
    x: Array, window: tuple[int, ...], strides: tuple[int, ...], pads: Pads, include: bool
) -> Array:
    total = lax.reduce_window(x, constant(x, 0), lax.add, window, strides, pads)
    if include or not any(map(any, pads)):
        return total / math.prod(window)
    return total / _counts(x.shape, window, strides, pads).astype(x.dtype)


def _counts(
    shape: tuple[int, ...], window: tuple[int, ...], strides: tuple[int, ...], pads: Pads
) -> np.ndarray:
    """How many elements of each window lie inside, broadcastable to the result."""
    counts = np.ones((1,) * len(shape), np.int64)
    for axis, (n, w, s, (low, high)) in enumerate(zip(shape, window, strides, pads)):
        if w == 1 and s == 1:
            continue
        starts = np.arange((n + low + high - w) // s + 1) * s - low
        inside = np.minimum(starts + w, n) - np.maximum(starts, 0)
        counts = counts * inside.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return counts
