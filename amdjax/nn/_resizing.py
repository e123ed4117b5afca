"""Arrays of other sizes by weighted sums along axes, as `nn.resize` and `image` have them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.core.dims import is_symbolic_dim
from amdjax.nn._arguments import widened
from amdjax.nn._taps import Taps, gather_taps
from amdjax.numpy._util import canonical_axis, convert, promote_dtypes_inexact

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


# Weights are computed by `xp`: NumPy where sizes alone decide, else `jnp`.


def triangle(xp: Any, x: Any) -> Any:
    return xp.maximum(0, 1 - x)


def _lanczos(xp: Any, x: Any, radius: float) -> Any:
    near = x <= 1e-3
    angle = np.pi * xp.where(near, 1, x)
    value = radius * xp.sin(angle) * xp.sin(angle / radius) / (angle * angle)
    return xp.where(x > radius, 0, xp.where(near, 1, value))


def keys_cubic(xp: Any, x: Any, a: float) -> Any:
    """Keys' family: cubic pieces with slope `a` at one (Keys, 1981)."""
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return xp.where(x >= 2, 0, xp.where(x >= 1, outer, inner))


# The kernel of the distance from a sample, in samples, and where it ends.
_KERNELS: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "linear": (triangle, 1),
    "lanczos3": (functools.partial(_lanczos, radius=3.0), 3),
    "lanczos5": (functools.partial(_lanczos, radius=5.0), 5),
    "cubic": (functools.partial(keys_cubic, a=-0.5), 2),
    "cubic-pytorch": (functools.partial(keys_cubic, a=-0.75), 2),
}


def _normalized(xp: Any, weights: Any) -> Any:
    """Columns that add up to one, but where hardly anything is in them."""
    total = xp.sum(weights, axis=0, keepdims=True)
    enough = xp.abs(total) > 1000.0 * float(np.finfo(np.float32).eps)
    return xp.where(enough, weights / xp.where(total != 0, total, 1), 0)


def _weights(
    xp: Any, size: int, new_size: int, scale: Any, translation: Any, method: str, antialias: bool
) -> Any:
    """The share of each old sample (rows) in each new one (columns)."""
    dtype = scale.dtype
    inverse = 1 / scale
    column = xp.arange(new_size, dtype=dtype)[None, :]
    row = xp.arange(size, dtype=dtype)[:, None]
    place = (column + 0.5) * inverse - translation * inverse - 0.5
    if method == "area":
        left = column * inverse - translation * inverse
        overlap = xp.minimum(left + inverse, row + 1) - xp.maximum(left, row)
        weights = xp.maximum(0, overlap)
    else:
        kernel, radius = _KERNELS[method]
        # Smaller images are low-passed, larger ones only interpolated.
        width = xp.maximum(inverse, 1) if antialias else xp.ones((), dtype)
        at = lambda row: kernel(xp, xp.abs(place - row) / width)
        weights = at(row)
        if method == "cubic-pytorch":
            # The outermost samples stand for those beyond the image.
            for beyond in range(1, radius + 1):
                weights = weights + xp.where(row == 0, at(-beyond), 0)
                weights = weights + xp.where(row == size - 1, at(size - 1 + beyond), 0)
            return _normalized(xp, weights)
    inside = (place >= -0.5) & (place <= size - 0.5)
    return xp.where(inside, _normalized(xp, weights), 0)


def _samples(size: int, new_size: int, method: str, antialias: bool) -> int:
    """How many old samples make up a new one, at most."""
    inverse = size / new_size
    if method == "area":
        return math.ceil(inverse) + 1
    radius = _KERNELS[method][1]
    return math.ceil(2 * radius * (max(inverse, 1.0) if antialias else 1.0)) + 1


@functools.lru_cache(256)
def _taps(size: int, new_size: int, dtype: np.dtype[Any], method: str, antialias: bool) -> Taps:
    """The old samples that make up each new one."""
    scale = np.asarray(new_size / size, dtype)
    weights = _weights(np, size, new_size, scale, np.zeros((), dtype), method, antialias)
    most = max(int((weights != 0).sum(0).max()), 1)
    places = np.sort(np.argsort(weights == 0, axis=0, kind="stable")[:most], axis=0)
    return Taps(places.T.astype(np.int32), np.take_along_axis(weights, places, 0).T)


def _nearest(size: int, new_size: int) -> Any:
    """The old sample that is nearest to the center of each new one."""
    xp: Any = jnp if is_symbolic_dim(size) or is_symbolic_dim(new_size) else np
    old, new = (xp.asarray(n).astype(np.float32) for n in (size, max(new_size, 1)))
    centers = (xp.arange(new_size, dtype=np.float32) + np.float32(0.5)) * old
    return xp.floor(centers / new).astype(np.int32)


def resample(
    x: Array, shape: tuple[int, ...], axes: Sequence[int], scale: Any, translation: Any,
    method: str, antialias: bool, precision: Any,
) -> Array:  # fmt: skip
    """An array stretched by `scale` and moved by `translation` along some of its axes."""
    for i, axis in enumerate(axes):
        axis = canonical_axis(axis, x.ndim)
        sizes = x.shape[axis], shape[axis]
        weights = _weights(jnp, *sizes, scale[i], translation[i], method, antialias)
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
            x = jnp.take(x, _nearest(x.shape[axis], shape[axis]), axis=axis)
        return x
    (x,) = promote_dtypes_inexact(x)
    kind = interpolating(method, antialias)
    few = [axis for axis in axes if _are_few(x.shape, shape, axis, kind, antialias)]
    axes = [axis for axis in axes if axis not in few]
    if few:
        dtype, x = x.dtype, widened(x)
        real = np.dtype(jnp.result_type(float))
        taps = {d: _taps(x.shape[d], shape[d], real, kind, antialias) for d in few}
        x = convert(gather_taps(x, taps), dtype)
    if not axes:
        return x
    scale = jnp.stack([jnp.asarray(shape[d] / x.shape[d] if shape[d] else 1.0) for d in axes])
    return resample(x, shape, axes, scale, jnp.zeros_like(scale), kind, antialias, precision)


def _are_few(
    old: tuple[int, ...], new: tuple[int, ...], axis: int, method: str, antialias: bool
) -> bool:
    """Whether new samples are sums of so few old ones that a product has mostly zeros."""
    if is_symbolic_dim(old[axis]) or is_symbolic_dim(new[axis]):
        return False
    if not (math.prod(old) and math.prod(new)):
        return False
    apart = 2 if math.prod(old[axis + 1 :]) > 1 else 16  # neighbors are read one by one
    return apart * _samples(old[axis], new[axis], method, antialias) <= old[axis]
