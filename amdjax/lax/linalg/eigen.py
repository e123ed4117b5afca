"""Eigenvalues, and the forms on the way to them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax.core import dtypes
from amdjax.lax._rules import is_zero, shape_of, zero_tangent
from amdjax.lax.casting import convert_element_type
from amdjax.lax.comparison import eq
from amdjax.lax.complexes import complex, conj, imag, real as real_
from amdjax.lax.elementwise import add, div, mul, neg, sub
from amdjax.lax.filling import broadcasted_iota, full_like
from amdjax.lax.linalg._matrix import (
    adjoint,
    as_column,
    as_row,
    check_square,
    diagonal,
    magnitude_dtype,
    matmul,
    matrix_primitive,
    real,
    repeated_like,
    set_diagonal,
    symmetrize,
)
from amdjax.lax.linalg.factor import lu, lu_solve
from amdjax.lax.magnitude import abs
from amdjax.lax.reductions import argmax, reduce_sum
from amdjax.lax.selection import select

__all__ = [
    "EigImplementation", "EighImplementation", "eig", "eig_p", "eigh", "eigh_p", "hessenberg",
    "hessenberg_p", "schur", "schur_p", "tridiagonal", "tridiagonal_p",
]  # fmt: skip


class EighImplementation(enum.Enum):
    """How JAX may be asked to decompose a Hermitian matrix; amdjax always uses LAPACK."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class EigImplementation(enum.Enum):
    """How JAX may be asked to decompose a general matrix; amdjax always uses LAPACK."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


def _eigh_results(x, *, subset_by_index, **_):
    check_square("eigh", x)
    n = x.shape[0]
    start, stop = (0, n) if subset_by_index is None else subset_by_index
    if not 0 <= start <= stop <= n:
        raise ValueError(f"eigh subset_by_index={subset_by_index} leaves matrices of size {n}.")
    return [((n, stop - start), x.dtype), ((stop - start,), magnitude_dtype(x.dtype))]


def _eigh_many(x, *, lower, subset_by_index, **_):
    w, v = np.linalg.eigh(x, UPLO="L" if lower else "U")
    if subset_by_index is not None:
        wanted = slice(*subset_by_index)
        w, v = w[..., wanted], v[..., wanted]
    return v, w


def _eigh_one(x, **params):
    try:
        return _eigh_many(x, **params)
    except np.linalg.LinAlgError:
        return None


eigh_p = matrix_primitive("eigh", (2,), _eigh_results, _eigh_one, many=_eigh_many)


@eigh_p.def_jvp
def _eigh_jvp(primals, tangents, *, subset_by_index, **params):
    (x,), (t,) = primals, tangents
    outs = eigh_p.bind(x, subset_by_index=subset_by_index, **params)
    v, w = outs
    if is_zero(t):
        return outs, [zero_tangent(v), zero_tangent(w)]
    n = shape_of(x)[-1]
    if subset_by_index not in (None, (0, n)):
        raise NotImplementedError("eigh has no derivative with subset_by_index.")
    # Only the Hermitian part of a change counts, whatever the input's other triangle holds.
    inner = matmul(matmul(adjoint(v), symmetrize(t)), v)
    dw = diagonal(real(inner))
    dv = matmul(v, mul(_reciprocal_gaps(w, inner), inner))
    return outs, [dv, dw]


def _reciprocal_gaps(w: Any, like: Any) -> Any:
    """`1 / (w[j] - w[i])`, with zeros on the diagonal, in the dtype of `like`."""
    w = convert_element_type(w, like.dtype)
    gaps = sub(repeated_like(as_row(w), like), repeated_like(as_column(w), like))
    inverse = div(full_like(gaps, 1), set_diagonal(gaps, 1))
    return set_diagonal(inverse, 0)


def eigh(
    x: Any, *, lower: bool = True, symmetrize_input: bool = True, sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The eigenvectors and eigenvalues of Hermitian matrices.

    Args:
      lower: which triangle counts where the input is not symmetrized.
      symmetrize_input: whether to take the Hermitian part first.
      sort_eigenvalues: accepted for JAX's sake; eigenvalues always ascend.
      subset_by_index: the first and one past the last eigenvalue wanted, in ascending order.

    Returns:
      `v` of shape `(..., n, d)`, its columns the eigenvectors; `w` of shape `(..., d)`, the
      eigenvalues, of a real dtype.

        >>> v, w = lax.linalg.eigh(np.array([[2.0, 1.0], [1.0, 2.0]], np.float32))
        >>> print(w.round(3))
        [1. 3.]
    """
    v, w = eigh_p.bind(
        symmetrize(x) if symmetrize_input else x,
        lower=bool(lower),
        sort_eigenvalues=bool(sort_eigenvalues),
        subset_by_index=None if subset_by_index is None else tuple(subset_by_index),
        algorithm=implementation,
    )
    return v, w


def _eig_results(x, *, compute_left_eigenvectors, compute_right_eigenvectors, **_):
    check_square("eig", x)
    dtype = dtypes.to_complex_dtype(x.dtype)
    count = compute_left_eigenvectors + compute_right_eigenvectors
    return [(x.shape[:1], dtype)] + [(x.shape, dtype)] * count


def _eig_one(x, *, compute_left_eigenvectors, compute_right_eigenvectors, **_):
    # late: SciPy takes long to load
    import scipy.linalg

    if not np.isfinite(x).all():
        return None
    try:
        found = scipy.linalg.eig(
            x, left=compute_left_eigenvectors, right=compute_right_eigenvectors, check_finite=False
        )
    except np.linalg.LinAlgError:
        return None
    return found if isinstance(found, tuple) else (found,)


eig_p = matrix_primitive("eig", (2,), _eig_results, _eig_one)


@eig_p.def_jvp
def _eig_jvp(primals, tangents, *, compute_left_eigenvectors, compute_right_eigenvectors, **params):
    (x,), (t,) = primals, tangents
    wanted = (compute_left_eigenvectors, compute_right_eigenvectors)
    if is_zero(t):
        outs = eig_p.bind(
            x, compute_left_eigenvectors=wanted[0], compute_right_eigenvectors=wanted[1], **params
        )
        return outs, [zero_tangent(y) for y in outs]
    if any(wanted) and not params["enable_eigvec_derivs"]:
        raise NotImplementedError(
            "eigenvectors of general matrices are differentiable only under conditions that cannot "
            "be checked: all eigenvalues differ, and no components of an eigenvector tie for "
            "largest magnitude. Pass enable_eigvec_derivs=True to amdjax.lax.linalg.eig if they "
            "hold, or ask for eigenvalues alone."
        )
    # What eigenvalues alone depend on is the same for any norm, so their further derivatives hold.
    params["enable_eigvec_derivs"] = True
    w, *left, right = eig_p.bind(
        x, compute_left_eigenvectors=wanted[0], compute_right_eigenvectors=True, **params
    )
    t = convert_element_type(t, w.dtype)
    dw, d_right = _eig_change(w, right, t)
    outs, changes = [w], [dw]
    if wanted[0]:
        _, d_left = _eig_change(conj(w), left[0], adjoint(t))
        outs, changes = outs + left, changes + [d_left]
    if wanted[1]:
        outs, changes = outs + [right], changes + [d_right]
    return outs, changes


def _eig_change(w, v, t):
    """Tangents of eigenvalues and of eigenvectors normed as LAPACK does.

    Source: Boeddeker, Hanebrink, Drude, Heymann, Haeb-Umbach, "On the computation of complex-valued
    gradients with application to statistically optimum beamforming", 2017; and the norm's own
    change: along v, so that its length stays one and its largest component real.
    """
    factors, _, order = lu(v)
    inner = lu_solve(factors, order, matmul(t, v))
    turn = matmul(v, mul(_reciprocal_gaps(w, inner), inner))
    rank = len(shape_of(v))
    along = neg(_column_sums(real_(mul(conj(v), turn))))
    largest = argmax(abs(v), rank - 2, np.int32)
    rows = broadcasted_iota(np.int32, shape_of(v), rank - 2)
    mask = eq(rows, repeated_like(as_row(largest), v))
    pick = lambda part: _column_sums(select(mask, part, full_like(part, 0)))
    across = neg(div(pick(imag(turn)), pick(real_(v))))
    shift = repeated_like(as_row(complex(along, across)), v)
    return diagonal(inner), add(turn, mul(v, shift))


def _column_sums(x: Any) -> Any:
    return reduce_sum(x, (len(shape_of(x)) - 2,))


def eig(
    x: Any, *, compute_left_eigenvectors: bool = True, compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False, implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Any]:  # fmt: skip
    """The eigenvalues and eigenvectors of general matrices.

    Eigenvectors have length one and a real component of largest magnitude.

    Args:
      compute_left_eigenvectors: whether the left ones are among the results.
      compute_right_eigenvectors: whether the right ones are among the results.
      enable_eigvec_derivs: whether eigenvectors may be differentiated. That is right only where all
        eigenvalues differ and no two components of an eigenvector tie for largest magnitude.
      use_magma: accepted for JAX's sake; of no effect.

    Returns:
      A list of the eigenvalues, of shape `(..., n)`, then the left, then the right eigenvectors,
      each of shape `(..., n, n)` and as columns; all complex.

    Raises:
      TypeError: if what says which eigenvectors to compute is no boolean.
      ValueError: if the matrices are not square.

        >>> w, *_ = lax.linalg.eig(np.array([[0.0, 1.0], [-1.0, 0.0]], np.float32))
        >>> sorted(np.asarray(w).imag.round(3).tolist())
        [-1.0, 1.0]
    """
    flags = compute_left_eigenvectors, compute_right_eigenvectors
    if not all(isinstance(flag, (int, np.bool_, np.integer)) for flag in flags):
        raise TypeError(
            "eig: compute_left_eigenvectors and compute_right_eigenvectors must be bools, got "
            f"{flags}"
        )
    if any(flag not in (0, 1) for flag in flags):
        raise ValueError(
            "eig: compute_left_eigenvectors and compute_right_eigenvectors must be true or false, "
            f"got {flags}"
        )
    return eig_p.bind(
        x,
        compute_left_eigenvectors=bool(compute_left_eigenvectors),
        compute_right_eigenvectors=bool(compute_right_eigenvectors),
        enable_eigvec_derivs=bool(enable_eigvec_derivs),
        implementation=implementation,
    )


def _schur_results(x, *, compute_schur_vectors, **_):
    check_square("schur", x)
    return [(x.shape, x.dtype)] * (1 + compute_schur_vectors)


def _schur_one(x, **_):
    # late: SciPy takes long to load
    import scipy.linalg

    output = "complex" if np.iscomplexobj(x) else "real"
    if not np.isfinite(x).all():
        return None
    try:
        return scipy.linalg.schur(x, output=output, check_finite=False)
    except np.linalg.LinAlgError:
        return None


schur_p = matrix_primitive("schur", (2,), _schur_results, _schur_one)


def schur(
    x: Any,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> list[Any]:
    """The Schur form of square matrices: `x == q @ t @ q.conj().T` with unitary q.

    Args:
      compute_schur_vectors: whether q is among the results.
      sort_eig_vals: must be False; sorting is not implemented.
      select_callable: accepted for JAX's sake; of no effect.

    Returns:
      A list of `t`, upper triangular (for real matrices with blocks of two on the diagonal), and
      `q`; each of the shape of `x`.

    Raises:
      ValueError: if the matrices are not square.
      NotImplementedError: if sorting is asked for.

        >>> t, q = lax.linalg.schur(np.array([[1.0, 2.0], [0.0, 3.0]], np.float32))
        >>> t.tolist()
        [[1.0, 2.0], [0.0, 3.0]]
    """
    if sort_eig_vals:
        raise NotImplementedError("schur does not sort eigenvalues; pass sort_eig_vals=False.")
    return schur_p.bind(
        x,
        compute_schur_vectors=bool(compute_schur_vectors),
        sort_eig_vals=False,
        select_callable=select_callable,
    )


def _hessenberg_results(a):
    check_square("hessenberg", a)
    return [(a.shape, a.dtype), ((max(a.shape[0] - 1, 0),), a.dtype)]


def _hessenberg_one(a):
    # late: SciPy takes long to load
    from scipy.linalg import lapack

    (gehrd,) = lapack.get_lapack_funcs(("gehrd",), (a,))
    compact, taus, info = gehrd(a)
    return (compact, taus) if info == 0 else None


hessenberg_p = matrix_primitive("hessenberg", (2,), _hessenberg_results, _hessenberg_one)


def hessenberg(a: Any) -> tuple[Any, Any]:
    """Square matrices reduced to upper Hessenberg form by reflections, in compact form.

    Returns:
      A matrix with the Hessenberg form on and above the first subdiagonal and reflectors below,
      of the shape of `a`; and their scalar factors, of shape `(..., n - 1)`.

        >>> h, taus = lax.linalg.hessenberg(np.eye(3, dtype=np.float32))
        >>> taus.shape
        (2,)
    """
    compact, taus = hessenberg_p.bind(a)
    return compact, taus


def _tridiagonal_results(a, *, lower):
    check_square("tridiagonal", a)
    n = a.shape[0]
    if n == 0:
        raise ValueError("tridiagonal takes matrices with at least one row, got shape (0, 0).")
    magnitude = magnitude_dtype(a.dtype)
    return [(a.shape, a.dtype), ((n,), magnitude), ((n - 1,), magnitude), ((n - 1,), a.dtype)]


def _tridiagonal_one(a, *, lower):
    # late: SciPy takes long to load
    from scipy.linalg import lapack

    name = "hetrd" if np.iscomplexobj(a) else "sytrd"
    (routine,) = lapack.get_lapack_funcs((name,), (a,))
    compact, d, e, taus, info = routine(a, lower=int(lower))
    return (compact, d, e, taus) if info == 0 else None


tridiagonal_p = matrix_primitive("tridiagonal", (2,), _tridiagonal_results, _tridiagonal_one)


def tridiagonal(a: Any, *, lower: bool = True) -> tuple[Any, Any, Any, Any]:
    """Hermitian matrices reduced to tridiagonal form by reflections, in compact form.

    Args:
      lower: which triangle of `a` counts.

    Returns:
      A matrix with the three diagonals and reflectors beyond them, of the shape of `a`; the main
      diagonal; the diagonal beside it; and the reflectors' scalar factors.

        >>> _, d, e, _ = lax.linalg.tridiagonal(2 * np.eye(3, dtype=np.float32))
        >>> d.tolist(), e.tolist()
        ([2.0, 2.0, 2.0], [0.0, 0.0])
    """
    return tridiagonal_p.bind(a, lower=bool(lower))
