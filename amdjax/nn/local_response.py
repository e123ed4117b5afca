"""Normalization by the energy of neighboring channels or pixels."""

from __future__ import annotations

from typing import Any

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.nn._arguments import (
    check_layout,
    check_number,
    check_positive,
    check_real,
    space_rank,
    widened,
)
from amdjax.numpy._util import ArrayLike, as_array, constant, convert

__all__ = ["local_response_norm"]

MODES = ("cross_channel", "within_channel")


def local_response_norm(
    x: ArrayLike, size: int, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0,
    mode: str = "cross_channel", layout: str = "channels_last",
) -> Array:  # fmt: skip
    """`x / (k + alpha * m) ** beta`, `m` the mean square around each element (Krizhevsky, 2012).

    What lies beyond the edge counts as zeros, and in the mean.

    Args:
      x: floating-point batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels
        come first.
      size: extent of the neighborhood; of an even one, the greater half lies before the element.
      mode: "cross_channel" for `size` neighboring channels of the same pixel, "within_channel" for
        a cube of pixels of the same channel, `size` along each spatial axis.

    Returns:
      An array of the shape and dtype of `x`.

    Raises:
      TypeError: `x` is not floating-point.
      ValueError: `size` is no positive integer, or there is no such `mode` or `layout`.

        >>> x = jnp.array([[[1.0, 1.0, 1.0]]])
        >>> nn.local_response_norm(x, 3, alpha=3.0, beta=1.0).round(3)
        Array([[[0.333, 0.25 , 0.333]]], dtype=float32)
    """
    x = as_array("local_response_norm", x)
    check_real("local_response_norm", x)
    rank, last = space_rank("local_response_norm", x), check_layout("local_response_norm", layout)
    check_options("local_response_norm", size, mode, layout)
    for argument, number in {"alpha": alpha, "beta": beta, "k": k}.items():
        check_number("local_response_norm", argument, number)
    channel = x.ndim - 1 if last else 1
    if mode == "cross_channel":
        axes: tuple[int, ...] = (channel,)
    else:
        axes = tuple(i for i in range(1, rank + 2) if i != channel)
    return _local_response_norm(x, size, axes, alpha, float(beta), k)


def check_options(name: str, size: Any, mode: Any, layout: Any) -> None:
    """Raise ValueError for what no batch is normalized by."""
    check_positive(name, size=size)
    check_layout(name, layout)
    if mode not in MODES:
        raise ValueError(f"{name}: mode must be one of {MODES}, got {mode!r}.")


@composite(static_argnames=("size", "axes", "beta"))
def _local_response_norm(
    x: Array, size: int, axes: tuple[int, ...], alpha: float, beta: float, k: float
) -> Array:
    wide = widened(x)
    window = tuple(size if i in axes else 1 for i in range(x.ndim))
    pads = tuple((size // 2, (size - 1) // 2) if i in axes else (0, 0) for i in range(x.ndim))
    square = jnp.square(wide)
    total = lax.reduce_window(square, constant(square, 0), lax.add, window, (1,) * x.ndim, pads)
    energy = k + total * (alpha / size ** len(axes))
    return convert(wide * jnp.power(energy, -beta), x.dtype)
