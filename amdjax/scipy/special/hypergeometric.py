"""Hypergeometric functions: Kummer's and Gauss's.

Formula numbers are those of the NIST Digital Library of Mathematical Functions (dlmf.nist.gov).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike
from amdjax.scipy.special._arguments import listed, reals
from amdjax.scipy.special.elementary import gammasgn
from amdjax.transforms import custom_jvp
from amdjax.transforms.differentiate import jvp

__all__ = ["hyp1f1", "hyp2f1"]

_LIMIT = 2000


def _sum(ratio: Callable[[Array], Array], like: Array) -> Array:
    """1 + r(0) + r(0) r(1) + …, until every element has converged or is no number."""
    eps = float(jnp.finfo(like.dtype).eps)

    def busy(state: tuple[Array, Array, Array]) -> Array:
        k, term, total = state
        open_ = jnp.abs(term) > eps * jnp.abs(total)
        return (k < _LIMIT) & jnp.any(open_ & jnp.isfinite(total))

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, term, total = state
        term = term * ratio(k)
        return k + 1, term, total + term

    one = jnp.ones_like(like)
    return lax.while_loop(busy, step, (jnp.zeros((), like.dtype), one, one))[2]


def _gamma_quotient(above: tuple[Array, ...], below: tuple[Array, ...]) -> Array:
    """The product of gamma functions over that of others; zero at poles of the latter."""
    size: Any = sum(map(lax.lgamma, above)) - sum(map(lax.lgamma, below))
    sign = jnp.ones_like(above[0])
    for x in (*above, *below):
        sign = sign * jnp.where(gammasgn(x) < 0, -1, 1)
    pole = jnp.zeros_like(sign, bool)
    for x in below:
        pole = pole | _is_pole(x)
    return jnp.where(pole, 0, sign * jnp.exp(size))


def _is_pole(x: Array) -> Array:
    return (x <= 0) & (x == jnp.floor(x))


@composite
def _kummer(a: Array, b: Array, x: Array) -> Array:
    # By 13.2.39 nothing cancels in the series for negative x, where a < b.
    negative = x < 0
    p, z = jnp.where(negative, b - a, a), jnp.abs(x)
    largest = jnp.maximum(jnp.maximum(jnp.abs(p), jnp.abs(b)), 1)
    far = (z > 60) & (z > largest * largest / 2) & ~_is_pole(p)
    inner, outer = jnp.where(far, 1, z), jnp.where(far, z, 1e6)
    near = _sum(lambda k: (p + k) / (b + k) * inner / (k + 1), x)
    # 13.7.1 as far as its terms shrink.
    total = term = jnp.ones_like(x)
    growing = jnp.zeros_like(x, bool)
    for k in range(30):
        following = term * (1 - p + k) * (b - p + k) / ((k + 1) * outer)
        growing = growing | (jnp.abs(following) > jnp.abs(term))
        term = following
        total = jnp.where(growing, total, total + term)
    power = jnp.where(negative, 0, outer) + (p - b) * jnp.log(outer)
    tail = _gamma_quotient((b,), (p,)) * jnp.exp(power) * total
    value = jnp.where(far, tail, near * jnp.where(negative, jnp.exp(-inner), 1))
    value = jnp.where((a == 0) | (x == 0), 1, value)
    return jnp.where(_is_pole(b), jnp.inf, value)


_hyp1f1 = custom_jvp(_kummer)


@_hyp1f1.defjvp
def _hyp1f1_jvp(primals: Any, tangents: Any) -> Any:
    a, b, x = primals
    one = jnp.ones_like(a)
    by_a = jvp(lambda v: _kummer(v, b, x), (a,), (one,))[1]
    by_b = jvp(lambda v: _kummer(a, v, x), (b,), (one,))[1]
    by_x = a / b * _hyp1f1(a + 1, b + 1, x)
    return _hyp1f1(a, b, x), by_a * tangents[0] + by_b * tangents[1] + by_x * tangents[2]


def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Kummer's confluent hypergeometric function.

    Args:
      a: real.
      b: real; the function is infinite at 0, -1, -2, ….
      x: real; all three broadcast.

        >>> print(special.hyp1f1(1.0, 2.0, 1.0).round(4))
        1.7183
    """
    (a, b, x), narrow = reals("hyp1f1", *listed(a, b, x))
    return narrow(_hyp1f1(a, b, x))


def _gauss_series(a: Array, b: Array, c: Array, x: Array) -> Array:
    return _sum(lambda k: (a + k) / (c + k) * (b + k) / (k + 1) * x, x)


@composite
def _gauss(a: Array, b: Array, c: Array, x: Array) -> Array:
    """By the series 15.2.1 for small |x|, after 15.8.1 for x < -1/2, else 15.8.4 around 1."""
    finite = _is_pole(a) | _is_pole(b)
    left = (x < -0.5) & ~finite
    gap = c - a - b
    # Where the difference is whole, both terms of 15.8.4 are infinite.
    close = (x > 0.75) & (x < 1) & ~finite & (gap != jnp.round(gap))
    p, z = jnp.where(left, c - b, b), jnp.where(left, x / (x - 1), x)
    z = jnp.where(close | ((x >= 1) & ~finite), 0, z)
    value = _gauss_series(a, p, c, z) * jnp.where(left, (1 - jnp.minimum(x, 0)) ** -a, 1)
    rest, safe = jnp.where(close, 1 - x, 0.25), jnp.where(close, gap, 0.5)
    first = _gamma_quotient((c, safe), (c - a, c - b)) * _gauss_series(a, b, 1 - safe, rest)
    second = _gamma_quotient((c, -safe), (a, b)) * rest**safe
    second = second * _gauss_series(c - a, c - b, 1 + safe, rest)
    value = jnp.where(close, first + second, value)
    # 15.4.20 at 1, where the sum is finite.
    at_one = _gamma_quotient((c, jnp.where(gap > 0, gap, 1)), (c - a, c - b))
    at_one = jnp.where(gap > 0, at_one, jnp.inf)
    value = jnp.where((x == 1) & ~finite, at_one, value)
    value = jnp.where((x > 1) & ~finite, jnp.inf, value)
    # The lower parameter may end the series before its denominator vanishes.
    early = (_is_pole(a) & (a > c)) | (_is_pole(b) & (b > c))
    value = jnp.where(_is_pole(c) & ~early, jnp.inf, value)
    # 15.4.6
    rest, inside = 1 - jnp.minimum(x, 1), (x <= 1) & ~finite
    value = jnp.where(inside & (a == c), rest**-b, value)
    value = jnp.where(inside & (b == c), rest**-a, value)
    return jnp.where((a == 0) | (b == 0) | ((x == 0) & ~_is_pole(c)), 1, value)


_hyp2f1 = custom_jvp(_gauss)


@_hyp2f1.defjvp
def _hyp2f1_jvp(primals: Any, tangents: Any) -> Any:
    a, b, c, x = primals
    one = jnp.ones_like(a)
    slopes = [
        jvp(lambda v: _gauss(v, b, c, x), (a,), (one,))[1],
        jvp(lambda v: _gauss(a, v, c, x), (b,), (one,))[1],
        jvp(lambda v: _gauss(a, b, v, x), (c,), (one,))[1],
        a * b / c * _hyp2f1(a + 1, b + 1, c + 1, x),
    ]
    return _hyp2f1(a, b, c, x), sum(s * t for s, t in zip(slopes, tangents))


def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """Gauss's hypergeometric function.

    Args:
      a: real.
      b: real.
      c: real; the function is infinite at 0, -1, -2, …, unless it is a polynomial before.
      x: real, at most 1 unless `a` or `b` is 0, -1, -2, …; all four broadcast.

        >>> print(special.hyp2f1(1.0, 1.0, 2.0, 0.5).round(4))
        1.3863
    """
    (a, b, c, x), narrow = reals("hyp2f1", *listed(a, b, c, x))
    return narrow(_hyp2f1(a, b, c, x))
