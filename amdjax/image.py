"""Images of any number of axes, resampled: `image`."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.nn._resizing import METHODS, interpolating, resample, resized
from amdjax.numpy._util import ArrayLike, as_arrays, canonical_shape, promote_dtypes_inexact

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """How images are resampled.

    All kernels but that of `AREA` interpolate: an image that is not changed in size is not changed.

    >>> amdjax.image.ResizeMethod.from_string("bilinear")
    <ResizeMethod.LINEAR: 1>
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name.

        Args:
          s: "nearest"; "linear", "bilinear", "trilinear" or "triangle"; "lanczos3"; "lanczos5";
            "cubic", "bicubic" or "tricubic"; "cubic-pytorch" or "bicubic-pytorch"; "area".

        Returns:
          The method.

        Raises:
          ValueError: there is no such method.
        """
        if s not in _NAMES:
            raise ValueError(f'Unknown resize method "{s}"; it must be one of {list(_NAMES)}')
        return _NAMES[s]


_NAMES = {name: ResizeMethod[m.upper().replace("-", "_")] for name, m in METHODS.items()}


def _method(method: str | ResizeMethod) -> str:
    found = ResizeMethod.from_string(method) if isinstance(method, str) else ResizeMethod(method)
    return found.name.lower().replace("_", "-")


def _check_rank(image: Array, shape: tuple[int, ...]) -> None:
    if len(shape) != image.ndim:
        raise ValueError(
            "shape must have length equal to the number of dimensions of x; "
            f" {shape} vs {image.shape}"
        )


def scale_and_translate(
    image: ArrayLike, shape: Sequence[int], spatial_dims: Sequence[int], scale: ArrayLike,
    translation: ArrayLike, method: str | ResizeMethod, antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Array:  # fmt: skip
    """An image, stretched and moved along some of its axes.

    What lies at `x` comes to `x · scale + translation`, where the center of the first sample is at
    one half. What comes from outside the image is zero.

    Args:
      image: an array.
      shape: that of the result, with as many axes.
      spatial_dims: the axes that are resampled, `k` of them.
      scale: of shape `(k,)`.
      translation: of shape `(k,)`, in samples of the result.
      method: how, or its name; not "nearest".
      antialias: low-pass the image where it becomes smaller.
      precision: that of the sums.

    Returns:
      An image of the given shape, of an inexact dtype.

    Raises:
      TypeError: `scale` or `translation` is a scalar.
      ValueError: `shape` has another number of axes, or `method` is "nearest" or unknown.

        >>> x = jnp.array([1.0, 2.0, 3.0])
        >>> amdjax.image.scale_and_translate(x, (3,), (0,), jnp.ones(1), jnp.ones(1), "linear")
        Array([0., 1., 2.], dtype=float32)
    """
    scale, translation = as_arrays("scale_and_translate", scale, translation)
    if not (scale.ndim and translation.ndim):
        raise TypeError(
            "scale_and_translate: scale and translation must have a number for each of "
            f"spatial_dims {spatial_dims}, got {scale} and {translation}"
        )
    return _scale_and_translate(
        image, canonical_shape(shape), tuple(spatial_dims), scale, translation,
        method, bool(antialias), precision,
    )  # fmt: skip


@composite(static_argnames=("shape", "spatial_dims", "method", "antialias", "precision"))
def _scale_and_translate(
    image: ArrayLike, shape: tuple[int, ...], spatial_dims: tuple[int, ...], scale: ArrayLike,
    translation: ArrayLike, method: str | ResizeMethod, antialias: bool, precision: Any,
) -> Array:  # fmt: skip
    x = jnp.asarray(image)
    _check_rank(x, shape)
    kind = interpolating(_method(method), antialias)
    if kind == "nearest":
        raise ValueError(
            "Nearest neighbor resampling is not currently supported for scale_and_translate."
        )
    (x,) = promote_dtypes_inexact(x)
    scale, translation = promote_dtypes_inexact(scale, translation)
    return resample(x, shape, spatial_dims, scale, translation, kind, antialias, precision)


def resize(
    image: ArrayLike,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Array:
    """An image of another size.

    Args:
      image: an array.
      shape: that of the result, with as many axes.
      method: how, or its name; see `ResizeMethod`.
      antialias: low-pass the image along axes that become shorter.
      precision: that of the sums.

    Returns:
      An image of the given shape; of an inexact dtype, but for "nearest".

    Raises:
      ValueError: `shape` has another number of axes, or `method` is unknown.

        >>> amdjax.image.resize(jnp.array([1.0, 2.0, 3.0, 4.0]), (2,), "area")
        Array([1.5, 3.5], dtype=float32)
    """
    x, new = jnp.asarray(image), canonical_shape(shape)
    _check_rank(x, new)
    return resized(x, new, _method(method), bool(antialias), precision)


_public_surface(globals())
