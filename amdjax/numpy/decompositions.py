"""Decompositions of matrices: Cholesky, QR, singular values, eigenvalues."""

from __future__ import annotations

from typing import Any, NamedTuple

from amdjax import lax
from amdjax.core.array import Array
from amdjax.numpy import (
    arithmetic,
    elementary,
    manipulation,
    selecting,
)
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    promote_dtypes_inexact,
)
from amdjax.numpy.sorting import argsort


class EigResult(NamedTuple):
    """Result of `eig`."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """Result of `eigh`."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """Result of `qr`."""

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """Result of `svd`."""

    U: Array
    S: Array
    Vh: Array


def as_matrix(name: str, a: ArrayLike, error: type[Exception] = ValueError) -> Array:
    """`a` as inexact matrices, for the function `name` of `numpy.linalg`."""
    (a,) = promote_dtypes_inexact(as_array(f"jnp.linalg.{name}", a))
    if a.ndim < 2:
        raise error(
            f"Argument to jnp.linalg.{name} must have at least two axes, got shape {a.shape}"
        )
    return a


def as_square(name: str, a: ArrayLike, error: type[Exception] = ValueError) -> Array:
    """Like `as_matrix`, of matrices that are square."""
    a = as_matrix(name, a, error)
    if a.shape[-1] != a.shape[-2]:
        raise error(f"Argument to {name}() must have shape [..., n, n], got {a.shape}")
    return a


def adjoint(x: Array) -> Array:
    """The conjugate transpose of each matrix."""
    return elementary.conjugate(manipulation.matrix_transpose(x))


def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """The triangular factor of a positive definite matrix; NaN if it is not.

    Args:
      a: of shape `(..., n, n)`.
      upper: return the upper factor `U` of `Uᴴ U`, instead of the lower `L` of `L Lᴴ`.
      symmetrize_input: average the matrix with its adjoint first.

        >>> jnp.linalg.cholesky(jnp.array([[4.0, 0.0], [0.0, 9.0]]))
        Array([[2., 0.],
               [0., 3.]], dtype=float32)
    """
    a = as_square("cholesky", a, TypeError)
    factor = lax.linalg.cholesky(adjoint(a) if upper else a, symmetrize_input=symmetrize_input)
    return adjoint(factor) if upper else factor


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """The singular value decomposition `a = U · diag(S) · Vh`.

    Args:
      a: of shape `(..., m, n)`.
      full_matrices: whether `U` and `Vh` are square.
      compute_uv: return the singular values alone if false.
      hermitian: promise that `a` is Hermitian.
      subset_by_index: the range of singular values wanted, largest first.

        >>> jnp.linalg.svd(jnp.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False)
        Array([4., 3.], dtype=float32)
    """
    a = as_matrix("svd", a, TypeError)
    if not hermitian:
        result = lax.linalg.svd(
            a, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index
        )
        return SVDResult(*result) if compute_uv else result
    w, v = lax.linalg.eigh(a)[::-1] if compute_uv else (eigvalsh(a), None)
    order = manipulation.flip(argsort(lax.abs(w)), -1)
    s = selecting.take_along_axis(lax.abs(w), order, -1)
    if v is None:
        return s
    signs = selecting.take_along_axis(lax.sign(w), order, -1)
    v = selecting.take_along_axis(v, lax.expand_dims(order, (order.ndim - 1,)), -1)
    u = arithmetic.multiply(
        v, lax.expand_dims(lax.convert_element_type(signs, v.dtype), (signs.ndim - 1,))
    )
    return SVDResult(u, s, adjoint(v))


def svdvals(x: ArrayLike, /) -> Array:
    """The singular values, largest first.

    >>> jnp.linalg.svdvals(jnp.array([[3.0, 0.0], [0.0, 4.0]]))
    Array([4., 3.], dtype=float32)
    """
    return svd(x, compute_uv=False)


def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> Any:
    """The eigenvalues, rising, and eigenvectors of a Hermitian matrix.

    Args:
      a: of shape `(..., n, n)`.
      UPLO: "L" or "U": the triangle to read.
      symmetrize_input: average the matrix with its adjoint first.

        >>> jnp.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
        Array([1., 2.], dtype=float32)
    """
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}")
    a = as_square("eigh", a, TypeError)
    v, w = lax.linalg.eigh(a, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(w, v)


def eigvalsh(a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """The eigenvalues of a Hermitian matrix, rising.

    >>> jnp.linalg.eigvalsh(jnp.array([[2.0, 0.0], [0.0, 1.0]]))
    Array([1., 2.], dtype=float32)
    """
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def eig(a: ArrayLike) -> Any:
    """The complex eigenvalues and right eigenvectors of a square matrix.

    >>> jnp.linalg.eig(jnp.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.dtype
    dtype('complex64')
    """
    w, v = lax.linalg.eig(
        as_square("eig", as_matrix("eig", a, TypeError)), compute_left_eigenvectors=False
    )
    return EigResult(w, v)


def eigvals(a: ArrayLike) -> Array:
    """The complex eigenvalues of a square matrix.

    >>> jnp.linalg.eigvals(jnp.array([[2.0, 0.0], [0.0, 1.0]])).shape
    (2,)
    """
    a = as_square("eigvals", as_matrix("eigvals", a, TypeError))
    (w,) = lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    return w


def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """The factors of `a = Q · R`: orthonormal columns and an upper triangle.

    Args:
      a: of shape `(..., m, n)`.
      mode: "reduced" (or "full", its old name), "complete", "r" (R alone) or "raw" (LAPACK's form).

        >>> jnp.linalg.qr(jnp.eye(2), mode="r").shape
        (2, 2)
    """
    a = as_matrix("qr", a, TypeError)
    if mode == "raw":
        packed, taus = lax.linalg.geqrf(a)
        return QRResult(manipulation.matrix_transpose(packed), taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    q, r = lax.linalg.qr(a, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)
