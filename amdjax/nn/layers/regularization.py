"""Layers of regularization."""

from __future__ import annotations

from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.nn._arguments import check_rate
from amdjax.nn.module import Module, static
from amdjax.nn.regularization import dropout
from amdjax.numpy._util import ArrayLike

__all__ = ["Dropout"]


class Dropout(Module):
    """Set elements to zero at random while training.

    Args:
      rate: probability of an element to become zero.

    Raises:
      ValueError: `rate` is no probability.

        >>> nn.Dropout(0.5)(jnp.ones(3))
        Array([1., 1., 1.], dtype=float32)
    """

    rate: float = static()

    def __init__(self, rate: float = 0.5) -> None:
        check_rate("Dropout", rate)
        self.rate = rate

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool = False) -> Array:
        """`nn.dropout` if `train`, else `x`.

        Raises:
          ValueError: no key was given for training.
        """
        if not train or self.rate == 0:
            return jnp.asarray(x)
        if key is None:
            raise ValueError("Dropout: key must be given where train=True.")
        return dropout(key, x, self.rate)
