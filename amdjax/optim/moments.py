"""What optimizers remember: decaying averages of gradients and of their squares."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.pytree import tree_map
from amdjax.optim.base import Params, Updates, check_number


def zeros_like(params: Params, dtype: Any = None) -> Updates:
    """A tree of zeros in the form of the parameters."""
    return tree_map(lambda p: jnp.zeros_like(p, dtype=dtype), params)


def squares_like(params: Params) -> Updates:
    """Zeros for squares, which are real where parameters are complex."""
    return tree_map(lambda p: jnp.zeros_like(jnp.real(p)), params)


def squared(x: Any) -> Array:
    """`|x|²`, real."""
    return jnp.real(x * jnp.conj(x))


def count_of_updates() -> Array:
    """How a count begins."""
    return jnp.zeros((), jnp.int32)


def incremented(count: Array) -> Array:
    """The next count; the largest stays, where it would become negative."""
    return jnp.minimum(count, np.iinfo(np.int32).max - 1) + 1


def average(decay: Any, old: Updates, new: Updates, power: int = 1) -> Updates:
    """A decaying average, or that of squares, in the wider of both dtypes."""

    def one(a: Any, g: Any) -> Array:
        return decay * a + (1 - decay) * (g if power == 1 else squared(g))

    return tree_map(one, old, new)


def cast_like(tree: Updates, like: Updates) -> Updates:
    """A tree in the dtypes of another."""
    return tree_map(lambda x, y: x.astype(y.dtype), tree, like)


def gained(decay: Any, count: Array) -> Array:
    """`1 - decay**count`, what of an average is not its start; to full precision near 1."""
    known = isinstance(decay, (int, float))
    log = (float(np.log(decay)) if decay else -np.inf) if known else jnp.log(decay)
    return -jnp.expm1(count.astype(jnp.float32) * log)


def unbiased(decay: Any, count: Array, averages: Updates) -> Updates:
    """Averages freed of their start at zero."""
    # One division for all; those of elements would be half of an update's time.
    factor = 1 / gained(decay, count)
    return tree_map(lambda a: a * factor.astype(jnp.real(a).dtype), averages)


def check_decays(name: str, **decays: Any) -> None:
    """Raise ValueError naming the function and the argument that is not in [0, 1)."""
    for argument, value in decays.items():
        check_number(name, argument, value)
        if isinstance(value, (int, float)) and not 0 <= value < 1:
            raise ValueError(f"{name}: {argument} must lie in [0, 1), got {value!r}.")
