"""QR factors and Householder reflectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core.dims import min_dim
from amdjax.lax._rules import is_complex, is_zero, shape_of, zero_tangent
from amdjax.lax.casting import convert_element_type
from amdjax.lax.elementwise import add, mul, sub
from amdjax.lax.filling import full_like
from amdjax.lax.linalg._matrix import (
    adjoint,
    columns,
    eye_like,
    joined,
    matmul,
    matrix_primitive,
    real,
    rows,
    take_columns,
    tril,
)
from amdjax.lax.linalg.factor import lu, lu_solve
from amdjax.lax.linalg.triangular import triangular_solve

__all__ = [
    "geqrf", "geqrf_p", "householder_product", "householder_product_p", "ormqr", "ormqr_p", "qr",
    "qr_p",
]  # fmt: skip


def _qr_results(x, *, pivoting, full_matrices, use_magma):
    m, n = x.shape
    k = m if full_matrices else min_dim(m, n)
    specs = [((m, k), x.dtype), ((k, n), x.dtype)]
    return [*specs, ((n,), np.int32)] if pivoting else specs


def _qr_one(x, *, pivoting, full_matrices, use_magma):
    # late: SciPy takes long to load
    import scipy.linalg

    mode = "full" if full_matrices else "economic"
    return scipy.linalg.qr(x, mode=mode, pivoting=pivoting, check_finite=False)


qr_p = matrix_primitive("qr", (2,), _qr_results, _qr_one)


@qr_p.def_jvp
def _qr_jvp(primals, tangents, *, pivoting, full_matrices, use_magma):
    (x,), (t,) = primals, tangents
    outs = qr_p.bind(x, pivoting=pivoting, full_matrices=full_matrices, use_magma=use_magma)
    q, r, *order = outs
    fixed = [zero_tangent(p) for p in order]
    if is_zero(t):
        return outs, [zero_tangent(q), zero_tangent(r), *fixed]
    if pivoting:
        t = take_columns(t, order[0])
    m, n = shape_of(x)[-2:]
    if m < n:
        # The first m columns are factored; the rest of r follows from them.
        dq, dr_left = _thin_change(q, columns(r, 0, m), columns(t, 0, m))
        dr_right = matmul(adjoint(q), sub(columns(t, m, n), matmul(dq, columns(r, m, n))))
        dr = joined((dr_left, dr_right), -1)
    elif full_matrices and m > n:
        dq, dr = _full_change(q, r, t, n)
    else:
        dq, dr = _thin_change(q, r, t)
    return outs, [dq, dr, *fixed]


def _thin_change(q, r, t):
    """Tangents of `q` and `r` for as many columns as `r` has rows.

    Source: Walter, Lehmann, Lamour, "On evaluating higher-order derivatives of the QR
    decomposition of tall matrices with full column rank in forward and reverse mode", 2012.
    """
    t_rinv = triangular_solve(r, t)
    inner = matmul(adjoint(q), t_rinv)
    below = tril(inner, -1)
    turn = sub(below, adjoint(below))  # how q turns within its own span; skew
    if is_complex(inner):
        imaginary = sub(inner, convert_element_type(real(inner), inner.dtype))
        turn = add(turn, mul(eye_like(inner, shape_of(inner)[-1]), imaginary))
    dq = add(matmul(q, sub(turn, inner)), t_rinv)
    return dq, matmul(sub(inner, turn), r)


def _full_change(q, r, t, n):
    """As `_thin_change`, with the columns of `q` that complete the first n to a basis.

    Those are not determined by `x`. LAPACK makes `q` of reflectors, which leave the completing
    columns a smooth function of the first ones: with Z = Q₂₁ (Q₁₁ - I)⁻¹, where the first index
    counts rows and the second columns, Q₂ = [Z, I]ᴴ-combination, and its change follows from dQ₁.
    """
    m = shape_of(q)[-2]
    thin, rest = columns(q, 0, n), columns(q, n, m)
    d_thin, d_top = _thin_change(thin, rows(r, 0, n), t)
    top, bottom = rows(thin, 0, n), rows(thin, n, m)
    d_upper, d_lower = rows(d_thin, 0, n), rows(d_thin, n, m)
    factors, _, order = lu(sub(top, eye_like(top, n)))
    z_adjoint = lu_solve(factors, order, adjoint(bottom), trans=2)
    z = adjoint(z_adjoint)
    d_rest = sub(
        matmul(d_thin, z_adjoint),
        matmul(add(thin, matmul(rest, z)), adjoint(sub(d_lower, matmul(z, d_upper)))),
    )
    zeros = full_like(rows(r, n, m), 0)
    return joined((d_thin, d_rest), -1), joined((d_top, zeros), -2)


def qr(
    x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None
) -> tuple[Any, ...]:
    """The factors of `x == q @ r`: orthonormal columns times an upper triangle.

    Args:
      pivoting: whether columns are exchanged so that the diagonal of `r` descends in magnitude.
      full_matrices: whether `q` is square; otherwise it has `min(m, n)` columns.
      use_magma: accepted for JAX's sake; of no effect.

    Returns:
      `q` and `r`; with `pivoting` also `p`, int32 of shape `(..., n)`, and `x[:, p] == q @ r`.

        >>> x = np.array([[3.0, 1.0], [4.0, 2.0]], np.float32)
        >>> q, r = lax.linalg.qr(x)
        >>> np.allclose(np.asarray(q) @ np.asarray(r), x, atol=1e-6)
        True
    """
    outs = qr_p.bind(
        x, pivoting=bool(pivoting), full_matrices=bool(full_matrices), use_magma=use_magma
    )
    return tuple(outs)


def _geqrf_results(a):
    return [(a.shape, a.dtype), ((min_dim(*a.shape),), a.dtype)]


def _geqrf_one(a):
    # late: SciPy takes long to load
    from scipy.linalg import lapack

    (routine,) = lapack.get_lapack_funcs(("geqrf",), (a,))
    compact, taus, *_ = routine(a)
    return compact, taus


geqrf_p = matrix_primitive("geqrf", (2,), _geqrf_results, _geqrf_one)


def geqrf(a: Any) -> tuple[Any, Any]:
    """The QR factorization in LAPACK's compact form.

    Args:
      a: matrices of shape `(..., m, n)`.

    Returns:
      A matrix with R in its upper triangle and reflectors below, of the shape of `a`; and their
      scalar factors, of shape `(..., min(m, n))`.

    Raises:
      TypeError: if `a` has fewer than two dimensions.

        >>> h, taus = lax.linalg.geqrf(np.eye(2, dtype=np.float32))
        >>> taus.shape
        (2,)
    """
    compact, taus = geqrf_p.bind(a)
    return compact, taus


def _householder_results(a, taus):
    m, n = a.shape
    if m < n or taus.shape[0] > n:
        raise ValueError(
            "householder_product takes matrices of shape (m, n) with m >= n and at most n scalar "
            f"factors, got shapes {a.shape} and {taus.shape}."
        )
    return [(a.shape, a.dtype)]


def _routine(stem: str, *arrays: np.ndarray):
    # late: SciPy takes long to load
    from scipy.linalg import lapack

    prefix = "un" if np.iscomplexobj(arrays[0]) else "or"
    (routine,) = lapack.get_lapack_funcs((prefix + stem,), arrays)
    return routine


def _householder_one(a, taus):
    product, _, info = _routine("gqr", a, taus)(a, taus)
    return (product,) if info == 0 else None


householder_product_p = matrix_primitive(
    "householder_product", (2, 1), _householder_results, _householder_one, multiple=False
)


def householder_product(a: Any, taus: Any) -> Any:
    """The product of Householder reflectors, as orthonormal columns.

    Args:
      a: matrices of shape `(..., m, n)` with m >= n, reflectors below the diagonal.
      taus: their scalar factors, of shape `(..., k)` with k <= n.

    Returns:
      The first n columns of the product, of the shape of `a`.

    Raises:
      ValueError: if the shapes do not fit.

        >>> a = np.array([[0.0], [1.0]], np.float32)
        >>> lax.linalg.householder_product(a, np.ones(1, np.float32)).tolist()
        [[0.0], [-1.0]]
    """
    return householder_product_p.bind(a, taus)


def _ormqr_results(a, taus, c, *, left, transpose):
    if c.shape[0 if left else 1] != a.shape[0]:
        side = "rows" if left else "columns"
        raise ValueError(
            f"ormqr with left={left} takes matrices with as many {side} as reflectors are long, "
            f"got reflectors of shape {a.shape} and c of shape {c.shape}."
        )
    return [(c.shape, c.dtype)]


def _ormqr_one(a, taus, c, *, left, transpose):
    routine = _routine("mqr", a, taus, c)
    side = "L" if left else "R"
    turned = ("C" if np.iscomplexobj(a) else "T") if transpose else "N"
    reflectors = a[:, : len(taus)]
    workspace = max(1, 64 * max(c.shape))
    product, _, info = routine(side, turned, reflectors, taus, c, workspace)
    return (product,) if info == 0 else None


ormqr_p = matrix_primitive("ormqr", (2, 1, 2), _ormqr_results, _ormqr_one, multiple=False)


def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Any:
    """A matrix multiplied by the Q of reflectors, without making Q.

    Args:
      a: reflectors of shape `(..., m, n)`, as from `geqrf`.
      taus: their scalar factors, of shape `(..., k)`.
      c: matrices with m rows (`left`) or m columns.
      left: whether Q stands on the left.
      transpose: whether Q is conjugated and transposed.

    Returns:
      An array of the shape of `c`.

    Raises:
      ValueError: if shapes do not fit.

        >>> h, taus = lax.linalg.geqrf(np.array([[3.0], [4.0]], np.float32))
        >>> q = np.asarray(lax.linalg.ormqr(h, taus, np.eye(2, dtype=np.float32)))
        >>> print(np.abs(q).round(2))
        [[0.6 0.8]
         [0.8 0.6]]
    """
    return ormqr_p.bind(a, taus, c, left=bool(left), transpose=bool(transpose))
