"""Layers of regularization."""

from __future__ import annotations

from typing import Any

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.nn._arguments import check_rate
from amdjax.nn._scope import is_training
from amdjax.nn.module import Module, static
from amdjax.nn.regularization import dropout
from amdjax.numpy._util import ArrayLike

__all__ = ["Dropout"]


class Dropout(Module):
    """Set elements to zero at random while training.

    Raises:
      ValueError: `rate` is no probability.

        >>> nn.Dropout(0.5)(jnp.ones(3))
        Array([1., 1., 1.], dtype=float32)
    """

    rate: float = static()

    def __init__(self, rate: float = 0.5) -> None:
        check_rate("Dropout", rate)
        self.rate = rate

    def __call__(self, x: ArrayLike, *, key: Any = None, train: bool | None = None) -> Array:
        """`nn.dropout` in training, else `x`.

        Args:
          x: floating-point array.
          key: key of the mask; None for one of the `nn.apply` around the call.
          train: whether to drop elements; None means as `nn.apply` says.

        Returns:
          An array of the shape and dtype of `x`.

        Raises:
          ValueError: in training without a key.
        """
        if not is_training(train) or self.rate == 0:
            return jnp.asarray(x)
        return dropout(self.next_key(key), x, self.rate)
