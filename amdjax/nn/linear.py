"""Layers that multiply by a matrix, or look up its rows."""

from __future__ import annotations

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, as_array, as_arrays

__all__ = ["dense", "embedding", "linear"]


def dense(x: ArrayLike, kernel: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """`x @ kernel + bias` on the last axis.

    Args:
      x: of shape `(..., n)`.
      kernel: of shape `(n, m)`.
      bias: of shape `(m,)`, or None.

    Returns:
      An array of shape `(..., m)`.

    Raises:
      ValueError: the shapes do not fit.

        >>> nn.dense(jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones(4)).shape
        (2, 4)
    """
    x, kernel = as_arrays("dense", x, kernel)
    if kernel.ndim != 2 or x.ndim < 1 or x.shape[-1] != kernel.shape[0]:
        raise ValueError(
            "dense: kernel must have shape (n, m) where x has shape (..., n), got kernel of shape "
            f"{kernel.shape} and x of shape {x.shape}."
        )
    y = jnp.matmul(x, kernel)
    if bias is None:
        return y
    bias = as_array("dense", bias, 2)
    if bias.shape != kernel.shape[1:]:
        raise ValueError(
            f"dense: bias must have shape {kernel.shape[1:]}, one element for each column of "
            f"kernel, got {bias.shape}."
        )
    return y + bias


linear = dense


@composite
def _rows(table: Array, ids: Array) -> Array:
    return jnp.take(table, ids, axis=0, mode="clip")


def embedding(table: ArrayLike, ids: ArrayLike) -> Array:
    """Rows of a table, chosen by number.

    Args:
      table: of shape `(n, features)`.
      ids: integers of any shape; those outside `[0, n)` take the nearest row.

    Returns:
      An array of shape `(*ids.shape, features)`.

    Raises:
      TypeError: `ids` are not integers.
      ValueError: `table` is no matrix.

        >>> nn.embedding(jnp.array([[0.0, 1.0], [2.0, 3.0]]), jnp.array([1, 0, 1]))
        Array([[2., 3.],
               [0., 1.],
               [2., 3.]], dtype=float32)
    """
    table, ids = as_arrays("embedding", table, ids)
    if not dtypes.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"embedding: ids must be integers, got {ids.dtype}.")
    if table.ndim != 2:
        raise ValueError(f"embedding: table must have shape (n, features), got {table.shape}.")
    return _rows(table, ids)
