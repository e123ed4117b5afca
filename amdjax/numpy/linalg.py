"""Linear algebra: `numpy.linalg`. Leading axes are batches of matrices."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.errors import public_surface as _public_surface
from amdjax.numpy import (
    arithmetic,
    contractions,
    diagonals,
    elementary,
    logic,
    manipulation,
    reductions,
    selecting,
)
from amdjax.numpy._util import (
    ArrayLike,
    DTypeLike,
    as_array,
    as_arrays,
    broadcast_to,
    canonical_axes,
    constant,
    convert,
    is_kind,
    promote_dtypes_inexact,
    select,
    stop_gradient,
)
from amdjax.transforms import custom_jvp

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv",
    "lstsq", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose",
    "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]  # fmt: skip


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


class SlogdetResult(NamedTuple):
    """Result of `slogdet`."""

    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    """Result of `svd`."""

    U: Array
    S: Array
    Vh: Array


def _matrix(name: str, a: ArrayLike) -> Array:
    (a,) = promote_dtypes_inexact(as_array(f"jnp.linalg.{name}", a))
    if a.ndim < 2:
        raise ValueError(
            f"Argument to jnp.linalg.{name} must have at least two axes, got shape {a.shape}"
        )
    return a


def _square(name: str, a: ArrayLike) -> Array:
    a = _matrix(name, a)
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Argument to {name}() must have shape [..., n, n], got {a.shape}")
    return a


def _adjoint(x: Array) -> Array:
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
    a = _square("cholesky", a)
    factor = lax.linalg.cholesky(_adjoint(a) if upper else a, symmetrize_input=symmetrize_input)
    return _adjoint(factor) if upper else factor


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
    a = _matrix("svd", a)
    if not hermitian:
        result = lax.linalg.svd(
            a, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index
        )
        return SVDResult(*result) if compute_uv else result
    w, v = lax.linalg.eigh(a)[::-1] if compute_uv else (eigvalsh(a), None)
    order = manipulation.flip(_argsort(lax.abs(w)), -1)
    s = selecting.take_along_axis(lax.abs(w), order, -1)
    if v is None:
        return s
    signs = selecting.take_along_axis(lax.sign(w), order, -1)
    v = selecting.take_along_axis(v, lax.expand_dims(order, (order.ndim - 1,)), -1)
    u = arithmetic.multiply(v, lax.expand_dims(signs, (signs.ndim - 1,)))
    return SVDResult(u, s, _adjoint(v))


def _argsort(x: Array) -> Array:
    from amdjax.numpy.sorting import argsort

    return argsort(x)


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
    a = _square("eigh", a)
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
    w, v = lax.linalg.eig(_square("eig", a), compute_left_eigenvectors=False)
    return EigResult(w, v)


def eigvals(a: ArrayLike) -> Array:
    """The complex eigenvalues of a square matrix.

    >>> jnp.linalg.eigvals(jnp.array([[2.0, 0.0], [0.0, 1.0]])).shape
    (2,)
    """
    a = _square("eigvals", a)
    (w,) = lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    return w


def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """The factors of `a = Q · R`: orthonormal columns and an upper triangle.

    Args:
      a: of shape `(..., m, n)`.
      mode: "reduced", "complete", "r" (R alone) or "raw" (LAPACK's form).

        >>> jnp.linalg.qr(jnp.eye(2), mode="r").shape
        (2, 2)
    """
    a = _matrix("qr", a)
    if mode == "raw":
        packed, taus = lax.linalg.geqrf(a)
        return QRResult(manipulation.matrix_transpose(packed), taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    q, r = lax.linalg.qr(a, full_matrices=mode in ("full", "complete"))
    return r if mode == "r" else QRResult(q, r)


def _lu_parts(a: Array) -> tuple[Array, Array, Array]:
    """The factors in one matrix, its diagonal, and the sign of the permutation."""
    lu, pivots, _ = lax.linalg.lu(a)
    exchanges = lax.ne(pivots, lax.broadcasted_iota(pivots.dtype, pivots.shape, pivots.ndim - 1))
    parity = reductions.sum(exchanges, -1, dtype=np.int32)
    odd = lax.eq(lax.bitwise_and(parity, np.int32(1)), np.int32(1))
    sign = select(odd, np.asarray(-1, a.dtype), np.asarray(1, a.dtype))
    return lu, diagonals.diagonal(lu, axis1=-2, axis2=-1), broadcast_to(sign, parity.shape)


@custom_jvp
def _det(a: Array) -> Array:
    n = a.shape[-1]
    entry = lambda i, j: a[..., i, j]
    if n == 0:
        return lax.full(a.shape[:-2], 1, a.dtype)
    if n == 1:
        return entry(0, 0)
    if n == 2:
        return entry(0, 0) * entry(1, 1) - entry(0, 1) * entry(1, 0)
    if n == 3:
        return (
            entry(0, 0) * (entry(1, 1) * entry(2, 2) - entry(1, 2) * entry(2, 1))
            - entry(0, 1) * (entry(1, 0) * entry(2, 2) - entry(1, 2) * entry(2, 0))
            + entry(0, 2) * (entry(1, 0) * entry(2, 1) - entry(1, 1) * entry(2, 0))
        )
    _, diagonal, sign = _lu_parts(a)
    return sign * reductions.prod(diagonal, -1)


def _cofactors(a: Array) -> Array:
    """The matrix of cofactors, transposed, without dividing by the determinant.

    From the singular value decomposition, so that singular matrices have a gradient too.
    """
    u, s, vh = lax.linalg.svd(a, full_matrices=False)
    n = s.shape[-1]
    # The product of all singular values but one, for each.
    own = (
        lax.full((n, n), True, np.dtype(bool))
        if n < 1
        else manipulation.broadcast_to(
            selecting.asarray(np.eye(n, dtype=bool)), (*s.shape[:-1], n, n)
        )
    )
    wide = broadcast_to(lax.expand_dims(s, (s.ndim - 1,)), own.shape)
    rest = reductions.prod(select(own, constant(wide, 1), wide), -1)
    phase = _det(u) * _det(vh)
    v = _adjoint(vh)
    scaled = v * convert(lax.expand_dims(rest, (rest.ndim - 1,)), v.dtype)
    product = contractions.matmul(scaled, _adjoint(u))
    return product * lax.expand_dims(phase, (phase.ndim, phase.ndim + 1))


def _det_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a,), (t,) = primals, tangents
    product = contractions.matmul(_cofactors(a), t)
    return _det(a), diagonals.trace(product, axis1=-2, axis2=-1)


_det.defjvp(_det_jvp)


@composite
def det(a: ArrayLike) -> Array:
    """The determinant.

    >>> jnp.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., dtype=float32)
    """
    return _det(_square("det", a))


@custom_jvp
def _slogdet(a: Array) -> tuple[Array, Array]:
    _, diagonal, sign = _lu_parts(a)
    zero = reductions.any(lax.eq(diagonal, constant(diagonal, 0)), -1)
    magnitude = lax.abs(diagonal)
    sign = sign * reductions.prod(lax.div(diagonal, convert(
        select(lax.eq(magnitude, constant(magnitude, 0)), constant(magnitude, 1), magnitude),
        diagonal.dtype)), -1)  # fmt: skip
    sign = select(zero, constant(sign, 0), sign)
    total = reductions.sum(lax.log(magnitude), -1)
    return sign, select(zero, constant(total, -np.inf), total)


def _slogdet_jvp(primals: Any, tangents: Any) -> Any:
    (a,), (t,) = primals, tangents
    sign, total = _slogdet(a)
    change = diagonals.trace(solve(a, t), axis1=-2, axis2=-1)
    if is_kind(a.dtype, np.complexfloating):
        turn = lax.mul(lax.complex(lax.full_like(lax.imag(change), 0), lax.imag(change)), sign)
        return (sign, total), (turn, lax.real(change))
    return (sign, total), (lax.full_like(sign, 0), change)


_slogdet.defjvp(_slogdet_jvp)


def slogdet(a: ArrayLike, *, method: str | None = None) -> Any:
    """The sign of the determinant and the logarithm of its magnitude.

    Args:
      a: of shape `(..., n, n)`.
      method: None or "lu"; "qr" is taken as "lu".

        >>> jnp.linalg.slogdet(jnp.array([[2.0, 0.0], [0.0, -1.0]])).sign
        Array(-1., dtype=float32)
    """
    if method not in (None, "lu", "qr"):
        raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' and 'qr'.")
    return SlogdetResult(*_slogdet(_square("slogdet", a)))


def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """The solution of `a · x = b`.

    Args:
      a: of shape `(..., n, n)`.
      b: of shape `(n,)`, or `(..., n, k)`.

        >>> jnp.linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 2.0]))
        Array([1. , 0.5], dtype=float32)
    """
    a, b = promote_dtypes_inexact(*as_arrays("jnp.linalg.solve", a, b))
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"solve: a must have shape [..., n, n], got {a.shape}")
    if b.ndim < 1:
        raise ValueError(f"solve: b must have at least one axis, got shape {b.shape}")
    vector = b.ndim == 1
    if vector:
        b = lax.expand_dims(b, (1,))
    if b.shape[-2] != a.shape[-1]:
        raise ValueError(f"solve: a of shape {a.shape} and b of shape {b.shape} do not fit")
    batch = lax.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = broadcast_to(a, (*batch, *a.shape[-2:])), broadcast_to(b, (*batch, *b.shape[-2:]))
    x = _solve(a, b)
    return lax.squeeze(x, (x.ndim - 1,)) if vector else x


def _factors(a: Array) -> tuple[Array, Array]:
    lu, _, permutation = lax.linalg.lu(stop_gradient(a))
    return lu, permutation


def _back_substitute(lu: Array, permutation: Array, b: Array, transposed: bool) -> Array:
    fn = lambda lu, p, b: lax.linalg.lu_solve(lu, p, b, 1 if transposed else 0)
    return fn(lu, permutation, b)


def _solve(a: Array, b: Array) -> Array:
    """Through one factorisation, which the derivatives share."""
    lu, permutation = _factors(a)
    product = lambda x: contractions.matmul(a, x)
    forward = lambda _, y: _back_substitute(lu, permutation, y, False)
    backward = lambda _, y: _back_substitute(lu, permutation, y, True)
    return lax.custom_linear_solve(product, b, solve=forward, transpose_solve=backward)


def inv(a: ArrayLike) -> Array:
    """The inverse of a square matrix.

    >>> jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    a = _square("inv", a)
    n = a.shape[-1]
    return solve(a, broadcast_to(convert(np.eye(n, dtype=np.float32), a.dtype), a.shape))


@custom_jvp
def _pinv(a: Array, rtol: Array) -> Array:
    u, s, vh = lax.linalg.svd(a, full_matrices=False)
    if not s.shape[-1]:
        return lax.full((*a.shape[:-2], a.shape[-1], a.shape[-2]), 0, a.dtype)
    largest = lax.slice_in_dim(s, 0, 1, axis=s.ndim - 1)
    cutoff = arithmetic.multiply(lax.expand_dims(rtol, (rtol.ndim,)), largest)
    kept = lax.gt(s, broadcast_to(convert(cutoff, s.dtype), s.shape))
    inverse = select(kept, lax.div(constant(s, 1), select(kept, s, constant(s, 1))), constant(s, 0))
    scaled = _adjoint(vh) * convert(lax.expand_dims(inverse, (s.ndim - 1,)), a.dtype)
    return contractions.matmul(scaled, _adjoint(u))


def _pinv_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """The derivative for constant rank, of Golub and Pereyra (1973)."""
    (a, rtol), (t, *_) = primals, tangents
    p = _pinv(a, rtol)
    mm, h = contractions.matmul, _adjoint
    left = mm(p, mm(h(p), h(t)))
    right = mm(h(t), mm(h(p), p))
    change = -mm(p, mm(t, p)) + (left - mm(left, mm(a, p))) + (right - mm(p, mm(a, right)))
    return p, change


_pinv.defjvp(_pinv_jvp)


def pinv(
    a: ArrayLike,
    rtol: ArrayLike | None = None,
    hermitian: bool = False,
    *,
    rcond: ArrayLike | None = None,
) -> Array:
    """The Moore-Penrose inverse.

    Args:
      a: of shape `(..., m, n)`.
      rtol: singular values below this share of the largest count as zero.
      hermitian: accepted; the same method is used.
      rcond: older name of `rtol`.

        >>> jnp.linalg.pinv(jnp.array([[2.0], [0.0]]))
        Array([[0.5, 0. ]], dtype=float32)
    """
    a = _matrix("pinv", a)
    rtol = rcond if rtol is None else rtol
    if rtol is None:
        rtol = 10.0 * builtins.max(a.shape[-2:]) * float(dtypes.finfo(a.dtype).eps)
    return _pinv(a, convert(as_array("pinv", rtol), dtypes.finfo(a.dtype).dtype))


def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Array, Array, Array, Array]:
    """The `x` for which `|a · x - b|` is least.

    Args:
      a: of shape `(m, n)`.
      b: of shape `(m,)` or `(m, k)`.
      rcond: singular values below this share of the largest count as zero.
      numpy_resid: return no residuals where the rank is not full, as NumPy does; not under `jit`.

    Returns:
      The solution, the squared residuals, the rank and the singular values.

        >>> jnp.linalg.lstsq(jnp.eye(2), jnp.array([1.0, 2.0]))[0]
        Array([1., 2.], dtype=float32)
    """
    a, b = promote_dtypes_inexact(*as_arrays("jnp.linalg.lstsq", a, b))
    if a.shape[0] != b.shape[0]:
        raise ValueError("Leading dimensions of input arrays must match")
    if a.ndim != 2:
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be two-dimensional")
    vector = b.ndim == 1
    if b.ndim not in (1, 2):
        raise TypeError(f"{b.ndim}-dimensional array given. Array must be one or two-dimensional")
    rhs = lax.expand_dims(b, (1,)) if vector else b
    m, n = a.shape
    real = dtypes.finfo(a.dtype).dtype
    eps = float(dtypes.finfo(real).eps)
    rcond = eps * builtins.max(m, n) if rcond is None else (eps if rcond < 0 else rcond)
    u, s, vh = svd(a, full_matrices=False)
    kept = lax.ge(s, broadcast_to(lax.mul(s[0], np.asarray(rcond, s.dtype)), s.shape))
    rank = reductions.sum(kept, dtype=np.int32)
    safe = select(kept, s, constant(s, 1))
    inverse = select(kept, lax.div(constant(s, 1), safe), constant(s, 0))
    projected = contractions.matmul(_adjoint(u), rhs)
    x = contractions.matmul(
        _adjoint(vh), convert(lax.expand_dims(inverse, (1,)), a.dtype) * projected
    )
    residual = contractions.matmul(a, x) - rhs
    squares = reductions.sum(lax.square(lax.abs(residual)), 0)
    if numpy_resid and (int(rank) < n or m <= n):
        squares = lax.full((0,), 0, real)
    return (lax.squeeze(x, (1,)) if vector else x), squares, rank, s


def matrix_rank(
    M: ArrayLike, rtol: ArrayLike | None = None, *, hermitian: bool = False,
    tol: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The number of singular values that are not nearly zero.

    >>> jnp.linalg.matrix_rank(jnp.array([[1.0, 1.0], [1.0, 1.0]]))
    Array(1, dtype=int32)
    """
    M = as_array("jnp.linalg.matrix_rank", M)
    if M.ndim < 2:
        return convert(reductions.any(lax.ne(M, np.zeros((), M.dtype))), np.dtype("int32"))
    a = _matrix("matrix_rank", M)
    s = svd(a, compute_uv=False, hermitian=hermitian)
    if tol is None:
        if rtol is None:
            rtol = builtins.max(a.shape[-2:]) * float(dtypes.finfo(a.dtype).eps)
        largest = reductions.max(s, -1, keepdims=True)
        rtol = as_array("matrix_rank", rtol)
        rtol = lax.expand_dims(rtol, (rtol.ndim,)) if rtol.ndim else rtol
        tol = arithmetic.multiply(largest, rtol)
    else:
        tol = as_array("matrix_rank", tol)
        tol = lax.expand_dims(tol, (tol.ndim,)) if tol.ndim else tol
    return reductions.sum(logic.greater(s, tol), -1, dtype=np.int32)


def matrix_power(a: ArrayLike, n: int) -> Array:
    """A square matrix to an integer power.

    >>> jnp.linalg.matrix_power(jnp.array([[1.0, 1.0], [0.0, 1.0]]), 3)
    Array([[1., 3.],
           [0., 1.]], dtype=float32)
    """
    a = as_array("jnp.linalg.matrix_power", a)
    if a.ndim < 2:
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    if a.shape[-1] != a.shape[-2]:
        raise TypeError("Last 2 dimensions of the array must be square")
    try:
        n = n.__index__()
    except AttributeError:
        raise TypeError(f"exponent must be an integer, got {n}") from None
    if n == 0:
        return broadcast_to(convert(np.eye(a.shape[-1], dtype=np.float32), a.dtype), a.shape)
    if n < 0:
        a, n = inv(a), -n
    result = None
    while n:
        if n & 1:
            result = a if result is None else contractions.matmul(result, a)
        n >>= 1
        a = contractions.matmul(a, a) if n else a
    assert result is not None
    return result


def _vector_norm(x: Array, order: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    total = lambda v: reductions.sum(v, axes, keepdims=keepdims)
    if order is None or order == 2:
        if is_kind(x.dtype, np.complexfloating):
            squares = lax.add(lax.square(lax.real(x)), lax.square(lax.imag(x)))
        else:
            squares = lax.mul(x, x)
        return lax.sqrt(total(squares))
    if isinstance(order, str):
        raise ValueError(f"Invalid order '{order}' for vector norm.")
    magnitude = lax.abs(x)
    if order == np.inf:
        return reductions.max(magnitude, axes, keepdims=keepdims)
    if order == -np.inf:
        return reductions.min(magnitude, axes, keepdims=keepdims)
    if order == 0:
        return total(convert(lax.ne(x, constant(x, 0)), magnitude.dtype))
    if order == 1:
        return total(magnitude)
    power = convert(order, magnitude.dtype)
    shaped = broadcast_to(power, magnitude.shape)
    result = total(lax.pow(magnitude, shaped))
    return lax.pow(result, broadcast_to(lax.div(constant(power, 1), power), result.shape))


def _matrix_norm(x: Array, order: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    row, column = axes
    if order is None or order in ("f", "fro"):
        return _vector_norm(x, 2, axes, keepdims)
    magnitude = lax.abs(x)
    if order in (1, -1, np.inf, -np.inf):
        inner, outer_ = (row, column) if order in (1, -1) else (column, row)
        pick = reductions.max if order > 0 else reductions.min
        sums = reductions.sum(magnitude, inner, keepdims=True)
        result = pick(sums, outer_, keepdims=True)
        return result if keepdims else lax.squeeze(result, tuple(sorted(axes)))
    if order in ("nuc", 2, -2):
        s = svd(manipulation.moveaxis(x, axes, (-2, -1)), compute_uv=False)
        over: Any = {"nuc": reductions.sum, 2: reductions.max, -2: reductions.min}[order]
        result = over(s, -1)
        return lax.expand_dims(result, tuple(sorted(axes))) if keepdims else result
    raise ValueError(f"Invalid order '{order}' for matrix norm.")


@composite(static_argnames=("ord", "axis", "keepdims"))
def norm(x: ArrayLike, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """The norm of vectors or matrices.

    Args:
      x: array.
      ord: of vectors, any number, 0 or ±inf; of matrices, ±1, ±2, ±inf, "fro" or "nuc".
      axis: one axis of vectors, two of matrices; None means the whole array.
      keepdims: keep the reduced axes with size one.

        >>> jnp.linalg.norm(jnp.array([3.0, 4.0]))
        Array(5., dtype=float32)
    """
    (x,) = promote_dtypes_inexact(as_array("jnp.linalg.norm", x))
    if axis is None:
        if ord is None:
            return _vector_norm(x, 2, tuple(range(x.ndim)), keepdims)
        axes = tuple(range(x.ndim))
    else:
        axes = (
            canonical_axes(axis, x.ndim)
            if not isinstance(axis, tuple)
            else tuple(canonical_axes(i, x.ndim)[0] for i in axis)
        )
    if len(axes) == 1:
        return _vector_norm(x, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise ValueError(f"Improper number of axes for norm: {axes}")


def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of the matrices in the last two axes; arguments as for `norm`.

    >>> jnp.linalg.matrix_norm(jnp.eye(4))
    Array(2., dtype=float32)
    """
    return norm(x, ord, (-2, -1), keepdims)


def vector_norm(
    x: ArrayLike, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
) -> Array:
    """The norm of vectors; several axes, or all, are taken as one.

    >>> jnp.linalg.vector_norm(jnp.ones((2, 2)))
    Array(2., dtype=float32)
    """
    (x,) = promote_dtypes_inexact(as_array("jnp.linalg.vector_norm", x))
    return _vector_norm(x, ord, canonical_axes(axis, x.ndim), keepdims)


def cond(x: ArrayLike, p: Any = None) -> Array:
    """The condition number: the norm of a matrix times that of its inverse.

    >>> jnp.linalg.cond(jnp.array([[4.0, 0.0], [0.0, 2.0]]))
    Array(2., dtype=float32)
    """
    a = _matrix("cond", x)
    if p in (None, 2, -2):
        s = svd(a, compute_uv=False)
        ratio = s[..., 0] / s[..., -1]
        return 1 / ratio if p == -2 else ratio
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"jnp.linalg.cond: for {p=}, array must be square; got {a.shape=}")
    result = norm(a, p, (-2, -1)) * norm(inv(a), p, (-2, -1))
    # A matrix without NaN that has no inverse is infinitely ill-conditioned.
    spurious = lax.bitwise_and(
        lax.ne(result, result), lax.bitwise_not(reductions.any(lax.ne(a, a), (-2, -1)))
    )
    return select(spurious, constant(result, np.inf), result)


def multi_dot(arrays: Sequence[ArrayLike], *, precision: Any = None) -> Array:
    """The product of several matrices, in the cheapest order.

    >>> jnp.linalg.multi_dot([jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones(4)]).shape
    (2,)
    """
    from amdjax.numpy.einsum import einsum

    parts = as_arrays("jnp.linalg.multi_dot", *arrays)
    if len(parts) < 2:
        raise ValueError(f"multi_dot requires at least two arrays; got len(arrays)={len(parts)}")
    if parts[0].ndim not in (1, 2) or parts[-1].ndim not in (1, 2):
        raise ValueError("First and last array in multi_dot must be 1D or 2D; got shapes"
                         f" {parts[0].shape} and {parts[-1].shape}")  # fmt: skip
    if any(x.ndim != 2 for x in parts[1:-1]):
        raise ValueError("Arrays in multi_dot must be 2D, except the first and the last")
    terms: list[Any] = []
    for i, x in enumerate(parts):
        labels = [i, i + 1]
        if x.ndim == 1:
            labels = [1] if i == 0 else [i]
        terms += [x, labels]
    output = ([0] if parts[0].ndim == 2 else []) + ([len(parts)] if parts[-1].ndim == 2 else [])
    return einsum(*terms, output, optimize="optimal", precision=precision)


def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """The inverse of `a` as a map from its last axes to its first `ind`.

    >>> jnp.linalg.tensorinv(jnp.eye(4).reshape(2, 2, 2, 2)).shape
    (2, 2, 2, 2)
    """
    a = as_array("jnp.linalg.tensorinv", a)
    ind = int(ind)
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got {ind=}")
    rows, columns = a.shape[:ind], a.shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise ValueError(f"tensorinv: shape {a.shape} with {ind=} is not that of a square map")
    flat = lax.reshape(a, (math.prod(rows), math.prod(columns)))
    return lax.reshape(inv(flat), (*columns, *rows))


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """The solution of `tensordot(a, x, x.ndim) = b`.

    >>> jnp.linalg.tensorsolve(jnp.eye(4).reshape(2, 2, 2, 2), jnp.ones((2, 2))).shape
    (2, 2)
    """
    a, b = as_arrays("jnp.linalg.tensorsolve", a, b)
    if axes is not None:
        a = manipulation.moveaxis(a, tuple(axes), tuple(range(a.ndim - len(axes), a.ndim)))
    shape = a.shape[b.ndim :]
    if a.shape[: b.ndim] != b.shape or math.prod(shape) != b.size:
        raise ValueError(f"tensorsolve: a of shape {a.shape} and b of shape {b.shape} do not fit")
    flat = lax.reshape(a, (b.size, math.prod(shape)))
    return lax.reshape(solve(flat, lax.reshape(b, (b.size,))), shape)


def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of three elements.

    >>> jnp.linalg.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    x, y = as_arrays("jnp.linalg.cross", x1, x2)
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they have"
            f" {x.shape[axis]} and {y.shape[axis]} dimensions instead."
        )
    return contractions.cross(x, y, axis=axis)


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The products of all pairs of elements of two vectors.

    >>> jnp.linalg.outer(jnp.array([1, 2]), jnp.array([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    x, y = as_arrays("jnp.linalg.outer", x1, x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(
            f"Input arrays must be one-dimensional, but they are {x.ndim} and {y.ndim}"
        )
    return contractions.outer(x, y)


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """The diagonals of the matrices in the last two axes.

    >>> jnp.linalg.diagonal(jnp.array([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    return diagonals.diagonal(x, offset, -2, -1)


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike = None) -> Array:
    """The sums of the diagonals of the matrices in the last two axes.

    >>> jnp.linalg.trace(jnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    return diagonals.trace(x, offset, -2, -1, dtype)


def matmul(
    x1: ArrayLike, x2: ArrayLike, /, *, precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:  # fmt: skip
    """The matrix product; see `amdjax.numpy.matmul`.

    >>> jnp.linalg.matmul(jnp.eye(2), jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    return contractions.matmul(
        x1, x2, precision=precision, preferred_element_type=preferred_element_type
    )


def matrix_transpose(x: ArrayLike, /) -> Array:
    """`x` with its last two axes exchanged.

    >>> jnp.linalg.matrix_transpose(jnp.ones((2, 3))).shape
    (3, 2)
    """
    return manipulation.matrix_transpose(x)


def tensordot(
    x1: ArrayLike, x2: ArrayLike, /, *, axes: Any = 2, precision: Any = None,
    preferred_element_type: DTypeLike = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """The sum of products over several axes; see `amdjax.numpy.tensordot`.

    >>> jnp.linalg.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    return contractions.tensordot(
        x1, x2, axes, precision=precision, preferred_element_type=preferred_element_type
    )


def vecdot(
    x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1, precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:  # fmt: skip
    """The dot products of vectors; see `amdjax.numpy.vecdot`.

    >>> jnp.linalg.vecdot(jnp.ones(3), jnp.ones(3))
    Array(3., dtype=float32)
    """
    return contractions.vecdot(
        x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type
    )


_public_surface(globals())
