"""Activation functions with parameters: bounds, powers, trained slopes, gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.nn.functions import gelu, relu, silu
from amdjax.numpy._util import (
    ArrayLike,
    as_array,
    as_arrays,
    canonical_axis,
    promote_args_inexact,
    promote_dtypes_inexact,
)

__all__ = [
    "clamp", "clipped_relu", "geglu", "power", "prelu", "reglu", "scaled_tanh", "swiglu",
]  # fmt: skip


@composite
def clamp(x: ArrayLike, alpha: ArrayLike, beta: ArrayLike) -> Array:
    """`x` between `alpha` and `beta`, those beyond; with derivative 0 there and at both ends.

    Args:
      alpha: the least value.
      beta: the largest value.

        >>> nn.clamp(jnp.array([-3.0, 0.5, 3.0]), -1.0, 2.0)
        Array([-1. ,  0.5,  2. ], dtype=float32)
    """
    x = as_array("clamp", x)
    return jnp.where(x <= alpha, alpha, jnp.where(x >= beta, beta, x))


@composite
def clipped_relu(x: ArrayLike, alpha: ArrayLike) -> Array:
    """`min(max(x, 0), alpha)`, with derivative 0 at 0 and at `alpha`.

    Args:
      alpha: the largest value.

        >>> nn.clipped_relu(jnp.array([-1.0, 2.0, 9.0]), 3.0)
        Array([0., 2., 3.], dtype=float32)
    """
    return clamp(as_array("clipped_relu", x), 0, alpha)


@composite
def power(
    x: ArrayLike, alpha: ArrayLike = 0.0, beta: ArrayLike = 1.0, gamma: ArrayLike = 1.0
) -> Array:
    """`(alpha + beta * x) ** gamma`.

    Args:
      alpha: added.
      beta: factor.
      gamma: exponent.

        >>> nn.power(jnp.array([1.0, 2.0]), 1.0, 2.0, 2.0)
        Array([ 9., 25.], dtype=float32)
    """
    (x,) = promote_args_inexact("power", x)
    return jnp.power(alpha + beta * x, gamma)


@composite
def scaled_tanh(x: ArrayLike, alpha: ArrayLike = 1.0, beta: ArrayLike = 1.0) -> Array:
    """`beta * tanh(alpha * x)` (LeCun, 1989, has 2/3 and 1.7159).

    Args:
      alpha: slope inside.
      beta: the limit for large `x`.

        >>> nn.scaled_tanh(jnp.array([1.0]), 2 / 3, 1.7159).round(4)
        Array([1.], dtype=float32)
    """
    (x,) = promote_args_inexact("scaled_tanh", x)
    return jnp.multiply(beta, jnp.tanh(alpha * x))


@composite(static_argnames="axis")
def prelu(x: ArrayLike, alpha: ArrayLike, axis: int = -1) -> Array:
    """`x` where positive, `alpha * x` elsewhere, with trained slopes (He et al., 2015).

    Args:
      alpha: slope below zero: a number, or one for each element along `axis`.
      axis: the axis of channels.

    Raises:
      ValueError: for an axis out of range, and slopes that do not fit it.

        >>> nn.prelu(jnp.array([[-1.0, -1.0], [2.0, 3.0]]), jnp.array([0.5, 0.25]))
        Array([[-0.5 , -0.25],
               [ 2.  ,  3.  ]], dtype=float32)
    """
    x, alpha = promote_dtypes_inexact(*as_arrays("prelu", x, alpha))
    if alpha.size == 1:
        alpha = alpha.reshape(())
    else:
        axis = canonical_axis(axis, x.ndim)
        if alpha.shape != (x.shape[axis],):
            raise ValueError(
                f"prelu: alpha must be a number or have shape ({x.shape[axis]},), got "
                f"{alpha.shape}."
            )
        alpha = alpha.reshape(-1, *(1,) * (x.ndim - 1 - axis))
    # What is infinite and positive must not reach the slope of `alpha`.
    return jnp.where(x > 0, x, alpha * jnp.where(x > 0, 0, x))


def _gated(name: str, activation: Callable[[Any], Array], x: ArrayLike, axis: int) -> Array:
    (x,) = promote_args_inexact(name, x)
    axis = canonical_axis(axis, x.ndim, f"{name}: axis")
    if x.shape[axis] % 2:
        raise ValueError(f"{name}: the size of x along axis {axis} must be even, got {x.shape}.")
    first, second = jnp.split(x, 2, axis)
    return first * activation(second)


@composite(static_argnames="axis")
def reglu(x: ArrayLike, axis: int = -1) -> Array:
    """The first half along `axis` times `relu` of the second (Shazeer, 2020).

    >>> nn.reglu(jnp.array([2.0, 3.0, 1.0, -1.0]))
    Array([2., 0.], dtype=float32)
    """
    return _gated("reglu", relu, x, axis)


@composite(static_argnames=("axis", "approximate"))
def geglu(x: ArrayLike, axis: int = -1, approximate: bool = True) -> Array:
    """The first half along `axis` times `gelu` of the second (Shazeer, 2020).

    Args:
      approximate: use the form of `gelu` with tanh instead of the error function.

        >>> nn.geglu(jnp.array([2.0, 0.0]))
        Array([0.], dtype=float32)
    """
    return _gated("geglu", lambda gate: gelu(gate, approximate), x, axis)


@composite(static_argnames="axis")
def swiglu(x: ArrayLike, axis: int = -1) -> Array:
    """The first half along `axis` times `silu` of the second (Shazeer, 2020).

    >>> nn.swiglu(jnp.array([2.0, 1.0]))
    Array([1.4621172], dtype=float32)
    """
    return _gated("swiglu", silu, x, axis)


_public_surface(globals())
