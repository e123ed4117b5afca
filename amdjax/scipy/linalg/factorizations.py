"""Factors of matrices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.dims import min_dim
from amdjax.numpy._util import ArrayLike, is_kind, promote_dtypes_inexact
from amdjax.numpy.decompositions import adjoint


def inexact(*matrices: Any) -> list[Array]:
    """Arguments as inexact arrays of one dtype; nested sequences are taken too."""
    return promote_dtypes_inexact(*[jnp.asarray(a) for a in matrices])


@composite(static_argnames=("lower", "overwrite_a", "check_finite"))
def cholesky(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array:
    """The triangular factor of a Hermitian positive definite matrix; NaN if it is not.

    Args:
      a: of shape `(..., n, n)`; one triangle is read.
      lower: return the lower factor `L` of `L · Lᴴ` and read the lower triangle, instead of the
        upper factor `U` of `Uᴴ · U`.

    Returns:
      The factor, of shape `(..., n, n)`, zero in the other triangle.

        >>> amdjax.scipy.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
        Array([[2., 1.],
               [0., 1.]], dtype=float32)
    """
    (a,) = inexact(a)
    factor = lax.linalg.cholesky(a if lower else adjoint(a), symmetrize_input=False)
    return factor if lower else adjoint(factor)


def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """The Cholesky factor as `cho_solve` takes it.

    Args:
      a: Hermitian and positive definite, of shape `(..., n, n)`.
      lower: whether the lower factor is made.

    Returns:
      The factor and `lower`.

        >>> amdjax.scipy.linalg.cho_factor(jnp.array([[4.0]]))
        (Array([[2.]], dtype=float32), False)
    """
    return cholesky(a, lower), lower


@composite(static_argnames=("full_matrices", "compute_uv", "overwrite_a", "check_finite",
                            "lapack_driver"))  # fmt: skip
def svd(
    a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False,
    check_finite: bool = True, lapack_driver: str = "gesdd",
) -> Any:  # fmt: skip
    """The singular value decomposition `a = U · diag(s) · Vh`.

    Args:
      a: of shape `(..., m, n)`.
      full_matrices: whether `U` and `Vh` are square.
      compute_uv: return the singular values alone if false.
      lapack_driver: has no effect.

    Returns:
      `(U, s, Vh)`, or `s`, largest first.

        >>> amdjax.scipy.linalg.svd(jnp.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False)
        Array([4., 3.], dtype=float32)
    """
    (a,) = inexact(a)
    return lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)


@composite(static_argnames=("lower", "eigvals_only", "overwrite_a", "overwrite_b", "turbo",
                            "eigvals", "type", "check_finite"))  # fmt: skip
def eigh(
    a: ArrayLike, b: ArrayLike | None = None, lower: bool = True, eigvals_only: bool = False,
    overwrite_a: bool = False, overwrite_b: bool = False, turbo: bool = True, eigvals: None = None,
    type: int = 1, check_finite: bool = True,
) -> Any:  # fmt: skip
    """The eigenvalues, rising, and eigenvectors of a Hermitian matrix.

    Args:
      b: must be None: generalized problems are not solved.
      lower: which triangle is read, after the matrix was averaged with its adjoint.
      eigvals: must be None.
      type: must be 1.
      turbo: has no effect.

    Raises:
      NotImplementedError: `b`, `eigvals` or `type` is not as said.

        >>> amdjax.scipy.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]]), eigvals_only=True)
        Array([1., 2.], dtype=float32)
    """
    if b is not None:
        raise NotImplementedError("eigh: only the b=None case is implemented")
    if type != 1:
        raise NotImplementedError(f"eigh: only the type=1 case is implemented, got type={type}")
    if eigvals is not None:
        raise NotImplementedError(
            f"eigh: only the eigvals=None case is implemented, got eigvals={eigvals}"
        )
    (a,) = inexact(a)
    v, w = lax.linalg.eigh(a, lower=lower)
    return w if eigvals_only else (w, v)


@composite(static_argnames=("eigvals_only", "select", "select_range", "tol"))
def eigh_tridiagonal(
    d: ArrayLike, e: ArrayLike, *, eigvals_only: bool = False, select: str = "a",
    select_range: tuple[int, int] | None = None, tol: float | None = None, key: Array | None = None,
) -> Any:  # fmt: skip
    """The eigenvalues, rising, and eigenvectors of a Hermitian tridiagonal matrix.

    Args:
      d: the diagonal, real, of shape `(n,)`.
      e: the entries above the diagonal, of shape `(n - 1,)`; below it are their conjugates.
      select: "a" for all, "i" for those of the positions `select_range`, both ends included.
      select_range: the first and last position, counted from the smallest.
      tol: accepted; eigenvalues are found to the precision of the dtype.
      key: accepted; no start vectors are drawn.

    Raises:
      TypeError: `d` and `e` differ in dtype, or are no floats of 32 or 64 bits.
      ValueError: `select` is unknown or `select_range` is missing or empty.
      NotImplementedError: `select` is "v".

        >>> amdjax.scipy.linalg.eigh_tridiagonal(jnp.array([2.0, 2.0]), jnp.array([1.0]),
        ...                                   eigvals_only=True)
        Array([1., 3.], dtype=float32)
    """
    d, e = jnp.asarray(d), jnp.asarray(e)
    if d.dtype != e.dtype:
        raise TypeError(
            f"diagonal and off-diagonal values must have same dtype, got {d.dtype} and {e.dtype}"
        )
    if d.dtype not in (np.float32, np.float64, np.complex64, np.complex128):
        raise TypeError(
            "Only float32 and float64 inputs are supported as inputs to eigh_tridiagonal, got"
            f" {d.dtype} and {e.dtype}"
        )
    subset = _selected(select, select_range)
    n = d.shape[0]
    if n == 0:
        w = jnp.real(d)
        return w if eigvals_only else (w, jnp.eye(0, dtype=d.dtype))
    matrix = jnp.diag(jnp.real(d).astype(d.dtype)) + jnp.diag(jnp.conj(e), -1)
    v, w = lax.linalg.eigh(matrix, lower=True, symmetrize_input=False)
    v, w = v[:, subset], w[subset]
    return w if eigvals_only else (w, v)


def _selected(select: str, select_range: tuple[int, int] | None) -> slice:
    if select == "a":
        return slice(None)
    if select == "v":
        raise NotImplementedError("eigh_tridiagonal: select='v' would need arrays of unknown size")
    if select != "i":
        raise ValueError(f"'select' must have a value in {{'a', 'i', 'v'}}, got {select!r}")
    if select_range is None:
        raise ValueError("for select='i', select_range must be specified.")
    first, last = select_range
    if first > last:
        raise ValueError(f"Got empty index range in select_range: {select_range}.")
    return slice(first, last + 1)


@composite(static_argnames="output")
def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """The Schur decomposition `a = Z · T · Zᴴ`.

    Args:
      output: "real", where a real matrix has a quasi-triangular `T` with blocks of two, or
        "complex", where `T` is triangular.

    Returns:
      `T` and the unitary `Z`.

    Raises:
      ValueError: `output` is neither.

        >>> T, Z = amdjax.scipy.linalg.schur(jnp.array([[1.0, 2.0], [0.0, 3.0]]))
        >>> jnp.allclose(Z @ T @ Z.T, jnp.array([[1.0, 2.0], [0.0, 3.0]]))
        Array(True, dtype=bool)
    """
    if output not in ("real", "complex"):
        raise ValueError(f"Expected 'output' to be either 'real' or 'complex', got {output=}.")
    (a,) = inexact(a)
    if output == "complex":
        a = a.astype(dtypes.to_complex_dtype(a.dtype))
    t, z = lax.linalg.schur(a)
    return t, z


@composite(static_argnames=("overwrite_a", "check_finite"))
def lu_factor(
    a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array]:
    """The LU factors with partial pivoting, as `lu_solve` takes them.

    Args:
      a: of shape `(..., m, n)`.

    Returns:
      `U` and, below its diagonal, `L` without its unit diagonal; and the row with which each row
      was exchanged in turn, int32 of shape `(..., min(m, n))`.

        >>> amdjax.scipy.linalg.lu_factor(jnp.array([[1.0, 2.0], [2.0, 2.0]]))
        (Array([[2. , 2. ],
               [0.5, 1. ]], dtype=float32), Array([1, 1], dtype=int32))
    """
    (a,) = inexact(a)
    packed, pivots, _ = lax.linalg.lu(a)
    return packed, pivots


@composite(static_argnames=("permute_l", "overwrite_a", "check_finite"))
def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """The factors of `a = P · L · U`, with partial pivoting.

    Args:
      a: of shape `(m, n)`.
      permute_l: return `P · L` in place of `P` and `L`.

    Returns:
      `(P, L, U)`, or `(P · L, U)`.

        >>> amdjax.scipy.linalg.lu(jnp.array([[1.0, 2.0], [2.0, 2.0]]))[2]
        Array([[2., 2.],
               [0., 1.]], dtype=float32)
    """
    (a,) = inexact(a)
    packed, _, permutation = lax.linalg.lu(a)
    m, n = a.shape
    k = min_dim(m, n)
    lower = jnp.tril(packed, -1)[:, :k] + jnp.eye(m, k, dtype=a.dtype)
    upper = jnp.triu(packed)[:k, :]
    if permute_l:
        return lower[jnp.argsort(permutation)], upper
    rows = lax.broadcasted_iota(permutation.dtype, (m, 1), 0)
    return (permutation[None, :] == rows).astype(jnp.real(a).dtype), lower, upper


@composite(static_argnames=("overwrite_a", "lwork", "mode", "pivoting", "check_finite"))
def qr(
    a: ArrayLike, overwrite_a: bool = False, lwork: Any = None, mode: str = "full",
    pivoting: bool = False, check_finite: bool = True,
) -> Any:  # fmt: skip
    """The factors of `a = Q · R`: orthonormal columns and an upper triangle.

    Args:
      a: of shape `(..., m, n)`.
      mode: "full" for a square `Q`, "economic" for one of `min(m, n)` columns, "r" for `R` alone.
      lwork: has no effect.

    Returns:
      `(Q, R)` or, for "r", `(R,)`; with `pivoting` the positions of the columns come last.

    Raises:
      ValueError: `mode` is unknown.

        >>> amdjax.scipy.linalg.qr(jnp.zeros((3, 2)), mode="economic")[0].shape
        (3, 2)
    """
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    (a,) = inexact(a)
    q, *rest = lax.linalg.qr(a, pivoting=pivoting, full_matrices=mode != "economic")
    return tuple(rest) if mode == "r" else (q, *rest)


@composite(static_argnames=("mode", "pivoting", "conjugate", "overwrite_a", "overwrite_c"))
def qr_multiply(
    a: ArrayLike, c: ArrayLike, mode: str = "right", pivoting: bool = False,
    conjugate: bool = False, overwrite_a: bool = False, overwrite_c: bool = False,
) -> Any:  # fmt: skip
    """The product of a matrix with the `Q` of `a = Q · R`, which is never formed.

    Args:
      a: of shape `(..., m, n)`; `k = min(m, n)`.
      c: of shape `(..., l, m)` for "right", `(..., k, l)` for "left"; or one row or column.
      mode: "right" for `c · Q`, "left" for `Q · c`.
      conjugate: use the complex conjugate of `Q`.
      overwrite_c: has no effect: arrays are immutable.

    Returns:
      The product, `R` and, with `pivoting`, the positions of the columns.

    Raises:
      ValueError: `mode` is unknown or the shapes do not fit.

        >>> amdjax.scipy.linalg.qr_multiply(jnp.eye(2), jnp.array([1.0, 2.0]))[0].shape
        (2,)
    """
    a, c = inexact(a, c)
    if mode not in ("right", "left"):
        raise ValueError(f"mode must be 'right' or 'left', got {mode!r}")
    vector, left = c.ndim == 1, mode == "left"
    if vector:
        c = c[:, None] if left else c[None, :]
    m, n = a.shape[-2:]
    k = min(m, n)
    if left and c.shape[-2] != k:
        raise ValueError(
            f"Array shapes are not compatible for Q @ c operation: a of shape {a.shape} gives Q"
            f" {k} columns, but c of shape {c.shape} has {c.shape[-2]} rows"
        )
    if not left and c.shape[-1] != m:
        raise ValueError(
            f"Array shapes are not compatible for c @ Q operation: a of shape {a.shape} gives Q"
            f" {m} rows, but c of shape {c.shape} has {c.shape[-1]} columns"
        )
    batch = lax.broadcast_shapes(a.shape[:-2], c.shape[:-2])
    a = jnp.broadcast_to(a, (*batch, m, n))
    c = jnp.broadcast_to(c, (*batch, *c.shape[-2:]))
    order: tuple[Array, ...] = ()
    if pivoting:
        # The positions of the columns come from the factorization that exchanges them.
        order = (lax.linalg.qr(a, pivoting=True, full_matrices=False)[2],)
        a = jnp.take_along_axis(a, order[0][..., None, :], axis=-1)
    packed, taus = lax.linalg.geqrf(a)
    if left and m > n:
        c = jnp.concatenate([c, jnp.zeros((*batch, m - k, c.shape[-1]), c.dtype)], axis=-2)
    if conjugate:
        c = jnp.conj(c)
    product = lax.linalg.ormqr(packed, taus, c, left=left)
    if conjugate:
        product = jnp.conj(product)
    if not left:
        product = product[..., :k]
    if vector:
        product = product.ravel()
    return (product, jnp.triu(packed[..., :k, :]), *order)


@composite(static_argnames="check_finite")
def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """The complex Schur form that belongs to a real one.

    Args:
      T: quasi-triangular, of shape `(..., n, n)`.
      Z: unitary, of shape `(..., n, n)`.

    Returns:
      A triangular `T` and its `Z`.

    Raises:
      ValueError: an argument is not square, or their sizes differ.

        >>> T, Z = amdjax.scipy.linalg.rsf2csf(jnp.array([[0.0, 1.0], [-1.0, 0.0]]), jnp.eye(2))
        >>> abs(float(abs(T[1, 0])))
        0.0
    """
    t, z = jnp.asarray(T), jnp.asarray(Z)
    for name, x in (("T", t), ("Z", z)):
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"Input '{name}' must be square, got shape {x.shape}.")
    if t.shape[-1] != z.shape[-1]:
        raise ValueError(f"Input array shapes must match: Z: {z.shape} vs. T: {t.shape}")
    dtype = dtypes.to_complex_dtype(promote_dtypes_inexact(t, z)[0].dtype)
    return jnp.vectorize(_triangularize, signature="(n,n),(n,n)->(n,n),(n,n)")(
        t.astype(dtype), z.astype(dtype)
    )


def _triangularize(t: Array, z: Array) -> tuple[Array, Array]:
    """Rotates each block of two on the diagonal, from the last to the first."""
    n = t.shape[0]
    eps = float(dtypes.finfo(t.dtype).eps)
    if n < 2:
        return t, z
    axis = jnp.arange(n)

    def rotate(m: Any, t: Array, z: Array) -> tuple[Array, Array]:
        below = t[m, m - 1]
        block = lax.dynamic_slice(t, (m - 1, m - 1), (2, 2))
        shifted = jnp.linalg.eigvals(block)[0] - t[m, m]
        length = jnp.hypot(abs(shifted), abs(below)).astype(t.dtype)
        cosine, sine = shifted / length, below / length
        rotation = jnp.stack([jnp.stack([cosine.conj(), sine]), jnp.stack([-sine, cosine])])
        rows = lax.dynamic_slice_in_dim(t, m - 1, 2, 0)
        rows = jnp.where(axis >= m - 1, rotation @ rows, rows)
        t = lax.dynamic_update_slice_in_dim(t, rows, m - 1, 0)
        columns = lax.dynamic_slice_in_dim(t, m - 1, 2, 1)
        columns = jnp.where(axis[:, None] <= m, columns @ adjoint(rotation), columns)
        t = lax.dynamic_update_slice_in_dim(t, columns, m - 1, 1)
        columns = lax.dynamic_slice_in_dim(z, m - 1, 2, 1) @ adjoint(rotation)
        return t, lax.dynamic_update_slice_in_dim(z, columns, m - 1, 1)

    def step(i: Any, factors: tuple[Array, Array]) -> tuple[Array, Array]:
        m = n - i
        t, z = factors
        neighbors = abs(t[m - 1, m - 1]) + abs(t[m, m])
        coupled = abs(t[m, m - 1]) > eps * neighbors
        t, z = lax.cond(coupled, rotate, lambda _, t, z: (t, z), m, t, z)
        return t.at[m, m - 1].set(0), z

    return lax.fori_loop(1, n, step, (t, z))


@composite(static_argnames=("calc_q", "overwrite_a", "check_finite"))
def hessenberg(
    a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """The Hessenberg form `H` of `a = Q · H · Qᴴ`: zero below the first subdiagonal.

    Args:
      calc_q: return the unitary `Q` too.

    Returns:
      `H`, or `(H, Q)`.

        >>> amdjax.scipy.linalg.hessenberg(jnp.ones((3, 3))).shape
        (3, 3)
    """
    (a,) = inexact(a)
    n = a.shape[-1]
    if n == 0:
        return (a, a) if calc_q else a
    packed, taus = lax.linalg.hessenberg(a)
    h = jnp.triu(packed, -1)
    if not calc_q:
        return h
    inner = lax.linalg.householder_product(packed[..., 1:, :-1], taus)
    q = jnp.broadcast_to(jnp.eye(n, dtype=a.dtype), a.shape)
    return h, q.at[..., 1:, 1:].set(inner)


@composite(static_argnames=("side", "method", "eps", "max_iterations"))
def polar(
    a: ArrayLike, side: str = "right", *, method: str = "qdwh", eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """The polar decomposition: a unitary factor and a positive semidefinite one.

    Args:
      a: of shape `(..., m, n)`.
      side: "right" for `a = U · P`, "left" for `a = P · U`.
      method: "qdwh", for tall matrices on the right and wide ones on the left, or "svd".
      eps: the precision of "qdwh"; that of the dtype by default.
      max_iterations: accepted; "qdwh" needs few steps for any matrix.

    Returns:
      `U` and `P`.

    Raises:
      ValueError: `a` has fewer than two axes, or `side` or `method` is unknown.
      NotImplementedError: "qdwh" for a shape that it does not take.

    Source: Nakatsukasa, Bai, Gygi, "Optimizing Halley's iteration for computing the matrix polar
    decomposition", 2010.

        >>> amdjax.scipy.linalg.polar(jnp.array([[0.0, -2.0], [2.0, 0.0]]), method="svd")[1]
        Array([[2., 0.],
               [0., 2.]], dtype=float32)
    """
    (a,) = inexact(a)
    if a.ndim < 2:
        raise ValueError(f"The input `a` must be at least a 2-D array, got shape {a.shape}.")
    if side not in ("right", "left"):
        raise ValueError(f"The argument `side` must be either 'right' or 'left', got {side!r}.")
    if method not in ("qdwh", "svd"):
        raise ValueError(f"Unknown polar decomposition method {method}.")
    factors = _polar_svd if method == "svd" else functools.partial(_polar_qdwh, eps=eps)
    signature = "(m,n)->(m,n),(n,n)" if side == "right" else "(m,n)->(m,n),(m,m)"
    return jnp.vectorize(functools.partial(factors, side=side), signature=signature)(a)


def _polar_qdwh(a: Array, *, side: str, eps: float | None) -> tuple[Array, Array]:
    m, n = a.shape
    if (m >= n) != (side == "right"):
        raise NotImplementedError(
            "method='qdwh' only supports mxn matrices with m >= n where side='right' and m < n"
            f" where side='left', got {a.shape} with {side=}"
        )
    turned = adjoint(a) if side == "left" else a
    unitary, positive, _, _ = lax.linalg.qdwh(turned, is_hermitian=False, eps=eps)
    return (adjoint(unitary), adjoint(positive)) if side == "left" else (unitary, positive)


def _polar_svd(a: Array, *, side: str) -> tuple[Array, Array]:
    u, s, vh = lax.linalg.svd(a, full_matrices=False)
    s = s.astype(u.dtype)[None, :]
    positive = (adjoint(vh) * s) @ vh if side == "right" else (u * s) @ adjoint(u)
    return u @ vh, positive


def is_complex(x: Array) -> bool:
    """Whether an array holds complex numbers."""
    return is_kind(x.dtype, np.complexfloating)
