"""Quantiles and correlations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy import reductions
from amdjax.numpy._util import (
    ArrayLike,
    Axis,
    DTypeLike,
    as_array,
    as_arrays,
    broadcast_to,
    canonical_axes,
    constant,
    convert,
    is_kind,
    promote_args_inexact,
    promote_dtypes,
    promote_dtypes_inexact,
    refuse_out,
    select,
    user_dtype,
)
from amdjax.numpy.contractions import dot
from amdjax.numpy.diagonals import diagonal
from amdjax.numpy.joining import concatenate
from amdjax.numpy.reductions import _static
from amdjax.numpy.selecting import take_along_axis

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def quantile(
    a: ArrayLike, q: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """The values below which a share `q` of the elements lies; NaN where there is one.

    Args:
      q: shares between 0 and 1, a number or a vector, which becomes the leading axis.
      method: between two elements, "linear" interpolation, or the "lower", "higher", "nearest" one
        or their "midpoint"; with weights "inverted_cdf" only.
      weights: how much each element counts.

        >>> jnp.quantile(jnp.arange(5), 0.5)
        Array(2., dtype=float32)
    """
    _refuse("quantile", out, overwrite_input)
    return _quantile("quantile", a, q, axis, method, keepdims, False, weights)


def nanquantile(
    a: ArrayLike, q: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """As `quantile`, NaN left out.

    >>> jnp.nanquantile(jnp.array([0.0, jnp.nan, 2.0]), 0.5)
    Array(1., dtype=float32)
    """
    _refuse("nanquantile", out, overwrite_input)
    return _quantile("nanquantile", a, q, axis, method, keepdims, True, weights)


def percentile(
    a: ArrayLike, q: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: ArrayLike | None = None,
    out_sharding: Any = None,
) -> Array:  # fmt: skip
    """As `quantile`, with `q` in per cent.

    >>> jnp.percentile(jnp.arange(5), 25)
    Array(1., dtype=float32)
    """
    _refuse("percentile", out, overwrite_input)
    return _quantile("percentile", a, _share(q), axis, method, keepdims, False, weights)


def nanpercentile(
    a: ArrayLike, q: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False,
    method: str = "linear", keepdims: bool = False, *, weights: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """As `nanquantile`, with `q` in per cent.

    >>> jnp.nanpercentile(jnp.array([0.0, jnp.nan, 2.0]), 50)
    Array(1., dtype=float32)
    """
    _refuse("nanpercentile", out, overwrite_input)
    return _quantile("nanpercentile", a, _share(q), axis, method, keepdims, True, weights)


def median(
    a: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:  # fmt: skip
    """The middle element along `axis`, or the mean of the two middle ones.

    >>> jnp.median(jnp.array([3.0, 1.0, 2.0]))
    Array(2., dtype=float32)
    """
    _refuse("median", out, overwrite_input)
    return _quantile("median", a, 0.5, axis, "midpoint", keepdims, False, None)


def nanmedian(
    a: ArrayLike, axis: Axis = None, out: None = None, overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:  # fmt: skip
    """The median along `axis`, NaN left out.

    >>> jnp.nanmedian(jnp.array([3.0, jnp.nan, 1.0]))
    Array(2., dtype=float32)
    """
    _refuse("nanmedian", out, overwrite_input)
    return _quantile("nanmedian", a, 0.5, axis, "midpoint", keepdims, True, None)


def _refuse(name: str, out: None, overwrite_input: bool) -> None:
    refuse_out(name, out)
    if overwrite_input:
        raise ValueError(
            f"jax.numpy.{name} does not support overwrite_input=True: arrays are immutable"
        )


def _share(q: ArrayLike) -> Array:
    (q,) = promote_args_inexact("percentile", q)
    return lax.div(q, constant(q, 100))


def _quantile(
    name: str, a: ArrayLike, q: ArrayLike, axis: Axis, method: str, keepdims: bool, skip: bool,
    weights: ArrayLike | None,
) -> Array:  # fmt: skip
    (a,), (q,) = (promote_dtypes_inexact(x) for x in as_arrays(name, a, q))
    if is_kind(a.dtype, np.complexfloating):
        raise ValueError(
            f"{name} does not support complex input, as the operation is poorly defined."
        )
    if q.ndim > 1:
        raise ValueError(f"q must be have rank <= 1, got shape {q.shape}")
    if method not in _METHODS:
        raise ValueError(f"method must be one of {_METHODS}, got {method!r}.")
    if weights is not None and method != "inverted_cdf":
        raise NotImplementedError(f"weights need method='inverted_cdf', got {method!r}.")
    a = convert(a, a.dtype)
    if method == "inverted_cdf":
        w = lax.full_like(a, 1) if weights is None else _weights_of(name, a, weights, axis)
        return _weighted(a, convert(q, a.dtype), w, _static(axis), keepdims, skip)
    return _unweighted(a, q, _static(axis), method, keepdims, skip)


def _weights_of(name: str, a: Array, weights: ArrayLike, axis: Axis) -> Array:
    """Weights of the shape of `a`, given as such or for the reduced axes only."""
    w = as_array(name, weights)
    if is_kind(w.dtype, np.complexfloating):
        raise ValueError(f"{name}: weights must be real, got {w.dtype}")
    if w.shape != a.shape:
        axes = canonical_axes(axis, a.ndim)
        expected = tuple(a.shape[i] for i in axes)
        if axis is None or w.shape != expected:
            raise ValueError(f"{name}: weights must be of shape {expected}, got {w.shape}")
        w = lax.broadcast_in_dim(w, a.shape, axes)
    return convert(w, a.dtype)


def _rows(a: Array, axis: Axis) -> tuple[Array, tuple[int, ...]]:
    """The reduced axes joined into a last one, and the shape of the result with them kept."""
    axes = canonical_axes(axis, a.ndim)
    kept = [i for i in range(a.ndim) if i not in axes]
    rows = lax.transpose(a, (*kept, *axes))
    length = math.prod(a.shape[i] for i in axes)
    # A scalar counts as a vector of one element, as in JAX.
    shape = tuple(1 if i in axes else n for i, n in enumerate(a.shape)) or (1,)
    return lax.reshape(rows, (*(a.shape[i] for i in kept), length)), shape


def _lead(q: Array, result: Array, shape: tuple[int, ...], keepdims: bool) -> Array:
    """The axis of `q` in front, the reduced axes put back."""
    rank = result.ndim
    if q.ndim:
        result = lax.transpose(result, (rank - 1, *range(rank - 1)))
        return lax.reshape(result, (q.size, *shape)) if keepdims else result
    result = lax.squeeze(result, (rank - 1,))
    return lax.reshape(result, shape) if keepdims else result


def _pick(rows: Array, index: Array) -> Array:
    """For each row the elements at `index`, of shape `(…, number of quantiles)`."""
    index = broadcast_to(index, (*rows.shape[:-1], index.shape[-1]))
    return take_along_axis(rows, index, -1, mode="promise_in_bounds")


@composite(static_argnames=("axis", "method", "keepdims", "skip"))
def _unweighted(a: Array, q: Array, axis: Axis, method: str, keepdims: bool, skip: bool) -> Array:
    rows, shape = _rows(a, axis)
    n = rows.shape[-1]
    if n == 0:
        blank = lax.full((*rows.shape[:-1], q.size), np.nan, a.dtype)
        return _lead(q, blank, shape, keepdims)
    missing = lax.ne(rows, rows)
    ordered = lax.sort(rows, dimension=rows.ndim - 1)
    flat = lax.reshape(q, (q.size,))
    if skip:
        count = reductions.sum(missing, -1, dtype=q.dtype, keepdims=True)
        last = lax.sub(constant(count, n - 1), count)
        last = lax.max(last, constant(last, 0))
    else:
        last = lax.full((1,) * rows.ndim, n - 1, q.dtype)
    full = (*last.shape[:-1], q.size)
    place = lax.mul(broadcast_to(flat, full), broadcast_to(last, full))
    low = lax.floor(place)
    bound = lambda i: convert(
        lax.max(lax.min(i, broadcast_to(last, full)), constant(i, 0)), np.dtype("int32")
    )
    lower, upper = bound(low), bound(lax.ceil(place))
    fraction = lax.sub(place, low)
    if method == "nearest":
        # Halves go to the lower place.
        nearest = select(lax.le(fraction, constant(fraction, 0.5)), low, lax.ceil(place))
        value = _pick(ordered, bound(nearest))
    elif method == "lower":
        value = _pick(ordered, lower)
    elif method == "higher":
        value = _pick(ordered, upper)
    else:
        x, y = _pick(ordered, lower), _pick(ordered, upper)
        if method == "midpoint":
            value = lax.mul(lax.add(x, y), constant(x, 0.5))
        else:
            weight = broadcast_to(fraction, x.shape)
            rest = lax.sub(constant(weight, 1), weight)
            x, y = convert(x, weight.dtype), convert(y, weight.dtype)
            value = convert(lax.add(lax.mul(x, rest), lax.mul(y, weight)), a.dtype)
    if not skip:
        spoiled = reductions.any(missing, -1, keepdims=True)
        value = select(spoiled, constant(value, np.nan), value)
    return _lead(q, value, shape, keepdims)


@composite(static_argnames=("axis", "keepdims", "skip"))
def _weighted(a: Array, q: Array, weights: Array, axis: Axis, keepdims: bool, skip: bool) -> Array:
    rows, shape = _rows(a, axis)
    weights, _ = _rows(weights, axis)
    missing = lax.ne(rows, rows)
    if skip:
        weights = select(missing, constant(weights, 0), weights)
    ordered, carried = lax.sort((rows, weights), dimension=rows.ndim - 1, num_keys=1)
    mass = lax.cumsum(carried, rows.ndim - 1)
    total = lax.slice_in_dim(mass, mass.shape[-1] - 1, None, axis=mass.ndim - 1)
    wanted = lax.mul(broadcast_to(lax.reshape(q, (q.size,)), (*total.shape[:-1], q.size)),
                     broadcast_to(total, (*total.shape[:-1], q.size)))  # fmt: skip
    wide = (*mass.shape, q.size)
    before = lax.lt(
        lax.broadcast_in_dim(mass, wide, tuple(range(mass.ndim))),
        lax.broadcast_in_dim(wanted, wide, (*range(mass.ndim - 1), mass.ndim)),
    )
    index = reductions.sum(before, -2, dtype=np.int32)
    index = lax.min(index, np.int32(mass.shape[-1] - 1))
    value = _pick(ordered, index)
    if not skip:
        spoiled = reductions.any(missing, -1, keepdims=True)
        value = select(spoiled, constant(value, np.nan), value)
    return _lead(q, value, shape, keepdims)


def cov(
    m: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, bias: bool = False,
    ddof: int | None = None, fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None, dtype: DTypeLike = None,
) -> Array:  # fmt: skip
    """The covariance matrix of variables.

    Args:
      m: one variable a row.
      y: more variables.
      bias: divide by the number of observations, not by one less.
      ddof: divide by the number of observations less this.
      fweights: how often each observation occurred.
      aweights: how much each observation counts.
      dtype: dtype of the result.

        >>> jnp.cov(jnp.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
        Array([[ 1., -1.],
               [-1.,  1.]], dtype=float32)
    """
    arrays = promote_dtypes(*as_arrays("cov", m, *(() if y is None else (y,))))
    if any(x.ndim > 2 for x in arrays):
        raise ValueError("m and y have more than 2 dimensions")
    target = dtypes.to_inexact_dtype(arrays[0].dtype) if dtype is None else user_dtype(dtype, "cov")
    if not is_kind(target, np.inexact):
        raise ValueError(f"cov: dtype must be a subclass of float or complex; got {target}")

    def observations(x: Array) -> Array:
        x = convert(x, target)
        if x.ndim < 2:
            return lax.reshape(x, (1, x.size))
        return x if rowvar else lax.transpose(x, (1, 0))

    x = concatenate([observations(v) for v in arrays], 0)
    if x.shape[0] == 0:
        return lax.full((0, 0), 0, target)
    if ddof is None:
        ddof = 0 if bias else 1
    weights = _observation_weights(fweights, aweights, x.shape[1], target)
    return _cov(x, weights, None if aweights is None else as_array("cov", aweights), ddof)


def _observation_weights(
    fweights: ArrayLike | None, aweights: ArrayLike | None, n: int, dtype: Any
) -> Array | None:
    weights = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        w = as_array("cov", given)
        if w.ndim != 1 or w.size != n:
            raise ValueError(f"cov: {name} must be a vector with one entry an observation")
        if name == "fweights" and not is_kind(w.dtype, np.integer):
            raise TypeError("fweights must be integer.")
        w = convert(w, dtype)
        weights = w if weights is None else lax.mul(weights, w)
    return weights


@composite(static_argnames="ddof")
def _cov(x: Array, weights: Array | None, aweights: Array | None, ddof: int) -> Array:
    n = x.shape[1]
    if weights is None:
        mean = reductions.mean(x, 1, keepdims=True)
        total = constant(x, max(n - ddof, 0))
    else:
        sum_w = reductions.sum(weights)
        row = broadcast_to(weights, x.shape)
        mean = lax.div(reductions.sum(lax.mul(x, row), 1, keepdims=True), sum_w)
        if ddof == 0:
            total = sum_w
        elif aweights is None:
            total = lax.sub(sum_w, constant(x, ddof))
        else:
            squares = reductions.sum(lax.mul(weights, convert(aweights, x.dtype)))
            total = lax.sub(sum_w, lax.div(lax.mul(constant(x, ddof), squares), sum_w))
    x = lax.sub(x, broadcast_to(mean, x.shape))
    scaled = x if weights is None else lax.mul(x, broadcast_to(weights, x.shape))
    other = lax.conj(scaled) if is_kind(x.dtype, np.complexfloating) else scaled
    product = lax.div(dot(x, lax.transpose(other, (1, 0))), total)
    return lax.squeeze(product, tuple(i for i, s in enumerate(product.shape) if s == 1))


def corrcoef(
    x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True, dtype: DTypeLike = None
) -> Array:
    """The matrix of correlation coefficients of variables; arguments as for `cov`.

    >>> jnp.corrcoef(jnp.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    if dtype is not None and not is_kind(user_dtype(dtype, "corrcoef"), np.inexact):
        raise ValueError(f"corrcoef: dtype must be a subclass of float or complex; got {dtype}")
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return lax.div(c, c)
    variance = diagonal(c)
    variance = lax.real(variance) if is_kind(c.dtype, np.complexfloating) else variance
    deviation = convert(lax.sqrt(variance), c.dtype)
    n = deviation.size
    c = lax.div(c, lax.broadcast_in_dim(deviation, (n, n), (0,)))
    c = lax.div(c, lax.broadcast_in_dim(deviation, (n, n), (1,)))
    # Rounding may leave a little more than one.
    clip = lambda v: lax.min(lax.max(v, constant(v, -1)), constant(v, 1))
    if is_kind(c.dtype, np.complexfloating):
        return lax.complex(clip(lax.real(c)), clip(lax.imag(c)))
    return clip(c)
