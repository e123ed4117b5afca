"""Sparse arrays of a given shape: empty ones, identities, random ones."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import random
from amdjax.core.array import Array
from amdjax.core.dtypes import canonicalize_dtype, default_int_dtype
from amdjax.core.pytree import tree_flatten, tree_unflatten
from amdjax.core.trace import Tracer
from amdjax.experimental.sparse.base import JAXSparse, over_batch
from amdjax.experimental.sparse.bcoo import BCOO
from amdjax.experimental.sparse.bcsr import BCSR
from amdjax.experimental.sparse.coo import COO
from amdjax.experimental.sparse.csr import CSC, CSR
from amdjax.experimental.sparse.layout import bcoo_fromdense, bcoo_sort_indices
from amdjax.experimental.sparse.primitives import primitive_of


def _todense(*leaves: Any, tree: Any) -> Array:
    arr = tree_unflatten(tree, leaves)
    return arr.todense() if isinstance(arr, JAXSparse) else arr


todense_p = primitive_of("todense", _todense)


def todense(arr: Any) -> Array:
    """An array from one that may be sparse.

    >>> sparse.todense(jnp.ones(1))
    Array([1.], dtype=float32)
    """
    if not isinstance(arr, (JAXSparse, Tracer)):
        return jnp.asarray(arr)
    leaves, tree = tree_flatten(arr)
    return todense_p.bind(*leaves, tree=tree)


def _format(sparse_format: str) -> Any:
    formats = {"bcoo": BCOO, "bcsr": BCSR, "coo": COO, "csr": CSR, "csc": CSC}
    if sparse_format not in formats:
        raise ValueError(f"sparse_format={sparse_format!r} not recognized; must be {list(formats)}")
    return formats[sparse_format]


def empty(
    shape: Sequence[int], dtype: Any = None, index_dtype: Any = "int32",
    sparse_format: str = "bcoo", **kwds: Any,
) -> Any:  # fmt: skip
    """A sparse array of zeros.

    Args:
      shape: its shape.
      index_dtype: that of its indices.
      kwds: `nse`, `n_batch`, `n_dense`.

    Returns:
      The array.

        >>> sparse.empty((2, 3))
        BCOO(float32[2, 3], nse=0)
    """
    return _format(sparse_format)._empty(tuple(shape), dtype=dtype, index_dtype=index_dtype, **kwds)


def eye(
    N: int, M: int | None = None, k: int = 0, dtype: Any = None, index_dtype: Any = "int32",
    sparse_format: str = "bcoo", **kwds: Any,
) -> Any:  # fmt: skip
    """A matrix with ones on a diagonal.

    Args:
      N: rows.
      M: columns; as many by default.
      k: which diagonal, above the main one.
      index_dtype: that of its indices.
      kwds: `n_batch`, `n_dense`.

    Returns:
      The matrix.

        >>> sparse.eye(2, 3, k=1)
        BCOO(float32[2, 3], nse=2)
    """
    columns = N if M is None else M
    rows = np.arange(max(0, -k), min(N, columns - k))
    dtype = np.float64 if dtype is None else dtype
    kind = _format(sparse_format)
    if kind not in (BCOO, BCSR):
        return kind._eye(rows, (N, columns), k, dtype, index_dtype)
    data = jnp.ones(rows.size, canonicalize_dtype(dtype))
    indices = jnp.asarray(np.stack([rows, rows + k], -1), index_dtype)
    mat = BCOO((data, indices), shape=(N, columns), indices_sorted=True, unique_indices=True)
    if any(kwds.values()):  # of which each part needs no more entries than its own
        whole = jnp.eye(N, M, k, canonicalize_dtype(dtype))
        mat = bcoo_fromdense(whole, index_dtype=index_dtype, **kwds)
    return mat if kind is BCOO else BCSR.from_bcoo(mat)


def random_bcoo(
    key: Array, shape: Sequence[int], *, dtype: Any = np.float64, indices_dtype: Any = None,
    nse: float = 0.2, n_batch: int = 0, n_dense: int = 0, unique_indices: bool = True,
    sorted_indices: bool = False, generator: Callable[..., Array] = random.uniform, **kwds: Any,
) -> BCOO:  # fmt: skip
    """A sparse array with entries at random places.

    Args:
      key: a key.
      shape: its shape.
      indices_dtype: that of its indices.
      nse: the number of entries, or, below one, their share.
      unique_indices: draw no place twice.
      sorted_indices: sort the entries.
      generator: draws the data, as `generator(key, shape=, dtype=, **kwds)`.
      kwds: for it.

    Returns:
      The array.

    Raises:
      ValueError: `nse` is negative, or not below the number of places.

        >>> sparse.random_bcoo(amdjax.random.key(0), (4, 5), nse=3)
        BCOO(float32[4, 5], nse=3)
    """
    shape = tuple(shape)
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > len(shape):
        raise ValueError(f"Invalid {n_batch=}, {n_dense=} for {shape=}")
    batch, middle = shape[:n_batch], shape[n_batch : len(shape) - n_dense]
    places = math.prod(middle)
    if not 0 <= nse < places:
        raise ValueError(f"random_bcoo: nse must lie in [0, {places}), got {nse}.")
    count = math.ceil(nse * places) if nse < 1 else operator.index(nse)  # type: ignore[arg-type]
    kind = default_int_dtype() if indices_dtype is None else np.dtype(indices_dtype)

    def draw(key: Array) -> Array:
        if not middle:
            return jnp.zeros((count, 0), kind)
        flat = random.choice(key, places, shape=(count,), replace=not unique_indices)
        return jnp.stack(jnp.unravel_index(flat.astype(kind), middle), -1)

    keys = random.split(key, math.prod(batch) + 1)
    indices = over_batch(draw, 1)(keys[1:]).reshape((*batch, count, len(middle)))
    dense = shape[len(shape) - n_dense :]
    dtype = canonicalize_dtype(dtype)
    data = generator(keys[0], shape=(*batch, count, *dense), dtype=dtype, **kwds)
    mat = BCOO((data, indices), shape=shape)
    return bcoo_sort_indices(mat) if sorted_indices else mat
