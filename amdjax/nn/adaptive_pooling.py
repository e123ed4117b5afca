"""Pools whose windows follow from the size of the result."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.dims import is_symbolic_dim
from amdjax.nn._arguments import Ints, check_floating, ints, widened
from amdjax.nn._taps import adaptive_windows, gather_taps, mean_taps, taps_of
from amdjax.nn.pooling import avg_pool, max_pool, space_axes
from amdjax.numpy._util import ArrayLike, as_array, convert
from amdjax.transforms import custom_jvp

__all__ = ["adaptive_avg_pool", "adaptive_max_pool"]


def adaptive_avg_pool(x: ArrayLike, size: Ints, *, layout: str = "channels_last") -> Array:
    """Means of windows that cover space, as many as asked for; PyTorch's adaptive pooling.

    Window `i` of `m` over `n` elements reaches from `i * n // m` to `(i + 1) * n / m`, rounded up.

    Args:
      x: floating-point batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels
        come first.

    Raises:
      TypeError: `x` is not floating-point, or a size is no integer.
      ValueError: `size` does not fit `x`, or `layout` has no such name.

        >>> nn.adaptive_avg_pool(jnp.arange(5.0).reshape(1, 5, 1), 2)[0, :, 0]
        Array([1., 3.], dtype=float32)
    """
    x, new, axes = _checked("adaptive_avg_pool", x, size, layout)
    check_floating("adaptive_avg_pool", x)
    if (window := _equal_windows(x, new, axes)) is not None:
        return avg_pool(x, window, layout=layout)
    return _adaptive_avg_pool(x, new, axes)


def adaptive_max_pool(
    x: ArrayLike, size: Ints, *, return_indices: bool = False, layout: str = "channels_last"
) -> Any:
    """The largest elements of windows that cover space, as those of `adaptive_avg_pool` do.

    Args:
      x: batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels come first.
      return_indices: whether to return where the elements were, too, as `max_pool` does.

    Returns:
      A batch of as many channels in the same layout and dtype; with `return_indices` the pair of it
      and the int32 positions of its elements.

    Raises:
      TypeError: a size is no integer.
      ValueError: `size` does not fit `x`, or `layout` has no such name.

        >>> nn.adaptive_max_pool(jnp.arange(5.0).reshape(1, 5, 1), 2)[0, :, 0]
        Array([2., 4.], dtype=float32)
    """
    x, new, axes = _checked("adaptive_max_pool", x, size, layout)
    if (window := _equal_windows(x, new, axes)) is not None:
        return max_pool(x, window, return_indices=return_indices, layout=layout)
    # Channels last are the lanes in which windows are compared.
    first = axes[0] > 1
    parts = _adaptive_max_pool(jnp.moveaxis(x, 1, -1) if first else x, new, bool(return_indices))
    y, *indices = (jnp.moveaxis(part, -1, 1) if first else part for part in parts)
    return (y, *indices) if return_indices else y


def _checked(
    name: str, x: ArrayLike, size: Ints, layout: str
) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
    x = as_array(name, x)
    axes = space_axes(name, x, layout)
    if 0 in (x.shape[i] for i in axes):
        raise ValueError(f"{name}: x of shape {x.shape} has no elements to pool.")
    return x, ints(name, "size", size, len(axes)), axes


def _equal_windows(x: Array, new: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The window of an ordinary pool, if all are of one size and do not overlap."""
    symbolic = any(is_symbolic_dim(x.shape[axis]) for axis in axes)
    if symbolic or any(x.shape[axis] % m for axis, m in zip(axes, new)):
        return None
    return tuple(x.shape[axis] // m for axis, m in zip(axes, new))


@composite(static_argnames=("new", "axes"))
def _adaptive_avg_pool(x: Array, new: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    dtype, x = x.dtype, widened(x)
    taps = {axis: taps_of(mean_taps, x.shape[axis], m) for axis, m in zip(axes, new)}
    return convert(gather_taps(x, taps), dtype)


@composite(static_argnames=("new", "with_indices"))
def _adaptive_max_pool(x: Array, new: tuple[int, ...], with_indices: bool) -> tuple[Array, ...]:
    """The elements, and the positions if they are wanted, for channels last."""
    n, *space, channels = x.shape
    space = [*map(operator.index, space)]  # which elements are compared is known while tracing
    rows = lax.reshape(x, (n, math.prod(space), channels))
    if with_indices:
        indices = _positions(rows, tuple(space), new)
        parts = [jnp.take_along_axis(rows, indices, 1, mode="promise_in_bounds"), indices]
    else:
        parts = [_largest(rows, tuple(space), new)]
    return tuple(lax.reshape(part, (n, *new, channels)) for part in parts)


@functools.partial(custom_jvp, nondiff_argnums=(1, 2))
def _largest(rows: Array, space: tuple[int, ...], new: tuple[int, ...]) -> Array:
    """The largest elements of the windows; only a derivative asks where they are."""
    return jnp.max(jnp.take(rows, _members(space, new), axis=1, mode="clip"), 2)


def _largest_jvp(
    space: tuple[int, ...], new: tuple[int, ...], primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    indices = _positions(primals[0], space, new)
    y, dy = (
        jnp.take_along_axis(x, indices, 1, mode="promise_in_bounds") for x in (*primals, *tangents)
    )
    return y, dy


_largest.defjvp(_largest_jvp)


def _positions(rows: Array, space: tuple[int, ...], new: tuple[int, ...]) -> Array:
    """Where the largest elements of the windows are."""
    table = _members(space, new)
    windows = jnp.take(lax.stop_gradient(rows), table, axis=1, mode="clip")
    chosen = convert(jnp.argmax(windows, 2), np.int32)
    which = np.arange(len(table), dtype=np.int32)[:, None] * table.shape[1]
    return jnp.take(table.ravel(), which + chosen, mode="clip")


def _members(space: tuple[int, ...], new: tuple[int, ...]) -> np.ndarray:
    """Row-major positions of the elements of each window; the last ones repeated to equal numbers.

    Of equal elements the first counts, so that repeated ones are never chosen.
    """
    table = np.zeros((1, 1), np.int32)
    for n, m in zip(space, new):
        starts, ends = adaptive_windows(n, m)
        places = np.minimum(starts[:, None] + np.arange((ends - starts).max()), ends[:, None] - 1)
        table = (table[:, None, :, None] * n + places[None, :, None, :]).reshape(
            len(table) * m, table.shape[1] * places.shape[1]
        )
    return table.astype(np.int32)
