"""Layers of resampling."""

from __future__ import annotations

from collections.abc import Sequence

from amdjax.core.array import Array
from amdjax.nn._arguments import Ints, check_positive, hashable
from amdjax.nn.module import Module, static
from amdjax.nn.resampling import pixel_shuffle, pixel_unshuffle, resize, upsample
from amdjax.numpy._util import ArrayLike

__all__ = ["PixelShuffle", "PixelUnshuffle", "Resize", "Upsample"]


class Upsample(Module):
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
    method: str = static(default="nearest")
    align_corners: bool = static(default=False)
    layout: str = static(default="channels_last")

    def __init__(
        self,
        size: Ints | None = None,
        scale_factor: float | Sequence[float] | None = None,
        *,
        method: str = "nearest",
        align_corners: bool = False,
        layout: str = "channels_last",
    ) -> None:
        if (size is None) == (scale_factor is None):
            raise ValueError(
                f"Upsample: either size or scale_factor must be given, got {size=} and "
                f"{scale_factor=}."
            )
        self.size, self.scale_factor = hashable(size), hashable(scale_factor)
        self.method, self.align_corners, self.layout = method, align_corners, layout

    def __call__(self, x: ArrayLike) -> Array:
        """Resample `x` of shape `(n, *space, channels)`."""
        return upsample(
            x, self.size, self.scale_factor, method=self.method,
            align_corners=self.align_corners, layout=self.layout,
        )  # fmt: skip


class Resize(Module):
    """`nn.resize` as a layer.

    Args:
      size: the new spatial size, one for all axes or one for each.
      method: "nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5" or "area".
      antialias: low-pass along axes that become shorter.
      layout: "channels_last" or "channels_first".

        >>> nn.Resize((6, 5))(jnp.ones((1, 4, 4, 3))).shape
        (1, 6, 5, 3)
    """

    size: Ints = static()
    method: str = static(default="linear")
    antialias: bool = static(default=True)
    layout: str = static(default="channels_last")

    def __init__(
        self,
        size: Ints,
        *,
        method: str = "linear",
        antialias: bool = True,
        layout: str = "channels_last",
    ) -> None:
        self.size, self.method = hashable(size), method
        self.antialias, self.layout = antialias, layout

    def __call__(self, x: ArrayLike) -> Array:
        """Resample `x` of shape `(n, *space, channels)`."""
        return resize(
            x, self.size, method=self.method, antialias=self.antialias, layout=self.layout
        )


class PixelShuffle(Module):
    """`nn.pixel_shuffle` as a layer.

    Args:
      factor: how many times larger each spatial axis becomes.

        >>> nn.PixelShuffle(2)(jnp.ones((1, 4, 4, 12))).shape
        (1, 8, 8, 3)
    """

    factor: int = static()
    layout: str = static(default="channels_last")

    def __init__(self, factor: int, *, layout: str = "channels_last") -> None:
        check_positive("PixelShuffle", factor=factor)
        self.factor, self.layout = factor, layout

    def __call__(self, x: ArrayLike) -> Array:
        """Rearrange `x` of shape `(n, *space, channels)`."""
        return pixel_shuffle(x, self.factor, layout=self.layout)


class PixelUnshuffle(Module):
    """`nn.pixel_unshuffle` as a layer.

    Args:
      factor: how many times smaller each spatial axis becomes.

        >>> nn.PixelUnshuffle(2)(jnp.ones((1, 8, 8, 3))).shape
        (1, 4, 4, 12)
    """

    factor: int = static()
    layout: str = static(default="channels_last")

    def __init__(self, factor: int, *, layout: str = "channels_last") -> None:
        check_positive("PixelUnshuffle", factor=factor)
        self.factor, self.layout = factor, layout

    def __call__(self, x: ArrayLike) -> Array:
        """Rearrange `x` of shape `(n, *space, channels)`."""
        return pixel_unshuffle(x, self.factor, layout=self.layout)
