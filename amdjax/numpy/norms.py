"""Norms of vectors and matrices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy import (
    manipulation,
    reductions,
)
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    broadcast_to,
    canonical_axes,
    constant,
    convert,
    is_kind,
    promote_dtypes_inexact,
)
from amdjax.numpy.decompositions import svd


def _vector_norm(x: Array, order: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    total = lambda v: reductions.sum(v, axes, keepdims=keepdims)
    if order is None or order == 2:
        if is_kind(x.dtype, np.complexfloating):
            squares = lax.add(lax.square(lax.real(x)), lax.square(lax.imag(x)))
        else:
            squares = lax.mul(x, x)
        return lax.sqrt(total(squares))
    if isinstance(order, str):
        raise ValueError(f"Invalid order '{order}' for vector norm.")
    magnitude = lax.abs(x)
    if order == np.inf:
        return reductions.max(magnitude, axes, keepdims=keepdims, initial=0)
    if order == -np.inf:
        return reductions.min(magnitude, axes, keepdims=keepdims)
    if order == 0:
        return total(convert(lax.ne(x, constant(x, 0)), magnitude.dtype))
    if order == 1:
        return total(magnitude)
    power = convert(order, magnitude.dtype)
    shaped = broadcast_to(power, magnitude.shape)
    result = total(lax.pow(magnitude, shaped))
    return lax.pow(result, broadcast_to(lax.div(constant(power, 1), power), result.shape))


def _matrix_norm(x: Array, order: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    row, column = axes
    if order is None or order in ("f", "fro"):
        return _vector_norm(x, 2, axes, keepdims)
    magnitude = lax.abs(x)
    if order in (1, -1, np.inf, -np.inf):
        inner, outer_ = (row, column) if order in (1, -1) else (column, row)
        pick: Any = reductions.min
        if order > 0:
            pick = functools.partial(reductions.max, initial=0)
        sums = reductions.sum(magnitude, inner, keepdims=True)
        result = pick(sums, outer_, keepdims=True)
        return result if keepdims else lax.squeeze(result, tuple(sorted(axes)))
    if order in ("nuc", 2, -2):
        s = svd(manipulation.moveaxis(x, axes, (-2, -1)), compute_uv=False)
        largest = functools.partial(reductions.max, initial=0)
        over: Any = {"nuc": reductions.sum, 2: largest, -2: reductions.min}[order]
        result = over(s, -1)
        return lax.expand_dims(result, tuple(sorted(axes))) if keepdims else result
    raise ValueError(f"Invalid order '{order}' for matrix norm.")


@composite(static_argnames=("ord", "axis", "keepdims"))
def norm(x: ArrayLike, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """The norm of vectors or matrices.

    Args:
      ord: of vectors, any number, 0 or ±inf; of matrices, ±1, ±2, ±inf, "fro" or "nuc".
      axis: one axis of vectors, two of matrices; None means the whole array.

        >>> jnp.linalg.norm(jnp.array([3.0, 4.0]))
        Array(5., dtype=float32)
    """
    (x,) = promote_dtypes_inexact(as_array("jnp.linalg.norm", x))
    if axis is None:
        if ord is None:
            return _vector_norm(x, 2, tuple(range(x.ndim)), keepdims)
        axes = tuple(range(x.ndim))
    else:
        axes = (
            canonical_axes(axis, x.ndim)
            if not isinstance(axis, tuple)
            else tuple(canonical_axes(i, x.ndim)[0] for i in axis)
        )
    if len(axes) == 1:
        return _vector_norm(x, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise ValueError(f"Improper number of axes for norm: {axes}")


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of the matrices in the last two axes; arguments as for `norm`.

    >>> jnp.linalg.matrix_norm(jnp.eye(4))
    Array(2., dtype=float32)
    """
    return norm(x, ord, (-2, -1), keepdims)


def vector_norm(
    x: ArrayLike, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
) -> Array:
    """The norm of vectors; several axes, or all, are taken as one.

    >>> jnp.linalg.vector_norm(jnp.ones((2, 2)))
    Array(2., dtype=float32)
    """
    x = as_array("jnp.linalg.vector_norm", x)
    if not is_kind(x.dtype, np.inexact):
        x = convert(x, dtypes.default_float_dtype())
    return _vector_norm(x, ord, canonical_axes(axis, x.ndim), keepdims)
