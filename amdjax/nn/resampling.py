"""Resampling: signals, images and volumes of other sizes, and sampled at given points."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdjax import lax
from amdjax.core.array import Array
from amdjax.core.composite import composite
from amdjax.nn._arguments import (
    Ints,
    check_floating,
    check_layout,
    check_positive,
    ints,
    space_rank,
    widened,
)
from amdjax.nn._resizing import METHODS, resized
from amdjax.nn._taps import Taps, gather_taps, mean_taps, scaled, taps_of, without_idle
from amdjax.numpy._util import ArrayLike, as_array, convert

__all__ = ["pixel_shuffle", "pixel_unshuffle", "resize", "upsample"]

_METHODS = {
    "nearest": "nearest",
    "nearest_exact": "nearest_exact",
    **dict.fromkeys(("linear", "bilinear", "trilinear"), "linear"),
    **dict.fromkeys(("cubic", "bicubic"), "cubic"),
    "area": "area",
}
_SLOPE = -0.75  # of the cubic kernel at one, as in PyTorch


def upsample(
    x: ArrayLike, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None, *,
    method: str = "nearest", align_corners: bool = False, layout: str = "channels_last",
) -> Array:  # fmt: skip
    """A batch of another spatial size, each channel for itself; PyTorch's `interpolate`.

    Args:
      x: batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels come first.
        Floating-point, but for the nearest methods.
      size: the new spatial size, one for all axes or one for each; this or `scale_factor`.
      scale_factor: the new size divided by the old one, rounded down; one, or one for each axis.
      method: "nearest" (of the places that lie before), "nearest_exact" (of the centers), "linear"
        ("bilinear", "trilinear"), "cubic" ("bicubic", of slope -0.75), or "area" (means).
      align_corners: whether the outermost samples, rather than their outer edges, keep their
        places; for "linear" and "cubic".

    Raises:
      TypeError: `x` is not floating-point, or a size is no integer.
      ValueError: not just one of `size` and `scale_factor` is given, or one does not fit `x`; there
        is no such `method` or `layout`; or `align_corners` is given for another method.

        >>> nn.upsample(jnp.array([[[1.0], [3.0]]]), scale_factor=2, method="linear")[0, :, 0]
        Array([1. , 1.5, 2.5, 3. ], dtype=float32)
    """
    x = as_array("upsample", x)
    rank, last = space_rank("upsample", x), check_layout("upsample", layout)
    check_method("upsample", method, align_corners)
    kind = _METHODS[method]
    if kind not in ("nearest", "nearest_exact"):
        check_floating("upsample", x)
    first = 1 if last else 2
    old = x.shape[first : first + rank]
    new, scales = _new_size(old, size, scale_factor)
    if 0 in old:
        raise ValueError(f"upsample: x of shape {x.shape} has no elements to interpolate.")
    return _upsample(x, new, scales, kind, bool(align_corners), first)


def check_method(name: str, method: Any, align_corners: Any) -> None:
    """Raise ValueError unless `upsample` has a method, and aligns corners by it if it should."""
    if method not in _METHODS:
        raise ValueError(f"{name}: method must be one of {tuple(_METHODS)}, got {method!r}.")
    if align_corners and _METHODS[method] not in ("linear", "cubic"):
        raise ValueError(f"{name}: align_corners is for linear and cubic, got {method=}.")


def _new_size(
    old: tuple[int, ...], size: Ints | None, scale_factor: Any
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """The new spatial size, and how far apart its samples lie in the old one; None: by sizes."""
    if (size is None) == (scale_factor is None):
        raise ValueError(
            f"upsample: either size or scale_factor must be given, got {size=} and {scale_factor=}."
        )
    if size is not None:
        new = ints("upsample", "size", size, len(old))
        return new, (None,) * len(new)
    factors = check_factors("upsample", scale_factor)
    if not isinstance(scale_factor, (tuple, list)):
        factors *= len(old)
    if len(factors) != len(old):
        raise ValueError(
            f"upsample: scale_factor must have one entry for each of the {len(old)} spatial axes, "
            f"got {scale_factor!r}."
        )
    # Sizes may be symbolic, which are multiplied by integers alone.
    new = tuple(
        n * int(f) if f == int(f) else math.floor(operator.index(n) * f)
        for n, f in zip(old, factors)
    )
    if 0 in new:
        raise ValueError(f"upsample: {scale_factor=} leaves nothing of spatial size {old}.")
    return new, tuple(1 / f for f in factors)


def check_factors(name: str, scale_factor: Any) -> tuple[float, ...]:
    """Raise ValueError unless factors are positive numbers."""
    several = isinstance(scale_factor, (tuple, list))
    factors = tuple(scale_factor) if several else (scale_factor,)
    if not all(isinstance(f, (int, float)) and f > 0 and math.isfinite(f) for f in factors):
        raise ValueError(
            f"{name}: scale_factor must be a positive number, or one for each spatial axis, got "
            f"{scale_factor!r}."
        )
    return factors


@composite(static_argnames=("new", "scales", "kind", "align_corners", "first"))
def _upsample(
    x: Array, new: tuple[int, ...], scales: tuple[float | None, ...], kind: str,
    align_corners: bool, first: int,
) -> Array:  # fmt: skip
    """With None for a scale that is the quotient of the sizes."""
    old = x.shape[first : first + len(new)]
    factors = [m // n for n, m in zip(old, new)]
    repeats = [m == n * f and s in (None, 1 / f) for n, m, f, s in zip(old, new, factors, scales)]
    if kind.startswith("nearest") and all(repeats):
        return _repeated(x, factors, first)
    axes = list(range(len(new)) if first == 1 else reversed(range(len(new))))
    if kind.startswith("nearest") and any(repeats):
        x = _repeated(x, [f if r else 1 for f, r in zip(factors, repeats)], first)
        axes = [i for i in axes if not repeats[i]]
    dtype, x = x.dtype, widened(x)
    taps = {}
    for i in axes:  # where channels come last, they are the lanes; else the axis treated first is
        sizes = old[i], new[i]
        if kind == "area":
            along = taps_of(mean_taps, *sizes)
        else:
            scale = None if repeats[i] else scales[i]
            along = taps_of(_taps, *sizes, scale, kind, align_corners)
        if not _changes_nothing(along, old[i]):
            taps[first + i] = along
    return convert(gather_taps(x, taps), dtype)


def _changes_nothing(taps: Taps, size: int) -> bool:
    return (
        taps.known
        and taps.places.shape == (size, 1)
        and bool((taps.places[:, 0] == np.arange(size)).all() and (taps.weights == 1).all())
    )


def _repeated(x: Array, factors: Sequence[int], first: int) -> Array:
    """Each element as often as the factors say, along the axes from `first`."""
    shape: list[int] = []
    dims, merged = [], []
    for i, n in enumerate(x.shape):
        dims.append(len(shape))
        shape.append(n)
        merged.append(n)
        if first <= i < first + len(factors):
            shape.append(factors[i - first])
            merged[-1] *= factors[i - first]
    return lax.reshape(lax.broadcast_in_dim(x, tuple(shape), tuple(dims)), tuple(merged))


def _taps(
    xp: Any, size: int, new: int, scale: float | None, kind: str, align_corners: bool
) -> Taps:
    """The samples between which each new one lies; beyond the edges, the outermost ones."""
    i = xp.arange(new)
    if kind.startswith("nearest"):
        # In float32, as PyTorch does: which of two samples is nearer may hang on the last bit.
        step = xp.asarray(size / xp.maximum(new, 1) if scale is None else scale).astype(np.float32)
        shift = np.float32(0.5 if kind == "nearest_exact" else 0)
        nearest = xp.floor((i.astype(np.float32) + shift) * step).astype(np.int32)
        return Taps(xp.minimum(nearest, size - 1)[:, None], xp.ones((new, 1)))
    below, after = _between(xp, i, size, new, scale, align_corners)
    if kind == "linear":
        below, after = xp.maximum(below, 0), xp.where(below < 0, 0, after)
        places, weights = below[:, None] + np.arange(2), xp.stack([1 - after, after], 1)
    else:
        places, weights = below[:, None] + np.arange(-1, 3), xp.stack(cubic_weights(after), 1)
    places = xp.clip(places, 0, size - 1).astype(np.int32)
    return without_idle(Taps(places, weights)) if xp is np else Taps(places, weights)


def _between(
    xp: Any, i: Any, size: int, new: int, scale: float | None, align_corners: bool
) -> tuple[Any, Any]:
    """The sample below each new one, and how far behind it that lies."""
    if align_corners:
        last = xp.maximum(new - 1, 1)
        below, rest = scaled(xp, i, size - 1, last)
        return below, rest / last
    if scale is None:
        # (i + 1/2) * size / new - 1/2
        below, rest = scaled(xp, 2 * i + 1, size, 2 * new)
        before = rest < new
        return below - before, rest / (2 * new) - 0.5 + before
    at = (i + 0.5) * scale - 0.5
    below = xp.floor(at)
    return below.astype(np.int32), at - below


def cubic_weights(t: Any) -> list[Any]:
    """Weights of the four samples around a place `t` behind the second (Keys, 1981)."""
    a = _SLOPE
    near = lambda d: ((a + 2) * d - (a + 3)) * d * d + 1
    far = lambda d: ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def resize(
    x: ArrayLike, size: Ints, *, method: str = "linear", antialias: bool = True,
    layout: str = "channels_last", precision: Any = lax.Precision.HIGHEST,
) -> Array:  # fmt: skip
    """A batch of another spatial size, low-passed where it becomes smaller; `image.resize`.

    Unlike `upsample`, which interpolates between the samples around a place, this takes all samples
    into account that a smaller image stands for. Sums may be products with weights of which most
    are zero: an element that is no number may reach all of its row.

    Args:
      x: batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels come first.
      size: the new spatial size, one for all axes or one for each.
      method: "nearest", "linear" ("bilinear", "trilinear", "triangle"), "cubic" ("bicubic",
        "tricubic"; of slope -0.5), "cubic-pytorch" ("bicubic-pytorch"; of slope -0.75 unless it
        low-passes), "lanczos3", "lanczos5" or "area" (means).
      antialias: low-pass along axes that become shorter.
      layout: "channels_last" or "channels_first".
      precision: that of the sums.

    Returns:
      A batch of as many channels in the same layout; of an inexact dtype, but for "nearest".

    Raises:
      TypeError: a size is no integer.
      ValueError: `size` does not fit `x`, or there is no such `method` or `layout`.

        >>> nn.resize(jnp.arange(4.0).reshape(1, 4, 1), 2)[0, :, 0]
        Array([0.71428573, 2.2857144 ], dtype=float32)
    """
    x = as_array("resize", x)
    rank, last = space_rank("resize", x), check_layout("resize", layout)
    if method not in METHODS:
        raise ValueError(f"resize: method must be one of {tuple(METHODS)}, got {method!r}.")
    new = ints("resize", "size", size, rank)
    first = 1 if last else 2
    shape = (*x.shape[:first], *new, *x.shape[first + rank :])
    return resized(x, shape, METHODS[method], bool(antialias), precision)


def pixel_shuffle(x: ArrayLike, factor: int, *, layout: str = "channels_last") -> Array:
    """Groups of channels become blocks of pixels (Shi et al., 2016).

    Args:
      x: batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels come first.
      factor: how many times larger each spatial axis becomes. `channels` must be a multiple of
        `factor ** d` for `d` spatial axes; those of a block follow each other, row by row.

    Returns:
      A batch with spatial axes `factor` times as large, and `factor ** d` times fewer channels.

    Raises:
      ValueError: `factor` is no positive integer or does not fit the channels, or there is no such
        `layout`.

        >>> nn.pixel_shuffle(jnp.arange(4.0).reshape(1, 1, 1, 4), 2)[0, :, :, 0]
        Array([[0., 1.],
               [2., 3.]], dtype=float32)
    """
    x, rank, last = _shuffled("pixel_shuffle", x, factor, layout)
    n, *space = x.shape[0], *(x.shape[1:-1] if last else x.shape[2:])
    channels, rest = divmod(x.shape[-1 if last else 1], factor**rank)
    if rest:
        raise ValueError(
            f"pixel_shuffle: factor must divide the channels by its power {rank}, got {factor=} "
            f"for x of shape {x.shape}."
        )
    block = (factor,) * rank
    if last:
        x = lax.reshape(x, (n, *space, channels, *block))
        order = [0, *(k for i in range(rank) for k in (1 + i, 2 + rank + i)), 1 + rank]
    else:
        x = lax.reshape(x, (n, channels, *block, *space))
        order = [0, 1, *(k for i in range(rank) for k in (2 + rank + i, 2 + i))]
    larger = [m * factor for m in space]
    shape = (n, *larger, channels) if last else (n, channels, *larger)
    return lax.reshape(lax.transpose(x, order), shape)


def pixel_unshuffle(x: ArrayLike, factor: int, *, layout: str = "channels_last") -> Array:
    """Blocks of pixels become groups of channels: the inverse of `pixel_shuffle`.

    Args:
      x: batch of shape `(n, *space, channels)`; `(n, channels, *space)` if channels come first.
      factor: how many times smaller each spatial axis becomes; it must divide them.

    Returns:
      A batch with spatial axes `factor` times as small, and `factor ** d` times more channels for
      `d` spatial axes.

    Raises:
      ValueError: `factor` is no positive integer or does not divide the spatial axes, or there is
        no such `layout`.

        >>> nn.pixel_unshuffle(jnp.arange(4.0).reshape(1, 2, 2, 1), 2)[0, 0, 0]
        Array([0., 1., 2., 3.], dtype=float32)
    """
    x, rank, last = _shuffled("pixel_unshuffle", x, factor, layout)
    n, *space = x.shape[0], *(x.shape[1:-1] if last else x.shape[2:])
    channels = x.shape[-1 if last else 1]
    if any(m % factor for m in space):
        raise ValueError(
            f"pixel_unshuffle: factor must divide the spatial axes, got {factor=} for x of shape "
            f"{x.shape}."
        )
    smaller = [m // factor for m in space]
    split = [k for m in smaller for k in (m, factor)]
    if last:
        x = lax.reshape(x, (n, *split, channels))
        outer, inner = range(1, 1 + 2 * rank, 2), range(2, 2 + 2 * rank, 2)
        order = [0, *outer, 1 + 2 * rank, *inner]
    else:
        x = lax.reshape(x, (n, channels, *split))
        order = [0, 1, *range(3, 3 + 2 * rank, 2), *range(2, 2 + 2 * rank, 2)]
    more = channels * factor**rank
    shape = (n, *smaller, more) if last else (n, more, *smaller)
    return lax.reshape(lax.transpose(x, order), shape)


def _shuffled(name: str, x: ArrayLike, factor: int, layout: str) -> tuple[Array, int, bool]:
    x = as_array(name, x)
    check_positive(name, factor=factor)
    return x, space_rank(name, x), check_layout(name, layout)
