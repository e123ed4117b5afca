"""`COO`: a sparse matrix as the rows, the columns and the values of its entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.dtypes import canonicalize_dtype
from amdjax.core.pytree_registry import register_pytree_node
from amdjax.experimental.sparse.base import JAXSparse, Shape
from amdjax.experimental.sparse.layout import count_entries
from amdjax.experimental.sparse.primitives import first_nonzeros, primitive_of
from amdjax.numpy._util import promote_dtypes


class COOInfo(NamedTuple):
    """What is known of a `COO` besides its parts: its shape, and what its entries are sorted by."""

    shape: Shape
    rows_sorted: bool = False
    cols_sorted: bool = False


class COO(JAXSparse):
    """A sparse matrix as coordinates; `BCOO` does more.

    Args:
      args: the values, the rows and the columns of the entries, of shape `(entries,)`.
      shape: that of the matrix.
      rows_sorted: promise that the entries are sorted by row.
      cols_sorted: promise that they are sorted by column.

        >>> m = sparse.COO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> m, m @ jnp.ones(2)
        (COO(float32[2, 2], nse=2), Array([2., 3.], dtype=float32))
    """

    data: Array
    row: Array
    col: Array

    def __init__(
        self, args: tuple[Any, Any, Any], *, shape: Sequence[int], rows_sorted: bool = False,
        cols_sorted: bool = False,
    ) -> None:  # fmt: skip
        self.data, self.row, self.col = (jnp.asarray(x) for x in args)
        self.shape = tuple(shape)
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted

    @property
    def _info(self) -> COOInfo:
        return COOInfo(self.shape, self._rows_sorted, self._cols_sorted)

    @property
    def _bufs(self) -> tuple[Array, Array, Array]:
        return self.data, self.row, self.col

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
        """The entries of a matrix that are not zero; see `coo_fromdense`."""
        return coo_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def _empty(cls, shape: Shape, *, dtype: Any = None, index_dtype: Any = "int32") -> COO:
        if len(shape) != 2:
            raise ValueError(f"COO must have ndim=2; got {shape=}")
        none = jnp.empty(0, index_dtype)
        parts = jnp.empty(0, dtype), none, none
        return cls(parts, shape=shape, rows_sorted=True, cols_sorted=True)

    @classmethod
    def _eye(cls, rows: np.ndarray, shape: Shape, k: int, dtype: Any, index_dtype: Any) -> COO:
        places = jnp.asarray(rows, index_dtype), jnp.asarray(rows + k, index_dtype)
        data = jnp.ones(rows.size, canonicalize_dtype(dtype))
        return cls((data, *places), shape=shape, rows_sorted=True, cols_sorted=True)

    def todense(self) -> Array:
        """The matrix itself."""
        return coo_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> COO:
        """The transpose; `axes` must be None.

        Args:
          axes: must be None.

        Returns:
          A `COO`.
        """
        if axes is not None:
            raise NotImplementedError("axes argument to transpose()")
        return COO((self.data, self.col, self.row), shape=self.shape[::-1],
                   rows_sorted=self._cols_sorted, cols_sorted=self._rows_sorted)  # fmt: skip

    def __matmul__(self, other: Any) -> Array:
        other, data = dense_operand(self.data, other)
        mat = COO((data, self.row, self.col), shape=self.shape)
        return (coo_matvec if other.ndim == 1 else coo_matmat)(mat, other)


def dense_operand(data: Array, other: Any) -> tuple[Array, Array]:
    """What a matrix with these entries is multiplied by, and the entries, of one dtype."""
    if isinstance(other, JAXSparse):
        raise NotImplementedError("matmul between two sparse objects.")
    other = jnp.asarray(other)
    if other.ndim not in (1, 2):
        raise NotImplementedError(f"matmul with object of shape {other.shape}")
    data, other = promote_dtypes(data, other)
    return other, data


def _todense(data: Array, row: Array, col: Array, *, spinfo: COOInfo) -> Array:
    return jnp.zeros(spinfo.shape, data.dtype).at[row, col].add(data, mode="drop")


def _fromdense(mat: Array, *, nse: int, index_dtype: Any) -> tuple[Array, Array, Array]:
    row, col = first_nonzeros(mat, nse, (0, 0))
    there = jnp.arange(nse) < (mat != 0).sum()
    data = jnp.where(there, mat.at[row, col].get(mode="fill", fill_value=0), 0)
    return data, row.astype(index_dtype), col.astype(index_dtype)


def _matvec(
    data: Array, row: Array, col: Array, v: Array, *, spinfo: COOInfo, transpose: bool
) -> Array:
    (rows, columns) = spinfo.shape
    to, at, size = (col, row, columns) if transpose else (row, col, rows)
    terms = data.reshape(-1, *[1] * (v.ndim - 1)) * v[at]
    return jnp.zeros((size, *v.shape[1:]), data.dtype).at[to].add(terms, mode="drop")


coo_todense_p = primitive_of("coo_todense", _todense)
coo_fromdense_p = primitive_of("coo_fromdense", _fromdense, multiple_results=True)
coo_matvec_p = primitive_of("coo_matvec", _matvec)
coo_matmat_p = primitive_of("coo_matmat", _matvec)


def coo_todense(mat: COO) -> Array:
    """The matrix that a `COO` stands for; entries at one place add up.

    >>> m = sparse.COO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.coo_todense(m)
    Array([[0., 2.],
           [3., 0.]], dtype=float32)
    """
    return coo_todense_p.bind(*mat._bufs, spinfo=mat._info)


def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
    """The entries of a matrix that are not zero.

    Args:
      mat: the matrix.

    Returns:
      A `COO`; of more entries than `nse` the first are kept.

    Raises:
      ValueError: `nse` is not given under a transformation.

        >>> sparse.coo_fromdense(jnp.array([[0.0, 5.0]])).data
        Array([5.], dtype=float32)
    """
    mat = jnp.asarray(mat)
    nse = count_entries((mat != 0).sum()) if nse is None else int(nse)
    parts = coo_fromdense_p.bind(mat, nse=nse, index_dtype=np.dtype(index_dtype))
    return COO(tuple(parts), shape=mat.shape, rows_sorted=True)


def _check_product(what: str, mat: Any, x: Array, ndim: int, transpose: bool) -> None:
    n = mat.shape[0] if transpose else mat.shape[1]
    if x.ndim != ndim or x.shape[0] != n:
        raise TypeError(f"{what}: a matrix of shape {mat.shape}, {transpose=}, times {x.shape}")
    if x.dtype != mat.dtype:
        raise TypeError(f"{what}: operands must have one dtype, got {mat.dtype} and {x.dtype}")


def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Array:
    """The product of a `COO` and a vector of its dtype.

    Raises:
      TypeError: shapes or dtypes do not fit.

        >>> m = sparse.COO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.coo_matvec(m, jnp.ones(2))
        Array([2., 3.], dtype=float32)
    """
    v = jnp.asarray(v)
    _check_product("coo_matvec", mat, v, 1, transpose)
    return coo_matvec_p.bind(*mat._bufs, v, spinfo=mat._info, transpose=transpose)


def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Array:
    """The product of a `COO` and a matrix of its dtype.

    Args:
      B: the other one.
      transpose: whether `mat` is transposed.

    Raises:
      TypeError: shapes or dtypes do not fit.

        >>> m = sparse.COO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
        >>> sparse.coo_matmat(m, jnp.eye(2))
        Array([[0., 2.],
               [3., 0.]], dtype=float32)
    """
    B = jnp.asarray(B)
    _check_product("coo_matmat", mat, B, 2, transpose)
    return coo_matmat_p.bind(*mat._bufs, B, spinfo=mat._info, transpose=transpose)


def _flatten(mat: COO) -> tuple[Any, Any]:
    return mat._bufs, mat._info


def _unflatten(info: COOInfo, children: Any) -> COO:
    mat = object.__new__(COO)  # the parts may be anything while trees are moved about
    mat.data, mat.row, mat.col = children
    mat.shape, mat._rows_sorted, mat._cols_sorted = info
    return mat


register_pytree_node(COO, _flatten, _unflatten)
_public_surface(globals())
