"""Mean and variance over some axes, found fast and with short gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.dims import is_multiple, is_natural, is_symbolic_dim

Pair = tuple[Array, Array]


def moments_of(x: Array, axes: tuple[int, ...]) -> Pair:
    """Mean and variance over `axes`, which are kept with size 1.

    Where what remains lies within what is summed, as channels do that come last, blocks of rows are
    summed first: one pass over memory finds both moments of a block that fits a cache.
    """
    blocks = _blocks(x.shape, axes, x.dtype.itemsize)
    if blocks is None:
        return _at_once(x, axes)
    parts = merged(_at_once(lax.reshape(x, blocks), (2,)), mean_over(1))
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    mean, variance = (lax.reshape(part, kept) for part in parts)
    return mean, variance


def _at_once(x: Array, axes: tuple[int, ...]) -> Pair:
    # Around any constant, the mean square less the square of the mean is the variance. To take the
    # mean itself for the constant changes no derivative, and leaves a sum out of the gradient.
    mean = jnp.mean(x, axes, keepdims=True)
    center = lax.stop_gradient(mean)
    square = jnp.mean(jnp.square(x - center), axes, keepdims=True)
    return mean, square - jnp.square(mean - center)


def merged(parts: Iterable[Array], average: Callable[[Array], Array]) -> Pair:
    """Mean and variance of unions, from those of parts of equal size (Chan et al., 1979).

    Args:
      parts: mean and variance of each part.
      average: the mean over the parts of a union.
    """
    mean, variance = parts
    whole = average(mean)
    center = lax.stop_gradient(whole)
    return whole, average(variance + jnp.square(mean - center)) - jnp.square(whole - center)


def mean_over(axis: int) -> Callable[[Array], Array]:
    return lambda part: jnp.mean(part, axis, keepdims=True)


#: Bytes of a block of rows: it is read twice, the second time from the innermost cache.
_BLOCK = 1 << 14


def _blocks(
    shape: tuple[int, ...], axes: tuple[int, ...], itemsize: int
) -> tuple[int, int, int, int] | None:
    """`(outer, blocks, rows, inner)` for neighboring axes that are summed, with inner ones kept."""
    first, end = min(axes, default=0), max(axes, default=0) + 1
    rows, inner = math.prod(shape[first:end]), math.prod(shape[end:])
    if len(axes) != end - first or is_symbolic_dim(inner) or inner == 1 or not math.prod(shape):
        return None
    # Of symbolic sizes, blocks are of those that divide all, at least twice.
    most = _BLOCK // (inner * itemsize)
    fitting = (n for n in range(most, 7, -1) if is_multiple(rows, n) and is_natural(rows - 2 * n))
    size = next(fitting, None)
    if size is None:
        return None
    return math.prod(shape[:first]), rows // size, size, inner
