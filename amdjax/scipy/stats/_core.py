"""Statistics of samples: the commonest value, ranks, the error of the mean."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, canonical_axis, check_arraylike, promote_args_inexact
from amdjax.transforms import vmap


class ModeResult(NamedTuple):
    """Result of `mode`."""

    mode: Array
    count: Array  # type: ignore[assignment]  # a tuple's method of the name is not used


def _check_nan_policy(name: str, nan_policy: str) -> None:
    if nan_policy not in ("propagate", "omit", "raise"):
        raise ValueError(
            f"Illegal nan_policy value {nan_policy!r}; expected one of"
            " {'propagate', 'omit', 'raise'}"
        )
    if nan_policy == "omit":
        raise NotImplementedError(f"Logic for `nan_policy` of {nan_policy} is not implemented")
    if nan_policy == "raise":
        raise NotImplementedError(
            f"In order to best JIT compile `{name}`, we cannot know whether `x` contains nans."
            f" Please check if nans exist in `x` outside of the `{name}` function."
        )


@composite(static_argnames=("axis", "nan_policy", "keepdims"))
def mode(
    a: ArrayLike, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> ModeResult:
    """The commonest value, the least of them if there are several, and how often it comes.

    Args:
      a: samples.
      axis: along which; None takes all.
      nan_policy: must be "propagate": NaN is a value like others.
      keepdims: keep the axis, with length one.

    Returns:
      `mode` and `count`.

    Raises:
      ValueError: `nan_policy` is unknown.
      NotImplementedError: `nan_policy` is "omit" or "raise".

        >>> amdjax.scipy.stats.mode(jnp.array([2, 3, 3, 1, 1, 3])).mode
        Array(3, dtype=int32)
    """
    check_arraylike("mode", a)
    _check_nan_policy("mode", nan_policy)
    x = jnp.atleast_1d(a)
    if axis is None:
        shape = (1,) * x.ndim if keepdims else ()
        x, axis = x.ravel(), 0
    else:
        axis = canonical_axis(axis, x.ndim)
        kept = (1,) if keepdims else ()
        shape = (*x.shape[:axis], *kept, *x.shape[axis + 1 :])
    rows = jnp.moveaxis(x, axis, -1).reshape(math.prod(shape), x.shape[axis])
    if rows.shape[1] == 0:
        dtype = dtypes.canonicalize_dtype(np.float64)
        return ModeResult(jnp.full(shape, np.nan, dtype), jnp.zeros(shape, dtype))
    values, counts = vmap(_commonest)(rows)
    return ModeResult(values.reshape(shape), counts.reshape(shape))


def _commonest(x: Array) -> tuple[Array, Array]:
    values, counts = jnp.unique(x, return_counts=True, size=x.size)
    return values[jnp.argmax(counts)], counts.max()


_RANK_METHODS = ("average", "min", "max", "dense", "ordinal")


def rankdata(
    a: ArrayLike, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate"
) -> Array:
    """The rank of each sample, from one.

    Args:
      a: samples.
      method: what equal samples get: the "average", "min" or "max" of their ranks, "dense" (ranks
        without gaps), or "ordinal" (distinct ranks, in order).
      axis: along which; None ranks all.
      nan_policy: must be "propagate": with NaN among the samples all ranks are.

    Returns:
      Floats of the shape of `a`, or of one axis where `axis` is None.

    Raises:
      ValueError: `method` or `nan_policy` is unknown.
      NotImplementedError: `nan_policy` is "omit" or "raise".

        >>> amdjax.scipy.stats.rankdata(jnp.array([10, 30, 10]))
        Array([1.5, 3. , 1.5], dtype=float32)
    """
    return _rankdata(a, method, axis, nan_policy)


@composite(static_argnames=("method", "axis", "nan_policy"))
def _rankdata(a: ArrayLike, method: str, axis: int | None, nan_policy: str) -> Array:
    check_arraylike("rankdata", a)
    _check_nan_policy("rankdata", nan_policy)
    if method not in _RANK_METHODS:
        raise ValueError(f"unknown method '{method}'; it must be one of {_RANK_METHODS}")
    x = jnp.asarray(a)
    if axis is None:
        return _ranks(x.ravel(), method)
    axis = canonical_axis(axis, x.ndim)
    rows = jnp.moveaxis(x, axis, -1)
    flat = rows.reshape(math.prod(rows.shape[:-1]), rows.shape[-1])
    ranked = vmap(lambda row: _ranks(row, method))(flat)
    return jnp.moveaxis(ranked.reshape(rows.shape), -1, axis)


def _ranks(x: Array, method: str) -> Array:
    dtype = dtypes.canonicalize_dtype(np.float64)
    n = x.size
    if n == 0:
        return jnp.zeros(0, dtype)
    values, order = lax.sort_key_val(x, jnp.arange(n))
    place = jnp.zeros_like(order).at[order].set(jnp.arange(n))
    if method == "ordinal":
        ranks = place + 1
    else:
        new = jnp.concatenate([jnp.ones(1, bool), values[1:] != values[:-1]])
        group = jnp.cumsum(new) - 1
        if method == "dense":
            ranks = group[place] + 1
        else:
            # Where each group of equal samples begins and ends.
            first = lax.cummax(jnp.where(new, jnp.arange(n), 0))
            ends = jnp.concatenate([new[1:], jnp.ones(1, bool)])
            last = lax.cummin(jnp.where(ends, jnp.arange(n), n - 1), reverse=True)
            low, high = first[place] + 1, last[place] + 1
            ranks = {"min": low, "max": high, "average": (low + high) / 2}[method]
    return jnp.where(jnp.any(jnp.isnan(x)), np.nan, ranks.astype(dtype))


@composite(static_argnames=("axis", "ddof", "nan_policy", "keepdims"))
def _sem(a: ArrayLike, axis: int | None, ddof: int, nan_policy: str, keepdims: bool) -> Array:
    (x,) = promote_args_inexact("sem", a)
    if nan_policy == "propagate":
        count = x.size if axis is None else x.shape[axis]
        return x.std(axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(jnp.asarray(count, x.dtype))
    if nan_policy == "omit":
        present = (~jnp.isnan(x)).sum(axis, keepdims=keepdims).astype(x.dtype)
        return jnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(present)
    raise ValueError(f"{nan_policy} is not supported")


def sem(
    a: ArrayLike, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *,
    keepdims: bool = False,
) -> Array:  # fmt: skip
    """The standard error of the mean.

    Args:
      a: samples.
      axis: along which; None takes all.
      ddof: by how much the number of samples is lessened in the deviation.
      nan_policy: "propagate", or "omit" to leave NaN out.
      keepdims: keep the axis, with length one.

    Returns:
      The errors, of an inexact dtype.

    Raises:
      ValueError: `nan_policy` is neither.

        >>> amdjax.scipy.stats.sem(jnp.array([1.0, 3.0]))
        Array(1., dtype=float32)
    """
    return _sem(a, axis, ddof, nan_policy, keepdims)
