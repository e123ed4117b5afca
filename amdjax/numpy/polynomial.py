"""Polynomials given by their coefficients, the highest power first."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.dims import is_symbolic_dim, max_dim
from amdjax.numpy import linalg, reductions
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    as_arrays,
    broadcast_to,
    concrete_int,
    constant,
    convert,
    promote_dtypes,
    promote_dtypes_inexact,
    strong,
)
from amdjax.numpy.contractions import convolve, dot, outer
from amdjax.numpy.conversion import asarray
from amdjax.numpy.creation import eye
from amdjax.numpy.diagonals import vander
from amdjax.numpy.joining import concatenate, trim_zeros
from amdjax.numpy.manipulation import atleast_1d


@composite(static_argnames="unroll")
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """The value of a polynomial, by Horner's rule.

    >>> jnp.polyval(jnp.array([1.0, 0.0, 2.0]), 3.0)
    Array(11., dtype=float32)
    """
    p, x = promote_dtypes(*as_arrays("polyval", p, x))
    shape = lax.broadcast_shapes(p.shape[1:], x.shape)
    x = broadcast_to(x, shape)
    total = lax.full(shape, 0, x.dtype)
    step = lambda total, c: (lax.add(lax.mul(total, x), broadcast_to(c, shape)), None)
    if is_symbolic_dim(p.shape[0]):
        return lax.scan(step, total, p)[0]
    for i in range(p.shape[0]):
        total, _ = step(total, lax.index_in_dim(p, i, keepdims=False))
    return total


def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The sum of two polynomials.

    >>> jnp.polyadd(jnp.array([1, 2]), jnp.array([3]))
    Array([1, 5], dtype=int32)
    """
    a, b = promote_dtypes(*as_arrays("polyadd", a1, a2))
    n = max_dim(a.shape[0], b.shape[0])
    rest = [(0, 0, 0)] * (a.ndim - 1)
    lift = lambda v: lax.pad(v, np.zeros((), v.dtype), [(n - v.shape[0], 0, 0), *rest])
    return lax.add(lift(a), lift(b))


def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The difference of two polynomials.

    >>> jnp.polysub(jnp.array([1, 2]), jnp.array([3]))
    Array([ 1, -1], dtype=int32)
    """
    a, b = promote_dtypes(*as_arrays("polysub", a1, a2))
    return polyadd(a, lax.neg(b))


def _trimmed(x: Array) -> Array:
    return trim_zeros(x, "f")


def _vectors(name: str, *polynomials: ArrayLike) -> list[Array]:
    arrays = as_arrays(name, *polynomials)
    if any(not x.ndim for x in arrays):
        raise TypeError(f"{name} takes vectors of coefficients, got shapes "
                        f"{', '.join(str(x.shape) for x in arrays)}")  # fmt: skip
    return arrays


def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """The product of two polynomials.

    Args:
      a1: coefficients.
      trim_leading_zeros: drop leading zeros first; not under `jit`.

        >>> jnp.polymul(jnp.array([1.0, 2.0]), jnp.array([1.0, 3.0]))
        Array([1., 5., 6.], dtype=float32)
    """
    a, b = promote_dtypes_inexact(*_vectors("polymul", a1, a2))
    if trim_leading_zeros and (a.size > 1 or b.size > 1):
        a, b = _trimmed(a), _trimmed(b)
    one = lambda v: v if v.size else lax.full((1,), 0, v.dtype)
    return convolve(one(a), one(b), precision=lax.Precision.HIGHEST)


def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """Quotient and remainder of two polynomials.

    >>> jnp.polydiv(jnp.array([1.0, 5.0, 6.0]), jnp.array([1.0, 2.0]))[0]
    Array([1., 3.], dtype=float32)
    """
    u, v = promote_dtypes_inexact(*_vectors("polydiv", u, v))
    m, n = u.shape[0] - 1, v.shape[0] - 1
    quotient = []
    rest = u
    for k in range(max(m - n + 1, 0)):
        d = lax.div(rest[k], v[0])
        quotient.append(d)
        rest = rest.at[k : k + n + 1].add(lax.neg(lax.mul(broadcast_to(d, v.shape), v)))
    rest = _trimmed(rest) if trim_leading_zeros else rest
    if not quotient:
        return lax.full((1,), 0, u.dtype), rest
    return concatenate([lax.reshape(d, (1,)) for d in quotient]), rest


def polyder(p: ArrayLike, m: int = 1) -> Array:
    """The `m`-th derivative of a polynomial.

    >>> jnp.polyder(jnp.array([1.0, 2.0, 3.0]))
    Array([2., 2.], dtype=float32)
    """
    m = concrete_int(m, "m of polyder")
    if m < 0:
        raise ValueError("Order of derivative must be positive")
    (p,) = promote_dtypes_inexact(as_array("polyder", p))
    if not p.ndim:
        raise TypeError("polyder: p must be a vector, got a scalar")
    if m == 0:
        return p
    n = p.shape[0]
    rest = lax.slice_in_dim(p, 0, max_dim(n - m, 0))
    factors: Any = np.ones((), np.float64)
    for i in range(m):
        factors = factors * _downwards(n - 1 - i, rest)
    return lax.mul(rest, _factors(factors, rest))


def _downwards(highest: Any, like: Array) -> Any:
    """Integers from the highest down, as many as a vector has elements."""
    count = like.shape[0]
    if not is_symbolic_dim(count):
        return np.arange(highest, highest - count, -1)
    steps = lax.iota(np.dtype("int32"), count)
    return convert(lax.sub(strong(steps, highest), steps), like.dtype)


def _factors(values: Any, like: Array) -> Array:
    return (
        convert(asarray(values), like.dtype)
        if isinstance(values, Array)
        else asarray(values.astype(like.dtype))
    )


def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Array:
    """The `m`-th antiderivative of a polynomial, with integration constants `k`.

    >>> jnp.polyint(jnp.array([2.0, 2.0]))
    Array([1., 2., 0.], dtype=float32)
    """
    p, m = as_array("polyint", p), concrete_int(m, "m of polyint")
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    k = 0 if k is None else k
    p, k = promote_dtypes_inexact(p, asarray(k))
    if not p.ndim:
        raise TypeError("polyint: p must be a vector, got a scalar")
    k = lax.reshape(k, (k.size,))
    if k.size == 1:
        k = broadcast_to(k, (m,))
    if k.shape != (m,):
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or m.")
    if m == 0:
        return p
    result = p
    for i in range(m):
        n = result.shape[0]
        divided = lax.div(result, _factors(_downwards(n, result), result))
        result = concatenate([divided, lax.slice_in_dim(k, i, i + 1)])
    return result


def poly(seq_of_zeros: ArrayLike) -> Array:
    """The polynomial with given roots, or the characteristic polynomial of a matrix.

    >>> jnp.poly(jnp.array([1.0, 2.0]))
    Array([ 1., -3.,  2.], dtype=float32)
    """
    (zeros,) = promote_dtypes_inexact(atleast_1d(as_array("poly", seq_of_zeros)))
    if zeros.ndim == 2:
        zeros = linalg.eigvals(zeros)
    if zeros.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    result = lax.full((1,), 1, zeros.dtype)
    for i in range(zeros.size):
        shifted = lax.pad(result, np.zeros((), zeros.dtype), [(0, 1, 0)])
        scaled = lax.pad(lax.mul(result, broadcast_to(zeros[i], result.shape)),
                         np.zeros((), zeros.dtype), [(1, 0, 0)])  # fmt: skip
        result = lax.sub(shifted, scaled)
    return result


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """The roots of a polynomial, as eigenvalues of its companion matrix.

    Args:
      p: coefficients.
      strip_zeros: treat leading and trailing zeros apart; not under `jit`.

        >>> jnp.roots(jnp.array([1.0, -3.0, 2.0])).shape
        (2,)
    """
    (p,) = promote_dtypes_inexact(atleast_1d(as_array("roots", p)))
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    target = dtypes.to_complex_dtype(p.dtype)
    zeros = 0
    if strip_zeros:
        p = trim_zeros(p, "f")
        short = trim_zeros(p, "b")
        zeros, p = p.size - short.size, short
    if p.size < 2:
        return lax.full((zeros,), 0, target)
    n = p.size - 1
    first = lax.neg(lax.div(p[1:], broadcast_to(p[0], (n,))))
    companion = lax.pad(eye(n - 1, n, dtype=p.dtype), np.zeros((), p.dtype), [(1, 0, 0), (0, 0, 0)])
    companion = companion.at[0].set(first)
    found = convert(linalg.eigvals(companion), target)
    return concatenate([found, lax.full((zeros,), 0, target)]) if zeros else found


def polyfit(
    x: ArrayLike, y: ArrayLike, deg: int, rcond: float | None = None, full: bool = False,
    w: ArrayLike | None = None, cov: bool | str = False,
) -> Any:  # fmt: skip
    """The polynomial of degree `deg` closest to samples in the sense of least squares.

    Args:
      x: where the samples were taken.
      y: samples, a vector or one set a column.
      deg: degree.
      rcond: singular values below this share of the largest count as zero.
      full: also return residuals, rank, singular values and `rcond`.
      w: weights of the residuals.
      cov: also return the covariance of the coefficients; "unscaled" trusts the weights.

        >>> jnp.polyfit(jnp.array([0.0, 1.0, 2.0]), jnp.array([1.0, 3.0, 5.0]), 1).shape
        (2,)
    """
    x, y = promote_dtypes_inexact(*as_arrays("polyfit", x, y))
    deg = int(deg)
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1 or not x.size:
        raise TypeError("expected 1D non-empty vector for x")
    if y.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")
    if rcond is None:
        rcond = x.size * float(dtypes.finfo(x.dtype).eps)
    left, right = vander(x, deg + 1), y
    if w is not None:
        (w,) = promote_dtypes_inexact(as_array("polyfit", w))
        if w.ndim != 1 or w.shape[0] != y.shape[0]:
            raise TypeError("expected w and y to have the same length")
        left = lax.mul(left, lax.broadcast_in_dim(w, left.shape, (0,)))
        right = lax.mul(right, lax.broadcast_in_dim(w, right.shape, (0,)))
    scale = lax.sqrt(reductions.sum(lax.square(left), 0))
    left = lax.div(left, broadcast_to(scale, left.shape))
    c, residuals, rank, s = linalg.lstsq(left, right, rcond)
    c = lax.div(c, lax.broadcast_in_dim(scale, c.shape, (0,)))
    if full:
        return c, residuals, rank, s, rcond
    if not cov:
        return c
    base = linalg.inv(dot(lax.transpose(left, (1, 0)), left))
    base = lax.div(base, outer(scale, scale))
    if cov == "unscaled":
        return c, base if y.ndim == 1 else lax.expand_dims(base, (2,))
    free = x.size - deg - 1
    if free <= 0:
        raise ValueError(
            "the number of data points must exceed order to scale the covariance matrix"
        )
    factor = lax.div(residuals, constant(residuals, free))
    if y.ndim == 1:
        return c, lax.mul(base, broadcast_to(factor, base.shape))
    wide = (*base.shape, factor.size)
    return c, lax.mul(
        lax.broadcast_in_dim(base, wide, (0, 1)), lax.broadcast_in_dim(factor, wide, (2,))
    )
