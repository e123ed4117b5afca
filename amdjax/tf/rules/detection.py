"""Boxes: suppression of those that overlap, and what images show in them."""

from __future__ import annotations

from typing import Any

import numpy as np

import amdjax.numpy as jnp
from amdjax.core.dims import is_symbolic_dim, min_dim
from amdjax.export.suppression import selected_boxes, softly_selected_boxes

from ..nodes import Node
from ..registry import rule, size, sizes, to_device


@rule(
    "NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3", "NonMaxSuppressionV4",
    "NonMaxSuppressionV5", numbers=("max_output_size", "soft_nms_sigma"),
)  # fmt: skip
def non_max_suppression(
    node: Node, boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any = None,
    score_threshold: Any = None, soft_nms_sigma: Any = None,
) -> Any:  # fmt: skip
    """Which boxes are kept; if padded, as many as are asked for, with their number."""
    version = int(node.op.removeprefix("NonMaxSuppression").lstrip("V") or 1)
    if boxes.ndim != 2 or boxes.shape[-1] != 4 or scores.ndim != 1:
        raise node.error(f"boxes of shape {boxes.shape}, scores of shape {scores.shape}")
    most = size(node, "max_output_size", max_output_size)
    overlap = node.real("iou_threshold", 0.5) if iou_threshold is None else iou_threshold
    low, high = _corners(to_device(boxes))
    sigma = 0.0 if soft_nms_sigma is None else float(np.ravel(soft_nms_sigma)[0])
    if sigma < 0:
        raise node.error(f"soft_nms_sigma must not be below 0, got {sigma}")
    if sigma:
        kept, values = softly_selected_boxes(
            low, high, to_device(scores), most, overlap, score_threshold, sigma
        )
    else:
        kept = selected_boxes(low, high, to_device(scores), most, overlap, score_threshold)
        values = jnp.where(kept >= 0, to_device(scores)[kept], 0).astype(scores.dtype)
    count = (kept >= 0).sum(dtype=np.int32)
    if version >= 4 and node.flag("pad_to_max_output_size"):
        kept, values = (jnp.pad(x, (0, most - kept.shape[0])) for x in (kept, values))
    else:
        rows = _count(node, count)
        kept, values = kept[:rows], values[:rows]
    made = (jnp.maximum(kept, 0), values, count)
    return made if version == 5 else made[::2] if version == 4 else made[0]


def _count(node: Node, count: Any) -> int:
    """How many boxes are kept, which must be known."""
    try:
        return int(count)
    except Exception as e:
        raise node.error(
            "how many boxes it keeps depends on inputs: call model.function outside of jit, or set "
            "pad_to_max_output_size"
        ) from e


def _corners(boxes: Any) -> tuple[Any, Any]:
    one, other = boxes[..., :2], boxes[..., 2:]
    return jnp.minimum(one, other), jnp.maximum(one, other)


@rule(
    "CombinedNonMaxSuppression", numbers=("max_output_size_per_class", "max_total_size")
)  # fmt: skip
def combined_non_max_suppression(
    node: Node, boxes: Any, scores: Any, max_output_size_per_class: Any, max_total_size: Any,
    iou_threshold: Any, score_threshold: Any,
) -> Any:  # fmt: skip
    """The best boxes of all classes of each image, zeros behind them."""
    boxes, scores = to_device(boxes), to_device(scores)
    if boxes.ndim != 4 or scores.ndim != 3 or boxes.shape[2] not in (1, scores.shape[2]):
        raise node.error(f"boxes of shape {boxes.shape}, scores of shape {scores.shape}")
    each = size(node, "max_output_size_per_class", max_output_size_per_class)
    total = size(node, "max_total_size", max_total_size)
    classes = scores.shape[2]
    if node.flag("pad_per_class"):
        total = min_dim(total, each * classes)
    by_class, places = scores.swapaxes(1, 2), boxes.swapaxes(1, 2)  # (batch, classes, boxes, …)
    low, high = _corners(places)
    kept = selected_boxes(low, high, by_class, each, iou_threshold, score_threshold)
    there, at = kept >= 0, jnp.maximum(kept, 0)
    found = jnp.where(there, jnp.take_along_axis(by_class, at, -1), -np.inf)
    places = jnp.broadcast_to(places, (*by_class.shape, 4))
    places = jnp.take_along_axis(places, at[..., None], -2)
    which = jnp.broadcast_to(jnp.arange(classes)[:, None], found.shape)
    rows = found.shape[1] * found.shape[2]
    flat = [x.reshape(x.shape[0], rows, *x.shape[3:]) for x in (found, places, which, there)]
    order = jnp.argsort(-flat[0], axis=-1, stable=True)[:, :total]
    found, places, which, there = (
        jnp.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), 1) for x in flat
    )
    if node.flag("clip_boxes", True):
        places = jnp.clip(places, 0, 1)
    made = (places, found, which.astype(scores.dtype))
    rest = total - order.shape[1]
    padded = [
        jnp.pad(
            jnp.where(there.reshape(*there.shape, *[1] * (x.ndim - 2)), x, 0),
            [(0, 0), (0, rest), *[(0, 0)] * (x.ndim - 2)],
        )
        for x in made
    ]
    return (*padded, there.sum(1, dtype=np.int32))


@rule("CropAndResize", numbers=("crop_size",))
def crop_and_resize(node: Node, image: Any, boxes: Any, box_ind: Any, crop_size: Any) -> Any:
    """Parts of images in boxes `(top, left, bottom, right)`, in units of the images' sizes."""
    image, boxes, which = (to_device(x) for x in (image, boxes, box_ind))
    if image.ndim != 4 or boxes.ndim != 2 or boxes.shape[-1] != 4 or crop_size.size != 2:
        raise node.error(f"images of shape {image.shape}, boxes of shape {boxes.shape}")
    method = node.text("method", "bilinear", ("bilinear", "nearest"))
    beyond = np.float32(node.real("extrapolation_value", 0.0))
    x = image.astype(np.float32)
    at, inside = [], []
    for axis, new in enumerate(sizes(crop_size)):
        places = _places(image.shape[1 + axis], new, boxes[:, axis], boxes[:, 2 + axis])
        at.append(places)
        inside.append((places >= 0) & (places <= image.shape[1 + axis] - 1))
    images = which.astype(np.int32)[:, None, None]
    last = [n - 1 for n in image.shape[1:3]]

    def read(rows: Any, columns: Any) -> Any:
        kept = [jnp.clip(p, 0, n).astype(np.int32) for p, n in zip((rows, columns), last)]
        return x[images, kept[0][:, :, None], kept[1][:, None, :]]

    if method == "nearest":
        y = read(*(_round(p) for p in at))
    else:
        (top, left), (dy, dx) = zip(*((jnp.floor(p), p - jnp.floor(p)) for p in at))
        (bottom, right), dy, dx = (
            (jnp.ceil(p) for p in at),
            dy[:, :, None, None],
            dx[:, None, :, None],
        )
        upper = read(top, left) + (read(top, right) - read(top, left)) * dx
        lower = read(bottom, left) + (read(bottom, right) - read(bottom, left)) * dx
        y = upper + (lower - upper) * dy
    is_in = inside[0][:, :, None] & inside[1][:, None, :]
    return jnp.where(is_in[..., None], y, beyond)


def _round(x: Any) -> Any:
    """Halves away from zero, as C rounds them."""
    return jnp.trunc(x + jnp.where(x < 0, np.float32(-0.5), np.float32(0.5)))


def _places(n: Any, new: Any, first: Any, last: Any) -> Any:
    """Where pixels of crops lie, `(boxes, new)`."""
    extent = np.float32(n - 1) if not is_symbolic_dim(n) else jnp.asarray(n - 1).astype(np.float32)
    if not is_symbolic_dim(new) and new == 1:
        return (0.5 * (first + last) * extent)[:, None]
    step = (last - first) * extent / (new - 1)
    return first[:, None] * extent + jnp.arange(new).astype(np.float32) * step[:, None]
