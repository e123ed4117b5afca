"""Index arrays: of diagonals and triangles, open meshes, flat indices."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes, promotion
from amdjax.core.array import Array
from amdjax.core.dims import DimSize, is_symbolic_dim, max_dim, min_dim
from amdjax.core.errors import ConcretizationTypeError
from amdjax.core.trace import is_concrete
from amdjax.numpy import _util
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    as_arrays,
    canonical_shape,
    concrete_int,
    convert,
    is_kind,
    promote_dtypes,
    strong,
)
from amdjax.numpy.arithmetic import clip, divmod, mod
from amdjax.numpy.conversion import asarray
from amdjax.numpy.creation import lower_mask
from amdjax.numpy.indexing import _wrapped
from amdjax.numpy.manipulation import ravel, resize
from amdjax.numpy.selecting import nonzero, where


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """The positions of the diagonal of an array with `ndim` axes of `n`.

    >>> jnp.diag_indices(2)
    (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    n, ndim = concrete_int(n, "n of diag_indices"), concrete_int(ndim, "ndim of diag_indices")
    if n < 0:
        raise ValueError(f"n argument to diag_indices must be nonnegative, got {n}")
    if ndim < 0:
        raise ValueError(f"ndim argument to diag_indices must be nonnegative, got {ndim}")
    return (lax.iota(dtypes.default_int_dtype(), n),) * ndim


def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """The positions of the diagonal of `arr`.

    >>> jnp.diag_indices_from(jnp.ones((2, 2)))[0]
    Array([0, 1], dtype=int32)
    """
    a = as_array("diag_indices_from", arr)
    if a.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if any(n != a.shape[0] for n in a.shape):
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(a.shape[0], a.ndim)


def _triangle_indices(
    n: int, m: int | None, k: int, keep: Callable[..., Any]
) -> tuple[Array, Array]:
    k, m = concrete_int(k, f"k of {keep.__name__}_indices"), n if m is None else m
    if any(map(is_symbolic_dim, (n, m, k))):
        lower = keep is np.tril
        below = k if lower else k - 1
        mask = lower_mask(n, m, below, np.dtype(bool))
        count = _summed(n + below, m) - _summed(below, m)
        if not lower:
            mask, count = lax.bitwise_not(mask), n * m - count
        found = nonzero(mask, size=max_dim(count, 0))
        return found[0], found[1]
    rows, columns = np.nonzero(keep(np.ones((n, m), bool), k))
    index = dtypes.default_int_dtype()
    return asarray(rows.astype(index)), asarray(columns.astype(index))


def _summed(last: DimSize, most: DimSize) -> DimSize:
    """The sum of `min(i, most)` over the integers from 1 to `last`."""
    last = max_dim(last, 0)
    turn = min_dim(last, most)
    return turn * (turn + 1) // 2 + (last - turn) * most


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The positions at and below the `k`-th diagonal of an `n` × `m` matrix.

    >>> jnp.tril_indices(2)
    (Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))
    """
    return _triangle_indices(n, m, k, np.tril)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The positions at and above the `k`-th diagonal of an `n` × `m` matrix.

    >>> jnp.triu_indices(2)
    (Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))
    """
    return _triangle_indices(n, m, k, np.triu)


def _from_matrix(name: str, arr: ArrayLike) -> tuple[int, int]:
    a = as_array(name, arr)
    if a.ndim != 2:
        raise ValueError("Only 2-D inputs are accepted")
    return a.shape[0], a.shape[1]


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """The positions at and below the `k`-th diagonal of a matrix.

    >>> jnp.tril_indices_from(jnp.ones((2, 2)))[1]
    Array([0, 0, 1], dtype=int32)
    """
    rows, columns = _from_matrix("tril_indices_from", arr)
    return tril_indices(rows, k, columns)


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """The positions at and above the `k`-th diagonal of a matrix.

    >>> jnp.triu_indices_from(jnp.ones((2, 2)))[1]
    Array([0, 1, 1], dtype=int32)
    """
    rows, columns = _from_matrix("triu_indices_from", arr)
    return triu_indices(rows, k, columns)


def mask_indices(
    n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None
) -> tuple[Array, ...]:
    """The positions that a mask function such as `triu` keeps of an `n` × `n` matrix.

    >>> jnp.mask_indices(2, jnp.triu)[1]
    Array([0, 1, 1], dtype=int32)
    """
    return nonzero(mask_func(lax.full((n, n), 1, np.dtype("int32")), k), size=size)


def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """Vectors as open grids, to index the product of positions.

    >>> [x.shape for x in jnp.ix_(jnp.arange(2), jnp.arange(3))]
    [(2, 1), (1, 3)]
    """
    results = []
    for i, x in enumerate(as_arrays("ix_", *args)):
        if x.ndim != 1:
            raise ValueError(
                f"Arguments to jax.numpy.ix_ must be 1-dimensional, got shape {x.shape}"
            )
        if x.dtype == bool:
            raise NotImplementedError("Boolean arguments to jax.numpy.ix_ are not implemented")
        if not x.size:
            x = convert(x, dtypes.default_int_dtype())
        results.append(lax.reshape(x, tuple(x.size if i == j else 1 for j in range(len(args)))))
    return tuple(results)


def unravel_index(indices: ArrayLike, shape: Any) -> tuple[Array, ...]:
    """Flat positions as one array for each axis of `shape`.

    >>> jnp.unravel_index(5, (2, 3))
    (Array(1, dtype=int32, weak_type=True), Array(2, dtype=int32, weak_type=True))
    """
    flat = as_array("unravel_index", indices)
    if is_kind(flat.dtype, np.complexfloating):
        raise TypeError(f"unravel_index requires real indices, got {flat.dtype}")
    dtype, weak = flat.dtype, False
    total: Any
    if isinstance(shape, (tuple, list)) and any(isinstance(n, Array) for n in shape):
        flat, *shape = as_arrays("unravel_index", convert(flat, np.dtype("int32")), *shape)
        total = functools.reduce(lax.mul, [convert(n, flat.dtype) for n in shape])
        flat = clip(where(flat < 0, flat + total, flat), 0, total - 1)
    else:
        if np.ndim(shape) > 1:
            raise ValueError(f"unravel_index: shape should be a scalar or 1D sequence, got {shape}")
        given, shape = shape, canonical_shape(shape)
        dtype, weak = promotion.lattice_result_type(flat, *(given if np.ndim(given) else (given,)))
        total = math.prod(shape)
        flat = clip(_wrapped(flat, total), 0, max_dim(total - 1, 0))
    results = []
    for n in reversed(shape):
        flat, position = divmod(flat, n)
        results.append(convert(position, dtype, weak))
    return tuple(reversed(results))


def ravel_multi_index(
    multi_index: Sequence[ArrayLike], dims: Sequence[int], mode: str = "raise", order: str = "C",
    *, dtype: Any = None,
) -> Array:  # fmt: skip
    """Positions along each axis as flat positions.

    Args:
      multi_index: one integer array for each axis.
      dims: shape of the array.
      mode: out of bounds, "raise" (concrete indices only), "clip", "wrap" or "ignore".
      order: "C" or "F".
      dtype: dtype of the result.

        >>> jnp.ravel_multi_index((jnp.array([1]), jnp.array([2])), (2, 3))
        Array([5], dtype=int32)
    """
    if len(multi_index) != len(dims):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(dims)}, got "
                         f"{len(multi_index)}")  # fmt: skip
    dims = canonical_shape(tuple(dims))
    index = as_arrays("ravel_multi_index", *multi_index)
    if any(not is_kind(i.dtype, np.integer) for i in index):
        raise TypeError("only int indices permitted")
    if mode == "raise":
        for i, n in zip(index, dims):
            if not is_concrete(i):
                raise ConcretizationTypeError(
                    i,
                    "The error occurred because ravel_multi_index was jit-compiled with"
                    " mode='raise'. Use mode='wrap' or mode='clip' instead.",
                )
            if ((np.asarray(i) < 0) | (np.asarray(i) >= n)).any():
                raise ValueError("invalid entry in coordinates array")
    elif mode == "clip":
        index = [clip(i, 0, n - 1) for i, n in zip(index, dims)]
    elif mode == "wrap":
        index = [mod(i, n) for i, n in zip(index, dims)]
    elif mode != "ignore":
        raise ValueError(f"invalid mode={mode!r}. Expected 'raise', 'wrap', 'clip' or 'ignore'")
    if order not in ("C", "F"):
        raise ValueError(f"invalid order={order!r}. Expected 'C' or 'F'")
    inner = dims if order == "F" else dims[::-1]
    strides = [math.prod(inner[:i]) for i in range(len(inner))]
    strides = strides if order == "F" else strides[::-1]
    index = promote_dtypes(*index) if len(index) > 1 else index
    total: Any = None
    for i, stride in zip(_util.broadcast_arrays(*index), strides):
        term = lax.mul(i, strong(i, stride))
        total = term if total is None else lax.add(total, term)
    return total if dtype is None else convert(total, dtype)


def fill_diagonal(
    a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = True
) -> Array:
    """`a` with `val` on its main diagonal; needs `inplace=False`.

    >>> jnp.fill_diagonal(jnp.zeros((2, 2)), 1.0, inplace=False)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if inplace:
        raise NotImplementedError("JAX arrays are immutable, must use inplace=False")
    if wrap:
        raise NotImplementedError("wrap=True is not implemented, must use wrap=False")
    a, val = as_arrays("fill_diagonal", a, val)
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and any(n != a.shape[0] for n in a.shape):
        raise ValueError("All dimensions of input must be of equal length")
    n = min_dim(*a.shape)
    values = val if val.ndim == 0 else resize(ravel(val), n)
    return a.at[diag_indices(n, a.ndim)].set(values)
