"""Images of any number of axes, resampled: `image`."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.boundaries import public_surface as _public_surface
from amdjax.core.composite import composite
from amdjax.numpy._util import (
    ArrayLike,
    as_arrays,
    canonical_axis,
    canonical_shape,
    promote_dtypes_inexact,
)

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


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}


def _triangle(x: Array) -> Array:
    return jnp.maximum(0, 1 - x)


def _lanczos(x: Array, radius: float) -> Array:
    near = x <= 1e-3
    angle = np.pi * jnp.where(near, 1, x)
    value = radius * jnp.sin(angle) * jnp.sin(angle / radius) / (angle * angle)
    return jnp.where(x > radius, 0, jnp.where(near, 1, value))


def _cubic(x: Array, a: float) -> Array:
    """Keys' family: cubic pieces with slope `a` at one (Keys, 1981)."""
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return jnp.where(x >= 2, 0, jnp.where(x >= 1, outer, inner))


# The kernel of the distance from a sample, in samples, and where it ends.
_KERNELS: dict[ResizeMethod, tuple[Callable[[Array], Array], int]] = {
    ResizeMethod.LINEAR: (_triangle, 1),
    ResizeMethod.LANCZOS3: (functools.partial(_lanczos, radius=3.0), 3),
    ResizeMethod.LANCZOS5: (functools.partial(_lanczos, radius=5.0), 5),
    ResizeMethod.CUBIC: (functools.partial(_cubic, a=-0.5), 2),
    ResizeMethod.CUBIC_PYTORCH: (functools.partial(_cubic, a=-0.75), 2),
}


def _normalized(weights: Array) -> Array:
    """Columns that add up to one, but where hardly anything is in them."""
    total = jnp.sum(weights, axis=0, keepdims=True)
    enough = jnp.abs(total) > 1000.0 * float(np.finfo(np.float32).eps)
    return jnp.where(enough, weights / jnp.where(total != 0, total, 1), 0)


def _weights(
    size: int,
    new_size: int,
    scale: Array,
    translation: Array,
    method: ResizeMethod,
    antialias: bool,
) -> Array:
    """The share of each old sample (rows) in each new one (columns)."""
    dtype = scale.dtype
    inverse = 1 / scale
    column = jnp.arange(new_size, dtype=dtype)[None, :]
    row = jnp.arange(size, dtype=dtype)[:, None]
    place = (column + 0.5) * inverse - translation * inverse - 0.5
    if method is ResizeMethod.AREA:
        left = column * inverse - translation * inverse
        overlap = jnp.minimum(left + inverse, row + 1) - jnp.maximum(left, row)
        weights = jnp.maximum(0, overlap)
    else:
        kernel, radius = _KERNELS[method]
        # Smaller images are low-passed, larger ones only interpolated.
        width = jnp.maximum(inverse, 1) if antialias else jnp.ones((), dtype)
        at = lambda row: kernel(jnp.abs(place - row) / width)
        weights = at(row)
        if method is ResizeMethod.CUBIC_PYTORCH:
            # The outermost samples stand for those beyond the image.
            for beyond in range(1, radius + 1):
                weights = weights.at[0].add(at(jnp.full((), -beyond, dtype))[0])
                weights = weights.at[size - 1].add(at(jnp.full((), size - 1 + beyond, dtype))[0])
            return _normalized(weights)
    inside = (place >= -0.5) & (place <= size - 0.5)
    return jnp.where(inside, _normalized(weights), 0)


def _resample(
    x: Array, shape: tuple[int, ...], axes: Sequence[int], scale: Any, translation: Any,
    method: ResizeMethod, antialias: bool, precision: Any,
) -> Array:  # fmt: skip
    for i, axis in enumerate(axes):
        axis = canonical_axis(axis, x.ndim)
        weights = _weights(x.shape[axis], shape[axis], scale[i], translation[i], method, antialias)
        x = jnp.tensordot(x, weights.astype(x.dtype), ((axis,), (0,)), precision=precision)
        x = jnp.moveaxis(x, -1, axis)
    return x


def _method(method: str | ResizeMethod, antialias: bool) -> ResizeMethod:
    found = ResizeMethod.from_string(method) if isinstance(method, str) else ResizeMethod(method)
    if found is ResizeMethod.CUBIC_PYTORCH and antialias:
        return ResizeMethod.CUBIC  # as PyTorch
    return found


def _check_rank(image: Array, shape: tuple[int, ...]) -> None:
    if len(shape) != image.ndim:
        raise ValueError(
            "shape must have length equal to the number of dimensions of x; "
            f" {shape} vs {image.shape}"
        )


def scale_and_translate(
    image: ArrayLike,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: ArrayLike,
    translation: ArrayLike,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Array:
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
    kind = _method(method, antialias)
    if kind is ResizeMethod.NEAREST:
        raise ValueError(
            "Nearest neighbor resampling is not currently supported for scale_and_translate."
        )
    (x,) = promote_dtypes_inexact(x)
    scale, translation = promote_dtypes_inexact(scale, translation)
    return _resample(x, shape, spatial_dims, scale, translation, kind, antialias, precision)


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
    return _resize(image, canonical_shape(shape), method, antialias, precision)


@composite(static_argnames=("shape", "method", "antialias", "precision"))
def _resize(
    image: ArrayLike,
    shape: tuple[int, ...],
    method: str | ResizeMethod,
    antialias: bool,
    precision: Any,
) -> Array:
    x = jnp.asarray(image)
    _check_rank(x, shape)
    kind = _method(method, antialias)
    axes = [axis for axis, n in enumerate(shape) if n != x.shape[axis]]
    if kind is ResizeMethod.NEAREST:
        for axis in axes:
            centers = (np.arange(shape[axis], dtype=np.float32) + np.float32(0.5)) * np.float32(
                x.shape[axis]
            )
            nearest = np.floor(centers / np.float32(max(shape[axis], 1))).astype(np.int32)
            x = jnp.take(x, nearest, axis=axis)
        return x
    (x,) = promote_dtypes_inexact(x)
    scale = jnp.asarray([shape[d] / x.shape[d] if shape[d] else 1.0 for d in axes])
    return _resample(x, shape, axes, scale, jnp.zeros_like(scale), kind, antialias, precision)


_public_surface(globals())
