"""Layers of resampling."""

from __future__ import annotations

from collections.abc import Sequence

from amdjax.core.array import Array
from amdjax.nn._arguments import Ints, check_layout, check_positive, check_sizes
from amdjax.nn._function_layer import FunctionLayer
from amdjax.nn._resizing import METHODS
from amdjax.nn.module import static
from amdjax.nn.resampling import (
    check_factors,
    check_method,
    pixel_shuffle,
    pixel_unshuffle,
    resize,
    upsample,
)
from amdjax.numpy._util import ArrayLike

__all__ = ["PixelShuffle", "PixelUnshuffle", "Resize", "Upsample"]


class Upsample(FunctionLayer):
    """`nn.upsample` as a layer.

    Args:
      size: the new spatial size; this or `scale_factor`.
      scale_factor: the new size divided by the old one.
      method: "nearest", "nearest_exact", "linear", "cubic" or "area".
      align_corners: whether the outermost samples keep their places.

    Raises:
      ValueError: not just one of `size` and `scale_factor` is given.

        >>> nn.Upsample(scale_factor=2)(jnp.ones((1, 4, 4, 3))).shape
        (1, 8, 8, 3)
    """

    size: Ints | None = static(default=None)
    scale_factor: float | Sequence[float] | None = static(default=None)
    method: str = static(default="nearest", kw_only=True)
    align_corners: bool = static(default=False, kw_only=True)
    layout: str = static(default="channels_last", kw_only=True)

    def __post_init__(self) -> None:
        size, scale_factor = self.size, self.scale_factor
        if (size is None) == (scale_factor is None):
            raise ValueError(
                f"Upsample: either size or scale_factor must be given, got {size=} and "
                f"{scale_factor=}."
            )
        if size is None:
            check_factors("Upsample", scale_factor)
        else:
            check_sizes("Upsample", size=size)
        check_method("Upsample", self.method, self.align_corners)
        check_layout("Upsample", self.layout)

    def __call__(self, x: ArrayLike) -> Array:
        """Resample `x` of shape `(n, *space, channels)`."""
        return upsample(x, **self._options())


class Resize(FunctionLayer):
    """`nn.resize` as a layer.

    Args:
      size: the new spatial size, one for all axes or one for each.
      method: "nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5" or "area".
      antialias: low-pass along axes that become shorter.

        >>> nn.Resize((6, 5))(jnp.ones((1, 4, 4, 3))).shape
        (1, 6, 5, 3)
    """

    size: Ints = static()
    method: str = static(default="linear", kw_only=True)
    antialias: bool = static(default=True, kw_only=True)
    layout: str = static(default="channels_last", kw_only=True)

    def __post_init__(self) -> None:
        check_sizes("Resize", size=self.size)
        check_layout("Resize", self.layout)
        if self.method not in METHODS:
            raise ValueError(
                f"Resize: method must be one of {tuple(METHODS)}, got {self.method!r}."
            )

    def __call__(self, x: ArrayLike) -> Array:
        """Resample `x` of shape `(n, *space, channels)`."""
        return resize(x, **self._options())


class _PixelLayer(FunctionLayer):
    factor: int = static()
    layout: str = static(default="channels_last", kw_only=True)

    def __post_init__(self) -> None:
        check_positive(type(self).__name__, factor=self.factor)
        check_layout(type(self).__name__, self.layout)


class PixelShuffle(_PixelLayer):
    """`nn.pixel_shuffle` as a layer.

    Args:
      factor: how many times larger each spatial axis becomes.

        >>> nn.PixelShuffle(2)(jnp.ones((1, 4, 4, 12))).shape
        (1, 8, 8, 3)
    """

    def __call__(self, x: ArrayLike) -> Array:
        """Rearrange `x` of shape `(n, *space, channels)`."""
        return pixel_shuffle(x, **self._options())


class PixelUnshuffle(_PixelLayer):
    """`nn.pixel_unshuffle` as a layer.

    Args:
      factor: how many times smaller each spatial axis becomes.

        >>> nn.PixelUnshuffle(2)(jnp.ones((1, 8, 8, 3))).shape
        (1, 4, 4, 12)
    """

    def __call__(self, x: ArrayLike) -> Array:
        """Rearrange `x` of shape `(n, *space, channels)`."""
        return pixel_unshuffle(x, **self._options())
