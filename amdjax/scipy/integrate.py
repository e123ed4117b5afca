"""Integrals of sampled functions: `scipy.integrate`."""

from __future__ import annotations

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.numpy._util import ArrayLike

__all__ = ["trapezoid"]


def trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
) -> Array:
    """The integral of a sampled function by the trapezoidal rule.

    Args:
      y: the samples.
      x: where they were taken; by default they are `dx` apart.
      dx: the distance of the samples.
      axis: along which.

    Returns:
      The integrals, of the shape of `y` without `axis`.

        >>> amdjax.scipy.integrate.trapezoid(jnp.array([0.0, 1.0, 2.0]))
        Array(2., dtype=float32)
    """
    return jnp.trapezoid(y, x, dx, axis)


_public_surface(globals())
