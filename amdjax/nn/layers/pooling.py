"""Layers of pooling."""

from __future__ import annotations

from typing import Any

from amdjax.core.array import Array
from amdjax.nn._arguments import Ints, Padding, check_layout, check_sizes, hashable
from amdjax.nn.adaptive_pooling import adaptive_avg_pool, adaptive_max_pool
from amdjax.nn.module import Module, static
from amdjax.nn.pooling import avg_pool, lp_pool, max_pool, max_unpool
from amdjax.numpy._util import ArrayLike

__all__ = ["AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool", "LpPool", "MaxPool", "MaxUnpool"]


class _Pool(Module):
    window: Ints = static()
    strides: Ints | None = static()
    padding: Padding = static()
    layout: str = static()

    def __init__(
        self,
        window: Ints,
        strides: Ints | None = None,
        padding: Padding = "VALID",
        layout: str = "channels_last",
    ) -> None:
        name = type(self).__name__
        check_sizes(name, window=window)
        if strides is not None:
            check_sizes(name, strides=strides)
        check_layout(name, layout)
        self.window, self.strides = hashable(window), hashable(strides)
        self.padding, self.layout = hashable(padding), layout

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("strides", "padding", "layout")}


class MaxPool(_Pool):
    """`nn.max_pool` as a layer.

    Args:
      window: sizes of the window.

        >>> nn.MaxPool(2)(jnp.ones((1, 4, 4, 3))).shape
        (1, 2, 2, 3)
    """

    dilation: Ints = static()
    ceil_mode: bool = static()
    return_indices: bool = static()

    def __init__(
        self,
        window: Ints,
        strides: Ints | None = None,
        padding: Padding = "VALID",
        layout: str = "channels_last",
        *,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> None:
        super().__init__(window, strides, padding, layout)
        check_sizes("MaxPool", dilation=dilation)
        self.dilation, self.ceil_mode = hashable(dilation), ceil_mode
        self.return_indices = return_indices

    def __call__(self, x: ArrayLike) -> Any:
        """Pool `x` of shape `(n, *space, channels)`."""
        return max_pool(
            x, self.window, **self._options(), dilation=self.dilation, ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )  # fmt: skip


class AvgPool(_Pool):
    """`nn.avg_pool` as a layer.

    Args:
      window: sizes of the window.
      count_include_pad: whether padding counts.
      divisor: what to divide all windows by instead of their elements.

        >>> nn.AvgPool(2)(jnp.ones((1, 4, 4, 3))).shape
        (1, 2, 2, 3)
    """

    count_include_pad: bool = static()
    divisor: int | None = static()
    ceil_mode: bool = static()

    def __init__(
        self,
        window: Ints,
        strides: Ints | None = None,
        padding: Padding = "VALID",
        layout: str = "channels_last",
        *,
        count_include_pad: bool = True,
        divisor: int | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(window, strides, padding, layout)
        self.count_include_pad, self.divisor = count_include_pad, divisor
        self.ceil_mode = ceil_mode

    def __call__(self, x: ArrayLike) -> Array:
        """Pool `x` of shape `(n, *space, channels)`."""
        return avg_pool(
            x, self.window, **self._options(), count_include_pad=self.count_include_pad,
            divisor=self.divisor, ceil_mode=self.ceil_mode,
        )  # fmt: skip


class LpPool(_Pool):
    """`nn.lp_pool` as a layer.

    Args:
      window: sizes of the window.
      p: the exponent.

        >>> nn.LpPool(2, 2.0)(jnp.ones((1, 4, 4, 3)))[0, 0, 0, 0]
        Array(2., dtype=float32)
    """

    p: float = static()
    ceil_mode: bool = static()

    def __init__(
        self,
        window: Ints,
        p: float,
        strides: Ints | None = None,
        padding: Padding = "VALID",
        layout: str = "channels_last",
        *,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(window, strides, padding, layout)
        self.p, self.ceil_mode = p, ceil_mode

    def __call__(self, x: ArrayLike) -> Array:
        """Pool `x` of shape `(n, *space, channels)`."""
        return lp_pool(x, self.window, self.p, **self._options(), ceil_mode=self.ceil_mode)


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
        return max_unpool(x, indices, self.window, **self._options(), size=size)


class _Adaptive(Module):
    size: Ints = static()
    layout: str = static()

    def __init__(self, size: Ints, *, layout: str = "channels_last") -> None:
        name = type(self).__name__
        check_sizes(name, size=size)
        check_layout(name, layout)
        self.size, self.layout = hashable(size), layout


class AdaptiveAvgPool(_Adaptive):
    """`nn.adaptive_avg_pool` as a layer.

    Args:
      size: spatial size of the result.

        >>> nn.AdaptiveAvgPool(2)(jnp.ones((1, 5, 5, 3))).shape
        (1, 2, 2, 3)
    """

    def __call__(self, x: ArrayLike) -> Array:
        """Pool `x` of shape `(n, *space, channels)`."""
        return adaptive_avg_pool(x, self.size, layout=self.layout)


class AdaptiveMaxPool(_Adaptive):
    """`nn.adaptive_max_pool` as a layer.

    Args:
      size: spatial size of the result.

        >>> nn.AdaptiveMaxPool(2)(jnp.ones((1, 5, 5, 3))).shape
        (1, 2, 2, 3)
    """

    return_indices: bool = static()

    def __init__(
        self, size: Ints, *, layout: str = "channels_last", return_indices: bool = False
    ) -> None:
        super().__init__(size, layout=layout)
        self.return_indices = return_indices

    def __call__(self, x: ArrayLike) -> Any:
        """Pool `x` of shape `(n, *space, channels)`."""
        return adaptive_max_pool(
            x, self.size, return_indices=self.return_indices, layout=self.layout
        )
