"""What sparse formats share: their description, warnings, and maps over batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.experimental.sparse.base import (
    Shape as Shape,
    SparseEfficiencyError as SparseEfficiencyError,
    SparseEfficiencyWarning as SparseEfficiencyWarning,
    SparseInfo as SparseInfo,
    over_batch,
)


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """An operation of a library for sparse matrices would be slow; amdjax uses none."""


def nfold_vmap(fun: Callable[..., Any], N: int, *, broadcasted: bool = True) -> Callable[..., Any]:
    """A function for each element of N leading axes; see `amdjax.vmap`.

    Args:
      fun: the function.
      N: how many axes.
      broadcasted: accepted; all arguments have the axes in full.

    Returns:
      A function of arrays with these axes.

        >>> from amdjax.experimental.sparse import util
        >>> util.nfold_vmap(jnp.sum, 2)(jnp.ones((2, 3, 4))).shape
        (2, 3)
    """
    return over_batch(fun, N)


def count_stored_elements_per_batch(mat: Any, n_batch: int = 0, n_dense: int = 0) -> Array:
    """How many entries each element of a batch needs.

    Args:
      mat: an array.
      n_batch: its leading axes that are batches.
      n_dense: its trailing axes that are dense.

    Returns:
      Integers of the shape of the batch.

        >>> from amdjax.experimental.sparse import util
        >>> util.count_stored_elements_per_batch(jnp.eye(3), n_batch=1)
        Array([1, 1, 1], dtype=int32)
    """
    mat = jnp.asarray(mat)
    mask = (mat != 0).any(tuple(range(mat.ndim - n_dense, mat.ndim)))
    return mask.sum(tuple(range(n_batch, mask.ndim)))


def count_stored_elements(mat: Any, n_batch: int = 0, n_dense: int = 0) -> Array:
    """How many entries an element of a batch needs at most; see `count_stored_elements_per_batch`.

    Args:
      mat: an array.
      n_batch: its leading axes that are batches.
      n_dense: its trailing axes that are dense.

    Returns:
      An integer.

        >>> from amdjax.experimental.sparse import util
        >>> util.count_stored_elements(jnp.eye(3), n_batch=1)
        Array(1, dtype=int32)
    """
    return count_stored_elements_per_batch(mat, n_batch, n_dense).max(initial=0)


_public_surface(globals())
