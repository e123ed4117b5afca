"""Images: resizing, sampling, regions and boxes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from amdjax import enable_x64, lax, nn, numpy as jnp
from amdjax.core.dims import is_symbolic_dim, max_dim, surely_equal
from amdjax.export.suppression import kept_boxes, selected_boxes
from amdjax.nn._resizing import keys_cubic, triangle
from amdjax.nn._taps import Taps, gather_taps, taps_of, without_idle

from ..errors import OnnxError
from ..padding import Padded
from ..registry import integer, ints, rule, static
from .convolutions import bilinear

#: Of fractions that scales are taken for.
_LARGEST_DENOMINATOR = 1000

# Resizing: each axis for itself, each new sample a sum of a few old ones


class Axis(NamedTuple):
    """How one axis is resized; sizes may be symbolic.

    Attributes:
      size, new: how many samples there are, and are to be.
      scale: by what it grows; None where that is the quotient of the sizes.
      roi: the part that is cropped.
    """

    size: Any
    new: Any
    scale: float | None
    roi: tuple[float, float]


class _Places(NamedTuple):
    """Numbers of which places follow: new samples, and the axis as arrays of `xp`."""

    xp: Any
    at: Any
    size: Any
    new: Any
    scale: Any
    length: Any  # size times scale, of which `new` is what is left when it is rounded
    roi: tuple[float, float]


def _half_pixel(p: _Places) -> Any:
    return (p.at + 0.5) / p.scale - 0.5


def _half_pixel_symmetric(p: _Places) -> Any:
    """The middle of the image stays where it is, whatever size was rounded off."""
    return p.size / 2 * (1 - p.new / p.length) + _half_pixel(p)


def _pytorch_half_pixel(p: _Places) -> Any:
    return p.xp.where(p.length > 1, _half_pixel(p), 0)


def _align_corners(p: _Places) -> Any:
    is_one = p.length == 1
    return p.xp.where(is_one, 0, p.at * (p.size - 1) / p.xp.where(is_one, 1, p.length - 1))


def _crop_and_resize(p: _Places) -> Any:
    first, last = p.roi
    inside = p.at * (last - first) * (p.size - 1) / p.xp.maximum(p.new - 1, 1)
    middle = (last - first) * (p.size - 1) / 2
    return first * (p.size - 1) + p.xp.where(p.new == 1, middle, inside)


_PLACES: dict[str, Callable[[_Places], Any]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": lambda p: p.at / p.scale,
    "tf_half_pixel_for_nn": lambda p: (p.at + 0.5) / p.scale,
    "tf_crop_and_resize": _crop_and_resize,
}
_NEAREST: dict[str, Callable[[Any, Any], Any]] = {
    "round_prefer_floor": lambda xp, at: xp.ceil(at - 0.5),
    "round_prefer_ceil": lambda xp, at: xp.floor(at + 0.5),
    "floor": lambda xp, at: xp.floor(at),
    "ceil": lambda xp, at: xp.ceil(at),
}
_RADIUS = {"linear": 1, "cubic": 2}
#: How samples are repeated, each as often as a whole scale says.
_REPEATS = {
    ("asymmetric", "floor"),
    *(
        (places, nearest)
        for places in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
        for nearest in ("round_prefer_floor", "round_prefer_ceil")
    ),
}


class _Sampling(NamedTuple):
    """How new samples are made of old ones, on each axis."""

    mode: str
    places: str
    nearest: str
    antialias: bool
    exclude: bool
    a: float


def _places(xp: Any, axis: Axis, name: str) -> Any:
    """Where new samples lie among old ones, in float64."""
    size, new = (xp.asarray(n).astype(np.float64) for n in (axis.size, axis.new))
    scale, length = (new / size, new) if axis.scale is None else (axis.scale, axis.scale * size)
    at = xp.arange(axis.new).astype(np.float64)
    return _PLACES[name](_Places(xp, at, size, new, scale, length, axis.roi))


def _taps(
    xp: Any, size: Any, new: Any, scale: float | None, roi: tuple[float, float], how: _Sampling
) -> Taps:
    """Old samples and their shares of each new one."""
    at = _places(xp, Axis(size, new, scale, roi), how.places)
    if how.mode == "nearest":
        index = xp.clip(_NEAREST[how.nearest](xp, at), 0, size - 1)[:, None]
        return Taps(index.astype(np.int32), xp.ones((new, 1)))
    radius = _RADIUS[how.mode]
    width: Any = 1.0
    # From the first to the last sample that the kernel may reach
    reach: Any = radius
    if how.antialias:
        # Smaller images are low-passed: the kernel is as wide as a new sample.
        shrink = xp.asarray(size) / xp.maximum(new, 1) if scale is None else 1 / scale
        width = xp.maximum(shrink, 1.0)
        wide = -(-radius * size // max_dim(new, 1)) if scale is None else math.ceil(radius / scale)
        reach = max_dim(wide, radius) + 1
    offsets = xp.arange(2 * reach) + (1 - reach)
    index = xp.floor(at)[:, None] + offsets
    distance = abs(at[:, None] - index) / width
    share = triangle(xp, distance) if how.mode == "linear" else keys_cubic(xp, distance, how.a)
    if how.exclude:
        share = xp.where((index < 0) | (index >= size), 0, share)
    if how.exclude or how.antialias:
        share = share / share.sum(1, keepdims=True)
    taps = Taps(xp.clip(index, 0, size - 1).astype(np.int32), share)
    return without_idle(taps) if xp is np else taps


@rule("Resize", since=11)
def resize(
    x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, *, antialias: int = 0,
    axes: Any = None, coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:  # fmt: skip
    over = list(range(x.ndim)) if axes is None else [a % x.ndim for a in axes]
    made = _axes(x.shape, over, roi, scales, sizes, keep_aspect_ratio_policy)
    how = _Sampling(
        mode, coordinate_transformation_mode, nearest_mode, bool(antialias), bool(exclude_outside),
        cubic_coeff_a,
    )  # fmt: skip
    crops = how.places == "tf_crop_and_resize"
    dtype = x.dtype
    y = jnp.asarray(x)
    y = y if mode == "nearest" else y.astype(jnp.promote_types(dtype, np.float32))
    changed = {a: axis for a, axis in made.items() if crops or not _stays(axis)}
    if mode == "nearest" and (how.places, how.nearest) in _REPEATS:
        for a in [a for a, axis in changed.items() if _is_whole(axis)]:
            y = jnp.repeat(y, int(changed.pop(a).scale or 1), a)
    # Places are those of the standard's float64, also where a program knows none else.
    with enable_x64(True):
        taps = {a: taps_of(_taps, *axis, how) for a, axis in changed.items()}
        outside = [_outside(axis, [int(i == a) for i in range(x.ndim)], how)
                   for a, axis in changed.items() if crops]  # fmt: skip
    y = gather_taps(y, taps)
    for beyond in outside:
        y = jnp.where(beyond, np.asarray(extrapolation_value).astype(y.dtype), y)
    if np.issubdtype(dtype, np.integer) and y.dtype != dtype:
        y = jnp.clip(jnp.round(y), jnp.iinfo(dtype).min, jnp.iinfo(dtype).max)
    return y.astype(dtype)


def _stays(axis: Axis) -> bool:
    """Whether an axis is known to keep its samples."""
    if axis.scale is None:
        return surely_equal(axis.new, axis.size)
    return axis.scale == 1


def _is_whole(axis: Axis) -> bool:
    return axis.scale is not None and axis.scale >= 1 and axis.scale == int(axis.scale)


def _outside(axis: Axis, along: list[int], how: _Sampling) -> Any:
    """Which new samples lie beyond the old ones."""
    xp = jnp if is_symbolic_dim(axis.size) or is_symbolic_dim(axis.new) else np
    at = _places(xp, axis, how.places)
    return ((at < 0) | (at > axis.size - 1)).reshape([-1 if a else 1 for a in along])


def _axes(
    shape: tuple[Any, ...], over: list[int], roi: Any, scales: Any, sizes: Any, policy: str
) -> dict[int, Axis]:
    """What each axis is resized by."""
    regions = None if roi is None or roi.size == 0 else static(roi, "roi").astype(np.float64)
    rank = len(over)
    factors: list[float | None]

    def region(i: int) -> tuple[float, float]:
        return (0.0, 1.0) if regions is None else (float(regions[i]), float(regions[i + rank]))

    if scales is not None and scales.size:
        given = static(scales, "scales").astype(np.float64).tolist()
        factors, news = list(given), [_scaled(shape[a], f) for a, f in zip(over, given)]
    elif sizes is not None:
        news = ints(sizes, "sizes")
        factors = [None] * len(news)
        if policy != "stretch":
            ratios = [operator.index(new) / operator.index(shape[a]) for a, new in zip(over, news)]
            factor = min(ratios) if policy == "not_larger" else max(ratios)
            factors = [factor] * rank
            news = [int(np.floor(shape[a] * factor + 0.5)) for a in over]
    else:
        raise OnnxError("it needs scales or sizes")
    if len(news) != rank:
        raise OnnxError(f"scales or sizes must have {rank} values, got {len(news)}")
    return {
        a: Axis(shape[a], n, f, region(i)) for i, (a, n, f) in enumerate(zip(over, news, factors))
    }


def _scaled(size: Any, scale: float) -> Any:
    """A size times a scale, rounded down.

    A scale that is a fraction but for its rounding is that fraction: 10 times the float32 nearest
    to 0.7 are 7, as its maker meant, not 6.
    """
    ratio = Fraction(scale)
    near = ratio.limit_denominator(_LARGEST_DENOMINATOR)
    if np.float32(near) == np.float32(scale):
        ratio = near
    return size * ratio.numerator // ratio.denominator


@rule("Resize", since=10)
def resize_before(x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    return resize(
        x,
        None,
        scales,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@rule("Upsample", since=9)
def upsample(x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    return resize_before(x, scales, mode="linear" if mode == "bilinear" else mode)


@rule("Upsample")
def upsample_before(
    x: Any, *, scales: Any = None, width_scale: float = 1.0, height_scale: float = 1.0,
    mode: str = "nearest",
) -> Any:  # fmt: skip
    factors = [1, 1, height_scale, width_scale] if scales is None else scales
    return upsample(x, np.asarray(factors, np.float32), mode=mode)


# Sampling

_METHODS = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic",
            "cubic": "cubic"}  # fmt: skip


@rule("GridSample", since=16)
def grid_sample(
    x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Any:
    if mode not in _METHODS:
        raise OnnxError(f"mode must be one of {', '.join(_METHODS)}, got {mode!r}")
    return nn.grid_sample(
        x, grid.astype(x.dtype), method=_METHODS[mode], padding_mode=padding_mode,
        align_corners=bool(align_corners), layout="channels_first",
    )  # fmt: skip


@rule("RoiAlign", since=10)
def roi_align(
    x: Any, rois: Any, batch: Any, *, coordinate_transformation_mode: str = "", mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
    spatial_scale: float = 1.0, node: Any,
) -> Any:  # fmt: skip
    """Means (or largest) of samples in the cells of regions."""
    default = "half_pixel" if node.version >= 16 else "output_half_pixel"
    half = (coordinate_transformation_mode or default) == "half_pixel"
    corners = rois * spatial_scale - (0.5 if half else 0.0)
    x1, y1, x2, y2 = (corners[:, i] for i in range(4))
    width, height = x2 - x1, y2 - y1
    if not half:
        width, height = jnp.maximum(width, 1.0), jnp.maximum(height, 1.0)
    at_y = _samples(y1, height, output_height, sampling_ratio)
    at_x = _samples(x1, width, output_width, sampling_ratio)
    images = jnp.asarray(x)[jnp.asarray(batch).astype(np.int32)][:, None]
    return _aligned(images, at_y, at_x, mode, x.shape[2:]).astype(x.dtype)


def _samples(start: Any, length: Any, cells: int, ratio: int) -> tuple[Any, Any, Any]:
    """Places of samples of each region, `(regions, cells, samples)`, and which of them count."""
    size = length / cells
    if ratio > 0:
        counts, most = jnp.full(size.shape, ratio), ratio
    else:
        counts = jnp.maximum(jnp.ceil(size), 1).astype(np.int32)
        most = int(static(counts, "rois").max(initial=1))
    each = np.arange(most, dtype=np.float32)
    at = (each + 0.5) / counts[:, None]
    places = (
        start[:, None, None] + (np.arange(cells)[:, None] + at[:, None, :]) * size[:, None, None]
    )
    return places, each < counts[:, None], counts


def _aligned(images: Any, at_y: Any, at_x: Any, mode: str, space: Any) -> Any:
    (y, used_y, count_y), (x, used_x, count_x) = at_y, at_x
    n, (rows, each), (columns, other) = y.shape[0], y.shape[1:], x.shape[1:]
    shape = (n, 1, rows, columns, each, other)
    ys = jnp.broadcast_to(y[:, None, :, None, :, None], shape)
    xs = jnp.broadcast_to(x[:, None, None, :, None, :], shape)
    outside = (ys < -1) | (ys > space[0]) | (xs < -1) | (xs > space[1])
    ys, xs = jnp.clip(ys, 0, space[0] - 1), jnp.clip(xs, 0, space[1] - 1)
    used = used_y[:, None, None, None, :, None] & used_x[:, None, None, None, None, :]
    kept = used & ~outside
    if mode == "avg":
        values = jnp.where(kept[:, :, None], bilinear(images, ys, xs), 0)[:, 0]
        return values.sum((-1, -2)) / (count_y * count_x).reshape(-1, 1, 1, 1)
    read = jnp.where(outside[:, :, None], 0, _largest(images, ys, xs))
    values = jnp.where(used[:, :, None], read,
                       -np.inf)[:, 0]  # fmt: skip
    return values.max((-1, -2))


def _largest(images: Any, ys: Any, xs: Any) -> Any:
    """The largest share of the four elements around points, as the standard's maximum has it."""
    n, g, c, h, w = images.shape
    top, left = jnp.floor(ys), jnp.floor(xs)
    flat = images.reshape(n, g, c, h * w)
    best: Any = None
    for dy in (0, 1):
        for dx in (0, 1):
            row, column = jnp.minimum(top + dy, h - 1), jnp.minimum(left + dx, w - 1)
            share = (1 - abs(ys - (top + dy))) * (1 - abs(xs - (left + dx)))
            place = (row * w + column).astype(np.int32).reshape(n, g, 1, -1)
            read = jnp.take_along_axis(flat, place, -1).reshape(n, g, c, *ys.shape[2:])
            value = read * share[:, :, None]
            best = value if best is None else jnp.maximum(best, value)
    return best


@rule("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: Any, scores: Any, limit: Any = None, iou_threshold: Any = None,
    score_threshold: Any = None, *, center_point_box: int = 0, node: Any,
) -> Any:  # fmt: skip
    """Boxes by falling score, as many as there are, without those that overlap one before.

    With a second output, which the standard has not, as many as there may be: rows of -1 are behind
    those that it counts.
    """
    most = 0 if limit is None else integer(limit, "max_output_boxes_per_class")
    is_padded = node.outputs > 1
    xp: Any = jnp if is_padded else np
    known = (lambda x, _: jnp.asarray(x)) if is_padded else static
    overlap = 0.0 if iou_threshold is None else known(iou_threshold, "iou_threshold").ravel()[0]
    least = None
    if score_threshold is not None:
        least = known(score_threshold, "score_threshold").ravel()[0]
    corners: Any = known(boxes, "boxes")
    values: Any = known(scores, "scores")
    with enable_x64(True):
        corners = corners.astype(np.float64)
        if center_point_box:
            center, size = corners[..., :2], corners[..., 2:]
            corners = xp.concatenate([center - size / 2, center + size / 2], -1)
        low = xp.minimum(corners[..., :2], corners[..., 2:])
        high = xp.maximum(corners[..., :2], corners[..., 2:])
    if is_padded:
        kept = selected_boxes(low[:, None], high[:, None], values, max_dim(most, 0), overlap, least)
        return _rows_of(kept)
    found = [
        (b, c, i)
        for b, c in np.ndindex(*values.shape[:2])
        for i in kept_boxes(low[b], high[b], values[b, c], most, overlap, least)
    ]
    return np.array(found, np.int64).reshape(-1, 3)


def _rows_of(kept: Any) -> tuple[Padded, Any]:
    """Rows (batch, class, box) of boxes `(batch, classes, most)`, and how many are none of -1."""
    there = (kept >= 0).ravel()
    count = there.shape[0]
    rows = jnp.stack(jnp.broadcast_arrays(*_places_of(kept), kept), -1).reshape(count, 3)
    at = jnp.where(there, jnp.cumsum(there) - 1, count)
    made = jnp.full((count, 3), -1, rows.dtype).at[at].set(rows, mode="drop")
    selected = there.sum(dtype=jnp.int64)
    return Padded(made.astype(jnp.int64), 0, selected), selected


def _places_of(kept: Any) -> list[Any]:
    return [lax.broadcasted_iota(kept.dtype, kept.shape, axis) for axis in (0, 1)]
