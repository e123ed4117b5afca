"""Batches sampled at points that the network computes (Jaderberg et al., 2015)."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.nn._arguments import (
    Ints,
    check_floating,
    check_layout,
    check_sizes,
    space_rank,
    widened,
)
from amdjax.nn.resampling import cubic_weights
from amdjax.numpy._util import ArrayLike, as_array, convert

__all__ = ["affine_grid", "grid_sample"]

_METHODS = {
    "nearest": "nearest",
    **dict.fromkeys(("linear", "bilinear", "trilinear"), "linear"),
    **dict.fromkeys(("cubic", "bicubic"), "cubic"),
}
_PADDING = ("zeros", "border", "reflection")


def affine_grid(theta: ArrayLike, size: Ints, *, align_corners: bool = False) -> Array:
    """Points for `grid_sample` that an affine map takes from those of the result.

    Args:
      theta: floating-point maps of shape `(n, d, d + 1)`, one for each example: `d` columns of a
        matrix and one of a translation, for coordinates in the order of `grid_sample`.
      size: spatial size of the result, `d` integers.
      align_corners: whether -1 and 1 are the outermost samples, rather than their outer edges.

    Returns:
      An array of shape `(n, *size, d)`.

    Raises:
      TypeError: `theta` is not floating-point.
      ValueError: `theta` does not have that shape, or `size` is none.

        >>> turn = jnp.array([[[0.0, -1.0, 2.0], [1.0, 0.0, 0.0]]])
        >>> nn.affine_grid(turn, (1, 2), align_corners=True)
        Array([[[[ 2., -1.],
                 [ 2.,  1.]]]], dtype=float32)
    """
    theta = as_array("affine_grid", theta)
    check_floating("affine_grid", theta, "theta")
    space = check_sizes("affine_grid", size=size)
    rank = len(space)
    if theta.ndim != 3 or theta.shape[1:] != (rank, rank + 1):
        raise ValueError(
            f"affine_grid: theta must have shape (n, {rank}, {rank + 1}) for {size=}, got "
            f"{theta.shape}."
        )
    return _affine_grid(theta, space, bool(align_corners))


@composite(static_argnames=("space", "align_corners"))
def _affine_grid(theta: Array, space: tuple[int, ...], align_corners: bool) -> Array:
    rank = len(space)
    grid = lax.reshape(theta[:, :, rank], (len(theta), *[1] * rank, rank))
    for i, n in enumerate(space):
        inset = 0.0 if align_corners else 1 / n
        line = np.linspace(-1 + inset, 1 - inset, n) if n > 1 else np.zeros(1)
        column = lax.reshape(theta[:, :, rank - 1 - i], (len(theta), *[1] * rank, rank))
        shape = [n if j == i + 1 else 1 for j in range(rank + 2)]
        grid = grid + column * line.astype(theta.dtype).reshape(shape)
    return grid


def grid_sample(
    x: ArrayLike, grid: ArrayLike, *, method: str = "linear", padding_mode: str = "zeros",
    align_corners: bool = False, layout: str = "channels_last",
) -> Array:  # fmt: skip
    """A batch sampled at given points of space, each channel for itself.

    Args:
      x: floating-point batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels
        come first.
      grid: floating-point points of shape `(n, *size, d)` for `d` spatial axes, the coordinate
        along the last spatial axis first, as (x, y) or (x, y, z), from -1 to 1.
      method: "nearest", "linear" ("bilinear"), or "cubic" ("bicubic", for one or two axes).
      padding_mode: what lies beyond the ends: "zeros", the outermost samples ("border"), or the
        mirrored ones ("reflection").
      align_corners: whether -1 and 1 are the outermost samples, rather than their outer edges.

    Returns:
      A batch of shape `(n, *size, channels)`, or `(n, channels, *size)`, of the dtype of `x`.

    Raises:
      TypeError: `x` or `grid` is not floating-point.
      ValueError: `grid` does not fit `x`, or an option has no such value.

        >>> x = jnp.array([[[1.0], [3.0]]])
        >>> nn.grid_sample(x, jnp.array([[[-0.5], [0.0], [0.5]]]))[0, :, 0]
        Array([1., 2., 3.], dtype=float32)
    """
    x, grid = as_array("grid_sample", x), as_array("grid_sample", grid)
    check_floating("grid_sample", x)
    check_floating("grid_sample", grid, "grid")
    rank, last = space_rank("grid_sample", x), check_layout("grid_sample", layout)
    if grid.ndim != rank + 2 or grid.shape[0] != x.shape[0] or grid.shape[-1] != rank:
        raise ValueError(
            f"grid_sample: grid must have shape (n, *size, {rank}) with {rank} sizes and n = "
            f"{x.shape[0]}, got {grid.shape} for x of shape {x.shape}."
        )
    if method not in _METHODS:
        raise ValueError(f"grid_sample: method must be one of {tuple(_METHODS)}, got {method!r}.")
    if _METHODS[method] == "cubic" and rank > 2:
        raise ValueError(f"grid_sample: method {method!r} is for one or two spatial axes.")
    if padding_mode not in _PADDING:
        raise ValueError(
            f"grid_sample: padding_mode must be one of {_PADDING}, got {padding_mode!r}."
        )
    if not x.size and grid.size:
        raise ValueError(f"grid_sample: x of shape {x.shape} has no elements to sample.")
    x = x if last else jnp.moveaxis(x, 1, -1)
    y = _grid_sample(x, grid, _METHODS[method], padding_mode, bool(align_corners))
    return y if last else jnp.moveaxis(y, -1, 1)


@composite(static_argnames=("method", "padding_mode", "align_corners"))
def _grid_sample(
    x: Array, grid: Array, method: str, padding_mode: str, align_corners: bool
) -> Array:
    space = x.shape[1:-1]
    wide = widened(x)
    points = convert(grid, wide.dtype)
    axes = []
    for i, size in enumerate(space):
        at = points[..., len(space) - 1 - i]
        at = (at + 1) * ((size - 1) / 2) if align_corners else ((at + 1) * size - 1) / 2
        axes.append(list(_along(at, size, method, padding_mode, align_corners)))
    own = tuple(range(1, len(space) + 1))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(len(space) + 1,), collapsed_slice_dims=own, start_index_map=own,
        operand_batching_dims=(0,), start_indices_batching_dims=(0,),
    )  # fmt: skip
    sizes = (1, *[1] * len(space), x.shape[-1])
    total = None
    for corner in itertools.product(*axes):
        places = jnp.stack([place for place, _ in corner], -1)
        weights = [weight for _, weight in corner if weight is not None]
        value = lax.gather(wide, places, numbers, sizes, mode="promise_in_bounds")
        if weights:
            value = value * functools.reduce(operator.mul, weights)[..., None]
        total = value if total is None else total + value
    assert total is not None
    return convert(total, x.dtype)


def _along(
    at: Array, size: int, method: str, padding_mode: str, align_corners: bool
) -> Iterator[tuple[Array, Array | None]]:
    """Positions and weights of the samples along an axis that make up those at `at`."""
    outside = padding_mode == "zeros"
    inside = functools.partial(_inside, size=size, mode=padding_mode, align_corners=align_corners)
    if method == "cubic":
        base = lax.floor(lax.stop_gradient(at))
        for offset, weight in zip(range(-1, 3), cubic_weights(at - base)):
            # Each sample is looked up beyond the edge; the point itself stays where it is.
            yield _sample(inside(base + offset), weight, size, outside)
        return
    at = inside(at)
    if method == "nearest":
        yield _sample(jnp.round(lax.stop_gradient(at)), None, size, outside)
        return
    base = lax.floor(lax.stop_gradient(at))
    after = at - base
    yield _sample(base, 1 - after, size, outside)
    yield _sample(base + 1, after, size, outside)


def _sample(
    place: Array, weight: Array | None, size: int, outside: bool
) -> tuple[Array, Array | None]:
    """A position as an integer inside; where it lies outside, of weight zero if that counts."""
    if outside:
        there = ((place >= 0) & (place <= size - 1)).astype(place.dtype)
        weight = there if weight is None else weight * there
    return convert(jnp.clip(place, 0, size - 1), np.int32), weight


def _inside(at: Array, size: int, mode: str, align_corners: bool) -> Array:
    """Coordinates moved inside as the padding says."""
    if mode == "reflection":
        low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        if span == 0:
            return jnp.zeros_like(at)
        distance = jnp.abs(at - low)
        flips = lax.floor(lax.stop_gradient(distance) / span)
        extra = distance - flips * span
        odd = jnp.remainder(flips, 2) == 1
        at = jnp.where(odd, span - extra, extra) + low
    return at if mode == "zeros" else jnp.clip(at, 0, size - 1)
