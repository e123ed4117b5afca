"""Triangular and tridiagonal systems, and symmetric products."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax.core.lowering import Decompose
from amdjax.lax._rules import (
    FLOAT,
    batch_to,
    instantiate_zeros,
    is_complex,
    is_zero,
    move_axis,
    scalar,
    shape_of,
    total,
    zero_tangent,
)
from amdjax.lax.elementwise import add, mul, neg
from amdjax.lax.linalg._matrix import (
    as_column,
    check_square,
    conj,
    matmul,
    matrix_primitive,
    transposed,
    tril,
    triu,
)
from amdjax.lax.shape import broadcast_in_dim, expand_dims, reshape, squeeze
from amdjax.lax.slicing import pad

__all__ = [
    "symmetric_product", "symmetric_product_p", "triangular_solve", "triangular_solve_p",
    "tridiagonal_solve", "tridiagonal_solve_p",
]  # fmt: skip


def _triangular_results(a, b, *, left_side, **_):
    check_square("triangular_solve", a)
    if a.shape[0] != b.shape[0 if left_side else 1]:
        raise ValueError(
            f"triangular_solve with left_side={left_side} got incompatible shapes: "
            f"a of shape {a.shape} and b of shape {b.shape}."
        )
    return [(b.shape, b.dtype)]


def _triangular_one(a, b, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
    # late: SciPy takes long to load
    from scipy.linalg import blas

    (trsm,) = blas.get_blas_funcs(("trsm",), (a, b))
    if conjugate_a and not transpose_a:
        a = a.conj()
    # BLAS keeps columns together and NumPy rows: the transposed system is solved, without a copy.
    solution = trsm(
        1.0, a.T, b.T, side=int(left_side), lower=int(not lower),
        trans_a=(2 if conjugate_a else 1) if transpose_a else 0, diag=int(unit_diagonal),
    )  # fmt: skip
    return (solution.T,)


triangular_solve_p = matrix_primitive(
    "triangular_solve", (2, 2), _triangular_results, _triangular_one, multiple=False
)


@triangular_solve_p.def_jvp
def _triangular_jvp(primals, tangents, **params):
    a, b = primals
    t_a, t_b = tangents
    x = triangular_solve_p.bind(a, b, **params)
    terms = [] if is_zero(t_b) else [triangular_solve_p.bind(a, t_b, **params)]
    if not is_zero(t_a):
        terms.append(_change_of_matrix(t_a, x, a, params))
    return x, total(x, terms)


def _change_of_matrix(t_a, x, a, params) -> Any:
    """`-op(a)⁻¹ op(da) x`, multiplied in the order that costs less."""
    off = 1 if params["unit_diagonal"] else 0
    change = tril(t_a, -off) if params["lower"] else triu(t_a, off)
    change = neg(change)
    change = transposed(change) if params["transpose_a"] else change
    change = conj(change) if params["conjugate_a"] else change
    solve = lambda rhs: triangular_solve_p.bind(a, rhs, **params)
    m, n = shape_of(x)[-2:]
    if params["left_side"]:
        return solve(matmul(change, x)) if m > n else matmul(solve(change), x)
    return solve(matmul(x, change)) if m < n else matmul(x, solve(change))


@triangular_solve_p.def_transpose
def _triangular_transpose(ct, a, b, *, transpose_a, **params):
    if is_zero(ct):
        return [None, ct]
    return [None, triangular_solve_p.bind(a, ct, transpose_a=not transpose_a, **params)]


@triangular_solve_p.def_batch
def _triangular_batch(axis, args, dims, **params):
    (a, b), (a_dim, b_dim) = args, dims
    if a_dim is not None:
        b = batch_to(b, b_dim, axis.size)
        return triangular_solve_p.bind(move_axis(a, a_dim, 0), b, **params), 0
    # One matrix for all: the batch becomes more right-hand sides.
    out_dim = len(shape_of(b)) - (1 if params["left_side"] else 3)
    b = move_axis(b, b_dim, out_dim)
    *lead, p, q, r = shape_of(b)
    folded = (*lead, p, q * r) if params["left_side"] else (*lead, p * q, r)
    out = triangular_solve_p.bind(a, reshape(b, folded), **params)
    return reshape(out, shape_of(b)), out_dim


def triangular_solve(
    a: Any, b: Any, *, left_side: bool = False, lower: bool = False, transpose_a: bool = False,
    conjugate_a: bool = False, unit_diagonal: bool = False,
) -> Any:  # fmt: skip
    """The solution of `op(a) @ x == b`, or of `x @ op(a) == b`, for triangular matrices `a`.

    Args:
      a: matrices of shape `(..., n, n)`; only one triangle is looked at.
      b: right-hand sides of shape `(..., n, k)` with `left_side`, else `(..., k, n)`; or vectors,
        with one axis fewer than `a`.
      left_side: whether `a` stands on the left of the unknown.
      lower: whether the lower triangle of `a` counts, else the upper.
      transpose_a: whether `op` transposes.
      conjugate_a: whether `op` conjugates.
      unit_diagonal: whether the diagonal counts as ones, without being looked at.

    Raises:
      ValueError: if shapes do not fit.

        >>> a, b = np.array([[2.0, 0.0], [1.0, 1.0]], np.float32), np.array([2.0, 3.0], np.float32)
        >>> lax.linalg.triangular_solve(a, b, left_side=True, lower=True).tolist()
        [1.0, 2.0]
    """
    vector = len(shape_of(b)) == len(shape_of(a)) - 1
    axis = len(shape_of(a)) - (1 if left_side else 2)
    if vector:
        b = expand_dims(b, (axis,))
    out = triangular_solve_p.bind(
        a, b, left_side=bool(left_side), lower=bool(lower), transpose_a=bool(transpose_a),
        conjugate_a=bool(conjugate_a) and is_complex(a), unit_diagonal=bool(unit_diagonal),
    )  # fmt: skip
    return squeeze(out, (axis,)) if vector else out


def _tridiagonal_results(dl, d, du, b, *, perturb_singular):
    if not dl.shape == d.shape == du.shape == b.shape[:1]:
        raise TypeError(
            "tridiagonal_solve takes three diagonals of shape (..., m) and right-hand sides of "
            f"shape (..., m, k), got shapes {dl.shape}, {d.shape}, {du.shape} and {b.shape}."
        )
    return [(b.shape, b.dtype)]


def _tridiagonal_one(dl, d, du, b, *, perturb_singular):
    if perturb_singular:
        return (_perturbed_solve(dl, d, du, b),)
    # late: SciPy takes long to load
    from scipy.linalg import lapack

    if len(d) == 1:
        return (b / d[0],) if d[0] != 0 else None
    (gtsv,) = lapack.get_lapack_funcs(("gtsv",), (d, b))
    *_, solution, info = gtsv(dl[1:], d, du[:-1], b)
    return (solution,) if info == 0 else None


def _perturbed_solve(dl, d, du, b) -> np.ndarray:
    """Elimination with partial pivoting in which no pivot is too small to divide by."""
    m = len(d)
    # Row i of the upper factor, in the making: its entries in columns i, i + 1 and i + 2.
    upper = np.zeros((m, 3), d.dtype)
    upper[:, 0], upper[:-1, 1] = d, du[:-1]
    x = b.copy()
    for i in range(m - 1):
        below = np.array([dl[i + 1], upper[i + 1, 0], upper[i + 1, 1]], d.dtype)
        if abs(below[0]) > abs(upper[i, 0]):
            upper[i], below = below, upper[i].copy()
            x[[i, i + 1]] = x[[i + 1, i]]
        factor = below[0] / upper[i, 0] if upper[i, 0] != 0 else d.dtype.type(0)
        upper[i + 1, :2] = below[1:] - factor * upper[i, 1:]
        x[i + 1] -= factor * x[i]
    least = np.finfo(d.dtype).eps * np.abs(upper).max()
    least = least if least > 0 else np.finfo(d.dtype).tiny
    small = np.abs(upper[:, 0]) < least
    upper[small, 0] = np.where(upper[small, 0].real < 0, -least, least)
    for i in range(m - 1, -1, -1):
        for ahead in (1, 2):
            if i + ahead < m:
                x[i] -= upper[i, ahead] * x[i + ahead]
        x[i] /= upper[i, 0]
    return x


tridiagonal_solve_p = matrix_primitive(
    "tridiagonal_solve", (1, 1, 1, 2), _tridiagonal_results, _tridiagonal_one, multiple=False
)


@tridiagonal_solve_p.def_jvp
def _tridiagonal_jvp(primals, tangents, **params):
    *diagonals, _ = primals
    *changes, t_b = tangents
    x = tridiagonal_solve_p.bind(*primals, **params)
    terms = [] if is_zero(t_b) else [t_b]
    if not all(is_zero(t) for t in changes):
        dl, d, du = map(instantiate_zeros, changes)
        moved = _tridiagonal_product(dl, d, du, x)
        terms.append(neg(moved))
    if not terms:
        return x, zero_tangent(x)
    return x, tridiagonal_solve_p.bind(*diagonals, total(x, terms), **params)


def _tridiagonal_product(dl, d, du, x) -> Any:
    """The tridiagonal matrix with these diagonals, times `x`."""
    times = lambda diagonal, v: mul(
        broadcast_in_dim(diagonal, shape_of(v), tuple(range(len(shape_of(v)) - 1))), v
    )
    out = times(d, x)
    out = add(out, times(dl, _moved_rows(x, 1)))
    return add(out, times(du, _moved_rows(x, -1)))


def _moved_rows(x: Any, by: int) -> Any:
    pads = [(0, 0, 0)] * len(shape_of(x))
    pads[-2] = (by, -by, 0)
    return pad(x, scalar(x, 0), pads)


@tridiagonal_solve_p.def_transpose
def _tridiagonal_transpose(ct, dl, d, du, b, **params):
    if is_zero(ct):
        return [None, None, None, ct]
    below, above = (as_column(v) for v in (dl, du))
    new_below = squeeze(_moved_rows(above, 1), (len(shape_of(d)),))
    new_above = squeeze(_moved_rows(below, -1), (len(shape_of(d)),))
    return [None, None, None, tridiagonal_solve_p.bind(new_below, d, new_above, ct, **params)]


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Any:
    """The solution of a linear system with a tridiagonal matrix.

    Args:
      dl: the diagonals below the main one, of shape `(..., m)`; the first entry does not count.
      d: the main diagonals, of shape `(..., m)`.
      du: the diagonals above the main one, of shape `(..., m)`; the last entry does not count.
      b: right-hand sides of shape `(..., m, k)`.
      perturb_singular: whether a pivot that is next to zero is replaced by a small number, so that
        singular systems, too, have a finite solution, as inverse iteration wants it.

    Returns:
      The solutions, of the shape of `b`; NaN for a singular matrix.

    Raises:
      TypeError: if the shapes do not fit.

        >>> one = np.ones(3, np.float32)
        >>> b = np.array([[3.0], [4.0], [3.0]], np.float32)
        >>> lax.linalg.tridiagonal_solve(one, 2 * one, one, b).tolist()
        [[1.0], [1.0], [1.0]]
    """
    return tridiagonal_solve_p.bind(dl, d, du, b, perturb_singular=bool(perturb_singular))


def _symmetric_product_results(a, c, *, alpha, beta):
    check_square("symmetric_product", c)
    if a.shape[0] != c.shape[0]:
        raise ValueError(
            "symmetric_product takes matrices of shape (m, n) and symmetric ones of shape (m, m), "
            f"got shapes {a.shape} and {c.shape}."
        )
    return [(c.shape, c.dtype)]


def _symmetric_product(a, c, *, alpha, beta):
    product = mul(scalar(c, alpha), matmul(a, transposed(a)))
    return add(product, mul(scalar(c, beta), c))


symmetric_product_p = matrix_primitive(
    "symmetric_product", (2, 2), _symmetric_product_results, _symmetric_product, kinds=FLOAT,
    multiple=False,
)  # fmt: skip
symmetric_product_p.lowering = Decompose(_symmetric_product)


@symmetric_product_p.def_jvp
def _symmetric_product_jvp(primals, tangents, *, alpha, beta):
    a, c = primals
    t_a, t_c = tangents
    out = symmetric_product_p.bind(a, c, alpha=alpha, beta=beta)
    terms = [] if is_zero(t_c) else [mul(scalar(c, beta), t_c)]
    if not is_zero(t_a):
        half = mul(scalar(c, alpha), matmul(t_a, transposed(a)))
        terms.append(add(half, transposed(half)))
    return out, total(out, terms)


def symmetric_product(
    a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Any:  # fmt: skip
    """`alpha * a @ a.T + beta * c` for symmetric matrices `c`.

    Args:
      a_matrix: matrices of shape `(..., m, n)`, of a real dtype.
      c_matrix: symmetric matrices of shape `(..., m, m)`.
      alpha: a Python number.
      beta: a Python number.
      symmetrize_output: whether the upper triangle is made the mirror of the lower one.

    Returns:
      An array of the shape of `c_matrix`.

    Raises:
      ValueError: if shapes do not fit.

        >>> a, c = np.array([[1.0], [2.0]], np.float32), np.eye(2, dtype=np.float32)
        >>> lax.linalg.symmetric_product(a, c, beta=3.0).tolist()
        [[4.0, 2.0], [2.0, 7.0]]
    """
    out = symmetric_product_p.bind(a_matrix, c_matrix, alpha=float(alpha), beta=float(beta))
    if symmetrize_output:
        out = add(tril(out), transposed(tril(out, -1)))
    return out
