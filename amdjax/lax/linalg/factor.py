"""Triangular factors: Cholesky and LU."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core.dims import as_size, min_dim
from amdjax.lax._rules import FLOAT, is_complex, is_zero, jvp_from, shape_of, zero_tangent
from amdjax.lax.elementwise import add, div, sub
from amdjax.lax.filling import broadcasted_iota, full, full_like
from amdjax.lax.linalg._matrix import (
    as_column,
    check_square,
    columns,
    eye_like,
    matmul,
    matrix_primitive,
    rows,
    symmetrize,
    take_rows,
    tril,
    triu,
)
from amdjax.lax.linalg.triangular import triangular_solve
from amdjax.lax.shape import broadcast_in_dim, broadcast_shapes, squeeze
from amdjax.lax.slicing import pad
from amdjax.lax.sorting import sort_key_val


def _cholesky_results(x):
    check_square("cholesky", x)
    return [(x.shape, x.dtype)]


def _cholesky_one(x):
    try:
        return (np.linalg.cholesky(x),)
    except np.linalg.LinAlgError:
        return (np.tril(np.full_like(x, np.nan)),)


def _cholesky_many(x):
    # LAPACK would pass over a NaN outside the pivots without complaint.
    return (np.linalg.cholesky(x),)


cholesky_p = matrix_primitive(
    "cholesky", (2,), _cholesky_results, _cholesky_one, many=_cholesky_many, multiple=False
)


@cholesky_p.def_jvp
def _cholesky_jvp(primals, tangents):
    (t,) = tangents
    lower = cholesky_p.bind(*primals)
    if is_zero(t):
        return lower, zero_tangent(lower)
    # With M = L⁻¹ dx L⁻ᴴ the change of L is L Φ(M), where Φ keeps the lower triangle and halves
    # the diagonal. Source: Murray, "Differentiation of the Cholesky decomposition", 2016.
    half = triangular_solve(
        lower, t, left_side=False, lower=True, transpose_a=True, conjugate_a=True
    )
    middle = tril(triangular_solve(lower, half, left_side=True, lower=True))
    ones = full_like(middle, 1)
    phi = div(middle, add(ones, eye_like(middle, shape_of(middle)[-1])))
    return lower, matmul(lower, phi)


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Any:
    """The lower triangular L with `L @ L.conj().T == x`.

    Args:
      x: Hermitian positive definite matrices of shape `(..., n, n)`.
      symmetrize_input: whether to take the Hermitian part first; otherwise the upper triangle is
        not looked at.

    Returns:
      An array of `x`'s shape and dtype, or floats for integers; NaN for a matrix that is not
      positive definite.

        >>> lax.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 2.0]], np.float32)).tolist()
        [[2.0, 0.0], [1.0, 1.0]]
    """
    shape = shape_of(x)
    if len(shape) > 1 and shape[-1] != shape[-2]:
        raise ValueError(f"cholesky takes square matrices, got shape {shape}.")
    return cholesky_p.bind(symmetrize(x) if symmetrize_input else x)


def _cholesky_update_results(r, w):
    check_square("cholesky_update", r)
    if w.shape[0] != r.shape[0]:
        raise ValueError(
            "cholesky_update takes a matrix of shape (n, n) and a vector of shape (n,), "
            f"got shapes {r.shape} and {w.shape}."
        )
    return [(r.shape, r.dtype)]


def _cholesky_update_one(r, w):
    r, w = r.copy(), w.copy()
    for k in range(len(w)):
        if w[k] == 0:
            continue
        length = np.copysign(np.hypot(r[k, k], w[k]), 1)
        c, s = r[k, k] / length, w[k] / length
        r[k], w = c * r[k] + s * w, c * w - s * r[k]
    return (r,)


cholesky_update_p = matrix_primitive(
    "cholesky_update", (2, 1), _cholesky_update_results, _cholesky_update_one, kinds=FLOAT,
    multiple=False,
)  # fmt: skip


def cholesky_update(r_matrix: Any, w_vector: Any) -> Any:
    """The Cholesky factor of `R.T @ R + w w.T`, in O(n²).

    Args:
      r_matrix: an upper triangular matrix R of shape `(n, n)`, of a real dtype.
      w_vector: a vector w of shape `(n,)`.

    Returns:
      The new upper triangular matrix.

    Raises:
      ValueError: if the shapes do not fit.

    Source: Givens rotations as in LINPACK's dchud.

        >>> r, w = np.eye(2, dtype=np.float32), np.array([0.75, 0.0], np.float32)
        >>> lax.linalg.cholesky_update(r, w).tolist()
        [[1.25, 0.0], [0.0, 1.0]]
    """
    return cholesky_update_p.bind(r_matrix, w_vector)


def _lu_results(x):
    m, n = x.shape
    return [(x.shape, x.dtype), ((min_dim(m, n),), np.int32), ((m,), np.int32)]


def _lu_one(x):
    # late: SciPy takes long to load
    from scipy.linalg import lapack

    (getrf,) = lapack.get_lapack_funcs(("getrf",), (x,))
    factors, pivots, _ = getrf(x)
    return factors, pivots, _as_permutation(pivots, x.shape[0])


lu_p = matrix_primitive("lu", (2,), _lu_results, _lu_one)


@lu_p.def_jvp
def _lu_jvp(primals, tangents):
    (t,) = tangents
    outs = lu_p.bind(*primals)
    factors, pivots, permutation = outs
    fixed = [zero_tangent(pivots), zero_tangent(permutation)]
    if is_zero(t):
        return outs, [zero_tangent(factors), *fixed]
    m, n = shape_of(factors)[-2:]
    k = min(m, n)
    # Completed to invertible matrices: L to m x m, U to n x n, with identities.
    lower = add(tril(_widened(columns(factors, 0, k), m - k, -1), -1), eye_like(factors, m))
    upper = triu(_widened(rows(factors, 0, k), n - k, -2))
    if n > k:
        filler = sub(eye_like(factors, n), _widened_eye(factors, k, n))
        upper = add(upper, filler)
    left = triangular_solve(
        lower, take_rows(t, permutation), left_side=True, lower=True, unit_diagonal=True
    )
    both = triangular_solve(upper, left, left_side=False, lower=False)
    change = add(matmul(lower, tril(both, -1)), matmul(triu(both), upper))
    return outs, [change, *fixed]


def _widened(x: Any, by: int, axis: int) -> Any:
    """`x` with zeros appended along one of its last two axes."""
    if by == 0:
        return x
    pads = [(0, 0, 0)] * len(shape_of(x))
    pads[axis] = (0, by, 0)
    return pad(x, full((), 0, x.dtype), pads)


def _widened_eye(like: Any, k: int, n: int) -> Any:
    return _widened(_widened(eye_like(like, k), n - k, -1), n - k, -2)


def lu(x: Any) -> tuple[Any, Any, Any]:
    """The factors of `P @ x == L @ U`, rows exchanged so that pivots are largest.

    Returns:
      `lu`, of the shape of `x`, with U in its upper triangle and L without its unit diagonal below;
      `pivots`, int32 of shape `(..., min(m, n))`: row i was exchanged with row `pivots[i]`, in
      order; `permutation`, int32 of shape `(..., m)`: `x[permutation] == L @ U`.

        >>> factors, pivots, order = lax.linalg.lu(np.array([[1.0, 2.0], [2.0, 2.0]], np.float32))
        >>> factors.tolist(), order.tolist()
        ([[2.0, 2.0], [0.5, 1.0]], [1, 0])
    """
    return lu_p.bind(x)


def _permutation_results(pivots, *, permutation_size):
    if pivots.dtype != np.int32:
        raise TypeError(f"lu_pivots_to_permutation takes int32 pivots, got {pivots.dtype}.")
    if permutation_size < pivots.shape[0]:
        raise ValueError(
            f"lu_pivots_to_permutation permutation_size={permutation_size} is less than the number "
            f"of pivots, shape {pivots.shape}."
        )
    return [((permutation_size,), np.int32)]


def _as_permutation(pivots: np.ndarray, size: int) -> np.ndarray:
    order = np.arange(size, dtype=np.int32)
    for i, j in enumerate(pivots):
        order[i], order[j] = order[j], order[i]
    return order


def _permutation_one(pivots, *, permutation_size):
    return (_as_permutation(pivots, permutation_size),)


lu_pivots_to_permutation_p = matrix_primitive(
    "lu_pivots_to_permutation", (1,), _permutation_results, _permutation_one,
    kinds=frozenset({np.integer}), multiple=False,
)  # fmt: skip


lu_pivots_to_permutation_p.jvp = jvp_from(lu_pivots_to_permutation_p, ())


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """Row exchanges, carried out on the identity permutation.

    Args:
      pivots: int32 of shape `(..., k)`: row i is exchanged with row `pivots[i]`, in order.
      permutation_size: how many rows there are, at least k.

    Returns:
      int32 of shape `(..., permutation_size)`.

    Raises:
      ValueError: if there are more pivots than rows.

        >>> lax.linalg.lu_pivots_to_permutation(np.array([2, 2], np.int32), 3).tolist()
        [2, 0, 1]
    """
    size = as_size(permutation_size)
    return lu_pivots_to_permutation_p.bind(pivots, permutation_size=size)


def lu_solve(lu: Any, permutation: Any, b: Any, trans: int = 0) -> Any:
    """The solution of a linear system whose matrix `lax.linalg.lu` has factored.

    Args:
      lu: the first result of `lax.linalg.lu`, of shape `(..., n, n)`.
      permutation: its third result, int32 of shape `(..., n)`.
      b: right-hand sides of shape `(..., n, k)`, or `(..., n)` with one axis fewer than `lu`.
      trans: 0 for `a @ x == b`, 1 for `a.T @ x == b`, 2 for `a.conj().T @ x == b`.

    Raises:
      ValueError: if shapes do not fit or `trans` is another number.

        >>> factors, _, order = lax.linalg.lu(np.array([[0.0, 2.0], [1.0, 0.0]], np.float32))
        >>> lax.linalg.lu_solve(factors, order, np.array([4.0, 3.0], np.float32)).tolist()
        [3.0, 2.0]
    """
    if trans not in (0, 1, 2):
        raise ValueError(f"lu_solve trans must be 0, 1 or 2, got {trans}.")
    if len(shape_of(lu)) == len(shape_of(b)) + 1:
        solution = lu_solve(lu, permutation, as_column(b), trans)
        return squeeze(solution, (len(shape_of(b)),))
    if len(shape_of(lu)) < 2 or shape_of(lu)[-1] != shape_of(lu)[-2]:
        raise ValueError(f"lu_solve takes the factors of square matrices, got {shape_of(lu)}.")
    if len(shape_of(b)) < 2 or shape_of(b)[-2] != shape_of(lu)[-1]:
        raise ValueError(
            f"lu_solve right-hand sides of shape {shape_of(b)} do not fit factors of shape "
            f"{shape_of(lu)}."
        )
    lu, permutation, b = _same_batch(lu, permutation, b)
    lower = {"left_side": True, "lower": True, "unit_diagonal": True}
    upper = {"left_side": True, "lower": False}
    if trans == 0:
        x = triangular_solve(lu, take_rows(b, permutation), **lower)
        return triangular_solve(lu, x, **upper)
    flags = {"transpose_a": True, "conjugate_a": trans == 2 and is_complex(lu)}
    x = triangular_solve(lu, b, **upper, **flags)
    x = triangular_solve(lu, x, **lower, **flags)
    positions = broadcasted_iota(np.int32, shape_of(permutation), len(shape_of(permutation)) - 1)
    _, inverse = sort_key_val(permutation, positions)
    return take_rows(x, inverse)


def _same_batch(lu: Any, permutation: Any, b: Any) -> tuple[Any, Any, Any]:
    batch = broadcast_shapes(shape_of(lu)[:-2], shape_of(permutation)[:-1], shape_of(b)[:-2])

    def spread(x: Any, rank: int) -> Any:
        shape = shape_of(x)
        wanted = (*batch, *shape[len(shape) - rank :])
        offset = len(wanted) - len(shape)
        return broadcast_in_dim(x, wanted, tuple(range(offset, len(wanted))))

    return spread(lu, 2), spread(permutation, 1), spread(b, 2)


__all__ = [
    "cholesky", "cholesky_p", "cholesky_update", "cholesky_update_p", "lu", "lu_p",
    "lu_pivots_to_permutation", "lu_pivots_to_permutation_p", "lu_solve",
]  # fmt: skip
