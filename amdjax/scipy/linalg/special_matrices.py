"""Matrices with a structure: Toeplitz, Hankel, companion, Hadamard and others."""

from __future__ import annotations

import math
import operator

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.dims import is_symbolic_dim
from amdjax.numpy._util import (
    ArrayLike,
    DTypeLike,
    check_arraylike,
    promote_args_inexact,
    promote_dtypes,
)


@composite
def block_diag(*arrs: ArrayLike) -> Array:
    """A matrix with the arguments along its diagonal, zero elsewhere.

    Args:
      arrs: matrices; vectors and scalars are rows.

    Returns:
      A matrix whose numbers of rows and columns are the sums of those of the blocks.

    Raises:
      ValueError: a block has more than two axes.

        >>> amdjax.scipy.linalg.block_diag(jnp.ones((1, 2)), 3.0)
        Array([[1., 1., 0.],
               [0., 0., 3.]], dtype=float32)
    """
    blocks = promote_dtypes(*arrs) if arrs else [jnp.zeros((1, 0))]
    for position, block in enumerate(blocks):
        if block.ndim > 2:
            raise ValueError(
                "Arguments to amdjax.scipy.linalg.block_diag must have at most 2 dimensions, got"
                f" {block} at argument {position}."
            )
    blocks = [jnp.atleast_2d(block) for block in blocks]
    width = sum(block.shape[1] for block in blocks)
    rows, start = [], 0
    for block in blocks:
        rest = width - start - block.shape[1]
        rows.append(jnp.pad(block, ((0, 0), (start, rest))))
        start += block.shape[1]
    return jnp.concatenate(rows)


def _sliding(values: Array, start: np.ndarray | Array) -> Array:
    """`values[..., start]`: each row of the matrix is a window of the vector."""
    return jnp.take(values, start, axis=-1)


def _places(n: int) -> np.ndarray | Array:
    return jnp.arange(n) if is_symbolic_dim(n) else np.arange(n)


def _joined(c: Array, r: Array) -> tuple[Array, Array]:
    """Both vectors with one dtype and the same leading axes."""
    c, r = promote_dtypes(c, r)
    batch = lax.broadcast_shapes(c.shape[:-1], r.shape[:-1])
    return (jnp.broadcast_to(c, (*batch, c.shape[-1])), jnp.broadcast_to(r, (*batch, r.shape[-1])))


@composite
def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """The matrix with a first column and a first row whose diagonals are constant.

    Args:
      r: the first row, of shape `(..., n)`, whose first entry is not read; by default the conjugate
        of `c`.

        >>> amdjax.scipy.linalg.toeplitz(jnp.array([1, 2, 3]), jnp.array([1, 5]))
        Array([[1, 5],
               [2, 1],
               [3, 2]], dtype=int32)
    """
    check_arraylike("toeplitz", *((c,) if r is None else (c, r)))
    column = jnp.atleast_1d(c)
    row = jnp.conj(column) if r is None else jnp.atleast_1d(r)
    column, row = _joined(column, row)
    m, n = column.shape[-1], row.shape[-1]
    if m == 0 or n == 0:
        return jnp.zeros((*column.shape[:-1], m, n), column.dtype)
    values = jnp.concatenate([jnp.flip(column, -1), row[..., 1:]], axis=-1)
    return _sliding(values, m - 1 - _places(m)[:, None] + _places(n))


@composite
def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """The matrix with a first column and a last row whose antidiagonals are constant.

    Args:
      r: the last row, of shape `(..., n)`, whose first entry is not read; by default zeros, as many
        as `c` has entries.

    Raises:
      ValueError: an argument is a scalar.

        >>> amdjax.scipy.linalg.hankel(jnp.array([1, 2]), jnp.array([2, 7, 8]))
        Array([[1, 2, 7],
               [2, 7, 8]], dtype=int32)
    """
    check_arraylike("hankel", *((c,) if r is None else (c, r)))
    column = jnp.asarray(c)
    row = jnp.zeros_like(column) if r is None else jnp.asarray(r)
    for name, x in (("c", column), ("r", row)):
        if x.ndim == 0:
            raise ValueError(f"hankel: {name} must be at least 1-dimensional, got a scalar.")
    column, row = _joined(column, row)
    m, n = column.shape[-1], row.shape[-1]
    if m == 0 or n == 0:
        return jnp.zeros((*column.shape[:-1], m, n), column.dtype)
    values = jnp.concatenate([column, row[..., 1:]], axis=-1)
    return _sliding(values, _places(m)[:, None] + _places(n))


@composite
def circulant(c: ArrayLike) -> Array:
    """The matrix whose columns are one vector, turned by one place from column to column.

    Args:
      c: the first column, of shape `(..., n)`.

        >>> amdjax.scipy.linalg.circulant(jnp.array([1, 2, 3]))
        Array([[1, 3, 2],
               [2, 1, 3],
               [3, 2, 1]], dtype=int32)
    """
    check_arraylike("circulant", c)
    column = jnp.atleast_1d(c)
    places = _places(column.shape[-1])
    return _sliding(column, (places[:, None] - places) % max(column.shape[-1], 1))


def _coefficients(name: str, a: ArrayLike) -> Array:
    (a,) = promote_args_inexact(name, a)
    return a[None] if a.ndim == 0 else a


def _first_row_over(row: Array, below: Array) -> Array:
    return jnp.concatenate([row[..., None, :], below], axis=-2)


@composite
def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """Leslie's matrix of a population with age groups.

    Args:
      f: fecundities, the first row, of shape `(..., n)`.
      s: survival rates, below the diagonal, of shape `(..., n - 1)`.

    Raises:
      ValueError: `f` has fewer than two entries, or `s` not one less than `f`.

        >>> amdjax.scipy.linalg.leslie(jnp.array([0.0, 2.0]), jnp.array([0.5]))
        Array([[0. , 2. ],
               [0.5, 0. ]], dtype=float32)
    """
    check_arraylike("leslie", f, s)
    births, survival = jnp.atleast_1d(f), jnp.atleast_1d(s)
    n = births.shape[-1]
    if n < 2:
        raise ValueError(
            f"The length of f along the last axis must be at least 2; got shape {births.shape}."
        )
    if survival.shape[-1] != n - 1:
        raise ValueError(
            "Incorrect lengths for f and s. The length of s along the last axis must be one less"
            f" than the length of f; got f shape {births.shape} and s shape {survival.shape}."
        )
    births, survival = _joined(births, survival)
    below = jnp.vectorize(jnp.diag, signature="(n)->(n,n)")(survival)
    below = jnp.pad(below, [(0, 0)] * (below.ndim - 1) + [(0, 1)])
    return _first_row_over(births, below)


@composite
def companion(a: ArrayLike) -> Array:
    """The companion matrix of a polynomial, whose eigenvalues are its roots.

    Args:
      a: coefficients, highest power first, of shape `(..., n)`.

    Raises:
      ValueError: there are fewer than two coefficients.

        >>> amdjax.scipy.linalg.companion(jnp.array([1.0, -3.0, 2.0]))
        Array([[ 3., -2.],
               [ 1.,  0.]], dtype=float32)
    """
    a = _coefficients("companion", a)
    if a.shape[-1] < 2:
        raise ValueError(
            f"The length of `a` along the last axis must be at least 2; got shape {a.shape}."
        )
    row = -a[..., 1:] / a[..., :1]
    n = row.shape[-1]
    below = jnp.broadcast_to(jnp.eye(n - 1, n, dtype=row.dtype), (*row.shape[:-1], n - 1, n))
    return _first_row_over(row, below)


@composite
def fiedler(a: ArrayLike) -> Array:
    """The matrix of the distances between numbers, `|a[i] - a[j]|`.

    Args:
      a: of shape `(..., n)`.

        >>> amdjax.scipy.linalg.fiedler(jnp.array([1, 4]))
        Array([[0, 3],
               [3, 0]], dtype=int32)
    """
    check_arraylike("fiedler", a)
    numbers = jnp.atleast_1d(a)
    return jnp.abs(numbers[..., :, None] - numbers[..., None, :])


@composite
def fiedler_companion(a: ArrayLike) -> Array:
    """Fiedler's companion matrix of a polynomial: five diagonals, the same eigenvalues.

    Args:
      a: coefficients, highest power first, of shape `(..., n)`.

    Raises:
      ValueError: there are no coefficients.

    Source: Fiedler, "A note on companion matrices", 2003.

        >>> amdjax.scipy.linalg.fiedler_companion(jnp.array([1.0, -3.0, 2.0]))
        Array([[ 3., -2.],
               [ 1.,  0.]], dtype=float32)
    """
    a = _coefficients("fiedler_companion", a)
    if a.shape[-1] == 0:
        raise ValueError(
            "fiedler_companion requires the last axis of 'a' to have nonzero length, but got an"
            f" array of shape {a.shape}."
        )
    n = a.shape[-1] - 1
    if n == 0:
        return jnp.zeros((*a.shape[:-1], 0, 0), a.dtype)
    # Which coefficient stands at each place; the first place after them holds one, the next zero.
    places = np.full((n, n), n + 2)
    for i in range(0, n, 2):
        places[i, i + 1 : i + 2] = i + 2
        places[i, i + 2 : i + 3] = n + 1
        places[i, i - 1 : i] = i + 1
    for i in range(3, n, 2):
        places[i, i - 2] = n + 1
    places[0, 0] = 1
    places[1:2, 0] = n + 1
    ends = jnp.broadcast_to(jnp.asarray([1, 0], a.dtype), (*a.shape[:-1], 2))
    return _sliding(jnp.concatenate([-a / a[..., :1], ends], axis=-1), places)


@composite(static_argnames=("n", "mode"))
def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """The matrix whose product with a vector of `n` entries is its convolution with `a`.

    Args:
      a: of shape `(..., m)`.
      n: the number of columns.
      mode: "full", "same" or "valid", as for `numpy.convolve`.

    Returns:
      Matrices of shape `(..., rows, n)`.

    Raises:
      ValueError: `n` is not positive, `a` is empty or a scalar, or `mode` is unknown.

        >>> amdjax.scipy.linalg.convolution_matrix(jnp.array([1, 2]), 2)
        Array([[1, 0],
               [2, 1],
               [0, 2]], dtype=int32)
    """
    n = operator.index(n)
    if n <= 0:
        raise ValueError(f"n must be a positive integer; got {n}.")
    check_arraylike("convolution_matrix", a)
    a = jnp.asarray(a)
    if a.ndim == 0:
        raise ValueError("convolution_matrix: a must be at least 1-dimensional, got a scalar.")
    m = a.shape[-1]
    if m < 1:
        raise ValueError(f"len(a) must be at least 1; got shape {a.shape}.")
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"mode must be one of 'full', 'valid', 'same'; got {mode!r}.")
    length, spare = m + n - 1, min(m, n) - 1
    first, last = {
        "full": (0, length), "valid": (spare, length - spare),
        "same": (spare // 2, length - (spare - spare // 2)),
    }[mode]  # fmt: skip
    padded = jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(n - 1, n - 1)])
    return _sliding(padded, np.arange(first, last)[:, None] + n - 1 - np.arange(n))


def _exact(values: np.ndarray, dtype: DTypeLike) -> Array:
    """Numbers that were computed exactly, rounded once."""
    return jnp.asarray(values.astype(dtype))


def _default_float() -> np.dtype:
    return dtypes.canonicalize_dtype(np.float64)


def hilbert(n: int) -> Array:
    """Hilbert's matrix, `1 / (i + j + 1)`.

    >>> amdjax.scipy.linalg.hilbert(2)
    Array([[1.        , 0.5       ],
           [0.5       , 0.33333334]], dtype=float32)
    """
    i = np.arange(operator.index(n))
    return _exact(1 / (i[:, None] + i + 1), _default_float())


def _integers(n: int, entry: object) -> np.ndarray:
    """The matrix of `entry(i, j)`, whole numbers of any size."""
    assert callable(entry)
    rows = [[entry(i, j) for j in range(n)] for i in range(n)]
    return np.array(rows, dtype=object).reshape(len(rows), len(rows))


def invhilbert(n: int) -> Array:
    """The inverse of Hilbert's matrix, whose entries are whole numbers.

    >>> amdjax.scipy.linalg.invhilbert(2)
    Array([[ 4., -6.],
           [-6., 12.]], dtype=float32)
    """
    c = math.comb

    def entry(i: int, j: int) -> int:
        s = i + j
        return (-1) ** s * (s + 1) * c(n + i, n - j - 1) * c(n + j, n - i - 1) * c(s, i) ** 2

    return _exact(_integers(n, entry), _default_float())


def _check_kind(kind: str | None) -> str:
    if kind not in (None, "symmetric", "lower", "upper"):
        raise ValueError(f"Expected kind to be one of: ['symmetric', 'lower', 'upper']; got {kind}")
    return kind or "symmetric"


def pascal(n: int, kind: str | None = None) -> Array:
    """Pascal's triangle as a matrix.

    Args:
      kind: "lower", "upper", or "symmetric" (the default) for the product of both.

        >>> amdjax.scipy.linalg.pascal(3)
        Array([[1., 1., 1.],
               [1., 2., 3.],
               [1., 3., 6.]], dtype=float32)
    """
    kind = _check_kind(kind)
    entries = {
        "symmetric": lambda i, j: math.comb(i + j, i),
        "lower": math.comb,
        "upper": lambda i, j: math.comb(j, i),
    }
    return _exact(_integers(n, entries[kind]), np.float32)


def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of `pascal(n, kind)`.

    Args:
      kind: as for `pascal`.

        >>> amdjax.scipy.linalg.invpascal(2)
        Array([[ 2., -1.],
               [-1.,  1.]], dtype=float32)
    """
    kind = _check_kind(kind)
    lower = _integers(n, lambda i, j: (-1) ** (i + j) * math.comb(i, j))
    matrix = {"symmetric": lower.T @ lower, "lower": lower, "upper": lower.T}[kind]
    return _exact(matrix, _default_float())


def helmert(n: int, full: bool = False) -> Array:
    """Helmert's matrix: orthonormal contrasts of each entry with those before it.

    Args:
      n: columns.
      full: put the constant row first, so that the matrix is orthogonal.

    Returns:
      A matrix of shape `(n - 1, n)`, or `(n, n)`.

    Raises:
      ValueError: `n` is not positive.

        >>> amdjax.scipy.linalg.helmert(2)
        Array([[ 0.70710677, -0.70710677]], dtype=float32)
    """
    if n < 1:
        raise ValueError(f"n must be a positive integer; got {n}.")
    rows = np.tril(np.ones((n, n)), -1) - np.diag(np.arange(n))
    rows[0] = 1
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return _exact(rows if full else rows[1:], _default_float())


def hadamard(n: int, dtype: DTypeLike = int) -> Array:
    """Sylvester's Hadamard matrix: ones and minus ones, with orthogonal rows.

    Args:
      n: rows and columns, a power of two.
      dtype: that of the entries.

    Raises:
      ValueError: `n` is no power of two.

        >>> amdjax.scipy.linalg.hadamard(2)
        Array([[ 1,  1],
               [ 1, -1]], dtype=int32)
    """
    if n < 1 or n & (n - 1):
        raise ValueError(f"n must be a positive power of 2; got {n}.")
    dtype = dtypes.check_and_canonicalize_user_dtype(dtype, "hadamard")
    i = np.arange(n)
    return _exact(1 - 2 * (np.bitwise_count(i[:, None] & i).astype(int) % 2), dtype)


def dft(n: int, scale: str | None = None, *, dtype: DTypeLike = None) -> Array:
    """The matrix of the discrete Fourier transform.

    Args:
      scale: None, "sqrtn" to divide by the root of `n`, "n" to divide by `n`.
      dtype: a complex dtype.

    Raises:
      ValueError: `scale` is unknown or `dtype` is not complex.

        >>> jnp.round(amdjax.scipy.linalg.dft(2).real)
        Array([[ 1.,  1.],
               [ 1., -1.]], dtype=float32)
    """
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; got {scale!r}.")
    if dtype is None:
        dtype = dtypes.canonicalize_dtype(np.complex128)
    else:
        dtype = dtypes.check_and_canonicalize_user_dtype(dtype, "dft")
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise ValueError(f"dtype must be a complex floating-point type; got {dtype}.")
    i = np.arange(n)
    # Whole turns are taken off before rounding.
    roots = np.exp(-2j * np.pi * ((i[:, None] * i) % max(n, 1)) / max(n, 1))
    divisor = {None: 1.0, "sqrtn": math.sqrt(max(n, 0)), "n": n}[scale]
    return _exact(roots / divisor, dtype)
