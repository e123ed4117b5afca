"""Images of any number of axes: `scipy.ndimage`."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, is_kind

__all__ = ["map_coordinates"]


def _mirrored(index: Array, size: int) -> Array:
    """Folded about the centers of the outermost entries."""
    last = max(size - 1, 1)
    folded = jnp.abs((index + last) % (2 * last) - last)
    return folded if size > 1 else jnp.zeros_like(index)


def _reflected(index: Array, size: int) -> Array:
    """Folded about the edges of the outermost entries."""
    return (_mirrored(2 * index + 1, 2 * size + 1) - 1) // 2


# Where an index beyond the array is read.
_FOLDS: dict[str, Callable[[Array, int], Array]] = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: jnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirrored,
    "reflect": _reflected,
}


def _rounded(x: Array) -> Array:
    """Halves go away from zero."""
    return x if is_kind(x.dtype, np.integer) else lax.round(x)


def _nodes(coordinate: Array, order: int) -> list[tuple[Array, Any]]:
    """The entries that a coordinate reads, each with its weight."""
    if order == 0:
        return [(_rounded(coordinate).astype(np.int32), np.ones((), coordinate.dtype))]
    lower = jnp.floor(coordinate)
    upper_weight = coordinate - lower
    index = lower.astype(np.int32)
    return [(index, 1 - upper_weight), (index + 1, upper_weight)]


def map_coordinates(
    input: ArrayLike,
    coordinates: Sequence[ArrayLike],
    order: int,
    mode: str = "constant",
    cval: ArrayLike = 0.0,
) -> Array:
    """The values of an array at places between its entries.

    Args:
      input: the array.
      coordinates: for each of its axes the coordinates of the places, all of one shape.
      order: 0 for the nearest entry, 1 for linear interpolation.
      mode: what lies beyond the array: "constant" (`cval`), "nearest", "wrap", "mirror" or
        "reflect".
      cval: the value beyond the array, for "constant".

    Returns:
      The values, of the shape of the coordinates and the dtype of `input`.

    Raises:
      ValueError: there are not as many coordinates as axes.
      NotImplementedError: `order` is more than 1 or `mode` is none of these.

        >>> amdjax.scipy.ndimage.map_coordinates(jnp.array([0.0, 10.0]), [jnp.array([0.25])], 1)
        Array([2.5], dtype=float32)
    """
    return _map_coordinates(input, list(coordinates), operator.index(order), mode, cval)


@composite(static_argnames=("order", "mode"))
def _map_coordinates(
    input: ArrayLike, coordinates: list[ArrayLike], order: int, mode: str, cval: ArrayLike
) -> Array:
    x = jnp.asarray(input)
    places = [jnp.asarray(c) for c in coordinates]
    if len(places) != x.ndim:
        raise ValueError(
            f"coordinates must be a sequence of length input.ndim, but {len(places)} != {x.ndim}"
        )
    if mode not in _FOLDS:
        raise NotImplementedError(
            f"map_coordinates does not yet support mode {mode}. Currently supported modes are"
            f" {list(_FOLDS)}."
        )
    if order not in (0, 1):
        raise NotImplementedError(f"map_coordinates currently requires order<=1, got {order}")
    beyond = jnp.asarray(cval, x.dtype)
    axes = [
        [(_FOLDS[mode](index, size), (index >= 0) & (index < size), weight)
         for index, weight in _nodes(place, order)]
        for place, size in zip(places, x.shape, strict=True)
    ]  # fmt: skip
    total: Any = None
    for corner in itertools.product(*axes):
        value = x[tuple(index for index, _, _ in corner)]
        if mode == "constant" and corner:
            inside = functools.reduce(operator.and_, (valid for _, valid, _ in corner))
            value = jnp.where(inside, value, beyond)
        for _, _, weight in corner:
            value = jnp.multiply(weight, value)
        total = value if total is None else total + value
    return (_rounded(total) if is_kind(x.dtype, np.integer) else total).astype(x.dtype)


_public_surface(globals())
