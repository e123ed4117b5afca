"""Arrays of other sizes by weighted sums along axes, as `nn.resize` and `image` have them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.numpy._util import canonical_axis, promote_dtypes_inexact

__all__ = ["METHODS", "interpolating", "resample", "resized"]

#: What methods are called, and which it is.
METHODS = {
    "nearest": "nearest",
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), "linear"),
    "lanczos3": "lanczos3",
    "lanczos5": "lanczos5",
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), "cubic"),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), "cubic-pytorch"),
    "area": "area",
}


def interpolating(method: str, antialias: bool) -> str:
    """The method that is used: PyTorch's cubic kernel has another slope where it low-passes."""
    return "cubic" if method == "cubic-pytorch" and antialias else method


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
_KERNELS: dict[str, tuple[Callable[[Array], Array], int]] = {
    "linear": (_triangle, 1),
    "lanczos3": (functools.partial(_lanczos, radius=3.0), 3),
    "lanczos5": (functools.partial(_lanczos, radius=5.0), 5),
    "cubic": (functools.partial(_cubic, a=-0.5), 2),
    "cubic-pytorch": (functools.partial(_cubic, a=-0.75), 2),
}


def _normalized(weights: Array) -> Array:
    """Columns that add up to one, but where hardly anything is in them."""
    total = jnp.sum(weights, axis=0, keepdims=True)
    enough = jnp.abs(total) > 1000.0 * float(np.finfo(np.float32).eps)
    return jnp.where(enough, weights / jnp.where(total != 0, total, 1), 0)


def _weights(
    size: int, new_size: int, scale: Array, translation: Array, method: str, antialias: bool,
) -> Array:  # fmt: skip
    """The share of each old sample (rows) in each new one (columns)."""
    dtype = scale.dtype
    inverse = 1 / scale
    column = jnp.arange(new_size, dtype=dtype)[None, :]
    row = jnp.arange(size, dtype=dtype)[:, None]
    place = (column + 0.5) * inverse - translation * inverse - 0.5
    if method == "area":
        left = column * inverse - translation * inverse
        overlap = jnp.minimum(left + inverse, row + 1) - jnp.maximum(left, row)
        weights = jnp.maximum(0, overlap)
    else:
        kernel, radius = _KERNELS[method]
        # Smaller images are low-passed, larger ones only interpolated.
        width = jnp.maximum(inverse, 1) if antialias else jnp.ones((), dtype)
        at = lambda row: kernel(jnp.abs(place - row) / width)
        weights = at(row)
        if method == "cubic-pytorch":
            # The outermost samples stand for those beyond the image.
            for beyond in range(1, radius + 1):
                weights = weights.at[0].add(at(jnp.full((), -beyond, dtype))[0])
                weights = weights.at[size - 1].add(at(jnp.full((), size - 1 + beyond, dtype))[0])
            return _normalized(weights)
    inside = (place >= -0.5) & (place <= size - 0.5)
    return jnp.where(inside, _normalized(weights), 0)


def resample(
    x: Array, shape: tuple[int, ...], axes: Sequence[int], scale: Any, translation: Any,
    method: str, antialias: bool, precision: Any,
) -> Array:  # fmt: skip
    """An array stretched by `scale` and moved by `translation` along some of its axes."""
    for i, axis in enumerate(axes):
        axis = canonical_axis(axis, x.ndim)
        weights = _weights(x.shape[axis], shape[axis], scale[i], translation[i], method, antialias)
        x = jnp.tensordot(x, weights.astype(x.dtype), ((axis,), (0,)), precision=precision)
        x = jnp.moveaxis(x, -1, axis)
    return x


@composite(static_argnames=("shape", "method", "antialias", "precision"))
def resized(
    x: Array, shape: tuple[int, ...], method: str, antialias: bool, precision: Any
) -> Array:
    """An array of another shape; axes that keep their size are left alone."""
    axes = [axis for axis, n in enumerate(shape) if n != x.shape[axis]]
    if method == "nearest":
        for axis in axes:
            centers = (np.arange(shape[axis], dtype=np.float32) + np.float32(0.5)) * np.float32(
                x.shape[axis]
            )
            nearest = np.floor(centers / np.float32(max(shape[axis], 1))).astype(np.int32)
            x = jnp.take(x, nearest, axis=axis)
        return x
    (x,) = promote_dtypes_inexact(x)
    scale = jnp.asarray([shape[d] / x.shape[d] if shape[d] else 1.0 for d in axes])
    kind = interpolating(method, antialias)
    return resample(x, shape, axes, scale, jnp.zeros_like(scale), kind, antialias, precision)
