"""Layers of pooling."""

from __future__ import annotations

from typing import Any

from amdjax.core.array import Array
from amdjax.nn._arguments import Ints, Padding, check_layout, check_padding, check_sizes
from amdjax.nn._function_layer import FunctionLayer
from amdjax.nn.adaptive_pooling import adaptive_avg_pool, adaptive_max_pool
from amdjax.nn.module import static
from amdjax.nn.pooling import (
    avg_pool,
    check_divisor,
    check_exponent,
    lp_pool,
    max_pool,
    max_unpool,
)
from amdjax.numpy._util import ArrayLike

__all__ = ["AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool", "LpPool", "MaxPool", "MaxUnpool"]


class _Pool(FunctionLayer):
    window: Ints = static()
    strides: Ints | None = static(default=None)
    padding: Padding = static(default="VALID")
    layout: str = static(default="channels_last")

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_sizes(name, window=self.window)
        if self.strides is not None:
            check_sizes(name, strides=self.strides)
        check_layout(name, self.layout)
        if isinstance(self.padding, str):
            check_padding(name, self.padding, 1)


class MaxPool(_Pool):
    """`nn.max_pool` as a layer.

    Args:
      window: sizes of the window.

        >>> nn.MaxPool(2)(jnp.ones((1, 4, 4, 3))).shape
        (1, 2, 2, 3)
    """

    dilation: Ints = static(default=1, kw_only=True)
    ceil_mode: bool = static(default=False, kw_only=True)
    return_indices: bool = static(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes("MaxPool", dilation=self.dilation)

    def __call__(self, x: ArrayLike) -> Any:
        """Pool `x` of shape `(n, *space, channels)`."""
        return max_pool(x, **self._options())


class AvgPool(_Pool):
    """`nn.avg_pool` as a layer.

    Args:
      window: sizes of the window.
      count_include_pad: whether padding counts.
      divisor: what to divide all windows by instead of their elements.

        >>> nn.AvgPool(2)(jnp.ones((1, 4, 4, 3))).shape
        (1, 2, 2, 3)
    """

    count_include_pad: bool = static(default=True, kw_only=True)
    divisor: int | None = static(default=None, kw_only=True)
    ceil_mode: bool = static(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_divisor("AvgPool", self.divisor)

    def __call__(self, x: ArrayLike) -> Array:
        """Pool `x` of shape `(n, *space, channels)`."""
        return avg_pool(x, **self._options())


class LpPool(_Pool):
    """`nn.lp_pool` as a layer.

    Args:
      window: sizes of the window.
      p: the exponent.

        >>> nn.LpPool(2, 2.0)(jnp.ones((1, 4, 4, 3)))[0, 0, 0, 0]
        Array(2., dtype=float32)
    """

    p: float = static(kw_only=True)
    ceil_mode: bool = static(kw_only=True)

    def __init__(
        self, window: Ints, p: float, strides: Ints | None = None, padding: Padding = "VALID",
        layout: str = "channels_last", *, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(window, strides, padding, layout)
        check_exponent("LpPool", p)
        self.p, self.ceil_mode = p, ceil_mode

    def __call__(self, x: ArrayLike) -> Array:
        """Pool `x` of shape `(n, *space, channels)`."""
        return lp_pool(x, **self._options())


class MaxUnpool(_Pool):
    """`nn.max_unpool` as a layer.

    Args:
      window: sizes of the window that pooled.
      padding: "VALID" or integers.

        >>> y, indices = nn.max_pool(jnp.ones((1, 4, 4, 3)), 2, return_indices=True)
        >>> nn.MaxUnpool(2)(y, indices).shape
        (1, 4, 4, 3)
    """

    def __call__(self, x: ArrayLike, indices: ArrayLike, size: Ints | None = None) -> Array:
        """Put `x` of shape `(n, *space, channels)` where `indices` say, into space of `size`."""
        return max_unpool(x, indices, **self._options(), size=size)


class _Adaptive(FunctionLayer):
    size: Ints = static()
    layout: str = static(default="channels_last", kw_only=True)

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_sizes(name, size=self.size)
        check_layout(name, self.layout)


class AdaptiveAvgPool(_Adaptive):
    """`nn.adaptive_avg_pool` as a layer.

    Args:
      size: spatial size of the result.

        >>> nn.AdaptiveAvgPool(2)(jnp.ones((1, 5, 5, 3))).shape
        (1, 2, 2, 3)
    """

    def __call__(self, x: ArrayLike) -> Array:
        """Pool `x` of shape `(n, *space, channels)`."""
        return adaptive_avg_pool(x, **self._options())


class AdaptiveMaxPool(_Adaptive):
    """`nn.adaptive_max_pool` as a layer.

    Args:
      size: spatial size of the result.

        >>> nn.AdaptiveMaxPool(2)(jnp.ones((1, 5, 5, 3))).shape
        (1, 2, 2, 3)
    """

    return_indices: bool = static(default=False, kw_only=True)

    def __call__(self, x: ArrayLike) -> Any:
        """Pool `x` of shape `(n, *space, channels)`."""
        return adaptive_max_pool(x, **self._options())
