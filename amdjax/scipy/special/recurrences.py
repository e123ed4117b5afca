"""Functions of integer order by three-term recurrences: Bessel's, and spherical harmonics.

Formula numbers are those of the NIST Digital Library of Mathematical Functions (dlmf.nist.gov).
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike, as_array, broadcast_arrays
from amdjax.scipy.special._arguments import reals
from amdjax.transforms import custom_jvp

__all__ = ["bessel_jn", "sph_harm_y"]

# Orders above the argument and the order wanted, by which the recurrence forgets where it began.
_MARGIN = 32


@partial(custom_jvp, nondiff_argnums=(1, 2))
@composite(static_argnames=("v", "n_iter"))
def _bessel_jn(z: Array, v: int, n_iter: int) -> Array:
    """J_0(z) to J_v(z), stacked.

    Miller's algorithm (3.6(iii)): started anywhere, the recurrence 10.6.1 tends to multiples of
    J_k on its way down; 10.12.4, J_0 + 2 J_2 + 2 J_4 + … = 1, says which. All that was found is
    multiplied by z at each step, rather than the new value divided by it, and then scaled.
    """
    top = max(v, n_iter) + _MARGIN
    orders = jnp.arange(v + 1).reshape(-1, *[1] * z.ndim)

    def step(i: Any, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        above, here, total, wanted = state
        k = top - i
        even = jnp.asarray(jnp.where(k % 2 == 0, 2, 0), z.dtype)
        total = total + even * here
        wanted = jnp.where(orders == k, here[None], wanted)
        below = 2 * jnp.asarray(k, z.dtype) * here - z * above
        scale = 1 / jnp.maximum(jnp.abs(below), jnp.abs(z * here))
        return z * here * scale, below * scale, z * total * scale, (z * scale)[None] * wanted

    zero, none = jnp.zeros_like(z), jnp.zeros((v + 1, *z.shape), z.dtype)
    start = (zero, jnp.ones_like(z), zero, none)
    _, first, total, wanted = lax.fori_loop(0, top, step, start)
    found = jnp.where(orders == 0, first[None], wanted) / (first + total)[None]
    return jnp.where(jnp.abs(z)[None] <= n_iter, found, jnp.nan)


@_bessel_jn.defjvp
def _bessel_jn_jvp(v: int, n_iter: int, primals: Any, tangents: Any) -> Any:
    values = _bessel_jn(primals[0], v + 1, n_iter)
    # 10.6.1 and 10.6.2
    inner = (values[:-2] - values[2:]) / 2
    slopes = jnp.concatenate([-values[1:2], inner])
    return values[:-1], slopes * tangents[0][None]


def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """Bessel functions of the first kind, of the orders 0 to v.

    Args:
      z: real.
      v: the greatest order.
      n_iter: the greatest `abs(z)` that is asked for; the work grows with it.

    Returns:
      Array of shape `(v + 1, *z.shape)`; NaN where `abs(z)` exceeds `n_iter`.

    Raises:
      TypeError: `z` is complex, or `v` or `n_iter` is not an integer.
      ValueError: `v` or `n_iter` is negative.

        >>> print(special.bessel_jn(2.0, v=2).round(4))
        [0.2239 0.5767 0.3528]
    """
    orders = {"v": operator.index(v), "n_iter": operator.index(n_iter)}
    for name, value in orders.items():
        if value < 0:
            raise ValueError(f"bessel_jn: {name} must not be negative, got {value}")
    (z,), narrow = reals("bessel_jn", z)
    return narrow(_bessel_jn(z, *orders.values()))


@composite(static_argnames="n_max")
def _legendre(n: Array, m: Array, theta: Array, n_max: int) -> Array:
    """The functions of Ferrers P_n^m(cos θ) for 0 <= m <= n, normalized as in 14.30.1.

    In this normalization nothing overflows. Up the diagonal from P_0^0 to P_m^m (14.7.15), then
    from there to P_n^m (14.10.3).
    """
    # Outside [0, π] the sine is that of the polar angle of the same cosine.
    sine, cosine = jnp.abs(jnp.sin(theta)), jnp.cos(theta)
    order = m.astype(theta.dtype)

    def diagonal(k: Any, p: Array) -> Array:
        factor = jnp.sqrt(1 + 0.5 / jnp.asarray(k, theta.dtype))
        return jnp.where(k <= m, -factor * sine * p, p)

    p = jnp.full_like(theta, np.sqrt(0.25 / np.pi).item())
    p = lax.fori_loop(1, n_max + 1, diagonal, p)

    def up(k: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        below, here = state
        moves = (k > m) & (k <= n)
        j = jnp.where(moves, jnp.asarray(k, theta.dtype), order + 1)
        gap = (j - order) * (j + order)
        factor = jnp.sqrt((4 * j * j - 1) / gap)
        past = jnp.sqrt((gap - 2 * j + 1) / (4 * (j - 1) ** 2 - 1).clip(1))
        above = factor * (cosine * here - past * below)
        return jnp.where(moves, here, below), jnp.where(moves, above, here)

    _, p = lax.fori_loop(1, n_max + 1, up, (jnp.zeros_like(p), p))
    return jnp.where(m <= n, p, 0)


def sph_harm_y(
    n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: ArrayLike, diff_n: int | None = None,
    n_max: int | None = None,
) -> Array:  # fmt: skip
    """Spherical harmonics, orthonormal on the sphere, with the phase of Condon and Shortley.

    Args:
      n: degree, an integer that is not negative.
      m: order, an integer; the function is zero where `abs(m) > n`.
      theta: polar angle, from 0 to π.
      phi: azimuth.
      diff_n: not supported; derivatives are those of `grad` and its like.
      n_max: the greatest degree; needed where `n` is not known while tracing. Greater degrees count
        as this one.

    Returns:
      Complex array of the arguments' common shape.

    Raises:
      TypeError: `n` or `m` is not an integer, or an angle is complex.
      NotImplementedError: `diff_n` is given.

        >>> print(special.sph_harm_y(1, 1, 0.5, 0.5).round(4))
        (-0.1454-0.0794j)
    """
    if diff_n:
        raise NotImplementedError("sph_harm_y: diff_n is not supported; use grad or jvp")
    n, m = (as_array("sph_harm_y", x) for x in (n, m))
    for name, x in (("n", n), ("m", m)):
        if not dtypes.issubdtype(x.dtype, np.integer):
            raise TypeError(f"sph_harm_y: {name} must be an integer, got {x.dtype}")
    if n_max is None:
        n_max = int(np.max(np.asarray(n), initial=0))
    angles, _ = reals("sph_harm_y", theta, phi, widened=True)
    n, m, polar, azimuth = broadcast_arrays(n, m, *angles)
    p = _legendre(jnp.minimum(n, n_max), jnp.abs(m), polar, n_max)
    odd = (m < 0) & (m % 2 == 1)  # 14.30.6
    p, turn = jnp.where(odd, -p, p), m.astype(azimuth.dtype) * azimuth
    return lax.complex(p * jnp.cos(turn), p * jnp.sin(turn))
