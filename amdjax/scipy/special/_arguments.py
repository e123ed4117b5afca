"""What the special functions do with their arguments first, and the quadrature they share."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core import dtypes, promotion
from amdjax.core.array import Array
from amdjax.numpy._util import ArrayLike, as_array, broadcast_arrays, promote_args_inexact


def reals(
    name: str, *args: ArrayLike, widened: bool = False
) -> tuple[list[Any], Callable[[Any], Array]]:
    """Real arguments in one shape and at least float32, and the way back to their dtype.

    The default float is the least dtype of the result, too, if `widened`.

    Raises:
      TypeError: an argument is no array; the message names the function.
      ValueError: one is complex.
    """
    promoted = promote_args_inexact(name, *args)
    dtype = promoted[0].dtype
    reject_complex(name, promoted[0])
    if widened:
        dtype = promotion.promote_types(dtype, dtypes.default_float_dtype())
    wide = dtype if dtypes.itemsize_bits(dtype) >= 32 else np.dtype(np.float32)
    values = [jnp.asarray(x, wide) for x in broadcast_arrays(*promoted)]
    return values, lambda y: jnp.asarray(y, dtype)


def listed(*args: Any) -> list[Any]:
    """The arguments, lists and tuples as arrays."""
    return [jnp.asarray(x) if isinstance(x, (list, tuple)) else x for x in args]


def single_or_double(name: str, x: ArrayLike) -> Any:
    """A float32 or float64 array that is not weakly typed; JAX takes nothing else here.

    Raises:
      TypeError: for another dtype; the message names the function.
    """
    x = as_array(name, x)
    if x.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"{name}: x.dtype={x.dtype} is not supported, it must be float32 or float64"
        )
    return strongly([x])[0]


def reject_complex(name: str, x: Array) -> None:
    """Raise a ValueError that names the function if `x` is complex."""
    if dtypes.issubdtype(x.dtype, np.complexfloating):
        raise ValueError(
            f"Argument `x` to {name} must be real-valued. It does not support complex-valued "
            f"inputs, got {x.dtype}"
        )


def strongly(args: list[Array]) -> list[Array]:
    """The arguments, not weakly typed."""
    return [lax.convert_element_type(x, x.dtype) for x in args]


def complexes(name: str, *args: ArrayLike) -> list[Any]:
    """Arguments in one shape and as complex numbers."""
    promoted = promote_args_inexact(name, *args)
    dtype = dtypes.to_complex_dtype(promoted[0].dtype)
    return [jnp.asarray(x, dtype) for x in broadcast_arrays(*promoted)]


@cache
def _legendre(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(nodes)


def legendre(nodes: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in [-1, 1] and weights of the Gauss-Legendre rule."""
    where, weights = _legendre(nodes)
    return where.astype(dtype), weights.astype(dtype)


def complex_loggamma(z: Array) -> Array:
    """The logarithm of Γ of complex numbers, by Stirling's series (DLMF 5.11.1).

    It is used where |z| is large; other numbers are moved there by the recurrence, whose principal
    logarithms keep the branch. Numbers far on the left are reflected (5.5.3), with the branch of
    D. E. G. Hare, "Computing the principal branch of log-Gamma" (1997).
    """
    re, im = jnp.real(z), jnp.imag(z)
    left = (re < 0.5) & (jnp.abs(im) < 8)
    near = jnp.where(left, 1 - z, z)
    moved, passed = near, jnp.zeros_like(z)
    for _ in range(8):
        small = (jnp.abs(moved) < 8) & (jnp.real(moved) < 8)
        passed = passed + jnp.where(small, lax.log(moved), 0)
        moved = jnp.where(small, moved + 1, moved)
    square, series = moved * moved, jnp.zeros_like(z)
    for c in (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        series = series / square + c
    log = lax.log(moved)
    value = (moved - 0.5) * (log - 1) + (series / moved + (0.5 * math.log(2 * math.pi) - 0.5))
    value = value - passed
    turns = jnp.copysign(2 * math.pi, im) * jnp.floor(0.5 * re + 0.25)
    # The sine of π z, of which the period is taken off first.
    angle = math.pi * lax.complex(jnp.where(left, re - 2 * jnp.round(0.5 * re), 0), im)
    sine = lax.sin(jnp.where(left, angle, 1))
    mirrored = lax.complex(jnp.full_like(re, math.log(math.pi)), turns) - lax.log(sine) - value
    pole = (im == 0) & (re <= 0) & (re == jnp.floor(re))
    return jnp.where(pole, complex(math.nan, math.nan), jnp.where(left, mirrored, value))
