"""Exponential, sine and cosine integrals, the dilogarithm, and numbers of Bernoulli.

Formula numbers are those of the NIST Digital Library of Mathematical Functions (dlmf.nist.gov).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import comb, factorial
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, check_arraylike
from amdjax.scipy.special._arguments import listed, reals, single_or_double
from amdjax.transforms import custom_jvp

__all__ = ["bernoulli", "exp1", "expi", "expn", "sici", "spence"]


def _fraction(n: Any, x: Array, terms: int) -> Array:
    """exp(x) E_n(x) by the even part of its continued fraction (8.19.17), bottom up."""

    def step(i: Any, tail: Array) -> Array:
        k = jnp.asarray(terms - i, x.dtype)
        return k * (n + k - 1) / (x + n + 2 * k - tail)

    return 1 / (x + n - lax.fori_loop(0, terms, step, jnp.zeros_like(x)))


@composite
def _expn_positive(n: Array, x: Array) -> Array:
    """E_n(x) for integers n >= 1 and x > 0."""
    large = x > 1
    outer = jnp.exp(-x) * _fraction(n, jnp.where(large, x, 2), 90)
    # 8.19.8: the term of order n - 1 of the series of exp is replaced by one with a logarithm.
    inner = jnp.where(large, 1, x)

    def step(i: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        total, power, special = state
        m = jnp.asarray(i, x.dtype)
        hit = m == n - 1
        special = jnp.where(hit, power, special)
        gap = jnp.where(hit, 1, m - n + 1)
        total = total - jnp.where(hit, 0, power / gap)
        return total, power * -inner / (m + 1), special

    zero = jnp.zeros_like(x)
    total, _, special = lax.fori_loop(0, 24, step, (zero, jnp.ones_like(x), zero))
    series = total + special * (lax.digamma(n) - jnp.log(inner))
    return jnp.where(large, outer, series)


@custom_jvp
def _expn(n: Array, x: Array) -> Array:
    order = jnp.maximum(n, 1)
    inside = x > 0
    value = _expn_positive(order, jnp.where(inside, x, 1))
    value = jnp.where(n == 0, jnp.exp(-x) / x, value)
    at_zero = jnp.where(n > 1, 1 / jnp.where(n > 1, n - 1, 1), jnp.inf)
    value = jnp.where(inside, value, jnp.where(x == 0, at_zero, jnp.nan))
    return jnp.where((n < 0) | jnp.isnan(x), jnp.nan, jnp.where(x == jnp.inf, 0, value))


@_expn.defjvp
def _expn_jvp(primals: Any, tangents: Any) -> Any:
    (n, x), (_, dx) = primals, tangents
    lower = jnp.where(n == 0, jnp.exp(-x) * (1 + x) / (x * x), _expn(jnp.maximum(n - 1, 0), x))
    return _expn(n, x), -dx * lower


def expn(n: ArrayLike, x: ArrayLike) -> Array:
    """The generalized exponential integral: of `exp(-x * t) / t**n` from 1 to infinity.

    Args:
      n: order, a non-negative integer.
      x: real, not negative (NaN elsewhere); broadcast against `n`. The derivative is by `x`.

        >>> print(special.expn(2, 1.0).round(4))
        0.1485
    """
    (n, x), narrow = reals("expn", *listed(n, x))
    return narrow(_expn(lax.stop_gradient(n), x))


def exp1(x: ArrayLike) -> Array:
    """The exponential integral: of `exp(-t) / t` from x to infinity.

    Args:
      x: real, not negative (NaN elsewhere).

        >>> print(special.exp1(1.0).round(4))
        0.2194
    """
    (x,), narrow = reals("exp1", x)
    return narrow(_expn(jnp.ones_like(x), x))


@composite
def _expi_positive(x: Array) -> Array:
    """Ei(x) for x > 0: the series 6.6.1 has no cancellation, 6.12.2 holds where x is large."""
    large = x > 40
    inner, outer = jnp.where(large, 1, x), jnp.where(large, x, 50)

    def step(i: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        total, power = state
        k = jnp.asarray(i, x.dtype)
        power = power * inner / k
        return total + power / k, power

    total, _ = lax.fori_loop(1, 150, step, (jnp.zeros_like(x), jnp.ones_like(x)))
    series = np.euler_gamma + jnp.log(inner) + total
    tail = jnp.ones_like(x)
    for k in range(38, 0, -1):
        tail = 1 + k / outer * tail
    return jnp.where(large, jnp.exp(outer) / outer * tail, series)


@custom_jvp
def _expi(x: Array) -> Array:
    positive, negative = jnp.where(x > 0, x, 1), jnp.where(x < 0, -x, 1)
    left = -_expn(jnp.ones_like(x), negative)
    value = jnp.where(x > 0, _expi_positive(positive), left)
    value = jnp.where(x == 0, -jnp.inf, jnp.where(x == jnp.inf, jnp.inf, value))
    return jnp.where(jnp.isnan(x), jnp.nan, value)


@_expi.defjvp
def _expi_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return _expi(x), dx * jnp.exp(x) / x


def expi(x: ArrayLike) -> Array:
    """The exponential integral Ei: of `exp(t) / t` from minus infinity to x, its principal value.

    Args:
      x: real.

        >>> print(special.expi(jnp.array([-1.0, 1.0])).round(4))
        [-0.2194  1.8951]
    """
    (x,), narrow = reals("expi", x)
    return narrow(_expi(x))


@custom_jvp
@composite
def _sici(x: Array) -> tuple[Array, Array]:
    size = jnp.abs(x)
    large = size > 4
    inner = jnp.where(large, 1, size)
    outer = jnp.where(large & (size < jnp.inf), size, 5)

    def step(i: Any, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        sine, cosine, power = state
        k = 2 * jnp.asarray(i, x.dtype)
        power = power * inner / (k + 1)
        sine = sine + power / (k + 1)
        power = -power * inner / (k + 2)
        return sine, cosine + power / (k + 2), power

    zero = jnp.zeros_like(x)
    sine, cosine, _ = lax.fori_loop(0, 16, step, (zero, zero, jnp.ones_like(x)))
    # Elsewhere E_1(ix) = -Ci(x) + i (Si(x) - π/2).
    turned = lax.complex(zero, outer)
    scaled = _fraction(1, turned, 60)
    found = scaled * lax.complex(jnp.cos(outer), -jnp.sin(outer))
    far = size == jnp.inf
    si = jnp.where(large, np.pi / 2 + jnp.where(far, 0, jnp.imag(found)), sine)
    log = jnp.log(jnp.where(size == 0, 0, inner))
    ci = jnp.where(large, jnp.where(far, 0, -jnp.real(found)), np.euler_gamma + log + cosine)
    # The real part of Ci is even; at -inf SciPy leaves it open.
    wrong = (x == -jnp.inf) | jnp.isnan(x)
    si = jnp.where(jnp.isnan(x), jnp.nan, jnp.sign(x) * si)
    return si, jnp.where(wrong, jnp.nan, ci)


@_sici.defjvp
def _sici_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return _sici(x), (dx * jnp.sinc(x / np.pi), dx * jnp.cos(x) / x)


def sici(x: ArrayLike) -> tuple[Array, Array]:
    """The sine integral, of `sin(t) / t` from 0 to x, and the cosine integral.

    Args:
      x: real; where it is negative, the cosine integral is the real part.

    Returns:
      `(Si, Ci)`.

        >>> si, ci = special.sici(2.0)
        >>> print(si.round(4), ci.round(4))
        1.6054 0.423
    """
    (x,), narrow = reals("sici", x)
    si, ci = _sici(x)
    return narrow(si), narrow(ci)


@cache
def _bernoulli(count: int) -> tuple[Fraction, ...]:
    """The first numbers of Bernoulli, with B_1 = -1/2."""
    numbers: list[Fraction] = []
    for n in range(count):
        total = sum((comb(n + 1, k) * b for k, b in enumerate(numbers)), Fraction(n == 0))
        numbers.append(total if n == 0 else -total / (n + 1))
    return tuple(numbers)


def bernoulli(n: int) -> Array:
    """The numbers of Bernoulli from B_0 to B_n, with B_1 = -1/2.

    Args:
      n: a non-negative integer.

    Raises:
      ValueError: `n` is negative.

        >>> print(special.bernoulli(4).round(4))
        [ 1.     -0.5     0.1667  0.     -0.0333]
    """
    order = lax.stop_gradient(n).__index__() if isinstance(n, Array) else n
    if not isinstance(order, (int, np.integer)):
        raise TypeError(f"bernoulli: n must be an integer, got {n!r}")
    if order < 0:
        raise ValueError(f"bernoulli: n must be non-negative, got {n}")
    # Beyond B_256 they exceed the range of float64.
    exact = [float(b) for b in _bernoulli(min(int(order), 256) + 1)]
    signs = [0.0 if k % 2 else (np.inf if k % 4 == 2 else -np.inf) for k in range(257, order + 1)]
    return jnp.array([*exact, *signs], dtypes.default_float_dtype())


@cache
def _debye() -> tuple[float, ...]:
    """Coefficients B_k / (k + 1)! of Li_2(1 - exp(-u)) = Σ B_k u**(k + 1) / (k + 1)!."""
    return tuple(float(b / factorial(k + 1)) for k, b in enumerate(_bernoulli(24)))


@custom_jvp
@composite
def _spence(x: Array) -> Array:
    """Li_2(1 - x), which 25.12.4 and 25.12.6 express by its values on [1/2, 3/2]."""
    above = x > 1.5
    inside = jnp.where(above, 1 / jnp.where(above, x, 1), x)
    below = inside < 0.5
    u = -jnp.log(jnp.where(below, 1 - inside, inside))
    total = jnp.zeros_like(u)
    for c in reversed(_debye()):
        total = total * u + c
    total = total * u
    positive = below & (inside > 0)  # the product tends to zero with x
    product = jnp.log(jnp.where(positive, inside, 1)) * jnp.log1p(-jnp.where(below, inside, 0))
    value = jnp.where(below, np.pi**2 / 6 - product - total, total)
    log = jnp.log(jnp.where(above, x, 1))
    value = jnp.where(above, -0.5 * log * log - value, value)
    return jnp.where((x < 0) | jnp.isnan(x), jnp.nan, value)


@_spence.defjvp
def _spence_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    above = x - 1
    slope = jnp.log(x) / jnp.where(above == 0, 1, -above)
    at_one = above * (0.5 - above / 3) - 1  # its series, for higher derivatives
    return _spence(x), dx * jnp.where(above == 0, at_one, slope)


def spence(x: ArrayLike) -> Array:
    """Spence's function: the integral of `log(t) / (1 - t)` from 1 to x, the dilogarithm of 1 - x.

    Args:
      x: real, not negative (NaN elsewhere).

        >>> print(special.spence(jnp.array([0.0, 2.0])).round(4))
        [ 1.6449 -0.8225]
    """
    check_arraylike("spence", x)
    return _spence(single_or_double("spence", x))
