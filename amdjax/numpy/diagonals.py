"""Triangles and diagonals of matrices, and matrices made of vectors."""

from __future__ import annotations

import builtins
import operator

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.dims import is_natural, max_dim, min_dim, surely_equal
from amdjax.numpy import _util
from amdjax.numpy._util import (
    ArrayLike,
    DTypeLike,
    as_array,
    as_arrays,
    canonical_axis,
    concrete_int,
    convert,
    promote_dtypes,
    refuse_out,
    scalar_of,
    select,
    strong,
)
from amdjax.numpy.creation import lower_mask
from amdjax.numpy.indexing import take_index
from amdjax.numpy.joining import stack
from amdjax.numpy.manipulation import moveaxis, ravel
from amdjax.numpy.reductions import sum as sum_


def _triangle(m: ArrayLike, k: int, name: str, keep_lower: bool) -> Array:
    m = as_array(name, m)
    if m.ndim < 2:
        raise ValueError(f"Argument to jax.numpy.{name} must be at least 2D")
    rows, columns = m.shape[-2:]
    mask = lower_mask(rows, columns, k if keep_lower else k - 1, np.dtype(bool))
    mask = _util.broadcast_to(mask, m.shape)
    zero = lax.full_like(m, 0)
    return lax.select(mask, m, zero) if keep_lower else lax.select(mask, zero, m)


@composite(static_argnames="k")
def tril(m: ArrayLike, k: int = 0) -> Array:
    """`m` with zeros above its `k`-th diagonal.

    >>> jnp.tril(jnp.ones((2, 2)))
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    return _triangle(m, k, "tril", True)


@composite(static_argnames="k")
def triu(m: ArrayLike, k: int = 0) -> Array:
    """`m` with zeros below its `k`-th diagonal.

    >>> jnp.triu(jnp.ones((2, 2)))
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    return _triangle(m, k, "triu", False)


def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonal of the matrices spanned by two axes, as a new last axis.

    >>> jnp.diagonal(jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    a = as_array("diagonal", a)
    if a.ndim < 2:
        raise ValueError("diagonal requires an array of at least two dimensions.")
    first, second = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    if first == second:
        raise ValueError("axis1 and axis2 can not be same")
    a = moveaxis(a, (first, second), (-2, -1))
    rows, columns = a.shape[-2:]
    below, right = max_dim(-offset, 0), max_dim(offset, 0)
    length = max_dim(min_dim(rows - below, columns - right), 0)
    if surely_equal(length, 0):
        return lax.full((*a.shape[:-2], 0), 0, a.dtype)
    start = right + below * columns
    limit = start + (length - 1) * (columns + 1) + 1
    if not is_natural(rows * columns - limit) or not is_natural(limit - start):
        i = lax.iota(np.dtype("int32"), length)
        return take_index(a, (..., lax.add(i, strong(i, below)), lax.add(i, strong(i, right))))
    # Rows of one element more put the diagonal into one column.
    flat = lax.reshape(a, (*a.shape[:-2], rows * columns))
    return lax.slice_in_dim(flat, start, limit, columns + 1, axis=flat.ndim - 1)


def diag(v: ArrayLike, k: int = 0) -> Array:
    """A matrix with a given diagonal, or the diagonal of a matrix.

    >>> jnp.diag(jnp.array([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    v = as_array("diag", v)
    k = concrete_int(k, "k of diag")
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ValueError(f"diag input must be 1d or 2d, got shape {v.shape}")
    n = v.size + abs(k)
    zero = lax.full_like(v, 0, shape=())
    padded = lax.pad(v, zero, ((max_dim(0, k), max_dim(0, -k), 0),))
    on = lax.eq(
        lax.broadcasted_iota(np.dtype("int32"), (n, n), 1),
        lax.add(
            lax.broadcasted_iota(np.dtype("int32"), (n, n), 0), scalar_of(k, np.dtype("int32"))
        ),
    )
    return select(on, _util.broadcast_to(padded, (n, n)), zero)


def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """A matrix with the flattened `v` on its `k`-th diagonal.

    >>> jnp.diagflat(jnp.array([[1, 2]])).shape
    (2, 2)
    """
    matrix = diag(ravel(v), k)
    return convert(matrix, matrix.dtype)


def trace(
    a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike = None,
    out: None = None,
) -> Array:  # fmt: skip
    """The sum of the diagonal.

    >>> jnp.trace(jnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    refuse_out("trace", out)
    return sum_(diagonal(a, offset, axis1, axis2), -1, dtype=dtype)


def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """The matrix of powers of the elements of `x`.

    >>> jnp.vander(jnp.array([2, 3]), 3)
    Array([[4, 2, 1],
           [9, 3, 1]], dtype=int32)
    """
    x = as_array("vander", x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array")
    N = x.size if N is None else operator.index(N)
    if N < 0:
        raise ValueError("N must be nonnegative")
    powers = [lax.full_like(x, 1)]
    for _ in range(N - 1):
        powers.append(lax.mul(powers[-1], x))
    powers = powers[:N] if increasing else powers[:N][::-1]
    return stack(powers, 1) if powers else lax.full((x.size, 0), 0, x.dtype)


def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """The Kronecker product.

    >>> jnp.kron(jnp.array([1, 10]), jnp.array([1, 2]))
    Array([ 1,  2, 10, 20], dtype=int32)
    """
    x, y = promote_dtypes(*as_arrays("kron", a, b))
    rank = builtins.max(x.ndim, y.ndim)
    xs = (1,) * (rank - x.ndim) + x.shape
    ys = (1,) * (rank - y.ndim) + y.shape
    x = lax.reshape(x, tuple(n for e in xs for n in (e, 1)))
    y = lax.reshape(y, tuple(n for e in ys for n in (1, e)))
    return lax.reshape(lax.mul(x, y), tuple(m * n for m, n in zip(xs, ys)))
