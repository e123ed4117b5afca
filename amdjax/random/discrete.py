"""Samplers of discrete distributions, shuffles and choices."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax, numpy as jnp
from amdjax.core import dtypes
from amdjax.core.trace import concrete_or_error
from amdjax.lax._rules import as_ints
from amdjax.numpy._util import check_arraylike
from amdjax.random._arguments import (
    Shape,
    as_shape,
    bits_of,
    common_shape,
    int_dtype,
    parameter_shape,
    single_key,
)
from amdjax.random._compile import compiled
from amdjax.random._keys import subkeys
from amdjax.random.basic import randint_in, uniform_in
from amdjax.random.gumbel import gumbel_in, gumbel_mode

__all__ = [
    "bernoulli", "categorical", "choice", "geometric", "permutation", "rademacher",
]  # fmt: skip


def bernoulli(
    key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low", *, out_sharding: Any = None
) -> Any:
    """Booleans that are true with probability `p`.

    Args:
      p: the probability, of a float dtype.
      shape: the shape of the result; that of `p` by default.
      mode: "low" compares with one random float, "high" with two, for very small `p`.

    Returns:
      A boolean array of that shape.

    Raises:
      TypeError: if `p` is not a float.
      ValueError: if `p` does not fit the shape or the mode is another word.

        >>> random.bernoulli(random.key(1), 0.5, (4,)).tolist()
        [True, False, True, True]
    """
    typed = single_key("bernoulli", key)
    if mode not in ("high", "low"):
        raise ValueError(f"bernoulli mode must be 'high' or 'low', got {mode!r}.")
    dtype = dtypes.canonicalize_dtype(dtypes.dtype(p))
    if not dtypes.issubdtype(dtype, np.floating):
        raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {dtype}.")
    return _bernoulli(typed, p, shape=parameter_shape("bernoulli", shape, p), mode=mode)


def bernoulli_in(key: Any, p: Any, shape: Shape, mode: str = "low") -> Any:
    """As `bernoulli`, within a program."""
    dtype = dtypes.canonicalize_dtype(dtypes.dtype(p))
    p = lax.convert_element_type(p, dtype)
    if mode == "low":
        return uniform_in(key, 0.0, 1.0, shape, dtype) < p
    pair = uniform_in(key, 0.0, 1.0, (2, *shape), dtype)
    coarse, fine = (lax.index_in_dim(pair, k, 0, keepdims=False) for k in (0, 1))
    return fine * 2.0 ** -dtypes.finfo(dtype).nmant < p - coarse


_bernoulli = compiled(bernoulli_in)


def rademacher(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Any:
    """Numbers that are 1 or -1 with equal probability.

    Args:
      dtype: its dtype; int32 by default, int64 under x64.

    Raises:
      ValueError: if the key is an array of keys.

        >>> random.rademacher(random.key(1), (4,)).tolist()
        [1, -1, 1, 1]
    """
    typed = single_key("rademacher", key)
    dtype = dtypes.check_and_canonicalize_user_dtype(int if dtype is None else dtype)
    return _rademacher(typed, shape=as_shape("rademacher", shape), dtype=dtype)


def rademacher_in(key: Any, shape: Shape, dtype: Any) -> Any:
    """As `rademacher`, within a program."""
    heads = lax.convert_element_type(bernoulli_in(key, 0.5, shape), dtype)
    return lax.convert_element_type(2 * heads - 1, dtype)


_rademacher = compiled(rademacher_in)


def geometric(
    key: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """How many trials it takes until the first success.

    Args:
      shape: the shape of the result; that of `p` by default.
      dtype: an integer dtype; int32 by default, int64 under x64.

    Returns:
      An array of that shape and dtype, at least one.

    Raises:
      ValueError: if the dtype is not an integer or `p` does not fit the shape.

        >>> random.geometric(random.key(0), 0.1, (3,)).shape
        (3,)
    """
    typed = single_key("geometric", key)
    dtype = int_dtype("geometric", dtype)
    return _geometric(typed, p, shape=parameter_shape("geometric", shape, p), dtype=dtype)


@compiled
def _geometric(key: Any, p: Any, *, shape: Shape, dtype: Any) -> Any:
    p = _inexact(p)
    u = uniform_in(key, 0.0, 1.0, shape, p.dtype)
    u = jnp.where(u == 0, 1, u)
    trials = lax.floor(lax.log(u) / jnp.broadcast_to(lax.log1p(-p), shape)) + 1
    return lax.convert_element_type(trials, dtype)


def _inexact(x: Any) -> Any:
    x = jnp.asarray(x)
    return x.astype(dtypes.to_inexact_dtype(x.dtype))


def categorical(
    key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True,
    mode: str | None = None, *, out_sharding: Any = None,
) -> Any:  # fmt: skip
    """Indices of categories, drawn with probabilities `softmax(logits)`.

    Args:
      logits: unnormalized logarithms of probabilities.
      axis: the axis of `logits` that runs over categories.
      shape: the shape of the result; it ends with the shape of `logits` without `axis`, and is
        that by default.
      replace: whether the draws that leading axes of `shape` add may repeat a category.
      mode: of the Gumbel noise beneath; see `gumbel`.

    Returns:
      An integer array of that shape.

    Raises:
      ValueError: if the logits do not fit the shape or there are too few categories.
      AxisError: if the logits have no such axis.

        >>> logits = np.log(np.float32([0.01, 0.01, 0.98]))
        >>> random.categorical(random.key(0), logits, shape=(3,)).shape
        (3,)
    """
    typed = single_key("categorical", key)
    logits = jnp.asarray(logits)
    rank, axis = logits.ndim, operator.index(axis)
    if not -rank <= axis < rank:
        text = f"categorical axis {axis} is out of bounds for logits of rank {rank}."
        raise np.exceptions.AxisError(text)  # an IndexError and a ValueError
    batch = tuple(n for d, n in enumerate(logits.shape) if d != axis % rank)
    shape = common_shape("categorical", shape, batch)
    static = {"axis": axis % rank - rank, "shape": shape, "mode": gumbel_mode(mode)}
    if replace:
        return _categorical(typed, logits, **static)
    count = math.prod(shape[: len(shape) - len(batch)])
    if count > logits.shape[axis]:
        raise ValueError(
            f"Number of samples without replacement ({count}) cannot exceed number of categories "
            f"({logits.shape[axis]})."
        )
    return _distinct_categories(typed, logits, **static)


@compiled
def _categorical(key: Any, logits: Any, *, axis: int, shape: Shape, mode: str) -> Any:
    drawn = list(shape)
    drawn.insert(len(shape) + axis + 1, logits.shape[axis])
    noise = gumbel_in(key, tuple(drawn), logits.dtype, mode)
    extra = tuple(range(len(drawn) - logits.ndim))
    return jnp.argmax(noise + lax.expand_dims(logits, extra), axis=axis)


@compiled
def _distinct_categories(key: Any, logits: Any, *, axis: int, shape: Shape, mode: str) -> Any:
    noisy = logits + gumbel_in(key, logits.shape, logits.dtype, mode)
    count = math.prod(shape[: len(shape) - logits.ndim + 1])
    _, indices = lax.top_k(jnp.moveaxis(noisy, axis, -1), count)
    return lax.reshape(jnp.moveaxis(indices, -1, 0), shape)


def permutation(
    key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None
) -> Any:
    """A random order of elements or slices.

    Args:
      x: an array; or an integer n, which stands for `arange(n)`.
      axis: the axis to permute.
      independent: whether each vector along `axis` is permuted in an order of its own.

    Returns:
      An array like `x`.

    Raises:
      ValueError: if `axis` is out of bounds.
      TypeError: if `x` is a scalar but not an integer.

        >>> sorted(random.permutation(random.key(0), 5).tolist())
        [0, 1, 2, 3, 4]
    """
    typed = single_key("permutation", key)
    rank = np.ndim(x)
    vector = max(rank, 1)
    (axis,) = as_ints((axis,), "permutation axis")
    if not -vector <= axis < vector:
        raise ValueError(f"permutation axis {axis} is out of bounds for an array of rank {vector}.")
    if not rank:
        if not dtypes.issubdtype(dtypes.dtype(x), np.integer):
            raise TypeError("permutation: x must be an integer or at least 1-dimensional.")
        size = concrete_or_error(int, x, "It is argument x of random.permutation.")
        return _shuffled(typed, jnp.arange(size), axis=0)
    if independent or rank == 1:
        return _shuffled(typed, x, axis=axis % rank)
    return _permuted(typed, x, axis=axis % rank)


def shuffled_in(key: Any, x: Any, axis: int) -> Any:
    """`x` sorted by random keys, as often as makes ties among these unlikely to matter."""
    exponent = 3
    rounds = math.ceil(exponent * math.log(max(1, x.size)) / np.log(np.iinfo(np.uint32).max))
    for _ in range(rounds):
        key, subkey = subkeys(key)
        _, x = lax.sort_key_val(bits_of(subkey, 32, x.shape), x, axis)
    return x


_shuffled = compiled(shuffled_in)


def permuted_in(key: Any, x: Any, axis: int) -> Any:
    """As `permutation` of an array, within a program."""
    if x.ndim == 1:
        return shuffled_in(key, x, 0)
    order = shuffled_in(key, jnp.arange(x.shape[axis]), 0)
    return jnp.take(x, order, axis, unique_indices=True)


_permuted = compiled(permuted_in)


def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0,
    mode: str | None = None,
) -> Any:  # fmt: skip
    """Elements or slices drawn from an array.

    Args:
      a: an array; or an integer n, which stands for `arange(n)`.
      shape: the shape of the draws.
      replace: whether an element may be drawn more than once.
      p: the probability of each entry along `axis`; all alike by default.
      axis: the axis of `a` along which to draw.
      mode: of the Gumbel noise beneath a draw without replacement by `p`; see `gumbel`.

    Returns:
      An array like `a`, with `shape` in place of `axis`.

    Raises:
      TypeError: if `shape` is no sequence, or `a` a number with a fraction.
      ValueError: if there are too few entries, or `p` is of another shape.

        >>> random.choice(random.key(0), 10, (3,)).tolist()
        [9, 0, 2]
    """
    typed = single_key("choice", key)
    if not isinstance(shape, Sequence):
        raise TypeError(f"shape argument of random.choice must be a sequence, got {shape}")
    shape = as_shape("choice", shape)
    check_arraylike("choice", a)
    scalar = not np.ndim(a)
    if scalar:
        count = concrete_or_error(int, a, "It is argument a of random.choice.")
        if count != a:
            raise TypeError(f"choice: a must be an array or an integer, got {a!r}.")
        axis = 0
    else:
        a = jnp.asarray(a)
        axis = axis + a.ndim if axis < 0 else axis
        count = a.shape[axis]
    draws = math.prod(shape)
    if not draws:
        return jnp.zeros(shape, dtypes.canonicalize_dtype(dtypes.dtype(a)))
    _check_choice(count, draws, replace, p)
    if p is not None:
        drawn = _weighted(typed, p, shape=shape, replace=bool(replace), mode=gumbel_mode(mode))
    elif replace:
        drawn = _randint_below(typed, count=count, shape=shape)
    else:
        whole = jnp.arange(count) if scalar else a
        some = lax.slice_in_dim(_permuted(typed, whole, axis=axis), 0, draws, axis=axis)
        return _spread(some, axis, shape)
    return drawn if scalar else _spread(jnp.take(a, drawn, axis), axis, shape, len(shape))


def _check_choice(count: int, draws: int, replace: bool, p: Any) -> None:
    if count <= 0:
        raise ValueError("choice: a must be greater than 0 unless no samples are taken")
    if not replace and draws > count:
        raise ValueError(
            f"Cannot take a larger sample (size {draws}) than population (size {count}) when "
            "'replace=False'"
        )
    if p is not None and np.shape(p) != (count,):
        raise ValueError(
            "choice: p must be None or a vector with an entry for each of the "
            f"{count} entries of a, got shape {np.shape(p)}."
        )


def _spread(x: Any, axis: int, shape: Shape, old: int = 1) -> Any:
    """`x` with `old` axes from `axis` on reshaped to `shape`."""
    return lax.reshape(x, (*x.shape[:axis], *shape, *x.shape[axis + old :]))


@compiled
def _randint_below(key: Any, *, count: int, shape: Shape) -> Any:
    return randint_in(key, 0, count, shape, dtypes.default_int_dtype())


@compiled
def _weighted(key: Any, p: Any, *, shape: Shape, replace: bool, mode: str) -> Any:
    p = _inexact(p)
    integer = dtypes.default_int_dtype()
    if replace:
        sums = jnp.cumsum(p)
        r = sums[-1] * (1 - uniform_in(key, 0.0, 1.0, shape, sums.dtype))
        return jnp.searchsorted(sums, r).astype(integer)
    noisy = gumbel_in(key, p.shape, p.dtype, mode) + jnp.log(p)
    drawn = lax.top_k(noisy, math.prod(shape))[1].astype(integer)
    return lax.reshape(drawn, shape)
