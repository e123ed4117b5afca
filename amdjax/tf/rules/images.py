"""Images in other sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.dims import is_symbolic_dim

from ..nodes import Node
from ..registry import rule, sizes

#: Pixels whose places are computed as the graph is traced.
_MAX_TABLE = 1 << 16


def _sizes(node: Node, images: Any, size: np.ndarray) -> list[Any]:
    if images.ndim != 4 or size.shape != (2,):
        raise node.error(f"images of shape {images.shape}, size of shape {size.shape}")
    new = sizes(size)
    if any(isinstance(n, int) and not 1 <= n < 2**31 for n in (*new, *images.shape[1:3])):
        raise node.error(f"images of shape {images.shape} cannot have the size {new}")
    return new


def _centers(node: Node, n: Any, new: Any, is_nearest: bool) -> Any:
    """Where new pixels lie among old ones, in float32."""
    aligned, half = node.flag("align_corners"), node.flag("half_pixel_centers")
    if aligned and half:
        raise node.error("align_corners and half_pixel_centers exclude each other")
    known = not is_symbolic_dim(n) and not is_symbolic_dim(new) and new <= _MAX_TABLE
    xp: Any = np if known else jnp
    at = xp.arange(new).astype(np.float32)
    old, size = (xp.asarray(v).astype(np.float32) for v in (n, new))
    if aligned:
        more = xp.maximum(size - np.float32(1), np.float32(1))
        scale = xp.where(size > 1, (old - np.float32(1)) / more, old / size).astype(np.float32)
        return at * scale, xp
    scale = old / size
    if half:
        shift = np.float32(0 if is_nearest else 0.5)
        return (at + np.float32(0.5)) * scale - shift, xp
    return at * scale, xp


@rule("ResizeBilinear", numbers=("size",), only_device=True)
def resize_bilinear(node: Node, images: Any, size: Any) -> Any:
    x = images.astype(np.float32)
    for axis, new in zip((1, 2), _sizes(node, images, size)):
        n = x.shape[axis]
        at, xp = _centers(node, n, new, False)
        floor = xp.floor(at)
        part = (at - floor).reshape([-1 if i == axis else 1 for i in range(4)])
        upper = xp.minimum(xp.ceil(at).astype(np.int32), n - 1)
        lower = xp.minimum(xp.maximum(floor.astype(np.int32), 0), upper)
        low, high = (jnp.take(x, jnp.asarray(i), axis=axis) for i in (lower, upper))
        x = low + (high - low) * part
    return x


@rule("ResizeNearestNeighbor", numbers=("size",), only_device=True)
def resize_nearest(node: Node, images: Any, size: Any) -> Any:
    x = images
    for axis, new in zip((1, 2), _sizes(node, images, size)):
        n = x.shape[axis]
        at, xp = _centers(node, n, new, True)
        nearest = xp.floor(at + np.float32(0.5)) if node.flag("align_corners") else xp.floor(at)
        index = xp.minimum(xp.maximum(nearest.astype(np.int32), 0), n - 1)
        x = jnp.take(x, jnp.asarray(index), axis=axis)
    return x
