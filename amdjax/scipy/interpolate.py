"""Interpolation on grids: `scipy.interpolate`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.pytree_registry import register_pytree_node
from amdjax.numpy._util import ArrayLike, check_arraylike, promote_dtypes_inexact

__all__ = ["RegularGridInterpolator"]

_METHODS = ("linear", "nearest")


def _check_method(method: str) -> str:
    if method not in _METHODS:
        raise ValueError(f"method {method!r} is not defined; it must be one of {_METHODS}")
    return method


class RegularGridInterpolator:
    """A function that is known on a rectangular grid, between the grid's points.

    Args:
      points: for each dimension the coordinates of the grid, rising, of shape `(n_i,)`.
      values: of shape `(n_1, …, n_d, …)`; further axes are values of the function.
      method: "linear" or "nearest".
      bounds_error: must be false: a compiled program cannot look at its points.
      fill_value: the value outside the grid; None extends the outermost cells.

    Raises:
      ValueError: `method` is unknown, there are more point arrays than axes, or `fill_value` cannot
        be held by `values`.
      NotImplementedError: `bounds_error` is true.

    An interpolator is a pytree; it may be passed to compiled functions and differentiated.

        >>> values = jnp.array([0.0, 10.0, 20.0])
        >>> f = amdjax.scipy.interpolate.RegularGridInterpolator((jnp.arange(3.0),), values)
        >>> f(jnp.array([0.5, 1.25]))
        Array([ 5. , 12.5], dtype=float32)
    """

    def __init__(
        self, points: Sequence[ArrayLike], values: ArrayLike, method: str = "linear",
        bounds_error: bool = False, fill_value: ArrayLike | None = np.nan,
    ) -> None:  # fmt: skip
        self.method = _check_method(method)
        self.bounds_error = bounds_error
        if bounds_error:
            raise NotImplementedError("`bounds_error` takes no effect under JIT")
        check_arraylike("RegularGridInterpolator", values)
        if len(points) > np.ndim(values):
            raise ValueError(
                f"there are {len(points)} point arrays, but values has {np.ndim(values)} dimensions"
            )
        (values,) = promote_dtypes_inexact(values)
        if fill_value is not None:
            check_arraylike("RegularGridInterpolator", fill_value)
            fill_value = jnp.asarray(fill_value)
            if not dtypes.can_cast(fill_value.dtype, values.dtype, "same_kind"):
                raise ValueError(
                    "fill_value must be either 'None' or of a type compatible with values, got"
                    f" {fill_value.dtype} for values of {values.dtype}"
                )
        check_arraylike("RegularGridInterpolator", *points)
        self.fill_value = fill_value
        self.grid = tuple(jnp.asarray(p) for p in points)
        self.values: Array = values

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """The function at some points.

        Args:
          xi: points, of shape `(..., d)`, or a tuple of `d` arrays of coordinates.
          method: as for the interpolator, whose method is the default.

        Returns:
          Values of shape `(..., *values.shape[d:])`.

        Raises:
          ValueError: `method` is unknown, or the points have another number of coordinates.
        """
        method = _check_method(self.method if method is None else method)
        dimensions = len(self.grid)
        points = _as_points(xi, dimensions)
        if points.shape[-1] != dimensions:
            raise ValueError(
                f"the requested sample points xi have dimension {points.shape[-1]}, but this"
                f" RegularGridInterpolator has dimension {dimensions}"
            )
        shape = points.shape[:-1]
        coordinates = points.reshape(-1, dimensions).T
        cells = [_locate(grid, x) for grid, x in zip(self.grid, coordinates, strict=True)]
        result = (_linear if method == "linear" else _nearest)(self.values, cells)
        if self.fill_value is not None:
            outside = [
                (x < grid[0]) | (x > grid[-1])
                for grid, x in zip(self.grid, coordinates, strict=True)
            ]
            outside_any = jnp.any(jnp.stack(outside), axis=0)
            outside_any = outside_any.reshape(-1, *[1] * (result.ndim - 1))
            result = jnp.where(outside_any, self.fill_value, result)
        return result.reshape(*shape, *self.values.shape[dimensions:])


def _as_points(points: Any, dimensions: int) -> Array:
    if isinstance(points, tuple):
        if len(points) > 1:
            return jnp.stack(jnp.broadcast_arrays(*points), axis=-1)
        (points,) = points
    check_arraylike("RegularGridInterpolator", points)
    points = jnp.asarray(points)
    return points.reshape(-1, dimensions) if points.ndim == 1 else points


def _locate(grid: Array, x: Array) -> tuple[Array, Array]:
    """The cell of each coordinate, the outermost beyond the grid, and the place in it."""
    cell = jnp.clip(jnp.searchsorted(grid, x) - 1, 0, grid.size - 2)
    return cell, (x - grid[cell]) / (grid[cell + 1] - grid[cell])


def _linear(values: Array, cells: Sequence[tuple[Array, Array]]) -> Array:
    """The sum over the corners of each point's cell."""
    further = values.ndim - len(cells)
    total: Any = 0
    for corner in itertools.product((0, 1), repeat=len(cells)):
        weight: Any = 1
        for side, (_, place) in zip(corner, cells, strict=True):
            weight = weight * (place if side else 1 - place)
        at = tuple(cell + side for side, (cell, _) in zip(corner, cells, strict=True))
        total = total + values[at] * weight.reshape(-1, *[1] * further)
    return total


def _nearest(values: Array, cells: Sequence[tuple[Array, Array]]) -> Array:
    return values[tuple(jnp.where(place <= 0.5, cell, cell + 1) for cell, place in cells)]


def _flatten(f: RegularGridInterpolator) -> tuple[Any, Any]:
    return (f.grid, f.values, f.fill_value), (f.method, f.bounds_error)


def _unflatten(aux: Any, children: Any) -> RegularGridInterpolator:
    f = object.__new__(RegularGridInterpolator)
    f.grid, f.values, f.fill_value = children
    f.method, f.bounds_error = aux
    return f


register_pytree_node(RegularGridInterpolator, _flatten, _unflatten)
_public_surface(globals())
