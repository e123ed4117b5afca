"""`BCSR`: a batch of sparse matrices as rows of columns and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.pytree_registry import register_pytree_node
from amdjax.experimental.sparse import layout, products, shapes
from amdjax.experimental.sparse.base import JAXSparse, SparseInfo, fitted_shape, over_batch
from amdjax.experimental.sparse.bcoo import BCOO, full_batch


class BCSR(JAXSparse):
    """Sparse matrices as, for each row, the columns and the values of its entries.

    Args:
      args: the data, of shape `(*batch, entries, *dense)`, the columns, `(*batch, entries)`, and
        where each row begins among them, with the end, `(*batch, rows + 1)`.
      shape: that of the array: batch axes, rows, columns, dense axes.
      indices_sorted: promise that the columns of a row are.

        >>> m = sparse.BCSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> m, m @ jnp.ones(2)
        (BCSR(float32[2, 2], nse=2), Array([2., 3.], dtype=float32))
    """

    data: Array
    indices: Array
    indptr: Array

    def __init__(
        self, args: tuple[Any, Any, Any], *, shape: Sequence[int], indices_sorted: bool = False,
        unique_indices: bool = False,
    ) -> None:  # fmt: skip
        self.data, self.indices, self.indptr = (jnp.asarray(x) for x in args)
        self.shape = tuple(shape)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        b = self.n_batch
        if self.ndim < b + 2 or self.indptr.shape[-1] != self.shape[b] + 1:
            raise ValueError(
                f"Invalid indptr.shape={self.indptr.shape} for indices.shape={self.indices.shape}"
                f" and shape={self.shape}"
            )

    @property
    def nse(self) -> int:
        """How many entries each matrix can hold."""
        return int(self.indices.shape[-1])

    @property
    def n_batch(self) -> int:
        """The number of batch axes."""
        return int(self.indices.ndim - 1)

    @property
    def n_sparse(self) -> int:
        """Two: rows and columns."""
        return 2

    @property
    def n_dense(self) -> int:
        """The number of dense axes."""
        return int(self.data.ndim - 1 - self.n_batch)

    @property
    def _info(self) -> SparseInfo:
        return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    @property
    def _bufs(self) -> tuple[Array, Array, Array]:
        return self.data, self.indices, self.indptr

    def __repr__(self) -> str:
        return self._described(n_batch=self.n_batch, n_dense=self.n_dense)

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0,
        n_batch: int = 0,
    ) -> BCSR:  # fmt: skip
        """The entries of an array that are not zero; see `bcoo_fromdense`."""
        return cls.from_bcoo(
            layout.bcoo_fromdense(
                mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch
            )
        )

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """The same array from coordinates, which are sorted for it.

        Args:
          arr: the `BCOO`.

        Returns:
          A `BCSR`.
        """
        if arr.n_sparse != 2:
            raise NotImplementedError(f"BCSR.from_bcoo requires n_sparse=2; got {arr.n_sparse=}")
        arr = layout.bcoo_sort_indices(arr)
        data, indices = full_batch(arr)
        rows = arr.shape[arr.n_batch]

        def starts(row: Array) -> Array:
            wanted = jnp.arange(rows + 1, dtype=row.dtype)
            return jnp.searchsorted(row, wanted).astype(row.dtype)

        indptr = over_batch(starts, arr.n_batch)(indices[..., 0])
        return cls((data, indices[..., 1], indptr), shape=arr.shape, indices_sorted=True,
                   unique_indices=arr.unique_indices)  # fmt: skip

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """The entries of a matrix of `scipy.sparse`; see `bcsr_fromdense`."""
        if n_dense or n_batch:
            raise NotImplementedError("BCSR.from_scipy_sparse: n_dense and n_batch must be 0")
        found = mat.tocsr()
        dtype = index_dtype or np.int32
        parts = found.data, found.indices.astype(dtype), found.indptr.astype(dtype)
        return cls(parts, shape=mat.shape)

    @classmethod
    def _empty(cls, shape: Sequence[int], **options: Any) -> BCSR:
        return cls.from_bcoo(BCOO._empty(tuple(shape), **options))

    def to_bcoo(self) -> Any:
        """The same array as coordinates, a `BCOO`."""
        rows = self.shape[self.n_batch]

        def expand(indptr: Array) -> Array:
            entry = jnp.arange(self.nse, dtype=indptr.dtype)
            row = jnp.searchsorted(indptr, entry, side="right") - 1
            return jnp.where(entry < indptr[-1], row, rows).astype(self.indices.dtype)

        row = over_batch(expand, self.n_batch)(self.indptr)
        batch = self.shape[: self.n_batch]
        row, column = (jnp.broadcast_to(x, (*batch, self.nse)) for x in (row, self.indices))
        column = jnp.where(row < rows, column, self.shape[self.n_batch + 1])
        flags = {"indices_sorted": self.indices_sorted, "unique_indices": self.unique_indices}
        return BCOO((self.data, jnp.stack([row, column], -1)), shape=self.shape, **flags)

    def todense(self) -> Array:
        """The array itself."""
        return self.to_bcoo().todense()

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """The same array with one entry at each place; see `BCOO.sum_duplicates`."""
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse, remove_zeros))

    def transpose(self, axes: Sequence[int] | None = None) -> BCSR:
        """The array with its axes in another order, in reverse by default; see `bcoo_transpose`."""
        return BCSR.from_bcoo(self.to_bcoo().transpose(axes))

    def sum(self, axis: Any = None) -> Any:
        """The sum over some axes; see `bcoo_reduce_sum`."""
        return self.to_bcoo().sum(axis)

    def astype(self, dtype: Any) -> BCSR:
        """The array with another dtype; see `numpy.astype`."""
        return BCSR.from_bcoo(self.to_bcoo().astype(dtype))

    def _with(self, data: Any) -> BCSR:
        flags = {"indices_sorted": self.indices_sorted, "unique_indices": self.unique_indices}
        return BCSR((data, self.indices, self.indptr), shape=self.shape, **flags)

    def __neg__(self) -> BCSR:
        return self._with(-self.data)

    def __mul__(self, other: Any) -> Any:
        other = other.to_bcoo() if isinstance(other, BCSR) else other
        return BCSR.from_bcoo(self.to_bcoo() * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> BCSR:
        return BCSR.from_bcoo(self.to_bcoo() / other)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, BCSR):
            return BCSR.from_bcoo(self.to_bcoo() + other.to_bcoo())
        return self.to_bcoo() + other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __getitem__(self, index: Any) -> BCSR:
        """A part of the array that has rows and columns still; see `BCOO.__getitem__`."""
        part = self.to_bcoo()[index]
        b = part.ndim - 2 - self.n_dense
        return BCSR.from_bcoo(
            layout.bcoo_update_layout(part, n_batch=b, n_dense=self.n_dense, on_inefficient=None)
        )

    def __matmul__(self, other: Any) -> Any:
        return self.to_bcoo() @ (other.to_bcoo() if isinstance(other, BCSR) else other)

    def __rmatmul__(self, other: Any) -> Any:
        return other @ self.to_bcoo()


def bcsr_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0,
    index_dtype: Any = np.int32,
) -> BCSR:  # fmt: skip
    """The entries of an array that are not zero; see `bcoo_fromdense`.

    >>> sparse.bcsr_fromdense(jnp.array([[0.0, 5.0]])).indices
    Array([1], dtype=int32)
    """
    return BCSR.fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)


def bcsr_todense(mat: BCSR) -> Array:
    """The array that a `BCSR` stands for.

    >>> m = sparse.BCSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.bcsr_todense(m)
    Array([[0., 2.],
           [3., 0.]], dtype=float32)
    """
    return mat.todense()


def bcsr_extract(indices: Any, indptr: Any, mat: Any) -> Array:
    """The data that an array has at the places of rows and columns.

    Args:
      indices: columns, of shape `(*batch, entries)`.
      indptr: where each row begins, of shape `(*batch, rows + 1)`.
      mat: the array.

    Returns:
      Data of shape `(*batch, entries, *dense)`.

        >>> m = sparse.BCSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.bcsr_extract(m.indices, m.indptr, jnp.arange(4.0).reshape(2, 2))
        Array([1., 2.], dtype=float32)
    """
    mat, indices = jnp.asarray(mat), jnp.asarray(indices)
    dense = mat.shape[indices.ndim + 1 :]
    zeros = jnp.zeros((*indices.shape, *dense), mat.dtype)
    places = BCSR((zeros, indices, indptr), shape=mat.shape, unique_indices=True).to_bcoo()
    return layout.bcoo_extract(places, mat).data


def bcsr_dot_general(
    lhs: Any, rhs: Any, *, dimension_numbers: Any, precision: Any = None,
    preferred_element_type: Any = None, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """The product of a `BCSR` with an array; see `bcoo_dot_general`.

    >>> m = sparse.BCSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.bcsr_dot_general(m, jnp.ones(2), dimension_numbers=(((1,), (0,)), ((), ())))
    Array([2., 3.], dtype=float32)
    """
    sides = [x.to_bcoo() if isinstance(x, BCSR) else x for x in (lhs, rhs)]
    return products.bcoo_dot_general(
        *sides, dimension_numbers=dimension_numbers, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """The same array with one entry at each place.

    >>> m = sparse.BCSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.bcsr_sum_duplicates(m).nse
    2
    """
    return BCSR.from_bcoo(layout.bcoo_sum_duplicates(mat.to_bcoo(), nse))


def bcsr_broadcast_in_dim(
    mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCSR:
    """The array in a larger shape; see `bcoo_broadcast_in_dim`.

    >>> m = sparse.BCSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.bcsr_broadcast_in_dim(m, shape=(3, 2, 2), broadcast_dimensions=(1, 2)).shape
    (3, 2, 2)
    """
    found = shapes.bcoo_broadcast_in_dim(
        mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions
    )
    wanted = len(shape) - 2 - mat.n_dense
    return BCSR.from_bcoo(
        layout.bcoo_update_layout(found, n_batch=wanted, n_dense=mat.n_dense, on_inefficient=None)
    )


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """Sparse arrays, joined along an axis; see `bcoo_concatenate`.

    >>> m = sparse.BCSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.bcsr_concatenate([m, m], dimension=0).shape
    (4, 2)
    """
    joined = shapes.bcoo_concatenate([x.to_bcoo() for x in operands], dimension=dimension)
    return BCSR.from_bcoo(joined)


def _flatten(mat: BCSR) -> tuple[Any, Any]:
    children = mat.data, mat.indices, mat.indptr
    return children, (mat.shape, mat.indices_sorted, mat.unique_indices)


def _unflatten(aux: Any, children: Any) -> BCSR:
    mat = object.__new__(BCSR)
    mat.data, mat.indices, mat.indptr = children
    shape, mat.indices_sorted, mat.unique_indices = aux
    mat.shape = fitted_shape(mat, shape)
    return mat


register_pytree_node(BCSR, _flatten, _unflatten)
