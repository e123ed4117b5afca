"""`BCOO`: a batch of sparse arrays as coordinates and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.pytree_registry import register_pytree_node
from amdjax.experimental.sparse.base import JAXSparse, Shape, SparseInfo, fitted_shape


class BCOO(JAXSparse):
    """Sparse arrays as the coordinates and the values of their entries.

    Args:
      args: the data, of shape `(*batch, entries, *dense)`, and the indices, integers of shape
        `(*batch, entries, sparse axes)`.
      shape: that of the array: batch, sparse and dense axes in this order.
      indices_sorted: promise that indices are.

    Entries at one place add up; an index beyond the array is none. A `BCOO` is a pytree of data and
    indices.

        >>> m = sparse.BCOO((jnp.array([5.0]), jnp.array([[1, 0]])), shape=(2, 2))
        >>> m.todense()
        Array([[0., 0.],
               [5., 0.]], dtype=float32)
    """

    data: Array
    indices: Array

    def __init__(
        self, args: tuple[Any, Any], *, shape: Sequence[int], indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> None:  # fmt: skip
        self.data, self.indices = (jnp.asarray(x) for x in args)
        self.shape = tuple(shape)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        _check(self)

    @property
    def nse(self) -> int:
        """How many entries each element of the batch can hold."""
        return int(self.indices.shape[-2])

    @property
    def n_batch(self) -> int:
        """The number of batch axes."""
        return int(self.indices.ndim - 2)

    @property
    def n_sparse(self) -> int:
        """The number of sparse axes."""
        return int(self.indices.shape[-1])

    @property
    def n_dense(self) -> int:
        """The number of dense axes."""
        return int(self.data.ndim - 1 - self.n_batch)

    @property
    def _info(self) -> SparseInfo:
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    @property
    def _bufs(self) -> tuple[Array, Array]:
        return self.data, self.indices

    def __repr__(self) -> str:
        return self._described(n_batch=self.n_batch, n_dense=self.n_dense)

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """The entries of a matrix of `scipy.sparse`; see `bcoo_fromdense`."""
        if n_dense or n_batch:
            raise NotImplementedError("BCOO.from_scipy_sparse: n_dense and n_batch must be 0")
        found = mat.tocoo()
        indices = np.stack([found.row, found.col], -1).astype(index_dtype or np.int32)
        return cls((found.data, indices), shape=mat.shape)

    @classmethod
    def _empty(
        cls, shape: Shape, *, dtype: Any = None, index_dtype: Any = "int32", n_dense: int = 0,
        n_batch: int = 0, nse: int = 0,
    ) -> BCOO:  # fmt: skip
        shape = tuple(shape)
        n_sparse = len(shape) - n_dense - n_batch
        if n_sparse < 0 or n_dense < 0 or n_batch < 0 or nse < 0:
            raise ValueError(f"Invalid inputs: {shape=}, {n_dense=}, {n_batch=}, {nse=}")
        batch, sparse, dense = (shape[:n_batch], shape[n_batch : n_batch + n_sparse],
                                shape[n_batch + n_sparse :])  # fmt: skip
        data = jnp.zeros((*batch, nse, *dense), dtype)
        end = np.broadcast_to(np.array(sparse, int), (*batch, nse, n_sparse))
        return cls((data, jnp.asarray(end, index_dtype)), shape=shape, indices_sorted=True,
                   unique_indices=True)  # fmt: skip

    def _with(self, data: Any) -> BCOO:
        """The same places with other data, whose batch axes may be in full."""
        indices = self.indices
        if data.shape[: self.n_batch] != self.data.shape[: self.n_batch]:
            _, indices = full_batch(self)
        return make(data, indices, self.shape, indices_sorted=self.indices_sorted,
                           unique_indices=self.unique_indices)  # fmt: skip


def full_batch(mat: BCOO) -> tuple[Array, Array]:
    """Data and indices with all batch axes in full."""
    batch = mat.shape[: mat.n_batch]
    spread = lambda x: jnp.broadcast_to(x, (*batch, *x.shape[mat.n_batch :]))
    return spread(mat.data), spread(mat.indices)


def make(data: Any, indices: Any, shape: Shape, **flags: bool) -> BCOO:
    """A `BCOO` of these parts."""
    return BCOO((data, indices), shape=tuple(shape), **flags)


def _check(mat: BCOO) -> None:
    data, indices, shape = mat.data, mat.indices, mat.shape
    if indices.ndim < 2:
        raise ValueError(f"BCOO: indices need at least two axes, got shape {indices.shape}")
    if not jnp.issubdtype(indices.dtype, np.integer):
        raise TypeError(f"BCOO: indices must be integers, got {indices.dtype}")
    b, nse = mat.n_batch, mat.nse
    kinds = mat.n_dense >= 0 and b + mat.n_sparse + mat.n_dense == len(shape)
    fits = kinds and data.shape[b] == nse and data.shape[b + 1 :] == shape[b + mat.n_sparse :]
    for x in (data, indices):
        stretch = zip(x.shape[:b], shape[:b], strict=True)
        fits = fits and all(have in (1, want) for have, want in stretch)
    if not fits:
        raise ValueError(
            f"Invalid data.shape={data.shape} for indices.shape={indices.shape} and shape={shape}"
        )


def _flatten(mat: BCOO) -> tuple[Any, Any]:
    return (mat.data, mat.indices), (mat.shape, mat.indices_sorted, mat.unique_indices)


def _unflatten(aux: Any, children: Any) -> BCOO:
    mat = object.__new__(BCOO)  # the parts may be anything while trees are moved about
    mat.data, mat.indices = children
    shape, mat.indices_sorted, mat.unique_indices = aux
    mat.shape = fitted_shape(mat, shape)
    return mat


register_pytree_node(BCOO, _flatten, _unflatten)
