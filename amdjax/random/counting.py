"""Samplers of counts, by rejection: Poisson, binomial, multinomial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdjax import lax, numpy as jnp
from amdjax.core import dtypes, promotion
from amdjax.random._arguments import Shape, as_shape, float_dtype, parameter_shape, single_key
from amdjax.random._compile import compiled
from amdjax.random._keys import key_impl, subkeys
from amdjax.random._prng import random_split
from amdjax.random.basic import uniform_in
from amdjax.random.discrete import _inexact

__all__ = ["binomial", "multinomial", "poisson"]


def poisson(
    key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Counts of the Poisson distribution.

    Args:
      key: a key of the default generator.
      lam: the mean.
      shape: the shape of the result; that of `lam` by default.
      dtype: an integer dtype; int32 by default, int64 under x64.

    Returns:
      An array of that shape and dtype; -1 where `lam` is NaN.

    Raises:
      NotImplementedError: for another generator.
      ValueError: if `lam` does not fit the shape.

    Source: Knuth, "The art of computer programming", vol. 2, for means below ten; Hörmann, "The
      transformed rejection method for generating Poisson random variables", 1993, above.

        >>> random.poisson(random.key(0), 4.0, (3,)).shape
        (3,)
    """
    typed = single_key("poisson", key)
    if key_impl(typed) != "threefry2x32":
        raise NotImplementedError(
            f"`poisson` is only implemented for the threefry2x32 RNG, not {key_impl(typed)}"
        )
    dtype = dtypes.check_and_canonicalize_user_dtype(int if dtype is None else dtype)
    return _poisson(typed, lam, shape=parameter_shape("poisson", shape, lam), dtype=dtype)


@compiled
def _poisson(key: Any, lam: Any, *, shape: Shape, dtype: Any) -> Any:
    lam = jnp.broadcast_to(lax.convert_element_type(lam, np.float32), shape)
    small = (lam != lam) | (lam < 10)
    # Each method runs on all elements; those of the other get a mean that it ends with quickly.
    few = _poisson_by_products(key, lax.select(small, lam, lax.full_like(lam, 0)), dtype)
    many = _poisson_by_rejection(key, lax.select(small, lax.full_like(lam, 1e5), lam), dtype)
    counts = lax.select(small, few, many)
    return lax.select(lam == 0, lax.full_like(counts, 0), counts)


def _rounds(dtype: Any) -> Any:
    """More rounds than any loop here needs, lest one runs forever."""
    info = dtypes.finfo if dtypes.issubdtype(dtype, np.floating) else dtypes.iinfo
    return np.asarray(info(dtype).max, dtype)


def _poisson_by_products(key: Any, lam: Any, dtype: Any) -> Any:
    """How many uniform numbers keep their product above exp(-lam)."""

    def more(state: Any) -> Any:
        i, _, _, log_product = state
        return jnp.any(log_product > -lam) & (i < _rounds(dtype))

    def step(state: Any) -> Any:
        i, k, key, log_product = state
        key, subkey = subkeys(key)
        k = lax.select(log_product > -lam, k + 1, k)
        u = uniform_in(subkey, 0.0, 1.0, lam.shape, np.dtype(np.float32))
        return i + 1, k, key, log_product + lax.log(u)

    start = (0, lax.full(lam.shape, 0, dtype), key, lax.full_like(lam, 0))
    return lax.convert_element_type(lax.while_loop(more, step, start)[1] - 1, dtype)


def _poisson_by_rejection(key: Any, lam: Any, dtype: Any) -> Any:
    log_lam = lax.log(lam)
    b = 0.931 + 2.53 * lax.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inv_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def propose(key: Any) -> Any:
        key, u_key, v_key = subkeys(key, 3)
        u = uniform_in(u_key, 0.0, 1.0, lam.shape, lam.dtype) - 0.5
        v = uniform_in(v_key, 0.0, 1.0, lam.shape, lam.dtype)
        us = 0.5 - lax.abs(u)
        k = lax.floor((2 * a / us + b) * u + lam + 0.43)
        s = lax.log(v * inv_alpha / (a / (us * us) + b))
        t = -lam + k * log_lam - lax.lgamma(k + 1)
        at_once = (us >= 0.07) & (v <= v_r)
        rejected = (k < 0) | ((us < 0.013) & (v > us))
        return key, k, at_once | (~rejected & (s <= t))

    return lax.convert_element_type(_until_accepted(propose, key, lam, _rounds(dtype)), dtype)


def _until_accepted(propose: Callable[..., Any], key: Any, like: Any, rounds: Any) -> Any:
    """Proposals until each element has accepted one; a later acceptance replaces an earlier."""

    def more(state: Any) -> Any:
        i, _, accepted, _ = state
        return jnp.any(~accepted) & (i < rounds)

    def step(state: Any) -> Any:
        i, found, accepted, key = state
        key, k, accept = propose(key)
        return i + 1, lax.select(accept, k, found), accepted | accept, key

    start = (0, lax.full_like(like, -1), lax.full(like.shape, False, np.bool_), key)
    return lax.while_loop(more, step, start)[1]


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """How many of `n` trials succeed.

    Args:
      n: the number of trials.
      shape: the shape of the result; that of the parameters by default.

    Returns:
      An array of that shape and dtype; NaN where a parameter is out of range.

    Raises:
      ValueError: if the dtype is not a float or the parameters do not fit the shape.

    Source: Kachitvichyanukul and Schmeiser, "Binomial random variate generation", 1988, for small
      means; Hörmann, "The generation of binomial random variates", 1993, for others.

        >>> random.binomial(random.key(0), 10.0, 0.5, (3,)).shape
        (3,)
    """
    typed = single_key("binomial", key)
    dtype = float_dtype("binomial", dtype)
    return _binomial(typed, n, p, shape=parameter_shape("binomial", shape, n, p), dtype=dtype)


def binomial_in(key: Any, n: Any, p: Any, shape: Shape, dtype: Any) -> Any:
    """As `binomial`, within a program."""
    p = _inexact(p)
    n = jnp.broadcast_to(lax.convert_element_type(n, p.dtype), shape)
    p = jnp.broadcast_to(p, shape)
    # Of success and failure, count the less probable.
    rare = p < 0.5
    q = lax.select(rare, p, 1.0 - p)
    bad_n = (n != n) | (n < 0)
    endless = jnp.isinf(n)
    bad_q, negative = q != q, q < 0
    q = lax.select(bad_q | negative, lax.full_like(q, 0.01), q)
    small = bad_n | (n * q <= 10.0)
    n = lax.floor(n)
    few = _binomial_by_inversion(key, lax.select(small, n, lax.full_like(n, 0)), q, dtype)
    n_many = lax.select(small, lax.full_like(n, 1e4), n)
    q_many = lax.select(small, lax.full_like(q, 0.5), q)
    many = _binomial_by_rejection(key, n_many, q_many, dtype)
    counts = lax.select(small, few, many)
    invalid = negative | bad_q | bad_n
    counts = lax.select(invalid, lax.full_like(counts, np.nan), counts)
    counts = lax.select(endless & ~invalid, lax.full_like(counts, np.inf), counts)
    as_counted = rare | bad_n | bad_q | endless
    return lax.select(as_counted, counts, lax.convert_element_type(n, dtype) - counts)


_binomial = compiled(binomial_in)


def _binomial_by_inversion(key: Any, n: Any, p: Any, dtype: Any) -> Any:
    """How many geometric waiting times fit into n trials."""
    log_failure = lax.log1p(-p)

    def more(state: Any) -> Any:
        i, _, waited, _ = state
        return jnp.any(waited <= n) & (i < _rounds(dtype))

    def step(state: Any) -> Any:
        i, successes, waited, key = state
        subkey, key = subkeys(key)
        successes = lax.select(waited <= n, successes + 1, successes)
        u = uniform_in(subkey, 0.0, 1.0, p.shape, p.dtype)
        return i + 1, successes, waited + lax.ceil(lax.log(u) / log_failure), key

    start = (0, lax.full_like(p, 0), lax.full_like(p, 0), key)
    return lax.convert_element_type(lax.while_loop(more, step, start)[1] - 1, dtype)


def _binomial_by_rejection(key: Any, n: Any, p: Any, dtype: Any) -> Any:
    deviation = lax.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = n * p + 0.5
    v_r = 0.92 - 4.2 / b
    r = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = lax.floor((n + 1) * p)

    def propose(key: Any) -> Any:
        key, u_key, v_key = subkeys(key, 3)
        u = uniform_in(u_key, 0.0, 1.0, p.shape, p.dtype)
        v = uniform_in(v_key, 0.0, 1.0, p.shape, p.dtype)
        u = u - 0.5
        us = 0.5 - lax.abs(u)
        at_once = (us >= 0.07) & (v <= v_r)
        k = lax.floor((2 * a / us + b) * u + c)
        rejected = (k < 0) | (k > n)
        v = lax.log(v * alpha / (a / (us * us) + b))
        bound = (
            (m + 0.5) * lax.log((m + 1) / (r * (n - m + 1)))
            + (n + 1) * lax.log((n - m + 1) / (n - k + 1))
            + (k + 0.5) * lax.log(r * (n - k + 1) / (k + 1))
            + _stirling_tail(m)
            + _stirling_tail(n - m)
            - _stirling_tail(k)
            - _stirling_tail(n - k)
        )
        return key, k, at_once | (~rejected & (v <= bound))

    return lax.convert_element_type(_until_accepted(propose, key, p, _rounds(dtype)), dtype)


# log(k!) less Stirling's formula, for k up to nine.
_STIRLING_TAILS = (
    0.0810614667953272,
    0.0413406959554092,
    0.0276779256849983,
    0.02079067210376509,
    0.0166446911898211,
    0.0138761288230707,
    0.0118967099458917,
    0.0104112652619720,
    0.00925546218271273,
    0.00833056343336287,
)


def _stirling_tail(k: Any) -> Any:
    tabulated = k <= 9
    k = lax.clamp(np.asarray(0, k.dtype), k, np.asarray(9, k.dtype))
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    table = jnp.asarray(np.asarray(_STIRLING_TAILS, k.dtype))
    index = lax.convert_element_type(lax.floor(k), np.int32)
    return lax.select(tabulated, table[index], series)


def multinomial(
    key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: int | bool = 1
) -> Any:
    """How many of `n` trials end in each category.

    Args:
      n: the number of trials, of shape `(...)`.
      p: the probabilities of the categories, of shape `(..., k)`.
      shape: the shape of the result, categories included; that of `p` by default.
      dtype: its dtype; that of the promoted parameters by default.
      unroll: how many categories a step of the loop covers.

    Raises:
      ValueError: if the parameters do not fit the shape.

        >>> float(random.multinomial(random.key(0), 20, np.float32([0.2, 0.3, 0.5])).sum())
        20.0
    """
    typed = single_key("multinomial", key)
    n, p = _inexact(n), _inexact(p)
    common = promotion.result_type(n, p)
    shape = p.shape if shape is None else as_shape("multinomial", shape)
    out = common if dtype is None else dtypes.check_and_canonicalize_user_dtype(dtype)
    counts = _multinomial(typed, n.astype(common), p.astype(common), shape=shape, unroll=unroll)
    return lax.convert_element_type(counts, out)


@compiled
def _multinomial(key: Any, n: Any, p: Any, *, shape: Shape, unroll: int | bool) -> Any:
    n = jnp.broadcast_to(n, shape[:-1])
    p = jnp.moveaxis(jnp.broadcast_to(p, shape), -1, 0)
    remaining = lax.cumsum(p, 0, reverse=True)
    ratios = p / jnp.where(remaining == 0, 1, remaining)
    keys = random_split(key, (p.shape[0],))

    def step(trials: Any, ratio_and_key: Any) -> Any:
        ratio, key = ratio_and_key
        count = binomial_in(key, trials, jnp.clip(ratio, 0, 1), trials.shape, trials.dtype)
        return trials - count, count

    _, counts = lax.scan(step, n, (ratios, keys), unroll=unroll)
    return jnp.moveaxis(counts, 0, -1)
