"""Layers of pooling."""

from __future__ import annotations

from amdjax.core.array import Array
from amdjax.nn._arguments import Ints, Padding
from amdjax.nn.module import Module, static
from amdjax.nn.pooling import avg_pool, max_pool
from amdjax.numpy._util import ArrayLike

__all__ = ["AvgPool", "MaxPool"]


class MaxPool(Module):
    """`nn.max_pool` as a layer.

    Args:
      window: sizes of the window.
      strides: steps of the window; None means its size.
      padding: "SAME", "VALID", or integers.
      layout: "channels_last" or "channels_first".

        >>> nn.MaxPool(2)(jnp.ones((1, 4, 4, 3))).shape
        (1, 2, 2, 3)
    """

    window: Ints = static()
    strides: Ints | None = static(default=None)
    padding: Padding = static(default="VALID")
    layout: str = static(default="channels_last")

    def __call__(self, x: ArrayLike) -> Array:
        """Pool `x` of shape `(n, *space, channels)`."""
        return max_pool(
            x, self.window, strides=self.strides, padding=self.padding, layout=self.layout
        )


class AvgPool(Module):
    """`nn.avg_pool` as a layer.

    Args:
      window: sizes of the window.
      strides: steps of the window; None means its size.
      padding: "SAME", "VALID", or integers.
      layout: "channels_last" or "channels_first".

        >>> nn.AvgPool(2)(jnp.ones((1, 4, 4, 3))).shape
        (1, 2, 2, 3)
    """

    window: Ints = static()
    strides: Ints | None = static(default=None)
    padding: Padding = static(default="VALID")
    layout: str = static(default="channels_last")

    def __call__(self, x: ArrayLike) -> Array:
        """Pool `x` of shape `(n, *space, channels)`."""
        return avg_pool(
            x, self.window, strides=self.strides, padding=self.padding, layout=self.layout
        )
