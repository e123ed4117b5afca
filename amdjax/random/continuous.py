"""Samplers of continuous distributions, by transformation of uniform and normal numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdjax import lax, numpy as jnp
from amdjax.core import dtypes
from amdjax.random._arguments import (
    Shape,
    as_shape,
    check_castable,
    float_arguments,
    float_dtype,
    inexact_dtype,
    parameter_shape,
    single_key,
)
from amdjax.random._compile import compiled
from amdjax.random._keys import subkeys
from amdjax.random.basic import normal_in, normals_to_sum, uniform_in
from amdjax.random.discrete import rademacher_in

__all__ = [
    "cauchy", "double_sided_maxwell", "exponential", "laplace", "logistic", "lognormal",
    "maxwell", "pareto", "rayleigh", "triangular", "wald", "weibull_min",
]  # fmt: skip


def exponential(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the exponential distribution of rate one.

    >>> print(random.exponential(random.key(0), (2,)).round(3))
    [2.95  3.843]
    """
    typed, shape, dtype = float_arguments("exponential", key, shape, dtype)
    return _exponential(typed, shape=shape, dtype=dtype)


def exponential_in(key: Any, shape: Shape, dtype: Any) -> Any:
    """As `exponential`, within a program, from keys of any shape."""
    return lax.neg(lax.log1p(lax.neg(uniform_in(key, 0.0, 1.0, shape, dtype))))


_exponential = compiled(exponential_in)


def cauchy(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the standard Cauchy distribution.

    >>> print(random.cauchy(random.key(0), (2,)).round(2))
    [ 6.03 14.84]
    """
    typed, shape, dtype = float_arguments("cauchy", key, shape, dtype)
    return _cauchy(typed, shape=shape, dtype=dtype)


@compiled
def _cauchy(key: Any, *, shape: Shape, dtype: Any) -> Any:
    u = uniform_in(key, dtypes.finfo(dtype).eps, 1.0, shape, dtype)
    return lax.tan(np.asarray(np.pi, dtype) * (u - np.asarray(0.5, dtype)))


def laplace(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the standard Laplace distribution.

    >>> print(random.laplace(random.key(0), (2,)).round(2))
    [-2.26 -3.15]
    """
    typed, shape, dtype = float_arguments("laplace", key, shape, dtype)
    return _laplace(typed, shape=shape, dtype=dtype)


@compiled
def _laplace(key: Any, *, shape: Shape, dtype: Any) -> Any:
    u = uniform_in(key, -1.0 + float(dtypes.finfo(dtype).epsneg), 1.0, shape, dtype)
    return lax.mul(lax.sign(u), lax.log1p(lax.neg(lax.abs(u))))


def logistic(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the standard logistic distribution.

    >>> print(random.logistic(random.key(0), (2,)).round(2))
    [2.9  3.82]
    """
    typed, shape, dtype = float_arguments("logistic", key, shape, dtype)
    return _logistic(typed, shape=shape, dtype=dtype)


@compiled
def _logistic(key: Any, *, shape: Shape, dtype: Any) -> Any:
    u = uniform_in(key, dtypes.finfo(dtype).tiny, 1.0, shape, dtype)
    return lax.sub(lax.log(u), lax.log1p(lax.neg(u)))


def pareto(
    key: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Numbers of the Pareto distribution with density `b / x**(b + 1)` for x >= 1.

    Args:
      b: the shape parameter.
      shape: the shape of the result; that of `b` by default.

    Raises:
      ValueError: if the dtype is not a float or `b` does not fit the shape.

        >>> print(random.pareto(random.key(0), 2.0, (2,)).round(2))
        [4.37 6.83]
    """
    typed, shape, dtype = float_arguments("pareto", key, shape, dtype, b)
    return _pareto(typed, b, shape=shape, dtype=dtype)


@compiled
def _pareto(key: Any, b: Any, *, shape: Shape, dtype: Any) -> Any:
    return lax.exp(exponential_in(key, shape, dtype) / lax.convert_element_type(b, dtype))


def maxwell(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of the Maxwell distribution: lengths of normal vectors in three dimensions.

    >>> random.maxwell(random.key(0)).shape
    ()
    """
    typed, shape, dtype = float_arguments("maxwell", key, shape, dtype)
    return _maxwell(typed, shape=shape, dtype=dtype)


def maxwell_in(key: Any, shape: Shape, dtype: Any) -> Any:
    """As `maxwell`, within a program."""
    vectors = normals_to_sum(key, (*shape, 3), dtype)
    return lax.sqrt(lax.convert_element_type(jnp.sum(vectors * vectors, -1), dtype))


_maxwell = compiled(maxwell_in)


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Numbers of the Maxwell distribution with random signs, scaled and moved.

    Args:
      loc: where the middle lies.
      scale: the factor.
      shape: the leading shape of the result; the parameters' shape follows.

    Returns:
      An array of shape `shape` followed by the shape of the parameters.

    Raises:
      ValueError: if the dtype is not a float.

        >>> random.double_sided_maxwell(random.key(0), 0.0, 1.0, (2,)).shape
        (2,)
    """
    typed = single_key("double_sided_maxwell", key)
    dtype = float_dtype("double_sided_maxwell", dtype)
    parameters = parameter_shape("double_sided_maxwell", None, loc, scale)
    shape = (as_shape("double_sided_maxwell", shape) or parameters) + parameters
    return _double_sided_maxwell(typed, loc, scale, shape=shape, dtype=dtype)


@compiled
def _double_sided_maxwell(key: Any, loc: Any, scale: Any, *, shape: Shape, dtype: Any) -> Any:
    lengths, signs = subkeys(key)
    return rademacher_in(signs, shape, dtype) * maxwell_in(lengths, shape, dtype) * scale + loc


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None
) -> Any:
    """Numbers of the Weibull distribution of minima.

    Args:
      concentration: the shape parameter.

        >>> print(random.weibull_min(random.key(0), 1.0, 2.0, (2,)).round(2))
        [1.72 1.96]
    """
    typed, shape, dtype = float_arguments("weibull_min", key, shape, dtype)
    return _weibull_min(typed, scale, concentration, shape=shape, dtype=dtype)


@compiled
def _weibull_min(key: Any, scale: Any, concentration: Any, *, shape: Shape, dtype: Any) -> Any:
    return jnp.power(exponential_in(key, shape, dtype), 1.0 / concentration) * scale


def rayleigh(
    key: Any, scale: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Numbers of the Rayleigh distribution.

    Args:
      shape: the shape of the result; that of `scale` by default.

    Raises:
      ValueError: if the dtype is not a float or `scale` does not fit the shape.

        >>> print(random.rayleigh(random.key(0), 1.0, (2,)).round(2))
        [0.33 0.21]
    """
    typed, shape, dtype = float_arguments("rayleigh", key, shape, dtype, scale)
    return _rayleigh(typed, scale, shape=shape, dtype=dtype)


@compiled
def _rayleigh(key: Any, scale: Any, *, shape: Shape, dtype: Any) -> Any:
    scale = jnp.broadcast_to(lax.convert_element_type(scale, dtype), shape)
    logs = lax.log(uniform_in(key, 0.0, 1.0, shape, dtype))
    return lax.mul(scale, lax.sqrt(logs * np.asarray(-2, dtype)))


def wald(
    key: Any, mean: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Numbers of the Wald (inverse Gaussian) distribution of scale one.

    Args:
      mean: the mean.
      shape: the shape of the result; that of `mean` by default.

    Raises:
      ValueError: if the dtype is not a float or `mean` does not fit the shape.

    Source: Michael, Schucany, Haas, "Generating random variates using transformations with
      multiple roots", 1976.

        >>> random.wald(random.key(0), 1.0, (3,)).shape
        (3,)
    """
    typed, shape, dtype = float_arguments("wald", key, shape, dtype, mean)
    return _wald(typed, mean, shape=shape, dtype=dtype)


@compiled
def _wald(key: Any, mean: Any, *, shape: Shape, dtype: Any) -> Any:
    normal_key, uniform_key = subkeys(key)
    mean = jnp.broadcast_to(lax.convert_element_type(mean, dtype), shape)
    y = lax.square(normal_in(normal_key, shape, dtype))
    z = uniform_in(uniform_key, 0.0, 1.0, shape, dtype)
    mean_squared = lax.square(mean)
    root = lax.sqrt(4 * mean * y + mean_squared * lax.square(y))
    x = mean + mean_squared * y / 2 - mean / 2 * root
    return lax.select(z <= mean / (mean + x), x, mean_squared / x)


def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Numbers of the triangular distribution.

    Args:
      left: the least value.
      mode: the most probable value.
      right: the greatest value.

        >>> print(random.triangular(random.key(0), 0.0, 1.0, 2.0, (2,)).round(2))
        [1.68 1.79]
    """
    typed, shape, dtype = float_arguments("triangular", key, shape, dtype, left, mode, right)
    return _triangular(typed, left, mode, right, shape=shape, dtype=dtype)


@compiled
def _triangular(key: Any, left: Any, mode: Any, right: Any, *, shape: Shape, dtype: Any) -> Any:
    left, mode, right = (
        jnp.broadcast_to(lax.convert_element_type(v, dtype), shape) for v in (left, mode, right)
    )
    u = uniform_in(key, 0.0, 1.0, shape, dtype)
    rising = left + lax.sqrt(u * (right - left) * (mode - left))
    falling = right - lax.sqrt((1 - u) * (right - left) * (right - mode))
    return lax.select(u < (mode - left) / (right - left), rising, falling)


def lognormal(
    key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Numbers whose logarithms are normal with mean zero.

    Args:
      sigma: the standard deviation of the logarithms.
      shape: the shape of the result; that of `sigma` by default.
      dtype: a float or complex dtype; float32 by default, float64 under x64.

    Raises:
      ValueError: if the dtype is not a float or `sigma` does not fit the shape.

        >>> print(random.lognormal(random.key(0), 1.0, (2,)).round(1))
        [5.1 7.6]
    """
    typed = single_key("lognormal", key)
    dtype = inexact_dtype("lognormal", dtype)
    shape = parameter_shape("lognormal", shape, sigma)
    check_castable("lognormal", dtype, sigma)
    return _lognormal(typed, sigma, shape=shape, dtype=dtype)


@compiled
def _lognormal(key: Any, sigma: Any, *, shape: Shape, dtype: Any) -> Any:
    return lax.exp(normal_in(key, shape, dtype) * lax.convert_element_type(sigma, dtype))
