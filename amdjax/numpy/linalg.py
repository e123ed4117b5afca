"""Linear algebra: `numpy.linalg`. Leading axes are batches of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.core.dims import max_dim
from amdjax.core.docs import complete as _complete
from amdjax.numpy import (
    _docs,
    arithmetic,
    contractions,
    diagonals,
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
    constant,
    convert,
    is_kind,
    promote_dtypes_inexact,
    select,
    stop_gradient,
    strong,
)
from amdjax.numpy.creation import eye
from amdjax.numpy.decompositions import (
    adjoint,
    as_matrix,
    as_square,
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from amdjax.numpy.einsum import einsum
from amdjax.numpy.norms import matrix_norm, norm, vector_norm
from amdjax.transforms import custom_jvp

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv",
    "lstsq", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose",
    "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]  # fmt: skip


class SlogdetResult(NamedTuple):
    """Result of `slogdet`."""

    sign: Array
    logabsdet: Array


#: Products of what is solved or decomposed: in full precision, whatever the setting.
_matmul = partial(contractions.matmul, precision=lax.Precision.HIGHEST)


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
    v = adjoint(vh)
    scaled = v * convert(lax.expand_dims(rest, (rest.ndim - 1,)), v.dtype)
    product = _matmul(scaled, adjoint(u))
    return product * lax.expand_dims(phase, (phase.ndim, phase.ndim + 1))


def _det_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a,), (t,) = primals, tangents
    product = _matmul(_cofactors(a), t)
    return _det(a), diagonals.trace(product, axis1=-2, axis2=-1)


_det.defjvp(_det_jvp)


@composite
def det(a: ArrayLike) -> Array:
    """The determinant.

    >>> jnp.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., dtype=float32)
    """
    return _det(as_square("det", a))


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
    return SlogdetResult(*_slogdet(as_square("slogdet", a)))


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


@composite
def _solve(a: Array, b: Array) -> Array:
    """Through one factorization, which the derivatives share."""
    lu, permutation = _factors(a)
    product = lambda x: _matmul(a, x)
    forward = lambda _, y: _back_substitute(lu, permutation, y, False)
    backward = lambda _, y: _back_substitute(lu, permutation, y, True)
    return lax.custom_linear_solve(product, b, solve=forward, transpose_solve=backward)


def inv(a: ArrayLike) -> Array:
    """The inverse of a square matrix.

    >>> jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    a = as_square("inv", a)
    n = a.shape[-1]
    return solve(a, broadcast_to(eye(n, dtype=a.dtype), a.shape))


@custom_jvp
def _pinv(a: Array, rtol: Array) -> Array:
    u, s, vh = lax.linalg.svd(a, full_matrices=False)
    if not s.shape[-1]:
        return lax.full((*a.shape[:-2], a.shape[-1], a.shape[-2]), 0, a.dtype)
    largest = lax.slice_in_dim(s, 0, 1, axis=s.ndim - 1)
    rtol = lax.expand_dims(rtol, (rtol.ndim,)) if rtol.ndim else rtol
    cutoff = arithmetic.multiply(rtol, largest)
    kept = lax.gt(s, broadcast_to(convert(cutoff, s.dtype), s.shape))
    inverse = select(kept, lax.div(constant(s, 1), select(kept, s, constant(s, 1))), constant(s, 0))
    scaled = adjoint(vh) * convert(lax.expand_dims(inverse, (s.ndim - 1,)), a.dtype)
    return _matmul(scaled, adjoint(u))


def _pinv_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """The derivative for constant rank, of Golub and Pereyra (1973)."""
    (a, rtol), (t, *_) = primals, tangents
    p = _pinv(a, rtol)
    mm, h = _matmul, adjoint
    wide = a.shape[-2] < a.shape[-1]  # squares of the longer extent are never formed
    product = lambda x, y, z: mm(x, mm(y, z)) if wide else mm(mm(x, y), z)
    left = product(p, h(p), h(t))
    right = product(h(t), h(p), p)
    change = (left - product(left, a, p)) + (right - product(p, a, right)) - product(p, t, p)
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
    a = as_matrix("pinv", a)
    if rtol is not None and rcond is not None:
        raise ValueError("pinv: only one of rtol and rcond may be specified.")
    rtol = rcond if rtol is None else rtol
    if rtol is None:
        rtol = 10.0 * max_dim(*a.shape[-2:]) * float(dtypes.finfo(a.dtype).eps)
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
    if rcond is None:
        rcond = eps * max_dim(m, n)
    elif isinstance(rcond, Array):
        rcond = select(lax.lt(rcond, constant(rcond, 0)), constant(rcond, eps), rcond)
    elif rcond < 0:
        rcond = eps
    u, s, vh = svd(a, full_matrices=False)
    largest = reductions.max(s, initial=0)
    kept = lax.ge(s, broadcast_to(lax.mul(largest, strong(s, rcond)), s.shape))
    kept = lax.bitwise_and(kept, lax.gt(s, constant(s, 0)))
    rank = reductions.sum(kept, dtype=np.int32)
    safe = select(kept, s, constant(s, 1))
    inverse = select(kept, lax.div(constant(s, 1), safe), constant(s, 0))
    projected = _matmul(adjoint(u), rhs)
    x = _matmul(adjoint(vh), convert(lax.expand_dims(inverse, (1,)), a.dtype) * projected)
    residual = _matmul(a, x) - rhs
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
    if rtol is not None and tol is not None:
        raise ValueError("matrix_rank: only one of tol or rtol may be specified.")
    if M.ndim < 2:
        return convert(reductions.any(lax.ne(M, np.zeros((), M.dtype))), np.int32)
    a = as_matrix("matrix_rank", M)
    s = svd(a, compute_uv=False, hermitian=hermitian)
    if tol is None:
        if rtol is None:
            rtol = max_dim(*a.shape[-2:]) * float(dtypes.finfo(a.dtype).eps)
        largest = reductions.max(s, -1, keepdims=True)
        rtol = as_array("matrix_rank", rtol)
        rtol = lax.expand_dims(rtol, (rtol.ndim,)) if rtol.ndim else rtol
        tol = arithmetic.multiply(largest, rtol)
    else:
        tol = as_array("matrix_rank", tol)
        tol = lax.expand_dims(tol, (tol.ndim,)) if tol.ndim else tol
    return reductions.sum(logic.greater(s, tol), -1)


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


def cond(x: ArrayLike, p: Any = None) -> Array:
    """The condition number: the norm of a matrix times that of its inverse.

    >>> jnp.linalg.cond(jnp.array([[4.0, 0.0], [0.0, 2.0]]))
    Array(2., dtype=float32)
    """
    a = as_matrix("cond", x)
    if 0 in a.shape[-2:]:
        raise ValueError(f"jnp.linalg.cond: input array must not be empty; got arr.shape={a.shape}")
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


_complete(globals(), _docs.LINALG, _docs.PHRASES)
_public_surface(globals())
