"""Linear algebra with sparse matrices: solving, and the largest eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.docs import Phrases as _Phrases, complete as _complete
from amdjax.experimental.sparse.csr import rows_of
from amdjax.transforms.callbacks import pure_callback

__all__ = ["lobpcg_standard", "spsolve"]


def spsolve(
    data: Any, indices: Any, indptr: Any, b: Any, tol: float = 1e-6, reorder: int = 1
) -> Array:
    """The solution of a linear system whose matrix is sparse, by SuperLU on the host.

    Args:
      data: the values of the entries, of shape `(entries,)`.
      indices: their columns.
      indptr: where each row begins, of shape `(n + 1,)`.
      b: the right-hand side, of shape `(n,)`.
      tol: accepted; the method is direct.
      reorder: whether the columns are reordered, 0 for not.

    Returns:
      The solution, of shape `(n,)`; it has derivatives in `data` and `b`.

    Raises:
      TypeError: shapes or dtypes do not fit.

        >>> m = sparse.BCSR.fromdense(jnp.array([[2.0, 0.0], [1.0, 4.0]]))
        >>> sparse.linalg.spsolve(m.data, m.indices, m.indptr, jnp.array([2.0, 5.0]))
        Array([1., 1.], dtype=float32)
    """
    data, indices, indptr, b = (jnp.asarray(x) for x in (data, indices, indptr, b))
    if data.ndim != 1 or indices.shape != data.shape or indptr.shape != (b.shape[0] + 1,):
        raise TypeError(
            f"spsolve: data, indices and indptr of shapes {data.shape}, {indices.shape} and "
            f"{indptr.shape} do not describe a square matrix for b of shape {b.shape}"
        )
    if b.ndim != 1 or data.dtype != b.dtype:
        raise TypeError(
            f"spsolve: b must be a vector of the matrix' dtype {data.dtype}, got {b.shape} of "
            f"{b.dtype}"
        )
    row, n = rows_of(indices, indptr), b.shape[0]

    def product(to: Array, at: Array, x: Array) -> Array:
        return jnp.zeros(n, b.dtype).at[to].add(data * x[at], mode="drop")

    def solver(transposed: bool) -> Callable[..., Array]:
        def on_host(data: Any, indices: Any, indptr: Any, b: Any) -> np.ndarray:
            # late: SciPy takes long to load
            from scipy.sparse import csr_matrix
            from scipy.sparse.linalg import splu

            mat = csr_matrix(tuple(map(np.asarray, (data, indices, indptr))), shape=(n, n)).tocsc()
            order = "COLAMD" if reorder else "NATURAL"
            factors = splu(mat, permc_spec=order)
            found = factors.solve(np.asarray(b), "T" if transposed else "N")
            return found.astype(b.dtype)

        return lambda _, b: pure_callback(
            on_host, b, data, indices, indptr, b, vmap_method="sequential"
        )

    return lax.custom_linear_solve(
        lambda x: product(row, indices, x), b, solve=solver(False), transpose_solve=solver(True)
    )


def lobpcg_standard(A: Any, X: Any, m: int = 100, tol: Any = None) -> tuple[Array, Array, Array]:
    """The largest eigenvalues of a symmetric positive matrix and their vectors.

    Each step looks for them in the space of the vectors, their residuals and the last steps, which
    is made orthonormal first (Knyazev 2001; Duersch, Shao, Yang and Gu 2018).

    Args:
      A: the matrix, of shape `(n, n)`, or a function that multiplies it by one of shape `(n, k)`.
      X: vectors to begin with, of shape `(n, k)`, where `5 k < n`.
      m: the most steps.
      tol: the relative residual at which a vector counts as found; ten times the precision of the
        dtype by default.

    Returns:
      The eigenvalues, in falling order, of shape `(k,)`; the vectors, `(n, k)`; how many steps
      were made.

    Raises:
      ValueError: the shapes do not fit.

        >>> from amdjax.experimental.sparse.linalg import lobpcg_standard
        >>> A = jnp.diag(jnp.arange(1.0, 13.0))
        >>> X = amdjax.random.normal(amdjax.random.key(0), (12, 2))
        >>> values, vectors, steps = lobpcg_standard(A, X)
        >>> values.round(3)
        Array([12., 11.], dtype=float32)
    """
    X = jnp.asarray(X)
    product = A if callable(A) else None
    if X.ndim != 2:
        raise ValueError(f"expected search vectors X of two axes, got shape {X.shape}")
    n, k = X.shape
    if k == 0 or 5 * k >= n:
        raise ValueError(
            f"expected search dim > 0 and search dim * 5 < matrix dim (got {5 * k}, {n})"
        )
    if product is None:
        A = jnp.asarray(A)
        if A.shape != (n, n):
            raise ValueError(f"A must be {(n, n)} to go with X, got {A.shape}")
        product = lambda S: jnp.matmul(A, S, precision=lax.Precision.HIGHEST)
    out = product(X)
    if out.dtype != X.dtype:
        raise ValueError(f"A, X must have same dtypes, but A of {X.dtype} gives {out.dtype}")
    if out.shape != X.shape:
        raise ValueError(f"A must return vectors like X, of {X.shape}, got {out.shape}")
    tol = 10 * jnp.finfo(X.dtype).eps if tol is None else tol
    return _iterate(product, X, m, tol)


def _mm(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _iterate(
    product: Callable[[Array], Array], X: Array, m: int, tol: Any
) -> tuple[Array, Array, Array]:
    start, step = _steps(product, X, tol)
    going = lambda state: (state[0] < m) & (state[-1] < X.shape[1])
    i, X, _, _, theta, _ = lax.while_loop(going, step, start)
    return theta, X, i


def _steps(
    product: Callable[[Array], Array], X: Array, tol: Any
) -> tuple[tuple[Array, ...], Callable[[Any], Any]]:
    """Where to begin, and a step: its number, vectors, directions, residuals, values, how many."""
    k = X.shape[1]
    X = _orthonormal(X)
    theta, turn = _largest(_mm(X.T, product(X)), k)
    X = _mm(X, turn)

    def residual(X: Array, theta: Array) -> tuple[Array, Array]:
        AX = product(X)
        R = AX - X * theta[None]
        # Relative to what a product with A may be off by.
        scale = jnp.linalg.norm(AX, axis=0) + jnp.abs(theta)
        error = jnp.linalg.norm(R, axis=0) / jnp.where(scale == 0, 1, scale * X.shape[0])
        return R, (error < tol).sum()

    def step(state: Any) -> Any:
        i, X, P, R, theta, _ = state
        # Residuals, then directions, each orthonormal to what is there; what vanishes stays zero.
        R = _orthonormal(_without(X, R))
        P = _orthonormal(_without(jnp.concatenate([X, R], 1), P))
        S = jnp.concatenate([X, R, P], 1)
        theta, turn = _largest(_mm(S.T, product(S)), k)
        new = _mm(S, turn)
        # The next direction is the part of the step that does not lie along the old vectors.
        P = _mm(S[:, k:], turn[k:])
        new = new / jnp.linalg.norm(new, axis=0, keepdims=True)
        R, found = residual(new, theta)
        return i + 1, new, P, R, theta, found

    R, found = residual(X, theta)
    return (jnp.zeros((), int), X, jnp.zeros_like(X), R, theta, found), step


def _without(basis: Array, U: Array) -> Array:
    """What of vectors is orthogonal to a basis; twice, since once is not enough after rounding."""
    for _ in range(2):
        U = U - _mm(basis, _mm(basis.T, U))
        norms = jnp.linalg.norm(U, axis=0, keepdims=True)
        U = jnp.where(norms > 0, U / jnp.where(norms == 0, 1, norms), 0)
    return U


def _orthonormal(U: Array) -> Array:
    """An orthonormal basis of vectors; columns beyond their rank are zero."""
    for _ in range(2):
        norms = jnp.linalg.norm(U, axis=0, keepdims=True)
        U = U / jnp.where(norms == 0, 1, norms)
        values, vectors = jnp.linalg.eigh(_mm(U.T, U))
        cut = jnp.finfo(U.dtype).eps * values.shape[0] * jnp.maximum(values[-1], 0)
        kept = values > cut
        scale = jnp.where(kept, lax.rsqrt(jnp.where(kept, values, 1)), 0)
        U = _mm(U, vectors) * scale[None]
    return U


def _largest(small: Array, k: int) -> tuple[Array, Array]:
    """The largest eigenvalues of a symmetric matrix in falling order, and their vectors."""
    values, vectors = jnp.linalg.eigh((small + small.T) / 2)
    return values[::-1][:k], vectors[:, ::-1][:, :k]


_complete(globals(), (), _Phrases())
_public_surface(globals())
