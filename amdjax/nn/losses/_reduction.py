"""What all losses do alike: check shapes, and reduce to a number."""

from __future__ import annotations

import numpy as np

import amdjax.numpy as jnp
from amdjax.core import dtypes
from amdjax.core.array import Array
from amdjax.numpy._util import ArrayLike, convert, promote_args_inexact

REDUCTIONS = ("mean", "sum", "none")


def reduced(name: str, losses: Array, reduction: str, weight: Array | None = None) -> Array:
    """The losses, their sum, or their mean: the sum divided by that of `weight` where given."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}: reduction must be one of {REDUCTIONS}, got {reduction!r}.")
    if reduction == "none":
        return losses
    if reduction == "sum":
        return jnp.sum(losses)
    if weight is None:
        return jnp.mean(losses)
    # 16-bit floats cannot count beyond some hundred examples.
    wide = jnp.promote_types(losses.dtype, np.float32)
    return convert(jnp.sum(losses, dtype=wide) / jnp.sum(weight, dtype=wide), losses.dtype)


def promote_reals(name: str, *args: ArrayLike) -> list[Array]:
    """Arrays of one floating dtype; TypeError for complex ones, whose losses would be none."""
    arrays = promote_args_inexact(name, *args)
    for x in arrays:
        if dtypes.issubdtype(x.dtype, np.complexfloating):
            raise TypeError(f"{name}: a loss is of real numbers, got {x.dtype}.")
    return arrays


def check_same_shape(name: str, **arrays: Array) -> None:
    """Raise ValueError naming two arguments whose shapes differ."""
    (first, a), *others = arrays.items()
    for other, b in others:
        if a.shape != b.shape:
            raise ValueError(
                f"{name}: {first} and {other} must have the same shape, got {a.shape} and "
                f"{b.shape}."
            )


def positive_part(x: Array) -> Array:
    """`max(x, 0)` with derivative 1 at 0, where hinges still push."""
    return jnp.where(x < 0, 0, x)
