"""Functions of matrices: exponential, square root, any function of the eigenvalues."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike
from amdjax.numpy.decompositions import adjoint
from amdjax.scipy.linalg.factorizations import inexact, rsf2csf, schur
from amdjax.scipy.linalg.solvers import solve_triangular
from amdjax.transforms import jvp

# Up to which 1-norm Padé's approximant of a degree is exact to rounding (Higham 2005, table 2.3;
# Al-Mohy and Higham 2009 for single precision).
_REACH = {
    np.dtype(np.float64): {
        3: 1.495585217958292e-2, 5: 2.539398330063230e-1, 7: 9.504178996162932e-1,
        9: 2.097847961257068, 13: 5.371920351148152,
    },
    np.dtype(np.float32): {3: 4.258730016922831e-1, 5: 1.880152677804762, 7: 3.925724783138660},
}  # fmt: skip


@composite(static_argnames=("upper_triangular", "max_squarings"))
def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """The exponential of a matrix, by scaling, Padé's approximant and squaring.

    Args:
      A: of shape `(..., n, n)`.
      upper_triangular: promise that `A` is, which saves a factorization.
      max_squarings: where more are needed (a norm beyond about `2**max_squarings`), the result is
        NaN.

    Returns:
      The exponentials, of the same shape.

    Raises:
      ValueError: `A` is not square.
      TypeError: `A` has a dtype of 16 bits or less.

    Source: Higham, "The scaling and squaring method for the matrix exponential revisited", 2005.

        >>> amdjax.scipy.linalg.expm(jnp.array([[0.0, 1.0], [0.0, 0.0]]))
        Array([[1., 1.],
               [0., 1.]], dtype=float32)
    """
    (a,) = inexact(A)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Expected A to be a (batched) square matrix, got A.shape={a.shape}.")
    if dtypes.finfo(a.dtype).dtype not in _REACH:
        raise TypeError(f"A.dtype={a.dtype} is not supported.")
    one = functools.partial(_expm, upper_triangular=upper_triangular, max_squarings=max_squarings)
    return jnp.vectorize(one, signature="(n,n)->(n,n)")(a)


def _expm(a: Array, *, upper_triangular: bool, max_squarings: int) -> Array:
    reach = _REACH[np.dtype(dtypes.finfo(a.dtype).dtype)]
    *limits, largest = reach.values()
    size = jnp.linalg.norm(a, 1) if a.size else jnp.zeros((), dtypes.finfo(a.dtype).dtype)
    squarings = jnp.maximum(0, jnp.floor(jnp.log2(size / largest)))
    scaled = a / (2**squarings).astype(a.dtype)
    degree = jnp.searchsorted(np.asarray(limits, size.dtype), size, side="right")
    approximants = [functools.partial(_pade, degree=m) for m in reach]
    odd, even = lax.switch(degree, approximants, scaled)
    solve = solve_triangular if upper_triangular else jnp.linalg.solve
    root = solve(even - odd, even + odd)

    def square(r: Array, i: Array) -> tuple[Array, None]:
        return lax.cond(i < squarings, lambda r: r @ r, lambda r: r, r), None

    result, _ = lax.scan(square, root, jnp.arange(max_squarings, dtype=squarings.dtype))
    return jnp.where(squarings > max_squarings, jnp.nan, result)


def _pade(a: Array, *, degree: int) -> tuple[Array, Array]:
    """The odd and the even part of the numerator of Padé's diagonal approximant of the exponential.

    The powers are of `a²`; beyond `a⁶` they are products with `a⁶`, as in Higham.
    """
    # b[k] = (2m - k)! / (k! (m - k)!), scaled so that the last is one.
    whole = [
        math.factorial(2 * degree - k) // (math.factorial(k) * math.factorial(degree - k))
        for k in range(degree + 1)
    ]
    b = [float(c) for c in whole]
    identity = jnp.eye(a.shape[0], dtype=a.dtype)
    a2 = a @ a
    powers = [identity, a2]
    for _ in range(2, min(degree // 2, 4 if degree < 13 else 3) + 1):
        powers.append(powers[-1] @ a2)

    def series(first: int) -> Array:
        total = sum((b[2 * k + first] * p for k, p in enumerate(powers)), jnp.zeros_like(a))
        if degree == 13:
            high = sum(b[2 * k + 6 + first] * powers[k] for k in (1, 2, 3))
            total = total + powers[3] @ high
        return total

    return a @ series(1), series(0)


@composite(static_argnames=("method", "compute_expm"))
def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Any:
    """The derivative of the matrix exponential at `A` in the direction `E`.

    Args:
      A: of shape `(..., n, n)`.
      E: of the same shape.
      method: accepted; forward-mode differentiation of `expm` is used.
      compute_expm: return the exponential too.

    Returns:
      `(expm(A), derivative)`, or the derivative.

    Raises:
      ValueError: an argument is not square, or the shapes differ.

        >>> amdjax.scipy.linalg.expm_frechet(jnp.zeros((1, 1)), jnp.ones((1, 1)))[1]
        Array([[1.]], dtype=float32)
    """
    a, e = inexact(A, E)
    for name, x in (("A", a), ("E", e)):
        if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
            raise ValueError(
                f"expected {name} to be a (batched) square matrix, got {name}.shape={x.shape}"
            )
    if a.shape != e.shape:
        raise ValueError(
            f"expected A and E to be the same shape, got A.shape={a.shape} E.shape={e.shape}"
        )
    value, derivative = jvp(expm, (a,), (e,))
    return (value, derivative) if compute_expm else derivative


@composite(static_argnames="blocksize")
def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """The principal square root of a matrix, by its complex Schur form.

    Args:
      A: of shape `(n, n)`.
      blocksize: must be 1.

    Returns:
      The root, complex.

    Raises:
      NotImplementedError: `blocksize` is more than 1.
      ValueError: `A` is more than one matrix.

    Source: Björck and Hammarling, "A Schur method for the square root of a matrix", 1983.

        >>> amdjax.scipy.linalg.sqrtm(jnp.array([[4.0, 0.0], [0.0, 9.0]])).real
        Array([[2., 0.],
               [0., 3.]], dtype=float32)
    """
    if blocksize > 1:
        raise NotImplementedError(f"sqrtm: blocksize must be 1, got {blocksize}")
    if jnp.ndim(A) > 2:
        raise ValueError(f"sqrtm takes one matrix, got an array of shape {jnp.shape(A)}.")
    t, z = schur(A, output="complex")
    return z @ _triangular_root(t) @ adjoint(z)


def _triangular_root(t: Array) -> Array:
    """The root of an upper triangle, one superdiagonal after the other."""
    n = t.shape[0]
    roots = jnp.sqrt(jnp.diagonal(t))
    row = jnp.arange(n)

    def superdiagonal(d: Any, u: Array) -> Array:
        column = jnp.minimum(row + d, n - 1)
        # Entries that are not there yet are zero, so only those between row and column count; of
        # these the ends, which the diagonal multiplies, are among the missing.
        inner = jnp.sum(u * u[:, column].T, axis=1)
        missing = t[row, column] - inner
        value = jnp.where(missing == 0, 0, missing / (roots + roots[column]))
        return u.at[row, row + d].set(value, mode="drop")

    return lax.fori_loop(1, n, superdiagonal, jnp.diag(roots))


def funm(A: ArrayLike, func: Callable[[Array], Array], disp: bool = True) -> Any:
    """A function of a matrix, given by the function of its eigenvalues.

    Args:
      A: of shape `(n, n)`.
      func: takes an array of eigenvalues elementwise.
      disp: return the matrix alone; nothing is printed.

    Returns:
      The matrix, complex; and, if `disp` is false, an estimate of the relative error.

    Raises:
      ValueError: `A` is not a square matrix.

    Source: Golub and Van Loan, "Matrix Computations", algorithm 11.1.1.

        >>> root = amdjax.scipy.linalg.funm(jnp.array([[4.0, 0.0], [0.0, 9.0]]), jnp.sqrt)
        >>> jnp.round(root.real, 3)
        Array([[2., 0.],
               [0., 3.]], dtype=float32)
    """
    (a,) = inexact(A)
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"expected square array_like input, got shape {a.shape}")
    t, z = rsf2csf(*schur(a))
    f, smallest = _parlett(t, func)
    f = z @ f @ adjoint(z)
    if disp:
        return f
    eps = dtypes.finfo(f.dtype).eps
    smallest = jnp.where(smallest == 0, eps, smallest)
    error = jnp.clip(eps / smallest * jnp.linalg.norm(jnp.triu(t, 1), 1), eps, 1)
    return f, jnp.where(jnp.any(jnp.isinf(f)), jnp.inf, error)


def _parlett(t: Array, func: Callable[[Array], Array]) -> tuple[Array, Array]:
    """`func` of an upper triangle by Parlett's recurrence; the smallest divisor that it met."""
    n = t.shape[0]
    values = func(jnp.diagonal(t)).astype(t.dtype)
    diagonal = jnp.diagonal(t)
    row = jnp.arange(n)
    upper = jnp.triu(t, 1)

    def superdiagonal(d: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        f, smallest = carry
        column = jnp.minimum(row + d, n - 1)
        inside = row + d < n
        strict = f - jnp.diag(values)
        entry = t[row, column]
        commuted = jnp.sum(upper * strict[:, column].T, 1) - jnp.sum(strict * upper[:, column].T, 1)
        gap = diagonal[column] - diagonal
        numerator = entry * (values[column] - values) + commuted
        value = jnp.where(gap == 0, numerator, numerator / jnp.where(gap == 0, 1, gap))
        f = f.at[row, row + d].set(value, mode="drop")
        return f, jnp.minimum(smallest, jnp.min(jnp.where(inside, abs(gap), jnp.inf)))

    one = abs(t[0, 0]) if n else jnp.ones((), dtypes.finfo(t.dtype).dtype)
    return lax.fori_loop(1, n, superdiagonal, (jnp.diag(values), one))
