"""The gamma distribution and those made of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amdjax import lax, numpy as jnp
from amdjax.core import dtypes
from amdjax.core.aval import ShapedArray
from amdjax.core.config import disable_jit
from amdjax.core.primitive import Primitive
from amdjax.lax._rules import batch_to, is_zero, zero_tangent
from amdjax.numpy._util import check_arraylike
from amdjax.random._arguments import (
    Shape,
    check_castable,
    common_shape,
    float_arguments,
    float_dtype,
    parameter_shape,
    single_key,
)
from amdjax.random._compile import compiled, rounded
from amdjax.random._keys import subkeys
from amdjax.random._prng import as_traced, drawing, random_split
from amdjax.random.basic import normal_in, uniform_in
from amdjax.random.continuous import exponential_in

__all__ = ["beta", "chisquare", "dirichlet", "f", "gamma", "loggamma", "random_gamma_p", "t"]


def gamma(
    key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Numbers of the gamma distribution of scale one; differentiable in `a`.

    Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.

    >>> random.gamma(random.key(0), 2.0, (3,)).shape
    (3,)
    """
    return _drawn("gamma", key, a, shape, dtype, False)


def loggamma(
    key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Logarithms of numbers of the gamma distribution, right also where those underflow.

    >>> bool(random.loggamma(random.key(0), 1e-5) < -100)
    True
    """
    return _drawn("loggamma", key, a, shape, dtype, True)


def _drawn(name: str, key: Any, a: Any, shape: Any, dtype: Any, log_space: bool) -> Any:
    typed = single_key(name, key)
    dtype = float_dtype(name, dtype)
    shape = parameter_shape(name, shape, a)
    return _gamma(typed, a, shape=shape, dtype=dtype, log_space=log_space)


def gamma_in(key: Any, a: Any, shape: Shape, dtype: Any, log_space: bool) -> Any:
    """As `gamma` or `loggamma`, within a program."""
    a = jnp.broadcast_to(lax.convert_element_type(a, dtype), shape)
    return random_gamma_p.bind(key, a, log_space=log_space, **as_traced())


_gamma = compiled(gamma_in)


random_gamma_p = Primitive("random_gamma")


@random_gamma_p.def_abstract_eval
def _random_gamma_type(key: Any, a: Any, **_: bool) -> Any:
    return ShapedArray(a.shape, a.dtype)


@random_gamma_p.def_jvp
def _random_gamma_jvp(primals: Any, tangents: Any, *, log_space: bool, **how: bool) -> Any:
    key, a = primals
    out = random_gamma_p.bind(key, a, log_space=log_space, **how)
    t = tangents[1]
    return out, zero_tangent(out) if is_zero(t) else lax.mul(t, _slope(out, a, log_space))


def _slope(sample: Any, a: Any, log_space: bool) -> Any:
    """The derivative of a sample in its parameter, at a fixed quantile."""
    if not log_space:
        return lax.random_gamma_grad(a, sample)
    sample = lax.exp(sample)
    tiny = lax.full_like(sample, dtypes.finfo(sample.dtype).tiny)
    sample = lax.select(sample == 0, tiny, sample)
    return lax.random_gamma_grad(a, sample) / sample


@random_gamma_p.def_batch
def _random_gamma_batch(axis: Any, args: Any, dims: Any, **params: Any) -> Any:
    key, a = (batch_to(x, d, axis.size) for x, d in zip(args, dims))
    return random_gamma_p.bind(key, a, **params), 0


def _draw_gammas(key: Any, a: Any, *, log_space: bool) -> Any:
    """Each element draws from a key of its own, so that rejections do not depend on neighbors."""
    count = math.prod(a.shape[key.ndim :])
    each = lax.reshape(random_split(key, (count,)), (a.size,))
    alphas = lax.reshape(a, (a.size,))
    # The rule says what the compiler is to build: its loops are no Python loops, whatever the flag.
    with disable_jit(False):
        if key.dtype._impl.name == "threefry2x32":
            drawn = _marsaglia_tsang(each, alphas, log_space=log_space)
        else:  # Generators of many keys at once need not give what each key alone gives.
            alone = lambda pair: _marsaglia_tsang(pair[0], pair[1], log_space=log_space)
            drawn = lax.map(alone, (each, alphas))
    return lax.reshape(drawn, a.shape)


random_gamma_p.lowering = drawing(_draw_gammas)


@rounded
def _marsaglia_tsang(keys: Any, alpha: Any, *, log_space: bool) -> Any:
    """Rejection sampling, one lane for each element; lanes that have accepted keep their value."""
    dtype = alpha.dtype
    large = alpha >= 1
    third = np.asarray(1 / 3, dtype)
    d = lax.select(large, alpha, alpha + 1) - third
    c = third / lax.sqrt(d)

    def rejected(state: Any) -> Any:
        _, x, v, u = state
        squeeze = u >= 1 - np.asarray(0.0331, dtype) * (x * x)
        exact = lax.log(u) >= x * np.asarray(0.5, dtype) + d * ((1 - v) + lax.log(v))
        return squeeze & exact

    def propose(state: Any) -> Any:
        keys, x_keys, u_keys = subkeys(state[0], 3)
        x, v = _positive_cube_root(x_keys, c)
        return keys, x * x, (v * v) * v, uniform_in(u_keys, 0.0, 1.0, (), dtype)

    keys, boost_keys = subkeys(keys)
    fill = lambda value: lax.full_like(alpha, value)
    _, _, v, _ = while_lanes(rejected, propose, (keys, fill(0), fill(1), fill(2)))
    # A sample for alpha + 1 becomes one for alpha < 1 by a power of a uniform number.
    if log_space:
        logs = -exponential_in(boost_keys, (), dtype)
        boost = lax.select(large | (logs == 0), fill(0), logs * (1 / alpha))
        return (lax.log(d) + lax.log(v)) + boost
    below_one = 1 - uniform_in(boost_keys, 0.0, 1.0, (), dtype)
    return (d * v) * lax.select(large, fill(1), lax.pow(below_one, 1 / alpha))


def _positive_cube_root(keys: Any, c: Any) -> tuple[Any, Any]:
    """Normal numbers x for which `1 + c x` is positive, and that."""

    def draw(state: Any) -> Any:
        keys, these = subkeys(state[0])
        x = normal_in(these, (), c.dtype)
        return keys, x, 1 + x * c

    start = (keys, lax.full_like(c, 0), lax.full_like(c, -1))
    _, x, v = while_lanes(lambda state: state[2] <= 0, draw, start)
    return x, v


def while_lanes(again: Any, step: Any, start: tuple[Any, ...]) -> Any:
    """A loop for each lane, all running until the last is done."""

    def body(state: Any) -> Any:
        active = again(state)
        return tuple(lax.select(active, new, old) for new, old in zip(step(state), state))

    return lax.while_loop(lambda state: jnp.any(again(state)), body, start)


def beta(
    key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Numbers of the beta distribution.

    Args:
      a: the first shape parameter, positive.
      b: the second shape parameter, positive.

        >>> x = random.beta(random.key(0), 2.0, 3.0, (4,))
        >>> bool(((x > 0) & (x < 1)).all())
        True
    """
    typed = single_key("beta", key)
    dtype = float_dtype("beta", dtype)
    check_castable("beta", dtype, a, b)
    return _beta(typed, a, b, shape=parameter_shape("beta", shape, a, b), dtype=dtype)


@compiled
def _beta(key: Any, a: Any, b: Any, *, shape: Shape, dtype: Any) -> Any:
    log_a, log_b = (
        gamma_in(k, v, shape, dtype, log_space=True) for k, v in zip(subkeys(key), (a, b))
    )
    # In logarithms, and scaled by the greater: both gammas may underflow.
    greater = lax.max(log_a, log_b)
    scaled_a, scaled_b = lax.exp(log_a - greater), lax.exp(log_b - greater)
    return scaled_a / (scaled_a + scaled_b)


def dirichlet(
    key: Any, alpha: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Vectors of the Dirichlet distribution: positive, with sum one.

    Args:
      alpha: the concentrations, of shape `(..., n)`.
      shape: the batch shape of the result; that of `alpha` by default.

    Returns:
      An array of shape `(*shape, n)`.

    Raises:
      ValueError: if the dtype is not a float or `alpha` does not fit the shape.

        >>> x = random.dirichlet(random.key(0), np.ones(3, np.float32))
        >>> bool(abs(x.sum() - 1) < 1e-6)
        True
    """
    typed = single_key("dirichlet", key)
    dtype = float_dtype("dirichlet", dtype)
    check_arraylike("dirichlet", alpha)
    if not np.ndim(alpha):
        raise ValueError("dirichlet requires alpha.ndim >= 1, got a scalar.")
    shape = common_shape("dirichlet", shape, np.shape(alpha)[:-1])
    return _dirichlet(typed, alpha, shape=shape, dtype=dtype)


@compiled
def _dirichlet(key: Any, alpha: Any, *, shape: Shape, dtype: Any) -> Any:
    logs = gamma_in(key, alpha, (*shape, alpha.shape[-1]), dtype, log_space=True)
    scaled = jnp.exp(logs - lax.stop_gradient(jnp.max(logs, -1, keepdims=True)))
    return scaled / jnp.sum(scaled, -1, keepdims=True)


def chisquare(
    key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Numbers of the chi-square distribution.

    >>> random.chisquare(random.key(0), 3.0, (2,)).shape
    (2,)
    """
    typed, shape, dtype = float_arguments("chisquare", key, shape, dtype, df)
    return _chisquare(typed, df, shape=shape, dtype=dtype)


def _chisquare_in(key: Any, df: Any, shape: Shape, dtype: Any) -> Any:
    half = lax.convert_element_type(df, dtype) / 2
    return jnp.exp(gamma_in(key, half, shape, dtype, log_space=True)) * 2


_chisquare = compiled(_chisquare_in)


def t(key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers of Student's t distribution.

    >>> random.t(random.key(0), 3.0, (2,)).shape
    (2,)
    """
    typed, shape, dtype = float_arguments("t", key, shape, dtype, df)
    return _t(typed, df, shape=shape, dtype=dtype)


@compiled
def _t(key: Any, df: Any, *, shape: Shape, dtype: Any) -> Any:
    normal_key, gamma_key = subkeys(key)
    half = lax.convert_element_type(df, dtype) / 2
    g = gamma_in(gamma_key, half, shape, dtype, log_space=False)
    return normal_in(normal_key, shape, dtype) * jnp.sqrt(half / g)


def f(
    key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None, *,
    out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Numbers of the F distribution.

    Args:
      dfnum: the numerator's degrees of freedom.
      dfden: the denominator's degrees of freedom.

        >>> random.f(random.key(0), 3.0, 4.0, (2,)).shape
        (2,)
    """
    typed, shape, dtype = float_arguments("f", key, shape, dtype, dfnum, dfden)
    return _f(typed, dfnum, dfden, shape=shape, dtype=dtype)


@compiled
def _f(key: Any, dfnum: Any, dfden: Any, *, shape: Shape, dtype: Any) -> Any:
    lower, upper = (
        _chisquare_in(k, df, shape, dtype) / lax.convert_element_type(df, dtype)
        for k, df in zip(subkeys(key), (dfden, dfnum))
    )
    return upper / lower
