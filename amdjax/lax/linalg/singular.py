"""Singular values, and the polar form that follows from them."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from amdjax.core.dims import min_dim
from amdjax.lax._rules import is_zero, shape_of, zero_tangent
from amdjax.lax.casting import convert_element_type
from amdjax.lax.comparison import eq
from amdjax.lax.elementwise import add, div, mul, sub
from amdjax.lax.filling import full_like
from amdjax.lax.linalg._matrix import (
    adjoint,
    as_column,
    as_row,
    diagonal,
    magnitude_dtype,
    matmul,
    matrix_primitive,
    real,
    repeated_like,
    set_diagonal,
)
from amdjax.lax.selection import select

__all__ = ["SvdAlgorithm", "qdwh", "svd", "svd_p"]


class SvdAlgorithm(enum.Enum):
    """How singular values are computed: LAPACK's gesvd for `QR`, its gesdd for all others."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def _svd_results(x, *, full_matrices, compute_uv, subset_by_index, algorithm):
    m, n = x.shape
    k = min_dim(m, n)
    if subset_by_index is not None:
        start, stop = subset_by_index
        if full_matrices and subset_by_index != (0, k):
            raise ValueError("svd takes full_matrices or subset_by_index, not both.")
        if not 0 <= start <= stop:
            raise ValueError(
                f"svd subset_by_index must be an ascending range, got {(start, stop)}."
            )
        k = max(min(k, stop) - start, 0)
    values = ((k,), magnitude_dtype(x.dtype))
    if not compute_uv:
        return [values]
    left, right = (m, n) if full_matrices else (k, k)
    return [values, ((m, left), x.dtype), ((right, n), x.dtype)]


def _svd_many(x, *, full_matrices, compute_uv, subset_by_index, algorithm):
    if algorithm is SvdAlgorithm.QR:
        raise np.linalg.LinAlgError  # NumPy has only gesdd
    wanted = slice(*(subset_by_index or (None,)))
    if not compute_uv:
        return (np.linalg.svd(x, compute_uv=False)[..., wanted],)
    u, s, vh = np.linalg.svd(x, full_matrices=full_matrices)
    if full_matrices:
        return s, u, vh
    return s[..., wanted], u[..., wanted], vh[..., wanted, :]


def _svd_one(x, *, full_matrices, compute_uv, subset_by_index, algorithm):
    # late: SciPy takes long to load
    import scipy.linalg

    if not np.isfinite(x).all():
        return None
    wanted = slice(*(subset_by_index or (None,)))
    driver = "gesvd" if algorithm is SvdAlgorithm.QR else "gesdd"
    try:
        u, s, vh = scipy.linalg.svd(
            x, full_matrices=full_matrices, check_finite=False, lapack_driver=driver
        )
    except np.linalg.LinAlgError:
        return None
    if full_matrices or not compute_uv:
        return s[wanted], u, vh
    return s[wanted], u[:, wanted], vh[wanted]


svd_p = matrix_primitive("svd", (2,), _svd_results, _svd_one, many=_svd_many)


@svd_p.def_jvp
def _svd_jvp(primals, tangents, *, full_matrices, compute_uv, **params):
    (x,), (t,) = primals, tangents
    if is_zero(t):
        outs = svd_p.bind(x, full_matrices=full_matrices, compute_uv=compute_uv, **params)
        return outs, [zero_tangent(y) for y in outs]
    m, n = shape_of(x)[-2:]
    if compute_uv and full_matrices and m != n:
        raise NotImplementedError(
            "svd has no derivative with full_matrices=True for matrices that are not square: the "
            "additional vectors are not determined."
        )
    if params["subset_by_index"] not in (None, (0, min(m, n))):
        raise NotImplementedError("svd has no derivative with subset_by_index.")
    s, u, vh = svd_p.bind(x, full_matrices=False, compute_uv=True, **params)
    v = adjoint(vh)
    inner = matmul(matmul(adjoint(u), t), v)
    ds = diagonal(real(inner))
    if not compute_uv:
        return [s], [ds]
    du, dv = _vector_changes(s, u, v, inner)
    if m > n:
        du = add(du, _outside(matmul(t, v), u, s))
    if n > m:
        dv = add(dv, _outside(matmul(adjoint(t), u), v, s))
    return [s, u, vh], [ds, du, adjoint(dv)]


def _vector_changes(s, u, v, inner):
    """How singular vectors turn within their own span.

    Source: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
    differentiation", 2008; the imaginary diagonal fixes the phase for complex matrices.
    """
    by_column = convert_element_type(repeated_like(as_row(s), inner), inner.dtype)
    by_row = convert_element_type(repeated_like(as_column(s), inner), inner.dtype)
    gaps = mul(add(by_column, by_row), sub(by_column, by_row))
    factor = set_diagonal(div(full_like(gaps, 1), set_diagonal(gaps, 1)), 0)
    right = mul(by_column, inner)
    left = mul(by_row, inner)
    turn_u = mul(factor, add(right, adjoint(right)))
    turn_v = mul(factor, add(left, adjoint(left)))
    skew = mul(full_like(inner, 0.5), sub(inner, adjoint(inner)))
    # Off the diagonal the quotient is not used.
    phase = mul(skew, set_diagonal(full_like(inner, 0), 1))
    safe = select(eq(by_row, full_like(by_row, 0)), full_like(by_row, 1), by_row)
    return matmul(u, add(turn_u, div(phase, safe))), matmul(v, turn_v)


def _outside(moved, basis, s) -> Any:
    """How vectors leave the span of `basis`."""
    rest = sub(moved, matmul(basis, matmul(adjoint(basis), moved)))
    return div(rest, convert_element_type(repeated_like(as_row(s), rest), rest.dtype))


def svd(
    x: Any, *, full_matrices: bool = True, compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None, algorithm: SvdAlgorithm | None = None,
) -> Any:  # fmt: skip
    """The singular value decomposition `x == u @ diag(s) @ vh`.

    Args:
      full_matrices: whether `u` and `vh` are square; otherwise they keep `min(m, n)` vectors.
      compute_uv: whether singular vectors are among the results.
      subset_by_index: the first and one past the last singular value wanted, in descending order.
      algorithm: which of LAPACK's routines to use.

    Returns:
      `u`, `s` and `vh`; or `s` alone. Singular values descend and are of a real dtype.

    Raises:
      ValueError: if `full_matrices` meets `subset_by_index`.

      >>> lax.linalg.svd(np.array([[3.0, 0.0], [0.0, -4.0]], np.float32), compute_uv=False).tolist()
      [4.0, 3.0]
    """
    outs = svd_p.bind(
        x,
        full_matrices=bool(full_matrices),
        compute_uv=bool(compute_uv),
        subset_by_index=None if subset_by_index is None else tuple(subset_by_index),
        algorithm=algorithm,
    )
    if not compute_uv:
        return outs[0]
    s, u, vh = outs
    return u, s, vh


def qdwh(
    x: Any, *, is_hermitian: bool = False, max_iterations: int | None = None,
    eps: float | None = None, dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """The polar decomposition `x == u @ h`: orthonormal columns times a positive semidefinite h.

    Computed from singular values, so that none of the iteration's settings matters.

    Args:
      x: a matrix of shape `(m, n)` with m >= n.
      is_hermitian: accepted for JAX's sake; of no effect.
      max_iterations: accepted for JAX's sake; of no effect.
      eps: accepted for JAX's sake; of no effect.
      dynamic_shape: the part of `x`, from its first element, that counts; all of it if `None`.

    Returns:
      `u` of shape `(m, n)`, `h` of shape `(n, n)`, the number of iterations, and whether they
      converged.

    Raises:
      ValueError: if there are more columns than rows.

        >>> u, h, _, ok = lax.linalg.qdwh(np.array([[-2.0, 0.0], [0.0, 3.0]], np.float32))
        >>> np.abs(h).round(3).tolist(), bool(ok)
        ([[2.0, 0.0], [0.0, 3.0]], True)
    """
    m, n = shape_of(x)
    for limit in (max_iterations, eps):
        if limit is not None:
            float(limit)
    if m < n:
        raise ValueError(
            f"qdwh takes matrices with at least as many rows as columns, got {(m, n)}."
        )
    if dynamic_shape is not None:
        inside = np.zeros((m, n), np.bool_)
        inside[: dynamic_shape[0], : dynamic_shape[1]] = True
        x = select(inside, x, full_like(x, 0))
    u, s, vh = svd(x, full_matrices=False)
    scaled = mul(convert_element_type(repeated_like(as_column(s), vh), vh.dtype), vh)
    return matmul(u, vh), matmul(adjoint(vh), scaled), np.int32(0), np.bool_(True)
