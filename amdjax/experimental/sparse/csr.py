"""`CSR` and `CSC`: a sparse matrix by its rows, or by its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.dtypes import canonicalize_dtype
from amdjax.core.pytree_registry import register_pytree_node
from amdjax.experimental.sparse import coo
from amdjax.experimental.sparse.base import JAXSparse, Shape
from amdjax.experimental.sparse.coo import COOInfo
from amdjax.experimental.sparse.layout import count_entries
from amdjax.experimental.sparse.primitives import first_nonzeros, primitive_of


class _Compressed(JAXSparse):
    """What both forms have; `_rows_first` tells which of the axes the pointers are of."""

    data: Array
    indices: Array
    indptr: Array
    _rows_first: bool

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Sequence[int]) -> None:
        self.data, self.indices, self.indptr = (jnp.asarray(x) for x in args)
        self.shape = tuple(shape)

    @property
    def _bufs(self) -> tuple[Array, Array, Array]:
        return self.data, self.indices, self.indptr

    @property
    def _by_rows(self) -> Shape:
        """The shape of the matrix, or of its transpose, whose rows the pointers are of."""
        return self.shape if self._rows_first else self.shape[::-1]

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> Any:
        """The entries of a matrix that are not zero; see `csr_fromdense`."""
        mat = jnp.asarray(mat)
        found = csr_fromdense(mat if cls._rows_first else mat.T, nse=nse, index_dtype=index_dtype)
        return cls(found._bufs, shape=mat.shape)

    @classmethod
    def _empty(cls, shape: Shape, *, dtype: Any = None, index_dtype: Any = "int32") -> Any:
        if len(shape) != 2:
            raise ValueError(f"{cls.__name__} must have ndim=2; got {shape=}")
        rows = shape[0] if cls._rows_first else shape[1]
        parts = jnp.empty(0, dtype), jnp.empty(0, index_dtype), jnp.zeros(rows + 1, index_dtype)
        return cls(parts, shape=shape)

    @classmethod
    def _eye(cls, rows: np.ndarray, shape: Shape, k: int, dtype: Any, index_dtype: Any) -> Any:
        data = jnp.ones(rows.size, canonicalize_dtype(dtype))
        first, second = (rows, rows + k) if cls._rows_first else (rows + k, rows)
        lines = shape[0] if cls._rows_first else shape[1]
        starts = np.searchsorted(first, np.arange(lines + 1))
        parts = data, jnp.asarray(second, index_dtype), jnp.asarray(starts, index_dtype)
        return cls(parts, shape=shape)

    def todense(self) -> Array:
        """The matrix itself."""
        rows = csr_todense_p.bind(*self._bufs, shape=self._by_rows)
        return rows if self._rows_first else rows.T

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """The transpose, in the other form; `axes` must be None.

        Args:
          axes: must be None.

        Returns:
          A `CSC` or a `CSR`.
        """
        if axes is not None:
            raise NotImplementedError("axes argument to transpose()")
        other = CSC if self._rows_first else CSR
        return other(self._bufs, shape=self.shape[::-1])

    def __matmul__(self, other: Any) -> Array:
        other, data = coo.dense_operand(self.data, other)
        mat = CSR((data, self.indices, self.indptr), shape=self._by_rows)
        product = csr_matvec if other.ndim == 1 else csr_matmat
        return product(mat, other, transpose=not self._rows_first)


class CSR(_Compressed):
    """A sparse matrix as, for each row, the columns and the values of its entries.

    Args:
      args: the values and the columns, of shape `(entries,)`, and where each row begins among
        them, with the end, `(rows + 1,)`.
      shape: that of the matrix.

        >>> m = sparse.CSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> m, m @ jnp.ones(2)
        (CSR(float32[2, 2], nse=2), Array([2., 3.], dtype=float32))
    """

    _rows_first = True


class CSC(_Compressed):
    """A sparse matrix as, for each column, the rows and the values of its entries.

    Args:
      args: the values and the rows, of shape `(entries,)`, and where each column begins among
        them, with the end, `(columns + 1,)`.
      shape: that of the matrix.

        >>> sparse.CSC.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]])).indices
        Array([1, 0], dtype=int32)
    """

    _rows_first = False


def rows_of(indices: Array, indptr: Array) -> Array:
    """The row of each entry; that after the last for entries beyond the end."""
    entry = jnp.arange(indices.shape[0], dtype=indptr.dtype)
    return (jnp.searchsorted(indptr, entry, side="right") - 1).astype(indices.dtype)


def _todense(data: Array, indices: Array, indptr: Array, *, shape: Shape) -> Array:
    return coo._todense(data, rows_of(indices, indptr), indices, spinfo=COOInfo(shape))


def _fromdense(mat: Array, *, nse: int, index_dtype: Any) -> tuple[Array, Array, Array]:
    row, col = first_nonzeros(mat, nse, mat.shape)
    data = mat.at[row, col].get(mode="fill", fill_value=0)
    starts = jnp.searchsorted(row, jnp.arange(mat.shape[0] + 1, dtype=row.dtype))
    return data, col.astype(index_dtype), starts.astype(index_dtype)


def _matvec(
    data: Array, indices: Array, indptr: Array, v: Array, *, shape: Shape, transpose: bool
) -> Array:
    row = rows_of(indices, indptr)
    return coo._matvec(data, row, indices, v, spinfo=COOInfo(shape), transpose=transpose)


csr_todense_p = primitive_of("csr_todense", _todense)
csr_fromdense_p = primitive_of("csr_fromdense", _fromdense, multiple_results=True)
csr_matvec_p = primitive_of("csr_matvec", _matvec)
csr_matmat_p = primitive_of("csr_matmat", _matvec)


def csr_todense(mat: CSR) -> Array:
    """The matrix that a `CSR` stands for; entries at one place add up.

    >>> m = sparse.CSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.csr_todense(m)
    Array([[0., 2.],
           [3., 0.]], dtype=float32)
    """
    return mat.todense()


def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
    """The entries of a matrix that are not zero.

    Args:
      mat: the matrix.

    Returns:
      A `CSR`; of more entries than `nse` the first are kept.

    Raises:
      ValueError: `nse` is not given under a transformation.

        >>> sparse.csr_fromdense(jnp.array([[0.0, 5.0]])).data
        Array([5.], dtype=float32)
    """
    mat = jnp.asarray(mat)
    nse = count_entries((mat != 0).sum()) if nse is None else int(nse)
    parts = csr_fromdense_p.bind(mat, nse=nse, index_dtype=np.dtype(index_dtype))
    return CSR(tuple(parts), shape=mat.shape)


def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Array:
    """The product of a `CSR` and a vector of its dtype; see `coo_matvec`.

    >>> m = sparse.CSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.csr_matvec(m, jnp.ones(2))
    Array([2., 3.], dtype=float32)
    """
    v = jnp.asarray(v)
    coo._check_product("csr_matvec", mat, v, 1, transpose)
    return csr_matvec_p.bind(*mat._bufs, v, shape=mat.shape, transpose=transpose)


def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Array:
    """The product of a `CSR` and a matrix of its dtype; see `coo_matmat`.

    >>> m = sparse.CSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.csr_matmat(m, jnp.eye(2))
    Array([[0., 2.],
           [3., 0.]], dtype=float32)
    """
    B = jnp.asarray(B)
    coo._check_product("csr_matmat", mat, B, 2, transpose)
    return csr_matmat_p.bind(*mat._bufs, B, shape=mat.shape, transpose=transpose)


def _flatten(mat: _Compressed) -> tuple[Any, Any]:
    return mat._bufs, mat.shape


def _register(kind: type[_Compressed]) -> None:
    def unflatten(shape: Shape, children: Any) -> _Compressed:
        mat = object.__new__(kind)  # the parts may be anything while trees are moved about
        mat.data, mat.indices, mat.indptr = children
        mat.shape = shape
        return mat

    register_pytree_node(kind, _flatten, unflatten)


_register(CSR)
_register(CSC)
_public_surface(globals())
