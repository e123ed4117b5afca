"""Images: resizing, sampling, regions and boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from amdjax import nn, numpy as jnp

from ..errors import OnnxError
from ..registry import ints, rule, static
from .convolutions import bilinear

# Resizing: each axis for itself, each new sample a sum of a few old ones


class Axis(NamedTuple):
    """How one axis is resized."""

    size: int
    new: int
    scale: float
    roi: tuple[float, float]


def _half_pixel(at: np.ndarray, axis: Axis) -> np.ndarray:
    return (at + 0.5) / axis.scale - 0.5


def _half_pixel_symmetric(at: np.ndarray, axis: Axis) -> np.ndarray:
    """The middle of the image stays where it is, whatever size was rounded off."""
    adjusted = axis.new / (axis.scale * axis.size)
    center = axis.size / 2
    return center * (1 - adjusted) + _half_pixel(at, axis)


def _pytorch_half_pixel(at: np.ndarray, axis: Axis) -> np.ndarray:
    return _half_pixel(at, axis) if axis.scale * axis.size > 1 else np.zeros_like(at)


def _align_corners(at: np.ndarray, axis: Axis) -> np.ndarray:
    length = axis.scale * axis.size
    return np.zeros_like(at) if length == 1 else at * (axis.size - 1) / (length - 1)


def _crop_and_resize(at: np.ndarray, axis: Axis) -> np.ndarray:
    first, last = axis.roi
    if axis.new == 1:
        return np.full_like(at, (first + last) * (axis.size - 1) / 2)
    inside = first * (axis.size - 1)
    return inside + at * (last - first) * (axis.size - 1) / (axis.new - 1)


_PLACES: dict[str, Callable[[np.ndarray, Axis], np.ndarray]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": lambda at, axis: at / axis.scale,
    "tf_half_pixel_for_nn": lambda at, axis: (at + 0.5) / axis.scale,
    "tf_crop_and_resize": _crop_and_resize,
}
_NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _linear(distance: np.ndarray, a: float) -> np.ndarray:
    return np.maximum(1 - distance, 0)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


_KERNELS = {"linear": (_linear, 1), "cubic": (_cubic, 2)}


def _taps(
    axis: Axis, mode: str, places: str, nearest: str, antialias: bool, exclude: bool, a: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Old samples and their shares of each new one, `(new, taps)`, and where new ones lie."""
    at = _PLACES[places](np.arange(axis.new, dtype=np.float64), axis)
    if mode == "nearest":
        index = np.clip(_NEAREST[nearest](at), 0, axis.size - 1)[:, None]
        return index.astype(np.int32), np.ones_like(index), at
    kernel, radius = _KERNELS[mode]
    # Smaller images are low-passed: the kernel is as wide as a new sample.
    width = max(1 / axis.scale, 1.0) if antialias else 1.0
    reach = int(np.ceil(radius * width))
    index = np.floor(at)[:, None] + np.arange(1 - reach - (width > 1), reach + 1 + (width > 1))
    share = kernel(abs(at[:, None] - index) / width, a)
    if exclude or antialias:
        if exclude:
            share = np.where((index < 0) | (index >= axis.size), 0, share)
        share = share / share.sum(1, keepdims=True)
    return np.clip(index, 0, axis.size - 1).astype(np.int32), share, at


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
    dtype = x.dtype
    y = x if mode == "nearest" else x.astype(jnp.promote_types(dtype, np.float32))
    outside: Any = False
    for a, axis in made.items():
        if (
            axis.new == axis.size
            and axis.scale == 1
            and "crop" not in coordinate_transformation_mode
        ):
            continue
        index, share, at = _taps(
            axis, mode, coordinate_transformation_mode, nearest_mode, bool(antialias),
            bool(exclude_outside), cubic_coeff_a,
        )  # fmt: skip
        y = _resampled(y, a, index, share)
        beyond = (at < 0) | (at > axis.size - 1)
        outside = outside | beyond.reshape([-1 if i == a else 1 for i in range(x.ndim)])
    if coordinate_transformation_mode == "tf_crop_and_resize":
        y = jnp.where(outside, np.asarray(extrapolation_value).astype(y.dtype), y)
    if np.issubdtype(dtype, np.integer) and y.dtype != dtype:
        y = jnp.clip(jnp.round(y), jnp.iinfo(dtype).min, jnp.iinfo(dtype).max)
    return y.astype(dtype)


def _resampled(y: Any, axis: int, index: np.ndarray, share: np.ndarray) -> Any:
    if index.shape[1] == 1:
        return jnp.take(y, index[:, 0], axis)
    spread = [-1 if i == axis else 1 for i in range(y.ndim)]
    total: Any = 0
    for tap in range(index.shape[1]):
        if share[:, tap].any():
            weights = share[:, tap].reshape(spread).astype(y.dtype)
            total = total + jnp.take(y, index[:, tap], axis) * weights
    return total


def _axes(
    shape: tuple[int, ...], over: list[int], roi: Any, scales: Any, sizes: Any, policy: str
) -> dict[int, Axis]:
    """What each axis is resized by."""
    regions = None if roi is None or roi.size == 0 else static(roi, "roi").astype(np.float64)
    rank = len(over)

    def region(i: int) -> tuple[float, float]:
        return (0.0, 1.0) if regions is None else (float(regions[i]), float(regions[i + rank]))

    if scales is not None and scales.size:
        factors = static(scales, "scales").astype(np.float64).tolist()
        news = [int(np.floor(shape[a] * f)) for a, f in zip(over, factors)]
    elif sizes is not None:
        news = ints(sizes, "sizes")
        factors = [new / shape[a] for a, new in zip(over, news)]
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * rank
            news = [int(np.floor(shape[a] * factor + 0.5)) for a in over]
    else:
        raise OnnxError("it needs scales or sizes")
    if len(news) != rank:
        raise OnnxError(f"scales or sizes must have {rank} values, got {len(news)}")
    return {
        a: Axis(shape[a], n, f, region(i)) for i, (a, n, f) in enumerate(zip(over, news, factors))
    }


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
    score_threshold: Any = None, *, center_point_box: int = 0,
) -> Any:  # fmt: skip
    """Boxes by falling score, as many as there are, without those that overlap one before."""
    most = 0 if limit is None else int(static(limit, "max_output_boxes_per_class").ravel()[0])
    overlap = (
        0.0 if iou_threshold is None else float(static(iou_threshold, "iou_threshold").ravel()[0])
    )
    least = None
    if score_threshold is not None:
        least = float(static(score_threshold, "score_threshold").ravel()[0])
    corners = static(boxes, "boxes").astype(np.float64)
    if center_point_box:
        center, size = corners[..., :2], corners[..., 2:]
        corners = np.concatenate([center - size / 2, center + size / 2], -1)
    low = np.minimum(corners[..., :2], corners[..., 2:])
    high = np.maximum(corners[..., :2], corners[..., 2:])
    values = static(scores, "scores")
    found = [
        (b, c, i)
        for b, c in np.ndindex(*values.shape[:2])
        for i in _suppressed(low[b], high[b], values[b, c], most, overlap, least)
    ]
    return np.array(found, np.int64).reshape(-1, 3)


def _suppressed(
    low: np.ndarray, high: np.ndarray, scores: np.ndarray, most: int, overlap: float,
    least: float | None,
) -> list[int]:  # fmt: skip
    order = np.argsort(-scores, kind="stable")
    order = order if least is None else order[scores[order] > least]
    area = (high - low).prod(-1)
    kept: list[int] = []
    for i in order:
        if len(kept) >= most:
            break
        common = np.maximum(
            np.minimum(high[kept], high[i]) - np.maximum(low[kept], low[i]), 0
        ).prod(-1)
        union = area[kept] + area[i] - common
        if not ((common > overlap * union) & (union > 0)).any():
            kept.append(int(i))
    return kept
