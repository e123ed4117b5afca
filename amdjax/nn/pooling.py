"""Pooling: windows of signals, images and volumes reduced to one element each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.dims import is_symbolic_dim
from amdjax.lax.comparison import ge_p
from amdjax.lax.windows import window_winner_p
from amdjax.nn._arguments import (
    Ints,
    Padding,
    Pads,
    check_floating,
    check_layout,
    check_real,
    dilated,
    ints,
    is_integer,
    pads,
    space_rank,
    widened,
)
from amdjax.numpy._util import ArrayLike, as_array, constant, convert

__all__ = ["avg_pool", "global_avg_pool", "global_max_pool", "lp_pool", "max_pool", "max_unpool"]

T = TypeVar("T")


class Windows(NamedTuple):
    """Where windows lie, for all axes of an array; hashable.

    Attributes:
      space: the spatial axes.
      size: elements of a window.
      strides: steps of the windows.
      pads: elements before and after those of the array, as they were asked for.
      dilation: distances between neighbors in a window.
      more: elements after the padding that the last window covers, if sizes are rounded up.
    """

    space: tuple[int, ...]
    size: tuple[int, ...]
    strides: tuple[int, ...]
    pads: Pads
    dilation: tuple[int, ...]
    more: tuple[int, ...]

    @property
    def all_pads(self) -> Pads:
        return tuple((low, high + more) for (low, high), more in zip(self.pads, self.more))

    def starts(self, shape: tuple[int, ...], axis: int) -> Any:
        """Where the windows along an axis begin; negative in the padding.

        A NumPy array, but where sizes are symbolic.
        """
        reach = dilated(self.size, self.dilation)[axis]
        low, high = self.all_pads[axis]
        count = (shape[axis] + low + high - reach) // self.strides[axis] + 1
        xp = jnp if is_symbolic_dim(count) else np
        return xp.arange(count) * self.strides[axis] - low

    def counts(self, shape: tuple[int, ...], with_pads: bool) -> Any:
        """How many elements of each window count, broadcastable to the result."""
        xp = jnp if any(map(is_symbolic_dim, shape)) else np
        counts = xp.ones((1,) * len(shape), int)
        for axis in self.space:
            low, high = self.pads[axis] if with_pads else (0, 0)
            starts = self.starts(shape, axis)
            ends = xp.minimum(starts + self.size[axis], shape[axis] + high)
            inside = ends - xp.maximum(starts, -low)
            across = [-1 if i == axis else 1 for i in range(len(shape))]
            counts = counts * inside.reshape(across)
        return counts


def max_pool(
    x: ArrayLike, window: Ints, *, strides: Ints | None = None, padding: Padding = "VALID",
    dilation: Ints = 1, ceil_mode: bool = False, return_indices: bool = False,
    layout: str = "channels_last",
) -> Any:  # fmt: skip
    """The largest element of each window.

    Args:
      x: batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels come first.
      strides: steps of the window; None means its size, so that windows do not overlap.
      padding: "SAME", "VALID", an integer, or for each spatial axis an integer or a pair. Padding
        is never chosen.
      return_indices: whether to return where the elements were, too.

    Returns:
      A batch of as many channels in the same layout and dtype. With `return_indices` the pair of it
      and the int32 positions of its elements in row-major order over space; of equal elements, of
      the first.

    Raises:
      TypeError: an argument that should be an integer is none.
      ValueError: `window`, `strides` or `padding` do not fit `x`, or `layout` has no such name.

        >>> nn.max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1), 2)[0, :, :, 0]
        Array([[ 5.,  7.],
               [13., 15.]], dtype=float32)
    """
    x = as_array("max_pool", x)
    windows = _windows("max_pool", x, window, strides, padding, layout, dilation, ceil_mode)
    return _max_pool(x, windows, bool(return_indices))


def avg_pool(
    x: ArrayLike, window: Ints, *, strides: Ints | None = None, padding: Padding = "VALID",
    count_include_pad: bool = True, divisor: int | None = None, ceil_mode: bool = False,
    layout: str = "channels_last",
) -> Array:  # fmt: skip
    """The mean of each window.

    Args:
      x: batch of floating-point dtype and shape `(n, *space, channels)`; `(n, channels, *space)`
        if channels come first.
      padding: as for `max_pool`; it counts as zeros.
      count_include_pad: whether to divide by the number of a window's elements in `x` and in its
        padding, rather than in `x` alone.
      divisor: what to divide all windows by instead.
      ceil_mode: whether there is a window for what is left over at the end of an axis. What it
        covers beyond the padding does not count.

    Raises:
      TypeError: `x` is not floating-point, or an argument that should be an integer is none.
      ValueError: `window`, `strides` or `padding` do not fit `x`, `divisor` is 0, or `layout` has
        no such name.

        >>> nn.avg_pool(jnp.arange(16.0).reshape(1, 4, 4, 1), 2)[0, :, :, 0]
        Array([[ 2.5,  4.5],
               [10.5, 12.5]], dtype=float32)
    """
    x = as_array("avg_pool", x)
    check_floating("avg_pool", x)
    check_divisor("avg_pool", divisor)
    windows = _windows("avg_pool", x, window, strides, padding, layout, 1, ceil_mode)
    return _avg_pool(x, windows, bool(count_include_pad), divisor)


def check_divisor(name: str, divisor: Any) -> None:
    if divisor is not None and (not is_integer(divisor) or divisor == 0):
        raise ValueError(f"{name}: divisor must be an integer other than 0, got {divisor!r}.")


def lp_pool(
    x: ArrayLike, window: Ints, p: float, *, strides: Ints | None = None,
    padding: Padding = "VALID", ceil_mode: bool = False, layout: str = "channels_last",
) -> Array:  # fmt: skip
    """The `p`-th root of the sum of `p`-th powers of each window (Boureau et al., 2010).

    Args:
      x: batch of floating-point dtype and shape `(n, *space, channels)`; `(n, channels, *space)`
        if channels come first.
      p: the exponent, positive and finite; 1 gives sums. Of negative sums there is a root for 1
        alone.
      padding: as for `max_pool`; it counts as zeros.
      ceil_mode: whether there is a window for what is left over at the end of an axis. Its sum is
        enlarged by as much as it lacks elements, as in PyTorch.

    Returns:
      A batch of as many channels in the same layout and dtype. Where a sum is zero, its gradient is
      zero.

    Raises:
      TypeError: `x` is not floating-point, or an argument that should be an integer is none.
      ValueError: `window`, `strides` or `padding` do not fit `x`, `p` is not positive, or `layout`
        has no such name.

        >>> nn.lp_pool(jnp.array([[[3.0], [4.0]]]), 2, 2)
        Array([[[5.]]], dtype=float32)
    """
    x = as_array("lp_pool", x)
    check_real("lp_pool", x)
    check_exponent("lp_pool", p)
    windows = _windows("lp_pool", x, window, strides, padding, layout, 1, ceil_mode)
    return _lp_pool(x, windows, float(p))


def check_exponent(name: str, p: Any) -> None:
    if not isinstance(p, (int, float, np.number)) or not 0 < p < math.inf:
        raise ValueError(f"{name}: p must be a positive and finite number, got {p!r}.")


def max_unpool(
    x: ArrayLike, indices: ArrayLike, window: Ints, *, strides: Ints | None = None,
    padding: Padding = "VALID", size: Ints | None = None, layout: str = "channels_last",
) -> Array:  # fmt: skip
    """Elements put back where `max_pool` found them, among zeros.

    Args:
      x: batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels come first.
      indices: integers of the same shape, as `max_pool` returns them. Those outside are dropped; of
        several at one place, which overlapping windows may choose, one is kept.
      window: as for `max_pool`.
      strides: as for `max_pool`.
      padding: as for `max_pool`, but not "SAME".
      size: spatial size of the result, that of what `max_pool` was given, whose positions `indices`
        are; None for the smallest that it makes `space` of.

    Raises:
      TypeError: `indices` are no integers.
      ValueError: the shapes differ, `padding` is "SAME", or an argument does not fit `x`.

        >>> x = jnp.array([[[1.0], [5.0], [2.0], [3.0]]])
        >>> y, indices = nn.max_pool(x, 2, return_indices=True)
        >>> nn.max_unpool(y, indices, 2)[0, :, 0]
        Array([0., 5., 0., 3.], dtype=float32)
    """
    x, places = as_array("max_unpool", x), as_array("max_unpool", indices)
    if not dtypes.issubdtype(places.dtype, np.integer):
        raise TypeError(f"max_unpool: indices must be integers, got {places.dtype}.")
    if x.shape != places.shape:
        raise ValueError(
            f"max_unpool: indices must have the shape of x, {x.shape}, got {places.shape}."
        )
    axes = space_axes("max_unpool", x, layout)
    old = [x.shape[i] for i in axes]
    extent = ints("max_unpool", "window", window, len(axes))
    steps = extent if strides is None else ints("max_unpool", "strides", strides, len(axes))
    if isinstance(padding, str) and padding.upper() != "VALID":
        raise ValueError(f"max_unpool: padding must be 'VALID' or integers, got {padding!r}.")
    margins = pads("max_unpool", padding, old, extent, steps)
    if size is None:
        space = tuple(
            (n - 1) * step + k - low - high
            for n, step, k, (low, high) in zip(old, steps, extent, margins)
        )
    else:
        space = ints("max_unpool", "size", size, len(axes))
    apart = all(step >= k for step, k in zip(steps, extent))
    return _max_unpool(x, places, space, axes[0], apart)


def global_max_pool(x: ArrayLike, *, layout: str = "channels_last") -> Array:
    """The largest element of each channel, `(n, channels)`, of a batch as in `max_pool`.

    >>> nn.global_max_pool(jnp.arange(6.0).reshape(1, 3, 2))
    Array([[4., 5.]], dtype=float32)
    """
    x = as_array("global_max_pool", x)
    return jnp.max(x, space_axes("global_max_pool", x, layout))


def global_avg_pool(x: ArrayLike, *, layout: str = "channels_last") -> Array:
    """The mean of each channel, `(n, channels)`, of a batch as in `avg_pool`.

    >>> nn.global_avg_pool(jnp.arange(6.0).reshape(1, 3, 2))
    Array([[2., 3.]], dtype=float32)
    """
    x = as_array("global_avg_pool", x)
    check_floating("global_avg_pool", x)
    return jnp.mean(x, space_axes("global_avg_pool", x, layout))


def space_axes(name: str, x: Array, layout: str) -> tuple[int, ...]:
    rank, first = space_rank(name, x), 1 if check_layout(name, layout) else 2
    return tuple(range(first, first + rank))


def _windows(
    name: str, x: Array, window: Ints, strides: Ints | None, padding: Padding, layout: str,
    dilation: Ints, ceil_mode: bool,
) -> Windows:  # fmt: skip
    """The windows of a pool, checked."""
    axes = space_axes(name, x, layout)
    sizes = ints(name, "window", window, len(axes))
    steps = sizes if strides is None else ints(name, "strides", strides, len(axes))
    apart = ints(name, "dilation", dilation, len(axes))
    reaches = dilated(sizes, apart)
    margins = pads(name, padding, [x.shape[i] for i in axes], reaches, steps)
    more = []
    for axis, reach, step, (low, high) in zip(axes, reaches, steps, margins):
        if not (0 <= low < reach and 0 <= high < reach):
            raise ValueError(
                f"{name}: padding must be smaller than the window, got {padding=} and {window=}."
            )
        n = x.shape[axis]
        # Of a window that is cut off at the end, one element at least is there.
        if n + low + high < reach and not (ceil_mode and n + low + high + step > reach and n):
            raise ValueError(f"{name}: {window=} is larger than x of shape {x.shape}.")
        left = (n + low + high - reach) % step
        begins = n + low + high - reach + step - left  # of one more window
        more.append(step - left if ceil_mode and left and begins < n + low else 0)

    def for_all_axes(values: Sequence[T], otherwise: T) -> tuple[T, ...]:
        by_axis = dict(zip(axes, values))
        return tuple(by_axis.get(i, otherwise) for i in range(x.ndim))

    return Windows(
        axes, for_all_axes(sizes, 1), for_all_axes(steps, 1), for_all_axes(margins, (0, 0)),
        for_all_axes(apart, 1), for_all_axes(more, 0),
    )  # fmt: skip


@composite(static_argnames=("windows", "with_indices"))
def _max_pool(x: Array, windows: Windows, with_indices: bool) -> Any:
    if dtypes.issubdtype(x.dtype, np.floating):
        lowest = -np.inf
    else:
        lowest = False if x.dtype == bool else dtypes.iinfo(x.dtype).min
    _, size, strides, _, dilation, _ = windows
    pads = windows.all_pads
    y = lax.reduce_window(
        x, constant(x, lowest), lax.max, size, strides, pads, window_dilation=dilation
    )
    if not with_indices:
        return y
    winner = window_winner_p.bind(
        lax.stop_gradient(x), select_prim=ge_p, window_dimensions=size, window_strides=strides,
        padding=pads, window_dilation=dilation,
    )  # fmt: skip
    winner = winner.astype(np.int32)
    indices = jnp.zeros_like(winner)
    for axis in windows.space:
        inner = math.prod(size[axis + 1 :])
        start = windows.starts(x.shape, axis).astype(np.int32)
        start = start.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        indices = indices * x.shape[axis] + winner // inner % size[axis] * dilation[axis] + start
    return y, indices


@composite(static_argnames=("windows", "include", "divisor"))
def _avg_pool(x: Array, windows: Windows, include: bool, divisor: int | None) -> Array:
    total = _sums(widened(x), windows)  # float16 can neither hold a thousand 100s nor count them
    count: Any = divisor
    if divisor is None:
        count = math.prod(windows.size)
        if any(windows.more) or not (include or not any(map(any, windows.pads))):
            count = windows.counts(x.shape, include).astype(total.dtype)
    return convert(total / count, x.dtype)


@composite(static_argnames=("windows", "p"))
def _lp_pool(x: Array, windows: Windows, p: float) -> Array:
    dtype, x = x.dtype, widened(x)
    total = _sums(x ** int(p) if p == int(p) else x**p, windows)
    if any(windows.more):
        whole = math.prod(windows.size)
        total = total * (whole / windows.counts(x.shape, True)).astype(x.dtype)
    if p == 1:
        return convert(total, dtype)
    root = jnp.power(jnp.where(total == 0, 1, total), 1 / p)
    return convert(jnp.where(total == 0, 0, root), dtype)


def _sums(x: Array, windows: Windows) -> Array:
    zero = constant(x, 0)
    return lax.reduce_window(x, zero, lax.add, windows.size, windows.strides, windows.all_pads)


@composite(static_argnames=("space", "first", "apart"))
def _max_unpool(x: Array, indices: Array, space: tuple[int, ...], first: int, apart: bool) -> Array:
    rank, count = len(space), math.prod(space)
    outer, inner = math.prod(x.shape[:first]), math.prod(x.shape[first + rank :])
    rows, places = (
        lax.reshape(v, (outer, math.prod(x.shape[first : first + rank]), inner))
        for v in (x, indices)
    )
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(), inserted_window_dims=(1,), scatter_dims_to_operand_dims=(1,),
        operand_batching_dims=(0, 2), scatter_indices_batching_dims=(0, 2),
    )  # fmt: skip
    # Windows that do not overlap chose each element once, and the gradient need not ask which won.
    flat = lax.scatter(
        jnp.zeros((outer, count, inner), x.dtype), places[..., None], rows, numbers, mode="drop",
        unique_indices=apart,
    )  # fmt: skip
    return lax.reshape(flat, (*x.shape[:first], *space, *x.shape[first + rank :]))
