"""What the special functions do with their arguments first, and the quadrature they share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.numpy._util import ArrayLike, broadcast_arrays, promote_args_inexact


def reals(name: str, *args: ArrayLike) -> tuple[list[Any], Callable[[Any], Array]]:
    """Real arguments in one shape and at least float32, and the way back to their dtype.

    Raises:
      TypeError: an argument is no array or is complex; the message names the function.
    """
    promoted = promote_args_inexact(name, *args)
    dtype = promoted[0].dtype
    if dtypes.issubdtype(dtype, np.complexfloating):
        raise TypeError(f"{name} does not support complex-valued inputs, got {dtype}")
    wide = dtype if dtypes.itemsize_bits(dtype) >= 32 else np.dtype(np.float32)
    values = [jnp.asarray(x, wide) for x in broadcast_arrays(*promoted)]
    return values, lambda y: jnp.asarray(y, dtype)


def complexes(name: str, *args: ArrayLike) -> list[Any]:
    """Arguments in one shape and as complex numbers."""
    promoted = promote_args_inexact(name, *args)
    dtype = dtypes.to_complex_dtype(promoted[0].dtype)
    return [jnp.asarray(x, dtype) for x in broadcast_arrays(*promoted)]


@cache
def _legendre(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(nodes)


def legendre(nodes: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in [-1, 1] and weights of the Gauss-Legendre rule."""
    where, weights = _legendre(nodes)
    return where.astype(dtype), weights.astype(dtype)
