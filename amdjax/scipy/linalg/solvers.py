"""Solutions of linear equations, and what follows from a factorization."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, stop_gradient
from amdjax.numpy.decompositions import adjoint
from amdjax.scipy.linalg.factorizations import cholesky, inexact, is_complex, schur

_VECTOR, _MATRIX = "(n)->(n)", "(n,k)->(n,k)"


def _over_batches(name: str, solve: Callable[..., Array], first: str, *args: Array) -> Array:
    """`solve(*args)` for each matrix of a batch; the last argument is vectors or matrices.

    A right-hand side of one axis less than the matrices is still a batch of vectors.
    """
    a, b = args[0], args[-1]
    signature = _MATRIX
    if b.ndim == 1:
        signature = _VECTOR
    elif a.ndim == b.ndim + 1 and a.shape[-1] == b.shape[-1]:
        warnings.warn(
            f"scipy.linalg.{name}: batched 1D solves with b.ndim > 1 are deprecated, such b will be"
            " matrices. Write b[..., None] and squeeze the last axis of the result.",
            FutureWarning,
            stacklevel=2,
        )
        signature = _VECTOR
    return jnp.vectorize(solve, signature=f"{first},{signature}")(*args)


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The determinant.

    Returns:
      The determinants, of shape `(...)`.

        >>> amdjax.scipy.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
        Array(-2., dtype=float32)
    """
    return jnp.linalg.det(a)


def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverse of a square matrix.

    Returns:
      The inverses, of the same shape.

        >>> amdjax.scipy.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
        Array([[0.5 , 0.  ],
               [0.  , 0.25]], dtype=float32)
    """
    return jnp.linalg.inv(a)


def cho_solve(
    c_and_lower: tuple[ArrayLike, bool],
    b: ArrayLike,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The solution of `a · x = b` from the Cholesky factor of `a`.

    Args:
      c_and_lower: the factor, of shape `(..., n, n)`, and whether it is the lower one.

        >>> factor = amdjax.scipy.linalg.cho_factor(jnp.array([[4.0, 0.0], [0.0, 1.0]]))
        >>> amdjax.scipy.linalg.cho_solve(factor, jnp.array([2.0, 3.0]))
        Array([0.5, 3. ], dtype=float32)
    """
    c, lower = c_and_lower
    c, b = inexact(c, b)
    return _over_batches(
        "cho_solve", functools.partial(_cho_solve, lower=bool(lower)), "(n,n)", c, b
    )


def _cho_solve(c: Array, b: Array, *, lower: bool) -> Array:
    substitute = functools.partial(lax.linalg.triangular_solve, c, left_side=True, lower=lower)
    first = substitute(b, transpose_a=not lower, conjugate_a=not lower)
    return substitute(first, transpose_a=lower, conjugate_a=lower)


def lu_solve(
    lu_and_piv: tuple[Array, ArrayLike],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The solution of `a · x = b` from the factors that `lu_factor` makes of `a`.

    Args:
      lu_and_piv: the factors, of shape `(..., n, n)`, and the exchanges of rows, `(..., n)`.
      trans: 0 for `a`, 1 for its transpose, 2 for its adjoint.

        >>> factors = amdjax.scipy.linalg.lu_factor(jnp.array([[0.0, 2.0], [1.0, 0.0]]))
        >>> amdjax.scipy.linalg.lu_solve(factors, jnp.array([2.0, 3.0]))
        Array([3., 1.], dtype=float32)
    """
    packed, pivots = lu_and_piv
    packed, b = inexact(packed, b)
    order = lax.linalg.lu_pivots_to_permutation(jnp.asarray(pivots), packed.shape[-2])
    solve = functools.partial(lax.linalg.lu_solve, trans=trans)
    return _over_batches("lu_solve", solve, "(n,n),(n)", packed, order, b)


_TRANSPOSED = {
    0: (False, False), "N": (False, False), 1: (True, False), "T": (True, False),
    2: (True, True), "C": (True, True),
}  # fmt: skip


def solve_triangular(
    a: ArrayLike, b: ArrayLike, trans: int | str = 0, lower: bool = False,
    unit_diagonal: bool = False, overwrite_b: bool = False, debug: Any = None,
    check_finite: bool = True,
) -> Array:  # fmt: skip
    """The solution of `a · x = b` for a triangular matrix.

    Args:
      a: of shape `(..., n, n)`; one triangle is read.
      trans: 0 or "N" for `a`, 1 or "T" for its transpose, 2 or "C" for its adjoint.
      lower: read the lower triangle.
      unit_diagonal: take the diagonal to be ones.

    Raises:
      ValueError: `trans` is none of these.

        >>> a = jnp.array([[2.0, 1.0], [0.0, 4.0]])
        >>> amdjax.scipy.linalg.solve_triangular(a, jnp.array([3.0, 4.0]))
        Array([1., 1.], dtype=float32)
    """
    if trans not in _TRANSPOSED:
        raise ValueError(f"Invalid 'trans' value {trans}; it must be one of {list(_TRANSPOSED)}")
    transpose, conjugate = _TRANSPOSED[trans]
    a, b = inexact(a, b)
    substitute = functools.partial(
        lax.linalg.triangular_solve, left_side=True, lower=lower, transpose_a=transpose,
        conjugate_a=conjugate, unit_diagonal=unit_diagonal,
    )  # fmt: skip
    return _over_batches("solve_triangular", substitute, "(n,n)", a, b)


_KINDS = ("gen", "sym", "her", "pos")


@composite(static_argnames=("lower", "overwrite_a", "overwrite_b", "debug", "check_finite",
                            "assume_a"))  # fmt: skip
def solve(
    a: ArrayLike, b: ArrayLike, lower: bool = False, overwrite_a: bool = False,
    overwrite_b: bool = False, debug: bool = False, check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:  # fmt: skip
    """The solution of `a · x = b`.

    Args:
      lower: with "pos", read the lower triangle.
      assume_a: "gen", "sym", "her", or "pos" for a positive definite matrix, where Cholesky's
        factors take half the work.

    Raises:
      ValueError: `assume_a` is unknown, or the shapes do not fit.

        >>> a = jnp.array([[4.0, 2.0], [2.0, 2.0]])
        >>> amdjax.scipy.linalg.solve(a, jnp.array([6.0, 4.0]), assume_a="pos")
        Array([1., 1.], dtype=float32)
    """
    if assume_a not in _KINDS:
        raise ValueError(f"Expected assume_a to be one of {list(_KINDS)}; got {assume_a!r}")
    if assume_a != "pos":
        return jnp.linalg.solve(a, b)
    a, b = inexact(a, b)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"solve: a must have shape [..., n, n], got {a.shape}")
    vector = b.ndim == 1 or a.ndim == b.ndim + 1
    rhs = b[..., None] if vector else b
    if rhs.ndim < 2 or rhs.shape[-2] != a.shape[-1]:
        raise ValueError(f"solve: a of shape {a.shape} and b of shape {b.shape} do not fit")
    batch = lax.broadcast_shapes(a.shape[:-2], rhs.shape[:-2])
    rhs = jnp.broadcast_to(rhs, (*batch, *rhs.shape[-2:]))
    a = jnp.broadcast_to(a, (*batch, *a.shape[-2:]))
    factor = cholesky(stop_gradient(a), lower)
    x = lax.custom_linear_solve(
        lambda x: a @ x, rhs, solve=lambda _, y: cho_solve((factor, lower), y), symmetric=True
    )
    return x[..., 0] if vector else x


@composite(static_argnames="method")
def solve_sylvester(
    A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float = 1e-8
) -> Array:
    """The solution of `A · X + X · B = C`.

    Args:
      A: of shape `(..., m, m)`.
      B: of shape `(..., n, n)`.
      C: of shape `(..., m, n)`.
      method: "schur" (Bartels and Stewart) or "eigen", which needs diagonalizable `A` and `B`.
      tol: if a sum of an eigenvalue of `A` and one of `B` is smaller, there is no unique solution.

    Returns:
      `X`, of the shape of `C`; NaN where it is not unique.

    Raises:
      ValueError: `method` is unknown or the shapes do not fit.

    Source: Bartels and Stewart, "Solution of the matrix equation AX + XB = C", 1972.

        >>> amdjax.scipy.linalg.solve_sylvester(jnp.eye(1), jnp.eye(1), jnp.array([[4.0]]))
        Array([[2.]], dtype=float32)
    """
    a, b, c = inexact(A, B, C)
    m, n = c.shape[-2:]
    if a.shape[-2:] != (m, m) or b.shape[-2:] != (n, n):
        raise ValueError(
            f"Incompatible shapes for Sylvester equation:\nA: {a.shape}\nB: {b.shape}\nC: {c.shape}"
        )
    methods = {"schur": _sylvester_schur, "eigen": _sylvester_eigen}
    if method not in methods:
        raise ValueError(
            f"Unrecognized method {method}. The two valid methods are either 'schur' or 'eigen'."
        )

    def one(a: Array, b: Array, c: Array) -> Array:
        x, left, right = methods[method](a, b, c)
        x = x if is_complex(c) else x.real
        unique = jnp.all(abs(left[:, None] + right[None, :]) >= tol)
        return jnp.where(unique, x, jnp.nan)

    return jnp.vectorize(one, signature="(m,m),(n,n),(m,n)->(m,n)")(a, b, c)


def _sylvester_schur(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """The solution and the eigenvalues of both matrices."""
    r, u = schur(a, output="complex")
    s, v = schur(adjoint(b), output="complex")
    lower = adjoint(s)  # so that its columns come last to first
    n = b.shape[0]
    rhs = adjoint(u) @ c.astype(r.dtype) @ v
    identity = jnp.eye(a.shape[0], dtype=r.dtype)

    def column(i: Any, y: Array) -> Array:
        j = n - 1 - i
        known = rhs[:, j] - y @ lower[:, j]  # columns that are not there yet are zero
        return y.at[:, j].set(solve_triangular(r + lower[j, j] * identity, known))

    y = lax.fori_loop(0, n, column, jnp.zeros_like(rhs))
    return u @ y @ adjoint(v), jnp.diagonal(r), jnp.diagonal(lower)


def _sylvester_eigen(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    left, u = jnp.linalg.eig(a)
    right, v = jnp.linalg.eig(b)
    f = jnp.linalg.solve(u, c.astype(u.dtype) @ v)
    y = f / (left[:, None] + right[None, :])
    return u @ y @ jnp.linalg.inv(v), left, right
