"""Samplers of vectors and matrices."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from amdjax import lax, numpy as jnp
from amdjax.core import dtypes, promotion
from amdjax.core.trace import concrete_or_error
from amdjax.random._arguments import (
    Shape,
    as_shape,
    common_shape,
    float_arguments,
    float_dtype,
    inexact_dtype,
    single_key,
)
from amdjax.random._compile import compiled, in_sums
from amdjax.random._keys import subkeys
from amdjax.random.basic import normal_in
from amdjax.random.continuous import exponential_in
from amdjax.random.discrete import rademacher_in
from amdjax.random.gamma_family import gamma_in

__all__ = ["ball", "generalized_normal", "multivariate_normal", "orthogonal"]


def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None, method: str = "cholesky",
    *, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Vectors of the normal distribution with given mean and covariance.

    Args:
      mean: of shape `(..., n)`.
      cov: positive semidefinite matrices of shape `(..., n, n)`; definite for "cholesky".
      shape: the batch shape of the result; that of the parameters by default.
      dtype: a float dtype; that of the parameters by default.
      method: how the covariance is factored: "cholesky", "eigh" or "svd".

    Returns:
      An array of shape `(*shape, n)`.

    Raises:
      ValueError: if shapes do not fit, the dtype is not a float or the method is another word.

        >>> mean, cov = np.zeros(2, np.float32), np.eye(2, dtype=np.float32)
        >>> random.multivariate_normal(random.key(0), mean, cov, (3,)).shape
        (3, 2)
    """
    typed = single_key("multivariate_normal", key)
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError(
            f"multivariate_normal method must be 'svd', 'eigh' or 'cholesky', got {method!r}."
        )
    common = dtypes.to_inexact_dtype(promotion.result_type(mean, cov))
    dtype = float_dtype("multivariate_normal", common if dtype is None else dtype)
    if np.ndim(mean) < 1 or np.ndim(cov) < 2 or np.shape(cov)[-2:] != 2 * np.shape(mean)[-1:]:
        raise ValueError(
            "multivariate_normal takes a mean of shape (..., n) and a covariance of shape "
            f"(..., n, n), got shapes {np.shape(mean)} and {np.shape(cov)}."
        )
    batches = np.shape(mean)[:-1], np.shape(cov)[:-2]
    shape = common_shape("multivariate_normal", shape, *batches)
    mean, cov = (lax.convert_element_type(v, common) for v in (mean, cov))
    return _multivariate_normal(typed, mean, cov, shape=shape, dtype=dtype, method=method)


@compiled
def _multivariate_normal(
    key: Any, mean: Any, cov: Any, *, shape: Shape, dtype: Any, method: str
) -> Any:
    if method == "cholesky":
        factor = lax.linalg.cholesky(cov)
    elif method == "eigh":
        vectors, values = lax.linalg.eigh(cov)
        factor = vectors * jnp.sqrt(values[..., None, :])
    else:
        vectors, values, _ = lax.linalg.svd(cov)
        factor = vectors * jnp.sqrt(values[..., None, :])
    samples = normal_in(key, (*shape, mean.shape[-1]), dtype)
    spread = jnp.einsum("...ij,...j->...i", factor, samples)
    return jnp.broadcast_to(mean, spread.shape) + spread


def orthogonal(
    key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Orthogonal (or unitary) matrices, uniform by Haar's measure.

    Args:
      n: the number of rows.
      shape: the batch shape of the result.
      dtype: a float or complex dtype; float32 by default, float64 under x64.
      m: the number of columns; n by default. The shorter side is orthonormal.

    Returns:
      An array of shape `(*shape, n, m)`.

    Raises:
      ValueError: if the dtype is neither float nor complex.

    Source: Mezzadri, "How to generate random matrices from the classical compact groups", 2007.

        >>> q = np.asarray(random.orthogonal(random.key(0), 3))
        >>> np.allclose(q @ q.T, np.eye(3), atol=1e-5)
        True
    """
    typed = single_key("orthogonal", key)
    dtype = inexact_dtype("orthogonal", dtype)
    shape = as_shape("orthogonal", shape)
    n = concrete_or_error(operator.index, n, "It is argument n of random.orthogonal.")
    m = n if m is None else concrete_or_error(operator.index, m, "It is argument m.")
    return _orthogonal(typed, n=n, m=m, shape=shape, dtype=dtype)


@compiled
def _orthogonal(key: Any, *, n: int, m: int, shape: Shape, dtype: Any) -> Any:
    tall = normal_in(key, (*shape, max(n, m), min(n, m)), dtype)
    q, r = lax.linalg.qr(tall, full_matrices=False)
    # The signs that LAPACK chooses are not random.
    signs = jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))
    x = q * jnp.expand_dims(signs, -2)
    return jnp.swapaxes(x, -1, -2) if n < m else x


def generalized_normal(
    key: Any, p: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Numbers with density proportional to `exp(-|x|**p)`.

    Args:
      p: the exponent.

        >>> random.generalized_normal(random.key(0), 3.0, (2,)).shape
        (2,)
    """
    typed, shape, dtype = float_arguments("generalized_normal", key, shape, dtype)
    return _generalized_normal(typed, p, shape=shape, dtype=dtype)


def _generalized_normal_in(key: Any, p: Any, shape: Shape, dtype: Any) -> Any:
    gamma_key, sign_key = subkeys(key)
    g = gamma_in(gamma_key, 1 / p, shape, dtype, log_space=False)
    return rademacher_in(sign_key, shape, dtype) * g ** (1 / p)


_generalized_normal = compiled(_generalized_normal_in)


def ball(
    key: Any, d: int, p: Any = 2, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Points uniform in the unit ball of the p-norm.

    Args:
      d: the dimension.
      p: the norm's exponent.
      shape: the batch shape of the result.

    Returns:
      An array of shape `(*shape, d)`.

    Raises:
      ValueError: if the dtype is not a float.

    Source: Barthe, Guédon, Mendelson, Naor, "A probabilistic approach to the geometry of the
      l_p^n-ball", 2005.

        >>> x = random.ball(random.key(0), 3, shape=(4,))
        >>> bool(((x * x).sum(-1) <= 1).all())
        True
    """
    typed = single_key("ball", key)
    dtype = float_dtype("ball", dtype)
    d = concrete_or_error(operator.index, d, "It is argument d of random.ball.")
    return _ball(typed, p, d=d, shape=as_shape("ball", shape), dtype=dtype)


@compiled
def _ball(key: Any, p: Any, *, d: int, shape: Shape, dtype: Any) -> Any:
    point_key, radius_key = subkeys(key)
    g = _generalized_normal_in(point_key, p, (*shape, d), dtype)
    e = exponential_in(radius_key, shape, dtype)
    powers = jnp.sum(in_sums(jnp.abs(g)) ** in_sums(p), -1)
    return g / ((lax.convert_element_type(powers, dtype) + e) ** (1 / p))[..., None]
