"""Layers that multiply by a matrix, or look up its rows."""

from __future__ import annotations

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, DTypeLike, as_array, as_arrays

__all__ = ["dense", "embedding", "linear", "scaled_matmul"]


def dense(x: ArrayLike, kernel: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """`x @ kernel + bias` on the last axis.

    Args:
      x: of shape `(..., n)`.
      kernel: of shape `(n, m)`.
      bias: of shape `(m,)`, or None.

    Returns:
      An array of shape `(..., m)`.

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


def scaled_matmul(
    lhs: ArrayLike,
    rhs: ArrayLike,
    lhs_scales: ArrayLike,
    rhs_scales: ArrayLike,
    preferred_element_type: DTypeLike = np.float32,
) -> Array:
    """Batched product along the last axes of operands stored in few bits, with a scale a block.

    Args:
      lhs: of shape `(b, m, k)`.
      rhs: of shape `(b, n, k)`.
      lhs_scales: of shape `(b, m, blocks)`, where the number of blocks divides `k`.
      rhs_scales: of shape `(b, n, blocks)`, likewise.
      preferred_element_type: dtype of the result; products and sums are float32.

    Returns:
      An array of shape `(b, m, n)`.

        >>> ones = jnp.ones((1, 2, 4), "float8_e4m3fn")
        >>> nn.scaled_matmul(ones, ones, jnp.full((1, 2, 2), 0.5), jnp.ones((1, 2, 1)))
        Array([[[2., 2.],
                [2., 2.]]], dtype=float32)
    """
    lhs, rhs, lhs_scales, rhs_scales = as_arrays("scaled_matmul", lhs, rhs, lhs_scales, rhs_scales)
    if lhs.ndim != 3 or rhs.ndim != 3 or (lhs.shape[0], lhs.shape[2]) != rhs.shape[::2]:
        raise ValueError(
            "scaled_matmul: lhs and rhs must have shapes (b, m, k) and (b, n, k), got "
            f"{lhs.shape} and {rhs.shape}."
        )
    for name, x, scales in (("lhs", lhs, lhs_scales), ("rhs", rhs, rhs_scales)):
        fits = scales.ndim == 3 and scales.shape[:2] == x.shape[:2] and scales.shape[2] > 0
        if not fits or x.shape[2] % scales.shape[2]:
            raise ValueError(
                f"scaled_matmul: {name}_scales must have the shape of {name}, {x.shape}, with a "
                f"divisor of the last size, got {scales.shape}."
            )
    product = lax.scaled_dot(
        lhs, rhs, lhs_scale=lhs_scales, rhs_scale=rhs_scales,
        dimension_numbers=(((2,), (2,)), ((0,), (0,))), preferred_element_type=np.float32,
    )  # fmt: skip
    return product.astype(preferred_element_type)


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
