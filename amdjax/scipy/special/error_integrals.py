"""Integrals of Gaussian functions beyond the error function, all from the Faddeeva function."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import ArrayLike
from amdjax.scipy.special._arguments import complexes, legendre, reals
from amdjax.transforms import custom_jvp

__all__ = ["dawsn", "erfcx", "fresnel", "owens_t", "wofz"]

_ROOT_PI = math.sqrt(math.pi)
_TERMS = 64


@cache
def _weideman() -> tuple[float, np.ndarray]:
    """The scale and the coefficients of Weideman's expansion of w, SIAM J. Numer. Anal. 31 (1994).

    They are a discrete Fourier transform of the weighted Gaussian on the real line, seen as a
    circle; the first is the highest power's.
    """
    scale = np.sqrt(_TERMS / np.sqrt(2))
    angles = np.pi * np.arange(-2 * _TERMS + 1, 2 * _TERMS) / (2 * _TERMS)
    t = scale * np.tan(angles / 2)
    weighted = np.concatenate([[0.0], np.exp(-t * t) * (scale * scale + t * t)])
    found = np.real(np.fft.fft(np.fft.fftshift(weighted))) / (4 * _TERMS)
    return float(scale), found[1 : _TERMS + 1][::-1]


def _upper(z: Array) -> Array:
    """w(z) for a non-negative imaginary part."""
    scale, coefficients = _weideman()
    turned = 1j * z
    below = scale - turned
    ratio = (scale + turned) / below
    total = jnp.zeros_like(z)
    for c in coefficients.tolist():
        total = total * ratio + c
    near = 2 * total / (below * below) + (1 / _ROOT_PI) / below
    # Far out, Laplace's continued fraction is exact to rounding and does not overflow.
    far = z
    for k in range(8, 0, -1):
        far = z - (k / 2) / far
    return jnp.where(jnp.abs(z) > 12, (1j / _ROOT_PI) / far, near)


@custom_jvp
@composite
def _wofz(z: Array) -> Array:
    low = jnp.imag(z) < 0
    upper = _upper(jnp.where(low, -z, z))
    return jnp.where(low, 2 * jnp.exp(-z * z) - upper, upper)


@_wofz.defjvp
def _wofz_jvp(primals: Any, tangents: Any) -> Any:
    (z,), (dz,) = primals, tangents
    w = _wofz(z)
    return w, dz * (2j / _ROOT_PI - 2 * z * w)


def wofz(z: ArrayLike) -> Array:
    """The Faddeeva function, `exp(-z**2) * erfc(-i * z)`; complex.

    The error is a few units in the last place of its magnitude (Weideman, 1994).

    Args:
      z: real or complex.

        >>> print(special.wofz(0.5j).real.round(4))
        0.6157
    """
    return _wofz(*complexes("wofz", z))


@custom_jvp
@composite
def _erfcx(x: Array) -> Array:
    right = jnp.real(_upper(lax.complex(jnp.zeros_like(x), jnp.abs(x))))
    return jnp.where(x < 0, 2 * jnp.exp(x * x) - right, right)


@_erfcx.defjvp
def _erfcx_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    y = _erfcx(x)
    return y, dx * (2 * x * y - 2 / _ROOT_PI)


def erfcx(x: ArrayLike) -> Array:
    """The scaled complementary error function, `exp(x**2) * erfc(x)`.

    Args:
      x: real or complex.

        >>> print(special.erfcx(jnp.array([0.0, 30.0])).round(4))
        [1.     0.0188]
    """
    if jnp.iscomplexobj(x):
        return wofz(1j * jnp.asarray(x))
    (x,), narrow = reals("erfcx", x)
    return narrow(_erfcx(x))


@custom_jvp
@composite
def _dawsn(x: Array) -> Array:
    # D(x) = x Σ (-2 x²)ᵏ / (2k + 1)!! near zero, where the expansion of w only has absolute
    # accuracy.
    small = jnp.abs(x) < 0.5
    square = jnp.where(small, x * x, 0)
    series = jnp.ones_like(x)
    for k in range(16, 0, -1):
        series = 1 - 2 * square / (2 * k + 1) * series
    outside = jnp.imag(_upper(lax.complex(jnp.abs(x), jnp.zeros_like(x)))) * (_ROOT_PI / 2)
    return jnp.where(small, x * series, jnp.sign(x) * outside)


@_dawsn.defjvp
def _dawsn_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    y = _dawsn(x)
    return y, dx * (1 - 2 * x * y)


def dawsn(x: ArrayLike) -> Array:
    """Dawson's integral, `exp(-x**2)` times the integral of `exp(t**2)` from 0 to x.

    Args:
      x: real.

        >>> print(special.dawsn(jnp.array([0.0, 1.0])).round(4))
        [0.     0.5381]
    """
    (x,), narrow = reals("dawsn", x)
    return narrow(_dawsn(x))


@custom_jvp
@composite
def _fresnel(x: Array) -> tuple[Array, Array]:
    size = jnp.abs(x)
    small = size < 1
    # C + iS = x Σ (iπx²/2)ᵏ / (k! (2k + 1)) near zero.
    turn = lax.complex(jnp.zeros_like(x), jnp.where(small, (np.pi / 2) * x * x, 0))
    power = series = jnp.ones_like(turn)
    for k in range(1, 20):
        power = power * turn / k
        series = series + power / (2 * k + 1)
    # Elsewhere C + iS = (1 + i)/2 - (1 + i)/2 exp(iπx²/2) w((1 + i) √π x/2). The phase is taken
    # modulo its period before it is multiplied by π.
    outer = jnp.where(small, 1, size)
    phase = (np.pi / 2) * jnp.remainder(outer * outer, 4)
    bounded = jnp.minimum(outer, jnp.finfo(x.dtype).max ** 0.25)
    side = (_ROOT_PI / 2) * bounded
    rest = lax.complex(jnp.cos(phase), jnp.sin(phase)) * _upper(lax.complex(side, side))
    half = lax.complex(jnp.full_like(x, 0.5), jnp.full_like(x, 0.5))
    whole = jnp.sign(x) * jnp.where(jnp.isinf(x), half, half - half * rest)
    value = jnp.where(small, x * series, whole)
    return jnp.imag(value), jnp.real(value)


@_fresnel.defjvp
def _fresnel_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    phase = (np.pi / 2) * jnp.remainder(x * x, 4)
    return _fresnel(x), (dx * jnp.sin(phase), dx * jnp.cos(phase))


def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """The Fresnel integrals: of `sin(π t**2 / 2)` and of `cos(π t**2 / 2)` from 0 to x.

    Args:
      x: real.

    Returns:
      `(S, C)`.

    Raises:
      NotImplementedError: `x` is complex.

        >>> s, c = special.fresnel(1.0)
        >>> print(s.round(4), c.round(4))
        0.4383 0.7799
    """
    if jnp.iscomplexobj(x):
        raise NotImplementedError("fresnel: x must be real, complex numbers are not implemented")
    (x,), narrow = reals("fresnel", x)
    s, c = _fresnel(x)
    return narrow(s), narrow(c)


@custom_jvp
@composite
def _owens_t(h: Array, a: Array) -> Array:
    # For a > 1 the roles of the two tails are exchanged, so that the path of the integral is short.
    height, slope = jnp.abs(h), jnp.abs(a)
    steep = slope > 1
    flat = jnp.where(steep, 1 / jnp.where(steep, slope, 1), slope)
    level = jnp.where(steep, height * slope, height)
    nodes, weights = legendre(32, h.dtype)
    at = flat[..., None] * (nodes + 1) / 2
    values = jnp.exp(-0.5 * (level * level)[..., None] * (1 + at * at)) / (1 + at * at)
    inner = flat / (4 * np.pi) * jnp.sum(values * weights, axis=-1)
    tail, other = (0.5 * lax.erfc(v * math.sqrt(0.5)) for v in (height, level))
    outer = 0.5 * (tail + other) - tail * other - inner
    return jnp.sign(a) * jnp.where(steep, outer, inner)


@_owens_t.defjvp
def _owens_t_jvp(primals: Any, tangents: Any) -> Any:
    (h, a), (dh, da) = primals, tangents
    bell = jnp.exp(-0.5 * h * h)
    by_h = -bell * lax.erf(a * h * math.sqrt(0.5)) / (2 * math.sqrt(2 * math.pi))
    by_a = bell * jnp.exp(-0.5 * (a * h) ** 2) / (2 * np.pi * (1 + a * a))
    return _owens_t(h, a), dh * by_h + da * by_a


def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    """Owen's T: the probability that X > h and 0 < Y < a X, for standard normal X and Y.

    Args:
      h: real.
      a: real; broadcast against `h`.

        >>> print(special.owens_t(0.0, 1.0).round(4))
        0.125
    """
    (h, a), narrow = reals("owens_t", h, a, widened=True)
    return narrow(_owens_t(h, a))
