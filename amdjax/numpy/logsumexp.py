"""The logarithm of a sum of exponentials, which softmax, losses and `logaddexp` share."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import (
    ArrayLike,
    Axis,
    as_array,
    broadcast_to,
    canonical_axes,
    constant,
    convert,
    is_kind,
    promote_args_inexact,
    select,
    stop_gradient,
)
from amdjax.numpy.reductions import _static, max as max_, sum as sum_


@composite(static_argnames=("axis", "keepdims", "return_sign"))
def _logsumexp(
    a: Array, b: Array | None, where: Array | None, axis: Axis, keepdims: bool, return_sign: bool
) -> Any:
    axes = canonical_axes(axis, a.ndim)
    shape = a.shape
    if where is not None:
        # What is left out must not reach the gradient, infinities above all.
        a = select(broadcast_to(where, shape), a, constant(a, -np.inf))
    if b is not None:
        # Terms with weight zero must not decide the largest exponent.
        used = lax.ne(b, constant(b, 0))
        a = select(broadcast_to(used, shape), a, constant(a, -np.inf))
    real = lax.real(a) if is_kind(a.dtype, np.complexfloating) else a
    largest = max_(real, axes, keepdims=True, where=where, initial=-np.inf)
    shift = stop_gradient(select(lax.is_finite(largest), largest, constant(largest, 0)))
    shift = convert(shift, a.dtype)
    terms = lax.exp(lax.sub(a, broadcast_to(shift, shape)))
    if b is not None:
        terms = lax.mul(terms, broadcast_to(b, shape))
    total = sum_(terms, axes, keepdims=keepdims, where=where)
    shift = shift if keepdims else lax.squeeze(shift, axes)
    if is_kind(a.dtype, np.complexfloating):
        sign = lax.sign(total)
        if return_sign:
            magnitude = lax.abs(total)
            return lax.add(lax.log(magnitude), lax.real(shift)), sign
        return lax.add(lax.log(total), shift)
    if not return_sign:
        if b is not None:
            negative = lax.lt(total, constant(total, 0))
            total = select(negative, constant(total, np.nan), total)
        return lax.add(lax.log(total), shift)
    return lax.add(lax.log(lax.abs(total)), shift), lax.sign(total)


def logsumexp(
    a: ArrayLike, axis: Axis = None, b: ArrayLike | None = None, keepdims: bool = False,
    return_sign: bool = False, where: ArrayLike | None = None,
) -> Any:  # fmt: skip
    """`log(sum(b * exp(a)))` along `axis`, without overflow.

    Args:
      a: exponents.
      axis: axis or axes to sum over; None means all.
      b: weights, which broadcast with `a`; they may be negative.
      keepdims: keep the summed axes with size one.
      return_sign: return the sign of the sum beside the logarithm of its magnitude; without it a
        negative sum gives NaN.
      where: mask of the elements to include.

    Returns:
      The logarithm, or a pair with the sign.

        >>> nn.logsumexp(jnp.array([1000.0, 1000.0]))
        Array(1000.6932, dtype=float32)
    """
    if b is None:
        (x,), weights = promote_args_inexact("logsumexp", a), None
    else:
        x, weights = promote_args_inexact("logsumexp", a, b)
        shape = lax.broadcast_shapes(x.shape, weights.shape)
        x, weights = broadcast_to(x, shape), broadcast_to(weights, shape)
    mask = None if where is None else as_array("logsumexp", where)
    return _logsumexp(x, weights, mask, _static(axis), bool(keepdims), bool(return_sign))


def logmeanexp(
    x: ArrayLike, axis: Axis = None, where: ArrayLike | None = None, keepdims: bool = False
) -> Array:
    """`log(mean(exp(x)))` along `axis`, without overflow.

    >>> nn.logmeanexp(jnp.array([1000.0, 1000.0]))
    Array(1000., dtype=float32)
    """
    (x,) = promote_args_inexact("logmeanexp", x)
    total = logsumexp(x, axis, keepdims=keepdims, where=where)
    weights = np.ones((), x.dtype) if where is None else where
    count = sum_(broadcast_to(as_array("logmeanexp", weights), x.shape), axis, dtype=x.dtype,
                 keepdims=keepdims)  # fmt: skip
    return lax.sub(total, lax.log(count))
